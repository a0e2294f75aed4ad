/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: striped_writer_test_fixture - what the tests of the striped writer share: streams and
 * a NameNode that are fakes, and the judgement of what they were given
 *
 * The linker puts the fakes in place of the real ones. Included by one test program each, which
 * owns what is static here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "client/src/fs/answer_test_fixture.h"
#include "client/src/striped/striped_writer.h"
#include "client/src/write/housekeeper_test_fixture.h"
#include "common/wire/pb.h"

#define CELL (256u << 10)
#define BLOCK (2 * CELL)
#define K 3u
#define M 2u
#define UNITS (K + M)
#define ROW (K * CELL)
#define GROUP (K * BLOCK)
#define GROUPS_MAX 32
#define NODES 12
#define SETUP_ASKS 3 /* how often a stream is asked until it is set up */
#define SIZE_MAX_HERE (2 * GROUP + ROW + 100000)

enum when { NEVER, AT_OPEN, AT_PACKET, AT_LAST, AT_REOPEN };

struct fake_unit {
	uint8_t *data;
	uint64_t len, stamp;
	unsigned node, opened;
	bool final, synced;
};

static struct {
	struct fake_unit unit[GROUPS_MAX][UNITS];
	unsigned groups;
	uint64_t stamp; /* of the last group, as the NameNode has it */
	uint64_t next_stamp;
	uint32_t excluded;                /* nodes of the last addBlock */
	uint32_t holes[GROUPS_MAX];       /* of its last updatePipeline */
	unsigned updates[GROUPS_MAX];     /* its updatePipelines */
	uint64_t updated_len[GROUPS_MAX]; /* as the last of them says */
	uint64_t ended[GROUPS_MAX];       /* as `previous` or complete() says */
	uint64_t stamp_before;            /* of the group before the last one */
	bool parked;                      /* an empty group without nodes is behind the last one */
	bool complete, released;
	bool taken;             /* another client has taken the lease */
	bool no_right;          /* to write the file: recoverLease is refused */
	int router;             /* what nn_is_router() answers */
	uint64_t at_path;       /* inode of the file that has the path now; 0: none */
	unsigned limit;         /* of groups, 0: none */
	unsigned asked_release; /* so often recoverLease was called */
	unsigned nodes;         /* the NameNode has so many */
	unsigned undone;        /* so often an open group lost its nodes again */
	unsigned undo_heals;    /* when it was so often, nothing fails any more */
	unsigned undo_leaves;   /* nodes from then on; 0: all */
	unsigned refusals;      /* for want of nodes, until UNITS are there; 0: for ever */
	/* this file, 0: none; when something was in it twice, nothing fails any more */
	int log;
	unsigned told; /* so often something was in it */
	/* what fails */
	uint32_t lost_opens; /* units whose node is asked by RDMA, and not heard, */
	bool begun;          /* and has begun the unit: it refuses to do so again */
	uint32_t fail;       /* units of the first group, */
	enum when when;
	unsigned fail_last;   /* and of those behind it, up to this one */
	uint32_t reopen_fail; /* and these of it, later */
	uint32_t hang;        /* these of it take everything, and answer nothing */
	uint32_t dry;         /* units that get no memory for packets, */
	unsigned dry_sends;   /* or all of them not for so many attempts */
	bool dry_once;        /* it comes when they are polled for, and wakes nobody */
	/* the second new stamp of a group and later ones come with one token less than units */
	bool few_tokens;
} nn;

struct fake_stream {
	struct wstream base;
	struct fake_unit *u;
	unsigned group, unit, packets;
	struct ack ack[64];
	unsigned acks, taken;
	unsigned asked; /* whether it is set up */
	bool refuses;
};

/* ---- streams ---- */

static inline bool fails(const struct fake_stream *s, enum when now)
{
	return s->group <= nn.fail_last && nn.when == now && nn.fail & 1u << s->unit;
}

static inline bool is_hung(const struct fake_stream *s)
{
	return s->group == 0 && nn.hang & 1u << s->unit;
}

static inline bool is_dry(const struct fake_stream *s)
{
	return nn.dry & 1u << s->unit;
}

