/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: who needs to know is answered with 0 only when each block is on the disk of one
 * of its nodes at least, and all nodes were asked; an error is told as long as it may pass, else
 * once; nothing is asked twice when it is known. The data nodes are fakes. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/src/fs/fs.h"
#include "client/src/stream/dtp.h"
#include "client/src/write/deferred_sync.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/pb.h"

#define NODES 4
#define FIRST_PORT 1000

enum how { GOOD, REFUSES, GONE, GOES, HANGS_UP_ONCE, HANGS };

static struct {
	enum how how;
	atomic_uint asked;
	uint64_t later, block; /* that it was asked for last */
	unsigned int hang_ms;  /* HANGS: until so long after start_ns; 0: for ever */
} node[NODES];
static uint64_t start_ns;
static struct dfs fs;

static void finish(uint64_t id, int from, size_t n);

/* ---- the fakes ---- */

struct sock *__wrap_sock_cache_get_sound(struct sock_cache *c, const struct net_addr *a);
int __wrap_sock_start(const struct net_addr *a, struct sock **ret, struct err *err);
int __wrap_sock_connected(struct sock *s, const struct net_addr *a, struct err *err);
void __wrap_sock_cache_put(struct sock_cache *c, struct sock *s);
void __wrap_sock_close(struct sock *s);
int __wrap_dtp_send_op(struct sock *s, enum dt_op op, const ProtobufCMessage *m,
		       uint64_t deadline_ns, struct err *err);
int __wrap_dtp_recv_reply(struct sock *s, uint64_t deadline_ns, Hd__BlockOpResponseProto **ret,
			  struct err *err);

static struct sock *sock_to(const struct net_addr *a, bool kept)
{
	struct sock *s = calloc(1, sizeof(*s));

	s->fd = (int)net_port(a) - FIRST_PORT;
	s->reused = kept;
	return s;
}

struct sock *__wrap_sock_cache_get_sound(struct sock_cache *c, const struct net_addr *a)
{
	(void)c;
	return node[net_port(a) - FIRST_PORT].how >= HANGS_UP_ONCE ? sock_to(a, true) : NULL;
}

int __wrap_sock_start(const struct net_addr *a, struct sock **ret, struct err *err)
{
	if (node[net_port(a) - FIRST_PORT].how == GONE)
		return err_set(err, -ECONNREFUSED, "nobody listens");
	*ret = sock_to(a, false);
	return 0;
}

int __wrap_sock_connected(struct sock *s, const struct net_addr *a, struct err *err)
{
	(void)s, (void)a, (void)err;
	return 1;
}

void __wrap_sock_cache_put(struct sock_cache *c, struct sock *s)
{
	(void)c;
	free(s);
}

void __wrap_sock_close(struct sock *s)
{
	free(s);
}

int __wrap_dtp_send_op(struct sock *s, enum dt_op op, const ProtobufCMessage *m,
		       uint64_t deadline_ns, struct err *err)
{
	(void)deadline_ns, (void)err;
	assert_int_equal(op, DT_SYNC_LATER);
	node[s->fd].later = ((const Hd__OpSyncLaterProto *)m)->later;
	node[s->fd].block = ((const Hd__OpSyncLaterProto *)m)->header->block->blockid;
	return 0;
}

static bool answers_before(int k, uint64_t deadline_ns)
{
	const uint64_t until = start_ns + node[k].hang_ms * NS_PER_MS;

	while (clock_mono_ns() < deadline_ns && (!node[k].hang_ms || clock_mono_ns() < until))
		(void)nanosleep(&(struct timespec){0, 1000000}, NULL);
	return clock_mono_ns() < deadline_ns;
}

int __wrap_dtp_recv_reply(struct sock *s, uint64_t deadline_ns, Hd__BlockOpResponseProto **ret,
			  struct err *err)
{
	Hd__BlockOpResponseProto m = HD__BLOCK_OP_RESPONSE_PROTO__INIT;
	uint8_t *buf;
	size_t len;

