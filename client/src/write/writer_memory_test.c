/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a writer that has flushed holds no packet. One whose packet gets no memory for
 * too long is told so, and nothing is lost by it. Where TCP does as well the same nodes get the
 * bytes by it; when an RDMA connection breaks, as the stream chooses, but by TCP when that has
 * happened often. Lent bytes that are registered are not copied. */
#include "common/base/clock.h"

#include "client/src/write/writer_test_fixture.h"

static void a_flush_leaves_no_packet_behind(void **state)
{
	struct output *f = begin();
	const struct writer *w = container_of(f, struct writer, f);
	struct err err = ERR_INIT;
	size_t len = 0;

	(void)state;
	for (size_t n = 1; len < 20000; n = n * 7 % 1031) { /* mostly inside chunks */
		assert_int_equal(output_write(f, bytes + len, n, &err), n);
		assert_int_equal(output_flush(f, 0, &err), 0);
		assert_int_equal(w->pipe.in_window, 0);
		len += n;
	}
	expect_bytes(len);
	assert_int_equal(output_write(f, bytes, 100, &err), 100);
	assert_int_equal(output_flush(f, DFS_SYNC_END_BLOCK, &err), 0);
	/* of the chunk before nothing goes along */
	assert_int_equal(output_write(f, bytes, 1000, &err), 1000);
	end(f);
	assert_int_equal(block[0].len, len + 100);
	assert_int_equal(block[1].len, 1000);
	assert_memory_equal(block[1].bytes, bytes, 1000);
}

static void a_write_without_memory_fails_and_loses_nothing(void **state)
{
	struct output *f = begin_with(RDMA_REQUIRE, 20);
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(output_write(f, bytes, 100, &err), 100);
	dry = true;
	assert_int_equal(output_flush(f, 0, &err), -ENOBUFS);
	assert_non_null(strstr(err.text, "dfs.rdma.pool.wait"));
	assert_int_equal(output_flush(f, 0, &err), -ENOBUFS);
	/* for that there is room */
	assert_int_equal(output_write(f, bytes + 100, 1000, &err), 1000);
	dry = false;
	assert_int_equal(output_flush(f, 0, &err), 0);
	assert_int_equal(block[0].len, 1100);
	dry = true; /* until the block is full */
	assert_int_equal(output_write(f, bytes + 1100, BLOCK - 1100, &err), BLOCK - 1100);
	assert_int_equal(output_write(f, bytes + BLOCK, 700, &err), -ENOBUFS);
	assert_int_equal(output_write(f, bytes + BLOCK, 700, &err), -ENOBUFS);
	assert_int_equal(output_length(f), BLOCK);
	dry = false;
	assert_int_equal(output_write(f, bytes + BLOCK, 700, &err), 700);
	end(f);
	assert_int_equal(blocks, 2);
	assert_int_equal(block[0].len, BLOCK);
	assert_int_equal(block[1].len, 700);
	expect_bytes(BLOCK + 700);
	assert_int_equal(fs.count.pipeline_recoveries, 0);
}

/* Others of the same file may have kept the caller for long before this one asks for memory. */
static void a_wait_for_memory_begins_when_it_is_asked_for(void **state)
{
	struct fake_stream s = {.base.ops = &fake_alive_ops};
	Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	struct err err = ERR_INIT;
	struct pipeline p;
	int bad;

	(void)state;
	fs.set.rdma_wait_ms = 60000;
	pipeline_init(&p, &fs, CRC_CRC32C, 512);
	p.ws = &s.base;
	p.lb = &lb;
	p.progress_ns = clock_mono_ns() - 100 * NS_PER_S;
	/* the wait of before is forgotten once its packet is sent */
	for (unsigned i = 0; i < 2; i++) {
		struct packet *packet = pipeline_new_packet(&p, 0, 512);

		assert_int_equal(packet_append(packet, CRC_CRC32C, 512, BLOCK, bytes, 512), 512);
		pipeline_queue(&p, packet);
		dry = true;
		assert_int_equal(pipeline_pump(&p, &bad, &err), 1);
		assert_int_equal(pipeline_wait(&p, true, &err), 0);
		p.in_line_since_ns -= 61 * NS_PER_S;
		assert_int_equal(pipeline_wait(&p, true, &err), i == 0 ? -ENOBUFS : 0);
		dry = false;
		assert_int_equal(pipeline_pump(&p, &bad, &err), 0);
		assert_int_equal(p.in_line_since_ns, 0);
	}
	p.ws = NULL;
	p.lb = NULL;
	pipeline_fini(&p);
}

