/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <linux/tcp.h> /* struct tcp_info with bytes_received */
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/domain.h"
#include "common/transport/transport.h"

#define CONNS_DEFAULT 4096
#define FLIGHT_IOV 32 /* pieces of one sendmsg: several small sends go out together */
#define LONG_SEND (128u << 10)
#define ACCEPT_PAUSE_NS (100 * NS_PER_MS) /* out of descriptors or memory: try again then */
#define KEEPALIVE_IDLE_S 60
#define KEEPALIVE_INTERVAL_S 15
#define KEEPALIVE_PROBES 4
#define LEN_MAX INT32_MAX
/* Bytes that the kernel keeps for us and has not sent. Its own limit is megabytes: hundreds of
 * peers that take nothing would fill its memory for TCP, and every connection of the machine would
 * slow down. Thousands of them would with UNSENT_MAX, too: when so many accepted connections of a
 * listener are sending, the next ones get less. */
#define UNSENT_MAX (512 << 10)
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

struct tcp_listener {
	struct xlistener x;
	struct reactor *reactor;
	struct xlistener_opts opts;
	int fd;
	struct uring_op accept;
	bool accepting, closed, single_shot;
	struct rtimer pause;
	uint32_t conns;   /* each holds us */
	uint32_t sending; /* of these, with a send under way, or waiting for room for one */
};

struct tcp_conn {
	struct xconn x;
	int fd;
	bool closing;
	uint32_t nested;               /* callbacks of ours on the stack: no freeing below them */
	struct tcp_listener *listener; /* counted by listener->conns; NULL: we connected */

	/* receive or connect: one at a time */
	struct uring_op in;
	struct xop *in_op;                /* NULL: none */
	struct iovec in_iov[XOP_IOV_MAX]; /* [in_first, in_count) are to be filled */
	uint32_t in_first, in_count;
	struct msghdr in_msg;
	uint32_t in_min, in_got; /* in_min 0: whatever comes, or the end */
	bool in_whole, in_expired, connecting;
	struct rtimer in_timer;

	/* send: a queue of ops and the pieces of all of them; out_flight goes out now. What is sent
	 * in one turn of the reactor waits for its end and goes out together. */
	struct uring_op out;
	struct rop out_late; /* linked: to be submitted at the end of this turn */
	struct xop *out_head, *out_tail;
	bool out_busy, out_expired, out_stopped;
	bool out_full;    /* a wait for room in the socket is under way, */
	bool out_pausing; /* which pauses between two looks */
	struct __kernel_timespec out_pause;
	uint64_t out_long;    /* bytes of the long send that is under way; 0: a short one */
	struct xop *room_op;  /* waits for room instead of sending */
	int unsent_max;       /* of UNSENT_MAX and so on */
	int out_error;        /* sticky: later sends fail alike */
	struct iovec *pieces; /* owned, [first, count) are to be sent */
	uint32_t piece_first, piece_count, piece_cap;
	struct iovec out_flight[FLIGHT_IOV];
	struct msghdr out_msg;
	struct rtimer out_timer;
};

static struct tcp_conn *tcp_of(struct xconn *c)
{
	return container_of(c, struct tcp_conn, x);
}

static struct sending *sending_of(struct xop *op)
{
	return (struct sending *)(void *)op->priv;
}

/* ---- life ---- */

static void listener_maybe_free(struct tcp_listener *l)
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

static void conn_maybe_free(struct tcp_conn *c)
{
	struct tcp_listener *l = c->listener;

	if (!c->closing || c->nested || c->in_op || c->out_busy || c->out_head)
		return;
	reactor_timer_clear(c->x.reactor, &c->in_timer);
	reactor_timer_clear(c->x.reactor, &c->out_timer);
	(void)close(c->fd);
	free(c->pieces);
	free(c);
	if (l) {
		l->conns--;
		listener_maybe_free(l);
	}
}

static void finish(struct tcp_conn *c, struct xop *op, int res)
{
	c->nested++;
	op->done(op, res);
	c->nested--;
}

