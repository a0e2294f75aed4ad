/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: for every chunk size, offset and length the reader gets exactly the bytes asked
 * for; files that are too short, damaged or not what they say are never read from: the read goes on
 * by the network (where nobody is, in this test).
 * The files lie in the cache beforehand, as if a node had passed them. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/src/stream/local_replicas.h"
#include "client/src/stream/stream.h"
#include "common/base/clock.h"

#define LEN 700001u

static struct dfs fs;
static uint8_t block[LEN], got[LEN];
static struct local_replica *rep;
static uint64_t rnd = 1;

static uint32_t below(uint32_t n)
{
	rnd = rnd * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(rnd >> 33) % n;
}

static int file_with(const void *data, size_t len)
{
	const int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), len);
	return fd;
}

/* A replica of the block in the cache: chunks of @bpc, CRCs of @type. */
static void arm(enum crc_type type, uint32_t bpc)
{
	const size_t crc_len = crc_bytes(type, LEN, bpc);
	uint8_t *meta = calloc(1, 7 + crc_len);

	local_fini(&fs.local);
	local_init(&fs.local);
	crc_chunks(type, block, LEN, bpc, meta + 7);
	rep = calloc(1, sizeof(*rep));
	*rep = (struct local_replica){
		.fd = file_with(block, LEN),
		.fd_meta = file_with(meta, 7 + crc_len),
		.length = LEN,
		.crc_type = type,
		.bpc = bpc,
		.key = {.id = 1, .gs = 2, .node = "127.0.0.1:1", .pool = "BP"},
		.refs = 1,
		.cached = true,
		.used_ns = clock_mono_ns()};
	list_add_tail(&fs.local.used, &rep->link);
	list_add_tail(&fs.local.bucket[1], &rep->chain);
	fs.local.count = 1;
	free(meta);
}

/* What was asked of the network at last. */
static struct read_setup asked;
int __real_stream_open_network(struct dfs *f, const struct read_setup *r, bool start,
			       struct rstream **ret, struct err *err);
int __wrap_stream_open_network(struct dfs *f, const struct read_setup *r, bool start,
			       struct rstream **ret, struct err *err);
int __wrap_stream_open_network(struct dfs *f, const struct read_setup *r, bool start,
			       struct rstream **ret, struct err *err)
{
	asked = *r;
	return __real_stream_open_network(f, r, start, ret, err);
}

static int open_range(uint64_t offset, uint64_t len, struct rstream **ret)
{
	static Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;
	static Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT, *locs = &info;
	static Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	static Hc__TokenProto token = HC__TOKEN_PROTO__INIT;
	static Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	struct read_setup r = {.lb = &lb, .offset = offset, .len = len, .dest = got};

	id.ipaddr = "127.0.0.1";
	id.hostname = id.datanodeuuid = token.kind = token.service = "";
	id.xferport = 1;
	info.id = &id;
	b.poolid = "BP";
	b.blockid = 1;
	b.generationstamp = 2;
	lb.b = &b;
	lb.blocktoken = &token;
	lb.n_locs = 1;
	lb.locs = &locs;
	return stream_local.open_read(&fs, &r, ret, NULL);
}

/* All of a range, in pieces of @piece. 0, or what the read failed with. */
static int read_range(uint32_t offset, uint32_t len, uint32_t piece)
{
	struct rstream *s;
	uint32_t n = 0;
	ssize_t k = 1;

	if (open_range(offset, len, &s) < 0)
		return -ENOLINK;
	while (n < len && k > 0) {
		k = s->ops->read(s, got + n, piece < len - n ? piece : len - n, NULL);
		n += k > 0 ? (uint32_t)k : 0;
	}
	s->ops->close_read(s);
	assert_memory_equal(got, block + offset, n); /* whatever else happens */
	return k > 0 ? 0 : (int)k;
}

