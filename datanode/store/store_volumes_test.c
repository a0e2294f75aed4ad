/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: blocks spread over the directories of a node and may be pinned to one; a
 * directory that is full, fails or vanishes leaves the others in service; and what waits for one
 * disk holds up no other. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"

#include "datanode/store/store_test_blocks.h"

static bool has_sticky_bit(struct fix *f, int64_t id)
{
	struct replica_reader *r = NULL;
	struct stat st;

	assert_int_equal(
		replica_read_open(f->bp, &(struct block){id, BLOCK_GS_ANY, 0}, &r, &f->err), 0);
	assert_int_equal(fstat(r->fd, &st), 0);
	replica_read_close(r);
	return st.st_mode & S_ISVTX;
}

static void make_pinned(struct fix *f, int64_t id)
{
	struct write_request q = create_request(id, 1001);
	struct replica_writer *w = NULL;

	q.pin = true;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	put_bytes(w, 0, 1000);
	assert_int_equal(replica_finalize(w, 1000, SYNC_NEVER, NULL, &f->err), 0);
}

static void a_pin_is_kept_by_restarts_and_moves_between_volumes(void **state)
{
	struct fix *f = *state;
	struct block b = {5, 1001, 1000};

	make_pinned(f, 5); /* pinning is off */
	assert_false(has_sticky_bit(f, 5) || replica_is_pinned(f->bp, 5));
	assert_int_equal(replica_invalidate(f->bp, &b, false), 0);
	while (f->seen.deleted < 1)
		nap();
	f->opts.pinning = true;
	fix_reopen(f);
	make_pinned(f, 5);
	make_finalized(f, 6, 1001, 1000);
	assert_true(has_sticky_bit(f, 5) && replica_is_pinned(f->bp, 5));
	assert_false(has_sticky_bit(f, 6) || replica_is_pinned(f->bp, 6) ||
		     replica_is_pinned(f->bp, 7));
	fix_reopen(f);
	assert_true(replica_is_pinned(f->bp, 5));
	assert_int_equal(fix_move(f, &b, STORAGE_SSD), 0);
	assert_true(has_sticky_bit(f, 5) && replica_is_pinned(f->bp, 5));
	fix_reopen(f);
	assert_true(replica_is_pinned(f->bp, 5));
	assert_readable(f, 5, 1001, 1000);
	f->opts.pinning = false;
	fix_reopen(f);
	assert_false(replica_is_pinned(f->bp, 5));
}

/* ---- volumes ---- */

static int count_one(void *arg, const struct replica_info *i)
{
	(void)i;
	(*(int *)arg)++;
	return 0;
}

static void blocks_spread_over_volumes_and_follow_the_storage_type(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(50, 1);
	struct replica_writer *w;
	struct storage_info a, b;
	int n0 = 0, n1 = 0;

	for (int i = 0; i < 8; i++)
		make_finalized(f, i, 1001, 10);
	q.storage_type = STORAGE_SSD;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	store_volume_info(f->s, 1, f->bp, &b);
	assert_string_equal(w->storage_uuid, b.uuid);
	assert_true(b.capacity - b.remaining >= 1 << 20); /* room is promised to the writer */
	replica_write_close(w, false);
	store_volume_info(f->s, 0, f->bp, &a);
	assert_int_equal(a.blocks, 8);
	assert_int_equal(store_each(f->bp, 0, count_one, &n0), 0);
	assert_int_equal(store_each(f->bp, 1, count_one, &n1), 0);
	assert_int_equal(n0, 8);
	assert_int_equal(n1, 1);
}

static void a_full_disk_is_told_with_numbers(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(50, 1);
	struct replica_writer *w;

	q.block.len = 1ull << 60;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), -ENOSPC);
	assert_non_null(strstr(f->err.text, "1152921504606846976"));
	assert_null(strstr(f->err.text, "open blocks"));
}

