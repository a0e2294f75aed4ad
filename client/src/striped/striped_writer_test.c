/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: whatever is written, the units that are left are as long as the geometry says,
 * hold the bytes that belong there and fit together; up to m units may fail anywhere (while they
 * are opened, in a packet, at the last packet, while the others come to a new stamp) and the
 * NameNode is told of them with an empty place for each; one more is an error that names them all.
 * A unit whose packets get no memory for a while waits; when that is too long and RDMA is required
 * the call fails, and nothing is lost by it.
 * The streams and the NameNode are fakes: the linker puts them in place of the real ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "client/src/striped/striped_writer.h"
#include "common/base/log.h"
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
	/* this file, 0: none; when something was in it twice, nothing fails any more */
	int log;
	unsigned told; /* so often something was in it */
	/* what fails */
	uint32_t fail; /* units of the first group, */
	enum when when;
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

static bool fails(const struct fake_stream *s, enum when now)
{
	return s->group == 0 && nn.when == now && nn.fail & 1u << s->unit;
}

static bool is_hung(const struct fake_stream *s)
{
	return s->group == 0 && nn.hang & 1u << s->unit;
}

static bool is_dry(const struct fake_stream *s)
{
	return nn.dry & 1u << s->unit;
}

static int fake_send(struct wstream *ws, struct packet *p, struct err *err)
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

static int fake_next_ack(struct wstream *ws, struct ack *ret, struct err *err)
{
	struct fake_stream *s = container_of(ws, struct fake_stream, base);

	(void)err;
	if (s->taken == s->acks)
		return 0;
	*ret = s->ack[s->taken++ % 64];
	return 1;
}

/* Takes its time. */
static int fake_opened(struct wstream *ws, uint64_t *ret_until_ns, int *ret_bad, struct err *err)
{
	struct fake_stream *s = container_of(ws, struct fake_stream, base);

	*ret_until_ns = UINT64_MAX;
	*ret_bad = 0;
	if (++s->asked < SETUP_ASKS)
		return 0;
	return s->refuses ? err_set(err, -ECONNREFUSED, "nobody is there") : 1;
}

static int fake_poll(struct wstream *ws, bool want_send, struct pollfd *ret)
{
	const struct fake_stream *s = container_of(ws, struct fake_stream, base);
	const bool dry = is_dry(s);

	(void)want_send;
	*ret = (struct pollfd){.fd = -1}; /* never ready */
	if (dry && nn.dry_once)
		nn.dry = 0;
	return !is_hung(s) && !dry;
}

static void fake_close(struct wstream *ws)
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
static void read_token(const Hc__TokenProto *t)
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
	struct fake_stream *s = calloc(1, sizeof(*s));

	(void)fs;
	assert_non_null(s);
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
	*ret_bad = 0;
	if (fails(s, s->u->opened ? NEVER : AT_OPEN) ||
	    (s->u->opened && nn.reopen_fail & 1u << s->unit)) {
		if (s->unit % 2) { /* half of them fail at once */
			free(s);
			return err_set(err, -ECONNREFUSED, "nobody is there");
		}
		s->refuses = true;
	} else if (s->u->opened++) {
		s->u->stamp = w->latest_gs;
	}
	*ret_opened = s->unit == 0 && !s->refuses; /* RDMA */
	s->asked = *ret_opened ? SETUP_ASKS : 0;
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

static void note_end(const Hd__ExtendedBlockProto *b)
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

static void add_node(struct fake_nodes *f, unsigned unit, unsigned node)
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

static void located_init(struct fake_nodes *f)
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
static void add_tokens(struct fake_nodes *f, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		f->token[i] = f->token[0];
		f->tokens[i] = &f->token[i];
		f->index[i] = (uint8_t)i;
	}
	f->lb.n_blocktokens = f->lb.blockindices.len = n;
}

static int add_block(const Hd__AddBlockRequestProto *q, void *ret, struct err *err)
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

static void file_info(const Hd__GetFileInfoRequestProto *q, void *ret)
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

