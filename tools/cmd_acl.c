/* SPDX-License-Identifier: Apache-2.0 */
/* acl: access control lists, written as hdfs dfs -getfacl and -setfacl do. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli.h"

#define ENTRIES_MAX 64 /* HDFS takes 32 of each scope */

struct spec {
	char *text; /* owned; names point into it */
	struct dfs_acl_entry entry[ENTRIES_MAX];
	size_t count;
};

/* ---- reading a list ---- */

/* "rwx", "r-x", "5"; false: no rights. */
static bool parse_perm(const char *s, uint32_t *ret)
{
	static const char letters[] = "rwx";
	uint32_t perm = 0;

	if (s[0] >= '0' && s[0] <= '7' && !s[1]) {
		*ret = (uint32_t)(s[0] - '0');
		return true;
	}
	for (int i = 0; i < 3; i++) {
		if (s[i] == letters[i])
			perm |= 4u >> i;
		else if (s[i] != '-')
			return false;
	}
	*ret = perm;
	return !s[3];
}

static bool parse_type(const char *s, enum dfs_acl_type *ret)
{
	static const char *const types[] = {"user", "group", "mask",
					    "other"}; /* in the order of enum dfs_acl_type */

	for (int i = 0; i < 4; i++) {
		if (strcmp(s, types[i]) == 0 || (s[0] == types[i][0] && !s[1])) {
			*ret = (enum dfs_acl_type)i;
			return true;
		}
	}
	return false;
}

/* "[default:]TYPE:[NAME][:PERM]" */
static bool parse_entry(char *s, bool with_perm, struct dfs_acl_entry *ret)
{
	char *part[4], *colon;
	int n = 0, at = 0;

	*ret = (struct dfs_acl_entry){.scope = DFS_ACL_ACCESS};
	for (part[n++] = s; n < 4 && (colon = strchr(part[n - 1], ':')); part[n++] = colon + 1)
		*colon = '\0';
	if (strcmp(part[0], "default") == 0 || strcmp(part[0], "d") == 0) {
		ret->scope = DFS_ACL_DEFAULT;
		at = 1;
	}
	if (at >= n || !parse_type(part[at++], &ret->type))
		return false;
	ret->name = at < n ? part[at++] : "";
	if (with_perm && !(at < n && parse_perm(part[at++], &ret->perm)))
		return false;
	return at >= n && !(*ret->name && ret->type >= DFS_ACL_MASK);
}

static bool parse_spec(const char *text, bool with_perm, struct spec *ret)
{
	char *next = cli_strdup(text), *s;

	*ret = (struct spec){.text = next};
	while ((s = strsep(&next, ",")))
		if (ret->count == ENTRIES_MAX ||
		    !parse_entry(s, with_perm, &ret->entry[ret->count++]))
			return false;
	return true;
}

/* ---- printing one ---- */

static const char *perm_text(uint32_t perm, char buf[4])
{
	snprintf(buf, 4, "%c%c%c", perm & 4 ? 'r' : '-', perm & 2 ? 'w' : '-',
		 perm & 1 ? 'x' : '-');
	return buf;
}

static void print_entry(const struct dfs_acl *l, const struct dfs_acl_entry *e)
{
	static const char *const types[] = {"user", "group", "mask", "other"};
	const bool masked = e->type == DFS_ACL_GROUP || (e->type == DFS_ACL_USER && *e->name);
	uint32_t mask = 7;
	char a[4], b[4];

	for (size_t i = 0; i < l->count; i++)
		if (l->entry[i].scope == e->scope && l->entry[i].type == DFS_ACL_MASK)
			mask = l->entry[i].perm;
	printf("%s%s:%s:%s", e->scope == DFS_ACL_DEFAULT ? "default:" : "", types[e->type & 3],
	       cli_name(e->name), perm_text(e->perm, a));
	if (masked && e->perm & ~mask)
		printf("\t#effective:%s", perm_text(e->perm & mask, b));
	putchar('\n');
}

static void print_json(struct cli *c, const char *path, const struct dfs_acl *l)
{
	static const char *const types[] = {"user", "group", "mask", "other"};
	char perm[4];

	cli_json_item(c, path);
	printf(", \"owner\": ");
	cli_json_string(stdout, l->owner);
	printf(", \"group\": ");
	cli_json_string(stdout, l->group);
	printf(", \"entries\": [");
	for (size_t i = 0; i < l->count; i++) {
		const struct dfs_acl_entry *e = &l->entry[i];

		printf("%s{\"default\": %s, \"type\": \"%s\", \"name\": ", i ? ", " : "",
		       e->scope == DFS_ACL_DEFAULT ? "true" : "false", types[e->type & 3]);
		cli_json_string(stdout, e->name);
		printf(", \"perm\": \"%s\"}", perm_text(e->perm, perm));
	}
	printf("]}");
}

/* ---- operations ---- */

/* What is to be done to each path; @spec NULL: nothing is set. */
struct job {
	int (*one)(struct cli *c, const char *path, const struct spec *spec, struct dfs_err *err);
	const struct spec *spec;
};

