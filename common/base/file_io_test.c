/* SPDX-License-Identifier: Apache-2.0 */
/* Partial and interrupted calls are gone on with; the end of the file is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/err.h"
#include "common/base/file_io.h"

static unsigned int calls;

ssize_t __real_pread(int fd, void *buf, size_t len, off_t off);
ssize_t __real_pwrite(int fd, const void *buf, size_t len, off_t off);
ssize_t __wrap_pread(int fd, void *buf, size_t len, off_t off);
ssize_t __wrap_pwrite(int fd, const void *buf, size_t len, off_t off);

ssize_t __wrap_pread(int fd, void *buf, size_t len, off_t off)
{
	errno = EINTR;
	return calls++ % 3 == 1 ? -1 : __real_pread(fd, buf, len > 7 ? 7 : len, off);
}

ssize_t __wrap_pwrite(int fd, const void *buf, size_t len, off_t off)
{
	errno = EINTR;
	return calls++ % 3 == 1 ? -1 : __real_pwrite(fd, buf, len > 5 ? 5 : len, off);
}

static void all_of_it_or_why_not(void **state)
{
	char name[] = "/tmp/file_io_test.XXXXXX", in[100], out[100];
	const int fd = mkstemp(name);

	(void)state;
	assert_true(fd >= 0);
	for (unsigned int i = 0; i < sizeof(in); i++)
		in[i] = (char)(i * 3);
	assert_int_equal(file_write_full(fd, in, sizeof(in), 11), 0);
	assert_int_equal(file_read_full(fd, out, sizeof(out), 11), 0);
	assert_memory_equal(in, out, sizeof(in));
	memset(out, 0, sizeof(out));
	assert_int_equal(file_read_full(fd, out, sizeof(out), 12), -ENODATA);
	assert_memory_equal(in + 1, out, sizeof(in) - 1);
	assert_int_equal(file_read_full(fd, out, 0, 1000), 0);
	assert_int_equal(close(fd), 0);
	assert_int_equal(file_write_full(fd, in, 1, 0), -EBADF);
	assert_int_equal(file_read_full(fd, out, 1, 0), -EBADF);
	unlink(name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(all_of_it_or_why_not)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
