/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/conf.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

static void read_all(void *arg, const char *key, const char *value)
{
	uint64_t n;
	bool b;

	(void)value;
	conf_get(arg, key);
	conf_size(arg, key, 0, &n, NULL);
	conf_time_ms(arg, key, 0, &n, NULL);
	conf_bool(arg, key, false, &b, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("conf", MFD_CLOEXEC);
	struct conf *c = conf_new();
	struct err err = ERR_INIT;
	char path[64];

	MUST(fd >= 0 && c && write(fd, data, size) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (!conf_load_file(c, path, &err)) {
		conf_check(c, &err);
		conf_each(c, read_all, c);
	} else {
		MUST(err.text[0]);
	}
	conf_free(c);
	close(fd);
	return 0;
}
