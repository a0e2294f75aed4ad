/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: what a NameNode orders is done: deletions, transfers, recoveries of blocks,
 * cached replicas, rolling upgrades; an order that is unknown or fails, or a disk that hangs, stops
 * no other one. */
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/wire/rpc_frame.h"
#include "datanode/bp/bp_test_fixture.h"

static void invalidate_deletes_and_long_max_stays_quiet(void **state)
{
	struct fix *f = *state;
	struct replica_info i;

	up(f);
	make_block(f, 5);
	make_block(f, 6);
	invalidate(f, 5, 5, true);
	eventually(f->nn.deleted == 1);
	invalidate(f, 6, INT64_MAX, true);
	eventually(replica_get(pool_of(f), 6, &i) == -ENOENT);
	nanosleep(&(struct timespec){0, 150000000}, NULL);
	assert_int_equal(f->nn.deleted, 1);
}

/* What is not here, or shorter than ordered, is told, and not copied. */
static void a_transfer_names_the_target_and_its_storage(void **state)
{
	Hdd__DatanodeCommandProto cmd = HDD__DATANODE_COMMAND_PROTO__INIT;
	Hdd__BlockCommandProto bc = HDD__BLOCK_COMMAND_PROTO__INIT;
	Hd__BlockProto b[3] = {HD__BLOCK_PROTO__INIT, HD__BLOCK_PROTO__INIT, HD__BLOCK_PROTO__INIT},
		       *list[3] = {&b[0], &b[1], &b[2]};
	Hd__DatanodeInfosProto infos = HD__DATANODE_INFOS_PROTO__INIT,
			       *targets[3] = {&infos, &infos, &infos};
	Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT, *dns = &info;
	Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;
	Hd__StorageUuidsProto uuids = HD__STORAGE_UUIDS_PROTO__INIT,
			      *uuid_lists[3] = {&uuids, &uuids, &uuids};
	char *uuid = (char *)"DS-there";
	struct fix *f = *state;

	up(f);
	make_block(f, 5);
	make_block(f, 7);
	id.ipaddr = (char *)"127.0.0.9";
	id.hostname = (char *)"there";
	id.datanodeuuid = (char *)"u";
	id.xferport = 9866;
	info.id = &id;
	infos.n_datanodes = 1;
	infos.datanodes = &dns;
	uuids.n_storageuuids = 1;
	uuids.storageuuids = &uuid;
	for (int i = 0; i < 3; i++) {
		b[i].blockid = (uint64_t)(7 - i); /* 6 is not here */
		b[i].genstamp = 1001;
		b[i].has_numbytes = true;
		b[i].numbytes = i ? 5 : 6; /* 7 is shorter */
	}
	bc.action = HDD__BLOCK_COMMAND_PROTO__ACTION__TRANSFER;
	bc.blockpoolid = (char *)POOL;
	bc.n_blocks = bc.n_targets = bc.n_targetstorageuuids = 3;
	bc.blocks = list;
	bc.targets = targets;
	bc.targetstorageuuids = uuid_lists;
	cmd.cmdtype = HDD__DATANODE_COMMAND_PROTO__TYPE__BlockCommand;
	cmd.blkcmd = &bc;
	f->nn.command = &cmd;
	eventually(transfers_seen > 0 && f->nn.errors == 1 && f->nn.bad == 1);
	assert_int_equal(transfers_seen, 1);
}

/* An order to recover one block, of which this node says what it has; `mute` does not answer. */
struct recovery_order {
	Hdd__DatanodeCommandProto cmd;
	Hdd__BlockRecoveryCommandProto rc;
	Hd__RecoveringBlockProto rb, *list;
	Hd__LocatedBlockProto lb;
	Hd__ExtendedBlockProto eb;
	Hd__DatanodeInfoProto here, mute, *locs[5];
	Hd__DatanodeIDProto here_id, mute_id;
	Hc__TokenProto token;
	Hd__ErasureCodingPolicyProto policy;
};

