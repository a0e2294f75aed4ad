/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: bp_test_fixture - what the tests of the block pool service share: a scripted NameNode
 * on a real socket, and the part of a data node that it talks to
 *
 * Included by one test program each, which owns what is static here.
 */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "datanode/admin/outliers.h"
#include "datanode/bp/bp_internal.h"
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
	const char *conf_set[5][2]; /* beside the usual */
	struct dn dn;
	struct conf *conf;
	struct bp_set *set;
	struct err err;
};

/* Both NameNodes, when the second one runs, under one name service. */
static inline void set_pair(struct fix *f)
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

static inline void node_start(struct fix *f)
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
	for (int i = 0; i < 5 && f->conf_set[i][0]; i++)
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

static inline void node_stop(struct fix *f)
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

static inline int setup(void **state)
{
	struct fix *f = calloc(1, sizeof(*f));

	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/bp_test.XXXXXX");
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

static inline int teardown(void **state)
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

/* Wait until @cond holds. */
#define eventually(cond)                                                                           \
	do {                                                                                       \
		uint64_t end_ = clock_mono_ns() + WAIT_MS * NS_PER_MS;                             \
		while (!(cond) && clock_mono_ns() < end_)                                          \
			nanosleep(&(struct timespec){0, 1000000}, NULL);                           \
		assert_true(cond);                                                                 \
	} while (0)

static inline struct block_pool *pool_of(struct fix *f)
{
	struct block_pool *bp = dn_pool(&f->dn, POOL);

	assert_non_null(bp);
	return bp;
}

static inline struct replica_writer *write_block(struct fix *f, int64_t id)
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

static inline void make_block(struct fix *f, int64_t id)
{
	assert_int_equal(replica_finalize(write_block(f, id), 5, SYNC_NEVER, NULL, &f->err), 0);
}

static inline void up(struct fix *f)
{
	node_start(f);
	assert_int_equal(bp_wait_registered(f->set, WAIT_MS, &f->err), 0);
	eventually(f->nn.fulls == 1);
}

static inline void invalidate(struct fix *f, int64_t id, uint64_t len, bool wait_taken)
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

/* An order to delete block @id, as the fake gives it. */
struct delete_order {
	Hdd__DatanodeCommandProto cmd;
	Hdd__BlockCommandProto bc;
	Hd__BlockProto b, *list;
};

static inline Hdd__DatanodeCommandProto *delete_order(struct delete_order *o, int64_t id)
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

static inline bool has_block(struct fix *f, int64_t id)
{
	struct replica_info i;

	return !replica_get(pool_of(f), id, &i);
}

/* Below the directory @dir. */
static inline int count_files(const char *dir, const char *name)
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

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
