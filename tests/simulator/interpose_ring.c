/* SPDX-License-Identifier: Apache-2.0 */
/* io_uring, as far as the reactor uses it. Requests are done, and completions shown, when their
 * thread enters the ring, as with IORING_SETUP_DEFER_TASKRUN. */
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/simulator/interpose.h"
#include "tests/simulator/track.h"

struct request {
	struct request *next;
	struct io_uring_sqe sqe;
	uint64_t done_at; /* of a disk, or a timeout */
	bool begun;       /* of a connect; of a multishot poll: told of what is ready */
	size_t got;       /* of a recv with MSG_WAITALL, a send */
};

struct ring {
	struct io_uring *of;
	struct request *first, **last;
	struct io_uring_cqe *late; /* completions without room */
	uint32_t late_count, late_size;
};

static struct ring rings[64];

static struct ring *ring_of(struct io_uring *of)
{
	for (int i = 0; i < 64; i++)
		if (rings[i].of == of)
			return &rings[i];
	fprintf(stderr, "sim: no such ring\n");
	abort();
}

/* ---- making and ending ---- */

int io_uring_queue_init_params(unsigned entries, struct io_uring *u, struct io_uring_params *p)
{
	unsigned *words = (unsigned *)calloc(16, sizeof(*words));
	struct ring *r = ring_of(NULL);

	*r = (struct ring){.of = u};
	r->last = &r->first;
	memset(u, 0, sizeof(*u));
	u->sq.khead = &words[0];
	u->sq.ktail = &words[1];
	u->sq.kring_mask = &words[2];
	u->sq.kring_entries = &words[3];
	u->sq.kflags = &words[4];
	u->sq.kdropped = &words[5];
	u->cq.khead = &words[6];
	u->cq.ktail = &words[7];
	u->cq.kring_mask = &words[8];
	u->cq.kring_entries = &words[9];
	u->cq.koverflow = &words[10];
	u->cq.kflags = &words[11];
	u->sq.ring_entries = words[3] = entries;
	u->sq.ring_mask = words[2] = entries - 1;
	u->cq.ring_entries = words[9] = p->cq_entries;
	u->cq.ring_mask = words[8] = p->cq_entries - 1;
	u->sq.sqes = (struct io_uring_sqe *)calloc(entries, sizeof(*u->sq.sqes));
	u->cq.cqes = (struct io_uring_cqe *)calloc(p->cq_entries, sizeof(*u->cq.cqes));
	u->ring_fd = u->enter_ring_fd = REAL(eventfd)(0, EFD_CLOEXEC);
	u->features = IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP;
	u->flags = p->flags;
	return 0;
}

void io_uring_queue_exit(struct io_uring *u)
{
	struct ring *r = ring_of(u);

	while (r->first) {
		struct request *next = r->first->next;

		free(r->first);
		r->first = next;
	}
	free(r->late);
	*r = (struct ring){0};
	free(u->sq.sqes);
	free(u->cq.cqes);
	free(u->sq.khead);
	(void)REAL(close)(u->ring_fd);
}

int io_uring_register(unsigned fd, unsigned op, const void *arg, unsigned n)
{
	(void)fd, (void)op, (void)arg, (void)n;
	return 0;
}

int io_uring_register_buffers(struct io_uring *u, const struct iovec *iov, unsigned n)
{
	(void)u, (void)iov, (void)n;
	return 0;
}

int io_uring_register_ring_fd(struct io_uring *u)
{
	(void)u;
	return 1;
}

int io_uring_unregister_ring_fd(struct io_uring *u)
{
	(void)u;
	return 1;
}

/* ---- completions ---- */

static bool has_room(const struct io_uring *u)
{
	return *u->cq.ktail - *u->cq.khead < u->cq.ring_entries;
}

static void show(struct ring *r, struct io_uring_cqe cqe)
{
	struct io_uring *u = r->of;

	if (!r->late_count && has_room(u)) {
		u->cq.cqes[(*u->cq.ktail)++ & u->cq.ring_mask] = cqe;
		return;
	}
	if (r->late_count == r->late_size) {
		r->late_size = r->late_size ? r->late_size * 2 : 64;
		r->late = (struct io_uring_cqe *)realloc(r->late, r->late_size * sizeof(cqe));
	}
	r->late[r->late_count++] = cqe;
	*u->sq.kflags |= IORING_SQ_CQ_OVERFLOW;
}

static void show_late(struct ring *r)
{
	uint32_t n = 0;

	for (; n < r->late_count && has_room(r->of); n++)
		r->of->cq.cqes[(*r->of->cq.ktail)++ & r->of->cq.ring_mask] = r->late[n];
	memmove(r->late, r->late + n, (r->late_count - n) * sizeof(*r->late));
	r->late_count -= n;
	if (!r->late_count)
		*r->of->sq.kflags &= ~(unsigned)IORING_SQ_CQ_OVERFLOW;
}

static void complete(struct ring *r, const struct request *q, ssize_t res, unsigned flags)
{
	show(r,
	     (struct io_uring_cqe){.user_data = q->sqe.user_data, .res = (int)res, .flags = flags});
}

