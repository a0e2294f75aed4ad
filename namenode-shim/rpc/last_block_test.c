/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a client commits the last block of its file, with the stamp it was given, and no
 * call gives a block more bytes than a block may have; what is refused changes nothing. addBlock
 * waits until the block before the last one has the least number of finalized replicas, and no
 * longer than NN_PARK_MS. The clock is the test's. */
#include <time.h>

#include "common/base/clock.h"
#include "common/erasure/policy.h"
#include "namenode-shim/rpc/batch_test_fixture.h"

/* Between the reports of a test no wait ends, however busy the machine is. */
#define LATER_NS (60 * NS_PER_S)

int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __real_clock_gettime(clockid_t id, struct timespec *ret);
static atomic_uint_fast64_t ahead_ns;  /* of all clocks */
static _Thread_local uint64_t more_ns; /* of that of this thread */
/* 0: the clock runs; else nothing but the test does */
static atomic_uint_fast64_t frozen_ns;

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	const int rc = __real_clock_gettime(id, ret);
	uint64_t ns = (uint64_t)ret->tv_sec * NS_PER_S + (uint64_t)ret->tv_nsec;

	if (id != CLOCK_MONOTONIC)
		return rc;
	ns = frozen_ns ? frozen_ns : ns + ahead_ns + more_ns;
	*ret = (struct timespec){(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
	return rc;
}

/* ---- /f, open, on two nodes ---- */

struct writer {
	struct world w;
	struct storage *other;
	struct recovered r; /* the writer's messages */
};

/* @ec: NULL: @repl replicas. */
static void change_file(struct world *w, uint16_t repl, const struct ec_policy *ec)
{
	struct inode *f;
	struct txn t;

	assert_int_equal(txn_write_begin(w->nn->db, &t), 0);
	assert_int_equal(inode_get(&t, w->file, &w->d.a, &f), 0);
	f->repl = repl;
	f->ec = ec;
	assert_int_equal(inode_put(&t, f), 0);
	assert_int_equal(txn_write_commit(&t), 0);
}

/* The file's last block, with @len bytes, is what the next call is about. */
static void name_last(struct writer *x, uint64_t len)
{
	const struct inode *f = read_file(&x->w);

	x->r.block.blockid = (uint64_t)f->blocks[f->nblocks - 1].b.id;
	x->r.block.generationstamp = f->blocks[f->nblocks - 1].b.gs;
	x->r.block.numbytes = len;
	x->r.add.previous = &x->r.block;
}

/* /f has one block, which is being written. */
static void writer_init(struct writer *x, uint16_t repl, const struct ec_policy *ec)
{
	const struct dn_ident id = {"dn2", "127.0.0.2", "host", "3.4.2", 9000, 1, 2, 0};
	struct dn *dn;

	*x = (struct writer){0};
	world_init(&x->w, false);
	assert_int_equal(datanodes_register(&x->w.nn->dns, &id, &dn), 0);
	x->other = dn_storage_add(dn, "DS2", STORAGE_DISK);
	x->w.st->remaining = x->w.st->capacity = 1ull << 40;
	x->other->remaining = x->other->capacity = 1ull << 40;
	change_file(&x->w, repl, ec);
	recovered_init(&x->w, &x->r);
	x->r.append.has_flag = ec != NULL;
	x->r.append.flag = ec ? HD__CREATE_FLAG_PROTO__NEW_BLOCK : 0;
	x->r.add.previous = NULL;
	assert_int_equal(nn_start(x->w.nn), 0);
	call_in_turn(&x->w, 0, "append", &x->r.append);
	assert_int_equal(calls[0].rc, 0);
	call_in_turn(&x->w, 1, "addBlock", &x->r.add);
	assert_int_equal(calls[1].rc, 0);
	name_last(x, 0);
}

static void writer_fini(struct writer *x)
{
	frozen_ns = 0;
	nn_stop(x->w.nn);
	world_fini(&x->w);
	ahead_ns = 0;
}

/* One replica in an incremental report. */
static struct news {
	struct storage *st;
	struct block b;
	uint32_t state;
} news;

static int run_news(struct req *q, const void *in)
{
	(void)in;
	blocks_report(&q->nn->blocks, news.st, &news.b, news.state, false, 0);
	return 0;
}

static int run_nothing(struct req *q, const void *in)
{
	(void)q, (void)in;
	return 0;
}

/* Once the second of two such calls is answered, whoever waited for the first one was looked at. */
static void tell(struct writer *x, struct storage *st, const struct block *b, uint32_t state)
{
	static const struct method m = {.name = "news", .kind = REQ_MEMORY, .run = run_news};
	static const struct method n = {.name = "nothing", .kind = REQ_MEMORY, .run = run_nothing};
	struct call_stat stat = {.name = "news"};

	news = (struct news){st, *b, state};
	submit(&x->w, &m, 0, &stat);
	wait_for_calls(&stat, 1);
	submit(&x->w, &n, 0, &stat);
	wait_for_calls(&stat, 2);
}

/* ---- how long a block may be ---- */

/* What a refused call must leave as it is. */
struct before {
	struct inode_block last;
	uint32_t nblocks;
	uint64_t promised, promised_other, stamp, id;
	int64_t group;
	uint64_t len; /* that memory knows */
};

static struct before look(struct writer *x)
{
	const struct db_counters *c = &x->w.nn->db->ctr;
	const struct inode *f = read_file(&x->w);

	return (struct before){
		.last = f->blocks[f->nblocks - 1],
		.nblocks = f->nblocks,
		.promised = x->w.st->promised,
		.promised_other = x->other->promised,
		.stamp = c->gs,
		.id = c->block,
		.group = c->group,
		.len = blocks_find(&x->w.nn->blocks, f->blocks[f->nblocks - 1].b.id)->b.len};
}

static void nothing_has_changed(struct writer *x, const struct before *was)
{
	const struct blk *b = blocks_find(&x->w.nn->blocks, was->last.b.id);
	const struct before is = look(x);

	assert_int_equal(is.last.b.id, was->last.b.id);
	assert_int_equal(is.last.b.gs, was->last.b.gs);
	assert_int_equal(is.last.b.len, was->last.b.len);
	assert_int_equal(is.last.committed, was->last.committed);
	assert_int_equal(is.nblocks, was->nblocks);
	assert_int_equal(is.promised, was->promised);
	assert_int_equal(is.promised_other, was->promised_other);
	assert_int_equal(is.stamp, was->stamp);
	assert_int_equal(is.id, was->id);
	assert_int_equal(is.group, was->group);
	assert_int_equal(b->state, BLK_OPEN);
	assert_int_equal(is.len, was->len);
	assert_string_equal(read_file(&x->w)->client, "a");
}

/* The call @i commits the last block of the file with @len bytes. A node says that it has as many:
 * the call does not wait. */
static void commit(struct writer *x, const char *method, uint64_t len)
{
	const bool add = !strcmp(method, "addBlock");
	struct block b;

	name_last(x, len);
	b = (struct block){(int64_t)x->r.block.blockid, x->r.block.generationstamp, len};
	if (!read_file(&x->w)->ec)
		tell(x, x->w.st, &b, REPLICA_FINALIZED);
	call_in_turn(&x->w, 2, method, add ? (void *)&x->r.add : &x->r.complete);
}

static void a_block_is_not_committed_longer_than_it_may_be(const char *method,
							   const struct ec_policy *ec)
{
	struct before was;
	struct writer x;
	uint64_t most;

	writer_init(&x, 1, ec);
	most = inode_block_max(read_file(&x.w));
	assert_int_equal(most, ec ? (uint64_t)ec->k * FULL_BLOCK : FULL_BLOCK);
	was = look(&x);
	commit(&x, method, most + 1);
	assert_true(calls[2].rc < 0);
	assert_string_equal(calls[2].exception, "java.io.IOException");
	nothing_has_changed(&x, &was);
	commit(&x, method, UINT64_MAX);
	assert_true(calls[2].rc < 0);
	nothing_has_changed(&x, &was);
	commit(&x, method, most);
	assert_int_equal(calls[2].rc, 0);
	assert_true(read_file(&x.w)->blocks[0].committed);
	assert_int_equal(read_file(&x.w)->blocks[0].b.len, most);
	writer_fini(&x);
}

static void complete_commits_no_more_than_a_block(void **state)
{
	(void)state;
	a_block_is_not_committed_longer_than_it_may_be("complete", NULL);
}

static void addblock_commits_no_more_than_a_block(void **state)
{
	(void)state;
	a_block_is_not_committed_longer_than_it_may_be("addBlock", NULL);
}

static void addblock_commits_no_more_than_a_group(void **state)
{
	(void)state;
	a_block_is_not_committed_longer_than_it_may_be("addBlock", ec_policy_by_id(EC_ID_XOR_2_1));
}

static void fsync_takes_no_more_than_a_block(void **state)
{
	Hd__FsyncRequestProto m = HD__FSYNC_REQUEST_PROTO__INIT;
	struct before was;
	struct writer x;

	(void)state;
	writer_init(&x, 1, NULL);
	was = look(&x);
	m.src = x.r.add.src;
	m.client = x.r.add.clientname;
	m.has_lastblocklength = true;
	m.lastblocklength = FULL_BLOCK + 1;
	call_in_turn(&x.w, 2, "fsync", &m);
	nothing_has_changed(&x, &was);
	m.lastblocklength = FULL_BLOCK;
	call_in_turn(&x.w, 2, "fsync", &m);
	assert_int_equal(read_file(&x.w)->blocks[0].b.len, FULL_BLOCK);
	m.lastblocklength = FULL_BLOCK - 1; /* late news */
	call_in_turn(&x.w, 2, "fsync", &m);
	assert_int_equal(read_file(&x.w)->blocks[0].b.len, FULL_BLOCK);
	writer_fini(&x);
}

/* Its length is charged to no quota: what complete() gives back of it would be a gift. */
static void a_pipeline_is_updated_to_no_more_than_a_block(void **state)
{
	Hd__UpdateBlockForPipelineRequestProto stamp =
		HD__UPDATE_BLOCK_FOR_PIPELINE_REQUEST_PROTO__INIT;
	Hd__UpdatePipelineRequestProto m = HD__UPDATE_PIPELINE_REQUEST_PROTO__INIT;
	Hd__ExtendedBlockProto now;
	struct before was;
	struct writer x;

	(void)state;
	writer_init(&x, 1, NULL);
	stamp.block = m.oldblock = &x.r.block;
	stamp.clientname = m.clientname = x.r.add.clientname;
	call_in_turn(&x.w, 2, "updateBlockForPipeline", &stamp);
	assert_int_equal(calls[2].rc, 0);
	was = look(&x);
	now = x.r.block;
	now.generationstamp = was.stamp;
	now.numbytes = FULL_BLOCK + 1;
	m.newblock = &now;
	m.newnodes = x.r.dns;
	m.storageids = x.r.storages;
	m.n_newnodes = m.n_storageids = 1;
	call_in_turn(&x.w, 3, "updatePipeline", &m);
	assert_true(calls[3].rc < 0);
	nothing_has_changed(&x, &was);
	now.numbytes = FULL_BLOCK;
	call_in_turn(&x.w, 3, "updatePipeline", &m);
	assert_int_equal(calls[3].rc, 0);
	assert_int_equal(read_file(&x.w)->blocks[0].b.len, FULL_BLOCK);
	assert_int_equal(read_file(&x.w)->blocks[0].b.gs, was.stamp);
	writer_fini(&x);
}

/* The NameNode was started anew: one node has registered, one will, and a place is empty. */
static void a_pipeline_has_the_nodes_that_are_still_to_register(void **state)
{
	Hd__UpdateBlockForPipelineRequestProto stamp =
		HD__UPDATE_BLOCK_FOR_PIPELINE_REQUEST_PROTO__INIT;
	Hd__UpdatePipelineRequestProto m = HD__UPDATE_PIPELINE_REQUEST_PROTO__INIT;
	Hd__DatanodeIDProto later = HD__DATANODE_IDPROTO__INIT, empty = later, *nodes[3];
	char *storages[3];
	const struct blk_open *o;
	Hd__ExtendedBlockProto now;
	struct writer x;

	(void)state;
	writer_init(&x, 1, NULL);
	later.datanodeuuid = empty.datanodeuuid = (char *)(uintptr_t) "later";
	nodes[0] = x.r.dns[0];
	nodes[1] = &later;
	nodes[2] = &empty;
	storages[0] = x.r.storages[0];
	storages[1] = (char *)(uintptr_t) "DS-later";
	storages[2] = (char *)(uintptr_t) "";
	stamp.block = m.oldblock = &x.r.block;
	stamp.clientname = m.clientname = x.r.add.clientname;
	call_in_turn(&x.w, 2, "updateBlockForPipeline", &stamp);
	now = x.r.block;
	now.generationstamp = look(&x).stamp;
	m.newblock = &now;
	m.newnodes = nodes;
	m.storageids = storages;
	m.n_newnodes = m.n_storageids = 3;
	call_in_turn(&x.w, 3, "updatePipeline", &m);
	assert_int_equal(calls[3].rc, 0);
	o = blocks_find(&x.w.nn->blocks, (int64_t)now.blockid)->open;
	assert_int_equal(o->ntargets, 1);
	assert_int_equal(o->pipeline, 2);
	assert_int_equal(o->nlost, 1);
	assert_string_equal(o->lost[0].node, "later");
	assert_string_equal(o->lost[0].storage, "DS-later");
	m.n_newnodes = 100000; /* nobody looks at so many */
	call_in_turn(&x.w, 3, "updatePipeline", &m);
	assert_true(calls[3].rc < 0);
	assert_string_equal(calls[3].exception, "org.apache.hadoop.HadoopIllegalArgumentException");
	writer_fini(&x);
}

/* What is corrupt, or is to be deleted, is not written on. */
static void an_append_goes_on_where_the_replicas_are_good(void **state)
{
	struct recovered r;
	struct storage *st;
	struct dn *dn;
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w, true);
	report(&w);
	b = blocks_find(&w.nn->blocks, w.block.id);
	blk_set_repl(&w.nn->blocks, b, 3);
	for (uint16_t i = 0; i < 2; i++) {
		const struct dn_ident id = {i ? "dn2" : "dn3", "127.0.0.2", "host", "3.4.2",
					    9000 + i,          1,           2,      0};

		assert_int_equal(datanodes_register(&w.nn->dns, &id, &dn), 0);
		st = dn_storage_add(dn, "DS2", STORAGE_DISK);
		blocks_report(&w.nn->blocks, st, &w.block, REPLICA_FINALIZED, false, 0);
	}
	assert_int_equal(b->nreps, 3);
	recovered_init(&w, &r);
	b->rep[1].corrupt = true;
	b->rep[2].excess = true;
	assert_int_equal(nn_start(w.nn), 0);
	call_in_turn(&w, 0, "append", &r.append);
	assert_int_equal(calls[0].rc, 0);
	assert_int_equal(calls[0].nodes, 1);
	nn_stop(w.nn);
	world_fini(&w);
}

