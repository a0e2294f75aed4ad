/* SPDX-License-Identifier: Apache-2.0 */
/* Whose turn it is to be rebuilt, and the buffers for it: all of them or none, so that two who have
 * some never wait for each other. What other nodes' bytes land in is of a pool that those may write
 * to, where RDMA is. */
#include "datanode/reconstruct/reconstruct_internal.h"

#include <stdlib.h>

#include "common/base/metrics.h"
#include "datanode/capsule/capsule_port.h"

#define CHECKSUM_SHARE 4 /* this part of the buffers is for checksums */

struct slot *rb_slot_take(struct rb_slots *s)
{
	return s->free ? s->slot[--s->free] : NULL;
}

void rb_slot_give(struct rb_slots *s, struct slot *slot)
{
	if (slot)
		s->slot[s->free++] = slot;
}

/* ---- how many ---- */

/* Ordered by a client, who names the sources: such ones have a share of their own, so that slow
 * sources hold up no reconstruction that the NameNode ordered. */
static bool is_checksum(const struct reconstruct *rb)
{
	return rb->params.taker;
}

static uint32_t of_main_pool(const struct reconstruct *rb)
{
	return rb->to.count + (rb->landing ? 0 : rb->from.count);
}

static void ask_init(struct reconstruct *rb);

bool rb_slots_plan(struct reconstruct *rb)
{
	rb->from.count = (rb->needed + 2) * SOURCE_SLOTS;
	rb->landing = !is_checksum(rb) && capsule_landing(rb->core) &&
		      rb->from.count <= rb->core->landing_slots_max;
	if (rb->landing)
		rb->from_crcs.count = rb->from.count;
	for (uint32_t i = 0; i < rb->params.target_count; i++)
		if (!rb->params.targets[i].own)
			rb->to.count += RB_TARGET_PIECES;
	rb->to_crcs.count = rb->to.count;
	ask_init(rb);
	return pool_fits(rb->core->pool, &rb->ask.form[0], POOL_REBUILD);
}

static int list_new(struct rb_slots *s)
{
	s->slot = calloc(s->count + 1, sizeof(struct slot *));
	return s->slot ? 0 : -ENOMEM;
}

int rb_slots_new(struct reconstruct *rb)
{
	int rc = list_new(&rb->from);

	rc = rc ?: list_new(&rb->from_crcs);
	rc = rc ?: list_new(&rb->to);
	rc = rc ?: list_new(&rb->to_crcs);
	rb->set = rc ? NULL : calloc(of_main_pool(rb) + rb->to_crcs.count + 1, sizeof(*rb->set));
	return rc ?: rb->set ? 0 : -ENOMEM;
}

void rb_slots_free(struct reconstruct *rb)
{
	free(rb->from.slot);
	free(rb->from_crcs.slot);
	free(rb->to.slot);
	free(rb->to_crcs.slot);
	free(rb->set);
}

/* ---- getting them ---- */

/* rb_admit() has counted those of the landing pool, and nobody else takes any. False: a device has
 * not let go yet of one that another had; what is here waits for that. */
static bool take_landing(struct rb_slots *s, struct pool *pool, enum slot_class cls)
{
	while (s->had < s->count) {
		struct slot *slot = pool_get(pool, cls, POOL_CTRL);

		if (!slot)
			return false;
		s->slot[s->had++] = slot;
	}
	s->free = s->had;
	return true;
}

static struct slot **deal(struct rb_slots *s, struct slot **from)
{
	while (s->had < s->count)
		s->slot[s->had++] = *from++;
	s->free = s->had;
	return from;
}

static void on_granted(struct pool_ask *a)
{
	struct reconstruct *rb = container_of(a, struct reconstruct, ask);

	rb->granted = true;
	if (rb->state == RB_WAIT_BUFFERS)
		rb->state = RB_SLOTS;
	rb_ready(rb);
}

