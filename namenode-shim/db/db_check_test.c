/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: whatever LMDB wrote is whole, and each of its pages is in use or free; each kind
 * of damage is found and named by its page; what is not refused, LMDB can read and change without
 * harm. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <fcntl.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/log.h"

#include "common/base/test_random.h"
#include "namenode-shim/test_db.h"

#define COMMITS 400
#define CHANGES 40
#define DAMAGES 300
#define VALUE_MAX 30000
#define KEY_MAX 511

/* ---- a namespace with every kind of page ---- */

static size_t make_key(uint8_t *key, uint32_t kinds)
{
	const size_t len = random_below(8) ? 8 + random_below(30) : 1 + random_below(KEY_MAX);

	for (size_t i = 0; i < len; i++)
		key[i] = (uint8_t)random_below(256);
	key[0] = (uint8_t)random_below(kinds); /* so that some are met again */
	return len;
}

static size_t value_len(void)
{
	return random_below(60) ? random_below(200) : random_below(VALUE_MAX);
}

/* Delete the first key that is not smaller than a random one. */
static void delete_one(struct test_db *d, MDB_dbi dbi)
{
	uint8_t key[KEY_MAX];
	MDB_val k = {make_key(key, 256), key}, v;
	MDB_cursor *c;

	assert_int_equal(mdb_cursor_open(d->t.t, dbi, &c), 0);
	if (!mdb_cursor_get(c, &k, &v, MDB_SET_RANGE))
		assert_int_equal(mdb_cursor_del(c, 0), 0);
	mdb_cursor_close(c);
}

/* @grow: of 10 changes so many insert. */
static void commit_some(struct test_db *d, uint32_t changes, uint32_t grow)
{
	static uint8_t value[VALUE_MAX];
	const MDB_dbi tables[] = {d->db->inodes, d->db->dirents, d->db->open, d->db->retry};
	uint8_t key[KEY_MAX];

	assert_int_equal(txn_write_begin(d->db, &d->t), 0);
	for (uint32_t i = 0; i < changes; i++) {
		const MDB_dbi dbi = tables[random_below(4)];

		if (random_below(10) < grow)
			assert_int_equal(
				txn_put(&d->t, dbi, key, make_key(key, 256), value, value_len()),
				0);
		else
			delete_one(d, dbi);
	}
	assert_int_equal(txn_write_commit(&d->t), 0);
}

static void path_of(const struct test_db *d, char path[static 128])
{
	snprintf(path, 128, "%s/current/data.mdb", d->dir);
}

static void whole(struct test_db *d)
{
	struct err err = ERR_INIT;
	struct db_check_sum sum;
	char path[128];

	path_of(d, path);
	if (db_check_file(path, &sum, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(sum.used + sum.unused + 2, sum.pages);
	assert_int_equal(sum.page_bytes, 4096);
	assert_int_equal(sum.tables, 16);
}

static void what_was_written_is_whole(void **state)
{
	struct txn reader;
	struct test_db d;
	bool reading = false;

	(void)state;
	test_db_init(&d);
	assert_int_equal(mdb_env_set_flags(d.db->env, MDB_NOSYNC, 1), 0);
	assert_int_equal(txn_reader_new(d.db, &reader), 0);
	whole(&d);
	for (int i = 0; i < COMMITS; i++) {
		/* Grows, then shrinks until nearly nothing is left; a reader holds old pages now
		 * and then. */
		commit_some(&d, random_below(10) ? CHANGES : 8 * CHANGES, i % 100 < 60 ? 8 : 1);
		if (!random_below(15)) {
			if (reading)
				txn_read_end(&reader);
			else
				assert_int_equal(txn_read_begin(&reader), 0);
			reading = !reading;
		}
		if (!random_below(4))
			whole(&d);
		if (!random_below(60) && !reading) {
			txn_reader_free(&reader);
			test_db_reopen(&d);
			assert_int_equal(mdb_env_set_flags(d.db->env, MDB_NOSYNC, 1), 0);
			assert_int_equal(txn_reader_new(d.db, &reader), 0);
		}
	}
	if (reading)
		txn_read_end(&reader);
	txn_reader_free(&reader);
	whole(&d);
	test_db_fini(&d);
}

/* ---- damage ---- */

struct image {
	uint8_t *p;
	size_t len;
};

static struct image image_load(const char *path)
{
	struct image m;
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0 && !fstat(fd, &st));
	m.len = (size_t)st.st_size;
	m.p = malloc(m.len);
	assert_true(m.p && read(fd, m.p, m.len) == (ssize_t)m.len);
	close(fd);
	return m;
}

static void image_store(const char *path, const void *p, size_t len)
{
	int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);

	assert_true(fd >= 0 && write(fd, p, len) == (ssize_t)len);
	close(fd);
}

