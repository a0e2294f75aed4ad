/* SPDX-License-Identifier: Apache-2.0 */
/* BLOCK_GROUP_CHECKSUM: the checksum of a striped group out of those of its data units, which their
 * nodes are asked for one after the other; that of a unit which nobody gives is taken of the unit
 * as it is rebuilt from the others. Source: hdfs-wire 5.8; Hadoop 3.4.2 BlockChecksumHelper. */
#include <assert.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/crc.h"
#include "common/base/log.h"
#include "common/wire/ec_msg.h"
#include "datanode/dtp/dtp_call.h"
#include "datanode/dtp/dtp_internal.h"
#include "datanode/reconstruct/reconstruct.h"

#define MD5_LEN 16u
#define JAVA_BUFFER_MIN 32u /* DataOutputBuffer's first size; it doubles */

enum group_state {
	GR_UNIT,      /* the next unit's checksum is to be had */
	GR_WAIT_PEER, /* leaves on the answer of its node */
	GR_REBUILD,   /* nobody gives it */
	GR_WAIT_RECONSTRUCTION,
	GR_FAILED,
	GR_DONE,
};

struct group_unit {
	uint8_t *sum; /* owned: an MD5, or one CRC per cell */
	uint32_t cells;
	uint64_t len;
};

struct dtp_group {
	struct dtp_op op; /* first */
	enum group_state state;
	struct block_pool *bp;
	struct block group;
	struct ec_policy policy;
	uint64_t want;
	bool composite;
	struct dn_target *nodes; /* owned */
	uint32_t node_count;
	uint8_t index[EC_UNITS_MAX];   /* of each node: its unit */
	uint8_t *tokens[EC_UNITS_MAX]; /* owned: TokenProto, encoded; NULL: none */
	size_t token_len[EC_UNITS_MAX];

	struct dtp_call call; /* to a unit's node */
	bool calling;
	uint32_t unit, failed; /* the one at hand; set of units whose nodes did not answer */
	struct group_unit units[EC_UNITS_MAX];
	uint64_t covered;
	enum crc_type crc_type;
	uint32_t bpc;
	uint64_t crc_per_block;
	int rc;
	struct err err;

	struct reconstruct_taker taker; /* the unit at hand, as it is made */
	EVP_MD_CTX *md5;
	enum crc_type taker_type;
	uint32_t taker_bpc, cell_crc, cell_len;
	uint64_t taken;
};

static void group_fail(struct dtp_group *g, int rc, const char *what)
{
	g->rc = g->err.rc ? rc : err_set(&g->err, rc, "%s: %s", what, err_name(rc));
	g->state = GR_FAILED;
}

/* ---- a unit's checksum ---- */

static uint32_t cells_of(const struct dtp_group *g, uint64_t len)
{
	return (uint32_t)((len + g->policy.cell - 1) / g->policy.cell);
}

/* The kind of CRCs must be the same in all units, and that of the first is answered. */
static int take_kind(struct dtp_group *g, enum crc_type type, uint32_t bpc, uint64_t crc_per_block)
{
	if (g->unit == 0) {
		g->crc_type = type;
		g->bpc = bpc;
		g->crc_per_block = crc_per_block;
		return 0;
	}
	if (bpc != g->bpc)
		return err_set(&g->err, -EINVAL,
			       "Byte-per-checksum not matched: bpc=%u but bytesPerCRC=%u", bpc,
			       g->bpc);
	if (type != g->crc_type)
		return err_set(&g->err, -EINVAL,
			       "the units of the group have CRCs of different types");
	return 0;
}

/* The data units cover all that is wanted. A unit whose node is not named is rebuilt, also behind
 * the last one that is: a checksum of a part would pass for one of the whole. */
static void unit_done(struct dtp_group *g, uint8_t *sum, uint32_t cells)
{
	const uint64_t len = ec_unit_length(&g->policy, g->want, g->unit);

	g->units[g->unit] = (struct group_unit){sum, cells, len};
	g->covered += len;
	g->unit++;
	g->state = g->covered >= g->want ? GR_DONE : GR_UNIT;
}

