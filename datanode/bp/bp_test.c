/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a scripted NameNode on a real socket sees what Apache's wants to see, and what it
 * orders is done; a NameNode that goes away, restarts, or refuses us is handled as the header says.
 */
#include "datanode/bp/bp_internal.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/erasure/geometry.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"
#include "datanode/admin/outliers.h"
#include "datanode/bp/fake_namenode.h"
#include "datanode/data_port/data_port.h"
#include "datanode/live_settings.h"
#include "datanode/reconstruct/reconstruct.h"

#define WAIT_MS 60000

/* ---- the node ---- */

static atomic_int transfers_seen, keys_seen;

int data_port_transfer(struct data_port *x, struct block_pool *bp, const struct block *b,
		       const struct dn_target *targets, uint32_t n,
		       void (*done)(void *arg, int rc, const struct err *err), void *arg)
{
	(void)x, (void)bp, (void)b;
	assert_int_equal(n, 1);
	assert_string_equal(targets[0].ip, "127.0.0.9");
	assert_int_equal(targets[0].xfer_port, 9866);
	assert_string_equal(targets[0].storage_uuid, "DS-there");
	transfers_seen++;
	done(arg, 0, NULL);
	return 0;
}

void data_port_volume_out(struct data_port *x, uint32_t volume)
{
	(void)x, (void)volume;
}

int data_port_rebuild(struct data_port *x, struct reconstruct_params *params)
{
	(void)x, (void)params;
	return -ENOMEM;
}

void reconstruct_params_fini(struct reconstruct_params *p)
{
	(void)p;
}

int data_port_block_keys(struct data_port *x, const char *pool_id,
			 const Hd__ExportedBlockKeysProto *keys, struct err *err)
{
	(void)x, (void)err, (void)pool_id;
	keys_seen += keys->isblocktokenenabled;
	return 0;
}

struct fix {
	char dir[64], path[2][96];
	uint32_t volumes;
	struct fake nn, nn2;
	struct outliers *outliers;
	const char *conf_set[4][2]; /* beside the usual */
	struct dn dn;
	struct conf *conf;
	struct bp_set *set;
	struct err err;
};

/* Both NameNodes, when the second one runs, under one name service. */
static void set_pair(struct fix *f)
{
	char one[NET_TEXT_MAX], two[NET_TEXT_MAX];

	if (!f->nn2.reactor)
		return;
	assert_int_equal(conf_set(f->conf, "dfs.nameservices", "ns"), 0);
	assert_int_equal(conf_set(f->conf, "dfs.ha.namenodes.ns", "a,b"), 0);
	assert_int_equal(
		conf_set(f->conf, "dfs.namenode.rpc-address.ns.a", net_text(&f->nn.addr, one)), 0);
	assert_int_equal(
		conf_set(f->conf, "dfs.namenode.rpc-address.ns.b", net_text(&f->nn2.addr, two)), 0);
}

static void node_start(struct fix *f)
{
	struct store_volume_opts v[2] = {{.path = f->path[0], .type = STORAGE_DISK},
					 {.path = f->path[1], .type = STORAGE_DISK}};
	struct store_opts so = {.volumes = v, .volume_count = f->volumes};
	char text[NET_TEXT_MAX], uri[NET_TEXT_MAX + 8];

	f->conf = conf_new();
	(void)snprintf(uri, sizeof(uri), "hdfs://%s", net_text(&f->nn.addr, text));
	assert_int_equal(conf_set(f->conf, "fs.defaultFS", uri), 0);
	assert_int_equal(conf_set(f->conf, "dfs.heartbeat.interval", "50ms"), 0);
	set_pair(f);
	for (int i = 0; i < 4 && f->conf_set[i][0]; i++)
		assert_int_equal(conf_set(f->conf, f->conf_set[i][0], f->conf_set[i][1]), 0);
	f->dn = (struct dn){
		.conf = f->conf, .xfer = (struct data_port *)f, .outliers = f->outliers};
	assert_int_equal(live_settings_read(&f->dn.live, f->conf, &f->err), 0);
	(void)snprintf(f->dn.host_name, sizeof(f->dn.host_name), "localhost");
	assert_int_equal(net_resolve("127.0.0.1", 1234, &f->dn.data_addr, &f->err), 0);
	f->dn.ipc_addr = f->dn.http_addr = f->dn.data_addr;
	assert_int_equal(store_open(&so, &f->dn.store, &f->err), 0);
	assert_int_equal(bp_start(&f->dn, &f->set, &f->err), 0);
}

static void node_stop(struct fix *f)
{
	bp_stop(f->set);
	store_close(f->dn.store);
	conf_free(f->conf);
	f->set = NULL;
	f->dn.store = NULL;
	f->conf = NULL;
}

/* ---- a disk that hangs: a look at an open replica on it does not come back ---- */

static _Atomic(const char *) hung; /* its directory; NULL: it answers */
static atomic_int stalled;

