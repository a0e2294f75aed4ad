/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: the layout is Hadoop's, a crash at any point leaves every finalized block and
 * every acknowledged byte, and the rules of hdfs-wire 5.5, 6 and 8.4. */
#include "datanode/store/store_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "datanode/store/props.h"

static const struct store_namespace NS = {
	.pool_id = "BP-1-127.0.0.1-1", .cluster_id = "CID-test", .namespace_id = 7, .ctime = 99};

struct seen {
	atomic_int received, receiving, deleted, bad, failed;
};

struct fix {
	char dir[64], vol[2][96];
	uint32_t volumes;
	struct store *s;
	struct block_pool *bp;
	struct seen seen;
	struct err err;
};

static void on_block(void *arg, struct block_pool *bp, const char *uuid, const struct block *b,
		     enum store_event ev, const char *hint)
{
	struct seen *n = arg;

	(void)bp, (void)uuid, (void)b, (void)hint;
	n->received += ev == STORE_RECEIVED;
	n->receiving += ev == STORE_RECEIVING;
	n->deleted += ev == STORE_DELETED;
}

static void on_bad(void *arg, struct block_pool *bp, const char *uuid, const struct block *b)
{
	(void)bp, (void)uuid, (void)b;
	((struct seen *)arg)->bad++;
}

static void on_volume_failed(void *arg, const char *path, const char *reason)
{
	(void)path, (void)reason;
	((struct seen *)arg)->failed++;
}

static int fix_open(struct fix *f)
{
	struct store_volume_opts v[2] = {{.path = f->vol[0], .type = STORAGE_DISK}, {.path = f->vol[1], .type = STORAGE_SSD}};
	struct store_opts o = {.volumes = v, .volume_count = f->volumes};
	struct store_listener l = {on_block, on_bad, on_volume_failed, &f->seen};
	int rc = store_open(&o, &f->s, &f->err);

	if (rc)
		return rc;
	store_set_listener(f->s, &l);
	rc = store_attach(f->s, &NS, &f->bp, &f->err);
	if (rc) {
		store_close(f->s);
		f->s = NULL;
	}
	return rc;
}

static void fix_reopen(struct fix *f)
{
	store_close(f->s);
	f->s = NULL;
	f->err = ERR_INIT;
	assert_int_equal(fix_open(f), 0);
}

static int setup_n(void **state, uint32_t volumes)
{
	struct fix *f = calloc(1, sizeof(*f));

	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/store_test.XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	for (int i = 0; i < 2; i++)
		(void)snprintf(f->vol[i], sizeof(f->vol[i]), "%s/dn%d", f->dir, i + 1);
	f->volumes = volumes;
	*state = f;
	return 0;
}

static int setup(void **state)
{
	setup_n(state, 1);
	return fix_open(*state);
}

static int setup_two(void **state)
{
	setup_n(state, 2);
	return fix_open(*state);
}

static int setup_closed(void **state)
{
	return setup_n(state, 1);
}

static int teardown(void **state)
{
	struct fix *f = *state;
	char cmd[128];

	store_close(f->s);
	(void)snprintf(cmd, sizeof(cmd), "rm -rf %s", f->dir);
	assert_int_equal(system(cmd), 0);
	free(f);
	return 0;
}

