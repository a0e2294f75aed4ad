/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/shell/shell_glob.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/utf8.h"

/* Bytes of the character at @s, which is not the end. */
static size_t one(const char *s)
{
	const size_t n = utf8_char_len(s);

	return n ? n : 1;
}

/* The character at @s, behind its escape. */
static const char *bare(const char *s)
{
	return *s == '\\' && s[1] ? s + 1 : s;
}

/* Behind the character at @s and its escape. */
static const char *after(const char *s)
{
	s = bare(s);
	return s + one(s);
}

/* As code points are: the bytes of UTF-8 have their order. */
static int order(const char *a, const char *b)
{
	const size_t x = one(a), y = one(b);
	const int c = memcmp(a, b, x < y ? x : y);

	return c ? c : (x > y) - (x < y);
}

bool glob_is_pattern(const char *text)
{
	for (; *text; text = after(text))
		if (strchr("*?[{", *text))
			return true;
	return false;
}

void glob_unescape(char *text)
{
	char *to = text;

	while (*text) {
		const char *from = bare(text);
		const size_t n = one(from);

		text += (size_t)(from - text) + n;
		memmove(to, from, n);
		to += n;
	}
	*to = '\0';
}

/* ---- one name ---- */

/* Is the character at @c in the set that begins behind its [ at @p? *@ret_end is behind its ]. */
static bool in_set(const char *p, const char *c, const char **ret_end)
{
	const bool all_but = *p == '^' || *p == '!';
	bool hit = false;

	if (all_but)
		p++;
	if (!*p) {
		*ret_end = p;
		return false;
	}
	do {
		const char *low = bare(p), *high = low;

		p = after(p);
		if (*p == '-' && p[1] && p[1] != ']') {
			high = bare(p + 1);
			p = after(p + 1);
		}
		hit |= order(low, c) <= 0 && order(c, high) <= 0;
	} while (*p && *p != ']');
	*ret_end = *p ? p + 1 : p;
	return hit != all_but;
}

/* Behind the part of the pattern that matches the character at @c, or NULL. */
static const char *match_one(const char *p, const char *c)
{
	const char *end;

	if (*p == '?')
		return p + 1;
	if (*p == '[' && p[1])
		return in_set(p + 1, c, &end) ? end : NULL;
	return *p && order(bare(p), c) == 0 ? after(p) : NULL;
}

bool glob_match(const char *part, const char *name)
{
	const char *star = NULL, *tried = NULL; /* behind the last *, and where it may end */

	while (*name) {
		const char *next;

		if (*part == '*') {
			star = ++part;
			tried = name;
			continue;
		}
		next = match_one(part, name);
		if (next) {
			part = next;
			name += one(name);
		} else if (star) {
			tried += one(tried);
			part = star;
			name = tried;
		} else {
			return false;
		}
	}
	part += strspn(part, "*");
	return !*part;
}

int glob_check(const char *path)
{
	while (*path) {
		const char *p = path;

		if (*path != '[') {
			path = after(path);
			continue;
		}
		p++;
		if (*p == '^' || *p == '!')
			p++;
		do {
			if (!*p || *p == '/')
				return -EINVAL;
			p = after(p);
		} while (*p != ']');
		path = p + 1;
	}
	return 0;
}

/* ---- braces ---- */

static int add(struct glob_list *l, const char *text)
{
	if (l->count == GLOB_ALTERNATIVES_MAX)
		return -E2BIG;
	if (l->count == l->room) {
		const size_t room = l->room ? 2 * l->room : 8;
		char **more = reallocarray(l->text, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		l->text = more;
		l->room = room;
	}
	l->text[l->count] = strdup(text);
	return l->text[l->count] ? (l->count++, 0) : -ENOMEM;
}

/* The } of the { before @p, or with @commas the next comma of the same depth. NULL: not closed. */
static const char *closing(const char *p, bool commas)
{
	int depth = 0;

	for (; *p; p = after(p)) {
		if (!depth && (*p == '}' || (commas && *p == ',')))
			return p;
		depth += (*p == '{') - (*p == '}');
	}
	return NULL;
}

static int expand(const char *text, int depth, struct glob_list *ret);

/* @text with @len bytes at @inner in place of what is between @open and @close, and both. */
static int expand_one(const char *text, const char *open, const char *inner, size_t len,
		      const char *close, int depth, struct glob_list *ret)
{
	const size_t front = (size_t)(open - text), back = strlen(close + 1);
	char *line = malloc(front + len + back + 1);
	int rc;

	if (!line)
		return -ENOMEM;
	memcpy(line, text, front);
	memcpy(line + front, inner, len);
	memcpy(line + front + len, close + 1, back + 1);
	rc = expand(line, depth + 1, ret);
	free(line);
	return rc;
}

#define BRACES_MAX 64 /* in one text: each is a call deeper */

static int expand(const char *text, int depth, struct glob_list *ret)
{
	const char *open = text, *close, *inner, *end;
	int rc = 0;

	while (*open && *open != '{')
		open = after(open);
	if (!*open)
		return add(ret, text);
	close = closing(open + 1, false);
	if (!close)
		return -EINVAL;
	if (depth == BRACES_MAX)
		return -E2BIG;
	for (inner = open + 1; !rc; inner = end + 1) {
		end = closing(inner, true);
		rc = expand_one(text, open, inner, (size_t)(end - inner), close, depth, ret);
		if (end == close)
			break;
	}
	return rc;
}

int glob_braces(const char *text, struct glob_list *ret)
{
	*ret = (struct glob_list){0};
	return expand(text, 0, ret);
}

void glob_list_free(struct glob_list *l)
{
	for (size_t i = 0; i < l->count; i++)
		free(l->text[i]);
	free(l->text);
	*l = (struct glob_list){0};
}
