/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: whoever has opened windows on a connection hears of its end before the queue pair
 * goes, and once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "datanode/capsule/capsule_internal.h"

static unsigned told, closed, given_up;
static struct capsule_peer_link *ends;

void reactor_timer_set(struct reactor *r, struct rtimer *t, uint64_t deadline_ns)
{
	(void)r, (void)t, (void)deadline_ns;
}

void reactor_timer_clear(struct reactor *r, struct rtimer *t)
{
	(void)r, (void)t;
}

void reactor_ready(struct reactor *r, struct rop *op)
{
	(void)r, (void)op;
}

uint64_t reactor_now_ns(const struct reactor *r)
{
	(void)r;
	return 1;
}

struct slot *verbs_take_payload(struct xconn *c, uint32_t *ret_len)
{
	(void)c, (void)ret_len;
	return NULL;
}

void slot_put(struct slot *s)
{
	assert_null(s);
}

static void closing(struct capsule_peer_link *l)
{
	assert_non_null(l->xc); /* its windows are to be revoked there */
	assert_int_equal(closed, 0);
	assert_int_equal(given_up, 1); /* and it is alive no more */
	told++;
}

static void close_conn(struct xconn *c)
{
	(void)c;
	closed++;
}

/* What is under way comes back meanwhile. */
static void give_up(struct xconn *c)
{
	(void)c;
	given_up++;
	ends->recv_op.done(&ends->recv_op, -ECANCELED);
	assert_int_equal(told, 0);
}

static void windows_go_before_the_queue_pair(void **state)
{
	static const struct xport_ops ops = {.close = close_conn, .give_up = give_up};
	struct engine_core core = {0};
	struct capsule_port caps = {.core = &core};
	struct xconn xc = {.ops = &ops};
	struct capsule_peer_link l = {0};
	struct rop rop;

	(void)state;
	link_init(&l, &caps, &rop);
	l.closing = closing;
	link_attach(&l, &xc);
	ends = &l;
	link_close(&l, -ECONNRESET);
	assert_true(told == 1 && closed == 1 && !l.xc);
	link_close(&l, -ECANCELED);
	assert_true(told == 1 && closed == 1 && l.rc == -ECONNRESET);
}

static struct xop *sent[4];
static unsigned sends;

static void send_later(struct xconn *c, const struct iovec *iov, int n, struct xop *op)
{
	(void)c, (void)iov, (void)n;
	sent[sends++] = op;
}

static void an_answer_counts_until_it_is_sent(void **state)
{
	static const struct xport_ops ops = {.send = send_later};
	static const uint8_t types[] = {CAPSULE_VIEW_REPLY, CAPSULE_HEARTBEAT, CAPSULE_CLOSED};
	struct engine_core core = {0};
	struct capsule_port caps = {.core = &core};
	struct xconn xc = {.ops = &ops, .max_message = VERBS_MESSAGE_MAX};
	struct capsule_peer_link l = {0};
	struct rop rop;

	(void)state;
	link_init(&l, &caps, &rop);
	link_attach(&l, &xc);
	for (unsigned i = 0; i < 3; i++) {
		struct capsule m = {.type = types[i], .request_id = types[i] != CAPSULE_HEARTBEAT};

		m.view_reply.v.status = types[i] == CAPSULE_VIEW_REPLY ? DT_ERROR_UNSUPPORTED : 0;
		assert_int_equal(link_send(&l, &m), 0);
	}
	assert_int_equal(l.answers, 2);
	sent[1]->done(sent[1], 0);
	assert_int_equal(l.answers, 2);
	sent[0]->done(sent[0], 0);
	sent[2]->done(sent[2], -ECONNRESET);
	assert_int_equal(l.answers, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(windows_go_before_the_queue_pair),
					   cmocka_unit_test(an_answer_counts_until_it_is_sent)};

	return cmocka_run_group_tests_name("capsule_link", tests, NULL, NULL);
}