static void nap(void)
{
	nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static uint8_t pattern(uint64_t i)
{
	return (uint8_t)((i * 7 + 3) % 251);
}

static struct write_request create_request(int64_t id, uint64_t gs)
{
	return (struct write_request){.block = {id, gs, 1 << 20}, .stage = STAGE_CREATE,
				      .from_client = true, .crc_type = CRC_CRC32C,
				      .bytes_per_crc = 512, .storage_type = STORAGE_DISK};
}

/* Append the pattern up to @len, CRCs too, and publish. */
static void put_bytes(struct replica_writer *w, uint64_t from, uint64_t len)
{
	uint8_t *buf = malloc(len + 1), *crcs = malloc(len / 128 + 8);
	uint64_t chunk = from / 512;
	uint32_t last;

	for (uint64_t i = 0; i < len; i++)
		buf[i] = pattern(i);
	assert_int_equal(write_full(w->fd, buf + from, len - from, from), 0);
	crc_chunks(w->crc_type, buf, len, w->bytes_per_crc, crcs);
	assert_int_equal(write_full(w->fd_meta, crcs + 4 * chunk,
				    crc_bytes(w->crc_type, len, 512) - 4 * chunk,
				    META_HEADER + 4 * chunk), 0);
	last = crc_compute(w->crc_type, buf + len / 512 * 512, len % 512);
	replica_publish(w, len, len, len, last);
	free(buf);
	free(crcs);
}

static struct replica_writer *make_rbw(struct fix *f, int64_t id, uint64_t gs, uint64_t len)
{
	struct write_request q = create_request(id, gs);
	struct replica_writer *w = NULL;

	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	put_bytes(w, 0, len);
	return w;
}

static void make_finalized(struct fix *f, int64_t id, uint64_t gs, uint64_t len)
{
	assert_int_equal(replica_finalize(make_rbw(f, id, gs, len), len, false, NULL, &f->err), 0);
}

static void assert_readable(struct fix *f, int64_t id, uint64_t gs, uint64_t len)
{
	struct block b = {id, gs, 0};
	struct replica_reader *r = NULL;
	uint8_t *buf = malloc(len + 1), *crcs = malloc(len / 64 + 8);
	struct stat st;

	assert_int_equal(replica_read_open(f->bp, &b, &r, &f->err), 0);
	assert_int_equal(r->block.len, len);
	assert_int_equal(r->block.gs, gs);
	assert_int_equal(fstat(r->fd, &st), 0);
	assert_int_equal(st.st_size, len);
	assert_int_equal(read_full(r->fd, buf, len, 0), 0);
	for (uint64_t i = 0; i < len; i++)
		assert_int_equal(buf[i], pattern(i));
	assert_int_equal(read_full(r->fd_meta, crcs, crc_bytes(r->crc_type, len, r->bytes_per_crc),
				   META_HEADER), 0);
	assert_int_equal(crc_verify(r->crc_type, buf, len, r->bytes_per_crc, crcs), -1);
	replica_read_close(r);
	free(buf);
	free(crcs);
}

static void assert_state(struct fix *f, int64_t id, enum replica_state st, uint64_t gs, uint64_t len)
{
	struct replica_info i;

	assert_int_equal(replica_get(f->bp, id, &i), 0);
	assert_int_equal(i.state, st);
	assert_int_equal(i.block.gs, gs);
	assert_int_equal(i.block.len, len);
}

/* ---- VERSION ---- */

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
	(void)snprintf(path, sizeof(path), "%s/current/%s/current/finalized/subdir3/subdir5/blk_%" PRId64,
		       f->vol[0], NS.pool_id, id);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 1000);
	assert_true(st.st_blocks * 512 <= 4096); /* no preallocation is left */
	(void)snprintf(path, sizeof(path), "%s/current/%s/current/finalized/subdir3/subdir5/blk_%" PRId64 "_1001.meta",
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
	assert_int_equal(replica_finalize(w, 1000, true, NULL, &f->err), 0);
	assert_readable(f, 5, 1001, 1000);
}

static void a_block_shorter_than_claimed_is_not_finalized(void **state)
{
	struct fix *f = *state;
	struct replica_writer *w = make_rbw(f, 5, 1001, 1000);

	assert_int_equal(replica_finalize(w, 5000, false, NULL, &f->err), -EINVAL);
	assert_state(f, 5, REPLICA_RBW, 1001, 1000);
	assert_int_equal(f->seen.received, 0);
}

static void a_second_create_of_a_block_is_refused(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(5, 1001);
	struct replica_writer *w = make_rbw(f, 5, 1001, 10), *v = NULL;

	assert_int_equal(replica_write_open(f->bp, &q, &v, &f->err), -EEXIST);
	assert_int_equal(replica_finalize(w, 10, false, NULL, &f->err), 0);
	q.new_gs = 2000;
	assert_int_equal(replica_write_open(f->bp, &q, &v, &f->err), -EEXIST);
}

static void a_reader_of_a_block_being_written_sees_only_acked_bytes(void **state)
{
	struct fix *f = *state;
	struct replica_writer *w = make_rbw(f, 5, 1001, 1000);
	struct block b = {5, 1001, 0};
	struct replica_reader *r = NULL;

	replica_publish(w, 1000, 1000, 600, 0x1234);
	assert_int_equal(replica_read_open(f->bp, &b, &r, &f->err), 0);
	assert_true(r->partial);
	assert_int_equal(r->block.len, 600);
	assert_int_equal(r->partial_crc, 0x1234);
	put_bytes(w, 1000, 2000);
	replica_read_refresh(r);
	assert_int_equal(r->block.len, 2000);
	assert_int_equal(replica_finalize(w, 2000, false, NULL, &f->err), 0);
	replica_read_refresh(r);
	assert_int_equal(r->block.len, 2000);
	assert_false(r->partial); /* the CRC of the last chunk is in the meta file now */
	replica_read_close(r);
	assert_readable(f, 5, 1001, 2000);
	assert_int_equal(replica_read_open(f->bp, &(struct block){5, 1002, 0}, &r, &f->err), -ESTALE);
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
	for (int i = 0; i < 2000 && !f->seen.deleted; i++)
		nap();
	assert_int_equal(f->seen.deleted, 1);
	assert_int_equal(read_full(r->fd, buf, 10, 0), 0);
	replica_read_close(r);
	assert_int_equal(replica_read_open(f->bp, &b, &r, &f->err), -ENOENT);
	make_finalized(f, 5, 1001, 20);
	assert_readable(f, 5, 1001, 20);
}

