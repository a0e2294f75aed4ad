/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** test_db - a formatted name directory for one unit test, and one change at a time on it */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "namenode-shim/base/users.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/ns.h"
#include "namenode-shim/namespace/xattr.h"

struct test_db {
	char dir[64];
	struct db *db;
	struct users *users;
	struct txn t;
	struct arena a;
	struct exception_info x;
	struct effect_list effects;
	struct ns ns;
};

static inline void test_db_reopen(struct test_db *d)
{
	struct err err = ERR_INIT;

	db_close(d->db);
	if (db_open(d->dir, &d->db, &err) < 0)
		abort();
}

static inline void test_db_init(struct test_db *d)
{
	const struct db_format f = {"CID-test", "root", "supergroup", false};
	struct err err = ERR_INIT;

	*d = (struct test_db){.dir = "/tmp/nn-test-XXXXXX"};
	if (!mkdtemp(d->dir) || db_format(d->dir, &f, &err) < 0)
		abort();
	d->users = users_new("supergroup", "carol=staff,users;dora=");
	test_db_reopen(d);
}

static inline void test_db_fini(struct test_db *d)
{
	char cmd[128];

	db_close(d->db);
	users_free(d->users);
	arena_free(&d->a);
	snprintf(cmd, sizeof(cmd), "rm -r %s", d->dir);
	if (system(cmd))
		abort();
}

/** Begin a change as @user. */
static inline struct ns *test_begin(struct test_db *d, const char *user)
{
	static const struct ns_limits limits = {.max_component = INODE_NAME_MAX,
						.max_dir_items = 1 << 20,
						.xattrs_max = XATTRS_PER_INODE,
						.xattr_bytes = XATTR_BYTES,
						.xattrs = true,
						.acls = true,
						.acl_unmasked = true,
						.symlinks = true};

	arena_free(&d->a);
	if (txn_write_begin(d->db, &d->t) < 0)
		abort();
	d->x = (struct exception_info){.a = &d->a};
	d->effects.first = NULL;
	d->effects.last = &d->effects.first;
	d->effects.kinds = 0;
	d->ns = (struct ns){.t = &d->t,
			    .a = &d->a,
			    .x = &d->x,
			    .effects = &d->effects,
			    .users = d->users,
			    .user = user,
			    .host = "127.0.0.1",
			    .now_ms = 1000,
			    .enforce = true,
			    .super = !strcmp(user, "root"),
			    .limits = &limits};
	return &d->ns;
}

/** Commit; the change's arena lives until the next test_begin(). */
static inline int test_commit(struct test_db *d)
{
	return txn_write_commit(&d->t);
}
