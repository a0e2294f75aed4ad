/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/requests/inode.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"

#define BUCKETS_FIRST 1024
#define ALIAS_FIRST (1ull << 62) /* far above HDFS ids */

enum chain { BY_INO, BY_ID, BY_FORMER, BY_NAME };

static uint64_t mix(uint64_t x)
{
	x ^= x >> 31;
	x *= 0x9e3779b97f4a7c15ull;
	return x ^ x >> 29;
}

static uint64_t hash_name(uint64_t parent, const char *name)
{
	uint64_t h = mix(parent) | 1;

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 0x100000001b3ull;
	return mix(h);
}

static size_t name_slot(const struct inodes *t, uint64_t parent, const char *name)
{
	return hash_name(parent, name) & t->mask;
}

static uint64_t key_of(const struct inode *in, enum chain c)
{
	return c == BY_INO ? in->ino : c == BY_ID ? in->id : in->former;
}

static size_t slot_of(const struct inodes *t, const struct inode *in, enum chain c)
{
	if (c == BY_NAME)
		return name_slot(t, in->parent, in->name);
	return mix(key_of(in, c)) & t->mask;
}

static void chain_add(struct inodes *t, struct inode *in, enum chain c)
{
	struct inode **b = &t->bucket[c][slot_of(t, in, c)];

	in->next[c] = *b;
	*b = in;
}

static void chain_del(struct inodes *t, struct inode *in, enum chain c)
{
	struct inode **p = &t->bucket[c][slot_of(t, in, c)];

	while (*p && *p != in)
		p = &(*p)->next[c];
	assert(*p);
	*p = in->next[c];
}

/* Twice the buckets. Without memory the chains just grow longer. */
static void grow_locked(struct inodes *t)
{
	const size_t size = 2 * (t->mask + 1);
	struct inode **old[INODE_CHAINS], **fresh[INODE_CHAINS] = {NULL};
	bool have_all = true;
	const size_t old_size = t->mask + 1;

	for (int c = 0; c < INODE_CHAINS; c++) {
		fresh[c] = calloc(size, sizeof(*fresh[c]));
		have_all = have_all && fresh[c];
	}
	if (!have_all) {
		for (int c = 0; c < INODE_CHAINS; c++)
			free(fresh[c]);
		return;
	}
	memcpy(old, t->bucket, sizeof(old));
	memcpy(t->bucket, fresh, sizeof(fresh));
	t->mask = size - 1;
	for (enum chain c = BY_INO; c <= BY_NAME; c++) {
		for (size_t i = 0; i < old_size; i++) {
			for (struct inode *in = old[c][i], *next; in; in = next) {
				next = in->next[c];
				chain_add(t, in, c);
			}
		}
		free(old[c]);
	}
}

int inodes_init(struct inodes *t)
{
	int rc = 0;

	*t = (struct inodes){.mask = BUCKETS_FIRST - 1};
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->left, NULL);
	for (int c = 0; c < INODE_CHAINS; c++) {
		t->bucket[c] = calloc(BUCKETS_FIRST, sizeof(*t->bucket[c]));
		rc = t->bucket[c] ? rc : -ENOMEM;
	}
	return rc;
}

static void free_inode(struct inode *in)
{
	pthread_mutex_destroy(&in->content);
	pthread_mutex_destroy(&in->naming);
	free(in->name);
	free(in->doubt);
	free(in);
}

void inodes_fini(struct inodes *t)
{
	for (size_t i = 0; t->bucket[BY_INO] && i <= t->mask; i++) {
		for (struct inode *in = t->bucket[BY_INO][i], *next; in; in = next) {
			next = in->next[BY_INO];
			free_inode(in);
		}
	}
	for (int c = 0; c < INODE_CHAINS; c++)
		free(t->bucket[c]);
	pthread_cond_destroy(&t->left);
	pthread_mutex_destroy(&t->lock);
}

static struct inode *find_locked(struct inodes *t, enum chain c, uint64_t key)
{
	struct inode *in = t->bucket[c][mix(key) & t->mask];

	while (in && key_of(in, c) != key)
		in = in->next[c];
	return in;
}

static struct inode *find_named_locked(struct inodes *t, uint64_t parent, const char *name)
{
	struct inode *in = t->bucket[BY_NAME][name_slot(t, parent, name)];

	while (in && (in->parent != parent || strcmp(in->name, name) != 0))
		in = in->next[BY_NAME];
	return in;
}

struct inode *inode_get(struct inodes *t, uint64_t ino)
{
	struct inode *in;

