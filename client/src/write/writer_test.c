/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a flush ends whatever signs of life were sent beside it; when an hsync returns,
 * every byte before it is on the disk of every node, on nodes that sync nothing by themselves, too
 * (dfs.datanode.synconclose=false); the writer knows what it has to ask for. A writer that has
 * flushed holds no packet. One whose packet gets no memory for too long is told so, and nothing is
 * lost by it.
 * The NameNode and the data nodes are fakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "client/src/write/writer.h"
#include "common/base/clock.h"
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
static bool dry;                      /* there is no memory for packets that go by RDMA */
static int recovery_rc = -ECONNRESET; /* then: of the others */
static unsigned by_rdma;              /* streams that were opened and may go by it */
static unsigned stamps;               /* new ones of blocks */
static unsigned nodes = 1;            /* of a block */
static bool chooses; /* the NameNode leaves out the nodes that it is told to leave out */
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

static int fake_send(struct wstream *ws, struct packet *p, struct err *err)
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

static int fake_next_ack(struct wstream *ws, struct ack *ret, struct err *err)
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

static int fake_wait(struct wstream *ws, bool want_send, uint64_t deadline_ns, struct err *err)
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

static void fake_close(struct wstream *ws)
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
	*ret_bad = 0;
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
	s->block = (unsigned)w->block->blockid;
	*ret_bad = 0;
	*ret = &s->base;
	return 0;
}

/* A first block goes by TCP, and its node hangs up. */
static int fake_opened(struct wstream *ws, uint64_t *ret_until_ns, int *ret_bad, struct err *err)
{
	(void)ws;
	(void)ret_until_ns;
	*ret_bad = 0;
	return err_set(err, -ECONNREFUSED, "nobody is there");
}

static const struct block_stream fake_ahead_ops = {
	.runs_ahead = true, .opened = fake_opened, .close_write = fake_close};

/* Or it works for a while. */
static int fake_opens(struct wstream *ws, uint64_t *ret_until_ns, int *ret_bad, struct err *err)
{
	(void)ws;
	(void)ret_until_ns;
	(void)ret_bad;
	(void)err;
	return 1;
}

static const struct block_stream fake_dying_ops = {.runs_ahead = true,
						   .opened = fake_opens,
						   .send = fake_send,
						   .next_ack = fake_next_ack,
						   .wait = fake_wait,
						   .close_write = fake_close};
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

static void answer(const ProtobufCMessageDescriptor *desc, const void *m, void *ret)
{
	uint8_t *buf;
	size_t len;

	assert_int_equal(pb_pack(m, &buf, &len), 0);
	assert_int_equal(pb_unpack(desc, buf, len, ret), 0);
	free(buf);
}

static bool is_left_out(const Hd__AddBlockRequestProto *req, const char *uuid)
{
	for (size_t i = 0; req && chooses && i < req->n_excludenodes; i++)
		if (strcmp(req->excludenodes[i]->id->datanodeuuid, uuid) == 0)
			return true;
	return false;
}

/* Without the nodes in @req, which may be NULL. */
static void add_block(const Hd__AddBlockRequestProto *req, void *ret)
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
	} else if (strcmp(method, "abandonBlock") != 0 && strcmp(method, "updatePipeline") != 0) {
		assert_string_equal(method, "fsync");
	}
	return 0;
}

int __wrap_housekeeper_add(struct dfs *fs, struct housekept *k, struct err *err);
int __wrap_housekeeper_add(struct dfs *fs, struct housekept *k, struct err *err)
{
	(void)fs;
	(void)k;
	(void)err;
	return 0;
}

void __wrap_housekeeper_remove(struct dfs *fs, struct housekept *k);
void __wrap_housekeeper_remove(struct dfs *fs, struct housekept *k)
{
	(void)fs;
	(void)k;
}

