/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold, whatever the transport and the next hop do (any cut of the bytes, late completions, a
 * connection that breaks at any operation, a hop that is slow, dies, lies or blames): what was
 * acknowledged is in the files; the connection, its ops and every slot come back. And /ops lists
 * what waits for a disk. */
#include <semaphore.h>
#include <unistd.h>

#include "common/transport/fake.h"
#include "datanode/block/moves.h"
#include "datanode/block/sink.h"
#include "datanode/block/transfer.h"
#include "datanode/dtp/dtp_internal.h"

#include "datanode/block/engine_test_fixture.h"

#define DATA_LEN 300000u
#define PACKET 65024u /* 127 chunks */
#define BPC 512u

static char dir[] = "/tmp/dtp_test.XXXXXX";
static uint8_t data[DATA_LEN];
static int64_t next_id = 1;
static uint64_t rnd = 1;

static uint32_t random_below(uint32_t n)
{
	rnd = rnd * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(rnd >> 33) % n;
}

struct block_pool *dn_pool(struct dn *d, const char *id)
{
	(void)d;
	return strcmp(id, POOL_ID) ? NULL : bp;
}

void engine_count_conn(struct engine_core *c, int delta)
{
	c->conn_count += (uint32_t)delta;
}

/* ---- a next hop that misbehaves on demand ---- */

enum hop_fault {
	HOP_GOOD,
	HOP_REFUSES,
	HOP_DIES_EARLY,
	HOP_DIES,
	HOP_LIES,
	HOP_BLAMES,
	HOP_FAULTS,
	HOP_ANSWERS_EARLY, /* of copies alone */
	HOP_WAITS,         /* does not open until hop.go_on */
	HOP_STALLS,        /* takes nothing after fault_at pieces */
};

static struct hop {
	struct piece_sink base;
	struct rtimer timer;
	enum hop_fault fault;
	uint32_t fault_at;
	struct list queue;
	int64_t unacked[256];
	uint32_t sent, acked;
	bool opened, broken, closing, go_on;
	uint64_t bytes;
	uint64_t transfers_used; /* what all transfers held at the first piece */
	uint64_t taken;          /* bytes, as its machine says */
} hop;

static bool hop_checks = true; /* what is forwarded is what was sent */

static void hop_again(void)
{
	reactor_timer_set(r, &hop.timer, reactor_now_ns(r) + random_below(200000));
}

static void hop_send_one(void)
{
	struct piece *p = container_of(list_pop(&hop.queue), struct piece, link);
	uint8_t crcs[4096];

	if (!hop.sent)
		hop.transfers_used = core.transfers.slots.used;
	if (p->crc_count && hop_checks) {
		assert_true(p->crc_count * 4 <= sizeof(crcs));
		memcpy(crcs, p->crcs, p->crc_count * 4 - 4);
		memcpy(crcs + p->crc_count * 4 - 4, p->edge, 4);
		assert_int_equal(
			crc_verify(CRC_CRC32C, p->slot->data + p->slot_off, p->len, BPC, crcs), -1);
	}
	if (p->len && hop_checks)
		assert_memory_equal(p->slot->data + p->slot_off, data + p->off, p->len);
	hop.bytes += p->len;
	hop.unacked[hop.sent++ % 256] = p->seq;
	hop.base.user->ops->sent(hop.base.user, p);
}

static void hop_ack_one(void)
{
	uint8_t statuses[2] = {DT_SUCCESS, DT_SUCCESS};
	int64_t seq = hop.unacked[hop.acked++ % 256];

	if (hop.acked > hop.fault_at && hop.fault == HOP_LIES)
		seq += 1000;
	if (hop.acked > hop.fault_at && hop.fault == HOP_BLAMES)
		statuses[0] = DT_ERROR_CHECKSUM;
	hop.base.user->ops->acked(hop.base.user, seq, statuses, 2);
}

