/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/blocks/decommission.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "namenode-shim/blocks/topology.h"
#include "namenode-shim/nn.h"

static void set_admin(struct nn *nn, struct dn *dn, enum dn_admin admin)
{
	if (dn->admin == admin)
		return;
	log_info("op=admin datanode=%s address=%s:%u from=%s to=%s", dn->uuid, dn->ip,
		 dn->xfer_port, dn_admin_code(dn), dn_admin_code(&(struct dn){.admin = admin}));
	dn->admin = admin;
	datanodes_changed(&nn->dns);
	dn->leaving = (struct leaving_status){0};
	dn->leaving_known = false;
	blocks_recheck_node(&nn->blocks, dn);
	nn->next_leaving_ns = 0; /* look at once */
}

static bool leaves(const struct dn *dn)
{
	return dn->admin == DN_DECOMMISSIONING || dn->admin == DN_DECOMMISSIONED;
}

static bool in_maintenance(const struct dn *dn)
{
	return dn->admin == DN_ENTERING_MAINTENANCE || dn->admin == DN_IN_MAINTENANCE;
}

static void end_maintenance(struct nn *nn, struct dn *dn)
{
	const bool away = !dn->alive;

	set_admin(nn, dn, DN_NORMAL);
	if (away) /* nobody waits for its replicas any more */
		blocks_forget(&nn->blocks, dn, NULL);
}

void decommission_judge(struct nn *nn, struct dn *dn, const struct hosts_verdict *v)
{
	snprintf(dn->upgrade_domain, sizeof(dn->upgrade_domain), "%s", v->upgrade_domain);
	dn->maintenance_until_ms = v->until_ms;
	switch (v->state) {
	case HOSTS_LEAVE:
		if (!leaves(dn))
			set_admin(nn, dn, DN_DECOMMISSIONING);
		break;
	case HOSTS_MAINTENANCE:
		if (!in_maintenance(dn))
			set_admin(nn, dn, DN_ENTERING_MAINTENANCE);
		break;
	case HOSTS_NORMAL:
		if (in_maintenance(dn))
			end_maintenance(nn, dn);
		set_admin(nn, dn, DN_NORMAL);
		break;
	}
}

void decommission_judge_all(struct nn *nn)
{
	topology_forget(nn->topology);
	for (struct dn *dn = nn->dns.table; dn; dn = dn->hh.next) {
		const struct hosts_verdict v =
			hosts_judge(nn->hosts, dn->ip, dn->host, dn->xfer_port);

		dn->disallowed = !v.allowed;
		if (v.allowed)
			decommission_judge(nn, dn, &v);
		else if (dn->alive)
			nn_dn_lost(nn, dn, "no longer in dfs.hosts");
	}
}

/* Are there enough replicas on nodes that stay? The last block of an open file needs only what a
 * writer needs, of a group k units; a file with more replicas than the default may leave with the
 * default. */
static bool enough(const struct nn *nn, const struct blk *b)
{
	const uint32_t live = blk_steady(b);

	if (blk_ec(b))
		return live >= (b->state == BLK_OPEN ? blk_ec(b)->k : blk_wanted(&nn->blocks, b)) ||
		       !b->nreps;
	if (b->state == BLK_OPEN)
		return live >= nn->set.repl_min || !b->nreps;
	return live >= blk_wanted(&nn->blocks, b) ||
	       (b->repl > nn->set.replication && live >= nn->set.replication);
}

static void count_block(struct nn *nn, struct blk *b)
{
	bool leaving = false;

	for (uint16_t i = 0; i < b->nreps; i++)
		leaving |= dn_is_leaving(b->rep[i].st->dn);
	if (!leaving || enough(nn, b))
		return;
	for (uint16_t i = 0; i < b->nreps; i++) {
		struct dn *dn = b->rep[i].st->dn;

		if (!dn_is_leaving(dn))
			continue;
		dn->leaving_count.low_redundancy++;
		dn->leaving_count.only_here += !blk_live(b);
		dn->leaving_count.in_open_files += b->state != BLK_COMPLETE;
	}
}

static void finish(struct nn *nn, struct dn *dn)
{
	if (dn->leaving.low_redundancy)
		return;
	set_admin(nn, dn, dn->admin == DN_DECOMMISSIONING ? DN_DECOMMISSIONED : DN_IN_MAINTENANCE);
}

/* A living node must have said what it holds. The replicas of a dead one are forgotten: it may go
 * when no block is short of replicas, which might be its own. */
static bool is_known(const struct nn *nn, const struct dn *dn)
{
	return dn->alive ? dn_has_reported(dn) : !nn->blocks.under_count;
}

static void begin(struct nn *nn)
{
	const uint64_t now = clock_mono_ns();

	for (struct dn *dn = nn->dns.table; dn; dn = dn->hh.next) {
		dn->leaving_count = (struct leaving_status){0};
		dn->leaving_known = dn_is_leaving(dn) && is_known(nn, dn);
		for (uint32_t i = 0; i < dn->nstorages; i++)
			dn->storage[i]->unsteady = now < dn->storage[i]->flaps_until_ns;
	}
	nn->leaving_asked = nn->blocks.asked;
	blk_cursor_begin(&nn->blocks, &nn->leaving_cursor);
}

/* All blocks were counted. If a node or storage was lost meanwhile, or a node changed its state,
 * what was counted before that may be wrong: again. Single replicas that a report lacks are no
 * reason: some always do, and their blocks are copied as others are. Nor is a storage that comes
 * and goes: its replicas were not counted on. */
static void end(struct nn *nn)
{
	const bool valid = nn->leaving_asked == nn->blocks.asked;

	nn->next_leaving_ns = valid ? clock_mono_ns() + nn->set.decommission_ms * NS_PER_MS : 0;
	for (struct dn *dn = nn->dns.table; dn; dn = dn->hh.next)
		if (dn_is_leaving(dn))
			dn->leaving = dn->leaving_count;
	for (struct dn *dn = nn->dns.table; dn && valid; dn = dn->hh.next)
		if (dn_is_leaving(dn) && dn->leaving_known && is_known(nn, dn))
			finish(nn, dn);
}

void decommission_slice(struct nn *nn)
{
	for (uint32_t i = 0; !nn_slice_is_done(nn, i); i++) {
		struct blk *b = blk_cursor_next(&nn->leaving_cursor);

		if (!b) {
			end(nn);
			return;
		}
		count_block(nn, b);
	}
}

void decommission_tick(struct nn *nn, uint64_t now_ns)
{
	bool any = false;

	for (struct dn *dn = nn->dns.table; dn; dn = dn->hh.next) {
		if (in_maintenance(dn) && dn->maintenance_until_ms <= clock_wall_ms())
			end_maintenance(nn, dn);
		any |= dn_is_leaving(dn);
	}
	/* Not before what is to be forgotten is: it would count. */
	if (any && now_ns >= nn->next_leaving_ns && !blk_cursor_is_open(&nn->leaving_cursor) &&
	    !blocks_must_sweep(&nn->blocks))
		begin(nn);
}
