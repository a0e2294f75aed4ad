/* SPDX-License-Identifier: Apache-2.0 */
/* cacheadmin: pools and directives of centralised caching, in the words of hdfs cacheadmin. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/err.h"
#include "tools/cli.h"

#define NOT_GIVEN (-1)
#define NEVER_MS (INT64_MAX / 4) /* as HDFS: the longest time */

/* What stands behind an operation. */
struct words {
	struct dfs_cache_pool pool;
	struct dfs_cache_directive directive;
	bool force, stats;
	const char *name; /* without a word before it */
};

/* ---- words ---- */

static bool parse_number(const char *s, int64_t max, int64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoll(s, &end, 10);
	return *s >= '0' && *s <= '9' && !*end && !errno && *ret <= max;
}

/* 30m, 2h, 1d, 20s, or never. */
static bool parse_ttl(const char *s, int64_t *ret)
{
	static const char units[] = "smhd";
	static const int64_t ms[] = {1000, 60000, 3600000, 86400000};
	const size_t len = strlen(s);
	const char *unit = len > 1 ? strchr(units, s[len - 1]) : NULL;
	char digits[20];

	if (!strcmp(s, "never")) {
		*ret = NEVER_MS;
		return true;
	}
	if (!unit || len > sizeof(digits))
		return false;
	memcpy(digits, s, len - 1);
	digits[len - 1] = 0;
	if (!parse_number(digits, NEVER_MS / ms[unit - units], ret))
		return false;
	*ret *= ms[unit - units];
	return true;
}

static bool parse_mode(const char *s, int32_t *ret)
{
	char *end;
	const long v = strtol(s, &end, 8);

	*ret = (int32_t)v;
	return *s >= '0' && *s <= '7' && !*end && v <= 01777;
}

static bool take_repl(const char *v, int32_t *ret)
{
	int64_t n;
	const bool ok = parse_number(v, INT16_MAX, &n);

	*ret = (int32_t)n;
	return ok;
}

static bool take_limit(const char *v, int64_t *ret)
{
	if (strcmp(v, "unlimited") != 0)
		return parse_number(v, INT64_MAX, ret);
	*ret = INT64_MAX;
	return true;
}

/* The value of one word; false: it is none. */
static bool take_value(struct words *w, const char *word, const char *v)
{
	if (!strcmp(word, "-owner"))
		w->pool.owner = v;
	else if (!strcmp(word, "-group"))
		w->pool.group = v;
	else if (!strcmp(word, "-mode"))
		return parse_mode(v, &w->pool.mode);
	else if (!strcmp(word, "-limit"))
		return take_limit(v, &w->pool.limit);
	else if (!strcmp(word, "-defaultReplication"))
		return take_repl(v, &w->pool.replication);
	else if (!strcmp(word, "-maxTtl"))
		return parse_ttl(v, &w->pool.max_ttl_ms);
	else if (!strcmp(word, "-path"))
		w->directive.path = v;
	else if (!strcmp(word, "-pool"))
		w->directive.pool = v;
	else if (!strcmp(word, "-replication"))
		return take_repl(v, &w->directive.replication);
	else if (!strcmp(word, "-ttl"))
		return parse_ttl(v, &w->directive.ttl_ms);
	else
		return parse_number(v, INT64_MAX, &w->directive.id); /* -id */
	return true;
}

/* What take_value() takes for a word that does not take any text. */
static const char *what_it_takes(const char *word)
{
	static const struct {
		const char *word, *takes;
	} all[] = {{"-mode", "is no mode, such as 0755"},
		   {"-limit", "is no limit: a number of bytes, or unlimited"},
		   {"-maxTtl", "is no time: 30s, 20m, 2h, 1d or never"},
		   {"-ttl", "is no time: 30s, 20m, 2h, 1d or never"},
		   {"-defaultReplication", "is no number up to 32767"},
		   {"-replication", "is no number up to 32767"}};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (!strcmp(word, all[i].word))
			return all[i].takes;
	return "is no id of a directive";
}

static int usage(struct cli *c, const char *what, const char *why)
{
	cli_fail_cure(c, what, why, "see dfs cacheadmin --help");
	return EXIT_USAGE;
}

struct operation {
	const char *name;
	int (*run)(struct cli *c, const struct words *w);
	const char *
		takes; /* words with a value, each between blanks; " -force" and " -stats" have none */
	const char *wants; /* a word that must be there; "": a name; NULL: none */
	bool names;        /* it may have a name */
};

