/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: a read waits for buffers, and for its turn at the disk, as long as it may and no
 * longer; a short one has no turn to wait for, and long ones leave it room; a read reads ahead by
 * one piece only after its peer has stalled or while others wait; streams over one connection share
 * its budget; and /ops says what a read is and what it waits for. */
#include <semaphore.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "common/base/metrics.h"
#include "datanode/block/disk_turns.h"

#include "datanode/block/block_read_test_fixture.h"
#include "datanode/block/uring_test_hook.h"

/* ---- the cases ---- */

static void a_read_waits_for_buffers_no_longer_than_it_may(void **state)
{
	const uint64_t counted = metric_get(METRIC_POOL_WAITS_READ);
	struct reader d;

	(void)state;
	make_replica(1);
	fix_hold_all();
	core.waits.buffers_ns = LONG_NS;
	begin(&d, 1, NULL);
	await_wait(&d, "wait_buffers", "buffers");
	assert_int_equal(metric_get(METRIC_POOL_WAITS_READ), counted + 1);
	assert_int_equal(metric_get(METRIC_POOL_WAITING_READ), 1);
	end(&d);
	assert_int_equal(metric_get(METRIC_POOL_WAITING_READ), 0);
	core.waits.buffers_ns = SHORT_NS;
	begin(&d, 1, NULL);
	await_end(&d, -ENOBUFS);
	fix_give_back();
	begin(&d, 1, NULL);
	d.gives_back = true;
	await_end(&d, 0);
	assert_int_equal(d.bytes, LEN);
}

static void a_read_waits_for_its_turn_no_longer_than_it_may(void **state)
{
	struct reader d;

	(void)state;
	make_replica(2);
	/* somebody's, who keeps it */
	assert_true(disk_turns_begin(&core.disks[0], DISK_TURN_BYTES, clock_mono_ns()));
	core.waits.buffers_ns = LONG_NS;
	begin(&d, 2, NULL);
	await_wait(&d, "run", "turn at the disk");
	end(&d);
	core.waits.buffers_ns = SHORT_NS;
	begin(&d, 2, NULL);
	await_end(&d, -ETIMEDOUT);
	assert_null(disk_turns_done(&core.disks[0], DISK_TURN_BYTES));
	assert_int_equal(pool_slots_out(pool), 0);
}

static int empty[2]; /* sockets: there is nothing to receive */
static unsigned refused, by_worker;

/* A disk that knows no requests that must not wait, as some device-mapper targets: EAGAIN. */
static void refuse_at_once(struct io_uring_sqe *sqe)
{
	const uint64_t user_data = sqe->user_data;
	struct stat st;

	if ((sqe->opcode != IORING_OP_READ && sqe->opcode != IORING_OP_READ_FIXED) ||
	    fstat(sqe->fd, &st) || !S_ISREG(st.st_mode))
		return;
	if (sqe->flags & IOSQE_ASYNC) {
		by_worker++;
		return;
	}
	refused++;
	io_uring_prep_recv(sqe, empty[0], data, 1, MSG_DONTWAIT);
	sqe->user_data = user_data;
}

/* The disk hangs, and what it was asked for ends when the other end of the socket is closed, or
 * gives a byte. */
static unsigned hung;
static int hang_at;
static char given;

static void hang_in_workers(struct io_uring_sqe *sqe)
{
	const uint64_t user_data = sqe->user_data;

	refuse_at_once(sqe);
	if (!(sqe->flags & IOSQE_ASYNC))
		return;
	hung++;
	io_uring_prep_recv(sqe, hang_at, &given, 1, 0);
	sqe->user_data = user_data;
}

/* Who asks for its bytes and its CRCs. It has two workers, or two places in line, before the next
 * one comes: files are opened in any order. */
static void begin_in_turn(struct reader *d, uint64_t id)
{
	const size_t want = hung + list_length(&core.workers[0].waiting) + 2;

	begin_len(d, id, NULL, 4096);
	d->gives_back = true;
	for (int i = 0; i < 600 && hung + list_length(&core.workers[0].waiting) < want; i++)
		fix_run(10);
	assert_int_equal(hung + list_length(&core.workers[0].waiting), want);
}

/* Each takes a thread of the kernel. Those in line go when they are not wanted any more, or when it
 * is their turn. */
