/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: writer_test_fixture - what the tests of writers share: a NameNode and data nodes that
 * are fakes
 *
 * Included by one test program each, which owns what is static here.
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
#include "client/src/write/housekeeper_test_fixture.h"
#include "client/src/write/writer.h"
#include "common/wire/pb.h"

#define BLOCK (64u << 10)
#define BLOCKS_MAX 8
#define BIG_BLOCK (512u << 10) /* parts of it are worth a packet of their own */
#define NODES_MAX 3

static struct {
	uint64_t len, synced; /* bytes that came, and that are on the disk */
	bool finished, finished_synced;
	uint8_t bytes[BIG_BLOCK];
} block[BLOCKS_MAX];
static unsigned blocks, settled;
static int settle_rc;
static bool complete;
static const char *refusal;           /* addBlock fails with it, */
static unsigned refused_from;         /* from this one on */
static int open_rc;                   /* of streams */
static int then_rc;                   /* of all but the first one; 0: the same */
static unsigned lost_opens;           /* so many blocks are asked for, and nobody hears */
static bool dry;                      /* there is no memory for packets that go by RDMA */
static int recovery_rc = -ECONNRESET; /* then: of the others */
static unsigned by_rdma;              /* streams that were opened and may go by it */
static unsigned stamps;               /* new ones of blocks */
static unsigned fsyncs, abandoned;    /* calls */
static unsigned remembered;           /* blocks that their nodes sync later */
static int fsync_rc;
static unsigned nodes = 1; /* of a block */
static bool chooses;       /* the NameNode leaves out the nodes that it is told to leave out */
/* this node refuses, and blames one that does not exist: the nodes before it pass that on, */
static const char *liar;
/* or it opens a chain that is none, and nobody has the replica that is to be recovered */
static bool pretends;

/* ---- streams ---- */

struct fake_stream {
	struct wstream base;
	unsigned block;
	bool by_tcp;
	struct ack ack[64];
	unsigned acks, taken, heartbeats;
	unsigned late; /* so many waits pass before acks come */
	bool lies;     /* acknowledges what was not sent */
	bool dies;     /* with the first ack, */
	bool full;     /* and takes one packet until then */
};

static inline int fake_send(struct wstream *ws, struct packet *p, struct err *err)
{
	struct fake_stream *s = container_of(ws, struct fake_stream, base);

	(void)err;
	s->base.in_line = p->len && dry && !s->by_tcp;
	if (s->base.in_line || (s->full && s->acks))
		return 0;
	s->heartbeats += p->seqno < 0;
	memcpy(block[s->block].bytes + p->offset, p->data, p->len);
	if (p->offset + p->len > block[s->block].len)
		block[s->block].len = p->offset + p->len;
	if (p->sync)
		block[s->block].synced = block[s->block].len;
	if (p->last) {
		block[s->block].finished = true;
		block[s->block].finished_synced = p->sync;
	}
	s->ack[s->acks++ % 64] = (struct ack){.seqno = p->seqno, .bad = -1};
	return 1;
}

static inline int fake_next_ack(struct wstream *ws, struct ack *ret, struct err *err)
{
	struct fake_stream *s = container_of(ws, struct fake_stream, base);

	if (s->lies)
		return err_set(err, -EPROTO, "the liar acknowledges packet -1 out of turn");
	if (s->dies && s->taken)
		return err_set(err, -ECONNRESET, "the node has died");
	if (s->taken == s->acks || s->late)
		return 0;
	*ret = s->ack[s->taken++ % 64];
	return 1;
}

static inline int fake_wait(struct wstream *ws, bool want_send, uint64_t deadline_ns,
			    struct err *err)
{
	struct fake_stream *s = container_of(ws, struct fake_stream, base);

	(void)want_send;
	(void)deadline_ns;
	(void)err;
	if (!s->late && !s->base.in_line)
		return 1;
	s->late -= s->late > 0;
	return 0;
}

static inline void fake_close(struct wstream *ws)
{
	free(container_of(ws, struct fake_stream, base));
}

static const struct block_stream fake_ops = {
	.send = fake_send, .next_ack = fake_next_ack, .wait = fake_wait, .close_write = fake_close};
static const struct block_stream fake_alive_ops = {.keeps_alive = true,
						   .send = fake_send,
						   .next_ack = fake_next_ack,
						   .wait = fake_wait,
						   .close_write = fake_close};
static const struct block_stream *stream_ops = &fake_ops;

int __wrap_stream_open_write(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
			     int *ret_bad, struct err *err);
