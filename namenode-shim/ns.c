/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/ns.h"

#include <stdlib.h>
#include <string.h>

#include "namenode-shim/db.h"
#include "namenode-shim/users.h"

#define PERM_MASK 01777
#define PERM_UWX 0300

/* ---- shared steps ---- */

static struct inode *parent_of(const struct walk *w)
{
	return w->have > w->depth ? w->chain[w->depth - 1] : w->chain[w->have - 1];
}

static void count_inodes(struct ns *n, int64_t delta)
{
	ns_effect(n, FX_INODES)->delta = delta;
}

static int check_names(struct ns *n, const struct walk *w)
{
	for (uint32_t i = w->have - 1; i < w->depth; i++)
		if (strlen(w->name[i]) > INODE_NAME_MAX)
			return exc_throw(n->x, EXC_NAME_TOO_LONG,
					 "The maximum path component name limit of %.60s... in "
					 "directory %s is exceeded: limit=%d length=%zu",
					 w->name[i], walk_path_of(n, w, i), INODE_NAME_MAX,
					 strlen(w->name[i]));
	return 0;
}

/* Before something is made at the missing path @w: names, and write permission where it begins. */
static int check_make(struct ns *n, const struct walk *w, bool create_parent)
{
	const struct inode *up = parent_of(w);
	int rc = check_names(n, w);

	if (rc < 0)
		return rc;
	if (up->type != INODE_DIR)
		return exc_throw(n->x, EXC_PARENT_NOT_DIR, "%s (is not a directory)",
				 walk_path_of(n, w, w->have - 1));
	if (!create_parent && w->have < w->depth)
		return exc_throw(n->x, EXC_NOT_FOUND, "Parent directory doesn't exist: %s",
				 walk_path_of(n, w, w->depth - 1));
	return ns_check(n, up, ACCESS_W, walk_path_of(n, w, w->have - 1));
}

static struct inode *node_new(struct ns *n, const struct inode *up, const char *name,
			      enum inode_type type, uint16_t perm)
{
	struct inode *node = arena_new(n->a, struct inode);

	node->id = inode_new_id(n->t);
	node->parent = up->id;
	node->type = (uint8_t)type;
	node->perm = perm & PERM_MASK;
	node->name = name;
	node->owner = n->user;
	node->group = up->group; /* the BSD rule, as in HDFS */
	node->client = node->client_host = "";
	node->mtime = n->now_ms;
	return node;
}

/* Enter @node under @up; the caller puts @up afterwards. */
static int attach(struct ns *n, struct inode *up, struct inode *node)
{
	int rc = dirent_put(n->t, up->id, node->name, node->id);

	node->parent = up->id;
	rc = rc ? rc : inode_put(n->t, node);
	up->children++;
	up->mtime = n->now_ms;
	return rc;
}

static int detach(struct ns *n, struct inode *up, const struct inode *node)
{
	up->children--;
	up->mtime = n->now_ms;
	return dirent_del(n->t, up->id, node->name);
}

/* Make the missing directories of @w but the last @leave components; *ret_up is the deepest. */
static int make_dirs(struct ns *n, const struct walk *w, uint32_t leave, uint16_t mid_perm,
		     uint16_t last_perm, struct inode **ret_up)
{
	struct inode *up = parent_of(w);
	int rc = 0;

	for (uint32_t i = w->have - 1; i + leave < w->depth && !rc; i++) {
		const uint16_t perm = i + 1 == w->depth ? last_perm : mid_perm;
		struct inode *dir = node_new(n, up, w->name[i], INODE_DIR, perm);

		rc = attach(n, up, dir);
		rc = rc ? rc : inode_put(n->t, up);
		count_inodes(n, 1);
		up = dir;
	}
	*ret_up = up;
	return rc;
}

static void forget_file(struct ns *n, const struct inode *file)
{
	for (uint32_t i = 0; i < file->nblocks; i++)
		ns_effect(n, FX_BLOCK_REMOVE)->b = file->blocks[i].b;
	if (inode_is_open(file)) {
		struct effect *e = ns_effect(n, FX_LEASE_DEL);

		e->inode = file->id;
		e->holder = file->client;
	}
}

