/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/session/dev_fuse.h"

#include <errno.h>
#include <linux/fuse.h>
#include <stddef.h>
#include <string.h>
#include <sys/uio.h>

#include "fuse/mount.h"

/* before the bytes of a write */
#define HEAD_BYTES (sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in))

/* FUSE_PASSTHROUGH, FOPEN_PASSTHROUGH: of Linux 6.9, which these headers may lack */
#define INIT_PASSTHROUGH (1ull << 37)
#define OPEN_PASSTHROUGH (1u << 7)
/* file systems below us: what a replica lies on is none that lies on another one */
#define STACK_DEPTH 1u

static _Thread_local int32_t pass_next; /* libfuse answers in the thread that asks it to */

void dev_fuse_pass_next(int32_t backing)
{
	pass_next = backing;
}

static _Thread_local struct origin origin;

const struct origin *dev_fuse_origin(void)
{
	return &origin;
}

static void note_init(struct dev_fuse *k, const uint8_t *request, size_t len)
{
	const struct fuse_in_header *in = (const void *)request;
	const struct fuse_init_in *init = (const void *)(request + sizeof(*in));

	if (len < sizeof(*in) + offsetof(struct fuse_init_in, flags2))
		return; /* a kernel from before there were flags to speak of */
	k->init_unique = in->unique;
	k->offered = init->flags;
	if (init->flags & FUSE_INIT_EXT &&
	    len >= sizeof(*in) + offsetof(struct fuse_init_in, unused))
		k->offered |= (uint64_t)init->flags2 << 32;
}

/* As read(2) for libfuse, whose memory @mem is. A thread that is cancelled in here, at the end,
 * leaves its buffer to buffers_fini(). */
static ssize_t dev_fuse_read(int fd, void *mem, size_t len, void *arg)
{
	struct mount *m = arg;
	uint8_t *head = mem, *own = head + HEAD_BYTES + sizeof(struct arrived);
	const size_t room = len - HEAD_BYTES - sizeof(struct arrived);
	struct arrived a = {.buf = room <= BUFFER_BYTES ? buffers_spare(&m->buffers) : NULL};
	struct iovec iov[2] = {{head, HEAD_BYTES}, {a.buf ? a.buf : own, room}};
	const ssize_t n = readv(fd, iov, 2);
	const struct fuse_in_header *in = mem;
	int error = errno;

	if (n >= (ssize_t)sizeof(*in))
		origin = (struct origin){fd, in->unique, in->nodeid, (pid_t)in->pid};
	if (n > (ssize_t)sizeof(*in) && in->opcode == FUSE_WRITE) {
		a.bytes = iov[1].iov_base;
		memcpy(head + HEAD_BYTES, &a, sizeof(a));
		return n;
	}
	if (n > (ssize_t)HEAD_BYTES)
		memmove(head + HEAD_BYTES, iov[1].iov_base, (size_t)n - HEAD_BYTES);
	buffers_put(&m->buffers, a.buf);
	if (n > (ssize_t)sizeof(*in) && in->opcode == FUSE_INIT)
		note_init(&m->dev_fuse, head, (size_t)n);
	errno = error;
	return n;
}

/* What libfuse has filled in lies on its stack, and it is done with it. */
static void add_to_open(struct iovec *iov, int count)
{
	struct fuse_open_out *open =
		count == 2 && iov[1].iov_len == sizeof(*open) ? iov[1].iov_base : NULL;

	if (!open)
		return;
	open->open_flags |= OPEN_PASSTHROUGH;
	open->padding = (uint32_t)pass_next; /* later headers: backing_id */
}

/* As writev(2). */
static ssize_t dev_fuse_write(int fd, struct iovec *iov, int count, void *arg)
{
	struct dev_fuse *k = &((struct mount *)arg)->dev_fuse;
	const struct fuse_out_header *out = iov[0].iov_base;

	if (k->init_unique != 0 && out->unique == k->init_unique) {
		k->init_unique = 0;
		if (out->error == 0 && count == 2 &&
		    iov[1].iov_len >= offsetof(struct fuse_init_out, unused)) {
			/* on the stack of libfuse, which is done with it */
			struct fuse_init_out *init = iov[1].iov_base;

			init->flags |= (uint32_t)k->wanted;
			if (k->wanted >> 32) {
				init->flags |= FUSE_INIT_EXT;
				init->flags2 |= (uint32_t)(k->wanted >> 32);
				if (k->wanted & INIT_PASSTHROUGH)
					/* later headers: max_stack_depth */
					init->unused[0] = STACK_DEPTH;
			}
		}
	}
	if (pass_next != 0 && out->error == 0)
		add_to_open(iov, count);
	return writev(fd, iov, count);
}

int dev_fuse_start(struct mount *m)
{
	static const struct fuse_custom_io io = {.read = dev_fuse_read, .writev = dev_fuse_write};

	return fuse_session_custom_io(m->se, &io, fuse_session_fd(m->se));
}

bool dev_fuse_want(struct mount *m, uint64_t flag)
{
	if (!(m->dev_fuse.offered & flag))
		return false;
	m->dev_fuse.wanted |= flag;
	return true;
}
