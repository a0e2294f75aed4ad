/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of what the NameNode does on its own: a block that no node can take is in nobody's
 * way, and the lock is given back when placement takes long. The clock is the test's: it goes on at
 * every look. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "common/base/clock.h"
#include "common/base/conf.h"
#include "namenode-shim/blocks/decommission.h"
#include "namenode-shim/blocks/hosts.h"
#include "namenode-shim/blocks/redundancy_monitor.h"
#include "namenode-shim/namespace/inode.h"
#include "namenode-shim/namespace/storage_policy.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"
#include "namenode-shim/rpc/datanode_commands.h"
#include "namenode-shim/rpc/methods.h"

#include "namenode-shim/test_db.h"

#define NODES_MAX 8
#define LEN 1000u

int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __real_clock_gettime(clockid_t id, struct timespec *ret);
static uint64_t clock_step_ns, clock_ahead_ns;

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	const int rc = __real_clock_gettime(id, ret);
	uint64_t ns = (uint64_t)ret->tv_nsec;

	clock_ahead_ns += clock_step_ns;
	ns += clock_ahead_ns;
	ret->tv_sec += (time_t)(ns / NS_PER_S);
	ret->tv_nsec = (long)(ns % NS_PER_S);
	return rc;
}

static struct nn *watched; /* reads of the database with its lock held for writing are counted */
static uint32_t reads, reads_with_lock;
static bool no_reader, no_get, no_cursor;

static void on_read(void)
{
	reads++;
	if (watched && !pthread_rwlock_tryrdlock(&watched->mem_lock))
		pthread_rwlock_unlock(&watched->mem_lock);
	else
		reads_with_lock++;
}

int __wrap_mdb_get(MDB_txn *t, MDB_dbi d, MDB_val *k, MDB_val *v);
int __real_mdb_get(MDB_txn *t, MDB_dbi d, MDB_val *k, MDB_val *v);
int __wrap_mdb_cursor_get(MDB_cursor *c, MDB_val *k, MDB_val *v, MDB_cursor_op op);
int __real_mdb_cursor_get(MDB_cursor *c, MDB_val *k, MDB_val *v, MDB_cursor_op op);
int __wrap_mdb_txn_renew(MDB_txn *t);
int __real_mdb_txn_renew(MDB_txn *t);

int __wrap_mdb_get(MDB_txn *t, MDB_dbi d, MDB_val *k, MDB_val *v)
{
	on_read();
	return no_get ? EIO : __real_mdb_get(t, d, k, v);
}

int __wrap_mdb_cursor_get(MDB_cursor *c, MDB_val *k, MDB_val *v, MDB_cursor_op op)
{
	on_read();
	return no_cursor ? EIO : __real_mdb_cursor_get(c, k, v, op);
}

int __wrap_mdb_txn_renew(MDB_txn *t)
{
	return no_reader ? MDB_READERS_FULL : __real_mdb_txn_renew(t);
}

struct world {
	struct test_db d;
	struct conf *conf;
	struct nn *nn; /* without its thread: what that would do is done by the test */
	struct dn *dn[NODES_MAX];
	struct storage *st[NODES_MAX];
	const char *racks;
	uint32_t nodes;
	int64_t next_id;
	uint64_t file, plain; /* inodes: with a policy, without one */
	struct block first;   /* of its blocks */
};

#define FILE_BLOCKS 60

static uint64_t put_file(struct ns *n, const char *name, struct inode_block *b, uint32_t blocks)
{
	struct inode f = {.type = INODE_FILE,
			  .perm = 0644,
			  .repl = 3,
			  .block_size = 1 << 20,
			  .blocks = b,
			  .name = name,
			  .nblocks = blocks,
			  .parent = INODE_ROOT,
			  .owner = "root",
			  .group = "root",
			  .client = "",
			  .client_host = "",
			  .id = inode_new_id(n->t)};

	assert_int_equal(inode_put(n->t, &f), 0);
	assert_int_equal(dirent_put(n->t, INODE_ROOT, f.name, f.id), 0);
	return f.id;
}

/* A file of policy ALL_SSD, and one of none. */
static void make_files(struct world *w)
{
	struct ns *n = test_begin(&w->d, "root");
	struct inode_block b[FILE_BLOCKS] = {0};

	for (int i = 0; i < FILE_BLOCKS; i++)
		b[i] = (struct inode_block){.committed = true,
					    .b = {(int64_t)++n->t->ctr.block, n->t->ctr.gs, LEN}};
	w->first = b[0].b;
	w->file = put_file(n, "f", b, FILE_BLOCKS);
	w->plain = put_file(n, "g", NULL, 0);
	assert_int_equal(storage_policy_put(n->t, w->file, POLICY_ALL_SSD), 0);
	assert_int_equal(test_commit(&w->d), 0);
}

/* From the name directory, with all nodes: they have reported nothing. */
static void start(struct world *w)
{
	struct settings set = {0};
	struct err err = ERR_INIT;

	assert_int_equal(settings_load(w->conf, &set, &err), 0);
	assert_int_equal(nn_new(&set, &w->nn, &err), 0);
	w->nn->safe.on = w->nn->safe.startup = w->nn->blocks.quiet = false;
	w->nn->safe.empty_start = true;
	for (uint32_t i = 0; i < w->nodes; i++) {
		char uuid[16];
		const struct dn_ident id = {uuid, "127.0.0.1", "host", "3.4.2", 9000u + i, 1, 2, 0};

		snprintf(uuid, sizeof(uuid), "dn%u", i);
		assert_int_equal(datanodes_register(&w->nn->dns, &id, &w->dn[i]), 0);
		snprintf(w->dn[i]->rack, sizeof(w->dn[i]->rack), "/%c", w->racks[i]);
		w->st[i] = dn_storage_add(w->dn[i], "DS", STORAGE_DISK);
		w->st[i]->remaining = 1ull << 40;
		w->st[i]->reported = true;
		w->dn[i]->report_ns = 1;
	}
	datanodes_changed(&w->nn->dns);
}

