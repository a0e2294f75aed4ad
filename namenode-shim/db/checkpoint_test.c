/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: with the journal on, every commit is there after the process died, and after the
 * machine died and left data.mdb as rubbish; what was held may be gone then, and its ids are not
 * given again; what was aborted or failed is not there; a clean stop leaves data.mdb alone; without
 * room for a checkpoint LMDB syncs as ever. A checkpoint counts when it was checked, and it and its
 * name are on the disk. */
// clang-format off
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "namenode-shim/db/checkpoint.h"
#include "namenode-shim/db/db_check.h"

#include "common/base/test_random.h"
#include "namenode-shim/test_db.h"

#define KEYS 400
#define VALUE_MAX 3000
#define WAIT_MS 20000

/* The first sync of current/ that finds a mark fails; */
static const char *mark_to_fail;
/* or that of a checkpoint before it has its name, or of current/ when it has just got it. */
static const char *_Atomic copy_to_fail, *_Atomic name_to_fail;
static char mark[128];         /* where it will be */
static atomic_uint mark_syncs; /* of current/ while it is there */
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	struct stat st, is = {0};

	if (fstat(fd, &st) < 0)
		return -1;
	mark_syncs += S_ISDIR(st.st_mode) && !access(mark, F_OK);
	if (copy_to_fail && !stat(copy_to_fail, &is) && is.st_ino == st.st_ino)
		copy_to_fail = NULL;
	else if (name_to_fail && S_ISDIR(st.st_mode) && !access(name_to_fail, F_OK) &&
		 access(mark, F_OK))
		name_to_fail = NULL;
	else if (mark_to_fail && S_ISDIR(st.st_mode) && !access(mark_to_fail, F_OK))
		mark_to_fail = NULL;
	else
		return __real_fsync(fd);
	errno = EIO;
	return -1;
}

/* The next sync of a journal's data fails. */
static bool data_to_fail;
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
	if (!data_to_fail)
		return __real_fdatasync(fd);
	data_to_fail = false;
	errno = EIO;
	return -1;
}

/* So many questions for room are answered as it is, then there is none. */
static atomic_int room_looks = INT_MAX;
int __real_statvfs64(const char *path, struct statvfs *ret);
int __wrap_statvfs64(const char *path, struct statvfs *ret);
int __wrap_statvfs64(const char *path, struct statvfs *ret)
{
	const int rc = __real_statvfs64(path, ret);

	if (!room_looks)
		ret->f_bavail = 0;
	else if (room_looks < INT_MAX)
		room_looks--;
	return rc;
}

static bool check_to_fail; /* each one */
int __real_db_check_file(const char *path, struct db_check_sum *ret, struct err *err);
int __wrap_db_check_file(const char *path, struct db_check_sum *ret, struct err *err);
int __wrap_db_check_file(const char *path, struct db_check_sum *ret, struct err *err)
{
	return check_to_fail ? err_set(err, -EBADMSG, "%s is damaged", path)
			     : __real_db_check_file(path, ret, err);
}

static void fill(uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)random_below(256);
}

static bool exists(const struct test_db *d, const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/current/%s", d->dir, name);
	return !access(path, F_OK);
}

