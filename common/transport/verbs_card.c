/* SPDX-License-Identifier: Apache-2.0 */
/* The RDMA devices that the control thread knows, and what each reactor has on them: how they come,
 * and how they go. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/transport/verbs_internal.h"

/* ---- how they come ---- */

static struct vcard *card_new(struct verbs_control *k, struct ibv_context *ctx)
{
	struct vcard *card = calloc(1, sizeof(*card));
	const int flags = fcntl(ctx->async_fd, F_GETFL);

	if (card)
		card->held = device_hold(ctx);
	if (!card || !card->held) {
		free(card);
		return NULL;
	}
	card->ctx = ctx;
	list_init(&card->devs);
	if (k->hears)
		(void)fcntl(ctx->async_fd, F_SETFL, flags | O_NONBLOCK);
	list_add_tail(&k->cards, &card->link);
	return card;
}

static struct vcard *card_find(const struct verbs_control *k, const struct ibv_context *ctx)
{
	list_for_each (l, &k->cards)
		if (container_of(l, struct vcard, link)->ctx == ctx)
			return container_of(l, struct vcard, link);
	return NULL;
}

static struct vcard *card_get(struct verbs_control *k, struct ibv_context *ctx)
{
	return card_find(k, ctx) ?: card_new(k, ctx);
}

struct vdev *card_dev(const struct verbs *v, struct vcard *card)
{
	list_for_each (l, &card->devs)
		if (container_of(l, struct vdev, card_link)->v == v)
			return container_of(l, struct vdev, card_link);
	return NULL;
}

bool control_has_receives(const struct verbs *v, const struct ibv_context *ctx)
{
	struct vcard *card = card_find(v->control, ctx);
	const struct vdev *d = card ? card_dev(v, card) : NULL;

	if (!d)
		return true; /* it is made when the first connection comes */
	return !atomic_load(&d->broken) && (!d->srq || vdev_left(d) >= (int)VERBS_CREDITS_LEAST);
}

/* Under the lock: nobody is about to put something on it any more. */
static void opened(struct vcard *card, struct verbs_control *k)
{
	card->opening--;
	if (card->failed)
		control_wake(k);
}

static struct vdev *open_on(struct verbs *v, struct vcard *card, int *ret_rc, struct err *err)
{
	struct verbs_control *k = v->control;
	struct vdev *d = NULL;

	*ret_rc = vdev_open(v, card->ctx, &d, err);
	if (*ret_rc == 0)
		vdev_memory_open(d);
	pthread_mutex_lock(&k->lock);
	if (*ret_rc == 0) {
		d->users = 1;
		list_add_tail(&card->devs, &d->card_link);
		/* before the mail of its first connection; the device may have gone meanwhile */
		vdev_mail_locked(d, card->failed ? DEV_JOIN | DEV_FAILED : DEV_JOIN);
	}
	opened(card, k);
	pthread_mutex_unlock(&k->lock);
	return d;
}

struct vdev *control_dev(struct verbs *v, struct ibv_context *ctx, int *ret_rc, struct err *err)
{
	struct verbs_control *k = v->control;
	struct vdev *d = NULL;
	struct vcard *card;
	bool failed;

	pthread_mutex_lock(&k->lock);
	card = card_get(k, ctx);
	if (card)
		d = card_dev(v, card);
	failed = !card || card->failed || (d && atomic_load(&d->broken));
	if (!failed && d)
		d->users++;
	else if (!failed)
		card->opening++;
	pthread_mutex_unlock(&k->lock);
	if (failed) {
		*ret_rc = err_set(err, -ENODEV, "the RDMA device has failed or gone");
		return NULL;
	}
	*ret_rc = 0;
	return d ?: open_on(v, card, ret_rc, err);
}

/* The @n-th; it stays until opened(). */
static struct vcard *card_at(struct verbs_control *k, int n)
{
	struct vcard *found = NULL;

	pthread_mutex_lock(&k->lock);
	list_for_each (l, &k->cards)
		if (n-- == 0) {
			found = container_of(l, struct vcard, link);
			found->opening++;
		}
	pthread_mutex_unlock(&k->lock);
	return found;
}

int cards_open(struct verbs *v, struct err *err)
{
	struct verbs_control *k = v->control;
	struct vcard *card;
	int good = 0, rc = err_set(err, -ENODEV, "no RDMA device can be opened");

	for (int i = 0; (card = card_at(k, i)); i++) {
		struct vdev *d = control_dev(v, card->ctx, &rc, err);

		if (d)
			vdev_leave(d);
		good += d != NULL;
		pthread_mutex_lock(&k->lock);
		opened(card, k);
		pthread_mutex_unlock(&k->lock);
	}
	return good ? 0 : rc;
}

int cards_find(struct verbs_control *k)
{
	int n = 0;
	struct ibv_context **ctx = rdma_get_devices(&n);

	if (!ctx)
		return neg_errno();
	/* who only connects holds those that its connections use */
	for (int i = 0; i < n && k->hears; i++)
		(void)card_get(k, ctx[i]);
	rdma_free_devices(ctx);
	return n ? 0 : -ENODEV;
}

/* ---- how they go ---- */

void vdev_leave(struct vdev *d)
{
	struct verbs_control *k = d->v->control;

	const struct vcard *card;

	pthread_mutex_lock(&k->lock);
	d->users--;
	card = card_find(k, d->ctx);
	if (card && card->stale && !d->users)
		vdev_mail_locked(d, DEV_FAILED);
	else if (atomic_load(&d->broken))
		verbs_tell(d->v); /* its reactor may sleep; behind this the device may be gone */
	pthread_mutex_unlock(&k->lock);
}

