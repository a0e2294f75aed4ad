/* SPDX-License-Identifier: Apache-2.0 */
/* -cp: a copy within the cluster, through this machine. Like -put, a copy appears under its name
 * when it is whole. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/copy.h"
#include "tools/shell/shell.h"

/* A directory that was made, or was there; it gets its attributes when all in it is done. */
struct dir {
	char *from, *path;
	struct dfs_stat st;
	struct dir *next;
};

struct cp {
	struct copy c; /* first: cp_one() has its address */
	struct shell *s;
	const char *keep; /* attributes, of "topax" */
	struct dir *dirs; /* inner ones first */
};

/* ---- attributes ---- */

static int keep_acl(struct cp *cp, const char *from, const char *to, struct dfs_err *err)
{
	struct dfs_acl *acl;
	int rc = dfs_get_acl(cp->s->c.fs, from, &acl, err);

	if (rc < 0)
		return rc;
	rc = dfs_set_acl(cp->s->c.fs, to, acl->entry, acl->count, err);
	dfs_acl_free(acl);
	return rc;
}

#define NAMES_MAX (1u << 20)
#define VALUE_MAX (1u << 20)

static int keep_xattr(struct cp *cp, const char *from, const char *to, const char *name,
		      struct dfs_err *err)
{
	char *value = malloc(VALUE_MAX);
	ssize_t n = -ENOMEM;

	if (value)
		n = dfs_get_xattr(cp->s->c.fs, from, name, value, VALUE_MAX, err);
	if (n == -ENODATA) /* gone meanwhile */
		n = 0;
	else if (n >= 0)
		n = dfs_set_xattr(cp->s->c.fs, to, name, value, (size_t)n, 0, err);
	free(value);
	return (int)n;
}

static int keep_xattrs(struct cp *cp, const char *from, const char *to, struct dfs_err *err)
{
	char *names = malloc(NAMES_MAX);
	ssize_t n = -ENOMEM;
	int rc;

	if (names)
		n = dfs_list_xattrs(cp->s->c.fs, from, names, NAMES_MAX, err);
	rc = n < 0 ? (int)n : 0;
	for (ssize_t i = 0; i < n && !rc; i += (ssize_t)strlen(names + i) + 1)
		rc = keep_xattr(cp, from, to, names + i, err);
	free(names);
	return rc;
}

/* What @to is to have of @from, which was @st. Times come last: the others are changes, too. */
static int keep(struct cp *cp, const char *from, const struct dfs_stat *st, const char *to,
		struct dfs_err *err)
{
	struct dfs *fs = cp->s->c.fs;
	int rc = 0;

	if (!cp->keep)
		return 0;
	if (strchr(cp->keep, 'o'))
		rc = dfs_set_owner(fs, to, st->owner, st->group, err);
	if (!rc && strpbrk(cp->keep, "pa"))
		rc = dfs_set_permission(fs, to, st->mode, err);
	if (!rc && strchr(cp->keep, 'a') && st->has_acl)
		rc = keep_acl(cp, from, to, err);
	if (!rc && strchr(cp->keep, 'x'))
		rc = keep_xattrs(cp, from, to, err);
	if (!rc && strchr(cp->keep, 't'))
		rc = dfs_set_times(fs, to, st->mtime_ms, st->atime_ms, err);
	return rc;
}

/* ---- one file ---- */

static int pump(struct copy *c, const struct copy_item *it, const char *tmp, struct dfs_file *from,
		struct dfs_file *to, void *buf)
{
	struct dfs_err err = {0};
	ssize_t n = 0;

	while (!copy_interrupted() && (n = dfs_read(from, buf, COPY_BUFFER, &err)) > 0)
		if (dfs_write(to, buf, (size_t)n, &err) < 0)
			return copy_fail(c, it, tmp, err.text), err.rc;
	if (copy_interrupted())
		return -EINTR;
	return n < 0 ? (cli_fail(c->cli, it->src, err.text), (int)n) : 0;
}

/* A copy of @from as @tmp. 0, or -errno after the message. */
static int write_copy(struct cp *cp, const struct copy_item *it, const char *tmp,
		      struct dfs_file *from, void *buf)
{
	struct dfs_create_opts o = {.size = sizeof(o),
				    .flags = DFS_CREATE_NO_PARENTS | DFS_CREATE_NO_HSYNC |
					     DFS_CREATE_SPARE_UNIT};
	struct dfs_err err = {0};
	struct dfs_file *to;
	int rc = dfs_create(cp->s->c.fs, tmp, &o, &to, &err), rc_close;

	if (rc < 0)
		return copy_fail(&cp->c, it, tmp, err.text), rc;
	rc = pump(&cp->c, it, tmp, from, to, buf);
	rc_close = dfs_close(to, &err);
	if (!rc && rc_close < 0)
		rc = (copy_fail(&cp->c, it, tmp, err.text), rc_close);
	return rc;
}

static int finish(struct cp *cp, const struct copy_item *it, const struct dfs_stat *st,
		  const char *tmp)
{
	struct dfs *fs = cp->s->c.fs;
	struct dfs_err err = {0};
	int rc = keep(cp, it->src, st, tmp, &err);

	if (!rc)
		rc = dfs_rename(fs, tmp, it->dst, cp->s->c.force, &err);
	if (rc == -EEXIST)
		shell_fail(cp->s, it->dst, rc, &err);
	else if (rc < 0)
		copy_fail(&cp->c, it, tmp, err.text);
	return rc;
}

