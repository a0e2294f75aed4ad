/* SPDX-License-Identifier: Apache-2.0 */
/* What requests expose of slots, on a device that is played. What must hold: a peer has a right to
 * the bytes of the request alone, of the kind that is asked for, opened before the message that
 * names them; the slot is nobody else's until the device has closed the window, or the queue pair
 * is gone; who finds no window spare gets one in its turn; closing takes no doorbell of its own
 * while others send. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/transport/verbs_internal.h"

#define WINDOWS VERBS_WINDOWS_LEAST
#define LKEY 77u

/* ---- a device ---- */

struct posted {
	uint64_t id;
	enum ibv_wr_opcode opcode;
	uint32_t rkey;
	uint64_t addr, len;
	unsigned int access;
	bool signalled;
};

static struct {
	struct posted wr[256];
	uint32_t n, doorbells;
	uint32_t retired; /* of these */
	uint32_t mws, fails_at;
	uint32_t next_key;
} dev;

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)qp;
	(void)bad;
	dev.doorbells++;
	for (; wr; wr = wr->next) {
		struct posted *p = &dev.wr[dev.n++];

		*p = (struct posted){.id = wr->wr_id,
				     .opcode = wr->opcode,
				     .signalled = wr->send_flags & IBV_SEND_SIGNALED};
		if (wr->opcode == IBV_WR_BIND_MW) {
			p->rkey = wr->bind_mw.rkey;
			p->addr = wr->bind_mw.bind_info.addr;
			p->len = wr->bind_mw.bind_info.length;
			p->access = wr->bind_mw.bind_info.mw_access_flags;
			assert_int_equal(wr->bind_mw.bind_info.mr->lkey, LKEY);
			assert_true((wr->bind_mw.mw->rkey & 0xff) != (p->rkey & 0xff));
		} else if (wr->opcode == IBV_WR_LOCAL_INV) {
			p->rkey = wr->invalidate_rkey;
		}
	}
	return 0;
}

/* All that was posted is done, or with @status not. */
static enum ibv_wc_status status;
static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int had = 0;

	(void)cq;
	for (; dev.retired < dev.n && had < n; dev.retired++)
		if (dev.wr[dev.retired].signalled || status != IBV_WC_SUCCESS)
			wc[had++] =
				(struct ibv_wc){.wr_id = dev.wr[dev.retired].id, .status = status};
	return had;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw;

	assert_int_equal(type, IBV_MW_TYPE_2);
	if (dev.fails_at && dev.mws + 1 >= dev.fails_at) {
		errno = ENOMEM;
		return NULL;
	}
	mw = calloc(1, sizeof(*mw));
	mw->context = pd->context;
	mw->rkey = ++dev.next_key << 8;
	dev.mws++;
	return mw;
}

static int dealloc_mw(struct ibv_mw *mw)
{
	dev.mws--;
	free(mw);
	return 0;
}

int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	(void)qp, (void)attr, (void)mask;
	return 0;
}

/* ---- a connection on it ---- */

static const uint8_t beat[8];
static const struct verbs_protocol protocol = {
	.credit_offset = 4, .heartbeat = beat, .heartbeat_len = sizeof(beat)};

struct stage {
	struct reactor *reactor;
	struct pool *pool;
	struct verbs_control control;
	struct verbs *v;
	struct vdev d;
	struct vcard card;
	struct ibv_device device;
	struct ibv_context ctx;
	struct ibv_pd pd;
	struct ibv_cq cq;
	struct ibv_qp qp;
	struct vconn *c;
	struct slot *slot;
	struct ibv_mr mr, *mrs[1];
	uint8_t tx[8][VERBS_MESSAGE_MAX];
	void *tx_free[8];
};

static struct vconn *conn_new(struct stage *s, uint16_t slot)
{
	struct vconn *c = vconn_alloc(s->v, true);

	c->state = VC_UP;
	c->dev = c->cm_dev = &s->d;
	c->qp = &s->qp;
	c->cqes = 1;
	c->sq_depth = VERBS_SQ_DEPTH;
	c->slot = slot;
	c->ping_ns = 1;
	c->heard_ns = c->spoke_ns = clock_mono_ns();
	c->max_inline = 64;
	credit_init(&c->credit, 100, VERBS_CREDITS_MAX);
	s->v->table[slot] = c;
	list_add_tail(&s->v->conns, &c->link);
	return c;
}

