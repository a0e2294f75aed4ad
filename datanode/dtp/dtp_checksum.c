/* SPDX-License-Identifier: Apache-2.0 */
/* BLOCK_CHECKSUM, TRANSFER_BLOCK and SYNC_LATER: one answer each. */
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/crc.h"
#include "common/base/log.h"
#include "datanode/block/transfer.h"
#include "datanode/dtp/dtp_internal.h"

#define CRC_BATCH (64u << 10) /* bytes of CRCs read from the meta file at a time */

/* ---- BLOCK_CHECKSUM ---- */

struct dtp_checksum {
	struct dtp_op op; /* first */
	struct operation_entry entry;
	struct offload offload;
	struct block_pool *bp;
	struct block block;
	uint64_t want; /* bytes to cover */
	bool composite;
	uint64_t stripe; /* composite: one CRC for each so many bytes; 0: one in all */
	bool back;

	int rc;
	struct err err;
	enum crc_type crc_type;
	uint32_t bpc;
	uint64_t crc_per_block;
	uint8_t *sum; /* owned */
	size_t sum_len;
};

struct summer { /* takes the CRCs of consecutive chunks */
	struct dtp_checksum *q;
	EVP_MD_CTX *md5;
	uint32_t crc;     /* composite so far */
	uint64_t crc_len; /* bytes it covers */
	uint32_t count, room;
};

static int sum_emit(struct summer *s)
{
	const uint32_t be = htobe32(s->crc);

	if (s->count == s->room)
		return err_set(&s->q->err, -EINVAL, "the stripe length is too small for the block");
	memcpy(s->q->sum + 4 * s->count++, &be, 4);
	s->crc = 0;
	s->crc_len = 0;
	return 0;
}

static int sum_chunk(struct summer *s, const uint8_t crc[4], uint32_t len)
{
	uint32_t v;

	if (!s->q->composite)
		return EVP_DigestUpdate(s->md5, crc, 4) ? 0 : -EIO;
	memcpy(&v, crc, 4);
	v = be32toh(v);
	s->crc = s->crc_len ? crc_combine(s->q->crc_type, s->crc, v, len) : v;
	s->crc_len += len;
	return s->q->stripe && s->crc_len >= s->q->stripe ? sum_emit(s) : 0;
}

static int pread_all(int fd, void *buf, size_t len, uint64_t off)
{
	ssize_t n = pread(fd, buf, len, (off_t)off);

	return n == (ssize_t)len ? 0 : n < 0 ? neg_errno() : -EIO;
}

/* The last chunk is asked for in part, or is still being written: its CRC as of @len bytes. */
static int tail_crc(struct dtp_checksum *q, const struct replica_reader *rr, uint64_t off,
		    uint32_t len, uint8_t out[4])
{
	uint8_t *data = malloc(len);
	int rc = data ? pread_all(rr->fd, data, len, off) : -ENOMEM;

	if (rc == 0)
		crc_chunks(q->crc_type, data, len, q->bpc, out);
	free(data);
	return rc;
}

static int sum_meta(struct summer *s, const struct replica_reader *rr)
{
	struct dtp_checksum *q = s->q;
	const uint64_t full = q->want / q->bpc;
	const uint32_t rest = (uint32_t)(q->want % q->bpc);
	const uint32_t held = htobe32(rr->partial_crc);
	uint8_t *buf = malloc(CRC_BATCH), last[4];
	int rc = buf ? 0 : -ENOMEM;

	for (uint64_t i = 0; rc == 0 && i < full;) {
		const uint64_t n = full - i < CRC_BATCH / 4 ? full - i : CRC_BATCH / 4;

		rc = pread_all(rr->fd_meta, buf, n * 4, META_HEADER_LEN + i * 4);
		if (rc == 0 && !q->composite) {
			rc = EVP_DigestUpdate(s->md5, buf, n * 4) ? 0 : -EIO;
		} else {
			for (uint64_t k = 0; rc == 0 && k < n; k++)
				rc = sum_chunk(s, buf + 4 * k, q->bpc);
		}
		i += n;
	}
	free(buf);
	if (rc == 0 && rest) {
		/* What was stored covers the whole replica: a rotten byte must not get a fresh,
		 * right CRC here. */
		if (q->want == rr->block.len && rr->crc_held && !rr->partial)
			memcpy(last, &held, 4);
		else
			rc = tail_crc(q, rr, full * q->bpc, rest, last);
		if (rc == 0)
			rc = sum_chunk(s, last, rest);
	}
	return rc;
}

