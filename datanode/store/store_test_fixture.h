/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * store_test_fixture - what the tests of the store share: a store on one or two directories, and
 * what it told
 *
 * Included by tests only. The directories are in /tmp and go at teardown.
 */
#include "datanode/store/store_internal.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#define POOL "BP-1-127.0.0.1-1"

static const struct store_namespace NS = {
	.pool_id = POOL, .cluster_id = "CID-test", .namespace_id = 7, .ctime = 99};

struct seen { /* calls of the listener */
	atomic_int received, receiving, deleted, bad, failed, back;
};

struct fix {
	char dir[64], vol[2][96];
	uint32_t volumes;
	enum storage_type type[2];
	struct store_opts opts; /* but for the volumes */
	struct store *s;
	struct block_pool *bp;
	struct seen seen;
	struct err err;
};

static inline void fix_on_block(void *arg, struct block_pool *bp, const char *uuid,
				const struct block *b, enum store_event ev, const char *hint)
{
	struct seen *n = arg;

	(void)bp, (void)uuid, (void)b, (void)hint;
	n->received += ev == STORE_RECEIVED;
	n->receiving += ev == STORE_RECEIVING;
	n->deleted += ev == STORE_DELETED;
}

static inline void fix_on_bad(void *arg, struct block_pool *bp, const char *uuid,
			      const struct block *b)
{
	(void)bp, (void)uuid, (void)b;
	((struct seen *)arg)->bad++;
}

static inline void fix_on_volume_failed(void *arg, uint32_t volume, const char *path,
					const char *reason)
{
	(void)volume, (void)path, (void)reason;
	((struct seen *)arg)->failed++;
}

static inline void fix_on_volume_back(void *arg, const char *path)
{
	(void)path;
	((struct seen *)arg)->back++;
}

static inline int fix_open(struct fix *f)
{
	const struct store_volume_opts v[2] = {{.path = f->vol[0], .type = f->type[0]},
					       {.path = f->vol[1], .type = f->type[1]}};
	struct store_listener l = {fix_on_block, fix_on_bad, fix_on_volume_failed,
				   fix_on_volume_back, &f->seen};
	int rc;

	f->opts.volumes = v;
	f->opts.volume_count = f->volumes;
	f->err = ERR_INIT;
	rc = store_open(&f->opts, &f->s, &f->err);
	if (rc)
		return rc;
	store_set_listener(f->s, &l);
	rc = store_attach(f->s, &NS, &f->bp, &f->err);
	if (rc) {
		store_close(f->s);
		f->s = NULL;
	}
	return rc;
}

static inline void fix_close(struct fix *f)
{
	store_close(f->s);
	f->s = NULL;
}

static inline int fix_move(struct fix *f, const struct block *b, enum storage_type type)
{
	struct replica_way way;

	return replica_move_way(f->bp, b, type, NULL, &way, &f->err)
		       ?: replica_move(f->bp, b, &way, &f->err);
}

static inline void fix_reopen(struct fix *f)
{
	fix_close(f);
	assert_int_equal(fix_open(f), 0);
}

/** Until the id is free: a deletion is told while it is taken still. */
static inline void fix_wait_gone(struct fix *f, int64_t id)
{
	struct replica_info i;

	while (!replica_get(f->bp, id, &i))
		nanosleep(&(struct timespec){0, 1000000}, NULL);
}

/** Directories named, nothing opened; the second one is of type @second. */
static inline struct fix *fix_new(uint32_t volumes, enum storage_type second)
{
	struct fix *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/store_test.XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	for (int i = 0; i < 2; i++)
		(void)snprintf(f->vol[i], sizeof(f->vol[i]), "%s/dn%d", f->dir, i + 1);
	f->volumes = volumes;
	f->type[0] = STORAGE_DISK;
	f->type[1] = second;
	return f;
}

static inline int teardown(void **state)
{
	struct fix *f = *state;
	char cmd[200];

	fix_close(f);
	(void)snprintf(cmd, sizeof(cmd), "chmod -R u+rwx %s; rm -rf %s", f->dir, f->dir);
	assert_int_equal(system(cmd), 0);
	free(f);
	return 0;
}