/* Node i stands in the rack of this letter; there is one for each. */
static void world_init(struct world *w, const char *racks)
{
	*w = (struct world){
		.racks = racks, .nodes = (uint32_t)strlen(racks), .next_id = 1073800000};
	clock_step_ns = 0;
	test_db_init(&w->d);
	make_files(w);
	db_close(w->d.db);
	w->d.db = NULL;
	w->conf = conf_new();
	conf_set(w->conf, "dfs.namenode.name.dir", w->d.dir);
	conf_set(w->conf, "fs.defaultFS", "hdfs://127.0.0.1:0");
	conf_set(w->conf, "dfs.storage.policy.satisfier.mode", "external");
	start(w);
}

/* What it gave the writer's thread, which is not there, goes with it. */
static void stop(struct world *w)
{
	struct list batch = LIST_INIT(batch), *l;

	(void)commit_queue_take(&w->nn->commit_queue, 0, &batch);
	while ((l = list_pop(&batch)))
		req_finish(container_of(l, struct req, link));
	nn_free(w->nn);
}

static void world_fini(struct world *w)
{
	clock_step_ns = 0;
	watched = NULL;
	stop(w);
	conf_free(w->conf);
	test_db_fini(&w->d);
}

/* A block of @repl replicas, with one on each node of @nodes. */
static struct blk *add(struct world *w, uint16_t repl, const char *nodes)
{
	const struct block b = {w->next_id++, 1005, LEN};
	struct blk *ret = blocks_add(&w->nn->blocks, &b, w->plain, repl, BLK_COMPLETE);

	for (; *nodes; nodes++)
		blocks_report(&w->nn->blocks, w->st[*nodes - '0'], &b, REPLICA_FINALIZED, false, 0);
	return ret;
}

/* RS-3-2 on as many nodes as it can be read with. */
static struct blk *add_group(struct world *w, int64_t nth)
{
	const struct block b = {EC_GROUP_ID_FIRST + nth * EC_UNITS_MAX, 1005, 8 << 20};
	struct blk *ret = blocks_add_group(&w->nn->blocks, &b, w->plain,
					   ec_policy_by_id(EC_ID_RS_3_2), BLK_COMPLETE);

	for (unsigned unit = 0; unit < 3; unit++) {
		const struct block r = {ec_id_of(b.id, unit), b.gs, blk_unit_len(ret, b.len, unit)};

		blocks_report(&w->nn->blocks, w->st[unit], &r, REPLICA_FINALIZED, false, 0);
	}
	return ret;
}

/* One look at the lines; in so many slices. */
static uint32_t look(struct world *w)
{
	uint32_t slices = 0;

	w->nn->next_redundancy_ns = 0;
	monitor_tick(w->nn);
	for (; monitor_is_ordering(w->nn); slices++)
		monitor_order(w->nn);
	return slices;
}

/* Three nodes: none can take a fourth unit. Their orders are 12 in one look. */
static void groups_on_too_few_nodes_keep_nobody_from_being_copied(void **state)
{
	struct blk *under, *crowded;
	struct world w;

	(void)state;
	world_init(&w, "aab");
	for (int i = 0; i < 40; i++)
		assert_true(add_group(&w, i)->flags & BLK_URGENT);
	under = add(&w, 3, "01");
	look(&w);
	assert_int_equal(under->npending, 1);
	crowded = add(&w, 2, "01");
	blk_recheck(&w.nn->blocks, crowded);
	blocks_sweep(&w.nn->blocks, UINT32_MAX);
	assert_true(crowded->flags & BLK_CROWDED);
	look(&w);
	assert_int_equal(crowded->npending, 1);
	world_fini(&w);
}

/* More than one look tries of a line: those behind them have their turn in the next ones. */
static void blocks_that_no_node_can_take_pass_their_turn_on(void **state)
{
	struct world w;
	struct blk *last;
	int looks = 0;

	(void)state;
	world_init(&w, "aab");
	for (int i = 0; i < 1000; i++)
		add(&w, 4, "012");
	last = add(&w, 3, "01");
	for (; !last->npending && looks < 10; looks++)
		look(&w);
	assert_int_equal(last->npending, 1);
	assert_true(looks > 1); /* the work of one look has an end */
	world_fini(&w);
}

/* Its orders expire, and nobody says why. */
static void a_source_that_cannot_send_is_not_asked_for_ever(void **state)
{
	struct world w;
	struct blk *b;
	struct list *l;
	uint32_t asked[2] = {0};

	(void)state;
	world_init(&w, "aaa");
	b = add(&w, 3, "01");
	for (int i = 0; i < 200 && !(asked[0] && asked[1]); i++) {
		look(&w);
		assert_int_equal(b->npending, 1);
		for (int k = 0; k < 2; k++)
			for (; (l = list_pop(&w.dn[k]->transfers)); asked[k]++)
				transfer_free(container_of(l, struct transfer, link));
		blocks_expire_pending(&w.nn->blocks, UINT64_MAX);
	}
	assert_true(asked[0] && asked[1]);
	world_fini(&w);
}

/* Each order takes a millisecond or more, and there are 200. */
static void the_lock_is_given_back_while_copies_are_ordered(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, "aab");
	for (int i = 0; i < 200; i++)
		add(&w, 4, "012");
	clock_step_ns = NS_PER_MS;
	w.nn->dns.dead_after_ns = w.nn->dns.stale_after_ns = 1000 * NS_PER_S;
	assert_true(look(&w) >= 200 / 6);
	world_fini(&w);
}

/* ---- limits of the configuration ---- */

/* The same world under @key = @value: nothing has reported. */
static void configure(struct world *w, const char *key, const char *value)
{
	conf_set(w->conf, key, value);
	stop(w);
	start(w);
}

static uint32_t ordered(const struct world *w, uint32_t node)
{
	return list_length(&w->dn[node]->transfers);
}

static uint32_t all_ordered(const struct world *w)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < w->nodes; i++)
		sum += ordered(w, i);
	return sum;
}

/* Four times the living nodes unless it is said otherwise. A dead one is none of them. */
static void a_look_orders_so_many_copies_for_each_living_node(void **state)
{
	static const struct {
		const char *multiplier;
		uint32_t orders;
	} cases[] = {{NULL, 4}, {"1", 1}, {"7", 7}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct world w;

		world_init(&w, "aaaaa");
		if (cases[i].multiplier)
			configure(&w, "dfs.namenode.replication.work.multiplier.per.iteration",
				  cases[i].multiplier);
		w.nn->set.work.streams = w.nn->set.work.streams_hard = 1000;
		nn_dn_lost(w.nn, w.dn[4], "test");
		for (int k = 0; k < 100; k++)
			add(&w, 3, "01");
		for (uint32_t looks = 1; looks <= 3; looks++) {
			look(&w);
			assert_int_equal(all_ordered(&w), looks * 4 * cases[i].orders);
		}
		world_fini(&w);
	}
}

