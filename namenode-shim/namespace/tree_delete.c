/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/namespace/tree_delete.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cursor.h"
#include "common/base/log.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/ns_internal.h"
#include "namenode-shim/namespace/quota.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"

/* ---- records ---- */

static int ids_of(MDB_val v, struct dir_list *ret)
{
	struct rd r = rd_init(v.mv_data, v.mv_size);

	ret->count = 0;
	while (rd_left(&r) && !r.bad)
		dir_push(ret, rd_be64(&r));
	return r.bad ? -EBADMSG : 0;
}

static int put(struct txn *t, uint64_t top, const struct dir_list *quotas)
{
	const uint64_t key = htobe64(top);
	struct wr w;
	void *to;
	int rc = txn_reserve(t, t->db->doomed, &key, sizeof(key), quotas->count * sizeof(key), &to);

	if (rc < 0)
		return rc;
	w = wr_init(to, quotas->count * sizeof(key));
	for (size_t i = 0; i < quotas->count; i++)
		wr_be64(&w, quotas->id[i]);
	return 0;
}

/* The first one after @after. -ENOENT: there is none. */
static int next(struct txn *t, uint64_t after, uint64_t *ret_top, struct dir_list *ret_quotas)
{
	uint64_t from = htobe64(after + 1);
	MDB_val k = {sizeof(from), &from}, v;
	MDB_cursor *c;
	struct rd r;
	int rc = db_rc(mdb_cursor_open(t->t, t->db->doomed, &c));

	if (rc < 0)
		return rc;
	rc = db_rc(mdb_cursor_get(c, &k, &v, MDB_SET_RANGE));
	if (!rc) {
		r = rd_init(k.mv_data, k.mv_size);
		*ret_top = rd_be64(&r);
		*ret_top = r.bad ? 0 : *ret_top;
		rc = r.bad ? -EBADMSG : ids_of(v, ret_quotas);
	}
	mdb_cursor_close(c);
	return rc;
}

bool tree_delete_any(struct txn *t)
{
	MDB_stat st;

	return !mdb_stat(t->t, t->db->doomed, &st) && st.ms_entries;
}

/* ---- adding ---- */

static int quotas_above(struct ns *n, const struct inode *dir, struct dir_list *l)
{
	struct inode *up;
	struct quota q;

	if (!quota_any(n->t))
		return 0;
	for (;;) {
		int rc = quota_get(n->t, dir->id, &q);

		if (!rc)
			dir_push(l, dir->id);
		if (dir->id == INODE_ROOT)
			return 0;
		rc = rc && rc != -ENOENT ? rc : inode_get(n->t, dir->parent, n->a, &up);
		if (rc < 0)
			return rc;
		dir = up;
	}
}

int tree_delete_add(struct ns *n, const struct inode *up, struct inode *top)
{
	struct dir_list quotas = {.n = n};
	int rc = quotas_above(n, up, &quotas);
	struct effect *e;

	top->parent = INODE_NOWHERE;
	rc = rc ? rc : inode_put(n->t, top);
	rc = rc ? rc : put(n->t, top->id, &quotas);
	if (!rc) {
		e = ns_effect(n, EFFECT_TREE_DELETE);
		e->inode = top->id;
		e->delta = quotas.count > 0;
	}
	free(quotas.id);
	return rc;
}

int tree_delete_charge(struct txn *t, uint64_t top, int64_t inodes, int64_t space)
{
	const uint64_t key = htobe64(top);
	struct dir_list quotas = {0};
	MDB_val v;
	int rc = txn_get(t, t->db->doomed, &key, sizeof(key), &v);

	rc = rc ? rc : ids_of(v, &quotas);
	for (size_t i = 0; i < quotas.count && !rc; i++)
		rc = quota_release(t, quotas.id[i], -inodes, -space);
	free(quotas.id);
	return rc;
}

int tree_delete_forget_quota(struct txn *t, uint64_t dir)
{
	struct dir_list quotas = {0};
	uint64_t top = 0;
	int rc = 0;

	while (!rc && !(rc = next(t, top, &top, &quotas))) {
		size_t kept = 0;

		for (size_t i = 0; i < quotas.count; i++)
			if (quotas.id[i] != dir)
				quotas.id[kept++] = quotas.id[i];
		if (kept == quotas.count)
			continue;
		quotas.count = kept;
		rc = put(t, top, &quotas);
	}
	free(quotas.id);
	return rc == -ENOENT ? 0 : rc;
}

/* ---- a slice ---- */

struct slice {
	struct ns *n;
	uint32_t left; /* names and blocks */
	struct quota_sum sum;
	int64_t dropped;
};

static int take_first(void *arg, const char *name, size_t len, uint64_t id)
{
	(void)name;
	(void)len;
	*(uint64_t *)arg = id;
	return 1;
}

/* *ret 0: there is none. */
static int first_child(struct txn *t, uint64_t dir, uint64_t *ret)
{
	int rc = (*ret = 0, dirent_each(t, dir, NULL, 0, take_first, ret));

	return rc < 0 ? rc : 0;
}