static void stage_vdev(struct stage *s)
{
	s->ctx.device = &s->device;
	s->ctx.ops.post_send = post_send;
	s->ctx.ops.poll_cq = poll_cq;
	s->ctx.ops.alloc_mw = alloc_mw;
	s->ctx.ops.dealloc_mw = dealloc_mw;
	s->cq.context = s->qp.context = s->pd.context = &s->ctx;
	s->mr.lkey = LKEY;
	s->mr.rkey = 0xdead;
	s->mrs[0] = &s->mr;
	s->d = (struct vdev){.v = s->v,
			     .ctx = &s->ctx,
			     .cq = &s->cq,
			     .pd_out = &s->pd,
			     .mr_out = s->mrs,
			     .tx_mr_out = &s->mr,
			     .last_wqe = LAST_WQE_NEVER};
	s->d.attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	s->d.attr.max_mw = WINDOWS * VERBS_WINDOWS_SHARE;
	atomic_store(&s->d.cqe_left, 1000);
	list_init(&s->d.rx_due);
	list_init(&s->d.rx_dry);
	list_init(&s->d.rx_spare);
	list_init(&s->d.tx_waiting);
	s->d.tx_free = s->tx_free;
	while (s->d.tx_free_count < 8) {
		s->tx_free[s->d.tx_free_count] = s->tx[s->d.tx_free_count];
		s->d.tx_free_count++;
	}
}

static int stage_up(void **state)
{
	static struct stage s;
	const struct reactor_opts ro = {.name = "test"};
	const struct pool_opts po = {.count = {40, 4, 1, 1, 40}};

	memset(&s, 0, sizeof(s));
	memset(&dev, 0, sizeof(dev));
	status = IBV_WC_SUCCESS;
	if (reactor_new(&ro, &s.reactor, NULL) < 0)
		return -1;
	assert_int_equal(pool_new(&po, &s.pool, NULL), 0);
	s.slot = pool_get(s.pool, SLOT_64K, POOL_READ);
	s.v = calloc(1, sizeof(*s.v));
	s.v->reactor = s.reactor;
	s.v->opts = (struct verbs_opts){.protocol = &protocol,
					.pool = s.pool,
					.active = true,
					.peer_may_write = true,
					.windows = VERBS_WINDOWS_AUTO};
	s.v->control = &s.control;
	s.control.wake = -1;
	pthread_mutex_init(&s.control.lock, NULL);
	list_init(&s.control.todo);
	list_init(&s.control.cards);
	list_init(&s.control.memories);
	list_init(&s.control.revoked);
	list_init(&s.v->conns);
	for (uint32_t i = 0; i < VERBS_QPN_BUCKETS; i++)
		list_init(&s.v->by_qpn[i]);
	list_init(&s.v->mail);
	s.v->poller.fd = -1;
	stage_vdev(&s);
	assert_int_equal(vdev_windows_new(&s.d), 0);
	s.c = conn_new(&s, 0);
	*state = &s;
	return 0;
}

static void conn_drop(struct vconn *c)
{
	list_del(&c->rop.ready_link);
	reactor_timer_clear(c->v->reactor, &c->timer);
	list_del(&c->link);
	c->v->table[c->slot] = NULL;
	free(c);
}

static int stage_down(void **state)
{
	struct stage *s = *state;
	int left;

	conn_drop(s->c);
	vwindows_free(s->d.slots);
	free(s->v);
	slot_put(s->slot);
	left = (int)(dev.mws + pool_slots_out(s->pool));
	pool_free(s->pool);
	reactor_free(s->reactor);
	pthread_mutex_destroy(&s->control.lock);
	return left;
}

struct seen {
	struct xop op; /* first */
	struct iovec iov;
	uint8_t msg[16];
};

static void on_done(struct xop *op, int res)
{
	(void)op, (void)res;
}

static void send_one(struct vconn *c, struct seen *w)
{
	*w = (struct seen){.op.done = on_done, .iov = {w->msg, sizeof(w->msg)}};
	xconn_send(&c->x, &w->iov, 1, &w->op);
}

static void turn(struct stage *s)
{
	(void)vconn_step(&s->c->rop);
	vdev_drain(&s->d);
}

static struct xremote must_expose(struct vconn *c, struct verbs_exposure *e)
{
	struct xremote at;

