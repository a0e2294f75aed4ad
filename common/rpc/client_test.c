/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: every caller gets its own answer, whatever the order; a broken connection is
 * repaired with the same call id; whatever else listens there ends in a clear error by the
 * deadline. The server is a thread that plays one script per connection. */
#include "common/rpc/client.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "common/base/clock.h"
#include "common/base/conf.h"
#include "common/base/fail_alloc.h"
#include "common/rpc/digest.h"
#include "common/rpc/test_scripts.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"

/* ---- a server that asks for a token ---- */

static const uint8_t IDENTIFIER[] = {1, 2, 0, 255}, PASSWORD[] = {9, 8, 7}; /* "AQIA/w==", "CQgH" */
static const char CHALLENGE[] = "realm=\"default\",nonce=\"abc\",charset=utf-8,algorithm=md5-sess";

static enum sasl_server {
	SASL_FULL,
	SASL_LATE_CHALLENGE,
	SASL_SIMPLE_OFFERED,
	SASL_NOT_WANTED,
	SASL_KERBEROS,
	SASL_LIAR,
	SASL_REFUSES,
	SASL_NONSENSE,
	SASL_FOR_EVER
} sasl_server;
static char context_user[32]; /* "-": none was named */

static void sasl_say(int fd, Hc__RpcSaslProto__SaslState state, Hc__RpcSaslProto__SaslAuth *auth,
		     const char *token)
{
	Hc__RpcSaslProto m = HC__RPC_SASL_PROTO__INIT;
	uint8_t *buf = NULL;
	size_t len;

	m.state = state;
	m.n_auths = auth != NULL;
	m.auths = &auth;
	m.has_token = token != NULL;
	m.token.data = (uint8_t *)(uintptr_t)token;
	m.token.len = token ? strlen(token) : 0;
	if (rpc_sasl_response_encode(&m, &buf, &len) < 0)
		abort();
	write_all(fd, buf, len);
	free(buf);
}

static void sasl_offer(int fd)
{
	Hc__RpcSaslProto__SaslAuth a = HC__RPC_SASL_PROTO__SASL_AUTH__INIT;
	static char token[] = "TOKEN", simple[] = "SIMPLE", kerberos[] = "KERBEROS",
		    md5[] = "DIGEST-MD5", none[] = "", id[] = "default";

	a.method = sasl_server == SASL_SIMPLE_OFFERED ? simple
		   : sasl_server == SASL_KERBEROS     ? kerberos
						      : token;
	a.mechanism = a.method == token ? md5 : none;
	a.protocol = none;
	a.serverid = id;
	a.has_challenge = a.method == token && sasl_server != SASL_LATE_CHALLENGE;
	a.challenge.data = (uint8_t *)(uintptr_t)CHALLENGE;
	a.challenge.len = sizeof(CHALLENGE) - 1;
	sasl_say(fd, HC__RPC_SASL_PROTO__SASL_STATE__NEGOTIATE, &a, NULL);
}

/* The client's next message; its token as text into @text. False: none came. */
static bool sasl_hear(int fd, Hc__RpcSaslProto__SaslState want, char *text, size_t size)
{
	Hc__RpcSaslProto *m = NULL;
	struct request q;
	bool ok =
		read_frame(fd, &q) && q.r.call_id == RPC_CALL_SASL &&
		pb_unpack(&hc__rpc_sasl_proto__descriptor, q.r.message, q.r.message_len, &m) == 0 &&
		m->state == want;

	if (ok)
		(void)snprintf(text, size, "%.*s", (int)m->token.len, (const char *)m->token.data);
	pb_free(m);
	request_fini(&q);
	return ok;
}

/* Judge the answer to CHALLENGE as one who knows the password, and prove it. */
static bool sasl_judge(int fd, const char *answer)
{
	const char *cnonce = strstr(answer, "cnonce=\"");
	char mine[DIGEST_ANSWER_MAX], proof[64];
	struct digest d = {.proof = ""};

	if (!cnonce)
		return false;
	memcpy(d.cnonce, cnonce + 8, DIGEST_HEX);
	if (digest_answer(&d, CHALLENGE, sizeof(CHALLENGE) - 1, "AQIA/w==", "CQgH", "/default",
			  mine, NULL) < 0 ||
	    strcmp(mine, answer) != 0)
		return false;
	(void)snprintf(proof, sizeof(proof), "rspauth=%s", d.proof);
	if (sasl_server == SASL_LIAR)
		proof[8] ^= 1;
	sasl_say(fd, HC__RPC_SASL_PROTO__SASL_STATE__SUCCESS, NULL, proof);
	return true;
}

