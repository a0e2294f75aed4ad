/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/simulator/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/simulator/real.h"
#include "tests/simulator/world.h"

#define PAGE 4096u
#define SECTOR 512u

struct dfile {
	struct dfile *next;  /* of its bucket */
	struct dfile *older; /* of all: in an order that does not depend on numbers of inodes */
	uint64_t ino, mtime, size;     /* size: when it was synced last; while dirty */
	uint32_t machine, pages, kept; /* kept: references to its link below grave/ */
	bool dirty;
	uint8_t **page; /* what pages held; NULL: not changed */
	bool *lost;     /* page by page: a sync of it failed, and no later one writes it */
};

static void grave_path(char path[128], uint64_t ino)
{
	snprintf(path, 128, "%s/grave/%llu", world->dir, (unsigned long long)ino);
}

/* ---- files ---- */

static struct dfile *find(uint64_t ino, bool make)
{
	struct dfile **at = &world->files[ino % FILE_BUCKETS], *f;

	for (f = *at; f; f = f->next)
		if (f->ino == ino)
			return f;
	if (!make)
		return NULL;
	f = (struct dfile *)world_alloc(sizeof(*f));
	*f = (struct dfile){.next = *at,
			    .older = world->newest_file,
			    .ino = ino,
			    .machine = world->proc[world->thread[sim_me].proc].machine};
	*at = world->newest_file = f;
	return f;
}

/* A link that keeps the file while we may want it back. */
static void keep(struct dfile *f, const char *path, bool follow)
{
	char grave[128];

	if (f->kept++)
		return;
	grave_path(grave, f->ino);
	if (REAL(linkat)(AT_FDCWD, path, AT_FDCWD, grave, follow ? AT_SYMLINK_FOLLOW : 0) < 0 &&
	    errno != EEXIST && errno != ENOENT)
		perror(grave);
}

static void unkeep(struct dfile *f)
{
	char grave[128];

	if (--f->kept)
		return;
	grave_path(grave, f->ino);
	(void)REAL(unlink)(grave);
}

static void make_dirty(struct dfile *f, int fd)
{
	struct stat st;
	char path[64];

	f->mtime = world->now;
	if (f->dirty)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	keep(f, path, true);
	f->dirty = true;
	f->size = REAL(fstat64)(fd, (struct stat64 *)(void *)&st) ? 0 : (uint64_t)st.st_size;
}

static void make_clean(struct dfile *f)
{
	if (!f->dirty)
		return;
	for (uint32_t i = 0; i < f->pages; i++)
		world_free(f->page[i], PAGE);
	world_free(f->page, f->pages * sizeof(*f->page));
	world_free(f->lost, f->pages * sizeof(*f->lost));
	f->page = NULL;
	f->lost = NULL;
	f->pages = 0;
	f->dirty = false;
	unkeep(f);
}

/* It is written out, but for what an earlier sync has lost. */
static void write_out(struct dfile *f, uint64_t length)
{
	bool any = false;

	if (!f->dirty)
		return;
	for (uint32_t i = 0; i < f->pages; i++) {
		if (f->lost[i]) {
			any = true;
			continue;
		}
		world_free(f->page[i], PAGE);
		f->page[i] = NULL;
	}
	f->size = length;
	if (!any)
		make_clean(f);
}

/* An array of @n elements of @size bytes, with room for @more. */
static void *grown(void *old, uint32_t n, uint32_t more, size_t size)
{
	void *to = world_alloc(more * size);

	memset(to, 0, more * size);
	if (n)
		memcpy(to, old, n * size);
	world_free(old, n * size);
	return to;
}

static void grow(struct dfile *f, uint32_t pages)
{
	if (pages <= f->pages)
		return;
	f->page = (uint8_t **)grown(f->page, f->pages, pages, sizeof(*f->page));
	f->lost = (bool *)grown(f->lost, f->pages, pages, sizeof(*f->lost));
	f->pages = pages;
}

