/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a node is blamed for small reads that it does not answer, and for nothing else:
 * not while the program was elsewhere, and not for a read that was cancelled. Each read has a
 * deadline of its own, whatever comes on its connection meanwhile. A connection goes back only when
 * no answer is outstanding, and ends with an answer that nobody has asked for. The data node is one
 * end of a socket pair; a run of the queue is made here step by step, by a clock that the test has.
 */
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/src/read/read_queue.h"
#include "client/src/read/reader_test_fixture.h"
#include "client/src/stream/small_read.h"

#define BPC 8u
#define READS 3
#define TIMEOUT (60 * NS_PER_S)

static struct rpc_beside *beside;
static struct read_queue *q;
static struct reader *r;
static int peer; /* the data node's end */
static struct small_read_request request[32];
static unsigned requests; /* that the node has seen */
static struct read_test {
	bool is_over;
	int rc;
	size_t got;
	uint64_t offset;
	uint8_t buf[BLOCK];
} one[READS];

void __wrap_rpc_queue_add_beside(struct rpc_queue *rpc, struct rpc_beside *b);
void __wrap_rpc_queue_add_beside(struct rpc_queue *rpc, struct rpc_beside *b)
{
	(void)rpc;
	beside = b;
}

void __wrap_rpc_queue_begin_beside(struct rpc_queue *rpc);
void __wrap_rpc_queue_begin_beside(struct rpc_queue *rpc)
{
	(void)rpc;
}

/* ---- the program ---- */

static void on_done(void *arg, int rc, const struct dfs_err *err)
{
	struct read_test *t = arg;

	(void)err;
	assert_false(t->is_over);
	t->is_over = true;
	t->rc = rc;
}

static void submit(unsigned i, uint64_t offset, size_t len)
{
	const struct dfs_then then = {on_done, &one[i]};

	one[i] = (struct read_test){.offset = offset};
	assert_int_equal(read_queue_submit(q, r, one[i].buf, len, offset, &one[i].got, &then), 0);
}

static void assert_read(unsigned i, size_t len)
{
	assert_true(one[i].is_over);
	assert_int_equal(one[i].rc, 0);
	assert_int_equal(one[i].got, len);
	expect_bytes(&file[0], (unsigned)(one[i].offset / BLOCK), one[i].offset % BLOCK, one[i].buf,
		     len);
}

/* As rpc_queue_run(): waits for at most @wait_ns. How many calls are over. */
static int run(uint64_t wait_ns)
{
	struct pollfd fds[RPC_BESIDE_FDS];
	uint64_t until = clock_ns + wait_ns;
	uint32_t n;
	int over;

	beside->begin(beside);
	over = beside->take(beside);
	if (!over) {
		n = beside->await(beside, fds, &until);
		if (poll(fds, n, 0) > 0)
			beside->polled(beside, fds);
		else if (until > clock_ns)
			clock_ns = until;
		beside->begin(beside);
		over = beside->take(beside);
	}
	beside->begin(beside);
	return over;
}

static bool is_suspect(void)
{
	char text[NET_TEXT_MAX], why[ERR_TEXT_MAX];

	return node_table_get(&fs.suspects, node_text(&node_id, text), clock_ns, why, sizeof(why));
}

/* ---- the data node ---- */

static void see_requests(void)
{
	static char pool[BLOCK_POOL_ID_MAX];
	uint8_t buf[8192];
	ssize_t have = recv(peer, buf, sizeof(buf), MSG_DONTWAIT), total;
	const uint8_t *p = buf;
	uint32_t prefix;

	for (; have > 0; have -= total, p += total) {
		p += DT_OP_HEADER_LEN;
		have -= DT_OP_HEADER_LEN;
		total = dt_delim_need(p, (size_t)have, 1000, &prefix);
		assert_in_range(total, 1, have);
		assert_int_equal(small_read_request_decode(p + prefix, (size_t)total - prefix,
							   &request[requests++], pool),
				 0);
	}
}

