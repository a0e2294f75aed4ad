/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: the calls of a writer cost a file of 20,000 blocks what they cost one of 20. They
 * write the end of its list of blocks to the database and the journal, and read no more than that,
 * whether they name the file by its number or by its path. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>

#include <cmocka.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "common/base/conf.h"
#include "namenode-shim/db/journal.h"
#include "namenode-shim/namespace/inode.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"
#include "namenode-shim/rpc/methods.h"

#include "namenode-shim/test_db.h"

#define FEW 20u
#define MANY 20000u
#define BLOCK_LEN (1u << 20)
#define SHORT_LEN 5u
#define TIMES 4u /* the end of a list has up to 63 blocks, the whole of a short one 20 to 22 */
#define WAIT_MS 120000

/* Bytes that one call writes, and reads. */
struct cost {
	uint64_t put, journal, get;
};

static _Thread_local bool counts; /* the writer's thread */
static struct {
	atomic_uint_fast64_t put, journal, get;
} counted;

int __wrap_mdb_put(MDB_txn *t, MDB_dbi d, MDB_val *k, MDB_val *v, unsigned int flags);
int __real_mdb_put(MDB_txn *t, MDB_dbi d, MDB_val *k, MDB_val *v, unsigned int flags);
int __wrap_mdb_get(MDB_txn *t, MDB_dbi d, MDB_val *k, MDB_val *v);
int __real_mdb_get(MDB_txn *t, MDB_dbi d, MDB_val *k, MDB_val *v);
int __wrap_journal_write(struct journal *j, uint64_t seq, enum journal_kind kind, const void *buf,
			 size_t len);
int __real_journal_write(struct journal *j, uint64_t seq, enum journal_kind kind, const void *buf,
			 size_t len);
int __wrap_journal_append(struct journal *j, uint64_t seq, enum journal_kind kind, const void *buf,
			  size_t len);
int __real_journal_append(struct journal *j, uint64_t seq, enum journal_kind kind, const void *buf,
			  size_t len);

int __wrap_mdb_put(MDB_txn *t, MDB_dbi d, MDB_val *k, MDB_val *v, unsigned int flags)
{
	counted.put += counts ? k->mv_size + v->mv_size : 0;
	return __real_mdb_put(t, d, k, v, flags);
}

int __wrap_mdb_get(MDB_txn *t, MDB_dbi d, MDB_val *k, MDB_val *v)
{
	const int rc = __real_mdb_get(t, d, k, v);

	counted.get += counts && !rc ? v->mv_size : 0;
	return rc;
}

int __wrap_journal_write(struct journal *j, uint64_t seq, enum journal_kind kind, const void *buf,
			 size_t len)
{
	counted.journal += counts ? len : 0;
	return __real_journal_write(j, seq, kind, buf, len);
}

int __wrap_journal_append(struct journal *j, uint64_t seq, enum journal_kind kind, const void *buf,
			  size_t len)
{
	counted.journal += counts ? len : 0;
	return __real_journal_append(j, seq, kind, buf, len);
}

struct world {
	struct test_db d;
	struct conf *conf;
	struct nn *nn;
	struct storage *st;
	uint64_t file;
	enum how { BY_NUMBER, BY_PATH, BY_RESERVED_PATH } how; /* the calls name the file so */
	char src[64];
};

/* /f with @count full blocks, which is open. */
static void add_file(struct world *w, uint32_t count)
{
	const struct ns_create c = {.path = "/f",
				    .client = "c",
				    .perm = 0644,
				    .repl = 1,
				    .block_size = BLOCK_LEN,
				    .create = true};
	struct ns *n = test_begin(&w->d, "root");
	struct ns_path walk;
	struct inode *f;

	assert_int_equal(ns_resolve_create(n, &c, &walk), 0);
	assert_int_equal(ns_create(n, &c, &walk, &f), 0);
	f->nblocks = count;
	f->blocks = arena_array(n->a, struct inode_block, count);
	n->t->ctr.gs++;
	for (uint32_t i = 0; i < count; i++)
		f->blocks[i] = (struct inode_block){
			{(int64_t)++n->t->ctr.block, n->t->ctr.gs, BLOCK_LEN}, true};
	w->file = f->id;
	assert_int_equal(inode_put(n->t, f), 0);
	assert_int_equal(test_commit(&w->d), 0);
}

/* The file as the disk has it. */
static struct inode *read_file(struct world *w)
{
	struct inode *n;

	assert_int_equal(txn_read_begin(&w->nn->reader), 0);
	assert_int_equal(inode_get(&w->nn->reader, w->file, &w->d.a, &n), 0);
	txn_read_end(&w->nn->reader);
	return n;
}

