/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/groups.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NSS_BUF 16384

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

static void find_accounts(struct found *f, const char *user)
{
	gid_t ids[GROUPS_MAX];
	int n = GROUPS_MAX;
	struct passwd pw, *found = NULL;
	struct group gr, *g;
	char buf[NSS_BUF];

	if (getpwnam_r(user, &pw, buf, sizeof(buf), &found) || !found)
		return; /* unknown here: in no group */
	if (getgrouplist(user, pw.pw_gid, ids, &n) < 0)
		n = GROUPS_MAX; /* more than we keep: the first ones */
	for (int i = 0; i < n; i++)
		if (!getgrgid_r(ids[i], &gr, buf, sizeof(buf), &g) && g)
			add(f, gr.gr_name, strlen(gr.gr_name));
}

int groups_of(const char *user, const char *fixed, char ***ret)
{
	struct found f = {.name = calloc(GROUPS_MAX, sizeof(char *))};
	char **less;

	if (!f.name)
		return -ENOMEM;
	if (!find_fixed(&f, user, fixed))
		find_accounts(&f, user);
	if (f.no_memory) {
		groups_free(f.name, f.n);
		return -ENOMEM;
	}
	less = realloc(f.name, ((size_t)f.n + 1) * sizeof(char *));
	*ret = less ? less : f.name;
	return f.n;
}

void groups_free(char **groups, int n)
{
	for (int i = 0; i < n; i++)
		free(groups[i]);
	free(groups);
}