/* ---- which block ---- */

static void refused(struct writer *x, const char *method, void *msg, const struct before *was)
{
	call_in_turn(&x->w, 2, method, msg);
	assert_true(calls[2].rc < 0);
	assert_string_equal(calls[2].exception, "java.io.IOException");
	nothing_has_changed(x, was);
}

/* Though a node says that it has just what the client commits. */
static void a_client_commits_its_last_block_with_the_stamp_it_was_given(void **state)
{
	struct before was;
	struct writer x;

	(void)state;
	writer_init(&x, 1, NULL);
	was = look(&x);
	for (int wrong = -1; wrong <= 1; wrong += 2) {
		struct block b;

		name_last(&x, FULL_BLOCK);
		x.r.block.generationstamp += (uint64_t)wrong;
		b = (struct block){was.last.b.id, x.r.block.generationstamp, FULL_BLOCK};
		tell(&x, x.w.st, &b, REPLICA_FINALIZED);
		if (wrong > 0) /* it would wait: an older replica is no good one */
			refused(&x, "complete", &x.r.complete, &was);
		refused(&x, "addBlock", &x.r.add, &was);
		name_last(&x, FULL_BLOCK);
		x.r.block.blockid += (uint64_t)wrong;
		refused(&x, "complete", &x.r.complete, &was);
		refused(&x, "addBlock", &x.r.add, &was);
	}
	name_last(&x, FULL_BLOCK);
	x.r.block.poolid = (char *)(uintptr_t) "BP-1-127.0.0.1-1";
	refused(&x, "complete", &x.r.complete, &was);
	refused(&x, "addBlock", &x.r.add, &was);
	writer_fini(&x);
}

