/* SPDX-License-Identifier: Apache-2.0 */
/* Deleting: what is below goes in the same transaction. */
#include <stdlib.h>
#include <string.h>

#include "namenode-shim/db.h"
#include "namenode-shim/ns_internal.h"
#include "namenode-shim/quota.h"

void dir_push(struct dir_list *l, uint64_t id)
{
	if (l->count == l->size) {
		l->size = l->size ? 2 * l->size : 64;
		l->id = xrealloc(l->id, l->size * sizeof(*l->id));
	}
	l->id[l->count++] = id;
}

/* ---- what may be deleted ---- */

/* The directories of a tree, found depth first and the last name first, as HDFS looks at them: that decides
 * which of two refusals is told. */
struct collect {
	struct ns *n;
	const struct inode *top;
	struct dir_list *found;
	struct dir_list todo;
	const struct inode *dir; /* whose children are looked at */
	struct arena *a;
};

/* The sticky bit of @dir keeps the caller from taking @child away. The owner and mode in the text are those of the top
 * of the tree, as in HDFS. */
static int check_sticky(struct collect *c, const struct inode *dir, const struct inode *child)
{
	const struct ns *n = c->n;
	char *path, *up;
	int rc;

	if (!n->enforce || n->super || !(dir->perm & INODE_STICKY) || !strcmp(n->user, dir->owner) ||
	    !strcmp(n->user, child->owner))
		return 0;
	rc = inode_path(n->t, dir, c->a, &up);
	rc = rc ? rc : inode_path(n->t, child, c->a, &path);
	return rc ? rc : ns_refuse_sticky(c->n, child, path, c->top, up);
}

static int collect_child(void *arg, const char *name, size_t len, uint64_t id)
{
	struct collect *c = arg;
	struct inode *node;
	int rc = inode_get(c->n->t, id, c->a, &node);

	(void)name;
	(void)len;
	if (!rc && node->type == INODE_DIR)
		dir_push(&c->todo, id);
	return rc ? rc : check_sticky(c, c->dir, node);
}

static int collect_one(struct collect *c, uint64_t id)
{
	struct ns *n = c->n;
	struct inode *dir;
	char *path;
	int rc = inode_get(n->t, id, c->a, &dir);

	dir_push(c->found, id);
	if (rc < 0 || !dir->children)
		return rc;
	if (n->enforce && !n->super) {
		rc = inode_path(n->t, dir, c->a, &path);
		rc = rc ? rc : ns_check(n, dir, ACCESS_R | ACCESS_W | ACCESS_X, path);
	}
	c->dir = dir;
	return rc ? rc : dirent_each(n->t, id, NULL, 0, collect_child, c);
}

/* List the directories below @top; the caller must hold all rights on those that are not empty, and no sticky bit may
 * stand against him. */
static int collect_dirs(struct ns *n, const struct inode *top, struct dir_list *l)
{
	struct collect c = {.n = n, .top = top, .found = l};
	int rc = 0;

	dir_push(&c.todo, top->id);
	while (c.todo.count && !rc) {
		struct arena scratch = {0};

		c.a = &scratch;
		rc = collect_one(&c, c.todo.id[--c.todo.count]);
		arena_free(&scratch);
	}
	free(c.todo.id);
	return ns_io(n, rc);
}

/* ---- the deletion ---- */

struct child_list {
	struct ns *n;
	struct arena *a;
	struct inode **node;
	size_t count, size;
};

static int add_child(void *arg, const char *name, size_t len, uint64_t id)
{
	struct child_list *l = arg;
	struct inode *node;
	int rc = inode_get(l->n->t, id, l->a, &node);

	(void)name;
	(void)len;
	if (rc < 0)
		return rc;
	if (l->count == l->size) {
		l->size = l->size ? 2 * l->size : 64;
		l->node = xrealloc(l->node, l->size * sizeof(struct inode *));
	}
	l->node[l->count++] = node;
	return 0;
}

