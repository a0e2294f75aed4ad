/* SPDX-License-Identifier: Apache-2.0 */
/* A device goes, and comes back; the connection manager is played. What must hold: what was made on
 * it goes when nobody has it any more and not before, the listener listens again, once and only
 * while somebody wants it to. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/transport/verbs_internal.h"

/* ---- the connection manager ---- */

static struct {
	struct rdma_cm_event event;
	bool there;
	bool no_device; /* that has the address */
	uint32_t ids;   /* that are alive */
	uint32_t binds;
	struct net_addr bound;
	struct ibv_context *ctx[3]; /* devices */
	uint32_t lists;             /* handed out, and not given back */
	uint32_t looks;
	struct ibv_context *given_back;
	struct ibv_context *on; /* the device that has the address */
} cm;

int __wrap_rdma_get_cm_event(struct rdma_event_channel *ch, struct rdma_cm_event **ret);
int __wrap_rdma_get_cm_event(struct rdma_event_channel *ch, struct rdma_cm_event **ret)
{
	const bool there = cm.there;

	(void)ch;
	*ret = &cm.event;
	cm.there = false;
	return there ? 0 : -1;
}

int __wrap_rdma_ack_cm_event(struct rdma_cm_event *ev);
int __wrap_rdma_ack_cm_event(struct rdma_cm_event *ev)
{
	(void)ev;
	return 0;
}

int __wrap_rdma_create_id(struct rdma_event_channel *ch, struct rdma_cm_id **ret, void *context,
			  enum rdma_port_space ps);
int __wrap_rdma_create_id(struct rdma_event_channel *ch, struct rdma_cm_id **ret, void *context,
			  enum rdma_port_space ps)
{
	(void)ch;
	(void)context;
	(void)ps;
	*ret = calloc(1, sizeof(**ret));
	cm.ids++;
	return 0;
}

int __wrap_rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr);
int __wrap_rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	id->verbs = cm.on;
	cm.binds++;
	cm.bound.len = sizeof(struct sockaddr_in);
	memcpy(&cm.bound.sa, addr, cm.bound.len);
	errno = ENODEV;
	return cm.no_device ? -1 : 0;
}

int __wrap_rdma_listen(struct rdma_cm_id *id, int backlog);
int __wrap_rdma_listen(struct rdma_cm_id *id, int backlog)
{
	(void)id;
	(void)backlog;
	return 0;
}

int __wrap_rdma_destroy_id(struct rdma_cm_id *id);
int __wrap_rdma_destroy_id(struct rdma_cm_id *id)
{
	cm.ids--;
	free(id);
	return 0;
}

struct ibv_context **__wrap_rdma_get_devices(int *n);
struct ibv_context **__wrap_rdma_get_devices(int *n)
{
	struct ibv_context **all = calloc(4, sizeof(struct ibv_context *));

	(void)n;
	memcpy(all, cm.ctx, sizeof(cm.ctx));
	cm.lists++;
	cm.looks++;
	return all;
}

void __wrap_rdma_free_devices(struct ibv_context **all);
void __wrap_rdma_free_devices(struct ibv_context **all)
{
	cm.given_back = all[0];
	cm.lists--;
	free(all);
}

/* ---- a node ---- */

struct node {
	struct verbs_control control;
	struct verbs v;
	struct vcard *card; /* it may be freed */
	struct vdev d;
	struct ibv_context ctx, other;
	struct ibv_device device;
	struct pool *pool;
};

