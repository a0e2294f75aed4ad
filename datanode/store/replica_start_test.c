/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a start with an index has the replicas that one without it has, whatever came,
 * went and changed since it was written; what no name in a directory tells, a reader finds before
 * it has a byte, and the comparison after the start tells the NameNode. */
#include <fcntl.h>
#include <unistd.h>

#include "common/base/clock.h"

#include "datanode/store/foreign_test_fixture.h"

#define HERE "finalized/subdir0/subdir0"
#define LATER (clock_wall_ms() * NS_PER_MS + 60 * NS_PER_S)

/* ---- what happens in the middle of a round ---- */
int __wrap_syncfs(int fd);
static void (*during_sync)(void);
static int sync_rc;

int __wrap_syncfs(int fd)
{
	(void)fd;
	if (during_sync)
		during_sync();
	if (!sync_rc)
		return 0;
	errno = -sync_rc;
	return -1;
}

/* ---- what goes wrong ---- */
int __real_names_walk(int slice_fd, const char *root, const struct names_walk *w);
int __wrap_names_walk(int slice_fd, const char *root, const struct names_walk *w);
static atomic_int failing_walks; /* of the comparison */

int __wrap_names_walk(int slice_fd, const char *root, const struct names_walk *w)
{
	if (!w->known && failing_walks > 0) {
		failing_walks--;
		return -ENOMEM;
	}
	return __real_names_walk(slice_fd, root, w);
}

int __real_dir_stamp_read(int dir_fd, const char *name, struct dir_stamp *ret);
int __wrap_dir_stamp_read(int dir_fd, const char *name, struct dir_stamp *ret);
static bool boot_is_unknown;

int __wrap_dir_stamp_read(int dir_fd, const char *name, struct dir_stamp *ret)
{
	const int rc = __real_dir_stamp_read(dir_fd, name, ret);

	if (!rc && boot_is_unknown)
		memset(ret->boot, 0, sizeof(ret->boot));
	return rc;
}

static const struct fix *the_fix;

static int start(void **state, uint32_t volumes)
{
	struct fix *f = fix_new(volumes, STORAGE_DISK);

	*state = f;
	f->opts.index_ms = 3600000; /* rounds when the test says so */
	f->opts.scan.directory_ms_per_s = 1000;
	the_fix = f;
	during_sync = NULL;
	sync_rc = 0;
	failing_walks = 0;
	boot_is_unknown = false;
	return fix_open(f);
}

static int setup_one(void **state)
{
	return start(state, 1);
}

static int setup_both(void **state)
{
	return start(state, 2);
}

/* Three blocks in each of two directories, and an index of both. */
static void fill(struct fix *f)
{
	for (int64_t id = 1; id <= 3; id++) {
		put_block(f, HERE, id, 1001, 1000);
		put_block(f, "finalized/subdir0/subdir1", 0x100 + id, 1001, 1000);
	}
	fix_reopen(f);
	assert_int_equal(slice_index_round(&f->bp->slices[0], LATER), 2);
}

static void wait_for(const atomic_int *n, int want)
{
	for (int i = 0; i < 10000 && *n < want; i++)
		nanosleep(&(struct timespec){0, 2000000}, NULL);
	assert_int_equal(*n, want);
}

static uint64_t length_of(struct fix *f, int64_t id)
{
	struct replica_info i;

	assert_int_equal(replica_get(f->bp, id, &i), 0);
	return i.block.len;
}

/* Grows without another name: who believes the index does not see it. */
static void grow(struct fix *f, int64_t id)
{
	sh(f, "printf more >>finalized/subdir0/subdir%d/blk_%d", (int)(id >> 8), (int)id);
}

