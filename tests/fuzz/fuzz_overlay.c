/* SPDX-License-Identifier: Apache-2.0 */
/* The record of an overlay that a mount has left: it is refused, or its overlay can be read,
 * written and loaded again. */
#include "fuse/content/overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

static int zeros(void *arg, void *buf, size_t len, uint64_t offset)
{
	(void)arg;
	(void)offset;
	memset(buf, 0, len);
	return 0;
}

static void put(int dir, const char *name, const void *p, size_t n)
{
	const int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	MUST(fd >= 0 && write(fd, p, n) == (ssize_t)n);
	(void)close(fd);
}

static char path[] = "/tmp/fuzz_overlay.XXXXXX";

static void clean_up(void)
{
	(void)rmdir(path); /* both files went with the last overlay */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int dir = -1;
	struct overlay_budget b = {.limit = 1 << 20};
	struct overlay *o;
	uint64_t length;
	char buf[512];

	if (dir < 0) {
		MUST(mkdtemp(path));
		atexit(clean_up);
		dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		MUST(dir >= 0);
	}
	put(dir, "1.log", data, size);
	put(dir, "1.data", "x", 1);
	if (overlay_load(dir, 1, &b, &o) < 0) {
		MUST(b.used == 0);
		MUST(!unlinkat(dir, "1.log", 0) && !unlinkat(dir, "1.data", 0));
		return 0;
	}
	length = overlay_length(o);
	(void)overlay_read(o, buf, sizeof(buf), length > 100 ? length - 100 : 0, zeros, NULL);
	(void)overlay_is_changed(o, 0, 1 << 20);
	MUST(overlay_note_cut(o) == 0);
	overlay_leave(o);
	MUST(b.used == 0);
	MUST(overlay_load(dir, 1, &b, &o) == 0); /* what it wrote goes with what was there */
	MUST(overlay_is_cut(o) && overlay_length(o) == length);
	overlay_free(o);
	MUST(b.used == 0);
	return 0;
}
