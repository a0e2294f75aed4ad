/* SPDX-License-Identifier: Apache-2.0 */
/* -put, -get, -moveFromLocal, -appendToFile: what Hadoop looks at before it copies; the copies are
 * those of this program's put, get and append. */
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/err.h"
#include "tools/shell/shell.h"

#define JOBS_MAX 64

void shell_set_jobs(struct shell *s)
{
	const char *text = shell_option(&s->options, "t");
	const long n = text ? strtol(text, NULL, 10) : 0;

	if (n > 0)
		s->c.jobs = n < JOBS_MAX ? (uint32_t)n : JOBS_MAX;
}

/* ---- put ---- */

static int remove_dir(const char *path, const struct stat *st, int kind, struct FTW *at)
{
	(void)st;
	(void)at;
	if (kind == FTW_DP)
		(void)rmdir(path); /* what is left in it was told, or came meanwhile */
	return 0;
}

/* Directories whose files have been moved. */
static void remove_dirs(struct shell *s)
{
	struct stat st;

	for (int i = 0; i + 1 < s->c.argc; i++) {
		const char *path = s->c.argv[i];

		if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
			continue;
		(void)nftw(path, remove_dir, 16, FTW_DEPTH | FTW_PHYS);
		if (lstat(path, &st) == 0)
			cli_fail(&s->c, path, "not all of it could be moved: the rest stays");
	}
}

/* A directory is not merged into one that is there. */
static bool may_move(struct shell *s, const struct shell_item *to)
{
	struct dfs_stat there;
	struct stat st;
	bool fine = true;

	for (int i = 0; i + 1 < s->c.argc; i++) {
		const char *src = s->c.argv[i];
		char *name = cli_base(src);
		struct shell_item it = shell_child(to, name);

		if (to->exists && stat(src, &st) == 0 && S_ISDIR(st.st_mode) &&
		    shell_stat(s, it.path, &there, NULL) == 0) {
			shell_fail(s, it.shown, -EEXIST, NULL);
			fine = false;
		}
		shell_item_end(&it);
		free(name);
	}
	return fine;
}

int shell_put(struct shell *s)
{
	const bool move = !strcmp(s->cmd->name, "moveFromLocal");
	const struct shell_item *to;
	int rc;

	s->c.force = shell_flag(s, "f");
	s->c.recursive = true;
	s->c.move = move;
	shell_set_jobs(s);
	to = shell_target(s);
	if (!to || !shell_target_fits(s, to, (size_t)s->c.argc - 1, s->c.force))
		return EXIT_OK;
	if (move && !may_move(s, to))
		return EXIT_OK;
	s->c.argv[s->c.argc - 1] = to->path;
	rc = cmd_put(&s->c);
	if (move && rc <= EXIT_FAIL)
		remove_dirs(s);
	return rc;
}

int shell_append(struct shell *s)
{
	const struct shell_item *to;

	s->c.new_block = shell_flag(s, "n");
	to = shell_target(s);
	if (!to || (!to->exists && !shell_has_parent(s, to)))
		return EXIT_OK;
	if (to->exists && to->st.type == DFS_DIR)
		return shell_fail(s, to->shown, -EISDIR, NULL);
	s->c.argv[s->c.argc - 1] = to->path;
	return cmd_append(&s->c);
}

/* ---- get ---- */

/* As shell_target_fits(), of a local file. */
static bool local_fits(struct shell *s, const char *to, size_t sources)
{
	struct stat st;

	if (stat(to, &st) < 0) {
		if (sources > 1)
			return shell_fail(s, to, -ENOENT, NULL), false;
		return true;
	}
	if (S_ISDIR(st.st_mode))
		return true;
	if (sources > 1)
		return shell_fail(s, to, -ENOTDIR, NULL), false;
	if (S_ISREG(st.st_mode) && !s->c.force)
		return shell_fail(s, to, -EEXIST, NULL), false;
	return true;
}

int shell_get(struct shell *s)
{
	char *to = s->c.argv[s->c.argc - 1], **argv;
	int n = 0;

	s->c.force = shell_flag(s, "f");
	s->c.recursive = true;
	shell_set_jobs(s);
	shell_expand(s, 0, s->c.argc - 1);
	if (!s->count || !local_fits(s, to, s->count))
		return EXIT_OK;
	argv = calloc(s->count + 2, sizeof(*argv));
	if (!argv)
		return cli_fail_errno(&s->c, "memory", -ENOMEM, NULL);
	for (size_t i = 0; i < s->count; i++) {
		if (s->item[i].exists)
			argv[n++] = s->item[i].path;
		else
			shell_fail(s, s->item[i].shown, -ENOENT, NULL);
	}
	argv[n++] = to;
	free(s->c.argv);
	s->c.argv = argv;
	s->c.argc = n;
	return n > 1 ? cmd_get(&s->c) : EXIT_OK;
}
