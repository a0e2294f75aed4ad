/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/session/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/log.h"

#define TEXT_MAX 2048
#define MARKS_BYTES (MARKS_MAX * sizeof(struct mark))
#define NAME_BYTES (DFS_NAME_MAX + 1)

/* ---- small files of text ---- */

static int write_text(int dir, const char *name, const char *text)
{
	const int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int rc = ret_errno(fd);

	if (fd < 0)
		return rc;
	rc = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -ENOSPC;
	(void)close(fd);
	if (rc < 0)
		(void)unlinkat(dir, name, 0);
	return rc;
}

static int read_text(int dir, const char *name, char text[TEXT_MAX])
{
	const int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n;

	if (fd < 0)
		return neg_errno();
	n = read(fd, text, TEXT_MAX - 1);
	(void)close(fd);
	if (n < 0)
		return -EIO;
	text[n] = '\0';
	return 0;
}

void state_hex(const char *name, char *buf)
{
	for (; *name; name++, buf += 2)
		snprintf(buf, 3, "%02x", (uint8_t)*name);
	*buf = '\0';
}

bool state_unhex(const char *text, char name[DFS_NAME_MAX + 1])
{
	const size_t len = strlen(text);
	unsigned int byte;

	if (len == 0 || len % 2 || len / 2 > DFS_NAME_MAX)
		return false;
	for (size_t i = 0; i < len / 2; i++) {
		if (sscanf(text + 2 * i, "%2x", &byte) != 1 || byte == 0 || byte == '/')
			return false;
		name[i] = (char)byte;
	}
	name[len / 2] = '\0';
	return true;
}

/* This run of the machine: after another one, what was not synced may be lost. */
static void boot_id(char buf[64])
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (!f || fscanf(f, "%63s", buf) != 1)
		snprintf(buf, 64, "unknown");
	if (f)
		fclose(f);
}

/* ---- the session ---- */

