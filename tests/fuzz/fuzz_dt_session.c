/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions of clients, and of other nodes, with the data port of a data node: from the bytes of a
 * connection by way of the engine to the files of a store and back. @data is a byte that says how
 * the connection cuts them, and a row of steps (enum step): an operation whose message is made of
 * the bytes (make_message.h) or is the bytes; a packet; loose bytes; and what the next node that
 * ours calls will say. Each input finds the same two replicas. In the end every connection,
 * operation and buffer is back, and of a replica no more can be read than there is. */
#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/crc.h"
#include "common/base/log.h"
#include "common/transport/fake.h"
#include "datanode/block/buffers.h"
#include "datanode/block/moves.h"
#include "datanode/block/suspects.h"
#include "datanode/dtp/dtp_internal.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/make_message.h"

#define POOL_TEXT "BP-1"
#define STEPS_MAX 30
#define STREAM_MAX (256u << 10)
#define HOPS_MAX 8
#define BPC 512u
#define DATA_MAX 70000u
#define WHOLE 1 /* the replicas that are there: finalized, */
#define WHOLE_LEN 3000u
#define PART 2 /* and being written */
#define PART_LEN 600u
#define REPLICAS_MAX 64
#define IDLE_TURNS 20
#define TURNS_MAX 100000

enum step { OP_MADE, OP_BYTES, PACKET, BYTES, HOP, STEPS };

static struct reactor *r;
static struct pool *pool;
static struct block_pool *bp;
static struct dn dn;
static struct engine_core core;
static struct moves moves;
static struct suspects suspects;
static char dir[64];
static uint8_t block_data[DATA_MAX];

/* ---- what the data port needs of its node ---- */

struct block_pool *dn_pool(struct dn *d, const char *id)
{
	(void)d;
	return strcmp(id, POOL_TEXT) ? NULL : bp;
}

void engine_count_conn(struct engine_core *c, int delta)
{
	c->conn_count += (uint32_t)delta;
}

/* ---- time: it goes on when nothing else does ---- */

static uint64_t now_ns = 1000 * NS_PER_S;

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	if (id != CLOCK_MONOTONIC) /* libFuzzer asks for the time of day */
		return __real_clock_gettime(id, ret);
	ret->tv_sec = (time_t)(now_ns / NS_PER_S);
	ret->tv_nsec = (long)(now_ns % NS_PER_S);
	return 0;
}

/* ---- an end of a connection that says what it is told, and listens ---- */

struct peer {
	struct xconn *c; /* NULL: closed */
	struct xop send_op, recv_op;
	bool sending, receiving;
	const uint8_t *say;
	size_t len;
	uint8_t in[65536];
};

static struct peer client;
static struct hop {
	struct peer peer;
	bool hangs_up; /* when it has said it */
} hops[HOPS_MAX];
static uint32_t hop_count, hops_called;

static void on_sent(struct xop *op, int res)
{
	(void)res;
	container_of(op, struct peer, send_op)->sending = false;
}

static void listen_on(struct peer *p);

static void on_received(struct xop *op, int res)
{
	struct peer *p = container_of(op, struct peer, recv_op);

	p->receiving = false;
	if (res > 0 && p->c) {
		listen_on(p);
	} else if (p->c) {
		xconn_close(p->c);
		p->c = NULL;
	}
}

static void listen_on(struct peer *p)
{
	p->receiving = true;
	p->recv_op.done = on_received;
	xconn_recv(p->c, p->in, sizeof(p->in), &p->recv_op);
}

static void talk(struct peer *p, struct xconn *c)
{
	struct iovec iov = {(void *)(uintptr_t)p->say, p->len};

	p->c = c;
	if (p->len) {
		p->sending = true;
		p->send_op.done = on_sent;
		xconn_send(c, &iov, 1, &p->send_op);
	}
	if (p->c)
		listen_on(p);
}

static void hang_up(struct peer *p)
{
	xconn_close(p->c);
	p->c = NULL;
}

/* ---- the nodes that ours calls ---- */

static struct net_addr hop_addr;

static void hop_accepted(void *arg, struct xconn *c)
{
	struct hop *h = &hops[hops_called];

	(void)arg;
	if (hops_called == hop_count) {
		xconn_close(c);
		return;
	}
	hops_called++;
	talk(&h->peer, c);
}

