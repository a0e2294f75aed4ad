/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/namespace/acl.h"

#include <errno.h>
#include <string.h>

#include "common/base/cursor.h"
#include "common/base/utf8.h"
#include "namenode-shim/base/users.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/ns_internal.h"

#define ROW_HEAD 2                /* how many */
#define ROW_ENTRY (1 + 1 + 1 + 2) /* scope, kind, rights, length of the name */

/* ---- the row ---- */

static void get_one(struct rd *r, struct arena *a, struct acl_entry *e)
{
	const uint8_t *name;
	uint16_t len;

	e->scope = rd_u8(r);
	e->type = rd_u8(r);
	e->perm = rd_u8(r);
	len = rd_be16(r);
	name = rd_bytes(r, len);
	if (!name || e->scope > ACL_DEFAULT || e->type > ACL_OTHER || e->perm > 7) {
		r->bad = true;
		return;
	}
	e->name = arena_strndup(a, (const char *)name, len);
}

int acl_get(struct txn *t, const struct inode *n, struct arena *a, struct acl *ret)
{
	const uint64_t key = htobe64(n->id);
	uint16_t count;
	MDB_val v;
	struct rd r;
	int rc;

	ret->n = 0;
	if (!(n->has & INODE_HAS_ACL))
		return 0;
	rc = txn_get(t, t->db->acl, &key, sizeof(key), &v);
	if (rc < 0)
		return rc == -ENOENT ? -EBADMSG : rc;
	r = rd_init(v.mv_data, v.mv_size);
	count = rd_be16(&r);
	if (count > ACL_MAX)
		return -EBADMSG;
	for (uint16_t i = 0; i < count && !r.bad; i++)
		get_one(&r, a, &ret->e[i]);
	if (r.bad)
		return -EBADMSG;
	ret->n = count;
	return 0;
}

int acl_del(struct txn *t, uint64_t inode)
{
	const uint64_t key = htobe64(inode);
	int rc = txn_del(t, t->db->acl, &key, sizeof(key));

	return rc == -ENOENT ? 0 : rc;
}

/* Also says in @n what there is, which the caller puts. */
static int put(struct txn *t, struct inode *n, const struct acl *l)
{
	const uint64_t key = htobe64(n->id);
	const bool had = n->has & INODE_HAS_ACL;
	size_t len = ROW_HEAD;
	struct wr w;
	void *to;
	int rc;

	tree_changed(t, n->id);
	n->has &= (uint8_t) ~(INODE_HAS_ACL | INODE_HAS_ACCESS_ACL);
	if (!l->n)
		return had ? acl_del(t, n->id) : 0;
	for (uint32_t i = 0; i < l->n; i++)
		len += ROW_ENTRY + strlen(l->e[i].name);
	rc = txn_reserve(t, t->db->acl, &key, sizeof(key), len, &to);
	if (rc < 0)
		return rc;
	w = wr_init(to, len);
	wr_be16(&w, (uint16_t)l->n);
	for (uint32_t i = 0; i < l->n; i++) {
		wr_u8(&w, l->e[i].scope);
		wr_u8(&w, l->e[i].type);
		wr_u8(&w, l->e[i].perm);
		wr_be16(&w, (uint16_t)strlen(l->e[i].name));
		wr_bytes(&w, l->e[i].name, strlen(l->e[i].name));
	}
	n->has |= INODE_HAS_ACL;
	if (l->e[0].scope == ACL_ACCESS)
		n->has |= INODE_HAS_ACCESS_ACL;
	return 0;
}

/* ---- all entries of an inode, and back ---- */

static void push(struct acl *l, enum acl_scope scope, enum acl_type type, unsigned int perm)
{
	l->e[l->n++] = (struct acl_entry){(uint8_t)scope, (uint8_t)type, (uint8_t)(perm & 7), ""};
}

