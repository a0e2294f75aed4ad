/* SPDX-License-Identifier: Apache-2.0 */
/* writer_block - blocks of a file being written: allocation, pipelines, their repair; writer.h */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/src/dtp.h"
#include "client/src/writer.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"
#include "ClientNamenodeProtocol.pb-c.h"

#define RECOVERIES_MAX 5                /* without an ack in between, as the stock client */
#define COMPLETE_PATIENCE_NS (60 * NS_PER_S) /* until the last block must be reported */
#define NAMENODE_PATIENCE_NS (60 * NS_PER_S) /* with safe mode, and blocks not yet reported */
#define FAILED_MAX 64                   /* nodes excluded at one time */
#define LOG_NODES_MAX 16                /* of a pipeline, named in the log */
#define POLL_FIRST_NS (1 * NS_PER_MS)
#define POLL_MAX_NS (1000 * NS_PER_MS)

static void sleep_ns(uint64_t ns)
{
	struct timespec ts = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};

	(void)nanosleep(&ts, NULL); /* an early end is fine: the caller looks again */
}

/* Sleep, a little longer each time. False when @deadline_ns has passed. */
static bool poll_pause(uint64_t *pause_ns, uint64_t deadline_ns)
{
	if (clock_mono_ns() >= deadline_ns)
		return false;
	sleep_ns(*pause_ns);
	*pause_ns = *pause_ns * 2 < POLL_MAX_NS ? *pause_ns * 2 : POLL_MAX_NS;
	return true;
}

/* The block as requests name it, with @len. */
static Hd__ExtendedBlockProto block_at(const struct writer *w, uint64_t len)
{
	Hd__ExtendedBlockProto b = w->block;

	b.has_numbytes = 1;
	b.numbytes = len;
	return b;
}

void writer_forgive(struct writer *w)
{
	for (size_t i = 0; i < w->failed_count; i++)
		pb_free(w->failed[i]);
	w->failed_count = 0;
}

/* Out of the pipeline and not to be offered again. */
static int blame(struct writer *w, size_t i, struct err *err)
{
	if (!w->failed)
		w->failed = calloc(FAILED_MAX, sizeof(w->failed[0]));
	if (!w->failed)
		return err_set(err, -ENOMEM, "out of memory");
	if (w->failed_count == FAILED_MAX) /* a long life on shaky nodes: begin anew */
		writer_forgive(w);
	w->failed[w->failed_count++] = located_remove(w->lb, i);
	count_add(&w->fs->count.pipeline_recoveries, 1);
	return 0;
}

void writer_drop_block(struct writer *w)
{
	if (w->ws)
		w->ws->ops->close_write(w->ws);
	w->ws = NULL;
	pb_free(w->lb);
	w->lb = NULL;
	w->stage = WRITER_IDLE;
	w->queued_end = w->sent_end = w->acked_end = w->synced_end = w->ragged_end = 0;
	w->flushed = w->fsync_done = false;
	w->pending_rc = 0;
}

/* ---- the NameNode ---- */

/* What a person can act upon. */
static int call_errno(int rc, struct err *err)
{
	if (strstr(err->text, "could only be") || strstr(err->text, "minReplication")) {
		err_cure(err, "data nodes are full, down or too few: see dfs admin report");
		return -ENOSPC;
	}
	if (strstr(err->text, "Unexpected BlockUCState")) { /* of a block that was ours */
		err_cure(err, "another client has taken the file over (recover-lease)");
		return -ESTALE;
	}
	return rc == -ENOENT ? -ESTALE : rc; /* deleted while it was written */
}

/* The NameNode restarts, or waits for reports: it has done nothing, and soon it can. That there is
 * no data node at all is believed at once only before the first block. */
static bool is_passing(const struct writer *w, const struct err *err)
{
	if (w->has_block && strstr(err->text, "There are 0 datanode(s) running"))
		return true;
	return strcmp(err->remote, JEX_NOT_REPLICATED_YET) == 0 ||
	       strcmp(err->remote, JEX_SAFE_MODE) == 0 || strcmp(err->remote, JEX_RETRIABLE) == 0;
}

/* A call in the middle of a write. */
static int call(struct writer *w, const char *method, const ProtobufCMessage *req,
		const ProtobufCMessageDescriptor *reply, void *ret, struct err *err)
{
	const uint64_t deadline = clock_mono_ns() + NAMENODE_PATIENCE_NS;
	uint64_t pause = POLL_FIRST_NS;
	int rc;

	do {
		rc = nn_call(w->fs, method, req, reply, ret, err);
	} while (rc < 0 && is_passing(w, err) && poll_pause(&pause, deadline));
	return rc < 0 ? call_errno(rc, err) : 0;
}

