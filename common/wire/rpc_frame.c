/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/rpc_frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cursor.h"
#include "common/wire/pb.h"

static const uint8_t magic[4] = {'h', 'r', 'p', 'c'};

/* ---- preamble ---- */

void rpc_preamble_encode(uint8_t out[RPC_PREAMBLE_LEN], enum rpc_auth auth)
{
	memcpy(out, magic, sizeof(magic));
	out[4] = RPC_VERSION;
	out[5] = 0; /* service class: unused */
	out[6] = (uint8_t)auth;
}

int rpc_preamble_decode(const uint8_t buf[RPC_PREAMBLE_LEN], enum rpc_auth *ret_auth)
{
	if (memcmp(buf, magic, sizeof(magic)) != 0)
		return -EPROTO;
	if (buf[4] != RPC_VERSION)
		return -EPROTONOSUPPORT;
	if (buf[6] != RPC_AUTH_NONE && buf[6] != RPC_AUTH_SASL)
		return -EACCES;
	*ret_auth = (enum rpc_auth)buf[6];
	return 0;
}

bool rpc_preamble_is_http(const uint8_t buf[4])
{
	return memcmp(buf, "GET ", 4) == 0;
}

int rpc_frame_len(const uint8_t prefix[4], uint32_t max, uint32_t *ret)
{
	struct rd r = rd_init(prefix, 4);
	const uint32_t len = rd_be32(&r);

	if (!len || len > max || len > INT32_MAX)
		return -EMSGSIZE;
	*ret = len;
	return 0;
}

/* Up to three delimited messages (NULL: absent) behind their common length. */
static int frame_encode(const void *const msg[3], uint8_t **ret, size_t *ret_len)
{
	size_t size[3], len = 0;
	uint8_t *p;
	struct wr w;

	for (int i = 0; i < 3; i++) {
		size[i] = msg[i] ? protobuf_c_message_get_packed_size(msg[i]) : 0;
		len += msg[i] ? varint_len(size[i]) + size[i] : 0;
	}
	if (len > RPC_FRAME_MAX)
		return -EMSGSIZE;
	p = malloc(4 + len);
	if (!p)
		return -ENOMEM;
	w = wr_init(p, 4 + len);
	wr_be32(&w, (uint32_t)len);
	for (int i = 0; i < 3; i++)
		if (msg[i])
			pb_put_sized(&w, msg[i], size[i]);
	*ret = p;
	*ret_len = 4 + len;
	return 0;
}

/* ---- requests ---- */

int rpc_request_encode(const struct rpc_request_args *a, const void *msg, uint8_t **ret,
		       size_t *ret_len)
{
	Hc__RpcRequestHeaderProto h = HC__RPC_REQUEST_HEADER_PROTO__INIT;
	Hc__RequestHeaderProto m = HC__REQUEST_HEADER_PROTO__INIT;
	Hc__RPCCallerContextProto ctx = HC__RPCCALLER_CONTEXT_PROTO__INIT;

	h.has_rpckind = true;
	h.rpckind = HC__RPC_KIND_PROTO__RPC_PROTOCOL_BUFFER;
	h.has_rpcop = true;
	h.rpcop = HC__RPC_REQUEST_HEADER_PROTO__OPERATION_PROTO__RPC_FINAL_PACKET;
	h.callid = a->call_id;
	h.clientid = (ProtobufCBinaryData){a->client_id_len, (uint8_t *)a->client_id};
	h.has_retrycount = true;
	h.retrycount = a->retry_count;
	h.has_stateid = a->has_state_id;
	h.stateid = a->state_id;
	if (a->caller_context) {
		ctx.context = (char *)a->caller_context;
		h.callercontext = &ctx;
	}
	m.methodname = (char *)a->method;
	m.declaringclassprotocolname = (char *)a->protocol;
	m.clientprotocolversion = RPC_PROTOCOL_VERSION;
	return frame_encode((const void *[3]){&h, a->protocol ? &m : NULL, msg}, ret, ret_len);
}