static void hop_fire(struct rtimer *t)
{
	(void)t;
	if (hop.closing) {
		while (!list_empty(&hop.queue))
			hop.base.user->ops->sent(hop.base.user, container_of(list_pop(&hop.queue),
									     struct piece, link));
		hop.base.user->ops->closed(hop.base.user);
		return;
	}
	if (hop.broken)
		return;
	if (hop.fault == HOP_WAITS && !hop.go_on) {
		hop_again();
		return;
	}
	if (!hop.opened) {
		hop.opened = true;
		hop.broken = hop.fault == HOP_REFUSES;
		hop.base.user->ops->opened(hop.base.user, hop.broken ? DT_ERROR : DT_SUCCESS,
					   "1.2.3.4:5");
		if (hop.fault == HOP_ANSWERS_EARLY) {
			hop.broken = true;
			hop.base.user->ops->broken(hop.base.user, 0);
			return;
		}
	} else if (hop.fault <= HOP_DIES && hop.fault >= HOP_DIES_EARLY &&
		   (hop.fault == HOP_DIES_EARLY || hop.sent > hop.fault_at)) {
		hop.broken = true;
		hop.base.user->ops->broken(hop.base.user, -ECONNRESET);
		return;
	} else if (!list_empty(&hop.queue) && random_below(2) &&
		   (hop.fault != HOP_STALLS || hop.sent < hop.fault_at)) {
		hop_send_one();
	} else if (hop.acked != hop.sent) {
		hop_ack_one();
	}
	hop_again();
}

static void hop_forward(struct piece_sink *s, struct piece *p)
{
	(void)s;
	list_add_tail(&hop.queue, &p->link);
}

static void hop_close(struct piece_sink *s)
{
	(void)s;
	hop.closing = true;
	hop_again();
}

static uint64_t hop_taken(struct piece_sink *s)
{
	(void)s;
	return hop.taken;
}

static const struct piece_sink_ops hop_ops = {
	.forward = hop_forward, .close = hop_close, .taken = hop_taken};

int sink_open(struct engine_core *c, const struct sink_params *params, struct sink_user *user,
	      struct piece_sink **ret)
{
	const enum hop_fault fault = hop.fault;
	const uint32_t at = hop.fault_at;

	(void)c, (void)params;
	hop = (struct hop){.base = {.ops = &hop_ops, .user = user}, .fault = fault, .fault_at = at};
	hop.timer.fire = hop_fire;
	list_init(&hop.queue);
	hop_again();
	*ret = &hop.base;
	return 0;
}

/* ---- the peer ---- */

static struct peer {
	struct xconn *c;
	struct xop send_op, recv_op;
	bool sending, receiving;
	uint8_t *out;
	size_t out_len;
	uint8_t in[1 << 20];
	uint32_t in_len, want;
	bool closed;      /* by us: bytes that were on their way may still come */
	bool ended, told; /* told: an ack or answer that is not good */
} peer;

static void peer_sent(struct xop *op, int res)
{
	(void)op, (void)res;
	peer.sending = false;
}

static void peer_recv(void);

static void peer_received(struct xop *op, int res)
{
	(void)op;
	peer.receiving = false;
	if (res <= 0) {
		peer.ended = true;
		reactor_stop(r);
		return;
	}
	peer.in_len += (uint32_t)res;
	if (peer.closed || peer.in_len >= peer.want)
		reactor_stop(r);
	else
		peer_recv();
}

static void peer_recv(void)
{
	peer.receiving = true;
	peer.recv_op.done = peer_received;
	xconn_recv(peer.c, peer.in + peer.in_len, sizeof(peer.in) - peer.in_len, &peer.recv_op);
}

static void put(const void *bytes, size_t n)
{
	peer.out = realloc(peer.out, peer.out_len + n);
	assert_non_null(peer.out);
	memcpy(peer.out + peer.out_len, bytes, n);
	peer.out_len += n;
}

static void put_op(enum dt_op op, const void *msg)
{
	uint8_t *buf;
	size_t len;

	assert_int_equal(dt_op_encode(op, msg, &buf, &len), 0);
	put(buf, len);
	free(buf);
}

static Hd__ClientOperationHeaderProto *header_for(int64_t id)
{
	static char pool_text[] = POOL_ID, client[] = "client";
	static Hd__ExtendedBlockProto block;
	static Hd__BaseHeaderProto base;
	static Hd__ClientOperationHeaderProto header;

	hd__extended_block_proto__init(&block);
	hd__base_header_proto__init(&base);
	hd__client_operation_header_proto__init(&header);
	block.poolid = pool_text;
	block.blockid = (uint64_t)id;
	block.generationstamp = 1001;
	block.has_numbytes = 1;
	block.numbytes = 1 << 20;
	base.block = &block;
	header.baseheader = &base;
	header.clientname = client;
	return &header;
}

