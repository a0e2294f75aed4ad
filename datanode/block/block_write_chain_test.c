/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold before a block being written is acknowledged: its bytes are in the file and on the
 * next node; with hsync data, checksums and directory entry are on the disk, and a part that fails
 * fails the write; readers see no more than was acknowledged. Who is blamed: a next node that dies,
 * lies or acknowledges out of turn, but not one that finds damage or hangs up behind its last ack.
 * Syncs wait until a test lets them go, and the next node does what a test says. */
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/crc.h"
#include "common/wire/dt.h"
#include "datanode/block/block_write_internal.h"
#include "datanode/block/engine_test_fixture.h"
#include "datanode/block/sink.h"

#define LEN 65536u
#define BPC 512

static char dir[] = "/tmp/block_write_chain.XXXXXX";
static uint8_t data[LEN];
static int64_t next_id = 1;

struct block_pool *dn_pool(struct dn *d, const char *id)
{
	(void)d, (void)id;
	return bp;
}

/* ---- the disk: what of a sync waits or fails ---- */

enum part { DATA, META, DIRECTORY, PARTS };

static struct {
	bool hold[PARTS], fail[PARTS];
	int held[PARTS]; /* eventfds of those that wait; -1: none */
	unsigned asked[PARTS];
	bool hold_writes;
	atomic_uint writes_held;
} disk;
static sem_t dir_go, write_go;
static enum replica_sync finalised_how;
static unsigned finalised;

static void path_of(int fd, char path[300])
{
	char link[32];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, 299);
	path[n > 0 ? n : 0] = 0;
}

/* A sync that is about to be given to the kernel. */
static void take_sync(struct io_uring_sqe *sqe)
{
	char path[300];
	enum part p;

	path_of(sqe->fd, path);
	p = strstr(path, ".meta") ? META : DATA;
	assert_int_equal(sqe->fsync_flags, IORING_FSYNC_DATASYNC);
	disk.asked[p]++;
	if (disk.fail[p])
		sqe->fd = -1;
	if (!disk.hold[p])
		return;
	disk.held[p] = eventfd(0, 0);
	sqe->opcode = IORING_OP_POLL_ADD;
	sqe->fd = disk.held[p];
	sqe->poll32_events = POLLIN;
}

static void look_at(struct io_uring *ring)
{
	for (unsigned i = ring->sq.sqe_head; i != ring->sq.sqe_tail; i++) {
		struct io_uring_sqe *sqe = &ring->sq.sqes[i & ring->sq.ring_mask];

		if (sqe->opcode == IORING_OP_FSYNC)
			take_sync(sqe);
	}
}

int __real_io_uring_submit_and_get_events(struct io_uring *ring);
int __wrap_io_uring_submit_and_get_events(struct io_uring *ring);
int __wrap_io_uring_submit_and_get_events(struct io_uring *ring)
{
	look_at(ring);
	return __real_io_uring_submit_and_get_events(ring);
}

int __real_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
					    unsigned n, struct __kernel_timespec *ts,
					    sigset_t *mask);
int __wrap_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
					    unsigned n, struct __kernel_timespec *ts,
					    sigset_t *mask);
int __wrap_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe,
					    unsigned n, struct __kernel_timespec *ts,
					    sigset_t *mask)
{
	look_at(ring);
	return __real_io_uring_submit_and_wait_timeout(ring, cqe, n, ts, mask);
}

int __real_replica_sync_dir(struct replica_writer *w);
int __wrap_replica_sync_dir(struct replica_writer *w);
int __wrap_replica_sync_dir(struct replica_writer *w)
{
	disk.asked[DIRECTORY]++;
	if (disk.hold[DIRECTORY])
		sem_wait(&dir_go);
	return disk.fail[DIRECTORY] ? -EBADF : __real_replica_sync_dir(w);
}

int __real_replica_finalize(struct replica_writer *w, uint64_t len, enum replica_sync how,
			    const char *hint, struct err *err);
