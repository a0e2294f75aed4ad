/* SPDX-License-Identifier: Apache-2.0 */
/* client_api_test - libdfsclient against any cluster: ours or Apache's
 *
 *   client_api_test [--stock-namenode] [--long]
 *
 * HADOOP_CONF_DIR names the cluster (without it: skipped). Everything happens below
 * /tmp/client_api_test.<pid>, which is removed at the end. Prints PASS/FAIL lines; exit 0, 1, 77.
 * Threads, and nodes that die: client_faults_test.c. */
#include "lib/client_api_fixture.h"

static void sizes(void)
{
	static const uint64_t size[] = {
		0,           1,      511, 512,    513,           64 * KI - 1,    64 * KI,
		64 * KI + 1, MI - 1, MI,  MI + 1, 3 * BLOCK + 7, 5 * BLOCK - 513};
	static const size_t piece[] = {700, 70000, 3000000};
	struct dfs_err err = {0};

	for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		const size_t p = size[i] < 100000 ? piece[i % 2] : piece[1 + i % 2];
		struct dfs_stat st = {0};
		int rc = put(at("size"), size[i], p, i, &err);

		rc = rc ? rc : dfs_stat(fs, at("size"), &st, &err);
		check(rc == 0 && st.length == size[i], "put of %llu bytes: %s",
		      (unsigned long long)size[i], rc ? err.text : "length right");
		rc = rc ? rc : get(at("size"), size[i], piece[(i + 1) % 3], i, &err);
		rc = rc ? rc : pread_some(at("size"), size[i], 30, i, &err);
		check(rc == 0, "get and random preads of %llu bytes: %s",
		      (unsigned long long)size[i], rc ? err.text : "identical");
		rc = dfs_delete(fs, at("size"), false, &err);
		if (rc)
			expect(rc, 0, &err, "delete");
	}
}

/* Lent bytes behind whole and broken chunks, at the end of a block, behind a flush and behind what
 * others have begun. */
static void lent_bytes(void)
{
	static const size_t piece[] = {BLOCK - 512, 1024, MI,  MI,       600 * KI + 1,   MI - 1,
				       511,         MI,   513, 300 * KI, 2 * BLOCK + 100};
	struct dfs_err err = {0};
	struct dfs_file *f;
	uint64_t off = 0;
	int rc = create(at("lent"), &f, &err);

	for (int turn = 0; rc == 0 && turn < 2; turn++) {
		for (size_t i = 0; rc == 0 && i < sizeof(piece) / sizeof(piece[0]); i++) {
			rc = write_lent(f, off, piece[i], 21, &err) < 0 ? err.rc : 0;
			off += piece[i];
			if (rc == 0 && (i + (size_t)turn) % 4 == 3)
				rc = dfs_flush(f, &err);
		}
		rc = rc ? rc : dfs_close(f, &err);
		rc = rc ? rc : get(at("lent"), off, 300000, 21, &err);
		if (turn == 0)
			rc = rc ? rc : dfs_append(fs, at("lent"), 0, &f, &err);
	}
	expect(rc, 0, &err, "lent bytes");
	check(atomic_load(&lent) == 0, "%d lent pieces were not given back", atomic_load(&lent));
	rc = dfs_open(fs, at("lent"), &f, &err);
	expect(rc, 0, &err, "open");
	check(write_lent(f, 0, MI, 21, &err) == -EBADF && atomic_load(&lent) == 0,
	      "lent to a file that is open for reading");
	dfs_close(f, NULL);
}

/* The first block comes with the file, and its answer before the disk has it, where the NameNode
 * knows how; what is seen is the same. */
