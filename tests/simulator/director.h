/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * director - starts the programs of a simulated cluster, and breaks it
 *
 * Machine 0 has the NameNode, 1 to NODES a data node each, the last ones clients. The director is a
 * thread of the world, on a machine of its own that never fails.
 */
#include <stdbool.h>
#include <stdint.h>

#include "tests/simulator/ledger.h"
#include "tests/simulator/world.h"

#define NODES 5
#define CLIENTS 3
#define CLIENT_THREADS 2
#define MACHINES (1 + NODES + CLIENTS + 1)

struct history {
	uint64_t seed;
	uint32_t steps;
	uint32_t without; /* bits of enum part */
	bool verbose;
	char dir[64];
	char bin[200]; /* where the programs are */
	struct ledger *ledger;
	int proc[MACHINES]; /* that runs there; -1: none */
	bool healing;       /* what leaves by itself is started again, as an administrator would */
	bool sync_on_close; /* dfs.datanode.synconclose */
	uint32_t rotten;    /* machine whose disk changes bytes */
	bool maimed[MACHINES]; /* its disk had errors: its program is started anew at the end */
	/* its disk has failed under the program that runs there: that may leave, and say so */
	bool disk_fails[MACHINES];
	bool may_leave[MACHINES]; /* it was asked to, or comes to an end by itself */
	uint64_t lost_bytes, lost_names, faults, replicas;
	char wrong[700];
};

/* ---- cluster.c: programs ---- */

int cluster_make(struct history *h); /* directories, configuration */
int cluster_format(struct history *h);
void cluster_start(struct history *h, uint32_t machine);
/** kill -9; what had not been written is still there. */
void cluster_kill(struct history *h, uint32_t machine);
/** The machine loses its power. It is off until cluster_power(). */
void cluster_crash(struct history *h, uint32_t machine);
void cluster_power(struct history *h, uint32_t machine);
/** SIGTERM, and a while to leave. */
void cluster_stop(struct history *h, uint32_t machine);
/** Looks after programs that left by themselves. False: one should not have, or had a bad status,
 *  and no disk of its machine explains that; or something else is wrong. */
bool cluster_look(struct history *h);
int cluster_check(struct history *h); /* runs the check to its end; its exit status */
void cluster_end(struct history *h);  /* all of them, at once */
/** Lets virtual time pass; false: something is wrong. */
bool cluster_wait(struct history *h, uint64_t ns);
void history_wrong(struct history *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- replicas.c ---- */

/** A byte of a replica changes; false: none is there. @text says which. */
bool replicas_rot(struct history *h, char *text, size_t size);
/** Compares the replicas of all blocks that the check found whole with what was written. */
void replicas_compare(struct history *h);

/* ---- faults.c ---- */

enum part {
	PART_KILL,
	PART_STOP,
	PART_CRASH,
	PART_CUT,
	PART_SLOW,
	PART_HANG,
	PART_ERRORS,
	PART_FULL,
	PART_CLOCK,
	PART_ROT,      /* a byte of a replica changes, on one machine of the history only */
	PART_NAMENODE, /* whether it is hit, too */
	PART_COUNT,
};
extern const char *const part_names[PART_COUNT];

/** One step of trouble, and the time until the next. */
bool faults_step(struct history *h);
void faults_end(struct history *h);
