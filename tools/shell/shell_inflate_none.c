/* SPDX-License-Identifier: Apache-2.0 */
/* Without zlib: nothing can be unpacked. */
#include "tools/shell/shell_inflate.h"

#include <errno.h>

int shell_inflate_start(bool gzip, struct shell_inflate **ret)
{
	(void)gzip;
	(void)ret;
	return -ENOTSUP;
}

int shell_inflate_feed(struct shell_inflate *x, const void *p, size_t len, shell_inflate_fn *out,
		       void *arg)
{
	(void)x;
	(void)p;
	(void)len;
	(void)out;
	(void)arg;
	return -ENOTSUP;
}

int shell_inflate_finish(const struct shell_inflate *x)
{
	(void)x;
	return -ENOTSUP;
}

void shell_inflate_end(struct shell_inflate *x)
{
	(void)x;
}
