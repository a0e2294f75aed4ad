/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: sim - the NameNode's own code among data nodes and writers that are models, in one
 * thread, on a clock of its own
 *
 * A history is what follows from a seed: writers create, write, append to, cut, rename and delete
 * files; nodes beat, report, copy, recover and delete as they are told; meanwhile nodes crash, are
 * cut off, lose replicas and come back, and the NameNode is started anew. Then all faults end, time
 * goes on, and the model says what must be so (check.c). Bytes are numbers that were never written
 * before, so that a mixed, old or foreign byte is seen as such.
 * What is not modelled: the disk of the NameNode (nn_crash and nn_checkpoint have that).
 * Time: a turn of the NameNode takes 50 us; a wait ends at its deadline at once.
 */
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "DatanodeProtocol.pb-c.h"
#include "common/base/block.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"

#define NODES 6
#define DISKS 2 /* of a node */
#define WRITERS 4
#define FILES 6
#define BLOCK_MAX 16 /* bytes of a block */
#define BLOCKS_MAX 4 /* of a file */
#define FILE_MAX (BLOCK_MAX * BLOCKS_MAX)
#define UNITS 5 /* of RS-3-2-1024k; their bytes are not modelled, only how many */
#define UNITS_NEEDED 3
#define GROUP_BLOCK (1u << 20) /* block size of a striped file */
#define REPLICAS_MAX 192       /* of a node */
#define QUEUE_MAX 256

/* ---- calls ---- */

struct sim_call {
	struct method method; /* as the NameNode's, but run() */
	const struct method *real;
	const char *host; /* of the caller; borrowed */
	int rc;
	char error[160];
	ProtobufCMessage *out; /* owned; of a call that succeeded */
	struct call_stat stat; /* it was answered */
	bool busy;
};

/* ---- data nodes ---- */

struct sim_replica {
	struct block b;
	enum replica_state state, orig; /* orig: of one under recovery */
	uint64_t recovery;
	bool bad; /* its bytes are not what was written */
	int disk;
	uint32_t byte[BLOCK_MAX];
	uint32_t group_len; /* of a unit: data bytes of its group */
};

struct sim_news {
	struct block b;
	Hdd__ReceivedDeletedBlockInfoProto__BlockStatus status;
	int disk;
};

struct sim_order {
	enum { SIM_COPY, SIM_RECOVER, SIM_RECOVER_GROUP, SIM_DECODE } kind;
	struct block b;
	uint64_t new_gs;
	int64_t cut;    /* length to cut to; -1: none */
	bool all_units; /* of a group to be recovered: nobody else can have one */
	int to[NODES], n;
	uint8_t unit
		[NODES]; /* of a group: of each of these nodes; of SIM_DECODE: to be made there */
};

struct sim_node {
	char uuid[16], ip[24];
	bool up, linked, registered, full_report; /* full_report: one is due */
	uint64_t beat_ns;
	int out; /* this disk has failed; -1: none */
	struct sim_replica rep[REPLICAS_MAX];
	uint32_t nreps;
	struct sim_news news[QUEUE_MAX];
	uint32_t nnews;
	struct sim_order order[QUEUE_MAX];
	uint32_t norders;
};

/* ---- files and who writes them ---- */

enum sim_file_state {
	SIM_NONE,
	SIM_CLOSED,
	SIM_OPEN,    /* has a writer */
	SIM_LEFT,    /* its writer is gone: somebody must close it */
	SIM_CUTTING, /* a truncate within a block is under way */
};

struct sim_file {
	char path[16];
	enum sim_file_state state;
	uint64_t id;
	/* acknowledged; of one that is left it may have up to `tried` */
	uint32_t len, tried;
	uint32_t byte[FILE_MAX];
	bool ec;
	uint32_t repl;
	uint32_t begins; /* its last block */
	/* the NameNode was started anew since that was added: when its nodes are away it cannot
	 * know whether anything of it was written, and closes the file without it, as Apache's */
	bool forgotten;
	bool busy; /* somebody is in a call about it */
};

struct sim_writer {
	char name[8];
	struct sim_file *file; /* that it has open, or its call is about */
	struct sim_file *to;   /* of a rename */
	struct block b;        /* id 0: no block; len: of what is acknowledged */
	uint32_t begins;       /* where the block begins in the file */
	int at[NODES], n;      /* its pipeline; of a group: node of each unit, or -1 */
	uint32_t avoid;        /* nodes, as bits */
	bool broken, closed_block;
	uint64_t next_gs;
	uint32_t arg; /* of its call: a length, a number of replicas */
	uint64_t renew_ns;
	struct sim_call call;
	void (*then)(struct sim_writer *w);
};

/* ---- the whole ---- */

/* What of a history may be left out, to see whether it fails without. */
enum sim_part {
	SIM_APPEND,
	SIM_TRUNCATE,
	SIM_RENAME,
	SIM_REMOVE,
	SIM_REPLICATION,
	SIM_LEASES,  /* somebody takes a file over */
	SIM_GONE,    /* writers vanish */
	SIM_CRASH,   /* nodes */
	SIM_UNLINK,  /* nodes from the NameNode */
	SIM_LOSS,    /* of replicas */
	SIM_DISKS,   /* fail, with what is on them */
	SIM_RESTART, /* of the NameNode */
	SIM_LATE,    /* news and orders wait */
	SIM_EC,      /* striped files */
	SIM_PARTS
};
extern const char *const sim_part_names[SIM_PARTS];

