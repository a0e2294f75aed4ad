/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * striped_writer - an erasure-coded file being written: cells to data units, parity behind them
 *
 * Idea: a block group is k + m blocks, each with a pipeline (pipeline.h) of its own to one node.
 * Bytes are copied once, into the packet of the unit whose cell they belong to; the packet goes out
 * at once, and is held besides until the same column of all k cells of the row is there:
 *
 *      column:      0    1    2    3
 *      unit 0     [....|....|....|....]   cells of a row, cut into packets at the same places
 *      unit 1     [....|....|....|....]
 *      unit 2     [....|..              <- the last data unit is being filled: column 0 is coded
 *      parity     [....|                   as soon as its packet is full, and sent
 *
 * Parity is coded from the packets into the packets that carry it, so it is never copied, and
 * coding goes on while packets are sent. A row that ends early is coded as far as its first cell
 * reaches: what a cell lacks counts as zeros (common/erasure/geometry.h).
 * A unit's node may fail: its packets are dropped from then on, but its cells are still coded, so
 * up to m units may fail and every byte is there. At the end of the row the others are drained, and
 * the group gets a new stamp with an empty place for each lost unit, so that what the lost nodes
 * hold is stale (striped_group.c). The next group is asked for on other nodes.
 * Units are set up side by side: each when its first packet is there, which waits in its pipeline
 * meanwhile; when the first parity is coded all are waited for, so that a writer that pauses leaves
 * nothing half done.
 * A flush ends the group (docs/design/ec-sync.md).
 * When more than m units fail, the group is begun again on the nodes there are, as long as all its
 * bytes are still here: the first STRIPED_KEEP_BYTES of a group are kept in their packets for that,
 * until it is longer (striped_restart.c). A group that has no unit left to lose ends with its row
 * when other nodes may be had, so that the next one is whole again.
 * A unit whose next packet waits in vain for memory of this process (pipeline_is_dry()) is an error
 * with dfs.client.rdma=require, and nothing is lost by it: no bytes were taken, or all of them, and
 * the next call goes on with what was begun. Else the unit is left out, and its node is not blamed.
 * Nor is that of one whose RDMA connection breaks, where TCP is allowed (pipeline_forgives()).
 * Ownership: as the contiguous writer's: packets belong to the pool, the units' pipelines and
 * `row`.
 * Threading: as output.h says; the lock is the file's.
 * Units: offsets in the group unless "file" or "unit" is in the name.
 * Source: hdfs-wire 7.2 to 7.5, 8.1; Hadoop 3.4.2 DFSStripedOutputStream.
 */
#include "client/src/striped/block_group.h"
#include "client/src/write/output.h"
#include "client/src/write/pipeline.h"
#include "common/erasure/coder.h"

struct striped_unit {
	struct pipeline pipe;
	struct packet *cur; /* data units: being filled; NULL between packets */
	/* the node was asked to begin it, by a connection that broke, and again: if it refuses now
	 * that is no fault of it */
	bool repeated;
	char why[160]; /* it failed: node and reason */
};

struct striped_writer {
	struct output f; /* the file and its current group, for the NameNode */
	struct ec_policy policy;
	struct ec_coder *coder; /* owned */
	uint64_t unit_max;      /* bytes of a unit's block when it is full: whole cells */
	uint64_t block_size;    /* of the file, as nodes are told */
	uint32_t packet_cap;    /* bytes of a column; the last one of a cell may be shorter */
	uint32_t columns;       /* packets of a cell */
	uint32_t window;        /* packets of a unit in its pipeline */

	/* owned; the group as addBlock answered; NULL: none is open */
	Hd__LocatedBlockProto *lb;
	Hd__LocatedBlockProto *stamp; /* owned; tokens of the last new stamp; NULL */
	struct group group;           /* view of lb */
	/* the last group is finished, and the NameNode does not know it yet */
	bool to_commit;
	bool parked;   /* an empty group without nodes waits behind the last one */
	bool again;    /* the group was begun before, on other nodes or the same */
	bool lost;     /* more units failed than it can do without */
	bool all_kept; /* its bytes are all in `kept`, `row` and the units' `cur` */
	bool trying;   /* striped_try_again() is under way, and waits itself */
	bool told;     /* the log says that nodes are waited for */
	/* nodes were waited for, and no group has ended with some parity since; 0: not so */
	uint64_t bare_since_ns;
	/* it was to be finished, and could not be yet: nothing more goes into it */
	bool ending;
	unsigned began_without;        /* units that no node was there for */
	Hd__ExtendedBlockProto before; /* `previous` of its addBlock, */
	uint64_t before_len;           /* its length, */
	bool has_before;               /* if there was one */
	uint64_t offset;               /* bytes of the group taken from the caller */
	uint32_t coded;                /* columns of this row whose parity is queued */
	uint32_t failed;               /* set of units that are lost to this group */
	uint32_t untold;               /* those of them the NameNode has not heard of */
	struct striped_unit unit[EC_UNITS_MAX];
	struct packet **row;  /* owned; [k][columns], packets held for the parity of this row */
	struct packet **kept; /* owned; [keep_rows][k][columns], of the rows before it */
	uint32_t keep_rows, rows_kept;

	uint64_t file_done; /* bytes in finished groups */
};

struct striped_opts {
	uint64_t file_id, block_size;
	uint32_t bpc;
	enum crc_type crc_type;
	bool no_local;
	struct ec_policy policy;
};

/** -EINVAL the policy's cell is no multiple of bytes-per-checksum, or larger than a block; -ENOTSUP
 *  a codec that we have not; -ENOMEM, or housekeeper_add()'s error. */
int striped_writer_new(struct dfs *fs, const char *path, const struct striped_opts *o,
		       struct striped_writer **ret, struct err *err);
/** Go on behind the @length bytes of a file with a new group. @lb (taken): its last block as
 *  append() answers, or NULL. For a new writer. */
int striped_writer_reopen(struct striped_writer *w, Hd__LocatedBlockProto *lb, uint64_t length,
			  struct err *err);

/* ---- striped_writer.c, for striped_restart.c; the lock is held ---- */

/** Some of the @len > 0 bytes, into the group that is open or a new one: how many. */
ssize_t striped_take(struct striped_writer *w, const void *buf, size_t len, struct err *err);
/** The group that is open, if any, ends here. */
int striped_finish(struct striped_writer *w, bool sync, struct err *err);
/** What is held of the row, and of those before it, is not needed any more. */
void striped_release(struct striped_writer *w);

/* ---- striped_restart.c: groups that lost too many units; the lock is held ---- */

/** The row is whole: its packets are kept for another attempt, or none are any more. */
void striped_keep_row(struct striped_writer *w);
/** After an operation that returned @rc < 0: the group is begun again with all that was taken of
 *  it, and with @finish ended, if that can help and until dfs.client.socket-timeout is over. 0, or
 *  @rc with *@err as it was. */
int striped_try_again(struct striped_writer *w, int rc, bool finish, bool sync, struct err *err);
/** striped_group_open(). A group that is refused for want of nodes, or would begin without parity
 *  where that is not wanted, waits for nodes that have failed this writer; after
 *  dfs.client.socket-timeout without a group that has some parity it is refused. */
int striped_group_open_patiently(struct striped_writer *w, struct err *err);

/* ---- striped_group.c: groups, their nodes, and failures of these; the lock is held ---- */

/** Units that can take bytes now: no stream yet, or one that works. */
static inline bool striped_is_good(const struct striped_writer *w, unsigned u)
{
	return !(w->failed & 1u << u);
}
static inline unsigned striped_units(const struct striped_writer *w)
{
	return w->policy.k + w->policy.m;
}
/** addBlock: a group behind the last one. */
int striped_group_open(struct striped_writer *w, struct err *err);
/** Takes @p, which is a packet of unit @u's pipe, and sets the unit's pipeline up for the first
 *  one. A lost unit's is dropped. Fails when too many units have. */
int striped_queue(struct striped_writer *w, unsigned u, struct packet *p, struct err *err);
/** One turn of all pipelines: acks in, packets out, and with @wait until one of them can move. */
int striped_turn(struct striped_writer *w, bool wait, struct err *err);
/** Until the units whose set-up was begun are set up, or lost. */
int striped_await_opened(struct striped_writer *w, struct err *err);
/** Until everything queued is acknowledged by the units that are left. */
int striped_drain(struct striped_writer *w, struct err *err);
/** Tell the NameNode and the other nodes about units that failed, if there are any untold. All
 *  bytes of the group must be queued, and its parity. */
int striped_repair(struct striped_writer *w, struct err *err);
/** Drain, repair, finalise the units, with @sync on disk; the group is f's last block from then on.
 */
int striped_group_finish(struct striped_writer *w, bool sync, struct err *err);
/** After striped_group_finish(): the NameNode commits the group, for good, and keeps an empty one
 *  without nodes behind it (docs/design/ec-sync.md). */
int striped_group_park(struct striped_writer *w, struct err *err);
/** Can no unit more be lost, and might a new group have more? */
bool striped_group_is_bare(struct striped_writer *w);
/** The open group has no nodes and no bytes any more; the next addBlock gives it out again. */
int striped_group_undo(struct striped_writer *w, struct err *err);
/** The group is over: forget its nodes. */
void striped_group_drop(struct striped_writer *w);
