/* SPDX-License-Identifier: Apache-2.0 */
/* Connections on a device that refuses and fails; the device is played. What must hold: nothing
 * that was not done is called done, each op comes back once, and a queue pair goes only when the
 * last receive that it has taken out of the shared queue has come back. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/transport/verbs_internal.h"

/* ---- a device ---- */

static struct {
	uint32_t takes;                  /* work requests that it accepts before it refuses one */
	uint64_t posted[VERBS_SQ_DEPTH]; /* their ids */
	uint8_t stream[VERBS_SQ_DEPTH];  /* of a message */
	uint32_t n;
	struct ibv_wc wc[VERBS_BATCH]; /* to be polled */
	uint32_t wcs;
	bool in_error;
	uint32_t received; /* receives that were posted */
	bool srq_refuses;
} dev;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp;
	for (; wr; wr = wr->next) {
		if (!dev.takes) {
			*bad = wr;
			return ENOMEM;
		}
		dev.takes--;
		if (wr->opcode == IBV_WR_SEND && wr->num_sge)
			dev.stream[dev.n] = ((uint8_t *)(uintptr_t)wr->sg_list->addr)[1];
		dev.posted[dev.n++] = wr->wr_id;
	}
	return 0;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)srq;
	*bad = wr;
	if (dev.srq_refuses)
		return ENOMEM;
	for (; wr; wr = wr->next)
		dev.received++;
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	const uint32_t had = dev.wcs;

	(void)cq;
	assert_true(had <= (uint32_t)n);
	memcpy(wc, dev.wc, had * sizeof(*wc));
	dev.wcs = 0;
	return (int)had;
}

static struct {
	struct ibv_async_event e;
	bool there;
} async;

int __wrap_ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *e);
int __wrap_ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *e)
{
	const bool there = async.there;

	(void)ctx;
	*e = async.e;
	async.there = false;
	return there ? 0 : -1;
}

void __wrap_ibv_ack_async_event(struct ibv_async_event *e);
void __wrap_ibv_ack_async_event(struct ibv_async_event *e)
{
	(void)e;
}

int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	(void)qp;
	(void)mask;
	dev.in_error |= attr->qp_state == IBV_QPS_ERR;
	return 0;
}

static void completes(uint32_t i, enum ibv_wc_status status)
{
	dev.wc[dev.wcs++] = (struct ibv_wc){.wr_id = dev.posted[i], .status = status};
}

/* ---- a connection on it ---- */

static size_t no_encode(const struct verbs_hello *h, uint8_t out[VERBS_PRIVATE_MAX])
{
	(void)h;
	(void)out;
	return 0;
}

/* A message here: is it control, of which stream, ... */
static bool is_control(const void *message, uint32_t len, uint64_t *ret_stream)
{
	assert_true(len >= 8);
	*ret_stream = ((const uint8_t *)message)[1];
	return ((const uint8_t *)message)[0];
}

static const uint8_t beat[8];
static const struct verbs_protocol protocol = {.credit_offset = 4,
					       .heartbeat = beat,
					       .heartbeat_len = sizeof(beat),
					       .is_control = is_control,
					       .hello_encode = no_encode};

struct stage {
	struct reactor *reactor;
	struct pool *pool;
	struct verbs_control control;
	struct vcard card;
	struct ibv_device device;
	struct verbs *v;
	struct vdev d;
	struct ibv_context ctx;
	struct ibv_cq cq;
	struct ibv_qp qp;
	struct ibv_srq srq;
	struct vrx rx[4];
	struct vconn *c;
	struct slot *slot;
	struct ibv_mr mr;
	uint8_t tx[4][VERBS_MESSAGE_MAX];
	void *tx_free[4];
};

