/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/block/hot_copies.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <uthash.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "datanode/store/replica_key.h"

#define HUGE (2u << 20)
#define STOP_NS (5 * NS_PER_S) /* for each job when the node ends */
#define ORDERS_MAX 1024

struct entry { /* a replica that is cached */
	struct replica_key key;
	uint64_t gs;
	struct hot_copy *copy; /* not counted: it goes with the last who has it; NULL: none */
	UT_hash_handle hh;
};

struct order { /* of the cache: there was no room */
	struct replica_key key;
	uint64_t len, until_ns; /* the room is kept so long */
	UT_hash_handle hh;
};

struct lane {
	struct hot_copies *of;
	pthread_t thread;
	struct list jobs;
	bool runs, ended; /* has to be joined; has nothing left to do */
};
enum { MAKES, LETS_GO, LANES };

struct hot_copies {
	uint64_t capacity;
	pthread_mutex_t lock; /* everything below */
	pthread_cond_t wake;
	struct lane lane[LANES];
	atomic_bool stop;
	uint32_t run; /* jobs that have ended */
	struct entry *map;
	struct order *orders;
	struct list copies; /* those that are not freed */
	/* bytes: of the cache; ours; of these, of copies that are over; of the orders */
	uint64_t locked, copied, going, wanted;
};

/* With the lock held. */
static struct entry *find(struct hot_copies *h, struct block_pool *bp, int64_t id)
{
	const struct replica_key k = replica_key(bp, id);
	struct entry *e;

	HASH_FIND(hh, h->map, &k, sizeof(k), e);
	return e;
}

/* ---- memory ---- */

static void *map_memory(size_t size)
{
	void *p = MAP_FAILED;

	if (size % HUGE == 0)
		p = mmap(NULL, size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	if (p != MAP_FAILED)
		return p;
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p != MAP_FAILED)
		(void)madvise(p, size, MADV_HUGEPAGE); /* where there are some */
	return p == MAP_FAILED ? NULL : p;
}

/* Nobody new gets it; who has it lets go when his views have ended. With the lock held. */
static void end_copy(struct hot_copies *h, struct hot_copy *c)
{
	struct entry *e = find(h, c->bp, c->block.id);

	if (e && e->copy == c)
		e->copy = NULL;
	atomic_store(&c->over, true);
	h->going += c->size;
}

/* Of those viewed before @before_ns. */
static struct hot_copy *viewed_longest_ago(struct hot_copies *h, uint64_t before_ns)
{
	struct hot_copy *oldest = NULL;

	list_for_each (l, &h->copies) {
		struct hot_copy *c = container_of(l, struct hot_copy, link);

		if (!c->over && c->viewed_ns < before_ns &&
		    (!oldest || c->viewed_ns < oldest->viewed_ns))
			oldest = c;
	}
	return oldest;
}

/* As many as it takes for @size bytes beside what was ordered. With the lock held. */
static void end_copies(struct hot_copies *h, uint64_t size, uint64_t before_ns)
{
	struct hot_copy *c;

	while (h->locked + h->copied + h->wanted + size > h->capacity + h->going &&
	       (c = viewed_longest_ago(h, before_ns)))
		end_copy(h, c);
}

/* With the lock held. */
static void forget_order(struct hot_copies *h, struct order *o)
{
	if (!o)
		return;
	h->wanted -= o->len;
	HASH_DEL(h->orders, o);
	free(o);
}

/* With the lock held. */
static void forget_old_orders(struct hot_copies *h)
{
	const uint64_t now = clock_mono_ns();
	struct order *o, *next;

	HASH_ITER(hh, h->orders, o, next)
	{
		if (now >= o->until_ns)
			forget_order(h, o);
	}
}

static bool take_copy_room(struct hot_copies *h, size_t size)
{
	const uint64_t idle_ns = HOT_IDLE_MS * NS_PER_MS, now = clock_mono_ns();
	bool fits;

	pthread_mutex_lock(&h->lock);
	forget_old_orders(h);
	fits = h->locked + h->copied + h->wanted + size <= h->capacity;
	if (fits)
		h->copied += size;
	else if (h->locked + h->wanted + size <= h->capacity)
		end_copies(h, size, now > idle_ns ? now - idle_ns : 0);
	pthread_mutex_unlock(&h->lock);
	return fits;
}

static void give_copy_room(struct hot_copies *h, size_t size, bool over)
{
	pthread_mutex_lock(&h->lock);
	h->copied -= size;
	h->going -= over ? size : 0;
	pthread_mutex_unlock(&h->lock);
}