/* ---- requests ---- */

#define PENDING (-EINPROGRESS)

static ssize_t move(struct request *q, struct iovec *iov, size_t n, bool sends)
{
	const int flags = (int)q->sqe.msg_flags;
	size_t total = 0, skip = q->got, k = 0;
	struct iovec left[1024];
	ssize_t rc;

	for (size_t i = 0; i < n && k < 1024; i++) {
		total += iov[i].iov_len;
		if (skip >= iov[i].iov_len) {
			skip -= iov[i].iov_len;
			continue;
		}
		left[k++] =
			(struct iovec){(uint8_t *)iov[i].iov_base + skip, iov[i].iov_len - skip};
		skip = 0;
	}
	rc = sends ? vfd_sendv(q->sqe.fd, left, k) : vfd_recvv(q->sqe.fd, left, k, flags);
	if (rc == -EAGAIN)
		return flags & MSG_DONTWAIT ? -EAGAIN : PENDING;
	if (rc <= 0)
		return q->got ? (ssize_t)q->got : rc;
	q->got += (size_t)rc;
	return q->got < total && (flags & MSG_WAITALL) ? PENDING : (ssize_t)q->got;
}

static ssize_t do_poll(struct request *q, unsigned *flags)
{
	const short ready = vfd_sock(q->sqe.fd)
				    ? (short)(sock_ready(vfds[q->sqe.fd].sock) &
					      ((short)q->sqe.poll32_events | POLLERR | POLLHUP))
				    : 0;

	*flags = q->sqe.len & IORING_POLL_ADD_MULTI ? IORING_CQE_F_MORE : 0;
	return ready ? ready : PENDING;
}

static ssize_t do_connect(struct request *q)
{
	const struct sockaddr_in *a = (const struct sockaddr_in *)(uintptr_t)q->sqe.addr;

	if (q->begun)
		return sock_connected(vfds[q->sqe.fd].sock);
	q->begun = true;
	return sock_connect(vfds[q->sqe.fd].sock,
			    (struct end){ntohl(a->sin_addr.s_addr), ntohs(a->sin_port)});
}

static ssize_t do_accept(const struct request *q, unsigned *flags)
{
	const int s = sock_accept(vfds[q->sqe.fd].sock);

	*flags = q->sqe.ioprio & IORING_ACCEPT_MULTISHOT ? IORING_CQE_F_MORE : 0;
	if (s < 0)
		return s == -EAGAIN ? PENDING : s;
	sock_of((uint32_t)s)->proc = (uint16_t)sim_proc();
	return vfd_new((uint32_t)s, 0);
}

static ssize_t do_file(struct request *q)
{
	void *addr = (void *)(uintptr_t)q->sqe.addr;

	if (q->done_at == FOREVER)
		q->done_at = disk_done_at(MS);
	if (q->done_at > world->now)
		return PENDING;
	switch (q->sqe.opcode) {
	case IORING_OP_FSYNC:
		return disk_sync(q->sqe.fd);
	case IORING_OP_WRITE:
	case IORING_OP_WRITE_FIXED:
		return disk_pwrite(q->sqe.fd, addr, q->sqe.len, (off_t)q->sqe.off);
	default:
		return disk_pread(q->sqe.fd, addr, q->sqe.len, (off_t)q->sqe.off);
	}
}

static ssize_t attempt(struct request *q, unsigned *flags)
{
	struct iovec one = {(void *)(uintptr_t)q->sqe.addr, q->sqe.len};
	struct msghdr *m = (struct msghdr *)one.iov_base;

	switch (q->sqe.opcode) {
	case IORING_OP_NOP:
		return 0;
	case IORING_OP_READ:
		if (vfd_sock(q->sqe.fd))
			return move(q, &one, 1, false);
		return do_file(q);
	case IORING_OP_READ_FIXED:
	case IORING_OP_WRITE:
	case IORING_OP_WRITE_FIXED:
	case IORING_OP_FSYNC:
		return do_file(q);
	case IORING_OP_RECV:
		return move(q, &one, 1, false);
	case IORING_OP_SEND:
		return move(q, &one, 1, true);
	case IORING_OP_RECVMSG:
		return move(q, m->msg_iov, m->msg_iovlen, false);
	case IORING_OP_SENDMSG:
		return move(q, m->msg_iov, m->msg_iovlen, true);
	case IORING_OP_POLL_ADD:
		return do_poll(q, flags);
	case IORING_OP_ACCEPT:
		return do_accept(q, flags);
	case IORING_OP_CONNECT:
		return do_connect(q);
	case IORING_OP_TIMEOUT:
		return q->done_at > world->now ? PENDING : -ETIME;
	default:
		fprintf(stderr, "sim: io_uring operation %u is not of this world\n", q->sqe.opcode);
		abort();
	}
}

/* A multishot poll tells of each change once: not again before it was quiet. */
static bool is_told(struct request *q, ssize_t rc)
{
	const bool told = q->begun;

	if (q->sqe.opcode != IORING_OP_POLL_ADD || !(q->sqe.len & IORING_POLL_ADD_MULTI))
		return false;
	q->begun = rc != PENDING;
	return told && q->begun;
}

