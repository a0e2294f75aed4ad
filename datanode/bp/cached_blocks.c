/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/bp/cached_blocks.h"

#include <inttypes.h>
#include <pthread.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uthash.h>

#include "common/base/list.h"
#include "common/base/log.h"
#include "datanode/block/hot_copies.h"
#include "datanode/store/replica_key.h"

#define VERIFY_CHUNK (1u << 20) /* bytes checked at one time */

struct entry { /* one locked replica */
	struct replica_key key;
	void *at;
	size_t len; /* of the mapping, whole pages */
	UT_hash_handle hh;
};

struct order {
	struct list link;
	struct replica_key key;
	bool lock;
};

struct cache {
	uint64_t capacity, page;
	struct hot_copies *hot; /* borrowed (outlives the cache); or NULL */
	pthread_t thread;
	bool runs;
	pthread_mutex_t lock; /* everything below */
	pthread_cond_t wake;
	bool stop;
	struct entry *map;
	struct list orders;
	uint32_t waiting;
	struct replica_key busy; /* being locked just now; id of busy_on */
	bool busy_on, busy_spoilt;
	uint64_t used, failed, failed_to_drop;
	atomic_uint interest; /* entries and orders: 0 lets cache_forget() pass by */
};

static void entry_free(struct cache *c, struct entry *e)
{
	/* Of pages that we locked ourselves it cannot fail; unmapping unlocks. */
	if (munmap(e->at, e->len))
		c->failed_to_drop++;
	c->used -= e->len;
	hot_copies_give_room(c->hot, e->len);
	free(e);
}

static void drop_locked(struct cache *c, const struct replica_key *k)
{
	struct entry *e;

	HASH_FIND(hh, c->map, k, sizeof(*k), e);
	hot_copies_forbid(c->hot, k->bp, k->id);
	if (!e)
		return;
	HASH_DEL(c->map, e);
	entry_free(c, e);
	atomic_fetch_sub(&c->interest, 1);
	(void)replica_set_cached(k->bp, k->id, false);
	log_info("op=uncache block=%" PRId64, k->id);
}

/* ---- locking one replica ---- */

/* By reads of the file, which are of the locked pages: the mapping of a file that is shortened
 * meanwhile has no bytes behind the new end, and touching it there would end the process. */
static int verify(const struct replica_reader *r)
{
	uint64_t step = VERIFY_CHUNK / r->bytes_per_crc * r->bytes_per_crc;
	uint8_t *crcs, *data;
	int rc = 0;

	if (r->crc_type == CRC_NULL || r->fd_meta < 0)
		return 0;
	step = step ? step : r->bytes_per_crc;
	if (step > r->block.len)
		step = r->block.len;
	crcs = malloc(crc_bytes(r->crc_type, step, r->bytes_per_crc));
	data = malloc(step);
	if (!crcs || !data)
		rc = -ENOMEM;
	for (uint64_t off = 0; !rc && off < r->block.len; off += step) {
		size_t len =
			r->block.len - off < step ? (size_t)(r->block.len - off) : (size_t)step;
		size_t n = crc_bytes(r->crc_type, len, r->bytes_per_crc);
		off_t at = (off_t)(META_HEADER_LEN + crc_bytes(r->crc_type, off, r->bytes_per_crc));

		if (pread(r->fd_meta, crcs, n, at) != (ssize_t)n ||
		    pread(r->fd, data, len, (off_t)off) != (ssize_t)len)
			rc = -EBADMSG;
		else if (crc_verify(r->crc_type, data, len, r->bytes_per_crc, crcs) >= 0)
			rc = -EBADMSG;
	}
	free(data);
	free(crcs);
	return rc;
}

/* Map, lock, verify. *ret_at is the caller's on success. */
static int lock_file(const struct replica_reader *r, size_t len, void **ret_at)
{
	void *at = mmap(NULL, len, PROT_READ, MAP_SHARED, r->fd, 0);
	int rc;

	if (at == MAP_FAILED)
		return neg_errno();
	rc = ret_errno(mlock(at, len));
	if (!rc)
		rc = verify(r);
	if (rc)
		(void)munmap(at, len);
	else
		*ret_at = at;
	return rc;
}