/* The whole list of @n, whose extra entries are @extra. */
static void make_whole(const struct inode *n, const struct acl *extra, struct acl *ret)
{
	const bool access = n->has & INODE_HAS_ACCESS_ACL;
	uint32_t i = 0;

	ret->n = 0;
	push(ret, ACL_ACCESS, ACL_USER, n->perm >> 6);
	for (; i < extra->n && extra->e[i].scope == ACL_ACCESS; i++)
		ret->e[ret->n++] = extra->e[i];
	push(ret, ACL_ACCESS, access ? ACL_MASK : ACL_GROUP, n->perm >> 3);
	push(ret, ACL_ACCESS, ACL_OTHER, n->perm);
	for (; i < extra->n; i++)
		ret->e[ret->n++] = extra->e[i];
}

/* Make @n's bits and row of the list @l, which is sorted and has what it must. */
static int store_whole(struct txn *t, struct inode *n, const struct acl *l)
{
	struct acl extra = {.n = 0};
	uint32_t access = 0;

	while (access < l->n && l->e[access].scope == ACL_ACCESS)
		access++;
	if (access > ACL_BASE)
		for (uint32_t i = 1; i < access - 2; i++)
			extra.e[extra.n++] = l->e[i];
	for (uint32_t i = access; i < l->n; i++)
		extra.e[extra.n++] = l->e[i];
	/* The last but one is the mask, or the group where there is none. */
	n->perm = (uint16_t)((n->perm & INODE_STICKY) | l->e[0].perm << 6 |
			     l->e[access - 2].perm << 3 | l->e[access - 1].perm);
	return put(t, n, &extra);
}

/* ---- rights ---- */

bool acl_allows(struct ns *n, const struct inode *node, unsigned int access)
{
	const unsigned int mask = (unsigned int)node->perm >> 3 & 7;
	bool matched = false;
	struct acl l;

	if (!strcmp(n->user, node->owner))
		return ((unsigned int)node->perm >> 6 & access) == access;
	if (acl_get(n->t, node, n->a, &l) < 0)
		return false;
	for (uint32_t i = 0; i < l.n && l.e[i].scope == ACL_ACCESS; i++) {
		const struct acl_entry *e = &l.e[i];
		const bool yes = (e->perm & mask & access) == access;

		if (e->type == ACL_USER && !strcmp(e->name, n->user))
			return yes;
		if (e->type == ACL_GROUP &&
		    users_in_group(n->users, n->user, *e->name ? e->name : node->group)) {
			if (yes)
				return true;
			matched = true;
		}
	}
	return !matched && (node->perm & access) == access;
}

/* Of one default entry: the rights of the new inode's access entry. @mode filters what it stands
 * for. */
static uint8_t inherited(const struct acl_entry *e, uint16_t mode, bool base_only)
{
	if (e->type == ACL_USER && !*e->name)
		return (uint8_t)(e->perm & mode >> 6 & 7);
	if (e->type == ACL_MASK || (e->type == ACL_GROUP && base_only))
		return (uint8_t)(e->perm & mode >> 3 & 7);
	return e->type == ACL_OTHER ? (uint8_t)(e->perm & mode & 7) : e->perm;
}

int acl_inherit(struct ns *n, const struct inode *up, struct inode *child, const uint16_t *unmasked)
{
	struct acl from, to = {.n = 0};
	uint32_t first = 0;
	uint16_t mode;
	int rc;

	if (!(up->has & INODE_HAS_ACL))
		return 0;
	rc = acl_get(n->t, up, n->a, &from);
	while (!rc && first < from.n && from.e[first].scope == ACL_ACCESS)
		first++;
	if (rc < 0 || first == from.n)
		return rc;
	mode = unmasked && n->limits->acl_unmasked ? *unmasked & INODE_PERM : child->perm;
	for (uint32_t i = first; i < from.n; i++) {
		struct acl_entry e = from.e[i];

		e.perm = inherited(&e, mode, from.n - first == ACL_BASE);
		e.scope = ACL_ACCESS;
		to.e[to.n++] = e;
	}
	for (uint32_t i = first; i < from.n && child->type == INODE_DIR; i++)
		to.e[to.n++] = from.e[i];
	child->perm = mode & INODE_STICKY;
	return store_whole(n->t, child, &to);
}

/* ---- what clients ask ---- */

