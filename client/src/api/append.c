/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/api/append.h"

#include <string.h>
#include <time.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "client/src/fs/by_inode.h"
#include "client/src/fs/path_call.h"
#include "client/src/striped/striped_writer.h"
#include "common/base/clock.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"

#define NOT_REPORTED_NS (60 * NS_PER_S) /* patience with a last block whose reports are to come */
#define NO_NODES_NS (20 * NS_PER_S)     /* of one that none has reported: no lease is renewed yet */
#define LATE_NODES_NS (300 * NS_PER_MS) /* patience with nodes whose reports are on their way */
#define POLL_FIRST_NS (10 * NS_PER_MS)
#define POLL_MAX_NS (1000 * NS_PER_MS)

static int call_once(struct dfs *fs, const char *path, uint32_t flags,
		     Hd__AppendResponseProto **ret, struct err *err)
{
	Hd__AppendRequestProto req = HD__APPEND_REQUEST_PROTO__INIT;
	int rc;

	req.src = (char *)path;
	req.clientname = fs->client_name;
	req.has_flag = 1;
	req.flag = HD__CREATE_FLAG_PROTO__APPEND;
	if (flags & DFS_APPEND_NEW_BLOCK)
		req.flag |= HD__CREATE_FLAG_PROTO__NEW_BLOCK;
	/* it may be one of them: what follows must not be ended by a complete() of before */
	early_close_pause(fs);
	rc = nn_call_once(fs, "append", &req.base, &hd__append_response_proto__descriptor, ret,
			  err);
	early_close_resume(fs, rc == 0 && (*ret)->stat ? (*ret)->stat->fileid : 0);
	if (rc < 0)
		path_blame(path, rc, err);
	return rc;
}

/* Who closed the file a moment ago was answered as soon as one node had reported the last block;
 * the NameNode wants to hear of more before it hands the block out again. */
static bool is_passing(const struct err *err)
{
	return strcmp(err->remote, JEX_RETRIABLE) == 0 ||
	       strcmp(err->remote, JEX_NOT_REPLICATED_YET) == 0;
}

static int call_append(struct dfs *fs, const char *path, uint32_t flags,
		       Hd__AppendResponseProto **ret, struct err *err)
{
	const uint64_t deadline = clock_mono_ns() + NOT_REPORTED_NS;
	uint64_t pause = POLL_FIRST_NS;
	struct dfs_stat st;
	int rc;

	for (;;) {
		if (early_close_is_old(fs))
			early_close_settle_quietly(fs);
		rc = call_once(fs, path, flags, ret, err);
		if (rc == -EBUSY && clock_mono_ns() < deadline && early_close_is_old(fs))
			continue; /* we have closed it, and that was undone */
		if (rc == 0 || !is_passing(err) || clock_mono_ns() >= deadline)
			break;
		sleep_ns(pause);
		pause = pause * 2 < POLL_MAX_NS ? pause * 2 : POLL_MAX_NS;
	}
	if ((rc == -EEXIST || rc == -ENOENT) && path_stat(fs, path, &st, err) == 0 &&
	    st.type == DFS_DIR)
		return err_set(err, -EISDIR, "%.400s is a directory", path);
	if (rc < 0 && !(flags & DFS_APPEND_NEW_BLOCK) &&
	    strstr(err->text, "without new block")) /* it names an option of Java's client */
		return err_set(err, -ENOTSUP,
			       "%.400s is erasure-coded: what is appended begins a new block",
			       path);
	return rc;
}

/* The last block as it is known now, in place of *@lb when it has more nodes. False: that could not
 * be asked. */
static bool ask_again(struct dfs *fs, const char *path, uint64_t offset, Hd__LocatedBlockProto **lb)
{
	Hd__GetBlockLocationsRequestProto req = HD__GET_BLOCK_LOCATIONS_REQUEST_PROTO__INIT;
	Hd__GetBlockLocationsResponseProto *m;
	Hd__LocatedBlockProto *now;
	struct err ignored;

	req.src = (char *)path;
	req.offset = offset;
	req.length = 1;
	if (nn_call(fs, "getBlockLocations", &req.base,
		    &hd__get_block_locations_response_proto__descriptor, &m, &ignored) < 0)
		return false;
	now = m->locations ? m->locations->lastblock : NULL;
	if (now && now->b->blockid == (*lb)->b->blockid && now->n_locs > (*lb)->n_locs &&
	    located_check(now, true, &ignored) == 0) {
		m->locations->lastblock = *lb; /* to be freed with the answer */
		now->b->numbytes = (*lb)->b->numbytes;
		now->b->has_numbytes = 1;
		*lb = now;
	}
	pb_free(m);
	return true;
}

/* Until the last block has @want nodes, @patience_ns is over, or the NameNode does not answer. */
static void await_nodes(struct dfs *fs, const char *path, Hd__AppendResponseProto *m, size_t want,
			uint64_t patience_ns)
{
	const uint64_t deadline = clock_mono_ns() + patience_ns;
	const uint64_t offset = m->stat->length - m->block->b->numbytes;
	uint64_t pause = POLL_FIRST_NS;

	while (m->block->n_locs < want && clock_mono_ns() < deadline) {
		sleep_ns(pause);
		if (!ask_again(fs, path, offset, &m->block))
			break;
		pause = pause * 2 < POLL_MAX_NS ? pause * 2 : POLL_MAX_NS;
	}
}

/* How the bytes of a block are summed. A node that cannot tell now may still be left out of the
 * pipeline later: the next one is asked, and when all are silent our own kind must do. */