static int hop_connect(struct reactor *reactor, const struct net_addr *to, uint64_t deadline_ns,
		       const void *private_data, size_t private_len, struct xop *op,
		       struct xconn **ret)
{
	(void)to;
	return fake_stream_ops.connect(reactor, &hop_addr, deadline_ns, private_data, private_len,
				       op, ret);
}

const struct xport_ops tcp_ops = {.name = "tcp", .connect = hop_connect};

/* ---- turns ---- */

static void turn_ends(struct rtimer *t)
{
	(void)t;
	reactor_stop(r);
}

static void turn(void)
{
	struct rtimer t = {.fire = turn_ends};

	reactor_timer_set(r, &t, 0);
	MUST(!reactor_run(r));
	reactor_timer_clear(r, &t);
}

static bool hops_are_over(void)
{
	for (uint32_t i = 0; i < hops_called; i++) {
		struct hop *h = &hops[i];

		if (h->peer.c && h->hangs_up && !h->peer.sending)
			hang_up(&h->peer);
		if (h->peer.sending || h->peer.receiving)
			return false;
	}
	return true;
}

static bool is_over(void)
{
	return hops_are_over() && !client.sending && !client.receiving && !core.conn_count &&
	       !core.op_count && !pool_slots_out(pool);
}

/* The client hangs up when nothing happens any more; then time goes on, faster and faster. */
static void run(void)
{
	uint32_t ops = 0, idle = 0;

	for (int i = 0; !is_over(); i++) {
		MUST(i < TURNS_MAX);
		turn();
		idle = client.c && fake_ops(client.c) != ops ? 0 : idle + 1;
		ops = client.c ? fake_ops(client.c) : 0;
		if (idle > IDLE_TURNS && client.c)
			hang_up(&client);
		if (idle % IDLE_TURNS == 0)
			now_ns += idle * NS_PER_MS * 20;
		if (idle > IDLE_TURNS)
			(void)usleep(20); /* for the disk */
	}
}

/* ---- the stream ---- */

static uint8_t stream_room[STREAM_MAX];
static struct wr stream;

static const char *const texts[] = {POOL_TEXT,  "client", "",     "127.0.0.1",
				    "10.0.0.1", "host",   "uuid", "DS-1",
				    "BP-other", "hint",   "::1",  "x/../y"};
static const uint64_t numbers[] = {
	0,     1,        2,    3,         4,          5,          1001,
	1002,  1000,     512,  511,       600,        3000,       3001,
	1024,  4096,     9866, 65536,     1u << 20,   1u << 27,   (1u << 27) + 1,
	-1ull, -1024ull, 7,    INT64_MAX, 1ull << 63, UINT32_MAX, INT32_MAX};
static const struct words words = {texts, numbers, sizeof(texts) / sizeof(*texts),
				   sizeof(numbers) / sizeof(*numbers)};

static void put_op(uint8_t op, const uint8_t *msg, size_t len)
{
	wr_be16(&stream, 28);
	wr_u8(&stream, op);
	wr_varint(&stream, len);
	wr_bytes(&stream, msg, len);
}

static void op(struct rd *in, bool made)
{
	static const uint8_t ops[] = {DT_WRITE_BLOCK,
				      DT_READ_BLOCK,
				      DT_BLOCK_CHECKSUM,
				      DT_COPY_BLOCK,
				      DT_TRANSFER_BLOCK,
				      DT_REPLACE_BLOCK,
				      DT_REQUEST_SHORT_CIRCUIT_FDS,
				      DT_RELEASE_SHORT_CIRCUIT_FDS,
				      DT_REQUEST_SHORT_CIRCUIT_SHM,
				      DT_SYNC_LATER,
				      DT_BLOCK_GROUP_CHECKSUM,
				      DT_READ_SMALL};
	static uint8_t room[60000];
	const uint8_t code = ops[rd_u8(in) % sizeof(ops)];
	struct rd bytes = input_part(in);
	struct wr w = wr_init(room, sizeof(room));

	if (made && dt_op_desc(code))
		message_make(&bytes, dt_op_desc(code), &words, &w);
	else
		wr_bytes(&w, bytes.p, rd_left(&bytes));
	if (!w.bad)
		put_op(code, room, (size_t)(w.p - room));
}