static Hdd__DatanodeCommandProto *recovery_order(struct recovery_order *o, const struct fix *f,
						 int64_t id)
{
	hdd__datanode_command_proto__init(&o->cmd);
	hdd__block_recovery_command_proto__init(&o->rc);
	hd__recovering_block_proto__init(&o->rb);
	hd__located_block_proto__init(&o->lb);
	hd__extended_block_proto__init(&o->eb);
	hd__datanode_info_proto__init(&o->here);
	hd__datanode_idproto__init(&o->here_id);
	hc__token_proto__init(&o->token);
	hd__erasure_coding_policy_proto__init(&o->policy);
	o->here_id.ipaddr = (char *)"127.0.0.1";
	o->here_id.hostname = (char *)"localhost";
	o->here_id.datanodeuuid = (char *)store_datanode_uuid(f->dn.store);
	o->here.id = &o->here_id;
	o->mute = o->here;
	o->mute_id = o->here_id;
	o->mute_id.datanodeuuid = (char *)"another";
	o->mute_id.ipcport = 1; /* nobody listens */
	o->mute.id = &o->mute_id;
	for (int i = 0; i < 5; i++)
		o->locs[i] = i == 1 ? &o->mute : &o->here;
	o->eb.poolid = (char *)POOL;
	o->eb.blockid = (uint64_t)id;
	o->eb.generationstamp = 1001;
	o->token.kind = o->token.service = (char *)"";
	o->lb.b = &o->eb;
	o->lb.blocktoken = &o->token;
	o->lb.n_locs = 1;
	o->lb.locs = o->locs;
	o->rb.newgenstamp = 1010;
	o->rb.block = &o->lb;
	o->list = &o->rb;
	o->rc.n_blocks = 1;
	o->rc.blocks = &o->list;
	o->cmd.cmdtype = HDD__DATANODE_COMMAND_PROTO__TYPE__BlockRecoveryCommand;
	o->cmd.recoverycmd = &o->rc;
	return &o->cmd;
}

/* The order is taken, and nothing is committed for it. */
static void assert_nothing_is_committed(struct fix *f, Hdd__DatanodeCommandProto *cmd)
{
	const int commits = f->nn.commits;
	int beats;

	f->nn.command = cmd;
	eventually(!f->nn.command);
	beats = f->nn.beats;
	eventually(f->nn.beats > beats + 1);
	nanosleep(&(struct timespec){0, 300000000}, NULL);
	assert_int_equal(f->nn.commits, commits);
}

static void a_lone_primary_recovers_its_block_and_commits(void **state)
{
	struct fix *f = *state;
	struct recovery_order o;
	struct replica_info i;

	up(f);
	replica_write_close(write_block(f, 5), false);
	f->nn.command = recovery_order(&o, f, 5);
	eventually(f->nn.commits == 1 && f->nn.received == 1);
	assert_int_equal(f->nn.commit_len, 5);
	assert_int_equal(f->nn.commit_gs, 1010);
	assert_int_equal(f->nn.commit_nodes, 1);
	assert_int_equal(f->nn.last_received_gs, 1010);
	assert_int_equal(replica_get(pool_of(f), 5, &i), 0);
	assert_int_equal(i.state, REPLICA_FINALIZED);
}

static void a_standby_has_no_block_recovered(void **state)
{
	struct fix *f = *state;
	struct recovery_order o;
	struct replica_info i;

	f->nn.standby = true;
	up(f);
	replica_write_close(write_block(f, 5), false);
	assert_nothing_is_committed(f, recovery_order(&o, f, 5));
	assert_int_equal(replica_get(pool_of(f), 5, &i), 0);
	assert_int_equal(i.state, REPLICA_RBW);
	assert_int_equal(i.block.gs, 1001);
}

/* The NameNode is to drop it. */
static void a_block_that_nobody_has_is_committed_without_nodes(void **state)
{
	struct fix *f = *state;
	struct recovery_order o;

	up(f);
	f->nn.command = recovery_order(&o, f, 77);
	eventually(f->nn.commits == 1);
	assert_int_equal(f->nn.commit_nodes, 0);
}

/* A node that does not answer may have it: the order comes again. */
static void a_block_is_not_dropped_while_a_node_does_not_answer(void **state)
{
	struct fix *f = *state;
	struct recovery_order o;

	up(f);
	recovery_order(&o, f, 78);
	o.lb.n_locs = 2;
	assert_nothing_is_committed(f, &o.cmd);
}

/* Of a group of five units, the second of which is on the other node. */
static void group_order(struct recovery_order *o, const struct fix *f)
{
	recovery_order(o, f, -1600);
	o->policy.id = EC_ID_RS_3_2;
	o->rb.ecpolicy = &o->policy;
	o->rb.has_blockindices = true;
	o->rb.blockindices = (ProtobufCBinaryData){5, (uint8_t *)"\0\1\2\3\4"};
	o->lb.n_locs = 5;
}

