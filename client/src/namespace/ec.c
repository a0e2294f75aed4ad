/* SPDX-License-Identifier: Apache-2.0 */
/* ec - the calls of dfsclient.h about erasure-coding policies */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/src/fs/path_call.h"
#include "common/wire/ec_msg.h"
#include "common/wire/pb.h"
#include "erasurecoding.pb-c.h"

/* What the NameNode says of a policy, also of one that this library would not make. */
static void fill_policy(const Hd__ErasureCodingPolicyProto *m, struct dfs_ec_policy *ret)
{
	struct ec_policy known;

	*ret = (struct dfs_ec_policy){
		.id = m->id & 0xff, /* a Java byte */
		.state = m->has_state ? (enum dfs_ec_state)m->state : DFS_EC_ENABLED,
		.cell_size = m->cellsize,
	};
	if (m->name)
		snprintf(ret->name, sizeof(ret->name), "%s", m->name);
	if (m->schema) {
		snprintf(ret->codec, sizeof(ret->codec), "%s", m->schema->codecname);
		ret->data_units = m->schema->dataunits;
		ret->parity_units = m->schema->parityunits;
	}
	if (ec_policy_from_msg(m, &known) < 0)
		return;
	snprintf(ret->name, sizeof(ret->name), "%s", known.name);
	snprintf(ret->codec, sizeof(ret->codec), "%s", ec_codec_name(known.codec));
	ret->data_units = known.k;
	ret->parity_units = known.m;
	ret->cell_size = known.cell;
}

struct policies {
	struct dfs_ec_policies pub; /* first: what the caller sees */
	struct dfs_ec_policy policy[];
};

DFS_API int dfs_ec_policies(struct dfs *fs, struct dfs_ec_policies **ret, struct dfs_err *out)
{
	Hd__GetErasureCodingPoliciesRequestProto req =
		HD__GET_ERASURE_CODING_POLICIES_REQUEST_PROTO__INIT;
	Hd__GetErasureCodingPoliciesResponseProto *m;
	struct policies *p;
	struct err err;
	int rc;

	err_reset(&err);
	rc = nn_call(fs, "getErasureCodingPolicies", &req.base,
		     &hd__get_erasure_coding_policies_response_proto__descriptor, &m, &err);
	if (rc < 0)
		return api_err(out, &err, rc);
	p = calloc(1, sizeof(*p) + m->n_ecpolicies * sizeof(p->policy[0]));
	if (!p) {
		pb_free(m);
		return api_err(out, &err, -ENOMEM);
	}
	p->pub = (struct dfs_ec_policies){m->n_ecpolicies, p->policy};
	for (size_t i = 0; i < m->n_ecpolicies; i++)
		fill_policy(m->ecpolicies[i], &p->policy[i]);
	pb_free(m);
	*ret = &p->pub;
	return 0;
}

DFS_API void dfs_ec_policies_free(struct dfs_ec_policies *pub)
{
	free(pub); /* the first member of what was allocated */
}

DFS_API int dfs_get_ec_policy(struct dfs *fs, const char *path, struct dfs_ec_policy *ret,
			      struct dfs_err *out)
{
	Hd__GetErasureCodingPolicyRequestProto req =
		HD__GET_ERASURE_CODING_POLICY_REQUEST_PROTO__INIT;
	Hd__GetErasureCodingPolicyResponseProto *m;
	struct path_call a;
	int has;

	path_call_begin(&a, fs, path);
	req.src = a.path;
	if (path_call_send(&a, "getErasureCodingPolicy", &req.base,
			   &hd__get_erasure_coding_policy_response_proto__descriptor, &m) < 0)
		return path_call_end(&a, out);
	has = m->ecpolicy && (m->ecpolicy->id & 0xff) != EC_ID_REPLICATION;
	if (has)
		fill_policy(m->ecpolicy, ret);
	pb_free(m);
	(void)path_call_end(&a, out);
	return has;
}

DFS_API int dfs_set_ec_policy(struct dfs *fs, const char *path, const char *policy,
			      struct dfs_err *out)
{
	Hd__SetErasureCodingPolicyRequestProto req =
		HD__SET_ERASURE_CODING_POLICY_REQUEST_PROTO__INIT;
	struct path_call a;

	path_call_begin(&a, fs, path);
	req.src = a.path;
	req.ecpolicyname = (char *)policy;
	(void)path_call_send(&a, "setErasureCodingPolicy", &req.base,
			     &hd__set_erasure_coding_policy_response_proto__descriptor, NULL);
	return path_call_end(&a, out);
}

