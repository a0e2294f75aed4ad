/* SPDX-License-Identifier: Apache-2.0 */
/* How a TCP connection sends: a queue of ops, whose pieces go out together once a turn. A long send
 * ends when the socket is full; the next part goes when there is room. A caller can stop a send, or
 * wait for room instead of sending. */
#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/clock.h"
#include "common/transport/tcp_internal.h"

#define LONG_SEND (128u << 10)
/* TCP_UNSENT_MAX bounds the bytes that the kernel keeps for us and has not sent. Its own limit is
 * megabytes: hundreds of peers that take nothing would fill its memory for TCP, and every
 * connection of the machine would slow down. With TCP_UNSENT_MAX thousands of them would, too: when
 * so many accepted connections of a listener are sending, the next ones get less. */
#define MANY_SENDING 256
#define UNSENT_OF_MANY (128 << 10)
#define VERY_MANY_SENDING 1024
#define UNSENT_OF_VERY_MANY (64 << 10)
/* A wait for room ends at once, each time, when the peer has closed its side: io_uring always polls
 * for POLLRDHUP, too. Then the next look comes after a pause, which is doubled up to this. */
#define LOOK_PAUSE_MAX_NS (100 * NS_PER_MS)
#define LOOK_PAUSE_FIRST_NS (1 * NS_PER_MS)

/* What a queued send keeps in xop.priv. */
struct sending {
	struct xop *next;
	uint64_t left; /* bytes not sent yet */
	uint64_t total;
};
_Static_assert(sizeof(struct sending) <= sizeof(((struct xop *)0)->priv), "fits xop.priv");

static struct sending *sending_of(struct xop *op)
{
	return (struct sending *)(void *)op->priv;
}

static uint64_t long_bytes(const struct tcp_conn *c, uint32_t n)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++)
		bytes += c->out_flight[i].iov_len;
	return bytes >= LONG_SEND ? bytes : 0;
}

static void set_busy(struct tcp_conn *c, bool busy)
{
	if (c->listener && busy != c->out_busy)
		c->listener->sending += busy ? 1 : -1u;
	c->out_busy = busy;
}

static void bound_unsent(struct tcp_conn *c)
{
	const uint32_t sending = c->listener ? c->listener->sending : 0;
	const int max = sending > VERY_MANY_SENDING ? UNSENT_OF_VERY_MANY
			: sending > MANY_SENDING    ? UNSENT_OF_MANY
						    : TCP_UNSENT_MAX;

	if (max == c->unsent_max)
		return;
	c->unsent_max = max;
	(void)setsockopt(c->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &max, sizeof(max)); /* a wish */
}

/* A long send is a kernel worker's: it copies while the reactor serves others, takes what the
 * socket has room for and never waits. */
static void out_submit(struct tcp_conn *c)
{
	struct io_uring_sqe *sqe;
	uint32_t n;

	if (c->out_error) /* what is left is of ops that were given back */
		c->piece_first = c->piece_count = 0;
	n = c->piece_count - c->piece_first;
	if (n > TCP_FLIGHT_IOV)
		n = TCP_FLIGHT_IOV;
	list_del(&c->out_late.ready_link);
	if (n)
		memcpy(c->out_flight, c->pieces + c->piece_first, n * sizeof(c->out_flight[0]));
	c->out_msg = (struct msghdr){.msg_iov = c->out_flight, .msg_iovlen = n};
	set_busy(c, true);
	c->out_expired = false;
	tcp_deadline_watch(c, &c->out_timer, c->x.send_deadline_ns);
	c->out_long = long_bytes(c, n);
	if (c->out_long)
		bound_unsent(c);
	sqe = reactor_sqe(c->x.reactor);
	io_uring_prep_sendmsg(sqe, c->fd, &c->out_msg,
			      MSG_NOSIGNAL | (c->out_long ? MSG_DONTWAIT : MSG_WAITALL));
	if (c->out_long)
		sqe->flags |= IOSQE_ASYNC;
	uring_attach(sqe, &c->out);
}

static void look_for_room(struct tcp_conn *c)
{
	struct io_uring_sqe *sqe = reactor_sqe(c->x.reactor);

	io_uring_prep_poll_add(sqe, c->fd, POLLOUT);
	uring_attach(sqe, &c->out);
}