static void new_stamp(const Hd__UpdateBlockForPipelineRequestProto *q, void *ret)
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

static void update_pipeline(const Hd__UpdatePipelineRequestProto *q)
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

/* ---- writing and judging ---- */

static uint64_t sum_of_groups(void)
{
	uint64_t sum = 0;

	for (unsigned g = 0; g < nn.groups; g++)
		sum += nn.ended[g];
	return sum;
}

static uint8_t *content;
static uint64_t counted; /* short groups, of the last put */
static bool spare_unit;

static void begin(uint32_t fail, enum when when)
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
static int put_patiently(uint64_t len, unsigned flush, uint32_t socket_ms, struct err *err)
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

static int put_flushed(uint64_t len, unsigned flush, struct err *err)
{
	return put_patiently(len, flush, 60000, err);
}

static int put(uint64_t len, struct err *err)
{
	return put_flushed(len, 0, err);
}

/* All groups hold what they should; @lost units of the first one may not. */
static void judge(uint64_t len, uint32_t lost)
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
			if ((g == 0 && lost & 1u << u) || !f->data)
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

static void units_are_as_the_geometry_says(void **state)
{
	static const uint64_t sizes[] = {
		0,         1,        511,       512,       CELL - 1,      CELL,
		CELL + 1,  2 * CELL, ROW - 1,   ROW,       ROW + 1,       ROW + CELL / 2,
		GROUP - 1, GROUP,    GROUP + 1, 2 * GROUP, 2 * GROUP + 7, SIZE_MAX_HERE};
	struct err err = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		begin(0, NEVER);
		assert_int_equal(put(sizes[i], &err), 0);
		judge(sizes[i], 0);
		assert_int_equal(nn.groups, (sizes[i] + GROUP - 1) / GROUP); /* none ends early */
		assert_int_equal(nn.updates[0], 0);
	}
}

static void up_to_m_units_may_fail(void **state)
{
	static const uint64_t sizes[] = {ROW + CELL + 100, GROUP, SIZE_MAX_HERE};
	struct err err = ERR_INIT;

	(void)state;
	for (uint32_t fail = 1; fail < 1u << UNITS; fail++) {
		if (__builtin_popcount(fail) > (int)M)
			continue;
		for (enum when when = AT_OPEN; when <= AT_LAST; when++)
			for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
				begin(fail, when);
				err_reset(&err);
				assert_int_equal(put(sizes[i], &err), 0);
				judge(sizes[i], fail);
				if (nn.groups > 1) { /* the next group is elsewhere */
					assert_int_equal(nn.excluded, fail);
					continue;
				}
				assert_int_equal(nn.holes[0], when == AT_LAST ? 0 : fail);
				assert_int_equal(nn.updates[0] > 0, when != AT_LAST);
				for (unsigned u = 0; when != AT_LAST && u < UNITS; u++)
					assert_int_equal(nn.unit[0][u].stamp == nn.stamp,
							 !(fail & 1u << u));
			}
	}
}

static void a_unit_may_fail_while_others_come_to_a_new_stamp(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	for (unsigned a = 0; a < UNITS; a++)
		for (unsigned b = 0; b < UNITS; b++) {
			if (a == b)
				continue;
			begin(1u << a, AT_PACKET);
			nn.reopen_fail = 1u << b;
			assert_int_equal(put(ROW + 5000, &err), 0);
			judge(ROW + 5000, 1u << a | 1u << b);
			assert_int_equal(nn.holes[0], 1u << a | 1u << b);
			assert_int_equal(nn.updates[0], 1);
			assert_int_equal(nn.stamp_before, 1003); /* two were asked for */
			/* no unit is left to lose, and there are other nodes */
			assert_int_equal(nn.ended[0], ROW);
			assert_int_equal(nn.groups, 2);
		}
}