static void ask_init(struct reconstruct *rb)
{
	struct pool_set *set = &rb->ask.form[0];

	rb->ask.use = POOL_REBUILD;
	rb->ask.forms = 1;
	rb->ask.slots = rb->set;
	rb->ask.granted = on_granted;
	*set = (struct pool_set){.parts = 2};
	set->part[0].cls = SLOT_64K;
	set->part[0].n = (uint16_t)of_main_pool(rb);
	set->part[1].cls = SLOT_CRC;
	set->part[1].n = (uint16_t)rb->to_crcs.count;
}

bool rb_slots_get(struct reconstruct *rb)
{
	struct pool *main = rb->core->pool;
	struct slot **at = rb->set;

	if (rb->landing && (!take_landing(&rb->from, capsule_landing(rb->core), SLOT_256K) ||
			    !take_landing(&rb->from_crcs, capsule_landing(rb->core), SLOT_CRC))) {
		if (!rb->ask.since_ns)
			rb->ask.since_ns = reactor_now_ns(rb->core->reactor);
		return false; /* the tick looks again */
	}
	if (!rb->granted) {
		ask_init(rb);
		rb->granted = pool_take(main, &rb->ask);
	}
	if (!rb->granted) {
		metric_add(METRIC_DN_EC_STALL_BUFFERS, 1);
		rb->state = RB_WAIT_BUFFERS;
		pool_wait(main, &rb->ask);
		return rb->state == RB_SLOTS && rb_slots_get(rb);
	}
	rb->granted = false;
	if (!rb->landing)
		at = deal(&rb->from, at);
	at = deal(&rb->to, at);
	(void)deal(&rb->to_crcs, at);
	return true;
}

static void put_all(struct rb_slots *s)
{
	while (s->had)
		slot_put(s->slot[--s->had]);
}

void rb_slots_put(struct reconstruct *rb)
{
	pool_wait_cancel(rb->core->pool, &rb->ask);
	if (rb->granted)
		for (uint32_t i = 0; i < of_main_pool(rb) + rb->to_crcs.count; i++)
			slot_put(rb->set[i]);
	rb->granted = false;
	put_all(&rb->from);
	put_all(&rb->from_crcs);
	put_all(&rb->to);
	put_all(&rb->to_crcs);
}

/* ---- whose turn it is ---- */

static bool may_run(struct engine_core *core, const struct reconstruct *rb)
{
	const uint64_t threads = core->dn->live.ec_threads;
	const uint32_t reactors = core->dn->reactor_count;
	/* data_port_rebuild() takes the first so many */
	const uint64_t used = threads < reactors ? threads : reactors;

	const bool sum = is_checksum(rb);

	if (!core->rebuilds_running[sum])
		return true;
	return core->rebuilds_running[sum] < threads / used &&
	       core->reconstruct_slots[sum] + of_main_pool(rb) <=
		       core->reconstruct_slots_max / (sum ? CHECKSUM_SHARE : 1) &&
	       (!rb->landing || core->landing_slots + rb->from.count <= core->landing_slots_max);
}

void rb_admit(struct engine_core *core)
{
	bool full[2] = {false, false}; /* whoever comes behind one that must wait waits, too */

	list_for_each (l, &core->rebuilds_waiting) {
		struct reconstruct *rb = container_of(l, struct reconstruct, queue_link);
		const bool sum = is_checksum(rb);

		full[sum] = full[sum] || !may_run(core, rb);
		if (full[sum])
			continue;
		list_del(&rb->queue_link);
		core->rebuilds_queued--;
		core->rebuilds_running[sum]++;
		core->reconstruct_slots[sum] += of_main_pool(rb);
		core->landing_slots += rb->landing ? rb->from.count : 0;
		rb->admitted = true;
		rb->state = RB_SLOTS;
		rb_ready(rb);
	}
}

void rb_dismiss(struct reconstruct *rb)
{
	struct engine_core *core = rb->core;

	if (rb->admitted) {
		core->rebuilds_running[is_checksum(rb)]--;
		core->reconstruct_slots[is_checksum(rb)] -= of_main_pool(rb);
		core->landing_slots -= rb->landing ? rb->from.count : 0;
	} else {
		list_del(&rb->queue_link);
		core->rebuilds_queued--;
	}
}
