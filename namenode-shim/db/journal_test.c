/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: records come back in order, whole and once; a torn last record counts as not
 * written; a broken one with others behind it, and a missing one, are told; what could not be
 * written or synced is not there, and stays so after a power cut. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "namenode-shim/db/journal.h"

#define HEAD 24 /* bytes before the payload, journal.h */

static char dir[64];
static struct err e;

/* ---- a disk that fails once ---- */

/* The next record is written, and the caller is told that it is not; or its sync fails; or that of
 * the directory. */
static bool record_to_fail, data_to_fail, name_to_fail;
static unsigned int data_syncs; /* that did not fail */

ssize_t __real_pwritev64(int fd, const struct iovec *iov, int n, off_t at);
ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int n, off_t at);
ssize_t __wrap_pwritev64(int fd, const struct iovec *iov, int n, off_t at)
{
	const ssize_t done = __real_pwritev64(fd, iov, n, at);

	if (!record_to_fail || n < 2)
		return done;
	record_to_fail = false;
	errno = EIO;
	return -1;
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
	data_syncs += !data_to_fail;
	if (!data_to_fail)
		return __real_fdatasync(fd);
	data_to_fail = false;
	errno = EIO;
	return -1;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	struct stat st;

	if (!name_to_fail || fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode))
		return __real_fsync(fd);
	name_to_fail = false;
	errno = EIO;
	return -1;
}

struct seen {
	uint64_t first, count, bytes;
	int fail_at; /* > 0 */
};

static int see(void *arg, uint64_t seq, const uint8_t *buf, size_t len)
{
	struct seen *s = arg;

	if (!s->count)
		s->first = seq;
	assert_int_equal(seq, s->first + s->count);
	for (size_t i = 0; i < len; i++)
		assert_int_equal(buf[i], (uint8_t)(seq + i));
	s->count++;
	s->bytes += len;
	return s->fail_at && s->count == (uint64_t)s->fail_at ? -ENOSPC : 0;
}

static size_t len_of(uint64_t seq)
{
	return (size_t)(seq * 37 % 301);
}

static int add(struct journal *j, uint64_t seq)
{
	uint8_t buf[301];

	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)(seq + i);
	return journal_append(j, seq, JOURNAL_DATA, buf, len_of(seq));
}

static struct journal *filled(uint64_t first, uint64_t last)
{
	struct journal *j = NULL;

	assert_int_equal(journal_new(dir, first, &j), 0);
	for (uint64_t i = first; i <= last; i++)
		assert_int_equal(add(j, i), 0);
	return j;
}

static struct seen read_after(uint64_t after, int want)
{
	struct seen s = {0};

	e = (struct err)ERR_INIT;
	assert_int_equal(journal_each(dir, after, see, &s, &e), want);
	return s;
}

static void path_of(char *buf, size_t size, uint64_t first)
{
	snprintf(buf, size, "%s/journal.%llu", dir, (unsigned long long)first);
}

static void overwrite(uint64_t first, off_t at, const void *buf, size_t len)
{
	char path[128];
	int fd;

	path_of(path, sizeof(path), first);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, buf, len, at), len);
	close(fd);
}

/* Where record @seq begins in a segment that begins with @first. */
static off_t offset_of(uint64_t first, uint64_t seq)
{
	off_t at = 0;

	for (uint64_t i = first; i < seq; i++)
		at += (off_t)((HEAD + len_of(i) + 7) / 8 * 8);
	return at;
}

static void records_come_back_in_order(void **state)
{
	struct journal *j = filled(1, 500);
	struct seen s = read_after(0, 0);

	(void)state;
	assert_int_equal(s.first, 1);
	assert_int_equal(s.count, 500);
	s = read_after(499, 0);
	assert_int_equal(s.first, 500);
	assert_int_equal(s.count, 1);
	assert_int_equal(read_after(500, 0).count, 0);
	journal_free(j);
}

static void segments_are_read_as_one_and_dropped_when_old(void **state)
{
	char path[128];

	(void)state;
	journal_free(filled(1, 10));
	journal_free(filled(11, 11));
	journal_free(filled(12, 30));
	assert_int_equal(read_after(0, 0).count, 30);
	assert_int_equal(read_after(10, 0).count, 20);
	assert_int_equal(journal_drop(dir, 10), 0);
	path_of(path, sizeof(path), 1);
	assert_int_equal(access(path, F_OK), -1);
	path_of(path, sizeof(path), 11);
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(read_after(10, 0).count, 20);
	(void)read_after(9, -EBADMSG); /* record 10 is missing */
	assert_non_null(strstr(e.text, "missing"));
	assert_int_equal(journal_drop(dir, UINT64_MAX), 0);
	assert_int_equal(read_after(9, 0).count, 0);
}

static void a_torn_end_counts_as_not_written(void **state)
{
	(void)state;
	for (uint32_t cut = 1; cut < HEAD + len_of(20); cut++) {
		uint8_t zeros[512] = {0};

		journal_free(filled(1, 20));
		overwrite(1, offset_of(1, 20) + (off_t)(HEAD + len_of(20) - cut), zeros, cut);
		/* of the last bytes some are zeros anyway */
		assert_in_range(read_after(0, 0).count, 19, 20);
		if (cut > 8)
			assert_int_equal(read_after(0, 0).count, 19);
	}
}