static int call_add_block(struct writer *w, Hd__AddBlockResponseProto **ret, struct err *err)
{
	Hd__AddBlockRequestProto req = HD__ADD_BLOCK_REQUEST_PROTO__INIT;
	Hd__AddBlockFlagProto flag = HD__ADD_BLOCK_FLAG_PROTO__NO_LOCAL_WRITE;
	Hd__ExtendedBlockProto previous = block_at(w, w->block_len);

	req.src = w->path;
	req.clientname = w->fs->client_name;
	req.previous = w->has_block ? &previous : NULL;
	req.n_excludenodes = w->failed_count;
	req.excludenodes = w->failed;
	req.has_fileid = 1;
	req.fileid = w->file_id;
	req.n_flags = w->no_local;
	req.flags = &flag;
	return call(w, "addBlock", &req.base, &hd__add_block_response_proto__descriptor, ret, err);
}

/* Take a LocatedBlock out of an answer, which is freed. */
static Hd__LocatedBlockProto *take_located(void *answer, Hd__LocatedBlockProto **member)
{
	Hd__LocatedBlockProto *lb = *member;

	*member = NULL;
	pb_free(answer);
	return lb;
}

static int set_block(struct writer *w, const Hd__ExtendedBlockProto *b, struct err *err)
{
	char *pool = strdup(b->poolid);

	if (!pool)
		return err_set(err, -ENOMEM, "out of memory");
	free(w->pool_id);
	w->pool_id = pool;
	w->block = *b;
	w->block.poolid = pool;
	return 0;
}

static void abandon(struct writer *w)
{
	Hd__AbandonBlockRequestProto req = HD__ABANDON_BLOCK_REQUEST_PROTO__INIT;
	struct err ignored; /* the next addBlock shows what is wrong */

	req.b = w->lb->b;
	req.src = w->path;
	req.holder = w->fs->client_name;
	req.has_fileid = 1;
	req.fileid = w->file_id;
	(void)nn_call(w->fs, "abandonBlock", &req.base,
		      &hd__abandon_block_response_proto__descriptor, NULL, &ignored);
}

int writer_persist(struct writer *w, struct err *err)
{
	Hd__FsyncRequestProto req = HD__FSYNC_REQUEST_PROTO__INIT;
	int rc;

	if (w->fsync_done)
		return 0;
	req.src = w->path;
	req.client = w->fs->client_name;
	req.has_lastblocklength = 1;
	req.lastblocklength = (int64_t)(w->stage == WRITER_IDLE ? w->block_len : w->acked_end);
	req.has_fileid = 1;
	req.fileid = w->file_id;
	rc = call(w, "fsync", &req.base, &hd__fsync_response_proto__descriptor, NULL, err);
	w->fsync_done = rc == 0;
	return rc;
}

int writer_complete(struct writer *w, struct err *err)
{
	Hd__CompleteRequestProto req = HD__COMPLETE_REQUEST_PROTO__INIT;
	Hd__ExtendedBlockProto last = block_at(w, w->block_len);
	const uint64_t deadline = clock_mono_ns() + COMPLETE_PATIENCE_NS;
	uint64_t pause = POLL_FIRST_NS;
	bool done = false;

	req.src = w->path;
	req.clientname = w->fs->client_name;
	req.last = w->has_block ? &last : NULL;
	req.has_fileid = 1;
	req.fileid = w->file_id;
	do {
		Hd__CompleteResponseProto *m;
		int rc = call(w, "complete", &req.base,
				 &hd__complete_response_proto__descriptor, &m, err);

		if (rc < 0)
			return rc;
		done = m->result;
		pb_free(m);
	} while (!done && poll_pause(&pause, deadline));
	return done ? 0
		    : err_set(err, -ETIMEDOUT, "the NameNode has not heard of the last block "
					       "for %d s; are the data nodes in touch with it?",
			      (int)(COMPLETE_PATIENCE_NS / NS_PER_S));
}

/* ---- a new block ---- */

