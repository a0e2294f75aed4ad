/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * local_replicas - open files of replicas on this machine, given to us by their data node
 *
 * Idea: with dfs.client.read.shortcircuit a replica whose node is on this machine is read without
 * the node: it passes the open block and meta file over its UNIX domain socket
 * (dfs.domain.socket.path). They are kept for the next reader, the least recently used go first.
 * Nothing here is a failure: without files a block is read as any other, and why is remembered for
 * a while, so that a node is not asked in vain at every read.
 * Kept files are right: the bytes of a finished replica of one stamp do not change. An append or a
 * recovery gives the replica a new stamp. A cut makes a new meta file, so bytes that are written
 * after the cut do not fit the CRCs of the old one.
 * A reader that asks by an older stamp may meet newer CRCs. Then, and whenever something does not
 * fit, local_give_up() has the block read by the network, which also judges whether the replica is
 * damaged.
 * Ownership: a cache of struct dfs; replicas are counted, local_get() gives a reference.
 * Threading: any thread; the lock is a leaf, and held over no system call but close(2).
 * Source: hdfs-wire 5.7.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/src/fs/datanode_id.h"
#include "common/base/crc.h"
#include "common/base/list.h"

struct dfs;
struct read_setup;

#define LOCAL_BUCKETS 256
#define LOCAL_ADDRS_MAX 64 /* of this machine */
#define LOCAL_POOL_MAX 128

struct local_replica { /* constant but for what is private */
	int fd, fd_meta;
	uint64_t length;
	enum crc_type crc_type;
	uint32_t bpc;
	struct {
		int64_t id;
		uint64_t gs;
		char node[NET_TEXT_MAX];
		char pool[LOCAL_POOL_MAX];
	} key;
	uint32_t refs; /* private, as all that follows: of readers, and one of the cache */
	bool cached;
	uint64_t used_ns; /* since when nobody reads it */
	struct list link, chain;
};

struct local_cache {
	pthread_mutex_t lock;
	struct list used; /* the most recently used are last */
	struct list bucket[LOCAL_BUCKETS];
	uint32_t count;
	/* nodes, and blocks of nodes, that are not asked for now, and why */
	struct node_table closed;
	char addr[LOCAL_ADDRS_MAX][NET_TEXT_MAX]; /* of this machine; */
	uint32_t addr_count;
	uint64_t addr_ns; /* as of then; 0: never */
};

void local_init(struct local_cache *c);
void local_fini(struct local_cache *c);
/** The files of that replica, when it is on this machine and all of r->offset, r->len is in them.
 *  NULL: read it otherwise. Waits for the node, if it must, for 10 s at most. */
struct local_replica *local_get(struct dfs *fs, const struct read_setup *r);
void local_put(struct dfs *fs, struct local_replica *rep);
/** Something does not fit: nobody gets these files any more, nor others of this block for a while.
 */
void local_give_up(struct dfs *fs, const struct local_replica *rep, const char *why);
/** Close what nobody has used for dfs.client.read.shortcircuit.streams.cache.expiry.ms. False:
 * nothing is kept. */
bool local_reap(struct dfs *fs);
