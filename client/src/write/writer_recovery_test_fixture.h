/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: writer_recovery_test_fixture - a NameNode and data nodes that are models: they keep
 * the replicas that a writer makes, bring them into the states that its set-ups ask for, and fail
 * by a plan or by chance
 *
 * Included by one test program, which owns what is static here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "client/src/fs/answer_test_fixture.h"
#include "client/src/stream/dtp.h"
#include "client/src/write/housekeeper_test_fixture.h"
#include "client/src/write/writer.h"
#include "common/base/test_random.h"

#define BLOCK (64u << 10)
#define FILE_MAX (5 * BLOCK)
#define PACKET (8u << 10)
#define NODES 8
#define BLOCKS 64
#define NEVER UINT32_MAX
#define RUNS 400

enum replica_is { NONE, RBW, FINALIZED };

struct replica {
	enum replica_is is;
	uint64_t gs, len, acked; /* acked: by this node, to the one before it */
	uint8_t bytes[BLOCK];
};

static struct {
	struct replica replica[BLOCKS];
	bool down;      /* refuses everything */
	unsigned fails; /* so many of the next operations, then it is well again */
} node[NODES];

/* What the NameNode knows. */
static struct {
	unsigned blocks, stamps, fsyncs, replication, transfers, closes;
	unsigned forgets; /* so many nodes of a pipeline, as it offers another one */
	bool offers_none; /* no other one */
	uint64_t next_gs;
	struct {
		uint64_t gs;
		unsigned n, at[NODES];
		bool abandoned;
	} block[BLOCKS];
	uint64_t file[BLOCKS]; /* its blocks, in order */
	unsigned in_file;
	bool complete;
} nn;

/* What the next streams do: that of number `at` loses node `who` with packet `packet`. */
static struct {
	unsigned stream;          /* of those opened */
	uint32_t packet;          /* NEVER: none */
	unsigned who;             /* index in its pipeline */
	bool lose_acks;           /* the acks that are under way are lost with it */
	bool each;                /* each one that comes, with its first packet, the first node */
	bool by_chance;           /* none of the above: by chance */
	enum dt_stage stages[64]; /* of the streams opened */
	unsigned streams;
} plan;

static uint8_t bytes[FILE_MAX + BLOCK];

static unsigned node_of(const Hd__DatanodeIDProto *id)
{
	return (unsigned)strtoul(id->datanodeuuid, NULL, 10);
}

static inline bool operation_fails(unsigned n)
{
	if (node[n].fails && node[n].fails--)
		return true;
	return node[n].down;
}

/* ---- streams ---- */

struct fake_stream {
	struct wstream base;
	uint64_t block;
	unsigned n, at[NODES];
	uint32_t packets, breaks_at;
	unsigned who;
	bool lose_acks, broken;
	int64_t acks[512]; /* numbers of packets */
	unsigned made, shown, taken;
};

/* A replica is brought into the state that @w asks for, as a data node does it (hdfs-wire 5.5). */
static inline bool replica_open(struct replica *r, const struct write_setup *w)
{
	const bool stamp_fits = r->gs >= w->block->generationstamp && r->gs <= w->latest_gs;

	switch (w->stage) {
	case DT_SETUP_CREATE:
		if (r->is != NONE)
			return false;
		*r = (struct replica){.is = RBW, .gs = w->block->generationstamp};
		return true;
	case DT_SETUP_STREAMING_RECOVERY:
		if (r->is != RBW || !stamp_fits || r->acked < w->min_rcvd || r->len > w->max_rcvd)
			return false;
		r->len = r->acked;
		break;
	case DT_SETUP_APPEND:
		if (r->is != FINALIZED || r->gs != w->block->generationstamp ||
		    r->len != w->min_rcvd)
			return false;
		break;
	case DT_SETUP_APPEND_RECOVERY:
		if (r->is == NONE || !stamp_fits || r->len != w->min_rcvd || r->acked != r->len)
			return false;
		break;
	case DT_CLOSE_RECOVERY:
		if (r->is == NONE || !stamp_fits || r->len != w->min_rcvd || r->acked != r->len)
			return false;
		r->is = FINALIZED;
		r->gs = w->latest_gs;
		nn.closes++;
		return true;
	case DT_DATA_STREAMING:
	case DT_CLOSE:
	case DT_TRANSFER_RBW:
	case DT_TRANSFER_FINALIZED:
		fail();
	}
	r->is = RBW;
	r->gs = w->latest_gs;
	return true;
}

