/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a file that gets new blocks keeps name, rights and attributes under the id of the
 * file that brought them; of the blocks each is either in it or ordered away; quotas and counts
 * equal a recount; a refused change changes nothing; the journal brings all of it back. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <errno.h>
#include <poll.h>
#include <stdio.h>

#include <cmocka.h>

#include "namenode-shim/db/checkpoint.h"
#include "namenode-shim/namespace/acl.h"
#include "namenode-shim/namespace/quota.h"
#include "namenode-shim/namespace/storage_policy.h"

#include "common/base/test_random.h"
#include "namenode-shim/test_db.h"

#define BLOCK 1024
#define BLOCKS_MAX 8
#define REPL 2
#define WAIT_MS 20000

static void start(struct test_db *d)
{
	test_db_init(d);
	mdb_env_set_flags(d->db->env, MDB_NOSYNC, 1);
	assert_int_equal(ns_mkdirs(test_begin(d, "root"), "/d", 0777, NULL, true), 0);
	assert_int_equal(ns_mkdirs(&d->ns, "/other", 0777, NULL, true), 0);
	assert_int_equal(test_commit(d), 0);
}

/* A closed file of @user; its blocks have the ids @first, @first + 1, ... */
static uint64_t make(struct test_db *d, const char *user, const char *path, int64_t first,
		     uint32_t count, uint64_t last_len)
{
	const struct ns_create c = {.path = path,
				    .client = "c",
				    .perm = 0640,
				    .repl = REPL,
				    .block_size = BLOCK,
				    .create = true,
				    .create_parent = true};
	struct inode *f;
	struct ns_path w;

	assert_int_equal(ns_resolve_create(test_begin(d, user), &c, &w), 0);
	assert_int_equal(ns_create(&d->ns, &c, &w, &f), 0);
	f->client = "";
	f->nblocks = count;
	f->blocks = arena_array(&d->a, struct inode_block, count + 1);
	for (uint32_t i = 0; i < count; i++)
		f->blocks[i] = (struct inode_block){
			{first + i, 1000 + (uint64_t)first, i + 1 < count ? BLOCK : last_len},
			true};
	assert_int_equal(inode_put(&d->t, f), 0);
	assert_int_equal(quota_charge(&d->ns, f->parent, 0, (int64_t)inode_space(f)), 0);
	assert_int_equal(test_commit(d), 0);
	return f->id;
}

/* Of the running transaction; NULL: not there. */
static struct inode *at(struct test_db *d, const char *path)
{
	struct ns_path w;
	const struct ns asked = d->ns;

	d->ns.super = true;
	assert_int_equal(ns_resolve(&d->ns, path, &w), 0);
	d->ns.super = asked.super;
	return w.last;
}

static struct ns_replace wanted(uint64_t id, uint64_t length, int64_t last, uint64_t stamp,
				const uint32_t *places, uint32_t n, uint32_t count)
{
	return (struct ns_replace){.path = "/d/f",
				   .part = "/d/t",
				   .id = id,
				   .length = length,
				   .last = {last, stamp, 0},
				   .at = places,
				   .nat = n,
				   .count = count};
}

static int replace(struct test_db *d, const char *user, const struct ns_replace *r)
{
	int rc = ns_replace_blocks(test_begin(d, user), r);

	if (rc < 0)
		txn_write_abort(&d->t);
	else
		assert_int_equal(test_commit(d), 0);
	return rc;
}

static uint32_t count_fx(const struct test_db *d, enum effect_kind kind, int64_t block)
{
	uint32_t n = 0;

	for (const struct effect *e = d->effects.first; e; e = e->next)
		n += e->kind == kind && (!block || e->b.id == block);
	return n;
}

static void expect_blocks(struct test_db *d, const int64_t *want, uint32_t n, uint64_t length)
{
	struct inode *f;

	test_begin(d, "root");
	f = at(d, "/d/f");
	assert_non_null(f);
	assert_int_equal(f->nblocks, n);
	assert_int_equal(inode_len(f), length);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(f->blocks[i].b.id, want[i]);
	txn_write_abort(&d->t);
}

