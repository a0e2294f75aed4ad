/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/rpc_frame.h"

#include <setjmp.h>
#include <stdarg.h>

#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "common/wire/pb.h"

static const uint8_t id[RPC_CLIENT_ID_LEN] = "0123456789abcde";

static void the_preamble_is_seven_bytes_and_every_fault_has_its_code(void **state)
{
	uint8_t p[RPC_PREAMBLE_LEN];
	enum rpc_auth auth;

	(void)state;
	rpc_preamble_encode(p, RPC_AUTH_NONE);
	assert_memory_equal(p, "hrpc\x09\x00\x00", 7);
	assert_int_equal(rpc_preamble_decode(p, &auth), 0);
	p[6] = 0xdf;
	assert_int_equal(rpc_preamble_decode(p, &auth), 0);
	assert_int_equal(auth, RPC_AUTH_SASL);
	p[6] = 1;
	assert_int_equal(rpc_preamble_decode(p, &auth), -EACCES);
	p[4] = 8;
	assert_int_equal(rpc_preamble_decode(p, &auth), -EPROTONOSUPPORT);
	p[0] = 'G';
	assert_int_equal(rpc_preamble_decode(p, &auth), -EPROTO);
	assert_true(rpc_preamble_is_http((const uint8_t *)"GET /"));
}

static void a_frame_length_is_bounded(void **state)
{
	uint32_t len;

	(void)state;
	assert_int_equal(rpc_frame_len((const uint8_t *)"\0\0\1\0", 256, &len), 0);
	assert_int_equal(len, 256);
	assert_int_equal(rpc_frame_len((const uint8_t *)"\0\0\1\1", 256, &len), -EMSGSIZE);
	assert_int_equal(rpc_frame_len((const uint8_t *)"\0\0\0\0", 256, &len), -EMSGSIZE);
	assert_int_equal(rpc_frame_len((const uint8_t *)"\xff\0\0\0", UINT32_MAX, &len), -EMSGSIZE);
}

static uint8_t *make_call(size_t *len)
{
	const struct rpc_request_args a = {.call_id = 5,
					   .retry_count = 2,
					   .client_id = id,
					   .client_id_len = sizeof(id),
					   .protocol = RPC_PROTO_CLIENT,
					   .method = "getFileInfo",
					   .caller_context = "CLI"};
	Hd__GetFileInfoRequestProto m = HD__GET_FILE_INFO_REQUEST_PROTO__INIT;
	uint8_t *p;

	m.src = (char *)"/x";
	assert_int_equal(rpc_request_encode(&a, &m, &p, len), 0);
	return p;
}

static void a_call_survives_a_round_trip(void **state)
{
	Hd__GetFileInfoRequestProto *m;
	enum rpc_detail detail;
	struct rpc_request q;
	size_t len;
	uint8_t *p = make_call(&len);
	uint32_t flen;

	(void)state;
	assert_int_equal(rpc_frame_len(p, RPC_FRAME_MAX, &flen), 0);
	assert_int_equal(flen, len - 4);
	assert_int_equal(rpc_request_decode(p + 4, len - 4, &q, &detail), 0);
	assert_int_equal(q.call_id, 5);
	assert_int_equal(q.retry_count, 2);
	assert_string_equal(q.method->methodname, "getFileInfo");
	assert_string_equal(q.method->declaringclassprotocolname, RPC_PROTO_CLIENT);
	assert_int_equal(pb_unpack(&hd__get_file_info_request_proto__descriptor, q.message,
				   q.message_len, &m),
			 0);
	assert_string_equal(m->src, "/x");
	pb_free(m);
	rpc_request_fini(&q);
	/* Every cut is refused, and still says which call it was once the header is there. */
	for (size_t i = 0; i < len - 4; i++) {
		assert_int_equal(rpc_request_decode(p + 4, i, &q, &detail), -EBADMSG);
		assert_int_equal(detail, RPC_FATAL_DESERIALIZING_REQUEST);
		rpc_request_fini(&q);
	}
	assert_int_equal(rpc_request_decode(p + 4, len - 5, &q, &detail), -EBADMSG);
	assert_int_equal(q.call_id, 5);
	free(p);
}

static void context_ping_and_sasl_have_no_method(void **state)
{
	Hc__RpcSaslProto sasl = HC__RPC_SASL_PROTO__INIT;
	Hc__IpcConnectionContextProto *ctx;
	enum rpc_detail detail;
	struct rpc_request q;
	size_t len;
	uint8_t *p;

	(void)state;
	assert_int_equal(rpc_context_encode(id, 16, RPC_PROTO_CLIENT, "hdfs", "real", &p, &len), 0);
	assert_int_equal(rpc_request_decode(p + 4, len - 4, &q, &detail), 0);
	assert_int_equal(q.call_id, RPC_CALL_CONTEXT);
	assert_null(q.method);
	assert_int_equal(pb_unpack(&hc__ipc_connection_context_proto__descriptor, q.message,
				   q.message_len, &ctx),
			 0);
	assert_string_equal(ctx->userinfo->realuser, "real");
	pb_free(ctx);
	rpc_request_fini(&q);
	free(p);
	assert_int_equal(rpc_ping_encode(id, 16, &p, &len), 0);
	assert_int_equal(rpc_request_decode(p + 4, len - 4, &q, &detail), 0);
	assert_int_equal(q.call_id, RPC_CALL_PING);
	assert_null(q.message);
	rpc_request_fini(&q);
	free(p);
	sasl.state = HC__RPC_SASL_PROTO__SASL_STATE__NEGOTIATE;
	assert_int_equal(rpc_sasl_request_encode(&sasl, &p, &len), 0);
	assert_int_equal(rpc_request_decode(p + 4, len - 4, &q, &detail), 0);
	assert_int_equal(q.call_id, RPC_CALL_SASL);
	rpc_request_fini(&q);
	free(p);
}

