/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/blocks/ec_reconstruct.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "erasurecoding.pb-c.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/blocks/blocks.h"
#include "namenode-shim/blocks/datanodes.h"
#include "namenode-shim/blocks/located_block.h"
#include "namenode-shim/blocks/placement.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"

/* ---- ordering ---- */

/* Up to @want nodes that have nothing of @b, nor are to get any. @rack_most: in racks with fewer
 * units than that, or none at all; 0: in those with the fewest, if that can be. */
static uint32_t find_targets(struct nn *nn, const struct blk *b,
			     const struct storage_policy *policy, uint32_t want, uint32_t rack_most,
			     struct storage **ret)
{
	struct place p = {.want = want,
			  .spread = true,
			  .block_size = blk_unit_len(b, b->b.len, 0),
			  .copy = true,
			  .rack_most = rack_most,
			  .other_rack = rack_most,
			  .policy = policy};
	uint32_t n;

	place_beside(&p, b);
	n = place_choose(&nn->dns, &p, ret);
	place_free(&p);
	return n;
}

/* A node whose unit is rather read. */
static bool is_better(const struct dn *a, const struct dn *b)
{
	if (a->stale != b->stale)
		return b->stale;
	return a->admin == DN_NORMAL;
}

/* A good replica of @unit, rather on a node that is heard, and that stays. */
static const struct replica *find_source(const struct blk *b, unsigned unit)
{
	const struct replica *best = NULL;

	for (uint16_t i = 0; i < b->nreps; i++) {
		const struct replica *r = &b->rep[i];

		if (r->unit == unit && r->state == REPLICA_FINALIZED && !r->corrupt && !r->excess &&
		    storage_is_there(r->st) && (!best || is_better(r->st->dn, best->st->dn)))
			best = r;
	}
	return best;
}

/* Units of @set in their order: data first, of which there is less to decode. */
static void add_sources(const struct blk *b, uint32_t set, struct rebuild *r)
{
	for (unsigned unit = 0; unit < b->repl; unit++) {
		const struct replica *rep = set & GROUP_UNIT(unit) ? find_source(b, unit) : NULL;

		if (!rep)
			continue;
		r->source_unit[r->nsources] = (uint8_t)unit;
		r->source[r->nsources++] = rep->st->dn;
	}
}

static bool order_decode(struct nn *nn, struct blk *b, const struct storage_policy *policy,
			 uint32_t lost, uint64_t now)
{
	const uint32_t readable = group_readable(b);
	struct rebuild r = {.b = b->b, .skip = group_away(b) & ~readable};

	r.ntargets = find_targets(nn, b, policy, (uint32_t)__builtin_popcount(lost), 0, r.target);
	if (!r.ntargets)
		return false;
	if (list_length(&r.target[0]->dn->rebuilds) >= work_rebuilds(&nn->set.work) * 2) {
		for (uint32_t i = 0; i < r.ntargets; i++)
			storage_unpromise(r.target[i], blk_unit_len(b, b->b.len, 0), now);
		return true; /* later: it is busy */
	}
	add_sources(b, readable, &r);
	log_info("op=rebuild group=%lld lost=%x sources=%u targets=%u by=%s", (long long)b->b.id,
		 lost, r.nsources, r.ntargets, r.target[0]->dn->uuid);
	for (uint32_t i = 0; i < r.ntargets; i++)
		blk_add_pending(&nn->blocks, b, r.target[i], now + nn->blocks.pending_timeout_ns);
	dn_order_rebuild(r.target[0]->dn, &r);
	return true;
}

/* A unit that is only where it cannot stay. */
static bool order_move(struct nn *nn, struct blk *b, const struct storage_policy *policy,
		       const struct replica *rep, uint64_t now)
{
	const struct block unit = {blk_replica_id(b, rep), b->b.gs,
				   blk_unit_len(b, b->b.len, rep->unit)};
	struct dn *src = rep->st->dn;
	struct storage *target;

	if (list_length(&src->transfers) >= nn->set.work.streams * 2)
		return true;
	if (!find_targets(nn, b, policy, 1, 0, &target))
		return false;
	log_info("op=copy block=%lld from=%s to=%s", (long long)unit.id, src->uuid,
		 target->dn->uuid);
	dn_order_transfer(src, &unit, target);
	blk_add_pending(&nn->blocks, b, target, now + nn->blocks.pending_timeout_ns);
	return true;
}

