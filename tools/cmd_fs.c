/* SPDX-License-Identifier: Apache-2.0 */
/* ls mkdir rm mv stat df du quota touch: one function a command, one line a result. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "tools/cli.h"

#define LINK_TARGET_MAX 8000 /* bytes: what dfs_symlink() takes */

/* ---- symbolic links ---- */

/* Of the link itself where @path names one. dfs_stat() first: only by that a router of Hadoop shows
 * its mount points. */
static int stat_itself(struct cli *c, const char *path, struct dfs_stat *ret, struct dfs_err *err)
{
	const int rc = dfs_stat(c->fs, path, ret, err);

	return rc == -ELOOP ? dfs_lstat(c->fs, path, ret, err) : rc;
}

/* Where @path leads, if it is a symbolic link. */
static void print_target(struct cli *c, const char *path, const struct dfs_stat *st)
{
	char target[LINK_TARGET_MAX + 1];
	struct dfs_err err = {0};
	ssize_t n;

	if (st->type != DFS_SYMLINK)
		return;
	n = dfs_readlink(c->fs, path, target, LINK_TARGET_MAX, &err);
	if (n < 0) {
		cli_fail(c, path, err.text);
		return;
	}
	target[n] = '\0';
	if (c->json) {
		printf(", \"target\": ");
		cli_json_string(stdout, target);
	} else {
		printf(" -> %s", cli_name(target));
	}
}

/* ---- ls ---- */

static void json_stat(struct cli *c, const char *path, const struct dfs_stat *st)
{
	cli_json_item(c, path);
	print_target(c, path, st);
	printf(", \"type\": \"%s\", \"mode\": \"%04o\", \"owner\": ",
	       st->type == DFS_DIR    ? "directory"
	       : st->type == DFS_FILE ? "file"
				      : "symlink",
	       st->mode);
	cli_json_string(stdout, st->owner);
	printf(", \"group\": ");
	cli_json_string(stdout, st->group);
	printf(", \"length\": %llu, \"replication\": %u, \"block_size\": %llu, \"mtime_ms\": %llu,"
	       " \"atime_ms\": %llu, \"file_id\": %llu",
	       (unsigned long long)st->length, st->replication, (unsigned long long)st->block_size,
	       (unsigned long long)st->mtime_ms, (unsigned long long)st->atime_ms,
	       (unsigned long long)st->file_id);
}

static void ls_print(struct cli *c, const char *path, const struct dfs_stat *st)
{
	char mode[12], size[32], when[32], rep[16] = "-";

	if (c->json) {
		json_stat(c, path, st);
		printf("}");
		return;
	}
	if (st->type == DFS_FILE)
		snprintf(rep, sizeof(rep), "%u", st->replication);
	printf("%s %3s %-8s %-8s %10s %s %s", cli_mode(mode, st), rep, st->owner, st->group,
	       cli_size(size, st->length, c->human), cli_time(when, st->mtime_ms), cli_name(path));
	print_target(c, path, st);
	putchar('\n');
}

static void ls_dir(struct cli *c, const char *path);

static void ls_entry(struct cli *c, const char *path, const struct dfs_stat *st, void *arg)
{
	const bool down = c->recursive && st->type == DFS_DIR && *st->name;

	(void)arg;
	ls_print(c, path, st);
	if (down)
		ls_dir(c, path);
}

static void ls_dir(struct cli *c, const char *path)
{
	cli_list(c, path, ls_entry, NULL);
}

/* The operands, or the root directory when there are none. */
static int each_path(struct cli *c, void (*fn)(struct cli *, const char *))
{
	if (!c->argc)
		fn(c, "/");
	for (int i = 0; i < c->argc; i++)
		fn(c, c->argv[i]);
	return cli_json_end(c);
}

int cmd_ls(struct cli *c)
{
	return each_path(c, ls_dir);
}

/* ---- mkdir, rm, mv, touch ---- */

/* One more change is made. */
static void tell_done(struct cli *c, const char *path)
{
	if (!c->json)
		return;
	cli_json_item(c, path);
	printf("}");
}

static void mkdir_one(struct cli *c, const char *path)
{
	struct dfs_err err = {0};

	if (dfs_mkdir(c->fs, path, 0, c->parents, &err) == -ENOENT)
		cli_fail_cure(c, path, err.text, "use -p to make it too");
	else if (err.rc < 0)
		cli_fail(c, path, err.text);
	else
		tell_done(c, path);
}

int cmd_mkdir(struct cli *c)
{
	return each_path(c, mkdir_one);
}