static void first_block(unsigned int flags)
{
	static const uint64_t size[] = {0, 1, 64 * KI + 1, BLOCK, 2 * BLOCK + 7};
	struct dfs_err err = {0};

	create_flags = flags;
	for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		struct dfs_stat st = {0};
		int rc = put(at("first"), size[i], 70000, i, &err);

		rc = rc ? rc : dfs_stat(fs, at("first"), &st, &err);
		rc = rc ? rc : get(at("first"), size[i], 70000, i, &err);
		rc = rc ? rc : dfs_wait_closed(fs, at("first"), 0, &err);
		check(rc == 0 && st.length == size[i], "%llu bytes with a first block: %s",
		      (unsigned long long)size[i], rc ? err.text : "identical");
		expect(put(at("first"), 1, 1, i, &err), -EEXIST, &err,
		       "a first block for a file that is there");
		expect(dfs_delete(fs, at("first"), false, &err), 0, &err, "delete");
	}
	create_flags = 0;
}

/* What may be lost with the NameNode's machine, and what makes sure of it. */
static void early(void)
{
	struct dfs_err err = {0};
	struct dfs_file *f;
	struct dfs_stat st;
	char name[64];
	int rc;

	create_flags = DFS_CREATE_EARLY;
	rc = create(at("early"), &f, &err);
	rc = rc ? rc : dfs_stat(fs, at("early"), &st, &err);
	rc = rc ? rc : dfs_hsync(f, &err);
	rc = rc ? rc : dfs_sync_early(fs, &err);
	rc = rc ? rc : write_range(f, 0, BLOCK, 100000, 6, &err);
	rc = rc ? rc : dfs_hsync(f, &err); /* a whole block: all of it is closed */
	rc = rc ? rc : dfs_close(f, &err);
	rc = rc ? rc : get(at("early"), BLOCK, 100000, 6, &err);
	check(rc == 0, "created early, synced, written: %s", rc ? err.text : "identical");
	rc = create(at("early2"), &f, &err);
	rc = rc ? rc : dfs_delete(fs, at("early2"), false, &err);
	expect(rc, 0, &err, "deleted while it is new");
	if (!rc) {
		/* as when a crash has undone it; a NameNode that has waited for its disk is not
		 * asked */
		rc = dfs_hsync(f, &err);
		check(rc == -ESTALE || rc == 0, "hsync asks where it must: %d", rc);
		expect(dfs_close(f, &err), -ESTALE, &err, "close tells");
	}
	create_flags = DFS_CREATE_EARLY | DFS_CREATE_CLOSE_EARLY | DFS_CREATE_FIRST_BLOCK;
	rc = 0;
	for (int i = 0; rc == 0 && i < 1100; i += 1099) { /* more than are remembered */
		for (int k = 0; rc == 0 && k <= i; k++) {
			snprintf(name, sizeof(name), "early-%d-%d", i, k);
			rc = put(at(name), 9, 9, 7, &err);
		}
		rc = rc ? rc : get(at(name), 9, 9, 7, &err);
		rc = rc ? rc : dfs_append(fs, at(name), 0, &f, &err);
		rc = rc ? rc : write_range(f, 9, BLOCK + 9, 70000, 7, &err);
		rc = rc ? rc : dfs_close(f, &err);
		rc = rc ? rc : get(at(name), BLOCK + 9, 70000, 7, &err);
		rc = rc ? rc : dfs_sync_early(fs, &err);
		check(rc == 0, "%d closed early: %s", i + 1, rc ? err.text : "and appended to");
	}
	create_flags = DFS_CREATE_EARLY | DFS_CREATE_OVERWRITE;
	rc = put(at("early"), 5, 5, 7, &err);
	rc = rc ? rc : get(at("early"), 5, 5, 7, &err);
	check(rc == 0, "a file replaced: %s", rc ? err.text : "identical");
	expect(dfs_delete(fs, at("early"), false, &err), 0, &err, "delete");
	create_flags = 0;
}