/* However little they write, as in HDFS. */
static void a_full_disk_tells_of_the_room_that_writers_keep(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(50, 1);
	struct replica_writer *w[2], *v;
	struct storage_info before, during;

	store_volume_info(f->s, 0, f->bp, &before);
	for (int i = 0; i < 2; i++) {
		q.block.id = 50 + i;
		assert_int_equal(replica_write_open(f->bp, &q, &w[i], &f->err), 0);
	}
	q.block = (struct block){.id = 60, .gs = 1, .len = 1ull << 60};
	assert_int_equal(replica_write_open(f->bp, &q, &v, &f->err), -ENOSPC);
	assert_non_null(strstr(f->err.text, "2 MiB are kept for 2 open blocks"));
	for (int i = 0; i < 2; i++)
		replica_write_close(w[i], false);
	assert_int_equal(replica_write_open(f->bp, &q, &v, &f->err), -ENOSPC);
	assert_null(strstr(f->err.text, "open blocks"));
	store_volume_info(f->s, 0, f->bp, &during);
	assert_int_equal(during.promised, before.promised);
}

static void of_two_replicas_on_two_volumes_the_newer_stays(void **state)
{
	struct fix *f = *state;
	struct storage_info b;
	struct replica_info i;
	char cmd[1500];

	make_finalized(f, 5, 1001, 1000);
	(void)snprintf(
		cmd, sizeof(cmd),
		"mkdir -p %s/current/%s/current/finalized/subdir0/subdir0 && "
		"cp %s/current/%s/current/finalized/subdir0/subdir0/blk_5 %s/current/%s/current/finalized/subdir0/subdir0/blk_5 && "
		"cp %s/current/%s/current/finalized/subdir0/subdir0/blk_5_1001.meta %s/current/%s/current/finalized/subdir0/subdir0/blk_5_1002.meta",
		f->vol[1], NS.pool_id, f->vol[0], NS.pool_id, f->vol[1], NS.pool_id, f->vol[0],
		NS.pool_id, f->vol[1], NS.pool_id);
	assert_int_equal(system(cmd), 0);
	fix_reopen(f);
	store_volume_info(f->s, 1, f->bp, &b);
	assert_int_equal(replica_get(f->bp, 5, &i), 0);
	assert_string_equal(i.storage_uuid, b.uuid);
	assert_readable(f, 5, 1002, 1000);
}

static void a_dead_volume_goes_out_of_service_and_the_others_stay(void **state)
{
	const struct block five = {5, 1001, 1000};
	struct fix *f = *state;
	struct storage_info a, b;
	struct replica_info i;
	char cmd[512];
	struct write_request q = create_request(50, 1);
	struct replica_writer *w;

	make_finalized(f, 5, 1001, 1000);
	q.storage_type = STORAGE_SSD;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	put_bytes(w, 0, 10);
	assert_int_equal(replica_finalize(w, 10, SYNC_NEVER, NULL, &f->err), 0);
	store_volume_info(f->s, 0, f->bp, &a);
	store_volume_info(f->s, 1, f->bp, &b);
	store_volume_suspect(f->s, a.uuid);
	assert_int_equal(f->seen.failed, 0);
	(void)snprintf(cmd, sizeof(cmd), "mv %s/current %s/gone", f->vol[0], f->vol[0]);
	assert_int_equal(system(cmd), 0);
	store_volume_suspect(f->s, a.uuid);
	assert_int_equal(f->seen.failed, 1);
	assert_int_equal(replica_get(f->bp, 5, &i), -ENOENT);
	/* nobody drops it by our word: it may come back, and a newer one is not there */
	assert_int_equal(replica_init_recovery(f->bp, &five, 1010, &i, &f->err), -EIO);
	assert_int_equal(
		replica_init_recovery(f->bp, &(struct block){7, 1002, 0}, 1010, &i, &f->err),
		-ENOENT);
	assert_readable(f, 50, 1, 10);
	make_finalized(f, 6, 1001, 1000);
	assert_int_equal(replica_get(f->bp, 6, &i), 0);
	assert_string_equal(i.storage_uuid, b.uuid);
}

