/* SPDX-License-Identifier: Apache-2.0 */
/* The next node of a chain by RDMA: each piece goes to it with its own CRCs, also one that takes
 * two capsules; it is asked to sync with the last of them, and a piece is acknowledged when all of
 * it is. A copy is stored when the node says so behind the last piece, and not before. The node may
 * read a piece and its CRCs from when it is told of them until it has read them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "datanode/block/sink.h"
#include "datanode/capsule/capsule_internal.h"
#include "datanode/dtp/dtp_internal.h"

#define BPC 512u
#define MESSAGE_MAX 1024u
#define SHORT_LEN (4 * BPC)          /* its CRCs fit a capsule */
#define LONG_LEN (1024 * BPC + 100u) /* its CRCs do not, and its last chunk is not whole */
#define ID 7u

/* ---- the connection ---- */

static struct capsule_user *conn;
static struct xconn xc = {.max_message = MESSAGE_MAX};
static struct capsule_peer_link hop = {.xc = &xc};
static struct {
	struct capsule m;
	uint8_t crcs[MESSAGE_MAX];
} sent[32];
static uint32_t sent_count;

int capsule_user_join(struct capsule_port *caps, const struct dn_target *node,
		      struct capsule_user *u)
{
	(void)caps, (void)node;
	u->dial = (struct capsule_dial *)&hop;
	conn = u;
	return 0;
}

void capsule_user_leave(struct capsule_user *u)
{
	u->dial = NULL;
}

struct capsule_peer_link *capsule_user_link(const struct capsule_user *u)
{
	(void)u;
	return &hop;
}

bool capsule_user_is_up(const struct capsule_user *u)
{
	(void)u;
	return true;
}

uint64_t capsule_user_id(struct capsule_user *u)
{
	(void)u;
	return ID;
}

static uint32_t hung_up;
void capsule_user_hang_up(struct capsule_user *u, int rc)
{
	(void)u, (void)rc;
	hung_up++;
}

int link_send(struct capsule_peer_link *l, const struct capsule *m)
{
	assert_ptr_equal(l, &hop);
	if (m->type != CAPSULE_WRITE)
		return 0;
	assert_in_range(sent_count, 0, 31);
	assert_int_equal(m->request_id, ID);
	sent[sent_count].m = *m;
	if (m->write.crc.p)
		memcpy(sent[sent_count].crcs, m->write.crc.p, m->write.crc.len);
	sent_count++;
	return 0;
}

/* ---- memory windows ---- */

static struct verbs_exposure *shown[64]; /* those that are open */
static uint32_t shown_count, shown_most = UINT32_MAX;
static struct { /* covered, and not closed by the device */
	void (*closed)(void *arg, int res);
	void *arg;
} closing[8];
static uint32_t closing_count;
static bool device_is_slow; /* it closes when a test says so */
static bool has_share;
static struct verbs_turn *waiting;

/* The address of a slot is its place in the test's memory. */
int verbs_expose(struct xconn *c, struct verbs_exposure *e, struct xremote *ret)
{
	assert_ptr_equal(c, &xc);
	assert_true(shown_count < shown_most && shown_count < 64);
	e->window = (struct verbs_window *)e;
	shown[shown_count++] = e;
	*ret = (struct xremote){(uintptr_t)e->slot->data + e->off, 9};
	return 0;
}

void verbs_cover(struct verbs_exposure *e, bool now)
{
	if (!e->window)
		return;
	assert_true(now == (e->closed != NULL)); /* at once, if somebody waits for it */
	e->window = NULL;
	if (e->closed) {
		assert_in_range(closing_count, 0, 7);
		closing[closing_count].closed = e->closed;
		closing[closing_count++].arg = e->arg;
	}
	for (uint32_t i = 0; i < shown_count; i++)
		if (shown[i] == e)
			shown[i] = shown[--shown_count];
}

bool verbs_turn_take(struct xconn *c, struct verbs_turn *t)
{
	assert_ptr_equal(c, &xc);
	if (t->has)
		return true;
	if (t->on || shown_most - shown_count < VERBS_EXPOSURES)
		return false;
	t->on = (struct vmemory_on *)t;
	t->has = true;
	return true;
}

void verbs_turn_wait(struct xconn *c, struct verbs_turn *t)
{
	assert_ptr_equal(c, &xc);
	t->on = (struct vmemory_on *)t;
	waiting = t;
}

