/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * policy - erasure-coding policies: how the bytes of a file become data and parity units
 *
 * Idea: a policy is a codec, k data units, m parity units and a cell size. HDFS has a table of its
 * own policies, which travel as an id only, and administrators' own, which travel as name, schema
 * and cell size. Three questions are kept apart: may such a policy exist (ec_policy_make()), may an
 * administrator add it (ec_policy_may_add()), can this software code it (ec_policy_can_code()).
 * Whether a policy is enabled is the NameNode's business, not ours.
 * Ownership: plain values; the built-in table is constant.
 * Threading: pure functions.
 * Units: cell sizes in bytes.
 * Source: hdfs-wire 7.1; Hadoop 3.4.2 ErasureCodingPolicy, SystemErasureCodingPolicies,
 *         ErasureCodingPolicyManager.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

/* k + m: the index of a unit is the low 4 bits of its block id */
#define EC_UNITS_MAX 16u
#define EC_CELL_STEP 1024u         /* every cell size is a multiple of this */
#define EC_CELL_MAX (64u << 20)    /* of a policy that a peer may name: bounds our buffers */
#define EC_CELL_MAX_ADD (4u << 20) /* dfs.namenode.ec.policies.max.cellsize when it is not set */
#define EC_NAME_MAX 32             /* longest: RS-LEGACY-15-1-65536k, with its end */

enum { /* ids of policies */
       EC_ID_REPLICATION = 0,
       EC_ID_RS_6_3 = 1, /* HDFS's own */
       EC_ID_RS_3_2 = 2,
       EC_ID_RS_LEGACY_6_3 = 3,
       EC_ID_XOR_2_1 = 4,
       EC_ID_RS_10_4 = 5, /* the last one of HDFS's own */
       EC_ID_USER_FIRST = 64,
       EC_ID_LAST = 127, /* Java's signed byte */
       EC_ID_NONE = 255, /* -1: not assigned yet */
};

#define EC_DEFAULT_POLICY "RS-6-3-1024k" /* dfs.namenode.ec.system.default.policy when not set */
#define EC_REPLICATION_NAME "replication"

enum ec_codec {
	EC_CODEC_REPLICATION, /* pseudo: "do not inherit a policy" */
	EC_CODEC_RS,
	EC_CODEC_RS_LEGACY, /* of Hadoop before 3.0's ISA-L; named and shown, never coded */
	EC_CODEC_XOR,
};

struct ec_policy {
	char name[EC_NAME_MAX];
	enum ec_codec codec;
	uint8_t id; /* EC_ID_* */
	uint8_t k;  /* data units, > 0 */
	uint8_t m;  /* parity units, > 0; k + m <= EC_UNITS_MAX */
	uint32_t cell;
};

/** "rs", "rs-legacy", "xor", "replication". */
const char *ec_codec_name(enum ec_codec codec);
/** By its exact, lower-case name, as Hadoop looks codecs up. -ENOENT: no such codec. */
int ec_codec_find(const char *name, enum ec_codec *ret);

/** HDFS's own by id (EC_ID_REPLICATION too); NULL: none of them. */
const struct ec_policy *ec_policy_by_id(uint32_t id);
/** HDFS's own by exact name ("replication" in any case of letters); NULL: none of them. */
const struct ec_policy *ec_policy_by_name(const char *name);

/**
 * Build a policy from its parts, which may be a peer's, and give it the name that Hadoop composes:
 * CODEC-k-m-<cell KiB>k. -EINVAL with the reason in @err: k or m is 0, k + m above EC_UNITS_MAX, a
 * cell size that is 0, no multiple of EC_CELL_STEP or above EC_CELL_MAX, an XOR of more than one
 * parity unit, an id above EC_ID_LAST that is not EC_ID_NONE, the codec "replication". (On the wire
 * an id is a Java byte in a uint32: its low 8 bits count.)
 */
int ec_policy_make(enum ec_codec codec, uint32_t k, uint32_t m, uint32_t cell, uint32_t id,
		   struct ec_policy *ret, struct err *err);
/**
 * The policy of a name such as "RS-6-3-1024k": one of HDFS's own, or one made of the parts with
 * EC_ID_NONE. Only the form that Hadoop composes is taken (no leading zeros, upper case).
 * -EINVAL with the reason in @err.
 */
int ec_policy_parse(const char *name, struct ec_policy *ret, struct err *err);
/** True when codec, k, m and cell size agree; names and ids may differ. */
bool ec_policy_same(const struct ec_policy *a, const struct ec_policy *b);
/**
 * May an administrator add a policy of these parts, where cells of at most @cell_max bytes are
 * allowed? -EINVAL, and @err holds the sentence of a stock NameNode's exception where stock refuses
 * it too (an unknown codec, too many units, too large a cell), else ours. RS-LEGACY may be added,
 * as stock allows: a stock client can use it. Cells below 64 KiB are allowed, as stock allows them.
 */
int ec_policy_may_add(const char *codec, uint32_t k, uint32_t m, uint32_t cell, uint32_t cell_max,
		      struct err *err);
/** Can ec_coder_new() code it? -ENOTSUP with a sentence for a person in @err: RS-LEGACY,
 *  replication. */
int ec_policy_can_code(const struct ec_policy *p, struct err *err);
