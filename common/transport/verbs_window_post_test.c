/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a window gives the right that is named, in the domain that is meant, and it is
 * closed before messages that wait; a READ goes to registered memory by its own key, and not after
 * the time that it was given. */
#include "common/base/clock.h"
#include "common/transport/verbs_window_test_fixture.h"

static enum ibv_wr_opcode posted[8];
static uint32_t posted_n;
static unsigned int rights;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp;
	(void)bad;
	for (; wr; wr = wr->next) {
		posted[posted_n++] = wr->opcode;
		if (wr->opcode == IBV_WR_BIND_MW)
			rights = wr->bind_mw.bind_info.mw_access_flags;
	}
	return 0;
}

static void nothing(struct xop *op, int res)
{
	(void)op;
	(void)res;
}

static const struct verbs_protocol protocol = {.credit_offset = 0};

/* A connection whose peer takes no message now. */
static struct vconn *conn_up(struct ibv_qp *qp)
{
	static struct ibv_cq cq = {.cqe = 1000};
	const struct reactor_opts ro = {.name = "test"};
	struct vconn *c;

	assert_int_equal(reactor_new(&ro, &v.reactor, NULL), 0);
	v.opts.protocol = &protocol;
	dev[0].ctx.ops.post_send = post_send;
	qp->context = &dev[0].ctx;
	dev[0].d.cq = &cq;
	atomic_store(&dev[0].d.cqe_left, cq.cqe);
	list_init(&dev[0].d.rx_due);
	list_init(&dev[0].d.rx_dry);
	list_init(&dev[0].d.tx_waiting);
	c = vconn_alloc(&v, true);
	c->state = VC_UP;
	c->dev = c->cm_dev = &dev[0].d;
	c->qp = qp;
	c->cqes = c->sq_depth = VERBS_SQ_DEPTH;
	c->ping_ns = 1;
	posted_n = 0;
	return c;
}

static void conn_down(struct vconn *c)
{
	list_del(&c->rop.ready_link);
	reactor_timer_clear(v.reactor, &c->timer);
	reactor_free(v.reactor);
	free(c);
}

static void a_peer_gets_the_right_that_is_named_and_no_other(void **state)
{
	struct ibv_qp qp = {0};
	struct verbs_window *w;
	struct verbs_memory *m;
	struct vconn *c;

	(void)state;
	opens(&dev[0]);
	m = must_have();
	c = conn_up(&qp);
	w = verbs_window_get(m, &c->x);
	(void)verbs_window_open(&c->x, w, mem, 1, VERBS_PEER_WRITES);
	vconn_flush(c);
	assert_int_equal(rights, IBV_ACCESS_REMOTE_WRITE);
	(void)verbs_window_open(&c->x, w, mem, 1, VERBS_PEER_READS);
	vconn_flush(c);
	assert_int_equal(rights, IBV_ACCESS_REMOTE_READ);
	conn_down(c);
	verbs_memory_free(m);
}

/* Whoever waits for it has its answer, and does not wait for the messages of others. */
static void a_window_is_closed_before_messages_that_wait_for_credits(void **state)
{
	static uint8_t message[64];
	struct xop sent = {.done = nothing}, shut[2] = {{.done = nothing}, {.done = nothing}};
	struct verbs_window *w[2];
	struct ibv_qp qp = {0};
	struct verbs_memory *m;
	struct vconn *c;

	(void)state;
	opens(&dev[0]);
	m = must_have();
	c = conn_up(&qp);
	for (uint32_t i = 0; i < 2; i++)
		w[i] = verbs_window_get(m, &c->x);
	(void)verbs_window_open(&c->x, w[0], mem, 1, VERBS_PEER_WRITES);
	vconn_flush(c);
	verbs_ops.send(&c->x, &(struct iovec){message, sizeof(message)}, 1, &sent);
	(void)verbs_window_open(&c->x, w[1], mem, 1, VERBS_PEER_WRITES); /* not posted */
	verbs_window_close(&c->x, w[0], &shut[0]);
	verbs_window_close(&c->x, w[1], &shut[1]);
	vconn_flush(c);
	assert_int_equal(posted_n, 2);
	assert_int_equal(posted[0], IBV_WR_BIND_MW);
	assert_int_equal(posted[1], IBV_WR_LOCAL_INV);
	conn_down(c);
	verbs_memory_free(m);
}

