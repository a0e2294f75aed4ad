/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/blocks/storage_policy_satisfier.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/blocks/placement.h"
#include "namenode-shim/blocks/redundancy_monitor.h"
#include "namenode-shim/namespace/inode.h"
#include "namenode-shim/namespace/storage_policy.h"
#include "namenode-shim/namespace/xattr.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"

/* One satisfyStoragePolicy. */
struct satisfier_ask {
	struct list link; /* in satisfy.done */
	uint64_t inode;
	uint32_t items;    /* that stand in line for it */
	UT_hash_handle hh; /* in satisfy.asked */
};

struct satisfier_item {
	struct list link;
	struct satisfier_ask *ask; /* borrowed: what it stands in line for */
	uint64_t inode;
	uint32_t looks; /* in vain */
	uint64_t orders;
	/* owned; of a directory that is gone through: the last name, not terminated */
	char *after;
	size_t after_len;
	UT_hash_handle hh; /* in satisfy.table */
};

void satisfier_init(struct satisfier *s)
{
	list_init(&s->files);
	list_init(&s->dirs);
	list_init(&s->done);
}

static void leave_ask(struct satisfier *s, struct satisfier_item *i)
{
	if (--i->ask->items)
		return;
	HASH_DEL(s->asked, i->ask);
	list_add_tail(&s->done, &i->ask->link);
}

static void item_free(struct satisfier *s, struct satisfier_item *i)
{
	leave_ask(s, i);
	s->n--;
	HASH_DEL(s->table, i);
	free(i->after);
	free(i);
}

void satisfier_fini(struct satisfier *s)
{
	struct list *l;

	while (s->n && (l = list_pop(list_empty(&s->files) ? &s->dirs : &s->files)))
		item_free(s, container_of(l, struct satisfier_item, link));
	while ((l = list_pop(&s->done)))
		free(container_of(l, struct satisfier_ask, link));
}

/* Asked for again: all of it is looked at once more. */
static void begin_anew(struct satisfier_item *i)
{
	free(i->after);
	i->after = NULL;
	i->after_len = 0;
	i->looks = 0;
}

/* What is in line already only begins anew. It stays with the request that it is in line for, whose
 * mark is on the disk as long as anything is in line for it. */
static struct satisfier_item *add(struct satisfier *s, uint64_t inode, struct satisfier_ask *ask)
{
	struct satisfier_item *i;

	HASH_FIND(hh, s->table, &inode, sizeof(inode), i);
	if (i) {
		begin_anew(i);
		return i;
	}
	i = xcalloc(1, sizeof(*i));
	i->inode = inode;
	i->ask = ask;
	ask->items++;
	s->n++;
	HASH_ADD(hh, s->table, inode, sizeof(i->inode), i);
	list_add_tail(&s->files, &i->link); /* if it is a directory the first look finds that */
	return i;
}

static struct satisfier_ask *find_ask(const struct satisfier *s, uint64_t inode)
{
	struct satisfier_ask *ask;

	HASH_FIND(hh, s->asked, &inode, sizeof(inode), ask);
	return ask;
}

void satisfier_add(struct satisfier *s, uint64_t inode)
{
	struct satisfier_ask *ask = find_ask(s, inode);
	struct satisfier_item *i;

	if (!ask) {
		ask = xcalloc(1, sizeof(*ask));
		ask->inode = inode;
		list_init(&ask->link);
		HASH_ADD(hh, s->asked, inode, sizeof(ask->inode), ask);
	}
	i = add(s, inode, ask);
	if (i->ask == ask)
		return;
	ask->items++; /* it stood there for a directory above it */
	leave_ask(s, i);
	i->ask = ask;
}

/* ---- marks ---- */