	assert_int_equal(verbs_expose(&c->x, e, &at), 0);
	return at;
}

static uint32_t spare(struct stage *s)
{
	vwindows_take_renewed(s->d.slots);
	return s->d.slots->spare_count;
}

/* ---- what must hold ---- */

static void a_request_exposes_its_bytes_alone(void **state)
{
	struct stage *s = *state;
	struct verbs_exposure e[2] = {
		{.slot = s->slot, .off = 4096, .len = 512, .right = VERBS_PEER_READS},
		{.slot = s->slot, .off = 0, .len = 100, .right = VERBS_PEER_WRITES}};
	struct xremote at[2];
	struct seen w;

	for (int i = 0; i < 2; i++)
		at[i] = must_expose(s->c, &e[i]);
	send_one(s->c, &w);
	turn(s);
	assert_int_equal(dev.doorbells, 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(dev.wr[i].opcode, IBV_WR_BIND_MW);
		assert_int_equal(dev.wr[i].addr, (uintptr_t)s->slot->data + e[i].off);
		assert_int_equal(dev.wr[i].addr, at[i].addr);
		assert_int_equal(dev.wr[i].len, e[i].len);
		assert_int_equal(dev.wr[i].rkey, at[i].rkey);
		assert_true(at[i].rkey != s->mr.rkey);
	}
	assert_int_equal(dev.wr[0].access, IBV_ACCESS_REMOTE_READ);
	assert_int_equal(dev.wr[1].access, IBV_ACCESS_REMOTE_WRITE);
	assert_int_equal(dev.wr[2].opcode, IBV_WR_SEND); /* behind both */
	for (int i = 0; i < 2; i++)
		verbs_cover(&e[i], true);
	turn(s);
}

static void slabs_give_no_right(void **state)
{
	struct stage *s = *state;
	const int rights =
		IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

	assert_false(vdev_slab_access(&s->d, false) & rights);
	assert_false(vdev_slab_access(&s->d, true) & rights);
	assert_true(vdev_slab_access(&s->d, false) & IBV_ACCESS_MW_BIND);
}

/* Its slot may be with somebody else's request as soon as it is given back. */
static void a_slot_is_kept_until_the_device_has_closed_the_window(void **state)
{
	struct stage *s = *state;
	struct verbs_exposure e = {.slot = s->slot, .len = 512, .right = VERBS_PEER_WRITES};
	struct xremote first = must_expose(s->c, &e), again;

	turn(s);
	assert_int_equal(s->slot->refs, 2);
	assert_int_equal(spare(s), WINDOWS - 1);
	verbs_cover(&e, true);
	assert_null(e.window);
	verbs_cover(&e, true); /* harmless */
	(void)vconn_step(&s->c->rop);
	assert_int_equal(dev.wr[dev.n - 1].opcode, IBV_WR_LOCAL_INV);
	assert_int_equal(dev.wr[dev.n - 1].rkey, first.rkey);
	assert_int_equal(s->slot->refs, 2); /* not done yet */
	vdev_drain(&s->d);
	assert_int_equal(s->slot->refs, 1);
	assert_int_equal(spare(s), WINDOWS);
	again = must_expose(s->c, &e); /* by the same window, */
	assert_int_equal(again.rkey >> 8, first.rkey >> 8);
	assert_true(again.rkey != first.rkey); /* which the old key names no more */
	turn(s);
	verbs_cover(&e, true);
	turn(s);
}

static void closing_goes_with_what_is_sent_next(void **state)
{
	struct stage *s = *state;
	struct verbs_exposure e = {.slot = s->slot, .len = 512}, f = e;
	struct seen w;

	(void)must_expose(s->c, &e);
	turn(s);
	verbs_cover(&e, false);
	turn(s);
	assert_int_equal(dev.doorbells, 1);
	(void)must_expose(s->c, &f);
	send_one(s->c, &w);
	(void)vconn_step(&s->c->rop);
	assert_int_equal(s->c->awaited, 0); /* no deadline of a request counts for it */
	turn(s);
	assert_int_equal(dev.doorbells, 2);
	assert_int_equal(dev.wr[dev.n - 1].opcode, IBV_WR_LOCAL_INV);
	assert_true(dev.wr[dev.n - 1].signalled); /* the slot waits for it */
	assert_false(dev.wr[dev.n - 2].signalled);
	assert_int_equal(s->slot->refs, 2);
	verbs_cover(&f, false);
	s->c->cover_deadline_ns = clock_mono_ns(); /* nothing is sent for long */
	s->c->timer.fire(&s->c->timer);
	turn(s);
	assert_int_equal(dev.doorbells, 3);
	assert_int_equal(s->slot->refs, 1);
}

