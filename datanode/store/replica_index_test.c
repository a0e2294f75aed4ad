/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: whatever happened to the file, a record that is read is one that was written, all
 * of it, under the stamp that it was written with; nothing in the file makes a reader take more
 * memory than the file is long; and what cannot be written leaves what was there. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/crc.h"
#include "common/base/cursor.h"
#include "common/base/err.h"
#include "common/base/file_io.h"
#include "datanode/store/replica_index.h"

#define FILE_MAX 65536

static const struct index_owner OWNER = {"DS-1", "BP-1"};

struct fix {
	char dir[64];
	int fd; /* current/, in which nothing is */
	struct replica_index *x;
};

/* ---- the disk is full: after so many bytes a write fails ---- */
int __real_file_write_full(int fd, const void *buf, size_t len, uint64_t off);
int __wrap_file_write_full(int fd, const void *buf, size_t len, uint64_t off);
static int64_t room = INT64_MAX;

int __wrap_file_write_full(int fd, const void *buf, size_t len, uint64_t off)
{
	int rc;

	if ((int64_t)len <= room) {
		room -= (int64_t)len;
		return __real_file_write_full(fd, buf, len, off);
	}
	rc = __real_file_write_full(fd, buf, (size_t)room, off);
	room = 0;
	return rc ? rc : -ENOSPC;
}

static void begin(struct fix *f)
{
	f->x = replica_index_open(f->fd, &OWNER);
	assert_non_null(f->x);
}

static void again(struct fix *f)
{
	replica_index_close(f->x);
	begin(f);
}

