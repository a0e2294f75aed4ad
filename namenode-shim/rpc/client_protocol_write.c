/* SPDX-License-Identifier: Apache-2.0 */
/* ClientProtocol: blocks of files under construction, from addBlock to complete. Pipelines that
 * lost a node are in client_protocol_pipeline.c. hdfs-wire 3.4, 3.6. */
#include <string.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "namenode-shim/blocks/located_block.h"
#include "namenode-shim/blocks/placement.h"
#include "namenode-shim/namespace/quota.h"
#include "namenode-shim/namespace/storage_policy.h"
#include "namenode-shim/namespace/under_construction.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/rpc/client_protocol_write_internal.h"
#include "namenode-shim/rpc/methods.h"

struct block client_block(const Hd__ExtendedBlockProto *p)
{
	return (struct block){(int64_t)p->blockid, p->generationstamp,
			      p->has_numbytes ? p->numbytes : 0};
}

int client_check_pool(struct req *q, const Hd__ExtendedBlockProto *p)
{
	if (!p || !strcmp(p->poolid, q->nn->db->ident.pool_id))
		return 0;
	return exception_throw(&q->exception, EXC_IO, "Unexpected BlockPoolId %.120s - expected %s",
			       p->poolid, q->nn->db->ident.pool_id);
}

/* As Java prints a block of a pool. */
const char *client_block_text(struct req *q, const Hd__ExtendedBlockProto *p)
{
	return arena_printf(&q->mem, "%s:blk_%lld_%llu", p->poolid, (long long)p->blockid,
			    (unsigned long long)p->generationstamp);
}

static bool is_block(const struct inode_block *a, const Hd__ExtendedBlockProto *p)
{
	return p && a->b.id == (int64_t)p->blockid && a->b.gs == p->generationstamp;
}

/* The client's last word on its last block. */
static int commit_last(struct req *q, struct inode *n, const Hd__ExtendedBlockProto *p)
{
	struct inode_block *last = n->nblocks ? &n->blocks[n->nblocks - 1] : NULL;
	const struct block now = p ? client_block(p) : (struct block){0};

	if (!p || !last || last->committed)
		return 0;
	if (last->b.id != now.id || now.gs != last->b.gs)
		return exception_throw(
			&q->exception, EXC_IO,
			"Trying to commit block %lld_%llu, but the last block of inode "
			"%llu is %lld_%llu",
			(long long)now.id, (unsigned long long)now.gs, (unsigned long long)n->id,
			(long long)last->b.id, (unsigned long long)last->b.gs);
	if (now.len > inode_block_max(n))
		return exception_throw(&q->exception, EXC_IO,
				       "Block %lld has %llu bytes, more than the block size %llu",
				       (long long)now.id, (unsigned long long)now.len,
				       (unsigned long long)inode_block_max(n));
	last->b = now;
	last->committed = true;
	ns_effect(&q->ns, EFFECT_BLOCK_COMMIT)->b = now;
	return 0;
}

/* @p: what the client says of it, or NULL. */
static int check_recovered(struct req *q, const struct inode *n, const Hd__ExtendedBlockProto *p)
{
	if (!uc_is_recovered(q, n))
		return 0;
	return exception_throw(&q->exception, EXC_IO,
			       "Commit or complete block %s, whereas it is under recovery.",
			       p ? arena_printf(&q->mem, "blk_%lld_%llu", (long long)p->blockid,
						(unsigned long long)p->generationstamp)
				 : "null");
}

/* ---- addBlock ---- */

/* The request repeats one whose answer was lost: the last block is still the answer. */
static bool is_repeated(const struct inode *n, const Hd__ExtendedBlockProto *previous)
{
	const struct inode_block *last = n->nblocks ? &n->blocks[n->nblocks - 1] : NULL;

	if (!last || last->committed || last->b.len || is_block(last, previous))
		return false;
	return n->nblocks == 1 ? !previous : is_block(last - 1, previous);
}

