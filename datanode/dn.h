/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * dn - what the parts of the data node know of each other
 *
 * Idea: store keeps replicas, the data port moves their bytes, bp talks to NameNodes. They meet in
 * this one struct, which node.c fills and passes down; no part reaches into another one.
 * Ownership: struct node owns everything here and outlives the parts.
 * Threading: constant after start-up, except for the fields that say otherwise.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/conf.h"
#include "common/base/net.h"
#include "common/reactor/reactor.h"
#include "datanode/store/store.h"

struct bp_set;     /* datanode/bp/bp.h */
struct data_port;  /* datanode/data_port/data_port.h */
struct outliers;   /* datanode/admin/outliers.h */
struct hot_copies; /* datanode/block/hot_copies.h */

#define DN_REACTORS_MAX 64

/* Queues of a reactor's helper threads (reactor_offload_to()). Calls that wait for this volume
 * alone; of STORE_VOLUME_ANY (no volume, or one out of service) 0: the queue for all else. Those
 * between are of xfer/engine.h. */
#define DN_VOLUME_QUEUE(volume) ((volume) + 1)
#define DN_IPC_QUEUE (REACTOR_QUEUES - 1) /* of RPC calls as far as they ask no disk */

/* a data node and where on it, as DatanodeInfoProto and the lists beside it say */
struct dn_target {
	char ip[64], host[256], uuid[BLOCK_UUID_MAX];
	uint16_t xfer_port, info_port, ipc_port;
	enum storage_type storage_type;
	bool pin; /* favoured by the client */
	char storage_uuid[BLOCK_UUID_MAX];
};
#define DN_TARGETS_MAX 64 /* nodes of a pipeline */

/** Settings that may change while the node runs (datanode/live_settings.h); any thread reads them.
 */
struct live_settings {
#define LIVE(id, key, type, dflt, min, max) atomic_uint_fast64_t id;
#include "datanode/live_settings.def"
#undef LIVE
};

struct dn {
	const struct conf *conf;
	struct live_settings live;
	struct outliers *outliers; /* latencies of peers and disks; NULL: nobody counts */
	struct store *store;
	struct data_port *xfer;
	struct bp_set *nns;
	struct hot_copies *hot; /* of the data port, until data_port_free(); NULL: there are none */
	struct reactor *reactors[DN_REACTORS_MAX];
	uint32_t reactor_count;
	struct net_addr data_addr, ipc_addr, http_addr; /* as bound */
	char host_name[256];
	bool sync_on_close;
	uint32_t disks_min; /* data directories that must work, else the node ends */
	/* data transfers in progress, for heartbeats: 0 at rest, as of a Java node of 3.4 */
	atomic_uint xceivers;
	atomic_uint transfers; /* copies ordered by a NameNode in progress */
	atomic_uint ec_xmits;  /* what reconstructions ordered by a NameNode count beside them */
	/* of its connections: dfs.datanode.ec.reconstruction.xmits.weight, in percent */
	uint32_t ec_xmits_pct;
	/* the node ends to be started again (shutdownDatanode upgrade): writers are to be told to
	 * wait for it */
	atomic_bool restarting;
};

/** Enough data directories work; @ret_failed (or NULL): how many do not. */
bool dn_has_disks(const struct dn *dn, uint32_t *ret_failed);
/** The pool with that id, or NULL (nn registers pools as NameNodes answer; any thread). */
struct block_pool *dn_pool(struct dn *dn, const char *pool_id);
