/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is no slot, on devices that come and go; the devices are played. What must hold: each
 * device that is open has it, also one that is opened later or again, and one that is closed has
 * nothing of it; who registers hears what is wrong, and then nothing is left; a window whose
 * connection was lost is made anew by the control thread; what connections want goes before, and
 * registrations go one by one. */
#include <poll.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/transport/verbs_window_test_fixture.h"

static void before_a_device_is_opened_it_is_tried_on_one(void **state)
{
	struct verbs_memory *m = must_have();

	(void)state;
	assert_int_equal(dev[0].tried, 1);
	assert_int_equal(dev[0].mrs + dev[1].mrs + dev[0].pds, 0);
	opens(&dev[1]); /* not the one that it was tried on */
	assert_true(has_all(&dev[1]));
	assert_int_equal(windows_there(m, &dev[1]), VERBS_MEMORY_WINDOWS);
	verbs_memory_free(m);
	assert_int_equal(dev[1].mrs + dev[1].mws, 0);
}

static void each_open_device_has_it(void **state)
{
	struct verbs_memory *m;

	(void)state;
	opens(&dev[0]);
	m = must_have();
	assert_true(has_all(&dev[0]) && !dev[0].tried);
	assert_int_equal(dev[1].mrs, 0);
	opens(&dev[1]);
	assert_true(has_all(&dev[1]));
	verbs_memory_free(m);
	m = must_have();
	assert_true(has_all(&dev[0]) && has_all(&dev[1]));
	verbs_memory_free(m);
	assert_int_equal(dev[0].mrs + dev[0].mws + dev[1].mrs + dev[1].mws, 0);
}

static void a_device_goes_with_what_is_on_it_and_comes_back_with_it(void **state)
{
	struct verbs_memory *m;

	(void)state;
	opens(&dev[0]);
	opens(&dev[1]);
	m = must_have();
	closes(&dev[0]);
	assert_int_equal(dev[0].mrs + dev[0].mws, 0);
	assert_true(has_all(&dev[1]));
	assert_int_equal(windows_there(m, &dev[0]), 0);
	is_forgotten(&dev[0]);
	opens(&dev[0]);
	assert_true(has_all(&dev[0]));
	assert_int_equal(windows_there(m, &dev[0]), VERBS_MEMORY_WINDOWS);
	verbs_memory_free(m);
}

/* Its reactor may free it at any moment. */
static void a_device_that_is_closed_is_left_alone(void **state)
{
	struct verbs_memory *m, *other;

	(void)state;
	opens(&dev[0]);
	opens(&dev[1]);
	m = must_have();
	closes(&dev[0]);
	other = must_have();
	assert_int_equal(dev[0].mrs, 0);
	verbs_memory_free(other);
	atomic_store(&dev[1].d.broken, true); /* not closed yet */
	verbs_memory_free(m);
	assert_int_equal(dev[1].mrs + dev[1].mws, 0);
	m = must_have(); /* there is another one, or the same soon */
	assert_int_equal(dev[1].mrs, 0);
	verbs_memory_free(m);
	is_forgotten(&dev[0]);
}

static void a_device_without_windows_has_it_not(void **state)
{
	struct err err = ERR_INIT;
	struct verbs_memory *m;

	(void)state;
	dev[0].no_windows = true;
	opens(&dev[0]);
	m = must_have(); /* the other one has */
	assert_int_equal(dev[0].mrs, 0);
	assert_int_equal(windows_there(m, &dev[0]), 0);
	opens(&dev[1]);
	assert_int_equal(windows_there(m, &dev[1]), VERBS_MEMORY_WINDOWS);
	verbs_memory_free(m);
	m = must_have();
	assert_true(has_all(&dev[1]));
	verbs_memory_free(m);
	closes(&dev[0]);
	is_forgotten(&dev[0]);
	closes(&dev[1]);
	is_forgotten(&dev[1]);
	dev[1].no_windows = true;
	assert_int_equal(refused(&err), -ENOTSUP);
	assert_non_null(strstr(err.text, "card1 has no memory windows"));
	listed = 0;
	assert_int_equal(refused(&err), -ENODEV);
}

