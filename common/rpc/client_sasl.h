/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * rpc/client_sasl - show a token to a server before the first call
 *
 * Idea: a server that gives out or checks tokens (a data node with dfs.block.access.token.enable)
 * wants them by SASL, DIGEST-MD5: the identifier is the name, the password the secret, both in
 * base64. A server that has no use for tokens says so, and the client goes on as its user.
 * Source: RpcHeader.proto (RpcSaslProto), hdfs-wire 1; RFC 2831.
 */
#include "common/rpc/client_conn.h"

/** Negotiate on @c, whose preamble said SASL. 0: the token is accepted, and says who we are. 1: it
 *  is not wanted.
 *  -EACCES, -EKEYREJECTED it is refused; -ENOTSUP the server wants what is not spoken here;
 *  -EPROTO; errors of the connection. */
int rpc_sasl_login(struct rpc_conn *c, const struct rpc_token *t, uint64_t deadline_ns,
		   struct err *err);
