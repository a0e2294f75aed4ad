/* SPDX-License-Identifier: Apache-2.0 */
/* ClientProtocol: what reads the namespace. All run on the reactor thread. */
#include <stdlib.h>
#include <string.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "common/wire/pb.h"
#include "encryption.pb-c.h"
#include "namenode-shim/blocks/located_block.h"
#include "namenode-shim/namespace/under_construction.h"
#include "namenode-shim/namespace/xattr.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/rpc/methods.h"

/* Where a question about a path that does not exist has an empty answer, one below a file has, too.
 */
static int walk_or_nothing(struct req *q, const char *path, unsigned int how, struct ns_path *w)
{
	int rc = ns_resolve_as(&q->ns, path, how, w);

	if (rc != -ENOTDIR || !q->ns.super)
		return rc;
	q->exception.cls = NULL;
	w->last = NULL;
	return 0;
}

/* /.reserved and what it shows are directories of nobody that no record stands for. */
static Hd__HdfsFileStatusProto *reserved_status(struct req *q, const char *name, uint16_t perm,
						const char *group, uint64_t time_ms)
{
	const struct inode n = {.id = UINT64_MAX,
				.parent = INODE_ROOT,
				.type = INODE_DIR,
				.perm = perm,
				.name = name,
				.owner = "",
				.group = group,
				.client = "",
				.mtime = time_ms,
				.atime = time_ms};

	return locate_status(q, &n, name, false);
}

#define RESERVED_PERM 01770
#define RESERVED_CHILD_PERM 0770

static Hd__HdfsFileStatusProto *status_of(struct req *q, const struct ns_path *w, bool with_blocks)
{
	if (w->reserved)
		return reserved_status(q, "", RESERVED_PERM, "", 0);
	return w->last ? locate_status(q, w->last, "", with_blocks) : NULL;
}

static int get_file_info(struct req *q, const void *in)
{
	const Hd__GetFileInfoRequestProto *m = in;
	Hd__GetFileInfoResponseProto *r =
		req_reply(q, Hd__GetFileInfoResponseProto, hd__get_file_info_response_proto__init);
	struct ns_path w;
	int rc = walk_or_nothing(q, m->src, WALK_LINK_ID, &w);

	if (!rc)
		r->fs = status_of(q, &w, false);
	return rc;
}

static int get_file_link_info(struct req *q, const void *in)
{
	const Hd__GetFileLinkInfoRequestProto *m = in;
	Hd__GetFileLinkInfoResponseProto *r = req_reply(
		q, Hd__GetFileLinkInfoResponseProto, hd__get_file_link_info_response_proto__init);
	struct ns_path w;
	int rc = walk_or_nothing(q, m->src, WALK_LINK, &w);

	if (!rc)
		r->fs = status_of(q, &w, false);
	return rc;
}

static int get_located_file_info(struct req *q, const void *in)
{
	const Hd__GetLocatedFileInfoRequestProto *m = in;
	Hd__GetLocatedFileInfoResponseProto *r =
		req_reply(q, Hd__GetLocatedFileInfoResponseProto,
			  hd__get_located_file_info_response_proto__init);
	struct ns_path w;
	int rc = walk_or_nothing(q, m->src ? m->src : "", 0, &w);

	if (!rc)
		r->fs = status_of(q, &w, true);
	return rc;
}

/* ---- listings ---- */

struct listing {
	struct req *q;
	Hd__DirectoryListingProto *out;
	uint32_t more;   /* entries that did not fit, counted up to one batch */
	uint32_t blocks; /* located so far: a page ends when there are more than a batch */
	bool with_blocks;
};

static int list_entry(void *arg, const char *name, size_t len, uint64_t id)
{
	struct listing *l = arg;
	const uint32_t limit = l->q->nn->set.ls_limit;
	struct inode *n;
	int rc;

	(void)name;
	(void)len;
	if (l->out->n_partiallisting == limit || l->blocks > limit)
		return ++l->more == limit; /* enough to know: stop */
	rc = inode_get(l->q->ns.t, id, &l->q->mem, &n);
	if (rc < 0)
		return rc;
	l->out->partiallisting[l->out->n_partiallisting++] =
		locate_status(l->q, n, n->name, l->with_blocks);
	l->blocks += l->with_blocks ? n->nblocks : 0;
	return 0;
}