/* Removes @dir with all that is in it. */
static void remove_dir(const char *dir)
{
	char cmd[512];

	(void)snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	assert_int_equal(system(cmd), 0);
}

static void writers_of_a_directory_that_vanished_go_to_the_others(void **state)
{
	struct fix *f = *state;

	f->type[1] = STORAGE_DISK;
	fix_reopen(f);
	make_finalized(f, 5, 1001, 100);
	make_finalized(f, 6, 1001, 100);
	remove_dir(f->vol[0]);
	for (int64_t id = 10; id < 16; id++) {
		make_finalized(f, id, 1001, 100); /* whichever one's turn it is */
		assert_readable(f, id, 1001, 100);
	}
	assert_int_equal(f->seen.failed, 1);
	assert_int_equal(store_failed_count(f->s), 1);
}

static void a_directory_that_vanished_is_a_failed_volume_at_once(void **state)
{
	struct fix *f = *state;
	const uint64_t before = metric_get(METRIC_DN_VOLUME_FAILURES);
	struct storage_info a;
	int ms = 0;

	remove_dir(f->vol[0]); /* nobody reads or writes */
	for (; !f->seen.failed && ms < 20000; ms += 10)
		nanosleep(&(struct timespec){0, 10000000}, NULL);
	store_volume_info(f->s, 0, f->bp, &a);
	assert_true(a.failed);
	assert_int_equal(a.capacity, 0);
	assert_int_equal(metric_get(METRIC_DN_VOLUME_FAILURES), before + 1);
}

/* a writer that waits until an older one of its block, on the other volume, has gone */
struct joiner {
	struct fix *f;
	struct replica_writer *w;
	int rc;
};

static void *joiner_thread(void *arg)
{
	struct joiner *j = arg;
	struct write_request q = create_request(5, 1001);
	struct err err = ERR_INIT;

	q.new_gs = 1002;
	j->rc = replica_write_open(j->f->bp, &q, &j->w, &err);
	return NULL;
}

static void a_writer_does_not_join_a_volume_that_went_out_of_service_meanwhile(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(5, 1001);
	struct joiner j = {.f = f};
	struct replica_writer *old = NULL;
	struct storage_info a;
	bool waiting = false;
	char cmd[512];
	pthread_t t;

	store_volume_info(f->s, 0, f->bp, &a);
	q.storage_type = STORAGE_SSD;
	assert_int_equal(replica_write_open(f->bp, &q, &old, &f->err), 0);
	/* it has chosen the first volume */
	assert_int_equal(pthread_create(&t, NULL, joiner_thread, &j), 0);
	while (!waiting) {
		nap();
		pthread_mutex_lock(&f->bp->lock);
		waiting = f->bp->slices[1].waiters;
		pthread_mutex_unlock(&f->bp->lock);
	}
	(void)snprintf(cmd, sizeof(cmd), "mv %s %s.gone", f->vol[0],
		       f->vol[0]); /* open directories serve on */
	assert_int_equal(system(cmd), 0);
	store_volume_suspect(f->s, a.uuid);
	assert_int_equal(f->seen.failed, 1);
	replica_write_close(old, false);
	pthread_join(t, NULL);
	assert_int_equal(j.rc, 0);
	assert_int_equal(j.w->volume, 1);
	put_bytes(j.w, 0, 100);
	assert_int_equal(replica_finalize(j.w, 100, SYNC_NEVER, NULL, &f->err), 0);
	assert_readable(f, 5, 1002, 100);
}

