/* SPDX-License-Identifier: Apache-2.0 */
/* dfs put and dfs append: local files are uploaded under a temporary name, and renamed when they
 * are whole. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/err.h"
#include "tools/copy.h"
#include "tools/operand.h"

/* A part of the thread's memory, which the library borrows until the data nodes have it. */
struct piece {
	char *p;
	atomic_bool lent;
};

static void give_back(void *arg)
{
	struct piece *p = arg;

	atomic_store(&p->lent, false);
}

/* One that is here. NULL: writing failed. */
static struct piece *next_piece(struct piece pieces[COPY_BUFFERS], struct dfs_file *f,
				struct dfs_err *err)
{
	for (;;) {
		for (unsigned i = 0; i < COPY_BUFFERS; i++)
			if (!atomic_load(&pieces[i].lent))
				return &pieces[i];
		if (dfs_flush(f, err) < 0)
			return NULL;
	}
}

/* All bytes of @fd into @f. 0, or -errno after the message. Pieces are here again when @f is
 * closed. */
static int pump(struct copy *c, const struct copy_item *it, const char *tmp, int fd,
		struct dfs_file *f, struct piece pieces[COPY_BUFFERS])
{
	struct dfs_err err = {0};
	struct piece *p;
	ssize_t n;

	while (!copy_interrupted()) {
		p = next_piece(pieces, f, &err);
		if (!p)
			return copy_fail(c, it, tmp, err.text), err.rc;
		n = read(fd, p->p, COPY_BUFFER);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return cli_fail_errno(c->cli,
					      fd == STDIN_FILENO ? "standard input" : it->src,
					      neg_errno(), NULL),
			       -EIO;
		/* the signal that ends a whole command line may also have ended who writes to us */
		if (!n)
			return copy_interrupted() ? -EINTR : 0;
		atomic_store(&p->lent, true);
		if (dfs_write_lent(f, p->p, (size_t)n, give_back, p, &err) < 0)
			return copy_fail(c, it, tmp, err.text), err.rc;
		progress_add(&c->progress, (uint64_t)n);
	}
	return -EINTR;
}

/* Half written: of no use. Its name is random, and so nobody else's. */
static void drop_part(struct copy *c, const struct copy_item *it, const char *tmp)
{
	struct dfs_err err = {0};
	const int rc = dfs_delete(c->cli->fs, tmp, false, &err);

	if (rc < 0 && rc != -ENOENT)
		copy_left(c->cli, it->dst, tmp, &err);
}

static void cut(char *buf, struct piece pieces[COPY_BUFFERS])
{
	for (unsigned i = 0; i < COPY_BUFFERS; i++)
		pieces[i] = (struct piece){.p = buf + (size_t)i * COPY_BUFFER};
}

static int upload(struct copy *c, const struct copy_item *it, int fd, const char *tmp, void *buf)
{
	struct dfs_create_opts o = {.size = sizeof(o),
				    .flags = DFS_CREATE_NO_PARENTS | DFS_CREATE_NO_HSYNC |
					     DFS_CREATE_SPARE_UNIT,
				    /* Hadoop's put gives files the usual mode */
				    .mode = c->cli->hadoop ? 0 : it->mode | DFS_MODE_SET,
				    .replication = c->cli->replication,
				    .block_size = c->cli->block_size,
				    .ec_policy = c->cli->ec_policy};
	struct piece pieces[COPY_BUFFERS];
	struct dfs_file *f;
	struct dfs_err err = {0};
	struct dfs_stat st;
	int rc, rc_close;

	if (dfs_create(c->cli->fs, tmp, &o, &f, &err) < 0) {
		copy_fail(c, it, tmp, err.text);
		/* no server has refused it */
		if (!err.remote[0] && dfs_stat(c->cli->fs, tmp, &st, NULL) == 0)
			drop_part(c, it, tmp);
		return EXIT_FAIL;
	}
	cut(buf, pieces);
	rc = pump(c, it, tmp, fd, f, pieces);
	rc_close = dfs_close(f, &err);
	if (!rc && rc_close < 0)
		rc = (copy_fail(c, it, tmp, err.text), rc_close);
	if (!rc && copy_interrupted())
		rc = -EINTR;
	if (!rc) {
		rc = dfs_rename(c->cli->fs, tmp, it->dst, c->cli->force, &err);
		if (rc < 0)
			copy_fail(c, it, tmp, err.text);
	}
	if (rc < 0)
		drop_part(c, it, tmp);
	return rc < 0 ? EXIT_FAIL : EXIT_OK;
}

