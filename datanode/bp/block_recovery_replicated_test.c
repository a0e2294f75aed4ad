/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold, whatever the nodes of a block answer: the replicas of the best state decide, and
 * the shortest of them the length, of finalised ones the longest; what was acknowledged is in it.
 * A block is given up only when every node says that it has none of it. A truncate that came to
 * some of the nodes is brought to its end. */
#include "datanode/bp/block_recovery_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ID 1073741825
#define GS 1000u
#define RECOVERY_ID 1007u
#define NONE                                                                                       \
	{                                                                                          \
		.rc = 0, .found = false                                                            \
	}
#define SILENT                                                                                     \
	{                                                                                          \
		.rc = -ETIMEDOUT                                                                   \
	}
#define HAS(s, n)                                                                                  \
	{                                                                                          \
		.found = true, .state = (s), .len = (n)                                            \
	}

struct answer {
	int rc;
	bool found;
	enum replica_state state;
	uint64_t len;
	uint64_t gs;  /* 0: GS */
	bool refuses; /* the update */
};

static struct bp_set set;
static struct holder holders[LOCS_MAX];
static struct recovery_job job;
static const struct answer *answers;
static uint64_t updated[LOCS_MAX]; /* UINT64_MAX: it was not */
static struct {
	int count;
	uint64_t len;
	bool delete;
	size_t targets;
} commit;

int holder_init(struct recovery_job *j, struct holder *h, bool *ret_found, struct err *err)
{
	const struct answer *a = &answers[h - j->holders];

	*ret_found = a->found;
	h->state = a->state;
	h->block = (struct block){ID, a->gs ? a->gs : GS, a->len};
	return a->rc ? err_set(err, a->rc, "as the test says") : 0;
}

int holder_update(struct recovery_job *j, struct holder *h, uint64_t len, int64_t new_id,
		  struct err *err)
{
	assert_int_equal(new_id, ID);
	updated[h - j->holders] = len;
	h->updated = !answers[h - j->holders].refuses;
	return h->updated ? 0 : err_set(err, -EIO, "as the test says");
}

int recovery_commit(struct recovery_job *j, uint64_t len, bool delete,
		    const struct holder *const *targets, size_t n, struct err *err)
{
	(void)err;
	assert_ptr_equal(j, &job);
	for (size_t i = 0; i < n; i++)
		assert_true(targets[i]->updated);
	commit.count++;
	commit.len = len;
	commit.delete = delete;
	commit.targets = n;
	return 0;
}

/* @cut: the length to cut to; -1: none. */
static int recover(const struct answer *a, uint32_t n, int64_t cut)
{
	struct err err = ERR_INIT;
	uint64_t len;

	memset(&job, 0, sizeof(job));
	memset(holders, 0, sizeof(holders));
	job.holders = holders;
	memset(&commit, 0, sizeof(commit));
	memset(updated, 0xff, sizeof(updated));
	answers = a;
	job.set = &set;
	job.block = (struct block){ID, GS, 0};
	job.recovery_id = RECOVERY_ID;
	job.new_id = ID;
	job.count = n;
	job.truncate = cut >= 0;
	job.cut_len = cut >= 0 ? (uint64_t)cut : 0;
	return recover_replicated(&job, &len, &err);
}

#define RECOVER(cut, ...)                                                                          \
	recover((const struct answer[]){__VA_ARGS__},                                              \
		sizeof((const struct answer[]){__VA_ARGS__}) / sizeof(struct answer), cut)

static void check_all_at(uint64_t len, size_t targets)
{
	assert_int_equal(commit.count, 1);
	assert_int_equal(commit.len, len);
	assert_false(commit.delete);
	assert_int_equal(commit.targets, targets);
}

static void the_best_state_decides_and_its_shortest_replica(void **state)
{
	(void)state;
	assert_int_equal(
		RECOVER(-1, HAS(REPLICA_RBW, 30), HAS(REPLICA_RBW, 20), HAS(REPLICA_RWR, 10)), 0);
	check_all_at(20, 2);
	assert_int_equal(updated[2], UINT64_MAX);
	assert_int_equal(RECOVER(-1, HAS(REPLICA_RWR, 30), HAS(REPLICA_RWR, 20)), 0);
	check_all_at(20, 2);
	assert_int_equal(
		RECOVER(-1, HAS(REPLICA_RBW, 30), HAS(REPLICA_FINALIZED, 20), HAS(REPLICA_RBW, 20)),
		0);
	check_all_at(20, 2);
	assert_int_equal(updated[0], UINT64_MAX);
}

