/* SPDX-License-Identifier: Apache-2.0 */
/* A dialer that lies: good capsules, bent in every way, against a real data node. The node has to
 * end what it must and serve on; that is for the caller to see. capsule_liar ADDR PORT POOL BLOCK
 * GS LEN ROUNDS SEED */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/cursor.h"
#include "common/link/capsule_link.h"
#include "common/wire/capsule.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"

#define MESSAGES 12 /* on one connection */
#define WAIT_NS (300 * NS_PER_MS)

static struct reactor *reactor;
static struct rtimer alarm_timer;
static struct pool *pool;
static struct verbs *verbs;
static struct slot *memory;
static char **arg;
static uint64_t next_block;
static uint32_t answers[CAPSULE_ERROR + 1], ended, connected;

/* How a capsule lies; docs/design/017 counts them. */
enum kind {
	WRONG_BIT,
	WRONG_FIELDS,
	WRONG_LENGTH,
	WRONG_TYPE,
	NOISE,
	ID_IN_USE,
	NO_STREAM,
	OLD_SEQNO,
	SAME_PIECE_AGAIN,
	FEW_CRCS,
	BAD_CRCS,
	NO_ROOM,
	BEYOND_THE_REPLICA,
	NOBODYS_KEY,
	NOT_ITS_MEMORY,
	NODES_CAPSULE,
	HONEST, /* but for what came before it */
	KINDS
};
static const char *const kind_name[KINDS] = {
	"bit",       "fields",      "length",         "type",          "noise",    "id-in-use",
	"no-stream", "old-seqno",   "same-piece",     "few-crcs",      "bad-crcs", "no-room",
	"beyond",    "nobodys-key", "not-its-memory", "nodes-capsule", "honest"};
static uint32_t told[KINDS];

struct wop {
	struct xop op; /* first */
	int res;
	bool done;
};

static void on_alarm(struct rtimer *t)
{
	(void)t;
	reactor_stop(reactor);
}

static void wop_done(struct xop *op, int res)
{
	((struct wop *)op)->res = res;
	((struct wop *)op)->done = true;
	reactor_stop(reactor);
}

static struct xop *wop(struct wop *w)
{
	*w = (struct wop){.op.done = wop_done};
	return &w->op;
}

static bool wait_for(struct wop *w, uint64_t ns)
{
	uint64_t end = clock_mono_ns() + ns;

	while (!w->done && clock_mono_ns() < end) {
		reactor_timer_set(reactor, &alarm_timer, end);
		reactor_run(reactor);
	}
	return w->done;
}

static uint32_t rnd(uint32_t n)
{
	return (uint32_t)random() % n;
}

/* ---- good capsules ---- */

static uint8_t *op_buf; /* of the newest */

static struct capsule_bytes op_bytes(int opcode, void *m)
{
	size_t len;
	struct rd r;

	free(op_buf);
	op_buf = NULL;
	if (dt_op_encode((uint8_t)opcode, m, &op_buf, &len) < 0)
		exit(1);
	r = rd_init(op_buf + 3, len - 3); /* version and opcode are for streams */
	len = rd_varint(&r);
	return (struct capsule_bytes){r.p, (uint32_t)len};
}

struct names {
	Hd__ClientOperationHeaderProto header;
	Hd__BaseHeaderProto base;
	Hd__ExtendedBlockProto block;
	Hc__TokenProto token;
};

static void name_block(struct names *n, uint64_t id, uint64_t gs)
{
	hd__client_operation_header_proto__init(&n->header);
	hd__base_header_proto__init(&n->base);
	hd__extended_block_proto__init(&n->block);
	hc__token_proto__init(&n->token);
	n->token.kind = n->token.service = "";
	n->block.poolid = arg[3];
	n->block.blockid = id;
	n->block.generationstamp = gs;
	n->base.block = &n->block;
	n->base.token = &n->token;
	n->header.baseheader = &n->base;
	n->header.clientname = "liar";
}