static bool reserve(struct cache *c, const struct replica_key *k, size_t len)
{
	bool fits;

	pthread_mutex_lock(&c->lock);
	fits = c->used + len <= c->capacity && hot_copies_take_room(c->hot, k->bp, k->id, len);
	if (fits)
		c->used += len;
	pthread_mutex_unlock(&c->lock);
	return fits;
}

/* Enter it, unless it changed under our hands. */
static int enter(struct cache *c, const struct replica_key *k, void *at, size_t len,
		 const struct block *b)
{
	struct entry *e = calloc(1, sizeof(*e));
	int rc = e ? 0 : -ENOMEM;

	pthread_mutex_lock(&c->lock);
	c->busy_on = false;
	if (!rc && c->busy_spoilt)
		rc = -ESTALE;
	if (!rc) {
		*e = (struct entry){.at = at, .len = len};
		memcpy(&e->key, k, sizeof(*k));
		HASH_ADD(hh, c->map, key, sizeof(e->key), e);
		atomic_fetch_add(&c->interest, 1);
		hot_copies_allow(c->hot, k->bp, b);
	}
	pthread_mutex_unlock(&c->lock);
	if (rc)
		free(e);
	return rc;
}

static int lock_open(struct cache *c, const struct replica_key *k, const struct replica_reader *r)
{
	size_t len = (size_t)((r->block.len + c->page - 1) / c->page * c->page);
	void *at = NULL;
	int rc;

	if (r->state != REPLICA_FINALIZED || !len)
		return -EAGAIN;
	if (!reserve(c, k, len))
		return -ENOSPC;
	rc = lock_file(r, len, &at);
	if (!rc) {
		/* first: from now on we are told when it goes */
		rc = replica_set_cached(k->bp, k->id, true) ? 0 : -ENOENT;
		rc = rc ?: enter(c, k, at, len, &r->block);
		if (rc)
			(void)munmap(at, len);
	}
	if (!rc)
		return 0;
	(void)replica_set_cached(k->bp, k->id, false);
	pthread_mutex_lock(&c->lock);
	c->used -= len;
	hot_copies_give_room(c->hot, len);
	pthread_mutex_unlock(&c->lock);
	return rc;
}

static void do_lock(struct cache *c, const struct replica_key *k)
{
	struct block b = {k->id, BLOCK_GS_ANY, 0};
	struct replica_reader *r = NULL;
	struct err err = ERR_INIT;
	struct entry *e;
	int rc;

	pthread_mutex_lock(&c->lock);
	HASH_FIND(hh, c->map, k, sizeof(*k), e);
	c->busy = *k;
	c->busy_on = !e;
	c->busy_spoilt = false;
	pthread_mutex_unlock(&c->lock);
	if (e)
		return; /* cached already */
	rc = replica_read_open(k->bp, &b, &r, &err);
	if (!rc) {
		rc = lock_open(c, k, r);
		replica_read_close(r);
	}
	if (rc == -EBADMSG)
		replica_suspect(k->bp, &b);
	pthread_mutex_lock(&c->lock);
	c->busy_on = false;
	c->failed += rc != 0;
	pthread_mutex_unlock(&c->lock);
	if (rc)
		log_warn("op=cache block=%" PRId64 " rc=%d: not locked in memory: %s", k->id, rc,
			 rc == -ENOSPC ? "dfs.datanode.max.locked.memory is used up"
				       : err_name(rc));
	else
		log_info("op=cache block=%" PRId64 ": locked in memory", k->id);
}