/* It was chosen for a new replica a moment before. */
static void a_volume_that_went_out_of_service_meanwhile_takes_no_new_replica(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(5, 1001);
	struct replica_writer *w = NULL;
	struct storage_info a;
	char cmd[512];

	store_volume_info(f->s, 0, f->bp, &a);
	assert_int_equal(replica_write_volume(f->bp, &q), 0);
	(void)snprintf(cmd, sizeof(cmd), "mv %s %s.gone", f->vol[0], f->vol[0]);
	assert_int_equal(system(cmd), 0);
	store_volume_suspect(f->s, a.uuid);
	assert_int_equal(f->seen.failed, 1);
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), REPLICA_ELSEWHERE);
	assert_null(w);
	assert_int_equal(replica_write_volume(f->bp, &q), 1);
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	assert_int_equal(w->volume, 1);
	replica_write_close(w, false);
}

/* Each step of an opening asks the disk whose number replica_write_volume() has said, and no other
 * one. */
static void a_replica_is_opened_step_by_step_where_its_disk_is(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(5, 1001);
	struct replica_writer *w = NULL;
	struct replica_info i;
	char cmd[512];

	q.storage_type = STORAGE_SSD;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	assert_int_equal(w->volume, 1);
	replica_write_close(w, false);
	/* The older replica goes on the one, the new one is made on the other. */
	q = create_request(5, 1001);
	q.new_gs = 1002;
	assert_int_equal(replica_write_volume(f->bp, &q), 1);
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), REPLICA_ELSEWHERE);
	assert_int_equal(replica_get(f->bp, 5, &i), -ENOENT);
	assert_int_equal(replica_write_volume(f->bp, &q), 0);
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	assert_int_equal(w->volume, 0);
	replica_write_close(w, false);
	/* One that came meanwhile: back to its volume. */
	q = create_request(6, 1001);
	q.storage_type = STORAGE_SSD;
	q.new_gs = 1002;
	assert_int_equal(replica_write_volume(f->bp, &q), 1);
	replica_write_close(make_rbw(f, 6, 1001, 0), false);
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), REPLICA_ELSEWHERE);
	assert_int_equal(replica_write_volume(f->bp, &q), 0);
	assert_int_equal(replica_get(f->bp, 6, &i), 0);
	/* One that cannot be made is made on the other volume, by a thread of that one. */
	(void)snprintf(cmd, sizeof(cmd), "rm -r %s/current/%s/current/rbw", f->vol[0], POOL);
	assert_int_equal(system(cmd), 0);
	q = create_request(7, 1001);
	assert_int_equal(replica_write_volume(f->bp, &q), 0);
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), REPLICA_ELSEWHERE);
	assert_int_equal(replica_write_volume(f->bp, &q), 1);
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	assert_int_equal(w->volume, 1);
	replica_write_close(w, false);
}

/* Writers that do not stop, as in calls on a disk that does not answer. */
static void deletions_of_blocks_in_use_hold_up_no_other_volume(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(5, 1001);
	struct replica_writer *w[3], *good = NULL;
	struct replica_info i;

	for (int k = 0; k < 3; k++) {
		struct write_request stuck = create_request(10 + k, 1001);

		assert_int_equal(replica_write_open(f->bp, &stuck, &w[k], &f->err), 0);
		assert_int_equal(w[k]->volume, 0);
	}
	q.storage_type = STORAGE_SSD;
	assert_int_equal(replica_write_open(f->bp, &q, &good, &f->err), 0);
	assert_int_equal(good->volume, 1);
	assert_int_equal(replica_finalize(good, 0, SYNC_NEVER, NULL, &f->err), 0);
	for (int k = 0; k < 6; k++) /* the second time, too */
		assert_int_equal(
			replica_invalidate(f->bp, &(struct block){10 + k % 3, 1001, 0}, false), 0);
	assert_int_equal(replica_invalidate(f->bp, &(struct block){5, 1001, 0}, false), 0);
	fix_wait_gone(f, 5);
	for (int k = 0; k < 3; k++) {
		assert_int_equal(replica_get(f->bp, 10 + k, &i), 0);
		replica_write_close(w[k], false);
	}
	for (int k = 0; k < 3; k++)
		while (!replica_get(f->bp, 10 + k, &i)) {
			/* a wait has an end */
			(void)replica_invalidate(f->bp, &(struct block){10 + k, 1001, 0}, false);
			nap();
		}
	assert_int_equal(f->seen.deleted, 4);
}