static bool sasl_talk(int fd)
{
	char text[DIGEST_ANSWER_MAX];

	if (!sasl_hear(fd, HC__RPC_SASL_PROTO__SASL_STATE__NEGOTIATE, text, sizeof(text)))
		return false;
	if (sasl_server == SASL_NOT_WANTED) {
		sasl_say(fd, HC__RPC_SASL_PROTO__SASL_STATE__SUCCESS, NULL, NULL);
		return true;
	}
	if (sasl_server == SASL_NONSENSE) {
		write_all(fd, "\0\0\0\4\3abc", 8);
		return false;
	}
	sasl_offer(fd);
	if (!sasl_hear(fd, HC__RPC_SASL_PROTO__SASL_STATE__INITIATE, text, sizeof(text)))
		return false;
	if (sasl_server == SASL_SIMPLE_OFFERED)
		return true;
	if (sasl_server == SASL_LATE_CHALLENGE) {
		sasl_say(fd, HC__RPC_SASL_PROTO__SASL_STATE__CHALLENGE, NULL, CHALLENGE);
		if (!sasl_hear(fd, HC__RPC_SASL_PROTO__SASL_STATE__RESPONSE, text, sizeof(text)))
			return false;
	}
	if (sasl_server == SASL_FOR_EVER) {
		sasl_offer(fd);
		return false;
	}
	if (sasl_server == SASL_REFUSES) {
		const struct rpc_reply_to to = {.call_id = RPC_CALL_SASL, .retry_count = -1};
		uint8_t *buf = NULL;
		size_t len;

		if (rpc_error_encode(&to, RPC_FATAL, RPC_FATAL_UNAUTHORIZED, JEX_INVALID_TOKEN,
				     "token is expired", &buf, &len) < 0)
			abort();
		write_all(fd, buf, len);
		free(buf);
		return false;
	}
	return sasl_judge(fd, text);
}

static void serve_after_login(int fd)
{
	uint8_t preamble[RPC_PREAMBLE_LEN];
	Hc__IpcConnectionContextProto *ctx = NULL;
	enum rpc_auth auth;
	struct request q;

	if (!read_all(fd, preamble, sizeof(preamble)) || rpc_preamble_decode(preamble, &auth) < 0 ||
	    auth != RPC_AUTH_SASL || !sasl_talk(fd)) {
		say_nothing(fd);
		return;
	}
	if (!read_frame(fd, &q))
		return;
	if (pb_unpack(&hc__ipc_connection_context_proto__descriptor, q.r.message, q.r.message_len,
		      &ctx) == 0)
		(void)snprintf(context_user, sizeof(context_user), "%s",
			       ctx->userinfo && ctx->userinfo->effectiveuser
				       ? ctx->userinfo->effectiveuser
				       : "-");
	pb_free(ctx);
	request_fini(&q);
	if (read_call(fd, &q))
		echo(fd, &q);
}

/* ---- the client's side ---- */

static struct rpc_client *cli;
static struct err e;

static int fresh(void **state)
{
	e = ERR_INIT;
	return listen_again(state);
}

static const struct rpc_token *shown; /* by the next client */

static void start(uint32_t call_timeout_ms, uint32_t ping_ms, script a, script b, script c)
{
	const struct rpc_client_opts o = {
		.token = shown,
		.protocol = RPC_PROTO_CLIENT,
		.user = "ann",
		.addr = srv.addr,
		.addr_text = "nn:8020",
		.call_timeout_ms = call_timeout_ms,
		.ping_interval_ms = ping_ms,
	};

	srv.scripts[0] = a;
	srv.scripts[1] = b;
	srv.scripts[2] = c;
	assert_int_equal(rpc_client_new(&o, &cli, &e), 0);
	assert_int_equal(pthread_create(&srv.thread, NULL, serve, NULL), 0);
}

static void stop(void)
{
	rpc_client_free(cli);
	(void)shutdown(srv.fd, SHUT_RDWR); /* no further connection is coming */
	assert_int_equal(pthread_join(srv.thread, NULL), 0);
	assert_int_equal(close(srv.fd), 0);
}

