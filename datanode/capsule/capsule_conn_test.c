/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: a request by RDMA has an id of its own, whether it is served or waits for its turn;
 * and neither those that wait nor those that are served before their turn can grow without bound:
 * a peer that goes on loses its connection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "datanode/block/buffers.h"
#include "datanode/capsule/capsule_internal.h"

/* ---- the connection, and streams that never end by themselves ---- */

static struct rop *conn_rop;
static struct capsule_conn *conn;
static const struct capsule *received; /* not looked at yet; NULL: none */
static const char *refused;
static uint32_t started, cancelled, pieces;
static uint32_t viewed, views_freed;

bool link_receive(struct capsule_peer_link *l, struct capsule *ret, struct slot **ret_payload)
{
	(void)l;
	if (!received)
		return false;
	*ret = *received;
	*ret_payload = NULL;
	received = NULL;
	return true;
}

void link_refuse(struct capsule_peer_link *l, const char *why)
{
	(void)l;
	refused = why;
}

void link_close(struct capsule_peer_link *l, int rc)
{
	(void)l, (void)rc;
	fail();
}

void link_init(struct capsule_peer_link *l, struct capsule_port *caps, struct rop *rop)
{
	*l = (struct capsule_peer_link){.caps = caps, .rop = rop};
	conn_rop = rop;
	conn = container_of(l, struct capsule_conn, link);
}

void link_attach(struct capsule_peer_link *l, struct xconn *xc)
{
	l->xc = xc;
}

const struct verbs_hello *verbs_peer(const struct xconn *xc)
{
	static const struct verbs_hello hello;

	(void)xc;
	return &hello;
}

void buffers_conn_init(const struct engine_core *c, struct buffers_share *s)
{
	(void)c;
	pool_budget_init(&s->slots, 0);
	pool_budget_init(&s->lists, 0);
}

void engine_count_conn(struct engine_core *core, int delta)
{
	(void)core, (void)delta;
}

void capsule_view(struct capsule_conn *c, const struct capsule *m)
{
	(void)c;
	viewed = m->type;
}

void capsule_view_end(struct capsule_conn *c, const struct capsule *m)
{
	capsule_view(c, m);
}

void capsule_views_lost(struct capsule_peer_link *l)
{
	(void)l;
	fail();
}

void capsule_views_free(struct capsule_conn *c)
{
	(void)c;
	views_freed++;
}

void reactor_ready(struct reactor *r, struct rop *op)
{
	(void)r, (void)op;
}

static bool stream_step(struct capsule_stream *s)
{
	(void)s;
	return true;
}

static void stream_free(struct capsule_stream *s)
{
	free(s);
}

static void stream_cancel(struct capsule_stream *s, int rc)
{
	(void)s, (void)rc;
	cancelled++;
}

static void start(struct capsule_conn *c, const struct capsule *m, bool is_write)
{
	struct capsule_stream *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	s->is_write = is_write;
	s->step = stream_step;
	s->free = stream_free;
	s->cancel = stream_cancel;
	capsule_stream_add(c, s, m->request_id);
	started++;
}

void capsule_write_start(struct capsule_conn *c, const struct capsule *m)
{
	start(c, m, true);
}

void capsule_read_start(struct capsule_conn *c, const struct capsule *m)
{
	start(c, m, false);
}

int capsule_write_piece(struct capsule_stream *s, const struct capsule *m, struct slot *payload)
{
	(void)payload;
	assert_int_equal(s->id, m->request_id);
	pieces++;
	return 0;
}

/* ---- the peer ---- */

static struct engine_core core;
static struct capsule_port caps = {.core = &core};
static struct xconn xc;

static void say(enum capsule_type type, uint64_t id)
{
	static const uint8_t none[1];
	struct capsule m = {.type = (uint8_t)type, .request_id = id};

	if (type == CAPSULE_READ)
		m.read.op.p = none;
	else if (type == CAPSULE_OPEN_WRITE)
		m.open_write.op.p = none;
	received = &m;
	assert_false(conn_rop->step(conn_rop));
	assert_null(received);
}

/* Requests from @first on. */
static void ask(uint64_t first, uint32_t n, enum capsule_type type)
{
	for (uint32_t i = 0; i < n; i++) {
		say(type, first + i);
		assert_null(refused);
	}
}

static void end_stream(uint64_t id)
{
	list_for_each (l, &conn->streams) {
		struct capsule_stream *s = container_of(l, struct capsule_stream, link);

		if (s->id == id)
			stream_ready(s);
	}
	assert_false(conn_rop->step(conn_rop));
}

static int setup(void **state)
{
	const struct pool_opts o = {.count = {[SLOT_64K] = 1, [SLOT_CRC] = 1}};

	(void)state;
	assert_int_equal(pool_new(&o, &core.pool, NULL), 0);
	list_init(&caps.conns);
	received = NULL;
	refused = NULL;
	started = cancelled = pieces = viewed = views_freed = 0;
	capsule_accept(&caps, &xc);
	return 0;
}

static void end_conn(void)
{
	conn->link.rc = -ECONNRESET;
	conn->link.gone = true;
	list_for_each (l, &conn->streams)
		container_of(l, struct capsule_stream, link)->ready = true;
	assert_true(conn_rop->step(conn_rop));
	conn_rop->free(conn_rop);
	conn = NULL;
	assert_int_equal(views_freed, 1);
}

static int teardown(void **state)
{
	(void)state;
	if (conn)
		end_conn();
	pool_free(core.pool);
	return 0;
}

