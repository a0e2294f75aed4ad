/* SPDX-License-Identifier: Apache-2.0 */
/* ClientProtocol: files that exist are written on, cut, joined, changed within, or taken from a
 * writer that is gone. */
#include <stdlib.h>
#include <string.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "namenode-shim/blocks/located_block.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/ecpolicy.h"
#include "namenode-shim/namespace/quota.h"
#include "namenode-shim/namespace/storage_policy.h"
#include "namenode-shim/namespace/under_construction.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/rpc/methods.h"

/* A file to be changed by @client, which may write it. */
static int find_writable(struct req *q, const char *path, const char *client, struct ns_path *w)
{
	int rc = uc_check_client(q, client);

	rc = rc ? rc : ns_resolve_change(&q->ns, path, w);
	if (!rc && w->last)
		rc = ns_check(&q->ns, w->last, ACCESS_W, w->path);
	return rc;
}

static int check_lazy(struct req *q, const char *what, const struct ns_path *w)
{
	if (storage_policy_of(q->ns.t, w->last, &q->mem) != POLICY_LAZY_PERSIST)
		return 0;
	return exception_throw(&q->exception, EXC_UNSUPPORTED, "Cannot %s lazy persist file %s",
			       what, w->path);
}

/* ---- append ---- */

/* The partial last block is written on: where its good replicas are. */
static Hd__LocatedBlockProto *reopen_last(struct req *q, const struct inode *n, const struct blk *b)
{
	struct storage **st = arena_array(&q->mem, struct storage *, b->nreps + 1u);
	struct inode_block *last = &n->blocks[n->nblocks - 1];
	uint32_t count = 0;

	for (uint16_t i = 0; i < b->nreps; i++)
		if (b->rep[i].state == REPLICA_FINALIZED && !b->rep[i].corrupt && !b->rep[i].excess)
			st[count++] = b->rep[i].st;
	last->committed = false;
	ns_effect(&q->ns, EFFECT_BLOCK_REOPEN)->b = last->b;
	return locate_on(q, &last->b, inode_len(n) - last->b.len, st, count);
}

/* The last block is whole, and where it can be written on. */
static int check_last(struct req *q, const char *path, const struct inode *n,
		      const struct blk **ret)
{
	const struct inode_block *last = n->nblocks ? &n->blocks[n->nblocks - 1] : NULL;
	const struct blk *b = last ? blocks_find(&q->nn->blocks, last->b.id) : NULL;
	const uint32_t live = b ? blk_readable(b) : 0, nodes = datanodes_live(&q->nn->dns);
	const uint32_t want = n->ec ? (last ? ec_units_needed(n->ec, last->b.len) : 0)
			      : nodes < q->nn->set.repl_min ? nodes
							    : q->nn->set.repl_min;

	*ret = b;
	if (!last || (b && b->state == BLK_COMPLETE && live && live >= want))
		return 0;
	if (b && b->state != BLK_COMPLETE)
		return exception_throw(
			&q->exception, EXC_RETRIABLE,
			"append: lastBlock=blk_%lld_%llu is COMMITTED but not yet COMPLETE.",
			(long long)last->b.id, (unsigned long long)last->b.gs);
	return exception_throw(
		&q->exception, EXC_IO,
		"append: lastBlock=blk_%lld_%llu of src=%s is not sufficiently replicated "
		"yet.",
		(long long)last->b.id, (unsigned long long)last->b.gs, path);
}

static int check_append(struct req *q, const Hd__AppendRequestProto *m, const struct ns_path *w,
			const struct blk **ret)
{
	int rc;

	if (!w->last)
		return exception_throw(&q->exception, EXC_NOT_FOUND,
				       "Failed to append to non-existent file %s for client %s",
				       w->path, q->ns.host);
	if (w->last->type == INODE_DIR)
		return exception_throw(
			&q->exception, EXC_EXISTS,
			"Cannot append to directory %s; already exists as a directory.", w->path);
	if (w->last->ec && !(m->has_flag && (m->flag & HD__CREATE_FLAG_PROTO__NEW_BLOCK)))
		return exception_throw(
			&q->exception, EXC_UNSUPPORTED,
			"Append on EC file without new block is not supported. Use NEW_BLOCK "
			"create flag while appending file.");
	rc = check_lazy(q, "append to", w);
	rc = rc ? rc : uc_check_open(q, w->last, "APPEND_FILE", w->path, m->clientname);
	return rc ? rc : check_last(q, w->path, w->last, ret);
}

