/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: content_test_fixture - HDFS and the rest of the mount, as the end of a write sees them
 *
 * Idea: HDFS is a few files in memory, of blocks of BLOCK bytes. The calls of libdfsclient that
 * content_close.c, content_stream.c and publish.c make are answered from them; one call can be made
 * to fail, done or not, and a test may look around or change something ahead of it. All other calls
 * are those of the library.
 * Ownership: included by one test program, which owns what is static here. Threading: none.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuse/content/content_internal.h"
#include "fuse/content/overlay.h"

#define DIR_ID 16385
#define BLOCK 4096u
#define ROOM (8 * BLOCK)
#define FILES_MAX 8

/* ---- HDFS ---- */

struct file {
	uint64_t id;
	char name[NEW_NAME_MAX], owner[8];
	uint32_t mode;
	uint64_t length, mtime_ms;
	uint8_t bytes[ROOM];
	bool gone;
};

struct dfs_file {
	struct file *of;
	uint64_t length; /* as its writer sees it */
};

static struct {
	struct file file[FILES_MAX];
	uint32_t files;
	/* The next call of this name returns rc, after it was done or not. */
	const char *call;
	int rc;
	bool done;
	void (*before)(void); /* called ahead of that; NULL: nothing */
} hdfs;

/* True: the call is over, with *@rc. */
static bool stops(const char *call, int *rc)
{
	void (*before)(void) = hdfs.before;

	*rc = 0;
	if (!hdfs.call || strcmp(hdfs.call, call) != 0)
		return false;
	hdfs.call = NULL;
	hdfs.before = NULL;
	*rc = hdfs.rc;
	if (before)
		before();
	return *rc < 0 && !hdfs.done;
}

static void fail_at(const char *call, int rc, bool done)
{
	hdfs.call = call;
	hdfs.rc = rc;
	hdfs.done = done;
}

static void look_at(const char *call, void (*before)(void))
{
	fail_at(call, 0, true);
	hdfs.before = before;
}

static struct file *find(const char *path)
{
	char name[NEW_NAME_MAX] = "";
	unsigned long long id;

	assert_true(sscanf(path, "/.reserved/.inodes/%llu/%63s", &id, name) >= 1);
	for (uint32_t i = 0; i < hdfs.files; i++) {
		struct file *f = &hdfs.file[i];

		if (!f->gone && (name[0] ? strcmp(f->name, name) == 0 : f->id == id))
			return f;
	}
	return NULL;
}

static struct file *add(const char *name, uint64_t length)
{
	struct file *f = &hdfs.file[hdfs.files];

	assert_true(hdfs.files < FILES_MAX);
	*f = (struct file){.id = 16390 + hdfs.files++,
			   .owner = "ann",
			   .mode = 0644,
			   .length = length,
			   .mtime_ms = 5};
	snprintf(f->name, sizeof(f->name), "%s", name);
	return f;
}

static int opened(struct file *f, struct dfs_file **ret)
{
	*ret = NULL;
	if (!f)
		return -ENOENT;
	*ret = calloc(1, sizeof(**ret));
	assert_non_null(*ret);
	**ret = (struct dfs_file){f, f->length};
	return 0;
}

int dfs_stat(struct dfs *fs, const char *path, struct dfs_stat *ret, struct dfs_err *err)
{
	const struct file *f = find(path);

	(void)fs;
	(void)err;
	if (!f)
		return -ENOENT;
	*ret = (struct dfs_stat){.type = DFS_FILE,
				 .mode = f->mode,
				 .length = f->length,
				 .block_size = BLOCK,
				 .replication = 1,
				 .mtime_ms = f->mtime_ms,
				 .file_id = f->id};
	snprintf(ret->owner, sizeof(ret->owner), "%s", f->owner);
	return 0;
}

int dfs_lstat(struct dfs *fs, const char *path, struct dfs_stat *ret, struct dfs_err *err)
{
	return dfs_stat(fs, path, ret, err);
}

int dfs_open(struct dfs *fs, const char *path, struct dfs_file **ret, struct dfs_err *err)
{
	(void)fs;
	(void)err;
	return opened(find(path), ret);
}

int dfs_create(struct dfs *fs, const char *path, const struct dfs_create_opts *opts,
	       struct dfs_file **ret, struct dfs_err *err)
{
	struct file *f = find(path);

	if (f)
		f->gone = true; /* overwritten */
	f = add(strrchr(path, '/') + 1, 0);
	f->mode = opts->mode & 01777;
	(void)dfs_stat(fs, path, opts->ret_stat, err);
	return opened(f, ret);
}

int dfs_append(struct dfs *fs, const char *path, uint32_t flags, struct dfs_file **ret,
	       struct dfs_err *err)
{
	int rc;

	(void)fs;
	(void)flags;
	(void)err;
	return stops("append", &rc) ? rc : opened(find(path), ret);
}

ssize_t dfs_pread(struct dfs_file *f, void *buf, size_t len, uint64_t offset, struct dfs_err *err)
{
	(void)err;
	if (!f)
		return -EBADF;
	if (offset >= f->of->length)
		return 0;
	len = len < f->of->length - offset ? len : (size_t)(f->of->length - offset);
	memcpy(buf, f->of->bytes + offset, len);
	return (ssize_t)len;
}

ssize_t dfs_write(struct dfs_file *f, const void *buf, size_t len, struct dfs_err *err)
{
	(void)err;
	assert_true(f->of->length + len <= ROOM);
	memcpy(f->of->bytes + f->of->length, buf, len);
	f->length = f->of->length += len;
	return (ssize_t)len;
}

uint64_t dfs_length(struct dfs_file *f)
{
	return f->length;
}