static void a_start_takes_what_the_index_has(void **state)
{
	struct fix *f = *state;

	put_block(f, HERE, 3, 1001, 1000);
	sh(f, "chmod +t " HERE "/blk_3");
	f->opts.pinning = true;
	fill(f);
	assert_int_equal(slice_index_round(&f->bp->slices[0], LATER), 0); /* all is there */
	fix_close(f);
	grow(f, 2);
	assert_int_equal(fix_open(f), 0);
	assert_int_equal(length_of(f, 2), 1000);
	assert_true(replica_is_pinned(f->bp, 3) && !replica_is_pinned(f->bp, 2));
	for (int64_t id = 1; id <= 3; id++) {
		assert_whole(f, id, 1001, 1000);
		assert_whole(f, 0x100 + id, 1001, 1000);
	}
	wait_for(&f->seen.bad, 1); /* the comparison */
	assert_int_equal(length_of(f, 2), 1004);
	assert_int_equal(f->seen.deleted + f->seen.received, 0);
}

static void a_comparison_that_fails_is_made_again(void **state)
{
	struct fix *f = *state;

	fill(f);
	fix_close(f);
	grow(f, 2);
	failing_walks = 1;
	f->opts.index_ms = 100;
	assert_int_equal(fix_open(f), 0);
	assert_int_equal(length_of(f, 2), 1000);
	wait_for(&f->seen.bad, 1);
	assert_int_equal(failing_walks, 0);
	assert_int_equal(length_of(f, 2), 1004);
}

static void a_start_without_an_index_lists(void **state)
{
	struct fix *f = *state;

	fill(f);
	f->opts.index_ms = 0;
	fix_close(f);
	grow(f, 2);
	assert_int_equal(fix_open(f), 0);
	assert_int_equal(length_of(f, 2), 1004);
	assert_whole(f, 1, 1001, 1000);
}

/* Each a change of names as a Java DataNode or a person makes it while the node is away. */
static void what_changed_meanwhile_is_listed(void **state)
{
	struct fix *f = *state;

	fill(f);
	fix_close(f);
	put_block(f, HERE, 9, 1007, 500);
	grow(f, 2); /* in the listing this shows, too */
	assert_int_equal(fix_open(f), 0);
	assert_whole(f, 9, 1007, 500);
	assert_int_equal(length_of(f, 2), 1004);
	fix_close(f);
	sh(f, "rm " HERE "/blk_9 " HERE "/blk_9_1007.meta");
	assert_int_equal(fix_open(f), 0);
	assert_absent(f, 9);
	fix_close(f);
	sh(f, "mv " HERE "/blk_1_1001.meta " HERE "/blk_1_1002.meta"); /* a recovery */
	assert_int_equal(fix_open(f), 0);
	assert_whole(f, 1, 1002, 1000);
	fix_close(f);
	put_block(f, "elsewhere", 1, 1002, 700); /* a copy from a backup, moved over it */
	sh(f, "mv elsewhere/blk_1 " HERE "/blk_1 && rm -r elsewhere");
	assert_int_equal(fix_open(f), 0);
	assert_int_equal(length_of(f, 1), 700);
	fix_close(f);
	sh(f, "rm -r finalized/subdir0/subdir1");
	assert_int_equal(fix_open(f), 0);
	assert_absent(f, 0x101);
	assert_int_equal(slice_index_round(&f->bp->slices[0], LATER), 1);
}

/* Somebody who gives the directory its old time cannot give it the other one. */
static void a_time_that_was_set_back_is_no_stamp(void **state)
{
	struct fix *f = *state;

	fill(f);
	fix_close(f);
	sh(f, "touch -r " HERE " mark && rm " HERE "/blk_3* && touch -r mark " HERE " && rm mark");
	assert_int_equal(fix_open(f), 0);
	assert_absent(f, 3);
	assert_whole(f, 2, 1001, 1000);
}

/* Other directories of the same names, with the times of the old ones. */
static void a_directory_from_a_backup_is_listed(void **state)
{
	struct fix *f = *state;

	fill(f);
	fix_close(f);
	sh(f, "cp -a finalized backup && rm -r finalized && mv backup finalized");
	sh(f, "rm " HERE "/blk_3* && touch -d @1600000000 " HERE);
	assert_int_equal(fix_open(f), 0);
	assert_absent(f, 3);
	assert_whole(f, 2, 1001, 1000);
}

