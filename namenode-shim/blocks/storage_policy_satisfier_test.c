/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold when replicas move to the storage types of their file's policy: no block is copied
 * for ever, no node is asked for too much, and what was asked for outlives a restart. */
#include "namenode-shim/blocks/redundancy_monitor_test_fixture.h"

/* What was ordered for @b is done: its copies arrive, what is to go is deleted. How many copies. */
static uint32_t obey(struct world *w, struct blk *b)
{
	uint32_t copies = 0;

	for (; b->npending; copies++)
		blocks_report(&w->nn->blocks, b->pending[0].st, &b->b, REPLICA_FINALIZED, false, 0);
	for (uint32_t i = 0; i < w->nodes; i++) {
		for (uint32_t k = 0; k < w->dn[i]->ninval; k++)
			blocks_report_deleted(&w->nn->blocks, w->st[i], w->dn[i]->inval[k].id, 0);
		w->dn[i]->ninval = 0;
	}
	return copies;
}

static uint32_t satisfy(struct world *w, struct blk *b)
{
	uint32_t copies = 0;

	satisfier_add(&w->nn->satisfy, w->file);
	for (int i = 0; i <= SATISFY_LOOKS && w->nn->satisfy.n; i++) {
		satisfier_look(w->nn, clock_mono_ns());
		copies += obey(w, b);
	}
	assert_int_equal(w->nn->satisfy.n, 0);
	return copies;
}

static uint32_t on_ssd(const struct blk *b)
{
	uint32_t n = 0;

	for (uint16_t i = 0; i < b->nreps; i++)
		n += b->rep[i].st->type == STORAGE_SSD;
	return n;
}

/* All SSD stand in one rack, and the replica that is to go is the only one in the other. */
static void a_block_that_racks_keep_from_its_policy_is_not_copied_for_ever(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w, "aaab");
	for (int i = 0; i < 3; i++)
		w.st[i]->type = STORAGE_SSD;
	b = put_block(&w, 0, "013");
	assert_true(satisfy(&w, b) <= 2);
	assert_int_equal(b->nreps, 3);
	world_fini(&w);
}

static void a_replica_goes_to_the_type_its_policy_wants_in_a_rack_where_it_stays(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w, "aaabb");
	for (int i = 0; i < 3; i++)
		w.st[i]->type = STORAGE_SSD;
	w.st[4]->type = STORAGE_SSD;
	b = put_block(&w, 0, "013");
	assert_int_equal(satisfy(&w, b), 1);
	assert_int_equal(on_ssd(b), 3);
	assert_int_equal(w.st[2]->promised, 0);
	world_fini(&w);
}

/* Its node is alive, the disk is not. */
static void a_disk_that_has_failed_is_no_source_of_a_copy(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w, "aaaaa");
	for (int i = 0; i < 3; i++)
		w.st[i]->type = STORAGE_SSD;
	b = put_block(&w, 0, "413");
	w.st[3]->sweep = SWEEP_FORGET; /* begun, and not come to this block */
	satisfier_add(&w.nn->satisfy, w.file);
	satisfier_look(w.nn, clock_mono_ns());
	w.st[3]->sweep = 0;
	assert_int_equal(b->npending, 1);
	assert_true(list_empty(&w.dn[3]->transfers));
	assert_false(list_empty(&w.dn[4]->transfers));
	world_fini(&w);
}

/* Twenty looks, and no node tells of itself. */
static void a_node_is_not_told_to_copy_more_than_it_can_begin(void **state)
{
	struct world w;
	uint32_t sum = 0;

	(void)state;
	world_init(&w, "aaaaaa");
	for (int i = 3; i < 6; i++)
		w.st[i]->type = STORAGE_SSD;
	for (int64_t i = 0; i < FILE_BLOCKS; i++)
		put_block(&w, i, "012");
	satisfier_add(&w.nn->satisfy, w.file);
	for (int i = 0; i < 20; i++)
		satisfier_look(w.nn, clock_mono_ns());
	for (int i = 0; i < 3; i++) {
		assert_true(list_length(&w.dn[i]->transfers) <= w.nn->set.work.streams);
		sum += list_length(&w.dn[i]->transfers);
	}
	assert_true(sum > 0);
	world_fini(&w);
}

