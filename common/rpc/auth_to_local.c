/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/auth_to_local.h"

#include <ctype.h>
#include <errno.h>
#include <regex.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/conf.h"

#define KEY "hadoop.security.auth_to_local"
#define NAME_BYTES 1024 /* of a name, and of what is made of it */
#define GROUPS 10       /* $0 to $9 of a replacement */
#define REALM_BYTES 256

struct rule {
	struct rule *next;
	bool is_default, repeat, lower;
	unsigned int components;
	char *format; /* owned, as the rest; NULL where there is none */
	char *to;
	bool has_match, has_from;
	regex_t match, from;
};

struct auth_to_local {
	struct rule *rules;
	bool keep_unmatched;     /* mechanism mit */
	char realm[REALM_BYTES]; /* of this machine; "": none */
};

/* A name taken apart: $0 is the realm, $1 and $2 are service and host. */
struct parts {
	char text[NAME_BYTES];
	const char *part[3];
	unsigned int n; /* components: 1 or 2 */
};

/* A text that is put together. */
struct out {
	char text[NAME_BYTES];
	size_t len;
	bool full;
};

static void put(struct out *o, const char *s, size_t len)
{
	if (o->full || len >= sizeof(o->text) - o->len) {
		o->full = true;
		return;
	}
	memcpy(o->text + o->len, s, len);
	o->len += len;
	o->text[o->len] = 0;
}

/* ---- regular expressions ---- */

static int refuse(struct err *err, const char *pattern, const char *why)
{
	return err_set(err, -EINVAL,
		       KEY
		       ": the pattern %.150s: %s; write it with POSIX extended regular expressions",
		       pattern, why);
}

/* What stands behind a backslash, outside of brackets. */
static int put_escaped(struct out *o, char c, const char *pattern, struct err *err)
{
	if (c == 'd' || c == 'D')
		put(o, c == 'd' ? "[0-9]" : "[^0-9]", c == 'd' ? 5 : 6);
	else if (c && (strchr("wWsSbB", c) || !isalnum((uint8_t)c)))
		put(o, (const char[]){'\\', c}, 2);
	else
		return refuse(err, pattern, "such a backslash is not known here");
	return 0;
}

/* [...]: *p stands at the bracket, and afterwards behind it. A backslash is no escape in POSIX
 * brackets. */
static int put_brackets(struct out *o, const char **p, const char *pattern, struct err *err)
{
	const char *s = *p + 1;

	put(o, "[", 1);
	if (*s == '^')
		put(o, s++, 1);
	for (; *s && *s != ']'; s++) {
		if (*s == '[' || (*s == '&' && s[1] == '&'))
			return refuse(err, pattern, "brackets within brackets are not known here");
		if (*s != '\\') {
			put(o, s, 1);
			continue;
		}
		s++;
		if (*s == 'd' || *s == 'w')
			put(o, "0-9A-Za-z_", *s == 'd' ? 3 : 10);
		else if (*s && !isalnum((uint8_t)*s) && !strchr("[]^-\\", *s))
			put(o, s, 1);
		else
			return refuse(err, pattern,
				      "such a backslash in brackets is not known here");
	}
	if (!*s)
		return refuse(err, pattern, "a bracket is not closed");
	put(o, "]", 1);
	*p = s + 1;
	return 0;
}

/* Java's pattern as a POSIX one. */
static int translate(const char *pattern, struct out *o, struct err *err)
{
	int rc = 0;

	for (const char *p = pattern; *p && !rc;) {
		if (*p == '\\') {
			rc = put_escaped(o, p[1], pattern, err);
			p += p[1] ? 2 : 1;
		} else if (*p == '[') {
			rc = put_brackets(o, &p, pattern, err);
		} else if (p[0] == '(' && p[1] == '?') {
			rc = refuse(err, pattern, "(?...) is not known here");
		} else if (strchr("*+?", *p) && (p == pattern || strchr("(|", p[-1]))) {
			rc = refuse(err, pattern, "nothing stands before a quantifier");
		} else if (strchr("*+?}", *p) && p[1] && strchr("?+", p[1])) {
			rc = refuse(err, pattern,
				    "quantifiers that are not greedy are not known here");
		} else {
			put(o, p++, 1);
		}
	}
	return rc ? rc : o->full ? refuse(err, pattern, "too long") : 0;
}

