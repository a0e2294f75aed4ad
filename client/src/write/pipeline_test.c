/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of packets on their way: acks count for the packet whose turn it is and for no
 * other; what was not acknowledged is sent again from its beginning, in order; a node that takes
 * bytes and acknowledges none is given up, and one that closes behind its last ack has not failed;
 * an error that was met between two calls is told once. The clock is the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "client/src/write/pipeline.h"
#include "common/base/clock.h"

#define TIMEOUT_MS 60000

int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
static uint64_t clock_ms = 1000000;

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	(void)id;
	*ret = (struct timespec){(time_t)(clock_ms / 1000), (long)(clock_ms % 1000) * 1000000};
	return 0;
}

/* ---- a node that does what a test says ---- */

static struct {
	struct wstream base;
	int64_t sent[16];
	uint64_t offset[16];
	unsigned count, room; /* packets it took, and takes still */
	size_t sent_before;   /* of the packet that is sent, as it was given */
	struct ack ack[16];
	unsigned acks, taken;
	int ack_rc; /* behind the acks */
} s;

static int fake_send(struct wstream *ws, struct packet *p, struct err *err)
{
	(void)ws;
	(void)err;
	s.sent_before = p->sent;
	if (!s.room) {
		p->sent = 3; /* of its bytes; the others have no room */
		return 0;
	}
	s.room--;
	s.offset[s.count] = p->offset;
	s.sent[s.count++] = p->seqno;
	return 1;
}

static int fake_next_ack(struct wstream *ws, struct ack *ret, struct err *err)
{
	(void)ws;
	if (s.taken == s.acks)
		return s.ack_rc ? err_set(err, s.ack_rc, "closed") : 0;
	*ret = s.ack[s.taken++];
	return 1;
}

static void fake_close(struct wstream *ws)
{
	(void)ws;
}

static const struct block_stream fake_ops = {
	.send = fake_send, .next_ack = fake_next_ack, .close_write = fake_close};

static struct dfs fs = {.set = {.socket_timeout_ms = TIMEOUT_MS}};
static Hd__DatanodeIDProto id[2] = {HD__DATANODE_IDPROTO__INIT, HD__DATANODE_IDPROTO__INIT};
static Hd__DatanodeInfoProto info[2] = {HD__DATANODE_INFO_PROTO__INIT,
					HD__DATANODE_INFO_PROTO__INIT};
static Hd__DatanodeInfoProto *locs[2] = {&info[0], &info[1]};
static Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;

static void begin(struct pipeline *p, unsigned room)
{
	memset(&s, 0, sizeof(s));
	s.base.ops = &fake_ops;
	s.room = room;
	for (int i = 0; i < 2; i++) {
		id[i].ipaddr = id[i].hostname = id[i].datanodeuuid = (char *)"dn";
		info[i].id = &id[i];
	}
	lb.locs = locs;
	lb.n_locs = 2;
	pipeline_init(p, &fs, CRC_CRC32C, 512);
	p->ws = &s.base;
	p->lb = &lb;
	p->progress_ns = p->sent_ns = clock_mono_ns();
}

static void queue(struct pipeline *p, uint32_t len, bool sync)
{
	static const uint8_t bytes[4096];
	struct packet *packet = pipeline_new_packet(p, p->queued_end, len);

	assert_non_null(packet);
	assert_int_equal(packet_append(packet, CRC_CRC32C, 512, UINT64_MAX, bytes, len), len);
	packet->sync = sync;
	pipeline_queue(p, packet);
}

static void acked(int64_t seqno)
{
	s.ack[s.acks++] = (struct ack){.seqno = seqno, .bad = -1};
}

static int pump(struct pipeline *p, int *ret_bad)
{
	struct err err = ERR_INIT;

	return pipeline_pump(p, ret_bad, &err);
}

/* ---- tests ---- */

static void an_ack_counts_for_the_packet_whose_turn_it_is(void **state)
{
	struct pipeline p;
	int bad;

	(void)state;
	begin(&p, 16);
	queue(&p, 1000, false);
	queue(&p, 1000, true);
	queue(&p, 1000, false);
	assert_int_equal(pump(&p, &bad), 0);
	assert_int_equal(p.acked_end, 0);
	acked(0);
	assert_int_equal(pump(&p, &bad), 0);
	assert_int_equal(p.acked_end, 1000);
	assert_int_equal(p.synced_end, 0);
	acked(1);
	assert_int_equal(pump(&p, &bad), 0);
	assert_int_equal(p.synced_end, 2000);
	acked(3);
	assert_int_equal(pump(&p, &bad), -EPROTO); /* 2 was not acknowledged */
	assert_int_equal(p.acked_end, 2000);
	pipeline_fini(&p);
}

static void an_ack_of_nothing_is_refused(void **state)
{
	struct pipeline p;
	int bad;

	(void)state;
	begin(&p, 16);
	queue(&p, 10, false);
	assert_int_equal(pump(&p, &bad), 0);
	acked(0);
	acked(0); /* again */
	assert_int_equal(pump(&p, &bad), -EPROTO);
	pipeline_fini(&p);
}

static void the_ack_names_the_node_that_failed(void **state)
{
	struct pipeline p;
	int bad = 7;

	(void)state;
	begin(&p, 16);
	queue(&p, 10, false);
	assert_int_equal(pump(&p, &bad), 0);
	s.ack[s.acks++] = (struct ack){.seqno = -2, .bad = 1, .status = DT_ERROR};
	assert_int_equal(pump(&p, &bad), -EIO);
	assert_int_equal(bad, 1);
	pipeline_fini(&p);
}