static void what_is_young_gets_no_record(void **state)
{
	struct fix *f = *state;
	struct slice *sl;

	put_block(f, HERE, 1, 1001, 1000);
	fix_reopen(f);
	sl = &f->bp->slices[0];
	assert_int_equal(slice_index_round(sl, clock_wall_ms() * NS_PER_MS), 0);
	/* nor with a clock that was set back */
	assert_int_equal(slice_index_round(sl, 1), 0);
	assert_int_equal(slice_index_round(sl, LATER), 1);
}

static void add_one(void)
{
	put_block(the_fix, HERE, 77, 1001, 1000);
}

/* What comes between the sync and the listing is not synced, and has to wait. */
static void what_changes_during_a_round_gets_no_record(void **state)
{
	struct fix *f = *state;
	struct slice *sl;

	put_block(f, HERE, 1, 1001, 1000);
	fix_reopen(f);
	sl = &f->bp->slices[0];
	during_sync = add_one;
	assert_int_equal(slice_index_round(sl, LATER), 0);
	during_sync = NULL;
	assert_int_equal(slice_index_round(sl, LATER), 1);
	fix_reopen(f);
	assert_whole(f, 77, 1001, 1000);
}

static void without_a_sync_there_is_no_record(void **state)
{
	struct fix *f = *state;
	struct slice *sl;

	put_block(f, HERE, 1, 1001, 1000);
	fix_reopen(f);
	sl = &f->bp->slices[0];
	sync_rc = -EIO;
	assert_int_equal(slice_index_round(sl, LATER), -EIO);
	sync_rc = 0;
	assert_int_equal(slice_index_round(sl, LATER), 1);
}

/* ---- directories that hold more than replicas ---- */

static void odd_directories_are_listed_each_time(void **state)
{
	static const char *const odd[] = {
		"touch " HERE "/notes",
		"touch " HERE "/blk_4",           /* alone */
		"touch " HERE "/blk_4_1001.meta", /* alone */
		"touch " HERE "/blk_4 " HERE "/blk_5",
		"touch " HERE "/blk_1_1000.meta " HERE "/blk_1_999.meta",
		"touch " HERE "/blk_1_1000.meta",                 /* two metas */
		"touch " HERE "/blk_5_1001.meta.tmp",             /* a leftover */
		"touch " HERE "/blk_5.unlinked",                  /* of Java's */
		"mkdir " HERE "/subdir3",                         /* an older layout */
		"touch " HERE "/blk_770 " HERE "/blk_770_1.meta", /* not at home */
		"ln -s blk_1 " HERE "/blk_6 && touch " HERE "/blk_6_1001.meta",
	};
	struct fix *f = *state;

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		sh(f, "rm -rf finalized && mkdir finalized");
		put_block(f, HERE, 1, 1001, 1000);
		sh(f, "%s", odd[i]);
		assert_int_equal(slice_index_round(&f->bp->slices[0], LATER), 0);
		sh(f,
		   "find " HERE " -mindepth 1 ! -name 'blk_1' ! -name 'blk_1_1001.meta' -delete");
		assert_int_equal(slice_index_round(&f->bp->slices[0], LATER), 1);
	}
}

/* ---- an index that lies: well-formed, with the right stamps ---- */

/* @n entries for the first directory of a volume, under the stamp that it has now. */
static void lie_on(struct slice *sl, const struct index_entry *list, uint32_t n, bool other_boot)
{
	struct dir_stamp now;

	assert_int_equal(dir_stamp_read(sl->fd, HERE, &now), 0);
	now.boot[0] ^= other_boot;
	assert_int_equal(replica_index_write(sl->index, 0, &now, list, n), 0);
}

static void lie(struct fix *f, const struct index_entry *list, uint32_t n, bool other_boot)
{
	lie_on(&f->bp->slices[0], list, n, other_boot);
}

