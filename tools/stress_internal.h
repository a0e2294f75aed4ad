/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** stress_internal - what the two files of stress-client share: stress_client.c has options, what
 * is counted, threads and the report; stress_roles.c has the roles. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/include/dfsclient.h"

#define WORD 8u
#define STEP (256u << 10)   /* of reading and writing along a file */
#define STALL_AT (1u << 20) /* bytes that a staller takes before it stalls */
#define PATH_SIZE 256

struct options {
	const char *role, *dir, *name;
	uint64_t seed, dice, size;
	uint32_t files, threads;
	double seconds, stuck, pause;
};

struct worker {
	pthread_t thread;
	uint32_t number;
	uint64_t rng;
	uint8_t *got, *want; /* STEP bytes, with some room */
	_Atomic(const char *) doing;
	_Atomic uint64_t since_ns; /* of the operation under way; 0: none */
	atomic_bool ended;
};

extern struct options stress_opts;
extern struct dfs *stress_fs;

/* stress_client.c */
void stress_op_begin(struct worker *w, const char *doing);
/** @counts: its time is one of those that the role is judged by. */
void stress_op_end(struct worker *w, uint64_t bytes, bool counts);
void stress_failed(struct worker *w, const char *path, uint64_t off, int rc,
		   const struct dfs_err *err);
void stress_wrong(const char *path, uint64_t off, uint64_t bytes, const char *why);
bool stress_time_is_over(void);
/** Not beyond the end of the time. */
void stress_pause_for(double seconds);
/** Between half of --pause and one and a half. */
void stress_pause_some(struct worker *w);
uint64_t stress_below(struct worker *w, uint64_t n);

/* stress_roles.c */
bool stress_is_role(const char *name);
/** The thread of worker @arg: rounds of its role until the time is over. */
void *stress_work(void *arg);
uint64_t stress_mix(uint64_t x);