static void seek_and_tell(void)
{
	struct dfs_err err = {0};
	struct dfs_file *f;
	uint8_t buf[1000];
	int rc = put(at("seek"), 2 * BLOCK + 5000, 100000, 9, &err);

	rc = rc ? rc : dfs_open(fs, at("seek"), &f, &err);
	if (rc) {
		expect(rc, 0, &err, "seek: set-up");
		return;
	}
	rc = dfs_read(f, buf, 10, &err) == 10 && dfs_seek(f, BLOCK - 5, &err) == 0 &&
	     dfs_read(f, buf, 1000, &err) == 1000 && same(buf, BLOCK - 5, 1000, 9) &&
	     dfs_tell(f) == BLOCK + 995 && dfs_seek(f, 3, &err) == 0 &&
	     dfs_read(f, buf, 1000, &err) == 1000 && same(buf, 3, 1000, 9) &&
	     dfs_seek(f, 100 * BLOCK, &err) == 0 && dfs_read(f, buf, 1, &err) == 0 &&
	     dfs_write(f, buf, 1, &err) == -EBADF;
	check(rc, "seek and tell across blocks");
	dfs_close(f, NULL);
}

/* What a second opener sees after each flush. */
static int reader_sees(const char *path, struct dfs_file *old, uint64_t size, struct dfs_err *err)
{
	uint8_t *buf = malloc(size + 1);
	ssize_t n = dfs_pread(old, buf, size + 1, 0, err);
	int rc = get(path, size, 100000, 5, err);

	if (rc == 0 && (n != (ssize_t)size || !same(buf, 0, size, 5)))
		rc = snprintf(err->text, sizeof(err->text), "old reader: %zd", n) ? -EIO : 0;
	free(buf);
	return rc;
}

static void flush_is_visible(void)
{
	static const uint64_t to[] = {300,   300,       512,   1000,      1001,
				      70000, BLOCK - 1, BLOCK, BLOCK + 3, 2 * BLOCK + 700};
	struct dfs_err err = {0};
	struct dfs_file *f, *r;
	uint64_t from = 0;
	int rc = create(at("flush"), &f, &err);

	rc = rc ? rc : dfs_open(fs, at("flush"), &r, &err);
	for (size_t i = 0; i < sizeof(to) / sizeof(to[0]) && rc == 0; i++) {
		rc = write_range(f, from, to[i], 50000, 5, &err);
		rc = rc ? rc : i % 2 ? dfs_hsync(f, &err) : dfs_flush(f, &err);
		rc = rc ? rc : reader_sees(at("flush"), r, to[i], &err);
		check(rc == 0, "%s at %llu bytes is visible: %s", i % 2 ? "hsync" : "flush",
		      (unsigned long long)to[i], rc ? err.text : "to an old and a new reader");
		from = to[i];
	}
	rc = rc ? rc : write_range(f, from, from + 99, 10, 5, &err);
	rc = rc ? rc : dfs_close(f, &err);
	rc = rc ? rc : get(at("flush"), from + 99, 5000, 5, &err);
	check(rc == 0, "a file with many flushes is whole after close %s", rc ? err.text : "");
	dfs_close(r, NULL);
}

/* Put @from bytes, then append up to @to in steps, with flushes between. */
static int append_steps(const char *path, uint64_t from, uint64_t to, uint64_t step, uint32_t flags,
			struct dfs_err *err)
{
	struct dfs_file *f;
	int rc = put(path, from, 70000, 5, err);

	while (rc == 0 && from < to) {
		const uint64_t end = from + step < to ? from + step : to;

		rc = dfs_append(fs, path, flags, &f, err);
		if (rc < 0)
			break;
		if (dfs_tell(f) != from)
			rc = snprintf(err->text, sizeof(err->text), "begins at %llu",
				      (unsigned long long)dfs_tell(f))
				     ? -EIO
				     : 0;
		rc = rc ? rc : write_range(f, from, from + (end - from) / 2, 30000, 5, err);
		rc = rc ? rc : dfs_sync(f, from % 3 ? DFS_SYNC_DISK : 0, err);
		rc = rc ? rc : write_range(f, from + (end - from) / 2, end, 30000, 5, err);
		if (rc == 0)
			rc = dfs_close(f, err);
		else
			dfs_close(f, NULL);
		from = end;
	}
	return rc;
}

