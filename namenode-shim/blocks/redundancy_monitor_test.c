/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of what the NameNode does on its own: a block that no node can take is in nobody's
 * way, the lock is given back when placement takes long, surplus goes, leases end. */
#include "namenode-shim/blocks/redundancy_monitor_test_fixture.h"
#include "namenode-shim/rpc/datanode_commands.h"

/* Three nodes: none can take a fourth unit. Their orders are 12 in one look. */
static void groups_on_too_few_nodes_keep_nobody_from_being_copied(void **state)
{
	struct blk *under, *crowded;
	struct world w;

	(void)state;
	world_init(&w, "aab");
	for (int i = 0; i < 40; i++)
		assert_true(add_group(&w, i)->flags & BLK_URGENT);
	under = add(&w, 3, "01");
	look(&w);
	assert_int_equal(under->npending, 1);
	crowded = add(&w, 2, "01");
	blk_recheck(&w.nn->blocks, crowded);
	blocks_sweep(&w.nn->blocks, UINT32_MAX);
	assert_true(crowded->flags & BLK_CROWDED);
	look(&w);
	assert_int_equal(crowded->npending, 1);
	world_fini(&w);
}

/* More than one look tries of a line: those behind them have their turn in the next ones. */
static void blocks_that_no_node_can_take_pass_their_turn_on(void **state)
{
	struct world w;
	struct blk *last;
	int looks = 0;

	(void)state;
	world_init(&w, "aab");
	for (int i = 0; i < 1000; i++)
		add(&w, 4, "012");
	last = add(&w, 3, "01");
	for (; !last->npending && looks < 10; looks++)
		look(&w);
	assert_int_equal(last->npending, 1);
	assert_true(looks > 1); /* the work of one look has an end */
	world_fini(&w);
}

/* Its orders expire, and nobody says why. */
static void a_source_that_cannot_send_is_not_asked_for_ever(void **state)
{
	struct world w;
	struct blk *b;
	struct list *l;
	uint32_t asked[2] = {0};

	(void)state;
	world_init(&w, "aaa");
	b = add(&w, 3, "01");
	for (int i = 0; i < 200 && !(asked[0] && asked[1]); i++) {
		look(&w);
		assert_int_equal(b->npending, 1);
		for (int k = 0; k < 2; k++)
			for (; (l = list_pop(&w.dn[k]->transfers)); asked[k]++)
				transfer_free(container_of(l, struct transfer, link));
		blocks_expire_pending(&w.nn->blocks, UINT64_MAX);
	}
	assert_true(asked[0] && asked[1]);
	world_fini(&w);
}

static void a_corrupt_replica_is_not_copied(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, "aabb");
	w.nn->set.work.streams = w.nn->set.work.streams_hard = 1000;
	w.nn->set.work.orders = 1000;
	for (int i = 0; i < 20; i++) {
		const struct blk *b = add(&w, 3, "01");

		blocks_report_corrupt(&w.nn->blocks, &b->b, w.dn[0], w.st[0], true);
	}
	look(&w);
	assert_int_equal(ordered(&w, 0), 0);
	assert_int_equal(ordered(&w, 1), 20);
	world_fini(&w);
}

/* Each order takes a millisecond or more, and there are 200. */
static void the_lock_is_given_back_while_copies_are_ordered(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, "aab");
	for (int i = 0; i < 200; i++)
		add(&w, 4, "012");
	clock_step_ns = NS_PER_MS;
	w.nn->dns.dead_after_ns = w.nn->dns.stale_after_ns = 1000 * NS_PER_S;
	assert_true(look(&w) >= 200 / 6);
	world_fini(&w);
}

/* ---- limits of the configuration ---- */

/* Four times the living nodes unless it is said otherwise. A dead one is none of them. */
static void a_look_orders_so_many_copies_for_each_living_node(void **state)
{
	static const struct {
		const char *multiplier;
		uint32_t orders;
	} cases[] = {{NULL, 4}, {"1", 1}, {"7", 7}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct world w;

		world_init(&w, "aaaaa");
		if (cases[i].multiplier)
			configure(&w, "dfs.namenode.replication.work.multiplier.per.iteration",
				  cases[i].multiplier);
		w.nn->set.work.streams = w.nn->set.work.streams_hard = 1000;
		nn_dn_lost(w.nn, w.dn[4], "test");
		for (int k = 0; k < 100; k++)
			add(&w, 3, "01");
		for (uint32_t looks = 1; looks <= 3; looks++) {
			look(&w);
			assert_int_equal(all_ordered(&w), looks * 4 * cases[i].orders);
		}
		world_fini(&w);
	}
}