/* /d/f of carol gets attributes of each kind, and a system attribute, which is of its inode. */
static void dress(struct test_db *d)
{
	const struct xattr x = {XATTR_USER, "a", "value", 5};
	struct acl acl = {.e = {{.type = ACL_USER, .name = "dora", .perm = 4}}, .n = 1};
	struct inode *f;
	bool marked;

	assert_int_equal(xattr_set(test_begin(d, "carol"), "/d/f", &x, XATTR_CREATE), 0);
	assert_int_equal(acl_change(&d->ns, "/d/f", ACL_CHANGE_MERGE, &acl), 0);
	assert_int_equal(ns_set_perm(&d->ns, "/d/f", 0666), 0);
	assert_int_equal(storage_policy_set(&d->ns, "/d/f", "COLD"), 0);
	assert_int_equal(ns_set_times(&d->ns, "/d/f", 5, 6), 0);
	f = at(d, "/d/f");
	assert_int_equal(xattrs_mark(&d->t, f, &d->a, true, &marked), 0);
	assert_int_equal(inode_put(&d->t, f), 0);
	assert_int_equal(test_commit(d), 0);
}

static void expect_dressed(struct test_db *d)
{
	struct inode *const f = at(d, "/d/f");
	struct xattrs xattrs;
	struct acl acl;

	assert_string_equal(f->owner, "carol");
	assert_int_equal(f->perm, 0666);
	assert_int_equal(f->mtime, 1000);
	assert_int_equal(f->atime, 6);
	assert_int_equal(storage_policy_of(&d->t, f, &d->a), storage_policy_find("COLD")->id);
	assert_int_equal(xattrs_get(&d->t, f, &d->a, &xattrs), 0);
	assert_int_equal(xattrs.n, 1);
	assert_string_equal(xattrs.a[0].name, "a");
	assert_int_equal(acl_get(&d->t, f, &d->a, &acl), 0);
	assert_true(acl.n >= 1);
}

/* What is left goes with the file: no row stays behind. */
static void expect_no_row_behind(struct test_db *d)
{
	const MDB_dbi tables[] = {d->db->xattr, d->db->acl, d->db->policy};

	assert_int_equal(ns_delete(test_begin(d, "root"), "/d/f", false, &(bool){false}), 0);
	assert_int_equal(count_fx(d, EFFECT_BLOCK_REMOVE, 0), 3);
	assert_int_equal(test_commit(d), 0);
	test_begin(d, "root");
	for (int i = 0; i < 3; i++) {
		MDB_stat st;

		assert_int_equal(mdb_stat(d->t.t, tables[i], &st), 0);
		assert_int_equal(st.ms_entries, 0);
	}
	txn_write_abort(&d->t);
}

static void the_file_keeps_all_but_its_id_and_the_blocks(void **state)
{
	const struct xattr inherited = {XATTR_USER, "b", "no", 2};
	static const uint32_t places[] = {1};
	struct ns_replace r;
	struct test_db d;
	struct inode *f;
	uint64_t id, part;

	(void)state;
	start(&d);
	id = make(&d, "carol", "/d/f", 10, 3, 7);
	part = make(&d, "bob", "/d/t", 20, 1, BLOCK);
	dress(&d);
	assert_int_equal(xattr_set(test_begin(&d, "bob"), "/d/t", &inherited, XATTR_CREATE), 0);
	assert_int_equal(test_commit(&d), 0);
	r = wanted(id, 2 * BLOCK + 7, 12, 1010, places, 1, 3);
	assert_int_equal(replace(&d, "bob", &r), 0);
	assert_int_equal(count_fx(&d, EFFECT_BLOCK_REMOVE, 0), 1);
	assert_int_equal(count_fx(&d, EFFECT_BLOCK_REMOVE, 11), 1);
	assert_int_equal(count_fx(&d, EFFECT_BLOCK_OWNER, 0), 2);
	for (const struct effect *e = d.effects.first; e; e = e->next) {
		assert_true(e->kind != EFFECT_BLOCK_OWNER || (e->inode == part && e->repl == REPL));
		assert_true(e->kind != EFFECT_INODES || e->delta == -1);
	}
	expect_blocks(&d, (int64_t[]){10, 20, 12}, 3, 2 * BLOCK + 7);
	test_begin(&d, "root");
	assert_int_equal(at(&d, "/d/f")->id, part);
	expect_dressed(&d);
	assert_null(at(&d, "/d/t"));
	assert_int_equal(at(&d, "/d")->children, 1);
	assert_int_equal(inode_get(&d.t, id, &d.a, &f), -ENOENT);
	txn_write_abort(&d.t);
	expect_no_row_behind(&d);
	test_db_fini(&d);
}

