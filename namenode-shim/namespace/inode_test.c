/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: whatever is done to a file, its blocks are read as they were put; a block that is
 * added to a long file, or an fsync, writes the end of its list only; nothing of the list stays
 * when the file goes; records of older versions, with all blocks in them, are read. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <stdio.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/cursor.h"
#include "common/erasure/policy.h"
#include "namenode-shim/namespace/inode.h"

#include "namenode-shim/test_db.h"

#define ID 20000ull
#define MANY 10000u
#define TAIL_BYTES 2000u /* the end of a list, with the rest of a record */

static struct inode_block nth(uint32_t i, const struct ec_policy *ec)
{
	return (struct inode_block){
		{ec ? INT64_MIN + 16 * (int64_t)i : 1000 + (int64_t)i, 7 + i, 100 + i % 3}, true};
}

static struct inode file(const struct ec_policy *ec)
{
	struct inode n = {.id = ID,
			  .parent = INODE_ROOT,
			  .type = INODE_FILE,
			  .repl = 3,
			  .block_size = 1000,
			  .ec = ec};

	n.name = "f";
	n.owner = n.group = "root";
	n.client = n.client_host = "c";
	return n;
}

static uint64_t rows(struct test_db *d)
{
	MDB_stat st;

	assert_int_equal(mdb_stat(d->t.t, d->db->blocks, &st), 0);
	return st.ms_entries;
}

static size_t record_bytes(struct test_db *d)
{
	const uint64_t key = htobe64(ID);
	MDB_val v;

	assert_int_equal(txn_get(&d->t, d->db->inodes, &key, sizeof(key), &v), 0);
	return v.mv_size;
}

/* addBlock: the one before is committed, and there is one more. */
static void add_one(struct ns *n, const struct ec_policy *ec)
{
	struct inode_block *all;
	struct inode *f;

	assert_int_equal(inode_get_tail(n->t, ID, n->a, &f), 0);
	all = arena_array(n->a, struct inode_block, f->nblocks + 1u);
	memcpy(all, f->blocks, f->nblocks * sizeof(*all));
	if (f->nblocks)
		all[f->nblocks - 1].committed = true;
	all[f->nblocks] = nth(inode_nblocks(f), ec);
	all[f->nblocks].committed = false;
	f->blocks = all;
	f->nblocks++;
	assert_int_equal(inode_put(n->t, f), 0);
}

static void add_block(struct test_db *d, const struct ec_policy *ec)
{
	add_one(test_begin(d, "root"), ec);
	assert_int_equal(test_commit(d), 0);
}

/* All of it is as it was put; whatever was read tells the same sums. */
static void check(struct test_db *d, uint32_t count, const struct ec_policy *ec)
{
	struct ns *n = test_begin(d, "root");
	struct inode *f, *end;

	assert_int_equal(inode_get(n->t, ID, n->a, &f), 0);
	assert_int_equal(inode_get_tail(n->t, ID, n->a, &end), 0);
	assert_int_equal(f->nblocks, count);
	for (uint32_t i = 0; i < count; i++) {
		const struct inode_block want = nth(i, ec);

		assert_int_equal(f->blocks[i].b.id, want.b.id);
		assert_int_equal(f->blocks[i].b.gs, want.b.gs);
		assert_int_equal(f->blocks[i].b.len, want.b.len);
	}
	assert_int_equal(inode_nblocks(end), count);
	assert_int_equal(inode_len(end), inode_len(f));
	assert_int_equal(inode_space(end), inode_space(f));
	assert_true(end->nblocks >= (count < 2 ? count : 2));
	txn_write_abort(&d->t);
}

static void make(struct test_db *d, const struct ec_policy *ec, uint32_t count)
{
	struct inode f = file(ec);
	struct ns *n;

	test_db_init(d);
	n = test_begin(d, "root");
	f.nblocks = count;
	f.blocks = arena_array(n->a, struct inode_block, count + 1u);
	for (uint32_t i = 0; i < count; i++)
		f.blocks[i] = nth(i, ec);
	assert_int_equal(inode_put(n->t, &f), 0);
	assert_int_equal(test_commit(d), 0);
}

