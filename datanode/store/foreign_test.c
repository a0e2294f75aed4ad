/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: directories that others wrote, changed or broke are taken as they are or refused
 * with cause and cure, and in neither case is a byte lost. */
#include <sys/resource.h>
#include <sys/stat.h>

#include "datanode/store/foreign_test_fixture.h"

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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
