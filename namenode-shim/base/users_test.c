/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: what is known of a caller is not forgotten before it is answered, whoever else
 * comes; a name that came once goes before one that came again; only so many calls wait for the
 * accounts, and those of data nodes come first. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/rpc/server.h"
#include "namenode-shim/base/users.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"
#include "namenode-shim/rpc/resolver_thread.h"

/* What the accounts say. A look-up after it was changed finds something else. */
static char accounts[256];

static void accounts_say(const char *text)
{
	snprintf(accounts, sizeof(accounts), "%s", text);
}

static int accounts_rc; /* they fail */

int __real_groups_of(const char *user, const char *fixed, char ***ret);
int __wrap_groups_of(const char *user, const char *fixed, char ***ret);
int __wrap_groups_of(const char *user, const char *fixed, char ***ret)
{
	return accounts_rc ? accounts_rc : __real_groups_of(user, fixed, ret);
}

static void flood(struct users *u)
{
	for (int i = 0; i < 2 * USERS_MAX; i++) {
		char name[32];

		snprintf(name, sizeof(name), "nobody-%d", i);
		users_load(u, name);
	}
}

static void a_caller_in_its_turn_is_known_though_many_names_come(void **state)
{
	struct user *root, *bob;
	struct users *u;
	bool old;

	(void)state;
	accounts_say("rita=supergroup;bob=");
	u = users_new("supergroup", accounts);
	root = users_ask(u, "rita");
	bob = users_ask(u, "bob");
	accounts_say("rita=;bob=supergroup");
	flood(u);
	assert_true(users_is_super(u, "rita")); /* as it was: nobody was asked */
	assert_false(users_is_super(u, "bob"));
	users_let_go(root);
	users_let_go(bob);
	flood(u);
	assert_null(users_hold(u, "bob", &old));
	users_free(u);
}

static void a_refresh_counts_for_the_next_call(void **state)
{
	struct user *before, *after;
	struct users *u;
	bool old;

	(void)state;
	accounts_say("rita=supergroup");
	u = users_new("supergroup", accounts);
	before = users_ask(u, "rita");
	accounts_say("rita=");
	users_refresh(u);
	assert_true(users_is_super(u, "rita"));
	assert_null(users_hold(u, "rita", &old));
	after = users_ask(u, "rita");
	assert_false(users_is_super(u, "rita"));
	users_let_go(before);
	users_let_go(after);
	users_free(u);
}

static void a_name_that_came_once_goes_before_one_that_came_again(void **state)
{
	struct user *e;
	struct users *u;
	bool old;

	(void)state;
	accounts_say("rita=supergroup");
	u = users_new("supergroup", accounts);
	users_load(u, "rita");
	users_let_go(users_ask(u, "bob")); /* has no account here, and works */
	users_let_go(users_ask(u, "bob"));
	flood(u);
	assert_non_null(e = users_hold(u, "rita", &old));
	users_let_go(e);
	assert_non_null(e = users_hold(u, "bob", &old));
	users_let_go(e);
	assert_null(users_hold(u, "nobody-0", &old));
	users_free(u);
}

/* An administrator stays one, and who is not known may be in any group. */
static void accounts_that_fail_take_no_group_away(void **state)
{
	struct users *u;

	(void)state;
	accounts_say("rita=supergroup;bob=");
	u = users_new("supergroup", accounts);
	users_let_go(users_ask(u, "rita"));
	accounts_rc = -EIO;
	users_load(u, "rita");
	assert_true(users_is_super(u, "rita"));
	assert_false(users_undecided(u, "rita"));
	assert_false(users_is_super(u, "bob"));
	assert_true(users_undecided(u, "bob"));
	accounts_rc = 0;
	users_load(u, "bob");
	assert_false(users_undecided(u, "bob"));
	users_free(u);
}

/* ---- calls that wait ---- */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t order_lock = PTHREAD_MUTEX_INITIALIZER;
static const struct req *order[RESOLVER_MAX];
static atomic_uint came;
static atomic_bool at_gate;

static void wait_at_gate(struct req *q)
{
	(void)q;
	at_gate = true;
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
}

static void come_back(struct req *q) /* of two threads */
{
	pthread_mutex_lock(&order_lock);
	order[came++] = q;
	pthread_mutex_unlock(&order_lock);
}

static void no_wait(struct req *q)
{
	(void)q;
}

/* Where @q came back; -1: it did not. */
static int place_of(const struct req *q)
{
	int place = -1;

	pthread_mutex_lock(&order_lock);
	for (uint32_t i = 0; i < came; i++)
		if (order[i] == q)
			place = (int)i;
	pthread_mutex_unlock(&order_lock);
	return place;
}

static const struct method slow = {.name = "slow", .kind = REQ_READ, .prepare = wait_at_gate};
static const struct method quick = {.name = "quick", .kind = REQ_READ, .prepare = no_wait};