static inline void stream_plan(struct fake_stream *s)
{
	const unsigned number = plan.streams++;

	s->breaks_at = NEVER;
	if (plan.by_chance && random_below(2)) {
		s->breaks_at = random_below(12);
		s->who = random_below(s->n);
		s->lose_acks = random_below(2);
		return;
	}
	if (plan.each)
		s->breaks_at = 0;
	if (plan.by_chance || plan.each || number != plan.stream)
		return;
	s->breaks_at = plan.packet;
	s->who = plan.who;
	s->lose_acks = plan.lose_acks;
}

static inline int fake_send(struct wstream *ws, struct packet *p, struct err *err);
static inline int fake_next_ack(struct wstream *ws, struct ack *ret, struct err *err);
static inline int fake_wait(struct wstream *ws, bool want_send, uint64_t deadline_ns,
			    struct err *err);
static inline void fake_close(struct wstream *ws)
{
	free(container_of(ws, struct fake_stream, base));
}

static const struct block_stream fake_ops = {
	.send = fake_send, .next_ack = fake_next_ack, .wait = fake_wait, .close_write = fake_close};

int __wrap_stream_open_write(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
			     int *ret_bad, struct err *err);
int __wrap_stream_open_write(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
			     int *ret_bad, struct err *err)
{
	struct fake_stream *s = calloc(1, sizeof(*s));

	(void)fs;
	assert_non_null(s);
	assert_in_range(w->lb->n_locs, 1, NODES);
	/* the token came with the newest stamp */
	assert_int_equal(w->lb->blocktoken->identifier.len, sizeof(nn.next_gs));
	assert_memory_equal(w->lb->blocktoken->identifier.data, &nn.next_gs, sizeof(nn.next_gs));
	if (plan.streams < 64)
		plan.stages[plan.streams] = w->stage;
	s->base.ops = &fake_ops;
	s->block = w->block->blockid;
	for (size_t i = 0; i < w->lb->n_locs; i++) {
		const unsigned n = node_of(w->lb->locs[i]->id);

		if (operation_fails(n) || !replica_open(&node[n].replica[s->block], w)) {
			free(s);
			plan.streams++;
			*ret_bad = (int)i;
			return err_set(err, -EIO, "data node %u refuses", n);
		}
		s->at[s->n++] = n;
	}
	stream_plan(s);
	*ret_bad = 0;
	*ret = &s->base;
	return 0;
}

int __wrap_stream_start_write(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
			      bool *ret_opened, int *ret_bad, struct err *err);
int __wrap_stream_start_write(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
			      bool *ret_opened, int *ret_bad, struct err *err)
{
	*ret_opened = true;
	return __wrap_stream_open_write(fs, w, ret, ret_bad, err);
}

static inline void node_take(struct replica *r, const struct packet *p, bool ack)
{
	const uint64_t end = p->offset + p->len;

	assert_int_equal(r->is, RBW);
	assert_true(end <= BLOCK);
	if (p->len)
		assert_true(p->offset <= r->len); /* no gap */
	memcpy(r->bytes + p->offset, p->data, p->len);
	r->len = p->len && end > r->len ? end : r->len;
	if (ack)
		r->acked = r->len;
	if (p->last && ack)
		r->is = FINALIZED;
}

/* Nodes before the one that fails have the packet, those behind it have it by chance, and of these
 * each acknowledges it by chance, the last one first. */
static inline void take_in_part(struct fake_stream *s, const struct packet *p)
{
	const bool reached = random_below(2);
	unsigned acks = s->n;

	for (unsigned i = s->n; i-- > 0;) {
		struct replica *r = &node[s->at[i]].replica[s->block];
		const bool has = i < s->who || (i > s->who && reached);

		if (has && acks == i + 1 && random_below(2))
			acks = i;
		if (has)
			node_take(r, p, acks == i);
	}
	node[s->at[s->who]].fails += random_below(3);
	node[s->at[s->who]].down |= plan.by_chance && random_below(4) == 0;
}