void verbs_turn_end(struct verbs_turn *t)
{
	t->on = NULL;
	t->has = false;
}

bool verbs_has_its_share(const struct xconn *c)
{
	assert_ptr_equal(c, &xc);
	return has_share;
}

/* ---- the reactor and the engine ---- */

static struct rop *ready;
static struct rtimer *timer;
static uint64_t now_ns = 1;

void reactor_ready(struct reactor *r, struct rop *op)
{
	(void)r;
	ready = op;
}

void reactor_timer_set(struct reactor *r, struct rtimer *t, uint64_t deadline_ns)
{
	(void)r;
	timer = t;
	t->deadline_ns = deadline_ns;
}

void reactor_timer_clear(struct reactor *r, struct rtimer *t)
{
	(void)r;
	t->deadline_ns = 0;
}

uint64_t reactor_now_ns(const struct reactor *r)
{
	(void)r;
	return now_ns;
}

int dtp_write_op_encode(const struct sink_params *p, uint8_t **ret, size_t *ret_len)
{
	(void)p;
	*ret = calloc(1, 4); /* version, opcode, length 0 */
	*ret_len = 4;
	return *ret ? 0 : -ENOMEM;
}

int stream_sink_open(struct engine_core *core, const struct sink_params *params,
		     struct sink_user *user, struct piece_sink **ret)
{
	(void)core, (void)params, (void)user, (void)ret;
	fail();
	return -EIO;
}

/* ---- who writes ---- */

static struct {
	struct sink_user base;
	struct piece_sink *sink;
	int64_t acked;
	uint32_t pieces_back;
	bool opened, closed;
	bool broken;
	int rc;
} user;

static void on_opened(struct sink_user *u, int status, const char *bad_link)
{
	(void)u, (void)bad_link;
	assert_int_equal(status, DT_SUCCESS);
	user.opened = true;
}

static void on_sent(struct sink_user *u, struct piece *p)
{
	(void)u, (void)p;
	user.pieces_back++;
}

static void on_acked(struct sink_user *u, int64_t seq, const uint8_t *statuses, uint32_t n)
{
	(void)u;
	assert_int_equal(n, 1);
	assert_int_equal(statuses[0], DT_SUCCESS);
	user.acked = seq;
}

static void on_broken(struct sink_user *u, int rc)
{
	(void)u;
	assert_false(user.broken);
	user.broken = true;
	user.rc = rc;
}

static void on_closed(struct sink_user *u)
{
	(void)u;
	user.closed = true;
}

static const struct sink_user_ops user_ops = {
	.opened = on_opened,
	.sent = on_sent,
	.acked = on_acked,
	.broken = on_broken,
	.closed = on_closed,
};

static struct engine_core core = {.caps = (struct capsule_port *)&hop,
				  .waits = {.read_ns = 60 * NS_PER_S}};
static struct dn_target target = {.ip = "10.0.0.1", .xfer_port = 9866};
static struct write_params write_params = {.targets = &target, .target_count = 1};
static uint8_t data[LONG_LEN], crcs[LONG_LEN / BPC * 4 + 4];
static struct slot slot = {.data = data}, crc_slot = {.data = crcs};

static void step_ready(void)
{
	while (ready) {
		struct rop *op = ready;

		ready = NULL;
		if (!op->step(op))
			continue;
		op->free(op);
		ready = NULL;
	}
}

static void device_closes_one(int res)
{
	closing_count--;
	closing[closing_count].closed(closing[closing_count].arg, res);
	step_ready();
}

static void step(void)
{
	step_ready();
	while (closing_count && !device_is_slow)
		device_closes_one(0);
}

static void answer(struct capsule m)
{
	m.request_id = ID;
	assert_true(conn->ops->answer(conn, &m));
	step();
}

static void answer_closed(int status)
{
	struct capsule m = {.type = CAPSULE_CLOSED};

	m.closed.status = status;
	answer(m);
}

static void answer_pulled(int64_t seq)
{
	struct capsule m = {.type = CAPSULE_PULLED};

	m.pulled.seqno = seq;
	answer(m);
}

