/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * trash - files that users moved to their trash are deleted after fs.trash.interval
 *
 * Idea: clients move what is deleted to HOME/.Trash/Current. Once every
 * fs.trash.checkpoint.interval each trash loses its checkpoints (directories called yyMMddHHmmss,
 * of local time) that are older than fs.trash.interval, and its Current becomes a new one. A round
 * goes through the homes in steps, one a tick of the monitor, and each trash is a change of its own
 * among those of clients.
 * Threading: the writer's. Source: Hadoop 3.4.2 TrashPolicyDefault.
 */
#include <stdbool.h>
#include <stdint.h>

#include "namenode-shim/namespace/inode.h"

struct nn;
struct ns;

#define TRASH_MINUTES_MAX 1000000000u
#define TRASH_EVERY_MIN_MS 1000
#define TRASH_HOMES 1000   /* looked at in one step */
#define TRASH_CHANGES 50   /* ordered by one step */
#define TRASH_ENTRIES 1000 /* of one trash, in one round */

/* The round that is under way. All 0 at first. */
struct trash_round {
	uint64_t next_ms; /* wall clock: when the next one begins; 0: not known */
	bool running;
	char after[INODE_NAME_MAX + 1]; /* name of the last home looked at */
};

struct trash_rules {
	uint64_t keep_ms;  /* fs.trash.interval; 0: there is no trash */
	uint64_t every_ms; /* fs.trash.checkpoint.interval */
	bool clean;        /* fs.trash.clean.trashroot.enable: what is no checkpoint goes at once */
	char homes[256];   /* dfs.user.home.dir.prefix */
};

/** Not in safe mode, and without mem_lock: a step of the round, if it is time. */
void trash_tick(struct nn *nn);
/** A change: empty the trash at @path. What cannot be removed stays and is logged. Database errors
 * only. */
int trash_empty(struct ns *n, const char *path, const struct trash_rules *r);
/** When the checkpoint @name was made; false: it is none. @now_ms tells the century. */
bool trash_checkpoint_ms(const char *name, uint64_t now_ms, uint64_t *ret);
