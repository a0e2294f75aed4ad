/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold whenever the bytes of a run are about to be written, which is one of the places where a
 * killed process may leave a replica: the bytes in the block file fit the CRCs in the meta file, also
 * those of a chunk that is not full and goes on. And what a write that fails leaves, and gives back. */
#include <fcntl.h>
#include <semaphore.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/crc.h"
#include "common/wire/dt.h"
#include "datanode/xfer/bwrite_internal.h"
#include "datanode/xfer/xfer_fix.h"

#define META_HEADER 7
#define LEN (1u << 18)

static char dir[] = "/tmp/bwrite_test.XXXXXX";
static uint8_t data[LEN];

struct block_pool *dn_pool(struct dn *d, const char *id)
{
	(void)d, (void)id;
	return bp;
}

/* ---- the disk: every write to a block file waits until it is let go ---- */

static sem_t let_go;
static atomic_bool stalls;
static atomic_int stalled;
static atomic_long no_room = -1; /* no byte of the meta file at this place or behind it can be written */
static char block_path[300];

ssize_t __real_pwrite64(int fd, const void *buf, size_t len, off_t off);
ssize_t __wrap_pwrite64(int fd, const void *buf, size_t len, off_t off);
ssize_t __wrap_pwrite64(int fd, const void *buf, size_t len, off_t off)
{
	char link[32], path[sizeof(block_path)];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = 0;
	if (strstr(path, ".meta") && atomic_load(&no_room) >= 0 && off + (off_t)len > atomic_load(&no_room)) {
		if (off < atomic_load(&no_room))
			return __real_pwrite64(fd, buf, (size_t)(atomic_load(&no_room) - off), off);
		errno = ENOSPC;
		return -1;
	}
	if (strstr(path, "/blk_") && !strstr(path, ".meta")) {
		memcpy(block_path, path, sizeof(path));
		if (atomic_load(&stalls)) {
			atomic_fetch_add(&stalled, 1);
			reactor_stop(r);
			sem_wait(&let_go);
		}
	}
	return __real_pwrite64(fd, buf, len, off);
}

static void check_disk(uint64_t gs, uint32_t bpc)
{
	char meta[sizeof(block_path) + 32];
	uint8_t stored[4], bytes[LEN];
	struct stat st;
	int fd;

	assert_int_equal(stat(block_path, &st), 0);
	assert_true(st.st_size <= (off_t)LEN);
	snprintf(meta, sizeof(meta), "%s_%lu.meta", block_path, (unsigned long)gs);
	fd = open(block_path, O_RDONLY);
	assert_int_equal(pread(fd, bytes, sizeof(bytes), 0), st.st_size);
	close(fd);
	fd = open(meta, O_RDONLY);
	assert_true(fd >= 0);
	for (uint64_t at = 0; at < (uint64_t)st.st_size; at += bpc) {
		const uint64_t n = (uint64_t)st.st_size - at < bpc ? (uint64_t)st.st_size - at : bpc;

		assert_int_equal(pread(fd, stored, 4, (off_t)(META_HEADER + at / bpc * 4)), 4);
		assert_int_equal(crc_verify(CRC_CRC32C, bytes + at, n, bpc, stored), -1);
	}
	close(fd);
}

/* ---- the sender ---- */

static struct {
	struct write_source source;
	struct bwrite *w;
	int64_t acked;
	bool opened, ended;
} sender;

static void on_opened(struct write_source *s, int status, const char *bad_link, bool replica_failed)
{
	(void)s, (void)bad_link, (void)replica_failed;
	assert_int_equal(status, DT_SUCCESS);
	sender.opened = true;
	reactor_stop(r);
}

static void on_room(struct write_source *s)
{
	(void)s;
}

static void on_ack(struct write_source *s, int64_t seq, const uint8_t *statuses, uint32_t n)
{
	(void)s;
	assert_int_equal(n, 1);
	if (statuses[0] == DT_SUCCESS)
		sender.acked = seq;
	reactor_stop(r);
}

static void on_ended(struct write_source *s, int rc)
{
	(void)s, (void)rc;
	sender.ended = true;
	reactor_stop(r);
}

static const struct write_source_ops source_ops = {.opened = on_opened, .room = on_room, .ack = on_ack, .ended = on_ended};

