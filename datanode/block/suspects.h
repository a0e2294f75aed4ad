/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * suspects - replicas whose reader found a wrong CRC, on their way to a check
 *
 * Idea: a reader's complaint costs nothing, and a check reads the whole replica. So each volume
 * checks one replica at a time, on its own queue, and the node begins checks at SUSPECT_RATE in the
 * long run.
 * A replica that was checked is not checked again for SUSPECT_AGAIN_NS. At most SUSPECTS_MAX
 * replicas of a volume wait; further ones are forgotten: the client tells the NameNode as well, and
 * the block scanner reads every replica in its turn.
 * Ownership: embedded. Threading: any reactor; the checks themselves run on helper threads of them.
 * Source: VolumeScanner.markSuspectBlock() of Hadoop 3.4.2 has the same rules.
 */
#include <pthread.h>

#include "datanode/block/engine.h"

#define SUSPECTS_MAX 16    /* replicas of a volume that wait */
#define SUSPECTS_KNOWN 128 /* these, and replicas checked lately */
#define SUSPECT_AGAIN_NS (600ull * 1000000000)
#define SUSPECT_RATE (16u << 20)      /* bytes a second */
#define SUSPECT_COST_MIN (256u << 10) /* bytes that a check is charged at least: it opens files */

enum suspect_state { SUSPECT_NONE, SUSPECT_WAITS, SUSPECT_IS_CHECKED, SUSPECT_WAS_CHECKED };

struct suspect {
	struct block_pool *bp;
	struct block block;
	enum suspect_state state;
	uint32_t volume;
	uint64_t checked_ns;      /* SUSPECT_WAS_CHECKED: when (monotonic) */
	struct suspects *s;       /* SUSPECT_IS_CHECKED: ours, */
	struct engine_core *core; /* and whose helper thread does it */
	struct offload offload;
};

struct suspects {
	pthread_mutex_t lock;
	struct suspect all[SUSPECTS_KNOWN];
	struct engine_core *core; /* of the timer; NULL: it does not run */
	uint64_t free_ns;         /* no check begins before */
	bool stopped;
	struct rtimer timer;
};

void suspects_init(struct suspects *s);
void suspects_fini(struct suspects *s);
/** On @core's reactor. False: nothing new, or too many wait. */
bool suspects_add(struct suspects *s, struct engine_core *core, struct block_pool *bp,
		  const struct block *b);
/** On @core's reactor: from now on no check begins. One that runs here counts as an op of @core
 * until it is done. */
void suspects_stop(struct suspects *s, struct engine_core *core);
