/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold whenever the bytes of a run are about to be written, which is one of the places where a
 * killed process may leave a replica: the bytes in the block file fit the CRCs in the meta file,
 * also those of a chunk that is not full and goes on. And what a write that fails leaves, and gives
 * back. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "datanode/block/block_write_test_fixture.h"

/* ---- the disk: every write to a block file waits until it is let go ---- */

static void check_disk(uint64_t gs, uint32_t bpc)
{
	char meta[sizeof(written) + 32];
	uint8_t stored[4], bytes[LEN];
	struct stat st;
	int fd;

	assert_int_equal(stat(block_path(), &st), 0);
	assert_true(st.st_size <= (off_t)LEN);
	snprintf(meta, sizeof(meta), "%s_%lu.meta", block_path(), (unsigned long)gs);
	fd = open(block_path(), O_RDONLY);
	assert_int_equal(pread(fd, bytes, sizeof(bytes), 0), st.st_size);
	close(fd);
	fd = open(meta, O_RDONLY);
	assert_true(fd >= 0);
	for (uint64_t at = 0; at < (uint64_t)st.st_size; at += bpc) {
		const uint64_t n =
			(uint64_t)st.st_size - at < bpc ? (uint64_t)st.st_size - at : bpc;

		assert_int_equal(pread(fd, stored, 4, (off_t)(META_HEADER_LEN + at / bpc * 4)), 4);
		assert_int_equal(crc_verify(CRC_CRC32C, bytes + at, n, bpc, stored), -1);
	}
	close(fd);
}

/* ---- the sender ---- */

static void a_chunk_goes_on_while_its_beginning_is_written(void **state)
{
	struct piece more;

	(void)state;
	begin(1, 512);
	land_and_send(0, 0, 700);
	more = land(1, 700, 50); /* on its way already */
	fix_run(60000);
	/* the CRC of the chunk is another one now */
	assert_int_equal(block_write_piece(sender.w, &more, NULL), 0);
	fix_run(100);
	sem_post(&let_go);
	fix_run(60000);
	assert_int_equal(sender.acked, 0);
	check_disk(1001, 512);
	end();
}

static void a_chunk_is_longer_than_a_page(void **state)
{
	(void)state;
	begin(2, 65536);
	land_and_send(0, 0, 100000);
	fix_run(60000);
	sem_post(&let_go);
	fix_run(60000);
	check_disk(1001, 65536);
	end();
}

static void wait_stuck(bool stuck)
{
	const uint64_t until = clock_mono_ns() + 60 * NS_PER_S;

	while (store_is_stuck(dn.store) != stuck && clock_mono_ns() < until)
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
	assert_int_equal(store_is_stuck(dn.store), stuck);
}

/* Also the write of the last bytes, which who finalises the block makes. */
static void a_write_that_does_not_come_back_makes_its_volume_suspect(void **state)
{
	(void)state;
	for (int last = 0; last < 2; last++) {
		struct piece p;

		begin(3 + last, 512);
		p = land(0, 0, 700);
		p.flush = false;
		assert_int_equal(block_write_piece(sender.w, &p, NULL), 0);
		p = (struct piece){.seq = 1, .off = 700, .last = true};
		assert_int_equal(last ? block_write_piece(sender.w, &p, NULL) : 0, 0);
		fix_run(60000);
		wait_stuck(true);
		if (!last) {
			end();
		} else {
			atomic_store(&stalls, false);
			sem_post(&let_go);
			while (!sender.ended)
				fix_run(60000);
		}
		wait_stuck(false);
	}
}

/* A lane that is being written, perhaps a second one, and one that more may land in. */
static void send_three_lanes(int64_t id)
{
	begin(id, 512);
	for (uint32_t i = 0; i < 3; i++) {
		struct piece p = land(i, i << 16, 1u << 16);

		p.flush = false;
		assert_int_equal(block_write_piece(sender.w, &p, NULL), 0);
	}
	fix_run(60000);
	fix_run(100);
	assert_int_equal(pool_slots_out(pool), 6); /* of each the bytes and the CRCs */
}

static void a_write_that_failed_keeps_only_what_is_being_written(void **state)
{
	(void)state;
	send_three_lanes(5);
	block_write_close(sender.w, -ECONNRESET);
	for (int i = 0; i < 600 && pool_slots_out(pool) > 4; i++)
		fix_run(100);
	assert_false(sender.ended);
	assert_in_range(pool_slots_out(pool), 2, 4);
	atomic_store(&stalls, false);
	sem_post(&let_go);
	sem_post(&let_go);
	while (!sender.ended)
		fix_run(60000);
	while (!sem_trywait(&let_go))
		;
	assert_int_equal(pool_slots_out(pool), 0);
}

static void wait_in_thread(struct offload *o)
{
	(void)o;
	reactor_stop(r);
	sem_wait(&let_go);
}

static int threads_back;

static void thread_back(struct offload *o)
{
	(void)o;
	threads_back++;
}

static void what_only_waits_for_a_volume_that_is_out_ends(void **state)
{
	struct offload stuck[2];

	(void)state;
	begin(6, 512);
	for (int i = 0; i < 2; i++) { /* all threads of the queue */
		stuck[i] = (struct offload){.work = wait_in_thread, .done = thread_back};
		reactor_offload_to(r, XFER_WRITE_QUEUE(0), &stuck[i]);
		fix_run(60000);
	}
	land_and_send(0, 0, 700);
	fix_run(100);
	block_write_close(sender.w, -ECONNRESET);
	fix_run(100);
	assert_false(sender.ended);
	assert_int_equal(pool_slots_out(pool), 2);
	reactor_queue_drop(r, XFER_WRITE_QUEUE(0));
	while (!sender.ended)
		fix_run(60000);
	assert_int_equal(pool_slots_out(pool), 0);
	atomic_store(&stalls, false);
	for (int i = 0; i < 2; i++)
		sem_post(&let_go);
	while (threads_back < 2)
		fix_run(10);
}

