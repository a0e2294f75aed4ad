/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a change sees the changes before it in its batch, though memory does not know
 * them yet: of two writers one gets the file, and a file that is written again is not closed over
 * its writer's open block. A change is answered, and memory learns of it, when the disk has it,
 * though readers may see it sooner and the next one is applied meanwhile. But for an early
 * creation, or the early end of a file, which no other answer overtakes. What was under way goes on
 * after a restart. */
#include "namenode-shim/namespace/under_construction.h"
#include "namenode-shim/rpc/batch_test_fixture.h"

static atomic_uint recoveries; /* that were asked for */

struct req *__real_req_new(struct nn *nn, const struct method *m, struct rpc_call *call);
struct req *__wrap_req_new(struct nn *nn, const struct method *m, struct rpc_call *call);
struct req *__wrap_req_new(struct nn *nn, const struct method *m, struct rpc_call *call)
{
	recoveries += m == &file_recover_method;
	return __real_req_new(nn, m, call);
}

static bool readers_see(struct world *w, uint64_t key)
{
	MDB_val v;
	int rc;

	assert_int_equal(txn_read_begin(&w->nn->reader), 0);
	rc = txn_get(&w->nn->reader, w->nn->db->quota, &key, sizeof(key), &v);
	txn_read_end(&w->nn->reader);
	return !rc;
}

static int run_early(struct req *q, const void *in)
{
	q->early = true;
	return run_put(q, in);
}

static int run_close(struct req *q, const void *in)
{
	struct effect *e = ns_effect(&q->ns, EFFECT_LEASE_DEL);
	const uint64_t key = q->arg;

	(void)in;
	e->inode = q->arg;
	e->holder = "somebody";
	ns_effect(&q->ns, EFFECT_BLOCK_COMMIT);
	ns_effect(&q->ns, EFFECT_BLOCK_CLOSED);
	q->early = effects_only_close(&q->effects);
	return txn_put(q->ns.t, q->nn->db->quota, &key, sizeof(key), "y", 1);
}

static int run_nothing(struct req *q, const void *in)
{
	(void)q, (void)in;
	puts_run++;
	return 0;
}

static void what_is_early_is_answered_before_the_disk_has_it_and_nothing_behind_it(void **state)
{
	static const struct method early = {.name = "early", .kind = REQ_CHANGE, .run = run_early};
	static const struct method close = {.name = "close", .kind = REQ_CHANGE, .run = run_close};
	static const struct method nothing = {
		.name = "nothing", .kind = REQ_CHANGE, .run = run_nothing};
	struct call_stat stat = {.name = "put"}, made = {.name = "early"};
	struct world w;
	uint64_t key = 1000000;
	unsigned int before;

	(void)state;
	world_init(&w, false);
	assert_int_equal(nn_start(w.nn), 0);
	put_until_journal(&w, &key, &stat);

	gate_is_shut = true;
	stat.calls = 0;
	before = syncs;
	submit(&w, &early, key, &made);
	wait_for_calls(&made, 1);
	assert_true(readers_see(&w, key));
	assert_int_equal(leases_find(&w.nn->leases, "somebody")->ninodes, key + 1 - 1000000);
	for (int ms = 0; syncs == before; ms++) { /* though nobody waits, it is on its way soon */
		assert_true(ms < 10000);
		(void)poll(NULL, 0, 1);
	}
	gate_is_shut = false;
	submit_put(&w, key + 1, &stat);
	wait_for_calls(&stat, 1);

	gate_is_shut = true; /* likewise the end of a file */
	before = leases_find(&w.nn->leases, "somebody")->ninodes;
	submit(&w, &close, key, &made);
	wait_for_calls(&made, 2);
	assert_int_equal(leases_find(&w.nn->leases, "somebody")->ninodes, before - 1);
	submit_put(&w, key + 3, &stat);
	(void)poll(NULL, 0, 50);
	assert_int_equal(stat.calls, 1);
	gate_is_shut = false;
	wait_for_calls(&stat, 2);

	gate_is_shut = true; /* a change without changes waits, too: it may be somebody's fsync */
	submit(&w, &early, key + 2, &made);
	wait_for_calls(&made, 3);
	puts_run = 0;
	submit(&w, &nothing, 0, &stat);
	wait_for(&puts_run, 1);
	(void)poll(NULL, 0, 50);
	assert_int_equal(stat.calls, 2);
	gate_is_shut = false;
	wait_for_calls(&stat, 3);
	nn_stop(w.nn);
	world_fini(&w);
}