static int check_previous(struct req *q, const Hd__AddBlockRequestProto *m, const struct inode *n)
{
	const struct inode_block *last = n->nblocks ? &n->blocks[n->nblocks - 1] : NULL;

	if (last ? is_block(last, m->previous) : !m->previous)
		return 0;
	if (last && !m->previous && last->committed && last->b.len == inode_block_max(n))
		return 0; /* first block after an append to a full one */
	return exception_throw(
		&q->exception, EXC_IO,
		"Cannot allocate block in %s: passed 'previous' block %s does not match "
		"actual last block in file %s",
		m->src, m->previous ? client_block_text(q, m->previous) : "null",
		last ? arena_printf(&q->mem, "blk_%lld_%llu", (long long)last->b.id,
				    (unsigned long long)last->b.gs)
		     : "null");
}

/* True: come back when @want is reported finalized, or after NN_PARK_MS. Nodes report a moment
 * after the client knows, and a client that is refused sleeps for 400 ms. */
static bool park(struct req *q, const struct block *want)
{
	if (!q->wait.deadline_ns) {
		q->wait.b = *want;
		q->wait.deadline_ns = clock_mono_ns() + NN_PARK_MS * NS_PER_MS;
	}
	return clock_mono_ns() < q->wait.deadline_ns;
}

/* Every block before the last must be complete. */
static int check_progress(struct req *q, const char *src, const struct inode *n)
{
	const struct blk *b;

	if (n->nblocks < 2)
		return 0;
	b = blocks_find(&q->nn->blocks, n->blocks[n->nblocks - 2].b.id);
	if (b && b->state == BLK_COMPLETE)
		return 0;
	if (park(q, &n->blocks[n->nblocks - 2].b))
		return REQ_PARK;
	return exception_throw(&q->exception, EXC_NOT_REPLICATED, "Not replicated yet: %s", src);
}

/* Placement compares each node with all that a client names: no more of them than there may be
 * nodes. */
int client_check_named(struct req *q, size_t n, size_t most)
{
	if (n <= most)
		return 0;
	return exception_throw(&q->exception, EXC_ILLEGAL_ARGUMENT,
			       "too many nodes named: %zu, at most %zu", n, most);
}

/* Adds to *count nodes in @to those that are not in it. */
const struct dn **client_exclude_list(struct req *q, Hd__DatanodeInfoProto *const *nodes, size_t n,
				      const struct dn **to, uint32_t *count)
{
	struct datanodes *d = &q->nn->dns;

	d->list_seq += !*count;
	for (size_t i = 0; i < n; i++) {
		struct dn *dn = datanodes_find(d, nodes[i]->id->datanodeuuid);

		if (!dn || dn->list_seq == d->list_seq)
			continue;
		dn->list_seq = d->list_seq;
		to[(*count)++] = dn;
	}
	return to;
}

/* Nodes that a block of @n is to be on. */
uint32_t client_units_of(const struct inode *n)
{
	return n->ec ? n->ec->k + n->ec->m : n->repl;
}

/* With how many nodes a block of @n may begin. A group can lack parity, as in HDFS, unless that is
 * forbidden. */
static uint32_t units_least(const struct nn *nn, const struct inode *n)
{
	if (!n->ec)
		return nn->set.repl_min;
	return nn->set.ec.strict ? client_units_of(n) : n->ec->k;
}

/* Too few for a group: HDFS's sentence, which a stock client prints. It counts the nodes that were
 * found among the excluded ones: they cannot be chosen again. */
static int too_few_for_group(struct req *q, const char *src, const struct inode *n, uint32_t found,
			     uint32_t excluded)
{
	const uint32_t least = units_least(q->nn, n), out = excluded + found;

	return exception_throw(
		&q->exception, EXC_IO,
		"File %s could only be written to %u of the %u required nodes for %s. There are %u datanode(s) "
		"running and %s node(s) are excluded in this operation.%s",
		src, found, least, n->ec->name, datanodes_live(&q->nn->dns),
		out ? arena_printf(&q->mem, "%u", out) : "no",
		least > n->ec->k && found >= n->ec->k
			? " (Fewer would do if dfs.namenode.ec.strict-placement were false.)"
			: "");
}