static void a_replica_of_an_older_stamp_takes_no_part(void **state)
{
	const struct answer older = {
		.found = true, .state = REPLICA_FINALIZED, .len = 9, .gs = GS - 1};

	(void)state;
	assert_int_equal(RECOVER(-1, older, HAS(REPLICA_RWR, 7)), 0);
	check_all_at(7, 1);
	assert_int_equal(updated[0], UINT64_MAX);
	assert_int_equal(RECOVER(-1, older, NONE), 0);
	assert_true(commit.delete);
}

/* All of it had arrived at each; a power cut has shortened one. */
static void of_finalised_replicas_of_one_stamp_the_longest_count(void **state)
{
	(void)state;
	assert_int_equal(RECOVER(-1, HAS(REPLICA_FINALIZED, 7), HAS(REPLICA_FINALIZED, 13),
				 HAS(REPLICA_RBW, 13), HAS(REPLICA_RBW, 7)),
			 0);
	check_all_at(13, 2);
	assert_int_equal(updated[0], UINT64_MAX);
	assert_int_equal(updated[3], UINT64_MAX);
}

/* Each recovery reached one of the nodes, and the NameNode heard of no end. A power cut had
 * shortened the replica of the first one. */
static void of_what_two_recoveries_have_made_the_longer_counts(void **state)
{
	const struct answer first = {
		.found = true, .state = REPLICA_FINALIZED, .len = 5, .gs = GS + 1};
	const struct answer second = {
		.found = true, .state = REPLICA_FINALIZED, .len = 13, .gs = GS + 3};

	(void)state;
	assert_int_equal(RECOVER(-1, first, second), 0);
	check_all_at(13, 1);
	assert_int_equal(updated[0], UINT64_MAX);
	assert_int_equal(RECOVER(-1, second, first, HAS(REPLICA_FINALIZED, 13)), 0);
	check_all_at(13, 2);
}

static void a_truncate_that_came_to_some_is_brought_to_its_end(void **state)
{
	const struct answer cut = {
		.found = true, .state = REPLICA_FINALIZED, .len = 4, .gs = GS + 3};

	(void)state;
	assert_int_equal(RECOVER(4, cut, HAS(REPLICA_FINALIZED, 13)), 0);
	check_all_at(4, 2);
	/* its disk failed before the new stamp was there */
	assert_int_equal(RECOVER(4, HAS(REPLICA_FINALIZED, 4), HAS(REPLICA_FINALIZED, 13)), 0);
	check_all_at(4, 2);
	assert_int_equal(RECOVER(4, HAS(REPLICA_FINALIZED, 13), HAS(REPLICA_FINALIZED, 13)), 0);
	check_all_at(4, 2);
	/* bytes are missing that were to stay */
	assert_int_equal(RECOVER(5, cut, HAS(REPLICA_FINALIZED, 13)), -EIO);
	assert_int_equal(commit.count, 0);
}

static void a_block_is_given_up_when_every_node_says_that_it_has_none(void **state)
{
	(void)state;
	assert_int_equal(RECOVER(-1, NONE, NONE), 0);
	assert_true(commit.delete);
	assert_int_equal(commit.targets, 0);
	assert_int_equal(RECOVER(-1, NONE, SILENT), -EAGAIN);
	assert_int_equal(commit.count, 0);
	assert_int_equal(RECOVER(-1, SILENT, SILENT), -EHOSTUNREACH);
	assert_int_equal(commit.count, 0);
	/* one is enough, also beside one that is silent */
	assert_int_equal(RECOVER(-1, NONE, SILENT, HAS(REPLICA_RWR, 7)), 0);
	check_all_at(7, 1);
}

static void nothing_is_committed_that_no_node_confirmed(void **state)
{
	const struct answer refuses = {
		.found = true, .state = REPLICA_RBW, .len = 9, .refuses = true};

	(void)state;
	assert_int_equal(RECOVER(-1, refuses, refuses), -EIO);
	assert_int_equal(commit.count, 0);
	assert_int_equal(RECOVER(-1, refuses, HAS(REPLICA_RBW, 9)), 0);
	check_all_at(9, 1);
	assert_int_equal(RECOVER(-1, HAS(REPLICA_RBW, 9), {.rc = -EBUSY}), -EBUSY);
	assert_int_equal(commit.count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_best_state_decides_and_its_shortest_replica),
		cmocka_unit_test(a_replica_of_an_older_stamp_takes_no_part),
		cmocka_unit_test(of_finalised_replicas_of_one_stamp_the_longest_count),
		cmocka_unit_test(of_what_two_recoveries_have_made_the_longer_counts),
		cmocka_unit_test(a_truncate_that_came_to_some_is_brought_to_its_end),
		cmocka_unit_test(a_block_is_given_up_when_every_node_says_that_it_has_none),
		cmocka_unit_test(nothing_is_committed_that_no_node_confirmed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