/* Twice what a node may have under way waits for it. */
static void more_copies_wait_for_a_node_that_has_the_last_replicas(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, "aaaa");
	configure(&w, "dfs.namenode.replication.max-streams-hard-limit", "7");
	w.nn->set.work.orders = 1000;
	for (int i = 0; i < 100; i++)
		add(&w, 3, "01");
	look(&w);
	assert_int_equal(ordered(&w, 0), 2 * 2);
	assert_int_equal(ordered(&w, 1), 2 * 2);
	for (int i = 0; i < 100; i++)
		assert_true(add(&w, 3, "0")->flags & BLK_URGENT);
	for (int i = 0; i < 2; i++)
		look(&w);
	assert_int_equal(ordered(&w, 0), 2 * 7);
	assert_int_equal(ordered(&w, 1), 2 * 2);
	world_fini(&w);
}

/* ---- storage policies ---- */

/* Block @nth of the file on each node of @nodes. */
static struct blk *put_block(struct world *w, int64_t nth, const char *nodes)
{
	const struct block b = {w->first.id + nth, w->first.gs, LEN};

	for (; *nodes; nodes++)
		blocks_report(&w->nn->blocks, w->st[*nodes - '0'], &b, REPLICA_FINALIZED, false, 0);
	return blocks_find(&w->nn->blocks, b.id);
}

/* What was ordered for @b is done: its copies arrive, what is to go is deleted. How many copies. */
static uint32_t obey(struct world *w, struct blk *b)
{
	uint32_t copies = 0;

	for (; b->npending; copies++)
		blocks_report(&w->nn->blocks, b->pending[0].st, &b->b, REPLICA_FINALIZED, false, 0);
	for (uint32_t i = 0; i < w->nodes; i++) {
		for (uint32_t k = 0; k < w->dn[i]->ninval; k++)
			blocks_report_deleted(&w->nn->blocks, w->st[i], w->dn[i]->inval[k].id);
		w->dn[i]->ninval = 0;
	}
	return copies;
}

static uint32_t satisfy(struct world *w, struct blk *b)
{
	uint32_t copies = 0;

	satisfier_add(&w->nn->satisfy, w->file);
	for (int i = 0; i <= SATISFY_LOOKS && w->nn->satisfy.n; i++) {
		satisfier_look(w->nn, clock_mono_ns());
		copies += obey(w, b);
	}
	assert_int_equal(w->nn->satisfy.n, 0);
	return copies;
}

static uint32_t on_ssd(const struct blk *b)
{
	uint32_t n = 0;

	for (uint16_t i = 0; i < b->nreps; i++)
		n += b->rep[i].st->type == STORAGE_SSD;
	return n;
}

/* All SSD stand in one rack, and the replica that is to go is the only one in the other. */
static void a_block_that_racks_keep_from_its_policy_is_not_copied_for_ever(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w, "aaab");
	for (int i = 0; i < 3; i++)
		w.st[i]->type = STORAGE_SSD;
	b = put_block(&w, 0, "013");
	assert_true(satisfy(&w, b) <= 2);
	assert_int_equal(b->nreps, 3);
	world_fini(&w);
}

static void a_replica_goes_to_the_type_its_policy_wants_in_a_rack_where_it_stays(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w, "aaabb");
	for (int i = 0; i < 3; i++)
		w.st[i]->type = STORAGE_SSD;
	w.st[4]->type = STORAGE_SSD;
	b = put_block(&w, 0, "013");
	assert_int_equal(satisfy(&w, b), 1);
	assert_int_equal(on_ssd(b), 3);
	assert_int_equal(w.st[2]->promised, 0);
	world_fini(&w);
}

/* Its node is alive, the disk is not. */
static void a_disk_that_has_failed_is_no_source_of_a_copy(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w, "aaaaa");
	for (int i = 0; i < 3; i++)
		w.st[i]->type = STORAGE_SSD;
	b = put_block(&w, 0, "413");
	w.st[3]->sweep = SWEEP_FORGET; /* begun, and not come to this block */
	satisfier_add(&w.nn->satisfy, w.file);
	satisfier_look(w.nn, clock_mono_ns());
	w.st[3]->sweep = 0;
	assert_int_equal(b->npending, 1);
	assert_true(list_empty(&w.dn[3]->transfers));
	assert_false(list_empty(&w.dn[4]->transfers));
	world_fini(&w);
}

/* Twenty looks, and no node tells of itself. */
static void a_node_is_not_told_to_copy_more_than_it_can_begin(void **state)
{
	struct world w;
	uint32_t sum = 0;

	(void)state;
	world_init(&w, "aaaaaa");
	for (int i = 3; i < 6; i++)
		w.st[i]->type = STORAGE_SSD;
	for (int64_t i = 0; i < FILE_BLOCKS; i++)
		put_block(&w, i, "012");
	satisfier_add(&w.nn->satisfy, w.file);
	for (int i = 0; i < 20; i++)
		satisfier_look(w.nn, clock_mono_ns());
	for (int i = 0; i < 3; i++) {
		assert_true(list_length(&w.dn[i]->transfers) <= w.nn->set.work.streams);
		sum += list_length(&w.dn[i]->transfers);
	}
	assert_true(sum > 0);
	world_fini(&w);
}

/* More replicas are wanted than there are nodes; directories are gone through when such files are
 * out of the line. */
static void a_file_that_stays_under_replicated_is_given_up(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w, "aa");
	w.st[1]->type = STORAGE_SSD;
	b = put_block(&w, 0, "01");
	assert_true(b->flags & BLK_UNDER);
	assert_int_equal(satisfy(&w, b), 0);
	world_fini(&w);
}