/* More replicas are wanted than there are nodes; directories are gone through when such files are
 * out of the line. */
static void a_file_that_stays_under_replicated_is_given_up(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w, "aa");
	w.st[1]->type = STORAGE_SSD;
	b = put_block(&w, 0, "01");
	assert_true(b->flags & BLK_UNDER);
	assert_int_equal(satisfy(&w, b), 0);
	world_fini(&w);
}

static void a_file_whose_nodes_are_busy_waits_for_them(void **state)
{
	struct list *l;
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w, "aa");
	w.st[1]->type = STORAGE_SSD;
	b = put_block(&w, 0, "0");
	blk_set_repl(&w.nn->blocks, b, 1);
	for (uint32_t i = 0; i < w.nn->set.work.streams; i++)
		dn_order_transfer(w.dn[0], &b->b, w.st[1]);
	satisfier_add(&w.nn->satisfy, w.file);
	for (int i = 0; i < 2 * SATISFY_LOOKS; i++)
		satisfier_look(w.nn, clock_mono_ns());
	assert_int_equal(b->npending, 0);
	assert_int_equal(w.st[1]->promised, 0);
	while ((l = list_pop(&w.dn[0]->transfers)))
		transfer_free(container_of(l, struct transfer, link));
	satisfier_look(w.nn, clock_mono_ns());
	assert_int_equal(b->npending, 1);
	world_fini(&w);
}

static void a_silent_node_is_not_told_to_copy_for_a_policy(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, "aaaaaa");
	w.nn->set.work.streams = FILE_BLOCKS;
	for (int i = 3; i < 6; i++)
		w.st[i]->type = STORAGE_SSD;
	for (int64_t i = 0; i < FILE_BLOCKS; i++)
		put_block(&w, i, "012");
	satisfier_add(&w.nn->satisfy, w.file);
	/* half of the nodes are not heard: the others are targets all the same */
	w.nn->dns.write_stale = true;
	for (int i = 0; i < 3; i++)
		w.dn[i]->stale = true;
	for (int i = 0; i < 2 * SATISFY_LOOKS; i++)
		satisfier_look(w.nn, clock_mono_ns());
	assert_int_equal(all_ordered(&w), 0);
	assert_int_equal(w.st[3]->promised + w.st[4]->promised + w.st[5]->promised, 0);
	w.dn[2]->stale = false;
	satisfier_look(w.nn, clock_mono_ns()); /* it did not give the file up */
	assert_true(ordered(&w, 2) > 0);
	assert_int_equal(ordered(&w, 2), all_ordered(&w));
	world_fini(&w);
}

/* The other one must stay, as the only one in its rack. */
static void a_replica_on_a_silent_node_is_waited_for(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w, "aba");
	w.st[2]->type = STORAGE_SSD;
	b = put_block(&w, 0, "01");
	blk_set_repl(&w.nn->blocks, b, 2);
	w.dn[0]->stale = true;
	satisfier_add(&w.nn->satisfy, w.file);
	for (int i = 0; i < 2 * SATISFY_LOOKS; i++)
		satisfier_look(w.nn, clock_mono_ns());
	assert_int_equal(b->npending, 0);
	w.dn[0]->stale = false;
	satisfier_look(w.nn, clock_mono_ns());
	assert_int_equal(b->npending, 1);
	assert_int_equal(ordered(&w, 0), 1);
	world_fini(&w);
}

