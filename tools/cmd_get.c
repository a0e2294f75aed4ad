/* SPDX-License-Identifier: Apache-2.0 */
/* dfs get and dfs cat: files of HDFS to local files, and to the standard output. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/err.h"
#include "tools/copy.h"
#include "tools/relay.h"

#define RELAY_MIN (8u << 20) /* a shorter file is not worth a thread */
#define PIECE_MAX (COPY_BUFFERS * COPY_BUFFER / RELAY_BUFFERS)

/* What is read into memory of dfs_buf_alloc() comes by RDMA without a copy, and not ahead: so as
 * much at a time as there is room for. */
static size_t piece(const struct copy *c)
{
	struct dfs_counters n;

	dfs_get_counters(c->cli->fs, &n);
	return n.read_rdma ? PIECE_MAX : COPY_BUFFER;
}

static const char *target_name(const struct copy_item *it)
{
	return strcmp(it->dst, "-") ? it->dst : "standard output";
}

/* Reads and writes in turn. The last dfs_read() in *@ret_n; 0, or -errno of a write. */
static int pump_in_turn(struct copy *c, struct dfs_file *f, int fd, void *buf, ssize_t *ret_n,
			struct dfs_err *err)
{
	int rc = 0;

	while (!rc && !copy_interrupted() && (*ret_n = dfs_read(f, buf, piece(c), err)) > 0) {
		rc = relay_write_all(fd, buf, (size_t)*ret_n);
		progress_add(&c->progress, (uint64_t)*ret_n);
	}
	return rc;
}

/* The same with a thread that writes. */
static int pump_relayed(struct copy *c, struct dfs_file *f, struct relay *r, ssize_t *ret_n,
			struct dfs_err *err)
{
	void *buf;

	while (!copy_interrupted() && (buf = relay_room(r)) &&
	       (*ret_n = dfs_read(f, buf, piece(c), err)) > 0) {
		relay_give(r, (size_t)*ret_n);
		progress_add(&c->progress, (uint64_t)*ret_n);
	}
	return relay_end(r);
}

/* All bytes of @src to @fd. 0, or -errno after the message. */
static int pump(struct copy *c, const struct copy_item *it, int fd, void *buf)
{
	struct dfs_err err = {0};
	struct dfs_file *f;
	struct relay relay;
	ssize_t n = 0;
	int rc = dfs_open(c->cli->fs, it->src, &f, &err);

	if (rc < 0)
		return cli_fail(c->cli, it->src, err.text), rc;
	if (it->size >= RELAY_MIN && relay_start(&relay, fd, buf, PIECE_MAX) == 0)
		rc = pump_relayed(c, f, &relay, &n, &err);
	else
		rc = pump_in_turn(c, f, fd, buf, &n, &err);
	if (rc < 0)
		cli_fail_write(c->cli, target_name(it), rc);
	if (!rc && n < 0)
		rc = (cli_fail(c->cli, it->src, err.text), (int)n);
	if (!rc && copy_interrupted())
		rc = -EINTR;
	dfs_close(f, NULL);
	return rc;
}

/* A device or pipe is written to, not replaced. */
static int get_into(struct copy *c, const struct copy_item *it, void *buf)
{
	int fd = open(it->dst, O_WRONLY | O_CLOEXEC), rc;

	if (fd < 0)
		return cli_fail_write(c->cli, it->dst, neg_errno());
	rc = pump(c, it, fd, buf);
	if (close(fd) < 0 && !rc)
		rc = (cli_fail_write(c->cli, it->dst, neg_errno()), -EIO);
	return rc < 0 ? EXIT_FAIL : EXIT_OK;
}

