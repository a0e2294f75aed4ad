/* SPDX-License-Identifier: Apache-2.0 */
/* Renaming: two directory entries change, the subtree does not. */
#include <string.h>

#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/ns_internal.h"
#include "namenode-shim/namespace/quota.h"

static bool is_below(const struct ns_path *src, const struct ns_path *dst)
{
	const size_t len = strlen(src->path);

	return !strncmp(src->path, dst->path, len) && dst->path[len] == '/';
}

/* Is @src a link to @dst, which it would become? */
static bool points_to(const struct ns_path *src, const struct ns_path *dst)
{
	return src->last->type == INODE_LINK && !strcmp(src->last->target, dst->path);
}

/* What moves, for the directories with quotas that only one of the two paths has above it. */
static int check_rename_quota(struct ns *n, const struct ns_path *src, const struct ns_path *dst,
			      struct quota_sum *ret)
{
	struct quota_sum old = {0};
	int rc = ns_io(n, quota_sum(n, src->last, ret));

	if (!rc && dst->last)
		rc = ns_io(n, quota_sum(n, dst->last, &old));
	return rc ? rc
		  : quota_check_move(n, ns_path_parent(src), ns_path_parent(dst),
				     ret->inodes - old.inodes, ret->space - old.space);
}

static int charge_rename(struct ns *n, const struct ns_path *src, const struct ns_path *dst,
			 const struct quota_sum *sum)
{
	struct quota_sum old = {0};
	int rc = dst->last ? quota_sum(n, dst->last, &old) : 0;

	rc = rc ? rc : quota_charge(n, ns_path_parent(src)->id, -sum->inodes, -sum->space);
	return rc ? rc
		  : quota_charge(n, ns_path_parent(dst)->id, sum->inodes - old.inodes,
				 sum->space - old.space);
}

/* Move src to dst, whose parent exists. dst->last, if any, is replaced. Validated by the caller. */
static int move(struct ns *n, struct ns_path *src, struct ns_path *dst)
{
	const struct dir_list none = {.n = n};
	struct inode *from = ns_path_parent(src), *to = dst->chain[dst->depth - 1],
		     *node = src->last;
	struct quota_sum sum;
	int rc = check_rename_quota(n, src, dst, &sum);

	if (rc < 0)
		return rc;
	rc = charge_rename(n, src, dst, &sum);
	if (to->id == from->id)
		to = from; /* one directory, one copy of its record */
	if (dst->last) {
		rc = rc ? rc : detach(n, to, dst->last);
		rc = rc ? rc : drop_tree(n, dst->last, &none);
	}
	rc = rc ? rc : detach(n, from, node);
	node->name = dst->name[dst->depth - 1];
	rc = rc ? rc : attach(n, to, node);
	rc = rc ? rc : inode_put(n->t, to);
	if (to != from)
		rc = rc ? rc : inode_put(n->t, from);
	return ns_io(n, rc);
}

/* What both renames ask first. Rights come before anything is said about what is there. */
static int walk_both(struct ns *n, const char *src, const char *dst, struct ns_path *s,
		     struct ns_path *d)
{
	int rc = ns_check_length(n, "rename", dst);

	if (!rc && !ns_valid_name(dst))
		rc = exception_throw(n->x, EXC_INVALID_PATH,
				     "Invalid path name Invalid file name: %s", dst);
	rc = rc ? rc : ns_resolve_as(n, src, WALK_LINK, s);
	rc = rc ? rc : ns_resolve_as(n, dst, WALK_MAKE | WALK_LINK, d);
	if (!rc && d->reserved)
		rc = exception_throw(n->x, EXC_INVALID_PATH,
				     "Invalid path name Cannot rename to or from /.reserved");
	return rc;
}

static int check_rights(struct ns *n, const struct ns_path *s, const struct ns_path *d)
{
	int rc = ns_check_remove(n, s);

	return rc ? rc : ns_check_ancestor(n, d);
}

int ns_rename(struct ns *n, const char *src, const char *dst, bool *ret)
{
	struct ns_path s, d;
	int rc = walk_both(n, src, dst, &s, &d);

	*ret = false;
	if (!rc && s.last && s.depth && d.last && d.last->type == INODE_DIR)
		rc = ns_resolve_as(
			n, arena_printf(n->a, "%s/%s", d.depth ? d.path : "", s.name[s.depth - 1]),
			WALK_MAKE | WALK_LINK, &d);
	rc = rc ? rc : check_rights(n, &s, &d);
	if (rc < 0 || !s.last)
		return rc;
	rc = check_protected(n, &s);
	if (rc < 0 || !s.depth)
		return rc;
	if (!strcmp(s.path, d.path)) {
		*ret = true;
		return 0;
	}
	if (is_below(&s, &d) || d.last || points_to(&s, &d) || d.have < d.depth ||
	    d.chain[d.have - 1]->type != INODE_DIR)
		return 0;
	rc = check_names(n, &d);
	rc = rc ? rc : move(n, &s, &d);
	*ret = !rc;
	return rc;
}

static int check_overwrite(struct ns *n, const struct ns_path *s, const struct ns_path *d,
			   bool overwrite)
{
	if ((s->last->type == INODE_DIR) != (d->last->type == INODE_DIR))
		return exception_throw(n->x, EXC_IO,
				       "Source %s and destination %s must both be directories",
				       s->path, d->path);
	if (!overwrite)
		return exception_throw(n->x, EXC_EXISTS, "rename destination %s already exists",
				       d->path);
	if (d->last->type == INODE_DIR && d->last->children)
		return exception_throw(n->x, EXC_IO,
				       "rename destination directory is not empty: %s", d->path);
	/* what is replaced is taken away: the sticky bit keeps it, which Apache does not ask for */
	return ns_check_remove(n, d);
}

int ns_rename2(struct ns *n, const char *src, const char *dst, bool overwrite)
{
	struct ns_path s, d;
	int rc = walk_both(n, src, dst, &s, &d);

	rc = rc ? rc : check_rights(n, &s, &d);
	if (rc < 0)
		return rc;
	if (!s.last)
		return exception_throw(n->x, EXC_NOT_FOUND, "rename source %s is not found.",
				       s.path);
	if (!s.depth)
		return exception_throw(n->x, EXC_IO, "rename source cannot be the root");
	rc = check_protected(n, &s);
	if (rc < 0)
		return rc;
	if (!strcmp(s.path, d.path))
		return exception_throw(n->x, EXC_EXISTS,
				       "The source %s and destination %s are the same", s.path,
				       d.path);
	if (points_to(&s, &d))
		return exception_throw(n->x, EXC_EXISTS,
				       "Cannot rename symlink %s to its target %s", s.path, d.path);
	if (is_below(&s, &d))
		return exception_throw(
			n->x, EXC_IO,
			"Rename destination %s is a directory or file under source %s", d.path,
			s.path);
	if (!d.depth)
		return exception_throw(n->x, EXC_IO, "rename destination cannot be the root");
	if (d.have < d.depth)
		return exception_throw(n->x, EXC_NOT_FOUND,
				       "rename destination parent %s not found.", d.path);
	rc = d.last ? check_overwrite(n, &s, &d, overwrite) : check_names(n, &d);
	return rc ? rc : move(n, &s, &d);
}
