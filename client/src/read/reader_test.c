/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a reader gives bytes of the file that was opened, or -ESTALE; never some of one
 * file and some of another. A file that is replaced, deleted, cut or got other blocks is stale; one
 * that is renamed is still the same. */
#include "client/src/read/reader_test_fixture.h"

static void expect_stale(struct reader *r, const struct fake_file *was, const char *words)
{
	struct err err = ERR_INIT;
	int rc = read_on(r, was, 1, &err);

	if (rc != -ESTALE || !strstr(err.text, words) || !strstr(err.text, "/d/f"))
		fail_msg("%d, not -ESTALE with \"%s\": %s", rc, words, err.text);
	reader_free(r);
}

static void a_replaced_file_is_not_read_as_a_mixture(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		const struct fake_file was = file[0];

		make(&file[0], "/d/f", 8, 35);
		expect_stale(r, &was, "replaced");
	}
}

static void a_replaced_file_is_seen_without_inodes(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		const struct fake_file was = file[0];

		knows_ids = false;
		make(&file[0], "/d/f", 8, 37);
		expect_stale(r, &was, "replaced");
	}
}

static void a_deleted_file_is_stale(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		const struct fake_file was = file[0];

		file[0].path = NULL;
		expect_stale(r, &was, "deleted");
	}
}

static void a_truncated_file_is_stale(void **state)
{
	(void)state;
	for (unsigned left = 0; left < 35; left++)
		for_kinds(i)
		{
			struct reader *r = open_file("/d/f");
			const struct fake_file was = file[0];

			file[0].n = left;
			if (left % 2)
				file[0].len[left - 1] -= 7;
			file[0].stamp++;
			expect_stale(r, &was, "truncated");
		}
}

static void a_truncated_file_that_grew_again_is_stale(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		const struct fake_file was = file[0];

		file[0].n = 20;
		add_blocks(&file[0], 40);
		expect_stale(r, &was, "replaced");
	}
}

/* Its blocks are the same, and no shorter. The nodes know, and are asked by the stamp of the open.
 */
static void a_block_that_was_cut_and_filled_again_is_stale(void **state)
{
	(void)state;
	for (int late = 0; late < 2; late++)
		for_kinds(i)
		{
			struct reader *r = open_file("/d/f");
			const struct fake_file was = file[0];
			struct err err = ERR_INIT;
			const unsigned before = asked;
			int rc;

			if (striped) { /* they cannot be cut */
				reader_free(r);
				continue;
			}
			cut_late = late;
			file[0].stamp = 1010;
			cut_stamp = 1005;
			rc = read_on(r, &was, 34, &err);
			assert_int_equal(rc, -ESTALE);
			assert_string_equal(
				err.text,
				"/d/f was truncated and written on while it was read; open it again");
			assert_true(asked - before <= 3); /* nobody is asked once more */
			reader_free(r);
			r = open_file("/d/f");
			assert_int_equal(read_on(r, &was, 0, &err), 0);
			reader_free(r);
		}
}

/* A newer stamp alone is an append, or a recovery: the blocks before the last one are asked for by
 * theirs, it and those behind by the one of the open. */
static void a_block_that_was_appended_to_is_read_on(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		struct err err = ERR_INIT;

		file[0].stamp = 1010;
		add_blocks(&file[0], 2);
		cut_stamp = 1000;
		assert_int_equal(read_on(r, &file[0], 0, &err), 0);
		reader_free(r);
	}
}

static void a_file_with_other_blocks_under_the_same_inode_is_stale(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		const struct fake_file was = file[0];

		make(&file[0], "/d/f", 7, 35);
		expect_stale(r, &was, "replaced");
	}
}

static void replicas_that_are_gone_with_their_file_are_stale(void **state)
{
	(void)state;
	for (unsigned failures = 1; failures <= 3; failures++)
		for_kinds(i)
		{
			struct reader *r;
			struct fake_file was;

			make(&file[0], "/d/f", 7, 3); /* its blocks are all known */
			fs.set.acquire_failures = failures;
			r = open_file("/d/f");
			was = file[0];
			make(&file[0], "/d/f", 8, 3);
			gone_block = was.block[2];
			expect_stale(r, &was, "replaced");
		}
}

static void replicas_that_are_gone_alone_are_an_io_error(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		struct err err = ERR_INIT;

		gone_block = file[0].block[20];
		assert_int_equal(read_on(r, &file[0], 0, &err), -EIO);
		reader_free(r);
	}
}

static void a_renamed_file_is_read_on(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		const struct fake_file was = file[0];

		file[0].path = "/elsewhere";
		make(&file[1], "/d/f", 8, 35);
		expect_same(r, &was, kinds[i].name);
	}
}

static void a_file_without_inode_is_read_on(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		const struct fake_file was = file[0];

		knows_ids = false;
		expect_same(r, &was, kinds[i].name);
		assert_true(asked <= 6); /* and not twice for each stretch */
	}
}

static void a_long_file_behind_a_router_is_read_on(void **state)
{
	(void)state;
	for (unsigned others = 0; others < 61; others += 10)
		for (unsigned i = 0; i < 4; i++) {
			struct reader *r;

			begin_router(i & 1, i & 2, 35, others);
			r = open_file("/d/f");
			expect_same(r, &file[0], "router");
			assert_true(asked <= 6);
		}
}

