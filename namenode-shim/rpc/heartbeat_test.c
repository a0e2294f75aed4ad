/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of heartbeats: how many nodes may report all their blocks at a time, and what
 * becomes of a node whose heartbeats stay away: others are preferred to it, and without others it
 * serves still. The clock is the test's. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <poll.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "DatanodeProtocol.pb-c.h"
#include "common/base/clock.h"
#include "common/base/conf.h"
#include "namenode-shim/blocks/located_block.h"
#include "namenode-shim/blocks/redundancy_monitor.h"
#include "namenode-shim/namespace/inode.h"
#include "namenode-shim/namespace/under_construction.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"
#include "namenode-shim/rpc/datanode_commands.h"
#include "namenode-shim/rpc/methods.h"

#include "namenode-shim/test_clock.h"
#include "namenode-shim/test_nn.h"

#define NODES_MAX 8
#define LEN 1000u
#define COPIES 40
#define WAIT_MS 120000

struct world {
	struct test_db d;
	struct conf *conf;
	struct nn *nn; /* without its thread but where a test starts it */
	struct dn *dn[NODES_MAX];
	struct storage *st[NODES_MAX];
	uint32_t nodes;
	int64_t next_id;
	uint64_t file;     /* open, its writer is gone */
	struct block last; /* of it */
};

static void make_open_file(struct world *w)
{
	struct ns *n = test_begin(&w->d, "root");
	struct inode_block b = {.b = {(int64_t)++n->t->ctr.block, n->t->ctr.gs, 0}};
	struct inode f = {.type = INODE_FILE,
			  .perm = 0644,
			  .repl = 3,
			  .block_size = 1 << 20,
			  .blocks = &b,
			  .name = "f",
			  .nblocks = 1,
			  .parent = INODE_ROOT,
			  .owner = "root",
			  .group = "root",
			  .client = "c",
			  .client_host = "",
			  .id = inode_new_id(n->t)};

	w->file = f.id;
	w->last = b.b;
	assert_int_equal(inode_put(n->t, &f), 0);
	assert_int_equal(dirent_put(n->t, INODE_ROOT, f.name, f.id), 0);
	assert_int_equal(test_commit(&w->d), 0);
}

static void add_node(struct world *w, uint32_t i)
{
	char uuid[16];
	const struct dn_ident id = {uuid, "127.0.0.1", "host", "3.4.2", 9000u + i, 1, 2, 0};

	snprintf(uuid, sizeof(uuid), "dn%u", i);
	assert_int_equal(datanodes_register(&w->nn->dns, &id, &w->dn[i]), 0);
	snprintf(w->dn[i]->rack, sizeof(w->dn[i]->rack), "/r");
	w->st[i] = dn_storage_add(w->dn[i], "DS", STORAGE_DISK);
	w->st[i]->remaining = 1ull << 40;
}

/* @settings: key, value, ..., NULL. */
static void world_init(struct world *w, uint32_t nodes, const char *const *settings)
{
	*w = (struct world){.nodes = nodes, .next_id = 1073800000};
	ahead_s = 0;
	test_db_init(&w->d);
	make_open_file(w);
	w->nn = test_nn_new(&w->d, settings, &w->conf);
	w->nn->safe.empty_start = true;
	w->nn->set.work.streams = w->nn->set.work.streams_hard = w->nn->set.work.orders = 1000;
	for (uint32_t i = 0; i < nodes; i++)
		add_node(w, i);
	datanodes_changed(&w->nn->dns);
}

static void world_fini(struct world *w)
{
	nn_stop(w->nn);
	nn_free(w->nn);
	conf_free(w->conf);
	test_db_fini(&w->d);
}

/* ---- what nodes say ---- */

static Hdd__DatanodeRegistrationProto *registration(struct world *w, uint32_t i)
{
	static Hdd__DatanodeRegistrationProto r;
	static Hd__DatanodeIDProto id;
	static Hd__StorageInfoProto info;
	const struct db_ident *of = &w->nn->db->ident;

	hdd__datanode_registration_proto__init(&r);
	hd__datanode_idproto__init(&id);
	hd__storage_info_proto__init(&info);
	id.datanodeuuid = w->dn[i]->uuid;
	id.ipaddr = w->dn[i]->ip;
	id.xferport = w->dn[i]->xfer_port;
	info.namespceid = of->namespace_id;
	info.clusterid = (char *)(uintptr_t)of->cluster_id;
	info.ctime = of->ctime_ms;
	r.datanodeid = &id;
	r.storageinfo = &info;
	return &r;
}

