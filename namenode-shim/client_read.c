/* SPDX-License-Identifier: Apache-2.0 */
/* ClientProtocol: what reads the namespace. All run on the reactor thread. */
#include <string.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "acl.pb-c.h"
#include "encryption.pb-c.h"
#include "namenode-shim/locate.h"
#include "namenode-shim/methods.h"
#include "namenode-shim/nn.h"
#include "xattr.pb-c.h"

/* Where a question about a path that does not exist has an empty answer, one below a file has, too. */
static int walk_or_nothing(struct req *q, const char *path, struct walk *w)
{
	int rc = ns_walk(&q->ns, path, w);

	if (rc != -ENOTDIR)
		return rc;
	q->exc.cls = NULL;
	w->last = NULL;
	return 0;
}

static int get_file_info(struct req *q, const void *in)
{
	const Hd__GetFileInfoRequestProto *m = in;
	Hd__GetFileInfoResponseProto *r = req_reply(q, Hd__GetFileInfoResponseProto,
						    hd__get_file_info_response_proto__init);
	struct walk w;
	int rc = walk_or_nothing(q, m->src, &w);

	if (!rc && w.last)
		r->fs = locate_status(q, w.last, "", false);
	return rc;
}

static int get_file_link_info(struct req *q, const void *in)
{
	const Hd__GetFileLinkInfoRequestProto *m = in;
	Hd__GetFileLinkInfoResponseProto *r = req_reply(
		q, Hd__GetFileLinkInfoResponseProto, hd__get_file_link_info_response_proto__init);
	struct walk w;
	int rc = walk_or_nothing(q, m->src, &w);

	if (!rc && w.last)
		r->fs = locate_status(q, w.last, "", false);
	return rc;
}

static int get_located_file_info(struct req *q, const void *in)
{
	const Hd__GetLocatedFileInfoRequestProto *m = in;
	Hd__GetLocatedFileInfoResponseProto *r =
		req_reply(q, Hd__GetLocatedFileInfoResponseProto,
			  hd__get_located_file_info_response_proto__init);
	struct walk w;
	int rc = walk_or_nothing(q, m->src ? m->src : "", &w);

	if (!rc && w.last)
		r->fs = locate_status(q, w.last, "", true);
	return rc;
}

/* ---- listings ---- */