/* One page of what @w names, from the name after @after. */
static int list_page(struct listing *l, const struct ns_path *w, const void *after, size_t len)
{
	struct req *q = l->q;
	int rc;

	l->out = req_new_msg(q, Hd__DirectoryListingProto, hd__directory_listing_proto__init);
	l->out->partiallisting =
		arena_array(&q->mem, Hd__HdfsFileStatusProto *, (size_t)q->nn->set.ls_limit + 1);
	if (w->last->type == INODE_FILE) {
		l->out->partiallisting[l->out->n_partiallisting++] =
			locate_status(q, w->last, "", l->with_blocks);
	} else {
		rc = ns_check(&q->ns, w->last, ACCESS_R | ACCESS_X, w->path);
		if (!rc)
			rc = dirent_each(q->ns.t, w->last->id, after, len, list_entry, l);
		if (rc < 0)
			return ns_io(&q->ns, rc);
	}
	l->out->remainingentries = l->more;
	return 0;
}

static Hd__DirectoryListingProto *list_reserved(struct req *q)
{
	static const char *const names[] = {".inodes", "raw"};
	Hd__DirectoryListingProto *d =
		req_new_msg(q, Hd__DirectoryListingProto, hd__directory_listing_proto__init);

	d->partiallisting = arena_array(&q->mem, Hd__HdfsFileStatusProto *, 2);
	for (; d->n_partiallisting < 2; d->n_partiallisting++)
		d->partiallisting[d->n_partiallisting] =
			reserved_status(q, names[d->n_partiallisting], RESERVED_CHILD_PERM,
					q->nn->set.super_group, q->nn->db->ident.ctime_ms);
	return d;
}

/* Below a directory that exists .snapshot lists its snapshots, if it may have any. */
static int list_snapshots(struct req *q, const struct ns_path *w, Hd__DirectoryListingProto **ret)
{
	const struct inode *up = w->chain[w->have - 1];

	if (w->depth == 1) /* the root may have, and has none */
		*ret = req_new_msg(q, Hd__DirectoryListingProto, hd__directory_listing_proto__init);
	else if (up->type == INODE_DIR)
		return exception_throw(&q->exception, EXC_SNAPSHOT,
				       "Directory is not a snapshottable directory: %s",
				       ns_path_text(&q->ns, w, w->depth - 1));
	return 0;
}

static int get_listing(struct req *q, const void *in)
{
	const Hd__GetListingRequestProto *m = in;
	Hd__GetListingResponseProto *r =
		req_reply(q, Hd__GetListingResponseProto, hd__get_listing_response_proto__init);
	struct listing l = {.q = q, .with_blocks = m->needlocation};
	struct ns_path w;
	int rc = ns_resolve(&q->ns, m->src, &w);

	if (rc < 0)
		return rc;
	if (w.reserved)
		r->dirlist = list_reserved(q);
	if (!w.last && w.have == w.depth && !strcmp(w.name[w.depth - 1], INODE_SNAPSHOT))
		return list_snapshots(q, &w, &r->dirlist);
	if (!w.last)
		return 0;
	rc = list_page(&l, &w, m->startafter.data, m->startafter.len);
	if (!rc)
		r->dirlist = l.out;
	return rc;
}

/* ---- listings of many directories in one call ---- */

#define BATCH_PATHS_MAX 100 /* dfs.batched.ls.limit */

struct batch {
	struct req *q;
	const Hd__GetBatchedListingRequestProto *m;
	Hd__GetBatchedListingResponseProto *r;
	uint32_t entries;
	struct listing last;
};

static void batch_fail(struct batch *b, Hd__BatchedDirectoryListingProto *d)
{
	struct req *q = b->q;
	Hd__RemoteExceptionProto *e =
		req_new_msg(q, Hd__RemoteExceptionProto, hd__remote_exception_proto__init);

	e->classname = arena_strdup(&q->mem, q->exception.cls);
	e->message = arena_strdup(&q->mem, q->exception.text);
	q->exception.cls = NULL;
	d->exception = e;
}

