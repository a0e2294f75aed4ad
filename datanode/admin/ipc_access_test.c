/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a caller whose groups cannot be had now is neither let in nor refused, and few
 * threads wait for the accounts at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/groups.h"
#include "common/rpc/service_acl.h"
#include "common/wire/rpc_frame.h"
#include "datanode/admin/ipc_internal.h"
#include "datanode/dn.h"

static struct dn dn;
static struct ipc ipc = {.dn = &dn};
static int groups_rc;      /* what the accounts say: 0, or an error */
static unsigned int asked; /* so often they were asked */
static char answer[160];   /* the class of the exception; "": none */

int __wrap_groups_of(const char *user, const char *fixed, char ***ret);
int __wrap_groups_of(const char *user, const char *fixed, char ***ret)
{
	(void)fixed;
	asked++;
	if (groups_rc < 0)
		return groups_rc;
	*ret = calloc(1, sizeof(**ret));
	assert_non_null(*ret);
	if (strcmp(user, "carol") && strncmp(user, "guest", 5))
		return 0;
	**ret = strdup(strcmp(user, "carol") ? "guests" : "staff");
	return 1;
}

void __wrap_rpc_fail(struct rpc_call *call, const char *cls, const char *fmt, ...);
void __wrap_rpc_fail(struct rpc_call *call, const char *cls, const char *fmt, ...)
{
	(void)call, (void)fmt;
	(void)snprintf(answer, sizeof(answer), "%s", cls);
}

static struct rpc_call call_of(const char *user)
{
	answer[0] = '\0';
	asked = 0;
	return (struct rpc_call){
		.protocol = RPC_PROTO_CLIENT_DATANODE, .user = user, .peer_ip = "10.0.0.1"};
}

static bool may_call(const char *user)
{
	struct rpc_call call = call_of(user);
	const bool may = ipc_may_call(&ipc, &call);

	assert_int_equal(may, answer[0] == '\0');
	return may;
}

/* The protocol is for everybody but the members of the group staff. */
static int block_staff(void **state)
{
	struct err err = ERR_INIT;
	struct conf *c = conf_new();

	(void)state;
	ipc_access_init(&ipc);
	dn.conf = c;
	if (conf_set(c, "hadoop.security.authorization", "true") ||
	    conf_set(c, "security.client.datanode.protocol.acl.blocked", " staff"))
		return -1;
	return service_acl_new(c, &ipc.service_acl, &err);
}

static int unblock(void **state)
{
	(void)state;
	service_acl_free(ipc.service_acl);
	ipc.service_acl = NULL;
	conf_free((struct conf *)(uintptr_t)dn.conf);
	ipc.asking = 0;
	ipc_access_fini(&ipc);
	groups_rc = 0;
	return 0;
}

static void a_member_of_a_blocked_group_is_refused(void **state)
{
	(void)state;
	assert_false(may_call("carol"));
	assert_string_equal(answer, JEX_AUTHORIZATION);
	assert_true(may_call("bob"));
	assert_int_equal(ipc.asking, 0);
}

static void while_others_wait_nobody_is_let_in_unseen(void **state)
{
	(void)state;
	ipc.asking = 2;
	assert_false(may_call("carol"));
	assert_string_equal(answer, JEX_RETRIABLE);
	assert_int_equal(asked, 0);
	assert_int_equal(ipc.asking, 2);
}

static void groups_that_cannot_be_had_let_nobody_in(void **state)
{
	(void)state;
	groups_rc = -ENOMEM;
	assert_false(may_call("carol"));
	assert_string_equal(answer, JEX_RETRIABLE);
	assert_int_equal(asked, 1);
}

static bool is_admin(const char *user)
{
	struct rpc_call call = call_of(user);
	const bool is = ipc_is_admin(&ipc, &call);

	assert_int_equal(is, answer[0] == '\0');
	return is;
}

static int name_admins(void **state)
{
	struct conf *c = conf_new();

	(void)state;
	ipc_access_init(&ipc);
	dn.conf = c;
	return conf_set(c, "dfs.permissions.superusergroup", "staff");
}

