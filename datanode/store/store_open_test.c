/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: which replica a writer may open, and which takes the place of another one
 * (hdfs-wire 5.5), row by row; what a reader may not open; and that files which a crash left are
 * never written to. */
#include <fcntl.h>

#include "common/base/log.h"

#include "datanode/store/store_test_blocks.h"

#define GS 1001
#define LEN 700 /* of 800 bytes that a writer of a replica `AHEAD` has sent so many are acked */

enum kind { DONE, OPEN, AHEAD, RECOVERING };

/* Replica @id of stamp GS. */
static void make(struct fix *f, int64_t id, enum kind kind)
{
	struct replica_info i;
	struct replica_writer *w = make_rbw(f, id, GS, kind == AHEAD ? 800 : LEN);

	if (kind == AHEAD)
		replica_publish(w, 800, 800, LEN, 0);
	if (kind == DONE)
		assert_int_equal(replica_finalize(w, LEN, SYNC_NEVER, NULL, &f->err), 0);
	else
		replica_write_close(w, false);
	if (kind == RECOVERING)
		assert_int_equal(
			replica_init_recovery(f->bp, &(struct block){id, GS, 0}, 1010, &i, &f->err),
			0);
}

static int open_as(struct fix *f, struct write_request *q)
{
	struct replica_writer *w = NULL;
	const int rc = replica_write_open(f->bp, q, &w, &f->err);

	if (w)
		replica_write_close(w, false);
	return rc;
}

static void a_writer_opens_what_its_stage_says(void **state)
{
	static const struct {
		enum kind kind;
		enum write_stage stage;
		uint64_t gs, new_gs, min, max;
		int rc;
	} rows[] = {
		{DONE, STAGE_APPEND, GS, GS + 1, LEN, 0, 0},
		{OPEN, STAGE_APPEND, GS, GS + 1, LEN, 0, -EINVAL}, /* a finalised one only */
		{DONE, STAGE_APPEND, GS, GS + 1, LEN - 1, 0, -EINVAL},
		{DONE, STAGE_APPEND, GS - 1, GS + 1, LEN, 0, -EINVAL}, /* another stamp */
		{DONE, STAGE_APPEND, GS, GS - 1, LEN, 0, -EINVAL},     /* an older new one */
		{OPEN, STAGE_STREAMING_RECOVERY, GS, GS + 1, LEN, LEN, 0},
		{OPEN, STAGE_STREAMING_RECOVERY, GS - 1, GS + 1, LEN, LEN, 0}, /* it was behind */
		{OPEN, STAGE_STREAMING_RECOVERY, GS + 1, GS + 2, LEN, LEN, -EINVAL},
		{OPEN, STAGE_STREAMING_RECOVERY, GS - 2, GS - 1, LEN, LEN, -EINVAL},
		{DONE, STAGE_STREAMING_RECOVERY, GS, GS + 1, LEN, LEN, -EINVAL},
		{OPEN, STAGE_STREAMING_RECOVERY, GS, GS + 1, LEN + 1, 800, -EINVAL}, /* too short */
		{AHEAD, STAGE_STREAMING_RECOVERY, GS, GS + 1, LEN, 800, 0},
		{AHEAD, STAGE_STREAMING_RECOVERY, GS, GS + 1, LEN, 799, -EINVAL}, /* never sent */
		{AHEAD, STAGE_STREAMING_RECOVERY, GS, GS + 1, LEN + 1, 800, -EINVAL},
		{OPEN, STAGE_APPEND_RECOVERY, GS, GS + 1, LEN, 0, 0},
		{DONE, STAGE_APPEND_RECOVERY, GS, GS + 1, LEN, 0, 0},
		{AHEAD, STAGE_APPEND_RECOVERY, GS, GS + 1, 800, 0, -EINVAL}, /* not all acked */
		{OPEN, STAGE_CLOSE_RECOVERY, GS, GS + 1, LEN, 0, 0},
		{AHEAD, STAGE_CLOSE_RECOVERY, GS, GS + 1, 800, 0, -EINVAL},
	};
	struct fix *f = *state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct write_request q = create_request(10 + (int64_t)i, rows[i].gs);

		make(f, q.block.id, rows[i].kind);
		q.stage = rows[i].stage;
		q.new_gs = rows[i].new_gs;
		q.min_bytes = rows[i].min;
		q.max_bytes = rows[i].max;
		if (open_as(f, &q) != rows[i].rc)
			fail_msg("row %zu: %s", i, f->err.text);
	}
}