static void a_replica_that_is_not_there_is_not_read_and_goes(void **state)
{
	const struct index_entry list[] = {{1, 1001, 1000, false},
					   {2, 1001, 1000, false},
					   {3, 1001, 1000, false},
					   {4, 1001, 1000, false}};
	struct replica_reader *r;
	struct fix *f = *state;

	fill(f);
	lie(f, list, 4, false);
	fix_reopen(f);
	assert_int_equal(replica_read_open(f->bp, &(struct block){4, 1001, 0}, &r, &f->err),
			 -ENOENT);
	wait_for(&f->seen.deleted, 1);
	fix_wait_gone(f, 4);
	for (int64_t id = 1; id <= 3; id++)
		assert_whole(f, id, 1001, 1000);
}

static void a_replica_that_is_left_out_comes_back(void **state)
{
	const struct index_entry list[] = {{1, 1001, 1000, false}, {3, 1001, 1000, false}};
	struct fix *f = *state;

	fill(f);
	lie(f, list, 2, false);
	fix_reopen(f);
	assert_whole(f, 3, 1001, 1000);
	wait_for(&f->seen.received, 1);
	assert_whole(f, 2, 1001, 1000);
}

static void a_wrong_stamp_or_length_is_found_before_a_byte_is_read(void **state)
{
	const struct index_entry list[] = {{1, 1009, 1000, false},  /* an other stamp */
					   {2, 1001, 1512, false},  /* too long */
					   {3, 1001, 1001, false}}; /* within the chunk */
	struct replica_reader *r;
	struct fix *f = *state;

	fill(f);
	f->opts.scan.directory_ms = 3600000;
	lie(f, list, 3, false);
	fix_reopen(f);
	for (int64_t id = 1; id <= 3; id++)
		assert_true(replica_read_open(f->bp, &(struct block){id, 1001, 0}, &r, &f->err) <
			    0);
	for (int i = 0; i < 5000 && f->seen.bad < 3; i++)
		nanosleep(&(struct timespec){0, 2000000}, NULL);
	assert_true(f->seen.bad >= 3); /* all three are told */
	assert_whole(f, 0x101, 1001, 1000);
}

static void a_file_that_was_cut_is_not_read(void **state)
{
	struct replica_reader *r;
	struct fix *f = *state;

	fill(f);
	fix_close(f);
	sh(f, "truncate -s 512 " HERE "/blk_2");
	assert_int_equal(fix_open(f), 0);
	assert_int_equal(length_of(f, 2), 1000);
	assert_true(replica_read_open(f->bp, &(struct block){2, 1001, 0}, &r, &f->err) < 0);
	for (int i = 0; i < 5000 && !f->seen.bad; i++)
		nanosleep(&(struct timespec){0, 2000000}, NULL);
	assert_true(f->seen.bad > 0);
}

/* A repair of the file system, between two boots, takes a name away and leaves the stamp. */
static void after_another_boot_names_are_listed(void **state)
{
	const struct index_entry same[] = {
		{1, 1001, 1000, false}, {2, 1001, 999, false}, {3, 1001, 1000, false}};
	const struct index_entry more[] = {{1, 1001, 1000, false},
					   {2, 1001, 999, false},
					   {3, 1001, 1000, false},
					   {4, 1001, 1000, false}};
	const struct index_entry other[] = {
		{1, 1001, 1000, false}, {2, 1001, 999, false}, {3, 1002, 1000, false}};
	struct fix *f = *state;

	fill(f);
	lie(f, same, 3, true);
	fix_reopen(f);
	assert_int_equal(length_of(f, 2), 999); /* names as noted: lengths, too */
	lie(f, more, 4, true);
	fix_reopen(f);
	assert_absent(f, 4);
	assert_int_equal(length_of(f, 2), 1000);
	lie(f, other, 3, true);
	fix_reopen(f);
	assert_whole(f, 3, 1001, 1000);
	assert_int_equal(length_of(f, 2), 1000);
	/* it is listed anew in this boot */
	assert_int_equal(slice_index_round(&f->bp->slices[0], LATER), 1);
	assert_int_equal(slice_index_round(&f->bp->slices[0], LATER), 0);
}

