/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a block that is finished with SYNC_LATER is brought to the disk soon, bytes
 * before names, many by one sync where the file system has a journal; who asks is answered after
 * that and not before, and is told when it has failed. */

#include <fcntl.h>

#include "common/base/clock.h"
#include "common/base/metrics.h"

#include "datanode/store/store_test_blocks.h"

/* ---- the disk ---- */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	/* files, bytes of files, directories, volumes */
	atomic_uint out, synced, named, committed, all;
	atomic_uint out_at_commit, unnamed;  /* unnamed: synced in rbw/ */
	uint32_t named_first;                /* before any bytes were synced */
	atomic_bool closed, fail, fail_once; /* gate */
	_Atomic ino_t volume;
	atomic_bool has_pass; /* this thread is let through */
	pthread_t pass;
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

static int pass(atomic_uint *count)
{
	int rc = 0;

	pthread_mutex_lock(&disk.lock);
	while (disk.closed && !(disk.has_pass && pthread_equal(disk.pass, pthread_self())))
		pthread_cond_wait(&disk.cond, &disk.lock);
	++*count;
	if (disk.fail || disk.fail_once) {
		disk.fail_once = false;
		errno = EIO;
		rc = -1;
	}
	pthread_mutex_unlock(&disk.lock);
	return rc;
}

static void gate(bool closed)
{
	pthread_mutex_lock(&disk.lock);
	disk.closed = closed;
	pthread_cond_broadcast(&disk.cond);
	pthread_mutex_unlock(&disk.lock);
}

int __wrap_sync_file_range(int fd, off_t off, off_t len, unsigned int flags);
int __wrap_fdatasync(int fd);
int __wrap_fsync(int fd);
int __wrap_syncfs(int fd);

int __wrap_sync_file_range(int fd, off_t off, off_t len, unsigned int flags)
{
	(void)fd, (void)off, (void)len;
	return flags & SYNC_FILE_RANGE_WAIT_AFTER ? pass(&disk.out) : 0;
}

int __wrap_fdatasync(int fd)
{
	char link[64], path[256] = "";

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	assert_true(readlink(link, path, sizeof(path) - 1) > 0);
	disk.unnamed += strstr(path, "/rbw/") && !strstr(path, " (deleted)");
	if (!disk.synced)
		disk.named_first = disk.named;
	return pass(&disk.synced);
}

int __wrap_fsync(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	if (st.st_ino != disk.volume)
		return pass(&disk.named);
	disk.out_at_commit = atomic_load(&disk.out);
	return pass(&disk.committed);
}

int __wrap_syncfs(int fd)
{
	(void)fd;
	return pass(&disk.all);
}

static void watch(struct fix *f, bool ordered)
{
	struct stat st;

	assert_int_equal(stat(f->vol[0], &st), 0);
	f->s->volumes[0].ordered = ordered;
	disk.volume = st.st_ino;
	disk.fail = disk.closed = disk.has_pass = false;
	disk.out = disk.unnamed = disk.synced = disk.named = disk.committed = disk.all =
		disk.out_at_commit = 0;
}

/* The new replica of a copy, or the old one itself, shortened or not. */
static void a_recovered_block_is_on_the_disk_before_it_is_told(void **state)
{
	static const struct {
		uint64_t len;
		int64_t copy;
		uint32_t copied; /* files that are on the disk before bytes are cut */
	} how[] = {{1700, 0, 0}, {1500, 0, 1}, {1500, 99, 3}};
	struct fix *f = *state;
	struct block b = {5, 1001, 1700};
	struct replica_info i;
	char uuid[BLOCK_UUID_MAX];

	for (uint32_t k = 0; k < 3; k++, b.id++) {
		replica_write_close(make_rbw(f, b.id, 1001, 1700), false);
		assert_int_equal(replica_init_recovery(f->bp, &b, 1010, &i, &f->err), 0);
		watch(f, false);
		assert_int_equal(replica_update_recovery(f->bp, &b, 1010, how[k].len, how[k].copy,
							 uuid, &f->err),
				 0);
		assert_true(disk.synced + disk.named >= 3); /* two files, a directory */
		assert_true(disk.named >= 1);
		assert_true(how[k].copy || disk.out >= 2); /* the bytes before the names */
		assert_int_equal(disk.named_first, how[k].copied);
	}
}

