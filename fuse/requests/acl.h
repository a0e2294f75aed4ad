/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * acl - access control lists as the kernel's two attributes
 *
 * Idea: HDFS has the lists of POSIX with names in them, the kernel wants numbers:
 * system.posix_acl_access and system.posix_acl_default are made of what the NameNode says and taken
 * apart for it. Nothing is checked here: who may do what the NameNode decides by the same lists.
 * Entries for names that this machine does not know are not shown; they stay where a list is
 * changed, and go where it is reduced to the permission bits.
 * Threading: any thread.
 * Source: acl(5); linux/posix_acl_xattr.h: version 2, then tag, rights and id of each entry, little
 * endian.
 */
#include "fuse/requests/ops.h"

/** Is @name one of the two? */
bool acl_is(const char *name, enum dfs_acl_scope *ret);
/** The list of a->in as the kernel wants it into @buf, and its length; @size 0: the length alone.
 *  -ENODATA: the permission bits are all; -ERANGE; -errno of dfs_get_acl(). */
ssize_t acl_get(struct ask *a, enum dfs_acl_scope scope, void *buf, size_t size);
/** -EINVAL: no list, or a user or group without a name here; -errno of dfs_set_acl(). */
int acl_set(struct ask *a, enum dfs_acl_scope scope, const void *value, size_t size);
int acl_remove(struct ask *a, enum dfs_acl_scope scope);
/** Add the names of those of the two that there are to a list of @len bytes in @buf of @size (0:
 *  count only). The new length, or -errno. */
ssize_t acl_names(struct ask *a, char *buf, size_t len, size_t size);
