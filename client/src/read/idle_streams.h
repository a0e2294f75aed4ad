/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * idle_streams - a stream that nobody reads is given back to its data node
 *
 * Idea: dfs_read() asks for the rest of the block. Bytes that the caller has not taken yet wait in
 * the socket and in buffers of the data node, which others then cannot use. So the housekeeper
 * closes streams that were not read for IDLE_NS, or for
 * IDLE_MANY_NS when a file system has more than IDLE_STREAMS_MANY; the next read opens one again at
 * its byte, and asks for no more than it needs until reads follow one another quickly. A read of a
 * local replica holds nothing, and stays. A read over RDMA whose answer is on its way stays until
 * the answer is there: to break it off would end the connection, which others use.
 * Ownership: part of struct dfs; a reader is on the list from its first stream until its stream was
 * closed for being idle, or reader_free().
 * Threading: any thread. `lock` is taken while a reader's seq_lock is held; the housekeeper, which
 * holds `lock`, only tries the seq_lock: a reader that is busy is not idle.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"

#define IDLE_NS (1000ull * 1000000)
#define IDLE_MANY_NS (100ull * 1000000)
#define IDLE_STREAMS_MANY 8

struct dfs;
struct reader;

struct idle_streams {
	pthread_mutex_t lock;
	struct list readers; /* of struct reader */
	atomic_uint count;
};

void idle_streams_init(struct idle_streams *l);
void idle_streams_fini(struct idle_streams *l);
/** @r has a stream, and is not on the list; under its seq_lock. */
void idle_streams_add(struct reader *r);
/** @r is about to go. */
void idle_streams_remove(struct reader *r);
/** Close what was not read for long at @now_ns. */
void idle_streams_reap(struct dfs *fs, uint64_t now_ns);
/** How often that is to be done; UINT64_MAX: there is nothing to close. */
uint64_t idle_streams_round_ns(const struct dfs *fs);