/* Where new blocks of @p may lie, as in "SSD or DISK". */
static const char *types_text(struct req *q, const struct storage_policy *p)
{
	uint32_t said = 1u << STORAGE_RAM_DISK;
	const char *text = "";

	for (size_t i = 0; i < 2; i++)
		for (const uint8_t *t = i ? p->create_fallback.type : p->create.type; *t; t++) {
			if (said & 1u << *t)
				continue;
			said |= 1u << *t;
			text = arena_printf(&q->mem, "%s%s%s", text, *text ? " or " : "",
					    storage_type_name(*t));
		}
	return text;
}

/* Nothing is to be written on these after all. */
static void give_back(struct storage *const *st, uint32_t n, uint64_t block_size)
{
	for (uint32_t i = 0; i < n; i++)
		storage_unpromise(st[i], block_size, clock_mono_ns());
}

/* Choose nodes for a block of @n; none is the clear error of HDFS. The caller gives them back when
 * it fails, and when this does. */
static int choose(struct req *q, const Hd__AddBlockRequestProto *m, const struct inode *n,
		  struct storage **st, uint32_t *ret_n)
{
	struct place p = {.want = client_units_of(n),
			  .spread = n->ec,
			  .writer_ip = q->ns.host,
			  .block_size = n->block_size,
			  .policy = storage_policy_of_file(q->ns.t, n, &q->mem)};
	const uint32_t least = units_least(q->nn, n);
	int rc = client_check_named(q, m->n_excludenodes, DN_MAX);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < m->n_flags; i++)
		if (m->flags[i] == HD__ADD_BLOCK_FLAG_PROTO__NO_LOCAL_WRITE ||
		    m->flags[i] == HD__ADD_BLOCK_FLAG_PROTO__IGNORE_CLIENT_LOCALITY)
			p.writer_ip = NULL;
	p.exclude = client_exclude_list(
		q, m->excludenodes, m->n_excludenodes,
		arena_array(&q->mem, const struct dn *, m->n_excludenodes + 1), &p.nexclude);
	*ret_n = place_choose(&q->nn->dns, &p, st);
	if (*ret_n < p.want && n->ec && *ret_n >= least)
		log_warn(
			"op=add_group file=%llu policy=%s wanted=%u nodes=%u live=%u: the group begins without "
			"all of its parity units, because too few nodes can take one",
			(unsigned long long)n->id, n->ec->name, p.want, *ret_n,
			datanodes_live(&q->nn->dns));
	if (*ret_n >= least)
		return 0;
	if (n->ec)
		return too_few_for_group(q, m->src, n, *ret_n, p.nexclude);
	return exception_throw(
		&q->exception, EXC_IO,
		"File %s could only be written to %u of the %u minReplication nodes. There "
		"are %u datanode(s) running and %u node(s) are excluded in this operation; "
		"each needs room for a whole block of %llu bytes on %s (storage policy %s), beside a whole block "
		"for each block that is being written to it, however little is written (%llu files are open).",
		m->src, *ret_n, q->nn->set.repl_min, datanodes_live(&q->nn->dns), p.nexclude,
		(unsigned long long)n->block_size, types_text(q, p.policy), p.policy->name,
		(unsigned long long)q->nn->leases.files);
}

/* @st becomes the targets of @e. */
static void set_targets(struct ns *n, struct effect *e, struct storage *const *st, uint32_t count)
{
	e->targets = arena_array(n->a, struct storage_ref, count + 1u);
	e->ntargets = count;
	for (uint32_t i = 0; i < count; i++)
		e->targets[i] = storage_ref(st[i]);
}

static int append_block(struct req *q, struct inode *n, struct storage **st, uint32_t nst)
{
	struct inode_block *all = arena_array(&q->mem, struct inode_block, n->nblocks + 1u);
	struct block b = {.gs = ++q->ns.t->ctr.gs};
	struct effect *e;

	if (!n->ec)
		b.id = (int64_t)++q->ns.t->ctr.block;
	else if (ec_id_next(q->ns.t->ctr.group, &b.id) < 0)
		return exception_throw(
			&q->exception, EXC_IO,
			"All negative block group IDs are used, growing into "
			"positive IDs, which might conflict with non-erasure coded blocks.");
	else
		q->ns.t->ctr.group = b.id;
	e = ns_effect(&q->ns, EFFECT_BLOCK_ADD);
	if (n->nblocks)
		memcpy(all, n->blocks, n->nblocks * sizeof(*all));
	all[n->nblocks].b = b;
	n->blocks = all;
	n->nblocks++;
	e->b = b;
	e->inode = n->id;
	e->repl = n->repl;
	e->ec = n->ec;
	set_targets(&q->ns, e, st, nst);
	e->room = n->block_size;
	e->room_ns = clock_mono_ns();
	return 0;
}

