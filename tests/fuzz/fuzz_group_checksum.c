/* SPDX-License-Identifier: Apache-2.0 */
/* BLOCK_GROUP_CHECKSUM, as a client asks it, and what the nodes answer that are asked in turn:
 * @data is the length of the question (be16), an OpBlockGroupChecksumProto, then answers: a byte
 * that says what becomes of it, length (be16), a BlockOpResponseProto. Units that nobody gives are
 * "rebuilt" into zeros. The connection always gets an answer, and ends. */
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/cursor.h"
#include "common/base/log.h"
#include "common/transport/fake.h"
#include "datanode/dtp/dtp_call.h"
#include "datanode/dtp/dtp_internal.h"
#include "datanode/reconstruct/reconstruct.h"
#include "tests/fuzz/fuzz.h"

#define POOL_TEXT "BP-1"
#define REBUILT_MAX (1u << 20) /* bytes of a unit that is made here */
#define PATIENCE_MS 20000

static struct reactor *r;
static struct pool *pool;
static struct block_pool *bp;
static struct dn dn;
static struct engine_core core;
static struct rd answers;
static char dir[] = "/tmp/fuzz-group-checksum-XXXXXX";

static struct peer {
	struct xconn *c;
	struct xop send_op, recv_op;
	bool sending, receiving, answered;
	uint8_t in[4096];
} peer;

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

/* ---- another node ---- */

struct ask {
	struct rtimer timer;
	struct dtp_call *call;
};

static void on_asked(struct rtimer *t)
{
	struct ask *a = container_of(t, struct ask, timer);
	struct dtp_call *c = a->call;
	const uint8_t kind = rd_u8(&answers);
	const size_t want = rd_be16(&answers),
		     n = want < rd_left(&answers) ? want : rd_left(&answers);
	const uint8_t *p = rd_bytes(&answers, n);
	Hd__BlockOpResponseProto *m = NULL;

	free(a);
	if (!c->rc && (kind % 4 == 3 || answers.bad))
		c->rc = -ECONNRESET;
	if (!c->rc && pb_unpack(&hd__block_op_response_proto__descriptor, p, n, &m))
		c->rc = -EPROTO;
	if (c->rc < 0)
		(void)err_set(&c->err, c->rc, "no answer");
	c->done(c, m);
	pb_free(m);
}

int dtp_call_start(struct dtp_call *c, struct engine_core *to, const struct dtp_call_params *p,
		   void (*done)(struct dtp_call *c, const Hd__BlockOpResponseProto *answer))
{
	struct ask *a = calloc(1, sizeof(*a));

	MUST(a && p->op_len > DT_OP_HEADER_LEN && strlen(p->to->ip) < sizeof(p->to->ip));
	free(p->op);
	*c = (struct dtp_call){.core = to, .done = done};
	*a = (struct ask){.timer.fire = on_asked, .call = c};
	reactor_timer_set(to->reactor, &a->timer, reactor_now_ns(to->reactor));
	return 0;
}

void dtp_call_cancel(struct dtp_call *c)
{
	c->rc = -ECANCELED;
}

/* ---- a unit that is rebuilt ---- */

struct making {
	struct rtimer timer;
	struct reconstruct_params p;
};

void reconstruct_params_fini(struct reconstruct_params *p)
{
	free(p->sources);
	free(p->targets);
	*p = (struct reconstruct_params){0};
}

static void on_made(struct rtimer *t)
{
	static const uint8_t zeros[REBUILD_WINDOW];
	struct making *m = container_of(t, struct making, timer);
	const uint8_t kind = rd_u8(&answers);
	static const uint32_t bpcs[] = {512, 1, 4096, REBUILD_WINDOW};
	struct err err = ERR_INIT;
	int rc = kind % 4 == 3 || m->p.limit > REBUILT_MAX
			 ? err_set(&err, -EIO, "too few units are left")
			 : 0;

	for (uint64_t at = 0; rc == 0 && at < m->p.limit; at += REBUILD_WINDOW) {
		const uint64_t left = m->p.limit - at;

		m->p.taker->bytes(m->p.taker, zeros,
				  left < REBUILD_WINDOW ? (uint32_t)left : REBUILD_WINDOW,
				  kind & 8 ? CRC_CRC32 : CRC_CRC32C, bpcs[kind >> 4 & 3]);
	}
	m->p.done(m->p.arg, rc, &err);
	reconstruct_params_fini(&m->p);
	free(m);
}

int reconstruct_open(struct engine_core *c, struct reconstruct_params *p, struct err *err)
{
	struct making *m;

	MUST(p->taker && p->target_count == 1 && p->targets[0].unit < p->policy.k &&
	     p->source_count < EC_UNITS_MAX + 1);
	for (uint32_t i = 0; i < p->source_count; i++)
		MUST(p->sources[i].unit != p->targets[0].unit && p->sources[i].unit < EC_UNITS_MAX);
	MUST(p->limit <= ec_unit_length(&p->policy, p->group.len, p->targets[0].unit));
	if (rd_left(&answers) % 16 == 15) {
		reconstruct_params_fini(p);
		return err_set(err, -EBUSY, "too many wait");
	}
	m = calloc(1, sizeof(*m));
	MUST(m);
	*m = (struct making){.timer.fire = on_made, .p = *p};
	*p = (struct reconstruct_params){0};
	reactor_timer_set(c->reactor, &m->timer, reactor_now_ns(c->reactor));
	return 0;
}

