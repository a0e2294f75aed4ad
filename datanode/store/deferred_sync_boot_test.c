/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: bytes that were in memory when the machine went down are never called synced. Who
 * asks for what an earlier process has finished is answered after a sync, as long as the machine
 * has not booted since; later only if that process had synced all before it ended. */

#include <fcntl.h>

#include "datanode/store/store_test_blocks.h"

static unsigned whole_disks;

int __wrap_syncfs(int fd);

int __wrap_syncfs(int fd)
{
	(void)fd;
	whole_disks++;
	return 0;
}

static int setup_well(void **state)
{
	whole_disks = 0;
	return setup(state);
}

static void finish_later(struct fix *f, int64_t id)
{
	assert_int_equal(
		replica_finalize(make_rbw(f, id, 1001, 700), 700, SYNC_LATER, NULL, &f->err), 0);
}

/* Node and machine: the next process is of another boot than all before it. */
static void boot(struct fix *f)
{
	fix_reopen(f);
	f->s->deferred_sync_epoch ^= 1ull << 56;
}

static void of_an_earlier_boot_nothing_can_be_synced(void **state)
{
	struct fix *f = *state;
	uint64_t before = store_deferred_sync_epoch(f->s);

	fix_reopen(f);
	assert_int_equal(store_sync_deferred(f->s, before ^ 1ull << 48), -EIO);
	assert_int_equal(store_sync_deferred(f->s, before ^ 1ull << 63), -EIO);
	assert_int_equal(whole_disks, 0);
	assert_int_equal(store_sync_deferred(f->s, before), 0); /* of this one, they can */
	assert_int_equal(whole_disks, 1);
}

static void what_a_process_synced_at_its_end_is_there_after_the_next_boot(void **state)
{
	struct fix *f = *state;
	uint64_t before = store_deferred_sync_epoch(f->s);

	finish_later(f, 10);
	boot(f);
	assert_int_equal(store_sync_deferred(f->s, before), 0);
	assert_int_equal(store_sync_deferred(f->s, before + (1u << 16)), -EIO); /* another one's */
	boot(f); /* that one left nothing */
	assert_int_equal(store_sync_deferred(f->s, before), 0);
}

static void what_a_process_could_not_sync_is_not(void **state)
{
	struct fix *f = *state;
	uint64_t before = store_deferred_sync_epoch(f->s);

	finish_later(f, 10);
	f->s->deferred_sync_epoch++; /* a sync has failed */
	boot(f);
	assert_int_equal(store_sync_deferred(f->s, before), -EIO);
	assert_int_equal(store_sync_deferred(f->s, before + 1), -EIO);
}

static void what_was_on_a_volume_that_is_out_of_service_is_not(void **state)
{
	struct fix *f = *state;
	uint64_t before = store_deferred_sync_epoch(f->s);
	struct volume *v;

	fix_reopen(f);
	v = &f->s->volumes[0];
	deferred_sync_stop(v); /* it is not asked */
	v->failed = true;
	assert_int_equal(store_sync_deferred(f->s, before), -EIO);
	v->failed = false;
	assert_int_equal(store_sync_deferred(f->s, before), 0);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup_well, teardown)
	const struct CMUnitTest tests[] = {
		TEST(of_an_earlier_boot_nothing_can_be_synced),
		TEST(what_a_process_synced_at_its_end_is_there_after_the_next_boot),
		TEST(what_a_process_could_not_sync_is_not),
		TEST(what_was_on_a_volume_that_is_out_of_service_is_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
