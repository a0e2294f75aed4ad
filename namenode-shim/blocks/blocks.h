/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * blocks - which storage holds which block
 *
 * Idea: the namespace knows a block's id, stamp and length; where its replicas are is known only
 * from reports, and lives here. Every report of a replica goes through one rule (blocks_report),
 * every change of a block through one check (blk_recheck) that keeps the counts and the queue of
 * blocks that need another replica, and orders surplus and corrupt replicas deleted. Where the
 * storage policy has a say in which are surplus, which this does not know, the block waits for the
 * monitor (BLK_SURPLUS).
 * States of a block: OPEN (a client writes), COMMITTED (client stated stamp and length), COMPLETE
 * (and a finalized replica with just these was reported). A block whose file is closed before that
 * is COMPLETE once no replica of it is awaited any more: then it is missing, or short of replicas,
 * like others.
 * A file with an erasure-coding policy has groups in place of blocks: b.id is the group's id, b.len
 * its data bytes, and each replica is one unit of it (replica.unit), reported under an id of its
 * own. What differs for them is in blocks_striped.c: what is live is counted in units, not in
 * replicas.
 * Ownership: the map owns blocks and replicas; storages are borrowed from the data node table,
 * which frees them only after it has none of them any more.
 * Threading: changed by the writer thread with nn->mem_lock held for writing; read by others with
 * it held for reading.
 * Source: hdfs-wire section 4 "NN treatment", 8.2.
 */
#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>

#include "common/base/block.h"
#include "common/base/list.h"
#include "common/erasure/geometry.h"
#include "namenode-shim/blocks/datanodes.h"
#include "namenode-shim/db/effect.h"

struct storage_policy;

enum blk_state { BLK_OPEN, BLK_COMMITTED, BLK_COMPLETE };

struct replica {
	struct storage *st; /* borrowed */
	uint64_t gs, len;   /* as reported */
	uint8_t state;      /* enum replica_state */
	/* not to be read; deleted once enough good ones exist: by what was reported of it, or */
	bool corrupt : 1;
	bool wrong : 1; /* somebody found wrong bytes in it; stays until the replica is gone */
	/* wrong, or corrupt and ordered deleted: later reports do not make it good */
	bool damaged : 1;
	bool excess : 1; /* being deleted */
	uint8_t unit;    /* of a group; else 0 */
	uint32_t seq;    /* full report it was last seen in */
};

/* A replica on its way. */
struct pending {
	struct storage *st; /* borrowed */
	uint64_t deadline_ns;
	/* only compared: its replica goes when this one is there; NULL: any */
	const struct dn *drop;
};

/* A replica of an open block on a node that was lost since: it may come back with bytes. */
struct blk_lost {
	char node[BLOCK_UUID_MAX], storage[BLOCK_UUID_MAX]; /* may be freed meanwhile */
	uint8_t unit;                                       /* of a group; else 0 */
};

/* What only blocks under construction have. */
struct blk_open {
	struct storage **target; /* owned array; where the pipeline writes */
	uint32_t ntargets;
	/* so many, the first of them, were given at since_ns, and not lost since */
	uint32_t steady;
	uint64_t since_ns;
	/* of its pipeline, or reported; each is a target again when it is back and is asked */
	struct blk_lost *lost; /* owned array */
	uint32_t nlost;
	/* nodes that its pipeline was given, also those that were lost since; 0: this process never
	 * saw it */
	uint32_t pipeline;
	uint32_t ngone; /* of these, had disks that were replaced: they do not come back */
	bool told;      /* a node was told to recover it: replicas may have a newer stamp */
	uint8_t target_unit[EC_UNITS_MAX]; /* of a group, which has no more targets than this */
	uint64_t recovery_id;              /* 0: none running */
	uint64_t recovery_until_ns;        /* no further attempt before */
	uint32_t primary_turn;
	uint64_t room, room_ns; /* bytes promised on each target, and when (storage_promise()) */
	/* so is its file: committed, it is complete when nothing is awaited */
	bool closed;
	/* length that recovery is to leave; NO_TRUNCATE: not this one's business */
	uint64_t truncate_to;
	struct blk *blk;        /* its block */
	struct list recovering; /* in blocks.recovering while recovery_id */
};