static void few_reads_of_a_disk_that_hangs_have_workers(void **state)
{
	struct reader d[12];

	(void)state;
	make_replica(60);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, empty), 0);
	core.waits.buffers_ns = LONG_NS;
	hung = 0;
	hang_at = empty[0];
	uring_hook = hang_in_workers;
	for (int i = 0; i < 12; i++)
		begin_in_turn(&d[i], 60);
	assert_int_equal(hung, DISK_WORKERS);
	block_read_close(d[11].r);
	await_end(&d[11], -ECANCELED);
	uring_hook = NULL;
	(void)close(empty[1]);
	for (int i = 0; i < 11; i++)
		await_end(&d[i], i < (int)DISK_WORKERS / 2 ? -ENODATA : 0);
	assert_int_equal(core.workers[0].busy, 0);
	assert_true(list_empty(&core.workers[0].waiting));
	assert_int_equal(pool_slots_out(pool), 0);
	(void)close(empty[0]);
}

/* What it had asked for comes back short, and the rest would wait in line for a disk that hangs. */
static void a_read_that_was_given_up_waits_in_no_line(void **state)
{
	struct reader given_up, d[10];
	int own[2];

	(void)state;
	make_replica(61);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, empty), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, own), 0);
	core.waits.buffers_ns = LONG_NS;
	hung = 0;
	hang_at = own[0];
	uring_hook = hang_in_workers;
	begin_in_turn(&given_up, 61);
	given_up.gives_back = false;
	hang_at = empty[0];
	for (int i = 0; i < 10; i++)
		begin_in_turn(&d[i], 61);
	block_read_close(given_up.r);
	fix_run(50);
	assert_int_equal(write(own[1], "ab", 2), 2);
	await_end(&given_up, -ECANCELED);
	assert_int_equal(core.workers[0].busy, DISK_WORKERS);
	uring_hook = NULL;
	(void)close(empty[1]);
	for (int i = 0; i < 10; i++)
		await_end(&d[i], i < (int)DISK_WORKERS / 2 ? -ENODATA : 0);
	assert_int_equal(pool_slots_out(pool), 0);
	(void)close(empty[0]);
	(void)close(own[0]);
	(void)close(own[1]);
}

/* A disk that hangs, and whose file system can be asked without waiting: as long as its queue has
 * room. */
static void hang_reads(struct io_uring_sqe *sqe)
{
	const uint64_t user_data = sqe->user_data;
	struct stat st;

	if ((sqe->opcode != IORING_OP_READ && sqe->opcode != IORING_OP_READ_FIXED) ||
	    fstat(sqe->fd, &st) || !S_ISREG(st.st_mode))
		return;
	hung++;
	io_uring_prep_recv(sqe, hang_at, &given, 1, 0);
	sqe->user_data = user_data;
}

static void nobodys_turn(struct disk_request *q)
{
	(void)q;
	fail();
}

/* When the queue has none, each would take a worker. */
static void the_reads_at_a_disk_are_bounded(void **state)
{
	struct disk_request others[DISK_READS - 2];
	struct reader d[2];

	(void)state;
	make_replica(62);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, empty), 0);
	core.waits.buffers_ns = LONG_NS;
	hung = 0;
	hang_at = empty[0];
	uring_hook = hang_reads;
	for (uint32_t i = 0; i < DISK_READS - 2; i++) {
		disk_request_init(&others[i], nobodys_turn);
		assert_true(disk_workers_take(&core.disk_reads[0], &others[i]));
	}
	for (int i = 0; i < 2; i++) {
		begin_len(&d[i], 62, NULL, 4096);
		d[i].gives_back = true;
		for (int k = 0; k < 600 && hung + list_length(&core.disk_reads[0].waiting) <
						   2u * (unsigned)(i + 1);
		     k++)
			fix_run(10);
	}
	assert_int_equal(hung, 2); /* data and CRCs of the first one */
	assert_int_equal(list_length(&core.disk_reads[0].waiting), 2);
	assert_int_equal(core.workers[0].busy, 0);
	end(&d[1]); /* it does not wait for the disk */
	assert_true(list_empty(&core.disk_reads[0].waiting));
	uring_hook = NULL;
	(void)close(empty[1]);
	await_end(&d[0], -ENODATA);
	for (uint32_t i = 0; i < DISK_READS - 2; i++)
		disk_workers_done(&others[i]);
	assert_int_equal(core.disk_reads[0].busy, 0);
	(void)close(empty[0]);
}

