/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * located_block - nodes, blocks and files as the messages clients get
 *
 * Idea: one place builds DatanodeInfo, LocatedBlock(s) and file status from inode, block map and
 * node table. Every required field is set, also the empty ones.
 * Ownership: everything lives in the arena of the call.
 * Threading: mem_lock held for reading, or the writer thread.
 * Source: hdfs-wire 3.1, 3.5, 12 (8, 13, 17).
 */
#include <stdbool.h>
#include <stdint.h>

#include "DatanodeProtocol.pb-c.h"
#include "hdfs.pb-c.h"

struct arena;
struct blk;
struct block;
struct dn;
struct ec_policy;
struct inode;
struct nn;
struct req;
struct storage;

/** Set an optional scalar. */
#define PB_SET(m, field, value) ((m)->has_##field = 1, (m)->field = (value))

/** An erasure-coding policy; NULL for NULL. */
Hd__ErasureCodingPolicyProto *locate_policy(struct arena *a, const struct ec_policy *p);
Hd__DatanodeIDProto *locate_dn_id(struct arena *a, const struct dn *dn);
Hd__DatanodeInfoProto *locate_dn(struct arena *a, const struct dn *dn);
Hd__ExtendedBlockProto *locate_ext_block(const struct req *q, struct arena *a,
					 const struct block *b);
/** A block without locations. */
Hd__LocatedBlockProto *locate_bare(struct req *q, const struct block *b, uint64_t offset);
/** A block on the given storages, in this order (for writers). */
Hd__LocatedBlockProto *locate_on(struct req *q, const struct block *b, uint64_t offset,
				 struct storage *const *st, uint32_t n);
/** @l, made by locate_on() or locate_bare(), is of a group: its i-th place is of unit units[i], or
 *  of unit i when @units is NULL; each of @n has its token. */
void locate_units(struct req *q, Hd__LocatedBlockProto *l, const uint8_t *units, uint32_t n);
/** Blocks of @file that overlap [offset, offset + len), readable replicas first near, then far. */
Hd__LocatedBlocksProto *locate_file(struct req *q, const struct inode *file, uint64_t offset,
				    uint64_t len);
/** @name: local name in listings, "" otherwise. */
Hd__HdfsFileStatusProto *locate_status(struct req *q, const struct inode *n, const char *name,
				       bool with_blocks);
/** Replicas someone found corrupt. mem_lock held for writing. REQ_PARK: there are more. */
int locate_report_bad(struct req *q, Hd__LocatedBlockProto *const *blocks, size_t n);