DFS_API int dfs_unset_ec_policy(struct dfs *fs, const char *path, struct dfs_err *out)
{
	Hd__UnsetErasureCodingPolicyRequestProto req =
		HD__UNSET_ERASURE_CODING_POLICY_REQUEST_PROTO__INIT;
	struct path_call a;

	path_call_begin(&a, fs, path);
	req.src = a.path;
	(void)path_call_send(&a, "unsetErasureCodingPolicy", &req.base,
			     &hd__unset_erasure_coding_policy_response_proto__descriptor, NULL);
	return path_call_end(&a, out);
}

static int policy_call(struct dfs *fs, const char *method, const ProtobufCMessage *req,
		       const ProtobufCMessageDescriptor *reply, void *ret, struct dfs_err *out)
{
	struct err err;

	err_reset(&err);
	return api_err(out, &err, nn_call(fs, method, req, reply, ret, &err));
}

DFS_API int dfs_enable_ec_policy(struct dfs *fs, const char *policy, struct dfs_err *out)
{
	Hd__EnableErasureCodingPolicyRequestProto req =
		HD__ENABLE_ERASURE_CODING_POLICY_REQUEST_PROTO__INIT;

	req.ecpolicyname = (char *)policy;
	return policy_call(fs, "enableErasureCodingPolicy", &req.base,
			   &hd__enable_erasure_coding_policy_response_proto__descriptor, NULL, out);
}

DFS_API int dfs_disable_ec_policy(struct dfs *fs, const char *policy, struct dfs_err *out)
{
	Hd__DisableErasureCodingPolicyRequestProto req =
		HD__DISABLE_ERASURE_CODING_POLICY_REQUEST_PROTO__INIT;

	req.ecpolicyname = (char *)policy;
	return policy_call(fs, "disableErasureCodingPolicy", &req.base,
			   &hd__disable_erasure_coding_policy_response_proto__descriptor, NULL,
			   out);
}

DFS_API int dfs_remove_ec_policy(struct dfs *fs, const char *policy, struct dfs_err *out)
{
	Hd__RemoveErasureCodingPolicyRequestProto req =
		HD__REMOVE_ERASURE_CODING_POLICY_REQUEST_PROTO__INIT;

	req.ecpolicyname = (char *)policy;
	return policy_call(fs, "removeErasureCodingPolicy", &req.base,
			   &hd__remove_erasure_coding_policy_response_proto__descriptor, NULL, out);
}

/* The answer to the one policy that was asked for. */
static int take_added(const Hd__AddErasureCodingPoliciesResponseProto *m, struct dfs_ec_policy *ret,
		      struct err *err)
{
	const Hd__AddErasureCodingPolicyResponseProto *r = m->n_responses ? m->responses[0] : NULL;

	if (!r)
		return err_set(err, -EPROTO, "the NameNode does not say what became of the policy");
	if (!r->succeed)
		return err_set(err, -EINVAL, "%.400s",
			       r->errormsg ? r->errormsg : "the NameNode refuses the policy");
	fill_policy(r->policy, ret);
	return 0;
}

DFS_API int dfs_add_ec_policy(struct dfs *fs, const char *codec, uint32_t data_units,
			      uint32_t parity_units, uint32_t cell_size, struct dfs_ec_policy *ret,
			      struct dfs_err *out)
{
	Hd__AddErasureCodingPoliciesRequestProto req =
		HD__ADD_ERASURE_CODING_POLICIES_REQUEST_PROTO__INIT;
	Hd__ErasureCodingPolicyProto policy = HD__ERASURE_CODING_POLICY_PROTO__INIT,
				     *list = &policy;
	Hd__ECSchemaProto schema = HD__ECSCHEMA_PROTO__INIT;
	Hd__AddErasureCodingPoliciesResponseProto *m;
	char name[128];
	struct err err;
	int rc;

	err_reset(&err);
	snprintf(name, sizeof(name), "%.31s-%u-%u-%uk", codec, data_units, parity_units,
		 cell_size / 1024);
	for (char *c = name; *c; c++)
		*c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
	schema.codecname = (char *)codec;
	schema.dataunits = data_units;
	schema.parityunits = parity_units;
	policy.name = name;
	policy.schema = &schema;
	policy.has_cellsize = 1;
	policy.cellsize = cell_size;
	policy.id = UINT32_MAX; /* Java's -1: to be assigned */
	req.n_ecpolicies = 1;
	req.ecpolicies = &list;
	rc = nn_call(fs, "addErasureCodingPolicies", &req.base,
		     &hd__add_erasure_coding_policies_response_proto__descriptor, &m, &err);
	if (rc == 0) {
		rc = take_added(m, ret, &err);
		pb_free(m);
	}
	return api_err(out, &err, rc);
}