/* Each start is then one after another boot; but within a process there is one boot alone. */
static void without_a_boot_id_a_round_lists_what_has_changed(void **state)
{
	const struct index_entry more[] = {{1, 1001, 1000, false},
					   {2, 1001, 999, false},
					   {3, 1001, 1000, false},
					   {4, 1001, 1000, false}};
	struct fix *f = *state;

	boot_is_unknown = true;
	fill(f);
	assert_int_equal(slice_index_round(&f->bp->slices[0], LATER), 0);
	lie(f, more, 3, false);
	fix_reopen(f);
	assert_int_equal(length_of(f, 2), 999);
	lie(f, more, 4, false);
	fix_reopen(f);
	assert_absent(f, 4);
	assert_int_equal(length_of(f, 2), 1000);
}

static void a_damaged_index_costs_a_listing(void **state)
{
	struct fix *f = *state;

	fill(f);
	fix_close(f);
	grow(f, 2);
	sh(f, "printf 12345678 | dd of=../replica_index bs=1 seek=340 conv=notrunc status=none");
	assert_int_equal(fix_open(f), 0);
	assert_int_equal(length_of(f, 2), 1004);
	assert_whole(f, 0x103, 1001, 1000);
	assert_int_equal(slice_index_round(&f->bp->slices[0], LATER), 1);
	fix_close(f);
	sh(f, "printf 12345678 | dd of=../replica_index bs=1 seek=20 conv=notrunc status=none");
	assert_int_equal(fix_open(f), 0);
	assert_int_equal(slice_index_round(&f->bp->slices[0], LATER), 2);
	fix_close(f);
	sh(f, "rm ../replica_index && mkdir ../replica_index");
	assert_int_equal(fix_open(f), 0);
	assert_whole(f, 0x103, 1001, 1000);
	assert_true(slice_index_round(&f->bp->slices[0], LATER) < 0);
	assert_whole(f, 0x102, 1001, 1000);
}

/* ---- several places ---- */

static void the_index_of_another_volume_is_not_believed(void **state)
{
	struct fix *f = *state;
	char cmd[500];

	fill(f);
	fix_close(f);
	(void)snprintf(cmd, sizeof(cmd),
		       "cp %s/current/" POOL "/replica_index %s/current/" POOL "/", f->vol[0],
		       f->vol[1]);
	assert_int_equal(system(cmd), 0);
	assert_int_equal(fix_open(f), 0);
	for (uint32_t i = 0; i < INDEX_DIRS; i++)
		assert_int_equal(f->bp->slices[1].index->dir[i].at, 0);
	assert_whole(f, 1, 1001, 1000);
}

/* Everything is on both volumes, with an index of each. */
static void fill_both(struct fix *f)
{
	fill(f);
	fix_close(f);
	sh(f, "cp -r finalized %s/current/" POOL "/current/", f->vol[1]);
	f->opts.keep_duplicates = true;
	assert_int_equal(fix_open(f), 0);
	assert_int_equal(slice_index_round(&f->bp->slices[1], LATER), 2);
}

static void of_two_replicas_the_better_one_is_served(void **state)
{
	struct fix *f = *state;

	fill_both(f);
	fix_close(f);
	sh(f, "mv " HERE "/blk_1_1001.meta " HERE "/blk_1_1005.meta");
	assert_int_equal(fix_open(f), 0);
	assert_int_equal(slice_index_round(&f->bp->slices[0], LATER), 1);
	fix_reopen(f); /* both from their indexes */
	assert_whole(f, 1, 1005, 1000);
	assert_whole(f, 2, 1001, 1000);
}

/* After a move between volumes that a kill cut short a file was cut in its place, on either volume,
 * and a repair took one away, on either volume: both indexes still say that all is there. */