/* 0 when @path came back. */
static int call(const char *path, struct err *err)
{
	Hd__GetLinkTargetRequestProto m = HD__GET_LINK_TARGET_REQUEST_PROTO__INIT;
	Hd__GetLinkTargetResponseProto *r = NULL;
	ProtobufCMessage *answer = NULL;
	int rc;

	m.path = (char *)(uintptr_t)path;
	rc = rpc_client_call(cli, "getLinkTarget", &m.base,
			     &hd__get_link_target_response_proto__descriptor, &answer, err);
	r = (Hd__GetLinkTargetResponseProto *)(void *)answer;
	if (!rc && (!r->targetpath || strcmp(r->targetpath, path) != 0))
		rc = -EBADMSG;
	pb_free(r);
	return rc;
}

struct caller {
	pthread_t thread;
	int id, count, rc;
	struct err err;
};

static void *call_many(void *arg)
{
	struct caller *c = (struct caller *)arg;
	char path[32];

	for (int i = 0; !c->rc && i < c->count; i++) {
		(void)snprintf(path, sizeof(path), "/%d/%d", c->id, i);
		c->rc = call(path, &c->err);
	}
	return NULL;
}

static void run_callers(struct caller *callers, int n, int count)
{
	for (int i = 0; i < n; i++) {
		callers[i] = (struct caller){.id = i, .count = count};
		assert_int_equal(pthread_create(&callers[i].thread, NULL, call_many, &callers[i]),
				 0);
	}
	for (int i = 0; i < n; i++)
		assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
}

static void a_call_is_answered(void **state)
{
	(void)state;
	start(CALL_TIMEOUT, 0, echo_for_ever, NULL, NULL);
	assert_int_equal(call("/a", &e), 0);
	assert_int_equal(srv.call_id, 0);
	assert_int_equal(srv.retry_count, 0);
	assert_int_equal(call("/b", &e), 0);
	assert_int_equal(srv.call_id, 1);
	assert_int_equal(srv.conns, 1);
	stop();
}

static void eight_threads_get_their_own_answers(void **state)
{
	struct caller callers[8];

	(void)state;
	start(CALL_TIMEOUT, 1, echo_for_ever, NULL, NULL);
	run_callers(callers, 8, 100);
	for (int i = 0; i < 8; i++)
		assert_int_equal(callers[i].rc, 0);
	assert_int_equal(srv.conns, 1);
	stop();
}

static void sixteen_threads_outlive_hang_ups(void **state)
{
	struct caller callers[16];

	(void)state;
	start(CALL_TIMEOUT, 1, echo_forty_and_close, echo_forty_and_close, echo_for_ever);
	run_callers(callers, 16, 200);
	for (int i = 0; i < 16; i++)
		assert_int_equal(callers[i].rc, 0);
	assert_int_equal(srv.conns, 3);
	stop();
}

static void answers_may_come_backwards_and_in_pieces(void **state)
{
	uint64_t start_ns = clock_mono_ns();
	struct caller callers[2];

	(void)state;
	start(CALL_TIMEOUT, 0, answer_two_backwards_in_pieces, NULL, NULL);
	run_callers(callers, 2, 1);
	/* both were woken */
	assert_true(clock_mono_ns() - start_ns < CALL_TIMEOUT * NS_PER_MS / 2);
	assert_int_equal(callers[0].rc, 0);
	assert_int_equal(callers[1].rc, 0);
	stop();
}

static void an_exception_becomes_errno_class_and_first_line(void **state)
{
	(void)state;
	start(CALL_TIMEOUT, 0, throw_not_found, NULL, NULL);
	assert_int_equal(call("/x", &e), -ENOENT);
	assert_int_equal(e.rc, -ENOENT);
	assert_string_equal(e.remote, JEX_FILE_NOT_FOUND);
	assert_string_equal(e.text, "File does not exist: /x");
	assert_int_equal(call("/y", &e), 0);
	assert_int_equal(srv.conns, 1);
	stop();
}

static void a_fatal_answer_ends_every_call(void **state)
{
	struct caller callers[2];

	(void)state;
	start(CALL_TIMEOUT, 0, fatal_for_all, NULL, NULL);
	run_callers(callers, 2, 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(callers[i].rc, -EACCES);
		assert_string_equal(callers[i].err.remote, JEX_ACCESS_CONTROL);
		assert_non_null(
			strstr(callers[i].err.text, "SIMPLE authentication is not enabled"));
	}
	assert_int_equal(srv.conns, 1);
	stop();
}