static void who_may_lock_no_more_is_told_so(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	dev[0].reg_errno = dev[1].reg_errno = ENOMEM;
	assert_int_equal(refused(&err), -ENOMEM);
	assert_non_null(strstr(err.text, "RLIMIT_MEMLOCK of "));
	assert_non_null(strstr(err.text, "ulimit -l"));
	dev[0].reg_errno = 0;
	opens(&dev[0]);
	opens(&dev[1]);
	assert_int_equal(refused(&err), -ENOMEM); /* and it is off the first one again */
	dev[1].reg_errno = EFAULT;
	assert_int_equal(refused(&err), -EFAULT);
	dev[1].reg_errno = EIO; /* it is about to go */
	verbs_memory_free(must_have());
}

static struct ibv_mw *no_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	(void)pd;
	(void)type;
	errno = ENOMEM; /* as drivers say it, too */
	return NULL;
}

static void who_finds_no_window_left_is_told_of_windows(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	opens(&dev[0]);
	dev[0].d.attr.max_mw = 4711;
	dev[0].ctx.ops.alloc_mw = no_mw;
	assert_int_equal(refused(&err), -ENOMEM);
	assert_non_null(strstr(err.text, "card0 has no 24 memory windows left"));
	assert_non_null(strstr(err.text, "of 4711 for all programs"));
	assert_non_null(strstr(err.text, "dfs.rdma.windows=off"));
	assert_null(strstr(err.text, "MEMLOCK"));
	assert_null(strstr(err.text, "ulimit"));
}

/* What comes over that device is copied. */
static void a_device_that_is_opened_later_may_refuse(void **state)
{
	struct verbs_memory *m = must_have();

	(void)state;
	dev[0].reg_errno = ENOMEM;
	opens(&dev[0]);
	assert_int_equal(windows_there(m, &dev[0]), 0);
	assert_int_equal(dev[0].mrs + dev[0].mws, 0);
	verbs_memory_free(m);
}

static void a_window_whose_connection_is_lost_is_made_anew(void **state)
{
	struct vconn c = {.dev = &dev[0].d, .error = -EIO};
	struct verbs_window *w;
	struct verbs_memory *m;
	uint32_t there, rkey;
	bool turned;

	(void)state;
	opens(&dev[0]);
	m = must_have();
	w = verbs_window_get(m, &c.x);
	pthread_mutex_lock(&turning); /* the control thread is busy */
	verbs_window_revoke(w);
	there = windows_there(m, &dev[0]);
	turned = vmemory_turn(&control);
	/* what was queued comes home, and touches nothing that the control thread may have */
	(void)verbs_window_open(&c.x, w, mem, 1, VERBS_PEER_WRITES);
	rkey = newest->rkey;
	pthread_mutex_unlock(&turning);
	assert_int_equal(there, VERBS_MEMORY_WINDOWS - 1);
	assert_true(turned);
	assert_int_equal(rkey, 0x100);
	assert_int_equal(dev[0].mws, VERBS_MEMORY_WINDOWS);
	for (uint32_t i = 0; i < VERBS_MEMORY_WINDOWS; i++)
		assert_non_null(verbs_window_get(m, &c.x));
	assert_null(verbs_window_get(m, &c.x));
	verbs_memory_free(m);
	assert_int_equal(dev[0].mws, 0);
}

static void a_dmabuf_is_on_each_device_by_its_descriptor(void **state)
{
	const int fd = eventfd(0, EFD_CLOEXEC);
	struct err err = ERR_INIT;
	struct verbs_memory *m = NULL;

	(void)state;
	dmabufs = 0;
	opens(&dev[0]);
	assert_int_equal(verbs_memory_new_dmabuf(&v, fd, 4096, mem, LEN, &m, &err), 0);
	close(fd); /* ours is another one */
	assert_true(has_all(&dev[0]));
	opens(&dev[1]);
	assert_true(has_all(&dev[1]));
	assert_int_equal(dmabufs, 2);
	verbs_memory_free(m);
	m = NULL;
	assert_int_equal(verbs_memory_new_dmabuf(&v, fd, 4096, mem, LEN, &m, &err), -EBADF);
	dev[0].reg_errno = dev[1].reg_errno = EOPNOTSUPP;
	assert_int_equal(verbs_memory_new_dmabuf(&v, 0, 4096, mem, LEN, &m, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "registers no memory by dma-buf"));
	assert_null(m);
}

