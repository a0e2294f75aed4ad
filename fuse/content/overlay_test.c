/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: an overlay reads as a plain file would that had the same changes made to it, and
 * does so again when it is loaded from what it has written down, whatever of the record was torn;
 * its budget is what its extents hold. */
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

#include "common/base/test_random.h"
#include "fuse/content/overlay.h"

#define ROOM 65536
#define ROUNDS 3000

/* A plain file with the same changes. */
struct model {
	uint8_t base[ROOM], is[ROOM];
	uint64_t length;
};

struct world {
	char path[64];
	int dir;
	struct overlay_budget budget;
	struct overlay *o;
	struct model m;
};

/* ---- writes to the record that come to an end in the middle of a line ---- */

static ssize_t short_write = -1; /* the next write(2) takes so many bytes */
ssize_t __real_write(int fd, const void *buf, size_t len);
ssize_t __wrap_write(int fd, const void *buf, size_t len);

ssize_t __wrap_write(int fd, const void *buf, size_t len)
{
	if (short_write >= 0 && (size_t)short_write < len) {
		len = (size_t)short_write;
		short_write = -1;
	}
	return __real_write(fd, buf, len);
}

/* ---- the world ---- */

static int read_base(void *arg, void *buf, size_t len, uint64_t offset)
{
	const struct world *w = arg;

	assert_true(offset + len <= ROOM);
	memcpy(buf, w->m.base + offset, len);
	return 0;
}

static void world_init(struct world *w, uint64_t length)
{
	const struct overlay_of of = {.id = 16390, .length = length, .mtime_ms = 5, .name = "f"};

	snprintf(w->path, sizeof(w->path), "/tmp/overlay_test.XXXXXX");
	assert_non_null(mkdtemp(w->path));
	w->dir = open(w->path, O_RDONLY | O_DIRECTORY);
	assert_true(w->dir >= 0);
	w->budget = (struct overlay_budget){.limit = 4 * ROOM};
	w->m.length = length;
	for (size_t i = 0; i < ROOM; i++)
		w->m.base[i] = (uint8_t)(i * 7 + 3);
	memset(w->m.is, 0, ROOM);
	memcpy(w->m.is, w->m.base, length);
	assert_int_equal(overlay_new(w->dir, 1, &w->budget, &of, &w->o), 0);
}

static void world_fini(struct world *w)
{
	overlay_free(w->o);
	assert_int_equal(w->budget.used, 0);
	(void)close(w->dir);
	assert_int_equal(rmdir(w->path), 0); /* both files went with it */
}

static void reload(struct world *w)
{
	const uint64_t used = w->budget.used;

	overlay_leave(w->o);
	assert_int_equal(w->budget.used, 0);
	assert_int_equal(overlay_load(w->dir, 1, &w->budget, &w->o), 0);
	assert_int_equal(w->budget.used, used);
}

static void assert_same(struct world *w, uint64_t offset, size_t len)
{
	uint8_t got[ROOM];
	const size_t want = offset >= w->m.length        ? 0
			    : len < w->m.length - offset ? len
							 : (size_t)(w->m.length - offset);

	assert_int_equal(overlay_length(w->o), w->m.length);
	assert_int_equal(overlay_read(w->o, got, len, offset, read_base, w), want);
	assert_memory_equal(got, w->m.is + offset, want);
}

static void change(struct world *w, uint64_t offset, size_t len, uint8_t with)
{
	uint8_t buf[ROOM];

	memset(buf, with, len);
	assert_int_equal(overlay_write(w->o, buf, len, offset), 0);
	memset(w->m.is + offset, with, len);
	if (len && offset + len > w->m.length)
		w->m.length = offset + len;
}

static void cut(struct world *w, uint64_t length)
{
	assert_int_equal(overlay_truncate(w->o, length), 0);
	if (length < w->m.length)
		memset(w->m.is + length, 0, w->m.length - length);
	w->m.length = length;
}

static void zero(struct world *w, uint64_t offset, size_t len)
{
	const uint64_t end = offset + len < w->m.length ? offset + len : w->m.length;

	assert_int_equal(overlay_zero(w->o, offset, len), 0);
	if (offset < end)
		memset(w->m.is + offset, 0, end - offset);
}

/* ---- tests ---- */

static void it_reads_as_a_plain_file_would(void **state)
{
	struct world w;

	(void)state;
	test_random_begin();
	world_init(&w, 40000);
	for (int i = 0; i < ROUNDS; i++) {
		const uint64_t at = random_below(ROOM - 2000);
		const size_t len = random_below(2000);

		switch (random_below(i % 100 ? 8 : 10)) {
		case 0:
			zero(&w, at, len);
			break;
		case 8:
		case 9:
			cut(&w, at);
			break;
		default:
			change(&w, at, len, (uint8_t)(1 + random_below(255)));
		}
		if (random_below(50) == 0)
			reload(&w);
		assert_same(&w, at > 1000 ? at - 1000 : 0, len + 3000);
	}
	assert_same(&w, 0, ROOM);
	reload(&w);
	assert_same(&w, 0, ROOM);
	world_fini(&w);
}

