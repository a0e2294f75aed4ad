/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a read into registered memory copies nothing but chunks that it wants in part;
 * a node has a window on the bytes of its request only, and none when the read has ended, however
 * it did; without a window, or in other memory, it is copied; memory is registered once, and stays
 * while it is used. */
#include <stdio.h>
#include <unistd.h>

#include "client/include/dfsclient.h"
#include "common/base/clock.h"
#include "hdfs.pb-c.h"

#include "client/src/stream/stream_rdma_read_internal.h"
#include "client/src/stream/stream_rdma_test_fixture.h"

#define MEM (8u << 20)
#define GONE_NS (100 * NS_PER_MS) /* that the queue pair takes to end */

struct verbs_window {
	struct list link;
	uintptr_t at;
	uint32_t len;
	bool open;
	struct rmsg msg;
	struct xop *op; /* that waits for it to be closed */
};

static struct verbs_window windows[32];
static unsigned window_count;
static atomic_uint opened, revoked, open_now;
static struct list spare;
static uint8_t *mem;
static int register_rc;
static atomic_bool ended;
static atomic_uint back_at_close; /* windows, of a connection that is closed */
static struct rtimer gone_timer;

int __wrap_verbs_memory_new(struct verbs *v, void *p, size_t len, struct verbs_memory **ret,
			    struct err *err);
void __wrap_verbs_memory_free(struct verbs_memory *m);
struct verbs_window *__wrap_verbs_window_get(struct verbs_memory *m, const struct xconn *c);
struct xremote __wrap_verbs_window_open(struct xconn *c, struct verbs_window *w, void *p,
					uint32_t len);
void __wrap_verbs_window_close(struct xconn *c, struct verbs_window *w, struct xop *op);
void __wrap_verbs_window_put(struct verbs_window *w);
void __wrap_verbs_window_revoke(struct verbs_window *w);

int __wrap_verbs_memory_new(struct verbs *v, void *p, size_t len, struct verbs_memory **ret,
			    struct err *err)
{
	(void)v;
	(void)p;
	(void)len;
	if (register_rc < 0)
		return err_set(err, register_rc, "told to");
	*ret = calloc(1, 1);
	return 0;
}

void __wrap_verbs_memory_free(struct verbs_memory *m)
{
	free(m);
}

struct verbs_window *__wrap_verbs_window_get(struct verbs_memory *m, const struct xconn *c)
{
	struct list *l = list_pop(&spare);

	assert_non_null(m);
	assert_ptr_equal(c, &conn);
	return l ? container_of(l, struct verbs_window, link) : NULL;
}

struct xremote __wrap_verbs_window_open(struct xconn *c, struct verbs_window *w, void *p,
					uint32_t len)
{
	assert_ptr_equal(c, &conn);
	assert_false(w->open);
	for (unsigned i = 0; i < window_count; i++) /* each byte is one request's */
		assert_true(!windows[i].open || windows[i].at + windows[i].len <= (uintptr_t)p ||
			    (uintptr_t)p + len <= windows[i].at);
	*w = (struct verbs_window){.at = (uintptr_t)p, .len = len, .open = true};
	opened++;
	open_now++;
	return (struct xremote){(uintptr_t)p, 2};
}

static void closed(struct rmsg *msg)
{
	struct verbs_window *w = container_of(msg, struct verbs_window, msg);

	w->open = false;
	open_now--;
	w->op->done(w->op, 0);
}

/* Not at once, as on a device. */
void __wrap_verbs_window_close(struct xconn *c, struct verbs_window *w, struct xop *op)
{
	assert_true(w->open);
	w->op = op;
	w->msg.fn = closed;
	reactor_post(c->reactor, &w->msg);
}

void __wrap_verbs_window_put(struct verbs_window *w)
{
	assert_false(w->open);
	list_add_tail(&spare, &w->link);
}

void __wrap_verbs_window_revoke(struct verbs_window *w)
{
	assert_true(taken); /* the queue pair is there yet */
	open_now -= w->open;
	w->open = false;
	revoked++;
	list_add_tail(&spare, &w->link);
}

static void on_gone(struct rtimer *t)
{
	(void)t;
	ended = true;
	conn.gone(&conn);
}

/* What is on its way ends only with the queue pair, a while later. */
static void slow_close(struct xconn *c)
{
	if (c == &conn)
		back_at_close = (unsigned)list_length(&spare);
	fake_close(c);
	if (c != &conn || !conn.gone)
		return;
	gone_timer.fire = on_gone;
	reactor_timer_set(conn.reactor, &gone_timer, clock_mono_ns() + GONE_NS);
}

static const struct xport_ops slow_ops = {.name = "slow",
					  .messages = true,
					  .send = fake_send,
					  .recv = fake_recv,
					  .close = slow_close};

static int memory_setup(void **state)
{
	if (setup(state) < 0)
		return -1;
	conn.ops = &slow_ops;
	conn.gone = NULL;
	register_rc = 0;
	opened = revoked = open_now = 0;
	ended = false;
	gone_timer = (struct rtimer){0}; /* of the reactor before */
	window_count = 24;
	list_init(&spare);
	for (unsigned i = 0; i < window_count; i++)
		list_add_tail(&spare, &windows[i].link);
	if (!mem)
		mem = aligned_alloc(4096, MEM);
	memset(mem, 0, MEM);
	return 0;
}

/* A queue pair that is there yet goes with verbs. */
static int memory_teardown(void **state)
{
	const int rc = teardown(state);

	if (conn.gone && !ended)
		conn.gone(&conn);
	return rc;
}

static void must_register(void *p, size_t len)
{
	struct dfs_err err;

	if (dfs_mem_register(&fs, p, len, &err) < 0)
		fail_msg("%s", err.text);
}

static struct rstream *must_open(uint64_t at, uint64_t len, void *dest)
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
	lb.n_locs = 1;
	lb.locs = &locs;
	if (stream_rdma.open_read(&fs, &s, &rs, &err) < 0)
		fail_msg("%s", err.text);
	return rs;
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

static void break_off(struct rtask *t)
{
	struct xop *op = receiving;

	(void)t;
	receiving = NULL;
	op->done(op, -ECONNRESET);
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

#define m(f) cmocka_unit_test_setup_teardown(f, memory_setup, memory_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		m(whole_chunks_come_without_a_copy),
		m(chunks_wanted_in_part_are_copied),
		m(less_than_a_chunk_is_copied),
		m(memory_that_is_registered_in_part_is_copied),
		m(longer_chunks_come_without_a_copy_too),
		m(without_a_window_it_is_copied),
		m(a_silent_node_has_no_memory_that_the_caller_has_back),
		m(a_lost_connection_has_none_either),
		m(a_lost_connection_has_all_windows_back),
		m(a_cancelled_read_has_none_either),
		m(memory_is_registered_once),
		m(a_failure_to_register_leaves_nothing),
		m(so_many_are_registered_at_most),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
