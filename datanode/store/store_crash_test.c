/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a crash at any point leaves every finalized block and every acknowledged byte,
 * block recovery follows hdfs-wire 8.4, and a directory of a Java DataNode loads as that node
 * reported it. */

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "common/base/clock.h"
#include "common/base/cursor.h"
#include "common/base/log.h"

#include "datanode/store/store_test_blocks.h"

/* ---- the disk ---- */

static struct {
	uint32_t files, dirs; /* synced */
	bool fails;
} syncs;

int __real_fdatasync(int fd);
int __real_fsync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fsync(int fd);

static int sync_if_it_works(int (*fn)(int), int fd, uint32_t *count)
{
	++*count;
	if (!syncs.fails)
		return fn(fd);
	errno = EIO;
	return -1;
}

int __wrap_fdatasync(int fd)
{
	return sync_if_it_works(__real_fdatasync, fd, &syncs.files);
}

int __wrap_fsync(int fd)
{
	return sync_if_it_works(__real_fsync, fd, &syncs.dirs);
}

static struct replica_writer *make_copy(struct fix *f, int64_t id)
{
	struct write_request q = create_request(id, 1001);
	struct replica_writer *w;

	q.stage = STAGE_TRANSFER_RBW;
	q.from_client = false;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	put_bytes(w, 0, 700);
	return w;
}

static void a_copy_that_repairs_a_pipeline_is_on_the_disk(void **state)
{
	struct fix *f = *state;
	struct replica_writer *w = make_copy(f, 5), *failing = make_copy(f, 6);
	struct replica_info info;

	syncs.files = syncs.dirs = 0;
	assert_int_equal(replica_write_close(w, true), 0);
	assert_int_equal(syncs.files, 2);
	assert_int_equal(syncs.dirs, 1);
	assert_state(f, 5, REPLICA_RBW, 1001, 700);
	syncs.fails = true;
	assert_int_equal(replica_write_close(failing, true), -EIO);
	syncs.fails = false;
	assert_int_not_equal(replica_get(f->bp, 6, &info), 0);
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

	(void)snprintf(path, sizeof(path), "%s/current/%s/current/rbw/blk_6", f->vol[0],
		       NS.pool_id);
	fd = open(path, O_WRONLY);
	assert_int_equal(file_write_full(fd, "x", 1, 999), 0);
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
		(void)snprintf(path, sizeof(path), "%s/current/%s/current/rbw/blk_%" PRId64,
			       f->vol[0], NS.pool_id, id);
		fd = open(path, O_WRONLY);
		assert_int_equal(file_write_full(fd, more, id == 5 ? 100 : 1000, 700), 0);
		close(fd);
	}
	fix_reopen(f);
	assert_state(f, 5, REPLICA_RWR, 1001, 700);
	assert_state(f, 6, REPLICA_RWR, 1001, 700);
}

/* The second of two direct writes came to the disk before the crash, the first one did not. */
static void a_crash_between_two_writes_keeps_nothing_behind_the_hole(void **state)
{
	static const uint64_t len = 3 << 20;
	static const struct {
		uint64_t hole, kept;
	} at[] = {{1 << 20, 1 << 20},
		  {(2 << 20) + 5000, (2 << 20) + 5000 - (5000 % 512)},
		  {len - 1, len - 1}};
	static const uint8_t zeros[4096];
	struct fix *f = *state;
	char path[512];

	for (int64_t k = 0; k < 3; k++) {
		const uint64_t room = len - at[k].hole;
		int fd;

		replica_write_close(make_rbw(f, 5 + k, 1001, len), false);
		(void)snprintf(path, sizeof(path), "%s/current/%s/current/rbw/blk_%" PRId64,
			       f->vol[0], NS.pool_id, 5 + k);
		fd = open(path, O_WRONLY);
		assert_int_equal(file_write_full(fd, zeros, room < 4096 ? room : 4096, at[k].hole),
				 0);
		close(fd);
	}
	fix_reopen(f);
	assert_state(f, 5, REPLICA_RWR, 1001, at[0].kept);
	assert_state(f, 6, REPLICA_RWR, 1001, at[1].kept);
	assert_state(f, 7, REPLICA_RWR, 1001, len - 512);
}

/* 700 bytes were flushed and acknowledged; of what followed, the second write came to the disk. */
static void a_crash_between_two_writes_keeps_the_flushed_part_of_a_chunk(void **state)
{
	static const uint64_t len = 2 << 20;
	static const uint8_t zeros[8192];
	struct fix *f = *state;
	uint8_t part[188], crc[4];
	struct wr w = wr_init(crc, sizeof(crc));
	char path[512];
	int fd;

	replica_write_close(make_rbw(f, 5, 1001, len), false);
	for (uint64_t i = 0; i < sizeof(part); i++)
		part[i] = pattern(512 + i);
	wr_be32(&w, crc_compute(CRC_CRC32C, part, sizeof(part)));
	(void)snprintf(path, sizeof(path), "%s/current/%s/current/rbw/blk_5", f->vol[0],
		       NS.pool_id);
	fd = open(path, O_WRONLY);
	assert_int_equal(file_write_full(fd, zeros, sizeof(zeros), 700), 0);
	close(fd);
	(void)snprintf(path, sizeof(path), "%s/current/%s/current/rbw/blk_5_1001.meta", f->vol[0],
		       NS.pool_id);
	fd = open(path, O_WRONLY);
	assert_int_equal(file_write_full(fd, crc, sizeof(crc), META_HEADER_LEN + 4), 0);
	close(fd);
	fix_reopen(f);
	assert_state(f, 5, REPLICA_RWR, 1001, 700);
}

