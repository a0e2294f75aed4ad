/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a read into registered memory copies nothing but chunks that it wants in part;
 * a node has a window on the bytes of its request only, and none when the read has ended, however
 * it did; without a window, or in other memory, it is copied; memory is registered once, and stays
 * while it is used. */
#include "client/src/stream/stream_rdma_read_internal.h"

#include "client/src/stream/stream_rdma_memory_test_fixture.h"

static struct rstream *must_open_with(const Hc__TokenProto *token, uint64_t at, uint64_t len,
				      void *dest)
{
	static Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;
	static Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT, *locs = &info;
	static Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	static Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	const struct read_setup s = {.lb = &lb, .offset = at, .len = len, .dest = dest};
	struct err err = ERR_INIT;
	struct rstream *rs;

	id.ipaddr = "127.0.0.1";
	id.hostname = id.datanodeuuid = b.poolid = "";
	id.xferport = 1;
	info.id = &id;
	lb.b = &b;
	lb.blocktoken = (Hc__TokenProto *)token;
	lb.n_locs = 1;
	lb.locs = &locs;
	if (stream_rdma.open_read(&fs, &s, &rs, &err) < 0)
		fail_msg("%s", err.text);
	return rs;
}

static struct rstream *must_open(uint64_t at, uint64_t len, void *dest)
{
	return must_open_with(NULL, at, len, dest);
}

/* Block bytes [@at, @at + @len) into @dest; returns how many of them were copied. */
static uint64_t must_read(uint64_t at, uint64_t len, uint8_t *dest)
{
	struct rstream *rs = must_open(at, len, dest);
	struct err err = ERR_INIT;
	uint64_t done = 0;

	if (!answers) /* else it does, and its message may be on its way */
		node_answer();
	while (done < len) {
		const ssize_t n = stream_rdma.read(rs, dest + done, len - done, &err);

		if (n <= 0)
			fail_msg("a read: %s", err.text);
		done += (uint64_t)n;
	}
	stream_rdma.close_read(rs);
	assert_int_equal(open_now, 0);
	assert_memory_equal(dest, block + at, len);
	return fs.count.read_rdma_copied;
}

static void whole_chunks_come_without_a_copy(void **state)
{
	const uint32_t before = slots_out();

	(void)state;
	must_register(mem, MEM);
	assert_int_equal(must_read(512 * 3, 5 * MI + 512 * 7, mem + 4096), 0);
	assert_true(opened >= 10 && !revoked);
	for (unsigned i = 0; i < 4096; i++)
		assert_int_equal(mem[i], 0);
	assert_int_equal(slots_out(), before);
	assert_int_equal(dfs_mem_unregister(&fs, mem), 0);
	assert_int_equal(list_length(&spare), window_count);
}

static void chunks_wanted_in_part_are_copied(void **state)
{
	(void)state;
	must_register(mem, MEM);
	assert_int_equal(must_read(512 * 3 + 12, 2 * MI + 100, mem),
			 500 + (2 * MI + 100 - 500) % 512);
	for (size_t i = 2 * MI + 100; i < MEM; i++)
		assert_int_equal(mem[i], 0);
}

static void less_than_a_chunk_is_copied(void **state)
{
	(void)state;
	must_register(mem, MEM);
	assert_int_equal(must_read(700, 100, mem), 100);
	assert_int_equal(opened, 0);
}

static void memory_that_is_registered_in_part_is_copied(void **state)
{
	(void)state;
	must_register(mem, MI);
	assert_int_equal(must_read(0, MI + 512, mem), MI + 512);
	assert_int_equal(opened, 0);
}

static void longer_chunks_come_without_a_copy_too(void **state)
{
	(void)state;
	bpc = 4096;
	must_register(mem, MEM);
	assert_int_equal(must_read(4096, 2 * MI, mem), 0);
	assert_int_equal(must_read(512, 2 * MI, mem + 4 * MI), 4096);
}

