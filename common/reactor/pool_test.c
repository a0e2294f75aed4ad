/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: slots are aligned, never cross a slab and never overlap; a set comes whole or not at
 * all, in a smaller form when the better one cannot be had; no use takes another's floor; waiters
 * are served in order and by importance; a budget holds back only those who share it; nothing is
 * lost; waits are counted and timed. */
#include "common/reactor/pool.h"

#include <linux/mempolicy.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/metrics.h"

static struct pool *make_pool(uint32_t n8k, uint32_t n64k, uint32_t n1m)
{
	struct pool_opts o = {.count = {[SLOT_8K] = n8k, [SLOT_64K] = n64k, [SLOT_1M] = n1m}};
	struct pool *p = NULL;

	assert_int_equal(pool_new(&o, &p, NULL), 0);
	return p;
}

static void slots_are_aligned_and_lie_in_their_slab(void **state)
{
	struct pool *p = make_pool(4, 4, 4);
	struct slot *s[12];
	int n = 0;

	(void)state;
	for (int c = 0; c < SLOT_CLASSES; c++) {
		while (n < 12 && (s[n] = pool_get(p, (enum slot_class)c, POOL_CTRL))) {
			size_t len;
			uint8_t *slab = (uint8_t *)pool_slab(p, s[n]->slab, &len);

			assert_int_equal((uintptr_t)s[n]->data % 4096, 0);
			assert_true(s[n]->data >= slab && s[n]->data + s[n]->size <= slab + len);
			memset(s[n]->data, n, s[n]->size);
			n++;
		}
	}
	assert_int_equal(n, 12);
	assert_int_equal(pool_slots_out(p), 12);
	for (int i = 0; i < n; i++) {
		assert_int_equal(s[i]->data[0], i);
		assert_int_equal(s[i]->data[s[i]->size - 1], i);
		slot_put(s[i]);
	}
	assert_int_equal(pool_slots_out(p), 0);
	pool_free(p);
}

static void a_pool_over_one_gibibyte_has_two_slabs(void **state)
{
	struct pool *p = make_pool(1, 0, 1025);
	size_t len;

	(void)state;
	assert_int_equal(pool_slab_count(p), 2);
	pool_slab(p, 0, &len);
	assert_int_equal(len, 1ul << 30);
	pool_slab(p, 1, &len);
	assert_int_equal(len, (1ul << 20) + 8192);
	pool_free(p);
}

static void every_use_leaves_the_floors_of_the_others_alone(void **state)
{
	static const enum pool_use order_of[] = {POOL_READ, POOL_WRITE, POOL_PEER, POOL_REBUILD,
						 POOL_CTRL};
	/* all but the others' floors, then each its own */
	static const int get[] = {80, 7, 7, 3, 3};
	struct pool_opts o = {.count = {[SLOT_8K] = 100}};
	struct slot *s[100];
	struct pool *p = NULL;
	int n = 0;

	(void)state;
	o.floor_pct[POOL_READ] = 12;
	o.floor_pct[POOL_WRITE] = o.floor_pct[POOL_PEER] = 7;
	o.floor_pct[POOL_REBUILD] = o.floor_pct[POOL_CTRL] = 3;
	assert_int_equal(pool_new(&o, &p, NULL), 0);
	for (int u = 0; u < 5; u++) {
		int mine = 0;

		while ((s[n] = pool_get(p, SLOT_8K, order_of[u]))) {
			mine++;
			if (++n == 100)
				break;
		}
		assert_int_equal(mine, get[u]);
	}
	assert_int_equal(n, 100);
	while (n)
		slot_put(s[--n]);
	pool_free(p);
}

static void what_is_taken_for_good_is_no_part_of_a_floor(void **state)
{
	const struct pool_opts o = {.count = {16}, .fixed = {12}, .floor_pct = {[POOL_PEER] = 25}};
	struct slot *s[16];
	struct err err = ERR_INIT;
	struct pool *p;
	int n = 0;

	(void)state;
	assert_int_equal(pool_new(&o, &p, &err), 0);
	while (n < 12)
		s[n++] = pool_get(p, SLOT_8K, POOL_CTRL);
	while ((s[n] = pool_get(p, SLOT_8K, POOL_READ)))
		n++;
	assert_int_equal(n, 15);
	while (n)
		slot_put(s[--n]);
	pool_free(p);
}