static int append(struct req *q, const void *in)
{
	const Hd__AppendRequestProto *m = in;
	Hd__AppendResponseProto *r =
		req_reply(q, Hd__AppendResponseProto, hd__append_response_proto__init);
	const bool new_block = m->has_flag && (m->flag & HD__CREATE_FLAG_PROTO__NEW_BLOCK);
	struct inode_block *last;
	const struct blk *b = NULL;
	uint64_t before;
	struct ns_path w;
	int rc = find_writable(q, m->src, m->clientname, &w);

	rc = rc ? rc : check_append(q, m, &w, &b);
	if (rc < 0)
		return rc;
	before = inode_space(w.last);
	last = w.last->nblocks ? &w.last->blocks[w.last->nblocks - 1] : NULL;
	uc_lease(q, w.last, m->clientname, q->ns.host);
	if (last && new_block) {
		/* HDFS asks for the room of the last block made whole, though that stays as it is.
		 */
		if (!w.last->ec && last->b.len < w.last->block_size)
			rc = uc_check_space(q, w.last,
					    (int64_t)(w.last->block_size - last->b.len) *
						    w.last->repl);
		if (rc < 0)
			return rc;
		r->block = locate_bare(q, &last->b, UINT64_MAX); /* -1: it is not written on */
		if (w.last->ec)
			locate_units(q, r->block, NULL, 0);
	} else if (last && last->b.len < w.last->block_size)
		r->block = reopen_last(q, w.last, b);
	rc = uc_space_changed(q, w.last, before);
	if (rc < 0)
		return rc;
	r->stat = locate_status(q, w.last, "", false);
	return ns_io(&q->ns, inode_put(q->ns.t, w.last));
}

/* ---- truncate ---- */

static int check_truncating(struct req *q, const Hd__TruncateRequestProto *m,
			    const struct ns_path *w)
{
	const uint64_t last_len = w->last->blocks[w->last->nblocks - 1].b.len;
	const uint64_t to = inode_len(w->last) - last_len + w->last->truncate_to;

	if (m->newlength == to)
		return 0; /* asked again: it goes on */
	return exception_throw(
		&q->exception, EXC_BEING_CREATED,
		"Failed to TRUNCATE_FILE %s for %s on %s because %s is being truncated.", w->path,
		m->clientname, q->ns.host, w->path);
}

/* Blocks beyond @len go. Returns what is left of the last one that stays, 0: all of it. */
static uint64_t drop_beyond(struct req *q, struct inode *n, uint64_t len)
{
	uint64_t pos = 0;
	uint32_t keep = 0;

	for (; keep < n->nblocks && pos < len; keep++)
		pos += n->blocks[keep].b.len;
	for (uint32_t i = keep; i < n->nblocks; i++)
		ns_effect(&q->ns, EFFECT_BLOCK_REMOVE)->b = n->blocks[i].b;
	n->nblocks = keep;
	return pos > len ? n->blocks[keep - 1].b.len - (pos - len) : 0;
}

/* The replicas of the last block are cut by block recovery; until it ends the file is open. */
static void cut_last(struct req *q, struct inode *n, const char *client, uint64_t to)
{
	struct inode_block *last = &n->blocks[n->nblocks - 1];
	struct effect *e;

	uc_lease(q, n, client, q->ns.host);
	n->truncating = true;
	n->truncate_to = to;
	last->committed = false;
	ns_effect(&q->ns, EFFECT_BLOCK_REOPEN)->b = last->b;
	e = ns_effect(&q->ns, EFFECT_BLOCK_RECOVER);
	e->b = (struct block){last->b.id, ++q->ns.t->ctr.gs, 0};
	e->truncate_to = to;
}