static void it_may_become_longer_shorter_and_empty(void **state)
{
	static const uint32_t two[] = {0, 2}, first[] = {0};
	struct ns_replace r;
	struct test_db d;
	uint64_t id;

	(void)state;
	start(&d);
	id = make(&d, "bob", "/d/f", 10, 2, BLOCK);
	(void)make(&d, "bob", "/d/t", 20, 2, 5);
	r = wanted(id, 2 * BLOCK, 11, 1010, two, 2, 3); /* longer: the last block is new */
	assert_int_equal(replace(&d, "bob", &r), 0);
	expect_blocks(&d, (int64_t[]){20, 11, 21}, 3, 2 * BLOCK + 5);
	id = make(&d, "bob", "/d/t", 30, 1, 3);
	test_begin(&d, "root");
	r = wanted(at(&d, "/d/f")->id, 2 * BLOCK + 5, 21, 1020, first, 1,
		   1); /* one short block is left */
	txn_write_abort(&d.t);
	assert_int_equal(replace(&d, "bob", &r), 0);
	assert_int_equal(count_fx(&d, EFFECT_BLOCK_REMOVE, 0), 3);
	expect_blocks(&d, (int64_t[]){30}, 1, 3);
	(void)make(&d, "bob", "/d/t", 40, 0, 0);
	r = wanted(id, 3, 30, 1030, NULL, 0, 0);
	assert_int_equal(replace(&d, "bob", &r), 0);
	expect_blocks(&d, NULL, 0, 0);
	test_begin(&d, "root");
	id = at(&d, "/d/f")->id;
	txn_write_abort(&d.t);
	(void)make(&d, "bob", "/d/t", 50, 1, BLOCK);
	r = wanted(id, 0, 0, 0, first, 1, 1); /* and something again */
	assert_int_equal(replace(&d, "bob", &r), 0);
	expect_blocks(&d, (int64_t[]){50}, 1, BLOCK);
	test_db_fini(&d);
}

static void alter(struct test_db *d, const char *path, void (*fn)(struct inode *n))
{
	struct inode *n;

	test_begin(d, "root");
	n = at(d, path);
	fn(n);
	assert_int_equal(inode_put(&d->t, n), 0);
	assert_int_equal(test_commit(d), 0);
}

static void be_open(struct inode *n)
{
	n->client = "c";
	n->client_host = "127.0.0.1";
}

static void be_closed(struct inode *n)
{
	n->client = n->client_host = "";
}

static void be_shorter_first(struct inode *n)
{
	n->blocks[0].b.len = BLOCK - 1;
}

static void be_full_first(struct inode *n)
{
	n->blocks[0].b.len = BLOCK;
}

static void other_repl(struct inode *n)
{
	n->repl = REPL + 1;
}

static void same_repl(struct inode *n)
{
	n->repl = REPL;
}

static void other_size(struct inode *n)
{
	n->block_size = 2 * BLOCK;
}

static void same_size(struct inode *n)
{
	n->block_size = BLOCK;
}

static void writable(struct inode *n)
{
	n->perm = 0666;
}

static void mine_only(struct inode *n)
{
	n->perm = 0640;
}

/* Returns the id of /d/f. */
static uint64_t make_three(struct test_db *d)
{
	uint64_t id;

	start(d);
	id = make(d, "bob", "/d/f", 10, 3, 7);
	(void)make(d, "bob", "/d/t", 20, 1, BLOCK);
	(void)make(d, "bob", "/other/t", 30, 1, BLOCK);
	return id;
}

