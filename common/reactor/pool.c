/* SPDX-License-Identifier: Apache-2.0 */
#include "common/reactor/pool.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/base/metrics.h"

#define SLAB_MAX (1ull << 30) /* the most that io_uring takes as one fixed buffer */
#define SLAB_SHIFT 30
#define SLABS_MAX 16384 /* fixed buffers of one io_uring */
#define HUGE_PAGE (2ull << 20)
#define RESERVE_PCT_DEFAULT 25
#define USES 3

static const uint32_t class_size[SLOT_CLASSES] = {8u << 10, 64u << 10, 256u << 10, 1u << 20};

struct slab {
	uint8_t *mem; /* owned mapping */
	size_t len;
};

struct class_state {
	struct list free;
	uint32_t free_count;
	uint32_t keep[USES]; /* a use leaves this many alone */
	struct list waiters[USES];
};

struct pool {
	struct slab *slabs; /* owned */
	uint32_t slab_count;
	struct slot *slots; /* owned */
	uint32_t out;
	uint64_t bytes; /* of all slots, once they are counted in the metric */
	struct class_state cls[SLOT_CLASSES];
};

static int slab_map(struct slab *s, size_t len, bool huge)
{
	void *p = MAP_FAILED;

	if (huge && len % HUGE_PAGE == 0)
		p = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0);
	if (p == MAP_FAILED) {
		p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p != MAP_FAILED && huge)
			(void)madvise(p, len, MADV_HUGEPAGE); /* advice */
	}
	if (p == MAP_FAILED)
		return neg_errno();
	s->mem = (uint8_t *)p;
	s->len = len;
	return 0;
}

