/* SPDX-License-Identifier: Apache-2.0 */
/* The shares of a data node's pool: however many lists of CRCs are out, the other steps of writes
 * and reads find slots for CRCs; and what is stuck behind one volume, next hop or connection leaves
 * lists, and slots for data, to others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "datanode/block/buffers.h"

#define RECEIVE_SLOTS 1024u /* as an adapter's */
#define LISTS_MAX 4096u

static uint32_t volume_count = 2;

uint32_t store_volume_count(const struct store *s)
{
	(void)s;
	return volume_count;
}

void block_read_reclaim_all(struct engine_core *core)
{
	(void)core;
}

void block_write_reclaim_all(struct engine_core *core)
{
	(void)core;
}

static struct dn dn;
static struct engine_core core;
static struct slot *held[LISTS_MAX];
static uint32_t held_count;

static void make_for(uint64_t bytes, uint32_t receive_slots)
{
	const struct pool_opts o = buffers_pool(bytes, receive_slots);
	struct err err = ERR_INIT;

	core = (struct engine_core){.dn = &dn};
	assert_int_equal(pool_new(&o, &core.pool, &err), 0);
	buffers_init(&core);
	pool_on_pressed(core.pool, NULL, NULL); /* there is no reactor */
}

static void make(uint64_t bytes)
{
	make_for(bytes, RECEIVE_SLOTS);
}

static void end(void)
{
	while (held_count)
		slot_put(held[--held_count]);
	assert_int_equal(pool_slots_out(core.pool), 0);
	pool_free(core.pool);
}

static bool list(enum slot_class cls, struct buffers_share *const shares[BUFFERS_SHARES])
{
	struct pool_ask a = {.use = POOL_CTRL,
			     .forms = 1,
			     .form[0] = {1, {{(uint8_t)cls, 1}}},
			     .slots = &held[held_count]};

	assert_true(held_count < LISTS_MAX);
	buffers_for_list(&core, cls, shares, a.budget);
	if (!pool_take(core.pool, &a))
		return false;
	held_count++;
	return true;
}

static void lists_leave_slots_for_all_else(void **state)
{
	struct buffers_share *const none[BUFFERS_SHARES] = {NULL};

	(void)state;
	for (uint64_t mib = 8; mib <= 64; mib *= 2) {
		make(mib << 20);
		while (list(SLOT_CRC, none))
			;
		assert_true(held_count > 0);
		for (int use = 0; use < POOL_USES; use++) {
			struct slot *got[2];
			struct pool_ask a = {.use = (enum pool_use)use,
					     .forms = 1,
					     .form[0] = {2, {{SLOT_64K, 1}, {SLOT_CRC, 1}}},
					     .slots = got};

			assert_true(pool_take(core.pool, &a));
			slot_put(got[0]);
			slot_put(got[1]);
		}
		end();
	}
}

static struct buffers_share conns[2];

/* Of the first or the second volume, next hop or connection. */
static struct buffers_share *share_of(int what, uint32_t which)
{
	const struct dn_target to[2] = {{.xfer_port = 1}, {.xfer_port = 2}};

	if (what == 2)
		buffers_conn_init(&core, &conns[which]);
	return what == 0   ? buffers_volume(&core, which)
	       : what == 1 ? buffers_hop(&core, &to[which])
			   : &conns[which];
}

static void what_is_stuck_leaves_lists_to_others(void **state)
{
	(void)state;
	for (int what = 0; what < BUFFERS_SHARES; what++) {
		struct buffers_share *stuck[BUFFERS_SHARES] = {NULL},
				     *other[BUFFERS_SHARES] = {NULL};

		make(8 << 20);
		stuck[what] = share_of(what, 0);
		while (list(SLOT_CRC, stuck))
			;
		assert_true(held_count > 1);
		other[what] = share_of(what, 1);
		assert_ptr_not_equal(stuck[what], other[what]);
		for (uint32_t i = 0; i < 4; i++)
			assert_true(list(SLOT_CRC, other));
		end();
	}
}

/* The slots of one piece, in the largest class that can be had. */
static bool piece(struct buffers_share *s)
{
	struct pool_ask a = {.use = POOL_READ,
			     .forms = 3,
			     .slots = &held[held_count],
			     .budget = {&s->slots},
			     .form = {{2, {{SLOT_1M, 1}, {SLOT_CRC, 1}}},
				      {2, {{SLOT_256K, 1}, {SLOT_CRC, 1}}},
				      {2, {{SLOT_64K, 1}, {SLOT_CRC, 1}}}}};

	assert_true(held_count + 2 <= LISTS_MAX);
	if (!pool_take(core.pool, &a))
		return false;
	held_count += 2;
	return true;
}

static void what_is_stuck_leaves_slots_for_data_to_others(void **state)
{
	static const uint32_t eighths[BUFFERS_SHARES] = {4, 3, 4};

	(void)state;
	for (int what = 0; what < BUFFERS_SHARES; what++) {
		struct buffers_share *stuck, *other;

		make_for(64 << 20, 0);
		stuck = share_of(what, 0);
		while (piece(stuck))
			;
		assert_in_range(stuck->slots.used, (2u << 20), (8u << 20) * eighths[what]);
		other = share_of(what, 1);
		for (uint32_t i = 0; i < 16; i++)
			assert_true(piece(other));
		end();
	}
}

static void long_lists_leave_short_ones_alone(void **state)
{
	struct buffers_share *const none[BUFFERS_SHARES] = {NULL};

	(void)state;
	make(8 << 20);
	assert_true(list(SLOT_1M, none));
	assert_false(list(SLOT_1M, none));
	assert_true(list(SLOT_CRC, none));
	end();
}

static void one_volume_alone_has_all_lists(void **state)
{
	struct buffers_share *shares[BUFFERS_SHARES] = {NULL};
	uint32_t all;

	(void)state;
	volume_count = 1;
	make(8 << 20);
	while (list(SLOT_CRC, shares))
		;
	all = held_count;
	while (held_count)
		slot_put(held[--held_count]);
	shares[0] = buffers_volume(&core, 0);
	while (list(SLOT_CRC, shares))
		;
	assert_int_equal(held_count, all);
	end();
	volume_count = 2;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_leave_slots_for_all_else),
		cmocka_unit_test(what_is_stuck_leaves_lists_to_others),
		cmocka_unit_test(what_is_stuck_leaves_slots_for_data_to_others),
		cmocka_unit_test(long_lists_leave_short_ones_alone),
		cmocka_unit_test(one_volume_alone_has_all_lists),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
