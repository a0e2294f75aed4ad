/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * datanode_commands - what the answer to a heartbeat tells a data node to do
 *
 * Idea: orders wait in lists of the node (datanodes.h: what to delete, copy, rebuild, recover) and
 * are turned into DatanodeProtocol's commands when it calls. What is handed out leaves its list: an
 * order that is lost with its answer is given again by whoever made it, after a time.
 * Ownership: messages live in the request's arena. Threading: the writer thread, with mem_lock held
 * for writing.
 * Source: hdfs-wire 3.7; the order of commands is HDFS's.
 */
#include "DatanodeProtocol.pb-c.h"
#include "namenode-shim/req.h"

struct dn;

#define DN_COMMANDS_MAX 7 /* in one answer */

/** Append what waits for @dn to @r, whose cmds have room for DN_COMMANDS_MAX. Nothing but the
 *  balancer's bandwidth in safe mode; a block recovery goes alone. */
void dn_commands_add(struct req *q, struct dn *dn, Hdd__HeartbeatResponseProto *r);
/** A command of @type; its body is the caller's. */
Hdd__DatanodeCommandProto *dn_command(struct req *q, Hdd__DatanodeCommandProto__Type type);
/** "Register again": for a node that is not known. */
Hdd__DatanodeCommandProto *dn_command_register(struct req *q);