static void learn_checksum(struct dfs *fs, const Hd__LocatedBlockProto *lb, struct writer_opts *o)
{
	struct err ignored;

	if (fs->set.rdma == RDMA_REQUIRE || lb->b->numbytes == 0)
		return; /* asked over TCP, which is not wanted here; or nothing to fit to */
	for (size_t i = 0; i < lb->n_locs; i++) {
		const struct read_setup r = {.lb = lb, .node = i, .offset = 0, .len = 1};
		enum crc_type type;
		uint32_t bpc;

		if (stream_tcp_checksum(fs, &r, &type, &bpc, &ignored) == 0) {
			o->crc_type = type;
			o->bpc = bpc;
			return;
		}
	}
}

static int check_file(const Hd__AppendResponseProto *m, const char *path, struct err *err)
{
	if (!m->stat)
		return err_set(err, -EPROTO,
			       "the NameNode opened %.200s, and its answer lacks the file", path);
	if (m->stat->fileencryptioninfo)
		return err_set(err, -ENOTSUP,
			       "%.200s is encrypted, which this version cannot write", path);
	return m->block ? located_check(m->block, m->block->n_locs > 0, err) : 0;
}

/* The last block is to be filled up: the nodes that hold it. A NameNode that has just begun may
 * have heard of none. Who appends to a file that was closed a moment ago finds only those nodes
 * whose reports have come: a pipeline of these would leave the others with a stale replica, or be
 * refused as too short. */
static int find_nodes(struct dfs *fs, const char *path, Hd__AppendResponseProto *m, struct err *err)
{
	if (m->block->b->numbytes <= m->stat->length) {
		await_nodes(fs, path, m, 1, NO_NODES_NS);
		await_nodes(fs, path, m, m->stat->block_replication, LATE_NODES_NS);
	}
	if (m->block->n_locs == 0)
		return err_set(err, -EIO, "no data node has its last block; are they up?");
	return 0;
}

/* The NameNode holds the file @id open for us, and we cannot write it. */
static void give_back(struct dfs *fs, const char *path, uint64_t id)
{
	Hd__RecoverLeaseRequestProto req = HD__RECOVER_LEASE_REQUEST_PROTO__INIT;
	struct err ignored = ERR_INIT;
	char by_id[PATH_BY_ID_MAX];
	const char *src;

	if (by_inode(fs, path, id, by_id, &src, &ignored) < 0)
		return;
	req.src = (char *)src;
	req.clientname = fs->client_name;
	(void)nn_call(fs, "recoverLease", &req.base, &hd__recover_lease_response_proto__descriptor,
		      NULL, &ignored);
}

static int open_contiguous(struct dfs *fs, const char *path, uint32_t flags,
			   Hd__AppendResponseProto *m, struct output **ret, struct err *err)
{
	struct writer_opts o = {
		.file_id = m->stat->fileid,
		.block_size = m->stat->blocksize,
		.bpc = fs->defaults.bytes_per_checksum,
		.replication = m->stat->block_replication,
		.crc_type = fs->set.crc_type,
	};
	Hd__LocatedBlockProto *lb;
	struct writer *w;
	int rc = m->block && !(flags & DFS_APPEND_NEW_BLOCK) ? find_nodes(fs, path, m, err) : 0;

	if (rc < 0)
		return rc;
	if (m->block)
		learn_checksum(fs, m->block, &o);
	rc = writer_new(fs, path, &o, &w, err);
	if (rc < 0)
		return rc;
	*ret = &w->f;
	lb = m->block;
	m->block = NULL;
	return writer_reopen(w, lb, m->stat->length, err);
}

/* Units are whole, and none can be filled up: a new group follows, of its own kind of checksum. */
static int open_striped(struct dfs *fs, const char *path, const struct ec_policy *policy,
			Hd__AppendResponseProto *m, struct output **ret, struct err *err)
{
	const struct striped_opts o = {
		.file_id = m->stat->fileid,
		.block_size = m->stat->blocksize,
		.bpc = fs->defaults.bytes_per_checksum,
		.crc_type = fs->set.crc_type,
		.policy = *policy,
	};
	Hd__LocatedBlockProto *lb;
	struct striped_writer *w;
	int rc = striped_writer_new(fs, path, &o, &w, err);

	if (rc < 0)
		return rc;
	*ret = &w->f;
	lb = m->block;
	m->block = NULL;
	return striped_writer_reopen(w, lb, m->stat->length, err);
}

int append_open(struct dfs *fs, const char *path, uint32_t flags, struct output **ret,
		struct err *err)
{
	Hd__AppendResponseProto *m = NULL;
	struct output *w = NULL;
	struct ec_policy policy;
	int rc = stream_check(fs, err);

	rc = rc ?: call_append(fs, path, flags, &m, err);
	if (rc < 0)
		return rc;
	rc = check_file(m, path, err);
	rc = rc ?: output_policy(m->stat->ecpolicy, path, &policy, err);
	if (rc == 0) {
		rc = policy.k ? open_striped(fs, path, &policy, m, &w, err)
			      : open_contiguous(fs, path, flags, m, &w, err);
		if (rc < 0)
			err_prefix(err, "%.200s", path);
	}
	if (rc < 0) {
		output_free(w);
		if (m->stat)
			give_back(fs, path, m->stat->fileid);
		pb_free(m);
		return rc;
	}
	pb_free(m);
	w->no_hsync = flags & DFS_APPEND_NO_HSYNC;
	w->spare_unit = flags & DFS_APPEND_SPARE_UNIT && !fs->set.ec_without_parity;
	w->after_early = true;
	*ret = w;
	return 0;
}