static int node_up(void **state)
{
	struct node *n = calloc(1, sizeof(*n));

	memset(&cm, 0, sizeof(cm));
	n->control.wake = -1;
	pthread_mutex_init(&n->control.lock, NULL);
	list_init(&n->control.cards);
	list_init(&n->control.verbs);
	n->control.look_ns = clock_mono_ns() + VERBS_REST_NS;
	list_init(&n->v.mail);
	n->v.control = &n->control;
	n->v.poller.fd = -1;
	n->ctx.device = n->other.device = &n->device;
	n->d.v = &n->v;
	n->d.ctx = &n->ctx;
	n->card = calloc(1, sizeof(*n->card));
	n->card->ctx = &n->ctx;
	n->card->held = calloc(2, sizeof(struct ibv_context *));
	list_init(&n->card->devs);
	list_add_tail(&n->control.cards, &n->card->link);
	list_add_tail(&n->card->devs, &n->d.card_link);
	list_add_tail(&n->control.verbs, &n->v.control_link);
	n->v.opts.passive = true;
	assert_int_equal(pool_new(&(struct pool_opts){.count = {4, 1, 1, 1, 1}}, &n->pool, NULL),
			 0);
	n->v.opts.pool = n->pool;
	*state = n;
	return 0;
}

static int node_down(void **state)
{
	struct node *n = *state;

	verbs_unlisten(&n->v);
	assert_int_equal(cm.ids, 0);
	pool_free(n->pool);
	pthread_mutex_destroy(&n->control.lock);
	if (!list_empty(&n->control.cards)) {
		free(n->card->held);
		free(n->card);
	}
	free(n);
	return 0;
}

/* It has looked, and there is nothing to be expected. */
static bool rests(const struct node *n)
{
	return n->control.look_ns > clock_mono_ns() + VERBS_LOOK_NS;
}

static void listens(struct node *n)
{
	struct xlistener_opts o = {0};

	assert_int_equal(net_resolve("10.9.0.1", 9866, &o.addr, NULL), 0);
	assert_int_equal(verbs_listen(&n->v, &o, NULL), 0);
	assert_non_null(n->control.listen_id);
	n->control.listen_id->verbs = &n->ctx;
}

static void goes(struct node *n, struct rdma_cm_id *id)
{
	cm.event = (struct rdma_cm_event){.id = id, .event = RDMA_CM_EVENT_DEVICE_REMOVAL};
	cm.there = true;
	cm_events(&n->control);
}

static void a_device_goes_when_nobody_has_it(void **state)
{
	struct node *n = *state;
	struct vdev *d = &n->d;
	int rc;

	assert_false(vdev_is_over(d)); /* it works */
	assert_ptr_equal(control_dev(&n->v, &n->ctx, &rc, NULL), d);
	assert_ptr_equal(control_dev(&n->v, &n->ctx, &rc, NULL), d);
	card_failed(&n->control, &n->other);
	assert_false(d->events);
	card_failed(&n->control, &n->ctx);
	assert_int_equal(d->events, DEV_FAILED);
	assert_true(n->card->failed && atomic_load(&d->broken));
	assert_null(control_dev(&n->v, &n->ctx, &rc, NULL));
	assert_int_equal(rc, -ENODEV);
	d->events = 0; /* the reactor has heard it */
	vdev_leave(d);
	assert_false(vdev_is_over(d));
	atomic_store(&n->v.has_mail, false);
	vdev_leave(d);
	assert_true(atomic_load(&n->v.has_mail)); /* that it looks */
	d->events = DEV_RECEIVES;
	assert_false(vdev_is_over(d));
	d->events = 0;
	d->rx_is_coming = true;
	assert_false(vdev_is_over(d));
	d->rx_is_coming = false;
	assert_true(vdev_is_over(d));
	assert_true(d->over);
	cards_let_go(&n->control); /* closes it */
	assert_int_equal(d->events, DEV_CLOSED);
	assert_false(d->over);
	assert_false(list_empty(&n->control.cards)); /* the reactor frees it first */
	vdev_forget(d);
	assert_true(list_empty(&n->card->devs));
	cards_let_go(&n->control);
	assert_true(list_empty(&n->control.cards));
}

