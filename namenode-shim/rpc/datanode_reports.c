/* SPDX-License-Identifier: Apache-2.0 */
/* DatanodeProtocol: block reports, full and incremental, and the replicas that they tell of. They
 * are taken in slices. hdfs-wire 3.7, 8.4. */
#include "DatanodeProtocol.pb-c.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/block_report.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/rpc/datanode_commands.h"
#include "namenode-shim/rpc/datanode_protocol_internal.h"
#include "namenode-shim/rpc/methods.h"

/* What is done before the lock is given back, and what costs how much of it. */
#define REPORT_STEP 4096 /* after each it is asked whether the slice has lasted long enough, */
#define REPORT_STEPS 8   /* and it ends after so many of them */
#define COST_TAKE 8      /* a replica */
#define COST_CHECK 1     /* that it decodes */
#define COST_STORAGE 256

/* How far a full report is. */
struct report_walk {
	size_t at;   /* in its storages */
	bool taking; /* this one was checked, and is taken */
	bool first;
	struct block_report_rd rd;
	uint64_t count;
	int64_t left; /* of the step */
};

/* All of it decodes, or none of it counts. */
static int check_some(struct report_walk *w)
{
	struct block b;
	uint32_t state;
	int rc = 1;

	for (; w->left > 0 && rc > 0; w->left -= COST_CHECK)
		rc = block_report_next(&w->rd, &b, &state);
	return rc > 0 ? REQ_PARK : rc;
}

static int take_some(struct report_walk *w, struct blocks *bs, struct storage *st)
{
	struct block b;
	uint32_t state;
	int rc;

	for (; w->left > 0; w->left -= COST_TAKE) {
		rc = block_report_next(&w->rd, &b, &state);
		if (rc <= 0)
			return rc;
		if (state > REPLICA_RWR)
			continue; /* nothing a node should report; not ours to judge */
		w->count++;
		blocks_report(bs, st, &b, state, w->first, st->report_seq);
	}
	return REQ_PARK;
}

static struct storage *storage_of(struct dn *dn, const Hd__DatanodeStorageProto *d)
{
	return dn_storage_add(dn, d->storageuuid,
			      d->has_storagetype ? (enum storage_type)d->storagetype
						 : STORAGE_DISK);
}

static void next_storage(struct report_walk *w)
{
	w->at++;
	w->taking = false;
	w->rd.done = 0;
}

static void end_storage(struct req *q, const struct dn *dn, struct storage *st)
{
	struct report_walk *w = q->report;

	blocks_report_end(&q->nn->blocks, st);
	log_info("op=block_report datanode=%s storage=%s replicas=%llu first=%d", dn->uuid, st->id,
		 (unsigned long long)w->count, w->first);
	next_storage(w);
}

/* A slice of one storage's list; REQ_PARK: there is more. */
static int take_storage_blocks(struct req *q, struct dn *dn, const Hdd__StorageBlockReportProto *p)
{
	struct storage *st = storage_of(dn, p->storage);
	struct report_walk *w = q->report;
	int rc;

	w->left -= COST_STORAGE;
	if (!st)
		return exception_throw(&q->exception, EXC_IO,
				       "storage id %.80s is refused: empty, too long, or "
				       "more than %d storages",
				       p->storage->storageuuid, DN_STORAGES_MAX);
	if (st->failed) { /* after the list was made */
		next_storage(w);
		return 0;
	}
	if (w->taking) {
		rc = take_some(w, &q->nn->blocks, st);
		if (!rc)
			end_storage(q, dn, st);
		return rc;
	}
	if (!w->rd.done)
		w->rd = block_report_rd(p);
	rc = check_some(w);
	if (rc < 0)
		return exception_throw(&q->exception, EXC_IO,
				       "block report of storage %s is malformed", st->id);
	if (rc > 0)
		return rc;
	w->rd = block_report_rd(p);
	w->taking = true;
	w->first = !st->report_seq;
	w->count = 0;
	blocks_report_begin(&q->nn->blocks, st);
	return 0;
}