static void copy_free(struct hot_copy *c)
{
	if (c->p) {
		(void)munmap(c->p, c->size);
		give_copy_room(c->of, c->size, c->over);
		metric_add(METRIC_DN_HOT_COPY_BYTES, (uint64_t) - (int64_t)c->size);
	}
	free(c);
}

void hot_copy_put(struct hot_copy *c)
{
	struct hot_copies *h = c->of;
	struct entry *e;
	bool last;

	/* under the lock: nobody gets at it by the table meanwhile */
	pthread_mutex_lock(&h->lock);
	last = --c->refs == 0;
	if (last)
		list_del(&c->link);
	e = last ? find(h, c->bp, c->block.id) : NULL;
	if (e && e->copy == c)
		e->copy = NULL;
	pthread_mutex_unlock(&h->lock);
	if (last)
		copy_free(c);
}

/* ---- making one ---- */

/* The disk may hang, or the node be about to end. */
static int read_all(const struct hot_copy *c, struct replica_reader *r, int fd, uint8_t *to,
		    uint64_t len, off_t at)
{
	while (len) {
		ssize_t n;
		int rc;

		if (c->of->stop)
			return -ECANCELED;
		replica_read_begin(r);
		n = pread(fd, to, len < HUGE ? len : HUGE, at);
		rc = n < 0 ? neg_errno() : 0;
		replica_read_end(r);
		if (n <= 0)
			return rc ? rc : -EBADMSG;
		to += n;
		at += n;
		len -= (uint64_t)n;
	}
	return 0;
}

/* CRCs first: bytes that are replaced meanwhile do not fit them. */
static int fill(struct hot_copy *c, struct replica_reader *r)
{
	int rc = read_all(c, r, r->fd_meta, c->p + c->crc_at, c->crc_len, META_HEADER_LEN);

	rc = rc ?: read_all(c, r, r->fd, c->p, c->block.len, 0);
	if (!rc && replica_read_is_cut(r, c->block.len))
		return -ESTALE;
	if (!rc &&
	    crc_verify(c->crc_type, c->p, c->block.len, c->bytes_per_crc, c->p + c->crc_at) >= 0)
		rc = -EBADMSG;
	return rc;
}

static int copy_of(struct hot_copies *h, struct block_pool *bp, struct replica_reader *r,
		   struct hot_copy *c)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint64_t size;

	if (r->state != REPLICA_FINALIZED || !r->block.len)
		return -EAGAIN;
	if (r->crc_type == CRC_NULL || r->fd_meta < 0)
		return -ENOTSUP;
	c->of = h;
	c->bp = bp;
	c->block = r->block;
	c->crc_type = r->crc_type;
	c->bytes_per_crc = r->bytes_per_crc;
	c->crc_at = (r->block.len + 7) / 8 * 8;
	size = c->crc_at + crc_bytes(r->crc_type, r->block.len, r->bytes_per_crc);
	c->crc_len = (uint32_t)(size - c->crc_at);
	size = size < HUGE ? (size + page - 1) / page * page : (size + HUGE - 1) / HUGE * HUGE;
	if (size > UINT32_MAX) /* a window is not longer */
		return -ENOTSUP;
	if (!take_copy_room(h, size))
		return -ENOSPC;
	c->p = map_memory(size);
	if (!c->p) {
		give_copy_room(h, size, false);
		return -ENOMEM;
	}
	c->size = size;
	metric_add(METRIC_DN_HOT_COPY_BYTES, size);
	return fill(c, r);
}

/* One reference: of the caller. */
static int make(struct hot_copies *h, struct block_pool *bp, const struct block *b,
		struct hot_copy **ret)
{
	struct hot_copy *c = calloc(1, sizeof(*c));
	struct replica_reader *r = NULL;
	struct err err = ERR_INIT;
	int rc = c ? replica_read_open(bp, b, &r, &err) : -ENOMEM;

	if (!rc) {
		rc = r->block.gs == b->gs ? copy_of(h, bp, r, c) : -ESTALE;
		replica_read_close(r);
	}
	if (rc == -EBADMSG)
		replica_suspect(bp, b);
	if (rc) {
		if (c)
			copy_free(c);
		return rc;
	}
	c->refs = 1;
	*ret = c;
	return 0;
}