static void put_write(int64_t id, bool with_hop)
{
	static char ip[] = "127.0.0.1", text[] = "x";
	Hd__OpWriteBlockProto m = HD__OP_WRITE_BLOCK_PROTO__INIT;
	Hd__ChecksumProto sum = HD__CHECKSUM_PROTO__INIT;
	Hd__DatanodeIDProto ident = HD__DATANODE_IDPROTO__INIT;
	Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT, *infos[1] = {&info};

	sum.type = HD__CHECKSUM_TYPE_PROTO__CHECKSUM_CRC32C;
	sum.bytesperchecksum = BPC;
	ident.ipaddr = ip;
	ident.hostname = ident.datanodeuuid = text;
	ident.xferport = 5;
	info.id = &ident;
	m.header = header_for(id);
	m.stage = HD__OP_WRITE_BLOCK_PROTO__BLOCK_CONSTRUCTION_STAGE__PIPELINE_SETUP_CREATE;
	m.pipelinesize = with_hop ? 3 : 1;
	m.requestedchecksum = &sum;
	m.targets = infos;
	m.n_targets = with_hop;
	put_op(DT_WRITE_BLOCK, &m);
}

static void put_packet(int64_t seq, uint32_t off, uint32_t len, bool last, bool sync)
{
	uint8_t head[DT_PACKET_HEADER_MAX], crcs[4 * (PACKET / BPC + 1)];
	const struct dt_packet p = {.offset = off,
				    .seqno = seq,
				    .data_len = len,
				    .crc_len = (uint32_t)crc_bytes(CRC_CRC32C, len, BPC),
				    .last = last,
				    .sync = sync};

	put(head, dt_packet_encode(&p, head));
	crc_chunks(CRC_CRC32C, data + off, len, BPC, crcs);
	put(crcs, p.crc_len);
	put(data + off, len);
}

/* An hflush inside a chunk, a sync, a heartbeat, the rest. Returns the number of acks. */
static uint32_t put_stream(uint32_t len)
{
	uint32_t n = 0, off = 0;

	put_packet(n++, 0, 300, false, false);
	put_packet(n++, 0, 1000, false, true);
	put_packet(-1, 0, 0, false, false);
	for (off = 512; off < len; off += PACKET)
		put_packet(n++, off, len - off < PACKET ? len - off : PACKET, false, false);
	put_packet(n++, len, 0, true, false);
	return n + 1;
}

static bool message(uint32_t *pos, const uint8_t **p, size_t *len)
{
	uint32_t prefix;
	const ssize_t total =
		dt_delim_need(peer.in + *pos, peer.in_len - *pos, DT_MESSAGE_MAX, &prefix);

	if (total < 0 || !prefix || *pos + (uint32_t)total > peer.in_len)
		return false;
	*p = peer.in + *pos + prefix;
	*len = (size_t)total - prefix;
	*pos += (uint32_t)total;
	return true;
}

/* ---- a run ---- */

static void peer_run(const struct fake_opts *o, uint32_t want)
{
	struct xconn *ends[2];
	struct iovec iov = {peer.out, peer.out_len};

	peer.in_len = 0;
	peer.ended = peer.told = peer.closed = false;
	peer.want = want;
	assert_int_equal(fake_pair(r, o, ends), 0);
	dtp_accept(&core, ends[0]);
	peer.c = ends[1];
	peer.sending = true;
	peer.send_op.done = peer_sent;
	xconn_send(peer.c, &iov, 1, &peer.send_op);
	peer_recv();
}

static void everything_comes_back(void)
{
	peer.closed = true;
	xconn_close(peer.c);
	for (int i = 0;
	     i < 400 && (core.conn_count || core.op_count || peer.sending || peer.receiving); i++)
		fix_run(5);
	assert_int_equal(core.conn_count, 0);
	assert_int_equal(core.op_count, 0);
	assert_int_equal(atomic_load(&dn.xceivers), 0);
	assert_int_equal(pool_slots_out(pool), 0);
	free(peer.out);
	peer.out = NULL;
	peer.out_len = 0;
}

/* Acks in order; returns how many good ones there were, and the bytes they promise. */
static uint32_t count_acks(uint64_t *promised)
{
	const uint8_t *p;
	uint32_t pos = 0, good = 0;
	size_t len;
	struct dt_ack ack;

	*promised = 0;
	if (!message(&pos, &p, &len)) /* the answer to the op */
		return 0;
	while (message(&pos, &p, &len)) {
		assert_int_equal(dt_ack_decode(p, len, &ack), 0);
		peer.told |= dt_ack_first_bad(&ack) >= 0;
		if (dt_ack_first_bad(&ack) >= 0)
			continue;
		good++;
		if (ack.seqno == 0)
			*promised = 300;
		else if (ack.seqno == 1)
			*promised = 1000;
		else if (ack.seqno > 1 && *promised < DATA_LEN)
			*promised = 512 + (uint64_t)(ack.seqno - 1) * PACKET;
	}
	if (*promised > DATA_LEN)
		*promised = DATA_LEN;
	return good;
}