static void stage_vdev(struct stage *s)
{
	s->ctx.ops.post_send = post_send;
	s->ctx.ops.poll_cq = poll_cq;
	s->ctx.ops.post_srq_recv = post_srq_recv;
	s->cq.context = s->qp.context = s->srq.context = &s->ctx;
	s->d = (struct vdev){.v = s->v, .cq = &s->cq, .last_wqe = LAST_WQE_NEVER};
	s->d.poller = (struct poller){.fd = -1, .poll = vdev_poll, .arm = vdev_arm};
	atomic_store(&s->d.cqe_left, 1000);
	s->ctx.device = &s->device;
	s->card.ctx = &s->ctx;
	list_init(&s->control.cards);
	list_init(&s->card.devs);
	list_add_tail(&s->control.cards, &s->card.link);
	list_add_tail(&s->card.devs, &s->d.card_link);
	list_init(&s->d.rx_due);
	list_init(&s->d.rx_dry);
	list_init(&s->d.rx_spare);
	list_init(&s->d.tx_waiting);
	s->d.tx_mr_in = &s->mr;
	s->d.tx_free = s->tx_free;
	while (s->d.tx_free_count < 4) {
		s->tx_free[s->d.tx_free_count] = s->tx[s->d.tx_free_count];
		s->d.tx_free_count++;
	}
}

static int stage_up(void **state)
{
	static struct stage s;
	const struct reactor_opts ro = {.name = "test"};
	const struct pool_opts po = {.count = {4, 1, 1, 1, 1}};

	memset(&s, 0, sizeof(s));
	memset(&dev, 0, sizeof(dev));
	dev.takes = UINT32_MAX;
	if (reactor_new(&ro, &s.reactor, NULL) < 0)
		return -1;
	assert_int_equal(pool_new(&po, &s.pool, NULL), 0);
	s.slot = pool_get(s.pool, SLOT_64K, POOL_READ);
	s.v = calloc(1, sizeof(*s.v));
	s.v->reactor = s.reactor;
	s.v->opts = (struct verbs_opts){.protocol = &protocol, .pool = s.pool};
	s.v->control = &s.control;
	s.control.wake = -1;
	pthread_mutex_init(&s.control.lock, NULL);
	list_init(&s.control.todo);
	list_init(&s.v->conns);
	for (uint32_t i = 0; i < VERBS_QPN_BUCKETS; i++)
		list_init(&s.v->by_qpn[i]);
	list_init(&s.v->mail);
	s.v->poller.fd = -1;
	stage_vdev(&s);
	s.c = vconn_alloc(s.v, false);
	s.c->state = VC_UP;
	s.c->dev = s.c->cm_dev = &s.d;
	s.c->qp = &s.qp;
	s.c->cqes = 1;
	s.c->sq_depth = VERBS_SQ_DEPTH;
	s.c->rd_max = 16;
	s.v->table[0] = s.c;
	*state = &s;
	return 0;
}

static int stage_down(void **state)
{
	struct stage *s = *state;

	list_del(&s->c->rop.ready_link);
	reactor_timer_clear(s->reactor, &s->c->timer);
	free(s->c);
	free(s->v);
	slot_put(s->slot);
	pool_free(s->pool);
	reactor_free(s->reactor);
	pthread_mutex_destroy(&s->control.lock);
	return 0;
}

struct seen {
	struct xop op; /* first */
	int res;
	uint32_t count;
};

static void on_done(struct xop *op, int res)
{
	((struct seen *)op)->res = res;
	((struct seen *)op)->count++;
}

static void pull(struct stage *s, struct seen *w)
{
	*w = (struct seen){.op.done = on_done};
	xconn_pull(&s->c->x, (struct xremote){.addr = 4096}, s->slot, 0, 512, &w->op);
}

/* ---- what must hold ---- */

