/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: blocks_test_fixture - what the tests of the block map share: five nodes with one
 * storage each, an empty map, one block and its reports
 *
 * Included by one test program each, which owns what is static here.
 */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <stdio.h>

#include <cmocka.h>

#include "namenode-shim/blocks/blocks.h"
#include "namenode-shim/blocks/datanodes.h"

#define NODES 5
#define BLOCKS 8
#define REPL 3

struct world {
	struct datanodes dns;
	struct blocks bs;
	struct dn *dn[NODES];
	struct storage *st[NODES];
};

static inline void world_init(struct world *w)
{
	datanodes_init(&w->dns, 1000);
	blocks_init(&w->bs, 1000000000ull, 1);
	for (int i = 0; i < NODES; i++) {
		char uuid[16];
		const struct dn_ident id = {uuid, "127.0.0.1", "host", "3.4.2", 9000u + (uint32_t)i,
					    1,    2,           0};

		snprintf(uuid, sizeof(uuid), "dn%d", i);
		assert_int_equal(datanodes_register(&w->dns, &id, &w->dn[i]), 0);
		w->st[i] = dn_storage_add(w->dn[i], "DS", STORAGE_DISK);
		w->st[i]->remaining = 1000u + (uint64_t)i;
	}
}

static inline void world_fini(struct world *w)
{
	blocks_fini(&w->bs);
	datanodes_fini(&w->dns);
}

static const struct block B = {1073741825, 1005, 700};

static inline struct blk *add(struct world *w, enum blk_state s)
{
	return blocks_add(&w->bs, &B, 17000, REPL, s);
}

static inline void report(struct world *w, int node, uint64_t gs, uint64_t len, uint32_t state)
{
	const struct block r = {B.id, gs, len};

	blocks_report(&w->bs, w->st[node], &r, state, false, 0);
}