/* A heartbeat is acknowledged like a packet, and says nothing about bytes. */
static void a_heartbeat_takes_nothing_back(void **state)
{
	struct err err = ERR_INIT;
	struct pipeline p;
	int bad;

	(void)state;
	begin(&p, 16);
	queue(&p, 1000, true);
	assert_int_equal(pump(&p, &bad), 0);
	acked(0);
	assert_int_equal(pump(&p, &bad), 0);
	assert_int_equal(pipeline_waited(&p, false, &err), 0);
	assert_int_equal(pump(&p, &bad), 0);
	assert_int_equal(s.sent[1], DT_SEQNO_HEARTBEAT);
	acked(DT_SEQNO_HEARTBEAT);
	assert_int_equal(pump(&p, &bad), 0);
	assert_int_equal(p.acked_end, 1000);
	assert_int_equal(p.synced_end, 1000);
	pipeline_fini(&p);
}

static void what_is_not_acknowledged_is_sent_again_in_order(void **state)
{
	struct pipeline p;
	int bad;

	(void)state;
	begin(&p, 3);
	for (int i = 0; i < 5; i++)
		queue(&p, 100, false);
	assert_int_equal(pump(&p, &bad), 1); /* 3 has gone in part */
	acked(0);
	assert_int_equal(pump(&p, &bad), 1);
	pipeline_requeue(&p);
	s.room = 16;
	assert_int_equal(pump(&p, &bad), 0);
	assert_int_equal(s.count, 3 + 4);
	for (unsigned i = 3; i < 7; i++) {
		assert_int_equal(s.sent[i], i - 2);
		assert_int_equal(s.offset[i], (i - 2) * 100);
	}
	assert_int_equal(p.sent_end, 500);
	assert_int_equal(p.acked_end, 100);
	pipeline_fini(&p);
}

static void what_went_in_part_begins_anew(void **state)
{
	struct pipeline p;
	int bad;

	(void)state;
	begin(&p, 0);
	queue(&p, 100, false);
	assert_int_equal(pump(&p, &bad), 1);
	assert_int_equal(pump(&p, &bad), 1);
	assert_int_equal(s.sent_before, 3); /* it goes on where it was */
	pipeline_requeue(&p);
	s.room = 1;
	assert_int_equal(pump(&p, &bad), 0);
	assert_int_equal(s.sent_before, 0);
	pipeline_fini(&p);
}

static void a_node_that_acknowledges_nothing_is_given_up(void **state)
{
	struct err err = ERR_INIT;
	struct pipeline p;
	int bad;
	const uint64_t patience = stream_timeout_ns(&fs, 2) / NS_PER_MS;

	(void)state;
	begin(&p, 16);
	queue(&p, 100, false);
	assert_int_equal(pump(&p, &bad), 0);
	clock_ms += patience - 1;
	queue(&p, 100, false); /* which it takes: that is no progress */
	assert_int_equal(pump(&p, &bad), 0);
	assert_int_equal(pipeline_waited(&p, true, &err), 0);
	clock_ms++;
	assert_int_equal(pipeline_waited(&p, true, &err), -ETIMEDOUT);
	acked(0); /* this is */
	assert_int_equal(pump(&p, &bad), 0);
	assert_int_equal(pipeline_waited(&p, true, &err), 0);
	clock_ms += patience;
	assert_int_equal(pipeline_waited(&p, true, &err), -ETIMEDOUT);
	pipeline_fini(&p);
}

static void a_node_closes_behind_its_last_ack(void **state)
{
	struct err err = ERR_INIT;
	struct pipeline p;
	int bad;

	(void)state;
	begin(&p, 16);
	queue(&p, 100, false);
	assert_int_equal(pipeline_queue_empty(&p, true, false, &err), 0);
	assert_int_equal(pump(&p, &bad), 0);
	acked(0);
	acked(1);
	s.ack_rc = -ECONNRESET;
	assert_int_equal(pump(&p, &bad), 0);
	assert_false(pipeline_in_flight(&p));
	pipeline_fini(&p);
	begin(&p, 16);
	queue(&p, 100, false);
	assert_int_equal(pump(&p, &bad), 0);
	s.ack_rc = -ECONNRESET;
	assert_int_equal(pump(&p, &bad), -ECONNRESET); /* before it: that is one */
	pipeline_fini(&p);
}

static void an_error_between_two_calls_is_told_once(void **state)
{
	struct pipeline p;
	int bad = 7;

	(void)state;
	begin(&p, 16);
	queue(&p, 100, false);
	assert_int_equal(pump(&p, &bad), 0);
	s.ack[s.acks++] = (struct ack){.seqno = -2, .bad = 1, .status = DT_ERROR};
	pipeline_keep_alive(&p, clock_mono_ns());
	assert_int_equal(pump(&p, &bad), -EIO);
	assert_int_equal(bad, 1);
	acked(0); /* of another stream */
	assert_int_equal(pump(&p, &bad), 0);
	pipeline_fini(&p);
}

static int setup(void **state)
{
	(void)state;
	packet_pool_init(&fs.packets);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	packet_pool_fini(&fs.packets);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_ack_counts_for_the_packet_whose_turn_it_is),
		cmocka_unit_test(an_ack_of_nothing_is_refused),
		cmocka_unit_test(the_ack_names_the_node_that_failed),
		cmocka_unit_test(a_heartbeat_takes_nothing_back),
		cmocka_unit_test(what_is_not_acknowledged_is_sent_again_in_order),
		cmocka_unit_test(what_went_in_part_begins_anew),
		cmocka_unit_test(a_node_that_acknowledges_nothing_is_given_up),
		cmocka_unit_test(a_node_closes_behind_its_last_ack),
		cmocka_unit_test(an_error_between_two_calls_is_told_once),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
