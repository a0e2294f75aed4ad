/* SPDX-License-Identifier: Apache-2.0 */
/* Reading directories of replicas: names become entries, in an order in which a data file stands
 * before its meta files. Directories made by other layouts (flat, deeper) are walked as well. */
#include "datanode/store/store_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNLINKED ".unlinked" /* a Java DataNode's copy of a file with several hard links */
#define WALK_DEPTH_MAX 8     /* also ends loops of symbolic links */

static bool parse_number(const char **s, int64_t *ret)
{
	char *end;

	if (!(**s == '-' || (**s >= '0' && **s <= '9')))
		return false;
	errno = 0;
	*ret = strtoll(*s, &end, 10);
	*s = end;
	return errno == 0;
}

/* blk_<id> or blk_<id>_<gs>.meta */
static bool parse_name(const char *name, struct entry *e)
{
	int64_t gs = 0;

	if (strncmp(name, "blk_", 4))
		return false;
	name += 4;
	if (!parse_number(&name, &e->id))
		return false;
	e->meta = *name == '_';
	e->gs = 0;
	if (!e->meta)
		return *name == '\0';
	name++;
	if (*name == '-' || !parse_number(&name, &gs) || strcmp(name, ".meta"))
		return false;
	e->gs = (uint64_t)gs;
	return true;
}

static bool has_tail(const char *name, const char *tail)
{
	size_t n = strlen(name), t = strlen(tail);

	return n > t && !strcmp(name + n - t, tail);
}

/* "subdir<n>" as Hadoop writes it, without leading zeros. */
static bool parse_subdir(const char *name, uint32_t *ret)
{
	char again[32];

	if (strncmp(name, "subdir", 6) || strlen(name) > 12)
		return false;
	*ret = (uint32_t)strtoul(name + 6, NULL, 10);
	(void)snprintf(again, sizeof(again), "subdir%u", *ret);
	return !strcmp(again, name);
}

/* By id; the data file before its meta files, newest stamp first. */
static int entry_cmp(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	if (x->meta != y->meta)
		return x->meta ? 1 : -1;
	return x->gs == y->gs ? 0 : x->gs > y->gs ? -1 : 1;
}

static int push_entry(struct names *n, const struct entry *e)
{
	if (n->count == n->room) {
		size_t room = n->room ? n->room * 2 : 256;
		struct entry *p = reallocarray(n->list, room, sizeof(*p));

		if (!p)
			return -ENOMEM;
		n->list = p;
		n->room = room;
	}
	n->list[n->count++] = *e;
	return 0;
}

static int push_subdir(struct names *n, uint32_t sub)
{
	if (n->sub_count == n->sub_room) {
		size_t room = n->sub_room ? n->sub_room * 2 : 32;
		uint32_t *p = reallocarray(n->subdirs, room, sizeof(*p));

		if (!p)
			return -ENOMEM;
		n->subdirs = p;
		n->sub_room = room;
	}
	n->subdirs[n->sub_count++] = sub;
	return 0;
}

static void note_foreign(struct names *n, const char *name)
{
	if (!n->foreign++)
		(void)snprintf(n->foreign_name, sizeof(n->foreign_name), "%s", name);
}

/* What a crash left of a copy that was to replace the file of this name: the file itself counts
 * while it is there, else the copy is whole and takes its place. */
static int settle_unlinked(struct names *n, int dir, const char *name)
{
	char base[NAME_MAX + 1];
	struct entry e;

	(void)snprintf(base, sizeof(base), "%.*s", (int)(strlen(name) - strlen(UNLINKED)), name);
	if (!parse_name(base, &e)) {
		note_foreign(n, name);
		return 0;
	}
	if (!faccessat(dir, base, F_OK, AT_SYMLINK_NOFOLLOW))
		return unlinkat(dir, name, 0) ? neg_errno() : 0;
	if (renameat(dir, name, dir, base))
		return neg_errno();
	return push_entry(n, &e);
}

static int take_name(struct names *n, int dir, const char *name, bool settle)
{
	struct entry e;
	uint32_t sub;

	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return 0;
	if (parse_name(name, &e))
		return push_entry(n, &e);
	if (parse_subdir(name, &sub))
		return push_subdir(n, sub);
	if (!strncmp(name, "blk_", 4) && has_tail(name, ".meta.tmp")) {
		/* The new meta file of a stamp change that did not come to its rename. */
		n->leftovers++;
		if (settle)
			(void)unlinkat(dir, name, 0);
		return 0;
	}
	if (settle && !strncmp(name, "blk_", 4) && has_tail(name, UNLINKED))
		return settle_unlinked(n, dir, name);
	note_foreign(n, name);
	return 0;
}

static int read_dir(struct names *n, DIR *d, bool settle)
{
	struct dirent *de;
	int rc = 0;

	errno = 0;
	while (!rc && (de = readdir(d))) {
		rc = take_name(n, dirfd(d), de->d_name, settle);
		errno = 0;
	}
	if (!rc && errno)
		rc = neg_errno();
	if (!rc && n->count)
		qsort(n->list, n->count, sizeof(*n->list), entry_cmp);
	return rc;
}

void names_free(struct names *n)
{
	free(n->list);
	free(n->subdirs);
	*n = (struct names){0};
}

int names_read(int slice_fd, const char *dir, struct names *ret)
{
	int fd = openat(slice_fd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;
	int list_fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
	DIR *d = list_fd < 0 ? NULL : fdopendir(list_fd);

	*ret = (struct names){0};
	rc = d ? read_dir(ret, d, false) : fd < 0 ? neg_errno() : -ENOMEM;
	if (d)
		(void)closedir(d);
	else if (list_fd >= 0)
		(void)close(list_fd);
	if (rc && fd >= 0)
		(void)close(fd);
	return rc ? rc : fd;
}

static int walk(int slice_fd, const char *dir, int depth, const struct names_walk *w)
{
	struct names n = {0};
	char sub[STORE_NAME_MAX];
	int fd, rc;
	DIR *d;

	if (w->known && w->known(w->arg, slice_fd, dir))
		return 0;
	fd = openat(slice_fd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		/* Gone meanwhile, or a file of this name. */
		rc = neg_errno();
		return rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP ? 0 : rc;
	}
	d = fdopendir(fd);
	if (!d) {
		(void)close(fd);
		return -ENOMEM;
	}
	rc = read_dir(&n, d, w->settle);
	if (!rc)
		rc = w->see(w->arg, fd, dir, &n);
	(void)closedir(d);
	for (size_t i = 0; !rc && i < n.sub_count && depth < WALK_DEPTH_MAX; i++)
		if (snprintf(sub, sizeof(sub), "%s/subdir%u", dir, n.subdirs[i]) <
		    (int)sizeof(sub) - 64)
			rc = walk(slice_fd, sub, depth + 1, w);
	names_free(&n);
	return rc;
}

int names_walk(int slice_fd, const char *root, const struct names_walk *w)
{
	return walk(slice_fd, root, 0, w);
}
