/* SPDX-License-Identifier: Apache-2.0 */
/* What only blocks under construction have: where their pipeline writes, and where it
 * wrote before a node was lost (blocks.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/blocks/blocks_internal.h"

void blk_open_new(struct blk *b)
{
	b->open = xcalloc(1, sizeof(*b->open));
	b->open->blk = b;
	b->open->truncate_to = NO_TRUNCATE;
	list_init(&b->open->recovering);
}

void blk_free_open(struct blk *b)
{
	if (!b->open)
		return;
	list_del(&b->open->recovering);
	free(b->open->target);
	free(b->open->lost);
	free(b->open);
	b->open = NULL;
}

/* ---- targets ---- */

uint8_t blk_target_unit(const struct blk *b, uint32_t i)
{
	return blk_ec(b) ? b->open->target_unit[i] : 0;
}

/* Which of the targets; ntargets: none. */
static uint32_t find_target(const struct blk *b, const struct dn *dn, uint8_t unit)
{
	const struct blk_open *o = b->open;
	uint32_t i = 0;

	while (i < o->ntargets && (o->target[i]->dn != dn || blk_target_unit(b, i) != unit))
		i++;
	return i;
}

static void drop_target(struct blk_open *o, uint32_t i)
{
	const uint32_t behind = o->ntargets - i - 1;

	blk_add_lost(o->blk, o->target[i], blk_target_unit(o->blk, i));
	o->steady -= i < o->steady;
	memmove(&o->target[i], &o->target[i + 1], behind * sizeof(o->target[0]));
	if (blk_ec(o->blk))
		memmove(&o->target_unit[i], &o->target_unit[i + 1], behind);
	o->ntargets--;
}

/* A node may have taken another disk than the one named to it, which it is still called by. One
 * that failed meanwhile is lost. */
static void find_disks(struct blk *b)
{
	struct blk_open *o = b->open;

	for (uint32_t i = 0; i < o->ntargets;) {
		const struct replica *r =
			blk_find_on_node(b, o->target[i]->dn, blk_target_unit(b, i));

		if (r)
			o->target[i] = r->st;
		if (o->target[i]->failed)
			drop_target(o, i);
		else
			i++;
	}
}

void blk_set_targets(struct blk *b, struct storage *const *st, const uint8_t *units, uint32_t n)
{
	if (blk_ec(b) && n > EC_UNITS_MAX)
		n = EC_UNITS_MAX;
	if (!b->open)
		blk_open_new(b);
	b->open->target = xrealloc(b->open->target, (n ? n : 1) * sizeof(struct storage *));
	if (n)
		memcpy(b->open->target, st, n * sizeof(struct storage *));
	b->open->ntargets = b->open->steady = n;
	b->open->nlost = b->open->ngone = 0;
	b->open->since_ns = clock_mono_ns();
	for (uint32_t i = 0; blk_ec(b) && i < n; i++)
		b->open->target_unit[i] = units ? units[i] : (uint8_t)i;
	find_disks(b);
}

/* One more, if it is none yet. False: a group has no room for it. */
static bool add_target(struct blk *b, struct storage *st, uint8_t unit)
{
	struct blk_open *o = b->open;

	if (find_target(b, st->dn, unit) < o->ntargets)
		return true;
	if (blk_ec(b) && o->ntargets == EC_UNITS_MAX)
		return false;
	if (blk_ec(b))
		o->target_unit[o->ntargets] = unit;
	o->target = xrealloc(o->target, (o->ntargets + 1) * sizeof(struct storage *));
	o->target[o->ntargets++] = st;
	return true;
}

void blk_target_replicas(struct blk *b)
{
	struct storage **st = xcalloc(b->nreps + 1u, sizeof(struct storage *));
	uint32_t n = 0;

	for (uint16_t i = 0; i < b->nreps; i++)
		if (!b->rep[i].corrupt && !b->rep[i].excess)
			st[n++] = b->rep[i].st;
	blk_set_targets(b, st, NULL, n);
	b->open->pipeline = n;
	free(st);
}

void blk_retarget(struct blk *b, const struct replica *r)
{
	const struct blk_open *o = b->open;
	uint32_t i;

	if (b->state != BLK_OPEN || !o || !o->ntargets || r->state > REPLICA_RBW ||
	    r->gs != b->b.gs || r->corrupt)
		return;
	i = find_target(b, r->st->dn, r->unit);
	if (i < o->ntargets)
		o->target[i] = r->st; /* the node may have taken another disk than the one named */
	else if (r->state == REPLICA_FINALIZED)
		(void)add_target(b, r->st, r->unit);
}

/* ---- nodes that were lost ---- */

/* May it have bytes that nobody else has? */
static bool is_missed(const struct blk *b, const struct replica *r)
{
	return r->gs >= b->b.gs && !r->excess;
}

/* Does it have bytes that recovery may need? One with a newer stamp counts as corrupt once the
 * block is committed, but an earlier recovery has made it whose end never came here. */
static bool is_usable(const struct blk *b, const struct replica *r)
{
	return !r->damaged && (r->corrupt ? r->gs > b->b.gs : r->gs >= b->b.gs);
}

static bool is_same(const struct blk_lost *l, const char *node, uint8_t unit)
{
	return l->unit == unit && !strcmp(l->node, node);
}