static void remember(struct dfile *f, int fd, uint64_t from, uint64_t to)
{
	char path[64];
	int in = -1;

	if (to > f->size)
		to = f->size; /* behind it there was nothing */
	if (from >= to)
		return;
	grow(f, (uint32_t)((to + PAGE - 1) / PAGE));
	for (uint64_t p = from / PAGE; p * PAGE < to; p++) {
		if (f->page[p])
			continue;
		if (in < 0) {
			snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
			in = REAL(open64)(path, O_RDONLY | O_CLOEXEC);
		}
		f->page[p] = (uint8_t *)world_alloc(PAGE);
		memset(f->page[p], 0, PAGE);
		if (REAL(pread64)(in, f->page[p], PAGE, (off_t)(p * PAGE)) < 0)
			perror("sim: pread");
	}
	if (in >= 0)
		(void)REAL(close)(in);
}

static struct dfile *note_change(int fd, uint64_t ino, uint64_t from, uint64_t to)
{
	struct dfile *f = find(ino, true);

	make_dirty(f, fd);
	remember(f, fd, from, to);
	return f;
}

void disk_note_write(int fd, uint64_t ino, uint64_t from, uint64_t len)
{
	struct dfile *f = note_change(fd, ino, from, from + len);

	for (uint64_t p = from / PAGE; len && p < f->pages && p * PAGE < from + len; p++)
		f->lost[p] = false;
}

void disk_note_size(int fd, uint64_t ino)
{
	(void)note_change(fd, ino, 0, UINT64_MAX / 2);
}

uint64_t disk_mtime(uint64_t ino)
{
	const struct dfile *f = find(ino, false);

	return f ? f->mtime : 0;
}

/* ---- names ---- */

enum op_kind {
	OP_MAKE,
	OP_MAKE_DIR,
	OP_REMOVE,
	OP_REMOVE_DIR,
	OP_RENAME,
	OP_LENGTH, /* of a file that was written out */
};

struct disk_op {
	enum op_kind kind;
	uint64_t dir, to_dir, ino; /* ino: of what is removed, replaced or longer; 0: nothing */
	uint64_t length;           /* that it had */
	uint64_t dir_mtime, to_dir_mtime; /* the times that the directories had */
	char *path, *to;
};

static struct disk_log *log_of(uint32_t machine)
{
	return &world->log[machine];
}

static char *copy(const char *s)
{
	char *to = (char *)world_alloc(strlen(s) + 1);

	return strcpy(to, s);
}

static void op_drop(struct disk_op *op)
{
	if (op->ino)
		unkeep(find(op->ino, true));
	if (op->path)
		world_free(op->path, strlen(op->path) + 1);
	if (op->to)
		world_free(op->to, strlen(op->to) + 1);
}

/* A name in it changes. Returns the time that it had. */
static uint64_t touch_dir(uint64_t ino)
{
	struct dfile *f = ino ? find(ino, true) : NULL;
	const uint64_t was = f ? f->mtime : 0;

	if (f)
		f->mtime = world->now;
	return was;
}

static void untouch_dir(uint64_t ino, uint64_t was)
{
	struct dfile *f = ino ? find(ino, false) : NULL;

	if (f)
		f->mtime = was;
}

static void op_add(struct disk_op op)
{
	struct disk_log *l = log_of(world->proc[world->thread[sim_me].proc].machine);

	if (l->count == l->size) {
		const uint32_t size = l->size ? l->size * 2 : 64;
		struct disk_op *more = (struct disk_op *)world_alloc(size * sizeof(*more));

		if (l->count)
			memcpy(more, l->op, l->count * sizeof(*more));
		world_free(l->op, l->size * sizeof(*more));
		l->op = more;
		l->size = size;
	}
	op.dir_mtime = touch_dir(op.dir);
	op.to_dir_mtime = touch_dir(op.to_dir);
	l->op[l->count++] = op;
}

/* The first @n are on the disk. */
static void commit(struct disk_log *l, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		op_drop(&l->op[i]);
	if (n)
		memmove(l->op, l->op + n, (l->count - n) * sizeof(*l->op));
	l->count -= n;
}