/* The answer was lost. With bytes of the block known it is no repetition any more. */
static void addblock_that_is_sent_again_has_the_same_answer(void **state)
{
	Hd__FsyncRequestProto m = HD__FSYNC_REQUEST_PROTO__INIT;
	struct before was;
	struct writer x;

	(void)state;
	writer_init(&x, 1, NULL);
	for (int i = 0; i < 2; i++) {
		was = look(&x);
		if (!i)
			x.r.add.previous = NULL;
		call_in_turn(&x.w, 2, "addBlock", &x.r.add);
		assert_int_equal(calls[2].rc, 0);
		assert_int_equal(calls[2].block, was.last.b.id);
		nothing_has_changed(&x, &was);
		if (i)
			break;
		name_last(&x, FULL_BLOCK);
		call_in_turn(&x.w, 2, "addBlock", &x.r.add); /* its previous one is named again */
		assert_int_equal(calls[2].block, look(&x).last.b.id);
	}
	writer_fini(&x);

	writer_init(&x, 1, NULL);
	m.src = x.r.add.src;
	m.client = x.r.add.clientname;
	m.has_lastblocklength = true;
	m.lastblocklength = 1;
	call_in_turn(&x.w, 2, "fsync", &m);
	was = look(&x);
	assert_int_equal(was.last.b.len, 1);
	x.r.add.previous = NULL;
	refused(&x, "addBlock", &x.r.add, &was);
	writer_fini(&x);
}

