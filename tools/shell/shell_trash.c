/* SPDX-License-Identifier: Apache-2.0 */
/* What -rm deletes goes to /user/NAME/.Trash/Current, under its own path, where the server or the
 * configuration says for how long it is kept (fs.trash.interval); the NameNode empties it. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "tools/shell/shell.h"

#define TRASH_MODE (0700 | DFS_MODE_SET)
#define TURNS 8 /* the trash may be emptied, and others may delete the same, at the same time */
#define CURE "Consider using -skipTrash option"

static char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));

static char *text(const char *format, ...)
{
	char *line = NULL;
	va_list args;
	int n;

	va_start(args, format);
	n = vasprintf(&line, format, args);
	va_end(args);
	return cli_checked(n < 0 ? NULL : line);
}

static bool is_on(struct shell *s)
{
	const char *own = dfs_conf(s->c.fs, "fs.trash.interval");
	struct dfs_defaults d;

	dfs_get_defaults(s->c.fs, &d);
	return d.trash_minutes || (own && strtod(own, NULL) > 0);
}

static bool is_within(const char *path, const char *dir)
{
	const size_t n = strlen(dir);

	return !strncmp(path, dir, n) && (!path[n] || path[n] == '/' || dir[n - 1] == '/');
}

/* A file is where @dir needs a directory: another name in place of the file's, malloc'ed. */
static char *around(struct shell *s, const char *dir)
{
	char *path = cli_strdup(dir), *out = NULL;
	struct dfs_stat st;

	for (char *end = path + strlen(path); end > path; end = strrchr(path, '/')) {
		*end = '\0';
		if (dfs_stat(s->c.fs, path, &st, NULL) < 0 || st.type == DFS_DIR)
			continue;
		out = text("%s%llu%s", path, (unsigned long long)clock_wall_ms(),
			   dir + strlen(path));
		break;
	}
	free(path);
	return out ? out : cli_strdup(dir);
}

/* One try. *@dir is the directory in the trash. */
static int move_once(struct shell *s, const char *path, char **dir, struct dfs_err *err)
{
	char *name = cli_base(path), *to;
	int rc = dfs_mkdir(s->c.fs, *dir, TRASH_MODE, true, err);

	if (rc == -EEXIST || rc == -ENOTDIR) {
		to = around(s, *dir);
		free(*dir);
		*dir = to;
		free(name);
		return -EAGAIN;
	}
	to = cli_join(*dir, name);
	if (!rc)
		rc = dfs_rename(s->c.fs, path, to, false, err);
	if (rc == -EEXIST || rc == -ENOTEMPTY || rc == -EISDIR || rc == -ENOTDIR) {
		free(to);
		to = text("%s/%s%llu", *dir, name, (unsigned long long)clock_wall_ms());
		rc = dfs_rename(s->c.fs, path, to, false, err);
	}
	if (!rc)
		fprintf(stderr, "Moved: '%s' to trash at: %s\n", path, to);
	free(name);
	free(to);
	return rc;
}

static int move(struct shell *s, const struct shell_item *it, const char *path, const char *trash)
{
	char *parent = cli_parent(path), *line;
	char *dir = text("%s/Current%s", trash, strcmp(parent, "/") ? parent : "");
	struct dfs_err err = {0};
	struct dfs_stat st;
	int rc = -EAGAIN;

	for (int turn = 0; turn < TURNS && (rc == -EAGAIN || rc == -EEXIST || rc == -ENOENT);
	     turn++) {
		rc = move_once(s, path, &dir, &err);
		if (rc == -ENOENT && shell_stat(s, path, &st, NULL) == -ENOENT)
			break; /* somebody else has deleted it */
	}
	if (rc == -ENOENT && shell_flag(s, "f")) {
		rc = 0;
	} else if (rc == -ENOENT) {
		shell_fail(s, it->shown, rc, &err);
	} else if (rc < 0) {
		line = text("Failed to move %s to trash %s: %s. " CURE, path, dir,
			    err.text[0] ? err.text : "its name is taken");
		cli_fail(&s->c, NULL, line);
		free(line);
	}
	free(dir);
	free(parent);
	return rc < 0 ? rc : 1;
}