/* ---- append and pipeline recovery ---- */

static void an_append_moves_the_block_to_rbw_at_the_new_stamp(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(5, 1001);
	struct replica_writer *w = NULL;

	make_finalized(f, 5, 1001, 700);
	q.stage = STAGE_APPEND;
	q.new_gs = 1002;
	q.min_bytes = 600;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), -EINVAL);
	assert_readable(f, 5, 1001, 700);
	q.min_bytes = 700;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	assert_int_equal(w->start_len, 700);
	assert_int_equal(w->block.gs, 1002);
	assert_state(f, 5, REPLICA_RBW, 1002, 700);
	put_bytes(w, 700, 1500);
	assert_int_equal(replica_finalize(w, 1500, true, NULL, &f->err), 0);
	assert_readable(f, 5, 1002, 1500);
	fix_reopen(f);
	assert_readable(f, 5, 1002, 1500);
}

static void stop_writer(void *arg)
{
	atomic_store((atomic_bool *)arg, true);
}

struct stopper {
	atomic_bool asked;
	struct replica_writer *w;
};

static void *stopper_thread(void *arg)
{
	struct stopper *st = arg;

	while (!atomic_load(&st->asked))
		nap();
	replica_write_close(st->w, false);
	return NULL;
}

static void streaming_recovery_stops_the_old_writer_and_cuts_to_acked(void **state)
{
	struct fix *f = *state;
	struct stopper st = {false, NULL};
	struct write_request q = create_request(5, 1001);
	struct replica_writer *w = NULL;
	pthread_t t;

	q.stop = stop_writer;
	q.stop_arg = &st.asked;
	assert_int_equal(replica_write_open(f->bp, &q, &st.w, &f->err), 0);
	put_bytes(st.w, 0, 1700);
	replica_publish(st.w, 1700, 1700, 900, 0);
	pthread_create(&t, NULL, stopper_thread, &st);
	q.stage = STAGE_STREAMING_RECOVERY;
	q.new_gs = 1005;
	q.min_bytes = 900;
	q.max_bytes = 1700;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	pthread_join(t, NULL);
	assert_int_equal(w->start_len, 900);
	put_bytes(w, 900, 1000);
	assert_int_equal(replica_finalize(w, 1000, false, NULL, &f->err), 0);
	assert_readable(f, 5, 1005, 1000);
}

static void close_recovery_finalizes_at_the_new_stamp(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(5, 1001);
	struct replica_writer *w = make_rbw(f, 5, 1001, 800);

	replica_write_close(w, false);
	q.stage = STAGE_CLOSE_RECOVERY;
	q.new_gs = 1003;
	q.min_bytes = 800;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	assert_null(w);
	assert_readable(f, 5, 1003, 800);
	assert_int_equal(f->seen.received, 1);
}

static void a_temporary_replica_is_invisible_and_goes_when_dropped(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(5, 1001);
	struct replica_writer *w = NULL;
	struct replica_reader *r;
	struct replica_info i;
	struct block b = {5, 0, 0};

	q.from_client = false;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	put_bytes(w, 0, 600);
	assert_int_equal(replica_read_open(f->bp, &b, &r, &f->err), -ENOENT);
	replica_write_close(w, false);
	assert_int_equal(replica_get(f->bp, 5, &i), -ENOENT);
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	put_bytes(w, 0, 600);
	replica_write_close(w, true);
	assert_state(f, 5, REPLICA_RBW, 1001, 600);
	q.block.id = 6;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	put_bytes(w, 0, 600);
	assert_int_equal(replica_finalize(w, 600, false, "hint", &f->err), 0);
	assert_readable(f, 6, 1001, 600);
}

/* ---- restart ---- */

static void an_unfinished_block_restarts_as_rwr_with_its_whole_chunks(void **state)
{
	struct fix *f = *state;
	struct replica_writer *w = make_rbw(f, 5, 1001, 1000), *v = make_rbw(f, 6, 1001, 1000);
	struct replica_reader *r;

	replica_write_close(w, false);
	replica_write_close(v, false);
	/* Block 6: the last chunk's CRC is wrong. */
	char path[512];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/current/%s/current/rbw/blk_6", f->vol[0], NS.pool_id);
	fd = open(path, O_WRONLY);
	assert_int_equal(write_full(fd, "x", 1, 999), 0);
	close(fd);
	fix_reopen(f);
	assert_state(f, 5, REPLICA_RWR, 1001, 1000);
	assert_state(f, 6, REPLICA_RWR, 1001, 512);
	assert_int_equal(replica_read_open(f->bp, &(struct block){5, 0, 0}, &r, &f->err), -ENOENT);
}