/* ---- the client ---- */

static void on_sent(struct xop *op, int res)
{
	(void)op, (void)res;
	peer.sending = false;
}

static void on_received(struct xop *op, int res)
{
	(void)op;
	peer.receiving = false;
	peer.answered = peer.answered || res > 0;
	xconn_close(peer.c);
	reactor_stop(r);
}

static void give_up(struct rtimer *t)
{
	(void)t;
	reactor_stop(r);
}

static void run(uint64_t ms)
{
	struct rtimer t = {.fire = give_up};

	reactor_timer_set(r, &t, clock_mono_ns() + ms * NS_PER_MS);
	MUST(!reactor_run(r));
	reactor_timer_clear(r, &t);
}

static void ask(const uint8_t *op, size_t len)
{
	const struct fake_opts o = {.seed = 1};
	struct iovec iov = {(void *)(uintptr_t)op, len};
	struct xconn *ends[2];

	peer = (struct peer){.sending = true,
			     .receiving = true,
			     .send_op.done = on_sent,
			     .recv_op.done = on_received};
	MUST(!fake_pair(r, &o, ends));
	peer.c = ends[1];
	dtp_accept(&core, ends[0]);
	xconn_send(peer.c, &iov, 1, &peer.send_op);
	xconn_recv(peer.c, peer.in, sizeof(peer.in), &peer.recv_op);
	for (uint64_t ms = 0;
	     (peer.receiving || peer.sending || core.conn_count) && ms < PATIENCE_MS; ms++)
		run(peer.receiving ? PATIENCE_MS : 1);
	MUST(peer.answered && !core.conn_count && !peer.sending && !pool_slots_out(pool));
}

/* ---- set up ---- */

static void clean_up(void)
{
	char cmd[64];

	reactor_free(r);
	pool_free(pool);
	store_close(dn.store);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	(void)!system(cmd);
}

static void make(void)
{
	const struct reactor_opts ro = {.name = "fuzz"};
	const struct pool_opts po = {.count = {[SLOT_8K] = 8, [SLOT_64K] = 8}};
	const struct store_namespace ns = {
		.pool_id = POOL_TEXT, .cluster_id = "CID-1", .namespace_id = 1, .ctime = 1};
	struct store_volume_opts vol = {.type = STORAGE_DISK};
	struct store_opts so = {.volumes = &vol, .volume_count = 1};
	struct err err = ERR_INIT;

	log_init("fuzz", LOG_ERROR);
	MUST(mkdtemp(dir));
	vol.path = dir;
	MUST(!reactor_new(&ro, &r, &err) && !pool_new(&po, &pool, &err));
	core = (struct engine_core){.dn = &dn,
				    .reactor = r,
				    .pool = pool,
				    .waits = {60 * NS_PER_S, 60 * NS_PER_S, 4 * NS_PER_S}};
	list_init(&core.writes);
	list_init(&core.conns);
	list_init(&core.idle);
	list_init(&core.rebuilds_waiting);
	MUST(!store_open(&so, &dn.store, &err) && !store_attach(dn.store, &ns, &bp, &err));
	atexit(clean_up);
}

/* Unknown fields are kept as they came, and may not be what they were when others are written
 * before them: then it is no operation, and the connection ends without an answer. */
static bool is_op(const uint8_t *op, size_t len)
{
	uint32_t prefix;
	const ssize_t all = dt_delim_need(op + DT_OP_HEADER_LEN, len - DT_OP_HEADER_LEN,
					  DT_MESSAGE_MAX, &prefix);
	void *m;

	if (all < 0 || pb_unpack(dt_op_desc(DT_BLOCK_GROUP_CHECKSUM),
				 op + DT_OP_HEADER_LEN + prefix, (size_t)all - prefix, &m))
		return false;
	pb_free(m);
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Hd__OpBlockGroupChecksumProto *m;
	Hd__ExtendedBlockProto *b;
	uint8_t *op;
	size_t len;

	if (!r)
		make();
	answers = rd_init(data, size);
	len = rd_be16(&answers);
	if (answers.bad || len > rd_left(&answers))
		return 0;
	data = rd_bytes(&answers, len);
	if (pb_unpack(&hd__op_block_group_checksum_proto__descriptor, data, len, &m))
		return 0;
	b = m->header->block; /* the recordings are of another pool */
	if (!strncmp(b->poolid, "BP-", 3)) {
		free(b->poolid);
		b->poolid = strdup(POOL_TEXT);
	}
	MUST(!dt_op_encode(DT_BLOCK_GROUP_CHECKSUM, m, &op, &len));
	pb_free(m);
	if (is_op(op, len))
		ask(op, len);
	free(op);
	return 0;
}
