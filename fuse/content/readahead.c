/* SPDX-License-Identifier: Apache-2.0 */
/* readahead - how far the kernel reads ahead on this mount: a number in sysfs, which the protocol
 * of FUSE cannot raise */
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "fuse/mount.h"

#define LINE_BYTES 8192

/* "\\040" as the kernel writes a blank, in place. */
static void unescape(char *s)
{
	char *to = s;
	unsigned int c;

	while (*s) {
		if (*s == '\\' && sscanf(s + 1, "%3o", &c) == 1) {
			*to++ = (char)c;
			s += 4;
		} else {
			*to++ = *s++;
		}
	}
	*to = '\0';
}

/* "MAJOR:MINOR" of what is mounted at @where. */
static bool find_device(const char *where, char device[32])
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	char line[LINE_BYTES], point[LINE_BYTES], dev[32];
	bool found = false;

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*s %*s %31s %*s %8191s", dev, point) != 2)
			continue;
		unescape(point);
		if (strcmp(point, where) == 0) { /* the last one is on top */
			snprintf(device, 32, "%s", dev);
			found = true;
		}
	}
	if (f)
		fclose(f);
	return found;
}

void read_ahead_once(struct mount *m)
{
	char device[32], path[96];
	FILE *f;

	if (atomic_flag_test_and_set(&m->reads_ahead) || !find_device(m->opt.mountpoint, device))
		return;
	snprintf(path, sizeof(path), "/sys/class/bdi/%s/read_ahead_kb", device);
	f = fopen(path, "we");
	if (!f || fprintf(f, "%u\n", m->opt.readahead_kib) < 0 || fflush(f) != 0)
		log_debug(
			"op=read_ahead path=%s text=\"cannot be set: the kernel reads 128 KiB ahead\"",
			path);
	if (f)
		fclose(f);
}
