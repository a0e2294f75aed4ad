/* SPDX-License-Identifier: Apache-2.0 */
/* ClientProtocol: changes of names and attributes. */
#include <string.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "common/erasure/geometry.h"
#include "namenode-shim/blocks/located_block.h"
#include "namenode-shim/namespace/ecpolicy.h"
#include "namenode-shim/namespace/storage_policy.h"
#include "namenode-shim/namespace/under_construction.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/rpc/methods.h"

/* The mode before the umask of the client, where it tells it. */
static const uint16_t *unmasked(struct req *q, const Hd__FsPermissionProto *p)
{
	uint16_t *mode = arena_new(&q->mem, uint16_t);

	*mode = p ? (uint16_t)p->perm : 0;
	return p ? mode : NULL;
}

static int mkdirs(struct req *q, const void *in)
{
	const Hd__MkdirsRequestProto *m = in;
	Hd__MkdirsResponseProto *r =
		req_reply(q, Hd__MkdirsResponseProto, hd__mkdirs_response_proto__init);

	r->result = 1;
	return ns_mkdirs(&q->ns, m->src, (uint16_t)m->masked->perm, unmasked(q, m->unmasked),
			 (m->createparent ? NS_MKDIRS_PARENTS : 0u) |
				 (m->exclusive ? NS_MKDIRS_NEW : 0u));
}

static int check_create(struct req *q, const Hd__CreateRequestProto *m)
{
	const bool ec = m->ecpolicyname && *m->ecpolicyname;

	if (ec && (m->createflag & HD__CREATE_FLAG_PROTO__SHOULD_REPLICATE))
		return exception_throw(
			&q->exception, EXC_ILLEGAL_ARGUMENT,
			"SHOULD_REPLICATE flag and ecPolicyName are exclusive parameters. "
			"Set both is not allowed!");
	return uc_check_client(q, m->clientname);
}

/* Java keeps a replication in 16 signed bits, and its messages show what is left of a larger one.
 */
static int check_replication(struct req *q, const char *path, uint32_t wanted, const char *by)
{
	const int16_t r = (int16_t)wanted;

	if (r > (int64_t)q->nn->set.repl_max)
		return exception_throw(
			&q->exception, EXC_IO,
			"Requested replication factor of %d exceeds maximum of %u for %s%s", r,
			q->nn->set.repl_max, path, by);
	if (r < (int64_t)q->nn->set.repl_min)
		return exception_throw(
			&q->exception, EXC_IO,
			"Requested replication factor of %d is less than the required "
			"minimum of %u for %s%s",
			r, q->nn->set.repl_min, path, by);
	return 0;
}

/* as HDFS; times 512 replicas it fits an int64_t */
#define BLOCK_SIZE_MAX ((int64_t)((1ull << 48) - 1))

static int check_size(struct req *q, const Hd__CreateRequestProto *m)
{
	const struct settings *s = &q->nn->set;

	if ((int64_t)m->blocksize > BLOCK_SIZE_MAX)
		return exception_throw(&q->exception, EXC_BAD_ARGUMENT,
				       "Illagal value: PREFERRED_BLOCK_SIZE = %lld > MAX = %lld",
				       (long long)m->blocksize, (long long)BLOCK_SIZE_MAX);
	if ((int64_t)m->blocksize >= (int64_t)s->min_block_size)
		return 0;
	return exception_throw(&q->exception, EXC_IO,
			       "Specified block size %lld is less than configured minimum value "
			       "dfs.namenode.fs-limits.min-block-size=%llu",
			       (long long)m->blocksize, (unsigned long long)s->min_block_size);
}

