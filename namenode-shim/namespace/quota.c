/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/namespace/quota.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/cursor.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/ns_internal.h"
#include "namenode-shim/namespace/tree_delete.h"

#define RECORD_BYTES 32

/* ---- records ---- */

bool quota_any(struct txn *t)
{
	MDB_stat st;

	return !mdb_stat(t->t, t->db->quota, &st) && st.ms_entries;
}

int quota_get(struct txn *t, uint64_t dir, struct quota *ret)
{
	const uint64_t key = htobe64(dir);
	MDB_val v;
	struct rd r;
	int rc = txn_get(t, t->db->quota, &key, sizeof(key), &v);

	if (rc < 0)
		return rc;
	r = rd_init(v.mv_data, v.mv_size);
	ret->max_inodes = rd_be64(&r);
	ret->max_space = rd_be64(&r);
	ret->inodes = rd_be64(&r);
	ret->space = rd_be64(&r);
	return r.bad ? -EBADMSG : 0;
}

int quota_put(struct txn *t, uint64_t dir, const struct quota *q)
{
	const uint64_t key = htobe64(dir);
	uint8_t b[RECORD_BYTES];
	struct wr w = wr_init(b, sizeof(b));

	wr_be64(&w, q->max_inodes);
	wr_be64(&w, q->max_space);
	wr_be64(&w, q->inodes);
	wr_be64(&w, q->space);
	return txn_put(t, t->db->quota, &key, sizeof(key), b, sizeof(b));
}

int quota_del(struct txn *t, uint64_t dir)
{
	const uint64_t key = htobe64(dir);
	int rc = quota_any(t) ? txn_del(t, t->db->quota, &key, sizeof(key)) : 0;

	return rc == -ENOENT ? 0 : rc;
}

/* ---- counting ---- */

struct count {
	struct ns *n;
	struct arena *a;
	struct quota_sum *sum;
	struct dir_list *dirs;
};

static void count_node(const struct count *c, const struct inode *node)
{
	c->sum->inodes++;
	c->sum->space += (int64_t)inode_space(node);
	if (node->type == INODE_DIR && node->children)
		dir_push(c->dirs, node->id);
}

static int count_entry(void *arg, const char *name, size_t len, uint64_t id)
{
	const struct count *c = arg;
	struct inode *node;
	int rc = inode_get(c->n->t, id, c->a, &node);

	(void)name;
	(void)len;
	if (!rc)
		count_node(c, node);
	return rc;
}

static int count_tree(struct ns *n, const struct inode *top, struct quota_sum *ret)
{
	struct dir_list dirs = {.n = n};
	struct arena scratch = {0};
	struct count c = {n, &scratch, ret, &dirs};
	int rc = 0;

	*ret = (struct quota_sum){0};
	count_node(&c, top);
	for (size_t i = 0; i < dirs.count && !rc; i++) {
		rc = dirent_each(n->t, dirs.id[i], NULL, 0, count_entry, &c);
		arena_free(&scratch);
	}
	free(dirs.id);
	return rc;
}

int quota_sum(struct ns *n, const struct inode *node, struct quota_sum *ret)
{
	*ret = (struct quota_sum){0};
	return quota_any(n->t) ? count_tree(n, node, ret) : 0;
}

/* ---- limits ---- */

static bool exceeds(uint64_t max, uint64_t used, int64_t more)
{
	return max != QUOTA_NONE && more > 0 && (used > max || max - used < (uint64_t)more);
}

/* 3 MB, 1.50 MB, 12 B: as Hadoop prints sizes in messages. */
static const char *size_text(struct ns *n, uint64_t v)
{
	static const char prefix[] = "KMGTPE";
	uint64_t unit = 1;
	int i = -1;

	for (; i < 5 && v / unit >= 1024; i++)
		unit *= 1024;
	if (i < 0)
		return arena_printf(n->a, "%llu B", (unsigned long long)v);
	if (v % unit == 0)
		return arena_printf(n->a, "%llu %cB", (unsigned long long)(v / unit), prefix[i]);
	return arena_printf(n->a, "%.2f %cB", (double)v / (double)unit, prefix[i]);
}

/* @moved: the names come all at once; else one after another, and the first too many is told of. */
static int check_one(struct ns *n, const struct inode *dir, const struct quota *q,
		     const struct quota_sum *more, bool moved)
{
	const int64_t inodes = more->inodes, space = more->space;
	const uint64_t full = q->inodes > q->max_inodes ? q->inodes : q->max_inodes;
	char *path;
	int rc;

	if (!exceeds(q->max_inodes, q->inodes, inodes) && !exceeds(q->max_space, q->space, space))
		return 0;
	rc = ns_io(n, inode_path(n->t, dir, n->a, &path));
	if (rc < 0)
		return rc;
	if (exceeds(q->max_inodes, q->inodes, inodes))
		return exception_throw(
			n->x, EXC_QUOTA_NS,
			"The NameSpace quota (directories and files) of directory %s is "
			"exceeded: quota=%llu file count=%llu",
			path, (unsigned long long)q->max_inodes,
			moved ? (unsigned long long)q->inodes + (unsigned long long)inodes
			      : (unsigned long long)full + 1);
	return exception_throw(
		n->x, EXC_QUOTA_DS,
		"The DiskSpace quota of %s is exceeded: quota = %llu B = %s but diskspace "
		"consumed = %llu B = %s",
		path, (unsigned long long)q->max_space, size_text(n, q->max_space),
		(unsigned long long)q->space + (unsigned long long)space,
		size_text(n, q->space + (uint64_t)space));
}