static void what_the_device_refuses_has_failed(void **state)
{
	struct stage *s = *state;
	struct seen w[5];

	for (int i = 0; i < 5; i++)
		pull(s, &w[i]);
	dev.takes = 2;
	(void)vconn_step(&s->c->rop);
	assert_true(dev.in_error);
	for (int i = 2; i < 5; i++) { /* they are nobody's: no completion will tell */
		assert_int_equal(w[i].count, 1);
		assert_int_equal(w[i].res, -EIO);
	}
	assert_int_equal(w[0].count + w[1].count, 0); /* the device has them still */
	completes(0, IBV_WC_SUCCESS);
	completes(1, IBV_WC_WR_FLUSH_ERR);
	(void)vdev_poll(&s->d.poller);
	assert_int_equal(w[0].res, 512);
	assert_int_equal(w[1].res, -EIO);
	for (int i = 0; i < 5; i++)
		assert_int_equal(w[i].count, 1);
	assert_int_equal(s->c->rd_used, 0);
	assert_int_equal(s->c->awaited, 0);
}

static void the_marker_of_a_failed_post_calls_nothing_done(void **state)
{
	struct stage *s = *state;
	struct seen w[3];

	for (int i = 0; i < 3; i++)
		pull(s, &w[i]);
	dev.takes = 0;
	(void)vconn_step(&s->c->rop);
	dev.takes = UINT32_MAX;
	for (int i = 0; i < 3; i++)
		assert_int_equal(w[i].res, -EIO);
	assert_int_equal(s->c->sq_head, s->c->sq_tail);
}

static void completions_are_taken_as_they_are_needed_and_given_back(void **state)
{
	struct stage *s = *state;
	struct seen w[20];

	atomic_store(&s->d.cqe_left, VERBS_CQES_STEP + 2);
	s->c->rd_max = 64;
	for (int i = 0; i < 20; i++)
		pull(s, &w[i]);
	(void)vconn_step(&s->c->rop);
	assert_int_equal(dev.n, VERBS_CQES_STEP + 2); /* all that there are */
	assert_true(list_is_linked(&s->c->tx_link));
	for (uint32_t i = 0; i < VERBS_CQES_STEP + 2; i++)
		completes(i, IBV_WC_SUCCESS);
	(void)vdev_poll(&s->d.poller);
	assert_int_equal(atomic_load(&s->d.cqe_left), VERBS_CQES_STEP + 2);
	(void)vconn_step(&s->c->rop);
	assert_int_equal(dev.n, 20);
}

static void who_has_failed_takes_nobodys_turn(void **state)
{
	struct stage *s = *state;
	struct vconn *other = vconn_alloc(s->v, false);
	struct seen w;

	other->dev = &s->d;
	atomic_store(&s->d.cqe_left, 0);
	pull(s, &w);
	(void)vconn_step(&s->c->rop);
	list_add_tail(&s->d.tx_waiting, &other->tx_link); /* behind it */
	vconn_fail(s->c, -EPROTO, "a test");
	vdev_cqes_put(&s->d, 1);
	assert_true(list_is_linked(&other->rop.ready_link));
	list_del(&other->rop.ready_link);
	free(other);
}

static void the_last_quarter_of_completions_is_for_sending(void **state)
{
	struct stage *s = *state;
	struct seen w;

	s->cq.cqe = 100;
	atomic_store(&s->d.cqe_left, 24);
	assert_false(vdev_cqes_admit(&s->d, 1));
	assert_int_equal(atomic_load(&s->d.cqe_left), 24);
	pull(s, &w);
	(void)vconn_step(&s->c->rop);
	assert_int_equal(dev.n, 1);
	atomic_store(&s->d.cqe_left, 25);
	assert_true(vdev_cqes_admit(&s->d, 1));
}

static void the_first_word_waits_for_its_buffer_and_room(void **state)
{
	struct stage *s = *state;
	const uint32_t bufs = s->d.tx_free_count;

	s->c->active = true;
	s->d.tx_mr_out = &s->mr;
	credit_init(&s->c->credit, 4, 8);
	s->d.tx_free_count = 0;
	(void)vconn_step(&s->c->rop);
	assert_int_equal(dev.n + s->c->ping_ns, 0);
	s->d.tx_free_count = bufs;
	atomic_store(&s->d.cqe_left, 0);
	(void)vconn_step(&s->c->rop);
	assert_int_equal(dev.n + s->c->ping_ns, 0);
	atomic_store(&s->d.cqe_left, 8);
	(void)vconn_step(&s->c->rop);
	assert_int_equal(dev.n, 1);
	completes(0, IBV_WC_SUCCESS);
	(void)vdev_poll(&s->d.poller);
	assert_true(verbs_rtt_ns(&s->c->x) > 0);
	assert_int_equal(s->c->cqes, 1);
}