static void *cache_thread(void *arg)
{
	struct cache *c = arg;

	pthread_mutex_lock(&c->lock);
	while (!c->stop) {
		struct list *l = list_pop(&c->orders);
		struct order *o;

		if (!l) {
			pthread_cond_wait(&c->wake, &c->lock);
			continue;
		}
		o = container_of(l, struct order, link);
		c->waiting--;
		if (o->lock) {
			pthread_mutex_unlock(&c->lock);
			do_lock(c, &o->key);
			pthread_mutex_lock(&c->lock);
		} else {
			drop_locked(c, &o->key);
		}
		atomic_fetch_sub(&c->interest, 1);
		free(o);
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

/* ---- public ---- */

/* Root locks what it wants. */
static int check_limit(uint64_t capacity, struct err *err)
{
	struct rlimit l;

	if (geteuid() == 0 || getrlimit(RLIMIT_MEMLOCK, &l) || l.rlim_cur == RLIM_INFINITY ||
	    capacity <= l.rlim_cur)
		return 0;
	return err_set(err, -EINVAL,
		       "dfs.datanode.max.locked.memory is %" PRIu64
		       " bytes, but this process may lock only "
		       "%" PRIu64
		       "; raise the limit (ulimit -l, LimitMEMLOCK=) or lower the setting",
		       capacity, (uint64_t)l.rlim_cur);
}

int cache_new(const struct conf *conf, struct hot_copies *hot, struct cache **ret, struct err *err)
{
	struct cache *c = calloc(1, sizeof(*c));
	int rc = c ? 0 : err_sys(err, -ENOMEM, "cache");

	if (!rc)
		rc = conf_size(conf, "dfs.datanode.max.locked.memory", 0, &c->capacity, err);
	if (!rc)
		rc = check_limit(c->capacity, err);
	if (rc) {
		free(c);
		return rc;
	}
	c->hot = hot;
	c->page = (uint64_t)sysconf(_SC_PAGESIZE);
	c->capacity -= c->capacity % c->page;
	list_init(&c->orders);
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->wake, NULL);
	if (c->capacity) {
		rc = ret_code(pthread_create(&c->thread, NULL, cache_thread, c));
		c->runs = !rc;
	}
	if (rc) {
		cache_free(c);
		return err_sys(err, rc, "cannot start the thread of the cache");
	}
	*ret = c;
	return 0;
}

void cache_free(struct cache *c)
{
	struct entry *e, *next;
	struct list *l;

	if (!c)
		return;
	pthread_mutex_lock(&c->lock);
	c->stop = true;
	pthread_cond_signal(&c->wake);
	pthread_mutex_unlock(&c->lock);
	if (c->runs)
		pthread_join(c->thread, NULL);
	while ((l = list_pop(&c->orders)))
		free(container_of(l, struct order, link));
	HASH_ITER(hh, c->map, e, next)
	{
		HASH_DEL(c->map, e);
		entry_free(c, e);
	}
	pthread_cond_destroy(&c->wake);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

void cache_order(struct cache *c, struct block_pool *bp, int64_t id, bool lock)
{
	struct order *o;

	if (!c->capacity)
		return; /* the NameNode was told that there is no room */
	o = calloc(1, sizeof(*o));
	if (!o)
		return; /* it orders again after the next report */
	o->key = replica_key(bp, id);
	o->lock = lock;
	pthread_mutex_lock(&c->lock);
	if (c->waiting < CACHE_WAITING_MAX) {
		list_add_tail(&c->orders, &o->link);
		c->waiting++;
		atomic_fetch_add(&c->interest, 1);
		o = NULL;
		pthread_cond_signal(&c->wake);
	}
	pthread_mutex_unlock(&c->lock);
	free(o);
}

void cache_forget(struct cache *c, struct block_pool *bp, int64_t id)
{
	struct replica_key k;

	if (!c->interest)
		return;
	k = replica_key(bp, id);
	pthread_mutex_lock(&c->lock);
	if (c->busy_on && c->busy.bp == bp && c->busy.id == id)
		c->busy_spoilt = true;
	drop_locked(c, &k);
	pthread_mutex_unlock(&c->lock);
}

int cache_list(struct cache *c, struct block_pool *bp, uint64_t **ret, size_t *ret_n)
{
	struct entry *e, *next;
	uint64_t *ids;
	size_t n = 0;

	pthread_mutex_lock(&c->lock);
	ids = calloc(HASH_COUNT(c->map) + 1, sizeof(*ids));
	HASH_ITER(hh, c->map, e, next)
	if (ids && e->key.bp == bp)
		ids[n++] = (uint64_t)e->key.id;
	pthread_mutex_unlock(&c->lock);
	if (!ids)
		return -ENOMEM;
	*ret = ids;
	*ret_n = n;
	return 0;
}

void cache_stats(struct cache *c, struct cache_stats *ret)
{
	pthread_mutex_lock(&c->lock);
	*ret = (struct cache_stats){c->capacity, c->used, HASH_COUNT(c->map), c->failed,
				    c->failed_to_drop};
	pthread_mutex_unlock(&c->lock);
}