int dfs_close(struct dfs_file *f, struct dfs_err *err)
{
	int rc;

	(void)err;
	(void)stops("close", &rc);
	free(f);
	return rc;
}

int dfs_sync(struct dfs_file *f, uint32_t flags, struct dfs_err *err)
{
	(void)f;
	(void)err;
	assert_int_equal(flags, DFS_SYNC_DISK | DFS_SYNC_UPDATE_LENGTH);
	return 0;
}

void dfs_get_content_id(struct dfs_file *f, struct dfs_content_id *ret)
{
	*ret = (struct dfs_content_id){.length = f->of->length};
}

int dfs_delete(struct dfs *fs, const char *path, bool recursive, struct dfs_err *err)
{
	struct file *f = find(path);

	(void)fs;
	(void)recursive;
	(void)err;
	if (f)
		f->gone = true;
	return f ? 0 : -ENOENT;
}

int dfs_rename(struct dfs *fs, const char *from, const char *to, bool overwrite,
	       struct dfs_err *err)
{
	struct file *f = find(from), *over = find(to);
	int rc;

	(void)fs;
	(void)err;
	assert_true(overwrite);
	if (stops("rename", &rc))
		return rc;
	if (over)
		over->gone = true;
	snprintf(f->name, sizeof(f->name), "%s", strrchr(to, '/') + 1);
	return rc;
}

/* The blocks as they are, end to end. */
int dfs_replace_blocks(struct dfs *fs, const char *path, const struct dfs_replace *r,
		       struct dfs_err *err)
{
	struct file *old = find(path), *part = find(r->part);
	uint8_t to[ROOM];
	uint64_t length = 0;
	uint32_t used = 0;
	int rc;

	(void)fs;
	(void)err;
	if (stops("replace_blocks", &rc))
		return rc;
	for (uint32_t i = 0; i < r->blocks; i++) {
		const bool is_new = used < r->places && r->place[used] == i;
		const struct file *from = is_new ? part : old;
		const uint64_t at = (is_new ? used++ : i) * BLOCK;
		const uint64_t n = from->length - at < BLOCK ? from->length - at : BLOCK;

		assert_true(at < from->length);
		memcpy(to + length, from->bytes + at, n);
		length += n;
	}
	assert_int_equal(used, r->places);
	memcpy(part->bytes, to, length);
	part->length = length;
	part->mode = old->mode;
	part->mtime_ms++;
	memcpy(part->name, old->name, sizeof(part->name));
	old->gone = true;
	return rc;
}

int dfs_truncate(struct dfs *fs, const char *path, uint64_t length, bool *ret_done,
		 struct dfs_err *err)
{
	int rc;

	(void)fs;
	(void)err;
	if (stops("truncate", &rc))
		return rc;
	find(path)->length = length;
	*ret_done = true;
	return rc;
}

int dfs_set_owner(struct dfs *fs, const char *path, const char *owner, const char *group,
		  struct dfs_err *err)
{
	struct file *f = find(path);

	(void)fs;
	(void)group;
	(void)err;
	snprintf(f->owner, sizeof(f->owner), "%s", owner);
	return 0;
}

int dfs_set_permission(struct dfs *fs, const char *path, uint32_t mode, struct dfs_err *err)
{
	(void)fs;
	(void)err;
	find(path)->mode = mode;
	return 0;
}

int dfs_recover_lease(struct dfs *fs, const char *path, bool *ret_closed, struct dfs_err *err)
{
	(void)fs;
	(void)path;
	(void)err;
	*ret_closed = true;
	return 0;
}

ssize_t dfs_list_xattrs(struct dfs *fs, const char *path, char *buf, size_t size,
			struct dfs_err *err)
{
	(void)fs;
	(void)path;
	(void)buf;
	(void)size;
	(void)err;
	return 0;
}

int dfs_access(struct dfs *fs, const char *path, uint32_t bits, struct dfs_err *err)
{
	(void)fs;
	(void)path;
	(void)bits;
	(void)err;
	return 0;
}

int dfs_set_times(struct dfs *fs, const char *path, uint64_t mtime_ms, uint64_t atime_ms,
		  struct dfs_err *err)
{
	(void)fs;
	(void)path;
	(void)mtime_ms;
	(void)atime_ms;
	(void)err;
	return 0;
}

/* ---- the rest of the mount ---- */

static struct user user = {.uid = 7};
static struct {
	uint32_t all, of_file; /* syncs of what a user, or anybody, has closed early */
	int rc;
} early;

struct user *users_owner(struct users *u)
{
	(void)u;
	return &user;
}

struct user *users_ref(struct users *u, struct user *of)
{
	(void)u;
	return of;
}

void users_put(struct users *u, struct user *of)
{
	(void)u;
	(void)of;
}

int users_sync(struct users *u, uint64_t by, uid_t asker, struct dfs_err *err)
{
	(void)u;
	(void)by;
	(void)asker;
	(void)err;
	early.all++;
	return early.rc;
}

int users_sync_file(struct users *u, uint64_t id, uid_t asker, struct dfs_err *err)
{
	(void)u;
	(void)id;
	(void)asker;
	(void)err;
	early.of_file++;
	return early.rc;
}

void request_table_moved(void)
{
}

void request_table_published(struct request_table *c, int rc, uint64_t ns)
{
	(void)c;
	(void)rc;
	(void)ns;
}

void request_table_shared(struct request_table *c, uint64_t blocks)
{
	(void)c;
	(void)blocks;
}

void pending_add(struct mount *m, struct inode *in)
{
	(void)m;
	(void)in;
}

bool pending_is_over(const struct mount *m)
{
	(void)m;
	return false;
}

void pending_failed(struct mount *m)
{
	(void)m;
}