static void file_holds(int64_t id, uint64_t promised)
{
	struct replica_info info;
	struct replica_reader *rr;
	struct block b = {.id = id, .gs = 1001};
	struct err err;
	uint8_t *buf = malloc(DATA_LEN);

	if (promised) {
		assert_int_equal(replica_get(bp, id, &info), 0);
		assert_true(info.visible >= promised);
		assert_int_equal(replica_read_open(bp, &b, &rr, &err), 0);
		assert_int_equal(pread(rr->fd, buf, promised, 0), (ssize_t)promised);
		assert_memory_equal(buf, data, promised);
		replica_read_close(rr);
	}
	free(buf);
}

static void run_until_ended(uint32_t acks)
{
	uint64_t promised;

	for (int i = 0; i < 200 && !peer.ended && count_acks(&promised) < acks && !peer.told; i++) {
		fix_run(20);
		peer.want = peer.in_len + 1;
		if (!peer.receiving && !peer.ended)
			peer_recv();
	}
}

/* ---- tests ---- */

static struct fake_opts stream(uint64_t seed)
{
	rnd = seed * 77 + 1;
	return (struct fake_opts){.seed = seed,
				  .inside_submit = seed % 3 == 0,
				  .delay_turns = (uint32_t)(seed % 4),
				  .shuffle = seed % 2,
				  .recv_max = seed % 5 == 0   ? 7 + (uint32_t)seed
					      : seed % 5 == 1 ? 4000
							      : 0};
}

static void a_block_arrives_however_the_bytes_are_cut(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 24; seed++) {
		const struct fake_opts o = stream(seed);
		const int64_t id = next_id++;
		uint64_t promised;
		uint32_t acks;

		hop.fault = HOP_GOOD;
		put_write(id, seed % 2);
		acks = put_stream(DATA_LEN);
		peer_run(&o, 1);
		run_until_ended(acks);
		assert_int_equal(count_acks(&promised), acks);
		assert_int_equal(promised, DATA_LEN);
		if (seed % 2)
			assert_int_equal(hop.bytes, DATA_LEN + 300 + 488);
		file_holds(id, DATA_LEN);
		everything_comes_back();
	}
}

static void a_connection_may_break_at_every_operation(void **state)
{
	(void)state;
	for (uint32_t n = 1; n < 60; n++) {
		struct fake_opts o = stream(n);
		const int64_t id = next_id++;
		uint64_t promised;
		uint32_t acks;

		o.drop_after_ops = n;
		o.recv_max = 0;
		hop.fault = HOP_GOOD;
		put_write(id, n % 2);
		acks = put_stream(DATA_LEN);
		peer_run(&o, 1);
		run_until_ended(acks);
		count_acks(&promised);
		everything_comes_back();
		file_holds(id, promised);
	}
}

static void a_next_hop_may_fail_in_every_way(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 60; i++) {
		const struct fake_opts o = stream(i);
		const int64_t id = next_id++;
		uint64_t promised;
		uint32_t acks, good;

		hop.fault = (enum hop_fault)(1 + i % (HOP_FAULTS - 1));
		hop.fault_at = i / HOP_FAULTS % 8;
		put_write(id, true);
		acks = put_stream(DATA_LEN);
		peer_run(&o, 1);
		run_until_ended(acks);
		good = count_acks(&promised);
		assert_true(good < acks);
		assert_true(peer.told || peer.ended);
		everything_comes_back();
		file_holds(id, promised);
	}
}

static void a_read_may_break_at_every_operation(void **state)
{
	const int64_t id = next_id++;
	const struct fake_opts good = stream(1);
	uint32_t acks;

	(void)state;
	put_write(id, false);
	acks = put_stream(DATA_LEN);
	peer_run(&good, 1);
	run_until_ended(acks);
	everything_comes_back();
	for (uint32_t n = 0; n < 24; n++) {
		struct fake_opts o = stream(n);
		Hd__OpReadBlockProto m = HD__OP_READ_BLOCK_PROTO__INIT;
		uint8_t ok[DT_STATUS_MAX];

		o.drop_after_ops = n / 2 * (n % 2); /* every other run is undisturbed */
		m.header = header_for(id);
		m.len = DATA_LEN;
		put_op(DT_READ_BLOCK, &m);
		put(ok, dt_read_status_encode(DT_CHECKSUM_OK, ok));
		peer_run(&o, DATA_LEN + 2000);
		for (int i = 0; i < 100 && !peer.ended && peer.in_len < peer.want; i++)
			fix_run(20);
		if (!o.drop_after_ops)
			assert_true(peer.in_len >= DATA_LEN + 2000);
		everything_comes_back();
	}
}