static int cp_one(struct copy *c, const struct copy_item *it, void *buf)
{
	struct cp *cp = (struct cp *)c;
	struct dfs *fs = cp->s->c.fs;
	struct dfs_err err = {0};
	struct dfs_stat st, there;
	struct dfs_file *from;
	char *tmp;
	int rc;

	if (!cp->s->c.force && shell_stat(cp->s, it->dst, &there, NULL) == 0)
		return shell_fail(cp->s, it->dst, -EEXIST, NULL);
	rc = dfs_stat(fs, it->src, &st, &err);
	rc = rc ? rc : dfs_open(fs, it->src, &from, &err);
	if (rc < 0)
		return shell_fail(cp->s, it->src, rc, &err);
	tmp = copy_tmp_name(it->dst);
	rc = write_copy(cp, it, tmp, from, buf);
	if (!rc)
		rc = finish(cp, it, &st, tmp);
	if (rc < 0 && dfs_delete(fs, tmp, false, &err) < 0 && err.rc != -ENOENT)
		copy_left(c->cli, it->dst, tmp, &err);
	free(tmp);
	dfs_close(from, NULL);
	return rc < 0 ? EXIT_FAIL : EXIT_OK;
}

/* ---- what is to be copied ---- */

struct walk {
	struct cp *cp;
	const char *to;
};

static void walk(struct cp *cp, const struct shell_item *from, const char *to);

static void walk_child(struct shell *s, const struct shell_item *it, void *arg)
{
	const struct walk *w = arg;
	char *name = cli_base(it->path), *to = cli_join(w->to, name);

	(void)s;
	walk(w->cp, it, to);
	free(to);
	free(name);
}

static void walk_dir(struct cp *cp, const struct shell_item *from, const char *to)
{
	struct walk w = {cp, to};
	struct dfs_err err = {0};
	const int rc = dfs_mkdir(cp->s->c.fs, to, 0, true, &err);
	struct dir *d;

	if (rc < 0) {
		shell_fail(cp->s, to, rc == -EEXIST ? -ENOTDIR : rc, &err);
		return;
	}
	d = cli_checked(calloc(1, sizeof(*d)));
	*d = (struct dir){.from = cli_strdup(from->path),
			  .path = cli_strdup(to),
			  .st = from->st,
			  .next = cp->dirs};
	cp->dirs = d;
	shell_children(cp->s, from, walk_child, &w);
}

static void walk(struct cp *cp, const struct shell_item *from, const char *to)
{
	if (from->st.type == DFS_FILE)
		copy_add(&cp->c, cli_strdup(from->path), cli_strdup(to), from->st.length,
			 from->st.mode);
	else if (from->st.type == DFS_DIR)
		walk_dir(cp, from, to);
	else
		shell_fail_text(cp->s, from->shown, "a symbolic link: left out");
}

/* A directory into itself would have no end. */
static void walk_source(struct cp *cp, const struct shell_item *from, const struct shell_item *to)
{
	const bool into = to->exists && to->st.type == DFS_DIR;
	char *name = cli_base(from->path),
	     *path = into ? cli_join(to->path, name) : cli_strdup(to->path);
	char *a = shell_absolute(cp->s, from->path), *b = shell_absolute(cp->s, path);
	const size_t n = strlen(a);

	if (!from->exists) {
		shell_fail(cp->s, from->shown, -ENOENT, NULL);
	} else if (!strcmp(a, b) && (from->st.type == DFS_DIR || cp->s->c.force)) {
		fprintf(stderr, "%s: `%s' to `%s%s': are identical\n", cp->s->c.cmd, from->shown,
			dfs_uri(cp->s->c.fs), b);
		cp->s->c.failures++;
	} else if (from->st.type == DFS_DIR && !strncmp(a, b, n) &&
		   (b[n] == '/' || a[n - 1] == '/')) {
		fprintf(stderr, "%s: `%s' to `%s': is a subdirectory of itself\n", cp->s->c.cmd,
			from->shown, path);
		cp->s->c.failures++;
	} else {
		walk(cp, from, path);
	}
	free(a);
	free(b);
	free(path);
	free(name);
}

/* Inner ones first. Each has what it had when it was found. */
static void end_dirs(struct cp *cp)
{
	for (struct dir *d = cp->dirs, *next; d; d = next) {
		struct dfs_err err = {0};
		const int rc = keep(cp, d->from, &d->st, d->path, &err);

		if (rc < 0)
			shell_fail(cp->s, d->path, rc, &err);
		next = d->next;
		free(d->from);
		free(d->path);
		free(d);
	}
}

int shell_cp(struct shell *s)
{
	const char *p = shell_option(&s->options, "p");
	struct cp cp = {.c = {.cli = &s->c, .one = cp_one}, .s = s, .keep = p && !*p ? "top" : p};
	const struct shell_item *to;
	size_t sources;
	int rc;

	if (p && p[strspn(p, "topax")])
		return shell_usage(s, "No attribute for ", p + strspn(p, "topax"));
	s->c.force = shell_flag(s, "f");
	shell_set_jobs(s);
	shell_expand(s, 0, s->c.argc - 1);
	sources = s->count;
	to = shell_target(s);
	if (!sources || !to || !shell_target_fits(s, to, sources, s->c.force))
		return EXIT_OK;
	for (size_t i = 0; i < sources; i++)
		walk_source(&cp, &s->item[i], to);
	rc = copy_run(&cp.c);
	end_dirs(&cp);
	return rc;
}
