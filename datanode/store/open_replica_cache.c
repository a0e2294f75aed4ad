/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/store/open_replica_cache.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/err.h"

#define FILES_EACH 3
#define LIMIT_PART 4 /* of the open files that the system allows */

int open_replica_init(struct open_replica_cache *c, uint32_t max)
{
	struct rlimit lim;

	*c = (struct open_replica_cache){.max = max};
	list_init(&c->used);
	for (uint32_t i = 0; i < OPEN_REPLICA_VOLUMES; i++)
		list_init(&c->closing[i]);
	if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur / LIMIT_PART / FILES_EACH < max)
		c->max = (uint32_t)(lim.rlim_cur / LIMIT_PART / FILES_EACH);
	return ret_code(pthread_mutex_init(&c->lock, NULL));
}

static void files_free(struct open_replica_files *f)
{
	(void)close(f->fd);
	if (f->fd_direct >= 0)
		(void)close(f->fd_direct);
	if (f->fd_meta >= 0)
		(void)close(f->fd_meta);
	free(f);
}

/* Out of the table. True: nobody reads them, they are the caller's to close. */
static bool forget_locked(struct open_replica_cache *c, struct open_replica_files *f)
{
	HASH_DEL(c->table, f);
	list_del(&f->link);
	c->count--;
	f->in_table = false;
	return --f->refs == 0;
}

static struct open_replica_files *find_locked(struct open_replica_cache *c, struct block_pool *bp,
					      int64_t id)
{
	const struct replica_key key = replica_key(bp, id);
	struct open_replica_files *f;

	HASH_FIND(hh, c->table, &key, sizeof(key), f);
	return f;
}

struct open_replica_files *open_replica_get(struct open_replica_cache *c, struct block_pool *bp,
					    int64_t id, bool now)
{
	struct open_replica_files *f;
	struct stat st;

	pthread_mutex_lock(&c->lock);
	f = find_locked(c, bp, id);
	if (f && now && f->remote)
		f = NULL;
	if (f) {
		f->refs++;
		list_del(&f->link);
		list_add_tail(&c->used, &f->link);
	}
	pthread_mutex_unlock(&c->lock);
	if (!f || (fstat(f->fd, &st) == 0 && st.st_nlink > 0))
		return f;
	/* Somebody removed or replaced the file: what is at its name now counts. */
	pthread_mutex_lock(&c->lock);
	if (f->in_table)
		(void)forget_locked(c, f);
	pthread_mutex_unlock(&c->lock);
	open_replica_put_later(c, f);
	return NULL;
}

bool open_replica_add(struct open_replica_cache *c, struct open_replica_files *f)
{
	struct open_replica_files *old;

	pthread_mutex_lock(&c->lock);
	if (!c->max || find_locked(c, f->key.bp, f->key.id)) {
		pthread_mutex_unlock(&c->lock);
		return false;
	}
	if (c->count == c->max) {
		old = container_of(c->used.next, struct open_replica_files, link);
		if (forget_locked(c, old))
			list_add_tail(&c->closing[old->volume], &old->link);
	}
	f->refs = 2;
	f->in_table = true;
	HASH_ADD(hh, c->table, key, sizeof(f->key), f);
	list_add_tail(&c->used, &f->link);
	c->count++;
	pthread_mutex_unlock(&c->lock);
	return true;
}

void open_replica_drop(struct open_replica_cache *c, struct block_pool *bp, int64_t id)
{
	struct open_replica_files *f;

	pthread_mutex_lock(&c->lock);
	f = find_locked(c, bp, id);
	if (f && forget_locked(c, f))
		list_add_tail(&c->closing[f->volume], &f->link);
	pthread_mutex_unlock(&c->lock);
}

void open_replica_reap(struct open_replica_cache *c, uint32_t volume)
{
	struct list *l;

	do {
		pthread_mutex_lock(&c->lock);
		l = list_pop(&c->closing[volume]);
		pthread_mutex_unlock(&c->lock);
		if (l)
			files_free(container_of(l, struct open_replica_files, link));
	} while (l);
}

void open_replica_put(struct open_replica_cache *c, struct open_replica_files *f)
{
	bool last;

	pthread_mutex_lock(&c->lock);
	last = --f->refs == 0;
	pthread_mutex_unlock(&c->lock);
	if (last)
		files_free(f);
}

void open_replica_put_later(struct open_replica_cache *c, struct open_replica_files *f)
{
	pthread_mutex_lock(&c->lock);
	if (--f->refs == 0)
		list_add_tail(&c->closing[f->volume], &f->link);
	pthread_mutex_unlock(&c->lock);
}

bool open_replica_put_now(struct open_replica_cache *c, struct open_replica_files *f)
{
	bool stays;

	pthread_mutex_lock(&c->lock);
	stays = f->refs > 1;
	if (stays)
		f->refs--;
	pthread_mutex_unlock(&c->lock);
	return stays;
}

void open_replica_fini(struct open_replica_cache *c)
{
	struct open_replica_files *f, *next;

	HASH_ITER(hh, c->table, f, next)
	if (forget_locked(c, f))
		files_free(f);
	for (uint32_t i = 0; i < OPEN_REPLICA_VOLUMES; i++)
		open_replica_reap(c, i);
	pthread_mutex_destroy(&c->lock);
}