static void nobody_is_answered_before_the_disk_has_it(void **state)
{
	struct call_stat stat = {.name = "put"};
	struct world w;
	uint64_t key = 1000000;

	(void)state;
	world_init(&w, false);
	assert_int_equal(nn_start(w.nn), 0);
	put_until_journal(&w, &key, &stat);

	gate_is_shut = true;
	stat.calls = puts_run = 0;
	submit_put(&w, key, &stat);
	while (!readers_see(&w, key)) /* readers may */
		(void)poll(NULL, 0, 1);
	submit_put(&w, key + 1, &stat); /* the next batch, which is applied meanwhile */
	submit_put(&w, key + 2, &stat);
	wait_for(&puts_run, 3);
	(void)poll(NULL, 0, 50);
	assert_int_equal(stat.calls, 0);
	assert_int_equal(leases_find(&w.nn->leases, "somebody")->ninodes, key - 1000000);
	assert_false(readers_see(&w, key + 1));
	gate_is_shut = false;
	wait_for_calls(&stat, 3);
	nn_stop(w.nn);
	assert_int_equal(leases_find(&w.nn->leases, "somebody")->ninodes, key + 3 - 1000000);
	world_fini(&w);
}

static void run_calls(struct world *w)
{
	for (uint64_t i = 0; i < CALLS && calls[i].method; i++)
		submit(w, &call_method, i, NULL);
	run(w);
}

static void one_of_two_writers_gets_the_file(void **state)
{
	Hd__AppendRequestProto a = HD__APPEND_REQUEST_PROTO__INIT, b = a;
	struct world w;

	(void)state;
	world_init(&w, false);
	a.src = b.src = (char *)(uintptr_t) "/f";
	a.clientname = (char *)(uintptr_t) "a";
	b.clientname = (char *)(uintptr_t) "b";
	calls[0].method = calls[1].method = "append";
	calls[0].msg = &a;
	calls[1].msg = &b;
	run_calls(&w);
	assert_int_equal(calls[0].rc, 0);
	assert_true(calls[1].rc < 0);
	assert_string_equal(read_file(&w)->client, "a");
	world_fini(&w);
}

static void a_file_written_again_is_not_closed_at_once(void **state)
{
	Hd__AppendRequestProto a = HD__APPEND_REQUEST_PROTO__INIT;
	Hd__RecoverLeaseRequestProto r = HD__RECOVER_LEASE_REQUEST_PROTO__INIT;
	const struct blk *b;
	struct world w;

	(void)state;
	world_init(&w, true);
	report(&w);
	a.src = r.src = (char *)(uintptr_t) "/f";
	a.clientname = (char *)(uintptr_t) "a";
	r.clientname = (char *)(uintptr_t) "b";
	calls[0].method = "append";
	calls[1].method = "recoverLease";
	calls[0].msg = &a;
	calls[1].msg = &r;
	run_calls(&w);
	assert_int_equal(calls[0].rc, 0);
	assert_int_equal(calls[1].rc, 0);
	assert_false(calls[1].result);
	b = blocks_find(&w.nn->blocks, w.block.id);
	assert_int_equal(b->state, BLK_OPEN);
	assert_true(b->open->recovery_id > 0);
	assert_string_equal(read_file(&w)->client, LEASE_NAMENODE);
	world_fini(&w);
}

static bool is_recovered;

static void look_for_recovery(struct world *w)
{
	const struct blk *b = blocks_find(&w->nn->blocks, w->block.id);

	is_recovered = b->open && b->open->recovery_id;
}

