/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/namespace/xattr.h"

#include <errno.h>
#include <string.h>

#include "common/base/cursor.h"
#include "common/base/utf8.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/ns.h"

#define ROW_HEAD 4            /* how many */
#define ROW_ENTRY (1 + 2 + 4) /* space, length of the name, length of the value */
#define RAW_PATHS "/.reserved/raw"

static const char *const spaces[XATTR_SPACES] = {"user", "trusted", "security", "system", "raw"};

static const char *full_name(struct ns *n, const struct xattr *x)
{
	return arena_printf(n->a, "%s.%s", spaces[x->space], x->name);
}

static bool is_same(const struct xattr *a, const struct xattr *b)
{
	return a->space == b->space && !strcmp(a->name, b->name);
}

static bool is_unreadable(const struct xattr *x)
{
	return x->space == XATTR_SECURITY && !strcmp(x->name, XATTR_UNREADABLE);
}

static bool is_mark(const struct xattr *x)
{
	return x->space == XATTR_SYSTEM && !strcmp(x->name, XATTR_SATISFY);
}

/* ---- the row ---- */

static void get_one(struct rd *r, struct arena *a, struct xattr *x)
{
	const uint8_t *name, *value;
	uint16_t len;

	x->space = rd_u8(r);
	len = rd_be16(r);
	name = rd_bytes(r, len);
	x->len = rd_be32(r);
	value = rd_bytes(r, x->len);
	if (!value || x->space >= XATTR_SPACES) {
		r->bad = true;
		return;
	}
	x->name = arena_strndup(a, (const char *)name, len);
	x->value = x->len ? arena_strndup(a, (const char *)value, x->len) : NULL;
}

int xattrs_get(struct txn *t, const struct inode *n, struct arena *a, struct xattrs *ret)
{
	const uint64_t key = htobe64(n->id);
	struct xattrs all = {0};
	uint32_t count;
	MDB_val v;
	struct rd r;
	int rc;

	*ret = all;
	if (!(n->has & INODE_HAS_XATTRS))
		return 0;
	rc = txn_get(t, t->db->xattr, &key, sizeof(key), &v);
	if (rc < 0)
		return rc == -ENOENT ? -EBADMSG : rc;
	r = rd_init(v.mv_data, v.mv_size);
	count = rd_be32(&r);
	if (count > rd_left(&r) / ROW_ENTRY)
		return -EBADMSG;
	all.a = arena_array(a, struct xattr, count + 1u);
	for (; all.n < count && !r.bad; all.n++)
		get_one(&r, a, &all.a[all.n]);
	if (r.bad)
		return -EBADMSG;
	*ret = all;
	return 0;
}

/* Also says in @n whether there are any, which the caller puts. */
static int put_all(struct txn *t, struct inode *n, const struct xattrs *x)
{
	const uint64_t key = htobe64(n->id);
	size_t len = ROW_HEAD;
	struct wr w;
	void *to;
	int rc;

	if (!x->n) {
		n->has &= (uint8_t)~INODE_HAS_XATTRS;
		return xattrs_del(t, n->id);
	}
	for (uint32_t i = 0; i < x->n; i++)
		len += ROW_ENTRY + strlen(x->a[i].name) + x->a[i].len;
	rc = txn_reserve(t, t->db->xattr, &key, sizeof(key), len, &to);
	if (rc < 0)
		return rc;
	w = wr_init(to, len);
	wr_be32(&w, x->n);
	for (uint32_t i = 0; i < x->n; i++) {
		wr_u8(&w, x->a[i].space);
		wr_be16(&w, (uint16_t)strlen(x->a[i].name));
		wr_bytes(&w, x->a[i].name, strlen(x->a[i].name));
		wr_be32(&w, x->a[i].len);
		wr_bytes(&w, x->a[i].value, x->a[i].len);
	}
	n->has |= INODE_HAS_XATTRS;
	return 0;
}

int xattrs_del(struct txn *t, uint64_t inode)
{
	const uint64_t key = htobe64(inode);
	int rc = txn_del(t, t->db->xattr, &key, sizeof(key));

	return rc == -ENOENT ? 0 : rc;
}

int xattrs_marked(struct txn *t, const struct inode *n, struct arena *a, bool *ret)
{
	struct xattrs all;
	int rc = xattrs_get(t, n, a, &all);

	*ret = false;
	for (uint32_t i = 0; i < all.n; i++)
		*ret |= is_mark(&all.a[i]);
	return rc;
}