/* Of 512 KiB they would fill two slots. */
static void crcs_of_single_bytes_have_room(void **state)
{
	(void)state;
	bpc = 1;
	must_register(mem, MEM);
	assert_int_equal(must_read(0, 2 * MI, mem), 0);
}

static void without_a_window_it_is_copied(void **state)
{
	(void)state;
	must_register(mem, MEM);
	window_count = 0;
	list_init(&spare);
	assert_int_equal(must_read(0, 2 * MI, mem), 2 * MI);
}

/* A node that says nothing, not even to a CANCEL, may write yet: until its queue pair is gone. */
static void a_silent_node_has_no_memory_that_the_caller_has_back(void **state)
{
	struct rstream *rs;

	(void)state;
	must_register(mem, MEM);
	deaf = true;
	rs = must_open(0, 2 * MI, mem);
	assert_true(open_now > 0);
	assert_int_equal(dfs_mem_unregister(&fs, mem), -EBUSY);
	rs->given_up = true;
	stream_rdma.close_read(rs);
	assert_true(ended);
	assert_true(revoked > 0 && open_now == 0);
	assert_int_equal(dfs_mem_unregister(&fs, mem), 0);
	assert_int_equal(list_length(&spare), window_count);
}

static void a_lost_connection_has_none_either(void **state)
{
	struct rstream *rs;
	struct err err = ERR_INIT;
	struct rtask t;

	(void)state;
	must_register(mem, MEM);
	rs = must_open(0, 2 * MI, mem);
	rdma_run(fs.rdma, &t, break_off);
	assert_int_equal(stream_rdma.read(rs, mem, MI, &err), -ECONNRESET);
	stream_rdma.close_read(rs);
	assert_true(ended);
	assert_true(revoked > 0 && open_now == 0);
}

#define HOARD 512
static struct slot *hoard[HOARD];

static void hoard_crc_slots(struct rtask *t)
{
	for (unsigned i = 0; i < HOARD; i++)
		hoard[i] = pool_get(rdma_pool(t->rdma), SLOT_CRC, POOL_READ);
}

static void give_up_hoard(struct rtask *t)
{
	(void)t;
	for (unsigned i = 0; i < HOARD; i++)
		slot_put(hoard[i]);
}

/* Its device may go then: a window that a request has which waits for a slot goes back, too. */
static void a_lost_connection_has_all_windows_back(void **state)
{
	struct rstream *rs;
	struct err err = ERR_INIT;
	struct rtask t;

	(void)state;
	must_register(mem, MEM);
	rdma_run(fs.rdma, &t, hoard_crc_slots);
	assert_null(hoard[HOARD - 1]);
	rs = must_open(0, 2 * MI, mem);
	assert_int_equal(opened, 0);
	assert_int_equal(list_length(&spare), window_count - 1);
	rdma_run(fs.rdma, &t, break_off);
	assert_int_equal(back_at_close, window_count);
	rdma_run(fs.rdma, &t, give_up_hoard); /* what waited is not granted any more */
	assert_int_equal(stream_rdma.read(rs, mem, MI, &err), -ECONNRESET);
	stream_rdma.close_read(rs);
	assert_int_equal(list_length(&spare), window_count);
}

/* The node lets go of it at once. */
static void a_cancelled_read_has_none_either(void **state)
{
	struct rstream *rs;

	(void)state;
	must_register(mem, MEM);
	rs = must_open(0, 2 * MI, mem);
	stream_rdma.close_read(rs);
	assert_true(opened > 0 && open_now == 0 && !revoked && !ended);
}

