/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/shell/shell_inflate.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <zlib.h>

#define PIECE (128u << 10)
#define GZIP_WINDOW (15 + 16) /* as inflateInit2() has it: the largest window, gzip */
#define ZLIB_WINDOW 15

struct shell_inflate {
	z_stream z;
	bool gzip;
	bool between; /* members, or before the first */
	bool any;     /* a member has ended */
	unsigned char out[PIECE];
};

int shell_inflate_start(bool gzip, struct shell_inflate **ret)
{
	struct shell_inflate *x = calloc(1, sizeof(*x));

	if (!x)
		return -ENOMEM;
	x->gzip = gzip;
	x->between = true;
	if (inflateInit2(&x->z, gzip ? GZIP_WINDOW : ZLIB_WINDOW) != Z_OK) {
		free(x);
		return -ENOMEM;
	}
	*ret = x;
	return 0;
}

/* Some of what is left of the input. */
static int step(struct shell_inflate *x, shell_inflate_fn *out, void *arg)
{
	int rc, err = 0;

	x->between = false;
	x->z.next_out = x->out;
	x->z.avail_out = PIECE;
	rc = inflate(&x->z, Z_NO_FLUSH);
	if (x->z.avail_out < PIECE)
		err = out(arg, x->out, PIECE - x->z.avail_out);
	if (err)
		return err;
	if (rc == Z_STREAM_END) {
		x->between = x->any = true;
		return inflateReset(&x->z) == Z_OK ? 0 : -EBADMSG;
	}
	return rc == Z_OK || rc == Z_BUF_ERROR ? 0 : rc == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
}

int shell_inflate_feed(struct shell_inflate *x, const void *p, size_t len, shell_inflate_fn *out,
		       void *arg)
{
	const unsigned char *from = p;
	int rc = 0;

	if (len > UINT_MAX)
		return -EINVAL;
	x->z.next_in = (unsigned char *)(size_t)from; /* zlib only reads it */
	x->z.avail_in = (unsigned)len;
	while (!rc && (x->z.avail_in || (!x->between && !x->z.avail_out))) {
		/* zlib's format has no members, and zeros may fill up a gzip file */
		if (x->between && x->any && (!x->gzip || !*x->z.next_in)) {
			x->z.avail_in--;
			x->z.next_in++;
			continue;
		}
		rc = step(x, out, arg);
	}
	return rc;
}

int shell_inflate_finish(const struct shell_inflate *x)
{
	return x->between && x->any ? 0 : -EBADMSG;
}

void shell_inflate_end(struct shell_inflate *x)
{
	if (!x)
		return;
	(void)inflateEnd(&x->z);
	free(x);
}