/* ---- mkdirs, create ---- */

int ns_mkdirs(struct ns *n, const char *path, uint16_t perm, bool create_parent)
{
	struct walk w;
	struct inode *up;
	int rc = ns_walk(n, path, &w);

	if (rc < 0)
		return rc;
	if (w.last && w.last->type == INODE_DIR)
		return 0;
	if (w.last)
		return exc_throw(n->x, EXC_EXISTS, "Path is not a directory: %s", path);
	rc = check_make(n, &w, create_parent);
	if (rc < 0)
		return rc;
	return ns_io(n, make_dirs(n, &w, 0, (uint16_t)(perm | PERM_UWX), perm, &up));
}

/* A file stands where one is to be created. */
static int check_existing(struct ns *n, const struct ns_create *c, const struct walk *w,
			  struct inode **ret_busy)
{
	int rc;

	if (w->last->type == INODE_DIR)
		return exc_throw(n->x, EXC_EXISTS, "%s already exists as a directory", c->path);
	if (!c->overwrite && inode_is_open(w->last)) {
		*ret_busy = w->last;
		return exc_throw(n->x, EXC_BEING_CREATED,
				 "Failed to CREATE_FILE %s for %s on %s because this file lease is "
				 "currently owned by %s on %s",
				 c->path, c->client, n->host, w->last->client,
				 w->last->client_host);
	}
	if (!c->overwrite)
		return exc_throw(n->x, EXC_EXISTS, "%s for client %s already exists", c->path,
				 n->host);
	rc = ns_check(n, w->last, ACCESS_W, w->path);
	return rc ? rc : ns_check(n, parent_of(w), ACCESS_W, walk_path_of(n, w, w->depth - 1));
}

int ns_create(struct ns *n, const struct ns_create *c, struct inode **ret, struct inode **ret_busy)
{
	struct walk w;
	struct inode *up, *file;
	struct effect *e;
	int rc = ns_walk(n, c->path, &w);

	if (rc < 0)
		return rc;
	if (w.last)
		rc = check_existing(n, c, &w, ret_busy);
	else if (!c->create)
		rc = exc_throw(n->x, EXC_NOT_FOUND, "Can't overwrite non-existent %s for client %s",
			       c->path, n->host);
	else
		rc = check_make(n, &w, c->create_parent);
	if (rc < 0)
		return rc;
	if (w.last) {
		up = parent_of(&w);
		rc = detach(n, up, w.last);
		rc = rc ? rc : inode_del(n->t, w.last);
		forget_file(n, w.last);
		count_inodes(n, -1);
	} else {
		const uint16_t mid = (uint16_t)(parent_of(&w)->perm | PERM_UWX);

		rc = make_dirs(n, &w, 1, mid, mid, &up);
	}
	file = node_new(n, up, w.name[w.depth - 1], INODE_FILE, c->perm);
	file->repl = c->repl;
	file->block_size = c->block_size;
	file->atime = n->now_ms;
	file->client = c->client;
	file->client_host = n->host;
	rc = rc ? rc : attach(n, up, file);
	rc = rc ? rc : inode_put(n->t, up);
	if (rc < 0)
		return ns_io(n, rc);
	e = ns_effect(n, FX_LEASE_ADD);
	e->inode = file->id;
	e->holder = file->client;
	count_inodes(n, 1);
	*ret = file;
	return 0;
}

/* ---- delete ---- */

struct dir_list {
	struct ns *n;
	uint64_t *id; /* owned; directories of a subtree, parents first */
	size_t count, size;
};

static void dir_push(struct dir_list *l, uint64_t id)
{
	if (l->count == l->size) {
		l->size = l->size ? 2 * l->size : 64;
		l->id = xrealloc(l->id, l->size * sizeof(*l->id));
	}
	l->id[l->count++] = id;
}

