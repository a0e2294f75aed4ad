/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: chosen nodes are distinct, alive, not excluded and have room for a whole block,
 * rather beside what was promised; the first is on the writer's host when one there qualifies; as
 * many are found as qualify, never more than asked for. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "namenode-shim/blocks/blocks.h"
#include "namenode-shim/blocks/datanodes.h"
#include "namenode-shim/blocks/placement.h"
#include "namenode-shim/namespace/storage_policy.h"

#define NODES 6
#define ROUNDS 2000

struct world {
	struct datanodes dns;
	struct dn *dn[NODES];
};

static void world_init(struct world *w, uint64_t remaining)
{
	datanodes_init(&w->dns, 1000);
	for (int i = 0; i < NODES; i++) {
		char uuid[16], ip[16];
		const struct dn_ident id = {uuid, ip, "host", "3.4.2", 9866, 1, 2, 0};

		snprintf(uuid, sizeof(uuid), "dn%d", i);
		snprintf(ip, sizeof(ip), "10.0.0.%d", i);
		assert_int_equal(datanodes_register(&w->dns, &id, &w->dn[i]), 0);
		dn_storage_add(w->dn[i], "DS-a", STORAGE_DISK)->remaining = remaining;
		dn_storage_add(w->dn[i], "DS-b", STORAGE_DISK)->remaining = 1;
	}
}

static void forget_promises(struct world *w)
{
	for (int i = 0; i < NODES; i++)
		for (uint32_t k = 0; k < w->dn[i]->nstorages; k++)
			w->dn[i]->storage[k]->promised = 0;
}

static void choices_are_distinct_and_the_first_is_local(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1000);
	for (int round = 0; round < ROUNDS; round++) {
		struct place p = {.want = 3, .writer_ip = "10.0.0.4", .block_size = 100};
		struct storage *st[3];

		assert_int_equal(place_choose(&w.dns, &p, st), 3);
		assert_ptr_equal(st[0]->dn, w.dn[4]);
		assert_ptr_not_equal(st[1]->dn, st[0]->dn);
		assert_ptr_not_equal(st[2]->dn, st[0]->dn);
		assert_ptr_not_equal(st[2]->dn, st[1]->dn);
		assert_string_equal(st[0]->id, "DS-a"); /* the other has no room */
		forget_promises(&w);
	}
	datanodes_fini(&w.dns);
}

static void every_node_gets_its_share(void **state)
{
	int count[NODES] = {0};
	struct world w;

	(void)state;
	world_init(&w, 1 << 30);
	for (int round = 0; round < ROUNDS; round++) {
		struct place p = {.want = 1, .block_size = 1};
		struct storage *st;

		assert_int_equal(place_choose(&w.dns, &p, &st), 1);
		for (int i = 0; i < NODES; i++)
			count[i] += st->dn == w.dn[i];
	}
	for (int i = 0; i < NODES; i++)
		assert_in_range(count[i], ROUNDS / NODES / 2, ROUNDS / NODES * 2);
	datanodes_fini(&w.dns);
}

static void dead_excluded_and_full_nodes_are_left_out(void **state)
{
	struct world w;
	const struct dn *no[1];
	struct place p = {.want = 10,
			  .writer_ip = "10.0.0.0",
			  .block_size = 100,
			  .exclude = no,
			  .nexclude = 1};
	struct storage *st[10];
	uint32_t n;

	(void)state;
	world_init(&w, 1000);
	no[0] = w.dn[0];
	w.dn[1]->alive = false;
	w.dn[2]->storage[0]->remaining = 99;
	w.dn[3]->storage[0]->failed = true;
	n = place_choose(&w.dns, &p, st);
	assert_int_equal(n, 2);
	for (uint32_t i = 0; i < n; i++)
		assert_true(st[i]->dn == w.dn[4] || st[i]->dn == w.dn[5]);
	datanodes_fini(&w.dns);
}

/* Nothing is written on a node that leaves, for good or for a while: it would have to be copied. */
static void leaving_nodes_are_left_out(void **state)
{
	(void)state;
	for (int admin = DN_DECOMMISSIONING; admin <= DN_IN_MAINTENANCE; admin++) {
		struct place p = {.want = 10, .writer_ip = "10.0.0.0", .block_size = 100};
		struct storage *st[10];
		struct world w;
		uint32_t n;

		world_init(&w, 1000);
		w.dn[0]->admin = (enum dn_admin)admin; /* at the writer's own address, too */
		w.dn[3]->admin = (enum dn_admin)admin;
		n = place_choose(&w.dns, &p, st);
		assert_int_equal(n, NODES - 2);
		for (uint32_t i = 0; i < n; i++)
			assert_int_equal(st[i]->dn->admin, DN_NORMAL);
		for (int i = 0; i < NODES; i++) /* rather on none */
			w.dn[i]->admin = (enum dn_admin)admin;
		assert_int_equal(place_choose(&w.dns, &p, st), 0);
		datanodes_fini(&w.dns);
	}
}

