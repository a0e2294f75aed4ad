/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* stripe_internal - shared by stripe.c, which chooses units and waits for them, and stripe_unit.c,
 * which knows the streams of one unit; for nobody else */
#include "client/src/striped/stripe.h"

#define WHY_MAX 100

struct unit {
	struct rstream *rs; /* owned; NULL: none */
	size_t node;        /* copy that is read */
	uint64_t at, end;   /* of rs, in the unit: next byte, and of what was asked */
	uint64_t heard_ns;  /* when its last bytes came */
	uint8_t *scratch;   /* owned; for bytes that nobody asked for */
	uint32_t scratch_len;
	/* of the window */
	uint8_t *dst;
	uint32_t have, got; /* bytes that exist of it, and that came */
	uint64_t done_ns;   /* from the window's start until it was complete */
	char why[WHY_MAX];  /* it is lost */
	int why_rc;
};

struct stripe {
	struct dfs *fs;               /* borrowed (outlives its files) */
	const struct stripe_ops *ops; /* borrowed: constant */
	struct ec_coder *coder;       /* owned; NULL until needed */
	struct group g;
	uint32_t lost;        /* set of units that cannot be read */
	uint32_t avoid;       /* set of units that are slow, or failed others lately */
	uint64_t typical_ns;  /* that a unit took for a window, smoothed; 0: not known */
	uint64_t extra_end;   /* up to where units that were not asked for are wanted */
	uint64_t offset, len; /* the range being read */
	enum stripe_mode mode;
	bool renewed;
	struct unit unit[EC_UNITS_MAX];
};

/* A part of a band, small enough to be decoded in one go. */
struct window {
	uint64_t at; /* in every unit */
	uint32_t len;
	uint32_t want;  /* units whose bytes were asked for */
	uint32_t zero;  /* units that are all zeros here */
	uint32_t fetch; /* units being read, or read */
	uint32_t done;  /* those of them that are complete */
	bool hedged;    /* more were asked because somebody was late */
	/* when it began; when slow units are not waited for any more */
	uint64_t start_ns, hedge_ns;
};

#define for_units(u, set)                                                                          \
	for (unsigned u = 0, set_##u = (set); u < EC_UNITS_MAX; u++)                               \
		if (set_##u >> u & 1)

/** @given_up: the rest of what was asked for is not waited for. Without a stream: nothing. */
void stripe_unit_close(struct unit *u, bool given_up);
/** A stream of unit @i at @at, where @have bytes are wanted at least; from its next copy when one
 *  fails. 0, also when the unit is lost; -ENOMEM and the like. */
int stripe_unit_start(struct stripe *s, unsigned i, uint64_t at, uint32_t have, struct err *err);
/** What has come of unit @i by now. 1: something; 0: nothing, or the unit is lost; -errno. */
int stripe_unit_take(struct stripe *s, struct window *w, unsigned i, struct err *err);
/** Copy u->node of unit @i failed with @rc: on to the next copy, or the unit is lost. 0; what the
 * caller must hear instead. */
int stripe_unit_failed(struct stripe *s, unsigned i, int rc, struct err *err);
/** Where in the units the range ends, when some of it must be decoded; else 0: nobody needs more of
 * a unit than was asked for. */
uint64_t stripe_find_extra_end(const struct stripe *s);
