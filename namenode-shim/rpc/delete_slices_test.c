/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: the newest orders to delete a replica go out first; a slice of a deleted tree
 * that fails, because the disk is full for a while, is tried again; and a delete below a quota is
 * answered in safe mode. */
#include "namenode-shim/namespace/quota.h"
#include "namenode-shim/rpc/hold_test_fixture.h"

#define DELETIONS 5000

static int order_deletions(struct nn *nn)
{
	for (int64_t i = 1; i <= DELETIONS; i++)
		dn_order_invalidate(datanodes_find(&nn->dns, "dn0"), i, 1005, false);
	return 0;
}

/* A corrupt replica is to go while a large tree is deleted: it would be reported as good again
 * before its turn came. */
static void the_newest_deletions_go_first(void **state)
{
	Hdd__HeartbeatRequestProto m = HDD__HEARTBEAT_REQUEST_PROTO__INIT;
	const struct dn *dn;
	struct world w;

	(void)state;
	world_init(&w, IN_DIR, NODES, 1, false);
	dn = datanodes_find(&w.nn->dns, "dn0");
	call_fn(&w, order_deletions);
	m.registration = node(&w, 0);
	for (uint32_t left = DELETIONS; left; left -= w.nn->set.work.deletions) {
		assert_int_equal(dn->ninval, left);
		assert_int_equal(dn->inval[0].id, 1);
		assert_int_equal(dn->inval[left - 1].id, left);
		call_table(&w, &datanode_methods, "sendHeartbeat", &m);
	}
	assert_int_equal(dn->ninval, 0);
	world_fini(&w);
}

/* ---- the time that a slice may last ---- */

static size_t blocks_left;

/* Is nothing of it under way, and has nothing gone since the last time? */
static int is_stuck(struct nn *nn)
{
	const size_t left = HASH_COUNT(nn->blocks.map);
	const bool yes = refused && nn->tree_delete_under_way && !nn->tree_delete_next &&
			 list_empty(&nn->unsynced) && left == blocks_left;

	blocks_left = left;
	return yes ? 0 : -EAGAIN;
}

/* Each time in a batch of its own, behind what was in the queue. */
static void wait_until_stuck(struct world *w)
{
	for (int in_a_row = 0, ms = 0; in_a_row < 5; ms++) {
		assert_true(ms < WAIT_MS);
		doing[0].fn = is_stuck;
		submit(w, 0, REQ_MEMORY);
		in_a_row = wait_answer(0) ? 0 : in_a_row + 1;
	}
}

/* What was deleted goes when safe mode is left. */
static int run_delete(struct req *q, const void *in)
{
	Hd__DeleteRequestProto m;

	(void)in;
	q->nn->safe.on = true;
	return find_method(&client_change_methods, "delete")->run(q, of_tree(&m));
}

static int leave_safe_mode(struct nn *nn)
{
	nn->safe.on = false;
	return 0;
}

/* As if the time after which a slice is tried again had passed. */
static int long_ago(struct nn *nn)
{
	nn->tree_delete_ns = 0;
	return 0;
}

static void a_slice_of_a_deleted_tree_that_failed_is_tried_again(void **state)
{
	static const struct method m = {.name = "delete", .kind = REQ_CHANGE, .run = run_delete};
	struct call_stat stat = {.name = "delete"};
	struct world w;
	struct req *q;

	(void)state;
	world_init(&w, SHORT, NODES, 1, false);
	q = req_new(w.nn, &m, NULL);
	q->stat = &stat;
	nn_submit(w.nn, q);
	for (int ms = 0; !stat.calls; ms++) {
		assert_true(ms < WAIT_MS);
		(void)poll(NULL, 0, 1);
	}
	disk_is_full = true;
	call_fn(&w, leave_safe_mode);
	wait_until_stuck(&w);
	disk_is_full = false;
	assert_false(is_so(&w, blocks_are_gone));
	call_fn(&w, long_ago);
	wait_until(&w, blocks_are_gone);
	world_fini(&w);
}

/* Its tree stays until safe mode is left, but who deleted it has his answer. */
static void a_delete_below_a_quota_is_answered_in_safe_mode(void **state)
{
	static const struct method m = {.name = "delete", .kind = REQ_CHANGE, .run = run_delete};
	Hd__SetQuotaRequestProto quota = HD__SET_QUOTA_REQUEST_PROTO__INIT;
	struct call_stat stat = {.name = "delete"};
	struct world w;
	struct req *q;

	(void)state;
	world_init(&w, 3 * IN_DIR, NODES, 1, false);
	quota.path = (char *)(uintptr_t) "/";
	quota.namespacequota = 1 << 20;
	quota.storagespacequota = QUOTA_KEEP;
	call_table(&w, &client_policy_methods, "setQuota", &quota);
	q = req_new(w.nn, &m, NULL);
	q->stat = &stat;
	nn_submit(w.nn, q);
	for (int ms = 0; !stat.calls; ms++) {
		assert_true(ms < WAIT_MS / 10);
		(void)poll(NULL, 0, 1);
	}
	assert_false(is_so(&w, blocks_are_gone));
	call_fn(&w, leave_safe_mode);
	wait_until(&w, blocks_are_gone);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_slice_of_a_deleted_tree_that_failed_is_tried_again),
		cmocka_unit_test(a_delete_below_a_quota_is_answered_in_safe_mode),
		cmocka_unit_test(the_newest_deletions_go_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