static bool is_above(struct ns *n, uint64_t dir, const struct inode *of)
{
	const struct inode *at = of;
	struct inode_climb c = {0};
	struct inode *up;

	for (;;) {
		if (at->id == dir)
			return true;
		if (at->id == INODE_ROOT || inode_up(n->t, at, n->a, &c, &up) < 0)
			return false;
		at = up;
	}
}

int quota_check_move(struct ns *n, const struct inode *from, const struct inode *to, int64_t inodes,
		     int64_t space)
{
	const struct quota_sum more = {inodes, space};
	const struct inode *dir = to;
	struct inode_climb c = {0};
	struct inode *up;
	int rc = 0;

	if (!quota_any(n->t) || (inodes <= 0 && space <= 0))
		return 0;
	for (;;) {
		struct quota q;

		if (from && is_above(n, dir->id, from))
			return 0;
		rc = quota_get(n->t, dir->id, &q);
		rc = !rc             ? check_one(n, dir, &q, &more, from != NULL)
		     : rc == -ENOENT ? 0
				     : ns_io(n, rc);
		if (rc < 0 || dir->id == INODE_ROOT)
			return rc;
		rc = ns_io(n, inode_up(n->t, dir, n->a, &c, &up));
		if (rc < 0)
			return rc;
		dir = up;
	}
}

int quota_check(struct ns *n, const struct inode *dir, int64_t inodes, int64_t space)
{
	return quota_check_move(n, NULL, dir, inodes, space);
}

static uint64_t add(uint64_t v, int64_t delta)
{
	return delta < 0 && v < -(uint64_t)delta ? 0 : v + (uint64_t)delta;
}

int quota_charge(struct ns *n, uint64_t dir, int64_t inodes, int64_t space)
{
	struct inode_climb c = {0};
	struct inode *node = NULL;

	if (!quota_any(n->t) || (!inodes && !space))
		return 0;
	for (;;) {
		struct quota q;
		int rc = quota_get(n->t, dir, &q);

		if (!rc) {
			q.inodes = add(q.inodes, inodes);
			q.space = add(q.space, space);
			rc = quota_put(n->t, dir, &q);
		}
		if (rc < 0 && rc != -ENOENT)
			return rc;
		if (dir == INODE_ROOT)
			return 0;
		rc = node ? 0 : inode_get(n->t, dir, n->a, &node);
		rc = rc ? rc : inode_up(n->t, node, n->a, &c, &node);
		if (rc == -ENOENT && node && node->parent == INODE_NOWHERE)
			return tree_delete_charge(n->t, node->id, inodes, space);
		/* a directory below itself: all there are have been charged, and a change is not
		 * left half made */
		if (rc < 0)
			return rc == -EBADMSG ? 0 : rc;
		dir = node->id;
	}
}

int quota_release(struct txn *t, uint64_t dir, int64_t inodes, int64_t space)
{
	struct quota q;
	int rc = quota_get(t, dir, &q);

	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	q.inodes = add(q.inodes, -inodes);
	q.space = add(q.space, -space);
	return quota_put(t, dir, &q);
}

/* ---- setQuota ---- */

static int check_values(struct ns *n, uint64_t max_inodes, uint64_t max_space)
{
	if (((int64_t)max_inodes < 0 && max_inodes != QUOTA_NONE) ||
	    ((int64_t)max_space < 0 && max_space != QUOTA_NONE))
		return exception_throw(n->x, EXC_BAD_ARGUMENT,
				       "Illegal value for nsQuota or ssQuota : %lld and %lld",
				       (long long)max_inodes, (long long)max_space);
	return 0;
}

int quota_set(struct ns *n, const char *path, uint64_t max_inodes, uint64_t max_space)
{
	struct quota q = {QUOTA_NONE, QUOTA_NONE, 0, 0};
	struct quota_sum sum = {0};
	struct ns_path w;
	int rc = check_values(n, max_inodes, max_space);

	rc = rc ? rc : ns_resolve_change(n, path, &w);
	rc = rc ? rc : w.last ? 0 : ns_found(n, &w, "Directory does not exist: ", "");
	if (!rc && w.last->type != INODE_DIR)
		rc = exception_throw(n->x, EXC_NOT_DIR, "`%s': Is not a directory", w.path);
	if (rc < 0)
		return rc;
	rc = quota_get(n->t, w.last->id, &q);
	if (rc == -ENOENT) {
		rc = count_tree(n, w.last, &sum);
		rc = rc ? rc : tree_delete_forget_quota(n->t, w.last->id);
	}
	if (sum.inodes) {
		q.inodes = (uint64_t)sum.inodes;
		q.space = (uint64_t)sum.space;
	}
	if (max_inodes != QUOTA_KEEP)
		q.max_inodes = max_inodes;
	if (max_space != QUOTA_KEEP)
		q.max_space = max_space;
	if (!rc && q.max_inodes == QUOTA_NONE && q.max_space == QUOTA_NONE)
		rc = quota_del(n->t, w.last->id);
	else if (!rc)
		rc = quota_put(n->t, w.last->id, &q);
	return ns_io(n, rc);
}