static void a_file_whose_nodes_are_busy_waits_for_them(void **state)
{
	struct list *l;
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w, "aa");
	w.st[1]->type = STORAGE_SSD;
	b = put_block(&w, 0, "0");
	blk_set_repl(&w.nn->blocks, b, 1);
	for (uint32_t i = 0; i < w.nn->set.work.streams; i++)
		dn_order_transfer(w.dn[0], &b->b, w.st[1]);
	satisfier_add(&w.nn->satisfy, w.file);
	for (int i = 0; i < 2 * SATISFY_LOOKS; i++)
		satisfier_look(w.nn, clock_mono_ns());
	assert_int_equal(b->npending, 0);
	assert_int_equal(w.st[1]->promised, 0);
	while ((l = list_pop(&w.dn[0]->transfers)))
		transfer_free(container_of(l, struct transfer, link));
	satisfier_look(w.nn, clock_mono_ns());
	assert_int_equal(b->npending, 1);
	world_fini(&w);
}

static void a_silent_node_is_not_told_to_copy_for_a_policy(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, "aaaaaa");
	w.nn->set.work.streams = FILE_BLOCKS;
	for (int i = 3; i < 6; i++)
		w.st[i]->type = STORAGE_SSD;
	for (int64_t i = 0; i < FILE_BLOCKS; i++)
		put_block(&w, i, "012");
	satisfier_add(&w.nn->satisfy, w.file);
	/* half of the nodes are not heard: the others are targets all the same */
	w.nn->dns.write_stale = true;
	for (int i = 0; i < 3; i++)
		w.dn[i]->stale = true;
	for (int i = 0; i < 2 * SATISFY_LOOKS; i++)
		satisfier_look(w.nn, clock_mono_ns());
	assert_int_equal(all_ordered(&w), 0);
	assert_int_equal(w.st[3]->promised + w.st[4]->promised + w.st[5]->promised, 0);
	w.dn[2]->stale = false;
	satisfier_look(w.nn, clock_mono_ns()); /* it did not give the file up */
	assert_true(ordered(&w, 2) > 0);
	assert_int_equal(ordered(&w, 2), all_ordered(&w));
	world_fini(&w);
}

/* The other one must stay, as the only one in its rack. */
static void a_replica_on_a_silent_node_is_waited_for(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w, "aba");
	w.st[2]->type = STORAGE_SSD;
	b = put_block(&w, 0, "01");
	blk_set_repl(&w.nn->blocks, b, 2);
	w.dn[0]->stale = true;
	satisfier_add(&w.nn->satisfy, w.file);
	for (int i = 0; i < 2 * SATISFY_LOOKS; i++)
		satisfier_look(w.nn, clock_mono_ns());
	assert_int_equal(b->npending, 0);
	w.dn[0]->stale = false;
	satisfier_look(w.nn, clock_mono_ns());
	assert_int_equal(b->npending, 1);
	assert_int_equal(ordered(&w, 0), 1);
	world_fini(&w);
}

/* How many copies a heartbeat of @dn brings it. */
static size_t transfers_told(struct world *w, struct dn *dn)
{
	Hdd__HeartbeatResponseProto r = HDD__HEARTBEAT_RESPONSE_PROTO__INIT;
	Hdd__DatanodeCommandProto *cmds[DN_COMMANDS_MAX];
	struct req q = {.nn = w->nn};
	size_t n = 0;

	r.cmds = cmds;
	dn_commands_add(&q, dn, &r);
	for (size_t i = 0; i < r.n_cmds; i++)
		n += cmds[i]->blkcmd->n_blocks;
	arena_free(&q.mem);
	return n;
}

/* It has expired, or the file is gone. Of three orders only one still counts. */
static void a_copy_that_nobody_waits_for_is_not_ordered(void **state)
{
	struct blk *b[3];
	struct world w;

	(void)state;
	world_init(&w, "aa");
	w.nn->set.work.streams = 10;
	for (int i = 0; i < 3; i++) {
		b[i] = add(&w, 2, "0");
		dn_order_transfer(w.dn[0], &b[i]->b, w.st[1]);
		blk_add_pending(&w.nn->blocks, b[i], w.st[1], i ? UINT64_MAX : 1);
	}
	blocks_expire_pending(&w.nn->blocks, 2);
	blocks_remove(&w.nn->blocks, b[1]);
	w.dn[0]->ninval = 0; /* of the one that is gone */
	assert_int_equal(transfers_told(&w, w.dn[0]), 1);
	dn_order_transfer(w.dn[0], &b[0]->b, w.st[1]);
	assert_int_equal(transfers_told(&w, w.dn[0]), 0);
	assert_true(list_empty(&w.dn[0]->transfers));
	world_fini(&w);
}

/* Those that it has under way count, too. */
static void a_node_that_leaves_begins_more_copies_at_a_time(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, "aa");
	configure(&w, "dfs.namenode.replication.max-streams-hard-limit", "7");
	for (int i = 0; i < 40; i++) {
		struct blk *b = add(&w, 2, "0");

		dn_order_transfer(w.dn[0], &b->b, w.st[1]);
		blk_add_pending(&w.nn->blocks, b, w.st[1], UINT64_MAX);
	}
	assert_int_equal(transfers_told(&w, w.dn[0]), 2);
	w.dn[0]->xmits = 1;
	assert_int_equal(transfers_told(&w, w.dn[0]), 1);
	w.dn[0]->admin = DN_DECOMMISSIONING;
	assert_int_equal(transfers_told(&w, w.dn[0]), 6);
	w.dn[0]->xmits = 7;
	assert_int_equal(transfers_told(&w, w.dn[0]), 0);
	w.dn[0]->xmits = 0;
	w.dn[0]->admin = DN_ENTERING_MAINTENANCE;
	assert_int_equal(transfers_told(&w, w.dn[0]), 7);
	w.dn[0]->admin = DN_DECOMMISSIONED;
	assert_int_equal(transfers_told(&w, w.dn[0]), 2);
	world_fini(&w);
}

static void a_file_that_is_asked_for_again_is_in_line_once(void **state)
{
	struct satisfier s = {0};

	(void)state;
	satisfier_init(&s);
	for (uint64_t i = 0; i < 100; i++)
		satisfier_add(&s, 1 + i % 2);
	assert_int_equal(s.n, 2);
	satisfier_fini(&s);
}

