/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: the layout is Hadoop's, and what was written reads back or is reported as
 * damaged. Appends and the recovery of pipelines: store_append_test.c; more than one directory:
 * store_volumes_test.c. What a crash or a recovery leaves: store_crash_test.c. */
#include <fcntl.h>

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "datanode/store/properties.h"

#include "datanode/store/store_test_blocks.h"

static void a_properties_file_is_read_with_java_escapes(void **state)
{
	char text[] = "#comment\n! too\n  key = v\\:a\\=l \nuni=\\u0041\\u00e9\nlong=a\\\n   b\n"
		      "clusterID=CID\\:1\r\nempty=\nbare\n";
	struct props p;

	(void)state;
	assert_int_equal(props_parse(text, &p), 0);
	assert_string_equal(props_get(&p, "key"), "v:a=l ");
	assert_string_equal(props_get(&p, "uni"), "A\xc3\xa9");
	assert_string_equal(props_get(&p, "long"), "ab");
	assert_string_equal(props_get(&p, "clusterID"), "CID:1");
	assert_string_equal(props_get(&p, "empty"), "");
	assert_string_equal(props_get(&p, "bare"), "");
	assert_null(props_get(&p, "none"));
}

static void a_properties_file_that_is_written_reads_back(void **state)
{
	struct fix *f = *state;
	struct prop list[] = {{"a", "BP-1:=#!\\ x"}, {"b", " lead\nline"}};
	int fd = open(f->dir, O_RDONLY | O_DIRECTORY);
	struct props p;

	assert_int_equal(props_write(fd, "T", list, 2), 0);
	assert_int_equal(props_read(fd, "T", &p), 0);
	assert_string_equal(props_get(&p, "a"), list[0].value);
	assert_string_equal(props_get(&p, "b"), list[1].value);
	props_fini(&p);
	close(fd);
}

/* ---- start ---- */

static void a_second_store_on_the_directory_is_told_who_has_it(void **state)
{
	struct fix *f = *state, g = *f;

	g.s = NULL;
	assert_int_equal(fix_open(&g), -EBUSY);
	assert_int_equal(fix_open(&g), -EBUSY); /* the lock file is still there */
	assert_non_null(strstr(g.err.text, "in use by"));
	assert_non_null(strstr(g.err.text, f->vol[0]));
}

static void a_directory_of_another_cluster_is_refused_with_both_ids(void **state)
{
	struct fix *f = *state;
	struct store_namespace other = NS;
	struct block_pool *bp;

	(void)snprintf(other.cluster_id, sizeof(other.cluster_id), "CID-other");
	(void)snprintf(other.pool_id, sizeof(other.pool_id), "BP-2-127.0.0.1-2");
	assert_int_equal(store_attach(f->s, &other, &bp, &f->err), -EINVAL);
	assert_non_null(strstr(f->err.text, "CID-test"));
	assert_non_null(strstr(f->err.text, "CID-other"));
}

static void the_identity_survives_a_restart(void **state)
{
	struct fix *f = *state;
	struct storage_info a, b;
	char uuid[64];

	(void)snprintf(uuid, sizeof(uuid), "%s", store_datanode_uuid(f->s));
	store_volume_info(f->s, 0, f->bp, &a);
	fix_reopen(f);
	store_volume_info(f->s, 0, f->bp, &b);
	assert_string_equal(uuid, store_datanode_uuid(f->s));
	assert_string_equal(a.uuid, b.uuid);
	assert_true(b.capacity > 0 && b.remaining > 0);
}

/* ---- write and read ---- */

static void a_finalized_block_is_where_hadoop_puts_it_and_reads_back(void **state)
{
	struct fix *f = *state;
	int64_t id = 1073741825 + (3 << 16) + (5 << 8);
	char path[512];
	struct stat st;

	make_finalized(f, id, 1001, 1000);
	assert_int_equal(f->seen.received, 1);
	assert_int_equal(f->seen.receiving, 1);
	(void)snprintf(path, sizeof(path),
		       "%s/current/%s/current/finalized/subdir3/subdir5/blk_%" PRId64, f->vol[0],
		       NS.pool_id, id);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 1000);
	assert_true(st.st_blocks * 512 <= 4096); /* no preallocation is left */
	(void)snprintf(path, sizeof(path),
		       "%s/current/%s/current/finalized/subdir3/subdir5/blk_%" PRId64 "_1001.meta",
		       f->vol[0], NS.pool_id, id);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 7 + 2 * 4);
	assert_readable(f, id, 1001, 1000);
	fix_reopen(f);
	assert_readable(f, id, 1001, 1000);
}

