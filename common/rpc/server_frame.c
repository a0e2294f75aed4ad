/* SPDX-License-Identifier: Apache-2.0 */
/* What a peer of an RPC server says: the preamble, SASL, the connection context with its user, a
 * ping, a call for a service; or an HTTP request. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/rpc/auth_to_local.h"
#include "common/rpc/server.h"
#include "common/rpc/server_internal.h"
#include "common/rpc/server_room.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"

#define USER_MAX 256

/* The short name of a user of the context. False: there is none, and the connection ends. */
static bool take_user(struct conn *c, const char *name, char **ret)
{
	struct err err = ERR_INIT;
	char text[ERR_TEXT_MAX + 300], user[USER_MAX + 1];

	if (auth_to_local(c->server->opts.names, name, user, sizeof(user), &err)) {
		snprintf(text, sizeof(text), "Illegal principal name %.256s: %s", name, err.text);
		server_conn_fatal(c, RPC_CALL_NONE, RPC_FATAL_UNAUTHORIZED, JEX_BAD_ARGUMENT, text);
		return false;
	}
	*ret = strdup(user);
	if (!*ret)
		server_conn_close(c);
	return *ret;
}

static void on_context(struct conn *c, const struct rpc_request *q)
{
	Hc__IpcConnectionContextProto *ctx = NULL;
	const Hc__UserInformationProto *u;

	if (c->state != CONN_WAIT_CONTEXT) {
		server_conn_fatal(c, q->call_id, RPC_FATAL_INVALID_HEADER, JEX_RPC_SERVER,
				  "Connection context already processed");
		return;
	}
	if (c->auth == RPC_AUTH_SASL && !c->sasl_done) {
		server_conn_fatal(c, RPC_CALL_NONE, RPC_FATAL_UNAUTHORIZED, JEX_ACCESS_CONTROL,
				  "Connection context before the end of SASL negotiation");
		return;
	}
	if (pb_unpack(&hc__ipc_connection_context_proto__descriptor, q->message, q->message_len,
		      &ctx)) {
		server_conn_fatal(c, q->call_id, RPC_FATAL_DESERIALIZING_REQUEST, JEX_RPC_SERVER,
				  "malformed connection context");
		return;
	}
	u = ctx->userinfo;
	if (!u || !u->effectiveuser || !*u->effectiveuser || strlen(u->effectiveuser) > USER_MAX ||
	    (u->realuser && strlen(u->realuser) > USER_MAX)) {
		server_conn_fatal(c, RPC_CALL_NONE, RPC_FATAL_UNAUTHORIZED, JEX_ACCESS_CONTROL,
				  "the connection context names no user, or one that is too long");
	} else if (take_user(c, u->effectiveuser, &c->user) &&
		   (!u->realuser || !*u->realuser || take_user(c, u->realuser, &c->real_user))) {
		c->state = CONN_OPEN;
		room_idle(&c->server->room, &c->guest);
	}
	pb_free(ctx);
}

/* Clients with a token try SASL also where it is not asked for: we answer that SIMPLE will do. */
static void on_sasl(struct conn *c, const struct rpc_request *q)
{
	Hc__RpcSaslProto *m = NULL;
	int state = -1;
	uint8_t *answer = NULL;
	size_t len = 0;

	if (c->auth == RPC_AUTH_SASL && c->state == CONN_WAIT_CONTEXT &&
	    !pb_unpack(&hc__rpc_sasl_proto__descriptor, q->message, q->message_len, &m))
		state = (int)m->state;
	pb_free(m);
	if (state == HC__RPC_SASL_PROTO__SASL_STATE__NEGOTIATE && !c->sasl_done) {
		c->sasl_done = true;
		(void)rpc_sasl_success_encode(&answer, &len);
		server_conn_send(c, answer, len, false);
	} else if (state != HC__RPC_SASL_PROTO__SASL_STATE__INITIATE || !c->sasl_done) {
		server_conn_fatal(
			c, RPC_CALL_NONE, RPC_FATAL_UNAUTHORIZED, JEX_ACCESS_CONTROL,
			"unexpected SASL message: this server does SIMPLE authentication");
	}
}

static const struct rpc_service *find_service(const struct rpc_server *s, const char *protocol)
{
	for (uint32_t i = 0; i < s->opts.service_count; i++) {
		if (!strcmp(s->opts.services[i].protocol, protocol))
			return &s->opts.services[i];
	}
	return NULL;
}

