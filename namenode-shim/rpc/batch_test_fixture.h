/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: batch_test_fixture - what the tests of batches, of lost and of unwritten blocks and of
 * the table of nodes share: a NameNode with one data node and one file, calls in one batch or in
 * turn, and what is done by hand
 *
 * Included by one test program each, which owns what is static here.
 */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "DatanodeProtocol.pb-c.h"
#include "common/base/conf.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/rpc/methods.h"
#include "namenode-shim/test_db.h"

#define CALLS 5
#define FULL_BLOCK (1 << 20)
#define FILE_LEN 7

struct world {
	struct test_db d;
	struct conf *conf;
	struct nn *nn;
	struct storage *st;
	struct block block; /* of the file; id 0: it has none */
	uint64_t file;
};

/* The calls of a test in their order, and how they ended. */
static struct {
	const char *method;
	void *msg;
	int rc;
	bool result;
	const char *exception; /* class; NULL: none */
	int64_t block;         /* that addBlock gave */
	size_t nodes;          /* that append gave */
} calls[CALLS];

static atomic_uint calls_run;

/* Of /f, whose group somebody writes; NULL: it is replicated. */
static const struct ec_policy *file_policy;

static inline const struct method *find_method(const struct method_table *t, const char *name)
{
	for (size_t i = 0; i < t->count; i++)
		if (!strcmp(t->methods[i].name, name))
			return &t->methods[i];
	return NULL;
}

static inline int run_call(struct req *q, const void *in)
{
	const struct method *m = find_method(&client_append_methods, calls[q->arg].method);

	(void)in;
	m = m ? m : find_method(&client_write_methods, calls[q->arg].method);
	m = m ? m : find_method(&client_change_methods, calls[q->arg].method);
	m = m ? m : find_method(&client_pipeline_methods, calls[q->arg].method);
	m = m ? m : find_method(&client_policy_methods, calls[q->arg].method);
	m = m ? m : find_method(&datanode_methods, calls[q->arg].method);
	if (!m)
		abort();
	calls[q->arg].rc = m->run(q, calls[q->arg].msg);
	calls[q->arg].exception = q->exception.cls;
	if (!strcmp(m->name, "recoverLease"))
		calls[q->arg].result = ((Hd__RecoverLeaseResponseProto *)q->out)->result;
	if (!strcmp(m->name, "addBlock") && !calls[q->arg].rc)
		calls[q->arg].block =
			(int64_t)((Hd__AddBlockResponseProto *)q->out)->block->b->blockid;
	if (!strcmp(m->name, "append") && !calls[q->arg].rc &&
	    ((Hd__AppendResponseProto *)q->out)->block)
		calls[q->arg].nodes = ((Hd__AppendResponseProto *)q->out)->block->n_locs;
	calls_run++;
	return calls[q->arg].rc;
}

static inline void add_file(struct world *w, bool with_block)
{
	const struct ns_create c = {.path = "/f",
				    .client = "",
				    .perm = 0644,
				    .repl = 1,
				    .block_size = FULL_BLOCK,
				    .create = true};
	struct ns *n = test_begin(&w->d, "root");
	struct inode_block b = {.committed = true};
	struct inode *f;
	struct ns_path walk;

	assert_int_equal(ns_resolve_create(n, &c, &walk), 0);
	assert_int_equal(ns_create(n, &c, &walk, &f), 0);
	if (with_block) {
		w->block = (struct block){(int64_t)++n->t->ctr.block, ++n->t->ctr.gs, FILE_LEN};
		b.b = w->block;
		f->blocks = &b;
		f->nblocks = 1;
	}
	f->client = f->client_host = "";
	if (file_policy) {
		f->ec = file_policy;
		b = (struct inode_block){.b = {EC_GROUP_ID_FIRST, n->t->ctr.gs, 0}};
		w->block = b.b;
		f->client = f->client_host = "a";
	}
	w->file = f->id;
	assert_int_equal(inode_put(n->t, f), 0);
	assert_int_equal(test_commit(&w->d), 0);
}