static inline int fake_send(struct wstream *ws, struct packet *p, struct err *err)
{
	struct fake_stream *s = container_of(ws, struct fake_stream, base);

	(void)err;
	if (s->broken)
		return 0;
	if (s->packets++ == s->breaks_at) {
		take_in_part(s, p);
		s->broken = true;
		if (s->lose_acks)
			s->made = s->shown;
		return 1;
	}
	for (unsigned i = 0; i < s->n; i++)
		node_take(&node[s->at[i]].replica[s->block], p, true);
	assert_in_range(s->made, 0, 511);
	s->acks[s->made++] = p->seqno;
	return 1;
}

static inline int fake_next_ack(struct wstream *ws, struct ack *ret, struct err *err)
{
	struct fake_stream *s = container_of(ws, struct fake_stream, base);

	if (s->taken < s->shown) {
		*ret = (struct ack){.seqno = s->acks[s->taken++], .bad = -1};
		return 1;
	}
	if (!s->broken || s->shown < s->made)
		return 0;
	if (s->who == 0)
		return err_set(err, -ECONNRESET, "the first node is gone");
	*ret = (struct ack){.seqno = -2, .bad = (int)s->who, .status = DT_ERROR};
	return 1;
}

static inline int fake_wait(struct wstream *ws, bool want_send, uint64_t deadline_ns,
			    struct err *err)
{
	struct fake_stream *s = container_of(ws, struct fake_stream, base);

	(void)want_send;
	(void)deadline_ns;
	(void)err;
	s->shown += 1 + random_below(3);
	s->shown = s->shown < s->made ? s->shown : s->made;
	return 1;
}

/* Node @from copies to @to what it has acknowledged. */
int __wrap_dtp_transfer(struct dfs *fs, const Hd__LocatedBlockProto *lb,
			const Hd__ExtendedBlockProto *b, size_t from, size_t to, bool *ret_from_bad,
			struct err *err);
int __wrap_dtp_transfer(struct dfs *fs, const Hd__LocatedBlockProto *lb,
			const Hd__ExtendedBlockProto *b, size_t from, size_t to, bool *ret_from_bad,
			struct err *err)
{
	const unsigned f = node_of(lb->locs[from]->id), t = node_of(lb->locs[to]->id);
	const struct replica *source = &node[f].replica[b->blockid];
	struct replica *target = &node[t].replica[b->blockid];

	(void)fs;
	assert_int_not_equal(from, to);
	assert_int_not_equal(source->is, NONE); /* it is one that was in the pipeline */
	assert_memory_equal(lb->blocktoken->identifier.data, &nn.next_gs, sizeof(nn.next_gs));
	nn.transfers++;
	*ret_from_bad = operation_fails(f) || source->acked < b->numbytes;
	if (*ret_from_bad || operation_fails(t))
		return err_set(err, -EIO, "no copy from %u to %u", f, t);
	*target = *source;
	target->is = RBW;
	target->gs = b->generationstamp;
	target->len = target->acked;
	return 0;
}

/* ---- the NameNode ---- */

/* The same message answers addBlock, getAdditionalDatanode and updateBlockForPipeline. */
static inline void answer_located(uint64_t id, uint64_t gs, const unsigned *at, unsigned n,
				  void *ret)
{
	static Hd__StorageTypeProto type[NODES] = {0};
	Hd__AddBlockResponseProto m = HD__ADD_BLOCK_RESPONSE_PROTO__INIT;
	Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	Hd__DatanodeInfoProto info[NODES], *locs[NODES];
	Hd__DatanodeIDProto dn[NODES];
	Hc__TokenProto token = HC__TOKEN_PROTO__INIT;
	char uuid[NODES][4], *storages[NODES];

	for (unsigned i = 0; i < n; i++) {
		hd__datanode_info_proto__init(&info[i]);
		hd__datanode_idproto__init(&dn[i]);
		snprintf(uuid[i], sizeof(uuid[i]), "%u", at[i] % 100);
		dn[i].ipaddr = dn[i].hostname = (char *)"";
		dn[i].datanodeuuid = storages[i] = uuid[i];
		info[i].id = &dn[i];
		locs[i] = &info[i];
	}
	b.poolid = token.kind = token.service = (char *)"";
	token.identifier = (ProtobufCBinaryData){sizeof(gs), (uint8_t *)&gs};
	b.blockid = id;
	b.generationstamp = gs;
	lb.b = &b;
	lb.blocktoken = &token;
	lb.n_locs = lb.n_storageids = lb.n_storagetypes = n;
	lb.locs = locs;
	lb.storageids = storages;
	lb.storagetypes = type;
	m.block = &lb;
	answer(&hd__add_block_response_proto__descriptor, &m, ret);
}