/* What the peer or the network did is -ECONNRESET; our own limits keep their names. */
static int io_error(const struct tcp_conn *c, int res, bool expired)
{
	if (c->closing)
		return -ECANCELED;
	if (expired)
		return -ETIMEDOUT;
	return res == -EPIPE || res == -ENOTCONN ? -ECONNRESET : res;
}

/* One timer serves many ops: it is only moved forward, and looks at the deadline when it fires. */
static void deadline_watch(struct tcp_conn *c, struct rtimer *t, uint64_t deadline_ns)
{
	if (deadline_ns && (!t->deadline_ns || t->deadline_ns > deadline_ns))
		reactor_timer_set(c->x.reactor, t, deadline_ns);
}

/* True: @deadline_ns has passed; else the timer is set anew. */
static bool deadline_check(struct tcp_conn *c, struct rtimer *t, uint64_t deadline_ns)
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
		return io_error(c, res, c->in_expired);
	if (c->connecting || !c->in_min)
		return res;
	if (c->in_got >= c->in_min)
		return (int)c->in_got;
	return c->in_expired ? -ETIMEDOUT : -ECONNRESET; /* ended in the middle */
}

static void set_socket_options(int fd)
{
	const int opt[][3] = {{IPPROTO_TCP, TCP_NODELAY, 1},
			      {SOL_SOCKET, SO_KEEPALIVE, 1},
			      {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
			      {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S},
			      {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES},
			      {IPPROTO_TCP, TCP_NOTSENT_LOWAT, UNSENT_MAX}};

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
	set_socket_options(c->fd);
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
	finish(c, op, res);
	conn_maybe_free(c);
}

static void in_expire(struct rtimer *t)
{
	struct tcp_conn *c = container_of(t, struct tcp_conn, in_timer);

	if (!c->in_op || c->closing || !deadline_check(c, t, c->x.recv_deadline_ns))
		return;
	c->in_expired = true;
	reactor_cancel(c->x.reactor, &c->in);
}

static void in_start(struct tcp_conn *c, const struct iovec *iov, int n, uint32_t min, bool whole,
		     struct xop *op)
{
	assert(reactor_is_current(c->x.reactor));
	assert(!c->in_op && !c->closing && n > 0 && n <= XOP_IOV_MAX && min <= LEN_MAX);
	c->in_op = op;
	memcpy(c->in_iov, iov, (size_t)n * sizeof(*iov));
	c->in_first = 0;
	c->in_count = (uint32_t)n;
	c->in_min = min;
	c->in_got = 0;
	c->in_whole = whole;
	c->in_expired = false;
	deadline_watch(c, &c->in_timer, c->x.recv_deadline_ns);
	in_submit(c);
}

static void tcp_recv(struct xconn *x, void *buf, uint32_t len, struct xop *op)
{
	in_start(tcp_of(x), &(struct iovec){buf, len}, 1, 0, false, op);
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

/* ---- send ---- */

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
						    : UNSENT_MAX;

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
	if (n > FLIGHT_IOV)
		n = FLIGHT_IOV;
	list_del(&c->out_late.ready_link);
	if (n)
		memcpy(c->out_flight, c->pieces + c->piece_first, n * sizeof(c->out_flight[0]));
	c->out_msg = (struct msghdr){.msg_iov = c->out_flight, .msg_iovlen = n};
	set_busy(c, true);
	c->out_expired = false;
	deadline_watch(c, &c->out_timer, c->x.send_deadline_ns);
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
	conn_maybe_free(c);
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
		finish(c, op, s->left ? c->out_error : (int)s->total);
	}
}

/* The one send that was stopped: what has gone of it. */
static void out_give_back(struct tcp_conn *c)
{
	struct xop *op = c->out_head;
	const struct sending *s = sending_of(op);

	c->piece_first = c->piece_count = 0;
	c->out_head = s->next;
	finish(c, op, (int)(s->total - s->left));
}

