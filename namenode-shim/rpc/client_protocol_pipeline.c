/* SPDX-License-Identifier: Apache-2.0 */
/* ClientProtocol: pipelines that lost a node, a new generation stamp and other nodes for the block
 * that is written. hdfs-wire 3.4, 3.6. */
#include <string.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "namenode-shim/blocks/located_block.h"
#include "namenode-shim/blocks/placement.h"
#include "namenode-shim/namespace/storage_policy.h"
#include "namenode-shim/namespace/under_construction.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/rpc/client_protocol_write_internal.h"
#include "namenode-shim/rpc/methods.h"

#define NO_OFFSET UINT64_MAX /* -1, as HDFS sends where an offset makes no sense */

static const char *state_text(const struct blk *b)
{
	if (b->state == BLK_OPEN)
		return b->open && b->open->recovery_id ? "UNDER_RECOVERY" : "COMMITTED";
	return b->state == BLK_COMPLETE ? "COMPLETE" : "COMMITTED";
}

/* The open last block @p of a file leased to @client. */
static int find_block(struct req *q, const Hd__ExtendedBlockProto *p, const char *client,
		      struct inode **ret)
{
	const struct blk *b = blocks_find(&q->nn->blocks, (int64_t)p->blockid);
	const struct inode *n;
	int rc = b ? inode_get_tail(q->ns.t, b->inode, &q->mem, ret) : -ENOENT;

	if (rc == -ENOENT)
		return exception_throw(&q->exception, EXC_IO, "%s does not exist.",
				       client_block_text(q, p));
	if (rc < 0)
		return ns_io(&q->ns, rc);
	n = *ret;
	if (!n->nblocks || n->blocks[n->nblocks - 1].b.id != b->b.id ||
	    n->blocks[n->nblocks - 1].committed || uc_is_recovered(q, n))
		return exception_throw(
			&q->exception, EXC_IO,
			"Unexpected BlockUCState: %s is %s but not UNDER_CONSTRUCTION",
			client_block_text(q, p), state_text(b));
	if (!inode_is_open(n))
		return exception_throw(&q->exception, EXC_IO,
				       "The file %s belonged to does not exist or it is not under "
				       "construction.",
				       client_block_text(q, p));
	if (strcmp(n->client, client))
		return exception_throw(&q->exception, EXC_LEASE_EXPIRED,
				       "Lease mismatch: %s is accessed by a non lease holder %s",
				       client_block_text(q, p), client);
	return 0;
}

static int update_block_for_pipeline(struct req *q, const void *in)
{
	const Hd__UpdateBlockForPipelineRequestProto *m = in;
	Hd__UpdateBlockForPipelineResponseProto *r =
		req_reply(q, Hd__UpdateBlockForPipelineResponseProto,
			  hd__update_block_for_pipeline_response_proto__init);
	struct block b = client_block(m->block);
	struct inode *n;
	int rc = find_block(q, m->block, m->clientname, &n);

	if (rc < 0)
		return rc;
	b.gs = ++q->ns.t->ctr.gs;
	r->block = locate_bare(q, &b, NO_OFFSET);
	if (n->ec)
		locate_units(q, r->block, NULL, client_units_of(n));
	return 0;
}

/* Nodes of one block, or of one group. */
static size_t nodes_max(const struct nn *nn)
{
	const size_t repl_max = nn->set.repl_max;

	return repl_max > EC_UNITS_MAX ? repl_max : EC_UNITS_MAX;
}

static bool is_name(const char *s)
{
	return *s && strlen(s) < BLOCK_UUID_MAX;
}

/* @m's nodes into @e. Of a group the place of a lost unit is empty. */
static void name_pipeline(struct req *q, const Hd__UpdatePipelineRequestProto *m, bool group,
			  struct effect *e)
{
	const size_t count = m->n_newnodes < m->n_storageids ? m->n_newnodes : m->n_storageids;
	uint8_t *units = arena_array(&q->mem, uint8_t, count + 1);

	e->targets = arena_array(&q->mem, struct storage_ref, count + 1);
	e->away = arena_array(&q->mem, struct effect_away, count + 1);
	e->units = group ? units : NULL;
	for (size_t i = 0; i < count; i++) {
		const char *node = m->newnodes[i]->datanodeuuid, *storage = m->storageids[i];
		const struct dn *dn = datanodes_find(&q->nn->dns, node);
		struct storage *st = dn ? dn_storage(dn, storage) : NULL;

		if (st) {
			units[e->ntargets] = (uint8_t)i;
			e->targets[e->ntargets++] = storage_ref(st);
		} else if (is_name(node) && is_name(storage)) {
			e->away[e->naway++] = (struct effect_away){
				arena_printf(&q->mem, "%s", node),
				arena_printf(&q->mem, "%s", storage), group ? (uint8_t)i : 0};
		}
	}
}