int __wrap_replica_finalize(struct replica_writer *w, uint64_t len, enum replica_sync how,
			    const char *hint, struct err *err);
int __wrap_replica_finalize(struct replica_writer *w, uint64_t len, enum replica_sync how,
			    const char *hint, struct err *err)
{
	finalised++;
	finalised_how = how;
	return __real_replica_finalize(w, len, how, hint, err);
}

ssize_t __real_pwrite64(int fd, const void *buf, size_t len, off_t off);
ssize_t __wrap_pwrite64(int fd, const void *buf, size_t len, off_t off);
ssize_t __wrap_pwrite64(int fd, const void *buf, size_t len, off_t off)
{
	char path[300];

	path_of(fd, path);
	if (disk.hold_writes && strstr(path, "/blk_") && !strstr(path, ".meta")) {
		atomic_fetch_add(&disk.writes_held, 1);
		sem_wait(&write_go);
	}
	return __real_pwrite64(fd, buf, len, off);
}

static void sync_let_go(enum part p)
{
	const uint64_t one = 1;

	if (p == DIRECTORY) {
		sem_post(&dir_go);
		return;
	}
	assert_true(disk.held[p] >= 0);
	assert_int_equal(write(disk.held[p], &one, sizeof(one)), sizeof(one));
}

/* ---- the next node ---- */

static struct {
	struct piece_sink base;
	struct rtimer closed;
	bool there, closing;
	int64_t got[64];
	unsigned count;
} hop;

static void hop_forward(struct piece_sink *s, struct piece *p)
{
	assert_false(hop.closing);
	assert_in_range(hop.count, 0, 63);
	hop.got[hop.count++] = p->seq;
	s->user->ops->sent(s->user, p);
}

static void hop_closed(struct rtimer *t)
{
	(void)t;
	hop.there = false;
	hop.base.user->ops->closed(hop.base.user);
}

static void hop_close(struct piece_sink *s)
{
	(void)s;
	hop.closing = true;
	hop.closed.fire = hop_closed;
	reactor_timer_set(r, &hop.closed, clock_mono_ns() + 5 * NS_PER_MS);
}

static const struct piece_sink_ops hop_ops = {.forward = hop_forward, .close = hop_close};

int sink_open(struct engine_core *c, const struct sink_params *params, struct sink_user *user,
	      struct piece_sink **ret)
{
	(void)c, (void)params;
	memset(&hop, 0, sizeof(hop));
	hop.there = true;
	hop.base = (struct piece_sink){.ops = &hop_ops, .user = user};
	*ret = &hop.base;
	return 0;
}

static void hop_opens(int status, const char *bad_link)
{
	hop.base.user->ops->opened(hop.base.user, status, bad_link);
}

static void hop_acks(int64_t seq, uint8_t status)
{
	hop.base.user->ops->acked(hop.base.user, seq, &status, 1);
}

static void hop_breaks(void)
{
	hop.base.user->ops->broken(hop.base.user, -ECONNRESET);
}

/* ---- the sender ---- */

static struct {
	struct write_source source;
	struct block_write *w;
	int64_t id, acked;
	int opened; /* status + 1 */
	char bad_link[32];
	bool ended, blames_hop, error_of_hop;
	int own; /* last status of this node that was no success */
	int64_t own_seq;
	int rc;
} sender;

static void on_opened(struct write_source *s, int status, const char *bad_link, bool failed)
{
	(void)s, (void)failed;
	sender.opened = status + 1;
	snprintf(sender.bad_link, sizeof(sender.bad_link), "%s", bad_link);
}

static void on_room(struct write_source *s)
{
	(void)s;
}