static int compile(const char *pattern, bool whole, regex_t *ret, struct err *err)
{
	struct out o = {.text = ""};
	char why[128];
	int rc;

	put(&o, "^(", whole ? 2 : 0);
	rc = translate(pattern, &o, err);
	put(&o, ")$", whole ? 2 : 0);
	if (rc)
		return rc;
	rc = regcomp(ret, o.text, REG_EXTENDED);
	if (!rc)
		return 0;
	regerror(rc, ret, why, sizeof(why));
	return refuse(err, pattern, why);
}

/* ---- rules ---- */

static void rule_free(struct rule *r)
{
	if (r->has_match)
		regfree(&r->match);
	if (r->has_from)
		regfree(&r->from);
	free(r->format);
	free(r->to);
	free(r);
}

static int bad_rule(struct err *err, const char *rule)
{
	return err_set(
		err, -EINVAL,
		KEY
		": this is no rule: %.200s; rules are RULE:[2:$1@$0](.*@EXAMPLE\\.COM)s/@.*//L and DEFAULT",
		rule);
}

/* Copy up to @end, behind which *p stands then. NULL: it is not there. */
static char *take(const char **p, char end)
{
	const char *e = strchr(*p, end);
	char *s = e ? strndup(*p, (size_t)(e - *p)) : NULL;

	if (e)
		*p = e + 1;
	return s;
}

/* Every $ of @format is one of the parts. */
static bool format_is_good(const char *format, unsigned int components)
{
	for (const char *p = strchr(format, '$'); p; p = strchr(p + 1, '$'))
		if (!isdigit((uint8_t)p[1]) || strtoul(p + 1, NULL, 10) > components)
			return false;
	return true;
}

/* Every $ of @to, but for one behind a backslash, is a group of @from. */
static bool replacement_is_good(const char *to, const regex_t *from)
{
	for (; *to; to++)
		if (*to == '\\' && to[1])
			to++;
		else if (*to == '$' &&
			 (!isdigit((uint8_t)to[1]) || (size_t)(to[1] - '0') > from->re_nsub))
			return false;
	return true;
}

/* "[2:$1@$0](fits)s/from/to/g", of which the last two may be missing. */
static int parse_rule(const char **p, struct rule *r, struct err *err)
{
	const char *start = *p;
	_cleanup_free_ char *match = NULL;
	_cleanup_free_ char *from = NULL;
	char *end;
	int rc = 0;

	*p += strlen("RULE:[");
	r->components = (unsigned int)strtoul(*p, &end, 10);
	if (!isdigit((uint8_t) * *p) || *end != ':')
		return bad_rule(err, start);
	*p = end + 1;
	r->format = take(p, ']');
	if (!r->format || !format_is_good(r->format, r->components))
		return bad_rule(err, start);
	if (**p == '(') {
		++*p;
		match = take(p, ')');
		rc = match ? compile(match, true, &r->match, err) : bad_rule(err, start);
		r->has_match = !rc;
	}
	if (!rc && !strncmp(*p, "s/", 2)) {
		*p += 2;
		from = take(p, '/');
		r->to = from ? take(p, '/') : NULL;
		rc = r->to ? compile(from, false, &r->from, err) : bad_rule(err, start);
		r->has_from = !rc;
		if (!rc && !replacement_is_good(r->to, &r->from))
			return bad_rule(err, start);
		r->repeat = !rc && **p == 'g';
		*p += r->repeat;
	}
	return rc;
}