static void a_slot_returns_with_its_last_reference(void **state)
{
	struct pool *p = make_pool(1, 0, 0);
	struct slot *s = pool_get(p, SLOT_8K, POOL_READ);

	(void)state;
	slot_ref(s);
	slot_put(s);
	assert_int_equal(pool_slots_out(p), 1);
	slot_put(s);
	assert_int_equal(pool_slots_out(p), 0);
	slot_put(NULL);
	pool_free(p);
}

static void a_budget_may_go_before_slots_that_are_charged_to_it(void **state)
{
	struct pool *p = make_pool(3, 0, 0);
	struct pool_budget goes, stays;
	struct slot *s[3] = {NULL};
	struct pool_ask a = {.budget = {&goes, NULL, &stays},
			     .forms = 1,
			     .form = {{.parts = 1, .part = {{SLOT_8K, 2}}}},
			     .slots = s};

	(void)state;
	pool_budget_init(&goes, 1 << 20);
	pool_budget_init(&stays, 1 << 20);
	assert_true(pool_take(p, &a));
	a.budget[0] = NULL;
	a.form[0].part[0].n = 1;
	a.slots = s + 2;
	assert_true(pool_take(p, &a));
	assert_int_equal(goes.used, 16384);
	pool_budget_end(p, &goes);
	assert_int_equal(goes.used, 0);
	memset(&goes, 0xee, sizeof(goes)); /* somebody else's memory */
	assert_int_equal(stays.used, 3 * 8192);
	for (int i = 0; i < 3; i++)
		slot_put(s[i]);
	for (size_t i = 0; i < sizeof(goes); i++)
		assert_int_equal(((uint8_t *)&goes)[i], 0xee);
	assert_int_equal(stays.used, 0);
	pool_free(p);
}

struct asker {
	struct pool_ask ask;
	struct slot *got[4];
	int order;
};
static int order;

static void granted(struct pool_ask *ask)
{
	container_of(ask, struct asker, ask)->order = ++order;
}

/* @n slots of @cls, and as many of SLOT_CRC when @crcs. */
static void add_form(struct asker *a, enum slot_class cls, uint16_t n, uint16_t crcs)
{
	struct pool_set *f = &a->ask.form[a->ask.forms++];

	a->ask.slots = a->got;
	a->ask.granted = granted;
	*f = (struct pool_set){.parts = crcs ? 2 : 1,
			       .part = {{(uint8_t)cls, n}, {SLOT_CRC, crcs}}};
}

static void give_back(struct asker *a)
{
	for (int i = 0; i < 4; i++)
		slot_put(a->got[i]);
	memset(a->got, 0, sizeof(a->got));
}

static struct pool *pool_without_floors(uint32_t n8k, uint32_t n64k, uint32_t n1m, uint32_t crcs)
{
	const struct pool_opts o = {.count = {n8k, n64k, 0, n1m, crcs},
				    .floor_pct = {[POOL_CTRL] = 1}};
	struct pool *p = NULL;

	assert_int_equal(pool_new(&o, &p, NULL), 0);
	return p;
}

static void waiters_are_served_by_importance_then_in_order(void **state)
{
	struct pool *p = pool_without_floors(2, 0, 0, 0);
	struct slot *a = pool_get(p, SLOT_8K, POOL_READ), *b = pool_get(p, SLOT_8K, POOL_READ);
	struct asker q[5] = {0};
	static const enum pool_use use[5] = {POOL_READ, POOL_READ, POOL_PEER, POOL_CTRL, POOL_READ};

	(void)state;
	order = 0;
	for (int i = 0; i < 5; i++) {
		add_form(&q[i], SLOT_8K, 1, 0);
		q[i].ask.use = use[i];
		pool_wait(p, &q[i].ask);
		assert_true(pool_is_waiting(&q[i].ask));
	}
	pool_wait_cancel(p, &q[1].ask);
	pool_wait_cancel(p, &q[1].ask);
	slot_put(a);
	assert_int_equal(q[3].order, 1);
	slot_put(b);
	assert_int_equal(q[2].order, 2);
	give_back(&q[3]);
	give_back(&q[2]);
	assert_int_equal(q[0].order, 3);
	assert_int_equal(q[4].order, 4);
	assert_int_equal(q[1].order, 0);
	pool_wait_cancel(p, &q[0].ask);
	give_back(&q[0]);
	give_back(&q[4]);
	pool_free(p);
}

