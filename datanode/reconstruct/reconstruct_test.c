/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold, whatever sources and targets do (any cut of the bytes, failures at any place, silence,
 * wrong bytes with good CRCs, gaps, CRCs of another kind): a target that is told of the end has
 * every byte of its unit, exactly; what fails fails with a sentence; every slot comes back. */
#include <poll.h>
#include <unistd.h>

#include "common/erasure/coder.h"
#include "common/wire/dt.h"
#include "datanode/block/moves.h"
#include "datanode/block/sink.h"
#include "datanode/block/source.h"
#include "datanode/block/token.h"
#include "datanode/reconstruct/reconstruct.h"

#include "datanode/block/engine_test_fixture.h"

#define UNIT_MAX (3u << 17) /* bytes of a unit */
#define BPC 512u

static struct moves moves;
static char dir[] = "/tmp/rebuild_test.XXXXXX";
static uint64_t rnd = 1;

static struct ec_policy policy;
static struct block group = {.id = -1024, .gs = 1001};
static uint8_t *units[EC_UNITS_MAX];

static uint32_t random_below(uint32_t n)
{
	rnd = rnd * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(rnd >> 33) % n;
}

static uint32_t unit_len(unsigned int u)
{
	return (uint32_t)ec_unit_length(&policy, group.len, u);
}

/* ---- sources: a unit of `units`, as well as its fault lets it ---- */

enum fault {
	GOOD,
	ABSENT,
	DIES,
	BAD_CRC,
	SILENT,
	GAP,
	OTHER_CRCS,
	WRONG_BYTES,
	WRONG_END,
	SOURCE_FAULTS
};

static enum fault source_fault[EC_UNITS_MAX];

/* One of the sources is a replica of the rebuilding node itself; what its store says of it. */
static struct {
	bool there;
	unsigned int unit;
	int64_t gs, len; /* beyond what was ordered */
	enum replica_state state;
} own_replica;

struct fake_source {
	struct piece_source base;
	struct read_sink *sink;
	struct rtimer timer;
	struct source_params params;
	struct slot own_slots[SOURCE_SLOTS]; /* of a replica here: the store's */
	enum fault fault;
	unsigned int unit;
	uint64_t at, end, fault_at;
	struct piece pieces[SOURCE_SLOTS];
	bool used[SOURCE_SLOTS];
	bool opened, closed;
	int rc;
};

static void fs_again(struct fake_source *s)
{
	reactor_timer_set(r, &s->timer, reactor_now_ns(r) + random_below(50000));
}

static bool fs_out(const struct fake_source *s)
{
	return s->used[0] || s->used[1];
}

static void fs_open(struct fake_source *s)
{
	struct read_info info = {.crc_type = CRC_CRC32C,
				 .bytes_per_crc = BPC,
				 .block = s->params.block,
				 .state = REPLICA_FINALIZED};
	struct err err = ERR_INIT;

	s->opened = true;
	if (s->fault == ABSENT) {
		s->rc = err_set(&err, -ENOENT, "no such unit");
		s->sink->ops->opened(s->sink, s->rc, NULL, &err);
		return;
	}
	if (!s->params.at) {
		info.block.gs += own_replica.gs;
		info.block.len += own_replica.len;
		info.state = own_replica.state;
	}
	if (s->fault == OTHER_CRCS)
		info.bytes_per_crc = 2 * BPC;
	info.first = s->at;
	info.end = s->end;
	s->sink->ops->opened(s->sink, 0, &info, NULL);
}