static void wait_until(const atomic_int *n, int want)
{
	const uint64_t until = clock_mono_ns() + 60 * NS_PER_S;

	while (*n != want && clock_mono_ns() < until)
		nap();
	assert_int_equal(*n, want);
}

static void reopen_with_limit(struct fix *f, uint64_t ms)
{
	f->opts.answer_ms = ms;
	fix_reopen(f);
	watch(f, false);
}

static void a_volume_that_does_not_answer_is_out_of_service_until_it_does(void **state)
{
	struct fix *f = *state;
	struct replica_info i;
	struct replica_reader *r;

	make_finalized(f, 5, 1001, 700);
	reopen_with_limit(f, 200);
	assert_readable(f, 5, 1001, 700);
	gate(true);
	wait_until(&f->seen.failed, 1);
	assert_int_equal(store_failed_count(f->s), 1);
	assert_int_equal(replica_get(f->bp, 5, &i), -ENOENT);
	assert_int_equal(replica_read_open(f->bp, &(struct block){5, 0, 0}, &r, &f->err), -ENOENT);
	assert_int_equal(f->seen.back, 0);
	gate(false);
	wait_until(&f->seen.back, 1);
	assert_int_equal(store_failed_count(f->s), 0);
	assert_readable(f, 5, 1001, 700);
	make_finalized(f, 6, 1001, 700);
	assert_int_equal(f->seen.failed, 1);
}

static void wait_no_dir(const char *path)
{
	const uint64_t until = clock_mono_ns() + 60 * NS_PER_S;

	while (!access(path, F_OK) && clock_mono_ns() < until)
		nap();
	assert_int_equal(access(path, F_OK), -1);
}

/* The end of an upgrade may be told while the volume does not answer. */
static void a_volume_that_is_back_removes_what_is_not_kept_any_more(void **state)
{
	static const char *const kept[] = {"trash", "previous"};
	struct fix *f = *state;
	char path[2][256];

	reopen_with_limit(f, 200);
	for (int i = 0; i < 2; i++) {
		(void)snprintf(path[i], sizeof(path[i]), "%s/current/" POOL "/%s", f->vol[0],
			       kept[i]);
		assert_int_equal(mkdir(path[i], 0755), 0);
	}
	gate(true);
	wait_until(&f->seen.failed, 1);
	store_set_trash(f->bp, false);
	store_finalize_upgrade(f->bp);
	for (int i = 0; i < 50; i++)
		nap();
	assert_int_equal(access(path[0], F_OK) | access(path[1], F_OK), 0);
	gate(false);
	wait_until(&f->seen.back, 1);
	for (int i = 0; i < 2; i++)
		wait_no_dir(path[i]);
}

/* One byte of its data is another one. */
static void damage(const struct fix *f, int64_t id)
{
	char path[300];
	int fd;

	(void)snprintf(path, sizeof(path),
		       "%s/current/" POOL "/current/finalized/subdir0/subdir0/blk_%" PRId64,
		       f->vol[0], id);
	fd = open(path, O_WRONLY);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "X", 1, 100), 1);
	(void)close(fd);
}

static void the_block_scanner_goes_on_when_its_volume_is_back(void **state)
{
	struct fix *f = *state;
	const uint64_t scanned = metric_get(METRIC_DN_SCANNED_BLOCKS),
		       until = clock_mono_ns() + 60 * NS_PER_S;

	make_finalized(f, 5, 1001, 700);
	f->opts.scan = (struct store_scan_opts){
		.block_ms = 1, .block_rate = 100 << 20, .cursor_save_ms = 600000};
	reopen_with_limit(f, 200);
	while (metric_get(METRIC_DN_SCANNED_BLOCKS) == scanned && clock_mono_ns() < until)
		nap();
	gate(true);
	wait_until(&f->seen.failed, 1);
	nanosleep(&(struct timespec){0, 200000000}, NULL); /* the scanner sees it */
	gate(false);
	wait_until(&f->seen.back, 1);
	assert_int_equal(f->seen.bad, 0);
	damage(f, 5);
	while (!f->seen.bad && clock_mono_ns() < until + 60 * NS_PER_S)
		nap();
	assert_true(f->seen.bad > 0);
}

