/* SPDX-License-Identifier: Apache-2.0 */
/* The next node of a chain over TCP must hear of us before its time-out, also while nobody writes:
 * from the writer, whose heartbeats are packets, or from this node when those of the writer are of
 * his connection, as over RDMA. The writer hears nothing of the latter but that a node has failed.
 * A node that hangs is named before the writer would blame us for it.
 * The next node is a socket in this program; the write before it is the engine's own. */
#include <endian.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/crc.h"
#include "common/wire/dt.h"

#include "datanode/block/engine_test_fixture.h"

#define BPC 512u
#define ACKS_MAX 8
#define READ_NS (200 * NS_PER_MS)

static uint64_t writer_ns; /* its patience; 0: it does not say */

static char dir[] = "/tmp/dtp_sink_test.XXXXXX";
static int64_t next_id = 1;

struct block_pool *dn_pool(struct dn *d, const char *id)
{
	(void)d, (void)id;
	return bp;
}

/* ---- the next node ---- */

static struct node {
	int listener, fd;
	uint16_t port;
	uint8_t in[8192];
	size_t len;
} node;

static void node_say(const void *bytes, size_t n)
{
	assert_int_equal(send(node.fd, bytes, n, MSG_NOSIGNAL), n);
}

static void node_ack(int64_t seq, uint32_t status)
{
	const struct dt_ack ack = {.seqno = seq, .count = 1, .reply = {(uint8_t)status}};
	uint8_t buf[DT_ACK_MAX];

	node_say(buf, dt_ack_encode(&ack, buf));
}

/* Takes what is there. */
static void node_hear(void)
{
	const ssize_t n =
		recv(node.fd, node.in + node.len, sizeof(node.in) - node.len, MSG_DONTWAIT);

	assert_true(n > 0 || (n < 0 && errno == EAGAIN));
	if (n > 0)
		node.len += (size_t)n;
}

static bool node_packet(struct dt_packet *ret)
{
	const ssize_t head = dt_packet_need(node.in, node.len);
	size_t all;

	assert_true(head > 0);
	if ((size_t)head > node.len)
		return false;
	assert_int_equal(dt_packet_decode(node.in, (size_t)head, ret), 0);
	all = (size_t)head + ret->crc_len + ret->data_len;
	if (all > node.len)
		return false;
	node.len -= all;
	memmove(node.in, node.in + all, node.len);
	return true;
}

static struct dt_packet next_packet(void)
{
	const uint64_t end_ns = clock_mono_ns() + 60 * NS_PER_S;
	struct dt_packet p;

	while (!node_packet(&p)) {
		if (clock_mono_ns() > end_ns)
			fail_msg("the next node hears nothing");
		fix_run(5);
		node_hear();
	}
	return p;
}

/* ---- who writes ---- */

static struct writer {
	struct write_source src;
	struct block_write *w;
	bool opened, ended;
	int rc;
	int64_t seq[ACKS_MAX];
	uint8_t behind[ACKS_MAX]; /* status of the node behind */
	unsigned acks;
} writer;

static void on_opened(struct write_source *s, int status, const char *bad_link, bool replica_failed)
{
	(void)s, (void)bad_link;
	assert_false(replica_failed);
	assert_int_equal(status, DT_SUCCESS);
	writer.opened = true;
}

static void on_room(struct write_source *s)
{
	(void)s;
}

static void on_ack(struct write_source *s, int64_t seq, const uint8_t *statuses, uint32_t n)
{
	(void)s;
	assert_true(writer.acks < ACKS_MAX);
	assert_int_equal(n, 2);
	assert_int_equal(statuses[0], DT_SUCCESS);
	writer.seq[writer.acks] = seq;
	writer.behind[writer.acks++] = statuses[1];
}

static void on_ended(struct write_source *s, int rc)
{
	(void)s;
	writer.ended = true;
	writer.rc = rc;
}

static const struct write_source_ops writer_ops = {
	.opened = on_opened, .room = on_room, .ack = on_ack, .ended = on_ended};