struct sim {
	struct nn *nn;
	struct conf *conf;
	char dir[64];
	uint64_t seed, rng;
	uint32_t without; /* parts, as bits */
	uint32_t step;
	bool trace, calm; /* calm: faults have ended */
	uint32_t next_byte;
	struct sim_node node[NODES];
	struct sim_writer writer[WRITERS];
	struct sim_file file[FILES];
	char wrong[400]; /* what must not be; empty: nothing yet */
	uint64_t calls;
};
extern struct sim sim;

/* world.c */
void sim_begin(uint64_t seed);
void sim_end(void);
/** A number below @n, and whether something of @percent happens. */
uint32_t sim_below(uint32_t n);
bool sim_chance(uint32_t percent);
static inline bool sim_may(enum sim_part p)
{
	return !sim.calm && !(sim.without >> p & 1);
}
uint64_t sim_now_ns(void);
void sim_sleep_ms(uint64_t ms);
/** @c stays until it is !busy. */
void sim_submit(struct sim_call *c, const char *method, const void *msg, const char *host);
/** What was submitted runs; sets busy of what was answered. */
void sim_turn(void);
/** Forget the answer. */
void sim_call_end(struct sim_call *c);
void sim_restart(void);
/** Nothing is in a call any more. */
void sim_drain(void);
void sim_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/** The first one counts. */
void sim_wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* nodes.c */
void node_init(struct sim_node *d, int i);
/** Something that it does by itself. */
void node_step(struct sim_node *d);
/** What is due: heartbeats. */
void node_beat(struct sim_node *d);
void node_report(struct sim_node *d);
void node_crash(struct sim_node *d);
void node_start(struct sim_node *d);
struct sim_replica *node_find(struct sim_node *d, int64_t id);
struct sim_replica *node_add(struct sim_node *d, const struct block *b, enum replica_state state);
void node_remove(struct sim_node *d, struct sim_replica *r);
/** It is up, and a copy of @b may take the place of what it has: may_replace() of the store. */
bool node_takes_copy(struct sim_node *d, const struct block *b);
/** @method answered; *c holds what it said. */
int node_call(const struct sim_node *d, struct sim_call *c, const char *method, const void *msg);
struct sim_order *order_add(struct sim_node *d, const struct block *b, int kind);
void order_target(struct sim_order *o, const Hd__DatanodeInfoProto *t);
/** The disk for what is written next. */
int node_disk(const struct sim_node *d);
/** @d has a replica of @b, or had one until now. */
void node_tell(struct sim_node *d, const struct block *b,
	       Hdd__ReceivedDeletedBlockInfoProto__BlockStatus status);
struct sim_node *node_of(const char *uuid);
/** A replica is lost, or its bytes change, and the node says so at once: a NameNode that does not
 *  know may choose this one to stay. Never the last good one but one. */
void node_lose_some(void);

/* recovery.c */
/** @d is the primary. */
void node_recover(struct sim_node *d, const struct sim_order *o);
/** A recovery ended: @n replicas, of a group its units, are at these nodes; -1: a unit is nowhere.
 *  @n is 0: the block is to be removed. */
void order_commit(const struct sim_node *d, const struct sim_order *o, const int *at, int n,
		  uint64_t len);

/* writers.c */
void writer_init(struct sim_writer *w, int i);
void writer_step(struct sim_writer *w);
/** Its call was answered. */
void writer_answered(struct sim_writer *w);
void writer_renew(struct sim_writer *w);
/** Whatever it does, it gives up. */
void writer_vanish(struct sim_writer *w);

/* groups.c: the same of striped files */
void group_setup(struct sim_writer *w, const Hd__LocatedBlockProto *lb);
/** A step of its writer, who has a group. True: it is done, and may be told to the NameNode. */
bool group_go_on(struct sim_writer *w);
/** The units that are left go on at the new stamp. False: too few. */
bool group_reopen(struct sim_writer *w);
void group_take_rebuilds(struct sim_node *d, const Hdd__BlockECReconstructionCommandProto *c);
void group_decode(struct sim_node *d, const struct sim_order *o);
void group_recover(struct sim_node *d, const struct sim_order *o);
void group_check(const struct sim_file *f, const struct block *b);
/** How many units beside that of @d can be read? */
uint32_t group_others(const struct sim_replica *unit, const struct sim_node *but);
/** Bytes of a unit of a group of @len. */
uint64_t group_unit_len(uint64_t len, unsigned unit);

/* check.c */
/** Files that were left, or are cut, may be closed by now. */
void check_left(void);
/** A good replica on node @d is about to go, by an order. */
void check_delete(const struct sim_node *d, const struct sim_replica *r);
/** How many good replicas of the block, as the namespace has it, there are but on @but. */
uint32_t check_others(const struct block *b, const struct sim_node *but, bool only_up);
/** The block as the namespace has it. False: it has none. *ret_open: its file is. */
bool check_block(int64_t id, struct block *ret, bool *ret_open);
/** All faults are over, and have been for long. */
void check_all(void);