static int sum_finish(struct summer *s)
{
	struct dtp_checksum *q = s->q;
	unsigned int len = 16;

	if (!q->composite) {
		q->sum_len = 16;
		return EVP_DigestFinal_ex(s->md5, q->sum, &len) ? 0 : -EIO;
	}
	if ((s->crc_len || !s->count) && sum_emit(s) < 0)
		return -EINVAL;
	q->sum_len = s->count * 4;
	return 0;
}

static int checksum_compute(struct dtp_checksum *q, const struct replica_reader *rr)
{
	struct summer s = {.q = q, .room = STRIPE_CRCS_MAX};
	int rc = 0;

	if (rr->crc_type == CRC_NULL && q->composite)
		return err_set(&q->err, -EINVAL, "the replica has no CRCs");
	q->crc_type = rr->crc_type;
	q->bpc = rr->bytes_per_crc;
	if (q->want > rr->block.len)
		return err_set(&q->err, -EINVAL,
			       "%" PRIu64 " bytes asked for, %" PRIu64 " are there", q->want,
			       rr->block.len);
	/* Of the replica, and 0 without CRCs, whose sum is the MD5 of nothing: as stock nodes say.
	 */
	q->crc_per_block = crc_bytes(rr->crc_type, rr->block.len, q->bpc) / 4;
	q->sum = malloc(q->composite ? 4 * STRIPE_CRCS_MAX : 16);
	s.md5 = EVP_MD_CTX_new();
	if (!q->sum || !s.md5 || !EVP_DigestInit_ex(s.md5, EVP_md5(), NULL))
		rc = -ENOMEM;
	if (rc == 0 && rr->crc_type != CRC_NULL)
		rc = sum_meta(&s, rr);
	if (rc == 0)
		rc = sum_finish(&s);
	EVP_MD_CTX_free(s.md5);
	return rc;
}

static void checksum_work(struct offload *o)
{
	struct dtp_checksum *q = container_of(o, struct dtp_checksum, offload);
	struct replica_reader *rr = NULL;

	q->rc = replica_read_open(q->bp, &q->block, &rr, &q->err);
	if (q->rc < 0)
		return;
	q->rc = checksum_compute(q, rr);
	replica_read_close(rr);
}

static void checksum_done(struct offload *o)
{
	struct dtp_checksum *q = container_of(o, struct dtp_checksum, offload);

	q->back = true;
	dtp_ready(q->op.conn);
}

void dtp_send_checksum(struct dtp_conn *c, const struct dtp_sum *s)
{
	Hd__BlockOpResponseProto m = HD__BLOCK_OP_RESPONSE_PROTO__INIT;
	Hd__OpBlockChecksumResponseProto sum = HD__OP_BLOCK_CHECKSUM_RESPONSE_PROTO__INIT;
	Hd__BlockChecksumOptionsProto options = HD__BLOCK_CHECKSUM_OPTIONS_PROTO__INIT;
	uint8_t *buf = NULL;
	size_t len = 0;
	int rc;

	options.has_blockchecksumtype = options.has_stripelength = 1;
	options.blockchecksumtype = s->composite ? HD__BLOCK_CHECKSUM_TYPE_PROTO__COMPOSITE_CRC
						 : HD__BLOCK_CHECKSUM_TYPE_PROTO__MD5CRC;
	options.stripelength = s->stripe;
	sum.bytespercrc = s->bpc;
	sum.crcperblock = s->crc_per_block;
	sum.blockchecksum =
		(ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)s->bytes, .len = s->len};
	sum.has_crctype = 1;
	sum.crctype = (Hd__ChecksumTypeProto)s->crc_type;
	sum.blockchecksumoptions = &options;
	m.status = HD__STATUS__SUCCESS;
	m.checksumresponse = &sum;
	rc = pb_pack_delim(&m, &buf, &len);
	dtp_send_take(c, rc, buf, len);
}