static void append(void)
{
	static const uint64_t size[][3] = {/* at first, in the end, step */
					   {0, 3000, 1},
					   {1, 1500, 100},
					   {511, 513, 1},
					   {100, 70000, 511},
					   {512, 5120, 512},
					   {BLOCK - 1, BLOCK + 2, 1},
					   {BLOCK, 2 * BLOCK, BLOCK},
					   {700, 3 * BLOCK + 7, 400000}};
	struct dfs_err err = {0};
	struct dfs_blocks *b = NULL;
	struct dfs_file *f;
	int rc;

	for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		/* many small steps are many calls: a few of them show as much */
		const uint64_t end = size[i][2] < 600 && size[i][1] - size[i][0] > 20 * size[i][2]
					     ? size[i][0] + 20 * size[i][2]
					     : size[i][1];

		rc = append_steps(at("append"), size[i][0], end, size[i][2], 0, &err);
		rc = rc ? rc : get(at("append"), end, 100000, 5, &err);
		check(rc == 0, "from %llu to %llu bytes by %llu: %s",
		      (unsigned long long)size[i][0], (unsigned long long)end,
		      (unsigned long long)size[i][2], rc ? err.text : "identical");
		dfs_delete(fs, at("append"), false, NULL);
	}
	rc = append_steps(at("append"), 10, 40, 10, DFS_APPEND_NEW_BLOCK, &err);
	rc = rc ? rc : get(at("append"), 40, 100, 5, &err);
	rc = rc ? rc : dfs_blocks(fs, at("append"), 0, 40, &b, &err);
	check(rc == 0 && b->count == 4, "every append in a block of its own: %s",
	      rc ? err.text : "");
	dfs_blocks_free(b);
	expect(dfs_append(fs, at("none"), 0, &f, &err), -ENOENT, &err, "append to nothing");
	expect(dfs_append(fs, dir, 0, &f, &err), -EISDIR, &err, "append to a directory");
	rc = dfs_append(fs, at("made"), DFS_APPEND_CREATE, &f, &err);
	rc = rc ? rc : dfs_close(f, &err);
	expect(rc, 0, &err, "append that makes the file");
}

/* The lease of one client is taken by another. */
static void leases(void)
{
	struct dfs_err err = {0};
	struct dfs *other;
	struct dfs_file *f, *g;
	bool closed = true;
	int rc = dfs_connect(NULL, &other, &err);

	rc = rc ? rc : create(at("lease"), &f, &err);
	rc = rc ? rc : write_range(f, 0, 100000, 5000, 6, &err);
	rc = rc ? rc : dfs_flush(f, &err);
	rc = rc ? rc : dfs_is_closed(other, at("lease"), &closed, &err);
	check(rc == 0 && !closed, "a file that is written is not closed: %s", rc ? err.text : "");
	expect(dfs_append(other, at("lease"), 0, &g, &err), -EBUSY, &err,
	       "append by a second client");
	rc = dfs_recover_lease(other, at("lease"), &closed, &err);
	rc = rc || closed ? rc : dfs_wait_closed(other, at("lease"), 60000, &err);
	expect(rc, 0, &err, "the second client takes the file over");
	rc = dfs_close(f, &err);
	check(rc == -ESTALE, "the first one hears of it: %d %s", rc, err.text);
	expect(get(at("lease"), 100000, 5000, 6, &err), 0, &err, "what was flushed is there");
	rc = dfs_append(other, at("lease"), 0, &g, &err);
	rc = rc ? rc : write_range(g, 100000, 100100, 50, 6, &err);
	rc = rc ? rc : dfs_close(g, &err);
	rc = rc ? rc : get(at("lease"), 100100, 5000, 6, &err);
	expect(rc, 0, &err, "and can be appended to");
	dfs_disconnect(other);
}