static void close_db(struct test_db *d)
{
	db_close(d->db);
	d->db = NULL;
}

static uint64_t get(const uint8_t *p, size_t bytes)
{
	uint64_t v = 0;

	memcpy(&v, p, bytes); /* as in the file, on machines that LMDB's files of ours come from */
	return v;
}

static void put(uint8_t *p, size_t bytes, uint64_t v)
{
	memcpy(p, &v, bytes);
}

/* Head of the newer commit, as MDB_meta. */
static uint8_t *newer(struct image m)
{
	uint8_t *a = m.p + 16, *b = m.p + 4096 + 16;

	return get(b + 128, 8) > get(a + 128, 8) ? b : a;
}

#define FREE_TREE 24
#define MAIN_TREE 72
#define ROOT 40

static uint8_t *page(struct image m, uint64_t no)
{
	assert_true((no + 1) * 4096 <= m.len);
	return m.p + no * 4096;
}

static uint8_t *nth(uint8_t *p, size_t i)
{
	return p + get(p + 16 + 2 * i, 2);
}

/* The record of table @name in the main tree, which is one leaf. */
static uint8_t *table_of(struct image m, const char *name)
{
	uint8_t *p = page(m, get(newer(m) + MAIN_TREE + ROOT, 8));

	for (size_t i = 0; i < (get(p + 12, 2) - 16) / 2; i++)
		if (get(nth(p, i) + 6, 2) == strlen(name) &&
		    !memcmp(nth(p, i) + 8, name, strlen(name)))
			return nth(p, i) + 8 + strlen(name);
	fail();
	return NULL;
}

static uint8_t *root_of(struct image m, const char *name)
{
	return page(m, get(table_of(m, name) + ROOT, 8));
}

static uint8_t *leaf_of(struct image m, const char *name)
{
	uint8_t *p = root_of(m, name);

	while (get(p + 10, 2) == 1)
		p = page(m, get(nth(p, 1), 4));
	return p;
}

/* Two neighbours get one key: that of the shorter one, and the other's value grows by the rest. */
static void make_keys_equal(uint8_t *leaf)
{
	for (size_t i = 0;; i++) {
		uint8_t *a = nth(leaf, i), *b = nth(leaf, i + 1);
		uint8_t *from = get(a + 6, 2) < get(b + 6, 2) ? a : b, *to = from == a ? b : a;
		const size_t len = get(from + 6, 2);

		assert_true(i + 1 < (get(leaf + 12, 2) - 16) / 2);
		if (get(to + 4, 2)) /* its value is elsewhere */
			continue;
		put(to, 4, get(to, 4) + get(to + 6, 2) - len);
		put(to + 6, 2, len);
		memcpy(to + 8, from + 8, len);
		return;
	}
}

/* A node of a tree whose value is elsewhere. */
static uint8_t *large_below(struct image m, uint8_t *p)
{
	const bool leaf = get(p + 10, 2) == 2;

	for (size_t i = 0; i < (get(p + 12, 2) - 16) / 2; i++) {
		uint8_t *n = nth(p, i);

		n = leaf ? get(n + 4, 2) == 1 ? n : NULL : large_below(m, page(m, get(n, 4)));
		if (n)
			return n;
	}
	return NULL;
}

static uint8_t *large_of(struct image m)
{
	uint8_t *n = large_below(m, root_of(m, "retry"));

	assert_non_null(n);
	return n;
}