static void begin(bool rdma)
{
	struct write_params p = {
		.bp = bp,
		.req = {.block = {next_id++, 1001, 1 << 20},
			.stage = STAGE_CREATE,
			.from_client = true,
			.crc_type = CRC_CRC32C,
			.bytes_per_crc = BPC,
			.storage_type = STORAGE_DISK},
		.client = "client",
		.pipeline_size = 2,
		.target_count = 1,
		.read_ns = writer_ns,
	};
	uint8_t *m;
	size_t len;

	p.targets = calloc(1, sizeof(*p.targets));
	assert_non_null(p.targets);
	snprintf(p.targets->ip, sizeof(p.targets->ip), "127.0.0.1");
	p.targets->xfer_port = node.port;
	writer = (struct writer){.src = {.ops = &writer_ops, .peer = "test", .rdma = rdma}};
	node.len = 0;
	assert_int_equal(block_write_open(&core, &p, &writer.src, &writer.w), 0);
	while ((node.fd = accept4(node.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) < 0)
		fix_run(5);
	while (!node.len) { /* the operation, in one piece on a loopback device */
		fix_run(5);
		node_hear();
	}
	node.len = 0;
	assert_int_equal(dt_write_response_encode(DT_SUCCESS, "", false, NULL, 0, &m, &len), 0);
	node_say(m, len);
	free(m);
	while (!writer.opened)
		fix_run(5);
}

static bool synced; /* so are the pieces */

/* @len bytes of zeros at @off, or a heartbeat, or the end. */
static void write_piece(int64_t seq, uint64_t off, uint32_t len)
{
	struct piece p = {.seq = seq,
			  .off = off,
			  .len = len,
			  .last = !len && seq != SEQ_HEARTBEAT,
			  .sync = synced,
			  .flush = true};
	struct landing land;
	int rc;

	if (len) {
		while ((rc = block_write_land(writer.w, off, len, &land)) == -EAGAIN)
			fix_run(5);
		assert_int_equal(rc, 0);
		assert_int_equal(land.len, len);
		memset(land.slot->data + land.off, 0, len);
		p.slot = land.slot;
		p.slot_off = land.off;
	}
	assert_int_equal(block_write_piece(writer.w, &p, NULL), 0);
}

static void wait_for_acks(unsigned n)
{
	while (writer.acks < n)
		fix_run(5);
	assert_int_equal(writer.acks, n);
}

static void end(int rc)
{
	if (rc)
		block_write_close(writer.w, rc);
	while (!writer.ended)
		fix_run(5);
	assert_int_equal(writer.rc, rc);
	while (core.op_count)
		fix_run(5);
	assert_int_equal(pool_slots_out(pool), 0);
	close(node.fd);
}

/* ---- tests ---- */

static void a_quiet_writer_over_rdma_loses_no_next_node_over_tcp(void **state)
{
	struct dt_packet p;

	(void)state;
	begin(true);
	for (int64_t seq = 0; seq < 3; seq++) {
		for (unsigned i = 0; i < 3; i++) { /* quiet for one and a half of the time-out */
			p = next_packet();
			assert_int_equal(p.seqno, SEQ_HEARTBEAT);
			assert_int_equal(p.data_len + p.crc_len, 0);
			assert_false(p.last || p.sync);
			node_ack(p.seqno, DT_SUCCESS);
		}
		write_piece(seq, (uint64_t)seq * BPC, BPC);
		while ((p = next_packet()).seqno == SEQ_HEARTBEAT) /* a busy machine */
			node_ack(p.seqno, DT_SUCCESS);
		assert_int_equal(p.seqno, seq);
		assert_int_equal(p.data_len, BPC);
		/* while the ack is late, too */
		assert_int_equal(next_packet().seqno, SEQ_HEARTBEAT);
		node_ack(seq, DT_SUCCESS);
		node_ack(SEQ_HEARTBEAT, DT_SUCCESS);
		wait_for_acks((unsigned)seq + 1);
		assert_int_equal(writer.seq[seq], seq);
		assert_int_equal(writer.behind[seq], DT_SUCCESS);
	}
	write_piece(3, 3 * BPC, 0);
	while (!(p = next_packet()).last)
		node_ack(p.seqno, DT_SUCCESS);
	fix_run(READ_NS / NS_PER_MS); /* nothing behind the last packet */
	node_hear();
	assert_int_equal(node.len, 0);
	node_ack(3, DT_SUCCESS);
	wait_for_acks(4);
	end(0);
}

static void a_writer_over_tcp_makes_the_heartbeats(void **state)
{
	(void)state;
	begin(false);
	fix_run(2 * READ_NS / NS_PER_MS);
	node_hear();
	assert_int_equal(node.len, 0);
	write_piece(SEQ_HEARTBEAT, 0, 0);
	assert_int_equal(next_packet().seqno, SEQ_HEARTBEAT);
	node_ack(SEQ_HEARTBEAT, DT_SUCCESS);
	wait_for_acks(1);
	assert_int_equal(writer.seq[0], SEQ_HEARTBEAT);
	end(-ECONNRESET);
}

/* The next node has the bytes on its disk, too. */
static void a_sync_is_passed_on(void **state)
{
	struct dt_packet p;

	(void)state;
	begin(false);
	for (int64_t seq = 0; seq < 3; seq++) {
		synced = seq == 1;
		write_piece(seq, (uint64_t)seq * BPC, seq < 2 ? BPC : 0);
		p = next_packet();
		assert_int_equal(p.seqno, seq);
		assert_int_equal(p.sync, seq == 1);
		assert_int_equal(p.last, seq == 2);
		node_ack(seq, DT_SUCCESS);
		wait_for_acks((unsigned)seq + 1);
	}
	end(0);
}

static void a_node_that_fails_behind_a_quiet_writer_is_told(void **state)
{
	(void)state;
	begin(true);
	assert_int_equal(next_packet().seqno, SEQ_HEARTBEAT);
	node_ack(SEQ_HEARTBEAT, DT_ERROR);
	wait_for_acks(1);
	assert_int_equal(writer.seq[0], SEQ_UNKNOWN);
	assert_int_equal(writer.behind[0], DT_ERROR);
	end(-ECONNRESET);
}

static void an_ack_of_no_heartbeat_breaks_the_chain(void **state)
{
	(void)state;
	begin(true);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(next_packet().seqno, SEQ_HEARTBEAT);
	for (uint32_t i = 0; i < 20; i++) /* more than are sent meanwhile */
		node_ack(SEQ_HEARTBEAT, DT_SUCCESS);
	wait_for_acks(1);
	assert_int_equal(writer.seq[0], SEQ_UNKNOWN);
	assert_int_equal(writer.behind[0], DT_ERROR);
	end(-ECONNRESET);
}

/* Its writer, who has less patience than we, gives us up after one node's patience more, and would
 * blame us. */
static void a_node_that_hangs_is_named_before_its_writer_has_had_enough(void **state)
{
	uint64_t began_ns;

	(void)state;
	core.waits.read_ns = 60 * NS_PER_S;
	writer_ns = READ_NS;
	begin(false);
	began_ns = clock_mono_ns();
	write_piece(0, 0, BPC);
	while (!writer.acks) {
		if (clock_mono_ns() - began_ns > 2 * XFER_NODE_NS)
			fail_msg("it is not named in time");
		fix_run(5);
	}
	assert_int_equal(writer.seq[0], SEQ_UNKNOWN);
	assert_int_equal(writer.behind[0], DT_ERROR);
	end(-ECONNRESET);
	core.waits.read_ns = READ_NS;
	writer_ns = 0;
}

/* It may have been stopped. For so long as we would wait by ourselves nobody is taken for dead who
 * owes nothing. */
static void a_quiet_writer_with_little_patience_loses_no_next_node(void **state)
{
	(void)state;
	core.waits.read_ns = 60 * NS_PER_S;
	writer_ns = READ_NS;
	begin(false);
	fix_run((READ_NS + XFER_NODE_NS + NS_PER_S) / NS_PER_MS);
	assert_int_equal(writer.acks, 0);
	write_piece(0, 0, BPC);
	assert_int_equal(next_packet().seqno, 0);
	node_ack(0, DT_SUCCESS);
	wait_for_acks(1);
	assert_int_equal(writer.seq[0], 0);
	assert_int_equal(writer.behind[0], DT_SUCCESS);
	end(-ECONNRESET);
	core.waits.read_ns = READ_NS;
	writer_ns = 0;
}

static int setup(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htobe32(INADDR_LOOPBACK)};
	const struct pool_opts po = {.count = {64, 32, 8, 8, 64}};
	socklen_t len = sizeof(a);

	(void)state;
	fix_setup("dtp_sink_test", &po);
	fix_store(dir);
	core.waits.read_ns = READ_NS;
	node.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(node.listener, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(node.listener, 4), 0);
	assert_int_equal(getsockname(node.listener, (struct sockaddr *)&a, &len), 0);
	node.port = be16toh(a.sin_port);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	close(node.listener);
	return fix_teardown(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_quiet_writer_over_rdma_loses_no_next_node_over_tcp),
		cmocka_unit_test(a_writer_over_tcp_makes_the_heartbeats),
		cmocka_unit_test(a_sync_is_passed_on),
		cmocka_unit_test(a_node_that_fails_behind_a_quiet_writer_is_told),
		cmocka_unit_test(an_ack_of_no_heartbeat_breaks_the_chain),
		cmocka_unit_test(a_node_that_hangs_is_named_before_its_writer_has_had_enough),
		cmocka_unit_test(a_quiet_writer_with_little_patience_loses_no_next_node),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