static struct capsule good_read(const struct xconn *c, uint64_t id, bool beyond)
{
	static struct names n;
	Hd__OpReadBlockProto m = HD__OP_READ_BLOCK_PROTO__INIT;
	struct xremote at = verbs_remote(c, memory, 0);
	uint64_t len = strtoull(arg[6], NULL, 10);

	name_block(&n, strtoull(arg[4], NULL, 10), strtoull(arg[5], NULL, 10));
	m.header = &n.header;
	m.offset = rnd(2) ? 0 : rnd((uint32_t)len);
	m.len = rnd((uint32_t)(len - m.offset));
	if (beyond)
		m.len = 1ull << (1 + rnd(62));
	return (struct capsule){
		.type = CAPSULE_READ,
		.request_id = id,
		.read = {.dest = {at.addr, at.rkey, rnd(4) ? 768u << 10 : 1 + rnd(1 << 20)},
			 .crc = {at.addr + (768 << 10), at.rkey, rnd(4) ? 8192 : 0},
			 .op = op_bytes(DT_READ_BLOCK, &m)},
	};
}

static struct capsule good_open(uint64_t id)
{
	static struct names n;
	static Hd__ChecksumProto sum;
	Hd__OpWriteBlockProto m = HD__OP_WRITE_BLOCK_PROTO__INIT;

	name_block(&n, ++next_block, 1000 + rnd(3));
	hd__checksum_proto__init(&sum);
	sum.type = HD__CHECKSUM_TYPE_PROTO__CHECKSUM_CRC32C;
	sum.bytesperchecksum = rnd(4) ? 512 : 1 + rnd(5000);
	m.header = &n.header;
	m.stage = rnd(8) ? HD__OP_WRITE_BLOCK_PROTO__BLOCK_CONSTRUCTION_STAGE__PIPELINE_SETUP_CREATE
			 : (Hd__OpWriteBlockProto__BlockConstructionStage)rnd(9);
	m.pipelinesize = 1;
	m.latestgenerationstamp = n.block.generationstamp;
	m.requestedchecksum = &sum;
	return (struct capsule){.type = CAPSULE_OPEN_WRITE,
				.flags = rnd(2) ? CAPSULE_WANT_PULLED : 0,
				.request_id = id,
				.open_write.op = op_bytes(DT_WRITE_BLOCK, &m)};
}

static struct capsule some_write(const struct xconn *c, uint64_t id, int64_t seq, uint64_t *off)
{
	struct xremote at = verbs_remote(c, memory, rnd(2) * 512);
	static uint8_t crcs[2048];
	uint32_t len = rnd(4) ? (1 + rnd(64)) * 512 : rnd(300000);
	struct capsule m = {.type = CAPSULE_WRITE,
			    .request_id = id,
			    .write = {.seqno = seq, .offset = *off, .data_len = len}};
	uint32_t crc_len = (len + 511) / 512 * 4;

	if (!rnd(6)) {
		m.flags = CAPSULE_LAST;
		m.write.data_len = 0;
		return m;
	}
	if (!rnd(5))
		m.flags = CAPSULE_SYNC;
	*off += len;
	m.write.data = (struct capsule_mem){at.addr, at.rkey, len};
	if (!len)
		m.write.data = (struct capsule_mem){0};
	switch (len ? rnd(4) : 0) {
	case 0: /* no CRCs: the node computes them */
		break;
	case 1:
		m.write.crc = (struct capsule_bytes){crcs, crc_len < 1600 ? crc_len : 1600};
		break;
	default:
		m.write.crc.len = crc_len;
		m.write.crc_mem = (struct capsule_mem){at.addr, at.rkey, crc_len};
	}
	return m;
}

/* ---- bending ---- */

static struct capsule_mem *data_of(struct capsule *m)
{
	return m->type == CAPSULE_READ ? &m->read.dest : &m->write.data;
}

