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
#include <sys/random.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/transport/verbs_internal.h"

#define CARDS_MAX 32
#define EVENTS_PER_TURN 64
#define AGAIN_MS 1000 /* between two looks whether the listener's device is back */

/* ---- asking, and telling ---- */

static void ring(int fd)
{
	const uint64_t one = 1;

	(void)!write(fd, &one, sizeof(one)); /* full: it is readable already */
}

/* Under the lock. */
void control_wake(struct verbs_control *k)
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
	control_wake(k);
	pthread_mutex_unlock(&k->lock);
}

void vdev_ask_chunk(struct vdev *d)
{
	struct verbs_control *k = d->v->control;

	pthread_mutex_lock(&k->lock);
	list_add_tail(&k->chunks, &d->chunk_link);
	control_wake(k);
	pthread_mutex_unlock(&k->lock);
}

/* The reactor looks at has_mail in every turn; what is written to is for one that sleeps. */
void verbs_tell(struct verbs *v)
{
	if (!atomic_exchange(&v->has_mail, true))
		ring(v->poller.fd);
}

static void post_mail(struct vconn *c, enum vmail what)
{
	if (!c->mail)
		list_add_tail(&c->v->mail, &c->mail_link);
	c->mail |= what;
	/* under the lock: behind the last word the connection, and all, may be gone */
	verbs_tell(c->v);
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

void vdev_mail_locked(struct vdev *d, uint32_t event)
{
	d->events |= event;
	if (event & DEV_FAILED)
		atomic_store(&d->broken, true);
	d->v->dev_mail = true;
	verbs_tell(d->v);
}

void vdev_mail(struct vdev *d, uint32_t event)
{
	struct verbs_control *k = d->v->control;

	pthread_mutex_lock(&k->lock);
	vdev_mail_locked(d, event);
	pthread_mutex_unlock(&k->lock);
}

/* ---- events of devices ---- */

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
		vdev_mail_locked(d, event);
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

/* All that connections want. */
static void do_connections(struct verbs_control *k)
{
	for (;;) {
		struct vconn *c = NULL;
		struct list *l, *chunk;
		uint32_t todo = 0;
		bool more = vwindows_renew(k);

		more |= vwindows_grow(k);
		pthread_mutex_lock(&k->lock);
		chunk = list_pop(&k->chunks);
		/* a window goes before the queue pair that it was opened for */
		l = list_empty(&k->revoked) ? list_pop(&k->todo) : NULL;
		if (l) {
			c = container_of(l, struct vconn, todo_link);
			todo = c->todo;
			c->todo = 0;
		}
		more |= l || chunk || !list_empty(&k->revoked) || k->windows_asked;
		pthread_mutex_unlock(&k->lock);
		if (chunk)
			vdev_chunk(container_of(chunk, struct vdev, chunk_link));
		if (c)
			cm_do(c, todo);
		if (!more)
			return;
	}
}

void control_turn(struct verbs_control *k)
{
	uint64_t n;

	(void)!read(k->wake, &n, sizeof(n));
	do_connections(k);
	(void)vmemory_turn(k);
	pthread_mutex_lock(&k->lock);
	/* the rest behind the events that have come meanwhile */
	k->woken = !list_empty(&k->memories) || !list_empty(&k->revoked) ||
		   !list_empty(&k->chunks) || !list_empty(&k->todo) || k->windows_asked;
	if (k->woken)
		ring(k->wake);
	pthread_mutex_unlock(&k->lock);
}

static bool is_stopped(struct verbs_control *k)
{
	bool stop;

	pthread_mutex_lock(&k->lock);
	stop = k->stop;
	pthread_mutex_unlock(&k->lock);
	return stop;
}

static int rest_ms(const struct verbs_control *k)
{
	const uint64_t now = clock_mono_ns();

	if (k->listener_lost)
		return AGAIN_MS;
	return now < k->look_ns ? (int)((k->look_ns - now) / NS_PER_MS) + 1 : 0;
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
		if (poll(fds, 2 + n, rest_ms(k)) < 0)
			continue; /* EINTR: no signal comes here, but a debugger does */
		for (nfds_t i = 0; i < n; i++)
			if (fds[2 + i].revents & POLLIN)
				card_events(k, cards[i]);
			else if (fds[2 + i].revents) /* it has gone, and tells no more */
				card_failed(k, cards[i]->ctx);
		if (fds[1].revents)
			cm_events(k);
		if (fds[0].revents)
			control_turn(k);
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
	list_for_each (l, &k->cards)
		card_free(container_of(l, struct vcard, link));
	if (k->channel)
		rdma_destroy_event_channel(k->channel);
	if (k->wake >= 0)
		(void)close(k->wake);
	pthread_mutex_destroy(&k->lock);
	free(k);
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
	list_init(&k->memories);
	list_init(&k->revoked);
	list_init(&k->verbs);
	/* a client hears from the CM what ends its connections; its program may be one that uses
	 * the same devices, and then their events are for it */
	k->hears = hears;
	k->look_ns = clock_mono_ns() + VERBS_REST_NS;
	k->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	k->channel = rdma_create_event_channel();
	(void)!getrandom(&k->node, sizeof(k->node), 0); /* 0: it tells nothing */
	if (!k->channel || k->wake < 0)
		rc = neg_errno();
	if (rc == 0)
		rc = cards_find(k);
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
	/* all that are there: nothing is registered when a connection comes */
	rc = v->opts.passive ? cards_open(v, err) : 0;
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
		struct vdev *d = card_dev(v, container_of(l, struct vcard, link));

		if (d)
			list_del(&d->card_link);
	}
	last = list_empty(&k->verbs);
	control_wake(k); /* it may have had the last of a card */
	k->stop = last;
	pthread_mutex_unlock(&k->lock);
	if (!last)
		return;
	ring(k->wake);
	pthread_join(k->thread, NULL);
	control_free(k);
}