/* Twice what a node may have under way waits for it. */
static void more_copies_wait_for_a_node_that_has_the_last_replicas(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, "aaaa");
	configure(&w, "dfs.namenode.replication.max-streams-hard-limit", "7");
	w.nn->set.work.orders = 1000;
	for (int i = 0; i < 100; i++)
		add(&w, 3, "01");
	look(&w);
	assert_int_equal(ordered(&w, 0), 2 * 2);
	assert_int_equal(ordered(&w, 1), 2 * 2);
	for (int i = 0; i < 100; i++)
		assert_true(add(&w, 3, "0")->flags & BLK_URGENT);
	for (int i = 0; i < 2; i++)
		look(&w);
	assert_int_equal(ordered(&w, 0), 2 * 7);
	assert_int_equal(ordered(&w, 1), 2 * 2);
	world_fini(&w);
}

/* ---- copies that a node is told of ---- */

/* How many copies a heartbeat of @dn brings it. */
static size_t transfers_told(struct world *w, struct dn *dn)
{
	Hdd__HeartbeatResponseProto r = HDD__HEARTBEAT_RESPONSE_PROTO__INIT;
	Hdd__DatanodeCommandProto *cmds[DN_COMMANDS_MAX];
	struct req q = {.nn = w->nn};
	size_t n = 0;

	r.cmds = cmds;
	dn_commands_add(&q, dn, &r);
	for (size_t i = 0; i < r.n_cmds; i++)
		n += cmds[i]->blkcmd->n_blocks;
	arena_free(&q.mem);
	return n;
}

/* It has expired, or the file is gone. Of three orders only one still counts. */
static void a_copy_that_nobody_waits_for_is_not_ordered(void **state)
{
	struct blk *b[3];
	struct world w;

	(void)state;
	world_init(&w, "aa");
	w.nn->set.work.streams = 10;
	for (int i = 0; i < 3; i++) {
		b[i] = add(&w, 2, "0");
		dn_order_transfer(w.dn[0], &b[i]->b, w.st[1]);
		blk_add_pending(&w.nn->blocks, b[i], w.st[1], i ? UINT64_MAX : 1);
	}
	blocks_expire_pending(&w.nn->blocks, 2);
	blocks_remove(&w.nn->blocks, b[1]);
	w.dn[0]->ninval = 0; /* of the one that is gone */
	assert_int_equal(transfers_told(&w, w.dn[0]), 1);
	dn_order_transfer(w.dn[0], &b[0]->b, w.st[1]);
	assert_int_equal(transfers_told(&w, w.dn[0]), 0);
	assert_true(list_empty(&w.dn[0]->transfers));
	world_fini(&w);
}

/* Those that it has under way count, too. */
static void a_node_that_leaves_begins_more_copies_at_a_time(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, "aa");
	configure(&w, "dfs.namenode.replication.max-streams-hard-limit", "7");
	for (int i = 0; i < 40; i++) {
		struct blk *b = add(&w, 2, "0");

		dn_order_transfer(w.dn[0], &b->b, w.st[1]);
		blk_add_pending(&w.nn->blocks, b, w.st[1], UINT64_MAX);
	}
	assert_int_equal(transfers_told(&w, w.dn[0]), 2);
	w.dn[0]->xmits = 1;
	assert_int_equal(transfers_told(&w, w.dn[0]), 1);
	w.dn[0]->admin = DN_DECOMMISSIONING;
	assert_int_equal(transfers_told(&w, w.dn[0]), 6);
	w.dn[0]->xmits = 7;
	assert_int_equal(transfers_told(&w, w.dn[0]), 0);
	w.dn[0]->xmits = 0;
	w.dn[0]->admin = DN_ENTERING_MAINTENANCE;
	assert_int_equal(transfers_told(&w, w.dn[0]), 7);
	w.dn[0]->admin = DN_DECOMMISSIONED;
	assert_int_equal(transfers_told(&w, w.dn[0]), 2);
	world_fini(&w);
}

/* ---- policies ---- */

/* The first replica of a block of the file is lost; node 3 has SSD, node 4 has not. */
static struct blk *lose_one(struct world *w)
{
	world_init(w, "aaaaa");
	w->st[3]->type = STORAGE_SSD;
	return put_block(w, 0, "12");
}