static inline void report(struct world *w)
{
	blocks_report(&w->nn->blocks, w->st, &w->block, REPLICA_FINALIZED, true, 0);
}

/* From the name directory, with one node that has reported nothing yet. */
static inline void start(struct world *w)
{
	const struct dn_ident id = {"dn", "127.0.0.1", "host", "3.4.2", 9000, 1, 2, 0};
	struct settings set = {0};
	struct err err = ERR_INIT;
	struct dn *dn;

	assert_int_equal(settings_load(w->conf, &set, &err), 0);
	assert_int_equal(nn_new(&set, &w->nn, &err), 0);
	w->nn->safe.on = w->nn->safe.startup = w->nn->blocks.quiet = false;
	assert_int_equal(datanodes_register(&w->nn->dns, &id, &dn), 0);
	dn_touch(dn);
	dn->alive = true;
	w->st = dn_storage_add(dn, "DS", STORAGE_DISK);
}

/* A NameNode with /f and one node; nothing runs before run(). */
static inline void world_init(struct world *w, bool with_block)
{
	*w = (struct world){0};
	test_db_init(&w->d);
	add_file(w, with_block);
	db_close(w->d.db);
	w->d.db = NULL;
	w->conf = conf_new();
	conf_set(w->conf, "dfs.namenode.name.dir", w->d.dir);
	conf_set(w->conf, "fs.defaultFS", "hdfs://127.0.0.1:0");
	start(w);
	memset(calls, 0, sizeof(calls));
	calls_run = 0;
}

static inline void world_fini(struct world *w)
{
	nn_free(w->nn);
	conf_free(w->conf);
	test_db_fini(&w->d);
}

/* ---- the disk takes its time ---- */

static atomic_bool gate_is_shut; /* no sync of a journal's data ends */
static atomic_uint syncs;        /* that have begun */
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
	syncs++;
	while (gate_is_shut)
		(void)poll(NULL, 0, 1);
	return __real_fdatasync(fd);
}

static atomic_uint puts_run;

static inline int run_put(struct req *q, const void *in)
{
	const uint64_t key = q->arg;
	struct effect *e = ns_effect(&q->ns, EFFECT_LEASE_ADD);

	(void)in;
	e->inode = q->arg;
	e->holder = "somebody";
	puts_run++;
	return txn_put(q->ns.t, q->nn->db->quota, &key, sizeof(key), "x", 1);
}

/* A change of its own; @stat counts it when it is answered. */
static inline void submit_put(struct world *w, uint64_t key, struct call_stat *stat)
{
	static const struct method m = {.name = "put", .kind = REQ_CHANGE, .run = run_put};
	struct req *q = req_new(w->nn, &m, NULL);

	q->arg = key;
	q->stat = stat;
	nn_submit(w->nn, q);
}

static inline void wait_for(const atomic_uint *n, unsigned int wanted)
{
	for (int ms = 0; *n < wanted; ms++) {
		assert_true(ms < 10000);
		(void)poll(NULL, 0, 1);
	}
}

static inline void wait_for_calls(const struct call_stat *stat, uint64_t wanted)
{
	for (int ms = 0; stat->calls < wanted; ms++) {
		assert_true(ms < 10000);
		(void)poll(NULL, 0, 1);
	}
	assert_int_equal(stat->calls, wanted);
}

/* Changes from number *@key on until LMDB does not sync any more. */
static inline void put_until_journal(struct world *w, uint64_t *key, struct call_stat *stat)
{
	const uint64_t first = *key;
	char unsynced[128];

	snprintf(unsynced, sizeof(unsynced), "%s/current/unsynced", w->d.dir);
	puts_run = 0;
	while (access(unsynced, F_OK)) {
		submit_put(w, (*key)++, stat);
		wait_for(&puts_run, (unsigned int)(*key - first));
		(void)poll(NULL, 0, 1);
	}
	wait_for_calls(stat, *key - first);
}

