/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * datanodes - the nodes that registered, their storages and the orders waiting for them
 *
 * Idea: a node is known by its uuid. It is alive while it was heard within
 * 2 x recheck + 10 x heartbeat, and stale when it is alive but was not heard for stale_after_ns: it
 * may be dead, so others are preferred to it. Orders queue here and leave with the next heartbeat
 * reply.
 * Ownership: the table owns nodes and storages; storages are freed with their node only, after the
 * block map has forgotten them (datanodes_free_gone()).
 * Threading: changed by the writer thread with nn->mem_lock held for writing; read by others with
 * it held for reading.
 * Units: bytes; monotonic nanoseconds; wall milliseconds.
 * Source: hdfs-wire 3.7.
 */
#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "common/base/block.h"
#include "common/base/err.h"
#include "common/base/list.h"
#include "common/erasure/policy.h"

/* nodes; of a full table one goes for a new one (datanodes_victim()) */
#define DN_MAX 4096
#define DN_STORAGES_MAX 64 /* storages of one node */
#define DN_HOST_MAX 256
#define DN_RACK_MAX 256
#define DN_DEFAULT_RACK "/default-rack"

struct dn;
struct req;

/* What administrators want of a node. */
enum dn_admin {
	DN_NORMAL,
	DN_DECOMMISSIONING, /* its replicas are being copied elsewhere */
	DN_DECOMMISSIONED,
	DN_ENTERING_MAINTENANCE,
	DN_IN_MAINTENANCE, /* it may go away for a while and nothing is copied */
};

/* What a walk over the map of blocks is to do with the replicas of a storage (blocks_sweep()). */
enum sweep {
	SWEEP_RECHECK = 1,    /* its blocks are checked: something has changed */
	SWEEP_UNREPORTED = 2, /* what its last full report did not list is forgotten */
	/* everything is forgotten: it failed, or its node is dead. It does not count any more */
	SWEEP_FORGET = 4,
	/* with SWEEP_UNREPORTED: of open blocks, too */
	SWEEP_OPEN = 8,
};

/* Names a storage to what outlives the lock: a node may be freed meanwhile, and its number is never
 * used again. */
struct storage_ref {
	uint64_t node; /* dn.number */
	uint32_t index;
};

struct storage {
	char id[BLOCK_UUID_MAX];
	uint32_t index; /* in dn->storage */
	struct dn *dn;  /* borrowed: its node */
	enum storage_type type;
	bool failed;
	uint64_t failed_ns; /* when it failed last */
	bool reported;      /* a full report has come since the node registered */
	uint64_t capacity, used, remaining, pool_used, non_dfs;
	/* bytes of new blocks placed here since told_ns and neither finished nor dropped */
	uint64_t promised;
	uint32_t promised_blocks;
	uint64_t told_ns; /* last heartbeat: from then on the node itself counts what it writes */
	uint64_t nblocks; /* replicas in the block map */
	uint64_t beat;    /* heartbeat that listed it last */
	uint8_t sweep;    /* enum sweep */
	uint8_t sweep_passes;    /* so many times over the map, and it is done */
	struct list swept;       /* in blocks.swept while there is something */
	uint64_t lost_ns;        /* when its replicas were lost last */
	uint64_t flaps_until_ns; /* they are lost again and again */
	bool unsteady;           /* a count for nodes that leave does not rely on its replicas */
	bool listing;            /* a full report is being gone through */
	uint32_t report_seq;     /* full reports in this process's life */
	uint64_t report_hits;    /* replicas of report_seq seen */
};

struct transfer {
	struct list link;
	struct block b;
	struct storage *target; /* borrowed */
};

struct recovery {
	struct list link;
	int64_t block_id; /* the rest is looked up when the order leaves */
};

/* Units of a group to be made again, by the node of the first target. */
struct rebuild {
	struct list link;
	struct block b;                  /* the group */
	struct dn *source[EC_UNITS_MAX]; /* borrowed */
	uint8_t source_unit[EC_UNITS_MAX];
	struct storage *target[EC_UNITS_MAX]; /* borrowed */
	uint32_t nsources, ntargets;
	uint32_t skip; /* set of units that are not there to be read, and not lost */
};

struct invalidate {
	int64_t id;
	uint64_t gs;
	bool no_ack; /* unknown block: no report wanted */
};

/* Blocks of a node that is leaving and must stay until they are copied. */
struct leaving_status {
	uint64_t low_redundancy; /* too few replicas elsewhere */
	uint64_t only_here;      /* of these: none elsewhere */
	uint64_t in_open_files;  /* of these: of files that are being written */
};

