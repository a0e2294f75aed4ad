/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/requests/acl.h"

#include <endian.h>
#include <errno.h>
#include <linux/posix_acl_xattr.h>
#include <stdlib.h>
#include <string.h>

#include "fuse/requests/local_names.h"

#define ENTRIES_MAX 512 /* of one list from the kernel; HDFS takes 32 */
#define ENTRY_SIZE sizeof(struct posix_acl_xattr_entry)
#define HEADER_SIZE sizeof(struct posix_acl_xattr_header)

/* tags of linux/posix_acl.h, which programs do not get */
enum tag {
	TAG_USER_OBJ = 1,
	TAG_USER = 2,
	TAG_GROUP_OBJ = 4,
	TAG_GROUP = 8,
	TAG_MASK = 16,
	TAG_OTHER = 32
};
#define ID_NONE UINT32_MAX

static const char *const NAMES[] = {"system.posix_acl_access", "system.posix_acl_default"};

bool acl_is(const char *name, enum dfs_acl_scope *ret)
{
	for (int i = 0; i < 2; i++) {
		if (strcmp(name, NAMES[i]) == 0) {
			*ret = i ? DFS_ACL_DEFAULT : DFS_ACL_ACCESS;
			return true;
		}
	}
	return false;
}

/* ---- to the kernel ---- */

static enum tag tag_of(const struct dfs_acl_entry *e)
{
	switch (e->type) {
	case DFS_ACL_USER:
		return *e->name ? TAG_USER : TAG_USER_OBJ;
	case DFS_ACL_GROUP:
		return *e->name ? TAG_GROUP : TAG_GROUP_OBJ;
	case DFS_ACL_MASK:
		return TAG_MASK;
	case DFS_ACL_OTHER:
		break;
	}
	return TAG_OTHER;
}

/* Is the name of @e one of this machine, or has it none? */
static bool is_known(struct mount *m, const struct dfs_acl_entry *e, uint32_t *ret_id)
{
	*ret_id = ID_NONE;
	if (!*e->name)
		return true;
	return e->type == DFS_ACL_USER ? users_find_uid(&m->users, e->name, ret_id)
				       : users_find_gid(&m->users, e->name, ret_id);
}

static uint32_t count_scope(const struct dfs_acl *l, enum dfs_acl_scope scope)
{
	uint32_t n = 0;

	for (size_t i = 0; i < l->count; i++)
		n += l->entry[i].scope == scope;
	return n;
}

/* The permission bits are a list of three access entries. */
static bool is_plain(const struct dfs_acl *l, enum dfs_acl_scope scope)
{
	return count_scope(l, scope) <= (scope == DFS_ACL_ACCESS ? 3 : 0);
}

static ssize_t put_list(struct mount *m, const struct dfs_acl *l, enum dfs_acl_scope scope,
			uint8_t *buf, size_t size)
{
	const struct posix_acl_xattr_header head = {htole32(POSIX_ACL_XATTR_VERSION)};
	size_t len = HEADER_SIZE;
	uint32_t id;

	if (is_plain(l, scope))
		return -ENODATA;
	if (size && size < HEADER_SIZE)
		return -ERANGE;
	if (size)
		memcpy(buf, &head, sizeof(head));
	for (size_t i = 0; i < l->count; i++) {
		const struct dfs_acl_entry *e = &l->entry[i];
		struct posix_acl_xattr_entry x;

		if (e->scope != scope || !is_known(m, e, &id))
			continue;
		x = (struct posix_acl_xattr_entry){htole16((uint16_t)tag_of(e)),
						   htole16((uint16_t)e->perm), htole32(id)};
		if (size && size - len < ENTRY_SIZE)
			return -ERANGE;
		if (size)
			memcpy(buf + len, &x, sizeof(x));
		len += ENTRY_SIZE;
	}
	return (ssize_t)len;
}

/* ls(1) asks of every file: what a stat has told lately need not be asked again. */
static bool is_known_plain(struct ask *a)
{
	bool known;

	pthread_mutex_lock(&a->m->inodes.lock);
	known = attr_is_fresh_locked(a->m, a->in) && !(a->in->mode & MODE_HAS_ACL);
	pthread_mutex_unlock(&a->m->inodes.lock);
	return known;
}

ssize_t acl_get(struct ask *a, enum dfs_acl_scope scope, void *buf, size_t size)
{
	struct dfs_acl *l;
	ssize_t n;

	if (is_known_plain(a))
		return -ENODATA;
	do
		n = dfs_get_acl(a->user->fs, a->path, &l, &a->err);
	while (ask_again(a, n));
	if (n < 0)
		return n;
	n = put_list(a->m, l, scope, buf, size);
	dfs_acl_free(l);
	return n;
}