static void what_was_cut_does_not_come_back(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1000);
	change(&w, 300, 200, 'a'); /* [300, 500) */
	cut(&w, 400);
	cut(&w, 1000); /* longer again: zeros */
	assert_same(&w, 0, 1000);
	assert_int_equal(w.budget.used, 100);
	reload(&w);
	assert_same(&w, 0, 1000);
	zero(&w, 0, 100); /* where the base still counts */
	assert_same(&w, 0, 1000);
	world_fini(&w);
}

static void extents_that_touch_are_one(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1000);
	change(&w, 100, 50, 'a');
	change(&w, 200, 50, 'b');
	change(&w, 300, 100, 'c');
	assert_true(overlay_is_changed(w.o, 120, 210)); /* for parts of it are */
	assert_false(overlay_is_changed(w.o, 150, 200));
	change(&w, 150, 200, 'd'); /* touches the first, covers the second, ends in the third */
	assert_int_equal(w.budget.used, 300);
	assert_int_equal(overlay_first_change(w.o), 100);
	assert_same(&w, 0, 1000);
	reload(&w);
	assert_same(&w, 0, 1000);
	world_fini(&w);
}

/* Bytes that come from the last to the first: they would be more extents than a file may have. */
static void extents_that_touch_at_their_ends_are_one(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 0);
	for (uint64_t at = OVERLAY_EXTENTS_MAX + 1; at-- > 0;)
		assert_int_equal(overlay_write(w.o, "x", 1, at), 0);
	assert_int_equal(w.budget.used, OVERLAY_EXTENTS_MAX + 1);
	world_fini(&w);
}

static void beyond_the_budget_nothing_changes(void **state)
{
	uint8_t buf[2000] = {1};
	struct world w;

	(void)state;
	world_init(&w, 1000);
	w.budget.limit = 1500;
	change(&w, 0, 1000, 'a');
	assert_int_equal(overlay_write(w.o, buf, 2000, 500), -ENOSPC);
	assert_int_equal(w.budget.used, 1000);
	assert_same(&w, 0, ROOM);
	change(&w, 1000, 500, 'b'); /* all of it is there still */
	assert_same(&w, 0, ROOM);
	world_fini(&w);
}

/* The disk of the record is full: the change is refused, costs nothing, and the next one is not
 * written behind half a line. */
static void half_a_line_is_taken_back(void **state)
{
	const uint8_t b[20] = "12345678901234567890";
	struct world w;

	(void)state;
	world_init(&w, 100);
	change(&w, 10, 20, 'a');
	short_write = 4;
	assert_int_equal(overlay_write(w.o, b, 20, 50), -ENOSPC);
	assert_int_equal(w.budget.used, 20);
	short_write = 2;
	assert_int_equal(overlay_truncate(w.o, 5), -ENOSPC);
	change(&w, 60, 20, 'b');
	reload(&w);
	assert_same(&w, 0, 10);
	assert_same(&w, 10, 40);
	/* the bytes that were refused may be there, as after any write that failed; what was
	 * written before and after them is */
	assert_same(&w, 60, 40);
	world_fini(&w);
}

/* The same for a record that was loaded: its lines stay. */
static void half_a_line_behind_a_loaded_record_is_taken_back(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 100);
	change(&w, 10, 20, 'a');
	reload(&w);
	short_write = 2;
	assert_int_equal(overlay_note_new(w.o, 77), -ENOSPC);
	reload(&w);
	assert_same(&w, 0, 100);
	assert_int_equal(overlay_note_new(w.o, 78), 0);
	reload(&w);
	assert_int_equal(overlay_new_id(w.o), 78);
	assert_same(&w, 0, 100);
	world_fini(&w);
}

/* A machine that went down in the middle of a line: what follows is not written behind it. */
static void a_torn_line_ends_the_record(void **state)
{
	struct world w;
	int fd;

	(void)state;
	world_init(&w, 100);
	change(&w, 10, 20, 'a');
	fd = openat(w.dir, "1.log", O_WRONLY | O_APPEND);
	assert_int_equal(write(fd, "w 40 6", 6), 6);
	(void)close(fd);
	reload(&w);
	assert_same(&w, 0, 100);
	assert_int_equal(overlay_note_cut(w.o), 0);
	reload(&w);
	assert_true(overlay_is_cut(w.o));
	assert_same(&w, 0, 100);
	world_fini(&w);
}

static void nonsense_is_refused(void **state)
{
	static const char *const line[] = {"w 9 9\n",
					   "w 10 9\n",
					   "w 1 9223372036854775808\n",
					   "t 9223372036854775808\n",
					   "x\n",
					   "w 5\n",
					   "\n"};
	struct world w;

	(void)state;
	for (size_t i = 0; i < sizeof(line) / sizeof(*line); i++) {
		struct overlay *other;
		int fd;

		world_init(&w, 100);
		change(&w, 10, 20, 'a');
		fd = openat(w.dir, "1.log", O_WRONLY | O_APPEND);
		assert_int_equal(write(fd, line[i], strlen(line[i])), strlen(line[i]));
		(void)close(fd);
		assert_int_equal(overlay_load(w.dir, 1, &w.budget, &other), -EINVAL);
		assert_int_equal(w.budget.used, 20); /* what was loaded of it is given back */
		world_fini(&w);
	}
}