/* The request that was answered is the caller's to end. */
static int call(struct world *w, const char *name, const void *in, struct req *q)
{
	const struct method_table *t = &datanode_methods;

	*q = (struct req){.nn = w->nn, .exception = {.a = &q->mem}};
	for (size_t i = 0; i < t->count; i++)
		if (!strcmp(t->methods[i].name, name))
			return t->methods[i].run(q, in);
	fail_msg("no method %s", name);
	return -ENOENT;
}

static void end_call(struct req *q)
{
	free(q->report);
	arena_free(&q->mem);
}

/* The lease that it got for a full report; 0: none. */
static uint64_t beat(struct world *w, uint32_t i)
{
	Hdd__HeartbeatRequestProto m = HDD__HEARTBEAT_REQUEST_PROTO__INIT;
	struct req q;
	uint64_t lease;

	m.registration = registration(w, i);
	PB_SET(&m, requestfullblockreportlease, true);
	assert_int_equal(call(w, "sendHeartbeat", &m, &q), 0);
	lease = ((Hdd__HeartbeatResponseProto *)q.out)->fullblockreportleaseid;
	end_call(&q);
	return lease;
}

/* Part @part of a report in @parts, without any block. False: its lease was refused. */
static bool report(struct world *w, uint32_t i, uint64_t lease, int part, int parts)
{
	Hdd__BlockReportRequestProto m = HDD__BLOCK_REPORT_REQUEST_PROTO__INIT;
	Hdd__BlockReportContextProto c = HDD__BLOCK_REPORT_CONTEXT_PROTO__INIT;
	Hdd__StorageBlockReportProto s = HDD__STORAGE_BLOCK_REPORT_PROTO__INIT, *all = &s;
	Hd__DatanodeStorageProto st = HD__DATANODE_STORAGE_PROTO__INIT;
	struct req q;
	bool taken;
	int rc;

	m.registration = registration(w, i);
	m.blockpoolid = (char *)(uintptr_t)w->nn->db->ident.pool_id;
	st.storageuuid = w->st[i]->id;
	s.storage = &st;
	m.reports = &all;
	m.n_reports = 1;
	c.currpc = part;
	c.totalrpcs = parts;
	PB_SET(&c, leaseid, lease);
	m.context = &c;
	while ((rc = call(w, "blockReport", &m, &q)) == REQ_PARK)
		end_call(&q);
	taken = !rc;
	if (rc)
		assert_non_null(strstr(q.exception.cls, "InvalidBlockReportLeaseException"));
	end_call(&q);
	return taken;
}

/* ---- leases of full reports ---- */

static void so_many_nodes_may_report_at_a_time(void **state)
{
	static const char *const three[] = {"dfs.namenode.max.full.block.report.leases", "3", NULL};

	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		const uint32_t most = i ? 3 : 6; /* HDFS's default */
		uint64_t lease = 0;
		struct world w;

		world_init(&w, 8, i ? three : NULL);
		for (uint32_t k = 0; k < most; k++)
			assert_true((lease = beat(&w, k)));
		assert_false(beat(&w, most));
		assert_true(report(&w, most - 1, lease, 0, 2)); /* there is another part */
		assert_false(beat(&w, most));
		assert_true(beat(&w, 0)); /* in place of the one it has */
		assert_false(beat(&w, most));
		assert_true(report(&w, most - 1, lease, 1, 2));
		assert_true(beat(&w, most));
		assert_false(beat(&w, most + 1));
		world_fini(&w);
	}
}