static void a_broken_record_before_others_is_told(void **state)
{
	const uint8_t b = 0x5a;

	(void)state;
	for (int at = 0; at < HEAD + 10; at++) {
		journal_free(filled(1, 20));
		overwrite(1, offset_of(1, 7) + at, &b, 1);
		assert_int_equal(read_after(0, -EBADMSG).count, 6);
		assert_non_null(strstr(e.text, "journal.1 is damaged at byte"));
		assert_int_equal(journal_each(dir, 20, see, &(struct seen){0}, &e), -EBADMSG);
	}
	journal_free(filled(1, 20));
	journal_free(filled(21, 22));
	overwrite(1, offset_of(1, 20) + 3, &b, 1); /* the last of a segment that is not the last */
	(void)read_after(0, -EBADMSG);
	journal_free(filled(21, 20)); /* a segment without records yet */
	(void)read_after(0, -EBADMSG);
	assert_non_null(strstr(e.text, "missing at its end"));
}

static void put(struct journal *j, uint64_t seq)
{
	uint8_t buf[301];

	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)(seq + i);
	assert_int_equal(journal_write(j, seq, JOURNAL_DATA, buf, len_of(seq)), 0);
	assert_true(journal_is_ahead(j));
}

/* The disk may have taken any of the pages of records that were not synced. */
static void of_records_that_were_not_synced_any_may_be_lost(void **state)
{
	static const uint8_t zeros[HEAD + 301];

	(void)state;
	for (uint64_t lost = 8; lost <= 10; lost++)
		for (int synced = 0; synced < 3; synced++) {
			struct journal *j = filled(1, 7);

			assert_false(journal_is_ahead(j));
			for (uint64_t i = 8; i <= 10; i++)
				put(j, i);
			assert_int_equal(read_after(0, 0).count, 10); /* a kill loses nothing */
			if (synced) {
				assert_int_equal(journal_sync(j), 0);
				assert_false(journal_is_ahead(j));
			}
			if (synced == 2)
				assert_int_equal(add(j, 11), 0);
			overwrite(1, offset_of(1, lost), zeros, len_of(lost) + HEAD);
			/* Behind a record that says that all before it were durable a lost one is
			 * damage. */
			assert_int_equal(read_after(0, synced == 2 ? -EBADMSG : 0).count, lost - 1);
			journal_free(j);
		}
}

static void what_is_undone_does_not_count(void **state)
{
	struct journal *j = filled(1, 5);

	(void)state;
	assert_int_equal(journal_append(j, 5, JOURNAL_UNDO, "", 0), 0);
	assert_int_equal(read_after(0, 0).count, 4);
	assert_int_equal(add(j, 5), 0);
	assert_int_equal(add(j, 6), 0);
	assert_int_equal(read_after(0, 0).count, 6);
	journal_free(j);
}

static void what_could_not_be_written_is_not_there(void **state)
{
	const struct rlimit small = {3 << 20, RLIM_INFINITY};
	struct rlimit old;
	uint8_t *large = calloc(1, 4 << 20);
	struct journal *j = filled(1, 3);

	(void)state;
	assert_non_null(large);
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	setrlimit(RLIMIT_FSIZE, &small);
	assert_int_equal(journal_append(j, 4, JOURNAL_DATA, large, 4 << 20), -EFBIG);
	assert_int_equal(add(j, 4), 0);
	setrlimit(RLIMIT_FSIZE, &old);
	assert_int_equal(add(j, 5), 0);
	assert_int_equal(read_after(0, 0).count, 5);
	journal_free(j);
	free(large);
}

/* It may be on the disk all the same: it is taken back there, before anybody is told. The next one
 * is written in its place. */
static void a_record_that_failed_never_comes_back(void **state)
{
	(void)state;
	for (int sync = 0; sync < 2; sync++) {
		struct journal *j = filled(10 * (uint64_t)sync + 1, 10 * (uint64_t)sync + 3);
		const uint64_t after = 10 * (uint64_t)sync, next = after + 4;

		record_to_fail = !sync;
		data_to_fail = sync;
		data_syncs = 0;
		assert_int_equal(add(j, next), -EIO);
		assert_false(record_to_fail || data_to_fail);
		assert_int_equal(data_syncs, 1);
		assert_false(journal_is_ahead(j));
		assert_int_equal(read_after(after, 0).count, 3);
		assert_int_equal(add(j, next), 0);
		assert_int_equal(add(j, next + 1), 0);
		assert_int_equal(read_after(after, 0).count, 5);
		journal_free(j);
		assert_int_equal(journal_drop(dir, UINT64_MAX), 0);
	}
}

static void a_segment_without_a_name_on_the_disk_is_not_begun(void **state)
{
	struct journal *j = NULL;
	char path[128];

	(void)state;
	name_to_fail = true;
	assert_int_equal(journal_new(dir, 1, &j), -EIO);
	assert_false(name_to_fail);
	path_of(path, sizeof(path), 1);
	assert_int_equal(access(path, F_OK), -1);
}

static void a_failed_reader_ends_it(void **state)
{
	struct seen s = {.fail_at = 3};

	(void)state;
	journal_free(filled(1, 5));
	assert_int_equal(journal_each(dir, 0, see, &s, &e), -ENOSPC);
	assert_int_equal(s.count, 3);
}

static int fresh(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/journal-test-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_it(void **state)
{
	(void)state;
	return journal_drop(dir, UINT64_MAX) < 0 || rmdir(dir) < 0 ? -1 : 0;
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, fresh, remove_it)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(records_come_back_in_order),
		T(segments_are_read_as_one_and_dropped_when_old),
		T(a_torn_end_counts_as_not_written),
		T(a_broken_record_before_others_is_told),
		T(of_records_that_were_not_synced_any_may_be_lost),
		T(what_is_undone_does_not_count),
		T(what_could_not_be_written_is_not_there),
		T(a_record_that_failed_never_comes_back),
		T(a_segment_without_a_name_on_the_disk_is_not_begun),
		T(a_failed_reader_ends_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