static void sizes_around_a_chunk_survive_a_restart(void **state)
{
	static const uint64_t sizes[] = {0, 1, 511, 512, 513, 65535, 65536, 65537};
	struct fix *f = *state;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		make_finalized(f, 100 + (int64_t)i, 1001, sizes[i]);
	make_finalized(f, -9223372036854775664, 1002, 700);
	fix_reopen(f);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		assert_readable(f, 100 + (int64_t)i, 1001, sizes[i]);
	assert_readable(f, -9223372036854775664, 1002, 700);
}

static void padding_of_an_aligned_write_is_cut_at_finalize(void **state)
{
	struct fix *f = *state;
	struct replica_writer *w = make_rbw(f, 5, 1001, 1000);

	assert_int_equal(ftruncate(w->fd, 4096), 0);
	assert_int_equal(replica_finalize(w, 1000, SYNC_NOW, NULL, &f->err), 0);
	assert_readable(f, 5, 1001, 1000);
}

static void a_block_shorter_than_claimed_is_not_finalized(void **state)
{
	struct fix *f = *state;
	struct replica_writer *w = make_rbw(f, 5, 1001, 1000);

	assert_int_equal(replica_finalize(w, 5000, SYNC_NEVER, NULL, &f->err), -EINVAL);
	assert_state(f, 5, REPLICA_RBW, 1001, 1000);
	assert_int_equal(f->seen.received, 0);
}

static void set_lengths(const struct replica_writer *w, off_t data, off_t meta)
{
	assert_int_equal(ftruncate(w->fd, data), 0);
	assert_int_equal(ftruncate(w->fd_meta, META_HEADER_LEN + meta), 0);
}

/* Of 1000 bytes, which have two CRCs. */
static void files_have_the_lengths_that_the_block_gives(void **state)
{
	static const struct {
		off_t data, meta;
		int rc;
	} rows[] = {
		{1000, 8, 0},       {999, 8, -EINVAL}, {1000, 7, -EINVAL},
		{1000, 4, -EINVAL}, {1000, 4096, 0},   {4096, 8, 0},
	};
	struct fix *f = *state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct block b = {10 + (int64_t)i, 1001, 0};
		struct replica_writer *w = make_rbw(f, b.id, 1001, 1000);
		struct replica_reader *r;
		struct stat st;

		set_lengths(w, rows[i].data, rows[i].meta);
		assert_int_equal(replica_finalize(w, 1000, SYNC_NEVER, NULL, &f->err), rows[i].rc);
		if (rows[i].rc)
			continue;
		assert_int_equal(replica_read_open(f->bp, &b, &r, &f->err), 0);
		assert_int_equal(fstat(r->fd_meta, &st), 0);
		assert_int_equal(st.st_size, META_HEADER_LEN + 8);
		replica_read_close(r);
		assert_readable(f, b.id, 1001, 1000);
	}
}

static void block_file(const struct fix *f, const char *place, int64_t id, char path[300])
{
	(void)snprintf(path, 300, "%s/current/%s/current/%s/blk_%" PRId64, f->vol[0], NS.pool_id,
		       place, id);
}

static void a_replica_that_is_given_up_ends_at_what_was_written(void **state)
{
	struct fix *f = *state;
	struct replica_writer *w = make_rbw(f, 5, 1001, 1700);
	char path[300];
	struct stat st;

	replica_publish(w, 1700, 900, 900, 0);
	replica_write_close(w, false);
	assert_state(f, 5, REPLICA_RBW, 1001, 900);
	block_file(f, "rbw", 5, path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 900);
}