static void where_rdma_need_not_be_the_block_goes_on_without(void **state)
{
	struct output *f = begin_with(RDMA_AUTO, 20);
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(output_write(f, bytes, 5000, &err), 5000);
	dry = true;
	assert_int_equal(output_flush(f, 0, &err), 0);
	assert_int_equal(stamps, 1);
	assert_int_equal(by_rdma, 1);
	dry = false; /* for the next block */
	assert_int_equal(output_write(f, bytes + 5000, BLOCK, &err), BLOCK);
	end(f);
	assert_int_equal(blocks, 2);
	assert_int_equal(by_rdma, 2);
	expect_bytes(BLOCK + 5000);
	assert_int_equal(fs.count.pipeline_recoveries, 0);
}

static void hsync_tells_the_namenode_again_after_going_without(void **state)
{
	struct output *f = begin_with(RDMA_AUTO, 20);
	struct err err = ERR_INIT;

	(void)state;
	for (unsigned i = 0; i < 2; i++) { /* once is enough */
		assert_int_equal(output_write(f, bytes, 1000, &err), 1000);
		assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), 0);
		assert_int_equal(fsyncs, 1);
	}
	dry = true;
	assert_int_equal(output_write(f, bytes, 1000, &err), 1000);
	assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), 0);
	assert_int_equal(stamps, 1);
	assert_int_equal(fsyncs, 2); /* it must hear of the new stamp */
	end(f);
}

/* The device, or the connection over it, has failed where TCP does as well: no node has. */
static void breaks(struct output *f, bool takes_no_more)
{
	const struct writer *w = container_of(f, struct writer, f);
	struct fake_stream *s = container_of(w->pipe.ws, struct fake_stream, base);

	s->dies = s->base.broke = true;
	s->full = takes_no_more;
}

static void where_the_connection_breaks_the_same_nodes_go_on(void **state)
{
	struct output *f = begin_with(RDMA_AUTO, 20);
	const struct writer *w = container_of(f, struct writer, f);
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(output_write(f, bytes, 5000, &err), 5000);
	assert_int_equal(output_flush(f, 0, &err), 0);
	breaks(f, false);
	assert_int_equal(output_write(f, bytes + 5000, 5000, &err), 5000);
	assert_int_equal(output_flush(f, 0, &err), 0);
	assert_int_equal(stamps, 1);
	assert_int_equal(by_rdma, 2); /* it may: the stream knows whether there is a way */
	assert_int_equal(w->f.blamed.failures, 0);
	end(f);
	assert_int_equal(blocks, 1);
	expect_bytes(10000);
}

/* Requests of others are given up, say, and the connection with each of them. */
static void a_block_whose_connections_break_again_and_again_goes_by_tcp(void **state)
{
	struct output *f = begin_with(RDMA_AUTO, 20);
	const struct writer *w = container_of(f, struct writer, f);
	struct err err = ERR_INIT;
	size_t len = 1000;

	(void)state;
	assert_int_equal(output_write(f, bytes, 1000, &err), 1000);
	assert_int_equal(output_flush(f, 0, &err), 0);
	for (unsigned i = 1; i <= 7; i++, len += 1000) {
		breaks(f, false);
		assert_int_equal(output_write(f, bytes + len, 1000, &err), 1000);
		assert_int_equal(output_flush(f, 0, &err), 0);
		assert_int_equal(stamps, i);
		assert_int_equal(by_rdma, i < 5 ? 1 + i : 5);
	}
	assert_int_equal(output_flush(f, DFS_SYNC_END_BLOCK, &err), 0);
	expect_bytes(len);
	for (unsigned i = 0; i < 2; i++) { /* the next one has a count of its own */
		assert_int_equal(output_write(f, bytes, 1000, &err), 1000);
		assert_int_equal(output_flush(f, 0, &err), 0);
		assert_int_equal(by_rdma, 6 + i);
		if (i == 0)
			breaks(f, false);
	}
	assert_int_equal(w->f.blamed.failures, 0);
	end(f);
}

