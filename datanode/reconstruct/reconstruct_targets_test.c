/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: a target that fails is left behind and the others have their units; no unit is made of
 * itself; who takes a unit himself has it in order; and a wait for buffers lasts as long as it may,
 * also for those that a device has. */
#include "datanode/capsule/capsule_port.h"

#include "datanode/reconstruct/reconstruct_test_fixture.h"

static struct pool *landing; /* what sources write to; NULL: by RDMA there are none */

struct pool *capsule_landing(const struct engine_core *c)
{
	(void)c;
	return landing;
}

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

static struct {
	struct rtimer timer;
	struct slot *slot;
} device;

static void device_lets_go(struct rtimer *t)
{
	const struct operation o = fix_op(reconstruct_list, group.id);

	(void)t;
	assert_string_equal(o.state, "slots");
	slot_put(device.slot);
}

/* One that ended before had it, and its connection has not ended. */
static void a_slot_that_a_device_still_has_is_waited_for(void **state)
{
	static const enum slot_class classes[] = {SLOT_256K, SLOT_CRC};
	const struct pool_opts po = {
		.count = {[SLOT_256K] = 5 * SOURCE_SLOTS, [SLOT_CRC] = 5 * SOURCE_SLOTS}};
	uint64_t buffers_ns;

	(void)state;
	rnd = 7;
	device.timer.fire = device_lets_go;
	assert_int_equal(pool_new(&po, &landing, NULL), 0);
	core.landing_slots_max = 5 * SOURCE_SLOTS;
	for (int i = 0; i < 2; i++) {
		make_group(EC_CODEC_RS, 3, 2, 3 * 65536);
		device.slot = pool_get(landing, classes[i], POOL_CTRL);
		reactor_timer_set(r, &device.timer, clock_mono_ns() + 400 * NS_PER_MS);
		assert_int_equal(rebuild(1u << 4, all_units() & ~(1u << 4), false, NULL), 0);
		assert_int_equal(check_targets(1u << 4, false), 1);
		assert_int_equal(pool_slots_out(landing), 0);
	}
	device.slot = pool_get(landing, SLOT_CRC, POOL_CTRL); /* not for ever */
	buffers_ns = core.waits.buffers_ns;
	core.waits.buffers_ns = 300 * NS_PER_MS;
	make_group(EC_CODEC_RS, 3, 2, 3 * 65536);
	assert_int_equal(rebuild(1u << 4, all_units() & ~(1u << 4), false, NULL), -ENOBUFS);
	core.waits.buffers_ns = buffers_ns;
	slot_put(device.slot);
	assert_int_equal(pool_slots_out(landing), 0);
	core.landing_slots_max = 0;
	pool_free(landing);
	landing = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_target_that_fails_is_left_behind),
		cmocka_unit_test(a_unit_is_not_made_of_itself),
		cmocka_unit_test(a_taker_gets_the_unit_in_order),
		cmocka_unit_test(a_wait_for_buffers_lasts_as_long_as_it_may),
		cmocka_unit_test(a_slot_that_a_device_still_has_is_waited_for),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