static int take_answer(struct dtp_group *g, const Hd__BlockOpResponseProto *m)
{
	const Hd__OpBlockChecksumResponseProto *sum = m->checksumresponse;
	const uint32_t cells = cells_of(g, ec_unit_length(&g->policy, g->want, g->unit));
	const enum crc_type type =
		sum && sum->has_crctype ? (enum crc_type)sum->crctype : CRC_CRC32;
	const Hd__BlockChecksumOptionsProto *o = sum ? sum->blockchecksumoptions : NULL;
	uint8_t *copy;
	int rc = dt_status_errno((int)m->status);

	if (rc < 0)
		return rc;
	if (!sum || (type != CRC_CRC32 && type != CRC_CRC32C) || !sum->bytespercrc ||
	    sum->blockchecksum.len != (g->composite ? 4 * (size_t)cells : MD5_LEN))
		return -EPROTO;
	if (g->composite &&
	    (!o || o->blockchecksumtype != HD__BLOCK_CHECKSUM_TYPE_PROTO__COMPOSITE_CRC))
		return -EPROTO;
	rc = take_kind(g, type, sum->bytespercrc, sum->crcperblock);
	copy = rc == 0 ? malloc(sum->blockchecksum.len + 1) : NULL;
	if (!copy)
		return rc ? rc : -ENOMEM;
	memcpy(copy, sum->blockchecksum.data, sum->blockchecksum.len);
	unit_done(g, copy, cells);
	return 0;
}

static void on_answer(struct dtp_call *c, const Hd__BlockOpResponseProto *m)
{
	struct dtp_group *g = container_of(c, struct dtp_group, call);
	int rc = c->rc;

	g->calling = false;
	if (c->xc)
		xconn_close(c->xc);
	if (rc == 0)
		rc = take_answer(g, m);
	if (rc < 0) {
		log_info("op=group-checksum group=%" PRId64 " unit=%u: %s: rebuilding it",
			 g->group.id, g->unit,
			 c->rc             ? c->err.text
			 : m && m->message ? m->message
					   : err_name(rc));
		g->failed |= 1u << g->unit;
		g->state = GR_REBUILD;
	}
	dtp_ready(g->op.conn);
}

static int ask_encode(const struct dtp_group *g, uint32_t node, uint8_t **ret, size_t *ret_len)
{
	const struct block b = {ec_id_of(g->group.id, g->unit), g->group.gs,
				ec_unit_length(&g->policy, g->want, g->unit)};
	Hd__OpBlockChecksumProto m = HD__OP_BLOCK_CHECKSUM_PROTO__INIT;
	Hd__BaseHeaderProto header = HD__BASE_HEADER_PROTO__INIT;
	Hd__ExtendedBlockProto block = HD__EXTENDED_BLOCK_PROTO__INIT;
	Hd__BlockChecksumOptionsProto options = HD__BLOCK_CHECKSUM_OPTIONS_PROTO__INIT;
	Hc__TokenProto none = HC__TOKEN_PROTO__INIT, *token = NULL;
	char empty[] = "";
	int rc = g->tokens[node] ? pb_unpack(&hc__token_proto__descriptor, g->tokens[node],
					     g->token_len[node], &token)
				 : 0;

	if (rc < 0)
		return rc;
	none.kind = none.service = empty;
	dt_block_to_proto(&b, pool_id(g->bp), &block);
	header.block = &block;
	header.token = token ? token : &none;
	options.has_blockchecksumtype = options.has_stripelength = 1;
	options.blockchecksumtype = g->composite ? HD__BLOCK_CHECKSUM_TYPE_PROTO__COMPOSITE_CRC
						 : HD__BLOCK_CHECKSUM_TYPE_PROTO__MD5CRC;
	options.stripelength = g->composite ? g->policy.cell : 0;
	m.header = &header;
	m.blockchecksumoptions = &options;
	rc = dt_op_encode(DT_BLOCK_CHECKSUM, &m, ret, ret_len);
	pb_free(token);
	return rc;
}