ssize_t acl_names(struct ask *a, char *buf, size_t len, size_t size)
{
	struct dfs_acl *l;
	int rc;

	do
		rc = is_known_plain(a) ? -EOPNOTSUPP
				       : dfs_get_acl(a->user->fs, a->path, &l, &a->err);
	while (ask_again(a, rc));
	if (rc < 0)
		return rc == -EOPNOTSUPP || rc == -ELOOP || (rc == -ENOENT && a->in->gone)
			       ? (ssize_t)len
			       : rc;
	for (int i = 0; i < 2; i++) {
		const size_t name = strlen(NAMES[i]) + 1;

		if (is_plain(l, i ? DFS_ACL_DEFAULT : DFS_ACL_ACCESS))
			continue;
		if (size && len + name > size)
			rc = -ERANGE;
		else if (size)
			memcpy(buf + len, NAMES[i], name);
		len += name;
	}
	dfs_acl_free(l);
	return rc < 0 ? rc : (ssize_t)len;
}

/* ---- from the kernel ---- */

struct new_list {
	struct dfs_acl_entry entry[ENTRIES_MAX];
	char name[ENTRIES_MAX][DFS_NAME_MAX + 1];
	size_t count;
};

static int take_entry(struct new_list *l, enum dfs_acl_scope scope,
		      const struct posix_acl_xattr_entry *x)
{
	struct dfs_acl_entry *e = &l->entry[l->count];
	char *name = l->name[l->count];
	int rc = 0;

	*e = (struct dfs_acl_entry){.scope = scope, .perm = le16toh(x->e_perm) & 7, .name = name};
	name[0] = '\0';
	switch (le16toh(x->e_tag)) {
	case TAG_USER:
		rc = local_user_name(le32toh(x->e_id), name);
		break;
	case TAG_GROUP:
		rc = local_group_name(le32toh(x->e_id), name);
		e->type = DFS_ACL_GROUP;
		break;
	case TAG_USER_OBJ:
		break;
	case TAG_GROUP_OBJ:
		e->type = DFS_ACL_GROUP;
		break;
	case TAG_MASK:
		e->type = DFS_ACL_MASK;
		break;
	case TAG_OTHER:
		e->type = DFS_ACL_OTHER;
		break;
	default:
		return -EINVAL;
	}
	l->count += rc == 0;
	return rc;
}

static int take_list(struct new_list *l, enum dfs_acl_scope scope, const uint8_t *value,
		     size_t size)
{
	struct posix_acl_xattr_header head;
	struct posix_acl_xattr_entry x;
	int rc = 0;

	l->count = 0;
	if (size < HEADER_SIZE || (size - HEADER_SIZE) % ENTRY_SIZE ||
	    (size - HEADER_SIZE) / ENTRY_SIZE > ENTRIES_MAX)
		return -EINVAL;
	memcpy(&head, value, sizeof(head));
	if (le32toh(head.a_version) != POSIX_ACL_XATTR_VERSION)
		return -EINVAL;
	for (size_t at = HEADER_SIZE; rc == 0 && at < size; at += ENTRY_SIZE) {
		memcpy(&x, value + at, sizeof(x));
		rc = take_entry(l, scope, &x);
	}
	return rc;
}

/* What the kernel was not shown stays. */
static int keep_unknown(struct ask *a, enum dfs_acl_scope scope, struct new_list *l,
			struct dfs_acl **ret_old)
{
	const int rc = dfs_get_acl(a->user->fs, a->path, ret_old, &a->err);
	uint32_t id;

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < (*ret_old)->count && l->count < ENTRIES_MAX; i++)
		if ((*ret_old)->entry[i].scope == scope &&
		    !is_known(a->m, &(*ret_old)->entry[i], &id))
			l->entry[l->count++] = (*ret_old)->entry[i];
	return 0;
}

int acl_set(struct ask *a, enum dfs_acl_scope scope, const void *value, size_t size)
{
	struct new_list *l = malloc(sizeof(*l));
	struct dfs_acl *old = NULL;
	int rc = l ? take_list(l, scope, value, size) : -ENOMEM;

	if (rc == 0 && l->count > 3)
		rc = keep_unknown(a, scope, l, &old);
	if (rc == 0 && l->count == 0) /* no list is the permission bits, or no default entries */
		rc = acl_remove(a, scope);
	else if (rc == 0)
		rc = dfs_set_acl(a->user->fs, a->path, l->entry, l->count, &a->err);
	dfs_acl_free(old);
	free(l);
	return rc;
}

int acl_remove(struct ask *a, enum dfs_acl_scope scope)
{
	struct dfs_acl_entry base[3];
	struct dfs_acl *old;
	size_t n = 0;
	int rc;

	if (scope == DFS_ACL_DEFAULT)
		return dfs_remove_default_acl(a->user->fs, a->path, &a->err);
	rc = dfs_get_acl(a->user->fs, a->path, &old, &a->err);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < old->count && n < 3; i++)
		if (old->entry[i].scope == scope && !*old->entry[i].name &&
		    old->entry[i].type != DFS_ACL_MASK)
			base[n++] = old->entry[i];
	rc = dfs_set_acl(a->user->fs, a->path, base, n, &a->err); /* the default entries stay */
	dfs_acl_free(old);
	return rc;
}
