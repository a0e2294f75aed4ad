/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/file.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"

int file_check_lease(struct req *q, const struct inode *n, const char *path, const char *client)
{
	if (n->type != INODE_FILE)
		return exc_throw(&q->exc, EXC_LEASE_EXPIRED,
				 "INode is not a regular file: %s (inode %llu)", path,
				 (unsigned long long)n->id);
	if (!inode_is_open(n))
		return exc_throw(&q->exc, EXC_LEASE_EXPIRED,
				 "File is not open for writing: %s (inode %llu) [Lease. Holder: %s]",
				 path, (unsigned long long)n->id, client);
	if (strcmp(n->client, client))
		return exc_throw(&q->exc, EXC_LEASE_EXPIRED,
				 "Client (=%s) is not the lease owner (=%s: %s (inode %llu)",
				 client, n->client, path, (unsigned long long)n->id);
	return 0;
}

int file_find_open(struct req *q, const char *path, uint64_t id, const char *client,
		   struct inode **ret)
{
	struct walk w;
	int rc;

	if (id) {
		rc = inode_get(q->ns.t, id, &q->mem, ret);
		if (rc == -ENOENT)
			return exc_throw(&q->exc, EXC_NOT_FOUND,
					 "File does not exist: %s (inode %llu) [Lease. Holder: %s]",
					 path, (unsigned long long)id, client);
		if (rc < 0)
			return ns_io(&q->ns, rc);
	} else {
		rc = ns_find(&q->ns, path, &w);
		if (rc < 0)
			return rc;
		*ret = w.last;
	}
	return file_check_lease(q, *ret, path, client);
}

static void submit_recovery(struct req *q, uint64_t inode)
{
	struct req *r = req_new(q->nn, &file_recover_method, NULL, NULL);

	r->arg = inode;
	nn_submit(q->nn, r);
}

int file_busy(struct req *q, const struct inode *n, const char *path, const char *client)
{
	if (!strcmp(n->client, client))
		return exc_throw(&q->exc, EXC_BEING_CREATED,
				 "Failed to open %s for %s on %s because this file is already being "
				 "created by the same client",
				 path, client, q->ns.host);
	if (leases_expired(&q->nn->leases, n->client, q->nn->set.lease_soft_ms) ||
	    !strcmp(n->client, LEASE_NAMENODE)) {
		submit_recovery(q, n->id);
		return exc_throw(&q->exc, EXC_RECOVERY,
				 "Failed to open %s for %s on %s because lease recovery is in "
				 "progress. Try again later.",
				 path, client, q->ns.host);
	}
	return exc_throw(&q->exc, EXC_BEING_CREATED,
			 "Failed to open %s for %s on %s because this file lease is currently owned "
			 "by %s on %s",
			 path, client, q->ns.host, n->client, n->client_host);
}

static void lease_effect(struct req *q, enum effect_kind kind, const struct inode *n)
{
	struct effect *e = ns_effect(&q->ns, kind);

	e->inode = n->id;
	e->holder = n->client;
}

int file_close(struct req *q, struct inode *n)
{
	lease_effect(q, FX_LEASE_DEL, n);
	n->client = n->client_host = "";
	n->mtime = q->ns.now_ms;
	return ns_io(&q->ns, inode_put(q->ns.t, n));
}

/* Nothing of the last block can be anywhere: no pipeline was set up, no node reported it. Right
 * after a start the reports may just not be in yet. */
static bool was_never_written(const struct nn *nn, const struct inode_block *last,
			      const struct blk *b)
{
	const uint64_t up = clock_mono_ns() - nn->safe.left_ns;

	return !last->b.len && !b->nreps && (!b->open || !b->open->ntargets) && !nn->safe.on &&
	       (nn->safe.empty_start || up > nn->set.redundancy_delay_ms * NS_PER_MS);
}

static int drop_last(struct req *q, struct inode *n)
{
	ns_effect(&q->ns, FX_BLOCK_REMOVE)->b = n->blocks[--n->nblocks].b;
	return file_close(q, n);
}

/* Order the last block recovered under a new stamp; the NameNode holds the lease meanwhile. */
static int recover_last(struct req *q, struct inode *n, const struct blk *b)
{
	struct effect *e;

	if (b->open && b->open->recovery_id && clock_mono_ns() < b->open->recovery_until_ns)
		return 0;
	lease_effect(q, FX_LEASE_DEL, n);
	n->client = LEASE_NAMENODE;
	lease_effect(q, FX_LEASE_ADD, n);
	e = ns_effect(&q->ns, FX_BLOCK_RECOVER);
	e->b = (struct block){b->b.id, ++q->ns.t->ctr.gs, 0};
	return ns_io(&q->ns, inode_put(q->ns.t, n));
}

int file_recover(struct req *q, struct inode *n, bool *ret_closed)
{
	const struct inode_block *last = n->nblocks ? &n->blocks[n->nblocks - 1] : NULL;
	const struct blk *b = last ? blocks_find(&q->nn->blocks, last->b.id) : NULL;

	*ret_closed = true;
	if (!last || (b && b->state == BLK_COMPLETE))
		return file_close(q, n);
	if (b && was_never_written(q->nn, last, b))
		return drop_last(q, n);
	*ret_closed = false;
	return b ? recover_last(q, n, b) : 0;
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
	rc = file_recover(q, n, &closed);
	log_info("op=recover_lease inode=%llu closed=%d", (unsigned long long)q->arg, closed);
	return rc;
}

const struct method file_recover_method = {
	.name = "recoverLease (internal)", .kind = REQ_CHANGE, .run = run_recover};