/* While a node has room beside what was promised it is taken before one that has not. */
static void promised_room_is_left_alone_while_there_is_other(void **state)
{
	struct world w;
	struct place all = {.want = NODES, .block_size = 400}, one = {.want = 1, .block_size = 400};
	struct storage *st[NODES];

	(void)state;
	world_init(&w, 1000);
	assert_int_equal(place_choose(&w.dns, &all, st), NODES);
	assert_int_equal(place_choose(&w.dns, &all, st), NODES); /* 200 are left of each */
	w.dn[3]->storage[0]->promised = 0;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(place_choose(&w.dns, &one, st), 1);
		assert_ptr_equal(st[0]->dn, w.dn[3]);
	}
	datanodes_fini(&w.dns);
}

/* 700 files were opened and not written: a writer still finds the room that the disks have. */
static void room_promised_to_files_that_may_stay_empty_refuses_no_writer(void **state)
{
	struct world w;
	struct place p = {.want = 3, .block_size = 400};
	struct storage *st[NODES];

	(void)state;
	world_init(&w, 1000);
	for (int i = 0; i < 700; i++)
		assert_int_equal(place_choose(&w.dns, &p, st), 3);
	p.block_size = 1001; /* more than any disk has */
	assert_int_equal(place_choose(&w.dns, &p, st), 0);
	datanodes_fini(&w.dns);
}

/* Two of six nodes have missed heartbeats. */
static void stale_nodes_get_a_block_only_when_the_others_are_too_few(void **state)
{
	struct world w;
	struct place p = {.want = 4, .writer_ip = "10.0.0.1", .block_size = 1};
	struct storage *st[NODES];

	(void)state;
	world_init(&w, 1000);
	w.dn[1]->stale = w.dn[2]->stale = true;
	snprintf(w.dn[0]->rack, sizeof(w.dn[0]->rack), "/r0");
	for (int round = 0; round < 100; round++) {
		assert_int_equal(place_choose(&w.dns, &p, st), 4);
		for (int i = 0; i < 4; i++)
			assert_false(st[i]->dn->stale);
	}
	p.want = NODES;
	assert_int_equal(place_choose(&w.dns, &p, st), NODES);
	datanodes_fini(&w.dns);
}

static void when_most_nodes_are_stale_the_others_need_not_bear_it_all(void **state)
{
	struct world w;
	struct place p = {.want = 1, .block_size = 1};
	struct storage *st;
	int stale = 0;

	(void)state;
	world_init(&w, 1 << 30);
	for (int i = 0; i < 4; i++)
		w.dn[i]->stale = true;
	for (int round = 0; round < ROUNDS; round++) {
		assert_int_equal(place_choose(&w.dns, &p, &st), 1);
		stale += st->dn->stale;
	}
	assert_in_range(stale, ROUNDS / 3, ROUNDS);
	w.dn[0]->stale = false; /* half of them */
	datanodes_changed(&w.dns);
	for (int round = 0; round < ROUNDS; round++) {
		assert_int_equal(place_choose(&w.dns, &p, &st), 1);
		assert_false(st->dn->stale);
	}
	w.dns.write_stale = true;
	for (stale = 0; !stale;) {
		assert_int_equal(place_choose(&w.dns, &p, &st), 1);
		stale += st->dn->stale;
	}
	datanodes_fini(&w.dns);
}

/* Node i has the storages of kinds[i], given by their first letters. */
static void world_of(struct world *w, const char *const kinds[NODES])
{
	datanodes_init(&w->dns, 1000);
	for (int i = 0; i < NODES; i++) {
		char uuid[16], id[16];
		const struct dn_ident ident = {
			uuid, "10.0.0.1", "host", "3.4.2", 9866u + (uint32_t)i, 1, 2, 0};

		snprintf(uuid, sizeof(uuid), "dn%d", i);
		assert_int_equal(datanodes_register(&w->dns, &ident, &w->dn[i]), 0);
		for (const char *k = kinds[i]; *k; k++) {
			const enum storage_type t = *k == 'S'   ? STORAGE_SSD
						    : *k == 'A' ? STORAGE_ARCHIVE
						    : *k == 'R' ? STORAGE_RAM_DISK
								: STORAGE_DISK;

			snprintf(id, sizeof(id), "DS-%c", *k);
			dn_storage_add(w->dn[i], id, t)->remaining = 1 << 30;
		}
	}
}

