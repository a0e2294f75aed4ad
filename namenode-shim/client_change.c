/* SPDX-License-Identifier: Apache-2.0 */
/* ClientProtocol: changes of names and attributes. */
#include <string.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "namenode-shim/file.h"
#include "namenode-shim/locate.h"
#include "namenode-shim/methods.h"
#include "namenode-shim/nn.h"

#define REPLICATION_POLICY "REPLICATION" /* ecPolicyName that means: replicated */

static int mkdirs(struct req *q, const void *in)
{
	const Hd__MkdirsRequestProto *m = in;
	Hd__MkdirsResponseProto *r =
		req_reply(q, Hd__MkdirsResponseProto, hd__mkdirs_response_proto__init);

	r->result = 1;
	return ns_mkdirs(&q->ns, m->src, (uint16_t)m->masked->perm, m->createparent);
}

static int check_replication(struct req *q, const char *src, uint32_t repl)
{
	const struct settings *s = &q->nn->set;

	if (repl > s->repl_max)
		return exc_throw(&q->exc, EXC_IO,
				 "Requested replication factor of %u exceeds maximum of %u for %s",
				 repl, s->repl_max, src);
	if (repl < s->repl_min)
		return exc_throw(&q->exc, EXC_IO,
				 "Requested replication factor of %u is less than the required "
				 "minimum of %u for %s",
				 repl, s->repl_min, src);
	return 0;
}

static int check_create(struct req *q, const Hd__CreateRequestProto *m)
{
	const struct settings *s = &q->nn->set;
	int rc;

	if (m->ecpolicyname && *m->ecpolicyname && strcmp(m->ecpolicyname, REPLICATION_POLICY))
		return exc_throw(&q->exc, EXC_ILLEGAL_ARGUMENT,
				 "Policy '%.100s' does not match any enabled erasure coding "
				 "policies: []. This NameNode stores replicated files only.",
				 m->ecpolicyname);
	if (!*m->clientname || strlen(m->clientname) > LEASE_NAME_MAX)
		return exc_throw(&q->exc, EXC_ILLEGAL_ARGUMENT,
				 "client name must have 1 to %d bytes", LEASE_NAME_MAX);
	rc = check_replication(q, m->src, m->replication);
	if (rc < 0)
		return rc;
	if (m->blocksize < s->min_block_size || m->blocksize > INT64_MAX)
		return exc_throw(&q->exc, EXC_IO,
				 "Specified block size is less than configured minimum value "
				 "(dfs.namenode.fs-limits.min-block-size): %llu < %llu",
				 (unsigned long long)m->blocksize,
				 (unsigned long long)s->min_block_size);
	return 0;
}

static int create(struct req *q, const void *in)
{
	const Hd__CreateRequestProto *m = in;
	Hd__CreateResponseProto *r =
		req_reply(q, Hd__CreateResponseProto, hd__create_response_proto__init);
	const struct ns_create c = {
		.path = m->src,
		.client = m->clientname,
		.perm = (uint16_t)m->masked->perm,
		.repl = (uint16_t)m->replication,
		.block_size = m->blocksize,
		.create = m->createflag & HD__CREATE_FLAG_PROTO__CREATE,
		.overwrite = m->createflag & HD__CREATE_FLAG_PROTO__OVERWRITE,
		.create_parent = m->createparent,
	};
	struct inode *file, *busy = NULL;
	int rc = check_create(q, m);

	rc = rc ? rc : ns_create(&q->ns, &c, &file, &busy);
	if (busy)
		return file_busy(q, busy, m->src, m->clientname);
	if (!rc)
		r->fs = locate_status(q, file, "", false);
	return rc;
}

static int delete(struct req *q, const void *in)
{
	const Hd__DeleteRequestProto *m = in;
	Hd__DeleteResponseProto *r =
		req_reply(q, Hd__DeleteResponseProto, hd__delete_response_proto__init);
	bool done = false;
	int rc = ns_delete(&q->ns, m->src, m->recursive, &done);

	r->result = done;
	return rc;
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
	return ns_set_times(&q->ns, m->src, m->mtime, m->atime);
}

static int set_replication(struct req *q, const void *in)
{
	const Hd__SetReplicationRequestProto *m = in;
	Hd__SetReplicationResponseProto *r = req_reply(q, Hd__SetReplicationResponseProto,
						       hd__set_replication_response_proto__init);
	bool done = false;
	int rc;

	rc = check_replication(q, m->src, m->replication);
	if (rc < 0)
		return rc;
	rc = ns_set_repl(&q->ns, m->src, (uint16_t)m->replication, &done);
	r->result = done;
	return rc;
}

#define CHANGE(name, msg, flags, fn) METHOD(name, hd, msg, REQ_CHANGE, flags, fn)
static const struct method table[] = {
	CHANGE(mkdirs, mkdirs, 0, mkdirs),
	CHANGE(create, create, REQ_ONCE, create),
	CHANGE(delete, delete, REQ_ONCE, delete),
	CHANGE(rename, rename, REQ_ONCE, rename1),
	CHANGE(rename2, rename2, REQ_ONCE, rename2),
	CHANGE(setPermission, set_permission, 0, set_permission),
	CHANGE(setOwner, set_owner, 0, set_owner),
	CHANGE(setTimes, set_times, 0, set_times),
	CHANGE(setReplication, set_replication, 0, set_replication),
};
const struct method_table client_change_methods = METHOD_TABLE(table);
