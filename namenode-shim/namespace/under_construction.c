/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/namespace/under_construction.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "namenode-shim/namespace/quota.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"

int uc_check_client(struct req *q, const char *client)
{
	if (*client && strlen(client) <= LEASE_NAME_MAX)
		return 0;
	return exception_throw(&q->exception, EXC_ILLEGAL_ARGUMENT,
			       "client name must have 1 to %d bytes", LEASE_NAME_MAX);
}

const char *uc_lease_text(struct req *q, const char *path, uint64_t id, const char *client)
{
	const struct lease *l = leases_find(&q->nn->leases, client);

	if (!l)
		return arena_printf(&q->mem,
				    "%s (inode %llu) Holder %s does not have any open files.", path,
				    (unsigned long long)id, client);
	return arena_printf(&q->mem, "%s (inode %llu) [Lease.  Holder: %s, pending creates: %u]",
			    path, (unsigned long long)id, client, l->ninodes);
}

int uc_check_lease(struct req *q, const struct inode *n, const char *path, uint64_t id,
		   const char *client)
{
	if (n->type != INODE_FILE)
		return exception_throw(&q->exception, EXC_LEASE_EXPIRED,
				       "INode is not a regular file: %s",
				       uc_lease_text(q, path, id, client));
	if (!inode_is_open(n))
		return exception_throw(&q->exception, EXC_LEASE_EXPIRED,
				       "File is not open for writing: %s",
				       uc_lease_text(q, path, id, client));
	if (strcmp(n->client, client))
		return exception_throw(&q->exception, EXC_LEASE_EXPIRED,
				       "Client (=%s) is not the lease owner (=%s: %s", client,
				       n->client, uc_lease_text(q, path, id, client));
	return 0;
}

int uc_find(struct req *q, const char *path, uint64_t id, const char *client, struct inode **ret,
	    const char **ret_path)
{
	struct ns_path w;
	char *full;
	int rc;

	if (id) {
		rc = inode_get_tail(q->ns.t, id, &q->mem, ret);
		if (!rc)
			rc = inode_path(q->ns.t, *ret, &q->mem, &full);
		*ret_path = rc ? path : full;
	} else {
		rc = ns_resolve_as(&q->ns, path, WALK_TAIL, &w);
		if (rc < 0)
			return rc;
		*ret_path = w.path;
		*ret = w.last;
		rc = w.last ? 0 : -ENOENT;
	}
	return rc == -ENOENT
		       ? exception_throw(&q->exception, EXC_NOT_FOUND, "File does not exist: %s",
					 uc_lease_text(q, *ret_path, id, client))
		       : ns_io(&q->ns, rc);
}

int uc_find_open(struct req *q, const char *path, uint64_t id, const char *client,
		 struct inode **ret)
{
	int rc = uc_find(q, path, id, client, ret, &path);

	return rc ? rc : uc_check_lease(q, *ret, path, id, client);
}

static void submit_recovery(struct req *q, uint64_t inode)
{
	struct req *r = req_new(q->nn, &file_recover_method, NULL);

	r->arg = inode;
	nn_submit(q->nn, r);
}

/* Nothing of @n is unwritten: it can be closed without asking a node. */
static bool is_settled(const struct nn *nn, const struct inode *n)
{
	for (uint32_t i = 0; i < n->nblocks; i++) {
		const struct blk *b = blocks_find(&nn->blocks, n->blocks[i].b.id);

		if (!b || b->state != BLK_COMPLETE)
			return false;
	}
	return true;
}

static int refuse_open(struct req *q, enum exception e, const char *op, const char *path,
		       const char *client, const char *because)
{
	return exception_throw(&q->exception, e, "Failed to %s %s for %s on %s because %s", op,
			       path, client, q->ns.host, because);
}

