/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** client_protocol_write_internal - what client_protocol_write.c has that
 * client_protocol_pipeline.c needs, too. */
#include <stddef.h>
#include <stdint.h>

#include "common/base/block.h"
#include "hdfs.pb-c.h"

struct dn;
struct inode;
struct req;

struct block client_block(const Hd__ExtendedBlockProto *p);
int client_check_pool(struct req *q, const Hd__ExtendedBlockProto *p);
/** As Java prints a block of a pool. */
const char *client_block_text(struct req *q, const Hd__ExtendedBlockProto *p);
/** Nodes that a block of @n is to be on. */
uint32_t client_units_of(const struct inode *n);
/** Placement compares each node with all that a client names: no more of them than there may be
 * nodes. */
int client_check_named(struct req *q, size_t n, size_t most);
/** Adds to *count nodes in @to those that are not in it. */
const struct dn **client_exclude_list(struct req *q, Hd__DatanodeInfoProto *const *nodes, size_t n,
				      const struct dn **to, uint32_t *count);