static void a_file_that_is_asked_for_again_is_in_line_once(void **state)
{
	struct satisfier s = {0};

	(void)state;
	satisfier_init(&s);
	for (uint64_t i = 0; i < 100; i++)
		satisfier_add(&s, 1 + i % 2);
	assert_int_equal(s.n, 2);
	satisfier_fini(&s);
}

/* Each search takes a millisecond or more, there are 60, and none finds anything. */
static void the_lock_is_given_back_while_a_policy_is_satisfied(void **state)
{
	struct world w;
	uint64_t before;

	(void)state;
	world_init(&w, "aab");
	for (int64_t i = 0; i < FILE_BLOCKS; i++)
		put_block(&w, i, "012");
	satisfier_add(&w.nn->satisfy, w.file);
	clock_step_ns = NS_PER_MS;
	before = w.nn->holds.count;
	satisfier_look(w.nn, 0);
	assert_true(w.nn->holds.count - before >= FILE_BLOCKS / 6);
	world_fini(&w);
}

/* ---- what satisfyStoragePolicy asked for, over a restart ---- */

static void ask(struct world *w, const char *path)
{
	Hd__SatisfyStoragePolicyRequestProto m = HD__SATISFY_STORAGE_POLICY_REQUEST_PROTO__INIT;

	m.src = (char *)(uintptr_t)path;
	for (size_t i = 0; i < client_policy_methods.count; i++)
		if (!strcmp(client_policy_methods.methods[i].name, "satisfyStoragePolicy"))
			assert_int_equal(change(w, &client_policy_methods.methods[i], &m, 0), 0);
}

/* The marks that were to be taken away are. How many. */
static uint32_t take_marks_away(struct world *w)
{
	struct list batch = LIST_INIT(batch), *l;
	uint32_t n = 0;

	assert_true(commit_queue_take(&w->nn->commit_queue, 0, &batch));
	for (; (l = list_pop(&batch)); n++) {
		struct req *q = container_of(l, struct req, link);

		assert_ptr_equal(q->method, &satisfied_method);
		assert_int_equal(change(w, q->method, NULL, q->arg), 0);
		req_finish(q);
	}
	return n;
}

static void restart(struct world *w)
{
	stop(w);
	start(w);
	for (int i = 0; i < 2; i++)
		w->st[i]->type = STORAGE_SSD;
}

/* Nodes 0 and 1 have SSD; the file is on 0 and 2. */
static struct blk *ask_of_file(struct world *w, const char *path)
{
	world_init(w, "aaaa");
	restart(w);
	ask(w, path);
	assert_true(w->nn->satisfy.n > 0);
	restart(w);
	assert_int_equal(w->nn->satisfy.n, 1);
	blk_set_repl(&w->nn->blocks, put_block(w, 0, "02"), 2);
	return put_block(w, 0, "");
}

static void what_was_asked_for_outlives_a_restart(void **state)
{
	const char *const paths[] = {"/f", "/"};

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct world w;
		struct blk *b = ask_of_file(&w, paths[i]);

		for (int k = 0; k < 5; k++) /* a directory is gone through first */
			satisfier_look(w.nn, clock_mono_ns());
		assert_int_equal(b->npending, 1);
		assert_int_equal(take_marks_away(&w), 0);
		assert_int_equal(obey(&w, b), 1);
		assert_int_equal(on_ssd(b), 2);
		satisfier_look(w.nn, clock_mono_ns());
		assert_int_equal(w.nn->satisfy.n, 0);
		assert_int_equal(take_marks_away(&w), 1);
		restart(&w);
		assert_int_equal(w.nn->satisfy.n, 0);
		world_fini(&w);
	}
}

