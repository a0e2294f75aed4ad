/* SPDX-License-Identifier: Apache-2.0 */
/* The syntax of a configuration's values: numbers, sizes, times, true and false, lists. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/cleanup.h"
#include "common/base/conf.h"
#include "common/base/conf_internal.h"

struct unit {
	const char *suffix;
	uint64_t mul, div;
};

static const struct unit size_units[] = {
	{"", 1, 1},           {"k", 1ull << 10, 1}, {"m", 1ull << 20, 1}, {"g", 1ull << 30, 1},
	{"t", 1ull << 40, 1}, {"p", 1ull << 50, 1}, {"e", 1ull << 60, 1}, {NULL, 0, 0},
};
static const struct unit time_units[] = {
	/* in ms */
	{"ms", 1, 1},       {"s", 1000, 1},  {"m", 60000, 1},    {"h", 3600000, 1},
	{"d", 86400000, 1}, {"us", 1, 1000}, {"ns", 1, 1000000}, {NULL, 0, 0},
};

/* Digits (or 0x and hex digits) at the start of @s; returns what follows, NULL: no number. */
static const char *scan_u64(const char *s, uint64_t *ret)
{
	int base = s[0] == '0' && (s[1] == 'x' || s[1] == 'X') ? 16 : 10;
	char *end;
	uint64_t v;

	if (!isdigit((unsigned char)*s))
		return NULL;
	errno = 0;
	v = strtoull(s, &end, base);
	if (errno || end == s)
		return NULL;
	*ret = v;
	return end;
}

static const struct unit *find_unit(const struct unit *u, const char *suffix)
{
	for (; u->suffix; u++)
		if (!strcasecmp(u->suffix, suffix))
			return u;
	return NULL;
}

int conf_parse_u64(const char *s, uint64_t *ret)
{
	uint64_t v;
	const char *rest = scan_u64(s, &v);

	if (!rest || *rest)
		return -EINVAL;
	*ret = v;
	return 0;
}

int conf_parse_size(const char *s, uint64_t *ret)
{
	uint64_t v;
	const char *rest = scan_u64(s, &v);
	const struct unit *u = rest ? find_unit(size_units, rest) : NULL;

	return !u || __builtin_mul_overflow(v, u->mul, ret) ? -EINVAL : 0;
}

/* A number without a unit has that of the key's default: Hadoop's "3" for a heartbeat is 3 s. */
int conf_parse_time(const char *s, const char *dflt, uint64_t *ret)
{
	uint64_t v, ignored;
	const char *rest = scan_u64(s, &v);
	const struct unit *u = rest && *rest ? find_unit(time_units, rest) : NULL;

	if (rest && !*rest) {
		rest = dflt ? scan_u64(dflt, &ignored) : NULL;
		u = rest && *rest ? find_unit(time_units, rest) : time_units;
	}
	if (!u || __builtin_mul_overflow(v, u->mul, &v))
		return -EINVAL;
	*ret = v / u->div;
	return 0;
}

int conf_parse_bool(const char *s, bool *ret)
{
	if (strcasecmp(s, "true") && strcasecmp(s, "false"))
		return -EINVAL;
	*ret = !strcasecmp(s, "true");
	return 0;
}

int conf_list(const struct conf *c, const char *key, char ***ret)
{
	_cleanup_free_ char *copy = strdup(conf_get_or(c, key, ""));
	char **list, *item, *rest = copy;
	size_t n = 0, max = 2;

	for (const char *s = copy; s && *s; s++)
		max += *s == ',';
	list = (char **)calloc(max, sizeof(*list));
	if (!copy || !list) {
		free(list);
		return -ENOMEM;
	}
	while ((item = strsep(&rest, ","))) {
		item = conf_trim(item);
		if (*item && !(list[n++] = strdup(item))) {
			conf_list_free(list);
			return -ENOMEM;
		}
	}
	*ret = list;
	return 0;
}

void conf_list_free(char **list)
{
	for (char **p = list; p && *p; p++)
		free(*p);
	free(list);
}
