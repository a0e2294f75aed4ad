/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/requests/users.h"

#include <errno.h>
#include <pwd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "fuse/options.h"

#define FIRST_UID 700000      /* no user of this machine */
#define CROWD (USERS_MAX - 1) /* beside the owner of the mount */

/* A libdfsclient in which every sync has the result that a test wants. */
struct dfs {
	int number; /* in the order of their connections; 0: the owner of the mount */
};

static struct {
	int handles, syncs, rc;
	uint64_t file;        /* closed early by the first user beside the owner */
	int name_service;     /* errno of its answers; 0: nobody has a name */
	uint32_t patience_ms; /* of dfs_sync_early_blocks_within(), */
	uint32_t slow_ms;     /* which takes so long, as dfs_try_sync_early() */
	int last;             /* the number that dfs_try_sync_early() was called for */
	int rc_first;         /* of the first user beside the owner */
} fake;

int dfs_connect(const struct dfs_connect_opts *opts, struct dfs **ret, struct dfs_err *err)
{
	(void)opts;
	(void)err;
	*ret = calloc(1, sizeof(**ret));
	(*ret)->number = fake.handles++;
	return 0;
}

void dfs_disconnect(struct dfs *fs)
{
	fake.handles--;
	free(fs);
}

void dfs_get_counters(struct dfs *fs, struct dfs_counters *ret)
{
	(void)fs;
	*ret = (struct dfs_counters){.read_tcp = 1};
}

int dfs_sync_early(struct dfs *fs, struct dfs_err *err)
{
	(void)err;
	fake.syncs++;
	return fs->number == 1 && fake.rc_first ? fake.rc_first : fake.rc;
}

static void be_slow(void)
{
	const struct timespec pause = {0, fake.slow_ms * (long)NS_PER_MS};

	(void)nanosleep(&pause, NULL);
}

int dfs_try_sync_early(struct dfs *fs, struct dfs_err *err)
{
	be_slow();
	fake.last = fs->number;
	return dfs_sync_early(fs, err);
}

int dfs_sync_early_file(struct dfs *fs, uint64_t id, struct dfs_err *err)
{
	(void)err;
	return fs->number == 1 && id == fake.file ? fake.rc_first : 0;
}

const char *dfs_user(const struct dfs *fs)
{
	(void)fs;
	return "somebody";
}

int dfs_set_owner(struct dfs *fs, const char *path, const char *owner, const char *group,
		  struct dfs_err *err)
{
	(void)fs;
	(void)path;
	(void)owner;
	(void)group;
	(void)err;
	return -EACCES;
}

void dfs_sync_early_blocks_within(struct dfs *fs, uint64_t id, uint32_t patience_ms)
{
	(void)fs;
	fake.syncs++;
	fake.file = id;
	fake.patience_ms = patience_ms;
	be_slow();
}

/* In the place of the C library's. */
int getpwuid_r(uid_t uid, struct passwd *pw, char *text, size_t room, struct passwd **found)
{
	(void)uid;
	(void)pw;
	(void)text;
	(void)room;
	*found = NULL;
	return fake.name_service;
}

static struct users u;
static int told;

static void indebted(void *arg)
{
	(void)arg;
	told++;
}

static int setup(void **state)
{
	static const struct options opt = {.uid = -1, .gid = -1, .timeout_s = 30};

	(void)state;
	told = 0;
	fake.file = fake.slow_ms = 0;
	fake.syncs = fake.rc = fake.rc_first = fake.name_service = 0;
	assert_int_equal(users_init(&u, &opt, NULL), 0);
	u.indebted = indebted;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	users_fini(&u);
	assert_int_equal(fake.handles, 0);
	return 0;
}

/* User @i comes, closes files early, and goes. */
static int visit(int i, bool makes)
{
	struct user *user;
	const int rc = users_get(&u, FIRST_UID + (uid_t)i, &user, NULL);

	if (rc < 0)
		return rc;
	user->made += makes;
	users_put(&u, user);
	return 0;
}

static void crowd(bool makes)
{
	for (int i = 0; i < CROWD; i++)
		assert_int_equal(visit(i, makes), 0);
	assert_int_equal(users_count(&u), USERS_MAX);
}

static void test_nobody_waits_for_the_sync_of_who_has_to_go(void **state)
{
	(void)state;
	crowd(true);
	fake.rc = -ETIMEDOUT;
	assert_int_equal(visit(CROWD, false), 0);
	assert_int_equal(fake.syncs, 0);
	assert_int_equal(told, 1);
	assert_false(users_settle(&u, UINT64_MAX));
	fake.rc = 0;
	assert_true(users_settle(&u, UINT64_MAX));
	assert_int_equal(fake.handles, USERS_MAX);
	assert_int_equal(users_sync(&u, BY_ANYBODY, 0, NULL), 0);
}