/* The first letters of the types of @n storages, in order. */
static const char *types_of(struct storage *const *st, uint32_t n)
{
	static char text[NODES + 1];
	uint32_t len = 0;

	for (const char *k = "SDAR"; *k; k++)
		for (uint32_t i = 0; i < n; i++)
			if (st[i]->id[3] == *k)
				text[len++] = *k;
	text[len] = 0;
	return text;
}

static void a_hot_file_lies_neither_in_memory_nor_in_the_archive(void **state)
{
	static const char *const kinds[NODES] = {"RAD", "RA", "RA", "AD", "SA", "RDA"};
	struct world w;
	struct place p = {.want = 3, .block_size = 1};
	struct storage *st[NODES];

	(void)state;
	world_of(&w, kinds);
	for (int round = 0; round < 200; round++) {
		assert_int_equal(place_choose(&w.dns, &p, st), 3);
		assert_string_equal(types_of(st, 3), "DDD");
	}
	p.want = 4; /* no more have a disk: a new block is on three, a copy goes to the archive */
	assert_int_equal(place_choose(&w.dns, &p, st), 3);
	p.copy = true;
	assert_int_equal(place_choose(&w.dns, &p, st), 4);
	assert_string_equal(types_of(st, 4), "DDDA");
	datanodes_fini(&w.dns);
}