static void a_crash_before_the_crc_of_a_longer_chunk_keeps_what_was_flushed(void **state)
{
	struct fix *f = *state;
	char path[512];

	/* 700 bytes were flushed; more data came to the disk, their CRCs did not. */
	for (int64_t id = 5; id < 7; id++) {
		uint8_t more[1000];
		int fd;

		for (uint64_t i = 0; i < sizeof(more); i++)
			more[i] = pattern(700 + i);
		replica_write_close(make_rbw(f, id, 1001, 700), false);
		(void)snprintf(path, sizeof(path), "%s/current/%s/current/rbw/blk_%" PRId64, f->vol[0],
			       NS.pool_id, id);
		fd = open(path, O_WRONLY);
		assert_int_equal(write_full(fd, more, id == 5 ? 100 : 1000, 700), 0);
		close(fd);
	}
	fix_reopen(f);
	assert_state(f, 5, REPLICA_RWR, 1001, 700);
	assert_state(f, 6, REPLICA_RWR, 1001, 700);
}

static void a_restart_marker_keeps_the_block_rbw(void **state)
{
	struct fix *f = *state;
	char path[512];
	FILE *m;

	replica_write_close(make_rbw(f, 5, 1001, 1000), false);
	(void)snprintf(path, sizeof(path), "%s/current/%s/current/rbw:.blk_5.restart", f->vol[0],
		       NS.pool_id);
	m = fopen(path, "w");
	fprintf(m, "%" PRIu64, clock_wall_ms() + 60000);
	fclose(m);
	fix_reopen(f);
	assert_state(f, 5, REPLICA_RBW, 1001, 1000);
	assert_int_equal(access(path, F_OK), -1);
	fix_reopen(f);
	assert_state(f, 5, REPLICA_RWR, 1001, 1000);
}

static void a_move_cut_short_leaves_one_whole_pair(void **state)
{
	struct fix *f = *state;
	char cmd[1024];

	make_finalized(f, 5, 1001, 1000);
	/* As after the two links of an append, or before the two unlinks of a finalize. */
	(void)snprintf(cmd, sizeof(cmd),
		       "cd %s/current/%s/current && ln finalized/subdir0/subdir0/blk_5 rbw/blk_5 && "
		       "ln finalized/subdir0/subdir0/blk_5_1001.meta rbw/blk_5_1002.meta",
		       f->vol[0], NS.pool_id);
	assert_int_equal(system(cmd), 0);
	fix_reopen(f);
	assert_state(f, 5, REPLICA_FINALIZED, 1001, 1000);
	assert_readable(f, 5, 1001, 1000);
	fix_reopen(f);
	assert_state(f, 5, REPLICA_FINALIZED, 1001, 1000);
}

static void misplaced_and_orphan_files_are_handled(void **state)
{
	struct fix *f = *state;
	struct replica_info i;
	char cmd[1024];

	make_finalized(f, 5, 1001, 1000);
	make_finalized(f, 6, 1001, 1000);
	(void)snprintf(cmd, sizeof(cmd),
		       "cd %s/current/%s/current/finalized && mkdir -p subdir9/subdir200 && "
		       "mv subdir0/subdir0/blk_5* subdir9/subdir200 && rm subdir0/subdir0/blk_6_1001.meta",
		       f->vol[0], NS.pool_id);
	assert_int_equal(system(cmd), 0);
	fix_reopen(f);
	assert_readable(f, 5, 1001, 1000);
	assert_int_equal(replica_get(f->bp, 6, &i), -ENOENT);
	make_finalized(f, 6, 1001, 100);
	assert_readable(f, 6, 1001, 100);
}

static void a_stamp_change_cut_short_finds_the_meta_file_that_fits(void **state)
{
	struct fix *f = *state;
	char dir[512], cmd[1500];

	make_finalized(f, 5, 1001, 1000);
	make_finalized(f, 6, 1001, 1000);
	make_finalized(f, 7, 1002, 700);
	(void)snprintf(dir, sizeof(dir), "%s/current/%s/current/finalized/subdir0/subdir0", f->vol[0],
		       NS.pool_id);
	/* 5: the new meta file is there, the data not cut yet. 6: cut, the old meta not gone yet. */
	(void)snprintf(cmd, sizeof(cmd),
		       "cd %s && cp blk_7_1002.meta blk_5_1002.meta && cp blk_7_1002.meta blk_6_1002.meta "
		       "&& truncate -s 700 blk_6", dir);
	assert_int_equal(system(cmd), 0);
	fix_reopen(f);
	assert_readable(f, 5, 1001, 1000);
	assert_readable(f, 6, 1002, 700);
}

/* ---- block recovery ---- */

