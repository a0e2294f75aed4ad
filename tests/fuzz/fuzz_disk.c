/* SPDX-License-Identifier: Apache-2.0 */
/* What a data directory holds beside blocks: VERSION, in Java's format for properties, and the
 * header of a meta file. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	version(data, size);
	meta(data, size);
	return 0;
}
