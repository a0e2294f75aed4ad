/* SPDX-License-Identifier: Apache-2.0 */
/* xattr - the calls of dfsclient.h about rights and extended attributes of a path */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "client/src/fs/path_call.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"
#include "xattr.pb-c.h"

DFS_API int dfs_access(struct dfs *fs, const char *path, uint32_t bits, struct dfs_err *out)
{
	Hd__CheckAccessRequestProto req = HD__CHECK_ACCESS_REQUEST_PROTO__INIT;
	struct path_call a;

	path_call_begin(&a, fs, path);
	if (a.rc == 0 && bits > 7)
		a.rc = err_set(&a.err, -EINVAL,
			       "there are no access bits %u: give a sum of 1, 2 and 4", bits);
	req.path = a.path;
	req.mode = (Hd__AclEntryProto__FsActionProto)(bits & 7);
	(void)path_call_send(&a, "checkAccess", &req.base,
			     &hd__check_access_response_proto__descriptor, NULL);
	return path_call_end(&a, out);
}

/* Namespaces by their prefixes, in the order of their numbers. */
static const char *const SPACES[] = {"user.", "trusted.", "security.", "system.", "raw."};
#define SPACE_COUNT (sizeof(SPACES) / sizeof(SPACES[0]))

static int split_name(const char *name, Hd__XAttrProto *x, struct err *err)
{
	for (size_t i = 0; i < SPACE_COUNT; i++) {
		const size_t len = strlen(SPACES[i]);

		if (strncmp(name, SPACES[i], len) == 0 && name[len]) {
			x->namespace_ = (Hd__XAttrProto__XAttrNamespaceProto)i;
			x->name = (char *)name + len;
			return 0;
		}
	}
	return err_set(err, -EINVAL,
		       "%.100s: the name of an extended attribute begins with user., "
		       "trusted., security., system. or raw.",
		       name);
}

/* The NameNode has plain IOExceptions for all that can be wrong; their words tell which it is. */
static int xattr_errno(const struct path_call *a)
{
	static const struct {
		const char *words;
		int rc;
	} known[] = {
		{"xattrs.enabled", -EOPNOTSUPP},
		{"isabled", -EOPNOTSUPP},
		{"REPLACE flag must", -EEXIST},
		{"CREATE flag must", -ENODATA},
		{"already exists", -EEXIST},
		{"does not exist", -ENODATA},
		{"No matching attributes", -ENODATA},
		{"not found", -ENODATA},
		{"maximum", -E2BIG},
		{"too large", -E2BIG},
		{"exceed", -E2BIG},
		{"too big", -E2BIG},
	};

	for (size_t i = 0;
	     (a->rc == -EREMOTEIO || a->rc == -EINVAL) && i < sizeof(known) / sizeof(known[0]); i++)
		if (strstr(a->err.text, known[i].words))
			return known[i].rc;
	return a->rc;
}

static int xattr_end(struct path_call *a, struct dfs_err *out)
{
	a->rc = xattr_errno(a);
	return path_call_end(a, out);
}

DFS_API int dfs_set_xattr(struct dfs *fs, const char *path, const char *name, const void *value,
			  size_t len, uint32_t flags, struct dfs_err *out)
{
	Hd__SetXAttrRequestProto req = HD__SET_XATTR_REQUEST_PROTO__INIT;
	Hd__XAttrProto x = HD__XATTR_PROTO__INIT;
	struct path_call a;

	path_call_begin(&a, fs, path);
	a.rc = a.rc ?: split_name(name, &x, &a.err);
	x.has_value = true;
	x.value.data = (uint8_t *)value;
	x.value.len = len;
	req.src = a.path;
	req.xattr = &x;
	req.has_flag = true;
	req.flag = flags ? flags & 3 : DFS_XATTR_CREATE | DFS_XATTR_REPLACE;
	(void)path_call_send(&a, "setXAttr", &req.base, &hd__set_xattr_response_proto__descriptor,
			     NULL);
	return xattr_end(&a, out);
}