/* The answer to the @i th request, as that to @tag. */
static void answer_as(unsigned i, uint32_t tag)
{
	const struct small_read_request *s = &request[i];
	const uint64_t from = s->offset / BPC * BPC, end = s->offset + s->len;
	const uint32_t len = (uint32_t)((end + BPC - 1) / BPC * BPC - from);
	struct small_read_answer a = {.tag = tag,
				      .crc_type = CRC_CRC32C,
				      .bytes_per_crc = BPC,
				      .lead = (uint32_t)(s->offset - from),
				      .data_len =
					      from + len > BLOCK ? (uint32_t)(BLOCK - from) : len};
	uint8_t out[512], *data;

	a.crc_len = (uint32_t)crc_bytes(CRC_CRC32C, a.data_len, BPC);
	small_read_answer_encode(&a, out);
	data = out + SMALL_READ_HEADER_LEN + a.crc_len;
	for (uint32_t b = 0; b < a.data_len; b++)
		data[b] = byte_of(file[0].pool, (uint64_t)s->block.id, from + b);
	crc_chunks(CRC_CRC32C, data, a.data_len, BPC, out + SMALL_READ_HEADER_LEN);
	assert_int_equal(send(peer, out, small_read_answer_len(&a), MSG_NOSIGNAL),
			 small_read_answer_len(&a));
}

static void answer_request(unsigned i)
{
	answer_as(i, request[i].tag);
}

static bool is_closed(void)
{
	uint8_t b;

	return recv(peer, &b, 1, MSG_DONTWAIT) == 0;
}

/* ---- tests ---- */

/* The queue is not run for longer than any node may take. */
static void what_lies_in_the_socket_is_taken(void **state)
{
	(void)state;
	submit(0, 10, 20);
	submit(1, 130, 50);
	run(0);
	see_requests();
	assert_int_equal(requests, 2);
	answer_request(1);
	answer_request(0);
	clock_ns += 2 * TIMEOUT;
	assert_int_equal(run(0), 2);
	assert_read(0, 20);
	assert_read(1, 50);
	assert_false(is_suspect());
	assert_int_equal(fs.socks.count, 1);
}

/* Of many answers, a part is still at the node: it could not send all. */
static void time_when_nobody_looks_is_no_delay(void **state)
{
	(void)state;
	submit(0, 10, 20);
	submit(1, 130, 50);
	run(0);
	see_requests();
	answer_request(1);
	clock_ns += 2 * TIMEOUT;
	assert_int_equal(run(0), 1);
	clock_ns += 2 * TIMEOUT;
	assert_int_equal(run(0), 0);
	answer_request(0);
	assert_int_equal(run(0), 1);
	assert_read(0, 20);
	assert_read(1, 50);
	assert_false(is_suspect());
}

static void a_node_that_says_nothing_is_late(void **state)
{
	(void)state;
	submit(0, 10, 20);
	run(0);
	assert_int_equal(run(TIMEOUT - 1), 0);
	assert_false(is_suspect());
	assert_int_equal(run(TIMEOUT), 1);
	assert_read(0, 20); /* by the ordinary way */
	assert_true(is_suspect());
	see_requests();
	assert_true(is_closed());
}

/* A program that never lets the queue wait. */
static void a_node_is_late_where_the_program_only_looks_in(void **state)
{
	const uint64_t start = clock_ns;

	(void)state;
	submit(0, 10, 20);
	while (!one[0].is_over && clock_ns < start + 2 * TIMEOUT) {
		run(0);
		clock_ns += NS_PER_S / 10;
	}
	assert_read(0, 20);
	assert_in_range(clock_ns - start, TIMEOUT, TIMEOUT + NS_PER_S);
	assert_true(is_suspect());
}

/* Its deadline is not that of the connection; and the others are late only at theirs. */
static void one_read_is_late_while_others_are_answered(void **state)
{
	const uint64_t start = clock_ns, before = fs.count.read_failovers;
	unsigned i;

	(void)state;
	submit(0, 10, 20);
	submit(1, 130, 50);
	run(0);
	for (i = 2; !one[0].is_over && i < 20; i++) {
		submit(2 - i % 2, 130, 50); /* 2, 1, 2...: the other one is under way */
		run(TIMEOUT / 8);
		see_requests();
		if (one[0].is_over)
			break;
		assert_int_equal(requests, i + 1);
		answer_request(i - 1);
		assert_int_equal(run(0), 1);
		assert_read(1 + i % 2, 50);
	}
	for (i = 0; i < 5; i++)
		run(0); /* anew, as the first */
	assert_read(1, 50);
	assert_read(2, 50);
	assert_read(0, 20);
	assert_in_range(clock_ns - start, TIMEOUT, TIMEOUT + NS_PER_S);
	assert_true(is_suspect());
	assert_int_equal(fs.count.read_failovers - before, 1);
}