static void a_block_group_is_not_dropped_while_a_node_does_not_answer(void **state)
{
	struct fix *f = *state;
	struct recovery_order o;

	up(f);
	group_order(&o, f);
	assert_nothing_is_committed(f, &o.cmd);
	o.locs[1] = &o.here;
	f->nn.command = &o.cmd;
	eventually(f->nn.commits == 1);
	assert_int_equal(f->nn.commit_nodes, 0);
}

/* A unit that its writer went on without is no use, and its node has answered. */
static void a_block_group_is_dropped_when_a_node_has_a_unit_of_an_older_stamp(void **state)
{
	struct fix *f = *state;
	struct recovery_order o;

	up(f);
	group_order(&o, f);
	o.mute_id.ipcport = net_port(&f->nn.addr);
	f->nn.init_throws = JEX_IO;
	assert_nothing_is_committed(f, &o.cmd);
	f->nn.init_throws = JEX_REPLICA_NOT_FOUND;
	f->nn.command = &o.cmd;
	eventually(f->nn.commits == 1);
	assert_int_equal(f->nn.commit_nodes, 0);
}

/* ---- more recoveries than places ---- */

enum { BLOCKS = 4 * NN_RECOVERIES_MAX, FIRST_BLOCK = 100 };

/* An order to recover some of the blocks, which this node alone has. */
struct many_orders {
	Hdd__DatanodeCommandProto cmd;
	Hdd__BlockRecoveryCommandProto rc;
	Hd__RecoveringBlockProto rb[BLOCKS], *list[BLOCKS];
	Hd__LocatedBlockProto lb[BLOCKS];
	Hd__ExtendedBlockProto eb[BLOCKS];
	Hd__DatanodeInfoProto info, *locs[1];
	Hd__DatanodeIDProto id;
	Hc__TokenProto token;
};

static struct many_orders *many_orders(struct fix *f)
{
	struct many_orders *o = calloc(1, sizeof(*o));

	assert_non_null(o);
	hdd__datanode_command_proto__init(&o->cmd);
	hdd__block_recovery_command_proto__init(&o->rc);
	hd__datanode_info_proto__init(&o->info);
	hd__datanode_idproto__init(&o->id);
	hc__token_proto__init(&o->token);
	o->id.ipaddr = (char *)"127.0.0.1";
	o->id.hostname = (char *)"localhost";
	o->id.datanodeuuid = (char *)store_datanode_uuid(f->dn.store);
	o->info.id = &o->id;
	o->locs[0] = &o->info;
	o->token.kind = o->token.service = (char *)"";
	o->cmd.cmdtype = HDD__DATANODE_COMMAND_PROTO__TYPE__BlockRecoveryCommand;
	o->cmd.recoverycmd = &o->rc;
	o->rc.blocks = o->list;
	return o;
}

static void order_one(struct many_orders *o, int64_t id, uint64_t recovery_id)
{
	const size_t i = o->rc.n_blocks++;

	hd__extended_block_proto__init(&o->eb[i]);
	o->eb[i].poolid = (char *)POOL;
	o->eb[i].blockid = (uint64_t)id;
	o->eb[i].generationstamp = 1001;
	hd__located_block_proto__init(&o->lb[i]);
	o->lb[i].b = &o->eb[i];
	o->lb[i].blocktoken = &o->token;
	o->lb[i].n_locs = 1;
	o->lb[i].locs = o->locs;
	hd__recovering_block_proto__init(&o->rb[i]);
	o->rb[i].newgenstamp = recovery_id;
	o->rb[i].block = &o->lb[i];
	o->list[i] = &o->rb[i];
}

static void make_blocks(struct fix *f)
{
	for (int64_t i = 0; i < BLOCKS; i++)
		replica_write_close(write_block(f, FIRST_BLOCK + i), false);
}

/* Its primary recoveries, however many, leave places for those of the other one, and are done when
 * it answers. */
static void recoveries_on_a_disk_that_hangs_hold_up_no_other_ones(void **state)
{
	struct fix *f = *state;
	struct many_orders *o[2];
	int hanging;

	f->volumes = 2;
	up(f);
	make_blocks(f);
	for (int v = 0; v < 2; v++)
		o[v] = many_orders(f);
	for (int64_t id = FIRST_BLOCK; id < FIRST_BLOCK + BLOCKS; id++)
		order_one(o[replica_volume(pool_of(f), id)], id, 1010);
	hanging = (int)o[0]->rc.n_blocks;
	assert_true(hanging > NN_RECOVERIES_MAX && o[1]->rc.n_blocks > NN_RECOVERIES_MAX);
	stalled = 0;
	hung = f->path[0];
	f->nn.command = &o[0]->cmd;
	eventually(stalled == NN_RECOVERIES_MAX);
	eventually(store_is_stuck(f->dn.store));
	f->nn.command = &o[1]->cmd;
	eventually(f->nn.commits == BLOCKS - hanging);
	assert_int_equal(stalled, NN_RECOVERIES_MAX);
	hung = NULL;
	eventually(f->nn.commits == BLOCKS);
	for (int v = 0; v < 2; v++)
		free(o[v]);
}

