/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: of two servers that stand for each other, one that takes connections and closes
 * them leads to the other one, whenever it does so, also with many calls under way; when both do,
 * a call ends after its attempts. An answer of which a byte comes now and then is late at the
 * deadline. The blocking client and the queue alike. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/rpc/queue.h"
#include "common/rpc/test_scripts.h"

enum { CALLERS = 8, EACH = 25, RUN_MS = 60000 };

static struct rpc_client *cli;
static struct rpc_queue *queue;
static struct err e;

/* ---- the server that closes ---- */

static struct closer {
	int fd;
	struct net_addr addr;
	pthread_t thread;
	script plays; /* on each connection */
	atomic_int conns;
} closer;

static void close_at_once(int fd)
{
	(void)fd;
}

/* What the client has sent is thrown away: it meets a reset. */
static void reset_at_once(int fd)
{
	const struct linger now = {.l_onoff = 1};

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

static void close_after_hello(int fd)
{
	(void)read_hello(fd);
}

/* As the scripts do, but what they note in srv is the other server's. */
static bool hear_call(int fd, struct request *q)
{
	return read_hello(fd) && read_frame(fd, q);
}

static void close_after_call(int fd)
{
	struct request q;

	if (hear_call(fd, &q))
		request_fini(&q);
}

static void close_in_answer(int fd)
{
	struct request q;
	size_t len;
	uint8_t *buf;

	if (!hear_call(fd, &q))
		return;
	buf = echo_of(&q, &len);
	write_all(fd, buf, len - 3);
	free(buf);
	request_fini(&q);
}

static const script closes[] = {close_at_once, reset_at_once, close_after_hello, close_after_call,
				close_in_answer};

/* The beginning of an answer of a kilobyte, a byte at a time, until the client leaves. */
static void drip(int fd)
{
	static const uint8_t head[4] = {0, 0, 4, 0};
	struct request q;

	if (!hear_call(fd, &q))
		return;
	request_fini(&q);
	for (int i = 0; i < 1024 && send(fd, i < 4 ? &head[i] : head, 1, MSG_NOSIGNAL) == 1; i++)
		(void)poll(NULL, 0, 10);
}

#define WAYS (sizeof(closes) / sizeof(closes[0]))

static void *close_for_ever(void *arg)
{
	struct pollfd p = {.fd = closer.fd, .events = POLLIN};
	int fd;

	(void)arg;
	while (poll(&p, 1, -1) == 1 && (fd = accept(closer.fd, NULL, NULL)) >= 0) {
		closer.conns++;
		closer.plays(fd);
		(void)close(fd);
	}
	return NULL;
}

static void closer_start(script plays)
{
	struct net_addr any;

	closer = (struct closer){.plays = plays};
	assert_int_equal(net_resolve("127.0.0.1", 0, &any, NULL), 0);
	closer.fd = net_listen(&any, false, &closer.addr, NULL);
	assert_true(closer.fd >= 0);
	assert_int_equal(pthread_create(&closer.thread, NULL, close_for_ever, NULL), 0);
}

static void closer_stop(void)
{
	(void)shutdown(closer.fd, SHUT_RDWR);
	assert_int_equal(pthread_join(closer.thread, NULL), 0);
	assert_int_equal(close(closer.fd), 0);
}

/* ---- the pair ---- */

/* The first one closes, as @plays; the other one plays srv.scripts, or closes, too. */
static struct rpc_client_opts pair_start(script plays, bool both, struct rpc_server *other)
{
	const uint32_t call_ms = plays == drip ? SHORT_TIMEOUT : CALL_TIMEOUT;
	struct rpc_client_opts o;

	assert_int_equal(listen_again(NULL), 0);
	closer_start(plays);
	o = pair_opts(false, call_ms, other);
	o.protocol = RPC_PROTO_CLIENT;
	o.user = "ann";
	o.addr = closer.addr;
	o.addr_text = "nn1:8020";
	if (both)
		other->addr = closer.addr;
	e = ERR_INIT;
	srv.scripts[0] = echo_for_ever;
	assert_int_equal(pthread_create(&srv.thread, NULL, serve, NULL), 0);
	return o;
}

static void pair_stop(void)
{
	(void)shutdown(srv.fd, SHUT_RDWR);
	assert_int_equal(pthread_join(srv.thread, NULL), 0);
	assert_int_equal(close(srv.fd), 0);
	closer_stop();
}

/* ---- the blocking client ---- */

static int call(const char *path, struct err *err)
{
	Hd__GetLinkTargetRequestProto m = HD__GET_LINK_TARGET_REQUEST_PROTO__INIT;
	const Hd__GetLinkTargetResponseProto *r;
	ProtobufCMessage *answer = NULL;
	int rc;

	m.path = (char *)(uintptr_t)path;
	rc = rpc_client_call(cli, "getLinkTarget", &m.base,
			     &hd__get_link_target_response_proto__descriptor, &answer, err);
	r = (const void *)answer;
	if (!rc && (!r->targetpath || strcmp(r->targetpath, path) != 0))
		rc = -EBADMSG;
	pb_free(answer);
	return rc;
}

struct caller {
	pthread_t thread;
	int rc;
	struct err err;
};

static void *call_many(void *arg)
{
	struct caller *c = (struct caller *)arg;
	char path[32];

	for (int i = 0; !c->rc && i < EACH; i++) {
		(void)snprintf(path, sizeof(path), "/%p/%d", arg, i);
		c->rc = call(path, &c->err);
	}
	return NULL;
}

static void a_call_goes_to_the_other_one_however_the_first_closes(void **state)
{
	(void)state;
	for (size_t i = 0; i < WAYS; i++) {
		struct rpc_server other;
		const struct rpc_client_opts o = pair_start(closes[i], false, &other);

		assert_int_equal(rpc_client_new(&o, &cli, &e), 0);
		assert_int_equal(call("/a", &e), 0);
		assert_int_equal(srv.call_id, 0);
		/* one for a connection that was idle; a reset may meet the connect itself */
		assert_in_range(srv.retry_count, 1, 2);
		assert_int_equal(call("/b", &e), 0); /* and it is remembered */
		assert_in_range(closer.conns, 1, 2);
		assert_int_equal(srv.conns, 1);
		rpc_client_free(cli);
		pair_stop();
	}
}

static void all_callers_go_to_the_other_one(void **state)
{
	(void)state;
	for (size_t i = 0; i < WAYS; i++) {
		struct caller c[CALLERS] = {0};
		struct rpc_server other;
		const struct rpc_client_opts o = pair_start(closes[i], false, &other);

		assert_int_equal(rpc_client_new(&o, &cli, &e), 0);
		for (int k = 0; k < CALLERS; k++)
			assert_int_equal(pthread_create(&c[k].thread, NULL, call_many, &c[k]), 0);
		for (int k = 0; k < CALLERS; k++)
			assert_int_equal(pthread_join(c[k].thread, NULL), 0);
		for (int k = 0; k < CALLERS; k++)
			assert_int_equal(c[k].rc, 0);
		assert_in_range(closer.conns, 1, 2 * CALLERS);
		assert_int_equal(srv.conns, 1);
		rpc_client_free(cli);
		pair_stop();
	}
}

static void when_both_close_a_call_ends_after_its_attempts(void **state)
{
	(void)state;
	for (size_t i = 0; i < WAYS; i++) {
		struct rpc_server other;
		const struct rpc_client_opts o = pair_start(closes[i], true, &other);
		const uint64_t t0 = clock_mono_ns();

		assert_int_equal(rpc_client_new(&o, &cli, &e), 0);
		assert_int_equal(call("/a", &e), -ECONNRESET);
		assert_non_null(strstr(e.text, "none of 2 NameNodes can be used"));
		/* at most two for the first server and for each change */
		assert_in_range(closer.conns, 1 + o.failovers_max, 2 * (1 + o.failovers_max));
		assert_true(clock_mono_ns() - t0 < CALL_TIMEOUT / 2 * NS_PER_MS);
		rpc_client_free(cli);
		pair_stop();
	}
}

/* Its bytes come sooner than each one's share of the time, 10 s in all. */
static void an_answer_that_drips_is_late_at_the_deadline(void **state)
{
	(void)state;
	for (int both = 0; both < 2; both++) {
		struct rpc_server other;
		const struct rpc_client_opts o = pair_start(drip, both, &other);
		const uint64_t t0 = clock_mono_ns();
		uint64_t took;

		assert_int_equal(rpc_client_new(&o, &cli, &e), 0);
		assert_int_equal(call("/a", &e), both ? -ETIMEDOUT : 0);
		took = (clock_mono_ns() - t0) / NS_PER_MS;
		assert_in_range(took, SHORT_TIMEOUT, 9000);
		rpc_client_free(cli);
		pair_stop();
	}
}

/* ---- the queue ---- */

struct asked {
	char path[32];
	int ends, rc;
	bool is_own;
	struct err err;
};

static uint32_t on_done(void *arg, struct rpc_done *d)
{
	struct asked *a = (struct asked *)arg;
	const Hd__GetLinkTargetResponseProto *m = (const void *)d->resp;

	a->ends++;
	a->rc = d->rc;
	if (d->rc < 0)
		a->err = *d->err;
	a->is_own = m && m->targetpath && !strcmp(m->targetpath, a->path);
	return 0;
}

static void submit_and_run(struct asked *a, int n)
{
	const uint64_t until = clock_mono_ns() + RUN_MS * NS_PER_MS;

	for (int i = 0; i < n; i++) {
		Hd__GetLinkTargetRequestProto m = HD__GET_LINK_TARGET_REQUEST_PROTO__INIT;

		(void)snprintf(a[i].path, sizeof(a[i].path), "/%d", i);
		m.path = a[i].path;
		assert_int_equal(rpc_queue_submit(queue, "getLinkTarget", &m.base,
						  &hd__get_link_target_response_proto__descriptor,
						  on_done, &a[i]),
				 0);
		if (i % 3 == 0) /* some while others are under way */
			assert_true(rpc_queue_run(queue, 0) >= 0);
	}
	while (rpc_queue_count(queue)) {
		assert_true(clock_mono_ns() < until);
		assert_true(rpc_queue_run(queue, 100) >= 0);
	}
}

static void all_calls_of_a_queue_go_to_the_other_one(void **state)
{
	(void)state;
	for (size_t i = 0; i < WAYS; i++) {
		struct asked a[CALLERS * EACH] = {0};
		struct rpc_server other;
		const struct rpc_client_opts o = pair_start(closes[i], false, &other);

		assert_int_equal(rpc_queue_new(&o, &queue, &e), 0);
		submit_and_run(a, CALLERS * EACH);
		for (int k = 0; k < CALLERS * EACH; k++) {
			assert_int_equal(a[k].ends, 1);
			assert_int_equal(a[k].rc, 0);
			assert_true(a[k].is_own);
		}
		assert_int_equal(srv.conns, 1);
		rpc_queue_free(queue);
		pair_stop();
	}
}

static void an_answer_to_a_queue_that_drips_is_late_at_the_deadline(void **state)
{
	(void)state;
	for (int both = 0; both < 2; both++) {
		struct asked a[1] = {0};
		struct rpc_server other;
		const struct rpc_client_opts o = pair_start(drip, both, &other);
		const uint64_t t0 = clock_mono_ns();

		assert_int_equal(rpc_queue_new(&o, &queue, &e), 0);
		submit_and_run(a, 1);
		assert_int_equal(a->rc, both ? -ETIMEDOUT : 0);
		assert_in_range((clock_mono_ns() - t0) / NS_PER_MS, SHORT_TIMEOUT, 9000);
		rpc_queue_free(queue);
		pair_stop();
	}
}

static void when_both_close_the_calls_of_a_queue_end_after_their_attempts(void **state)
{
	(void)state;
	for (size_t i = 0; i < WAYS; i++) {
		struct asked a[CALLERS] = {0};
		struct rpc_server other;
		const struct rpc_client_opts o = pair_start(closes[i], true, &other);

		assert_int_equal(rpc_queue_new(&o, &queue, &e), 0);
		submit_and_run(a, CALLERS);
		for (int k = 0; k < CALLERS; k++) {
			assert_int_equal(a[k].ends, 1);
			assert_int_equal(a[k].rc, -ECONNRESET);
			assert_non_null(strstr(a[k].err.text, "none of 2 NameNodes can be used"));
		}
		assert_in_range(closer.conns, 1 + o.failovers_max,
				CALLERS * 2 * (1 + o.failovers_max));
		rpc_queue_free(queue);
		pair_stop();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_call_goes_to_the_other_one_however_the_first_closes),
		cmocka_unit_test(all_callers_go_to_the_other_one),
		cmocka_unit_test(when_both_close_a_call_ends_after_its_attempts),
		cmocka_unit_test(an_answer_that_drips_is_late_at_the_deadline),
		cmocka_unit_test(all_calls_of_a_queue_go_to_the_other_one),
		cmocka_unit_test(an_answer_to_a_queue_that_drips_is_late_at_the_deadline),
		cmocka_unit_test(when_both_close_the_calls_of_a_queue_end_after_their_attempts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
