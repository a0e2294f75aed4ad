/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * block_write_internal - one block being written: shared by block_write.c (order of pieces, acks,
 * end), block_write_replica.c (the replica is opened, finalised, given back), block_write_hop.c
 * (the next node), block_write_sync.c (fdatasync before an ack), block_write_lane.c (lanes: where
 * payload lands) and block_write_disk.c (runs: what is on its way to the disk)
 *
 *      acked <= on_disk <= submitted <= received <= landed        (offsets in the block)
 *
 * A lane is a slot that covers [base, end) of the block; base is congruent to its memory, so that
 * whole pages go to disk by O_DIRECT straight from where they landed. A page whose first bytes went
 * through the page cache (after a flush or a silence, or in a short run) is finished there: no page
 * sees both ways at one time.
 * A run is one write of data and the write of its CRCs, by a helper thread of the volume. A direct
 * run waits only for a buffered run before it; a buffered run waits until no run is in flight. Two
 * direct runs may reach the disk in either order (STORE_TAIL_BYTES), on_disk moves in order. The
 * last bytes of a block, if they are few, are no run: bw_work_finalize() writes them (`left`).
 * A chunk that is only begun and on stable storage has its CRC there, and the next run replaces it.
 * The old one must not be lost before the new bytes are safe, or a power cut leaves bytes that no
 * CRC is of. So such a run is `ordered`: data, fdatasync, CRC; and no sync begins beside a run that
 * replaces a CRC and is not (block_write_sync.c).
 * Prefixes: bw_ is the write, wlane_ and wdisk_ those two files.
 */
#include <stdatomic.h>

#include "common/base/crc.h"
#include "common/wire/dt.h"
#include "datanode/admin/outliers.h"
#include "datanode/block/engine.h"

#define BW_PIECES 128 /* unacknowledged pieces of one write */
#define BW_LANES 6    /* slots one write may hold */
#define BW_RUNS 2     /* disk writes in flight of one write */
_Static_assert(BW_RUNS *PIECE_MAX <= STORE_TAIL_BYTES, "a crash leaves no more in disorder");
#define BW_DIO_MIN 32768 /* smaller runs go through the page cache */
#define BW_IDLE_NS 50000 /* upstream is silent for so long: write what is there */

/* An fdatasync of a file of the replica, which has its turn behind others of its volume. */
struct bw_sync {
	struct disk_request req;
	struct uring_op op;
	struct block_write *w;
	int fd;
	void (*done)(struct bw_sync *s, int rc);
};

struct lane {
	struct slot *slot;      /* NULL: lane free */
	struct slot *crcs;      /* sender's CRCs of [base, end) */
	struct slot *disk_crcs; /* CRCs as the replica keeps them; == crcs unless they differ */
	uint64_t base, end;
	uint64_t lo, hi;   /* bytes that this lane brings to the disk, [lo, hi) verified */
	uint32_t landings; /* given and not yet submitted */
	uint32_t users;    /* runs, pieces not yet sent on */
	bool open;         /* more may land */
};

struct run {
	struct offload offload;
	struct block_write *w;
	struct lane *lane;
	uint64_t from, to;
	bool under_way; /* a helper thread or its sync has it, and alone writes to what follows */
	bool direct, refused; /* refused: the file system takes no direct writes of this file */
	bool ordered;         /* its data is on stable storage before its first CRC is replaced */
	struct bw_sync data_sync;
	/* CRC of the last chunk where it is not full; in the lane it changes as the chunk goes on
	 */
	uint8_t edge[4];
	bool timed;
	int rc;
	uint64_t took_ns;
};

struct bpiece {
	struct piece p;
	struct lane *lane; /* NULL: no payload */
	uint64_t end;      /* on disk when on_disk reaches it */
	uint32_t tail_crc; /* CRC of the partial chunk at off + len, as the replica keeps it */
	uint8_t status;    /* ours */
	uint8_t down_count;
	bool forwarded, sent, down_acked, down_ok;
	uint64_t forward_ns; /* 0: its time is not taken */
};

