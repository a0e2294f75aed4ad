/* SPDX-License-Identifier: Apache-2.0 */
/* Every message that Hadoop 3.4.2 sent in tests/data/vectors is decoded and encoded again to the
 * same bytes; every packet's CRCs are verified. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ClientDatanodeProtocol.pb-c.h"
#include "common/base/crc.h"
#include "common/base/cursor.h"
#include "common/wire/block_report_test_fixture.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"
#include "tests/golden/descriptors.h"

#define CALLS_MAX 4096
#define METHODS_MAX 256

struct stream {
	uint8_t *data;
	size_t len;
};

struct capture {
	char name[512];
	struct stream up, down;
};

static struct {
	size_t files, requests, answers, errors, ops, packets, bytes, acks, replies;
} total;

/* ---- captures ---- */

static void add_hex(struct stream *s, const char *hex, size_t n)
{
	s->data = realloc(s->data, s->len + n / 2 + 1);
	assert_non_null(s->data);
	for (size_t i = 0; i + 1 < n; i += 2) {
		const char pair[3] = {hex[i], hex[i + 1], '\0'};

		s->data[s->len++] = (uint8_t)strtoul(pair, NULL, 16);
	}
}

static void load(struct capture *c, const char *path)
{
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t size = 0;
	ssize_t n;

	assert_non_null(f);
	memset(c, 0, sizeof(*c));
	snprintf(c->name, sizeof(c->name), "%s", path + strlen(VECTORS_DIR) + 1);
	while ((n = getline(&line, &size, f)) >= 0)
		if (n > 2 && (line[0] == '>' || line[0] == '<'))
			add_hex(line[0] == '>' ? &c->up : &c->down, line + 2,
				strcspn(line + 2, "\r\n"));
	free(line);
	fclose(f);
}

static void unload(struct capture *c)
{
	free(c->up.data);
	free(c->down.data);
}

static void same_bytes(const struct capture *c, const char *what, const void *a, size_t a_len,
		       const void *b, size_t b_len)
{
	if (a_len != b_len || (a_len && memcmp(a, b, a_len) != 0))
		fail_msg("%s: %s comes back as %zu bytes instead of %zu, or different", c->name,
			 what, b_len, a_len);
}

/* Unpack, pack, compare; the message is the caller's. */
static void *round_trip(const struct capture *c, const ProtobufCMessageDescriptor *d,
			const void *buf, size_t len)
{
	uint8_t *again;
	size_t again_len;
	void *msg;
	int rc = pb_unpack(d, buf, len, &msg);

	if (rc)
		fail_msg("%s: %s does not decode: %d", c->name, d->name, rc);
	for (unsigned int i = 0; i < ((ProtobufCMessage *)msg)->n_unknown_fields; i++)
		fail_msg("%s: %s has unknown fields", c->name, d->name);
	assert_int_equal(pb_pack(msg, &again, &again_len), 0);
	same_bytes(c, d->name, buf, len, again, again_len);
	free(again);
	return msg;
}

/* ---- RPC ---- */

static const struct {
	const char *protocol, *service;
} services[] = {
	{RPC_PROTO_CLIENT, "hadoop.hdfs.ClientNamenodeProtocol"},
	{RPC_PROTO_DATANODE, "hadoop.hdfs.datanode.DatanodeProtocolService"},
	{RPC_PROTO_LIFELINE, "hadoop.hdfs.datanodelifeline.DatanodeLifelineProtocolService"},
	{RPC_PROTO_NAMENODE, "hadoop.hdfs.namenode.NamenodeProtocolService"},
	{RPC_PROTO_HA, "hadoop.common.HAServiceProtocolService"},
	{RPC_PROTO_RECONFIG, "hadoop.hdfs.ReconfigurationProtocolService"},
	{RPC_PROTO_CLIENT_DATANODE, "hadoop.hdfs.ClientDatanodeProtocolService"},
	{RPC_PROTO_INTER_DATANODE, "hadoop.hdfs.InterDatanodeProtocolService"},
	{RPC_PROTO_REFRESH_AUTH, "hadoop.common.RefreshAuthorizationPolicyProtocolService"},
	{RPC_PROTO_REFRESH_USERS, "hadoop.common.RefreshUserMappingsProtocolService"},
	{RPC_PROTO_REFRESH_CALLQ, "hadoop.common.RefreshCallQueueProtocolService"},
	{RPC_PROTO_GET_USERS, "hadoop.common.GetUserMappingsProtocolService"},
	{RPC_PROTO_META_INFO, "hadoop.common.ProtocolInfoService"},
};

