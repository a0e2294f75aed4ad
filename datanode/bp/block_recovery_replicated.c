/* SPDX-License-Identifier: Apache-2.0 */
/* Block recovery of a replicated block (hdfs-wire 8.4): which of its holders take part, and the
 * length all are brought to. */
#include "datanode/bp/block_recovery_internal.h"

#include <errno.h>
#include <inttypes.h>

/* Ask everybody. -EBUSY: another recovery is ahead of us. -EAGAIN: who has the bytes could not be
 * asked; the NameNode gives the order anew, without the nodes that it knows dead by then. */
static int ask_all(struct recovery_job *j, struct err *err)
{
	uint32_t failed = 0, found_any = 0, usable = 0;

	for (uint32_t i = 0; i < j->count && !j->set->stop; i++) {
		struct holder *h = &j->holders[i];
		bool found = false;
		int rc = holder_init(j, h, &found, err);

		if (rc == -EBUSY)
			return rc;
		if (rc) {
			failed++;
			*err = ERR_INIT;
			continue;
		}
		if (!found || h->block.gs < j->block.gs || !h->block.len)
			continue;
		found_any++;
		h->candidate = h->state <= REPLICA_RWR;
		usable += h->candidate;
	}
	if (failed == j->count)
		return err_set(err, -EHOSTUNREACH, "no node answers");
	if (found_any && !usable)
		return err_set(err, -EAGAIN, "%u replicas, but none is FINALIZED, RBW or RWR",
			       found_any);
	/* Who is away may have the bytes; a Java node drops the block here, and what they have with
	 * it. */
	if (failed && !usable)
		return err_set(
			err, -EAGAIN,
			"%u of %u nodes do not answer, and no other has a replica: the NameNode orders it again; "
			"start them or, if they are lost for good, delete the file",
			failed, j->count);
	return 0;
}

/* Who takes part, and the length all are brought to. All of a block had arrived where it is
 * FINALIZED, so of two lengths, under one stamp or several, the longest counts: a power cut has
 * shortened the others. Several stamps are left by earlier recoveries whose end the NameNode did
 * not hear of: each has finalized the replicas that it could reach. A try of a truncate that failed
 * half way leaves a short replica under the old stamp, and all are cut then. */
static int agree(struct recovery_job *j, uint64_t *ret_len, struct err *err)
{
	enum replica_state best = REPLICA_TEMPORARY;
	uint64_t shortest = UINT64_MAX, longest = 0, len;

	for (uint32_t i = 0; i < j->count; i++)
		if (j->holders[i].candidate && j->holders[i].state < best)
			best = j->holders[i].state;
	for (uint32_t i = 0; i < j->count; i++) {
		const struct holder *h = &j->holders[i];

		if (!h->candidate || h->state != best)
			continue;
		shortest = h->block.len < shortest ? h->block.len : shortest;
		longest = h->block.len > longest ? h->block.len : longest;
	}
	len = best == REPLICA_FINALIZED && !j->truncate ? longest : shortest;
	for (uint32_t i = 0; i < j->count; i++) {
		struct holder *h = &j->holders[i];

		h->participant =
			h->candidate &&
			(h->state == best ? h->block.len >= len
					  : best == REPLICA_FINALIZED && h->state == REPLICA_RBW &&
						    h->block.len == len);
	}
	if (j->truncate && len < j->cut_len)
		return err_set(err, -EIO, "replicas have %" PRIu64 " bytes, truncating to %" PRIu64,
			       len, j->cut_len);
	*ret_len = j->truncate ? j->cut_len : len;
	return 0;
}

static int update_all(struct recovery_job *j, uint64_t len, struct err *err)
{
	uint32_t ok = 0;

	for (uint32_t i = 0; i < j->count && !j->set->stop; i++) {
		struct holder *h = &j->holders[i];

		if (h->participant)
			ok += holder_update(j, h, len, j->new_id, err) == 0;
	}
	return ok ? 0 : err_set(err, -EIO, "no replica could be brought to %" PRIu64 " bytes", len);
}

static int commit(struct recovery_job *j, uint64_t len, bool delete, struct err *err)
{
	const struct holder *targets[LOCS_MAX];
	size_t n = 0;

	for (uint32_t i = 0; i < j->count; i++)
		if (j->holders[i].updated)
			targets[n++] = &j->holders[i];
	return recovery_commit(j, len, delete, targets, n, err);
}

int recover_replicated(struct recovery_job *j, uint64_t *ret_len, struct err *err)
{
	bool any = false;
	int rc = ask_all(j, err);

	*ret_len = 0;
	for (uint32_t i = 0; i < j->count; i++)
		any = any || j->holders[i].candidate;
	if (rc || j->set->stop)
		return rc ? rc : -ECANCELED;
	if (!any)
		return commit(j, 0, true, err);
	rc = agree(j, ret_len, err);
	if (!rc)
		rc = update_all(j, *ret_len, err);
	return rc ? rc : commit(j, *ret_len, false, err);
}