static void cut_and_join(void)
{
	static const uint64_t length[] = {3 * BLOCK, 2 * BLOCK, BLOCK + 5000, BLOCK + 4999, 513, 0};
	char name[2][256]; /* at() forgets */
	const char *sources[] = {name[0], name[1]};
	struct dfs_err err = {0};
	bool done = false;
	int rc = put(at("cut"), 3 * BLOCK, 70000, 8, &err);

	for (size_t i = 0; i < sizeof(length) / sizeof(length[0]); i++) {
		rc = rc ? rc : dfs_truncate(fs, at("cut"), length[i], &done, &err);
		rc = rc || done ? rc : dfs_wait_closed(fs, at("cut"), 60000, &err);
		rc = rc ? rc : get(at("cut"), length[i], 70000, 8, &err);
		check(rc == 0, "cut to %llu: %s", (unsigned long long)length[i],
		      rc ? err.text : "identical");
	}
	expect(dfs_truncate(fs, at("cut"), 1, &done, &err), -EINVAL, &err,
	       "cut to more than there is");
	expect(dfs_truncate(fs, dir, 0, &done, &err), -EISDIR, &err, "cut a directory");
	rc = put(at("join0"), 1000, 1000, 9, &err);
	snprintf(name[0], sizeof(name[0]), "%s", at("join1"));
	snprintf(name[1], sizeof(name[1]), "%s", at("join2"));
	for (int i = 0; i < 2 && rc == 0; i++) { /* the same pattern goes on in the next file */
		struct dfs_file *f;

		rc = create(sources[i], &f, &err);
		rc = rc ? rc : write_range(f, 1000 + 2000 * i, 3000 + 2000 * i, 500, 9, &err);
		rc = rc ? rc : dfs_close(f, &err);
	}
	rc = rc ? rc : dfs_concat(fs, at("join0"), sources, 2, &err);
	rc = rc ? rc : get(at("join0"), 5000, 700, 9, &err);
	expect(rc, 0, &err, "three files joined");
	expect(dfs_concat(fs, at("join0"), sources, 2, &err), -ENOENT, &err, "the parts are gone");
}

/* @stock: by the NameNode it is, which does not know the call. */
static void replace_blocks(int stock)
{
	const uint32_t place = 1;
	struct dfs_replace r = {.size = sizeof(r), .place = &place, .places = 1, .blocks = 3};
	struct dfs_err err = {0};
	struct dfs_file *f;
	struct dfs_stat st;
	char part[256];
	int rc = create(at("other"), &f, &err); /* its second block is not what it should be */

	rc = rc ? rc : write_range(f, 0, BLOCK, 100000, 12, &err);
	rc = rc ? rc : write_range(f, 0, BLOCK, 100000, 13, &err);
	rc = rc ? rc : write_range(f, 2 * BLOCK, 2 * BLOCK + 5, 100000, 12, &err);
	rc = rc ? rc : dfs_close(f, &err);
	snprintf(part, sizeof(part), "%s", at("part"));
	rc = rc ? rc : create(part, &f, &err);
	rc = rc ? rc : write_range(f, BLOCK, 2 * BLOCK, 100000, 12, &err);
	rc = rc ? rc : dfs_close(f, &err);
	rc = rc ? rc : dfs_stat(fs, at("other"), &st, &err);
	rc = rc ? rc : dfs_open(fs, at("other"), &f, &err);
	expect(rc, 0, &err, "a file and a block for its middle");
	dfs_get_content_id(f, &r.content);
	(void)dfs_close(f, NULL);
	r.file_id = st.file_id;
	expect(dfs_replace_blocks(fs, at("other"), &r, &err), -EINVAL, &err,
	       "nothing to put there");
	r.part = part;
	if (stock) {
		expect(dfs_replace_blocks(fs, at("other"), &r, &err), -ENOSYS, &err,
		       "blocks are not replaced by this NameNode");
		return;
	}
	r.content.length++;
	expect(dfs_replace_blocks(fs, at("other"), &r, &err), -ESTALE, &err,
	       "it is not as it was seen");
	r.content.length--;
	r.blocks = 7;
	expect(dfs_replace_blocks(fs, at("other"), &r, &err), -EINVAL, &err,
	       "a hole would be left");
	r.blocks = 3;
	expect(dfs_replace_blocks(fs, at("other"), &r, &err), 0, &err, "its middle is replaced");
	expect(get(at("other"), 2 * BLOCK + 5, 100000, 12, &err), 0, &err, "it is right now");
	expect(dfs_replace_blocks(fs, at("other"), &r, &err), -ENOENT, &err, "the part is gone");
}

