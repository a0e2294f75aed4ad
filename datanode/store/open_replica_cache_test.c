/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of files that stay open between reads: a reader sees the replica as it is when it
 * begins, whatever was done to it since the last one; a reader that has begun keeps what it has;
 * and what is gone is closed. */

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "common/base/log.h"

#include "datanode/store/store_test_blocks.h"

#define KEPT_MAX 4
#define DIRECT_LEN (STORE_DIRECT_MIN + 700) /* long enough for a third descriptor */

static int open_replica_setup(void **state)
{
	*state = fix_new(1, STORAGE_SSD);
	((struct fix *)*state)->opts.open_replicas = KEPT_MAX;
	return fix_open(*state);
}

static int open_replica_setup_two(void **state)
{
	*state = fix_new(2, STORAGE_SSD);
	((struct fix *)*state)->opts.open_replicas = KEPT_MAX;
	return fix_open(*state);
}

/* Descriptors of this process on files of that replica; @id 0: of any. */
static int open_files(const struct fix *f, int64_t id)
{
	char name[64], at[512], want[32];
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	int n = 0;

	assert_non_null(d);
	(void)snprintf(want, sizeof(want), "/blk_%" PRId64, id);
	while ((e = readdir(d))) {
		ssize_t len;
		const char *base;

		(void)snprintf(name, sizeof(name), "/proc/self/fd/%.20s", e->d_name);
		len = readlink(name, at, sizeof(at) - 1);
		at[len > 0 ? len : 0] = '\0';
		base = strrchr(at, '/');
		if (strncmp(at, f->dir, strlen(f->dir)) || !base || strncmp(base, "/blk_", 5))
			continue;
		n += !id || (!strncmp(base, want, strlen(want)) &&
			     (base[strlen(want)] < '0' || base[strlen(want)] > '9'));
	}
	closedir(d);
	return n;
}

/* That is a moment after a replica is forgotten. */
static void await_closed(const struct fix *f)
{
	for (int i = 0; i < 6000 && open_files(f, 0); i++)
		nanosleep(&(struct timespec){0, 10000000}, NULL);
	assert_int_equal(open_files(f, 0), 0);
}

static struct replica_reader *open_now(struct fix *f, int64_t id)
{
	static struct replica_reader rooms[64];
	static unsigned next;
	struct replica_reader *r = &rooms[next++ % 64];

	return replica_read_open_now(f->bp, &(struct block){id, BLOCK_GS_ANY, 0}, r) ? NULL : r;
}

static struct replica_reader *open_reader(struct fix *f, int64_t id)
{
	struct replica_reader *r = NULL;

	assert_int_equal(
		replica_read_open(f->bp, &(struct block){id, BLOCK_GS_ANY, 0}, &r, &f->err), 0);
	return r;
}

/* A finalized replica whose files are kept. */
static void make_kept(struct fix *f, int64_t id, uint64_t gs, uint64_t len)
{
	struct replica_reader *r;

	make_finalized(f, id, gs, len);
	assert_readable(f, id, gs, len);
	r = open_now(f, id);
	assert_non_null(r);
	assert_true(replica_read_close_now(r));
}

static void block_path(const struct fix *f, int64_t id, char path[512])
{
	(void)snprintf(path, 512, "%s/current/%s/current/finalized/subdir0/subdir0/blk_%" PRId64,
		       f->vol[0], NS.pool_id, id);
}

/* ---- what is kept ---- */

static void the_second_reader_takes_the_files_of_the_first(void **state)
{
	struct fix *f = *state;
	struct replica_reader *a, *b;

	make_finalized(f, 5, 1001, DIRECT_LEN);
	assert_null(open_now(f, 5));
	a = open_reader(f, 5);
	b = open_now(f, 5);
	assert_non_null(b);
	assert_int_equal(a->fd, b->fd);
	assert_int_equal(a->fd_meta, b->fd_meta);
	assert_int_equal(b->block.len, DIRECT_LEN);
	assert_int_equal(b->block.gs, 1001);
	assert_int_equal(b->state, REPLICA_FINALIZED);
	assert_int_equal(b->bytes_per_crc, 512);
	assert_string_equal(a->storage_uuid, b->storage_uuid);
	assert_int_equal(replica_read_refresh(b, &f->err), 0);
	assert_true(replica_read_close_now(a));
	replica_read_close(b);
	assert_readable(f, 5, 1001, DIRECT_LEN);
	assert_in_range(open_files(f, 5), 2, 3); /* a file system may refuse O_DIRECT */
	fix_close(f);
	assert_int_equal(open_files(f, 0), 0);
}

