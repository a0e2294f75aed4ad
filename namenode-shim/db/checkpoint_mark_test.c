/* SPDX-License-Identifier: Apache-2.0 */
/* The mark says that the checkpoint and the journal count, not data.mdb. What must hold: it goes
 * when data.mdb is on the disk and not before, at a start that has applied the journal and at a
 * stop; no checkpoint is made from a data.mdb that could not be synced. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "namenode-shim/db/checkpoint.h"
#include "namenode-shim/test_db.h"

#define KEYS_MAX 20000

static bool sync_fails; /* of data.mdb as a whole */
int __real_mdb_env_sync(MDB_env *env, int force);
int __wrap_mdb_env_sync(MDB_env *env, int force);
int __wrap_mdb_env_sync(MDB_env *env, int force)
{
	return sync_fails ? EIO : __real_mdb_env_sync(env, force);
}

static bool exists(const struct test_db *d, const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/current/%s", d->dir, name);
	return !access(path, F_OK);
}

static int put(struct test_db *d, uint64_t key)
{
	(void)test_begin(d, "root");
	return txn_put(&d->t, d->db->quota, &key, sizeof(key), &key, sizeof(key))
		       ?: txn_write_commit(&d->t);
}

static bool has(struct test_db *d, uint64_t key)
{
	struct txn t;
	MDB_val v;
	int rc;

	assert_int_equal(txn_reader_new(d->db, &t), 0);
	assert_int_equal(txn_read_begin(&t), 0);
	rc = txn_get(&t, d->db->quota, &key, sizeof(key), &v);
	txn_read_end(&t);
	txn_reader_free(&t);
	return rc == 0;
}

/* A directory whose process is yet to come. */
static void formatted(struct test_db *d)
{
	test_db_init(d);
	db_close(d->db);
	d->db = NULL;
}

enum death { KILLED, STOPPED_IN_VAIN, SYNCED_IN_VAIN };

/* In a process of its own: keys from 0 on, until the checkpoint counts, and one more. */
static void live_and_die(struct test_db *d, enum death how)
{
	uint64_t key = 0;

	test_db_reopen(d);
	sync_fails = how == SYNCED_IN_VAIN;
	if (db_log_start(d->db, NULL, NULL) < 0)
		_exit(3);
	for (; !exists(d, "unsynced"); key++) {
		if (key == KEYS_MAX || put(d, key) < 0)
			_exit(4);
		(void)poll(NULL, 0, 1);
	}
	if (put(d, key) < 0)
		_exit(5);
	if (how == STOPPED_IN_VAIN) {
		sync_fails = true;
		db_close(d->db);
	}
	_exit(0);
}

/* Its exit status. */
static int status_of(struct test_db *d, enum death how)
{
	int status;
	pid_t pid;

	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		live_and_die(d, how);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void a_start_that_cannot_sync_what_it_has_applied_leaves_the_mark(void **state)
{
	struct err err = ERR_INIT;
	struct test_db d;
	uint64_t keys = 0;

	(void)state;
	formatted(&d);
	assert_int_equal(status_of(&d, KILLED), 0);
	sync_fails = true;
	assert_int_equal(db_open(d.dir, &d.db, &err), -EIO);
	sync_fails = false;
	assert_true(exists(&d, "unsynced"));
	assert_true(exists(&d, "checkpoint.mdb"));
	d.db = NULL;
	test_db_reopen(&d);
	assert_false(exists(&d, "unsynced"));
	while (has(&d, keys))
		keys++;
	assert_true(keys > 1);
	test_db_fini(&d);
}

static void a_stop_that_cannot_sync_leaves_the_mark(void **state)
{
	struct test_db d;

	(void)state;
	formatted(&d);
	assert_int_equal(status_of(&d, STOPPED_IN_VAIN), 1);
	assert_true(exists(&d, "unsynced"));
	assert_true(exists(&d, "checkpoint.mdb"));
	test_db_reopen(&d);
	assert_true(has(&d, 0));
	test_db_fini(&d);
}

/* What LMDB could not write it has in memory still, and the file may not. */
static void a_file_that_cannot_be_synced_makes_no_checkpoint(void **state)
{
	struct test_db d;

	(void)state;
	formatted(&d);
	assert_int_equal(status_of(&d, SYNCED_IN_VAIN), 1);
	assert_false(exists(&d, "checkpoint.mdb"));
	assert_false(exists(&d, "unsynced"));
	test_db_reopen(&d);
	test_db_fini(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_start_that_cannot_sync_what_it_has_applied_leaves_the_mark),
		cmocka_unit_test(a_stop_that_cannot_sync_leaves_the_mark),
		cmocka_unit_test(a_file_that_cannot_be_synced_makes_no_checkpoint),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
