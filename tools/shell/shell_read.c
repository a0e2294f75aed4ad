/* SPDX-License-Identifier: Apache-2.0 */
/* -cat, -head, -tail: the bytes of files. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/err.h"
#include "tools/relay.h"
#include "tools/shell/shell.h"

#define END_BYTES 1024 /* that -head and -tail show */
#define PIECE (256u << 10)

/* The operands of a command that this program has by another name: items that are there. */
static void use_items(struct shell *s)
{
	char **argv = cli_checked(calloc(s->count + 1, sizeof(*argv)));

	free(s->c.argv);
	s->c.argv = argv;
	s->c.argc = 0;
	for (size_t i = 0; i < s->count; i++)
		if (s->item[i].exists)
			argv[s->c.argc++] = s->item[i].path;
}

int shell_cat(struct shell *s)
{
	shell_expand(s, 0, s->c.argc);
	for (size_t i = 0; i < s->count; i++) {
		struct shell_item *it = &s->item[i];
		const int rc = !it->exists ? -ENOENT : it->st.type == DFS_DIR ? -EISDIR : 0;

		if (rc)
			shell_fail(s, it->shown, rc, NULL);
		it->exists = !rc;
	}
	use_items(s);
	return cmd_cat(&s->c);
}

/* ---- head and tail ---- */

/* A file that is shown from some place on. */
struct view {
	struct shell *s;
	const struct shell_item *it;
	struct dfs_file *f;
	uint64_t id; /* of the file that is open */
	char *buf;
};

/* @buf to standard output, past stdio. False after the message. */
static bool put(struct view *v, size_t n)
{
	const int rc = relay_write_all(STDOUT_FILENO, v->buf, n);

	if (rc < 0)
		cli_fail_write(&v->s->c, "standard output", rc);
	return rc == 0;
}

static bool fails(struct view *v, int rc, const struct dfs_err *err)
{
	shell_fail(v->s, v->it->shown, rc, err);
	return false;
}

/* The file that has the name now. Its id is certain when the name has it before and after. */
static bool view_open(struct view *v)
{
	struct dfs_err err = {0};
	struct dfs_stat before, after;
	int rc;

	for (;;) {
		rc = dfs_stat(v->s->c.fs, v->it->path, &before, &err);
		if (!rc && before.type == DFS_DIR)
			return fails(v, -EISDIR, NULL);
		if (!rc)
			rc = dfs_open(v->s->c.fs, v->it->path, &v->f, &err);
		if (rc < 0)
			return fails(v, rc, &err);
		rc = dfs_stat(v->s->c.fs, v->it->path, &after, &err);
		if (!rc && before.file_id == after.file_id)
			break;
		dfs_close(v->f, NULL);
		v->f = NULL;
		if (rc < 0)
			return fails(v, rc, &err);
	}
	v->id = before.file_id;
	return true;
}

static void view_close(struct view *v)
{
	dfs_close(v->f, NULL);
	v->f = NULL;
}

/* At most @most bytes from *@at on, which is moved behind them. */
static bool view_show(struct view *v, uint64_t *at, uint64_t most)
{
	struct dfs_err err = {0};
	int rc = dfs_seek(v->f, *at, &err);
	ssize_t n;

	if (rc < 0)
		return fails(v, rc, &err);
	while (most) {
		n = dfs_read(v->f, v->buf, most < PIECE ? (size_t)most : PIECE, &err);
		if (n < 0)
			return fails(v, (int)n, &err);
		if (!n)
			break;
		if (!put(v, (size_t)n))
			return false;
		*at += (uint64_t)n;
		most -= (uint64_t)n;
	}
	return true;
}

static bool view_begin(struct view *v, struct shell *s)
{
	*v = (struct view){.s = s};
	shell_expand(s, 0, 1);
	if (s->count != 1)
		return false;
	v->it = &s->item[0];
	if (!v->it->exists)
		return fails(v, -ENOENT, NULL);
	v->buf = malloc(PIECE);
	if (!v->buf)
		return fails(v, -ENOMEM, NULL);
	return view_open(v);
}

static void view_end(struct view *v)
{
	view_close(v);
	free(v->buf);
}

int shell_head(struct shell *s)
{
	struct view v;
	uint64_t at = 0;

	if (view_begin(&v, s))
		(void)view_show(&v, &at, END_BYTES);
	view_end(&v);
	return EXIT_OK;
}

/* ---- tail -f ---- */

/* False: nobody reads what is written any more, which a file that does not grow would not show. */
static bool pause_while_read(struct view *v, int ms)
{
	struct pollfd p = {.fd = STDOUT_FILENO};

	if (poll(&p, 1, ms) > 0 && p.revents & (POLLERR | POLLNVAL)) {
		cli_fail_write(&v->s->c, "standard output", -EPIPE);
		return false;
	}
	return true;
}

/* What has come behind @at since, of the file that has the name now. */
static bool follow_once(struct view *v, uint64_t *at)
{
	const uint64_t old = v->id;
	bool fine;

	if (!view_open(v))
		return false;
	if (v->id != old) {
		cli_warn(&v->s->c, v->it->shown,
			 "was replaced; from the beginning of the new file");
		*at = 0;
	} else if (dfs_length(v->f) < *at) {
		cli_warn(&v->s->c, v->it->shown, "was cut; from its new end");
		*at = dfs_length(v->f);
	}
	fine = view_show(v, at, UINT64_MAX);
	view_close(v);
	return fine;
}

#define PAUSE_MS 5000

/* Of -s: milliseconds. */
static int pause_of(const struct shell *s)
{
	const char *text = shell_option(&s->options, "s");
	char *end;
	long n;

	if (!text || !*text)
		return PAUSE_MS;
	errno = 0;
	n = strtol(text, &end, 10);
	return errno || *end || n > INT32_MAX ? -1 : n > 0 ? (int)n : PAUSE_MS;
}

int shell_tail(struct shell *s)
{
	const int pause = pause_of(s);
	struct view v;
	uint64_t at;
	bool fine;

	if (pause < 0)
		return shell_usage(s, "-s takes milliseconds, not ",
				   shell_option(&s->options, "s"));
	fine = view_begin(&v, s);
	if (fine) {
		at = dfs_length(v.f) > END_BYTES ? dfs_length(v.f) - END_BYTES : 0;
		fine = view_show(&v, &at, UINT64_MAX);
		view_close(&v);
	}
	while (fine && shell_flag(s, "f"))
		fine = pause_while_read(&v, pause) && follow_once(&v, &at);
	view_end(&v);
	return EXIT_OK;
}