/* It begins when it is given. */
static void a_lease_ends_after_its_time(void **state)
{
	static const char *const settings[] = {
		"dfs.namenode.full.block.report.lease.length.ms", "500000",
		"dfs.namenode.max.full.block.report.leases", "1", NULL};

	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		const uint64_t length_s = i ? 500 : 300; /* HDFS's default */
		uint64_t lease;
		struct world w;

		world_init(&w, 2, i ? settings : settings + 2);
		lease = beat(&w, 0);
		assert_true(lease);
		ahead_s += length_s - 100;
		assert_false(beat(&w, 1));
		assert_true(report(&w, 0, lease, 0, 2));
		ahead_s += 101;
		assert_false(report(&w, 0, lease, 1, 2));
		lease = beat(&w, 1);
		assert_true(lease);
		assert_false(beat(&w, 0));
		assert_true(report(&w, 1, lease, 0, 1));
		assert_true(beat(&w, 0));
		world_fini(&w);
	}
}

static void a_report_is_taken_with_a_lease_of_its_own_or_without_one(void **state)
{
	uint64_t first, second;
	struct world w;

	(void)state;
	world_init(&w, 2, NULL);
	first = beat(&w, 0);
	second = beat(&w, 1);
	assert_true(first && second && first != second);
	assert_false(report(&w, 0, second, 0, 1));
	assert_false(report(&w, 0, first + 100, 0, 1));
	assert_true(report(&w, 0, 0, 0, 1)); /* dfsadmin -triggerBlockReport */
	assert_true(report(&w, 0, first, 0, 1));
	assert_false(report(&w, 0, first, 0, 1)); /* it is used up */
	assert_true(report(&w, 1, second, 0, 1));
	world_fini(&w);
}

/* ---- nodes that have fallen silent ---- */

/* Time goes by, and only @heard are heard. */
static void pass(struct world *w, uint64_t seconds, const char *heard)
{
	ahead_s += seconds;
	for (; *heard; heard++)
		(void)beat(w, (uint32_t)(*heard - '0'));
	w->nn->next_redundancy_ns = 0;
	monitor_tick(w->nn);
	while (monitor_is_ordering(w->nn))
		monitor_order(w->nn);
}

/* So many blocks that want @repl replicas, with one on each node of @nodes. */
static void add_blocks(struct world *w, uint16_t repl, const char *nodes, struct blk *ret[COPIES])
{
	for (int i = 0; i < COPIES; i++) {
		const struct block b = {w->next_id++, 1005, LEN};

		ret[i] = blocks_add(&w->nn->blocks, &b, w->file, repl, BLK_COMPLETE);
		for (const char *n = nodes; *n; n++)
			blocks_report(&w->nn->blocks, w->st[*n - '0'], &b, REPLICA_FINALIZED, false,
				      0);
	}
}

/* Its next heartbeat ends that. */
static void a_node_is_stale_after_its_time(void **state)
{
	static const char *const settings[] = {"dfs.namenode.stale.datanode.interval", "400000",
					       NULL};
	struct world w;

	(void)state;
	world_init(&w, 3, NULL);
	assert_int_equal(w.nn->dns.stale_after_ns, 30 * NS_PER_S);
	world_fini(&w);
	world_init(&w, 3, settings);
	pass(&w, 200, "12");
	assert_false(w.dn[0]->stale);
	pass(&w, 201, "12");
	assert_true(w.dn[0]->stale && w.dn[0]->alive);
	assert_false(w.dn[1]->stale || w.dn[2]->stale);
	(void)beat(&w, 0);
	assert_false(w.dn[0]->stale);
	world_fini(&w);
}

static void a_silent_node_gets_copies_only_when_no_other_can(void **state)
{
	(void)state;
	for (uint32_t nodes = 3; nodes <= 4; nodes++) {
		struct blk *b[COPIES];
		struct world w;

		world_init(&w, nodes, NULL);
		add_blocks(&w, 3, "01", b);
		pass(&w, 40, nodes == 3 ? "01" : "013");
		assert_true(w.dn[2]->stale);
		for (int i = 0; i < COPIES; i++) {
			assert_int_equal(b[i]->npending, 1);
			assert_ptr_equal(b[i]->pending[0].st, w.st[nodes - 1]);
		}
		world_fini(&w);
	}
}