static void say(struct stage *s, struct seen *w, bool control, uint8_t stream)
{
	static uint8_t message[8][8];
	static uint32_t next;
	uint8_t *m = message[next++ % 8];

	m[0] = control;
	m[1] = stream;
	*w = (struct seen){.op.done = on_done};
	xconn_send(&s->c->x, &(struct iovec){m, 8}, 1, &w->op);
}

static void control_messages_have_a_credit_and_pass_other_streams(void **state)
{
	struct stage *s = *state;
	struct seen w[6];

	s->c->max_inline = 256;
	credit_init(&s->c->credit, 3, 8); /* one for data, one for control, one for a heartbeat */
	say(s, &w[0], false, 6);
	say(s, &w[1], false, 7); /* waits */
	say(s, &w[2], true, 7);  /* behind it: it would end what has not begun there */
	say(s, &w[3], true, 8);
	say(s, &w[4], true, 7);
	(void)vconn_step(&s->c->rop);
	assert_int_equal(dev.n, 1);
	assert_int_equal(dev.stream[0], 8); /* before data: it took the last credit but two */
	(void)credit_heard(&s->c->credit, 4);
	(void)vconn_step(&s->c->rop);
	assert_int_equal(dev.n, 2);
	assert_int_equal(dev.stream[1], 6);
	(void)credit_heard(&s->c->credit, 5);
	(void)vconn_step(&s->c->rop);
	assert_int_equal(dev.n, 4); /* the last of data, and control takes the one that is kept */
	assert_int_equal(dev.stream[2], 7);
	assert_int_equal(dev.stream[3], 7);
	assert_int_equal(credit_avail(&s->c->credit), 1);
	say(s, &w[5], true, 9);
	(void)vconn_step(&s->c->rop);
	assert_int_equal(dev.n, 4); /* the last one is not for control messages */
	s->c->beat = true;
	(void)vconn_step(&s->c->rop);
	assert_int_equal(dev.n, 5);
	assert_int_equal(dev.stream[4], 0); /* the heartbeat */
	(void)credit_heard(&s->c->credit, 8);
	(void)vconn_step(&s->c->rop);
	for (int i = 0; i < 6; i++)
		assert_int_equal(w[i].count, 1);
}

static void the_last_receive_is_waited_for_where_the_device_tells(void **state)
{
	struct stage *s = *state;

	s->d.srq = (struct ibv_srq *)&s->cq; /* it has one; nobody looks into it */
	s->d.last_wqe = LAST_WQE_SENT;
	s->c->closing = true;
	vconn_fail(s->c, -ECANCELED, "closed");
	completes(0, IBV_WC_WR_FLUSH_ERR); /* the marker */
	(void)vdev_poll(&s->d.poller);
	(void)vconn_step(&s->c->rop);
	assert_int_equal(s->c->state, VC_WAIT_FLUSH);
	s->c->last_wqe = true;
	(void)vconn_step(&s->c->rop);
	assert_int_equal(s->c->state, VC_WAIT_DESTROYED);
	assert_true(s->c->todo & DO_DESTROY);
}

