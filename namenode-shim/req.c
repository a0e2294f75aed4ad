/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/req.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/rpc/server.h"
#include "common/rpc/service_acl.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"
#include "namenode-shim/base/users.h"
#include "namenode-shim/blocks/hosts.h"
#include "namenode-shim/namespace/cache_directive.h"
#include "namenode-shim/namespace/quota.h"
#include "namenode-shim/nn.h"

#define REQ_SPARE_MAX 256

void req_pool_init(struct req_pool *p)
{
	pthread_mutex_init(&p->lock, NULL);
	list_init(&p->spare);
	p->n = 0;
}

static void really_free(struct req *q)
{
	arena_fini(&q->mem);
	free(q);
}

void req_pool_fini(struct req_pool *p)
{
	struct list *l;

	while ((l = list_pop(&p->spare)))
		really_free(container_of(l, struct req, link));
	pthread_mutex_destroy(&p->lock);
}

static struct req *pool_take(struct req_pool *p)
{
	struct list *l;
	struct req *q;

	pthread_mutex_lock(&p->lock);
	l = list_pop(&p->spare);
	p->n -= l != NULL;
	pthread_mutex_unlock(&p->lock);
	if (l) {
		q = container_of(l, struct req, link);
		*q = (struct req){.mem = q->mem};
		return q;
	}
	q = xcalloc(1, sizeof(*q));
	arena_keep(&q->mem);
	return q;
}

static void pool_give(struct req_pool *p, struct req *q)
{
	bool full;

	arena_free(&q->mem);
	pthread_mutex_lock(&p->lock);
	full = p->n == REQ_SPARE_MAX;
	if (!full) {
		list_add(&p->spare, &q->link);
		p->n++;
	}
	pthread_mutex_unlock(&p->lock);
	if (full)
		really_free(q);
}

struct req *req_new(struct nn *nn, const struct method *m, struct rpc_call *call)
{
	struct req *q = pool_take(&nn->reqs);

	q->nn = nn;
	q->method = m;
	q->call = call;
	q->since_ns = clock_mono_ns();
	q->exception.a = &q->mem;
	list_init(&q->link);
	if (call && (m->flags & REQ_ONCE))
		q->key = retry_cache_key_make(call->client_id, call->client_id_len, call->call_id);
	return q;
}

bool req_decode(struct req *q)
{
	q->in = rpc_call_decode_in(q->call, &q->room, q->method->in);
	if (q->in)
		return true;
	pool_give(&q->nn->reqs, q);
	return false;
}

const char *req_user(const struct req *q)
{
	return !q->call ? users_self(q->nn->users) : q->call->user ? q->call->user : "";
}

bool req_needs_groups(const struct req *q)
{
	const char *user = req_user(q);

	if (!q->call || strlen(user) > USERS_NAME_MAX)
		return false;
	return q->nn->service_acl || q->method->flags & REQ_GROUPS ||
	       (!q->datanode && strcmp(user, users_self(q->nn->users)) != 0);
}

void req_reset(struct req *q, struct txn *t)
{
	const struct nn *nn = q->nn;
	const char *user = req_user(q);

	arena_free(&q->mem);
	pb_free(q->replayed);
	q->replayed = NULL;
	q->exception = (struct exception_info){.a = &q->mem};
	q->out = NULL;
	q->early = false;
	q->nseen = 0;
	q->effects.first = NULL;
	q->effects.last = &q->effects.first;
	q->effects.kinds = 0;
	q->ns = (struct ns){.t = t,
			    .a = &q->mem,
			    .x = &q->exception,
			    .effects = &q->effects,
			    .users = nn->users};
	q->ns.user = user;
	q->ns.host = q->call ? q->call->peer_ip : "";
	q->ns.now_ms = clock_wall_ms();
	q->ns.enforce = nn->set.permissions;
	q->ns.limits = &nn->set.limits;
	q->ns.super = !q->call || (!q->datanode && users_is_super(nn->users, user));
}