static bool order_moves(struct nn *nn, struct blk *b, const struct storage_policy *policy,
			uint32_t leaving, uint64_t now)
{
	bool found = true;

	for (uint16_t i = 0; i < b->nreps && found; i++) {
		const struct replica *rep = &b->rep[i];

		if (!(leaving & GROUP_UNIT(rep->unit)) || rep->state != REPLICA_FINALIZED ||
		    rep->corrupt || rep->excess || !storage_is_there(rep->st))
			continue;
		leaving &= ~GROUP_UNIT(rep->unit);
		found = order_move(nn, b, policy, rep, now);
	}
	return found;
}

/* A unit of the fullest rack, whose node is heard and not busy copying; NULL: there is none. */
static const struct replica *pick_leaving(const struct nn *nn, const struct blk *b,
					  const struct group_racks *racks, uint8_t fullest)
{
	for (unsigned unit = 0; unit < b->repl; unit++) {
		const struct replica *r =
			racks->with[unit] == fullest ? find_source(b, unit) : NULL;

		if (r && !r->st->dn->stale &&
		    list_length(&r->st->dn->transfers) < nn->set.work.streams * 2)
			return r;
	}
	return NULL;
}

/* A unit of the fullest rack goes to a rack without any while the units stand in too few racks,
 * else to one that has fewer afterwards than the fullest one has now. */
static void order_spread(struct nn *nn, struct blk *b, const struct storage_policy *policy,
			 uint64_t now)
{
	const struct unit_racks *u = &nn->blocks.unit_racks;
	const struct replica *rep;
	struct group_racks racks;
	struct storage *target;
	struct block unit;
	uint8_t with = 0;

	group_racks(b, &racks);
	for (unsigned i = 0; i < b->repl; i++)
		with = racks.with[i] > with ? racks.with[i] : with;
	rep = with > 1 ? pick_leaving(nn, b, &racks, with) : NULL;
	if (!rep)
		return;
	if (!(racks.racks < u->racks && find_targets(nn, b, policy, 1, 1, &target)) &&
	    !(with > 2 && find_targets(nn, b, policy, 1, with - 1u, &target)))
		return;
	unit = (struct block){blk_replica_id(b, rep), b->b.gs,
			      blk_unit_len(b, b->b.len, rep->unit)};
	log_info("op=spread block=%lld from=%s to=%s rack=%s", (long long)unit.id,
		 rep->st->dn->uuid, target->dn->uuid, target->dn->rack);
	dn_order_transfer(rep->st->dn, &unit, target);
	blk_add_move(&nn->blocks, b, target, now + nn->blocks.pending_timeout_ns, rep->st->dn);
}

bool ec_reconstruct_order(struct nn *nn, struct blk *b, const struct storage_policy *policy,
			  uint64_t now)
{
	const uint32_t all = ec_units_existing(blk_ec(b), b->b.len), readable = group_readable(b);
	const uint32_t away = group_away(b), lost = all & ~readable & ~away;
	const uint32_t leaving = readable & ~group_live(b) & ~away;
	bool found = true, dropped = false, ordered;

	if (b->npending ||
	    (uint32_t)__builtin_popcount(readable) < ec_units_needed(blk_ec(b), b->b.len))
		return false;
	if (lost)
		found = order_decode(nn, b, policy, lost, now);
	else if (leaving)
		found = order_moves(nn, b, policy, leaving, now);
	else if (b->flags & BLK_CROWDED)
		order_spread(nn, b, policy, now);
	if (!found)
		/* its node is free for a good one then */
		dropped = blk_drop_one_bad(&nn->blocks, b);
	ordered = b->npending || dropped;
	blk_recheck(&nn->blocks, b);
	return ordered;
}

/* ---- telling ---- */

static Hd__DatanodeInfosProto *nodes(struct req *q, size_t n)
{
	Hd__DatanodeInfosProto *m =
		req_new_msg(q, Hd__DatanodeInfosProto, hd__datanode_infos_proto__init);

	m->datanodes = arena_array(&q->mem, Hd__DatanodeInfoProto *, n);
	return m;
}

