/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: directories that others wrote, changed or broke are taken as they are or refused
 * with cause and cure, and in neither case is a byte lost; what happens to the files while the
 * store is open is found by its scanners. */

#include <fcntl.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/crc.h"

#include "datanode/store/store_test_fixture.h"

static int setup_n(void **state, uint32_t volumes)
{
	struct fix *f = fix_new(volumes, STORAGE_DISK);

	*state = f;
	assert_int_equal(fix_open(f), 0);
	return 0;
}

static int setup(void **state)
{
	return setup_n(state, 1);
}

static int setup_two(void **state)
{
	return setup_n(state, 2);
}

/* A shell line in the pool's current/ of the first volume. */
static void __attribute__((format(printf, 2, 3))) sh(const struct fix *f, const char *fmt, ...)
{
	char cmd[2048];
	va_list ap;
	int n = snprintf(cmd, sizeof(cmd), "cd %s/current/" POOL "/current && ", f->vol[0]);

	va_start(ap, fmt);
	(void)vsnprintf(cmd + n, sizeof(cmd) - (size_t)n, fmt, ap);
	va_end(ap);
	assert_int_equal(system(cmd), 0);
}

/* The two files of a block, as any other data node would write them, in @dir below current/. */
static void put_block(const struct fix *f, const char *dir, int64_t id, uint64_t gs, uint32_t len)
{
	uint8_t *data = malloc(len), crcs[4096], header[META_HEADER] = {0, 1, 2, 0, 0, 2, 0};
	char path[512];
	FILE *out;

	for (uint32_t i = 0; i < len; i++)
		data[i] = (uint8_t)((i + (uint32_t)id) % 251);
	sh(f, "mkdir -p %s", dir);
	(void)snprintf(path, sizeof(path), "%s/current/" POOL "/current/%s/blk_%" PRId64, f->vol[0],
		       dir, id);
	out = fopen(path, "w");
	assert_non_null(out);
	fwrite(data, 1, len, out);
	assert_int_equal(fclose(out), 0);
	(void)snprintf(path, sizeof(path),
		       "%s/current/" POOL "/current/%s/blk_%" PRId64 "_%" PRIu64 ".meta", f->vol[0],
		       dir, id, gs);
	crc_chunks(CRC_CRC32C, data, len, 512, crcs);
	out = fopen(path, "w");
	assert_non_null(out);
	fwrite(header, 1, sizeof(header), out);
	fwrite(crcs, 1, crc_bytes(CRC_CRC32C, len, 512), out);
	assert_int_equal(fclose(out), 0);
	free(data);
}

static void assert_whole(struct fix *f, int64_t id, uint64_t gs, uint32_t len)
{
	struct replica_reader *r = NULL;
	uint8_t byte;

	assert_int_equal(replica_read_open(f->bp, &(struct block){id, gs, 0}, &r, &f->err), 0);
	assert_int_equal(r->block.gs, gs);
	assert_int_equal(r->block.len, len);
	for (uint32_t i = 0; i < len; i += len / 7 + 1) {
		assert_int_equal(file_read_full(r->fd, &byte, 1, i), 0);
		assert_int_equal(byte, (i + (uint32_t)id) % 251);
	}
	replica_read_close(r);
	f->seen.bad = 0;
	replica_suspect(f->bp, &(struct block){id, gs, 0});
	assert_int_equal(f->seen.bad, 0);
}

static void assert_absent(struct fix *f, int64_t id)
{
	struct replica_info i;

	assert_int_equal(replica_get(f->bp, id, &i), -ENOENT);
}

static void assert_rwr(struct fix *f, int64_t id, uint64_t gs, uint64_t len)
{
	struct replica_info i;

	assert_int_equal(replica_get(f->bp, id, &i), 0);
	assert_int_equal(i.state, REPLICA_RWR);
	assert_int_equal(i.block.gs, gs);
	assert_int_equal(i.block.len, len);
}