static void a_restart_marker_keeps_the_block_rbw(void **state)
{
	struct fix *f = *state;
	struct replica_reader *r = NULL;
	uint8_t crcs[8];
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
	/* Read before its writer is back: with the CRC of its last chunk. */
	assert_int_equal(replica_read_open(f->bp, &(struct block){5, 1001, 0}, &r, &f->err), 0);
	assert_true(r->partial);
	assert_int_equal(pread(r->fd_meta, crcs, 8, 7), 8);
	assert_int_equal(r->partial_crc,
			 (uint32_t)crcs[4] << 24 | crcs[5] << 16 | crcs[6] << 8 | crcs[7]);
	assert_int_not_equal(r->partial_crc, 0);
	replica_read_close(r);
	fix_reopen(f);
	assert_state(f, 5, REPLICA_RWR, 1001, 1000);
}

/* Its time is over, or it is empty. */
static void a_restart_marker_that_does_not_count_goes_away(void **state)
{
	struct fix *f = *state;

	for (int64_t id = 5; id < 7; id++) {
		char path[512];
		FILE *m;

		replica_write_close(make_rbw(f, id, 1001, 1000), false);
		(void)snprintf(path, sizeof(path),
			       "%s/current/%s/current/rbw:.blk_%" PRId64 ".restart", f->vol[0],
			       NS.pool_id, id);
		m = fopen(path, "w");
		if (id == 5)
			fprintf(m, "%" PRIu64, clock_wall_ms() - 1);
		fclose(m);
		fix_reopen(f);
		assert_state(f, id, REPLICA_RWR, 1001, 1000);
		assert_int_equal(access(path, F_OK), -1);
	}
}

/* A meta file alone is no replica for anybody; a Java DataNode takes a block file alone for one. */
static void a_move_that_fails_leaves_no_block_file_without_its_meta_file(void **state)
{
	struct fix *f = *state;
	char dir[400], path[512];
	int rc;

	make_finalized(f, 4, 1001, 1000); /* its directory is made */
	(void)snprintf(dir, sizeof(dir), "%s/current/%s/current/finalized/subdir0/subdir0",
		       f->vol[0], NS.pool_id);
	(void)snprintf(path, sizeof(path), "%s/blk_5_1001.meta", dir);
	assert_int_equal(mkdir(path, 0755), 0);
	rc = replica_finalize(make_rbw(f, 5, 1001, 1000), 1000, SYNC_NEVER, NULL, &f->err);
	assert_true(rc < 0);
	(void)snprintf(path, sizeof(path), "%s/blk_5", dir);
	assert_int_equal(access(path, F_OK), -1);
}