static void checksum_answer(const struct dtp_checksum *q)
{
	struct dtp_conn *c = q->op.conn;
	const struct dtp_sum sum = {.crc_type = q->crc_type,
				    .bpc = q->bpc,
				    .crc_per_block = q->crc_per_block,
				    .composite = q->composite,
				    .stripe = q->stripe,
				    .bytes = q->sum,
				    .len = q->sum_len};

	if (q->rc == 0) {
		dtp_send_checksum(c, &sum);
		return;
	}
	log_info("op=checksum peer=%s block=%" PRId64 ": %s", c->peer, q->block.id,
		 q->err.rc ? q->err.text : err_name(q->rc));
	dtp_send_status(c, DT_ERROR, NULL, q->err.rc ? q->err.text : err_name(q->rc));
	dtp_break(c, q->rc, "checksum");
}

static void checksum_step(struct dtp_op *op)
{
	struct dtp_checksum *q = container_of(op, struct dtp_checksum, op);
	struct dtp_conn *c = op->conn;

	if (!q->back)
		return;
	if (c->state < DTP_CLOSING)
		checksum_answer(q);
	xfer_entry_end(&q->entry);
	free(q->sum);
	free(q);
	dtp_op_done(c);
}

static void checksum_tell(const struct operation_entry *e, struct operation *ret)
{
	const struct dtp_checksum *q = container_of(e, struct dtp_checksum, entry);

	dtp_tell(q->op.conn->peer, q->bp, &q->block, ret);
	ret->kind = "checksum";
	ret->state = "wait_disk";
	ret->waits_for = "disk";
}

static void abort_nothing(struct dtp_op *op)
{
	(void)op; /* comes to its end by itself */
}

void dtp_checksum_start(struct dtp_conn *c, const Hd__OpBlockChecksumProto *msg)
{
	const Hd__BlockChecksumOptionsProto *options = msg->blockchecksumoptions;
	struct dtp_checksum *q = calloc(1, sizeof(*q));
	int rc = q ? 0 : -ENOMEM;

	if (rc == 0)
		rc = dtp_block(c->core, msg->header,
			       (struct token_access){.mode = HD__ACCESS_MODE_PROTO__READ},
			       &q->block, &q->bp, &q->err);
	if (rc < 0) {
		dtp_send_status(c, dtp_refusal(rc), NULL, q ? q->err.text : err_name(rc));
		dtp_break(c, rc, "BLOCK_CHECKSUM refused");
		free(q);
		return;
	}
	q->want = q->block.len;
	q->composite = options && options->has_blockchecksumtype &&
		       options->blockchecksumtype == HD__BLOCK_CHECKSUM_TYPE_PROTO__COMPOSITE_CRC;
	q->stripe = q->composite && options->has_stripelength ? options->stripelength : 0;
	q->op = (struct dtp_op){.step = checksum_step, .abort = abort_nothing, .conn = c};
	q->offload =
		(struct offload){.work = checksum_work, .done = checksum_done, .movable = true};
	c->op = &q->op;
	xfer_entry_begin(c->core, &q->entry, checksum_tell);
	engine_offload(c->core, replica_volume(q->bp, q->block.id), &q->offload);
}

/* ---- TRANSFER_BLOCK ---- */

struct dtp_transfer {
	struct dtp_op op; /* first */
	bool back;
	int rc;
	struct err err;
};

static void transfer_done(void *arg, int rc, const struct err *err)
{
	struct dtp_transfer *q = (struct dtp_transfer *)arg;

	q->back = true;
	q->rc = rc;
	q->err = *err;
	dtp_ready(q->op.conn);
}

static void transfer_step(struct dtp_op *op)
{
	struct dtp_transfer *q = container_of(op, struct dtp_transfer, op);
	struct dtp_conn *c = op->conn;

	if (!q->back)
		return;
	if (c->state < DTP_CLOSING)
		dtp_send_status(c, q->rc == 0 ? DT_SUCCESS : DT_ERROR, NULL,
				q->rc == 0 ? NULL : q->err.text);
	free(q);
	dtp_op_done(c);
}

static int transfer_params_from(struct dtp_conn *c, const Hd__OpTransferBlockProto *m,
				struct transfer_params *tp, struct err *err)
{
	const char *client = m->header->clientname;
	const struct token_access want = {
		.mode = HD__ACCESS_MODE_PROTO__WRITE,
		.types = m->targetstoragetypes,
		.n_types = m->n_targetstoragetypes,
		.ids = (const char *const *)m->targetstorageids,
		.n_ids = m->n_targetstorageids,
	};
	int rc = dtp_block(c->core, m->header->baseheader, want, &tp->block, &tp->bp, err);

