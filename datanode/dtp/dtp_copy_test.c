/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: a copy of a block to another node holds no buffers while its target is slow, ends when
 * the target takes nothing or answers too early, and is charged to the share of all transfers. */
#include "datanode/dtp/dtp_test_fixture.h"

static void transfer_ended(void *arg, int rc, const struct err *err)
{
	(void)err;
	*(int *)arg = rc;
	reactor_stop(r);
}

/* A new block is copied to a hop with @fault after @fault_at pieces. *@rc: what becomes of it. */
static void copy_start(enum hop_fault fault, uint32_t fault_at, int *rc)
{
	const int64_t id = next_id++;
	const struct fake_opts good = stream(1);
	struct transfer_params tp = {
		.bp = bp, .block = {id, 1001, DATA_LEN}, .target_count = 1, .client = "client"};
	uint32_t acks;

	put_write(id, false);
	acks = put_stream(DATA_LEN);
	peer_run(&good, 1);
	run_until_ended(acks);
	everything_comes_back();
	tp.targets = calloc(1, sizeof(*tp.targets));
	assert_non_null(tp.targets);
	hop.fault = fault;
	hop.fault_at = fault_at;
	assert_int_equal(transfer_open(&core, &tp, transfer_ended, rc), 0);
}

/* 1: it has not ended. */
static int copy_to(enum hop_fault fault, uint32_t fault_at)
{
	int rc = 1;

	copy_start(fault, fault_at, &rc);
	for (int i = 0; i < 600 && rc == 1; i++)
		fix_run(100);
	return rc;
}

/* Somebody waits for a slot, while all that a copy does not hold are out. */
static struct waiter {
	struct pool_ask ask;
	struct slot *slot;
	bool granted;
} waiter;

static void waiter_granted(struct pool_ask *a)
{
	(void)a;
	waiter.granted = true;
}

static void wait_for_slot(void)
{
	fix_hold_all();
	waiter = (struct waiter){0};
	waiter.ask = (struct pool_ask){.use = POOL_CTRL,
				       .slots = &waiter.slot,
				       .granted = waiter_granted,
				       .forms = 1,
				       .form = {{.parts = 1, .part = {{SLOT_CRC, 1}}}}};
	assert_false(pool_take(pool, &waiter.ask));
	pool_wait(pool, &waiter.ask);
}

static void wait_over(void)
{
	if (waiter.granted)
		slot_put(waiter.slot);
	else
		pool_wait_cancel(pool, &waiter.ask);
	fix_give_back();
}

/* What a copy has read for a target that is not there yet is given back to others, and read again.
 */
static void a_copy_whose_target_is_slow_to_answer_holds_no_buffers(void **state)
{
	int rc = 1;

	(void)state;
	copy_start(HOP_WAITS, 0, &rc);
	for (int i = 0; i < 3000 && !core.transfers.slots.used; i++)
		fix_run(10);
	assert_true(core.transfers.slots.used > 0);
	wait_for_slot();
	for (int i = 0; i < 3000 && !waiter.granted; i++)
		fix_run(10);
	assert_true(waiter.granted);
	for (int i = 0; i < 3000 && core.transfers.slots.used; i++)
		fix_run(10);
	assert_int_equal(core.transfers.slots.used, 0);
	wait_over();
	hop.go_on = true;
	for (int i = 0; i < 3000 && (hop.bytes < DATA_LEN || !list_empty(&hop.queue)); i++)
		fix_run(10);
	assert_int_equal(hop.bytes, DATA_LEN);
	fix_run(50);
	hop.base.user->ops->broken(hop.base.user, 0);
	for (int i = 0; i < 3000 && rc == 1; i++)
		fix_run(10);
	assert_int_equal(rc, 0);
	assert_int_equal(pool_slots_out(pool), 0);
}

/* A target that takes nothing for seconds, while others wait for the buffers, costs only its copy.
 */