/* TOP/dfs-fuse-UID, ours and closed to others: TOP may be a directory for everybody. */
static int open_top(struct state *s, const char *top, struct dfs_err *err)
{
	struct stat st;
	int rc;

	if (asprintf(&s->top, "%s/dfs-fuse-%u", top, geteuid()) < 0) {
		s->top = NULL;
		return -ENOMEM;
	}
	rc = ret_errno(mkdir(s->top, 0700));
	if (rc == 0 || rc == -EEXIST)
		rc = s->top_fd =
			ret_errno(open(s->top, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (rc >= 0 && (fstat(s->top_fd, &st) < 0 || st.st_uid != geteuid() || st.st_mode & 0022))
		rc = -EPERM;
	if (rc < 0)
		snprintf(err->text, sizeof(err->text),
			 "directory of overlays %.300s: %s%s; -o overlay=DIR names another", s->top,
			 strerror(-rc), rc == -EPERM ? " (it must belong to this user alone)" : "");
	return rc < 0 ? rc : 0;
}

/* Space is taken now: a store to a mapped file on a full disk would kill us. NULL: there is none.
 */
static void *map_file(struct state *s, const char *name, size_t bytes)
{
	const int fd = openat(s->dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	void *p = MAP_FAILED;

	if (fd >= 0 && posix_fallocate(fd, 0, (off_t)bytes) == 0)
		p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		(void)close(fd);
	if (p != MAP_FAILED)
		return p;
	log_warn(
		"op=marks dir=%s text=\"no room: open files, or their names, are not written down\"",
		s->top);
	return NULL;
}

static void map_marks(struct state *s)
{
	s->mark = map_file(s, "marks", MARKS_BYTES);
	s->mark_name = s->mark ? map_file(s, "names", MARKS_MAX * NAME_BYTES) : NULL;
}

static int make_session(struct state *s, uint64_t token, const char *cluster)
{
	char text[TEXT_MAX], boot[64];
	int rc;

	snprintf(s->name, sizeof(s->name), "%016" PRIx64, token);
	rc = ret_errno(mkdirat(s->top_fd, s->name, 0700));
	if (rc == 0)
		rc = s->dir = ret_errno(openat(s->top_fd, s->name,
					       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (rc >= 0)
		rc = ret_errno(flock(s->dir, LOCK_EX | LOCK_NB));
	if (rc < 0)
		return rc;
	boot_id(boot);
	snprintf(text, sizeof(text), "dfs-fuse 1\n%.1024s\n%s\n", cluster, boot);
	return write_text(s->dir, "session", text);
}

/* Away with it, if what has to be looked at is gone; @marked: the table of marks has some. */
static void end_session(int top_fd, int dir, const char *name, bool marked)
{
	DIR *d = fdopendir(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct dirent *e;
	bool empty = d != NULL && !marked;

	while (d && (e = readdir(d)))
		empty &= e->d_name[0] == '.' || strcmp(e->d_name, "marks") == 0 ||
			 strcmp(e->d_name, "names") == 0 || strcmp(e->d_name, "session") == 0;
	if (d)
		closedir(d);
	if (!empty)
		return;
	(void)unlinkat(dir, "marks", 0);
	(void)unlinkat(dir, "names", 0);
	(void)unlinkat(dir, "session", 0);
	(void)unlinkat(top_fd, name, AT_REMOVEDIR);
}

int state_open(struct state *s, const char *top, uint64_t token, const char *cluster,
	       struct dfs_err *err)
{
	int rc = open_top(s, top, err);

	return rc < 0 ? rc : state_begin(s, token, cluster, err);
}

int state_begin(struct state *s, uint64_t token, const char *cluster, struct dfs_err *err)
{
	int rc;

	(void)flock(s->top_fd, LOCK_EX); /* nobody takes it for dead before it is locked */
	rc = make_session(s, token, cluster);
	(void)flock(s->top_fd, LOCK_UN);
	if (rc < 0) {
		if (s->dir >= 0) {
			end_session(s->top_fd, s->dir, s->name, false);
			(void)close(s->dir);
		}
		s->dir = -1;
		snprintf(err->text, sizeof(err->text),
			 "directory of overlays %.300s: %s; -o overlay=DIR names another", s->top,
			 strerror(-rc));
		return rc;
	}
	map_marks(s);
	return 0;
}

void state_close(struct state *s)
{
	bool marked = false;

	for (uint32_t i = 0; s->mark && i < MARKS_MAX && !marked; i++)
		marked = s->mark[i].kind != MARK_FREE;
	if (s->mark)
		(void)munmap(s->mark, MARKS_BYTES);
	if (s->mark_name)
		(void)munmap(s->mark_name, MARKS_MAX * NAME_BYTES);
	if (s->dir >= 0) {
		end_session(s->top_fd, s->dir, s->name, marked);
		(void)close(s->dir);
	}
	if (s->top_fd >= 0)
		(void)close(s->top_fd);
	free(s->top);
	pthread_mutex_destroy(&s->lock);
}

uint64_t state_next_file(struct state *s)
{
	uint64_t n;

	pthread_mutex_lock(&s->lock);
	n = ++s->next_file;
	pthread_mutex_unlock(&s->lock);
	return n;
}

/* ---- marks ---- */

uint32_t state_mark(struct state *s, enum mark_kind kind, uint64_t id, uint32_t uid,
		    const char *name)
{
	uint32_t found = 0;

	if (!s->mark)
		return 0;
	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < MARKS_MAX && !found; i++) {
		const uint32_t at = (s->next_mark + i) % MARKS_MAX;

		if (s->mark[at].kind != MARK_FREE)
			continue;
		if (s->mark_name)
			snprintf(s->mark_name[at], NAME_BYTES, "%s", name);
		s->mark[at] = (struct mark){.id = id, .uid = uid, .kind = kind};
		found = at + 1;
	}
	s->next_mark = found % MARKS_MAX;
	pthread_mutex_unlock(&s->lock);
	return found;
}

void state_unmark(struct state *s, uint32_t *mark)
{
	if (*mark) {
		pthread_mutex_lock(&s->lock);
		s->mark[*mark - 1].kind = MARK_FREE;
		s->next_mark = *mark - 1;
		pthread_mutex_unlock(&s->lock);
	}
	*mark = 0;
}

/* ---- undo ---- */

static void undo_name(char buf[STATE_NAME_MAX], uint64_t n)
{
	snprintf(buf, STATE_NAME_MAX, "undo.%" PRIu64, n);
}

uint64_t state_undo(struct state *s, uint64_t id, uint64_t dir_id, const char *name)
{
	char hex[2 * DFS_NAME_MAX + 1], text[TEXT_MAX], file[STATE_NAME_MAX];
	const uint64_t n = state_next_file(s);

	if (s->dir < 0)
		return 0;
	state_hex(name, hex);
	snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64 " %s\n", id, dir_id, hex);
	undo_name(file, n);
	return write_text(s->dir, file, text) == 0 ? n : 0;
}

void state_undo_drop(struct state *s, uint64_t undo)
{
	char file[STATE_NAME_MAX];

	if (!undo)
		return;
	undo_name(file, undo);
	(void)unlinkat(s->dir, file, 0);
}

int state_read_undo(const struct dead *d, const char *file, uint64_t *ret_id, uint64_t *ret_dir,
		    char name[DFS_NAME_MAX + 1])
{
	char text[TEXT_MAX], hex[2 * DFS_NAME_MAX + 1];
	int rc;

	if (strncmp(file, "undo.", 5) != 0)
		return -EINVAL;
	rc = read_text(d->dir, file, text);
	if (rc < 0)
		return rc;
	if (sscanf(text, "%" SCNu64 " %" SCNu64 " %510s", ret_id, ret_dir, hex) != 3 ||
	    !state_unhex(hex, name))
		return -EINVAL;
	return 0;
}

/* ---- the dead ---- */

static int read_marks(struct dead *d)
{
	struct mark *m = calloc(MARKS_MAX, sizeof(*m));
	int fd;
	ssize_t n;

	if (!m)
		return -ENOMEM;
	fd = openat(d->dir, "marks", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	n = fd < 0 ? 0 : read(fd, m, MARKS_BYTES);
	if (fd >= 0)
		(void)close(fd);
	d->mark = m;
	d->marks = n > 0 ? (uint32_t)((size_t)n / sizeof(*m)) : 0;
	return 0;
}

void state_free_marks(struct dead *d, uint64_t id, bool for_good)
{
	const int fd = for_good ? openat(d->dir, "marks", O_WRONLY | O_CLOEXEC | O_NOFOLLOW) : -1;

	for (uint32_t i = 0; i < d->marks; i++) {
		if (d->mark[i].kind == MARK_FREE || d->mark[i].id != id)
			continue;
		d->mark[i].kind = MARK_FREE;
		if (fd >= 0) /* when it fails, the mark counts again at the next start */
			(void)!pwrite(fd, &d->mark[i], sizeof(d->mark[i]),
				      (off_t)(i * sizeof(d->mark[i])));
	}
	if (fd >= 0)
		(void)close(fd);
}

void state_mark_name(const struct dead *d, uint32_t i, char name[NAME_BYTES])
{
	const int fd = openat(d->dir, "names", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0 || pread(fd, name, NAME_BYTES, (off_t)i * NAME_BYTES) != NAME_BYTES || !*name)
		snprintf(name, NAME_BYTES, "?");
	name[NAME_BYTES - 1] = '\0';
	if (fd >= 0)
		(void)close(fd);
}

/* A session that is locked by nobody and belongs to @cluster. */
static struct dead *claim(struct state *s, const char *name, const char *cluster)
{
	char text[TEXT_MAX], of[1100], boot[64], now[64];
	struct dead *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	snprintf(d->name, sizeof(d->name), "%s", name);
	d->dir = openat(s->top_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (d->dir < 0 || flock(d->dir, LOCK_EX | LOCK_NB) < 0)
		goto not_it;
	if (read_text(d->dir, "session", text) < 0) {
		end_session(s->top_fd, d->dir, name, false); /* it died being born */
		goto not_it;
	}
	if (sscanf(text, "dfs-fuse 1\n%1099[^\n]\n%63s", of, boot) != 2 ||
	    strcmp(of, cluster) != 0 || read_marks(d) < 0)
		goto not_it;
	boot_id(now);
	d->same_boot = strcmp(now, boot) == 0;
	return d;
not_it:
	if (d->dir >= 0)
		(void)close(d->dir);
	free(d);
	return NULL;
}

int state_find_dead(struct state *s, const char *cluster, struct dead **ret)
{
	DIR *dir = fdopendir(openat(s->top_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct dirent *e;

	*ret = NULL;
	if (!dir)
		return neg_errno();
	(void)flock(s->top_fd, LOCK_EX);
	while ((e = readdir(dir))) {
		struct dead *d;

		if (strlen(e->d_name) != 16 || strcmp(e->d_name, s->name) == 0)
			continue; /* kept files have longer names */
		d = claim(s, e->d_name, cluster);
		if (!d)
			continue;
		d->next = *ret;
		*ret = d;
	}
	(void)flock(s->top_fd, LOCK_UN);
	closedir(dir);
	return 0;
}

void state_end_dead(struct state *s, struct dead *d, bool stays)
{
	if (!stays)
		end_session(s->top_fd, d->dir, d->name, false);
	(void)close(d->dir);
	free(d->mark);
	free(d);
}