static uint8_t *free_list(struct image m)
{
	uint8_t *p = page(m, get(newer(m) + FREE_TREE + ROOT, 8)), *n;

	while (get(p + 10, 2) == 1)
		p = page(m, get(nth(p, 0), 4));
	n = nth(p, 0);
	return get(n + 4, 2) ? page(m, get(n + 16, 8)) + 16 : n + 16;
}

enum head_damage {
	MAGIC,
	FORMAT,
	PAGE_SIZE,
	TXNID,
	CUT,
	DEPTH,
	FREE_FLAGS,
	ENTRIES,
	PAGES,
	TABLE_NAME,
	TABLE_FLAGS,
	N_HEAD_DAMAGES
};

/* The heads of the file and what they say of the trees. */
static const char *damage_heads(unsigned int what, struct image m)
{
	switch ((enum head_damage)what) {
	case MAGIC:
		m.p[4096 + 16] ^= 1;
		return "page 1: it is not the head";
	case FORMAT:
		m.p[16 + 4] ^= 4;
		return "page 0: format 5";
	case PAGE_SIZE:
		put(m.p + 16 + 24, 4, 4097);
		return "page 0: pages of 4097 bytes";
	case TXNID:
		put(newer(m) + 128, 8, get(newer(m) + 128, 8) + 2);
		return "do not follow each other";
	case CUT:
		put(newer(m) + 120, 8, 1ull << 40);
		return "the file was cut to";
	case DEPTH:
		put(newer(m) + MAIN_TREE + 6, 2, 33);
		return "the tree of the main tree has 33 levels";
	case FREE_FLAGS:
		put(newer(m) + FREE_TREE + 4, 2, 0);
		return "flags 0x0 and 0x0";
	case ENTRIES:
		put(table_of(m, "retry") + 32, 8, 3);
		return "records and says 3";
	case PAGES:
		put(table_of(m, "retry") + 16, 8, 3);
		return "pages, not the number it says";
	case TABLE_NAME:
		table_of(m, "retry")[-1] ^= 8; /* retrq */
		return "it names a table that this version does not know";
	case TABLE_FLAGS:
		put(table_of(m, "retry") + 4, 2, 4);
		return "table retry has flags 0x4";
	case N_HEAD_DAMAGES:
		break;
	}
	return NULL;
}

enum page_damage {
	PGNO,
	PAGE_FLAGS,
	LOWER,
	UPPER,
	POINTER,
	TWICE,
	KEY_SIZE,
	VALUE_SIZE,
	NODE_FLAGS,
	ORDER,
	SAME_KEY,
	N_PAGE_DAMAGES
};

/* One leaf and its nodes. */
static const char *damage_a_page(unsigned int what, struct image m)
{
	uint8_t *leaf = leaf_of(m, "retry");

	switch ((enum page_damage)what) {
	case PGNO:
		leaf[1] ^= 1;
		return "it says that it is page";
	case PAGE_FLAGS:
		leaf[10] ^= 0x20;
		return "a leaf of retry has flags 0x22";
	case LOWER:
		put(leaf + 12, 2, get(leaf + 14, 2) + 2);
		return "its free space is bytes";
	case UPPER:
		put(leaf + 14, 2, 5000);
		return "to 5000";
	case POINTER:
		put(leaf + 18, 2, 4094);
		return "is at byte 4094";
	case TWICE:
		put(leaf + 18, 2, get(leaf + 16, 2));
		return "belongs to no node";
	case KEY_SIZE:
		put(nth(leaf, 1) + 6, 2, 600);
		return "has 600 bytes";
	case VALUE_SIZE:
		put(nth(leaf, 1), 4, 0x7fffffff);
		return "bytes";
	case NODE_FLAGS:
		put(nth(leaf, 1) + 4, 2, 4);
		return "has flags 0x4";
	case ORDER: {
		const uint64_t a = get(leaf + 16, 2);

		put(leaf + 16, 2, get(leaf + 18, 2));
		put(leaf + 18, 2, a);
		return "a key of retry is out of order";
	}
	case SAME_KEY:
		make_keys_equal(leaf);
		return "a key of retry is out of order";
	case N_PAGE_DAMAGES:
		break;
	}
	return NULL;
}