static void orders_are_for_the_user_of_the_node_and_the_super_group(void **state)
{
	(void)state;
	assert_true(is_admin(ipc.user));
	assert_int_equal(asked, 0);
	assert_true(is_admin("carol"));
	assert_false(is_admin("bob"));
	assert_string_equal(answer, JEX_ACCESS_CONTROL);
	groups_rc = -EIO;
	assert_false(is_admin("dave"));
	assert_string_equal(answer, JEX_RETRIABLE);
	assert_int_equal(ipc.asking, 0);
}

/* Strangers keep the accounts busy. Whoever was known before them, or is named by the
 * configuration, needs no accounts. */
static void who_is_known_does_not_wait_for_the_accounts(void **state)
{
	struct conf *c = (struct conf *)(uintptr_t)dn.conf;

	(void)state;
	assert_true(is_admin("carol"));
	assert_int_equal(asked, 1);
	assert_int_equal(conf_set(c, "hadoop.user.group.static.mapping.overrides", "eve=staff"), 0);
	ipc.asking = 2;
	assert_true(is_admin("carol"));
	assert_true(is_admin("eve"));
	assert_int_equal(asked, 0);
	assert_false(is_admin("bob"));
	assert_string_equal(answer, JEX_RETRIABLE);
}

/* Anybody may use names of others that are in groups, and twice as often those of the
 * configuration. */
static void names_of_others_do_not_push_out_an_administrator(void **state)
{
	struct conf *c = (struct conf *)(uintptr_t)dn.conf;
	char name[32];

	(void)state;
	assert_int_equal(conf_set(c, "hadoop.user.group.static.mapping.overrides", "eve=guests"),
			 0);
	assert_true(is_admin("carol"));
	for (int i = 0; i < 2 * IPC_USERS_MAX; i++) {
		(void)snprintf(name, sizeof(name), "guest%d", i);
		assert_false(is_admin(name));
		assert_false(is_admin("eve"));
	}
	ipc.asking = 2;
	assert_true(is_admin("carol"));
	/* nor does time, as long as the accounts are kept busy */
	for (uint32_t u = 0; u < IPC_USERS_MAX; u++)
		if (ipc.users[u])
			ipc.users[u]->until_ns = clock_mono_ns() - 1;
	assert_true(is_admin("carol"));
	ipc.asking = 0;
	groups_rc = -EIO;
	assert_true(is_admin("carol"));
}

/* The accounts did not answer at the start. */
static void a_node_that_does_not_know_its_user_asks_again(void **state)
{
	char self[sizeof(ipc.user)];

	(void)state;
	memcpy(self, ipc.user, sizeof(self));
	ipc.user[0] = '\0';
	ipc.user_known = false;
	assert_false(is_admin("dfs"));
	assert_true(is_admin(self));
	assert_string_equal(ipc.user, self);
}

static void orders_of_many_do_not_all_wait_for_the_accounts(void **state)
{
	(void)state;
	ipc.asking = 2;
	assert_false(is_admin("carol"));
	assert_string_equal(answer, JEX_RETRIABLE);
	assert_int_equal(asked, 0);
	assert_true(is_admin(ipc.user));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_member_of_a_blocked_group_is_refused, block_staff,
						unblock),
		cmocka_unit_test_setup_teardown(while_others_wait_nobody_is_let_in_unseen,
						block_staff, unblock),
		cmocka_unit_test_setup_teardown(groups_that_cannot_be_had_let_nobody_in,
						block_staff, unblock),
		cmocka_unit_test_setup_teardown(
			orders_are_for_the_user_of_the_node_and_the_super_group, name_admins,
			unblock),
		cmocka_unit_test_setup_teardown(who_is_known_does_not_wait_for_the_accounts,
						name_admins, unblock),
		cmocka_unit_test_setup_teardown(names_of_others_do_not_push_out_an_administrator,
						name_admins, unblock),
		cmocka_unit_test_setup_teardown(a_node_that_does_not_know_its_user_asks_again,
						name_admins, unblock),
		cmocka_unit_test_setup_teardown(orders_of_many_do_not_all_wait_for_the_accounts,
						name_admins, unblock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
