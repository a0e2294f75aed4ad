/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: block_write_chain_test_fixture - a disk whose writes and syncs wait until a test lets
 * them go, or fail; a next node that does what a test says; and a sender
 *
 * Included by one test program each, which owns what is static here.
 */
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/crc.h"
#include "common/wire/dt.h"
#include "datanode/block/block_write_internal.h"
#include "datanode/block/engine_test_fixture.h"
#include "datanode/block/sink.h"
#include "datanode/block/uring_test_hook.h"

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

/* Directories are synced, and writes made, by helper threads. */
static struct {
	atomic_bool hold[PARTS], fail[PARTS];
	int held[PARTS]; /* eventfds of those that wait; -1: none */
	atomic_uint asked[PARTS];
	atomic_bool hold_writes;
	atomic_uint writes_held;
	uint32_t crc_at_finish; /* on disk, of chunk 1, as who finalises syncs the last bytes */
} disk;
static int sender_meta(void); /* -1: it has none any more */
static sem_t dir_go, write_go;
static enum replica_sync finalised_how;
static unsigned finalised;

static inline void path_of(int fd, char path[300])
{
	char link[32];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, 299);
	path[n > 0 ? n : 0] = 0;
}

/* What is about to be given to the kernel: a sync may wait, or fail. */
static inline void take_sync(struct io_uring_sqe *sqe)
{
	char path[300];
	enum part p;

	if (sqe->opcode != IORING_OP_FSYNC)
		return;
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

static uint32_t stored_crc(int fd_meta, uint64_t chunk)
{
	uint32_t crc;

	assert_int_equal(pread(fd_meta, &crc, sizeof(crc), (off_t)(META_HEADER_LEN + chunk * 4)),
			 sizeof(crc));
	return be32toh(crc);
}

int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
	(void)fd;
	disk.asked[DATA]++;
	if (sender_meta() >= 0)
		disk.crc_at_finish = stored_crc(sender_meta(), 1);
	return disk.fail[DATA] ? (errno = EIO, -1) : 0;
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

static inline void sync_let_go(enum part p)
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
	bool keeps; /* what it is given, until it is gone */
	int64_t got[64];
	unsigned count;
} hop;

static inline void hop_forward(struct piece_sink *s, struct piece *p)
{
	assert_false(hop.closing);
	assert_in_range(hop.count, 0, 63);
	hop.got[hop.count++] = p->seq;
	if (!hop.keeps)
		s->user->ops->sent(s->user, p);
}

static inline void hop_closed(struct rtimer *t)
{
	(void)t;
	hop.there = false;
	hop.base.user->ops->closed(hop.base.user);
}

static inline void hop_close(struct piece_sink *s)
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

static inline void hop_opens(int status, const char *bad_link)
{
	hop.base.user->ops->opened(hop.base.user, status, bad_link);
}

static inline void hop_acks(int64_t seq, uint8_t status)
{
	hop.base.user->ops->acked(hop.base.user, seq, &status, 1);
}

static inline void hop_breaks(void)
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
	unsigned rooms; /* was told so often that there is room again */
	int own;        /* last status of this node that was no success */
	int64_t own_seq;
	int rc;
} sender;

static inline void on_opened(struct write_source *s, int status, const char *bad_link, bool failed)
{
	(void)s, (void)failed;
	sender.opened = status + 1;
	snprintf(sender.bad_link, sizeof(sender.bad_link), "%s", bad_link);
}

static inline void on_room(struct write_source *s)
{
	(void)s;
	sender.rooms++;
}

static inline void on_ack(struct write_source *s, int64_t seq, const uint8_t *statuses, uint32_t n)
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

static inline void on_ended(struct write_source *s, int rc)
{
	(void)s;
	sender.ended = true;
	sender.rc = rc;
}

/* Its meta file, while the write is open. */
static int sender_meta(void)
{
	return sender.w->rw ? sender.w->rw->fd_meta : -1;
}

static const struct write_source_ops source_ops = {
	.opened = on_opened, .room = on_room, .ack = on_ack, .ended = on_ended};

/* A while, which is enough for all that is not held. */
static inline void pass(void)
{
	for (int i = 0; i < 3; i++)
		fix_run(10);
}

/* What must come, however busy the machine is. What must not come is looked at after pass(), when
 * all that is not held has come. */
#define await(what)                                                                                \
	do {                                                                                       \
		for (int i_ = 0; i_ < 6000 && !(what); i_++)                                       \
			fix_run(10);                                                               \
		assert_true(what);                                                                 \
	} while (0)

struct begin {
	bool chain, later, transfer; /* transfer: a copy of a replica that is being written */
	bool copy;                   /* that a NameNode has ordered */
	uint32_t append;             /* to the last block, which has so many bytes */
};

static inline void ask(struct begin b)
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

	if (b.transfer) {
		wp.req.stage = STAGE_TRANSFER_RBW;
		wp.req.from_client = false;
		wp.transfer = true;
	}
	if (b.copy) {
		wp.client[0] = 0;
		wp.req.from_client = false;
	}
	if (b.append) {
		wp.req.stage = STAGE_APPEND;
		wp.req.block.id = --next_id;
		wp.req.min_bytes = b.append;
		wp.req.new_gs = 1002;
	}
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
	memset(&hop, 0, sizeof(hop));
	assert_int_equal(block_write_open(&core, &wp, &sender.source, &sender.w), 0);
	await(hop.there || sender.opened);
}

static inline void begin(struct begin b)
{
	ask(b);
	if (b.chain)
		hop_opens(DT_SUCCESS, "");
	await(sender.opened == DT_SUCCESS + 1);
}

struct how {
	bool sync, last, bad;
};

static inline void submit_piece(int64_t seq, uint64_t off, uint32_t len, struct how how)
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
}

static inline void send_piece(int64_t seq, uint64_t off, uint32_t len, struct how how)
{
	submit_piece(seq, off, len, how);
	pass();
}

static inline struct replica_info replica(void)
{
	struct replica_info info;

	assert_int_equal(replica_get(bp, sender.id, &info), 0);
	return info;
}

static inline void end(void)
{
	if (!sender.ended)
		block_write_close(sender.w, -ECONNRESET);
	await(sender.ended);
	for (int p = 0; p < PARTS; p++)
		if (p != DIRECTORY && disk.held[p] >= 0)
			(void)close(disk.held[p]);
	await(!hop.there);
}

/* ---- set-up ---- */

static inline int setup(void **state)
{
	const struct pool_opts po = {.count = {64, 32, 8, 8, 64}};

	(void)state;
	uring_hook = take_sync;
	sem_init(&dir_go, 0, 0);
	sem_init(&write_go, 0, 0);
	for (uint32_t i = 0; i < LEN; i++)
		data[i] = (uint8_t)((i * 7 + 3) % 251);
	fix_setup("block_write_chain_test", &po);
	fix_store(dir);
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	return fix_teardown(dir);
}