/* The answer of an earlier run of the same call, if there was one. */
static int replay(struct req *q)
{
	const void *answer;
	uint32_t len;
	int rc = retry_cache_find(q->ns.t, &q->key, &answer, &len);
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
	return ns_io(&q->ns,
		     retry_cache_store(q->ns.t, &q->key, nn_steady_ms(q->nn) + q->nn->set.retry_ms,
				       buf, (uint32_t)len));
}

/* What safe mode forbids, in the words of HDFS: @ is the path of the call, # its block. */
static const struct {
	const char *method, *words;
} forbidden[] = {
	{"mkdirs", "Cannot create directory @"},
	{"create", "Cannot create file@"},
	{"append", "Cannot append to file@"},
	{"delete", "Cannot delete @"},
	{"rename", "Cannot rename @"},
	{"rename2", "Cannot rename @"},
	{"concat", "Cannot concat @"},
	{"truncate", "Cannot truncate for @"},
	{"replaceBlocks", "Cannot replace blocks of @"},
	{"setPermission", "Cannot set permission for @"},
	{"setOwner", "Cannot set owner for @"},
	{"setTimes", "Cannot set times @"},
	{"setReplication", "Cannot set replication for @"},
	{"setQuota", "Cannot set quota on @"},
	{"setStoragePolicy", "Cannot set storage policy for @"},
	{"unsetStoragePolicy", "Cannot unset storage policy for @"},
	{"allowSnapshot", "Cannot allow snapshot for @"},
	{"disallowSnapshot", "Cannot disallow snapshot for @"},
	{"createSymlink", "Cannot create symlink @"},
	{"createSnapshot", "Cannot create snapshot for @"},
	{"deleteSnapshot", "Cannot delete snapshot for @"},
	{"renameSnapshot", "Cannot rename snapshot for @"},
	{"modifyAclEntries", "Cannot modify ACL entries on @"},
	{"removeAclEntries", "Cannot remove ACL entries on @"},
	{"removeDefaultAcl", "Cannot remove default ACL entries on @"},
	{"removeAcl", "Cannot remove ACL on @"},
	{"setAcl", "Cannot set ACL on @"},
	{"setXAttr", "Cannot set XAttr on @"},
	{"removeXAttr", "Cannot remove XAttr entry on @"},
	{"recoverLease", "Cannot recover the lease of @"},
	{"fsync", "Cannot fsync file @"},
	{"complete", "Cannot complete file @"},
	{"addBlock", "Cannot add block to @"},
	{"getAdditionalDatanode", "Cannot add datanode; src=@, blk=#"},
	{"updateBlockForPipeline",
	 "Cannot get a new generation stamp and an access token for block #"},
	{"updatePipeline", "Pipeline not updated"},
	{"abandonBlock", "Cannot abandon block # for file@"},
	{"setErasureCodingPolicy", "Cannot set erasure coding policy on @"},
	{"unsetErasureCodingPolicy", "Cannot unset erasure coding policy on @"},
	{"enableErasureCodingPolicy", "Cannot enable erasure coding policy @"},
	{"disableErasureCodingPolicy", "Cannot disable erasure coding policy @"},
	{"removeErasureCodingPolicy", "Cannot remove erasure coding policy @"},
	{"addErasureCodingPolicies", "Cannot add erasure coding policy"},
	{"addCachePool", "Cannot add cache pool@"},
	{"modifyCachePool", "Cannot modify cache pool@"},
	{"removeCachePool", "Cannot modify cache pool@"},
	{"addCacheDirective", "Cannot add cache directive"},
	{"modifyCacheDirective", "Cannot add cache directive"},
	{"removeCacheDirective", "Cannot remove cache directives"},
	{"rollEdits", "Log not rolled"},
};

/* The path a request is about: its first text field, if that is not the client's name; of a cache
 * pool, its name. */