static void on_ack(struct write_source *s, int64_t seq, const uint8_t *statuses, uint32_t n)
{
	(void)s;
	if (statuses[0] != DT_SUCCESS) {
		sender.own = statuses[0];
		sender.own_seq = seq;
	} else if (seq == SEQ_UNKNOWN) {
		assert_int_equal(n, 2);
		sender.blames_hop |= statuses[1] == DT_ERROR;
		sender.error_of_hop |= statuses[1] == DT_ERROR_UNSUPPORTED;
	} else {
		assert_int_equal(seq, sender.acked + 1); /* in order */
		for (uint32_t i = 0; i < n; i++)
			assert_int_equal(statuses[i], DT_SUCCESS);
		sender.acked = seq;
	}
}

static void on_ended(struct write_source *s, int rc)
{
	(void)s;
	sender.ended = true;
	sender.rc = rc;
}

static const struct write_source_ops source_ops = {
	.opened = on_opened, .room = on_room, .ack = on_ack, .ended = on_ended};

/* A while, which is enough for all that is not held. */
static void pass(void)
{
	for (int i = 0; i < 3; i++)
		fix_run(10);
}

static void run_until(const bool *what)
{
	for (int i = 0; i < 6000 && !*what; i++)
		fix_run(10);
	assert_true(*what);
}

static void run_until_acked(int64_t seq)
{
	for (int i = 0; i < 6000 && sender.acked < seq; i++)
		fix_run(10);
	assert_int_equal(sender.acked, seq);
}

struct begin {
	bool chain, later, transfer;
};

static void begin(struct begin b)
{
	struct write_params wp = {
		.bp = bp,
		.client = "writer",
		.pipeline_size = b.chain ? 2 : 1,
		.sync_later = b.later,
		.req = {.block = {next_id, 1001, 1u << 20},
			.stage = STAGE_CREATE,
			.from_client = true,
			.crc_type = CRC_CRC32C,
			.bytes_per_crc = BPC,
			.storage_type = STORAGE_DISK},
	};

	memset(&disk, 0, sizeof(disk));
	disk.held[DATA] = disk.held[META] = -1;
	finalised = 0;
	dn.sync_on_close = true;
	if (b.chain) {
		wp.targets = calloc(1, sizeof(*wp.targets));
		wp.target_count = 1;
	}
	memset(&sender, 0, sizeof(sender));
	sender.acked = -1;
	sender.id = next_id++;
	sender.source = (struct write_source){.ops = &source_ops, .peer = "10.1.2.3:4567"};
	assert_int_equal(block_write_open(&core, &wp, &sender.source, &sender.w), 0);
	for (int i = 0; i < 6000 && !(b.chain ? hop.there : sender.opened); i++)
		fix_run(10);
	if (b.chain)
		hop_opens(DT_SUCCESS, "");
	pass();
}

struct how {
	bool sync, last, bad;
};

static void send_piece(int64_t seq, uint64_t off, uint32_t len, struct how how)
{
	struct piece p = {.seq = seq,
			  .off = off,
			  .len = len,
			  .flush = true,
			  .sync = how.sync,
			  .last = how.last};
	uint8_t crcs[LEN / BPC * 4];
	struct landing at;

	if (len) {
		assert_int_equal(block_write_land(sender.w, off, len, &at), 0);
		memcpy(at.slot->data + at.off, data + off, len);
		p.slot = at.slot;
		p.slot_off = at.off;
		crc_chunks(CRC_CRC32C, data + off, len, BPC, crcs);
		crcs[0] ^= how.bad;
	}
	assert_int_equal(block_write_piece(sender.w, &p, len ? crcs : NULL), 0);
	pass();
}

static struct replica_info replica(void)
{
	struct replica_info info;

	assert_int_equal(replica_get(bp, sender.id, &info), 0);
	return info;
}

static void end(void)
{
	if (!sender.ended)
		block_write_close(sender.w, -ECONNRESET);
	run_until(&sender.ended);
	for (int p = 0; p < PARTS; p++)
		if (p != DIRECTORY && disk.held[p] >= 0)
			(void)close(disk.held[p]);
	while (hop.there)
		fix_run(10);
}

/* ---- syncs ---- */

