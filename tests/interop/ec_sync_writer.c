/* SPDX-License-Identifier: Apache-2.0 */
/* A writer that does as it is told on standard input, to be killed at any moment:
 *     ec_sync_writer PATH        create PATH
 *     ec_sync_writer -a PATH     go on behind it, with a new block
 * Lines: `w N` writes N bytes, byte i of the file being i * 2654435761 >> 13; `s` hsync, `f`
 * hflush; `c` close. Each is answered by `ok LENGTH`, or `error TEXT`; then it goes on. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/include/dfsclient.h"

#define PIECE (1u << 20)

static int write_pattern(struct dfs_file *f, uint64_t n, struct dfs_err *err)
{
	static uint8_t buf[PIECE];

	while (n > 0) {
		const size_t len = n < PIECE ? (size_t)n : PIECE;
		const uint64_t at = dfs_tell(f);
		ssize_t rc;

		for (size_t i = 0; i < len; i++)
			buf[i] = (uint8_t)((at + i) * 2654435761u >> 13);
		rc = dfs_write(f, buf, len, err);
		if (rc < 0)
			return (int)rc;
		n -= len;
	}
	return 0;
}

static int obey(struct dfs_file **f, const char *line, struct dfs_err *err)
{
	int rc;

	switch (line[0]) {
	case 'w':
		return write_pattern(*f, strtoull(line + 1, NULL, 10), err);
	case 's':
		return dfs_hsync(*f, err);
	case 'f':
		return dfs_flush(*f, err);
	default:
		rc = dfs_close(*f, err);
		*f = NULL;
		return rc;
	}
}

int main(int argc, char **argv)
{
	struct dfs_connect_opts o = {.size = sizeof(o)};
	struct dfs_err err = {0};
	struct dfs_file *f = NULL;
	struct dfs *fs;
	char line[64];
	int rc = dfs_connect(&o, &fs, &err);

	if (rc == 0 && argc == 3 && strcmp(argv[1], "-a") == 0)
		rc = dfs_append(fs, argv[2], DFS_APPEND_NEW_BLOCK, &f, &err);
	else if (rc == 0)
		rc = dfs_create(fs, argv[1], NULL, &f, &err);
	printf(rc < 0 ? "error %s\n" : "ok 0\n", err.text);
	fflush(stdout);
	while (f && fgets(line, sizeof(line), stdin)) {
		uint64_t length = dfs_tell(f);

		rc = obey(&f, line, &err);
		if (f)
			length = dfs_tell(f);
		if (rc < 0)
			printf("error %s\n", err.text);
		else
			printf("ok %" PRIu64 "\n", length);
		fflush(stdout);
	}
	return rc < 0;
}
