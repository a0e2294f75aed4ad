/* SPDX-License-Identifier: Apache-2.0 */
/* writer_block - blocks of a file being written: allocation, pipelines, their repair; writer.h */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "client/src/stream/dtp.h"
#include "client/src/write/writer.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/pb.h"

/* for so long the nodes of a first block are as good as any */
#define FIRST_FRESH_NS (60 * NS_PER_S)
#define RECOVERIES_MAX 5 /* without an ack in between, as the stock client */
/* RDMA connections that may break under a block: each costs a new stamp, and a node has so many
 * addresses. One that the client ended for another stream's sake counts, too. */
#define BREAKS_MAX 5

/* Only the first node is spoken to; what another one failed with is hearsay. */
static void heard(struct writer *w, int bad, int rc)
{
	if (bad == 0)
		output_heard(&w->f, rc);
}

/* Out of the pipeline and not to be offered again. @why: of that. */
static int blame(struct writer *w, size_t i, const struct err *why, struct err *err)
{
	Hd__DatanodeInfoProto *node = located_remove(w->pipe.lb, i);
	char text[NET_TEXT_MAX];

	log_debug("op=blame node=%s: %s", node_text(node->id, text), why ? why->text : "");
	return output_blame(&w->f, node, false, err);
}

/* The same, for a pipeline that was not set up: in a chain, a node may only pass on what another
 * one did. */
static int blame_opening(struct writer *w, size_t i, const struct err *why, struct err *err)
{
	const bool chain = w->pipe.lb->n_locs > 1;
	const int rc = blame(w, i, why, err);

	if (rc == 0 && chain)
		suspect_nodes_doubt(&w->f.blamed);
	return rc;
}

void writer_drop_block(struct writer *w)
{
	pb_free(w->pipe.lb);
	w->pipe.lb = NULL;
	pipeline_reset(&w->pipe);
	w->stage = WRITER_IDLE;
	w->ragged_end = 0;
	w->flushed = w->fsync_done = w->reopened = false;
}

int writer_persist(struct writer *w, struct err *err)
{
	int rc;

	if (w->fsync_done)
		return 0;
	rc = output_fsync(&w->f, w->stage == WRITER_IDLE ? w->f.block_len : w->pipe.acked_end, err);
	w->fsync_done = rc == 0;
	return rc;
}

/* ---- a new block ---- */

static int open_stream(struct writer *w, enum dt_stage stage, uint64_t latest_gs, int *ret_bad,
		       struct err *err)
{
	const Hd__ExtendedBlockProto block = output_block_at(&w->f, w->block_size);

	w->pipe.sync_later = w->f.close_early;
	return pipeline_open(&w->pipe, &block, stage, latest_gs, ret_bad, err);
}

/* The one that came with the file, when its nodes were chosen a moment ago; else another one. */
static int next_block(struct writer *w, bool *ret_first, struct err *err)
{
	Hd__LocatedBlockProto *first = w->first;

	*ret_first = false;
	if (!first)
		return output_add_block(&w->f, &w->pipe.lb, err);
	w->first = NULL;
	w->f.has_unused = false;
	if (clock_mono_ns() - w->first_ns < FIRST_FRESH_NS) {
		w->pipe.lb = first;
		*ret_first = true;
		return 0;
	}
	output_abandon(&w->f, first->b);
	pb_free(first);
	return output_add_block(&w->f, &w->pipe.lb, err);
}

/* The pipeline of a first block is not waited for: most files are so small that their bytes come
 * with the close. */
static int set_up(struct writer *w, bool first, int *ret_bad, struct err *err)
{
	const Hd__ExtendedBlockProto block = output_block_at(&w->f, w->block_size);
	int rc;

	w->pipe.sync_later = w->f.close_early;
	if (!first)
		return pipeline_open(&w->pipe, &block, DT_SETUP_CREATE, 0, ret_bad, err);
	rc = pipeline_start(&w->pipe, &block, DT_SETUP_CREATE, 0, ret_bad, err);
	w->pipe.run_ahead = rc == 0 && w->pipe.ws->ops->runs_ahead;
	return rc;
}

