/* SPDX-License-Identifier: Apache-2.0 */
/* Who has the baton, who sleeps, and when what happens. */
#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/simulator/real.h"
#include "tests/simulator/world.h"

#define STEP_NS 300 /* that a call takes */

/* ---- lists of threads ---- */

static void list_add(uint16_t *list, uint32_t *count, uint32_t id)
{
	world->thread[id].place = *count;
	list[(*count)++] = (uint16_t)id;
}

static void list_del(uint16_t *list, uint32_t *count, uint32_t id)
{
	const uint16_t last = list[--*count];

	list[world->thread[id].place] = last;
	world->thread[last].place = world->thread[id].place;
}

static void make_ready(uint32_t id)
{
	struct thread *t = &world->thread[id];

	if (t->state != THREAD_ASLEEP)
		return;
	list_del(world->asleep, &world->asleep_count, id);
	list_add(world->ready, &world->ready_count, id);
	t->state = THREAD_READY;
	t->channel = NULL;
	t->until = FOREVER;
	t->timed_out = false;
}

static void make_asleep(uint32_t id, const void *channel, uint64_t until)
{
	struct thread *t = &world->thread[id];

	list_del(world->ready, &world->ready_count, id);
	list_add(world->asleep, &world->asleep_count, id);
	t->state = THREAD_ASLEEP;
	t->channel = channel;
	t->until = until;
	t->timed_out = false;
	if (until < world->soonest)
		world->soonest = until;
}

static void make_dead(uint32_t id)
{
	struct thread *t = &world->thread[id];

	if (t->state == THREAD_READY)
		list_del(world->ready, &world->ready_count, id);
	else if (t->state == THREAD_ASLEEP)
		list_del(world->asleep, &world->asleep_count, id);
	t->state = THREAD_DEAD;
}

/* ---- events, a heap by time ---- */