/* A capsule of a good form that says what is not so. HONEST: that kind does not go with it. */
static enum kind twist(struct capsule *m, enum kind kind)
{
	static uint8_t junk[1024];
	const bool is_write = m->type == CAPSULE_WRITE && m->write.data_len;
	const bool names = m->type == CAPSULE_READ || is_write;

	switch ((int)kind) {
	case ID_IN_USE:
		m->request_id = 1;
		return m->type == CAPSULE_WRITE ? HONEST : kind;
	case NO_STREAM:
		m->request_id += 1000;
		return m->type == CAPSULE_WRITE ? kind : HONEST;
	case OLD_SEQNO:
		m->write.seqno = m->type == CAPSULE_WRITE ? 0 : m->write.seqno;
		return m->type == CAPSULE_WRITE ? kind : HONEST;
	case SAME_PIECE_AGAIN:
		m->write.offset = is_write ? 0 : m->write.offset;
		return is_write ? kind : HONEST;
	case FEW_CRCS:
	case BAD_CRCS:
		if (!is_write)
			return HONEST;
		m->write.crc_mem = (struct capsule_mem){0};
		m->write.crc = (struct capsule_bytes){
			junk,
			kind == FEW_CRCS ? 4 : (m->write.data_len + 511) / 512 * 4 % sizeof(junk)};
		memset(junk, 0xa5, sizeof(junk));
		return kind;
	case NO_ROOM:
		if (m->type == CAPSULE_READ)
			m->read.dest.len = 1;
		return m->type == CAPSULE_READ ? kind : HONEST;
	case NOBODYS_KEY:
		if (names)
			data_of(m)->rkey ^= 0x5a5a00;
		return names ? kind : HONEST;
	case NOT_ITS_MEMORY:
		if (names)
			data_of(m)->addr += 1ull << 40;
		return names ? kind : HONEST;
	default:
		return HONEST;
	}
}

/* What only a node may send. */
static struct capsule nodes_capsule(uint64_t id)
{
	static const uint8_t good;
	struct capsule m = {.type = CAPSULE_ACK, .request_id = id};

	switch (rnd(3)) {
	case 0:
		m.ack.count = 1;
		m.ack.status = &good;
		break;
	case 1:
		m.type = CAPSULE_PULLED;
		break;
	default:
		m.type = CAPSULE_CLOSED;
	}
	return m;
}

/* Bytes that are no good capsule. */
static uint32_t bend(uint8_t *buf, uint32_t len, enum kind kind)
{
	switch ((int)kind) {
	case WRONG_BIT:
		buf[rnd(len)] ^= (uint8_t)(1u << rnd(8));
		break;
	case WRONG_FIELDS: /* of the body */
		for (int i = 0; i < 4; i++)
			buf[CAPSULE_HEADER_LEN + rnd(len - CAPSULE_HEADER_LEN + 1)] =
				(uint8_t)random();
		break;
	case WRONG_LENGTH: /* shorter or longer, and it does not say so */
		len = rnd(VERBS_MESSAGE_MAX) + 1;
		break;
	case WRONG_TYPE:
		buf[1] = (uint8_t)rnd(16);
		break;
	case NOISE:
		for (uint32_t i = 0; i < len; i++)
			buf[i] = (uint8_t)random();
		break;
	default:
		break;
	}
	return len;
}

static void drain(struct xconn *c)
{
	static uint8_t in[VERBS_MESSAGE_MAX];
	struct capsule m;
	struct wop recv;

	for (;;) {
		c->recv_deadline_ns = clock_mono_ns() + 20 * NS_PER_MS;
		xconn_recv(c, in, sizeof(in), wop(&recv));
		if (!wait_for(&recv, 60 * NS_PER_S) || recv.res <= 0)
			return;
		if (capsule_decode(in, (uint32_t)recv.res, NULL, 0, &m) < 0) {
			printf("FAIL: the node sent a malformed capsule\n");
			exit(1);
		}
		answers[m.type]++;
	}
}

