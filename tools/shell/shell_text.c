/* SPDX-License-Identifier: Apache-2.0 */
/* -text: files as text, unpacked where gzip or zlib has packed them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/relay.h"
#include "tools/shell/shell.h"
#include "tools/shell/shell_inflate.h"

#define PIECE (1u << 20)

enum form { PLAIN, GZIP, ZLIB, FOREIGN };

static bool ends_in(const char *path, const char *end)
{
	const size_t n = strlen(path), m = strlen(end);

	return n > m && !strcmp(path + n - m, end);
}

/* By the first @n bytes, then by the name, as Hadoop does. *@ret_name: of what is foreign. */
static enum form form_of(const char *path, const unsigned char *p, size_t n, const char **ret_name)
{
	static const struct {
		const char *what, *name;
	} first[] = {{"SEQ", "a sequence file"}, {"Obj\1", "an Avro file"}},
	  last[] = {
		  {".bz2", "bzip2"}, {".snappy", "snappy"}, {".lz4", "LZ4"}, {".zst", "Zstandard"}};

	if (n >= 2 && p[0] == 0x1f && p[1] == 0x8b)
		return GZIP;
	for (size_t i = 0; i < 2; i++) {
		*ret_name = first[i].name;
		if (n >= strlen(first[i].what) && !memcmp(p, first[i].what, strlen(first[i].what)))
			return FOREIGN;
	}
	for (size_t i = 0; i < 4; i++) {
		*ret_name = last[i].name;
		if (ends_in(path, last[i].what))
			return FOREIGN;
	}
	if (ends_in(path, ".gz"))
		return GZIP;
	return ends_in(path, ".deflate") ? ZLIB : PLAIN;
}

static int write_out(void *arg, const void *p, size_t len)
{
	int *failed = arg;

	*failed = relay_write_all(STDOUT_FILENO, p, len);
	return *failed;
}

/* A file that is being shown. */
struct text {
	struct shell *s;
	const struct shell_item *it;
	struct dfs_file *f;
	char *buf;
	struct shell_inflate *x; /* NULL: nothing is to be unpacked */
	int out;                 /* of standard output: the first failure */
};

/* What to do with the file that begins with @n bytes of the buffer. False after the message. */
static bool begin(struct text *t, size_t n)
{
	const char *name;
	char line[128];
	int rc;
	const enum form form = form_of(t->it->path, (const unsigned char *)t->buf, n, &name);

	if (form == PLAIN)
		return true;
	if (form == FOREIGN) {
		snprintf(line, sizeof(line), "%s, which this program cannot unpack", name);
		shell_fail_text(t->s, t->it->shown, line);
		return false;
	}
	rc = shell_inflate_start(form == GZIP, &t->x);
	if (rc == -ENOTSUP)
		shell_fail_text(t->s, t->it->shown,
				"it is packed, and this program was built without zlib");
	else if (rc < 0)
		shell_fail(t->s, t->it->shown, rc, NULL);
	return !rc;
}

/* The bytes of the buffer, and those that follow. */
static void show(struct text *t, ssize_t n)
{
	struct dfs_err err = {0};
	int rc = 0;

	while (n > 0 && !rc) {
		rc = t->x ? shell_inflate_feed(t->x, t->buf, (size_t)n, write_out, &t->out)
			  : write_out(&t->out, t->buf, (size_t)n);
		if (!rc)
			n = dfs_read(t->f, t->buf, PIECE, &err);
	}
	if (t->out < 0)
		cli_fail_write(&t->s->c, "standard output", t->out);
	else if (!rc && n < 0)
		shell_fail(t->s, t->it->shown, (int)n, &err);
	else if (rc == -EBADMSG || (!rc && t->x && shell_inflate_finish(t->x) < 0))
		shell_fail_text(t->s, t->it->shown, "what is packed in it is damaged or cut short");
	else if (rc < 0)
		shell_fail(t->s, t->it->shown, rc, NULL);
}

static void text_one(struct shell *s, const struct shell_item *it)
{
	struct text t = {.s = s, .it = it, .buf = malloc(PIECE)};
	struct dfs_err err = {0};
	ssize_t n;
	int rc = it->st.type == DFS_DIR ? -EISDIR : t.buf ? 0 : -ENOMEM;

	if (!rc)
		rc = dfs_open(s->c.fs, it->path, &t.f, &err);
	if (rc < 0) {
		shell_fail(s, it->shown, rc, &err);
	} else {
		n = dfs_read(t.f, t.buf, PIECE, &err);
		if (n < 0)
			shell_fail(s, it->shown, (int)n, &err);
		else if (n && begin(&t, (size_t)n))
			show(&t, n);
	}
	shell_inflate_end(t.x);
	dfs_close(t.f, NULL);
	free(t.buf);
}

int shell_text(struct shell *s)
{
	return shell_each(s, 0, text_one, NULL);
}