/* The tokens of the stamp before are gone then. */
static void a_stamp_without_tokens_for_all_leaves_no_unit_an_old_one(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	for (unsigned a = 0; a < UNITS; a++) {
		begin(1u << a, AT_PACKET);
		nn.reopen_fail = 1u << (a + 1) % UNITS;
		nn.few_tokens = true;
		assert_int_equal(put(ROW + 5000, &err), 0);
		judge(ROW + 5000, 1u << a | 1u << (a + 1) % UNITS);
		assert_int_equal(nn.stamp_before, 1003);
	}
}

static void a_flush_ends_the_group_and_commits_it(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	for (unsigned flush = 1; flush < 4; flush++)
		for (uint64_t len = 1; len < 500000; len = len * 5 + 1) {
			begin(0, NEVER);
			assert_int_equal(put_flushed(len, flush, &err), 0);
			judge(len, 0);
		}
	begin(1 << 1 | 1 << 4, AT_PACKET); /* with units lost before it */
	assert_int_equal(put_flushed(GROUP - 5, 13, &err), 0);
	judge(GROUP - 5, 1 << 1 | 1 << 4);
}

static void who_lost_the_lease_closes_nothing(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	begin(0, NEVER);
	nn.taken = true;
	assert_int_equal(put_flushed(100, 1, &err), -ESTALE);
	assert_true(nn.parked);
	assert_false(nn.released);
}

/* The file is read-only, say: recoverLease is refused, for good, and that is told at once. */
static void who_may_not_write_the_file_is_told_at_once(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	begin(0, NEVER);
	nn.no_right = true;
	assert_int_equal(put_flushed(100, 1, &err), -EACCES);
	assert_int_equal(nn.asked_release, 1);
}

/* A router sends a request by inode to its default name space, where the number is another file's.
 * So the path must do, as long as our file has it; likewise where it is not known whether that is a
 * router. */
static void behind_a_router_the_lease_of_no_other_file_is_ended(void **state)
{
	static const int servers[] = {1, -ETIMEDOUT};
	struct err err = ERR_INIT;

	(void)state;
	for (unsigned i = 0; i < 2; i++)
		for (uint64_t at_path = 6; at_path <= 8; at_path++) {
			begin(0, NEVER);
			nn.router = servers[i];
			nn.at_path = at_path == 6 ? 0 : at_path;
			assert_int_equal(put_flushed(100, 1, &err), at_path == 7 ? 0 : -ESTALE);
			assert_true(nn.parked && nn.released == (at_path == 7));
			if (at_path == 7)
				judge(100, 0);
		}
}

/* A quota, say, allows one group: what a flush that failed has finished is kept, more can be
 * written when the quota is raised, and close() commits it all. */
static void a_refused_group_loses_nothing(void **state)
{
	static struct dfs fs = {.set = {.packet_size = 1 << 16,
					.socket_timeout_ms = 60000,
					.exclude_ms = 600000,
					.rdma = RDMA_OFF}};
	struct striped_opts o = {
		.file_id = 7, .block_size = BLOCK, .bpc = 512, .crc_type = CRC_CRC32C};
	struct striped_writer *w;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(ec_policy_make(EC_CODEC_RS, K, M, CELL, 64, &o.policy, &err), 0);
	packet_pool_init(&fs.packets);
	for (unsigned raised = 0; raised < 2; raised++) {
		begin(0, NEVER);
		nn.limit = 1;
		assert_int_equal(striped_writer_new(&fs, "/f", &o, &w, &err), 0);
		assert_int_equal(output_write(&w->f, content, 5000, &err), 5000);
		assert_int_equal(output_flush(&w->f, 0, &err), -EDQUOT);
		assert_int_equal(output_write(&w->f, content + 5000, 5000, &err), -EDQUOT);
		if (raised) {
			nn.limit = 0;
			assert_int_equal(output_flush(&w->f, 0, &err), 0);
			assert_int_equal(sum_of_groups(), 5000);
			assert_int_equal(output_write(&w->f, content + 5000, 5000, &err), 5000);
		}
		err_reset(&err);
		assert_int_equal(output_close(&w->f, &err), 0);
		output_free(&w->f);
		judge(raised ? 10000 : 5000, 0);
	}
	begin(0, NEVER); /* half of a write: that is told again, and what is there is kept */
	nn.limit = 1;
	assert_int_equal(striped_writer_new(&fs, "/f", &o, &w, &err), 0);
	assert_int_equal(output_write(&w->f, content, GROUP + 1, &err), -EDQUOT);
	assert_int_equal(output_write(&w->f, content, 1, &err), -EDQUOT);
	assert_int_equal(output_close(&w->f, &err), -EDQUOT);
	output_free(&w->f);
	judge(GROUP, 0);
	packet_pool_fini(&fs.packets);
}

