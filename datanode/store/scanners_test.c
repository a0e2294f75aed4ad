/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: what happens to the files while the store is open is found by its scanners, which
 * keep their rate and their place; and what a rolling upgrade deletes is kept until it ends. */
#include <fcntl.h>
#include <unistd.h>

#include "common/base/clock.h"

#include "datanode/store/foreign_test_fixture.h"

static void wait_for(const atomic_int *n, int want)
{
	for (int i = 0; i < 30000 && *n < want; i++)
		nanosleep(&(struct timespec){0, 2000000}, NULL);
	assert_int_equal(*n, want);
}

static void the_directory_scanner_finds_what_came_went_and_changed(void **state)
{
	struct fix *f = *state;
	struct storage_info i;

	fix_close(f);
	for (int64_t id = 1; id <= 40; id++)
		put_block(f, "finalized/subdir0/subdir0", id, 1001, 1000);
	f->opts.scan.directory_ms = 50;
	f->opts.scan.directory_ms_per_s = 900;
	assert_int_equal(fix_open(f), 0);
	sh(f, "cd finalized/subdir0/subdir0 && rm blk_1 blk_1_1001.meta blk_2");
	wait_for(&f->seen.deleted, 2);
	fix_wait_gone(f, 1);
	fix_wait_gone(f, 2);
	sh(f, "test -f finalized/subdir0/subdir0/blk_2_1001.meta"); /* for a person */
	put_block(f, "finalized/subdir0/subdir0", 77, 1005, 600);
	wait_for(&f->seen.received, 1);
	assert_whole(f, 77, 1005, 600);
	assert_int_equal(f->seen.bad, 0);
	sh(f, "cd finalized/subdir0/subdir0 && truncate -s 900 blk_3");
	wait_for(&f->seen.bad, 1); /* once: the map knows the new length now */
	sh(f, "cd finalized/subdir0/subdir0 && touch blk_500 && ln -s blk_4 blk_501");
	store_volume_info(f->s, 0, f->bp, &i);
	assert_int_equal(i.blocks, 39);
	assert_absent(f, 500);
	nanosleep(&(struct timespec){0, 300000000}, NULL);
	assert_int_equal(f->seen.deleted, 2);
	assert_int_equal(f->seen.received, 1);
	assert_int_equal(f->seen.bad, 1);
}

static void replicas_that_cannot_be_looked_at_are_not_gone(void **state)
{
	struct fix *f = *state;
	char dir[300], loop[300];

	(void)snprintf(dir, sizeof(dir), "%s/current/" POOL "/current/finalized/subdir0/subdir0",
		       f->vol[0]);
	(void)snprintf(loop, sizeof(loop), "%s/current/" POOL "/current/finalized/subdir0/kept",
		       f->vol[0]);
	fix_close(f);
	put_block(f, "finalized/subdir0/subdir0", 5, 1001, 1000);
	put_block(f, "finalized/subdir0/subdir1", 0x105, 1001, 1000);
	f->opts.scan.directory_ms = 20;
	assert_int_equal(fix_open(f), 0);
	/* A directory that leads to itself: an error for every user. At no moment is there none of
	 * the name. */
	assert_int_equal(symlink("subdir0", loop), 0);
	assert_int_equal(renameat2(AT_FDCWD, loop, AT_FDCWD, dir, RENAME_EXCHANGE), 0);
	sh(f, "rm finalized/subdir0/subdir1/blk_261");
	wait_for(&f->seen.deleted, 1);
	nanosleep(&(struct timespec){0, 300000000}, NULL);
	assert_int_equal(f->seen.deleted, 1);
	fix_wait_gone(f, 0x105);
	assert_int_equal(renameat2(AT_FDCWD, loop, AT_FDCWD, dir, RENAME_EXCHANGE), 0);
	assert_whole(f, 5, 1001, 1000);
	assert_int_equal(f->seen.bad, 0);
}

static void a_replica_without_its_meta_file_is_reported(void **state)
{
	struct fix *f = *state;

	fix_close(f);
	f->opts.scan.directory_ms = 20;
	put_block(f, "finalized/subdir0/subdir0", 5, 1001, 1000);
	assert_int_equal(fix_open(f), 0);
	sh(f, "rm finalized/subdir0/subdir0/blk_5_1001.meta");
	for (int i = 0; i < 30000 && !f->seen.bad; i++)
		nanosleep(&(struct timespec){0, 2000000}, NULL);
	assert_true(f->seen.bad > 0);
}