/* Names, sizes and times of all files of the first volume. */
static uint64_t print_of(const struct fix *f)
{
	char cmd[256], line[600];
	uint64_t sum = 5381;
	FILE *p;

	(void)snprintf(cmd, sizeof(cmd),
		       "find %s ! -name in_use.lock -type f -printf '%%P %%s %%T@\\n' | sort",
		       f->vol[0]);
	p = popen(cmd, "r");
	assert_non_null(p);
	while (fgets(line, sizeof(line), p))
		for (const char *c = line; *c; c++)
			sum = sum * 33 + (uint8_t)*c;
	assert_int_equal(pclose(p), 0);
	return sum;
}

static void assert_refused(struct fix *f, const char *word, const char *cure)
{
	uint64_t before = print_of(f);

	assert_int_not_equal(fix_open(f), 0);
	if (!strstr(f->err.text, word) || !strstr(f->err.text, cure))
		fail_msg("'%s' and '%s' expected in: %s", word, cure, f->err.text);
	assert_true(before == print_of(f));
}

/* ---- other layouts of finalized/ ---- */

static void replicas_of_flat_and_deeper_layouts_move_home_and_are_read(void **state)
{
	struct fix *f = *state;
	const int64_t id = 0x10203; /* home: subdir1/subdir2 */

	fix_close(f);
	put_block(f, "finalized", id, 1001, 1000);
	put_block(f, "finalized", 0x77, 1001, 1000);                /* home: subdir0/subdir0, */
	put_block(f, "finalized/subdir0/subdir0", 0x78, 1001, 700); /* which is walked afterwards */
	put_block(f, "finalized/subdir63/subdir9/subdir3", 0x20304, 1002, 1300);
	put_block(f, "finalized/subdir200/subdir201", -9223372036854775792, 1003, 10);
	sh(f, "mkdir finalized/subdir7 && ln -s .. finalized/subdir7/subdir1"); /* a loop */
	assert_int_equal(fix_open(f), 0);
	for (int turn = 0; turn < 2; turn++) {
		assert_whole(f, id, 1001, 1000);
		assert_whole(f, 0x77, 1001, 1000);
		assert_whole(f, 0x78, 1001, 700);
		assert_whole(f, 0x20304, 1002, 1300);
		assert_whole(f, -9223372036854775792, 1003, 10);
		fix_close(f);
		assert_int_equal(fix_open(f), 0);
	}
	sh(f,
	   "test -f finalized/subdir1/subdir2/blk_%" PRId64 " && ! test -e finalized/blk_%" PRId64,
	   id, id);
}

static void a_misplaced_replica_whose_home_is_taken_stays(void **state)
{
	struct fix *f = *state;

	fix_close(f);
	put_block(f, "finalized/subdir0/subdir0", 5, 1001, 1000);
	put_block(f, "finalized/subdir9", 5, 1002, 1500);
	assert_int_equal(fix_open(f), 0);
	assert_whole(f, 5, 1001, 1000);
	sh(f, "test -f finalized/subdir9/blk_5 && test -f finalized/subdir9/blk_5_1002.meta");
}

static void an_unfinished_replica_in_a_directory_below_rbw_is_left_there(void **state)
{
	struct fix *f = *state;

	fix_close(f);
	put_block(f, "rbw/subdir3", 5, 1001, 1000);
	for (int turn = 0; turn < 2; turn++) {
		assert_int_equal(fix_open(f), 0);
		assert_absent(f, 5);
		fix_close(f);
		sh(f, "test -f rbw/subdir3/blk_5 && test -f rbw/subdir3/blk_5_1001.meta && "
		      "! test -e finalized/subdir0/subdir0/blk_5");
	}
	assert_int_equal(fix_open(f), 0);
}

static void what_a_ram_disk_s_copies_are_kept_in_is_loaded(void **state)
{
	struct fix *f = *state;

	fix_close(f);
	put_block(f, "lazypersist/subdir0/subdir0", 5, 1001, 1000);
	assert_int_equal(fix_open(f), 0);
	assert_whole(f, 5, 1001, 1000);
	sh(f, "test -f finalized/subdir0/subdir0/blk_5");
}