static void a_short_replica_takes_two_descriptors(void **state)
{
	struct fix *f = *state;

	make_kept(f, 5, 1001, 4096);
	assert_int_equal(open_files(f, 0), 2);
}

static void without_the_setting_nothing_stays_open(void **state)
{
	struct fix *f = *state;

	make_finalized(f, 5, 1001, 700);
	assert_readable(f, 5, 1001, 700);
	assert_null(open_now(f, 5));
	await_closed(f);
}

static void an_older_replica_than_asked_for_is_not_given(void **state)
{
	struct fix *f = *state;
	struct replica_reader room, *r = NULL;
	const struct block newer = {5, 1002, 0};

	make_kept(f, 5, 1001, 700);
	assert_int_equal(replica_read_open_now(f->bp, &newer, &room), -EAGAIN);
	assert_int_equal(replica_read_open(f->bp, &newer, &r, &f->err), -ESTALE);
}

static void a_replica_being_written_is_not_kept(void **state)
{
	struct fix *f = *state;
	struct replica_writer *w = make_rbw(f, 5, 1001, 700);
	struct replica_reader *r = open_reader(f, 5);

	assert_null(open_now(f, 5));
	assert_false(replica_read_close_now(r));
	assert_int_equal(replica_finalize(w, 700, SYNC_NEVER, NULL, &f->err), 0);
	assert_null(open_now(f, 5));
	assert_int_equal(replica_read_refresh(r, &f->err), 0);
	assert_int_equal(r->state, REPLICA_FINALIZED);
	replica_read_close(r);
	assert_readable(f, 5, 1001, 700);
	assert_non_null(r = open_now(f, 5));
	replica_read_close(r);
}

static void the_least_recently_used_make_room(void **state)
{
	struct fix *f = *state;
	struct replica_reader *r;

	for (int id = 1; id <= KEPT_MAX; id++)
		make_kept(f, id, 1001, 100);
	assert_int_equal(open_files(f, 0), 2 * KEPT_MAX);
	replica_read_close(open_now(f, 1)); /* used once more: 2 is the oldest now */
	r = open_now(f, 3);
	make_kept(f, 10, 1001, 100);
	assert_int_equal(open_files(f, 2), 0);
	assert_int_equal(open_files(f, 1), 2);
	make_kept(f, 11, 1001, 100);
	make_kept(f, 12, 1001, 100);
	make_kept(f, 13, 1001, 100);
	make_kept(f, 14, 1001, 100);
	assert_int_equal(open_files(f, 3), 2); /* in use, no longer in the table */
	assert_int_equal(open_files(f, 0), 2 * KEPT_MAX + 2);
	assert_null(open_now(f, 3));
	assert_false(replica_read_close_now(r));
	replica_read_close(r);
	assert_int_equal(open_files(f, 0), 2 * KEPT_MAX);
}

static void few_descriptors_keep_fewer_replicas(void **state)
{
	struct rlimit had, few;
	struct open_replica_cache k;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &had), 0);
	few = had;
	few.rlim_cur = 240;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(open_replica_init(&k, 1024), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &had), 0);
	assert_int_equal(k.max, 20);
	open_replica_fini(&k);
}

static void locked_pages_are_read_by_the_page_cache(void **state)
{
	struct fix *f = *state;
	struct replica_reader *r;

	make_kept(f, 5, 1001, DIRECT_LEN);
	replica_set_cached(f->bp, 5, true);
	assert_null(open_now(f, 5));
	r = open_reader(f, 5);
	assert_true(r->locked && r->fd_direct < 0);
	replica_read_close(r);
	r = open_now(f, 5);
	assert_true(r && r->locked && r->fd_direct < 0);
	replica_read_close(r);
	replica_set_cached(f->bp, 5, false);
	assert_null(open_now(f, 5));
	r = open_reader(f, 5);
	assert_false(r->locked);
	replica_read_close(r);
}

/* ---- what changes a replica ---- */

static void a_deleted_replica_is_closed_and_not_found(void **state)
{
	struct fix *f = *state;
	struct replica_reader *r = NULL;

	make_kept(f, 5, 1001, DIRECT_LEN);
	assert_int_equal(replica_invalidate(f->bp, &(struct block){5, 1001, 0}, false), 0);
	assert_null(open_now(f, 5));
	fix_wait_gone(f, 5);
	await_closed(f);
	assert_int_equal(replica_read_open(f->bp, &(struct block){5, 0, 0}, &r, &f->err), -ENOENT);
}