int __wrap_deferred_sync_settle_file(struct dfs *fs, uint64_t file, struct err *err);
int __wrap_deferred_sync_settle_file(struct dfs *fs, uint64_t file, struct err *err)
{
	(void)fs;
	assert_int_equal(file, 7); /* of no other */
	settled++;
	return settle_rc ? err_set(err, settle_rc, "no data node can be reached") : 0;
}

/* ---- tests ---- */

static struct dfs fs = {.set = {.packet_size = 16 << 10,
				.window_packets = 8,
				.socket_timeout_ms = 60000,
				.rdma = RDMA_OFF}};
static uint8_t bytes[BIG_BLOCK];

static struct output *begin_sized(uint64_t block_size)
{
	const struct writer_opts o = {.file_id = 7,
				      .block_size = block_size,
				      .bpc = 512,
				      .replication = 1,
				      .crc_type = CRC_CRC32C};
	struct writer *w;

	memset(block, 0, sizeof(block));
	blocks = settled = 0;
	settle_rc = 0;
	complete = false;
	assert_int_equal(writer_new(&fs, "/f", &o, &w, NULL), 0);
	return &w->f;
}

static struct output *begin(void)
{
	return begin_sized(BLOCK);
}

static void put(struct output *f, size_t len)
{
	struct err err = ERR_INIT;

	assert_int_equal(output_write(f, bytes, len, &err), len);
}

static void end(struct output *f)
{
	struct err err = ERR_INIT;

	assert_int_equal(output_close(f, &err), 0);
	output_free(f);
	assert_true(complete);
}

static void expect_on_disk(unsigned n)
{
	assert_int_equal(blocks, n);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(block[i].synced, block[i].len);
}

static void hsync_syncs_the_blocks_before_it(void **state)
{
	const size_t sizes[] = {1,         BLOCK - 1,       BLOCK,    BLOCK + 1,
				2 * BLOCK, 2 * BLOCK + 100, 3 * BLOCK};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct output *f = begin();
		struct err err = ERR_INIT;

		put(f, sizes[i]);
		assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), 0);
		expect_on_disk((unsigned)((sizes[i] + BLOCK - 1) / BLOCK));
		end(f);
	}
}

/* A replica that loses its last name in a power cut is not as good as it was. */
static void what_was_synced_is_finished_on_the_disk(void **state)
{
	struct output *f = begin();
	struct err err = ERR_INIT;

	(void)state;
	put(f, 100);
	assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), 0);
	put(f, 100);
	end(f);
	assert_true(block[0].finished_synced);
	f = begin();
	put(f, 100);
	end(f); /* that is dfs.datanode.synconclose's to say */
	assert_true(block[0].finished && !block[0].finished_synced);
}

static void who_never_syncs_waits_for_no_disk(void **state)
{
	struct output *f = begin();
	struct err err = ERR_INIT;

	(void)state;
	f->no_hsync = true;
	put(f, 2 * BLOCK + 1);
	assert_true(block[1].finished && !block[0].synced && !block[1].synced);
	assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), 0); /* all the same: from here on */
	put(f, 2 * BLOCK);
	assert_true(block[2].finished_synced && block[3].finished_synced);
	end(f);
}

static void hsync_behind_an_early_close_waits_for_the_blocks_before(void **state)
{
	struct output *f = begin();
	struct err err = ERR_INIT;

	(void)state;
	f->after_early = true;
	put(f, 100);
	assert_int_equal(output_flush(f, 0, &err), 0);
	assert_int_equal(settled, 0); /* nobody has asked for the disk */
	settle_rc = -ETIMEDOUT;
	assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), -ETIMEDOUT);
	assert_int_equal(settled, 1);
	settle_rc = 0;
	put(f, 100); /* it has not failed for good */
	assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), 0);
	assert_int_equal(settled, 2);
	expect_on_disk(1);
	put(f, 100);
	assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), 0);
	assert_int_equal(settled, 2); /* once is enough */
	end(f);
}