static void recoveries_for_which_there_is_no_place_are_done_in_their_turn(void **state)
{
	struct fix *f = *state;
	struct many_orders *o;

	up(f);
	make_blocks(f);
	o = many_orders(f);
	for (int64_t id = FIRST_BLOCK; id < FIRST_BLOCK + BLOCKS; id++)
		order_one(o, id, 1010);
	f->nn.command = &o->cmd;
	eventually(f->nn.commits == BLOCKS);
	assert_int_equal(metric_get(METRIC_DN_RECOVERIES_WAITING), 0);
	free(o);
}

/* The NameNode has lost its patience, and the disk answers after all. */
static void an_order_that_waits_gives_way_to_a_newer_one(void **state)
{
	struct fix *f = *state;
	struct many_orders *o, *newer;
	struct replica_info i;

	up(f);
	make_blocks(f);
	o = many_orders(f);
	newer = many_orders(f);
	for (int64_t id = FIRST_BLOCK; id <= FIRST_BLOCK + NN_RECOVERIES_MAX; id++)
		order_one(o, id, 1010);
	stalled = 0;
	hung = f->path[0];
	f->nn.command = &o->cmd;
	eventually(stalled == NN_RECOVERIES_MAX);
	eventually(metric_get(METRIC_DN_RECOVERIES_WAITING) == 1);
	order_one(newer, FIRST_BLOCK + NN_RECOVERIES_MAX, 1020);
	f->nn.command = &newer->cmd;
	eventually(!f->nn.command);
	order_one(o, 9999, 1010); /* obeyed after it; nobody has this one */
	o->list[0] = &o->rb[o->rc.n_blocks - 1];
	o->rc.n_blocks = 1;
	f->nn.command = &o->cmd;
	eventually(f->nn.commits == 1);
	assert_int_equal(metric_get(METRIC_DN_RECOVERIES_WAITING), 1);
	hung = NULL;
	eventually(f->nn.commits == 1 + NN_RECOVERIES_MAX + 1);
	assert_int_equal(replica_get(pool_of(f), FIRST_BLOCK + NN_RECOVERIES_MAX, &i), 0);
	assert_int_equal(i.block.gs, 1020);
	free(o);
	free(newer);
}

/* ---- no thread, busy holders ---- */

static atomic_bool no_threads; /* there are too many */
int __real_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
	return no_threads ? EAGAIN : __real_pthread_create(t, attr, fn, arg);
}

static atomic_int inits, busy_inits; /* so many calls; so many are still answered "busy" */
int __real_replica_init_recovery(struct block_pool *bp, const struct block *b, uint64_t recovery_id,
				 struct replica_info *ret, struct err *err);
int __wrap_replica_init_recovery(struct block_pool *bp, const struct block *b, uint64_t recovery_id,
				 struct replica_info *ret, struct err *err);
int __wrap_replica_init_recovery(struct block_pool *bp, const struct block *b, uint64_t recovery_id,
				 struct replica_info *ret, struct err *err)
{
	inits++;
	if (busy_inits > 0 && busy_inits--)
		return err_set(err, -EBUSY, "blk: " REPLICA_WRITER_STAYS);
	return __real_replica_init_recovery(bp, b, recovery_id, ret, err);
}

/* The first ones have threads, and no other one can be had. */
static void recoveries_that_wait_need_no_thread_of_their_own(void **state)
{
	struct fix *f = *state;
	struct many_orders *o, *late;

	up(f);
	make_blocks(f);
	o = many_orders(f);
	late = many_orders(f);
	for (int64_t id = FIRST_BLOCK; id < FIRST_BLOCK + BLOCKS; id++)
		order_one(id < FIRST_BLOCK + BLOCKS - 1 ? o : late, id, 1010);
	stalled = 0;
	hung = f->path[0];
	f->nn.command = &o->cmd;
	eventually(stalled == NN_RECOVERIES_MAX);
	eventually(metric_get(METRIC_DN_RECOVERIES_WAITING) == BLOCKS - 1 - NN_RECOVERIES_MAX);
	no_threads = true;
	f->nn.command = &late->cmd;
	eventually(metric_get(METRIC_DN_RECOVERIES_WAITING) == BLOCKS - NN_RECOVERIES_MAX);
	hung = NULL;
	eventually(f->nn.commits == BLOCKS);
	no_threads = false;
	free(o);
	free(late);
}

