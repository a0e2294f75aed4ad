/* SPDX-License-Identifier: Apache-2.0 */
/* Deleting: what is below goes in the same transaction, unless that is much (tree_delete.h). */
#include <stdlib.h>
#include <string.h>

#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/ns_internal.h"
#include "namenode-shim/namespace/quota.h"
#include "namenode-shim/namespace/tree_delete.h"

void dir_push(struct dir_list *l, uint64_t id)
{
	if (l->count == l->size) {
		l->size = l->size ? 2 * l->size : 64;
		l->id = xrealloc(l->id, l->size * sizeof(*l->id));
	}
	l->id[l->count++] = id;
}

/* ---- what may be deleted ---- */

#define CHECK_SLICE 2048 /* names that are looked at before other changes have their turn */
#define CHECK_TRIES 3    /* a tree that changes all the time is then checked in one piece */
#define SMALL_TREE 1024  /* names and blocks that are deleted at once; more go bit by bit */

/* The check of a large tree, in slices. Other changes come between: one that could make it void
 * says so. */
struct tree_check {
	struct list link; /* in db.tree_checks */
	uint64_t top;
	struct dir_list todo;
	uint64_t dir;               /* being looked at; 0: none */
	char after[INODE_NAME_MAX]; /* in it, up to this name */
	size_t after_len;
	bool changed;
	uint32_t tries;
};

/* The directories of a tree, found depth first and the last name first, as HDFS looks at them: that
 * decides which of two refusals is told. */
struct collect {
	struct ns *n;
	const struct inode *top;
	struct dir_list *found; /* NULL: not asked for */
	struct tree_check *check;
	const struct inode *dir; /* whose children are looked at */
	struct arena *a;
	const char *name; /* of the last one, in the transaction's pages */
	size_t name_len;
	uint64_t left; /* names and blocks to look at */
};

/* The sticky bit of @dir keeps the caller from taking @child away. The owner and mode in the text
 * are those of the top of the tree, as in HDFS. */
static int check_sticky(struct collect *c, const struct inode *dir, const struct inode *child)
{
	const struct ns *n = c->n;
	char *path, *up;
	int rc;

	if (!n->enforce || n->super || !(dir->perm & INODE_STICKY) ||
	    !strcmp(n->user, dir->owner) || !strcmp(n->user, child->owner))
		return 0;
	rc = inode_path(n->t, dir, c->a, &up);
	rc = rc ? rc : inode_path(n->t, child, c->a, &path);
	return rc ? rc : ns_refuse_sticky(c->n, child, path, c->top, up);
}

static int collect_child(void *arg, const char *name, size_t len, uint64_t id)
{
	struct collect *c = arg;
	struct inode *node;
	int rc;

	if (!c->left)
		return NS_MORE;
	c->name = name;
	c->name_len = len;
	rc = inode_get(c->n->t, id, c->a, &node);
	if (rc < 0)
		return rc;
	c->left -= c->left < 1 + node->nblocks ? c->left : 1 + node->nblocks;
	if (!rc && node->type == INODE_DIR)
		dir_push(&c->check->todo, id);
	return rc ? rc : check_sticky(c, c->dir, node);
}

static int enter_dir(struct collect *c, const struct inode *dir)
{
	struct ns *n = c->n;
	char *path;
	int rc;

	if (c->found)
		dir_push(c->found, dir->id);
	if (!dir->children || !n->enforce || n->super)
		return 0;
	rc = inode_path(n->t, dir, c->a, &path);
	return rc ? rc : ns_check(n, dir, ACCESS_R | ACCESS_W | ACCESS_X, path);
}

/* The next directory, or what is left of one. */
static int collect_one(struct collect *c)
{
	struct tree_check *k = c->check;
	const bool fresh = !k->dir;
	struct inode *dir;
	int rc;

	if (fresh) {
		k->dir = k->todo.id[--k->todo.count];
		k->after_len = 0;
	}
	rc = inode_get(c->n->t, k->dir, c->a, &dir);
	if (rc == -ENOENT && !c->found) /* deleted between two slices */
		return k->dir = 0, 0;
	rc = rc || !fresh ? rc : enter_dir(c, dir);
	c->dir = dir;
	c->name = NULL;
	if (!rc && dir->children)
		rc = dirent_each(c->n->t, dir->id, k->after, k->after_len, collect_child, c);
	if (rc == NS_MORE && c->name) {
		memcpy(k->after, c->name, c->name_len);
		k->after_len = c->name_len;
	}
	if (rc != NS_MORE)
		k->dir = 0;
	return rc;
}

static void check_begin(struct tree_check *k, uint64_t top)
{
	k->top = top;
	k->todo.count = 0;
	k->dir = 0;
	k->changed = false;
	dir_push(&k->todo, top);
}

/* Go through the directories below @top, for @left names; NS_MORE: there are more. The caller must
 * hold all rights on those that are not empty, and no sticky bit may stand against him. */
static int collect_some(struct ns *n, const struct inode *top, struct tree_check *k,
			struct dir_list *found, uint64_t left)
{
	struct collect c = {.n = n, .top = top, .check = k, .found = found, .left = left};
	int rc = 0;

	while ((k->dir || k->todo.count) && !rc) {
		struct arena scratch = {0};

		c.a = &scratch;
		if (!c.left)
			return NS_MORE;
		c.left--;
		rc = collect_one(&c);
		arena_free(&scratch);
	}
	return rc == NS_MORE ? rc : ns_io(n, rc);
}