static void hsync_is_acknowledged_when_all_three_are_on_the_disk(void **state)
{
	(void)state;
	for (enum part p = DATA; p < PARTS; p++) {
		begin((struct begin){.chain = false});
		disk.hold[p] = true;
		send_piece(0, 0, 1024, (struct how){.sync = true});
		for (enum part q = DATA; q < PARTS; q++)
			assert_int_equal(disk.asked[q], 1);
		assert_int_equal(sender.acked, -1);
		assert_int_equal(replica().visible, 0);
		sync_let_go(p);
		run_until_acked(0);
		assert_int_equal(replica().visible, 1024);
		disk.hold[p] = false;
		send_piece(1, 1024, 1024, (struct how){.sync = true}); /* the directory has it */
		run_until_acked(1);
		assert_int_equal(disk.asked[DATA], 2);
		assert_int_equal(disk.asked[META], 2);
		assert_int_equal(disk.asked[DIRECTORY], 1);
		send_piece(2, 2048, 1024, (struct how){.sync = false});
		run_until_acked(2);
		assert_int_equal(disk.asked[DATA], 2);
		end();
	}
}

static void a_part_that_cannot_be_synced_fails_the_write(void **state)
{
	(void)state;
	for (enum part p = DATA; p < PARTS; p++) {
		begin((struct begin){.chain = false});
		disk.fail[p] = true;
		/* also when another part ends later, and well */
		disk.hold[p == DATA ? META : DATA] = true;
		send_piece(0, 0, 1000, (struct how){.sync = true});
		assert_int_equal(sender.acked, -1);
		sync_let_go(p == DATA ? META : DATA);
		run_until(&sender.ended);
		assert_int_equal(sender.acked, -1);
		assert_int_equal(sender.own, DT_ERROR);
		assert_int_equal(sender.own_seq, 0);
		assert_int_equal(sender.rc, -EBADF);
		end();
	}
}

static void a_sync_begins_when_its_bytes_are_in_the_file(void **state)
{
	(void)state;
	begin((struct begin){.chain = false});
	disk.hold_writes = true;
	send_piece(0, 0, 4096, (struct how){.sync = true});
	assert_int_equal(disk.writes_held, 1);
	assert_int_equal(disk.asked[DATA], 0);
	assert_int_equal(sender.acked, -1);
	disk.hold_writes = false;
	sem_post(&write_go);
	run_until_acked(0);
	assert_int_equal(disk.asked[DATA], 1);
	end();
}

static void a_sync_covers_what_was_there_when_it_began(void **state)
{
	int first[2];

	(void)state;
	begin((struct begin){.chain = false});
	disk.hold[DATA] = disk.hold[META] = true;
	send_piece(0, 0, 4096, (struct how){.sync = true});
	first[0] = disk.held[DATA];
	first[1] = disk.held[META];
	send_piece(1, 4096, 4096, (struct how){.sync = true});
	assert_int_equal(disk.asked[DATA], 1); /* one at a time */
	sync_let_go(DATA);
	sync_let_go(META);
	run_until_acked(0);
	pass();
	assert_int_equal(sender.acked, 0);
	assert_int_equal(disk.asked[DATA], 2);
	sync_let_go(DATA);
	sync_let_go(META);
	run_until_acked(1);
	(void)close(first[0]);
	(void)close(first[1]);
	end();
}

/* An operation under its own sync is not given back, nor are its files closed. */
static void a_sync_under_way_is_waited_for(void **state)
{
	(void)state;
	for (int last = 0; last < 2; last++) {
		begin((struct begin){.chain = false});
		disk.hold[DATA] = true;
		send_piece(0, 0, 4096, (struct how){.sync = true});
		if (last)
			send_piece(1, 4096, 0, (struct how){.last = true});
		else
			block_write_close(sender.w, -ECONNRESET);
		pass();
		assert_false(sender.ended);
		assert_int_equal(finalised, 0);
		sync_let_go(DATA);
		run_until(&sender.ended);
		assert_int_equal(finalised, last);
		end();
	}
}