/* ---- how long addBlock waits ---- */

/* For those who wait here it is LATER_NS later, and so is the end of their wait. */
static int run_later(struct req *q, const void *in)
{
	int rc;

	more_ns = LATER_NS;
	rc = run_call(q, in);
	more_ns = 0;
	return rc;
}

/* /f has two blocks. The first one, *ret, is committed, and no node has reported it. */
static void add_second(struct writer *x, uint16_t repl, struct block *ret)
{
	writer_init(x, repl, NULL);
	x->w.nn->set.repl_min = x->w.nn->blocks.repl_min = repl;
	name_last(x, FULL_BLOCK);
	call_in_turn(&x->w, 2, "addBlock", &x->r.add);
	assert_int_equal(calls[2].rc, 0);
	*ret = read_file(&x->w)->blocks[0].b;
	name_last(x, FULL_BLOCK);
}

/* addBlock number 3 waits; @stat counts it when it is answered. */
static void wait_to_add(struct writer *x, struct call_stat *stat)
{
	static const struct method m = {.name = "call", .kind = REQ_CHANGE, .run = run_later};

	calls_run = 0;
	calls[3].method = "addBlock";
	calls[3].msg = &x->r.add;
	submit(&x->w, &m, 3, stat);
	wait_for(&calls_run, 1);
	assert_int_equal(calls[3].rc, REQ_PARK);
}