static inline int fake_send(struct wstream *ws, struct packet *p, struct err *err)
{
	struct fake_stream *s = container_of(ws, struct fake_stream, base);

	assert_true(s->asked >= SETUP_ASKS && !s->refuses);
	s->base.in_line = p->len && (is_dry(s) || nn.dry_sends);
	if (s->base.in_line) {
		nn.dry_sends -= nn.dry_sends > 0;
		return 0;
	}
	if (is_hung(s))
		return 1;
	if (p->len == 0 && !p->last && p->offset == 0) { /* a heartbeat */
		s->ack[s->acks++ % 64] = (struct ack){.seqno = p->seqno, .bad = -1};
		return 1;
	}
	if (fails(s, p->last ? AT_LAST : AT_PACKET) && (p->last || s->packets == 1))
		return err_set(err, -ECONNRESET, "it died");
	assert_int_equal(p->crc_len, crc_bytes(CRC_CRC32C, p->len, 512));
	assert_int_equal(p->offset, s->u->len);
	memcpy(s->u->data + p->offset, p->data, p->len);
	s->u->len += p->len;
	s->u->final = p->last;
	s->u->synced = p->last && p->sync;
	s->packets++;
	s->ack[s->acks++ % 64] = (struct ack){.seqno = p->seqno, .bad = -1};
	return 1;
}

static inline int fake_next_ack(struct wstream *ws, struct ack *ret, struct err *err)
{
	struct fake_stream *s = container_of(ws, struct fake_stream, base);

	(void)err;
	if (s->taken == s->acks)
		return 0;
	*ret = s->ack[s->taken++ % 64];
	return 1;
}

/* Takes its time. */
static inline int fake_opened(struct wstream *ws, uint64_t *ret_until_ns, int *ret_bad,
			      struct err *err)
{
	struct fake_stream *s = container_of(ws, struct fake_stream, base);

	*ret_until_ns = UINT64_MAX;
	*ret_bad = 0;
	if (++s->asked < SETUP_ASKS)
		return 0;
	return s->refuses ? err_set(err, -ECONNREFUSED, "nobody is there") : 1;
}

static inline int fake_poll(struct wstream *ws, bool want_send, struct pollfd *ret)
{
	const struct fake_stream *s = container_of(ws, struct fake_stream, base);
	const bool dry = is_dry(s);

	(void)want_send;
	*ret = (struct pollfd){.fd = -1}; /* never ready */
	if (dry && nn.dry_once)
		nn.dry = 0;
	return !is_hung(s) && !dry;
}

static inline void fake_close(struct wstream *ws)
{
	free(container_of(ws, struct fake_stream, base));
}

static const struct block_stream fake_stream = {
	.opened = fake_opened,
	.send = fake_send,
	.next_ack = fake_next_ack,
	.poll_write = fake_poll,
	.close_write = fake_close,
};

/* As it goes into the message to the node: its memory must be there. */
static inline void read_token(const Hc__TokenProto *t)
{
	uint8_t *text;
	size_t len;

	assert_int_equal(pb_pack(t, &text, &len), 0);
	free(text);
}

int __wrap_stream_start_write(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
			      bool *ret_opened, int *ret_bad, struct err *err);
int __wrap_stream_start_write(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
			      bool *ret_opened, int *ret_bad, struct err *err)
{
	struct fake_stream *s;
	const bool lost = w->stage == DT_SETUP_CREATE &&
			  nn.lost_opens & 1u << ec_id_unit((int64_t)w->block->blockid);

	(void)fs;
	*ret_bad = lost && !w->by_tcp ? -1 : 0;
	if (*ret_bad < 0)
		return err_set(err, -ECONNRESET, "the connection broke");
	s = calloc(1, sizeof(*s));
	assert_non_null(s);
	s->refuses = lost && nn.begun;
	s->base.ops = &fake_stream;
	s->unit = ec_id_unit((int64_t)w->block->blockid);
	s->group = nn.groups - 1;
	s->u = &nn.unit[s->group][s->unit];
	assert_int_equal(w->lb->n_locs, 1);
	read_token(w->lb->blocktoken);
	assert_int_equal(w->block->numbytes, BLOCK);
	assert_int_equal(w->lb->locs[0]->id->xferport, s->u->node + 1);
	if (w->stage == DT_SETUP_CREATE) {
		assert_int_equal(s->u->opened, 0);
		s->u->stamp = w->block->generationstamp;
	} else {
		assert_int_equal(w->stage, DT_SETUP_STREAMING_RECOVERY);
		assert_true(w->latest_gs > s->u->stamp);
		assert_int_equal(w->block->generationstamp, nn.stamp);
		assert_int_equal(w->min_rcvd, s->u->len); /* all was drained */
		assert_int_equal(w->max_rcvd, s->u->len);
	}
	if (fails(s, s->u->opened ? NEVER : AT_OPEN) ||
	    (s->u->opened && nn.reopen_fail & 1u << s->unit)) {
		if (s->unit % 2) { /* half of them fail at once */
			free(s);
			return err_set(err, -ECONNREFUSED, "nobody is there");
		}
		s->refuses = true;
	} else if (!s->refuses && s->u->opened++) {
		s->u->stamp = w->latest_gs;
	}
	*ret_opened = s->unit == 0 && !s->refuses; /* RDMA */
	s->asked = *ret_opened ? SETUP_ASKS : 0;
	*ret = &s->base;
	return 0;
}