static void out_await_room(struct tcp_conn *c)
{
	set_busy(c, true);
	c->out_full = true;
	c->out_pause.tv_nsec = 0;
	look_for_room(c);
}

/* @res: of what the wait for room has submitted. True: it goes on. */
static bool await_on(struct tcp_conn *c, int res)
{
	const bool pausing = c->out_pausing;
	struct io_uring_sqe *sqe;
	uint64_t ns;

	c->out_pausing = false;
	if (c->out_stopped || c->closing || c->out_expired)
		return false;
	if (pausing && res == -ETIME) {
		look_for_room(c);
		return true;
	}
	if (res <= 0 || res & (POLLOUT | POLLERR | POLLHUP))
		return false;
	ns = (uint64_t)c->out_pause.tv_nsec * 2;
	ns = ns < LOOK_PAUSE_FIRST_NS ? LOOK_PAUSE_FIRST_NS : ns;
	ns = ns < LOOK_PAUSE_MAX_NS ? ns : LOOK_PAUSE_MAX_NS;
	c->out_pause.tv_nsec = (long long)ns;
	c->out_pausing = true;
	sqe = reactor_sqe(c->x.reactor);
	io_uring_prep_timeout(sqe, &c->out_pause, 0, 0);
	uring_attach(sqe, &c->out);
	return true;
}

static void out_give_back(struct tcp_conn *c);

static bool out_late_step(struct rop *rop)
{
	struct tcp_conn *c = container_of(rop, struct tcp_conn, out_late);

	if (!c->out_stopped) {
		out_submit(c);
		return false;
	}
	c->out_stopped = false; /* before anything of it, or more of it, went out */
	out_give_back(c);
	if (c->out_head && !c->out_busy)
		out_submit(c);
	tcp_conn_maybe_free(c);
	return false;
}

static void pieces_consume(struct tcp_conn *c, uint64_t n)
{
	while (n) {
		struct iovec *v = &c->pieces[c->piece_first];

		if (v->iov_len > n) {
			v->iov_base = (uint8_t *)v->iov_base + n;
			v->iov_len -= n;
			return;
		}
		n -= v->iov_len;
		c->piece_first++;
	}
}

/* Give back, in order, every op that @n more bytes make whole; all of them on an error. */
static void out_complete(struct tcp_conn *c, uint64_t n)
{
	struct xop *op;

	while ((op = c->out_head)) {
		struct sending *s = sending_of(op);
		uint64_t part = s->left < n ? s->left : n;

		s->left -= part;
		n -= part;
		if (s->left && !c->out_error)
			break;
		c->out_head = s->next;
		tcp_finish(c, op, s->left ? c->out_error : (int)s->total);
	}
}

/* The one send that was stopped: what has gone of it. */
static void out_give_back(struct tcp_conn *c)
{
	struct xop *op = c->out_head;
	const struct sending *s = sending_of(op);

	c->piece_first = c->piece_count = 0;
	c->out_head = s->next;
	tcp_finish(c, op, (int)(s->total - s->left));
}

static void room_done(struct tcp_conn *c, int res)
{
	struct xop *op = c->room_op;

	if (res == -EINTR || res == -EAGAIN || res > 0)
		res = 0;
	c->room_op = NULL;
	set_busy(c, false);
	tcp_finish(c, op,
		   c->closing || c->out_expired || res < 0 ? tcp_io_error(c, res, c->out_expired)
							   : 0);
	tcp_conn_maybe_free(c);
}

static void out_done(struct uring_op *uop, int res, uint32_t flags)
{
	struct tcp_conn *c = container_of(uop, struct tcp_conn, out);
	const bool stopped = c->out_stopped && !c->closing && !c->out_expired;
	const bool waited = c->out_full, pausing = c->out_pausing;
	const uint64_t went = res > 0 && !waited ? (uint64_t)res : 0;
	const bool cut = stopped && c->out_head && sending_of(c->out_head)->left > went;
	bool again;

	(void)flags;
	if (waited && await_on(c, res))
		return;
	if (pausing && res == -ETIME) /* just when it was stopped */
		res = -ECANCELED;
	again = res == -EINTR || res == -EAGAIN || (stopped && res == -ECANCELED);
	c->out_stopped = c->out_full = false;
	if (c->room_op) {
		room_done(c, res);
		return;
	}
	pieces_consume(c, went);
	if (c->closing || c->out_expired)
		c->out_error = tcp_io_error(c, 0, c->out_expired);
	else if (res < 0 && !again)
		c->out_error = tcp_io_error(c, res, false);
	out_complete(c, went); /* done() may queue more: we are still busy */
	set_busy(c, false);
	if (c->closing && !c->out_error)
		c->out_error = -ECANCELED;
	if (c->out_error)
		out_complete(c, 0);
	else if (cut)
		out_give_back(c);
	if (c->out_head && !c->out_busy && !c->out_error && !waited && !stopped &&
	    went < c->out_long)
		out_await_room(c);
	else if (c->out_head && !c->out_busy && !c->out_error)
		reactor_late(c->x.reactor, &c->out_late);
	tcp_conn_maybe_free(c);
}