static void a_block_added_to_a_long_file_writes_the_end_of_its_list(void **state)
{
	uint64_t had, start;
	struct test_db d;
	struct ns *n;

	(void)state;
	make(&d, NULL, MANY);
	test_begin(&d, "root");
	had = rows(&d);
	txn_write_abort(&d.t);
	for (uint32_t i = 0; i < 100; i++) {
		add_block(&d, NULL);
		test_begin(&d, "root");
		assert_true(record_bytes(&d) < TAIL_BYTES);
		assert_true(rows(&d) <= had + 1); /* one more at most */
		had = rows(&d);
		txn_write_abort(&d.t);
	}
	check(&d, MANY + 100, NULL);
	n = test_begin(&d, "root");
	start = clock_mono_ns();
	for (uint32_t i = 0; i < 1000; i++)
		add_one(n, NULL);
	printf("one more block of a file that has %u: %.1f us\n", MANY,
	       (double)(clock_mono_ns() - start) / 1e6);
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

static void blocks_are_read_as_they_were_put(void **state)
{
	const struct ec_policy *policies[] = {NULL, ec_policy_by_id(1)};
	struct test_db d;

	(void)state;
	for (int p = 0; p < 2; p++) {
		uint32_t count = 0;

		make(&d, policies[p], 0);
		srand(5);
		for (int i = 0; i < 600; i++) {
			const bool whole = rand() % 4 == 0;
			uint32_t drop = rand() % 20 ? 0 : (uint32_t)rand() % 100;
			struct inode *f;
			struct ns *n;

			add_block(&d, policies[p]);
			count++;
			n = test_begin(&d, "root");
			assert_int_equal((whole ? inode_get : inode_get_tail)(n->t, ID, n->a, &f),
					 0);
			drop = drop < f->nblocks ? drop : f->nblocks;
			f->nblocks -= drop;
			count -= drop;
			assert_int_equal(inode_put(n->t, f), 0);
			assert_int_equal(test_commit(&d), 0);
			check(&d, count, policies[p]);
		}
		assert_true(count > 2 * INODE_ROW_BLOCKS);
		test_db_fini(&d);
	}
}

static void nothing_of_a_list_stays_when_its_file_goes(void **state)
{
	struct test_db d;
	struct inode *f;
	struct ns *n;

	(void)state;
	for (int whole = 0; whole < 2; whole++) {
		make(&d, NULL, 1000);
		n = test_begin(&d, "root");
		assert_int_equal(rows(&d), 1000 / INODE_ROW_BLOCKS - 1);
		assert_int_equal((whole ? inode_get : inode_get_tail)(n->t, ID, n->a, &f), 0);
		assert_int_equal(inode_del(n->t, f), 0);
		assert_int_equal(rows(&d), 0);
		txn_write_abort(&d.t);
		n = test_begin(&d, "root");
		assert_int_equal(inode_get(n->t, ID, n->a, &f), 0);
		f->nblocks = 3; /* cut */
		assert_int_equal(inode_put(n->t, f), 0);
		assert_int_equal(rows(&d), 0);
		assert_int_equal(test_commit(&d), 0);
		check(&d, 3, NULL);
		test_db_fini(&d);
	}
}

/* As version 1 has them: all blocks in the record. */
static void put_old(struct test_db *d, uint32_t count)
{
	const uint64_t key = htobe64(ID);
	struct ns *n = test_begin(d, "root");
	const size_t size = 100 + (size_t)count * 25;
	uint8_t *buf = arena_alloc(n->a, size);
	struct wr w = wr_init(buf, size);

	wr_u8(&w, 1);
	wr_u8(&w, INODE_FILE);
	wr_be16(&w, 0644);
	wr_be16(&w, 3);
	wr_be32(&w, 0);
	wr_be64(&w, INODE_ROOT);
	wr_be64(&w, 5);
	wr_be64(&w, 6);
	wr_be64(&w, 1000);
	for (const char *s = "froc1"; *s; s++) {
		wr_be16(&w, 1);
		wr_u8(&w, (uint8_t)*s);
	}
	wr_be32(&w, count);
	for (uint32_t i = 0; i < count; i++) {
		const struct inode_block b = nth(i, NULL);

		wr_be64(&w, (uint64_t)b.b.id);
		wr_be64(&w, b.b.gs);
		wr_be64(&w, b.b.len);
		wr_u8(&w, 1);
	}
	assert_int_equal(txn_put(n->t, d->db->inodes, &key, sizeof(key), buf, (size_t)(w.p - buf)),
			 0);
	assert_int_equal(txn_put(n->t, d->db->open, &key, sizeof(key), "", 0), 0);
	assert_int_equal(test_commit(d), 0);
}

static void a_record_of_an_older_version_is_read_and_goes_on(void **state)
{
	struct test_db d;

	(void)state;
	test_db_init(&d);
	put_old(&d, 1000);
	check(&d, 1000, NULL);
	add_block(&d, NULL);
	check(&d, 1001, NULL);
	test_begin(&d, "root");
	assert_true(record_bytes(&d) < TAIL_BYTES);
	txn_write_abort(&d.t);
	test_db_reopen(&d);
	check(&d, 1001, NULL);
	test_db_fini(&d);
}

static void a_lost_row_is_damage(void **state)
{
	const uint8_t key[12] = {0, 0, 0, 0, 0, 0, 0x4e, 0x20, 0, 0, 0, 1};
	struct test_db d;
	struct inode *f;
	struct ns *n;

	(void)state;
	make(&d, NULL, 200);
	n = test_begin(&d, "root");
	assert_int_equal(txn_put(n->t, d.db->blocks, key, sizeof(key), "short", 5), 0);
	assert_int_equal(inode_get(n->t, ID, n->a, &f), -EBADMSG);
	assert_int_equal(txn_del(n->t, d.db->blocks, key, sizeof(key)), 0);
	assert_int_equal(inode_get(n->t, ID, n->a, &f), -EBADMSG);
	assert_int_equal(inode_get_tail(n->t, ID, n->a, &f), 0);
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_block_added_to_a_long_file_writes_the_end_of_its_list),
		cmocka_unit_test(blocks_are_read_as_they_were_put),
		cmocka_unit_test(nothing_of_a_list_stays_when_its_file_goes),
		cmocka_unit_test(a_record_of_an_older_version_is_read_and_goes_on),
		cmocka_unit_test(a_lost_row_is_damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
