/* SPDX-License-Identifier: Apache-2.0 */
/* -checksum: what Hadoop says of the bytes of a file. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "tools/shell/shell.h"

static bool is_composite(struct shell *s)
{
	const char *mode = dfs_conf(s->c.fs, "dfs.checksum.combine.mode");

	return mode && !strcasecmp(mode, "COMPOSITE_CRC");
}

static void checksum_one(struct shell *s, const struct shell_item *it)
{
	struct dfs_err err = {0};
	struct dfs_checksum sum;
	int rc = it->st.type == DFS_DIR ? -EISDIR : 0;

	if (!rc)
		rc = dfs_get_checksum(s->c.fs, it->path, is_composite(s), &sum, &err);
	if (rc < 0) {
		shell_fail(s, it->shown, rc, &err);
		return;
	}
	printf("%s\t%s\t", cli_name(it->shown), sum.algorithm);
	for (size_t i = 0; i < sum.len; i++)
		printf("%02x", sum.bytes[i]);
	if (sum.len && shell_flag(s, "v"))
		printf("\tBlockSize=%" PRIu64, it->st.block_size);
	putchar('\n');
}

int shell_checksum(struct shell *s)
{
	const char *mode = dfs_conf(s->c.fs, "dfs.checksum.combine.mode");

	if (mode && strcasecmp(mode, "MD5MD5CRC") != 0 && !is_composite(s))
		return cli_fail(&s->c, "dfs.checksum.combine.mode", "MD5MD5CRC or COMPOSITE_CRC");
	return shell_each(s, 0, checksum_one, NULL);
}