/* *@ret_broke: no node has failed; another block is to be tried, with the same ones perhaps. */
static int open_one(struct writer *w, bool *ret_broke, struct err *err)
{
	const Hd__ExtendedBlockProto before = w->f.block;
	const struct finished_block finished = {w->f.has_block, before.blockid,
						before.generationstamp, w->f.block_len};
	bool first;
	int bad = 0, rc = next_block(w, &first, err);

	*ret_broke = false;
	rc = rc ?: located_check(w->pipe.lb, true, err);
	if (rc < 0)
		return rc;
	w->f.block = *w->pipe.lb->b; /* `previous` stays valid until the pipeline stands */
	rc = set_up(w, first, &bad, err);
	if (rc == 0) {
		w->finished = finished;
		return output_set_block(&w->f, w->pipe.lb->b, err);
	}
	w->f.block = before;
	heard(w, bad, rc);
	output_abandon(&w->f, w->pipe.lb->b);
	*ret_broke = bad < 0;
	if (bad >= 0 && rc != -ENOMEM && rc != -EMFILE && rc != -ENFILE) /* these are ours */
		/* without the memory we may meet it again */
		(void)blame_opening(w, (size_t)bad, err, NULL);
	return rc;
}

/* The first cause says more than what stopped the repair; a person wants both. */
static void add_cause(struct err *err, const char *cause)
{
	if (!strstr(err->text, cause))
		(void)err_cure(err, "the pipeline broke because: %.200s", cause);
}

/* The block is nowhere: @no_rdma, of a node without RDMA where it is required, says more than the
 * NameNode, which has no other node. But @other, of the first node that failed otherwise, is what
 * happened. */
static int give_up(int rc, const struct err *no_rdma, const struct err *other, struct err *err)
{
	if (no_rdma->rc)
		rc = other->rc ? other->rc : no_rdma->rc;
	if (no_rdma->rc && err)
		*err = *no_rdma;
	if (other->rc && err)
		add_cause(err, other->text);
	if (err)
		err->rc = rc;
	return rc;
}

int writer_open_block(struct writer *w, struct err *err)
{
	struct err no_rdma = ERR_INIT, other = ERR_INIT;
	int rc;

	assert(w->stage == WRITER_IDLE && !w->pipe.ws);
	for (uint32_t tries = 0;; tries++) {
		const uint64_t failures = w->f.blamed.failures;
		bool broke;

		rc = open_one(w, &broke, err);
		if (rc == 0)
			break;
		writer_drop_block(w);
		if (broke && tries < w->f.fs->set.block_write_retries)
			continue;
		if (rc == -ENOTSUP && err)
			no_rdma = *err;
		else if (w->f.blamed.failures != failures && !other.rc && err)
			other = *err;
		/* a node that failed is another try; anything else is the NameNode's last word */
		if ((w->f.blamed.failures == failures && rc != -ENOSPC) || w->f.blamed.n_out == 0 ||
		    tries == w->f.fs->set.block_write_retries)
			return give_up(rc, &no_rdma, &other, err);
		if (rc == -ENOSPC) /* all others are excluded: they may be back */
			suspect_nodes_forgive(&w->f.blamed);
	}
	w->f.has_block = true;
	w->f.node_refused = false;
	w->stage = WRITER_STREAMING;
	return 0;
}

/* ---- repair, hdfs-wire 8.1 ---- */

/* Is the pipeline so short, or the data so dear, that a node must be added? */
static bool wants_node(const struct writer *w)
{
	const struct settings *s = &w->f.fs->set;
	const size_t left = w->pipe.lb->n_locs;

	if (!s->replace_enable || s->replace_policy == REPLACE_NEVER ||
	    w->stage == WRITER_CLOSING || left >= w->replication)
		return false;
	if (s->replace_policy == REPLACE_ALWAYS)
		return true;
	return w->replication >= 3 && (left <= w->replication / 2 || w->flushed);
}

/* The node of @more that is not in the pipeline yet, or -1. */
static int find_new(const Hd__LocatedBlockProto *have, const Hd__LocatedBlockProto *more)
{
	for (size_t i = 0; i < more->n_locs; i++) {
		bool known = false;

		for (size_t k = 0; k < have->n_locs && !known; k++)
			known = strcmp(more->locs[i]->id->datanodeuuid,
				       have->locs[k]->id->datanodeuuid) == 0;
		if (!known)
			return (int)i;
	}
	return -1;
}

/* One more node at the end of @lb, out of @more, whose token is fresh. The rest of @more does not
 * matter: a NameNode that has just started leaves out nodes that it does not know yet. */