/* Why it cannot be appended to, and what the user of this program can do. */
static int append_refused(struct copy *c, const char *path, int rc, const struct dfs_err *err)
{
	struct dfs_ec_policy p;

	if (rc == -ENOTSUP && !c->cli->new_block &&
	    dfs_get_ec_policy(c->cli->fs, path, &p, NULL) > 0)
		return cli_fail_cure(c->cli, path,
				     "an erasure-coded file grows by whole new blocks only",
				     "use --new-block");
	return cli_fail(c->cli, path, err->text);
}

static int append_fd(struct copy *c, const struct copy_item *it, int fd, void *buf)
{
	struct piece pieces[COPY_BUFFERS];
	struct dfs_err err = {0};
	struct dfs_file *f;
	int rc, rc_close;

	rc = dfs_append(c->cli->fs, it->dst,
			DFS_APPEND_CREATE | DFS_APPEND_NO_HSYNC | DFS_APPEND_SPARE_UNIT |
				(c->cli->new_block ? DFS_APPEND_NEW_BLOCK : 0),
			&f, &err);
	if (rc < 0)
		return append_refused(c, it->dst, rc, &err);
	cut(buf, pieces);
	rc = pump(c, it, it->dst, fd, f, pieces);
	rc_close = dfs_close(f, &err);
	if (!rc && rc_close < 0)
		rc = (cli_fail(c->cli, it->dst, err.text), rc_close);
	return rc < 0 ? EXIT_FAIL : EXIT_OK;
}

/* It is in the cluster and is to be there alone; unless it has changed while it was copied. */
static int remove_source(struct copy *c, const struct copy_item *it, const struct stat *then)
{
	struct stat now;

	if (stat(it->src, &now) < 0)
		return cli_fail_errno(c->cli, it->src, neg_errno(), NULL);
	if (now.st_dev != then->st_dev || now.st_ino != then->st_ino ||
	    now.st_size != then->st_size || now.st_mtim.tv_sec != then->st_mtim.tv_sec ||
	    now.st_mtim.tv_nsec != then->st_mtim.tv_nsec)
		return cli_fail(c->cli, it->src,
				"it was changed while it was copied, and is not deleted");
	return unlink(it->src) < 0 ? cli_fail_errno(c->cli, it->src, neg_errno(), NULL) : EXIT_OK;
}