static int drop_children(struct ns *n, uint64_t dir, int64_t *dropped)
{
	struct arena scratch = {0};
	struct child_list kids = {.n = n, .a = &scratch};
	int rc = dirent_each(n->t, dir, NULL, 0, add_child, &kids);

	for (size_t i = 0; i < kids.count && !rc; i++) {
		struct inode *node = kids.node[i];

		rc = dirent_del(n->t, dir, node->name);
		rc = rc ? rc : inode_del(n->t, node);
		node->client = arena_strdup(n->a, node->client); /* effects outlive scratch */
		if (node->type == INODE_FILE)
			forget_file(n, node);
		++*dropped;
	}
	free(kids.node);
	arena_free(&scratch);
	return rc;
}

int drop_tree(struct ns *n, const struct inode *node, const struct dir_list *dirs)
{
	int64_t dropped = 1;
	int rc = inode_del(n->t, node);

	for (size_t i = 0; i < dirs->count && !rc; i++)
		rc = drop_children(n, dirs->id[i], &dropped);
	if (node->type == INODE_FILE)
		forget_file(n, node);
	count_inodes(n, -dropped);
	return rc;
}

/* Is @path @top or below it? */
static bool is_within(const char *path, const char *top)
{
	const size_t len = strlen(top);

	return !strncmp(path, top, len) && (!path[len] || path[len] == '/' || len == 1);
}

/* A protected directory below @w that is there and not empty. */
static int check_protected_below(struct ns *n, const struct walk *w, const char *dir)
{
	struct ns quiet = *n;
	struct walk p;
	int rc;

	quiet.super = true; /* it is there whether or not the caller may look */
	rc = ns_walk(&quiet, dir, &p);
	if (rc == -ENOTDIR || rc == -ELOOP) {
		n->x->cls = NULL;
		return 0;
	}
	if (rc < 0 || !p.last || p.last->type != INODE_DIR || !p.last->children)
		return rc;
	return exc_throw(n->x, EXC_ACCESS,
			 "Cannot delete/rename non-empty protected %s %s",
			 strcmp(p.path, w->path) ? "subdirectory" : "directory", p.path);
}

int check_protected(struct ns *n, const struct walk *w)
{
	int rc = 0;

	for (char *const *dir = n->limits->protected_dirs; dir && *dir && !rc; dir++)
		if (w->last && w->last->type == INODE_DIR && is_within(*dir, w->path))
			rc = check_protected_below(n, w, *dir);
	return rc;
}

int ns_delete(struct ns *n, const char *path, bool recursive, bool *ret)
{
	struct dir_list dirs = {.n = n};
	struct quota_sum sum;
	struct walk w;
	struct inode *up;
	int rc = ns_walk_as(n, path, WALK_CHANGE | WALK_LINK, &w);

	if (rc < 0)
		return rc;
	*ret = false;
	rc = ns_check_remove(n, &w);
	if (rc < 0 || !w.last)
		return rc;
	if (w.last->type == INODE_DIR)
		rc = collect_dirs(n, w.last, &dirs);
	if (!rc && w.last->type == INODE_DIR && w.last->children && !recursive)
		rc = exc_throw(n->x, EXC_NOT_EMPTY, "`%s is non empty': Directory is not empty",
			       w.path);
	rc = rc ? rc : check_protected(n, &w);
	if (rc < 0 || !w.depth) /* the root stays */
		goto out;
	up = walk_parent(&w);
	rc = ns_io(n, quota_sum(n, w.last, &sum));
	rc = rc ? rc : ns_io(n, quota_charge(n, up->id, -sum.inodes, -sum.space));
	rc = rc ? rc : detach(n, up, w.last);
	rc = rc ? rc : inode_put(n->t, up);
	rc = ns_io(n, rc ? rc : drop_tree(n, w.last, &dirs));
	*ret = true;
out:
	free(dirs.id);
	return rc;
}
