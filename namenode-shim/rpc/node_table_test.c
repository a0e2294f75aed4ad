/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: the table of data nodes is bounded, strangers keep nobody out of it, and a node
 * that is replaced, refused or forgotten leaves nothing behind that is used. The balancer is told
 * of a node's blocks in steps. */
#include "NamenodeProtocol.pb-c.h"
#include "common/base/clock.h"
#include "namenode-shim/blocks/redundancy_monitor.h"
#include "namenode-shim/rpc/batch_test_fixture.h"

/* As registerDatanode of a node that calls from @ip. */
static int register_node(struct req *q, const char *uuid, const char *ip, uint32_t port)
{
	const struct db_ident *id = &q->nn->db->ident;
	Hd__StorageInfoProto info = HD__STORAGE_INFO_PROTO__INIT;
	Hd__DatanodeIDProto node = HD__DATANODE_IDPROTO__INIT;
	Hd__ExportedBlockKeysProto keys = HD__EXPORTED_BLOCK_KEYS_PROTO__INIT;
	Hdd__DatanodeRegistrationProto reg = HDD__DATANODE_REGISTRATION_PROTO__INIT;
	Hdd__RegisterDatanodeRequestProto m = HDD__REGISTER_DATANODE_REQUEST_PROTO__INIT;

	info.namespceid = id->namespace_id;
	info.clusterid = (char *)(uintptr_t)id->cluster_id;
	info.ctime = id->ctime_ms;
	node.datanodeuuid = (char *)(uintptr_t)uuid;
	node.ipaddr = (char *)(uintptr_t)ip;
	node.hostname = (char *)(uintptr_t) "host";
	node.xferport = port;
	reg.datanodeid = &node;
	reg.storageinfo = &info;
	reg.keys = &keys;
	reg.softwareversion = (char *)(uintptr_t) "3.4.2";
	m.registration = &reg;
	q->ns.host = ip;
	return find_method(&datanode_methods, "registerDatanode")->run(q, &m);
}

static int run_register(struct req *q, const void *in)
{
	(void)in;
	return register_node(q, "dn-new", "127.0.0.1", 9000);
}

/* Done while a new block is on its way to the disk, which was placed on the only node. */
static const struct blk *place_and(struct world *w, const struct method *then)
{
	Hd__AppendRequestProto a = HD__APPEND_REQUEST_PROTO__INIT;
	Hd__AddBlockRequestProto b = HD__ADD_BLOCK_REQUEST_PROTO__INIT;
	struct call_stat stat = {.name = "put"}, called = {.name = "call"}, done = {.name = "then"};
	uint64_t key = 1000000;

	world_init(w, false);
	w->st->remaining = w->st->capacity = 1ull << 40;
	assert_int_equal(nn_start(w->nn), 0);
	put_until_journal(w, &key, &stat);
	a.src = b.src = (char *)(uintptr_t) "/f";
	a.clientname = b.clientname = (char *)(uintptr_t) "a";
	calls[0].method = "append";
	calls[0].msg = &a;
	calls[1].method = "addBlock";
	calls[1].msg = &b;
	gate_is_shut = true;
	submit(w, &call_method, 0, &called);
	submit(w, &call_method, 1, &called);
	wait_for(&calls_run, 2);
	submit(w, then, 0, &done);
	wait_for_calls(&done, 1);
	assert_int_equal(called.calls, 0);
	gate_is_shut = false;
	wait_for_calls(&called, 2);
	nn_stop(w->nn);
	assert_int_equal(calls[0].rc, 0);
	assert_int_equal(calls[1].rc, 0);
	assert_int_equal(read_file(w)->nblocks, 1);
	w->block = read_file(w)->blocks[0].b;
	return blocks_find(&w->nn->blocks, w->block.id);
}