static void scan_opts(struct fix *f, uint64_t period_ms, uint64_t rate)
{
	f->opts.scan = (struct store_scan_opts){
		.block_ms = period_ms, .block_rate = rate, .cursor_save_ms = 600000};
}

static void flip(const struct fix *f, int64_t id)
{
	sh(f,
	   "printf X | dd of=finalized/subdir0/subdir0/blk_%" PRId64
	   " bs=1 seek=600 conv=notrunc status=none",
	   id);
}

static int count_corrupt(void *arg, const struct replica_info *i)
{
	*(int *)arg += i->corrupt;
	return 0;
}

static void the_block_scanner_finds_a_corrupt_replica_that_nobody_reads(void **state)
{
	struct fix *f = *state;
	int corrupt = 0;

	fix_close(f);
	for (int64_t id = 1; id <= 20; id++)
		put_block(f, "finalized/subdir0/subdir0", id, 1001, 1000);
	flip(f, 7);
	sh(f, "truncate -s 8 finalized/subdir0/subdir0/blk_9_1001.meta");
	sh(f,
	   "printf '\\0\\2' | dd of=finalized/subdir0/subdir0/blk_11_1001.meta conv=notrunc status=none");
	scan_opts(f, 3600000, 100 << 20);
	assert_int_equal(fix_open(f), 0);
	wait_for(&f->seen.bad, 3);
	assert_int_equal(store_each(f->bp, 0, count_corrupt, &corrupt), 0);
	assert_int_equal(corrupt, 3); /* the next full report says so, too */
	sh(f,
	   "for i in $(seq 300); do grep -qs '\"atEnd\" : true' ../scanner.cursor && exit; sleep 0.2; done; exit 1");
	/* The period is not over: a restart does not read again. */
	fix_close(f);
	assert_int_equal(fix_open(f), 0);
	nanosleep(&(struct timespec){1, 300000000}, NULL);
	assert_int_equal(f->seen.bad, 3);
}

static void the_block_scanner_goes_on_behind_a_java_node_s_cursor(void **state)
{
	struct fix *f = *state;

	fix_close(f);
	for (int64_t id = 1; id <= 9; id++)
		put_block(f, "finalized/subdir0/subdir0", id, 1001, 1000);
	flip(f, 2); /* before the cursor */
	flip(f, 8); /* behind it */
	sh(f,
	   "printf '{\\n  \"lastSavedMs\" : 5,\\n  \"iterStartMs\" : 4,\\n  \"curFinalizedDir\" : \"subdir0\",\\n"
	   "  \"curFinalizedSubDir\" : \"subdir0\",\\n  \"curEntry\" : \"blk_5\",\\n  \"atEnd\" : false\\n}' >../scanner.cursor");
	scan_opts(f, UINT64_C(1) << 50, 100 << 20);
	assert_int_equal(fix_open(f), 0);
	wait_for(&f->seen.bad, 1);
	nanosleep(&(struct timespec){0, 200000000}, NULL);
	assert_int_equal(f->seen.bad, 1);
}

static void the_block_scanner_goes_on_behind_its_own_cursor_in_any_directory(void **state)
{
	struct fix *f = *state;
	int n = 0;

	fix_close(f);
	for (int64_t a = 0; a < 32; a += 3)
		for (int64_t b = 0; b < 32; b += 7, n += 2) {
			char dir[64];

			(void)snprintf(dir, sizeof(dir), "finalized/subdir%d/subdir%d", (int)a,
				       (int)b);
			put_block(f, dir, a << 16 | b << 8 | 9, 1001, 100);
			put_block(f, dir, a << 16 | b << 8 | 200, 1001, 100);
			sh(f,
			   "cd %s && for b in blk_*[0-9]; do printf XXXX | dd of=$b bs=1 seek=9 conv=notrunc status=none; done",
			   dir);
		}
	scan_opts(f, UINT64_C(1) << 50, 2000); /* 20 replicas a second */
	assert_int_equal(fix_open(f), 0);
	for (int i = 0; i < 30000 && f->seen.bad < n / 3; i++)
		nanosleep(&(struct timespec){0, 2000000}, NULL);
	fix_close(f);
	assert_in_range(f->seen.bad, n / 3, n - 1);
	scan_opts(f, UINT64_C(1) << 50, 100 << 20);
	assert_int_equal(fix_open(f), 0);
	sh(f,
	   "for i in $(seq 300); do grep -qs '\"atEnd\" : true' ../scanner.cursor && exit; sleep 0.2; done; exit 1");
	/* Each once; the one at which it was stopped perhaps twice. */
	assert_in_range(f->seen.bad, n, n + 1);
}