static void rm_one(struct cli *c, const char *path)
{
	struct dfs_err err = {0};
	struct dfs_stat st;
	int rc = stat_itself(c, path, &st, &err);

	if (rc == -ENOENT && c->force)
		return;
	if (!rc && st.type == DFS_DIR && !c->recursive) {
		cli_fail_errno(c, path, -EISDIR, "use -r");
		return;
	}
	if (!rc)
		rc = dfs_delete(c->fs, path, c->recursive, &err);
	if (rc < 0)
		cli_fail(c, path, err.text);
	else
		tell_done(c, path);
}

int cmd_rm(struct cli *c)
{
	return each_path(c, rm_one);
}

static void mv_one(struct cli *c, const char *from, const char *target, bool into)
{
	char *base = cli_base(from);
	char *to = into ? cli_join(target, base) : cli_strdup(target);
	struct dfs_err err = {0};

	if (dfs_rename(c->fs, from, to, c->force, &err) < 0) {
		if (err.rc == -EEXIST && !c->force)
			cli_fail_errno(c, to, -EEXIST, "use -f to replace it");
		else
			cli_fail(c, from, err.text);
	} else if (c->json) {
		cli_json_item(c, from);
		printf(", \"target\": ");
		cli_json_string(stdout, to);
		printf("}");
	}
	free(to);
	free(base);
}

int cmd_mv(struct cli *c)
{
	const char *target = c->argv[c->argc - 1];
	struct dfs_err err = {0};
	struct dfs_stat st;
	int rc = dfs_stat(c->fs, target, &st, &err);
	bool into = !rc && st.type == DFS_DIR;

	if (rc < 0 && rc != -ENOENT)
		return cli_fail(c, target, err.text);
	if (c->argc > 2 && !into)
		return cli_fail_errno(c, target, -ENOTDIR, "several sources need a directory");
	for (int i = 0; i + 1 < c->argc; i++)
		mv_one(c, c->argv[i], target, into);
	return cli_json_end(c);
}

static void touch_one(struct cli *c, const char *path)
{
	struct dfs_create_opts o = {.size = sizeof(o), .flags = DFS_CREATE_NO_PARENTS};
	struct dfs_err err = {0};
	struct dfs_file *f;
	struct dfs_stat st;
	uint64_t now = clock_wall_ms();
	int rc = dfs_stat(c->fs, path, &st, &err);

	if (!rc) {
		rc = dfs_set_times(c->fs, path, now, now, &err);
	} else if (rc == -ENOENT) {
		rc = dfs_create(c->fs, path, &o, &f, &err);
		if (rc == -ENOENT) {
			cli_fail_cure(c, path, err.text, "make its directory with dfs mkdir -p");
			return;
		}
		if (!rc)
			rc = dfs_close(f, &err);
	}
	if (rc < 0)
		cli_fail(c, path, err.text);
	else
		tell_done(c, path);
}

int cmd_touch(struct cli *c)
{
	return each_path(c, touch_one);
}

/* ---- stat ---- */

static void stat_print_blocks(const struct dfs_blocks *b, bool json)
{
	for (size_t i = 0; i < b->count; i++) {
		const struct dfs_block *k = &b->block[i];

		printf(json ? "%s{\"id\": %lld, \"generation\": %llu, \"offset\": %llu, \"length\": %llu,"
			      " \"corrupt\": %s, \"nodes\": ["
			    : "%s  block %lld_%llu offset %llu length %llu%s on",
		       json && i ? ", " : "", (long long)k->id, (unsigned long long)k->generation,
		       (unsigned long long)k->offset, (unsigned long long)k->length,
		       json         ? (k->corrupt ? "true" : "false")
		       : k->corrupt ? " CORRUPT"
				    : "");
		for (size_t n = 0; n < k->count; n++)
			printf(json ? "%s\"%s:%u\"" : "%s %s:%u", json && n ? ", " : "",
			       k->node[n].ip, k->node[n].xfer_port);
		printf(json ? "]}" : k->count ? "\n" : " no node\n");
	}
}

static void stat_text(struct cli *c, const char *path, const struct dfs_stat *st)
{
	char mode[12], t1[32], t2[32], human[32];

	fputs(cli_name(path), stdout);
	print_target(c, path, st);
	printf("\n  type %s, mode %s (%04o), owner %s, group %s, file id %llu\n",
	       st->type == DFS_DIR    ? "directory"
	       : st->type == DFS_FILE ? "file"
				      : "symlink",
	       cli_mode(mode, st), st->mode, st->owner, st->group, (unsigned long long)st->file_id);
	printf("  modified %s, accessed %s\n", cli_time(t1, st->mtime_ms),
	       cli_time(t2, st->atime_ms));
	if (st->type == DFS_FILE)
		printf("  length %llu (%s), replication %u, block size %llu\n",
		       (unsigned long long)st->length, cli_size(human, st->length, true),
		       st->replication, (unsigned long long)st->block_size);
}