/* How the file's blocks are kept: as asked, else as the directory says. */
static int find_ec(struct req *q, const Hd__CreateRequestProto *m, const struct ns_path *w,
		   const struct ec_policy **ret)
{
	const struct ec_policy *p = NULL;
	int rc = 0;

	if (m->createflag & HD__CREATE_FLAG_PROTO__SHOULD_REPLICATE)
		p = NULL;
	else if (m->ecpolicyname && *m->ecpolicyname)
		rc = ecpol_check_enabled(&q->ns, &q->nn->set.ec, m->ecpolicyname, &p);
	else
		rc = ns_io(&q->ns,
			   ecdir_of(q->ns.t, w->last ? w->last : ns_path_parent(w), &q->mem, &p));
	*ret = p && p->codec == EC_CODEC_REPLICATION ? NULL : p;
	if (rc < 0 || !*ret)
		return rc ? rc
			  : check_replication(q, m->src, m->replication,
					      arena_printf(&q->mem, ", clientName=%s", q->ns.host));
	if (m->blocksize < p->cell)
		return exception_throw(
			&q->exception, EXC_IO,
			"Specified block size (%llu) is less than the cell size (%u) of the "
			"erasure coding policy (%s).",
			(unsigned long long)m->blocksize, p->cell, ecpol_text(&q->mem, p));
	return m->blocksize <= EC_LENGTH_MAX / p->k
		       ? 0
		       : exception_throw(&q->exception, EXC_IO,
					 "Block size %llu is too large for %s",
					 (unsigned long long)m->blocksize, p->name);
}

static int find_policy(struct req *q, const Hd__CreateRequestProto *m, unsigned int *ret)
{
	const struct storage_policy *p = NULL;
	int rc = 0;

	if (m->storagepolicy && *m->storagepolicy)
		rc = storage_policy_check_name(&q->ns, m->storagepolicy, &p);
	*ret = p                                                     ? p->id
	       : m->createflag & HD__CREATE_FLAG_PROTO__LAZY_PERSIST ? POLICY_LAZY_PERSIST
								     : POLICY_NONE;
	return rc;
}

/* One that stands there and is not to be overwritten: its writer, if any, is asked about first. */
static int check_writer(struct req *q, const struct ns_create *c, const struct inode *there)
{
	if (!there || c->overwrite)
		return 0;
	return uc_check_open(q, there, "CREATE_FILE", c->path, c->client);
}

static int create(struct req *q, const void *in)
{
	const Hd__CreateRequestProto *m = in;
	Hd__CreateResponseProto *r =
		req_reply(q, Hd__CreateResponseProto, hd__create_response_proto__init);
	struct ns_create c = {
		.path = m->src,
		.client = m->clientname,
		.perm = (uint16_t)m->masked->perm,
		.unmasked = unmasked(q, m->unmasked),
		.repl = (uint16_t)m->replication,
		.block_size = m->blocksize,
		.create = m->createflag & HD__CREATE_FLAG_PROTO__CREATE,
		.overwrite = m->createflag & HD__CREATE_FLAG_PROTO__OVERWRITE,
		.create_parent = m->createparent,
	};
	unsigned int policy;
	struct inode *file;
	struct ns_path w;
	int rc = check_create(q, m);

	rc = rc ? rc : ns_resolve_create(&q->ns, &c, &w);
	rc = rc ? rc : check_size(q, m);
	rc = rc ? rc : find_ec(q, m, &w, &c.ec);
	rc = rc ? rc : find_policy(q, m, &policy);
	rc = rc ? rc : check_writer(q, &c, w.last);
	rc = rc ? rc : ns_create(&q->ns, &c, &w, &file);
	if (!rc && policy)
		rc = ns_io(&q->ns, storage_policy_put(q->ns.t, file->id, policy));
	if (!rc && m->firstblock)
		rc = uc_first_block(q, file, &r->firstblock);
	if (rc < 0)
		return rc;
	r->fs = locate_status(q, file, "", false);
	/* What an overwritten file had may not be touched before that is on the disk. A striped
	 * writer knows nothing of it. */
	q->early = m->early && !file->ec && effects_only_add(&q->effects);
	r->has_early = r->early = q->early;
	return 0;
}

