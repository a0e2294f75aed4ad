/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/namespace/ns.h"

#include <string.h>

#include "common/base/utf8.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/acl.h"
#include "namenode-shim/namespace/ns_internal.h"
#include "namenode-shim/namespace/quota.h"

/* ---- shared steps ---- */

void count_inodes(struct ns *n, int64_t delta)
{
	ns_effect(n, EFFECT_INODES)->delta = delta;
}

static int check_name(struct ns *n, const struct ns_path *w, uint32_t i)
{
	const size_t len = strlen(w->name[i]);

	if (len > n->limits->max_component)
		return exception_throw(
			n->x, EXC_NAME_TOO_LONG,
			"The maximum path component name limit of %s in directory %s is "
			"exceeded: limit=%u length=%zu",
			w->name[i], ns_path_text(n, w, i), n->limits->max_component, len);
	if (!i && !strcmp(w->name[i], INODE_RESERVED))
		return exception_throw(
			n->x, EXC_ILLEGAL_ARGUMENT,
			"File name \"%s\" is reserved and cannot be created. If this is "
			"during upgrade change the name of the existing file or directory "
			"to another name before upgrading to the new release.",
			w->name[i]);
	if (!strcmp(w->name[i], INODE_SNAPSHOT))
		return exception_throw(n->x, EXC_ILLEGAL_ARGUMENT, "\"%s\" is a reserved name.",
				       w->name[i]);
	return 0;
}

int check_names(struct ns *n, const struct ns_path *w)
{
	const struct inode *up = w->chain[w->have - 1];
	int rc = 0;

	for (uint32_t i = w->have - 1; i < w->depth && !rc; i++)
		rc = check_name(n, w, i);
	if (!rc && up->children >= n->limits->max_dir_items)
		rc = exception_throw(
			n->x, EXC_DIR_FULL,
			"The directory item limit of %s is exceeded: limit=%u items=%u",
			ns_path_text(n, w, w->have - 1), n->limits->max_dir_items, up->children);
	return rc;
}

static int check_parent(struct ns *n, const struct ns_path *w, bool create_parent)
{
	if (create_parent || w->have == w->depth)
		return 0;
	return exception_throw(n->x, EXC_NOT_FOUND, "Parent directory doesn't exist: %s",
			       ns_path_text(n, w, w->depth - 1));
}

static struct inode *node_new(struct ns *n, const struct inode *up, const char *name,
			      enum inode_type type, uint16_t perm)
{
	struct inode *node = arena_new(n->a, struct inode);

	node->id = inode_new_id(n->t);
	node->parent = up->id;
	node->type = (uint8_t)type;
	node->perm = perm & INODE_PERM;
	node->name = name;
	node->owner = n->user;
	node->group = up->group; /* the BSD rule, as in HDFS */
	node->client = node->client_host = "";
	node->mtime = n->now_ms;
	return node;
}

int attach(struct ns *n, struct inode *up, struct inode *node)
{
	int rc = dirent_put(n->t, up->id, node->name, node->id);

	node->parent = up->id;
	rc = rc ? rc : inode_put(n->t, node);
	up->children++;
	up->mtime = n->now_ms;
	/* An empty directory needs no rights, so the first name in it is news for a check, too. */
	if (node->type == INODE_DIR || up->perm & INODE_STICKY || up->children == 1)
		tree_changed(n->t, up->id);
	return rc;
}

int detach(struct ns *n, struct inode *up, const struct inode *node)
{
	up->children--;
	up->mtime = n->now_ms;
	return dirent_del(n->t, up->id, node->name);
}

/* Make the missing directories of @w but the last @leave components; *ret_up is the deepest. */
static int make_dirs(struct ns *n, const struct ns_path *w, uint32_t leave, uint16_t mid_perm,
		     uint16_t last_perm, const uint16_t *unmasked, struct inode **ret_up)
{
	struct inode *up = ns_path_parent(w);
	int rc = 0;

	for (uint32_t i = w->have - 1; i + leave < w->depth && !rc; i++) {
		const uint16_t perm = i + 1 == w->depth ? last_perm : mid_perm;
		struct inode *dir = node_new(n, up, w->name[i], INODE_DIR, perm);

		rc = acl_inherit(n, up, dir, unmasked);
		rc = rc ? rc : attach(n, up, dir);
		rc = rc ? rc : inode_put(n->t, up);
		count_inodes(n, 1);
		up = dir;
	}
	*ret_up = up;
	return rc;
}