static uint64_t ino_of(const char *path)
{
	struct stat64 st;

	return REAL(lstat64)(path, &st) ? 0 : st.st_ino;
}

/* What is at @path is going; its inode's number. */
static uint64_t keep_path(const char *path)
{
	const uint64_t ino = ino_of(path);

	if (ino)
		keep(find(ino, true), path, false);
	return ino;
}

void disk_note_make(const char *path, uint64_t dir, bool is_dir)
{
	op_add((struct disk_op){
		.kind = is_dir ? OP_MAKE_DIR : OP_MAKE, .dir = dir, .path = copy(path)});
	if (!is_dir)
		find(ino_of(path), true)->mtime = world->now;
}

void disk_note_remove(const char *path, uint64_t dir, bool is_dir)
{
	op_add((struct disk_op){.kind = is_dir ? OP_REMOVE_DIR : OP_REMOVE,
				.dir = dir,
				.ino = is_dir ? 0 : keep_path(path),
				.path = copy(path)});
}

void disk_note_rename(const char *from, uint64_t from_dir, const char *to, uint64_t to_dir)
{
	op_add((struct disk_op){.kind = OP_RENAME,
				.dir = from_dir,
				.to_dir = to_dir,
				.ino = keep_path(to),
				.path = copy(from),
				.to = copy(to)});
}

static uint64_t length_of(int fd)
{
	struct stat64 st;

	return REAL(fstat64)(fd, &st) ? 0 : (uint64_t)st.st_size;
}

void disk_note_write_out(int fd, uint64_t ino)
{
	const struct machine *m = &world->machine[world->proc[world->thread[sim_me].proc].machine];
	struct dfile *f = find(ino, false);
	char path[64];

	if (!m->ordered || !f || !f->dirty)
		return;
	if (length_of(fd) != f->size) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		keep(f, path, true);
		op_add((struct disk_op){.kind = OP_LENGTH, .ino = ino, .length = f->size});
	}
	write_out(f, length_of(fd));
}

/* The first @n operations are committed by a sync of @ino. */
static uint32_t count_committed(const struct disk_log *l, uint64_t ino, bool all)
{
	uint32_t n = l->count;

	while (n && l->op[n - 1].dir != ino && l->op[n - 1].to_dir != ino &&
	       (l->op[n - 1].kind != OP_LENGTH || l->op[n - 1].ino != ino))
		n--;
	return n && all ? l->count : n;
}

void disk_note_sync(int fd, uint64_t ino)
{
	const uint32_t machine = world->proc[world->thread[sim_me].proc].machine;
	const bool ordered = world->machine[machine].ordered;
	struct disk_log *l = log_of(machine);
	struct dfile *f = find(ino, false);
	const bool longer = f && f->dirty && length_of(fd) != f->size;

	if (f)
		write_out(f, length_of(fd));
	commit(l, ordered && longer ? l->count : count_committed(l, ino, ordered));
}

void disk_note_sync_failed(int fd, uint64_t ino)
{
	struct dfile *f = find(ino, false);
	const uint64_t length = f && f->dirty ? length_of(fd) : 0;
	const uint64_t pages = (length + PAGE - 1) / PAGE;

	if (!length)
		return;
	grow(f, (uint32_t)pages);
	for (uint64_t p = f->size / PAGE; p < pages; p++) /* nothing was there before */
		if (!f->page[p]) {
			f->page[p] = (uint8_t *)world_alloc(PAGE);
			memset(f->page[p], 0, PAGE);
		}
	f->size = length > f->size ? length : f->size;
	for (uint64_t p = 0; p < pages; p++)
		f->lost[p] |= f->page[p] && one_in(2);
}

void disk_note_sync_all(void)
{
	const uint32_t machine = world->proc[world->thread[sim_me].proc].machine;

	for (struct dfile *f = world->newest_file; f; f = f->older)
		if (f->machine == machine)
			make_clean(f);
	commit(log_of(machine), log_of(machine)->count);
}