/* Its last connection may have ended before the manager tells that the device goes. */
static void the_end_of_a_device_without_connections_is_told(void **state)
{
	struct node *n = *state;
	struct rdma_cm_id conn = {.verbs = &n->ctx};
	struct net_addr at;
	char text[NET_TEXT_MAX];
	struct vcard *card = n->card;

	assert_int_equal(net_resolve("10.9.0.1", 5000, &at, NULL), 0);
	memcpy(rdma_get_local_addr(&conn), &at.sa, at.len);
	card_watch(&n->control, &conn);
	card_watch(&n->control, &conn); /* the next connection */
	assert_int_equal(cm.ids, 1);
	assert_string_equal(net_text(&cm.bound, text), "10.9.0.1:0");
	card->watch_id->verbs = &n->ctx;
	goes(n, card->watch_id);
	assert_true(atomic_load(&n->d.broken));
	cards_let_go(&n->control);
	assert_int_equal(cm.ids, 0); /* the driver waits for that, too */
	assert_false(list_empty(&n->control.cards));
	n->d.events = 0;
	assert_true(vdev_is_over(&n->d));
	vdev_forget(&n->d);
	cm.looks = 0;
	n->card->opening = 1; /* a reactor is about to put something on it */
	cards_let_go(&n->control);
	assert_false(list_empty(&n->control.cards));
	n->card->opening = 0;
	cards_let_go(&n->control);
	assert_true(list_empty(&n->control.cards));
	assert_true(cm.looks > 0); /* else librdmacm keeps it */
	assert_true(rests(n));
}

/* One that comes or goes meanwhile makes librdmacm open the others anew. */
static void a_device_that_was_opened_anew_goes_with_its_last_user(void **state)
{
	struct node *n = *state;
	int rc;

	cm.ctx[0] = &n->ctx;
	cm.ctx[1] = &n->other;
	n->control.look_ns = 1;
	assert_ptr_equal(control_dev(&n->v, &n->ctx, &rc, NULL), &n->d);
	cards_let_go(&n->control);
	assert_false(n->card->stale);
	cm.ctx[0] = &n->other; /* alone */
	cm.ctx[1] = NULL;
	n->control.look_ns = 1;
	cards_let_go(&n->control);
	assert_true(rests(n));
	assert_true(n->card->stale);
	assert_false(atomic_load(&n->d.broken)); /* it works for who has it */
	vdev_leave(&n->d);
	assert_int_equal(n->d.events, DEV_FAILED);
	n->d.events = 0;
	assert_true(vdev_is_over(&n->d));
	vdev_forget(&n->d);
	cards_let_go(&n->control);
	assert_true(list_empty(&n->control.cards));
}

static void one_device_is_held_not_all(void **state)
{
	struct node *n = *state;
	struct ibv_context **held;

	cm.ctx[0] = &n->other;
	cm.ctx[1] = &n->ctx;
	held = device_hold(&n->ctx);
	assert_ptr_equal(cm.given_back, &n->other);
	assert_ptr_equal(held[0], &n->ctx);
	assert_null(held[1]);
	free(held);
	cm.ctx[1] = NULL;
	assert_null(device_hold(&n->ctx)); /* it has gone */
	assert_int_equal(cm.lists, 0);
}

static void the_listener_goes_with_its_device_and_comes_back(void **state)
{
	struct node *n = *state;
	struct verbs_control *k = &n->control;
	char text[NET_TEXT_MAX];

	listens(n);
	goes(n, k->listen_id);
	assert_true(n->card->failed);
	assert_null(k->listen_id);
	assert_int_equal(cm.ids, 0); /* the driver waits for that */
	assert_true(k->listener_lost);
	memset(&cm.bound, 0, sizeof(cm.bound));
	cm.no_device = true;
	cm_listen_again(k);
	assert_true(k->listener_lost);
	assert_null(k->listen_id);
	assert_int_equal(cm.ids, 0);
	cm.no_device = false;
	cm_listen_again(k);
	assert_false(k->listener_lost);
	assert_non_null(k->listen_id);
	assert_string_equal(net_text(&cm.bound, text), "10.9.0.1:9866");
	cm_listen_again(k); /* it listens already */
	assert_int_equal(cm.ids, 1);
}

