/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * disk_turns - long reads leave a disk's queue short, so that short ones get through it
 *
 * Idea: a disk serves what lies in its queue in its own order, and read-ahead of many streams fills
 * it: a read of 4 KiB then waits for tens of MiB. So the long reads of one reactor have a bounded
 * number of bytes in one volume's queue, fewer while short reads come. A stream beyond that waits
 * until one of the others' reads is back; they take turns.
 * Ownership: the streams; each is linked once. Threading: one reactor. Units: bytes, nanoseconds.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"

#define DISK_TURN_BYTES (16u << 20)      /* of long reads at a time */
#define DISK_TURN_BYTES_SHORT (2u << 20) /* while short reads come */
#define DISK_SHORT_NS 20000000ull        /* so long after the last one */

struct disk_turns {
	uint64_t in_flight;
	uint64_t short_ns; /* when the last short read began; 0: never */
	struct list waiters;
};

static inline void disk_turns_init(struct disk_turns *d)
{
	*d = (struct disk_turns){0};
	list_init(&d->waiters);
}
static inline void disk_turns_short(struct disk_turns *d, uint64_t now_ns)
{
	d->short_ns = now_ns;
}
/** True: @bytes may be read now, and disk_turns_done() follows. False: wait in disk_turns.waiters.
 *  One read may always go. */
static inline bool disk_turns_begin(struct disk_turns *d, uint64_t bytes, uint64_t now_ns)
{
	const bool shorts = d->short_ns && now_ns - d->short_ns < DISK_SHORT_NS;
	const uint64_t max = shorts ? DISK_TURN_BYTES_SHORT : DISK_TURN_BYTES;

	if (d->in_flight && d->in_flight + bytes > max)
		return false;
	d->in_flight += bytes;
	return true;
}
/** The next stream in line, unlinked, or NULL. It asks again; if it still does not fit, it waits
 *  again, at the end.
 *  Who is next and does not ask calls this, too, with 0. */
static inline struct list *disk_turns_done(struct disk_turns *d, uint64_t bytes)
{
	d->in_flight -= bytes;
	return list_pop(&d->waiters);
}