/* Writers have all but the floors, and more of them wait. Who reads has its floor all the same, and
 * no more. */
static void a_use_has_its_floor_though_more_important_ones_wait(void **state)
{
	const struct pool_opts o = {.count = {[SLOT_8K] = 10},
				    .floor_pct = {[POOL_READ] = 20, [POOL_PEER] = 10}};
	struct pool *p = NULL;
	struct slot *held[7];
	struct asker writer = {.ask.use = POOL_WRITE}, reader[3] = {0};

	(void)state;
	assert_int_equal(pool_new(&o, &p, NULL), 0);
	for (int i = 0; i < 7; i++)
		assert_non_null(held[i] = pool_get(p, SLOT_8K, POOL_WRITE));
	add_form(&writer, SLOT_8K, 1, 0);
	pool_wait(p, &writer.ask);
	assert_true(pool_is_waiting(&writer.ask));
	for (int i = 0; i < 3; i++)
		add_form(&reader[i], SLOT_8K, 1, 0);
	assert_true(pool_take(p, &reader[0].ask));
	pool_wait(p, &reader[1].ask);
	assert_non_null(reader[1].got[0]);
	pool_wait(p, &reader[2].ask);
	assert_true(pool_is_waiting(&reader[2].ask));
	slot_put(held[0]); /* beyond the floors: the writer's */
	assert_non_null(writer.got[0]);
	assert_true(pool_is_waiting(&reader[2].ask));
	give_back(&reader[0]);
	assert_non_null(reader[2].got[0]);
	for (int i = 1; i < 7; i++)
		slot_put(held[i]);
	give_back(&writer);
	give_back(&reader[1]);
	give_back(&reader[2]);
	pool_free(p);
}

static void asking_in_line_while_a_slot_is_free_serves_at_once(void **state)
{
	struct pool *p = pool_without_floors(1, 0, 0, 0);
	struct asker q = {.order = 0};

	(void)state;
	add_form(&q, SLOT_8K, 1, 0);
	pool_wait(p, &q.ask);
	assert_non_null(q.got[0]);
	give_back(&q);
	pool_free(p);
}

/* Two who need data and CRCs each, and there is one CRC slot: with one slot each they would wait
 * for ever. */
static void a_set_comes_whole_or_not_at_all(void **state)
{
	struct pool *p = pool_without_floors(4, 0, 0, 1);
	struct asker q[3] = {0};

	(void)state;
	for (int i = 0; i < 3; i++)
		add_form(&q[i], SLOT_8K, 1, 1);
	assert_true(pool_take(p, &q[0].ask));
	assert_false(pool_take(p, &q[1].ask));
	assert_int_equal(pool_slots_out(p), 2);
	pool_wait(p, &q[1].ask);
	pool_wait(p, &q[2].ask);
	assert_int_equal(pool_slots_out(p), 2);
	give_back(&q[0]);
	assert_non_null(q[1].got[0]);
	assert_non_null(q[1].got[1]);
	assert_null(q[2].got[0]);
	give_back(&q[1]);
	assert_non_null(q[2].got[1]);
	give_back(&q[2]);
	assert_int_equal(pool_slots_out(p), 0);
	pool_free(p);
}

static void a_set_that_cannot_be_had_comes_smaller(void **state)
{
	struct pool *p = pool_without_floors(1, 1, 1, 3);
	struct asker q[4] = {0};

	(void)state;
	for (int i = 0; i < 4; i++) {
		add_form(&q[i], SLOT_1M, 1, 1);
		add_form(&q[i], SLOT_64K, 1, 1);
		add_form(&q[i], SLOT_8K, 1, 1);
	}
	for (int i = 0; i < 3; i++) {
		assert_true(pool_take(p, &q[i].ask));
		assert_int_equal(q[i].ask.got, i);
	}
	pool_wait(p, &q[3].ask);
	give_back(&q[1]);
	assert_int_equal(q[3].ask.got, 1);
	assert_int_equal(q[3].got[0]->size, 65536);
	give_back(&q[0]);
	give_back(&q[2]);
	give_back(&q[3]);
	pool_free(p);
}