/* Each search takes a millisecond or more, there are 60, and none finds anything. */
static void the_lock_is_given_back_while_a_policy_is_satisfied(void **state)
{
	struct world w;
	uint64_t before;

	(void)state;
	world_init(&w, "aab");
	for (int64_t i = 0; i < FILE_BLOCKS; i++)
		put_block(&w, i, "012");
	satisfier_add(&w.nn->satisfy, w.file);
	clock_step_ns = NS_PER_MS;
	before = w.nn->holds.count;
	satisfier_look(w.nn, 0);
	assert_true(w.nn->holds.count - before >= FILE_BLOCKS / 6);
	world_fini(&w);
}

/* The first replica of a block of the file is lost; node 3 has SSD, node 4 has not. */
static struct blk *lose_one(struct world *w)
{
	world_init(w, "aaaaa");
	w->st[3]->type = STORAGE_SSD;
	return put_block(w, 0, "12");
}

/* Its disk may be slow: nobody waits for it. */
static void policies_are_read_without_the_lock(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	b = lose_one(&w);
	assert_int_equal(add_group(&w, 0)->npending, 0);
	watched = w.nn;
	reads = reads_with_lock = 0;
	look(&w);
	satisfier_add(&w.nn->satisfy, w.file);
	satisfier_look(w.nn, clock_mono_ns());
	assert_int_equal(b->npending, 1);
	assert_true(reads > 0);
	assert_int_equal(reads_with_lock, 0);
	world_fini(&w);
}

static void without_its_policy_a_block_waits_for_the_next_round(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	b = lose_one(&w);
	no_reader = true;
	assert_true(look(&w) < 10); /* it does not try for ever */
	no_reader = false;
	assert_int_equal(b->npending, 0);
	look(&w);
	assert_int_equal(b->npending, 1);
	assert_ptr_equal(b->pending[0].st, w.st[3]);
	world_fini(&w);
}

static void an_inode_that_cannot_be_read_is_told_and_read_again(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	b = lose_one(&w);
	no_get = true;
	for (int i = 0; i < 3; i++)
		look(&w);
	no_get = false;
	assert_int_equal(b->npending, 0);
	assert_true(w.nn->unread.next_ns);
	look(&w);
	assert_int_equal(b->npending, 1);
	world_fini(&w);
}

/* What is read may be newer than what is in memory: the file has gone, or its blocks belong to
 * another one. */
static void a_block_whose_file_is_gone_is_not_copied(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	b = lose_one(&w);
	b->inode = w.plain + 1000;
	look(&w);
	assert_int_equal(b->npending, 0);
	b->inode = w.file;
	look(&w);
	assert_ptr_equal(b->pending[0].st, w.st[3]);
	world_fini(&w);
}

/* ---- what satisfyStoragePolicy asked for, over a restart ---- */

static struct ns *begin_change(struct world *w)
{
	w->d.db = w->nn->db;
	return test_begin(&w->d, "root");
}

/* What the writer's thread would do with it. */
static int change(struct world *w, const struct method *m, const void *in, uint64_t arg)
{
	struct req q = {
		.nn = w->nn, .method = m, .arg = arg, .ns = *begin_change(w), .exc = {.a = &q.mem}};
	const int rc = m->run(&q, in);

	assert_int_equal(test_commit(&w->d), 0);
	w->d.db = NULL;
	for (const struct effect *e = w->d.fx.first; e; e = e->next)
		if (e->kind == FX_SATISFY)
			satisfier_add(&w->nn->satisfy, e->inode);
	arena_free(&q.mem);
	return rc;
}

static void ask(struct world *w, const char *path)
{
	Hd__SatisfyStoragePolicyRequestProto m = HD__SATISFY_STORAGE_POLICY_REQUEST_PROTO__INIT;

	m.src = (char *)(uintptr_t)path;
	for (size_t i = 0; i < client_policy_methods.count; i++)
		if (!strcmp(client_policy_methods.methods[i].name, "satisfyStoragePolicy"))
			assert_int_equal(change(w, &client_policy_methods.methods[i], &m, 0), 0);
}

/* The marks that were to be taken away are. How many. */
static uint32_t take_marks_away(struct world *w)
{
	struct list batch = LIST_INIT(batch), *l;
	uint32_t n = 0;

	assert_true(commit_queue_take(&w->nn->commit_queue, 0, &batch));
	for (; (l = list_pop(&batch)); n++) {
		struct req *q = container_of(l, struct req, link);

		assert_ptr_equal(q->method, &satisfied_method);
		assert_int_equal(change(w, q->method, NULL, q->arg), 0);
		req_finish(q);
	}
	return n;
}

static void restart(struct world *w)
{
	stop(w);
	start(w);
	for (int i = 0; i < 2; i++)
		w->st[i]->type = STORAGE_SSD;
}

/* Nodes 0 and 1 have SSD; the file is on 0 and 2. */
static struct blk *ask_of_file(struct world *w, const char *path)
{
	world_init(w, "aaaa");
	restart(w);
	ask(w, path);
	assert_true(w->nn->satisfy.n > 0);
	restart(w);
	assert_int_equal(w->nn->satisfy.n, 1);
	blk_set_repl(&w->nn->blocks, put_block(w, 0, "02"), 2);
	return put_block(w, 0, "");
}

static void what_was_asked_for_outlives_a_restart(void **state)
{
	const char *const paths[] = {"/f", "/"};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct world w;
		struct blk *b = ask_of_file(&w, paths[i]);

		for (int k = 0; k < 5; k++) /* a directory is gone through first */
			satisfier_look(w.nn, clock_mono_ns());
		assert_int_equal(b->npending, 1);
		assert_int_equal(take_marks_away(&w), 0);
		assert_int_equal(obey(&w, b), 1);
		assert_int_equal(on_ssd(b), 2);
		satisfier_look(w.nn, clock_mono_ns());
		assert_int_equal(w.nn->satisfy.n, 0);
		assert_int_equal(take_marks_away(&w), 1);
		restart(&w);
		assert_int_equal(w.nn->satisfy.n, 0);
		world_fini(&w);
	}
}

/* First the inode, then the entries of the directory. */
static void what_cannot_be_read_stays_in_line_with_its_mark(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	b = ask_of_file(&w, "/");
	for (int i = 0; i < 2; i++) {
		no_get = !i;
		no_cursor = i;
		for (int k = 0; k < 5; k++)
			satisfier_look(w.nn, clock_mono_ns());
		no_get = no_cursor = false;
		assert_int_equal(w.nn->satisfy.n, 1);
		assert_int_equal(take_marks_away(&w), 0);
		satisfier_look(w.nn, clock_mono_ns()); /* it is a directory */
	}
	assert_true(w.nn->unread.next_ns);
	for (int i = 0; i < 5; i++)
		satisfier_look(w.nn, clock_mono_ns());
	assert_int_equal(b->npending, 1);
	world_fini(&w);
}