static __attribute__((format(printf, 1, 2))) void shell(const char *fmt, ...)
{
	char cmd[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	assert_int_equal(system(cmd), 0);
}

/* ---- changes ---- */

static void change(struct test_db *d)
{
	const MDB_dbi tables[] = {d->db->inodes, d->db->dirents, d->db->retry, d->db->quota};
	const MDB_dbi dbi = tables[random_below(4)];
	uint8_t key[12] = {0}, val[VALUE_MAX];
	const size_t len = random_below(VALUE_MAX);
	const uint32_t k = random_below(KEYS), what = random_below(4);
	void *room;
	int rc;

	key[0] = 0xff; /* beside what a namespace has */
	memcpy(key + 8, &k, sizeof(k));
	if (what == 0) {
		rc = txn_del(&d->t, dbi, key, sizeof(key));
		assert_true(!rc || rc == -ENOENT);
	} else if (what == 1) {
		assert_int_equal(txn_reserve(&d->t, dbi, key, sizeof(key), len, &room), 0);
		fill(room, len);
	} else {
		fill(val, len);
		assert_int_equal(txn_put(&d->t, dbi, key, sizeof(key), val, len), 0);
		memset(val, 0, sizeof(val)); /* the caller's bytes are the caller's again */
	}
	d->t.ctr.block += random_below(2);
}

static void commit(struct test_db *d)
{
	const uint32_t n = random_below(20);

	assert_int_equal(txn_write_begin(d->db, &d->t), 0);
	for (uint32_t i = 0; i < n; i++)
		change(d);
	if (random_below(2))
		assert_true(txn_write_commit_later(&d->t, random_below(2)) >= 0);
	else if (random_below(5))
		assert_int_equal(txn_write_commit(&d->t), 0);
	else
		txn_write_abort(&d->t);
}

/* Commit until LMDB does not sync any more. */
static void log_on(struct test_db *d)
{
	assert_int_equal(db_log_start(d->db, NULL, NULL), 0);
	for (int ms = 0; !exists(d, "unsynced"); ms++) {
		assert_true(ms < WAIT_MS);
		commit(d);
		(void)poll(NULL, 0, 1);
	}
	for (int i = 0; i < 30; i++)
		commit(d);
}

/* ---- comparing ---- */

static uint64_t mix(uint64_t h, const MDB_val *v)
{
	const uint8_t *p = v->mv_data;

	h = (h ^ v->mv_size) * 1099511628211u;
	for (size_t i = 0; i < v->mv_size; i++)
		h = (h ^ p[i]) * 1099511628211u;
	return h;
}

/* After a crash ids are passed over. */
static bool is_counter(const MDB_val *k)
{
	return k->mv_size >= 5 && !memcmp(k->mv_data, "last_", 5);
}

/* All keys and values of all tables, but for the counters. */
static uint64_t digest(struct db *db)
{
	const MDB_dbi *dbi;
	uint64_t h = 14695981039346656037u;
	struct txn t;

	assert_int_equal(txn_reader_new(db, &t), 0);
	assert_int_equal(txn_read_begin(&t), 0);
	for (uint32_t i = 0; (dbi = db_table(db, i)); i++) {
		MDB_cursor *c;
		MDB_val k, v;

		assert_int_equal(mdb_cursor_open(t.t, *dbi, &c), 0);
		while (!mdb_cursor_get(c, &k, &v, MDB_NEXT))
			if (!is_counter(&k))
				h = mix(mix(h, &k), &v);
		mdb_cursor_close(c);
	}
	txn_read_end(&t);
	txn_reader_free(&t);
	return h;
}

/* What a process finds that starts on the files as they are now, or as a power cut left them. */
static uint64_t digest_after(struct test_db *d, bool power_cut)
{
	struct test_db copy = {.dir = "/tmp/nn-test-XXXXXX"};
	struct err err = ERR_INIT;
	bool skips;
	uint64_t h;

	assert_non_null(mkdtemp(copy.dir));
	db_wait_synced(d->db);
	skips = exists(d, "unsynced");
	/* again where a segment of the journal went away meanwhile, after a checkpoint */
	shell("for i in 1 2 3; do cp -r %s/current %s && exit; rm -r %s/current; done; exit 1",
	      d->dir, copy.dir, copy.dir);
	if (power_cut) {
		assert_true(exists(&copy, "unsynced"));
		shell("head -c 300000 /dev/urandom >%s/current/data.mdb", copy.dir);
	}
	if (db_open(copy.dir, &copy.db, &err) < 0)
		fail_msg("%s", err.text);
	/* or the records of its journal might not follow its first checkpoint */
	assert_int_equal(copy.db->seq, d->db->seq);
	assert_int_equal(copy.db->ctr.inode, d->db->ctr.inode + (skips ? DB_IDS_SKIPPED : 0));
	assert_int_equal(copy.db->ctr.block, d->db->ctr.block + (skips ? DB_IDS_SKIPPED : 0));
	assert_int_equal(copy.db->ctr.gs, d->db->ctr.gs + (skips ? DB_IDS_SKIPPED : 0));
	assert_false(exists(&copy, "unsynced"));
	assert_false(exists(&copy, "checkpoint.mdb"));
	h = digest(copy.db);
	test_db_fini(&copy);
	return h;
}

static void all_is_there_after_either_death(void **state)
{
	struct test_db d;

	(void)state;
	test_db_init(&d);
	log_on(&d);
	for (int i = 0; i < 20; i++) {
		for (int k = 0; k < 10; k++)
			commit(&d);
		assert_int_equal(digest_after(&d, false), digest(d.db));
		assert_int_equal(digest_after(&d, true), digest(d.db));
	}
	test_db_fini(&d);
}

static void a_clean_stop_leaves_one_file(void **state)
{
	struct test_db d;
	uint64_t h;

	(void)state;
	test_db_init(&d);
	for (int i = 0; i < 3; i++) {
		log_on(&d);
		h = digest(d.db);
		test_db_reopen(&d);
		assert_int_equal(digest(d.db), h);
		assert_false(exists(&d, "unsynced"));
		assert_false(exists(&d, "checkpoint.mdb"));
		assert_false(exists(&d, "journal.1"));
	}
	test_db_fini(&d);
}

/* Until a second checkpoint is made, and the first segments are gone. */
static void a_long_journal_becomes_a_checkpoint(void **state)
{
	static uint8_t val[VALUE_MAX * 10];
	struct test_db d;

	(void)state;
	test_db_init(&d);
	log_on(&d);
	assert_true(exists(&d, "journal.1"));
	for (int i = 0; exists(&d, "journal.1"); i++) {
		assert_true(i < 2000);
		assert_int_equal(txn_write_begin(d.db, &d.t), 0);
		for (uint64_t k = 0; k < 40; k++) {
			fill(val, 16);
			assert_int_equal(
				txn_put(&d.t, d.db->inodes, &k, sizeof(k), val, sizeof(val)), 0);
		}
		assert_int_equal(txn_write_commit(&d.t), 0);
	}
	for (int i = 0; i < 20; i++)
		commit(&d);
	while (exists(&d, "checkpoint.tmp")) /* files must not change while they are copied */
		(void)poll(NULL, 0, 1);
	assert_int_equal(digest_after(&d, true), digest(d.db));
	test_db_fini(&d);
}

static void a_full_map_takes_nothing(void **state)
{
	static uint8_t val[1 << 20];
	struct test_db d;
	uint64_t h;

	(void)state;
	test_db_init(&d);
	log_on(&d);
	assert_int_equal(mdb_env_set_mapsize(d.db->env, 16 << 20), 0);
	d.db->map_bytes = 16 << 20;
	h = digest(d.db);
	assert_int_equal(txn_write_begin(d.db, &d.t), 0);
	for (uint64_t k = 0; !d.t.failed; k++)
		(void)txn_put(&d.t, d.db->inodes, &k, sizeof(k), val, sizeof(val));
	assert_int_equal(txn_write_commit(&d.t), -EXFULL);
	assert_int_equal(digest(d.db), h);
	assert_int_equal(digest_after(&d, true), h);
	assert_int_equal(db_grow(d.db), 0);
	commit(&d);
	assert_int_equal(digest_after(&d, true), digest(d.db));
	test_db_fini(&d);
}

static void without_a_checkpoint_lmdb_syncs(void **state)
{
	char path[128];
	struct test_db d;
	uint64_t h;

	(void)state;
	test_db_init(&d);
	snprintf(path, sizeof(path), "%s/current/checkpoint.tmp", d.dir);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(db_log_start(d.db, NULL, NULL), 0);
	for (int i = 0; i < 100; i++) {
		commit(&d);
		(void)poll(NULL, 0, 1);
	}
	assert_false(exists(&d, "unsynced"));
	assert_false(exists(&d, "journal.1"));
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(digest_after(&d, false), digest(d.db));
	h = digest(d.db);
	test_db_reopen(&d);
	assert_int_equal(digest(d.db), h);
	test_db_fini(&d);
}

static void the_mark_is_on_the_disk_when_it_counts(void **state)
{
	struct test_db d;

	(void)state;
	test_db_init(&d);
	snprintf(mark, sizeof(mark), "%s/current/unsynced", d.dir);
	mark_syncs = 0;
	log_on(&d);
	assert_true(exists(&d, "unsynced"));
	assert_true(mark_syncs > 0);
	test_db_fini(&d);
}

static void a_mark_that_was_not_synced_goes_away(void **state)
{
	struct test_db d;

	(void)state;
	test_db_init(&d);
	snprintf(mark, sizeof(mark), "%s/current/unsynced", d.dir);
	mark_to_fail = mark;
	assert_int_equal(db_log_start(d.db, NULL, NULL), 0);
	for (int ms = 0; mark_to_fail; ms++) {
		assert_true(ms < WAIT_MS);
		commit(&d);
		(void)poll(NULL, 0, 1);
	}
	for (int i = 0; i < 30; i++)
		commit(&d);
	assert_false(exists(&d, "unsynced"));
	assert_false(exists(&d, "checkpoint.mdb"));
	assert_int_equal(digest_after(&d, false), digest(d.db));
	test_db_fini(&d);
}

/* Changes until the first try to make a checkpoint has failed. */
static void try_in_vain(struct test_db *d, bool (*is_over)(void))
{
	assert_int_equal(db_log_start(d->db, NULL, NULL), 0);
	/* until LMDB is alone again */
	for (int ms = 0; !is_over() || exists(d, "journal.1"); ms++) {
		assert_true(ms < WAIT_MS);
		commit(d);
		(void)poll(NULL, 0, 1);
	}
	for (int i = 0; i < 30; i++)
		commit(d);
	assert_false(exists(d, "unsynced"));
	assert_false(exists(d, "checkpoint.mdb"));
	assert_int_equal(digest_after(d, false), digest(d->db));
}

static bool has_failed(void)
{
	return !copy_to_fail && !name_to_fail;
}

static bool is_full(void)
{
	return !room_looks;
}

static void a_checkpoint_counts_when_it_and_its_name_are_on_the_disk(void **state)
{
	(void)state;
	for (int name = 0; name < 2; name++) {
		struct test_db d;
		char path[128];

		test_db_init(&d);
		snprintf(path, sizeof(path), "%s/current/checkpoint.%s", d.dir,
			 name ? "mdb" : "tmp");
		snprintf(mark, sizeof(mark), "%s/current/unsynced", d.dir);
		*(name ? &name_to_fail : &copy_to_fail) = path;
		try_in_vain(&d, has_failed);
		test_db_fini(&d);
	}
}

/* There was room when the journal began. */
static void a_checkpoint_leaves_the_disk_room(void **state)
{
	struct test_db d;

	(void)state;
	test_db_init(&d);
	room_looks = 1;
	try_in_vain(&d, is_full);
	room_looks = INT_MAX;
	test_db_fini(&d);
}

/* Its process ends: what it has mapped cannot be believed, and the old files are as they were. */
static void a_damaged_checkpoint_takes_the_place_of_none(void **state)
{
	struct err err = ERR_INIT;
	struct test_db d;
	int status = 0;
	pid_t child;

	(void)state;
	test_db_init(&d);
	db_close(d.db);
	d.db = NULL;
	child = fork();
	if (!child) {
		alarm(WAIT_MS / 1000);
		if (db_open(d.dir, &d.db, &err) < 0 || db_log_start(d.db, NULL, NULL))
			_exit(2);
		check_to_fail = true;
		while (!exists(&d, "checkpoint.mdb")) {
			uint64_t key = 1;

			if (txn_write_begin(d.db, &d.t) ||
			    txn_put(&d.t, d.db->quota, &key, sizeof(key), "x", 1) ||
			    txn_write_commit(&d.t))
				_exit(3);
		}
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
	assert_false(exists(&d, "checkpoint.mdb"));
	test_db_reopen(&d);
	test_db_fini(&d);
}

/* 32 MiB of changes that nobody waits for fill a segment. */
static void what_is_held_is_on_the_disk_before_the_next_segment(void **state)
{
	static uint8_t val[1 << 20];
	struct test_db d;

	(void)state;
	test_db_init(&d);
	log_on(&d);
	db_flush(d.db);
	db_wait_synced(d.db);
	data_to_fail = true; /* its sync alone: nobody else asks for one */
	for (uint64_t i = 0; data_to_fail; i++) {
		const uint64_t k = i % 4;

		assert_true(i < 48);
		fill(val, 16);
		assert_int_equal(txn_write_begin(d.db, &d.t), 0);
		assert_int_equal(txn_put(&d.t, d.db->quota, &k, sizeof(k), val, sizeof(val)), 0);
		assert_true(txn_write_commit_later(&d.t, true) >= 0);
	}
	assert_false(exists(&d, "unsynced")); /* data.mdb has them */
	assert_int_equal(digest_after(&d, false), digest(d.db));
	test_db_fini(&d);
}

static void a_record_that_is_lost_leaves_the_change_to_lmdb(void **state)
{
	struct test_db d;

	(void)state;
	test_db_init(&d);
	for (int how = 0; how < 4; how++) {
		uint64_t key = 1;
		int rc;

		log_on(&d);
		db_wait_synced(d.db);
		assert_int_equal(txn_write_begin(d.db, &d.t), 0);
		assert_int_equal(txn_put(&d.t, d.db->quota, &key, sizeof(key), "kept", 4), 0);
		data_to_fail = true;
		rc = how == 3 ? txn_write_commit(&d.t) : txn_write_commit_later(&d.t, false);
		assert_int_equal(rc, how == 3 ? 0 : TXN_UNDER_WAY);
		assert_int_equal(exists(&d, "unsynced"), how < 3); /* or it has waited */
		if (how == 0) { /* whoever waits for it hears of nothing */
			db_wait_synced(d.db);
		} else if (how == 1) { /* nor does the next change */
			commit(&d);
		} else if (how == 2) {
			while (!(rc = db_synced(d.db)))
				(void)poll(NULL, 0, 1);
			assert_int_equal(rc, -EIO);
			assert_int_equal(db_synced(d.db), -EIO);
			assert_int_equal(txn_write_begin(d.db, &d.t), 0);
			assert_int_equal(txn_put(&d.t, d.db->retry, &key, sizeof(key), "too", 3),
					 0);
			assert_int_equal(txn_write_commit_later(&d.t, false), 0);
		}
		db_wait_synced(d.db);
		assert_int_equal(db_synced(d.db), 1);
		assert_false(data_to_fail);
		assert_false(exists(&d, "unsynced"));
		assert_false(exists(&d, "checkpoint.mdb"));
		assert_int_equal(digest_after(&d, false), digest(d.db));
		test_db_reopen(&d); /* and the journal begins anew */
	}
	test_db_fini(&d);
}

/* A change with an id, that is held. */
static void hold(struct test_db *d, uint64_t key)
{
	assert_int_equal(txn_write_begin(d->db, &d->t), 0);
	assert_int_equal(txn_put(&d->t, d->db->quota, &key, sizeof(key), "held", 4), 0);
	d->t.ctr.block++;
	assert_int_equal(txn_write_commit_later(&d->t, true), TXN_HELD);
	assert_true(db_held_ns(d->db) > 0);
	assert_int_equal(db_synced(d->db), 1); /* nobody waits for it */
}

static void what_is_held_outlives_a_kill_and_its_id_a_power_cut(void **state)
{
	struct test_db d, copy = {.dir = "/tmp/nn-test-XXXXXX"};
	struct err err = ERR_INIT;
	uint64_t h;

	(void)state;
	test_db_init(&d);
	log_on(&d);
	db_flush(d.db);
	db_wait_synced(d.db);
	h = digest(d.db);
	assert_non_null(mkdtemp(copy.dir));
	shell("cp -r %s/current %s && head -c 300000 /dev/urandom >%s/current/data.mdb", d.dir,
	      copy.dir, copy.dir);
	hold(&d, 1);
	hold(&d, 2);
	assert_int_equal(digest_after(&d, false), digest(d.db));
	if (db_open(copy.dir, &copy.db, &err) < 0) /* the disk never heard of them */
		fail_msg("%s", err.text);
	assert_int_equal(digest(copy.db), h);
	assert_true(copy.db->ctr.block > d.db->ctr.block);
	test_db_fini(&copy);

	/* A change that is not held, even one without changes, takes them along. */
	assert_int_equal(txn_write_begin(d.db, &d.t), 0);
	assert_int_equal(txn_write_commit_later(&d.t, true), 0);
	assert_true(db_held_ns(d.db) > 0);
	assert_int_equal(txn_write_begin(d.db, &d.t), 0);
	assert_int_equal(txn_write_commit_later(&d.t, false), TXN_UNDER_WAY);
	assert_int_equal(db_held_ns(d.db), 0);
	db_wait_synced(d.db);
	assert_int_equal(txn_write_begin(d.db, &d.t), 0);
	assert_int_equal(txn_write_commit_later(&d.t, false), 0);

	/* A journal that cannot be synced leaves them to LMDB. */
	hold(&d, 3);
	data_to_fail = true;
	db_flush(d.db);
	db_wait_synced(d.db);
	assert_false(data_to_fail);
	assert_false(exists(&d, "unsynced"));
	assert_int_equal(digest_after(&d, false), digest(d.db));
	h = digest(d.db);
	test_db_reopen(&d);
	assert_int_equal(digest(d.db), h);
	test_db_fini(&d);
}

/* A start on a copy of the files of a process that died, after @damage was done to its current/. */
static void refused_after(struct test_db *d, const char *damage, const char *why)
{
	struct test_db copy = {.dir = "/tmp/nn-test-XXXXXX"};
	struct err err = ERR_INIT;
	struct db_check_sum sum;

	assert_non_null(mkdtemp(copy.dir));
	shell("cp -r %s/current %s", d->dir, copy.dir);
	shell("cd %s/current && cp -f data.mdb ../before 2>/dev/null; %s", copy.dir, damage);
	assert_true(db_check(copy.dir, &sum, &err) < 0);
	assert_non_null(strstr(err.text, why));
	assert_true(db_open(copy.dir, &copy.db, &err) < 0);
	assert_non_null(strstr(err.text, why));
	assert_non_null(strstr(err.text, DB_RESTORE));
	shell("cd %s/current && cmp data.mdb ../before", copy.dir); /* a person may still want it */
	assert_true(exists(&copy, "unsynced"));
	copy.db = NULL;
	test_db_fini(&copy);
}

static void what_is_missing_or_damaged_is_told_before_anything_changes(void **state)
{
	struct test_db d;

	(void)state;
	test_db_init(&d);
	log_on(&d);
	refused_after(&d, "rm checkpoint.mdb", "unsynced says that the checkpoint counts");
	refused_after(&d, "rm journal.*", "no journal.N is there");
	/* in the number of its first record: a byte of a value might be an X already */
	refused_after(&d, "printf X | dd of=journal.1 bs=1 seek=9 conv=notrunc status=none",
		      "journal.1");
	test_db_fini(&d);
}

static void the_checkpoint_makes_up_for_a_lost_file(void **state)
{
	struct test_db d, copy = {.dir = "/tmp/nn-test-XXXXXX"};
	struct err err = ERR_INIT;

	(void)state;
	test_db_init(&d);
	log_on(&d);
	assert_non_null(mkdtemp(copy.dir));
	shell("cp -r %s/current %s && rm %s/current/data.mdb", d.dir, copy.dir, copy.dir);
	if (db_open(copy.dir, &copy.db, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(digest(copy.db), digest(d.db));
	test_db_fini(&copy);
	test_db_fini(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_is_there_after_either_death),
		cmocka_unit_test(a_clean_stop_leaves_one_file),
		cmocka_unit_test(a_long_journal_becomes_a_checkpoint),
		cmocka_unit_test(a_full_map_takes_nothing),
		cmocka_unit_test(without_a_checkpoint_lmdb_syncs),
		cmocka_unit_test(the_mark_is_on_the_disk_when_it_counts),
		cmocka_unit_test(a_mark_that_was_not_synced_goes_away),
		cmocka_unit_test(a_checkpoint_counts_when_it_and_its_name_are_on_the_disk),
		cmocka_unit_test(a_checkpoint_leaves_the_disk_room),
		cmocka_unit_test(a_damaged_checkpoint_takes_the_place_of_none),
		cmocka_unit_test(what_is_held_is_on_the_disk_before_the_next_segment),
		cmocka_unit_test(a_record_that_is_lost_leaves_the_change_to_lmdb),
		cmocka_unit_test(what_is_held_outlives_a_kill_and_its_id_a_power_cut),
		cmocka_unit_test(what_is_missing_or_damaged_is_told_before_anything_changes),
		cmocka_unit_test(the_checkpoint_makes_up_for_a_lost_file),
	};

	test_random_begin();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
