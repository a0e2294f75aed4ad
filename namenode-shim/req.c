/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/req.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/rpc/server.h"
#include "common/wire/pb.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/users.h"

struct req *req_new(struct nn *nn, const struct method *m, struct rpc_call *call,
		    ProtobufCMessage *in)
{
	struct req *q = xcalloc(1, sizeof(*q));

	q->nn = nn;
	q->method = m;
	q->call = call;
	q->in = in;
	list_init(&q->link);
	if (call && (m->flags & REQ_ONCE))
		q->key = retry_key_make(call->client_id, call->client_id_len, call->call_id);
	return q;
}

void req_reset(struct req *q, struct txn *t)
{
	const struct nn *nn = q->nn;
	const char *user = !q->call ? users_self(nn->users) : q->call->user ? q->call->user : "";
	char ip[NET_TEXT_MAX];

	arena_free(&q->mem);
	pb_free(q->replayed);
	q->replayed = NULL;
	q->exc.cls = NULL;
	q->out = NULL;
	q->nseen = 0;
	q->fx.first = NULL;
	q->fx.last = &q->fx.first;
	q->ns = (struct ns){.t = t, .a = &q->mem, .x = &q->exc, .fx = &q->fx, .users = nn->users};
	q->ns.user = user;
	q->ns.host = q->call ? arena_strdup(&q->mem, net_ip(q->call->peer, ip)) : "";
	q->ns.now_ms = clock_wall_ms();
	q->ns.enforce = nn->set.permissions;
	q->ns.super = !q->call || users_is_super(nn->users, user);
}

/* The answer of an earlier run of the same call, if there was one. */
static int replay(struct req *q)
{
	const void *answer;
	uint32_t len;
	int rc = retry_find(q->ns.t, &q->key, &answer, &len);
	ProtobufCMessage *m;

	if (rc < 0)
		return rc;
	rc = pb_unpack(q->method->out, answer, len, &m);
	if (rc < 0)
		return ns_io(&q->ns, rc);
	q->replayed = q->out = m;
	return 0;
}

static int remember(struct req *q)
{
	const size_t len = protobuf_c_message_get_packed_size(q->out);
	uint8_t *buf = arena_alloc(&q->mem, len);

	protobuf_c_message_pack(q->out, buf);
	return ns_io(&q->ns, retry_store(q->ns.t, &q->key, q->ns.now_ms + q->nn->set.retry_ms, buf,
					 (uint32_t)len));
}

static int check_allowed(struct req *q)
{
	char text[ERR_TEXT_MAX];

	if (strlen(q->ns.user) > INODE_NAME_MAX)
		return exc_throw(&q->exc, EXC_ACCESS, "user name is longer than %d bytes",
				 INODE_NAME_MAX);
	if ((q->method->flags & REQ_SUPER) && q->ns.enforce && !q->ns.super)
		return exc_throw(&q->exc, EXC_ACCESS,
				 "Access denied for user %s. Superuser privilege is required",
				 q->ns.user);
	if (q->method->kind == REQ_CHANGE && !(q->method->flags & REQ_SAFE_OK) &&
	    q->nn->safe.on)
		return exc_throw(&q->exc, EXC_SAFE_MODE, "Cannot %s. Name node is in safe mode. %s",
				 q->method->name, nn_safe_text(q->nn, text));
	return 0;
}

int req_run(struct req *q)
{
	q->rc = q->key.len ? replay(q) : -ENOENT;
	if (q->rc != -ENOENT)
		return q->rc;
	q->rc = check_allowed(q);
	q->rc = q->rc ? q->rc : q->method->run(q, q->in);
	if (!q->rc && q->key.len)
		q->rc = remember(q);
	return q->rc;
}

static void answer(struct req *q)
{
	if (!q->rc)
		rpc_reply(q->call, q->out);
	else if (q->exc.cls)
		rpc_fail(q->call, q->exc.cls, "%s", q->exc.text);
	else
		rpc_fail(q->call, "java.io.IOException", "%s failed: %s", q->method->name,
			 err_name(q->rc));
}

void req_finish(struct req *q)
{
	if (q->call)
		answer(q);
	else if (q->rc < 0)
		log_warn("op=%s inode=%llu rc=%s text=\"%s\"", q->method->name,
			 (unsigned long long)q->arg, err_name(q->rc),
			 q->exc.cls ? q->exc.text : "");
	pb_free(q->in);
	pb_free(q->replayed);
	arena_free(&q->mem);
	free(q);
}