int __real_fstatat64(int dir, const char *name, struct stat *st, int flags);
int __wrap_fstatat64(int dir, const char *name, struct stat *st, int flags);
int __wrap_fstatat64(int dir, const char *name, struct stat *st, int flags)
{
	const char *top = atomic_load(&hung);
	char link[32], path[256];
	ssize_t n;

	if (top && strstr(name, "rbw/blk_")) {
		(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
		n = readlink(link, path, sizeof(path));
		if (n > (ssize_t)strlen(top) && !strncmp(path, top, strlen(top))) {
			atomic_fetch_add(&stalled, 1);
			while (atomic_load(&hung))
				(void)nanosleep(&(struct timespec){0, 1000000}, NULL);
		}
	}
	return __real_fstatat64(dir, name, st, flags);
}

static int setup(void **state)
{
	struct fix *f = calloc(1, sizeof(*f));

	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/nn_test.XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	for (int i = 0; i < 2; i++)
		(void)snprintf(f->path[i], sizeof(f->path[i]), "%s/dn%d", f->dir, i);
	f->volumes = 1;
	f->nn.cluster = "CID-1";
	assert_int_equal(net_resolve("127.0.0.1", 0, &f->nn.addr, NULL), 0);
	fake_start(&f->nn);
	transfers_seen = keys_seen = 0;
	f->outliers = outliers_new();
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fix *f = *state;
	char cmd[128];

	hung = NULL;
	if (f->conf)
		node_stop(f);
	fake_stop(&f->nn);
	fake_stop(&f->nn2);
	outliers_free(f->outliers);
	(void)snprintf(cmd, sizeof(cmd), "rm -rf %s", f->dir);
	assert_int_equal(system(cmd), 0);
	free(f);
	return 0;
}

static void second_namenode(struct fix *f)
{
	f->nn2.cluster = "CID-1";
	assert_int_equal(net_resolve("127.0.0.1", 0, &f->nn2.addr, NULL), 0);
	fake_start(&f->nn2);
}

/* Wait until @cond holds. */
#define eventually(cond)                                                                           \
	do {                                                                                       \
		uint64_t end_ = clock_mono_ns() + WAIT_MS * NS_PER_MS;                             \
		while (!(cond) && clock_mono_ns() < end_)                                          \
			nanosleep(&(struct timespec){0, 1000000}, NULL);                           \
		assert_true(cond);                                                                 \
	} while (0)

static struct block_pool *pool_of(struct fix *f)
{
	struct block_pool *bp = dn_pool(&f->dn, POOL);

	assert_non_null(bp);
	return bp;
}

static struct replica_writer *write_block(struct fix *f, int64_t id)
{
	struct write_request q = {.block = {id, 1001, 1 << 20},
				  .stage = STAGE_CREATE,
				  .from_client = true,
				  .crc_type = CRC_CRC32C,
				  .bytes_per_crc = 512,
				  .storage_type = STORAGE_DISK};
	struct replica_writer *w = NULL;
	uint8_t crc[4];

	assert_int_equal(replica_write_open(pool_of(f), &q, &w, &f->err), 0);
	crc_chunks(CRC_CRC32C, "hello", 5, 512, crc);
	assert_int_equal(pwrite(w->fd, "hello", 5, 0), 5);
	assert_int_equal(pwrite(w->fd_meta, crc, 4, 7), 4);
	replica_publish(w, 5, 5, 5, 0);
	return w;
}

static void make_block(struct fix *f, int64_t id)
{
	assert_int_equal(replica_finalize(write_block(f, id), 5, SYNC_NEVER, NULL, &f->err), 0);
}

static void up(struct fix *f)
{
	node_start(f);
	assert_int_equal(bp_wait_registered(f->set, WAIT_MS, &f->err), 0);
	eventually(f->nn.fulls == 1);
}

/* ---- tests ---- */

static void a_node_registers_beats_and_reports_under_a_lease(void **state)
{
	struct fix *f = *state;

	up(f);
	eventually(f->nn.beats > 3);
	assert_int_equal(f->nn.registrations, 1);
	assert_int_equal(f->nn.storages, 1);
	assert_int_equal(f->nn.last_lease, 4711);
	assert_int_equal(f->nn.last_replicas, 0);
}

static void a_finished_block_is_reported_at_once_and_a_deleted_one_soon(void **state)
{
	struct fix *f = *state;
	struct block b = {5, 1001, 5};

	up(f);
	make_block(f, 5);
	eventually(f->nn.received == 1);
	assert_int_equal(replica_invalidate(pool_of(f), &b, false), 0);
	eventually(f->nn.deleted == 1);
}

/* A NameNode that looks at groups only would take the second unit for deleted, too. */
static void a_deleted_unit_takes_no_other_one_along(void **state)
{
	struct fix *f = *state;
	struct block b = {ec_id_of(EC_GROUP_ID_FIRST, 6), 1001, 5};

	up(f);
	make_block(f, b.id);
	make_block(f, ec_id_of(EC_GROUP_ID_FIRST, 3));
	make_block(f, ec_id_of(EC_GROUP_ID_FIRST + EC_UNITS_MAX, 3)); /* another group */
	eventually(f->nn.received == 3);
	assert_int_equal(replica_invalidate(pool_of(f), &b, false), 0);
	eventually(f->nn.deleted == 1 && f->nn.received == 4);
	assert_true(f->nn.last_told == ec_id_of(EC_GROUP_ID_FIRST, 3));
}

static void a_restarted_namenode_gets_a_registration_and_a_full_report(void **state)
{
	struct fix *f = *state;

	up(f);
	make_block(f, 5);
	eventually(f->nn.received == 1);
	f->nn.ask_register = true;
	eventually(f->nn.registrations == 2 && f->nn.fulls == 2);
	assert_int_equal(f->nn.last_replicas, 1);
	assert_int_equal(f->nn.versions, 2);
}

static void events_during_an_absence_are_told_after_it(void **state)
{
	struct fix *f = *state;
	int beats;

	up(f);
	fake_stop(&f->nn);
	make_block(f, 5);
	make_block(f, 6);
	nanosleep(&(struct timespec){0, 200000000}, NULL);
	beats = f->nn.beats;
	fake_start(&f->nn);
	eventually(f->nn.beats > beats && f->nn.received == 2);
}

static void a_replica_whose_writer_left_is_not_reported_as_being_received(void **state)
{
	struct fix *f = *state;
	struct replica_writer *w;
	int beats;

	up(f);
	fake_stop(&f->nn);
	replica_write_close(write_block(f, 5), false);
	replica_write_close(write_block(f, 6), true);
	make_block(f, 7);
	w = write_block(f, 8);
	fake_start(&f->nn);
	eventually(f->nn.received == 1 && f->nn.receiving > 0);
	beats = f->nn.beats;
	eventually(f->nn.beats > beats + 1);
	assert_int_equal(f->nn.receiving, 1);
	replica_write_close(w, false);
}

static void without_the_capability_the_report_is_a_long_list(void **state)
{
	struct fix *f = *state;

	f->nn.no_buffers = true;
	up(f);
	make_block(f, 5);
	replica_write_close(write_block(f, 6), false);
	assert_int_equal(bp_trigger_report(f->set, false, NULL, &f->err), 0);
	eventually(f->nn.fulls == 2);
	assert_int_equal(f->nn.last_replicas, 2);
	assert_int_equal(f->nn.last_finalized, 1);
	assert_int_equal(f->nn.last_lease, 0); /* triggered by hand: none */
}

static void directories_of_another_cluster_end_it_with_the_reason(void **state)
{
	struct fix *f = *state;

	up(f);
	node_stop(f);
	f->nn.cluster = "CID-2";
	node_start(f);
	assert_int_equal(bp_wait_registered(f->set, WAIT_MS, &f->err), -EINVAL);
	assert_non_null(strstr(f->err.text, "CID-1"));
	assert_non_null(strstr(f->err.text, "CID-2"));
	assert_true(bp_is_dead(f->set, &f->err));
}

static void one_that_does_not_admit_us_may_yet(void **state)
{
	struct fix *f = *state;

	f->nn.refuse = JEX_DISALLOWED_NODE;
	node_start(f);
	eventually(bp_wait_registered(f->set, 10, &f->err) == -ETIMEDOUT &&
		   strstr(f->err.text, "dfs.hosts"));
	assert_non_null(strstr(f->err.text, "you may not"));
	assert_false(bp_is_dead(f->set, &f->err));
}

static void a_refusal_of_a_node_that_served_is_final(void **state)
{
	struct fix *f = *state;

	up(f);
	f->nn.beat_throws = JEX_UNREGISTERED_NODE;
	eventually(bp_is_dead(f->set, &f->err));
	assert_non_null(strstr(f->err.text, "formatted anew"));
	assert_non_null(strstr(f->err.text, "another namespace"));
}

static void invalidate(struct fix *f, int64_t id, uint64_t len, bool wait_taken)
{
	Hdd__DatanodeCommandProto cmd = HDD__DATANODE_COMMAND_PROTO__INIT;
	Hdd__BlockCommandProto bc = HDD__BLOCK_COMMAND_PROTO__INIT;
	Hd__BlockProto b = HD__BLOCK_PROTO__INIT, *list = &b;

	b.blockid = (uint64_t)id;
	b.genstamp = 1001;
	b.has_numbytes = true;
	b.numbytes = len;
	bc.action = HDD__BLOCK_COMMAND_PROTO__ACTION__INVALIDATE;
	bc.blockpoolid = (char *)POOL;
	bc.n_blocks = 1;
	bc.blocks = &list;
	cmd.cmdtype = HDD__DATANODE_COMMAND_PROTO__TYPE__BlockCommand;
	cmd.blkcmd = &bc;
	f->nn.command = &cmd;
	if (wait_taken) {
		int beats;

		eventually(!f->nn.command);
		beats = f->nn.beats;
		eventually(f->nn.beats > beats + 1); /* the answer with it has been sent */
	}
}

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

static void a_standby_is_not_obeyed(void **state)
{
	struct fix *f = *state;
	struct replica_info i;

	f->nn.standby = true;
	up(f);
	make_block(f, 5);
	invalidate(f, 5, 5, true);
	assert_int_equal(replica_get(pool_of(f), 5, &i), 0);
}

static void a_transfer_names_the_target_and_its_storage(void **state)
{
	Hdd__DatanodeCommandProto cmd = HDD__DATANODE_COMMAND_PROTO__INIT;
	Hdd__BlockCommandProto bc = HDD__BLOCK_COMMAND_PROTO__INIT;
	Hd__BlockProto b[2] = {HD__BLOCK_PROTO__INIT, HD__BLOCK_PROTO__INIT},
		       *list[2] = {&b[0], &b[1]};
	Hd__DatanodeInfosProto infos = HD__DATANODE_INFOS_PROTO__INIT,
			       *targets[2] = {&infos, &infos};
	Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT, *dns = &info;
	Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;
	Hd__StorageUuidsProto uuids = HD__STORAGE_UUIDS_PROTO__INIT,
			      *uuid_lists[2] = {&uuids, &uuids};
	char *uuid = (char *)"DS-there";
	struct fix *f = *state;

	up(f);
	make_block(f, 5);
	id.ipaddr = (char *)"127.0.0.9";
	id.hostname = (char *)"there";
	id.datanodeuuid = (char *)"u";
	id.xferport = 9866;
	info.id = &id;
	infos.n_datanodes = 1;
	infos.datanodes = &dns;
	uuids.n_storageuuids = 1;
	uuids.storageuuids = &uuid;
	for (int i = 0; i < 2; i++) {
		b[i].blockid = (uint64_t)(5 + i); /* 6 is not here */
		b[i].genstamp = 1001;
	}
	bc.action = HDD__BLOCK_COMMAND_PROTO__ACTION__TRANSFER;
	bc.blockpoolid = (char *)POOL;
	bc.n_blocks = bc.n_targets = bc.n_targetstorageuuids = 2;
	bc.blocks = list;
	bc.targets = targets;
	bc.targetstorageuuids = uuid_lists;
	cmd.cmdtype = HDD__DATANODE_COMMAND_PROTO__TYPE__BlockCommand;
	cmd.blkcmd = &bc;
	f->nn.command = &cmd;
	eventually(transfers_seen == 1 && f->nn.errors == 1);
}

static void a_lone_primary_recovers_its_block_and_commits(void **state)
{
	Hdd__DatanodeCommandProto cmd = HDD__DATANODE_COMMAND_PROTO__INIT;
	Hdd__BlockRecoveryCommandProto rc = HDD__BLOCK_RECOVERY_COMMAND_PROTO__INIT;
	Hd__RecoveringBlockProto rb = HD__RECOVERING_BLOCK_PROTO__INIT, *list = &rb;
	Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	Hd__ExtendedBlockProto eb = HD__EXTENDED_BLOCK_PROTO__INIT;
	Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT, mute = info;
	Hd__DatanodeInfoProto *locs[] = {&info, &mute, &info, &info, &info};
	Hd__ErasureCodingPolicyProto policy = HD__ERASURE_CODING_POLICY_PROTO__INIT;
	Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT, mute_id = id;
	Hc__TokenProto token = HC__TOKEN_PROTO__INIT;
	struct fix *f = *state;
	struct replica_info i;
	int beats;

	up(f);
	replica_write_close(write_block(f, 5), false);
	id.ipaddr = (char *)"127.0.0.1";
	id.hostname = (char *)"localhost";
	id.datanodeuuid = (char *)store_datanode_uuid(f->dn.store);
	info.id = &id;
	mute_id.ipaddr = id.ipaddr;
	mute_id.hostname = id.hostname;
	mute_id.datanodeuuid = (char *)"another";
	mute_id.ipcport = 1; /* nobody listens */
	mute.id = &mute_id;
	eb.poolid = (char *)POOL;
	eb.blockid = 5;
	eb.generationstamp = 1001;
	token.kind = token.service = (char *)"";
	lb.b = &eb;
	lb.blocktoken = &token;
	lb.n_locs = 1;
	lb.locs = locs;
	rb.newgenstamp = 1010;
	rb.block = &lb;
	rc.n_blocks = 1;
	rc.blocks = &list;
	cmd.cmdtype = HDD__DATANODE_COMMAND_PROTO__TYPE__BlockRecoveryCommand;
	cmd.recoverycmd = &rc;
	f->nn.command = &cmd;
	eventually(f->nn.commits == 1 && f->nn.received == 1);
	assert_int_equal(f->nn.commit_len, 5);
	assert_int_equal(f->nn.commit_gs, 1010);
	assert_int_equal(f->nn.commit_nodes, 1);
	assert_int_equal(f->nn.last_received_gs, 1010);
	assert_int_equal(replica_get(pool_of(f), 5, &i), 0);
	assert_int_equal(i.state, REPLICA_FINALIZED);
	/* Nothing of a block that nobody has: the NameNode is to drop it. */
	eb.blockid = 77;
	f->nn.command = &cmd;
	eventually(f->nn.commits == 2);
	assert_int_equal(f->nn.commit_nodes, 0);
	/* Who does not answer may have it: the order comes again. */
	eb.blockid = 78;
	lb.n_locs = 2;
	f->nn.command = &cmd;
	eventually(!f->nn.command);
	beats = f->nn.beats;
	eventually(f->nn.beats > beats + 1);
	nanosleep(&(struct timespec){0, 300000000}, NULL);
	assert_int_equal(f->nn.commits, 2);
	/* So it is with a block group. */
	eb.blockid = (uint64_t)-1600;
	policy.id = EC_ID_RS_3_2;
	rb.ecpolicy = &policy;
	rb.has_blockindices = true;
	rb.blockindices = (ProtobufCBinaryData){5, (uint8_t *)"\0\1\2\3\4"};
	lb.n_locs = 5;
	f->nn.command = &cmd;
	eventually(!f->nn.command);
	beats = f->nn.beats;
	eventually(f->nn.beats > beats + 1);
	nanosleep(&(struct timespec){0, 300000000}, NULL);
	assert_int_equal(f->nn.commits, 2);
	locs[1] = &info;
	f->nn.command = &cmd;
	eventually(f->nn.commits == 3);
	assert_int_equal(f->nn.commit_nodes, 0);
}

/* Its primary recoveries, however many, leave places for those of the other one. */
static void recoveries_on_a_disk_that_hangs_hold_up_no_other_ones(void **state)
{
	enum { BLOCKS = 4 * NN_RECOVERIES_MAX };
	Hdd__DatanodeCommandProto cmd = HDD__DATANODE_COMMAND_PROTO__INIT, cmd2;
	Hdd__BlockRecoveryCommandProto rc = HDD__BLOCK_RECOVERY_COMMAND_PROTO__INIT, rc2;
	Hd__RecoveringBlockProto rb[BLOCKS], *of[2][BLOCKS];
	Hd__LocatedBlockProto lb[BLOCKS];
	Hd__ExtendedBlockProto eb[BLOCKS];
	Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT, *locs[] = {&info};
	Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;
	Hc__TokenProto token = HC__TOKEN_PROTO__INIT;
	struct fix *f = *state;
	uint32_t count[2] = {0};

	f->volumes = 2;
	up(f);
	id.ipaddr = (char *)"127.0.0.1";
	id.hostname = (char *)"localhost";
	id.datanodeuuid = (char *)store_datanode_uuid(f->dn.store);
	info.id = &id;
	token.kind = token.service = (char *)"";
	for (int64_t i = 0; i < BLOCKS; i++) {
		replica_write_close(write_block(f, 100 + i), false);
		hd__extended_block_proto__init(&eb[i]);
		eb[i].poolid = (char *)POOL;
		eb[i].blockid = (uint64_t)(100 + i);
		eb[i].generationstamp = 1001;
		hd__located_block_proto__init(&lb[i]);
		lb[i].b = &eb[i];
		lb[i].blocktoken = &token;
		lb[i].n_locs = 1;
		lb[i].locs = locs;
		hd__recovering_block_proto__init(&rb[i]);
		rb[i].newgenstamp = 1010;
		rb[i].block = &lb[i];
		of[replica_volume(pool_of(f), 100 + i)]
		  [count[replica_volume(pool_of(f), 100 + i)]++] = &rb[i];
	}
	assert_true(count[0] > NN_RECOVERIES_MAX && count[1]);
	stalled = 0;
	hung = f->path[0];
	cmd.cmdtype = HDD__DATANODE_COMMAND_PROTO__TYPE__BlockRecoveryCommand;
	cmd.recoverycmd = &rc;
	rc.n_blocks = count[0];
	rc.blocks = of[0];
	f->nn.command = &cmd;
	eventually(stalled == NN_RECOVERIES_MAX);
	eventually(store_is_stuck(f->dn.store));
	rc2 = rc;
	rc2.n_blocks = 1;
	rc2.blocks = of[1];
	cmd2 = cmd;
	cmd2.recoverycmd = &rc2;
	f->nn.command = &cmd2;
	eventually(f->nn.commits == 1);
	hung = NULL;
	eventually(f->nn.commits == 1 + NN_RECOVERIES_MAX);
}

static void a_failed_volume_and_a_corrupt_replica_are_reported(void **state)
{
	struct fix *f = *state;
	struct storage_info s;
	struct block b = {5, 1001, 5};
	char cmd[256];

	f->volumes = 2;
	up(f);
	eventually(f->nn.storages == 2);
	make_block(f, 5);
	bp_report_bad(f->set, pool_of(f), "DS-x", &b);
	eventually(f->nn.bad == 1);
	store_volume_info(f->dn.store, 0, pool_of(f), &s);
	(void)snprintf(cmd, sizeof(cmd), "mv %s/current %s/gone", f->path[0], f->path[0]);
	assert_int_equal(system(cmd), 0);
	store_volume_suspect(f->dn.store, s.uuid);
	eventually(f->nn.storages == 1 && f->nn.failed == 1 && f->nn.errors == 1);
}

static void addresses_come_from_name_services_first(void **state)
{
	struct conf *c = conf_new();
	struct nn_addr a[4];
	struct err err = ERR_INIT;
	uint32_t n = 0;

	(void)state;
	assert_int_equal(nn_addrs(c, a, 4, &n, &err), -EINVAL); /* the default is for clients */
	assert_non_null(strstr(err.text, "no NameNode is configured"));
	assert_int_equal(conf_set(c, "dfs.namenode.rpc-address", "two:9001"), 0);
	assert_int_equal(nn_addrs(c, a, 4, &n, &err), 0);
	assert_string_equal(a[0].text, "two:9001");
	assert_int_equal(conf_set(c, "dfs.namenode.rpc-address", ""), 0);
	assert_int_equal(conf_set(c, "fs.defaultFS", "hdfs://one:9000"), 0);
	assert_int_equal(nn_addrs(c, a, 4, &n, &err), 0);
	assert_int_equal(n, 1);
	assert_string_equal(a[0].text, "one:9000");
	assert_int_equal(conf_set(c, "dfs.nameservices", "ns1"), 0);
	assert_int_equal(nn_addrs(c, a, 4, &n, &err), -EINVAL);
	assert_non_null(strstr(err.text, "ns1"));
	assert_int_equal(conf_set(c, "dfs.ha.namenodes.ns1", "a,b"), 0);
	assert_int_equal(conf_set(c, "dfs.namenode.rpc-address.ns1.a", "h1:8020"), 0);
	assert_int_equal(conf_set(c, "dfs.namenode.rpc-address.ns1.b", "h2:8020"), 0);
	assert_int_equal(conf_set(c, "dfs.namenode.servicerpc-address.ns1.b", "h2:8021"), 0);
	assert_int_equal(nn_addrs(c, a, 4, &n, &err), 0);
	assert_int_equal(n, 2);
	assert_string_equal(a[0].text, "h1:8020");
	assert_string_equal(a[1].text, "h2:8021");
	conf_free(c);
}

/* An order to delete block @id, as the fake gives it. */
struct delete_order {
	Hdd__DatanodeCommandProto cmd;
	Hdd__BlockCommandProto bc;
	Hd__BlockProto b, *list;
};

static Hdd__DatanodeCommandProto *delete_order(struct delete_order *o, int64_t id)
{
	hdd__datanode_command_proto__init(&o->cmd);
	hdd__block_command_proto__init(&o->bc);
	hd__block_proto__init(&o->b);
	o->b.blockid = (uint64_t)id;
	o->b.genstamp = 1001;
	o->list = &o->b;
	o->bc.action = HDD__BLOCK_COMMAND_PROTO__ACTION__INVALIDATE;
	o->bc.blockpoolid = (char *)POOL;
	o->bc.n_blocks = 1;
	o->bc.blocks = &o->list;
	o->cmd.cmdtype = HDD__DATANODE_COMMAND_PROTO__TYPE__BlockCommand;
	o->cmd.blkcmd = &o->bc;
	return &o->cmd;
}

static bool has_block(struct fix *f, int64_t id)
{
	struct replica_info i;

	return !replica_get(pool_of(f), id, &i);
}

static void both_up(struct fix *f)
{
	f->nn2.standby = true;
	second_namenode(f);
	up(f);
	eventually(f->nn2.registrations == 1 && f->nn2.fulls == 1 && f->nn2.beats > 1);
}

static void of_a_pair_only_the_newest_claim_is_obeyed(void **state)
{
	struct fix *f = *state;
	struct delete_order o;
	int seen;

	both_up(f);
	make_block(f, 5);
	make_block(f, 6);
	eventually(f->nn.received == 2 && f->nn2.received == 2); /* both hear of blocks */
	f->nn2.command = delete_order(&o, 5);
	eventually(!f->nn2.command);
	seen = f->nn2.beats;
	eventually(f->nn2.beats > seen + 2);
	assert_true(has_block(f, 5)); /* a standby's order */
	f->nn2.txid = 9;
	f->nn2.standby = false;
	seen = f->nn2.beats;
	eventually(f->nn2.beats > seen + 1);
	f->nn2.command = delete_order(&o, 5);
	eventually(!has_block(f, 5));
	/* The old one still believes that it leads. */
	f->nn.command = delete_order(&o, 6);
	eventually(!f->nn.command);
	seen = f->nn.beats;
	eventually(f->nn.beats > seen + 2);
	assert_true(has_block(f, 6));
}

static void keys_are_taken_from_a_standby_too(void **state)
{
	struct fix *f = *state;
	Hdd__DatanodeCommandProto cmd = HDD__DATANODE_COMMAND_PROTO__INIT;
	Hdd__KeyUpdateCommandProto ku = HDD__KEY_UPDATE_COMMAND_PROTO__INIT;
	Hd__ExportedBlockKeysProto keys = HD__EXPORTED_BLOCK_KEYS_PROTO__INIT;
	Hd__BlockKeyProto key = HD__BLOCK_KEY_PROTO__INIT;

	keys.isblocktokenenabled = true;
	keys.currentkey = &key;
	ku.keys = &keys;
	cmd.cmdtype = HDD__DATANODE_COMMAND_PROTO__TYPE__KeyUpdateCommand;
	cmd.keyupdatecmd = &ku;
	both_up(f);
	f->nn2.command = &cmd;
	eventually(keys_seen == 1);
}

static void a_namenode_of_another_pool_is_not_served_beside_the_first(void **state)
{
	struct fix *f = *state;

	f->nn2.pool = "BP-2-127.0.0.1-2";
	second_namenode(f);
	node_start(f);
	assert_int_equal(bp_wait_registered(f->set, WAIT_MS, &f->err), 0);
	eventually(f->nn.versions > 0 && f->nn2.versions > 0);
	nanosleep(&(struct timespec){0, 200000000}, NULL);
	/* Whichever came first. */
	assert_int_equal(f->nn.registrations + f->nn2.registrations, 1);
	assert_true(!dn_pool(&f->dn, POOL) != !dn_pool(&f->dn, "BP-2-127.0.0.1-2"));
}

static void a_namenode_formatted_anew_is_not_served_and_nothing_is_deleted(void **state)
{
	struct fix *f = *state;
	int versions, registrations;

	up(f);
	make_block(f, 5);
	eventually(f->nn.received == 1);
	f->nn.pool = "BP-3-127.0.0.1-3";
	versions = f->nn.versions;
	registrations = f->nn.registrations;
	f->nn.ask_register = true;
	eventually(f->nn.versions > versions);
	nanosleep(&(struct timespec){0, 200000000}, NULL);
	assert_int_equal(f->nn.registrations, registrations);
	assert_null(dn_pool(&f->dn, "BP-3-127.0.0.1-3"));
	assert_true(has_block(f, 5));
	assert_false(bp_is_dead(f->set, &f->err)); /* the right one may come back */
	f->nn.pool = NULL;
	eventually(f->nn.registrations > registrations);
	assert_true(has_block(f, 5));
}

static void incremental_reports_are_gathered_for_their_interval(void **state)
{
	struct fix *f = *state;
	uint64_t start;

	f->conf_set[0][0] = "dfs.blockreport.incremental.intervalMsec";
	f->conf_set[0][1] = "3000";
	up(f);
	make_block(f, 5); /* the first one goes at once */
	eventually(f->nn.received == 1);
	start = clock_mono_ns();
	make_block(f, 6);
	make_block(f, 7);
	eventually(f->nn.received == 3);
	/* we may have seen the first one late */
	assert_true(clock_mono_ns() - start >= 500 * NS_PER_MS);
}

static void above_the_threshold_each_storage_is_reported_by_itself(void **state)
{
	struct fix *f = *state;

	f->volumes = 2;
	f->conf_set[0][0] = "dfs.blockreport.split.threshold";
	f->conf_set[0][1] = "0";
	up(f); /* nothing there yet: 0 is not above 0 */
	make_block(f, 5);
	make_block(f, 6);
	assert_int_equal(bp_trigger_report(f->set, false, NULL, &f->err), 0);
	eventually(f->nn.fulls == 3);
	assert_int_equal(f->nn.last_rpcs, 2);
}

static void an_old_namenode_is_refused_with_the_cure(void **state)
{
	struct fix *f = *state;

	f->nn.version = "2.0.6-alpha";
	node_start(f);
	assert_int_equal(bp_wait_registered(f->set, WAIT_MS, &f->err), -EINVAL);
	assert_non_null(strstr(f->err.text, "2.0.6-alpha"));
	assert_non_null(strstr(f->err.text, "upgrade the NameNode"));
	assert_int_equal(f->nn.registrations, 0);
}

static void versions_are_compared_by_their_numbers(void **state)
{
	struct fix *f = *state;

	f->nn.version = "10.0.0-SNAPSHOT";
	up(f);
	assert_int_equal(f->nn.fulls, 1);
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

static void lifelines_go_out_when_heartbeats_do_not_get_through(void **state)
{
	struct fix *f = *state;
	char text[NET_TEXT_MAX];

	f->conf_set[0][0] = "dfs.namenode.lifeline.rpc-address";
	f->conf_set[0][1] = net_text(&f->nn.addr, text);
	f->conf_set[1][0] = "dfs.datanode.lifeline.interval.seconds";
	f->conf_set[1][1] = "1";
	up(f);
	nanosleep(&(struct timespec){0, 300000000}, NULL);
	assert_int_equal(f->nn.lifelines, 0);
	f->nn.beat_throws = "org.apache.hadoop.ipc.RetriableException";
	eventually(f->nn.lifelines >= 1);
}

static void slow_peers_and_disks_ride_in_a_heartbeat(void **state)
{
	struct fix *f = *state;
	char name[32];

	for (int i = 0; i < 10; i++) {
		(void)snprintf(name, sizeof(name), "10.0.0.%d:9864", i);
		outliers_add(f->outliers, OUTLIER_PEER, name, (i ? 2000 : 200000) * NS_PER_MS,
			     1000);
		outliers_add(f->outliers, OUTLIER_DISK_READ, name, (i ? 2 : 900) * NS_PER_MS, 1);
		outliers_add(f->outliers, OUTLIER_DISK_WRITE, name, (i ? 2 : 900) * NS_PER_MS, 1);
	}
	up(f);
	eventually(f->nn.beats > 3);
	assert_int_equal(f->nn.slow_peers + f->nn.slow_disks, 0); /* not asked for */
	f->dn.live.peer_stats = 1;
	f->dn.live.io_sampling_percent = 1;
	eventually(f->nn.slow_peers == 1 && f->nn.slow_disks == 1);
	eventually(f->nn.beats > 8);
	assert_int_equal(f->nn.slow_peers, 1); /* once in the interval */
}

static int count_files(const char *dir, const char *name)
{
	char cmd[256], out[16] = "";
	FILE *p;

	(void)snprintf(cmd, sizeof(cmd), "find %s -name '%s' | wc -l", dir, name);
	p = popen(cmd, "r");
	assert_non_null(p);
	assert_non_null(fgets(out, sizeof(out), p));
	(void)pclose(p);
	return (int)strtol(out, NULL, 10);
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
}

static void namenodes_come_and_go_while_it_runs(void **state)
{
	struct fix *f = *state;
	struct conf *other = conf_new();
	struct delete_order o;
	char text[NET_TEXT_MAX];
	int beats;

	up(f);
	f->nn2.pool = "BP-9-127.0.0.1-9"; /* a name service of its own */
	second_namenode(f);
	assert_int_equal(conf_set(other, "dfs.nameservices", "x"), 0);
	assert_int_equal(
		conf_set(other, "dfs.namenode.rpc-address.x", net_text(&f->nn2.addr, text)), 0);
	assert_int_equal(bp_refresh(f->set, other, &f->err), 0);
	eventually(f->nn2.fulls == 1);
	assert_true(bp_serves_pool(f->set, "BP-9-127.0.0.1-9"));
	assert_false(bp_serves_pool(f->set, POOL));
	beats = f->nn.beats;
	nanosleep(&(struct timespec){0, 200000000}, NULL);
	assert_int_equal(f->nn.beats, beats);                    /* left */
	assert_int_equal(bp_refresh(f->set, other, &f->err), 0); /* nothing changes */
	assert_int_equal(f->nn2.registrations, 1);
	assert_int_equal(bp_refresh(f->set, f->conf, &f->err), 0);
	eventually(f->nn.registrations == 2);
	make_block(f, 5);
	f->nn.command = delete_order(&o, 5); /* it leads again, with the transaction of before */
	eventually(!has_block(f, 5));
	assert_int_equal(conf_set(other, "dfs.nameservices", "y"), 0);
	/* no address: stays as it is */
	assert_int_equal(bp_refresh(f->set, other, &f->err), -EINVAL);
	assert_true(bp_serves_pool(f->set, POOL));
	conf_free(other);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_node_registers_beats_and_reports_under_a_lease),
		T(a_finished_block_is_reported_at_once_and_a_deleted_one_soon),
		T(a_deleted_unit_takes_no_other_one_along),
		T(a_restarted_namenode_gets_a_registration_and_a_full_report),
		T(events_during_an_absence_are_told_after_it),
		T(a_replica_whose_writer_left_is_not_reported_as_being_received),
		T(without_the_capability_the_report_is_a_long_list),
		T(directories_of_another_cluster_end_it_with_the_reason),
		T(one_that_does_not_admit_us_may_yet),
		T(a_refusal_of_a_node_that_served_is_final),
		T(invalidate_deletes_and_long_max_stays_quiet),
		T(a_standby_is_not_obeyed),
		T(a_transfer_names_the_target_and_its_storage),
		T(a_lone_primary_recovers_its_block_and_commits),
		T(recoveries_on_a_disk_that_hangs_hold_up_no_other_ones),
		T(a_failed_volume_and_a_corrupt_replica_are_reported),
		T(of_a_pair_only_the_newest_claim_is_obeyed),
		T(keys_are_taken_from_a_standby_too),
		T(a_namenode_of_another_pool_is_not_served_beside_the_first),
		T(a_namenode_formatted_anew_is_not_served_and_nothing_is_deleted),
		T(incremental_reports_are_gathered_for_their_interval),
		T(above_the_threshold_each_storage_is_reported_by_itself),
		T(an_old_namenode_is_refused_with_the_cure),
		T(versions_are_compared_by_their_numbers),
		T(an_unknown_command_is_passed_over),
		T(an_exception_in_place_of_an_answer_is_outlived),
		T(lifelines_go_out_when_heartbeats_do_not_get_through),
		T(slow_peers_and_disks_ride_in_a_heartbeat),
		T(a_rolling_upgrade_keeps_what_is_deleted_until_it_is_finalised),
		T(an_ordered_replica_is_locked_reported_and_let_go),
		T(namenodes_come_and_go_while_it_runs),
		cmocka_unit_test(addresses_come_from_name_services_first),
	};

	log_init("nn_test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