static int parse_rules(const char *text, struct auth_to_local *a, struct err *err)
{
	struct rule **last = &a->rules;
	const char *p = text + strspn(text, " \t\r\n");
	int rc = 0;

	while (*p && !rc) {
		struct rule *r = calloc(1, sizeof(*r));

		if (!r)
			return err_set(err, -ENOMEM, "out of memory");
		*last = r;
		last = &r->next;
		r->is_default = !strncmp(p, "DEFAULT", 7);
		if (r->is_default)
			p += 7;
		else
			rc = strncmp(p, "RULE:[", 6) ? bad_rule(err, p) : parse_rule(&p, r, err);
		p += *p == '/';
		r->lower = *p == 'L';
		p += r->lower;
		p += strspn(p, " \t\r\n");
	}
	return rc;
}

/* default_realm of [libdefaults] in krb5.conf. */
static void find_realm(char ret[REALM_BYTES])
{
	const char *path = getenv("KRB5_CONFIG");
	_cleanup_fclose_ FILE *f = fopen(path && *path ? path : "/etc/krb5.conf", "re");
	char line[1024], realm[REALM_BYTES];
	bool in = false;

	while (f && fgets(line, sizeof(line), f)) {
		const char *s = line + strspn(line, " \t");

		if (*s == '[')
			in = !strncmp(s, "[libdefaults]", 13);
		else if (in && sscanf(s, "default_realm = %255[^ \t\r\n]", realm) == 1)
			memcpy(ret, realm, strlen(realm) + 1);
	}
}

int auth_to_local_new(const struct conf *c, struct auth_to_local **ret, struct err *err)
{
	struct auth_to_local *a = calloc(1, sizeof(*a));
	const char *how = conf_get_or(c, "hadoop.security.auth_to_local.mechanism", "hadoop");
	int rc;

	if (!a)
		return err_set(err, -ENOMEM, "out of memory");
	a->keep_unmatched = !strcasecmp(how, "mit");
	if (!a->keep_unmatched && strcasecmp(how, "hadoop") != 0)
		rc = err_set(err, -EINVAL, KEY ".mechanism is %.100s; it must be hadoop or mit",
			     how);
	else
		rc = parse_rules(
			conf_get_or(c, "hadoop.security.auth_to_local", "RULE:[1:$1] RULE:[2:$1]"),
			a, err);
	if (rc) {
		auth_to_local_free(a);
		return rc;
	}
	find_realm(a->realm);
	*ret = a;
	return 0;
}

void auth_to_local_free(struct auth_to_local *a)
{
	while (a && a->rules) {
		struct rule *next = a->rules->next;

		rule_free(a->rules);
		a->rules = next;
	}
	free(a);
}

/* ---- names ---- */

/* service[/host][@realm]. A name of another shape and without @ is short. */
static int split(const char *name, struct parts *p, struct err *err)
{
	const size_t service = strcspn(name, "/@");
	const char *end = name + service;
	size_t host = 0, realm = 0;
	bool good = service > 0;

	*p = (struct parts){.n = 1, .part = {[1] = p->text}};
	if (strlen(name) >= sizeof(p->text))
		return err_set(err, -ENAMETOOLONG, "a user name of %zu bytes", strlen(name));
	memcpy(p->text, name, strlen(name));
	if (*end == '/') {
		host = strcspn(end + 1, "/@");
		good = good && host;
		end += 1 + host;
	}
	if (*end == '@') {
		realm = strcspn(end + 1, "/@");
		good = good && realm;
		end += 1 + realm;
	}
	if (!good || *end)
		return strchr(name, '@')
			       ? err_set(err, -EACCES, "Malformed Kerberos name: %.200s", name)
			       : 0;
	if (host) {
		p->text[service] = 0;
		p->part[2] = p->text + service + 1;
		p->n = 2;
	}
	if (realm) {
		p->text[end - name - (ptrdiff_t)realm - 1] = 0;
		p->part[0] = p->text + (end - name - (ptrdiff_t)realm);
	}
	return 0;
}

