/* SPDX-License-Identifier: Apache-2.0 */
/* A source by RDMA must hold, whatever the node does (late answers, errors, nonsense, wrong bytes,
 * silence, a connection that is refused or breaks while the node still writes): the asker gets the
 * bytes in order and right, by TCP where RDMA cannot go on, or hears why not; and nothing may write
 * to its slots once the source is over. */

#include "common/base/crc.h"
#include "datanode/block/source.h"
#include "datanode/capsule/capsule_internal.h"
#include "datanode/dtp/dtp_internal.h"

#include "datanode/block/engine_test_fixture.h"

#define DATA_LEN 900000u
#define REQUESTS_MAX 8
#define ROUNDS 60

static uint8_t data[DATA_LEN];
static uint64_t rnd = 1;
static uint32_t bpc;

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

/* ---- the node, and the connection to it ---- */

enum fault { GOOD, NO_RDMA, REFUSED, BREAKS, SAYS_ERROR, NONSENSE, BAD_CRC, SILENT, FAULTS };

struct request {
	bool named; /* we may write to its memory */
	bool dead;  /* never answered */
	uint64_t id, off, len;
	struct capsule_mem dest, crc;
};

static struct node {
	struct capsule_user *user;
	struct rtimer timer;
	struct capsule_peer_link link;
	enum fault fault;
	uint32_t fault_at, answered; /* requests */
	bool up, lost, gone;
	uint64_t last_id;
	struct request requests[REQUESTS_MAX];
} node;

/* ---- memory windows: the node may write to what is open ---- */

static struct window {
	struct verbs_exposure *e; /* NULL: it is to be closed */
	struct slot *slot;        /* counted; NULL: not used */
	uint32_t off, len;
	void (*closed)(void *arg, int res);
	void *arg;
} windows[2 * SOURCE_SLOTS];
static bool by_windows;
static uint32_t dry;       /* times that none is spare */
static bool writes_behind; /* the node does, its answer */

static void node_again(void)
{
	reactor_timer_set(r, &node.timer, reactor_now_ns(r) + random_below(100000));
}

int capsule_user_join(struct capsule_port *caps, const struct dn_target *at, struct capsule_user *u)
{
	(void)caps, (void)at;
	if (node.fault == NO_RDMA)
		return -EHOSTUNREACH;
	u->dial = (struct capsule_dial *)&node;
	node.user = u;
	node.link.xc = (struct xconn *)&node;
	node_again();
	return 0;
}

void capsule_user_leave(struct capsule_user *u)
{
	if (u->dial)
		node.user = NULL;
	u->dial = NULL;
}

struct capsule_peer_link *capsule_user_link(const struct capsule_user *u)
{
	return u->dial && !node.lost ? &node.link : NULL;
}

bool capsule_user_is_up(const struct capsule_user *u)
{
	return u->dial && node.up;
}

uint64_t capsule_user_id(struct capsule_user *u)
{
	(void)u;
	return ++node.last_id;
}

static void node_answer(struct request *q);

/* What was answered before the connection failed is heard behind that, while the device writes. */
static void answers_that_come_late(void)
{
	for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
		struct request *q = &node.requests[i];

		if (!by_windows || !q->named || q->dead || random_below(2))
			continue;
		node_answer(q);
		q->named = true;
	}
}

static void node_lose(void)
{
	if (node.lost)
		return;
	for (uint32_t i = 0; i < 2 * SOURCE_SLOTS; i++)
		if (windows[i].slot && windows[i].e) {
			windows[i].e->window = NULL;
			windows[i].e = NULL;
		}
	answers_that_come_late();
	node.lost = true;
	if (node.user)
		node.user->ops->lost(node.user, -ECONNRESET);
}

void capsule_user_hang_up(struct capsule_user *u, int rc)
{
	(void)u, (void)rc;
	node_lose();
}

int verbs_expose(struct xconn *c, struct verbs_exposure *e, struct xremote *ret)
{
	struct window *w = windows;

	(void)c;
	assert_int_equal(e->right, VERBS_PEER_WRITES);
	*ret = (struct xremote){.addr = (uintptr_t)e->slot->data + e->off, .rkey = 7};
	if (!by_windows)
		return 0;
	while (w->slot)
		assert_true(++w < windows + 2 * SOURCE_SLOTS);
	*w = (struct window){e, slot_ref(e->slot), e->off, e->len, e->closed, e->arg};
	e->window = (struct verbs_window *)w;
	return 0;
}