/* Which way the bytes go, first node first: what somebody wants to know who looks for a slow one. */
static void log_pipeline(const struct writer *w)
{
	char nodes[LOG_NODES_MAX * (NET_TEXT_MAX + 1) + 1] = "";
	size_t len = 0;

	for (size_t i = 0; i < w->lb->n_locs && i < LOG_NODES_MAX; i++) {
		char text[NET_TEXT_MAX];

		node_text(w->lb->locs[i]->id, text);
		len += (size_t)snprintf(nodes + len, sizeof(nodes) - len, " %s", text);
	}
	log_debug("op=pipeline block=%" PRIu64 "_%" PRIu64 " nodes:%s", w->lb->b->blockid,
		  w->lb->b->generationstamp, nodes);
}

static int open_stream(struct writer *w, enum dt_stage stage, uint64_t latest_gs, int *ret_bad,
		       struct err *err)
{
	const Hd__ExtendedBlockProto block = block_at(w, w->block_size);
	const struct write_setup setup = {
		.lb = w->lb,
		.block = &block,
		.stage = stage,
		.latest_gs = latest_gs,
		.min_rcvd = w->acked_end,
		.max_rcvd = w->sent_end,
		.crc_type = w->crc_type,
		.bpc = w->bpc,
	};
	int rc = stream_open_write(w->fs, &setup, &w->ws, ret_bad, err);

	if (rc == 0) {
		w->progress_ns = w->sent_ns = clock_mono_ns();
		log_pipeline(w);
	}
	return rc;
}

static int open_one(struct writer *w, struct err *err)
{
	const Hd__ExtendedBlockProto before = w->block;
	Hd__AddBlockResponseProto *m;
	int bad = 0, rc = call_add_block(w, &m, err);

	if (rc < 0)
		return rc;
	w->lb = take_located(m, &m->block);
	rc = located_check(w->lb, true, err);
	if (rc < 0)
		return rc;
	w->block = *w->lb->b; /* `previous` stays valid until the pipeline stands */
	rc = open_stream(w, DT_SETUP_CREATE, 0, &bad, err);
	if (rc == 0)
		return set_block(w, w->lb->b, err);
	w->block = before;
	abandon(w);
	if (rc != -ENOTSUP && rc != -ENOMEM)
		(void)blame(w, (size_t)bad, NULL); /* without the memory we may meet it again */
	return rc;
}

int writer_open_block(struct writer *w, struct err *err)
{
	int rc;

	assert(w->stage == WRITER_IDLE && !w->ws);
	for (uint32_t tries = 0;; tries++) {
		const size_t failed = w->failed_count;

		rc = open_one(w, err);
		if (rc == 0)
			break;
		writer_drop_block(w);
		/* a node that failed is another try; anything else is the NameNode's last word */
		if ((w->failed_count == failed && rc != -ENOSPC) || w->failed_count == 0 ||
		    tries == w->fs->set.block_write_retries)
			return rc;
		if (rc == -ENOSPC) /* all others are excluded: they may be back */
			writer_forgive(w);
	}
	w->has_block = true;
	w->stage = WRITER_STREAMING;
	return 0;
}

/* ---- repair, hdfs-wire 8.1 ---- */

/* Back to the queue, in order, to be sent again with their old numbers. */
static void requeue(struct writer *w)
{
	while (!list_empty(&w->unacked)) {
		struct list *last = w->unacked.prev;

		list_del(last);
		list_add(&w->queue, last);
	}
	list_for_each (l, &w->queue)
		container_of(l, struct packet, link)->sent = 0;
}