static int drop(struct slice *s, struct inode *node)
{
	struct ns *n = s->n;
	int rc = node->parent == INODE_NOWHERE ? 0 : dirent_del(n->t, node->parent, node->name);

	s->left -= s->left < 1 + node->nblocks ? s->left : 1 + node->nblocks;
	s->dropped++;
	s->sum.inodes++;
	s->sum.space += (int64_t)inode_space(node);
	rc = rc ? rc : inode_del(n->t, node);
	node->client = arena_strdup(n->a, node->client); /* effects outlive scratch */
	if (node->type == INODE_FILE)
		forget_file(n, node);
	return rc;
}

/* The first child of the last directory of @way goes, or is the next directory; without children it
 * is done. */
static int step(struct slice *s, struct dir_list *way, struct arena *scratch)
{
	struct txn *t = s->n->t;
	uint64_t child, below = 0;
	struct inode *node;
	int rc = first_child(t, way->id[way->count - 1], &child);

	if (rc < 0 || !child)
		return rc ? rc : (way->count--, 0);
	rc = inode_get(t, child, scratch, &node);
	if (!rc && node->type == INODE_DIR)
		rc = first_child(t, child, &below);
	if (rc < 0)
		return rc;
	if (!below)
		return drop(s, node);
	dir_push(way, child);
	return 0;
}

static int drop_some(struct slice *s, uint64_t top, bool *ret_done)
{
	struct dir_list way = {.n = s->n};
	struct inode *node;
	int rc = 0;

	dir_push(&way, top);
	while (way.count && s->left && !rc) {
		struct arena scratch = {0};

		rc = step(s, &way, &scratch);
		arena_free(&scratch);
	}
	*ret_done = !rc && !way.count;
	free(way.id);
	if (!*ret_done)
		return rc;
	rc = inode_get(s->n->t, top, s->n->a, &node);
	return rc ? rc : drop(s, node);
}

void tree_delete_leave(struct tree_delete_broken *b, uint64_t top)
{
	b->top = xrealloc(b->top, (b->n + 1) * sizeof(*b->top));
	b->top[b->n++] = top;
}

void tree_delete_fini(struct tree_delete_broken *b)
{
	free(b->top);
	*b = (struct tree_delete_broken){0};
}

static bool is_broken(const struct tree_delete_broken *b, uint64_t top)
{
	for (size_t i = 0; i < b->n; i++)
		if (b->top[i] == top)
			return true;
	return false;
}

/* The first one after @after that can be read, as far as is known.
 * -ENOENT, and *ret_top 0: there is none. */
static int next_good(struct req *q, uint64_t after, uint64_t *ret_top, struct dir_list *ret_quotas)
{
	int rc;

	*ret_top = after;
	do
		rc = next(q->ns.t, *ret_top, ret_top, ret_quotas);
	while ((!rc || rc == -EBADMSG) && is_broken(&q->nn->tree_delete_broken, *ret_top));
	*ret_top = rc == -ENOENT ? 0 : *ret_top;
	return rc;
}

/* Trees take turns, so that a small one does not wait for the end of a large one. */
static int next_turn(struct req *q, uint64_t *ret_top, struct dir_list *ret_quotas)
{
	int rc = next_good(q, q->nn->tree_delete_turn, ret_top, ret_quotas);

	return rc == -ENOENT && q->nn->tree_delete_turn ? next_good(q, 0, ret_top, ret_quotas) : rc;
}

static void leave_broken(struct ns *n, uint64_t top, int why)
{
	log_error(
		"op=delete inode=%llu rc=%s: the rest of this deleted tree cannot be read and stays; %s",
		(unsigned long long)top, err_name(why), DB_RESTORE);
	ns_effect(n, EFFECT_TREE_DELETE_BROKEN)->inode = top;
}

static int end(struct slice *s, uint64_t top, const struct dir_list *quotas, bool done, bool go_on)
{
	const uint64_t key = htobe64(top);
	struct ns *n = s->n;
	struct effect *e;
	int rc = 0;

	for (size_t i = 0; i < quotas->count && !rc; i++)
		rc = quota_release(n->t, quotas->id[i], s->sum.inodes, s->sum.space);
	if (!rc && done)
		rc = txn_del(n->t, n->t->db->doomed, &key, sizeof(key));
	count_inodes(n, -s->dropped);
	e = ns_effect(n, EFFECT_TREE_DELETE_SLICE);
	e->inode = done ? top : 0;
	e->turn = top;
	e->delta = go_on && (!done || tree_delete_any(n->t));
	return rc;
}

static int run(struct req *q, const void *in)
{
	struct slice s = {.n = &q->ns, .left = TREE_DELETE_SLICE};
	struct dir_list quotas = {.n = &q->ns};
	bool done = false;
	uint64_t top = 0;
	int rc = next_turn(q, &top, &quotas), broken = 0;

	(void)in;
	if (!rc)
		broken = drop_some(&s, top, &done);
	else if (rc == -EBADMSG && top)
		broken = rc;
	if (broken && q->ns.t->failed) { /* not the tree: the batch is run again */
		rc = broken;
	} else if (broken) { /* what was dropped counts; the rest waits for a start */
		leave_broken(&q->ns, top, broken);
		rc = 0;
	}
	rc = rc == -ENOENT && !broken ? 0 : rc;
	rc = rc ? rc : end(&s, top, &quotas, done && !broken, top != 0);
	free(quotas.id);
	return ns_io(&q->ns, rc);
}

const struct method tree_delete_method = {
	.name = "delete (internal)", .kind = REQ_CHANGE, .run = run};