static void a_path_that_became_a_directory_is_stale(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		const struct fake_file was = file[0];

		file[0].dir = true;
		file[0].id = 9;
		expect_stale(r, &was, "deleted, replaced");
	}
}

static void what_cannot_be_opened_is_told_as_before(void **state)
{
	struct err err = ERR_INIT;
	struct reader *r;

	(void)state;
	begin(false, true);
	assert_int_equal(reader_new(&fs, "/d/g", &r, &err), -ENOENT);
	make(&file[1], "/d", 3, 0);
	file[1].dir = true;
	assert_int_equal(reader_new(&fs, "/d", &r, &err), -EISDIR);
}

/* A snapshot holds the file as it was then; its inode is that of the file as it is now. */
static void a_snapshot_is_not_asked_about_by_inode(void **state)
{
	struct reader *r;

	(void)state;
	begin(false, true);
	make(&file[1], "/d/.snapshot/s/f", 7, 35);
	file[0].id = 8;
	file[1].id = 8;
	r = open_file("/d/.snapshot/s/f");
	expect_same(r, &file[1], "snapshot");
}

static void a_file_with_more_than_64_replicas_is_read(void **state)
{
	(void)state;
	for (unsigned n = 63; n < 512; n = n < 66 ? n + 1 : 2 * n) {
		struct err err = ERR_INIT;
		struct reader *r;
		uint8_t buf;

		begin(false, true);
		copies = n;
		r = open_file("/d/f");
		assert_int_equal(read_on(r, &file[0], 0, &err), 0);
		gone_block = file[0].block[20];
		assert_int_equal(reader_pread(r, &buf, 1, 20 * BLOCK, &err), -EIO);
		gone_rc = -ECONNREFUSED; /* its nodes are out of reach: it may be read later */
		assert_int_equal(reader_pread(r, &buf, 1, 20 * BLOCK, &err), -ETIMEDOUT);
		gone_rc = -EIO;
		reader_free(r);
	}
}

/* ---- registered memory ---- */

static bool registered;

bool __wrap_stream_is_registered(struct dfs *d, const void *p, size_t len);
bool __wrap_stream_is_registered(struct dfs *d, const void *p, size_t len)
{
	(void)d;
	(void)p;
	(void)len;
	return registered;
}

/* Of a file that comes by RDMA. */
static void must_read_by_rdma(struct reader *r, size_t len)
{
	static uint8_t buf[128 << 10];
	struct err err = ERR_INIT;

	r->seq.way = 1 + stream_rdma.counter;
	assert_int_equal(reader_read(r, buf, len, &err), len);
}

static struct reader *must_open_registered(void)
{
	begin(false, true);
	make(&file[0], "/d/f", 7, 1);
	file[0].len[0] = 4u << 20;
	registered = true;
	return open_file("/d/f");
}

static void short_and_long_reads_in_turn_keep_what_was_read_ahead(void **state)
{
	struct reader *r = must_open_registered();

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		must_read_by_rdma(r, 4096);
		must_read_by_rdma(r, 128 << 10);
	}
	assert_int_equal(streams_made, 1);
	must_read_by_rdma(r, 128 << 10); /* two in a row */
	assert_int_equal(streams_made, 2);
	assert_int_equal(stream_len, 128 << 10);
	assert_int_equal(streams, 0);
	registered = false;
	reader_free(r);
}

static void a_short_read_among_long_ones_reads_nothing_ahead(void **state)
{
	struct reader *r = must_open_registered();

	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		must_read_by_rdma(r, 128 << 10);
		assert_int_equal(stream_len, 128 << 10);
		must_read_by_rdma(r, 128 << 10);
		assert_int_equal(stream_len, 128 << 10);
		must_read_by_rdma(r, 4096);
		assert_int_equal(stream_len, 4096);
		assert_int_equal(streams, 0);
	}
	must_read_by_rdma(r, 4096); /* the second one in a row does */
	assert_true(stream_len > 1u << 20);
	registered = false;
	reader_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_replaced_file_is_not_read_as_a_mixture),
		cmocka_unit_test(a_block_that_was_cut_and_filled_again_is_stale),
		cmocka_unit_test(a_block_that_was_appended_to_is_read_on),
		cmocka_unit_test(a_replaced_file_is_seen_without_inodes),
		cmocka_unit_test(a_deleted_file_is_stale),
		cmocka_unit_test(a_truncated_file_is_stale),
		cmocka_unit_test(a_truncated_file_that_grew_again_is_stale),
		cmocka_unit_test(a_file_with_other_blocks_under_the_same_inode_is_stale),
		cmocka_unit_test(replicas_that_are_gone_with_their_file_are_stale),
		cmocka_unit_test(replicas_that_are_gone_alone_are_an_io_error),
		cmocka_unit_test(a_renamed_file_is_read_on),
		cmocka_unit_test(a_file_without_inode_is_read_on),
		cmocka_unit_test(a_long_file_behind_a_router_is_read_on),
		cmocka_unit_test(a_path_that_became_a_directory_is_stale),
		cmocka_unit_test(what_cannot_be_opened_is_told_as_before),
		cmocka_unit_test(a_snapshot_is_not_asked_about_by_inode),
		cmocka_unit_test(a_file_with_more_than_64_replicas_is_read),
		cmocka_unit_test(short_and_long_reads_in_turn_keep_what_was_read_ahead),
		cmocka_unit_test(a_short_read_among_long_ones_reads_nothing_ahead),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