/* A writer that would have us wait for a millisecond makes no timers of a millisecond. */
static void the_patience_of_a_writer_is_a_second_or_more(void **state)
{
	static const struct {
		bool said;
		uint64_t ms, taken_ms;
	} of[] = {{false, 0, 60000},  {true, 0, 60000},     {true, 1, 1000},
		  {true, 1500, 1500}, {true, 90000, 60000}, {true, UINT64_MAX, 60000}};
	Hd__OpWriteBlockProto m = HD__OP_WRITE_BLOCK_PROTO__INIT;
	Hd__ChecksumProto sum = HD__CHECKSUM_PROTO__INIT;
	struct write_params p;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(core.waits.read_ns, 60 * NS_PER_S);
	sum.type = HD__CHECKSUM_TYPE_PROTO__CHECKSUM_CRC32C;
	sum.bytesperchecksum = BPC;
	m.header = header_for(next_id++);
	m.stage = HD__OP_WRITE_BLOCK_PROTO__BLOCK_CONSTRUCTION_STAGE__PIPELINE_SETUP_CREATE;
	m.requestedchecksum = &sum;
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		m.has_patiencems = of[i].said;
		m.patiencems = of[i].ms;
		assert_int_equal(dtp_write_params(&core, &m, &p, &err), 0);
		assert_int_equal(p.read_ns / NS_PER_MS, of[i].taken_ms);
		write_params_fini(&p);
	}
}

static void transfer_ended(void *arg, int rc, const struct err *err)
{
	(void)err;
	*(int *)arg = rc;
	reactor_stop(r);
}

/* A new block is copied to a hop with @fault after @fault_at pieces. *@rc: what becomes of it. */
static void copy_start(enum hop_fault fault, uint32_t fault_at, int *rc)
{
	const int64_t id = next_id++;
	const struct fake_opts good = stream(1);
	struct transfer_params tp = {
		.bp = bp, .block = {id, 1001, DATA_LEN}, .target_count = 1, .client = "client"};
	uint32_t acks;

	put_write(id, false);
	acks = put_stream(DATA_LEN);
	peer_run(&good, 1);
	run_until_ended(acks);
	everything_comes_back();
	tp.targets = calloc(1, sizeof(*tp.targets));
	assert_non_null(tp.targets);
	hop.fault = fault;
	hop.fault_at = fault_at;
	assert_int_equal(transfer_open(&core, &tp, transfer_ended, rc), 0);
}

/* 1: it has not ended. */
static int copy_to(enum hop_fault fault, uint32_t fault_at)
{
	int rc = 1;

	copy_start(fault, fault_at, &rc);
	for (int i = 0; i < 600 && rc == 1; i++)
		fix_run(100);
	return rc;
}

/* Somebody waits for a slot, while all that a copy does not hold are out. */
static struct waiter {
	struct pool_ask ask;
	struct slot *slot;
	bool granted;
} waiter;

static void waiter_granted(struct pool_ask *a)
{
	(void)a;
	waiter.granted = true;
}

static void wait_for_slot(void)
{
	fix_hold_all();
	waiter = (struct waiter){0};
	waiter.ask = (struct pool_ask){.use = POOL_CTRL,
				       .slots = &waiter.slot,
				       .granted = waiter_granted,
				       .forms = 1,
				       .form = {{.parts = 1, .part = {{SLOT_CRC, 1}}}}};
	assert_false(pool_take(pool, &waiter.ask));
	pool_wait(pool, &waiter.ask);
}

static void wait_over(void)
{
	if (waiter.granted)
		slot_put(waiter.slot);
	else
		pool_wait_cancel(pool, &waiter.ask);
	fix_give_back();
}

/* What a copy has read for a target that is not there yet is given back to others, and read again.
 */
