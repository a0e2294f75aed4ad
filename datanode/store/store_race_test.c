/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a call on a replica that meets another call in its middle neither harms what that
 * one has made nor draws a wrong conclusion from it. */
#include "common/base/clock.h"
#include "datanode/store/store_test_blocks.h"

/* ---- in the middle of a read ---- */

static struct {
	size_t bytes; /* after the next read of so many something happens; 0: nothing */
	void (*happens)(struct fix *f);
	struct fix *f;
} middle;

ssize_t __real_pread64(int fd, void *buf, size_t n, off64_t off);
ssize_t __wrap_pread64(int fd, void *buf, size_t n, off64_t off);
ssize_t __wrap_pread64(int fd, void *buf, size_t n, off64_t off)
{
	const ssize_t got = __real_pread64(fd, buf, n, off);

	if (middle.bytes && n == middle.bytes) {
		middle.bytes = 0;
		middle.happens(middle.f);
	}
	return got;
}

static void after_read(struct fix *f, size_t bytes, void (*happens)(struct fix *f))
{
	middle.f = f;
	middle.bytes = bytes;
	middle.happens = happens;
}

/* ---- a check against the CRCs ---- */

static void append_without_a_new_stamp(struct fix *f)
{
	struct write_request q = create_request(5, 1001);
	struct replica_writer *w = NULL;

	q.stage = STAGE_APPEND;
	q.min_bytes = 700;
	q.new_gs = 1001;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	put_bytes(w, 700, 900);
	assert_int_equal(replica_finalize(w, 900, SYNC_NEVER, NULL, &f->err), 0);
}

static void a_replica_that_is_appended_to_while_it_is_checked_is_not_corrupt(void **state)
{
	struct fix *f = *state;

	make_finalized(f, 5, 1001, 700);
	after_read(f, 700, append_without_a_new_stamp);
	replica_suspect(f->bp, &(struct block){5, 1001, 0});
	assert_int_equal(middle.bytes, 0);
	assert_readable(f, 5, 1001, 900);
	assert_int_equal(f->seen.bad, 0);
	replica_suspect(f->bp, &(struct block){5, 1001, 0});
	assert_int_equal(f->seen.bad, 0);
}

/* Its last CRC is of more bytes than are acknowledged. */
static void the_last_chunk_of_a_replica_under_recovery_is_no_damage(void **state)
{
	const struct block b = {5, 1001, 700};
	struct fix *f = *state;
	struct replica_writer *w = make_rbw(f, 5, 1001, 900);
	const int fd = dup(w->fd);
	struct replica_info i;

	replica_publish(w, 900, 900, 700, 0);
	replica_write_close(w, false);
	assert_int_equal(replica_init_recovery(f->bp, &b, 1010, &i, &f->err), 0);
	replica_suspect(f->bp, &b);
	assert_int_equal(f->seen.bad, 0);
	assert_int_equal(pwrite(fd, "X", 1, 100), 1);
	replica_suspect(f->bp, &b);
	assert_int_equal(f->seen.bad, 1);
	(void)close(fd);
}

/* ---- a move to another volume ---- */

static struct replica_writer *copied; /* by another data node */

static void delete_and_make_anew(struct fix *f)
{
	struct write_request q = create_request(5, 1001);

	assert_int_equal(replica_invalidate(f->bp, &(struct block){5, 1001, 0}, true), 0);
	fix_wait_gone(f, 5);
	q.from_client = false;
	q.storage_type = STORAGE_SSD;
	assert_int_equal(replica_write_open(f->bp, &q, &copied, &f->err), 0);
	put_bytes(copied, 0, 900);
}

static void a_move_leaves_the_files_of_a_new_replica_alone(void **state)
{
	struct fix *f = *state;
	struct block b = {5, 1001, 700};

	make_finalized(f, 5, 1001, 700);
	after_read(f, 1 << 20, delete_and_make_anew);
	assert_true(fix_move(f, &b, STORAGE_SSD) < 0);
	assert_int_equal(middle.bytes, 0);
	assert_int_equal(replica_finalize(copied, 900, SYNC_NEVER, NULL, &f->err), 0);
	assert_readable(f, 5, 1001, 900);
	b.len = 900;
	assert_int_equal(fix_move(f, &b, STORAGE_DISK), 0);
	assert_readable(f, 5, 1001, 900);
}

/* Its meta file is copied already. */
static void a_move_does_not_take_a_replica_that_has_grown_meanwhile(void **state)
{
	struct fix *f = *state;
	struct block b = {5, 1001, 700};

	make_finalized(f, 5, 1001, 700);
	after_read(f, 1 << 20, append_without_a_new_stamp);
	assert_int_equal(fix_move(f, &b, STORAGE_SSD), -ESTALE);
	assert_int_equal(middle.bytes, 0);
	assert_int_equal(replica_volume(f->bp, 5), 0);
	assert_readable(f, 5, 1001, 900);
	b.len = 900;
	assert_int_equal(fix_move(f, &b, STORAGE_SSD), 0);
	assert_readable(f, 5, 1001, 900);
}

/* ---- what a reader sees of a replica that is finished and reopened ---- */

#define CHANGES 20000 /* that are seen, where both threads run at a time; */
#define PATIENCE_NS (2 * NS_PER_S)
#define LAST_CRC 7 /* while it is written; 0 when it is final, and its CRCs are in the meta file */

static atomic_bool enough;

static void *turn(void *arg)
{
	while (!enough) {
		replica_loaded_rbw(arg, LAST_CRC);
		replica_set_final(arg);
	}
	return NULL;
}

static void a_crc_and_the_end_of_writing_are_of_one_moment(void **state)
{
	struct write_state w = {.writer = NULL};
	struct replica r = {.len = 700, .write_state = &w};
	const uint64_t until = clock_mono_ns() + PATIENCE_NS;
	uint32_t wrong = 0, changes = 0;
	bool final = true;
	pthread_t other;

	(void)state;
	replica_set_final(&r);
	assert_int_equal(pthread_create(&other, NULL, turn, &r), 0);
	while (changes < CHANGES && clock_mono_ns() < until) {
		const struct progress_now p = progress_get(&w.prog);

		wrong += p.final != (p.last_crc == 0);
		changes += p.final != final;
		final = p.final;
	}
	enough = true;
	assert_int_equal(pthread_join(other, NULL), 0);
	assert_true(changes > 0);
	assert_int_equal(wrong, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define T2(f) cmocka_unit_test_setup_teardown(f, setup_two, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_replica_that_is_appended_to_while_it_is_checked_is_not_corrupt),
		T(the_last_chunk_of_a_replica_under_recovery_is_no_damage),
		T2(a_move_leaves_the_files_of_a_new_replica_alone),
		T2(a_move_does_not_take_a_replica_that_has_grown_meanwhile),
		cmocka_unit_test(a_crc_and_the_end_of_writing_are_of_one_moment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