	node[s->fd].asked++;
	if (node[s->fd].how == HANGS && !answers_before(s->fd, deadline_ns))
		return err_set(err, -ETIMEDOUT, "no answer");
	if (node[s->fd].how == GOES) { /* and file 2 was finished while it was asked */
		node[s->fd].how = GONE;
		finish(2, s->fd, 1);
		return err_set(err, -ECONNRESET, "closed");
	}
	if (node[s->fd].how == HANGS_UP_ONCE && s->reused)
		return err_set(err, -ECONNRESET, "closed");
	m.status = node[s->fd].how == REFUSES ? HD__STATUS__ERROR : HD__STATUS__SUCCESS;
	assert_int_equal(pb_pack(&m, &buf, &len), 0);
	assert_int_equal(pb_unpack(&hd__block_op_response_proto__descriptor, buf, len, ret), 0);
	free(buf);
	return m.status ? err_set(err, -EIO, "it could not") : 0;
}

/* ---- blocks ---- */

/* The only block of file @id, on the nodes from..from + n - 1, which have said 100 + their number.
 */
static void finish(uint64_t id, int from, size_t n)
{
	Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	Hc__TokenProto token = HC__TOKEN_PROTO__INIT;
	Hd__DatanodeIDProto ids[NODES];
	Hd__DatanodeInfoProto infos[NODES], *locs[NODES];
	uint64_t later[NODES];
	char uuid[NODES][8], pool[] = "BP-1", empty[] = "", ip[] = "127.0.0.1";

	for (size_t i = 0; i < n; i++) {
		const uint32_t k = (uint32_t)from + (uint32_t)i;

		hd__datanode_idproto__init(&ids[i]);
		hd__datanode_info_proto__init(&infos[i]);
		snprintf(uuid[i], sizeof(uuid[i]), "u%u", k);
		ids[i].ipaddr = ids[i].hostname = ip;
		ids[i].datanodeuuid = uuid[i];
		ids[i].xferport = FIRST_PORT + k;
		infos[i].id = &ids[i];
		locs[i] = &infos[i];
		later[i] = 100 + k;
	}
	b.poolid = pool;
	b.blockid = id;
	token.kind = token.service = empty;
	lb.b = &b;
	lb.blocktoken = &token;
	lb.n_locs = n;
	lb.locs = locs;
	deferred_sync_add(&fs, id, located_copy(&lb), later, n);
}

static int settle(void)
{
	struct err err = ERR_INIT;

	return deferred_sync_settle(&fs, &err);
}

static int settle_file(uint64_t id)
{
	struct err err = ERR_INIT;

	return deferred_sync_settle_file(&fs, id, &err);
}

static void settle_new(void)
{
	deferred_sync_settle_new(&fs, 0, clock_mono_ns() + NS_PER_S);
}

static int setup(void **state)
{
	(void)state;
	memset(node, 0, sizeof(node));
	deferred_sync_init(&fs.late);
	fs.late.count = 0;
	fs.late.lost = false;
	fs.set.connect_timeout_ms = fs.set.socket_timeout_ms = 1000;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	deferred_sync_fini(&fs.late);
	return 0;
}

/* ---- tests ---- */

static void each_node_is_asked_once(void **state)
{
	(void)state;
	for (uint64_t id = 1; id < 100; id++)
		finish(id, (int)(id % 2), 3);
	assert_int_equal(fs.late.count, 2);
	assert_int_equal(settle(), 0);
	for (uint32_t i = 0; i < NODES; i++) {
		assert_int_equal(node[i].asked, 1);
		assert_int_equal(node[i].later, 100 + i);
	}
	assert_int_equal(fs.late.count, 0);
	assert_int_equal(settle(), 0); /* it is known */
	assert_int_equal(node[0].asked, 1);
}

static void one_node_of_each_block_is_enough(void **state)
{
	(void)state;
	node[0].how = GONE;
	node[1].how = REFUSES;
	finish(1, 0, 3);
	assert_int_equal(settle(), 0);
	assert_int_equal(node[2].asked, 1);
	finish(2, 0, 2); /* has none */
	finish(3, 2, 2);
	assert_int_equal(settle(), -ECONNREFUSED);
	assert_int_equal(fs.late.count, 1);
}