int uc_check_open(struct req *q, const struct inode *n, const char *op, const char *path,
		  const char *client)
{
	const struct blk *b =
		n->nblocks ? blocks_find(&q->nn->blocks, n->blocks[n->nblocks - 1].b.id) : NULL;

	if (!inode_is_open(n))
		return 0;
	if (!strcmp(n->client, client))
		return refuse_open(
			q, EXC_BEING_CREATED, op, path, client,
			arena_printf(&q->mem, "%s is already the current lease holder.", client));
	if (!nn_leased_in_batch(q->nn, q, n->id) &&
	    leases_expired(&q->nn->leases, n->client, q->nn->set.lease_soft_ms)) {
		if (is_settled(q->nn, n))
			return 0;
		submit_recovery(q, n->id);
		return refuse_open(q, EXC_RECOVERY, op, path, client,
				   "lease recovery is in progress. Try again later.");
	}
	if ((b && b->open && b->open->recovery_id) || !strcmp(n->client, LEASE_NAMENODE)) {
		submit_recovery(q, n->id);
		return refuse_open(q, EXC_RECOVERY, op, path, client,
				   arena_printf(&q->mem,
						"another recovery is in progress by %s on %s",
						n->client, n->client_host));
	}
	return refuse_open(q, EXC_BEING_CREATED, op, path, client,
			   arena_printf(&q->mem, "this file lease is currently owned by %s on %s",
					n->client, n->client_host));
}

static void lease_effect(struct req *q, enum effect_kind kind, const struct inode *n)
{
	struct effect *e = ns_effect(&q->ns, kind);

	e->inode = n->id;
	e->holder = n->client;
}

void uc_release(struct req *q, struct inode *n)
{
	if (inode_is_open(n))
		lease_effect(q, EFFECT_LEASE_DEL, n);
	n->client = n->client_host = "";
	n->truncating = false;
}

void uc_lease(struct req *q, struct inode *n, const char *client, const char *host)
{
	uc_release(q, n);
	n->client = client;
	n->client_host = host;
	lease_effect(q, EFFECT_LEASE_ADD, n);
}

int uc_check_space(struct req *q, const struct inode *n, int64_t more)
{
	struct inode *up;
	int rc;

	if (!more || !quota_any(q->ns.t))
		return 0;
	rc = ns_io(&q->ns, inode_get(q->ns.t, n->parent, &q->mem, &up));
	return rc ? rc : quota_check(&q->ns, up, 0, more);
}

/* @check: it may be refused. */
static int space_changed(struct req *q, const struct inode *n, uint64_t before, bool check)
{
	const int64_t more = (int64_t)inode_space(n) - (int64_t)before;
	int rc;

	if (!more || !quota_any(q->ns.t))
		return 0;
	rc = check ? uc_check_space(q, n, more) : 0;
	return rc ? rc : ns_io(&q->ns, quota_charge(&q->ns, n->parent, 0, more));
}

int uc_space_changed(struct req *q, const struct inode *n, uint64_t before)
{
	return space_changed(q, n, before, true);
}

int uc_close(struct req *q, struct inode *n)
{
	uc_release(q, n);
	n->mtime = q->ns.now_ms;
	/* Those before were complete when the last one was added. */
	for (uint32_t i = n->nblocks > 2 ? n->nblocks - 2 : 0; i < n->nblocks; i++)
		ns_effect(&q->ns, EFFECT_BLOCK_CLOSED)->b = n->blocks[i].b;
	return ns_io(&q->ns, inode_put(q->ns.t, n));
}

bool uc_is_recovered(const struct req *q, const struct inode *n)
{
	const int64_t id = n->nblocks ? n->blocks[n->nblocks - 1].b.id : 0;
	const struct blk *b = n->nblocks ? blocks_find(&q->nn->blocks, id) : NULL;

	if (!n->nblocks)
		return false;
	return n->truncating || (b && b->open && b->open->recovery_id) ||
	       nn_recovered_in_batch(q->nn, q, id);
}

/* Right after a start what nodes hold is not known. */
static bool is_up_for_long(const struct nn *nn)
{
	return !nn->safe.on &&
	       (nn->safe.empty_start ||
		clock_mono_ns() - nn->safe.left_ns > nn->set.redundancy_delay_ms * NS_PER_MS);
}

/* What has not registered since the start would be dead. */
static bool is_past_silence(const struct nn *nn)
{
	return !nn->safe.on && clock_mono_ns() - nn->safe.left_ns > nn->dns.dead_after_ns;
}

/* No node can have anything of the last block: none reported it, none that was lost may return with
 * it, and it had no pipeline, or each disk of that was replaced. A group needs k pipelines: fewer
 * cannot be read, and HDFS gives them up, too. */