static void who_comes_later_does_not_overtake_one_who_waits(void **state)
{
	struct pool *p = pool_without_floors(2, 1, 0, 0);
	struct asker big = {0}, small = {0}, other = {0};
	struct slot *s = pool_get(p, SLOT_8K, POOL_READ);

	(void)state;
	add_form(&big, SLOT_8K, 2, 0);
	add_form(&small, SLOT_8K, 1, 0);
	add_form(&other, SLOT_64K, 1, 0);
	pool_wait(p, &big.ask);
	assert_false(pool_take(p, &small.ask));
	pool_wait(p, &small.ask);
	assert_null(small.got[0]);
	pool_wait(p, &other.ask); /* of a class that nobody waits for */
	assert_non_null(other.got[0]);
	slot_put(s);
	assert_non_null(big.got[1]);
	assert_null(small.got[0]);
	give_back(&big);
	assert_non_null(small.got[0]);
	give_back(&small);
	give_back(&other);
	pool_free(p);
}

static void a_budget_holds_back_only_those_who_share_it(void **state)
{
	struct pool *p = pool_without_floors(8, 0, 0, 0);
	struct pool_budget disk;
	struct asker q[4] = {0};

	(void)state;
	pool_budget_init(&disk, 16384);
	for (int i = 0; i < 4; i++) {
		add_form(&q[i], SLOT_8K, 1, 0);
		q[i].ask.budget[1] = i < 3 ? &disk : NULL;
	}
	pool_wait(p, &q[0].ask);
	pool_wait(p, &q[1].ask);
	pool_wait(p, &q[2].ask);
	assert_null(q[2].got[0]);
	assert_true(pool_is_pressed(p)); /* those who share the budget may have some to give back */
	assert_true(pool_take(p, &q[3].ask));
	give_back(&q[0]);
	assert_non_null(q[2].got[0]);
	assert_int_equal(disk.used, 16384);
	for (int i = 1; i < 4; i++)
		give_back(&q[i]);
	assert_int_equal(disk.used, 0);
	pool_free(p);
}

/* Three share the total; two of them share a disk that then has no room, which the third does not
 * need. */
static void room_of_a_budget_goes_to_who_can_use_it(void **state)
{
	struct pool *p = pool_without_floors(8, 0, 0, 0);
	struct pool_budget disk, total;
	struct asker q[5] = {0};

	(void)state;
	pool_budget_init(&disk, 8192);
	pool_budget_init(&total, 16384);
	for (int i = 0; i < 5; i++) {
		add_form(&q[i], SLOT_8K, 1, 0);
		q[i].ask.budget[0] = i == 2 || i == 3 ? &disk : NULL;
		q[i].ask.budget[1] = &total;
		pool_wait(p, &q[i].ask);
	}
	assert_null(q[2].got[0]);
	give_back(&q[0]);
	assert_non_null(q[2].got[0]);
	give_back(&q[1]);
	assert_null(q[3].got[0]);
	assert_non_null(q[4].got[0]);
	give_back(&q[2]);
	assert_non_null(q[3].got[0]);
	give_back(&q[3]);
	give_back(&q[4]);
	assert_int_equal(disk.used + total.used, 0);
	pool_free(p);
}

static void a_stream_that_is_alone_may_overdraw_its_budget(void **state)
{
	struct pool *p = pool_without_floors(0, 0, 1, 0);
	struct pool_budget disk;
	struct asker q = {.order = 0};

	(void)state;
	pool_budget_init(&disk, 4096);
	add_form(&q, SLOT_1M, 1, 0);
	q.ask.budget[0] = &disk;
	assert_true(pool_take(p, &q.ask));
	give_back(&q);
	pool_free(p);
}

static void note_pressed(void *arg)
{
	++*(int *)arg;
}

static void who_waits_for_slots_presses_those_who_hold_them(void **state)
{
	struct pool *p = pool_without_floors(1, 0, 0, 0);
	struct asker q[2] = {0};
	int pressed = 0;

	(void)state;
	pool_on_pressed(p, note_pressed, &pressed);
	add_form(&q[0], SLOT_8K, 1, 0);
	add_form(&q[1], SLOT_8K, 1, 0);
	pool_wait(p, &q[0].ask);
	assert_int_equal(pressed, 0);
	pool_wait(p, &q[1].ask);
	assert_int_equal(pressed, 1);
	assert_true(pool_is_pressed(p));
	give_back(&q[0]);
	assert_false(pool_is_pressed(p));
	give_back(&q[1]);
	pool_free(p);
}