static void a_device_that_never_tells_is_found_out(void **state)
{
	struct stage *s = *state;
	uint32_t waited = 0;

	s->d.srq = (struct ibv_srq *)&s->cq;
	s->d.last_wqe = LAST_WQE_UNKNOWN;
	for (int i = 0; i < 6; i++) { /* one connection after the other */
		const uint64_t began = clock_mono_ns();

		s->c->state = VC_UP;
		s->c->todo = 0;
		list_del(&s->c->todo_link);
		s->c->closing = true;
		vconn_fail(s->c, -ECANCELED, "closed");
		completes(dev.n - 1, IBV_WC_WR_FLUSH_ERR);
		(void)vdev_poll(&s->d.poller);
		s->c->cqes = 1;
		while (s->c->state == VC_WAIT_FLUSH && clock_mono_ns() < began + NS_PER_S)
			(void)vconn_step(&s->c->rop);
		assert_int_equal(s->c->state, VC_WAIT_DESTROYED);
		waited += clock_mono_ns() - began > 20 * NS_PER_MS;
	}
	assert_int_equal(waited, 4);
	assert_int_equal(s->d.last_wqe, LAST_WQE_NEVER);
}

/* ---- receives ---- */
#define SLOTS_8K 4
/* Of 8 receives 4 wait for a payload slot, of which none is left; then their connection ends. */
static void dry_up(struct stage *s, struct slot *held[SLOTS_8K])
{
	for (int i = 0; i < SLOTS_8K; i++)
		assert_non_null(held[i] = pool_get(s->pool, SLOT_8K, POOL_READ));
	s->d.srq = &s->srq;
	s->d.rx_count = 8;
	s->d.rx_base = 4;
	grant_init(&s->c->grant, 4);
	for (int i = 0; i < 4; i++) {
		s->rx[i] = (struct vrx){.dev = &s->d, .conn = s->c, .shared = true, .lands = true};
		vrx_post(&s->rx[i]);
	}
	assert_int_equal(list_length(&s->d.rx_dry), 4);
	vconn_rx_end(s->c);
	assert_int_equal(s->d.srq_left, 4);
}

static void receives_that_waited_are_each_parked_once(void **state)
{
	struct stage *s = *state;
	struct slot *held[SLOTS_8K];
	const int cqes = atomic_load(&s->d.cqe_left);

	dry_up(s, held);
	slot_put(held[0]); /* given from hand to hand: each one is one too many */
	(void)vdev_poll(&s->d.poller);
	assert_true(list_empty(&s->d.rx_dry));
	assert_int_equal(list_length(&s->d.rx_spare), 4);
	assert_int_equal(s->d.rx_count, 4);
	assert_int_equal(dev.received, 0);
	assert_int_equal(atomic_load(&s->d.cqe_left), cqes + 4);
	assert_int_equal(pool_slots_out(s->pool), 1 + SLOTS_8K - 1);
	for (int i = 1; i < SLOTS_8K; i++)
		slot_put(held[i]);
	assert_false(s->d.failed);
}

static void a_receive_that_is_refused_holds_nothing(void **state)
{
	struct stage *s = *state;
	struct slot *held[SLOTS_8K];
	const int cqes = atomic_load(&s->d.cqe_left);

	dry_up(s, held);
	s->d.rx_base = 8; /* none is one too many */
	dev.srq_refuses = true;
	slot_put(held[0]);
	(void)vdev_poll(&s->d.poller);
	assert_int_equal(s->d.events, DEV_FAILED);
	assert_int_equal(s->d.rx_count, 4);
	assert_int_equal(list_length(&s->d.rx_spare), 4);
	assert_int_equal(atomic_load(&s->d.cqe_left), cqes + 4);
	assert_int_equal(pool_slots_out(s->pool), 1 + SLOTS_8K - 1);
	for (int i = 1; i < SLOTS_8K; i++)
		slot_put(held[i]);
}

/* One of the shared receives comes back from queue pair 7, which fell into error. */
static void flush_a_receive(struct stage *s)
{
	s->c->qpn = 7;
	grant_init(&s->c->grant, 4);
	s->d.srq = &s->srq;
	s->d.rx_chunk[0] = calloc(1, sizeof(*s->d.rx_chunk[0]));
	*vdev_rx(&s->d, 0) = (struct vrx){.dev = &s->d, .shared = true};
	dev.wc[dev.wcs++] = (struct ibv_wc){1ull << 63, IBV_WC_WR_FLUSH_ERR, .qp_num = 7};
}