static int update_pipeline(struct req *q, const void *in)
{
	const Hd__UpdatePipelineRequestProto *m = in;
	struct block now = client_block(m->newblock);
	struct effect *e;
	struct inode_block *last;
	struct inode *n;
	int rc = find_block(q, m->oldblock, m->clientname, &n);

	req_reply(q, Hd__UpdatePipelineResponseProto, hd__update_pipeline_response_proto__init);
	rc = rc ? rc : client_check_named(q, m->n_newnodes, nodes_max(q->nn));
	if (rc < 0)
		return rc;
	last = &n->blocks[n->nblocks - 1];
	if (now.gs <= last->b.gs || now.gs > q->ns.t->ctr.gs)
		return exception_throw(
			&q->exception, EXC_IO,
			"Update %s but the new block %s does not have a larger generation "
			"stamp than the last block blk_%lld_%llu",
			client_block_text(q, m->oldblock), client_block_text(q, m->newblock),
			(long long)last->b.id, (unsigned long long)last->b.gs);
	if (now.len < last->b.len)
		return exception_throw(
			&q->exception, EXC_IO,
			"Update %s (size=%llu) to a smaller size block %s (size=%llu)",
			client_block_text(q, m->oldblock),
			(unsigned long long)client_block(m->oldblock).len,
			client_block_text(q, m->newblock), (unsigned long long)now.len);
	/* Its bytes are not charged here: complete() would give quotas back what they never had. */
	if (now.len > inode_block_max(n))
		return exception_throw(&q->exception, EXC_IO,
				       "Update %s to %llu bytes, more than the block size %llu",
				       client_block_text(q, m->oldblock),
				       (unsigned long long)now.len,
				       (unsigned long long)inode_block_max(n));
	now.id = last->b.id;
	last->b = now;
	e = ns_effect(&q->ns, EFFECT_BLOCK_PIPELINE);
	e->b = now;
	if (n->ec && m->n_newnodes > client_units_of(n))
		return exception_throw(
			&q->exception, EXC_IO, "Update %s to %zu nodes, more than %s has units",
			client_block_text(q, m->oldblock), m->n_newnodes, n->ec->name);
	name_pipeline(q, m, n->ec, e);
	return ns_io(&q->ns, inode_put(q->ns.t, n));
}

static int get_additional_datanode(struct req *q, const void *in)
{
	const Hd__GetAdditionalDatanodeRequestProto *m = in;
	Hd__GetAdditionalDatanodeResponseProto *r =
		req_reply(q, Hd__GetAdditionalDatanodeResponseProto,
			  hd__get_additional_datanode_response_proto__init);
	const struct block b = client_block(m->blk);
	struct place p = {.want = m->numadditionalnodes};
	const struct dn * * not ;
	struct storage **st;
	uint8_t *types;
	struct inode *n;
	uint32_t have = 0;
	int rc = client_check_pool(q, m->blk);

	rc = rc ? rc : uc_find_open(q, m->src, m->fileid, m->clientname, &n);
	if (rc < 0)
		return rc;
	if (m->numadditionalnodes > q->nn->set.repl_max)
		return exception_throw(&q->exception, EXC_ILLEGAL_ARGUMENT,
				       "too many nodes asked for: %u", m->numadditionalnodes);
	rc = client_check_named(q, m->n_existings, nodes_max(q->nn));
	rc = rc ? rc : client_check_named(q, m->n_excludes, DN_MAX);
	if (rc < 0)
		return rc;
	p.exclude = not =
		arena_array(&q->mem, const struct dn *, m->n_existings + m->n_excludes + 1);
	p.have = types = arena_array(&q->mem, uint8_t, m->n_existings + 1);
	st = arena_array(&q->mem, struct storage *, m->n_existings + m->numadditionalnodes + 1);
	for (size_t i = 0; i < m->n_existings; i++) {
		const struct dn *dn =
			datanodes_find(&q->nn->dns, m->existings[i]->id->datanodeuuid);
		struct storage *s = dn && i < m->n_existingstorageuuids
					    ? dn_storage(dn, m->existingstorageuuids[i])
					    : NULL;

		if (!s)
			continue;
		types[p.nhave++] = (uint8_t)s->type;
		st[have++] = s;
	}
	client_exclude_list(q, m->existings, m->n_existings, not, &p.nexclude);
	p.nholders = p.nexclude; /* their racks, and their types, count */
	client_exclude_list(q, m->excludes, m->n_excludes, not, &p.nexclude);
	p.block_size = n->block_size;
	p.policy = storage_policy_of_file(q->ns.t, n, &q->mem);
	p.copy = have > 0;
	have += place_choose(&q->nn->dns, &p, st + have);
	r->block = locate_on(q, &b, NO_OFFSET, st, have);
	return 0;
}

#define CHANGE(name, msg, flags, fn) METHOD(name, hd, msg, REQ_CHANGE, flags, fn)
static const struct method table[] = {
	CHANGE(updateBlockForPipeline, update_block_for_pipeline, 0, update_block_for_pipeline),
	CHANGE(updatePipeline, update_pipeline, REQ_ONCE, update_pipeline),
	CHANGE(getAdditionalDatanode, get_additional_datanode, 0, get_additional_datanode),
};
const struct method_table client_pipeline_methods = METHOD_TABLE(table);