static void a_call_that_does_not_fit_is_refused_and_changes_nothing(void **state)
{
	static const uint32_t one[] = {1}, back[] = {2, 1}, twice[] = {1, 1}, beyond[] = {9};
	const struct {
		const char *path, *part;
		uint64_t id_off, length;
		int64_t block;
		uint64_t stamp;
		const uint32_t *at;
		uint32_t nat, count;
		int rc;
	} rows[] = {
		{"/d/none", "/d/t", 0, 2 * BLOCK + 7, 12, 1010, one, 1, 3, -ENOENT},
		{"/d/f", "/d/none", 0, 2 * BLOCK + 7, 12, 1010, one, 1, 3, -ENOENT},
		{"/d", "/d/t", 0, 2 * BLOCK + 7, 12, 1010, one, 1, 3, -EINVAL},
		{"/d/f", "/other", 0, 2 * BLOCK + 7, 12, 1010, one, 1, 3, -EACCES},
		{"/d/f", "/d/f", 0, 2 * BLOCK + 7, 12, 1010, one, 1, 3, -EINVAL},
		{"/d/f", "/other/t", 0, 2 * BLOCK + 7, 12, 1010, one, 1, 3, -EINVAL},
		{"/d/f", "/d/t", 1, 2 * BLOCK + 7, 12, 1010, one, 1, 3, -ESTALE},
		{"/d/f", "/d/t", 0, 2 * BLOCK + 6, 12, 1010, one, 1, 3, -ESTALE},
		{"/d/f", "/d/t", 0, 2 * BLOCK + 7, 11, 1010, one, 1, 3, -ESTALE},
		{"/d/f", "/d/t", 0, 2 * BLOCK + 7, 12, 1011, one, 1, 3, -ESTALE},
		{"/d/f", "/d/t", 0, 2 * BLOCK + 7, 0, 0, one, 1, 3, -ESTALE},
		{"/d/f", "/d/t", 0, 2 * BLOCK + 7, 12, 1010, one, 0, 3, -EINVAL},
		{"/d/f", "/d/t", 0, 2 * BLOCK + 7, 12, 1010, back, 2, 3, -EINVAL},
		{"/d/f", "/d/t", 0, 2 * BLOCK + 7, 12, 1010, twice, 2, 3, -EINVAL},
		{"/d/f", "/d/t", 0, 2 * BLOCK + 7, 12, 1010, beyond, 1, 3, -EINVAL},
		{"/d/f", "/d/t", 0, 2 * BLOCK + 7, 12, 1010, beyond, 1, 10, -EINVAL},
		{"/d/f", "/d/t", 0, 2 * BLOCK + 7, 12, 1010, one, 1, 5, -EINVAL},
		{"/d/f", "/d/t", 0, 2 * BLOCK + 7, 12, 1010, one, 1, UINT32_MAX, -EINVAL},
		{"/d/f", "/d/t", 0, 2 * BLOCK + 7, 12, 1010, one, 1, 0, -EINVAL},
		/* the short last block would be within it */
		{"/d/f", "/d/t", 0, 2 * BLOCK + 7, 12, 1010, (const uint32_t[]){3}, 1, 4,
		 -EOPNOTSUPP},
	};
	struct ns_replace r;
	struct test_db d;
	uint64_t id;

	(void)state;
	id = make_three(&d);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		r = wanted(id + rows[i].id_off, rows[i].length, rows[i].block, rows[i].stamp,
			   rows[i].at, rows[i].nat, rows[i].count);
		r.path = rows[i].path;
		r.part = rows[i].part;
		if (replace(&d, "bob", &r) != rows[i].rc)
			fail_msg("row %zu: %s, %s", i, d.x.cls ? d.x.cls : "none",
				 d.x.text ? d.x.text : "");
	}
	expect_blocks(&d, (int64_t[]){10, 11, 12}, 3, 2 * BLOCK + 7);
	test_db_fini(&d);
}