void verbs_cover(struct verbs_exposure *e, bool now)
{
	struct window *w = (struct window *)e->window;

	if (!w)
		return;
	assert_true(now); /* the bytes are checked when it is closed */
	e->window = NULL;
	w->e = NULL;
}

bool verbs_turn_take(struct xconn *c, struct verbs_turn *t)
{
	(void)c;
	if (dry && random_below(2)) {
		dry--;
		return false;
	}
	t->on = (struct vmemory_on *)t;
	return true;
}

void verbs_turn_end(struct verbs_turn *t)
{
	t->on = NULL;
}

void verbs_turn_wait(struct xconn *c, struct verbs_turn *t)
{
	(void)c, (void)t;
	fail(); /* TCP does as well */
}

bool verbs_has_its_share(const struct xconn *c)
{
	(void)c;
	return false;
}

static bool is_open(uint64_t addr)
{
	for (uint32_t i = 0; i < 2 * SOURCE_SLOTS; i++)
		if (windows[i].slot && addr - (uintptr_t)windows[i].slot->data < windows[i].len)
			return true;
	return !by_windows;
}

/* Some that are to be closed, or, with @res, all. What was written until then lies there. */
static void windows_close(int res)
{
	for (uint32_t i = 0; i < 2 * SOURCE_SLOTS; i++) {
		struct window w = windows[i];

		if (!w.slot || (!res && (w.e || random_below(2))))
			continue;
		if (writes_behind && by_windows)
			w.slot->data[0] ^= 1;
		windows[i].slot = NULL;
		if (w.e)
			w.e->window = NULL;
		slot_put(w.slot);
		if (w.closed)
			w.closed(w.arg, res);
	}
}

/* The message is its offset and length, as our dtp_read_op_encode() writes it. */
int link_send(struct capsule_peer_link *l, const struct capsule *m)
{
	assert_ptr_equal(l, &node.link);
	for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
		struct request *q = &node.requests[i];

		if (m->type == CAPSULE_CANCEL && q->named && q->id == m->request_id &&
		    node.fault != SILENT)
			q->dead = false; /* answers it as it would have */
		if (m->type != CAPSULE_READ || q->named)
			continue;
		*q = (struct request){.named = true,
				      .id = m->request_id,
				      .dest = m->read.dest,
				      .crc = m->read.crc,
				      .dead = node.fault == SILENT &&
					      node.answered >= node.fault_at};
		memcpy(&q->off, m->read.op.p, 8);
		memcpy(&q->len, (const uint8_t *)m->read.op.p + 8, 8);
		return 0;
	}
	assert_int_equal(m->type, CAPSULE_CANCEL);
	return 0;
}

int dtp_read_op_encode(struct engine_core *c, const struct source_params *p, uint8_t **ret,
		       size_t *ret_len)
{
	uint8_t *b = malloc(20);

	(void)c;
	memcpy(b, "\0\34\121\20", 4); /* version, opcode, length */
	memcpy(b + 4, &p->off, 8);
	memcpy(b + 12, &p->len, 8);
	*ret = b;
	*ret_len = 20;
	return 0;
}

static uint64_t up(uint64_t at)
{
	const uint64_t to = (at + bpc - 1) / bpc * bpc;

	return to < DATA_LEN ? to : DATA_LEN;
}

static void node_answer(struct request *q)
{
	const bool bad = node.answered++ >= node.fault_at;
	const uint64_t first = q->off / bpc * bpc, end = up(q->off + q->len);
	const size_t crc_len = crc_bytes(CRC_CRC32C, end - first, bpc);
	struct capsule m = {.type = CAPSULE_READ_REPLY, .request_id = q->id};

	m.read_reply.crc_type = CRC_CRC32C;
	m.read_reply.bytes_per_checksum = bpc;
	m.read_reply.chunk_offset = first;
	m.read_reply.data_len = (uint32_t)(end - first);
	m.read_reply.crc_len = (uint32_t)crc_len;
	if (end - first > q->dest.len || crc_len > q->crc.len) {
		m.read_reply.status = DT_ERROR_UNSUPPORTED;
	} else if (bad && node.fault == SAYS_ERROR) {
		m.read_reply.status = DT_ERROR;
		m.read_reply.text = capsule_text("its disk is gone");
	} else {
		assert_true(is_open(q->dest.addr) && is_open(q->crc.addr));
		memcpy((void *)(uintptr_t)q->dest.addr, data + first, end - first);
		crc_chunks(CRC_CRC32C, data + first, end - first, bpc,
			   (void *)(uintptr_t)q->crc.addr);
	}
	if (bad && node.fault == BAD_CRC)
		*(uint8_t *)(uintptr_t)q->dest.addr ^= 4;
	if (bad && node.fault == NONSENSE) {
		const uint32_t what = random_below(4);

		m.read_reply.data_len -= what == 0 ? m.read_reply.data_len / 2 + 1 : 0;
		m.read_reply.crc_len += what == 1 ? 4 : 0;
		m.read_reply.chunk_offset += what == 2 ? bpc : 0;
		m.read_reply.bytes_per_checksum = what == 3 ? 0 : bpc;
	}
	q->named = false;
	if (node.user)
		(void)node.user->ops->answer(node.user, &m);
}

