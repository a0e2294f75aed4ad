/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/attempts.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/base/clock.h"
#include "common/base/conf.h"
#include "common/base/log.h"
#include "common/wire/pb.h"

enum {
	CONNECT_TIMEOUT_MS = 20000,
	CALL_TIMEOUT_MS = 120000,
	PING_INTERVAL_MS = 60000,
	RESEND_PAUSE_MS = 100, /* before a call is sent a third time; then doubled */
};

/* ---- whom ---- */

static int conf_ms(const struct conf *conf, const char *key, uint32_t *ret, struct err *err)
{
	uint64_t v = 0;
	int rc = conf_time_ms(conf, key, 0, &v, err);

	if (rc < 0)
		return rc;
	if (v > INT32_MAX)
		return err_set(err, -EINVAL, "%s=%s is more than 24 days", key,
			       conf_get(conf, key));
	*ret = (uint32_t)v;
	return 0;
}

int rpc_client_conf(const struct conf *conf, struct rpc_client_opts *o, struct err *err)
{
	int rc = conf_ms(conf, "ipc.client.connect.timeout", &o->connect_timeout_ms, err);

	if (rc >= 0)
		rc = conf_ms(conf, "ipc.client.rpc-timeout.ms", &o->call_timeout_ms, err);
	return rc < 0 ? rc : conf_ms(conf, "ipc.ping.interval", &o->ping_interval_ms, err);
}

static char *copy_or(const char *s, const char *dflt)
{
	return strdup(s ? s : dflt);
}

static int copy_servers(struct rpc_target *t, const struct rpc_client_opts *o)
{
	bool ok;

	t->servers[0] = (struct rpc_server){o->addr,
					    copy_or(o->addr_text, net_text(&o->addr, t->addr_buf))};
	ok = t->servers[0].addr_text;
	for (uint32_t i = 0; i < o->other_count; i++) {
		struct rpc_server *s = &t->servers[1 + i];

		*s = (struct rpc_server){o->others[i].addr, copy_or(o->others[i].addr_text, "")};
		ok = ok && s->addr_text;
	}
	t->server_count = 1 + o->other_count;
	return ok ? 0 : -ENOMEM;
}

static int copy_opts(struct rpc_target *t, const struct rpc_client_opts *o)
{
	t->o = *o;
	t->o.addr_text = NULL; /* see servers */
	t->o.others = NULL;
	t->o.protocol = copy_or(o->protocol, "");
	t->o.user = copy_or(o->user, "");
	t->o.real_user = o->real_user ? strdup(o->real_user) : NULL;
	t->o.peer = copy_or(o->peer, "NameNode");
	t->o.addr_key = copy_or(o->addr_key, "fs.defaultFS");
	if (!t->o.connect_timeout_ms)
		t->o.connect_timeout_ms = CONNECT_TIMEOUT_MS;
	if (!t->o.call_timeout_ms)
		t->o.call_timeout_ms = CALL_TIMEOUT_MS;
	if (!t->o.ping_interval_ms)
		t->o.ping_interval_ms = PING_INTERVAL_MS;
	if (!t->o.protocol || !t->o.user || !t->o.peer || !t->o.addr_key ||
	    (!t->o.real_user && o->real_user))
		return -ENOMEM;
	return copy_servers(t, o);
}

int rpc_target_init(struct rpc_target *t, const struct rpc_client_opts *o, struct err *err)
{
	int rc;

	*t = (struct rpc_target){0};
	if (o->other_count >= RPC_SERVERS_MAX)
		return err_set(err, -EINVAL, "more than %d servers that stand for each other",
			       RPC_SERVERS_MAX);
	rc = copy_opts(t, o);
	if (rc >= 0)
		rc = ret_errno((int)getrandom(t->client_id, sizeof(t->client_id), 0));
	return rc < 0 ? err_sys(err, rc, "RPC client") : 0;
}

void rpc_target_fini(struct rpc_target *t)
{
	free((char *)(uintptr_t)t->o.protocol);
	free((char *)(uintptr_t)t->o.user);
	free((char *)(uintptr_t)t->o.real_user);
	for (uint32_t i = 0; i < RPC_SERVERS_MAX; i++)
		free((char *)(uintptr_t)t->servers[i].addr_text);
	free((char *)(uintptr_t)t->o.peer);
	free((char *)(uintptr_t)t->o.addr_key);
}

const char *rpc_target_text(const struct rpc_target *t, uint32_t server)
{
	return t->servers[server].addr_text;
}

int rpc_target_check(const struct rpc_target *t, uint32_t server, const struct rpc_response *r,
		     struct err *err)
{
	const ProtobufCBinaryData *id = &r->header->clientid;

	if (id->len && (id->len != sizeof(t->client_id) ||
			memcmp(id->data, t->client_id, sizeof(t->client_id)) != 0))
		return err_set(err, -EPROTO, "%s %s answered somebody else's call", t->o.peer,
			       rpc_target_text(t, server));
	return 0;
}