static void a_broken_call_is_repeated_under_its_own_id(void **state)
{
	uint8_t id[RPC_CLIENT_ID_LEN] = {0};

	(void)state;
	srv.scripts[3] = echo_for_ever;
	start(CALL_TIMEOUT, 0, echo_once, close_after_request, close_within_answer);
	assert_int_equal(call("/a", &e), 0);
	memcpy(id, srv.client_id, sizeof(id));
	assert_int_equal(call("/b", &e), 0);
	assert_int_equal(srv.conns, 4);
	assert_int_equal(srv.call_id, 1);
	/* 3: the first attempt met the closing connection */
	assert_in_range(srv.retry_count, 2, 3);
	assert_memory_equal(srv.client_id, id, sizeof(id));
	stop();
}

static void a_connection_closed_while_idle_is_reopened(void **state)
{
	(void)state;
	start(CALL_TIMEOUT, 0, echo_once, echo_once, NULL);
	assert_int_equal(call("/a", &e), 0);
	(void)poll(NULL, 0, 20);
	assert_int_equal(call("/b", &e), 0);
	assert_int_equal(srv.retry_count, 0); /* seen before it was sent */
	assert_int_equal(srv.conns, 2);
	stop();
}

static void a_peer_that_always_hangs_up_is_given_up(void **state)
{
	(void)state;
	srv.scripts[3] = close_after_request;
	start(CALL_TIMEOUT, 0, close_after_request, close_after_request, close_after_request);
	assert_int_equal(call("/a", &e), -EPROTO);
	assert_non_null(strstr(e.text, "NameNode nn:8020 closed the connection"));
	assert_non_null(strstr(e.text, "is that the NameNode's RPC port? (fs.defaultFS)"));
	stop();
	assert_int_equal(srv.conns, RPC_SEND_MAX);
}

static void whatever_is_not_hadoop_is_named(void **state)
{
	(void)state;
	start(CALL_TIMEOUT, 0, say_http, say_oversized, say_junk_frame);
	assert_int_equal(call("/a", &e), -EPROTO);
	assert_non_null(strstr(e.text, "NameNode nn:8020: what answers does not speak Hadoop RPC, "
				       "it says \"HTTP/1.1 400 Bad Request"));
	assert_non_null(strstr(e.text, "is that the NameNode's RPC port? (fs.defaultFS)"));
	assert_int_equal(call("/a", &e), -EPROTO);
	assert_non_null(strstr(e.text, "does not speak Hadoop RPC"));
	assert_int_equal(call("/a", &e), -EPROTO);
	assert_non_null(strstr(e.text, "malformed answer"));
	stop();
}

static void a_wrong_answer_is_refused(void **state)
{
	(void)state;
	start(CALL_TIMEOUT, 0, answer_with_a_foreign_client_id, answer_with_the_wrong_message,
	      NULL);
	assert_int_equal(call("/a", &e), -EPROTO);
	assert_non_null(strstr(e.text, "somebody else's"));
	assert_int_equal(call("/a", &e), -EPROTO);
	assert_non_null(strstr(e.text, "answer to getLinkTarget is malformed"));
	stop();
}

static void silence_ends_at_the_deadline(void **state)
{
	uint64_t start_ns, took;
	script mute[] = {say_nothing, announce_much_and_wait};

	for (size_t i = 0; i < 2; i++) {
		if (i)
			assert_int_equal(listen_again(state), 0);
		start(SHORT_TIMEOUT, 0, mute[i], NULL, NULL);
		start_ns = clock_mono_ns();
		assert_int_equal(call("/a", &e), -ETIMEDOUT);
		took = (clock_mono_ns() - start_ns) / NS_PER_MS;
		assert_in_range(took, SHORT_TIMEOUT, SHORT_TIMEOUT * 5);
		assert_non_null(strstr(e.text, "no answer to getLinkTarget within 150 ms"));
		assert_non_null(strstr(e.text, "it hangs, or that is not the NameNode's RPC port"));
		stop();
	}
}

static void a_late_answer_does_not_reach_the_next_call(void **state)
{
	(void)state;
	start(SHORT_TIMEOUT, 0, answer_late_then_on_time_then_never, NULL, NULL);
	assert_int_equal(call("/late", &e), -ETIMEDOUT);
	assert_int_equal(call("/b", &e), 0);
	assert_int_equal(call("/never", &e), -ETIMEDOUT);
	assert_non_null(strstr(e.text, "it is overloaded or hangs: see its log"));
	assert_int_equal(srv.conns, 1);
	stop();
}

