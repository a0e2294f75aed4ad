/* SPDX-License-Identifier: Apache-2.0 */
/* Striped files: who writes their groups, and nodes that recover groups or make units again (sim.h;
 * hdfs-wire 7). A unit has all of its bytes or none. */
#include <string.h>

#include "common/erasure/geometry.h"
#include "common/erasure/policy.h"
#include "namenode-shim/simulator/sim.h"

#define RECEIVED HDD__RECEIVED_DELETED_BLOCK_INFO_PROTO__BLOCK_STATUS__RECEIVED

static const struct ec_policy *policy(void)
{
	return ec_policy_by_name("RS-3-2-1024k");
}

uint64_t group_unit_len(uint64_t len, unsigned unit)
{
	return ec_unit_length(policy(), len, unit);
}

static uint32_t needed(uint64_t len)
{
	return ec_units_needed(policy(), len);
}

static struct sim_replica *unit_at(const struct sim_writer *w, int unit)
{
	const int node = w->at[unit];

	return node >= 0 && sim.node[node].up
		       ? node_find(&sim.node[node], ec_id_of(w->b.id, (unsigned)unit))
		       : NULL;
}

/* ---- writers ---- */

void group_setup(struct sim_writer *w, const Hd__LocatedBlockProto *lb)
{
	w->b = (struct block){(int64_t)lb->b->blockid, lb->b->generationstamp, 0};
	w->closed_block = w->broken = false;
	w->n = UNITS;
	for (int u = 0; u < UNITS; u++)
		w->at[u] = -1;
	for (size_t i = 0; i < lb->n_locs; i++) {
		const struct sim_node *d = node_of(lb->locs[i]->id->datanodeuuid);
		const unsigned u = lb->has_blockindices && i < lb->blockindices.len
					   ? lb->blockindices.data[i]
					   : (unsigned)i;

		if (d && u < UNITS)
			w->at[u] = (int)(d - sim.node);
	}
}

/* All units of @len bytes are begun. */
static void begin_units(struct sim_writer *w, uint32_t len)
{
	w->b.len = len;
	for (unsigned u = 0; u < UNITS; u++) {
		const struct block b = {ec_id_of(w->b.id, u), w->b.gs, group_unit_len(len, u)};
		struct sim_replica *r;

		if (!b.len)
			continue;
		if (w->at[u] < 0 || !sim.node[w->at[u]].up) {
			w->broken = true;
			continue;
		}
		r = node_add(&sim.node[w->at[u]], &b, REPLICA_RBW);
		r->group_len = len;
	}
}

/* Of the units that have bytes, those that are finalised. */
static uint32_t finish_units(struct sim_writer *w)
{
	uint32_t done = 0;

	for (int u = 0; u < UNITS; u++) {
		struct sim_replica *r = unit_at(w, u);

		if (!group_unit_len(w->b.len, (unsigned)u))
			continue;
		if (!r || r->b.gs != w->b.gs || r->group_len != w->b.len ||
		    (r->state != REPLICA_RBW && r->state != REPLICA_FINALIZED)) {
			w->at[u] = -1;
			continue;
		}
		done++;
		if (r->state == REPLICA_RBW) {
			r->state = REPLICA_FINALIZED;
			node_tell(&sim.node[w->at[u]], &r->b, RECEIVED);
		}
	}
	return done;
}

bool group_go_on(struct sim_writer *w)
{
	if (w->closed_block)
		return true;
	if (!w->b.len) {
		w->file->tried = w->file->len + 1 + sim_below(UNITS_NEEDED * GROUP_BLOCK);
		begin_units(w, w->file->tried - w->file->len);
		return false;
	}
	if (finish_units(w) < needed(w->b.len)) {
		w->broken = true; /* group_reopen() finds too few */
		return false;
	}
	w->file->len = w->file->tried;
	return w->closed_block = true;
}

bool group_reopen(struct sim_writer *w)
{
	uint32_t left = 0;

	for (int u = 0; u < UNITS; u++) {
		struct sim_replica *r = unit_at(w, u);

		if (!group_unit_len(w->b.len, (unsigned)u))
			continue;
		if (!r || r->b.gs > w->next_gs ||
		    (r->state != REPLICA_RBW && r->state != REPLICA_FINALIZED)) {
			w->at[u] = -1;
			continue;
		}
		r->state = REPLICA_RBW;
		r->b.gs = w->next_gs;
		left++;
	}
	return left >= needed(w->b.len);
}

/* ---- units made again ---- */

static uint32_t set_of(const ProtobufCBinaryData *d)
{
	uint32_t set = 0;

	for (size_t i = 0; i < d->len; i++)
		set |= d->data[i] < UNITS ? 1u << d->data[i] : 0;
	return set;
}

void group_take_rebuilds(struct sim_node *d, const Hdd__BlockECReconstructionCommandProto *c)
{
	for (size_t i = 0; i < c->n_blockecreconstructioninfo; i++) {
		const Hd__BlockECReconstructionInfoProto *m = c->blockecreconstructioninfo[i];
		const struct block b = {(int64_t)m->block->blockid, m->block->generationstamp,
					m->block->numbytes};
		uint32_t missing = ec_units_existing(policy(), b.len) &
				   ~set_of(&m->liveblockindices) &
				   ~set_of(&m->excludereconstructedindices);
		struct sim_order *o = order_add(d, &b, SIM_DECODE);

		for (size_t k = 0; o && missing && k < m->targetdninfos->n_datanodes; k++) {
			o->unit[k] = (uint8_t)__builtin_ctz(missing);
			missing &= missing - 1;
			order_target(o, m->targetdninfos->datanodes[k]);
		}
	}
}