static void what_may_pass_is_told_until_it_has(void **state)
{
	(void)state;
	node[0].how = GONE;
	finish(1, 0, 1);
	assert_int_equal(settle(), -ECONNREFUSED);
	deferred_sync_settle_quietly(&fs);
	assert_int_equal(settle(), -ECONNREFUSED);
	node[0].how = GOOD;
	assert_int_equal(settle(), 0);
	assert_int_equal(node[0].asked, 1);
}

static void what_is_lost_is_told_once(void **state)
{
	(void)state;
	node[0].how = REFUSES;
	finish(1, 0, 1);
	deferred_sync_settle_quietly(&fs); /* nobody hears it yet */
	finish(2, 1, 1);
	assert_int_equal(settle(), -EIO);
	assert_int_equal(node[1].asked, 1);
	assert_int_equal(settle(), 0);
}

static void an_outage_and_a_loss_are_told_one_by_one(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	node[0].how = GONE;
	node[1].how = REFUSES;
	finish(1, 0, 1);
	finish(2, 1, 1);
	assert_int_equal(deferred_sync_settle(&fs, &err), -ECONNREFUSED);
	assert_non_null(strstr(err.text, "nobody listens"));
	assert_int_equal(deferred_sync_try(&fs, &err), -ECONNREFUSED);
	assert_int_equal(fs.late.count, 1);
	node[0].how = GOOD;
	assert_int_equal(deferred_sync_try(&fs, &err), -EIO);
	assert_int_equal(settle(), -EIO);
	assert_int_equal(settle(), 0);
}

static void who_was_asked_in_vain_is_not_waited_for_again(void **state)
{
	(void)state;
	node[0].how = GONE;
	finish(1, 0, 1);
	settle_new();
	node[0].how = GOOD;
	settle_new();
	assert_int_equal(node[0].asked, 0);
	finish(2, 0, 1); /* it has answered since */
	settle_new();
	assert_int_equal(node[0].asked, 1);
	assert_int_equal(fs.late.count, 0);
}

static void *settle_elsewhere(void *arg)
{
	(void)arg;
	(void)settle();
	return NULL;
}

/* First for its turn, then for a node by a connection that was kept, then by a new one. */
static uint64_t time_of_all_waits(void)
{
	pthread_t other;
	uint64_t took;

	start_ns = clock_mono_ns();
	node[0].how = node[1].how = HANGS;
	node[0].hang_ms = 500;
	finish(1, 0, 1);
	assert_int_equal(pthread_create(&other, NULL, settle_elsewhere, NULL), 0);
	while (!node[0].asked)
		(void)sched_yield();
	finish(2, 1, 1);
	settle_new();
	took = clock_mono_ns() - start_ns;
	assert_int_equal(pthread_join(other, NULL), 0);
	assert_true(node[1].asked > 0);
	return took;
}

static void there_is_one_deadline_for_all_waits(void **state)
{
	uint64_t least = time_of_all_waits();

	/* on a busy machine the shortest of several says what was waited for */
	for (int i = 0; i < 9 && least > 1400 * NS_PER_MS; i++) {
		uint64_t took;

		(void)teardown(state);
		(void)setup(state);
		took = time_of_all_waits();
		least = took < least ? took : least;
	}
	assert_in_range(least, 500 * NS_PER_MS, 1400 * NS_PER_MS);
}

static void a_connection_that_was_kept_may_have_ended(void **state)
{
	(void)state;
	node[0].how = HANGS_UP_ONCE;
	finish(1, 0, 1);
	assert_int_equal(settle(), 0);
	assert_int_equal(node[0].asked, 2);
}

static void many_sets_of_nodes_are_asked_about_at_once(void **state)
{
	(void)state;
	finish(1, 0, 1);
	fs.late.count = LATE_SETS_MAX - 1;
	finish(2, 1, 1);
	assert_int_equal(node[0].asked, 1);
	assert_int_equal(node[1].asked, 1);
	fs.late.count = 0;
}