static void answer_ack(int64_t seq)
{
	static const uint8_t good[1];
	struct capsule m = {.type = CAPSULE_ACK};

	m.ack.status = good;
	m.ack.seqno = m.ack.pulled = seq;
	m.ack.count = 1;
	answer(m);
}

static void begin(bool copy)
{
	const struct sink_params p = {.write = &write_params,
				      .crc_type = CRC_CRC32C,
				      .bytes_per_crc = BPC,
				      .no_answer = copy,
				      .confirm = copy};
	struct capsule m = {.type = CAPSULE_OPEN_REPLY};

	memset(&user, 0, sizeof(user));
	user.base.ops = &user_ops;
	user.acked = -1;
	sent_count = hung_up = 0;
	assert_int_equal(sink_open(&core, &p, &user.base, &user.sink), 0);
	step();
	m.open_reply.status = DT_SUCCESS;
	answer(m);
	assert_true(user.opened);
}

static void end(void)
{
	user.sink->ops->close(user.sink);
	step();
	if (!user.closed)
		answer_closed(DT_ERROR);
	assert_true(user.closed);
	assert_int_equal(core.op_count, 0);
}

static struct piece piece_of(int64_t seq, uint64_t off, uint32_t len)
{
	struct piece p = {.seq = seq,
			  .off = off,
			  .len = len,
			  .slot = &slot,
			  .crc_count = (len + BPC - 1) / BPC,
			  .crcs = crcs,
			  .crc_slot = &crc_slot};

	memset(p.edge, 0xed, sizeof(p.edge));
	list_init(&p.link);
	return p;
}

static void forward(struct piece *p)
{
	user.sink->ops->forward(user.sink, p);
	step();
}

/* ---- the cases ---- */

/* A later piece may have completed the chunk, and written its CRC over the one of this piece. */
static void the_last_crc_of_a_piece_is_its_own(void **state)
{
	struct piece p = piece_of(4, 0, SHORT_LEN - 100);

	(void)state;
	begin(false);
	forward(&p);
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].m.write.crc.len, 16);
	assert_memory_equal(sent[0].crcs, crcs, 12);
	assert_memory_equal(sent[0].crcs + 12, p.edge, 4);
	assert_int_equal(sent[0].m.write.data.addr, (uintptr_t)data);
	assert_int_equal(sent[0].m.write.data_len, p.len);
	end();
}

static void crcs_that_are_too_many_for_a_capsule_stay_in_memory(void **state)
{
	struct piece p = piece_of(4, 0, LONG_LEN);

	(void)state;
	begin(false);
	forward(&p);
	assert_int_equal(sent_count, 2);
	assert_null(sent[0].m.write.crc.p);
	assert_int_equal(sent[0].m.write.crc_mem.addr, (uintptr_t)crcs);
	assert_int_equal(sent[0].m.write.crc_mem.len, LONG_LEN / BPC * 4);
	assert_int_equal(sent[0].m.write.data_len, LONG_LEN / BPC * BPC);
	assert_int_equal(sent[1].m.write.offset, LONG_LEN / BPC * BPC);
	assert_int_equal(sent[1].m.write.data.addr, (uintptr_t)data + LONG_LEN / BPC * BPC);
	assert_int_equal(sent[1].m.write.data_len, LONG_LEN % BPC);
	assert_int_equal(sent[1].m.write.crc.len, 4);
	assert_memory_equal(sent[1].crcs, p.edge, 4);
	end();
}

static void the_end_of_a_piece_asks_for_its_sync(void **state)
{
	static const uint32_t lens[] = {SHORT_LEN, LONG_LEN};

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		struct piece p = piece_of(4, 0, lens[i / 2]);

		p.sync = i % 2;
		begin(false);
		forward(&p);
		assert_int_equal(sent_count, 1 + i / 2);
		for (uint32_t k = 0; k < sent_count; k++)
			assert_int_equal(sent[k].m.flags,
					 p.sync && k == sent_count - 1 ? CAPSULE_SYNC : 0);
		end();
	}
}

static void a_piece_in_two_capsules_is_acknowledged_with_the_second(void **state)
{
	struct piece p = piece_of(4, 0, LONG_LEN);
	int64_t first, second;

	(void)state;
	begin(false);
	forward(&p);
	assert_int_equal(sent_count, 2);
	first = sent[0].m.write.seqno;
	second = sent[1].m.write.seqno;
	assert_int_equal(second, first + 1);
	answer_ack(first);
	assert_int_equal(user.pieces_back, 0);
	assert_int_equal(user.acked, -1);
	answer_ack(second);
	assert_int_equal(user.pieces_back, 1);
	assert_int_equal(user.acked, 4);
	end();
}