static bool is_source(const struct sim_replica *r, const struct block *group, unsigned unit)
{
	return r && (r->state == REPLICA_RUR ? r->orig : r->state) == REPLICA_FINALIZED &&
	       r->b.gs == group->gs && !r->bad && r->b.len == group_unit_len(group->len, unit);
}

/* Units that can be read, of nodes that are up or of all. */
static uint32_t readable(const struct block *group, const struct sim_node *but, bool only_up)
{
	uint32_t set = 0;

	for (int i = 0; i < NODES; i++)
		for (unsigned u = 0; u < UNITS; u++) {
			struct sim_node *d = &sim.node[i];

			if (d != but && (d->up || !only_up) &&
			    is_source(node_find(d, ec_id_of(group->id, u)), group, u))
				set |= 1u << u;
		}
	return set;
}

uint32_t group_others(const struct sim_replica *unit, const struct sim_node *but)
{
	const struct block group = {ec_id_group(unit->b.id), unit->b.gs, unit->group_len};

	/* those without bytes are zeros for everybody */
	return (uint32_t)__builtin_popcount(readable(&group, but, false)) + UNITS -
	       (uint32_t)__builtin_popcount(ec_units_existing(policy(), group.len));
}

void group_decode(struct sim_node *d, const struct sim_order *o)
{
	const uint32_t have = readable(&o->b, NULL, true);

	if ((uint32_t)__builtin_popcount(have) < needed(o->b.len))
		return;
	for (int i = 0; i < o->n; i++) {
		const unsigned u = o->unit[i];
		const struct block b = {ec_id_of(o->b.id, u), o->b.gs, group_unit_len(o->b.len, u)};
		struct sim_node *to = &sim.node[o->to[i]];

		if (!node_takes_copy(to, &b))
			continue;
		sim_say("%s: makes unit %u of %lld again at %s", d->uuid, u, (long long)o->b.id,
			to->uuid);
		node_add(to, &b, REPLICA_FINALIZED)->group_len = (uint32_t)o->b.len;
		node_tell(to, &b, RECEIVED);
	}
}

/* ---- recovery ---- */

/* 1: it has a unit that takes part, 0: it has none, -1: it fails, -2: another recovery is ahead. */
static int ask(const struct sim_order *o, int i)
{
	struct sim_node *d = &sim.node[o->to[i]];
	struct sim_replica *r = node_find(d, ec_id_of(o->b.id, o->unit[i]));

	if (!d->up || (sim_may(SIM_CRASH) && sim_chance(5)))
		return -1;
	if (!r)
		return 0;
	if (r->state == REPLICA_RUR && r->recovery >= o->new_gs)
		return -2;
	if (r->b.gs < o->b.gs || r->b.gs >= o->new_gs || r->bad)
		return -1;
	if (r->state != REPLICA_RUR)
		r->orig = r->state;
	r->state = REPLICA_RUR;
	r->recovery = o->new_gs;
	return r->orig <= REPLICA_RWR;
}

static void finish_recovery(const struct sim_order *o, const int at[UNITS])
{
	for (unsigned u = 0; u < UNITS; u++) {
		struct sim_replica *r =
			at[u] < 0 ? NULL : node_find(&sim.node[at[u]], ec_id_of(o->b.id, u));

		if (!r)
			continue;
		r->state = REPLICA_FINALIZED;
		r->b.gs = o->new_gs;
		node_tell(&sim.node[at[u]], &r->b, RECEIVED);
	}
}

void group_recover(struct sim_node *d, const struct sim_order *o)
{
	int at[UNITS] = {-1, -1, -1, -1, -1};
	uint32_t len = 0, found = 0, asked = 0;
	bool fails = false;

	for (int i = 0; i < o->n; i++) {
		const int rc = ask(o, i);

		if (rc == -2)
			return;
		fails |= rc < 0;
		asked |= 1u << o->unit[i];
		if (rc <= 0 || o->unit[i] >= UNITS)
			continue;
		found += at[o->unit[i]] < 0;
		at[o->unit[i]] = o->to[i];
		len = node_find(&sim.node[o->to[i]], ec_id_of(o->b.id, o->unit[i]))->group_len;
	}
	sim_say("%s: recovers group %lld_%llu: %u units of %u bytes%s", d->uuid, (long long)o->b.id,
		(unsigned long long)o->b.gs, found, len, fails ? ", some fail" : "");
	if (!d->linked || (sim_may(SIM_CRASH) && sim_chance(5)))
		return;
	if (found && found >= needed(len)) {
		finish_recovery(o, at);
		order_commit(d, o, at, UNITS, len);
	} else if (!fails && (o->all_units ||
			      found + UNITS - (uint32_t)__builtin_popcount(asked) < UNITS_NEEDED)) {
		order_commit(d, o, at, 0, 0);
	}
}

/* ---- at the end ---- */

void group_check(const struct sim_file *f, const struct block *b)
{
	for (unsigned u = 0; u < UNITS; u++) {
		uint32_t n = 0, good = 0;

		for (int i = 0; i < NODES; i++) {
			const struct sim_replica *r = node_find(&sim.node[i], ec_id_of(b->id, u));

			n += r != NULL;
			good += is_source(r, b, u);
		}
		if (n != good || n != (group_unit_len(b->len, u) > 0))
			sim_wrong("%s: unit %u of group %lld_%llu of %llu bytes: %u replicas, %u "
				  "of them good",
				  f->path, u, (long long)b->id, (unsigned long long)b->gs,
				  (unsigned long long)b->len, n, good);
	}
}