/* ---- the NameNode ---- */

static inline void note_end(const Hd__ExtendedBlockProto *b)
{
	if (!b)
		return;
	assert_int_equal(b->generationstamp, nn.stamp);
	nn.ended[nn.groups - 1] = b->numbytes;
}

struct fake_nodes {
	char uuid[UNITS][24], storage[UNITS][24];
	Hd__DatanodeIDProto id[UNITS];
	Hd__DatanodeInfoProto info[UNITS], *locs[UNITS];
	char *storages[UNITS];
	Hd__StorageTypeProto types[UNITS];
	uint8_t index[UNITS];
	Hc__TokenProto token[UNITS], *tokens[UNITS];
	Hd__ExtendedBlockProto b;
	Hd__LocatedBlockProto lb;
};

static inline void add_node(struct fake_nodes *f, unsigned unit, unsigned node)
{
	const size_t n = f->lb.n_locs++;

	hd__datanode_idproto__init(&f->id[n]);
	hd__datanode_info_proto__init(&f->info[n]);
	snprintf(f->uuid[n], sizeof(f->uuid[n]), "node-%u", node);
	snprintf(f->storage[n], sizeof(f->storage[n]), "storage-%u", node);
	f->id[n].ipaddr = f->id[n].hostname = (char *)"10.0.0.1";
	f->id[n].datanodeuuid = f->uuid[n];
	f->id[n].xferport = node + 1;
	f->info[n].id = &f->id[n];
	f->locs[n] = &f->info[n];
	f->storages[n] = f->storage[n];
	f->index[n] = (uint8_t)unit;
}

static inline void located_init(struct fake_nodes *f)
{
	memset(f, 0, sizeof(*f));
	hd__extended_block_proto__init(&f->b);
	hd__located_block_proto__init(&f->lb);
	hc__token_proto__init(&f->token[0]);
	f->token[0].kind = f->token[0].service = (char *)"";
	f->b.poolid = (char *)"BP-1";
	f->b.blockid = (uint64_t)(EC_GROUP_ID_FIRST + 16 * (int64_t)nn.groups);
	f->b.generationstamp = nn.next_stamp;
	f->lb.b = &f->b;
	f->lb.blocktoken = &f->token[0];
	f->lb.has_blockindices = 1;
	f->lb.locs = f->locs;
	f->lb.storageids = f->storages;
	f->lb.storagetypes = f->types;
	f->lb.blocktokens = f->tokens;
	f->lb.blockindices.data = f->index;
}

/* The tokens of UNITS units; what is in them tells the stamp. */
static inline void add_tokens(struct fake_nodes *f, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		f->token[i] = f->token[0];
		f->tokens[i] = &f->token[i];
		f->index[i] = (uint8_t)i;
	}
	f->lb.n_blocktokens = f->lb.blockindices.len = n;
}