/* Its disk may be slow: nobody waits for it. */
static void policies_are_read_without_the_lock(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	b = lose_one(&w);
	assert_int_equal(add_group(&w, 0)->npending, 0);
	watched = w.nn;
	reads = reads_with_lock = 0;
	look(&w);
	satisfier_add(&w.nn->satisfy, w.file);
	satisfier_look(w.nn, clock_mono_ns());
	assert_int_equal(b->npending, 1);
	assert_true(reads > 0);
	assert_int_equal(reads_with_lock, 0);
	world_fini(&w);
}

static void without_its_policy_a_block_waits_for_the_next_round(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	b = lose_one(&w);
	no_reader = true;
	assert_true(look(&w) < 10); /* it does not try for ever */
	no_reader = false;
	assert_int_equal(b->npending, 0);
	look(&w);
	assert_int_equal(b->npending, 1);
	assert_ptr_equal(b->pending[0].st, w.st[3]);
	world_fini(&w);
}

static void an_inode_that_cannot_be_read_is_told_and_read_again(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	b = lose_one(&w);
	no_get = true;
	for (int i = 0; i < 3; i++)
		look(&w);
	no_get = false;
	assert_int_equal(b->npending, 0);
	assert_true(w.nn->unread.next_ns);
	look(&w);
	assert_int_equal(b->npending, 1);
	world_fini(&w);
}

/* What is read may be newer than what is in memory: the file has gone, or its blocks belong to
 * another one. */
static void a_block_whose_file_is_gone_is_not_copied(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	b = lose_one(&w);
	b->inode = w.plain + 1000;
	look(&w);
	assert_int_equal(b->npending, 0);
	b->inode = w.file;
	look(&w);
	assert_ptr_equal(b->pending[0].st, w.st[3]);
	world_fini(&w);
}

/* ---- room for blocks that are to be written ---- */

static int add_block(struct world *w, uint64_t file, Hd__ExtendedBlockProto *previous)
{
	Hd__AddBlockRequestProto m = HD__ADD_BLOCK_REQUEST_PROTO__INIT;
	int rc = 0;

	m.src = (char *)(uintptr_t) "/o";
	m.clientname = (char *)(uintptr_t) "c";
	m.previous = previous;
	m.has_fileid = true;
	m.fileid = file;
	for (size_t i = 0; i < client_write_methods.count; i++)
		if (!strcmp(client_write_methods.methods[i].name, "addBlock"))
			rc = change(w, &client_write_methods.methods[i], &m, 0);
	return rc;
}

/* More bytes than a block may have, and then fewer nodes than are wanted. */
static void a_block_that_is_refused_keeps_no_room(void **state)
{
	Hd__ExtendedBlockProto previous = HD__EXTENDED_BLOCK_PROTO__INIT;
	struct inode_block b = {0};
	struct inode f = {.type = INODE_FILE,
			  .perm = 0644,
			  .repl = 2,
			  .block_size = 1 << 20,
			  .blocks = &b,
			  .name = "o",
			  .nblocks = 1,
			  .parent = INODE_ROOT,
			  .owner = "root",
			  .group = "root",
			  .client = "c",
			  .client_host = ""};
	struct world w;
	struct ns *n;

	(void)state;
	world_init(&w, "aa");
	n = begin_change(&w);
	f.id = inode_new_id(n->t);
	b.b = (struct block){(int64_t)++n->t->ctr.block, n->t->ctr.gs, 0};
	assert_int_equal(inode_put(n->t, &f), 0);
	assert_int_equal(dirent_put(n->t, INODE_ROOT, f.name, f.id), 0);
	assert_int_equal(test_commit(&w.d), 0);
	w.d.db = NULL;
	previous.poolid = w.nn->db->ident.pool_id;
	previous.blockid = (uint64_t)b.b.id;
	previous.generationstamp = b.b.gs;
	previous.has_numbytes = true;
	for (int i = 0; i < 2; i++) {
		previous.numbytes = i ? LEN : 1 << 30;
		w.nn->set.repl_min = i ? 3 : 1;
		assert_true(add_block(&w, f.id, &previous) < 0);
		for (int k = 0; k < 2; k++)
			assert_int_equal(w.st[k]->promised, 0);
	}
	w.nn->set.repl_min = 1;
	assert_int_equal(add_block(&w, f.id, &previous), 0);
	for (int k = 0; k < 2; k++)
		assert_int_equal(w.st[k]->promised, 1 << 20);
	world_fini(&w);
}