static void do_unit(struct dtp_group *g)
{
	struct dtp_call_params call = {.connect_ns = g->op.conn->core->waits.read_ns};
	uint32_t node = 0;
	int rc;

	while (node < g->node_count && g->index[node] != g->unit)
		node++;
	if (node == g->node_count) {
		g->state = GR_REBUILD;
		return;
	}
	call.to = &g->nodes[node];
	rc = ask_encode(g, node, &call.op, &call.op_len);
	if (rc == 0) {
		g->state = GR_WAIT_PEER;
		rc = dtp_call_start(&g->call, g->op.conn->core, &call, on_answer);
		g->calling = rc == 0;
	}
	if (rc < 0) {
		g->failed |= 1u << g->unit;
		g->state = GR_REBUILD;
	}
}

/* ---- a unit that nobody gives ---- */

static void take_cells(struct dtp_group *g, const uint8_t *data, uint32_t len)
{
	struct group_unit *u = &g->units[g->unit];

	while (len) {
		const uint32_t room = g->policy.cell - g->cell_len, n = len < room ? len : room;
		uint32_t be;

		g->cell_crc = crc_extend(g->taker_type, g->cell_len ? g->cell_crc : 0, data, n);
		g->cell_len += n;
		data += n;
		len -= n;
		g->taken += n;
		if (g->cell_len < g->policy.cell && g->taken < u->len)
			continue;
		be = htobe32(g->cell_crc);
		memcpy(u->sum + 4 * (size_t)u->cells++, &be, 4);
		g->cell_len = 0;
	}
}

static void on_bytes(struct reconstruct_taker *t, const uint8_t *data, uint32_t len,
		     enum crc_type type, uint32_t bpc)
{
	struct dtp_group *g = container_of(t, struct dtp_group, taker);
	uint8_t crcs[4 * 256];

	g->taker_type = type;
	g->taker_bpc = bpc;
	if (g->composite) {
		take_cells(g, data, len);
		return;
	}
	while (len) {
		const uint32_t whole = (uint32_t)sizeof(crcs) / 4 * bpc,
			       n = len < whole ? len : whole;

		crc_chunks(type, data, n, bpc, crcs);
		(void)EVP_DigestUpdate(g->md5, crcs, crc_bytes(type, n, bpc));
		data += n;
		len -= n;
	}
}

static void on_rebuilt(void *arg, int rc, const struct err *err)
{
	struct dtp_group *g = arg;
	struct group_unit *u = &g->units[g->unit];
	uint8_t *sum = u->sum;
	unsigned int len = MD5_LEN;

	u->sum = NULL;
	if (rc < 0)
		g->err = *err;
	else
		rc = take_kind(g, g->taker_type, g->taker_bpc,
			       (u->len + g->taker_bpc - 1) / g->taker_bpc);
	if (rc == 0 && !g->composite && !EVP_DigestFinal_ex(g->md5, sum, &len))
		rc = -EIO;
	if (rc == 0) {
		unit_done(g, sum, u->cells);
	} else {
		free(sum);
		group_fail(g, rc, "rebuild a unit");
	}
	EVP_MD_CTX_free(g->md5);
	g->md5 = NULL;
	dtp_ready(g->op.conn);
}

static int reconstruct_params_from(struct dtp_group *g, struct reconstruct_params *p)
{
	*p = (struct reconstruct_params){.bp = g->bp,
					 .group = g->group,
					 .policy = g->policy,
					 .taker = &g->taker,
					 .limit = g->units[g->unit].len,
					 .done = on_rebuilt,
					 .arg = g,
					 .target_count = 1};
	p->sources = calloc(g->node_count, sizeof(*p->sources));
	p->targets = calloc(1, sizeof(*p->targets));
	if (!p->sources || !p->targets)
		return -ENOMEM;
	p->targets[0].unit = (uint8_t)g->unit;
	for (uint32_t i = 0; i < g->node_count; i++) {
		if (g->index[i] == g->unit || g->failed & 1u << g->index[i])
			continue;
		p->sources[p->source_count++] = (struct reconstruct_node){
			.at = g->nodes[i],
			.unit = g->index[i],
			.own = !strcmp(g->nodes[i].uuid,
				       store_datanode_uuid(g->op.conn->core->dn->store))};
	}
	return 0;
}

