/* SPDX-License-Identifier: Apache-2.0 */
/* ClientProtocol: erasure-coding policies, and directories that have one. */
#include "ClientNamenodeProtocol.pb-c.h"
#include "common/wire/ec_msg.h"
#include "erasurecoding.pb-c.h"
#include "namenode-shim/blocks/located_block.h"
#include "namenode-shim/namespace/ecpolicy.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/rpc/methods.h"

/* ---- what there is ---- */

static int get_policies(struct req *q, const void *in)
{
	Hd__GetErasureCodingPoliciesResponseProto *r =
		req_reply(q, Hd__GetErasureCodingPoliciesResponseProto,
			  hd__get_erasure_coding_policies_response_proto__init);
	struct ecpol all[ECPOL_MAX];
	size_t n;
	int rc = ecpol_list(q->ns.t, &q->nn->set.ec, all, &n);

	(void)in;
	if (rc < 0)
		return ns_io(&q->ns, rc);
	r->ecpolicies = arena_array(&q->mem, Hd__ErasureCodingPolicyProto *, n);
	for (; r->n_ecpolicies < n; r->n_ecpolicies++) {
		Hd__ErasureCodingPolicyProto *m = locate_policy(&q->mem, &all[r->n_ecpolicies].p);

		PB_SET(m, state, (Hd__ErasureCodingPolicyState)all[r->n_ecpolicies].state);
		r->ecpolicies[r->n_ecpolicies] = m;
	}
	return 0;
}

/* Those of a stock NameNode: which software codes is each client's and node's own affair. */
static int get_codecs(struct req *q, const void *in)
{
	static const char *const codecs[][2] = {
		{"rs", "rs_native, rs_java"},
		{"rs-legacy", "rs-legacy_java"},
		{"xor", "xor_native, xor_java"},
	};
	const size_t n = sizeof(codecs) / sizeof(codecs[0]);
	Hd__GetErasureCodingCodecsResponseProto *r =
		req_reply(q, Hd__GetErasureCodingCodecsResponseProto,
			  hd__get_erasure_coding_codecs_response_proto__init);

	(void)in;
	r->codec = arena_array(&q->mem, Hd__CodecProto *, n);
	for (; r->n_codec < n; r->n_codec++) {
		Hd__CodecProto *c = req_new_msg(q, Hd__CodecProto, hd__codec_proto__init);

		c->codec = (char *)codecs[r->n_codec][0];
		c->coders = (char *)codecs[r->n_codec][1];
		r->codec[r->n_codec] = c;
	}
	return 0;
}

static int get_policy(struct req *q, const void *in)
{
	const Hd__GetErasureCodingPolicyRequestProto *m = in;
	Hd__GetErasureCodingPolicyResponseProto *r =
		req_reply(q, Hd__GetErasureCodingPolicyResponseProto,
			  hd__get_erasure_coding_policy_response_proto__init);
	const struct ec_policy *p = NULL;
	struct ns_path w;
	int rc = ns_resolve(&q->ns, m->src, &w);

	if (!rc && w.last)
		rc = ns_check(&q->ns, w.last, ACCESS_R, w.path);
	rc = rc ? rc : ns_found(&q->ns, &w, "Path not found: ", "");
	rc = rc ? rc : ns_io(&q->ns, ecdir_of(q->ns.t, w.last, &q->mem, &p));
	if (!rc)
		r->ecpolicy = locate_policy(&q->mem, p);
	return rc;
}

/* ---- directories ---- */

static int set_policy(struct req *q, const void *in)
{
	const Hd__SetErasureCodingPolicyRequestProto *m = in;

	req_reply(q, Hd__SetErasureCodingPolicyResponseProto,
		  hd__set_erasure_coding_policy_response_proto__init);
	return ecdir_set(&q->ns, &q->nn->set.ec, m->src, m->ecpolicyname);
}

static int unset_policy(struct req *q, const void *in)
{
	req_reply(q, Hd__UnsetErasureCodingPolicyResponseProto,
		  hd__unset_erasure_coding_policy_response_proto__init);
	return ecdir_unset(&q->ns, ((const Hd__UnsetErasureCodingPolicyRequestProto *)in)->src);
}

/* ---- an administrator's ---- */