static void no_data_node_at_all_is_no_lack_of_room(void **state)
{
	static const struct {
		const char *nodes;
		int rc;
	} rows[] = {
		{"0 datanode(s) running and no node(s) are excluded in this operation.",
		 -ETIMEDOUT},
		{"0 datanode(s) running and 3 node(s) are excluded in this operation.", -ETIMEDOUT},
		{"3 datanode(s) running and 3 node(s) are excluded in this operation.",
		 -ETIMEDOUT}, /* all of them have failed us */
		{"3 datanode(s) running and 2 node(s) are excluded in this operation.", -ENOSPC},
		{"1 datanode(s) running and no node(s) are excluded in this operation.", -ENOSPC},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct output *f = begin();
		struct err err = ERR_INIT;
		char text[300];

		snprintf(
			text, sizeof(text),
			"File /f could only be written to 0 of the 1 minReplication nodes. There are %s",
			rows[i].nodes);
		refusal = text;
		assert_int_equal(output_write(f, bytes, 1, &err), rows[i].rc);
		refusal = NULL;
		assert_int_equal(strstr(err.text, "no data node can be reached") != NULL,
				 rows[i].rc == -ETIMEDOUT);
		output_free(f);
	}
}

/* The only node is full since its last heartbeat: it says so itself, and is there. */
static void a_node_that_refuses_is_there(void **state)
{
	static const struct {
		int open_rc, rc;
	} rows[] = {{-EIO, -ENOSPC},
		    {-ETIMEDOUT, -ETIMEDOUT},
		    {-ECONNREFUSED, -ETIMEDOUT},
		    {-ECONNRESET, -ETIMEDOUT}};

	(void)state;
	fs.set.block_write_retries = 3;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct output *f = begin();
		struct err err = ERR_INIT;

		open_rc = rows[i].open_rc;
		refused_from = 1;
		refusal =
			"File /f could only be written to 0 of the 1 minReplication nodes. There are 1 datanode(s) running and 1 node(s) are excluded";
		assert_int_equal(output_write(f, bytes, 1, &err), rows[i].rc);
		refusal = NULL;
		open_rc = 0;
		refused_from = 0;
		output_free(f);
	}
	fs.set.block_write_retries = 0;
}

/* One flush while the acks are late; how many heartbeats the stream was given. */
static unsigned heartbeats_of_a_late_flush(const struct block_stream *ops)
{
	struct fake_stream *s;
	struct output *f = begin();
	struct err err = ERR_INIT;
	unsigned n;

	stream_ops = ops;
	put(f, 100);
	assert_int_equal(output_flush(f, 0, &err), 0);
	s = container_of(container_of(f, struct writer, f)->pipe.ws, struct fake_stream, base);
	put(f, 100);
	s->late = 3;
	assert_int_equal(output_flush(f, 0, &err), 0);
	n = s->heartbeats;
	container_of(f, struct writer, f)->pipe.sent_ns = 0; /* long ago */
	f->kept.keep_alive(&f->kept, clock_mono_ns());
	assert_int_equal(s->heartbeats, n ? n + 1 : 0);
	put(f, 100);
	assert_int_equal(output_flush(f, 0, &err), 0);
	end(f);
	stream_ops = &fake_ops;
	return n;
}

/* They would wait for an ack that does not come, and so would the flush. */
static void a_stream_that_keeps_alive_is_sent_no_heartbeats(void **state)
{
	(void)state;
	assert_int_equal(heartbeats_of_a_late_flush(&fake_alive_ops), 0);
	assert_int_equal(heartbeats_of_a_late_flush(&fake_ops), 3);
}