static const char *path_of(const struct req *q)
{
	const ProtobufCMessageDescriptor *d = q->method->in;

	for (unsigned int i = 0; i < d->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &d->fields[i];

		if (f->type == PROTOBUF_C_TYPE_MESSAGE &&
		    f->descriptor == &hd__cache_pool_info_proto__descriptor)
			return (*(Hd__CachePoolInfoProto *const *)((const char *)q->in + f->offset))
				->poolname;
		if (f->type != PROTOBUF_C_TYPE_STRING || f->label == PROTOBUF_C_LABEL_REPEATED ||
		    !strcasecmp(f->name, "clientName"))
			continue;
		return *(char *const *)((const char *)q->in + f->offset);
	}
	return NULL;
}

/* The block a request is about: of its first field of that kind. */
static const char *block_of(struct req *q)
{
	const ProtobufCMessageDescriptor *d = q->method->in;

	for (unsigned int i = 0; i < d->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &d->fields[i];
		const Hd__ExtendedBlockProto *b;

		if (f->type != PROTOBUF_C_TYPE_MESSAGE || f->label == PROTOBUF_C_LABEL_REPEATED ||
		    f->descriptor != &hd__extended_block_proto__descriptor)
			continue;
		b = *(Hd__ExtendedBlockProto *const *)((const char *)q->in + f->offset);
		return b ? arena_printf(&q->mem, "%s:blk_%lld_%llu", b->poolid,
					(long long)b->blockid,
					(unsigned long long)b->generationstamp)
			 : "null";
	}
	return "";
}

static const char *safe_words(struct req *q)
{
	const char *words = NULL, *path = q->in ? path_of(q) : NULL, *text = "";

	for (size_t i = 0; i < sizeof(forbidden) / sizeof(forbidden[0]) && !words; i++)
		if (!strcmp(forbidden[i].method, q->method->name))
			words = forbidden[i].words;
	if (!words)
		words = arena_printf(&q->mem, "Cannot %s @", q->method->name);
	for (const char *p = words; *p; p++) {
		const size_t len = strcspn(p, "@#");
		const char *what = p[len] == '@' ? path : p[len] == '#' ? block_of(q) : NULL;

		text = arena_printf(&q->mem, "%s%.*s%s", text, (int)len, p, what ? what : "");
		p += p[len] ? len : len - 1;
	}
	return text;
}

static int safe_mode(struct req *q)
{
	char tip[ERR_TEXT_MAX];

	return exception_throw(&q->exception, EXC_SAFE_MODE,
			       "%s. Name node is in safe mode.\n%s NamenodeHostName:%s",
			       safe_words(q), nn_safe_text(q->nn, tip), q->nn->set.host);
}

/* Operations that HDFS names otherwise than their methods. */
static const struct {
	const char *method, *operation;
} operations[] = {
	{"getDatanodeReport", "datanodeReport"},
	{"getTransactionId", "getTransactionID"},
	{"getSlowDatanodeReport", "slowDataNodesReport"},
	{"rollEdits", "rollEditLog"},
	{"rollingUpgrade", "queryRollingUpgrade"},
	{"restoreFailedStorage", "checkRestoreFailedStorage"},
};

/* One call, four commands: as Apache names them to who may not give them. */
static const char *quota_operation(const Hd__SetQuotaRequestProto *m)
{
	if (m->namespacequota == QUOTA_NONE && m->storagespacequota == QUOTA_KEEP)
		return "clearQuota";
	if (m->namespacequota == QUOTA_KEEP && m->storagespacequota == QUOTA_NONE)
		return "clearSpaceQuota";
	return m->storagespacequota == QUOTA_KEEP ? "setQuota" : "setSpaceQuota";
}

int req_need_super(struct req *q, const char *operation)
{
	if (!operation && !strcmp(q->method->name, "setQuota"))
		operation = quota_operation((const void *)q->in);
	for (size_t i = 0; !operation && i < sizeof(operations) / sizeof(operations[0]); i++)
		if (!strcmp(operations[i].method, q->method->name))
			operation = operations[i].operation;
	if (!q->ns.enforce || q->ns.super)
		return 0;
	return exception_throw(
		&q->exception, EXC_ACCESS,
		"Access denied for user %s. Superuser privilege is required for operation %s",
		q->ns.user, operation ? operation : q->method->name);
}

int req_check_safe(struct req *q)
{
	return q->nn->safe.on ? safe_mode(q) : 0;
}

