/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * stripe - ranges of one block group, read from many nodes at once by one thread
 *
 * Idea: a range is walked in bands (geometry.h), a band in windows of at most STRIPE_WINDOW bytes
 * of a unit. Of a window so many units are asked that each wanted one comes by itself or can be
 * decoded from k others; bytes that were asked for arrive in the caller's memory, and are decoded
 * from there and to there. Nothing but a poll() over all streams waits. A window ends as soon as
 * the wanted units, or any k, are there; so to hedge a slow unit is only to ask one more, and the
 * first k win.
 * A unit that cannot be read, or whose checksum is wrong, is lost for this group: the window goes
 * on with others, and what had come of it stays.
 *
 * When a unit is slow: it is behind when the typical unit of its window was done long ago, three
 * times as long and at least HEDGE_MIN_NS; a unit that is waited for alone gets HEDGE_ALONE_NS.
 * Slow units are then left alone as long as there are k better ones.
 *
 * Ownership: stripe_open() gives, stripe_close() takes; the message of the group is borrowed.
 * Threading: one user at a time.
 * Units: offsets in the group, data bytes.
 */
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/src/fs/fs.h"
#include "client/src/stream/stream.h"
#include "client/src/striped/block_group.h"
#include "common/erasure/coder.h"

/* of a unit; bounds the memory for units nobody asked for */
#define STRIPE_WINDOW (1u << 20)
#define HEDGE_MIN_NS (20 * 1000000ull)
#define HEDGE_ALONE_NS (100 * 1000000ull)
#define HEDGE_TYPICAL 3 /* times the typical time */

struct stripe;

/** What a test replaces. */
struct stripe_ops {
	/** stream_start_read() */
	int (*start)(struct dfs *fs, const struct read_setup *r, struct rstream **ret,
		     struct err *err);
	/** Copy @node of @unit failed with @err, or was left behind (-ETIME): to be remembered, or
	 *  reported. */
	void (*failed)(struct dfs *fs, const struct group_unit *unit, size_t node,
		       const struct err *err);
	/** Is this node to be asked only when there is no other way? */
	bool (*suspect)(struct dfs *fs, const Hd__DatanodeInfoProto *node);
	uint64_t (*now)(void);                                         /* clock_mono_ns() */
	int (*poll)(struct pollfd *fds, nfds_t count, int timeout_ms); /* poll(2) */
};

/**
 * Get ready to read the group @lb of @policy; nothing is asked yet. @coder is a coder of that
 * policy to use, or NULL: one is made when it is needed. -EPROTO as group_view(), -ENOTSUP for a
 * codec that is not coded only when something must be decoded.
 */
int stripe_open(struct dfs *fs, const Hd__LocatedBlockProto *lb, const struct ec_policy *policy,
		const struct stripe_ops *ops, struct ec_coder *coder, struct stripe **ret,
		struct err *err);
/** Accepts NULL. *@ret_coder (may be NULL) gets the coder, if there is one. */
void stripe_close(struct stripe *s, struct ec_coder **ret_coder);

/** How a range is asked for. */
enum stripe_mode {
	STRIPE_EXACT, /* the nodes are asked for what is needed of the range */
	STRIPE_AHEAD, /* for the rest of the group: the next range will follow this one */
};
/**
 * Read all of [@offset, @offset + @len), which must be in the group. -ENODATA: too few units are
 * left, see stripe_explain(); -EACCES: a node did not take its token, which happens when it is old
 * (a second time, with @renewed, it counts as a failure); -ENOMEM, -ENOTSUP.
 */
int stripe_read(struct stripe *s, uint64_t offset, uint64_t len, uint8_t *dst,
		enum stripe_mode mode, bool renewed, struct err *err);
/** Let all data units that have bytes from @offset on begin to send: a reader in sequence is at it.
 */
void stripe_prefetch(struct stripe *s, uint64_t offset);
/** Must some of the bytes from @offset to the end of its row be decoded? */
bool stripe_degraded(const struct stripe *s, uint64_t offset);
/** Nobody reads on for the time being: close all streams, without waiting. False: as
 * reader_give_back(). */
bool stripe_give_back(struct stripe *s);
bool stripe_has_streams(const struct stripe *s);
const struct group *stripe_group(const struct stripe *s);
/** After -ENODATA: "block group blk_-16: 2 units are left, 3 are needed: unit 0 (10.0.0.1:9866:
 *  reason), ...". */
void stripe_explain(const struct stripe *s, char *buf, size_t size);
/** Are so many of the units that are lost only out of reach that the group can be read when their
 *  nodes are back? */
bool stripe_is_away(const struct stripe *s);