enum block_write_state {
	BW_WAIT_DISK_OPEN,    /* helper prepares the replica; leaves on bw_done_open() */
	BW_CHAIN,             /* connect to the next hop, or none */
	BW_WAIT_NEXT_NODE,    /* next hop sets up; leaves on opened() or broken() of the sink */
	BW_RUN,               /* pieces flow; leaves when the last is acknowledged, or on failure */
	BW_DRAIN,             /* nothing new; waits for runs, syncs, helper and sink to come back */
	BW_WAIT_DISK_RELEASE, /* helper gives the writer back; leaves on bw_done_release() */
	BW_WAIT_RECOVERY,     /* a stop message is on its way to us; leaves on bw_on_stop() */
	BW_DONE,
};

struct block_write {
	struct rop rop;
	struct engine_core *core;
	struct list core_link;
	struct write_source *src;
	struct write_params params;
	struct replica_writer *rw;
	struct piece_sink *sink;
	struct sink_user sink_user;
	enum block_write_state state;
	int rc; /* why it fails; 0 while good */
	struct err err;

	enum crc_type crc_type; /* the sender's */
	uint32_t bpc, unit;     /* unit: lanes begin and end at multiples of it */
	bool dio, same_crc;

	uint64_t landed, received, submitted, on_disk, acked;
	uint32_t tail_crc;  /* of the partial chunk at received, as the replica keeps it */
	uint32_t acked_crc; /* likewise at acked */
	/* both as they were when the helper began to finalise: acks go on */
	uint64_t final_acked;
	uint32_t final_acked_crc;
	struct lane lanes[BW_LANES];
	struct lane *cur; /* lane that takes the next landing, or NULL */
	struct run runs[BW_RUNS];
	uint32_t run_head, run_tail; /* free running */
	/* CRC on disk of the chunk that holds on_disk, if that is within one */
	uint8_t edge[4];
	/* its bytes are the last and few: bw_work_finalize() writes them (wdisk_write_left()) */
	struct lane *left;
	bool left_timed;
	bool disk_failed;  /* runs: on_disk stays where it is */
	uint32_t landings; /* of all lanes */
	bool flush, idle, want_room;
	struct rtimer idle_timer;
	/* of its volume, next hop and connection, or NULL */
	struct buffers_share *shares[BUFFERS_SHARES];
#define BW_HOP_SHARE 1
	/* for one lane, charged to these; waits in line only while no lane is held */
	struct pool_ask ask;
	struct slot *set[3];            /* its slots: data, CRCs, CRCs as the replica keeps them */
	uint32_t set_forms[POOL_FORMS]; /* class of each form's data slot */
	bool granted;                   /* the set is there */
	uint64_t begun_ns, moved_ns;    /* for /ops: last progress */
	bool trickle;                   /* the last lane was closed by a flush: small lanes */
	struct rtimer buffers_timer;

	struct bpiece pieces[BW_PIECES];
	/* free running: unacked, next to forward, next down-ack, end */
	uint32_t head, fwd, down, tail;
	bool refused; /* answered with a failure */
	bool last_seen, answered, mirror_broken, sink_closing, restart_told;
	struct outlier_sum peer_time, disk_time; /* slow peers and disks: told at the end */
	char volume[BLOCK_UUID_MAX];             /* that the replica is on */
	bool down_done; /* the next node has acknowledged the last packet */

	/* on stable storage, or in the sync under way; an append begins with what was there */
	uint64_t sync_len;
	uint64_t data_synced_len; /* an ordered run has synced the block file so far */
	struct bw_sync sync_data, sync_meta;
	uint8_t sync_waiting;
	int sync_rc;
	int dir_rc;                   /* of the helper thread, read when it is done */
	uint32_t sync_covers, synced; /* pieces before these are on stable storage */
	struct offload dir_offload;
	bool dir_busy, dir_synced;

	struct offload offload; /* open, finalise, release: one after the other */
	bool offload_busy, finalized;
	int offload_rc;
	struct rmsg stop_msg;
	atomic_int stop_why; /* the first reason */
	atomic_bool stop_posted;
	bool stop_seen;
};