/* Takes @k, whose frame has @len bytes. */
static void on_call(struct conn *c, struct call *k, uint32_t len)
{
	const struct rpc_service *service;
	char text[ERROR_TEXT_MAX];

	k->pub = (struct rpc_call){.protocol = k->req.method->declaringclassprotocolname,
				   .method = k->req.method->methodname,
				   .user = c->user,
				   .real_user = c->real_user,
				   .client_id = k->req.header->clientid.data,
				   .client_id_len = (uint32_t)k->req.header->clientid.len,
				   .call_id = k->req.call_id,
				   .retry_count = k->req.retry_count,
				   .request = k->req.message,
				   .request_len = (uint32_t)k->req.message_len,
				   .peer = &c->peer,
				   .peer_ip = c->peer_ip};
	c->calls++;
	c->server->calls++;
	room_busy(&c->guest);
	k->len = len;
	room_asks(&c->server->room, &c->guest, len);
	service = find_service(c->server, k->pub.protocol);
	if (service) {
		service->call(service->arg, &k->pub);
		return;
	}
	snprintf(text, sizeof(text), "Unknown protocol: %s", k->pub.protocol);
	server_call_fail(k, RPC_ERROR_NO_SUCH_PROTOCOL, JEX_NO_SUCH_PROTOCOL, text);
}

void server_on_frame(struct conn *c, const uint8_t *frame, uint32_t len)
{
	const bool is_large = len > ROOM_SMALL;
	struct call *k = (struct call *)calloc(1, sizeof(*k) + (is_large ? 0 : len));
	enum rpc_detail detail;
	uint8_t *copy;

	if (k && is_large)
		k->large = malloc(len);
	if (!k || (is_large && !k->large)) {
		free(k);
		server_conn_close(c);
		return;
	}
	k->conn = c;
	copy = is_large ? k->large : k->frame;
	memcpy(copy, frame, len);
	if (rpc_request_decode(copy, len, &k->req, &detail)) {
		server_conn_fatal(c, k->req.call_id, detail, JEX_RPC_SERVER,
				  "malformed RPC request");
	} else if (k->req.call_id >= 0 && c->state == CONN_OPEN) {
		on_call(c, k, len);
		return;
	} else if (k->req.call_id == RPC_CALL_CONTEXT) {
		on_context(c, &k->req);
	} else if (k->req.call_id == RPC_CALL_SASL) {
		on_sasl(c, &k->req);
	} else if (k->req.call_id >= 0) {
		server_conn_fatal(c, k->req.call_id, RPC_FATAL_INVALID_HEADER, JEX_RPC_SERVER,
				  "Connection context not established");
	} else if (k->req.call_id == RPC_CALL_PING) {
		if (c->state == CONN_OPEN && !c->calls)
			room_idle(&c->server->room, &c->guest);
	} else {
		server_conn_fatal(c, k->req.call_id, RPC_FATAL_INVALID_HEADER, JEX_RPC_SERVER,
				  "Unknown out of band call");
	}
	server_call_free(k);
}

void server_on_http(struct conn *c)
{
	static const char body[] =
		"It looks like you are making an HTTP request to a Hadoop IPC port. "
		"This is not the correct port for the web interface on this daemon.\r\n";
	char *text = NULL;
	int len = asprintf(&text,
			   "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\n"
			   "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
			   sizeof(body) - 1, body);

	server_conn_send(c, len < 0 ? NULL : (uint8_t *)text, len < 0 ? 0 : (size_t)len, true);
}

void server_on_preamble(struct conn *c, const uint8_t *p)
{
	int rc = rpc_preamble_decode(p, &c->auth);

	c->state = CONN_WAIT_CONTEXT;
	if (rc == -EACCES)
		server_conn_fatal(c, RPC_CALL_NONE, RPC_FATAL_UNAUTHORIZED, JEX_ACCESS_CONTROL,
				  "unknown authentication method: this server does SIMPLE");
	else if (rc < 0)
		server_conn_fatal(
			c, RPC_CALL_NONE, RPC_FATAL_VERSION_MISMATCH, JEX_VERSION_MISMATCH,
			"Server IPC version 9 cannot communicate with the client's version");
}