static void a_reader_of_a_deleted_replica_goes_on_and_is_the_last(void **state)
{
	struct fix *f = *state;
	struct replica_reader *r;
	uint8_t byte;

	make_kept(f, 5, 1001, 700);
	r = open_now(f, 5);
	assert_int_equal(replica_invalidate(f->bp, &(struct block){5, 1001, 0}, false), 0);
	fix_wait_gone(f, 5);
	assert_null(open_now(f, 5));
	assert_int_equal(file_read_full(r->fd, &byte, 1, 650), 0);
	assert_int_equal(byte, pattern(650));
	make_finalized(f, 5, 1002, 300); /* the id is free again */
	assert_readable(f, 5, 1002, 300);
	assert_int_equal(r->block.len, 700);
	assert_false(replica_read_close_now(r)); /* closing frees its blocks: that may take long */
	replica_read_close(r);
	assert_int_equal(open_files(f, 0), 2);
}

static void a_deleted_replica_that_goes_to_the_trash_is_closed(void **state)
{
	struct fix *f = *state;

	store_set_trash(f->bp, true);
	make_kept(f, 5, 1001, 700);
	assert_int_equal(replica_invalidate(f->bp, &(struct block){5, 1001, 0}, false), 0);
	fix_wait_gone(f, 5);
	assert_null(open_now(f, 5));
	assert_int_equal(open_files(f, 0), 0);
}

static void an_append_is_seen_by_the_next_reader(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(5, 1001);
	struct replica_writer *w = NULL;
	struct replica_reader *r;

	make_kept(f, 5, 1001, 700);
	q.stage = STAGE_APPEND;
	q.new_gs = 1002;
	q.min_bytes = 700;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	assert_null(open_now(f, 5));
	assert_readable(f, 5, 1002, 700);
	assert_null(open_now(f, 5));
	put_bytes(w, 512, 1500);
	assert_readable(f, 5, 1002, 1500);
	assert_int_equal(replica_finalize(w, 1500, SYNC_NEVER, NULL, &f->err), 0);
	assert_readable(f, 5, 1002, 1500);
	r = open_now(f, 5);
	assert_int_equal(r->block.len, 1500);
	replica_read_close(r);
}

/* The CRC that the handle holds is that of its last chunk, which is not whole. */
static bool holds_its_crc(const struct replica_reader *r)
{
	const uint64_t from = r->block.len / 512 * 512;
	const uint32_t n = (uint32_t)(r->block.len - from);
	uint8_t chunk[512];

	for (uint32_t i = 0; i < n; i++)
		chunk[i] = pattern(from + i);
	return !n || (r->crc_held && r->partial_crc == crc_compute(r->crc_type, chunk, n));
}

static void who_reads_while_somebody_appends_holds_the_crc_of_the_last_chunk(void **state)
{
	struct fix *f = *state;
	struct write_request q = create_request(5, 1001);
	struct replica_writer *w = NULL;
	struct replica_reader *r[3];

	make_finalized(f, 5, 1001, 700);
	r[0] = open_reader(f, 5); /* its own descriptors, that are kept; */
	r[1] = open_now(f, 5);    /* those */
	q.stage = STAGE_APPEND;
	q.new_gs = 1001; /* as clients in Go and Rust */
	q.min_bytes = 700;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	put_bytes(w, 512, 900);
	r[2] = open_reader(f, 5);
	assert_int_equal(r[2]->block.len, 900);
	put_bytes(w, 512, 1000);
	assert_int_equal(replica_finalize(w, 1000, SYNC_NEVER, NULL, &f->err), 0);
	for (int i = 0; i < 3; i++) {
		assert_true(holds_its_crc(r[i]));
		replica_read_close(r[i]);
	}
	make_finalized(f, 6, 1001, 1024);
	r[0] = open_reader(f, 6);
	assert_false(r[0]->crc_held);
	replica_read_close(r[0]);
}

static void a_recovery_that_shortens_is_seen_by_the_next_reader(void **state)
{
	struct fix *f = *state;
	const struct block b = {5, 1001, 500};
	struct replica_info i;
	char uuid[BLOCK_UUID_MAX];

	make_kept(f, 5, 1001, 1500);
	assert_int_equal(replica_init_recovery(f->bp, &b, 1010, &i, &f->err), 0);
	assert_null(open_now(f, 5));
	assert_readable(f, 5, 1001, 1500); /* until it is decided */
	assert_null(open_now(f, 5));
	assert_int_equal(replica_update_recovery(f->bp, &b, 1010, 777, 0, uuid, &f->err), 0);
	assert_null(open_now(f, 5));
	assert_readable(f, 5, 1010, 777);
}