static void what_is_asked_for_again_keeps_its_mark(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	b = ask_of_file(&w, "/f");
	satisfier_look(w.nn, clock_mono_ns());
	obey(&w, b);
	satisfier_look(w.nn, clock_mono_ns());
	ask(&w, "/f"); /* before the change that takes the mark away */
	assert_int_equal(take_marks_away(&w), 1);
	restart(&w);
	assert_int_equal(w.nn->satisfy.n, 1);
	world_fini(&w);
}

/* A file that stands in line for a directory is asked for itself: the directory is done without it.
 */
static void a_file_that_is_asked_for_by_name_stands_for_itself(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	b = ask_of_file(&w, "/");
	for (int i = 0; i < 5; i++)
		satisfier_look(w.nn, clock_mono_ns());
	assert_int_equal(b->npending, 1);
	assert_int_equal(w.nn->satisfy.n, 1);
	ask(&w, "/f");
	satisfier_look(w.nn, clock_mono_ns());
	assert_int_equal(take_marks_away(&w), 1);
	restart(&w);
	assert_int_equal(w.nn->satisfy.n, 1);
	world_fini(&w);
}

static void the_mark_is_nobodys_to_see_or_to_take(void **state)
{
	const struct xattr x = {.space = XATTR_SYSTEM, .name = XATTR_SATISFY};
	struct xattrs seen;
	struct world w;
	struct ns *n;

	(void)state;
	(void)ask_of_file(&w, "/f");
	n = begin_change(&w);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(xattr_list(n, i ? "/.reserved/raw/f" : "/f", NULL, &seen), 0);
		assert_int_equal(seen.n, 0);
	}
	assert_int_equal(xattr_list(n, "/f",
				    &(struct xattrs){.a = (struct xattr *)(uintptr_t)&x, .n = 1},
				    &seen),
			 -EACCES);
	assert_int_equal(xattr_remove(n, "/f", &x), -EACCES);
	assert_int_equal(xattr_set(n, "/f", &x, XATTR_CREATE), -EACCES);
	txn_write_abort(&w.d.t);
	w.d.db = NULL;
	world_fini(&w);
}

/* ---- room for blocks that are to be written ---- */

static int add_block(struct world *w, uint64_t file, Hd__ExtendedBlockProto *previous)
{
	Hd__AddBlockRequestProto m = HD__ADD_BLOCK_REQUEST_PROTO__INIT;
	int rc = 0;

	m.src = (char *)(uintptr_t) "/o";
	m.clientname = (char *)(uintptr_t) "c";
	m.previous = previous;
	m.has_fileid = true;
	m.fileid = file;
	for (size_t i = 0; i < client_write_methods.count; i++)
		if (!strcmp(client_write_methods.methods[i].name, "addBlock"))
			rc = change(w, &client_write_methods.methods[i], &m, 0);
	return rc;
}

/* More bytes than a block may have, and then fewer nodes than are wanted. */
static void a_block_that_is_refused_keeps_no_room(void **state)
{
	Hd__ExtendedBlockProto previous = HD__EXTENDED_BLOCK_PROTO__INIT;
	struct inode_block b = {0};
	struct inode f = {.type = INODE_FILE,
			  .perm = 0644,
			  .repl = 2,
			  .block_size = 1 << 20,
			  .blocks = &b,
			  .name = "o",
			  .nblocks = 1,
			  .parent = INODE_ROOT,
			  .owner = "root",
			  .group = "root",
			  .client = "c",
			  .client_host = ""};
	struct world w;
	struct ns *n;

	(void)state;
	world_init(&w, "aa");
	n = begin_change(&w);
	f.id = inode_new_id(n->t);
	b.b = (struct block){(int64_t)++n->t->ctr.block, n->t->ctr.gs, 0};
	assert_int_equal(inode_put(n->t, &f), 0);
	assert_int_equal(dirent_put(n->t, INODE_ROOT, f.name, f.id), 0);
	assert_int_equal(test_commit(&w.d), 0);
	w.d.db = NULL;
	previous.poolid = w.nn->db->ident.pool_id;
	previous.blockid = (uint64_t)b.b.id;
	previous.generationstamp = b.b.gs;
	previous.has_numbytes = true;
	for (int i = 0; i < 2; i++) {
		previous.numbytes = i ? LEN : 1 << 30;
		w.nn->set.repl_min = i ? 3 : 1;
		assert_true(add_block(&w, f.id, &previous) < 0);
		for (int k = 0; k < 2; k++)
			assert_int_equal(w.st[k]->promised, 0);
	}
	w.nn->set.repl_min = 1;
	assert_int_equal(add_block(&w, f.id, &previous), 0);
	for (int k = 0; k < 2; k++)
		assert_int_equal(w.st[k]->promised, 1 << 20);
	world_fini(&w);
}

/* ---- replicas more than wanted ---- */

/* So many replicas are ordered to go from each node: "0010". */
static void assert_dropped(const struct world *w, const char *counts)
{
	for (uint32_t i = 0; i < w->nodes; i++)
		assert_int_equal(w->dn[i]->ninval, counts[i] - '0');
}

/* Node 0 has the least room: it would go if types did not matter. */
static void the_replica_on_a_type_that_is_not_wanted_goes_first(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, "aaaa");
	w.st[0]->remaining = 1 << 20;
	w.st[2]->type = STORAGE_ARCHIVE;
	add(&w, 3, "0123");
	look(&w);
	assert_dropped(&w, "0010");
	world_fini(&w);
	world_init(&w, "aaaa"); /* ALL_SSD */
	w.st[0]->remaining = 1 << 20;
	for (int i = 0; i < 3; i++)
		w.st[i]->type = STORAGE_SSD;
	put_block(&w, 0, "0123");
	look(&w);
	assert_dropped(&w, "0001");
	assert_int_equal(w.nn->blocks.surplus_count, 0);
	world_fini(&w);
}