/* Thousands of small sets, in a random order of asking and giving back, each takes its turn. */
static void five_thousand_askers_are_all_served(void **state)
{
	static struct asker q[5000];
	struct pool *p = pool_without_floors(16, 4, 1, 12);
	uint32_t seed = 1, served = 0;

	(void)state;
	memset(q, 0, sizeof(q));
	for (int i = 0; i < 5000; i++) {
		if (i % 3 == 0)
			add_form(&q[i], SLOT_1M, 1, 1);
		if (i % 3 < 2)
			add_form(&q[i], SLOT_64K, 1, 1);
		add_form(&q[i], SLOT_8K, 1, 1);
		q[i].ask.use = (enum pool_use)(i % POOL_USES);
		pool_wait(p, &q[i].ask);
	}
	while (served < 5000) {
		uint32_t before = served;

		seed = seed * 1664525u + 1013904223u;
		for (uint32_t i = 0; i < 5000; i++) {
			struct asker *a = &q[(i + seed) % 5000];

			if (!a->got[0])
				continue;
			give_back(a);
			served++;
		}
		assert_true(served > before);
	}
	assert_int_equal(pool_slots_out(p), 0);
	pool_free(p);
}

static void impossible_pools_are_refused_with_a_reason(void **state)
{
	struct pool_opts none = {0}, huge = {.count = {[SLOT_1M] = UINT32_MAX}};
	struct pool *p = NULL;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(pool_new(&none, &p, &err), -EINVAL);
	assert_string_not_equal(err.text, "");
	assert_int_equal(pool_new(&huge, &p, &err), -E2BIG);
	assert_non_null(strstr(err.text, "MiB"));
	assert_null(p);
	pool_free(NULL);
}

static void huge_pages_fall_back_to_ordinary_ones(void **state)
{
	struct pool_opts o = {.count = {[SLOT_64K] = 4}, .huge_pages = true};
	struct pool *p = NULL;
	struct slot *s;

	(void)state;
	assert_int_equal(pool_new(&o, &p, NULL), 0);
	s = pool_get(p, SLOT_64K, POOL_READ);
	memset(s->data, 1, s->size);
	slot_put(s);
	pool_free(p);
}

static void memory_is_asked_of_the_node(void **state)
{
	struct pool_opts o = {.count = {[SLOT_64K] = 4}};
	unsigned long nodes[1025 / (8 * sizeof(unsigned long)) + 1];
	int policy;

	(void)state;
	for (uint32_t near_node = 0; near_node < 2; near_node++) {
		struct pool *p = NULL;
		size_t len;

		o.near_node = near_node;
		assert_int_equal(pool_new(&o, &p, NULL), 0);
		if (syscall(SYS_get_mempolicy, &policy, nodes, 1025ul, pool_slab(p, 0, &len),
			    MPOL_F_ADDR)) {
			pool_free(p);
			skip(); /* a kernel without NUMA */
		}
		assert_int_equal(policy, near_node ? MPOL_PREFERRED : MPOL_DEFAULT);
		assert_int_equal(nodes[0], near_node); /* a bit for node 0 */
		pool_free(p);
	}
}

/* ---- /metrics ---- */

/* Of the line that begins with @name. */
static double metric_line(const char *name)
{
	char *text = metrics_format(NULL), *at;
	double v;

	assert_non_null(text);
	at = strstr(text, name);
	assert_non_null(at);
	assert_true(at[-1] == '\n' && at[strlen(name)] == ' ');
	v = strtod(at + strlen(name), NULL);
	free(text);
	return v;
}

static double metric_of_use(const char *name, const char *use)
{
	char line[64];

	(void)snprintf(line, sizeof(line), "%s{use=\"%s\"}", name, use);
	return metric_line(line);
}

static const char *const buckets[] = {"0.001", "0.01", "0.1", "1", "10", "+Inf"};
#define BUCKETS (sizeof(buckets) / sizeof(*buckets))
#define FIRST_OF_5S 4 /* the bucket of 10 s */