static void a_slow_volume_on_which_something_is_synced_stays(void **state)
{
	struct fix *f = *state;
	const uint64_t start = clock_mono_ns();

	reopen_with_limit(f, 1600);
	gate(true);
	while (clock_mono_ns() - start < 2 * NS_PER_S) {
		volume_synced(&f->s->volumes[0]); /* as of a writer */
		nap();
	}
	assert_int_equal(f->seen.failed, 0);
	wait_until(&f->seen.failed, 1);
	gate(false);
	wait_until(&f->seen.back, 1);
}

static void finish_later(struct fix *f, int64_t id)
{
	assert_int_equal(
		replica_finalize(make_rbw(f, id, 1001, 700), 700, SYNC_LATER, NULL, &f->err), 0);
}

static void wait_quiet(struct fix *f)
{
	const uint64_t until = clock_mono_ns() + 60 * NS_PER_S;
	struct deferred_sync *l = &f->s->volumes[0].deferred_sync;
	uint64_t left = 1;

	while (left && clock_mono_ns() < until) {
		nap();
		pthread_mutex_lock(&l->lock);
		left = l->added - l->synced;
		pthread_mutex_unlock(&l->lock);
	}
	assert_int_equal(left, 0);
}

/* ---- tests ---- */

static void finished_blocks_are_synced_together(void **state)
{
	struct fix *f = *state;
	struct stat st;
	uint64_t start, took_ms;

	make_finalized(f, 1, 1001, 10); /* its directory is made */
	watch(f, true);
	assert_int_equal(utimensat(AT_FDCWD, f->vol[0], (struct timespec[2]){{1, 0}, {1, 0}}, 0),
			 0);
	start = clock_mono_ns();
	for (int64_t id = 10; id < 20; id++)
		finish_later(f, id);
	assert_int_equal(disk.named, 0); /* nobody has waited */
	wait_quiet(f);
	took_ms = (clock_mono_ns() - start) / NS_PER_MS;
	assert_int_equal(disk.out, 20);
	assert_int_equal(disk.synced + disk.named, 0);
	/* a slow machine may need more than 100 ms for ten */
	assert_in_range(disk.committed, 1, 2 + took_ms / 100);
	assert_int_equal(disk.out_at_commit, 20);
	assert_int_equal(stat(f->vol[0], &st), 0);
	assert_true(st.st_mtime > 1); /* a directory that has not changed would commit nothing */
	for (int64_t id = 10; id < 20; id++)
		assert_readable(f, id, 1001, 700);
}

static void without_a_journal_each_is_synced(void **state)
{
	struct fix *f = *state;

	make_finalized(f, 1, 1001, 10);
	watch(f, false);
	for (int64_t id = 10; id < 14; id++)
		finish_later(f, id);
	wait_quiet(f);
	assert_int_equal(disk.synced, 8);
	assert_true(disk.named >= 1 && disk.named <= 4);
	assert_int_equal(disk.committed, 0);
}

/* A batch is under way. */
static void wait_taken(struct fix *f)
{
	struct deferred_sync *l = &f->s->volumes[0].deferred_sync;
	bool taken = false;

	while (!taken) {
		nap();
		pthread_mutex_lock(&l->lock);
		taken = l->taken;
		pthread_mutex_unlock(&l->lock);
	}
}

/* A batch is held, so that the next one has both. */
static void each_directory_of_a_batch_is_synced(void **state)
{
	struct fix *f = *state;

	make_finalized(f, 1, 1001, 10);
	make_finalized(f, 1 + 256, 1001, 10);
	watch(f, false);
	gate(true);
	finish_later(f, 10);
	wait_taken(f);
	finish_later(f, 11);
	finish_later(f, 11 + 256);
	gate(false);
	wait_quiet(f);
	assert_int_equal(disk.named, 3);
}