/* It went round, with a line in the log each time, for as long as the disk took. */
static void a_recovery_waits_for_the_disk_and_is_not_asked_for_meanwhile(void **state)
{
	Hd__AppendRequestProto a = HD__APPEND_REQUEST_PROTO__INIT;
	Hd__RecoverLeaseRequestProto r = HD__RECOVER_LEASE_REQUEST_PROTO__INIT;
	struct call_stat stat = {.name = "put"};
	uint64_t key = 1000000;
	struct world w;

	(void)state;
	world_init(&w, true);
	report(&w);
	a.src = r.src = (char *)(uintptr_t) "/f";
	a.clientname = (char *)(uintptr_t) "a";
	r.clientname = (char *)(uintptr_t) "b";
	calls[0].method = "append";
	calls[1].method = "recoverLease";
	calls[0].msg = &a;
	calls[1].msg = &r;
	assert_int_equal(nn_start(w.nn), 0);
	put_until_journal(&w, &key, &stat);
	gate_is_shut = true;
	recoveries = 0;
	submit(&w, &call_method, 0, &stat);
	submit(&w, &call_method, 1, &stat);
	wait_for(&calls_run, 2);
	wait_for(&recoveries, 1);
	(void)poll(NULL, 0, 50);
	assert_int_equal(recoveries, 1);
	gate_is_shut = false;
	do
		on_writer(&w, look_for_recovery);
	while (!is_recovered);
	nn_stop(w.nn);
	assert_string_equal(read_file(&w)->client, LEASE_NAMENODE);
	world_fini(&w);
}

static void the_holder_cannot_end_a_block_that_is_recovered(void **state)
{
	struct recovered r;
	const struct blk *b;
	struct world w;

	(void)state;
	world_init(&w, true);
	report(&w);
	w.st->remaining = w.st->capacity = 1ull << 40;
	recovered_init(&w, &r);
	assert_int_equal(nn_start(w.nn), 0);
	call_in_turn(&w, 0, "append", &r.append);
	call_in_turn(&w, 1, "recoverLease", &r.recover);
	b = blocks_find(&w.nn->blocks, w.block.id);
	r.synced.newgenstamp = b->open->recovery_id;
	assert_true(r.synced.newgenstamp > w.block.gs);
	call_in_turn(&w, 2, "complete", &r.complete);
	call_in_turn(&w, 3, "addBlock", &r.add);
	call_in_turn(&w, 4, "commitBlockSynchronization", &r.synced);
	nn_stop(w.nn);
	assert_true(calls[2].rc < 0);
	assert_true(calls[3].rc < 0);
	assert_int_equal(calls[4].rc, 0);
	assert_int_equal(read_file(&w)->blocks[0].b.gs, r.synced.newgenstamp);
	assert_string_equal(read_file(&w)->client, "");
	assert_int_equal(b->state, BLK_COMPLETE);
	assert_int_equal(blk_live(b), 1);
	world_fini(&w);
}

/* Memory does not know of the recovery yet. */
static void the_holder_cannot_end_a_block_whose_recovery_began_in_the_same_batch(void **state)
{
	struct recovered r;
	const struct blk *b;
	struct world w;

	(void)state;
	for (int how = 0; how < 3; how++) {
		const bool add = how == 1;

		world_init(&w, true);
		report(&w);
		w.st->remaining = w.st->capacity = 1ull << 40;
		b = blocks_find(&w.nn->blocks, w.block.id);
		recovered_init(&w, &r);
		calls[0].method = "truncate"; /* which is such a recovery */
		calls[0].msg = &(Hd__TruncateRequestProto){
			PROTOBUF_C_MESSAGE_INIT(&hd__truncate_request_proto__descriptor),
			.src = r.append.src, .newlength = FILE_LEN - 1,
			.clientname = r.append.clientname};
		if (how == 2)
			r.complete.last = NULL; /* answered false */
		calls[1].method = add ? "addBlock" : "complete";
		calls[1].msg = add ? (void *)&r.add : &r.complete;
		run_calls(&w);
		assert_int_equal(calls[0].rc, 0);
		assert_int_equal(calls[1].rc < 0, how < 2);
		assert_true(b->open->recovery_id > 0);
		assert_string_equal(read_file(&w)->client, "a");
		world_fini(&w);
	}
}

static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