int shell_to_trash(struct shell *s, const struct shell_item *it)
{
	const char *prefix = dfs_conf(s->c.fs, "dfs.user.home.dir.prefix");
	char *path, *home, *trash, *line;
	int rc = 0;

	if (!is_on(s))
		return 0;
	path = shell_absolute(s, it->path);
	home = text("%s/%s", prefix ? prefix : "/user", dfs_user(s->c.fs));
	trash = text("%s/.Trash", home);
	if (is_within(path, trash)) {
		rc = 0;
	} else if (is_within(home, path)) {
		line = text("Cannot move \"%s\" to the trash, as it contains the trash. " CURE,
			    path);
		cli_fail(&s->c, NULL, line);
		free(line);
		rc = -EINVAL;
	} else {
		rc = move(s, it, path, trash);
	}
	free(trash);
	free(home);
	free(path);
	return rc;
}

/* ---- expunge ---- */

/* Of a checkpoint, yyMMddHHmmss of local time, and -N where there were several. 0: it is none. */
static uint64_t time_of(const char *name)
{
	struct tm tm = {.tm_isdst = -1};
	const size_t digits = strspn(name, "0123456789");
	const char *end = strptime(name, digits == 10 ? "%y%m%d%H%M" : "%y%m%d%H%M%S", &tm);

	if (!end || (*end && *end != '-'))
		return 0;
	return (uint64_t)((int64_t)mktime(&tm) * 1000);
}

struct purge {
	uint64_t before_ms;
};

static void purge_one(struct shell *s, const struct shell_item *it, void *arg)
{
	const struct purge *p = arg;
	struct dfs_err err = {0};
	char *name = cli_base(it->path);
	const uint64_t made = time_of(name);
	int rc = 0;

	if (!strcmp(name, "Current"))
		;
	else if (!made)
		cli_warn(&s->c, it->shown, "no checkpoint of the trash: left as it is");
	else if (made < p->before_ms)
		rc = dfs_delete(s->c.fs, it->path, true, &err);
	if (rc < 0 && rc != -ENOENT) /* the NameNode may be at it, too */
		shell_fail(s, it->shown, rc, &err);
	free(name);
}

/* Current becomes a checkpoint, whose name has no century. */
static void checkpoint(struct shell *s, const char *trash)
{
	char *from = text("%s/Current", trash), stamp[32], *to;
	const time_t now = time(NULL);
	struct dfs_err err = {0};
	struct tm tm;
	int rc = -EEXIST;

	if (localtime_r(&now, &tm) && strftime(stamp, sizeof(stamp), "%Y%m%d%H%M%S", &tm))
		for (int n = 0; n < 1000 && rc == -EEXIST; n++) {
			to = n ? text("%s/%s-%d", trash, stamp + 2, n)
			       : text("%s/%s", trash, stamp + 2);
			rc = dfs_rename(s->c.fs, from, to, false, &err);
			free(to);
		}
	if (rc < 0 && rc != -ENOENT)
		shell_fail(s, from, rc, &err);
	free(from);
}

int shell_expunge(struct shell *s)
{
	const char *prefix = dfs_conf(s->c.fs, "dfs.user.home.dir.prefix");
	const char *own = dfs_conf(s->c.fs, "fs.trash.interval");
	char *trash = text("%s/%s/.Trash", prefix ? prefix : "/user", dfs_user(s->c.fs));
	const struct shell_item dir = {.shown = trash, .path = trash};
	struct purge p = {.before_ms = clock_wall_ms()};
	struct dfs_defaults d;
	struct dfs_stat st;

	dfs_get_defaults(s->c.fs, &d);
	if (!shell_flag(s, "immediate"))
		p.before_ms -= d.trash_minutes ? d.trash_minutes * 60000
					       : (uint64_t)(own ? strtod(own, NULL) * 60000 : 0);
	if (dfs_stat(s->c.fs, trash, &st, NULL) == 0) {
		shell_children(s, &dir, purge_one, &p);
		checkpoint(s, trash);
	}
	free(trash);
	return EXIT_OK;
}
