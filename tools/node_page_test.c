/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a page comes whole; one that comes byte by byte for ever is given up in time;
 * nothing that a server says does anything to a terminal. */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/net.h"
#include "tools/node_page.h"

#define PATIENCE_MS 60000

static struct {
	const char *text; /* the answer */
	size_t len;
	bool drips; /* its last byte again and again, until nobody listens */
	int listening;
	pthread_t thread;
} server;

static void *serve(void *arg)
{
	const struct timespec pause = {0, 1000000};
	struct pollfd p = {.fd = server.listening, .events = POLLIN};
	char request[512];
	int fd;

	(void)arg;
	(void)poll(&p, 1, -1);
	fd = accept(server.listening, NULL, NULL);
	(void)recv(fd, request, sizeof(request), 0);
	(void)send(fd, server.text, server.len, MSG_NOSIGNAL);
	while (server.drips && send(fd, server.text + server.len - 1, 1, MSG_NOSIGNAL) == 1)
		(void)nanosleep(&pause, NULL);
	(void)close(fd);
	return NULL;
}

static int get(const char *text, size_t len, bool drips, uint32_t patience_ms, char **ret,
	       size_t *ret_len, struct err *err)
{
	struct net_addr a, bound;
	int rc;

	server.text = text;
	server.len = len;
	server.drips = drips;
	assert_int_equal(net_resolve("127.0.0.1", 0, &a, err), 0);
	server.listening = net_listen(&a, false, &bound, err);
	assert_true(server.listening >= 0);
	assert_int_equal(pthread_create(&server.thread, NULL, serve, NULL), 0);
	rc = node_page_get("127.0.0.1", net_port(&bound), "/ops", patience_ms, ret, ret_len, err);
	pthread_join(server.thread, NULL);
	(void)close(server.listening);
	return rc;
}

static void a_page_that_drips_is_given_up(void **state)
{
	static const char page[] = "HTTP/1.0 200 OK\r\n\r\nx";
	struct err err = ERR_INIT;
	size_t len = 0;
	char *text;

	(void)state;
	assert_int_equal(get(page, sizeof(page) - 1, true, 300, &text, &len, &err), -ETIMEDOUT);
}

static void a_page_does_nothing_to_a_terminal(void **state)
{
	static const char page[] = "HTTP/1.0 200 OK\r\nA: b\r\n\r\n"
				   "a\tb\n\x1b[2Jc\rd\x07\x7f"
				   "\0"
				   "e\xc2\x9b"
				   "f\x9bg \xc3\xa9\xe2\x82\xac \xe2\x82";
	static const char plain[] = "a\tb\n?[2Jc?d???e??f?g \xc3\xa9\xe2\x82\xac ??";
	static const char refusal[] = "HTTP/1.0 404 \x1b]0;no\x07\r\n\r\n";
	struct err err = ERR_INIT;
	size_t len = 0;
	char *text;

	(void)state;
	assert_int_equal(get(page, sizeof(page) - 1, false, PATIENCE_MS, &text, &len, &err), 0);
	assert_int_equal(len, sizeof(plain) - 1);
	assert_string_equal(text, plain);
	free(text);
	assert_int_equal(get(refusal, sizeof(refusal) - 1, false, PATIENCE_MS, &text, &len, &err),
			 -EPROTO);
	assert_non_null(strstr(err.text, "404 ?]0;no?"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_page_that_drips_is_given_up),
		cmocka_unit_test(a_page_does_nothing_to_a_terminal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
