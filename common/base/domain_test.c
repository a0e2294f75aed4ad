/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a path where somebody else could put a socket of his is refused; a socket that
 * was left behind is replaced and nothing else is; descriptors arrive open, and those that do not
 * fit are closed. */
#include "common/base/domain.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/domain_test.XXXXXX";

static void the_data_port_stands_in_the_path(void **state)
{
	char got[DOMAIN_PATH_MAX], text[300];

	(void)state;
	assert_int_equal(domain_path("/run/dn._PORT", 9866, got, NULL), 0);
	assert_string_equal(got, "/run/dn.9866");
	assert_int_equal(domain_path("/_PORT/a_POR_PORT_PORT", 7, got, NULL), 0);
	assert_string_equal(got, "/7/a_POR77");
	assert_int_equal(domain_path("/run/dn", 1, got, NULL), 0);
	assert_string_equal(got, "/run/dn");
	assert_int_equal(domain_path("", 1, got, NULL), -EINVAL);
	assert_int_equal(domain_path("run/dn", 1, got, NULL), -EINVAL);
	assert_int_equal(domain_path("/run/dn/", 1, got, NULL), -EINVAL);
	memset(text, 'a', sizeof(text));
	text[0] = '/';
	text[DOMAIN_PATH_MAX - 1] = '\0';
	assert_int_equal(domain_path(text, 1, got, NULL), 0);
	text[DOMAIN_PATH_MAX - 1] = 'a';
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(domain_path(text, 1, got, NULL), -EINVAL);
	memcpy(text + DOMAIN_PATH_MAX - 7, "_PORT",
	       6); /* one byte less than there is room, but for the fifth digit */
	assert_int_equal(domain_path(text, 1234, got, NULL), 0);
	memcpy(text + DOMAIN_PATH_MAX - 5, "_PORT", 6);
	assert_int_equal(domain_path(text, 12345, got, NULL), -EINVAL);
}

static void directories_that_others_may_write_to_are_refused(void **state)
{
	struct err e = ERR_INIT;
	struct stat st;
	char path[100];

	(void)state;
	if (stat("/", &st) < 0 || st.st_mode & 022)
		skip();
	assert_int_equal(domain_path_check("/dn.1", &e), 0);
	assert_int_equal(domain_path_check("/nosuch.directory/dn.1", &e), -ENOENT);
	assert_int_equal(domain_path_check("/proc/version/dn.1", &e), -ENOTDIR);
	snprintf(path, sizeof(path), "%s/dn", dir);
	assert_int_equal(domain_path_check(path, &e), -EPERM); /* /tmp, its sticky bit is no help */
	assert_non_null(strstr(e.text, "write to /tmp "));
}

static void a_socket_that_was_left_is_replaced_and_nothing_else(void **state)
{
	struct err e = ERR_INIT;
	char path[100];
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "%s/dn", dir);
	assert_int_equal(domain_connect(path, &e), -ENOENT);
	fd = domain_listen(path, &e);
	assert_true(fd >= 0);
	assert_int_equal(domain_listen(path, &e), -EADDRINUSE);
	close(fd);
	assert_int_equal(domain_connect(path, &e), -ECONNREFUSED);
	fd = domain_listen(path, &e);
	assert_true(fd >= 0);
	close(fd);
	unlink(path);
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	close(fd);
	assert_int_equal(domain_listen(path, &e), -EEXIST);
	assert_int_equal(access(path, F_OK), 0);
	unlink(path);
}

static int count_open(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void pass(int from, int to, int n, const int *fds)
{
	int got[DOMAIN_FDS_MAX], got_n = -1;
	uint8_t byte = 0;

	assert_int_equal(domain_recv_fds(to, &byte, got, &got_n), 0);
	assert_int_equal(domain_send_fds(from, 7, fds, n), 0);
	assert_int_equal(domain_recv_fds(to, &byte, got, &got_n), 1);
	assert_int_equal(byte, 7);
	assert_int_equal(got_n, n);
	for (int i = 0; i < n; i++) {
		assert_int_equal(fcntl(got[i], F_GETFD), FD_CLOEXEC);
		close(got[i]);
	}
}

static void descriptors_arrive_and_none_is_left_over(void **state)
{
	const int two[2] = {open("/dev/null", O_RDONLY | O_CLOEXEC),
			    open("/dev/zero", O_RDONLY | O_CLOEXEC)};
	const int before = count_open();
	int s[2], got[DOMAIN_FDS_MAX], n = -1;
	struct rlimit lim, low;
	uint8_t byte = 0;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s), 0);
	pass(s[0], s[1], 2, two);
	pass(s[0], s[1], 1, two);
	assert_int_equal(write(s[0], "x", 1), 1); /* a byte alone */
	assert_int_equal(domain_recv_fds(s[1], &byte, got, &n), 1);
	assert_int_equal(n, 0);
	/* no room for both: neither is kept */
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &lim), 0);
	low = lim;
	low.rlim_cur = (rlim_t)s[1] + 2;
	assert_int_equal(domain_send_fds(s[0], 1, two, 2), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	assert_int_equal(domain_recv_fds(s[1], &byte, got, &n), -EMFILE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &lim), 0);
	close(s[0]);
	assert_int_equal(domain_recv_fds(s[1], &byte, got, &n), -ECONNRESET);
	close(s[1]);
	assert_int_equal(count_open(), before);
	close(two[0]);
	close(two[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_data_port_stands_in_the_path),
		cmocka_unit_test(directories_that_others_may_write_to_are_refused),
		cmocka_unit_test(a_socket_that_was_left_is_replaced_and_nothing_else),
		cmocka_unit_test(descriptors_arrive_and_none_is_left_over),
	};
	int rc;

	if (!mkdtemp(dir))
		return 1;
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	(void)rmdir(dir);
	return rc;
}