static int truncate_to(struct req *q, const Hd__TruncateRequestProto *m, struct inode *n,
		       bool *ret_done)
{
	const uint64_t old_len = inode_len(n), before = inode_space(n);
	uint64_t rest;
	int rc;

	*ret_done = true;
	if (m->newlength == old_len)
		return 0;
	if (m->newlength > old_len)
		return exception_throw(
			&q->exception, EXC_ILLEGAL_ARGUMENT,
			"Cannot truncate to a larger file size. Current size: %llu, truncate "
			"size: %llu.",
			(unsigned long long)old_len, (unsigned long long)m->newlength);
	uc_release(q, n);
	rest = drop_beyond(q, n, m->newlength);
	n->mtime = q->ns.now_ms;
	if (rest) {
		cut_last(q, n, m->clientname, rest);
		*ret_done = false;
	}
	rc = uc_space_changed(q, n, before);
	return rc ? rc : ns_io(&q->ns, inode_put(q->ns.t, n));
}

static int truncate_file(struct req *q, const void *in)
{
	const Hd__TruncateRequestProto *m = in;
	Hd__TruncateResponseProto *r =
		req_reply(q, Hd__TruncateResponseProto, hd__truncate_response_proto__init);
	bool done = false;
	struct ns_path w;
	int rc;

	if ((int64_t)m->newlength < 0)
		return exception_throw(&q->exception, EXC_ILLEGAL_ARGUMENT,
				       "Cannot truncate to a negative file size: %lld.",
				       (long long)m->newlength);
	rc = find_writable(q, m->src, m->clientname, &w);
	rc = rc ? rc : ns_found(&q->ns, &w, "File does not exist: ", "");
	if (!rc && w.last->type == INODE_DIR)
		rc = exception_throw(&q->exception, EXC_NOT_FOUND, "Path is not a file: %s",
				     w.path);
	if (!rc && w.last->ec)
		rc = exception_throw(&q->exception, EXC_UNSUPPORTED,
				     "Cannot truncate file with striped block %s", w.path);
	rc = rc ? rc : check_lazy(q, "truncate", &w);
	if (rc < 0)
		return rc;
	if (w.last->truncating)
		return check_truncating(q, m, &w);
	rc = uc_check_open(q, w.last, "TRUNCATE_FILE", w.path, m->clientname);
	rc = rc ? rc : truncate_to(q, m, w.last, &done);
	r->result = done;
	return rc;
}

/* ---- concat ---- */

static bool is_special(const char *path)
{
	return !strncmp(path, "/.reserved/raw/", 15) || !strncmp(path, "/.reserved/.inodes/", 19);
}

static int check_paths(struct req *q, const Hd__ConcatRequestProto *m)
{
	const char *bad = is_special(m->trg) ? m->trg : NULL;

	if (!*m->trg)
		return exception_throw(&q->exception, EXC_BAD_ARGUMENT,
				       "Target file name is empty");
	if (!m->n_srcs)
		return exception_throw(&q->exception, EXC_BAD_ARGUMENT, "No sources given");
	for (size_t i = 0; i < m->n_srcs && !bad; i++)
		bad = is_special(m->srcs[i]) ? m->srcs[i] : NULL;
	return bad ? exception_throw(
			     &q->exception, EXC_IO,
			     "Concat operation doesn't support /.reserved relative path : %s", bad)
		   : 0;
}

static int find_target(struct req *q, const Hd__ConcatRequestProto *m, struct ns_path *w)
{
	int rc = ns_resolve_change(&q->ns, m->trg, w);

	if (!rc && w->last)
		rc = ns_check(&q->ns, w->last, ACCESS_W, w->path);
	rc = rc ? rc : ns_found(&q->ns, w, "File does not exist: ", "");
	if (!rc && w->last->type == INODE_DIR)
		rc = exception_throw(&q->exception, EXC_NOT_FOUND, "Path is not a file: %s",
				     m->trg);
	if (!rc && inode_is_open(w->last))
		rc = exception_throw(&q->exception, EXC_ILLEGAL_ARGUMENT,
				     "concat: target file %s is under construction", m->trg);
	return rc;
}