/* ---- the cases ---- */

static void requests_beyond_the_streams_begin_in_their_turn(void **state)
{
	(void)state;
	ask(1, CAPS_STREAMS_MAX + 2, CAPSULE_READ);
	assert_int_equal(started, CAPS_STREAMS_MAX);
	assert_int_equal(conn->waiting_count, 2);
	end_stream(7);
	assert_int_equal(started, CAPS_STREAMS_MAX + 1);
	assert_int_equal(conn->waiting_count, 1);
	end_stream(8);
	assert_int_equal(started, CAPS_STREAMS_MAX + 2);
	assert_int_equal(conn->waiting_count, 0);
}

static void a_request_has_an_id_of_its_own(void **state)
{
	static const uint64_t taken[] = {1, CAPS_STREAMS_MAX, CAPS_STREAMS_MAX + 1,
					 CAPS_STREAMS_MAX + 2};

	(void)state;
	ask(1, CAPS_STREAMS_MAX + 2, CAPSULE_OPEN_WRITE);
	for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++) {
		refused = NULL;
		say(CAPSULE_OPEN_WRITE, taken[i]);
		assert_non_null(refused);
	}
	assert_int_equal(conn->waiting_count, 2);
}

static void requests_that_wait_have_a_bound(void **state)
{
	(void)state;
	ask(1, CAPS_STREAMS_MAX + CAPS_WAITING_MAX, CAPSULE_READ);
	assert_int_equal(conn->waiting_count, CAPS_WAITING_MAX);
	say(CAPSULE_READ, 1000000);
	assert_non_null(refused);
	assert_int_equal(conn->waiting_count, CAPS_WAITING_MAX);
	assert_int_equal(started, CAPS_STREAMS_MAX);
}

/* Each that waits is followed by a piece, or is cancelled. */
static void streams_before_their_turn_have_a_bound(void **state)
{
	const uint32_t more = 2 * CAPS_STREAMS_MAX;
	uint64_t id = CAPS_STREAMS_MAX + 1;

	(void)state;
	ask(1, CAPS_STREAMS_MAX, CAPSULE_OPEN_WRITE);
	for (; id <= more; id++) {
		ask(id, 1, CAPSULE_OPEN_WRITE);
		say(id % 2 ? CAPSULE_WRITE : CAPSULE_CANCEL, id);
		assert_null(refused);
		assert_int_equal(started, id);
	}
	assert_int_equal(pieces, CAPS_STREAMS_MAX / 2);
	assert_int_equal(cancelled, CAPS_STREAMS_MAX / 2);
	ask(id, 1, CAPSULE_OPEN_WRITE);
	say(CAPSULE_WRITE, id);
	assert_non_null(refused);
	assert_int_equal(started, more);
}

/* Of requests that were refused at once, and of views. */
static void answers_that_are_not_taken_have_a_bound(void **state)
{
	(void)state;
	ask(1, CAPS_STREAMS_MAX, CAPSULE_READ);
	conn->link.answers = CAPS_WAITING_MAX - 1;
	ask(1000, 1, CAPSULE_VIEW);
	assert_int_equal(viewed, CAPSULE_VIEW);
	viewed = 0;
	conn->link.answers++;
	say(CAPSULE_VIEW, 1001);
	assert_non_null(refused);
	assert_int_equal(viewed, 0);
	refused = NULL;
	say(CAPSULE_READ, 1002);
	assert_non_null(refused);
	assert_int_equal(conn->waiting_count, 0);
	conn->link.answers = CAPS_UNANSWERED_MAX - 1;
	list_for_each (l, &conn->streams) /* those have their answers */
		container_of(l, struct capsule_stream, link)->id = 0;
	refused = NULL;
	ask(1003, 1, CAPSULE_READ);
}

static void views_are_asked_for_by_the_dialer(void **state)
{
	(void)state;
	say(CAPSULE_VIEW, 5);
	assert_int_equal(viewed, CAPSULE_VIEW);
	say(CAPSULE_VIEW_END, 0);
	assert_int_equal(viewed, CAPSULE_VIEW_END);
	assert_null(refused);
	say(CAPSULE_VIEW_REPLY, 5);
	assert_non_null(refused);
}

/* The next node of a chain may read them yet: their stream is over, and the connection, too. */
static void slots_may_outlive_the_connection_they_are_charged_to(void **state)
{
	struct pool_budget hop;
	struct slot *s[2];
	struct pool_ask a = {.budget = {&hop, &conn->share.slots},
			     .forms = 1,
			     .form = {{.parts = 1, .part = {{SLOT_64K, 1}}}},
			     .slots = s};

	(void)state;
	pool_budget_init(&hop, 0);
	assert_true(pool_take(core.pool, &a));
	a.budget[1] = &conn->share.lists;
	a.form[0].part[0].cls = SLOT_CRC;
	a.slots = s + 1;
	assert_true(pool_take(core.pool, &a));
	end_conn();
	for (int i = 0; i < 2; i++) {
		assert_null(s[i]->budget[1]);
		slot_put(s[i]);
	}
	assert_int_equal(hop.used, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(requests_beyond_the_streams_begin_in_their_turn),
		T(a_request_has_an_id_of_its_own),
		T(requests_that_wait_have_a_bound),
		T(streams_before_their_turn_have_a_bound),
		T(answers_that_are_not_taken_have_a_bound),
		T(views_are_asked_for_by_the_dialer),
		T(slots_may_outlive_the_connection_they_are_charged_to),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