struct method {
	char service[128], name[64];
	const ProtobufCMessageDescriptor *in, *out;
};
static struct method methods[METHODS_MAX];
static size_t method_count;

static void add_method(void *arg, const struct tsv_row *r)
{
	struct method *m = &methods[method_count];
	char in[256], *arrow;

	(void)arg;
	if (strcmp(r->kind, "service-method") != 0)
		return;
	assert_true(method_count < METHODS_MAX);
	snprintf(in, sizeof(in), "%s", r->type);
	arrow = strstr(in, " -> ");
	assert_non_null(arrow);
	*arrow = '\0';
	snprintf(m->service, sizeof(m->service), "%s", r->full);
	snprintf(m->name, sizeof(m->name), "%s", r->name);
	m->in = descriptors_message(in);
	m->out = descriptors_message(arrow + 4);
	method_count += m->in && m->out;
}

static const struct method *find_method(const struct capture *c, const Hc__RequestHeaderProto *h)
{
	const char *service = "";

	for (size_t i = 0; i < sizeof(services) / sizeof(*services); i++)
		if (!strcmp(services[i].protocol, h->declaringclassprotocolname))
			service = services[i].service;
	for (size_t i = 0; i < method_count; i++)
		if (!strcmp(methods[i].service, service) && !strcmp(methods[i].name, h->methodname))
			return &methods[i];
	fail_msg("%s: no method %s of %s", c->name, h->methodname, h->declaringclassprotocolname);
	return NULL;
}

static int count_replica(void *arg, const struct block *b, uint32_t state)
{
	size_t *n = arg;

	assert_true(b->id && b->gs > 1000 && state <= REPLICA_RWR);
	n[state]++;
	return 0;
}

/* Decode the report and encode it again: same chunks. */
static int add_replica(void *arg, const struct block *b, uint32_t state)
{
	return block_report_add(arg, b, (enum replica_state)state);
}

static size_t report_states[16], report_best[16];

static void check_report(const struct capture *c, const Hdd__BlockReportRequestProto *m)
{
	size_t n[16] = {0};

	for (size_t i = 0; i < m->n_reports; i++) {
		struct block_report again = BLOCK_REPORT_INIT;
		const Hdd__StorageBlockReportProto *s = m->reports[i];

		assert_int_equal(block_report_each(s, count_replica, n), 0);
		assert_int_equal(block_report_each(s, add_replica, &again), 0);
		assert_int_equal(block_report_finish(&again), 0);
		assert_int_equal(again.count, s->numberofblocks);
		assert_int_equal(again.chunk_count, s->n_blocksbuffers);
		same_bytes(c, "block report", s->blocksbuffers[0].data, s->blocksbuffers[0].len,
			   again.chunks[0].data, again.chunks[0].len);
		block_report_fini(&again);
	}
	for (int i = 0; i < 16; i++)
		report_states[i] += n[i];
	if (strstr(c->name, "dn1-to-nn-2") && n[REPLICA_RWR])
		memcpy(report_best, n, sizeof(n));
}

static const struct method *calls[CALLS_MAX];

