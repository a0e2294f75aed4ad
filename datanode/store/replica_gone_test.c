/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: the cache hears of each cached replica that goes, in whichever way it goes, and
 * of no other. */
#include <errno.h>

#include "common/base/log.h"

#include "datanode/store/store_test_blocks.h"

static atomic_int gone, other; /* events: of replica 5 that it goes, and of another */
static atomic_bool hangs;      /* removing files does */
static atomic_int fails;       /* likewise, with this error */

int __real_pair_unlink(int fd, int64_t id, enum place where, uint64_t gs);
int __wrap_pair_unlink(int fd, int64_t id, enum place where, uint64_t gs);

int __wrap_pair_unlink(int fd, int64_t id, enum place where, uint64_t gs)
{
	while (hangs)
		nap();
	return fails ? fails : __real_pair_unlink(fd, id, where, gs);
}

static void on_block(void *arg, struct block_pool *bp, const char *uuid, const struct block *b,
		     enum store_event ev, const char *hint)
{
	(void)arg, (void)bp, (void)uuid, (void)hint;
	gone += ev == STORE_GONE && b->id == 5;
	other += ev == STORE_GONE && b->id != 5;
}

static int setup_cached(void **state)
{
	const struct store_listener l = {.on_block = on_block};
	struct fix *f;

	gone = other = fails = 0;
	hangs = false;
	assert_int_equal(setup(state), 0);
	f = *state;
	store_set_listener(f->s, &l);
	make_finalized(f, 5, 1001, 1000);
	make_finalized(f, 6, 1001, 1000);
	assert_true(replica_set_cached(f->bp, 5, true));
	assert_false(replica_set_cached(f->bp, 7, true));
	return 0;
}

static void wait_gone(void)
{
	for (int i = 0; i < 5000 && !gone; i++)
		nap();
	assert_true(gone > 0);
}

static void delete_quietly(struct fix *f, int64_t id)
{
	assert_int_equal(replica_invalidate(f->bp, &(struct block){id, 1001, 1000}, true), 0);
}

static void one_that_is_deleted_in_silence_is_told(void **state)
{
	struct fix *f = *state;

	delete_quietly(f, 6);
	delete_quietly(f, 5);
	fix_wait_gone(f, 5);
	wait_gone();
	assert_int_equal(other, 0);
}

static void it_is_told_before_the_disk_has_done_it(void **state)
{
	struct fix *f = *state;

	hangs = true;
	delete_quietly(f, 5);
	assert_int_equal(gone, 1);                        /* at once */
	assert_false(replica_set_cached(f->bp, 5, true)); /* no more */
	hangs = false;
	fix_wait_gone(f, 5);
}

static void one_that_is_in_use_is_told_when_it_is_not(void **state)
{
	struct write_request q = create_request(5, 1001);
	struct fix *f = *state;
	struct replica_writer *w = NULL;

	q.stage = STAGE_APPEND;
	q.new_gs = 1002;
	q.min_bytes = q.max_bytes = q.block.len = 1000;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	assert_int_equal(replica_invalidate(f->bp, &(struct block){5, 1002, 1000}, true), 0);
	assert_int_equal(replica_write_close(w, false), 0);
	fix_wait_gone(f, 5);
	wait_gone();
}

static void one_whose_files_stay_is_told(void **state)
{
	struct fix *f = *state;

	fails = -EPERM;
	delete_quietly(f, 5);
	fix_wait_gone(f, 5);
	wait_gone();
}

static void one_whose_directory_goes_out_is_told(void **state)
{
	struct fix *f = *state;

	volume_out(&f->s->volumes[0], -EIO);
	fix_wait_gone(f, 5);
	wait_gone();
	assert_int_equal(other, 0);
}

static void one_that_is_not_cached_any_more_goes_in_silence(void **state)
{
	struct fix *f = *state;

	assert_true(replica_set_cached(f->bp, 5, false));
	delete_quietly(f, 5);
	fix_wait_gone(f, 5);
	for (int i = 0; i < 400; i++)
		nap();
	assert_int_equal(gone, 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup_cached, teardown)
	const struct CMUnitTest tests[] = {
		CASE(one_that_is_deleted_in_silence_is_told),
		CASE(it_is_told_before_the_disk_has_done_it),
		CASE(one_that_is_in_use_is_told_when_it_is_not),
		CASE(one_whose_files_stay_is_told),
		CASE(one_whose_directory_goes_out_is_told),
		CASE(one_that_is_not_cached_any_more_goes_in_silence),
	};

	log_init("replica_gone_test", LOG_ERROR);
	return cmocka_run_group_tests_name("replica_gone", tests, NULL, NULL);
}