/* The one that is not wanted is the only one in its rack. */
static void racks_are_kept_before_types(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, "aaab");
	w.st[3]->type = STORAGE_ARCHIVE;
	w.st[1]->remaining = 1 << 20;
	add(&w, 3, "0123");
	look(&w);
	assert_dropped(&w, "0100");
	world_fini(&w);
}

static void the_node_that_an_order_names_goes_whatever_its_type(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w, "aaaa");
	w.st[2]->type = STORAGE_ARCHIVE;
	b = add(&w, 3, "012");
	blocks_report_moved(&w.nn->blocks, w.st[3], &b->b, w.dn[1]);
	assert_dropped(&w, "0100");
	world_fini(&w);
}

/* Of equal types nobody has to be asked. */
static void of_one_type_the_surplus_goes_at_once(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, "aaaa");
	w.st[1]->remaining = 1 << 20;
	add(&w, 3, "0123");
	assert_dropped(&w, "0100");
	world_fini(&w);
}

/* Unit 0 twice, and nobody can take the missing ones. */
static void of_two_of_a_unit_the_one_on_a_type_that_is_not_wanted_goes(void **state)
{
	struct world w;
	struct block r;
	struct blk *b;

	(void)state;
	world_init(&w, "aaaa");
	w.st[0]->type = STORAGE_SSD;
	w.st[3]->remaining = 1; /* it would go */
	b = add_group(&w, 0);
	r = (struct block){ec_id_of(b->b.id, 0), b->b.gs, blk_unit_len(b, b->b.len, 0)};
	blocks_report(&w.nn->blocks, w.st[3], &r, REPLICA_FINALIZED, false, 0);
	look(&w);
	assert_dropped(&w, "1000");
	world_fini(&w);
}

/* ---- what comes all at once ---- */

/* Each death takes a millisecond or more. */
static void the_lock_is_given_back_while_many_nodes_are_found_dead(void **state)
{
	struct world w;
	uint64_t before;

	(void)state;
	world_init(&w, "aabbccdd");
	clock_ahead_ns += 3600 * NS_PER_S;
	clock_step_ns = NS_PER_MS;
	before = w.nn->holds.count;
	monitor_tick(w.nn);
	assert_int_equal(datanodes_live(&w.nn->dns), 0);
	assert_true(w.nn->holds.count - before >= 2);
	world_fini(&w);
}

#define OPEN_FILES 5000u

/* A client with many open files is silent: all are recovered once, and not all in one change. */
static void the_files_of_a_lease_are_recovered_some_at_a_time(void **state)
{
	static uint8_t seen[OPEN_FILES];
	struct world w;
	uint32_t sum = 0;

	(void)state;
	world_init(&w, "aaa");
	for (uint64_t i = 0; i < OPEN_FILES; i++)
		leases_add(&w.nn->leases, "c", i);
	w.nn->dns.dead_after_ns = w.nn->dns.stale_after_ns = 10000 * NS_PER_S;
	clock_ahead_ns += 3600 * NS_PER_S;
	for (uint32_t n = 1; n; sum += n) {
		struct list batch = LIST_INIT(batch), *l;

		monitor_tick(w.nn);
		assert_true(commit_queue_take(&w.nn->commit_queue, 0, &batch));
		for (n = 0; (l = list_pop(&batch)); n++) {
			struct req *q = container_of(l, struct req, link);

			assert_true(q->arg < OPEN_FILES);
			seen[q->arg]++;
			if (q->arg % 3) /* it is closed, or somebody else's now */
				leases_del(&w.nn->leases, "c", q->arg);
			req_finish(q);
		}
		assert_true(n <= OPEN_FILES / 4);
	}
	assert_int_equal(sum, OPEN_FILES);
	for (uint32_t i = 0; i < OPEN_FILES; i++)
		assert_int_equal(seen[i], 1);
	world_fini(&w);
}

#define HOLDERS 16u
#define TICKS 3

/* Clients with many open files have died, and one with few. */
static void no_lease_waits_for_all_files_of_another(void **state)
{
	uint32_t seen[HOLDERS + 1] = {0};
	struct leases *all;
	struct world w;

	(void)state;
	world_init(&w, "aaa");
	all = &w.nn->leases;
	for (uint64_t i = 0; i < HOLDERS * OPEN_FILES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "c%u", (uint32_t)(i / OPEN_FILES));
		leases_add(all, name, i);
	}
	leases_add(all, "few", HOLDERS * OPEN_FILES);
	w.nn->dns.dead_after_ns = w.nn->dns.stale_after_ns = 10000 * NS_PER_S;
	clock_ahead_ns += 3600 * NS_PER_S;
	for (int t = 0; t <= TICKS; t++) {
		struct list batch = LIST_INIT(batch), *l;
		uint32_t n = 0;

		if (t == TICKS) /* whoever has the next turn is gone */
			for (uint64_t i = 0; i < OPEN_FILES; i++)
				leases_del(all, all->turn->holder, all->turn->inode[0]);
		monitor_tick(w.nn);
		assert_true(commit_queue_take(&w.nn->commit_queue, 0, &batch));
		for (; (l = list_pop(&batch)); n++) {
			struct req *q = container_of(l, struct req, link);

			seen[q->arg / OPEN_FILES]++;
			req_finish(q);
		}
		assert_in_range(n, OPEN_FILES / 8, OPEN_FILES / 4);
		for (uint32_t i = 0; i <= HOLDERS && t == TICKS - 1; i++)
			assert_in_range(seen[i], 1, OPEN_FILES / 8);
	}
	world_fini(&w);
}

/* ---- nodes that leave ---- */

/* Node 2 leaves, which has a replica more than there need be; its blocks are being counted. */
static void begin_to_count(struct world *w)
{
	const struct hosts_verdict v = {.state = HOSTS_LEAVE, .allowed = true};

	decommission_judge(w->nn, w->dn[2], &v);
	blocks_sweep(&w->nn->blocks, UINT32_MAX);
	put_block(w, 0, "0134");
	put_block(w, 0, "2");
	put_block(w, 1, "0");
	decommission_tick(w->nn, clock_mono_ns());
	assert_true(blk_cursor_is_open(&w->nn->draining));
}