static void of_equal_replicas_the_one_on_a_disk_that_lasts_is_kept(void **state)
{
	struct fix *f = *state;
	struct replica_info i;

	for (int turn = 0; turn < 2; turn++) {
		fix_close(f);
		put_block(f, "finalized/subdir0/subdir0", 5, 1001, 1000);
		sh(f,
		   "rm -rf %s/current/" POOL
		   "/current/finalized && cp -r finalized %s/current/" POOL "/current/",
		   f->vol[1], f->vol[1]);
		f->type[turn] = STORAGE_RAM_DISK;
		f->type[1 - turn] = STORAGE_DISK;
		assert_int_equal(fix_open(f), 0);
		assert_int_equal(replica_get(f->bp, 5, &i), 0);
		assert_whole(f, 5, 1001, 1000);
		assert_string_equal(i.storage_uuid, f->s->volumes[!turn].uuid);
		assert_int_equal(replica_invalidate(f->bp, &(struct block){5, 1001, 0}, true), 0);
	}
}

static void copies_that_were_to_break_hard_links_are_settled(void **state)
{
	struct fix *f = *state;

	fix_close(f);
	put_block(f, "finalized/subdir0/subdir0", 5, 1001, 1000);
	put_block(f, "finalized/subdir0/subdir0", 6, 1001, 1000);
	sh(f,
	   "cd finalized/subdir0/subdir0 && mv blk_5 blk_5.unlinked && head -c 9 blk_6 >blk_6.unlinked");
	assert_int_equal(fix_open(f), 0);
	assert_whole(f, 5, 1001, 1000);
	assert_whole(f, 6, 1001, 1000);
	sh(f, "! ls finalized/subdir0/subdir0 | grep unlinked");
}

static void foreign_names_are_left_alone(void **state)
{
	struct fix *f = *state;

	put_block(f, "finalized/subdir0/subdir0", 5, 1001, 1000);
	fix_close(f);
	sh(f,
	   "touch finalized/subdir0/notes finalized/subdir0/subdir0/blk_x rbw/.DS_Store finalized/blk_5_1.meta.bak "
	   "finalized/subdir3 finalized/subdir0/subdir0/blk_99999999999999999999 ../dncp_block_verification.log.curr");
	assert_int_equal(fix_open(f), 0);
	assert_whole(f, 5, 1001, 1000);
	sh(f,
	   "ls finalized/subdir0/notes finalized/subdir0/subdir0/blk_x rbw/.DS_Store finalized/blk_5_1.meta.bak "
	   "finalized/subdir3 finalized/subdir0/subdir0/blk_99999999999999999999 ../dncp_block_verification.log.curr >/dev/null");
}

static void one_directory_seen_from_two_volumes_loses_nothing(void **state)
{
	struct fix *f = *state;

	put_block(f, "finalized/subdir0/subdir0", 5, 1001, 1000);
	fix_close(f);
	sh(f,
	   "cd %s/current/" POOL "/current/finalized && ln -s %s/current/" POOL
	   "/current/finalized/subdir0 subdir0",
	   f->vol[1], f->vol[0]);
	for (int turn = 0; turn < 2; turn++) {
		assert_int_equal(fix_open(f), 0);
		assert_whole(f, 5, 1001, 1000);
		fix_close(f);
	}
}

/* ---- files that cannot be read at a start ---- */

