/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: redundancy_monitor_test_fixture - what the tests of the NameNode's own work share: a
 * NameNode without its threads, with nodes, two files and blocks; a clock that goes on at every
 * look; a database whose reads are counted and can be made to fail
 *
 * Included by one test program each, which owns what is static here.
 */
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
#include "namenode-shim/blocks/redundancy_monitor.h"
#include "namenode-shim/namespace/inode.h"
#include "namenode-shim/namespace/storage_policy.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"
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

static inline void on_read(void)
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

static inline uint64_t put_file(struct ns *n, const char *name, struct inode_block *b,
				uint32_t blocks)
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
static inline void make_files(struct world *w)
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
static inline void start(struct world *w)
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
static inline void world_init(struct world *w, const char *racks)
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
static inline void stop(struct world *w)
{
	struct list batch = LIST_INIT(batch), *l;

	(void)commit_queue_take(&w->nn->commit_queue, 0, &batch);
	while ((l = list_pop(&batch)))
		req_finish(container_of(l, struct req, link));
	nn_free(w->nn);
}

static inline void world_fini(struct world *w)
{
	clock_step_ns = 0;
	watched = NULL;
	stop(w);
	conf_free(w->conf);
	test_db_fini(&w->d);
}

/* A block of @repl replicas, with one on each node of @nodes. */
static inline struct blk *add(struct world *w, uint16_t repl, const char *nodes)
{
	const struct block b = {w->next_id++, 1005, LEN};
	struct blk *ret = blocks_add(&w->nn->blocks, &b, w->plain, repl, BLK_COMPLETE);

	for (; *nodes; nodes++)
		blocks_report(&w->nn->blocks, w->st[*nodes - '0'], &b, REPLICA_FINALIZED, false, 0);
	return ret;
}

/* RS-3-2 on as many nodes as it can be read with. */
static inline struct blk *add_group(struct world *w, int64_t nth)
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
static inline uint32_t look(struct world *w)
{
	uint32_t slices = 0;

	w->nn->next_redundancy_ns = 0;
	monitor_tick(w->nn);
	for (; monitor_is_ordering(w->nn); slices++)
		monitor_order(w->nn);
	return slices;
}

/* The same world under @key = @value: nothing has reported. */
static inline void configure(struct world *w, const char *key, const char *value)
{
	conf_set(w->conf, key, value);
	stop(w);
	start(w);
}

static inline uint32_t ordered(const struct world *w, uint32_t node)
{
	return list_length(&w->dn[node]->transfers);
}

static inline uint32_t all_ordered(const struct world *w)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < w->nodes; i++)
		sum += ordered(w, i);
	return sum;
}

/* Block @nth of the file on each node of @nodes. */
static inline struct blk *put_block(struct world *w, int64_t nth, const char *nodes)
{
	const struct block b = {w->first.id + nth, w->first.gs, LEN};

	for (; *nodes; nodes++)
		blocks_report(&w->nn->blocks, w->st[*nodes - '0'], &b, REPLICA_FINALIZED, false, 0);
	return blocks_find(&w->nn->blocks, b.id);
}

static inline struct ns *begin_change(struct world *w)
{
	w->d.db = w->nn->db;
	return test_begin(&w->d, "root");
}

/* What the writer's thread would do with it. */
static inline int change(struct world *w, const struct method *m, const void *in, uint64_t arg)
{
	struct req q = {.nn = w->nn,
			.method = m,
			.arg = arg,
			.ns = *begin_change(w),
			.exception = {.a = &q.mem}};
	const int rc = m->run(&q, in);

	assert_int_equal(test_commit(&w->d), 0);
	w->d.db = NULL;
	for (const struct effect *e = w->d.effects.first; e; e = e->next)
		if (e->kind == EFFECT_SATISFY)
			satisfier_add(&w->nn->satisfy, e->inode);
	arena_free(&q.mem);
	return rc;
}