static void a_new_replica_takes_the_place_of_an_older_unfinished_one(void **state)
{
	static const struct {
		enum kind kind;
		enum write_stage stage;
		bool from_client;
		uint64_t gs; /* of the new one */
		int rc;
	} rows[] = {
		{OPEN, STAGE_CREATE, true, GS + 1, 0},
		{OPEN, STAGE_CREATE, true, GS, -EEXIST},
		{DONE, STAGE_CREATE, true, GS + 1, -EEXIST},
		{OPEN, STAGE_CREATE, false, GS + 1, 0}, /* a copy */
		{OPEN, STAGE_CREATE, false, GS, 0},     /* its writer failed here */
		{AHEAD, STAGE_CREATE, false, GS - 1, -EEXIST},
		{DONE, STAGE_CREATE, false, GS + 1, -EEXIST},
		{DONE, STAGE_TRANSFER_RBW, false, GS + 1, 0}, /* which repairs a pipeline */
		{DONE, STAGE_TRANSFER_RBW, false, GS, -EEXIST},
		{OPEN, STAGE_TRANSFER_FINALIZED, false, GS, -EEXIST},
		{RECOVERING, STAGE_CREATE, true, GS + 1, -EEXIST},
		{RECOVERING, STAGE_TRANSFER_RBW, false, GS + 1, -EEXIST},
	};
	struct fix *f = *state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct write_request q = create_request(10 + (int64_t)i, rows[i].gs);

		make(f, q.block.id, rows[i].kind);
		q.stage = rows[i].stage;
		q.from_client = rows[i].from_client;
		if (q.from_client)
			q.new_gs = rows[i].gs;
		if (open_as(f, &q) != rows[i].rc)
			fail_msg("row %zu: %s", i, f->err.text);
	}
}

static void a_copy_does_not_take_the_place_of_what_is_written(void **state)
{
	struct write_request q = create_request(10, GS);
	struct fix *f = *state;
	struct replica_writer *w = make_rbw(f, 10, GS, LEN);

	q.from_client = false;
	assert_int_equal(open_as(f, &q), -EEXIST);
	replica_write_close(w, false);
	assert_int_equal(open_as(f, &q), 0);
}

static void a_chunk_size_has_bounds(void **state)
{
	static const struct {
		uint32_t bpc;
		int rc;
	} rows[] = {{0, -EINVAL}, {1, 0}, {META_BPC_MAX, 0}, {META_BPC_MAX + 1, -EINVAL}};
	struct fix *f = *state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct write_request q = create_request(10 + (int64_t)i, GS);

		q.bytes_per_crc = rows[i].bpc;
		assert_int_equal(open_as(f, &q), rows[i].rc);
	}
}

static void path_in(const struct fix *f, const char *name, char path[300])
{
	(void)snprintf(path, 300, "%s/current/" POOL "/current/%s", f->vol[0], name);
}

/* A byte of the last chunk, or of its CRC. */
static void a_last_chunk_that_fails_its_crc_is_not_appended_to(void **state)
{
	static const struct {
		const char *file;
		off_t at;
	} rows[] = {{"finalized/subdir0/subdir0/blk_10", 600},
		    {"finalized/subdir0/subdir0/blk_11_1001.meta", META_HEADER_LEN + 4}};
	struct fix *f = *state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct write_request q = create_request(10 + (int64_t)i, GS);
		char path[300];
		int fd;

		make(f, q.block.id, DONE);
		path_in(f, rows[i].file, path);
		fd = open(path, O_WRONLY);
		assert_int_equal(pwrite(fd, "!", 1, rows[i].at), 1);
		(void)close(fd);
		q.stage = STAGE_APPEND;
		q.new_gs = GS + 1;
		q.min_bytes = LEN;
		assert_int_equal(open_as(f, &q), -EBADMSG);
	}
}