static void fs_piece(struct fake_source *s)
{
	const unsigned int i = s->used[0] ? 1 : 0;
	struct slot *slot = s->params.slots[i];
	uint32_t len = (1 + random_below(slot->size / BPC)) * BPC;

	if (s->fault != GOOD && s->at >= s->fault_at) {
		if (s->fault == DIES)
			s->rc = -ECONNRESET;
		if (s->fault == BAD_CRC)
			s->rc = -EBADMSG;
		if (s->fault == SILENT || s->rc)
			return;
		if (s->fault == GAP && s->end - s->at > BPC) {
			s->at += BPC;
			s->fault_at = UINT64_MAX;
		}
	}
	if (len > s->end - s->at)
		len = (uint32_t)(s->end - s->at);
	memcpy(slot->data, units[s->unit] + s->at, len);
	if (s->fault == WRONG_BYTES)
		slot->data[random_below(len)] ^= 1;
	if (s->fault == WRONG_END && s->at + len == unit_len(s->unit))
		slot->data[len - 1] ^= 1;
	s->pieces[i] = (struct piece){.off = s->at, .len = len, .slot = slot};
	list_init(&s->pieces[i].link);
	s->used[i] = true;
	s->at += len;
	s->sink->ops->piece(s->sink, &s->pieces[i]);
}

static void fs_fire(struct rtimer *t)
{
	struct fake_source *s = container_of(t, struct fake_source, timer);

	if (!s->rc && !s->closed && !s->opened)
		fs_open(s);
	else if (!s->rc && !s->closed && s->at < s->end && !(s->used[0] && s->used[1]))
		fs_piece(s);
	if ((s->rc || s->closed || s->at >= s->end) && s->opened + s->closed && !fs_out(s)) {
		core.op_count--;
		s->sink->ops->ended(s->sink, s->rc                         ? s->rc
					     : s->closed && s->at < s->end ? -ECANCELED
									   : 0);
		for (unsigned int i = 0; i < SOURCE_SLOTS; i++)
			free(s->own_slots[i].data);
		free(s);
		return;
	}
	fs_again(s);
}

static void fs_sent(struct piece_source *base, struct piece *p)
{
	struct fake_source *s = container_of(base, struct fake_source, base);

	assert_true(p == &s->pieces[0] || p == &s->pieces[1]);
	assert_true(s->used[p - s->pieces]);
	s->used[p - s->pieces] = false;
}

static void fs_close(struct piece_source *base)
{
	container_of(base, struct fake_source, base)->closed = true;
}

static const struct piece_source_ops fs_ops = {.sent = fs_sent, .close = fs_close};

int source_open(struct engine_core *c, const struct source_params *params, struct read_sink *sink,
		struct piece_source **ret)
{
	struct fake_source *s = calloc(1, sizeof(*s));

	assert_ptr_equal(c, &core);
	assert_non_null(s);
	s->base.ops = &fs_ops;
	s->sink = sink;
	s->params = *params;
	for (unsigned int i = 0; !params->at && i < SOURCE_SLOTS; i++) {
		s->own_slots[i] = (struct slot){.data = malloc(65536), .size = 65536};
		s->params.slots[i] = &s->own_slots[i];
	}
	assert_non_null(s->params.slots[0]);
	s->unit = ec_id_unit(params->block.id);
	s->fault = source_fault[s->unit];
	s->at = params->off / BPC * BPC;
	s->end = params->off + params->len;
	s->fault_at = random_below(2) ? random_below(unit_len(s->unit) + 1) : 0;
	s->timer.fire = fs_fire;
	c->op_count++;
	fs_again(s);
	*ret = &s->base;
	return 0;
}

/* ---- targets on other nodes ---- */

enum hop_fault { HOP_GOOD, HOP_REFUSES, HOP_DIES, HOP_NOT_STORED, HOP_FAULTS };

static struct hop {
	struct piece_sink base;
	struct rtimer timer;
	enum hop_fault fault;
	struct list queue;
	uint8_t *bytes;
	uint64_t len, die_at;
	bool open, opened, broken, closing, stored;
} hops[EC_UNITS_MAX];
static enum hop_fault hop_fault[EC_UNITS_MAX];

static void hop_again(struct hop *h)
{
	reactor_timer_set(r, &h->timer, reactor_now_ns(r) + random_below(50000));
}