/* What was written after it was published must be told from what was published, also when it is
 * the same bytes of the file once more. */
static void a_change_after_its_publication_is_recorded(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, 1000);
	change(&w, 300, 200, 'a');
	assert_int_equal(overlay_note_new(w.o, 77), 0);
	reload(&w);
	assert_false(overlay_is_changed_since(w.o));
	change(&w, 310, 20, 'b');
	reload(&w);
	assert_int_equal(overlay_new_id(w.o), 77);
	assert_true(overlay_is_changed_since(w.o));
	assert_int_equal(overlay_note_new(w.o, 78), 0);
	cut(&w, 900);
	reload(&w);
	assert_true(overlay_is_changed_since(w.o));
	assert_int_equal(overlay_note_new(w.o, 79), 0);
	assert_false(overlay_is_changed_since(w.o));
	assert_int_equal(overlay_note_cut(w.o), 0);
	reload(&w);
	assert_true(overlay_is_changed_since(w.o));
	assert_same(&w, 0, 1000);
	world_fini(&w);
}

/* A publication of which only a later try hears that it was done. */
static void the_new_file_becomes_the_base(void **state)
{
	const struct overlay_of *of;
	struct world w;

	(void)state;
	world_init(&w, 1000);
	change(&w, 300, 200, 'a');
	cut(&w, 400);
	change(&w, 1100, 100, 'b');
	memcpy(w.m.base, w.m.is, ROOM);
	assert_int_equal(overlay_note_new(w.o, 77), 0);
	change(&w, 2000, 100, 'c');
	reload(&w);
	assert_int_equal(overlay_take_new(w.o, 9), 0);
	for (int i = 0; i < 2; i++) {
		of = overlay_base(w.o);
		assert_int_equal(of->id, 77);
		assert_int_equal(of->length, 1200);
		assert_int_equal(of->mtime_ms, 9);
		assert_int_equal(overlay_new_id(w.o), 0);
		assert_false(overlay_is_changed_since(w.o));
		assert_same(&w, 0, 3000);
		reload(&w);
	}
	world_fini(&w);
}

/* A record that has grown long is written anew, and says the same. */
static void a_long_record_is_shortened(void **state)
{
	const bool published = *state != NULL;
	struct world w;
	off_t longest = 0, now = 0;
	int fd;

	world_init(&w, 1000);
	change(&w, 300, 200, 'a');
	cut(&w, 400);
	assert_int_equal(overlay_note_cut(w.o), 0);
	if (published)
		assert_int_equal(overlay_note_new(w.o, 77), 0);
	fd = openat(w.dir, "1.log", O_RDONLY);
	for (int i = 0; now >= longest; i++) {
		longest = now;
		assert_true(i < 2000000);
		/* lines of 21 bytes; no byte of such a file is ever there */
		assert_int_equal(overlay_truncate(w.o, INT64_MAX - (i & 1) - 1), 0);
		if (i % 1024)
			continue;
		(void)close(fd);
		fd = openat(w.dir, "1.log", O_RDONLY);
		now = lseek(fd, 0, SEEK_END);
	}
	(void)close(fd);
	assert_true(now < 100000);
	assert_int_equal(overlay_truncate(w.o, 1000), 0);
	w.m.length = 1000;
	assert_same(&w, 0, 1000);
	reload(&w);
	assert_true(overlay_is_cut(w.o));
	assert_int_equal(overlay_new_id(w.o), published ? 77 : 0);
	assert_int_equal(overlay_is_changed_since(w.o), published);
	if (published) {
		assert_int_equal(overlay_take_new(w.o, 9), 0);
		assert_int_equal(overlay_base(w.o)->length, 400); /* what it was then */
	}
	assert_int_equal(overlay_first_change(w.o), 300);
	assert_same(&w, 0, 1000);
	world_fini(&w);
}

int main(void)
{
	static int published;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_reads_as_a_plain_file_would),
		cmocka_unit_test(what_was_cut_does_not_come_back),
		cmocka_unit_test(extents_that_touch_are_one),
		cmocka_unit_test(extents_that_touch_at_their_ends_are_one),
		cmocka_unit_test(beyond_the_budget_nothing_changes),
		cmocka_unit_test(half_a_line_is_taken_back),
		cmocka_unit_test(half_a_line_behind_a_loaded_record_is_taken_back),
		cmocka_unit_test(a_torn_line_ends_the_record),
		cmocka_unit_test(nonsense_is_refused),
		cmocka_unit_test(a_change_after_its_publication_is_recorded),
		cmocka_unit_test(the_new_file_becomes_the_base),
		cmocka_unit_test(a_long_record_is_shortened),
		{.name = "a_long_record_of_a_published_one_is_shortened",
		 .test_func = a_long_record_is_shortened,
		 .initial_state = &published},
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