static inline bool is_named(Hd__DatanodeInfoProto *const *list, size_t n, unsigned which)
{
	for (size_t i = 0; i < n; i++)
		if (node_of(list[i]->id) == which)
			return true;
	return false;
}

static inline int no_nodes(struct err *err)
{
	return err_set(err, -EREMOTEIO,
		       "File /f could only be written to 0 of the 1 minReplication nodes.");
}

static inline int add_block(const Hd__AddBlockRequestProto *q, void *ret, struct err *err)
{
	const unsigned id = nn.blocks++;
	unsigned n = 0, first = random_below(NODES);

	assert_in_range(id, 0, BLOCKS - 1);
	assert_int_equal(q->previous != NULL, nn.in_file > 0);
	if (q->previous) /* the block before, as it is */
		assert_int_equal(q->previous->blockid, nn.file[nn.in_file - 1]);
	if (q->previous)
		assert_int_equal(q->previous->generationstamp,
				 nn.block[nn.file[nn.in_file - 1]].gs);
	nn.block[id].gs = ++nn.next_gs;
	for (unsigned i = 0; i < NODES && n < nn.replication; i++)
		if (!is_named(q->excludenodes, q->n_excludenodes, (first + i) % NODES))
			nn.block[id].at[n++] = (first + i) % NODES;
	nn.block[id].n = n;
	if (!n)
		return no_nodes(err);
	nn.file[nn.in_file++] = id;
	answer_located(id, nn.block[id].gs, nn.block[id].at, n, ret);
	return 0;
}

static inline int additional(const Hd__GetAdditionalDatanodeRequestProto *q, void *ret)
{
	unsigned at[NODES], n = 0, first = random_below(NODES);

	for (size_t i = nn.forgets; i < q->n_existings; i++)
		at[n++] = node_of(q->existings[i]->id);
	for (unsigned i = 0; i < NODES && !nn.offers_none && n == q->n_existings - nn.forgets;
	     i++) {
		const unsigned which = (first + i) % NODES;

		if (!is_named(q->existings, q->n_existings, which) &&
		    !is_named(q->excludes, q->n_excludes, which) &&
		    node[which].replica[q->blk->blockid].is == NONE)
			at[n++] = which;
	}
	/* with a token for the copy, told from others by a number that is new */
	answer_located(q->blk->blockid, ++nn.next_gs, at, n, ret);
	return 0;
}

static inline int update(const Hd__UpdatePipelineRequestProto *q)
{
	const uint64_t id = q->newblock->blockid;

	assert_int_equal(q->oldblock->generationstamp, nn.block[id].gs);
	assert_true(q->newblock->generationstamp > nn.block[id].gs);
	nn.block[id].gs = q->newblock->generationstamp;
	nn.block[id].n = (unsigned)q->n_newnodes;
	for (size_t i = 0; i < q->n_newnodes; i++)
		nn.block[id].at[i] = node_of(q->newnodes[i]);
	return 0;
}

static inline int abandon(const Hd__AbandonBlockRequestProto *q)
{
	assert_true(nn.in_file > 0);
	assert_int_equal(q->b->blockid, nn.file[nn.in_file - 1]);
	nn.block[q->b->blockid].abandoned = true;
	nn.in_file--;
	return 0;
}

int __wrap_nn_call(struct dfs *fs, const char *method, const ProtobufCMessage *req,
		   const ProtobufCMessageDescriptor *reply, void *ret, struct err *err);
int __wrap_nn_call(struct dfs *fs, const char *method, const ProtobufCMessage *req,
		   const ProtobufCMessageDescriptor *reply, void *ret, struct err *err)
{
	(void)fs;
	if (strcmp(method, "addBlock") == 0)
		return add_block((const Hd__AddBlockRequestProto *)req, ret, err);
	if (strcmp(method, "getAdditionalDatanode") == 0)
		return additional((const Hd__GetAdditionalDatanodeRequestProto *)req, ret);
	if (strcmp(method, "updatePipeline") == 0)
		return update((const Hd__UpdatePipelineRequestProto *)req);
	if (strcmp(method, "abandonBlock") == 0)
		return abandon((const Hd__AbandonBlockRequestProto *)req);
	if (strcmp(method, "updateBlockForPipeline") == 0) {
		const Hd__UpdateBlockForPipelineRequestProto *q =
			(const Hd__UpdateBlockForPipelineRequestProto *)req;

		nn.stamps++;
		answer_located(q->block->blockid, ++nn.next_gs, NULL, 0, ret);
		return 0;
	}
	if (strcmp(method, "complete") == 0) {
		Hd__CompleteResponseProto done = HD__COMPLETE_RESPONSE_PROTO__INIT;

		done.result = nn.complete = true;
		answer(reply, &done, ret);
		return 0;
	}
	assert_string_equal(method, "fsync");
	nn.fsyncs++;
	return 0;
}

