/* SPDX-License-Identifier: Apache-2.0 */
/* Listening TCP and UNIX domain sockets of transport.h: they accept connections for tcp.c. */
#include <assert.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/transport/tcp_internal.h"

#define CONNS_DEFAULT 4096
#define ACCEPT_PAUSE_NS (100 * NS_PER_MS) /* out of descriptors or memory: try again then */

static void maybe_free(struct tcp_listener *l)
{
	if (!l->closed || l->accepting)
		return;
	reactor_timer_clear(l->reactor, &l->pause);
	if (l->fd >= 0) /* at once: nobody may wait in the backlog for connections that last */
		(void)close(l->fd);
	l->fd = -1;
	if (!l->conns)
		free(l);
}

void tcp_listener_conn_gone(struct tcp_listener *l)
{
	l->conns--;
	maybe_free(l);
}

static void accept_submit(struct tcp_listener *l)
{
	struct io_uring_sqe *sqe = reactor_sqe(l->reactor);

	if (l->single_shot)
		io_uring_prep_accept(sqe, l->fd, NULL, NULL, SOCK_CLOEXEC);
	else
		io_uring_prep_multishot_accept(sqe, l->fd, NULL, NULL, SOCK_CLOEXEC);
	uring_attach(sqe, &l->accept);
	l->accepting = true;
}

static void accept_one(struct tcp_listener *l, int fd)
{
	struct xconn *c = NULL;

	if (!l->closed && l->conns < l->opts.max_conns)
		c = tcp_accepted_conn(l, fd);
	if (c) {
		l->opts.accepted(l->opts.arg, c);
		return;
	}
	(void)close(fd);
	if (!l->closed && l->opts.refused)
		l->opts.refused(l->opts.arg);
}

static void accept_done(struct uring_op *op, int res, uint32_t flags)
{
	struct tcp_listener *l = container_of(op, struct tcp_listener, accept);

	if (res >= 0)
		accept_one(l, res);
	if (flags & IORING_CQE_F_MORE)
		return;
	l->accepting = false;
	if (res == -EINVAL)
		l->single_shot = true; /* multishot came with Linux 5.19 */
	if (l->closed || res == -ECANCELED)
		maybe_free(l);
	else if (res < 0 && res != -ECONNABORTED)
		reactor_timer_set(l->reactor, &l->pause,
				  reactor_now_ns(l->reactor) + ACCEPT_PAUSE_NS);
	else
		accept_submit(l);
}

static void accept_resume(struct rtimer *t)
{
	accept_submit(container_of(t, struct tcp_listener, pause));
}

static void tcp_listener_close(struct xlistener *x)
{
	struct tcp_listener *l = container_of(x, struct tcp_listener, x);

	assert(reactor_is_current(l->reactor) && !l->closed);
	l->closed = true;
	if (l->accepting)
		reactor_cancel(l->reactor, &l->accept);
	maybe_free(l);
}

int tcp_listen_fd(struct reactor *r, const struct xlistener_opts *o, int fd, struct xlistener **ret,
		  struct err *err)
{
	struct tcp_listener *l = (struct tcp_listener *)calloc(1, sizeof(*l));
	if (!l) {
		(void)close(fd);
		return err_set(err, -ENOMEM, "out of memory");
	}
	l->x.close = tcp_listener_close;
	l->reactor = r;
	l->opts = *o;
	if (!l->opts.max_conns)
		l->opts.max_conns = CONNS_DEFAULT;
	l->single_shot = o->one_by_one;
	l->fd = fd;
	l->accept.done = accept_done;
	l->pause.fire = accept_resume;
	accept_submit(l);
	*ret = &l->x;
	return 0;
}

int tcp_listen(struct reactor *r, const struct xlistener_opts *o, struct net_addr *ret_bound,
	       struct xlistener **ret, struct err *err)
{
	struct net_addr bound;
	int fd = net_listen(&o->addr, o->reuseport, &bound, err), rc;

	if (fd < 0)
		return fd;
	tcp_set_options(fd);
	rc = tcp_listen_fd(r, o, fd, ret, err);
	if (rc == 0 && ret_bound)
		*ret_bound = bound;
	return rc;
}
