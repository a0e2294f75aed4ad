/* SPDX-License-Identifier: Apache-2.0 */
/* ClientProtocol: extended attributes and access control lists. */
#include <string.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "acl.pb-c.h"
#include "namenode-shim/namespace/acl.h"
#include "namenode-shim/namespace/xattr.h"
#include "namenode-shim/rpc/methods.h"
#include "xattr.pb-c.h"

/* ---- extended attributes ---- */

static struct xattr from_msg(const Hd__XAttrProto *m)
{
	struct xattr x = {.space = XATTR_USER,
			  .name = ""}; /* of a message that names none, as Java reads it */

	if (!m)
		return x;
	x.space =
		(unsigned int)m->namespace_ < XATTR_SPACES ? (uint8_t)m->namespace_ : XATTR_SPACES;
	x.name = m->name;
	if (m->has_value) {
		x.value = m->value.data ? (const void *)m->value.data : "";
		x.len = (uint32_t)m->value.len; /* a message is no larger */
	}
	return x;
}

static struct xattrs all_from_msg(struct req *q, Hd__XAttrProto *const *m, size_t n)
{
	struct xattrs x = {.a = arena_array(&q->mem, struct xattr, n + 1)};

	for (; x.n < n; x.n++)
		x.a[x.n] = from_msg(m[x.n]);
	return x;
}

static Hd__XAttrProto **to_msg(struct req *q, const struct xattrs *x)
{
	Hd__XAttrProto **m = arena_array(&q->mem, Hd__XAttrProto *, x->n + 1u);

	for (uint32_t i = 0; i < x->n; i++) {
		m[i] = req_new_msg(q, Hd__XAttrProto, hd__xattr_proto__init);
		m[i]->namespace_ = (Hd__XAttrProto__XAttrNamespaceProto)x->a[i].space;
		m[i]->name = (char *)x->a[i].name;
		m[i]->has_value = x->a[i].len > 0;
		if (m[i]->has_value)
			m[i]->value = (ProtobufCBinaryData){x->a[i].len,
							    (uint8_t *)(uintptr_t)x->a[i].value};
	}
	return m;
}

static int set_xattr(struct req *q, const void *in)
{
	const Hd__SetXAttrRequestProto *m = in;
	const struct xattr x = from_msg(m->xattr);

	req_reply(q, Hd__SetXAttrResponseProto, hd__set_xattr_response_proto__init);
	return xattr_set(&q->ns, m->src, &x, m->has_flag ? m->flag : 0);
}

static int remove_xattr(struct req *q, const void *in)
{
	const Hd__RemoveXAttrRequestProto *m = in;
	const struct xattr x = from_msg(m->xattr);

	req_reply(q, Hd__RemoveXAttrResponseProto, hd__remove_xattr_response_proto__init);
	return xattr_remove(&q->ns, m->src, &x);
}

static int get_xattrs(struct req *q, const void *in)
{
	const Hd__GetXAttrsRequestProto *m = in;
	Hd__GetXAttrsResponseProto *r =
		req_reply(q, Hd__GetXAttrsResponseProto, hd__get_xattrs_response_proto__init);
	const struct xattrs wanted = all_from_msg(q, m->xattrs, m->n_xattrs);
	struct xattrs x;
	int rc = xattr_list(&q->ns, m->src, &wanted, &x);

	if (rc < 0)
		return rc;
	r->xattrs = to_msg(q, &x);
	r->n_xattrs = x.n;
	return 0;
}

/* With their values, as in HDFS: programs that are not Java read them. */
static int list_xattrs(struct req *q, const void *in)
{
	const Hd__ListXAttrsRequestProto *m = in;
	Hd__ListXAttrsResponseProto *r =
		req_reply(q, Hd__ListXAttrsResponseProto, hd__list_xattrs_response_proto__init);
	struct xattrs x;
	int rc = xattr_list(&q->ns, m->src, NULL, &x);

	if (rc < 0)
		return rc;
	r->xattrs = to_msg(q, &x);
	r->n_xattrs = x.n;
	return 0;
}

/* ---- access control lists ---- */

/* NULL with AclException: more entries than any list may have. */
static struct acl *spec_from_msg(struct req *q, Hd__AclEntryProto *const *m, size_t n)
{
	struct acl *l = arena_new(&q->mem, struct acl);

	if (n > ACL_EDIT_MAX) {
		exception_throw(&q->exception, EXC_ACL,
				"Invalid ACL: ACL has %zu entries, which exceeds maximum of %d.", n,
				ACL_MAX);
		return NULL;
	}
	for (; l->n < n; l->n++) {
		if ((unsigned int)m[l->n]->scope > ACL_DEFAULT ||
		    (unsigned int)m[l->n]->type > ACL_OTHER) {
			exception_throw(
				&q->exception, EXC_ACL,
				"Invalid ACL: an entry has a scope or type that there is not.");
			return NULL;
		}
		l->e[l->n] = (struct acl_entry){(uint8_t)m[l->n]->scope, (uint8_t)m[l->n]->type,
						(uint8_t)(m[l->n]->permissions & 7),
						m[l->n]->name ? m[l->n]->name : ""};
	}
	return l;
}

