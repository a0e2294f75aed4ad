/* SPDX-License-Identifier: Apache-2.0 */
/* xattr - requests about extended attributes: user. and trusted. are HDFS's, two of system. are
 * access control lists */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "fuse/requests/acl.h"

#define VALUE_MAX (64u << 10) /* of the kernel: XATTR_SIZE_MAX, XATTR_LIST_MAX */

/* The kernel asks for security.capability before every write; HDFS has no such thing for it. */
static bool is_ours(const char *name)
{
	return strncmp(name, "user.", 5) == 0 || strncmp(name, "trusted.", 8) == 0;
}

/* 0 with @a begun, or the errno. */
static int begin(struct ask *a, fuse_req_t req, const char *op, fuse_ino_t ino, const char *name,
		 bool *ret_acl, enum dfs_acl_scope *ret_scope)
{
	*ret_acl = acl_is(name, ret_scope);
	return *ret_acl || is_ours(name) ? ask_begin(a, req, op, ino) : EOPNOTSUPP;
}

/* Links have no attributes, and what is left of a directory that was removed while it is open has
 * none any more. */
static bool has_none(const struct ask *a, ssize_t rc)
{
	return rc == -ELOOP || (rc == -ENOENT && a->in->gone);
}

static int set_errno(const struct ask *a, int rc)
{
	return has_none(a, rc) ? -EOPNOTSUPP : stale_errno(rc);
}

/* A list was changed: the mode is another, and names in a directory that it closes are not kept any
 * more. */
static int change_acl(struct ask *a, enum dfs_acl_scope scope, const char *value, size_t size)
{
	const bool closes = mode_changing(a, true);
	int rc;

	ask_change_begin(a);
	rc = value ? acl_set(a, scope, value, size) : acl_remove(a, scope);
	ask_change_end(a);
	mode_changed(a, rc == 0 && closes);
	if (rc == 0)
		attr_changed(a->m, a->in);
	(void)fuse_lowlevel_notify_inval_inode(a->m->se, a->in->ino, -1, 0);
	return rc == -EACCES ? -EPERM : rc;
}

/* @value NULL: it is removed. */
static int change_xattr(struct ask *a, const char *name, const char *value, size_t size,
			uint32_t how)
{
	int rc;

	ask_change_begin(a);
	rc = value ? dfs_set_xattr(a->user->fs, a->path, name, value, size, how, &a->err)
		   : dfs_remove_xattr(a->user->fs, a->path, name, &a->err);
	ask_change_end(a);
	if (rc == 0)
		attr_changed(a->m, a->in);
	return rc;
}

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags)
{
	const uint32_t how = (flags & XATTR_CREATE ? DFS_XATTR_CREATE : 0u) |
			     (flags & XATTR_REPLACE ? DFS_XATTR_REPLACE : 0u);
	enum dfs_acl_scope scope;
	struct ask a;
	bool acl;
	const int rc = begin(&a, req, "setxattr", ino, name, &acl, &scope);

	if (rc)
		reply_err(req, rc);
	else
		ask_reply(&a, set_errno(&a, acl ? change_acl(&a, scope, value, size)
						: change_xattr(&a, name, value, size, how)));
}

static void reply(struct ask *a, ssize_t n, void *buf, size_t size)
{
	if (n < 0) {
		ask_reply(a, stale_errno((int)n));
	} else {
		ask_end(a);
		if (size == 0)
			fuse_reply_xattr(a->req, (size_t)n);
		else
			fuse_reply_buf(a->req, buf, (size_t)n);
	}
	free(buf);
}

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	enum dfs_acl_scope scope;
	struct ask a;
	ssize_t n = -ENOMEM;
	bool acl;
	const int no = begin(&a, req, "getxattr", ino, name, &acl, &scope);
	char *buf;

	if (no) {
		reply_err(req, no);
		return;
	}
	size = size > VALUE_MAX ? VALUE_MAX : size;
	buf = malloc(size ? size : 1);
	if (buf && acl)
		n = acl_get(&a, scope, buf, size);
	else if (buf)
		do
			n = dfs_get_xattr(a.user->fs, a.path, name, buf, size, &a.err);
		while (ask_again(&a, n));
	reply(&a, has_none(&a, n) ? -ENODATA : n, buf, size);
}

/* The names that getxattr() would give, out of @all; room is for @size, 0: none. Returns their
 * length, -ERANGE. */
static ssize_t pick_names(const char *all, size_t all_len, char *buf, size_t size)
{
	size_t len = 0;

	for (const char *name = all; name < all + all_len; name += strlen(name) + 1) {
		const size_t n = strlen(name) + 1;

		if (!is_ours(name))
			continue;
		if (size && size - len < n)
			return -ERANGE;
		if (size)
			memcpy(buf + len, name, n);
		len += n;
	}
	return (ssize_t)len;
}

void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct ask a;
	ssize_t n = -ENOMEM;
	const int no = ask_begin(&a, req, "listxattr", ino);
	char *all, *buf;

	if (no) {
		reply_err(req, no);
		return;
	}
	size = size > VALUE_MAX ? VALUE_MAX : size;
	all = malloc(VALUE_MAX);
	buf = malloc(size ? size : 1);
	if (all && buf)
		do
			n = dfs_list_xattrs(a.user->fs, a.path, all, VALUE_MAX, &a.err);
		while (ask_again(&a, n));
	if (n == -EOPNOTSUPP || has_none(&a, n)) /* switched off, lists may be there */
		n = 0;
	if (n >= 0)
		n = pick_names(all, (size_t)n, buf, size);
	if (n >= 0)
		n = acl_names(&a, buf, (size_t)n, size);
	free(all);
	reply(&a, n, buf, size);
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	enum dfs_acl_scope scope;
	struct ask a;
	bool acl;
	const int rc = begin(&a, req, "removexattr", ino, name, &acl, &scope);

	if (rc)
		reply_err(req, rc);
	else
		ask_reply(&a, set_errno(&a, acl ? change_acl(&a, scope, NULL, 0)
						: change_xattr(&a, name, NULL, 0, 0)));
}
