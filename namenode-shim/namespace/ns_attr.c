/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of what exists: mode, owner, times, replication; and sums over a subtree. */
#include <stdlib.h>
#include <string.h>

#include "namenode-shim/base/users.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/ecpolicy.h"
#include "namenode-shim/namespace/ns_internal.h"
#include "namenode-shim/namespace/quota.h"

int ns_set_perm(struct ns *n, const char *path, uint16_t perm)
{
	struct ns_path w;
	int rc = ns_resolve_change(n, path, &w);

	rc = rc ? rc : ns_found(n, &w, "Directory/File does not exist ", "");
	rc = rc ? rc : ns_check_owner(n, &w);
	if (rc < 0)
		return rc;
	w.last->perm = perm & INODE_PERM;
	tree_changed(n->t, w.last->type == INODE_DIR ? w.last->id : w.last->parent);
	return ns_io(n, inode_put(n->t, w.last));
}

static int check_chown(struct ns *n, const char *owner, const char *group)
{
	if (n->super)
		return 0;
	if (owner && strcmp(owner, n->user))
		return exception_throw(n->x, EXC_ACCESS,
				       "User %s is not a super user (non-super user "
				       "cannot change owner).",
				       n->user);
	if (group && !users_in_group(n->users, n->user, group))
		return exception_throw(n->x, EXC_ACCESS, "User %s does not belong to %s", n->user,
				       group);
	return 0;
}

int ns_set_owner(struct ns *n, const char *path, const char *owner, const char *group)
{
	struct ns_path w;
	int rc = ns_resolve_as(n, path, WALK_CHANGE | WALK_LINK_ID, &w);

	rc = rc ? rc : ns_found(n, &w, "Directory/File does not exist ", "");
	rc = rc ? rc : ns_check_owner(n, &w);
	rc = rc ? rc : check_chown(n, owner, group);
	if (rc < 0)
		return rc;
	if ((owner && strlen(owner) > INODE_NAME_MAX) || (group && strlen(group) > INODE_NAME_MAX))
		return exception_throw(n->x, EXC_ILLEGAL_ARGUMENT,
				       "name of owner or group is too long");
	if (owner && *owner)
		w.last->owner = owner;
	if (group && *group)
		w.last->group = group;
	tree_changed(n->t, w.last->type == INODE_DIR ? w.last->id : w.last->parent);
	return ns_io(n, inode_put(n->t, w.last));
}

int ns_set_times(struct ns *n, const char *path, int64_t mtime, int64_t atime)
{
	struct ns_path w;
	int rc = ns_resolve_as(n, path, WALK_CHANGE | WALK_LINK_ID, &w);

	rc = rc ? rc : ns_found(n, &w, "File/Directory ", " does not exist.");
	rc = rc ? rc : ns_check(n, w.last, ACCESS_W, w.path);
	if (rc < 0)
		return rc;
	if (mtime >= 0)
		w.last->mtime = (uint64_t)mtime;
	if (atime >= 0)
		w.last->atime = (uint64_t)atime;
	return ns_io(n, inode_put(n->t, w.last));
}

int ns_set_repl(struct ns *n, const char *path, uint16_t repl, bool *ret)
{
	struct ns_path w;
	int64_t more;
	int rc = ns_resolve_change(n, path, &w);

	*ret = false;
	if (!rc && w.last)
		rc = ns_check(n, w.last, ACCESS_W, w.path);
	if (rc < 0 || !w.last || w.last->type == INODE_DIR || w.last->ec)
		return rc;
	more = -(int64_t)inode_space(w.last);
	w.last->repl = repl;
	more += (int64_t)inode_space(w.last);
	rc = quota_check(n, ns_path_parent(&w), 0, more);
	rc = rc ? rc : ns_io(n, quota_charge(n, w.last->parent, 0, more));
	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < w.last->nblocks; i++) {
		struct effect *e = ns_effect(n, EFFECT_BLOCK_REPL);

		e->b = w.last->blocks[i].b;
		e->repl = repl;
	}
	*ret = true;
	return ns_io(n, inode_put(n->t, w.last));
}

/* ---- summary ---- */

struct ns_summing {
	struct ns_summary sum;
	struct dir_list dirs; /* breadth first; those before @at are done */
	size_t at;
	/* the entry of dirs.id[at] looked at last; none: it is not begun */
	char last[INODE_NAME_MAX];
	size_t last_len;
	uint32_t looked; /* in this step */
};