	if (rc < 0)
		return rc;
	if (!client[0] || strlen(client) >= sizeof(tp->client) || !m->n_targets)
		return err_set(err, -EINVAL, "TRANSFER_BLOCK needs a client name and a target");
	memcpy(tp->client, client, strlen(client) + 1);
	tp->target_count = (uint32_t)m->n_targets;
	return dtp_targets(m->targets, m->n_targets, m->targetstoragetypes, m->n_targetstoragetypes,
			   m->targetstorageids, m->n_targetstorageids, &tp->targets, err);
}

void dtp_transfer_start(struct dtp_conn *c, const Hd__OpTransferBlockProto *msg)
{
	struct transfer_params tp = {0};
	struct err err = ERR_INIT;
	struct dtp_transfer *q = NULL;
	int rc = transfer_params_from(c, msg, &tp, &err);

	if (rc == 0) {
		q = calloc(1, sizeof(*q));
		if (!q)
			free(tp.targets);
		rc = q ? transfer_open(c->core, &tp, transfer_done, q) : -ENOMEM;
	}
	if (rc < 0) {
		free(q);
		dtp_send_status(c, dtp_refusal(rc), NULL, err.rc ? err.text : err_name(rc));
		dtp_break(c, rc, "TRANSFER_BLOCK refused");
		return;
	}
	q->op = (struct dtp_op){.step = transfer_step, .abort = abort_nothing, .conn = c};
	c->op = &q->op;
}

/* ---- SYNC_LATER ---- */

struct dtp_sync {
	struct dtp_op op; /* first */
	struct operation_entry entry;
	struct offload offload;
	struct block_pool *bp;
	struct block block; /* names the pool, and whom the token lets in */
	uint64_t epoch;
	bool back;
	int rc;
};

static void sync_work(struct offload *o)
{
	struct dtp_sync *q = container_of(o, struct dtp_sync, offload);

	q->rc = store_sync_deferred(pool_store(q->bp), q->epoch);
}

static void sync_done(struct offload *o)
{
	struct dtp_sync *q = container_of(o, struct dtp_sync, offload);

	q->back = true;
	dtp_ready(q->op.conn);
}

static void sync_step(struct dtp_op *op)
{
	struct dtp_sync *q = container_of(op, struct dtp_sync, op);
	struct dtp_conn *c = op->conn;

	if (!q->back)
		return;
	if (c->state < DTP_CLOSING)
		dtp_send_status(c, q->rc == 0 ? DT_SUCCESS : DT_ERROR, NULL,
				q->rc == 0 ? NULL : "finished blocks are not on the disk");
	xfer_entry_end(&q->entry);
	free(q);
	dtp_op_done(c);
}

static void sync_tell(const struct operation_entry *e, struct operation *ret)
{
	const struct dtp_sync *q = container_of(e, struct dtp_sync, entry);

	dtp_tell(q->op.conn->peer, q->bp, &q->block, ret);
	ret->kind = "sync";
	ret->state = "wait_disk";
	ret->waits_for = "disk";
}

void dtp_sync_later_start(struct dtp_conn *c, const Hd__OpSyncLaterProto *msg)
{
	struct dtp_sync *q = calloc(1, sizeof(*q));
	struct err err = ERR_INIT;
	int rc = q ? 0 : -ENOMEM;

	if (rc == 0)
		rc = dtp_block(c->core, msg->header,
			       (struct token_access){.mode = HD__ACCESS_MODE_PROTO__WRITE},
			       &q->block, &q->bp, &err);
	if (rc < 0) {
		/* a pool that is not served, or not yet: ERROR would say that the disk has failed
		 */
		if (rc != -ENOENT)
			dtp_send_status(c, dtp_refusal(rc), NULL, err.rc ? err.text : err_name(rc));
		dtp_break(c, rc, "SYNC_LATER refused");
		free(q);
		return;
	}
	q->epoch = msg->later;
	q->op = (struct dtp_op){.step = sync_step, .abort = abort_nothing, .conn = c};
	q->offload = (struct offload){.work = sync_work, .done = sync_done};
	c->op = &q->op;
	xfer_entry_begin(c->core, &q->entry, sync_tell);
	reactor_offload_to(c->core->reactor, XFER_SYNC_QUEUE, &q->offload);
}
