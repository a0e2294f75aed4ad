/* SPDX-License-Identifier: Apache-2.0 */
/* TCP connections of transport.h: connect, receive, close. They send in tcp_send.c; listening
 * sockets are in tcp_listen.c. */
#include <assert.h>
#include <linux/tcp.h> /* struct tcp_info with bytes_received */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/domain.h"
#include "common/transport/tcp_internal.h"

#define KEEPALIVE_IDLE_S 60
#define KEEPALIVE_INTERVAL_S 15
#define KEEPALIVE_PROBES 4

/* ---- life ---- */

void tcp_conn_maybe_free(struct tcp_conn *c)
{
	struct tcp_listener *l = c->listener;

	if (!c->closing || c->nested || c->in_op || c->out_busy || c->out_head)
		return;
	reactor_timer_clear(c->x.reactor, &c->in_timer);
	reactor_timer_clear(c->x.reactor, &c->out_timer);
	(void)close(c->fd);
	free(c->pieces);
	free(c);
	if (l)
		tcp_listener_conn_gone(l);
}

void tcp_finish(struct tcp_conn *c, struct xop *op, int res)
{
	c->nested++;
	op->done(op, res);
	c->nested--;
}

int tcp_io_error(const struct tcp_conn *c, int res, bool expired)
{
	if (c->closing)
		return -ECANCELED;
	if (expired)
		return -ETIMEDOUT;
	return res == -EPIPE || res == -ENOTCONN ? -ECONNRESET : res;
}

void tcp_deadline_watch(struct tcp_conn *c, struct rtimer *t, uint64_t deadline_ns)
{
	if (deadline_ns && (!t->deadline_ns || t->deadline_ns > deadline_ns))
		reactor_timer_set(c->x.reactor, t, deadline_ns);
}

bool tcp_deadline_passed(struct tcp_conn *c, struct rtimer *t, uint64_t deadline_ns)
{
	if (deadline_ns && deadline_ns <= reactor_now_ns(c->x.reactor))
		return true;
	if (deadline_ns)
		reactor_timer_set(c->x.reactor, t, deadline_ns);
	return false;
}

/* ---- receive ---- */

static void in_submit(struct tcp_conn *c)
{
	struct io_uring_sqe *sqe = reactor_sqe(c->x.reactor);
	const struct iovec *iov = c->in_iov + c->in_first;

	if (c->in_count - c->in_first == 1) {
		io_uring_prep_recv(sqe, c->fd, iov->iov_base, iov->iov_len,
				   c->in_whole ? MSG_WAITALL : 0);
	} else {
		c->in_msg = (struct msghdr){.msg_iov = c->in_iov + c->in_first,
					    .msg_iovlen = c->in_count - c->in_first};
		io_uring_prep_recvmsg(sqe, c->fd, &c->in_msg, 0);
	}
	uring_attach(sqe, &c->in);
}

static void in_consume(struct tcp_conn *c, uint32_t n)
{
	c->in_got += n;
	for (; n; c->in_first++) {
		struct iovec *v = c->in_iov + c->in_first;

		if (v->iov_len > n) {
			v->iov_base = (uint8_t *)v->iov_base + n;
			v->iov_len -= n;
			return;
		}
		n -= (uint32_t)v->iov_len;
	}
}

static int in_result(struct tcp_conn *c, int res)
{
	if (c->closing || res < 0)
		return tcp_io_error(c, res, c->in_expired);
	if (c->connecting || !c->in_min)
		return res;
	if (c->in_got >= c->in_min)
		return (int)c->in_got;
	return c->in_expired ? -ETIMEDOUT : -ECONNRESET; /* ended in the middle */
}