	pthread_mutex_lock(&t->lock);
	in = find_locked(t, BY_INO, ino);
	if (in)
		in->refs++;
	pthread_mutex_unlock(&t->lock);
	return in;
}

struct inode *inode_get_named(struct inodes *t, uint64_t parent, const char *name)
{
	struct inode *in;

	pthread_mutex_lock(&t->lock);
	in = find_named_locked(t, parent, name);
	if (in)
		in->refs++;
	pthread_mutex_unlock(&t->lock);
	return in;
}

static void drop_name_locked(struct inodes *t, struct inode *in)
{
	if (!in->name)
		return;
	chain_del(t, in, BY_NAME);
	free(in->name);
	in->name = NULL;
	in->parent = 0;
}

static void set_name_locked(struct inodes *t, struct inode *in, uint64_t parent, const char *name)
{
	struct inode *other;
	char *copy;

	if (in->name && name && in->parent == parent && strcmp(in->name, name) == 0)
		return;
	copy = name ? strdup(name) : NULL;
	drop_name_locked(t, in);
	if (!copy)
		return;
	while ((other = find_named_locked(t, parent, name)))
		drop_name_locked(t, other); /* it was there before */
	in->parent = parent;
	in->name = copy;
	chain_add(t, in, BY_NAME);
}

static struct inode *new_locked(struct inodes *t, const struct dfs_stat *st, uint64_t ino)
{
	struct inode *in = calloc(1, sizeof(*in));

	if (!in)
		return NULL;
	in->id = st->file_id;
	in->ino = ino ? ino : st->file_id;
	in->is_dir = st->type == DFS_DIR;
	list_init(&in->stream);
	pthread_mutex_init(&in->content, NULL);
	pthread_mutex_init(&in->naming, NULL);
	if (t->count++ > 2 * t->mask)
		grow_locked(t);
	chain_add(t, in, BY_INO);
	chain_add(t, in, BY_ID);
	return in;
}

static struct inode *enter_locked(struct inodes *t, const struct dfs_stat *st, uint64_t ino,
				  uint64_t parent, const char *name, uint32_t lookups)
{
	struct inode *in = find_locked(t, BY_ID, st->file_id);

	if (!in) /* an answer from before its content was replaced, */
		in = find_locked(t, BY_FORMER, st->file_id);
	if (!in) /* or before the kernel was told its number, which is the first id */
		in = find_locked(t, BY_INO, st->file_id);
	if (in && in->retired) { /* its number is still in use */
		in = new_locked(t, st, ALIAS_FIRST + t->aliases++);
		if (in)
			in->alias = true;
	} else if (!in) {
		in = new_locked(t, st, ino);
	}
	if (in) {
		in->refs++;
		in->lookups += lookups;
		if (name && !in->hidden) {
			set_name_locked(t, in, parent, name);
			/* another client had moved it before we deleted its name */
			in->gone = false;
		}
	}
	return in;
}

struct inode *inode_enter(struct inodes *t, const struct dfs_stat *st, uint64_t ino,
			  uint64_t parent, const char *name, uint32_t lookups)
{
	struct inode *in;

	pthread_mutex_lock(&t->lock);
	in = enter_locked(t, st, ino, parent, name, lookups);
	pthread_mutex_unlock(&t->lock);
	return in;
}

static void name_went_locked(struct inodes *t, struct inode *dir, const char *name)
{
	const uint64_t now = clock_mono_ns();

	t->move[t->moves++ % INODE_MOVES_KEPT] =
		(struct name_move){dir->ino, hash_name(dir->ino, name), now};
	dir->moved_ns = dir->change_ns = now;
}

void inode_name_went(struct inodes *t, struct inode *dir, const char *name)
{
	pthread_mutex_lock(&t->lock);
	name_went_locked(t, dir, name);
	pthread_mutex_unlock(&t->lock);
}

/* Has @name in @dir gone since @asked_ns? Yes, where so many have gone that nobody knows. */
static bool has_gone_locked(const struct inodes *t, const struct inode *dir, const char *name,
			    uint64_t asked_ns)
{
	uint64_t hash;

	if (dir->moved_ns < asked_ns)
		return false;
	hash = hash_name(dir->ino, name);
	for (uint64_t i = 1; i <= INODE_MOVES_KEPT && i <= t->moves; i++) {
		const struct name_move *v = &t->move[(t->moves - i) % INODE_MOVES_KEPT];

		if (v->ns < asked_ns)
			return false;
		if (v->dir == dir->ino && v->name == hash)
			return true;
	}
	return t->moves > INODE_MOVES_KEPT;
}

