/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** datanode_protocol_internal - what the files of DatanodeProtocol share: datanode_protocol.c has
 * its table, registration, heartbeats and the end of a block recovery; datanode_reports.c has block
 * reports. */
#include "DatanodeProtocol.pb-c.h"
#include "namenode-shim/req.h"

struct dn;

/** The registered, living node of a message; *ret NULL: it must register (again). */
int datanode_find(struct req *q, const Hdd__DatanodeRegistrationProto *reg, struct dn **ret);
/** Throws what a node is told that is not registered. */
int datanode_unregistered(struct req *q, const Hdd__DatanodeRegistrationProto *reg);
int datanode_check_pool(struct req *q, const char *pool);

/* Methods in datanode_reports.c. */
int datanode_block_report(struct req *q, const void *in);
int datanode_block_received_and_deleted(struct req *q, const void *in);
int datanode_cache_report(struct req *q, const void *in);
