/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a reader follows a file that grows, by its writer, an append or a concat, and a
 * recovery of its last block; it is -ESTALE when the file is replaced or its last block is another
 * one. */
#include "client/src/read/block_locations.h"
#include "client/src/read/reader_test_fixture.h"

#include <sys/mman.h>
#include <unistd.h>

#include "common/base/log.h"

/* @blocks of ours at the open, and one more soon. */
static void read_growing(unsigned blocks)
{
	struct err err = ERR_INIT;
	struct reader *r;

	file[0].open = true;
	file[0].visible = 40;
	if (blocks)
		file[0].len[blocks - 1] = 40;
	r = open_file("/d/f");
	assert_int_equal(read_on(r, &file[0], blocks / 2, &err), 0);
	if (blocks)
		file[0].len[blocks - 1] = BLOCK;
	add_blocks(&file[0], 1);
	file[0].len[blocks] = 40;
	for (int i = 0; i < 2; i++) {
		int rc = read_on(r, &file[0], 0, &err);

		if (rc < 0)
			fail_msg("%u blocks: %d %s", blocks, rc, err.text);
	}
	assert_int_equal(reader_length(r), blocks * BLOCK + 40);
	reader_free(r);
}

static void a_growing_file_behind_a_router_is_read_on(void **state)
{
	(void)state;
	for (unsigned blocks = 0; blocks < 40; blocks++)
		for (unsigned others = 0; others < 61; others += 10)
			for (int same_ids = 0; same_ids < 2; same_ids++) {
				begin_router(false, same_ids, blocks, others);
				read_growing(blocks);
			}
}

static void a_growing_file_behind_a_router_that_is_replaced_is_stale(void **state)
{
	(void)state;
	for (unsigned blocks = 1; blocks < 40; blocks += 6) {
		struct err err = ERR_INIT;
		struct reader *r;
		uint8_t buf[BLOCK];

		begin_router(false, false, blocks, 35);
		file[0].len[blocks - 1] = 40;
		file[0].open = true;
		file[0].visible = 40;
		r = open_file("/d/f");
		assert_int_equal(reader_pread(r, buf, 40, 0, &err), 40);
		make(&file[0], "/d/f", 8, blocks + 1);
		assert_int_equal(reader_pread(r, buf, 40, blocks * BLOCK, &err), -ESTALE);
		assert_non_null(strstr(err.text, "replaced"));
		reader_free(r);
	}
}

/* Appended to, or the target of a concat, by less than a stretch and by many. */
static void a_file_that_grew_is_read_on(void **state)
{
	(void)state;
	for (unsigned more = 0; more < 40; more += 3)
		for_kinds(i)
		{
			struct reader *r;

			if (!kinds[i].ec)
				/* its last block is filled up, and gets another stamp */
				file[0].len[34] = 31;
			r = open_file("/d/f");
			file[0].len[34] = block_len();
			file[0].stamp += 2;
			add_blocks(&file[0], more);
			/* the next stretch tells how long it is */
			expect_same(r, &file[0], kinds[i].name);
		}
}

static void a_file_that_is_appended_to_is_read_on(void **state)
{
	(void)state;
	for (unsigned visible = 0; visible <= BLOCK; visible += 50) {
		struct reader *r;
		struct err err = ERR_INIT;
		uint8_t buf[BLOCK];

		begin(false, visible > 0);
		file[0].len[34] = 50;
		r = open_file("/d/f");
		/* its last block has a new stamp, and one of its nodes knows nothing of it yet */
		file[0].open = true;
		file[0].stamp++;
		file[0].visible = visible;
		assert_int_equal(reader_pread(r, buf, 50, 34 * BLOCK, &err), 50);
		assert_int_equal(reader_length(r), 34 * BLOCK + (visible ? visible : 50));
		reader_free(r);
	}
}

static void a_growing_file_that_is_replaced_is_stale(void **state)
{
	(void)state;
	for (int ours = 0; ours < 2; ours++) {
		struct err err = ERR_INIT;
		struct reader *r;
		uint8_t buf[BLOCK];

		begin(false, ours);
		make(&file[0], "/d/f", 7, 1); /* nothing of it is complete */
		file[0].open = true;
		file[0].visible = 40;
		r = open_file("/d/f");
		assert_int_equal(reader_read(r, buf, 40, &err), 40);
		make(&file[0], "/d/f", 8, 2);
		assert_int_equal(reader_read(r, buf, 40, &err), -ESTALE);
		assert_non_null(strstr(err.text, "replaced"));
		reader_free(r);
	}
}

