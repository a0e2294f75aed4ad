/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * block_recovery_internal - a block recovery: shared by block_recovery.c (calls and
 * threads), block_recovery_replicated.c and block_recovery_striped.c (what is done with a block)
 */
#include "common/erasure/geometry.h"
#include "datanode/bp/bp_internal.h"

#define PEER_CONNECT_MS 5000
#define PEER_CALL_MS 30000
#define LOCS_MAX 64
/* A holder that is busy with the end of a replica's writer, for which only so many may wait at one
 * time, is asked again for so long, after such pauses. */
#define BUSY_MS 3000
#define BUSY_PAUSE_MS 200

struct holder { /* one location */
	struct dn_target at;
	bool local, candidate, participant, updated;
	struct rpc_client *rpc;   /* owned; NULL when local or not connected yet */
	enum replica_state state; /* original */
	struct block ask;         /* what it is asked for: the block, or its unit of a group */
	struct block block;       /* as it reported it */
	char storage_uuid[BLOCK_UUID_MAX];
};

struct recovery_job {
	struct list link;     /* in set->jobs, or in set->waiting while it has no thread yet */
	uint64_t volumes;     /* a bit for each that has a replica which it may wait for */
	uint64_t deadline_ns; /* in set->waiting: not begun after this */
	struct bp_actor *actor;
	struct bp_set *set;
	struct block_pool *bp;
	pthread_t thread;
	bool done; /* under set->lock: to be joined */
	struct block block;
	uint64_t recovery_id;
	bool truncate;
	int64_t new_id; /* of truncateBlock, or the block's own */
	uint64_t cut_len;
	bool striped;
	bool all_units;          /* the NameNode says so: whoever is not asked has none */
	struct ec_policy policy; /* of a group */
	uint32_t count;
	struct holder *holders; /* owned array */
};

/** Ask one holder (h->ask) to take part; fills state and block when *ret_found. -EBUSY: another
 *  recovery is ahead, or its writer does not go; -ENODATA: its replica is of an older stamp, from
 *  our nodes alone, since a Java node does not say so; it and other failures are logged. */
int holder_init(struct recovery_job *j, struct holder *h, bool *ret_found, struct err *err);
/** Bring its replica to @len and the recovery's stamp, as block @new_id; failures are logged. */
int holder_update(struct recovery_job *j, struct holder *h, uint64_t len, int64_t new_id,
		  struct err *err);
/** Tell the NameNode; NULL in @targets: a unit that nobody has. */
int recovery_commit(struct recovery_job *j, uint64_t len, bool delete,
		    const struct holder *const *targets, size_t n, struct err *err);

/* ---- block_recovery_replicated.c ---- */
/** -EBUSY: another recovery is ahead; -EAGAIN, -EHOSTUNREACH: too few answer, the NameNode orders
 *  it again; -EIO: the replicas do not fit each other. */
int recover_replicated(struct recovery_job *j, uint64_t *ret_len, struct err *err);

/* ---- block_recovery_striped.c ---- */
/** What is asked of each holder. -EPROTO: the indices do not fit. */
int recover_striped_fill(struct recovery_job *j, const Hd__RecoveringBlockProto *rb);
int recover_striped(struct recovery_job *j, uint64_t *ret_len, struct err *err);