void forget_file(struct ns *n, const struct inode *file)
{
	for (uint32_t i = 0; i < file->nblocks; i++)
		ns_effect(n, EFFECT_BLOCK_REMOVE)->b = file->blocks[i].b;
	if (inode_is_open(file)) {
		struct effect *e = ns_effect(n, EFFECT_LEASE_DEL);

		e->inode = file->id;
		e->holder = file->client;
	}
}

/* ---- mkdirs, create ---- */

int ns_mkdirs(struct ns *n, const char *path, uint16_t perm, const uint16_t *unmasked,
	      unsigned int how)
{
	struct ns_path w;
	struct inode *up;
	int rc;

	if (!*path)
		return exception_throw(n->x, EXC_BAD_ARGUMENT,
				       "Can not create a Path from an empty string");
	rc = ns_check_length(n, "mkdirs", path);
	if (!rc && !ns_valid_name(path))
		rc = exception_throw(n->x, EXC_INVALID_PATH,
				     "Invalid path name Invalid file name: %s", path);
	rc = rc ? rc : ns_resolve_make(n, path, &w);
	if (rc < 0)
		return rc;
	if (w.last && w.last->type == INODE_DIR)
		return how & NS_MKDIRS_NEW ? exception_throw(n->x, EXC_EXISTS, "%s exists", w.path)
					   : 0;
	if (w.last)
		return exception_throw(n->x, EXC_EXISTS, "Path is not a directory: %s", w.path);
	rc = ns_check_ancestor(n, &w);
	rc = rc ? rc : check_parent(n, &w, how & NS_MKDIRS_PARENTS);
	rc = rc ? rc : check_names(n, &w);
	rc = rc ? rc : quota_check(n, ns_path_parent(&w), w.depth + 1 - w.have, 0);
	if (rc < 0)
		return rc;
	up = ns_path_parent(&w);
	rc = quota_charge(n, up->id, w.depth + 1 - w.have, 0);
	return ns_io(n, rc ? rc
			   : make_dirs(n, &w, 0, (uint16_t)(perm | PERM_UWX), perm, unmasked, &up));
}

/* Make the missing directories above the last component, with the mode of the deepest there is,
 * without its sticky bit. */
static int make_parents(struct ns *n, const struct ns_path *w, struct inode **ret_up)
{
	const uint16_t perm = (uint16_t)((ns_path_parent(w)->perm & 0777) | PERM_UWX);
	int rc = quota_charge(n, ns_path_parent(w)->id, w->depth + 1 - w->have, 0);

	return rc ? rc : make_dirs(n, w, 1, perm, perm, NULL, ret_up);
}

/* Below /.reserved, but not of what looks like /.reserved/raw or .inodes, which is told otherwise.
 */
static bool is_reserved(const char *path)
{
	const size_t len = strlen("/" INODE_RESERVED "/");

	return !strncmp(path, "/" INODE_RESERVED "/", len) && strncmp(path + len, "raw", 3) &&
	       strncmp(path + len, ".inodes", 7);
}

int ns_resolve_create(struct ns *n, const struct ns_create *c, struct ns_path *w)
{
	int rc = ns_check_length(n, "create", c->path);

	if (!rc && !ns_valid_name(c->path))
		rc = exception_throw(n->x, EXC_INVALID_PATH, "Invalid path name %s", c->path);
	rc = rc ? rc : ns_resolve_make(n, c->path, w);
	if (!rc && (w->reserved || is_reserved(c->path)))
		rc = exception_throw(n->x, EXC_INVALID_PATH, "Invalid path name %s", w->path);
	rc = rc ? rc : ns_check_ancestor(n, w);
	if (rc < 0)
		return rc;
	if (!w->last) {
		rc = check_parent(n, w, c->create_parent);
		if (!rc && !c->create)
			rc = exception_throw(n->x, EXC_NOT_FOUND, "Can't overwrite non-existent %s",
					     c->path);
		return rc;
	}
	if (w->last->type == INODE_DIR)
		return exception_throw(n->x, EXC_EXISTS, "%s already exists as a directory",
				       w->path);
	return c->overwrite ? ns_check(n, w->last, ACCESS_W, w->path) : 0;
}

