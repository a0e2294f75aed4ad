/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * reconstruct - lost units of a striped block group, made anew from those that are left
 *
 * Idea: as many sources as decoding needs are read side by side, a window of each is decoded,
 * checked and handed to all targets, then the next window; the units pass through memory once and
 * nothing is kept:
 *
 *   source (other node, or ours) --\                        /--> sink (other node)
 *   source ...                      >-- window -> decode ->*---> block_write (our own new replica)
 *   source ...                    --/         check        \--> taker (the checksum of a lost unit)
 *
 * Promises: the bytes of every source fit their CRCs, and those of an additional live unit at both
 * of its ends, where there is one, fit what was made (a source that answers with wrong bytes and
 * right CRCs, of another block or an older write, shows there); what was made and what was read are
 * put together and coded once more, window by window, before the window is sent. No target is told
 * that it has everything before the last window has passed: until then it holds a temporary
 * replica, which goes when the connection ends or the node starts again. So nothing wrong is
 * finalised, wherever this stops.
 * A source that fails, or is slow while there is another one, is replaced in the middle of the
 * unit; a target that fails is left behind as long as another one goes on.
 * Limits: at most dfs.datanode.ec.reconstruction.threads run in a node (and as many again for
 * checksums, apart), and in one reactor only so many as their buffers, all of which are had before
 * anything is read, are a half of its slots of that class; the others wait in line.
 * dfs.datanode.ec.reconstruct.{read,write}.bandwidthPerSec are kept over all of a node.
 * Ownership: frees itself after done().
 * Threading: one reactor.
 * Source: hdfs-wire 7.3, 7.6; Hadoop 3.4.2 StripedBlockReconstructor.
 */
#include "common/base/crc.h"
#include "common/erasure/geometry.h"
#include "datanode/dn.h"

struct engine_core; /* datanode/block/engine.h */

/* bytes of each unit decoded at once, at most: fits a SLOT_64K */
#define REBUILD_WINDOW (64u << 10)
#define REBUILD_SOURCES_MAX 64 /* named in one order */
/* waiting in one reactor; the NameNode orders again what is refused */
#define REBUILD_QUEUE_MAX 1024

struct reconstruct_node { /* who has a unit, or is to have it */
	struct dn_target at;
	uint8_t unit;
	bool own; /* this node */
};

/** Takes the bytes of a unit in order, instead of a target that stores them. On the reactor. */
struct reconstruct_taker {
	void (*bytes)(struct reconstruct_taker *t, const uint8_t *data, uint32_t len,
		      enum crc_type type, uint32_t bytes_per_crc);
};

struct reconstruct_params {
	struct block_pool *bp;
	struct block group; /* len: data bytes */
	struct ec_policy policy;
	struct reconstruct_node *sources; /* owned: taken by reconstruct_open(), also on failure */
	uint32_t source_count;
	struct reconstruct_node *targets; /* likewise; each of another unit */
	uint32_t target_count;
	struct reconstruct_taker *taker; /* or NULL: of the one target, which is then no node */
	uint64_t limit;                  /* of the taker: so many bytes of the unit */
	/** A source's bytes fail their CRC; not called for our own replicas, which the store
	 *  reports. On the reactor; may be NULL. */
	void (*bad)(void *arg, const struct reconstruct_node *source);
	/** On the reactor, once: 0 when at least one target has its unit; -errno with a sentence.
	 */
	void (*done)(void *arg, int rc, const struct err *err);
	void *arg;
};

/** -EINVAL: group and nodes do not fit the policy; -ENOTSUP: a codec that is not coded here;
 *  -ENODATA: too few sources; -EBUSY: too many wait; -ENOMEM; -ECANCELED: the node stops. done() is
 *  not called then. */
int reconstruct_open(struct engine_core *core, struct reconstruct_params *params, struct err *err);
void reconstruct_params_fini(struct reconstruct_params *p);