static void a_meta_file_that_cannot_be_opened_costs_no_byte(void **state)
{
	struct fix *f = *state;

	fix_close(f);
	put_block(f, "rbw", 5, 1001, 1000);
	put_block(f, "rbw", 6, 1002, 1000);
	put_block(f, "rbw", 6, 1001, 700);
	put_block(f, "rbw", 6, 1003, 1000);
	put_block(f, "finalized/subdir0/subdir0", 7, 1002, 1000);
	put_block(f, "finalized/subdir0/subdir0", 7, 1001, 1000);
	/* A name that leads to itself fails for every user, and not because the file is short. */
	sh(f, "for m in rbw/blk_5_1001 rbw/blk_6_1003 finalized/subdir0/subdir0/blk_7_1002; do "
	      "mv $m.meta $m.kept && ln -s ${m##*/}.meta $m.meta; done");
	assert_int_equal(fix_open(f), 0);
	for (int64_t id = 5; id < 8; id++)
		assert_absent(f, id);
	fix_close(f);
	sh(f,
	   "cd rbw && test -f blk_6_1001.meta && test -f blk_6_1002.meta && "
	   "test $(stat -c %%s blk_5) = 1000 && test $(stat -c %%s blk_6) = 1000 && "
	   "cd ../finalized/subdir0/subdir0 && test -f blk_7_1001.meta && test $(stat -c %%s blk_7) = 1000");
	sh(f, "for m in rbw/blk_5_1001 rbw/blk_6_1003 finalized/subdir0/subdir0/blk_7_1002; do "
	      "mv $m.kept $m.meta; done");
	assert_int_equal(fix_open(f), 0);
	assert_rwr(f, 5, 1001, 1000);
	assert_rwr(f, 6, 1003, 1000);
	assert_whole(f, 7, 1002, 1000);
}

static void a_start_short_of_file_descriptors_costs_no_byte(void **state)
{
	struct rlimit had, few;
	struct replica_info i;
	struct fix *f = *state;
	bool opened = false;

	fix_close(f);
	put_block(f, "rbw", 5, 1001, 1000);
	put_block(f, "rbw", 6, 1001, 700);
	put_block(f, "rbw", 6, 1002, 1000);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &had), 0);
	for (rlim_t n = 3; n < 64; n++) {
		few = (struct rlimit){.rlim_cur = n, .rlim_max = had.rlim_max};
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
		opened = !fix_open(f);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &had), 0);
		if (opened && !replica_get(f->bp, 5, &i) && !replica_get(f->bp, 6, &i))
			break;
		if (opened)
			fix_close(f);
		opened = false;
		sh(f,
		   "test $(stat -c %%s rbw/blk_5) = 1000 && test $(stat -c %%s rbw/blk_6) = 1000 && "
		   "test -f rbw/blk_6_1001.meta && test -f rbw/blk_6_1002.meta");
	}
	assert_true(opened);
	assert_rwr(f, 5, 1001, 1000);
	assert_rwr(f, 6, 1002, 1000);
}

/* ---- refusals ---- */

static void an_upgrade_that_is_not_over_is_refused_and_nothing_touched(void **state)
{
	static const char *const tmp[] = {"previous.tmp", "removed.tmp", "finalized.tmp",
					  "lastcheckpoint.tmp"};
	struct fix *f = *state;

	put_block(f, "finalized/subdir0/subdir0", 5, 1001, 1000);
	fix_close(f);
	for (int level = 0; level < 2; level++) {
		const char *at = level ? ".." : "../../..";

		sh(f, "mkdir %s/previous", at);
		assert_refused(f, level ? POOL "/previous" : "previous", "-finalizeUpgrade");
		sh(f, "rmdir %s/previous", at);
		for (size_t i = 0; i < sizeof(tmp) / sizeof(*tmp); i++) {
			sh(f, "mkdir %s/%s", at, tmp[i]);
			assert_refused(f, tmp[i], "hdfs datanode");
			sh(f, "rmdir %s/%s", at, tmp[i]);
		}
	}
	assert_int_equal(fix_open(f), 0);
	assert_whole(f, 5, 1001, 1000);
}