static inline uint64_t round_down(uint64_t v, uint64_t unit)
{
	return v / unit * unit;
}
static inline uint64_t round_up(uint64_t v, uint64_t unit)
{
	return (v + unit - 1) / unit * unit;
}
static inline void bw_ready(struct block_write *w)
{
	reactor_ready(w->core->reactor, &w->rop);
}
static inline bool bw_has_acks(const struct block_write *w)
{
	return w->params.client[0] && !w->params.transfer;
}
static inline bool bw_syncs_later(const struct block_write *w)
{
	return w->params.sync_later && w->core->dn->sync_on_close;
}
static inline struct bpiece *bw_piece_at(struct block_write *w, uint32_t i)
{
	return &w->pieces[i % BW_PIECES];
}

/* block_write_lane.c */
int wlane_land(struct block_write *w, uint64_t off, uint32_t want, struct landing *ret);
void wlane_unland(struct block_write *w, uint64_t off, const struct landing *land);
/** The lane of a landing that is being submitted. */
struct lane *wlane_of(struct block_write *w, const struct slot *slot);
/** Store the CRCs of a verified piece, new bytes up to its end are received. */
void wlane_accept(struct block_write *w, struct lane *lane, const struct piece *p,
		  const uint8_t *crcs);
static inline bool wlane_waits_for_buffers(const struct block_write *w)
{
	return pool_is_waiting(&w->ask);
}
/** Free it if it has no user. */
void wlane_put(struct block_write *w, struct lane *lane);
/** Nothing more lands in the one that is open. */
void wlane_close(struct block_write *w);
/** Bytes of buffers that the lanes hold. */
uint64_t wlane_held(const struct block_write *w);
/** The write comes to nothing: what neither a run nor the next node uses goes to others, however
 *  long a run takes. */
void wlane_give_back(struct block_write *w);

/* block_write_disk.c */
void wdisk_init(struct block_write *w);
/** Take note of runs that are done. */
void wdisk_reap(struct block_write *w);
/** Begin the runs that are due. */
void wdisk_plan(struct block_write *w);
/** A run is under way that replaces the CRC of a begun chunk before its bytes are on stable
 *  storage. */
bool wdisk_replaces_crc(const struct block_write *w);
static inline bool wdisk_idle(const struct block_write *w)
{
	return w->run_head == w->run_tail;
}
/** Helper thread: write what was left. -errno. */
int wdisk_write_left(struct block_write *w);
/** It is written, or never will be. */
void wdisk_left_done(struct block_write *w, bool written);
/** Give back lanes, what was granted and the place in the line for slots. No run may be in flight.
 */
void wdisk_fini(struct block_write *w);

/* block_write.c */
void bw_fail(struct block_write *w, int rc, const char *what);

/* block_write_replica.c */
/** Helper thread: leaves BW_WAIT_DISK_OPEN when the replica is there, or is not to be had. */
void bw_replica_open(struct block_write *w);
/** When all bytes are in the file: the helper thread writes what was left, and finalises. */
void bw_do_finalize(struct block_write *w);
/** Helper thread: leaves BW_WAIT_DISK_RELEASE. */
void bw_replica_release(struct block_write *w);

/* block_write_sync.c */
/** fdatasync for the pieces that ask for it and are in the file. */
void bw_do_sync(struct block_write *w);
/** fdatasync of @fd in its turn, then @done. */
void bw_sync_begin(struct block_write *w, struct bw_sync *s, int fd,
		   void (*done)(struct bw_sync *s, int rc));
/** The write has failed: what waits for its turn is not wanted any more. */
void bw_sync_leave_line(struct block_write *w);

/* block_write_hop.c */
/** Open the next hop, or go on without. */
void bw_do_chain(struct block_write *w);
/** Hand on what is verified. */
void bw_do_forward(struct block_write *w);
void bw_sink_close(struct block_write *w);
/** @bytes were waited for too long. What is stuck behind the next node has all that it may have:
 *  that one is to blame, not this node. False: it has not. */
bool bw_blame_hop(struct block_write *w, const struct pool_budget *hop, uint64_t bytes);
/** The piece's memory is not needed for the next hop any more. */
void bw_piece_sent(struct block_write *w, struct bpiece *b);
/** An ack to the sender: ours and those of the @n nodes behind. */
void bw_ack_up(struct block_write *w, int64_t seq, uint8_t own, const uint8_t *down, uint32_t n);