/* ---- what was cut ---- */

static void recover_to(struct fix *f, int64_t id, uint64_t gs, uint64_t recovery_id, uint64_t len)
{
	const struct block b = {id, gs, 0};
	struct replica_info i;
	char uuid[BLOCK_UUID_MAX];

	assert_int_equal(replica_init_recovery(f->bp, &b, recovery_id, &i, &f->err), 0);
	assert_int_equal(replica_update_recovery(f->bp, &b, recovery_id, len, 0, uuid, &f->err), 0);
}

static void append_to(struct fix *f, int64_t id, uint64_t gs, uint64_t had, uint64_t len)
{
	struct write_request q = create_request(id, gs);
	struct replica_writer *w;

	q.stage = STAGE_APPEND;
	q.new_gs = gs + 1;
	q.min_bytes = had;
	assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
	put_bytes(w, had / 512 * 512, len);
	assert_int_equal(replica_finalize(w, len, SYNC_NEVER, NULL, &f->err), 0);
}

/* How much of the replica may be read by the stamp @gs. */
static uint64_t cut_to(struct fix *f, int64_t id, uint64_t gs)
{
	struct replica_reader *r;
	uint64_t to;

	assert_int_equal(replica_read_open(f->bp, &(struct block){id, gs, 0}, &r, &f->err), 0);
	to = r->cut_to;
	replica_read_close(r);
	return to;
}

static void a_cut_is_told_to_those_who_know_the_replica_by_an_older_stamp(void **state)
{
	struct fix *f = *state;
	struct replica_reader *before, *other, *own;

	make_kept(f, 5, 1001, 1500);
	make_kept(f, 6, 1001, 1500);
	before = open_now(f, 5);
	other = open_now(f, 6);
	recover_to(f, 5, 1001, 1010, 777);
	assert_false(replica_read_is_cut(before, 777));
	assert_true(replica_read_is_cut(before, 778)); /* before anything else is written there */
	append_to(f, 5, 1010, 777, 1500);
	assert_true(replica_read_is_cut(before, 778));
	assert_false(replica_read_is_cut(other, 1500));
	for (int i = 0; i < 2; i++) { /* its files are opened, and then kept */
		assert_int_equal(cut_to(f, 5, 1001), 777);
		assert_int_equal(cut_to(f, 5, 1009), 777);
		assert_true(cut_to(f, 5, 1010) == UINT64_MAX);
		assert_true(cut_to(f, 5, 1011) == UINT64_MAX);
		assert_true(cut_to(f, 5, BLOCK_GS_ANY) == UINT64_MAX);
		assert_true(cut_to(f, 6, 1001) == UINT64_MAX);
	}
	assert_int_equal(replica_read_open_own(f->bp, &(struct block){5, 1001, 0}, &own, &f->err),
			 -ENOTSUP);
	assert_int_equal(replica_read_open_own(f->bp, &(struct block){5, 1010, 0}, &own, &f->err),
			 0);
	replica_read_close(own);
	recover_to(f, 5, 1011, 1020, 1000);
	assert_int_equal(cut_to(f, 5, 1001), 777);
	assert_true(cut_to(f, 5, 1011) <= 1000);
	replica_read_close(before);
	replica_read_close(other);
	fix_reopen(f); /* what was before a restart is not known */
	assert_true(cut_to(f, 5, 1001) == UINT64_MAX);
}

static void an_append_is_no_cut(void **state)
{
	struct fix *f = *state;
	struct replica_reader *before;

	make_kept(f, 5, 1001, 700);
	before = open_now(f, 5);
	append_to(f, 5, 1001, 700, 1500);
	assert_false(replica_read_is_cut(before, 700));
	assert_true(cut_to(f, 5, 1001) == UINT64_MAX);
	replica_read_close(before);
}

