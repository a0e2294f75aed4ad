/* SPDX-License-Identifier: Apache-2.0 */
/* -ls: a directory is read to its end before its first line is written, for the width of its
 * columns, its order, and how many entries there are. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/shell/shell.h"

struct entry {
	char *name;
	const char *owner, *group; /* of ls.users */
	uint64_t length, mtime_ms, atime_ms;
	size_t place; /* as it was listed */
	enum dfs_type type;
	uint32_t mode, replication;
	bool has_acl;
};

struct listing {
	struct ls *ls;
	struct entry *entry;
	size_t count, room;
};

struct ls {
	struct shell *s;
	bool names, itself, human, marked, recursive, by_time, by_size, reverse, atime;
	int replication, owner, group, length; /* widths: they only grow */
	char **users;                          /* each name of an owner or group once */
	size_t user_count;
};

/* ---- what was found ---- */

/* Owners are few, entries are many. */
static const char *user(struct ls *l, const char *name)
{
	for (size_t i = l->user_count; i--;)
		if (!strcmp(l->users[i], name))
			return l->users[i];
	l->users = cli_checked(reallocarray(l->users, l->user_count + 1, sizeof(*l->users)));
	l->users[l->user_count] = cli_strdup(name);
	return l->users[l->user_count++];
}

static struct entry entry_of(struct ls *l, const struct dfs_stat *st)
{
	return (struct entry){.owner = user(l, st->owner),
			      .group = user(l, st->group),
			      .length = st->length,
			      .mtime_ms = st->mtime_ms,
			      .atime_ms = st->atime_ms,
			      .type = st->type,
			      .mode = st->mode,
			      .replication = st->replication,
			      .has_acl = st->has_acl};
}

static int digits(uint64_t n)
{
	char buf[32];

	return (int)strlen(shell_size(buf, n, false));
}

static void widen(int *width, int n)
{
	if (n > *width)
		*width = n;
}

/* How many columns a name takes: characters, not bytes. */
static int width_of(const char *name)
{
	int n = 0;

	for (; *name; name++)
		n += (*name & 0xc0) != 0x80;
	return n;
}

static void adjust(struct ls *l, const struct entry *e)
{
	widen(&l->replication, digits(e->replication));
	widen(&l->length, digits(e->length));
	widen(&l->owner, width_of(e->owner));
	widen(&l->group, width_of(e->group));
}

/* ---- lines ---- */

/* @path as -q shows it. */
static void put_name(const struct ls *l, const char *path)
{
	if (!l->marked) {
		fputs(cli_name(path), stdout);
		return;
	}
	for (; *path; path++)
		putchar((unsigned char)*path < 0x20 || *path == 0x7f ? '?' : *path);
}

static void put_padded(const char *text, int width)
{
	printf("%s%*s ", text, width - width_of(text), "");
}

static void print(const struct ls *l, const char *shown, const struct entry *e)
{
	const struct dfs_stat st = {.type = e->type, .mode = e->mode};
	char mode[12], size[32], when[32];

	if (!l->names) {
		printf("%c%s%c",
		       e->type == DFS_DIR       ? 'd'
		       : e->type == DFS_SYMLINK ? 'l'
						: '-',
		       shell_permission(mode, &st), e->has_acl ? '+' : ' ');
		if (e->type == DFS_FILE)
			printf("%*u ", l->replication, e->replication);
		else
			printf("%*s ", l->replication, "-");
		put_padded(e->owner, l->owner);
		put_padded(e->group, l->group);
		printf("%*s %s ", l->length, shell_size(size, e->length, l->human),
		       cli_time(when, l->atime ? e->atime_ms : e->mtime_ms));
	}
	put_name(l, shown);
	putchar('\n');
}

/* ---- directories ---- */

static void take(struct shell *s, const struct shell_item *it, void *arg)
{
	struct listing *d = arg;
	struct ls *l = d->ls;

	(void)s;
	if (d->count == d->room) {
		d->room = d->room ? 2 * d->room : 64;
		d->entry = cli_checked(reallocarray(d->entry, d->room, sizeof(*d->entry)));
	}
	d->entry[d->count] = entry_of(l, &it->st);
	d->entry[d->count].name = cli_base(it->path);
	d->entry[d->count].place = d->count;
	d->count++;
}

static int by_number(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

static int compare(const void *a, const void *b, void *arg)
{
	const struct entry *x = a, *y = b;
	const struct ls *l = arg;
	int c;

	if (l->by_time)
		c = by_number(l->atime ? y->atime_ms : y->mtime_ms,
			      l->atime ? x->atime_ms : x->mtime_ms);
	else if (l->by_size)
		c = by_number(y->length, x->length);
	else
		c = strcmp(x->name, y->name);
	c = l->reverse ? -c : c;
	return c ? c : by_number(x->place, y->place);
}

static void list(struct ls *l, const struct shell_item *dir)
{
	struct listing d = {.ls = l};
	const int failures = l->s->c.failures;

	shell_children(l->s, dir, take, &d);
	for (size_t i = 0; i < d.count; i++)
		adjust(l, &d.entry[i]);
	if (!l->recursive && d.count) {
		if (!l->names && l->s->c.failures == failures)
			printf("Found %zu items\n", d.count);
		qsort_r(d.entry, d.count, sizeof(*d.entry), compare, l);
	}
	for (size_t i = 0; i < d.count; i++) {
		struct shell_item it = shell_child(dir, d.entry[i].name);

		print(l, it.shown, &d.entry[i]);
		if (l->recursive && d.entry[i].type == DFS_DIR)
			list(l, &it);
		shell_item_end(&it);
		free(d.entry[i].name);
	}
	free(d.entry);
}

int shell_ls(struct shell *s)
{
	static char here[] = ".";
	struct ls l = {.s = s,
		       .names = shell_flag(s, "C"),
		       .itself = shell_flag(s, "d"),
		       .human = shell_flag(s, "h"),
		       .marked = shell_flag(s, "q"),
		       .recursive = shell_flag(s, "R") || !strcmp(s->cmd->name, "lsr"),
		       .by_time = shell_flag(s, "t"),
		       .by_size = shell_flag(s, "S"),
		       .reverse = shell_flag(s, "r"),
		       .atime = shell_flag(s, "u"),
		       .replication = 3,
		       .length = 10};

	l.recursive = l.recursive && !l.itself;
	if (!s->c.argc) {
		s->shown[0] = s->c.argv[0] = here;
		s->c.argc = 1;
	}
	shell_expand(s, 0, s->c.argc);
	for (size_t i = 0; i < s->count; i++) {
		const struct shell_item *it = &s->item[i];
		struct entry e;

		if (!it->exists) {
			shell_fail(s, it->shown, -ENOENT, NULL);
		} else if (it->st.type == DFS_DIR && !l.itself) {
			list(&l, it);
		} else {
			e = entry_of(&l, &it->st);
			adjust(&l, &e);
			print(&l, it->shown, &e);
		}
	}
	for (size_t i = 0; i < l.user_count; i++)
		free(l.users[i]);
	free(l.users);
	return EXIT_OK;
}