static void a_read_that_may_not_wait_is_given_to_a_worker(void **state)
{
	struct reader d;

	(void)state;
	make_replica(40);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, empty), 0);
	core.waits.buffers_ns = LONG_NS;
	uring_hook = refuse_at_once;
	begin(&d, 40, NULL);
	d.gives_back = true;
	await_end(&d, 0);
	uring_hook = NULL;
	assert_int_equal(d.bytes, LEN);
	assert_true(refused > 0);
	assert_int_equal(by_worker, refused); /* each once, and not again and again */
	(void)close(empty[0]);
	(void)close(empty[1]);
}

static void a_short_read_waits_for_no_turn(void **state)
{
	struct reader d;

	(void)state;
	make_replica(9);
	/* somebody's, who keeps it */
	assert_true(disk_turns_begin(&core.disks[0], DISK_TURN_BYTES, clock_mono_ns()));
	core.waits.buffers_ns = LONG_NS;
	core.disks[0].short_ns = 0;
	begin_len(&d, 9, NULL, 4096);
	d.gives_back = true;
	await_end(&d, 0);
	assert_true(core.disks[0].short_ns);
	assert_null(disk_turns_done(&core.disks[0], DISK_TURN_BYTES));
	assert_int_equal(core.disks[0].in_flight, 0);
}

static void while_short_reads_come_long_ones_have_less_of_the_disk(void **state)
{
	const uint64_t mib = 1 << 20, at = LONG_NS;
	struct disk_turns t;

	(void)state;
	disk_turns_init(&t);
	for (uint64_t n = 0; n < DISK_TURN_BYTES; n += mib)
		assert_true(disk_turns_begin(&t, mib, at));
	assert_false(disk_turns_begin(&t, mib, at));
	disk_turns_short(&t, at);
	for (uint64_t n = DISK_TURN_BYTES; n > DISK_TURN_BYTES_SHORT; n -= mib) {
		assert_false(disk_turns_begin(&t, mib, at + 1));
		disk_turns_done(&t, mib);
	}
	assert_false(disk_turns_begin(&t, mib, at + DISK_SHORT_NS - 1));
	disk_turns_done(&t, mib);
	assert_true(disk_turns_begin(&t, mib, at + DISK_SHORT_NS - 1));
	assert_true(disk_turns_begin(&t, mib, at + DISK_SHORT_NS)); /* none came for so long */
	disk_turns_done(&t, t.in_flight);
	disk_turns_short(&t, at);
	assert_true(disk_turns_begin(&t, 2 * DISK_TURN_BYTES_SHORT, at)); /* one may always go */
}

static void who_has_stalled_reads_ahead_by_one_piece(void **state)
{
	const uint64_t counted = metric_get(METRIC_POOL_RECLAIMED);
	struct reader d;

	(void)state;
	make_replica(3);
	core.waits.buffers_ns = LONG_NS;
	begin(&d, 3, NULL);
	await_pieces(&d, 2);
	assert_int_equal(d.held_max, 2 * SET);
	give_back(&d);
	block_read_park(d.r, 0);
	await_wait(&d, "wait_peer", "peer");
	assert_int_equal(fix_op(block_read_list, 3).held, 0);
	assert_int_equal(fix_op(block_read_list, 3).bytes, 0);
	assert_int_equal(metric_get(METRIC_POOL_RECLAIMED), counted + 1);
	d.held_max = d.bytes = 0;
	block_read_resume(d.r);
	await_pieces(&d, 1);
	assert_int_equal(d.held_max, SET);
	give_back(&d);
	d.gives_back = true;
	await_end(&d, 0);
	assert_int_equal(d.bytes, LEN);
}

static void on_reclaim(struct read_sink *s)
{
	struct reader *d = container_of(s, struct reader, sink);

	give_back(d);
	block_read_park(d->r, 0);
}

static void a_failed_read_gives_back_what_its_peer_does_not_take(void **state)
{
	const struct read_sink_ops reclaims = {
		.opened = on_opened, .piece = on_piece, .ended = on_ended, .reclaim = on_reclaim};
	struct reader d;

	(void)state;
	make_replica(10);
	core.waits.buffers_ns = LONG_NS;
	begin(&d, 10, NULL);
	d.sink.ops = &reclaims;
	await_pieces(&d, 2);
	cut_file(10, 2 * PIECE_MAX);
	block_read_sent(d.r, d.out[1]); /* the next one is read */
	d.out_count = 1;
	for (int i = 0; i < 600 && strcmp(fix_op(block_read_list, 10).state, "drain"); i++)
		fix_run(10);
	assert_int_equal(fix_op(block_read_list, 10).held, SET);
	block_read_reclaim_all(&core);
	await_end(&d, -ENODATA);
	assert_int_equal(pool_slots_out(pool), 0);
}