static inline void submit(struct world *w, const struct method *m, uint64_t key,
			  struct call_stat *stat)
{
	struct req *q = req_new(w->nn, m, NULL);

	q->arg = key;
	q->stat = stat;
	nn_submit(w->nn, q);
}

/* All that is queued is one batch: the writer was not there yet. */
static inline void run(struct world *w)
{
	assert_int_equal(nn_start(w->nn), 0);
	nn_stop(w->nn);
}

static const struct method call_method = {.name = "call", .kind = REQ_CHANGE, .run = run_call};

/* One after the other, each answered before the next. */
static inline void call_in_turn(struct world *w, uint64_t i, const char *method, void *msg)
{
	/* the writer adds to it after the last look at it, too */
	static struct call_stat stat = {.name = "call"};

	stat.calls = 0;
	calls[i].method = method;
	calls[i].msg = msg;
	submit(w, &call_method, i, &stat);
	wait_for_calls(&stat, 1);
}

/* NULL: it is gone. */
static inline struct inode *read_file(struct world *w)
{
	struct inode *n;
	int rc;

	assert_int_equal(txn_read_begin(&w->nn->reader), 0);
	rc = inode_get(&w->nn->reader, w->file, &w->d.a, &n);
	txn_read_end(&w->nn->reader);
	return rc ? NULL : n;
}

/* What its writer, or whoever has its name, and a data node say of the block of /f that is
 * recovered. */
struct recovered {
	Hd__AppendRequestProto append;
	Hd__RecoverLeaseRequestProto recover;
	Hd__CompleteRequestProto complete;
	Hd__AddBlockRequestProto add;
	Hdd__CommitBlockSynchronizationRequestProto synced;
	Hd__ExtendedBlockProto block;
	Hd__DatanodeIDProto dn, *dns[1];
	char *storages[1];
};

static inline void recovered_init(struct world *w, struct recovered *r)
{
	char *const path = (char *)(uintptr_t) "/f", *const client = (char *)(uintptr_t) "a";

	*r = (struct recovered){.append = HD__APPEND_REQUEST_PROTO__INIT,
				.recover = HD__RECOVER_LEASE_REQUEST_PROTO__INIT,
				.complete = HD__COMPLETE_REQUEST_PROTO__INIT,
				.add = HD__ADD_BLOCK_REQUEST_PROTO__INIT,
				.synced = HDD__COMMIT_BLOCK_SYNCHRONIZATION_REQUEST_PROTO__INIT,
				.block = HD__EXTENDED_BLOCK_PROTO__INIT,
				.dn = HD__DATANODE_IDPROTO__INIT};
	r->append.src = r->recover.src = r->complete.src = r->add.src = path;
	r->append.clientname = r->recover.clientname = r->complete.clientname = r->add.clientname =
		client;
	r->complete.last = r->add.previous = r->synced.block = &r->block;
	r->block.poolid = w->nn->db->ident.pool_id;
	r->block.blockid = (uint64_t)w->block.id;
	r->block.generationstamp = w->block.gs;
	r->block.has_numbytes = 1;
	r->block.numbytes = w->block.len;
	r->synced.newlength = w->block.len;
	r->synced.closefile = 1;
	r->dn.datanodeuuid = (char *)(uintptr_t) "dn";
	r->dns[0] = &r->dn;
	r->storages[0] = w->st->id;
	r->synced.newtaragets = r->dns;
	r->synced.newtargetstorages = r->storages;
	r->synced.n_newtaragets = r->synced.n_newtargetstorages = 1;
}

/* ---- what is done by hand ---- */

static void (*to_do)(struct world *w);
static struct world *done_to;

static inline int run_to_do(struct req *q, const void *in)
{
	(void)q, (void)in;
	to_do(done_to);
	return 0;
}

/* On the writer, which alone changes blocks. */
static inline void on_writer(struct world *w, void (*fn)(struct world *w))
{
	static const struct method m = {.name = "news", .kind = REQ_MEMORY, .run = run_to_do};
	static struct call_stat stat = {.name = "news"};

	to_do = fn;
	done_to = w;
	stat.calls = 0;
	submit(w, &m, 0, &stat);
	wait_for_calls(&stat, 1);
}

