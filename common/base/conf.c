/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/conf.h"

#include <ctype.h>
#include <limits.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/conf_internal.h"

#define CONF_SUBST_MAX 20 /* as Hadoop's MAX_SUBST */

/* Sources that are no file: conf_reload() keeps what came from them. */
#define FROM_ARG "-D"
#define FROM_PROGRAM "program"

enum conf_type { T_none, T_string, T_u64, T_size, T_time, T_bool, T_list };

struct entry {
	char *key;
	char *value;      /* as set; NULL: not set, the default holds */
	char *source;     /* file, "-D", ...: for messages */
	const char *dflt; /* from conf_keys.def; static */
	enum conf_type type;
	bool is_final;
	_Atomic(char *) expanded; /* cache of value after ${}; any reader may fill it */
};

struct conf {
	struct entry **v; /* sorted by key; entries are owned */
	size_t n, cap;
	char *dir;         /* owned: where conf_load_dir() read; NULL: it was not called */
	bool keeps_blanks; /* conf_reload_with() */
};

static const struct {
	const char *name, *dflt;
	enum conf_type type;
	const char *type_name, *help;
} known_keys[] = {
#define CONF_KEY(name, dflt, type, help) {name, dflt, T_##type, #type, help},
#include "common/base/conf_keys.def"
#undef CONF_KEY
};
#define KNOWN_COUNT (sizeof(known_keys) / sizeof(known_keys[0]))

/* Names that old files still use. */
static const char *const old_names[][2] = {
	{"dfs.block.size", "dfs.blocksize"},
	{"dfs.data.dir", "dfs.datanode.data.dir"},
	{"dfs.http.address", "dfs.namenode.http-address"},
	{"dfs.name.dir", "dfs.namenode.name.dir"},
	{"fs.default.name", "fs.defaultFS"},
};

/* ---- the table ---- */