static int check_report_lease(struct req *q, struct dn *dn, const Hdd__BlockReportContextProto *c)
{
	const uint64_t id = c && c->has_leaseid ? c->leaseid : 0;

	if (!id)
		return 0; /* a manual trigger, or a simple node */
	if (dn->lease_id != id || dn->lease_until_ns < clock_mono_ns())
		return exception_throw(
			&q->exception, EXC_BAD_REPORT_LEASE,
			"Block report from %s was rejected as its lease id 0x%llx is not "
			"or no longer valid",
			dn->uuid, (unsigned long long)id);
	if (c->currpc + 1 >= c->totalrpcs)
		dn->lease_id = 0;
	return 0;
}

/* A node's reports are taken one after another: news that come behind a list are newer. */
static bool must_wait(const struct req *q, const struct dn *dn)
{
	return dn->reporting && dn->reporting != q;
}

/* What it said before may not hold any more. */
static int registered_anew(struct req *q, const struct dn *dn)
{
	return exception_throw(
		&q->exception, EXC_IO,
		"Data node %s has registered again while its block report was taken: it reports "
		"once more",
		dn->uuid);
}

/* A slice of a full report; REQ_PARK: there is more. */
static int take_report(struct req *q, struct dn *dn, const Hdd__BlockReportRequestProto *m)
{
	int rc = 0, steps = 0;

	if (!q->report) {
		rc = check_report_lease(q, dn, m->context);
		if (rc < 0)
			return rc;
		q->report = xcalloc(1, sizeof(*q->report));
		dn->reporting = q;
	} else if (dn->reporting != q) {
		return registered_anew(q, dn);
	}
	q->report->left = REPORT_STEP;
	while (q->report->at < m->n_reports && !rc) {
		rc = q->report->left > 0 ? take_storage_blocks(q, dn, m->reports[q->report->at])
					 : REQ_PARK;
		if (rc != REQ_PARK || ++steps == REPORT_STEPS || nn_slice_is_over(q->nn))
			continue;
		q->report->left = REPORT_STEP;
		rc = 0;
	}
	if (rc != REQ_PARK)
		dn->reporting = NULL;
	return rc;
}

int datanode_block_report(struct req *q, const void *in)
{
	const Hdd__BlockReportRequestProto *m = in;
	Hdd__BlockReportResponseProto *r =
		req_reply(q, Hdd__BlockReportResponseProto, hdd__block_report_response_proto__init);
	struct dn *dn;
	int rc = datanode_find(q, m->registration, &dn);

	rc = rc ? rc : datanode_check_pool(q, m->blockpoolid);
	if (rc < 0)
		return rc;
	if (!dn) {
		r->cmd = dn_command_register(q);
		return 0;
	}
	if (must_wait(q, dn))
		return REQ_PARK;
	rc = take_report(q, dn, m);
	if (rc)
		return rc; /* REQ_PARK, too */
	dn->report_ms = clock_wall_ms();
	dn->report_ns = clock_mono_ns();
	r->cmd = dn_command(q, HDD__DATANODE_COMMAND_PROTO__TYPE__FinalizeCommand);
	r->cmd->finalizecmd =
		req_new_msg(q, Hdd__FinalizeCommandProto, hdd__finalize_command_proto__init);
	r->cmd->finalizecmd->blockpoolid = arena_strdup(&q->mem, q->nn->db->ident.pool_id);
	return 0;
}

/* A promised block has arrived: it takes what it needs, no longer the size that it might have had.
 * Without this thousands of small files between two heartbeats would seem to fill the disk. */
static void keep_promise(struct storage *st, uint64_t len)
{
	if (!st->promised_blocks)
		return;
	st->promised -= st->promised / st->promised_blocks;
	st->promised_blocks--;
	st->remaining -= len < st->remaining ? len : st->remaining;
}