int __wrap_stream_open_write(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
			     int *ret_bad, struct err *err)
{
	struct fake_stream *s;

	(void)fs;
	*ret_bad = lost_opens && w->stage == DT_SETUP_CREATE ? -1 : 0;
	if (*ret_bad < 0) {
		lost_opens--;
		return err_set(err, -ECONNRESET, "the connection broke");
	}
	if (open_rc && then_rc && blocks > 1)
		return err_set(err, then_rc, "it has no RDMA");
	if (open_rc)
		return err_set(err, open_rc, "the node refuses, or nobody hears");
	if (pretends && w->stage != DT_SETUP_CREATE)
		return err_set(err, recovery_rc, "the honest node closed the connection");
	for (size_t i = 0; liar && !pretends && i < w->lb->n_locs; i++)
		if (strcmp(w->lb->locs[i]->id->datanodeuuid, liar) == 0)
			return err_set(err, -EIO, "data node %s blames a stranger",
				       w->lb->locs[0]->id->datanodeuuid);
	/* As data nodes do: a replica that is to be closed has the length that it is asked for. */
	if (w->stage == DT_CLOSE_RECOVERY && block[w->block->blockid].len != w->min_rcvd)
		return err_set(err, -EIO, "it has another length");
	by_rdma += !w->by_tcp;
	s = calloc(1, sizeof(*s));
	assert_non_null(s);
	s->lies = pretends && strcmp(w->lb->locs[0]->id->datanodeuuid, liar) == 0;
	s->base.ops = stream_ops;
	s->by_tcp = w->by_tcp;
	s->base.later_count = w->sync_later ? nodes : 0;
	s->block = (unsigned)w->block->blockid;
	*ret_bad = 0;
	*ret = &s->base;
	return 0;
}

/* A first block goes by TCP, and its node hangs up. */
static inline int fake_opened(struct wstream *ws, uint64_t *ret_until_ns, int *ret_bad,
			      struct err *err)
{
	(void)ws;
	(void)ret_until_ns;
	*ret_bad = 0;
	return err_set(err, -ECONNREFUSED, "nobody is there");
}

static const struct block_stream fake_ahead_ops = {
	.runs_ahead = true, .opened = fake_opened, .close_write = fake_close};

/* how the stream of a first block begins; NULL: its node hangs up */
static const struct fake_stream *first_stream;

int __wrap_stream_start_write(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
			      bool *ret_opened, int *ret_bad, struct err *err);
int __wrap_stream_start_write(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
			      bool *ret_opened, int *ret_bad, struct err *err)
{
	struct fake_stream *s = calloc(1, sizeof(*s));

	(void)fs;
	(void)err;
	assert_non_null(s);
	s->base.ops = &fake_ahead_ops;
	if (first_stream)
		*s = *first_stream;
	s->block = (unsigned)w->block->blockid;
	*ret_bad = 0;
	*ret_opened = false;
	*ret = &s->base;
	return 0;
}

/* ---- the NameNode ---- */

static inline bool is_left_out(const Hd__AddBlockRequestProto *req, const char *uuid)
{
	for (size_t i = 0; req && chooses && i < req->n_excludenodes; i++)
		if (strcmp(req->excludenodes[i]->id->datanodeuuid, uuid) == 0)
			return true;
	return false;
}

/* Without the nodes in @req, which may be NULL. */
static inline void add_block(const Hd__AddBlockRequestProto *req, void *ret)
{
	unsigned n = 0;
	static Hd__StorageTypeProto type[NODES_MAX] = {HD__STORAGE_TYPE_PROTO__DISK,
						       HD__STORAGE_TYPE_PROTO__DISK,
						       HD__STORAGE_TYPE_PROTO__DISK};
	static char storage[] = "s", *storages[NODES_MAX] = {storage, storage, storage};
	static char uuids[NODES_MAX][2] = {"0", "1", "2"};
	Hd__AddBlockResponseProto m = HD__ADD_BLOCK_RESPONSE_PROTO__INIT;
	Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	Hd__DatanodeInfoProto info[NODES_MAX], *locs[NODES_MAX];
	Hd__DatanodeIDProto id[NODES_MAX];
	Hc__TokenProto token = HC__TOKEN_PROTO__INIT;

	assert_true(blocks < BLOCKS_MAX);
	for (unsigned i = 0; i < nodes; i++) {
		if (is_left_out(req, uuids[i]))
			continue;
		hd__datanode_info_proto__init(&info[i]);
		hd__datanode_idproto__init(&id[i]);
		id[i].ipaddr = id[i].hostname = (char *)"";
		id[i].datanodeuuid = uuids[i];
		info[i].id = &id[i];
		locs[n++] = &info[i];
	}
	b.poolid = token.kind = token.service = (char *)"";
	b.blockid = blocks++;
	b.generationstamp = 1001;
	lb.b = &b;
	lb.blocktoken = &token;
	lb.n_locs = lb.n_storageids = lb.n_storagetypes = n;
	lb.locs = locs;
	lb.storageids = storages;
	lb.storagetypes = type;
	m.block = &lb;
	answer(&hd__add_block_response_proto__descriptor, &m, ret);
}