static struct striped_writer *begin_dry(struct dfs *fs, enum rdma_mode mode)
{
	struct striped_opts o = {
		.file_id = 7, .block_size = BLOCK, .bpc = 512, .crc_type = CRC_CRC32C};
	struct striped_writer *w;
	struct err err = ERR_INIT;

	*fs = (struct dfs){.set = {.packet_size = 1 << 16,
				   .socket_timeout_ms = 60000,
				   .exclude_ms = 600000,
				   .rdma = mode,
				   .rdma_wait_ms = 20000}};
	begin(0, NEVER);
	packet_pool_init(&fs->packets);
	assert_int_equal(ec_policy_make(EC_CODEC_RS, K, M, CELL, 64, &o.policy, &err), 0);
	assert_int_equal(striped_writer_new(fs, "/f", &o, &w, &err), 0);
	return w;
}

static void end_dry(struct striped_writer *w, struct dfs *fs, uint64_t len, uint32_t lost)
{
	struct err err = ERR_INIT;

	if (output_close(&w->f, &err) < 0)
		fail_msg("%s", err.text);
	output_free(&w->f);
	packet_pool_fini(&fs->packets);
	judge(len, lost);
}

static void a_unit_without_memory_waits(void **state)
{
	struct striped_writer *w;
	struct err err = ERR_INIT;
	struct dfs fs;

	(void)state;
	w = begin_dry(&fs, RDMA_REQUIRE);
	for (uint64_t at = 0; at < GROUP + ROW; at += CELL) {
		nn.dry_sends = 40;
		assert_int_equal(output_write(&w->f, content + at, CELL, &err), CELL);
	}
	end_dry(w, &fs, GROUP + ROW, 0);
}

/* Each wait is too long, wherever it is, and what failed is done again. */
static void a_wait_for_memory_that_fails_loses_nothing(void **state)
{
	const uint32_t piece = 4096; /* packets end with one: either it is taken or not */
	struct striped_writer *w;
	struct err err = ERR_INIT;
	unsigned failed[2] = {0, 0}, tries = 0;
	struct dfs fs;

	(void)state;
	w = begin_dry(&fs, RDMA_REQUIRE);
	fs.set.rdma_wait_ms = 2;
	for (uint64_t at = 0; at < 2 * GROUP;) {
		const bool flush = ++tries % 300 == 0;
		int rc;

		nn.dry = 1u << tries / 20 % (UNITS + 1); /* now this one, now that one, now none */
		err_reset(&err);
		rc = flush ? output_flush(&w->f, 0, &err)
			   : (int)output_write(&w->f, content + at, piece, &err);
		if (rc < 0) {
			assert_int_equal(rc, -ENOBUFS);
			assert_non_null(strstr(err.text, "dfs.rdma.pool.wait"));
			failed[flush]++;
		} else if (!flush) {
			at += piece;
		}
	}
	assert_true(failed[0] && failed[1]);
	nn.dry = 0;
	end_dry(w, &fs, 2 * GROUP, 0);
	assert_int_equal(fs.count.pipeline_recoveries, 0);
}

/* The wait is over by then, but nothing has failed. */
static void memory_that_comes_last_of_all_counts(void **state)
{
	struct striped_writer *w;
	struct err err = ERR_INIT;
	struct dfs fs;

	(void)state;
	w = begin_dry(&fs, RDMA_AUTO);
	fs.set.rdma_wait_ms = 20;
	assert_int_equal(output_write(&w->f, content, ROW, &err), ROW);
	nn.dry = 1u << 1;
	nn.dry_once = true;
	assert_int_equal(output_write(&w->f, content + ROW, GROUP - ROW, &err), GROUP - ROW);
	assert_int_equal(nn.dry, 0);
	end_dry(w, &fs, GROUP, 0);
}