static int run_satisfied(struct req *q, const void *in)
{
	struct inode *n;
	bool marked;
	int rc;

	(void)in;
	if (find_ask(&q->nn->satisfy, q->arg) || nn_satisfied_in_batch(q->nn, q, q->arg))
		return 0; /* asked for again */
	rc = inode_get_tail(q->ns.t, q->arg, &q->mem, &n);
	if (rc == -ENOENT)
		return 0;
	rc = rc ? rc : xattrs_mark(q->ns.t, n, &q->mem, false, &marked);
	return ns_io(&q->ns, rc || !marked ? rc : inode_put(q->ns.t, n));
}

const struct method satisfied_method = {.name = "satisfyStoragePolicy (internal)",
					.kind = REQ_CHANGE,
					.flags = REQ_SAFE_OK,
					.run = run_satisfied};

/* A mark that stays as its change fails is found by the next start. */
static void take_marks_away(struct nn *nn)
{
	struct list *l;

	while ((l = list_pop(&nn->satisfy.done))) {
		struct satisfier_ask *ask = container_of(l, struct satisfier_ask, link);
		struct req *q = req_new(nn, &satisfied_method, NULL);

		q->arg = ask->inode;
		nn_submit(nn, q);
		free(ask);
	}
}

/* ---- one block ---- */

static bool is_movable(const struct replica *r)
{
	return r->state == REPLICA_FINALIZED && !r->corrupt && !r->excess &&
	       storage_is_there(r->st) && r->st->dn->admin == DN_NORMAL;
}

/* How many replicas more there are of a type than wanted; 0: none. */
static void count_surplus(const struct blk *b, const struct storage_policy *p,
			  int surplus[STORAGE_TYPES])
{
	uint16_t want[STORAGE_TYPES];

	storage_policy_types_wanted(p, b->repl, want);
	for (uint32_t i = 0; i < STORAGE_TYPES; i++)
		surplus[i] = -(int)want[i];
	for (uint16_t i = 0; i < b->nreps; i++)
		surplus[b->rep[i].st->type % STORAGE_TYPES] += is_movable(&b->rep[i]);
}

static bool has_in_rack(const struct blk *b, const char *rack, const struct replica *but)
{
	for (uint16_t i = 0; i < b->nreps; i++)
		if (&b->rep[i] != but && is_movable(&b->rep[i]) &&
		    !strcmp(b->rep[i].st->dn->rack, rack))
			return true;
	return false;
}

/* The only one in its rack stays when the copy's rack has others (blocks.c, pick_hinted()): another
 * would go in its place. */
static bool may_leave(const struct blk *b, const struct replica *r, const struct storage *target)
{
	const char *rack = r->st->dn->rack;

	return !strcmp(rack, target->dn->rack) || has_in_rack(b, rack, r) ||
	       !has_in_rack(b, target->dn->rack, r);
}

/* So many orders to copy wait for @dn. A node that has fallen silent would not begin another one.
 */
static uint32_t waiting_for(const struct dn *dn)
{
	return dn->stale ? UINT32_MAX - 1 : list_length(&dn->transfers);
}

/* It is on a type that has too many, and fewer than @line orders to copy wait for its node. */
static bool is_leaving(const struct replica *r, const int surplus[STORAGE_TYPES], uint32_t line)
{
	return is_movable(r) && surplus[r->st->type % STORAGE_TYPES] > 0 &&
	       waiting_for(r->st->dn) < line;
}

static bool any_is_leaving(const struct blk *b, const int surplus[STORAGE_TYPES], uint32_t line)
{
	for (uint16_t i = 0; i < b->nreps; i++)
		if (is_leaving(&b->rep[i], surplus, line))
			return true;
	return false;
}

/* Which replica goes when @target has a copy: rather one of its rack, which leaves them in as many;
 * NULL: none may. */
static const struct replica *pick_leaving(const struct blk *b, const int surplus[STORAGE_TYPES],
					  const struct storage *target, uint32_t line)
{
	const struct replica *pick = NULL;

	for (uint16_t i = 0; i < b->nreps; i++) {
		const struct replica *r = &b->rep[i];

		if (is_leaving(r, surplus, line) && may_leave(b, r, target) &&
		    (!pick || !strcmp(r->st->dn->rack, target->dn->rack)))
			pick = r;
	}
	return pick;
}