/* Its blocks are on the disk still as those of a file, when the machine dies. */
static void an_overwritten_file_has_its_blocks_until_the_disk_has_the_new_one(void **state)
{
	Hd__CreateRequestProto m[2] = {HD__CREATE_REQUEST_PROTO__INIT,
				       HD__CREATE_REQUEST_PROTO__INIT};
	Hd__FsPermissionProto mode = HD__FS_PERMISSION_PROTO__INIT;
	struct call_stat put = {.name = "put"}, early = {.name = "call"}, late = early;
	uint64_t key = 1000000, answered;
	uint32_t deleted;
	struct world w;

	(void)state;
	world_init(&w, true);
	report(&w);
	mode.perm = 0644;
	for (int i = 0; i < 2; i++) {
		m[i].src = text(i ? "/f" : "/g");
		m[i].clientname = text("a");
		m[i].masked = &mode;
		m[i].createflag = HD__CREATE_FLAG_PROTO__CREATE | HD__CREATE_FLAG_PROTO__OVERWRITE;
		m[i].replication = 1;
		m[i].blocksize = FULL_BLOCK;
		m[i].has_early = m[i].early = 1;
		calls[i].method = "create";
		calls[i].msg = &m[i];
	}
	assert_int_equal(nn_start(w.nn), 0);
	put_until_journal(&w, &key, &put);
	gate_is_shut = true;
	submit(&w, &call_method, 0, &early);
	wait_for_calls(&early, 1); /* there was no such file */
	submit(&w, &call_method, 1, &late);
	wait_for(&calls_run, 2);
	(void)poll(NULL, 0, 50);
	answered = late.calls;
	deleted = w.st->dn->ninval;
	gate_is_shut = false;
	assert_int_equal(answered, 0);
	assert_int_equal(deleted, 0);
	wait_for_calls(&late, 1);
	assert_int_equal(calls[0].rc, 0);
	assert_int_equal(calls[1].rc, 0);
	nn_stop(w.nn);
	assert_int_equal(w.st->dn->ninval, 1);
	world_fini(&w);
}

static uint64_t recovery_id;

static void look_for_recovery_id(struct world *w)
{
	recovery_id = blocks_find(&w->nn->blocks, w->block.id)->open->recovery_id;
}

/* Though its client, whose lease is good for long, says nothing more. */
static void a_truncate_goes_on_after_a_restart(void **state)
{
	Hd__TruncateRequestProto cut = HD__TRUNCATE_REQUEST_PROTO__INIT;
	const struct blk *b;
	struct world w;

	(void)state;
	world_init(&w, true);
	report(&w);
	cut.src = text("/f");
	cut.clientname = text("a");
	cut.newlength = FILE_LEN - 1;
	calls[0].method = "truncate";
	calls[0].msg = &cut;
	run_calls(&w);
	assert_int_equal(calls[0].rc, 0);
	nn_free(w.nn);
	conf_set(w.conf, "dfs.shim.block.recovery.interval", "1");
	start(&w);
	report(&w);
	assert_int_equal(nn_start(w.nn), 0);
	recovery_id = 0;
	for (int ms = 0; recovery_id <= w.block.gs; ms++) {
		assert_true(ms < 5000);
		(void)poll(NULL, 0, 1);
		on_writer(&w, look_for_recovery_id);
	}
	nn_stop(w.nn);
	b = blocks_find(&w.nn->blocks, w.block.id);
	assert_int_equal(b->open->truncate_to, FILE_LEN - 1);
	assert_false(list_empty(&w.st->dn->recoveries));
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_of_two_writers_gets_the_file),
		cmocka_unit_test(nobody_is_answered_before_the_disk_has_it),
		cmocka_unit_test(
			what_is_early_is_answered_before_the_disk_has_it_and_nothing_behind_it),
		cmocka_unit_test(a_file_written_again_is_not_closed_at_once),
		cmocka_unit_test(a_recovery_waits_for_the_disk_and_is_not_asked_for_meanwhile),
		cmocka_unit_test(the_holder_cannot_end_a_block_that_is_recovered),
		cmocka_unit_test(
			the_holder_cannot_end_a_block_whose_recovery_began_in_the_same_batch),
		cmocka_unit_test(an_overwritten_file_has_its_blocks_until_the_disk_has_the_new_one),
		cmocka_unit_test(a_truncate_goes_on_after_a_restart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