/* There is a place for it, and no thread. */
static void a_recovery_without_a_thread_waits_for_that_of_another(void **state)
{
	struct fix *f = *state;
	struct many_orders *o, *late;

	up(f);
	make_blocks(f);
	o = many_orders(f);
	late = many_orders(f);
	order_one(o, FIRST_BLOCK, 1010);
	order_one(late, FIRST_BLOCK + 1, 1010);
	stalled = 0;
	hung = f->path[0];
	f->nn.command = &o->cmd;
	eventually(stalled == 1);
	no_threads = true;
	f->nn.command = &late->cmd;
	eventually(metric_get(METRIC_DN_RECOVERIES_WAITING) == 1);
	hung = NULL;
	eventually(f->nn.commits == 2);
	no_threads = false;
	free(o);
	free(late);
}

/* The last one is done when one of the others is over. */
static void a_holder_at_which_another_recovery_is_ahead_is_asked_once(void **state)
{
	struct fix *f = *state;
	struct replica_info i;
	struct many_orders *o;

	up(f);
	make_blocks(f);
	o = many_orders(f);
	for (int64_t id = FIRST_BLOCK; id <= FIRST_BLOCK + NN_RECOVERIES_MAX; id++) {
		const struct block b = {id, 1001, 0};
		struct err err = ERR_INIT;

		order_one(o, id, 1010);
		if (id < FIRST_BLOCK + NN_RECOVERIES_MAX)
			assert_int_equal(replica_init_recovery(pool_of(f), &b, 1020, &i, &err), 0);
	}
	inits = 0;
	f->nn.command = &o->cmd;
	eventually(f->nn.commits == 1);
	assert_true(inits <= NN_RECOVERIES_MAX + 1);
	free(o);
}

static void a_holder_whose_writer_does_not_go_at_once_is_asked_again(void **state)
{
	struct fix *f = *state;
	struct many_orders *o;

	up(f);
	make_blocks(f);
	o = many_orders(f);
	order_one(o, FIRST_BLOCK, 1010);
	inits = 0;
	busy_inits = 2;
	f->nn.command = &o->cmd;
	eventually(f->nn.commits == 1);
	assert_int_equal(inits, 3);
	free(o);
}

/* Nor does one that waits keep the node from ending. */
static void recoveries_that_wait_end_with_the_node(void **state)
{
	struct fix *f = *state;
	struct many_orders *o;

	up(f);
	make_blocks(f);
	o = many_orders(f);
	for (int64_t id = FIRST_BLOCK; id < FIRST_BLOCK + BLOCKS; id++)
		order_one(o, id, 1010);
	stalled = 0;
	hung = f->path[0];
	f->nn.command = &o->cmd;
	eventually(metric_get(METRIC_DN_RECOVERIES_WAITING) == BLOCKS - NN_RECOVERIES_MAX);
	hung = NULL;
	node_stop(f);
	assert_int_equal(metric_get(METRIC_DN_RECOVERIES_WAITING), 0);
	free(o);
}

static void an_unknown_command_is_passed_over(void **state)
{
	struct fix *f = *state;
	Hdd__DatanodeCommandProto cmd = HDD__DATANODE_COMMAND_PROTO__INIT;
	struct delete_order o;

	cmd.cmdtype = (Hdd__DatanodeCommandProto__Type)99;
	up(f);
	make_block(f, 5);
	f->nn.command = &cmd;
	eventually(!f->nn.command);
	f->nn.command = delete_order(&o, 5);
	eventually(!has_block(f, 5));
}

static void an_exception_in_place_of_an_answer_is_outlived(void **state)
{
	struct fix *f = *state;
	int seen;

	up(f);
	make_block(f, 5);
	f->nn.beat_throws = "java.lang.NullPointerException";
	seen = f->nn.beats;
	eventually(f->nn.beats > seen);
	f->nn.beat_throws = NULL;
	seen = f->nn.beats;
	eventually(f->nn.beats > seen + 2);
	assert_true(has_block(f, 5));
	assert_false(bp_is_dead(f->set, &f->err));
}