/* Pulls wait for a peer that feeds them as slowly as it likes. */
static void a_window_is_closed_before_pulls_that_wait(void **state)
{
	struct xop pull[2] = {{.done = nothing}, {.done = nothing}}, shut = {.done = nothing};
	struct verbs_window *w;
	struct ibv_qp qp = {0};
	struct verbs_memory *m;
	struct vconn *c;

	(void)state;
	opens(&dev[0]);
	m = must_have();
	c = conn_up(&qp);
	c->rd_max = 1;
	w = verbs_window_get(m, &c->x);
	(void)verbs_window_open(&c->x, w, mem, 1, VERBS_PEER_READS);
	vconn_flush(c);
	for (uint32_t i = 0; i < 2; i++)
		assert_true(
			verbs_read(&c->x, &(struct verbs_read){{1, 2}, mem, m, 1, 0}, &pull[i]));
	vconn_flush(c);
	verbs_window_close(&c->x, w, &shut);
	vconn_flush(c);
	assert_int_equal(posted_n, 3);
	assert_int_equal(posted[1], IBV_WR_RDMA_READ);
	assert_int_equal(posted[2], IBV_WR_LOCAL_INV);
	conn_down(c);
	verbs_memory_free(m);
}

struct timed {
	struct xop op; /* first */
	int res;       /* 1: it is not done */
};

static void is_done(struct xop *op, int res)
{
	((struct timed *)op)->res = res;
}

/* The send queue has room for one: the others wait in the connection's, whatever the peer allows.
 */
static void a_read_whose_time_is_over_in_the_queue_is_not_posted(void **state)
{
	struct timed t[4] = {{{.done = is_done}, 1},
			     {{.done = is_done}, 1},
			     {{.done = is_done}, 1},
			     {{.done = is_done}, 1}};
	struct ibv_qp qp = {0};
	struct verbs_memory *m;
	struct vconn *c;
	uint64_t now;

	(void)state;
	opens(&dev[0]);
	m = must_have();
	c = conn_up(&qp);
	c->rd_max = 16;
	c->sq_depth = 2;
	now = clock_mono_ns();
	for (uint32_t i = 0; i < 4; i++) {
		const uint64_t until = i == 2 ? now + 20 * NS_PER_MS : i ? now + NS_PER_S * 60 : 0;

		assert_true(verbs_read(&c->x, &(struct verbs_read){{1, 2}, mem, m, 1, until},
				       &t[i].op));
	}
	vconn_flush(c);
	assert_int_equal(posted_n, 1);
	assert_int_equal(list_length(&c->rdq), 3);
	while (clock_mono_ns() < now + 20 * NS_PER_MS)
		;
	for (uint32_t i = 2; i <= 3; i++) { /* one more is over */
		c->sq_tail++;
		vconn_flush(c);
		assert_int_equal(posted_n, i);
	}
	assert_true(t[0].res == 1 && t[1].res == 1 && t[3].res == 1);
	assert_int_equal(t[2].res, -ETIME);
	assert_true(list_empty(&c->rdq));
	conn_down(c);
	verbs_memory_free(m);
}

/* Nothing else is there to post. */
static void so_is_the_only_one(void **state)
{
	struct timed t = {{.done = is_done}, 1};
	struct ibv_qp qp = {0};
	struct verbs_memory *m;
	struct vconn *c;

	(void)state;
	opens(&dev[0]);
	m = must_have();
	c = conn_up(&qp);
	c->rd_max = 16;
	assert_true(
		verbs_read(&c->x, &(struct verbs_read){{1, 2}, mem, m, 1, clock_mono_ns()}, &t.op));
	vconn_flush(c);
	assert_int_equal(posted_n, 0);
	assert_int_equal(t.res, -ETIME);
	conn_down(c);
	verbs_memory_free(m);
}

