/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * ledger - what clients of a simulated cluster did, and so what must be true
 *
 * Shared memory of the director and the clients, which outlives each of them. A file belongs to one
 * client at a time. What a client does is written here before it begins, and what came of it when
 * it knows; a client that was killed in between leaves both possible.
 *
 * Byte i of a file is byte_of(salt, i), where each stretch of the file has a salt of its own; it
 * gets a new one where bytes are written after a cut. So a byte of another file, of another place
 * or of before a cut shows.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEDGER_ENV "DFS_SIM_LEDGER"
#define FILES 512
#define STRETCHES 8
#define WORKERS 32
#define LARGEST (300u << 10) /* bytes of a file */
#define ROTTEN 256
#define BLOCKS 4096

enum existence {
	NO_FILE, /* never made, or deleted */
	MAY_BE,  /* nobody knows: an answer never came */
	IS_THERE,
};

struct stretch {
	uint64_t from, salt;
};

struct file {
	enum existence state;
	uint32_t number;   /* its name is /f/NUMBER */
	uint32_t may_name; /* or this one, after a rename without an answer; 0: no */
	uint32_t owner;    /* worker; WORKERS: nobody */
	bool striped;
	uint32_t replication;
	bool open;        /* a writer has it, or had it when it died */
	bool frozen;      /* what is in it is not known well enough to go on writing */
	bool died;        /* a writer of it did, or gave up */
	uint32_t crashes; /* of data nodes' machines, when it was opened for writing */
	uint32_t starts;  /* of the NameNode, likewise */
	/* bytes that must be there if no machine crashed since; that must be there; that may be */
	uint64_t flushed, synced, most;
	uint64_t flushed_in; /* ledger->troubles at the last flush; 0: they changed meanwhile */
	/* where the first block begins that is written since it was opened last: an hsync leaves
	 * out what is before it */
	uint64_t base;

	/* DFS_CREATE_EARLY, DFS_CREATE_CLOSE_EARLY */
	bool closes_early;
	bool may_vanish, may_reopen; /* by a crash of the NameNode's machine */
	uint32_t namenode_crashes;   /* of that machine, before it was made or closed so */
	uint64_t made_at, closed_at; /* when its client heard so, ns; 0: not early */
	uint32_t closer;             /* that client */

	uint32_t stretches;
	struct stretch stretch[STRETCHES];
	uint64_t asked; /* when its lease was asked for, in its last check */
};

struct worker {
	bool busy;
	uint64_t began;    /* of its operation, ns */
	uint64_t troubles; /* ledger->troubles then; 0: not all was well */
	char op[64];
};

/* A block or unit of which a byte has changed on one machine. */
struct rotten {
	int64_t id;
	uint64_t generation;
	uint32_t others; /* replicas, or units of its group, that other machines had finished */
	bool alone;      /* they had none at all, not even one being written */
	uint32_t file;   /* index; FILES: not known */
};

/* A block of bytes that are known, as it was at the end. */
struct block {
	int64_t id;
	uint64_t generation, offset, length;
	uint32_t file; /* index */
};

struct ledger {
	uint64_t salt;
	uint32_t next_number, next_client;
	uint32_t crashes, starts, namenode_crashes;
	uint32_t disk_errors; /* disks that failed calls for a while */
	bool sync_on_close;   /* dfs.datanode.synconclose */
	bool stop;            /* clients end */
	/* the director's: so often something was broken or mended; when the NameNode was started
	 * last, ns; no link is cut and no disk fails; nothing at all is broken */
	uint64_t troubles, started_at;
	bool sound, calm;
	uint64_t ops, failed_ops, bytes, checks, units, steady_reads;
	uint64_t slowest, slowest_calm;
	char slowest_op[64];
	char wrong[512]; /* the first thing that is wrong */
	struct worker worker[WORKERS];
	struct file file[FILES];
	uint32_t rotten_count, block_count;
	struct rotten rotten[ROTTEN];
	struct block block[BLOCKS];
	/* last blocks of files that stay open: no node may have finished one */
	uint32_t open_count;
	struct block open_block[FILES];
};

static inline uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static inline uint8_t byte_of(uint64_t salt, uint64_t i)
{
	return (uint8_t)(mix(salt + i / 8) >> i % 8 * 8);
}

/** What byte @i of the file is. */
static inline uint8_t file_byte(const struct file *f, uint64_t i)
{
	uint32_t s = f->stretches - 1;

	while (s && f->stretch[s].from > i)
		s--;
	return byte_of(f->stretch[s].salt, i);
}