bool vdev_is_over(struct vdev *d)
{
	struct verbs_control *k = d->v->control;
	bool over;

	if (!atomic_load(&d->broken))
		return false;
	pthread_mutex_lock(&k->lock);
	/* who asks for a broken one gets none, so it is not used again */
	over = !d->users && !d->events && !vdev_is_coming(d);
	if (over) {
		d->over = true;
		control_wake(k);
	}
	pthread_mutex_unlock(&k->lock);
	return over;
}

void vdev_forget(struct vdev *d)
{
	struct verbs_control *k = d->v->control;

	pthread_mutex_lock(&k->lock);
	list_del(&d->card_link);
	control_wake(k);
	pthread_mutex_unlock(&k->lock);
}

void card_failed(struct verbs_control *k, const struct ibv_context *ctx)
{
	struct vcard *card;
	bool news;

	pthread_mutex_lock(&k->lock);
	card = card_find(k, ctx);
	news = card && !card->failed;
	if (news) {
		card->failed = true;
		list_for_each (l, &card->devs)
			vdev_mail_locked(container_of(l, struct vdev, card_link), DEV_FAILED);
	}
	pthread_mutex_unlock(&k->lock);
	if (news) /* the card goes by this thread alone */
		log_warn("op=rdma device=%s: it has failed or gone; its connections end",
			 ibv_get_device_name(card->ctx->device));
}

void card_watch(struct verbs_control *k, struct rdma_cm_id *id)
{
	struct sockaddr_storage at;
	struct vcard *card;

	pthread_mutex_lock(&k->lock);
	card = card_find(k, id->verbs);
	pthread_mutex_unlock(&k->lock);
	if (!card || card->watch_id || card->failed ||
	    rdma_create_id(k->channel, &card->watch_id, NULL, RDMA_PS_TCP))
		return;
	memcpy(&at, rdma_get_local_addr(id), sizeof(at));
	if (at.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&at)->sin6_port = 0;
	else
		((struct sockaddr_in *)&at)->sin_port = 0;
	if (rdma_bind_addr(card->watch_id, (struct sockaddr *)&at)) {
		(void)rdma_destroy_id(card->watch_id);
		card->watch_id = NULL;
	}
}

/* Queues and regions of a reactor's that has nobody on them. It hears when they are gone. */
static bool close_one(struct verbs_control *k)
{
	struct vdev *d = NULL;

	pthread_mutex_lock(&k->lock);
	list_for_each (l, &k->cards)
		list_for_each (e, &container_of(l, struct vcard, link)->devs)
			if (container_of(e, struct vdev, card_link)->over)
				d = container_of(e, struct vdev, card_link);
	if (d)
		d->over = false;
	pthread_mutex_unlock(&k->lock);
	if (!d)
		return false;
	vdev_close(d);
	vdev_mail(d, DEV_CLOSED); /* it may be gone now */
	return true;
}

/* One of which nothing is left but the card and the id that watches it. */
static struct vcard *unused_card(struct verbs_control *k)
{
	struct vcard *over = NULL;

	pthread_mutex_lock(&k->lock);
	list_for_each (l, &k->cards) {
		struct vcard *card = container_of(l, struct vcard, link);

		if ((card->failed || card->stale) && !card->opening && list_empty(&card->devs))
			over = card;
	}
	if (over)
		list_del(&over->link);
	pthread_mutex_unlock(&k->lock);
	return over;
}

/* The id that watches one that has failed, or NULL. */
static struct rdma_cm_id *failed_watch_id(struct verbs_control *k)
{
	struct rdma_cm_id *id = NULL;

	pthread_mutex_lock(&k->lock);
	list_for_each (l, &k->cards) {
		struct vcard *card = container_of(l, struct vcard, link);

		if (card->failed && card->watch_id) {
			id = card->watch_id;
			card->watch_id = NULL;
		}
	}
	pthread_mutex_unlock(&k->lock);
	return id;
}

void card_free(struct vcard *card)
{
	if (card->watch_id)
		(void)rdma_destroy_id(card->watch_id);
	rdma_free_devices(card->held);
	free(card);
}

static bool is_listed(struct ibv_context *const *all, const struct ibv_context *ctx)
{
	while (*all && *all != ctx)
		all++;
	return *all;
}

/* librdmacm notes that a device has gone when it looks which there are, and closes those that
 * nobody holds. It fails while there is none at all. When it looks while a device comes or goes, it
 * may take the others for new and open them anew; connections come over those from then on. */
static void look_again(struct verbs_control *k)
{
	struct ibv_context **all = rdma_get_devices(NULL);

	k->look_ns = clock_mono_ns() + (all ? VERBS_REST_NS : VERBS_LOOK_NS);
	if (!all)
		return;
	pthread_mutex_lock(&k->lock);
	list_for_each (l, &k->cards) {
		struct vcard *card = container_of(l, struct vcard, link);

		card->stale |= !is_listed(all, card->ctx);
		list_for_each (e, &card->devs) {
			struct vdev *d = container_of(e, struct vdev, card_link);

			if (card->stale && !d->users)
				vdev_mail_locked(d, DEV_FAILED);
		}
	}
	pthread_mutex_unlock(&k->lock);
	rdma_free_devices(all);
}

void cards_let_go(struct verbs_control *k)
{
	struct rdma_cm_id *watch_id;
	struct vcard *over;

	while (close_one(k))
		;
	while ((watch_id = failed_watch_id(k)))
		(void)rdma_destroy_id(watch_id);
	while ((over = unused_card(k))) {
		card_free(over);
		k->look_ns = clock_mono_ns();
	}
	if (clock_mono_ns() >= k->look_ns)
		look_again(k);
}
