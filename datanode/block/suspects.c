/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/block/suspects.h"

#include "common/base/clock.h"

static void go_on_locked(struct suspects *s, struct engine_core *core);

static struct suspect *find_locked(struct suspects *s, const struct block_pool *bp,
				   const struct block *b)
{
	for (uint32_t i = 0; i < SUSPECTS_KNOWN; i++) {
		struct suspect *q = &s->all[i];

		if (q->state != SUSPECT_NONE && q->bp == bp && q->block.id == b->id &&
		    q->block.gs == b->gs)
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
		if (q->state == SUSPECT_WAS_CHECKED &&
		    (!oldest || q->checked_ns < oldest->checked_ns))
			oldest = q;
	}
	return oldest;
}

static uint32_t count_locked(const struct suspects *s, uint32_t volume, enum suspect_state state)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < SUSPECTS_KNOWN; i++)
		n += s->all[i].state == state && s->all[i].volume == volume;
	return n;
}

static void work_check(struct offload *o)
{
	const struct suspect *q = container_of(o, struct suspect, offload);

	replica_suspect(q->bp, &q->block);
}

static void done_check(struct offload *o)
{
	struct suspect *q = container_of(o, struct suspect, offload);
	struct suspects *s = q->s;

	pthread_mutex_lock(&s->lock);
	q->state = SUSPECT_WAS_CHECKED;
	q->checked_ns = clock_mono_ns();
	go_on_locked(s, q->core);
	q->core->op_count--;
	pthread_mutex_unlock(&s->lock);
}

static void on_timer(struct rtimer *t)
{
	struct suspects *s = container_of(t, struct suspects, timer);
	struct engine_core *core;

	pthread_mutex_lock(&s->lock);
	core = s->core;
	s->core = NULL;
	go_on_locked(s, core);
	core->op_count--;
	pthread_mutex_unlock(&s->lock);
}

static void check_locked(struct suspects *s, struct suspect *q, struct engine_core *core,
			 uint64_t now_ns)
{
	const uint64_t cost = q->block.len > SUSPECT_COST_MIN ? q->block.len : SUSPECT_COST_MIN;

	q->state = SUSPECT_IS_CHECKED;
	q->s = s;
	q->core = core;
	core->op_count++;
	s->free_ns = now_ns + (uint64_t)((double)cost / SUSPECT_RATE * (double)NS_PER_S);
	q->offload = (struct offload){.work = work_check, .done = done_check};
	engine_offload(core, q->volume, &q->offload);
}

/* One that waits, of a volume that checks none. */
static struct suspect *next_locked(struct suspects *s)
{
	for (uint32_t i = 0; i < SUSPECTS_KNOWN && !s->stopped; i++) {
		struct suspect *q = &s->all[i];

		if (q->state != SUSPECT_WAITS)
			continue;
		q->volume = replica_volume(q->bp, q->block.id); /* it may have moved */
		if (!count_locked(s, q->volume, SUSPECT_IS_CHECKED))
			return q;
	}
	return NULL;
}

/* The next checks, or the timer for them. On the reactor of @core. */
static void go_on_locked(struct suspects *s, struct engine_core *core)
{
	struct suspect *q;

	while (!s->core && (q = next_locked(s))) {
		const uint64_t now_ns = clock_mono_ns();

		if (now_ns >= s->free_ns) {
			check_locked(s, q, core, now_ns);
			continue;
		}
		s->core = core;
		core->op_count++;
		s->timer.fire = on_timer;
		reactor_timer_set(core->reactor, &s->timer, s->free_ns);
	}
}

bool suspects_add(struct suspects *s, struct engine_core *core, struct block_pool *bp,
		  const struct block *b)
{
	const uint32_t volume = replica_volume(bp, b->id);
	struct suspect *q;
	bool ok;

	pthread_mutex_lock(&s->lock);
	q = find_locked(s, bp, b);
	ok = !q || (q->state == SUSPECT_WAS_CHECKED &&
		    clock_mono_ns() - q->checked_ns >= SUSPECT_AGAIN_NS);
	if (!q)
		q = place_locked(s);
	ok = ok && q && !s->stopped && count_locked(s, volume, SUSPECT_WAITS) < SUSPECTS_MAX;
	if (ok) {
		*q = (struct suspect){
			.bp = bp, .block = *b, .volume = volume, .state = SUSPECT_WAITS};
		go_on_locked(s, core);
	}
	pthread_mutex_unlock(&s->lock);
	return ok;
}

void suspects_stop(struct suspects *s, struct engine_core *core)
{
	pthread_mutex_lock(&s->lock);
	s->stopped = true;
	if (s->core == core) {
		reactor_timer_clear(core->reactor, &s->timer);
		s->core = NULL;
		core->op_count--;
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