struct waits { /* the histogram */
	double bucket[BUCKETS], sum, count;
};

static struct waits waits_now(void)
{
	struct waits w = {.sum = metric_line("dfs_pool_wait_seconds_sum"),
			  .count = metric_line("dfs_pool_wait_seconds_count")};
	char line[64];

	for (size_t i = 0; i < BUCKETS; i++) {
		(void)snprintf(line, sizeof(line), "dfs_pool_wait_seconds_bucket{le=\"%s\"}",
			       buckets[i]);
		w.bucket[i] = metric_line(line);
	}
	return w;
}

/* One more wait since @before, of @seconds, which is in the buckets from @first. */
static void assert_waited(const struct waits *before, double seconds, size_t first)
{
	const struct waits now = waits_now();

	for (size_t i = 0; i < BUCKETS; i++)
		assert_int_equal(now.bucket[i] - before->bucket[i], i >= first);
	assert_int_equal(now.count - before->count, 1);
	assert_true(now.sum - before->sum >= seconds - 0.001);
}

static void waits_are_counted_by_use_and_timed(void **state)
{
	static const char *const uses[POOL_USES] = {"read", "write", "peer", "rebuild", "control"};
	struct pool *p = pool_without_floors(1, 0, 0, 0);

	(void)state;
	for (int u = 0; u < POOL_USES; u++) {
		for (int in_vain = 0; in_vain < 2; in_vain++) {
			struct slot *held = pool_get(p, SLOT_8K, POOL_CTRL);
			const double counted = metric_of_use("dfs_pool_waits_total", uses[u]);
			const struct waits before = waits_now();
			struct asker a = {.ask.use = (enum pool_use)u};

			add_form(&a, SLOT_8K, 1, 0);
			pool_wait(p, &a.ask);
			assert_int_equal(metric_of_use("dfs_pool_waits_total", uses[u]) - counted,
					 1);
			for (int o = 0; o < POOL_USES; o++)
				assert_int_equal(metric_of_use("dfs_pool_waiting", uses[o]),
						 o == u);
			a.ask.since_ns -= (in_vain ? 20 : 5) * NS_PER_S;
			if (in_vain)
				pool_wait_cancel(p, &a.ask);
			slot_put(held);
			assert_int_equal(a.got[0] != NULL, !in_vain);
			assert_int_equal(metric_of_use("dfs_pool_waiting", uses[u]), 0);
			assert_waited(&before, in_vain ? 20 : 5,
				      in_vain ? BUCKETS - 1 : FIRST_OF_5S);
			give_back(&a);
		}
	}
	pool_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slots_are_aligned_and_lie_in_their_slab),
		cmocka_unit_test(a_pool_over_one_gibibyte_has_two_slabs),
		cmocka_unit_test(every_use_leaves_the_floors_of_the_others_alone),
		cmocka_unit_test(what_is_taken_for_good_is_no_part_of_a_floor),
		cmocka_unit_test(a_slot_returns_with_its_last_reference),
		cmocka_unit_test(a_budget_may_go_before_slots_that_are_charged_to_it),
		cmocka_unit_test(waiters_are_served_by_importance_then_in_order),
		cmocka_unit_test(a_use_has_its_floor_though_more_important_ones_wait),
		cmocka_unit_test(asking_in_line_while_a_slot_is_free_serves_at_once),
		cmocka_unit_test(a_set_comes_whole_or_not_at_all),
		cmocka_unit_test(a_set_that_cannot_be_had_comes_smaller),
		cmocka_unit_test(who_comes_later_does_not_overtake_one_who_waits),
		cmocka_unit_test(a_budget_holds_back_only_those_who_share_it),
		cmocka_unit_test(room_of_a_budget_goes_to_who_can_use_it),
		cmocka_unit_test(a_stream_that_is_alone_may_overdraw_its_budget),
		cmocka_unit_test(who_waits_for_slots_presses_those_who_hold_them),
		cmocka_unit_test(five_thousand_askers_are_all_served),
		cmocka_unit_test(impossible_pools_are_refused_with_a_reason),
		cmocka_unit_test(huge_pages_fall_back_to_ordinary_ones),
		cmocka_unit_test(memory_is_asked_of_the_node),
		cmocka_unit_test(waits_are_counted_by_use_and_timed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
