/* SPDX-License-Identifier: Apache-2.0 */
/* A source over TCP must hold, whatever the node at the other end says to READ_BLOCK (packets
 * without bytes and without an end, in the wrong place, of the wrong size, wrong bytes, a stream
 * that stops anywhere, any byte changed): what is handed out is right and in order, the source
 * ends, and says why.
 * The node is a thread with a script; what it says goes through a real socket. */
#include <endian.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/crc.h"
#include "common/wire/dt.h"
#include "datanode/block/source.h"

#include "datanode/block/engine_test_fixture.h"

#define DATA_LEN 200000u
#define BPC 512u
#define PACKET 65536u
#define ROUNDS 200
#define SCRIPT_MAX (2 * DATA_LEN)
#define DRIP_MS 40
#define MANY_DRIPS 400u /* fewer than there are in CRCs, or in a piece */

static char dir[] = "/tmp/dtp_source_test.XXXXXX";
static uint8_t data[DATA_LEN];
static uint64_t rnd = 1;

static uint32_t random_below(uint32_t n)
{
	rnd = rnd * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(rnd >> 33) % n;
}

struct block_pool *dn_pool(struct dn *d, const char *id)
{
	(void)d, (void)id;
	return bp;
}

/* ---- the node ---- */

static struct node {
	int listener;
	uint16_t port;
	pthread_t thread;
	uint8_t script[SCRIPT_MAX];
	size_t len, again; /* the script's last @again bytes are said without end */
	size_t drips;      /* the last @drips bytes are said one by one, each after DRIP_MS */
	bool hangs_up;     /* else it waits until the source does */
	uint8_t heard[4096];
	size_t heard_len; /* behind the op */
} node;

static void put(const void *bytes, size_t n)
{
	assert_true(node.len + n <= sizeof(node.script));
	memcpy(node.script + node.len, bytes, n);
	node.len += n;
}

static void put_answer(uint64_t first)
{
	uint8_t *m;
	size_t len;

	assert_int_equal(dt_read_response_encode(CRC_CRC32C, BPC, first, false, &m, &len), 0);
	put(m, len);
	free(m);
}

static void put_header(const struct dt_packet *p)
{
	uint8_t head[DT_PACKET_HEADER_MAX];

	put(head, dt_packet_encode(p, head));
}

static void put_packet(uint32_t off, uint32_t len)
{
	const struct dt_packet p = {.offset = off,
				    .data_len = len,
				    .crc_len = (uint32_t)crc_bytes(CRC_CRC32C, len, BPC)};
	uint8_t crcs[4 * (PACKET / BPC + 1)];

	put_header(&p);
	crc_chunks(CRC_CRC32C, data + off, len, BPC, crcs);
	put(crcs, p.crc_len);
	put(data + off, len);
}

static void put_empty(uint32_t off, bool last)
{
	put_header(&(struct dt_packet){.offset = off, .last = last});
}

/* Answer and packets of [@from, @to), without the empty one at the end. */
static void put_bytes(uint32_t from, uint32_t to)
{
	put_answer(from);
	for (uint32_t at = from; at < to; at += PACKET)
		put_packet(at, to - at < PACKET ? to - at : PACKET);
}

static bool say(int fd, const uint8_t *p, size_t n)
{
	while (n > 0) {
		const ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);

		if (sent <= 0)
			return false;
		p += sent;
		n -= (size_t)sent;
	}
	return true;
}

static bool say_script(int fd)
{
	const size_t at_once = node.len - node.drips;
	bool ok = say(fd, node.script, at_once);

	for (size_t i = at_once; ok && i < node.len; i++) {
		(void)nanosleep(&(struct timespec){0, DRIP_MS * NS_PER_MS}, NULL);
		ok = say(fd, node.script + i, 1);
	}
	return ok;
}

static void *node_run(void *arg)
{
	const int fd = accept(node.listener, NULL, NULL);
	uint8_t op[4096];
	ssize_t n;

	(void)arg;
	if (recv(fd, op, sizeof(op), 0) > 0 && say_script(fd))
		while (node.again && say(fd, node.script + node.len - node.again, node.again))
			;
	while (!node.hangs_up && (n = recv(fd, node.heard + node.heard_len,
					   sizeof(node.heard) - node.heard_len, 0)) > 0)
		node.heard_len += (size_t)n;
	close(fd);
	return NULL;
}