void rpc_target_fatal(const struct rpc_target *t, uint32_t server, const struct rpc_response *r,
		      struct err *err)
{
	(void)rpc_response_error(r, err);
	if (r->header->has_errordetail && (int)r->header->errordetail == RPC_FATAL_UNAUTHORIZED &&
	    !strcmp(err->remote, JEX_ACCESS_CONTROL)) /* others are about the user */
		err_cure(err, "%s %s refuses SIMPLE authentication, the only kind known here",
			 t->o.peer, rpc_target_text(t, server));
}

void rpc_target_malformed(const struct rpc_target *t, uint32_t server, int rc, struct err *err)
{
	err_set(err, rc == -ENOMEM ? rc : -EPROTO,
		"%s %s sent a malformed answer; is that the %s's RPC port? (%s)", t->o.peer,
		rpc_target_text(t, server), t->o.peer, t->o.addr_key);
}

struct rpc_client_opts rpc_target_conn_opts(const struct rpc_target *t, uint32_t server)
{
	struct rpc_client_opts o = t->o;

	o.addr = t->servers[server].addr;
	o.addr_text = rpc_target_text(t, server);
	return o;
}

/* ---- one attempt ---- */

static void renew_deadline(struct rpc_attempts *a, const struct rpc_target *t, uint32_t pause_ms)
{
	a->deadline_ns = clock_mono_ns() + (t->o.call_timeout_ms + (uint64_t)pause_ms) * NS_PER_MS;
}

void rpc_attempts_begin(struct rpc_attempts *a, const struct rpc_target *t, const char *method,
			int32_t id)
{
	a->method = method;
	a->id = id;
	a->sent = 0;
	a->server = a->failovers = a->retries = 0;
	a->was_broken = false;
	a->err.rc = 0;
	a->err.text[0] = a->err.remote[0] = '\0';
	renew_deadline(a, t, 0);
}

int rpc_attempts_encode(const struct rpc_attempts *a, const struct rpc_target *t,
			const ProtobufCMessage *req, uint8_t **ret, size_t *ret_len)
{
	const struct rpc_request_args args = {
		.call_id = a->id,
		.retry_count = a->sent,
		.client_id = t->client_id,
		.client_id_len = sizeof(t->client_id),
		.protocol = t->o.protocol,
		.method = a->method,
	};

	return rpc_request_encode(&args, req, ret, ret_len);
}

int rpc_attempts_take(struct rpc_attempts *a, const struct rpc_target *t,
		      const struct rpc_response *r, const ProtobufCMessageDescriptor *desc,
		      ProtobufCMessage **ret)
{
	ProtobufCMessage *msg = NULL;
	int rc = rpc_response_error(r, &a->err);

	if (rc >= 0) {
		rc = pb_unpack(desc, r->message, r->message_len, &msg);
		if (rc < 0)
			err_sys(&a->err, rc == -ENOMEM ? rc : -EPROTO,
				"%s %s: answer to %s is malformed", t->o.peer,
				rpc_target_text(t, a->server), a->method);
	}
	if (rc < 0)
		return a->err.rc ? a->err.rc : err_set(&a->err, rc, "out of memory");
	if (ret)
		*ret = msg;
	else
		pb_free(msg);
	return 0;
}

int rpc_attempts_decode(struct rpc_attempts *a, struct rpc_target *t, const uint8_t *frame,
			uint32_t len, const ProtobufCMessageDescriptor *desc,
			ProtobufCMessage **ret)
{
	struct rpc_response r = {0};
	int rc = rpc_response_decode(frame, len, &r); /* it passed once already */

	rc = rc < 0 ? err_set(&a->err, rc, "out of memory")
		    : rpc_attempts_take(a, t, &r, desc, ret);
	rpc_response_fini(&r);
	return rc;
}

int rpc_attempts_late(struct rpc_attempts *a, const struct rpc_target *t)
{
	err_set(&a->err, -ETIMEDOUT, "%s %s: no answer to %s within %u ms", t->o.peer,
		rpc_target_text(t, a->server), a->method, t->o.call_timeout_ms);
	if (t->is_hadoop)
		return err_cure(&a->err, "it is overloaded or hangs: see its log");
	return err_cure(&a->err,
			"it has never answered: it hangs, or that is not the %s's RPC "
			"port (%s)",
			t->o.peer, t->o.addr_key);
}

int rpc_cancelled(struct err *err)
{
	return err_set(err, -ECANCELED, "the call was cancelled");
}

/* ---- the next one ---- */

/* The connection broke every time. */
static int gave_up(struct rpc_attempts *a, const struct rpc_target *t)
{
	err_set(&a->err, -ECONNRESET, "%s %s closed the connection during %s (sent %d times)",
		t->o.peer, rpc_target_text(t, a->server), a->method, a->sent);
	if (t->is_hadoop)
		return err_cure(&a->err, "see the %s's log", t->o.peer);
	a->err.rc = -EPROTO;
	return err_cure(&a->err,
			"it never answers: does it speak Hadoop RPC, is that the %s's RPC "
			"port? (%s)",
			t->o.peer, t->o.addr_key);
}