void tree_check_free(struct tree_check *k)
{
	if (!k)
		return;
	list_del(&k->link);
	free(k->todo.id);
	free(k);
}

/* A slice of the check of a large tree. */
static int check_some(struct ns *n, const struct inode *top, struct tree_check **state)
{
	struct tree_check *k = *state;
	int rc;

	if (!k) {
		k = *state = xcalloc(1, sizeof(*k));
		list_init(&k->link);
		list_add_tail(&n->t->db->tree_checks, &k->link);
		check_begin(k, top->id);
	} else if (k->top != top->id || k->changed) {
		check_begin(k, top->id);
		k->tries++;
	}
	rc = collect_some(n, top, k, NULL, k->tries < CHECK_TRIES ? CHECK_SLICE : UINT64_MAX);
	return rc;
}

/* @found: its directories. NS_MORE: it is large. */
static int collect_small(struct ns *n, const struct inode *top, struct dir_list *found,
			 uint64_t most)
{
	struct tree_check k = {0};
	int rc;

	check_begin(&k, top->id);
	rc = collect_some(n, top, &k, found, most);
	free(k.todo.id);
	return rc;
}

void tree_changed(struct txn *t, uint64_t dir)
{
	struct inode_climb climb = {0};
	struct arena scratch = {0};
	struct inode *node;
	int rc;

	if (list_empty(&t->db->tree_checks))
		return;
	rc = inode_get(t, dir, &scratch, &node);
	while (!rc) {
		list_for_each (l, &t->db->tree_checks) {
			struct tree_check *k = container_of(l, struct tree_check, link);

			k->changed |= k->top == node->id;
		}
		rc = node->id == INODE_ROOT ? -ENOENT : inode_up(t, node, &scratch, &climb, &node);
	}
	arena_free(&scratch);
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
static int check_protected_below(struct ns *n, const struct ns_path *w, const char *dir)
{
	struct ns quiet = *n;
	struct ns_path p;
	int rc;

	quiet.super = true; /* it is there whether or not the caller may look */
	rc = ns_resolve(&quiet, dir, &p);
	if (rc == -ENOTDIR || rc == -ELOOP) {
		n->x->cls = NULL;
		return 0;
	}
	if (rc < 0 || !p.last || p.last->type != INODE_DIR || !p.last->children)
		return rc;
	return exception_throw(n->x, EXC_ACCESS, "Cannot delete/rename non-empty protected %s %s",
			       strcmp(p.path, w->path) ? "subdirectory" : "directory", p.path);
}

int check_protected(struct ns *n, const struct ns_path *w)
{
	int rc = 0;

	for (char *const *dir = n->limits->protected_dirs; dir && *dir && !rc; dir++)
		if (w->last && w->last->type == INODE_DIR && is_within(*dir, w->path))
			rc = check_protected_below(n, w, *dir);
	return rc;
}

/* Take @node, which is small, and all below it out of its directory. */
static int delete_now(struct ns *n, struct inode *up, const struct inode *node,
		      const struct dir_list *dirs)
{
	struct quota_sum sum;
	int rc = ns_io(n, quota_sum(n, node, &sum));

	rc = rc ? rc : ns_io(n, quota_charge(n, up->id, -sum.inodes, -sum.space));
	rc = rc ? rc : detach(n, up, node);
	rc = rc ? rc : inode_put(n->t, up);
	return ns_io(n, rc ? rc : drop_tree(n, node, dirs));
}

/* The same with a large tree: its names go later. */
static int delete_later(struct ns *n, struct inode *up, struct inode *node)
{
	int rc = ns_io(n, detach(n, up, node));

	rc = rc ? rc : ns_io(n, inode_put(n->t, up));
	return rc ? rc : ns_io(n, tree_delete_add(n, up, node));
}

/* 0: it may be deleted; *ret_large: later. NS_MORE: there is more to check. */
static int judge_tree(struct ns *n, struct inode *top, struct tree_check **state,
		      struct dir_list *dirs, bool *ret_large)
{
	int rc = state && *state ? NS_MORE
				 : collect_small(n, top, dirs, state ? SMALL_TREE : UINT64_MAX);

	if (rc != NS_MORE)
		return rc;
	*ret_large = true;
	return n->enforce && !n->super ? check_some(n, top, state) : 0;
}

int ns_delete_some(struct ns *n, const char *path, bool recursive, struct tree_check **state,
		   bool *ret)
{
	struct dir_list dirs = {.n = n};
	bool large = false;
	struct ns_path w;
	int rc = ns_resolve_as(n, path, WALK_CHANGE | WALK_LINK, &w);

	if (rc < 0)
		return rc;
	*ret = false;
	rc = ns_check_remove(n, &w);
	if (rc < 0 || !w.last)
		return rc;
	if (w.last->type == INODE_DIR)
		rc = judge_tree(n, w.last, state, &dirs, &large);
	if (!rc && w.last->type == INODE_DIR && w.last->children && !recursive)
		rc = exception_throw(n->x, EXC_NOT_EMPTY,
				     "`%s is non empty': Directory is not empty", w.path);
	rc = rc ? rc : check_protected(n, &w);
	if (!rc && w.depth) /* the root stays */
		rc = large ? delete_later(n, ns_path_parent(&w), w.last)
			   : delete_now(n, ns_path_parent(&w), w.last, &dirs);
	*ret = !rc && w.depth;
	free(dirs.id);
	return rc;
}

int ns_delete(struct ns *n, const char *path, bool recursive, bool *ret)
{
	return ns_delete_some(n, path, recursive, NULL, ret);
}
