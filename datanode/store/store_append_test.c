/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a replica changes state by the rules of hdfs-wire 5.5 and 6, when it is appended
 * to, when its pipeline is recovered or closed, and when it is deleted meanwhile. */
#include "common/base/log.h"
#include "common/base/metrics.h"

#include "datanode/store/store_test_blocks.h"

static void an_append_moves_the_block_to_rbw_at_the_new_stamp(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(5, 1001);
	struct replica_writer *w = NULL;

	make_finalized(f, 5, 1001, 700);
	q.stage = STAGE_APPEND;
	q.new_gs = 1002;
	q.min_bytes = 600;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), -EINVAL);
	assert_readable(f, 5, 1001, 700);
	q.min_bytes = 700;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	assert_int_equal(w->start_len, 700);
	assert_int_equal(w->block.gs, 1002);
	assert_state(f, 5, REPLICA_RBW, 1002, 700);
	put_bytes(w, 700, 1500);
	assert_int_equal(replica_finalize(w, 1500, SYNC_NOW, NULL, &f->err), 0);
	assert_readable(f, 5, 1002, 1500);
	fix_reopen(f);
	assert_readable(f, 5, 1002, 1500);
}

/* Clients in Go and Rust do so; a Java DataNode refuses only a smaller one. */
static void an_append_with_the_stamp_that_the_block_has_is_taken(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(5, 1001);
	struct replica_writer *w = NULL;

	make_finalized(f, 5, 1001, 700);
	q.stage = STAGE_APPEND;
	q.min_bytes = 700;
	q.new_gs = 1000;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), -EINVAL);
	q.new_gs = 1001;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	assert_state(f, 5, REPLICA_RBW, 1001, 700);
	put_bytes(w, 700, 1500);
	assert_int_equal(replica_finalize(w, 1500, SYNC_NOW, NULL, &f->err), 0);
	assert_readable(f, 5, 1001, 1500);
	fix_reopen(f);
	assert_readable(f, 5, 1001, 1500);
}

static void stop_writer(void *arg, int why)
{
	(void)why;
	atomic_store((atomic_bool *)arg, true);
}

struct stopper {
	atomic_bool asked;
	struct replica_writer *w;
};

static void *stopper_thread(void *arg)
{
	struct stopper *st = arg;

	while (!atomic_load(&st->asked))
		nap();
	replica_write_close(st->w, false);
	return NULL;
}

static void streaming_recovery_stops_the_old_writer_and_cuts_to_acked(void **state)
{
	struct fix *f = *state;
	struct stopper st = {false, NULL};
	struct write_request q = create_request(5, 1001);
	struct replica_writer *w = NULL;
	pthread_t t;

	q.stop = stop_writer;
	q.stop_arg = &st.asked;
	assert_int_equal(replica_write_open(f->bp, &q, &st.w, &f->err), 0);
	put_bytes(st.w, 0, 1700);
	replica_publish(st.w, 1700, 1700, 900, 0);
	pthread_create(&t, NULL, stopper_thread, &st);
	q.stage = STAGE_STREAMING_RECOVERY;
	q.new_gs = 1005;
	q.min_bytes = 900;
	q.max_bytes = 1700;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	pthread_join(t, NULL);
	assert_int_equal(w->start_len, 900);
	put_bytes(w, 900, 1000);
	assert_int_equal(replica_finalize(w, 1000, SYNC_NEVER, NULL, &f->err), 0);
	assert_readable(f, 5, 1005, 1000);
}

struct rivals { /* of one replica */
	struct fix *f;
	int delete_rc, replace_rc;
	bool stopped; /* the writer of the new replica was asked to stop */
};

static void *invalidate_thread(void *arg)
{
	struct rivals *r = arg;

	r->delete_rc = replica_invalidate(r->f->bp, &(struct block){5, 1001, 0}, true);
	return NULL;
}

static void *replace_thread(void *arg)
{
	struct rivals *r = arg;
	struct write_request q = create_request(5, 1002);
	struct stopper late = {false, NULL};
	struct err err = ERR_INIT;

	q.from_client = false;
	q.stop = stop_writer;
	q.stop_arg = &late.asked;
	r->replace_rc = replica_write_open(r->f->bp, &q, &late.w, &err);
	if (r->replace_rc < 0)
		return NULL;
	for (int i = 0; i < 20; i++)
		nap();
	r->stopped = atomic_load(&late.asked);
	r->replace_rc = replica_finalize(late.w, 0, SYNC_NEVER, NULL, &err);
	return NULL;
}