static ssize_t give(struct path_call *a, const void *data, size_t len, void *buf, size_t size)
{
	if (size == 0)
		return (ssize_t)len;
	if (len > size)
		return err_set(&a->err, -ERANGE, "%zu bytes do not fit into %zu", len, size);
	if (len > 0)
		memcpy(buf, data, len);
	return (ssize_t)len;
}

DFS_API ssize_t dfs_get_xattr(struct dfs *fs, const char *path, const char *name, void *buf,
			      size_t size, struct dfs_err *out)
{
	Hd__GetXAttrsRequestProto req = HD__GET_XATTRS_REQUEST_PROTO__INIT;
	Hd__XAttrProto x = HD__XATTR_PROTO__INIT, *xs = &x;
	Hd__GetXAttrsResponseProto *m = NULL;
	ssize_t n = 0;
	struct path_call a;

	path_call_begin(&a, fs, path);
	a.rc = a.rc ?: split_name(name, &x, &a.err);
	req.src = a.path;
	req.n_xattrs = 1;
	req.xattrs = &xs;
	if (path_call_send(&a, "getXAttrs", &req.base, &hd__get_xattrs_response_proto__descriptor,
			   &m) == 0) {
		if (m->n_xattrs == 1)
			n = give(&a, m->xattrs[0]->value.data, m->xattrs[0]->value.len, buf, size);
		else
			n = err_set(&a.err, -ENODATA, "%.200s has no attribute %.100s", a.path,
				    name);
		a.rc = n < 0 ? (int)n : 0;
	}
	pb_free(m);
	return xattr_end(&a, out) ?: n;
}

/* Names as they are listed: with prefix and NUL. */
static char *join_names(const Hd__ListXAttrsResponseProto *m, size_t *ret_len)
{
	size_t len = 0, at = 0;
	char *all;

	for (size_t i = 0; i < m->n_xattrs; i++)
		if ((size_t)m->xattrs[i]->namespace_ < SPACE_COUNT)
			len += strlen(SPACES[m->xattrs[i]->namespace_]) +
			       strlen(m->xattrs[i]->name) + 1;
	all = malloc(len + 1);
	for (size_t i = 0; all && i < m->n_xattrs; i++)
		if ((size_t)m->xattrs[i]->namespace_ < SPACE_COUNT)
			at += (size_t)snprintf(all + at, len + 1 - at, "%s%s",
					       SPACES[m->xattrs[i]->namespace_],
					       m->xattrs[i]->name) +
			      1;
	*ret_len = len;
	return all;
}

DFS_API ssize_t dfs_list_xattrs(struct dfs *fs, const char *path, char *buf, size_t size,
				struct dfs_err *out)
{
	Hd__ListXAttrsRequestProto req = HD__LIST_XATTRS_REQUEST_PROTO__INIT;
	Hd__ListXAttrsResponseProto *m = NULL;
	ssize_t n = 0;
	struct path_call a;

	path_call_begin(&a, fs, path);
	req.src = a.path;
	if (path_call_send(&a, "listXAttrs", &req.base, &hd__list_xattrs_response_proto__descriptor,
			   &m) == 0) {
		size_t len;
		char *all = join_names(m, &len);

		n = all ? give(&a, all, len, buf, size) : -ENOMEM;
		a.rc = n < 0 ? (int)n : 0;
		free(all);
	}
	pb_free(m);
	return xattr_end(&a, out) ?: n;
}

DFS_API int dfs_remove_xattr(struct dfs *fs, const char *path, const char *name,
			     struct dfs_err *out)
{
	Hd__RemoveXAttrRequestProto req = HD__REMOVE_XATTR_REQUEST_PROTO__INIT;
	Hd__XAttrProto x = HD__XATTR_PROTO__INIT;
	struct path_call a;

	path_call_begin(&a, fs, path);
	a.rc = a.rc ?: split_name(name, &x, &a.err);
	req.src = a.path;
	req.xattr = &x;
	(void)path_call_send(&a, "removeXAttr", &req.base,
			     &hd__remove_xattr_response_proto__descriptor, NULL);
	return xattr_end(&a, out);
}