static void a_long_wait_is_pinged(void **state)
{
	(void)state;
	start(CALL_TIMEOUT, 10, answer_after_a_ping, NULL, NULL);
	assert_int_equal(call("/a", &e), 0);
	stop();
}

static void nobody_there_is_said_so(void **state)
{
	(void)state;
	start(CALL_TIMEOUT, 0, NULL, NULL, NULL);
	assert_int_equal(close(srv.fd), 0);
	assert_int_equal(call("/a", &e), -ECONNREFUSED);
	assert_non_null(strstr(e.text, "NameNode nn:8020: cannot connect to 127.0.0.1:"));
	assert_non_null(strstr(e.text, "Connection refused; is the NameNode running there? "
				       "(fs.defaultFS)"));
	srv.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* for stop() */
	stop();
}

/* ---- several servers that stand for each other ---- */

static void start_pair(bool first_is_gone, uint32_t call_timeout_ms, script a, script b, script c)
{
	struct rpc_server other;
	struct rpc_client_opts o = pair_opts(first_is_gone, call_timeout_ms, &other);

	o.protocol = RPC_PROTO_CLIENT;
	o.user = "ann";
	o.addr_text = "nn1:8020";
	srv.scripts[0] = a;
	srv.scripts[1] = b;
	srv.scripts[2] = c;
	assert_int_equal(rpc_client_new(&o, &cli, &e), 0);
	assert_int_equal(pthread_create(&srv.thread, NULL, serve, NULL), 0);
}

static void a_standby_is_left_for_the_other_under_the_same_id(void **state)
{
	(void)state;
	start_pair(false, CALL_TIMEOUT, say_standby, echo_for_ever, NULL);
	assert_int_equal(call("/a", &e), 0);
	assert_int_equal(srv.conns, 2);
	assert_int_equal(srv.call_id, 0);
	assert_int_equal(srv.retry_count, 1);
	assert_int_equal(call("/b", &e), 0); /* and it is remembered */
	assert_int_equal(srv.conns, 2);
	stop();
}

static void a_server_out_of_reach_is_left_for_the_other(void **state)
{
	(void)state;
	start_pair(true, CALL_TIMEOUT, echo_for_ever, NULL, NULL);
	assert_int_equal(call("/a", &e), 0);
	assert_int_equal(srv.conns, 1);
	stop();
}

static void a_server_that_hangs_is_left_for_the_other(void **state)
{
	(void)state;
	start_pair(false, SHORT_TIMEOUT, say_nothing, echo_for_ever, NULL);
	assert_int_equal(call("/a", &e), 0);
	assert_int_equal(srv.conns, 2);
	stop();
}

static void a_server_that_asks_for_patience_is_asked_again(void **state)
{
	(void)state;
	start_pair(false, CALL_TIMEOUT, ask_for_patience, NULL, NULL);
	assert_int_equal(call("/a", &e), 0);
	assert_int_equal(srv.conns, 1);
	assert_int_equal(srv.call_id, 0);
	assert_int_equal(srv.retry_count, 1);
	stop();
}

static void without_an_active_one_the_last_answer_is_told(void **state)
{
	(void)state;
	srv.scripts[3] = say_standby;
	start_pair(false, CALL_TIMEOUT, say_standby, say_standby, say_standby);
	assert_int_equal(call("/a", &e), -EAGAIN);
	assert_int_equal(srv.conns, 4); /* the first attempt and failovers_max changes */
	assert_string_equal(e.remote, JEX_STANDBY);
	assert_non_null(strstr(e.text, "none of 2 NameNodes can be used, after 4 attempts"));
	stop();
}

static void other_exceptions_are_the_answer(void **state)
{
	(void)state;
	start_pair(false, CALL_TIMEOUT, throw_not_found, NULL, NULL);
	assert_int_equal(call("/x", &e), -ENOENT);
	assert_int_equal(srv.conns, 1);
	stop();
}

static void cancel_wakes_the_callers(void **state)
{
	struct caller callers[3];

	(void)state;
	start(CALL_TIMEOUT, 0, say_nothing, NULL, NULL);
	for (int i = 0; i < 3; i++) {
		callers[i] = (struct caller){.id = i, .count = 1};
		assert_int_equal(pthread_create(&callers[i].thread, NULL, call_many, &callers[i]),
				 0);
	}
	(void)poll(NULL, 0, 20);
	rpc_client_cancel(cli);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
		assert_int_equal(callers[i].rc, -ECANCELED);
	}
	assert_int_equal(call("/a", &e), -ECANCELED);
	stop();
}

