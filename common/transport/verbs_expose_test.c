/* SPDX-License-Identifier: Apache-2.0 */
/* What requests expose of slots, on a device that is played. What must hold: a peer has a right to
 * the bytes of the request alone, of the kind that is asked for, opened before the message that
 * names them; the slot is nobody else's until the device has closed the window, or the queue pair
 * is gone; closing takes no doorbell of its own while others send. */
#include "common/transport/verbs_expose_test_fixture.h"

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

/* One that is not opened yet, for want of a credit, holds up none behind it. */
static void a_window_is_closed_before_one_that_is_not_opened(void **state)
{
	struct stage *s = *state;
	struct verbs_exposure e = {.slot = s->slot, .len = 512}, f = e;
	struct seen w;

	(void)must_expose(s->c, &e);
	turn(s);
	s->c->credit.sent = s->c->credit.granted;
	send_one(s->c, &w);
	(void)must_expose(s->c, &f);
	verbs_cover(&f, true);
	verbs_cover(&e, true);
	turn(s);
	assert_int_equal(dev.wr[dev.n - 1].opcode, IBV_WR_LOCAL_INV);
	assert_int_equal(spare(s), WINDOWS - 1);
	s->c->credit.granted += 8;
	turn(s);
	turn(s);
	assert_int_equal(spare(s), WINDOWS);
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

/* The control thread is in the driver, and does not come back. */
static void who_frees_verbs_hears_that_a_device_does_not_let_go(void **state)
{
	struct stage *s = *state;
	struct verbs_exposure e = {.slot = s->slot, .len = 512};

	list_init(&s->v->devs);
	list_init(&s->control.verbs);
	atomic_store(&s->v->load, 1);
	(void)must_expose(s->c, &e);
	turn(s);
	assert_false(verbs_free(s->v));
	assert_int_equal(s->slot->refs, 2);
	vconn_exposed_end(s->c);
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
		CASE(a_window_is_closed_before_one_that_is_not_opened),
		CASE(who_exposes_is_told_when_it_is_closed),
		CASE(a_lost_connection_gives_back_when_its_queue_pair_is_gone),
		CASE(what_completes_late_touches_nothing_that_is_revoked),
		CASE(a_lost_connection_exposes_nothing),
		CASE(who_frees_verbs_hears_that_a_device_does_not_let_go),
		CASE(a_device_without_windows_is_used_or_not_as_is_said),
	};

	return cmocka_run_group_tests_name("verbs_expose", tests, NULL, NULL);
}