static inline int add_block(const Hd__AddBlockRequestProto *q, void *ret, struct err *err)
{
	Hd__AddBlockResponseProto m = HD__ADD_BLOCK_RESPONSE_PROTO__INIT;
	struct fake_nodes f;
	unsigned unit = 0;

	note_end(q->previous);
	assert_int_equal(!!q->previous, nn.groups > 0);
	nn.excluded = 0;
	for (size_t i = 0; i < q->n_excludenodes; i++)
		nn.excluded |= 1u << (q->excludenodes[i]->id->xferport - 1);
	assert_true(nn.groups < GROUPS_MAX);
	if (nn.limit && nn.groups == nn.limit) {
		err_set(err, -EDQUOT, "The quota is exceeded");
		snprintf(err->remote, sizeof(err->remote), "DSQuotaExceededException");
		return err->rc;
	}
	located_init(&f);
	for (unsigned node = 0; node < nn.nodes && unit < UNITS; node++) {
		if (nn.excluded & 1u << node)
			continue;
		nn.unit[nn.groups][unit].node = node;
		free(nn.unit[nn.groups][unit].data); /* of a call that found too few */
		nn.unit[nn.groups][unit].data = calloc(1, BLOCK);
		add_node(&f, unit++, node);
	}
	if (unit < K && nn.refusals && !--nn.refusals) {
		nn.nodes = UNITS;
		nn.undo_leaves = 0;
	}
	if (unit < K)
		return err_set(err, -EREMOTEIO,
			       "could only be written to %u of the 3 required nodes", unit);
	f.lb.n_storageids = f.lb.n_storagetypes = f.lb.n_locs;
	add_tokens(&f, unit);
	nn.groups++;
	nn.parked = false;
	nn.stamp_before = nn.stamp;
	nn.stamp = nn.next_stamp++;
	nn.updates[nn.groups - 1] = 0;
	nn.holes[nn.groups - 1] = 0;
	m.block = &f.lb;
	answer(&hd__add_block_response_proto__descriptor, &m, ret);
	return 0;
}

static inline void file_info(const Hd__GetFileInfoRequestProto *q, void *ret)
{
	Hd__GetFileInfoResponseProto m = HD__GET_FILE_INFO_RESPONSE_PROTO__INIT;
	Hd__HdfsFileStatusProto st = HD__HDFS_FILE_STATUS_PROTO__INIT;
	Hd__FsPermissionProto perm = HD__FS_PERMISSION_PROTO__INIT;
	static char nobody[] = "nobody";

	assert_string_equal(q->src, "/f");
	st.filetype = HD__HDFS_FILE_STATUS_PROTO__FILE_TYPE__IS_FILE;
	st.permission = &perm;
	st.owner = st.group = nobody;
	st.has_fileid = 1;
	st.fileid = nn.at_path;
	m.fs = nn.at_path ? &st : NULL;
	answer(&hd__get_file_info_response_proto__descriptor, &m, ret);
}

static inline void new_stamp(const Hd__UpdateBlockForPipelineRequestProto *q, void *ret)
{
	Hd__UpdateBlockForPipelineResponseProto m =
		HD__UPDATE_BLOCK_FOR_PIPELINE_RESPONSE_PROTO__INIT;
	struct fake_nodes f;

	assert_int_equal(q->block->generationstamp, nn.stamp);
	located_init(&f);
	f.b.generationstamp = nn.next_stamp++;
	f.b.blockid = q->block->blockid;
	add_tokens(&f, UNITS);
	/* as 3.4.2 answers when the group began with fewer nodes */
	for (unsigned u = 0; u < UNITS; u++)
		f.lb.n_blocktokens -= !nn.unit[nn.groups - 1][u].data;
	f.lb.n_blocktokens -= nn.few_tokens && f.b.generationstamp > nn.stamp + 1;
	m.block = &f.lb;
	answer(&hd__update_block_for_pipeline_response_proto__descriptor, &m, ret);
}

static inline void update_pipeline(const Hd__UpdatePipelineRequestProto *q)
{
	uint32_t holes = 0;

	assert_int_equal(q->oldblock->generationstamp, nn.stamp);
	assert_int_equal(q->n_newnodes, UNITS);
	assert_int_equal(q->n_storageids, UNITS);
	for (unsigned u = 0; u < UNITS; u++) {
		const unsigned node = nn.unit[nn.groups - 1][u].node;
		char want[24];

		snprintf(want, sizeof(want), "storage-%u", node);
		if (strcmp(q->newnodes[u]->datanodeuuid, "null") == 0) {
			holes |= 1u << u;
			assert_string_equal(q->storageids[u], "");
			continue;
		}
		assert_int_equal(q->newnodes[u]->xferport, node + 1);
		assert_string_equal(q->storageids[u], want);
	}
	/* as if the group were not there: addBlock gives it out again */
	if (holes == (1u << UNITS) - 1) {
		assert_int_equal(q->newblock->numbytes, 0);
		assert_int_equal(nn.updated_len[nn.groups - 1], 0); /* or it would refuse */
		for (unsigned u = 0; u < UNITS; u++)
			nn.undone += nn.unit[nn.groups - 1][u].opened > 0;
		nn.told += nn.log && lseek(nn.log, 0, SEEK_END) > 0;
		if ((nn.undo_heals && nn.undone >= nn.undo_heals) || nn.told == 2)
			nn.fail = 0;
		for (unsigned u = 0; u < UNITS; u++)
			free(nn.unit[nn.groups - 1][u].data);
		memset(nn.unit[--nn.groups], 0, sizeof(nn.unit[0]));
		nn.stamp = nn.stamp_before;
		nn.parked = true;
		nn.nodes = nn.undo_leaves ?: nn.nodes;
		return;
	}
	nn.stamp = q->newblock->generationstamp;
	nn.updated_len[nn.groups - 1] = q->newblock->numbytes;
	nn.updates[nn.groups - 1]++;
	nn.holes[nn.groups - 1] = holes;
}