/* ---- the asker ---- */

static struct asker {
	struct read_sink sink;
	struct piece_source *src;
	uint64_t at;
	bool opened, ended;
	int open_rc, rc;
	char why[ERR_TEXT_MAX]; /* it was not opened */
} asker;

static void on_opened(struct read_sink *s, int rc, const struct read_info *info,
		      const struct err *err)
{
	(void)s;
	assert_false(asker.opened);
	asker.opened = true;
	asker.open_rc = rc;
	if (rc < 0)
		snprintf(asker.why, sizeof(asker.why), "%s", err->text);
	else
		asker.at = info->first;
}

static void on_piece(struct read_sink *s, struct piece *p)
{
	(void)s;
	assert_true(asker.opened && asker.open_rc == 0 && !asker.ended);
	assert_int_equal(p->off, asker.at);
	assert_true(p->len > 0 && p->off + p->len <= DATA_LEN);
	assert_memory_equal(p->slot->data + p->slot_off, data + p->off, p->len);
	asker.at += p->len;
	asker.src->ops->sent(asker.src, p);
}

static void on_ended(struct read_sink *s, int rc)
{
	(void)s;
	asker.ended = true;
	asker.rc = rc;
	reactor_stop(r);
}

static const struct read_sink_ops asker_ops = {
	.opened = on_opened, .piece = on_piece, .ended = on_ended};

/* ---- a run ---- */

static void begin(void)
{
	node.len = node.again = node.drips = node.heard_len = 0;
	node.hangs_up = false;
}

/* What becomes of a source of [@off, DATA_LEN) when the node follows its script. */
static int run(uint64_t off)
{
	struct dn_target at = {.ip = "127.0.0.1", .xfer_port = node.port};
	struct source_params p = {.bp = bp,
				  .block = {-1024, 1001, DATA_LEN},
				  .off = off,
				  .len = DATA_LEN - off,
				  .at = &at};

	asker = (struct asker){.sink = {.ops = &asker_ops, .peer = "test"}};
	for (uint32_t i = 0; i < SOURCE_SLOTS; i++)
		p.slots[i] = pool_get(pool, SLOT_8K, POOL_CTRL);
	assert_int_equal(pthread_create(&node.thread, NULL, node_run, NULL), 0);
	assert_int_equal(stream_source_open(&core, &p, &asker.sink, &asker.src), 0);
	while (!asker.ended) /* a source that does not end meets the test's time limit */
		fix_run(1000);
	assert_int_equal(core.op_count, 0);
	assert_int_equal(pthread_join(node.thread, NULL), 0);
	for (uint32_t i = 0; i < SOURCE_SLOTS; i++)
		slot_put(p.slots[i]);
	assert_int_equal(pool_slots_out(pool), 0);
	assert_true(asker.rc || asker.at >= DATA_LEN);
	return asker.rc;
}

static bool heard_verdict(void)
{
	uint8_t want[DT_STATUS_MAX];
	const size_t n = dt_read_status_encode(DT_CHECKSUM_OK, want);

	return node.heard_len == n && memcmp(node.heard, want, n) == 0;
}

/* ---- tests ---- */

static void bytes_come_and_are_confirmed(void **state)
{
	(void)state;
	for (uint32_t from = 0; from < DATA_LEN; from += 40 * BPC) {
		begin();
		put_bytes(from, DATA_LEN);
		put_empty(DATA_LEN, true);
		assert_int_equal(run(from + 7), 0);
		assert_true(heard_verdict());
	}
}

/* They cost the sender nothing, and would keep the slots for ever: each arrives within every
 * deadline. */
static void packets_without_bytes_are_no_progress(void **state)
{
	(void)state;
	for (uint32_t have = 0; have <= 3 * PACKET; have += PACKET) {
		begin();
		put_bytes(0, have < DATA_LEN ? have : DATA_LEN);
		node.again = node.len;
		put_empty(have, false);
		node.again = node.len - node.again;
		assert_int_equal(run(0), -EPROTO);
		assert_int_equal(asker.at, have);
		assert_false(heard_verdict());
	}
}

