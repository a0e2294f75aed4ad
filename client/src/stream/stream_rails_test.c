/* SPDX-License-Identifier: Apache-2.0 */
/* A node with two addresses, and connections that break. What must hold: the next stream goes to
 * the address that is not known to be bad, by RDMA; when both are bad it goes by TCP. What cannot
 * be sent at all goes by TCP, however good the connection is. */
#include "client/src/stream/rdma_internal.h"
#include "client/src/stream/stream_rdma_write_internal.h"
#include "common/base/clock.h"
#include "hdfs.pb-c.h"

#include "client/src/stream/stream_rdma_test_fixture.h"

#define LONG_NS (60 * NS_PER_S)

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
	id.xferport = 1; /* nobody is there by TCP */
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
	conn.max_message = 64;
	s = must_open_read();
	conn.max_message = CAPSULE_MAX_DEFAULT;
	assert_int_equal(stream_rdma.read(s, buf, sizeof(buf), &err), -ENOBUFS);
	assert_non_null(strstr(err.text, "cannot be sent"));
	stream_rdma.close_read(s);
	assert_int_equal(open_read(&s, &err), -ECONNREFUSED);
	assert_int_equal(dials, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		t(a_write_that_breaks_goes_to_the_other_address_then_to_tcp),
		t(so_does_a_read),
		t(an_address_that_is_not_there_is_tried_once),
		t(when_we_have_ended_it_the_same_address_is_dialled_again),
		t(what_fits_no_capsule_goes_by_tcp),
	};

	return cmocka_run_group_tests_name("stream_rails", tests, NULL, NULL);
}