struct child_list {
	struct ns *n;
	struct arena *a;
	struct dir_list *dirs; /* NULL: do not collect */
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
	if (l->dirs && node->type == INODE_DIR)
		dir_push(l->dirs, id);
	if (!l->dirs) {
		if (l->count == l->size) {
			l->size = l->size ? 2 * l->size : 64;
			l->node = xrealloc(l->node, l->size * sizeof(struct inode *));
		}
		l->node[l->count++] = node;
	}
	return 0;
}

/* List the directories below @top; the caller must hold all rights on those that are not empty. */
static int collect_dirs(struct ns *n, const struct inode *top, struct dir_list *l)
{
	dir_push(l, top->id);
	for (size_t i = 0; i < l->count; i++) {
		struct arena scratch = {0};
		struct child_list kids = {.n = n, .a = &scratch, .dirs = l};
		struct inode *dir;
		char *path;
		int rc = inode_get(n->t, l->id[i], &scratch, &dir);

		if (!rc && dir->children && n->enforce && !n->super) {
			rc = inode_path(n->t, dir, &scratch, &path);
			rc = rc ? rc : ns_check(n, dir, ACCESS_R | ACCESS_W | ACCESS_X, path);
		}
		if (!rc && dir->children)
			rc = dirent_each(n->t, dir->id, NULL, 0, add_child, &kids);
		arena_free(&scratch);
		if (rc < 0)
			return ns_io(n, rc);
	}
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

/* Remove @node, which @up has already let go, and all below it. */
static int drop_tree(struct ns *n, const struct inode *node, const struct dir_list *dirs)
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

/* May the caller take the last component of @w out of its directory? */
static int check_remove(struct ns *n, const struct walk *w)
{
	const struct inode *up = parent_of(w);
	const char *path = walk_path_of(n, w, w->depth - 1);
	char mode[NS_MODE_TEXT], up_mode[NS_MODE_TEXT];
	int rc = ns_check(n, up, ACCESS_W, path);

	if (rc < 0 || !n->enforce || n->super || !(up->perm & INODE_STICKY) ||
	    !strcmp(n->user, up->owner) || !strcmp(n->user, w->last->owner))
		return rc;
	return exc_throw(n->x, EXC_ACCESS,
			 "Permission denied by sticky bit: user=%s, path=\"%s\":%s:%s:%s, "
			 "parent=\"%s\":%s:%s:%s",
			 n->user, w->path, w->last->owner, w->last->group,
			 ns_mode_text(w->last, mode), path, up->owner, up->group,
			 ns_mode_text(up, up_mode));
}

int ns_delete(struct ns *n, const char *path, bool recursive, bool *ret)
{
	struct dir_list dirs = {.n = n};
	struct walk w;
	struct inode *up;
	int rc = ns_walk(n, path, &w);

	if (rc < 0)
		return rc;
	*ret = false;
	if (!w.last || !w.depth) /* nothing there, or the root, which stays */
		return 0;
	rc = check_remove(n, &w);
	if (!rc && w.last->type == INODE_DIR && w.last->children && !recursive)
		rc = exc_throw(n->x, EXC_NOT_EMPTY, "`%s is non empty': Directory is not empty",
			       path);
	if (!rc && w.last->type == INODE_DIR)
		rc = collect_dirs(n, w.last, &dirs);
	if (rc < 0)
		goto out;
	up = parent_of(&w);
	rc = detach(n, up, w.last);
	rc = rc ? rc : inode_put(n->t, up);
	rc = ns_io(n, rc ? rc : drop_tree(n, w.last, &dirs));
	*ret = true;
out:
	free(dirs.id);
	return rc;
}

/* ---- rename ---- */

static bool is_below(const struct walk *src, const struct walk *dst)
{
	const size_t len = strlen(src->path);

	return !strncmp(src->path, dst->path, len) && dst->path[len] == '/';
}

/* Move src to dst, whose parent exists. dst->last, if any, is replaced. Validated by the caller. */
static int move(struct ns *n, struct walk *src, struct walk *dst)
{
	const struct dir_list none = {.n = n};
	struct inode *from = parent_of(src), *to = dst->chain[dst->depth - 1], *node = src->last;
	int rc = 0;

	if (to->id == from->id)
		to = from; /* one directory, one copy of its record */
	if (dst->last) {
		rc = detach(n, to, dst->last);
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

int ns_rename(struct ns *n, const char *src, const char *dst, bool *ret)
{
	struct walk s, d;
	int rc = ns_walk(n, src, &s);

	*ret = false;
	rc = rc ? rc : ns_walk(n, dst, &d);
	if (rc < 0)
		return rc;
	if (!s.last || !s.depth)
		return 0;
	if (d.last && d.last->type == INODE_DIR && d.last->id != s.last->id) {
		rc = ns_walk(n,
			     arena_printf(n->a, "%s/%s", d.depth ? d.path : "",
					  s.name[s.depth - 1]),
			     &d);
		if (rc < 0)
			return rc;
	}
	if (!strcmp(s.path, d.path)) {
		*ret = true;
		return 0;
	}
	if (is_below(&s, &d) || d.last || d.have < d.depth ||
	    d.chain[d.have - 1]->type != INODE_DIR)
		return 0;
	rc = check_remove(n, &s);
	rc = rc ? rc : check_make(n, &d, false);
	rc = rc ? rc : move(n, &s, &d);
	*ret = !rc;
	return rc;
}

static int check_overwrite(struct ns *n, const struct walk *s, const struct walk *d, bool overwrite)
{
	if (s->last->type != d->last->type)
		return exc_throw(n->x, EXC_IO, "Source %s is a %s and destination %s is a %s",
				 s->path, s->last->type == INODE_DIR ? "directory" : "file",
				 d->path, d->last->type == INODE_DIR ? "directory" : "file");
	if (!overwrite)
		return exc_throw(n->x, EXC_EXISTS, "rename destination %s already exists", d->path);
	if (d->last->type == INODE_DIR && d->last->children)
		return exc_throw(n->x, EXC_IO, "rename destination directory is not empty: %s",
				 d->path);
	return check_remove(n, d);
}

int ns_rename2(struct ns *n, const char *src, const char *dst, bool overwrite)
{
	struct walk s, d;
	int rc = ns_walk(n, src, &s);

	rc = rc ? rc : ns_walk(n, dst, &d);
	if (rc < 0)
		return rc;
	if (!s.last)
		return exc_throw(n->x, EXC_NOT_FOUND, "rename source %s is not found.", src);
	if (!s.depth || !d.depth)
		return exc_throw(n->x, EXC_IO, "rename %s cannot be the root",
				 s.depth ? "destination" : "source");
	if (!strcmp(s.path, d.path))
		return exc_throw(n->x, EXC_EXISTS, "The source %s and destination %s are the same",
				 src, dst);
	if (is_below(&s, &d))
		return exc_throw(n->x, EXC_IO,
				 "Rename destination %s is a directory or file under source %s", dst,
				 src);
	if (d.have < d.depth)
		return exc_throw(n->x, EXC_NOT_FOUND, "rename destination parent %s not found.",
				 dst);
	rc = check_remove(n, &s);
	rc = rc ? rc : d.last ? check_overwrite(n, &s, &d, overwrite) : check_make(n, &d, false);
	return rc ? rc : move(n, &s, &d);
}

/* ---- attributes ---- */

int ns_set_perm(struct ns *n, const char *path, uint16_t perm)
{
	struct walk w;
	int rc = ns_find(n, path, &w);

	rc = rc ? rc : ns_check_owner(n, &w);
	if (rc < 0)
		return rc;
	w.last->perm = perm & PERM_MASK;
	return ns_io(n, inode_put(n->t, w.last));
}

static int check_chown(struct ns *n, const struct inode *node, const char *owner, const char *group)
{
	if (!n->enforce || n->super)
		return 0;
	if (owner && *owner && strcmp(owner, node->owner))
		return exc_throw(n->x, EXC_ACCESS, "User %s is not a super user (non-super user "
						   "cannot change owner).",
				 n->user);
	if (group && *group && !users_in_group(n->users, n->user, group))
		return exc_throw(n->x, EXC_ACCESS, "User %s does not belong to %s", n->user, group);
	return 0;
}

int ns_set_owner(struct ns *n, const char *path, const char *owner, const char *group)
{
	struct walk w;
	int rc = ns_find(n, path, &w);

	rc = rc ? rc : ns_check_owner(n, &w);
	rc = rc ? rc : check_chown(n, w.last, owner, group);
	if (rc < 0)
		return rc;
	if ((owner && strlen(owner) > INODE_NAME_MAX) || (group && strlen(group) > INODE_NAME_MAX))
		return exc_throw(n->x, EXC_ILLEGAL_ARGUMENT, "name of owner or group is too long");
	if (owner && *owner)
		w.last->owner = owner;
	if (group && *group)
		w.last->group = group;
	return ns_io(n, inode_put(n->t, w.last));
}

int ns_set_times(struct ns *n, const char *path, uint64_t mtime, uint64_t atime)
{
	struct walk w;
	int rc = ns_find(n, path, &w);

	rc = rc ? rc : ns_check(n, w.last, ACCESS_W, w.path);
	if (rc < 0)
		return rc;
	if (mtime != UINT64_MAX)
		w.last->mtime = mtime;
	if (atime != UINT64_MAX)
		w.last->atime = atime;
	return ns_io(n, inode_put(n->t, w.last));
}

int ns_set_repl(struct ns *n, const char *path, uint16_t repl, bool *ret)
{
	struct walk w;
	int rc = ns_walk(n, path, &w);

	*ret = false;
	if (!rc && w.last)
		rc = ns_check(n, w.last, ACCESS_W, w.path);
	if (rc < 0 || !w.last || w.last->type == INODE_DIR)
		return rc;
	w.last->repl = repl;
	for (uint32_t i = 0; i < w.last->nblocks; i++) {
		struct effect *e = ns_effect(n, FX_BLOCK_REPL);

		e->b = w.last->blocks[i].b;
		e->repl = repl;
	}
	*ret = true;
	return ns_io(n, inode_put(n->t, w.last));
}

/* ---- summary ---- */

struct summary_walk {
	struct ns *n;
	struct arena *a;
	struct dir_list *dirs;
	struct ns_summary *sum;
};

static void add_file(struct ns_summary *s, const struct inode *f)
{
	const uint64_t len = inode_len(f);

	s->files++;
	s->len += len;
	s->space += len * f->repl;
}

static int add_entry(void *arg, const char *name, size_t len, uint64_t id)
{
	struct summary_walk *s = arg;
	struct inode *node;
	int rc = inode_get(s->n->t, id, s->a, &node);

	(void)name;
	(void)len;
	if (rc < 0)
		return rc;
	if (node->type == INODE_DIR)
		dir_push(s->dirs, id);
	else
		add_file(s->sum, node);
	return 0;
}

static int summarize_dir(struct ns *n, uint64_t id, struct dir_list *dirs, struct ns_summary *sum)
{
	struct arena scratch = {0};
	struct summary_walk s = {n, &scratch, dirs, sum};
	struct inode *dir;
	char *path;
	int rc = inode_get(n->t, id, &scratch, &dir);

	sum->dirs++;
	if (!rc && n->enforce && !n->super) {
		rc = inode_path(n->t, dir, &scratch, &path);
		rc = rc ? rc : ns_check(n, dir, ACCESS_R | ACCESS_X, path);
	}
	rc = rc ? rc : dirent_each(n->t, id, NULL, 0, add_entry, &s);
	arena_free(&scratch);
	return ns_io(n, rc);
}

int ns_summarize(struct ns *n, const char *path, struct ns_summary *ret)
{
	struct dir_list dirs = {.n = n};
	struct walk w;
	int rc = ns_find(n, path, &w);

	if (rc < 0)
		return rc;
	*ret = (struct ns_summary){0};
	if (w.last->type == INODE_FILE) {
		add_file(ret, w.last);
		return 0;
	}
	dir_push(&dirs, w.last->id);
	for (size_t i = 0; i < dirs.count && !rc; i++)
		rc = summarize_dir(n, dirs.id[i], &dirs, ret);
	free(dirs.id);
	return rc;
}