static void heartbeats_are_not_taken_along_to_the_next_stream(void **state)
{
	struct fake_stream s = {.base.ops = &fake_ops, .late = 100};
	Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	struct err err = ERR_INIT;
	struct pipeline p;
	int bad;

	(void)state;
	pipeline_init(&p, &fs, CRC_CRC32C, 512);
	p.ws = &s.base;
	p.lb = &lb;
	p.progress_ns = clock_mono_ns();
	/* data, heartbeat sent; data, heartbeat sent; data, heartbeat not sent */
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(pipeline_queue_empty(&p, false, true, &err), 0);
		if (i < 2)
			assert_int_equal(pipeline_pump(&p, &bad, &err), 0);
		assert_int_equal(pipeline_waited(&p, false, &err), 0);
		if (i < 2)
			assert_int_equal(pipeline_pump(&p, &bad, &err), 0);
	}
	assert_int_equal(s.heartbeats, 2);
	assert_int_equal(p.in_window, 6);
	pipeline_requeue(&p);
	assert_int_equal(p.in_window, 3);
	assert_true(list_empty(&p.unacked));
	for (int64_t i = 0; i < 3; i++) {
		struct packet *packet = container_of(list_pop(&p.queue), struct packet, link);

		assert_int_equal(packet->seqno, i);
		pipeline_drop_packet(&p, packet);
	}
	p.ws = NULL;
	pipeline_fini(&p);
}

static int setup(void **state)
{
	(void)state;
	packet_pool_init(&fs.packets);
	snprintf(fs.client_name, sizeof(fs.client_name), "client");
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 2654435761u >> 13);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	packet_pool_fini(&fs.packets);
	return 0;
}

static struct output *begin_with(enum rdma_mode mode, uint32_t wait_ms)
{
	struct output *f = begin();

	fs.set.rdma = mode;
	fs.set.rdma_wait_ms = wait_ms;
	fs.count.pipeline_recoveries = 0;
	stamps = by_rdma = 0;
	dry = false;
	return f;
}

static void expect_bytes(size_t len)
{
	for (size_t at = 0; at < len; at += BLOCK)
		assert_memory_equal(block[at / BLOCK].bytes, bytes + at,
				    len - at < BLOCK ? len - at : BLOCK);
}

static void a_flush_leaves_no_packet_behind(void **state)
{
	struct output *f = begin();
	const struct writer *w = container_of(f, struct writer, f);
	struct err err = ERR_INIT;
	size_t len = 0;

	(void)state;
	for (size_t n = 1; len < 20000; n = n * 7 % 1031) { /* mostly inside chunks */
		assert_int_equal(output_write(f, bytes + len, n, &err), n);
		assert_int_equal(output_flush(f, 0, &err), 0);
		assert_int_equal(w->pipe.in_window, 0);
		len += n;
	}
	expect_bytes(len);
	assert_int_equal(output_write(f, bytes, 100, &err), 100);
	assert_int_equal(output_flush(f, DFS_SYNC_END_BLOCK, &err), 0);
	/* of the chunk before nothing goes along */
	assert_int_equal(output_write(f, bytes, 1000, &err), 1000);
	end(f);
	assert_int_equal(block[0].len, len + 100);
	assert_int_equal(block[1].len, 1000);
	assert_memory_equal(block[1].bytes, bytes, 1000);
}

static void a_write_without_memory_fails_and_loses_nothing(void **state)
{
	struct output *f = begin_with(RDMA_REQUIRE, 20);
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(output_write(f, bytes, 100, &err), 100);
	dry = true;
	assert_int_equal(output_flush(f, 0, &err), -ENOBUFS);
	assert_non_null(strstr(err.text, "dfs.rdma.pool.wait"));
	assert_int_equal(output_flush(f, 0, &err), -ENOBUFS);
	/* for that there is room */
	assert_int_equal(output_write(f, bytes + 100, 1000, &err), 1000);
	dry = false;
	assert_int_equal(output_flush(f, 0, &err), 0);
	assert_int_equal(block[0].len, 1100);
	dry = true; /* until the block is full */
	assert_int_equal(output_write(f, bytes + 1100, BLOCK - 1100, &err), BLOCK - 1100);
	assert_int_equal(output_write(f, bytes + BLOCK, 700, &err), -ENOBUFS);
	assert_int_equal(output_write(f, bytes + BLOCK, 700, &err), -ENOBUFS);
	assert_int_equal(output_length(f), BLOCK);
	dry = false;
	assert_int_equal(output_write(f, bytes + BLOCK, 700, &err), 700);
	end(f);
	assert_int_equal(blocks, 2);
	assert_int_equal(block[0].len, BLOCK);
	assert_int_equal(block[1].len, 700);
	expect_bytes(BLOCK + 700);
	assert_int_equal(fs.count.pipeline_recoveries, 0);
}

