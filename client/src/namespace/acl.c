/* SPDX-License-Identifier: Apache-2.0 */
/* acl - the calls of dfsclient.h about access control lists */
#include <stdlib.h>
#include <string.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "acl.pb-c.h"
#include "client/src/fs/path_call.h"
#include "common/wire/pb.h"

#define BASE_ENTRIES 3   /* owner, group or mask, others: of the permission bits */
#define ENTRIES_MAX 1024 /* of an answer; HDFS allows 32 of each scope */
#define JEX_ACL "org.apache.hadoop.hdfs.protocol.AclException"

/* What dfs_get_acl() gives: one allocation, strings behind the entries. */
struct acl {
	struct dfs_acl pub;
	struct dfs_acl_entry entry[];
};

/* ---- what the NameNode says, as a whole list ---- */

struct maker {
	struct dfs_acl_entry *e;
	size_t n;
	char *text; /* where the next string goes */
};

static const char *keep(struct maker *l, const char *s)
{
	const size_t len = strlen(s) + 1;
	char *at = memcpy(l->text, s, len);

	l->text += len;
	return at;
}

static void push(struct maker *l, enum dfs_acl_scope scope, enum dfs_acl_type type, uint32_t perm,
		 const char *name)
{
	l->e[l->n++] = (struct dfs_acl_entry){scope, type, perm & 7, keep(l, name ? name : "")};
}

static void push_msgs(struct maker *l, const Hd__AclStatusProto *s, enum dfs_acl_scope scope)
{
	for (size_t i = 0; i < s->n_entries; i++) {
		const Hd__AclEntryProto *e = s->entries[i];

		if ((enum dfs_acl_scope)e->scope == scope)
			push(l, scope, (enum dfs_acl_type)e->type, (uint32_t)e->permissions,
			     e->name);
	}
}

/* The answer leaves out what the permission bits say: owner, others, and the group or, of a longer
 * list, the mask. */
static struct acl *make_list(const Hd__AclStatusProto *s, uint32_t mode)
{
	size_t text = strlen(s->owner) + strlen(s->group) + 2 + BASE_ENTRIES;
	const size_t room = (s->n_entries + BASE_ENTRIES) * sizeof(struct dfs_acl_entry);
	bool longer = false;
	struct acl *a;
	struct maker l;

	for (size_t i = 0; i < s->n_entries; i++) {
		text += (s->entries[i]->name ? strlen(s->entries[i]->name) : 0) + 1;
		longer |=
			s->entries[i]->scope == HD__ACL_ENTRY_PROTO__ACL_ENTRY_SCOPE_PROTO__ACCESS;
	}
	a = malloc(sizeof(*a) + room + text);
	if (!a)
		return NULL;
	l = (struct maker){a->entry, 0, (char *)a->entry + room};
	push(&l, DFS_ACL_ACCESS, DFS_ACL_USER, mode >> 6, NULL);
	push_msgs(&l, s, DFS_ACL_ACCESS);
	push(&l, DFS_ACL_ACCESS, longer ? DFS_ACL_MASK : DFS_ACL_GROUP, mode >> 3, NULL);
	push(&l, DFS_ACL_ACCESS, DFS_ACL_OTHER, mode, NULL);
	push_msgs(&l, s, DFS_ACL_DEFAULT);
	a->pub = (struct dfs_acl){
		.count = l.n,
		.entry = a->entry,
		.mode = mode | (s->sticky ? 01000 : 0),
		.owner = keep(&l, s->owner),
		.group = keep(&l, s->group),
	};
	return a;
}

/* ---- errors ---- */

/* One exception for a list that is wrong and for lists that are switched off; its words tell which
 * it is. */
static int acl_end(struct path_call *a, struct dfs_err *out)
{
	if (a->rc == -EREMOTEIO && strcmp(a->err.remote, JEX_ACL) == 0)
		a->rc = strstr(a->err.text, "acls.enabled") ? -EOPNOTSUPP : -EINVAL;
	return path_call_end(a, out);
}

/* ---- calls ---- */

DFS_API int dfs_get_acl(struct dfs *fs, const char *path, struct dfs_acl **ret, struct dfs_err *out)
{
	Hd__GetAclStatusRequestProto req = HD__GET_ACL_STATUS_REQUEST_PROTO__INIT;
	Hd__GetAclStatusResponseProto *m = NULL;
	struct acl *l = NULL;
	struct dfs_stat st;
	struct path_call a;

	path_call_begin(&a, fs, path);
	req.src = a.path;
	if (path_call_send(&a, "getAclStatus", &req.base,
			   &hd__get_acl_status_response_proto__descriptor, &m) < 0)
		return acl_end(&a, out);
	if (m->result->n_entries > ENTRIES_MAX)
		a.rc = err_set(&a.err, -EPROTO, "%.400s has %zu entries in its access control list",
			       a.path, m->result->n_entries);
	else if (m->result->permission)
		st.mode = m->result->permission->perm & 01777;
	else /* a NameNode before 2.8 */
		a.rc = path_stat(fs, a.path, &st, &a.err);
	if (a.rc == 0) {
		l = make_list(m->result, st.mode);
		a.rc = l ? 0 : -ENOMEM;
	}
	pb_free(m);
	if (l)
		*ret = &l->pub;
	return acl_end(&a, out);
}

