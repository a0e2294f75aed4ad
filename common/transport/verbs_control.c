/* SPDX-License-Identifier: Apache-2.0 */
/* The control thread: asleep until the connection manager, a device or a reactor has something for
 * it. Reactors ask by bits in a connection, and hear by bits in it: nothing is allocated for that.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/transport/verbs_internal.h"

#define CARDS_MAX 32
#define EVENTS_PER_TURN 64
#define AGAIN_MS 1000 /* between two looks for the listener's device */

/* ---- asking, and telling ---- */

static void ring(int fd)
{
	const uint64_t one = 1;

	(void)!write(fd, &one, sizeof(one)); /* full: it is readable already */
}

/* Under the lock. */
static void wake_control(struct verbs_control *k)
{
	if (!k->woken)
		ring(k->wake);
	k->woken = true;
}

void vconn_ask(struct vconn *c, enum vtodo what)
{
	struct verbs_control *k = c->v->control;

	pthread_mutex_lock(&k->lock);
	if (!c->todo)
		list_add_tail(&k->todo, &c->todo_link);
	c->todo |= what;
	wake_control(k);
	pthread_mutex_unlock(&k->lock);
}

void vdev_ask_chunk(struct vdev *d)
{
	struct verbs_control *k = d->v->control;

	pthread_mutex_lock(&k->lock);
	list_add_tail(&k->chunks, &d->chunk_link);
	wake_control(k);
	pthread_mutex_unlock(&k->lock);
}

/* The reactor looks at has_mail in every turn; what is written to is for one that sleeps. */
static void tell(struct verbs *v)
{
	if (!atomic_exchange(&v->has_mail, true))
		ring(v->poller.fd);
}

static void post_mail(struct vconn *c, enum vmail what)
{
	if (!c->mail)
		list_add_tail(&c->v->mail, &c->mail_link);
	c->mail |= what;
	tell(c->v); /* under the lock: behind the last word the connection, and all, may be gone */
}

void vconn_mail(struct vconn *c, enum vmail what)
{
	struct verbs_control *k = c->v->control;

	pthread_mutex_lock(&k->lock);
	post_mail(c, what);
	pthread_mutex_unlock(&k->lock);
}

void vconn_mail_failed(struct vconn *c, int rc, const char *fmt, ...)
{
	struct verbs_control *k = c->v->control;
	va_list ap;

	pthread_mutex_lock(&k->lock);
	if (!c->mail_rc) { /* the first cause counts */
		c->mail_rc = rc;
		va_start(ap, fmt);
		(void)vsnprintf(c->mail_why, sizeof(c->mail_why), fmt, ap);
		va_end(ap);
	}
	post_mail(c, MAIL_FAILED);
	pthread_mutex_unlock(&k->lock);
}

static void post_dev_mail(struct vdev *d, uint32_t event)
{
	d->events |= event;
	if (event & DEV_FAILED)
		atomic_store(&d->broken, true);
	d->v->dev_mail = true;
	tell(d->v);
}

void vdev_mail(struct vdev *d, uint32_t event)
{
	struct verbs_control *k = d->v->control;

	pthread_mutex_lock(&k->lock);
	post_dev_mail(d, event);
	pthread_mutex_unlock(&k->lock);
}

void vdev_use(struct vdev *d)
{
	struct verbs_control *k = d->v->control;

	pthread_mutex_lock(&k->lock);
	d->users++;
	pthread_mutex_unlock(&k->lock);
}

void vdev_leave(struct vdev *d)
{
	struct verbs_control *k = d->v->control;

	pthread_mutex_lock(&k->lock);
	d->users--;
	if (atomic_load(&d->broken))
		tell(d->v); /* its reactor may sleep; behind this the device may be gone */
	pthread_mutex_unlock(&k->lock);
}

bool vdev_is_over(struct vdev *d)
{
	struct verbs_control *k = d->v->control;
	bool over;

	pthread_mutex_lock(&k->lock);
	/* who asks for a broken one gets none, so it is not used again */
	over = atomic_load(&d->broken) && !d->users && !d->events && !d->rx_is_coming;
	if (over) {
		list_del(&d->card_link);
		wake_control(k);
	}
	pthread_mutex_unlock(&k->lock);
	return over;
}

/* ---- devices ---- */

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

static struct vcard *card_get(struct verbs_control *k, struct ibv_context *ctx)
{
	list_for_each (l, &k->cards)
		if (container_of(l, struct vcard, link)->ctx == ctx)
			return container_of(l, struct vcard, link);
	return card_new(k, ctx);
}

static struct vdev *dev_find(const struct verbs *v, struct vcard *card)
{
	list_for_each (l, &card->devs)
		if (container_of(l, struct vdev, card_link)->v == v)
			return container_of(l, struct vdev, card_link);
	return NULL;
}