static void who_asks_does_not_wait_for_the_next_round(void **state)
{
	struct fix *f = *state;
	struct deferred_sync *l = &f->s->volumes[0].deferred_sync;

	make_finalized(f, 1, 1001, 10);
	watch(f, true);
	finish_later(f, 10);
	pthread_mutex_lock(&l->lock);
	l->due_ns = clock_mono_ns() + 3600 * NS_PER_S;
	pthread_mutex_unlock(&l->lock);
	assert_int_equal(store_sync_deferred(f->s, store_deferred_sync_epoch(f->s)), 0);
	assert_int_equal(disk.committed, 1);
}

/* Two files and a name. */
static void a_block_that_is_synced_now_is_on_the_disk(void **state)
{
	struct fix *f = *state;

	make_finalized(f, 1, 1001, 10);
	for (int64_t ordered = 0; ordered < 2; ordered++) {
		struct replica_writer *w = make_rbw(f, 10 + ordered, 1001, 700);

		watch(f, ordered);
		assert_int_equal(replica_finalize(w, 700, SYNC_NOW, NULL, &f->err), 0);
		assert_int_equal(disk.out, 2);
		assert_int_equal(disk.synced, ordered ? 0 : 2);
		assert_int_equal(disk.unnamed, disk.synced); /* its name comes last */
		assert_int_equal(disk.named, 1);
	}
}

/* A client that does not say so at the end, as stock ones, where blocks are not synced by rule. */
static void what_was_synced_once_is_synced_at_its_end(void **state)
{
	struct fix *f = *state;

	make_finalized(f, 1, 1001, 10);
	for (int64_t hsync = 0; hsync < 2; hsync++) {
		struct replica_writer *w = make_rbw(f, 10 + hsync, 1001, 700);

		if (hsync)
			assert_int_equal(replica_sync_dir(w), 0);
		watch(f, false);
		assert_int_equal(replica_finalize(w, 700, SYNC_NEVER, NULL, &f->err), 0);
		assert_int_equal(disk.synced, hsync ? 2 : 0);
		assert_int_equal(disk.named, hsync ? 1 : 0);
	}
}

/* What an earlier writer has synced, which the next one does not know. */
static void what_was_synced_before_it_was_reopened_is_synced_at_its_end(void **state)
{
	static const enum write_stage stages[] = {STAGE_APPEND, STAGE_STREAMING_RECOVERY};
	struct write_request q = create_request(1, 1001);
	struct fix *f = *state;
	struct replica_writer *w;

	for (int i = 0; i < 2; i++) {
		q.block.id = 10 + i;
		q.stage = stages[i];
		q.new_gs = 1002;
		q.min_bytes = q.max_bytes = 700;
		if (q.stage == STAGE_APPEND)
			make_finalized(f, q.block.id, 1001, 700);
		else
			replica_write_close(make_rbw(f, q.block.id, 1001, 700), true);
		assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
		put_bytes(w, 700, 900);
		watch(f, false);
		assert_int_equal(replica_sync_dir(w), 0); /* the reopening has done that */
		assert_int_equal(disk.named, 0);
		assert_int_equal(replica_finalize(w, 900, SYNC_NEVER, NULL, &f->err), 0);
		assert_int_equal(disk.synced, 2);
		assert_int_equal(disk.named, 1);
	}
}

static void the_name_of_a_replica_being_written_is_synced_once(void **state)
{
	struct fix *f = *state;
	struct replica_writer *w = make_rbw(f, 5, 1001, 700);

	watch(f, true);
	assert_int_equal(replica_sync_dir(w), 0);
	assert_int_equal(disk.named, 1);
	assert_int_equal(replica_sync_dir(w), 0);
	assert_int_equal(disk.named, 1);
	replica_write_close(w, false);
}

struct asker {
	pthread_t thread;
	struct fix *f;
	uint64_t epoch;
	int rc;
	atomic_bool back;
};