static unsigned rights_of(struct verbs_memory *m, struct vconn *c, enum verbs_right right)
{
	struct verbs_window *w = verbs_window_get(m, &c->x);
	struct ibv_send_wr wr = {0};
	struct vreq q;

	list_init(&c->txq);
	c->error = 0;
	(void)verbs_window_open(&c->x, w, mem, sizeof(mem), right);
	q = *container_of(list_pop(&c->txq), struct vreq, link);
	vwindow_bind_wr(&q, &wr);
	assert_true(wr.opcode == IBV_WR_BIND_MW && wr.bind_mw.bind_info.length == sizeof(mem));
	assert_int_equal(wr.bind_mw.bind_info.addr, (uintptr_t)mem);
	verbs_window_put(w);
	return wr.bind_mw.bind_info.mw_access_flags;
}

void __real_reactor_ready(struct reactor *r, struct rop *op);
void __wrap_reactor_ready(struct reactor *r, struct rop *op);
void __wrap_reactor_ready(struct reactor *r, struct rop *op)
{
	if (r) /* else nothing runs here */
		__real_reactor_ready(r, op);
}

/* A key of one domain is worthless in the other, and a window of one does not fit memory of it. */
static void what_is_lent_is_in_the_domain_of_those_who_were_accepted(void **state)
{
	struct vconn c = {.v = &v, .dev = &dev[0].d};
	struct verbs_memory *m, *own;
	struct ibv_pd *out;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(verbs_memory_lend(&v, mem, LEN, &m, &err), -ENODEV);
	opens(&dev[0]);
	dev[0].d.pd_in = ibv_alloc_pd(&dev[0].ctx);
	assert_int_equal(verbs_memory_lend(&v, mem, LEN, &m, &err), 0);
	assert_ptr_equal(mr_pd, dev[0].d.pd_in);
	assert_ptr_equal(mw_pd, dev[0].d.pd_in);
	assert_int_equal(rights_of(m, &c, VERBS_PEER_READS), IBV_ACCESS_REMOTE_READ);
	own = must_have();
	assert_ptr_equal(mr_pd, dev[0].d.pd_out);
	assert_ptr_equal(mw_pd, dev[0].d.pd_out);
	assert_int_equal(rights_of(own, &c, VERBS_PEER_WRITES), IBV_ACCESS_REMOTE_WRITE);
	verbs_memory_free(own);
	verbs_memory_free(m);
	out = dev[0].d.pd_out;
	dev[0].d.pd_out = NULL; /* who only listens has no other domain */
	assert_int_equal(verbs_memory_lend(&v, mem, LEN, &m, &err), 0);
	verbs_memory_free(m);
	dev[0].d.pd_out = out;
	dev[0].no_windows = true;
	(void)ibv_query_device(&dev[0].ctx, &dev[0].d.attr);
	dev[0].d.attr.device_cap_flags = 0;
	assert_int_equal(verbs_memory_lend(&v, mem, LEN, &m, &err), -ENOTSUP);
	ibv_dealloc_pd(dev[0].d.pd_in);
}

/* The bytes go to that memory, by its own key. */
static void a_read_goes_to_registered_memory(void **state)
{
	struct vconn c = {.v = &v, .dev = &dev[0].d};
	struct verbs_memory *m, *other;
	struct verbs_read r;
	struct xop op;
	struct vreq *q = vreq_of(&op);

	(void)state;
	list_init(&c.rdq);
	other = must_have(); /* there is no device: it is not the first one */
	m = must_have();
	r = (struct verbs_read){{1, 2}, mem, m, 3, 0};
	assert_false(verbs_read(&c.x, &r, &op));
	opens(&dev[0]);
	assert_true(verbs_read(&c.x, &r, &op));
	assert_true(q->kind == V_PULL && q->addr == 1 && q->rkey == 2 && q->ptr == mem &&
		    q->len == 3 && q->n == 2);
	assert_int_equal(vmemory_lkey(&dev[0].d, q->n - 1u), 2);
	verbs_memory_free(m);
	verbs_memory_free(other);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(a_peer_gets_the_right_that_is_named_and_no_other),
		CASE(a_window_is_closed_before_pulls_that_wait),
		CASE(a_window_is_closed_before_messages_that_wait_for_credits),
		CASE(a_read_whose_time_is_over_in_the_queue_is_not_posted),
		CASE(so_is_the_only_one),
		CASE(what_is_lent_is_in_the_domain_of_those_who_were_accepted),
		CASE(a_read_goes_to_registered_memory),
	};

	log_init("verbs_window_post_test", LOG_ERROR);
	return cmocka_run_group_tests_name("verbs_window_post", tests, NULL, NULL);
}
