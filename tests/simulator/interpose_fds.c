/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets, eventfds, and calls that take any descriptor. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/simulator/interpose.h"
#include "tests/simulator/track.h"

static ssize_t ret(ssize_t rc)
{
	return rc < 0 ? set_errno(rc) : rc;
}

/* ---- descriptors ---- */

int vfd_new(uint32_t sock, int flags)
{
	const int fd = REAL(eventfd)(0, EFD_CLOEXEC);

	if (fd < 0 || fd >= VFD_MAX) {
		fprintf(stderr, "sim: no descriptor\n");
		abort();
	}
	vfds[fd] = (struct vfd){.sock = sock, .nonblock = flags & SOCK_NONBLOCK};
	return fd;
}

int close(int fd)
{
	if (!sim_enter())
		return REAL(close)(fd);
	sched_point();
	if (vfd_sock(fd)) {
		sock_close(vfds[fd].sock);
		vfds[fd] = (struct vfd){0};
	}
	track_close(fd);
	return REAL(close)(fd);
}

int eventfd(unsigned count, int flags)
{
	uint32_t s;

	if (!sim_enter())
		return REAL(eventfd)(count, flags);
	s = sock_new(SOCK_EVENTFD);
	sock_of(s)->count = count;
	return vfd_new(s, flags);
}

int fcntl64(int fd, int cmd, ...)
{
	va_list ap;
	void *arg;
	int to;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (!sim_enter() || (!vfd_sock(fd) && cmd != F_DUPFD_CLOEXEC))
		return REAL(fcntl64)(fd, cmd, arg);
	switch (cmd) {
	case F_GETFL:
		return O_RDWR | (vfds[fd].nonblock ? O_NONBLOCK : 0);
	case F_SETFL:
		vfds[fd].nonblock = (uintptr_t)arg & O_NONBLOCK;
		return 0;
	case F_DUPFD_CLOEXEC:
		to = REAL(fcntl64)(fd, cmd, arg);
		if (to >= 0 && to < VFD_MAX) {
			vfds[to] = vfds[fd];
			if (vfd_sock(to))
				sock_of(vfds[to].sock)->refs++;
			track_dup(fd, to);
		}
		return to;
	default:
		return REAL(fcntl64)(fd, cmd, arg);
	}
}

/* ---- sockets ---- */

static struct end end_of(const struct sockaddr *a)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)a;

	return (struct end){ntohl(in->sin_addr.s_addr), ntohs(in->sin_port)};
}

static int give_end(struct end e, struct sockaddr *a, socklen_t *len)
{
	const struct sockaddr_in in = {
		.sin_family = AF_INET, .sin_port = htons(e.port), .sin_addr.s_addr = htonl(e.ip)};

	memcpy(a, &in, *len < sizeof(in) ? *len : sizeof(in));
	*len = sizeof(in);
	return 0;
}

int socket(int family, int type, int protocol)
{
	if (!sim_enter() || family != AF_INET)
		return REAL(socket)(family, type, protocol);
	return vfd_new(sock_new((type & 0xf) == SOCK_DGRAM ? SOCK_UDP : SOCK_NEW), type);
}

int bind(int fd, const struct sockaddr *a, socklen_t len)
{
	if (!vfd_sock(fd))
		return REAL(bind)(fd, a, len);
	return (int)ret(sock_bind(vfds[fd].sock, end_of(a)));
}

int listen(int fd, int n)
{
	if (!vfd_sock(fd))
		return REAL(listen)(fd, n);
	return (int)ret(sock_listen(vfds[fd].sock));
}

int connect(int fd, const struct sockaddr *a, socklen_t len)
{
	int rc;

	if (!vfd_sock(fd))
		return REAL(connect)(fd, a, len);
	sched_point();
	rc = sock_connect(vfds[fd].sock, end_of(a));
	while (rc == -EINPROGRESS && !vfds[fd].nonblock) {
		waiters_add(&sock_of(vfds[fd].sock)->waiters);
		(void)sleep_for(NULL, FOREVER);
		rc = sock_connected(vfds[fd].sock);
	}
	return (int)ret(rc);
}

int getsockname(int fd, struct sockaddr *a, socklen_t *len)
{
	if (!vfd_sock(fd))
		return REAL(getsockname)(fd, a, len);
	return give_end(sock_of(vfds[fd].sock)->here, a, len);
}

int getpeername(int fd, struct sockaddr *a, socklen_t *len)
{
	if (!vfd_sock(fd))
		return REAL(getpeername)(fd, a, len);
	if (sock_of(vfds[fd].sock)->kind != SOCK_OPEN)
		return set_errno(-ENOTCONN);
	return give_end(sock_of(vfds[fd].sock)->there, a, len);
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	if (!vfd_sock(fd))
		return REAL(setsockopt)(fd, level, name, value, len);
	if (level == SOL_SOCKET && name == SO_REUSEPORT)
		sock_of(vfds[fd].sock)->reuse = *(const int *)value;
	return 0;
}

int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	if (!vfd_sock(fd))
		return REAL(getsockopt)(fd, level, name, value, len);
	memset(value, 0, *len);
	if (level == SOL_SOCKET && name == SO_ERROR)
		*(int *)value = -sock_connected(vfds[fd].sock);
	return 0;
}

int shutdown(int fd, int how)
{
	if (!vfd_sock(fd))
		return REAL(shutdown)(fd, how);
	if (how != SHUT_RD)
		sock_shutdown(vfds[fd].sock);
	if (how != SHUT_WR)
		sock_of(vfds[fd].sock)->eof = true;
	waiters_wake(&sock_of(vfds[fd].sock)->waiters);
	return 0;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (!vfd_sock(fd))
		return REAL(ioctl)(fd, request, arg);
	*(int *)arg = (int)sock_of(vfds[fd].sock)->arrived;
	return 0;
}