int uc_first_block(struct req *q, struct inode *n, Hd__LocatedBlockProto **ret)
{
	const struct place p = {.want = n->repl,
				.writer_ip = q->ns.host,
				.block_size = n->block_size,
				.policy = storage_policy_of_file(q->ns.t, n, &q->mem)};
	struct storage **st = arena_array(&q->mem, struct storage *, n->repl + 1u);
	uint32_t nst;
	int rc;

	if (n->ec || quota_any(q->ns.t))
		return 0;
	nst = place_choose(&q->nn->dns, &p, st);
	if (nst < q->nn->set.repl_min) {
		give_back(st, nst, n->block_size);
		return 0;
	}
	rc = append_block(q, n, st, nst);
	rc = rc ? rc : ns_io(&q->ns, inode_put(q->ns.t, n));
	if (rc)
		give_back(st, nst, n->block_size);
	else
		*ret = locate_on(q, &n->blocks[0].b, 0, st, nst);
	return rc;
}

/* The writer took its nodes from a block that has no byte yet (our own client's flush of a group:
 * docs/design/ec-sync.md), or a restart has forgotten them: as with HDFS it gets others. */
static int choose_again(struct req *q, const Hd__AddBlockRequestProto *m, struct inode *n,
			Hd__AddBlockResponseProto *r)
{
	const struct block *last = &n->blocks[n->nblocks - 1].b;
	struct storage **st = arena_array(&q->mem, struct storage *, client_units_of(n));
	struct effect *e;
	uint32_t nst = 0;
	int rc = choose(q, m, n, st, &nst);

	if (rc < 0) {
		give_back(st, nst, n->block_size);
		return rc;
	}
	e = ns_effect(&q->ns, EFFECT_BLOCK_PIPELINE);
	e->b = *last;
	set_targets(&q->ns, e, st, nst);
	r->block = locate_on(q, last, inode_len(n), st, nst);
	if (n->ec)
		locate_units(q, r->block, NULL, nst);
	return 0;
}

static int repeat_answer(struct req *q, const Hd__AddBlockRequestProto *m, struct inode *n,
			 Hd__AddBlockResponseProto *r)
{
	const struct block *last = &n->blocks[n->nblocks - 1].b;
	const struct blk *b = blocks_find(&q->nn->blocks, last->id);

	/* Added in this very batch: its targets are known once the batch is on disk. */
	if (!b || !b->open)
		return exception_throw(&q->exception, EXC_NOT_REPLICATED,
				       "Block %lld of the first request is being set up; try again",
				       (long long)last->id);
	if (!b->open->ntargets)
		return choose_again(q, m, n, r);
	r->block = locate_on(q, last, inode_len(n), b->open->target, b->open->ntargets);
	if (n->ec)
		locate_units(q, r->block, b->open->target_unit, b->open->ntargets);
	return 0;
}

