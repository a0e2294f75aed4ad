/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold when the end of a write meets a cluster in trouble: a publication that was done
 * unheard, or cut short, is made good by the next try and by the next mount; a file is as its last
 * writer left it, whichever blocks it shares with the one before; bytes that are missing are told.
 */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fuse/content/content_test_fixture.h"

/* ---- a mount with one file ---- */

#define LENGTH (3 * BLOCK + 100)

static struct mount m;
static struct inode *in;
static uint8_t want[ROOM]; /* what is to be in the file */
static uint64_t want_length;
static char dir_path[64];
static struct dfs_err err;

static int setup(void **state)
{
	const struct dfs_stat dir = {.type = DFS_DIR, .file_id = DIR_ID};
	struct file *f;

	(void)state;
	memset(&hdfs, 0, sizeof(hdfs));
	memset(&early, 0, sizeof(early));
	memset(&m, 0, sizeof(m));
	f = add("f", LENGTH);
	memset(want, 0, sizeof(want));
	for (uint32_t i = 0; i < LENGTH; i++)
		want[i] = f->bytes[i] = (uint8_t)(i * 7 + i / BLOCK + 1);
	want_length = LENGTH;
	snprintf(dir_path, sizeof(dir_path), "/tmp/content_test.XXXXXX");
	assert_non_null(mkdtemp(dir_path));
	m.state.dir = open(dir_path, O_RDONLY | O_DIRECTORY);
	m.budget.limit = ROOM;
	m.opt.timeout_s = 1;
	m.opt.streams = 8;
	list_init(&m.streams);
	assert_int_equal(inodes_init(&m.inodes), 0);
	assert_non_null(inode_enter(&m.inodes, &dir, 1, 0, NULL, 0));
	in = inode_enter(&m.inodes,
			 &(struct dfs_stat){.type = DFS_FILE, .file_id = f->id, .length = LENGTH},
			 0, 1, "f", 0);
	assert_non_null(in);
	return 0;
}

static int teardown(void **state)
{
	struct inode *dir = inode_get(&m.inodes, 1);

	(void)state;
	overlay_free(in->ov);
	in->ov = NULL;
	free(in->w); /* of a test that has failed */
	in->w = NULL;
	in->w_user = NULL;
	inode_put(&m.inodes, in);
	inode_put(&m.inodes, dir);
	inode_put(&m.inodes, dir);
	inodes_fini(&m.inodes);
	(void)close(m.state.dir);
	return rmdir(dir_path);
}

static void change(const char *bytes, uint64_t at)
{
	if (!in->ov)
		assert_int_equal(begin_overlay(&m, in, &user, &err), 0);
	assert_int_equal(overlay_write(in->ov, bytes, strlen(bytes), at), 0);
	memcpy(want + at, bytes, strlen(bytes));
}

static void set_length(uint64_t length)
{
	if (!in->ov)
		assert_int_equal(begin_overlay(&m, in, &user, &err), 0);
	assert_int_equal(overlay_truncate(in->ov, length), 0);
	if (length < want_length)
		memset(want + length, 0, ROOM - length);
	want_length = length;
}

/* There is one file, as it is to be. */
static const struct file *published(const char *name)
{
	const struct file *found = NULL;

	for (uint32_t i = 0; i < hdfs.files; i++) {
		if (hdfs.file[i].gone)
			continue;
		assert_null(found);
		found = &hdfs.file[i];
	}
	assert_non_null(found);
	assert_string_equal(found->name, name);
	assert_int_equal(found->length, want_length);
	assert_memory_equal(found->bytes, want, want_length);
	assert_int_equal(in->id, found->id);
	return found;
}

/* The overlay as the next mount would find it, were this one killed now. */
static struct overlay *as_written_down(void)
{
	struct overlay *found;

	assert_int_equal(overlay_load(m.state.dir, m.state.next_file, &m.budget, &found), 0);
	return found;
}

/* ---- publications ---- */

static void a_file_has_the_length_it_was_given(void **state)
{
	static const uint64_t lengths[] = {BLOCK + 100, 2 * BLOCK, 3 * BLOCK + 1,
					   LENGTH + 5,  4 * BLOCK, 5 * BLOCK + 7};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		for (int whole = 0; whole < 2; whole++) {
			m.whole_files = whole;
			set_length(lengths[i]);
			assert_int_equal(publish_locked(&m, in, &err), 0);
			(void)published("f");
			(void)teardown(state);
			(void)setup(state);
		}
}

static void a_publication_done_unheard_is_made_good_by_the_next(void **state)
{
	(void)state;
	for (int whole = 0; whole < 2; whole++) {
		m.whole_files = whole;
		change("new", BLOCK + 7);
		fail_at(whole ? "rename" : "replace_blocks", -ETIMEDOUT, true);
		assert_int_equal(publish_locked(&m, in, &err), -ETIMEDOUT);
		change("and more", 2 * BLOCK - 3);
		assert_int_equal(publish_locked(&m, in, &err), 0);
		(void)published("f");
		(void)teardown(state);
		(void)setup(state);
	}
}