enum blk_flag {
	BLK_UNDER = 1,
	BLK_MISSING = 2,
	BLK_CORRUPT = 4,      /* has a corrupt replica */
	BLK_SAFE = 8,         /* enough replicas for safe mode */
	BLK_MISSING_ONE = 16, /* missing, and only one replica was ever wanted */
	BLK_URGENT = 32,      /* one good replica left of several wanted */
	/* enough replicas, all in one rack, and there are others: its loss would end it; of a
	 * group: its units could stand in more racks, or more evenly */
	BLK_CROWDED = 64,
	/* more good replicas than wanted, on storages of several types: the policy of the file says
	 * which go */
	BLK_SURPLUS = 128,
};

struct blk {
	struct block b;
	uint64_t inode;
	uint16_t repl; /* replicas wanted; of a group: its units, k + m */
	uint8_t state; /* enum blk_state */
	uint8_t flags; /* enum blk_flag, counted in struct blocks */
	uint16_t nreps, npending;
	struct replica *rep;     /* owned array, one to a node (and unit) */
	struct pending *pending; /* owned array */
	struct blk_open *open;   /* owned; NULL unless under construction */
	/* in blocks.first or .under while BLK_UNDER, else in .surplus or .crowded while it is that
	 */
	struct list work;
	struct list waiting; /* in blocks.awaiting while npending */
	UT_hash_handle hh;
};

/* A striped block; told from others by its id, so that those carry nothing for it. */
struct blk_group {
	struct blk blk;
	const struct ec_policy *ec; /* borrowed: built in, or blocks.policies' */
};

/** NULL: replicated. */
static inline const struct ec_policy *blk_ec(const struct blk *b)
{
	return ec_id_is_striped(b->b.id) ? container_of(b, struct blk_group, blk)->ec : NULL;
}

/* Of how many blocks flags are set. */
struct blk_sums {
	uint64_t total, under, missing, corrupt, urgent;
};

/* A place in the map. Blocks come and go meanwhile: those that are there from begin to end are
 * passed once. */
struct blk_cursor {
	struct list link; /* in blocks.cursors */
	struct blk *next; /* NULL: the end */
};

/* A storage that was lost twice within 10 minutes comes and goes for as long. */
#define BLOCKS_STEADY_NS 600000000000ull

struct blocks {
	struct blk *map; /* by id */
	/* owned: administrators', once a group has them */
	struct ec_policy *policies[EC_ID_LAST + 1];
	struct blk_sums groups; /* those of the counts below that are groups */
	/* the urgent ones, the others, those to be spread, those with too many */
	struct list first, under, crowded, surplus;
	struct list awaiting;
	struct list recovering;
	struct list cursors;
	struct list swept;       /* of storage.swept: those with something to do */
	struct blk_cursor sweep; /* linked while a walk is under way */
	/* how often something happened that can make a block short which decommissioning has
	 * counted as safe */
	uint64_t asked;
	/* so many times over the map, and each block was checked since it was asked for */
	uint8_t recheck_passes;
	uint64_t complete; /* blocks of state COMPLETE */
	uint64_t under_count, missing, corrupt, safe, missing_one, urgent, crowded_count,
		surplus_count;
	bool many_racks;              /* live nodes stand in more than one */
	struct unit_racks unit_racks; /* what groups are to have of them */
	/* while one report is judged: this node rather than another gives a replica up */
	const struct dn *drop_hint;
	uint64_t pending_timeout_ns;
	uint32_t repl_min;        /* finalized replicas that make a committed block complete */
	uint32_t maintenance_min; /* replicas elsewhere that let a node go into maintenance */
	uint32_t safe_min;        /* replicas that make a block count for leaving safe mode */
	bool quiet;               /* safe mode: order nothing */
};

void blocks_init(struct blocks *bs, uint64_t pending_timeout_ns, uint32_t repl_min);
void blocks_fini(struct blocks *bs);
/** A group is found by the id of any of its units. */
struct blk *blocks_find(const struct blocks *bs, int64_t id);
/** A block that is not in the map yet. */
struct blk *blocks_add(struct blocks *bs, const struct block *b, uint64_t inode, uint16_t repl,
		       enum blk_state state);
/** The same for a group; the policy is copied where it must be. */
struct blk *blocks_add_group(struct blocks *bs, const struct block *b, uint64_t inode,
			     const struct ec_policy *ec, enum blk_state state);
