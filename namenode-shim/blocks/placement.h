/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * placement - where a new replica goes
 *
 * Idea: distinct live nodes with room for a whole block; the first on the writer's own host, the
 * others the less busy of two random candidates, which spreads load without sorting. With several
 * racks the second replica goes to another rack than the first, the third to the rack of the
 * second, and no rack gets more than (n - 1) / racks + 2; where that is not possible, anywhere.
 * Nodes that are to leave get nothing.
 * Each replica goes to a storage type that the policy still wants, fast ones first; when no node
 * has such a type the policy's fall-back takes its place, else there are fewer replicas. RAM_DISK
 * is never chosen: the writer's node does that for a LAZY_PERSIST file.
 * Units of a group (spread) go evenly over the racks, at most units / racks of one, rounded up,
 * while that can be.
 * Nodes are drawn until two fit, so that the cost is that of few nodes; all are looked at where
 * hardly any fits, or none without a compromise.
 * A stale node is chosen when no other will do, or when a large part of all is stale.
 * Room already promised to other new blocks since the node's last heartbeat is left alone while
 * others have room beside such. It refuses nobody: most files are smaller than a block, and a data
 * node knows what is left.
 * Threading: writer thread.
 * Source: HDFS default placement; hdfs-wire 3.4 (addBlock); HDFS Archival Storage guide.
 */
#include <stdbool.h>
#include <stdint.h>

struct blk;
struct datanodes;
struct dn;
struct storage_policy;
struct storage;

struct place {
	uint32_t want;
	const char *writer_ip; /* NULL: no preference */
	const struct dn **exclude;
	uint32_t nexclude;
	const struct storage_policy *policy; /* of the file; NULL: HOT */
	bool copy;                           /* of a block that is there: the other fall-backs */
	const uint8_t *have; /* storage types of the replicas that are there or on their way */
	uint32_t nhave;
	bool no_fallback;   /* a type that the policy wants, or none at all */
	bool other_rack;    /* than that of the holders, or none at all */
	bool spread;        /* units of a group: as evenly over the racks as can be */
	uint32_t rack_most; /* spread: so many of one rack at most; 0: as few as can be */
	uint32_t nholders;  /* the first of exclude hold the block already: they count for racks */
	uint64_t block_size;
};

/** New replicas are to lie beside those of @b: neither on its nodes nor on those that are to get
 *  one, and of the types that are missing. place_free() after use. */
void place_beside(struct place *p, const struct blk *b);
void place_free(struct place *p);
/** Fill @ret[p->want]; returns how many were found, 0..want. Chosen room is marked promised. */
uint32_t place_choose(struct datanodes *d, const struct place *p, struct storage **ret);