/* Where TCP is allowed the unit is left out rather than the file lost; its node has done nothing.
 */
static void a_unit_without_memory_is_left_out_where_rdma_need_not_be(void **state)
{
	struct striped_writer *w;
	struct err err = ERR_INIT;
	struct dfs fs;

	(void)state;
	w = begin_dry(&fs, RDMA_AUTO);
	fs.set.rdma_wait_ms = 2;
	nn.dry = 1u << 1;
	assert_int_equal(output_write(&w->f, content, GROUP, &err), GROUP);
	nn.dry = 0;
	assert_int_equal(output_write(&w->f, content + GROUP, ROW, &err), ROW);
	assert_int_equal(nn.excluded, 0);
	end_dry(w, &fs, GROUP + ROW, 1u << 1);
	assert_int_equal(fs.count.pipeline_recoveries, 0);
}

static void one_more_is_an_error_that_names_them(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	for (enum when when = AT_OPEN; when <= AT_LAST; when++) {
		begin(1 << 0 | 1 << 1 | 1 << 4, when);
		err_reset(&err);
		assert_int_equal(put_patiently(GROUP + 5, 0, 200, &err), -EIO);
		assert_false(nn.complete);
		assert_non_null(
			strstr(err.text,
			       "3 units of a block group failed, which is more than the 2 parity"));
		assert_non_null(strstr(err.text, "unit 0 (10.0.0.1:1: "));
		assert_non_null(strstr(err.text, "unit 1 (10.0.0.1:2: "));
		assert_non_null(strstr(err.text, "unit 4 (10.0.0.1:5: "));
	}
}

static void too_few_nodes_leave_units_out(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	for (unsigned missing = 1; missing <= M; missing++) {
		begin(0, NEVER);
		nn.nodes = UNITS - missing;
		assert_int_equal(put(ROW + 1, &err), 0);
		judge(ROW + 1, missing == 1 ? 1 << 4 : 3 << 3);
		assert_int_equal(nn.updates[0], 0); /* the NameNode knows */
		assert_int_equal(counted, 1);
	}
	/* and one more fails: the new stamp comes with fewer tokens than units */
	begin(1, AT_PACKET);
	nn.nodes = UNITS - 1;
	assert_int_equal(put(ROW + CELL, &err), 0);
	judge(ROW + CELL, 1 | 1 << 4);
	assert_int_equal(nn.holes[0], 1 | 1 << 4);
	assert_int_equal(nn.ended[0], ROW);
	begin(1, AT_PACKET);
	nn.nodes = UNITS - M;
	assert_int_equal(put_patiently(ROW + CELL, 0, 200, &err), -EIO);
	assert_non_null(strstr(err.text, "unit 3 (no data node for it)"));
	assert_int_equal(counted, 0); /* however often it was begun again: none was written */
	begin(0, NEVER);
	nn.nodes = K - 1;
	err_reset(&err);
	assert_int_equal(put(1, &err), -ENOSPC);
}

static void a_group_without_parity_is_refused_where_that_is_wanted(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	spare_unit = true;
	begin(0, NEVER);
	nn.nodes = UNITS - 1;
	assert_int_equal(put(ROW + 1, &err), 0);
	begin(0, NEVER);
	nn.nodes = K;
	assert_int_equal(put(ROW + 1, &err), -ENOSPC);
	assert_non_null(strstr(err.text, "there are 3 data nodes for a block group of"));
	spare_unit = false;
	assert_int_equal(counted, 0);
}

