/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/groups.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NSS_BUF 16384           /* bytes of one entry, at first, */
#define NSS_BUF_MAX (64u << 20) /* and at most: a group of a million members */

struct found {
	char **name; /* GROUPS_MAX */
	int n;
	bool no_memory;
};

static void add(struct found *f, const char *name, size_t len)
{
	char *s = f->n < GROUPS_MAX ? strndup(name, len) : NULL;

	if (s)
		f->name[f->n++] = s;
	else
		f->no_memory |= f->n < GROUPS_MAX;
}

/* The next word of *@p up to @stop or the end of its part, without blanks around it. */
static const char *next_word(const char **p, const char *stop, size_t *ret_len)
{
	const char *start = *p + strspn(*p, " \t\r\n");
	size_t len = strcspn(start, stop);

	*p = start + len;
	while (len && strchr(" \t\r\n", start[len - 1]))
		len--;
	*ret_len = len;
	return start;
}

/* True: the list names this user. */
static bool find_fixed(struct found *f, const char *user, const char *fixed)
{
	size_t len;

	for (const char *p = fixed; p && *p; p += *p == ';') {
		const char *name = next_word(&p, "=;", &len);

		if (*p != '=' || len != strlen(user) || memcmp(name, user, len) != 0) {
			p += strcspn(p, ";");
			continue;
		}
		while (*p && *p != ';') {
			p++;
			name = next_word(&p, ",;", &len);
			if (len)
				add(f, name, len);
		}
		return true;
	}
	return false;
}

/* More room for an entry of the name service; false: none is to be had. */
static bool grow(char **buf, size_t *size)
{
	char *more = *size < NSS_BUF_MAX ? realloc(*buf, *size * 2) : NULL;

	if (!more)
		return false;
	*buf = more;
	*size *= 2;
	return true;
}

/* Some services say so in place of "no entry" (getpwnam(3)). */
static bool is_unknown(int no)
{
	return no == 0 || no == ENOENT || no == ESRCH || no == EBADF || no == EPERM;
}

static int add_groups(struct found *f, const char *user, gid_t first, char **buf, size_t *size)
{
	gid_t ids[GROUPS_MAX];
	int n = GROUPS_MAX;
	struct group gr, *g = NULL;

	if (getgrouplist(user, first, ids, &n) < 0)
		n = GROUPS_MAX; /* more than we keep: the first ones */
	for (int i = 0; i < n; i++) {
		int no;

		while ((no = getgrgid_r(ids[i], &gr, *buf, *size, &g)) == ERANGE && grow(buf, size))
			;
		if (g)
			add(f, gr.gr_name, strlen(gr.gr_name));
		else if (!is_unknown(no))
			return -no;
	}
	return 0;
}

static int find_accounts(struct found *f, const char *user)
{
	struct passwd pw, *found = NULL;
	size_t size = NSS_BUF;
	char *buf = malloc(size);
	int no, rc = 0;

	if (!buf)
		return -ENOMEM;
	while ((no = getpwnam_r(user, &pw, buf, size, &found)) == ERANGE && grow(&buf, &size))
		;
	if (found) {
		const gid_t first = pw.pw_gid;

		rc = add_groups(f, user, first, &buf, &size);
	} else if (!is_unknown(no)) {
		rc = -no;
	}
	free(buf);
	return rc;
}

static int end(struct found *f, int rc, char ***ret)
{
	char **less;

	rc = f->no_memory ? -ENOMEM : rc;
	if (rc < 0) {
		groups_free(f->name, f->n);
		return rc;
	}
	less = realloc(f->name, ((size_t)f->n + 1) * sizeof(char *));
	*ret = less ? less : f->name;
	return f->n;
}

int groups_of(const char *user, const char *fixed, char ***ret)
{
	struct found f = {.name = calloc(GROUPS_MAX, sizeof(char *))};

	if (!f.name)
		return -ENOMEM;
	return end(&f, find_fixed(&f, user, fixed) ? 0 : find_accounts(&f, user), ret);
}

int groups_fixed(const char *user, const char *fixed, char ***ret)
{
	struct found f = {.name = calloc(GROUPS_MAX, sizeof(char *))};

	if (!f.name)
		return -ENOMEM;
	return end(&f, find_fixed(&f, user, fixed) ? 0 : -ENOENT, ret);
}

void groups_free(char **groups, int n)
{
	for (int i = 0; i < n; i++)
		free(groups[i]);
	free(groups);
}
