/* SPDX-License-Identifier: Apache-2.0 */
/* -mkdir, -rm, -rmr, -rmdir, -mv, -touch, -touchz, -concat, -truncate: names are made and go. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "tools/shell/shell.h"

/* ---- mkdir ---- */

static void mkdir_again(struct shell *s, const struct shell_item *it)
{
	if (it->st.type != DFS_DIR)
		shell_fail(s, it->shown, -ENOTDIR, NULL);
	else if (!shell_flag(s, "p"))
		shell_fail(s, it->shown, -EEXIST, NULL);
}

static void mkdir_new(struct shell *s, const struct shell_item *it)
{
	const bool parents = shell_flag(s, "p");
	struct dfs_err err = {0};
	int rc;

	rc = dfs_mkdir(s->c.fs, it->path, 0, parents, &err);
	if (rc == -ENOENT) {
		char *path = shell_absolute(s, it->path), *parent = cli_parent(path), *shown;

		if (asprintf(&shown, "%s%s", dfs_uri(s->c.fs), parent) >= 0) {
			shell_fail(s, shown, rc, &err);
			free(shown);
		}
		free(parent);
		free(path);
	} else if (rc < 0) {
		shell_fail(s, it->shown, rc, &err);
	}
}

int shell_mkdir(struct shell *s)
{
	return shell_each(s, 0, mkdir_again, mkdir_new);
}

/* ---- rm, rmdir ---- */

static void rm_one(struct shell *s, const struct shell_item *it)
{
	const bool deep = shell_flag(s, "r") || shell_flag(s, "R") || !strcmp(s->cmd->name, "rmr");
	const bool dir = it->st.type == DFS_DIR;
	struct dfs_err err = {0};
	int rc = 0;

	if (dir && !deep) {
		shell_fail(s, it->shown, -EISDIR, NULL);
		return;
	}
	if (!shell_flag(s, "skipTrash"))
		rc = shell_to_trash(s, it);
	if (rc)
		return;
	rc = dfs_delete(s->c.fs, it->path, dir && deep, &err);
	/* somebody was faster, which is what was wanted */
	if (rc == -ENOENT && shell_flag(s, "f"))
		return;
	if (rc < 0)
		shell_fail(s, it->shown, rc, &err);
	else
		printf("Deleted %s\n", cli_name(it->shown));
}

static void rm_missing(struct shell *s, const struct shell_item *it)
{
	if (!shell_flag(s, "f"))
		shell_fail(s, it->shown, -ENOENT, NULL);
}

int shell_rm(struct shell *s)
{
	s->quiet_patterns = shell_flag(s, "f");
	return shell_each(s, 0, rm_one, rm_missing);
}

static void rmdir_one(struct shell *s, const struct shell_item *it)
{
	struct dfs_err err = {0};
	int rc = it->st.type == DFS_DIR ? 0 : -ENOTDIR;

	if (!rc)
		rc = dfs_delete(s->c.fs, it->path, false, &err);
	if (rc == -ENOTEMPTY && shell_flag(s, "-ignore-fail-on-non-empty"))
		return;
	if (rc < 0)
		shell_fail(s, it->shown, rc, &err);
}

int shell_rmdir(struct shell *s)
{
	return shell_each(s, 0, rmdir_one, NULL);
}

/* ---- mv ---- */

/* Is @inner @outer, or below it? Both are absolute. 1: the same; 2: below. */
static int within(const char *inner, const char *outer)
{
	const size_t n = strlen(outer);

	if (strncmp(inner, outer, n) != 0)
		return 0;
	return !inner[n] ? 1 : inner[n] == '/' || (n && outer[n - 1] == '/') ? 2 : 0;
}

/* @shown: of the target. */
static void mv_to(struct shell *s, const struct shell_item *from, const char *shown,
		  const char *path)
{
	char *a = shell_absolute(s, from->path), *b = shell_absolute(s, path);
	const int inside = from->st.type == DFS_DIR ? within(b, a) : 0;
	struct dfs_err err = {0};
	int rc = 0;

	if (inside) {
		fprintf(stderr, "%s: `%s' to `%s%s': %s\n", s->c.cmd, from->shown,
			inside == 1 ? dfs_uri(s->c.fs) : "", inside == 1 ? b : shown,
			inside == 1 ? "are identical" : "is a subdirectory of itself");
		s->c.failures++;
	} else {
		rc = dfs_rename(s->c.fs, from->path, path, false, &err);
	}
	if (rc == -EEXIST)
		shell_fail(s, shown, rc, &err);
	else if (rc < 0)
		shell_fail(s, from->shown, rc, &err);
	free(a);
	free(b);
}

static void mv_into(struct shell *s, const struct shell_item *from, const struct shell_item *dir)
{
	char *name = cli_base(from->path);
	struct shell_item to = shell_child(dir, name);

	mv_to(s, from, to.shown, to.path);
	shell_item_end(&to);
	free(name);
}

