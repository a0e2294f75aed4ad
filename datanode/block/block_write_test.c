/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold whenever the bytes of a run are about to be written, which is one of the places where a
 * killed process may leave a replica: the bytes in the block file fit the CRCs in the meta file,
 * also those of a chunk that is not full and goes on. And what a write that fails leaves, and gives
 * back; that a write waits for buffers as long as it may and no longer; and what /ops says of it.
 */
#include <fcntl.h>
#include <semaphore.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/crc.h"
#include "common/wire/dt.h"
#include "datanode/block/block_write_internal.h"
#include "datanode/block/sink.h"

#include "datanode/block/engine_test_fixture.h"

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
/* no byte of the meta file at this place or behind it can be written */
static atomic_long no_room = -1;
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
	if (strstr(path, ".meta") && atomic_load(&no_room) >= 0 &&
	    off + (off_t)len > atomic_load(&no_room)) {
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
		const uint64_t n =
			(uint64_t)st.st_size - at < bpc ? (uint64_t)st.st_size - at : bpc;

		assert_int_equal(pread(fd, stored, 4, (off_t)(META_HEADER + at / bpc * 4)), 4);
		assert_int_equal(crc_verify(CRC_CRC32C, bytes + at, n, bpc, stored), -1);
	}
	close(fd);
}

/* ---- the next node, which does nothing by itself ---- */

static struct {
	struct piece_sink base;
	struct rtimer closed;
} hop;

static void hop_forward(struct piece_sink *s, struct piece *p)
{
	(void)s, (void)p;
	fail();
}

static void hop_closed(struct rtimer *t)
{
	(void)t;
	hop.base.user->ops->closed(hop.base.user);
}

static void hop_close(struct piece_sink *s)
{
	(void)s;
	hop.closed.fire = hop_closed;
	reactor_timer_set(r, &hop.closed, clock_mono_ns());
}

static const struct piece_sink_ops hop_ops = {.forward = hop_forward, .close = hop_close};

int sink_open(struct engine_core *c, const struct sink_params *params, struct sink_user *user,
	      struct piece_sink **ret)
{
	(void)c, (void)params;
	hop.base = (struct piece_sink){.ops = &hop_ops, .user = user};
	*ret = &hop.base;
	return 0;
}

/* ---- the sender ---- */

static struct {
	struct write_source source;
	struct block_write *w;
	int64_t acked;
	bool opened, ended;
	bool blames_hop;    /* was told that the next node is gone */
	bool failed;        /* was told that this node has failed, */
	int64_t failed_seq; /* with this */
	int rc;
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
	if (seq == SEQ_UNKNOWN && n == 2)
		sender.blames_hop = statuses[0] == DT_SUCCESS && statuses[1] == DT_ERROR;
	else
		assert_int_equal(n, 1);
	if (statuses[0] == DT_SUCCESS)
		sender.acked = seq;
	if (statuses[0] == DT_ERROR) {
		sender.failed = true;
		sender.failed_seq = seq;
	}
	reactor_stop(r);
}

static void on_ended(struct write_source *s, int rc)
{
	(void)s;
	sender.ended = true;
	sender.rc = rc;
	reactor_stop(r);
}

static const struct write_source_ops source_ops = {
	.opened = on_opened, .room = on_room, .ack = on_ack, .ended = on_ended};

/* @to: the next node, or NULL. */
static void ask(int64_t id, uint32_t bpc, const struct dn_target *to, struct buffers_share *share)
{
	struct write_params wp = {
		.bp = bp,
		.client = "writer",
		.pipeline_size = to ? 2 : 1,
		.req = {.block = {id, 1001, 1u << 20},
			.stage = STAGE_CREATE,
			.from_client = true,
			.crc_type = CRC_CRC32C,
			.bytes_per_crc = bpc,
			.storage_type = STORAGE_DISK},
	};

	if (to) {
		wp.targets = calloc(1, sizeof(*to));
		wp.targets[0] = *to;
		wp.target_count = 1;
	}
	memset(&sender, 0, sizeof(sender));
	sender.acked = -1;
	sender.source =
		(struct write_source){.ops = &source_ops, .peer = "10.1.2.3:4567", .share = share};
	assert_int_equal(block_write_open(&core, &wp, &sender.source, &sender.w), 0);
}

static void begin(int64_t id, uint32_t bpc)
{
	ask(id, bpc, NULL, NULL);
	while (!sender.opened)
		fix_run(60000);
	atomic_store(&stalls, true);
}

static struct piece land(int64_t seq, uint64_t off, uint32_t len)
{
	struct piece p = {.seq = seq, .off = off, .len = len, .flush = true};
	struct landing at;

	assert_int_equal(block_write_land(sender.w, off, len, &at), 0);
	assert_int_equal(at.len, len);
	memcpy(at.slot->data + at.off, data + off, len);
	p.slot = at.slot;
	p.slot_off = at.off;
	return p;
}

static void land_and_send(int64_t seq, uint64_t off, uint32_t len)
{
	const struct piece p = land(seq, off, len);

	assert_int_equal(block_write_piece(sender.w, &p, NULL), 0);
}