static void take_news(struct nn *nn, struct storage *st,
		      const Hdd__ReceivedDeletedBlockInfoProto *p)
{
	const struct block b = {(int64_t)p->block->blockid, p->block->genstamp,
				p->block->has_numbytes ? p->block->numbytes : 0};
	const struct dn *from;

	switch (p->status) {
	case HDD__RECEIVED_DELETED_BLOCK_INFO_PROTO__BLOCK_STATUS__RECEIVING:
		blocks_report(&nn->blocks, st, &b, REPLICA_RBW, false, 0);
		break;
	case HDD__RECEIVED_DELETED_BLOCK_INFO_PROTO__BLOCK_STATUS__RECEIVED:
		from = p->deletehint && *p->deletehint ? datanodes_find(&nn->dns, p->deletehint)
						       : NULL;
		blocks_report_moved(&nn->blocks, st, &b, from);
		keep_promise(st, b.len);
		break;
	case HDD__RECEIVED_DELETED_BLOCK_INFO_PROTO__BLOCK_STATUS__DELETED:
		blocks_report_deleted(&nn->blocks, st, b.id, b.gs);
		break;
	case _HDD__RECEIVED_DELETED_BLOCK_INFO_PROTO__BLOCK_STATUS_IS_INT_SIZE:
		break;
	}
}

static struct storage *storage_with_news(struct dn *dn,
					 const Hdd__StorageReceivedDeletedBlocksProto *s)
{
	const Hd__DatanodeStorageProto *d = s->storage;

	return dn_storage_add(dn, d ? d->storageuuid : s->storageuuid,
			      d && d->has_storagetype ? (enum storage_type)d->storagetype
						      : STORAGE_DISK);
}

/* A slice of an incremental report; REQ_PARK: there is more. */
static int take_all_news(struct req *q, struct dn *dn,
			 const Hdd__BlockReceivedAndDeletedRequestProto *m)
{
	for (uint32_t done = 0; q->at < m->n_blocks; done++) {
		const Hdd__StorageReceivedDeletedBlocksProto *s = m->blocks[q->at];
		struct storage *st;

		if (nn_slice_is_done(q->nn, done))
			return REQ_PARK;
		st = storage_with_news(dn, s);
		if (st && q->within < s->n_blocks) {
			take_news(q->nn, st, s->blocks[q->within++]);
		} else {
			q->at++;
			q->within = 0;
		}
	}
	return 0;
}

int datanode_block_received_and_deleted(struct req *q, const void *in)
{
	const Hdd__BlockReceivedAndDeletedRequestProto *m = in;
	struct dn *dn;
	int rc = datanode_find(q, m->registration, &dn);

	req_reply(q, Hdd__BlockReceivedAndDeletedResponseProto,
		  hdd__block_received_and_deleted_response_proto__init);
	rc = rc ? rc : datanode_check_pool(q, m->blockpoolid);
	if (!rc && !dn)
		rc = datanode_unregistered(q, m->registration);
	if (rc < 0)
		return rc;
	if (must_wait(q, dn))
		return REQ_PARK;
	if (!q->at && !q->within)
		dn->reporting = q;
	else if (dn->reporting != q)
		return registered_anew(q, dn);
	rc = take_all_news(q, dn, m);
	if (rc != REQ_PARK)
		dn->reporting = NULL;
	return rc;
}

/* ---- blocks cached ---- */

/* A slice of its list; REQ_PARK: there is more. */
int datanode_cache_report(struct req *q, const void *in)
{
	const Hdd__CacheReportRequestProto *m = in;
	struct dn *dn;
	int rc = datanode_find(q, m->registration, &dn);

	req_reply(q, Hdd__CacheReportResponseProto, hdd__cache_report_response_proto__init);
	rc = rc ? rc : datanode_check_pool(q, m->blockpoolid);
	if (!rc && !dn)
		rc = datanode_unregistered(q, m->registration);
	if (rc < 0 || !q->nn->set.caching)
		return rc;
	if (!q->within)
		q->within = cache_report_begin(dn);
	else if (q->within != dn->cache_report)
		return 0; /* a newer one has begun */
	for (uint32_t done = 0; q->at < m->n_blocks; done++) {
		if (nn_slice_is_done(q->nn, done))
			return REQ_PARK;
		cache_report_block(q->nn, dn, (int64_t)m->blocks[q->at++]);
	}
	cache_report_end(q->nn, dn);
	return 0;
}
