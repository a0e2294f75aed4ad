/* SPDX-License-Identifier: Apache-2.0 */
/* Operands become items: patterns are expanded, and each is looked at. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/operand.h"
#include "tools/shell/shell.h"
#include "tools/shell/shell_glob.h"

void shell_item_end(struct shell_item *it)
{
	free(it->shown);
	free(it->path);
	*it = (struct shell_item){0};
}

void shell_items_add(struct shell_items *l, const struct shell_item *it)
{
	if (l->count == l->room) {
		l->room = l->room ? 2 * l->room : 16;
		l->item = cli_checked(reallocarray(l->item, l->room, sizeof(*l->item)));
	}
	l->item[l->count++] =
		(struct shell_item){.shown = cli_strdup(it->shown), .path = cli_strdup(it->path)};
}

void shell_items_free(struct shell_items *l)
{
	for (size_t i = 0; i < l->count; i++)
		shell_item_end(&l->item[i]);
	free(l->item);
}

/* Takes both strings. @st NULL: it does not exist. */
static void add(struct shell *s, char *shown, char *path, const struct dfs_stat *st)
{
	struct shell_item *it;

	if (s->count == s->room) {
		s->room = s->room ? 2 * s->room : 16;
		s->item = cli_checked(reallocarray(s->item, s->room, sizeof(*s->item)));
	}
	it = &s->item[s->count++];
	*it = (struct shell_item){.shown = shown, .path = path, .exists = st};
	if (st) {
		it->st = *st;
		it->st.name = NULL;
	}
}

int shell_stat(struct shell *s, const char *path, struct dfs_stat *ret, struct dfs_err *err)
{
	const int rc = dfs_stat(s->c.fs, path, ret, err);

	return rc == -ELOOP ? dfs_lstat(s->c.fs, path, ret, err) : rc;
}

struct shell_item shell_child(const struct shell_item *dir, const char *name)
{
	return (struct shell_item){.shown = strcmp(dir->shown, ".") ? cli_join(dir->shown, name)
								    : cli_strdup(name),
				   .path = cli_join(dir->path, name)};
}

void shell_children(struct shell *s, const struct shell_item *dir,
		    void (*fn)(struct shell *s, const struct shell_item *it, void *arg), void *arg)
{
	struct dfs_err err = {0};
	const struct dfs_stat *st;
	struct dfs_list *l;
	int rc = dfs_list_open(s->c.fs, dir->path, &l, &err);

	if (rc < 0) {
		shell_fail(s, dir->shown, rc, &err);
		return;
	}
	while ((rc = dfs_list_next(l, &st, &err)) > 0) {
		struct shell_item it;

		if (!*st->name) /* it has become a file meanwhile */
			continue;
		it = shell_child(dir, st->name);
		it.exists = true;
		it.st = *st;
		it.st.name = NULL;
		fn(s, &it, arg);
		shell_item_end(&it);
	}
	if (rc < 0)
		shell_fail(s, dir->shown, rc, &err);
	dfs_list_close(l);
}

/* ---- patterns ---- */

/* A pattern that is being followed. */
struct pattern {
	struct shell *s;
	const char *head; /* what stands before the path where things are shown */
};

static char *joined(const char *head, const char *path)
{
	char *text = cli_checked(malloc(strlen(head) + strlen(path) + 1));

	memcpy(text, head, strlen(head));
	memcpy(text + strlen(head), path, strlen(path) + 1);
	return text;
}

/* @dir "": where relative names begin. */
static char *below(const char *dir, const char *name)
{
	return *dir ? cli_join(dir, name) : cli_strdup(name);
}

static void follow(const struct pattern *p, const char *dir, const char *rest);

