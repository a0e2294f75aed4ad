/* SPDX-License-Identifier: Apache-2.0 */
/* ClientProtocol: storage policies and quotas. */
#include "ClientNamenodeProtocol.pb-c.h"
#include "namenode-shim/namespace/quota.h"
#include "namenode-shim/namespace/storage_policy.h"
#include "namenode-shim/namespace/xattr.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/rpc/methods.h"

/* NULL: the policy says nothing about it. */
static Hd__StorageTypesProto *types_proto(struct req *q, const struct storage_policy_types *t)
{
	Hd__StorageTypesProto *m;

	if (!t->type[0])
		return NULL;
	m = req_new_msg(q, Hd__StorageTypesProto, hd__storage_types_proto__init);
	m->storagetypes = arena_array(&q->mem, Hd__StorageTypeProto, POLICY_TYPES_MAX);
	for (; t->type[m->n_storagetypes]; m->n_storagetypes++)
		m->storagetypes[m->n_storagetypes] =
			(Hd__StorageTypeProto)t->type[m->n_storagetypes];
	return m;
}

static Hd__BlockStoragePolicyProto *policy_proto(struct req *q, const struct storage_policy *p)
{
	Hd__BlockStoragePolicyProto *m =
		req_new_msg(q, Hd__BlockStoragePolicyProto, hd__block_storage_policy_proto__init);

	m->policyid = p->id;
	m->name = arena_strdup(&q->mem, p->name);
	m->creationpolicy = types_proto(q, &p->create);
	m->creationfallbackpolicy = types_proto(q, &p->create_fallback);
	m->replicationfallbackpolicy = types_proto(q, &p->copy_fallback);
	return m;
}

static int get_storage_policies(struct req *q, const void *in)
{
	Hd__GetStoragePoliciesResponseProto *r =
		req_reply(q, Hd__GetStoragePoliciesResponseProto,
			  hd__get_storage_policies_response_proto__init);

	(void)in;
	r->policies = arena_array(&q->mem, Hd__BlockStoragePolicyProto *, policy_count);
	for (; r->n_policies < policy_count; r->n_policies++)
		r->policies[r->n_policies] = policy_proto(q, &policies[r->n_policies]);
	return 0;
}

static int get_storage_policy(struct req *q, const void *in)
{
	const Hd__GetStoragePolicyRequestProto *m = in;
	Hd__GetStoragePolicyResponseProto *r = req_reply(
		q, Hd__GetStoragePolicyResponseProto, hd__get_storage_policy_response_proto__init);
	struct ns_path w;
	unsigned int id;
	int rc = ns_resolve(&q->ns, m->path, &w);

	rc = rc ? rc : ns_found(&q->ns, &w, "File/Directory does not exist: ", "");
	rc = rc ? rc : ns_check(&q->ns, w.last, ACCESS_R, w.path);
	if (rc < 0)
		return rc;
	id = storage_policy_of(q->ns.t, w.last, &q->mem);
	r->storagepolicy = policy_proto(q, storage_policy_by_id(id ? id : POLICY_HOT));
	return 0;
}

static int set_quota(struct req *q, const void *in)
{
	const Hd__SetQuotaRequestProto *m = in;

	req_reply(q, Hd__SetQuotaResponseProto, hd__set_quota_response_proto__init);
	if (m->has_storagetype)
		return exception_throw(
			&q->exception, EXC_UNSUPPORTED_ACTION,
			"quotas by storage type are not supported by this NameNode; set "
			"one for all types");
	return quota_set(&q->ns, m->path, m->namespacequota, m->storagespacequota);
}

static int set_storage_policy(struct req *q, const void *in)
{
	const Hd__SetStoragePolicyRequestProto *m = in;

	req_reply(q, Hd__SetStoragePolicyResponseProto,
		  hd__set_storage_policy_response_proto__init);
	return storage_policy_set(&q->ns, m->src, m->policyname);
}

static int unset_storage_policy(struct req *q, const void *in)
{
	const Hd__UnsetStoragePolicyRequestProto *m = in;

	req_reply(q, Hd__UnsetStoragePolicyResponseProto,
		  hd__unset_storage_policy_response_proto__init);
	return storage_policy_set(&q->ns, m->src, NULL);
}

static int satisfy_storage_policy(struct req *q, const void *in)
{
	const Hd__SatisfyStoragePolicyRequestProto *m = in;
	struct ns_path w;
	bool marked;
	int rc;

	req_reply(q, Hd__SatisfyStoragePolicyResponseProto,
		  hd__satisfy_storage_policy_response_proto__init);
	if (!q->nn->set.satisfier)
		return exception_throw(
			&q->exception, EXC_UNSUPPORTED_ACTION,
			"Cannot request to satisfy storage policy when storage policy satisfier "
			"feature has been disabled by admin. Seek for an admin help to enable it or "
			"use Mover tool.");
	if (q->nn->satisfy.n >= SATISFY_MAX)
		return exception_throw(&q->exception, EXC_IO,
				       "Outstanding satisfier queue limit: %d exceeded, try later!",
				       SATISFY_MAX);
	rc = ns_resolve_change(&q->ns, m->src, &w);
	rc = rc ? rc : ns_found(&q->ns, &w, "File/Directory does not exist: ", "");
	rc = rc ? rc : ns_check(&q->ns, w.last, ACCESS_W, w.path);
	if (rc < 0 || (w.last->type == INODE_FILE && !w.last->nblocks))
		return rc;
	rc = xattrs_mark(q->ns.t, w.last, &q->mem, true, &marked);
	if (!rc && marked)
		rc = inode_put(q->ns.t, w.last);
	ns_effect(&q->ns, EFFECT_SATISFY)->inode = w.last->id;
	return ns_io(&q->ns, rc);
}

#define READ(name, msg, fn) METHOD(name, hd, msg, REQ_READ, 0, fn)
#define CHANGE(name, msg, flags, fn) METHOD(name, hd, msg, REQ_CHANGE, flags, fn)
static const struct method table[] = {
	READ(getStoragePolicies, get_storage_policies, get_storage_policies),
	READ(getStoragePolicy, get_storage_policy, get_storage_policy),
	CHANGE(setStoragePolicy, set_storage_policy, 0, set_storage_policy),
	CHANGE(unsetStoragePolicy, unset_storage_policy, 0, unset_storage_policy),
	CHANGE(satisfyStoragePolicy, satisfy_storage_policy, 0, satisfy_storage_policy),
	CHANGE(setQuota, set_quota, REQ_SUPER, set_quota),
};
const struct method_table client_policy_methods = METHOD_TABLE(table);