/* Index of @key, or of the place where it belongs. */
static size_t find_slot(const struct conf *c, const char *key, bool *ret_found)
{
	size_t lo = 0, hi = c->n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		int cmp = strcmp(c->v[mid]->key, key);

		if (!cmp) {
			*ret_found = true;
			return mid;
		}
		if (cmp < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	*ret_found = false;
	return lo;
}

static const char *current_name(const char *key)
{
	for (size_t i = 0; i < sizeof(old_names) / sizeof(old_names[0]); i++)
		if (!strcmp(key, old_names[i][0]))
			return old_names[i][1];
	return key;
}

static struct entry *find(const struct conf *c, const char *key)
{
	bool found;
	size_t i = find_slot(c, current_name(key), &found);

	return found ? c->v[i] : NULL;
}

static void entry_free(struct entry *e)
{
	if (!e)
		return;
	free(e->key);
	free(e->value);
	free(e->source);
	free(e->expanded);
	free(e);
}

/* The entry of @key, made if need be; NULL: out of memory. */
static struct entry *find_or_add(struct conf *c, const char *key)
{
	bool found;
	size_t i = find_slot(c, key = current_name(key), &found);
	struct entry *e;

	if (found)
		return c->v[i];
	if (c->n == c->cap) {
		size_t cap = c->cap ? c->cap * 2 : 64;
		struct entry **v = (struct entry **)realloc(c->v, cap * sizeof(*v));

		if (!v)
			return NULL;
		c->v = v;
		c->cap = cap;
	}
	e = (struct entry *)calloc(1, sizeof(*e));
	if (!e || !(e->key = strdup(key))) {
		entry_free(e);
		return NULL;
	}
	memmove(c->v + i + 1, c->v + i, (c->n - i) * sizeof(*c->v));
	c->v[i] = e;
	c->n++;
	return e;
}

struct conf *conf_new(void)
{
	struct conf *c = (struct conf *)calloc(1, sizeof(*c));

	for (size_t i = 0; c && i < KNOWN_COUNT; i++) {
		struct entry *e = find_or_add(c, known_keys[i].name);

		if (!e) {
			conf_free(c);
			return NULL;
		}
		e->dflt = known_keys[i].dflt;
		e->type = known_keys[i].type;
	}
	return c;
}

void conf_free(struct conf *c)
{
	if (!c)
		return;
	for (size_t i = 0; i < c->n; i++)
		entry_free(c->v[i]);
	free(c->v);
	free(c->dir);
	free(c);
}

static int put(struct conf *c, const char *key, const char *value, const char *source)
{
	struct entry *e = find_or_add(c, key);
	char *v = strdup(value), *s = strdup(source);

	if (!e || !v || !s) {
		free(v);
		free(s);
		return -ENOMEM;
	}
	free(e->value);
	free(e->source);
	e->value = v;
	e->source = s;
	for (size_t i = 0; i < c->n; i++) /* any of them may have named this one */
		free(atomic_exchange(&c->v[i]->expanded, NULL));
	return 0;
}

int conf_set(struct conf *c, const char *key, const char *value)
{
	return put(c, key, value, FROM_PROGRAM);
}

int conf_set_from_file(struct conf *c, const char *key, const char *value, const char *path,
		       bool is_final)
{
	struct entry *e = find(c, key);
	int rc;

	if (e && e->is_final)
		return 0;
	rc = put(c, key, value, path);
	if (!rc && is_final)
		find(c, key)->is_final = true;
	return rc;
}

char *conf_trim(char *s)
{
	char *end;

	while (isspace((unsigned char)*s))
		s++;
	for (end = s + strlen(s); end > s && isspace((unsigned char)end[-1]);)
		*--end = '\0';
	return s;
}

int conf_set_arg(struct conf *c, const char *kv, struct err *err)
{
	_cleanup_free_ char *copy = strdup(kv);
	char *eq = copy ? strchr(copy, '=') : NULL;
	char *key;

	if (!copy)
		return err_set(err, -ENOMEM, "out of memory");
	if (eq)
		*eq = '\0';
	key = conf_trim(copy);
	if (!eq || !*key)
		return err_set(err, -EINVAL, "-D '%s' is not key=value", kv);
	if (put(c, key, conf_trim(eq + 1), FROM_ARG) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	return 0;
}

int conf_note_dir(struct conf *c, const char *dir)
{
	char *copy = strdup(dir);

	if (!copy)
		return -ENOMEM;
	free(c->dir);
	c->dir = copy;
	return 0;
}

bool conf_keeps_blanks(const struct conf *c)
{
	return c->keeps_blanks;
}

/* @name of the directory of @c; its absence is no error. */
static int load_more(struct conf *c, const char *name, struct err *err)
{
	_cleanup_free_ char *path = NULL;
	int rc;

	if (!c->dir)
		return 0;
	if (asprintf(&path, "%s/%s", c->dir, name) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	rc = conf_load_file(c, path, err);
	if (rc != -ENOENT)
		return rc;
	if (err)
		*err = ERR_INIT;
	return 0;
}

static int reload(const struct conf *c, const char *name, struct conf *fresh, struct err *err)
{
	int rc = c->dir ? conf_load_dir(fresh, c->dir, err) : 0;

	if (!rc && name)
		rc = load_more(fresh, name, err);
	for (size_t i = 0; !rc && i < c->n; i++) {
		const struct entry *e = c->v[i];

		if (e->value && (!strcmp(e->source, FROM_ARG) || !strcmp(e->source, FROM_PROGRAM)))
			rc = put(fresh, e->key, e->value, e->source);
	}
	if (rc == -ENOMEM)
		err_set(err, rc, "out of memory");
	/* numbers do not parse with blanks around them */
	return rc || name ? rc : conf_check(fresh, err);
}

int conf_reload_with(const struct conf *c, const char *name, struct conf **ret, struct err *err)
{
	struct conf *fresh = conf_new();
	int rc;

	if (!fresh)
		return err_set(err, -ENOMEM, "out of memory");
	fresh->keeps_blanks = name != NULL;
	rc = reload(c, name, fresh, err);
	if (rc) {
		conf_free(fresh);
		return rc;
	}
	*ret = fresh;
	return 0;
}

int conf_reload(const struct conf *c, struct conf **ret, struct err *err)
{
	return conf_reload_with(c, NULL, ret, err);
}

/* ---- ${substitution} ---- */

/* What env.NAME, env.NAME-default or env.NAME:-default stands for; malloc'ed or NULL. */
static char *env_value(const char *spec)
{
	size_t len = strcspn(spec, ":-");
	const char *dflt = spec + len;
	bool or_empty = *dflt == ':';
	_cleanup_free_ char *name = strndup(spec, len);
	const char *v = name ? getenv(name) : NULL;

	if (v && (*v || !or_empty))
		return strdup(v);
	if (or_empty)
		dflt++;
	return *dflt == '-' ? strdup(dflt + 1) : NULL;
}

static char *user_name(void)
{
	struct passwd pw, *found = NULL;
	char buf[4096], *s;

	if (!getpwuid_r(geteuid(), &pw, buf, sizeof(buf), &found) && found)
		return strdup(found->pw_name);
	return asprintf(&s, "%u", geteuid()) < 0 ? NULL : s;
}

static char *variable(const struct conf *c, const char *name)
{
	const struct entry *e;

	if (!strncmp(name, "env.", 4))
		return env_value(name + 4);
	if (!strcmp(name, "user.name"))
		return user_name();
	if (!strcmp(name, "user.home"))
		return env_value("HOME-/");
	if (!strcmp(name, "java.io.tmpdir"))
		return strdup("/tmp");
	e = find(c, name);
	if (!e || (!e->value && !e->dflt))
		return NULL;
	return strdup(e->value ? e->value : e->dflt);
}

/* The innermost "${name}" of @s: its first byte, and the length of the whole expression. */
static const char *find_variable(const char *s, size_t *ret_len)
{
	const char *open = NULL;

	for (; *s; s++) {
		if (s[0] == '$' && s[1] == '{') {
			open = s++;
		} else if (isspace((unsigned char)*s)) {
			open = NULL;
		} else if (*s == '}' && open && s - open > 2) {
			*ret_len = (size_t)(s - open) + 1;
			return open;
		}
	}
	return NULL;
}

/* @raw with its variables replaced; an unknown one stays as it is. NULL: out of memory. */
static char *expand(const struct conf *c, const char *raw)
{
	char *s = strdup(raw);

	for (int i = 0; s && i < CONF_SUBST_MAX; i++) {
		size_t len = 0;
		const char *at = find_variable(s, &len);
		_cleanup_free_ char *name = at ? strndup(at + 2, len - 3) : NULL;
		_cleanup_free_ char *value = name ? variable(c, name) : NULL;
		char *next;

		if (!value)
			break;
		if (asprintf(&next, "%.*s%s%s", (int)(at - s), s, value, at + len) < 0)
			next = NULL;
		free(s);
		s = next;
	}
	return s;
}

static const char *entry_text(const struct conf *c, struct entry *e)
{
	const char *raw = e->value ? e->value : e->dflt;
	char *made, *have = NULL;

	if (!raw || !strstr(raw, "${"))
		return raw;
	/* release/acquire: whoever finds the pointer must see the bytes behind it */
	have = atomic_load_explicit(&e->expanded, memory_order_acquire);
	if (have)
		return have;
	made = expand(c, raw);
	if (!made)
		return raw;
	if (atomic_compare_exchange_strong(&e->expanded, &have, made))
		return made;
	free(made); /* another reader was faster */
	return have;
}

const char *conf_get(const struct conf *c, const char *key)
{
	struct entry *e = find(c, key);

	return e ? entry_text(c, e) : NULL;
}

bool conf_is_set(const struct conf *c, const char *key)
{
	const struct entry *e = find(c, key);

	return e && e->value;
}

const char *conf_dir(const struct conf *c)
{
	return c->dir;
}

const char *conf_get_or(const struct conf *c, const char *key, const char *dflt)
{
	const char *s = conf_get(c, key);

	return s ? s : dflt;
}

/* ---- typed values ---- */

/* Parse an entry's text as @type. */
static int parse_as(const struct entry *e, enum conf_type type, const char *text, uint64_t *ret,
		    struct err *err)
{
	const char *expected = "";
	bool b = false;
	int rc = 0;

	switch (type) {
	case T_u64:
		expected = "a number";
		rc = conf_parse_u64(text, ret);
		break;
	case T_size:
		expected = "a size such as 65536, 64k or 128m";
		rc = conf_parse_size(text, ret);
		break;
	case T_time:
		expected = "a time such as 500ms, 3s, 10m, 6h or 1d";
		rc = conf_parse_time(text, e->dflt, ret);
		break;
	case T_bool:
		expected = "true or false";
		rc = conf_parse_bool(text, &b);
		*ret = b;
		break;
	case T_none:
	case T_string:
	case T_list:
		break;
	}
	if (rc < 0)
		err_set(err, rc, "%s=%s (from %s) is not %s", e->key, text,
			e->source ? e->source : "the built-in defaults", expected);
	return rc;
}

static int get_as(const struct conf *c, const char *key, enum conf_type type, uint64_t *io,
		  struct err *err)
{
	struct entry *e = find(c, key);
	const char *text = e ? entry_text(c, e) : NULL;

	return text ? parse_as(e, type, text, io, err) : 0;
}

int conf_u64(const struct conf *c, const char *key, uint64_t dflt, uint64_t *ret, struct err *err)
{
	int rc = get_as(c, key, T_u64, &dflt, err);

	if (!rc)
		*ret = dflt;
	return rc;
}

int conf_size(const struct conf *c, const char *key, uint64_t dflt, uint64_t *ret, struct err *err)
{
	int rc = get_as(c, key, T_size, &dflt, err);

	if (!rc)
		*ret = dflt;
	return rc;
}

int conf_time_ms(const struct conf *c, const char *key, uint64_t dflt, uint64_t *ret,
		 struct err *err)
{
	int rc = get_as(c, key, T_time, &dflt, err);

	if (!rc)
		*ret = dflt;
	return rc;
}

int conf_bool(const struct conf *c, const char *key, bool dflt, bool *ret, struct err *err)
{
	uint64_t v = dflt;
	int rc = get_as(c, key, T_bool, &v, err);

	if (!rc)
		*ret = v != 0;
	return rc;
}

void conf_each(const struct conf *c, void (*fn)(void *arg, const char *key, const char *value),
	       void *arg)
{
	for (size_t i = 0; i < c->n; i++)
		if (c->v[i]->value)
			fn(arg, c->v[i]->key, entry_text(c, c->v[i]));
}

/* What names of our own begin with; NULL: it is none. */
static const char *our_prefix(const char *key)
{
	static const char *const prefix[] = {"dfs.rdma.", "dfs.shim.", "dfs.client.rdma"};

	for (size_t i = 0; i < sizeof(prefix) / sizeof(prefix[0]); i++)
		if (!strncmp(key, prefix[i], strlen(prefix[i])))
			return prefix[i];
	return NULL;
}

static int refuse_unknown(const struct entry *e, const char *prefix, struct err *err)
{
	const char *nearest = conf_nearest(e->key, prefix, UINT_MAX);

	err_set(err, -EINVAL, "unknown key %s (from %s)", e->key, e->source);
	if (nearest)
		err_cure(err, "the nearest is %s", nearest);
	return err_cure(err, "--help-config lists the keys");
}

int conf_check(const struct conf *c, struct err *err)
{
	for (size_t i = 0; i < c->n; i++) {
		struct entry *e = c->v[i];
		const char *text = entry_text(c, e);
		size_t len;
		uint64_t v;
		int rc;

		if (e->type == T_none) {
			const char *prefix = our_prefix(e->key);

			if (prefix)
				return refuse_unknown(e, prefix, err);
			continue;
		}
		if (!text)
			continue;
		if (find_variable(text, &len))
			return err_set(
				err, -EINVAL,
				"%s=%s (from %s) names a variable that is not set or refers to itself",
				e->key, text, e->source ? e->source : "the built-in defaults");
		rc = parse_as(e, e->type, text, &v, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

void conf_print_keys(FILE *out)
{
	for (size_t i = 0; i < KNOWN_COUNT; i++)
		fprintf(out, "%s (%s, default %s)\n\t%s\n", known_keys[i].name,
			known_keys[i].type_name, known_keys[i].dflt ? known_keys[i].dflt : "none",
			known_keys[i].help);
}
