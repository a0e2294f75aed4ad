/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * engine_test_fixture - what the tests of the engine share: a reactor, its buffers, and a node of
 * one store
 *
 * Included by one test program each, which owns what is static here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "datanode/block/buffers.h"
#include "datanode/block/engine.h"
#include "datanode/block/operations.h"

#define POOL_ID "BP-1"

static struct reactor *r;
static struct pool *pool;
static struct block_pool *bp; /* with fix_store() */
static struct dn dn;
static struct engine_core core;

static inline void fix_give_up(struct rtimer *t)
{
	(void)t;
	reactor_stop(r);
}

/** Runs what is ready until somebody stops the reactor, at most @ms. */
static inline void fix_run(uint64_t ms)
{
	struct rtimer t = {.fire = fix_give_up};

	reactor_timer_set(r, &t, clock_mono_ns() + ms * NS_PER_MS);
	assert_int_equal(reactor_run(r), 0);
	reactor_timer_clear(r, &t);
}

/** What /ops says of the operation on a block, by the list of its kind. */
static inline struct operation
fix_op(void (*list)(struct engine_core *core, struct operation_list *l), int64_t block_id)
{
	struct operation_list l = {.now_ns = clock_mono_ns()};
	struct operation found = {.kind = NULL};

	list(&core, &l);
	for (uint32_t i = 0; i < l.count; i++)
		if (l.op[i].block_id == block_id)
			found = l.op[i];
	free(l.op);
	assert_non_null(found.kind);
	return found;
}

/** Every slot of the buffers, until fix_give_back(). */
static struct slot *fix_held[1024];
static uint32_t fix_held_count;

static inline void fix_hold_all(void)
{
	struct slot *s;

	for (int c = 0; c < SLOT_CLASSES; c++)
		while ((s = pool_get(pool, (enum slot_class)c, POOL_CTRL))) {
			assert_true(fix_held_count < sizeof(fix_held) / sizeof(*fix_held));
			fix_held[fix_held_count++] = s;
		}
}

static inline void fix_give_back(void)
{
	while (fix_held_count)
		slot_put(fix_held[--fix_held_count]);
}

/** @po: buffers. */
static inline void fix_setup(const char *name, const struct pool_opts *po)
{
	const struct reactor_opts ro = {.name = "test"};
	struct err err = ERR_INIT;

	log_init(name, LOG_ERROR);
	assert_int_equal(reactor_new(&ro, &r, &err), 0);
	assert_int_equal(pool_new(po, &pool, &err), 0);
	core = (struct engine_core){
		.dn = &dn,
		.reactor = r,
		.pool = pool,
		.waits = {60 * NS_PER_S, 60 * NS_PER_S, 4 * NS_PER_S, 30 * NS_PER_S}};
	list_init(&core.reads);
	list_init(&core.rebuilds);
	list_init(&core.writes);
	list_init(&core.entries);
	list_init(&core.conns);
	list_init(&core.idle);
	buffers_init(&core);
}

/** A store in @dir, a template of mkdtemp(), whose disk I/O uses the buffers. */
static inline void fix_store(char *dir)
{
	const struct store_volume_opts vol = {.path = dir, .type = STORAGE_DISK};
	const struct store_opts so = {.volumes = &vol, .volume_count = 1};
	const struct store_namespace ns = {
		.pool_id = POOL_ID, .cluster_id = "CID-1", .namespace_id = 1, .ctime = 1};
	struct err err = ERR_INIT;

	assert_non_null(mkdtemp(dir));
	assert_int_equal(store_open(&so, &dn.store, &err), 0);
	assert_int_equal(store_attach(dn.store, &ns, &bp, &err), 0);
	(void)reactor_register_pool(r, pool, &err);
}

/** @dir: of fix_store(), or NULL. */
static inline int fix_teardown(const char *dir)
{
	char cmd[64];

	buffers_fini(&core);
	reactor_free(r);
	pool_free(pool);
	if (!dir)
		return 0;
	store_close(dn.store);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}