static void do_rebuild(struct dtp_group *g)
{
	struct group_unit *u = &g->units[g->unit];
	struct reconstruct_params p;
	int rc;

	*u = (struct group_unit){.len = ec_unit_length(&g->policy, g->want, g->unit)};
	u->sum = malloc(g->composite ? 4 * (size_t)cells_of(g, u->len) + 4 : MD5_LEN);
	g->md5 = EVP_MD_CTX_new();
	g->taker.bytes = on_bytes;
	g->taken = g->cell_len = 0;
	g->taker_type = CRC_CRC32C; /* of no bytes */
	g->taker_bpc = 512;
	rc = u->sum && g->md5 && EVP_DigestInit_ex(g->md5, EVP_md5(), NULL) ? 0 : -ENOMEM;
	if (rc == 0)
		rc = reconstruct_params_from(g, &p);
	else
		p = (struct reconstruct_params){0};
	g->state = GR_WAIT_RECONSTRUCTION;
	if (rc == 0)
		rc = reconstruct_open(g->op.conn->core, &p, &g->err);
	else
		reconstruct_params_fini(&p);
	if (rc == 0)
		return;
	EVP_MD_CTX_free(g->md5);
	g->md5 = NULL;
	group_fail(g, rc, "rebuild a unit");
}

/* ---- the group's ---- */

/* Java digests the whole of its growing buffer, behind the MD5s zeros. */
static int md5_of_units(struct dtp_group *g, uint8_t out[MD5_LEN])
{
	uint8_t buf[EC_UNITS_MAX * MD5_LEN * 2] = {0};
	uint32_t size = JAVA_BUFFER_MIN, used = 0;
	unsigned int len = MD5_LEN;

	for (uint32_t i = 0; i < g->unit; i++, used += MD5_LEN) {
		memcpy(buf + used, g->units[i].sum, MD5_LEN);
		if (used + MD5_LEN > size)
			size *= 2;
	}
	assert(size <= sizeof(buf));
	return EVP_Digest(buf, size, out, &len, EVP_md5(), NULL) ? 0 : -EIO;
}

/* The CRCs of cells in the order of the file. */
static int crc_of_units(struct dtp_group *g, uint8_t out[4])
{
	const uint64_t cell = g->policy.cell;
	uint32_t crc = 0, one;

	for (uint64_t at = 0; at < g->want; at += cell) {
		const struct group_unit *u = &g->units[at / cell % g->policy.k];
		const uint64_t row = at / cell / g->policy.k,
			       len = g->want - at < cell ? g->want - at : cell;

		if (row >= u->cells)
			return err_set(&g->err, -EPROTO,
				       "a data unit is missing in the order of nodes");
		memcpy(&one, u->sum + 4 * row, 4);
		one = be32toh(one);
		crc = at ? crc_combine(g->crc_type, crc, one, len) : one;
	}
	one = htobe32(crc);
	memcpy(out, &one, 4);
	return 0;
}

static void group_answer(struct dtp_group *g)
{
	uint8_t bytes[MD5_LEN];
	const struct dtp_sum sum = {.crc_type = g->crc_type,
				    .bpc = g->bpc,
				    .crc_per_block = g->crc_per_block,
				    .composite = g->composite,
				    .bytes = bytes,
				    .len = g->composite ? 4 : MD5_LEN};
	const int rc = g->rc          ? g->rc
		       : g->composite ? crc_of_units(g, bytes)
				      : md5_of_units(g, bytes);

	if (rc == 0) {
		dtp_send_checksum(g->op.conn, &sum);
		return;
	}
	log_info("op=group-checksum peer=%s group=%" PRId64 ": %s", g->op.conn->peer, g->group.id,
		 g->err.rc ? g->err.text : err_name(rc));
	dtp_send_status(g->op.conn, DT_ERROR, NULL, g->err.rc ? g->err.text : err_name(rc));
	dtp_break(g->op.conn, rc, "group checksum");
}

static void group_free(struct dtp_group *g)
{
	for (uint32_t i = 0; i < EC_UNITS_MAX; i++) {
		free(g->units[i].sum);
		free(g->tokens[i]);
	}
	free(g->nodes);
	free(g);
}