void blk_add_away(struct blk *b, const char *node, const char *storage, uint8_t unit)
{
	struct blk_open *o = b->open;
	uint32_t i = 0;

	while (i < o->nlost && !is_same(&o->lost[i], node, unit))
		i++;
	if (i == o->nlost)
		o->lost = xrealloc(o->lost, ++o->nlost * sizeof(*o->lost));
	o->lost[i].unit = unit;
	snprintf(o->lost[i].node, sizeof(o->lost[i].node), "%s", node);
	snprintf(o->lost[i].storage, sizeof(o->lost[i].storage), "%s", storage);
}

void blk_add_lost(struct blk *b, const struct storage *st, uint8_t unit)
{
	blk_add_away(b, st->dn->uuid, st->id, unit);
}

static struct storage *find_back(const struct datanodes *d, const struct blk_lost *l)
{
	const struct dn *dn = datanodes_find(d, l->node);
	struct storage *st = dn ? dn_storage(dn, l->storage) : NULL;

	return st && storage_is_there(st) && st->reported ? st : NULL;
}

/* Its node has been there without that disk for as long as a silent node takes to be dead, and
 * misses none: the disk was replaced. One that is out of service may come back. */
static bool is_gone(const struct datanodes *d, const struct blk_lost *l)
{
	const struct dn *dn = datanodes_find(d, l->node);
	const struct storage *st = dn ? dn_storage(dn, l->storage) : NULL;
	uint64_t since;

	if (!dn || !dn->alive || !dn_has_reported(dn) || dn->failed_volumes || (st && !st->failed))
		return false;
	since = st && st->failed_ns > dn->registered_ns ? st->failed_ns : dn->registered_ns;
	return clock_mono_ns() - since > d->dead_after_ns;
}

/* By another disk of its node. */
static bool is_target(const struct blk *b, const struct blk_lost *l)
{
	for (uint32_t i = 0; i < b->open->ntargets; i++)
		if (is_same(l, b->open->target[i]->dn->uuid, blk_target_unit(b, i)))
			return true;
	return false;
}

static void target_lost(struct blk *b, const struct datanodes *d)
{
	struct blk_open *o = b->open;

	for (uint32_t i = 0; i < o->nlost;) {
		struct storage *st = find_back(d, &o->lost[i]);
		const bool gone = is_gone(d, &o->lost[i]);

		if (gone && is_target(b, &o->lost[i]))
			o->steady = 0; /* its word is not that of one that has all its disks */
		/* one that its pipeline did not have may have reported it and be lost */
		o->ngone += gone && !is_target(b, &o->lost[i]) &&
			    o->ntargets + o->nlost + o->ngone <= o->pipeline;
		if (gone || (st && add_target(b, st, o->lost[i].unit)))
			o->lost[i] = o->lost[--o->nlost];
		else
			i++;
	}
}

bool blk_targets_missing(const struct blk_open *o)
{
	return o->nlost || o->ntargets + o->ngone < o->pipeline;
}

void blk_target_all(struct blk *b, const struct datanodes *d)
{
	const struct blk_open *o = b->open;
	const uint32_t enough = blk_ec(b) ? blk_ec(b)->k : 1u;
	bool too_few;

	target_lost(b, d);
	for (uint16_t i = 0; i < b->nreps; i++)
		if (is_usable(b, &b->rep[i]))
			(void)add_target(b, b->rep[i].st, b->rep[i].unit);
	/* Those with wrong bytes are better than none: the file would be open for ever. */
	too_few = o->ntargets + o->nlost < enough;
	for (uint16_t i = 0; too_few && i < b->nreps; i++)
		if (b->rep[i].damaged && is_missed(b, &b->rep[i]))
			(void)add_target(b, b->rep[i].st, b->rep[i].unit);
}

static bool has_lost(const struct blk_open *o, const struct dn *dn)
{
	for (uint32_t i = 0; i < o->nlost; i++)
		if (!strcmp(o->lost[i].node, dn->uuid))
			return true;
	return false;
}

/* It runs without a break since the pipeline was given, and so do its disks. */
static bool has_steady_target(const struct blk_open *o)
{
	for (uint32_t i = 0; i < o->steady; i++) {
		const struct dn *dn = o->target[i]->dn;

		if (dn->registered_ns < o->since_ns && !has_lost(o, dn))
			return true;
	}
	return false;
}

/* A node of the pipeline that has run all the time acknowledged every byte: if it has no replica,
 * nothing was acknowledged. One that was started anew may have lost it, by a power cut, and so may
 * one that lost a disk: then each is asked. The primary of a group has counted the units that were
 * not asked. */
bool blk_may_be_elsewhere(const struct blk *b)
{
	const struct blk_open *o = b->open;

	return !blk_ec(b) && blk_targets_missing(o) && !has_steady_target(o);
}

void blk_lose_replica(struct blk *b, const struct replica *r)
{
	if (b->open && (is_usable(b, r) || is_missed(b, r)))
		blk_add_lost(b, r->st, r->unit);
}

void blk_forget_targets(struct blk *b)
{
	struct blk_open *o = b->open;

	for (uint32_t i = 0; i < o->ntargets;)
		if (o->target[i]->sweep & SWEEP_FORGET)
			drop_target(o, i);
		else
			i++;
}