static void hop_piece(struct hop *h)
{
	struct piece *p = container_of(list_pop(&h->queue), struct piece, link);
	uint8_t crcs[UNIT_MAX / BPC * 4 + 4];

	if (p->len) {
		assert_int_equal(p->off, h->len);
		assert_true(h->len + p->len <= UNIT_MAX);
		memcpy(crcs, p->crcs, p->crc_count * 4 - 4);
		memcpy(crcs + p->crc_count * 4 - 4, p->edge, 4);
		assert_int_equal(
			crc_verify(CRC_CRC32C, p->slot->data + p->slot_off, p->len, BPC, crcs), -1);
		memcpy(h->bytes + h->len, p->slot->data + p->slot_off, p->len);
		h->len += p->len;
	}
	h->stored = p->last && h->fault != HOP_NOT_STORED;
	h->broken = p->last;
	h->base.user->ops->sent(h->base.user, p);
	if (h->broken)
		h->base.user->ops->broken(h->base.user, h->stored ? 0 : -EIO);
}

static void hop_fire(struct rtimer *t)
{
	struct hop *h = container_of(t, struct hop, timer);

	if (h->closing) {
		while (!list_empty(&h->queue))
			h->base.user->ops->sent(h->base.user, container_of(list_pop(&h->queue),
									   struct piece, link));
		h->open = false;
		core.op_count--;
		h->base.user->ops->closed(h->base.user);
		return;
	}
	if (!h->opened) {
		h->opened = true;
		h->broken = h->fault == HOP_REFUSES;
		h->base.user->ops->opened(h->base.user, h->broken ? DT_ERROR : DT_SUCCESS, "");
	} else if (!h->broken && h->fault == HOP_DIES && h->len >= h->die_at) {
		h->broken = true;
		h->base.user->ops->broken(h->base.user, -ECONNRESET);
	} else if (!h->broken && !list_empty(&h->queue)) {
		hop_piece(h);
	}
	hop_again(h);
}

static void hop_forward(struct piece_sink *s, struct piece *p)
{
	list_add_tail(&container_of(s, struct hop, base)->queue, &p->link);
}

static void hop_close(struct piece_sink *s)
{
	container_of(s, struct hop, base)->closing = true;
}

static const struct piece_sink_ops hop_ops = {.forward = hop_forward, .close = hop_close};

int sink_open(struct engine_core *c, const struct sink_params *params, struct sink_user *user,
	      struct piece_sink **ret)
{
	const unsigned int u = ec_id_unit(params->write->req.block.id);
	struct hop *h = &hops[u];