/* Of the blocks of a file the last of these counts. */
enum outcome {
	SATISFIED,
	IN_VAIN,
	BUSY, /* enough copies wait for the nodes that have it */
	ON_ITS_WAY,
};

/* What one look may still do. */
struct look {
	uint32_t files, blocks, places;
	uint64_t orders; /* that it made for this file */
};

static enum outcome order_move(struct nn *nn, struct blk *b, const struct storage_policy *policy,
			       const int surplus[STORAGE_TYPES], uint64_t now)
{
	struct place p = {.want = 1,
			  .block_size = b->b.len,
			  .copy = true,
			  .policy = policy,
			  .no_fallback = true};
	const struct replica *from;
	struct storage *target;
	uint32_t found;

	place_beside(&p, b);
	found = place_choose(&nn->dns, &p, &target);
	place_free(&p);
	if (!found)
		return IN_VAIN;
	from = pick_leaving(b, surplus, target, nn->set.work.streams);
	if (!from) { /* of another rack, the next time */
		storage_unpromise(target, b->b.len, now);
		return pick_leaving(b, surplus, target, UINT32_MAX) ? BUSY : IN_VAIN;
	}
	log_info("op=satisfy block=%lld policy=%s from=%s to=%s type=%s", (long long)b->b.id,
		 policy->name, from->st->dn->uuid, target->dn->uuid,
		 storage_type_name(target->type));
	dn_order_transfer(from->st->dn, &b->b, target);
	blk_add_move(&nn->blocks, b, target, now + nn->blocks.pending_timeout_ns, from->st->dn);
	return ON_ITS_WAY;
}

static enum outcome satisfier_block(struct nn *nn, struct blk *b,
				    const struct storage_policy *policy, struct look *l,
				    uint64_t now)
{
	int surplus[STORAGE_TYPES];
	enum outcome r;
	bool any = false;

	count_surplus(b, policy, surplus);
	for (uint32_t i = 0; i < STORAGE_TYPES; i++)
		any |= surplus[i] > 0;
	if (!any)
		return SATISFIED;
	if (b->npending)
		return ON_ITS_WAY;
	/* the monitor's first, and it may never have as many nodes as are wanted */
	if (b->flags & (BLK_UNDER | BLK_SURPLUS))
		return IN_VAIN;
	if (!any_is_leaving(b, surplus, nn->set.work.streams))
		return BUSY;
	l->places--;
	r = order_move(nn, b, policy, surplus, now);
	l->orders += r == ON_ITS_WAY;
	return r;
}

/* ---- the line ---- */

/* Takes the lock, and gives it back after each slice. */
static enum outcome satisfier_file(struct nn *nn, const struct inode *n,
				   const struct storage_policy *policy, struct look *l,
				   uint64_t now)
{
	enum outcome all = SATISFIED;

	nn_lock(nn);
	for (uint32_t i = 0; i < n->nblocks && !n->ec; i++) {
		struct blk *b = blocks_find(&nn->blocks, n->blocks[i].b.id);
		enum outcome one;

		if (nn_slice_is_over(nn)) {
			nn_unlock(nn);
			nn_lock(nn);
		}
		if (!b || b->state != BLK_COMPLETE)
			continue; /* open: its next blocks go where they are wanted */
		if (!l->places) {
			all = all == SATISFIED ? BUSY : all;
			break;
		}
		one = satisfier_block(nn, b, policy, l, now);
		all = one > all ? one : all;
	}
	nn_unlock(nn);
	return all;
}

struct expansion {
	struct satisfier *s;
	struct satisfier_item *dir;
	uint32_t left;
};