static void the_last_packet_says_how_the_end_is_synced(void **state)
{
	static const struct {
		bool sync, later, on_close;
		enum replica_sync how;
	} want[] = {
		{true, false, true, SYNC_NOW},    {true, true, true, SYNC_NOW},
		{true, false, false, SYNC_NOW},   {true, true, false, SYNC_NOW},
		{false, true, true, SYNC_LATER},  {false, false, true, SYNC_NOW},
		{false, true, false, SYNC_NEVER}, {false, false, false, SYNC_NEVER},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
		begin((struct begin){.later = want[i].later});
		dn.sync_on_close = want[i].on_close;
		send_piece(0, 0, 1000, (struct how){.sync = false});
		send_piece(1, 1000, 0, (struct how){.sync = want[i].sync, .last = true});
		run_until(&sender.ended);
		assert_int_equal(sender.acked, 1);
		assert_int_equal(finalised_how, want[i].how);
		assert_int_equal(replica().state, REPLICA_FINALIZED);
		end();
	}
}

static void bytes_are_in_the_file_before_their_ack(void **state)
{
	(void)state;
	begin((struct begin){.chain = false});
	disk.hold_writes = true;
	send_piece(0, 0, 4096, (struct how){.sync = false});
	assert_int_equal(disk.writes_held, 1);
	assert_int_equal(sender.acked, -1);
	send_piece(1, 4096, 0, (struct how){.last = true});
	assert_int_equal(finalised, 0);
	disk.hold_writes = false;
	sem_post(&write_go);
	run_until(&sender.ended);
	assert_int_equal(sender.acked, 1);
	end();
}

/* ---- the next node ---- */

static void the_next_node_has_it_before_readers_and_the_sender_hear(void **state)
{
	(void)state;
	begin((struct begin){.chain = true});
	send_piece(0, 0, 4096, (struct how){.sync = false});
	send_piece(1, 4096, 4096, (struct how){.sync = false});
	assert_int_equal(hop.count, 2);
	assert_int_equal(replica().block.len, 8192); /* in the file */
	assert_int_equal(replica().visible, 0);
	assert_int_equal(sender.acked, -1);
	hop_acks(0, DT_SUCCESS);
	pass();
	assert_int_equal(sender.acked, 0);
	assert_int_equal(replica().visible, 4096);
	hop_acks(1, DT_SUCCESS);
	pass();
	assert_int_equal(sender.acked, 1);
	assert_int_equal(replica().visible, 8192);
	end();
}

/* It may be the faster one. */
static void this_node_has_it_before_the_sender_hears(void **state)
{
	(void)state;
	begin((struct begin){.chain = true});
	disk.hold_writes = true;
	send_piece(0, 0, 4096, (struct how){.sync = false});
	hop_acks(0, DT_SUCCESS);
	pass();
	assert_int_equal(sender.acked, -1);
	assert_int_equal(replica().visible, 0);
	disk.hold_writes = false;
	sem_post(&write_go);
	run_until_acked(0);
	end();
}

static void an_ack_out_of_turn_breaks_the_chain(void **state)
{
	(void)state;
	for (int nothing = 0; nothing < 2; nothing++) {
		begin((struct begin){.chain = true});
		if (!nothing) {
			send_piece(0, 0, 100, (struct how){.sync = false});
			send_piece(1, 100, 100, (struct how){.sync = false});
		}
		hop_acks(1, DT_SUCCESS); /* before 0, or of what was never sent */
		pass();
		assert_true(sender.blames_hop);
		assert_int_equal(sender.acked, -1);
		assert_true(hop.closing);
		end();
	}
}

/* Also when the number is the right one, and an older operation of the same place had it. */
static void an_ack_of_what_was_not_forwarded_breaks_the_chain(void **state)
{
	(void)state;
	begin((struct begin){.chain = true});
	hop_acks(0, DT_SUCCESS);
	pass();
	assert_true(sender.blames_hop);
	end();
}