static void check_request(const struct capture *c, const uint8_t *frame, size_t len)
{
	enum rpc_detail detail;
	struct rpc_request_args a;
	struct rpc_request q;
	uint8_t *again;
	size_t again_len;
	void *msg = NULL;
	int rc = rpc_request_decode(frame + 4, len - 4, &q, &detail);

	if (rc)
		fail_msg("%s: request: %d", c->name, rc);
	if (q.call_id == RPC_CALL_CONTEXT) {
		msg = round_trip(c, &hc__ipc_connection_context_proto__descriptor, q.message,
				 q.message_len);
	} else if (q.call_id >= 0) {
		const struct method *m = find_method(c, q.method);

		assert_true(q.call_id < CALLS_MAX);
		calls[q.call_id] = m;
		msg = round_trip(c, m->in, q.message, q.message_len);
		if (m->in == &hdd__block_report_request_proto__descriptor)
			check_report(c, msg);
	} else {
		assert_int_equal(q.call_id, RPC_CALL_PING);
	}
	a = (struct rpc_request_args){
		.call_id = q.call_id,
		.retry_count = q.retry_count,
		.client_id = q.header->clientid.data,
		.client_id_len = q.header->clientid.len,
		.protocol = q.method ? q.method->declaringclassprotocolname : NULL,
		.method = q.method ? q.method->methodname : NULL,
		.caller_context = q.header->callercontext ? q.header->callercontext->context : NULL,
		.has_state_id = q.header->has_stateid,
		.state_id = q.header->stateid};
	assert_int_equal(rpc_request_encode(&a, msg, &again, &again_len), 0);
	same_bytes(c, "request frame", frame, len, again, again_len);
	free(again);
	pb_free(msg);
	rpc_request_fini(&q);
	total.requests++;
}

static void check_answer(const struct capture *c, const uint8_t *frame, size_t len)
{
	struct err err = ERR_INIT;
	struct rpc_response q;
	struct rpc_reply_to to;
	uint8_t *again;
	size_t again_len;
	void *msg = NULL;
	int rc = rpc_response_decode(frame + 4, len - 4, &q);

	if (rc)
		fail_msg("%s: answer: %d", c->name, rc);
	assert_true(q.call_id >= 0 && q.call_id < CALLS_MAX && calls[q.call_id]);
	to = (struct rpc_reply_to){q.call_id,
				   q.header->retrycount,
				   q.header->clientid.data,
				   q.header->clientid.len,
				   q.header->has_stateid,
				   q.header->stateid};
	if (q.status == RPC_SUCCESS) {
		msg = round_trip(c, calls[q.call_id]->out, q.message, q.message_len);
		assert_int_equal(rpc_response_encode(&to, msg, &again, &again_len), 0);
		total.answers++;
	} else {
		assert_int_equal(rpc_error_encode(&to, q.status,
						  (enum rpc_detail)q.header->errordetail,
						  q.header->exceptionclassname, q.header->errormsg,
						  &again, &again_len),
				 0);
		assert_true(rpc_response_error(&q, &err) < 0);
		assert_string_equal(err.remote, q.header->exceptionclassname);
		total.errors++;
	}
	same_bytes(c, "answer frame", frame, len, again, again_len);
	free(again);
	pb_free(msg);
	rpc_response_fini(&q);
}

static void each_frame(const struct capture *c, const uint8_t *p, size_t len,
		       void (*fn)(const struct capture *c, const uint8_t *frame, size_t len))
{
	uint32_t n;

	for (; len; p += 4 + n, len -= 4 + n) {
		assert_true(len >= 4);
		assert_int_equal(rpc_frame_len(p, RPC_FRAME_MAX, &n), 0);
		assert_true(len >= 4 + n);
		fn(c, p, 4 + n);
	}
}

static void check_rpc(const struct capture *c)
{
	enum rpc_auth auth;

	memset(calls, 0, sizeof(calls));
	assert_int_equal(rpc_preamble_decode(c->up.data, &auth), 0);
	assert_int_equal(auth, RPC_AUTH_NONE);
	each_frame(c, c->up.data + RPC_PREAMBLE_LEN, c->up.len - RPC_PREAMBLE_LEN, check_request);
	each_frame(c, c->down.data, c->down.len, check_answer);
}

/* ---- data transfer ---- */

static const uint8_t *take_delim(const struct capture *c, struct rd *r, size_t *len)
{
	uint32_t prefix;
	ssize_t need;
	size_t n = 0;

	/* As a receiver does it: never look at more than was asked for. */
	do {
		need = dt_delim_need(r->p, n, DT_MESSAGE_MAX, &prefix);
		if (need < 0 || (size_t)need > rd_left(r))
			fail_msg("%s: delimited message: %zd of %zu", c->name, need, rd_left(r));
		if ((size_t)need <= n)
			break;
		n = (size_t)need;
	} while (1);
	*len = (size_t)need - prefix;
	return rd_bytes(r, (size_t)need) + prefix;
}