static void calls_of_strangers_have_a_bound(void **state)
{
	static struct req q[RESOLVER_PEER_MAX + 4];
	struct rpc_call one = {.user = "bob", .peer_ip = "10.0.0.1"};
	struct rpc_call other = {.user = "bob", .peer_ip = "10.0.0.2"};
	struct nn nn = {.users = users_new("supergroup", "bob="), .read_later = come_back};
	struct req *dn = &q[RESOLVER_PEER_MAX + 2], *next = &q[RESOLVER_PEER_MAX + 3];
	struct resolver *l;

	(void)state;
	for (size_t i = 0; i < sizeof(q) / sizeof(q[0]); i++)
		q[i] = (struct req){.nn = &nn, .method = &slow, .call = &one};
	next->call = &other;
	dn->datanode = true;
	pthread_mutex_lock(&gate);
	assert_int_equal(resolver_new(&l), 0);
	assert_true(resolver_submit(l, &q[0]));
	while (!at_gate)
		sched_yield();
	for (int i = 1; i <= RESOLVER_PEER_MAX; i++)
		assert_true(resolver_submit(l, &q[i]));
	assert_false(resolver_submit(l, &q[RESOLVER_PEER_MAX + 1]));
	assert_true(resolver_submit(l, next)); /* another address */
	assert_true(resolver_submit(l, dn));
	pthread_mutex_unlock(&gate);
	resolver_free(l);
	assert_int_equal(came, RESOLVER_PEER_MAX + 3);
	assert_true(place_of(dn) >= 0);
	assert_true(place_of(next) > place_of(&q[RESOLVER_PEER_MAX]));
	for (size_t i = 0; i < sizeof(q) / sizeof(q[0]); i++)
		users_let_go(q[i].caller);
	users_free(nn.users);
}

/* A look-up takes as long as the accounts like. Anybody can name the protocol of data nodes. */
static void a_stranger_keeps_nobody_who_is_known(void **state)
{
	static struct req q[4];
	struct rpc_call stranger = {.user = "mallory", .peer_ip = "10.0.0.1"};
	struct rpc_call known = {.user = "bob", .peer_ip = "10.0.0.2"};
	struct nn nn = {.users = users_new("supergroup", "bob=;mallory="),
			.service_acl = (struct service_acl *)&nn, /* groups are needed by all */
			.read_later = come_back};
	struct resolver *l;

	(void)state;
	came = 0;
	at_gate = false;
	for (size_t i = 0; i < sizeof(q) / sizeof(q[0]); i++)
		q[i] = (struct req){.nn = &nn, .method = &slow, .call = &stranger};
	q[1].datanode = q[3].datanode = true;
	q[2].call = q[3].call = &known;
	q[2].method = q[3].method = &quick;
	q[2].caller = users_ask(nn.users, "bob");
	q[3].caller = users_ask(nn.users, "bob");
	pthread_mutex_lock(&gate);
	assert_int_equal(resolver_new(&l), 0);
	assert_true(resolver_submit(l, &q[0]));
	while (!at_gate)
		sched_yield();
	for (int i = 1; i < 4; i++)
		assert_true(resolver_submit(l, &q[i]));
	for (int ms = 0; came < 2 && ms < 10000; ms++)
		(void)poll(NULL, 0, 1);
	assert_int_equal(came, 2); /* while the stranger waits */
	assert_true(place_of(&q[2]) >= 0 && place_of(&q[3]) >= 0);
	pthread_mutex_unlock(&gate);
	resolver_free(l);
	assert_int_equal(came, 4);
	assert_true(place_of(&q[1]) > place_of(&q[0]));
	for (size_t i = 0; i < sizeof(q) / sizeof(q[0]); i++)
		users_let_go(q[i].caller);
	users_free(nn.users);
}

/* Calls of data nodes go before those of other known callers. */
static void data_nodes_come_first(void **state)
{
	static struct req q[3];
	struct rpc_call known = {.user = "bob", .peer_ip = "10.0.0.2"};
	struct nn nn = {.users = users_new("supergroup", "bob="), .read_later = come_back};
	struct resolver *l;

	(void)state;
	came = 0;
	at_gate = false;
	for (size_t i = 0; i < sizeof(q) / sizeof(q[0]); i++)
		q[i] = (struct req){.nn = &nn,
				    .method = i ? &quick : &slow,
				    .call = &known,
				    .caller = users_ask(nn.users, "bob")};
	q[2].datanode = true;
	pthread_mutex_lock(&gate);
	assert_int_equal(resolver_new(&l), 0);
	assert_true(resolver_submit(l, &q[0]));
	while (!at_gate)
		sched_yield();
	assert_true(resolver_submit(l, &q[1]));
	assert_true(resolver_submit(l, &q[2]));
	pthread_mutex_unlock(&gate);
	resolver_free(l);
	assert_int_equal(came, 3);
	assert_ptr_equal(order[1], &q[2]);
	for (size_t i = 0; i < sizeof(q) / sizeof(q[0]); i++)
		users_let_go(q[i].caller);
	users_free(nn.users);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_caller_in_its_turn_is_known_though_many_names_come),
		cmocka_unit_test(a_refresh_counts_for_the_next_call),
		cmocka_unit_test(a_name_that_came_once_goes_before_one_that_came_again),
		cmocka_unit_test(accounts_that_fail_take_no_group_away),
		cmocka_unit_test(calls_of_strangers_have_a_bound),
		cmocka_unit_test(a_stranger_keeps_nobody_who_is_known),
		cmocka_unit_test(data_nodes_come_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