static void a_copy_whose_target_is_slow_to_answer_holds_no_buffers(void **state)
{
	int rc = 1;

	(void)state;
	copy_start(HOP_WAITS, 0, &rc);
	for (int i = 0; i < 3000 && !core.transfers.slots.used; i++)
		fix_run(10);
	assert_true(core.transfers.slots.used > 0);
	wait_for_slot();
	for (int i = 0; i < 3000 && !waiter.granted; i++)
		fix_run(10);
	assert_true(waiter.granted);
	for (int i = 0; i < 3000 && core.transfers.slots.used; i++)
		fix_run(10);
	assert_int_equal(core.transfers.slots.used, 0);
	wait_over();
	hop.go_on = true;
	for (int i = 0; i < 3000 && (hop.bytes < DATA_LEN || !list_empty(&hop.queue)); i++)
		fix_run(10);
	assert_int_equal(hop.bytes, DATA_LEN);
	fix_run(50);
	hop.base.user->ops->broken(hop.base.user, 0);
	for (int i = 0; i < 3000 && rc == 1; i++)
		fix_run(10);
	assert_int_equal(rc, 0);
	assert_int_equal(pool_slots_out(pool), 0);
}

/* A target that takes nothing for seconds, while others wait for the buffers, costs only its copy.
 */
static void a_copy_whose_target_takes_nothing_ends_while_others_wait(void **state)
{
	int rc = 1;

	(void)state;
	copy_start(HOP_STALLS, 0, &rc);
	for (int i = 0; i < 3000 && (!hop.opened || list_empty(&hop.queue)); i++)
		fix_run(10);
	wait_for_slot();
	for (int i = 0; i < 600 && rc == 1; i++)
		fix_run(100);
	assert_int_equal(rc, -ETIMEDOUT);
	assert_true(waiter.granted);
	wait_over();
	assert_int_equal(pool_slots_out(pool), 0);
}

/* One whose target takes a little all the time goes on. */
static void a_copy_whose_target_is_slow_goes_on_while_others_wait(void **state)
{
	int rc = 1;

	(void)state;
	copy_start(HOP_STALLS, 0, &rc);
	for (int i = 0; i < 3000 && (!hop.opened || list_empty(&hop.queue)); i++)
		fix_run(10);
	wait_for_slot();
	for (int i = 0; i < 75 && rc == 1; i++) {
		hop.taken += 2048;
		fix_run(100);
	}
	assert_int_equal(rc, 1);
	for (int i = 0; i < 600 && rc == 1; i++) /* now it takes nothing */
		fix_run(100);
	assert_int_equal(rc, -ETIMEDOUT);
	wait_over();
	assert_int_equal(pool_slots_out(pool), 0);
}

/* What a next node that takes nothing holds of the buffers is bounded for all copies together. */
static void a_copy_is_charged_to_the_share_of_all_transfers(void **state)
{
	(void)state;
	assert_int_equal(copy_to(HOP_DIES, 1), -ECONNRESET);
	assert_true(hop.transfers_used >= DATA_LEN);
	assert_true(core.transfers.slots.limit &&
		    core.transfers.slots.limit <= pool_bytes(pool) / 4);
	assert_int_equal(core.transfers.slots.used, 0);
	assert_int_equal(pool_slots_out(pool), 0);
}

/* A target that anybody may name says that it has the block before it can have it. */
static void a_copy_that_is_answered_too_early_ends(void **state)
{
	(void)state;
	assert_int_equal(copy_to(HOP_ANSWERS_EARLY, 0), -EPROTO);
	assert_int_equal(core.transfers.slots.used, 0);
	assert_int_equal(pool_slots_out(pool), 0);
}

static void garbage_ends_the_connection(void **state)
{
	(void)state;
	hop_checks = false;
	for (uint64_t seed = 0; seed < 200; seed++) {
		const struct fake_opts o = stream(seed);
		Hd__OpReadBlockProto m = HD__OP_READ_BLOCK_PROTO__INIT;
		const int64_t id = next_id++;

		hop.fault = HOP_GOOD;
		if (seed % 2) {
			m.header = header_for(id);
			m.len = 100;
			put_op(DT_READ_BLOCK, &m);
		} else {
			put_write(id, seed % 4);
			put_stream(2000);
		}
		for (uint32_t i = 0; i < 1 + random_below(4); i++)
			peer.out[random_below((uint32_t)peer.out_len)] = (uint8_t)random_below(256);
		peer_run(&o, 1u << 19);
		for (int i = 0; i < 3 && !peer.ended; i++)
			fix_run(2);
		everything_comes_back();
	}
}

/* ---- a disk that does not answer ---- */

#define VOLUME_THREADS 2

static sem_t let_go;
static atomic_uint threads_in;
static uint32_t threads_back;

static void wait_in_thread(struct offload *o)
{
	(void)o;
	threads_in++;
	reactor_stop(r);
	sem_wait(&let_go);
}

static void thread_back(struct offload *o)
{
	(void)o;
	threads_back++;
}

/* The threads of the volume do not come back. What waits for them is done by others, which find
 * that the volume is out of service. */
