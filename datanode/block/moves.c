/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/block/moves.h"

#include "common/base/clock.h"

#define STEPS_PER_S 64 /* a second's bandwidth in so many charges, at least MOVES_STEP each */

static bool enter(atomic_uint *count, uint64_t max)
{
	if (atomic_fetch_add(count, 1) < max)
		return true;
	atomic_fetch_sub(count, 1);
	return false;
}

bool moves_enter(struct moves *m, const struct live_settings *live)
{
	return enter(&m->running, live->max_moves);
}

void moves_leave(struct moves *m)
{
	atomic_fetch_sub(&m->running, 1);
}

bool moves_local_enter(struct moves *m, const struct replica_way *way)
{
	return enter(&m->local[way->from][way->to], MOVES_LOCAL_MAX);
}

void moves_local_leave(struct moves *m, const struct replica_way *way)
{
	atomic_fetch_sub(&m->local[way->from][way->to], 1);
}

uint32_t moves_step(const struct live_settings *live, uint32_t want)
{
	uint64_t step = live->balance_bandwidth / STEPS_PER_S;

	if (step < MOVES_STEP)
		step = MOVES_STEP;
	return want < step ? want : (uint32_t)step;
}

uint64_t pace_charge(atomic_uint_fast64_t *free_ns, uint64_t bandwidth, uint64_t bytes,
		     uint64_t now_ns)
{
	const uint64_t cost =
		bandwidth ? (uint64_t)((double)bytes * (double)NS_PER_S / (double)bandwidth) : 0;
	uint64_t before = atomic_load(free_ns), start;

	if (!bandwidth)
		return now_ns;
	do
		start = before > now_ns ? before : now_ns;
	while (!atomic_compare_exchange_weak(free_ns, &before, start + cost));
	return start;
}

uint64_t moves_charge(struct moves *m, const struct live_settings *live, uint64_t bytes,
		      uint64_t now_ns)
{
	const uint64_t bandwidth = live->balance_bandwidth;

	return pace_charge(&m->free_ns, bandwidth ? bandwidth : 1, bytes, now_ns);
}