int __wrap_nn_call(struct dfs *fs, const char *method, const ProtobufCMessage *req,
		   const ProtobufCMessageDescriptor *reply, void *ret, struct err *err);
int __wrap_nn_call(struct dfs *fs, const char *method, const ProtobufCMessage *req,
		   const ProtobufCMessageDescriptor *reply, void *ret, struct err *err)
{
	Hd__CompleteResponseProto done = HD__COMPLETE_RESPONSE_PROTO__INIT;
	Hd__RecoverLeaseResponseProto released = HD__RECOVER_LEASE_RESPONSE_PROTO__INIT;

	(void)fs;
	(void)reply;
	if (strcmp(method, "addBlock") == 0)
		return add_block((const void *)req, ret, err);
	if (strcmp(method, "updateBlockForPipeline") == 0) {
		new_stamp((const void *)req, ret);
	} else if (strcmp(method, "getFileInfo") == 0) {
		file_info((const void *)req, ret);
	} else if (strcmp(method, "updatePipeline") == 0) {
		update_pipeline((const void *)req);
	} else if (strcmp(method, "fsync") == 0) {
		const Hd__FsyncRequestProto *q = (const void *)req;

		assert_int_equal(q->fileid, 7);
		assert_false(q->has_lastblocklength);
		if (nn.taken)
			return err_set(err, -ESTALE, "No lease on /f");
	} else if (strcmp(method, "recoverLease") == 0) {
		const Hd__RecoverLeaseRequestProto *q = (const void *)req;

		assert_true(nn.parked); /* nothing but this drops the empty group */
		assert_false(nn.taken);
		assert_string_equal(q->src, nn.router ? "/f" : "/.reserved/.inodes/7");
		assert_true(!nn.router || nn.at_path == 7); /* another file's lease is not ended */
		nn.asked_release++;
		if (nn.no_right)
			return err_set(err, -EACCES, "Permission denied: user=alice, access=WRITE");
		nn.complete = nn.released = true;
		released.result = true;
		answer(&hd__recover_lease_response_proto__descriptor, &released, ret);
	} else {
		assert_string_equal(method, "complete");
		assert_false(nn.parked);
		note_end(((const Hd__CompleteRequestProto *)(const void *)req)->last);
		nn.complete = true;
		done.result = true;
		answer(&hd__complete_response_proto__descriptor, &done, ret);
	}
	return 0;
}

int __wrap_nn_is_router(struct dfs *fs, struct err *err);
int __wrap_nn_is_router(struct dfs *fs, struct err *err)
{
	(void)fs;
	return nn.router < 0 ? err_set(err, nn.router, "nobody answers") : nn.router;
}

/* ---- writing and judging ---- */

static inline uint64_t sum_of_groups(void)
{
	uint64_t sum = 0;

	for (unsigned g = 0; g < nn.groups; g++)
		sum += nn.ended[g];
	return sum;
}

static uint8_t *content;
static uint64_t counted; /* short groups, of the last put */
static bool spare_unit;

static inline void begin(uint32_t fail, enum when when)
{
	for (unsigned g = 0; g < GROUPS_MAX; g++)
		for (unsigned u = 0; u < UNITS; u++)
			free(nn.unit[g][u].data);
	memset(&nn, 0, sizeof(nn));
	nn.next_stamp = 1001;
	nn.nodes = NODES;
	nn.fail = fail;
	nn.when = when;
}

/* @len bytes in pieces of every kind, with a flush behind every @flush of them. 0, or the first
 * failure. */
