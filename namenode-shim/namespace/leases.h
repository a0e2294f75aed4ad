/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * leases - which client has which files open, and when it was last heard
 *
 * Idea: the inode on disk names the client that has a file open. When that client was heard last is
 * known in memory only. After the soft limit another client may take the file over; after the hard
 * limit the NameNode closes it.
 * Ownership: the table owns holders. Threading: the writer changes it with mem_lock held for
 * writing; others read with it held for reading.
 * Source: hdfs-wire 3.6 (6).
 */
#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#define LEASE_SOFT_MS 60000   /* as HDFS */
#define LEASE_HARD_MS 1200000 /* dfs.namenode.lease-hard-limit-sec */
#define LEASE_NAME_MAX 1024   /* bytes of a client name; longer ones are refused */
/* Holder of a file the NameNode itself recovers. */
#define LEASE_NAMENODE "HDFS_NameNode"

struct lease {
	char *holder; /* owned, key */
	uint64_t renewed_ns;
	uint64_t *inode; /* owned array */
	uint32_t ninodes, size;
	uint32_t left; /* of one that has expired: so many, the first, are to be recovered still */
	UT_hash_handle hh;
};

struct leases {
	struct lease *table;
	struct lease *turn; /* is looked at next, if it has expired; NULL: the first one */
	uint64_t files;
};

void leases_fini(struct leases *l);
struct lease *leases_find(const struct leases *l, const char *holder);
/** Also renews. */
void leases_add(struct leases *l, const char *holder, uint64_t inode);
void leases_del(struct leases *l, const char *holder, uint64_t inode);
void leases_renew(struct leases *l, const char *holder);
/** Not renewed for @ms; true for an unknown holder. */
bool leases_expired(const struct leases *l, const char *holder, uint64_t ms);