static bool has_word(const char *list, const char *word)
{
	const size_t n = strlen(word);
	const char *at;

	if (*word != '-' || strchr(word, ' '))
		return false;
	for (at = strstr(list, word); at; at = strstr(at + 1, word))
		if (at[-1] == ' ' && (at[n] == ' ' || !at[n]))
			return true;
	return false;
}

static int parse_words(struct cli *c, const struct operation *op, struct words *w)
{
	for (int i = 1; i < c->argc; i++) {
		const char *word = c->argv[i];

		if (*word != '-' && op->names && !w->name) {
			w->name = word;
		} else if (!has_word(op->takes, word)) {
			return usage(c, word, "is no word of this operation");
		} else if (!strcmp(word, "-force")) {
			w->force = true;
		} else if (!strcmp(word, "-stats")) {
			w->stats = true;
		} else if (i + 1 == c->argc) {
			return usage(c, word, "a value is missing");
		} else if (!take_value(w, word, c->argv[++i])) {
			return usage(c, c->argv[i], what_it_takes(word));
		}
	}
	if (op->wants && !*op->wants && !w->name)
		return usage(c, op->name, "a name is missing");
	if (op->wants && ((!strcmp(op->wants, "-path") && !w->directive.path) ||
			  (!strcmp(op->wants, "-id") && w->directive.id == NOT_GIVEN)))
		return usage(c, op->wants, "is missing");
	return EXIT_OK;
}

/* ---- tables ---- */

static const char *expiry_text(int64_t ms, char buf[static 40])
{
	const time_t s = (time_t)(ms / 1000);
	struct tm tm;

	if (ms >= NEVER_MS / 4 || !localtime_r(&s, &tm) ||
	    !strftime(buf, 40, "%Y-%m-%dT%H:%M:%S%z", &tm))
		return "never";
	return buf;
}

static const char *ttl_text(int64_t ms, char buf[static 40])
{
	const int64_t s = ms / 1000;

	if (ms >= NEVER_MS)
		return "never";
	snprintf(buf, 40, "%03" PRId64 ":%02" PRId64 ":%02" PRId64 ":%02" PRId64 ".%03" PRId64,
		 s / 86400, s / 3600 % 24, s / 60 % 60, s % 60, ms % 1000);
	return buf;
}

static void json_use(const struct dfs_cache_use *u)
{
	printf(", \"bytes_needed\": %" PRId64 ", \"bytes_cached\": %" PRId64
	       ", \"files_needed\": %" PRId64 ", \"files_cached\": %" PRId64 "}",
	       u->bytes_needed, u->bytes_cached, u->files_needed, u->files_cached);
}

struct table {
	struct cli *c;
	const struct words *w;
	bool found;
};

static void show_directive(void *arg, const struct dfs_cache_directive *d,
			   const struct dfs_cache_use *u)
{
	const struct table *t = arg;
	char buf[40];

	if (t->c->json) {
		printf("%s{\"id\": %" PRId64 ", \"path\": ", t->c->printed++ ? ",\n " : "[", d->id);
		cli_json_string(stdout, d->path);
		printf(", \"pool\": ");
		cli_json_string(stdout, d->pool);
		printf(", \"replication\": %d, \"expires_ms\": %" PRId64 ", \"expired\": %s",
		       d->replication, d->expires_ms, d->has_expired ? "true" : "false");
		json_use(u);
		return;
	}
	if (!t->c->printed++)
		printf("%6s %-12s %4s %-24s %s%s\n", "ID", "POOL", "REPL", "EXPIRY",
		       t->w->stats ? "BYTES_NEEDED  BYTES_CACHED  FILES_NEEDED  FILES_CACHED  "
				   : "",
		       "PATH");
	printf("%6" PRId64 " %-12s %4d %-24s ", d->id, cli_name(d->pool), d->replication,
	       expiry_text(d->expires_ms, buf));
	if (t->w->stats)
		printf("%12" PRId64 "  %12" PRId64 "  %12" PRId64 "  %12" PRId64 "  ",
		       u->bytes_needed, u->bytes_cached, u->files_needed, u->files_cached);
	printf("%s\n", cli_name(d->path));
}