struct dn {
	char uuid[BLOCK_UUID_MAX];
	uint64_t number; /* no other node of this process's life has it */
	char ip[64], host[DN_HOST_MAX], version[64];
	char rack[DN_RACK_MAX], upgrade_domain[DN_RACK_MAX];
	uint32_t xfer_port, info_port, ipc_port, info_secure_port;
	struct storage *storage[DN_STORAGES_MAX]; /* owned */
	uint32_t nstorages;
	uint64_t registered_ns; /* last */
	bool alive;
	bool stale;      /* alive, and silent for stale_after_ns; the monitor finds that */
	bool disallowed; /* no longer in dfs.hosts */
	enum dn_admin admin;
	uint64_t maintenance_until_ms;
	struct leaving_status leaving;       /* as it was counted last */
	struct leaving_status leaving_count; /* while its blocks are counted */
	bool leaving_known; /* everything that it holds was known when the counting began */
	uint64_t heard_ns, heard_ms, report_ms, report_ns;
	uint64_t beats; /* heartbeats with storages */
	uint32_t xceivers, xmits, failed_volumes;
	uint64_t lease_id, lease_until_ns; /* full block report; 0 = none */
	/* borrowed, to be compared only: its report that is gone through */
	const struct req *reporting;
	struct list transfers, recoveries, rebuilds;
	struct invalidate *inval; /* owned */
	uint32_t ninval, inval_size;
	/* cached blocks (cache_monitor.h): of cache_place.in_node, by what is expected of them */
	struct list cache_orders, cache_held, cache_leaving, cache_shunned;
	uint64_t cache_capacity, cache_used; /* bytes, as of the last heartbeat */
	uint64_t cache_ordered;              /* bytes that it was told to cache besides */
	uint64_t cache_news_ns; /* when it last said that it did so; 0: not since it registered */
	/* bytes of the report that is taken; told of: it lists more than fits */
	uint64_t cache_listed;
	bool cache_lied;
	uint32_t cache_places, cache_report, cache_reported; /* last one begun; last one ended */
	uint64_t bandwidth; /* for balancing, to be told with the next heartbeat; 0: nothing */
	uint64_t list_seq;  /* the last list of nodes that named it (datanodes.list_seq) */
	UT_hash_handle hh, by_number;
	struct list gone; /* in datanodes.gone once it is removed */
};

/* What the racks allow to the units of a group, spread as evenly as the nodes that take replicas
 * allow. */
struct unit_racks {
	uint8_t racks; /* that such nodes stand in; no more than EC_UNITS_MAX */
	/* of so many units, in one rack; 0: there are fewer nodes */
	uint8_t most[EC_UNITS_MAX + 1];
};

/* The nodes once more, as placement wants them; made anew after datanodes_changed(). */
struct dn_index {
	bool good;
	struct dn **dn;    /* owned array, in the order of their racks */
	uint32_t *ip;      /* owned array: a hash of each one's address */
	uint32_t n, racks; /* racks: that living nodes stand in */
	uint32_t live, stale;
	struct unit_racks units;
};

struct datanodes {
	struct dn *table;   /* by uuid */
	struct dn *numbers; /* the same nodes, by number */
	struct list gone;   /* removed, and in the map of blocks still */
	struct dn_index index;
	uint64_t next_number;
	uint64_t dead_after_ns;
	uint64_t stale_after_ns;      /* 0: no node is ever stale */
	bool read_stale, write_stale; /* as if it were not */
	/* when more than this part of the nodes is stale, these are written to, too */
	double stale_ratio;
	uint64_t rng;
	uint64_t next_lease_id;
	uint64_t list_seq; /* of the list of nodes that is gone through: each counts once */
};

/** Its replicas can be used. */
static inline bool storage_is_there(const struct storage *st)
{
	return st->dn->alive && !(st->sweep & SWEEP_FORGET);
}

struct dn_ident {
	const char *uuid, *ip, *host, *version;
	uint32_t xfer_port, info_port, ipc_port, info_secure_port;
};

void datanodes_init(struct datanodes *d, uint64_t dead_after_ns);
void datanodes_fini(struct datanodes *d);
struct dn *datanodes_find(const struct datanodes *d, const char *uuid);
/** Another node at the same address and port: it has been replaced and must be removed. */
struct dn *datanodes_find_addr(const struct datanodes *d, const char *ip, uint32_t xfer_port,
			       const char *not_uuid);