static void room_done(struct tcp_conn *c, int res)
{
	struct xop *op = c->room_op;

	if (res == -EINTR || res == -EAGAIN || res > 0)
		res = 0;
	c->room_op = NULL;
	set_busy(c, false);
	finish(c, op,
	       c->closing || c->out_expired || res < 0 ? io_error(c, res, c->out_expired) : 0);
	conn_maybe_free(c);
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
		c->out_error = io_error(c, 0, c->out_expired);
	else if (res < 0 && !again)
		c->out_error = io_error(c, res, false);
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
	conn_maybe_free(c);
}

static void out_expire(struct rtimer *t)
{
	struct tcp_conn *c = container_of(t, struct tcp_conn, out_timer);

	if (!c->out_busy || c->closing || !deadline_check(c, t, c->x.send_deadline_ns))
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

static void tcp_send(struct xconn *x, const struct iovec *iov, int n, struct xop *op)
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
	assert(s->total <= LEN_MAX);
	if (c->out_head)
		sending_of(c->out_tail)->next = op;
	else
		c->out_head = op;
	c->out_tail = op;
	if (!c->out_busy) /* also when failing: the op comes back by way of the ring */
		reactor_late(x->reactor, &c->out_late);
}

static void tcp_push(struct xconn *x, const struct iovec *iov, int n, struct xremote to,
		     struct xop *op)
{
	(void)to;
	tcp_send(x, iov, n, op);
}

static void tcp_send_stop(struct xconn *x)
{
	struct tcp_conn *c = tcp_of(x);

	if (c->out_stopped || c->closing || c->out_error ||
	    (!c->room_op && (!c->out_head || c->out_head != c->out_tail)))
		return;
	c->out_stopped = true;
	if (c->out_busy)
		reactor_cancel(x->reactor, &c->out);
}

static void tcp_send_room(struct xconn *x, struct xop *op)
{
	struct tcp_conn *c = tcp_of(x);

	assert(reactor_is_current(x->reactor) && !c->closing && !c->out_head && !c->out_busy);
	c->room_op = op;
	c->out_expired = false;
	deadline_watch(c, &c->out_timer, x->send_deadline_ns);
	out_await_room(c);
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
	if (list_is_linked(&c->out_late.ready_link))
		out_submit(c); /* what was sent before the close may still go */
	if (c->out_busy)
		reactor_cancel(x->reactor, &c->out);
	conn_maybe_free(c);
}

static struct tcp_conn *conn_new(struct reactor *r, int fd)
{
	struct tcp_conn *c = (struct tcp_conn *)calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->x.ops = &tcp_ops;
	c->x.reactor = r;
	c->fd = fd;
	c->unsent_max = UNSENT_MAX;
	c->in.done = in_done;
	c->out.done = out_done;
	rop_init(&c->out_late, out_late_step, NULL);
	c->in_timer.fire = in_expire;
	c->out_timer.fire = out_expire;
	return c;
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
	deadline_watch(c, &c->in_timer, deadline_ns);
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
};

/* ---- listen ---- */

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
	struct tcp_conn *c = NULL;

	if (!l->closed && l->conns < l->opts.max_conns)
		c = conn_new(l->reactor, fd);
	if (!c) {
		(void)close(fd);
		if (!l->closed && l->opts.refused)
			l->opts.refused(l->opts.arg);
		return;
	}
	c->listener = l;
	l->conns++;
	c->x.peer.len = sizeof(c->x.peer.sa);
	(void)getpeername(fd, (struct sockaddr *)(void *)&c->x.peer.sa, &c->x.peer.len);
	note_local(c); /* its options are the listening socket's */
	l->opts.accepted(l->opts.arg, &c->x);
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
		listener_maybe_free(l);
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
	listener_maybe_free(l);
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
	set_socket_options(fd);
	rc = tcp_listen_fd(r, o, fd, ret, err);
	if (rc == 0 && ret_bound)
		*ret_bound = bound;
	return rc;
}