int rpc_request_again(uint8_t **frame, size_t *len, int32_t call_id, int32_t retry_count)
{
	struct rd r = rd_init(*frame + 4, *len - 4);
	Hc__RpcRequestHeaderProto *h = NULL;
	size_t hlen, rest, size;
	const uint8_t *p = pb_take_delim(&r, &hlen);
	uint8_t *made;
	struct wr w;
	int rc = p ? pb_unpack(&hc__rpc_request_header_proto__descriptor, p, hlen, &h) : -EBADMSG;

	if (rc)
		return rc;
	h->callid = call_id;
	h->retrycount = retry_count;
	hlen = protobuf_c_message_get_packed_size(&h->base);
	rest = rd_left(&r);
	size = varint_len(hlen) + hlen + rest;
	made = malloc(4 + size);
	if (made) {
		w = wr_init(made, 4 + size);
		wr_be32(&w, (uint32_t)size);
		pb_put_sized(&w, h, hlen);
		wr_bytes(&w, rd_bytes(&r, rest), rest);
		free(*frame);
		*frame = made;
		*len = 4 + size;
	}
	pb_free(h);
	return made ? 0 : -ENOMEM;
}

int rpc_context_encode(const uint8_t *client_id, size_t client_id_len, const char *protocol,
		       const char *user, const char *real_user, uint8_t **ret, size_t *ret_len)
{
	const struct rpc_request_args a = {.call_id = RPC_CALL_CONTEXT,
					   .retry_count = -1,
					   .client_id = client_id,
					   .client_id_len = client_id_len};
	Hc__UserInformationProto info = HC__USER_INFORMATION_PROTO__INIT;
	Hc__IpcConnectionContextProto ctx = HC__IPC_CONNECTION_CONTEXT_PROTO__INIT;

	info.effectiveuser = (char *)user;
	info.realuser = (char *)real_user;
	ctx.userinfo = &info;
	ctx.protocol = (char *)protocol;
	return rpc_request_encode(&a, &ctx, ret, ret_len);
}

int rpc_ping_encode(const uint8_t *client_id, size_t client_id_len, uint8_t **ret, size_t *ret_len)
{
	const struct rpc_request_args a = {.call_id = RPC_CALL_PING,
					   .retry_count = -1,
					   .client_id = client_id,
					   .client_id_len = client_id_len};

	return rpc_request_encode(&a, NULL, ret, ret_len);
}

int rpc_sasl_request_encode(const Hc__RpcSaslProto *sasl, uint8_t **ret, size_t *ret_len)
{
	const struct rpc_request_args a = {.call_id = RPC_CALL_SASL, .retry_count = -1};

	return rpc_request_encode(&a, sasl, ret, ret_len);
}

/* 0, or -errno with the fatal detail that a server answers. */
static int check_header(const Hc__RpcRequestHeaderProto *h, enum rpc_detail *detail)
{
	*detail = RPC_FATAL_INVALID_HEADER;
	if (!h->has_rpcop ||
	    h->rpcop != HC__RPC_REQUEST_HEADER_PROTO__OPERATION_PROTO__RPC_FINAL_PACKET)
		return -EPROTO;
	if (!h->has_rpckind || h->rpckind != HC__RPC_KIND_PROTO__RPC_PROTOCOL_BUFFER)
		return -EPROTO;
	if (h->clientid.len > RPC_CLIENT_ID_MAX)
		return -EPROTO;
	if (h->callid < 0 && h->callid != RPC_CALL_CONTEXT && h->callid != RPC_CALL_PING &&
	    h->callid != RPC_CALL_SASL)
		return -EPROTO;
	return 0;
}

static int decode_body(struct rd *r, struct rpc_request *q)
{
	const uint8_t *p;
	size_t len;
	int rc;

	if (q->call_id >= 0) {
		p = pb_take_delim(r, &len);
		if (!p)
			return -EBADMSG;
		rc = pb_unpack_in(&q->room, &hc__request_header_proto__descriptor, p, len,
				  &q->method);
		if (rc)
			return rc;
	}
	if (q->call_id != RPC_CALL_PING)
		q->message = pb_take_delim(r, &q->message_len);
	return r->bad || rd_left(r) ? -EBADMSG : 0;
}

int rpc_request_decode(const uint8_t *frame, size_t len, struct rpc_request *ret,
		       enum rpc_detail *ret_detail)
{
	struct rpc_request *q = ret;
	struct rd r = rd_init(frame, len);
	size_t hlen;
	const uint8_t *p = pb_take_delim(&r, &hlen);
	int rc = -EBADMSG;