/* A node is back, and without it the next group would be short. */
static void nodes_are_tried_again(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	for (unsigned lost = 1; lost <= M; lost++) {
		begin((1u << lost) - 1, AT_PACKET);
		nn.nodes = UNITS;
		assert_int_equal(put(GROUP + ROW, &err), 0);
		judge(GROUP + ROW, (1u << lost) - 1); /* the second group is whole */
		assert_int_equal(nn.excluded, 0);
		begin((1u << lost) - 1, AT_PACKET);
		nn.nodes = UNITS;
		assert_int_equal(put_flushed(ROW + CELL, 20, &err), 0);
		judge(ROW + CELL, (1u << lost) - 1);
	}
}

/* Its connection takes what is sent, heartbeats too, and nothing comes back: after the socket
 * timeout it is lost. */
static void a_hung_node_is_waited_for_in_vain(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	begin(0, NEVER);
	nn.hang = 1 << 1 | 1 << 4;
	assert_int_equal(put_patiently(ROW + 5, 0, 100, &err), 0);
	judge(ROW + 5, 1 << 1 | 1 << 4);
	assert_int_equal(nn.holes[0], 1 << 1 | 1 << 4);
}

/* More units fail than the group can lose, and some time later the nodes are back: nothing is lost
 * as long as the bytes are in memory. A whole row came before, and was told. */
