/* SPDX-License-Identifier: Apache-2.0 */
/* -test and -stat, and -chmod, -chown, -chgrp, which are those of this program. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/shell/shell.h"

/* ---- chmod, chown, chgrp ---- */

int shell_attr(struct shell *s)
{
	char *what = s->c.argv[0], **argv;
	const bool mode = !strcmp(s->cmd->name, "chmod");

	shell_expand(s, 1, s->c.argc);
	argv = calloc(s->count + 1, sizeof(*argv));
	if (!argv)
		return cli_fail_errno(&s->c, "memory", -ENOMEM, NULL);
	free(s->c.argv);
	s->c.argv = argv;
	s->c.argc = 1;
	argv[0] = what;
	for (size_t i = 0; i < s->count; i++) {
		if (s->item[i].exists)
			argv[s->c.argc++] = s->item[i].path;
		else
			shell_fail(s, s->item[i].shown, -ENOENT, NULL);
	}
	s->c.recursive = shell_flag(s, "R");
	return mode                             ? cmd_chmod(&s->c)
	       : !strcmp(s->cmd->name, "chown") ? cmd_chown(&s->c)
						: cmd_chgrp(&s->c);
}

/* ---- test ---- */

static bool may(struct shell *s, const struct shell_item *it, uint32_t bits)
{
	struct dfs_err err = {0};
	const int rc = dfs_access(s->c.fs, it->path, bits, &err);

	if (rc < 0 && rc != -EACCES && rc != -ENOENT)
		shell_fail(s, it->shown, rc, &err);
	return rc == 0;
}

static bool passes(struct shell *s, const struct shell_item *it, char flag)
{
	switch (flag) {
	case 'd':
		return it->st.type == DFS_DIR;
	case 'f':
		return it->st.type == DFS_FILE;
	case 's':
		return it->st.length > 0;
	case 'z':
		return it->st.length == 0;
	case 'w':
		return may(s, it, DFS_ACCESS_W);
	case 'r':
		return may(s, it, DFS_ACCESS_R);
	default: /* e */
		return true;
	}
}

int shell_test(struct shell *s)
{
	static const char flags[] = "edfszwr";
	char flag = '\0';
	int given = 0;

	for (const char *f = flags; *f; f++) {
		const char name[] = {*f, '\0'};

		if (shell_flag(s, name)) {
			flag = *f;
			given++;
		}
	}
	if (!given)
		return shell_usage(s, "No test flag given", NULL);
	if (given > 1)
		return shell_usage(s, "Only one test flag is allowed", NULL);
	shell_expand(s, 0, 1);
	if (!s->count)
		return EXIT_FAIL;
	for (size_t i = 0; i < s->count; i++)
		if (!s->item[i].exists || !passes(s, &s->item[i], flag))
			return EXIT_FAIL;
	return EXIT_OK;
}

/* ---- stat ---- */

static void print_time(uint64_t ms, bool raw)
{
	const time_t t = (time_t)(ms / 1000);
	char when[32];
	struct tm tm;

	if (raw)
		printf("%" PRIu64, ms);
	else if (gmtime_r(&t, &tm) && strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm))
		fputs(when, stdout);
}

static void print_name(const struct shell_item *it)
{
	char *name = cli_base(it->path);

	fputs(cli_name(name), stdout);
	free(name);
}

static void print_field(const struct shell_item *it, char what)
{
	const struct dfs_stat *st = &it->st;
	char mode[12];

	switch (what) {
	case 'a':
		printf("%o", st->mode);
		break;
	case 'A':
		fputs(shell_permission(mode, st), stdout);
		break;
	case 'b':
		printf("%" PRIu64, st->length);
		break;
	case 'F':
		fputs(st->type == DFS_DIR    ? "directory"
		      : st->type == DFS_FILE ? "regular file"
					     : "symlink",
		      stdout);
		break;
	case 'g':
		fputs(st->group, stdout);
		break;
	case 'n':
		print_name(it);
		break;
	case 'o':
		printf("%" PRIu64, st->block_size);
		break;
	case 'r':
		printf("%u", st->replication);
		break;
	case 'u':
		fputs(st->owner, stdout);
		break;
	case 'x':
	case 'X':
		print_time(st->atime_ms, what == 'X');
		break;
	case 'y':
	case 'Y':
		print_time(st->mtime_ms, what == 'Y');
		break;
	default: /* %% too */
		putchar(what);
	}
}

static void stat_one(struct shell *s, const struct shell_item *it, void *arg)
{
	const char *format = arg;

	for (const char *f = format; *f; f++) {
		if (*f != '%')
			putchar(*f);
		else if (f[1])
			print_field(it, *++f);
	}
	putchar('\n');
	if (shell_flag(s, "R") && it->st.type == DFS_DIR)
		shell_children(s, it, stat_one, arg);
}

int shell_stat_command(struct shell *s)
{
	static char usual[] = "%y";
	const bool given = strchr(s->c.argv[0], '%');
	char *format = given ? s->c.argv[0] : usual;

	if (given && s->c.argc == 1)
		return shell_usage(s, "Not enough arguments: expected 1 but got 0", NULL);
	shell_expand(s, given, s->c.argc);
	for (size_t i = 0; i < s->count; i++) {
		if (s->item[i].exists)
			stat_one(s, &s->item[i], format);
		else
			shell_fail(s, s->item[i].shown, -ENOENT, NULL);
	}
	return EXIT_OK;
}
