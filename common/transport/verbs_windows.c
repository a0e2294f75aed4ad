/* SPDX-License-Identifier: Apache-2.0 */
/* Memory windows on a device, of slots (verbs_expose.c) and of registered memory (verbs_window.c):
 * how they come to be.
 *
 * Each is a call of the kernel and a command to the card, so the control thread makes them. Those
 * of slots are few at first, for most programs never need more; whenever half of them are in use,
 * the reactor asks for some more. A window whose connection was lost is made anew. */
#include <stdlib.h>

#include "common/base/log.h"
#include "common/transport/verbs_internal.h"

/* ---- the control thread ---- */

/* By its new key it is known from now on. */
static void bound(struct xop *op, int res)
{
	struct verbs_window *w = container_of(op, struct verbs_window, bind_op);

	(void)res; /* a failure ends the connection */
	w->queued = false;
	if (!w->revoked)
		w->mw->rkey = w->rkey;
}

static int new_window(struct verbs_window *w)
{
	w->mw = ibv_alloc_mw(w->on->pd, IBV_MW_TYPE_2);
	if (!w->mw)
		return neg_errno();
	w->rkey = w->mw->rkey;
	return 0;
}

void vwindows_free(struct vmemory_on *on)
{
	bool is_off = true;

	if (!on)
		return;
	vwindows_forget_turns(&on->turns);
	vwindows_forget_turns(&on->takers);
	for (uint32_t i = 0; i < on->count; i++)
		if (on->window[i].mw && ibv_dealloc_mw(on->window[i].mw))
			is_off = false;
	if (on->mr && ibv_dereg_mr(on->mr))
		is_off = false;
	if (!is_off)
		log_error("op=rdma: a device does not let go of registered memory");
	free(on);
}

bool vdev_has_windows(const struct ibv_device_attr *attr)
{
	return attr->device_cap_flags &
	       (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B);
}

static void is_there(struct verbs_window *w)
{
	w->next = atomic_load(&w->on->renewed);
	while (!atomic_compare_exchange_weak(&w->on->renewed, &w->next, w))
		;
}

/* Each may be a command to the card: few at a time, as a connection may wait. */
static int make_some(struct vmemory_on *on)
{
	uint32_t n = atomic_load(&on->made);
	const uint32_t end =
		on->count - n < VERBS_WINDOWS_STEP ? on->count : n + VERBS_WINDOWS_STEP;

	for (; n < end; n++) {
		struct verbs_window *w = &on->window[n];
		int rc;

		w->on = on;
		w->bind_op.done = bound;
		list_init(&w->exposed_link);
		list_init(&w->cover_link);
		rc = new_window(w);
		if (rc < 0)
			return rc;
		is_there(w);
		atomic_store(&on->made, n + 1);
	}
	return 0;
}

int vwindows_new(struct vdev *d, struct ibv_pd *pd, uint32_t n, struct vmemory_on **ret)
{
	struct vmemory_on *on = calloc(1, sizeof(*on) + n * sizeof(on->window[0]));
	int rc;

	if (!on)
		return -ENOMEM;
	on->dev = d;
	on->pd = pd;
	on->count = n;
	list_init(&on->spare);
	list_init(&on->turns);
	list_init(&on->takers);
	rc = make_some(on);
	if (rc < 0) {
		vwindows_free(on);
		return rc;
	}
	vwindows_take_renewed(on);
	*ret = on;
	return 0;
}

/* Its queue pair has failed: for use with another one it is made anew. */
static int renew(struct verbs_window *w)
{
	if (ibv_dealloc_mw(w->mw) || new_window(w) < 0)
		return -ENOMEM;
	is_there(w);
	return 0;
}

/* All of a connection are revoked at once. */
bool vwindows_renew(struct verbs_control *k)
{
	uint32_t lost[2] = {0};
	bool some = false;
	struct list *l;

	do {
		struct verbs_window *w;

		pthread_mutex_lock(&k->lock);
		l = list_pop(&k->revoked);
		pthread_mutex_unlock(&k->lock);
		w = l ? container_of(l, struct verbs_window, link) : NULL;
		some |= w != NULL;
		if (w && renew(w) < 0)
			lost[w->on->mr != NULL]++;
	} while (l);
	if (lost[0])
		log_warn("op=rdma: %u memory windows of buffers are lost with a connection: fewer "
			 "requests at a time",
			 lost[0]);
	if (lost[1])
		log_warn("op=rdma: %u windows to registered memory are lost with a connection: "
			 "more is copied",
			 lost[1]);
	return some;
}

bool vwindows_grow(struct verbs_control *k)
{
	struct vdev *d = NULL;

	pthread_mutex_lock(&k->lock);
	list_for_each (l, &k->cards)
		list_for_each (e, &container_of(l, struct vcard, link)->devs) {
			struct vdev *it = container_of(e, struct vdev, card_link);

			if (!d && it->windows_asked)
				d = it;
		}
	if (d)
		d->windows_asked = false;
	else
		k->windows_asked = false;
	pthread_mutex_unlock(&k->lock);
	if (!d)
		return false;
	/* the reactor is not done with the device before it has heard of this */
	d->windows_refused = make_some(d->slots) < 0;
	if (d->windows_refused)
		log_info("op=rdma device=%s: it gives no more than %u memory windows",
			 ibv_get_device_name(d->ctx->device), atomic_load(&d->slots->made));
	vdev_mail(d, DEV_WINDOWS);
	return true;
}

/* ---- the reactor ---- */

void vwindows_ask(struct vmemory_on *on)
{
	const uint32_t made = atomic_load(&on->made);
	struct vdev *d = on->dev;

	if (d->windows_are_coming || made >= on->count ||
	    on->spare_count >= on->reserved + made / 2)
		return;
	d->windows_are_coming = true;
	pthread_mutex_lock(&d->v->control->lock);
	d->windows_asked = d->v->control->windows_asked = true;
	control_wake(d->v->control);
	pthread_mutex_unlock(&d->v->control->lock);
}

void vwindows_join(struct vdev *d)
{
	struct vmemory_on *on = d->slots;

	d->windows_are_coming = false;
	if (d->windows_refused)
		on->count = atomic_load(&on->made);
	vwindows_take_renewed(on);
	vwindows_ask(on);
}

void vwindows_take_renewed(struct vmemory_on *on)
{
	struct verbs_window *w = atomic_exchange(&on->renewed, NULL);

	while (w) {
		struct verbs_window *next = w->next;

		w->revoked = false;
		if (!list_is_linked(&w->exposed_link)) /* else its connection's end does it */
			vwindow_is_spare(w);
		w = next;
	}
}
