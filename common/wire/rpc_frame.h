/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * rpc_frame - Hadoop RPC version 9: preamble, frames, headers
 *
 * Idea: everything about the envelope of a call is here, for both ends; bodies are opaque here.
 * An encoder returns one malloc'ed buffer, length prefix included, ready to send. A decoder takes
 * one complete frame *without* its 4-byte length.
 * Ownership: decoded headers belong to the struct that they are decoded into, which stays where it
 * is until x_fini(); bodies are borrowed from the frame.
 * Threading: pure functions.
 * Source: hdfs-wire section 1; RpcHeader.proto, ProtobufRpcEngine2.proto,
 * IpcConnectionContext.proto.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "IpcConnectionContext.pb-c.h"
#include "ProtobufRpcEngine2.pb-c.h"
#include "RpcHeader.pb-c.h"
#include "common/base/err.h"
#include "common/wire/pb.h"

#define RPC_VERSION 9
#define RPC_PREAMBLE_LEN 7
#define RPC_FRAME_MAX (128u << 20) /* ipc.maximum.data.length, ipc.maximum.response.length */
#define RPC_CLIENT_ID_LEN 16
#define RPC_CLIENT_ID_MAX 64 /* longest client id accepted from a peer */

enum rpc_auth {
	RPC_AUTH_NONE = 0x00,
	RPC_AUTH_SASL = 0xdf,
};

enum rpc_call_id {
	RPC_CALL_NONE = -1, /* server to client: version or authorization failure */
	RPC_CALL_INVALID = -2,
	RPC_CALL_CONTEXT = -3,
	RPC_CALL_PING = -4,
	RPC_CALL_SASL = -33,
};

enum rpc_status { RPC_SUCCESS = 0, RPC_ERROR = 1, RPC_FATAL = 2 };

/* errorDetail */
enum rpc_detail {
	RPC_ERROR_APPLICATION = 1,
	RPC_ERROR_NO_SUCH_METHOD = 2,
	RPC_ERROR_NO_SUCH_PROTOCOL = 3,
	RPC_ERROR_RPC_SERVER = 4,
	RPC_ERROR_SERIALIZING_RESPONSE = 5,
	RPC_ERROR_VERSION_MISMATCH = 6,
	RPC_FATAL_UNKNOWN = 10,
	RPC_FATAL_UNSUPPORTED_SERIALIZATION = 11,
	RPC_FATAL_INVALID_HEADER = 12,
	RPC_FATAL_DESERIALIZING_REQUEST = 13,
	RPC_FATAL_VERSION_MISMATCH = 14,
	RPC_FATAL_UNAUTHORIZED = 15,
};

/* declaringClassProtocolName; the version of every one is 1 */
#define RPC_PROTOCOL_VERSION 1
#define RPC_PROTO_CLIENT "org.apache.hadoop.hdfs.protocol.ClientProtocol"
#define RPC_PROTO_DATANODE "org.apache.hadoop.hdfs.server.protocol.DatanodeProtocol"
#define RPC_PROTO_LIFELINE "org.apache.hadoop.hdfs.server.protocol.DatanodeLifelineProtocol"
#define RPC_PROTO_NAMENODE "org.apache.hadoop.hdfs.server.protocol.NamenodeProtocol"
#define RPC_PROTO_HA "org.apache.hadoop.ha.HAServiceProtocol"
#define RPC_PROTO_RECONFIG "org.apache.hadoop.hdfs.protocol.ReconfigurationProtocol"
#define RPC_PROTO_CLIENT_DATANODE "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol"
#define RPC_PROTO_INTER_DATANODE "org.apache.hadoop.hdfs.server.protocol.InterDatanodeProtocol"
#define RPC_PROTO_REFRESH_AUTH                                                                     \
	"org.apache.hadoop.security.authorize.RefreshAuthorizationPolicyProtocol"
#define RPC_PROTO_REFRESH_USERS "org.apache.hadoop.security.RefreshUserMappingsProtocol"
#define RPC_PROTO_REFRESH_CALLQ "org.apache.hadoop.ipc.RefreshCallQueueProtocol"
#define RPC_PROTO_GET_USERS "org.apache.hadoop.tools.GetUserMappingsProtocol"
#define RPC_PROTO_META_INFO "org.apache.hadoop.ipc.ProtocolMetaInfoPB"

/* Java exception classes that peers act on */
#define JEX_IO "java.io.IOException"
#define JEX_DISK_FULL                                                                              \
	"org.apache.hadoop.util.DiskChecker$DiskOutOfSpaceException" /* an IOException */