static enum dn_admin end_of_count(struct world *w)
{
	nn_lock(w->nn);
	for (int i = 0; i < 100 && blk_cursor_is_open(&w->nn->draining); i++)
		decommission_slice(w->nn);
	nn_unlock(w->nn);
	assert_false(blk_cursor_is_open(&w->nn->draining));
	return w->dn[2]->admin;
}

/* A node lacks a replica in each of many reports: no count would ever end. */
static void a_node_may_leave_though_a_report_lacks_a_replica_meanwhile(void **state)
{
	struct world w;
	struct block b;

	(void)state;
	world_init(&w, "aabbb");
	begin_to_count(&w);
	b = w.first;
	blocks_report_begin(&w.nn->blocks, w.st[0]);
	blocks_report(&w.nn->blocks, w.st[0], &b, REPLICA_FINALIZED, false, w.st[0]->report_seq);
	blocks_report_end(&w.nn->blocks, w.st[0]);
	assert_true(blocks_must_sweep(&w.nn->blocks));
	assert_int_equal(end_of_count(&w), DN_DECOMMISSIONED);
	world_fini(&w);
}

/* The storage of node @f fails in the middle of each count and is back at its end. Node 2 has a
 * replica of a block that is also on @others. True: it may leave. */
static bool leaves_beside_a_flapping_storage(int f, const char *others)
{
	const struct hosts_verdict v = {.state = HOSTS_LEAVE, .allowed = true};
	enum dn_admin admin = DN_DECOMMISSIONING;
	struct world w;

	world_init(&w, "aabbb");
	decommission_judge(w.nn, w.dn[2], &v);
	blocks_sweep(&w.nn->blocks, UINT32_MAX);
	put_block(&w, 0, others);
	put_block(&w, 0, "2");
	put_block(&w, 1, "0");
	for (int i = 0; i < 10 && admin == DN_DECOMMISSIONING; i++) {
		w.nn->next_drain_ns = 0;
		decommission_tick(w.nn, clock_mono_ns());
		blocks_forget(&w.nn->blocks, w.dn[f], w.st[f]);
		admin = end_of_count(&w);
		blocks_keep(&w.nn->blocks, w.st[f]);
		blocks_sweep(&w.nn->blocks, UINT32_MAX);
	}
	world_fini(&w);
	return admin == DN_DECOMMISSIONED;
}

static void a_node_may_leave_though_a_storage_comes_and_goes(void **state)
{
	(void)state;
	assert_true(leaves_beside_a_flapping_storage(0, "134"));
	assert_false(leaves_beside_a_flapping_storage(0, "034"));
	assert_true(leaves_beside_a_flapping_storage(2, "134")); /* its own */
}

static void a_node_stays_when_another_dies_while_its_blocks_are_counted(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, "aabbb");
	begin_to_count(&w);
	nn_dn_lost(w.nn, w.dn[0], "test");
	assert_int_equal(end_of_count(&w), DN_DECOMMISSIONING);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(groups_on_too_few_nodes_keep_nobody_from_being_copied),
		cmocka_unit_test(blocks_that_no_node_can_take_pass_their_turn_on),
		cmocka_unit_test(a_source_that_cannot_send_is_not_asked_for_ever),
		cmocka_unit_test(the_lock_is_given_back_while_copies_are_ordered),
		cmocka_unit_test(a_look_orders_so_many_copies_for_each_living_node),
		cmocka_unit_test(more_copies_wait_for_a_node_that_has_the_last_replicas),
		cmocka_unit_test(a_block_that_racks_keep_from_its_policy_is_not_copied_for_ever),
		cmocka_unit_test(
			a_replica_goes_to_the_type_its_policy_wants_in_a_rack_where_it_stays),
		cmocka_unit_test(a_disk_that_has_failed_is_no_source_of_a_copy),
		cmocka_unit_test(a_node_is_not_told_to_copy_more_than_it_can_begin),
		cmocka_unit_test(a_file_that_stays_under_replicated_is_given_up),
		cmocka_unit_test(a_file_whose_nodes_are_busy_waits_for_them),
		cmocka_unit_test(a_silent_node_is_not_told_to_copy_for_a_policy),
		cmocka_unit_test(a_replica_on_a_silent_node_is_waited_for),
		cmocka_unit_test(a_copy_that_nobody_waits_for_is_not_ordered),
		cmocka_unit_test(a_node_that_leaves_begins_more_copies_at_a_time),
		cmocka_unit_test(a_file_that_is_asked_for_again_is_in_line_once),
		cmocka_unit_test(the_lock_is_given_back_while_a_policy_is_satisfied),
		cmocka_unit_test(policies_are_read_without_the_lock),
		cmocka_unit_test(without_its_policy_a_block_waits_for_the_next_round),
		cmocka_unit_test(an_inode_that_cannot_be_read_is_told_and_read_again),
		cmocka_unit_test(a_block_whose_file_is_gone_is_not_copied),
		cmocka_unit_test(what_was_asked_for_outlives_a_restart),
		cmocka_unit_test(what_cannot_be_read_stays_in_line_with_its_mark),
		cmocka_unit_test(what_is_asked_for_again_keeps_its_mark),
		cmocka_unit_test(a_file_that_is_asked_for_by_name_stands_for_itself),
		cmocka_unit_test(the_mark_is_nobodys_to_see_or_to_take),
		cmocka_unit_test(a_block_that_is_refused_keeps_no_room),
		cmocka_unit_test(the_replica_on_a_type_that_is_not_wanted_goes_first),
		cmocka_unit_test(racks_are_kept_before_types),
		cmocka_unit_test(the_node_that_an_order_names_goes_whatever_its_type),
		cmocka_unit_test(of_one_type_the_surplus_goes_at_once),
		cmocka_unit_test(of_two_of_a_unit_the_one_on_a_type_that_is_not_wanted_goes),
		cmocka_unit_test(the_lock_is_given_back_while_many_nodes_are_found_dead),
		cmocka_unit_test(no_lease_waits_for_all_files_of_another),
		cmocka_unit_test(the_files_of_a_lease_are_recovered_some_at_a_time),
		cmocka_unit_test(a_node_may_leave_though_a_report_lacks_a_replica_meanwhile),
		cmocka_unit_test(a_node_may_leave_though_a_storage_comes_and_goes),
		cmocka_unit_test(a_node_stays_when_another_dies_while_its_blocks_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