int xattrs_mark(struct txn *t, struct inode *n, struct arena *a, bool on, bool *ret_changed)
{
	struct xattrs old, all = {0};
	int rc = xattrs_get(t, n, a, &old);

	*ret_changed = false;
	if (rc < 0)
		return rc;
	all.a = arena_array(a, struct xattr, old.n + 1u);
	if (on)
		all.a[all.n++] = (struct xattr){.space = XATTR_SYSTEM, .name = XATTR_SATISFY};
	for (uint32_t i = 0; i < old.n; i++)
		if (!is_mark(&old.a[i]))
			all.a[all.n++] = old.a[i];
	*ret_changed = all.n != old.n;
	return *ret_changed ? put_all(t, n, &all) : 0;
}

/* ---- rights ---- */

static bool is_raw_path(const char *path)
{
	return !strncmp(path, RAW_PATHS, strlen(RAW_PATHS));
}

static bool is_visible(const struct ns *n, const struct xattr *x, bool raw)
{
	return x->space == XATTR_USER || (x->space == XATTR_TRUSTED && n->super) ||
	       (x->space == XATTR_RAW && raw) || is_unreadable(x);
}

/* May the caller name @x at all? */
static int check_named(struct ns *n, const char *path, const struct xattr *x)
{
	if (!n->limits->xattrs)
		return exception_throw(
			n->x, EXC_IO,
			"The XAttr operation has been rejected.  Support for XAttrs has been "
			"disabled by setting dfs.namenode.xattrs.enabled to false.");
	if (!x)
		return 0;
	if (x->space >= XATTR_SPACES)
		return exception_throw(n->x, EXC_ILLEGAL_ARGUMENT,
				       "There is no such namespace of extended attributes");
	if (!is_visible(n, x, is_raw_path(path)))
		return exception_throw(n->x, EXC_ACCESS,
				       "User doesn't have permission for xattr: %s",
				       full_name(n, x));
	if (is_unreadable(x) && x->value)
		return exception_throw(n->x, EXC_ACCESS,
				       "Attempt to set a value for 'security." XATTR_UNREADABLE
				       "'. Values are not allowed for this xattr.");
	return 0;
}

static int check_size(struct ns *n, const struct xattr *x)
{
	const size_t size = strlen(x->name) + x->len;

	if (size > n->limits->xattr_bytes)
		return exception_throw(
			n->x, EXC_ILLEGAL_ARGUMENT,
			"The XAttr is too big. The maximum combined size of the name and value "
			"is %u, but the total size is %zu",
			n->limits->xattr_bytes, size);
	return utf8_is_valid(x->name) ? 0
				      : exception_throw(n->x, EXC_ILLEGAL_ARGUMENT,
							"The name of the XAttr is not UTF-8");
}

static int check_change(struct ns *n, const struct ns_path *w, const struct xattr *x)
{
	if (!n->enforce || x->space != XATTR_USER || !w->last)
		return 0;
	if (w->last->type == INODE_DIR && w->last->perm & INODE_STICKY)
		return ns_check_owner(n, w);
	return ns_check(n, w->last, ACCESS_W, w->path);
}

/* The inode whose attribute @x is to change. */
static int find_for_change(struct ns *n, const char *path, const struct xattr *x,
			   const char *operation, struct ns_path *w)
{
	int rc = ns_resolve_change(n, path, w);

	if (!rc && is_raw_path(path) && n->enforce && !n->super)
		rc = exception_throw(
			n->x, EXC_ACCESS,
			"Access denied for user %s. Superuser privilege is required for operation %s",
			n->user, operation);
	rc = rc ? rc : check_change(n, w, x);
	return rc ? rc : ns_found(n, w, "cannot find ", "");
}

/* ---- what clients ask ---- */

static int pick(struct ns *n, const struct xattrs *from, const struct xattrs *wanted,
		struct xattrs *ret)
{
	ret->a = arena_array(n->a, struct xattr, wanted->n);
	for (uint32_t i = 0; i < wanted->n; i++) {
		uint32_t k = 0;

		while (k < from->n && !is_same(&from->a[k], &wanted->a[i]))
			k++;
		if (k == from->n)
			return exception_throw(
				n->x, EXC_NO_XATTR,
				"At least one of the attributes provided was not found.");
		ret->a[ret->n++] = from->a[k];
	}
	return 0;
}

int xattr_list(struct ns *n, const char *path, const struct xattrs *wanted, struct xattrs *ret)
{
	const bool raw = is_raw_path(path);
	struct xattrs all, seen = {0};
	struct ns_path w;
	int rc = check_named(n, path, NULL);

	*ret = seen;
	for (uint32_t i = 0; wanted && i < wanted->n && !rc; i++)
		rc = check_named(n, path, &wanted->a[i]);
	rc = rc ? rc : ns_resolve(n, path, &w);
	if (!rc && w.last)
		rc = ns_check(n, w.last, ACCESS_R, w.path);
	rc = rc ? rc : ns_found(n, &w, "cannot find ", "");
	rc = rc ? rc : ns_io(n, xattrs_get(n->t, w.last, n->a, &all));
	if (rc < 0)
		return rc;
	seen.a = all.a;
	for (uint32_t i = 0; i < all.n; i++)
		if (is_visible(n, &all.a[i], raw))
			seen.a[seen.n++] = all.a[i];
	if (wanted && wanted->n)
		return pick(n, &seen, wanted, ret);
	*ret = seen;
	return 0;
}