static void recovery_shortens_restamps_and_finalizes(void **state)
{
	struct fix *f = *state;
	struct block b = {5, 1001, 1700};
	struct replica_info i;
	char uuid[BLOCK_UUID_MAX];

	replica_write_close(make_rbw(f, 5, 1001, 1700), false);
	fix_reopen(f);
	assert_int_equal(replica_init_recovery(f->bp, &(struct block){9, 1, 1}, 1010, &i, &f->err), -ENOENT);
	assert_int_equal(replica_init_recovery(f->bp, &b, 1001, &i, &f->err), -ESTALE);
	assert_int_equal(replica_init_recovery(f->bp, &b, 1010, &i, &f->err), 0);
	assert_int_equal(i.state, REPLICA_RWR);
	assert_int_equal(i.block.len, 1700);
	assert_int_equal(replica_init_recovery(f->bp, &b, 1010, &i, &f->err), -EBUSY);
	assert_int_equal(replica_init_recovery(f->bp, &b, 1011, &i, &f->err), 0);
	assert_int_equal(replica_update_recovery(f->bp, &b, 1010, 1500, 0, uuid, &f->err), -ESTALE);
	assert_int_equal(replica_update_recovery(f->bp, &b, 1011, 1800, 0, uuid, &f->err), -EINVAL);
	assert_int_equal(replica_update_recovery(f->bp, &b, 1011, 1500, 0, uuid, &f->err), 0);
	assert_readable(f, 5, 1011, 1500);
	fix_reopen(f);
	assert_readable(f, 5, 1011, 1500);
}

static void recovery_of_a_finalized_block_can_truncate_or_copy_it(void **state)
{
	struct fix *f = *state;
	struct block b = {5, 1001, 1000};
	struct replica_info i;
	char uuid[BLOCK_UUID_MAX];

	make_finalized(f, 5, 1001, 1000);
	assert_int_equal(replica_init_recovery(f->bp, &b, 1010, &i, &f->err), 0);
	assert_int_equal(i.state, REPLICA_FINALIZED);
	assert_readable(f, 5, 1001, 1000);
	assert_int_equal(replica_update_recovery(f->bp, &b, 1010, 777, 66, uuid, &f->err), 0);
	assert_readable(f, 5, 1001, 1000);
	assert_readable(f, 66, 1010, 777);
	assert_int_equal(replica_init_recovery(f->bp, &b, 1012, &i, &f->err), 0);
	assert_int_equal(replica_update_recovery(f->bp, &b, 1012, 512, 0, uuid, &f->err), 0);
	assert_readable(f, 5, 1012, 512);
	fix_reopen(f);
	assert_readable(f, 5, 1012, 512);
	assert_readable(f, 66, 1010, 777);
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
	assert_int_equal(write_full(fd, "\xff", 1, 70000), 0);
	close(fd);
	replica_suspect(f->bp, &b);
	assert_int_equal(f->seen.bad, 1);
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

static int count_one(void *arg, const struct replica_info *i)
{
	(void)i;
	(*(int *)arg)++;
	return 0;
}

static void blocks_spread_over_volumes_and_follow_the_storage_type(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(50, 1);
	struct replica_writer *w;
	struct storage_info a, b;
	int n0 = 0, n1 = 0;

	for (int i = 0; i < 8; i++)
		make_finalized(f, i, 1001, 10);
	q.storage_type = STORAGE_SSD;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	store_volume_info(f->s, 1, f->bp, &b);
	assert_string_equal(w->storage_uuid, b.uuid);
	assert_true(b.capacity - b.remaining >= 1 << 20); /* room is promised to the writer */
	replica_write_close(w, false);
	store_volume_info(f->s, 0, f->bp, &a);
	assert_int_equal(a.blocks, 8);
	assert_int_equal(store_each(f->bp, 0, count_one, &n0), 0);
	assert_int_equal(store_each(f->bp, 1, count_one, &n1), 0);
	assert_int_equal(n0, 8);
	assert_int_equal(n1, 1);
}

static void a_full_disk_is_told_with_numbers(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(50, 1);
	struct replica_writer *w;

	q.block.len = 1ull << 60;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), -ENOSPC);
	assert_non_null(strstr(f->err.text, "1152921504606846976"));
}

static void of_two_replicas_on_two_volumes_the_newer_stays(void **state)
{
	struct fix *f = *state;
	struct storage_info b;
	struct replica_info i;
	char cmd[1500];

	make_finalized(f, 5, 1001, 1000);
	(void)snprintf(cmd, sizeof(cmd),
		       "mkdir -p %s/current/%s/current/finalized/subdir0/subdir0 && "
		       "cp %s/current/%s/current/finalized/subdir0/subdir0/blk_5 %s/current/%s/current/finalized/subdir0/subdir0/blk_5 && "
		       "cp %s/current/%s/current/finalized/subdir0/subdir0/blk_5_1001.meta %s/current/%s/current/finalized/subdir0/subdir0/blk_5_1002.meta",
		       f->vol[1], NS.pool_id, f->vol[0], NS.pool_id, f->vol[1], NS.pool_id, f->vol[0],
		       NS.pool_id, f->vol[1], NS.pool_id);
	assert_int_equal(system(cmd), 0);
	fix_reopen(f);
	store_volume_info(f->s, 1, f->bp, &b);
	assert_int_equal(replica_get(f->bp, 5, &i), 0);
	assert_string_equal(i.storage_uuid, b.uuid);
	assert_readable(f, 5, 1002, 1000);
}