/* ---- replicas more than wanted ---- */

/* So many replicas are ordered to go from each node: "0010". */
static void assert_dropped(const struct world *w, const char *counts)
{
	for (uint32_t i = 0; i < w->nodes; i++)
		assert_int_equal(w->dn[i]->ninval, counts[i] - '0');
}

/* Node 0 has the least room: it would go if types did not matter. */
static void the_replica_on_a_type_that_is_not_wanted_goes_first(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, "aaaa");
	w.st[0]->remaining = 1 << 20;
	w.st[2]->type = STORAGE_ARCHIVE;
	add(&w, 3, "0123");
	look(&w);
	assert_dropped(&w, "0010");
	world_fini(&w);
	world_init(&w, "aaaa"); /* ALL_SSD */
	w.st[0]->remaining = 1 << 20;
	for (int i = 0; i < 3; i++)
		w.st[i]->type = STORAGE_SSD;
	put_block(&w, 0, "0123");
	look(&w);
	assert_dropped(&w, "0001");
	assert_int_equal(w.nn->blocks.surplus_count, 0);
	world_fini(&w);
}

/* The one that is not wanted is the only one in its rack. */
static void racks_are_kept_before_types(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, "aaab");
	w.st[3]->type = STORAGE_ARCHIVE;
	w.st[1]->remaining = 1 << 20;
	add(&w, 3, "0123");
	look(&w);
	assert_dropped(&w, "0100");
	world_fini(&w);
}

static void the_node_that_an_order_names_goes_whatever_its_type(void **state)
{
	struct world w;
	struct blk *b;

	(void)state;
	world_init(&w, "aaaa");
	w.st[2]->type = STORAGE_ARCHIVE;
	b = add(&w, 3, "012");
	blocks_report_moved(&w.nn->blocks, w.st[3], &b->b, w.dn[1]);
	assert_dropped(&w, "0100");
	world_fini(&w);
}

/* Of equal types nobody has to be asked. */
static void of_one_type_the_surplus_goes_at_once(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, "aaaa");
	w.st[1]->remaining = 1 << 20;
	add(&w, 3, "0123");
	assert_dropped(&w, "0100");
	world_fini(&w);
}

/* Unit 0 twice, and nobody can take the missing ones. */
static void of_two_of_a_unit_the_one_on_a_type_that_is_not_wanted_goes(void **state)
{
	struct world w;
	struct block r;
	struct blk *b;

	(void)state;
	world_init(&w, "aaaa");
	w.st[0]->type = STORAGE_SSD;
	w.st[3]->remaining = 1; /* it would go */
	b = add_group(&w, 0);
	r = (struct block){ec_id_of(b->b.id, 0), b->b.gs, blk_unit_len(b, b->b.len, 0)};
	blocks_report(&w.nn->blocks, w.st[3], &r, REPLICA_FINALIZED, false, 0);
	look(&w);
	assert_dropped(&w, "1000");
	world_fini(&w);
}

/* ---- what comes all at once ---- */

/* Each death takes a millisecond or more. */
static void the_lock_is_given_back_while_many_nodes_are_found_dead(void **state)
{
	struct world w;
	uint64_t before;

	(void)state;
	world_init(&w, "aabbccdd");
	clock_ahead_ns += 3600 * NS_PER_S;
	clock_step_ns = NS_PER_MS;
	before = w.nn->holds.count;
	monitor_tick(w.nn);
	assert_int_equal(datanodes_live(&w.nn->dns), 0);
	assert_true(w.nn->holds.count - before >= 2);
	world_fini(&w);
}

#define OPEN_FILES 5000u