/* Only this thread makes copies. */
static int get(struct hot_copies *h, struct hot_job *j)
{
	struct block b = {.id = j->id};
	struct hot_copy *made = NULL;
	struct entry *e;
	int rc;

	pthread_mutex_lock(&h->lock);
	e = find(h, j->bp, j->id);
	rc = e ? 0 : -ENOENT;
	if (e) {
		b.gs = e->gs;
		j->copy = e->copy;
	}
	if (j->copy)
		j->copy->refs++;
	pthread_mutex_unlock(&h->lock);
	if (rc || j->copy)
		return rc;
	rc = make(h, j->bp, &b, &made);
	if (rc)
		return rc;
	pthread_mutex_lock(&h->lock);
	e = find(h, j->bp, j->id);
	if (!e || e->gs != b.gs) { /* it has changed under our hands */
		rc = -ESTALE;
	} else if (h->locked + h->copied + h->wanted > h->capacity + h->going) {
		rc = -ENOSPC; /* it was ordered meanwhile */
	} else {
		e->copy = j->copy = made;
		made->viewed_ns = clock_mono_ns();
		list_add_tail(&h->copies, &made->link);
	}
	pthread_mutex_unlock(&h->lock);
	if (rc)
		copy_free(made);
	return rc;
}

static void run_one(struct hot_copies *h, struct hot_job *j)
{
	j->copy = NULL;
	j->rc = h->stop ? -ECANCELED : j->wants ? get(h, j) : 0;
	if (j->wants && j->rc && !h->stop && !j->again)
		log_info("op=hot_copy block=%" PRId64 ": none: %s", j->id,
			 j->rc == -ENOSPC ? "cached replicas and other copies have, or will have, "
					    "all of dfs.datanode.max.locked.memory"
					  : err_name(j->rc));
	j->run(j);
}

static void *hot_thread(void *arg)
{
	struct lane *lane = arg;
	struct hot_copies *h = lane->of;
	struct list *l;

	pthread_mutex_lock(&h->lock);
	while (!h->stop || !list_empty(&lane->jobs)) {
		l = list_pop(&lane->jobs);
		if (!l) {
			pthread_cond_wait(&h->wake, &h->lock);
			continue;
		}
		pthread_mutex_unlock(&h->lock);
		run_one(h, container_of(l, struct hot_job, link));
		pthread_mutex_lock(&h->lock);
		h->run++;
	}
	lane->ended = true;
	pthread_cond_broadcast(&h->wake);
	pthread_mutex_unlock(&h->lock);
	return NULL;
}

/* ---- public ---- */

static int wanted(const struct conf *conf, bool *ret, struct err *err)
{
	const char *v = conf_get_or(conf, "dfs.rdma.onesided", "auto");

	*ret = !strcmp(v, "auto");
	if (!*ret && strcmp(v, "off") != 0)
		return err_set(err, -EINVAL, "dfs.rdma.onesided must be auto or off");
	return 0;
}

int hot_copies_new(const struct conf *conf, struct hot_copies **ret, struct err *err)
{
	uint64_t capacity = 0;
	struct hot_copies *h;
	bool on;
	int rc = wanted(conf, &on, err);

	*ret = NULL;
	rc = rc ?: conf_size(conf, "dfs.datanode.max.locked.memory", 0, &capacity, err);
	if (rc || !on || !capacity)
		return rc;
	h = calloc(1, sizeof(*h));
	if (!h)
		return err_set(err, -ENOMEM, "out of memory");
	h->capacity = capacity;
	list_init(&h->copies);
	pthread_mutex_init(&h->lock, NULL);
	clock_cond_init(&h->wake);
	/* now: a reactor would have to wait for it, and give it its own processor alone */
	for (int i = 0; i < LANES && !rc; i++) {
		struct lane *lane = &h->lane[i];

		lane->of = h;
		list_init(&lane->jobs);
		rc = ret_code(pthread_create(&lane->thread, NULL, hot_thread, lane));
		lane->runs = !rc;
	}
	if (rc) {
		hot_copies_free(h);
		return err_sys(err, rc, "cannot start the threads of the copies");
	}
	*ret = h;
	return 0;
}

/* False: no job of it has ended for a while. With the lock held. */
static bool await_end(struct hot_copies *h, const struct lane *lane)
{
	uint32_t run = h->run;
	int rc = 0;

	while (lane->runs && !lane->ended && rc != ETIMEDOUT) {
		const uint64_t at = clock_mono_ns() + STOP_NS;
		const struct timespec until = {(time_t)(at / NS_PER_S), (long)(at % NS_PER_S)};

		rc = pthread_cond_timedwait(&h->wake, &h->lock, &until);
		if (run != h->run)
			rc = 0;
		run = h->run;
	}
	return !lane->runs || lane->ended;
}