static bool is_looked_at(struct volume *v)
{
	bool asked;

	pthread_mutex_lock(&v->check.lock);
	asked = v->check.asked > 0;
	pthread_mutex_unlock(&v->check.lock);
	return asked;
}

/* The files are gone, which may be the disk's fault; or they are only too short. */
static void a_volume_is_looked_at_when_files_cannot_be_finalised(void **state)
{
	struct fix *f = *state;
	struct replica_writer *w = make_rbw(f, 5, 1001, 1000);
	char path[300];

	assert_int_equal(replica_finalize(w, 5000, SYNC_NEVER, NULL, &f->err), -EINVAL);
	assert_false(is_looked_at(&f->s->volumes[0]));
	w = make_rbw(f, 6, 1001, 1000);
	block_file(f, "rbw", 6, path);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(replica_finalize(w, 1000, SYNC_NEVER, NULL, &f->err), -ENOENT);
	assert_true(is_looked_at(&f->s->volumes[0]));
}

/* A directory stands where its file was. */
static void a_deletion_that_failed_is_not_reported(void **state)
{
	struct fix *f = *state;
	char path[300];

	make_finalized(f, 5, 1001, 10);
	block_file(f, "finalized/subdir0/subdir0", 5, path);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(replica_invalidate(f->bp, &(struct block){5, 1001, 0}, false), 0);
	fix_wait_gone(f, 5);
	assert_int_equal(f->seen.deleted, 0);
}

static void a_second_create_of_a_block_is_refused(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(5, 1001);
	struct replica_writer *w = make_rbw(f, 5, 1001, 10), *v = NULL;

	assert_int_equal(replica_write_open(f->bp, &q, &v, &f->err), -EEXIST);
	assert_int_equal(replica_finalize(w, 10, SYNC_NEVER, NULL, &f->err), 0);
	q.new_gs = 2000;
	assert_int_equal(replica_write_open(f->bp, &q, &v, &f->err), -EEXIST);
}

static void a_reader_of_a_block_being_written_sees_only_acked_bytes(void **state)
{
	struct fix *f = *state;
	struct replica_writer *w = make_rbw(f, 5, 1001, 1000);
	struct block b = {5, 1001, 0};
	struct replica_reader *r = NULL;
	uint32_t crc;

	replica_publish(w, 1000, 1000, 600, 0x1234);
	assert_int_equal(replica_read_open(f->bp, &b, &r, &f->err), 0);
	assert_true(r->partial);
	assert_int_equal(r->block.len, 600);
	assert_int_equal(r->partial_crc, 0x1234);
	put_bytes(w, 512, 2000);
	assert_int_equal(replica_read_refresh(r, &f->err), 0);
	assert_int_equal(r->block.len, 2000);
	assert_int_not_equal(r->partial_crc, 0x1234);
	crc = r->partial_crc;
	assert_int_equal(replica_finalize(w, 2000, SYNC_NEVER, NULL, &f->err), 0);
	assert_int_equal(replica_read_refresh(r, &f->err), 0);
	assert_int_equal(r->block.len, 2000);
	assert_false(r->partial);
	assert_true(r->crc_held); /* from the meta file now */
	assert_int_equal(r->partial_crc, crc);
	replica_read_close(r);
	assert_readable(f, 5, 1001, 2000);
	assert_int_equal(replica_read_open(f->bp, &(struct block){5, 1002, 0}, &r, &f->err),
			 -ESTALE);
	assert_int_equal(replica_read_open(f->bp, &(struct block){6, 0, 0}, &r, &f->err), -ENOENT);
}

static void a_reader_keeps_its_files_when_the_block_is_deleted(void **state)
{
	struct fix *f = *state;
	struct block b = {5, 1001, 0};
	struct replica_reader *r = NULL;
	uint8_t buf[10];

	make_finalized(f, 5, 1001, 10);
	assert_int_equal(replica_read_open(f->bp, &b, &r, &f->err), 0);
	assert_int_equal(replica_invalidate(f->bp, &(struct block){5, 1000, 0}, false), -ESTALE);
	assert_int_equal(replica_invalidate(f->bp, &b, false), 0);
	fix_wait_gone(f, 5);
	assert_int_equal(f->seen.deleted, 1);
	assert_int_equal(file_read_full(r->fd, buf, 10, 0), 0);
	replica_read_close(r);
	assert_int_equal(replica_read_open(f->bp, &b, &r, &f->err), -ENOENT);
	make_finalized(f, 5, 1001, 20);
	assert_readable(f, 5, 1001, 20);
}