static void *ask_main(void *arg)
{
	struct asker *a = arg;

	a->rc = store_sync_deferred(a->f->s, a->epoch);
	a->back = true;
	return NULL;
}

static void start_asking(struct asker *a, struct fix *f)
{
	*a = (struct asker){.f = f, .epoch = store_deferred_sync_epoch(f->s)};
	assert_int_equal(pthread_create(&a->thread, NULL, ask_main, a), 0);
}

static void who_asks_is_answered_when_it_is_on_the_disk(void **state)
{
	struct fix *f = *state;
	struct asker a;

	watch(f, true);
	/* nothing is outstanding: at once */
	assert_int_equal(store_sync_deferred(f->s, store_deferred_sync_epoch(f->s)), 0);
	assert_int_equal(disk.committed, 0);
	make_finalized(f, 1, 1001, 10);
	gate(true);
	finish_later(f, 10);
	start_asking(&a, f);
	for (int i = 0; i < 300; i++)
		nap();
	assert_false(a.back);
	gate(false);
	pthread_join(a.thread, NULL);
	assert_int_equal(a.rc, 0);
	assert_int_equal(disk.committed, 1);
}

/* A batch is under way when the next block is finished: that one is not in it. */
static void an_answer_covers_what_was_finished_before(void **state)
{
	struct fix *f = *state;
	struct asker a, b;

	make_finalized(f, 1, 1001, 10);
	watch(f, true);
	gate(true);
	finish_later(f, 10);
	start_asking(&a, f);
	wait_taken(f);
	finish_later(f, 11);
	start_asking(&b, f);
	gate(false);
	pthread_join(b.thread, NULL);
	pthread_join(a.thread, NULL);
	assert_int_equal(a.rc | b.rc, 0);
	assert_int_equal(disk.committed, 2);
	assert_int_equal(disk.out, 4);
}

static void a_sync_that_fails_is_told(void **state)
{
	struct fix *f = *state;
	uint64_t before;
	struct asker a;

	make_finalized(f, 1, 1001, 10);
	watch(f, true);
	before = store_deferred_sync_epoch(f->s);
	gate(true);
	finish_later(f, 10);
	start_asking(&a, f);
	wait_taken(f);
	disk.fail_once = true;
	gate(false);
	pthread_join(a.thread, NULL);
	assert_int_equal(a.rc, -EIO);
	assert_int_equal(store_sync_deferred(f->s, before), -EIO); /* who comes later, too */
	assert_int_equal(f->seen.bad, 1);
	assert_int_equal(store_sync_deferred(f->s, store_deferred_sync_epoch(f->s)), 0);
	finish_later(f, 11);
	assert_int_equal(store_sync_deferred(f->s, store_deferred_sync_epoch(f->s)), 0);
}

static void what_was_finished_before_the_start_is_synced_when_asked_for(void **state)
{
	struct fix *f = *state;
	uint64_t before = store_deferred_sync_epoch(f->s);

	fix_reopen(f);
	watch(f, true);
	assert_true(before && store_deferred_sync_epoch(f->s) >> 16 != before >> 16);
	disk.fail = true;
	assert_int_equal(store_sync_deferred(f->s, before), -EIO);
	disk.fail = false;
	assert_int_equal(store_sync_deferred(f->s, before), 0);
	assert_int_equal(disk.all, 2);
	assert_int_equal(store_sync_deferred(f->s, before), 0); /* once is enough */
	assert_int_equal(disk.all, 2);
}

static void a_clean_end_syncs_what_is_outstanding(void **state)
{
	struct fix *f = *state;

	make_finalized(f, 1, 1001, 10);
	watch(f, true);
	for (int64_t id = 10; id < 13; id++)
		finish_later(f, id);
	fix_close(f);
	assert_int_equal(disk.out, 6);
	assert_int_equal(disk.out_at_commit, 6);
	assert_int_equal(fix_open(f), 0);
	assert_readable(f, 12, 1001, 700);
}