static void namespace(void)
{
	struct dfs_err err = {0};
	struct dfs_stat st;
	struct dfs_content_summary sum;
	int rc;

	expect(dfs_mkdir(fs, at("d/e/f"), 0750, true, &err), 0, &err, "mkdir with parents");
	expect(dfs_mkdir(fs, at("d/e/f"), 0, true, &err), 0, &err, "mkdir -p of an existing one");
	expect(dfs_mkdir(fs, at("d/e/f"), 0, false, &err), -EEXIST, &err,
	       "mkdir of an existing one");
	expect(dfs_mkdir(fs, at("no/such"), 0, false, &err), -ENOENT, &err, "mkdir without parent");
	rc = dfs_stat(fs, at("d/e/f"), &st, &err);
	check(rc == 0 && st.type == DFS_DIR && st.mode == 0750, "stat of a directory: mode %o",
	      st.mode);
	expect(dfs_stat(fs, at("nothing"), &st, &err), -ENOENT, &err, "stat of nothing");
	expect(put(at("d/file"), 1000, 1000, 1, &err), 0, &err, "put");
	rc = dfs_stat(fs, at("d/file"), &st, &err);
	check(rc == 0 && st.type == DFS_FILE && st.mode == 0644 && st.length == 1000 &&
		      st.block_size == BLOCK && st.replication == replication,
	      "stat of a file: mode %o length %llu owner %s", st.mode,
	      (unsigned long long)st.length, st.owner);
	expect(dfs_mkdir(fs, at("d/file/x"), 0, true, &err), -ENOTDIR, &err, "mkdir below a file");
	expect(dfs_rename(fs, at("d/file"), at("d/e/g"), false, &err), 0, &err, "rename");
	expect(dfs_rename(fs, at("d/file"), at("d/e/h"), false, &err), -ENOENT, &err,
	       "rename of nothing");
	expect(put(at("d/file"), 5, 5, 1, &err), 0, &err, "put again");
	expect(dfs_rename(fs, at("d/file"), at("d/e/g"), false, &err), -EEXIST, &err,
	       "rename onto a file");
	expect(dfs_rename(fs, at("d/file"), at("d/e/g"), true, &err), 0, &err,
	       "rename with overwrite");
	expect(dfs_rename(fs, at("d"), at("d/e/inside"), false, &err), -EINVAL, &err,
	       "rename into itself");
	rc = dfs_stat(fs, at("d/e/g"), &st, &err);
	check(rc == 0 && st.length == 5, "the overwritten name has the new file");
	expect(dfs_set_permission(fs, at("d/e/g"), 0600, &err), 0, &err, "chmod");
	expect(dfs_set_times(fs, at("d/e/g"), 1234567, DFS_TIME_KEEP, &err), 0, &err, "set times");
	expect(dfs_set_owner(fs, at("d/e/g"), "nobody", NULL, &err), 0, &err, "chown");
	expect(dfs_set_replication(fs, at("d/e/g"), 1, &err), 0, &err, "set replication");
	expect(dfs_set_replication(fs, at("d"), 1, &err), -EISDIR, &err, "the same of a directory");
	rc = dfs_stat(fs, at("d/e/g"), &st, &err);
	check(rc == 0 && st.mode == 0600 && st.mtime_ms == 1234567 && st.replication == 1 &&
		      strcmp(st.owner, "nobody") == 0,
	      "all of these stick");
	rc = dfs_get_content_summary(fs, at("d"), &sum, &err);
	check(rc == 0 && sum.length == 5 && sum.file_count == 1 && sum.directory_count == 3,
	      "content summary: %llu bytes, %llu files, %llu directories",
	      (unsigned long long)sum.length, (unsigned long long)sum.file_count,
	      (unsigned long long)sum.directory_count);
	expect(dfs_delete(fs, at("d"), false, &err), -ENOTEMPTY, &err, "rmdir with entries");
	expect(dfs_delete(fs, at("d"), true, &err), 0, &err, "delete -r");
	expect(dfs_delete(fs, at("d"), true, &err), -ENOENT, &err, "delete of nothing");
}