static int setup(void **state)
{
	struct fix *f = calloc(1, sizeof(*f));
	char path[80];

	room = INT64_MAX;
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/replica_index_test.XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	(void)snprintf(path, sizeof(path), "%s/current", f->dir);
	assert_int_equal(mkdir(path, 0700), 0);
	f->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	begin(f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fix *f = *state;
	char cmd[100];

	replica_index_close(f->x);
	(void)close(f->fd);
	(void)snprintf(cmd, sizeof(cmd), "rm -rf %s", f->dir);
	assert_int_equal(system(cmd), 0);
	free(f);
	return 0;
}

/* ---- records: all of one follows from its directory and its version ---- */

static struct dir_stamp stamp_of(uint32_t n, uint32_t version)
{
	return (struct dir_stamp){.ino = 1000 + n,
				  .mtime_ns = 1000000 + version,
				  .ctime_ns = 2000000 + version,
				  .boot = {1, 2, (uint8_t)version}};
}

static uint32_t entries_of(uint32_t n, uint32_t version, struct index_entry *ret)
{
	const uint32_t count = version % 3 + 1;

	for (uint32_t i = 0; i < count; i++)
		ret[i] = (struct index_entry){.id = (int64_t)(n / 32) << 16 | (n % 32) << 8 |
						    (version * 3 + i),
					      .gs = 1000 + version,
					      .len = (uint64_t)(n + i) << 33,
					      .pinned = i % 2};
	return count;
}

static void put(struct fix *f, uint32_t n, uint32_t version)
{
	const struct dir_stamp s = stamp_of(n, version);
	struct index_entry list[4];

	assert_int_equal(replica_index_write(f->x, n, &s, list, entries_of(n, version, list)), 0);
}

static bool same_entries(const struct index_entry *a, const struct index_entry *b, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (a[i].id != b[i].id || a[i].gs != b[i].gs || a[i].len != b[i].len ||
		    a[i].pinned != b[i].pinned)
			return false;
	return true;
}

/* The version that directory @n has, after whatever happened; -1: none. Fails when it is none that
 * was written. */
static int version_of(struct fix *f, uint32_t n)
{
	struct index_entry *list = NULL, want[4];
	const struct dir_stamp have = f->x->dir[n].stamp;
	const uint32_t count = f->x->dir[n].count;
	const int rc = replica_index_read(f->x, n, &list);

	if (rc) {
		assert_true(rc == -ENOENT || rc == -EBADMSG);
		assert_int_equal(f->x->dir[n].at, 0);
		return -1;
	}
	for (uint32_t version = 0; version < 64; version++) {
		const struct dir_stamp s = stamp_of(n, version);

		if (!dir_stamp_fits(&s, &have))
			continue;
		assert_true(dir_stamp_same_boot(&s, &have));
		assert_int_equal(count, entries_of(n, version, want));
		assert_true(same_entries(list, want, count));
		free(list);
		return (int)version;
	}
	fail_msg("a stamp that nobody wrote");
	return -1;
}

/* ---- the file ---- */

static size_t load(struct fix *f, uint8_t *buf)
{
	const int fd = openat(f->fd, INDEX_NAME, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	assert_true(fd >= 0);
	n = read(fd, buf, FILE_MAX);
	assert_true(n >= 0 && n < FILE_MAX);
	(void)close(fd);
	return (size_t)n;
}

static void store(struct fix *f, const uint8_t *buf, size_t n)
{
	const int fd = openat(f->fd, INDEX_NAME, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, buf, n), n);
	(void)close(fd);
}

static void what_was_written_last_is_read(void **state)
{
	struct fix *f = *state;

	assert_int_equal(version_of(f, 7), -1);
	put(f, 7, 1);
	put(f, 1023, 2);
	put(f, 7, 5);
	assert_int_equal(version_of(f, 7), 5);
	again(f);
	assert_int_equal(version_of(f, 7), 5);
	assert_int_equal(version_of(f, 1023), 2);
	assert_int_equal(version_of(f, 0), -1);
	put(f, 0, 3); /* behind the others */
	again(f);
	assert_int_equal(version_of(f, 7), 5);
	assert_int_equal(version_of(f, 0), 3);
}

static void a_file_cut_at_any_byte_has_the_records_before(void **state)
{
	static uint8_t whole[FILE_MAX];
	struct fix *f = *state;
	uint64_t end[3];
	size_t n;

	put(f, 1, 1), end[0] = f->x->end;
	put(f, 2, 2), end[1] = f->x->end;
	put(f, 1, 3), end[2] = f->x->end;
	n = load(f, whole);
	assert_int_equal(n, end[2]);
	for (size_t cut = 0; cut <= n; cut++) {
		store(f, whole, cut);
		again(f);
		assert_int_equal(version_of(f, 1), cut >= end[2] ? 3 : cut >= end[0] ? 1 : -1);
		assert_int_equal(version_of(f, 2), cut >= end[1] ? 2 : -1);
		put(f, 9, 4); /* and it goes on from there */
		again(f);
		assert_int_equal(version_of(f, 9), 4);
		assert_int_equal(version_of(f, 2), cut >= end[1] ? 2 : -1);
	}
}

/* The others count, and what is written then is newer than all of them. */
static void a_damaged_record_takes_no_other_one_along(void **state)
{
	static uint8_t whole[FILE_MAX];
	struct fix *f = *state;
	uint64_t second;
	size_t n;

	put(f, 1, 3); /* of one length */
	second = f->x->end;
	put(f, 2, 6);
	put(f, 3, 9);
	n = load(f, whole);
	whole[second + 9] ^= 1;
	store(f, whole, n);
	again(f);
	assert_int_equal(f->x->end, n);
	assert_int_equal(version_of(f, 1), 3);
	assert_int_equal(version_of(f, 2), -1);
	assert_int_equal(version_of(f, 3), 9);
	put(f, 2, 12);
	again(f);
	assert_int_equal(version_of(f, 2), 12);
	assert_int_equal(version_of(f, 3), 9);
	/* far apart, as when a part of the disk is gone */
	memmove(whole + 40000, whole + second, n - second);
	memset(whole + second, 0x72, 40000 - second);
	store(f, whole, 40000 + n - second);
	again(f);
	assert_int_equal(version_of(f, 1), 3);
	assert_int_equal(version_of(f, 3), 9);
}

/* The end is torn; an old record that happens to be behind it does not come back. */
static void what_is_behind_the_last_whole_record_goes(void **state)
{
	static uint8_t whole[FILE_MAX];
	struct fix *f = *state;
	size_t n;

	put(f, 2, 6);
	n = load(f, whole);
	memcpy(whole + n + INDEX_HEAD + INDEX_ENTRY, whole + INDEX_HEADER, n - INDEX_HEADER - 8);
	memset(whole + n, 0, INDEX_HEAD + INDEX_ENTRY);
	store(f, whole, n + INDEX_HEAD + INDEX_ENTRY + n - INDEX_HEADER - 8);
	again(f);
	assert_int_equal(f->x->end, n);
	put(f, 2, 9);
	/* whole again, were it there still */
	n = load(f, whole);
	assert_int_equal(n, f->x->end);
	again(f);
	assert_int_equal(version_of(f, 2), 9);
}

/* Zeros, as a power cut leaves them where the length came to the disk before the bytes. */
static void a_hole_at_any_place_makes_no_record(void **state)
{
	static uint8_t whole[FILE_MAX], hole[FILE_MAX];
	struct fix *f = *state;
	size_t n;

	put(f, 1, 1);
	put(f, 2, 2);
	put(f, 3, 5);
	n = load(f, whole);
	for (size_t at = 0; at < n; at += 8) {
		memcpy(hole, whole, n);
		memset(hole + at, 0, n - at < 96 ? n - at : 96);
		store(f, hole, n);
		again(f);
		for (uint32_t i = 1; i <= 3; i++)
			(void)version_of(f, i); /* fails when it is none that was written */
	}
}

static void a_bit_that_flips_anywhere_makes_no_other_record(void **state)
{
	static uint8_t whole[FILE_MAX];
	struct fix *f = *state;
	uint32_t lost = 0;
	size_t n;

	put(f, 1, 1);
	put(f, 2, 2);
	n = load(f, whole);
	for (size_t bit = 0; bit < n * 8; bit++) {
		whole[bit / 8] ^= (uint8_t)(1u << bit % 8);
		store(f, whole, n);
		whole[bit / 8] ^= (uint8_t)(1u << bit % 8);
		again(f);
		for (uint32_t i = 0; i < INDEX_DIRS; i++)
			if (f->x->dir[i].at)
				lost += version_of(f, i) < 0;
	}
	assert_true(lost > 0);
}

static void a_file_of_another_owner_counts_for_nothing(void **state)
{
	static const struct index_owner others[] = {{"DS-2", "BP-1"}, {"DS-1", "BP-2"}};
	struct fix *f = *state;

	for (int i = 0; i < 2; i++) {
		put(f, 7, 1);
		replica_index_close(f->x);
		f->x = replica_index_open(f->fd, &others[i]);
		assert_non_null(f->x);
		assert_int_equal(version_of(f, 7), -1);
		put(f, 8, 2);
		assert_int_equal(version_of(f, 8), 2);
		again(f); /* now it is the other one's */
		assert_int_equal(version_of(f, 7), -1);
		assert_int_equal(version_of(f, 8), -1);
	}
}

/* ---- well-formed nonsense: the CRCs fit ---- */

static void seal(uint8_t *head, size_t entries)
{
	struct wr w = wr_init(head + 56, 4);

	wr_be32(&w, crc_compute(CRC_CRC32C, head + INDEX_HEAD, entries));
	w = wr_init(head + 4, 4);
	wr_be32(&w, crc_compute(CRC_CRC32C, head + 8, INDEX_HEAD - 8));
}

static void lengths_beyond_the_file_or_the_limit_end_it(void **state)
{
	static const uint32_t counts[] = {2,
					  3,
					  INDEX_ENTRIES_MAX,
					  INDEX_ENTRIES_MAX + 1,
					  UINT32_MAX,
					  UINT32_MAX / INDEX_ENTRY + 2};
	static uint8_t whole[FILE_MAX];
	struct fix *f = *state;
	size_t n;

	put(f, 7, 3); /* one entry */
	n = load(f, whole);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		struct wr w = wr_init(whole + INDEX_HEADER + 12, 4);

		wr_be32(&w, counts[i]);
		seal(whole + INDEX_HEADER, INDEX_ENTRY);
		store(f, whole, n);
		again(f);
		assert_int_equal(f->x->dir[7].at, 0);
		assert_int_equal(f->x->end, INDEX_HEADER);
	}
}