static void test_a_failed_sync_of_an_evicted_user_is_told(void **state)
{
	struct dfs_err err = {.text = ""};

	(void)state;
	crowd(false);
	assert_int_equal(visit(CROWD, true), 0);
	for (int i = 0; i < CROWD; i++) /* the one that owes a sync goes, too */
		assert_int_equal(visit(CROWD + 1 + i, false), 0);
	fake.rc = -ETIMEDOUT; /* as long as the nodes are out of reach */
	assert_int_equal(users_sync(&u, BY_ANYBODY, 0, &err), -ETIMEDOUT);
	assert_int_equal(users_sync(&u, BY_ANYBODY, 0, &err), -ETIMEDOUT);
	fake.rc = -EIO; /* and once when it was for good */
	assert_true(users_settle(&u, UINT64_MAX));
	fake.rc = 0;
	assert_int_equal(users_sync(&u, BY_ANYBODY, 0, &err), -EIO);
	assert_string_not_equal(err.text, "");
	assert_int_equal(users_sync(&u, BY_ANYBODY, 0, &err), 0);
	assert_int_equal(fake.handles, USERS_MAX);
}

/* CROWD others come and go, so that all who were there before are evicted. */
static void all_leave(int from)
{
	for (int i = 0; i < CROWD; i++)
		assert_int_equal(visit(from + i, false), 0);
}

static void test_a_failed_sync_is_told_to_its_user_alone(void **state)
{
	(void)state;
	assert_int_equal(visit(0, true), 0);
	assert_int_equal(visit(1, true), 0);
	all_leave(2);
	fake.rc = -EIO;
	assert_true(users_settle(&u, UINT64_MAX));
	fake.rc = 0;
	assert_int_equal(users_sync(&u, BY_UID(FIRST_UID + 2), FIRST_UID + 2, NULL), 0);
	assert_int_equal(users_sync(&u, BY_UID(FIRST_UID), FIRST_UID, NULL), -EIO);
	assert_int_equal(users_sync(&u, BY_UID(FIRST_UID), FIRST_UID, NULL), 0);
	/* one who asks about everything, once; and it stays for its user */
	assert_int_equal(users_sync(&u, BY_ANYBODY, 0, NULL), -EIO);
	assert_int_equal(users_sync(&u, BY_ANYBODY, 0, NULL), 0);
	assert_int_equal(users_sync_file(&u, 8, FIRST_UID + 2, NULL), 0);
	assert_int_equal(users_sync_file(&u, 8, FIRST_UID + 1, NULL), -EIO);
	assert_int_equal(users_sync_file(&u, 8, FIRST_UID + 1, NULL), 0);
}

static void test_without_a_name_service_nobody_is_called_by_digits(void **state)
{
	struct dfs_err err = {.text = ""};
	struct user *user;

	(void)state;
	fake.name_service = EIO;
	assert_int_equal(users_get(&u, FIRST_UID, &user, &err), -EIO);
	assert_string_not_equal(err.text, "");
	assert_int_equal(fake.handles, 1);
	fake.name_service = 0;
	assert_int_equal(visit(0, false), 0);
}

static void test_one_debtor_that_hangs_keeps_no_other_waiting(void **state)
{
	(void)state;
	assert_int_equal(visit(0, true), 0);
	assert_int_equal(visit(1, true), 0);
	assert_int_equal(visit(2, true), 0);
	all_leave(3);
	fake.rc_first = -ETIMEDOUT;
	assert_false(users_settle(&u, UINT64_MAX));
	assert_int_equal(fake.syncs, 3);
	assert_int_equal(fake.handles, USERS_MAX + 1);
	fake.rc_first = 0;
	assert_true(users_settle(&u, UINT64_MAX));
	assert_int_equal(fake.handles, USERS_MAX);
}

static void test_a_round_of_debtors_ends_in_time_and_goes_on_with_the_next(void **state)
{
	(void)state;
	for (int i = 0; i < 9; i++)
		assert_int_equal(visit(i, true), 0);
	all_leave(9);
	fake.rc = -ETIMEDOUT;
	fake.slow_ms = 100;
	for (int round = 0; round < 2; round++) {
		const int before = fake.syncs;

		assert_false(users_settle(&u, clock_mono_ns() + 250 * NS_PER_MS));
		assert_in_range(fake.syncs - before, 1, 3);
		assert_int_equal(fake.last, fake.syncs); /* their numbers begin with 1 */
	}
	fake.rc = 0;
	fake.slow_ms = 0;
	assert_false(users_settle(&u, 0));
	assert_int_equal(fake.handles, USERS_MAX + 8); /* one at least, however late it is */
	assert_true(users_settle(&u, UINT64_MAX));
	assert_int_equal(fake.handles, USERS_MAX);
}