/* Another node registers at its address, and it is freed. */
static void a_node_replaced_while_a_block_is_placed_on_it_is_not_used(void **state)
{
	static const struct method registers = {
		.name = "register", .kind = REQ_MEMORY, .run = run_register};
	const struct blk *b;
	struct world w;

	(void)state;
	b = place_and(&w, &registers);
	assert_null(datanodes_find(&w.nn->dns, "dn"));
	assert_int_equal(b->open->ntargets, 0);
	world_fini(&w);
}

static int run_lose(struct req *q, const void *in)
{
	(void)in;
	nn_dn_lost(q->nn, datanodes_find(&q->nn->dns, "dn"), "test");
	return 0;
}

/* Its writer may write there all the same. */
static void a_node_lost_while_a_block_is_placed_on_it_is_asked_when_it_is_back(void **state)
{
	static const struct method loses = {.name = "lose", .kind = REQ_MEMORY, .run = run_lose};
	const struct blk *b;
	struct world w;

	(void)state;
	b = place_and(&w, &loses);
	assert_int_equal(b->open->ntargets, 0);
	assert_int_equal(b->open->nlost, 1);
	assert_string_equal(b->open->lost[0].node, "dn");
	assert_string_equal(b->open->lost[0].storage, "DS");
	world_fini(&w);
}

#define TOO_MANY (DN_MAX + 1)

/* Placement compares what it looks at with each of them, in the writer's thread. */
static void no_more_nodes_can_be_named_than_there_may_be(void **state)
{
	Hd__GetAdditionalDatanodeRequestProto more =
		HD__GET_ADDITIONAL_DATANODE_REQUEST_PROTO__INIT;
	Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT, other = HD__DATANODE_IDPROTO__INIT;
	Hd__DatanodeInfoProto node = HD__DATANODE_INFO_PROTO__INIT,
			      nobody = HD__DATANODE_INFO_PROTO__INIT;
	static Hd__DatanodeInfoProto *nodes[TOO_MANY], *nobodies[TOO_MANY];
	struct recovered r;
	struct world w;

	(void)state;
	world_init(&w, false);
	w.st->remaining = w.st->capacity = 1ull << 40;
	recovered_init(&w, &r);
	id.datanodeuuid = (char *)(uintptr_t) "dn";
	other.datanodeuuid = (char *)(uintptr_t) "nobody";
	node.id = &id;
	nobody.id = &other;
	for (int i = 0; i < TOO_MANY; i++) {
		nodes[i] = &node;
		nobodies[i] = &nobody;
	}
	more.src = r.append.src;
	more.clientname = r.append.clientname;
	more.blk = &r.block;
	more.numadditionalnodes = 1;
	more.existings = nodes;
	more.excludes = nobodies;
	r.add.excludenodes = nobodies;
	r.add.previous = NULL;
	assert_int_equal(nn_start(w.nn), 0);
	call_in_turn(&w, 0, "append", &r.append);
	more.n_existings = TOO_MANY;
	call_in_turn(&w, 1, "getAdditionalDatanode", &more);
	assert_true(calls[1].rc < 0);
	more.n_existings = 1;
	more.n_excludes = TOO_MANY;
	call_in_turn(&w, 1, "getAdditionalDatanode", &more);
	assert_true(calls[1].rc < 0);
	more.n_existings = w.nn->set.repl_max;
	more.n_excludes = DN_MAX;
	call_in_turn(&w, 1, "getAdditionalDatanode", &more);
	assert_int_equal(calls[1].rc, 0);
	r.add.n_excludenodes = TOO_MANY;
	call_in_turn(&w, 2, "addBlock", &r.add);
	assert_true(calls[2].rc < 0);
	r.add.n_excludenodes = DN_MAX;
	call_in_turn(&w, 2, "addBlock", &r.add);
	assert_int_equal(calls[2].rc, 0);
	nn_stop(w.nn);
	world_fini(&w);
}

/* ---- the table of nodes ---- */

static int come(struct world *w, const char *ip, uint32_t number)
{
	struct req *q = req_new(w->nn, find_method(&datanode_methods, "registerDatanode"), NULL);
	char uuid[32];
	int rc;

	snprintf(uuid, sizeof(uuid), "%s-%u", ip, number);
	req_reset(q, NULL);
	rc = q->rc = register_node(q, uuid, ip, 10000 + number);
	req_finish(q);
	return rc;
}