static void what_came_at_the_last_moment_is_taken(void **state)
{
	(void)state;
	submit(0, 10, 20);
	run(0);
	see_requests();
	run(TIMEOUT - 1);
	answer_request(0);
	clock_ns += 5 * NS_PER_S;
	assert_int_equal(run(0), 1);
	assert_read(0, 20);
	assert_false(is_suspect());
	assert_int_equal(fs.socks.count, 1);
}

/* As what a node has answered to nobody may be the answer to somebody. */
static void an_answer_that_nobody_asked_for_ends_the_connection(void **state)
{
	(void)state;
	submit(0, 10, 20);
	run(0);
	see_requests();
	answer_as(0, request[0].tag + 1);
	assert_int_equal(run(0), 1);
	assert_read(0, 20);
	assert_true(is_closed());
	assert_int_equal(fs.socks.count, 0);
}

static void the_answer_to_a_cancelled_read_is_waited_for(void **state)
{
	(void)state;
	submit(0, 10, 20);
	submit(1, 130, 50);
	run(0);
	see_requests();
	read_queue_cancel(q, &one[0]);
	assert_int_equal(run(0), 1);
	assert_int_equal(one[0].rc, -ECANCELED);
	answer_request(1);
	assert_int_equal(run(0), 1);
	assert_read(1, 50);
	assert_int_equal(fs.socks.count, 0); /* one is outstanding */
	memset(one[0].buf, 0, BLOCK);
	answer_request(0);
	assert_int_equal(run(0), 0);
	for (unsigned i = 0; i < BLOCK; i++)
		assert_int_equal(one[0].buf[i], 0);
	assert_int_equal(fs.socks.count, 1);
}

static void a_cancelled_read_blames_nobody(void **state)
{
	(void)state;
	submit(0, 10, 20);
	run(0);
	see_requests();
	read_queue_cancel(q, &one[0]);
	assert_int_equal(run(0), 1);
	assert_int_equal(run(2 * TIMEOUT), 0);
	assert_false(is_suspect());
	assert_true(is_closed());
	assert_int_equal(fs.socks.count, 0);
}

/* ---- each test ---- */

static int setup_queue(void **state)
{
	struct sock *s = calloc(1, sizeof(*s));
	int pair[2];

	(void)state;
	begin(false, false);
	fs.set.rdma = RDMA_OFF;
	sock_cache_init(&fs.socks);
	assert_non_null(s);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
	s->fd = pair[0];
	s->takes_small = true;
	snprintf(s->peer, sizeof(s->peer), "127.0.0.1:1");
	assert_int_equal(net_resolve("127.0.0.1", 1, &s->to, NULL), 0);
	sock_cache_put(&fs.socks, s);
	peer = pair[1];
	requests = 0;
	r = open_file("/d/f");
	assert_int_equal(read_queue_new(&fs, NULL, &q), 0);
	return 0;
}

static int teardown_queue(void **state)
{
	(void)state;
	read_queue_free(q);
	reader_free(r);
	sock_cache_fini(&fs.socks);
	close(peer);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	idle_streams_fini(&fs.idle_streams);
	node_table_fini(&fs.suspects);
	return 0;
}

#define t(name) cmocka_unit_test_setup_teardown(name, setup_queue, teardown_queue)

int main(void)
{
	const struct CMUnitTest tests[] = {
		t(what_lies_in_the_socket_is_taken),
		t(time_when_nobody_looks_is_no_delay),
		t(a_node_that_says_nothing_is_late),
		t(a_node_is_late_where_the_program_only_looks_in),
		t(one_read_is_late_while_others_are_answered),
		t(what_came_at_the_last_moment_is_taken),
		t(an_answer_that_nobody_asked_for_ends_the_connection),
		t(the_answer_to_a_cancelled_read_is_waited_for),
		t(a_cancelled_read_blames_nobody),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
