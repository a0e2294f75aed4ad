/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: slots are aligned, never cross a slab and never overlap; a client cannot take the
 * reserve; waiters are served in order and by importance; nothing is lost. */
#include "common/reactor/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

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

static void clients_leave_the_reserve_to_peers_and_peers_some_to_control(void **state)
{
	struct pool *p = make_pool(16, 0, 0);
	struct slot *s[16];
	int n = 0;

	(void)state;
	while ((s[n] = pool_get(p, SLOT_8K, POOL_CLIENT)))
		n++;
	assert_int_equal(n, 12);
	while ((s[n] = pool_get(p, SLOT_8K, POOL_PEER)))
		n++;
	assert_int_equal(n, 15);
	s[n++] = pool_get(p, SLOT_8K, POOL_CTRL);
	assert_non_null(s[15]);
	assert_null(pool_get(p, SLOT_8K, POOL_CTRL));
	while (n)
		slot_put(s[--n]);
	pool_free(p);
}

static void what_is_taken_for_good_is_no_part_of_the_reserve(void **state)
{
	const struct pool_opts o = {.count = {16}, .fixed = {12}};
	struct slot *s[16];
	struct err err = ERR_INIT;
	struct pool *p;
	int n = 0;

	(void)state;
	assert_int_equal(pool_new(&o, &p, &err), 0);
	while (n < 12)
		s[n++] = pool_get(p, SLOT_8K, POOL_CTRL);
	while ((s[n] = pool_get(p, SLOT_8K, POOL_CLIENT)))
		n++;
	assert_int_equal(n, 15);
	while (n)
		slot_put(s[--n]);
	pool_free(p);
}

static void a_slot_returns_with_its_last_reference(void **state)
{
	struct pool *p = make_pool(1, 0, 0);
	struct slot *s = pool_get(p, SLOT_8K, POOL_CLIENT);

	(void)state;
	slot_ref(s);
	slot_put(s);
	assert_int_equal(pool_slots_out(p), 1);
	slot_put(s);
	assert_int_equal(pool_slots_out(p), 0);
	slot_put(NULL);
	pool_free(p);
}

struct asker {
	struct pool_waiter w;
	struct slot *got;
	int order;
};
static int order;

static void granted(struct pool_waiter *w, struct slot *slot)
{
	struct asker *a = container_of(w, struct asker, w);

	a->got = slot;
	a->order = ++order;
}

static void waiters_are_served_by_importance_then_in_order(void **state)
{
	struct pool *p = make_pool(2, 0, 0);
	struct slot *a = pool_get(p, SLOT_8K, POOL_CLIENT), *b = pool_get(p, SLOT_8K, POOL_CLIENT);
	struct asker q[5] = {0};
	static const enum pool_use use[5] = {POOL_CLIENT, POOL_CLIENT, POOL_PEER, POOL_CTRL,
					     POOL_CLIENT};

	(void)state;
	order = 0;
	for (int i = 0; i < 5; i++) {
		q[i].w.granted = granted;
		pool_wait(p, SLOT_8K, use[i], &q[i].w);
	}
	pool_wait_cancel(p, &q[1].w);
	pool_wait_cancel(p, &q[1].w);
	slot_put(a);
	assert_non_null(q[3].got);
	slot_put(b);
	assert_non_null(q[2].got);
	slot_put(q[3].got);
	slot_put(q[2].got);
	assert_int_equal(q[0].order, 3);
	assert_int_equal(q[4].order, 4);
	assert_null(q[1].got);
	pool_wait_cancel(p, &q[0].w);
	slot_put(q[0].got);
	slot_put(q[4].got);
	pool_free(p);
}

static void asking_in_line_while_a_slot_is_free_serves_at_once(void **state)
{
	struct pool *p = make_pool(1, 0, 0);
	struct asker q = {.w.granted = granted};

	(void)state;
	pool_wait(p, SLOT_8K, POOL_CLIENT, &q.w);
	assert_non_null(q.got);
	slot_put(q.got);
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
	s = pool_get(p, SLOT_64K, POOL_CLIENT);
	memset(s->data, 1, s->size);
	slot_put(s);
	pool_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(slots_are_aligned_and_lie_in_their_slab),
	    cmocka_unit_test(a_pool_over_one_gibibyte_has_two_slabs),
	    cmocka_unit_test(clients_leave_the_reserve_to_peers_and_peers_some_to_control),
	    cmocka_unit_test(what_is_taken_for_good_is_no_part_of_the_reserve),
	    cmocka_unit_test(a_slot_returns_with_its_last_reference),
	    cmocka_unit_test(waiters_are_served_by_importance_then_in_order),
	    cmocka_unit_test(asking_in_line_while_a_slot_is_free_serves_at_once),
	    cmocka_unit_test(impossible_pools_are_refused_with_a_reason),
	    cmocka_unit_test(huge_pages_fall_back_to_ordinary_ones),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