static void the_block_scanner_keeps_its_rate_and_ends_at_once(void **state)
{
	struct fix *f = *state;
	uint64_t start;

	fix_close(f);
	for (int64_t id = 1; id <= 9; id++)
		put_block(f, "finalized/subdir0/subdir0", id, 1001, 1000);
	flip(f, 9);
	scan_opts(f, 1, 300); /* 27 s until the last one */
	assert_int_equal(fix_open(f), 0);
	nanosleep(&(struct timespec){5, 0}, NULL);
	assert_int_equal(f->seen.bad, 0);
	start = clock_mono_ns();
	fix_close(f);
	assert_true(clock_mono_ns() - start < 10 * NS_PER_S);
	sh(f,
	   "grep -q '\"atEnd\" : false' ../scanner.cursor && grep -q 'curEntry\" : \"blk_[1-8]\"' ../scanner.cursor");
}

static void a_cursor_from_the_future_or_of_nonsense_does_not_stop_the_scan(void **state)
{
	struct fix *f = *state;

	put_block(f, "finalized/subdir0/subdir0", 5, 1001, 1000);
	flip(f, 5);
	for (int turn = 0; turn < 2; turn++) {
		fix_close(f);
		f->seen.bad = 0;
		if (turn)
			sh(f, "head -c 9000 /dev/urandom >../scanner.cursor");
		else
			sh(f,
			   "echo '{ \"iterStartMs\" : 99999999999999, \"atEnd\" : true }' >../scanner.cursor");
		scan_opts(f, 1, 100 << 20);
		assert_int_equal(fix_open(f), 0);
		for (int i = 0; i < 30000 && !f->seen.bad; i++)
			nanosleep(&(struct timespec){0, 2000000}, NULL);
		assert_true(f->seen.bad > 0);
	}
}

/* ---- rolling upgrades ---- */

static void deleted_blocks_go_to_the_trash_until_it_is_emptied(void **state)
{
	struct fix *f = *state;

	fix_close(f);
	put_block(f, "finalized/subdir0/subdir0", 5, 1001, 1000);
	put_block(f, "finalized/subdir0/subdir0", 6, 1001, 1000);
	assert_int_equal(fix_open(f), 0);
	store_set_trash(f->bp, true);
	assert_int_equal(replica_invalidate(f->bp, &(struct block){5, 1001, 0}, false), 0);
	wait_for(&f->seen.deleted, 1);
	fix_wait_gone(f, 5);
	sh(f,
	   "test -f ../trash/finalized/subdir0/subdir0/blk_5 && "
	   "test -f ../trash/finalized/subdir0/subdir0/blk_5_1001.meta && ! test -e finalized/subdir0/subdir0/blk_5");
	fix_close(f);
	assert_int_equal(fix_open(f), 0); /* stays over a restart */
	assert_absent(f, 5);
	sh(f, "test -f ../trash/finalized/subdir0/subdir0/blk_5");
	store_set_trash(f->bp, false);
	sh(f, "for i in 1 2 3 4 5 6 7 8 9; do test -e ../trash || exit 0; sleep 0.2; done; exit 1");
	assert_int_equal(replica_invalidate(f->bp, &(struct block){6, 1001, 0}, false), 0);
	wait_for(&f->seen.deleted, 2);
	sh(f, "! test -e ../trash");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(the_directory_scanner_finds_what_came_went_and_changed),
		T(replicas_that_cannot_be_looked_at_are_not_gone),
		T(a_replica_without_its_meta_file_is_reported),
		T(the_block_scanner_finds_a_corrupt_replica_that_nobody_reads),
		T(the_block_scanner_goes_on_behind_a_java_node_s_cursor),
		T(the_block_scanner_goes_on_behind_its_own_cursor_in_any_directory),
		T(the_block_scanner_keeps_its_rate_and_ends_at_once),
		T(a_cursor_from_the_future_or_of_nonsense_does_not_stop_the_scan),
		T(deleted_blocks_go_to_the_trash_until_it_is_emptied),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
