/* SPDX-License-Identifier: Apache-2.0 */
/* -find: what Hadoop's knows, which is -name, -iname, -print, -print0 and "and". */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/shell/shell.h"
#include "tools/shell/shell_glob.h"

enum kind { NAME, INAME, PRINT, PRINT0 };

struct term {
	enum kind kind;
	struct glob_list pattern; /* one of them */
};

struct find {
	struct shell *s;
	struct term *term; /* all of them, one after another */
	size_t count;
};

/* Letters of ASCII alone: the others have no case here. */
static void lower(char *text)
{
	for (; *text; text++)
		*text = (char)tolower((unsigned char)*text);
}

static bool matches(const struct term *t, const struct shell_item *it)
{
	char *name = cli_base(it->path);
	bool hit = false;

	if (t->kind == INAME)
		lower(name);
	for (size_t i = 0; i < t->pattern.count && !hit; i++)
		hit = glob_match(t->pattern.text[i], name);
	free(name);
	return hit;
}

static void find_one(struct shell *s, const struct shell_item *it, void *arg)
{
	const struct find *f = arg;
	bool pass = true;

	for (size_t i = 0; i < f->count && pass; i++) {
		const struct term *t = &f->term[i];

		if (t->kind == PRINT)
			printf("%s\n", cli_name(it->shown));
		else if (t->kind == PRINT0)
			(void)fwrite(it->shown, 1, strlen(it->shown) + 1, stdout);
		else
			pass = matches(t, it);
	}
	if (it->st.type == DFS_DIR)
		shell_children(s, it, find_one, arg);
}

/* ---- the expression ---- */

static bool take_pattern(struct find *f, struct term *t, const char *word)
{
	char *text = cli_strdup(word);
	int rc;

	if (t->kind == INAME)
		lower(text);
	rc = glob_braces(text, &t->pattern);
	for (size_t i = 0; i < t->pattern.count && !rc; i++)
		rc = glob_check(t->pattern.text[i]);
	free(text);
	if (rc < 0)
		shell_fail_text(f->s, word, "Illegal file pattern: a [ or { is not closed");
	return rc == 0;
}

/* The word at *@i, and what belongs to it. */
static bool take_term(struct find *f, int *i)
{
	static const char *const words[] = {"-name", "-iname", "-print", "-print0"};
	struct shell *s = f->s;
	const char *word = s->rest[*i];
	struct term *t = &f->term[f->count];
	char line[64];

	for (size_t k = 0; k < sizeof(words) / sizeof(words[0]); k++) {
		if (strcmp(word, words[k]) != 0)
			continue;
		*t = (struct term){.kind = (enum kind)k};
		f->count++;
		if (k >= PRINT)
			return true;
		if (*i + 1 < s->rest_count)
			return take_pattern(f, t, s->rest[++*i]);
		snprintf(line, sizeof(line), "%s: a pattern is missing", word);
		cli_fail(&s->c, NULL, line);
		return false;
	}
	cli_fail(&s->c, "Unexpected argument", word);
	return false;
}

static bool take_expression(struct find *f)
{
	const struct shell *s = f->s;
	bool acts = false;

	f->term = cli_checked(calloc((size_t)s->rest_count + 1, sizeof(*f->term)));
	for (int i = 0; i < s->rest_count; i++) {
		const bool inner = f->count && i + 1 < s->rest_count;

		if (inner && (!strcmp(s->rest[i], "-a") || !strcmp(s->rest[i], "-and")))
			continue;
		if (!take_term(f, &i))
			return false;
		acts |= f->term[f->count - 1].kind >= PRINT;
	}
	if (!acts)
		f->term[f->count++] = (struct term){.kind = PRINT};
	return true;
}

int shell_find(struct shell *s)
{
	static char here[] = ".";
	struct find f = {.s = s};

	if (!s->c.argc) {
		s->shown[0] = s->c.argv[0] = here;
		s->c.argc = 1;
	}
	if (take_expression(&f)) {
		shell_expand(s, 0, s->c.argc);
		for (size_t i = 0; i < s->count; i++) {
			if (s->item[i].exists)
				find_one(s, &s->item[i], &f);
			else
				shell_fail(s, s->item[i].shown, -ENOENT, NULL);
		}
	}
	for (size_t i = 0; i < f.count; i++)
		glob_list_free(&f.term[i].pattern);
	free(f.term);
	return EXIT_OK;
}