static void a_copy_is_stored_when_the_node_says_so_behind_the_last_piece(void **state)
{
	static const struct {
		bool last;
		int status, rc;
	} of[] = {{true, DT_SUCCESS, 0}, {true, DT_ERROR, -EIO}, {false, DT_SUCCESS, -EIO}};

	(void)state;
	for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++) {
		struct piece p = piece_of(0, 0, SHORT_LEN), last = {.seq = 1, .last = true};

		last.off = SHORT_LEN;
		list_init(&last.link);
		begin(true);
		forward(&p);
		if (of[i].last)
			forward(&last);
		assert_false(user.broken);
		answer_closed(of[i].status);
		assert_true(user.broken);
		assert_int_equal(user.rc, of[i].rc);
		assert_int_equal(user.pieces_back, 1 + of[i].last);
		end();
	}
}

static void the_node_may_read_a_piece_until_it_has_read_it(void **state)
{
	struct piece p = piece_of(4, 0, LONG_LEN), q = piece_of(5, LONG_LEN, SHORT_LEN);

	(void)state;
	q.slot_off = 512;
	begin(false);
	forward(&p);
	assert_int_equal(shown_count, 2); /* for both capsules */
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(shown[i]->right, VERBS_PEER_READS);
	assert_ptr_equal(shown[0]->slot, &slot);
	assert_int_equal(shown[0]->off, 0);
	assert_int_equal(shown[0]->len, LONG_LEN);
	assert_ptr_equal(shown[1]->slot, &crc_slot);
	assert_int_equal(shown[1]->len, LONG_LEN / BPC * 4);
	forward(&q);
	assert_int_equal(shown_count, 3); /* its CRCs ride along */
	assert_int_equal(shown[2]->off, 512);
	assert_int_equal(shown[2]->len, SHORT_LEN);
	answer_ack(sent[0].m.write.seqno);
	assert_int_equal(shown_count, 3);
	answer_ack(sent[1].m.write.seqno);
	assert_int_equal(shown_count, 1);
	end();
	assert_int_equal(shown_count, 0);
}

/* Who copies fills the slots again when they are sent. */
static void slots_of_a_copy_are_back_when_their_windows_are_closed(void **state)
{
	struct piece p = piece_of(4, 0, LONG_LEN);

	(void)state;
	begin(true);
	device_is_slow = true;
	forward(&p);
	assert_int_equal(shown_count, 2);
	answer_pulled(sent[1].m.write.seqno);
	assert_int_equal(shown_count, 0);
	assert_int_equal(user.pieces_back, 0);
	device_closes_one(0);
	assert_int_equal(user.pieces_back, 0);
	device_closes_one(0);
	assert_int_equal(user.pieces_back, 1);
	device_is_slow = false;
	end();
	assert_int_equal(user.pieces_back, 1);
}

static void a_copy_is_over_when_its_windows_are_closed(void **state)
{
	struct piece p = piece_of(0, 0, SHORT_LEN), last = {.seq = 1, .last = true};

	(void)state;
	list_init(&last.link);
	begin(true);
	device_is_slow = true;
	forward(&p);
	forward(&last);
	answer_closed(DT_SUCCESS);
	assert_true(user.broken && user.rc == 0); /* it is stored */
	assert_int_equal(user.pieces_back, 1);    /* the last one has no bytes */
	user.sink->ops->close(user.sink);
	step();
	assert_false(user.closed);
	device_closes_one(0);
	assert_int_equal(user.pieces_back, 2);
	assert_true(user.closed);
	device_is_slow = false;
}