static void a_checksum_need_not_wait_for_the_threads_of_its_volume(void **state)
{
	const int64_t id = next_id++;
	const struct fake_opts good = stream(1);
	Hd__OpBlockChecksumProto m = HD__OP_BLOCK_CHECKSUM_PROTO__INIT;
	struct offload stuck[VOLUME_THREADS];
	uint32_t acks;

	(void)state;
	put_write(id, false);
	acks = put_stream(DATA_LEN);
	peer_run(&good, 1);
	run_until_ended(acks);
	everything_comes_back();
	sem_init(&let_go, 0, 0);
	for (uint32_t i = 0; i < VOLUME_THREADS; i++) {
		stuck[i] = (struct offload){.work = wait_in_thread, .done = thread_back};
		reactor_offload_to(r, DN_VOLUME_QUEUE(0), &stuck[i]);
		while (threads_in == i)
			fix_run(100);
	}
	m.header = header_for(id)->baseheader;
	m.header->block->numbytes = DATA_LEN;
	put_op(DT_BLOCK_CHECKSUM, &m);
	peer_run(&good, 1);
	fix_run(50);
	assert_int_equal(peer.in_len, 0);
	reactor_queue_pass(r, DN_VOLUME_QUEUE(0));
	for (int i = 0; i < 600 && !peer.in_len; i++)
		fix_run(100);
	assert_true(peer.in_len);
	assert_int_equal(threads_back, 0);
	for (uint32_t i = 0; i < VOLUME_THREADS; i++)
		sem_post(&let_go);
	while (threads_back < VOLUME_THREADS)
		fix_run(10);
	everything_comes_back();
}

/* ---- /ops ---- */

static int no_fds(struct xconn *c, uint8_t byte, const int *fds, int n)
{
	(void)c, (void)byte, (void)fds, (void)n;
	return 0;
}

static void start_checksum(struct dtp_conn *c, Hd__BaseHeaderProto *base)
{
	Hd__OpBlockChecksumProto m = HD__OP_BLOCK_CHECKSUM_PROTO__INIT;

	m.header = base;
	dtp_checksum_start(c, &m);
}

static void start_sync(struct dtp_conn *c, Hd__BaseHeaderProto *base)
{
	Hd__OpSyncLaterProto m = HD__OP_SYNC_LATER_PROTO__INIT;

	m.header = base;
	dtp_sync_later_start(c, &m);
}

static void start_fds(struct dtp_conn *c, Hd__BaseHeaderProto *base)
{
	Hd__OpRequestShortCircuitAccessProto m = HD__OP_REQUEST_SHORT_CIRCUIT_ACCESS_PROTO__INIT;

	m.header = base;
	m.maxversion = 1;
	dtp_fds_start(c, &m);
}

/* A block that can be moved from a disk to an SSD, in a store of its own. */
static void two_types(char *top, int64_t id)
{
	char disk[64], ssd[64];
	const struct store_volume_opts vol[] = {{.path = disk, .type = STORAGE_DISK},
						{.path = ssd, .type = STORAGE_SSD}};
	const struct store_opts so = {.volumes = vol, .volume_count = 2};
	const struct store_namespace ns = {
		.pool_id = POOL_ID, .cluster_id = "CID-1", .namespace_id = 1, .ctime = 1};
	struct write_request q = {.block = {id, 1001, 1 << 20},
				  .stage = STAGE_CREATE,
				  .from_client = true,
				  .crc_type = CRC_NULL,
				  .bytes_per_crc = BPC,
				  .storage_type = STORAGE_DISK};
	struct replica_writer *w;
	struct err err = ERR_INIT;

	assert_non_null(mkdtemp(top));
	(void)snprintf(disk, sizeof(disk), "%s/disk", top);
	(void)snprintf(ssd, sizeof(ssd), "%s/ssd", top);
	assert_int_equal(store_open(&so, &dn.store, &err), 0);
	assert_int_equal(store_attach(dn.store, &ns, &bp, &err), 0);
	assert_int_equal(replica_write_open(bp, &q, &w, &err), 0);
	assert_int_equal(replica_finalize(w, 0, SYNC_NEVER, NULL, &err), 0);
}

static void start_move(struct dtp_conn *c, Hd__BaseHeaderProto *base)
{
	Hd__OpReplaceBlockProto m = HD__OP_REPLACE_BLOCK_PROTO__INIT;
	Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT;
	Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;

	id.datanodeuuid = (char *)(uintptr_t)store_datanode_uuid(dn.store);
	info.id = &id;
	base->block->numbytes = 0;
	m.header = base;
	m.delhint = (char *)(uintptr_t) "";
	m.source = &info;
	m.has_storagetype = true;
	m.storagetype = HD__STORAGE_TYPE_PROTO__SSD;
	dtp_replace_start(c, &m);
}