static void test_debtors_are_bounded(void **state)
{
	struct dfs_counters c;
	int i = 0;

	(void)state;
	fake.rc = -ETIMEDOUT;
	while (i < 10 * USERS_MAX && visit(i, true) == 0)
		i++;
	assert_int_equal(i, CROWD + DEBTORS_MAX);
	assert_int_equal(visit(i, true), -EMFILE);
	users_counters(&u, &c);
	assert_int_equal(c.read_tcp, USERS_MAX + DEBTORS_MAX);
	fake.rc = 0;
	assert_true(users_settle(&u, UINT64_MAX));
	assert_int_equal(visit(i, true), 0);
	users_counters(&u, &c);
	assert_int_equal(c.read_tcp, USERS_MAX + DEBTORS_MAX + 1);
}

static void test_nobody_waits_for_the_files_of_others(void **state)
{
	(void)state;
	assert_int_equal(visit(1, true), 0);
	assert_int_equal(visit(2, true), 0);
	assert_int_equal(users_sync(&u, BY_UID(FIRST_UID + 2), FIRST_UID + 2, NULL), 0);
	assert_int_equal(fake.syncs, 1);
	users_sync_blocks(&u, BY_UID(FIRST_UID + 1), 0);
	assert_int_equal(fake.syncs, 2);
	fake.rc = -ETIMEDOUT; /* nodes of the first one */
	assert_int_equal(users_sync(&u, BY_UID(FIRST_UID + 2), FIRST_UID + 2, NULL), 0);
	assert_int_equal(users_sync(&u, BY_ANYBODY, 0, NULL), -ETIMEDOUT);
}

static void test_fsync_of_a_file_of_anybody_waits_for_that_file_alone(void **state)
{
	(void)state;
	assert_int_equal(visit(0, true), 0);
	assert_int_equal(visit(1, true), 0);
	fake.rc = fake.rc_first = -ETIMEDOUT;
	fake.file = 7;
	assert_int_equal(users_sync(&u, BY_ANYBODY, 0, NULL), -ETIMEDOUT);
	fake.syncs = 0;
	assert_int_equal(users_sync_file(&u, 8, 0, NULL), 0);
	assert_int_equal(users_sync_file(&u, 7, 0, NULL), -ETIMEDOUT);
	assert_int_equal(fake.syncs, 0);
}

static void test_a_rename_waits_two_seconds_in_all(void **state)
{
	(void)state;
	for (int i = 0; i < 9; i++)
		assert_int_equal(visit(i, true), 0);
	fake.slow_ms = 300;
	users_sync_blocks(&u, BY_ANYBODY, 7);
	assert_in_range(fake.syncs, 2, 7); /* of ten */
	assert_in_range(fake.patience_ms, 1, 2000 - 300 * (uint32_t)(fake.syncs - 1));
	assert_int_equal(fake.file, 7);
}

/* Its loss is told to those who use its handle, or noted when it goes. */
static void test_a_debtor_that_is_asked_by_others_stays(void **state)
{
	struct user *user;

	(void)state;
	assert_int_equal(visit(0, true), 0);
	all_leave(1);
	user = users_ref(&u, container_of(u.debtors.next, struct user, link));
	fake.rc = -EIO;
	assert_false(users_settle(&u, UINT64_MAX));
	assert_int_equal(u.lost_count, 0);
	users_put(&u, user);
	assert_true(users_settle(&u, UINT64_MAX));
	assert_int_equal(u.lost_count, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nobody_waits_for_the_sync_of_who_has_to_go,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_failed_sync_of_an_evicted_user_is_told,
						setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_failed_sync_is_told_to_its_user_alone, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			test_without_a_name_service_nobody_is_called_by_digits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_one_debtor_that_hangs_keeps_no_other_waiting,
						setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_a_round_of_debtors_ends_in_time_and_goes_on_with_the_next, setup,
			teardown),
		cmocka_unit_test_setup_teardown(test_debtors_are_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nobody_waits_for_the_files_of_others, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			test_fsync_of_a_file_of_anybody_waits_for_that_file_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_rename_waits_two_seconds_in_all, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_a_debtor_that_is_asked_by_others_stays, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