bool hot_copies_stop(struct hot_copies *h)
{
	bool ended = true;

	if (!h)
		return true;
	pthread_mutex_lock(&h->lock);
	h->stop = true;
	pthread_cond_broadcast(&h->wake);
	for (int i = 0; i < LANES; i++)
		ended &= await_end(h, &h->lane[i]);
	pthread_mutex_unlock(&h->lock);
	for (int i = 0; i < LANES && ended; i++) {
		if (h->lane[i].runs)
			pthread_join(h->lane[i].thread, NULL);
		h->lane[i].runs = false;
	}
	return ended;
}

void hot_copies_free(struct hot_copies *h)
{
	struct entry *e, *next;
	struct order *o, *next_order;

	if (!h || !hot_copies_stop(h))
		return;
	HASH_ITER(hh, h->orders, o, next_order)
	forget_order(h, o);
	HASH_ITER(hh, h->map, e, next)
	{
		HASH_DEL(h->map, e);
		free(e);
	}
	pthread_cond_destroy(&h->wake);
	pthread_mutex_destroy(&h->lock);
	free(h);
}

bool hot_copies_ask(struct hot_copies *h, struct hot_job *j)
{
	bool taken;

	if (!h)
		return false;
	pthread_mutex_lock(&h->lock);
	taken = !h->stop;
	if (taken) {
		list_add_tail(&h->lane[j->wants ? MAKES : LETS_GO].jobs, &j->link);
		pthread_cond_broadcast(&h->wake);
	}
	pthread_mutex_unlock(&h->lock);
	return taken;
}

/* With the lock held. */
static struct order *find_order(struct hot_copies *h, struct block_pool *bp, int64_t id)
{
	const struct replica_key k = replica_key(bp, id);
	struct order *o;

	HASH_FIND(hh, h->orders, &k, sizeof(k), o);
	return o;
}

void hot_copies_allow(struct hot_copies *h, struct block_pool *bp, const struct block *b)
{
	struct entry *e;

	if (!h)
		return;
	hot_copies_forbid(h, bp, b->id);
	e = calloc(1, sizeof(*e));
	if (!e)
		return; /* it is read as any other */
	e->key = replica_key(bp, b->id);
	e->gs = b->gs;
	pthread_mutex_lock(&h->lock);
	HASH_ADD(hh, h->map, key, sizeof(e->key), e);
	pthread_mutex_unlock(&h->lock);
}

void hot_copies_forbid(struct hot_copies *h, struct block_pool *bp, int64_t id)
{
	struct entry *e;

	if (!h)
		return;
	pthread_mutex_lock(&h->lock);
	e = find(h, bp, id);
	if (e && e->copy)
		end_copy(h, e->copy);
	if (e)
		HASH_DEL(h->map, e);
	forget_order(h, find_order(h, bp, id));
	pthread_mutex_unlock(&h->lock);
	free(e);
}

bool hot_copies_has(struct hot_copies *h, struct block_pool *bp, int64_t id)
{
	bool has;

	if (!h)
		return false;
	pthread_mutex_lock(&h->lock);
	has = find(h, bp, id);
	pthread_mutex_unlock(&h->lock);
	return has;
}

/* Keeps the room for it, as far as there can be room. With the lock held. */
static void note_order(struct hot_copies *h, struct block_pool *bp, int64_t id, size_t len)
{
	struct order *o = find_order(h, bp, id);

	if (h->locked + h->wanted - (o ? o->len : 0) + len > h->capacity)
		return;
	if (!o && HASH_COUNT(h->orders) < ORDERS_MAX) {
		o = calloc(1, sizeof(*o));
		if (!o)
			return;
		o->key = replica_key(bp, id);
		HASH_ADD(hh, h->orders, key, sizeof(o->key), o);
	}
	if (!o)
		return;
	h->wanted += len - o->len;
	o->len = len;
	o->until_ns = clock_mono_ns() + HOT_YIELD_MS * NS_PER_MS;
	end_copies(h, 0, UINT64_MAX);
}

bool hot_copies_take_room(struct hot_copies *h, struct block_pool *bp, int64_t id, size_t len)
{
	bool fits;

	if (!h)
		return true;
	pthread_mutex_lock(&h->lock);
	forget_old_orders(h);
	fits = h->locked + h->copied + len <= h->capacity;
	if (fits) {
		h->locked += len;
		forget_order(h, find_order(h, bp, id));
	} else {
		note_order(h, bp, id, len);
	}
	pthread_mutex_unlock(&h->lock);
	return fits;
}

void hot_copies_give_room(struct hot_copies *h, size_t len)
{
	if (!h)
		return;
	pthread_mutex_lock(&h->lock);
	h->locked -= len;
	pthread_mutex_unlock(&h->lock);
}