static void a_broken_version_file_is_refused_with_a_cure(void **state)
{
	static const struct {
		const char *make, *word, *cure;
	} cases[] = {
		{"rm VERSION", "missing", "storageID differs"},
		{": >VERSION", "no layoutVersion", "restore"},
		{"head -c 5000 /dev/urandom >VERSION", "damaged", "restore"},
		{"printf 'a=\\\\uzzzz\\n' >VERSION", "damaged", "restore"},
		{"sed -i s/DATA_NODE/NAME_NODE/ VERSION", "NAME_NODE", "dfs.datanode.data.dir"},
		{"sed -i s/-57/-56/ VERSION", "-56", "hdfs datanode"},
		{"sed -i s/-57/-55/ VERSION", "-55", "hdfs datanode"},
		{"sed -i s/-57/-58/ VERSION", "newer", "the software that made it"},
		{"sed -i s/-57/57x/ VERSION", "57x", "restore"},
		{"sed -i /storageID/d VERSION", "storageID", "restore"},
		{"sed -i s/CID-test/CID-other/ VERSION", "CID-other", "fs.defaultFS"},
	};
	struct fix *f = *state;

	put_block(f, "finalized/subdir0/subdir0", 5, 1001, 1000);
	fix_close(f);
	sh(f, "cp -p ../../VERSION ../../../keep");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		sh(f, "cd ../.. && %s", cases[i].make);
		assert_refused(f, cases[i].word, cases[i].cure);
		sh(f, "cp -p ../../../keep ../../VERSION");
	}
	assert_int_equal(fix_open(f), 0);
	assert_whole(f, 5, 1001, 1000);
}

static void a_broken_pool_version_file_is_refused_with_a_cure(void **state)
{
	static const struct {
		const char *make, *word, *cure;
	} cases[] = {
		{"rm VERSION", "missing", "namespaceID=7"},
		{"printf 'a=\\\\uzzzz\\n' >VERSION", "damaged", "restore"},
		{"sed -i s/namespaceID=7/namespaceID=8/ VERSION", "namespace 8", "fs.defaultFS"},
		{"sed -i s/cTime=99/cTime=98/ VERSION", "cTime 98", "-finalizeUpgrade"},
		{"sed -i s/cTime=99/cTime=100/ VERSION", "cTime 100", "-rollback"},
		{"sed -i s/-57/-56/ VERSION", "-56", "hdfs datanode"},
	};
	struct fix *f = *state;

	put_block(f, "finalized/subdir0/subdir0", 5, 1001, 1000);
	fix_close(f);
	sh(f, "cp -p VERSION ../../../keep");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		sh(f, "%s", cases[i].make);
		assert_refused(f, cases[i].word, cases[i].cure);
		sh(f, "cp -p ../../../keep VERSION");
	}
	assert_int_equal(fix_open(f), 0);
	assert_whole(f, 5, 1001, 1000);
}

static void a_copied_volume_is_refused(void **state)
{
	struct fix *f = *state;

	fix_close(f);
	sh(f, "cp ../../VERSION %s/current/VERSION", f->vol[1]);
	assert_refused(f, "same storageID", "remove the copy");
}

static void the_mode_of_the_configuration_is_set(void **state)
{
	struct fix *f = *state;
	struct stat st;

	fix_close(f);
	f->opts.dir_mode = 0750;
	assert_int_equal(fix_open(f), 0);
	assert_int_equal(stat(f->vol[0], &st), 0);
	assert_int_equal(st.st_mode & 07777, 0750);
}

/* ---- scanners ---- */

static void wait_for(const atomic_int *n, int want)
{
	for (int i = 0; i < 30000 && *n < want; i++)
		nanosleep(&(struct timespec){0, 2000000}, NULL);
	assert_int_equal(*n, want);
}

static void the_directory_scanner_finds_what_came_went_and_changed(void **state)
{
	struct fix *f = *state;
	struct storage_info i;

	fix_close(f);
	for (int64_t id = 1; id <= 40; id++)
		put_block(f, "finalized/subdir0/subdir0", id, 1001, 1000);
	f->opts.scan.directory_ms = 50;
	f->opts.scan.directory_ms_per_s = 900;
	assert_int_equal(fix_open(f), 0);
	sh(f, "cd finalized/subdir0/subdir0 && rm blk_1 blk_1_1001.meta blk_2");
	wait_for(&f->seen.deleted, 2);
	fix_wait_gone(f, 1);
	fix_wait_gone(f, 2);
	sh(f, "test -f finalized/subdir0/subdir0/blk_2_1001.meta"); /* for a person */
	put_block(f, "finalized/subdir0/subdir0", 77, 1005, 600);
	wait_for(&f->seen.received, 1);
	assert_whole(f, 77, 1005, 600);
	assert_int_equal(f->seen.bad, 0);
	sh(f, "cd finalized/subdir0/subdir0 && truncate -s 900 blk_3");
	wait_for(&f->seen.bad, 1); /* once: the map knows the new length now */
	sh(f, "cd finalized/subdir0/subdir0 && touch blk_500 && ln -s blk_4 blk_501");
	store_volume_info(f->s, 0, f->bp, &i);
	assert_int_equal(i.blocks, 39);
	assert_absent(f, 500);
	nanosleep(&(struct timespec){0, 300000000}, NULL);
	assert_int_equal(f->seen.deleted, 2);
	assert_int_equal(f->seen.received, 1);
	assert_int_equal(f->seen.bad, 1);
}

