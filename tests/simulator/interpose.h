/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * interpose - what the preloaded library shares between its files
 *
 * A descriptor of a socket or an eventfd of the world is a descriptor of nothing in the process
 * (vfd), so that numbers are the kernel's.
 */
#include <errno.h>

#include "tests/simulator/real.h"
#include "tests/simulator/world.h"

#define VFD_MAX 8192

struct vfd {
	uint32_t sock; /* 0: not of the world */
	bool nonblock;
};

extern struct vfd vfds[VFD_MAX];

/** The process is of a world: takes part from its first call on. False: it is an ordinary one. */
bool sim_enter(void);
uint32_t sim_proc(void);
struct machine *sim_machine(void);
/** The process has ended; does not come back. */
_Noreturn void sim_exit(int status);

/** What a call that failed with @rc, -errno, returns. */
static inline int set_errno(ssize_t rc)
{
	errno = (int)-rc;
	return -1;
}

static inline uint32_t vfd_sock(int fd)
{
	return fd >= 0 && fd < VFD_MAX ? vfds[fd].sock : 0;
}
int vfd_new(uint32_t sock, int flags);

/** When a disk call that takes about @ns and begins now is done; FOREVER: the disk hangs. */
uint64_t disk_done_at(uint64_t ns);

/* interpose_fds.c, also for io_uring: once, without waiting. -EAGAIN. */
struct iovec;
ssize_t vfd_recvv(int fd, const struct iovec *iov, size_t n, int flags);
ssize_t vfd_sendv(int fd, const struct iovec *iov, size_t n);