static void a_move_cut_short_leaves_one_whole_pair(void **state)
{
	struct fix *f = *state;
	char cmd[1024];

	make_finalized(f, 5, 1001, 1000);
	/* As after the two links of an append, or before the two unlinks of a finalize. */
	(void)snprintf(
		cmd, sizeof(cmd),
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
	(void)snprintf(
		cmd, sizeof(cmd),
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
	(void)snprintf(dir, sizeof(dir), "%s/current/%s/current/finalized/subdir0/subdir0",
		       f->vol[0], NS.pool_id);
	/* 5: the new meta file is there, the data not cut yet. 6: cut, the old meta not gone yet.
	 */
	(void)snprintf(
		cmd, sizeof(cmd),
		"cd %s && cp blk_7_1002.meta blk_5_1002.meta && cp blk_7_1002.meta blk_6_1002.meta "
		"&& truncate -s 700 blk_6",
		dir);
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
	assert_int_equal(replica_init_recovery(f->bp, &(struct block){9, 1, 1}, 1010, &i, &f->err),
			 -ENOENT);
	assert_int_equal(replica_init_recovery(f->bp, &b, 1001, &i, &f->err), -ESTALE);
	assert_int_equal(
		replica_init_recovery(f->bp, &(struct block){5, 1002, 0}, 1010, &i, &f->err),
		-ENODATA);
	assert_int_equal(replica_init_recovery(f->bp, &b, 1010, &i, &f->err), 0);
	assert_int_equal(i.state, REPLICA_RWR);
	assert_int_equal(i.block.len, 1700);
	assert_int_equal(replica_init_recovery(f->bp, &b, 1010, &i, &f->err), -EBUSY);
	assert_int_equal(replica_init_recovery(f->bp, &b, 1011, &i, &f->err), 0);
	assert_int_equal(replica_update_recovery(f->bp, &b, 1010, 1500, 0, uuid, &f->err), -ESTALE);
	assert_int_equal(replica_update_recovery(f->bp, &b, 1011, 1800, 0, uuid, &f->err), -EINVAL);
	/* it is not the replica that the recovery was told of */
	b.len = 1701;
	assert_int_equal(replica_update_recovery(f->bp, &b, 1011, 1500, 0, uuid, &f->err), -EINVAL);
	b = (struct block){5, 1000, 1700};
	assert_int_equal(replica_update_recovery(f->bp, &b, 1011, 1500, 0, uuid, &f->err), -EINVAL);
	b.gs = 1001;
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
	/* The NameNode has not heard of it, and asks again. */
	assert_int_equal(replica_init_recovery(f->bp, &b, 1011, &i, &f->err), 0);
	assert_int_equal(replica_update_recovery(f->bp, &b, 1011, 777, 66, uuid, &f->err), 0);
	assert_readable(f, 66, 1011, 777);
	/* No other block is written over. */
	make_finalized(f, 67, 1001, 900);
	assert_int_equal(replica_init_recovery(f->bp, &b, 1012, &i, &f->err), 0);
	assert_int_equal(replica_update_recovery(f->bp, &b, 1012, 512, 67, uuid, &f->err), -EEXIST);
	assert_readable(f, 67, 1001, 900);
	assert_int_equal(replica_init_recovery(f->bp, &b, 1013, &i, &f->err), 0);
	assert_int_equal(replica_update_recovery(f->bp, &b, 1013, 512, 0, uuid, &f->err), 0);
	assert_readable(f, 5, 1013, 512);
	fix_reopen(f);
	assert_readable(f, 5, 1013, 512);
	assert_readable(f, 66, 1011, 777);
	assert_readable(f, 67, 1001, 900);
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
				     .namespace_id = 164488965,
				     .ctime = 1795225043815};
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
		s->done[0] += !replica_finalize(w, len, SYNC_NEVER, NULL, NULL);
	(void)id;
}

/* Whatever a reader is given fits the pattern and its CRCs, up to the length it was told. */
static void stress_read(struct stress *s, int64_t id)
{
	struct replica_reader *r = NULL;
	uint8_t buf[4096];
	int rc;

	if (replica_read_open(s->f->bp, &(struct block){id, 0, 0}, &r, NULL))
		return;
	assert_true(r->block.len <= sizeof(buf));
	/* A recovery may have cut it since. */
	if (!file_read_full(r->fd, buf, r->block.len, 0)) {
		for (uint64_t i = 0; i < r->block.len; i++)
			assert_int_equal(buf[i], pattern(i));
		s->done[1]++;
	}
	rc = replica_read_refresh(r, NULL);
	assert_true(rc == 0 || rc == -ESTALE);
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
			stress_write(s, id, &q,
				     i.block.len + 100 < 4000 ? i.block.len + 100 : i.block.len);
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

struct crash_log {                                /* shared with the child: what it was promised */
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
		if (replica_finalize(w, len, SYNC_NEVER, NULL, &f->err))
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
			if (replica_finalize(w, len + 100, SYNC_NEVER, NULL, &f->err))
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
		if (log->finalized[k] == log->acked[k] + 1 &&
		    (k % 3 || i.state == REPLICA_FINALIZED))
			assert_readable(f, k, i.block.gs, i.block.len);
		if (i.state == REPLICA_RWR) {
			char uuid[BLOCK_UUID_MAX];

			assert_int_equal(replica_init_recovery(f->bp, &i.block, 3000, &i, &f->err),
					 0);
			assert_int_equal(replica_update_recovery(f->bp, &i.block, 3000,
								 log->acked[k], 0, uuid, &f->err),
					 0);
			assert_readable(f, k, 3000, log->acked[k]);
		}
	}
}

static void kill_at_any_moment_leaves_every_acknowledged_byte(void **state)
{
	struct fix *f = *state;
	struct crash_log *log =
		mmap(NULL, sizeof(*log), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
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
#define TC(name) cmocka_unit_test_setup_teardown(name, setup_closed, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_copy_that_repairs_a_pipeline_is_on_the_disk),
		T(an_unfinished_block_restarts_as_rwr_with_its_whole_chunks),
		T(a_crash_before_the_crc_of_a_longer_chunk_keeps_what_was_flushed),
		T(a_crash_between_two_writes_keeps_nothing_behind_the_hole),
		T(a_crash_between_two_writes_keeps_the_flushed_part_of_a_chunk),
		T(a_restart_marker_keeps_the_block_rbw),
		T(a_restart_marker_that_does_not_count_goes_away),
		T(a_move_that_fails_leaves_no_block_file_without_its_meta_file),
		T(a_move_cut_short_leaves_one_whole_pair),
		T(misplaced_and_orphan_files_are_handled),
		T(a_stamp_change_cut_short_finds_the_meta_file_that_fits),
		T(recovery_shortens_restamps_and_finalizes),
		T(recovery_of_a_finalized_block_can_truncate_or_copy_it),
		T(threads_that_fight_over_a_few_blocks_leave_a_sound_store),
		TC(the_directory_of_a_java_data_node_loads_as_it_reported_it),
		TC(kill_at_any_moment_leaves_every_acknowledged_byte),
	};

	log_init("store_crash_test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
