/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: every form of host:port in use is understood, everything else is refused, and a
 * failed connect says to whom. */
#include "common/base/net.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static void addresses_in_use_are_split(void **state)
{
	static const struct {
		const char *text, *host;
		uint16_t dflt, port;
	} ok[] = {
		{"nn:8020", "nn", 0, 8020},
		{"nn", "nn", 8020, 8020},
		{"[::1]:80", "::1", 0, 80},
		{"[fe80::1]", "fe80::1", 9, 9},
		{"::1", "::1", 7, 7},
		{"hdfs://nn:1/a/b:c", "nn", 0, 1},
		{"hdfs://nn", "nn", 8020, 8020},
		{"0.0.0.0:0", "0.0.0.0", 0, 0},
		{"hdfs://ns1/", "ns1", 8020, 8020},
		{"h:65535", "h", 0, 65535},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(ok) / sizeof(ok[0]); i++) {
		char host[256];
		uint16_t port;

		assert_int_equal(net_split(ok[i].text, ok[i].dflt, host, &port, NULL), 0);
		assert_string_equal(host, ok[i].host);
		assert_int_equal(port, ok[i].port);
	}
}

static void other_text_is_refused_and_changes_nothing(void **state)
{
	static const char *const bad[] = {"",         ":1",    "nn",     "nn:",    "nn:x",
					  "nn:65536", "nn:-1", "[::1",   "[::1]x", "hdfs:///a",
					  "[]:1",     "nn:1 ", "hdfs://"};
	char host[256] = "old", big[400];
	uint16_t port = 5;
	struct err e;

	(void)state;
	memset(big, 'a', sizeof(big));
	big[sizeof(big) - 1] = '\0';
	assert_int_equal(net_split(big, 1, host, &port, &e), -EINVAL);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(net_split(bad[i], 0, host, &port, &e), -EINVAL);
		assert_non_null(strstr(e.text, "host:port"));
	}
	assert_string_equal(host, "old");
	assert_int_equal(port, 5);
}

static void a_listener_can_be_connected_to_and_a_closed_one_refuses(void **state)
{
	struct net_addr any, bound;
	char text[NET_TEXT_MAX];
	struct err e;
	int fd, c;

	(void)state;
	assert_int_equal(net_resolve("127.0.0.1", 0, &any, &e), 0);
	fd = net_listen(&any, false, &bound, &e);
	assert_true(fd >= 0);
	assert_true(net_port(&bound) != 0);
	assert_string_equal(net_ip(&bound, text), "127.0.0.1");
	c = net_connect(&bound, 1000, &e);
	assert_true(c >= 0);
	assert_true(fcntl(c, F_GETFL) & O_NONBLOCK);
	assert_int_equal(net_listen(&bound, false, NULL, &e), -EADDRINUSE);
	assert_non_null(strstr(e.text, net_text(&bound, text)));
	(void)close(c);
	(void)close(fd);
	assert_int_equal(net_connect(&bound, 1000, &e), -ECONNREFUSED);
	assert_non_null(strstr(e.text, net_text(&bound, text)));
}

static void *close_soon(void *fd)
{
	const struct timespec pause = {.tv_nsec = 100000000};

	nanosleep(&pause, NULL);
	(void)close(*(int *)fd);
	return NULL;
}

static void a_port_is_waited_for(void **state)
{
	struct net_addr any, bound;
	pthread_t t;
	struct err e;
	int fd;

	(void)state;
	assert_int_equal(net_resolve("127.0.0.1", 0, &any, &e), 0);
	assert_int_equal(net_await_free(&any, &e), 0);
	fd = net_listen(&any, false, &bound, &e);
	assert_true(fd >= 0);
	assert_int_equal(net_await_free(&bound, &e), -EADDRINUSE);
	assert_non_null(strstr(e.text, "stop it"));
	assert_int_equal(pthread_create(&t, NULL, close_soon, &fd), 0);
	assert_int_equal(net_await_free(&bound, &e), 0);
	pthread_join(t, NULL);
}

static void addresses_print_as_they_are_written(void **state)
{
	char text[NET_TEXT_MAX];
	struct net_addr a;

	(void)state;
	assert_int_equal(net_resolve("::1", 9866, &a, NULL), 0);
	assert_string_equal(net_text(&a, text), "[::1]:9866");
	assert_int_equal(net_resolve("::ffff:1.2.3.4", 1, &a, NULL), 0);
	assert_string_equal(net_text(&a, text), "1.2.3.4:1");
	assert_int_equal(net_resolve("localhost", 1, &a, NULL), 0);
	assert_string_equal(net_text(&a, text), "127.0.0.1:1"); /* not ::1 */
	a.sa.ss_family = AF_UNIX;
	assert_string_equal(net_text(&a, text), "local:0");
	a.sa.ss_family = AF_UNSPEC;
	assert_string_equal(net_text(&a, text), "?:0");
}

static void an_unknown_host_is_named(void **state)
{
	struct net_addr a;
	struct err e;

	(void)state;
	assert_int_equal(net_resolve("no host here", 1, &a, &e), -ENOENT);
	assert_non_null(strstr(e.text, "'no host here'"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_in_use_are_split),
		cmocka_unit_test(other_text_is_refused_and_changes_nothing),
		cmocka_unit_test(a_listener_can_be_connected_to_and_a_closed_one_refuses),
		cmocka_unit_test(a_port_is_waited_for),
		cmocka_unit_test(addresses_print_as_they_are_written),
		cmocka_unit_test(an_unknown_host_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