/* Inodes and bytes that a new file of @c adds where another one may go. */
static int check_create_quota(struct ns *n, const struct ns_path *w)
{
	if (w->last)
		return 0; /* one file for another */
	return quota_check(n, ns_path_parent(w), w->depth + 1 - w->have, 0);
}

int ns_create(struct ns *n, const struct ns_create *c, struct ns_path *w, struct inode **ret)
{
	struct inode *up = ns_path_parent(w), *file;
	struct effect *e;
	int rc;

	if (w->last && !c->overwrite)
		return exception_throw(n->x, EXC_EXISTS, "%s for client %s already exists", w->path,
				       n->host);
	rc = w->last ? 0 : check_names(n, w);
	rc = rc ? rc : check_create_quota(n, w);
	if (rc < 0)
		return rc;
	if (w->last) {
		rc = quota_charge(n, up->id, 0, -(int64_t)inode_space(w->last));
		rc = rc ? rc : detach(n, up, w->last);
		rc = rc ? rc : inode_del(n->t, w->last);
		forget_file(n, w->last);
		count_inodes(n, -1);
	} else {
		rc = make_parents(n, w, &up);
	}
	file = node_new(n, up, w->name[w->depth - 1], INODE_FILE, c->perm);
	file->repl = c->ec ? 1 : c->repl; /* what stock shows for a striped file */
	file->ec = c->ec;
	file->block_size = c->block_size;
	file->atime = n->now_ms;
	file->client = c->client;
	file->client_host = n->host;
	rc = rc ? rc : acl_inherit(n, up, file, c->unmasked);
	rc = rc ? rc : attach(n, up, file);
	rc = rc ? rc : inode_put(n->t, up);
	if (rc < 0)
		return ns_io(n, rc);
	e = ns_effect(n, EFFECT_LEASE_ADD);
	e->inode = file->id;
	e->holder = file->client;
	count_inodes(n, 1);
	*ret = file;
	return 0;
}

/* ---- symbolic links ---- */

static bool is_target(const char *target)
{
	const size_t len = strlen("/" INODE_RESERVED);

	if (!*target || strlen(target) > INODE_TARGET_MAX || !utf8_is_valid(target))
		return false;
	return strncmp(target, "/" INODE_RESERVED, len) || (target[len] && target[len] != '/');
}

static int check_link(struct ns *n, const char *target, const char *path, struct ns_path *w,
		      bool create_parent)
{
	int rc = ns_check_length(n, "createSymlink", path);

	if (!rc && !ns_valid_name(path))
		rc = exception_throw(n->x, EXC_INVALID_PATH,
				     "Invalid path name Invalid link name: %s", path);
	if (!rc && !is_target(target))
		rc = exception_throw(n->x, EXC_INVALID_PATH,
				     "Invalid path name Invalid target name: %s", target);
	rc = rc ? rc : ns_resolve_as(n, path, WALK_CHANGE | WALK_LINK, w);
	if (!rc && !w->last)
		rc = check_parent(n, w, create_parent);
	else if (!rc)
		rc = exception_throw(
			n->x, EXC_IO,
			"failed to create link %s either because the filename is invalid or the file exists",
			w->path);
	rc = rc ? rc : ns_check_ancestor(n, w);
	rc = rc ? rc : check_names(n, w);
	return rc ? rc : quota_check(n, ns_path_parent(w), w->depth + 1 - w->have, 0);
}

int ns_symlink(struct ns *n, const char *target, const char *path, bool create_parent)
{
	struct inode *up, *link;
	struct ns_path w;
	int rc = check_link(n, target, path, &w, create_parent);

	if (rc < 0)
		return rc;
	rc = make_parents(n, &w, &up);
	link = node_new(n, up, w.name[w.depth - 1], INODE_LINK, 0777);
	link->atime = n->now_ms;
	link->target = target;
	rc = rc ? rc : attach(n, up, link);
	rc = rc ? rc : inode_put(n->t, up);
	count_inodes(n, 1);
	return ns_io(n, rc);
}