static uint32_t entries(void)
{
	struct operation_list l = {0};

	entries_list(&core, &l);
	free(l.op);
	return l.count;
}

/* Each is listed until a helper thread is back, which this thread hears of as the reactor runs
 * only. */
static void what_waits_for_a_disk_is_listed(void **state)
{
	static const struct {
		void (*start)(struct dtp_conn *c, Hd__BaseHeaderProto *base);
		const char *kind, *transport, *state;
	} cases[] = {
		{start_checksum, "checksum", "tcp", "wait_disk"},
		{start_sync, "sync", "tcp", "wait_disk"},
		{start_fds, "descriptors", "tcp", "wait_disk_open"},
		{start_move, "move", "none", "wait_disk"},
	};
	const struct fake_opts fo = {.seed = 1};
	static struct moves moves;
	char top[] = "/tmp/dtp_test.XXXXXX", cmd[64];
	struct block_pool *const usual_bp = bp;
	struct store *const usual = dn.store;
	struct xport_ops with_fds;

	(void)state;
	core.moves = &moves;
	core.pass_fds = true;
	dn.live.max_moves = 1;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const int64_t id = next_id++;
		struct xconn *ends[2];
		struct dtp_conn *c;
		struct operation o;

		assert_int_equal(fake_pair(r, &fo, ends), 0);
		with_fds = *ends[0]->ops;
		with_fds.send_fds = no_fds;
		ends[0]->ops = &with_fds;
		ends[0]->peer.sa.ss_family = AF_UNIX;
		c = dtp_conn_new(&core, ends[0]);
		memcpy(c->peer, "10.1.2.3:4567", sizeof("10.1.2.3:4567"));
		c->state = DTP_BUSY;
		if (cases[i].start == start_move)
			two_types(top, id);
		cases[i].start(c, header_for(id)->baseheader);
		assert_int_equal(entries(), 1);
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
		o = fix_op(entries_list, id);
		assert_string_equal(o.kind, cases[i].kind);
		assert_string_equal(o.transport, cases[i].transport);
		assert_string_equal(o.state, cases[i].state);
		assert_string_equal(o.waits_for, "disk");
		assert_string_equal(o.pool, POOL_ID);
		assert_string_equal(o.peer, "10.1.2.3:4567");
		assert_int_equal(o.gs, 1001);
		assert_true(o.age_ms >= 20);
		for (int k = 0; k < 600 && entries(); k++)
			fix_run(100);
		assert_int_equal(entries(), 0);
		xconn_close(ends[1]);
		for (int k = 0; k < 600 && core.conn_count; k++)
			fix_run(100);
		assert_int_equal(core.conn_count, 0);
	}
	store_close(dn.store);
	dn.store = usual;
	bp = usual_bp;
	(void)snprintf(cmd, sizeof(cmd), "rm -rf %s", top);
	assert_int_equal(system(cmd), 0);
}

static int setup(void **state)
{
	const struct pool_opts po = {.count = {64, 32, 8, 8, 64}};

	(void)state;
	fix_setup("dtp_test", &po);
	fix_store(dir);
	core.read_direct = true;
	for (uint32_t i = 0; i < DATA_LEN; i++)
		data[i] = (uint8_t)((i * 7 + 3) % 251);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return fix_teardown(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_block_arrives_however_the_bytes_are_cut),
		cmocka_unit_test(a_connection_may_break_at_every_operation),
		cmocka_unit_test(a_next_hop_may_fail_in_every_way),
		cmocka_unit_test(a_read_may_break_at_every_operation),
		cmocka_unit_test(the_patience_of_a_writer_is_a_second_or_more),
		cmocka_unit_test(a_copy_is_charged_to_the_share_of_all_transfers),
		cmocka_unit_test(a_copy_whose_target_is_slow_to_answer_holds_no_buffers),
		cmocka_unit_test(a_copy_whose_target_takes_nothing_ends_while_others_wait),
		cmocka_unit_test(a_copy_whose_target_is_slow_goes_on_while_others_wait),
		cmocka_unit_test(a_copy_that_is_answered_too_early_ends),
		cmocka_unit_test(garbage_ends_the_connection),
		cmocka_unit_test(a_checksum_need_not_wait_for_the_threads_of_its_volume),
		cmocka_unit_test(what_waits_for_a_disk_is_listed),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