static void a_dead_volume_goes_out_of_service_and_the_others_stay(void **state)
{
	struct fix *f = *state;
	struct storage_info a, b;
	struct replica_info i;
	char cmd[512];
	struct write_request q = create_request(50, 1);
	struct replica_writer *w;

	make_finalized(f, 5, 1001, 1000);
	q.storage_type = STORAGE_SSD;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	put_bytes(w, 0, 10);
	assert_int_equal(replica_finalize(w, 10, false, NULL, &f->err), 0);
	store_volume_info(f->s, 0, f->bp, &a);
	store_volume_info(f->s, 1, f->bp, &b);
	store_volume_suspect(f->s, a.uuid);
	assert_int_equal(f->seen.failed, 0);
	(void)snprintf(cmd, sizeof(cmd), "mv %s/current %s/gone", f->vol[0], f->vol[0]);
	assert_int_equal(system(cmd), 0);
	store_volume_suspect(f->s, a.uuid);
	assert_int_equal(f->seen.failed, 1);
	assert_int_equal(replica_get(f->bp, 5, &i), -ENOENT);
	assert_readable(f, 50, 1, 10);
	make_finalized(f, 6, 1001, 1000);
	assert_int_equal(replica_get(f->bp, 6, &i), 0);
	assert_string_equal(i.storage_uuid, b.uuid);
}

static void a_volume_that_is_dead_at_start_is_tolerated_when_told_so(void **state)
{
	struct fix *f = *state;
	struct store_volume_opts v[2] = {{.path = f->vol[0], .type = STORAGE_DISK}, {.path = "/proc/nowhere", .type = STORAGE_DISK}};
	struct store_opts o = {.volumes = v, .volume_count = 2};
	struct storage_info i;

	assert_true(store_open(&o, &f->s, &f->err) < 0);
	assert_non_null(strstr(f->err.text, "/proc/nowhere"));
	o.failed_tolerated = 1;
	assert_int_equal(store_open(&o, &f->s, &f->err), 0);
	assert_int_equal(store_attach(f->s, &NS, &f->bp, &f->err), 0);
	make_finalized(f, 5, 1001, 100);
	assert_readable(f, 5, 1001, 100);
	store_volume_info(f->s, 1, f->bp, &i);
	assert_true(i.failed);
}

/* ---- the recorded directory of a Java DataNode ---- */

struct tally {
	int finalized, rwr;
	uint64_t bytes;
};

static int tally_one(void *arg, const struct replica_info *i)
{
	struct tally *t = arg;

	t->finalized += i->state == REPLICA_FINALIZED;
	t->rwr += i->state == REPLICA_RWR;
	t->bytes += i->block.len;
	return 0;
}

static void the_directory_of_a_java_data_node_loads_as_it_reported_it(void **state)
{
	const char *tar = getenv("DFS_TEST_DN1_TAR");
	struct store_namespace ns = {.pool_id = "BP-595571561-127.0.0.1-1795225043815",
				     .cluster_id = "CID-b876923f-cad8-4969-aa94-97c3cb136b99",
				     .namespace_id = 164488965, .ctime = 1795225043815};
	struct fix *f = *state;
	struct store_volume_opts v = {.path = f->vol[0], .type = STORAGE_DISK};
	struct store_opts o = {.volumes = &v, .volume_count = 1};
	struct tally t = {0};
	struct replica_info i;
	char cmd[512];

	if (!tar || access(tar, R_OK))
		skip();
	(void)snprintf(cmd, sizeof(cmd), "tar -C %s -xf %s", f->dir, tar);
	assert_int_equal(system(cmd), 0);
	assert_int_equal(store_open(&o, &f->s, &f->err), 0);
	assert_string_equal(store_datanode_uuid(f->s), "07ccb252-d25f-4be6-8be5-cc4afcc0f9bc");
	assert_int_equal(store_attach(f->s, &ns, &f->bp, &f->err), 0);
	assert_int_equal(store_each(f->bp, 0, tally_one, &t), 0);
	assert_int_equal(t.finalized, 17);
	assert_int_equal(t.rwr, 2);
	assert_int_equal(replica_get(f->bp, 1073741848, &i), 0);
	assert_int_equal(i.block.len, 5120);
	assert_int_equal(i.block.gs, 1041);
	assert_readable(f, 1073741844, 1030, 1048577);
	assert_readable(f, 1073741847, 1040, 1000); /* CRC32, 1024 bytes per chunk */
	assert_readable(f, 1073741846, 1039, 777);
}