static int add_entry(void *arg, const char *name, size_t len, uint64_t id)
{
	struct expansion *e = arg;

	/* also beside SATISFY_MAX: only so many at a time, when few files are in line */
	(void)add(e->s, id, e->dir->ask);
	e->dir->after = xrealloc(e->dir->after, len + 1);
	memcpy(e->dir->after, name, len);
	e->dir->after_len = len;
	return --e->left ? 0 : 1;
}

/* The line is short: some more of the last directory. */
static void expand(struct nn *nn)
{
	struct satisfier *s = &nn->satisfy;
	struct satisfier_item *dir = container_of(s->dirs.prev, struct satisfier_item, link);
	struct expansion e = {s, dir, SATISFY_ENTRIES};
	const int rc = dirent_each(&nn->look, dir->inode, dir->after ? dir->after : "",
				   dir->after_len, add_entry, &e);

	if (rc == 1)
		return;
	list_del(&dir->link);
	if (rc < 0) {
		monitor_log_unread(nn, "satisfy", dir->inode, rc);
		list_add(&s->dirs, &dir->link); /* the others come before it */
		return;
	}
	s->ndirs--;
	item_free(s, dir);
}

/* Nothing can be done, or what was done was of no use. */
static bool is_given_up(const struct satisfier_item *i, const struct inode *n)
{
	const char *why;

	if (i->looks == SATISFY_LOOKS)
		why = "the file stays under-replicated, or no node that may take a replica has room on a "
		      "storage type that the policy wants";
	else if (i->orders > (uint64_t)SATISFY_COPIES * n->nblocks * n->repl)
		why = "copies were made, and the policy is still not met";
	else
		return false;
	log_warn("op=satisfy inode=%llu: its replicas are moved no further: %s",
		 (unsigned long long)i->inode, why);
	return true;
}

static void look_at(struct nn *nn, struct satisfier_item *i, struct look *l, uint64_t now)
{
	struct satisfier *s = &nn->satisfy;
	struct arena a = {0};
	enum outcome r = SATISFIED;
	struct inode *n;
	/* before the lock: it may have to be read from the disk */
	const int rc = inode_get(&nn->look, i->inode, &a, &n);

	if (rc && rc != -ENOENT) {
		monitor_log_unread(nn, "satisfy", i->inode, rc);
		list_add_tail(&s->files, &i->link);
		arena_free(&a);
		return;
	}
	if (!rc && n->type == INODE_DIR) {
		list_add_tail(&s->dirs, &i->link);
		s->ndirs++;
		arena_free(&a);
		return;
	}
	if (!rc && n->type == INODE_FILE) {
		l->orders = 0;
		l->blocks -= n->nblocks < l->blocks ? n->nblocks : l->blocks;
		r = satisfier_file(nn, n, storage_policy_of_file(&nn->look, n, &a), l, now);
		i->orders += l->orders;
	}
	if (r != BUSY)
		i->looks = r == IN_VAIN ? i->looks + 1 : 0;
	if (r == SATISFIED || is_given_up(i, n))
		item_free(s, i);
	else
		list_add_tail(&s->files, &i->link);
	arena_free(&a);
}

void satisfier_look(struct nn *nn, uint64_t now)
{
	struct satisfier *s = &nn->satisfy;
	struct look l = {SATISFY_FILES, SATISFY_BLOCKS, SATISFY_PLACES, 0};
	const uint64_t began = clock_mono_ns();

	if (!s->n || txn_read_begin(&nn->look))
		return;
	if (s->ndirs && s->n - s->ndirs < SATISFY_FILES)
		expand(nn);
	if (s->n - s->ndirs < l.files)
		l.files = s->n - s->ndirs;
	while (l.files-- && l.blocks && l.places && clock_mono_ns() - began < SATISFY_NS)
		look_at(nn, container_of(list_pop(&s->files), struct satisfier_item, link), &l,
			now);
	txn_read_end(&nn->look);
	take_marks_away(nn);
}