static int check_enabled(struct ns *n)
{
	return n->limits->acls
		       ? 0
		       : exception_throw(
				 n->x, EXC_ACL,
				 "The ACL operation has been rejected.  Support for ACLs has been "
				 "disabled by setting dfs.namenode.acls.enabled to false.");
}

static int check_spec(struct ns *n, const struct acl *spec)
{
	for (uint32_t i = 0; i < spec->n; i++) {
		if (strlen(spec->e[i].name) > USERS_NAME_MAX)
			return exception_throw(n->x, EXC_ACL,
					       "Invalid ACL: a name is longer than %d bytes.",
					       USERS_NAME_MAX);
		if (!utf8_is_valid(spec->e[i].name))
			return exception_throw(n->x, EXC_ACL, "Invalid ACL: a name is not UTF-8.");
	}
	return 0;
}

/* Without its list an inode has the group's own rights in its bits again. */
static void drop_list(struct inode *n, const struct acl *extra, struct acl *ret)
{
	unsigned int group = (unsigned int)n->perm >> 3;

	for (uint32_t i = 0; i < extra->n; i++)
		if (extra->e[i].scope == ACL_ACCESS && extra->e[i].type == ACL_GROUP &&
		    !*extra->e[i].name)
			group = extra->e[i].perm;
	ret->n = 0;
	push(ret, ACL_ACCESS, ACL_USER, n->perm >> 6);
	push(ret, ACL_ACCESS, ACL_GROUP, group);
	push(ret, ACL_ACCESS, ACL_OTHER, n->perm);
}

static int edit(struct inode *n, const struct acl *extra, enum acl_change how, struct acl *spec,
		struct acl *ret, struct err *err)
{
	struct acl old;

	make_whole(n, extra, &old);
	switch (how) {
	case ACL_CHANGE_MERGE:
		return acl_merge(&old, spec, ret, err);
	case ACL_CHANGE_FILTER:
		return acl_filter(&old, spec, ret, err);
	case ACL_CHANGE_REPLACE:
		if (spec->n)
			return acl_replace(&old, spec, ret, err);
		drop_list(n, extra, ret);
		return 0;
	case ACL_CHANGE_NO_DEFAULT:
		return acl_without_default(&old, ret, err);
	case ACL_CHANGE_NONE:
		drop_list(n, extra, ret);
		return 0;
	}
	return -EINVAL;
}

int acl_change(struct ns *n, const char *path, enum acl_change how, struct acl *spec)
{
	struct err err = ERR_INIT;
	struct acl extra, to;
	struct ns_path w;
	int rc = check_enabled(n);

	rc = rc ? rc : ns_resolve_change(n, path, &w);
	rc = rc ? rc : ns_found(n, &w, "Directory/File does not exist ", "");
	rc = rc ? rc : ns_check_owner(n, &w);
	if (!rc && spec)
		rc = check_spec(n, spec);
	rc = rc ? rc : ns_io(n, acl_get(n->t, w.last, n->a, &extra));
	if (rc < 0)
		return rc;
	rc = edit(w.last, &extra, how, spec, &to, &err);
	if (!rc && to.e[to.n - 1].scope == ACL_DEFAULT && w.last->type != INODE_DIR)
		return exception_throw(
			n->x, EXC_ACL,
			"Invalid ACL: only directories may have a default ACL. Path: %s Path: %s",
			w.path, w.path); /* HDFS says it twice, too */
	if (rc < 0)
		return exception_throw(n->x, EXC_ACL, "%s Path: %s", err.text, w.path);
	rc = store_whole(n->t, w.last, &to);
	return ns_io(n, rc ? rc : inode_put(n->t, w.last));
}

int acl_status(struct ns *n, const char *path, struct inode **ret, struct acl *ret_acl)
{
	struct ns_path w;
	int rc = check_enabled(n);

	rc = rc ? rc : ns_resolve(n, path, &w);
	rc = rc ? rc : ns_found(n, &w, "cannot find ", "");
	rc = rc ? rc : ns_io(n, acl_get(n->t, w.last, n->a, ret_acl));
	if (!rc)
		*ret = w.last;
	return rc;
}
