/* SPDX-License-Identifier: Apache-2.0 */
/* A node with two addresses, and connections that break. What must hold: the next stream goes to
 * the address that is not known to be bad, by RDMA; when both are bad it goes by TCP. What cannot
 * be sent at all goes by TCP, however good the connection is. And where a connection breaks between
 * a request to begin a block and its answer, the node is not asked to make the same replica again,
 * which it would refuse; it is, where a repetition does no harm. */
#include <endian.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "client/src/stream/rdma_internal.h"
#include "client/src/stream/stream_rdma_write_internal.h"
#include "common/base/clock.h"
#include "hdfs.pb-c.h"

#include "client/src/stream/stream_rdma_test_fixture.h"

#define LONG_NS (60 * NS_PER_S)

static uint32_t tcp_port = 1; /* nobody is there */

/* ---- the program ---- */

static Hd__LocatedBlockProto *located(void)
{
	static Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;
	static Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT, *locs = &info;
	static Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	static Hd__StorageTypeProto type = HD__STORAGE_TYPE_PROTO__DISK;
	static Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	static Hc__TokenProto token = HC__TOKEN_PROTO__INIT;
	static char storage[] = "s", *storages = storage;

	id.ipaddr = "127.0.0.1";
	id.hostname = id.datanodeuuid = b.poolid = token.kind = token.service = "";
	id.xferport = tcp_port;
	info.id = &id;
	lb.b = &b;
	lb.blocktoken = &token;
	lb.n_locs = lb.n_storageids = lb.n_storagetypes = 1;
	lb.locs = &locs;
	lb.storageids = &storages;
	lb.storagetypes = &type;
	return &lb;
}

static int open_write(enum dt_stage stage, struct wstream **ret, int *ret_bad, struct err *err)
{
	const struct write_setup s = {.lb = located(),
				      .block = located()->b,
				      .stage = stage,
				      .latest_gs = stage == DT_SETUP_CREATE ? 0 : 1002,
				      .crc_type = CRC_CRC32C,
				      .bpc = 512};

	err_reset(err);
	return stream_open_write(&fs, &s, ret, ret_bad, err);
}

static struct wstream *must_open_write(void)
{
	struct wstream *s = NULL;
	struct err err = ERR_INIT;
	int bad;

	if (open_write(DT_SETUP_CREATE, &s, &bad, &err) < 0)
		fail_msg("%s", err.text);
	assert_ptr_equal(s->ops, &stream_rdma);
	return s;
}

static int open_read(struct rstream **ret, struct err *err)
{
	const struct read_setup s = {.lb = located(), .len = SMALL};

	err_reset(err);
	return stream_open_read(&fs, &s, ret, err);
}

static struct rstream *must_open_read(void)
{
	struct rstream *s = NULL;
	struct err err = ERR_INIT;

	if (open_read(&s, &err) < 0)
		fail_msg("%s", err.text);
	assert_ptr_equal(s->ops, &stream_rdma);
	return s;
}

static void is_at(const struct wstream *s, const char *want)
{
	const struct rdma_w *w = container_of(s, struct rdma_w, base);
	char text[NET_TEXT_MAX];

	assert_string_equal(net_text(rails_addr(w->call.conn->rail), text), want);
}

/* ---- the connection ---- */

struct drop {
	struct rtask t;
	int rc;
};

static void drop_run(struct rtask *t)
{
	struct xop *op = receiving;

	receiving = NULL;
	op->done(op, container_of(t, struct drop, t)->rc);
}

static void drop(int rc)
{
	struct drop d = {.rc = rc};

	rdma_run(fs.rdma, &d.t, drop_run);
}

/* Its writer hears of it, and no node is to blame. */
static void must_break(struct wstream *s, int rc)
{
	struct err err = ERR_INIT;
	struct ack a;

	drop(rc);
	assert_int_equal(stream_rdma.wait(s, false, clock_mono_ns() + LONG_NS, &err), 1);
	assert_int_equal(stream_rdma.next_ack(s, &a, &err), rc);
	assert_true(s->broke);
	stream_rdma.close_write(s);
}

static void has_two_addresses(void)
{
	fs.set.rdma = RDMA_AUTO;
	fs.set.connect_timeout_ms = 5000;
	fs.rdma->rails.off = false; /* dfs.rdma.rails=auto */
	peer = (struct verbs_hello){.node = 7, .rails = 1};
	memcpy(peer.rail[0], (uint8_t[16]){[10] = 0xff, 0xff, 10, 0, 0, 1}, 16);
}

/* ---- the cases ---- */

