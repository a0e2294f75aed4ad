/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/shell/shell_options.h"

#include <stddef.h>
#include <string.h>

/* The place of @name in @spec, and ':', '*' or '!' behind it, or 0. *@ret_len: bytes of it that are
 * the name. -1: it is not there. */
static int place_of(const char *spec, const char *name, char *ret_kind, size_t *ret_len)
{
	const size_t want = strlen(name);
	int place = 0;

	for (const char *w = spec; *w; place++) {
		size_t n = strcspn(w, " "), bare = n;

		if (n && strchr(":*!", w[n - 1]))
			bare--;
		if (want >= bare && !memcmp(w, name, bare) && (want == bare || w[bare] == '*')) {
			*ret_kind = bare < n ? w[bare] : '\0';
			*ret_len = bare;
			return place;
		}
		w += n;
		w += strspn(w, " ");
	}
	return -1;
}

enum shell_options_rc shell_options_take(struct shell_options *o, const char *spec, int least,
					 int argc, char **argv, int *ret_words)
{
	int i;

	*o = (struct shell_options){.spec = spec};
	for (i = 0; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
		size_t len;
		char kind;
		int place;

		*ret_words = i;
		if (!strcmp(argv[i], "--")) {
			i++;
			break;
		}
		place = place_of(spec, argv[i] + 1, &kind, &len);
		if (place < 0 && place_of(spec, "...", &kind, &len) >= 0)
			break;
		if (place < 0 || place >= SHELL_OPTIONS_MAX)
			return SHELL_OPTIONS_UNKNOWN;
		if (kind == '!')
			return SHELL_OPTIONS_REFUSED;
		o->value[place] = argv[i] + 1 + len;
		if (kind == ':' && argc - i - 1 > least && argv[i + 1][0] != '-')
			o->value[place] = argv[++i];
	}
	*ret_words = i;
	return SHELL_OPTIONS_OK;
}

const char *shell_option(const struct shell_options *o, const char *name)
{
	size_t len;
	char kind;
	const int place = place_of(o->spec, name, &kind, &len);

	return place < 0 || place >= SHELL_OPTIONS_MAX ? NULL : o->value[place];
}