/* Others of the same file may have kept the caller for long before this one asks for memory. */
static void a_wait_for_memory_begins_when_it_is_asked_for(void **state)
{
	struct fake_stream s = {.base.ops = &fake_alive_ops};
	Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	struct err err = ERR_INIT;
	struct pipeline p;
	int bad;

	(void)state;
	fs.set.rdma_wait_ms = 60000;
	pipeline_init(&p, &fs, CRC_CRC32C, 512);
	p.ws = &s.base;
	p.lb = &lb;
	p.progress_ns = clock_mono_ns() - 100 * NS_PER_S;
	/* the wait of before is forgotten once its packet is sent */
	for (unsigned i = 0; i < 2; i++) {
		struct packet *packet = pipeline_new_packet(&p, 0, 512);

		assert_int_equal(packet_append(packet, CRC_CRC32C, 512, BLOCK, bytes, 512), 512);
		pipeline_queue(&p, packet);
		dry = true;
		assert_int_equal(pipeline_pump(&p, &bad, &err), 1);
		assert_int_equal(pipeline_wait(&p, true, &err), 0);
		p.in_line_since_ns -= 61 * NS_PER_S;
		assert_int_equal(pipeline_wait(&p, true, &err), i == 0 ? -ENOBUFS : 0);
		dry = false;
		assert_int_equal(pipeline_pump(&p, &bad, &err), 0);
		assert_int_equal(p.in_line_since_ns, 0);
	}
	p.ws = NULL;
	p.lb = NULL;
	pipeline_fini(&p);
}

static void where_rdma_need_not_be_the_block_goes_on_without(void **state)
{
	struct output *f = begin_with(RDMA_AUTO, 20);
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(output_write(f, bytes, 5000, &err), 5000);
	dry = true;
	assert_int_equal(output_flush(f, 0, &err), 0);
	assert_int_equal(stamps, 1);
	assert_int_equal(by_rdma, 1);
	dry = false; /* for the next block */
	assert_int_equal(output_write(f, bytes + 5000, BLOCK, &err), BLOCK);
	end(f);
	assert_int_equal(blocks, 2);
	assert_int_equal(by_rdma, 2);
	expect_bytes(BLOCK + 5000);
	assert_int_equal(fs.count.pipeline_recoveries, 0);
}

static void give_first(struct output *f)
{
	Hd__AddBlockResponseProto *m;

	add_block(NULL, &m);
	writer_give_first(container_of(f, struct writer, f), m->block);
	m->block = NULL;
	pb_free(m);
}

/* All of a small file is queued as it is closed. Its first node fails, and for the next one there
 * is no memory. */