/* The second reactor of a node begins while the device is away. */
static void who_listens_meanwhile_waits_with_the_others(void **state)
{
	struct node *n = *state;
	struct verbs other = {.control = &n->control, .opts.passive = true};
	struct xlistener_opts o;

	list_add_tail(&n->control.verbs, &other.control_link);
	listens(n);
	o = n->v.listener;
	goes(n, n->control.listen_id);
	cm.no_device = true;
	assert_int_equal(verbs_listen(&other, &o, NULL), 0);
	assert_null(n->control.listen_id);
	cm.no_device = false;
	cm_listen_again(&n->control);
	assert_int_equal(cm.ids, 1);
	verbs_unlisten(&n->v);
	assert_int_equal(cm.ids, 1); /* the other one listens */
	verbs_unlisten(&other);
	assert_int_equal(cm.ids, 0);
	cm.no_device = true;
	assert_int_equal(verbs_listen(&n->v, &o, NULL), -ENODEV); /* nobody's is lost: it is told */
	assert_false(n->v.listening);
	assert_int_equal(cm.ids, 0);
	list_del(&other.control_link);
}

/* iWARP: the reason is said where somebody hears it, at the start, and not with each request. */
static void nobody_listens_on_a_device_that_no_node_is_to_use(void **state)
{
	struct node *n = *state;
	struct xlistener_opts o = {0};
	struct err err = ERR_INIT;

	assert_int_equal(net_resolve("10.9.0.1", 9866, &o.addr, NULL), 0);
	cm.on = &n->ctx;
	n->device.transport_type = IBV_TRANSPORT_IWARP;
	assert_int_equal(verbs_listen(&n->v, &o, &err), -EPROTONOSUPPORT);
	assert_non_null(strstr(err.text, "is iWARP"));
	assert_int_equal(cm.ids, 0);
	n->device.transport_type = IBV_TRANSPORT_IB;
	assert_int_equal(verbs_listen(&n->v, &o, &err), 0);
}

/* It may be chosen no more: others serve its device. */
static void a_reactor_whose_queue_has_failed_gets_no_requests(void **state)
{
	struct node *n = *state;

	assert_true(control_has_receives(&n->v, &n->ctx));
	atomic_store(&n->d.broken, true);
	assert_false(control_has_receives(&n->v, &n->ctx));
}

static void nobody_listens_again_who_has_stopped(void **state)
{
	struct node *n = *state;

	listens(n);
	goes(n, n->control.listen_id);
	cm.binds = 0;
	verbs_unlisten(&n->v);
	cm_listen_again(&n->control);
	assert_false(n->control.listener_lost);
	assert_int_equal(cm.binds, 0);
}

static void the_end_of_a_connections_device_leaves_the_listener(void **state)
{
	struct node *n = *state;
	struct rdma_cm_id id = {.verbs = &n->other};

	listens(n);
	goes(n, &id);
	assert_non_null(n->control.listen_id);
	assert_false(n->control.listener_lost);
	assert_false(n->card->failed); /* it was another device's */
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, node_up, node_down)
	const struct CMUnitTest tests[] = {
		CASE(a_device_goes_when_nobody_has_it),
		CASE(the_end_of_a_device_without_connections_is_told),
		CASE(a_device_that_was_opened_anew_goes_with_its_last_user),
		CASE(one_device_is_held_not_all),
		CASE(the_listener_goes_with_its_device_and_comes_back),
		CASE(who_listens_meanwhile_waits_with_the_others),
		CASE(a_reactor_whose_queue_has_failed_gets_no_requests),
		CASE(nobody_listens_again_who_has_stopped),
		CASE(nobody_listens_on_a_device_that_no_node_is_to_use),
		CASE(the_end_of_a_connections_device_leaves_the_listener),
	};

	log_init("verbs_removal_test", LOG_ERROR);
	return cmocka_run_group_tests_name("verbs_removal", tests, NULL, NULL);
}
