/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: a target that fails is left behind and the others have their units; no unit is made of
 * itself; who takes a unit himself has it in order; and a wait for buffers lasts as long as it may.
 */
#include "datanode/reconstruct/reconstruct_test_fixture.h"

static void take(struct reconstruct_taker *t, const uint8_t *data, uint32_t len, enum crc_type type,
		 uint32_t bpc)
{
	(void)t, (void)type, (void)bpc;
	assert_true(res.taken_len + len <= UNIT_MAX);
	memcpy(res.taken + res.taken_len, data, len);
	res.taken_len += len;
}

/* ---- tests ---- */

static void a_target_that_fails_is_left_behind(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 60; seed++) {
		const uint32_t want = 1u << 1 | 1u << 4;
		const unsigned int bad = seed % 2 ? 4 : 1;
		int rc;

		rnd = seed * 11 + 1;
		make_group(EC_CODEC_RS, 3, 2, 3 * 65536 + 65536 + random_below(140000));
		hop_fault[bad] = (enum hop_fault)(1 + random_below(HOP_FAULTS - 1));
		if (seed % 5 == 0) /* both: the order fails */
			hop_fault[5 - bad] = HOP_REFUSES;
		rc = rebuild(want, all_units() & ~want, false, NULL);
		if (seed % 5 == 0)
			assert_true(rc < 0);
		else
			assert_int_equal(rc, 0);
		assert_int_equal(check_targets(want, false), seed % 5 != 0);
	}
}

static void a_unit_is_not_made_of_itself(void **state)
{
	(void)state;
	rnd = 3;
	make_group(EC_CODEC_RS, 3, 2, 3 * 65536);
	for (unsigned int u = 0; u < 5; u++) {
		const uint32_t want = 1u << u;

		assert_int_equal(rebuild(want, all_units(), false, NULL), -EINVAL);
		assert_int_equal(check_targets(want, false), 0);
	}
}

static void a_taker_gets_the_unit_in_order(void **state)
{
	struct reconstruct_taker t = {.bytes = take};

	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		const unsigned int u = (unsigned int)(seed % 5);

		rnd = seed + 1;
		make_group(EC_CODEC_RS, 3, 2, 3 * 65536 + random_below(3 * 65536));
		assert_int_equal(rebuild(1u << u, all_units() & ~(1u << u), false, &t), 0);
		assert_int_equal(res.taken_len, unit_len(u));
		assert_memory_equal(res.taken, units[u], unit_len(u));
	}
}

static struct holder { /* of all slots of 64 KiB, until its timer fires */
	struct rtimer timer;
	struct slot *slot[64];
} holder;

static void give_slots_back(struct rtimer *t)
{
	struct holder *h = container_of(t, struct holder, timer);
	const struct operation o = fix_op(reconstruct_list, group.id);

	if (strcmp(o.waits_for, "buffers")) { /* a slow machine: not yet */
		reactor_timer_set(r, t, reactor_now_ns(r) + 10 * NS_PER_MS);
		return;
	}
	assert_string_equal(o.kind, "reconstruct");
	assert_string_equal(o.role, "reconstruction");
	assert_string_equal(o.state, "wait_buffers");
	assert_string_equal(o.pool, POOL_ID);
	assert_int_equal(o.gs, group.gs);
	assert_int_equal(o.bytes, 0);
	assert_int_equal(o.held, 0);
	assert_true(o.age_ms > 0);
	for (unsigned int i = 0; i < 64; i++)
		slot_put(h->slot[i]);
}

/* The tick, which looks how long buffers are waited for, is due in the turn in which the wait
 * begins. */
static void a_wait_for_buffers_lasts_as_long_as_it_may(void **state)
{
	(void)state;
	rnd = 5;
	make_group(EC_CODEC_RS, 3, 2, 3 * 65536);
	holder.timer.fire = give_slots_back;
	for (unsigned int i = 0; i < 64; i++) {
		holder.slot[i] = pool_get(pool, SLOT_64K, POOL_CTRL);
		assert_non_null(holder.slot[i]);
	}
	reactor_timer_set(r, &holder.timer, clock_mono_ns() + 600 * NS_PER_MS);
	before_run_ms = 300; /* longer than a tick */
	assert_int_equal(rebuild(1u << 4, all_units() & ~(1u << 4), false, NULL), 0);
	before_run_ms = 0;
	assert_int_equal(check_targets(1u << 4, false), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_target_that_fails_is_left_behind),
		cmocka_unit_test(a_unit_is_not_made_of_itself),
		cmocka_unit_test(a_taker_gets_the_unit_in_order),
		cmocka_unit_test(a_wait_for_buffers_lasts_as_long_as_it_may),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