struct listing {
	struct req *q;
	Hd__DirectoryListingProto *out;
	uint32_t more; /* entries that did not fit, counted up to one batch */
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

static int get_listing(struct req *q, const void *in)
{
	const Hd__GetListingRequestProto *m = in;
	Hd__GetListingResponseProto *r = req_reply(q, Hd__GetListingResponseProto,
						   hd__get_listing_response_proto__init);
	struct listing l = {.q = q, .with_blocks = m->needlocation};
	struct walk w;
	int rc = walk_or_nothing(q, m->src, &w);

	if (rc < 0 || !w.last)
		return rc;
	l.out = req_new_msg(q, Hd__DirectoryListingProto, hd__directory_listing_proto__init);
	l.out->partiallisting = arena_array(&q->mem, Hd__HdfsFileStatusProto *,
					    (size_t)q->nn->set.ls_limit + 1);
	if (w.last->type == INODE_FILE) {
		l.out->partiallisting[l.out->n_partiallisting++] =
			locate_status(q, w.last, "", l.with_blocks);
	} else {
		rc = ns_check(&q->ns, w.last, ACCESS_R | ACCESS_X, w.path);
		if (!rc)
			rc = dirent_each(q->ns.t, w.last->id, m->startafter.data,
					 m->startafter.len, list_entry, &l);
		if (rc < 0)
			return ns_io(&q->ns, rc);
	}
	l.out->remainingentries = l.more;
	r->dirlist = l.out;
	return 0;
}

/* In safe mode a block without locations is most likely one not reported yet: say so, instead of "lost". */
static int check_located(struct req *q, const char *src, const Hd__LocatedBlocksProto *l)
{
	char text[ERR_TEXT_MAX];

	if (!q->nn->safe.on)
		return 0;
	for (size_t i = 0; i < l->n_blocks; i++)
		if (!l->blocks[i]->n_locs)
			return exc_throw(&q->exc, EXC_SAFE_MODE,
					 "Zero blocklocations for %s. Name node is in safe mode. %s",
					 src, nn_safe_text(q->nn, text));
	return 0;
}

static int get_block_locations(struct req *q, const void *in)
{
	const Hd__GetBlockLocationsRequestProto *m = in;
	Hd__GetBlockLocationsResponseProto *r =
		req_reply(q, Hd__GetBlockLocationsResponseProto,
			  hd__get_block_locations_response_proto__init);
	struct walk w;
	int rc;

	if ((int64_t)m->offset < 0 || (int64_t)m->length < 0)
		return exc_throw(&q->exc, EXC_ILLEGAL_ARGUMENT,
				 "Negative offset or length is not supported. File: %s", m->src);
	rc = ns_find_file(&q->ns, m->src, &w);
	rc = rc ? rc : ns_check(&q->ns, w.last, ACCESS_R, w.path);
	if (rc < 0)
		return rc;
	r->locations = locate_file(q, w.last, m->offset, m->length);
	return check_located(q, m->src, r->locations);
}

/* ---- small questions ---- */

static int get_content_summary(struct req *q, const void *in)
{
	const Hd__GetContentSummaryRequestProto *m = in;
	Hd__GetContentSummaryResponseProto *r =
		req_reply(q, Hd__GetContentSummaryResponseProto,
			  hd__get_content_summary_response_proto__init);
	Hd__ContentSummaryProto *s =
		req_new_msg(q, Hd__ContentSummaryProto, hd__content_summary_proto__init);
	struct ns_summary sum;
	int rc = ns_summarize(&q->ns, m->path, &sum);

	if (rc < 0)
		return rc;
	s->length = sum.len;
	s->filecount = sum.files;
	s->directorycount = sum.dirs;
	s->spaceconsumed = sum.space;
	s->quota = s->spacequota = UINT64_MAX; /* -1: none */
	PB_SET(s, snapshotlength, 0);
	PB_SET(s, snapshotfilecount, 0);
	PB_SET(s, snapshotdirectorycount, 0);
	PB_SET(s, snapshotspaceconsumed, 0);
	s->erasurecodingpolicy = arena_strdup(&q->mem, sum.dirs ? "" : "Replicated");
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
	int rc = ns_summarize(&q->ns, m->path, &sum);

	if (rc < 0)
		return rc;
	u->fileanddirectorycount = sum.files + sum.dirs;
	u->spaceconsumed = sum.space;
	u->quota = u->spacequota = UINT64_MAX;
	r->usage = u;
	return 0;
}

static int get_preferred_block_size(struct req *q, const void *in)
{
	const Hd__GetPreferredBlockSizeRequestProto *m = in;
	Hd__GetPreferredBlockSizeResponseProto *r =
		req_reply(q, Hd__GetPreferredBlockSizeResponseProto,
			  hd__get_preferred_block_size_response_proto__init);
	struct walk w;
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
	struct walk w;
	int rc = ns_find_file(&q->ns, m->src, &w);

	if (!rc)
		r->result = !inode_is_open(w.last);
	return rc;
}

static int check_access(struct req *q, const void *in)
{
	const Hd__CheckAccessRequestProto *m = in;
	struct walk w;
	int rc = ns_find(&q->ns, m->path, &w);

	req_reply(q, Hd__CheckAccessResponseProto, hd__check_access_response_proto__init);
	return rc ? rc : ns_check(&q->ns, w.last, (unsigned int)m->mode & 7, w.path);
}

static int get_link_target(struct req *q, const void *in)
{
	const Hd__GetLinkTargetRequestProto *m = in;
	struct walk w;
	int rc = ns_find(&q->ns, m->path, &w);

	return rc ? rc
		  : exc_throw(&q->exc, EXC_IO, "Path %s is not a symbolic link", m->path);
}

static int get_acl_status(struct req *q, const void *in)
{
	const Hd__GetAclStatusRequestProto *m = in;
	Hd__GetAclStatusResponseProto *r = req_reply(q, Hd__GetAclStatusResponseProto,
						     hd__get_acl_status_response_proto__init);
	Hd__AclStatusProto *s = req_new_msg(q, Hd__AclStatusProto, hd__acl_status_proto__init);
	Hd__FsPermissionProto *p =
		req_new_msg(q, Hd__FsPermissionProto, hd__fs_permission_proto__init);
	struct walk w;
	int rc = ns_find(&q->ns, m->src, &w);

	if (rc < 0)
		return rc;
	p->perm = w.last->perm;
	s->owner = arena_strdup(&q->mem, w.last->owner);
	s->group = arena_strdup(&q->mem, w.last->group);
	s->sticky = (w.last->perm & INODE_STICKY) != 0;
	s->permission = p;
	r->result = s;
	return 0;
}

/* Files have no extended attributes here; the path must exist nevertheless. */
static int get_xattrs(struct req *q, const void *in)
{
	const Hd__GetXAttrsRequestProto *m = in;
	struct walk w;
	int rc = ns_find(&q->ns, m->src, &w);

	req_reply(q, Hd__GetXAttrsResponseProto, hd__get_xattrs_response_proto__init);
	if (!rc && m->n_xattrs)
		rc = exc_throw(&q->exc, EXC_NO_XATTR,
			       "At least one of the attributes provided was not found.");
	return rc;
}

static int list_xattrs(struct req *q, const void *in)
{
	const Hd__ListXAttrsRequestProto *m = in;
	struct walk w;

	req_reply(q, Hd__ListXAttrsResponseProto, hd__list_xattrs_response_proto__init);
	return ns_find(&q->ns, m->src, &w);
}

static int get_ez_for_path(struct req *q, const void *in)
{
	(void)in;
	req_reply(q, Hd__GetEZForPathResponseProto, hd__get_ezfor_path_response_proto__init);
	return 0;
}

#define READ(name, msg, fn) METHOD(name, hd, msg, REQ_READ, 0, fn)
static const struct method table[] = {
	READ(getFileInfo, get_file_info, get_file_info),
	READ(getFileLinkInfo, get_file_link_info, get_file_link_info),
	READ(getLocatedFileInfo, get_located_file_info, get_located_file_info),
	READ(getListing, get_listing, get_listing),
	READ(getBlockLocations, get_block_locations, get_block_locations),
	READ(getContentSummary, get_content_summary, get_content_summary),
	READ(getQuotaUsage, get_quota_usage, get_quota_usage),
	READ(getPreferredBlockSize, get_preferred_block_size, get_preferred_block_size),
	READ(isFileClosed, is_file_closed, is_file_closed),
	READ(checkAccess, check_access, check_access),
	READ(getLinkTarget, get_link_target, get_link_target),
	READ(getAclStatus, get_acl_status, get_acl_status),
	READ(getXAttrs, get_xattrs, get_xattrs),
	READ(listXAttrs, list_xattrs, list_xattrs),
	READ(getEZForPath, get_ezfor_path, get_ez_for_path),
};
const struct method_table client_read_methods = METHOD_TABLE(table);