static void a_rolling_upgrade_keeps_what_is_deleted_until_it_is_finalised(void **state)
{
	struct fix *f = *state;
	struct delete_order o;
	int seen;

	up(f);
	make_block(f, 5);
	f->nn.upgrade = 1;
	seen = f->nn.beats;
	eventually(f->nn.beats > seen + 1);
	f->nn.command = delete_order(&o, 5);
	eventually(!has_block(f, 5) && f->nn.deleted == 1);
	assert_int_equal(count_files(f->path[0], "blk_5"), 1);
	f->nn.upgrade = 2;
	eventually(count_files(f->path[0], "blk_5") == 0);
}

static void an_ordered_replica_is_locked_reported_and_let_go(void **state)
{
	struct fix *f = *state;
	Hdd__DatanodeCommandProto cmd = HDD__DATANODE_COMMAND_PROTO__INIT;
	Hdd__BlockIdCommandProto ids = HDD__BLOCK_ID_COMMAND_PROTO__INIT;
	uint64_t id = 5;
	struct delete_order o;

	f->conf_set[0][0] = "dfs.datanode.max.locked.memory";
	f->conf_set[0][1] = "8192";
	f->conf_set[1][0] = "dfs.cachereport.intervalMsec";
	f->conf_set[1][1] = "20";
	up(f);
	make_block(f, 5);
	make_block(f, 6);
	make_block(f, 7);
	eventually(f->nn.received == 3 && f->nn.cache_reports > 0 && f->nn.cache_capacity == 8192);
	assert_int_equal(f->nn.cached, 0);
	ids.action = HDD__BLOCK_ID_COMMAND_PROTO__ACTION__CACHE;
	ids.blockpoolid = (char *)POOL;
	ids.n_blockids = 1;
	ids.blockids = &id;
	cmd.cmdtype = HDD__DATANODE_COMMAND_PROTO__TYPE__BlockIdCommand;
	cmd.blkidcmd = &ids;
	f->nn.command = &cmd;
	eventually(f->nn.cached == 1);
	for (id = 6; id <= 7; id++) { /* two pages: the third block does not fit */
		f->nn.command = &cmd;
		eventually(!f->nn.command);
		nanosleep(&(struct timespec){0, 100000000}, NULL);
	}
	eventually(f->nn.cached == 2);
	f->nn.command = delete_order(&o, 5);
	eventually(f->nn.cached == 1);
	ids.action = HDD__BLOCK_ID_COMMAND_PROTO__ACTION__UNCACHE;
	id = 6;
	f->nn.command = &cmd;
	eventually(f->nn.cached == 0);
	ids.action = HDD__BLOCK_ID_COMMAND_PROTO__ACTION__CACHE;
	id = 7;
	f->nn.command = &cmd;
	eventually(f->nn.cached == 1);
	(void)delete_order(&o, 7);
	o.b.numbytes = INT64_MAX; /* without a report, as of a file that was deleted */
	f->nn.command = &o.cmd;
	eventually(f->nn.cached == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(invalidate_deletes_and_long_max_stays_quiet),
		T(a_transfer_names_the_target_and_its_storage),
		T(a_lone_primary_recovers_its_block_and_commits),
		T(a_standby_has_no_block_recovered),
		T(a_block_that_nobody_has_is_committed_without_nodes),
		T(a_block_is_not_dropped_while_a_node_does_not_answer),
		T(a_block_group_is_not_dropped_while_a_node_does_not_answer),
		T(a_block_group_is_dropped_when_a_node_has_a_unit_of_an_older_stamp),
		T(recoveries_on_a_disk_that_hangs_hold_up_no_other_ones),
		T(recoveries_for_which_there_is_no_place_are_done_in_their_turn),
		T(an_order_that_waits_gives_way_to_a_newer_one),
		T(recoveries_that_wait_need_no_thread_of_their_own),
		T(a_recovery_without_a_thread_waits_for_that_of_another),
		T(a_holder_at_which_another_recovery_is_ahead_is_asked_once),
		T(a_holder_whose_writer_does_not_go_at_once_is_asked_again),
		T(recoveries_that_wait_end_with_the_node),
		T(an_unknown_command_is_passed_over),
		T(an_exception_in_place_of_an_answer_is_outlived),
		T(a_rolling_upgrade_keeps_what_is_deleted_until_it_is_finalised),
		T(an_ordered_replica_is_locked_reported_and_let_go),
	};

	log_init("bp_commands_test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