DFS_API void dfs_acl_free(struct dfs_acl *pub)
{
	free(pub); /* the first member of what was allocated */
}

/* All three messages are alike: a path and entries. */
static int change(struct dfs *fs, const char *path, const char *method,
		  const ProtobufCMessageDescriptor *reply, const struct dfs_acl_entry *entry,
		  size_t count, struct dfs_err *out)
{
	Hd__SetAclRequestProto set = HD__SET_ACL_REQUEST_PROTO__INIT;
	Hd__ModifyAclEntriesRequestProto modify = HD__MODIFY_ACL_ENTRIES_REQUEST_PROTO__INIT;
	Hd__RemoveAclEntriesRequestProto remove = HD__REMOVE_ACL_ENTRIES_REQUEST_PROTO__INIT;
	const ProtobufCMessage *req = *method == 's'   ? &set.base
				      : *method == 'm' ? &modify.base
						       : &remove.base;
	Hd__AclEntryProto *e = NULL, **list = NULL;
	struct path_call a;

	path_call_begin(&a, fs, path);
	if (a.rc == 0 && count > ENTRIES_MAX)
		a.rc = err_set(&a.err, -EINVAL,
			       "%.400s: %zu entries of an access control list; HDFS allows 32",
			       a.path, count);
	if (a.rc == 0 && count) {
		e = calloc(count, sizeof(*e));
		list = calloc(count, sizeof(Hd__AclEntryProto *));
		a.rc = e && list ? 0 : -ENOMEM;
	}
	for (size_t i = 0; a.rc == 0 && i < count; i++) {
		hd__acl_entry_proto__init(&e[i]);
		e[i].scope = (Hd__AclEntryProto__AclEntryScopeProto)entry[i].scope;
		e[i].type = (Hd__AclEntryProto__AclEntryTypeProto)entry[i].type;
		e[i].permissions = (Hd__AclEntryProto__FsActionProto)(entry[i].perm & 7);
		e[i].name = entry[i].name && *entry[i].name ? (char *)entry[i].name : NULL;
		list[i] = &e[i];
	}
	set.src = modify.src = remove.src = a.path;
	set.n_aclspec = modify.n_aclspec = remove.n_aclspec = count;
	set.aclspec = modify.aclspec = remove.aclspec = list;
	(void)path_call_send(&a, method, req, reply, NULL);
	free(list);
	free(e);
	return acl_end(&a, out);
}

DFS_API int dfs_set_acl(struct dfs *fs, const char *path, const struct dfs_acl_entry *entry,
			size_t count, struct dfs_err *out)
{
	return change(fs, path, "setAcl", &hd__set_acl_response_proto__descriptor, entry, count,
		      out);
}

DFS_API int dfs_modify_acl(struct dfs *fs, const char *path, const struct dfs_acl_entry *entry,
			   size_t count, struct dfs_err *out)
{
	return change(fs, path, "modifyAclEntries",
		      &hd__modify_acl_entries_response_proto__descriptor, entry, count, out);
}

DFS_API int dfs_remove_acl_entries(struct dfs *fs, const char *path,
				   const struct dfs_acl_entry *entry, size_t count,
				   struct dfs_err *out)
{
	return change(fs, path, "removeAclEntries",
		      &hd__remove_acl_entries_response_proto__descriptor, entry, count, out);
}

DFS_API int dfs_remove_default_acl(struct dfs *fs, const char *path, struct dfs_err *out)
{
	Hd__RemoveDefaultAclRequestProto req = HD__REMOVE_DEFAULT_ACL_REQUEST_PROTO__INIT;
	struct path_call a;

	path_call_begin(&a, fs, path);
	req.src = a.path;
	(void)path_call_send(&a, "removeDefaultAcl", &req.base,
			     &hd__remove_default_acl_response_proto__descriptor, NULL);
	return acl_end(&a, out);
}

DFS_API int dfs_remove_acl(struct dfs *fs, const char *path, struct dfs_err *out)
{
	Hd__RemoveAclRequestProto req = HD__REMOVE_ACL_REQUEST_PROTO__INIT;
	struct path_call a;

	path_call_begin(&a, fs, path);
	req.src = a.path;
	(void)path_call_send(&a, "removeAcl", &req.base, &hd__remove_acl_response_proto__descriptor,
			     NULL);
	return acl_end(&a, out);
}