	*q = (struct rpc_request){.call_id = RPC_CALL_NONE, .retry_count = -1};
	if (p)
		rc = pb_unpack_in(&q->room, &hc__rpc_request_header_proto__descriptor, p, hlen,
				  &q->header);
	*ret_detail = RPC_FATAL_DESERIALIZING_REQUEST;
	if (!rc) {
		q->call_id = q->header->callid;
		q->retry_count = q->header->retrycount;
		rc = check_header(q->header, ret_detail);
	}
	if (!rc) {
		*ret_detail = RPC_FATAL_DESERIALIZING_REQUEST;
		rc = decode_body(&r, q);
	}
	if (rc) {
		const struct rpc_request whom = {.call_id = q->call_id,
						 .retry_count = q->retry_count};

		rpc_request_fini(q);
		*q = whom;
	}
	return rc;
}

void rpc_request_fini(struct rpc_request *r)
{
	pb_free_in(&r->room, r->header);
	pb_free_in(&r->room, r->method);
	*r = (struct rpc_request){.call_id = RPC_CALL_NONE};
}

/* ---- responses ---- */

static void response_header(Hc__RpcResponseHeaderProto *h, const struct rpc_reply_to *to)
{
	hc__rpc_response_header_proto__init(h);
	h->callid = (uint32_t)to->call_id;
	h->has_serveripcversionnum = true;
	h->serveripcversionnum = RPC_VERSION;
	h->has_clientid = true;
	h->clientid = (ProtobufCBinaryData){to->client_id_len, (uint8_t *)to->client_id};
	h->has_retrycount = true;
	h->retrycount = to->retry_count;
	h->has_stateid = to->has_state_id;
	h->stateid = to->state_id;
}

int rpc_response_encode(const struct rpc_reply_to *to, const void *msg, uint8_t **ret,
			size_t *ret_len)
{
	Hc__RpcResponseHeaderProto h;

	response_header(&h, to);
	h.status = HC__RPC_RESPONSE_HEADER_PROTO__RPC_STATUS_PROTO__SUCCESS;
	return frame_encode((const void *[3]){&h, msg}, ret, ret_len);
}

int rpc_error_encode(const struct rpc_reply_to *to, enum rpc_status status, enum rpc_detail detail,
		     const char *cls, const char *text, uint8_t **ret, size_t *ret_len)
{
	Hc__RpcResponseHeaderProto h;

	response_header(&h, to);
	h.status = (Hc__RpcResponseHeaderProto__RpcStatusProto)status;
	h.has_errordetail = true;
	h.errordetail = (Hc__RpcResponseHeaderProto__RpcErrorCodeProto)detail;
	h.exceptionclassname = (char *)cls;
	h.errormsg = (char *)text;
	return frame_encode((const void *[3]){&h}, ret, ret_len);
}

int rpc_sasl_response_encode(const Hc__RpcSaslProto *sasl, uint8_t **ret, size_t *ret_len)
{
	const struct rpc_reply_to to = {.call_id = RPC_CALL_SASL, .retry_count = -1};

	return rpc_response_encode(&to, sasl, ret, ret_len);
}

int rpc_sasl_success_encode(uint8_t **ret, size_t *ret_len)
{
	Hc__RpcSaslProto sasl = HC__RPC_SASL_PROTO__INIT;

	sasl.state = HC__RPC_SASL_PROTO__SASL_STATE__SUCCESS;
	return rpc_sasl_response_encode(&sasl, ret, ret_len);
}

int rpc_response_decode(const uint8_t *frame, size_t len, struct rpc_response *ret)
{
	struct rpc_response q = {0};
	struct rd r = rd_init(frame, len);
	size_t hlen;
	const uint8_t *p = pb_take_delim(&r, &hlen);
	int rc = p ? pb_unpack(&hc__rpc_response_header_proto__descriptor, p, hlen, &q.header)
		   : -EBADMSG;

	if (!rc && (unsigned int)q.header->status > RPC_FATAL)
		rc = -EBADMSG;
	if (!rc) {
		q.call_id = (int32_t)q.header->callid;
		q.status = (enum rpc_status)q.header->status;
		if (q.status == RPC_SUCCESS)
			q.message = pb_take_delim(&r, &q.message_len);
		rc = r.bad || rd_left(&r) ? -EBADMSG : 0;
	}
	*ret = q;
	if (rc)
		rpc_response_fini(ret);
	return rc;
}