/* A NameNode that orders a copy of a newer stamp has the older replica deleted at the same time. */
static void an_order_to_delete_stops_no_writer_of_a_newer_stamp(void **state)
{
	struct fix *f = *state;

	for (int round = 0; round < 30; round++) {
		struct rivals r = {.f = f};
		struct stopper st = {false, NULL};
		struct write_request q = create_request(5, 1001);
		pthread_t t[2];
		uint32_t waiting = 0;

		q.stop = stop_writer;
		q.stop_arg = &st.asked;
		assert_int_equal(replica_write_open(f->bp, &q, &st.w, &f->err), 0);
		assert_int_equal(pthread_create(&t[0], NULL, replace_thread, &r), 0);
		assert_int_equal(pthread_create(&t[1], NULL, invalidate_thread, &r), 0);
		while (waiting < 2) {
			nap();
			pthread_mutex_lock(&f->bp->lock);
			waiting = f->bp->slices[0].waiters;
			pthread_mutex_unlock(&f->bp->lock);
		}
		replica_write_close(st.w, false);
		pthread_join(t[0], NULL);
		pthread_join(t[1], NULL);
		assert_false(r.stopped);
		assert_int_equal(r.replace_rc, 0);
		assert_true(r.delete_rc == 0 || r.delete_rc == -ESTALE || r.delete_rc == -ENOENT);
		assert_readable(f, 5, 1002, 0);
		assert_int_equal(replica_invalidate(f->bp, &(struct block){5, 1002, 0}, true), 0);
		while (replica_get(f->bp, 5, &(struct replica_info){0}) == 0)
			nap();
	}
}

static int count_replicas(void *arg, const struct replica_info *i)
{
	(void)i;
	++*(int *)arg;
	return 0;
}

/* A NameNode that is started anew would count on it, and may have others deleted. */
static void what_is_to_be_deleted_once_nobody_uses_it_is_in_no_report(void **state)
{
	struct fix *f = *state;
	struct stopper st = {false, NULL};
	struct write_request q = create_request(5, 1001);
	int n = 0;

	q.stop = stop_writer;
	q.stop_arg = &st.asked;
	assert_int_equal(replica_write_open(f->bp, &q, &st.w, &f->err), 0);
	assert_int_equal(store_each(f->bp, 0, count_replicas, &n), 0);
	assert_int_equal(n, 1);
	assert_int_equal(replica_invalidate(f->bp, &(struct block){5, 1001, 0}, true), 0);
	assert_int_equal(store_each(f->bp, 0, count_replicas, &n), 0);
	assert_int_equal(n, 1);
	while (!atomic_load(&st.asked))
		nap();
	replica_write_close(st.w, false);
	fix_wait_gone(f, 5);
}

static void close_recovery_finalizes_at_the_new_stamp(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(5, 1001);
	struct replica_writer *w = make_rbw(f, 5, 1001, 800);

	replica_write_close(w, false);
	q.stage = STAGE_CLOSE_RECOVERY;
	q.new_gs = 1003;
	q.min_bytes = 800;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	assert_null(w);
	assert_readable(f, 5, 1003, 800);
	assert_int_equal(f->seen.received, 1);
}

static void a_temporary_replica_is_invisible_and_goes_when_dropped(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(5, 1001);
	struct replica_writer *w = NULL;
	struct replica_reader *r;
	struct replica_info i;
	struct block b = {5, 0, 0};

	q.from_client = false;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	put_bytes(w, 0, 600);
	assert_int_equal(replica_read_open(f->bp, &b, &r, &f->err), -ENOENT);
	replica_write_close(w, false);
	assert_int_equal(replica_get(f->bp, 5, &i), -ENOENT);
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	put_bytes(w, 0, 600);
	replica_write_close(w, true);
	assert_state(f, 5, REPLICA_RBW, 1001, 600);
	q.block.id = 6;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	put_bytes(w, 0, 600);
	assert_int_equal(replica_finalize(w, 600, SYNC_NEVER, "hint", &f->err), 0);
	assert_readable(f, 6, 1001, 600);
}

/* ---- volumes ---- */

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(an_append_moves_the_block_to_rbw_at_the_new_stamp),
		T(an_append_with_the_stamp_that_the_block_has_is_taken),
		T(streaming_recovery_stops_the_old_writer_and_cuts_to_acked),
		T(an_order_to_delete_stops_no_writer_of_a_newer_stamp),
		T(what_is_to_be_deleted_once_nobody_uses_it_is_in_no_report),
		T(close_recovery_finalizes_at_the_new_stamp),
		T(a_temporary_replica_is_invisible_and_goes_when_dropped),
	};

	log_init("store_append_test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
