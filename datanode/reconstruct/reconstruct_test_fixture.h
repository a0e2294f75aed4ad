/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: reconstruct_test_fixture - what the tests of the reconstruction share: sources and
 * targets that fail on demand, and the judgement of what was stored
 *
 * Included by one test program each, which owns what is static here.
 */
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
static char dir[] = "/tmp/reconstruct_test.XXXXXX";
static uint64_t rnd = 1;

static struct ec_policy policy;
static struct block group = {.id = -1024, .gs = 1001};
static uint8_t *units[EC_UNITS_MAX];

static inline uint32_t random_below(uint32_t n)
{
	rnd = rnd * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(rnd >> 33) % n;
}

static inline uint32_t unit_len(unsigned int u)
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

static inline void fs_again(struct fake_source *s)
{
	reactor_timer_set(r, &s->timer, reactor_now_ns(r) + random_below(50000));
}

static inline bool fs_out(const struct fake_source *s)
{
	return s->used[0] || s->used[1];
}

static inline void fs_open(struct fake_source *s)
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

static inline void fs_piece(struct fake_source *s)
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

static inline void fs_fire(struct rtimer *t)
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

static inline void fs_sent(struct piece_source *base, struct piece *p)
{
	struct fake_source *s = container_of(base, struct fake_source, base);

	assert_true(p == &s->pieces[0] || p == &s->pieces[1]);
	assert_true(s->used[p - s->pieces]);
	s->used[p - s->pieces] = false;
}

static inline void fs_close(struct piece_source *base)
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

static inline void hop_again(struct hop *h)
{
	reactor_timer_set(r, &h->timer, reactor_now_ns(r) + random_below(50000));
}

static inline void hop_piece(struct hop *h)
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

static inline void hop_fire(struct rtimer *t)
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

static inline void hop_forward(struct piece_sink *s, struct piece *p)
{
	list_add_tail(&container_of(s, struct hop, base)->queue, &p->link);
}

static inline void hop_close(struct piece_sink *s)
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

static inline void on_done(void *arg, int rc, const struct err *err)
{
	(void)arg;
	res.over = true;
	res.rc = rc;
	snprintf(res.text, sizeof(res.text), "%s", err->text);
	reactor_stop(r);
}

static inline void on_bad(void *arg, const struct reconstruct_node *source)
{
	(void)arg;
	res.blamed |= 1u << source->unit;
}

/* A new group of random bytes, and its parity. */
static inline void make_group(enum ec_codec codec, unsigned int k, unsigned int m, uint64_t len)
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
static inline int rebuild(uint32_t want, uint32_t sources, bool own,
			  struct reconstruct_taker *taker)
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
static inline uint32_t check_targets(uint32_t want, bool own)
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

static inline uint32_t all_units(void)
{
	return (1u << (policy.k + policy.m)) - 1;
}

static inline int setup(void **state)
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

static inline int teardown(void **state)
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
