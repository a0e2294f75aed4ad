/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a move to another volume removes the old files when the new ones, bytes and
 * names, are on the disk, and not before. */
#include "datanode/store/store_test_blocks.h"

static _Thread_local int sync_count, failing_sync; /* of the test's thread; the first is 1 */

int __real_fdatasync(int fd);
int __real_fsync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fsync(int fd);

static int sync_unless_it_fails(int (*fn)(int), int fd)
{
	if (++sync_count != failing_sync)
		return fn(fd);
	errno = EIO;
	return -1;
}

int __wrap_fdatasync(int fd)
{
	return sync_unless_it_fails(__real_fdatasync, fd);
}

int __wrap_fsync(int fd)
{
	return sync_unless_it_fails(__real_fsync, fd);
}

/* Block 5, with the n-th sync failing; 0: none does. */
static int move_with_failing_sync(struct fix *f, int n)
{
	int rc;

	sync_count = 0;
	failing_sync = n;
	rc = fix_move(f, &(struct block){5, 1001, 700}, STORAGE_SSD);
	failing_sync = 0;
	return rc;
}

static void a_move_whose_copy_is_not_on_the_disk_leaves_the_replica(void **state)
{
	enum { SYNCS = 3 }; /* the block file, the meta file, their directory */
	struct fix *f = *state;

	make_finalized(f, 4, 1001, 700); /* its directory is made on both */
	assert_int_equal(fix_move(f, &(struct block){4, 1001, 700}, STORAGE_SSD), 0);
	make_finalized(f, 5, 1001, 700);
	for (int n = 1; n <= SYNCS; n++) {
		assert_int_equal(move_with_failing_sync(f, n), -EIO);
		assert_int_equal(replica_volume(f->bp, 5), 0);
		assert_readable(f, 5, 1001, 700);
	}
	assert_int_equal(move_with_failing_sync(f, 0), 0);
	assert_int_equal(sync_count, SYNCS);
	assert_int_equal(replica_volume(f->bp, 5), 1);
	fix_reopen(f);
	assert_readable(f, 5, 1001, 700);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			a_move_whose_copy_is_not_on_the_disk_leaves_the_replica, setup_two,
			teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