static void node_fire(struct rtimer *t)
{
	struct request *q = &node.requests[random_below(REQUESTS_MAX)];

	(void)t;
	if (!node.lost)
		windows_close(0);
	if (node.lost) { /* the device writes until the queue pair is gone */
		for (uint32_t i = 0; i < REQUESTS_MAX; i++)
			if (node.requests[i].named)
				memset((void *)(uintptr_t)node.requests[i].dest.addr, 0xee,
				       node.requests[i].dest.len);
		node.gone = random_below(3) == 0;
		for (uint32_t i = 0; node.gone && i < REQUESTS_MAX; i++)
			node.requests[i].named = false;
		if (node.gone)
			windows_close(-ECONNRESET);
		if (node.gone && node.user) {
			struct capsule_user *u = node.user;

			capsule_user_leave(u);
			u->ops->gone(u);
		}
	} else if (!node.up && node.fault == REFUSED) {
		node_lose();
	} else if (!node.up) {
		node.up = true;
		if (node.user)
			node.user->ops->up(node.user);
	} else if (node.fault == BREAKS && node.answered >= node.fault_at) {
		node_lose();
	} else if (q->named && !q->dead) {
		node_answer(q);
	}
	if (!node.gone)
		node_again();
}

/* ---- a stream source, which always works ---- */

static struct stream {
	struct piece_source base;
	struct read_sink *sink;
	struct source_params params;
	struct rtimer timer;
	struct piece p;
	bool used, opened, closed;
	uint64_t at;
} stream;
static uint32_t streams;

static void stream_fire(struct rtimer *t)
{
	const uint64_t end = up(stream.params.off + stream.params.len);
	const struct read_info info = {.crc_type = CRC_CRC32C,
				       .bytes_per_crc = bpc,
				       .first = stream.at,
				       .end = stream.params.off + stream.params.len};
	uint32_t len = stream.params.slots[0]->size;

	(void)t;
	if ((stream.closed || stream.at >= end) && !stream.used) {
		core.op_count--;
		stream.sink->ops->ended(stream.sink, stream.at >= end ? 0 : -ECANCELED);
		return;
	}
	if (!stream.opened) {
		stream.opened = true;
		stream.sink->ops->opened(stream.sink, 0, &info, NULL);
	} else if (!stream.used && !stream.closed) {
		len = len < end - stream.at ? len : (uint32_t)(end - stream.at);
		memcpy(stream.params.slots[0]->data, data + stream.at, len);
		stream.p = (struct piece){
			.off = stream.at, .len = len, .slot = stream.params.slots[0]};
		list_init(&stream.p.link);
		stream.used = true;
		stream.at += len;
		stream.sink->ops->piece(stream.sink, &stream.p);
	}
	reactor_timer_set(r, &stream.timer, reactor_now_ns(r) + random_below(50000));
}

static void stream_sent(struct piece_source *s, struct piece *p)
{
	(void)s;
	assert_ptr_equal(p, &stream.p);
	stream.used = false;
}

static void stream_close(struct piece_source *s)
{
	(void)s;
	stream.closed = true;
}

static const struct piece_source_ops stream_ops = {.sent = stream_sent, .close = stream_close};

int stream_source_open(struct engine_core *c, const struct source_params *params,
		       struct read_sink *sink, struct piece_source **ret)
{
	for (uint32_t i = 0; i < REQUESTS_MAX; i++)
		assert_false(node.requests[i].named); /* the slots are nobody else's */
	stream = (struct stream){.base.ops = &stream_ops,
				 .sink = sink,
				 .params = *params,
				 .at = params->off / bpc * bpc,
				 .timer.fire = stream_fire};
	streams++;
	c->op_count++;
	reactor_timer_set(r, &stream.timer, reactor_now_ns(r) + 1000);
	*ret = &stream.base;
	return 0;
}

