/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: dtp_test_fixture - what the tests of the data port's connections share: a peer, a next
 * hop that misbehaves on demand, and the judgement that everything came back
 *
 * Included by one test program each, which owns what is static here.
 */
#include <semaphore.h>

#include "common/transport/fake.h"
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

static inline uint32_t random_below(uint32_t n)
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

static inline void hop_again(void)
{
	reactor_timer_set(r, &hop.timer, reactor_now_ns(r) + random_below(200000));
}

static inline void hop_send_one(void)
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

static inline void hop_ack_one(void)
{
	uint8_t statuses[2] = {DT_SUCCESS, DT_SUCCESS};
	int64_t seq = hop.unacked[hop.acked++ % 256];

	if (hop.acked > hop.fault_at && hop.fault == HOP_LIES)
		seq += 1000;
	if (hop.acked > hop.fault_at && hop.fault == HOP_BLAMES)
		statuses[0] = DT_ERROR_CHECKSUM;
	hop.base.user->ops->acked(hop.base.user, seq, statuses, 2);
}

static inline void hop_fire(struct rtimer *t)
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

static inline void hop_forward(struct piece_sink *s, struct piece *p)
{
	(void)s;
	list_add_tail(&hop.queue, &p->link);
}

static inline void hop_close(struct piece_sink *s)
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

static inline void peer_sent(struct xop *op, int res)
{
	(void)op, (void)res;
	peer.sending = false;
}

static inline void peer_recv(void);

static inline void peer_received(struct xop *op, int res)
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

static inline void peer_recv(void)
{
	peer.receiving = true;
	peer.recv_op.done = peer_received;
	xconn_recv(peer.c, peer.in + peer.in_len, sizeof(peer.in) - peer.in_len, &peer.recv_op);
}

static inline void put(const void *bytes, size_t n)
{
	peer.out = realloc(peer.out, peer.out_len + n);
	assert_non_null(peer.out);
	memcpy(peer.out + peer.out_len, bytes, n);
	peer.out_len += n;
}

static inline void put_op(enum dt_op op, const void *msg)
{
	uint8_t *buf;
	size_t len;

	assert_int_equal(dt_op_encode(op, msg, &buf, &len), 0);
	put(buf, len);
	free(buf);
}

static inline Hd__ClientOperationHeaderProto *header_for(int64_t id)
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

static inline void put_write(int64_t id, bool with_hop)
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

static inline void put_packet(int64_t seq, uint32_t off, uint32_t len, bool last, bool sync)
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
static inline uint32_t put_stream(uint32_t len)
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

static inline bool message(uint32_t *pos, const uint8_t **p, size_t *len)
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

static inline void peer_run(const struct fake_opts *o, uint32_t want)
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

static inline void everything_comes_back(void)
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
static inline uint32_t count_acks(uint64_t *promised)
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

static inline void run_until_ended(uint32_t acks)
{
	uint64_t promised;

	for (int i = 0; i < 200 && !peer.ended && count_acks(&promised) < acks && !peer.told; i++) {
		fix_run(20);
		peer.want = peer.in_len + 1;
		if (!peer.receiving && !peer.ended)
			peer_recv();
	}
}

static inline struct fake_opts stream(uint64_t seed)
{
	rnd = seed * 77 + 1;
	return (struct fake_opts){.seed = seed,
				  .inside_submit = seed % 3 == 0,
				  .delay_turns = (uint32_t)(seed % 4),
				  .shuffle = seed % 2,
				  .vectored = seed / 2 % 2,
				  .recv_max = seed % 5 == 0   ? 7 + (uint32_t)seed
					      : seed % 5 == 1 ? 4000
							      : 0};
}

/* ---- /ops ---- */

static inline int setup(void **state)
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

static inline int teardown(void **state)
{
	(void)state;
	return fix_teardown(dir);
}