static void receives_of_a_destroyed_queue_pair_are_its_own(void **state)
{
	struct stage *s = *state;

	flush_a_receive(s);
	list_add_tail(&s->v->by_qpn[7], &s->c->qpn_link);
	s->c->state = VC_WAIT_DESTROYED;
	s->c->qp = NULL; /* freed */
	(void)vdev_poll(&s->d.poller);
	assert_int_equal(grant_out(&s->c->grant), 3); /* its grant was used up, nobody's receive */
	assert_int_equal(s->d.srq_left, 1);           /* and it is posted for anybody */
	assert_int_equal(dev.received, 1);
	free(s->d.rx_chunk[0]);
}

/* The card gives its number to the next one. */
static void receives_of_an_ended_queue_pair_do_not_meet_its_successor(void **state)
{
	struct stage *s = *state;
	struct vconn *old = vconn_alloc(s->v, false);

	flush_a_receive(s);
	old->qpn = 7;
	old->dev = &s->d;
	old->state = VC_WAIT_DESTROYED;
	list_add_tail(&s->v->by_qpn[7], &old->qpn_link);
	old->mail = MAIL_DESTROYED;
	list_add_tail(&s->v->mail, &old->mail_link);
	s->v->has_mail = true;
	(void)verbs_mail_poll(&s->v->poller);
	list_add_tail(&s->v->by_qpn[7], &s->c->qpn_link);
	(void)vdev_poll(&s->d.poller);
	assert_int_equal(s->c->state, VC_UP);
	assert_int_equal(grant_out(&s->c->grant), 4);
	free(s->d.rx_chunk[0]);
}

/* Nothing is to be sent, and a message is waited for without a deadline. */
static void a_silent_peer_is_given_up_while_nothing_is_sent(void **state)
{
	struct vconn *c = ((struct stage *)*state)->c;

	c->heard_ns = c->spoke_ns = clock_mono_ns();
	c->timer.fire(&c->timer);
	assert_int_equal(c->error, 0);
	c->heard_ns -= VERBS_PATIENCE_NS;
	c->timer.fire(&c->timer);
	assert_int_equal(c->error, -ETIMEDOUT);
}

/* ---- events of the device ---- */

static void happens(struct stage *s, struct ibv_async_event e)
{
	async.e = e;
	async.there = true;
	card_events(&s->control, &s->card);
	assert_false(async.there);
}

static void events_of_others_are_left_alone(void **state)
{
	struct stage *s = *state;
	struct ibv_cq cq = {.cq_context = NULL};
	struct ibv_srq srq = {.srq_context = NULL};
	struct ibv_qp qp = {.send_cq = &cq};

	happens(s, (struct ibv_async_event){.event_type = IBV_EVENT_QP_FATAL, .element.qp = &qp});
	happens(s, (struct ibv_async_event){.event_type = IBV_EVENT_COMM_EST, .element.qp = &qp});
	happens(s, (struct ibv_async_event){.event_type = IBV_EVENT_CQ_ERR, .element.cq = &cq});
	happens(s, (struct ibv_async_event){.event_type = IBV_EVENT_SRQ_ERR, .element.srq = &srq});
	assert_int_equal(s->d.events, 0);
	s->qp.send_cq = &s->cq;
	s->qp.qp_context = s->c;
	happens(s,
		(struct ibv_async_event){.event_type = IBV_EVENT_QP_FATAL, .element.qp = &s->qp});
	assert_int_equal(s->c->mail, MAIL_FAILED);
	list_del(&s->d.card_link); /* its reactor has left, the queue is there still */
	happens(s, (struct ibv_async_event){.event_type = IBV_EVENT_CQ_ERR, .element.cq = &s->cq});
	assert_int_equal(s->d.events, 0);
}