/* ---- the asker ---- */

static struct asker {
	struct read_sink sink;
	struct piece_source *src;
	struct rtimer timer;
	struct list pieces;
	uint64_t off, len, at, close_at;
	bool opened, ended, closed;
	int rc;
	char text[ERR_TEXT_MAX];
} asker;

static void on_opened(struct read_sink *s, int rc, const struct read_info *info,
		      const struct err *err)
{
	(void)s;
	assert_false(asker.opened);
	asker.opened = true;
	if (rc < 0) {
		snprintf(asker.text, sizeof(asker.text), "%s", err->text);
		return;
	}
	assert_int_equal(info->first, asker.off / bpc * bpc);
	assert_int_equal(info->bytes_per_crc, bpc);
	asker.at = info->first;
}

static void on_piece(struct read_sink *s, struct piece *p)
{
	(void)s;
	assert_true(asker.opened && !asker.ended);
	list_add_tail(&asker.pieces, &p->link);
}

static void on_ended(struct read_sink *s, int rc)
{
	(void)s;
	assert_true(list_empty(&asker.pieces));
	asker.ended = true;
	asker.rc = rc;
	for (uint32_t i = 0; i < REQUESTS_MAX; i++)
		assert_false(node.requests[i].named);
}

static const struct read_sink_ops asker_ops = {
	.opened = on_opened, .piece = on_piece, .ended = on_ended};

/* Looks at a piece some time after it has come: it must be what it was. */
static void asker_fire(struct rtimer *t)
{
	if (!list_empty(&asker.pieces) && random_below(2)) {
		struct piece *p = container_of(list_pop(&asker.pieces), struct piece, link);

		assert_int_equal(p->off, asker.at);
		assert_memory_equal(p->slot->data + p->slot_off, data + p->off, p->len);
		asker.at += p->len;
		asker.src->ops->sent(asker.src, p);
	}
	if (!asker.ended && !asker.closed && asker.at >= asker.close_at) {
		asker.closed = true;
		asker.src->ops->close(asker.src);
	}
	if (!asker.ended)
		reactor_timer_set(r, t, reactor_now_ns(r) + random_below(50000));
	else
		reactor_stop(r);
}

/* ---- a run ---- */

static int run(enum fault fault, uint64_t close_at)
{
	struct dn_target at = {.ip = "10.0.0.1", .xfer_port = 9866};
	struct source_params p = {.block = {-1024, 1001, DATA_LEN}, .at = &at};

	node = (struct node){.fault = fault, .fault_at = random_below(4), .timer.fire = node_fire};
	asker = (struct asker){.sink = {.ops = &asker_ops, .peer = "test"},
			       .timer.fire = asker_fire,
			       .close_at = close_at};
	list_init(&asker.pieces);
	streams = 0;
	by_windows = random_below(4);
	p.off = asker.off = random_below(2) ? 0 : (uint64_t)random_below(100000);
	p.len = asker.len =
		random_below(2) ? DATA_LEN - p.off : 1 + random_below((uint32_t)(DATA_LEN - p.off));
	for (uint32_t i = 0; i < SOURCE_SLOTS; i++) {
		p.slots[i] = pool_get(pool, SLOT_256K, POOL_CTRL);
		p.crc_slots[i] = pool_get(pool, SLOT_8K, POOL_CTRL);
	}
	assert_int_equal(source_open(&core, &p, &asker.sink, &asker.src), 0);
	reactor_timer_set(r, &asker.timer, reactor_now_ns(r) + 1000);
	for (int i = 0; i < 2000 && (!asker.ended || core.op_count); i++)
		fix_run(20);
	assert_true(asker.ended && asker.opened + asker.closed);
	assert_int_equal(core.op_count, 0);
	reactor_timer_clear(r, &node.timer);
	reactor_timer_clear(r, &asker.timer);
	for (uint32_t i = 0; i < SOURCE_SLOTS; i++) {
		slot_put(p.slots[i]);
		slot_put(p.crc_slots[i]);
	}
	assert_int_equal(pool_slots_out(pool), 0);
	assert_true(asker.rc || asker.at == up(asker.off + asker.len));
	return asker.rc;
}

static void some_chunks(void)
{
	/* the last two do not fit the slots */
	static const uint32_t sizes[] = {512, 1000, 4096, 65536, 300000, 16};

	bpc = sizes[random_below(6)];
}

/* ---- tests ---- */

