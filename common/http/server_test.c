/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: peers that send half a request, in any number, lock nobody out, and while there are
 * such no other one loses its connection. Nor do those that take no answer, also while others come
 * faster than requests are read. */
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/net.h"
#include "common/http/server.h"

#define SLOW 600
#define FULL 480 /* connections at which one goes for each new one */
#define LARGE (32u << 20)
#define HALF "GET /half HTTP/1.1\r\nHost:"

static struct http_server *server;
static struct net_addr where;
static char large[LARGE];
static sem_t held, go_on;       /* of the request /hold: the server does nothing else meanwhile */
static _Atomic int64_t later_s; /* its clock is ahead by so much */

int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
	const int rc = __real_clock_gettime(id, ts);

	ts->tv_sec += later_s;
	return rc;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *c, const char *url,
			      const char *method)
{
	const bool is_large = !strcmp(url, "/large");
	struct MHD_Response *r;
	enum MHD_Result rc;

	(void)arg, (void)method;
	if (!strcmp(url, "/hold")) {
		sem_post(&held);
		sem_wait(&go_on);
	}
	r = MHD_create_response_from_buffer(is_large ? LARGE : 2, is_large ? large : "ok",
					    MHD_RESPMEM_PERSISTENT);
	rc = MHD_queue_response(c, MHD_HTTP_OK, r);
	MHD_destroy_response(r);
	return rc;
}

static int setup(void **state)
{
	struct net_addr addr;
	struct err err = ERR_INIT;
	int fd;

	(void)state;
	later_s = 0;
	assert_int_equal(net_resolve("127.0.0.1", 0, &addr, &err), 0);
	fd = net_listen(&addr, false, &where, &err);
	assert_true(fd >= 0);
	return http_server_start(fd, answer, NULL, &server, &err);
}

static int teardown(void **state)
{
	(void)state;
	http_server_stop(server);
	return 0;
}

/* @window: bytes that the peer takes ahead of its program; 0: the system's own choice. */
static int dial_window(const char *text, int window)
{
	const struct timeval patience = {.tv_sec = 30};
	const int fd = socket(where.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
	if (window) /* hundreds that take nothing are not to fill the machine's memory for TCP */
		assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &window, sizeof(window)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)(void *)&where.sa, where.len), 0);
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
	return fd;
}

static int dial(const char *text)
{
	return dial_window(text, 0);
}

static void expect_ok(int fd)
{
	char text[1024] = "";
	size_t n = 0;

	while (!strstr(text, "\r\n\r\nok")) {
		const ssize_t got = recv(fd, text + n, sizeof(text) - 1 - n, 0);

		assert_true(got > 0);
		n += (size_t)got;
	}
	assert_memory_equal(text, "HTTP/1.1 200", 12);
}

static void ask(int fd)
{
	static const char text[] = "GET /x HTTP/1.1\r\nHost: x\r\n\r\n";

	assert_int_equal(send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL), (ssize_t)sizeof(text) - 1);
	expect_ok(fd);
}

static void half_requests_lock_nobody_out(void **state)
{
	int slow[SLOW], fd;
	char c;

	(void)state;
	for (int i = 0; i < SLOW; i++)
		slow[i] = dial(HALF);
	fd = dial("");
	ask(fd);
	assert_true(recv(slow[0], &c, 1, 0) <= 0); /* the oldest ones went */
	assert_int_equal(send(slow[SLOW - 1], " x\r\n\r\n", 6, MSG_NOSIGNAL), 6);
	expect_ok(slow[SLOW - 1]);
	for (int i = 0; i < SLOW; i++)
		close(slow[i]);
	close(fd);
}

/* It is the oldest of all, and takes its answer slowly. */
static void who_is_being_answered_stays(void **state)
{
	static char buf[1 << 16];
	const int reader = dial("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
	int slow[SLOW];
	uint64_t bytes = 0;
	ssize_t n;

	(void)state;
	n = recv(reader, buf, 1, 0); /* the answer has begun */
	assert_int_equal(n, 1);
	for (int i = 0; i < SLOW; i++)
		slow[i] = dial(HALF);
	while (bytes < LARGE && (n = recv(reader, buf, sizeof(buf), 0)) > 0)
		bytes += (uint64_t)n;
	assert_true(bytes >= LARGE);
	for (int i = 0; i < SLOW; i++)
		close(slow[i]);
	close(reader);
}

static void answers_that_nobody_takes_lock_nobody_out(void **state)
{
	int slow[SLOW], fd;

	(void)state;
	for (int i = 0; i < SLOW; i++)
		slow[i] = dial_window("GET /large HTTP/1.1\r\nHost: x\r\n\r\n", 4096);
	fd = dial("");
	ask(fd);
	for (int i = 0; i < SLOW; i++)
		close(slow[i]);
	close(fd);
}

struct full {
	int conns[FULL - 1], holder;
};

/* All but the last one have asked and take no more of their answers. The last one is being
 * answered: the server looks at no other one before let_go(). */
static void fill_and_hold(struct full *f)
{
	ssize_t n;
	char c;

	for (int i = 0; i < FULL - 1; i++) {
		f->conns[i] = dial_window("GET /large HTTP/1.1\r\nHost: x\r\n\r\n", 4096);
		n = recv(f->conns[i], &c, 1, 0); /* the answer has begun */
		assert_int_equal(n, 1);
	}
	f->holder = dial("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
	sem_wait(&held);
}

static void let_go(struct full *f)
{
	sem_post(&go_on);
	expect_ok(f->holder);
}

static void drop(struct full *f)
{
	for (int i = 0; i < FULL - 1; i++)
		close(f->conns[i]);
	close(f->holder);
}

static void a_request_that_lies_in_the_socket_is_read(void **state)
{
	struct full f;
	int fd, behind;

	(void)state;
	fill_and_hold(&f);
	fd = dial("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
	behind = dial(HALF);
	let_go(&f);
	expect_ok(fd);
	close(fd);
	close(behind);
	drop(&f);
}

static void who_just_came_stays_beside_slow_ones(void **state)
{
	struct full f;
	int fd, behind;

	(void)state;
	fill_and_hold(&f);
	later_s += 30;
	fd = dial("");
	behind = dial(HALF);
	let_go(&f);
	ask(fd);
	close(fd);
	close(behind);
	drop(&f);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(half_requests_lock_nobody_out),
		T(who_is_being_answered_stays),
		T(answers_that_nobody_takes_lock_nobody_out),
		T(a_request_that_lies_in_the_socket_is_read),
		T(who_just_came_stays_beside_slow_ones),
	};
	struct rlimit files;

	sem_init(&held, 0, 0);
	sem_init(&go_on, 0, 0);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* both ends of all connections */
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