/* Its node may have begun it: another block, with the same node. */
static void a_block_whose_opening_is_not_heard_is_another_one(void **state)
{
	struct output *f = begin_with(RDMA_AUTO, 20);
	const struct writer *w = container_of(f, struct writer, f);
	struct err err = ERR_INIT;

	(void)state;
	fs.set.block_write_retries = 3;
	lost_opens = 3;
	assert_int_equal(output_write(f, bytes, 5000, &err), 5000);
	assert_int_equal(output_flush(f, 0, &err), 0);
	assert_int_equal(w->f.blamed.failures, 0);
	assert_int_equal(abandoned, 3);
	assert_int_equal(blocks, 4);
	end(f);
	assert_int_equal(block[3].len, 5000);
	f = begin_with(RDMA_AUTO, 20);
	lost_opens = 4; /* not for ever */
	assert_int_equal(output_write(f, bytes, 5000, &err), -ECONNRESET);
	assert_int_equal(lost_opens, 0);
	output_free(f);
	fs.set.block_write_retries = 0;
}

/* Before the last packet, which the recovery of a close makes needless. */
static void a_connection_that_breaks_at_the_end_blames_no_node(void **state)
{
	struct output *f = begin_with(RDMA_AUTO, 20);
	const struct writer *w = container_of(f, struct writer, f);
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(output_write(f, bytes, 5000, &err), 5000);
	assert_int_equal(output_flush(f, 0, &err), 0);
	breaks(f, true);
	assert_int_equal(output_close(f, &err), 0);
	assert_int_equal(stamps, 1);
	assert_int_equal(w->f.blamed.failures, 0);
	assert_true(complete);
	assert_false(block[0].finished);
	assert_int_equal(block[0].len, 5000);
	output_free(f);
}

static bool registered;
static int users; /* of that memory */

struct rmem *__wrap_stream_memory_get(struct dfs *d, const void *p, size_t len);
struct rmem *__wrap_stream_memory_get(struct dfs *d, const void *p, size_t len)
{
	(void)d;
	(void)len;
	users += registered;
	return registered ? (struct rmem *)(uintptr_t)p : NULL;
}

void __wrap_rdma_memory_put(struct rmem *m);
void __wrap_rdma_memory_put(struct rmem *m)
{
	users -= m != NULL;
}

bool __wrap_packet_pool_is_registered(struct packet_pool *pool);
bool __wrap_packet_pool_is_registered(struct packet_pool *pool)
{
	(void)pool;
	return true;
}

static void lent_no_more(void *arg)
{
	assert_int_equal(users, 0); /* it may be unregistered at once */
	*(bool *)arg = true;
}

/* Where packets have registered memory, others are better copied into that. */
static void lent_bytes_stay_where_they_are_registered(void **state)
{
	const size_t len = 300u << 10;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct err err = ERR_INIT;
		bool back = false;
		struct output *f;

		registered = i;
		fs.set.packet_size = BIG_BLOCK + (16u << 10);
		fs.set.rdma = RDMA_REQUIRE;
		f = begin_sized(BIG_BLOCK);
		dry = true; /* nothing of it is sent yet */
		assert_int_equal(output_lend(f, bytes, len, lent_no_more, &back, &err), len);
		assert_int_equal(back, !registered);
		assert_int_equal(users, registered);
		dry = false;
		end(f);
		assert_true(back && users == 0);
		assert_int_equal(block[0].len, len);
		assert_memory_equal(block[0].bytes, bytes, len);
	}
	fs.set.packet_size = 16u << 10;
	registered = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_flush_leaves_no_packet_behind),
		cmocka_unit_test(a_write_without_memory_fails_and_loses_nothing),
		cmocka_unit_test(a_wait_for_memory_begins_when_it_is_asked_for),
		cmocka_unit_test(where_rdma_need_not_be_the_block_goes_on_without),
		cmocka_unit_test(hsync_tells_the_namenode_again_after_going_without),
		cmocka_unit_test(where_the_connection_breaks_the_same_nodes_go_on),
		cmocka_unit_test(a_block_whose_connections_break_again_and_again_goes_by_tcp),
		cmocka_unit_test(a_block_whose_opening_is_not_heard_is_another_one),
		cmocka_unit_test(a_connection_that_breaks_at_the_end_blames_no_node),
		cmocka_unit_test(lent_bytes_stay_where_they_are_registered),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