static void listing(int count)
{
	struct dfs_err err = {0};
	const struct dfs_stat *st;
	struct dfs_list *l;
	char name[32], last[256] = "";
	int rc = 0, n = 0, sorted = 1;

	for (int i = 0; i < count && rc == 0; i++) {
		snprintf(name, sizeof(name), "many/%05d", i);
		rc = dfs_mkdir(fs, at(name), 0, true, &err);
	}
	rc = rc ? rc : dfs_list_open(fs, at("many"), &l, &err);
	if (rc) {
		expect(rc, 0, &err, "listing: set-up");
		return;
	}
	while ((rc = dfs_list_next(l, &st, &err)) > 0) {
		sorted &= strcmp(last, st->name) < 0;
		snprintf(last, sizeof(last), "%s", st->name);
		n++;
	}
	dfs_list_close(l);
	check(rc == 0 && n == count && sorted, "list of %d entries, in order: %d", count, n);
	expect(dfs_list_open(fs, at("nothing"), &l, &err), -ENOENT, &err, "list of nothing");
}

static void cluster(void)
{
	struct dfs_err err = {0};
	struct dfs_statfs s = {0};
	struct dfs_nodes *n = NULL;
	struct dfs_blocks *b = NULL;
	int rc = dfs_statfs(fs, &s, &err);

	check(rc == 0 && s.capacity > 0, "statfs: capacity %llu", (unsigned long long)s.capacity);
	rc = dfs_nodes(fs, DFS_NODES_LIVE, &n, &err);
	check(rc == 0 && n->count >= replication && n->node[0].xfer_port, "%zu live data nodes",
	      rc ? 0 : n->count);
	dfs_nodes_free(n);
	rc = put(at("blocks"), 2 * BLOCK + 1, 100000, 2, &err);
	rc = rc ? rc : dfs_blocks(fs, at("blocks"), BLOCK, UINT64_MAX, &b, &err);
	check(rc == 0 && b->count == 2 && b->file_length == 2 * BLOCK + 1 &&
		      b->block[1].offset == 2 * BLOCK && b->block[1].length == 1 &&
		      b->block[0].count >= 1, /* others may not have reported yet */
	      "blocks of the end of a file %s", rc ? err.text : "");
	dfs_blocks_free(b);
	expect(dfs_blocks(fs, dir, 0, 1, &b, &err), -EISDIR, &err, "blocks of a directory");
}

static int connect_to(const char *uri, const char *user, const char *conf, struct dfs **ret,
		      struct dfs_err *err)
{
	const char *kv[] = {"ipc.client.connect.max.retries=0", conf, NULL};
	const struct dfs_connect_opts o = {.size = sizeof(o), .uri = uri, .user = user, .conf = kv};