static void a_directory_that_was_used_before_is_not_made_anew(void **state)
{
	struct fix *f = *state;
	char cmd[512];

	fix_close(f);
	remove_dir(f->vol[1]);
	assert_int_equal(fix_open(f), -EINVAL);
	assert_non_null(strstr(f->err.text, f->vol[1]));
	assert_non_null(strstr(f->err.text, "mount its disk"));
	assert_int_equal(access(f->vol[1], F_OK), -1);
	assert_int_equal(mkdir(f->vol[1], 0700), 0); /* an empty mount point */
	assert_int_equal(fix_open(f), -EINVAL);
	(void)snprintf(cmd, sizeof(cmd), "touch %s/this_disk_is_new", f->vol[1]);
	assert_int_equal(system(cmd), 0);
	assert_int_equal(fix_open(f), 0);
	fix_close(f);
	remove_dir(f->vol[1]);
	assert_int_equal(fix_open(f), -EINVAL); /* it is known again */
	f->volumes = 1;                         /* taken out of the configuration */
	assert_int_equal(fix_open(f), 0);
	make_finalized(f, 5, 1001, 100);
}

#define MANY 200000

/* Replicas of the map alone. */
static void add_many(struct fix *f, struct slice *sl)
{
	pthread_mutex_lock(&f->bp->lock);
	for (int64_t id = 0; id < MANY; id++) {
		struct replica *r = calloc(1, sizeof(*r));

		*r = (struct replica){.id = 1000000 + id,
				      .gs = 7,
				      .len = 1,
				      .slice = sl,
				      .state = REPLICA_FINALIZED,
				      .place = IN_FINALIZED};
		replica_add_locked(f->bp, r);
	}
	pthread_mutex_unlock(&f->bp->lock);
}

static void a_report_of_a_small_volume_does_not_walk_the_large_one(void **state)
{
	struct fix *f = *state;
	uint64_t large, small;
	uint32_t n = 0, m = 0;

	add_many(f, &f->bp->slices[0]);
	large = clock_mono_ns();
	assert_int_equal(store_each(f->bp, 0, count_one, &n), 0);
	large = clock_mono_ns() - large;
	small = clock_mono_ns();
	for (int i = 0; i < 10; i++)
		assert_int_equal(store_each(f->bp, 1, count_one, &m), 0);
	small = clock_mono_ns() - small;
	assert_int_equal(n, MANY);
	assert_int_equal(m, 0);
	assert_true(small < large);
}

/* Removes, and adds anew, while somebody walks. */
static void *churn(void *arg)
{
	struct fix *f = arg;
	struct replica *r;

	for (int64_t id = 1000000; id < 1000000 + MANY; id += 97) {
		pthread_mutex_lock(&f->bp->lock);
		r = replica_find_locked(f->bp, id);
		r->refs++;
		replica_remove_locked(f->bp, r);
		r->gone = false;
		r->refs = 0;
		replica_add_locked(f->bp, r);
		pthread_mutex_unlock(&f->bp->lock);
	}
	return NULL;
}

static void a_walk_sees_what_stays_while_others_come_and_go(void **state)
{
	struct fix *f = *state;
	pthread_t t;

	add_many(f, &f->bp->slices[0]);
	assert_int_equal(pthread_create(&t, NULL, churn, f), 0);
	for (int i = 0; i < 5; i++) {
		uint32_t n = 0;

		assert_int_equal(store_each(f->bp, 0, count_one, &n), 0);
		assert_true(n >= MANY); /* one that came anew is seen twice */
	}
	pthread_join(t, NULL);
}

