/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * nameservice - which NameNodes an hdfs:// address means
 *
 * Idea: "hdfs://host:port" is one NameNode; "hdfs://NAME", with NAME in dfs.nameservices, is all
 * that dfs.ha.namenodes.NAME lists, each at dfs.namenode.rpc-address.NAME.ID; of these one is
 * active, and the RPC client finds it. NAME without such a list is one NameNode, at
 * dfs.namenode.rpc-address.NAME.
 * Which of several is asked first is left to chance, so that not all clients call at the standby
 * (dfs.client.failover.random.order=false: the first).
 * Ownership: a value. Threading: pure, but names are looked up.
 * Source: hdfs-default.xml.
 */
#include "common/base/conf.h"
#include "common/base/net.h"
#include "common/rpc/client.h"

#define NAMENODE_TEXT_MAX 272 /* "host:port" */

struct nameservice {
	char uri[320];  /* hdfs://host:port or hdfs://NAME */
	bool logical;   /* the latter */
	uint32_t count; /* of NameNodes whose names could be looked up; > 0 */
	struct rpc_server node[RPC_SERVERS_MAX]; /* texts are those below */
	char text[RPC_SERVERS_MAX][NAMENODE_TEXT_MAX];
};

/** @uri NULL: fs.defaultFS. -EINVAL no hdfs:// address, or the configuration does not say where a
 *  NameNode is (with the key); -ENOENT unknown host. */
int nameservice_find(const struct conf *c, const char *uri, struct nameservice *ret,
		     struct err *err);