/* The request that opens the window waits for a credit of the node, who gives none. */
static void a_copy_does_not_wait_for_windows_for_ever(void **state)
{
	struct piece p = piece_of(0, 0, SHORT_LEN);

	(void)state;
	begin(true);
	device_is_slow = true;
	forward(&p);
	answer_closed(DT_ERROR);
	user.sink->ops->close(user.sink);
	step();
	assert_false(user.closed);
	now_ns += 4 * NS_PER_S;
	timer->fire(timer);
	assert_int_equal(hung_up, 0);
	now_ns += 2 * NS_PER_S;
	timer->fire(timer);
	assert_int_equal(hung_up, 1);
	conn->ops->lost(conn, -ETIMEDOUT);
	step();
	assert_int_equal(user.pieces_back, 0); /* the device may read yet */
	device_closes_one(-ETIMEDOUT);
	assert_int_equal(user.pieces_back, 0);
	conn->dial = NULL;
	conn->ops->gone(conn);
	step();
	assert_int_equal(user.pieces_back, 1);
	assert_true(user.closed);
	device_is_slow = false;
}

static void a_piece_waits_its_turn_for_windows(void **state)
{
	struct piece p = piece_of(4, 0, SHORT_LEN), q = piece_of(5, SHORT_LEN, SHORT_LEN),
		     last = {.seq = 6, .off = 2 * SHORT_LEN, .last = true};
	struct verbs_turn *turn;

	(void)state;
	list_init(&last.link);
	begin(false);
	shown_most = 2;
	forward(&p);
	forward(&q);
	forward(&last);
	assert_int_equal(sent_count, 1); /* those behind wait, too */
	answer_ack(sent[0].m.write.seqno);
	assert_int_equal(sent_count, 1); /* in line: not by itself */
	turn = waiting;
	assert_true(turn->on && !turn->has);
	turn->has = true;
	ready = turn->rop;
	step();
	assert_int_equal(sent_count, 3);
	assert_int_equal(sent[1].m.write.offset, SHORT_LEN);
	assert_true(sent[2].m.flags & CAPSULE_LAST);
	assert_null(turn->on);
	shown_most = UINT32_MAX;
	end();
}

/* Who holds them is to blame: the hop, by this connection, or others. */
static void a_piece_does_not_wait_for_windows_for_ever(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct piece p = piece_of(4, 0, SHORT_LEN);

		begin(false);
		has_share = i;
		shown_most = 0;
		forward(&p);
		assert_int_equal(sent_count, 0);
		now_ns += 59 * NS_PER_S;
		timer->fire(timer);
		assert_false(user.broken);
		now_ns += 10 * NS_PER_S;
		timer->fire(timer);
		assert_true(user.broken);
		assert_int_equal(user.rc, has_share ? -ETIMEDOUT : -ENOBUFS);
		shown_most = UINT32_MAX;
		end();
		assert_int_equal(user.pieces_back, 1);
	}
	has_share = false;
}

/* It was asked for one, and does not answer: that others wait for windows is nothing to it. */
static void a_hop_that_does_not_answer_is_blamed(void **state)
{
	struct piece p = piece_of(4, 0, SHORT_LEN), q = piece_of(5, SHORT_LEN, SHORT_LEN);

	(void)state;
	begin(false);
	shown_most = 2;
	forward(&p);
	forward(&q);
	assert_int_equal(sent_count, 1);
	now_ns += 70 * NS_PER_S;
	timer->fire(timer);
	assert_int_equal(user.rc, -ETIMEDOUT);
	shown_most = UINT32_MAX;
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_node_may_read_a_piece_until_it_has_read_it),
		cmocka_unit_test(slots_of_a_copy_are_back_when_their_windows_are_closed),
		cmocka_unit_test(a_copy_is_over_when_its_windows_are_closed),
		cmocka_unit_test(a_copy_does_not_wait_for_windows_for_ever),
		cmocka_unit_test(a_piece_waits_its_turn_for_windows),
		cmocka_unit_test(a_piece_does_not_wait_for_windows_for_ever),
		cmocka_unit_test(a_hop_that_does_not_answer_is_blamed),
		cmocka_unit_test(the_last_crc_of_a_piece_is_its_own),
		cmocka_unit_test(crcs_that_are_too_many_for_a_capsule_stay_in_memory),
		cmocka_unit_test(the_end_of_a_piece_asks_for_its_sync),
		cmocka_unit_test(a_piece_in_two_capsules_is_acknowledged_with_the_second),
		cmocka_unit_test(a_copy_is_stored_when_the_node_says_so_behind_the_last_piece),
	};

	for (uint32_t i = 0; i < sizeof(crcs); i++)
		crcs[i] = (uint8_t)(i * 7 % 229);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