static int map_slabs(struct pool *p, uint64_t total, bool huge)
{
	p->slabs = (struct slab *)calloc((size_t)((total + SLAB_MAX - 1) / SLAB_MAX),
					 sizeof(*p->slabs));
	if (!p->slabs)
		return -ENOMEM;
	for (; total; p->slab_count++) {
		size_t len = total < SLAB_MAX ? (size_t)total : SLAB_MAX;
		size_t huge_len = (len + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
		int rc = slab_map(&p->slabs[p->slab_count], huge ? huge_len : len, huge);

		if (rc < 0)
			return rc;
		total -= len;
	}
	return 0;
}

/* The big classes first: sizes are powers of two, so each slot is aligned to its own size and none
 * crosses a slab. */
static void cut_slots(struct pool *p, const struct pool_opts *o)
{
	struct slot *s = p->slots;
	uint64_t at = 0;

	for (int c = SLOT_CLASSES - 1; c >= 0; c--) {
		for (uint32_t i = 0; i < o->count[c]; i++, s++, at += class_size[c]) {
			uint32_t slab = (uint32_t)(at >> SLAB_SHIFT);

			*s = (struct slot){.data = p->slabs[slab].mem + (at & (SLAB_MAX - 1)),
					   .size = class_size[c],
					   .slab = slab,
					   .cls = (uint8_t)c,
					   .pool = p};
			list_add_tail(&p->cls[c].free, &s->link);
		}
	}
}

static void class_init(struct class_state *c, uint32_t count, uint32_t fixed, uint32_t reserve_pct)
{
	uint32_t reserve = (uint32_t)((uint64_t)(count - fixed) * reserve_pct / 100);

	list_init(&c->free);
	c->free_count = count;
	c->keep[POOL_CLIENT] = reserve;
	c->keep[POOL_PEER] = reserve / 4; /* so that acks never wait for data */
	for (int u = 0; u < USES; u++)
		list_init(&c->waiters[u]);
}

int pool_new(const struct pool_opts *opts, struct pool **ret, struct err *err)
{
	uint32_t pct = opts->reserve_pct ? opts->reserve_pct : RESERVE_PCT_DEFAULT;
	uint64_t total = 0, slots = 0;
	struct pool *p;
	int rc = -ENOMEM;

	for (int c = 0; c < SLOT_CLASSES; c++) {
		assert(opts->fixed[c] <= opts->count[c]);
		total += (uint64_t)opts->count[c] * class_size[c];
		slots += opts->count[c];
	}
	if (!slots || pct > 90)
		return err_set(err, -EINVAL, "a buffer pool needs slots and a reserve of at most 90 %%");
	if (total > SLABS_MAX * SLAB_MAX)
		return err_set(err, -E2BIG, "a buffer pool of %lu MiB is more than %lu MiB",
			       (unsigned long)(total >> 20),
			       (unsigned long)(SLABS_MAX * SLAB_MAX >> 20));
	p = (struct pool *)calloc(1, sizeof(*p));
	if (!p)
		goto fail;
	for (int c = 0; c < SLOT_CLASSES; c++)
		class_init(&p->cls[c], opts->count[c], opts->fixed[c], pct);
	p->slots = (struct slot *)calloc((size_t)slots, sizeof(*p->slots));
	if (!p->slots)
		goto fail;
	rc = map_slabs(p, total, opts->huge_pages);
	if (rc < 0)
		goto fail;
	cut_slots(p, opts);
	p->bytes = total;
	metric_add(METRIC_POOL_FREE, total);
	*ret = p;
	return 0;
fail:
	err_sys(err, rc, "cannot map %lu MiB for the buffer pool", (unsigned long)(total >> 20));
	err_cure(err, "make the pool smaller or raise the memory limit");
	pool_free(p);
	return rc;
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	assert(!p->out);
	metric_add(METRIC_POOL_FREE, -p->bytes);
	for (uint32_t i = 0; i < p->slab_count; i++)
		(void)munmap(p->slabs[i].mem, p->slabs[i].len);
	free(p->slabs);
	free(p->slots);
	free(p);
}

/* Invariant: who waits could not be served now, so taking never overtakes. */
static struct slot *take(struct pool *p, uint8_t cls, uint8_t use)
{
	struct class_state *c = &p->cls[cls];
	struct slot *s;

	if (c->free_count <= c->keep[use])
		return NULL;
	s = container_of(list_pop(&c->free), struct slot, link);
	c->free_count--;
	p->out++;
	s->refs = 1;
	s->use = use;
	metric_add(METRIC_POOL_FREE, -(uint64_t)s->size);
	return s;
}

struct slot *pool_get(struct pool *p, enum slot_class cls, enum pool_use use)
{
	struct slot *s = take(p, (uint8_t)cls, (uint8_t)use);

	if (!s)
		metric_add(METRIC_POOL_EMPTY, 1);
	return s;
}

/* Control before peers before clients; a use that may not take yet holds up nobody else. */
static void serve_waiters(struct pool *p, uint8_t cls)
{
	for (int use = USES - 1; use >= 0; use--) {
		struct list *line = &p->cls[cls].waiters[use];
		struct slot *s;

		while (!list_empty(line) && (s = take(p, cls, (uint8_t)use))) {
			struct pool_waiter *w =
			    container_of(list_pop(line), struct pool_waiter, link);

			w->granted(w, s);
		}
	}
}

void pool_wait(struct pool *p, enum slot_class cls, enum pool_use use, struct pool_waiter *w)
{
	w->cls = (uint8_t)cls;
	w->use = (uint8_t)use;
	list_add_tail(&p->cls[cls].waiters[use], &w->link);
	serve_waiters(p, w->cls);
}

void pool_wait_cancel(struct pool *p, struct pool_waiter *w)
{
	(void)p;
	if (list_is_linked(&w->link))
		list_del(&w->link);
}

void slot_put(struct slot *s)
{
	struct pool *p;

	if (!s)
		return;
	assert(s->refs > 0);
	if (--s->refs)
		return;
	p = s->pool;
	p->out--;
	p->cls[s->cls].free_count++;
	list_add(&p->cls[s->cls].free, &s->link); /* the warmest first */
	metric_add(METRIC_POOL_FREE, s->size);
	serve_waiters(p, s->cls);
}

uint32_t pool_slab_count(const struct pool *p)
{
	return p->slab_count;
}

void *pool_slab(const struct pool *p, uint32_t i, size_t *ret_len)
{
	*ret_len = p->slabs[i].len;
	return p->slabs[i].mem;
}

uint32_t pool_slots_out(const struct pool *p)
{
	return p->out;
}