/* ---- doubt ---- */

static void a_corrupt_replica_is_reported_and_a_good_one_is_not(void **state)
{
	struct fix *f = *state;
	struct block b = {5, 1001, 0};
	char path[512];
	int fd;

	make_finalized(f, 5, 1001, 100000);
	replica_suspect(f->bp, &b);
	assert_int_equal(f->seen.bad, 0);
	(void)snprintf(path, sizeof(path), "%s/current/%s/current/finalized/subdir0/subdir0/blk_5",
		       f->vol[0], NS.pool_id);
	fd = open(path, O_WRONLY);
	assert_int_equal(file_write_full(fd, "\xff", 1, 70000), 0);
	close(fd);
	replica_suspect(f->bp, &b);
	assert_int_equal(f->seen.bad, 1);
}

/* Flipped bits make no checksum at all of CRC32C, or CRCs of one byte each. */
static void a_meta_file_that_its_header_does_not_fit_is_damage(void **state)
{
	static const uint8_t wrong[][5] = {{0, 0, 0, 2, 0}, {2, 0, 0, 0, 1}, {2, 0, 0, 1, 0}};
	struct fix *f = *state;

	for (unsigned int i = 0; i < 3; i++) {
		const struct block b = {5 + (int64_t)i, 0, 0};
		struct replica_reader *r;
		char path[512];
		int fd;

		make_finalized(f, b.id, 1001, 100000);
		(void)snprintf(path, sizeof(path),
			       "%s/current/%s/current/finalized/subdir0/subdir0/blk_%u_1001.meta",
			       f->vol[0], NS.pool_id, 5 + i);
		fd = open(path, O_WRONLY);
		assert_int_equal(file_write_full(fd, wrong[i], sizeof(wrong[i]), 2), 0);
		close(fd);
		assert_int_equal(replica_read_open(f->bp, &b, &r, &f->err), -EBADMSG);
		assert_int_equal(f->seen.bad, i + 1);
	}
}

static void a_missing_file_is_reported(void **state)
{
	struct fix *f = *state;
	struct replica_reader *r;
	char path[512];

	make_finalized(f, 5, 1001, 1000);
	(void)snprintf(path, sizeof(path), "%s/current/%s/current/finalized/subdir0/subdir0/blk_5",
		       f->vol[0], NS.pool_id);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(replica_read_open(f->bp, &(struct block){5, 0, 0}, &r, &f->err), -ENOENT);
	assert_int_equal(f->seen.bad, 1);
}

/* ---- volumes ---- */

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_properties_file_is_read_with_java_escapes),
		T(a_properties_file_that_is_written_reads_back),
		T(a_second_store_on_the_directory_is_told_who_has_it),
		T(a_directory_of_another_cluster_is_refused_with_both_ids),
		T(the_identity_survives_a_restart),
		T(a_finalized_block_is_where_hadoop_puts_it_and_reads_back),
		T(sizes_around_a_chunk_survive_a_restart),
		T(padding_of_an_aligned_write_is_cut_at_finalize),
		T(a_block_shorter_than_claimed_is_not_finalized),
		T(files_have_the_lengths_that_the_block_gives),
		T(a_replica_that_is_given_up_ends_at_what_was_written),
		T(a_volume_is_looked_at_when_files_cannot_be_finalised),
		T(a_deletion_that_failed_is_not_reported),
		T(a_second_create_of_a_block_is_refused),
		T(a_reader_of_a_block_being_written_sees_only_acked_bytes),
		T(a_reader_keeps_its_files_when_the_block_is_deleted),
		T(a_corrupt_replica_is_reported_and_a_good_one_is_not),
		T(a_meta_file_that_its_header_does_not_fit_is_damage),
		T(a_missing_file_is_reported),
	};

	log_init("store_test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