	assert_true(params->no_answer && params->confirm);
	assert_int_equal(params->block_len, unit_len(u));
	h->base = (struct piece_sink){.ops = &hop_ops, .user = user};
	h->fault = hop_fault[u];
	h->die_at = random_below(unit_len(u) + 1);
	h->timer = (struct rtimer){.fire = hop_fire};
	list_init(&h->queue);
	h->open = true;
	c->op_count++;
	hop_again(h);
	*ret = &h->base;
	return 0;
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

/* ---- a run ---- */

static struct result {
	bool over;
	int rc;
	char text[ERR_TEXT_MAX];
	uint32_t blamed; /* units */
	uint8_t *taken;
	uint64_t taken_len;
} res;

static void on_done(void *arg, int rc, const struct err *err)
{
	(void)arg;
	res.over = true;
	res.rc = rc;
	snprintf(res.text, sizeof(res.text), "%s", err->text);
	reactor_stop(r);
}

static void on_bad(void *arg, const struct reconstruct_node *source)
{
	(void)arg;
	res.blamed |= 1u << source->unit;
}

static void take(struct reconstruct_taker *t, const uint8_t *data, uint32_t len, enum crc_type type,
		 uint32_t bpc)
{
	(void)t, (void)type, (void)bpc;
	assert_true(res.taken_len + len <= UNIT_MAX);
	memcpy(res.taken + res.taken_len, data, len);
	res.taken_len += len;
}

/* A new group of random bytes, and its parity. */
static void make_group(enum ec_codec codec, unsigned int k, unsigned int m, uint64_t len)
{
	struct ec_src src[EC_UNITS_MAX] = {{0}};
	uint8_t *out[EC_UNITS_MAX] = {NULL};
	struct ec_coder *coder;
	struct err err = ERR_INIT;
	uint32_t longest = 0;

	assert_int_equal(ec_policy_make(codec, k, m, 65536, 64, &policy, &err), 0);
	group.id -= 1024;
	group.len = len;
	for (unsigned int u = 0; u < k; u++) {
		for (uint32_t i = 0; i < unit_len(u); i++)
			units[u][i] = (uint8_t)random_below(256);
		src[u] = (struct ec_src){units[u], unit_len(u)};
		longest = unit_len(u) > longest ? unit_len(u) : longest;
	}
	assert_true(longest <= UNIT_MAX);
	assert_int_equal(ec_coder_new(&policy, &coder, &err), 0);
	for (unsigned int u = 0; u < m; u++)
		out[u] = units[k + u];
	ec_encode(coder, src, out, longest);
	ec_coder_free(coder);
	for (unsigned int u = 0; u < EC_UNITS_MAX; u++) {
		source_fault[u] = GOOD;
		hop_fault[u] = HOP_GOOD;
	}
}

static int before_run_ms; /* between the order and the reactor's next turn */

/* Rebuild the units of the set @want; @own: the first of them here. */
static int rebuild(uint32_t want, uint32_t sources, bool own, struct reconstruct_taker *taker)
{
	struct reconstruct_params p = {.bp = bp,
				       .group = group,
				       .policy = policy,
				       .bad = on_bad,
				       .done = on_done,
				       .taker = taker,
				       .limit = UINT64_MAX};
	struct err err = ERR_INIT;
	uint8_t *keep = res.taken;
	int rc;

	p.sources = calloc(EC_UNITS_MAX, sizeof(*p.sources));
	p.targets = calloc(EC_UNITS_MAX, sizeof(*p.targets));
	for (uint8_t u = 0; u < policy.k + policy.m; u++) {
		struct reconstruct_node n = {.unit = u};

		hops[u] = (struct hop){.bytes = hops[u].bytes};
		snprintf(n.at.ip, sizeof(n.at.ip), "10.0.0.%u", u);
		n.at.storage_type = STORAGE_DISK;
		n.own = own_replica.there && u == own_replica.unit;
		if (sources >> u & 1)
			p.sources[p.source_count++] = n;
		n.own = own && want >> u & 1 && !p.target_count;
		if (want >> u & 1)
			p.targets[p.target_count++] = n;
	}
	res = (struct result){.taken = keep};
	rc = reconstruct_open(&core, &p, &err);
	if (rc < 0)
		return rc;
	if (before_run_ms)
		(void)poll(NULL, 0, before_run_ms);
	for (int i = 0; i < 4000 && (!res.over || core.op_count); i++)
		fix_run(20);
	assert_true(res.over);
	assert_int_equal(core.op_count, 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(core.rebuilds_running[i], 0);
		assert_int_equal(core.reconstruct_slots[i], 0);
	}
	assert_int_equal(pool_slots_out(pool), 0);
	assert_true(res.rc == 0 || *res.text);
	return res.rc;
}

/* Nothing but the unit, to its end, is stored by a target. How many are. */
static uint32_t check_targets(uint32_t want, bool own)
{
	uint32_t stored = 0;

	for (unsigned int u = 0; u < policy.k + policy.m; u++) {
		struct block b = {.id = ec_id_of(group.id, u), .gs = group.gs};
		struct replica_info info;
		struct replica_reader *rr;
		struct err err = ERR_INIT;
		uint8_t *buf;

		if (!(want >> u & 1))
			continue;
		if (!own || want & ((1u << u) - 1)) {
			if (!hops[u].stored)
				continue;
			assert_int_equal(hops[u].len, unit_len(u));
			assert_memory_equal(hops[u].bytes, units[u], unit_len(u));
			stored++;
			continue;
		}
		if (replica_get(bp, b.id, &info) < 0 || info.state != REPLICA_FINALIZED)
			continue;
		buf = malloc(unit_len(u) + 1);
		assert_int_equal(replica_read_open(bp, &b, &rr, &err), 0);
		assert_int_equal(pread(rr->fd, buf, unit_len(u) + 1, 0), unit_len(u));
		assert_memory_equal(buf, units[u], unit_len(u));
		replica_read_close(rr);
		free(buf);
		stored++;
	}
	return stored;
}

static uint32_t all_units(void)
{
	return (1u << (policy.k + policy.m)) - 1;
}

/* ---- tests ---- */

/* Lengths at which cells, rows and windows end in every way. */
static uint64_t some_length(unsigned int k)
{
	static const uint32_t odd[] = {1,     511,   512,    513,    65535,
				       65536, 65537, 100000, 131072, 131073};

	return odd[random_below(10)] + (uint64_t)random_below(2) * k * 65536 +
	       random_below(2) * (k - 1ull) * 65536;
}

static void lost_units_come_back_as_they_were(void **state)
{
	static const uint8_t k[] = {3, 2, 6}, m[] = {2, 1, 3};

	(void)state;
	for (uint64_t seed = 0; seed < 60; seed++) {
		const unsigned int p = (unsigned int)(seed % 3);
		const bool own = seed % 2;
		uint32_t want = 0;

		rnd = seed * 77 + 1;
		make_group(p == 1 ? EC_CODEC_XOR : EC_CODEC_RS, k[p], m[p], some_length(k[p]));
		while ((uint32_t)__builtin_popcount(want) < 1 + random_below(m[p])) {
			const unsigned int u = random_below(k[p] + m[p]);

			if (unit_len(u))
				want |= 1u << u;
		}
		assert_int_equal(rebuild(want, all_units() & ~want, own, NULL), 0);
		assert_int_equal(check_targets(want, own), __builtin_popcount(want));
	}
}

static void a_source_that_fails_is_replaced(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 60; seed++) {
		const enum fault f = (enum fault)(1 + seed % (WRONG_BYTES - 1));
		unsigned int bad;

		if (f == SILENT)
			continue; /* below */
		rnd = seed * 99 + 1;
		make_group(EC_CODEC_RS, 3, 2, 3 * 65536 + 65536 + random_below(70000));
		bad = random_below(4); /* one of those that may be read, and one is to spare */
		source_fault[bad] = f;
		/* the first one's CRCs are the measure */
		if (rebuild(1u << 4, all_units() & ~(1u << 4), false, NULL) < 0)
			assert_int_equal(f, OTHER_CRCS);
		else
			assert_int_equal(check_targets(1u << 4, false), 1);
		if (res.blamed)
			assert_true(f == BAD_CRC && res.blamed == 1u << bad);
	}
}