static void policies_and_their_fall_backs_are_obeyed(void **state)
{
	static const struct {
		const char *policy, *kinds[NODES], *have, *got;
		bool copy;
	} t[] = {
		{"HOT", {"D", "D", "D", "S", "S", "A"}, "", "DDD", false},
		{"HOT", {"S", "S", "S", "S", "S", "S"}, "", "", false},
		{"COLD", {"D", "D", "DA", "A", "SA", "S"}, "", "AAA", false},
		{"COLD", {"D", "D", "D", "A", "S", "S"}, "", "A", true},
		{"WARM", {"DA", "A", "A", "A", "A", "A"}, "", "DAA", false},
		{"WARM", {"D", "D", "D", "D", "S", "S"}, "", "DDD", false},
		{"ONE_SSD", {"D", "D", "D", "D", "S", "S"}, "", "SDD", false},
		{"ONE_SSD", {"SD", "SD", "SD", "SD", "SD", "SD"}, "", "SDD", false},
		{"ONE_SSD", {"D", "D", "D", "D", "D", "D"}, "", "DDD", false},
		{"ONE_SSD", {"S", "S", "S", "A", "A", "A"}, "", "SSS", false},
		{"ONE_SSD", {"SD", "SD", "SD", "SD", "SD", "SD"}, "DD", "S", true},
		{"ONE_SSD", {"SD", "SD", "SD", "SD", "SD", "SD"}, "SD", "D", true},
		{"ALL_SSD", {"SD", "SD", "SD", "D", "D", "D"}, "", "SSS", false},
		{"ALL_SSD", {"SD", "D", "D", "D", "D", "D"}, "", "SDD", false},
		{"ALL_NVDIMM", {"SD", "D", "D", "D", "D", "D"}, "", "DDD", false},
		{"LAZY_PERSIST", {"RD", "RD", "RD", "R", "R", "R"}, "", "DDD", false},
		{"PROVIDED", {"RD", "RD", "RD", "R", "R", "R"}, "", "DDD", false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		for (int round = 0; round < 50; round++) {
			struct world w;
			uint8_t have[NODES];
			struct place p = {.block_size = 1,
					  .policy = storage_policy_find(t[i].policy),
					  .copy = t[i].copy,
					  .have = have};
			struct storage *st[NODES];
			uint32_t n;

			for (; t[i].have[p.nhave]; p.nhave++)
				have[p.nhave] =
					t[i].have[p.nhave] == 'S' ? STORAGE_SSD : STORAGE_DISK;
			p.want = 3 - p.nhave;
			world_of(&w, t[i].kinds);
			n = place_choose(&w.dns, &p, st);
			if (strcmp(types_of(st, n), t[i].got) != 0)
				fail_msg("%s, case %zu: %s instead of %s", t[i].policy, i,
					 types_of(st, n), t[i].got);
			datanodes_fini(&w.dns);
		}
}

static void a_replica_that_is_being_forgotten_is_no_holder(void **state)
{
	struct replica rep[2] = {{.state = REPLICA_FINALIZED}, {.state = REPLICA_FINALIZED}};
	const struct blk b = {.rep = rep, .nreps = 2};
	struct place p = {.want = 1};
	struct world w;

	(void)state;
	world_init(&w, 1000);
	rep[0].st = w.dn[0]->storage[0];
	rep[1].st = w.dn[1]->storage[0];
	rep[0].st->sweep = SWEEP_FORGET; /* a disk of a living node has failed */
	place_beside(&p, &b);
	assert_int_equal(p.nholders, 1);
	assert_int_equal(p.nhave, 1);
	assert_ptr_equal(p.exclude[0], w.dn[1]);
	assert_int_equal(p.nexclude, 2);
	place_free(&p);
	rep[0].st->sweep = 0;
	datanodes_fini(&w.dns);
}

/* A data node may write any number as its type. */
static void a_storage_of_an_unknown_type_is_taken_as_a_disk(void **state)
{
	static const unsigned int unknown[] = {
		9, 0, 7, 8, 8 + STORAGE_SSD, 255, 256 + STORAGE_DISK, UINT32_MAX};

	(void)state;
	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		static const char *const kinds[NODES] = {"", "", "", "", "", ""};
		struct place p = {.want = 2, .block_size = 1};
		struct storage *st[2];
		struct world w;

		world_of(&w, kinds);
		for (int k = 0; k < NODES; k++) {
			dn_storage_add(w.dn[k], "DS-D", STORAGE_DISK)->remaining = 1 << 30;
			dn_storage_add(w.dn[k], "DS-D", (enum storage_type)unknown[i]);
		}
		dn_storage_add(w.dn[0], "DS-X", (enum storage_type)unknown[i])->remaining = 1 << 30;
		assert_int_equal(place_choose(&w.dns, &p, st), 2);
		for (int k = 0; k < 2; k++)
			assert_int_equal(st[k]->type, STORAGE_DISK);
		datanodes_fini(&w.dns);
	}
}

/* Of this thread: what other programs do meanwhile does not count. */
static uint64_t cpu_ns(void)
{
	struct timespec t;

	assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Placements of three replicas among so many nodes of 12 disks each: microseconds of one, the best
 * of some rounds. */
static double choose_us(uint32_t nodes, uint32_t racks)
{
	struct place p = {.want = 3, .writer_ip = "10.0.0.7", .block_size = 1};
	struct datanodes d;
	uint64_t best = UINT64_MAX;

	datanodes_init(&d, 1000);
	for (uint32_t i = 0; i < nodes; i++) {
		char uuid[16], ip[16], id[16];
		const struct dn_ident ident = {uuid, ip, "host", "3.4.2", 9866, 1, 2, 0};
		struct dn *dn;

		snprintf(uuid, sizeof(uuid), "dn%u", i);
		snprintf(ip, sizeof(ip), "10.0.%u.%u", i / 250, i % 250);
		assert_int_equal(datanodes_register(&d, &ident, &dn), 0);
		snprintf(dn->rack, sizeof(dn->rack), "/dc/rack%u", i % racks);
		for (int k = 0; k < 12; k++) {
			snprintf(id, sizeof(id), "DS-%d", k);
			dn_storage_add(dn, id, STORAGE_DISK)->remaining = 1ull << 40;
		}
	}
	for (int round = 0; round < 5; round++) {
		const uint64_t start = cpu_ns();
		uint64_t took;

		for (int i = 0; i < 1000; i++) {
			struct storage *st[3];

			assert_int_equal(place_choose(&d, &p, st), 3);
			assert_string_equal(st[0]->dn->ip, p.writer_ip);
			assert_string_not_equal(st[1]->dn->rack, st[0]->dn->rack);
			assert_string_equal(st[2]->dn->rack, st[1]->dn->rack);
		}
		took = cpu_ns() - start;
		best = took < best ? took : best;
	}
	datanodes_fini(&d);
	return (double)best / 1e6;
}

static void many_nodes_cost_little_more_than_few(void **state)
{
	const double few = choose_us(40, 2), many = choose_us(1000, 40);

	(void)state;
	printf("three replicas among 40 nodes in 2 racks: %.2f us; among 1000 in 40: %.2f us\n",
	       few, many);
	assert_true(many < 10 * few); /* a look at each node is some 25 times as much */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_nodes_cost_little_more_than_few),
		cmocka_unit_test(choices_are_distinct_and_the_first_is_local),
		cmocka_unit_test(every_node_gets_its_share),
		cmocka_unit_test(dead_excluded_and_full_nodes_are_left_out),
		cmocka_unit_test(leaving_nodes_are_left_out),
		cmocka_unit_test(promised_room_is_left_alone_while_there_is_other),
		cmocka_unit_test(room_promised_to_files_that_may_stay_empty_refuses_no_writer),
		cmocka_unit_test(stale_nodes_get_a_block_only_when_the_others_are_too_few),
		cmocka_unit_test(when_most_nodes_are_stale_the_others_need_not_bear_it_all),
		cmocka_unit_test(a_hot_file_lies_neither_in_memory_nor_in_the_archive),
		cmocka_unit_test(policies_and_their_fall_backs_are_obeyed),
		cmocka_unit_test(a_replica_that_is_being_forgotten_is_no_holder),
		cmocka_unit_test(a_storage_of_an_unknown_type_is_taken_as_a_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
