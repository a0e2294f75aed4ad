/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * reconstruct_internal - shared by reconstruct.c (order of things, decoding), reconstruct_slots.c
 * (whose turn it is, and the buffers), reconstruct_source.c (where bytes come from) and
 * reconstruct_target.c (where they go). Prefix rb_: one reconstruction ("rebuild"), a part of it.
 */
#include "common/erasure/coder.h"
#include "datanode/block/engine.h"
#include "datanode/block/sink.h"
#include "datanode/block/source.h"
#include "datanode/reconstruct/reconstruct.h"

#define RB_TARGET_PIECES 4 /* windows on their way to one target */
#define RB_CRC_SLOT 8192u  /* of the class that holds a window's CRCs */
#define RB_TICK_NS (250 * NS_PER_MS)

struct rb_source {
	struct read_sink read_sink;
	struct reconstruct *rb;
	const struct reconstruct_node *node;
	struct piece_source *src; /* NULL: not open, or over */
	struct slot *slots[SOURCE_SLOTS], *crc_slots[SOURCE_SLOTS];
	struct list pieces; /* not used up yet */
	uint64_t from, to;  /* what it was asked for, in the unit */
	struct read_info info;
	bool tried, opened, closing;
	bool active; /* counts as a source; an additional one: is to be compared */
	int rc;
};

struct rb_piece {
	struct piece p;
	struct rb_target *t;
	struct slot *data, *crcs; /* held while the rebuild lives */
	bool used;
};

enum rb_target_state {
	RT_WAIT_OPEN,
	RT_OPEN,
	RT_WAIT_STORED, /* everything is sent: is it stored? */
	RT_STORED,
	RT_FAILED,
};

struct rb_target {
	struct reconstruct *rb;
	const struct reconstruct_node *node;
	enum rb_target_state state;
	uint64_t len; /* of the unit */
	int64_t seq;

	struct write_params write; /* of a remote one */
	struct sink_user user;
	struct piece_sink *sink;
	bool sink_closing;
	struct rb_piece pieces[RB_TARGET_PIECES];
	struct rb_piece *cur;
	struct piece last;

	struct write_source source; /* of our own */
	struct block_write *w;
	bool w_closing;
	struct landing land;

	uint8_t *out;  /* of the window being decoded */
	uint32_t part; /* bytes of it that are the unit's */
};

struct rb_slots {           /* all of one class, had before anything is read */
	struct slot **slot; /* owned; the first `free` of `had` are not in use */
	uint32_t count, had, free;
};

enum reconstruct_state {
	RB_WAIT_TURN, /* leaves when it is its turn */
	RB_SLOTS,     /* needs its buffers */
	/* holds none of the main pool; leaves when all are granted, or on the timer */
	RB_WAIT_BUFFERS,
	RB_WAIT_SOURCES,   /* needs to hear from as many sources as decoding needs */
	RB_WAIT_TARGETS,   /* leaves when every target has answered */
	RB_RUN,            /* windows */
	RB_WAIT_BANDWIDTH, /* the bandwidth: leaves on the timer */
	RB_WAIT_STORED,    /* leaves when every target has stored its unit or failed */
	RB_END,            /* close everything and wait for it */
	RB_DONE,
};

struct reconstruct {
	struct rop rop;
	struct engine_core *core;
	struct list queue_link, core_link;
	struct reconstruct_params params;
	enum reconstruct_state state;
	int rc;
	struct err err;
	bool admitted;
	uint64_t start_ns;

	uint32_t needed;  /* sources at one time */
	uint32_t zeros;   /* set of data units that do not exist */
	uint64_t at, end; /* in the units */
	uint64_t unit_len[EC_UNITS_MAX];
	struct ec_coder *coder;
	enum crc_type crc_type;
	uint32_t bytes_per_crc, window; /* window 0: no source has answered yet */

	bool landing; /* sources have slots that other nodes may write to, by RDMA */
	struct rb_slots from, from_crcs, to, to_crcs; /* of sources, of targets on other nodes */
	struct pool_ask ask; /* of the main pool: for all of them at once */
	struct slot **set;   /* owned: what it gives */
	bool granted;