static int check_flags(struct ns *n, const struct xattr *x, bool exists, unsigned int flags)
{
	if (!(flags & (XATTR_CREATE | XATTR_REPLACE)))
		return exception_throw(n->x, EXC_ILLEGAL_ARGUMENT, "A flag must be specified.");
	if (exists && !(flags & XATTR_REPLACE))
		return exception_throw(
			n->x, EXC_IO,
			"XAttr: %s already exists. The REPLACE flag must be specified.", x->name);
	if (!exists && !(flags & XATTR_CREATE))
		return exception_throw(
			n->x, EXC_IO,
			"XAttr: %s does not exist. The CREATE flag must be specified.", x->name);
	return 0;
}

static int check_count(struct ns *n, const struct xattrs *all)
{
	uint32_t counted = 0, marks = 0, limit;

	for (uint32_t i = 0; i < all->n; i++) {
		counted += all->a[i].space == XATTR_USER || all->a[i].space == XATTR_TRUSTED;
		marks += is_mark(&all->a[i]);
	}
	limit = counted > n->limits->xattrs_max ? n->limits->xattrs_max : XATTRS_HIDDEN_MAX;
	if (counted <= n->limits->xattrs_max && all->n - counted - marks <= XATTRS_HIDDEN_MAX)
		return 0;
	return exception_throw(n->x, EXC_IO,
			       "Cannot add additional XAttr to inode, would exceed limit of %u",
			       limit);
}

int xattr_set(struct ns *n, const char *path, const struct xattr *x, unsigned int flags)
{
	struct xattrs old, all = {0};
	bool exists = false;
	struct ns_path w;
	int rc = check_named(n, path, NULL);

	rc = rc ? rc : check_size(n, x);
	rc = rc ? rc : check_named(n, path, x);
	rc = rc ? rc : find_for_change(n, path, x, "setXAttr", &w);
	rc = rc ? rc : ns_io(n, xattrs_get(n->t, w.last, n->a, &old));
	if (rc < 0)
		return rc;
	all.a = arena_array(n->a, struct xattr, old.n + 1u);
	all.a[all.n++] = *x;
	for (uint32_t i = 0; i < old.n; i++) {
		if (is_same(&old.a[i], x))
			exists = true;
		else
			all.a[all.n++] = old.a[i];
	}
	rc = check_flags(n, x, exists, flags);
	rc = rc ? rc : check_count(n, &all);
	if (!rc && is_unreadable(x) && w.last->type != INODE_FILE)
		rc = exception_throw(n->x, EXC_IO,
				     "Can only set 'security." XATTR_UNREADABLE "' on a file.");
	rc = rc ? rc : ns_io(n, put_all(n->t, w.last, &all));
	return rc ? rc : ns_io(n, inode_put(n->t, w.last));
}

int xattr_remove(struct ns *n, const char *path, const struct xattr *x)
{
	struct xattrs all;
	uint32_t left = 0;
	struct ns_path w;
	int rc = check_named(n, path, NULL);

	rc = rc ? rc : check_named(n, path, x);
	rc = rc ? rc : find_for_change(n, path, x, "removeXAttr", &w);
	rc = rc ? rc : ns_io(n, xattrs_get(n->t, w.last, n->a, &all));
	if (rc < 0)
		return rc;
	if (all.n && is_unreadable(x))
		return exception_throw(n->x, EXC_ACCESS,
				       "The xattr 'security." XATTR_UNREADABLE
				       "' can not be deleted.");
	for (uint32_t i = 0; i < all.n; i++)
		if (!is_same(&all.a[i], x))
			all.a[left++] = all.a[i];
	if (left == all.n)
		return exception_throw(n->x, EXC_IO,
				       "No matching attributes found for remove operation");
	all.n = left;
	rc = ns_io(n, put_all(n->t, w.last, &all));
	return rc ? rc : ns_io(n, inode_put(n->t, w.last));
}

int xattr_check_readable(struct ns *n, const struct inode *file)
{
	struct xattrs all;
	int rc;

	if (!n->super || !n->enforce || !(file->has & INODE_HAS_XATTRS))
		return 0;
	rc = ns_io(n, xattrs_get(n->t, file, n->a, &all));
	for (uint32_t i = 0; i < all.n && !rc; i++)
		if (is_unreadable(&all.a[i]))
			rc = exception_throw(
				n->x, EXC_ACCESS,
				"Access is denied for %s since the superuser is not allowed to "
				"perform this operation.",
				n->user);
	return rc;
}