/* ---- many threads ---- */

#define STRESS_THREADS 4
#define STRESS_ROUNDS 300
#define STRESS_BLOCKS 6

struct stress {
	struct fix *f;
	unsigned int seed;
	int done[5];
};

static void stress_write(struct stress *s, int64_t id, struct write_request *q, uint64_t len)
{
	struct replica_writer *w = NULL;

	if (replica_write_open(s->f->bp, q, &w, NULL) || !w)
		return;
	assert_true(w->start_len <= len);
	put_bytes(w, w->start_len, len);
	if (rand_r(&s->seed) % 4 == 0)
		replica_write_close(w, false);
	else
		s->done[0] += !replica_finalize(w, len, false, NULL, NULL);
	(void)id;
}

/* Whatever a reader is given fits the pattern and its CRCs, up to the length it was told. */
static void stress_read(struct stress *s, int64_t id)
{
	struct replica_reader *r = NULL;
	uint8_t buf[4096];

	if (replica_read_open(s->f->bp, &(struct block){id, 0, 0}, &r, NULL))
		return;
	assert_true(r->block.len <= sizeof(buf));
	/* A recovery may have cut it since. */
	if (!read_full(r->fd, buf, r->block.len, 0)) {
		for (uint64_t i = 0; i < r->block.len; i++)
			assert_int_equal(buf[i], pattern(i));
		s->done[1]++;
	}
	replica_read_refresh(r);
	replica_read_close(r);
}

static void stress_step(struct stress *s)
{
	int64_t id = rand_r(&s->seed) % STRESS_BLOCKS;
	struct write_request q = create_request(id, 1001);
	struct replica_info i;
	char uuid[BLOCK_UUID_MAX];
	bool here = !replica_get(s->f->bp, id, &i);

	switch (rand_r(&s->seed) % 6) {
	case 0:
		stress_write(s, id, &q, 1 + (uint64_t)rand_r(&s->seed) % 2000);
		break;
	case 1:
		if (here && i.state == REPLICA_FINALIZED) {
			q.block.gs = i.block.gs;
			q.stage = STAGE_APPEND;
			q.new_gs = i.block.gs + 1;
			q.min_bytes = i.block.len;
			stress_write(s, id, &q, i.block.len + 100 < 4000 ? i.block.len + 100 : i.block.len);
		}
		break;
	case 2:
		if (here && !replica_init_recovery(s->f->bp, &i.block, i.block.gs + 5, &i, NULL) &&
		    i.state != REPLICA_TEMPORARY && i.block.len)
			s->done[2] += !replica_update_recovery(s->f->bp, &i.block, i.block.gs + 5,
							       i.block.len - i.block.len / 3, 0,
							       uuid, NULL);
		break;
	case 3:
		if (here && rand_r(&s->seed) % 3 == 0)
			s->done[3] += !replica_invalidate(s->f->bp, &i.block, false);
		break;
	default:
		stress_read(s, id);
		break;
	}
}

static void *stress_thread(void *arg)
{
	for (int i = 0; i < STRESS_ROUNDS; i++)
		stress_step(arg);
	return NULL;
}

static void threads_that_fight_over_a_few_blocks_leave_a_sound_store(void **state)
{
	struct fix *f = *state;
	struct stress s[STRESS_THREADS];
	pthread_t t[STRESS_THREADS];
	int sum[5] = {0};

	for (int i = 0; i < STRESS_THREADS; i++) {
		s[i] = (struct stress){.f = f, .seed = (unsigned int)i};
		pthread_create(&t[i], NULL, stress_thread, &s[i]);
	}
	for (int i = 0; i < STRESS_THREADS; i++) {
		pthread_join(t[i], NULL);
		for (int k = 0; k < 5; k++)
			sum[k] += s[i].done[k];
	}
	assert_true(sum[0] && sum[1] && sum[2] && sum[3]);
	fix_reopen(f);
	for (int64_t id = 0; id < STRESS_BLOCKS; id++) {
		struct replica_info i;

		if (!replica_get(f->bp, id, &i) && i.state == REPLICA_FINALIZED)
			assert_readable(f, id, i.block.gs, i.block.len);
	}
	assert_int_equal(f->seen.bad, 0);
}

/* ---- kill -9 ---- */

#define CRASH_BLOCKS 64

struct crash_log { /* shared with the child: what it was promised */
	_Atomic uint64_t finalized[CRASH_BLOCKS]; /* length + 1 */
	_Atomic uint64_t acked[CRASH_BLOCKS];
};