/* A file that is long enough for it costs nothing: most of it may be a hole. */
static void more_entries_than_a_directory_may_have_end_it(void **state)
{
	static uint8_t whole[FILE_MAX];
	struct fix *f = *state;
	struct wr w = wr_init(whole + INDEX_HEADER + 12, 4);
	char path[100];
	size_t n;

	put(f, 7, 3);
	n = load(f, whole);
	wr_be32(&w, INDEX_ENTRIES_MAX + 1);
	seal(whole + INDEX_HEADER, INDEX_ENTRY);
	store(f, whole, n);
	(void)snprintf(path, sizeof(path), "%s/replica_index", f->dir);
	assert_int_equal(truncate(path, 1 << 23), 0);
	again(f);
	assert_int_equal(f->x->dir[7].at, 0);
}

static void directories_beyond_the_last_end_it(void **state)
{
	static uint8_t whole[FILE_MAX];
	struct fix *f = *state;
	struct wr w = wr_init(whole + INDEX_HEADER + 8, 4);
	size_t n;

	put(f, 7, 3);
	n = load(f, whole);
	wr_be32(&w, INDEX_DIRS);
	seal(whole + INDEX_HEADER, INDEX_ENTRY);
	store(f, whole, n);
	again(f);
	assert_int_equal(f->x->end, INDEX_HEADER);
}