/* The last block is being written, and has so many parts; a striped one, rows. */
static size_t be_written(struct fake_file *f, unsigned parts)
{
	f->open = true;
	return f->len[f->n - 1] = f->visible = parts * (striped ? K * CELL : 20);
}

static void begin_another_block(struct fake_file *f)
{
	f->n--;
	add_blocks(f, 1);
}

static uint8_t two[2 * K * CELL]; /* parts */

/* What is there is read to its end. */
static struct reader *read_growing_to_its_end(unsigned blocks)
{
	struct err err = ERR_INIT;
	struct reader *r;
	size_t len;

	make(&file[0], "/d/f", 7, blocks);
	len = be_written(&file[0], 2);
	r = open_file("/d/f");
	reader_seek(r, (blocks - 1) * block_len());
	assert_int_equal(reader_read(r, two, sizeof(two), &err), len);
	return r;
}

/* Cut to nothing or to whole blocks, and written on: the inode and the complete blocks are the
 * same, the last one is another. */
static void a_growing_file_that_is_cut_and_written_on_is_stale(void **state)
{
	(void)state;
	for (unsigned blocks = 1; blocks < 40; blocks += 12)
		/* less than was read, as much, more */
		for (unsigned parts = 1; parts <= 3; parts++)
			for (int growing = 0; growing < 2; growing++)
				for_kinds(i)
				{
					struct reader *r = read_growing_to_its_end(blocks);
					struct err err = ERR_INIT;
					int rc;

					begin_another_block(&file[0]);
					be_written(&file[0], parts);
					file[0].open = growing;
					rc = (int)reader_read(r, two, sizeof(two), &err);
					if (rc != -ESTALE || !strstr(err.text, "replaced"))
						fail_msg("%s, %u blocks, %u parts: %d %s",
							 kinds[i].name, blocks, parts, rc,
							 err.text);
					reader_free(r);
				}
}

/* It may have been recovered to nothing. What is written there later is something else. */
static void a_growing_file_that_lost_its_last_block_ends_there(void **state)
{
	(void)state;
	for (unsigned blocks = 1; blocks < 40; blocks += 12)
		for_kinds(i)
		{
			struct reader *r = read_growing_to_its_end(blocks);
			struct err err = ERR_INIT;

			file[0].n--;
			file[0].open = false;
			assert_int_equal(reader_read(r, two, sizeof(two), &err), 0);
			assert_int_equal(reader_length(r), (blocks - 1) * block_len());
			add_blocks(&file[0], 1);
			assert_int_equal(reader_refresh(r, &err), -ESTALE);
			reader_free(r);
		}
}

/* Its writer gives up a block of which nothing was acknowledged, and begins another one. */
static void a_growing_file_whose_writer_begins_its_block_again_is_read_on(void **state)
{
	(void)state;
	for (unsigned blocks = 1; blocks < 40; blocks += 12)
		for_kinds(i)
		{
			struct err err = ERR_INIT;
			struct reader *r;
			size_t len;

			/* without an inode it could be any other file */
			if (blocks == 1 && !kinds[i].ours)
				continue;
			make(&file[0], "/d/f", 7, blocks);
			be_written(&file[0], 2);
			r = open_file("/d/f");
			gone_block = file[0].block[blocks - 1];
			begin_another_block(&file[0]);
			len = be_written(&file[0], 1);
			reader_seek(r, (blocks - 1) * block_len());
			assert_int_equal(reader_read(r, two, len, &err), len);
			expect_bytes(&file[0], blocks - 1, 0, two, len);
			be_written(&file[0], 2);
			assert_int_equal(reader_read(r, two, sizeof(two), &err), len);
			reader_free(r);
		}
}