static void what_happens_to_a_block_meanwhile_does_no_harm(void **state)
{
	struct write_request q = create_request(11, 1001);
	struct fix *f = *state;
	struct replica_writer *w;

	make_finalized(f, 1, 1001, 10);
	watch(f, false);
	gate(true);
	finish_later(f, 10);
	finish_later(f, 11);
	finish_later(f, 12);
	assert_int_equal(replica_invalidate(f->bp, &(struct block){10, 1001, 0}, false), 0);
	fix_wait_gone(f, 10);
	disk.pass = pthread_self();
	disk.has_pass = true;
	q.stage = STAGE_APPEND;
	q.new_gs = 1002;
	q.min_bytes = 700;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	gate(false);
	assert_int_equal(store_sync_deferred(f->s, store_deferred_sync_epoch(f->s)), 0);
	put_bytes(w, 700, 900);
	assert_int_equal(replica_finalize(w, 900, SYNC_LATER, NULL, &f->err), 0);
	assert_int_equal(store_sync_deferred(f->s, store_deferred_sync_epoch(f->s)), 0);
	assert_readable(f, 11, 1002, 900);
	assert_readable(f, 12, 1001, 700);
	assert_int_equal(f->seen.bad, 0);
}

/* The NameNode notes the stamp of an append for good: a replica that a power cut gives the old one
 * back would be stale. */
static void an_append_has_its_new_stamp_on_the_disk(void **state)
{
	struct write_request q = create_request(1, 1001);
	struct fix *f = *state;
	struct replica_writer *w;

	make_finalized(f, 1, 1001, 700);
	make_finalized(f, 2, 1001, 700);
	watch(f, true);
	q.stage = STAGE_APPEND;
	q.new_gs = 1002;
	q.min_bytes = 700;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	assert_int_equal(disk.named, 2); /* where it is now, and where it was */
	replica_write_close(w, false);
	q.block = (struct block){2, 1001, 1000};
	disk.fail = true;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), -EIO);
	disk.fail = false;
}

/* More than may wait: those are synced before they are acknowledged. */
static void the_queue_has_an_end(void **state)
{
	struct fix *f = *state;
	struct volume *v = &f->s->volumes[0];

	make_finalized(f, 1, 1001, 10);
	watch(f, true);
	deferred_sync_stop(v); /* or its thread takes them */
	v->deferred_sync.runs = true;
	v->deferred_sync.count = 1000;
	assert_false(deferred_sync_may(v));
	finish_later(f, 10);
	assert_int_equal(v->deferred_sync.added, 0);
	assert_int_equal(disk.out, 2);
	assert_int_equal(disk.named, 1);
	v->deferred_sync.count = 0;
	v->deferred_sync.runs = false;
}

/* Of a test that has failed, too. */
static int open_and_teardown(void **state)
{
	gate(false);
	return teardown(state);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, open_and_teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_recovered_block_is_on_the_disk_before_it_is_told),
		TEST(a_volume_that_does_not_answer_is_out_of_service_until_it_does),
		TEST(a_volume_that_is_back_removes_what_is_not_kept_any_more),
		TEST(the_block_scanner_goes_on_when_its_volume_is_back),
		TEST(a_slow_volume_on_which_something_is_synced_stays),
		TEST(finished_blocks_are_synced_together),
		TEST(without_a_journal_each_is_synced),
		TEST(each_directory_of_a_batch_is_synced),
		TEST(who_asks_does_not_wait_for_the_next_round),
		TEST(a_block_that_is_synced_now_is_on_the_disk),
		TEST(what_was_synced_once_is_synced_at_its_end),
		TEST(what_was_synced_before_it_was_reopened_is_synced_at_its_end),
		TEST(the_name_of_a_replica_being_written_is_synced_once),
		TEST(who_asks_is_answered_when_it_is_on_the_disk),
		TEST(an_answer_covers_what_was_finished_before),
		TEST(a_sync_that_fails_is_told),
		TEST(what_was_finished_before_the_start_is_synced_when_asked_for),
		TEST(a_clean_end_syncs_what_is_outstanding),
		TEST(what_happens_to_a_block_meanwhile_does_no_harm),
		TEST(an_append_has_its_new_stamp_on_the_disk),
		TEST(the_queue_has_an_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
