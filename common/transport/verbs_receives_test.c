/* SPDX-License-Identifier: Apache-2.0 */
/* Receives on a device that is played. What must hold: those that come back in one look at the
 * completions are handed over with one doorbell for each queue, a peer is granted none that the
 * device does not have yet, and what the device refuses of a chain holds nothing. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/transport/verbs_internal.h"

#define MANY 80 /* more than fit one chain */
#define LEFT 5

static struct {
	uint32_t takes; /* receives, before it refuses one */
	uint32_t doorbells, received;
	uint64_t ids[2 * MANY];
	uint16_t granted; /* what a message told, and how many receives there were by then */
	uint32_t received_before;
	bool sent, in_error;
} dev;

static int take_all(struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	dev.doorbells++;
	for (; wr; wr = wr->next) {
		*bad = wr;
		if (!dev.takes)
			return ENOMEM;
		dev.takes--;
		dev.ids[dev.received++] = wr->wr_id;
	}
	return 0;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)srq;
	return take_all(wr, bad);
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)qp;
	return take_all(wr, bad);
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp, (void)bad;
	if (!wr->num_sge) /* the marker of a connection that has failed */
		return 0;
	memcpy(&dev.granted, (uint8_t *)(uintptr_t)wr->sg_list->addr + 4, 2);
	dev.granted = be16toh(dev.granted);
	dev.received_before = dev.received;
	dev.sent = true;
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	(void)cq, (void)n, (void)wc;
	return 0;
}

int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	(void)qp, (void)mask;
	dev.in_error |= attr->qp_state == IBV_QPS_ERR;
	return 0;
}

static size_t no_encode(const struct verbs_hello *h, uint8_t out[VERBS_PRIVATE_MAX])
{
	(void)h, (void)out;
	return 0;
}

static const uint8_t beat[8];
static const struct verbs_protocol protocol = {.credit_offset = 4,
					       .heartbeat = beat,
					       .heartbeat_len = sizeof(beat),
					       .hello_encode = no_encode};

static struct stage {
	struct reactor *reactor;
	struct pool *pool;
	struct verbs_control control;
	struct verbs *v;
	struct vdev d;
	struct ibv_context ctx;
	struct ibv_cq cq;
	struct ibv_qp qp;
	struct ibv_srq srq;
	struct ibv_mr mr;
	struct vconn *c;
	struct vrx rx[MANY];
	uint8_t tx[1][VERBS_MESSAGE_MAX];
	void *tx_free[1];
} s;

static void stage_vdev(void)
{
	s.ctx.ops.post_srq_recv = post_srq_recv;
	s.ctx.ops.post_recv = post_recv;
	s.ctx.ops.post_send = post_send;
	s.ctx.ops.poll_cq = poll_cq;
	s.cq.context = s.qp.context = s.srq.context = &s.ctx;
	s.tx_free[0] = s.tx[0];
	s.d = (struct vdev){.v = s.v,
			    .ctx = &s.ctx,
			    .cq = &s.cq,
			    .srq = &s.srq,
			    .rx_count = MANY,
			    .rx_base = MANY,
			    .tx_mr_in = &s.mr,
			    .tx_free = s.tx_free,
			    .tx_free_count = 1,
			    .last_wqe = LAST_WQE_NEVER};
	atomic_store(&s.d.cqe_left, 1000);
	list_init(&s.d.rx_due);
	list_init(&s.d.rx_dry);
	list_init(&s.d.rx_spare);
	list_init(&s.d.tx_waiting);
}

static int stage_up(void **state)
{
	const struct reactor_opts ro = {.name = "test"};
	const struct pool_opts po = {.count = {4, 1, 1, 1, 1}};

	(void)state;
	memset(&s, 0, sizeof(s));
	memset(&dev, 0, sizeof(dev));
	dev.takes = UINT32_MAX;
	assert_int_equal(reactor_new(&ro, &s.reactor, NULL), 0);
	assert_int_equal(pool_new(&po, &s.pool, NULL), 0);
	s.v = calloc(1, sizeof(*s.v));
	s.v->reactor = s.reactor;
	s.v->opts = (struct verbs_opts){.protocol = &protocol, .pool = s.pool};
	s.v->control = &s.control;
	s.control.wake = -1;
	pthread_mutex_init(&s.control.lock, NULL);
	list_init(&s.control.todo);
	list_init(&s.v->mail);
	list_init(&s.v->conns);
	stage_vdev();
	s.c = vconn_alloc(s.v, false);
	s.c->state = VC_UP;
	s.c->dev = s.c->cm_dev = &s.d;
	s.c->qp = &s.qp;
	s.c->cqes = 1;
	s.c->sq_depth = VERBS_SQ_DEPTH;
	grant_init(&s.c->grant, 4);
	return 0;
}

static int stage_down(void **state)
{
	(void)state;
	list_del(&s.c->rop.ready_link);
	reactor_timer_clear(s.reactor, &s.c->timer);
	free(s.c);
	free(s.v);
	pool_free(s.pool);
	reactor_free(s.reactor);
	pthread_mutex_destroy(&s.control.lock);
	return 0;
}