enum reference_damage {
	CHILD_BEYOND,
	CHILD_TWICE,
	CHILD_META,
	RUN_PLACE,
	RUN_SIZE,
	FREE_COUNT,
	FREE_USED,
	N_REFERENCE_DAMAGES
};

/* What refers to other pages. */
static const char *damage_references(unsigned int what, struct image m)
{
	uint8_t *leaf = leaf_of(m, "retry"), *root = root_of(m, "retry");

	switch ((enum reference_damage)what) {
	case CHILD_BEYOND:
		put(nth(root, 0) + 4, 2, 1);
		return "but the file has pages 2 to";
	case CHILD_TWICE:
		put(nth(root, 0), 4, get(root, 8));
		return "which has another use";
	case CHILD_META:
		put(nth(root, 0), 4, 1);
		return "it refers to page 1,";
	case RUN_PLACE:
		put(large_of(m), 4, 0xfffffff0);
		return "a value of 4294967280 bytes has";
	case RUN_SIZE: {
		uint8_t *n = large_of(m);

		put(page(m, get(n + 8 + get(n + 6, 2), 8)) + 12, 4, 0xffffffff);
		return "refers to page";
	}
	case FREE_COUNT:
		put(free_list(m), 8, 1 << 30);
		return "a list of 1073741824 free pages has room for";
	case FREE_USED:
		put(free_list(m), 8, 1);
		put(free_list(m) + 8, 8, get(leaf, 8));
		return "which has another use";
	case N_REFERENCE_DAMAGES:
		break;
	}
	return NULL;
}

static const struct {
	const char *(*fn)(unsigned int what, struct image m); /* gives words of the finding */
	unsigned int n;
} damages[] = {
	{damage_heads, N_HEAD_DAMAGES},
	{damage_a_page, N_PAGE_DAMAGES},
	{damage_references, N_REFERENCE_DAMAGES},
};

static void add_large(struct test_db *d)
{
	static const uint8_t value[VALUE_MAX];

	assert_int_equal(txn_write_begin(d->db, &d->t), 0);
	assert_int_equal(txn_put(&d->t, d->db->retry, "large", 5, value, sizeof(value)), 0);
	assert_int_equal(txn_write_commit(&d->t), 0);
}

static struct image make_image(struct test_db *d, char path[static 128])
{
	test_db_init(d);
	path_of(d, path);
	assert_int_equal(mdb_env_set_flags(d->db->env, MDB_NOSYNC, 1), 0);
	for (int i = 0; i < 20; i++)
		commit_some(d, 3 * CHANGES, i < 18 ? 8 : 2);
	add_large(d); /* chance may have left none */
	whole(d);
	close_db(d);
	return image_load(path);
}

static void assert_found(const char *path, const char *words)
{
	struct db_check_sum sum;
	struct err err = ERR_INIT;

	if (db_check_file(path, &sum, &err) != -EBADMSG || !strstr(err.text, words) ||
	    !strstr(err.text, "data.mdb is damaged: page "))
		fail_msg("\"%s\" has no \"%s\"", err.text, words);
}

static void each_kind_of_damage_is_found_and_named(void **state)
{
	struct db_check_sum sum;
	struct test_db d;
	char path[128];
	struct image good, m;

	(void)state;
	good = make_image(&d, path);
	m = good;
	m.p = malloc(m.len);
	assert_non_null(m.p);
	for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++)
		for (unsigned int what = 0; what < damages[i].n; what++) {
			const char *words;

			memcpy(m.p, good.p, m.len);
			words = damages[i].fn(what, m);
			image_store(path, m.p, m.len);
			assert_found(path, words);
		}
	image_store(path, good.p, good.len);
	assert_int_equal(db_check_file(path, &sum, NULL), 0);
	/* Most pages are in use; what lies behind the last of these may go, as LMDB leaves such
	 * files itself. */
	for (size_t len = 0; len < good.len / 2; len += 1 + good.len / 50) {
		struct err err = ERR_INIT;

		image_store(path, good.p, len);
		assert_int_equal(db_check_file(path, &sum, &err), -EBADMSG);
	}
	image_store(path, good.p, good.len);
	free(m.p);
	free(good.p);
	test_db_fini(&d);
}

