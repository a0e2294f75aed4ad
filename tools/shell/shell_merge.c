/* SPDX-License-Identifier: Apache-2.0 */
/* -getmerge: files, and those of directories, behind one another in one local file, which appears
 * when it is whole. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/err.h"
#include "tools/copy.h"
#include "tools/relay.h"
#include "tools/shell/shell.h"

struct merge {
	struct shell *s;
	struct shell_items file;
};

/* Directories in a directory are left out. */
static void add_child(struct shell *s, const struct shell_item *it, void *arg)
{
	struct merge *m = arg;

	(void)s;
	if (it->st.type != DFS_DIR)
		shell_items_add(&m->file, it);
}

/* 0, or -errno after the message. */
static int append(struct merge *m, const struct shell_item *it, int fd, void *buf, const char *to)
{
	struct dfs_err err = {0};
	struct dfs_file *f;
	bool empty = true;
	ssize_t n = 0;
	int rc = dfs_open(m->s->c.fs, it->path, &f, &err);

	if (rc < 0)
		return shell_fail(m->s, it->shown, rc, &err), rc;
	while (!rc && !copy_interrupted() && (n = dfs_read(f, buf, COPY_BUFFER, &err)) > 0) {
		rc = relay_write_all(fd, buf, (size_t)n);
		empty = false;
	}
	dfs_close(f, NULL);
	if (n < 0)
		return shell_fail(m->s, it->shown, (int)n, &err), (int)n;
	if (!rc && shell_flag(m->s, "nl") && !(empty && shell_flag(m->s, "skip-empty-file")))
		rc = relay_write_all(fd, "\n", 1);
	if (rc < 0)
		cli_fail_write(&m->s->c, to, rc);
	return rc ? rc : copy_interrupted() ? -EINTR : 0;
}

static int append_all(struct merge *m, int fd, const char *to)
{
	void *buf = malloc(COPY_BUFFER);
	int rc = buf ? 0 : -ENOMEM;

	if (rc < 0)
		cli_fail_errno(&m->s->c, to, rc, NULL);
	for (size_t i = 0; i < m->file.count && !rc; i++)
		rc = append(m, &m->file.item[i], fd, buf, to);
	free(buf);
	if (close(fd) < 0 && !rc)
		rc = (cli_fail_write(&m->s->c, to, neg_errno()), -EIO);
	return rc;
}

static void write_file(struct merge *m, const char *to)
{
	struct stat st;
	/* a device or pipe is written to, not replaced */
	const bool direct = stat(to, &st) == 0 && !S_ISREG(st.st_mode);
	char *tmp = direct ? cli_strdup(to) : copy_tmp_name(to);
	const int fd = open(tmp, O_WRONLY | O_CLOEXEC | (direct ? 0 : O_CREAT | O_EXCL), 0666);

	if (fd < 0) {
		cli_fail_write(&m->s->c, to, neg_errno());
	} else if (append_all(m, fd, to) < 0) {
		if (!direct)
			(void)unlink(tmp);
	} else if (!direct && rename(tmp, to) < 0) {
		cli_fail_write(&m->s->c, to, neg_errno());
		(void)unlink(tmp);
	}
	free(tmp);
}

int shell_getmerge(struct shell *s)
{
	const char *to = s->c.argv[s->c.argc - 1];
	struct merge m = {.s = s};
	struct stat st;

	if (stat(to, &st) == 0 && S_ISDIR(st.st_mode))
		return shell_fail(s, to, -EISDIR, NULL);
	copy_catch_signals();
	shell_expand(s, 0, s->c.argc - 1);
	for (size_t i = 0; i < s->count; i++) {
		const struct shell_item *it = &s->item[i];

		if (!it->exists)
			shell_fail(s, it->shown, -ENOENT, NULL);
		else if (it->st.type == DFS_DIR)
			shell_children(s, it, add_child, &m);
		else
			shell_items_add(&m.file, it);
	}
	if (!s->c.failures)
		write_file(&m, to);
	shell_items_free(&m.file);
	return copy_interrupted() && !s->c.failures ? EXIT_FAIL : EXIT_OK;
}