int shell_mv(struct shell *s)
{
	const struct shell_item *to;
	size_t sources;

	shell_expand(s, 0, s->c.argc - 1);
	sources = s->count;
	to = shell_target(s);
	if (!to || !shell_target_fits(s, to, sources, false))
		return EXIT_OK;
	for (size_t i = 0; i < sources; i++) {
		const struct shell_item *from = &s->item[i];

		if (!from->exists)
			shell_fail(s, from->shown, -ENOENT, NULL);
		else if (to->exists && to->st.type == DFS_DIR)
			mv_into(s, from, to);
		else
			mv_to(s, from, to->shown, to->path);
	}
	return EXIT_OK;
}

/* ---- touchz, touch ---- */

/* An empty file. Another one may have made it meanwhile: then it stays as it is. */
static void make_empty(struct shell *s, const struct shell_item *it)
{
	struct dfs_create_opts o = {.size = sizeof(o), .flags = DFS_CREATE_NO_PARENTS};
	struct dfs_err err = {0};
	struct dfs_file *f;
	int rc;

	if (!shell_has_parent(s, it))
		return;
	rc = dfs_create(s->c.fs, it->path, &o, &f, &err);
	if (!rc)
		rc = dfs_close(f, &err);
	if (rc < 0)
		shell_fail(s, it->shown, rc, &err);
}

static void set_times(struct shell *s, const struct shell_item *it, uint64_t mtime, uint64_t atime)
{
	struct dfs_err err = {0};
	const int rc = dfs_set_times(s->c.fs, it->path, mtime, atime, &err);

	if (rc < 0)
		shell_fail(s, it->shown, rc, &err);
}

/* Not made anew, as Hadoop does: whoever has begun to write it keeps it. */
static void touchz_again(struct shell *s, const struct shell_item *it)
{
	const uint64_t now = clock_wall_ms();

	if (it->st.type == DFS_DIR)
		shell_fail(s, it->shown, -EISDIR, NULL);
	else if (it->st.length)
		shell_fail_text(s, it->shown, "Not a zero-length file");
	else
		set_times(s, it, now, now);
}

int shell_touchz(struct shell *s)
{
	return shell_each(s, 0, touchz_again, make_empty);
}

/* yyyyMMdd:HHmmss of local time. */
static bool parse_time(const char *text, uint64_t *ret_ms)
{
	struct tm tm = {.tm_isdst = -1};
	const char *end = strptime(text, "%Y%m%d:%H%M%S", &tm);
	time_t t;

	if (!end || *end)
		return false;
	t = mktime(&tm);
	*ret_ms = (uint64_t)((int64_t)t * 1000);
	return t != -1;
}

static void touch_again(struct shell *s, const struct shell_item *it)
{
	const char *when = shell_option(&s->options, "t");
	const bool a = shell_flag(s, "a"), m = shell_flag(s, "m");
	uint64_t t = clock_wall_ms();

	if (it->st.type == DFS_DIR) {
		shell_fail(s, it->shown, -EISDIR, NULL);
		return;
	}
	if (when)
		(void)parse_time(when, &t); /* was tried before */
	set_times(s, it, a && !m ? DFS_TIME_KEEP : t, m && !a ? DFS_TIME_KEEP : t);
}

static void touch_new(struct shell *s, const struct shell_item *it)
{
	const int failures = s->c.failures;

	if (shell_flag(s, "c"))
		return;
	make_empty(s, it);
	if (shell_flag(s, "t") && s->c.failures == failures)
		touch_again(s, it);
}

int shell_touch(struct shell *s)
{
	const char *when = shell_option(&s->options, "t");
	uint64_t t;

	if (when && !parse_time(when, &t))
		return shell_usage(s, "Unable to parse the specified timestamp ", when);
	return shell_each(s, 0, touch_again, touch_new);
}

/* ---- concat, truncate ---- */

int shell_concat(struct shell *s)
{
	const char **sources;
	struct dfs_err err = {0};
	int rc;

	shell_expand(s, 0, s->c.argc);
	sources = calloc(s->count + 1, sizeof(*sources));
	if (!sources)
		return cli_fail_errno(&s->c, "memory", -ENOMEM, NULL);
	for (size_t i = 1; i < s->count; i++)
		sources[i - 1] = s->item[i].path;
	if (!s->c.failures) {
		rc = dfs_concat(s->c.fs, s->item[0].path, sources, s->count - 1, &err);
		if (rc < 0)
			cli_fail(&s->c, NULL, err.text);
	}
	free(sources);
	return EXIT_OK;
}

static bool parse_number(const char *text, int64_t most, int64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoimax(text, &end, 10);
	return !errno && *text && !*end && *ret <= most && !strchr(" \t\n", *text);
}

#define CUT_PATIENCE_MS (600 * 1000)