static int enable_policy(struct req *q, const void *in)
{
	req_reply(q, Hd__EnableErasureCodingPolicyResponseProto,
		  hd__enable_erasure_coding_policy_response_proto__init);
	return ecpol_set_state(
		&q->ns, &q->nn->set.ec,
		((const Hd__EnableErasureCodingPolicyRequestProto *)in)->ecpolicyname,
		ECPOL_ENABLED);
}

static int disable_policy(struct req *q, const void *in)
{
	req_reply(q, Hd__DisableErasureCodingPolicyResponseProto,
		  hd__disable_erasure_coding_policy_response_proto__init);
	return ecpol_set_state(
		&q->ns, &q->nn->set.ec,
		((const Hd__DisableErasureCodingPolicyRequestProto *)in)->ecpolicyname,
		ECPOL_DISABLED);
}

static int remove_policy(struct req *q, const void *in)
{
	req_reply(q, Hd__RemoveErasureCodingPolicyResponseProto,
		  hd__remove_erasure_coding_policy_response_proto__init);
	return ecpol_set_state(
		&q->ns, &q->nn->set.ec,
		((const Hd__RemoveErasureCodingPolicyRequestProto *)in)->ecpolicyname,
		ECPOL_REMOVED);
}

/* The parts as a client names them; what does not fit a byte is too much in any case. */
static struct ec_policy parts_of(const Hd__ErasureCodingPolicyProto *m)
{
	const Hd__ECSchemaProto *s = m->schema;

	return (struct ec_policy){.k = s->dataunits > UINT8_MAX ? UINT8_MAX : (uint8_t)s->dataunits,
				  .m = s->parityunits > UINT8_MAX ? UINT8_MAX
								  : (uint8_t)s->parityunits,
				  .cell = m->has_cellsize ? m->cellsize : 0};
}

static int add_policy(struct req *q, Hd__ErasureCodingPolicyProto *m,
		      Hd__AddErasureCodingPolicyResponseProto *r)
{
	const struct ec_policy *own = ec_policy_by_id(m->id & 0xff);
	struct err err = ERR_INIT;
	struct ec_policy parts, p;
	int rc;

	r->policy = m; /* as asked; it lives as long as the request */
	if (own)       /* what a stock NameNode reads of such a message is the id */
		parts = *own;
	else if (m->schema)
		parts = parts_of(m);
	rc = own || m->schema ? ecpol_add(&q->ns, &q->nn->set.ec,
					  own ? ec_codec_name(own->codec) : m->schema->codecname,
					  &parts, &p, &err)
			      : err_set(&err, -EINVAL, "A policy without a schema cannot be added");
	if (rc == -EINVAL) {
		r->errormsg = arena_strdup(&q->mem, err.text);
		return 0;
	}
	if (rc < 0)
		return ns_io(&q->ns, rc);
	r->policy = locate_policy(&q->mem, &p);
	r->succeed = 1;
	return 0;
}

static int add_policies(struct req *q, const void *in)
{
	const Hd__AddErasureCodingPoliciesRequestProto *m = in;
	Hd__AddErasureCodingPoliciesResponseProto *r =
		req_reply(q, Hd__AddErasureCodingPoliciesResponseProto,
			  hd__add_erasure_coding_policies_response_proto__init);
	int rc = 0;

	r->responses =
		arena_array(&q->mem, Hd__AddErasureCodingPolicyResponseProto *, m->n_ecpolicies);
	for (size_t i = 0; i < m->n_ecpolicies && !rc; i++) {
		r->responses[i] = req_new_msg(q, Hd__AddErasureCodingPolicyResponseProto,
					      hd__add_erasure_coding_policy_response_proto__init);
		r->n_responses++;
		rc = add_policy(q, m->ecpolicies[i], r->responses[i]);
	}
	return rc;
}

/* ---- do the nodes suffice? ---- */

struct demand {
	uint32_t nodes, racks;
	const char *names;
};

static void demand_add(struct req *q, struct demand *d, const struct ec_policy *p)
{
	const uint32_t nodes = p->k + p->m, racks = (nodes + p->m - 1u) / p->m;

	d->nodes = nodes > d->nodes ? nodes : d->nodes;
	d->racks = racks > d->racks ? racks : d->racks;
	d->names = arena_printf(&q->mem, "%s%s%s", d->names, *d->names ? ", " : "", p->name);
}