/* ---- what may be in a directory that is out of service ---- */

static void lose_first(struct fix *f)
{
	struct storage_info a;
	char cmd[512];

	store_volume_info(f->s, 0, f->bp, &a);
	(void)snprintf(cmd, sizeof(cmd), "mv %s/current %s/gone", f->vol[0], f->vol[0]);
	assert_int_equal(system(cmd), 0);
	store_volume_suspect(f->s, a.uuid);
	store_volume_info(f->s, 0, f->bp, &a);
	assert_true(a.failed);
}

static void start_with_first(struct fix *f)
{
	char cmd[512];

	fix_close(f);
	(void)snprintf(cmd, sizeof(cmd), "mv %s/gone %s/current", f->vol[0], f->vol[0]);
	assert_int_equal(system(cmd), 0);
	assert_int_equal(fix_open(f), 0);
}

static void assert_recovery(struct fix *f, int64_t id, uint64_t gs, int rc)
{
	struct replica_info i;

	assert_int_equal(
		replica_init_recovery(f->bp, &(struct block){id, gs, 0}, gs + 1000, &i, &f->err),
		rc);
}

static void put_copy(struct fix *f, int64_t id, uint64_t gs, enum storage_type type)
{
	struct write_request q = create_request(id, gs);
	struct replica_writer *w = NULL;

	q.from_client = false;
	q.storage_type = type;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	put_bytes(w, 0, 100);
	assert_int_equal(replica_finalize(w, 100, SYNC_NEVER, NULL, &f->err), 0);
}

static void what_was_loaded_may_be_on_a_disk_that_went(void **state)
{
	struct fix *f = *state;

	replica_write_close(make_rbw(f, 5, 9000, 100), false);
	fix_reopen(f);
	put_copy(f, 6, 1005, STORAGE_DISK);
	lose_first(f);
	assert_recovery(f, 5, 9000, -EIO);
	assert_recovery(f, 7, 9001, -ENOENT);
	make_finalized(f, 8, 9500, 100); /* elsewhere */
	assert_recovery(f, 7, 9001, -ENOENT);
}

/* Each gives block @id, which is in the first directory, the stamp @gs. */
static void by_ending_its_write(struct fix *f, int64_t id, uint64_t gs)
{
	struct write_request q = create_request(id, gs - 5);
	struct replica_writer *w = NULL;

	replica_write_close(make_rbw(f, id, gs - 5, 800), false);
	q.stage = STAGE_CLOSE_RECOVERY;
	q.new_gs = gs;
	q.min_bytes = 800;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
}

static void by_going_on(struct fix *f, int64_t id, uint64_t gs)
{
	struct write_request q = create_request(id, gs - 5);
	struct replica_writer *w = NULL;

	make_finalized(f, id, gs - 5, 800);
	q.stage = STAGE_APPEND;
	q.new_gs = gs;
	q.min_bytes = 800;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	replica_write_close(w, false);
}

static void recover(struct fix *f, int64_t id, uint64_t old_gs, uint64_t gs, int64_t new_id)
{
	const struct block b = {id, old_gs, 0};
	char uuid[BLOCK_UUID_MAX];
	struct replica_info i;

	assert_int_equal(replica_init_recovery(f->bp, &b, gs, &i, &f->err), 0);
	assert_int_equal(replica_update_recovery(f->bp, &b, gs, 500, new_id, uuid, &f->err), 0);
}

static void by_recovery(struct fix *f, int64_t id, uint64_t gs)
{
	replica_write_close(make_rbw(f, id, gs - 5, 800), false);
	recover(f, id, gs - 5, gs, id);
}

static void as_a_copy_cut_off(struct fix *f, int64_t id, uint64_t gs)
{
	make_finalized(f, id + 100, gs - 5, 800);
	recover(f, id + 100, gs - 5, gs, id);
}