static bool was_never_written(const struct nn *nn, const struct inode_block *last,
			      const struct blk *b)
{
	const struct blk_open *o = b->open;
	const uint32_t known = b->nreps + (o ? o->nlost : 0u);
	const uint32_t given = o ? o->pipeline - o->ngone : 0u;
	const uint32_t enough = blk_ec(b) ? blk_ec(b)->k : 1u;

	/* After a start the pipeline is not known: its nodes may still be to register. */
	return !last->b.len && known < enough && given < enough &&
	       (o && o->since_ns ? is_up_for_long(nn) : is_past_silence(nn));
}

static int drop_last(struct req *q, struct inode *n)
{
	const uint64_t before = inode_space(n);
	int rc;

	ns_effect(&q->ns, EFFECT_BLOCK_REMOVE)->b = n->blocks[--n->nblocks].b;
	rc = uc_space_changed(q, n, before);
	return rc ? rc : uc_close(q, n);
}

/* Could a recovery still make something of it? One of an older stamp, or one that is not written
 * any more and is empty, is none to a primary. */
static bool is_of_use(const struct blk *b, const struct replica *r)
{
	return r->gs >= b->b.gs && (r->len || r->state == REPLICA_RBW);
}

/* Is enough reported that a recovery has something to work on? */
static bool has_replicas(const struct blk *b)
{
	uint32_t units = 0;

	for (uint16_t i = 0; i < b->nreps; i++)
		if (is_of_use(b, &b->rep[i]))
			units |= GROUP_UNIT(b->rep[i].unit);
	return (uint32_t)__builtin_popcount(units) >= (blk_ec(b) ? blk_ec(b)->k : 1u);
}

bool uc_knows_units(const struct nn *nn, const struct blk *b)
{
	return !b->open->nlost && !nn->safe.on && (b->open->pipeline || is_past_silence(nn));
}

/* A recovery was ordered and could do nothing with the units there are: too few, or of an older
 * stamp than the one that its writer died with. No node with others is away. Nothing of it was
 * acknowledged: of a group that comes with the commit of its length (docs/design/ec-sync.md). */
static bool is_hopeless_group(const struct nn *nn, const struct inode_block *last,
			      const struct blk *b)
{
	const struct blk_open *o = b->open;

	return blk_ec(b) && !last->b.len && o && o->recovery_id &&
	       clock_mono_ns() >= o->recovery_until_ns && !has_replicas(b) && uc_knows_units(nn, b);
}

/* As many nodes have a replica as the file has: its pipeline had no others, unless the replication
 * was lowered meanwhile or a node was replaced by a writer who died before he could say so. */
static bool have_all_reported(const struct inode *n, const struct blk *b)
{
	uint32_t found = 0;

	for (uint16_t i = 0; i < b->nreps; i++)
		found += b->rep[i].gs >= b->b.gs && storage_is_there(b->rep[i].st);
	return !blk_ec(b) && found >= n->repl;
}

bool uc_is_lost(const struct nn *nn, const struct inode *n, const struct blk *b)
{
	const struct blk_open *o = b->open;

	/* What a truncate has left is not in doubt, and may come back. */
	if (nn->safe.on || !o || n->truncating || !n->blocks[n->nblocks - 1].b.len ||
	    has_replicas(b))
		return false;
	/* Where it was written is not known after a start. Replicas of a committed block are
	 * finalized, but for a power cut, and no recovery has given them a newer stamp: one that
	 * comes back later is good in a closed file, too. */
	if (!o->pipeline && !o->ntargets)
		return b->state == BLK_COMMITTED && !o->told && is_past_silence(nn);
	if (!o->pipeline)
		return have_all_reported(n, b) && is_past_silence(nn);
	if (blk_targets_missing(o))
		return false;
	for (uint32_t i = 0; i < o->ntargets; i++)
		if (!storage_is_there(o->target[i]) || !o->target[i]->reported)
			return false;
	return true;
}

int uc_close_lost(struct req *q, struct inode *n)
{
	struct inode_block *last = &n->blocks[n->nblocks - 1];
	const uint64_t before = inode_space(n);
	struct effect *e = ns_effect(&q->ns, EFFECT_BLOCK_SYNCED);
	int rc;

	log_warn(
		"op=recover_lease inode=%llu block=%lld stamp=%llu len=%llu: no node has the last block; "
		"the file is closed, and the block is missing",
		(unsigned long long)n->id, (long long)last->b.id, (unsigned long long)last->b.gs,
		(unsigned long long)last->b.len);
	last->committed = true;
	e->b = last->b;
	rc = uc_space_changed(q, n, before);
	return rc ? rc : uc_close(q, n);
}