#define JEX_AUTHORIZATION "org.apache.hadoop.security.authorize.AuthorizationException"
#define JEX_BAD_ARGUMENT "java.lang.IllegalArgumentException"
#define JEX_FILE_NOT_FOUND "java.io.FileNotFoundException"
#define JEX_ILLEGAL_ARGUMENT "org.apache.hadoop.HadoopIllegalArgumentException"
#define JEX_UNSUPPORTED "java.lang.UnsupportedOperationException"
#define JEX_ACCESS_CONTROL "org.apache.hadoop.security.AccessControlException"
#define JEX_INVALID_TOKEN "org.apache.hadoop.security.token.SecretManager$InvalidToken"
#define JEX_FILE_EXISTS "org.apache.hadoop.fs.FileAlreadyExistsException"
#define JEX_NOT_EMPTY "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException"
#define JEX_PATH_NOT_DIR "org.apache.hadoop.fs.PathIsNotDirectoryException"
#define JEX_PARENT_NOT_DIR "org.apache.hadoop.fs.ParentNotDirectoryException"
#define JEX_INVALID_PATH "org.apache.hadoop.fs.InvalidPathException"
#define JEX_BEING_CREATED "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException"
#define JEX_RECOVERY_IN_PROGRESS "org.apache.hadoop.hdfs.protocol.RecoveryInProgressException"
#define JEX_NS_QUOTA "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException"
#define JEX_DS_QUOTA "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException"
#define JEX_TYPE_QUOTA "org.apache.hadoop.hdfs.protocol.QuotaByStorageTypeExceededException"
#define JEX_UNRESOLVED_PATH "org.apache.hadoop.hdfs.protocol.UnresolvedPathException"
#define JEX_SNAPSHOT "org.apache.hadoop.hdfs.protocol.SnapshotException"
#define JEX_SNAPSHOT_ACCESS "org.apache.hadoop.hdfs.protocol.SnapshotAccessControlException"
#define JEX_XATTR_NOT_FOUND "org.apache.hadoop.hdfs.protocol.XAttrNotFoundException"
#define JEX_NAME_TOO_LONG                                                                          \
	"org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException"
#define JEX_UNREGISTERED_NODE "org.apache.hadoop.hdfs.protocol.UnregisteredNodeException"
#define JEX_DISALLOWED_NODE "org.apache.hadoop.hdfs.server.protocol.DisallowedDatanodeException"
#define JEX_BAD_REPORT_LEASE                                                                       \
	"org.apache.hadoop.hdfs.server.protocol.InvalidBlockReportLeaseException"
#define JEX_INCORRECT_VERSION "org.apache.hadoop.hdfs.server.common.IncorrectVersionException"
#define JEX_REPLICA_NOT_FOUND "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException"
#define JEX_NOT_REPLICATED_YET "org.apache.hadoop.hdfs.server.namenode.NotReplicatedYetException"
#define JEX_LEASE_EXPIRED "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException"
#define JEX_SAFE_MODE "org.apache.hadoop.hdfs.server.namenode.SafeModeException"
#define RPC_SAFE_MODE_ENDS                                                                         \
	"(it ends by itself)" /* in the sentence of such an error, when the NameNode has just started */
#define JEX_STANDBY "org.apache.hadoop.ipc.StandbyException"
#define JEX_RETRIABLE "org.apache.hadoop.ipc.RetriableException"
#define JEX_OBSERVER_RETRY "org.apache.hadoop.ipc.ObserverRetryOnActiveException"
#define JEX_NO_SUCH_METHOD "org.apache.hadoop.ipc.RpcNoSuchMethodException"
#define JEX_NO_SUCH_PROTOCOL "org.apache.hadoop.ipc.RpcNoSuchProtocolException"
#define JEX_RPC_SERVER "org.apache.hadoop.ipc.RpcServerException"
#define JEX_VERSION_MISMATCH "org.apache.hadoop.ipc.RPC$VersionMismatch"
#define JEX_DISK_BALANCER "org.apache.hadoop.hdfs.server.diskbalancer.DiskBalancerException"
#define JEX_SERVICE_FAILED "org.apache.hadoop.ha.ServiceFailedException"

/* ---- preamble ---- */

void rpc_preamble_encode(uint8_t out[RPC_PREAMBLE_LEN], enum rpc_auth auth);
/** -EPROTO: not "hrpc"; -EPROTONOSUPPORT: another version (answer FATAL_VERSION_MISMATCH);
 *  -EACCES: unknown authentication byte (answer FATAL_UNAUTHORIZED). */
int rpc_preamble_decode(const uint8_t buf[RPC_PREAMBLE_LEN], enum rpc_auth *ret_auth);
/** The peer speaks HTTP ("GET "): answer a line of text and close. */
bool rpc_preamble_is_http(const uint8_t buf[4]);

/** Length of the frame behind a 4-byte prefix. -EMSGSIZE: negative, zero or over @max. */
int rpc_frame_len(const uint8_t prefix[4], uint32_t max, uint32_t *ret);

