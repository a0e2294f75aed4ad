/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: when LMDB could not write its meta page it refuses every transaction from then
 * on; the process ends with a line that says so, whether a reader or a writer meets that first. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "namenode-shim/test_db.h"

#define META_END 8192 /* the two meta pages */

static bool meta_fails;

/* Called by LMDB's library in place of the C library's. */
__attribute__((visibility("default"))) ssize_t lmdb_pwrite(int fd, const void *buf, size_t len,
							   off_t at) __asm__("pwrite");
ssize_t lmdb_pwrite(int fd, const void *buf, size_t len, off_t at)
{
	static ssize_t (*real)(int, const void *, size_t, off_t);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "pwrite");
	if (!meta_fails || at >= META_END)
		return real(fd, buf, len, at);
	errno = EIO;
	return -1;
}

static int put(struct test_db *d, uint64_t key)
{
	(void)test_begin(d, "root");
	return txn_put(&d->t, d->db->quota, &key, sizeof(key), "x", 1) ?: txn_write_commit(&d->t);
}

/* Leaves with 0 if the process goes on. */
static void meet(struct test_db *d, bool writer)
{
	struct txn reader;

	test_db_reopen(d);
	if (txn_reader_new(d->db, &reader) < 0 || put(d, 1) < 0)
		_exit(3);
	meta_fails = true;
	if (put(d, 2) >= 0)
		_exit(4);
	meta_fails = false;
	fprintf(stderr, "the commit failed\n");
	if (writer) {
		struct txn t;

		(void)txn_write_begin(d->db, &t);
	} else {
		(void)txn_read_begin(&reader);
	}
	_exit(0);
}

static void the_process_ends_with_a_line(bool writer)
{
	char text[4096] = "", *end;
	size_t have = 0;
	struct test_db d;
	int to[2], status;
	ssize_t n;
	pid_t pid;

	test_db_init(&d);
	db_close(d.db); /* LMDB's environments are of one process */
	d.db = NULL;
	assert_int_equal(pipe(to), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		(void)dup2(to[1], STDERR_FILENO);
		meet(&d, writer);
	}
	close(to[1]);
	while ((n = read(to[0], text + have, sizeof(text) - 1 - have)) > 0)
		have += (size_t)n;
	close(to[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
	end = strstr(text, "the commit failed\n");
	assert_non_null(end);
	assert_non_null(strstr(end, "op=exit"));
	assert_non_null(strstr(end, "data.mdb"));
	test_db_fini(&d);
}

static void a_writer_that_lmdb_refuses_for_good_ends_the_process(void **state)
{
	(void)state;
	the_process_ends_with_a_line(true);
}

static void a_reader_that_lmdb_refuses_for_good_ends_the_process(void **state)
{
	(void)state;
	the_process_ends_with_a_line(false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_writer_that_lmdb_refuses_for_good_ends_the_process),
		cmocka_unit_test(a_reader_that_lmdb_refuses_for_good_ends_the_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