static void a_silent_node_is_asked_for_copies_only_when_no_other_has_one(void **state)
{
	struct blk *b[COPIES];
	struct world w;

	(void)state;
	world_init(&w, 5, NULL);
	add_blocks(&w, 3, "01", b);
	pass(&w, 40, "1234");
	assert_int_equal(list_length(&w.dn[0]->transfers), 0);
	assert_int_equal(list_length(&w.dn[1]->transfers), COPIES);
	add_blocks(&w, 3, "0", b);
	pass(&w, 0, "1234");
	assert_int_equal(list_length(&w.dn[0]->transfers), COPIES);
	world_fini(&w);
}

/* ---- block groups ---- */

/* A group of which unit @i is on node @i, and unit 1 on node 4, too. */
static struct block add_group(struct world *w)
{
	const struct block b = {EC_GROUP_ID_FIRST, 1005, 8 << 20};
	const struct blk *g = blocks_add_group(&w->nn->blocks, &b, w->file,
					       ec_policy_by_id(EC_ID_RS_3_2), BLK_COMPLETE);

	w->nn->blocks.quiet = true; /* or one of the two goes */
	for (unsigned i = 0; i < 5; i++) {
		const unsigned unit = i == 4 ? 1 : i;
		const struct block r = {ec_id_of(b.id, unit), b.gs, blk_unit_len(g, b.len, unit)};

		blocks_report(&w->nn->blocks, w->st[i], &r, REPLICA_FINALIZED, false, 0);
	}
	return b;
}

/* Readers ask the first node of a unit, and other units rather than one whose node is said to be
 * stale. */
static void a_silent_node_comes_last_among_those_of_a_unit(void **state)
{
	static const char *const never[] = {"dfs.namenode.avoid.read.stale.datanode", "false",
					    NULL};

	(void)state;
	for (int i = 0; i < 4; i++) {
		const int silent = i % 2 ? 1 : 4, other = 5 - silent;
		struct inode_block ib = {.committed = true};
		const struct inode f = {.type = INODE_FILE,
					.ec = ec_policy_by_id(EC_ID_RS_3_2),
					.blocks = &ib,
					.nblocks = 1,
					.client = ""};
		const Hd__LocatedBlockProto *l;
		struct world w;
		struct req q;

		world_init(&w, 5, i < 2 ? NULL : never);
		pass(&w, 40, silent == 1 ? "0234" : "0123");
		assert_true(w.dn[silent]->stale);
		ib.b = add_group(&w);
		q = (struct req){.nn = w.nn, .exception = {.a = &q.mem}, .ns.host = "10.0.0.1"};
		l = locate_file(&q, &f, 0, ib.b.len)->blocks[0];
		assert_int_equal(l->n_locs, 5);
		for (uint8_t k = 0; k < 5; k++)
			assert_int_equal(l->blockindices.data[k], k < 2 ? k : k - 1);
		assert_string_equal(l->locs[1]->id->datanodeuuid, w.dn[other]->uuid);
		assert_string_equal(l->locs[2]->id->datanodeuuid, w.dn[silent]->uuid);
		assert_false(l->locs[1]->stale);
		assert_int_equal(l->locs[2]->stale, i < 2);
		arena_free(&q.mem);
		world_fini(&w);
	}
}

/* ---- the last block of a file whose writer is gone ---- */

static struct call_stat answered; /* the writer adds to it after the last look at it, too */

/* The nodes that are told to lead a recovery that begins now: "02". */
static void recover(struct world *w, char told[NODES_MAX + 1])
{
	struct req *q = req_new(w->nn, &file_recover_method, NULL);
	struct list *l;

	answered.calls = 0;
	q->arg = w->file;
	q->stat = &answered;
	nn_submit(w->nn, q);
	for (int ms = 0; !answered.calls; ms++) {
		assert_true(ms < WAIT_MS);
		(void)poll(NULL, 0, 1);
	}
	pthread_rwlock_wrlock(&w->nn->mem_lock);
	for (uint32_t i = 0; i < w->nodes; i++) {
		if (!list_empty(&w->dn[i]->recoveries))
			*told++ = (char)('0' + i);
		while ((l = list_pop(&w->dn[i]->recoveries)))
			recovery_free(container_of(l, struct recovery, link));
	}
	pthread_rwlock_unlock(&w->nn->mem_lock);
	*told = 0;
}