static void crash_child(struct fix *f, struct crash_log *log, unsigned int seed)
{
	if (fix_open(f))
		_exit(9);
	for (int64_t k = 0; k < CRASH_BLOCKS; k++) {
		uint64_t len = 1 + (uint64_t)rand_r(&seed) % 3000;
		struct replica_writer *w = make_rbw(f, k, 1001, len);
		struct write_request q = create_request(k, 1001);

		log->acked[k] = len;
		if (replica_finalize(w, len, false, NULL, &f->err))
			_exit(8);
		log->finalized[k] = len + 1;
		if (k % 3 == 0) { /* append */
			q.stage = STAGE_APPEND;
			q.new_gs = 1002;
			q.min_bytes = len;
			if (replica_write_open(f->bp, &q, &w, &f->err))
				_exit(7);
			put_bytes(w, len, len + 100);
			log->acked[k] = len + 100;
			if (replica_finalize(w, len + 100, false, NULL, &f->err))
				_exit(6);
			log->finalized[k] = len + 101;
		}
	}
	_exit(0);
}

/* Every block that was finalized is finalized (or RWR, when an append had begun) with at least the
 * acknowledged bytes, and they are right. */
static void crash_check(struct fix *f, const struct crash_log *log)
{
	for (int64_t k = 0; k < CRASH_BLOCKS; k++) {
		struct replica_info i;

		if (!log->acked[k])
			continue;
		assert_int_equal(replica_get(f->bp, k, &i), 0);
		assert_true(i.block.len >= log->acked[k]);
		if (log->finalized[k] == log->acked[k] + 1 && (k % 3 || i.state == REPLICA_FINALIZED))
			assert_readable(f, k, i.block.gs, i.block.len);
		if (i.state == REPLICA_RWR) {
			char uuid[BLOCK_UUID_MAX];

			assert_int_equal(replica_init_recovery(f->bp, &i.block, 3000, &i, &f->err), 0);
			assert_int_equal(replica_update_recovery(f->bp, &i.block, 3000, log->acked[k], 0,
								 uuid, &f->err), 0);
			assert_readable(f, k, 3000, log->acked[k]);
		}
	}
}

static void kill_at_any_moment_leaves_every_acknowledged_byte(void **state)
{
	struct fix *f = *state;
	struct crash_log *log = mmap(NULL, sizeof(*log), PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned int seed = 1;
	char cmd[256];

	for (int round = 0; round < 40; round++) {
		int status;
		pid_t pid;

		memset(log, 0, sizeof(*log));
		(void)snprintf(cmd, sizeof(cmd), "rm -rf %s", f->vol[0]);
		assert_int_equal(system(cmd), 0);
		pid = fork();
		if (pid == 0)
			crash_child(f, log, (unsigned int)round);
		nanosleep(&(struct timespec){0, (long)(rand_r(&seed) % 25000) * 1000}, NULL);
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status))
			assert_int_equal(WEXITSTATUS(status), 0);
		assert_int_equal(fix_open(f), 0);
		crash_check(f, log);
		store_close(f->s);
		f->s = NULL;
	}
	munmap(log, sizeof(*log));
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define T2(name) cmocka_unit_test_setup_teardown(name, setup_two, teardown)
#define TC(name) cmocka_unit_test_setup_teardown(name, setup_closed, teardown)

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
		T(a_second_create_of_a_block_is_refused),
		T(a_reader_of_a_block_being_written_sees_only_acked_bytes),
		T(a_reader_keeps_its_files_when_the_block_is_deleted),
		T(an_append_moves_the_block_to_rbw_at_the_new_stamp),
		T(streaming_recovery_stops_the_old_writer_and_cuts_to_acked),
		T(close_recovery_finalizes_at_the_new_stamp),
		T(a_temporary_replica_is_invisible_and_goes_when_dropped),
		T(an_unfinished_block_restarts_as_rwr_with_its_whole_chunks),
		T(a_crash_before_the_crc_of_a_longer_chunk_keeps_what_was_flushed),
		T(a_restart_marker_keeps_the_block_rbw),
		T(a_move_cut_short_leaves_one_whole_pair),
		T(misplaced_and_orphan_files_are_handled),
		T(a_stamp_change_cut_short_finds_the_meta_file_that_fits),
		T(recovery_shortens_restamps_and_finalizes),
		T(recovery_of_a_finalized_block_can_truncate_or_copy_it),
		T(a_corrupt_replica_is_reported_and_a_good_one_is_not),
		T(a_missing_file_is_reported),
		T2(blocks_spread_over_volumes_and_follow_the_storage_type),
		T2(a_full_disk_is_told_with_numbers),
		T2(of_two_replicas_on_two_volumes_the_newer_stays),
		T2(a_dead_volume_goes_out_of_service_and_the_others_stay),
		T(threads_that_fight_over_a_few_blocks_leave_a_sound_store),
		TC(a_volume_that_is_dead_at_start_is_tolerated_when_told_so),
		TC(the_directory_of_a_java_data_node_loads_as_it_reported_it),
		TC(kill_at_any_moment_leaves_every_acknowledged_byte),
	};

	log_init("store_test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