static void every_range_of_every_chunk_size(void **state)
{
	static const uint32_t sizes[] = {1,     7,     64,     512, 513,     4096,
					 65536, 65537, 300000, LEN, 1u << 20};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const uint32_t bpc = sizes[i],
			       edges[] = {0,       1,       bpc - 1,   bpc,   bpc + 1,
					  2 * bpc, LEN - 1, LEN - bpc, 65536, 262144};

		arm(i % 2 ? CRC_CRC32 : CRC_CRC32C, bpc);
		for (size_t a = 0; a < sizeof(edges) / sizeof(edges[0]); a++)
			for (size_t b = 0; b < sizeof(edges) / sizeof(edges[0]); b++)
				if (edges[a] < LEN && edges[b] > 0 && edges[b] <= LEN - edges[a])
					assert_int_equal(read_range(edges[a], edges[b], LEN), 0);
		for (int n = 0; n < 100; n++) {
			const uint32_t offset = below(LEN), len = 1 + below(LEN - offset);

			assert_int_equal(
				read_range(offset, len, 1 + below(n % 2 ? 1000000 : 70000)), 0);
		}
		assert_int_equal(rep->refs, 1);
	}
	arm(CRC_NULL, 512);
	assert_int_equal(read_range(3, LEN - 3, LEN), 0);
}

static void what_does_not_fit_is_not_read(void **state)
{
	uint8_t x;

	(void)state;
	arm(CRC_CRC32C, 512);
	/* it is shorter than that */
	assert_int_equal(open_range(1, LEN, &(struct rstream *){NULL}), -ENOLINK);
	assert_int_equal(fs.local.count, 0);
	arm(CRC_CRC32C, 512);
	assert_int_equal(pread(rep->fd, &x, 1, 5000), 1);
	x ^= 1;
	assert_int_equal(pwrite(rep->fd, &x, 1, 5000), 1);
	assert_int_equal(read_range(0, 4608, 100), 0);
	assert_int_equal(read_range(4607, 10, 100), -ECONNREFUSED); /* a damaged chunk */
	assert_int_equal(fs.local.count, 0);
	assert_int_equal(fs.count.local_fallbacks, 1);
	assert_int_equal(read_range(0, 10, 10), -ENOLINK); /* not of this block, for a while */
	arm(CRC_CRC32C, 512);
	assert_int_equal(ftruncate(rep->fd_meta, 7 + 4), 0);
	assert_int_equal(read_range(0, 512, 512), 0);
	assert_int_equal(read_range(512, 512, 512), -ECONNREFUSED);
	arm(CRC_CRC32C, 512);
	assert_int_equal(ftruncate(rep->fd, 100000), 0); /* cut after it was passed */
	assert_int_equal(read_range(0, 99840, LEN), 0);
	assert_int_equal(read_range(0, LEN, 50000), -ECONNREFUSED);
	assert_true(asked.offset > 0 && asked.offset + asked.len == LEN);
	assert_ptr_equal(asked.dest, got + asked.offset); /* not over what was read */
}

static void without_checksums_when_that_is_asked_for(void **state)
{
	(void)state;
	arm(CRC_CRC32C, 512);
	assert_int_equal(ftruncate(rep->fd_meta, 0), 0);
	fs.set.local.skip_checksum = true;
	assert_int_equal(read_range(77, LEN - 77, LEN), 0);
	fs.set.local.skip_checksum = false;
	assert_int_equal(read_range(77, LEN - 77, LEN), -ECONNREFUSED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_range_of_every_chunk_size),
		cmocka_unit_test(what_does_not_fit_is_not_read),
		cmocka_unit_test(without_checksums_when_that_is_asked_for),
	};
	int rc;

	for (uint32_t i = 0; i < LEN; i++)
		block[i] = (uint8_t)below(256);
	fs.set.local.enabled = true;
	fs.set.local.path = "/nosuch/dn._PORT";
	fs.set.local.cache_size = 10;
	fs.set.local.expiry_ms = 100000;
	fs.set.rdma = RDMA_OFF;
	fs.set.connect_timeout_ms = fs.set.socket_timeout_ms = 20000;
	sock_cache_init(&fs.socks);
	local_init(&fs.local);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	local_fini(&fs.local);
	sock_cache_fini(&fs.socks);
	return rc;
}