static int check_source(struct req *q, const char *path, const struct inode *s,
			const struct ns_path *t)
{
	const struct inode *to = t->last;

	if (s->parent != to->parent)
		return exception_throw(
			&q->exception, EXC_ILLEGAL_ARGUMENT,
			"Source file %s is not in the same directory with the target %s", path,
			t->path);
	if (s->id == to->id)
		return exception_throw(
			&q->exception, EXC_ILLEGAL_ARGUMENT,
			"concat: the src file %s is the same with the target file %s", path,
			t->path);
	if (inode_is_open(s) || !s->nblocks)
		return exception_throw(
			&q->exception, EXC_ILLEGAL_ARGUMENT,
			"concat: source file %s is invalid or empty or underConstruction", path);
	if (s->block_size > to->block_size)
		return exception_throw(
			&q->exception, EXC_ILLEGAL_ARGUMENT,
			"concat: source file %s has preferred block size %llu which is "
			"greater than the target file's preferred block size %llu",
			path, (unsigned long long)s->block_size,
			(unsigned long long)to->block_size);
	if ((s->ec ? s->ec->id : EC_ID_NONE) != (to->ec ? to->ec->id : EC_ID_NONE))
		return exception_throw(
			&q->exception, EXC_ILLEGAL_ARGUMENT,
			"Source file %s and target file %s have different erasure coding policy",
			path, t->path);
	return 0;
}

static int find_source(struct req *q, const char *path, const struct ns_path *t, struct inode **ret)
{
	struct ns_path w;
	int rc = ns_resolve_change(&q->ns, path, &w);

	if (!rc && w.last)
		rc = ns_check(&q->ns, w.last, ACCESS_R, w.path);
	if (!rc && w.depth && w.have >= w.depth)
		rc = ns_check(&q->ns, w.chain[w.depth - 1], ACCESS_W,
			      ns_path_text(&q->ns, &w, w.depth - 1));
	if (!rc && !w.last)
		rc = exception_throw(&q->exception, EXC_NOT_FOUND, "File does not exist: %s", path);
	if (!rc && w.last->type == INODE_DIR)
		rc = exception_throw(&q->exception, EXC_NOT_FOUND, "Path is not a file: %s", path);
	rc = rc ? rc : check_source(q, path, w.last, t);
	*ret = w.last;
	return rc;
}