/* Readers were not given what no writer was told to have been received by all. */
static void bytes_that_were_not_acknowledged_are_not_cut_off(void **state)
{
	struct fix *f = *state;

	for (int64_t id = 5; id <= 6; id++) {
		struct replica_writer *w = make_rbw(f, id, 1001, 1500);

		replica_publish(w, 1500, 1500, 1000, 0);
		replica_write_close(w, false);
	}
	recover_to(f, 5, 1001, 1010, 1200);
	assert_true(cut_to(f, 5, 1001) == UINT64_MAX);
	recover_to(f, 6, 1001, 1010, 900);
	assert_int_equal(cut_to(f, 6, 1001), 900);
}

static void a_replica_on_another_volume_is_opened_there(void **state)
{
	struct fix *f = *state;
	const struct block b = {5, 1001, 700};
	struct replica_reader *r, *old;
	struct replica_info i;

	make_kept(f, 5, 1001, 700);
	old = open_now(f, 5);
	assert_int_equal(fix_move(f, &b, STORAGE_SSD), 0);
	assert_null(open_now(f, 5));
	assert_int_equal(replica_get(f->bp, 5, &i), 0);
	r = open_reader(f, 5);
	assert_string_equal(r->storage_uuid, i.storage_uuid);
	assert_string_not_equal(r->storage_uuid, old->storage_uuid);
	replica_read_close(old);
	replica_read_close(r);
	assert_readable(f, 5, 1001, 700);
	assert_int_equal(open_files(f, 5), 2);
}

static void a_volume_out_of_service_is_closed(void **state)
{
	struct fix *f = *state;
	struct storage_info a;
	char cmd[512];

	make_kept(f, 5, 1001, 700);
	store_volume_info(f->s, 0, f->bp, &a);
	(void)snprintf(cmd, sizeof(cmd), "mv %s/current %s/gone", f->vol[0], f->vol[0]);
	assert_int_equal(system(cmd), 0);
	store_volume_suspect(f->s, a.uuid);
	assert_null(open_now(f, 5));
	assert_int_equal(open_files(f, 0), 0);
}

/* ---- behind our back ---- */

static void make_removed(struct fix *f, int64_t id, char path[512])
{
	make_kept(f, id, 1001, 700);
	block_path(f, id, path);
	assert_int_equal(unlink(path), 0);
}

static void a_file_that_somebody_removed_is_not_read(void **state)
{
	struct fix *f = *state;
	struct replica_reader *r = NULL;
	char path[512];

	make_removed(f, 5, path);
	assert_int_equal(replica_read_open(f->bp, &(struct block){5, 0, 0}, &r, &f->err), -ENOENT);
	assert_int_equal(f->seen.bad, 1);
	assert_int_equal(open_files(f, 0), 0);
}