/* Is the pipeline so short, or the data so dear, that a node must be added? */
static bool wants_node(const struct writer *w)
{
	const struct settings *s = &w->fs->set;
	const size_t left = w->lb->n_locs;

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

static int call_additional(struct writer *w, Hd__LocatedBlockProto **ret, struct err *err)
{
	Hd__GetAdditionalDatanodeRequestProto req = HD__GET_ADDITIONAL_DATANODE_REQUEST_PROTO__INIT;
	Hd__GetAdditionalDatanodeResponseProto *m;
	Hd__ExtendedBlockProto b = block_at(w, w->acked_end);
	int rc;

	req.src = w->path;
	req.blk = &b;
	req.n_existings = w->lb->n_locs;
	req.existings = w->lb->locs;
	req.n_excludes = w->failed_count;
	req.excludes = w->failed;
	req.numadditionalnodes = 1;
	req.clientname = w->fs->client_name;
	req.n_existingstorageuuids = w->lb->n_storageids;
	req.existingstorageuuids = w->lb->storageids;
	req.has_fileid = 1;
	req.fileid = w->file_id;
	rc = call(w, "getAdditionalDatanode", &req.base,
		     &hd__get_additional_datanode_response_proto__descriptor, &m, err);
	if (rc < 0)
		return rc;
	*ret = take_located(m, &m->block);
	rc = located_check(*ret, true, err);
	if (rc < 0) {
		pb_free(*ret);
		*ret = NULL;
	}
	return rc;
}

/* One more node, with a copy of what the others have. */
static int add_node(struct writer *w, struct err *err)
{
	const Hd__ExtendedBlockProto b = block_at(w, w->acked_end);
	Hd__LocatedBlockProto *more = NULL;
	bool from_bad;
	size_t from;
	int at, rc = call_additional(w, &more, err);

	if (rc < 0)
		return rc;
	at = find_new(w->lb, more);
	if (at < 0 || more->n_locs != w->lb->n_locs + 1) {
		pb_free(more);
		return err_set(err, -ENOSPC,
			       "no further data node for a pipeline of %zu; start data nodes, or "
			       "set dfs.client.block.write.replace-datanode-on-failure.best-effort"
			       "=true",
			       w->lb->n_locs);
	}
	pb_free(w->lb);
	w->lb = more;
	from = at == 0 ? 1 : (size_t)at - 1;
	rc = dtp_transfer(w->fs, more, &b, from, (size_t)at, &from_bad, err);
	if (rc < 0 && from_bad) /* the new node waits for its next chance */
		pb_free(located_remove(w->lb, (size_t)at));
	if (rc < 0)
		(void)blame(w, from_bad ? from - (from > (size_t)at) : (size_t)at, NULL);
	return rc;
}

static int lengthen(struct writer *w, struct err *err)
{
	struct err why;
	int rc = 0;

	for (uint32_t i = 0; i <= w->fs->set.block_write_retries; i++) {
		if (w->lb->n_locs == 0 || !wants_node(w))
			break;
		err_reset(&why);
		rc = add_node(w, &why);
		if (rc == 0 || rc == -ENOSPC)
			break;
	}
	if (rc < 0 && !w->fs->set.replace_best_effort) {
		*err = why;
		return rc;
	}
	return 0;
}

/* A new stamp: the replica of a node that comes back with the old one is stale from now on. */
static int call_new_stamp(struct writer *w, uint64_t *ret_gs, struct err *err)
{
	Hd__UpdateBlockForPipelineRequestProto req =
		HD__UPDATE_BLOCK_FOR_PIPELINE_REQUEST_PROTO__INIT;
	Hd__UpdateBlockForPipelineResponseProto *m;
	Hd__ExtendedBlockProto b = block_at(w, w->acked_end);
	Hc__TokenProto *token;
	int rc;

	req.block = &b;
	req.clientname = w->fs->client_name;
	rc = call(w, "updateBlockForPipeline", &req.base,
		     &hd__update_block_for_pipeline_response_proto__descriptor, &m, err);
	if (rc < 0)
		return rc;
	*ret_gs = m->block->b->generationstamp;
	token = m->block->blocktoken;
	m->block->blocktoken = w->lb->blocktoken;
	w->lb->blocktoken = token;
	pb_free(m);
	return 0;
}

static int call_update_pipeline(struct writer *w, uint64_t gs, struct err *err)
{
	Hd__UpdatePipelineRequestProto req = HD__UPDATE_PIPELINE_REQUEST_PROTO__INIT;
	Hd__ExtendedBlockProto before = block_at(w, w->acked_end), after = before;
	Hd__DatanodeIDProto *ids[LOCATED_NODES_MAX];
	int rc;

	after.generationstamp = gs;
	for (size_t i = 0; i < w->lb->n_locs; i++)
		ids[i] = w->lb->locs[i]->id;
	req.clientname = w->fs->client_name;
	req.oldblock = &before;
	req.newblock = &after;
	req.n_newnodes = w->lb->n_locs;
	req.newnodes = ids;
	req.n_storageids = w->lb->n_storageids;
	req.storageids = w->lb->storageids;
	rc = call(w, "updatePipeline", &req.base,
		     &hd__update_pipeline_response_proto__descriptor, NULL, err);
	return rc;
}

/* What the nodes are asked for. Once some of them have begun an append, their replicas are no longer
 * finalised ones with the old stamp, and only the recovery of an append takes them. */
static enum dt_stage repair_stage(const struct writer *w)
{
	if (w->stage == WRITER_REOPENING)
		return w->failed_count ? DT_SETUP_APPEND_RECOVERY : DT_SETUP_APPEND;
	return w->stage == WRITER_CLOSING ? DT_CLOSE_RECOVERY : DT_SETUP_STREAMING_RECOVERY;
}

/* One attempt with the nodes that are left. @ret_bad: the node that spoilt it, or -1 when it was
 * not a node's fault. */
static int rebuild(struct writer *w, int *ret_bad, struct err *err)
{
	uint64_t gs = 0;
	int rc;

	*ret_bad = -1;
	rc = lengthen(w, err);
	if (rc == 0 && w->lb->n_locs == 0)
		rc = err_set(err, -EIO, "all data nodes of the pipeline failed");
	rc = rc ?: call_new_stamp(w, &gs, err);
	if (rc < 0)
		return rc;
	rc = open_stream(w, repair_stage(w), gs, ret_bad, err);
	if (rc < 0)
		return rc;
	*ret_bad = -1;
	rc = call_update_pipeline(w, gs, err);
	if (rc == 0)
		w->block.generationstamp = gs;
	return rc;
}

/* After CLOSE_RECOVERY the nodes have finalised the block: its last packet need not be sent. */
static void drop_last_packet(struct writer *w)
{
	list_for_each (l, &w->queue) {
		list_del(l);
		packet_put(&w->fs->packets, container_of(l, struct packet, link));
		w->in_window--;
	}
}

static int count_recovery(struct writer *w, struct err *err)
{
	const struct packet *first = container_of(w->queue.next, struct packet, link);
	const int64_t seqno = list_empty(&w->queue) ? -1 : first->seqno;

	if (seqno != w->stuck_seqno)
		w->stuck_count = 0;
	w->stuck_seqno = seqno;
	if (++w->stuck_count > RECOVERIES_MAX)
		return err_prefix(err, "%d pipelines in a row failed", RECOVERIES_MAX);
	return 0;
}

/* The first cause says more than what stopped the repair; a person wants both. */
static void add_cause(struct err *err, const char *cause)
{
	if (!strstr(err->text, cause))
		(void)err_cure(err, "the pipeline broke because: %.200s", cause);
}

int writer_recover(struct writer *w, int bad, struct err *err)
{
	char cause[200];
	int rc;

	snprintf(cause, sizeof(cause), "%.199s", err->text);
	requeue(w);
	rc = count_recovery(w, err);
	while (rc == 0) {
		const int why = err->rc < 0 ? err->rc : -EIO;

		if (w->ws)
			w->ws->ops->close_write(w->ws);
		w->ws = NULL;
		rc = blame(w, (size_t)bad, err);
		if (rc < 0)
			break;
		if (w->lb->n_locs == 0) {
			err_prefix(err, "all data nodes of the pipeline failed, the last one");
			return why == -ENOTSUP ? why : -EIO;
		}
		rc = rebuild(w, &bad, err);
		if (rc < 0 && bad >= 0)
			rc = 0; /* without that node, then */
		else
			break;
	}
	w->fsync_done = w->fsync_done && rc < 0; /* the NameNode must hear of the new stamp */
	if (rc < 0)
		add_cause(err, cause);
	else if (w->stage == WRITER_CLOSING)
		drop_last_packet(w);
	return rc;
}

/* ---- append ---- */

/* The last block is taken over where it ends. */
static int reopen_block(struct writer *w, struct err *err)
{
	const uint64_t len = w->block_len;
	int bad, rc = located_check(w->lb, true, err);

	if (rc < 0)
		return rc;
	w->queued_end = w->sent_end = w->acked_end = w->synced_end = len;
	if (len % w->bpc)
		w->ragged_end = len - len % w->bpc + w->bpc;
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

	pthread_mutex_lock(&w->lock);
	w->written = w->file_done = length;
	w->lb = lb;
	if (lb) {
		rc = set_block(w, lb->b, err);
		w->has_block = rc == 0;
		w->block_len = lb->b->numbytes;
	}
	if (rc == 0 && lb && w->block_len > length)
		rc = err_set(err, -EPROTO, "a last block of %llu bytes in a file of %llu",
			     (unsigned long long)w->block_len, (unsigned long long)length);
	if (rc == 0 && lb && lb->n_locs > 0) {
		w->file_done -= w->block_len;
		rc = reopen_block(w, err);
	} else {
		pb_free(lb);
		w->lb = NULL;
	}
	pthread_mutex_unlock(&w->lock);
	return rc;
}