/** No text of it is too long, and its uuid is not empty. */
bool dn_ident_is_good(const struct dn_ident *id);
/** Insert or update. -ENOSPC: DN_MAX; -EINVAL: dn_ident_is_good() says no. */
int datanodes_register(struct datanodes *d, const struct dn_ident *id, struct dn **ret);
/** Of a full table the node that goes for a new one at @ip. First those that are dead, the longest
 *  silent one; then those that have registered and reported nothing, then the others: of the
 *  address that has the most of them, so that nobody who fills the table keeps others out. Nodes in
 *  maintenance stay. NULL: none, that address has enough. */
struct dn *datanodes_victim(const struct datanodes *d, const char *ip);
/** It is known no more. The map of blocks was told to forget it. */
void datanodes_remove(struct datanodes *d, struct dn *dn);
/** Free those that were removed, and that the map of blocks has forgotten. */
void datanodes_free_gone(struct datanodes *d);
/** Judge again who is stale. Returns how many are. */
uint32_t datanodes_judge_stale(struct datanodes *d, uint64_t now_ns);
/** A node came, went, died, fell silent, stands elsewhere, or is to leave. */
void datanodes_changed(struct datanodes *d);
const struct dn_index *datanodes_index(struct datanodes *d);
uint32_t dn_index_ip(const char *ip);
/** The nodes in @rack: so many from *ret on. */
uint32_t dn_index_rack(const struct dn_index *x, const char *rack, uint32_t *ret);
/** Nodes that are alive, whatever their state. */
uint32_t datanodes_live(const struct datanodes *d);
/** Those of them that take new replicas: they are not to leave. */
uint32_t datanodes_normal(const struct datanodes *d);
/** Different racks that living nodes stand in. */
uint32_t datanodes_racks(const struct datanodes *d);
/** Replicas whose deletion waits for a heartbeat. */
uint64_t datanodes_pending_deletions(const struct datanodes *d);
/** Those of them that are units of groups. */
uint64_t datanodes_pending_units(const struct datanodes *d);
/** Heard of. */
void dn_touch(struct dn *dn);

struct storage_ref storage_ref(const struct storage *st);
/** NULL: its node is gone. */
struct storage *datanodes_storage_of(const struct datanodes *d, struct storage_ref ref);
/** NULL: its node is dead, or gone. */
struct storage *datanodes_storage(const struct datanodes *d, struct storage_ref ref);
struct storage *dn_storage(const struct dn *dn, const char *id);
/** A block of up to @bytes is to be written here. */
void storage_promise(struct storage *st, uint64_t bytes);
/** What was promised at @since_ns is not needed any more. */
void storage_unpromise(struct storage *st, uint64_t bytes, uint64_t since_ns);
/** Find or add. A @type that is none of the enum is taken as STORAGE_DISK. NULL: too many, or a bad
 * id. */
struct storage *dn_storage_add(struct dn *dn, const char *id, enum storage_type type);
uint64_t dn_remaining(const struct dn *dn);
uint64_t dn_capacity(const struct dn *dn);
uint64_t dn_used(const struct dn *dn);
/** In the block map. */
uint64_t dn_replicas(const struct dn *dn);

/** Every working storage has sent a full report since the node registered. */
bool dn_has_reported(const struct dn *dn);
/** Decommissioning, or entering maintenance. */
bool dn_is_leaving(const struct dn *dn);
/** "IN", "DP", "D", ...: as metaSave abbreviates. */
const char *dn_admin_code(const struct dn *dn);

/** @no_ack: the block is unknown. A report may list any number of them: they are taken while less
 * than 2^20 orders wait. */
void dn_order_invalidate(struct dn *dn, int64_t id, uint64_t gs, bool no_ack);
/** All orders to delete are forgotten. */
void dn_free_invalidates(struct dn *dn);
void dn_order_transfer(struct dn *dn, const struct block *b, struct storage *target);
void dn_order_recovery(struct dn *dn, int64_t block_id);
/** Copies @r. */
void dn_order_rebuild(struct dn *dn, const struct rebuild *r);
/** An order that left. */
void ec_reconstruct_free(struct rebuild *r);
void transfer_free(struct transfer *t);
void recovery_free(struct recovery *r);
/** A copy, or unit, of block @id will not come to @target. */
typedef void dn_dropped(void *arg, int64_t id, const struct storage *target);
/** Drop every order, and orders of others that name @dn: as a target, or as a source of units.
 *  Whoever waits for what was ordered is told (@dropped may be NULL). */
void dn_orders_drop(struct datanodes *d, struct dn *dn, dn_dropped *dropped, void *arg);

/** Pseudo-random, any value; for placement only. */
uint64_t rng_next(uint64_t *state);