static void begin(int64_t id, uint32_t bpc)
{
	struct write_params wp = {
		.bp = bp, .client = "writer", .pipeline_size = 1,
		.req = {.block = {id, 1001, 1u << 20}, .stage = STAGE_CREATE, .from_client = true, .crc_type = CRC_CRC32C,
			.bytes_per_crc = bpc, .storage_type = STORAGE_DISK},
	};

	memset(&sender, 0, sizeof(sender));
	sender.acked = -1;
	sender.source = (struct write_source){.ops = &source_ops, .peer = "test"};
	assert_int_equal(bwrite_open(&core, &wp, &sender.source, &sender.w), 0);
	while (!sender.opened)
		fix_run(60000);
	atomic_store(&stalls, true);
}

static struct piece land(int64_t seq, uint64_t off, uint32_t len)
{
	struct piece p = {.seq = seq, .off = off, .len = len, .flush = true};
	struct landing at;

	assert_int_equal(bwrite_land(sender.w, off, len, &at), 0);
	assert_int_equal(at.len, len);
	memcpy(at.slot->data + at.off, data + off, len);
	p.slot = at.slot;
	p.slot_off = at.off;
	return p;
}

static void land_and_send(int64_t seq, uint64_t off, uint32_t len)
{
	const struct piece p = land(seq, off, len);

	assert_int_equal(bwrite_piece(sender.w, &p, NULL), 0);
}

static void end(void)
{
	atomic_store(&stalls, false);
	for (int i = 0; i < 8; i++)
		sem_post(&let_go);
	bwrite_close(sender.w, -ECONNRESET);
	while (!sender.ended)
		fix_run(60000);
	while (!sem_trywait(&let_go))
		;
}

static void a_chunk_goes_on_while_its_beginning_is_written(void **state)
{
	struct piece more;

	(void)state;
	begin(1, 512);
	land_and_send(0, 0, 700);
	more = land(1, 700, 50); /* on its way already */
	fix_run(60000);
	assert_int_equal(bwrite_piece(sender.w, &more, NULL), 0); /* the CRC of the chunk is another one now */
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
		assert_int_equal(bwrite_piece(sender.w, &p, NULL), 0);
		p = (struct piece){.seq = 1, .off = 700, .last = true};
		assert_int_equal(last ? bwrite_piece(sender.w, &p, NULL) : 0, 0);
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
		assert_int_equal(bwrite_piece(sender.w, &p, NULL), 0);
	}
	fix_run(60000);
	fix_run(100);
	assert_int_equal(pool_slots_out(pool), 6); /* of each the bytes and the CRCs */
}

static void a_write_that_failed_keeps_only_what_is_being_written(void **state)
{
	(void)state;
	send_three_lanes(5);
	bwrite_close(sender.w, -ECONNRESET);
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
	bwrite_close(sender.w, -ECONNRESET);
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
		assert_int_equal(bwrite_piece(sender.w, &p, NULL), 0);
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
	assert_int_equal(stat(block_path, &st), 0);
	assert_int_equal(st.st_size, 1 << 16);
	check_disk(1001, 512);
}

/* Of [300, 700) the data are written and the CRC of the first chunk, which is another one then. By a run, and by who
 * finalises the block. */
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
		atomic_store(&no_room, META_HEADER + 4);
		p = land(1, 300, 212);
		p.flush = false;
		assert_int_equal(bwrite_piece(sender.w, &p, NULL), 0);
		p = land(2, 512, 188);
		p.flush = false;
		assert_int_equal(bwrite_piece(sender.w, &p, NULL), 0);
		p = (struct piece){.seq = 3, .off = 700, .last = true};
		assert_int_equal(last ? bwrite_piece(sender.w, &p, NULL) : 0, 0);
		while (!sender.ended)
			fix_run(60000);
		atomic_store(&no_room, -1);
		assert_int_equal(sender.acked, 0);
		assert_int_equal(stat(block_path, &st), 0);
		assert_int_equal(st.st_size, 300);
		check_disk(1001, 512);
	}
}

static int setup(void **state)
{
	const struct pool_opts po = {.count = {64, 32, 8, 8, 64}};

	(void)state;
	sem_init(&let_go, 0, 0);
	for (uint32_t i = 0; i < LEN; i++)
		data[i] = (uint8_t)((i * 7 + 3) % 251);
	fix_setup("bwrite_test", &po);
	fix_store(dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return fix_teardown(dir);
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
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