static void json_pool(struct cli *c, const struct dfs_cache_pool *p, const struct dfs_cache_use *u)
{
	printf("%s{\"pool\": ", c->printed++ ? ",\n " : "[");
	cli_json_string(stdout, p->name);
	if (!p->owner) {
		printf("}");
		return;
	}
	printf(", \"owner\": ");
	cli_json_string(stdout, p->owner);
	printf(", \"group\": ");
	cli_json_string(stdout, p->group ? p->group : "");
	printf(", \"mode\": \"%04o\", \"limit\": %" PRId64 ", \"max_ttl_ms\": %" PRId64
	       ", \"default_replication\": %d, \"bytes_over_limit\": %" PRId64,
	       (unsigned)p->mode, p->limit, p->max_ttl_ms, p->replication, u->bytes_over);
	json_use(u);
}

static void show_pool(void *arg, const struct dfs_cache_pool *p, const struct dfs_cache_use *u)
{
	struct table *t = arg;
	char ttl[40], limit[32] = "unlimited";

	if (t->w->name && strcmp(t->w->name, p->name) != 0)
		return;
	t->found = true;
	if (t->c->json) {
		json_pool(t->c, p, u);
		return;
	}
	if (!t->c->printed++)
		printf("%-12s %-10s %-10s %4s %12s %16s %4s%s\n", "NAME", "OWNER", "GROUP", "MODE",
		       "LIMIT", "MAXTTL", "REPL",
		       t->w->stats ? "  BYTES_NEEDED  BYTES_CACHED  BYTES_OVERLIMIT  FILES_NEEDED  "
				     "FILES_CACHED"
				   : "");
	if (!p->owner) { /* it may not be read */
		printf("%s\n", cli_name(p->name));
		return;
	}
	if (p->limit != INT64_MAX)
		snprintf(limit, sizeof(limit), "%" PRId64, p->limit);
	printf("%-12s %-10s %-10s %04o %12s %16s %4d", cli_name(p->name), cli_name(p->owner),
	       cli_name(p->group ? p->group : ""), (unsigned)p->mode, limit,
	       ttl_text(p->max_ttl_ms, ttl), p->replication);
	if (t->w->stats)
		printf("  %12" PRId64 "  %12" PRId64 "  %15" PRId64 "  %12" PRId64 "  %12" PRId64,
		       u->bytes_needed, u->bytes_cached, u->bytes_over, u->files_needed,
		       u->files_cached);
	printf("\n");
}

/* ---- operations ---- */

static int done(struct cli *c, int rc, const char *what, const struct dfs_err *err,
		const char *words)
{
	if (rc < 0)
		return cli_fail(c, what, err->text);
	if (!c->json)
		printf("%s %s.\n", words, cli_name(what));
	return EXIT_OK;
}

static int add_pool(struct cli *c, const struct words *w)
{
	struct dfs_cache_pool p = w->pool;
	struct dfs_err err = {0};

	p.name = w->name;
	return done(c, dfs_add_cache_pool(c->fs, &p, &err), w->name, &err,
		    "Successfully added cache pool");
}

static int modify_pool(struct cli *c, const struct words *w)
{
	struct dfs_cache_pool p = w->pool;
	struct dfs_err err = {0};

	if (!p.owner && !p.group && p.mode == NOT_GIVEN && p.replication == NOT_GIVEN &&
	    p.limit == NOT_GIVEN && p.max_ttl_ms == NOT_GIVEN)
		return usage(c, w->name, "nothing is to be changed");
	p.name = w->name;
	return done(c, dfs_modify_cache_pool(c->fs, &p, &err), w->name, &err,
		    "Successfully modified cache pool");
}

static int remove_pool(struct cli *c, const struct words *w)
{
	struct dfs_err err = {0};

	return done(c, dfs_remove_cache_pool(c->fs, w->name, &err), w->name, &err,
		    "Successfully removed cache pool");
}

static int list_pools(struct cli *c, const struct words *w)
{
	struct table t = {c, w, false};
	struct dfs_err err = {0};

	if (dfs_list_cache_pools(c->fs, show_pool, &t, &err) < 0)
		return cli_fail(c, NULL, err.text);
	if (w->name && !t.found)
		return cli_fail(c, w->name, "there is no such cache pool");
	return cli_json_end(c);
}