static void many_are_not_put_off(void **state)
{
	struct stage *s = *state;
	struct verbs_exposure e[VERBS_COVERS_MOST];

	for (uint32_t i = 0; i < VERBS_COVERS_MOST; i++) {
		e[i] = (struct verbs_exposure){.slot = s->slot, .len = 512};
		(void)must_expose(s->c, &e[i]);
	}
	turn(s);
	for (uint32_t i = 0; i < VERBS_COVERS_MOST - 1; i++)
		verbs_cover(&e[i], false);
	turn(s);
	assert_int_equal(spare(s), WINDOWS - VERBS_COVERS_MOST);
	verbs_cover(&e[VERBS_COVERS_MOST - 1], false);
	turn(s);
	assert_int_equal(spare(s), WINDOWS);
}

/* Else the device would close what is not open, and the connection would end. */
static void a_window_is_not_closed_before_it_is_opened(void **state)
{
	struct stage *s = *state;
	struct verbs_exposure e = {.slot = s->slot, .len = 512};
	struct seen w;

	s->c->credit.sent = s->c->credit.granted;
	send_one(s->c, &w); /* waits for a credit, and what is opened behind it, too */
	(void)must_expose(s->c, &e);
	verbs_cover(&e, true);
	turn(s);
	s->c->credit.granted += 8;
	list_del(&s->c->rop.ready_link);
	(void)vconn_step(&s->c->rop);
	assert_int_equal(dev.wr[1].opcode, IBV_WR_BIND_MW);
	assert_true(list_is_linked(&s->c->rop.ready_link)); /* again at once */
	turn(s);
	assert_int_equal(dev.wr[2].opcode, IBV_WR_LOCAL_INV);
}

struct told {
	uint32_t count;
	int res;
};

static void on_closed(void *arg, int res)
{
	((struct told *)arg)->count++;
	((struct told *)arg)->res = res;
}

static void who_exposes_is_told_when_it_is_closed(void **state)
{
	struct stage *s = *state;
	struct told told = {0};
	struct verbs_exposure e = {.slot = s->slot, .len = 512, .closed = on_closed, .arg = &told};

	(void)must_expose(s->c, &e);
	turn(s);
	verbs_cover(&e, true);
	(void)vconn_step(&s->c->rop);
	assert_int_equal(told.count, 0);
	vdev_drain(&s->d);
	assert_true(told.count == 1 && told.res == 0);
}

/* One is covered and that is not done, one is open, one not even that. */
static void a_lost_connection_gives_back_when_its_queue_pair_is_gone(void **state)
{
	struct stage *s = *state;
	struct told told[3] = {0};
	struct verbs_exposure e[3];
	uint32_t mws = dev.mws;

	for (int i = 0; i < 3; i++) {
		e[i] = (struct verbs_exposure){
			.slot = s->slot, .len = 512, .closed = on_closed, .arg = &told[i]};
		if (i == 2)
			turn(s);
		(void)must_expose(s->c, &e[i]);
	}
	verbs_cover(&e[0], true);
	vconn_fail(s->c, -ECONNRESET, "a test");
	for (int i = 0; i < 3; i++)
		assert_null(e[i].window); /* who exposed it may go */
	s->c->closing = true;
	status = IBV_WC_WR_FLUSH_ERR;
	turn(s);
	(void)vconn_step(&s->c->rop);
	assert_int_equal(s->c->state, VC_WAIT_DESTROYED);
	assert_int_equal(list_length(&s->control.revoked), 3);
	assert_int_equal(s->slot->refs, 4);
	while (vmemory_turn(&s->control))
		;
	assert_int_equal(dev.mws, mws);
	assert_int_equal(spare(s), WINDOWS - 3); /* new, but the slot is not back */
	assert_int_equal(told[0].count + told[1].count + told[2].count, 0);
	vconn_exposed_end(s->c);
	assert_int_equal(s->slot->refs, 1);
	for (int i = 0; i < 3; i++)
		assert_true(told[i].count == 1 && told[i].res == -ECONNRESET);
	assert_int_equal(spare(s), WINDOWS);
}