static void a_wrong_index_costs_no_good_replica(void **state)
{
	const struct index_entry all[] = {{1, 1001, 1000, false},
					  {2, 1001, 1000, false},
					  {3, 1001, 1000, false},
					  {4, 1001, 1000, false},
					  {5, 1001, 1000, false}};
	struct fix *f = *state;
	char other[300];

	(void)snprintf(other, sizeof(other), "%s/current/" POOL "/current/" HERE, f->vol[1]);
	fill_both(f);
	put_block(f, HERE, 4, 1001, 1000);
	sh(f, "mv " HERE "/blk_4* %s", other);
	put_block(f, HERE, 5, 1001, 1000);
	lie_on(&f->bp->slices[0], all, 5, false);
	lie_on(&f->bp->slices[1], all, 5, false);
	fix_close(f);
	sh(f, "truncate -s 512 " HERE "/blk_1");
	sh(f, "truncate -s 512 %s/blk_2", other);
	f->opts.keep_duplicates = false;
	assert_int_equal(fix_open(f), 0);
	for (int64_t id = 1; id <= 5; id++)
		assert_whole(f, id, 1001, 1000);
	/* but one of two good ones goes, as ever */
	sh(f, "test $(ls " HERE "/blk_3 %s/blk_3 2>/dev/null | wc -l) = 1", other);
}

/* The same for a volume that comes while the others serve. */
static void a_replica_that_comes_stays_when_the_served_one_is_gone(void **state)
{
	const struct index_entry all[] = {{1, 1001, 1000, false},
					  {2, 1001, 1000, false},
					  {3, 1001, 1000, false},
					  {4, 1001, 1000, false}};
	struct fix *f = *state;
	char other[300];

	(void)snprintf(other, sizeof(other), "%s/current/" POOL "/current", f->vol[1]);
	fill(f);
	put_block(f, "aside", 4, 1001, 1000);
	lie(f, all, 4, false);
	fix_reopen(f);
	sh(f, "mkdir -p %s/" HERE " && mv aside/* %s/" HERE " && rmdir aside", other, other);
	assert_int_equal(slice_load(&f->bp->slices[1], true, &f->err), 0);
	fix_reopen(f);
	assert_whole(f, 4, 1001, 1000);
}

/* A move from rbw/ that a kill cut short, while the directory has its record already. */
static void a_name_in_rbw_of_a_replica_of_the_index_goes(void **state)
{
	struct fix *f = *state;

	fill(f);
	fix_close(f);
	sh(f, "ln " HERE "/blk_2 rbw/blk_2 && ln " HERE "/blk_2_1001.meta rbw/blk_2_1001.meta");
	assert_int_equal(fix_open(f), 0);
	assert_whole(f, 2, 1001, 1000);
	sh(f, "test ! -e rbw/blk_2 && test -e " HERE "/blk_2");
}

#define ONE(name) cmocka_unit_test_setup_teardown(name, setup_one, teardown)
#define BOTH(name) cmocka_unit_test_setup_teardown(name, setup_both, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ONE(a_start_takes_what_the_index_has),
		ONE(a_comparison_that_fails_is_made_again),
		ONE(a_start_without_an_index_lists),
		ONE(what_changed_meanwhile_is_listed),
		ONE(a_time_that_was_set_back_is_no_stamp),
		ONE(a_directory_from_a_backup_is_listed),
		ONE(what_is_young_gets_no_record),
		ONE(what_changes_during_a_round_gets_no_record),
		ONE(without_a_sync_there_is_no_record),
		ONE(odd_directories_are_listed_each_time),
		ONE(a_replica_that_is_not_there_is_not_read_and_goes),
		ONE(a_replica_that_is_left_out_comes_back),
		ONE(a_wrong_stamp_or_length_is_found_before_a_byte_is_read),
		ONE(a_file_that_was_cut_is_not_read),
		ONE(after_another_boot_names_are_listed),
		ONE(without_a_boot_id_a_round_lists_what_has_changed),
		ONE(a_damaged_index_costs_a_listing),
		BOTH(the_index_of_another_volume_is_not_believed),
		BOTH(of_two_replicas_the_better_one_is_served),
		BOTH(a_wrong_index_costs_no_good_replica),
		BOTH(a_replica_that_comes_stays_when_the_served_one_is_gone),
		ONE(a_name_in_rbw_of_a_replica_of_the_index_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