static void *take_message(const struct capture *c, struct rd *r,
			  const ProtobufCMessageDescriptor *d)
{
	size_t len;
	const uint8_t *p = take_delim(c, r, &len);

	return round_trip(c, d, p, len);
}

static void check_packet_data(const struct capture *c, const struct dt_packet *p, struct rd *r,
			      const Hd__ChecksumProto *sum)
{
	const uint8_t *crcs = rd_bytes(r, p->crc_len), *data = rd_bytes(r, p->data_len);
	const enum crc_type type = (enum crc_type)sum->type;

	if (r->bad)
		fail_msg("%s: packet cut short", c->name);
	if (!dt_packet_crc_len_ok(p, sum->bytesperchecksum))
		fail_msg("%s: %u bytes of CRCs for %u", c->name, p->crc_len, p->data_len);
	if (p->crc_len && crc_verify(type, data, p->data_len, sum->bytesperchecksum, crcs) >= 0)
		fail_msg("%s: CRC of a packet at %ld", c->name, (long)p->offset);
	total.packets++;
	total.bytes += p->data_len;
}

static void take_packets(const struct capture *c, struct rd *r, const Hd__ChecksumProto *sum)
{
	uint8_t again[DT_PACKET_HEADER_MAX];
	struct dt_packet p = {0};

	while (!p.last && rd_left(r)) {
		const ssize_t need = dt_packet_need(r->p, rd_left(r));
		const uint8_t *head;

		assert_true(need > 0);
		head = rd_bytes(r, (size_t)need);
		assert_non_null(head);
		if (dt_packet_decode(head, (size_t)need, &p))
			fail_msg("%s: packet header", c->name);
		same_bytes(c, "packet header", head, (size_t)need, again,
			   dt_packet_encode(&p, again));
		check_packet_data(c, &p, r, sum);
	}
}

static void take_acks(const struct capture *c, struct rd *r)
{
	uint8_t again[DT_ACK_MAX];
	struct dt_ack a;

	while (rd_left(r)) {
		const uint8_t *start = r->p;
		size_t len;
		const uint8_t *p = take_delim(c, r, &len);

		if (dt_ack_decode(p, len, &a))
			fail_msg("%s: ack", c->name);
		same_bytes(c, "ack", start, (size_t)(r->p - start), again,
			   dt_ack_encode(&a, again));
		total.acks++;
	}
}

/* The answer to an op; IN_PROGRESS ones are skipped. */
static Hd__BlockOpResponseProto *take_response(const struct capture *c, struct rd *down)
{
	for (;;) {
		Hd__BlockOpResponseProto *m =
			take_message(c, down, &hd__block_op_response_proto__descriptor);

		total.replies++;
		if (m->status != HD__STATUS__IN_PROGRESS)
			return m;
		pb_free(m);
	}
}

static void check_write(const struct capture *c, struct rd *up, struct rd *down,
			const Hd__OpWriteBlockProto *op)
{
	const bool client = op->header->clientname[0] != '\0';
	const bool transfer =
		(int)op->stage == DT_TRANSFER_RBW || (int)op->stage == DT_TRANSFER_FINALIZED;

	if (client && !transfer) {
		Hd__BlockOpResponseProto *m = take_response(c, down);
		const bool failed = m->status != HD__STATUS__SUCCESS;

		pb_free(m);
		if (failed)
			return;
	}
	if ((int)op->stage == DT_CLOSE_RECOVERY)
		return;
	take_packets(c, up, op->requestedchecksum);
	if (transfer)
		pb_free(take_response(c, down));
	else if (client)
		take_acks(c, down);
}

static void check_read(const struct capture *c, struct rd *up, struct rd *down, uint8_t op)
{
	Hd__BlockOpResponseProto *m = take_response(c, down);
	enum dt_status s;
	size_t len;

	if (m->status == HD__STATUS__SUCCESS) {
		take_packets(c, down, m->readopchecksuminfo->checksum);
		if (op == DT_COPY_BLOCK) {
			assert_int_equal(rd_be16(down), DT_COPY_BLOCK_END);
		} else if (rd_left(up)) {
			const uint8_t *p = take_delim(c, up, &len);

			assert_int_equal(dt_read_status_decode(p, len, &s), 0);
			assert_true(s == DT_CHECKSUM_OK || s == DT_SUCCESS);
		}
	}
	pb_free(m);
}