static void world_init(struct world *w, uint32_t count, enum how how)
{
	const struct dn_ident id = {"dn", "127.0.0.1", "host", "3.4.2", 9000, 1, 2, 0};
	struct settings set = {0};
	struct err err = ERR_INIT;
	struct inode *f;
	struct dn *dn;

	*w = (struct world){.how = how, .src = "/f"};
	test_db_init(&w->d);
	add_file(w, count);
	if (how == BY_RESERVED_PATH)
		snprintf(w->src, sizeof(w->src), "/.reserved/.inodes/%llu",
			 (unsigned long long)w->file);
	db_close(w->d.db);
	w->d.db = NULL;
	w->conf = conf_new();
	conf_set(w->conf, "dfs.namenode.name.dir", w->d.dir);
	conf_set(w->conf, "fs.defaultFS", "hdfs://127.0.0.1:0");
	conf_set(w->conf, "dfs.namenode.fs-limits.max-blocks-per-file", "100000");
	assert_int_equal(settings_load(w->conf, &set, &err), 0);
	assert_int_equal(nn_new(&set, &w->nn, &err), 0);
	w->nn->safe.on = w->nn->safe.startup = w->nn->blocks.quiet = false;
	assert_int_equal(datanodes_register(&w->nn->dns, &id, &dn), 0);
	w->st = dn_storage_add(dn, "DS", STORAGE_DISK);
	w->st->remaining = 1ull << 40;
	f = read_file(w);
	for (uint32_t i = 0; i < count; i++)
		blocks_report(&w->nn->blocks, w->st, &f->blocks[i].b, REPLICA_FINALIZED, true, 0);
	assert_int_equal(nn_start(w->nn), 0);
}

static void world_fini(struct world *w)
{
	nn_stop(w->nn);
	nn_free(w->nn);
	conf_free(w->conf);
	test_db_fini(&w->d);
}

/* ---- one call at a time ---- */

static const struct method *called;
static const void *called_with;
static atomic_int called_rc;

static int run_called(struct req *q, const void *in)
{
	(void)in;
	counts = true;
	called_rc = called->run(q, called_with);
	return called_rc;
}

/* What @m costs, from the call to the answer. */
static struct cost run(struct world *w, const struct method *m)
{
	const struct cost before = {counted.put, counted.journal, counted.get};
	struct call_stat stat = {.name = "call"};
	struct req *q = req_new(w->nn, m, NULL);

	q->stat = &stat;
	nn_submit(w->nn, q);
	for (int ms = 0; !stat.calls; ms++) {
		assert_true(ms < WAIT_MS);
		(void)poll(NULL, 0, 1);
	}
	return (struct cost){counted.put - before.put, counted.journal - before.journal,
			     counted.get - before.get};
}

static struct cost call(struct world *w, const char *name, const void *msg)
{
	static const struct method m = {.name = "call", .kind = REQ_CHANGE, .run = run_called};
	struct cost c;

	called = NULL;
	for (size_t i = 0; i < client_write_methods.count; i++)
		if (!strcmp(client_write_methods.methods[i].name, name))
			called = &client_write_methods.methods[i];
	for (size_t i = 0; i < client_pipeline_methods.count; i++)
		if (!strcmp(client_pipeline_methods.methods[i].name, name))
			called = &client_pipeline_methods.methods[i];
	assert_non_null(called);
	called_with = msg;
	c = run(w, &m);
	assert_int_equal(called_rc, 0);
	return c;
}

static struct storage *has_it;
static struct block it;

static int run_received(struct req *q, const void *in)
{
	(void)in;
	blocks_report(&q->nn->blocks, has_it, &it, REPLICA_FINALIZED, true, 0);
	return 0;
}

/* The node has block @i of the file. */
static void received(struct world *w, uint32_t i)
{
	static const struct method m = {
		.name = "received", .kind = REQ_MEMORY, .run = run_received};

	has_it = w->st;
	it = read_file(w)->blocks[i].b;
	run(w, &m);
}

/* ---- the calls ---- */

enum { ADD, FSYNC, PIPELINE, ADD_NEXT, ABANDON, COMPLETE, CALLS };
static const char *const names[CALLS] = {"addBlock",           "fsync",        "updatePipeline",
					 "addBlock, the next", "abandonBlock", "complete"};

/* Block @i of the file, with @len bytes. */
static Hd__ExtendedBlockProto block(struct world *w, uint32_t i, uint64_t len)
{
	const struct inode *f = read_file(w);
	Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;

	assert_int_equal(f->nblocks, i + 1);
	b.poolid = w->nn->db->ident.pool_id;
	b.blockid = (uint64_t)f->blocks[i].b.id;
	b.generationstamp = f->blocks[i].b.gs;
	b.has_numbytes = true;
	b.numbytes = len;
	return b;
}

static struct cost add_block(struct world *w, Hd__ExtendedBlockProto *previous)
{
	Hd__AddBlockRequestProto m = HD__ADD_BLOCK_REQUEST_PROTO__INIT;

	m.src = w->src;
	m.clientname = (char *)(uintptr_t) "c";
	m.has_fileid = w->how == BY_NUMBER;
	m.fileid = m.has_fileid ? w->file : 0;
	m.previous = previous;
	return call(w, "addBlock", &m);
}

static struct cost fsync_file(struct world *w)
{
	Hd__FsyncRequestProto m = HD__FSYNC_REQUEST_PROTO__INIT;