static void a_group_is_begun_again(void **state)
{
	static const uint64_t sizes[] = {1,     CELL + 5,       ROW, ROW + CELL + 100,
					 GROUP, GROUP + ROW + 7};
	const uint32_t fail = 1 << 0 | 1 << 1 | 1 << 4;
	struct err err = ERR_INIT;

	(void)state;
	for (enum when when = AT_OPEN; when <= AT_LAST; when++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			for (unsigned flush = 0; flush <= 11; flush += 11) {
				begin(fail, when);
				/* once not at once */
				nn.undo_heals = i == 1 && !flush ? 2 * UNITS : 1;
				nn.nodes = UNITS;
				err_reset(&err);
				assert_int_equal(put_flushed(sizes[i], flush, &err), 0);
				/* a short group has no third one that fails */
				judge(sizes[i], nn.undone ? 0 : fail);
				assert_true(nn.undone || flush || sizes[i] < ROW);
			}
	begin(1, AT_PACKET); /* others while these come to the new stamp, and at each attempt */
	nn.reopen_fail = 1 << 1 | 1 << 2;
	assert_int_equal(put_patiently(GROUP, 0, 200, &err), -EIO);
	assert_int_equal(nn.updates[0], 0);
}

/* It may last a minute, and the log says so while it lasts. */
static void a_wait_for_nodes_is_told_once(void **state)
{
	const int kept = dup(STDERR_FILENO), log = memfd_create("log", 0);
	struct err err = ERR_INIT;
	char text[2048] = "";
	int rc;

	(void)state;
	begin(1 << 0 | 1 << 1 | 1 << 4, AT_PACKET);
	nn.nodes = UNITS;
	nn.log = log;
	log_init("striped_writer_test", LOG_WARN);
	assert_true(dup2(log, STDERR_FILENO) >= 0);
	rc = put_patiently(ROW, 0, 60000, &err);
	assert_true(dup2(kept, STDERR_FILENO) >= 0);
	assert_int_equal(rc, 0);
	judge(ROW, 0);
	assert_true(pread(log, text, sizeof(text) - 1, 0) > 0);
	assert_non_null(strstr(text, "op=group_again path=/f: waiting for data nodes, for "));
	assert_null(strstr(strstr(text, "op=group_again") + 1, "op=group_again"));
	close(kept);
	close(log);
}

static Hd__DatanodeInfoProto *new_node(unsigned node)
{
	Hd__DatanodeInfoProto *ret;
	struct fake_nodes f;

	memset(&f, 0, sizeof(f));
	hd__located_block_proto__init(&f.lb);
	add_node(&f, 0, node);
	answer(&hd__datanode_info_proto__descriptor, &f.info[0], &ret);
	return ret;
}

/* One that goes on failing is tried less and less often, and one that is hung still less; after the
 * expiry interval nothing is remembered. */
static void nodes_that_fail_again_wait(void **state)
{
	const uint64_t w = BLAMED_WAIT_NS, t = 1000 * NS_PER_S;
	struct suspect_nodes b = {.node = NULL};

	(void)state;
	assert_false(suspect_nodes_try_again(&b, t));
	assert_int_equal(suspect_nodes_add(&b, new_node(1), false, t), 0);
	assert_int_equal(b.n_out, 1);
	assert_true(suspect_nodes_try_again(&b, t));
	assert_int_equal(b.n_out, 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(suspect_nodes_add(&b, new_node(1), false, t), 0);
		assert_false(suspect_nodes_try_again(&b, t + (w << i) - 1));
		assert_int_equal(b.n_out, 1);
		assert_true(suspect_nodes_try_again(&b, t + (w << i)));
	}
	assert_int_equal(suspect_nodes_add(&b, new_node(2), true, t + 1), 0);
	assert_false(suspect_nodes_try_again(&b, t + 32 * w));
	assert_true(suspect_nodes_try_again(&b, t + 1 + 32 * w));
	assert_int_equal(suspect_nodes_add(&b, new_node(2), false, t + 2), 0);
	suspect_nodes_expire(&b, 60 * NS_PER_S, t + 60 * NS_PER_S);
	assert_int_equal(b.count, 1); /* node 1 is forgotten */
	assert_int_equal(b.n_out, 1);
	suspect_nodes_expire(&b, 60 * NS_PER_S, t + 2 + 60 * NS_PER_S);
	assert_int_equal(b.n_out, 0);
	for (unsigned i = 0; i < BLAMED_MAX + 5; i++)
		assert_int_equal(suspect_nodes_add(&b, new_node(i), false, t), 0);
	assert_int_equal(b.n_out, BLAMED_MAX);
	suspect_nodes_forgive(&b);
	assert_int_equal(b.n_out, 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(suspect_nodes_add(&b, new_node(i), false, t), 0);
	suspect_nodes_doubt(&b);
	suspect_nodes_forgive(&b);
	assert_int_equal(b.n_out, 2); /* that one first, */
	suspect_nodes_forgive(&b);
	assert_int_equal(b.n_out, 0); /* and then all */
	suspect_nodes_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(units_are_as_the_geometry_says),
		cmocka_unit_test(up_to_m_units_may_fail),
		cmocka_unit_test(a_unit_may_fail_while_others_come_to_a_new_stamp),
		cmocka_unit_test(a_stamp_without_tokens_for_all_leaves_no_unit_an_old_one),
		cmocka_unit_test(a_flush_ends_the_group_and_commits_it),
		cmocka_unit_test(who_lost_the_lease_closes_nothing),
		cmocka_unit_test(who_may_not_write_the_file_is_told_at_once),
		cmocka_unit_test(behind_a_router_the_lease_of_no_other_file_is_ended),
		cmocka_unit_test(a_refused_group_loses_nothing),
		cmocka_unit_test(a_unit_without_memory_waits),
		cmocka_unit_test(a_wait_for_memory_that_fails_loses_nothing),
		cmocka_unit_test(memory_that_comes_last_of_all_counts),
		cmocka_unit_test(a_unit_without_memory_is_left_out_where_rdma_need_not_be),
		cmocka_unit_test(one_more_is_an_error_that_names_them),
		cmocka_unit_test(nodes_are_tried_again),
		cmocka_unit_test(a_group_is_begun_again),
		cmocka_unit_test(a_wait_for_nodes_is_told_once),
		cmocka_unit_test(nodes_that_fail_again_wait),
		cmocka_unit_test(a_hung_node_is_waited_for_in_vain),
		cmocka_unit_test(too_few_nodes_leave_units_out),
		cmocka_unit_test(a_group_without_parity_is_refused_where_that_is_wanted),
	};
	int rc;

	content = malloc(SIZE_MAX_HERE);
	for (size_t i = 0; content && i < SIZE_MAX_HERE; i++)
		content[i] = (uint8_t)(i * 2654435761u >> 13);
	rc = content ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
	begin(0, NEVER);
	free(content);
	return rc;
}