static int get_one(struct copy *c, const struct copy_item *it, void *buf)
{
	struct stat st;
	char *tmp;
	int fd, rc;

	if (!strcmp(it->dst, "-"))
		return pump(c, it, STDOUT_FILENO, buf) < 0 ? EXIT_FAIL : EXIT_OK;
	if (stat(it->dst, &st) == 0 && !S_ISREG(st.st_mode))
		return get_into(c, it, buf);
	/* a link that leads nowhere is there, too */
	if (!c->cli->force && lstat(it->dst, &st) == 0)
		return cli_fail_errno(c->cli, it->dst, -EEXIST, "use -f to replace it");
	tmp = copy_tmp_name(it->dst);
	fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
		  c->cli->hadoop ? 0666 : it->mode & 0777);
	if (fd < 0) {
		rc = cli_fail_write(c->cli, it->dst, neg_errno());
		free(tmp);
		return rc;
	}
	rc = pump(c, it, fd, buf);
	if (close(fd) < 0 && !rc)
		rc = (cli_fail_write(c->cli, it->dst, neg_errno()), -EIO);
	if (!rc && rename(tmp, it->dst) < 0)
		rc = (cli_fail_write(c->cli, it->dst, neg_errno()), -EIO);
	if (rc < 0)
		(void)unlink(tmp);
	free(tmp);
	return rc < 0 ? EXIT_FAIL : EXIT_OK;
}

static void walk_dir(struct copy *c, const char *src, const char *dst)
{
	struct dfs_err err = {0};
	const struct dfs_stat *st;
	struct dfs_list *l;
	int rc;

	if (mkdir(dst, 0777) < 0 && errno != EEXIST) {
		cli_fail_errno(c->cli, dst, neg_errno(), NULL);
		return;
	}
	if (dfs_list_open(c->cli->fs, src, &l, &err) < 0) {
		cli_fail(c->cli, src, err.text);
		return;
	}
	while ((rc = dfs_list_next(l, &st, &err)) > 0) {
		char *s = cli_join(src, st->name), *d = cli_join(dst, st->name);

		if (st->type == DFS_FILE) {
			copy_add(c, s, d, st->length, st->mode);
			continue;
		}
		if (st->type == DFS_DIR)
			walk_dir(c, s, d);
		else
			cli_fail(c->cli, s, "a symbolic link: left out");
		free(s);
		free(d);
	}
	if (rc < 0)
		cli_fail(c->cli, src, err.text);
	dfs_list_close(l);
}

static void walk(struct copy *c, const char *src, char *dst)
{
	struct dfs_err err = {0};
	struct dfs_stat st;

	if (dfs_stat(c->cli->fs, src, &st, &err) < 0) {
		cli_fail(c->cli, src, err.text);
	} else if (st.type != DFS_DIR) {
		copy_add(c, cli_strdup(src), dst, st.length, st.mode);
		return;
	} else if (!strcmp(dst, "-")) {
		cli_fail_errno(c->cli, src, -EISDIR, "standard output takes files only");
	} else if (!c->cli->recursive) {
		cli_fail_errno(c->cli, src, -EISDIR, "use -r");
	} else {
		walk_dir(c, src, dst);
	}
	free(dst);
}

int cmd_get(struct cli *cli)
{
	struct copy c = {.cli = cli, .one = get_one};
	const char *dst = cli->argv[cli->argc - 1];
	struct stat st;
	bool to_stdout = !strcmp(dst, "-");
	bool into = !to_stdout && stat(dst, &st) == 0 && S_ISDIR(st.st_mode);

	if ((cli->argc > 2 || copy_wants_dir(dst)) && !into && !to_stdout)
		return cli_fail(cli, dst,
				"a directory is meant, and it is not there; make it with mkdir");
	if (to_stdout)
		cli->jobs = 1; /* one after the other */
	for (int i = 0; i + 1 < cli->argc; i++) {
		char *base = cli_base(cli->argv[i]);

		walk(&c, cli->argv[i], into ? cli_join(dst, base) : cli_strdup(dst));
		free(base);
	}
	if (to_stdout)
		cli->quiet = true;
	return copy_run(&c);
}

int cmd_cat(struct cli *cli)
{
	struct copy c = {.cli = cli, .one = get_one};

	cli->jobs = 1;
	cli->quiet = true;
	for (int i = 0; i < cli->argc; i++)
		walk(&c, cli->argv[i], cli_strdup("-"));
	return copy_run(&c);
}