	m.src = w->src;
	m.client = (char *)(uintptr_t) "c";
	m.has_fileid = w->how == BY_NUMBER;
	m.fileid = m.has_fileid ? w->file : 0;
	m.has_lastblocklength = true;
	m.lastblocklength = SHORT_LEN;
	return call(w, "fsync", &m);
}

static struct cost update_pipeline(struct world *w, uint32_t i)
{
	Hd__UpdateBlockForPipelineRequestProto stamp =
		HD__UPDATE_BLOCK_FOR_PIPELINE_REQUEST_PROTO__INIT;
	Hd__UpdatePipelineRequestProto m = HD__UPDATE_PIPELINE_REQUEST_PROTO__INIT;
	Hd__ExtendedBlockProto old = block(w, i, SHORT_LEN), now = old;
	Hd__DatanodeIDProto dn = HD__DATANODE_IDPROTO__INIT, *to = &dn;
	char *storage = w->st->id;

	stamp.block = &old;
	stamp.clientname = m.clientname = (char *)(uintptr_t) "c";
	call(w, "updateBlockForPipeline", &stamp);
	now.generationstamp = w->nn->db->ctr.gs;
	m.oldblock = &old;
	m.newblock = &now;
	dn.datanodeuuid = w->st->dn->uuid;
	m.newnodes = &to;
	m.storageids = &storage;
	m.n_newnodes = m.n_storageids = 1;
	return call(w, "updatePipeline", &m);
}

static struct cost abandon(struct world *w, Hd__ExtendedBlockProto *b)
{
	Hd__AbandonBlockRequestProto m = HD__ABANDON_BLOCK_REQUEST_PROTO__INIT;

	m.b = b;
	m.src = w->src;
	m.holder = (char *)(uintptr_t) "c";
	m.has_fileid = w->how == BY_NUMBER;
	m.fileid = m.has_fileid ? w->file : 0;
	return call(w, "abandonBlock", &m);
}

static struct cost complete(struct world *w, Hd__ExtendedBlockProto *last)
{
	Hd__CompleteRequestProto m = HD__COMPLETE_REQUEST_PROTO__INIT;

	m.src = w->src;
	m.clientname = (char *)(uintptr_t) "c";
	m.has_fileid = w->how == BY_NUMBER;
	m.fileid = m.has_fileid ? w->file : 0;
	m.last = last;
	return call(w, "complete", &m);
}

/* A file of @count blocks gets one more, and one that is given back, and is closed. */
static void write_on(uint32_t count, enum how how, struct cost ret[CALLS])
{
	Hd__ExtendedBlockProto b;
	struct inode *f;
	struct world w;

	world_init(&w, count, how);
	b = block(&w, count - 1, BLOCK_LEN);
	ret[ADD] = add_block(&w, &b);
	ret[FSYNC] = fsync_file(&w);
	assert_int_equal(read_file(&w)->blocks[count].b.len, SHORT_LEN);
	ret[PIPELINE] = update_pipeline(&w, count);
	b = block(&w, count, BLOCK_LEN);
	ret[ADD_NEXT] = add_block(&w, &b);
	b = block(&w, count + 1, 0);
	ret[ABANDON] = abandon(&w, &b);
	b = block(&w, count, BLOCK_LEN);
	received(&w, count);
	ret[COMPLETE] = complete(&w, &b);
	f = read_file(&w);
	assert_false(inode_is_open(f));
	assert_int_equal(inode_len(f), (uint64_t)BLOCK_LEN * (count + 1));
	world_fini(&w);
}

static void check(const char *what, uint64_t few, uint64_t many)
{
	printf("  %s %llu, %llu", what, (unsigned long long)few, (unsigned long long)many);
	assert_true(few > 0);
	assert_true(many <= TIMES * few);
}

static void calls_cost_a_long_file_what_they_cost_a_short_one(enum how how)
{
	struct cost few[CALLS], many[CALLS];

	write_on(FEW, how, few);
	write_on(MANY, how, many);
	for (int i = 0; i < CALLS; i++) {
		printf("%-20s bytes with %u blocks, and %u:", names[i], FEW, MANY);
		check("to the database", few[i].put, many[i].put);
		check("to the journal", few[i].journal, many[i].journal);
		check("read", few[i].get, many[i].get);
		printf("\n");
	}
}

static void calls_that_name_a_file_by_its_number(void **state)
{
	(void)state;
	calls_cost_a_long_file_what_they_cost_a_short_one(BY_NUMBER);
}

static void calls_that_name_a_file_by_its_path(void **state)
{
	(void)state;
	calls_cost_a_long_file_what_they_cost_a_short_one(BY_PATH);
}

static void calls_that_name_a_file_by_its_reserved_path(void **state)
{
	(void)state;
	calls_cost_a_long_file_what_they_cost_a_short_one(BY_RESERVED_PATH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(calls_that_name_a_file_by_its_number),
		cmocka_unit_test(calls_that_name_a_file_by_its_path),
		cmocka_unit_test(calls_that_name_a_file_by_its_reserved_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