static bool is_before(const struct event *a, const struct event *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void swap(uint32_t i, uint32_t k)
{
	const struct event e = world->event[i];

	world->event[i] = world->event[k];
	world->event[k] = e;
}

void event_add(uint64_t at, enum event_kind kind, uint32_t a, uint32_t b)
{
	uint32_t i = world->event_count++;

	if (i == MAX_EVENTS) {
		fprintf(stderr, "sim: too many events\n");
		abort();
	}
	world->event[i] =
		(struct event){.at = at, .order = world->order++, .kind = kind, .a = a, .b = b};
	for (; i && is_before(&world->event[i], &world->event[(i - 1) / 2]); i = (i - 1) / 2)
		swap(i, (i - 1) / 2);
}

static struct event event_take(void)
{
	const struct event e = world->event[0];
	uint32_t i = 0;

	world->event[0] = world->event[--world->event_count];
	for (;;) {
		uint32_t least = i;

		for (uint32_t k = 2 * i + 1; k <= 2 * i + 2 && k < world->event_count; k++)
			if (is_before(&world->event[k], &world->event[least]))
				least = k;
		if (least == i)
			return e;
		swap(i, least);
		i = least;
	}
}

/* ---- time ---- */

static void wake_late(void)
{
	uint64_t soonest = FOREVER;

	for (uint32_t i = world->asleep_count; i--;) {
		const uint32_t id = world->asleep[i];
		const uint64_t until = world->thread[id].until;

		if (until <= world->now) {
			make_ready(id);
			world->thread[id].timed_out = true;
		} else if (until < soonest) {
			soonest = until;
		}
	}
	world->soonest = soonest;
}

static void run_due(void)
{
	while (world->event_count && world->event[0].at <= world->now) {
		const struct event e = event_take();

		event_run(&e);
	}
	if (world->soonest <= world->now)
		wake_late();
}

/* Nobody can run: it is later. */
static void pass_time(void)
{
	uint64_t next = world->soonest;

	if (world->event_count && world->event[0].at < next)
		next = world->event[0].at;
	if (next == FOREVER) {
		fprintf(stderr, "sim: everybody waits for ever\n");
		abort();
	}
	if (next > world->now)
		world->now = next;
	run_due();
}

/* ---- the baton ---- */

static void wait_for_baton(struct thread *t)
{
	while (!__atomic_load_n(&t->go, __ATOMIC_ACQUIRE))
		(void)REAL(syscall)(SYS_futex, &t->go, FUTEX_WAIT, 0, NULL, NULL, 0);
	t->go = 0;
}

static void give_to(uint32_t id)
{
	struct thread *t = &world->thread[id];

	world->current = id;
	world->steps++;
	__atomic_store_n(&t->go, 1, __ATOMIC_RELEASE);
	(void)REAL(syscall)(SYS_futex, &t->go, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static uint32_t choose(void)
{
	run_due();
	while (!world->ready_count)
		pass_time();
	return world->ready[chance(world->ready_count)];
}

static void pass_on(void)
{
	struct thread *me = &world->thread[sim_me];
	const uint32_t next = choose();

	if (next == (uint32_t)sim_me)
		return;
	give_to(next);
	wait_for_baton(me);
}

void sched_point(void)
{
	if (sim_me < 0)
		return;
	world->now += STEP_NS;
	world->looks = 0;
	if (one_in(world->preempt))
		pass_on();
}

bool sleep_for(const void *channel, uint64_t until)
{
	struct thread *t = &world->thread[sim_me];

	if (until <= world->now)
		return false;
	make_asleep((uint32_t)sim_me, channel, until);
	pass_on();
	return !t->timed_out;
}

void sleep_ns(uint64_t ns)
{
	const uint64_t until = world->now + ns;

	while (sleep_for(NULL, until))
		continue;
}

/* A sleeper for @channel in this process, from a place by chance on; 0: none. */
static uint32_t find_sleeper(const void *channel)
{
	const uint32_t proc = world->thread[sim_me].proc, n = world->asleep_count;
	const uint32_t from = n ? (uint32_t)chance(n) : 0;

	for (uint32_t i = 0; i < n; i++) {
		const uint32_t id = world->asleep[(from + i) % n];

		if (world->thread[id].channel == channel && world->thread[id].proc == proc)
			return id;
	}
	return 0;
}

void wake_channel(const void *channel, bool all)
{
	uint32_t id;

	while ((id = find_sleeper(channel))) {
		make_ready(id);
		if (!all)
			return;
	}
}

void waiters_add(struct waiters *w)
{
	for (uint32_t i = 0; i < w->count; i++)
		if (w->thread[i] == sim_me)
			return;
	if (w->count == w->size) {
		const uint32_t size = w->size ? w->size * 2 : 16;
		uint16_t *more = (uint16_t *)world_alloc(size * sizeof(*more));

		if (w->count)
			memcpy(more, w->thread, w->count * sizeof(*more));
		world_free(w->thread, w->size * sizeof(*more));
		w->thread = more;
		w->size = size;
	}
	w->thread[w->count++] = (uint16_t)sim_me;
}

void waiters_wake(struct waiters *w)
{
	const uint32_t n = w->count;

	w->count = 0;
	for (uint32_t i = 0; i < n; i++)
		make_ready(w->thread[i]);
}

void waiters_drop(struct waiters *w)
{
	world_free(w->thread, w->size * sizeof(*w->thread));
	*w = (struct waiters){0};
}

/* ---- threads ---- */

uint32_t thread_new(uint32_t proc, const char *name)
{
	const uint32_t id = world->thread_count++;
	struct thread *t = &world->thread[id];

	if (id == MAX_THREADS) {
		fprintf(stderr, "sim: too many threads\n");
		abort();
	}
	*t = (struct thread){.state = THREAD_READY, .proc = (uint16_t)proc, .until = FOREVER};
	snprintf(t->name, sizeof(t->name), "%s", name);
	list_add(world->ready, &world->ready_count, id);
	return id;
}

void thread_begin(uint32_t id)
{
	sim_me = (int)id;
	wait_for_baton(&world->thread[id]);
}

void thread_end(void)
{
	const uint32_t id = (uint32_t)sim_me;

	make_dead(id);
	sim_me = -1;
	give_to(choose());
}

void threads_kill(uint32_t proc)
{
	for (uint32_t i = 1; i < world->thread_count; i++)
		if (i != (uint32_t)sim_me && world->thread[i].proc == proc &&
		    world->thread[i].state != THREAD_DEAD)
			make_dead(i);
}
