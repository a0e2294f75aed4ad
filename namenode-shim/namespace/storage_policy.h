/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * storage_policy - storage policies: which kinds of media the blocks of a file should be on
 *
 * Idea: the table of HDFS's built-in policies, and a record for each inode that has one of its own;
 * others have that of the nearest directory above. Kept, inherited and shown as HDFS does; without
 * any record (the ordinary case) nothing is looked up.
 * Threading: that of the transaction.
 * Source: HDFS Archival Storage guide; hdfs.proto BlockStoragePolicyProto.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/block.h"
#include "namenode-shim/namespace/inode.h"

struct ns;
struct txn;

#define POLICY_NONE 0 /* on the wire: nothing said here nor above */
#define POLICY_HOT 7  /* what counts then */
#define POLICY_COLD 2
#define POLICY_ALL_SSD 12
#define POLICY_LAZY_PERSIST 15
#define POLICY_TYPES_MAX 2
#define STORAGE_TYPES 8 /* more than there are */

/* Storage types, ended by 0. */
struct storage_policy_types {
	uint8_t type[POLICY_TYPES_MAX + 1]; /* enum storage_type */
};

struct storage_policy {
	uint8_t id;
	const char *name;
	struct storage_policy_types create, create_fallback, copy_fallback;
};

extern const struct storage_policy policies[];
extern const size_t policy_count;

/** NULL: there is none. */
const struct storage_policy *storage_policy_find(const char *name);
const struct storage_policy *storage_policy_by_id(unsigned int id);
/** Does any inode have one of its own? */
bool storage_policy_any(struct txn *t);
/** Its own or the inherited one, POLICY_NONE. */
unsigned int storage_policy_of(struct txn *t, const struct inode *n, struct arena *a);
/** What placement obeys: HOT for POLICY_NONE; @striped: HOT also for what does not go with units,
 * as in HDFS. */
const struct storage_policy *storage_policy_in_force(unsigned int id, bool striped);
/** That of a file, in a transaction. */
const struct storage_policy *storage_policy_of_file(struct txn *t, const struct inode *n,
						    struct arena *a);
/** Of @total replicas so many are to be on each storage type; none on RAM_DISK. */
void storage_policy_types_wanted(const struct storage_policy *p, uint32_t total,
				 uint16_t ret[STORAGE_TYPES]);
/** "DISK", "SSD", ... */
const char *storage_type_name(unsigned int type);
/** POLICY_NONE takes it away. */
int storage_policy_put(struct txn *t, uint64_t inode, unsigned int id);
/** For an inode that is going. */
int storage_policy_del(struct txn *t, uint64_t inode);
/** @name NULL: unset. */
int storage_policy_set(struct ns *n, const char *path, const char *name);
/** HadoopIllegalArgumentException when there is no policy @name. */
int storage_policy_check_name(struct ns *n, const char *name, const struct storage_policy **ret);
