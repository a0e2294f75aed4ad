/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** jmx_page - for jmx*.c: what all beans of one page share, and the beans themselves */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/http/json_put.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/nn.h"

struct txn;

/* Everything that is counted once for a page. */
struct sums {
	uint64_t capacity, used, remaining, non_dfs, pool_used, load, volume_failures,
		stale_storages;
	uint64_t cache_capacity, cache_used; /* not of nodes that have left service */
	uint32_t nodes[5], dead[5];          /* by enum dn_admin; nodes: alive */
	uint32_t live, gone, stale;
};

#define PAGE_TEXTS 16

struct page {
	struct nn *nn;
	struct arena a;
	struct sums s;
	const char *qry, *attr; /* attr: only this one; NULL: all */
	struct txn *txn;
	/* owned; values that go out as text: they are made into text without mem_lock */
	json_t *text[PAGE_TEXTS];
	uint32_t texts;
};

static inline double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

static inline void put_zeros(json_t *bean, const char *const *keys)
{
	for (; *keys; keys++)
		put_u64(bean, *keys, 0);
}

/* As put_json_text(), whose work is done when mem_lock is given back. */
static inline void put_text_later(struct page *p, json_t *bean, const char *key, json_t *value)
{
	if (value && p->texts < PAGE_TEXTS)
		p->text[p->texts++] = json_incref(value);
	put_value(bean, key, value);
}

/* The beans of jmx_info.c and jmx_system.c: each puts its attributes into @bean. */
void jmx_name_node_info(struct page *p, json_t *bean);
void jmx_fs_namesystem(struct page *p, json_t *bean);
void jmx_fs_state(struct page *p, json_t *bean);
void jmx_replicated_state(struct page *p, json_t *bean);
void jmx_ec_state(struct page *p, json_t *bean);