/* A replica here is read like another one; when it is not what was ordered, another one takes its
 * place. */
static void an_own_replica_counts_when_it_is_the_one(void **state)
{
	static const struct {
		int64_t gs, len;
		enum replica_state state;
	} cases[] = {
		{0, 0, REPLICA_FINALIZED},  {-1, 0, REPLICA_FINALIZED}, {1, 0, REPLICA_FINALIZED},
		{0, -1, REPLICA_FINALIZED}, {0, 1, REPLICA_FINALIZED},  {0, 0, REPLICA_RBW},
	};

	(void)state;
	for (unsigned int i = 0; i < 4 * sizeof(cases) / sizeof(cases[0]); i++) {
		const unsigned int c = i % (sizeof(cases) / sizeof(cases[0]));

		rnd = i * 17 + 1;
		make_group(EC_CODEC_RS, 3, 2, 3 * 65536 + 65536 + random_below(70000));
		own_replica.there = true;
		own_replica.unit = random_below(4);
		own_replica.gs = cases[c].gs;
		own_replica.len = cases[c].len;
		own_replica.state = cases[c].state;
		source_fault[own_replica.unit] = c ? WRONG_BYTES : GOOD;
		assert_int_equal(rebuild(1u << 4, all_units() & ~(1u << 4), false, NULL), 0);
		assert_int_equal(check_targets(1u << 4, false), 1);
	}
	own_replica.there = false;
}

