/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/block/buffers.h"

#include "common/base/metrics.h"

#define VOLUME_EIGHTHS 4
#define CONN_EIGHTHS 4
#define HOP_EIGHTHS 3
#define TRANSFERS_EIGHTHS 2
#define COPIES_EIGHTHS 1
/* of the slots for CRCs; the floors of all uses are less than half of them */
#define LISTS_PART 4
#define LONG_LISTS_PART 32 /* of all bytes */

static uint32_t hash_text(const char *s)
{
	uint32_t h = 2166136261u; /* FNV-1a */

	for (; *s; s++)
		h = (h ^ (uint8_t)*s) * 16777619u;
	return h;
}

/* Half of the bytes in large slots for streams, the rest for many small ones, and for CRCs. */
struct pool_opts buffers_pool(uint64_t bytes, uint32_t receive_slots)
{
	return (struct pool_opts){
		.count = {[SLOT_1M] = (uint32_t)(bytes / 2 >> 20),
			  [SLOT_256K] = (uint32_t)(bytes / 8 >> 18),
			  [SLOT_64K] = (uint32_t)(bytes / 4 >> 16),
			  [SLOT_8K] = (uint32_t)(bytes / 16 >> 13) + receive_slots,
			  [SLOT_CRC] = (uint32_t)(bytes / 16 >> 13)},
		.fixed = {[SLOT_8K] = receive_slots},
		.huge_pages = true,
	};
}

static void share_limit(const struct engine_core *core, struct buffers_share *s, uint32_t eighths)
{
	s->slots.limit = pool_bytes(core->pool) * eighths / 8;
	s->lists.limit = core->lists.limit * eighths / 8;
}

static void share_init(const struct engine_core *core, struct buffers_share *s, uint32_t eighths)
{
	pool_budget_init(&s->slots, 0);
	pool_budget_init(&s->lists, 0);
	share_limit(core, s, eighths);
}

void buffers_conn_init(const struct engine_core *core, struct buffers_share *s)
{
	share_init(core, s, CONN_EIGHTHS);
}

/* Of one volume alone there is nothing to keep others from. */
struct buffers_share *buffers_volume(struct engine_core *core, uint32_t volume)
{
	struct buffers_share *s = &core->by_volume[volume % XFER_BUDGETS];

	share_limit(core, s, store_volume_count(core->dn->store) > 1 ? VOLUME_EIGHTHS : 0);
	return s;
}

static bool share_is_idle(const struct buffers_share *s)
{
	return !s->slots.used && !s->lists.used && list_empty(&s->slots.waiters) &&
	       list_empty(&s->lists.waiters);
}

struct buffers_share *buffers_hop(struct engine_core *core, const struct dn_target *to)
{
	const uint64_t key = (uint64_t)hash_text(to->ip) << 32 | to->xfer_port;
	uint32_t idle = XFER_BUDGETS;

	for (uint32_t i = 0; i < XFER_BUDGETS; i++) {
		if (core->hops[i] == key)
			return &core->by_hop[i];
		if (idle == XFER_BUDGETS && share_is_idle(&core->by_hop[i]))
			idle = i;
	}
	if (idle == XFER_BUDGETS) /* so many are stuck: two share one */
		return &core->by_hop[key % XFER_BUDGETS];
	core->hops[idle] = key;
	return &core->by_hop[idle];
}

/* The total comes last: who waits for its share does not stand before others in the line for the
 * total. */
void buffers_for_list(struct engine_core *core, enum slot_class cls,
		      struct buffers_share *const shares[BUFFERS_SHARES],
		      struct pool_budget *ret[POOL_BUDGETS])
{
	for (int i = 0; i < BUFFERS_SHARES; i++)
		ret[i] = !shares[i]        ? NULL
			 : cls == SLOT_CRC ? &shares[i]->lists
					   : &shares[i]->slots;
	ret[BUFFERS_SHARES] = cls == SLOT_CRC ? &core->lists : &core->long_lists;
}

bool buffers_are_wanted(const struct engine_core *core, struct buffers_share *const *shares, int n)
{
	for (int i = 0; i < n; i++)
		if (shares[i] && (!list_empty(&shares[i]->slots.waiters) ||
				  !list_empty(&shares[i]->lists.waiters)))
			return true;
	return pool_lacks_slots(core->pool);
}

/* Some that have stalled give back at once, others when they have stalled long enough: look again
 * while somebody waits. */
static void on_reclaim(struct rtimer *t)
{
	struct engine_core *core = container_of(t, struct engine_core, reclaim_timer);

	block_read_reclaim_all(core);
	block_write_reclaim_all(core);
	if (pool_is_pressed(core->pool))
		reactor_timer_set(core->reactor, t,
				  reactor_now_ns(core->reactor) + BUFFERS_STALL_NS / 2);
}

static void on_pressed(void *arg)
{
	struct engine_core *core = arg;

	if (!core->reclaim_timer.deadline_ns)
		reactor_timer_set(core->reactor, &core->reclaim_timer,
				  reactor_now_ns(core->reactor) + 1);
}

void buffers_init(struct engine_core *core)
{
	pool_budget_init(&core->lists,
			 (uint64_t)pool_count(core->pool, SLOT_CRC) / LISTS_PART * SLOT_CRC_SIZE);
	pool_budget_init(&core->long_lists, pool_bytes(core->pool) / LONG_LISTS_PART);
	for (uint32_t i = 0; i < XFER_BUDGETS; i++) {
		disk_turns_init(&core->disks[i]);
		disk_workers_init(&core->workers[i], DISK_WORKERS);
		disk_workers_init(&core->disk_reads[i], DISK_READS);
		disk_workers_init(&core->disk_syncs[i], DISK_SYNCS);
		share_init(core, &core->by_volume[i], 0);
		share_init(core, &core->by_hop[i], HOP_EIGHTHS);
	}
	share_init(core, &core->transfers, TRANSFERS_EIGHTHS);
	share_init(core, &core->copies, COPIES_EIGHTHS);
	core->reclaim_timer.fire = on_reclaim;
	pool_on_pressed(core->pool, on_pressed, core);
}

void buffers_fini(struct engine_core *core)
{
	reactor_timer_clear(core->reactor, &core->reclaim_timer);
	if (core->pool)
		pool_on_pressed(core->pool, NULL, NULL);
}