static void a_file_in_a_state_that_does_not_fit_is_refused_and_stays_as_it_is(void **state)
{
	static const uint32_t last[] = {2};
	static const struct {
		const char *path;
		void (*fn)(struct inode *n), (*back)(struct inode *n);
		const char *user;
		int rc;
	} states[] = {
		{"/d/f", be_open, be_closed, "bob", -EBUSY},
		{"/d/t", be_open, be_closed, "bob", -EINVAL},
		{"/d/f", be_shorter_first, be_full_first, "bob", -ESTALE},
		{"/d/t", other_repl, same_repl, "bob", -EINVAL},
		{"/d/t", other_size, same_size, "bob", -EINVAL},
		{"/d/f", mine_only, mine_only, "eve", -EACCES}, /* may not write it */
		{"/d/f", writable, mine_only, "eve", -EACCES},  /* the other one is not hers */
	};
	struct ns_replace r;
	struct test_db d;

	(void)state;
	r = wanted(make_three(&d), 2 * BLOCK + 7, 12, 1010, last, 1, 3);
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
		alter(&d, states[i].path, states[i].fn);
		if (replace(&d, states[i].user, &r) != states[i].rc)
			fail_msg("state %zu: %s, %s", i, d.x.cls ? d.x.cls : "none",
				 d.x.text ? d.x.text : "");
		alter(&d, states[i].path, states[i].back);
	}
	/* known to the caller: a place does not tell where its bytes are */
	alter(&d, "/d/f", be_shorter_first);
	r.length--;
	assert_int_equal(replace(&d, "bob", &r), -EOPNOTSUPP);
	alter(&d, "/d/f", be_full_first);
	expect_blocks(&d, (int64_t[]){10, 11, 12}, 3, 2 * BLOCK + 7);
	r.length++;
	assert_int_equal(replace(&d, "bob", &r), 0); /* it was only these */
	test_db_fini(&d);
}

/* ---- at random, with a quota ---- */

struct recount {
	struct test_db *d;
	int64_t inodes, space;
};

static int recount_entry(void *arg, const char *name, size_t len, uint64_t id)
{
	struct recount *r = arg;
	struct inode *n;

	(void)name;
	(void)len;
	assert_int_equal(inode_get(&r->d->t, id, &r->d->a, &n), 0);
	r->inodes++;
	r->space += (int64_t)inode_space(n);
	return 0;
}

static void expect_quota(struct test_db *d)
{
	struct recount r = {.d = d, .inodes = 1};
	struct quota q;

	test_begin(d, "root");
	assert_int_equal(quota_get(&d->t, at(d, "/d")->id, &q), 0);
	assert_int_equal(dirent_each(&d->t, at(d, "/d")->id, NULL, 0, recount_entry, &r), 0);
	assert_int_equal(q.inodes, r.inodes);
	assert_int_equal(q.space, r.space);
	txn_write_abort(&d->t);
}

/* The blocks of @now are those wanted, and each of both files' that is not among them is ordered
 * away, once. */
static void random_replace(struct test_db *d, int64_t *next_block)
{
	int64_t want[2 * BLOCKS_MAX];
	uint32_t places[BLOCKS_MAX], n = 0, count = random_below(BLOCKS_MAX + 1);
	uint64_t id, length, last_len = 1 + random_below(BLOCK);
	struct ns_replace r;
	struct inode *f;
	const int64_t first = *next_block;

	test_begin(d, "root");
	f = at(d, "/d/f");
	id = f->id;
	length = inode_len(f);
	r = wanted(id, length, f->nblocks ? f->blocks[f->nblocks - 1].b.id : 0,
		   f->nblocks ? f->blocks[f->nblocks - 1].b.gs : 0, places, 0, count);
	for (uint32_t i = 0; i < count; i++) {
		const bool kept_fits =
			i < f->nblocks && (f->blocks[i].b.len == BLOCK || i + 1 == count);

		if (kept_fits && random_below(3)) {
			want[i] = f->blocks[i].b.id;
			last_len = i + 1 == count ? f->blocks[i].b.len : BLOCK;
		} else {
			want[i] = first + n;
			places[n++] = i;
			last_len = i + 1 == count ? last_len : BLOCK;
		}
	}
	const uint32_t had = f->nblocks;
	txn_write_abort(&d->t);
	length = count ? (count - 1ull) * BLOCK + last_len : 0;
	(void)make(d, "bob", "/d/t", first, n, n && places[n - 1] + 1 == count ? last_len : BLOCK);
	*next_block += n;
	r.nat = n;
	assert_int_equal(replace(d, "bob", &r), 0);
	assert_int_equal(count_fx(d, EFFECT_BLOCK_OWNER, 0), count - n);
	assert_int_equal(count_fx(d, EFFECT_BLOCK_REMOVE, 0), had - (count - n));
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(count_fx(d, EFFECT_BLOCK_REMOVE, want[i]), 0);
	expect_blocks(d, want, count, length);
}