static void replicas_that_cannot_be_looked_at_are_not_gone(void **state)
{
	struct fix *f = *state;
	char dir[300], loop[300];

	(void)snprintf(dir, sizeof(dir), "%s/current/" POOL "/current/finalized/subdir0/subdir0",
		       f->vol[0]);
	(void)snprintf(loop, sizeof(loop), "%s/current/" POOL "/current/finalized/subdir0/kept",
		       f->vol[0]);
	fix_close(f);
	put_block(f, "finalized/subdir0/subdir0", 5, 1001, 1000);
	put_block(f, "finalized/subdir0/subdir1", 0x105, 1001, 1000);
	f->opts.scan.directory_ms = 20;
	assert_int_equal(fix_open(f), 0);
	/* A directory that leads to itself: an error for every user. At no moment is there none of
	 * the name. */
	assert_int_equal(symlink("subdir0", loop), 0);
	assert_int_equal(renameat2(AT_FDCWD, loop, AT_FDCWD, dir, RENAME_EXCHANGE), 0);
	sh(f, "rm finalized/subdir0/subdir1/blk_261");
	wait_for(&f->seen.deleted, 1);
	nanosleep(&(struct timespec){0, 300000000}, NULL);
	assert_int_equal(f->seen.deleted, 1);
	fix_wait_gone(f, 0x105);
	assert_int_equal(renameat2(AT_FDCWD, loop, AT_FDCWD, dir, RENAME_EXCHANGE), 0);
	assert_whole(f, 5, 1001, 1000);
	assert_int_equal(f->seen.bad, 0);
}

static void a_replica_without_its_meta_file_is_reported(void **state)
{
	struct fix *f = *state;

	fix_close(f);
	f->opts.scan.directory_ms = 20;
	put_block(f, "finalized/subdir0/subdir0", 5, 1001, 1000);
	assert_int_equal(fix_open(f), 0);
	sh(f, "rm finalized/subdir0/subdir0/blk_5_1001.meta");
	for (int i = 0; i < 30000 && !f->seen.bad; i++)
		nanosleep(&(struct timespec){0, 2000000}, NULL);
	assert_true(f->seen.bad > 0);
}

static void scan_opts(struct fix *f, uint64_t period_ms, uint64_t rate)
{
	f->opts.scan = (struct store_scan_opts){
		.block_ms = period_ms, .block_rate = rate, .cursor_save_ms = 600000};
}

static void flip(const struct fix *f, int64_t id)
{
	sh(f,
	   "printf X | dd of=finalized/subdir0/subdir0/blk_%" PRId64
	   " bs=1 seek=600 conv=notrunc status=none",
	   id);
}

static void the_block_scanner_finds_a_corrupt_replica_that_nobody_reads(void **state)
{
	struct fix *f = *state;

	fix_close(f);
	for (int64_t id = 1; id <= 20; id++)
		put_block(f, "finalized/subdir0/subdir0", id, 1001, 1000);
	flip(f, 7);
	sh(f, "truncate -s 8 finalized/subdir0/subdir0/blk_9_1001.meta");
	sh(f,
	   "printf '\\0\\2' | dd of=finalized/subdir0/subdir0/blk_11_1001.meta conv=notrunc status=none");
	scan_opts(f, 3600000, 100 << 20);
	assert_int_equal(fix_open(f), 0);
	wait_for(&f->seen.bad, 3);
	sh(f,
	   "for i in $(seq 300); do grep -qs '\"atEnd\" : true' ../scanner.cursor && exit; sleep 0.2; done; exit 1");
	/* The period is not over: a restart does not read again. */
	fix_close(f);
	assert_int_equal(fix_open(f), 0);
	nanosleep(&(struct timespec){1, 300000000}, NULL);
	assert_int_equal(f->seen.bad, 3);
}