static inline int put_patiently(uint64_t len, unsigned flush, uint32_t socket_ms, struct err *err)
{
	static char client[] = "client";
	struct dfs fs = {.set = {.packet_size = 1 << 16,
				 .socket_timeout_ms = socket_ms,
				 .exclude_ms = 600000,
				 .rdma = RDMA_OFF}};
	struct striped_opts o = {
		.file_id = 7, .block_size = BLOCK, .bpc = 512, .crc_type = CRC_CRC32C};
	struct striped_writer *w;
	uint64_t at = 0;
	unsigned pieces = 0;
	ssize_t n = 0;
	int rc;

	packet_pool_init(&fs.packets);
	memcpy(fs.client_name, client, sizeof(client));
	assert_int_equal(ec_policy_make(EC_CODEC_RS, K, M, CELL, 64, &o.policy, err), 0);
	assert_int_equal(striped_writer_new(&fs, "/f", &o, &w, err), 0);
	w->f.spare_unit = spare_unit;
	for (uint64_t piece = 1; at < len && n >= 0; piece = piece * 3 % 777777 + 1) {
		const uint64_t left = len - at;

		n = output_write(&w->f, content + at, piece < left ? piece : left, err);
		at += n > 0 ? (uint64_t)n : 0;
		if (flush && n > 0 && ++pieces % flush == 0 &&
		    output_flush(&w->f, DFS_SYNC_DISK, err) < 0)
			n = -1;
		if (flush && n > 0 && pieces % flush == 0) {
			assert_true(nn.parked);
			assert_int_equal(sum_of_groups(), at); /* committed, all of it */
			for (unsigned u = 0; u < UNITS; u++)   /* Java's nodes go by the flag */
				assert_int_equal(nn.unit[nn.groups - 1][u].synced,
						 nn.unit[nn.groups - 1][u].final);
		}
	}
	rc = n < 0 ? (int)n : output_close(&w->f, err);
	if (rc == 0)
		assert_int_equal(output_length(&w->f), len);
	output_free(&w->f);
	packet_pool_fini(&fs.packets);
	counted = fs.count.short_groups;
	return rc;
}

static inline int put_flushed(uint64_t len, unsigned flush, struct err *err)
{
	return put_patiently(len, flush, 60000, err);
}

static inline int put(uint64_t len, struct err *err)
{
	return put_flushed(len, 0, err);
}

/* All groups hold what they should; @lost units of those that were to fail may not. */
static inline void judge(uint64_t len, uint32_t lost)
{
	struct ec_policy p;
	struct ec_coder *coder;
	struct err err = ERR_INIT;
	uint64_t begin_at = 0;

	assert_int_equal(ec_policy_make(EC_CODEC_RS, K, M, CELL, 64, &p, &err), 0);
	assert_int_equal(ec_coder_new(&p, &coder, &err), 0);
	assert_true(nn.complete);
	assert_int_equal(sum_of_groups(), len);
	for (unsigned g = 0; g < nn.groups; begin_at += nn.ended[g++]) {
		const uint64_t glen = nn.ended[g];
		struct ec_src src[UNITS];
		uint32_t good = 0, differ;

		assert_true(glen > 0 && glen <= GROUP);
		for (unsigned u = 0; u < UNITS; u++) {
			struct fake_unit *f = &nn.unit[g][u];

			src[u] = (struct ec_src){f->data, f->len};
			if ((g <= nn.fail_last && lost & 1u << u) || !f->data)
				continue;
			good |= 1u << u;
			assert_int_equal(f->len, ec_unit_length(&p, glen, u));
			assert_int_equal(f->final, f->len > 0);
			if (g + 1 < nn.groups) /* an hsync later would not reach it */
				assert_int_equal(f->synced, f->final);
		}
		if (__builtin_popcount(good) > (int)K) {
			assert_int_equal(
				ec_check(coder, good, src, src[__builtin_ctz(good)].len, &differ),
				0);
			assert_int_equal(differ, 0);
		}
		for (uint64_t at = 0; at < glen; at += 4093) {
			const struct ec_place place = ec_place_of(&p, at);

			if (good & 1u << place.unit)
				assert_int_equal(nn.unit[g][place.unit].data[place.at],
						 content[begin_at + at]);
		}
	}
	ec_coder_free(coder);
}

static inline int setup(void **state)
{
	(void)state;
	content = malloc(SIZE_MAX_HERE);
	for (size_t i = 0; content && i < SIZE_MAX_HERE; i++)
		content[i] = (uint8_t)(i * 2654435761u >> 13);
	return content ? 0 : -1;
}

static inline int teardown(void **state)
{
	(void)state;
	begin(0, NEVER);
	free(content);
	return 0;
}