/* There is nobody who could be told to recover it. Where there is, only the primary's word counts:
 * reports may be older than what was written last. */
static bool is_given_up(const struct nn *nn, const struct inode *n, const struct blk *b)
{
	return b->open && b->open->recovery_id && !b->open->ntargets &&
	       clock_mono_ns() >= b->open->recovery_until_ns && uc_is_lost(nn, n, b);
}

/* Order the last block recovered under a new stamp; @holder has the lease meanwhile. */
static int recover_last(struct req *q, struct inode *n, const char *holder, const struct blk *b)
{
	const uint64_t before = inode_space(n);
	struct effect *e;
	bool truncating;
	int rc;

	if (b->open && b->open->recovery_id && clock_mono_ns() < b->open->recovery_until_ns)
		return 0;
	truncating = n->truncating;
	uc_lease(q, n, holder, n->client_host);
	n->truncating = truncating;
	/* Nodes may end it while this process is started anew. Their replicas have a newer stamp
	 * then, so a report of the old one must not complete the block. */
	n->blocks[n->nblocks - 1].committed = false;
	e = ns_effect(&q->ns, EFFECT_BLOCK_RECOVER);
	e->b = (struct block){b->b.id, ++q->ns.t->ctr.gs, 0};
	e->truncate_to = n->truncating ? n->truncate_to : NO_TRUNCATE;
	rc = space_changed(q, n, before, false);
	return rc ? rc : ns_io(&q->ns, inode_put(q->ns.t, n));
}

/* Its replicas came after all, when recovery had only been written down. */
static int close_complete(struct req *q, struct inode *n)
{
	const uint64_t before = inode_space(n);
	int rc;

	n->blocks[n->nblocks - 1].committed = true;
	rc = space_changed(q, n, before, false);
	return rc ? rc : uc_close(q, n);
}

int uc_recover(struct req *q, struct inode *n, const char *holder, bool *ret_closed)
{
	const struct inode_block *last = n->nblocks ? &n->blocks[n->nblocks - 1] : NULL;
	const struct blk *b = last ? blocks_find(&q->nn->blocks, last->b.id) : NULL;

	*ret_closed = !last;
	if (last && nn_leased_in_batch(q->nn, q, n->id)) {
		/* in the next batch, when the block is as its writer left it */
		submit_recovery(q, n->id);
		return 0;
	}
	*ret_closed = true;
	if (!last)
		return uc_close(q, n);
	if (b && b->state == BLK_COMPLETE)
		return close_complete(q, n);
	if (b && (was_never_written(q->nn, last, b) || is_hopeless_group(q->nn, last, b)))
		return drop_last(q, n);
	if (b && is_given_up(q->nn, n, b))
		return uc_close_lost(q, n);
	*ret_closed = false;
	return b ? recover_last(q, n, holder, b) : 0;
}

static int run_recover(struct req *q, const void *in)
{
	struct inode *n;
	bool closed = false;
	int rc = inode_get(q->ns.t, q->arg, &q->mem, &n);

	(void)in;
	if (rc == -ENOENT || (!rc && !inode_is_open(n)))
		return 0; /* deleted or closed meanwhile */
	if (rc < 0)
		return ns_io(&q->ns, rc);
	if (n->nblocks && nn_leased_in_batch(q->nn, q, n->id)) {
		q->wait.deadline_ns = WAIT_FOR_BATCH;
		return REQ_PARK;
	}
	rc = uc_recover(q, n, LEASE_NAMENODE, &closed);
	log_info("op=recover_lease inode=%llu closed=%d", (unsigned long long)q->arg, closed);
	return rc;
}

const struct method file_recover_method = {
	.name = "recoverLease (internal)", .kind = REQ_CHANGE, .run = run_recover};

static int run_touch(struct req *q, const void *in)
{
	struct inode *n;
	int rc = inode_get_tail(q->ns.t, q->arg, &q->mem, &n);

	(void)in;
	if (rc == -ENOENT || (!rc && q->ns.now_ms <= n->atime + q->nn->set.atime_precision_ms))
		return 0; /* deleted, or many readers at once */
	if (rc < 0)
		return ns_io(&q->ns, rc);
	n->atime = q->ns.now_ms;
	return ns_io(&q->ns, inode_put(q->ns.t, n));
}

const struct method file_touch_method = {
	.name = "setTimes (internal)", .kind = REQ_CHANGE, .run = run_touch};