static void a_block_of_which_nothing_was_sent_is_begun_again(void **state)
{
	struct output *f = begin_with(RDMA_AUTO, 20);
	struct err err = ERR_INIT;

	(void)state;
	give_first(f);
	assert_int_equal(output_write(f, bytes, 1000, &err), 1000);
	dry = true;
	if (output_close(f, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(blocks, 3);
	assert_int_equal(stamps, 0);
	assert_int_equal(by_rdma, 1);
	assert_int_equal(f->blamed.failures, 1); /* that of the first node */
	output_free(f);
	assert_int_equal(block[2].len, 1000);
	assert_memory_equal(block[2].bytes, bytes, 1000);
	assert_true(complete && block[2].finished && !block[1].finished);
}

static void lent_no_more(void *arg)
{
	*(bool *)arg = true;
}

/* No longer than a packet, but it came in pieces: the first node fails when one of the two packets
 * is acknowledged. The replica of the next one is whole, or has that packet only. */
static void a_first_block_of_two_packets_survives_a_node_that_fails_between(void **state)
{
	const size_t len = 300u << 10, rest = 100;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		const struct fake_stream dying = {
			.base.ops = &fake_dying_ops, .late = 1, .dies = true, .full = i};
		struct output *f;
		struct err err = ERR_INIT;
		bool back = false;

		fs.set.packet_size = BIG_BLOCK + (16u << 10);
		nodes = 2;
		f = begin_sized(BIG_BLOCK);
		give_first(f);
		first_stream = &dying;
		assert_int_equal(output_lend(f, bytes, len, lent_no_more, &back, &err), len);
		assert_int_equal(output_write(f, bytes + len, rest, &err), rest);
		if (output_close(f, &err) < 0)
			fail_msg("%s", err.text);
		output_free(f);
		first_stream = NULL;
		fs.set.packet_size = 16u << 10;
		nodes = 1;
		assert_true(complete && back && block[0].finished);
		assert_int_equal(blocks, 1);
		assert_int_equal(block[0].len, len + rest);
		assert_memory_equal(block[0].bytes, bytes, len + rest);
	}
}

/* Of two nodes @who lies. */
static struct output *begin_with_liar(const char *who, bool so)
{
	fs.set.block_write_retries = 3;
	fs.set.exclude_ms = 600000;
	nodes = 2;
	chooses = true;
	liar = who;
	pretends = so;
	return begin();
}

static void no_liars(void)
{
	fs.set.block_write_retries = fs.set.exclude_ms = 0;
	nodes = 1;
	chooses = pretends = false;
	liar = NULL;
}

/* The liar is the last of its chain, so the node before it seems to be the one that fails. */
static void a_node_that_passes_on_a_lie_has_a_second_chance(void **state)
{
	struct output *f = begin_with_liar("1", false);
	struct err err = ERR_INIT;

	(void)state;
	if (output_write(f, bytes, 2 * BLOCK, &err) < 0)
		fail_msg("%s", err.text);
	end(f);
	assert_int_equal(block[blocks - 1].len, BLOCK);
	/* both nodes, the liar, the other one, and so the second block */
	assert_int_equal(blocks, 4);
	no_liars();
}

/* The first node has failed. The second one passes on what the third one says, and somebody relies
 * on what the two have. */
static void a_repair_calls_back_who_passed_on_a_lie(void **state)
{
	struct output *f = begin_with_liar("2", false);
	struct err err = ERR_INIT;

	(void)state;
	liar = NULL;
	nodes = 3;
	assert_int_equal(output_write(f, bytes, 1000, &err), 1000);
	assert_int_equal(output_flush(f, 0, &err), 0);
	liar = "2";
	container_of(container_of(f, struct writer, f)->pipe.ws, struct fake_stream, base)->lies =
		true;
	assert_int_equal(output_write(f, bytes + 1000, 1000, &err), 1000);
	if (output_flush(f, 0, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(container_of(f, struct writer, f)->pipe.lb->n_locs, 1);
	assert_string_equal(container_of(f, struct writer, f)->pipe.lb->locs[0]->id->datanodeuuid,
			    "1");
	end(f);
	expect_bytes(2000);
	assert_int_equal(blocks, 1);
	no_liars();
}

/* The second node is told to recover what it never had, so both nodes of the chain seem to fail. */
static void a_block_of_which_nothing_is_acknowledged_is_begun_elsewhere(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct output *f = begin_with_liar("0", true);
		const size_t len = BLOCK + 1000;

		if (output_write(f, bytes, len, &err) < 0 || (i && output_flush(f, 0, &err) < 0))
			fail_msg("%s", err.text);
		end(f);
		assert_int_equal(blocks, 3); /* the liar's; and two of the other node */
		assert_false(block[0].finished);
		assert_memory_equal(block[1].bytes, bytes, BLOCK);
		assert_int_equal(block[2].len, len - BLOCK);
		assert_memory_equal(block[2].bytes, bytes + BLOCK, len - BLOCK);
	}
	no_liars();
}

static void fail_behind_a_flush(int rc, int expected)
{
	struct output *f = begin_with_liar("0", false);
	struct err err = ERR_INIT;

	liar = NULL;
	recovery_rc = rc;
	assert_int_equal(output_write(f, bytes, 1000, &err), 1000);
	assert_int_equal(output_flush(f, 0, &err), 0); /* somebody relies on it */
	container_of(container_of(f, struct writer, f)->pipe.ws, struct fake_stream, base)->lies =
		true;
	pretends = true;
	liar = "0";
	assert_int_equal(output_write(f, bytes, 1000, &err), 1000);
	assert_int_equal(output_flush(f, 0, &err), expected);
	assert_non_null(strstr(err.text, "the honest node closed"));
	assert_non_null(strstr(err.text, "the liar acknowledges"));
	assert_int_equal(blocks, 1);
	output_free(f);
	recovery_rc = -ECONNRESET;
	no_liars();
}

static void all_nodes_failed_names_the_first_one_too(void **state)
{
	(void)state;
	fail_behind_a_flush(-ECONNRESET, -EIO);
	fail_behind_a_flush(-ECONNREFUSED, -ETIMEDOUT); /* it may be back */
}

/* Not only of the last node: what is amiss with the others a person must know, too. */
static void who_gives_up_says_what_the_first_node_did(void **state)
{
	const int then[] = {-ENOTSUP, -ECONNREFUSED};

	(void)state;
	fs.set.block_write_retries = 3;
	for (size_t i = 0; i < 2; i++) {
		struct output *f = begin();
		struct err err = ERR_INIT;

		refusal = "File /f could only be written to 0 of the 1 minReplication nodes.";
		refused_from = 2;
		open_rc = -ETIMEDOUT;
		then_rc = then[i];
		assert_true(output_write(f, bytes, 2 * BLOCK, &err) < 0);
		assert_non_null(strstr(err.text, "the node refuses, or nobody hears"));
		assert_non_null(
			strstr(err.text, then[i] == -ENOTSUP ? "it has no RDMA" : "could only be"));
		assert_true(then[i] != -ENOTSUP || err.rc == -ETIMEDOUT);
		refusal = NULL;
		open_rc = then_rc = 0;
		refused_from = 0;
		output_free(f);
	}
	fs.set.block_write_retries = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hsync_syncs_the_blocks_before_it),
		cmocka_unit_test(what_was_synced_is_finished_on_the_disk),
		cmocka_unit_test(who_never_syncs_waits_for_no_disk),
		cmocka_unit_test(hsync_behind_an_early_close_waits_for_the_blocks_before),
		cmocka_unit_test(no_data_node_at_all_is_no_lack_of_room),
		cmocka_unit_test(a_node_that_refuses_is_there),
		cmocka_unit_test(a_node_that_passes_on_a_lie_has_a_second_chance),
		cmocka_unit_test(a_repair_calls_back_who_passed_on_a_lie),
		cmocka_unit_test(a_block_of_which_nothing_is_acknowledged_is_begun_elsewhere),
		cmocka_unit_test(all_nodes_failed_names_the_first_one_too),
		cmocka_unit_test(who_gives_up_says_what_the_first_node_did),
		cmocka_unit_test(a_stream_that_keeps_alive_is_sent_no_heartbeats),
		cmocka_unit_test(heartbeats_are_not_taken_along_to_the_next_stream),
		cmocka_unit_test(a_flush_leaves_no_packet_behind),
		cmocka_unit_test(a_write_without_memory_fails_and_loses_nothing),
		cmocka_unit_test(a_wait_for_memory_begins_when_it_is_asked_for),
		cmocka_unit_test(a_block_of_which_nothing_was_sent_is_begun_again),
		cmocka_unit_test(where_rdma_need_not_be_the_block_goes_on_without),
		cmocka_unit_test(a_first_block_of_two_packets_survives_a_node_that_fails_between),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