/* The connection is others' as well. */
static void a_request_that_does_not_fit_ends_nothing(void **state)
{
	static uint8_t long_id[2 * CAPSULE_MAX_DEFAULT];
	Hc__TokenProto token = HC__TOKEN_PROTO__INIT;
	struct rstream *other, *rs;
	struct err err = ERR_INIT;

	(void)state;
	token.kind = token.service = "";
	token.identifier = (ProtobufCBinaryData){sizeof(long_id), long_id};
	must_register(mem, MEM);
	other = must_open(0, MI, mem + 4 * MI);
	rs = must_open_with(&token, 0, 2 * MI, mem);
	assert_int_equal(stream_rdma.read(rs, mem, MI, &err), -EMSGSIZE);
	stream_rdma.close_read(rs);
	assert_true(taken && !revoked && !failed);
	node_answer();
	err_reset(&err);
	assert_int_equal(stream_rdma.read(other, mem + 4 * MI, MI / 2, &err), MI / 2);
	stream_rdma.close_read(other);
	assert_int_equal(dials, 1);
	assert_int_equal(list_length(&spare), window_count);
}

static void memory_is_registered_once(void **state)
{
	struct dfs_err err;

	(void)state;
	must_register(mem + 4096, MI);
	assert_int_equal(dfs_mem_register(&fs, mem + 4096, MI, &err), -EEXIST);
	assert_int_equal(dfs_mem_register(&fs, mem, 4097, &err), -EEXIST);
	assert_int_equal(dfs_mem_register(&fs, mem + MI + 4095, 4096, &err), -EEXIST);
	must_register(mem, 4096);
	must_register(mem + MI + 4096, 4096);
	assert_int_equal(dfs_mem_unregister(&fs, mem + 8192), -ENOENT);
	assert_int_equal(dfs_mem_unregister(&fs, mem + 4096), 0);
	assert_int_equal(dfs_mem_unregister(&fs, mem + 4096), -ENOENT);
	must_register(mem + 4096, MI);
	assert_int_equal(dfs_mem_register(&fs, mem, 0, &err), -EINVAL);
	assert_int_equal(dfs_mem_register(&fs, NULL, 1, &err), -EINVAL);
	assert_int_equal(dfs_mem_register(&fs, mem, SIZE_MAX, &err), -EINVAL);
}

static void a_failure_to_register_leaves_nothing(void **state)
{
	struct dfs_err err;

	(void)state;
	register_rc = -ENOMEM;
	assert_int_equal(dfs_mem_register(&fs, mem, MI, &err), -ENOMEM);
	assert_string_equal(err.text, "told to");
	assert_int_equal(dfs_mem_unregister(&fs, mem), -ENOENT);
	register_rc = 0;
	must_register(mem, MI);
	fs.set.rdma = RDMA_OFF;
	assert_int_equal(dfs_mem_register(&fs, mem + MI, MI, &err), -ENOTSUP);
}

static void so_many_are_registered_at_most(void **state)
{
	struct dfs_err err;

	(void)state;
	for (unsigned i = 0; i < RDMA_MEMORIES; i++)
		must_register(mem + i * 4096, 4096);
	assert_int_equal(dfs_mem_register(&fs, mem + 4 * MI, 4096, &err), -ENOSPC);
	assert_int_equal(dfs_mem_unregister(&fs, mem), 0);
	must_register(mem + 4 * MI, 4096);
}

/* Its mapping is what reads and writes name. */
static void a_dmabuf_is_read_into_without_a_copy(void **state)
{
	struct dfs_err err;

	(void)state;
	assert_int_equal(dfs_mem_register_dmabuf(&fs, 77, 4096, mem, 4 * MI, &err), 0);
	assert_int_equal(dfs_mem_register(&fs, mem + MI, MI, &err), -EEXIST);
	assert_int_equal(must_read(0, 2 * MI, mem + MI), 0);
	assert_int_equal(dfs_mem_unregister(&fs, mem), 0);
	register_rc = -ENOTSUP;
	assert_int_equal(dfs_mem_register_dmabuf(&fs, 77, 4096, mem, MI, &err), -ENOTSUP);
	assert_int_equal(dfs_mem_unregister(&fs, mem), -ENOENT);
}

/* ---- memory of the library ---- */

