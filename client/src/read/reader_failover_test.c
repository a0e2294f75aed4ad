/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold when replicas fail: the next one is read, the one that failed is asked last for a
 * while, only a wrong checksum is reported as damage; fresh locations are asked for when all have
 * failed, and that comes to an end, with each kind of failure. */
#include "client/src/read/reader_test_fixture.h"

#define NODES 3

static Hd__DatanodeInfoProto nodes[NODES];
static Hd__DatanodeIDProto ids[NODES];
static char names[NODES][16];

/* A file of one block with three replicas on nodes of their own. */
static struct reader *begin_three(void)
{
	begin(false, true);
	for (int i = 0; i < NODES; i++) {
		hd__datanode_info_proto__init(&nodes[i]);
		hd__datanode_idproto__init(&ids[i]);
		snprintf(names[i], sizeof(names[i]), "10.0.0.%d", i);
		ids[i].ipaddr = names[i];
		ids[i].hostname = ids[i].datanodeuuid = (char *)"";
		nodes[i].id = &ids[i];
		locs[i] = &nodes[i];
	}
	copies = NODES;
	make(&file[0], "/d/f", 7, 1);
	return open_file("/d/f");
}

static ssize_t read_all(struct reader *r, struct err *err)
{
	uint8_t buf[BLOCK];
	ssize_t n = reader_pread(r, buf, BLOCK, 0, err);

	if (n > 0)
		expect_bytes(&file[0], 0, 0, buf, (size_t)n);
	return n;
}

static void the_next_replica_is_read_and_the_failed_one_comes_last(void **state)
{
	struct err err = ERR_INIT;
	struct reader *r = begin_three();

	(void)state;
	node_rc[0] = -ECONNREFUSED;
	assert_int_equal(read_all(r, &err), BLOCK);
	assert_int_equal(read_all(r, &err), BLOCK);
	assert_int_equal(node_asked[0], 1); /* the second read did not ask it */
	assert_int_equal(node_asked[1], 2);
	node_rc[1] = node_rc[2] = -ECONNREFUSED; /* last, and still asked */
	node_rc[0] = 0;
	assert_int_equal(read_all(r, &err), BLOCK);
	assert_int_equal(node_asked[0], 2);
	node_rc[1] = node_rc[2] = 0;
	clock_ns += 61 * NS_PER_S; /* it is as good as any again */
	assert_int_equal(read_all(r, &err), BLOCK);
	assert_int_equal(node_asked[0], 3);
	assert_int_equal(reported, 0);
	reader_free(r);
}

static void only_damage_is_reported(void **state)
{
	static const int kinds_of_failure[] = {-EBADMSG, -EIO, -ETIMEDOUT, -ECONNRESET, -EPROTO};

	(void)state;
	for (size_t i = 0; i < sizeof(kinds_of_failure) / sizeof(int); i++) {
		struct err err = ERR_INIT;
		struct reader *r = begin_three();

		byte_rc[0] = kinds_of_failure[i];
		assert_int_equal(read_all(r, &err), BLOCK);
		assert_int_equal(reported, kinds_of_failure[i] == -EBADMSG);
		if (reported)
			assert_string_equal(reported_node, "10.0.0.0");
		assert_int_equal(node_asked[0], 1);
		assert_int_equal(node_asked[1], 1);
		reader_free(r);
	}
}

static void a_read_of_failures_ends(void **state)
{
	static const struct {
		int open, read, want;
	} bad[] = {
		{-EIO, 0, -EIO},
		{-ETIMEDOUT, 0, -ETIMEDOUT},
		{-EACCES, 0, -EIO}, /* a token that never fits */
		{0, -EIO, -EIO},
		{0, -EBADMSG, -EBADMSG},
		{0, -ECONNRESET, -EIO},
		{0, -EACCES, -EIO},
		{-ECONNREFUSED, 0, -ETIMEDOUT},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct err err = ERR_INIT;
		struct reader *r = begin_three();

		for (int n = 0; n < NODES; n++) {
			node_rc[n] = bad[i].open;
			byte_rc[n] = bad[i].read;
		}
		assert_int_equal(read_all(r, &err), bad[i].want);
		for (int n = 0; n < NODES; n++)
			assert_in_range(node_asked[n], 1, 4 * fs.set.acquire_failures);
		/* the first locations, fresh ones in each round, and one more for a token */
		assert_in_range(asked, fs.set.acquire_failures, fs.set.acquire_failures + 3);
		reader_free(r);
	}
}

/* With fresh locations come fresh tokens. */
static void a_token_that_has_expired_is_renewed(void **state)
{
	struct err err = ERR_INIT;
	struct reader *r = begin_three();
	unsigned before;

	(void)state;
	assert_int_equal(read_all(r, &err), BLOCK);
	before = asked;
	node_rc[0] = -EACCES; /* this node has the new key, and will not take the old one */
	assert_int_equal(read_all(r, &err), BLOCK);
	assert_int_equal(asked, before + 1);
	/* the same replica is asked once more with the new one, before it counts as failed */
	assert_int_equal(node_asked[0], 3);
	assert_int_equal(node_asked[1], 1);
	reader_free(r);
}

static void all_is_well_again_after_a_while(void **state)
{
	struct err err = ERR_INIT;
	struct reader *r = begin_three();
	unsigned before;

	(void)state;
	before = asked;
	gone_block = file[0].block[0];
	gone_rc = -EIO;
	naps_until_all_is_well = 1;
	assert_int_equal(read_all(r, &err), BLOCK);
	assert_true(asked > before); /* by fresh locations */
	reader_free(r);
}

static void a_read_ends_at_the_end(void **state)
{
	struct err err = ERR_INIT;
	uint8_t buf[3 * BLOCK];
	struct reader *r = begin_three();

	(void)state;
	assert_int_equal(reader_pread(r, buf, sizeof(buf), 10, &err), BLOCK - 10);
	assert_int_equal(reader_pread(r, buf, sizeof(buf), BLOCK, &err), 0);
	assert_int_equal(reader_pread(r, buf, sizeof(buf), BLOCK + 1, &err), 0);
	assert_int_equal(reader_pread(r, buf, 1, (uint64_t)INT64_MAX + 1, &err), -EINVAL);
	assert_int_equal(reader_read(r, buf, 10, &err), 10);
	reader_seek(r, 50); /* a read after a seek reads there */
	assert_int_equal(reader_read(r, buf, 10, &err), 10);
	expect_bytes(&file[0], 0, 50, buf, 10);
	reader_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_next_replica_is_read_and_the_failed_one_comes_last),
		cmocka_unit_test(only_damage_is_reported),
		cmocka_unit_test(a_read_of_failures_ends),
		cmocka_unit_test(a_token_that_has_expired_is_renewed),
		cmocka_unit_test(all_is_well_again_after_a_while),
		cmocka_unit_test(a_read_ends_at_the_end),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
