/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * relay - bytes to a descriptor, written by a thread of its own while the next ones are made
 *
 * Idea: a get spends more time copying into the local file than receiving. Both at once take two
 * cores. The caller fills one buffer after the other, the thread writes them in order; when all
 * buffers are full the caller waits, so no more than RELAY_BUFFERS are between them.
 * Ownership: the buffers' memory and the descriptor stay the caller's. relay_end() ends what
 * relay_start() began.
 * Threading: one caller.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#define RELAY_BUFFERS 4

struct relay {
	int fd;
	size_t size;
	char *memory; /* RELAY_BUFFERS of @size bytes */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t news;
	size_t len[RELAY_BUFFERS];
	unsigned filled, written; /* buffers so far; at most RELAY_BUFFERS apart */
	bool end;
	int rc; /* of writing: the first failure */
};

/** Write all of @p. 0 or -errno. */
int relay_write_all(int fd, const char *p, size_t len);
/** @memory: RELAY_BUFFERS * @size bytes, until relay_end(). -EAGAIN: no thread, write yourself. */
int relay_start(struct relay *r, int fd, void *memory, size_t size);
/** A buffer of the size to be filled; NULL: writing failed. */
void *relay_room(struct relay *r);
/** The first @len bytes of it are to be written. */
void relay_give(struct relay *r, size_t len);
/** All is written: 0, or why not. */
int relay_end(struct relay *r);