static void the_block_scanner_goes_on_behind_a_java_node_s_cursor(void **state)
{
	struct fix *f = *state;

	fix_close(f);
	for (int64_t id = 1; id <= 9; id++)
		put_block(f, "finalized/subdir0/subdir0", id, 1001, 1000);
	flip(f, 2); /* before the cursor */
	flip(f, 8); /* behind it */
	sh(f,
	   "printf '{\\n  \"lastSavedMs\" : 5,\\n  \"iterStartMs\" : 4,\\n  \"curFinalizedDir\" : \"subdir0\",\\n"
	   "  \"curFinalizedSubDir\" : \"subdir0\",\\n  \"curEntry\" : \"blk_5\",\\n  \"atEnd\" : false\\n}' >../scanner.cursor");
	scan_opts(f, UINT64_C(1) << 50, 100 << 20);
	assert_int_equal(fix_open(f), 0);
	wait_for(&f->seen.bad, 1);
	nanosleep(&(struct timespec){0, 200000000}, NULL);
	assert_int_equal(f->seen.bad, 1);
}

static void the_block_scanner_goes_on_behind_its_own_cursor_in_any_directory(void **state)
{
	struct fix *f = *state;
	int n = 0;

	fix_close(f);
	for (int64_t a = 0; a < 32; a += 3)
		for (int64_t b = 0; b < 32; b += 7, n += 2) {
			char dir[64];

			(void)snprintf(dir, sizeof(dir), "finalized/subdir%d/subdir%d", (int)a,
				       (int)b);
			put_block(f, dir, a << 16 | b << 8 | 9, 1001, 100);
			put_block(f, dir, a << 16 | b << 8 | 200, 1001, 100);
			sh(f,
			   "cd %s && for b in blk_*[0-9]; do printf XXXX | dd of=$b bs=1 seek=9 conv=notrunc status=none; done",
			   dir);
		}
	scan_opts(f, UINT64_C(1) << 50, 2000); /* 20 replicas a second */
	assert_int_equal(fix_open(f), 0);
	for (int i = 0; i < 30000 && f->seen.bad < n / 3; i++)
		nanosleep(&(struct timespec){0, 2000000}, NULL);
	fix_close(f);
	assert_in_range(f->seen.bad, n / 3, n - 1);
	scan_opts(f, UINT64_C(1) << 50, 100 << 20);
	assert_int_equal(fix_open(f), 0);
	sh(f,
	   "for i in $(seq 300); do grep -qs '\"atEnd\" : true' ../scanner.cursor && exit; sleep 0.2; done; exit 1");
	/* Each once; the one at which it was stopped perhaps twice. */
	assert_in_range(f->seen.bad, n, n + 1);
}

static void the_block_scanner_keeps_its_rate_and_ends_at_once(void **state)
{
	struct fix *f = *state;
	uint64_t start;

	fix_close(f);
	for (int64_t id = 1; id <= 9; id++)
		put_block(f, "finalized/subdir0/subdir0", id, 1001, 1000);
	flip(f, 9);
	scan_opts(f, 1, 300); /* 27 s until the last one */
	assert_int_equal(fix_open(f), 0);
	nanosleep(&(struct timespec){5, 0}, NULL);
	assert_int_equal(f->seen.bad, 0);
	start = clock_mono_ns();
	fix_close(f);
	assert_true(clock_mono_ns() - start < 10 * NS_PER_S);
	sh(f,
	   "grep -q '\"atEnd\" : false' ../scanner.cursor && grep -q 'curEntry\" : \"blk_[1-8]\"' ../scanner.cursor");
}