int __wrap_nn_call(struct dfs *fs, const char *method, const ProtobufCMessage *req,
		   const ProtobufCMessageDescriptor *reply, void *ret, struct err *err);
int __wrap_nn_call(struct dfs *fs, const char *method, const ProtobufCMessage *req,
		   const ProtobufCMessageDescriptor *reply, void *ret, struct err *err)
{
	Hd__CompleteResponseProto done = HD__COMPLETE_RESPONSE_PROTO__INIT;
	const Hd__AddBlockRequestProto *add = (const Hd__AddBlockRequestProto *)req;

	(void)fs;
	if (strcmp(method, "addBlock") == 0 && refusal && blocks >= refused_from)
		return err_set(err, -EREMOTEIO, "%s", refusal);
	if (strcmp(method, "addBlock") == 0 && chooses && add->n_excludenodes >= nodes)
		return err_set(err, -EREMOTEIO,
			       "File /f could only be written to 0 of the 1 minReplication nodes.");
	if (strcmp(method, "addBlock") == 0) {
		add_block(add, ret);
	} else if (strcmp(method, "complete") == 0) {
		done.result = complete = true;
		answer(reply, &done, ret);
	} else if (strcmp(method, "updateBlockForPipeline") == 0) {
		stamps++;
		add_block(NULL, ret); /* the same message */
		blocks--;
	} else if (strcmp(method, "abandonBlock") == 0) {
		abandoned++;
	} else if (strcmp(method, "updatePipeline") != 0) {
		assert_string_equal(method, "fsync");
		fsyncs++;
		return fsync_rc ? err_set(err, fsync_rc, "there is no such file") : 0;
	}
	return 0;
}

int __wrap_deferred_sync_settle_file(struct dfs *fs, uint64_t file, struct err *err);
int __wrap_deferred_sync_settle_file(struct dfs *fs, uint64_t file, struct err *err)
{
	(void)fs;
	assert_int_equal(file, 7); /* of no other */
	settled++;
	return settle_rc ? err_set(err, settle_rc, "no data node can be reached") : 0;
}

void __wrap_deferred_sync_add(struct dfs *fs, uint64_t file, Hd__LocatedBlockProto *lb,
			      const uint64_t *later, size_t n);
void __wrap_deferred_sync_add(struct dfs *fs, uint64_t file, Hd__LocatedBlockProto *lb,
			      const uint64_t *later, size_t n)
{
	(void)fs;
	(void)later;
	assert_int_equal(file, 7);
	assert_int_equal(n, nodes);
	remembered++;
	pb_free(lb);
}

static struct dfs fs = {.set = {.packet_size = 16 << 10,
				.window_packets = 8,
				.socket_timeout_ms = 60000,
				.rdma = RDMA_OFF}};
static uint8_t bytes[BIG_BLOCK];

static inline struct output *begin_sized(uint64_t block_size)
{
	const struct writer_opts o = {.file_id = 7,
				      .block_size = block_size,
				      .bpc = 512,
				      .replication = 1,
				      .crc_type = CRC_CRC32C};
	struct writer *w;

	memset(block, 0, sizeof(block));
	blocks = settled = fsyncs = abandoned = remembered = 0;
	settle_rc = fsync_rc = 0;
	complete = false;
	assert_int_equal(writer_new(&fs, "/f", &o, &w, NULL), 0);
	return &w->f;
}

static inline struct output *begin(void)
{
	return begin_sized(BLOCK);
}

static inline void end(struct output *f)
{
	struct err err = ERR_INIT;

	assert_int_equal(output_close(f, &err), 0);
	output_free(f);
	assert_true(complete);
}

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

static inline struct output *begin_with(enum rdma_mode mode, uint32_t wait_ms)
{
	struct output *f = begin();

	fs.set.rdma = mode;
	fs.set.rdma_wait_ms = wait_ms;
	fs.count.pipeline_recoveries = 0;
	stamps = by_rdma = 0;
	dry = false;
	return f;
}

static inline void expect_bytes(size_t len)
{
	for (size_t at = 0; at < len; at += BLOCK)
		assert_memory_equal(block[at / BLOCK].bytes, bytes + at,
				    len - at < BLOCK ? len - at : BLOCK);
}