struct summary_walk {
	struct ns *n;
	struct arena *a;
	struct ns_summing *s;
};

static void add_file(const struct ns *n, struct ns_summary *s, const struct inode *f)
{
	s->files++;
	s->len += inode_len(f);
	s->space += inode_space(f);
	if (n->saw_file)
		n->saw_file(n->saw_arg, f);
}

static int add_entry(void *arg, const char *name, size_t len, uint64_t id)
{
	const struct summary_walk *w = arg;
	struct ns_summing *s = w->s;
	struct inode *node;
	int rc = inode_get(w->n->t, id, w->a, &node);

	if (rc < 0)
		return rc;
	if (node->type == INODE_DIR)
		dir_push(&s->dirs, id);
	else
		add_file(w->n, &s->sum, node);
	memcpy(s->last, name, len);
	s->last_len = len;
	s->looked += 1 + node->nblocks / 16;
	return s->looked >= NS_SUM_STEP ? NS_MORE : 0;
}

static int check_listed(struct ns *n, const struct inode *dir, struct arena *a)
{
	char *path;
	int rc;

	if (!n->enforce || n->super)
		return 0;
	rc = inode_path(n->t, dir, a, &path);
	return rc ? rc : ns_check(n, dir, ACCESS_R | ACCESS_X, path);
}

/* Go on in the directory that it is the turn of. */
static int summarize_dir(struct ns *n, struct ns_summing *s)
{
	const uint64_t id = s->dirs.id[s->at];
	struct arena scratch = {0};
	struct summary_walk w = {n, &scratch, s};
	struct inode *dir;
	int rc = inode_get(n->t, id, &scratch, &dir);
	const bool gone = rc == -ENOENT; /* since the step that saw its name */

	s->looked++;
	if (!rc && !s->last_len) {
		s->sum.dirs++;
		rc = check_listed(n, dir, &scratch);
	}
	rc = rc ? rc : dirent_each(n->t, id, s->last, s->last_len, add_entry, &w);
	arena_free(&scratch);
	if (!rc || gone) {
		s->at++;
		s->last_len = 0;
		return 0;
	}
	return rc == NS_MORE ? rc : ns_io(n, rc);
}

/* What can be said at once, or the first directory of a walk. */
static int begin_summary(struct ns *n, const char *path, const char *missing, bool stored,
			 struct ns_summing *s)
{
	struct quota q = {QUOTA_NONE, QUOTA_NONE, 0, 0};
	struct ns_path w;
	int rc = ns_resolve_as(n, path, WALK_LINK, &w);
	bool counted;

	rc = rc ? rc : ns_found(n, &w, missing, "");
	if (rc < 0)
		return rc;
	rc = quota_get(n->t, w.last->id, &q);
	if (rc < 0 && rc != -ENOENT)
		return ns_io(n, rc);
	counted = !rc;
	/* The root has always a limit on names, the largest there is. */
	if (!w.depth && q.max_inodes == QUOTA_NONE)
		q.max_inodes = INT64_MAX;
	s->sum = (struct ns_summary){.max_inodes = q.max_inodes,
				     .max_space = q.max_space,
				     .is_dir = w.last->type == INODE_DIR};
	rc = ns_io(n, ecdir_name(n->t, w.last, n->a, s->sum.ec));
	if (rc < 0)
		return rc;
	if (w.last->type != INODE_DIR)
		add_file(n, &s->sum, w.last);
	else if (stored && counted) {
		s->sum.files = q.inodes;
		s->sum.space = q.space;
		return check_listed(n, w.last, n->a);
	} else
		dir_push(&s->dirs, w.last->id);
	return 0;
}

int ns_summarize(struct ns *n, const char *path, const char *missing, bool stored,
		 struct ns_summing **state, struct ns_summary *ret)
{
	struct ns_summing *s = *state;
	int rc = 0;

	if (!s) {
		*state = s = xcalloc(1, sizeof(*s));
		rc = begin_summary(n, path, missing, stored, s);
	}
	s->looked = 0;
	while (!rc && s->at < s->dirs.count)
		rc = s->looked < NS_SUM_STEP ? summarize_dir(n, s) : NS_MORE;
	if (!rc)
		*ret = s->sum;
	return rc;
}

void ns_summing_free(struct ns_summing *s)
{
	if (s)
		free(s->dirs.id);
	free(s);
}
