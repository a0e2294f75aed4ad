/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/store/replica_map.h"

#include <assert.h>
#include <stdlib.h>

#define RUN 16          /* ids in a row, in as many slots in a row */
#define FIRST_SLOTS 256 /* of a part */

static uint64_t hash(int64_t id)
{
	return ((uint64_t)id / RUN) * 0x9e3779b97f4a7c15ull;
}

static struct replica_map_part *part_of(const struct replica_map *m, int64_t id)
{
	return (struct replica_map_part *)&m->part[hash(id) >> 58];
}
_Static_assert(REPLICA_MAP_PARTS == 1 << (64 - 58), "the upper bits of the product choose a part");

/* Where it stands, or as near behind it as there was room. */
static uint32_t home(const struct replica_map_part *p, int64_t id)
{
	return ((uint32_t)(hash(id) >> 26) * RUN + (uint32_t)((uint64_t)id % RUN)) & p->mask;
}

/* Its slot, or the free one that ends the search. */
static struct replica_map_slot *slot_of(const struct replica_map_part *p, int64_t id)
{
	uint32_t i = home(p, id);

	while (p->slots[i].replica && p->slots[i].id != id)
		i = (i + 1) & p->mask;
	return &p->slots[i];
}

struct replica *replica_map_find(const struct replica_map *m, int64_t id)
{
	const struct replica_map_part *p = part_of(m, id);

	return p->slots ? slot_of(p, id)->replica : NULL;
}

/* To @n slots, more than it has entries. */
static bool resize(struct replica_map_part *p, uint32_t n)
{
	struct replica_map_part was = *p;

	p->slots = calloc(n, sizeof(*p->slots));
	if (!p->slots) {
		*p = was;
		return false;
	}
	p->mask = n - 1;
	for (uint32_t i = 0; was.slots && i <= was.mask; i++)
		if (was.slots[i].replica)
			*slot_of(p, was.slots[i].id) = was.slots[i];
	free(was.slots);
	return true;
}

void replica_map_add(struct replica_map *m, int64_t id, struct replica *r)
{
	struct replica_map_part *p = part_of(m, id);
	const uint32_t n = p->slots ? p->mask + 1 : 0;

	/* Half of the slots are free; when memory is short, one. */
	if (p->count >= n / 2 && !resize(p, n ? n * 2 : FIRST_SLOTS) && p->count + 1 >= n)
		abort();
	assert(!slot_of(p, id)->replica);
	*slot_of(p, id) = (struct replica_map_slot){id, r};
	p->count++;
}

/* What stands behind it moves up, unless it would come before its home. */
void replica_map_remove(struct replica_map *m, int64_t id)
{
	struct replica_map_part *p = part_of(m, id);
	struct replica_map_slot *s = slot_of(p, id);
	uint32_t hole = (uint32_t)(s - p->slots);

	assert(s->replica);
	for (uint32_t i = (hole + 1) & p->mask; p->slots[i].replica; i = (i + 1) & p->mask) {
		const uint32_t from_home = (i - home(p, p->slots[i].id)) & p->mask;

		if (from_home < ((i - hole) & p->mask))
			continue;
		p->slots[hole] = p->slots[i];
		hole = i;
	}
	p->slots[hole].replica = NULL;
	p->count--;
}

void replica_map_drain(struct replica_map *m, void (*fn)(struct replica *r))
{
	for (uint32_t k = 0; k < REPLICA_MAP_PARTS; k++) {
		struct replica_map_part *p = &m->part[k];

		for (uint32_t i = 0; p->slots && i <= p->mask; i++)
			if (p->slots[i].replica)
				fn(p->slots[i].replica);
		free(p->slots);
		*p = (struct replica_map_part){0};
	}
}