static void a_next_node_that_dies_is_named_and_nothing_is_acknowledged_after(void **state)
{
	(void)state;
	begin((struct begin){.chain = true});
	send_piece(0, 0, 100, (struct how){.sync = false});
	hop_breaks();
	pass();
	assert_true(sender.blames_hop);
	send_piece(1, 100, 100, (struct how){.sync = false});
	assert_int_equal(hop.count, 1); /* nothing is handed to it any more */
	assert_int_equal(sender.acked, -1);
	assert_int_equal(sender.own, 0); /* this node is well */
	end();
}

static void a_failure_behind_reaches_the_sender(void **state)
{
	(void)state;
	begin((struct begin){.chain = true});
	send_piece(0, 0, 100, (struct how){.sync = false});
	hop_acks(0, DT_ERROR_UNSUPPORTED);
	pass();
	assert_true(sender.error_of_hop);
	assert_int_equal(sender.acked, -1);
	end();
}

/* What this node has verified was damaged here, or on its way from here. */
static void damage_that_the_next_node_finds_is_this_nodes(void **state)
{
	(void)state;
	begin((struct begin){.chain = true});
	send_piece(0, 0, 100, (struct how){.sync = false});
	hop_acks(0, DT_ERROR_CHECKSUM);
	run_until(&sender.ended);
	assert_false(sender.blames_hop);
	assert_int_equal(sender.acked, -1);
	assert_int_equal(sender.rc, -EBADMSG);
	end();
}

static void a_next_node_may_hang_up_behind_its_last_ack(void **state)
{
	(void)state;
	for (int before = 0; before < 2; before++) {
		begin((struct begin){.chain = true});
		disk.hold_writes = true; /* this node is the slower one */
		send_piece(0, 0, 4096, (struct how){.sync = false});
		send_piece(1, 4096, 0, (struct how){.last = true});
		hop_acks(0, DT_SUCCESS);
		if (!before)
			hop_acks(1, DT_SUCCESS);
		hop_breaks();
		pass();
		assert_int_equal(sender.blames_hop, before);
		disk.hold_writes = false;
		sem_post(&write_go);
		run_until(&sender.ended);
		if (!before)
			assert_int_equal(sender.acked, 1);
		end();
	}
}

static void a_next_node_that_refuses_is_told(void **state)
{
	struct write_params wp = {
		.bp = bp,
		.client = "writer",
		.pipeline_size = 2,
		.target_count = 1,
		.req = {.block = {next_id, 1001, 1u << 20},
			.stage = STAGE_CREATE,
			.from_client = true,
			.crc_type = CRC_CRC32C,
			.bytes_per_crc = BPC,
			.storage_type = STORAGE_DISK},
	};

	(void)state;
	memset(&disk, 0, sizeof(disk));
	disk.held[DATA] = disk.held[META] = -1;
	memset(&sender, 0, sizeof(sender));
	memset(&hop, 0, sizeof(hop));
	wp.targets = calloc(1, sizeof(*wp.targets));
	sender.id = next_id++;
	sender.source = (struct write_source){.ops = &source_ops, .peer = "10.1.2.3:4567"};
	assert_int_equal(block_write_open(&core, &wp, &sender.source, &sender.w), 0);
	run_until(&hop.there);
	assert_int_equal(sender.opened, 0); /* nothing is answered before the chain stands */
	hop_opens(DT_ERROR_ACCESS_TOKEN, "10.9.9.9:1");
	run_until(&sender.ended);
	assert_int_equal(sender.opened, DT_ERROR_ACCESS_TOKEN + 1);
	assert_string_equal(sender.bad_link, "10.9.9.9:1");
	end();
}

/* ---- damage ---- */