static void a_write_that_breaks_goes_to_the_other_address_then_to_tcp(void **state)
{
	static const char *const at[] = {"127.0.0.1:1", "10.0.0.1:1"};
	struct err err = ERR_INIT;
	struct wstream *s;
	int bad;

	(void)state;
	has_two_addresses();
	for (unsigned i = 0; i < 2; i++) {
		s = must_open_write();
		is_at(s, at[i]);
		must_break(s, -EIO);
		assert_int_equal(node_table_is_empty(&fs.fallbacks), i == 0);
		assert_int_equal(fs.count.rdma_fallbacks, i);
	}
	assert_int_equal(open_write(DT_SETUP_CREATE, &s, &bad, &err), -ECONNREFUSED);
	assert_int_equal(dials, 2);
}

static void so_does_a_read(void **state)
{
	struct err err = ERR_INIT;
	struct rstream *s;
	uint8_t buf[SMALL];

	(void)state;
	has_two_addresses();
	for (unsigned i = 0; i < 2; i++) {
		s = must_open_read();
		drop(-EIO);
		assert_int_equal(stream_rdma.read(s, buf, sizeof(buf), &err), -ENOBUFS);
		stream_rdma.close_read(s);
		assert_int_equal(node_table_is_empty(&fs.fallbacks), i == 0);
	}
	assert_int_equal(open_read(&s, &err), -ECONNREFUSED);
	assert_int_equal(dials, 2);
}

/* The other address is not reached: one dial, and TCP. */
static void an_address_that_is_not_there_is_tried_once(void **state)
{
	struct err err = ERR_INIT;
	struct wstream *s;
	int bad;

	(void)state;
	has_two_addresses();
	must_break(must_open_write(), -EIO);
	taken = true; /* whoever dials is refused */
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(open_write(DT_SETUP_CREATE, &s, &bad, &err), -ECONNREFUSED);
	assert_false(node_table_is_empty(&fs.fallbacks));
	assert_int_equal(dials, 2);
	taken = false;
}

static void when_we_have_ended_it_the_same_address_is_dialled_again(void **state)
{
	(void)state;
	fs.set.rdma = RDMA_AUTO;
	for (unsigned i = 0; i < 3; i++) {
		must_break(must_open_write(), -ECANCELED);
		assert_true(node_table_is_empty(&fs.fallbacks));
	}
	assert_int_equal(dials, 3);
}

/* It would be asked for without end. */
static void what_fits_no_capsule_goes_by_tcp(void **state)
{
	struct err err = ERR_INIT;
	struct rstream *s;
	uint8_t buf[SMALL];

	(void)state;
	has_two_addresses();
	conn.max_message = 32;
	s = must_open_read();
	conn.max_message = CAPSULE_MAX_DEFAULT;
	assert_int_equal(stream_rdma.read(s, buf, sizeof(buf), &err), -ENOBUFS);
	assert_non_null(strstr(err.text, "cannot be sent"));
	stream_rdma.close_read(s);
	assert_int_equal(open_read(&s, &err), -ECONNREFUSED);
	assert_int_equal(dials, 1);
}

/* ---- requests that are not answered ---- */

static unsigned asked;
static int breaks_with;

/* When it hears. */
static void breaks_now(struct rmsg *m)
{
	struct xop *op = receiving;

	receiving = NULL;
	if (op)
		op->done(op, breaks_with);
	else
		reactor_post(conn.reactor, m);
}

static struct rmsg breaking = {.fn = breaks_now};

static void send_and_break(struct xconn *c, const struct iovec *iov, int n, struct xop *op)
{
	struct capsule m;

	assert_int_equal(capsule_decode(iov->iov_base, (uint32_t)iov->iov_len, NULL, 0, &m), 0);
	if (m.type != CAPSULE_OPEN_WRITE) {
		fake_send(c, iov, n, op);
		return;
	}
	asked++;
	reactor_post(conn.reactor, &breaking);
	op->done(op, (int)iov->iov_len);
}

static const struct xport_ops breaking_ops = {.name = "fake",
					      .messages = true,
					      .send = send_and_break,
					      .recv = fake_recv,
					      .close = fake_close};

static void breaks_when_asked(int rc)
{
	conn.ops = &breaking_ops;
	breaks_with = rc;
	asked = 0;
}

static int breaking_teardown(void **state)
{
	conn.ops = &fake_ops;
	tcp_port = 1;
	return teardown(state);
}

/* Nobody listens there, so a second request would not end as the first one. */
static void a_new_block_is_not_asked_for_twice(void **state)
{
	static const struct {
		enum rdma_mode mode;
		int rc, bad;
		bool marked;
	} rows[] = {{RDMA_REQUIRE, -EIO, 0, false},
		    {RDMA_AUTO, -ECANCELED, -1, false}, /* by us */
		    {RDMA_AUTO, -ETIMEDOUT, 0, false},
		    {RDMA_AUTO, -EIO, -1, true}};
	struct err err = ERR_INIT;
	struct wstream *s;
	int bad;

	(void)state;
	fs.set.connect_timeout_ms = 5000;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		fs.set.rdma = rows[i].mode;
		breaks_when_asked(rows[i].rc);
		assert_int_equal(open_write(DT_SETUP_CREATE, &s, &bad, &err), rows[i].rc);
		assert_int_equal(asked, 1);
		assert_int_equal(bad, rows[i].bad);
		assert_int_equal(node_table_is_empty(&fs.fallbacks), !rows[i].marked);
	}
}