static int change_acl(struct req *q, const char *path, enum acl_change how,
		      Hd__AclEntryProto *const *m, size_t n)
{
	struct acl *spec = spec_from_msg(q, m, n);

	return spec ? acl_change(&q->ns, path, how, spec) : -EINVAL;
}

static int modify_acl_entries(struct req *q, const void *in)
{
	const Hd__ModifyAclEntriesRequestProto *m = in;

	req_reply(q, Hd__ModifyAclEntriesResponseProto,
		  hd__modify_acl_entries_response_proto__init);
	return change_acl(q, m->src, ACL_CHANGE_MERGE, m->aclspec, m->n_aclspec);
}

static int remove_acl_entries(struct req *q, const void *in)
{
	const Hd__RemoveAclEntriesRequestProto *m = in;

	req_reply(q, Hd__RemoveAclEntriesResponseProto,
		  hd__remove_acl_entries_response_proto__init);
	return change_acl(q, m->src, ACL_CHANGE_FILTER, m->aclspec, m->n_aclspec);
}

static int set_acl(struct req *q, const void *in)
{
	const Hd__SetAclRequestProto *m = in;

	req_reply(q, Hd__SetAclResponseProto, hd__set_acl_response_proto__init);
	return change_acl(q, m->src, ACL_CHANGE_REPLACE, m->aclspec, m->n_aclspec);
}

static int remove_default_acl(struct req *q, const void *in)
{
	const Hd__RemoveDefaultAclRequestProto *m = in;

	req_reply(q, Hd__RemoveDefaultAclResponseProto,
		  hd__remove_default_acl_response_proto__init);
	return acl_change(&q->ns, m->src, ACL_CHANGE_NO_DEFAULT, NULL);
}

static int remove_acl(struct req *q, const void *in)
{
	const Hd__RemoveAclRequestProto *m = in;

	req_reply(q, Hd__RemoveAclResponseProto, hd__remove_acl_response_proto__init);
	return acl_change(&q->ns, m->src, ACL_CHANGE_NONE, NULL);
}

static Hd__AclEntryProto *entry_to_msg(struct req *q, const struct acl_entry *e)
{
	Hd__AclEntryProto *m = req_new_msg(q, Hd__AclEntryProto, hd__acl_entry_proto__init);

	m->scope = (Hd__AclEntryProto__AclEntryScopeProto)e->scope;
	m->type = (Hd__AclEntryProto__AclEntryTypeProto)e->type;
	m->permissions = (Hd__AclEntryProto__FsActionProto)e->perm;
	m->name = *e->name ? (char *)e->name : NULL;
	return m;
}

static int get_acl_status(struct req *q, const void *in)
{
	const Hd__GetAclStatusRequestProto *m = in;
	Hd__GetAclStatusResponseProto *r = req_reply(q, Hd__GetAclStatusResponseProto,
						     hd__get_acl_status_response_proto__init);
	Hd__AclStatusProto *s = req_new_msg(q, Hd__AclStatusProto, hd__acl_status_proto__init);
	struct inode *n;
	struct acl l;
	int rc = acl_status(&q->ns, m->src, &n, &l);

	if (rc < 0)
		return rc;
	s->permission = req_new_msg(q, Hd__FsPermissionProto, hd__fs_permission_proto__init);
	s->permission->perm = n->perm;
	s->owner = (char *)n->owner;
	s->group = (char *)n->group;
	s->sticky = (n->perm & INODE_STICKY) != 0;
	s->entries = arena_array(&q->mem, Hd__AclEntryProto *, l.n + 1u);
	for (; s->n_entries < l.n; s->n_entries++)
		s->entries[s->n_entries] = entry_to_msg(q, &l.e[s->n_entries]);
	r->result = s;
	return 0;
}

#define READ(name, msg, fn) METHOD(name, hd, msg, REQ_READ, 0, fn)
#define CHANGE(name, msg, flags, fn) METHOD(name, hd, msg, REQ_CHANGE, flags, fn)
static const struct method table[] = {
	CHANGE(setXAttr, set_xattr, REQ_ONCE, set_xattr),
	CHANGE(removeXAttr, remove_xattr, REQ_ONCE, remove_xattr),
	READ(getXAttrs, get_xattrs, get_xattrs),
	READ(listXAttrs, list_xattrs, list_xattrs),
	CHANGE(modifyAclEntries, modify_acl_entries, 0, modify_acl_entries),
	CHANGE(removeAclEntries, remove_acl_entries, 0, remove_acl_entries),
	CHANGE(removeDefaultAcl, remove_default_acl, 0, remove_default_acl),
	CHANGE(removeAcl, remove_acl, 0, remove_acl),
	CHANGE(setAcl, set_acl, 0, set_acl),
	READ(getAclStatus, get_acl_status, get_acl_status),
};
const struct method_table client_attr_methods = METHOD_TABLE(table);