static int get_one(struct cli *c, const char *path, const struct spec *spec, struct dfs_err *err)
{
	struct dfs_acl *l;
	int rc = dfs_get_acl(c->fs, path, &l, err);

	(void)spec;
	if (rc < 0)
		return rc;
	if (c->json) {
		print_json(c, path, l);
	} else {
		printf("# file: %s\n# owner: %s\n# group: %s\n", cli_name(path), cli_name(l->owner),
		       cli_name(l->group));
		if (l->mode & 01000)
			printf("# flags: --%c\n", l->mode & 1 ? 't' : 'T');
		for (size_t i = 0; i < l->count; i++)
			print_entry(l, &l->entry[i]);
		putchar('\n');
	}
	dfs_acl_free(l);
	return 0;
}

static int set_one(struct cli *c, const char *path, const struct spec *s, struct dfs_err *err)
{
	return dfs_set_acl(c->fs, path, s->entry, s->count, err);
}

static int modify_one(struct cli *c, const char *path, const struct spec *s, struct dfs_err *err)
{
	return dfs_modify_acl(c->fs, path, s->entry, s->count, err);
}

static int remove_one(struct cli *c, const char *path, const struct spec *s, struct dfs_err *err)
{
	return dfs_remove_acl_entries(c->fs, path, s->entry, s->count, err);
}

static int clear_one(struct cli *c, const char *path, const struct spec *s, struct dfs_err *err)
{
	(void)s;
	return dfs_remove_acl(c->fs, path, err);
}

static int clear_default_one(struct cli *c, const char *path, const struct spec *s,
			     struct dfs_err *err)
{
	(void)s;
	return dfs_remove_default_acl(c->fs, path, err);
}

/* A file has no default entries. */
static void access_only(const struct spec *all, struct spec *ret)
{
	ret->count = 0;
	for (size_t i = 0; i < all->count; i++)
		if (all->entry[i].scope == DFS_ACL_ACCESS)
			ret->entry[ret->count++] = all->entry[i];
}

static void do_entry(struct cli *c, const char *path, const struct dfs_stat *st, void *arg)
{
	const struct job *j = arg;
	struct dfs_err err = {0};
	int rc;

	struct spec access;

	if (st->type == DFS_SYMLINK)
		return; /* met by the walk; it has no list */
	if (c->hadoop && c->recursive && st->type == DFS_FILE && j->spec->count) {
		access_only(j->spec, &access);
		rc = access.count ? j->one(c, path, &access, &err) : 0;
	} else {
		rc = j->one(c, path, j->spec, &err);
	}
	if (rc < 0)
		cli_fail(c, path, err.text);
	else if (c->json && j->one != get_one) {
		cli_json_item(c, path);
		putchar('}');
	}
	if (c->recursive && st->type == DFS_DIR)
		cli_list(c, path, do_entry, arg);
}

static int do_all(struct cli *c, struct job *j, int first)
{
	for (int i = first; i < c->argc; i++) {
		struct dfs_err err = {0};
		struct dfs_stat st = {.type = DFS_FILE};

		if (c->recursive && dfs_stat(c->fs, c->argv[i], &st, &err) < 0)
			cli_fail(c, c->argv[i], err.text);
		else
			do_entry(c, c->argv[i], &st, j);
	}
	return cli_json_end(c);
}

int cmd_acl(struct cli *c)
{
	static const struct {
		const char *name;
		int (*one)(struct cli *c, const char *path, const struct spec *spec,
			   struct dfs_err *err);
		bool spec, perm; /* takes entries; with rights */
	} operations[] = {
		{"get", get_one, false, false},
		{"set", set_one, true, true},
		{"modify", modify_one, true, true},
		{"remove", remove_one, true, false},
		{"clear", clear_one, false, false},
		{"clear-default", clear_default_one, false, false},
	};

	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
		const int first = operations[i].spec ? 2 : 1;
		struct job j = {.one = operations[i].one};
		struct spec spec = {.text = NULL};
		int rc = EXIT_USAGE;

		if (strcmp(c->argv[0], operations[i].name) != 0)
			continue;
		if (c->argc <= first)
			fprintf(stderr, "dfs acl: %s: an operand is missing; see dfs acl --help\n",
				c->argv[0]);
		else if (operations[i].spec && !parse_spec(c->argv[1], operations[i].perm, &spec))
			fprintf(stderr, "%s%s: '%s' is no list of entries, as user:alice:%s%s\n",
				c->hadoop ? "" : "dfs ", c->cmd, c->argv[1],
				operations[i].perm ? "r-x" : "",
				c->hadoop ? "" : "; see dfs acl --help");
		else
			j.spec = &spec, rc = do_all(c, &j, first);
		free(spec.text);
		return rc;
	}
	fprintf(stderr, "dfs acl: no operation '%s'; see dfs acl --help\n", c->argv[0]);
	return EXIT_USAGE;
}