/* The device has closed it, and says so when the control thread has it already. */
static void what_completes_late_touches_nothing_that_is_revoked(void **state)
{
	struct stage *s = *state;
	struct verbs_exposure e = {.slot = s->slot, .len = 512};
	struct verbs_window *w;

	(void)must_expose(s->c, &e);
	turn(s);
	w = e.window;
	verbs_cover(&e, true);
	(void)vconn_step(&s->c->rop);
	vconn_exposed_revoke(s->c);
	vdev_drain(&s->d);
	assert_ptr_equal(w->slot, s->slot);
	while (vmemory_turn(&s->control))
		;
	vconn_exposed_end(s->c);
	assert_int_equal(spare(s), WINDOWS);
}

static void a_lost_connection_exposes_nothing(void **state)
{
	struct stage *s = *state;
	struct verbs_exposure e = {.slot = s->slot, .len = 512};
	struct xremote at;

	vconn_fail(s->c, -ECONNRESET, "a test");
	assert_int_equal(verbs_expose(&s->c->x, &e, &at), -ECONNRESET);
	assert_true(!e.window && s->slot->refs == 1);
}

/* ---- turns ---- */

struct asker {
	struct rop rop;
	struct verbs_turn turn;
	struct verbs_exposure e[VERBS_EXPOSURES];
};

static void asker_init(struct asker *a)
{
	*a = (struct asker){0};
	rop_init(&a->rop, NULL, NULL);
	a->turn.rop = &a->rop;
}

static bool is_ready(struct asker *a)
{
	const bool ready = list_is_linked(&a->rop.ready_link);

	list_del(&a->rop.ready_link);
	return ready;
}

static bool takes(struct stage *s, struct asker *a)
{
	struct xremote at;

	if (!verbs_turn_take(&s->c->x, &a->turn))
		return false;
	for (uint32_t i = 0; i < VERBS_EXPOSURES; i++) {
		a->e[i] = (struct verbs_exposure){.slot = s->slot, .len = 512};
		assert_int_equal(verbs_expose(&s->c->x, &a->e[i], &at), 0);
	}
	verbs_turn_end(&a->turn);
	return true;
}

static void gives_back(struct stage *s, struct asker *a, bool now)
{
	turn(s);
	for (uint32_t i = 0; i < VERBS_EXPOSURES; i++)
		verbs_cover(&a->e[i], now);
	turn(s);
}

static void windows_go_to_whoever_waits_first(void **state)
{
	struct stage *s = *state;
	struct asker has[WINDOWS / VERBS_EXPOSURES], wants[3];

	for (uint32_t i = 0; i < WINDOWS / VERBS_EXPOSURES; i++) {
		asker_init(&has[i]);
		assert_true(takes(s, &has[i]));
	}
	assert_true(verbs_windows_are_few(&s->c->x));
	for (uint32_t i = 0; i < 3; i++) {
		asker_init(&wants[i]);
		assert_false(takes(s, &wants[i]));
		verbs_turn_wait(&s->c->x, &wants[i].turn);
		assert_false(takes(s, &wants[i])); /* it waits */
	}
	gives_back(s, &has[0], false); /* at once, as somebody waits */
	assert_true(is_ready(&wants[0]));
	assert_false(is_ready(&wants[1]));
	assert_false(takes(s, &has[0])); /* nobody overtakes */
	assert_true(takes(s, &wants[0]));
	verbs_turn_end(&wants[1].turn); /* it gives up */
	gives_back(s, &has[1], false);
	assert_true(is_ready(&wants[2]));
	verbs_turn_end(&wants[2].turn); /* it does not need it */
	assert_true(takes(s, &has[1]));
	for (uint32_t i = 1; i < WINDOWS / VERBS_EXPOSURES; i++)
		gives_back(s, &has[i], true);
	gives_back(s, &wants[0], true);
	assert_int_equal(spare(s), WINDOWS);
	assert_int_equal(s->d.slots->reserved, 0);
	assert_false(verbs_windows_are_few(&s->c->x));
}