static void hsync_of_one_file_asks_its_nodes_alone(void **state)
{
	(void)state;
	node[1].how = GONE;
	finish(1, 0, 1);
	finish(2, 1, 1);
	finish(3, 0, 1);
	assert_int_equal(settle_file(3), 0);
	assert_int_equal(node[0].asked, 1);
	assert_int_equal(settle_file(4), 0); /* it has none */
	assert_int_equal(settle_file(2), -ECONNREFUSED);
	assert_int_equal(settle_file(1), 0); /* with 3 */
	assert_int_equal(node[0].asked, 1);
	node[1].how = GOOD;
	assert_int_equal(settle_file(2), 0);
	assert_int_equal(fs.late.count, 0);
}

/* Those that were asked about in vain, and those that came meanwhile. */
static void files_of_the_same_nodes_are_put_together(void **state)
{
	(void)state;
	node[0].how = GOES;
	finish(1, 0, 1);
	assert_int_equal(settle_file(1), -ECONNRESET);
	assert_int_equal(fs.late.count, 1);
	assert_int_equal(settle_file(1), -ECONNREFUSED);
	assert_int_equal(settle_file(2), -ECONNREFUSED);
	node[0].how = GOOD;
	assert_int_equal(settle_file(1), 0);
	assert_int_equal(fs.late.count, 0);
	assert_int_equal(node[0].asked, 2);
	assert_int_equal(node[0].block, 2); /* the newest, whose token lasts longest */
}

static void *ask_for_the_first(void *arg)
{
	(void)arg;
	deferred_sync_settle_new(&fs, 1, clock_mono_ns() + 50 * NS_PER_MS);
	return NULL;
}

/* The older block is put back while its nodes are asked about the newer one. */
static void the_newest_block_of_some_nodes_is_kept(void **state)
{
	pthread_t other;

	(void)state;
	node[0].how = HANGS;
	finish(1, 0, 1);
	assert_int_equal(pthread_create(&other, NULL, ask_for_the_first, NULL), 0);
	while (!node[0].asked)
		(void)sched_yield();
	finish(2, 0, 1);
	deferred_sync_settle_new(&fs, 2, clock_mono_ns() + 300 * NS_PER_MS);
	assert_int_equal(pthread_join(other, NULL), 0);
	assert_int_equal(fs.late.count, 1);
	node[0].how = GOOD;
	assert_int_equal(settle_file(1), 0);
	assert_int_equal(node[0].block, 2);
	assert_int_equal(settle_file(2), 0);
	assert_int_equal(fs.late.count, 0);
}

static void a_loss_is_not_told_to_the_hsync_of_another_file(void **state)
{
	(void)state;
	node[0].how = REFUSES;
	finish(1, 0, 1);
	finish(2, 1, 1);
	deferred_sync_settle_quietly(&fs);
	assert_int_equal(settle_file(2), 0);
	assert_int_equal(settle(), -EIO); /* it was left for this */
	assert_int_equal(settle_file(1), 0);
	finish(1, 0, 1);
	finish(3, 0, 1);
	assert_int_equal(settle_file(1), -EIO);
	assert_int_equal(settle_file(1), 0);
	assert_int_equal(settle_file(3), -EIO);
	assert_int_equal(settle(), 0); /* both know */
}

/* Beyond that any file may be one of them, but those that were made later. */
static void so_many_files_are_remembered(void **state)
{
	(void)state;
	node[0].how = GONE;
	for (uint64_t id = 2; id <= 8192; id += 2)
		finish(id, 0, 1);
	assert_int_equal(settle_file(5001), 0);
	assert_int_equal(settle_file(18), -ECONNREFUSED);
	finish(8194, 0, 1);
	assert_int_equal(settle_file(5001), -ECONNREFUSED);
	assert_int_equal(settle_file(8195), 0);
	node[0].how = REFUSES;
	assert_int_equal(settle_file(5001), -EIO);
	assert_int_equal(settle_file(5001), 0);
	assert_int_equal(settle_file(18), -EIO); /* which has lost something for sure */
	assert_int_equal(settle_file(8194), -EIO);
	assert_int_equal(settle_file(8195), 0);
	assert_int_equal(settle(), -EIO);
	assert_int_equal(settle_file(20), 0);
	assert_int_equal(settle(), 0);
	assert_int_equal(fs.late.count, 0);
}