/* ---- requests ---- */

struct rpc_request_args {
	int32_t call_id;
	int32_t retry_count;      /* -1 for context, SASL, ping */
	const uint8_t *client_id; /* NULL with length 0 for SASL */
	size_t client_id_len;
	const char *protocol; /* NULL: no RequestHeaderProto (context, SASL, ping) */
	const char *method;
	const char *caller_context; /* or NULL */
	bool has_state_id;
	int64_t state_id;
};

/** The whole frame, length prefix included; @msg NULL: no message at all (ping). -ENOMEM,
 *  -EMSGSIZE over RPC_FRAME_MAX. */
int rpc_request_encode(const struct rpc_request_args *a, const void *msg, uint8_t **ret,
		       size_t *ret_len);
/** The same request with another call id and retry count: *@frame, as rpc_request_encode() gave it,
 *  is replaced.
 *  -ENOMEM, -EBADMSG. */
int rpc_request_again(uint8_t **frame, size_t *len, int32_t call_id, int32_t retry_count);
/** Connection context for SIMPLE authentication; @real_user or NULL. */
int rpc_context_encode(const uint8_t *client_id, size_t client_id_len, const char *protocol,
		       const char *user, const char *real_user, uint8_t **ret, size_t *ret_len);
int rpc_ping_encode(const uint8_t *client_id, size_t client_id_len, uint8_t **ret, size_t *ret_len);
int rpc_sasl_request_encode(const Hc__RpcSaslProto *sasl, uint8_t **ret, size_t *ret_len);

struct rpc_request {
	Hc__RpcRequestHeaderProto *header; /* owned */
	Hc__RequestHeaderProto *method;    /* owned; NULL unless call_id >= 0 */
	int32_t call_id;
	int32_t retry_count;
	const uint8_t *message; /* borrowed from the frame; NULL for a ping */
	size_t message_len;
	struct pb_room room; /* of header and method */
};

/** @frame without its length prefix. On failure @ret_detail is what to answer (always fatal):
 *  -EBADMSG malformed or bytes left over, -EPROTO rpcOp or rpcKind missing or wrong, -E2BIG,
 *  -ENOMEM. Even then ret->call_id is valid when the header could be read, else RPC_CALL_NONE. */
int rpc_request_decode(const uint8_t *frame, size_t len, struct rpc_request *ret,
		       enum rpc_detail *ret_detail);
void rpc_request_fini(struct rpc_request *r);

/* ---- responses ---- */

/** Whom to answer: copied from the request. */
struct rpc_reply_to {
	int32_t call_id;
	int32_t retry_count;
	const uint8_t *client_id;
	size_t client_id_len;
	bool has_state_id; /* HA: the NameNode's transaction id */
	int64_t state_id;
};

static inline struct rpc_reply_to rpc_reply_to(const struct rpc_request *r)
{
	return (struct rpc_reply_to){.call_id = r->call_id,
				     .retry_count = r->retry_count,
				     .client_id = r->header ? r->header->clientid.data : NULL,
				     .client_id_len = r->header ? r->header->clientid.len : 0};
}

int rpc_response_encode(const struct rpc_reply_to *to, const void *msg, uint8_t **ret,
			size_t *ret_len);
/** @status RPC_ERROR (connection lives on) or RPC_FATAL; @cls a JEX_* name; @text one line. */
int rpc_error_encode(const struct rpc_reply_to *to, enum rpc_status status, enum rpc_detail detail,
		     const char *cls, const char *text, uint8_t **ret, size_t *ret_len);
int rpc_sasl_response_encode(const Hc__RpcSaslProto *sasl, uint8_t **ret, size_t *ret_len);
/** What a SIMPLE-only server answers to NEGOTIATE: state SUCCESS, no token. */
int rpc_sasl_success_encode(uint8_t **ret, size_t *ret_len);

struct rpc_response {
	Hc__RpcResponseHeaderProto *header; /* owned; exceptionclassname, errormsg, clientid */
	int32_t call_id;
	enum rpc_status status;
	const uint8_t *message; /* borrowed; NULL unless RPC_SUCCESS */
	size_t message_len;
};

/** @frame without its length prefix. -EBADMSG malformed or bytes left over, -E2BIG, -ENOMEM. */
int rpc_response_decode(const uint8_t *frame, size_t len, struct rpc_response *ret);
void rpc_response_fini(struct rpc_response *r);
/** 0 for a success, else an errno for the exception class (-ENOENT, -EACCES, -EEXIST, ...,
 *  -EREMOTEIO), with class in err->remote and the first line of the message in err->text. */
int rpc_response_error(const struct rpc_response *r, struct err *err);
/** errno for a Java exception class; -EREMOTEIO when unknown. The one table of them. */
int rpc_class_errno(const char *cls);