static int put_one(struct copy *c, const struct copy_item *it, void *buf)
{
	bool is_stdin = !strcmp(it->src, "-");
	int fd = is_stdin ? STDIN_FILENO : open(it->src, O_RDONLY | O_CLOEXEC);
	struct stat then = {0};
	struct dfs_stat st;
	char *tmp = NULL;
	int rc;

	if (fd < 0)
		return cli_fail_errno(c->cli, it->src, neg_errno(), NULL);
	if (!is_stdin)
		(void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	if (c->cli->move)
		(void)fstat(fd, &then);
	if (!c->cli->append)
		tmp = copy_tmp_name(it->dst);
	if (c->cli->append)
		rc = append_fd(c, it, fd, buf);
	else if (!c->cli->force && dfs_stat(c->cli->fs, it->dst, &st, NULL) == 0)
		rc = cli_fail_errno(c->cli, it->dst, -EEXIST, "use -f to replace it");
	else
		rc = upload(c, it, fd, tmp, buf);
	if (rc == EXIT_OK && c->cli->move && !is_stdin)
		rc = remove_source(c, it, &then);
	free(tmp);
	if (!is_stdin)
		(void)close(fd);
	return rc;
}

static void walk_dir(struct copy *c, const char *src, const char *dst, uint32_t mode);

/* Takes @dst. @inner: met inside a directory, where links could lead in circles. */
static void walk(struct copy *c, const char *src, char *dst, bool inner)
{
	struct stat st;

	if (!strcmp(src, "-")) {
		copy_add(c, cli_strdup(src), dst, 0, 0644);
		return;
	}
	if (stat(src, &st) < 0) {
		cli_fail_errno(c->cli, src, neg_errno(), NULL);
	} else if (S_ISDIR(st.st_mode) && inner && lstat(src, &st) == 0 && S_ISLNK(st.st_mode)) {
		cli_fail(c->cli, src, "a symbolic link to a directory: left out");
	} else if (S_ISREG(st.st_mode)) {
		copy_add(c, cli_strdup(src), dst, (uint64_t)st.st_size, st.st_mode & 0777);
		return;
	} else if (!S_ISDIR(st.st_mode)) {
		cli_fail(c->cli, src, "neither a file nor a directory: left out");
	} else if (!c->cli->recursive) {
		cli_fail_errno(c->cli, src, -EISDIR, "use -r");
	} else {
		walk_dir(c, src, dst, st.st_mode & 0777);
	}
	free(dst);
}

static void walk_dir(struct copy *c, const char *src, const char *dst, uint32_t mode)
{
	struct dfs_err err = {0};
	struct dirent *e;
	DIR *d;

	if (dfs_mkdir(c->cli->fs, dst, c->cli->hadoop ? 0 : mode, true, &err) < 0) {
		cli_fail(c->cli, dst, err.text);
		return;
	}
	d = opendir(src);
	if (!d) {
		cli_fail_errno(c->cli, src, neg_errno(), NULL);
		return;
	}
	while ((e = readdir(d))) {
		char *child;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		child = cli_join(src, e->d_name);
		walk(c, child, cli_join(dst, e->d_name), true);
		free(child);
	}
	closedir(d);
}

/* 0, or an exit code after the message: a mistyped path makes no directories. */
static int check_parent(struct cli *cli, const char *dst)
{
	char *parent = cli_parent(dst);
	struct dfs_stat st;
	struct dfs_err err = {0};
	int rc = dfs_stat(cli->fs, parent, &st, &err);

	if (rc == -ENOENT)
		rc = cli_fail_cure(cli, parent, err.text, "make it with dfs mkdir -p");
	else if (rc < 0)
		rc = cli_fail(cli, parent, err.text);
	else if (st.type != DFS_DIR)
		rc = cli_fail(cli, parent, "a file, not a directory");
	free(parent);
	return rc;
}

/* Is no local file there that is named? Then each is told, whatever the NameNode would say. */
static bool none_is_there(struct cli *cli)
{
	struct stat st;

	for (int told = 0; told < 2; told++)
		for (int i = 0; i + 1 < cli->argc; i++) {
			const char *text = cli->argv[i],
				   *src = operand_scheme(text) ? operand_local(text) : text;

			if (told)
				cli_fail_errno(cli, src, -ENOENT, NULL);
			else if (!strcmp(src, "-") || stat(src, &st) == 0 || errno != ENOENT)
				return false;
		}
	return true;
}

/* 0; an exit code, after the message. */
static int connect_for(struct copy *c)
{
	int rc = operand_check(c->cli);

	if (c->cli->fs)
		return EXIT_OK;
	if (rc == EXIT_OK && none_is_there(c->cli))
		rc = copy_run(c); /* of nothing */
	return rc ? rc : cli_connect(c->cli);
}

int cmd_put(struct cli *cli)
{
	struct copy c = {.cli = cli, .one = put_one};
	const char *dst;
	struct dfs_stat st;
	struct dfs_err err = {0};
	int rc = connect_for(&c);
	bool into;

	if (rc)
		return rc;
	dst = cli->argv[cli->argc - 1]; /* without an address now */
	rc = dfs_stat(cli->fs, dst, &st, &err);
	into = rc == 0 && st.type == DFS_DIR;
	if (rc < 0 && rc != -ENOENT)
		return cli_fail(cli, dst, err.text);
	if ((cli->argc > 2 || copy_wants_dir(dst)) && !into)
		return cli_fail_errno(cli, dst, rc < 0 ? -ENOENT : -ENOTDIR,
				      "a directory is meant; make it with dfs mkdir");
	if (rc == -ENOENT) {
		rc = check_parent(cli, dst);
		if (rc)
			return rc;
	}
	for (int i = 0; i + 1 < cli->argc; i++) {
		char *base = cli_base(cli->argv[i]);

		if (into && !strcmp(cli->argv[i], "-"))
			cli_fail_errno(cli, dst, -EISDIR, "standard input needs a file name");
		else
			walk(&c, cli->argv[i], into ? cli_join(dst, base) : cli_strdup(dst), false);
		free(base);
	}
	return copy_run(&c);
}

/* append: several files behind one another, one after another. */
int cmd_append(struct cli *cli)
{
	struct copy c = {.cli = cli, .one = put_one};
	const int rc = connect_for(&c);
	const char *dst = cli->argv[cli->argc - 1];

	if (rc)
		return rc;
	cli->append = true;
	cli->jobs = 1;
	for (int i = 0; i + 1 < cli->argc; i++)
		walk(&c, cli->argv[i], cli_strdup(dst), false);
	return copy_run(&c);
}
