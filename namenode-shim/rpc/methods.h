/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * methods - the tables of what this NameNode answers
 *
 * Idea: a protocol is its Java name and tables of methods; each table stands at the end of the file
 * with its functions. A method that is in no table is RpcNoSuchMethodException.
 */
#include "namenode-shim/req.h"

struct method_table {
	const struct method *methods;
	size_t count;
};

/* client_protocol_read.c: files and listings */
extern const struct method_table client_read_methods;
/* client_protocol_server.c: defaults, policies, counts, nodes */
extern const struct method_table client_admin_methods;
/* client_protocol_admin.c: an administrator's calls */
extern const struct method_table client_ops_methods;
/* client_protocol_change.c: names and attributes */
extern const struct method_table client_change_methods;
/* client_protocol_attr.c: extended attributes, access control lists */
extern const struct method_table client_attr_methods;
/* client_protocol_policy.c: storage policies, quotas */
extern const struct method_table client_policy_methods;
/* client_protocol_ec.c: erasure-coding policies */
extern const struct method_table client_ec_methods;
/* client_protocol_cache.c: pools and directives of centralised caching */
extern const struct method_table client_cache_methods;
/* client_protocol_refused.c: what is not there, and says so */
extern const struct method_table client_refuse_methods;
/* client_protocol_append.c: files that exist written on, cut, joined, changed within */
extern const struct method_table client_append_methods;
/* client_protocol_write.c: blocks of open files */
extern const struct method_table client_write_methods;
/* client_protocol_pipeline.c: other nodes for a block that is written */
extern const struct method_table client_pipeline_methods;
extern const struct method_table datanode_methods; /* datanode_protocol.c */
extern const struct method_table lifeline_methods; /* datanode_protocol.c */
/* admin_protocols.c: the small protocols beside ClientProtocol. */
extern const struct method_table ha_methods, namenode_methods, refresh_acl_methods,
	refresh_user_methods, refresh_queue_methods, generic_refresh_methods, user_mapping_methods,
	reconfiguration_methods;

/** Answers who this NameNode is, to data nodes and to the balancer. */
int version_request(struct req *q, const void *in);

/** A row: METHOD(getFileInfo, get_file_info, REQ_READ, 0, fn) for
 * hd__get_file_info_{request,response}_proto. */
#define METHOD(rpc_name, ns_, msg, kind_, flags_, fn)                                              \
	{                                                                                          \
		.name = #rpc_name, .in = &ns_##__##msg##_request_proto__descriptor,                \
		.out = &ns_##__##msg##_response_proto__descriptor, .kind = (kind_),                \
		.flags = (flags_), .run = (fn)                                                     \
	}
/** With what may take long done before its turn. */
#define METHOD_PREPARED(rpc_name, ns_, msg, kind_, flags_, fn, prepare_)                           \
	{                                                                                          \
		.name = #rpc_name, .in = &ns_##__##msg##_request_proto__descriptor,                \
		.out = &ns_##__##msg##_response_proto__descriptor, .kind = (kind_),                \
		.flags = (flags_), .run = (fn), .prepare = (prepare_)                              \
	}
/* clang-format off */
#define METHOD_TABLE(array) {(array), sizeof(array) / sizeof((array)[0])}
/* clang-format on */