/* As a Java DataNode makes it, which breaks the link before it appends. */
static void what_a_crash_left_is_not_written_to(void **state)
{
	struct fix *f = *state;
	char from[300], to[300];

	make(f, 10, DONE);
	path_in(f, "finalized/subdir0/subdir0/blk_10", from);
	path_in(f, "rbw/blk_11", to);
	assert_int_equal(link(from, to), 0);
	make_finalized(f, 11, GS, 2 * LEN);
	assert_readable(f, 10, GS, LEN);
	assert_readable(f, 11, GS, 2 * LEN);
}

/* ---- readers ---- */

static int read_of(struct fix *f, int64_t id)
{
	struct replica_reader *r = NULL;
	const int rc = replica_read_open(f->bp, &(struct block){id, BLOCK_GS_ANY, 0}, &r, &f->err);

	if (!rc)
		replica_read_close(r);
	return rc;
}

/* Of whole chunks, or with a CRC of its end to be held. */
static void what_waits_for_its_recovery_is_not_read(void **state)
{
	static const uint64_t len[] = {1024, LEN};
	struct fix *f = *state;

	for (int i = 0; i < 2; i++) {
		replica_write_close(make_rbw(f, 10 + i, GS, len[i]), false);
		assert_int_equal(read_of(f, 10 + i), 0);
	}
	fix_reopen(f);
	for (int i = 0; i < 2; i++) {
		assert_state(f, 10 + i, REPLICA_RWR, GS, len[i]);
		assert_int_equal(read_of(f, 10 + i), -ENOENT);
	}
}

/* The deletion before it waits for a writer, and so its files are there still. */
static void what_is_to_be_deleted_is_not_read(void **state)
{
	struct fix *f = *state;
	struct replica_writer *w = make_rbw(f, 10, GS, LEN);

	make(f, 11, DONE);
	assert_int_equal(read_of(f, 11), 0);
	assert_int_equal(replica_invalidate(f->bp, &(struct block){10, GS, 0}, true), 0);
	assert_int_equal(replica_invalidate(f->bp, &(struct block){11, GS, 0}, true), 0);
	assert_int_equal(read_of(f, 11), -ENOENT);
	replica_write_close(w, false);
	fix_wait_gone(f, 10);
	fix_wait_gone(f, 11);
}

static void a_short_meta_file_is_damage(void **state)
{
	struct fix *f = *state;
	char path[300];

	make(f, 10, DONE);
	path_in(f, "finalized/subdir0/subdir0/blk_10_1001.meta", path);
	assert_int_equal(truncate(path, META_HEADER_LEN + 7), 0);
	assert_int_equal(read_of(f, 10), -EBADMSG);
	assert_int_equal(f->seen.bad, 1);
}

/* Of whole chunks: no CRC of the end tells it. */
static void who_reads_while_it_is_recovered_looks_again(void **state)
{
	struct fix *f = *state;
	struct block b = {10, GS, 1024};
	char uuid[BLOCK_UUID_MAX];
	struct replica_reader *r;
	struct replica_info i;

	replica_write_close(make_rbw(f, 10, GS, 1024), false);
	assert_int_equal(replica_read_open(f->bp, &b, &r, &f->err), 0);
	assert_int_equal(replica_read_refresh(r, &f->err), 0);
	assert_int_equal(replica_init_recovery(f->bp, &b, 1010, &i, &f->err), 0);
	assert_int_equal(replica_update_recovery(f->bp, &b, 1010, 512, 0, uuid, &f->err), 0);
	assert_int_equal(replica_read_refresh(r, &f->err), -ESTALE);
	replica_read_close(r);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_writer_opens_what_its_stage_says),
		T(a_new_replica_takes_the_place_of_an_older_unfinished_one),
		T(a_copy_does_not_take_the_place_of_what_is_written),
		T(a_chunk_size_has_bounds),
		T(a_last_chunk_that_fails_its_crc_is_not_appended_to),
		T(what_a_crash_left_is_not_written_to),
		T(what_waits_for_its_recovery_is_not_read),
		T(what_is_to_be_deleted_is_not_read),
		T(a_short_meta_file_is_damage),
		T(who_reads_while_it_is_recovered_looks_again),
	};

	log_init("store_open_test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
