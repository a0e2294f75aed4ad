/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/write/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "client/src/fs/by_inode.h"
#include "client/src/stream/stream.h"
#include "client/src/write/packet.h"
#include "common/base/clock.h"
#include "common/wire/ec_msg.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"

#define COMPLETE_PATIENCE_NS (60 * NS_PER_S) /* until the last block must be reported */
#define NAMENODE_PATIENCE_NS (60 * NS_PER_S) /* with safe mode, and blocks not yet reported */
#define POLL_FIRST_NS (1 * NS_PER_MS)
#define POLL_MAX_NS (1000 * NS_PER_MS)

/* Sleep, a little longer each time. False when @deadline_ns has passed. */
static bool poll_pause(uint64_t *pause_ns, uint64_t deadline_ns)
{
	if (clock_mono_ns() >= deadline_ns)
		return false;
	sleep_ns(*pause_ns);
	*pause_ns = *pause_ns * 2 < POLL_MAX_NS ? *pause_ns * 2 : POLL_MAX_NS;
	return true;
}

Hd__ExtendedBlockProto output_block_at(const struct output *f, uint64_t len)
{
	Hd__ExtendedBlockProto b = f->block;

	b.has_numbytes = 1;
	b.numbytes = len;
	return b;
}

int output_blame(struct output *f, Hd__DatanodeInfoProto *node, bool silent, struct err *err)
{
	if (suspect_nodes_add(&f->blamed, node, silent, clock_mono_ns()) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	count_add(&f->fs->count.pipeline_recoveries, 1);
	return 0;
}

void output_heard(struct output *f, int rc)
{
	f->node_refused |= rc == -EIO || rc == -EINVAL || rc == -EEXIST || rc == -EACCES ||
			   rc == -EBUSY || rc == -EOPNOTSUPP;
}

static void expire_blamed(struct output *f)
{
	suspect_nodes_expire(&f->blamed, f->fs->set.exclude_ms * NS_PER_MS, clock_mono_ns());
}

int output_set_block(struct output *f, const Hd__ExtendedBlockProto *b, struct err *err)
{
	char *pool = strdup(b->poolid);

	if (!pool)
		return err_set(err, -ENOMEM, "out of memory");
	free(f->pool_id);
	f->pool_id = pool;
	f->block = *b;
	f->block.poolid = pool;
	return 0;
}

/* ---- calls ---- */

/* What a person can act upon. */
static int call_errno(int rc, struct err *err)
{
	if (strstr(err->text, "could only be") || strstr(err->text, "minReplication")) {
		err_cure(
			err,
			"data nodes are full, down or too few: see dfs admin report; idle writers keep room: close them, or lower "
			"dfs.blocksize");
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
static bool is_passing(const struct output *f, const struct err *err)
{
	if (f->has_block && strstr(err->text, "There are 0 datanode(s) running"))
		return true;
	return strcmp(err->remote, JEX_NOT_REPLICATED_YET) == 0 ||
	       strcmp(err->remote, JEX_SAFE_MODE) == 0 || strcmp(err->remote, JEX_RETRIABLE) == 0;
}

/* A call in the middle of a write. */
static int call(struct output *f, const char *method, const ProtobufCMessage *req,
		const ProtobufCMessageDescriptor *reply, void *ret, struct err *err)
{
	const uint64_t deadline = clock_mono_ns() + NAMENODE_PATIENCE_NS;
	uint64_t pause = POLL_FIRST_NS;
	int rc;

	do {
		rc = nn_call(f->fs, method, req, reply, ret, err);
	} while (rc < 0 && is_passing(f, err) && poll_pause(&pause, deadline));
	if (rc < 0)
		return call_errno(rc, err);
	/* all of them are changes: the file is there, and on the disk but for an early complete()
	 */
	f->early = false;
	return 0;
}

/* Take a LocatedBlock out of an answer, which is freed. */
static Hd__LocatedBlockProto *take_located(void *answer, Hd__LocatedBlockProto **member)
{
	Hd__LocatedBlockProto *lb = *member;

	*member = NULL;
	pb_free(answer);
	return lb;
}

int output_add_block(struct output *f, Hd__LocatedBlockProto **ret, struct err *err)
{
	Hd__AddBlockRequestProto req = HD__ADD_BLOCK_REQUEST_PROTO__INIT;
	Hd__AddBlockFlagProto flag = HD__ADD_BLOCK_FLAG_PROTO__NO_LOCAL_WRITE;
	Hd__ExtendedBlockProto previous = output_block_at(f, f->block_len);
	Hd__AddBlockResponseProto *m;
	int rc;

	req.src = f->path;
	req.clientname = f->fs->client_name;
	req.previous = f->has_block ? &previous : NULL;
	expire_blamed(f);
	req.n_excludenodes = f->blamed.n_out;
	req.excludenodes = f->blamed.out;
	req.has_fileid = 1;
	req.fileid = f->file_id;
	req.n_flags = f->no_local;
	req.flags = &flag;
	rc = call(f, "addBlock", &req.base, &hd__add_block_response_proto__descriptor, &m, err);
	if (rc == 0)
		*ret = take_located(m, &m->block);
	else if (rc == -EREMOTEIO && strstr(err->text, "max-blocks-per-file"))
		rc = err->rc = -EFBIG; /* an exception without a class of its own */
	return rc;
}

void output_abandon(struct output *f, Hd__ExtendedBlockProto *b)
{
	Hd__AbandonBlockRequestProto req = HD__ABANDON_BLOCK_REQUEST_PROTO__INIT;
	struct err ignored; /* the next addBlock shows what is wrong */

	req.b = b;
	req.src = f->path;
	req.holder = f->fs->client_name;
	req.has_fileid = 1;
	req.fileid = f->file_id;
	(void)nn_call(f->fs, "abandonBlock", &req.base,
		      &hd__abandon_block_response_proto__descriptor, NULL, &ignored);
}

int output_fsync(struct output *f, uint64_t len, struct err *err)
{
	Hd__FsyncRequestProto req = HD__FSYNC_REQUEST_PROTO__INIT;

	req.src = f->path;
	req.client = f->fs->client_name;
	req.has_lastblocklength = 1;
	req.lastblocklength = (int64_t)len;
	req.has_fileid = 1;
	req.fileid = f->file_id;
	return call(f, "fsync", &req.base, &hd__fsync_response_proto__descriptor, NULL, err);
}

int output_complete(struct output *f, struct err *err)
{
	Hd__CompleteRequestProto req = HD__COMPLETE_REQUEST_PROTO__INIT;
	Hd__ExtendedBlockProto last = output_block_at(f, f->block_len);
	const uint64_t deadline = clock_mono_ns() + COMPLETE_PATIENCE_NS;
	uint64_t pause = POLL_FIRST_NS;
	bool done = false;

	req.has_early = req.early = f->close_early && early_close_may(f->fs);
	req.src = f->path;
	req.clientname = f->fs->client_name;
	req.last = f->has_block ? &last : NULL;
	req.has_fileid = 1;
	req.fileid = f->file_id;
	req.has_dropfirst = req.dropfirst = f->has_unused;
	do {
		const struct early_close_mark mark =
			f->close_early ? early_close_mark(f->fs) : (struct early_close_mark){0};
		Hd__CompleteResponseProto *m;
		int rc = call(f, "complete", &req.base, &hd__complete_response_proto__descriptor,
			      &m, err);

		if (rc < 0)
			return rc;
		done = m->result;
		if (done && m->early &&
		    early_close_add(f->fs, f->path, f->file_id, req.last, mark.connection) < 0) {
			req.early = false; /* once more, and durably */
			done = false;
		} else if (done && !m->early && f->close_early) {
			early_close_since(f->fs, &mark);
		}
		pb_free(m);
	} while (!done && poll_pause(&pause, deadline));
	return done ? 0
		    : err_set(err, -ETIMEDOUT,
			      "the NameNode has not heard of the last block "
			      "for %d s; are the data nodes in touch with it?",
			      (int)(COMPLETE_PATIENCE_NS / NS_PER_S));
}

int output_sync_before(struct output *f, struct err *err)
{
	int rc = f->after_early ? deferred_sync_settle_file(f->fs, f->file_id, err) : 0;

	f->after_early = f->after_early && rc < 0;
	f->refused = rc < 0;
	return rc;
}

int output_check_lease(struct output *f, struct err *err)
{
	Hd__FsyncRequestProto req = HD__FSYNC_REQUEST_PROTO__INIT;

	req.src = f->path;
	req.client = f->fs->client_name;
	req.has_fileid = 1;
	req.fileid = f->file_id;
	return call(f, "fsync", &req.base, &hd__fsync_response_proto__descriptor, NULL, err);
}

/* Will it be said again and again? Blocks that are not reported yet, a recovery under way: that
 * passes. */
static bool is_final(int rc)
{
	return rc == -ENOENT || rc == -ESTALE || rc == -EACCES || rc == -EPERM;
}

static int recover_lease(struct output *f, bool *ret_closed, struct err *err)
{
	Hd__RecoverLeaseRequestProto req = HD__RECOVER_LEASE_REQUEST_PROTO__INIT;
	Hd__RecoverLeaseResponseProto *m;
	char by_id[PATH_BY_ID_MAX];
	const char *src;
	int rc = by_inode(f->fs, f->path, f->file_id, by_id, &src, err);

	if (rc < 0)
		return rc;
	req.src = (char *)src;
	req.clientname = f->fs->client_name;
	rc = nn_call(f->fs, "recoverLease", &req.base,
		     &hd__recover_lease_response_proto__descriptor, &m, err);
	if (rc == 0) {
		*ret_closed = m->result;
		pb_free(m);
	}
	return rc;
}

/* complete() wants replicas of the last block, and blocks of groups cannot be abandoned: a recovery
 * of the lease is what drops one that nobody has. It is refused as long as the blocks before are
 * not reported. It knows no lease and no file id: it is sent only while the file is ours
 * (by_inode.h). */
int output_release(struct output *f, struct err *err)
{
	const uint64_t deadline = clock_mono_ns() + COMPLETE_PATIENCE_NS;
	uint64_t pause = POLL_FIRST_NS;
	bool done = false;
	int rc = output_check_lease(f, err);

	if (rc < 0)
		return rc;
	do {
		err_reset(err);
		rc = recover_lease(f, &done, err);
		if (is_final(rc))
			return call_errno(rc, err);
	} while (!done && poll_pause(&pause, deadline));
	if (done)
		return 0;
	return rc < 0 ? rc : err_set(err, -ETIMEDOUT, "the NameNode does not close the file");
}

int output_additional(struct output *f, const Hd__LocatedBlockProto *lb, uint64_t len,
		      Hd__LocatedBlockProto **ret, struct err *err)
{
	Hd__GetAdditionalDatanodeRequestProto req = HD__GET_ADDITIONAL_DATANODE_REQUEST_PROTO__INIT;
	Hd__GetAdditionalDatanodeResponseProto *m;
	Hd__ExtendedBlockProto b = output_block_at(f, len);
	int rc;

	req.src = f->path;
	req.blk = &b;
	req.n_existings = lb->n_locs;
	req.existings = lb->locs;
	expire_blamed(f);
	req.n_excludes = f->blamed.n_out;
	req.excludes = f->blamed.out;
	req.numadditionalnodes = 1;
	req.clientname = f->fs->client_name;
	req.n_existingstorageuuids = lb->n_storageids;
	req.existingstorageuuids = lb->storageids;
	req.has_fileid = 1;
	req.fileid = f->file_id;
	rc = call(f, "getAdditionalDatanode", &req.base,
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

int output_new_stamp(struct output *f, uint64_t len, Hd__LocatedBlockProto **ret, struct err *err)
{
	Hd__UpdateBlockForPipelineRequestProto req =
		HD__UPDATE_BLOCK_FOR_PIPELINE_REQUEST_PROTO__INIT;
	Hd__UpdateBlockForPipelineResponseProto *m;
	Hd__ExtendedBlockProto b = output_block_at(f, len);
	int rc;

	req.block = &b;
	req.clientname = f->fs->client_name;
	rc = call(f, "updateBlockForPipeline", &req.base,
		  &hd__update_block_for_pipeline_response_proto__descriptor, &m, err);
	if (rc == 0)
		*ret = take_located(m, &m->block);
	return rc;
}

int output_update_pipeline(struct output *f, uint64_t len, uint64_t gs, Hd__DatanodeIDProto **nodes,
			   char **storages, size_t n, struct err *err)
{
	Hd__UpdatePipelineRequestProto req = HD__UPDATE_PIPELINE_REQUEST_PROTO__INIT;
	Hd__ExtendedBlockProto before = output_block_at(f, len), after = before;
	int rc;

	after.generationstamp = gs;
	req.clientname = f->fs->client_name;
	req.oldblock = &before;
	req.newblock = &after;
	req.n_newnodes = req.n_storageids = n;
	req.newnodes = nodes;
	req.storageids = storages;
	rc = call(f, "updatePipeline", &req.base, &hd__update_pipeline_response_proto__descriptor,
		  NULL, err);
	if (rc == 0)
		f->block.generationstamp = gs;
	return rc;
}

int output_policy(const Hd__ErasureCodingPolicyProto *m, const char *path, struct ec_policy *ret,
		  struct err *err)
{
	struct ec_policy p = {.k = 0};
	int rc = m ? ec_policy_from_msg(m, &p) : 0;

	if (rc < 0)
		return err_set(err, rc,
			       "the NameNode names an impossible erasure-coding policy for %.200s",
			       path);
	if (m && p.codec == EC_CODEC_REPLICATION)
		p.k = 0;
	else if (m)
		rc = ec_policy_can_code(&p, err);
	if (rc == 0)
		*ret = p;
	return rc;
}

/* ---- one caller at a time ---- */

static void enter(struct output *f)
{
	pthread_mutex_lock(&f->lock);
	if (f->rc == 0)
		f->refused = false;
	f->ops->enter(f, clock_mono_ns());
}

/* "... could only be written to 0 of the 1 minReplication nodes. There are 2 datanode(s) running
 * and 2 node(s) are excluded": room is not what is missing when none runs, or all that do have
 * failed this file without an answer. */
static bool nobody_is_there(const struct output *f, const struct err *err)
{
	const char *at = strstr(err->text, "There are ");
	unsigned running = 1, out = 0;

	return at && sscanf(at, "There are %u datanode(s) running and %u", &running, &out) >= 1 &&
	       (!running || (running <= out && !f->node_refused));
}

/* What an operation gave. The first failure is kept, and ends everything, unless it is @passing:
 * nothing is lost, and the operation may be tried again. */
static int leave(struct output *f, int rc, bool passing, struct err *err)
{
	if (rc == -ENOSPC && f->rc == 0 && nobody_is_there(f, err)) {
		rc = err->rc = -ETIMEDOUT;
		err_prefix(err, "no data node can be reached");
	}
	if (rc < 0 && f->rc == 0) {
		err_prefix(err, "%.200s", f->path);
		if (!passing)
			f->rc = rc;
		f->err = *err;
	}
	pthread_mutex_unlock(&f->lock);
	return rc;
}

/* The failure that ended everything, or 0. */
static int before(const struct output *f, struct err *err)
{
	if (f->rc < 0)
		*err = f->err;
	return f->rc;
}

/* Takes @loan, if there is one. */
static ssize_t write_all(struct output *f, const void *buf, size_t len, struct loan *loan,
			 struct err *err)
{
	const uint8_t *p = buf;
	size_t left = len;
	ssize_t n;

	enter(f);
	n = before(f, err);
	while (n >= 0 && left > 0) {
		n = f->ops->write_some(f, p, left, loan, err);
		if (n < 0)
			break;
		p += n;
		left -= (size_t)n;
		f->length += (uint64_t)n;
	}
	if (loan)
		loan_put(loan);
	/* of a part nobody would know */
	n = leave(f, n < 0 ? (int)n : 0, f->refused && left == len, err);
	return n < 0 ? n : (ssize_t)len;
}

ssize_t output_write(struct output *f, const void *buf, size_t len, struct err *err)
{
	return write_all(f, buf, len, NULL, err);
}

ssize_t output_lend(struct output *f, const void *buf, size_t len, void (*done)(void *arg),
		    void *arg, struct err *err)
{
	struct loan *loan = loan_new(done, arg);
	ssize_t n;

	if (loan)
		loan->memory = stream_memory_get(f->fs, buf, len);
	n = write_all(f, buf, len, loan, err);

	if (!loan) /* all was copied */
		done(arg);
	return n;
}

int output_flush(struct output *f, uint32_t flags, struct err *err)
{
	int rc;

	enter(f);
	rc = before(f, err) ?: f->ops->flush(f, flags, err);
	return leave(f, rc, f->refused, err);
}

int output_close(struct output *f, struct err *err)
{
	struct err ignored; /* the first failure says more */
	int rc;

	enter(f);
	if (f->rc < 0 && f->refused)
		(void)f->ops->close(f, &ignored);
	rc = before(f, err) ?: f->ops->close(f, err);
	return leave(f, rc, false, err);
}

uint64_t output_length(struct output *f)
{
	uint64_t n;

	pthread_mutex_lock(&f->lock);
	n = f->length;
	pthread_mutex_unlock(&f->lock);
	return n;
}

void output_free(struct output *f)
{
	if (f)
		f->ops->free(f);
}

/* What breaks is left to the next turn of a caller, who can wait for a repair. */
static void keep_alive(struct housekept *kept, uint64_t now_ns)
{
	struct output *f = container_of(kept, struct output, kept);

	if (pthread_mutex_trylock(&f->lock) != 0)
		return; /* somebody is at work there */
	if (f->rc == 0)
		f->ops->keep_alive(f, now_ns);
	pthread_mutex_unlock(&f->lock);
}

/* ---- life ---- */

int output_init(struct output *f, const struct write_ops *ops, struct dfs *fs, const char *path,
		uint64_t file_id, bool no_local, struct err *err)
{
	*f = (struct output){.ops = ops, .fs = fs, .file_id = file_id, .no_local = no_local};
	hd__extended_block_proto__init(&f->block);
	pthread_mutex_init(&f->lock, NULL);
	housekept_init(&f->kept, keep_alive);
	f->path = strdup(path);
	return f->path ? housekeeper_add(fs, &f->kept, err)
		       : err_set(err, -ENOMEM, "out of memory for a file");
}

void output_fini(struct output *f)
{
	suspect_nodes_fini(&f->blamed);
	free(f->pool_id);
	free(f->path);
	pthread_mutex_destroy(&f->lock);
}