/* First the inode, then the entries of the directory. */
static void what_cannot_be_read_stays_in_line_with_its_mark(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	b = ask_of_file(&w, "/");
	for (int i = 0; i < 2; i++) {
		no_get = !i;
		no_cursor = i;
		for (int k = 0; k < 5; k++)
			satisfier_look(w.nn, clock_mono_ns());
		no_get = no_cursor = false;
		assert_int_equal(w.nn->satisfy.n, 1);
		assert_int_equal(take_marks_away(&w), 0);
		satisfier_look(w.nn, clock_mono_ns()); /* it is a directory */
	}
	assert_true(w.nn->unread.next_ns);
	for (int i = 0; i < 5; i++)
		satisfier_look(w.nn, clock_mono_ns());
	assert_int_equal(b->npending, 1);
	world_fini(&w);
}

static void what_is_asked_for_again_keeps_its_mark(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	b = ask_of_file(&w, "/f");
	satisfier_look(w.nn, clock_mono_ns());
	obey(&w, b);
	satisfier_look(w.nn, clock_mono_ns());
	ask(&w, "/f"); /* before the change that takes the mark away */
	assert_int_equal(take_marks_away(&w), 1);
	restart(&w);
	assert_int_equal(w.nn->satisfy.n, 1);
	world_fini(&w);
}

/* A file that stands in line for a directory is asked for itself: the directory is done without it.
 */
static void a_file_that_is_asked_for_by_name_stands_for_itself(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	b = ask_of_file(&w, "/");
	for (int i = 0; i < 5; i++)
		satisfier_look(w.nn, clock_mono_ns());
	assert_int_equal(b->npending, 1);
	assert_int_equal(w.nn->satisfy.n, 1);
	ask(&w, "/f");
	satisfier_look(w.nn, clock_mono_ns());
	assert_int_equal(take_marks_away(&w), 1);
	restart(&w);
	assert_int_equal(w.nn->satisfy.n, 1);
	world_fini(&w);
}

static void the_mark_is_nobodys_to_see_or_to_take(void **state)
{
	const struct xattr x = {.space = XATTR_SYSTEM, .name = XATTR_SATISFY};
	struct xattrs seen;
	struct world w;
	struct ns *n;

	(void)state;
	(void)ask_of_file(&w, "/f");
	n = begin_change(&w);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(xattr_list(n, i ? "/.reserved/raw/f" : "/f", NULL, &seen), 0);
		assert_int_equal(seen.n, 0);
	}
	assert_int_equal(xattr_list(n, "/f",
				    &(struct xattrs){.a = (struct xattr *)(uintptr_t)&x, .n = 1},
				    &seen),
			 -EACCES);
	assert_int_equal(xattr_remove(n, "/f", &x), -EACCES);
	assert_int_equal(xattr_set(n, "/f", &x, XATTR_CREATE), -EACCES);
	txn_write_abort(&w.d.t);
	w.d.db = NULL;
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_block_that_racks_keep_from_its_policy_is_not_copied_for_ever),
		cmocka_unit_test(
			a_replica_goes_to_the_type_its_policy_wants_in_a_rack_where_it_stays),
		cmocka_unit_test(a_disk_that_has_failed_is_no_source_of_a_copy),
		cmocka_unit_test(a_node_is_not_told_to_copy_more_than_it_can_begin),
		cmocka_unit_test(a_file_that_stays_under_replicated_is_given_up),
		cmocka_unit_test(a_file_whose_nodes_are_busy_waits_for_them),
		cmocka_unit_test(a_silent_node_is_not_told_to_copy_for_a_policy),
		cmocka_unit_test(a_replica_on_a_silent_node_is_waited_for),
		cmocka_unit_test(a_file_that_is_asked_for_again_is_in_line_once),
		cmocka_unit_test(the_lock_is_given_back_while_a_policy_is_satisfied),
		cmocka_unit_test(what_was_asked_for_outlives_a_restart),
		cmocka_unit_test(what_cannot_be_read_stays_in_line_with_its_mark),
		cmocka_unit_test(what_is_asked_for_again_keeps_its_mark),
		cmocka_unit_test(a_file_that_is_asked_for_by_name_stands_for_itself),
		cmocka_unit_test(the_mark_is_nobodys_to_see_or_to_take),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