static int by_id(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static int check_twice(struct req *q, struct inode *const *src, size_t n)
{
	uint64_t *id = arena_array(&q->mem, uint64_t, n);

	for (size_t i = 0; i < n; i++)
		id[i] = src[i]->id;
	qsort(id, n, sizeof(*id), by_id);
	for (size_t i = 1; i < n; i++)
		if (id[i] == id[i - 1])
			return exception_throw(
				&q->exception, EXC_ILLEGAL_ARGUMENT,
				"concat: at least two of the source files are the same");
	return 0;
}

/* The blocks of @src become the last blocks of @to. */
static void take_blocks(struct req *q, struct inode *to, struct inode *const *src, size_t n)
{
	struct inode_block *all;
	size_t count = to->nblocks;

	for (size_t i = 0; i < n; i++)
		count += src[i]->nblocks;
	all = arena_array(&q->mem, struct inode_block, count);
	memcpy(all, to->blocks, to->nblocks * sizeof(*all));
	to->blocks = all;
	for (size_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < src[i]->nblocks; k++) {
			struct effect *e = ns_effect(&q->ns, EFFECT_BLOCK_OWNER);

			e->b = src[i]->blocks[k].b;
			e->inode = to->id;
			e->repl = to->repl;
			all[to->nblocks++] = src[i]->blocks[k];
		}
}

static int drop_sources(struct req *q, struct inode *up, struct inode *const *src, size_t n)
{
	int rc = 0;

	for (size_t i = 0; i < n && !rc; i++) {
		rc = dirent_del(q->ns.t, up->id, src[i]->name);
		rc = rc ? rc : inode_del(q->ns.t, src[i]);
		up->children--;
	}
	up->mtime = q->ns.now_ms;
	ns_effect(&q->ns, EFFECT_INODES)->delta = -(int64_t)n;
	return rc ? rc : inode_put(q->ns.t, up);
}

static int concat_quota(struct req *q, struct inode *up, struct inode *to, uint64_t before,
			struct inode *const *src, size_t n)
{
	int64_t more = (int64_t)(inode_space(to) - before);
	int rc;

	for (size_t i = 0; i < n; i++)
		more -= (int64_t)inode_space(src[i]);
	rc = quota_check(&q->ns, up, 0, more);
	return rc ? rc : ns_io(&q->ns, quota_charge(&q->ns, up->id, -(int64_t)n, more));
}

static int concat(struct req *q, const void *in)
{
	const Hd__ConcatRequestProto *m = in;
	struct inode **src = arena_array(&q->mem, struct inode *, m->n_srcs + 1);
	struct inode *up;
	uint64_t before;
	struct ns_path w;
	int rc = check_paths(q, m);

	req_reply(q, Hd__ConcatResponseProto, hd__concat_response_proto__init);
	rc = rc ? rc : find_target(q, m, &w);
	for (size_t i = 0; i < m->n_srcs && !rc; i++)
		rc = find_source(q, m->srcs[i], &w, &src[i]);
	rc = rc ? rc : check_twice(q, src, m->n_srcs);
	if (rc < 0)
		return rc;
	up = ns_path_parent(&w);
	before = inode_space(w.last);
	take_blocks(q, w.last, src, m->n_srcs);
	w.last->mtime = q->ns.now_ms;
	rc = concat_quota(q, up, w.last, before, src, m->n_srcs);
	rc = rc ? rc : ns_io(&q->ns, drop_sources(q, up, src, m->n_srcs));
	return rc ? rc : ns_io(&q->ns, inode_put(q->ns.t, w.last));
}

/* ---- replaceBlocks, which only our own client calls ---- */

static int replace_blocks(struct req *q, const void *in)
{
	const Hd__ReplaceBlocksRequestProto *m = in;
	const struct ns_replace r = {
		.path = m->src,
		.id = m->fileid,
		.length = m->length,
		.last = {(int64_t)m->lastblock, m->laststamp, 0},
		.part = m->part,
		.at = m->position,
		.nat = (uint32_t)m->n_position,
		.count = m->blocks,
	};

	req_reply(q, Hd__ReplaceBlocksResponseProto, hd__replace_blocks_response_proto__init);
	if (m->n_position > UINT32_MAX)
		return exception_throw(&q->exception, EXC_ILLEGAL_ARGUMENT,
				       "replaceBlocks: too many places");
	return ns_replace_blocks(&q->ns, &r);
}

/* ---- recoverLease ---- */

static int recover_lease(struct req *q, const void *in)
{
	const Hd__RecoverLeaseRequestProto *m = in;
	Hd__RecoverLeaseResponseProto *r =
		req_reply(q, Hd__RecoverLeaseResponseProto, hd__recover_lease_response_proto__init);
	struct ns_path w;
	bool closed = true;
	int rc = uc_check_client(q, m->clientname);

	rc = rc ? rc : ns_find_file(&q->ns, m->src, &w);
	if (!rc && inode_is_open(w.last)) {
		/* The holder may close its file without a right to write it, as by complete(). */
		rc = strcmp(w.last->client, m->clientname) == 0
			     ? 0
			     : ns_check(&q->ns, w.last, ACCESS_W, w.path);
		rc = rc ? rc : uc_recover(q, w.last, m->clientname, &closed);
	}
	r->result = closed;
	return rc;
}

#define CHANGE(name, msg, flags, fn) METHOD(name, hd, msg, REQ_CHANGE, flags, fn)
static const struct method table[] = {
	CHANGE(append, append, REQ_ONCE, append),
	CHANGE(truncate, truncate, REQ_ONCE, truncate_file),
	CHANGE(concat, concat, REQ_ONCE, concat),
	CHANGE(replaceBlocks, replace_blocks, REQ_ONCE, replace_blocks),
	CHANGE(recoverLease, recover_lease, 0, recover_lease),
};
const struct method_table client_append_methods = METHOD_TABLE(table);
