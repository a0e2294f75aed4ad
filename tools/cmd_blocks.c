/* SPDX-License-Identifier: Apache-2.0 */
/* truncate concat recover-lease: changes of files that data nodes have a part in. */
#include <errno.h>
#include <stdlib.h>

#include "tools/cli.h"

#define WAIT_MS 600000 /* as the help says */

static void print_result(struct cli *c, const char *path, const char *what, bool done)
{
	if (!c->json)
		return;
	cli_json_item(c, path);
	printf(", \"%s\": %s}", what, done ? "true" : "false");
}

/* "0" and what cli_parse_size() knows. */
static bool parse_length(const char *text, uint64_t *ret)
{
	char *end;

	*ret = 0;
	return (strtoull(text, &end, 10) == 0 && end != text && !*end && *text != '-') ||
	       cli_parse_size(text, INT64_MAX, ret);
}

int cmd_truncate(struct cli *c)
{
	uint64_t length;

	if (!parse_length(c->argv[0], &length)) {
		fprintf(stderr, "dfs truncate: no length: '%s'; see dfs truncate --help\n",
			c->argv[0]);
		return EXIT_USAGE;
	}
	for (int i = 1; i < c->argc; i++) {
		struct dfs_err err = {0};
		bool done = false;
		int rc = dfs_truncate(c->fs, c->argv[i], length, &done, &err);

		if (rc == 0 && !done && c->wait) {
			rc = dfs_wait_closed(c->fs, c->argv[i], WAIT_MS, &err);
			done = rc == 0;
		}
		if (rc < 0)
			cli_fail(c, c->argv[i], err.text);
		else
			print_result(c, c->argv[i], "done", done);
	}
	return cli_json_end(c);
}

int cmd_concat(struct cli *c)
{
	struct dfs_err err = {0};

	if (dfs_concat(c->fs, c->argv[0], (const char *const *)c->argv + 1, (size_t)c->argc - 1,
		       &err) < 0)
		return cli_fail(c, c->argv[0], err.text);
	if (c->json) {
		cli_json_item(c, c->argv[0]);
		for (int i = 1; i < c->argc; i++) {
			printf(i == 1 ? ", \"sources\": [" : ", ");
			cli_json_string(stdout, c->argv[i]);
		}
		printf("]}");
	}
	return cli_json_end(c);
}

int cmd_recover_lease(struct cli *c)
{

	for (int i = 0; i < c->argc; i++) {
		struct dfs_err err = {0};
		bool closed = false;
		int rc = dfs_recover_lease(c->fs, c->argv[i], &closed, &err);

		if (rc == 0 && !closed && c->wait) {
			rc = dfs_wait_closed(c->fs, c->argv[i], WAIT_MS, &err);
			closed = rc == 0;
		}
		if (rc < 0) {
			cli_fail(c, c->argv[i], err.text);
			continue;
		}
		if (!c->json)
			printf("%s: %s\n", cli_name(c->argv[i]),
			       closed ? "closed" : "being recovered");
		print_result(c, c->argv[i], "closed", closed);
	}
	return cli_json_end(c);
}