static void look_for_new_id(void)
{
	struct overlay *now = as_written_down();

	assert_int_equal(overlay_new_id(now), hdfs.file[hdfs.files - 1].id);
	assert_false(overlay_is_changed_since(now));
	overlay_leave(now);
}

static void the_new_file_is_written_down_before_it_takes_the_place(void **state)
{
	static const char *const calls[] = {"replace_blocks", "rename"};

	(void)state;
	for (int whole = 0; whole < 2; whole++) {
		m.whole_files = whole;
		change("new", BLOCK + 7);
		look_at(calls[whole], look_for_new_id);
		assert_int_equal(publish_locked(&m, in, &err), 0);
		assert_null(hdfs.call);
		(void)published("f");
		overlay_free(in->ov);
		in->ov = NULL;
	}
}

static void others_change_its_rights(void)
{
	snprintf(hdfs.file[0].owner, sizeof(hdfs.file[0].owner), "bob");
	hdfs.file[0].mode = 0600;
}

static void rights_that_change_while_a_file_is_copied_are_kept(void **state)
{
	const struct file *f;

	(void)state;
	m.whole_files = true;
	change("new", BLOCK + 7);
	look_at("close", others_change_its_rights); /* of the copy */
	assert_int_equal(publish_locked(&m, in, &err), 0);
	f = published("f");
	assert_string_equal(f->owner, "bob");
	assert_int_equal(f->mode, 0600);
}

static void look_for_all_that_is_cut(void)
{
	struct overlay *now = as_written_down();

	assert_true(overlay_is_cut(now)); /* or the next mount takes the cut for somebody else's */
	overlay_leave(now);
	fail_at("append", -ETIMEDOUT, false);
}

static void a_rewrite_that_is_cut_short_is_finished_by_the_next_mount(void **state)
{
	(void)state;
	change("new", BLOCK + 7);
	snprintf(hdfs.file[0].name, sizeof(hdfs.file[0].name), "moved"); /* by another client */
	look_at("truncate", look_for_all_that_is_cut);
	assert_int_equal(publish_locked(&m, in, &err), -ETIMEDOUT);
	assert_null(hdfs.call);
	assert_int_equal(hdfs.file[0].length, BLOCK);
	overlay_leave(in->ov);
	in->ov = as_written_down();
	assert_int_equal(publish_locked(&m, in, &err), 0);
	(void)published("moved");
}

/* ---- fsync and close ---- */

static void a_sync_of_an_append_covers_what_was_there_before(void **state)
{
	struct handle h = {.in = in, .user = &user};

	(void)state;
	for (int known = 0; known < 2; known++) {
		in->early_by = known ? BY_UID(8) : BY_ANYBODY;
		memset(&early, 0, sizeof(early));
		assert_int_equal(append_locked(&m, in, &user, &err), 0);
		early.rc = -ETIMEDOUT;
		assert_int_equal(content_sync(&m, &h, &err), -ETIMEDOUT);
		early.rc = 0;
		for (int i = 0; i < 2; i++) /* the second owes nothing any more */
			assert_int_equal(content_sync(&m, &h, &err), 0);
		assert_int_equal(known ? early.all : early.of_file, 2);
		assert_int_equal(early.all + early.of_file, 2);
		assert_int_equal(content_flush(&m, &h, CLOSER_OPENER, &err), 0);
	}
}

static void bytes_that_are_missing_after_a_close_that_failed_are_told(void **state)
{
	static const struct {
		uint64_t there;
		int rc;
	} rows[] = {{LENGTH - 1, -EIO}, {0, -EIO}, {LENGTH, 0}, {LENGTH + 1, -EIO}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct handle h = {.in = in, .user = &user};

		assert_int_equal(append_locked(&m, in, &user, &err), 0);
		fail_at("close", -ETIMEDOUT, true);
		assert_int_equal(content_flush(&m, &h, CLOSER_OPENER, &err), -ETIMEDOUT);
		hdfs.file[0].length = rows[i].there;
		assert_int_equal(content_sync(&m, &h, &err), rows[i].rc);
		assert_int_equal(content_sync(&m, &h, &err), 0); /* once */
		(void)teardown(state);
		(void)setup(state);
	}
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(a_file_has_the_length_it_was_given),
		CASE(a_publication_done_unheard_is_made_good_by_the_next),
		CASE(the_new_file_is_written_down_before_it_takes_the_place),
		CASE(rights_that_change_while_a_file_is_copied_are_kept),
		CASE(a_rewrite_that_is_cut_short_is_finished_by_the_next_mount),
		CASE(a_sync_of_an_append_covers_what_was_there_before),
		CASE(bytes_that_are_missing_after_a_close_that_failed_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