void tcp_set_options(int fd)
{
	const int opt[][3] = {{IPPROTO_TCP, TCP_NODELAY, 1},
			      {SOL_SOCKET, SO_KEEPALIVE, 1},
			      {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
			      {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S},
			      {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES},
			      {IPPROTO_TCP, TCP_NOTSENT_LOWAT, TCP_UNSENT_MAX}};

	for (size_t i = 0; i < sizeof(opt) / sizeof(opt[0]); i++)
		(void)setsockopt(fd, opt[i][0], opt[i][1], &opt[i][2], sizeof(int)); /* a wish */
}

static void note_local(struct tcp_conn *c)
{
	c->x.local.len = sizeof(c->x.local.sa);
	(void)getsockname(c->fd, (struct sockaddr *)(void *)&c->x.local.sa, &c->x.local.len);
}

static void connected(struct tcp_conn *c)
{
	tcp_set_options(c->fd);
	note_local(c);
}

static void in_done(struct uring_op *uop, int res, uint32_t flags)
{
	struct tcp_conn *c = container_of(uop, struct tcp_conn, in);
	struct xop *op = c->in_op;

	(void)flags;
	if (!c->closing && !c->in_expired && (res == -EINTR || res == -EAGAIN)) {
		in_submit(c);
		return;
	}
	if (res > 0)
		in_consume(c, (uint32_t)res);
	if (res > 0 && c->in_got < c->in_min && !c->closing && !c->in_expired) {
		in_submit(c);
		return;
	}
	res = in_result(c, res);
	if (c->connecting) {
		c->connecting = false;
		c->x.recv_deadline_ns = 0;
		if (!res)
			connected(c);
	}
	c->in_op = NULL; /* state first: done() may ask for more */
	tcp_finish(c, op, res);
	tcp_conn_maybe_free(c);
}

static void in_expire(struct rtimer *t)
{
	struct tcp_conn *c = container_of(t, struct tcp_conn, in_timer);

	if (!c->in_op || c->closing || !tcp_deadline_passed(c, t, c->x.recv_deadline_ns))
		return;
	c->in_expired = true;
	reactor_cancel(c->x.reactor, &c->in);
}

static void in_start(struct tcp_conn *c, const struct iovec *iov, int n, uint32_t min, bool whole,
		     struct xop *op)
{
	assert(reactor_is_current(c->x.reactor));
	assert(!c->in_op && !c->closing && n > 0 && n <= XOP_IOV_MAX && min <= TCP_LEN_MAX);
	c->in_op = op;
	memcpy(c->in_iov, iov, (size_t)n * sizeof(*iov));
	c->in_first = 0;
	c->in_count = (uint32_t)n;
	c->in_min = min;
	c->in_got = 0;
	c->in_whole = whole;
	c->in_expired = false;
	tcp_deadline_watch(c, &c->in_timer, c->x.recv_deadline_ns);
	in_submit(c);
}

static void tcp_recv(struct xconn *x, void *buf, uint32_t len, struct xop *op)
{
	in_start(tcp_of(x), &(struct iovec){buf, len}, 1, 0, false, op);
}

static void tcp_recv_by(struct xconn *x, uint64_t deadline_ns)
{
	struct tcp_conn *c = tcp_of(x);

	x->recv_deadline_ns = deadline_ns;
	if (c->in_op)
		tcp_deadline_watch(c, &c->in_timer, deadline_ns);
}

static void tcp_recvv(struct xconn *x, const struct iovec *iov, int n, uint32_t min, struct xop *op)
{
	in_start(tcp_of(x), iov, n, min, false, op);
}

static void tcp_pull(struct xconn *x, struct xremote from, struct slot *slot, uint32_t off,
		     uint32_t len, struct xop *op)
{
	(void)from;
	assert(off <= slot->size && len <= slot->size - off);
	in_start(tcp_of(x), &(struct iovec){slot->data + off, len}, 1, len, true, op);
}

/* A UNIX domain socket does not tell. */
static bool tcp_progress(struct xconn *x, struct xprogress *ret)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);

	if (getsockopt(tcp_of(x)->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
		return false;
	*ret = (struct xprogress){.bytes = info.tcpi_bytes_received,
				  .quiet_ns = info.tcpi_last_data_recv * NS_PER_MS,
				  .acked = info.tcpi_bytes_acked};
	return true;
}

/* ---- close, connect ---- */

static void tcp_end(struct xconn *x)
{
	(void)shutdown(tcp_of(x)->fd, SHUT_WR);
}

static int tcp_send_fds(struct xconn *x, uint8_t byte, const int *fds, int n)
{
	struct tcp_conn *c = tcp_of(x);

	assert(reactor_is_current(x->reactor) && xconn_is_local(x));
	assert(!c->closing && !c->out_head && !c->out_busy);
	return domain_send_fds(c->fd, byte, fds, n);
}

static void tcp_close(struct xconn *x)
{
	struct tcp_conn *c = tcp_of(x);

	assert(reactor_is_current(x->reactor));
	assert(!c->closing);
	c->closing = true;
	if (c->in_op)
		reactor_cancel(x->reactor, &c->in);
	tcp_send_close(c);
	tcp_conn_maybe_free(c);
}

static struct tcp_conn *conn_new(struct reactor *r, int fd)
{
	struct tcp_conn *c = (struct tcp_conn *)calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->x.ops = &tcp_ops;
	c->x.reactor = r;
	c->fd = fd;
	c->in.done = in_done;
	c->in_timer.fire = in_expire;
	tcp_send_init(c);
	return c;
}

struct xconn *tcp_accepted_conn(struct tcp_listener *l, int fd)
{
	struct tcp_conn *c = conn_new(l->reactor, fd);

	if (!c)
		return NULL;
	c->listener = l;
	l->conns++;
	c->x.peer.len = sizeof(c->x.peer.sa);
	(void)getpeername(fd, (struct sockaddr *)(void *)&c->x.peer.sa, &c->x.peer.len);
	note_local(c); /* its options are the listening socket's */
	return &c->x;
}

static int tcp_connect(struct reactor *r, const struct net_addr *to, uint64_t deadline_ns,
		       const void *private_data, size_t private_len, struct xop *op,
		       struct xconn **ret)
{
	int fd = ret_errno(socket(to->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
	struct io_uring_sqe *sqe;
	struct tcp_conn *c;

	(void)private_data, (void)private_len;
	assert(reactor_is_current(r));
	if (fd < 0)
		return fd;
	c = conn_new(r, fd);
	if (!c) {
		(void)close(fd);
		return -ENOMEM;
	}
	c->x.peer = *to;
	c->connecting = true;
	c->in_op = op;
	c->x.recv_deadline_ns = deadline_ns; /* until the caller sets another */
	tcp_deadline_watch(c, &c->in_timer, deadline_ns);
	sqe = reactor_sqe(r);
	io_uring_prep_connect(sqe, fd, (struct sockaddr *)(void *)&c->x.peer.sa, c->x.peer.len);
	uring_attach(sqe, &c->in);
	*ret = &c->x;
	return 0;
}

const struct xport_ops tcp_ops = {
	.name = "tcp",
	.connect = tcp_connect,
	.send = tcp_send,
	.recv = tcp_recv,
	.recvv = tcp_recvv,
	.pull = tcp_pull,
	.push = tcp_push,
	.close = tcp_close,
	.end = tcp_end,
	.send_fds = tcp_send_fds,
	.send_stop = tcp_send_stop,
	.send_room = tcp_send_room,
	.progress = tcp_progress,
	.recv_by = tcp_recv_by,
};
