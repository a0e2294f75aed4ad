/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/xfer/suspects.h"

#include "common/base/clock.h"

static void go_on_locked(struct suspects *s);

static struct suspect *find_locked(struct suspects *s, const struct block_pool *bp, const struct block *b)
{
	for (uint32_t i = 0; i < SUSPECTS_KNOWN; i++) {
		struct suspect *q = &s->all[i];

		if (q->state != SUSPECT_NONE && q->bp == bp && q->block.id == b->id && q->block.gs == b->gs)
			return q;
	}
	return NULL;
}

/* A free place, else that of the oldest check. */
static struct suspect *place_locked(struct suspects *s)
{
	struct suspect *oldest = NULL;

	for (uint32_t i = 0; i < SUSPECTS_KNOWN; i++) {
		struct suspect *q = &s->all[i];

		if (q->state == SUSPECT_NONE)
			return q;
		if (q->state == SUSPECT_WAS_CHECKED && (!oldest || q->checked_ns < oldest->checked_ns))
			oldest = q;
	}
	return oldest;
}

static void work_check(struct offload *o)
{
	struct suspects *s = container_of(o, struct suspects, offload);

	replica_suspect(s->now->bp, &s->now->block);
}

static void done_check(struct offload *o)
{
	struct suspects *s = container_of(o, struct suspects, offload);

	pthread_mutex_lock(&s->lock);
	s->now->state = SUSPECT_WAS_CHECKED;
	s->now->checked_ns = clock_mono_ns();
	s->now = NULL;
	go_on_locked(s);
	pthread_mutex_unlock(&s->lock);
}

static void on_timer(struct rtimer *t)
{
	struct suspects *s = container_of(t, struct suspects, timer);

	pthread_mutex_lock(&s->lock);
	go_on_locked(s);
	pthread_mutex_unlock(&s->lock);
}

static void check_locked(struct suspects *s, struct suspect *q, uint64_t now_ns)
{
	const uint64_t cost = q->block.len > SUSPECT_COST_MIN ? q->block.len : SUSPECT_COST_MIN;

	q->state = SUSPECT_IS_CHECKED;
	s->waiting--;
	s->now = q;
	s->free_ns = now_ns + (uint64_t)((double)cost / SUSPECT_RATE * (double)NS_PER_S);
	s->offload = (struct offload){.work = work_check, .done = done_check};
	xfer_offload(s->core, replica_volume(q->bp, q->block.id), &s->offload);
}

/* The next check, the timer for it, or the end. On the reactor of s->core. */
static void go_on_locked(struct suspects *s)
{
	const uint64_t now_ns = clock_mono_ns();

	if (s->stopped || !s->waiting) {
		s->core->op_count--;
		s->core = NULL;
		return;
	}
	if (now_ns < s->free_ns) {
		s->timer.fire = on_timer;
		reactor_timer_set(s->core->reactor, &s->timer, s->free_ns);
		return;
	}
	for (uint32_t i = 0; i < SUSPECTS_KNOWN; i++) {
		if (s->all[i].state == SUSPECT_WAITS) {
			check_locked(s, &s->all[i], now_ns);
			return;
		}
	}
}

bool suspects_add(struct suspects *s, struct xfer_core *core, struct block_pool *bp, const struct block *b)
{
	struct suspect *q;
	bool ok;

	pthread_mutex_lock(&s->lock);
	q = find_locked(s, bp, b);
	ok = !s->stopped && s->waiting < SUSPECTS_MAX &&
	     (!q || (q->state == SUSPECT_WAS_CHECKED && clock_mono_ns() - q->checked_ns >= SUSPECT_AGAIN_NS));
	if (ok) {
		q = q ? q : place_locked(s);
		*q = (struct suspect){.bp = bp, .block = *b, .state = SUSPECT_WAITS};
		s->waiting++;
		if (!s->core) {
			s->core = core;
			core->op_count++;
			go_on_locked(s);
		}
	}
	pthread_mutex_unlock(&s->lock);
	return ok;
}

void suspects_stop(struct suspects *s, struct xfer_core *core)
{
	pthread_mutex_lock(&s->lock);
	s->stopped = true;
	if (s->core == core && !s->now) { /* the timer runs */
		reactor_timer_clear(core->reactor, &s->timer);
		go_on_locked(s);
	}
	pthread_mutex_unlock(&s->lock);
}

void suspects_init(struct suspects *s)
{
	pthread_mutex_init(&s->lock, NULL);
}

void suspects_fini(struct suspects *s)
{
	pthread_mutex_destroy(&s->lock);
}