/* The bytes that its place in the block has, with their CRCs; @how: what is wrong with it. */
static void packet(int64_t seq, uint32_t off, uint32_t len, uint8_t how)
{
	uint8_t head[DT_PACKET_HEADER_MAX], crcs[4 * (DATA_MAX / BPC + 1)];
	const uint32_t chunks = (uint32_t)crc_bytes(CRC_CRC32C, len, BPC);
	const struct dt_packet p = {.offset = off,
				    .seqno = seq,
				    .data_len = len,
				    .crc_len = how & 4 ? chunks / 2 : chunks,
				    .last = how & 1,
				    .sync = how & 2};

	crc_chunks(CRC_CRC32C, block_data + off, len, BPC, crcs);
	if (how & 8)
		crcs[0] ^= 1;
	wr_bytes(&stream, head, dt_packet_encode(&p, head));
	wr_bytes(&stream, crcs, p.crc_len);
	wr_bytes(&stream, block_data + off, len);
}

static void packet_step(struct rd *in)
{
	const uint8_t how = rd_u8(in);
	const int64_t seq = (int8_t)rd_u8(in);
	const uint32_t at = rd_be16(in), off = how & 16 ? at : at / BPC * BPC;
	const uint32_t len = how & 1 ? 0 : rd_be16(in);

	packet(seq, off, len < DATA_MAX - off ? len : DATA_MAX - off, how);
}

static void hop_step(struct rd *in)
{
	struct hop *h = &hops[hop_count];
	const uint8_t how = rd_u8(in);
	const struct rd bytes = input_part(in);

	if (hop_count == HOPS_MAX)
		return;
	hop_count++;
	h->hangs_up = how & 1;
	h->peer.say = bytes.p;
	h->peer.len = rd_left(&bytes);
}

static void step(struct rd *in)
{
	struct rd bytes;

	switch ((enum step)(rd_u8(in) % STEPS)) {
	case OP_MADE:
		op(in, true);
		break;
	case OP_BYTES:
		op(in, false);
		break;
	case PACKET:
		packet_step(in);
		break;
	case BYTES:
		bytes = input_part(in);
		wr_bytes(&stream, bytes.p, rd_left(&bytes));
		break;
	case HOP:
	case STEPS:
		hop_step(in);
		break;
	}
}

static void send_stream(uint8_t how)
{
	const struct fake_opts o = {.seed = how,
				    .inside_submit = how & 1,
				    .delay_turns = how >> 1 & 1,
				    .shuffle = how & 4,
				    .recv_max = how & 8 ? 1 + how : 0};
	struct xconn *ends[2];

	MUST(!fake_pair(r, &o, ends));
	net_resolve("127.0.0.1", 1234, &ends[0]->peer, NULL);
	dtp_accept(&core, ends[0]);
	client.say = stream_room;
	client.len = (size_t)(stream.p - stream_room);
	talk(&client, ends[1]);
	run();
}

/* ---- the replicas ---- */

static void write_replica(int64_t id, uint32_t len, bool finish)
{
	struct write_request q = {.block = {id, 1001, 1 << 20},
				  .stage = STAGE_CREATE,
				  .from_client = true,
				  .new_gs = 1001,
				  .crc_type = CRC_CRC32C,
				  .bytes_per_crc = BPC};
	uint8_t crcs[4 * (DATA_MAX / BPC + 1)];
	struct replica_writer *w;
	struct err err;
	uint32_t last = 0;

	MUST(!replica_write_open(bp, &q, &w, &err));
	crc_chunks(CRC_CRC32C, block_data, len, BPC, crcs);
	MUST(pwrite(w->fd, block_data, len, 0) == (ssize_t)len);
	MUST(pwrite(w->fd_meta, crcs, crc_bytes(CRC_CRC32C, len, BPC), 7) > 0);
	memcpy(&last, crcs + crc_bytes(CRC_CRC32C, len, BPC) - 4, 4);
	replica_publish(w, len, len, len, last);
	if (finish)
		MUST(!replica_finalize(w, len, SYNC_NEVER, NULL, &err));
	else
		replica_write_close(w, true);
}

static bool is_as_it_was(const struct replica_info *i)
{
	return i->block.gs == 1001 && i->block.len == i->visible &&
	       ((i->block.id == WHOLE && i->block.len == WHOLE_LEN &&
		 i->state == REPLICA_FINALIZED) ||
		(i->block.id == PART && i->block.len == PART_LEN && i->state == REPLICA_RBW));
}

