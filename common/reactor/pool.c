/* SPDX-License-Identifier: Apache-2.0 */
#include "common/reactor/pool.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/mempolicy.h>

#include "common/base/clock.h"
#include "common/base/metrics.h"

#define SLAB_MAX (1ull << 30) /* the most that io_uring takes as one fixed buffer */
#define SLAB_SHIFT 30
#define SLABS_MAX 16384 /* fixed buffers of one io_uring */
#define HUGE_PAGE (2ull << 20)
#define NUMA_NODES 1024
#define FLOOR_PCT_MAX 90
#define LINE_LOOK 32 /* waiters of one use that are looked at behind one who cannot be served */

static const uint32_t class_size[SLOT_CLASSES] = {8u << 10, 64u << 10, 256u << 10, 1u << 20,
						  SLOT_CRC_SIZE};
/* The big ones first: sizes are powers of two, so each slot is aligned to its own size and none
 * crosses a slab. */
static const enum slot_class cut_order[SLOT_CLASSES] = {SLOT_1M, SLOT_256K, SLOT_64K, SLOT_8K,
							SLOT_CRC};
static const uint8_t floor_default[POOL_USES] = {
	[POOL_READ] = 12, [POOL_WRITE] = 12, [POOL_PEER] = 12, [POOL_REBUILD] = 6, [POOL_CTRL] = 6,
};

struct slab {
	uint8_t *mem; /* owned mapping */
	size_t len;
	bool huge;
};

struct class_state {
	struct list free;
	uint32_t count, free_count;
	uint32_t floor[POOL_USES], used[POOL_USES];
};

struct pool {
	struct slab *slabs; /* owned */
	uint32_t slab_count;
	struct slot *slots; /* owned */
	uint32_t slot_count, out;
	uint64_t bytes; /* of all slots, once they are counted in the metric */
	struct class_state cls[SLOT_CLASSES];
	struct list line[POOL_USES]; /* who waits for slots */
	uint32_t waiting;            /* for slots or for a budget */
	void (*pressed)(void *arg);
	void *pressed_arg;
};

uint32_t slot_class_size(enum slot_class cls)
{
	return class_size[cls];
}

/* Preferred, not bound: memory of another node is better than none. */
static void take_from(uint32_t near_node, void *p, size_t len)
{
	unsigned long mask[NUMA_NODES / (8 * sizeof(unsigned long))] = {0};
	const uint32_t node = near_node - 1;

	if (!near_node || near_node > NUMA_NODES)
		return;
	mask[node / (8 * sizeof(*mask))] = 1ul << (node % (8 * sizeof(*mask)));
	/* the kernel reads one bit less than it is told of */
	(void)syscall(SYS_mbind, p, len, MPOL_PREFERRED, mask, NUMA_NODES + 1ul, 0);
}

/* No page has been touched yet. */
static int slab_map(struct slab *s, size_t len, bool huge)
{
	void *p = MAP_FAILED;

	if (huge && len % HUGE_PAGE == 0)
		p = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	s->huge = p != MAP_FAILED;
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

static int map_slabs(struct pool *p, uint64_t total, bool huge, uint32_t near_node)
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
		take_from(near_node, p->slabs[p->slab_count].mem, p->slabs[p->slab_count].len);
		total -= len;
	}
	return 0;
}