/* A client with many open files is silent: all are recovered once, and not all in one change. */
static void the_files_of_a_lease_are_recovered_some_at_a_time(void **state)
{
	static uint8_t seen[OPEN_FILES];
	struct world w;
	uint32_t sum = 0;

	(void)state;
	world_init(&w, "aaa");
	for (uint64_t i = 0; i < OPEN_FILES; i++)
		leases_add(&w.nn->leases, "c", i);
	w.nn->dns.dead_after_ns = w.nn->dns.stale_after_ns = 10000 * NS_PER_S;
	clock_ahead_ns += 3600 * NS_PER_S;
	for (uint32_t n = 1; n; sum += n) {
		struct list batch = LIST_INIT(batch), *l;

		monitor_tick(w.nn);
		assert_true(commit_queue_take(&w.nn->commit_queue, 0, &batch));
		for (n = 0; (l = list_pop(&batch)); n++) {
			struct req *q = container_of(l, struct req, link);

			assert_true(q->arg < OPEN_FILES);
			seen[q->arg]++;
			if (q->arg % 3) /* it is closed, or somebody else's now */
				leases_del(&w.nn->leases, "c", q->arg);
			req_finish(q);
		}
		assert_true(n <= OPEN_FILES / 4);
	}
	assert_int_equal(sum, OPEN_FILES);
	for (uint32_t i = 0; i < OPEN_FILES; i++)
		assert_int_equal(seen[i], 1);
	world_fini(&w);
}

#define HOLDERS 16u
#define TICKS 3

/* Clients with many open files have died, and one with few. */
static void no_lease_waits_for_all_files_of_another(void **state)
{
	uint32_t seen[HOLDERS + 1] = {0};
	struct leases *all;
	struct world w;

	(void)state;
	world_init(&w, "aaa");
	all = &w.nn->leases;
	for (uint64_t i = 0; i < HOLDERS * OPEN_FILES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "c%u", (uint32_t)(i / OPEN_FILES));
		leases_add(all, name, i);
	}
	leases_add(all, "few", HOLDERS * OPEN_FILES);
	w.nn->dns.dead_after_ns = w.nn->dns.stale_after_ns = 10000 * NS_PER_S;
	clock_ahead_ns += 3600 * NS_PER_S;
	for (int t = 0; t <= TICKS; t++) {
		struct list batch = LIST_INIT(batch), *l;
		uint32_t n = 0;

		if (t == TICKS) /* whoever has the next turn is gone */
			for (uint64_t i = 0; i < OPEN_FILES; i++)
				leases_del(all, all->turn->holder, all->turn->inode[0]);
		monitor_tick(w.nn);
		assert_true(commit_queue_take(&w.nn->commit_queue, 0, &batch));
		for (; (l = list_pop(&batch)); n++) {
			struct req *q = container_of(l, struct req, link);

			seen[q->arg / OPEN_FILES]++;
			req_finish(q);
		}
		assert_in_range(n, OPEN_FILES / 8, OPEN_FILES / 4);
		for (uint32_t i = 0; i <= HOLDERS && t == TICKS - 1; i++)
			assert_in_range(seen[i], 1, OPEN_FILES / 8);
	}
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(groups_on_too_few_nodes_keep_nobody_from_being_copied),
		cmocka_unit_test(blocks_that_no_node_can_take_pass_their_turn_on),
		cmocka_unit_test(a_source_that_cannot_send_is_not_asked_for_ever),
		cmocka_unit_test(a_corrupt_replica_is_not_copied),
		cmocka_unit_test(the_lock_is_given_back_while_copies_are_ordered),
		cmocka_unit_test(a_look_orders_so_many_copies_for_each_living_node),
		cmocka_unit_test(more_copies_wait_for_a_node_that_has_the_last_replicas),
		cmocka_unit_test(a_copy_that_nobody_waits_for_is_not_ordered),
		cmocka_unit_test(a_node_that_leaves_begins_more_copies_at_a_time),
		cmocka_unit_test(policies_are_read_without_the_lock),
		cmocka_unit_test(without_its_policy_a_block_waits_for_the_next_round),
		cmocka_unit_test(an_inode_that_cannot_be_read_is_told_and_read_again),
		cmocka_unit_test(a_block_whose_file_is_gone_is_not_copied),
		cmocka_unit_test(a_block_that_is_refused_keeps_no_room),
		cmocka_unit_test(the_replica_on_a_type_that_is_not_wanted_goes_first),
		cmocka_unit_test(racks_are_kept_before_types),
		cmocka_unit_test(the_node_that_an_order_names_goes_whatever_its_type),
		cmocka_unit_test(of_one_type_the_surplus_goes_at_once),
		cmocka_unit_test(of_two_of_a_unit_the_one_on_a_type_that_is_not_wanted_goes),
		cmocka_unit_test(the_lock_is_given_back_while_many_nodes_are_found_dead),
		cmocka_unit_test(the_files_of_a_lease_are_recovered_some_at_a_time),
		cmocka_unit_test(no_lease_waits_for_all_files_of_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