/* The entries of @dir that match @part; @next: what follows, or NULL. */
static void follow_matches(const struct pattern *p, const char *dir, const char *part,
			   const char *next)
{
	struct dfs_err err = {0};
	const struct dfs_stat *st;
	struct dfs_list *l;
	int rc = dfs_list_open(p->s->c.fs, *dir ? dir : ".", &l, &err);

	if (rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP)
		return;
	if (rc < 0) {
		cli_fail(&p->s->c, NULL, err.text);
		return;
	}
	while ((rc = dfs_list_next(l, &st, &err)) > 0) {
		char *child;

		if (!*st->name || !glob_match(part, st->name))
			continue;
		child = below(dir, st->name);
		if (!next)
			add(p->s, joined(p->head, child), cli_strdup(child), st);
		else if (st->type == DFS_DIR)
			follow(p, child, next);
		free(child);
	}
	if (rc < 0 && rc != -ENOENT)
		cli_fail(&p->s->c, NULL, err.text);
	dfs_list_close(l);
}

/* What a pattern means that is a name from here on, if it is there. */
static void add_if_there(const struct pattern *p, const char *path)
{
	struct dfs_err err = {0};
	struct dfs_stat st;
	const int rc = shell_stat(p->s, path, &st, &err);

	if (!rc)
		add(p->s, joined(p->head, path), cli_strdup(path), &st);
	else if (rc != -ENOENT && rc != -ENOTDIR)
		cli_fail(&p->s->c, NULL, err.text);
}

static void follow(const struct pattern *p, const char *dir, const char *rest)
{
	const size_t n = strcspn(rest, "/");
	const char *next = rest[n] ? rest + n + 1 : NULL;
	char *part = cli_strdup(rest), *child;

	part[n] = '\0';
	if (glob_is_pattern(part)) {
		follow_matches(p, dir, part, next);
	} else {
		glob_unescape(part);
		child = below(dir, part);
		if (next)
			follow(p, child, next);
		else
			add_if_there(p, child);
		free(child);
	}
	free(part);
}

static int by_path(const void *a, const void *b)
{
	const struct shell_item *x = a, *y = b;

	return strcmp(x->path, y->path);
}

/* Items from @first on are in the order of names, each once. */
static void settle(struct shell *s, size_t first)
{
	size_t kept = first;

	if (s->count - first < 2)
		return;
	qsort(s->item + first, s->count - first, sizeof(*s->item), by_path);
	for (size_t i = first; i < s->count; i++) {
		if (kept > first && !strcmp(s->item[kept - 1].path, s->item[i].path))
			shell_item_end(&s->item[i]);
		else if (kept++ != i)
			s->item[kept - 1] = s->item[i];
	}
	s->count = kept;
}

/* ---- operands ---- */

/* Slashes that mean nothing go. */
static void tidy(char *path)
{
	char *to = path;

	for (const char *from = path; *from; from++)
		if (*from != '/' || to == path || to[-1] != '/')
			*to++ = *from;
	if (to > path + 1 && to[-1] == '/')
		to--;
	*to = '\0';
}

/* What stands before the path in operand @i as it was given, malloc'ed. */
static char *head_of(const struct shell *s, int i)
{
	const char *shown = s->shown[i], *path = s->c.argv[i];
	const size_t all = strlen(shown), n = strlen(path);
	char *head = cli_strdup(shown);

	if (!operand_scheme(shown))
		*head = '\0';
	else if (n <= all && !strcmp(shown + all - n, path))
		head[all - n] = '\0';
	return head;
}

static void expand_plain(struct shell *s, const char *head, char *path)
{
	struct dfs_err err = {0};
	struct dfs_stat st;
	int rc;

	glob_unescape(path);
	rc = shell_stat(s, path, &st, &err);
	if (rc < 0 && rc != -ENOENT && rc != -ENOTDIR)
		cli_fail(&s->c, NULL, err.text);
	else
		add(s, joined(head, path), cli_strdup(path), rc ? NULL : &st);
}