static void *must_alloc(size_t len)
{
	struct dfs_err err;
	void *p = NULL;

	if (dfs_buf_alloc(&fs, len, &p, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal((uintptr_t)p % 4096, 0);
	return p;
}

static void memory_of_the_library_is_registered(void **state)
{
	uint8_t *p = must_alloc(2 * MI);

	(void)state;
	assert_int_equal(must_read(0, 2 * MI, p), 0);
	assert_true(opened > 0);
	assert_int_equal(dfs_mem_unregister(&fs, p), -ENOENT); /* the caller has not */
	must_register(p, 2 * MI);                              /* as one had to before */
	assert_int_equal(dfs_mem_unregister(&fs, p), 0);
	assert_int_equal(dfs_mem_unregister(&fs, p), -ENOENT);
	assert_int_equal(must_read(0, 2 * MI, p), 0);
	dfs_buf_free(&fs, p);
	assert_int_equal(fs.memories, 0);
	dfs_buf_free(&fs, NULL);
}

/* Another reader has it: it is freed behind the last. */
static void memory_of_the_library_is_freed_without_a_wait(void **state)
{
	uint8_t *p = must_alloc(2 * MI);
	struct rstream *rs = must_open(0, 2 * MI, p);

	(void)state;
	must_register(mem, MI);
	dfs_buf_free(&fs, p);
	assert_null(ending);
	holds_memory = true;
	stream_rdma.close_read(rs);
	assert_non_null(ending); /* nobody uses it, devices may know of it */
	assert_false(stream_is_registered(&fs, p, MI));
	let_memory_go();
	p = must_alloc(2 * MI);
	dfs_buf_free(&fs, p); /* at once */
	assert_non_null(ending);
	let_memory_go();
}

static void where_nothing_can_be_registered_it_is_memory_all_the_same(void **state)
{
	uint8_t *p;

	(void)state;
	register_rc = -ENOTSUP;
	p = must_alloc(2 * MI);
	assert_int_equal(must_read(0, 2 * MI, p), 2 * MI);
	dfs_buf_free(&fs, p);
	register_rc = 0;
	p = must_alloc(4096); /* not worth it */
	assert_int_equal(fs.memories, 0);
	dfs_buf_free(&fs, p);
	fs.set.rdma = RDMA_OFF;
	p = must_alloc(MI);
	assert_int_equal(fs.memories, 0);
	dfs_buf_free(&fs, p);
}

static void the_library_leaves_callers_some(void **state)
{
	void *p[RDMA_BUFFERS + 1];

	(void)state;
	for (unsigned i = 0; i <= RDMA_BUFFERS; i++)
		p[i] = must_alloc(64 << 10);
	assert_int_equal(fs.memories, RDMA_BUFFERS);
	must_register(mem, MI);
	for (unsigned i = 0; i <= RDMA_BUFFERS; i++)
		dfs_buf_free(&fs, p[i]);
	p[0] = must_alloc(64 << 10);
	assert_int_equal(fs.memories, 2);
	dfs_buf_free(&fs, p[0]);
}

#define m(f) cmocka_unit_test_setup_teardown(f, memory_setup, memory_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		m(whole_chunks_come_without_a_copy),
		m(chunks_wanted_in_part_are_copied),
		m(less_than_a_chunk_is_copied),
		m(memory_that_is_registered_in_part_is_copied),
		m(longer_chunks_come_without_a_copy_too),
		m(crcs_of_single_bytes_have_room),
		m(without_a_window_it_is_copied),
		m(a_silent_node_has_no_memory_that_the_caller_has_back),
		m(a_lost_connection_has_none_either),
		m(a_lost_connection_has_all_windows_back),
		m(a_cancelled_read_has_none_either),
		m(a_request_that_does_not_fit_ends_nothing),
		m(memory_is_registered_once),
		m(a_failure_to_register_leaves_nothing),
		m(so_many_are_registered_at_most),
		m(a_dmabuf_is_read_into_without_a_copy),
		m(memory_of_the_library_is_registered),
		m(memory_of_the_library_is_freed_without_a_wait),
		m(where_nothing_can_be_registered_it_is_memory_all_the_same),
		m(the_library_leaves_callers_some),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