static void a_copy_whose_target_takes_nothing_ends_while_others_wait(void **state)
{
	int rc = 1;

	(void)state;
	copy_start(HOP_STALLS, 0, &rc);
	for (int i = 0; i < 3000 && (!hop.opened || list_empty(&hop.queue)); i++)
		fix_run(10);
	wait_for_slot();
	for (int i = 0; i < 600 && rc == 1; i++)
		fix_run(100);
	assert_int_equal(rc, -ETIMEDOUT);
	assert_true(waiter.granted);
	wait_over();
	assert_int_equal(pool_slots_out(pool), 0);
}

/* One whose target takes a little all the time goes on. */
static void a_copy_whose_target_is_slow_goes_on_while_others_wait(void **state)
{
	int rc = 1;

	(void)state;
	copy_start(HOP_STALLS, 0, &rc);
	for (int i = 0; i < 3000 && (!hop.opened || list_empty(&hop.queue)); i++)
		fix_run(10);
	wait_for_slot();
	for (int i = 0; i < 75 && rc == 1; i++) {
		hop.taken += 2048;
		fix_run(100);
	}
	assert_int_equal(rc, 1);
	for (int i = 0; i < 600 && rc == 1; i++) /* now it takes nothing */
		fix_run(100);
	assert_int_equal(rc, -ETIMEDOUT);
	wait_over();
	assert_int_equal(pool_slots_out(pool), 0);
}

/* What a next node that takes nothing holds of the buffers is bounded for all copies together. */
static void a_copy_is_charged_to_the_share_of_all_transfers(void **state)
{
	(void)state;
	assert_int_equal(copy_to(HOP_DIES, 1), -ECONNRESET);
	assert_true(hop.transfers_used >= DATA_LEN);
	assert_true(core.transfers.slots.limit &&
		    core.transfers.slots.limit <= pool_bytes(pool) / 4);
	assert_int_equal(core.transfers.slots.used, 0);
	assert_int_equal(pool_slots_out(pool), 0);
}

/* A target that anybody may name says that it has the block before it can have it. */
static void a_copy_that_is_answered_too_early_ends(void **state)
{
	(void)state;
	assert_int_equal(copy_to(HOP_ANSWERS_EARLY, 0), -EPROTO);
	assert_int_equal(core.transfers.slots.used, 0);
	assert_int_equal(pool_slots_out(pool), 0);
}

/* The NameNode ordered it when the block was complete. A client's pipeline has it copied as it is.
 */
static void what_is_being_written_again_is_not_copied_for_the_namenode(void **state)
{
	const struct fake_opts good = stream(1);

	(void)state;
	for (int repair = 0; repair < 2; repair++) {
		const int64_t id = next_id++;
		struct transfer_params tp = {.bp = bp, .block = {id, 1000, 300}, .target_count = 1};
		int rc = 1;

		put_write(id, false);
		put_packet(0, 0, 300, false, false);
		peer_run(&good, 1);
		run_until_ended(1);
		tp.targets = calloc(1, sizeof(*tp.targets));
		assert_non_null(tp.targets);
		if (repair)
			snprintf(tp.client, sizeof(tp.client), "client");
		hop.fault = HOP_ANSWERS_EARLY;
		hop.opened = false;
		assert_int_equal(transfer_open(&core, &tp, transfer_ended, &rc), 0);
		for (int i = 0; i < 600 && rc == 1; i++)
			fix_run(100);
		assert_int_equal(rc, repair ? -EPROTO : -ESTALE);
		assert_int_equal(hop.opened, repair);
		everything_comes_back();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_copy_is_charged_to_the_share_of_all_transfers),
		cmocka_unit_test(a_copy_whose_target_is_slow_to_answer_holds_no_buffers),
		cmocka_unit_test(a_copy_whose_target_takes_nothing_ends_while_others_wait),
		cmocka_unit_test(a_copy_whose_target_is_slow_goes_on_while_others_wait),
		cmocka_unit_test(a_copy_that_is_answered_too_early_ends),
		cmocka_unit_test(what_is_being_written_again_is_not_copied_for_the_namenode),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