static void bytes_come_by_rdma(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < ROUNDS; seed++) {
		rnd = seed * 17 + 1;
		some_chunks();
		assert_int_equal(run(GOOD, UINT64_MAX), 0);
		assert_true(streams == 0 || bpc == 300000 || bpc == 16);
	}
}

static void where_rdma_cannot_go_tcp_goes_on(void **state)
{
	static const enum fault faults[] = {NO_RDMA, REFUSED, BREAKS};

	(void)state;
	for (uint64_t seed = 0; seed < ROUNDS; seed++) {
		rnd = seed * 19 + 1;
		some_chunks();
		assert_int_equal(run(faults[seed % 3], UINT64_MAX), 0);
		assert_true(streams <= 1 && (streams || faults[seed % 3] == BREAKS));
	}
}

/* What a lying node writes behind its answer is there before the bytes are checked, or nowhere. */
static void bytes_are_checked_when_the_node_can_write_no_more(void **state)
{
	uint32_t failed = 0;

	(void)state;
	for (uint64_t seed = 0; seed < ROUNDS; seed++) {
		rnd = seed * 31 + 1;
		bpc = 512;
		writes_behind = true;
		if (run(GOOD, UINT64_MAX) < 0 && by_windows) {
			assert_int_equal(asker.rc, -EBADMSG);
			failed++;
		}
		writes_behind = false;
	}
	assert_true(failed > ROUNDS / 4);
}

static void a_source_that_finds_no_window_goes_on_by_tcp(void **state)
{
	uint32_t by_tcp = 0;

	(void)state;
	for (uint64_t seed = 0; seed < ROUNDS; seed++) {
		rnd = seed * 37 + 1;
		some_chunks();
		dry = 3;
		assert_int_equal(run(GOOD, UINT64_MAX), 0);
		by_tcp += streams;
	}
	dry = 0;
	assert_true(by_tcp > ROUNDS / 4 && by_tcp < ROUNDS);
}

static void a_node_that_lies_or_fails_is_no_source(void **state)
{
	static const enum fault faults[] = {SAYS_ERROR, NONSENSE, BAD_CRC};
	static const int rcs[] = {-EIO, -EPROTO, -EBADMSG};
	uint32_t failed = 0;

	(void)state;
	for (uint64_t seed = 0; seed < ROUNDS; seed++) {
		rnd = seed * 23 + 1;
		bpc = 512;
		if (run(faults[seed % 3], UINT64_MAX) == 0)
			continue; /* over before the fault */
		assert_int_equal(asker.rc, rcs[seed % 3]);
		failed++;
	}
	assert_true(failed > ROUNDS / 4);
}

/* It does not answer CANCEL either: the connection is ended for that. */
static void a_silent_node_does_not_keep_the_slots(void **state)
{
	(void)state;
	core.waits.read_ns = 20 * NS_PER_MS;
	rnd = bpc = 512;
	do /* until the fault is met, and no slow machine alone */
		(void)run(SILENT, UINT64_MAX);
	while (asker.rc == 0 || !node.gone);
	core.waits.read_ns = 60 * NS_PER_S;
	assert_int_equal(asker.rc, -ETIMEDOUT);
}

static void an_asker_may_stop_at_any_time(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 2 * ROUNDS; seed++) {
		enum fault f;

		rnd = seed * 29 + 1;
		some_chunks();
		do
			f = (enum fault)random_below(FAULTS);
		while (f == SILENT); /* costs seconds: the deadline of a CANCEL */
		(void)run(f, random_below(3) ? random_below(DATA_LEN) : 0);
	}
}

static int setup(void **state)
{
	const struct pool_opts po = {.count = {16, 0, 16, 0}};

	(void)state;
	fix_setup("source_test", &po);
	core.caps = (struct capsule_port *)&node;
	for (uint32_t i = 0; i < DATA_LEN; i++)
		data[i] = (uint8_t)((i * 7 + i / 1000) % 251);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return fix_teardown(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_come_by_rdma),
		cmocka_unit_test(where_rdma_cannot_go_tcp_goes_on),
		cmocka_unit_test(bytes_are_checked_when_the_node_can_write_no_more),
		cmocka_unit_test(a_source_that_finds_no_window_goes_on_by_tcp),
		cmocka_unit_test(a_node_that_lies_or_fails_is_no_source),
		cmocka_unit_test(a_silent_node_does_not_keep_the_slots),
		cmocka_unit_test(an_asker_may_stop_at_any_time),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