	struct rb_source *sources; /* owned; params.source_count */
	struct rb_source extra[2]; /* the beginning and the end of an additional unit */
	struct rb_target *targets; /* owned; params.target_count */

	struct rtimer tick;
	uint64_t stuck_ns; /* since when a source is waited for; 0: none is */
	uint64_t pay_ns;   /* what was moved so far may have been by then */
	uint64_t bytes_read, bytes_written, read_wait_ns, write_wait_ns, decode_ns, check_ns;
	uint64_t wait_from_ns;
};

static inline void rb_ready(struct reconstruct *rb)
{
	reactor_ready(rb->core->reactor, &rb->rop);
}
void rb_fail(struct reconstruct *rb, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* reconstruct_source.c */
void rb_sources_init(struct reconstruct *rb);
/** Open what is missing of the sources that decoding needs. Fails the rebuild when there are too
 * few. */
void rb_sources_fill(struct reconstruct *rb);
/** Have all that are needed answered? */
bool rb_sources_opened(const struct reconstruct *rb);
/** Open the additional unit's ends, when there is one. */
void rb_extras_open(struct reconstruct *rb);
/** Bytes at rb->at that every source has, at most @max; 0: one has none yet. */
uint32_t rb_sources_have(struct reconstruct *rb, uint32_t max);
/** Put the window [at, at + len) in order: the set of units in it, their bytes; and the set of
 * additional ones. */
uint32_t rb_sources_window(struct reconstruct *rb, uint32_t len, struct ec_src *units,
			   uint32_t *ret_extra);
/** Give back pieces that end at or before rb->at. */
void rb_sources_drop(struct reconstruct *rb);
/** A source is waited for too long: take another one, if there is one. */
void rb_sources_replace_slow(struct reconstruct *rb);
/** Close all; true when nothing of them is left. */
bool rb_sources_end(struct reconstruct *rb);

/* reconstruct_target.c */
/** Is it in good order, and does the window have bytes of it? */
bool rb_target_wants(const struct rb_target *t);
void rb_targets_open(struct reconstruct *rb);
/** Are all set up or failed? */
bool rb_targets_opened(const struct reconstruct *rb);
/** Memory for the window at rb->at in every target's out, *len or less; false: wait. */
bool rb_targets_room(struct reconstruct *rb, uint32_t *len);
/** The set of units that targets want in this window, with memory for each. */
uint32_t rb_targets_window(struct reconstruct *rb, uint8_t **out, struct ec_src *units);
/** The window is good: hand it on. */
void rb_targets_send(struct reconstruct *rb, uint32_t len);
/** There will be no more; tell those that have not heard it yet. */
void rb_targets_last(struct reconstruct *rb);
/** How many are in good order; *ret_waiting: and not yet known to have stored everything. */
uint32_t rb_targets_good(const struct reconstruct *rb, uint32_t *ret_waiting);
/** The length of the longest unit that is wanted by one of those. */
uint64_t rb_targets_len(const struct reconstruct *rb);
bool rb_targets_end(struct reconstruct *rb);

/* reconstruct_slots.c */
/** NULL: all are in use. */
struct slot *rb_slot_take(struct rb_slots *s);
/** Accepts NULL. */
void rb_slot_give(struct rb_slots *s, struct slot *slot);
/** How many of each; true when they fit our pools at all. */
bool rb_slots_plan(struct reconstruct *rb);
int rb_slots_new(struct reconstruct *rb);
/** In state RB_SLOTS: true when all are there. Else RB_WAIT_BUFFERS; or RB_SLOTS, and on the tick
 *  again, while a device has some of the landing pool. */
bool rb_slots_get(struct reconstruct *rb);
void rb_slots_put(struct reconstruct *rb);
void rb_slots_free(struct reconstruct *rb);
/** Let those that wait in @core begin, as many as may run. */
void rb_admit(struct engine_core *core);
/** It is over: its place and buffers are others'. */
void rb_dismiss(struct reconstruct *rb);