static void a_fifo_in_its_place_is_not_waited_for(void **state)
{
	struct fix *f = *state;
	struct replica_reader *r = NULL;
	char path[512];

	make_removed(f, 5, path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(replica_read_open(f->bp, &(struct block){5, 0, 0}, &r, &f->err), -ENOENT);
	assert_int_equal(f->seen.bad, 1);
}

static void a_file_that_somebody_replaced_is_read_anew(void **state)
{
	struct fix *f = *state;
	struct replica_reader *r;
	char path[512], new[520];
	uint8_t bytes[700] = {1}, byte = 0;
	int fd;

	make_kept(f, 5, 1001, 700);
	block_path(f, 5, path);
	(void)snprintf(new, sizeof(new), "%s.new", path);
	fd = open(new, O_WRONLY | O_CREAT, 0644);
	assert_int_equal(file_write_full(fd, bytes, sizeof(bytes), 0), 0);
	close(fd);
	assert_int_equal(rename(new, path), 0);
	assert_null(open_now(f, 5));
	r = open_reader(f, 5);
	assert_int_equal(file_read_full(r->fd, &byte, 1, 0), 0);
	assert_int_equal(byte, 1);
	replica_read_close(r);
}

/* ---- all at once ---- */

#define CROWD_BLOCKS 6 /* more than are kept */
#define CROWD_ROUNDS 150

struct crowd {
	struct fix *f;
	atomic_bool over;
	atomic_uint reads, hits, wrong; /* asserts are for the test's own thread */
};

/* Each has a stamp and a length of its own. Who opens one that is being reopened for an append may
 * see the new stamp with the old length; such files are not kept. */
static bool is_whole(const struct replica_reader *r, bool hit)
{
	const uint64_t last = r->block.len - 1;
	uint8_t byte;

	return (!hit || r->block.len == 100 + r->block.gs) &&
	       !file_read_full(r->fd, &byte, 1, last) && byte == pattern(last) && holds_its_crc(r);
}

static void *crowd_reader(void *arg)
{
	struct crowd *c = arg;
	unsigned int seed = (unsigned int)(uintptr_t)&seed;

	while (!c->over) {
		const struct block b = {1 + rand_r(&seed) % CROWD_BLOCKS, BLOCK_GS_ANY, 0};
		struct replica_reader room, *r = &room;
		struct err err = ERR_INIT;
		bool hit = replica_read_open_now(c->f->bp, &b, &room) == 0;

		if (!hit && replica_read_open(c->f->bp, &b, &r, &err))
			continue; /* between deletion and creation */
		if (r->block.len && !is_whole(r, hit)) {
			print_error("blk_%" PRId64 "_%" PRIu64 ": %" PRIu64
				    " bytes, state %d, hit %d: wrong\n",
				    r->block.id, r->block.gs, r->block.len, (int)r->state, hit);
			c->wrong++;
		}
		c->reads++;
		c->hits += hit;
		if (!replica_read_close_now(r))
			replica_read_close(r);
	}
	return NULL;
}

static void readers_beside_appends_and_deletions_see_whole_replicas(void **state)
{
	struct crowd c = {.f = *state};
	struct fix *f = c.f;
	pthread_t readers[3];
	uint64_t gs = 1000;

	for (int id = 1; id <= CROWD_BLOCKS; id++, gs++)
		make_finalized(f, id, gs, 100 + gs);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&readers[i], NULL, crowd_reader, &c), 0);
	for (int i = 0; i < CROWD_ROUNDS || !c.hits; i++, gs++) {
		struct write_request q = create_request(1 + i % CROWD_BLOCKS, 0);
		struct replica_writer *w = NULL;
		struct replica_info info;

		assert_int_equal(replica_get(f->bp, q.block.id, &info), 0);
		if (i % 3 == 0) {
			assert_int_equal(replica_invalidate(f->bp, &info.block, false), 0);
			fix_wait_gone(f, q.block.id);
			make_finalized(f, q.block.id, gs, 100 + gs);
			continue;
		}
		q.stage = STAGE_APPEND;
		q.block.gs = info.block.gs;
		q.new_gs = gs;
		q.min_bytes = info.block.len;
		assert_int_equal(replica_write_open(f->bp, &q, &w, &f->err), 0);
		put_bytes(w, info.block.len / 512 * 512, 100 + gs);
		assert_int_equal(replica_finalize(w, 100 + gs, SYNC_NEVER, NULL, &f->err), 0);
	}
	c.over = true;
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_join(readers[i], NULL), 0);
	assert_int_equal(c.wrong, 0);
	assert_in_range(open_files(f, 0), 0, 2 * KEPT_MAX);
	fix_close(f);
	assert_int_equal(open_files(f, 0), 0);
}

#define K(name) cmocka_unit_test_setup_teardown(name, open_replica_setup, teardown)
#define K2(name) cmocka_unit_test_setup_teardown(name, open_replica_setup_two, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		K(the_second_reader_takes_the_files_of_the_first),
		K(a_short_replica_takes_two_descriptors),
		cmocka_unit_test_setup_teardown(without_the_setting_nothing_stays_open, setup,
						teardown),
		K(an_older_replica_than_asked_for_is_not_given),
		K(a_replica_being_written_is_not_kept),
		K(the_least_recently_used_make_room),
		cmocka_unit_test(few_descriptors_keep_fewer_replicas),
		K(locked_pages_are_read_by_the_page_cache),
		K(a_deleted_replica_is_closed_and_not_found),
		K(a_reader_of_a_deleted_replica_goes_on_and_is_the_last),
		K(a_deleted_replica_that_goes_to_the_trash_is_closed),
		K(an_append_is_seen_by_the_next_reader),
		K(who_reads_while_somebody_appends_holds_the_crc_of_the_last_chunk),
		K(a_recovery_that_shortens_is_seen_by_the_next_reader),
		K(a_cut_is_told_to_those_who_know_the_replica_by_an_older_stamp),
		K(an_append_is_no_cut),
		K(bytes_that_were_not_acknowledged_are_not_cut_off),
		K2(a_replica_on_another_volume_is_opened_there),
		K2(a_volume_out_of_service_is_closed),
		K(a_file_that_somebody_removed_is_not_read),
		K(a_fifo_in_its_place_is_not_waited_for),
		K(a_file_that_somebody_replaced_is_read_anew),
		K(readers_beside_appends_and_deletions_see_whole_replicas),
	};

	log_init("kept_test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