/* A busy machine may stop this process for so long that a good one is taken for silent, too. */
static void a_silent_source_is_replaced(void **state)
{
	uint32_t good = 0;

	(void)state;
	dn.live.ec_read_timeout_ms = 300;
	for (uint64_t seed = 0; seed < 6; seed++) {
		int rc;

		rnd = seed * 121 + 1;
		make_group(EC_CODEC_RS, 3, 2, 3 * 65536 + 65536 + random_below(70000));
		source_fault[random_below(4)] = SILENT;
		rc = rebuild(1u << 4, all_units() & ~(1u << 4), false, NULL);
		assert_true(rc == 0 || rc == -ENODATA);
		assert_int_equal(check_targets(1u << 4, false), rc == 0);
		good += rc == 0;
	}
	assert_true(good > 0);
	dn.live.ec_read_timeout_ms = 60000;
}

/* When as many units are left as decoding needs, the next failure is the end, and nothing is
 * stored. */
static void too_few_sources_store_nothing(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 40; seed++) {
		const enum fault f = (enum fault)(1 + seed % (OTHER_CRCS - 1));
		const uint32_t want = 1u << 0 | 1u << 4;

		if (f == SILENT)
			continue; /* is waited for */
		rnd = seed * 55 + 1;
		make_group(EC_CODEC_RS, 3, 2, 4 * 65536 + random_below(70000));
		source_fault[1 + random_below(3)] = f;
		if (rebuild(want, 1u << 1 | 1u << 2 | 1u << 3, seed % 2, NULL) < 0)
			assert_int_equal(check_targets(want, seed % 2), 0);
		else /* the fault was behind the last byte that was needed */
			assert_int_equal(check_targets(want, seed % 2), 2);
	}
	assert_int_equal(rebuild(1, 1u << 1 | 1u << 2, false, NULL), -ENODATA);
}

static void wrong_bytes_with_good_crcs_are_never_stored(void **state)
{
	(void)state;
	dn.live.ec_verify_bytes = UINT32_MAX;
	for (uint64_t seed = 0; seed < 20; seed++) {
		rnd = seed * 33 + 1;
		make_group(EC_CODEC_RS, 3, 2, 3 * 65536 + random_below(70000));
		source_fault[random_below(4)] = WRONG_BYTES;
		assert_int_equal(rebuild(1u << 4, all_units() & ~(1u << 4), seed % 2, NULL),
				 -EBADMSG);
		assert_int_equal(check_targets(1u << 4, seed % 2), 0);
	}
	dn.live.ec_verify_bytes = 65536;
}

/* Of the additional unit the first and the last bytes are compared. */
static void a_wrong_last_byte_is_seen(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 8; seed++) {
		rnd = seed * 7 + 1;
		make_group(EC_CODEC_RS, 3, 2, 2 * 3 * 65536);
		dn.live.ec_verify_bytes = 4096;
		source_fault[seed % 4] = WRONG_END;
		assert_int_equal(rebuild(1u << 4, all_units() & ~(1u << 4), seed % 2, NULL),
				 -EBADMSG);
		assert_int_equal(check_targets(1u << 4, seed % 2), 0);
	}
	dn.live.ec_verify_bytes = 65536;
}

static void a_target_that_fails_is_left_behind(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 60; seed++) {
		const uint32_t want = 1u << 1 | 1u << 4;
		const unsigned int bad = seed % 2 ? 4 : 1;
		int rc;

		rnd = seed * 11 + 1;
		make_group(EC_CODEC_RS, 3, 2, 3 * 65536 + 65536 + random_below(140000));
		hop_fault[bad] = (enum hop_fault)(1 + random_below(HOP_FAULTS - 1));
		if (seed % 5 == 0) /* both: the order fails */
			hop_fault[5 - bad] = HOP_REFUSES;
		rc = rebuild(want, all_units() & ~want, false, NULL);
		if (seed % 5 == 0)
			assert_true(rc < 0);
		else
			assert_int_equal(rc, 0);
		assert_int_equal(check_targets(want, false), seed % 5 != 0);
	}
}

