/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/xfer/buffers.h"

#include "common/base/metrics.h"

#define VOLUME_SHARE 2 / 4
#define HOP_SHARE 3 / 8
#define LISTS_SHARE 1 / 32 /* half of the slots for CRCs: see core_pool() */

static uint32_t hash_text(const char *s)
{
	uint32_t h = 2166136261u; /* FNV-1a */

	for (; *s; s++)
		h = (h ^ (uint8_t)*s) * 16777619u;
	return h;
}

/* Of one volume alone there is nothing to keep others from. */
struct pool_budget *buffers_volume(struct xfer_core *core, uint32_t volume)
{
	struct pool_budget *b = &core->by_volume[volume % XFER_BUDGETS];

	b->limit = store_volume_count(core->dn->store) > 1 ? pool_bytes(core->pool) * VOLUME_SHARE : 0;
	return b;
}

struct pool_budget *buffers_hop(struct xfer_core *core, const struct dn_target *to)
{
	const uint64_t key = (uint64_t)hash_text(to->ip) << 32 | to->xfer_port;
	uint32_t idle = XFER_BUDGETS;

	for (uint32_t i = 0; i < XFER_BUDGETS; i++) {
		if (core->hops[i] == key)
			return &core->by_hop[i];
		if (idle == XFER_BUDGETS && !core->by_hop[i].used && list_empty(&core->by_hop[i].waiters))
			idle = i;
	}
	if (idle == XFER_BUDGETS) /* so many are stuck: two share one */
		return &core->by_hop[key % XFER_BUDGETS];
	core->hops[idle] = key;
	return &core->by_hop[idle];
}

/* Some that have stalled give back at once, others when they have stalled long enough: look again
 * while somebody waits. */
static void on_reclaim(struct rtimer *t)
{
	struct xfer_core *core = container_of(t, struct xfer_core, reclaim_timer);

	bread_reclaim_all(core);
	if (pool_is_pressed(core->pool))
		reactor_timer_set(core->reactor, t, reactor_now_ns(core->reactor) + BUFFERS_STALL_NS / 2);
}

static void on_pressed(void *arg)
{
	struct xfer_core *core = arg;

	if (!core->reclaim_timer.deadline_ns)
		reactor_timer_set(core->reactor, &core->reclaim_timer, reactor_now_ns(core->reactor) + 1);
}

void buffers_init(struct xfer_core *core)
{
	const uint64_t bytes = pool_bytes(core->pool);

	for (uint32_t i = 0; i < XFER_BUDGETS; i++) {
		disk_turns_init(&core->disks[i]);
		pool_budget_init(&core->by_volume[i], 0);
		pool_budget_init(&core->by_hop[i], bytes * HOP_SHARE);
	}
	pool_budget_init(&core->crc_lists, bytes * LISTS_SHARE);
	core->reclaim_timer.fire = on_reclaim;
	pool_on_pressed(core->pool, on_pressed, core);
}

void buffers_fini(struct xfer_core *core)
{
	reactor_timer_clear(core->reactor, &core->reclaim_timer);
	if (core->pool)
		pool_on_pressed(core->pool, NULL, NULL);
}