static void as_a_copy_cut_off_before(struct fix *f, int64_t id, uint64_t gs)
{
	as_a_copy_cut_off(f, id, gs - 10);
	assert_int_equal(fix_move(f, &(struct block){id + 100, gs - 15, 800}, STORAGE_SSD), 0);
	recover(f, id + 100, gs - 15, gs, id);
}

static void by_a_move(struct fix *f, int64_t id, uint64_t gs)
{
	put_copy(f, id, gs, STORAGE_SSD);
	assert_int_equal(fix_move(f, &(struct block){id, gs, 100}, STORAGE_DISK), 0);
}

static void a_stamp_counts_however_it_came(void **state)
{
	void (*const ways[])(struct fix *, int64_t, uint64_t) = {
		by_ending_its_write,      by_going_on, by_recovery, as_a_copy_cut_off,
		as_a_copy_cut_off_before, by_a_move,
	};
	struct fix *f = *state;
	uint64_t gs = 9000;
	int64_t id = 10;

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++, id++, gs += 100) {
		ways[i](f, id, gs);
		lose_first(f);
		assert_recovery(f, id, gs, -EIO);
		assert_recovery(f, 7, gs + 1, -ENOENT);
		start_with_first(f);
	}
}

static void a_volume_that_is_dead_at_start_is_tolerated_when_told_so(void **state)
{
	struct fix *f = *state;
	struct store_volume_opts v[2] = {{.path = f->vol[0], .type = STORAGE_DISK},
					 {.path = "/proc/nowhere", .type = STORAGE_DISK}};
	struct store_opts o = {.volumes = v, .volume_count = 2};
	struct storage_info i;

	assert_true(store_open(&o, &f->s, &f->err) < 0);
	assert_non_null(strstr(f->err.text, "/proc/nowhere"));
	o.failed_tolerated = 1;
	assert_int_equal(store_open(&o, &f->s, &f->err), 0);
	assert_int_equal(store_attach(f->s, &NS, &f->bp, &f->err), 0);
	/* nobody knows what is there, and stamps of writes do not come in order */
	assert_recovery(f, 7, 9000, -EIO);
	make_finalized(f, 5, 1001, 100);
	assert_recovery(f, 7, 9000, -EIO);
	assert_readable(f, 5, 1001, 100);
	store_volume_info(f->s, 1, f->bp, &i);
	assert_true(i.failed);
}

#define T2(name) cmocka_unit_test_setup_teardown(name, setup_two, teardown)
#define TC(name) cmocka_unit_test_setup_teardown(name, setup_closed, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T2(a_pin_is_kept_by_restarts_and_moves_between_volumes),
		T2(blocks_spread_over_volumes_and_follow_the_storage_type),
		T2(a_full_disk_is_told_with_numbers),
		T2(a_full_disk_tells_of_the_room_that_writers_keep),
		T2(of_two_replicas_on_two_volumes_the_newer_stays),
		T2(a_dead_volume_goes_out_of_service_and_the_others_stay),
		T2(writers_of_a_directory_that_vanished_go_to_the_others),
		T2(a_writer_does_not_join_a_volume_that_went_out_of_service_meanwhile),
		T2(a_volume_that_went_out_of_service_meanwhile_takes_no_new_replica),
		T2(a_replica_is_opened_step_by_step_where_its_disk_is),
		T2(deletions_of_blocks_in_use_hold_up_no_other_volume),
		T2(a_directory_that_vanished_is_a_failed_volume_at_once),
		T2(a_directory_that_was_used_before_is_not_made_anew),
		T2(a_report_of_a_small_volume_does_not_walk_the_large_one),
		T2(a_walk_sees_what_stays_while_others_come_and_go),
		T2(what_was_loaded_may_be_on_a_disk_that_went),
		T2(a_stamp_counts_however_it_came),
		TC(a_volume_that_is_dead_at_start_is_tolerated_when_told_so),
	};

	log_init("store_volumes_test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
