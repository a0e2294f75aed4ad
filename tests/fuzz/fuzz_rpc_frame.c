/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/rpc_frame.h"

#include "common/wire/pb.h"
#include "tests/fuzz/fuzz.h"

static void as_request(const uint8_t *data, size_t size)
{
	Hc__IpcConnectionContextProto *ctx;
	Hc__RpcSaslProto *sasl;
	enum rpc_detail detail;
	struct rpc_request q;

	if (!rpc_request_decode(data, size, &q, &detail)) {
		MUST((q.call_id >= 0) == (q.method != NULL));
		if (q.call_id == RPC_CALL_CONTEXT &&
		    !pb_unpack(&hc__ipc_connection_context_proto__descriptor, q.message,
			       q.message_len, &ctx))
			pb_free(ctx);
		if (q.call_id == RPC_CALL_SASL &&
		    !pb_unpack(&hc__rpc_sasl_proto__descriptor, q.message, q.message_len, &sasl))
			pb_free(sasl);
	}
	rpc_request_fini(&q);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct err err = ERR_INIT;
	struct rpc_response r;
	enum rpc_auth auth;
	uint32_t len;

	if (size >= RPC_PREAMBLE_LEN) {
		rpc_preamble_decode(data, &auth);
		rpc_frame_len(data, RPC_FRAME_MAX, &len);
	}
	as_request(data, size);
	if (!rpc_response_decode(data, size, &r))
		MUST((rpc_response_error(&r, &err) == 0) == (r.status == RPC_SUCCESS));
	rpc_response_fini(&r);
	return 0;
}