static void each_node_finds_damage_and_hands_none_on(void **state)
{
	(void)state;
	for (int chain = 0; chain < 2; chain++) {
		begin((struct begin){.chain = chain});
		send_piece(0, 0, 4096, (struct how){.sync = false});
		if (chain)
			hop_acks(0, DT_SUCCESS);
		send_piece(1, 4096, 4096, (struct how){.bad = true});
		run_until(&sender.ended);
		assert_int_equal(sender.own, DT_ERROR_CHECKSUM);
		assert_int_equal(sender.own_seq, 1);
		assert_int_equal(sender.rc, -EBADMSG);
		if (chain)
			assert_int_equal(hop.count, 1);
		assert_int_equal(sender.acked, 0);
		assert_int_equal(replica().block.len, 4096);
		end();
	}
}

static void a_block_with_damage_is_not_finalised(void **state)
{
	struct piece last = {.seq = 1, .off = 100, .last = true};

	(void)state;
	begin((struct begin){.chain = true});
	disk.hold_writes = true;
	send_piece(0, 0, 100, (struct how){.bad = true});
	(void)block_write_piece(sender.w, &last, NULL);
	disk.hold_writes = false;
	sem_post(&write_go);
	run_until(&sender.ended);
	assert_int_equal(finalised, 0);
	assert_int_equal(sender.own, DT_ERROR_CHECKSUM);
	while (!sem_trywait(&write_go))
		;
	end();
}

static void what_does_not_end_the_block_is_no_last_packet(void **state)
{
	struct piece p = {.seq = 0, .off = 100, .last = true};

	(void)state;
	begin((struct begin){.chain = false});
	assert_int_equal(block_write_piece(sender.w, &p, NULL), -EINVAL);
	p.off = 0;
	assert_int_equal(block_write_piece(sender.w, &p, NULL), 0);
	p.seq = 1;
	p.last = false;
	assert_int_equal(block_write_piece(sender.w, &p, NULL), -EINVAL); /* nothing follows it */
	run_until(&sender.ended);
	end();
}

static int setup(void **state)
{
	const struct pool_opts po = {.count = {64, 32, 8, 8, 64}};

	(void)state;
	sem_init(&dir_go, 0, 0);
	sem_init(&write_go, 0, 0);
	for (uint32_t i = 0; i < LEN; i++)
		data[i] = (uint8_t)((i * 7 + 3) % 251);
	fix_setup("block_write_chain_test", &po);
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
		cmocka_unit_test(hsync_is_acknowledged_when_all_three_are_on_the_disk),
		cmocka_unit_test(a_part_that_cannot_be_synced_fails_the_write),
		cmocka_unit_test(a_sync_begins_when_its_bytes_are_in_the_file),
		cmocka_unit_test(a_sync_covers_what_was_there_when_it_began),
		cmocka_unit_test(a_sync_under_way_is_waited_for),
		cmocka_unit_test(the_last_packet_says_how_the_end_is_synced),
		cmocka_unit_test(bytes_are_in_the_file_before_their_ack),
		cmocka_unit_test(the_next_node_has_it_before_readers_and_the_sender_hear),
		cmocka_unit_test(this_node_has_it_before_the_sender_hears),
		cmocka_unit_test(an_ack_out_of_turn_breaks_the_chain),
		cmocka_unit_test(an_ack_of_what_was_not_forwarded_breaks_the_chain),
		cmocka_unit_test(a_next_node_that_dies_is_named_and_nothing_is_acknowledged_after),
		cmocka_unit_test(a_failure_behind_reaches_the_sender),
		cmocka_unit_test(damage_that_the_next_node_finds_is_this_nodes),
		cmocka_unit_test(a_next_node_may_hang_up_behind_its_last_ack),
		cmocka_unit_test(a_next_node_that_refuses_is_told),
		cmocka_unit_test(each_node_finds_damage_and_hands_none_on),
		cmocka_unit_test(a_block_with_damage_is_not_finalised),
		cmocka_unit_test(what_does_not_end_the_block_is_no_last_packet),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