/* @n receives have come back, and are @c's or nobody's; of the shared queue or @c's own. */
static void come_back(struct vconn *c, uint32_t n, bool shared)
{
	for (uint32_t i = 0; i < n; i++) {
		s.rx[i] = (struct vrx){.dev = &s.d, .conn = c, .idx = i, .shared = shared};
		vrx_post(&s.rx[i]);
	}
}

/* ---- what must hold ---- */

static void those_of_one_look_go_with_one_doorbell(void **state)
{
	(void)state;
	come_back(NULL, 32, true);
	assert_int_equal(dev.doorbells, 0);
	(void)vdev_poll(&s.d.poller);
	assert_int_equal(dev.doorbells, 1);
	assert_int_equal(dev.received, 32);
	for (uint32_t i = 0; i < 32; i++)
		assert_int_equal(dev.ids[i], i | 1ull << 63);
	assert_int_equal(s.d.srq_left, 32);
	(void)vdev_poll(&s.d.poller);
	assert_int_equal(dev.doorbells, 1);
	come_back(NULL, MANY, true);
	(void)vdev_poll(&s.d.poller);
	assert_int_equal(dev.doorbells, 4);
	assert_int_equal(dev.received, 32 + MANY);
}

static void each_queue_has_its_doorbell(void **state)
{
	struct vrx own[2];

	(void)state;
	for (uint32_t i = 0; i < 2; i++)
		own[i] = (struct vrx){.dev = &s.d, .conn = s.c, .idx = 7 + i};
	come_back(NULL, 1, true);
	vrx_post(&own[0]);
	s.rx[1] = (struct vrx){.dev = &s.d, .idx = 1, .shared = true};
	vrx_post(&s.rx[1]);
	vrx_post(&own[1]);
	(void)vdev_poll(&s.d.poller);
	assert_int_equal(dev.doorbells, 2);
	assert_int_equal(dev.received, 4);
	assert_int_equal(dev.ids[1], 1 | 1ull << 63);
	assert_int_equal(dev.ids[3] & 0xffffff, 8);
	assert_true(dev.ids[3] & 1ull << 62);
	assert_int_equal(grant_out(&s.c->grant), 6); /* its own */
	assert_int_equal(s.d.srq_left, 2);
}

/* The message goes in the turn in which they came back, and tells of them. */
static void a_peer_is_told_of_those_that_are_there(void **state)
{
	(void)state;
	s.c->grant.target = 16;
	credit_init(&s.c->credit, 8, VERBS_CREDITS_MAX);
	come_back(s.c, LEFT, true);
	assert_int_equal(grant_out(&s.c->grant), 4);
	s.c->beat = true;
	(void)vconn_step(&s.c->rop);
	assert_true(dev.sent);
	assert_int_equal(dev.received_before, LEFT);
	assert_int_equal(dev.granted, 4 + LEFT);
	assert_int_equal(s.d.srq_left, 0);
}

static void what_is_refused_of_a_chain_holds_nothing(void **state)
{
	(void)state;
	dev.takes = 2;
	come_back(s.c, 5, true);
	s.c->grant.target = 16;
	(void)vdev_poll(&s.d.poller);
	assert_int_equal(dev.doorbells, 1);
	assert_int_equal(grant_out(&s.c->grant), 6);
	assert_int_equal(s.d.events, DEV_FAILED);
	assert_int_equal(list_length(&s.d.rx_spare), 3);
	assert_int_equal(s.d.rx_count, MANY - 3);
	assert_int_equal(atomic_load(&s.d.cqe_left), 1003);
	assert_true(list_empty(&s.d.rx_due));
	assert_int_equal(s.c->error, 0);
}

static void a_connection_whose_own_receives_are_refused_has_failed(void **state)
{
	(void)state;
	dev.takes = 1;
	come_back(s.c, 3, false);
	(void)vdev_poll(&s.d.poller);
	assert_int_equal(grant_out(&s.c->grant), 5);
	assert_int_equal(s.c->error, -EIO);
	assert_true(dev.in_error);
}

/* What was to be posted is then nobody's; its own buffers are freed. */
static void a_connection_that_ends_leaves_nothing_to_be_posted(void **state)
{
	struct vrx *own = calloc(2, sizeof(*own));

	(void)state;
	come_back(s.c, 3, true);
	for (uint32_t i = 0; i < 2; i++) {
		own[i] = (struct vrx){.dev = &s.d, .conn = s.c, .idx = i};
		vrx_post(&own[i]);
	}
	s.c->rx = own;
	s.c->rx_count = 2;
	s.c->state = VC_WAIT_DESTROYED;
	vconn_rx_end(s.c);
	assert_int_equal(list_length(&s.d.rx_due), 3);
	(void)vdev_poll(&s.d.poller);
	assert_int_equal(dev.received, 3);
	assert_int_equal(s.d.srq_left, 4 + 3); /* with what it was granted */
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, stage_up, stage_down)
	const struct CMUnitTest tests[] = {
		CASE(those_of_one_look_go_with_one_doorbell),
		CASE(each_queue_has_its_doorbell),
		CASE(a_peer_is_told_of_those_that_are_there),
		CASE(what_is_refused_of_a_chain_holds_nothing),
		CASE(a_connection_whose_own_receives_are_refused_has_failed),
		CASE(a_connection_that_ends_leaves_nothing_to_be_posted),
	};

	return cmocka_run_group_tests_name("verbs_receives", tests, NULL, NULL);
}
