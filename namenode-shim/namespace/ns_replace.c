/* SPDX-License-Identifier: Apache-2.0 */
/* A file gets new blocks in some places and keeps the others: what a rewrite and a rename over it
 * would do, without the bytes that did not change. */
#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/ns_internal.h"
#include "namenode-shim/namespace/quota.h"
#include "namenode-shim/namespace/xattr.h"

/* Both, and whether the caller may. Rights come before anything is said about what is there. */
static int find_both(struct ns *n, const struct ns_replace *r, struct ns_path *to,
		     struct ns_path *part)
{
	int rc = ns_resolve_change(n, r->path, to);

	if (!rc && to->last)
		rc = ns_check(n, to->last, ACCESS_W, to->path);
	rc = rc ? rc : ns_resolve_change(n, r->part, part);
	rc = rc ? rc : ns_check_remove(n, part);
	if (!rc && part->last)
		rc = ns_check_owner(n, part);
	rc = rc ? rc : ns_found(n, to, "File does not exist: ", "");
	rc = rc ? rc : ns_found(n, part, "File does not exist: ", "");
	if (!rc && to->last->type != INODE_FILE)
		rc = exception_throw(n->x, EXC_ILLEGAL_ARGUMENT, "Path is not a file: %s",
				     to->path);
	if (!rc && part->last->type != INODE_FILE)
		rc = exception_throw(n->x, EXC_ILLEGAL_ARGUMENT, "Path is not a file: %s",
				     part->path);
	return rc;
}

/* Is the file still what the caller has seen? */
static int check_same(struct ns *n, const struct ns_replace *r, const struct ns_path *to)
{
	const struct inode *f = to->last;
	const struct block *last = f->nblocks ? &f->blocks[f->nblocks - 1].b : NULL;

	if (inode_is_open(f))
		return exception_throw(n->x, EXC_BEING_CREATED,
				       "replaceBlocks: %s is being written by %s", to->path,
				       f->client);
	if (f->id == r->id && inode_len(f) == r->length &&
	    (last ? last->id == r->last.id && last->gs == r->last.gs : !r->last.id))
		return 0;
	return exception_throw(n->x, EXC_LEASE_EXPIRED,
			       "replaceBlocks: %s was changed or replaced meanwhile", to->path);
}

static int check_pair(struct ns *n, const struct ns_path *to, const struct ns_path *part)
{
	const struct inode *f = to->last, *p = part->last;

	if (f->id == p->id)
		return exception_throw(n->x, EXC_ILLEGAL_ARGUMENT,
				       "replaceBlocks: %s is named twice", to->path);
	if (f->parent != p->parent)
		return exception_throw(n->x, EXC_ILLEGAL_ARGUMENT,
				       "replaceBlocks: %s is not in the directory of %s",
				       part->path, to->path);
	if (inode_is_open(p))
		return exception_throw(n->x, EXC_ILLEGAL_ARGUMENT,
				       "replaceBlocks: %s is still being written", part->path);
	if (f->ec || p->ec)
		return exception_throw(n->x, EXC_UNSUPPORTED, "replaceBlocks: %s is erasure-coded",
				       f->ec ? to->path : part->path);
	if (f->block_size != p->block_size || f->repl != p->repl)
		return exception_throw(
			n->x, EXC_ILLEGAL_ARGUMENT,
			"replaceBlocks: %s has another block size or replication than %s",
			part->path, to->path);
	return 0;
}

/* Is all but the last one of @b full, so that a block's place tells where its bytes are? */
static bool are_full(const struct inode_block *b, uint32_t count, uint64_t size)
{
	for (uint32_t i = 0; i + 1 < count; i++)
		if (b[i].b.len != size)
			return false;
	return !count || (b[count - 1].b.len && b[count - 1].b.len <= size);
}

/* What the file is to consist of; *ret_kept says for each of its old blocks whether it stays. */
static int compose(struct ns *n, const struct ns_replace *r, const struct ns_path *to,
		   const struct inode *p, struct inode_block **ret, bool **ret_kept)
{
	const struct inode *f = to->last;
	struct inode_block *b;
	uint32_t next = 0;
	bool *kept, fits = r->nat == p->nblocks && r->count <= f->nblocks + p->nblocks;

	b = arena_array(n->a, struct inode_block, fits ? r->count + 1u : 1u);
	kept = arena_array(n->a, bool, f->nblocks + 1u);
	for (uint32_t i = 0; i < r->count && fits; i++) {
		if (next < r->nat && r->at[next] == i) {
			b[i] = p->blocks[next++];
		} else if (i < f->nblocks) {
			b[i] = f->blocks[i];
			kept[i] = true;
		} else {
			fits = false;
		}
	}
	if (!fits || next < r->nat)
		return exception_throw(
			n->x, EXC_ILLEGAL_ARGUMENT,
			"replaceBlocks: %u blocks at %u places do not make %u blocks of %s, which has %u",
			p->nblocks, r->nat, r->count, to->path, f->nblocks);
	if (!are_full(f->blocks, f->nblocks, f->block_size) ||
	    !are_full(b, r->count, f->block_size))
		return exception_throw(
			n->x, EXC_UNSUPPORTED,
			"replaceBlocks: %s has, or would have, a block within it that is not full",
			to->path);
	*ret = b;
	*ret_kept = kept;
	return 0;
}

/* @f goes, @p has its name, its attributes and @b. */
static int put_in_place(struct ns *n, struct inode *up, const struct inode *f,
			const struct inode *p, struct inode_block *b, uint32_t count)
{
	struct inode *now = arena_new(n->a, struct inode);
	bool marked;
	int64_t more;
	int rc;

	*now = *f;
	now->id = p->id;
	now->listed = p->listed;
	now->rows = 0; /* those of @p go with it */
	now->blocks = b;
	now->nblocks = count;
	now->mtime = n->now_ms;
	more = (int64_t)inode_space(now) - (int64_t)inode_space(f) - (int64_t)inode_space(p);
	rc = quota_charge(n, up->id, -1, more); /* never more than there was: no limit is asked */
	rc = rc ? rc : detach(n, up, p);
	rc = rc ? rc : inode_del(n->t, p);
	rc = rc ? rc : inode_copy_rows(n->t, f->id, now->id, n->a);
	/* it stands in no line of storage_policy_satisfier.h */
	rc = rc ? rc : xattrs_mark(n->t, now, n->a, false, &marked);
	rc = rc ? rc : detach(n, up, f);
	rc = rc ? rc : inode_del(n->t, f);
	rc = rc ? rc : attach(n, up, now);
	rc = rc ? rc : inode_put(n->t, up);
	count_inodes(n, -1);
	return ns_io(n, rc);
}

int ns_replace_blocks(struct ns *n, const struct ns_replace *r)
{
	struct inode_block *b = NULL;
	struct ns_path to, part;
	bool *kept = NULL;
	int rc = find_both(n, r, &to, &part);

	rc = rc ? rc : check_same(n, r, &to);
	rc = rc ? rc : check_pair(n, &to, &part);
	rc = rc ? rc : compose(n, r, &to, part.last, &b, &kept);
	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < to.last->nblocks; i++) {
		struct effect *e = ns_effect(n, kept[i] ? EFFECT_BLOCK_OWNER : EFFECT_BLOCK_REMOVE);

		e->b = to.last->blocks[i].b;
		e->inode = part.last->id;
		e->repl = to.last->repl;
	}
	return put_in_place(n, ns_path_parent(&to), to.last, part.last, b, r->count);
}