static void windows_of_a_lost_connection_go_to_those_who_wait(void **state)
{
	struct stage *s = *state;
	struct vconn *other = conn_new(s, 1), *lost = s->c;
	struct asker has[WINDOWS / VERBS_EXPOSURES], wants;

	for (uint32_t i = 0; i < WINDOWS / VERBS_EXPOSURES; i++) {
		asker_init(&has[i]);
		assert_true(takes(s, &has[i]));
	}
	asker_init(&wants);
	verbs_turn_wait(&other->x, &wants.turn);
	vconn_fail(lost, -ECONNRESET, "a test");
	vconn_exposed_revoke(lost);
	while (vmemory_turn(&s->control))
		;
	assert_false(is_ready(&wants));
	vconn_exposed_end(lost);
	assert_true(is_ready(&wants));
	conn_drop(lost);
	s->c = other;
	assert_true(takes(s, &wants));
	gives_back(s, &wants, true);
	assert_int_equal(spare(s), WINDOWS);
}

/* ---- devices without ---- */

static int asked_for(struct stage *s, enum verbs_windows windows)
{
	vwindows_free(s->d.slots);
	s->d.slots = NULL;
	s->v->opts.windows = windows;
	return vdev_windows_new(&s->d);
}

static void a_device_without_windows_is_used_or_not_as_is_said(void **state)
{
	struct stage *s = *state;
	struct verbs_exposure e = {.slot = s->slot, .off = 512, .len = 512};
	struct verbs_turn t = {0};
	struct xremote at;

	assert_int_equal(asked_for(s, VERBS_WINDOWS_OFF), 0);
	assert_null(s->d.slots);
	s->d.attr.device_cap_flags = 0;
	assert_int_equal(asked_for(s, VERBS_WINDOWS_ON), -ENOTSUP);
	assert_int_equal(asked_for(s, VERBS_WINDOWS_AUTO), 0);
	assert_null(s->d.slots);
	s->d.attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2A;
	s->d.attr.max_mw = VERBS_WINDOWS_LEAST * VERBS_WINDOWS_SHARE - 1;
	assert_int_equal(asked_for(s, VERBS_WINDOWS_ON), -ENOTSUP);
	assert_int_equal(asked_for(s, VERBS_WINDOWS_AUTO), 0);
	assert_null(s->d.slots);
	s->d.attr.max_mw++;
	dev.fails_at = 7;
	assert_int_equal(asked_for(s, VERBS_WINDOWS_ON), -ENOTSUP);
	assert_int_equal(asked_for(s, VERBS_WINDOWS_AUTO), 0);
	assert_null(s->d.slots);
	assert_int_equal(dev.mws, 0);
	/* then by the key of the slab, which has the rights */
	assert_true(vdev_slab_access(&s->d, false) & IBV_ACCESS_REMOTE_READ);
	assert_true(verbs_turn_take(&s->c->x, &t));
	assert_int_equal(verbs_expose(&s->c->x, &e, &at), 0);
	assert_int_equal(at.addr, (uintptr_t)s->slot->data + 512);
	assert_int_equal(at.rkey, s->mr.rkey);
	verbs_cover(&e, true);
	verbs_turn_end(&t);
	assert_int_equal(s->slot->refs, 1);
	dev.fails_at = 0;
	assert_int_equal(asked_for(s, VERBS_WINDOWS_ON), 0);
	assert_int_equal(s->d.slots->count, VERBS_WINDOWS_LEAST);
	s->d.attr.max_mw = 1 << 24;
	assert_int_equal(asked_for(s, VERBS_WINDOWS_AUTO), 0);
	assert_int_equal(s->d.slots->count, VERBS_WINDOWS_MOST);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, stage_up, stage_down)
	const struct CMUnitTest tests[] = {
		CASE(a_request_exposes_its_bytes_alone),
		CASE(slabs_give_no_right),
		CASE(a_slot_is_kept_until_the_device_has_closed_the_window),
		CASE(closing_goes_with_what_is_sent_next),
		CASE(many_are_not_put_off),
		CASE(a_window_is_not_closed_before_it_is_opened),
		CASE(who_exposes_is_told_when_it_is_closed),
		CASE(a_lost_connection_gives_back_when_its_queue_pair_is_gone),
		CASE(what_completes_late_touches_nothing_that_is_revoked),
		CASE(a_lost_connection_exposes_nothing),
		CASE(windows_go_to_whoever_waits_first),
		CASE(windows_of_a_lost_connection_go_to_those_who_wait),
		CASE(a_device_without_windows_is_used_or_not_as_is_said),
	};

	return cmocka_run_group_tests_name("verbs_expose", tests, NULL, NULL);
}
