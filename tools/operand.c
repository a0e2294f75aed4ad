/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/operand.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define NAMENODE_PORT ":8020" /* of an hdfs:// address without one */

size_t operand_scheme(const char *text)
{
	size_t n = 0;

	if (!isalpha((unsigned char)text[0]))
		return 0;
	while (isalnum((unsigned char)text[n]) || (text[n] && strchr("+-.", text[n])))
		n++;
	return text[n] == ':' && text[n + 1] == '/' ? n : 0;
}

static bool has_scheme(const char *text, const char *scheme)
{
	const size_t n = operand_scheme(text);

	return n == strlen(scheme) && !strncasecmp(text, scheme, n);
}

bool operand_is_local(const struct cli *c, int i)
{
	const bool last = i + 1 == c->argc;

	return c->operands == OPERANDS_LAST_REMOTE ? !last
						   : c->operands == OPERANDS_LAST_LOCAL && last;
}

bool operand_is_path(const struct cli *c, int i)
{
	return !operand_is_local(c, i) && !(c->operands == OPERANDS_FIRST_OTHER && i == 0);
}

static int refuse_scheme(struct cli *c, const char *text)
{
	char line[160];

	snprintf(line, sizeof(line),
		 "%.*s: is not supported, only hdfs: is; use `hadoop fs` for other file systems",
		 (int)(operand_scheme(text) < 32 ? operand_scheme(text) : 32), text);
	return cli_fail(c, text, line);
}

int operand_check(struct cli *c)
{
	int rc = EXIT_OK;

	for (int i = 0; i < c->argc && !rc; i++) {
		const char *text = c->argv[i];
		const bool local = operand_is_local(c, i);

		if (!*text && (local || operand_is_path(c, i)))
			rc = cli_fail(
				c, "''",
				local ? "an empty name, where a local file is meant"
				      : "an empty name, where a path in the cluster is meant");
		if (!operand_scheme(text) || (!local && !operand_is_path(c, i)))
			continue;
		if (local && has_scheme(text, "hdfs"))
			rc = cli_fail(
				c, text,
				"a local file is meant here; dfs put copies into the cluster, dfs get out of it");
		else if (local && !has_scheme(text, "file"))
			rc = cli_fail(
				c, text,
				"an address, where a local file is meant; put ./ before the name of a file");
		else if (local && !operand_local(text))
			rc = cli_fail(c, text,
				      "a file of another host; file:///PATH is one of this host");
		else if (!local && has_scheme(text, "file"))
			rc = cli_fail(c, text,
				      "a local file, where a path in the cluster is meant");
		else if (!local && !has_scheme(text, "hdfs"))
			rc = refuse_scheme(c, text);
	}
	return rc;
}

/* "nn:8020" of "hdfs://nn:8020/p": where it begins, and its length; 0 of "hdfs:///p" and "hdfs:/p".
 */
static const char *authority(const char *text, size_t *ret_len)
{
	const char *p = text + operand_scheme(text) + 1;

	if (p[0] == '/' && p[1] == '/')
		p += 2;
	*ret_len = strcspn(p, "/");
	return p;
}

char *operand_uri(const struct cli *c)
{
	for (int i = 0; i < c->argc; i++) {
		size_t n = 0;
		const char *a;
		char *uri;

		if (!operand_is_path(c, i) || !has_scheme(c->argv[i], "hdfs"))
			continue;
		a = authority(c->argv[i], &n);
		if (!n)
			continue;
		uri = cli_strdup(a - strlen("hdfs://"));
		uri[strlen("hdfs://") + n] = 0;
		memcpy(uri, "hdfs", 4); /* "HDFS://" is the same */
		return uri;
	}
	return NULL;
}

const char *operand_path(const char *uri, const char *text)
{
	size_t n, want;
	const char *a = authority(text, &n), *of = authority(uri, &want);

	if (n && !(n == want && !strncasecmp(a, of, n)) &&
	    !(n + strlen(NAMENODE_PORT) == want && !strncasecmp(a, of, n) &&
	      !strcmp(of + n, NAMENODE_PORT)))
		return NULL;
	return a + n;
}

const char *operand_local(const char *text)
{
	size_t n;
	const char *a = authority(text, &n);

	return n && !(n == strlen("localhost") && !strncasecmp(a, "localhost", n)) ? NULL : a + n;
}

int operand_strip(struct cli *c)
{
	static char root[] = "/";

	for (int i = 0; i < c->argc; i++) {
		const char *text = c->argv[i], *path;
		char line[400];

		if (!operand_scheme(text) || (!operand_is_local(c, i) && !operand_is_path(c, i)))
			continue;
		path = operand_is_local(c, i) ? operand_local(text)
					      : operand_path(dfs_uri(c->fs), text);
		if (!path) {
			snprintf(
				line, sizeof(line),
				"not in %s, and a command works in one file system; name another one with --fs",
				dfs_uri(c->fs));
			return cli_fail(c, text, line);
		}
		c->argv[i] = *path ? c->argv[i] + (path - text) : root;
	}
	return EXIT_OK;
}