static sem_t let_go;
static uint32_t threads_back, losses;

static void wait_in_thread(struct offload *o)
{
	(void)o;
	sem_wait(&let_go);
}

static void thread_back(struct offload *o)
{
	(void)o;
	threads_back++;
}

static void on_lost(struct read_sink *s)
{
	(void)s;
	losses++;
}

/* The replica was not there when it was asked for. One that was moved meanwhile is the same. */
static void a_read_is_lost_with_the_volume_that_it_was_opened_on(void **state)
{
	const struct read_sink_ops hears = {
		.opened = on_opened, .piece = on_piece, .ended = on_ended, .lost = on_lost};
	struct offload stuck[2];
	struct reader d;

	(void)state;
	core.waits.buffers_ns = LONG_NS;
	sem_init(&let_go, 0, 0);
	for (int i = 0; i < 2; i++) { /* all threads of the queue */
		stuck[i] = (struct offload){.work = wait_in_thread, .done = thread_back};
		reactor_offload(r, &stuck[i]);
	}
	begin(&d, 11, NULL);
	d.sink.ops = &hears;
	make_replica(11);
	for (int i = 0; i < 2; i++)
		sem_post(&let_go);
	await_pieces(&d, 1);
	block_read_volume_out(&core, 1);
	assert_int_equal(losses, 0);
	block_read_volume_out(&core, 0);
	assert_int_equal(losses, 1);
	block_read_volume_out(&core, 0);
	assert_int_equal(losses, 1);
	end(&d);
	while (threads_back < 2)
		fix_run(10);
}

static void on_granted(struct pool_ask *a)
{
	(void)a;
	fail();
}

static void while_others_wait_a_read_holds_one_piece(void **state)
{
	struct slot *small[64], *got;
	struct pool_ask other = {.use = POOL_READ,
				 .forms = 1,
				 .form[0] = {1, {{SLOT_8K, 1}}},
				 .slots = &got,
				 .granted = on_granted};
	struct reader d;
	uint32_t n = 0;

	(void)state;
	make_replica(4);
	core.waits.buffers_ns = LONG_NS;
	while (n < 64 && (small[n] = pool_get(pool, SLOT_8K, POOL_CTRL)))
		n++;
	pool_wait(pool, &other);
	assert_true(pool_is_waiting(&other));
	begin(&d, 4, NULL);
	d.gives_back = true;
	await_end(&d, 0);
	assert_int_equal(d.held_max, SET);
	pool_wait_cancel(pool, &other);
	while (n)
		slot_put(small[--n]);
}

static void reads_over_one_connection_share_its_budget(void **state)
{
	struct buffers_share conns[2];
	struct reader a, b, other;

	(void)state;
	for (int i = 0; i < 2; i++) {
		buffers_conn_init(&core, &conns[i]);
		conns[i].slots.limit = SET;
		make_replica(5 + i);
	}
	make_replica(7);
	core.waits.buffers_ns = LONG_NS;
	begin(&a, 5, &conns[0]);
	await_pieces(&a, 1);
	assert_int_equal(conns[0].slots.used, SET);
	begin(&b, 6, &conns[0]);
	await_wait(&b, "wait_buffers", "buffers");
	begin(&other, 7, &conns[1]);
	await_pieces(&other, 1);
	assert_int_equal(b.bytes, 0);
	give_back(&a);
	await_pieces(&b, 1);
	end(&a);
	end(&b);
	end(&other);
	assert_int_equal(conns[0].slots.used + conns[1].slots.used, 0);
}