static void expand_pattern(struct shell *s, int i, const char *head, const char *path)
{
	const struct pattern p = {.s = s, .head = head};
	const size_t first = s->count;
	const int failures = s->c.failures;
	struct glob_list l;
	int rc = glob_braces(path, &l);

	for (size_t k = 0; k < l.count && !rc; k++)
		rc = glob_check(l.text[k]);
	for (size_t k = 0; k < l.count && !rc; k++) {
		tidy(l.text[k]);
		if (*l.text[k] == '/')
			follow(&p, "/", l.text[k] + 1);
		else
			follow(&p, "", l.text[k]);
	}
	glob_list_free(&l);
	settle(s, first);
	if (rc == -EINVAL)
		shell_fail_text(s, s->shown[i], "Illegal file pattern: a [ or { is not closed");
	else if (rc < 0)
		shell_fail_text(s, s->shown[i], "Illegal file pattern: too many alternatives");
	else if (s->count == first && s->c.failures == failures && !s->quiet_patterns)
		shell_fail(s, s->shown[i], -ENOENT, NULL);
}

void shell_expand(struct shell *s, int first, int end)
{
	for (int i = first; i < end; i++) {
		char *head = head_of(s, i), *path = cli_strdup(s->c.argv[i]);

		tidy(path);
		if (glob_is_pattern(path))
			expand_pattern(s, i, head, path);
		else
			expand_plain(s, head, path);
		free(path);
		free(head);
	}
}

int shell_each(struct shell *s, int first, shell_item_fn *fn, shell_item_fn *missing)
{
	shell_expand(s, first, s->c.argc);
	for (size_t i = 0; i < s->count; i++) {
		const struct shell_item *it = &s->item[i];

		if (it->exists)
			fn(s, it);
		else if (missing)
			missing(s, it);
		else
			shell_fail(s, it->shown, -ENOENT, NULL);
	}
	return EXIT_OK;
}

const struct shell_item *shell_target(struct shell *s)
{
	const int last = s->c.argc - 1;
	const size_t first = s->count;

	shell_expand(s, last, last + 1);
	if (s->count == first + 1)
		return &s->item[first];
	if (s->count > first)
		shell_fail_text(s, s->shown[last], "Too many matches");
	return NULL;
}

/* ---- paths ---- */

char *shell_absolute(struct shell *s, const char *path)
{
	const char *user = dfs_user(s->c.fs);
	const size_t room = sizeof("/user//") + strlen(user) + strlen(path);
	char *all = cli_checked(malloc(room)), *to;

	if (*path == '/')
		snprintf(all, room, "%s", path);
	else
		snprintf(all, room, "/user/%s/%s", user, path);
	to = all;
	for (const char *from = all; *from;) {
		const size_t n = strcspn(++from, "/");

		if (n == 2 && !memcmp(from, "..", 2)) {
			while (to > all && *--to != '/')
				;
		} else if (n && !(n == 1 && *from == '.')) {
			*to++ = '/';
			memmove(to, from, n);
			to += n;
		}
		from += n;
	}
	if (to == all)
		*to++ = '/';
	*to = '\0';
	return all;
}

bool shell_has_parent(struct shell *s, const struct shell_item *it)
{
	char *path = shell_absolute(s, it->path), *parent = cli_parent(path);
	struct dfs_err err = {0};
	struct dfs_stat st;
	const int rc = shell_stat(s, parent, &st, &err);

	if (rc == -ENOENT || rc == -ENOTDIR) {
		fprintf(stderr, "%s: `%s': No such file or directory: `%s%s'\n", s->c.cmd,
			it->shown, dfs_uri(s->c.fs), path);
		s->c.failures++;
	} else if (rc < 0) {
		cli_fail(&s->c, NULL, err.text);
	}
	free(parent);
	free(path);
	return !rc;
}

bool shell_target_fits(struct shell *s, const struct shell_item *to, size_t sources, bool overwrite)
{
	const bool dir = to->exists && to->st.type == DFS_DIR;

	if (dir)
		return true;
	if (sources > 1)
		return shell_fail(s, to->shown, to->exists ? -ENOTDIR : -ENOENT, NULL), false;
	if (to->exists && !overwrite)
		return shell_fail(s, to->shown, -EEXIST, NULL), false;
	return to->exists || shell_has_parent(s, to);
}