/* A path that fails says so in its place; only the database fails the call. */
static void batch_path(struct batch *b, uint32_t i, const void *after, size_t len)
{
	struct req *q = b->q;
	Hd__BatchedDirectoryListingProto *d = req_new_msg(
		q, Hd__BatchedDirectoryListingProto, hd__batched_directory_listing_proto__init);
	struct ns_path w;
	int rc = ns_resolve(&q->ns, b->m->paths[i], &w);

	d->parentidx = i;
	b->r->listings[b->r->n_listings++] = d;
	b->last = (struct listing){.q = q, .with_blocks = b->m->needlocation};
	if (!rc && !w.last)
		rc = exception_throw(&q->exception, EXC_NOT_FOUND, "Path %s does not exist",
				     b->m->paths[i]);
	rc = rc ? rc : list_page(&b->last, &w, after, len);
	if (rc < 0) {
		batch_fail(b, d);
		return;
	}
	d->partiallisting = b->last.out->partiallisting;
	d->n_partiallisting = b->last.out->n_partiallisting;
	b->entries += (uint32_t)d->n_partiallisting;
}

/* Where the next call goes on: the cookie is ours to read, so it is a path's index and a name. */
static void batch_cookie(struct batch *b, uint32_t i)
{
	const Hd__DirectoryListingProto *l = b->last.out;
	Hd__BatchedListingKeyProto *k =
		req_new_msg(b->q, Hd__BatchedListingKeyProto, hd__batched_listing_key_proto__init);
	size_t len;
	uint8_t *p;

	b->r->hasmore = 1;
	k->pathindex = i + !b->last.more;
	if (b->last.more && l->n_partiallisting)
		k->startafter = l->partiallisting[l->n_partiallisting - 1]->path;
	len = protobuf_c_message_get_packed_size(&k->base);
	p = arena_alloc(&b->q->mem, len);
	protobuf_c_message_pack(&k->base, p);
	b->r->startafter = (ProtobufCBinaryData){len, p};
}

static int batch_start(struct batch *b, uint32_t *ret_i, ProtobufCBinaryData *ret_after)
{
	ProtobufCMessage *m;
	const Hd__BatchedListingKeyProto *k;

	*ret_i = 0;
	if (!b->m->startafter.len)
		return 0;
	if (pb_unpack(&hd__batched_listing_key_proto__descriptor, b->m->startafter.data,
		      b->m->startafter.len, &m) < 0)
		return exception_throw(&b->q->exception, EXC_ILLEGAL_ARGUMENT,
				       "malformed startAfter");
	k = (const Hd__BatchedListingKeyProto *)m;
	*ret_i = k->pathindex;
	ret_after->len = k->startafter.len;
	ret_after->data = arena_alloc(&b->q->mem, k->startafter.len + 1);
	memcpy(ret_after->data, k->startafter.data, k->startafter.len);
	pb_free(m);
	return 0;
}

static int get_batched_listing(struct req *q, const void *in)
{
	struct batch b = {.q = q, .m = in};
	ProtobufCBinaryData after = {0};
	uint32_t i;
	int rc = batch_start(&b, &i, &after);

	b.r = req_reply(q, Hd__GetBatchedListingResponseProto,
			hd__get_batched_listing_response_proto__init);
	if (!rc && b.m->n_paths > BATCH_PATHS_MAX)
		rc = exception_throw(&q->exception, EXC_ILLEGAL_ARGUMENT,
				     "Too many source paths (%zu > %d)", b.m->n_paths,
				     BATCH_PATHS_MAX);
	if (rc < 0)
		return rc;
	b.r->listings = arena_array(&q->mem, Hd__BatchedDirectoryListingProto *, b.m->n_paths);
	for (; i < b.m->n_paths; i++, after.len = 0) {
		batch_path(&b, i, after.data, after.len);
		if (b.last.more || (b.entries >= q->nn->set.ls_limit && i + 1 < b.m->n_paths)) {
			batch_cookie(&b, i);
			break;
		}
	}
	return 0;
}

/* In safe mode a block without locations is most likely one not reported yet: say so, instead of
 * "lost". */
static int check_located(struct req *q, const char *src, const Hd__LocatedBlocksProto *l)
{
	char text[ERR_TEXT_MAX];

	if (!q->nn->safe.on)
		return 0;
	for (size_t i = 0; i < l->n_blocks; i++)
		if (!l->blocks[i]->n_locs)
			return exception_throw(
				&q->exception, EXC_SAFE_MODE,
				"Zero blocklocations for %s. Name node is in safe mode. %s", src,
				nn_safe_text(q->nn, text));
	return 0;
}

/* Reads do not wait for the disk: the access time is written behind them, as seldom as is
 * configured. */
