/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: block_write_test_fixture - what the tests of the block write share: a disk whose
 * writes wait until they are let go, a next node that does nothing by itself, and a sender
 *
 * Included by one test program each, which owns what is static here.
 */
#include <semaphore.h>

#include "common/base/crc.h"
#include "common/wire/dt.h"
#include "datanode/block/block_write_internal.h"
#include "datanode/block/sink.h"

#include "datanode/block/engine_test_fixture.h"

#define LEN (1u << 18)

static char dir[] = "/tmp/block_write_test.XXXXXX";
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
static pthread_mutex_t path_lock = PTHREAD_MUTEX_INITIALIZER;
static char written[300]; /* path_lock: the last one */

ssize_t __real_pwrite64(int fd, const void *buf, size_t len, off_t off);
ssize_t __wrap_pwrite64(int fd, const void *buf, size_t len, off_t off);
ssize_t __wrap_pwrite64(int fd, const void *buf, size_t len, off_t off)
{
	char link[32], path[sizeof(written)];
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
		pthread_mutex_lock(&path_lock);
		memcpy(written, path, sizeof(path));
		pthread_mutex_unlock(&path_lock);
		if (atomic_load(&stalls)) {
			atomic_fetch_add(&stalled, 1);
			reactor_stop(r);
			sem_wait(&let_go);
		}
	}
	return __real_pwrite64(fd, buf, len, off);
}

static inline const char *block_path(void)
{
	static char path[sizeof(written)];

	pthread_mutex_lock(&path_lock);
	memcpy(path, written, sizeof(path));
	pthread_mutex_unlock(&path_lock);
	return path;
}

/* ---- the next node, which does nothing by itself ---- */

static struct {
	struct piece_sink base;
	struct rtimer closed;
} hop;

static inline void hop_forward(struct piece_sink *s, struct piece *p)
{
	(void)s, (void)p;
	fail();
}

static inline void hop_closed(struct rtimer *t)
{
	(void)t;
	hop.base.user->ops->closed(hop.base.user);
}

static inline void hop_close(struct piece_sink *s)
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

static inline void on_opened(struct write_source *s, int status, const char *bad_link,
			     bool replica_failed)
{
	(void)s, (void)bad_link, (void)replica_failed;
	assert_int_equal(status, DT_SUCCESS);
	sender.opened = true;
	reactor_stop(r);
}

static inline void on_room(struct write_source *s)
{
	(void)s;
}

static inline void on_ack(struct write_source *s, int64_t seq, const uint8_t *statuses, uint32_t n)
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

static inline void on_ended(struct write_source *s, int rc)
{
	(void)s;
	sender.ended = true;
	sender.rc = rc;
	reactor_stop(r);
}

static const struct write_source_ops source_ops = {
	.opened = on_opened, .room = on_room, .ack = on_ack, .ended = on_ended};

/* @to: the next node, or NULL. */
static inline void ask(int64_t id, uint32_t bpc, const struct dn_target *to,
		       struct buffers_share *share)
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

static inline void begin(int64_t id, uint32_t bpc)
{
	ask(id, bpc, NULL, NULL);
	while (!sender.opened)
		fix_run(60000);
	atomic_store(&stalls, true);
}

static inline struct piece land(int64_t seq, uint64_t off, uint32_t len)
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

static inline void land_and_send(int64_t seq, uint64_t off, uint32_t len)
{
	const struct piece p = land(seq, off, len);

	assert_int_equal(block_write_piece(sender.w, &p, NULL), 0);
}

static inline void end(void)
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

/* ---- waits, and /ops ---- */

static inline int setup(void **state)
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

static inline int teardown(void **state)
{
	(void)state;
	return fix_teardown(dir);
}