void rpc_response_fini(struct rpc_response *r)
{
	pb_free(r->header);
	*r = (struct rpc_response){.call_id = RPC_CALL_NONE};
}

static const struct {
	const char *cls;
	int rc;
} classes[] = {
	{JEX_FILE_NOT_FOUND, -ENOENT},
	{JEX_DISK_FULL, -ENOSPC},
	{JEX_ILLEGAL_ARGUMENT, -EINVAL},
	{JEX_INVALID_PATH, -EINVAL},
	{JEX_UNSUPPORTED, -EOPNOTSUPP},
	{JEX_ACCESS_CONTROL, -EACCES},
	{JEX_AUTHORIZATION, -EACCES},
	{JEX_INVALID_TOKEN, -EKEYREJECTED},
	{JEX_FILE_EXISTS, -EEXIST},
	{JEX_NOT_EMPTY, -ENOTEMPTY},
	{JEX_PARENT_NOT_DIR, -ENOTDIR},
	{JEX_PATH_NOT_DIR, -ENOTDIR},
	{JEX_BEING_CREATED, -EBUSY},
	{JEX_RECOVERY_IN_PROGRESS, -EBUSY},
	{JEX_NOT_REPLICATED_YET, -EAGAIN},
	{JEX_RETRIABLE, -EAGAIN},
	{JEX_LEASE_EXPIRED, -ESTALE},
	{JEX_NS_QUOTA, -EDQUOT},
	{JEX_DS_QUOTA, -EDQUOT},
	{JEX_TYPE_QUOTA, -EDQUOT},
	{JEX_SAFE_MODE, -EROFS},
	{JEX_STANDBY, -EAGAIN},
	{JEX_OBSERVER_RETRY, -EAGAIN},
	{JEX_UNRESOLVED_PATH, -ELOOP},
	{JEX_SNAPSHOT_ACCESS, -EROFS},
	{JEX_XATTR_NOT_FOUND, -ENODATA},
	{JEX_NAME_TOO_LONG, -ENAMETOOLONG},
	{JEX_NO_SUCH_METHOD, -ENOSYS},
	{JEX_NO_SUCH_PROTOCOL, -ENOSYS},
	{JEX_VERSION_MISMATCH, -EPROTONOSUPPORT},
};

int rpc_class_errno(const char *cls)
{
	for (size_t i = 0; cls && i < sizeof(classes) / sizeof(*classes); i++)
		if (!strcmp(classes[i].cls, cls))
			return classes[i].rc;
	return -EREMOTEIO;
}

int rpc_response_error(const struct rpc_response *r, struct err *err)
{
	const Hc__RpcResponseHeaderProto *h = r->header;
	const char *cls, *msg;
	size_t n;
	int rc;

	if (r->status == RPC_SUCCESS)
		return 0;
	cls = h->exceptionclassname ? h->exceptionclassname : "unknown exception";
	msg = h->errormsg ? h->errormsg : "";
	rc = rpc_class_errno(h->exceptionclassname);
	if (rc == -EREMOTEIO && r->status == RPC_FATAL && h->has_errordetail &&
	    h->errordetail ==
		    HC__RPC_RESPONSE_HEADER_PROTO__RPC_ERROR_CODE_PROTO__FATAL_UNAUTHORIZED)
		rc = -EACCES;
	/* Stock servers may begin with the class and append a stack trace: people get the rest of
	 * the first line. */
	n = strlen(cls);
	if (!strncmp(msg, cls, n) && !strncmp(msg + n, ": ", 2))
		msg += n + 2;
	n = strcspn(msg, "\r\n");
	if (n && strcmp(cls, JEX_SAFE_MODE) == 0 && strstr(msg, "be turned off automatically"))
		err_set(err, rc, "%.*s " RPC_SAFE_MODE_ENDS, (int)n,
			msg); /* the line behind it tells that */
	else if (n)
		err_set(err, rc, "%.*s", (int)n, msg);
	else
		err_set(err, rc, "%s", cls);
	if (err) {
		n = strnlen(cls, sizeof(err->remote) - 1);
		memcpy(err->remote, cls, n);
		err->remote[n] = '\0';
	}
	return rc;
}
