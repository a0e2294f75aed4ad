/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * block_read_internal - one block being read: shared by block_read.c (open, range, order, end) and
 * block_read_pieces.c (buffers, turns and disk requests of a piece)
 *
 * Prefixes: br_ is the read, rp_ one piece of it.
 */
#include "common/base/metrics.h"
#include "datanode/admin/outliers.h"
#include "datanode/block/engine.h"

struct rpiece {
	struct piece p;
	struct uring_op data_op, crc_op;
	struct disk_request data_req, crc_req;
	struct block_read *r;
	uint32_t lead;      /* bytes read before p.off, for alignment */
	uint32_t got, want; /* data with the lead */
	uint32_t crc_got;
	uint8_t waiting;
	bool direct, used, handed;
	bool in_turn;      /* a long read that disk_turns knows */
	bool by_worker;    /* the disk does not know of requests that must not wait */
	uint64_t start_ns; /* 0: its time is not taken */
};

enum block_read_state {
	BR_WAIT_DISK_OPEN,    /* helper opens the replica; leaves on br_done_open() */
	BR_CHECK,             /* is the range readable? */
	BR_WAIT_WRITER,       /* it is being written: leaves on the timer */
	BR_WAIT_DISK_REFRESH, /* helper asks how far it is; leaves on br_done_open() */
	BR_RUN,               /* pieces are read and handed over */
	BR_WAIT_BUFFERS,      /* holds none; leaves when a set is granted, or on the timer */
	BR_WAIT_DISK_PARK,    /* gives its read-ahead back; waits for disk reads */
	BR_WAIT_PEER,         /* holds none; leaves on block_read_resume() */
	BR_DRAIN,             /* waits for disk reads and pieces that are out */
	BR_WAIT_DISK_CLOSE,   /* helper closes the reader */
	BR_DONE,
};

struct block_read {
	struct rop rop;
	struct engine_core *core;
	struct list core_link;
	struct read_sink *sink;
	struct read_params params;
	struct replica_reader *rr;
	struct read_info info;
	enum block_read_state state;
	int rc;
	bool closed, told, suspect;
	bool lost;                    /* the sink has heard so */
	struct outlier_sum disk_time; /* slow disks: told at the end */
	char volume[BLOCK_UUID_MAX];  /* that the replica is on, */
	uint32_t volume_no;           /* and its number; until it is opened, where it was last */

	uint32_t unit;             /* pieces end at multiples of it */
	uint64_t next;             /* first byte not asked for */
	uint32_t head, give, tail; /* free running: not back yet, next to hand over, end */
	/* pieces it may hold: from AHEAD_FIRST, one more for each that went */
	uint32_t ahead;

	struct rtimer timer;
	uint64_t visible_deadline_ns;
	struct offload offload;
	struct pool_ask ask; /* one set: data, CRCs */
	struct slot *set[2];
	uint32_t form_len[POOL_FORMS]; /* bytes of the block in each form's piece */
	bool granted, resume;
	uint64_t begun_ns, moved_ns, bytes; /* for /ops: last progress; handed over */
	struct disk_turns *disk;            /* of its volume */
	struct list turn_link;              /* linked: waits for a turn at the disk */
	bool my_turn;                       /* was the next, and has not asked again yet */
	uint64_t handed_end;                /* of the last piece handed over */
	bool is_short;
	uint64_t parked_at; /* where block_read_resume() goes on */

	/* last, and not zero at first: what has been set counts */
	struct replica_reader room;        /* of rr, when the files were open already */
	struct rpiece pieces[BREAD_AHEAD]; /* those from head to tail */
	struct err err;
};

static inline void br_ready(struct block_read *r)
{
	reactor_ready(r->core->reactor, &r->rop);
}

static inline void br_fail(struct block_read *r, int rc)
{
	if (!r->rc)
		r->rc = rc;
	br_ready(r);
}

/* block_read_pieces.c */
void br_on_granted(struct pool_ask *a);
/** Ask the disk for the next piece; false: no buffers, or not its turn. */
bool rp_start(struct block_read *r);
/** Its CRCs, once they are read. */
void rp_ready_crcs(struct rpiece *b);
/** What is not at the disk yet need not be read any more. */
void rp_stop_waiting(struct rpiece *b);
/** Its slots go back. */
void rp_release(struct rpiece *b);
/** Forget pieces at the head that are back. */
void br_reap(struct block_read *r);
/** Give back what was granted, the place in the line for slots and the turn at the disk. */
void br_drop_ask(struct block_read *r);
