/* SPDX-License-Identifier: Apache-2.0 */
/* A segment of the NameNode's journal as a disk may give it back: what is replayed is in order and
 * without gaps, and a damaged one is refused with its file and place. An input that begins with an
 * even byte is made into records with right checksums, three bytes of it and a payload each: kind,
 * how far the number goes on, length. The others are the file itself. */
#include "namenode-shim/db/journal.h"

#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/crc.h"
#include "tests/fuzz/fuzz.h"

static int take(void *arg, uint64_t seq, const uint8_t *buf, size_t len)
{
	uint64_t *next = arg;
	volatile uint8_t sum = 0;

	MUST(seq == *next);
	++*next;
	for (size_t i = 0; i < len; i++)
		sum = (uint8_t)(sum + buf[i]);
	return 0;
}

/* One record of @data at @out; how many bytes of @data it took. */
static size_t record(const uint8_t *data, size_t size, uint64_t *seq, uint8_t *out, size_t *ret_len)
{
	const uint32_t len = data[2] < size - 3 ? data[2] : (uint32_t)(size - 3);
	uint32_t word[6] = {htobe32(0x44464a31u)}, crc;

	*seq += (uint64_t)(int8_t)data[1];
	word[2] = htobe32((uint32_t)(*seq >> 32));
	word[3] = htobe32((uint32_t)*seq);
	word[4] = htobe32(len);
	word[5] = htobe32(data[0] & 3);
	memcpy(out + 24, data + 3, len);
	memset(out + 24 + len, 0, 8);
	crc = crc_compute(CRC_CRC32C, (uint8_t *)(word + 2), 16);
	crc = crc_extend(CRC_CRC32C, crc, out + 24, len);
	word[1] = htobe32(data[0] & 128 ? ~crc : crc);
	memcpy(out, word, 24);
	*ret_len = 24 + ((size_t)len + 7) / 8 * 8;
	return 3 + len;
}

static size_t records(const uint8_t *data, size_t size, uint8_t *out, size_t room)
{
	uint64_t seq = 0;
	size_t at = 0, n = 0, len;

	while (size - at >= 3 && n + 300 < room) {
		at += record(data + at, size - at, &seq, out + n, &len);
		n += len;
	}
	return n;
}

static char dir[64], path[80];

static void clean_up(void)
{
	(void)unlink(path);
	(void)rmdir(dir);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t made[65536];
	struct err err = ERR_INIT;
	uint64_t next = 1;
	int fd, rc;

	if (!dir[0]) {
		snprintf(dir, sizeof(dir), "/tmp/fuzz_journal.XXXXXX");
		MUST(mkdtemp(dir));
		snprintf(path, sizeof(path), "%s/journal.1", dir);
		atexit(clean_up);
	}
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (size && data[0] % 2 == 0) {
		size = records(data + 1, size - 1, made, sizeof(made));
		data = made;
	}
	MUST(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	(void)close(fd);
	rc = journal_each(dir, 0, take, &next, &err);
	MUST(rc == 0 || err.text[0]);
	return 0;
}
