/* SPDX-License-Identifier: Apache-2.0 */
/* Memory windows for slots on a device that is played. What must hold: a program that needs few
 * makes few, and one that needs many gets them, those who wait in line first; the device is not
 * closed meanwhile; who is refused windows, or loses some, is told what they were for and why. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/log.h"
#include "common/transport/verbs_device_test_fixture.h"

#define ASKERS (VERBS_WINDOWS_MOST / VERBS_EXPOSURES)

/* ---- a device ---- */

static uint32_t mws, most; /* windows that there are, and may be */
static struct ibv_pd pd = {.context = &ctx};
static struct ibv_cq cq = {.context = &ctx};
static struct ibv_comp_channel channel = {.context = &ctx};

struct ibv_comp_channel *__wrap_ibv_create_comp_channel(struct ibv_context *c);
int __wrap_ibv_destroy_comp_channel(struct ibv_comp_channel *c);
struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *c, int cqe, void *arg,
				    struct ibv_comp_channel *ch, int vector);
int __wrap_ibv_destroy_cq(struct ibv_cq *c);
struct ibv_pd *__wrap_ibv_alloc_pd(struct ibv_context *c);
int __wrap_ibv_dealloc_pd(struct ibv_pd *p);
void __wrap_log_line(enum log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

struct ibv_comp_channel *__wrap_ibv_create_comp_channel(struct ibv_context *c)
{
	(void)c;
	channel.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return &channel;
}

int __wrap_ibv_destroy_comp_channel(struct ibv_comp_channel *c)
{
	return close(c->fd);
}

struct ibv_cq *__wrap_ibv_create_cq(struct ibv_context *c, int cqe, void *arg,
				    struct ibv_comp_channel *ch, int vector)
{
	(void)c, (void)cqe, (void)arg, (void)ch, (void)vector;
	return &cq;
}

int __wrap_ibv_destroy_cq(struct ibv_cq *c)
{
	(void)c;
	return 0;
}

struct ibv_pd *__wrap_ibv_alloc_pd(struct ibv_context *c)
{
	(void)c;
	return &pd;
}

int __wrap_ibv_dealloc_pd(struct ibv_pd *p)
{
	(void)p;
	return 0;
}

static struct ibv_mw *alloc_mw(struct ibv_pd *p, enum ibv_mw_type type)
{
	struct ibv_mw *mw;

	assert_int_equal(type, IBV_MW_TYPE_2);
	if (mws >= most) {
		errno = ENOMEM;
		return NULL;
	}
	mw = calloc(1, sizeof(*mw));
	mw->context = p->context;
	mws++;
	return mw;
}

static int dealloc_mw(struct ibv_mw *mw)
{
	mws--;
	free(mw);
	return 0;
}

/* ---- what is said ---- */

static char said[512];
static uint32_t warnings;

void __wrap_log_line(enum log_level level, const char *fmt, ...)
{
	va_list ap;

	if (level > LOG_WARN)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(said, sizeof(said), fmt, ap);
	va_end(ap);
	warnings++;
}

/* ---- a reactor and its control thread, which take turns ---- */

static struct verbs_control control;
static struct verbs *v;
static struct vcard card;
static struct vdev d;
#define CONNS 4u /* one has three eighths of the windows at most */
static struct vconn conn[CONNS];

static int setup(void **state)
{
	const struct reactor_opts ro = {.name = "test"};

	(void)state;
	most = UINT32_MAX;
	mws = warnings = 0;
	attr = (struct ibv_device_attr){.max_cqe = 1024,
					.max_mr_size = UINT64_MAX,
					.max_mw = 1 << 20,
					.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B};
	ctx.ops.alloc_mw = alloc_mw;
	ctx.ops.dealloc_mw = dealloc_mw;
	memset(&control, 0, sizeof(control));
	control.wake = -1;
	pthread_mutex_init(&control.lock, NULL);
	list_init(&control.cards);
	list_init(&control.memories);
	list_init(&control.revoked);
	v = calloc(1, sizeof(*v));
	v->control = &control;
	v->opts.windows = VERBS_WINDOWS_AUTO;
	v->poller.fd = -1;
	list_init(&v->mail);
	list_init(&v->conns);
	if (reactor_new(&ro, &v->reactor, NULL) < 0)
		return -1;
	card = (struct vcard){.ctx = &ctx};
	list_init(&card.devs);
	list_add_tail(&control.cards, &card.link);
	d = (struct vdev){.v = v, .ctx = &ctx, .pd_out = &pd, .joined = true};
	d.attr = attr;
	list_add_tail(&card.devs, &d.card_link);
	for (uint32_t i = 0; i < CONNS; i++)
		conn[i] = (struct vconn){.v = v, .dev = &d};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	vwindows_free(d.slots);
	reactor_free(v->reactor);
	free(v);
	pthread_mutex_destroy(&control.lock);
	return (int)mws;
}

static void turn_control(void)
{
	while (vmemory_turn(&control))
		;
	(void)verbs_mail_poll(&v->poller);
}

struct asker {
	struct rop rop;
	struct verbs_turn turn;
};
static struct asker asker[ASKERS + 1];

static bool takes_for(struct vconn *c, uint32_t i)
{
	asker[i] = (struct asker){0};
	rop_init(&asker[i].rop, NULL, NULL);
	asker[i].turn.rop = &asker[i].rop;
	return verbs_turn_take(&c->x, &asker[i].turn);
}

static bool takes(uint32_t i)
{
	return takes_for(&conn[i % CONNS], i);
}

static uint32_t all_take(void)
{
	uint32_t n = 0;

	while (n < ASKERS && takes(n))
		n++;
	return n;
}

static void all_end(uint32_t n)
{
	while (n-- > 0) {
		verbs_turn_end(&asker[n].turn);
		list_del(&asker[n].rop.ready_link);
	}
}

/* Of those that there may be, made or not. */
static void a_connection_has_its_share_of_them(void **state)
{
	uint32_t n = 0;

	(void)state;
	assert_int_equal(vdev_windows_new(&d), 0);
	while (n < ASKERS && takes_for(&conn[0], n)) {
		n++;
		turn_control();
	}
	assert_int_equal(n * VERBS_EXPOSURES, VERBS_WINDOWS_MOST / VERBS_SHARE_OF * VERBS_SHARE);
	assert_true(verbs_has_its_share(&conn[0].x) && !verbs_has_its_share(&conn[1].x));
	all_end(n);
}

static void few_are_made_for_who_needs_few(void **state)
{
	(void)state;
	assert_int_equal(vdev_windows_new(&d), 0);
	for (uint32_t i = 0; i < 4; i++)
		assert_true(takes(i));
	turn_control();
	assert_int_equal(mws, VERBS_WINDOWS_STEP);
	all_end(4);
}

static void who_waits_gets_those_that_are_made_then(void **state)
{
	uint32_t n;

	(void)state;
	assert_int_equal(vdev_windows_new(&d), 0);
	n = all_take();
	assert_int_equal(n, VERBS_WINDOWS_STEP / VERBS_EXPOSURES);
	verbs_turn_wait(&conn[n % CONNS].x, &asker[n].turn);
	assert_true(vdev_is_coming(&d)); /* it is not closed before that has ended */
	turn_control();
	assert_true(asker[n].turn.has);
	assert_true(list_is_linked(&asker[n].rop.ready_link));
	while (vdev_is_coming(&d))
		turn_control();
	assert_int_equal(mws, 3 * VERBS_WINDOWS_STEP); /* more than half of two were in use */
	all_end(n + 1);
	assert_int_equal(d.slots->reserved, 0);
}

static void so_many_are_made_as_before(void **state)
{
	uint32_t n = 0;

	(void)state;
	assert_int_equal(vdev_windows_new(&d), 0);
	while (n < ASKERS) {
		assert_true(takes(n++));
		turn_control();
		assert_true(mws >= VERBS_EXPOSURES * n);
	}
	assert_int_equal(mws, VERBS_WINDOWS_MOST);
	assert_false(takes(n));
	turn_control();
	assert_int_equal(mws, VERBS_WINDOWS_MOST);
	all_end(n);
}

/* Others have them. */
static void a_device_that_gives_no_more_is_asked_no_more(void **state)
{
	uint32_t n;

	(void)state;
	most = VERBS_WINDOWS_STEP + 6;
	assert_int_equal(vdev_windows_new(&d), 0);
	n = all_take();
	turn_control();
	assert_int_equal(mws, most);
	assert_int_equal(d.slots->count, most);
	for (; n < most / VERBS_EXPOSURES; n++)
		assert_true(takes(n));
	assert_false(takes(n));
	assert_false(vdev_is_coming(&d));
	all_end(n);
	assert_true(!vdev_is_coming(&d) && d.slots->spare_count == most);
}

static void what_a_connection_loses_is_told_once(void **state)
{
	(void)state;
	assert_int_equal(vdev_windows_new(&d), 0);
	for (uint32_t i = 0; i < 3; i++) {
		struct verbs_window *w =
			container_of(list_pop(&d.slots->spare), struct verbs_window, link);

		d.slots->spare_count--;
		list_add_tail(&control.revoked, &w->link);
	}
	most = 0;
	turn_control();
	assert_int_equal(warnings, 1);
	assert_non_null(strstr(said, "3 memory windows of buffers"));
}

static void refused(const char *why)
{
	const struct pool_opts po = {.count = {4, 1, 1, 1, 1}};
	struct vdev *other = NULL;
	struct err err = ERR_INIT;

	v->opts = (struct verbs_opts){.active = true, .windows = VERBS_WINDOWS_ON};
	assert_int_equal(pool_new(&po, &v->opts.pool, NULL), 0);
	assert_int_equal(vdev_open(v, &ctx, &other, &err), -ENOTSUP);
	pool_free(v->opts.pool);
	assert_non_null(strstr(err.text, why));
	assert_non_null(strstr(err.text, "dfs.rdma.windows=on"));
	assert_non_null(strstr(err.text, "dfs.rdma.windows=auto")); /* the cure */
	assert_non_null(strstr(said, why));
}

static void a_device_that_is_not_used_says_why(void **state)
{
	(void)state;
	attr.device_cap_flags = 0;
	refused("it has no memory windows (type 2)");
	attr.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2A;
	attr.max_mw = 1023;
	refused("it has 1023 memory windows, and 32 times 32 are the least");
	attr.max_mw = 1024;
	most = 7;
	refused("it gives no memory windows now (Cannot allocate memory)");
	refused("other programs may have them");
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(a_connection_has_its_share_of_them),
		CASE(few_are_made_for_who_needs_few),
		CASE(who_waits_gets_those_that_are_made_then),
		CASE(so_many_are_made_as_before),
		CASE(a_device_that_gives_no_more_is_asked_no_more),
		CASE(what_a_connection_loses_is_told_once),
		CASE(a_device_that_is_not_used_says_why),
	};

	return cmocka_run_group_tests_name("verbs_windows", tests, NULL, NULL);
}