/* ---- bytes ---- */

/* Once, without waiting. */
ssize_t vfd_recvv(int fd, const struct iovec *iov, size_t n, int flags)
{
	struct sock *k = sock_of(vfds[fd].sock);
	ssize_t got = 0;

	if (k->kind == SOCK_EVENTFD) {
		if (!k->count)
			return -EAGAIN;
		memcpy(iov->iov_base, &k->count, sizeof(k->count));
		k->count = 0;
		return sizeof(k->count);
	}
	for (size_t i = 0; i < n; i++) {
		const ssize_t rc =
			sock_recv(vfds[fd].sock, iov[i].iov_base, iov[i].iov_len, flags & MSG_PEEK);

		if (rc < 0)
			return got ? got : rc;
		got += rc;
		if ((size_t)rc < iov[i].iov_len)
			break;
	}
	return got;
}

ssize_t vfd_sendv(int fd, const struct iovec *iov, size_t n)
{
	struct sock *k = sock_of(vfds[fd].sock);
	ssize_t sent = 0;

	if (k->kind == SOCK_EVENTFD) {
		uint64_t add;

		memcpy(&add, iov->iov_base, sizeof(add));
		k->count += add;
		waiters_wake(&k->waiters);
		return sizeof(add);
	}
	for (size_t i = 0; i < n; i++) {
		const ssize_t rc = sock_send(vfds[fd].sock, iov[i].iov_base, iov[i].iov_len);

		if (rc < 0)
			return sent ? sent : rc;
		sent += rc;
		if ((size_t)rc < iov[i].iov_len)
			break;
	}
	return sent;
}

static ssize_t recv_waiting(int fd, const struct iovec *iov, size_t n, int flags)
{
	ssize_t rc;

	sched_point();
	while ((rc = vfd_recvv(fd, iov, n, flags)) == -EAGAIN && !vfds[fd].nonblock &&
	       !(flags & MSG_DONTWAIT)) {
		waiters_add(&sock_of(vfds[fd].sock)->waiters);
		(void)sleep_for(NULL, FOREVER);
	}
	return ret(rc);
}

/* A blocking send returns when all of it is sent; ours has no blocking sockets that send much. */
static ssize_t send_waiting(int fd, const struct iovec *iov, size_t n, int flags)
{
	ssize_t rc;

	sched_point();
	while ((rc = vfd_sendv(fd, iov, n)) == -EAGAIN && !vfds[fd].nonblock &&
	       !(flags & MSG_DONTWAIT)) {
		waiters_add(&sock_of(vfds[fd].sock)->waiters);
		(void)sleep_for(NULL, FOREVER);
	}
	return ret(rc);
}

ssize_t recv(int fd, void *buf, size_t n, int flags)
{
	const struct iovec iov = {buf, n};

	return vfd_sock(fd) ? recv_waiting(fd, &iov, 1, flags) : REAL(recv)(fd, buf, n, flags);
}

ssize_t send(int fd, const void *buf, size_t n, int flags)
{
	const struct iovec iov = {(void *)(uintptr_t)buf, n};

	return vfd_sock(fd) ? send_waiting(fd, &iov, 1, flags) : REAL(send)(fd, buf, n, flags);
}

ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
	if (!vfd_sock(fd))
		return REAL(recvmsg)(fd, m, flags);
	m->msg_controllen = 0;
	m->msg_flags = 0;
	return recv_waiting(fd, m->msg_iov, m->msg_iovlen, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	return vfd_sock(fd) ? send_waiting(fd, m->msg_iov, m->msg_iovlen, flags)
			    : REAL(sendmsg)(fd, m, flags);
}

ssize_t read(int fd, void *buf, size_t n)
{
	const struct iovec iov = {buf, n};

	return vfd_sock(fd) ? recv_waiting(fd, &iov, 1, 0) : REAL(read)(fd, buf, n);
}

ssize_t write(int fd, const void *buf, size_t n)
{
	const struct iovec iov = {(void *)(uintptr_t)buf, n};

	if (vfd_sock(fd))
		return send_waiting(fd, &iov, 1, 0);
	return track_has(fd) ? ret(disk_write(fd, buf, n)) : REAL(write)(fd, buf, n);
}

/* ---- poll ---- */

static int look(struct pollfd *p, nfds_t n)
{
	int found = 0;

	for (nfds_t i = 0; i < n; i++) {
		if (p[i].fd >= 0 && !vfd_sock(p[i].fd)) {
			found += REAL(poll)(&p[i], 1, 0) > 0;
			continue;
		}
		p[i].revents = p[i].fd < 0 ? 0
					   : (short)(sock_ready(vfds[p[i].fd].sock) &
						     (p[i].events | POLLERR | POLLHUP));
		found += p[i].revents != 0;
	}
	return found;
}

int poll(struct pollfd *p, nfds_t n, int ms)
{
	uint64_t until;
	int found;

	if (!sim_enter())
		return REAL(poll)(p, n, ms);
	sched_point();
	until = ms < 0 ? FOREVER : world->now + (uint64_t)ms * MS;
	while (!(found = look(p, n))) {
		for (nfds_t i = 0; i < n; i++)
			if (vfd_sock(p[i].fd))
				waiters_add(&sock_of(vfds[p[i].fd].sock)->waiters);
		if (!sleep_for(NULL, until))
			return look(p, n);
	}
	return found;
}
