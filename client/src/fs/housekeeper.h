/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * housekeeper - the threads of a file system handle that look after its files and leases
 *
 * Idea: files open for writing need two things even when nobody calls: an idle pipeline gets a
 * keep-alive packet every 30 s, and the lease is renewed every 30 s. There is a thread for each,
 * since a call of a NameNode that hangs may take minutes, and data nodes give up a silent writer
 * sooner. The first thread, `beat`, waits for nobody: it also closes files of local replicas, and
 * streams (idle_streams.h), that nobody has read for long. It is started by the first file that is
 * created, read locally, or left in the middle of a block, and sleeps until something is due. The
 * second one, `ask`, calls others, every 5 s at most: it also makes sure of files that were closed
 * early (early_close.h). It is started by the first file that is written.
 * Ownership: part of struct dfs. A writer is on the list from housekeeper_add() to
 * housekeeper_remove().
 * Threading: any thread. The housekeeper holds its lock while it visits a writer and only try-locks
 * the writer: a writer that is busy keeps its pipeline alive itself. Nobody holds the lock in a
 * call.
 * Source: hdfs-wire 3.6 (leases), 5.6 (heartbeat).
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/list.h"

struct dfs;

/** Embedded in a writer. */
struct housekept {
	struct list link; /* on the housekeeper's list */
	/** Send heartbeats where it was quiet for long; never waits. */
	void (*keep_alive)(struct housekept *k, uint64_t now_ns);
};
static inline void housekept_init(struct housekept *k,
				  void (*keep_alive)(struct housekept *k, uint64_t now_ns))
{
	k->keep_alive = keep_alive;
	list_init(&k->link);
}

#define LEASE_RENEW_MS 30000
#define KEEPALIVE_MS 30000 /* at most; less where dfs.client.socket-timeout is short */

struct housekeeper_thread {
	pthread_t id;
	pthread_cond_t wake;
	bool running;
};

struct housekeeper {
	pthread_mutex_t lock;
	struct list writers; /* of struct housekept */
	struct housekeeper_thread beat, ask;
	bool stop;
	uint64_t ask_ns;     /* when others are asked next */
	uint64_t renewed_ns; /* last successful or attempted lease renewal */
};

void housekeeper_init(struct housekeeper *k);
/** How long a pipeline may be quiet: half of what data nodes with our time-out would wait. */
uint64_t housekeeper_beat_ns(const struct dfs *fs);
/** Stop the threads and wait for them: a call of the NameNode has been cancelled. */
void housekeeper_fini(struct housekeeper *k);
/** Start the threads if need be. -EAGAIN or -ENOMEM when there can be none. */
int housekeeper_add(struct dfs *fs, struct housekept *writer, struct err *err);
/** Start the thread that calls nobody if need be, for what else it does: closing files that nobody
 * reads (local_replicas.h). */
void housekeeper_start(struct dfs *fs);
/** The same, and it looks now. */
void housekeeper_wake(struct dfs *fs);
void housekeeper_remove(struct dfs *fs, struct housekept *writer);