static void out_expire(struct rtimer *t)
{
	struct tcp_conn *c = container_of(t, struct tcp_conn, out_timer);

	if (!c->out_busy || c->closing || !tcp_deadline_passed(c, t, c->x.send_deadline_ns))
		return;
	c->out_expired = true;
	reactor_cancel(c->x.reactor, &c->out);
}

/* Room for @n more pieces; the array only grows to the most ever outstanding. */
static bool pieces_reserve(struct tcp_conn *c, uint32_t n)
{
	struct iovec *v;
	uint32_t cap = c->piece_cap ? c->piece_cap : XOP_IOV_MAX;

	c->piece_count -= c->piece_first;
	if (c->piece_first && c->piece_count)
		memmove(c->pieces, c->pieces + c->piece_first, c->piece_count * sizeof(*v));
	c->piece_first = 0;
	while (cap < c->piece_count + n)
		cap *= 2;
	if (cap == c->piece_cap)
		return true;
	v = (struct iovec *)realloc(c->pieces, cap * sizeof(*v));
	if (!v)
		return false;
	c->pieces = v;
	c->piece_cap = cap;
	return true;
}

void tcp_send(struct xconn *x, const struct iovec *iov, int n, struct xop *op)
{
	struct tcp_conn *c = tcp_of(x);
	struct sending *s = sending_of(op);

	assert(reactor_is_current(x->reactor));
	assert(n >= 0 && n <= XOP_IOV_MAX && !c->closing);
	*s = (struct sending){0};
	if (!c->out_error && c->piece_count + (uint32_t)n > c->piece_cap &&
	    !pieces_reserve(c, (uint32_t)n))
		c->out_error = -ENOMEM;
	for (int i = 0; i < n; i++) {
		s->total += iov[i].iov_len;
		if (iov[i].iov_len && !c->out_error)
			c->pieces[c->piece_count++] = iov[i];
	}
	s->left = s->total;
	assert(s->total <= TCP_LEN_MAX);
	if (c->out_head)
		sending_of(c->out_tail)->next = op;
	else
		c->out_head = op;
	c->out_tail = op;
	if (!c->out_busy) /* also when failing: the op comes back by way of the ring */
		reactor_late(x->reactor, &c->out_late);
}

void tcp_push(struct xconn *x, const struct iovec *iov, int n, struct xremote to, struct xop *op)
{
	(void)to;
	tcp_send(x, iov, n, op);
}

void tcp_send_stop(struct xconn *x)
{
	struct tcp_conn *c = tcp_of(x);

	if (c->out_stopped || c->closing || c->out_error ||
	    (!c->room_op && (!c->out_head || c->out_head != c->out_tail)))
		return;
	c->out_stopped = true;
	if (c->out_busy)
		reactor_cancel(x->reactor, &c->out);
}

void tcp_send_room(struct xconn *x, struct xop *op)
{
	struct tcp_conn *c = tcp_of(x);

	assert(reactor_is_current(x->reactor) && !c->closing && !c->out_head && !c->out_busy);
	c->room_op = op;
	c->out_expired = false;
	tcp_deadline_watch(c, &c->out_timer, x->send_deadline_ns);
	out_await_room(c);
}

void tcp_send_close(struct tcp_conn *c)
{
	if (list_is_linked(&c->out_late.ready_link))
		out_submit(c);
	if (c->out_busy)
		reactor_cancel(c->x.reactor, &c->out);
}

void tcp_send_init(struct tcp_conn *c)
{
	c->unsent_max = TCP_UNSENT_MAX;
	c->out.done = out_done;
	c->out_timer.fire = out_expire;
	rop_init(&c->out_late, out_late_step, NULL);
}