static struct dn *node(const struct world *w, const char *ip, uint32_t number)
{
	char uuid[32];

	snprintf(uuid, sizeof(uuid), "%s-%u", ip, number);
	return datanodes_find(&w->nn->dns, uuid);
}

/* An honest node with a replica, and so many others of one address that no more fit. */
static void fill_table(struct world *w, const char *ip)
{
	world_init(w, true);
	report(w);
	w->st->dn->report_ns = 1;
	for (uint32_t i = 1; i < DN_MAX; i++)
		assert_int_equal(come(w, ip, i), 0);
}

static void dead_nodes_make_room_for_new_ones(void **state)
{
	struct world w;

	(void)state;
	fill_table(&w, "10.0.0.9");
	for (uint32_t i = 10; i < 13; i++)
		nn_dn_lost(w.nn, node(&w, "10.0.0.9", i), "test");
	node(&w, "10.0.0.9", 11)->heard_ns = 1;
	assert_int_equal(come(&w, "10.0.0.2", 1), 0);
	assert_null(node(&w, "10.0.0.9", 11)); /* the one that was silent longest */
	assert_non_null(node(&w, "10.0.0.9", 10));
	assert_non_null(node(&w, "10.0.0.2", 1));
	assert_int_equal(HASH_COUNT(w.nn->dns.table), DN_MAX);
	world_fini(&w);
}

static void a_client_that_fills_the_table_of_nodes_keeps_nobody_out(void **state)
{
	struct world w;

	(void)state;
	fill_table(&w, "10.0.0.9"); /* registers under many names, and does no more */
	assert_int_equal(come(&w, "10.0.0.2", 1), 0);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(come(&w, "10.0.0.9", DN_MAX + i), 0);
	assert_non_null(node(&w, "10.0.0.2", 1));
	assert_ptr_equal(datanodes_find(&w.nn->dns, "dn"), w.st->dn);
	assert_int_equal(HASH_COUNT(w.nn->dns.table), DN_MAX);
	world_fini(&w);
}

static void nor_one_whose_names_send_heartbeats_and_reports(void **state)
{
	struct world w;

	(void)state;
	fill_table(&w, "10.0.0.9");
	for (struct dn *dn = w.nn->dns.table; dn; dn = dn->hh.next)
		dn->report_ns = 1;
	assert_int_equal(come(&w, "10.0.0.2", 1), 0);
	node(&w, "10.0.0.2", 1)->report_ns = 1;
	assert_true(come(&w, "10.0.0.9", DN_MAX) < 0); /* it has its share, and more */
	assert_int_equal(come(&w, "10.0.0.3", 1), 0);
	assert_non_null(node(&w, "10.0.0.2", 1));
	assert_ptr_equal(datanodes_find(&w.nn->dns, "dn"), w.st->dn);
	assert_int_equal(HASH_COUNT(w.nn->dns.table), DN_MAX);
	world_fini(&w);
}

