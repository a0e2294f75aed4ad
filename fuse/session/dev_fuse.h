/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * dev_fuse - what goes through /dev/fuse: requests on their way in, and what libfuse cannot say in
 * the answer to INIT
 *
 * Idea: libfuse reads a request into one piece of memory, where the bytes of a write begin in the
 * middle of a page: the kernel pins each page twice, and the bytes must be copied before the thread
 * reads its next request. So libfuse is given functions for its reads and writes
 * (fuse_session_custom_io()): the bytes of a write land at the start of a buffer of mount.buffers,
 * everything else where it always did. And a flag of INIT that this libfuse does not know is added
 * to its answer when the kernel has offered it, and what it cannot say in the answer to an open(2).
 * Threading: dev_fuse_read() and dev_fuse_write() in any thread of libfuse; the rest before the
 * answer to INIT.
 * Source: linux/fuse.h, struct fuse_init_in and fuse_init_out; flags above bit 31 are those of
 * flags2.
 */
#include <stdbool.h>
#include <stdint.h>

struct mount;
struct origin;

struct dev_fuse {
	uint64_t init_unique; /* of the INIT request, until it is answered */
	uint64_t offered;     /* flags of the kernel */
	uint64_t wanted;      /* flags that are added to the answer */
};

/** Written bytes, where libfuse takes them to be: bufv.buf[0].mem of a write_buf request points
 * here. */
struct arrived {
	void *bytes;
	void *buf; /* of mount.buffers, to be given back; NULL: libfuse's own */
};

/** The next answer of this thread is that of an open(2) that is passed through to what the kernel
 *  knows as @backing (passthrough.h); 0: it is not. */
void dev_fuse_pass_next(int32_t backing);
/** After fuse_session_mount(). 0, or -errno. */
int dev_fuse_start(struct mount *m);
/** The request that this thread has read last. */
const struct origin *dev_fuse_origin(void);
/** In op_init(): add @flag when the kernel offers it. False: it does not. */
bool dev_fuse_want(struct mount *m, uint64_t flag);