/* ---- a crash ---- */

static void bring_back(uint64_t ino, const char *path)
{
	char grave[128];

	grave_path(grave, ino);
	if (REAL(linkat)(AT_FDCWD, grave, AT_FDCWD, path, 0) < 0)
		perror(path);
}

static void undo(const struct disk_op *op)
{
	char grave[128];
	int rc = 0;

	untouch_dir(op->to_dir, op->to_dir_mtime); /* the later change of the two first */
	untouch_dir(op->dir, op->dir_mtime);
	switch (op->kind) {
	case OP_MAKE:
		rc = REAL(unlink)(op->path);
		break;
	case OP_MAKE_DIR:
		rc = REAL(rmdir)(op->path);
		break;
	case OP_REMOVE:
		bring_back(op->ino, op->path);
		break;
	case OP_REMOVE_DIR:
		rc = REAL(mkdir)(op->path, 0700);
		break;
	case OP_LENGTH:
		grave_path(grave, op->ino);
		rc = REAL(truncate64)(grave, (off_t)op->length);
		break;
	case OP_RENAME:
		rc = REAL(rename)(op->to, op->path);
		if (op->ino)
			bring_back(op->ino, op->to);
		break;
	}
	if (rc)
		fprintf(stderr, "sim: undo %d %s: %s\n", op->kind, op->path ? op->path : "",
			strerror(errno));
}

/* The length that the disk knows: the old one, the new one, or between. */
static uint64_t some_length(const struct dfile *f, uint64_t now)
{
	switch (chance(3)) {
	case 0:
		return f->size;
	case 1:
		return now;
	default:
		return now > f->size ? f->size + chance((now - f->size) / SECTOR + 1) * SECTOR
				     : f->size;
	}
}

/* Some sectors of the page as they were. True: some were lost. */
static bool lose(int fd, uint64_t p, const uint8_t *before, bool all)
{
	static const uint8_t zeros[PAGE];
	const uint64_t how = all ? 2 : chance(4);
	bool lost = false;

	if (how < 2) /* it is on the disk */
		return false;
	for (uint32_t s = 0; s < PAGE; s += SECTOR) {
		if (how == 3 && one_in(2))
			continue;
		(void)REAL(pwrite64)(fd, (before ? before : zeros) + s, SECTOR,
				     (off_t)(p * PAGE + s));
		lost = true;
	}
	return lost;
}

static void forget(struct dfile *f, uint64_t *bytes)
{
	struct stat64 st;
	char grave[128];
	uint64_t length;
	int fd;

	grave_path(grave, f->ino);
	fd = REAL(open64)(grave, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && !REAL(fstat64)(fd, &st)) {
		length = some_length(f, (uint64_t)st.st_size);
		for (uint64_t p = 0; p * PAGE < (uint64_t)st.st_size; p++) {
			const bool old = p < f->pages && f->page[p];

			if (world->machine[f->machine].ordered && !old)
				continue; /* it is longer when its bytes are there */
			if ((old || (p + 1) * PAGE > f->size) && !(p * PAGE < f->size && !old) &&
			    lose(fd, p, old ? f->page[p] : NULL, old && f->lost[p]))
				*bytes += PAGE;
		}
		if (length != (uint64_t)st.st_size)
			*bytes += SECTOR;
		(void)REAL(ftruncate64)(fd, (off_t)length);
	}
	if (fd >= 0)
		(void)REAL(close)(fd);
	make_clean(f);
}

void disk_crash(uint32_t machine, uint64_t *bytes, uint64_t *names)
{
	struct disk_log *l = log_of(machine);
	const uint32_t keep_ops = (uint32_t)(one_in(3) ? l->count : chance(l->count + 1));

	for (struct dfile *f = world->newest_file; f; f = f->older)
		if (f->machine == machine && f->dirty)
			forget(f, bytes);
	for (uint32_t i = l->count; i-- > keep_ops;) {
		undo(&l->op[i]);
		++*names;
	}
	commit(l, l->count);
}