static void cut_slots(struct pool *p, const struct pool_opts *o)
{
	struct slot *s = p->slots;
	uint64_t at = 0;

	for (int k = 0; k < SLOT_CLASSES; k++) {
		const enum slot_class c = cut_order[k];

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

static void class_init(struct class_state *c, uint32_t count, uint32_t fixed,
		       const uint8_t *floor_pct)
{
	list_init(&c->free);
	c->count = c->free_count = count;
	for (int u = 0; u < POOL_USES; u++)
		c->floor[u] = (uint32_t)((uint64_t)(count - fixed) * floor_pct[u] / 100);
	c->floor[POOL_CTRL] += fixed;
}

int pool_new(const struct pool_opts *opts, struct pool **ret, struct err *err)
{
	const uint8_t *floor_pct = floor_default;
	uint64_t total = 0, slots = 0;
	uint32_t pct = 0;
	struct pool *p;
	int rc = -ENOMEM;

	for (int u = 0; u < POOL_USES; u++)
		pct += opts->floor_pct[u];
	if (pct)
		floor_pct = opts->floor_pct;
	for (int c = 0; c < SLOT_CLASSES; c++) {
		assert(opts->fixed[c] <= opts->count[c]);
		total += (uint64_t)opts->count[c] * class_size[c];
		slots += opts->count[c];
	}
	if (!slots || pct > FLOOR_PCT_MAX)
		return err_set(err, -EINVAL,
			       "a buffer pool needs slots, and floors of at most %d %% in all",
			       FLOOR_PCT_MAX);
	if (total > SLABS_MAX * SLAB_MAX)
		return err_set(err, -E2BIG, "a buffer pool of %lu MiB is more than %lu MiB",
			       (unsigned long)(total >> 20),
			       (unsigned long)(SLABS_MAX * SLAB_MAX >> 20));
	p = (struct pool *)calloc(1, sizeof(*p));
	if (!p)
		goto fail;
	for (int c = 0; c < SLOT_CLASSES; c++)
		class_init(&p->cls[c], opts->count[c], opts->fixed[c], floor_pct);
	for (int u = 0; u < POOL_USES; u++)
		list_init(&p->line[u]);
	p->slots = (struct slot *)calloc((size_t)slots, sizeof(*p->slots));
	if (!p->slots)
		goto fail;
	rc = map_slabs(p, total, opts->huge_pages, opts->near_node);
	if (rc < 0)
		goto fail;
	cut_slots(p, opts);
	p->slot_count = (uint32_t)slots;
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

/* ---- sets ---- */

static void set_needs(const struct pool_set *set, uint32_t need[SLOT_CLASSES])
{
	memset(need, 0, SLOT_CLASSES * sizeof(*need));
	for (uint32_t i = 0; i < set->parts; i++)
		need[set->part[i].cls] += set->part[i].n;
}

static uint32_t set_classes(const struct pool_set *set)
{
	uint32_t mask = 0;

	for (uint32_t i = 0; i < set->parts; i++)
		mask |= 1u << set->part[i].cls;
	return mask;
}

static uint64_t set_bytes(const struct pool_set *set)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < set->parts; i++)
		bytes += (uint64_t)set->part[i].n * class_size[set->part[i].cls];
	return bytes;
}

/* Slots of @c that @use leaves alone: what others have not used of their floors. */
static uint32_t kept_from(const struct class_state *c, enum pool_use use)
{
	uint32_t kept = 0;

	if (use == POOL_CTRL)
		return 0;
	for (int u = 0; u < POOL_USES; u++)
		if (u != (int)use && c->used[u] < c->floor[u])
			kept += c->floor[u] - c->used[u];
	return kept;
}

/* The classes that lack slots for @set; 0: it can be had. */
static uint32_t short_classes(const struct pool *p, const struct pool_set *set, enum pool_use use)
{
	uint32_t need[SLOT_CLASSES], mask = 0;

	set_needs(set, need);
	for (int c = 0; c < SLOT_CLASSES; c++)
		if (need[c] && p->cls[c].free_count < need[c] + kept_from(&p->cls[c], use))
			mask |= 1u << c;
	return mask;
}

bool pool_fits(const struct pool *p, const struct pool_set *set, enum pool_use use)
{
	uint32_t need[SLOT_CLASSES];

	set_needs(set, need);
	for (int c = 0; c < SLOT_CLASSES; c++) {
		const struct class_state *k = &p->cls[c];
		uint64_t kept = 0;

		for (int u = 0; u < POOL_USES && use != POOL_CTRL; u++)
			kept += u != (int)use ? k->floor[u] : 0;
		if (need[c] && need[c] + kept > k->count)
			return false;
	}
	return true;
}

static struct slot *slot_out(struct pool *p, uint8_t cls, enum pool_use use,
			     struct pool_budget *const budget[POOL_BUDGETS])
{
	struct class_state *c = &p->cls[cls];
	struct slot *s = container_of(list_pop(&c->free), struct slot, link);

	c->free_count--;
	c->used[use]++;
	p->out++;
	s->refs = 1;
	s->use = (uint8_t)use;
	for (int i = 0; i < POOL_BUDGETS; i++) {
		s->budget[i] = budget[i];
		if (budget[i])
			budget[i]->used += s->size;
	}
	metric_add(METRIC_POOL_FREE, -(uint64_t)s->size);
	return s;
}

struct slot *pool_get(struct pool *p, enum slot_class cls, enum pool_use use)
{
	static struct pool_budget *const no_budget[POOL_BUDGETS];
	const struct pool_set one = {.parts = 1, .part = {{(uint8_t)cls, 1}}};

	if (!short_classes(p, &one, use))
		return slot_out(p, (uint8_t)cls, use, no_budget);
	metric_add(METRIC_POOL_EMPTY, 1);
	return NULL;
}

/* ---- budgets ---- */

void pool_budget_init(struct pool_budget *b, uint64_t limit)
{
	*b = (struct pool_budget){.limit = limit};
	list_init(&b->waiters);
}

void pool_budget_end(struct pool *p, struct pool_budget *b)
{
	assert(list_empty(&b->waiters));
	for (uint32_t i = 0; i < p->slot_count && b->used; i++)
		for (int k = 0; k < POOL_BUDGETS; k++) {
			struct slot *s = &p->slots[i];

			if (s->budget[k] != b)
				continue;
			s->budget[k] = NULL;
			b->used -= s->size;
		}
}

/* The budget that @set would overdraw, or NULL. */
static struct pool_budget *overdrawn(const struct pool_ask *a, const struct pool_set *set)
{
	for (int i = 0; i < POOL_BUDGETS; i++) {
		struct pool_budget *b = a->budget[i];

		if (b && b->limit && b->used && b->used + set_bytes(set) > b->limit)
			return b;
	}
	return NULL;
}

/* ---- asking ---- */

static void give(struct pool *p, struct pool_ask *a, uint8_t form)
{
	const struct pool_set *set = &a->form[form];
	uint32_t n = 0;

	for (uint32_t i = 0; i < set->parts; i++)
		for (uint32_t k = 0; k < set->part[i].n; k++)
			a->slots[n++] = slot_out(p, set->part[i].cls, a->use, a->budget);
	a->got = form;
}

enum answer { GIVEN, OVER_BUDGET, DRY };

/* What is not to be had although it is free. */
struct reserved {
	/* classes that somebody earlier in line waits for, or a control message */
	uint32_t blocked;
	/* classes that a more important use waits for: it cannot have our floor, which we may take
	 */
	uint32_t above;
};

/* The classes of @set that are reserved for others. */
static uint32_t reserved_classes(const struct pool *p, const struct pool_set *set,
				 enum pool_use use, const struct reserved *res)
{
	uint32_t need[SLOT_CLASSES], mask = set_classes(set) & res->blocked;

	set_needs(set, need);
	for (int c = 0; c < SLOT_CLASSES; c++)
		if (need[c] && res->above >> c & 1 &&
		    p->cls[c].used[use] + need[c] > p->cls[c].floor[use])
			mask |= 1u << c;
	return mask;
}

static enum answer try_forms(struct pool *p, struct pool_ask *a, const struct reserved *res)
{
	enum answer why = OVER_BUDGET;

	for (uint8_t i = 0; i < a->forms; i++) {
		const struct pool_set *set = &a->form[i];

		if (overdrawn(a, set))
			continue;
		if (!reserved_classes(p, set, a->use, res) && !short_classes(p, set, a->use)) {
			give(p, a, i);
			return GIVEN;
		}
		why = DRY;
	}
	return why;
}

/* The classes that the first waiter of @use lacks. */
static uint32_t first_lacks(const struct pool *p, enum pool_use use)
{
	const struct list *line = &p->line[use];
	const struct pool_ask *a = container_of(line->next, struct pool_ask, link);

	return list_empty(line) ? 0 : short_classes(p, &a->form[a->forms - 1], use);
}

static struct reserved wanted_above(const struct pool *p, enum pool_use use)
{
	struct reserved res = {.blocked = use < POOL_CTRL ? first_lacks(p, POOL_CTRL) : 0};

	for (int u = (int)use + 1; u < POOL_CTRL; u++)
		res.above |= first_lacks(p, (enum pool_use)u);
	return res;
}

static bool somebody_waits(const struct pool *p, const struct pool_ask *a)
{
	for (int i = 0; i < POOL_BUDGETS; i++)
		if (a->budget[i] && !list_empty(&a->budget[i]->waiters))
			return true;
	return !list_empty(&p->line[a->use]);
}

bool pool_take(struct pool *p, struct pool_ask *a)
{
	const struct reserved res = wanted_above(p, a->use);

	if (!somebody_waits(p, a) && try_forms(p, a, &res) == GIVEN) {
		if (a->got && p->pressed)
			p->pressed(p->pressed_arg);
		return true;
	}
	metric_add(METRIC_POOL_EMPTY, 1);
	return false;
}

static void waited(struct pool *p, const struct pool_ask *a)
{
	static const uint64_t le_ns[] = {1000000, 10000000, 100000000, 1000000000, 10000000000};
	const uint64_t ns = clock_mono_ns() - a->since_ns;

	for (uint32_t i = 0; i < sizeof(le_ns) / sizeof(*le_ns); i++)
		if (ns <= le_ns[i])
			metric_add((enum metric)(METRIC_POOL_WAIT_1MS + i), 1);
	metric_add(METRIC_POOL_WAIT_INF, 1);
	metric_add(METRIC_POOL_WAIT_NS, ns);
	metric_add(METRIC_POOL_WAIT_COUNT, 1);
	metric_add((enum metric)(METRIC_POOL_WAITING_READ + a->use), -(uint64_t)1);
	p->waiting--;
}

/* Some of @b is free: its first waiters go back to their lines, as far as it reaches. True:
 * somebody did. */
static bool serve_budget(struct pool *p, struct pool_budget *b)
{
	uint64_t room = !b->limit ? UINT64_MAX : b->limit > b->used ? b->limit - b->used : 0;
	bool any = false;

	while (!list_empty(&b->waiters)) {
		struct pool_ask *a = container_of(b->waiters.next, struct pool_ask, link);
		const uint64_t bytes = set_bytes(&a->form[a->forms - 1]);

		if (b->used && bytes > room)
			break;
		room -= bytes < room ? bytes : room;
		list_del(&a->link);
		list_add_tail(&p->line[a->use], &a->link);
		any = true;
		if (!room)
			break;
	}
	return any;
}

/* The room of its budgets but @but is for those behind @a. */
static bool pass_on(struct pool *p, const struct pool_ask *a, const struct pool_budget *but)
{
	bool any = false;

	for (int i = 0; i < POOL_BUDGETS; i++)
		if (a->budget[i] && a->budget[i] != but && !list_empty(&a->budget[i]->waiters))
			any |= serve_budget(p, a->budget[i]);
	return any;
}

/* One use's line. Who is behind one that waits may pass only with classes that this one does not
 * need. True: some have come to the lines meanwhile. */
static bool serve_line(struct pool *p, enum pool_use use)
{
	struct list *line = &p->line[use];
	struct reserved res = wanted_above(p, use);
	uint32_t looked = 0;
	bool more = false;

	list_for_each (l, line) {
		struct pool_ask *a = container_of(l, struct pool_ask, link);
		enum answer how;

		if (looked > LINE_LOOK)
			break;
		how = try_forms(p, a, &res);
		if (how == DRY) {
			const struct pool_set *least = &a->form[a->forms - 1];

			res.blocked |= short_classes(p, least, use) |
				       reserved_classes(p, least, use, &res);
			looked++;
			continue;
		}
		list_del(&a->link);
		if (how == OVER_BUDGET) {
			struct pool_budget *b = overdrawn(a, &a->form[a->forms - 1]);

			list_add_tail(&b->waiters, &a->link);
			more |= pass_on(p, a, b);
			continue;
		}
		waited(p, a);
		a->granted(a);
	}
	return more;
}

/* Ends: nobody goes back to a budget that it has come from, for none has more room than before. */
static void serve(struct pool *p)
{
	bool more;

	do {
		more = false;
		for (int use = POOL_USES - 1; use >= 0; use--)
			if (!list_empty(&p->line[use]))
				more |= serve_line(p, (enum pool_use)use);
	} while (more);
}

void pool_wait(struct pool *p, struct pool_ask *a)
{
	a->since_ns = clock_mono_ns();
	metric_add((enum metric)(METRIC_POOL_WAITS_READ + a->use), 1);
	metric_add((enum metric)(METRIC_POOL_WAITING_READ + a->use), 1);
	p->waiting++;
	list_add_tail(&p->line[a->use], &a->link);
	if (serve_line(p, a->use))
		serve(p);
	if (p->pressed && pool_is_waiting(a))
		p->pressed(p->pressed_arg);
}

void pool_wait_cancel(struct pool *p, struct pool_ask *a)
{
	if (!list_is_linked(&a->link))
		return;
	list_del(&a->link);
	waited(p, a);
	/* Whoever stood behind it may be served now. */
	(void)pass_on(p, a, NULL);
	serve(p);
}

bool pool_is_pressed(const struct pool *p)
{
	return p->waiting > 0;
}

bool pool_lacks_slots(const struct pool *p)
{
	for (int use = 0; use < POOL_USES; use++)
		if (!list_empty(&p->line[use]))
			return true;
	return false;
}

void pool_on_pressed(struct pool *p, void (*pressed)(void *arg), void *arg)
{
	p->pressed = pressed;
	p->pressed_arg = arg;
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
	p->cls[s->cls].used[s->use]--;
	list_add(&p->cls[s->cls].free, &s->link); /* the warmest first */
	metric_add(METRIC_POOL_FREE, s->size);
	for (int i = 0; i < POOL_BUDGETS; i++) {
		struct pool_budget *b = s->budget[i];

		s->budget[i] = NULL;
		if (!b)
			continue;
		b->used -= s->size;
		if (!list_empty(&b->waiters))
			serve_budget(p, b);
	}
	serve(p);
}

bool pool_is_huge(const struct pool *p)
{
	for (uint32_t i = 0; i < p->slab_count; i++)
		if (!p->slabs[i].huge)
			return false;
	return true;
}

uint64_t pool_bytes(const struct pool *p)
{
	return p->bytes;
}

uint32_t pool_count(const struct pool *p, enum slot_class cls)
{
	return p->cls[cls].count;
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
