/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** jmx_page - for jmx*.c: a page in the making and its attributes */
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/web/json.h"

struct txn;

/* Everything that is counted once for a page. */
struct sums {
	uint64_t capacity, used, remaining, non_dfs, pool_used, load, volume_failures,
		stale_storages;
	uint32_t nodes[5], dead[5]; /* by enum dn_admin; nodes: alive */
	uint32_t live, gone, stale;
};

struct page {
	struct nn *nn;
	struct json j;
	struct arena a;
	struct sums s;
	const char *qry, *attr; /* attr: only this one; NULL: all */
	struct txn *txn;
};

static inline double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* ---- attributes: written when they are asked for ---- */

static inline bool wanted(const struct page *p, const char *key)
{
	return !p->attr || !strcmp(p->attr, key);
}

static inline void put_u64(struct page *p, const char *key, uint64_t v)
{
	if (wanted(p, key))
		json_u64(&p->j, key, v);
}

static inline void put_text(struct page *p, const char *key, const char *v)
{
	if (wanted(p, key))
		json_text(&p->j, key, v);
}

static inline void put_num(struct page *p, const char *key, double v)
{
	if (wanted(p, key))
		json_num(&p->j, key, v);
}

static inline void put_bool(struct page *p, const char *key, bool v)
{
	if (wanted(p, key))
		json_bool(&p->j, key, v);
}

static inline void put_zeros(struct page *p, const char *const *keys)
{
	for (; *keys; keys++)
		put_u64(p, *keys, 0);
}

/* A text attribute that holds JSON itself, as several of HDFS do. */
struct inner {
	struct json j;
	char *text;
	size_t len;
};

static inline void inner_open(struct inner *i, char open)
{
	memset(i, 0, sizeof(*i));
	i->j.out = open_memstream(&i->text, &i->len);
	if (!i->j.out)
		abort(); /* as xcalloc(): out of memory */
	json_open(&i->j, NULL, open);
}

static inline void inner_put(struct page *p, struct inner *i, const char *key, char close)
{
	json_close(&i->j, close);
	fclose(i->j.out);
	put_text(p, key, i->text);
	free(i->text);
}

/* The beans of jmx_info.c and jmx_system.c. */
void jmx_name_node_info(struct page *p);
void jmx_fs_namesystem(struct page *p);
void jmx_fs_state(struct page *p);
void jmx_replicated_state(struct page *p);
void jmx_ec_state(struct page *p);