static void stat_one(struct cli *c, const char *path)
{
	struct dfs_err err = {0};
	struct dfs_blocks *b = NULL;
	struct dfs_stat st;
	int rc = stat_itself(c, path, &st, &err);

	if (!rc && st.type == DFS_FILE)
		rc = dfs_blocks(c->fs, path, 0, INT64_MAX, &b, &err);
	if (rc < 0) {
		cli_fail(c, path, err.text);
		return;
	}
	if (c->json) {
		json_stat(c, path, &st);
		if (b) {
			printf(", \"under_construction\": %s, \"pool\": ",
			       b->under_construction ? "true" : "false");
			cli_json_string(stdout, b->pool_id ? b->pool_id : "");
			printf(", \"blocks\": [");
			stat_print_blocks(b, true);
			printf("]");
		}
		printf("}");
	} else {
		stat_text(c, path, &st);
		if (b)
			stat_print_blocks(b, false);
	}
	dfs_blocks_free(b);
}

int cmd_stat(struct cli *c)
{
	return each_path(c, stat_one);
}

/* ---- df, du ---- */

int cmd_df(struct cli *c)
{
	struct dfs_err err = {0};
	struct dfs_statfs s;
	char a[32], b[32], d[32];

	if (dfs_statfs(c->fs, &s, &err) < 0)
		return cli_fail(c, NULL, err.text);
	if (c->json)
		printf("{\"filesystem\": \"%s\", \"capacity\": %llu, \"used\": %llu, \"remaining\": %llu}\n",
		       dfs_uri(c->fs), (unsigned long long)s.capacity, (unsigned long long)s.used,
		       (unsigned long long)s.remaining);
	else
		printf("%-28s %14s %14s %14s %5s\n%-28s %14s %14s %14s %4.0f%%\n", "Filesystem",
		       "Size", "Used", "Available", "Use%", dfs_uri(c->fs),
		       cli_size(a, s.capacity, c->human), cli_size(b, s.used, c->human),
		       cli_size(d, s.remaining, c->human),
		       s.capacity ? (double)s.used * 100 / (double)s.capacity : 0.0);
	return EXIT_OK;
}

static void du_one(struct cli *c, const char *path)
{
	struct dfs_err err = {0};
	struct dfs_content_summary sum;
	char a[32], b[32];

	if (dfs_get_content_summary(c->fs, path, &sum, &err) < 0) {
		cli_fail(c, path, err.text);
		return;
	}
	if (c->json) {
		cli_json_item(c, path);
		printf(", \"length\": %llu, \"space\": %llu, \"files\": %llu, \"directories\": %llu",
		       (unsigned long long)sum.length, (unsigned long long)sum.space_consumed,
		       (unsigned long long)sum.file_count, (unsigned long long)sum.directory_count);
		if (sum.space_stored >= 0)
			printf(", \"stored\": %lld", (long long)sum.space_stored);
		putchar('}');
	} else {
		printf("%12s %12s  %s\n", cli_size(a, sum.length, c->human),
		       cli_size(b,
				sum.space_stored >= 0 ? (uint64_t)sum.space_stored
						      : sum.space_consumed,
				c->human),
		       cli_name(path));
	}
}

static void du_entry(struct cli *c, const char *path, const struct dfs_stat *st, void *arg)
{
	(void)st;
	(void)arg;
	du_one(c, path);
}

static void du_entries(struct cli *c, const char *path)
{
	cli_list(c, path, du_entry, NULL);
}

int cmd_du(struct cli *c)
{
	return each_path(c, c->summary ? du_one : du_entries);
}

/* ---- quota ---- */

static const char *limit_text(char buf[32], int64_t limit, bool human)
{
	if (limit < 0)
		snprintf(buf, 32, "none");
	else
		cli_size(buf, (uint64_t)limit, human);
	return buf;
}

static void quota_one(struct cli *c, const char *path)
{
	struct dfs_err err = {0};
	struct dfs_quota q;
	char used[32], names[32], space[32];

	if (dfs_get_quota(c->fs, path, &q, &err) < 0) {
		cli_fail(c, path, err.text);
		return;
	}
	if (c->json) {
		cli_json_item(c, path);
		printf(", \"names\": %llu, \"space\": %llu", (unsigned long long)q.names,
		       (unsigned long long)q.space);
		cli_json_limit("name_quota", q.name_quota);
		cli_json_limit("space_quota", q.space_quota);
		printf("}");
	} else {
		printf("%12llu of %-10s %12s of %-10s  %s\n", (unsigned long long)q.names,
		       limit_text(names, q.name_quota, false), cli_size(used, q.space, c->human),
		       limit_text(space, q.space_quota, c->human), cli_name(path));
	}
}

int cmd_quota(struct cli *c)
{
	return each_path(c, quota_one);
}