bool control_has_receives(const struct verbs *v, const struct ibv_context *ctx)
{
	list_for_each (l, &v->control->cards) {
		struct vcard *card = container_of(l, struct vcard, link);
		const struct vdev *d = card->ctx == ctx ? dev_find(v, card) : NULL;

		if (d)
			return !d->srq || vdev_left(d) >= (int)VERBS_CREDITS_LEAST;
	}
	return true; /* it is made when the first connection comes */
}

struct vdev *control_dev(struct verbs *v, struct ibv_context *ctx, int *ret_rc, struct err *err)
{
	struct verbs_control *k = v->control;
	struct vcard *card;
	struct vdev *d = NULL;
	bool failed;

	pthread_mutex_lock(&k->lock);
	card = card_get(k, ctx);
	if (card)
		d = dev_find(v, card);
	failed = !card || card->failed || (d && atomic_load(&d->broken));
	pthread_mutex_unlock(&k->lock);
	if (failed) {
		*ret_rc = err_set(err, -ENODEV, "the RDMA device has failed or gone");
		return NULL;
	}
	*ret_rc = 0;
	if (d)
		return d;
	*ret_rc = vdev_open(v, ctx, &d, err);
	if (*ret_rc < 0)
		return NULL;
	pthread_mutex_lock(&k->lock);
	list_add_tail(&card->devs, &d->card_link);
	post_dev_mail(d, DEV_JOIN); /* before the mail of its first connection */
	pthread_mutex_unlock(&k->lock);
	return d;
}

static void fail_card(struct vcard *card)
{
	card->failed = true;
	list_for_each (l, &card->devs)
		post_dev_mail(container_of(l, struct vdev, card_link), DEV_FAILED);
}

void card_failed(struct verbs_control *k, const struct ibv_context *ctx)
{
	pthread_mutex_lock(&k->lock);
	list_for_each (l, &k->cards) {
		struct vcard *card = container_of(l, struct vcard, link);

		if (card->ctx == ctx && !card->failed) {
			log_warn("op=rdma device=%s: it has failed or gone; its connections end",
				 ibv_get_device_name(ctx->device));
			fail_card(card);
		}
	}
	pthread_mutex_unlock(&k->lock);
}

void card_watch(struct verbs_control *k, struct rdma_cm_id *id)
{
	struct vcard *card = NULL;
	struct sockaddr_storage at;

	pthread_mutex_lock(&k->lock);
	list_for_each (l, &k->cards)
		if (container_of(l, struct vcard, link)->ctx == id->verbs)
			card = container_of(l, struct vcard, link);
	pthread_mutex_unlock(&k->lock);
	if (!card || card->sentry || card->failed ||
	    rdma_create_id(k->channel, &card->sentry, NULL, RDMA_PS_TCP))
		return;
	memcpy(&at, rdma_get_local_addr(id), sizeof(at));
	if (at.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&at)->sin6_port = 0;
	else
		((struct sockaddr_in *)&at)->sin_port = 0;
	if (rdma_bind_addr(card->sentry, (struct sockaddr *)&at)) {
		(void)rdma_destroy_id(card->sentry);
		card->sentry = NULL;
	}
}

/* A device that has gone is kept open by those who have something on it, and its driver may wait
 * for that. librdmacm closes it when it looks which devices there are. */
void cards_let_go(struct verbs_control *k)
{
	struct ibv_context **all;
	bool any = false, more;

	for (;;) {
		struct vcard *over = NULL;

		pthread_mutex_lock(&k->lock);
		list_for_each (l, &k->cards) {
			struct vcard *card = container_of(l, struct vcard, link);

			if (card->failed && (card->sentry || list_empty(&card->devs)))
				over = card;
		}
		more = over && !list_empty(&over->devs);
		if (over && !more)
			list_del(&over->link);
		pthread_mutex_unlock(&k->lock);
		if (!over)
			break;
		if (over->sentry)
			(void)rdma_destroy_id(over->sentry);
		over->sentry = NULL;
		if (more)
			continue;
		rdma_free_devices(over->held);
		free(over);
		any = true;
	}
	all = any ? rdma_get_devices(NULL) : NULL;
	if (all)
		rdma_free_devices(all);
}

/* Under the lock: whose @queue is; NULL: of a reactor that has left, or of somebody else in this
 * process. */
static struct vdev *dev_by_queue(struct vcard *card, const void *queue)
{
	list_for_each (l, &card->devs) {
		struct vdev *d = container_of(l, struct vdev, card_link);

		if (d->cq == queue || d->srq == queue)
			return d;
	}
	return NULL;
}