/* The next one of a connection. */
static struct capsule some_capsule(const struct xconn *c, int i, uint64_t *id, int64_t *seq,
				   uint64_t *off, enum kind *kind)
{
	if (*kind == NODES_CAPSULE)
		return nodes_capsule(*id);
	if (*kind == BEYOND_THE_REPLICA)
		return good_read(c, ++*id, true);
	if (i == 0 || !rnd(6))
		return rnd(3) == 0 ? good_read(c, *id += rnd(8) != 0, false)
				   : good_open(*id += rnd(8) != 0);
	if (rnd(8))
		return some_write(c, *id, *seq += rnd(8) != 0, off);
	return (struct capsule){.type = CAPSULE_CANCEL, .request_id = *id};
}

static void one_connection(const struct net_addr *to)
{
	static uint8_t buf[MESSAGES][VERBS_MESSAGE_MAX + 64];
	static struct wop send[MESSAGES];
	struct xconn *c;
	struct wop w;
	uint64_t id = 1, off = 0;
	int64_t seq = 0;

	if (verbs_connect(verbs, to, clock_mono_ns() + 5 * NS_PER_S, wop(&w), &c) < 0)
		exit(1);
	if (!wait_for(&w, 6 * NS_PER_S) || w.res < 0) {
		xconn_close(c);
		return;
	}
	connected++;
	for (int i = 0; i < MESSAGES; i++) {
		enum kind kind = rnd(3) ? HONEST : (enum kind)rnd(KINDS);
		struct capsule m = some_capsule(c, i, &id, &seq, &off, &kind);
		ssize_t len;

		if (kind >= ID_IN_USE && kind <= NOT_ITS_MEMORY && kind != BEYOND_THE_REPLICA)
			kind = twist(&m, kind);
		len = capsule_encode(&m, c->max_message, buf[i]);
		if (len < 0)
			continue;
		len = bend(buf[i], (uint32_t)len, kind);
		told[kind]++;
		xconn_send(c, &(struct iovec){buf[i], (size_t)len}, 1, wop(&send[i]));
		/* mostly waits for the answer */
		if (m.type == CAPSULE_OPEN_WRITE ? rnd(8) : rnd(2))
			drain(c);
	}
	drain(c);
	ended += *verbs_reason(c) != 0;
	xconn_close(c);
}

int main(int argc, char **argv)
{
	struct pool_opts po = {.count = {64, 4, 2, 4}};
	struct verbs_opts vo = {.protocol = &capsule_link, .active = true, .peer_may_write = true};
	struct reactor_opts ro = {.name = "liar"};
	struct err err = ERR_INIT;
	struct net_addr to;

	arg = argv;
	if (argc != 9 || net_resolve(argv[1], (uint16_t)atoi(argv[2]), &to, &err) < 0)
		return 2;
	srandom((unsigned int)atoi(argv[8]));
	vo.role = rnd(2) ? CAPSULE_PEER : CAPSULE_CLIENT; /* nobody is better off for it */
	next_block = 5000000000ull + (uint64_t)atoi(argv[8]) * 1000000;
	alarm_timer.fire = on_alarm;
	if (reactor_new(&ro, &reactor, &err) < 0 || pool_new(&po, &pool, &err) < 0 ||
	    (vo.pool = pool, verbs_new(reactor, &vo, &verbs, &err)) < 0) {
		printf("FAIL: %s\n", err.text);
		return 1;
	}
	memory = pool_get(pool, SLOT_1M, POOL_READ);
	for (int i = 0; i < atoi(argv[7]); i++)
		one_connection(&to);
	printf("%u connections, the node ended %u; its answers:", connected, ended);
	for (uint8_t i = 1; i <= CAPSULE_ERROR; i++)
		if (answers[i])
			printf(" %s %u", capsule_type_name(i), answers[i]);
	printf("; it lied:");
	for (int i = 0; i < KINDS; i++)
		printf(" %s %u", kind_name[i], told[i]);
	printf("\n");
	free(op_buf);
	verbs_free(verbs);
	slot_put(memory);
	pool_free(pool);
	reactor_free(reactor);
	return !connected;
}