/* One server: a broken connection is all that is worth another attempt. */
static enum rpc_next next_of_one(struct rpc_attempts *a, const struct rpc_target *t,
				 enum rpc_outcome o, int *rc, uint32_t *ret_pause_ms)
{
	const uint64_t now = clock_mono_ns();

	if (o != RPC_BROKEN)
		return RPC_END;
	if (now >= a->deadline_ns) {
		*rc = rpc_attempts_late(a, t);
		return RPC_END;
	}
	/* At first it was most often closed while idle. */
	*ret_pause_ms = a->sent == 1 ? 0 : RESEND_PAUSE_MS << (a->sent - 2);
	if (a->sent < RPC_SEND_MAX && now + *ret_pause_ms * NS_PER_MS < a->deadline_ns)
		return RPC_AGAIN;
	*rc = gave_up(a, t);
	return RPC_END;
}

static bool is_out_of_reach(int rc)
{
	return rc == -ECONNREFUSED || rc == -EHOSTUNREACH || rc == -ENETUNREACH ||
	       rc == -ECONNRESET || rc == -EPIPE || rc == -ETIMEDOUT;
}

/* With several servers: what the outcome of an attempt means. */
static enum rpc_next judge(const struct rpc_attempts *a, enum rpc_outcome o, int rc)
{
	if (o == RPC_BROKEN) /* at first perhaps only closed while idle */
		return a->was_broken ? RPC_OTHER : RPC_AGAIN;
	if (o == RPC_FAILED)
		return is_out_of_reach(rc) ? RPC_OTHER : RPC_END;
	if (rc == 0 || strcmp(a->err.remote, JEX_STANDBY) == 0)
		return rc == 0 ? RPC_END : RPC_OTHER;
	return strcmp(a->err.remote, JEX_RETRIABLE) == 0 ? RPC_AGAIN : RPC_END;
}

/* From half of base * 2^@round to one and a half, so that clients do not come all at once. */
static uint32_t pause_ms(const struct rpc_target *t, uint32_t round)
{
	uint64_t ms = (uint64_t)t->o.pause_base_ms << (round < 16 ? round : 16);
	uint32_t dice = 0;

	if (ms > t->o.pause_max_ms)
		ms = t->o.pause_max_ms;
	(void)!getrandom(&dice, sizeof(dice), GRND_NONBLOCK);
	return (uint32_t)(ms / 2 + ms * (dice % 1024) / 1024);
}

/* No server could do it. */
static int out_of_servers(struct rpc_attempts *a, const struct rpc_target *t, enum rpc_outcome o,
			  int rc)
{
	if (o == RPC_BROKEN)
		err_set(&a->err, rc, "%s %s closed the connection during %s", t->o.peer,
			rpc_target_text(t, a->server), a->method);
	err_prefix(&a->err, "none of %u %ss can be used, after %d attempts; the last one",
		   t->server_count, t->o.peer, a->sent);
	return a->err.rc ? a->err.rc : rc;
}

static enum rpc_next next_of_many(struct rpc_attempts *a, const struct rpc_target *t,
				  enum rpc_outcome o, int *rc, uint32_t *ret_pause_ms)
{
	const enum rpc_next next = judge(a, o, *rc);
	uint32_t pause = 0;

	if (next == RPC_END)
		return RPC_END;
	if (next == RPC_OTHER) {
		if (a->failovers >= t->o.failovers_max) {
			*rc = out_of_servers(a, t, o, *rc);
			return RPC_END;
		}
		pause = a->failovers ? pause_ms(t, a->failovers) : 0;
		a->failovers++;
	} else if (o == RPC_ANSWERED) { /* it asks for patience */
		if (a->retries >= t->o.retries_max)
			return RPC_END;
		pause = pause_ms(t, a->retries++);
	}
	a->was_broken = o == RPC_BROKEN && next == RPC_AGAIN;
	renew_deadline(a, t, pause);
	log_debug("op=rpc method=%s server=%s pause_ms=%u: %s: %s", a->method,
		  rpc_target_text(t, a->server), pause,
		  next == RPC_OTHER ? "asking the next one" : "asking again",
		  a->err.text[0] ? a->err.text : "the connection broke");
	*ret_pause_ms = pause;
	return next;
}

enum rpc_next rpc_attempts_next(struct rpc_attempts *a, const struct rpc_target *t,
				enum rpc_outcome o, int *rc, uint32_t *ret_pause_ms)
{
	a->sent++;
	return t->server_count > 1 ? next_of_many(a, t, o, rc, ret_pause_ms)
				   : next_of_one(a, t, o, rc, ret_pause_ms);
}