static void touch(struct req *q, const struct inode *n)
{
	struct req *r;

	if (!q->nn->set.atime_precision_ms || q->nn->safe.on ||
	    q->ns.now_ms <= n->atime + q->nn->set.atime_precision_ms)
		return;
	r = req_new(q->nn, &file_touch_method, NULL);
	r->arg = n->id;
	nn_submit(q->nn, r);
}

static int get_block_locations(struct req *q, const void *in)
{
	const Hd__GetBlockLocationsRequestProto *m = in;
	Hd__GetBlockLocationsResponseProto *r =
		req_reply(q, Hd__GetBlockLocationsResponseProto,
			  hd__get_block_locations_response_proto__init);
	struct ns_path w;
	int rc;

	if ((int64_t)m->offset < 0 || (int64_t)m->length < 0)
		return exception_throw(&q->exception, EXC_BAD_ARGUMENT,
				       "Negative %s is not supported. File: %s",
				       (int64_t)m->offset < 0 ? "offset" : "length", m->src);
	rc = ns_find_file(&q->ns, m->src, &w);
	rc = rc ? rc : ns_check(&q->ns, w.last, ACCESS_R, w.path);
	rc = rc ? rc : xattr_check_readable(&q->ns, w.last);
	if (rc < 0)
		return rc;
	r->locations = locate_file(q, w.last, m->offset, m->length);
	PB_SET(r, fileid, w.last->id);
	touch(q, w.last);
	return check_located(q, m->src, r->locations);
}

/* ---- small questions ---- */

/* The blocks of a step of a summary. The step reads the disk. The writer is not to wait for that.
 */
struct step_blocks {
	struct step_block {
		int64_t id;
		uint64_t len;
	} * b; /* owned array */
	size_t n, size;
};

static void note_blocks(void *arg, const struct inode *f)
{
	struct step_blocks *s = arg;

	if (s->n + f->nblocks > s->size) {
		s->size = 2 * (s->n + f->nblocks);
		s->b = xrealloc(s->b, s->size * sizeof(*s->b));
	}
	for (uint32_t i = 0; i < f->nblocks; i++)
		s->b[s->n++] = (struct step_block){f->blocks[i].b.id, f->blocks[i].b.len};
}

/* What data nodes have of them: they tell of it a moment after it was written. */
static uint64_t stored(struct nn *nn, const struct step_blocks *s)
{
	uint64_t sum = 0;

	pthread_rwlock_rdlock(&nn->mem_lock);
	for (size_t i = 0; i < s->n; i++) {
		const struct blk *b = blocks_find(&nn->blocks, s->b[i].id);

		sum += b ? blk_stored(b, s->b[i].len) : 0;
	}
	pthread_rwlock_unlock(&nn->mem_lock);
	return sum;
}

static int get_content_summary(struct req *q, const void *in)
{
	const Hd__GetContentSummaryRequestProto *m = in;
	Hd__GetContentSummaryResponseProto *r =
		req_reply(q, Hd__GetContentSummaryResponseProto,
			  hd__get_content_summary_response_proto__init);
	Hd__ContentSummaryProto *s =
		req_new_msg(q, Hd__ContentSummaryProto, hd__content_summary_proto__init);
	struct step_blocks step = {0};
	struct ns_summary sum;
	int rc;

	q->ns.saw_file = note_blocks;
	q->ns.saw_arg = &step;
	rc = ns_summarize(&q->ns, m->path, "File does not exist: ", false, &q->summing, &sum);
	q->stored += step.n ? stored(q->nn, &step) : 0;
	free(step.b);
	if (rc)
		return rc == NS_MORE ? REQ_PARK : rc;
	s->length = sum.len;
	s->filecount = sum.files;
	s->directorycount = sum.dirs;
	s->spaceconsumed = sum.space;
	PB_SET(s, stored, q->stored);
	s->quota = sum.max_inodes;
	s->spacequota = sum.max_space;
	PB_SET(s, snapshotlength, 0);
	PB_SET(s, snapshotfilecount, 0);
	PB_SET(s, snapshotdirectorycount, 0);
	PB_SET(s, snapshotspaceconsumed, 0);
	s->erasurecodingpolicy =
		arena_strdup(&q->mem, *sum.ec || sum.is_dir ? sum.ec : "Replicated");
	r->summary = s;
	return 0;
}