static void a_read_is_listed_with_all_that_is_known_of_it(void **state)
{
	struct reader d;
	struct operation o;

	(void)state;
	make_replica(8);
	core.waits.buffers_ns = LONG_NS;
	begin(&d, 8, NULL);
	o = fix_op(block_read_list, 8); /* no helper thread has told that the files are open */
	assert_string_equal(o.state, "wait_disk_open");
	assert_string_equal(o.waits_for, "disk");
	await_pieces(&d, 2);
	o = fix_op(block_read_list, 8);
	assert_string_equal(o.kind, "read");
	assert_string_equal(o.role, "client");
	assert_string_equal(o.transport, "tcp");
	assert_string_equal(o.state, "run");
	assert_string_equal(o.waits_for, "peer");
	assert_string_equal(o.pool, POOL_ID);
	assert_string_equal(o.peer, "10.1.2.3:4567");
	assert_string_equal(o.next, "");
	assert_true(strlen(o.volume) > 0);
	assert_int_equal(o.gs, 1001);
	assert_int_equal(o.bytes, 2 * PIECE_MAX);
	assert_int_equal(o.held, 2 * SET);
	nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	o = fix_op(block_read_list, 8);
	assert_true(o.age_ms >= 20 && o.quiet_ms >= 20 && o.age_ms >= o.quiet_ms);
	d.sink.rdma = true;
	assert_string_equal(fix_op(block_read_list, 8).transport, "rdma");
	d.sink.rdma = false;
	d.sink.own = true;
	assert_string_equal(fix_op(block_read_list, 8).transport, "none");
	end(&d);
}

/* Its last piece is read from the disk after that; on_piece() verifies. Also by the files that are
 * open already. */
static void an_append_under_a_read_is_no_wrong_checksum(void **state)
{
	const uint32_t len = LEN - 300;
	struct reader d[2];

	(void)state;
	make_replica_of(20, len);
	core.waits.buffers_ns = LONG_NS;
	for (int i = 0; i < 2; i++) {
		begin_len(&d[i], 20, NULL, len);
		await_pieces(&d[i], 2);
	}
	append_to_replica(20, len, LEN - 100);
	for (int i = 0; i < 2; i++) {
		d[i].gives_back = true;
		give_back(&d[i]);
		await_end(&d[i], 0);
		assert_int_equal(d[i].bytes, len);
	}
}

/* A recovery that cuts makes a new meta file: a reader that waits for bytes takes their CRCs from
 * that one. */
static void a_read_that_waits_for_bytes_sees_a_recovery(void **state)
{
	const uint32_t acked = 900, len = 3000;

	(void)state;
	for (int finalized = 0; finalized < 2; finalized++) {
		struct write_request q = request(21 + finalized);
		struct replica_writer *w = begin_replica(&q, 1700, acked);
		struct err err = ERR_INIT;
		struct reader d;

		begin_len(&d, q.block.id, NULL, len);
		await_visible_wait(&d);
		replica_write_close(w, false);
		q.stage = STAGE_STREAMING_RECOVERY;
		q.new_gs = 1002;
		q.min_bytes = acked;
		q.max_bytes = 1700;
		w = begin_replica(&q, len, len);
		if (finalized)
			assert_int_equal(replica_finalize(w, len, SYNC_NEVER, NULL, &err), 0);
		d.gives_back = true;
		await_end(&d, 0);
		assert_int_equal(d.bytes, len);
		if (!finalized)
			replica_write_close(w, false);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_read_waits_for_buffers_no_longer_than_it_may),
		cmocka_unit_test(a_read_waits_for_its_turn_no_longer_than_it_may),
		cmocka_unit_test(a_read_that_may_not_wait_is_given_to_a_worker),
		cmocka_unit_test(few_reads_of_a_disk_that_hangs_have_workers),
		cmocka_unit_test(the_reads_at_a_disk_are_bounded),
		cmocka_unit_test(a_read_that_was_given_up_waits_in_no_line),
		cmocka_unit_test(a_short_read_waits_for_no_turn),
		cmocka_unit_test(while_short_reads_come_long_ones_have_less_of_the_disk),
		cmocka_unit_test(who_has_stalled_reads_ahead_by_one_piece),
		cmocka_unit_test(a_failed_read_gives_back_what_its_peer_does_not_take),
		cmocka_unit_test(a_read_is_lost_with_the_volume_that_it_was_opened_on),
		cmocka_unit_test(while_others_wait_a_read_holds_one_piece),
		cmocka_unit_test(reads_over_one_connection_share_its_budget),
		cmocka_unit_test(a_read_is_listed_with_all_that_is_known_of_it),
		cmocka_unit_test(an_append_under_a_read_is_no_wrong_checksum),
		cmocka_unit_test(a_read_that_waits_for_bytes_sees_a_recovery),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