static int add_block(struct req *q, const void *in)
{
	const Hd__AddBlockRequestProto *m = in;
	Hd__AddBlockResponseProto *r =
		req_reply(q, Hd__AddBlockResponseProto, hd__add_block_response_proto__init);
	struct storage **st;
	struct inode *n;
	uint64_t before;
	uint32_t nst = 0;
	int rc = client_check_pool(q, m->previous);

	rc = rc ? rc : uc_find_open(q, m->src, m->fileid, m->clientname, &n);
	rc = rc ? rc : check_recovered(q, n, m->previous);
	if (rc < 0)
		return rc;
	if (is_repeated(n, m->previous))
		return repeat_answer(q, m, n, r);
	if (inode_nblocks(n) >= q->nn->set.max_blocks_per_file)
		return exception_throw(&q->exception, EXC_IO,
				       "File has reached the limit on maximum number of blocks "
				       "(dfs.namenode.fs-limits.max-blocks-per-file): %u >= %u",
				       inode_nblocks(n), q->nn->set.max_blocks_per_file);
	rc = check_previous(q, m, n);
	rc = rc ? rc : check_progress(q, m->src, n);
	st = arena_array(&q->mem, struct storage *, client_units_of(n));
	rc = rc ? rc : choose(q, m, n, st, &nst);
	before = inode_space(n);
	rc = rc ? rc : commit_last(q, n, m->previous);
	rc = rc ? rc : append_block(q, n, st, nst);
	rc = rc ? rc : uc_space_changed(q, n, before);
	rc = rc ? rc : ns_io(&q->ns, inode_put(q->ns.t, n));
	if (rc) { /* REQ_PARK, too */
		give_back(st, nst, n->block_size);
		return rc;
	}
	r->block = locate_on(q, &n->blocks[n->nblocks - 1].b, inode_len(n), st, nst);
	if (n->ec)
		locate_units(q, r->block, NULL, nst);
	return 0;
}

static int abandon_block(struct req *q, const void *in)
{
	const Hd__AbandonBlockRequestProto *m = in;
	struct inode *n;
	uint64_t before;
	int rc;

	req_reply(q, Hd__AbandonBlockResponseProto, hd__abandon_block_response_proto__init);
	rc = uc_find_open(q, m->src, m->fileid, m->holder, &n);
	if (rc < 0 || n->ec || !n->nblocks ||
	    n->blocks[n->nblocks - 1].b.id != (int64_t)m->b->blockid)
		return rc; /* gone already: a repeated request; a group stays, as in HDFS */
	before = inode_space(n);
	ns_effect(&q->ns, EFFECT_BLOCK_REMOVE)->b = n->blocks[--n->nblocks].b;
	rc = uc_space_changed(q, n, before);
	return rc ? rc : ns_io(&q->ns, inode_put(q->ns.t, n));
}

/* ---- complete, fsync ---- */

static bool must_wait(struct req *q, const struct inode *n, const Hd__ExtendedBlockProto *last)
{
	const struct blk *b = last ? blocks_find(&q->nn->blocks, (int64_t)last->blockid) : NULL;
	const struct block want = last ? client_block(last) : (struct block){0};

	if (!n->nblocks || !b || b->state == BLK_COMPLETE ||
	    blk_enough_as(b, want.gs, want.len, q->nn->set.repl_min))
		return false;
	return park(q, &want);
}

static bool all_complete(struct req *q, const struct inode *n)
{
	if (n->nblocks && !n->blocks[n->nblocks - 1].committed)
		return false; /* memory may not know yet that it is written again */
	for (uint32_t i = 0; i < n->nblocks; i++) {
		const struct block *b = &n->blocks[i].b;
		const struct blk *k = blocks_find(&q->nn->blocks, b->id);

		if (!k || (k->state != BLK_COMPLETE &&
			   (!n->blocks[i].committed ||
			    !blk_enough_as(k, b->gs, b->len, q->nn->set.repl_min))))
			return false;
	}
	return true;
}

/* A repeated complete() of a file that is closed already. */
static bool is_closed_as(const struct inode *n, const Hd__ExtendedBlockProto *last)
{
	if (n->type != INODE_FILE || inode_is_open(n))
		return false;
	return n->nblocks ? is_block(&n->blocks[n->nblocks - 1], last) : !last;
}

/* The block that came with create() and was never used. */
static void drop_first(struct req *q, struct inode *n)
{
	if (n->nblocks != 1 || n->blocks[0].committed || n->blocks[0].b.len || n->ec)
		return;
	ns_effect(&q->ns, EFFECT_BLOCK_REMOVE)->b = n->blocks[0].b;
	n->nblocks = 0;
}