static void of_many_devices_none_is_left_out(void **state)
{
	struct verbs_memory *m;

	(void)state;
	for (uint32_t i = 0; i < DEVICES; i++) {
		if (i >= 2)
			is_there(i);
		opens(&dev[i]);
	}
	m = must_have();
	for (uint32_t i = 0; i < DEVICES; i++)
		assert_true(has_all(&dev[i]));
	verbs_memory_free(m);
	for (uint32_t i = 0; i < DEVICES; i++)
		assert_int_equal(dev[i].mrs + dev[i].mws, 0);
}

/* ---- the turns of the control thread ---- */

static unsigned left_to_do; /* of connections, as a window was made */

static struct ibv_mw *alloc_mw_and_look(struct ibv_pd *pd, enum ibv_mw_type type)
{
	left_to_do += list_length(&control.todo);
	return alloc_mw(pd, type);
}

static void *registers(void *arg)
{
	(void)arg;
	return must_have();
}

static bool is_woken(void)
{
	struct pollfd p = {.fd = control.wake, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static uint32_t waiting(void)
{
	uint32_t n;

	pthread_mutex_lock(&control.lock);
	n = list_length(&control.memories);
	pthread_mutex_unlock(&control.lock);
	return n;
}

/* Many blocks get hot at once: who connects, and what a device tells, waits for one of them. */
static void connections_go_before_registrations(void **state)
{
	const uint64_t one = 1;
	struct vconn wants = {0};
	pthread_t t[3];
	void *m;

	(void)state;
	left_to_do = 0;
	list_init(&control.todo);
	list_init(&control.chunks);
	opens(&dev[0]);
	dev[0].ctx.ops.alloc_mw = alloc_mw_and_look;
	pthread_mutex_lock(&turning); /* the turns are taken here */
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, registers, NULL), 0);
	while (waiting() < 3 || is_woken()) /* that thread has heard, and stands still */
		nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
	list_add_tail(&control.todo, &wants.todo_link);
	(void)!write(control.wake, &one, sizeof(one));
	for (uint32_t i = 0; i < 3; i++) {
		assert_true(is_woken());
		control_turn(&control);
		assert_int_equal(dev[0].mrs, i + 1);
		assert_true(list_empty(&control.todo));
	}
	assert_int_equal(left_to_do, 0);
	assert_false(is_woken() || control.woken);
	pthread_mutex_unlock(&turning);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(t[i], &m), 0);
		verbs_memory_free(m);
	}
}

static void so_many_are_there_at_most(void **state)
{
	struct verbs_memory *m[VERBS_MEMORIES];
	struct verbs_memory *none = NULL;
	struct err err = ERR_INIT;

	(void)state;
	for (uint32_t i = 0; i < VERBS_MEMORIES; i++)
		m[i] = must_have();
	assert_int_equal(verbs_memory_new(&v, mem, LEN, &none, &err), -ENOSPC);
	verbs_memory_free(m[7]);
	m[7] = must_have();
	for (uint32_t i = 0; i < VERBS_MEMORIES; i++)
		verbs_memory_free(m[i]);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(before_a_device_is_opened_it_is_tried_on_one),
		CASE(each_open_device_has_it),
		CASE(a_device_goes_with_what_is_on_it_and_comes_back_with_it),
		CASE(a_device_that_is_closed_is_left_alone),
		CASE(a_device_without_windows_has_it_not),
		CASE(who_may_lock_no_more_is_told_so),
		CASE(who_finds_no_window_left_is_told_of_windows),
		CASE(a_device_that_is_opened_later_may_refuse),
		CASE(a_window_whose_connection_is_lost_is_made_anew),
		CASE(a_dmabuf_is_on_each_device_by_its_descriptor),
		CASE(of_many_devices_none_is_left_out),
		CASE(connections_go_before_registrations),
		CASE(so_many_are_there_at_most),
	};

	log_init("verbs_window_test", LOG_ERROR);
	return cmocka_run_group_tests_name("verbs_window", tests, NULL, NULL);
}