static void its_next_block_goes_to_the_other_address(void **state)
{
	struct err err = ERR_INIT;
	struct wstream *s;
	int bad;

	(void)state;
	has_two_addresses();
	breaks_when_asked(-EIO);
	assert_int_equal(open_write(DT_SETUP_CREATE, &s, &bad, &err), -EIO);
	assert_int_equal(bad, -1);
	conn.ops = &fake_ops;
	s = must_open_write();
	is_at(s, "10.0.0.1:1");
	stream_rdma.close_write(s);
}

static int listens(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htobe32(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const struct timeval patience = {.tv_sec = 5};

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	tcp_port = be16toh(at.sin_port);
	return fd;
}

/* The varint behind version and operation, when it is there. */
static size_t op_len(const uint8_t *buf, size_t have, size_t *ret_at)
{
	const bool two = have > 4 && buf[3] & 128u;

	*ret_at = two ? 5 : 4;
	if (have < 5)
		return SIZE_MAX / 2;
	return (buf[3] & 127u) | (two ? (size_t)buf[4] << 7 : 0);
}

/* What the node is asked for by TCP, NULL: nothing; it hangs up then. */
static void *hears(void *arg)
{
	const int fd = accept(*(int *)arg, NULL, NULL);
	Hd__OpWriteBlockProto *op = NULL;
	size_t have = 0, at = 0, len = 1;
	uint8_t buf[1024];
	ssize_t n = 1;

	while (fd >= 0 && n > 0 && have < at + len) {
		n = read(fd, buf + have, sizeof(buf) - have);
		have += n > 0 ? (size_t)n : 0;
		len = op_len(buf, have, &at);
	}
	if (n > 0 && fd >= 0)
		(void)pb_unpack(&hd__op_write_block_proto__descriptor, buf + at, len, &op);
	(void)close(fd);
	return op;
}

/* As the stage says: a replica that has the new stamp by now is taken as it is. */
static void what_may_be_done_twice_is_asked_for_again(void **state)
{
	static const struct {
		enum dt_stage asked, again;
	} rows[] = {{DT_SETUP_APPEND, DT_SETUP_APPEND_RECOVERY},
		    {DT_SETUP_APPEND_RECOVERY, DT_SETUP_APPEND_RECOVERY},
		    {DT_SETUP_STREAMING_RECOVERY, DT_SETUP_STREAMING_RECOVERY},
		    {DT_CLOSE_RECOVERY, DT_CLOSE_RECOVERY}};
	int listener = listens();

	(void)state;
	fs.set.rdma = RDMA_AUTO;
	fs.set.connect_timeout_ms = 5000;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct err err = ERR_INIT;
		struct wstream *s;
		Hd__OpWriteBlockProto *op;
		pthread_t thread;
		void *heard;
		int bad;

		node_table_fini(&fs.fallbacks); /* it is by RDMA again */
		node_table_init(&fs.fallbacks);
		breaks_when_asked(-EIO);
		assert_int_equal(pthread_create(&thread, NULL, hears, &listener), 0);
		assert_true(open_write(rows[i].asked, &s, &bad, &err) < 0);
		pthread_join(thread, &heard);
		assert_int_equal(asked, 1);
		assert_int_equal(bad, 0); /* by TCP it was the node */
		op = heard;
		assert_non_null(op);
		assert_int_equal(op->stage, rows[i].again);
		assert_int_equal(op->latestgenerationstamp, 1002);
		pb_free(op);
	}
	close(listener);
}

int main(void)
{
#define BREAKING(f) cmocka_unit_test_setup_teardown(f, setup, breaking_teardown)
	const struct CMUnitTest tests[] = {
		t(a_write_that_breaks_goes_to_the_other_address_then_to_tcp),
		t(so_does_a_read),
		t(an_address_that_is_not_there_is_tried_once),
		t(when_we_have_ended_it_the_same_address_is_dialled_again),
		t(what_fits_no_capsule_goes_by_tcp),
		BREAKING(a_new_block_is_not_asked_for_twice),
		BREAKING(its_next_block_goes_to_the_other_address),
		BREAKING(what_may_be_done_twice_is_asked_for_again),
	};

	return cmocka_run_group_tests_name("stream_rails", tests, NULL, NULL);
}