static int add_directive(struct cli *c, const struct words *w)
{
	struct dfs_err err = {0};
	int64_t id;

	if (!w->directive.pool)
		return usage(c, "-pool", "is missing");
	if (dfs_add_cache_directive(c->fs, &w->directive, w->force, &id, &err) < 0)
		return cli_fail(c, w->directive.path, err.text);
	if (c->json)
		printf("[{\"id\": %" PRId64 "}]\n", id);
	else
		printf("Added cache directive %" PRId64 "\n", id);
	return EXIT_OK;
}

static int modify_directive(struct cli *c, const struct words *w)
{
	const struct dfs_cache_directive *d = &w->directive;
	struct dfs_err err = {0};
	char id[32];

	snprintf(id, sizeof(id), "%" PRId64, d->id);
	if (!d->path && !d->pool && d->replication == NOT_GIVEN && d->ttl_ms == NOT_GIVEN)
		return usage(c, id, "nothing is to be changed");
	return done(c, dfs_modify_cache_directive(c->fs, d, w->force, &err), id, &err,
		    "Modified cache directive");
}

static int remove_directive(struct cli *c, const struct words *w)
{
	struct dfs_err err = {0};
	int64_t id;

	if (!parse_number(w->name, INT64_MAX, &id))
		return usage(c, w->name, "is no id");
	return done(c, dfs_remove_cache_directive(c->fs, id, &err), w->name, &err,
		    "Removed cached directive");
}

struct ids {
	int64_t *id; /* owned array */
	size_t n;
	bool lost; /* there was no memory for all */
};

static void note_id(void *arg, const struct dfs_cache_directive *d, const struct dfs_cache_use *u)
{
	struct ids *all = arg;
	int64_t *more = realloc(all->id, (all->n + 1) * sizeof(*more));

	(void)u;
	if (!more) {
		all->lost = true;
		return;
	}
	all->id = more;
	all->id[all->n++] = d->id;
}

static int remove_directives(struct cli *c, const struct words *w)
{
	struct dfs_err err = {0};
	struct ids all = {0};

	if (dfs_list_cache_directives(c->fs, &w->directive, note_id, &all, &err) < 0)
		cli_fail(c, w->directive.path, err.text);
	if (all.lost)
		cli_fail_errno(c, w->directive.path, -ENOMEM, "do it again for what is left");
	for (size_t i = 0; i < all.n; i++) {
		char id[32];

		err = (struct dfs_err){0};
		snprintf(id, sizeof(id), "%" PRId64, all.id[i]);
		done(c, dfs_remove_cache_directive(c->fs, all.id[i], &err), id, &err,
		     "Removed cache directive");
	}
	free(all.id);
	return EXIT_OK;
}

static int list_directives(struct cli *c, const struct words *w)
{
	struct table t = {c, w, false};
	struct dfs_err err = {0};

	if (dfs_list_cache_directives(c->fs, &w->directive, show_directive, &t, &err) < 0)
		return cli_fail(c, NULL, err.text);
	return cli_json_end(c);
}

#define POOL_WORDS " -owner -group -mode -limit -defaultReplication -maxTtl"
static const struct operation operations[] = {
	{"-addPool", add_pool, POOL_WORDS, "", true},
	{"-modifyPool", modify_pool, POOL_WORDS, "", true},
	{"-removePool", remove_pool, " ", "", true},
	{"-listPools", list_pools, " -stats", NULL, true},
	{"-addDirective", add_directive, " -path -pool -force -replication -ttl", "-path", false},
	{"-modifyDirective", modify_directive, " -id -path -pool -force -replication -ttl", "-id",
	 false},
	{"-removeDirective", remove_directive, " ", "", true},
	{"-removeDirectives", remove_directives, " -path", "-path", false},
	{"-listDirectives", list_directives, " -stats -path -pool -id", NULL, false},
};

int cmd_cacheadmin(struct cli *c)
{
	struct words w = {
		.pool = {.mode = NOT_GIVEN,
			 .replication = NOT_GIVEN,
			 .limit = NOT_GIVEN,
			 .max_ttl_ms = NOT_GIVEN},
		.directive = {.id = NOT_GIVEN, .replication = NOT_GIVEN, .ttl_ms = NOT_GIVEN}};

	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
		int rc;

		if (strcmp(operations[i].name, c->argv[0]) != 0)
			continue;
		rc = parse_words(c, &operations[i], &w);
		return rc ? rc : operations[i].run(c, &w);
	}
	return usage(c, c->argv[0], "is no operation");
}