static void a_taker_gets_the_unit_in_order(void **state)
{
	struct reconstruct_taker t = {.bytes = take};

	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		const unsigned int u = (unsigned int)(seed % 5);

		rnd = seed + 1;
		make_group(EC_CODEC_RS, 3, 2, 3 * 65536 + random_below(3 * 65536));
		assert_int_equal(rebuild(1u << u, all_units() & ~(1u << u), false, &t), 0);
		assert_int_equal(res.taken_len, unit_len(u));
		assert_memory_equal(res.taken, units[u], unit_len(u));
	}
}

static struct holder { /* of all slots of 64 KiB, until its timer fires */
	struct rtimer timer;
	struct slot *slot[64];
} holder;

static void give_slots_back(struct rtimer *t)
{
	struct holder *h = container_of(t, struct holder, timer);
	const struct operation o = fix_op(reconstruct_list, group.id);

	if (strcmp(o.waits_for, "buffers")) { /* a slow machine: not yet */
		reactor_timer_set(r, t, reactor_now_ns(r) + 10 * NS_PER_MS);
		return;
	}
	assert_string_equal(o.kind, "reconstruct");
	assert_string_equal(o.role, "reconstruction");
	assert_string_equal(o.state, "wait_buffers");
	assert_string_equal(o.pool, POOL_ID);
	assert_int_equal(o.gs, group.gs);
	assert_int_equal(o.bytes, 0);
	assert_int_equal(o.held, 0);
	assert_true(o.age_ms > 0);
	for (unsigned int i = 0; i < 64; i++)
		slot_put(h->slot[i]);
}

/* The tick, which looks how long buffers are waited for, is due in the turn in which the wait
 * begins. */
static void a_wait_for_buffers_lasts_as_long_as_it_may(void **state)
{
	(void)state;
	rnd = 5;
	make_group(EC_CODEC_RS, 3, 2, 3 * 65536);
	holder.timer.fire = give_slots_back;
	for (unsigned int i = 0; i < 64; i++) {
		holder.slot[i] = pool_get(pool, SLOT_64K, POOL_CTRL);
		assert_non_null(holder.slot[i]);
	}
	reactor_timer_set(r, &holder.timer, clock_mono_ns() + 600 * NS_PER_MS);
	before_run_ms = 300; /* longer than a tick */
	assert_int_equal(rebuild(1u << 4, all_units() & ~(1u << 4), false, NULL), 0);
	before_run_ms = 0;
	assert_int_equal(check_targets(1u << 4, false), 1);
}

static int setup(void **state)
{
	const struct pool_opts po = {.count = {64, 64, 8, 8, 64}};

	(void)state;
	fix_setup("rebuild_test", &po);
	fix_store(dir);
	dn.reactor_count = 1;
	dn.live.ec_threads = 8;
	dn.live.ec_read_timeout_ms = 60000;
	dn.live.ec_verify_bytes = 65536;
	core.moves = &moves;
	core.reconstruct_slots_max = 64;
	assert_int_equal(token_keys_new(&core.tokens), 0);
	list_init(&core.rebuilds_waiting);
	res.taken = malloc(UNIT_MAX);
	for (unsigned int u = 0; u < EC_UNITS_MAX; u++) {
		units[u] = malloc(UNIT_MAX);
		hops[u].bytes = malloc(UNIT_MAX);
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	token_keys_free(core.tokens);
	for (unsigned int u = 0; u < EC_UNITS_MAX; u++) {
		free(units[u]);
		free(hops[u].bytes);
	}
	free(res.taken);
	return fix_teardown(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lost_units_come_back_as_they_were),
		cmocka_unit_test(a_source_that_fails_is_replaced),
		cmocka_unit_test(an_own_replica_counts_when_it_is_the_one),
		cmocka_unit_test(a_silent_source_is_replaced),
		cmocka_unit_test(too_few_sources_store_nothing),
		cmocka_unit_test(wrong_bytes_with_good_crcs_are_never_stored),
		cmocka_unit_test(a_wrong_last_byte_is_seen),
		cmocka_unit_test(a_target_that_fails_is_left_behind),
		cmocka_unit_test(a_taker_gets_the_unit_in_order),
		cmocka_unit_test(a_wait_for_buffers_lasts_as_long_as_it_may),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