static void put_targets(struct req *q, const struct rebuild *r,
			Hd__BlockECReconstructionInfoProto *m)
{
	Hd__StorageUuidsProto *ids =
		req_new_msg(q, Hd__StorageUuidsProto, hd__storage_uuids_proto__init);
	Hd__StorageTypesProto *types =
		req_new_msg(q, Hd__StorageTypesProto, hd__storage_types_proto__init);

	m->targetdninfos = nodes(q, r->ntargets);
	m->targetstorageuuids = ids;
	m->targetstoragetypes = types;
	ids->storageuuids = arena_array(&q->mem, char *, r->ntargets);
	types->storagetypes = arena_array(&q->mem, Hd__StorageTypeProto, r->ntargets);
	for (uint32_t i = 0; i < r->ntargets; i++) {
		m->targetdninfos->datanodes[i] = locate_dn(&q->mem, r->target[i]->dn);
		ids->storageuuids[i] = arena_strdup(&q->mem, r->target[i]->id);
		types->storagetypes[i] = (Hd__StorageTypeProto)r->target[i]->type;
	}
	m->targetdninfos->n_datanodes = ids->n_storageuuids = types->n_storagetypes = r->ntargets;
}

static ProtobufCBinaryData bytes(struct req *q, const uint8_t *p, size_t n)
{
	uint8_t *copy = arena_array(&q->mem, uint8_t, n + 1);

	memcpy(copy, p, n);
	return (ProtobufCBinaryData){n, copy};
}

static Hd__BlockECReconstructionInfoProto *info(struct req *q, const struct blk *b,
						const struct rebuild *r)
{
	Hd__BlockECReconstructionInfoProto *m = req_new_msg(
		q, Hd__BlockECReconstructionInfoProto, hd__block_ecreconstruction_info_proto__init);
	uint8_t skip[EC_UNITS_MAX];
	size_t nskip = 0;

	m->block = locate_ext_block(q, &q->mem, &b->b);
	m->ecpolicy = locate_policy(&q->mem, blk_ec(b));
	m->sourcedninfos = nodes(q, r->nsources);
	for (uint32_t i = 0; i < r->nsources; i++)
		m->sourcedninfos->datanodes[i] = locate_dn(&q->mem, r->source[i]);
	m->sourcedninfos->n_datanodes = r->nsources;
	m->liveblockindices = bytes(q, r->source_unit, r->nsources);
	put_targets(q, r, m);
	for (uint8_t unit = 0; unit < EC_UNITS_MAX; unit++)
		if (r->skip & GROUP_UNIT(unit))
			skip[nskip++] = unit;
	PB_SET(m, excludereconstructedindices, bytes(q, skip, nskip));
	return m;
}

Hdd__DatanodeCommandProto *ec_reconstruct_command(struct req *q, struct dn *dn)
{
	Hdd__DatanodeCommandProto *c =
		req_new_msg(q, Hdd__DatanodeCommandProto, hdd__datanode_command_proto__init);
	Hdd__BlockECReconstructionCommandProto *m =
		req_new_msg(q, Hdd__BlockECReconstructionCommandProto,
			    hdd__block_ecreconstruction_command_proto__init);
	const uint32_t most = work_rebuilds(&q->nn->set.work);
	struct list *l;

	c->cmdtype = HDD__DATANODE_COMMAND_PROTO__TYPE__BlockECReconstructionCommand;
	c->blkecreconstructioncmd = m;
	m->blockecreconstructioninfo =
		arena_array(&q->mem, Hd__BlockECReconstructionInfoProto *, most);
	while (m->n_blockecreconstructioninfo < most && (l = list_pop(&dn->rebuilds))) {
		struct rebuild *r = container_of(l, struct rebuild, link);
		const struct blk *b = blocks_find(&q->nn->blocks, r->b.id);

		if (b && b->state == BLK_COMPLETE && b->b.gs == r->b.gs && b->b.len == r->b.len)
			m->blockecreconstructioninfo[m->n_blockecreconstructioninfo++] =
				info(q, b, r);
		ec_reconstruct_free(r);
	}
	return m->n_blockecreconstructioninfo ? c : NULL;
}