static int check_allowed(struct req *q)
{
	int rc = 0;

	if (strlen(q->ns.user) > INODE_NAME_MAX)
		return exception_throw(&q->exception, EXC_ACCESS,
				       "user name is longer than %d bytes", INODE_NAME_MAX);
	if (q->method->flags & REQ_SUPER)
		rc = req_need_super(q, NULL);
	if (rc < 0)
		return rc;
	return q->method->kind == REQ_CHANGE && !(q->method->flags & REQ_SAFE_OK)
		       ? req_check_safe(q)
		       : 0;
}

struct asked {
	struct users *users; /* borrowed */
	bool undecided;      /* an answer of false says nothing */
};

static bool in_group(void *arg, const char *user, const char *group)
{
	struct asked *a = arg;

	a->undecided |= users_undecided(a->users, user);
	return users_in_group(a->users, user, group);
}

static int throw_undecided(struct req *q)
{
	return exception_throw(&q->exception, EXC_RETRIABLE,
			       "the groups of %.64s cannot be had now, for the accounts of this "
			       "machine fail; try again",
			       q->ns.user);
}

int req_check_service(struct req *q)
{
	const struct rpc_call *c = q->call;
	struct asked a = {.users = q->nn->users};
	struct err err = ERR_INIT;
	int rc;

	if (!c || !q->nn->service_acl)
		return 0;
	rc = service_acl_check(q->nn->service_acl, c->protocol, q->ns.user, q->ns.host, in_group,
			       &a, &err);
	if (a.undecided) /* it may be in a group that may, or in one that is blocked */
		return throw_undecided(q);
	if (!rc)
		return 0;
	service_acl_note_denied(q->nn->service_acl, c->protocol, q->ns.user, q->ns.host);
	return exception_throw(&q->exception, EXC_AUTHORIZATION, "%s", err.text);
}

/* Of a caller whose rights depend on its groups. */
static bool is_access_refused(const struct req *q)
{
	return q->caller && q->exception.cls && !strcmp(q->exception.cls, JEX_ACCESS_CONTROL);
}

int req_run(struct req *q)
{
	q->rc = q->begun ? 0 : req_check_service(q);
	if (q->rc < 0)
		return q->rc;
	q->begun = true;
	q->rc = q->key.len ? replay(q) : -ENOENT;
	if (q->rc != -ENOENT)
		return q->rc;
	q->rc = check_allowed(q);
	q->rc = q->rc ? q->rc : q->method->run(q, q->in);
	if (q->rc < 0 && is_access_refused(q) && users_undecided(q->nn->users, q->ns.user))
		q->rc = throw_undecided(q);
	if (!q->rc && q->key.len)
		q->rc = remember(q);
	return q->rc;
}

static void answer(struct req *q)
{
	if (!q->rc)
		rpc_reply(q->call, q->out);
	else if (q->exception.cls)
		rpc_fail(q->call, q->exception.cls, "%s", q->exception.text);
	else
		rpc_fail(q->call, "java.io.IOException", "%s failed: %s", q->method->name,
			 err_name(q->rc));
}

void req_finish(struct req *q)
{
	if (q->stat) {
		q->stat->failures += q->rc < 0;
		q->stat->ns += clock_mono_ns() - q->since_ns;
		q->stat->calls++; /* the last: whoever waits for it may free @stat */
	}
	if (q->call)
		answer(q);
	else if (q->rc < 0)
		log_warn("op=%s inode=%llu rc=%s text=\"%s\"", q->method->name,
			 (unsigned long long)q->arg, err_name(q->rc),
			 q->exception.cls ? q->exception.text : "");
	pb_free_in(&q->room, q->in);
	pb_free(q->replayed);
	users_let_go(q->caller);
	users_let_go(q->asked);
	hosts_free(q->hosts);
	free(q->prepare_error);
	ns_summing_free(q->summing);
	free(q->block_walk);
	free(q->report);
	tree_check_free(q->tree);
	cache_walk_free(q->cache_walk);
	pool_give(&q->nn->reqs, q);
}