static void a_queue_in_error_takes_nobody_new(void **state)
{
	struct stage *s = *state;
	struct err err = ERR_INIT;
	int rc;

	assert_ptr_equal(control_dev(s->v, &s->ctx, &rc, &err), &s->d);
	happens(s, (struct ibv_async_event){.event_type = IBV_EVENT_CQ_ERR, .element.cq = &s->cq});
	assert_int_equal(s->d.events, DEV_FAILED);
	assert_null(control_dev(s->v, &s->ctx, &rc, &err));
	assert_int_equal(rc, -ENODEV);
	s->ctx.ops.req_notify_cq = NULL; /* nor is it asked for a wake-up */
	assert_int_equal(vdev_arm(&s->d.poller), 0);
}

static void no_more_receives_are_granted_than_there_are(void **state)
{
	struct stage *s = *state;

	s->d.srq = &s->srq;
	s->d.rx_count = s->d.rx_most = 32;
	s->d.srq_left = 8;
	grant_init(&s->c->grant, 16);
	while (grant_left(&s->c->grant) > 5)
		assert_int_equal(grant_received(&s->c->grant), 0);
	vconn_adapt(s->c, false); /* twice as many would be 16 more */
	assert_int_equal(s->d.srq_left, 8);
	assert_int_equal(s->c->grant.target, 16);
	s->d.srq_left = 16;
	vconn_adapt(s->c, false);
	assert_int_equal(s->d.srq_left, 0);
	assert_int_equal(s->c->grant.target, 32);
}

static void a_request_goes_where_receives_are(void **state)
{
	struct stage *s = *state;
	static struct verbs other;
	struct vdev d = {.v = &other, .srq = &s->srq, .srq_left = VERBS_CREDITS_LEAST};
	enum verbs_reject why;

	other = (struct verbs){.control = &s->control, .listening = true, .load = 3};
	s->v->listening = true;
	s->d.srq = &s->srq; /* and none is left */
	list_init(&s->control.verbs);
	list_add_tail(&s->control.verbs, &s->v->control_link);
	list_add_tail(&s->control.verbs, &other.control_link);
	list_add_tail(&s->card.devs, &d.card_link);
	assert_ptr_equal(cm_choose(&s->control, &s->ctx, &why), &other);
	atomic_store(&d.srq_left, VERBS_CREDITS_LEAST - 1);
	assert_ptr_equal(cm_choose(&s->control, &s->ctx, &why),
			 s->v); /* who gets more, or refuses */
	atomic_store(&s->d.srq_left, VERBS_CREDITS_LEAST);
	atomic_store(&d.srq_left, VERBS_CREDITS_LEAST);
	assert_ptr_equal(cm_choose(&s->control, &s->ctx, &why), s->v);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, stage_up, stage_down)
	const struct CMUnitTest tests[] = {
		CASE(what_the_device_refuses_has_failed),
		CASE(the_marker_of_a_failed_post_calls_nothing_done),
		CASE(completions_are_taken_as_they_are_needed_and_given_back),
		CASE(who_has_failed_takes_nobodys_turn),
		CASE(the_last_quarter_of_completions_is_for_sending),
		CASE(the_first_word_waits_for_its_buffer_and_room),
		CASE(control_messages_have_a_credit_and_pass_other_streams),
		CASE(the_last_receive_is_waited_for_where_the_device_tells),
		CASE(a_device_that_never_tells_is_found_out),
		CASE(receives_that_waited_are_each_parked_once),
		CASE(a_receive_that_is_refused_holds_nothing),
		CASE(receives_of_a_destroyed_queue_pair_are_its_own),
		CASE(receives_of_an_ended_queue_pair_do_not_meet_its_successor),
		CASE(a_silent_peer_is_given_up_while_nothing_is_sent),
		CASE(events_of_others_are_left_alone),
		CASE(a_queue_in_error_takes_nobody_new),
		CASE(no_more_receives_are_granted_than_there_are),
		CASE(a_request_goes_where_receives_are),
	};

	return cmocka_run_group_tests_name("verbs_fail", tests, NULL, NULL);
}