static void addblock_is_answered_when_the_block_before_the_last_is_reported(void **state)
{
	(void)state;
	for (uint16_t repl = 1; repl <= 2; repl++) {
		struct call_stat stat = {.name = "call"};
		struct block first, less, older;
		struct writer x;

		add_second(&x, repl, &first);
		less = older = first;
		less.len--;
		older.gs--;
		wait_to_add(&x, &stat);
		tell(&x, x.w.st, &first, REPLICA_RBW);
		tell(&x, x.w.st, &older, REPLICA_FINALIZED);
		tell(&x, x.w.st, &less, REPLICA_FINALIZED);
		if (repl == 2)
			tell(&x, x.other, &first, REPLICA_FINALIZED);
		assert_int_equal(calls_run, 1);
		assert_int_equal(stat.calls, 0);
		assert_int_equal(read_file(&x.w)->nblocks, 2);
		tell(&x, x.w.st, &first, REPLICA_FINALIZED);
		wait_for_calls(&stat, 1);
		assert_int_equal(calls_run, 2);
		assert_int_equal(calls[3].rc, 0);
		assert_int_equal(read_file(&x.w)->nblocks, 3);
		writer_fini(&x);
	}
}

static void addblock_is_refused_when_its_time_is_over(void **state)
{
	struct call_stat stat = {.name = "call"};
	struct block first;
	struct before was;
	struct writer x;

	(void)state;
	add_second(&x, 1, &first);
	was = look(&x);
	wait_to_add(&x, &stat);
	tell(&x, x.w.st, &first, REPLICA_RBW);
	assert_int_equal(stat.calls, 0);
	ahead_ns = LATER_NS + NN_PARK_MS * NS_PER_MS;
	wait_for_calls(&stat, 1); /* without a report */
	assert_true(calls[3].rc < 0);
	assert_string_equal(calls[3].exception,
			    "org.apache.hadoop.hdfs.server.namenode.NotReplicatedYetException");
	nothing_has_changed(&x, &was);
	writer_fini(&x);
}

/* One run of a call that comes from node 2, of which nothing stays. The writer's thread has ended.
 */
static int run_at(struct writer *x, struct req *q, uint64_t now_ns)
{
	struct txn t;

	frozen_ns = now_ns;
	assert_int_equal(txn_write_begin(x->w.nn->db, &t), 0);
	req_reset(q, &t);
	q->ns.host = "127.0.0.2";
	q->rc = q->method->run(q, q->method->in == &hd__complete_request_proto__descriptor
					  ? (const void *)&x->r.complete
					  : &x->r.add);
	txn_write_abort(&t);
	return q->rc;
}