static void put_format(struct out *o, const char *format, const struct parts *p)
{
	while (*format) {
		const size_t len = strcspn(format, "$");

		put(o, format, len);
		format += len;
		if (*format) {
			char *end;
			const unsigned long i = strtoul(format + 1, &end, 10);
			const char *part = i < 3 && p->part[i] ? p->part[i] : "null";

			put(o, part, strlen(part));
			format = end;
		}
	}
}

/* @to as Java's Matcher reads it: $1 is a group, and a backslash takes the meaning of what follows
 * away. */
static void put_replacement(struct out *o, const char *to, const char *text, const regmatch_t *m)
{
	for (; *to; to++) {
		if (*to == '$' && isdigit((uint8_t)to[1])) {
			const regmatch_t *g = &m[*++to - '0'];

			if (g->rm_so >= 0)
				put(o, text + g->rm_so, (size_t)(g->rm_eo - g->rm_so));
			continue;
		}
		to += *to == '\\' && to[1];
		put(o, to, 1);
	}
}

static void substitute(const struct rule *r, const char *text, struct out *o)
{
	regmatch_t m[GROUPS];
	const char *p = text;

	while (!regexec(&r->from, p, GROUPS, m, p == text ? 0 : REG_NOTBOL)) {
		put(o, p, (size_t)m[0].rm_so);
		put_replacement(o, r->to, p, m);
		p += m[0].rm_eo;
		if (!r->repeat)
			break;
		if (m[0].rm_so < m[0].rm_eo)
			continue;
		if (!*p) /* nothing was taken: go on behind the next character */
			break;
		put(o, p++, 1);
	}
	put(o, p, strlen(p));
}

/* True: the rule makes @o of the name. */
static bool apply(const struct auth_to_local *a, const struct rule *r, const struct parts *p,
		  struct out *o)
{
	struct out base = {.text = ""};

	*o = (struct out){.text = ""};
	if (r->is_default) {
		if (!p->part[0] || strcmp(p->part[0], a->realm) != 0)
			return false;
		put(o, p->part[1], strlen(p->part[1]));
	} else {
		if (p->n != r->components)
			return false;
		put_format(&base, r->format, p);
		if (r->has_match && regexec(&r->match, base.text, 0, NULL, 0))
			return false;
		if (r->has_from)
			substitute(r, base.text, o);
		else
			put(o, base.text, base.len);
		o->full |= base.full;
	}
	for (size_t i = 0; r->lower && i < o->len; i++)
		o->text[i] = (char)tolower((uint8_t)o->text[i]);
	return true;
}

static int give(const char *name, size_t len, char *ret, size_t size, struct err *err)
{
	if (len >= size)
		return err_set(err, -ENAMETOOLONG, "a user name of %zu bytes", len);
	memcpy(ret, name, len);
	ret[len] = 0;
	return 0;
}

int auth_to_local(const struct auth_to_local *a, const char *name, char *ret, size_t size,
		  struct err *err)
{
	struct parts p;
	struct out o;
	int rc = split(name, &p, err);

	if (rc < 0)
		return rc;
	if (!a || (!p.part[0] && p.n == 1))
		return give(p.part[1], strlen(p.part[1]), ret, size, err);
	for (const struct rule *r = a->rules; r; r = r->next) {
		if (!apply(a, r, &p, &o))
			continue;
		if (o.full)
			return err_set(err, -ENAMETOOLONG, "the name that " KEY " makes of %.200s",
				       name);
		if (!o.len || (!a->keep_unmatched && strpbrk(o.text, "/@")))
			return err_set(err, -EACCES,
				       "Non-simple name %.200s after auth_to_local rule", o.text);
		return give(o.text, o.len, ret, size, err);
	}
	if (a->keep_unmatched)
		return give(name, strlen(name), ret, size, err);
	return err_set(err, -EACCES, "No rules applied to %.200s", name);
}