int __wrap_deferred_sync_settle_file(struct dfs *fs, uint64_t file, struct err *err);
int __wrap_deferred_sync_settle_file(struct dfs *fs, uint64_t file, struct err *err)
{
	(void)fs;
	(void)file;
	(void)err;
	return 0;
}

/* ---- the world ---- */

static struct dfs fs = {.set = {.packet_size = PACKET,
				.window_packets = 8,
				.socket_timeout_ms = 60000,
				.block_write_retries = 3,
				.replace_enable = true,
				.rdma = RDMA_OFF}};

static inline struct writer *begin(unsigned replication)
{
	const struct writer_opts o = {.file_id = 7,
				      .block_size = BLOCK,
				      .bpc = 512,
				      .replication = replication,
				      .crc_type = CRC_CRC32C};
	struct writer *w;

	for (unsigned i = 0; i < NODES; i++) {
		memset(node[i].replica, 0, nn.blocks * sizeof(node[i].replica[0]));
		node[i].down = false;
		node[i].fails = 0;
	}
	memset(&nn, 0, sizeof(nn));
	memset(&plan, 0, sizeof(plan));
	plan.packet = NEVER;
	nn.next_gs = 1000;
	nn.replication = replication;
	assert_int_equal(writer_new(&fs, "/f", &o, &w, NULL), 0);
	return w;
}

static inline void put(struct writer *w, size_t len)
{
	struct err err = ERR_INIT;

	assert_int_equal(output_write(&w->f, bytes + output_length(&w->f), len, &err), len);
}

static inline void flush(struct writer *w, uint32_t how)
{
	struct err err = ERR_INIT;

	assert_int_equal(output_flush(&w->f, how, &err), 0);
}

/* Every node that the NameNode knows of has these bytes of the file. */
static inline void expect_there(uint64_t len, bool closed)
{
	assert_true(nn.in_file * (uint64_t)BLOCK >= len);
	for (uint64_t at = 0; at < len; at += BLOCK) {
		const uint64_t id = nn.file[at / BLOCK], n = len - at < BLOCK ? len - at : BLOCK;

		assert_true(nn.block[id].n > 0);
		for (unsigned i = 0; i < nn.block[id].n; i++) {
			const struct replica *r = &node[nn.block[id].at[i]].replica[id];

			assert_true(r->is == FINALIZED || (!closed && r->is == RBW));
			assert_int_equal(r->gs, nn.block[id].gs);
			assert_true(r->acked >= n);
			if (closed)
				assert_int_equal(r->len, n);
			assert_memory_equal(r->bytes, bytes + at, n);
		}
	}
}

static inline void end(struct writer *w)
{
	const uint64_t len = output_length(&w->f);
	struct err err = ERR_INIT;

	assert_int_equal(output_close(&w->f, &err), 0);
	assert_true(nn.complete);
	expect_there(len, true);
	output_free(&w->f);
}

static inline void break_next_packet(const struct writer *w, unsigned who, bool lose_acks)
{
	struct fake_stream *s = container_of(w->pipe.ws, struct fake_stream, base);

	s->breaks_at = s->packets;
	s->who = who;
	s->lose_acks = lose_acks;
}

static inline bool is_in_pipeline(unsigned n)
{
	for (unsigned i = 0; i < nn.block[0].n; i++)
		if (nn.block[0].at[i] == n)
			return true;
	return false;
}

/* ---- set-up ---- */

static inline int setup(void **state)
{
	(void)state;
	packet_pool_init(&fs.packets);
	snprintf(fs.client_name, sizeof(fs.client_name), "client");
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 2654435761u >> 13);
	return 0;
}

static inline int teardown(void **state)
{
	(void)state;
	packet_pool_fini(&fs.packets);
	return 0;
}