static void an_end_that_comes_early_is_no_end(void **state)
{
	(void)state;
	begin();
	put_bytes(0, 2 * PACKET);
	put_empty(2 * PACKET, true);
	assert_int_equal(run(0), -ENODATA);
	assert_int_equal(node.heard_len, 0);
	for (uint32_t cut = 0; cut < 40; cut++) {
		begin();
		put_bytes(0, DATA_LEN);
		put_empty(DATA_LEN, true);
		node.len = cut < 20 ? 2 * cut : random_below((uint32_t)node.len);
		node.hangs_up = true;
		assert_true(run(0) < 0);
	}
}

static void packets_that_do_not_fit_are_refused(void **state)
{
	static const struct dt_packet wrong[] = {
		{.offset = 0, .data_len = BPC, .crc_len = 4},          /* again */
		{.offset = 2 * PACKET, .data_len = BPC, .crc_len = 4}, /* a gap */
		/* ends inside a chunk */
		{.offset = PACKET, .data_len = 100, .crc_len = 4},
		{.offset = PACKET, .data_len = BPC, .crc_len = 0}, /* unchecked */
		{.offset = PACKET, .data_len = BPC, .crc_len = 400},
		/* behind the end */
		{.offset = PACKET, .data_len = 4 * PACKET, .crc_len = 4 * 4 * PACKET / BPC},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		begin();
		put_bytes(0, PACKET);
		put_header(&wrong[i]);
		assert_int_equal(run(0), -EPROTO);
		assert_int_equal(asker.at, PACKET);
	}
}

static void a_refusal_is_told(void **state)
{
	uint8_t *m;
	size_t len;

	(void)state;
	begin();
	assert_int_equal(dt_response_encode(DT_ERROR, NULL, "no such replica here", &m, &len), 0);
	put(m, len);
	free(m);
	assert_true(run(0) < 0);
	assert_true(asker.open_rc < 0);
	assert_non_null(strstr(asker.why, "no such replica here"));
	begin();
	put_answer(3 * BPC); /* behind what was asked for */
	assert_int_equal(run(BPC), -EPROTO);
}

static void no_byte_that_is_changed_passes(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < ROUNDS; seed++) {
		uint32_t at;

		rnd = seed * 31 + 1;
		begin();
		put_bytes(0, DATA_LEN);
		put_empty(DATA_LEN, true);
		/* many in the headers */
		at = seed % 2 ? random_below((uint32_t)node.len) : random_below(100);
		node.script[at] ^= (uint8_t)(1u << random_below(8));
		node.hangs_up = true;
		/* on_piece() looks at what is handed out; unused header fields may change */
		(void)run(0);
	}
}

/* Each byte comes in time, but what it is a part of does not: the answer, a header and its CRCs, a
 * piece of the data. */
static void a_node_that_drips_is_left_at_the_end_of_its_time(void **state)
{
	const uint64_t before_ns = core.waits.read_ns;

	(void)state;
	core.waits.read_ns = 5 * DRIP_MS * NS_PER_MS;
	for (int part = 0; part < 3; part++) {
		const uint64_t t0 = clock_mono_ns();

		begin();
		put_answer(0);
		node.drips = part ? 0 : node.len;
		if (part) {
			put_packet(0, PACKET);
			node.drips = PACKET + (part == 1 ? 4 * PACKET / BPC + 10 : 0);
		}
		assert_int_equal(run(0), -ETIMEDOUT);
		assert_true(clock_mono_ns() - t0 >= core.waits.read_ns);
		assert_true(clock_mono_ns() - t0 < MANY_DRIPS * DRIP_MS * NS_PER_MS);
		assert_int_equal(asker.at, 0);
	}
	core.waits.read_ns = before_ns;
}

static int setup(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htobe32(INADDR_LOOPBACK)};
	const struct pool_opts po = {.count = {16, 0, 16, 0}};
	socklen_t len = sizeof(a);

	(void)state;
	fix_setup("dtp_source_test", &po);
	fix_store(dir);
	for (uint32_t i = 0; i < DATA_LEN; i++)
		data[i] = (uint8_t)((i * 7 + i / 1000) % 251);
	node.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
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
		cmocka_unit_test(bytes_come_and_are_confirmed),
		cmocka_unit_test(packets_without_bytes_are_no_progress),
		cmocka_unit_test(an_end_that_comes_early_is_no_end),
		cmocka_unit_test(packets_that_do_not_fit_are_refused),
		cmocka_unit_test(a_refusal_is_told),
		cmocka_unit_test(a_node_that_drips_is_left_at_the_end_of_its_time),
		cmocka_unit_test(no_byte_that_is_changed_passes),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