static void on_queue_event(struct verbs_control *k, struct vcard *card, const void *queue,
			   uint32_t event)
{
	struct vdev *d;

	pthread_mutex_lock(&k->lock);
	d = dev_by_queue(card, queue);
	if (d)
		post_dev_mail(d, event);
	pthread_mutex_unlock(&k->lock);
}

static bool is_ours(struct verbs_control *k, struct vcard *card, const struct ibv_qp *qp)
{
	bool ours;

	pthread_mutex_lock(&k->lock);
	ours = dev_by_queue(card, qp->send_cq) != NULL;
	pthread_mutex_unlock(&k->lock);
	return ours;
}

static void on_qp_event(struct vconn *c, enum ibv_event_type type)
{
	if (type == IBV_EVENT_QP_LAST_WQE_REACHED)
		vconn_mail(c, MAIL_LAST_WQE);
	else if (type == IBV_EVENT_COMM_EST) /* a message overtook the answer of the CM */
		(void)rdma_notify(c->id, type);
	else
		vconn_mail_failed(c, -EIO, "the device says: %s", ibv_event_type_str(type));
}

/* What belongs to a connection, a queue or a device is told to its reactor. Ports come and go by
 * themselves: connections live as long as their retries, and heartbeats tell when one is dead. */
static void on_async(struct verbs_control *k, struct vcard *card, const struct ibv_async_event *e)
{
	metric_add(METRIC_RDMA_ASYNC, 1);
	log_debug("op=rdma device=%s: %s", ibv_get_device_name(card->ctx->device),
		  ibv_event_type_str(e->event_type));
	switch ((int)e->event_type) {
	case IBV_EVENT_QP_LAST_WQE_REACHED:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		if (is_ours(k, card, e->element.qp))
			on_qp_event(e->element.qp->qp_context, e->event_type);
		break;
	case IBV_EVENT_CQ_ERR:
		on_queue_event(k, card, e->element.cq, DEV_FAILED);
		break;
	case IBV_EVENT_SRQ_ERR:
		on_queue_event(k, card, e->element.srq, DEV_FAILED);
		break;
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		on_queue_event(k, card, e->element.srq, DEV_SRQ_LIMIT);
		break;
	case IBV_EVENT_DEVICE_FATAL:
		card_failed(k, card->ctx);
		break;
	default: /* PORT_ERR, PORT_ACTIVE, GID_CHANGE, ... */
		break;
	}
}

void card_events(struct verbs_control *k, struct vcard *card)
{
	struct ibv_async_event e;

	for (int i = 0; i < EVENTS_PER_TURN && ibv_get_async_event(card->ctx, &e) == 0; i++) {
		on_async(k, card, &e);
		ibv_ack_async_event(&e); /* who is destroyed waits for this */
	}
}

/* ---- the thread ---- */

static void do_all(struct verbs_control *k)
{
	uint64_t n;

	(void)!read(k->wake, &n, sizeof(n));
	for (;;) {
		struct vconn *c = NULL;
		struct list *l, *chunk;
		uint32_t todo = 0;

		pthread_mutex_lock(&k->lock);
		chunk = list_pop(&k->chunks);
		l = list_pop(&k->todo);
		if (l) {
			c = container_of(l, struct vconn, todo_link);
			todo = c->todo;
			c->todo = 0;
		}
		k->woken = l || chunk;
		pthread_mutex_unlock(&k->lock);
		if (chunk)
			vdev_chunk(container_of(chunk, struct vdev, chunk_link));
		if (c)
			cm_do(c, todo);
		if (!c && !chunk)
			return;
	}
}

static bool is_stopped(struct verbs_control *k)
{
	bool stop;

	pthread_mutex_lock(&k->lock);
	stop = k->stop;
	pthread_mutex_unlock(&k->lock);
	return stop;
}

static void *control_main(void *arg)
{
	struct verbs_control *k = arg;
	struct pollfd fds[2 + CARDS_MAX];
	struct vcard *cards[CARDS_MAX];

	while (!is_stopped(k)) {
		nfds_t n = 0;

		cards_let_go(k);
		if (k->listener_lost)
			cm_listen_again(k);
		fds[0] = (struct pollfd){.fd = k->wake, .events = POLLIN};
		fds[1] = (struct pollfd){.fd = k->channel->fd, .events = POLLIN};
		list_for_each (l, &k->cards) {
			cards[n] = container_of(l, struct vcard, link);
			if (!k->hears || cards[n]->failed)
				continue;
			fds[2 + n] =
				(struct pollfd){.fd = cards[n]->ctx->async_fd, .events = POLLIN};
			if (++n == CARDS_MAX)
				break;
		}
		if (poll(fds, 2 + n, k->listener_lost ? AGAIN_MS : -1) < 0)
			continue; /* EINTR: no signal comes here, but a debugger does */
		for (nfds_t i = 0; i < n; i++)
			if (fds[2 + i].revents & POLLIN)
				card_events(k, cards[i]);
			else if (fds[2 + i].revents) /* it has gone, and tells no more */
				card_failed(k, cards[i]->ctx);
		if (fds[1].revents)
			cm_events(k);
		if (fds[0].revents)
			do_all(k);
	}
	return NULL;
}