static void each_file_hears_once_of_a_loss_of_many(void **state)
{
	(void)state;
	node[0].how = REFUSES;
	for (uint64_t id = 1; id <= 4200; id++)
		finish(id, 0, 1);
	for (uint64_t id = 1; id <= 4200; id++) {
		assert_int_equal(settle_file(id), -EIO);
		assert_int_equal(settle_file(id), 0);
	}
	assert_int_equal(settle(), -EIO);
}

/* What @fn logs: @text of @size bytes. */
static void logged(void (*fn)(void), char *text, size_t size)
{
	const int kept = dup(STDERR_FILENO), log = memfd_create("log", 0);
	ssize_t n;

	log_init("late_test", LOG_INFO);
	assert_true(dup2(log, STDERR_FILENO) >= 0);
	fn();
	assert_true(dup2(kept, STDERR_FILENO) >= 0);
	n = pread(log, text, size - 1, 0);
	assert_true(n >= 0);
	text[n] = '\0';
	close(kept);
	close(log);
}

static void a_round(void)
{
	deferred_sync_settle_quietly(&fs);
}

static void five_rounds(void)
{
	for (int i = 0; i < 5; i++)
		deferred_sync_settle_quietly(&fs);
}

/* A line tells of one that fails, with its error, and not of one that is well again. */
static void only_who_fails_is_told_of(void **state)
{
	char text[1024];

	(void)state;
	finish(1, 0, 1);
	finish(2, 1, 1);
	node[1].how = GONE;
	assert_int_equal(settle_file(2), -ECONNREFUSED);
	node[0].how = GONE;
	node[1].how = GOOD;
	logged(a_round, text, sizeof(text));
	assert_non_null(strstr(text, "block=1:"));
	assert_null(strstr(text, "block=2:"));
}

/* A node that is away is asked in each round; the log has one line of that, and one more when it is
 * away again. */
static void an_outage_is_told_once(void **state)
{
	char text[4096];
	const char *line;

	(void)state;
	finish(1, 0, 1);
	for (int outage = 0; outage < 2; outage++) {
		node[0].how = GONE;
		logged(five_rounds, text, sizeof(text));
		line = strstr(text, "op=deferred-sync");
		assert_non_null(line);
		assert_null(strstr(line + 1, "op=deferred-sync"));
		logged(five_rounds, text, sizeof(text));
		assert_string_equal(text, "");
		node[0].how = GOOD;
		assert_int_equal(settle(), 0);
		finish(2, 0, 1);
	}
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(each_node_is_asked_once),
		TEST(one_node_of_each_block_is_enough),
		TEST(what_may_pass_is_told_until_it_has),
		TEST(what_is_lost_is_told_once),
		TEST(an_outage_and_a_loss_are_told_one_by_one),
		TEST(who_was_asked_in_vain_is_not_waited_for_again),
		TEST(there_is_one_deadline_for_all_waits),
		TEST(a_connection_that_was_kept_may_have_ended),
		TEST(hsync_of_one_file_asks_its_nodes_alone),
		TEST(files_of_the_same_nodes_are_put_together),
		TEST(the_newest_block_of_some_nodes_is_kept),
		TEST(a_loss_is_not_told_to_the_hsync_of_another_file),
		TEST(so_many_files_are_remembered),
		TEST(each_file_hears_once_of_a_loss_of_many),
		TEST(only_who_fails_is_told_of),
		TEST(an_outage_is_told_once),
		TEST(many_sets_of_nodes_are_asked_about_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