static void a_run_that_ends_well_after_the_next_one_has_failed_stays(void **state)
{
	struct offload stuck = {.work = wait_in_thread, .done = thread_back};
	struct stat st;

	(void)state;
	begin(7, 512);
	if (sender.w->rw->fd_direct < 0) /* no matter whether it is: only direct runs overlap */
		sender.w->rw->fd_direct = dup(sender.w->rw->fd);
	sender.w->dio = true;
	threads_back = 0;
	reactor_offload_to(r, XFER_WRITE_QUEUE(0), &stuck);
	fix_run(60000);
	atomic_store(&stalled, 0);
	for (uint32_t i = 0; i < 2; i++) {
		struct piece p = land(i, i << 16, 1u << 16);

		p.flush = false;
		assert_int_equal(block_write_piece(sender.w, &p, NULL), 0);
	}
	while (!atomic_load(&stalled))
		fix_run(100);
	assert_int_equal(sender.w->run_tail - sender.w->run_head, 2);
	reactor_queue_drop(r, XFER_WRITE_QUEUE(0));
	assert_int_equal(sender.w->rc, -EIO);
	assert_int_equal(sender.w->on_disk, 0);
	atomic_store(&stalls, false);
	for (int i = 0; i < 2; i++)
		sem_post(&let_go);
	while (!sender.ended || !threads_back)
		fix_run(10);
	assert_int_equal(stat(block_path(), &st), 0);
	assert_int_equal(st.st_size, 1 << 16);
	check_disk(1001, 512);
}

/* Of [300, 700) the data are written and the CRC of the first chunk, which is another one then. By
 * a run, and by who finalises the block. */
static void crcs_that_are_not_all_written_leave_those_before(void **state)
{
	struct stat st;

	(void)state;
	for (int last = 0; last < 2; last++) {
		struct piece p;

		begin(8 + last, 512);
		atomic_store(&stalls, false);
		land_and_send(0, 0, 300);
		while (sender.acked != 0)
			fix_run(60000);
		atomic_store(&no_room, META_HEADER_LEN + 4);
		p = land(1, 300, 212);
		p.flush = false;
		assert_int_equal(block_write_piece(sender.w, &p, NULL), 0);
		p = land(2, 512, 188);
		p.flush = false;
		assert_int_equal(block_write_piece(sender.w, &p, NULL), 0);
		p = (struct piece){.seq = 3, .off = 700, .last = true};
		assert_int_equal(last ? block_write_piece(sender.w, &p, NULL) : 0, 0);
		while (!sender.ended)
			fix_run(60000);
		atomic_store(&no_room, -1);
		assert_int_equal(sender.acked, 0);
		assert_int_equal(stat(block_path(), &st), 0);
		assert_int_equal(st.st_size, 300);
		check_disk(1001, 512);
	}
}

/* All that it has sent is acknowledged: no piece is left that could be answered. That others have
 * taken the block over is not told: no node has failed then. */
static void a_quiet_writer_hears_that_its_volume_is_out_of_service(void **state)
{
	static const int why[] = {-EIO, -ECANCELED};

	(void)state;
	for (int i = 0; i < 2; i++) {
		begin(16 + i, 512);
		atomic_store(&stalls, false);
		land_and_send(0, 0, 700);
		while (sender.acked != 0)
			fix_run(60000);
		sender.w->params.req.stop(sender.w, why[i]);
		while (!sender.ended)
			fix_run(60000);
		assert_int_equal(sender.rc, why[i]);
		assert_int_equal(sender.failed, why[i] == -EIO);
		assert_int_equal(sender.failed_seq, sender.failed ? SEQ_UNKNOWN : 0);
	}
}

/* In a step of its own, on the thread of its own volume, which is the same one here. */
static void an_older_replica_goes_first(void **state)
{
	struct write_params wp = {
		.bp = bp,
		.client = "writer",
		.pipeline_size = 1,
		.req = {.block = {15, 1001, 1u << 20},
			.stage = STAGE_CREATE,
			.from_client = true,
			.crc_type = CRC_CRC32C,
			.bytes_per_crc = 512,
			.storage_type = STORAGE_DISK},
	};
	struct write_request older = wp.req;
	struct replica_writer *rw;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(replica_write_open(bp, &older, &rw, &err), 0);
	replica_write_close(rw, false);
	wp.req.new_gs = 1002;
	memset(&sender, 0, sizeof(sender));
	sender.source = (struct write_source){.ops = &source_ops, .peer = "10.1.2.3:4567"};
	assert_int_equal(block_write_open(&core, &wp, &sender.source, &sender.w), 0);
	while (!sender.opened)
		fix_run(60000);
	assert_non_null(sender.w->rw);
	assert_int_equal(sender.w->rw->block.gs, 1002);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_chunk_goes_on_while_its_beginning_is_written),
		cmocka_unit_test(a_chunk_is_longer_than_a_page),
		cmocka_unit_test(a_write_that_does_not_come_back_makes_its_volume_suspect),
		cmocka_unit_test(a_write_that_failed_keeps_only_what_is_being_written),
		cmocka_unit_test(what_only_waits_for_a_volume_that_is_out_ends),
		cmocka_unit_test(a_run_that_ends_well_after_the_next_one_has_failed_stays),
		cmocka_unit_test(crcs_that_are_not_all_written_leave_those_before),
		cmocka_unit_test(a_quiet_writer_hears_that_its_volume_is_out_of_service),
		cmocka_unit_test(an_older_replica_goes_first),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