/* A heartbeat of the node. True: it is told to register. */
static bool beat(struct world *w, bool failed)
{
	const struct db_ident *ident = &w->nn->db->ident;
	Hd__StorageInfoProto info = HD__STORAGE_INFO_PROTO__INIT;
	Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;
	Hdd__DatanodeRegistrationProto reg = HDD__DATANODE_REGISTRATION_PROTO__INIT;
	Hdd__HeartbeatRequestProto m = HDD__HEARTBEAT_REQUEST_PROTO__INIT;
	Hd__StorageReportProto s = HD__STORAGE_REPORT_PROTO__INIT, *all = &s;
	struct req *q = req_new(w->nn, find_method(&datanode_methods, "sendHeartbeat"), NULL);
	const Hdd__HeartbeatResponseProto *r;
	bool yes = false;

	info.namespceid = ident->namespace_id;
	info.clusterid = (char *)(uintptr_t)ident->cluster_id;
	info.ctime = ident->ctime_ms;
	id.datanodeuuid = w->st->dn->uuid;
	id.xferport = w->st->dn->xfer_port;
	reg.datanodeid = &id;
	reg.storageinfo = &info;
	m.registration = &reg;
	s.storageuuid = w->st->id;
	s.has_failed = true;
	s.failed = failed;
	m.reports = &all;
	m.n_reports = 1;
	req_reset(q, NULL);
	q->rc = q->method->run(q, &m);
	assert_int_equal(q->rc, 0);
	r = (const Hdd__HeartbeatResponseProto *)q->out;
	for (size_t i = 0; i < r->n_cmds; i++)
		yes |= r->cmds[i]->cmdtype == HDD__DATANODE_COMMAND_PROTO__TYPE__RegisterCommand;
	req_finish(q);
	return yes;
}

static void a_disk_that_came_back_is_asked_what_is_on_it(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, true);
	report(&w);
	w.st->reported = true;
	w.st->dn->report_ns = 1;
	assert_false(beat(&w, false));
	assert_true(dn_has_reported(w.st->dn));
	assert_false(beat(&w, true));
	assert_true(beat(&w, false));
	assert_false(dn_has_reported(w.st->dn));
	assert_false(beat(&w, false));
	world_fini(&w);
}

/* What a client sends must do no more than fail. */
static void a_registration_that_is_refused_takes_nobodys_place(void **state)
{
	char longest[BLOCK_UUID_MAX + 1];
	const char *const bad[] = {"", longest};
	struct world w;

	(void)state;
	memset(longest, 'u', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	world_init(&w, true);
	report(&w);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct req *q =
			req_new(w.nn, find_method(&datanode_methods, "registerDatanode"), NULL);

		req_reset(q, NULL);
		q->rc = register_node(q, bad[i], w.st->dn->ip, w.st->dn->xfer_port);
		assert_true(q->rc < 0);
		req_finish(q);
		assert_ptr_equal(datanodes_find(&w.nn->dns, "dn"), w.st->dn);
		assert_true(w.st->dn->alive);
	}
	world_fini(&w);
}

static void a_node_that_has_been_dead_for_long_is_forgotten(void **state)
{
	struct world w;
	struct dn *dn;

	(void)state;
	world_init(&w, true);
	report(&w);
	assert_int_equal(come(&w, "10.0.0.2", 1), 0);
	assert_int_equal(come(&w, "10.0.0.2", 2), 0);
	w.nn->dns.dead_after_ns = 1;
	w.nn->set.dead_keep_ms = 3600 * 1000;
	dn = node(&w, "10.0.0.2", 1);
	w.st->dn->heard_ns = node(&w, "10.0.0.2", 2)->heard_ns = clock_mono_ns() + NS_PER_S;
	monitor_tick(w.nn);
	assert_false(dn->alive);
	assert_ptr_equal(node(&w, "10.0.0.2", 1), dn); /* still in the lists of dead nodes */
	w.nn->set.dead_keep_ms = 1;
	dn->admin = DN_IN_MAINTENANCE;
	dn->maintenance_until_ms = UINT64_MAX;
	(void)poll(NULL, 0, 5);
	monitor_tick(w.nn);
	assert_ptr_equal(node(&w, "10.0.0.2", 1), dn); /* it is to be away */
	dn->admin = DN_NORMAL;
	monitor_tick(w.nn);
	assert_null(node(&w, "10.0.0.2", 1));
	assert_non_null(node(&w, "10.0.0.2", 2));
	assert_int_equal(come(&w, "10.0.0.2", 1), 0);
	world_fini(&w);
}

#define MANY 35000
#define FIRST_ID 5000000

/* Every second block is on the node. */
static void add_many(struct world *w)
{
	for (int i = 0; i < MANY; i++) {
		const struct block b = {FIRST_ID + i, 1, FILE_LEN};

		blocks_add(&w->nn->blocks, &b, w->file, 1, BLK_COMPLETE);
		if (i % 2)
			blocks_report(&w->nn->blocks, w->st, &b, REPLICA_FINALIZED, true, 0);
	}
}