static void entries_that_no_listing_gives_are_refused(void **state)
{
	const int64_t at_home = 7 << 8;
	const struct index_entry wrong[][2] = {
		{{.id = at_home + 1}, {.id = at_home}},                 /* not in order */
		{{.id = at_home + 1}, {.id = at_home + 1}},             /* twice */
		{{.id = at_home}, {.id = 8 << 8}},                      /* of another directory */
		{{.id = at_home}, {at_home + 1, UINT64_MAX, 0, false}}, /* no stamp */
	};
	const struct dir_stamp s = stamp_of(7, 0);
	struct index_entry *list;
	struct fix *f = *state;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(replica_index_write(f->x, 7, &s, wrong[i], 2), 0);
		assert_int_equal(replica_index_read(f->x, 7, &list), -EBADMSG);
		assert_int_equal(replica_index_read(f->x, 7, &list), -ENOENT);
	}
}

/* ---- writing ---- */

static void a_full_disk_leaves_what_was_there(void **state)
{
	struct fix *f = *state;
	struct dir_stamp s = stamp_of(2, 2);
	struct index_entry list[4];
	const uint32_t count = entries_of(2, 2, list);

	room = 100; /* no room for the first header */
	assert_int_equal(replica_index_write(f->x, 2, &s, list, count), -ENOSPC);
	assert_int_equal(version_of(f, 2), -1);
	room = INT64_MAX;
	put(f, 1, 1);
	for (int64_t left = 0; left < INDEX_HEAD + 3 * INDEX_ENTRY; left += 5) {
		room = left;
		assert_int_equal(replica_index_write(f->x, 2, &s, list, count), -ENOSPC);
		assert_int_equal(version_of(f, 1), 1);
		room = INT64_MAX;
		again(f);
		assert_int_equal(version_of(f, 1), 1);
		assert_int_equal(version_of(f, 2), -1);
	}
	put(f, 2, 2);
	again(f);
	assert_int_equal(version_of(f, 2), 2);
	assert_int_equal(replica_index_write(f->x, 2, &s, list, INDEX_ENTRIES_MAX + 1), -E2BIG);
}

