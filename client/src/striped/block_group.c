/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/striped/block_group.h"

#include <stdio.h>

static int check(const Hd__LocatedBlockProto *lb, const struct ec_policy *p, struct err *err)
{
	const int64_t id = (int64_t)lb->b->blockid;

	if (lb->n_locs > LOCATED_NODES_MAX)
		return err_set(err, -EPROTO, "the NameNode names %zu nodes for a block group",
			       lb->n_locs);
	if (!ec_id_is_striped(id) || ec_id_unit(id) != 0)
		return err_set(
			err, -EPROTO,
			"the NameNode says that blk_%lld is a block group, and its id is that of a block",
			(long long)id);
	if (!ec_length_ok(lb->b->numbytes))
		return err_set(err, -EPROTO,
			       "the NameNode says that block group blk_%lld has %llu bytes",
			       (long long)id, (unsigned long long)lb->b->numbytes);
	if ((lb->has_blockindices ? lb->blockindices.len : 0) != lb->n_locs ||
	    (lb->n_blocktokens && lb->n_blocktokens != lb->n_locs))
		return err_set(
			err, -EPROTO,
			"the NameNode sent %zu nodes, %zu unit indices and %zu tokens for a block group",
			lb->n_locs, lb->has_blockindices ? lb->blockindices.len : 0,
			lb->n_blocktokens);
	for (size_t i = 0; i < lb->n_locs; i++)
		if (lb->blockindices.data[i] >= p->k + p->m)
			return err_set(err, -EPROTO, "the NameNode names unit %u of a group of %s",
				       lb->blockindices.data[i], p->name);
	return 0;
}

static void unit_init(struct group *g, unsigned u, const Hd__LocatedBlockProto *lb)
{
	struct group_unit *unit = &g->unit[u];

	unit->lb = *lb; /* cached copies and indices of the group mean nothing here */
	unit->lb.n_iscached = unit->lb.n_blocktokens = unit->lb.n_locs = 0;
	unit->lb.n_storageids = unit->lb.n_storagetypes = 0;
	unit->lb.has_blockindices = 0;
	unit->lb.offset = 0;
	unit->lb.b = &unit->b;
	unit->lb.locs = unit->locs;
	unit->lb.storageids = unit->storage_ids;
	unit->lb.storagetypes = unit->storage_types;
	unit->b = *lb->b;
	unit->b.blockid = (uint64_t)ec_id_of(g->id, u);
	unit->b.has_numbytes = 1;
	unit->b.numbytes = ec_unit_length(g->policy, g->length, u);
}

static void add_copy(struct group_unit *u, const Hd__LocatedBlockProto *lb, size_t i)
{
	const size_t at = u->lb.n_locs;

	if (at == GROUP_COPIES_MAX)
		return;
	u->locs[at] = lb->locs[i];
	if (lb->n_storageids == lb->n_locs) {
		u->storage_ids[at] = lb->storageids[i];
		u->lb.n_storageids++;
	}
	if (lb->n_storagetypes == lb->n_locs) {
		u->storage_types[at] = lb->storagetypes[i];
		u->lb.n_storagetypes++;
	}
	if (lb->n_blocktokens && at == 0) /* it is for the block, so one is as good as another */
		u->lb.blocktoken = lb->blocktokens[i];
	u->lb.n_locs++;
}

int group_view(const Hd__LocatedBlockProto *lb, const struct ec_policy *policy, struct group *ret,
	       struct err *err)
{
	int rc = check(lb, policy, err);

	if (rc < 0)
		return rc;
	ret->policy = policy;
	ret->id = (int64_t)lb->b->blockid;
	ret->offset = lb->offset;
	ret->length = lb->b->numbytes;
	ret->units = policy->k + policy->m;
	ret->existing =
		ret->length ? ec_units_existing(policy, ret->length) : (1u << ret->units) - 1;
	ret->lost = ret->existing;
	for (unsigned u = 0; u < ret->units; u++)
		unit_init(ret, u, lb);
	for (size_t i = 0; i < lb->n_locs; i++) {
		add_copy(&ret->unit[lb->blockindices.data[i]], lb, i);
		ret->lost &= ~(1u << lb->blockindices.data[i]);
	}
	return 0;
}

const char *group_unit_text(const struct group *g, unsigned unit, char *buf)
{
	const Hd__LocatedBlockProto *lb = &g->unit[unit].lb;
	char text[NET_TEXT_MAX];

	if (lb->n_locs == 0)
		snprintf(buf, GROUP_TEXT_MAX, "no node");
	else if (lb->n_locs == 1)
		snprintf(buf, GROUP_TEXT_MAX, "%s", node_text(lb->locs[0]->id, text));
	else
		snprintf(buf, GROUP_TEXT_MAX, "%s+%zu", node_text(lb->locs[0]->id, text),
			 lb->n_locs - 1);
	return buf;
}
