/* SPDX-License-Identifier: Apache-2.0 */
/* What a machine without RDMA must see, and no wake-up of a completion queue is lost; the queue is
 * a fake. With a device: tests/rdma/verbs_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/transport/verbs_internal.h"

/* ---- a completion queue ---- */

static struct {
	uint32_t completions, events; /* not yet taken */
	bool armed, fails;
	uint32_t late_completions, late_events; /* come right behind the next look at the queue */
} queue;

static void event(void)
{
	queue.events++;
	queue.armed = false;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	const uint32_t had = queue.completions;

	(void)cq;
	assert_true(had <= (uint32_t)n);
	memset(wc, 0, had * sizeof(*wc)); /* of a connection that is gone */
	queue.completions = queue.late_completions;
	if (queue.late_completions && queue.armed)
		event();
	while (queue.late_events) {
		queue.late_events--;
		event();
	}
	queue.late_completions = 0;
	return (int)had;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
	(void)cq;
	(void)solicited;
	if (queue.fails)
		return ENOMEM;
	queue.armed = true;
	return 0;
}

int __wrap_ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **ctx);
int __wrap_ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **ctx)
{
	(void)channel;
	*cq = NULL;
	*ctx = NULL;
	if (!queue.events)
		return -1;
	queue.events--;
	return 0;
}

void __wrap_ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n);
void __wrap_ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	(void)cq;
	(void)n;
}

/* As the reactor does it. What is there afterwards must wake it: the channel is readable, or will
 * be. */
static void go_to_sleep(struct vdev *d)
{
	do
		assert_int_equal(vdev_arm(&d->poller), 0);
	while (vdev_poll(&d->poller));
	assert_true(queue.events || (queue.armed && !queue.completions));
}

static void no_completion_is_slept_through(void **state)
{
	static struct verbs v;
	struct ibv_context ctx = {.ops = {.poll_cq = poll_cq, .req_notify_cq = req_notify_cq}};
	struct ibv_cq cq = {.context = &ctx};
	struct vdev d = {.v = &v, .cq = &cq};

	(void)state;
	list_init(&d.rx_due);
	go_to_sleep(&d);
	/* between the look and the question whether an event is there */
	queue.late_completions = 1;
	go_to_sleep(&d);
	go_to_sleep(&d);
	queue.completions = 1; /* the completion is there, */
	queue.armed = false;   /* its event follows */
	assert_int_equal(vdev_poll(&d.poller), 1);
	queue.late_events = 1;
	go_to_sleep(&d);
	go_to_sleep(&d);
}

static int poll_fails(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	(void)cq;
	(void)n;
	(void)wc;
	return -1;
}

/* It would be slept through for ever, or its connections would hang until their time is up. */
static void a_queue_that_gives_nothing_has_failed(void **state)
{
	static struct verbs v;
	struct verbs_control control = {.wake = -1};
	struct ibv_device device = {.name = "played"};
	struct ibv_context ctx = {.device = &device,
				  .ops = {.poll_cq = poll_cq, .req_notify_cq = req_notify_cq}};
	struct ibv_cq cq = {.context = &ctx};
	struct vdev d = {.v = &v, .ctx = &ctx, .cq = &cq};

	(void)state;
	v = (struct verbs){.control = &control, .poller.fd = -1};
	pthread_mutex_init(&control.lock, NULL);
	list_init(&d.rx_due);
	queue.fails = true;
	assert_int_equal(vdev_arm(&d.poller), 0);
	assert_false(d.armed);
	assert_int_equal(d.events, DEV_FAILED);
	d.events = 0;
	queue.fails = false;
	atomic_store(&d.broken, false);
	assert_int_equal(vdev_arm(&d.poller), 0);
	assert_true(d.armed);
	ctx.ops.poll_cq = poll_fails;
	assert_int_equal(vdev_poll(&d.poller), 0);
	assert_int_equal(d.events, DEV_FAILED);
	d.events = 0; /* and is told once */
	vdev_drain(&d);
	assert_int_equal(d.events, 0);
	pthread_mutex_destroy(&control.lock);
}

/* The control thread tells it, while the reactor has the connection already. */
static void what_is_granted_at_first_is_told_whatever_comes_later(void **state)
{
	static struct verbs v;
	static struct vconn c;
	struct vdev d = {.v = &v};

	(void)state;
	c = (struct vconn){.v = &v, .cm_dev = &d, .first_grant = 4};
	grant_init(&c.grant, 4);
	grant_add(&c.grant, 5);
	assert_int_equal(vconn_hello(&c, 1).credits, 4);
}

/* ---- no device ---- */

static void a_machine_without_a_device_says_so_and_names_the_cure(void **state)
{
	struct verbs_opts opts = {.passive = true};
	struct err err = ERR_INIT;
	struct verbs *v = NULL;

	(void)state;
	if (verbs_probe(&err) == 0)
		skip();
	assert_int_equal(err.rc, -ENODEV);
	assert_non_null(strstr(err.text, "rdma link add"));
	assert_int_equal(verbs_new(NULL, &opts, &v, &err), -ENODEV);
	assert_null(v);
	assert_int_equal(verbs_probe(NULL), -ENODEV);
	verbs_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_completion_is_slept_through),
		cmocka_unit_test(a_queue_that_gives_nothing_has_failed),
		cmocka_unit_test(what_is_granted_at_first_is_told_whatever_comes_later),
		cmocka_unit_test(a_machine_without_a_device_says_so_and_names_the_cure),
	};

	log_init("verbs_test", LOG_ERROR);
	return cmocka_run_group_tests_name("verbs", tests, NULL, NULL);
}