static void quotas_equal_a_recount(void **state)
{
	int64_t next_block = 100;
	struct test_db d;

	(void)state;
	start(&d);
	assert_int_equal(quota_set(test_begin(&d, "root"), "/d", 3, 2 * REPL * BLOCKS_MAX * BLOCK),
			 0);
	assert_int_equal(test_commit(&d), 0);
	(void)make(&d, "bob", "/d/f", 1, 4, 3);
	for (int i = 0; i < 300; i++) {
		random_replace(&d, &next_block);
		expect_quota(&d);
	}
	test_db_fini(&d);
}

/* ---- what is there after the machine died ---- */

static bool exists(const struct test_db *d, const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/current/%s", d->dir, name);
	return !access(path, F_OK);
}

static void the_journal_brings_it_back(void **state)
{
	struct test_db d, copy = {.dir = "/tmp/nn-test-XXXXXX"};
	int64_t next_block = 100, want[2 * BLOCKS_MAX];
	struct err err = ERR_INIT;
	uint64_t length, id;
	uint32_t count;
	struct inode *f;
	char cmd[256];

	(void)state;
	start(&d);
	(void)make(&d, "bob", "/d/f", 1, 4, 3);
	assert_int_equal(db_log_start(d.db, NULL, NULL), 0);
	for (int ms = 0; !exists(&d, "unsynced"); ms++) {
		assert_true(ms < WAIT_MS);
		random_replace(&d, &next_block);
		(void)poll(NULL, 0, 1);
	}
	for (int i = 0; i < 20; i++)
		random_replace(&d, &next_block);
	test_begin(&d, "root");
	f = at(&d, "/d/f");
	id = f->id;
	length = inode_len(f);
	count = f->nblocks;
	for (uint32_t i = 0; i < count; i++)
		want[i] = f->blocks[i].b.id;
	txn_write_abort(&d.t);
	assert_non_null(mkdtemp(copy.dir));
	db_wait_synced(d.db);
	snprintf(cmd, sizeof(cmd),
		 "cp -r %s/current %s && head -c 300000 /dev/urandom >%s/current/data.mdb", d.dir,
		 copy.dir, copy.dir);
	assert_int_equal(system(cmd), 0);
	if (db_open(copy.dir, &copy.db, &err) < 0)
		fail_msg("%s", err.text);
	copy.users = users_new("supergroup", "");
	expect_blocks(&copy, want, count, length);
	test_begin(&copy, "root");
	assert_int_equal(at(&copy, "/d/f")->id, id);
	assert_null(at(&copy, "/d/t"));
	txn_write_abort(&copy.t);
	test_db_fini(&copy);
	test_db_fini(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_file_keeps_all_but_its_id_and_the_blocks),
		cmocka_unit_test(it_may_become_longer_shorter_and_empty),
		cmocka_unit_test(a_call_that_does_not_fit_is_refused_and_changes_nothing),
		cmocka_unit_test(a_file_in_a_state_that_does_not_fit_is_refused_and_stays_as_it_is),
		cmocka_unit_test(quotas_equal_a_recount),
		cmocka_unit_test(the_journal_brings_it_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