struct inode *inode_enter_asked(struct inodes *t, const struct dfs_stat *st,
				const struct inode *dir, const char *name, uint64_t asked_ns,
				bool *ret_stale)
{
	struct inode *in = NULL;

	pthread_mutex_lock(&t->lock);
	*ret_stale = has_gone_locked(t, dir, name, asked_ns);
	if (!*ret_stale)
		in = enter_locked(t, st, 0, dir->ino, name, 1);
	pthread_mutex_unlock(&t->lock);
	return in;
}

static void drop_if_unused_locked(struct inodes *t, struct inode *in)
{
	if (in->refs > 0 || in->lookups > 0)
		return;
	assert(!in->w && !in->ov && in->opens == 0);
	drop_name_locked(t, in);
	chain_del(t, in, BY_INO);
	if (!in->retired)
		chain_del(t, in, BY_ID);
	if (in->former)
		chain_del(t, in, BY_FORMER);
	t->count--;
	free_inode(in);
}

void inode_retire(struct inodes *t, struct inode *in)
{
	pthread_mutex_lock(&t->lock);
	if (!in->retired) {
		drop_name_locked(t, in);
		chain_del(t, in, BY_ID);
		if (in->former)
			chain_del(t, in, BY_FORMER);
		in->former = 0;
		in->retired = in->gone = true;
	}
	pthread_mutex_unlock(&t->lock);
}

struct inode *inode_ref(struct inodes *t, struct inode *in)
{
	pthread_mutex_lock(&t->lock);
	in->refs++;
	pthread_mutex_unlock(&t->lock);
	return in;
}

void inode_put(struct inodes *t, struct inode *in)
{
	if (!in)
		return;
	pthread_mutex_lock(&t->lock);
	in->refs--;
	drop_if_unused_locked(t, in);
	pthread_mutex_unlock(&t->lock);
}

void inode_forget(struct inodes *t, uint64_t ino, uint64_t lookups)
{
	struct inode *in;

	pthread_mutex_lock(&t->lock);
	in = find_locked(t, BY_INO, ino);
	if (in) {
		in->lookups -= lookups < in->lookups ? lookups : in->lookups;
		drop_if_unused_locked(t, in);
	}
	pthread_mutex_unlock(&t->lock);
}

void inode_moved(struct inodes *t, struct inode *in, uint64_t parent, const char *name)
{
	pthread_mutex_lock(&t->lock);
	set_name_locked(t, in, parent, name);
	pthread_mutex_unlock(&t->lock);
}

void inode_new_id(struct inodes *t, struct inode *in, uint64_t id)
{
	struct inode *dir;

	pthread_mutex_lock(&t->lock);
	assert(!in->retired);
	chain_del(t, in, BY_ID);
	if (in->former)
		chain_del(t, in, BY_FORMER);
	in->former = in->id;
	in->id = id;
	chain_add(t, in, BY_ID);
	chain_add(t, in, BY_FORMER);
	/* An answer that was asked for before may have an id that is two contents old. */
	dir = in->name ? find_locked(t, BY_INO, in->parent) : NULL;
	if (dir)
		name_went_locked(t, dir, in->name);
	pthread_mutex_unlock(&t->lock);
}

uint64_t inode_id(struct inodes *t, const struct inode *in)
{
	uint64_t id;

	pthread_mutex_lock(&t->lock);
	id = in->id;
	pthread_mutex_unlock(&t->lock);
	return id;
}

void inode_left(struct inodes *t, struct inode *in)
{
	pthread_mutex_lock(&t->lock);
	if (--in->leaving == 0)
		pthread_cond_broadcast(&t->left);
	pthread_mutex_unlock(&t->lock);
}

void inode_each_child(struct inodes *t, uint64_t parent, void (*fn)(struct inode *in, void *arg),
		      void *arg)
{
	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i <= t->mask; i++)
		for (struct inode *in = t->bucket[BY_INO][i]; in; in = in->next[BY_INO])
			if (in->parent == parent && in->name)
				fn(in, arg);
	pthread_mutex_unlock(&t->lock);
}

struct inode *inode_find(struct inodes *t, bool (*pick)(const struct inode *in, const void *arg),
			 const void *arg)
{
	struct inode *found = NULL;

	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i <= t->mask && !found; i++)
		for (struct inode *in = t->bucket[BY_INO][i]; in && !found; in = in->next[BY_INO])
			if (pick(in, arg))
				found = in;
	if (found)
		found->refs++;
	pthread_mutex_unlock(&t->lock);
	return found;
}