static int64_t without_pipeline; /* this block */

static inline void forget_pipeline(struct world *w)
{
	struct blk *b = blocks_find(&w->nn->blocks, without_pipeline);

	blk_set_targets(b, NULL, NULL, 0);
	b->open->pipeline = 0;
}

/* As after a start of the NameNode that no node has reported the open block to. */
static inline void no_pipeline(struct world *w, int64_t id)
{
	without_pipeline = id;
	on_writer(w, forget_pipeline);
}

/* /f of two blocks: the first one committed, and on no node as it was committed; the second one is
 * w->block, @len bytes of which are known. */
static inline const struct blk *add_second_block(struct world *w, struct recovered *r, uint64_t len)
{
	const struct blk *first;

	world_init(w, true);
	report(w);
	w->st->remaining = w->st->capacity = 1ull << 40;
	w->nn->set.redundancy_delay_ms = 0;
	recovered_init(w, r);
	first = blocks_find(&w->nn->blocks, w->block.id);
	assert_int_equal(nn_start(w->nn), 0);
	call_in_turn(w, 0, "append", &r->append);
	r->block.numbytes = FILE_LEN + 2;
	call_in_turn(w, 1, "addBlock", &r->add);
	assert_int_equal(calls[1].rc, 0);
	assert_int_equal(first->state, BLK_COMMITTED);
	w->block = read_file(w)->blocks[1].b;
	w->block.len = len;
	r->block.blockid = (uint64_t)w->block.id;
	r->block.generationstamp = w->block.gs;
	r->block.numbytes = len;
	return first;
}

/* What the primary found: nothing. */
static inline void say_nobody_has_it(struct world *w, struct recovered *r, const struct blk *b,
				     uint64_t i)
{
	r->synced.newgenstamp = b->open->recovery_id;
	r->synced.newlength = 0;
	r->synced.deleteblock = 1;
	r->synced.n_newtaragets = r->synced.n_newtargetstorages = 0;
	call_in_turn(w, i, "commitBlockSynchronization", &r->synced);
}

/* ---- the last block of a file whose writer is gone, on no node ---- */

static inline void lose(struct world *w)
{
	blocks_report_deleted(&w->nn->blocks, w->st, w->block.id, 0);
}

/* /f is written again, and its node has lost what it had of the block. Recovery ends after @ms. */
static inline struct blk *write_and_lose(struct world *w, struct recovered *r, uint64_t ms)
{
	world_init(w, true);
	report(w);
	w->st->reported = true;
	w->nn->set.recovery_ms = ms;
	recovered_init(w, r);
	assert_int_equal(nn_start(w->nn), 0);
	call_in_turn(w, 0, "append", &r->append);
	on_writer(w, lose);
	return blocks_find(&w->nn->blocks, w->block.id);
}

static inline void is_open(struct world *w)
{
	assert_int_equal(read_file(w)->nblocks, 1);
	assert_string_not_equal(read_file(w)->client, "");
}

/* Until its node has the block as it was known. */
static inline void is_closed_and_missing(struct world *w, const struct blk *b)
{
	nn_stop(w->nn);
	assert_string_equal(read_file(w)->client, "");
	assert_int_equal(read_file(w)->nblocks, 1);
	assert_int_equal(read_file(w)->blocks[0].b.gs, w->block.gs);
	assert_int_equal(read_file(w)->blocks[0].b.len, FILE_LEN);
	assert_true(read_file(w)->blocks[0].committed);
	assert_int_equal(b->state, BLK_COMPLETE);
	assert_int_equal(w->nn->blocks.missing, 1);
	assert_true(list_empty(&w->nn->blocks.recovering));
	report(w);
	assert_int_equal(b->flags & (BLK_MISSING | BLK_UNDER | BLK_CORRUPT), 0);
	assert_int_equal(w->nn->blocks.missing, 0);
	world_fini(w);
}
