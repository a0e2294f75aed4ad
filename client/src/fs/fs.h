/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * fs - one connected file system: what all files of a handle share
 *
 * Idea: a `struct dfs` holds the parsed settings, the RPC client of the NameNode, caches (idle data
 * connections, packet memory, suspect nodes, RDMA fallbacks) and the housekeeper.
 * Ownership: made by dfs_connect(), which owns everything in it; files borrow it.
 * Threading: `set`, `user`, `uri`, `defaults` never change after dfs_connect(). Everything else has
 * its own lock, named beside it. Lock order: reader.seq_lock, then reader.lock or
 * idle_streams.lock, or keeper.lock; keeper.lock, then idle_streams.lock and reader.seq_lock or
 * writer.lock, which the housekeeper only tries; the locks of the caches are leaves.
 * See docs/design/003-client.md.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/include/dfsclient_ext.h"
#include "client/src/fs/datanode_id.h"
#include "client/src/fs/housekeeper.h"
#include "client/src/fs/settings.h"
#include "client/src/read/idle_streams.h"
#include "client/src/stream/local_replicas.h"
#include "client/src/stream/sock.h"
#include "client/src/write/deferred_sync.h"
#include "client/src/write/early_close.h"
#include "client/src/write/packet.h"
#include "common/base/clock.h"
#include "common/base/conf.h"
#include "common/base/err.h"
#include "common/rpc/client.h"
#include "common/rpc/queue.h"

struct counters {                                 /* relaxed: nobody orders anything by them */
	atomic_uint_fast64_t written[2], read[4]; /* tcp, rdma; local, onesided */
	atomic_uint_fast64_t pipeline_recoveries, read_failovers, checksum_errors, rdma_fallbacks,
		read_rdma_copied, write_rdma_copied, read_decoded, read_hedges, short_groups,
		local_fallbacks;
	/* of the last one */
	atomic_uint_fast64_t short_group_units, short_group_nodes, short_group_data;
};

struct dfs {
	struct conf *conf; /* owned */
	struct settings set;
	struct dfs_defaults defaults;
	char *user;    /* owned */
	char uri[320]; /* hdfs://host:port, or hdfs://NAME of a name service */
	/* MkdirsRequest.exclusive: 1, -1 it does not, 0 not asked yet */
	atomic_int knows_exclusive;
	atomic_int is_router;  /* 1, -1 it is none, 0 not asked yet */
	atomic_uint mkdirs;    /* by the way of another name, so far */
	bool has_others;       /* NameNodes that stand for each other */
	char client_name[80];  /* holder of our leases */
	struct rpc_client *nn; /* owned; thread-safe */
	struct sock_cache socks;
	struct packet_pool packets;
	struct node_table suspects;  /* data nodes that failed a reader lately */
	struct node_table fallbacks; /* data nodes on TCP although RDMA was wanted, and why */
	struct local_cache local;    /* open files of replicas on this machine */
	struct housekeeper keeper;
	struct idle_streams idle_streams;
	struct early_close closed;
	struct deferred_sync late;
	pthread_mutex_t rdma_lock;
	atomic_uint memories; /* registered by callers */
	struct rdma *rdma; /* owned; NULL until a node is reached by RDMA, or memory registered */
	struct counters count;
};

/** One call to the NameNode, retried and failed over by the RPC client; the reply message (free
 *  with pb_free()) into *@ret, which may be NULL. */
int nn_call(struct dfs *fs, const char *method, const ProtobufCMessage *req,
	    const ProtobufCMessageDescriptor *reply, void *ret, struct err *err);

/** The same for early_close.h, which nn_call() looks after. */
int nn_call_once(struct dfs *fs, const char *method, const ProtobufCMessage *req,
		 const ProtobufCMessageDescriptor *reply, void *ret, struct err *err);

/** Is the server a router of a federation (Router-based federation)? 1, 0, or -errno: it is not
 *  known. Asked once, by a connection of its own. */
int nn_is_router(struct dfs *fs, struct err *err);

/** For those who do not wait: calls with a connection of their own, to the NameNode of @fs. */
int nn_queue_new(struct dfs *fs, struct rpc_queue **ret, struct err *err);
/** Exceptions whose sentence says what is wrong and not what to do. */
void nn_add_cure(const struct dfs *fs, struct err *err);
/** A NameNode in safe mode is waited for when that is asked for (dfs.client.retry.policy.enabled):
 *  so often, so long each time, as dfs.client.retry.policy.spec says; else
 *  dfs.client.retry.startup.safe-mode.millis long for one that has just started. The milliseconds
 *  before the next attempt; 0: no more. */
uint32_t nn_safe_mode_pause(const struct dfs *fs, const struct err *err, uint32_t *round);

/** Fill the caller's struct dfs_err; returns @rc. The one way from inside to the API. */
int api_err(struct dfs_err *out, const struct err *in, int rc);

/** An empty struct err without clearing its text. */
static inline void err_reset(struct err *e)
{
	e->rc = 0;
	e->text[0] = e->remote[0] = '\0';
}

/** A signal may end it early: callers look again. */
static inline void sleep_ns(uint64_t ns)
{
	const struct timespec ts = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};

	(void)nanosleep(&ts, NULL);
}

static inline void count_add(atomic_uint_fast64_t *c, uint64_t n)
{
	atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}