static void every_failed_allocation_is_reported(void **state)
{
	int left = -1, rc = 0;

	(void)state;
	for (int i = 3; i < SCRIPTS_MAX; i++) /* out of memory in an answer ends the connection */
		srv.scripts[i] = echo_for_ever;
	start(CALL_TIMEOUT, 0, echo_for_ever, echo_for_ever, echo_for_ever);
	for (int n = 0; left < 0; n++) { /* until the count is not used up */
		fail_alloc_in = n;
		rc = call("/a", &e);
		left = fail_alloc_in;
		fail_alloc_in = -1;
		if (rc) {
			assert_int_equal(rc, -ENOMEM);
			assert_int_equal(e.rc, -ENOMEM);
		}
	}
	assert_int_equal(rc, 0);
	stop();
}

static void times_come_from_hadoops_keys(void **state)
{
	struct rpc_client_opts o = {0};
	struct conf *c = conf_new();

	(void)state;
	assert_non_null(c);
	(void)conf_set(c, "ipc.ping.interval", "5000"); /* Hadoop's files have no unit here */
	assert_int_equal(rpc_client_conf(c, &o, &e), 0);
	assert_int_equal(o.connect_timeout_ms, 20000);
	assert_int_equal(o.call_timeout_ms, 120000);
	assert_int_equal(o.ping_interval_ms, 5000);
	(void)conf_set(c, "ipc.client.rpc-timeout.ms", "25d");
	assert_int_equal(rpc_client_conf(c, &o, &e), -EINVAL);
	conf_free(c);
}

static void a_token_is_shown_where_it_is_wanted(void **state)
{
	static const struct rpc_token token = {IDENTIFIER, PASSWORD, sizeof(IDENTIFIER),
					       sizeof(PASSWORD)};
	static const struct {
		enum sasl_server server;
		int rc;
		const char *user, *words;
	} want[] = {
		{SASL_FULL, 0, "-", ""},
		{SASL_LATE_CHALLENGE, 0, "-", ""},
		{SASL_SIMPLE_OFFERED, 0, "ann", ""},
		{SASL_NOT_WANTED, 0, "ann", ""},
		{SASL_KERBEROS, -EACCES, "", "Kerberos"},
		{SASL_LIAR, -EACCES, "", "does not prove"},
		{SASL_REFUSES, -EKEYREJECTED, "", "token is expired"},
		{SASL_NONSENSE, -EPROTO, "", "malformed"},
		{SASL_FOR_EVER, -EPROTO, "", "out of order"},
	};

	shown = &token;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		if (i)
			(void)fresh(state);
		sasl_server = want[i].server;
		context_user[0] = '\0';
		start(CALL_TIMEOUT, 0, serve_after_login, NULL, NULL);
		assert_int_equal(call("/hello", &e), want[i].rc);
		if (want[i].rc) {
			assert_non_null(strstr(e.text, want[i].words));
			assert_non_null(strstr(e.text, "nn:8020"));
		}
		assert_string_equal(context_user, want[i].user);
		stop();
	}
	shown = NULL;
}

#define T(fn) cmocka_unit_test_setup(fn, fresh)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_call_is_answered),
		T(eight_threads_get_their_own_answers),
		T(sixteen_threads_outlive_hang_ups),
		T(answers_may_come_backwards_and_in_pieces),
		T(an_exception_becomes_errno_class_and_first_line),
		T(a_fatal_answer_ends_every_call),
		T(a_broken_call_is_repeated_under_its_own_id),
		T(a_connection_closed_while_idle_is_reopened),
		T(a_peer_that_always_hangs_up_is_given_up),
		T(whatever_is_not_hadoop_is_named),
		T(a_wrong_answer_is_refused),
		T(silence_ends_at_the_deadline),
		T(a_late_answer_does_not_reach_the_next_call),
		T(a_long_wait_is_pinged),
		T(nobody_there_is_said_so),
		T(a_standby_is_left_for_the_other_under_the_same_id),
		T(a_server_out_of_reach_is_left_for_the_other),
		T(a_server_that_hangs_is_left_for_the_other),
		T(a_server_that_asks_for_patience_is_asked_again),
		T(without_an_active_one_the_last_answer_is_told),
		T(other_exceptions_are_the_answer),
		T(cancel_wakes_the_callers),
		T(a_token_is_shown_where_it_is_wanted),
		T(every_failed_allocation_is_reported),
		cmocka_unit_test(times_come_from_hadoops_keys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