static void a_header_of_another_kind_is_answered_as_invalid(void **state)
{
	enum rpc_detail detail;
	struct rpc_request q;
	size_t len;
	uint8_t *p = make_call(&len);

	(void)state;
	assert_memory_equal(p + 5, "\x08\x02\x10\x00\x18\x0a", 6); /* kind, op, call id */
	p[6] = 1;
	assert_int_equal(rpc_request_decode(p + 4, len - 4, &q, &detail), -EPROTO);
	assert_int_equal(detail, RPC_FATAL_INVALID_HEADER);
	assert_int_equal(q.call_id, 5);
	p[6] = 2;
	p[8] = 1;
	assert_int_equal(rpc_request_decode(p + 4, len - 4, &q, &detail), -EPROTO);
	p[8] = 0;
	p[10] = 3; /* call id -2 */
	assert_int_equal(rpc_request_decode(p + 4, len - 4, &q, &detail), -EPROTO);
	free(p);
}

static void a_client_id_has_a_largest_size(void **state)
{
	static const uint8_t long_id[RPC_CLIENT_ID_MAX + 1];

	(void)state;
	for (size_t over = 0; over < 2; over++) {
		enum rpc_detail detail;
		struct rpc_request q;
		size_t len;
		uint8_t *p;

		assert_int_equal(rpc_ping_encode(long_id, RPC_CLIENT_ID_MAX + over, &p, &len), 0);
		assert_int_equal(rpc_request_decode(p + 4, len - 4, &q, &detail),
				 over ? -EPROTO : 0);
		assert_int_equal(q.call_id, RPC_CALL_PING);
		assert_true(!over || detail == RPC_FATAL_INVALID_HEADER);
		rpc_request_fini(&q);
		free(p);
	}
}

static void answers_survive_a_round_trip(void **state)
{
	const struct rpc_reply_to to = {
		.call_id = RPC_CALL_NONE, .client_id = id, .client_id_len = 16};
	Hd__GetFileInfoResponseProto m = HD__GET_FILE_INFO_RESPONSE_PROTO__INIT;
	struct err err = ERR_INIT;
	struct rpc_response q;
	size_t len;
	uint8_t *p;

	(void)state;
	assert_int_equal(rpc_response_encode(&to, &m, &p, &len), 0);
	assert_int_equal(p[len - 1], 0); /* an empty message is one byte */
	assert_int_equal(rpc_response_decode(p + 4, len - 4, &q), 0);
	assert_int_equal(q.call_id, RPC_CALL_NONE);
	assert_int_equal(q.message_len, 0);
	assert_int_equal(rpc_response_error(&q, &err), 0);
	rpc_response_fini(&q);
	assert_int_equal(rpc_response_decode(p + 4, len - 5, &q), -EBADMSG);
	free(p);
	assert_int_equal(rpc_error_encode(&to, RPC_ERROR, RPC_ERROR_APPLICATION, JEX_FILE_NOT_FOUND,
					  "no such file: /x\n\tat java", &p, &len),
			 0);
	assert_int_equal(rpc_response_decode(p + 4, len - 4, &q), 0);
	assert_int_equal(rpc_response_error(&q, &err), -ENOENT);
	assert_string_equal(err.remote, JEX_FILE_NOT_FOUND);
	assert_non_null(strstr(err.text, "no such file: /x"));
	assert_null(strstr(err.text, "at java"));
	rpc_response_fini(&q);
	free(p);
	assert_int_equal(rpc_sasl_success_encode(&p, &len), 0);
	assert_int_equal(rpc_response_decode(p + 4, len - 4, &q), 0);
	assert_int_equal(q.call_id, RPC_CALL_SASL);
	rpc_response_fini(&q);
	free(p);
	assert_int_equal(rpc_class_errno(JEX_AUTHORIZATION), -EACCES);
	assert_int_equal(rpc_class_errno(JEX_DISK_FULL), -ENOSPC);
	assert_int_equal(rpc_class_errno("java.lang.Whatever"), -EREMOTEIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_preamble_is_seven_bytes_and_every_fault_has_its_code),
		cmocka_unit_test(a_frame_length_is_bounded),
		cmocka_unit_test(a_call_survives_a_round_trip),
		cmocka_unit_test(context_ping_and_sasl_have_no_method),
		cmocka_unit_test(a_header_of_another_kind_is_answered_as_invalid),
		cmocka_unit_test(a_client_id_has_a_largest_size),
		cmocka_unit_test(answers_survive_a_round_trip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
