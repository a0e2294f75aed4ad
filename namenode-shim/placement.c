/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/placement.h"

#include <stdlib.h>
#include <string.h>

#include "namenode-shim/arena.h"
#include "namenode-shim/datanodes.h"

static uint64_t room(const struct storage *st)
{
	return st->failed || st->promised > st->remaining ? 0 : st->remaining - st->promised;
}

/* A storage of @dn with room, by chance in proportion to its room. */
static struct storage *pick_storage(struct datanodes *d, const struct dn *dn, uint64_t need)
{
	uint64_t total = 0, r;

	for (uint32_t i = 0; i < dn->nstorages; i++)
		total += room(dn->storage[i]) >= need ? room(dn->storage[i]) / 4096 + 1 : 0;
	if (!total)
		return NULL;
	r = rng_next(&d->rng) % total;
	for (uint32_t i = 0; i < dn->nstorages; i++) {
		const uint64_t w =
			room(dn->storage[i]) >= need ? room(dn->storage[i]) / 4096 + 1 : 0;

		if (r < w)
			return dn->storage[i];
		r -= w;
	}
	return NULL;
}

static bool has_room(const struct dn *dn, uint64_t need)
{
	for (uint32_t i = 0; i < dn->nstorages; i++)
		if (room(dn->storage[i]) >= need)
			return true;
	return false;
}

static bool excluded(const struct place *p, const struct dn *dn)
{
	for (uint32_t i = 0; i < p->nexclude; i++)
		if (p->exclude[i] == dn)
			return true;
	return false;
}

static uint64_t load(const struct dn *dn)
{
	uint64_t promised = 0;

	for (uint32_t i = 0; i < dn->nstorages; i++)
		promised += dn->storage[i]->promised;
	return promised >> 20 | (uint64_t)dn->xceivers << 4;
}

/* The less busy of two random candidates from cand[0..n). */
static uint32_t pick_index(struct datanodes *d, struct dn *const *cand, uint32_t n)
{
	const uint32_t a = (uint32_t)(rng_next(&d->rng) % n), b = (uint32_t)(rng_next(&d->rng) % n);

	return load(cand[a]) <= load(cand[b]) ? a : b;
}

static uint32_t pick_local(struct datanodes *d, const struct place *p, struct dn *const *cand,
			   uint32_t n)
{
	uint32_t local = 0, nth;

	for (uint32_t i = 0; p->writer_ip && i < n; i++)
		local += !strcmp(cand[i]->ip, p->writer_ip);
	if (!local)
		return pick_index(d, cand, n);
	nth = (uint32_t)(rng_next(&d->rng) % local);
	for (uint32_t i = 0; i < n; i++)
		if (!strcmp(cand[i]->ip, p->writer_ip) && !nth--)
			return i;
	return 0;
}

uint32_t place_choose(struct datanodes *d, const struct place *p, struct storage **ret)
{
	struct dn **cand = xcalloc(HASH_COUNT(d->table) + 1, sizeof(struct dn *));
	uint32_t n = 0, got = 0;

	for (struct dn *dn = d->table; dn; dn = dn->hh.next)
		if (dn->alive && !excluded(p, dn) && has_room(dn, p->block_size))
			cand[n++] = dn;
	while (got < p->want && n) {
		const uint32_t i = got ? pick_index(d, cand, n) : pick_local(d, p, cand, n);
		struct storage *st = pick_storage(d, cand[i], p->block_size);

		cand[i] = cand[--n];
		if (!st)
			continue;
		st->promised += p->block_size;
		st->promised_blocks++;
		ret[got++] = st;
	}
	free(cand);
	return got;
}