static int take_new(Hd__LocatedBlockProto *lb, Hd__LocatedBlockProto *more, struct err *err)
{
	Hc__TokenProto *const token = lb->blocktoken;
	const int at = lb->n_locs < LOCATED_NODES_MAX ? find_new(lb, more) : -1;

	if (at < 0)
		return err_set(err, -ENOSPC,
			       "no further data node for a pipeline of %zu; start data nodes, or "
			       "set dfs.client.block.write.replace-datanode-on-failure.best-effort"
			       "=true",
			       lb->n_locs);
	if (located_move(lb, more, (size_t)at) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	lb->blocktoken = more->blocktoken;
	more->blocktoken = token;
	return 0;
}

/* One more node, with a copy of what the others have. */
static int add_node(struct writer *w, struct err *err)
{
	const Hd__ExtendedBlockProto b = output_block_at(&w->f, w->pipe.acked_end);
	const size_t at = w->pipe.lb->n_locs, from = at - 1;
	Hd__LocatedBlockProto *more = NULL;
	bool from_bad;
	int rc = output_additional(&w->f, w->pipe.lb, w->pipe.acked_end, &more, err);

	if (rc == 0)
		rc = take_new(w->pipe.lb, more, err);
	pb_free(more);
	if (rc < 0)
		return rc;
	rc = dtp_transfer(w->f.fs, w->pipe.lb, &b, from, at, &from_bad, err);
	if (rc < 0 && from_bad) /* the new node waits for its next chance */
		pb_free(located_remove(w->pipe.lb, at));
	if (rc < 0)
		(void)blame(w, from_bad ? from : at, err, NULL);
	return rc;
}

static int lengthen(struct writer *w, struct err *err)
{
	struct err why;
	int rc = 0;

	for (uint32_t i = 0; i <= w->f.fs->set.block_write_retries; i++) {
		if (w->pipe.lb->n_locs == 0 || !wants_node(w))
			break;
		err_reset(&why);
		rc = add_node(w, &why);
		if (rc == 0 || rc == -ENOSPC)
			break;
	}
	if (rc < 0 && !w->f.fs->set.replace_best_effort) {
		*err = why;
		return rc;
	}
	return 0;
}

/* The answer's token goes with the new stamp. */
static int new_stamp(struct writer *w, uint64_t *ret_gs, struct err *err)
{
	Hd__LocatedBlockProto *m, *lb = w->pipe.lb;
	Hc__TokenProto *token;
	int rc = output_new_stamp(&w->f, w->pipe.acked_end, &m, err);

	if (rc < 0)
		return rc;
	*ret_gs = m->b->generationstamp;
	token = m->blocktoken;
	m->blocktoken = lb->blocktoken;
	lb->blocktoken = token;
	pb_free(m);
	return 0;
}

static int update_pipeline(struct writer *w, uint64_t gs, struct err *err)
{
	const Hd__LocatedBlockProto *lb = w->pipe.lb;
	Hd__DatanodeIDProto *ids[LOCATED_NODES_MAX];

	for (size_t i = 0; i < lb->n_locs; i++)
		ids[i] = lb->locs[i]->id;
	return output_update_pipeline(&w->f, w->pipe.acked_end, gs, ids, lb->storageids, lb->n_locs,
				      err);
}

/* What the nodes are asked for. Once some of them have begun an append, their replicas are no
 * longer finalised ones with the old stamp, and only the recovery of an append takes them. */
static enum dt_stage repair_stage(const struct writer *w)
{
	if (w->stage == WRITER_REOPENING)
		return w->f.blamed.failures ? DT_SETUP_APPEND_RECOVERY : DT_SETUP_APPEND;
	if (w->stage != WRITER_CLOSING)
		return DT_SETUP_STREAMING_RECOVERY;
	/* or the nodes would close less than the block */
	assert(w->pipe.acked_end == w->pipe.queued_end);
	return DT_CLOSE_RECOVERY;
}

/* One attempt with the nodes that are left. @ret_bad: the node that spoilt it, or -1 when it was
 * not a node's fault. */
static int rebuild(struct writer *w, int *ret_bad, struct err *err)
{
	uint64_t gs = 0;
	int rc;

	*ret_bad = -1;
	rc = lengthen(w, err);
	if (rc == 0 && w->pipe.lb->n_locs == 0)
		rc = err_set(err, -EIO, "all data nodes of the pipeline failed");
	rc = rc ?: new_stamp(w, &gs, err);
	if (rc < 0)
		return rc;
	rc = open_stream(w, repair_stage(w), gs, ret_bad, err);
	if (rc < 0)
		return rc;
	*ret_bad = -1;
	return update_pipeline(w, gs, err);
}

static int count_recovery(struct writer *w, struct err *err)
{
	const struct packet *first = container_of(w->pipe.queue.next, struct packet, link);
	const int64_t seqno = list_empty(&w->pipe.queue) ? w->pipe.seqno : first->seqno;

	if (seqno != w->stuck_seqno)
		w->stuck_count = 0;
	w->stuck_seqno = seqno;
	if (++w->stuck_count > RECOVERIES_MAX)
		return err_prefix(err, "%d pipelines in a row failed", RECOVERIES_MAX);
	return 0;
}

/* Nothing of the block is acknowledged, and all of it is here. */
static bool is_all_here(const struct writer *w)
{
	return w->pipe.opening ||
	       (w->stage == WRITER_CLOSING && w->pipe.acked_end == 0 && w->pipe.queued_end > 0);
}

/* The block is given back, whatever the nodes have of it, and its packets go to another one.
 * @cause: what became of this one. */
static int replace_block(struct writer *w, const char *cause, struct err *err)
{
	const uint64_t queued_end = w->pipe.queued_end;
	const bool flushed = w->flushed, closing = w->stage == WRITER_CLOSING;
	int rc;

	output_abandon(&w->f, &w->f.block);
	w->f.has_block = w->finished.there;
	if (w->finished.there) {
		w->f.block.blockid = w->finished.id;
		w->f.block.generationstamp = w->finished.gs;
		w->f.block_len = w->finished.len;
	}
	writer_drop_block(w);
	err_reset(err);
	rc = writer_open_block(w, err);
	w->pipe.queued_end = queued_end;
	w->flushed = flushed;
	if (rc < 0) {
		add_cause(err, cause);
	} else if (closing) {
		w->stage = WRITER_CLOSING;
		w->pipe.closing = true;
	}
	return rc;
}

/* @bad: as of writer_recover(), or -1 when no node has failed. */
static int begin_again(struct writer *w, int bad, struct err *err)
{
	/* A first node that refuses may hang up on packets that it has not read, before it is heard
	 * whom it blames. */
	const bool hung_up = w->pipe.opening && !list_empty(&w->pipe.unacked) &&
			     (err->rc == -ECONNRESET || err->rc == -EPIPE);
	char cause[200];
	int rc;

	snprintf(cause, sizeof(cause), "%.199s", err->text);
	pipeline_requeue(&w->pipe);
	heard(w, bad, err->rc);
	rc = count_recovery(w, err);
	if (rc == 0 && bad >= 0 && !hung_up && err->rc != -ENOMEM)
		rc = w->pipe.opening ? blame_opening(w, (size_t)bad, err, err)
				     : blame(w, (size_t)bad, err, err);
	return rc ?: replace_block(w, cause, err);
}

/* Where a pipeline sits still, or is not set up in time, any of its nodes may be to blame. So it is
 * where the first node refuses the set-up, for it may pass on a refusal. It is the first one that
 * goes, and all of them are kept in *@suspects but those that fail beyond doubt. */
static void suspect(const struct writer *w, int bad, bool setup, const struct err *err,
		    Hd__LocatedBlockProto **suspects)
{
	const Hd__LocatedBlockProto *lb = w->pipe.lb;
	const bool guess = err->rc == -ETIMEDOUT || (setup && bad == 0 && err->rc == -EIO);

	if (!guess || lb->n_locs == 1) {
		if (*suspects)
			located_forget(*suspects, lb->locs[bad]->id);
	} else if (!*suspects) {
		*suspects = located_copy(lb);
	}
}

/* Nobody is left in the pipeline: those who went on a guess have their second chance. */
static bool call_back(struct writer *w, Hd__LocatedBlockProto **suspects)
{
	if (!*suspects || (*suspects)->n_locs == 0)
		return false;
	pb_free(w->pipe.lb);
	w->pipe.lb = *suspects;
	*suspects = NULL;
	return true;
}

/* All nodes of the pipeline failed. If nothing of the block is acknowledged, all of it is in the
 * queue and another block serves as well. @answered: one of the nodes failed otherwise than by
 * silence. Where all are silent, the waits for them would only begin again. */
static bool is_replaceable(const struct writer *w, bool answered)
{
	return w->pipe.lb->n_locs == 0 && w->stage != WRITER_REOPENING && w->pipe.acked_end == 0 &&
	       w->pipe.queued_end > 0 && (answered || suspect_nodes_in_doubt(&w->f.blamed));
}

static int all_failed(int why, const char *cause, struct err *err)
{
	err_prefix(err, "all data nodes of the pipeline failed, the last one");
	add_cause(err, cause);
	err_cure(err, "look at the node that failed first; see dfs admin report");
	return node_is_away(why) ? -ETIMEDOUT : why == -ENOTSUP ? why : -EIO;
}

int writer_recover(struct writer *w, int bad, struct err *err)
{
	Hd__LocatedBlockProto *suspects = NULL;
	bool called_back = false, setup = false, answered = false;
	char cause[200];
	int rc;

	if (is_all_here(w))
		return begin_again(w, bad, err);
	snprintf(cause, sizeof(cause), "%.199s", err->text);
	pipeline_requeue(&w->pipe);
	rc = count_recovery(w, err);
	while (rc == 0) {
		const bool untried = setup && w->pipe.acked_end == 0;
		const int why = err->rc < 0 ? err->rc : -EIO;

		pipeline_close_stream(&w->pipe);
		answered |= why != -ETIMEDOUT;
		if (!called_back)
			suspect(w, bad, setup, err, &suspects);
		rc = blame(w, (size_t)bad, err, err);
		if (rc < 0)
			break;
		/* it may never have been asked to begin the replica that it is to recover */
		if (untried)
			suspect_nodes_doubt(&w->f.blamed);
		if (w->pipe.lb->n_locs == 0 && !(called_back = call_back(w, &suspects))) {
			pb_free(suspects);
			return is_replaceable(w, answered) ? replace_block(w, cause, err)
							   : all_failed(why, cause, err);
		}
		rc = rebuild(w, &bad, err);
		setup = true;
		if (rc < 0 && bad >= 0)
			rc = 0; /* without that node, then */
		else
			break;
	}
	pb_free(suspects);
	if (rc < 0 && is_replaceable(w, answered))
		return replace_block(w, cause, err);
	w->fsync_done = w->fsync_done && rc < 0; /* the NameNode must hear of the new stamp */
	if (rc < 0)
		add_cause(err, cause);
	else if (w->stage ==
		 WRITER_CLOSING) /* the nodes have finalised the block: its last packet */
		pipeline_drop_all(&w->pipe); /* need not be sent */
	return rc;
}

int writer_go_round(struct writer *w, struct err *err)
{
	int bad = -1, rc;

	if (w->f.fs->set.rdma == RDMA_REQUIRE) {
		w->f.refused = true;
		return -ENOBUFS;
	}
	/* there may be memory of another size, which this packet does not want */
	if (!w->pipe.ws->broke || ++w->breaks >= BREAKS_MAX)
		w->pipe.by_tcp = true;
	if (is_all_here(w)) /* the nodes have none of it, and would be asked to finish it */
		return begin_again(w, -1, err);
	rc = count_recovery(w, err);
	pipeline_requeue(&w->pipe);
	pipeline_close_stream(&w->pipe);
	rc = rc ?: rebuild(w, &bad, err);
	if (rc < 0 && bad >= 0)
		rc = writer_recover(w, bad, err);
	else if (rc == 0 && w->stage == WRITER_CLOSING) /* as there: they have finalised it */
		pipeline_drop_all(&w->pipe);
	w->fsync_done = w->fsync_done && rc < 0; /* the NameNode must hear of the new stamp */
	return rc;
}

/* ---- append ---- */

/* The last block is taken over where it ends. */
static int reopen_block(struct writer *w, struct err *err)
{
	const uint64_t len = w->f.block_len;
	int bad, rc = located_check(w->pipe.lb, true, err);

	if (rc < 0)
		return rc;
	/* whether it is on the disk, nobody knows: synced_end stays 0 */
	w->pipe.queued_end = w->pipe.sent_end = w->pipe.acked_end = len;
	w->reopened = true;
	if (len % w->pipe.bpc)
		w->ragged_end = len - len % w->pipe.bpc + w->pipe.bpc;
	w->flushed = true; /* it holds bytes that somebody relies on: the pipeline is kept long */
	w->stage = WRITER_REOPENING;
	rc = rebuild(w, &bad, err);
	if (rc < 0 && bad >= 0)
		rc = writer_recover(w, bad, err);
	if (rc == 0)
		w->stage = WRITER_STREAMING;
	return rc;
}

int writer_reopen(struct writer *w, Hd__LocatedBlockProto *lb, uint64_t length, struct err *err)
{
	int rc = 0;

	pthread_mutex_lock(&w->f.lock);
	w->f.length = w->file_done = length;
	w->pipe.lb = lb;
	if (lb) {
		rc = output_set_block(&w->f, lb->b, err);
		w->f.has_block = rc == 0;
		w->f.block_len = lb->b->numbytes;
	}
	if (rc == 0 && lb && w->f.block_len > length)
		rc = err_set(err, -EPROTO, "a last block of %llu bytes in a file of %llu",
			     (unsigned long long)w->f.block_len, (unsigned long long)length);
	if (rc == 0 && lb && lb->n_locs > 0) {
		w->file_done -= w->f.block_len;
		rc = reopen_block(w, err);
	} else {
		pb_free(lb);
		w->pipe.lb = NULL;
	}
	pthread_mutex_unlock(&w->f.lock);
	return rc;
}
