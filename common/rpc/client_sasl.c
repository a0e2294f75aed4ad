/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/client_sasl.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/rpc/digest.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"

#define ROUNDS_MAX 4    /* messages of a server */
#define SECRET_MAX 2048 /* bytes of an identifier, of a password */
#define STATE(s) HC__RPC_SASL_PROTO__SASL_STATE__##s

typedef Hc__RpcSaslProto__SaslAuth auth_t; /* the generated name is a sentence */

struct login {
	struct rpc_conn *conn;
	const struct rpc_token *token;
	uint64_t deadline_ns;
	struct digest digest;
	char uri[DIGEST_VALUE_MAX]; /* of the service, once it is chosen */
	bool has_answered;          /* the challenge */
	bool is_simple;             /* no token is wanted */
};

static int send_step(struct login *l, Hc__RpcSaslProto__SaslState state, auth_t *auth,
		     const char *token, size_t len, struct err *err)
{
	Hc__RpcSaslProto m = HC__RPC_SASL_PROTO__INIT;
	_cleanup_free_ uint8_t *buf = NULL;
	size_t n;
	int rc;

	m.state = state;
	m.has_token = token != NULL;
	m.token.data = (uint8_t *)(uintptr_t)token;
	m.token.len = len;
	m.n_auths = auth != NULL;
	m.auths = &auth;
	rc = rpc_sasl_request_encode(&m, &buf, &n);
	if (rc == 0)
		rc = rpc_conn_send(l->conn, buf, n, l->deadline_ns);
	return rc < 0 ? err_sys(err, rc, "cannot send the token") : 0;
}

/* What the server says next; free with pb_free(). */
static int read_step(struct login *l, Hc__RpcSaslProto **ret, struct err *err)
{
	_cleanup_free_ uint8_t *frame = NULL;
	struct rpc_response r;
	uint32_t len;
	int rc = rpc_conn_read(l->conn, l->deadline_ns, &frame, &len, err);

	if (rc < 0)
		return err && err->rc == rc
			       ? rc
			       : err_sys(err, rc, "the server did not answer the token");
	rc = rpc_response_decode(frame, len, &r);
	if (rc < 0)
		return err_set(err, -EPROTO, "a malformed answer to a token");
	rc = rpc_response_error(&r, err);
	if (rc == 0 && (r.call_id != RPC_CALL_SASL || pb_unpack(&hc__rpc_sasl_proto__descriptor,
								r.message, r.message_len, ret) < 0))
		rc = err_set(err, -EPROTO, "a malformed answer to a token");
	rpc_response_fini(&r);
	return rc;
}

static void base64(const uint8_t *p, size_t len, char out[static DIGEST_SECRET_MAX])
{
	(void)EVP_EncodeBlock((unsigned char *)out, p, (int)len); /* with NUL */
}

static int answer_challenge(struct login *l, const ProtobufCBinaryData *challenge,
			    char buf[static DIGEST_ANSWER_MAX], struct err *err)
{
	char name[DIGEST_SECRET_MAX], password[DIGEST_SECRET_MAX];
	int rc;

	base64(l->token->identifier, l->token->identifier_len, name);
	base64(l->token->password, l->token->password_len, password);
	rc = digest_answer(&l->digest, (const char *)challenge->data, challenge->len, name,
			   password, l->uri, buf, err);
	OPENSSL_cleanse(password, sizeof(password));
	l->has_answered = rc >= 0;
	return rc;
}

/* The server offers ways to say who we are: the token, or else our bare word. */
static int choose(struct login *l, const Hc__RpcSaslProto *m, struct err *err)
{
	char buf[DIGEST_ANSWER_MAX] = "";
	auth_t *token = NULL, *simple = NULL, mine;
	int rc = 0;

	for (size_t i = 0; i < m->n_auths; i++) {
		if (strcmp(m->auths[i]->method, "TOKEN") == 0 &&
		    strcmp(m->auths[i]->mechanism, "DIGEST-MD5") == 0)
			token = token ? token : m->auths[i];
		else if (strcmp(m->auths[i]->method, "SIMPLE") == 0)
			simple = m->auths[i];
	}
	if (!token && !simple)
		return err_set(
			err, -EACCES,
			"the server takes neither tokens nor simple authentication; this program does not speak Kerberos");
	mine = token ? *token : *simple;
	mine.has_challenge = 0;
	if (!token) {
		l->is_simple = true;
		return send_step(l, STATE(INITIATE), &mine, "", 0, err);
	}
	snprintf(l->uri, sizeof(l->uri), "%.200s/%.200s", token->protocol ? token->protocol : "",
		 token->serverid ? token->serverid : "");
	if (token->has_challenge)
		rc = answer_challenge(l, &token->challenge, buf, err);
	return rc < 0 ? rc : send_step(l, STATE(INITIATE), &mine, buf, (size_t)rc, err);
}

static int respond(struct login *l, const Hc__RpcSaslProto *m, struct err *err)
{
	char buf[DIGEST_ANSWER_MAX];
	int rc = answer_challenge(l, &m->token, buf, err);

	return rc < 0 ? rc : send_step(l, STATE(RESPONSE), NULL, buf, (size_t)rc, err);
}

/* 1: once more; 0: the end. */
static int step(struct login *l, const Hc__RpcSaslProto *m, struct err *err)
{
	int rc;

	if (m->state == STATE(NEGOTIATE) && !l->uri[0]) {
		rc = choose(l, m, err);
		return rc < 0 ? rc : !l->is_simple;
	}
	if (m->state == STATE(CHALLENGE) && l->uri[0] && !l->has_answered) {
		rc = respond(l, m, err);
		return rc < 0 ? rc : 1;
	}
	if (m->state == STATE(SUCCESS) && l->has_answered)
		return digest_check(&l->digest, (const char *)m->token.data, m->token.len, err);
	if (m->state == STATE(SUCCESS) && !l->uri[0]) {
		l->is_simple = true;
		return 0;
	}
	return err_set(err, -EPROTO, "the server sent a SASL message out of order");
}

int rpc_sasl_login(struct rpc_conn *c, const struct rpc_token *t, uint64_t deadline_ns,
		   struct err *err)
{
	struct login l = {.conn = c, .token = t, .deadline_ns = deadline_ns};
	int rc = digest_init(&l.digest);

	if (rc < 0)
		return err_sys(err, rc, "no random numbers");
	if (t->identifier_len > SECRET_MAX || t->password_len > SECRET_MAX)
		return err_set(err, -E2BIG, "a token of more than %d bytes", SECRET_MAX);
	rc = send_step(&l, STATE(NEGOTIATE), NULL, NULL, 0, err);
	for (int round = 0; rc >= 0 && round < ROUNDS_MAX; round++) {
		Hc__RpcSaslProto *m;

		rc = read_step(&l, &m, err);
		if (rc < 0)
			break;
		rc = step(&l, m, err);
		pb_free(m);
		if (rc == 0)
			return l.is_simple;
	}
	return rc < 0 ? rc : err_set(err, -EPROTO, "the server does not end the SASL exchange");
}