static void attempt_all(struct ring *r)
{
	struct request **at = &r->first;

	while (*at) {
		struct request *q = *at;
		unsigned flags = 0;
		ssize_t rc = attempt(q, &flags);

		if (rc == PENDING || is_told(q, rc)) {
			(void)is_told(q, rc);
			at = &q->next;
			continue;
		}
		complete(r, q, rc, rc < 0 ? 0 : flags);
		if (flags & IORING_CQE_F_MORE && rc >= 0) {
			if (q->sqe.opcode != IORING_OP_ACCEPT)
				at = &q->next;
			continue;
		}
		*at = q->next;
		if (!q->next)
			r->last = at;
		free(q);
	}
}

static void cancel(struct ring *r, const struct io_uring_sqe *sqe)
{
	struct request **at = &r->first;
	int found = 0;

	while (*at) {
		struct request *q = *at;
		const bool file = q->sqe.opcode == IORING_OP_READ_FIXED ||
				  q->sqe.opcode == IORING_OP_FSYNC ||
				  (q->sqe.opcode == IORING_OP_READ && !vfd_sock(q->sqe.fd));

		if (file || (!(sqe->cancel_flags & IORING_ASYNC_CANCEL_ANY) &&
			     q->sqe.user_data != sqe->addr)) {
			at = &q->next;
			continue;
		}
		complete(r, q, -ECANCELED, 0);
		*at = q->next;
		if (!q->next)
			r->last = at;
		free(q);
		found++;
	}
	show(r, (struct io_uring_cqe){.user_data = sqe->user_data, .res = found ? found : -ENOENT});
}

static uint64_t when_done(const struct io_uring_sqe *sqe)
{
	const struct __kernel_timespec *t;

	switch (sqe->opcode) {
	case IORING_OP_READ:
	case IORING_OP_READ_FIXED:
	case IORING_OP_WRITE:
	case IORING_OP_WRITE_FIXED:
		return vfd_sock(sqe->fd) ? 0 : disk_done_at(100 * US);
	case IORING_OP_FSYNC:
		return disk_done_at(MS);
	case IORING_OP_TIMEOUT:
		t = (const struct __kernel_timespec *)(uintptr_t)sqe->addr;
		return world->now + (uint64_t)t->tv_sec * SEC + (uint64_t)t->tv_nsec;
	default:
		return 0;
	}
}

static void take(struct ring *r)
{
	struct io_uring_sq *sq = &r->of->sq;

	for (; sq->sqe_head != sq->sqe_tail; sq->sqe_head++) {
		const struct io_uring_sqe *sqe = &sq->sqes[sq->sqe_head & sq->ring_mask];
		struct request *q;

		if (sqe->opcode == IORING_OP_ASYNC_CANCEL) {
			cancel(r, sqe);
			continue;
		}
		q = (struct request *)calloc(1, sizeof(*q));
		q->sqe = *sqe;
		q->done_at = when_done(sqe);
		*r->last = q;
		r->last = &q->next;
	}
	*sq->khead = *sq->ktail = sq->sqe_head;
}

/* When something of @r may be done by itself. */
static uint64_t watch(struct ring *r)
{
	uint64_t next = FOREVER;

	for (struct request *q = r->first; q; q = q->next) {
		if (vfd_sock(q->sqe.fd) && q->sqe.opcode != IORING_OP_TIMEOUT)
			waiters_add(&sock_of(vfds[q->sqe.fd].sock)->waiters);
		else if (q->done_at == FOREVER)
			waiters_add(&sim_machine()->disk);
		if (q->done_at && q->done_at < next)
			next = q->done_at;
	}
	return next;
}

static void enter(struct io_uring *u, unsigned want, uint64_t until)
{
	struct ring *r = ring_of(u);

	sched_point();
	take(r);
	for (;;) {
		uint64_t next;

		show_late(r);
		attempt_all(r);
		if (*u->cq.ktail - *u->cq.khead >= want || world->now >= until)
			return;
		next = watch(r);
		(void)sleep_for(NULL, next < until ? next : until);
	}
}

int io_uring_submit_and_get_events(struct io_uring *u)
{
	enter(u, 0, 0);
	return 0;
}

int io_uring_submit_and_wait_timeout(struct io_uring *u, struct io_uring_cqe **cqe, unsigned n,
				     struct __kernel_timespec *t, sigset_t *mask)
{
	(void)cqe, (void)mask;
	enter(u, n, t ? world->now + (uint64_t)t->tv_sec * SEC + (uint64_t)t->tv_nsec : FOREVER);
	return 0;
}

int __io_uring_get_cqe(struct io_uring *u, struct io_uring_cqe **cqe, unsigned submit,
		       unsigned want, sigset_t *mask)
{
	(void)submit, (void)mask;
	if (want)
		enter(u, want, FOREVER);
	*cqe = *u->cq.ktail != *u->cq.khead ? &u->cq.cqes[*u->cq.khead & u->cq.ring_mask] : NULL;
	return *cqe ? 0 : -EAGAIN;
}
