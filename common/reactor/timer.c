/* SPDX-License-Identifier: Apache-2.0 */
/* Timers of a reactor: a heap by deadline. */
#include "common/reactor/reactor_internal.h"

#include <stdlib.h>

static void place(struct timer_heap *h, uint32_t i, struct rtimer *t)
{
	h->v[i] = t;
	t->heap_idx = i;
}

static void sift_up(struct timer_heap *h, uint32_t i, struct rtimer *t)
{
	while (i > 0 && h->v[(i - 1) / 2]->deadline_ns > t->deadline_ns) {
		place(h, i, h->v[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	place(h, i, t);
}

static void sift_down(struct timer_heap *h, uint32_t i, struct rtimer *t)
{
	for (uint32_t child; (child = 2 * i + 1) < h->n; i = child) {
		if (child + 1 < h->n && h->v[child + 1]->deadline_ns < h->v[child]->deadline_ns)
			child++;
		if (h->v[child]->deadline_ns >= t->deadline_ns)
			break;
		place(h, i, h->v[child]);
	}
	place(h, i, t);
}

static void heap_remove(struct timer_heap *h, struct rtimer *t)
{
	uint32_t i = t->heap_idx;
	struct rtimer *last = h->v[--h->n];

	t->deadline_ns = 0;
	if (last == t)
		return;
	if (i > 0 && h->v[(i - 1) / 2]->deadline_ns > last->deadline_ns)
		sift_up(h, i, last);
	else
		sift_down(h, i, last);
}

static void heap_grow(struct timer_heap *h)
{
	uint32_t cap = h->cap ? h->cap * 2 : 256;
	struct rtimer **v = (struct rtimer **)realloc(h->v, cap * sizeof(*v));

	if (!v)
		abort(); /* a lost deadline would hang someone for ever */
	h->v = v;
	h->cap = cap;
}

void reactor_timer_set(struct reactor *r, struct rtimer *t, uint64_t deadline_ns)
{
	struct timer_heap *h = &r->timers;

	reactor_timer_clear(r, t);
	if (h->n == h->cap)
		heap_grow(h);
	t->deadline_ns = deadline_ns ? deadline_ns : 1;
	sift_up(h, h->n++, t);
}

void reactor_timer_clear(struct reactor *r, struct rtimer *t)
{
	if (t->deadline_ns)
		heap_remove(&r->timers, t);
}

uint64_t timer_heap_next(const struct timer_heap *h)
{
	return h->n ? h->v[0]->deadline_ns : 0;
}

uint32_t timer_heap_run(struct timer_heap *h, uint64_t now_ns)
{
	uint32_t fired = 0;

	for (uint32_t limit = h->n; fired < limit && h->n && h->v[0]->deadline_ns <= now_ns;
	     fired++) {
		struct rtimer *t = h->v[0];

		heap_remove(h, t);
		t->fire(t);
	}
	return fired;
}

void timer_heap_fini(struct timer_heap *h)
{
	for (uint32_t i = 0; i < h->n; i++)
		h->v[i]->deadline_ns = 0;
	free(h->v);
	*h = (struct timer_heap){0};
}