static void check_block_name(const Hd__ExtendedBlockProto *p)
{
	char pool[BLOCK_POOL_ID_MAX];
	Hd__ExtendedBlockProto again;
	struct block b;

	assert_int_equal(dt_block_from_proto(p, &b, pool), 0);
	dt_block_to_proto(&b, pool, &again);
	assert_string_equal(again.poolid, p->poolid);
	assert_true(again.blockid == p->blockid && again.generationstamp == p->generationstamp &&
		    again.numbytes == p->numbytes);
}

static void check_op(const struct capture *c, struct rd *up, struct rd *down)
{
	const uint8_t *head = rd_bytes(up, DT_OP_HEADER_LEN);
	uint8_t op, *again;
	size_t again_len;
	void *msg;

	assert_non_null(head);
	assert_int_equal(dt_op_header_decode(head, &op), 0);
	if (!dt_op_desc(op))
		fail_msg("%s: opcode %u", c->name, op);
	msg = take_message(c, up, dt_op_desc(op));
	assert_int_equal(dt_op_encode((enum dt_op)op, msg, &again, &again_len), 0);
	same_bytes(c, dt_op_name(op), head, (size_t)(up->p - head), again, again_len);
	free(again);
	total.ops++;
	if (op == DT_WRITE_BLOCK) {
		Hd__OpWriteBlockProto *w = msg;

		check_block_name(w->header->baseheader->block);
		check_write(c, up, down, w);
	} else if (op == DT_READ_BLOCK || op == DT_COPY_BLOCK) {
		check_read(c, up, down, op);
	} else {
		pb_free(take_response(c, down));
	}
	pb_free(msg);
}

static void check_dt(const struct capture *c)
{
	struct rd up = rd_init(c->up.data, c->up.len), down = rd_init(c->down.data, c->down.len);

	while (rd_left(&up))
		check_op(c, &up, &down);
	assert_int_equal(rd_left(&down), 0);
}

/* ---- all files ---- */

static int visit(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	const size_t len = strlen(path);
	struct capture c;

	(void)st;
	(void)ftw;
	if (type != FTW_F || len < 4 || strcmp(path + len - 4, ".txt") != 0)
		return 0;
	load(&c, path);
	if (c.up.len >= RPC_PREAMBLE_LEN && !memcmp(c.up.data, "hrpc", 4))
		check_rpc(&c);
	else
		check_dt(&c);
	unload(&c);
	total.files++;
	return 0;
}

static void every_recorded_message_comes_back_byte_by_byte(void **state)
{
	(void)state;
	descriptors_each_row(VECTORS_DIR "/../messages.tsv", add_method, NULL);
	assert_int_equal(nftw(VECTORS_DIR, visit, 16, FTW_PHYS), 0);
	print_message(
		"%zu captures: %zu requests, %zu answers, %zu exceptions; %zu ops, %zu replies, "
		"%zu packets (%zu bytes), %zu acks; replicas reported %zu/%zu/%zu\n",
		total.files, total.requests, total.answers, total.errors, total.ops, total.replies,
		total.packets, total.bytes, total.acks, report_states[REPLICA_FINALIZED],
		report_states[REPLICA_RBW], report_states[REPLICA_RWR]);
	/* What tests/data/vectors/check counts in the same files. */
	assert_int_equal(total.files, 173);
	assert_int_equal(total.requests, 691);
	assert_int_equal(total.answers, 563);
	assert_int_equal(total.errors, 37);
	assert_int_equal(total.ops, 82);
	assert_int_equal(total.packets, 159);
	assert_int_equal(total.bytes, 1182393);
	assert_int_equal(total.acks, 137);
}

static void the_full_report_of_a_restarted_node_has_its_nineteen_replicas(void **state)
{
	(void)state;
	assert_int_equal(report_best[REPLICA_FINALIZED], 17);
	assert_int_equal(report_best[REPLICA_RWR], 2);
	assert_int_equal(report_best[REPLICA_RBW], 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_recorded_message_comes_back_byte_by_byte),
		cmocka_unit_test(the_full_report_of_a_restarted_node_has_its_nineteen_replicas),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