/* The sentences of a stock NameNode, which `hdfs ec` prints. */
static const char *judge(struct req *q, const struct demand *d, bool *ret)
{
	const uint32_t nodes = datanodes_live(&q->nn->dns), racks = datanodes_racks(&q->nn->dns);

	*ret = true;
	if (!d->nodes)
		return arena_strdup(&q->mem, "No erasure coding policy is given.");
	*ret = nodes >= d->nodes && racks >= d->racks;
	if (nodes < d->nodes)
		return arena_printf(&q->mem,
				    "%u DataNodes are required for the erasure coding policies: "
				    "%s. The number of DataNodes is only %u.",
				    d->nodes, d->names, nodes);
	if (racks < d->racks)
		return arena_printf(&q->mem,
				    "%u racks are required for the erasure coding policies: %s. "
				    "The number of racks is only %u.",
				    d->racks, d->names, racks);
	return arena_printf(&q->mem, "The cluster setup can support EC policies: %s", d->names);
}

static int racks(struct req *q, const void *in)
{
	const Hd__GetECTopologyResultForPoliciesRequestProto *m = in;
	Hd__GetECTopologyResultForPoliciesResponseProto *r =
		req_reply(q, Hd__GetECTopologyResultForPoliciesResponseProto,
			  hd__get_ectopology_result_for_policies_response_proto__init);
	struct demand d = {.names = ""};
	struct ecpol all[ECPOL_MAX];
	bool good;
	size_t n;
	int rc = ecpol_list(q->ns.t, &q->nn->set.ec, all, &n);

	for (size_t i = 0; i < n && !rc && !m->n_policies; i++)
		if (all[i].state == ECPOL_ENABLED)
			demand_add(q, &d, &all[i].p);
	for (size_t i = 0; i < m->n_policies && !rc; i++) {
		rc = ecpol_find(q->ns.t, &q->nn->set.ec, m->policies[i], &all[0]);
		if (rc == -ENOENT)
			return exception_throw(&q->exception, EXC_ILLEGAL_ARGUMENT,
					       "The given erasure coding policy %s does not exist.",
					       m->policies[i]);
		if (!rc)
			demand_add(q, &d, &all[0].p);
	}
	if (rc < 0)
		return ns_io(&q->ns, rc);
	r->response = req_new_msg(q, Hd__ECTopologyVerifierResultProto,
				  hd__ectopology_verifier_result_proto__init);
	r->response->resultmessage = (char *)judge(q, &d, &good);
	r->response->issupported = good;
	return 0;
}

#define READ(name, msg, flags, fn) METHOD(name, hd, msg, REQ_READ, flags, fn)
#define CHANGE(name, msg, flags, fn) METHOD(name, hd, msg, REQ_CHANGE, flags, fn)
static const struct method table[] = {
	READ(getErasureCodingPolicies, get_erasure_coding_policies, 0, get_policies),
	READ(getErasureCodingCodecs, get_erasure_coding_codecs, 0, get_codecs),
	READ(getErasureCodingPolicy, get_erasure_coding_policy, 0, get_policy),
	CHANGE(setErasureCodingPolicy, set_erasure_coding_policy, REQ_ONCE, set_policy),
	CHANGE(unsetErasureCodingPolicy, unset_erasure_coding_policy, REQ_ONCE, unset_policy),
	CHANGE(enableErasureCodingPolicy, enable_erasure_coding_policy, REQ_ONCE | REQ_SUPER,
	       enable_policy),
	CHANGE(disableErasureCodingPolicy, disable_erasure_coding_policy, REQ_ONCE | REQ_SUPER,
	       disable_policy),
	CHANGE(removeErasureCodingPolicy, remove_erasure_coding_policy, REQ_ONCE | REQ_SUPER,
	       remove_policy),
	CHANGE(addErasureCodingPolicies, add_erasure_coding_policies, REQ_ONCE | REQ_SUPER,
	       add_policies),
	READ(getECTopologyResultForPolicies, get_ectopology_result_for_policies, REQ_SUPER, racks),
};
const struct method_table client_ec_methods = METHOD_TABLE(table);