static void group_step(struct dtp_op *op)
{
	struct dtp_group *g = container_of(op, struct dtp_group, op);
	struct dtp_conn *c = op->conn;
	enum group_state before;

	do {
		before = g->state;
		if (c->state >= DTP_CLOSING && (g->state == GR_UNIT || g->state == GR_REBUILD))
			group_fail(g, -ECANCELED, "the asker is gone");
		if (c->state >= DTP_CLOSING && g->calling)
			dtp_call_cancel(&g->call);
		switch (g->state) {
		case GR_UNIT:
			do_unit(g);
			break;
		case GR_REBUILD:
			do_rebuild(g);
			break;
		case GR_WAIT_PEER:
		case GR_WAIT_RECONSTRUCTION:
			break;
		case GR_FAILED:
		case GR_DONE:
			if (c->state < DTP_CLOSING)
				group_answer(g);
			group_free(g);
			dtp_op_done(c);
			return;
		}
	} while (g->state != before);
}

static void abort_nothing(struct dtp_op *op)
{
	(void)op; /* comes to its end by itself */
}

/* ---- begin ---- */

static int take_tokens(struct dtp_group *g, const Hd__OpBlockGroupChecksumProto *m)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < m->n_blocktokens && i < g->node_count; i++)
		rc = pb_pack(m->blocktokens[i], &g->tokens[i], &g->token_len[i]);
	return rc;
}

static int take_msg(struct dtp_group *g, const Hd__OpBlockGroupChecksumProto *m)
{
	const Hd__BlockChecksumOptionsProto *o = m->blockchecksumoptions;
	const size_t n = m->datanodes->n_datanodes;
	struct engine_core *core = g->op.conn->core;
	int rc = dtp_block(core, m->header,
			   (struct token_access){.mode = HD__ACCESS_MODE_PROTO__READ}, &g->group,
			   &g->bp, &g->err);

	if (rc == 0)
		rc = ec_policy_from_msg(m->ecpolicy, &g->policy);
	if (rc == 0 && (!n || n > EC_UNITS_MAX || m->n_blockindices != n))
		rc = err_set(&g->err, -EINVAL, "%zu nodes and %zu indices of units", n,
			     m->n_blockindices);
	if (rc == 0 && (!ec_length_ok(g->group.len) || m->requestednumbytes > g->group.len ||
			ec_id_unit(g->group.id) || !ec_id_is_striped(g->group.id)))
		rc = err_set(&g->err, -EINVAL, "%" PRIu64 " bytes of %" PRIu64 " in group %" PRId64,
			     m->requestednumbytes, g->group.len, g->group.id);
	if (rc == 0 &&
	    ec_unit_length(&g->policy, m->requestednumbytes, 0) / g->policy.cell >= STRIPE_CRCS_MAX)
		rc = err_set(&g->err, -EINVAL, "units of more than %u cells", STRIPE_CRCS_MAX);
	if (rc == 0)
		rc = dtp_targets(m->datanodes->datanodes, n, NULL, 0, NULL, 0, &g->nodes, &g->err);
	if (rc < 0)
		return rc;
	g->node_count = (uint32_t)n;
	for (size_t i = 0; i < n; i++) {
		if (m->blockindices[i] >= EC_UNITS_MAX)
			return err_set(&g->err, -EINVAL, "unit %u", m->blockindices[i]);
		g->index[i] = (uint8_t)m->blockindices[i];
	}
	g->want = m->requestednumbytes;
	g->composite = o && o->has_blockchecksumtype &&
		       o->blockchecksumtype == HD__BLOCK_CHECKSUM_TYPE_PROTO__COMPOSITE_CRC;
	return take_tokens(g, m);
}

void dtp_group_checksum_start(struct dtp_conn *c, const Hd__OpBlockGroupChecksumProto *msg)
{
	struct dtp_group *g = calloc(1, sizeof(*g));
	int rc = g ? 0 : -ENOMEM;

	if (rc == 0) {
		g->op = (struct dtp_op){.step = group_step, .abort = abort_nothing, .conn = c};
		rc = take_msg(g, msg);
	}
	if (rc < 0) {
		dtp_send_status(c, dtp_refusal(rc), NULL,
				g && g->err.rc ? g->err.text : err_name(rc));
		dtp_break(c, rc, "BLOCK_GROUP_CHECKSUM refused");
		if (g)
			group_free(g);
		return;
	}
	c->op = &g->op;
	dtp_ready(c);
}