static void end(void)
{
	atomic_store(&stalls, false);
	for (int i = 0; i < 8; i++)
		sem_post(&let_go);
	block_write_close(sender.w, -ECONNRESET);
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
	assert_int_equal(stat(block_path, &st), 0);
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
		atomic_store(&no_room, META_HEADER + 4);
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
		assert_int_equal(stat(block_path, &st), 0);
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

/* ---- waits, and /ops ---- */

#define SHORT_NS (50 * NS_PER_MS)

static void assert_waits(int64_t id, const char *state, const char *waits_for)
{
	const struct operation o = fix_op(block_write_list, id);

	assert_string_equal(o.state, state);
	assert_string_equal(o.waits_for, waits_for);
}

/* A minute is for ever. */
static void await(const bool *what)
{
	for (int i = 0; i < 600 && !*what; i++)
		fix_run(100);
	assert_true(*what);
}

static void assert_no_lane(int64_t id)
{
	struct landing at;

	assert_int_equal(block_write_land(sender.w, 0, 1000, &at), -EAGAIN);
	assert_waits(id, "wait_buffers", "buffers");
}

static void a_lane_is_waited_for_no_longer_than_it_may(void **state)
{
	struct landing at;

	(void)state;
	begin(10, 512);
	fix_hold_all();
	assert_no_lane(10);
	fix_give_back();
	assert_waits(10, "run", "peer");
	assert_int_equal(block_write_land(sender.w, 0, 1000, &at), 0);
	block_write_unland(sender.w, 0, &at);
	end();
	core.waits.buffers_ns = SHORT_NS;
	begin(11, 512);
	fix_hold_all();
	assert_no_lane(11);
	await(&sender.ended);
	assert_int_equal(sender.rc, -ENOBUFS);
	fix_give_back();
	atomic_store(&stalls, false);
	core.waits.buffers_ns = 30 * NS_PER_S;
}

/* What others hold of it, all that it may have. */
static struct slot *use_up(struct buffers_share *s)
{
	struct slot *got;
	struct pool_ask a = {.use = POOL_CTRL,
			     .forms = 1,
			     .form[0] = {1, {{SLOT_1M, 1}}},
			     .slots = &got,
			     .budget = {&s->slots}};

	s->slots.limit = 1u << 20;
	assert_true(pool_take(pool, &a));
	return got;
}

static void a_lane_is_charged_to_the_connection(void **state)
{
	struct buffers_share conn;
	struct slot *others;

	(void)state;
	buffers_conn_init(&core, &conn);
	others = use_up(&conn);
	core.waits.buffers_ns = SHORT_NS;
	ask(12, 512, NULL, &conn);
	await(&sender.opened);
	assert_no_lane(12);
	await(&sender.ended);
	assert_int_equal(sender.rc, -ENOBUFS);
	slot_put(others);
	core.waits.buffers_ns = 30 * NS_PER_S;
}

static void await_next_node(int64_t id)
{
	struct operation o = fix_op(block_write_list, id);

	for (int i = 0; i < 6000 && strcmp(o.waits_for, "next node"); i++) {
		fix_run(10);
		o = fix_op(block_write_list, id);
	}
	assert_string_equal(o.waits_for, "next node");
	assert_string_equal(o.state, "wait_next_node");
	assert_string_equal(o.next, "10.9.8.7:9866");
}

static void a_lane_is_charged_to_the_next_node_which_is_blamed(void **state)
{
	static const struct dn_target to = {.ip = "10.9.8.7", .xfer_port = 9866};
	struct slot *others = use_up(buffers_hop(&core, &to));

	(void)state;
	core.waits.buffers_ns = SHORT_NS;
	ask(13, 512, &to, NULL);
	await_next_node(13);
	hop.base.user->ops->opened(hop.base.user, DT_SUCCESS, "");
	await(&sender.opened);
	assert_no_lane(13);
	await(&sender.blames_hop);
	assert_false(sender.ended);
	assert_waits(13, "wait_buffers", "buffers");
	await(&sender.ended); /* the sender does nothing about it */
	assert_int_equal(sender.rc, -EHOSTUNREACH);
	assert_false(sender.failed); /* it was told whom to blame */
	slot_put(others);
	core.waits.buffers_ns = 30 * NS_PER_S;
}

static void a_write_is_listed_with_all_that_is_known_of_it(void **state)
{
	struct operation o;

	(void)state;
	begin(14, 512);
	assert_waits(14, "run", "peer");
	assert_int_equal(fix_op(block_write_list, 14).held, 0);
	atomic_store(&stalled, 0);
	land_and_send(0, 0, 700);
	while (!atomic_load(&stalled))
		fix_run(100);
	nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	o = fix_op(block_write_list, 14);
	assert_string_equal(o.kind, "write");
	assert_string_equal(o.role, "client");
	assert_string_equal(o.transport, "tcp");
	assert_string_equal(o.state, "run");
	assert_string_equal(o.waits_for, "disk");
	assert_string_equal(o.pool, POOL_ID);
	assert_string_equal(o.peer, "10.1.2.3:4567");
	assert_string_equal(o.next, "");
	assert_true(strlen(o.volume) > 0);
	assert_int_equal(o.gs, 1001);
	assert_int_equal(o.bytes, 700);
	assert_int_equal(o.held, 2 * 8192);
	assert_true(o.age_ms >= 20 && o.quiet_ms >= 20 && o.age_ms >= o.quiet_ms);
	end();
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
		cmocka_unit_test(a_quiet_writer_hears_that_its_volume_is_out_of_service),
		cmocka_unit_test(an_older_replica_goes_first),
		cmocka_unit_test(a_lane_is_waited_for_no_longer_than_it_may),
		cmocka_unit_test(a_lane_is_charged_to_the_connection),
		cmocka_unit_test(a_lane_is_charged_to_the_next_node_which_is_blamed),
		cmocka_unit_test(a_write_is_listed_with_all_that_is_known_of_it),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