static void the_end_of_a_growing_file_may_recede(void **state)
{
	struct err err = ERR_INIT;
	struct reader *r;
	uint8_t buf[BLOCK];

	(void)state;
	begin(false, true);
	make(&file[0], "/d/f", 7, 3);
	file[0].open = true;
	file[0].visible = 40;
	r = open_file("/d/f");
	assert_int_equal(reader_pread(r, buf, 10, 2 * BLOCK + 5, &err), 10);
	file[0].open = false; /* its writer died: the recovery leaves less than one node had */
	file[0].len[2] = 20;
	assert_int_equal(reader_pread(r, buf, 90, 2 * BLOCK + 5, &err), 15);
	assert_int_equal(reader_length(r), 2 * BLOCK + 20);
	reader_free(r);
}

/* The node that told the length dies, and another one has acknowledged less until now. */
static void a_growing_file_whose_node_dies_is_not_stale(void **state)
{
	(void)state;
	for (unsigned naps = 0; naps < 8; naps += 4) {
		struct err err = ERR_INIT;
		struct reader *r;
		uint8_t buf[BLOCK];
		ssize_t n;

		begin(false, naps > 0);
		make(&file[0], "/d/f", 7, 3);
		file[0].open = true;
		file[0].len[2] = 10; /* what the NameNode believes */
		file[0].visible = 40;
		r = open_file("/d/f");
		gone_block = file[0].block[2];
		file[0].visible = 20;
		naps_until_all_is_well = naps;
		n = reader_pread(r, buf, 10, 2 * BLOCK + 25, &err);
		assert_int_equal(n, naps ? 10 : -EIO);
		assert_int_equal(strstr(err.text, "is being written") != NULL, naps == 0);
		if (naps)
			expect_bytes(&file[0], 2, 25, buf, 10);
		reader_free(r);
	}
	gone_block = 0;
}

/* The length of a file of one group that has two rows; in @text what was logged meanwhile. */
static uint64_t length_with_silent_units(unsigned silent, char *text, size_t size)
{
	const int kept = dup(STDERR_FILENO), log = memfd_create("log", 0);
	struct reader *r;
	uint64_t len;
	ssize_t n;

	begin(true, true);
	make(&file[0], "/d/f", 7, 1);
	be_written(&file[0], 2);
	silent_units = silent;
	log_init("reader_test", LOG_WARN);
	assert_true(dup2(log, STDERR_FILENO) >= 0);
	r = open_file("/d/f");
	assert_true(dup2(kept, STDERR_FILENO) >= 0);
	n = pread(log, text, size - 1, 0);
	assert_true(n >= 0);
	text[n] = '\0';
	close(kept);
	close(log);
	len = reader_length(r);
	reader_free(r);
	return len;
}

/* Less a row while the last data unit, which is written last, tells nothing. With less than k units
 * nothing is known, and the log says so. */
static void a_growing_group_is_as_long_as_any_k_units_tell(void **state)
{
	(void)state;
	for (unsigned silent = 0; silent < 1u << 5; silent++) {
		const int count = __builtin_popcount(silent);
		char text[2048], told[64];
		const uint64_t len = length_with_silent_units(silent, text, sizeof(text));

		snprintf(told, sizeof(told), " units=%d silent=%d ", 5 - count, count);
		assert_int_equal(len, count > 2               ? 0
				      : silent >> (K - 1) & 1 ? K * CELL
							      : 2 * K * CELL);
		if (count > 2 && !(strstr(text, "op=group_length ") && strstr(text, told)))
			fail_msg("%d silent units: \"%s\"", count, text);
		if (count <= 2)
			assert_string_equal(text, "");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_growing_file_behind_a_router_is_read_on),
		cmocka_unit_test(a_growing_file_behind_a_router_that_is_replaced_is_stale),
		cmocka_unit_test(a_file_that_grew_is_read_on),
		cmocka_unit_test(a_file_that_is_appended_to_is_read_on),
		cmocka_unit_test(a_growing_file_that_is_replaced_is_stale),
		cmocka_unit_test(a_growing_file_that_is_cut_and_written_on_is_stale),
		cmocka_unit_test(a_growing_file_that_lost_its_last_block_ends_there),
		cmocka_unit_test(a_growing_file_whose_writer_begins_its_block_again_is_read_on),
		cmocka_unit_test(the_end_of_a_growing_file_may_recede),
		cmocka_unit_test(a_growing_file_whose_node_dies_is_not_stale),
		cmocka_unit_test(a_growing_group_is_as_long_as_any_k_units_tell),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