/* As much can be read as it says. */
static void check(const struct replica_info *i)
{
	static uint8_t buf[1 << 20];
	const struct block b = {.id = i->block.id, .gs = BLOCK_GS_ANY};
	struct replica_reader *rr;
	struct err err;

	if (replica_read_open(bp, &b, &rr, &err))
		return;
	MUST(rr->block.len > sizeof(buf) ||
	     pread(rr->fd, buf, rr->block.len, 0) == (ssize_t)rr->block.len);
	replica_read_close(rr);
}

struct found {
	struct replica_info list[REPLICAS_MAX];
	uint32_t n;
};

static int find(void *arg, const struct replica_info *info)
{
	struct found *f = arg;

	MUST(f->n < REPLICAS_MAX);
	f->list[f->n++] = *info;
	return 0;
}

static void removed(const struct replica_info *i)
{
	struct replica_info is = *i;

	(void)replica_invalidate(bp, &i->block, true);
	for (int n = 0; !replica_get(bp, i->block.id, &is); n++) {
		MUST(n < 100000);
		(void)usleep(50);
	}
}

/* What the next input is to find. */
static void restore(void)
{
	bool whole = false, part = false;
	struct found f = {.n = 0};

	store_each(bp, 0, find, &f);
	for (uint32_t i = 0; i < f.n; i++) {
		check(&f.list[i]);
		if (!is_as_it_was(&f.list[i]))
			removed(&f.list[i]);
		else if (f.list[i].block.id == WHOLE)
			whole = true;
		else
			part = true;
	}
	if (!whole)
		write_replica(WHOLE, WHOLE_LEN, true);
	if (!part)
		write_replica(PART, PART_LEN, false);
}

/* ---- set up ---- */

static void clean_up(void)
{
	char cmd[96];

	buffers_fini(&core);
	reactor_free(r);
	pool_free(pool);
	store_close(dn.store);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	(void)!system(cmd);
}

static void make_core(void)
{
	const struct reactor_opts ro = {.name = "fuzz"};
	const struct pool_opts po = {.count = {64, 32, 8, 8, 8}};
	struct err err = ERR_INIT;

	MUST(!reactor_new(&ro, &r, &err) && !pool_new(&po, &pool, &err));
	core = (struct engine_core){
		.dn = &dn,
		.reactor = r,
		.pool = pool,
		.moves = &moves,
		.suspects = &suspects,
		.waits = {60 * NS_PER_S, 60 * NS_PER_S, 4 * NS_PER_S, 30 * NS_PER_S}};
	list_init(&core.reads);
	list_init(&core.writes);
	list_init(&core.entries);
	list_init(&core.conns);
	list_init(&core.idle);
	list_init(&core.rebuilds);
	list_init(&core.rebuilds_waiting);
	buffers_init(&core);
	suspects_init(&suspects);
	core.read_direct = true;
	dn.live.max_moves = 4;
}

static void make(void)
{
	const struct store_volume_opts vol = {.path = dir, .type = STORAGE_DISK};
	const struct store_opts so = {.volumes = &vol, .volume_count = 1};
	const struct store_namespace ns = {
		.pool_id = POOL_TEXT, .cluster_id = "CID-1", .namespace_id = 1, .ctime = 1};
	const struct xlistener_opts lo = {.accepted = hop_accepted};
	const struct fake_opts fo = {.seed = 1};
	struct xlistener *l;
	struct err err = ERR_INIT;

	log_init("fuzz", LOG_ERROR);
	/* its first use by a thread that ends is a leak */
	(void)OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL);
	snprintf(dir, sizeof(dir), "%s/fuzz-dt-session-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	MUST(mkdtemp(dir));
	make_core();
	MUST(!store_open(&so, &dn.store, &err) && !store_attach(dn.store, &ns, &bp, &err));
	(void)reactor_register_pool(r, pool, &err);
	MUST(!fake_listen(r, &fo, &lo, &hop_addr, &l));
	for (uint32_t i = 0; i < DATA_MAX; i++)
		block_data[i] = (uint8_t)((i * 7 + 3) % 251);
	restore();
	atexit(clean_up);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rd in = rd_init(data, size);
	uint8_t how;

	if (!r)
		make();
	hop_count = hops_called = 0;
	memset(hops, 0, sizeof(hops));
	stream = wr_init(stream_room, sizeof(stream_room));
	how = rd_u8(&in);
	for (int i = 0; i < STEPS_MAX && rd_left(&in); i++)
		step(&in);
	send_stream(how);
	restore();
	return 0;
}