/* Another one leads each attempt, of those that are heard. When none is, the silent ones are asked.
 */
static void a_silent_node_leads_no_recovery_while_another_is_heard(void **state)
{
	static const struct {
		const char *heard, *leaders;
	} cases[] = {{"012", "012"}, {"12", "12"}, {"2", "2"}, {"", "012"}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool led[NODES_MAX] = {false};
		struct world w;

		world_init(&w, 3, NULL);
		for (int k = 0; k < 3; k++)
			blocks_report(&w.nn->blocks, w.st[k], &w.last, REPLICA_RBW, false, 0);
		pass(&w, 40, cases[i].heard);
		w.nn->set.recovery_ms = 0; /* each call begins it anew */
		ahead_s = 0;               /* the writer sleeps by the real clock, */
		/* and judges nobody again */
		w.nn->next_tick_ns = clock_mono_ns() + 3600 * NS_PER_S;
		assert_int_equal(nn_start(w.nn), 0);
		for (int k = 0; k < 6; k++) {
			char told[NODES_MAX + 1];

			recover(&w, told);
			assert_int_equal(strlen(told), 1);
			led[*told - '0'] = true;
		}
		for (int k = 0; k < 3; k++)
			assert_int_equal(led[k], strchr(cases[i].leaders, '0' + k) != NULL);
		world_fini(&w);
	}
}

/* The primary may take a unit that it is not told of for one that nobody has. */
static bool names_all_units(struct world *w, const struct blk *g)
{
	Hdd__DatanodeCommandProto *cmds[DN_COMMANDS_MAX];
	Hdd__HeartbeatResponseProto r = HDD__HEARTBEAT_RESPONSE_PROTO__INIT;
	struct req q = {.nn = w->nn, .exception = {.a = &q.mem}, .ns.host = "10.0.0.1"};
	const Hd__RecoveringBlockProto *b;
	bool all;

	r.cmds = cmds;
	dn_order_recovery(w->dn[0], g->b.id);
	dn_commands_add(&q, w->dn[0], &r);
	assert_int_equal(r.n_cmds, 1);
	b = r.cmds[0]->recoverycmd->blocks[0];
	all = b->has_allunits && b->allunits;
	arena_free(&q.mem);
	return all;
}

static void a_recovery_of_a_group_says_whether_all_units_are_named(void **state)
{
	const struct block b = {EC_GROUP_ID_FIRST, 1005, 0};
	struct world w;
	struct blk *g;

	(void)state;
	world_init(&w, 5, NULL);
	g = blocks_add_group(&w.nn->blocks, &b, w.file, ec_policy_by_id(EC_ID_RS_3_2), BLK_OPEN);
	blk_set_targets(g, w.st, NULL, 4);
	g->open->pipeline = 4;
	blk_set_recovery(&w.nn->blocks, g, 1009, 0);
	assert_true(names_all_units(&w, g));
	w.nn->safe.left_ns = clock_mono_ns();
	g->open->pipeline = 0; /* after a start */
	assert_false(names_all_units(&w, g));
	g->open->pipeline = 4;
	blk_add_lost(g, w.st[4], 4);
	assert_false(names_all_units(&w, g));
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(so_many_nodes_may_report_at_a_time),
		cmocka_unit_test(a_lease_ends_after_its_time),
		cmocka_unit_test(a_report_is_taken_with_a_lease_of_its_own_or_without_one),
		cmocka_unit_test(a_node_is_stale_after_its_time),
		cmocka_unit_test(a_silent_node_gets_copies_only_when_no_other_can),
		cmocka_unit_test(a_silent_node_is_asked_for_copies_only_when_no_other_has_one),
		cmocka_unit_test(a_silent_node_comes_last_among_those_of_a_unit),
		cmocka_unit_test(a_silent_node_leads_no_recovery_while_another_is_heard),
		cmocka_unit_test(a_recovery_of_a_group_says_whether_all_units_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
