/* SPDX-License-Identifier: Apache-2.0 */
/* fsck: what the NameNode's page /fsck says, in the words of `hdfs fsck`. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "common/base/net.h"
#include "tools/cli.h"
#include "tools/node_page.h"

#define HTTP_PORT 9870 /* of a NameNode, unless it is configured */
#define HTTP_KEY "dfs.namenode.http-address"
#define PATIENCE_MS (24u * 3600 * 1000) /* for all of it; some bytes come all the time */

enum { EXIT_FSCK_UNKNOWN = 255 };

/* ---- what to ask ---- */

static void put_encoded(FILE *f, const char *text)
{
	for (; *text; text++) {
		if (isalnum((unsigned char)*text) || strchr("/-_.~", *text))
			fputc(*text, f);
		else
			fprintf(f, "%%%02X", (unsigned char)*text);
	}
}

/* @word as a part of the query: false, it is none of hdfs fsck's, or not ours. */
static bool put_flag(FILE *f, const char *word)
{
	static const struct {
		const char *word, *query;
	} flags[] = {
		{"-files", "files"},
		{"-blocks", "blocks"},
		{"-locations", "locations"},
		{"-racks", "racks"},
		{"-replicaDetails", "replicadetails"},
		{"-openforwrite", "openforwrite"},
		{"-storagepolicies", "storagepolicies"},
		{"-delete", "delete"},
		{"-move", "move"},
		{"-includeSnapshots", "includeSnapshots"},
	};

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		if (strcmp(flags[i].word, word) != 0)
			continue;
		fprintf(f, "&%s=1", flags[i].query);
		return true;
	}
	return false;
}

/* -blockId ID...: true, and *@i is at the last one. */
static bool put_ids(FILE *f, const struct cli *c, int *i)
{
	if (strcmp(c->argv[*i], "-blockId") != 0)
		return false;
	fputs("&blockId=", f);
	for (; *i + 1 < c->argc && c->argv[*i + 1][0] != '-'; ++*i) {
		put_encoded(f, c->argv[*i + 1]);
		fputs("%20", f);
	}
	return true;
}

static int mistake(const char *what, const char *word)
{
	fprintf(stderr, "dfs fsck: %s '%s'; see dfs fsck --help\n", what, word);
	return EXIT_USAGE;
}

/* The page, malloc'ed. 0, or an exit code after the message. */
static int build(struct cli *c, char **ret)
{
	const char *path = NULL;
	size_t len;
	FILE *f = open_memstream(ret, &len);
	int rc = f ? EXIT_OK : cli_fail_errno(c, "memory", -ENOMEM, NULL);

	if (rc)
		return rc;
	fputs("/fsck?ugi=", f);
	put_encoded(f, dfs_user(c->fs));
	for (int i = 0; i < c->argc && !rc; i++) {
		const char *word = c->argv[i];

		if (*word == '-') {
			if (!put_flag(f, word) && !put_ids(f, c, &i))
				rc = mistake("no option", word);
		} else if (path) {
			rc = mistake("one path at a time, and not also", word);
		} else {
			path = word;
		}
	}
	fputs("&path=", f);
	if (path && *path != '/') {
		fputs("/user/", f);
		put_encoded(f, dfs_user(c->fs));
		fputc('/', f);
	}
	put_encoded(f, path ? path : "/");
	if (fclose(f) != 0 && !rc)
		rc = cli_fail_errno(c, "memory", -ENOMEM, NULL);
	if (rc)
		free(*ret);
	return rc;
}

/* ---- whom to ask ---- */

static int find_server(struct cli *c, char host[256], uint16_t *port)
{
	const char *set = dfs_conf(c->fs, HTTP_KEY), *uri = dfs_uri(c->fs) + strlen("hdfs://");
	const size_t n = strcspn(uri, ":");
	struct err err = ERR_INIT;

	if (!set && !uri[n])
		return cli_fail(
			c, dfs_uri(c->fs),
			"there are several NameNodes; name the web server of the active one: "
			"-D " HTTP_KEY "=HOST:PORT");
	if (net_split(set ? set : "0.0.0.0:9870", HTTP_PORT, host, port, &err) < 0)
		return cli_fail(c, HTTP_KEY, err.text);
	if (!strcmp(host, "0.0.0.0") && uri[n] && n < 256) {
		memcpy(host, uri, n);
		host[n] = '\0';
	}
	return EXIT_OK;
}

/* ---- what it says ---- */

/* Does the last line that says something end in @words? */
static bool ends_in(const char *text, size_t len, const char *words)
{
	const size_t n = strlen(words);

	while (len && isspace((unsigned char)text[len - 1]))
		len--;
	return len >= n && !memcmp(text + len - n, words, n);
}

static int verdict(const char *text, size_t len)
{
	static const struct {
		const char *words;
		int rc;
	} ends[] = {{"is HEALTHY", 0},
		    {"is CORRUPT", 1},
		    {"does not exist", 0},
		    {"is DECOMMISSIONED", 2},
		    {"is DECOMMISSIONING", 3}};

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		if (ends_in(text, len, ends[i].words))
			return ends[i].rc;
	return EXIT_FSCK_UNKNOWN;
}

int cmd_fsck(struct cli *c)
{
	struct err err = ERR_INIT;
	char host[256], *page, *text;
	uint16_t port;
	size_t len;
	int rc = find_server(c, host, &port);

	rc = rc ? rc : build(c, &page);
	if (rc)
		return rc;
	if (node_page_get(host, port, page, PATIENCE_MS, &text, &len, &err) < 0) {
		rc = cli_fail(c, NULL, err.text);
	} else {
		(void)fwrite(text, 1, len, stdout);
		if (len && text[len - 1] != '\n')
			putchar('\n');
		rc = verdict(text, len);
		free(text);
	}
	free(page);
	return rc;
}