static void old_records_go_and_new_ones_stay(void **state)
{
	struct fix *f = *state;
	uint64_t longest = 0;

	for (uint32_t i = 0; i < 30000; i++) {
		put(f, i % 3, i % 60 / 3);
		assert_int_equal(replica_index_tidy(f->x), 0);
		longest = f->x->end > longest ? f->x->end : longest;
	}
	assert_true(longest > 1 << 20 && longest < 2 << 20);
	again(f);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(version_of(f, i), 19);
	put(f, 4, 7);
	replica_index_forget(f->x, 1);
	room = 500; /* the new one does not come to its end */
	f->x->end += 4 << 20;
	assert_int_equal(replica_index_tidy(f->x), -ENOSPC);
	room = INT64_MAX;
	assert_int_equal(faccessat(f->fd, INDEX_NAME ".tmp", F_OK, 0), -1);
	assert_int_equal(replica_index_tidy(f->x), 0);
	again(f);
	assert_int_equal(version_of(f, 0), 19);
	assert_int_equal(version_of(f, 1), -1);
	assert_int_equal(version_of(f, 4), 7);
}

static void more_records_than_are_looked_at_are_not_written(void **state)
{
	const struct dir_stamp s = stamp_of(3, 1);
	struct fix *f = *state;

	for (uint32_t i = 0; i < INDEX_RECORDS_MAX + 100; i++)
		assert_int_equal(replica_index_write(f->x, 3, &s, NULL, 0), 0);
	put(f, 3, 2);
	again(f);
	assert_int_equal(version_of(f, 3), 2);
}

static void something_else_of_that_name_is_no_index(void **state)
{
	struct fix *f = *state;
	const struct dir_stamp s = stamp_of(3, 1);

	assert_int_equal(mkfifoat(f->fd, INDEX_NAME, 0600), 0);
	again(f); /* at once */
	put(f, 3, 1);
	again(f);
	assert_int_equal(version_of(f, 3), 1);
	assert_int_equal(unlinkat(f->fd, INDEX_NAME, 0), 0);
	assert_int_equal(symlinkat("/dev/zero", f->fd, INDEX_NAME), 0);
	again(f);
	assert_int_equal(version_of(f, 3), -1);
	assert_int_equal(unlinkat(f->fd, INDEX_NAME, 0), 0);
	assert_int_equal(mkdirat(f->fd, INDEX_NAME, 0700), 0);
	again(f);
	assert_true(replica_index_write(f->x, 3, &s, NULL, 0) < 0);
}

static void directories_have_numbers(void **state)
{
	char name[64];

	(void)state;
	for (uint32_t n = 0; n < INDEX_DIRS; n++) {
		index_dir_name(name, sizeof(name), n);
		assert_int_equal(index_dir_number(name), n);
	}
	assert_int_equal(index_dir_number("finalized"), -1);
	assert_int_equal(index_dir_number("finalized/subdir1"), -1);
	assert_int_equal(index_dir_number("finalized/subdir1/subdir32"), -1);
	assert_int_equal(index_dir_number("finalized/subdir1/subdir2/subdir3"), -1);
	assert_int_equal(index_dir_number("finalized/subdir01/subdir2"), -1);
	assert_int_equal(index_dir_number("rbw"), -1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_was_written_last_is_read),
		T(a_file_cut_at_any_byte_has_the_records_before),
		T(a_damaged_record_takes_no_other_one_along),
		T(what_is_behind_the_last_whole_record_goes),
		T(a_hole_at_any_place_makes_no_record),
		T(a_bit_that_flips_anywhere_makes_no_other_record),
		T(a_file_of_another_owner_counts_for_nothing),
		T(lengths_beyond_the_file_or_the_limit_end_it),
		T(more_entries_than_a_directory_may_have_end_it),
		T(directories_beyond_the_last_end_it),
		T(entries_that_no_listing_gives_are_refused),
		T(a_full_disk_leaves_what_was_there),
		T(old_records_go_and_new_ones_stay),
		T(more_records_than_are_looked_at_are_not_written),
		T(something_else_of_that_name_is_no_index),
		T(directories_have_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