static int delete (struct req *q, const void *in)
{
	const Hd__DeleteRequestProto *m = in;
	Hd__DeleteResponseProto *r =
		req_reply(q, Hd__DeleteResponseProto, hd__delete_response_proto__init);
	bool done = false;
	int rc = ns_delete_some(&q->ns, m->src, m->recursive, &q->tree, &done);

	r->result = done;
	return rc == NS_MORE ? REQ_PARK : rc;
}

static int rename1(struct req *q, const void *in)
{
	const Hd__RenameRequestProto *m = in;
	Hd__RenameResponseProto *r =
		req_reply(q, Hd__RenameResponseProto, hd__rename_response_proto__init);
	bool done = false;
	int rc = ns_rename(&q->ns, m->src, m->dst, &done);

	r->result = done;
	return rc;
}

static int rename2(struct req *q, const void *in)
{
	const Hd__Rename2RequestProto *m = in;

	req_reply(q, Hd__Rename2ResponseProto, hd__rename2_response_proto__init);
	return ns_rename2(&q->ns, m->src, m->dst, m->overwritedest);
}

static int set_permission(struct req *q, const void *in)
{
	const Hd__SetPermissionRequestProto *m = in;

	req_reply(q, Hd__SetPermissionResponseProto, hd__set_permission_response_proto__init);
	return ns_set_perm(&q->ns, m->src, (uint16_t)m->permission->perm);
}

static int set_owner(struct req *q, const void *in)
{
	const Hd__SetOwnerRequestProto *m = in;

	req_reply(q, Hd__SetOwnerResponseProto, hd__set_owner_response_proto__init);
	return ns_set_owner(&q->ns, m->src, m->username, m->groupname);
}

static int set_times(struct req *q, const void *in)
{
	const Hd__SetTimesRequestProto *m = in;

	req_reply(q, Hd__SetTimesResponseProto, hd__set_times_response_proto__init);
	return ns_set_times(&q->ns, m->src, (int64_t)m->mtime, (int64_t)m->atime);
}

/* A stock NameNode has no symbolic links and says so in this way; here they are an administrator's
 * choice. */
static int create_symlink(struct req *q, const void *in)
{
	const Hd__CreateSymlinkRequestProto *m = in;
	int rc;

	req_reply(q, Hd__CreateSymlinkResponseProto, hd__create_symlink_response_proto__init);
	if (!q->nn->set.limits.symlinks)
		return exception_throw(&q->exception, EXC_UNSUPPORTED, "Symlinks not supported");
	rc = req_check_safe(q);
	return rc ? rc : ns_symlink(&q->ns, m->target, m->link, m->createparent);
}

static int set_replication(struct req *q, const void *in)
{
	const Hd__SetReplicationRequestProto *m = in;
	Hd__SetReplicationResponseProto *r = req_reply(q, Hd__SetReplicationResponseProto,
						       hd__set_replication_response_proto__init);
	bool done = false;
	int rc;

	rc = check_replication(q, m->src, m->replication, "");
	rc = rc ? rc : ns_set_repl(&q->ns, m->src, (uint16_t)m->replication, &done);
	r->result = done;
	return rc;
}

#define CHANGE(name, msg, flags, fn) METHOD(name, hd, msg, REQ_CHANGE, flags, fn)
static const struct method table[] = {
	CHANGE(mkdirs, mkdirs, REQ_ONCE, mkdirs),
	CHANGE(create, create, REQ_ONCE, create),
	CHANGE(delete, delete, REQ_ONCE, delete),
	CHANGE(rename, rename, REQ_ONCE, rename1),
	CHANGE(rename2, rename2, REQ_ONCE, rename2),
	CHANGE(setPermission, set_permission, 0, set_permission),
	CHANGE(setOwner, set_owner, 0, set_owner),
	CHANGE(setTimes, set_times, 0, set_times),
	CHANGE(createSymlink, create_symlink, REQ_ONCE | REQ_SAFE_OK, create_symlink),
	CHANGE(setReplication, set_replication, 0, set_replication),
};
const struct method_table client_change_methods = METHOD_TABLE(table);