static void wait_cut(struct shell *s, const struct shell_item *it, int64_t length)
{
	struct dfs_err err = {0};
	int rc;

	printf("Waiting for %s ...\n", cli_name(it->shown));
	(void)fflush(stdout);
	rc = dfs_wait_closed(s->c.fs, it->path, CUT_PATIENCE_MS, &err);
	if (rc < 0)
		shell_fail(s, it->shown, rc, &err);
	else
		printf("Truncated %s to length: %" PRId64 "\n", cli_name(it->shown), length);
}

/* True: data nodes are cutting it. */
static bool cut(struct shell *s, const struct shell_item *it, int64_t length)
{
	struct dfs_err err = {0};
	bool done;
	int rc = it->exists ? it->st.type == DFS_DIR ? -EISDIR : 0 : -ENOENT;

	if (!rc)
		rc = dfs_truncate(s->c.fs, it->path, (uint64_t)length, &done, &err);
	if (rc < 0)
		shell_fail(s, it->shown, rc, &err);
	else if (done)
		printf("Truncated %s to length: %" PRId64 "\n", cli_name(it->shown), length);
	else if (shell_flag(s, "w"))
		return true;
	else
		printf("Truncating %s to length: %" PRId64
		       ". Wait for block recovery to complete before further updating this file.\n",
		       cli_name(it->shown), length);
	return false;
}

int shell_truncate(struct shell *s)
{
	int64_t length;

	if (!parse_number(s->c.argv[0], INT64_MAX, &length))
		return shell_usage(s, "Illegal length, a non-negative integer expected", NULL);
	if (length < 0)
		return shell_usage(s, "length must be >= 0", NULL);
	shell_expand(s, 1, s->c.argc);
	for (size_t i = 0; i < s->count; i++)
		s->item[i].exists = cut(s, &s->item[i], length); /* is to be waited for */
	for (size_t i = 0; i < s->count; i++)
		if (s->item[i].exists)
			wait_cut(s, &s->item[i], length);
	return EXIT_OK;
}

/* ---- setrep ---- */

struct setrep {
	struct shell *s;
	uint32_t n;
	struct shell_items done; /* to be waited for */
};

static void setrep_one(struct shell *s, const struct shell_item *it, void *arg);

static void setrep_file(struct shell *s, const struct shell_item *it, struct setrep *r)
{
	struct dfs_err err = {0};
	int rc;

	if (it->st.erasure_coded) {
		printf("Did not set replication for: %s, because it's an erasure coded file.\n",
		       cli_name(it->shown));
		return;
	}
	rc = dfs_set_replication(s->c.fs, it->path, r->n, &err);
	if (rc < 0) {
		shell_fail(s, it->shown, rc, &err);
		return;
	}
	printf("Replication %u set: %s\n", r->n, cli_name(it->shown));
	if (shell_flag(s, "w"))
		shell_items_add(&r->done, it);
}

static void setrep_one(struct shell *s, const struct shell_item *it, void *arg)
{
	struct setrep *r = arg;

	if (it->st.type == DFS_FILE)
		setrep_file(s, it, r);
	else if (it->st.type == DFS_DIR)
		shell_children(s, it, setrep_one, r);
	else
		shell_fail_text(s, it->shown, "Symlinks unsupported");
}

#define LOOK_EVERY_S 1

static void wait_replicas(struct shell *s, const struct shell_item *it, uint32_t n)
{
	struct dfs_err err = {0};
	uint64_t turns = 0;
	int rc;

	printf("Waiting for %s ...", cli_name(it->shown));
	(void)fflush(stdout);
	while (!(rc = cli_has_replicas(&s->c, it->path, n, &err))) {
		if (++turns % 10 == 0) {
			putchar('.');
			(void)fflush(stdout);
		}
		(void)nanosleep(&(struct timespec){.tv_sec = LOOK_EVERY_S}, NULL);
	}
	puts(rc < 0 ? "" : " done");
	if (rc < 0)
		shell_fail(s, it->shown, rc, &err);
}

int shell_setrep(struct shell *s)
{
	struct setrep r = {.s = s};
	int64_t n;

	if (!parse_number(s->c.argv[0], INT16_MAX, &n))
		return shell_usage(s, "Illegal replication, a positive integer expected", NULL);
	if (n < 1)
		return shell_usage(s, "replication must be >= 1", NULL);
	r.n = (uint32_t)n;
	shell_expand(s, 1, s->c.argc);
	for (size_t i = 0; i < s->count; i++) {
		if (s->item[i].exists)
			setrep_one(s, &s->item[i], &r);
		else
			shell_fail(s, s->item[i].shown, -ENOENT, NULL);
	}
	for (size_t i = 0; i < r.done.count; i++)
		wait_replicas(s, &r.done.item[i], r.n);
	shell_items_free(&r.done);
	return EXIT_OK;
}
