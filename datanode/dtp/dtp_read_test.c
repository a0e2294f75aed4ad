/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: a reader whose volume is out of service is told why, unless bytes of the stream have
 * gone: then what follows them is of the stream. */
#include "datanode/dtp/dtp_test_fixture.h"

/* ---- a connection that takes what the test says ---- */

static const struct xport_ops *real_ops;
static struct xop *held; /* a send that is under way */
static bool stopped;
static uint8_t offered[1 << 20], gone[1 << 20];
static uint32_t offered_len, answer_len, gone_len;

static void hold_send(struct xconn *c, const struct iovec *iov, int n, struct xop *op)
{
	const bool first = !offered_len;
	uint32_t len = 0;

	(void)c;
	assert_null(held);
	if (first)
		answer_len = (uint32_t)iov[0].iov_len;
	for (int i = 0; i < n; i++) {
		memcpy((first ? offered + len : gone + gone_len + len), iov[i].iov_base,
		       iov[i].iov_len);
		len += (uint32_t)iov[i].iov_len;
	}
	if (first) {
		offered_len = len;
		held = op;
		return;
	}
	gone_len += len;
	op->done(op, (int)len);
}

static void stop(struct xconn *c)
{
	(void)c;
	stopped = true;
}

static void let_go_and_close(struct xconn *c)
{
	if (held)
		held->done(held, -ECANCELED);
	held = NULL;
	c->ops = real_ops;
	real_ops->close(c);
}

static int64_t make_block(void)
{
	const struct fake_opts good = stream(1);
	const int64_t id = next_id++;
	uint32_t acks;

	put_write(id, false);
	acks = put_stream(DATA_LEN);
	peer_run(&good, 1);
	run_until_ended(acks);
	everything_comes_back();
	return id;
}

/* A read whose first send is under way. */
static void begin_read(struct xport_ops *slow)
{
	const struct fake_opts o = {0};
	Hd__OpReadBlockProto m = HD__OP_READ_BLOCK_PROTO__INIT;
	struct dtp_conn *c;

	m.header = header_for(make_block());
	m.len = DATA_LEN;
	put_op(DT_READ_BLOCK, &m);
	stopped = false;
	offered_len = gone_len = 0;
	peer_run(&o, 1);
	c = container_of(core.conns.next, struct dtp_conn, link);
	real_ops = c->xc->ops;
	*slow = *real_ops;
	slow->send = hold_send;
	slow->send_stop = stop;
	slow->close = let_go_and_close;
	c->xc->ops = slow;
	for (int i = 0; i < 600 && !held; i++)
		fix_run(10);
	assert_non_null(held);
}

/* The send was stopped in the middle of a header, the rest of which waits in the queue. */
static void a_word_why_a_read_ends_is_not_said_in_the_middle_of_a_packet(void **state)
{
	static struct xport_ops slow;
	struct xop *op;

	(void)state;
	begin_read(&slow);
	fix_run(2 * BUFFERS_STALL_NS / NS_PER_MS);
	block_read_reclaim_all(&core);
	assert_true(stopped);
	gone_len = answer_len + 10;
	memcpy(gone, offered, gone_len);
	op = held;
	held = NULL;
	op->done(op, (int)gone_len);
	block_read_volume_out(&core, 0);
	for (int i = 0; i < 600 && !peer.ended; i++)
		fix_run(10);
	assert_true(peer.ended);
	assert_true(gone_len <= offered_len);
	assert_memory_equal(gone, offered, gone_len);
	everything_comes_back();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_word_why_a_read_ends_is_not_said_in_the_middle_of_a_packet),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