static void a_wait_lasts_its_time_to_the_nanosecond(void **state)
{
	const uint64_t ms = NN_PARK_MS * NS_PER_MS;
	struct block first, shorter;
	struct writer x;
	struct req *q;
	uint64_t now;

	(void)state;
	add_second(&x, 1, &first);
	nn_stop(x.w.nn);
	now = clock_mono_ns();
	q = req_new(x.w.nn, find_method(&client_write_methods, "addBlock"), NULL);
	assert_int_equal(run_at(&x, q, now), REQ_PARK);
	assert_int_equal(q->wait.b.id, first.id);
	assert_int_equal(q->wait.deadline_ns, now + ms);
	assert_int_equal(run_at(&x, q, now + ms - 1), REQ_PARK);
	assert_int_equal(run_at(&x, q, now + ms), -EBUSY);
	blocks_report(&x.w.nn->blocks, x.w.st, &first, REPLICA_FINALIZED, false, 0);
	assert_int_equal(run_at(&x, q, now + ms), 0); /* it came just in time */
	req_finish(q);

	/* Likewise complete, though a node has a shorter replica. */
	shorter = (struct block){(int64_t)x.r.block.blockid, x.r.block.generationstamp,
				 FULL_BLOCK - 1};
	blocks_report(&x.w.nn->blocks, x.w.st, &shorter, REPLICA_FINALIZED, false, 0);
	q = req_new(x.w.nn, find_method(&client_write_methods, "complete"), NULL);
	assert_int_equal(run_at(&x, q, now), REQ_PARK);
	assert_int_equal(q->wait.b.id, x.r.block.blockid);
	assert_int_equal(run_at(&x, q, now + ms - 1), REQ_PARK);
	assert_int_equal(run_at(&x, q, now + ms), 0);
	assert_false(((Hd__CompleteResponseProto *)q->out)->result); /* ask again */
	req_finish(q);
	writer_fini(&x);
}

/* How many of 40 blocks are placed on the writer's own node. */
static int count_local(struct writer *x)
{
	struct req *q = req_new(x->w.nn, find_method(&client_write_methods, "addBlock"), NULL);
	int n = 0;

	for (int i = 0; i < 40; i++) {
		const Hd__AddBlockResponseProto *r;

		assert_int_equal(run_at(x, q, clock_mono_ns()), 0);
		r = (const void *)q->out;
		assert_int_equal(r->block->n_locs, 1);
		n += !strcmp(r->block->locs[0]->id->datanodeuuid, "dn2");
	}
	req_finish(q);
	return n;
}

static void a_block_is_placed_on_the_writers_node_unless_it_asks_for_another(void **state)
{
	Hd__AddBlockFlagProto flag = HD__ADD_BLOCK_FLAG_PROTO__NO_LOCAL_WRITE;
	struct writer x;

	(void)state;
	writer_init(&x, 1, NULL);
	nn_stop(x.w.nn);
	name_last(&x, FULL_BLOCK);
	assert_int_equal(count_local(&x), 40);
	x.r.add.flags = &flag;
	x.r.add.n_flags = 1;
	assert_in_range(count_local(&x), 0, 39);
	flag = HD__ADD_BLOCK_FLAG_PROTO__IGNORE_CLIENT_LOCALITY;
	assert_in_range(count_local(&x), 0, 39);
	writer_fini(&x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(complete_commits_no_more_than_a_block),
		cmocka_unit_test(addblock_commits_no_more_than_a_block),
		cmocka_unit_test(addblock_commits_no_more_than_a_group),
		cmocka_unit_test(fsync_takes_no_more_than_a_block),
		cmocka_unit_test(a_pipeline_is_updated_to_no_more_than_a_block),
		cmocka_unit_test(a_pipeline_has_the_nodes_that_are_still_to_register),
		cmocka_unit_test(an_append_goes_on_where_the_replicas_are_good),
		cmocka_unit_test(a_client_commits_its_last_block_with_the_stamp_it_was_given),
		cmocka_unit_test(addblock_that_is_sent_again_has_the_same_answer),
		cmocka_unit_test(a_block_is_placed_on_the_writers_node_unless_it_asks_for_another),
		cmocka_unit_test(addblock_is_answered_when_the_block_before_the_last_is_reported),
		cmocka_unit_test(addblock_is_refused_when_its_time_is_over),
		cmocka_unit_test(a_wait_lasts_its_time_to_the_nanosecond),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