/** Its file is gone: order its replicas deleted, and forget it. */
void blocks_remove(struct blocks *bs, struct blk *b);

/** Where the pipeline of an open block writes, of a group @units[i] at @st[i]; NULL: in their
 * order. */
void blk_set_targets(struct blk *b, struct storage *const *st, const uint8_t *units, uint32_t n);
/** An open block was, or was to be, written there, and the node is lost. */
void blk_add_lost(struct blk *b, const struct storage *st, uint8_t unit);
/** The same, by names: the node may not have registered yet. */
void blk_add_away(struct blk *b, const char *node, const char *storage, uint8_t unit);
/** Nodes of its pipeline are away that may come back with bytes. */
bool blk_targets_missing(const struct blk_open *o);
/** A primary has asked the targets and found no replica: may there be one on a node that was lost?
 */
bool blk_may_be_elsewhere(const struct blk *b);
/** Recovery asks the pipeline, also nodes of it that were lost and are back, and who else has
 *  reported a replica that is not older: this process may never have seen the pipeline. One whose
 *  bytes are wrong is asked only when there are too few others. */
void blk_target_all(struct blk *b, const struct datanodes *d);
/** On each target so many bytes were promised at @since_ns; given back where the block is not
 * written. */
void blk_set_room(struct blk *b, uint64_t bytes, uint64_t since_ns);
/** The client stated stamp and length; targets that have not reported are awaited. */
void blk_commit(struct blocks *bs, struct blk *b, const struct block *now);
/** Its file is closed. A block that is committed is complete when what its pipeline wrote is
 * reported, or not awaited any more. */
void blk_close(struct blocks *bs, struct blk *b);
/** Written again (append, truncate): the stored length and stamp stay until the pipeline is
 * updated. */
void blk_reopen(struct blocks *bs, struct blk *b);
/** Recovery @id begins (0: ended) and is tried again from @until_ns on. */
void blk_set_recovery(struct blocks *bs, struct blk *b, uint64_t id, uint64_t until_ns);
void blk_set_repl(struct blocks *bs, struct blk *b, uint16_t repl);

/** One replica in a report. @first: in the first full report of the storage in this process's
 *  life. @seq: of the full report, or 0. A node has one replica of a block: what it reports on
 *  another storage is the same one, moved. */
void blocks_report(struct blocks *bs, struct storage *st, const struct block *r, uint32_t state,
		   bool first, uint32_t seq);
/** A finalized replica was copied so that @from can give its own up (balancer, mover). @from NULL:
 * any node can. */
void blocks_report_moved(struct blocks *bs, struct storage *st, const struct block *r,
			 const struct dn *from);
/** Deleted by the node. @gs: the stamp that it had; 0: not known. */
void blocks_report_deleted(struct blocks *bs, struct storage *st, int64_t id, uint64_t gs);
/** Begin of a full report, which has number st->report_seq then: what was not listed in those
 *  before is settled by this one. */
void blocks_report_begin(struct blocks *bs, struct storage *st);
/** Its end: forget what the storage no longer listed (blocks_sweep()). */
void blocks_report_end(struct blocks *bs, struct storage *st);
/** A replica was found corrupt by a reader, a scanner or a receiver. @st NULL: whichever @dn has.
 *  @by_node: a node says so, which may have it and not have said so yet. */
void blocks_report_corrupt(struct blocks *bs, const struct block *r, const struct dn *dn,
			   struct storage *st, bool by_node);
/** Forget the replicas of a node (or of one storage): it is dead or replaced. Like the others of
 *  these it only says what is to be done; until blocks_sweep() has done it replicas of nodes that
 *  are dead and of storages that failed are in the map, and do not count. */
void blocks_forget(struct blocks *bs, struct dn *dn, struct storage *only);
/** It is back: what was not forgotten yet is kept. Its next full report has the last word. */
void blocks_keep(struct blocks *bs, struct storage *st);

/** Finalized, good, not being deleted, on living nodes that stay. Of a group: different units that
 * are. */
uint32_t blk_live(const struct blk *b);
/** Of these, the ones on storages that do not come and go (storage.unsteady). */
uint32_t blk_steady(const struct blk *b);
/** Those and the ones of living nodes that are to leave: from where it can be read. */
uint32_t blk_readable(const struct blk *b);
/** Bytes that data nodes have of a block of @len bytes, in replicas or units that can be read;
 * twins count once. */