static int complete(struct req *q, const void *in)
{
	const Hd__CompleteRequestProto *m = in;
	Hd__CompleteResponseProto *r =
		req_reply(q, Hd__CompleteResponseProto, hd__complete_response_proto__init);
	const char *path;
	struct inode *n;
	uint64_t before;
	int rc = client_check_pool(q, m->last);

	rc = rc ? rc : uc_find(q, m->src, m->fileid, m->clientname, &n, &path);
	if (rc < 0)
		return rc;
	if (is_closed_as(n, m->last)) {
		r->result = 1;
		return 0;
	}
	rc = uc_check_lease(q, n, path, m->fileid, m->clientname);
	if (!rc && !m->last && uc_is_recovered(q, n))
		return 0; /* false: ask again, as HDFS has it */
	rc = rc ? rc : check_recovered(q, n, m->last);
	if (!rc && must_wait(q, n, m->last))
		return REQ_PARK;
	before = inode_space(n);
	if (!rc && !m->last && m->dropfirst)
		drop_first(q, n);
	rc = rc ? rc : commit_last(q, n, m->last);
	rc = rc ? rc : uc_space_changed(q, n, before);
	if (rc < 0)
		return rc;
	if (!all_complete(q, n))
		return ns_io(&q->ns, inode_put(q->ns.t, n)); /* false: ask again */
	rc = uc_close(q, n);
	r->result = 1;
	/* Undone, the file is open again, and has its bytes. A block that was never used goes when
	 * that is on the disk. */
	q->early = rc == 0 && m->early && !n->ec && effects_only_close(&q->effects);
	r->has_early = r->early = q->early;
	return rc;
}

static int fsync_file(struct req *q, const void *in)
{
	const Hd__FsyncRequestProto *m = in;
	struct inode_block *last;
	struct inode *n;
	int rc = uc_find_open(q, m->src, m->fileid, m->client, &n);

	req_reply(q, Hd__FsyncResponseProto, hd__fsync_response_proto__init);
	if (rc < 0 || !n->nblocks || !m->has_lastblocklength || m->lastblocklength < 0)
		return rc;
	last = &n->blocks[n->nblocks - 1];
	if (last->committed || (uint64_t)m->lastblocklength < last->b.len ||
	    (uint64_t)m->lastblocklength > inode_block_max(n))
		return 0; /* late news */
	last->b.len = (uint64_t)m->lastblocklength;
	n->mtime = q->ns.now_ms;
	return ns_io(&q->ns, inode_put(q->ns.t, n));
}

/* ---- leases, bad replicas ---- */

static int renew_lease(struct req *q, const void *in)
{
	const Hd__RenewLeaseRequestProto *m = in;

	char tip[ERR_TEXT_MAX];

	req_reply(q, Hd__RenewLeaseResponseProto, hd__renew_lease_response_proto__init);
	if (q->nn->safe.on)
		return exception_throw(&q->exception, EXC_SAFE_MODE,
				       "Cannot renew lease for %s. Name node is in safe mode.\n%s "
				       "NamenodeHostName:%s",
				       m->clientname, nn_safe_text(q->nn, tip), q->nn->set.host);
	leases_renew(&q->nn->leases, m->clientname);
	return 0;
}

static int report_bad_blocks(struct req *q, const void *in)
{
	const Hd__ReportBadBlocksRequestProto *m = in;

	req_reply(q, Hd__ReportBadBlocksResponseProto, hd__report_bad_blocks_response_proto__init);
	return locate_report_bad(q, m->blocks, m->n_blocks);
}

#define CHANGE(name, msg, flags, fn) METHOD(name, hd, msg, REQ_CHANGE, flags, fn)
static const struct method table[] = {
	CHANGE(addBlock, add_block, 0, add_block),
	CHANGE(abandonBlock, abandon_block, 0, abandon_block),
	CHANGE(complete, complete, 0, complete),
	CHANGE(fsync, fsync, 0, fsync_file),
	METHOD(renewLease, hd, renew_lease, REQ_MEMORY, 0, renew_lease),
	METHOD(reportBadBlocks, hd, report_bad_blocks, REQ_MEMORY, 0, report_bad_blocks),
};
const struct method_table client_write_methods = METHOD_TABLE(table);