/* One damage as disks and cables make them. */
static void damage_by_chance(struct image m)
{
	const size_t pages = m.len / 4096;
	uint8_t *p = m.p + random_below((uint32_t)pages) * 4096;
	const uint32_t kind = random_below(8);

	if (!random_below(3))
		p = m.p + random_below(4) * 4096;
	if (kind == 0)
		memset(p, 0, 4096);
	else if (kind == 1)
		memmove(p, m.p + random_below((uint32_t)pages) * 4096, 4096);
	else if (kind == 2)
		for (size_t i = 0; i < 4096; i++)
			p[i] = (uint8_t)random_below(256);
	else if (kind == 3)
		p[random_below(4096)] ^= (uint8_t)(1 << random_below(8));
	else if (kind == 4)
		p[random_below(160)] = (uint8_t)random_below(256);
	else if (kind == 5) /* the head of a node, if there are any */
		p[(get(p + 16 + 2 * (size_t)random_below(8), 2) & 4095) % 4088 + random_below(8)] =
			(uint8_t)random_below(256);
	else if (kind == 6) /* its flags and free space */
		p[8 + random_below(8)] ^= (uint8_t)(1 << random_below(8));
	else
		for (size_t i = random_below(4096), n = 0; i < 4096 && n < 8; i++, n++)
			p[i] = (uint8_t)random_below(256);
}

static int read_all(struct test_db *d, MDB_dbi dbi)
{
	MDB_val k, v;
	MDB_cursor *c;
	int rc = mdb_cursor_open(d->t.t, dbi, &c), sum = 0;

	if (rc)
		return rc;
	while (!(rc = mdb_cursor_get(c, &k, &v, MDB_NEXT))) {
		for (size_t i = 0; i < k.mv_size; i++)
			sum += ((const uint8_t *)k.mv_data)[i];
		for (size_t i = 0; i < v.mv_size; i++)
			sum += ((const uint8_t *)v.mv_data)[i];
	}
	mdb_cursor_close(c);
	return rc == MDB_NOTFOUND && sum >= 0 ? 0 : rc;
}

/* A crash is the failure; what is read may be any bytes. */
static void what_is_not_refused_does_no_harm(void **state)
{
	struct image good, m;
	struct test_db d;
	char path[128];
	int served = 0;

	(void)state;
	good = make_image(&d, path);
	m = good;
	m.p = malloc(m.len);
	assert_non_null(m.p);
	for (int i = 0; i < DAMAGES; i++) {
		struct err err = ERR_INIT;

		memcpy(m.p, good.p, m.len);
		damage_by_chance(m);
		image_store(path, m.p, m.len);
		if (db_open(d.dir, &d.db, &err) < 0) {
			assert_true(err.text[0]);
			continue;
		}
		served++;
		assert_int_equal(mdb_env_set_flags(d.db->env, MDB_NOSYNC, 1), 0);
		assert_int_equal(txn_write_begin(d.db, &d.t), 0);
		assert_int_equal(read_all(&d, d.db->retry), 0);
		assert_int_equal(read_all(&d, d.db->inodes), 0);
		assert_int_equal(read_all(&d, d.db->dirents), 0);
		txn_write_abort(&d.t);
		commit_some(&d, CHANGES, 3);
		commit_some(&d, CHANGES, 7);
		close_db(&d);
	}
	print_message("%d of %d damages hit what is not judged here\n", served, DAMAGES);
	assert_true(served > 0 && served < DAMAGES * 9 / 10);
	image_store(path, good.p, good.len);
	free(m.p);
	free(good.p);
	test_db_fini(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_written_is_whole),
		cmocka_unit_test(each_kind_of_damage_is_found_and_named),
		cmocka_unit_test(what_is_not_refused_does_no_harm),
	};

	test_random_begin();
	log_init("test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