static void a_cursor_from_the_future_or_of_nonsense_does_not_stop_the_scan(void **state)
{
	struct fix *f = *state;

	put_block(f, "finalized/subdir0/subdir0", 5, 1001, 1000);
	flip(f, 5);
	for (int turn = 0; turn < 2; turn++) {
		fix_close(f);
		f->seen.bad = 0;
		if (turn)
			sh(f, "head -c 9000 /dev/urandom >../scanner.cursor");
		else
			sh(f,
			   "echo '{ \"iterStartMs\" : 99999999999999, \"atEnd\" : true }' >../scanner.cursor");
		scan_opts(f, 1, 100 << 20);
		assert_int_equal(fix_open(f), 0);
		for (int i = 0; i < 30000 && !f->seen.bad; i++)
			nanosleep(&(struct timespec){0, 2000000}, NULL);
		assert_true(f->seen.bad > 0);
	}
}

/* ---- rolling upgrades ---- */

static void deleted_blocks_go_to_the_trash_until_it_is_emptied(void **state)
{
	struct fix *f = *state;

	fix_close(f);
	put_block(f, "finalized/subdir0/subdir0", 5, 1001, 1000);
	put_block(f, "finalized/subdir0/subdir0", 6, 1001, 1000);
	assert_int_equal(fix_open(f), 0);
	store_set_trash(f->bp, true);
	assert_int_equal(replica_invalidate(f->bp, &(struct block){5, 1001, 0}, false), 0);
	wait_for(&f->seen.deleted, 1);
	fix_wait_gone(f, 5);
	sh(f,
	   "test -f ../trash/finalized/subdir0/subdir0/blk_5 && "
	   "test -f ../trash/finalized/subdir0/subdir0/blk_5_1001.meta && ! test -e finalized/subdir0/subdir0/blk_5");
	fix_close(f);
	assert_int_equal(fix_open(f), 0); /* stays over a restart */
	assert_absent(f, 5);
	sh(f, "test -f ../trash/finalized/subdir0/subdir0/blk_5");
	store_set_trash(f->bp, false);
	sh(f, "for i in 1 2 3 4 5 6 7 8 9; do test -e ../trash || exit 0; sleep 0.2; done; exit 1");
	assert_int_equal(replica_invalidate(f->bp, &(struct block){6, 1001, 0}, false), 0);
	wait_for(&f->seen.deleted, 2);
	sh(f, "! test -e ../trash");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define T2(name) cmocka_unit_test_setup_teardown(name, setup_two, teardown)
	const struct CMUnitTest tests[] = {
		T(replicas_of_flat_and_deeper_layouts_move_home_and_are_read),
		T(a_misplaced_replica_whose_home_is_taken_stays),
		T(an_unfinished_replica_in_a_directory_below_rbw_is_left_there),
		T(what_a_ram_disk_s_copies_are_kept_in_is_loaded),
		T2(of_equal_replicas_the_one_on_a_disk_that_lasts_is_kept),
		T(copies_that_were_to_break_hard_links_are_settled),
		T(foreign_names_are_left_alone),
		T2(one_directory_seen_from_two_volumes_loses_nothing),
		T(a_meta_file_that_cannot_be_opened_costs_no_byte),
		T(a_start_short_of_file_descriptors_costs_no_byte),
		T(an_upgrade_that_is_not_over_is_refused_and_nothing_touched),
		T(a_broken_version_file_is_refused_with_a_cure),
		T(a_broken_pool_version_file_is_refused_with_a_cure),
		T2(a_copied_volume_is_refused),
		T(the_mode_of_the_configuration_is_set),
		T(the_directory_scanner_finds_what_came_went_and_changed),
		T(replicas_that_cannot_be_looked_at_are_not_gone),
		T(a_replica_without_its_meta_file_is_reported),
		T(the_block_scanner_finds_a_corrupt_replica_that_nobody_reads),
		T(the_block_scanner_goes_on_behind_a_java_node_s_cursor),
		T(the_block_scanner_goes_on_behind_its_own_cursor_in_any_directory),
		T(the_block_scanner_keeps_its_rate_and_ends_at_once),
		T(a_cursor_from_the_future_or_of_nonsense_does_not_stop_the_scan),
		T(deleted_blocks_go_to_the_trash_until_it_is_emptied),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
