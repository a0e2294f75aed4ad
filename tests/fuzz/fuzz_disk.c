/* SPDX-License-Identifier: Apache-2.0 */
/* What a data directory holds beside blocks: VERSION, in Java's format for properties, the header
 * of a meta file, and how far the block scanner was. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "datanode/store/block_scanner.c" /* its cursor */
#include "datanode/store/properties.h"
#include "datanode/store/store_internal.h"
#include "tests/fuzz/fuzz.h"

static void version(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	struct props p;

	MUST(text);
	memcpy(text, data, size);
	text[size] = 0;
	if (props_parse(text, &p) == 0) {
		MUST(p.count <= PROPS_MAX);
		for (uint32_t i = 0; i < p.count; i++)
			MUST(props_get(&p, p.list[i].key));
	}
	free(text);
}

static void meta(const uint8_t *data, size_t size)
{
	const int fd = memfd_create("meta", MFD_CLOEXEC);
	enum crc_type type;
	uint32_t bpc;

	MUST(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	if (meta_read_header(fd, &type, &bpc) == 0) {
		MUST(type <= CRC_CRC32C && bpc > 0 && bpc <= META_BPC_MAX);
		(void)meta_check_length(fd, type, bpc, size);
	}
	(void)close(fd);
}

static char dir[64];

static void clean_up(void)
{
	char cmd[96];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	(void)!system(cmd);
}

static int make(void)
{
	char path[80];

	snprintf(dir, sizeof(dir), "%s/fuzz-disk-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	MUST(mkdtemp(dir));
	atexit(clean_up);
	snprintf(path, sizeof(path), "%s/pool", dir);
	MUST(!mkdir(path, 0700));
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void cursor(const uint8_t *data, size_t size)
{
	static struct slice sl = {.fd = -1};
	struct scan_cursor c, again;
	int fd;

	sl.fd = sl.fd < 0 ? make() : sl.fd;
	fd = openat(sl.fd, "../scanner.cursor", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	MUST(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	(void)close(fd);
	cursor_load(&sl, &c);
	cursor_save(&sl, &c);
	cursor_load(&sl, &again);
	MUST(again.start_ms == c.start_ms && again.at_end == c.at_end &&
	     !strcmp(again.at.dir, c.at.dir) && !strcmp(again.at.entry, c.at.entry));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	version(data, size);
	meta(data, size);
	cursor(data, size);
	return 0;
}