static int thread_start(struct verbs_control *k)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the program's own threads */
	rc = -pthread_create(&k->thread, NULL, control_main, k);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc == 0)
		(void)pthread_setname_np(k->thread, "rdma-control");
	return rc;
}

/* ---- begin and end ---- */

static void control_free(struct verbs_control *k)
{
	list_for_each (l, &k->cards) {
		struct vcard *card = container_of(l, struct vcard, link);

		if (card->sentry)
			(void)rdma_destroy_id(card->sentry);
		rdma_free_devices(card->held);
		free(card);
	}
	if (k->channel)
		rdma_destroy_event_channel(k->channel);
	if (k->wake >= 0)
		(void)close(k->wake);
	pthread_mutex_destroy(&k->lock);
	free(k);
}

static int find_cards(struct verbs_control *k)
{
	int n = 0;
	struct ibv_context **ctx = rdma_get_devices(&n);

	if (!ctx)
		return neg_errno();
	for (int i = 0; i < n; i++)
		(void)card_get(k, ctx[i]);
	rdma_free_devices(ctx);
	return list_empty(&k->cards) ? -ENODEV : 0;
}

static int control_new(bool hears, struct verbs_control **ret, struct err *err)
{
	struct verbs_control *k = calloc(1, sizeof(*k));
	int rc = 0;

	if (!k)
		return err_set(err, -ENOMEM, "out of memory");
	pthread_mutex_init(&k->lock, NULL);
	list_init(&k->cards);
	list_init(&k->todo);
	list_init(&k->chunks);
	list_init(&k->verbs);
	/* a client hears from the CM what ends its connections; its program may be one that uses
	 * the same devices, and then their events are for it */
	k->hears = hears;
	k->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	k->channel = rdma_create_event_channel();
	if (!k->channel || k->wake < 0)
		rc = neg_errno();
	if (rc == 0)
		rc = find_cards(k);
	if (rc < 0) {
		err_sys(err, rc, "cannot open the RDMA connection manager");
		err_cure(err,
			 "modprobe rdma_ucm, and see that /dev/infiniband/rdma_cm can be opened");
	} else {
		(void)fcntl(k->channel->fd, F_SETFL, O_NONBLOCK);
		rc = thread_start(k);
		if (rc < 0)
			err_sys(err, rc, "starting the thread for RDMA events failed");
	}
	if (rc < 0) {
		control_free(k);
		return rc;
	}
	*ret = k;
	return 0;
}

/* All devices that are there: nothing is registered when a connection comes. */
static int open_devices(struct verbs *v, struct err *err)
{
	struct verbs_control *k = v->control;
	struct ibv_context *ctx[CARDS_MAX];
	int n = 0, good = 0, rc = -ENODEV;

	pthread_mutex_lock(&k->lock);
	list_for_each (l, &k->cards)
		if (n < CARDS_MAX)
			ctx[n++] = container_of(l, struct vcard, link)->ctx;
	pthread_mutex_unlock(&k->lock);
	for (int i = 0; i < n; i++)
		good += control_dev(v, ctx[i], &rc, err) != NULL;
	return good ? 0 : rc;
}

int verbs_control_join(struct verbs *v, struct err *err)
{
	int rc = 0;

	if (v->opts.share)
		v->control = v->opts.share->control;
	else
		rc = control_new(v->opts.passive, &v->control, err);
	if (rc < 0)
		return rc;
	pthread_mutex_lock(&v->control->lock);
	list_add_tail(&v->control->verbs, &v->control_link);
	pthread_mutex_unlock(&v->control->lock);
	rc = open_devices(v, err);
	if (rc < 0)
		verbs_control_leave(v);
	return rc;
}

void verbs_control_leave(struct verbs *v)
{
	struct verbs_control *k = v->control;
	bool last;

	pthread_mutex_lock(&k->lock);
	list_del(&v->control_link);
	if (k->last == v)
		k->last = NULL;
	list_for_each (l, &k->cards) {
		struct vdev *d = dev_find(v, container_of(l, struct vcard, link));

		if (d)
			list_del(&d->card_link);
	}
	last = list_empty(&k->verbs);
	k->stop = last;
	pthread_mutex_unlock(&k->lock);
	if (!last)
		return;
	ring(k->wake);
	pthread_join(k->thread, NULL);
	control_free(k);
}