static int get_quota_usage(struct req *q, const void *in)
{
	const Hd__GetQuotaUsageRequestProto *m = in;
	Hd__GetQuotaUsageResponseProto *r = req_reply(q, Hd__GetQuotaUsageResponseProto,
						      hd__get_quota_usage_response_proto__init);
	Hd__QuotaUsageProto *u = req_new_msg(q, Hd__QuotaUsageProto, hd__quota_usage_proto__init);
	struct ns_summary sum;
	int rc = ns_summarize(&q->ns, m->path, "File/Directory does not exist: ", true, &q->summing,
			      &sum);

	if (rc)
		return rc == NS_MORE ? REQ_PARK : rc;
	u->fileanddirectorycount = sum.files + sum.dirs;
	u->spaceconsumed = sum.space;
	u->quota = sum.max_inodes;
	u->spacequota = sum.max_space;
	r->usage = u;
	return 0;
}

static int get_preferred_block_size(struct req *q, const void *in)
{
	const Hd__GetPreferredBlockSizeRequestProto *m = in;
	Hd__GetPreferredBlockSizeResponseProto *r =
		req_reply(q, Hd__GetPreferredBlockSizeResponseProto,
			  hd__get_preferred_block_size_response_proto__init);
	struct ns_path w;
	int rc = ns_find_file(&q->ns, m->filename, &w);

	if (!rc)
		r->bsize = w.last->block_size;
	return rc;
}

static int is_file_closed(struct req *q, const void *in)
{
	const Hd__IsFileClosedRequestProto *m = in;
	Hd__IsFileClosedResponseProto *r = req_reply(q, Hd__IsFileClosedResponseProto,
						     hd__is_file_closed_response_proto__init);
	struct ns_path w;
	int rc = ns_find_file(&q->ns, m->src, &w);

	if (!rc)
		r->result = !inode_is_open(w.last);
	return rc;
}

static int check_access(struct req *q, const void *in)
{
	const Hd__CheckAccessRequestProto *m = in;
	struct ns_path w;
	int rc = ns_resolve(&q->ns, m->path, &w);

	req_reply(q, Hd__CheckAccessResponseProto, hd__check_access_response_proto__init);
	rc = rc ? rc : ns_found(&q->ns, &w, "Path not found: ", "");
	return rc ? rc : ns_check(&q->ns, w.last, (unsigned int)m->mode & 7, w.path);
}

static int get_link_target(struct req *q, const void *in)
{
	const Hd__GetLinkTargetRequestProto *m = in;
	Hd__GetLinkTargetResponseProto *r = req_reply(q, Hd__GetLinkTargetResponseProto,
						      hd__get_link_target_response_proto__init);
	const char *target = NULL;
	int rc = ns_link_target(&q->ns, m->path, &target);

	r->targetpath = (char *)target;
	return rc;
}

static int get_ez_for_path(struct req *q, const void *in)
{
	const Hd__GetEZForPathRequestProto *m = in;
	struct ns_path w;
	int rc = ns_resolve(&q->ns, m->src, &w);

	req_reply(q, Hd__GetEZForPathResponseProto, hd__get_ezfor_path_response_proto__init);
	return rc || !w.last ? rc : ns_check(&q->ns, w.last, ACCESS_R, w.path);
}

#define READ(name, msg, fn) METHOD(name, hd, msg, REQ_READ, 0, fn)
static const struct method table[] = {
	READ(getFileInfo, get_file_info, get_file_info),
	READ(getFileLinkInfo, get_file_link_info, get_file_link_info),
	READ(getLocatedFileInfo, get_located_file_info, get_located_file_info),
	READ(getListing, get_listing, get_listing),
	READ(getBatchedListing, get_batched_listing, get_batched_listing),
	READ(getBlockLocations, get_block_locations, get_block_locations),
	METHOD(getContentSummary, hd, get_content_summary, REQ_READ, REQ_LOCKS,
	       get_content_summary),
	READ(getQuotaUsage, get_quota_usage, get_quota_usage),
	READ(getPreferredBlockSize, get_preferred_block_size, get_preferred_block_size),
	READ(isFileClosed, is_file_closed, is_file_closed),
	READ(checkAccess, check_access, check_access),
	READ(getLinkTarget, get_link_target, get_link_target),
	READ(getEZForPath, get_ezfor_path, get_ez_for_path),
};
const struct method_table client_read_methods = METHOD_TABLE(table);