uint64_t blk_stored(const struct blk *b, uint64_t len);
/** How many of blk_live() there should be: fewer while replicas are in maintenance. */
uint32_t blk_wanted(const struct blocks *bs, const struct blk *b);
/** Stamp and length fit, finalized: enough of them that the block is complete? For an open block:
 *  fits what the client is about to commit. @repl_min: replicas; of a group it is as many units as
 *  it can be read with. */
bool blk_enough_as(const struct blk *b, uint64_t gs, uint64_t len, uint32_t repl_min);
/** Id under which a node has replica @r. */
static inline int64_t blk_replica_id(const struct blk *b, const struct replica *r)
{
	return b->b.id + r->unit;
}
/** Length of unit @unit when the block has @len; of a replica: @len. */
uint64_t blk_unit_len(const struct blk *b, uint64_t len, unsigned unit);
#define GROUP_UNIT(unit) (1u << (unit)) /* in such a set: */
/** Sets of units of a group: good ones on living nodes that stay; on any living node; on nodes that
 *  are in maintenance or enter it, which may be away. Only those that exist at its length. */
uint32_t group_live(const struct blk *b);
uint32_t group_readable(const struct blk *b);
uint32_t group_away(const struct blk *b);
/** Where the units of a group stand, as if every move on its way had ended. */
struct group_racks {
	uint32_t racks; /* different ones */
	/* units in the rack of this unit, itself too; 0: it is nowhere */
	uint8_t with[EC_UNITS_MAX];
	const struct storage *at[EC_UNITS_MAX]; /* borrowed */
};
void group_racks(const struct blk *b, struct group_racks *ret);
void blk_recheck(struct blocks *bs, struct blk *b);
void blk_add_pending(struct blocks *bs, struct blk *b, struct storage *st, uint64_t deadline_ns);
/** The same, and @drop loses its own when it has arrived. */
void blk_add_move(struct blocks *bs, struct blk *b, struct storage *st, uint64_t deadline_ns,
		  const struct dn *drop);
/** The order was dropped before it left: nothing comes to @st. */
void blk_drop_pending(struct blocks *bs, struct blk *b, const struct storage *st);
/** The order to delete a replica leaves for @dn only now. True: not any more, as the replica has
 *  come since (a copy), or was surplus and is needed again since another one was lost; it counts
 *  then. */
bool blocks_take_back_drop(struct blocks *bs, const struct dn *dn, int64_t id, uint64_t gs);
/** Give up replicas that did not arrive by their deadline: a slice of the blocks that wait for any,
 * in turn. */
void blocks_expire_pending(struct blocks *bs, uint64_t now_ns);
/** Delete one corrupt or never finished replica though there are fewer good ones than wanted: there
 *  is no other node to copy to. False: there is none, or one is being deleted, or the block cannot
 *  be read from good ones (or only just, and it is corrupt), or a copy is on its way, or its node
 *  would take no other one. */
bool blk_drop_one_bad(struct blocks *bs, struct blk *b);
/** Of a block that is BLK_SURPLUS: those on storage types that @policy, of its file, does not want
 * go first; but its racks stay. */
void blk_drop_surplus(struct blocks *bs, struct blk *b, const struct storage_policy *policy);
/** Check every block of a node whose state has changed. */
void blocks_recheck_node(struct blocks *bs, struct dn *dn);
/** Live nodes stand in so many racks; check all blocks when that matters. */
void blocks_set_racks(struct blocks *bs, uint32_t racks);
/** The same of the nodes that take units, for groups. */
void blocks_set_unit_racks(struct blocks *bs, const struct unit_racks *u);
/** After safe mode: check every block once. */
void blocks_recheck_all(struct blocks *bs);
/** Do what was asked for above, for up to @n blocks. */
void blocks_sweep(struct blocks *bs, uint32_t n);
/** Is there anything to do? */
bool blocks_must_sweep(const struct blocks *bs);
/** Go over all blocks. A cursor that was begun is begun anew. */
void blk_cursor_begin(struct blocks *bs, struct blk_cursor *c);
/** NULL: that was all. */
struct blk *blk_cursor_next(struct blk_cursor *c);
/** All zero, or at the end: false. */
bool blk_cursor_is_open(const struct blk_cursor *c);