/* Blocks of up to @size bytes; some are taken away between the steps, whose number is returned. */
static int get_blocks(struct world *w, uint64_t size, struct req **ret_q)
{
	Hdn__GetBlocksRequestProto m = HDN__GET_BLOCKS_REQUEST_PROTO__INIT;
	Hd__DatanodeIDProto dn = HD__DATANODE_IDPROTO__INIT;
	struct req *q = req_new(w->nn, find_method(&namenode_methods, "getBlocks"), NULL);
	int steps = 0;

	dn.datanodeuuid = (char *)(uintptr_t) "dn";
	m.datanode = &dn;
	m.size = size;
	m.has_minblocksize = true;
	m.minblocksize = 0;
	for (;;) {
		req_reset(q, NULL);
		q->rc = q->method->run(q, &m);
		if (q->rc != REQ_PARK)
			break;
		for (int i = steps++; i < MANY; i += 100) { /* all even ones */
			struct blk *b = blocks_find(&w->nn->blocks, FIRST_ID + i - i % 2);

			if (b)
				blocks_remove(&w->nn->blocks, b);
		}
	}
	assert_int_equal(q->rc, 0);
	*ret_q = q;
	return steps;
}

static void the_balancer_gets_the_blocks_of_a_node_in_steps(void **state)
{
	const Hdn__GetBlocksResponseProto *r;
	bool seen[MANY] = {false};
	struct world w;
	struct req *q;
	int twice = 0;

	(void)state;
	world_init(&w, false);
	add_many(&w);
	assert_int_equal(get_blocks(&w, UINT64_MAX, &q), 3);
	r = (const void *)q->out;
	for (size_t i = 0; i < r->blocks->n_blocks; i++) {
		const uint64_t at = r->blocks->blocks[i]->block->blockid - FIRST_ID;

		assert_true(at < MANY && at % 2);
		twice += seen[at];
		seen[at] = true;
		assert_string_equal(r->blocks->blocks[i]->datanodeuuids[0], "dn");
	}
	/* Where the next block was taken away the walk goes on elsewhere: a few may be missed or
	 * come twice. */
	assert_true(r->blocks->n_blocks > MANY / 4);
	if (!twice)
		assert_true(r->blocks->n_blocks > MANY / 2 - MANY / 50);
	req_finish(q);
	world_fini(&w);
}

static void the_balancer_gets_no_more_bytes_than_it_asks_for(void **state)
{
	struct world w;
	struct req *q;

	(void)state;
	world_init(&w, false);
	add_many(&w);
	assert_int_equal(get_blocks(&w, 10 * FILE_LEN, &q), 0);
	assert_int_equal(((const Hdn__GetBlocksResponseProto *)q->out)->blocks->n_blocks, 10);
	req_finish(q);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_node_replaced_while_a_block_is_placed_on_it_is_not_used),
		cmocka_unit_test(
			a_node_lost_while_a_block_is_placed_on_it_is_asked_when_it_is_back),
		cmocka_unit_test(no_more_nodes_can_be_named_than_there_may_be),
		cmocka_unit_test(dead_nodes_make_room_for_new_ones),
		cmocka_unit_test(a_client_that_fills_the_table_of_nodes_keeps_nobody_out),
		cmocka_unit_test(nor_one_whose_names_send_heartbeats_and_reports),
		cmocka_unit_test(a_disk_that_came_back_is_asked_what_is_on_it),
		cmocka_unit_test(a_registration_that_is_refused_takes_nobodys_place),
		cmocka_unit_test(a_node_that_has_been_dead_for_long_is_forgotten),
		cmocka_unit_test(the_balancer_gets_the_blocks_of_a_node_in_steps),
		cmocka_unit_test(the_balancer_gets_no_more_bytes_than_it_asks_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