	return dfs_connect(&o, ret, err);
}

static void errors(void)
{
	struct dfs_err err = {0};
	struct dfs *other;
	struct dfs_file *f;
	struct dfs_create_opts o = {.size = sizeof(o), .block_size = BLOCK + 1};
	int rc;

	expect(connect_to("hdfs://no-such-host.invalid:8020", NULL, NULL, &other, &err), -ENOENT,
	       &err, "unknown host");
	expect(connect_to("hdfs://127.0.0.1:1", NULL, NULL, &other, &err), -ECONNREFUSED, &err,
	       "nothing listens");
	expect(connect_to("s3://x", NULL, NULL, &other, &err), -EINVAL, &err, "another scheme");
	expect(connect_to(NULL, NULL, "dfs.client.rdma=maybe", &other, &err), -EINVAL, &err,
	       "bad setting");
	expect(dfs_open(fs, at("nothing"), &f, &err), -ENOENT, &err, "open of nothing");
	expect(dfs_open(fs, dir, &f, &err), -EISDIR, &err, "open of a directory");
	expect(dfs_open(fs, "", &f, &err), -EINVAL, &err, "open of an empty path");
	expect(dfs_create(fs, dir, NULL, &f, &err), -EISDIR, &err, "create over a directory");
	expect(put(at("exists"), 5, 5, 0, &err), 0, &err, "put");
	expect(put(at("exists"), 5, 5, 0, &err), -EEXIST, &err, "put without overwrite");
	expect(dfs_create(fs, at("odd"), &o, &f, &err), -EINVAL, &err, "odd block size");
	o = (struct dfs_create_opts){.size = sizeof(o), .flags = DFS_CREATE_NO_PARENTS};
	expect(dfs_create(fs, at("no/parent"), &o, &f, &err), -ENOENT, &err, "create, no parent");
	o = (struct dfs_create_opts){.size = sizeof(o), .replication = 30000};
	expect(dfs_create(fs, at("too-many"), &o, &f, &err), -EINVAL, &err,
	       "more replicas than allowed");
	expect(dfs_mkdir(fs, at("secret"), 0700, true, &err), 0, &err, "mkdir 0700");
	rc = connect_to(NULL, "somebody", NULL, &other, &err);
	if (rc == 0) {
		struct dfs_stat st;

		expect(dfs_stat(other, at("secret/x"), &st, &err), -EACCES, &err,
		       "stat in another's directory");
		expect(dfs_mkdir(other, at("secret/y"), 0, true, &err), -EACCES, &err,
		       "mkdir in another's directory");
		dfs_disconnect(other);
	} else {
		expect(rc, 0, &err, "connect as somebody");
	}
	rc = connect_to(NULL, NULL, "dfs.client.rdma=require", &other, &err);
	if (rc == 0 && access("/sys/class/infiniband", F_OK) != 0) {
		expect(dfs_open(other, at("exists"), &f, &err), -ENOTSUP, &err, "RDMA required");
		dfs_disconnect(other);
	}
}

int main(int argc, char **argv)
{
	int many = 50, stock = 0, rc;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--stock-namenode") == 0)
			stock = 1;
		else if (strcmp(argv[i], "--long") == 0)
			many = 2500;
	}
	rc = connect_cluster();
	if (rc)
		return rc;
	namespace();
	listing(many);
	cluster();
	errors();
	sizes();
	lent_bytes();
	first_block(DFS_CREATE_FIRST_BLOCK);
	first_block(DFS_CREATE_FIRST_BLOCK | DFS_CREATE_EARLY);
	first_block(DFS_CREATE_FIRST_BLOCK | DFS_CREATE_EARLY | DFS_CREATE_CLOSE_EARLY);
	early();
	seek_and_tell();
	flush_is_visible();
	append();
	leases();
	cut_and_join();
	replace_blocks(stock);
	return disconnect_cluster();
}
