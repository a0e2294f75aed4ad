/* SPDX-License-Identifier: Apache-2.0 */
/* -du, -df, -count, and how Hadoop writes permissions. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/shell/shell.h"

const char *shell_permission(char buf[12], const struct dfs_stat *st)
{
	char all[12];

	memcpy(buf, cli_mode(all, st) + 1, 10);
	return buf;
}

/* ---- tables ---- */

#define COLUMNS_MAX 5

struct table {
	int columns;
	bool header;        /* the first row is none, and not printed alone */
	bool right;         /* all but the first; else all but the last to the left */
	char **cell;        /* row by row */
	size_t count, room; /* cells */
	int width[COLUMNS_MAX];
};

static void table_add(struct table *t, const char *text)
{
	const int n = (int)strlen(text), column = (int)(t->count % (size_t)t->columns);

	if (t->count == t->room) {
		t->room = t->room ? 2 * t->room : 64;
		t->cell = cli_checked(reallocarray(t->cell, t->room, sizeof(*t->cell)));
	}
	t->cell[t->count++] = cli_strdup(text);
	if (n > t->width[column])
		t->width[column] = n;
}

static void table_print(const struct table *t)
{
	for (size_t i = 0; i < t->count; i++) {
		const int column = (int)(i % (size_t)t->columns), last = t->columns - 1;

		if (column)
			fputs("  ", stdout);
		if (t->right && column)
			printf("%*s", t->width[column], t->cell[i]);
		else if (column < last)
			printf("%-*s", t->width[column], t->cell[i]);
		else
			fputs(cli_name(t->cell[i]), stdout);
		if (column == last)
			putchar('\n');
	}
}

/* Print, and free. */
static void table_end(struct table *t)
{
	if (!t->header || t->count > (size_t)t->columns)
		table_print(t);
	for (size_t i = 0; i < t->count; i++)
		free(t->cell[i]);
	free(t->cell);
}

/* ---- df ---- */

static void home_if_none(struct shell *s, char *place)
{
	if (!s->c.argc) {
		s->shown[0] = s->c.argv[0] = place;
		s->c.argc = 1;
	}
}

int shell_df(struct shell *s)
{
	static char root[] = "/";
	static const char *const heads[COLUMNS_MAX] = {"Filesystem", "Size", "Used", "Available",
						       "Use%"};
	struct table t = {.columns = COLUMNS_MAX, .header = true, .right = true};
	const bool human = shell_flag(s, "h");
	struct dfs_err err = {0};
	struct dfs_statfs f;
	char buf[32];

	home_if_none(s, root);
	for (int k = 0; k < t.columns; k++)
		table_add(&t, heads[k]);
	shell_expand(s, 0, s->c.argc);
	for (size_t i = 0; i < s->count; i++) {
		const int rc = s->item[i].exists ? dfs_statfs(s->c.fs, &f, &err) : -ENOENT;

		if (rc < 0) {
			shell_fail(s, s->item[i].shown, rc, &err);
			continue;
		}
		table_add(&t, dfs_uri(s->c.fs));
		table_add(&t, shell_size(buf, f.capacity, human));
		table_add(&t, shell_size(buf, f.used, human));
		table_add(&t, shell_size(buf, f.remaining, human));
		snprintf(buf, sizeof(buf), "%.0f%%",
			 f.capacity ? (double)f.used * 100 / (double)f.capacity : 0.0);
		table_add(&t, buf);
	}
	table_end(&t);
	return EXIT_OK;
}

/* ---- du ---- */

static void du_one(struct shell *s, const struct shell_item *it, void *arg)
{
	const bool human = shell_flag(s, "h");
	struct dfs_content_summary sum;
	struct dfs_err err = {0};
	struct table *t = arg;
	char buf[32];
	const int rc = dfs_get_content_summary(s->c.fs, it->path, &sum, &err);

	if (rc < 0) {
		shell_fail(s, it->shown, rc, &err);
		return;
	}
	table_add(t, shell_size(buf, sum.length, human));
	table_add(t, shell_size(buf, sum.space_consumed, human));
	table_add(t, it->shown);
}

int shell_du(struct shell *s)
{
	static char here[] = ".";
	const bool whole = shell_flag(s, "s") || !strcmp(s->cmd->name, "dus");
	struct table t = {.columns = 3, .header = shell_flag(s, "v")};

	home_if_none(s, here);
	if (t.header) {
		table_add(&t, "SIZE");
		table_add(&t, "DISK_SPACE_CONSUMED_WITH_ALL_REPLICAS");
		table_add(&t, "FULL_PATH_NAME");
	}
	shell_expand(s, 0, s->c.argc);
	for (size_t i = 0; i < s->count; i++) {
		const struct shell_item *it = &s->item[i];

		if (!it->exists)
			shell_fail(s, it->shown, -ENOENT, NULL);
		else if (it->st.type == DFS_DIR && !whole)
			shell_children(s, it, du_one, &t);
		else
			du_one(s, it, &t);
	}
	table_end(&t);
	return EXIT_OK;
}

/* ---- count ---- */

/* A limit and what is left of it. */
static void print_quota(int64_t limit, uint64_t used, int width, bool human)
{
	char a[32] = "none", b[32] = "inf", left[32];

	if (limit >= 0) {
		const bool over = used > (uint64_t)limit;

		shell_size(a, (uint64_t)limit, human);
		shell_size(left, over ? used - (uint64_t)limit : (uint64_t)limit - used, human);
		snprintf(b, sizeof(b), "%s%.30s", over ? "-" : "", left);
	}
	printf("%*s %15s ", width, a, b);
}

static void count_one(struct shell *s, const struct shell_item *it)
{
	const bool human = shell_flag(s, "h"), alone = shell_flag(s, "u");
	struct dfs_content_summary sum;
	struct dfs_err err = {0};
	char a[32], b[32], d[32];
	const int rc = dfs_get_content_summary(s->c.fs, it->path, &sum, &err);

	if (rc < 0) {
		shell_fail(s, it->shown, rc, &err);
		return;
	}
	if (alone || shell_flag(s, "q")) {
		print_quota(sum.name_quota, sum.file_count + sum.directory_count, 12, human);
		print_quota(sum.space_quota, sum.space_consumed, 15, human);
	}
	if (!alone)
		printf("%12s %12s %18s ", shell_size(a, sum.directory_count, human),
		       shell_size(b, sum.file_count, human), shell_size(d, sum.length, human));
	printf("%s\n", cli_name(it->shown));
}

int shell_count(struct shell *s)
{
	const bool alone = shell_flag(s, "u");

	if (shell_flag(s, "v")) {
		if (alone || shell_flag(s, "q"))
			printf("%12s %15s %15s %15s ", "QUOTA", "REM_QUOTA", "SPACE_QUOTA",
			       "REM_SPACE_QUOTA");
		if (!alone)
			printf("%12s %12s %18s ", "DIR_COUNT", "FILE_COUNT", "CONTENT_SIZE");
		puts("PATHNAME");
	}
	return shell_each(s, 0, count_one, NULL);
}
