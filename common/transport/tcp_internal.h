/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* tcp_internal - shared by tcp.c (connect, receive, close), tcp_send.c and tcp_listen.c; no other
 * file includes it. */
#include "common/transport/transport.h"

#define TCP_LEN_MAX INT32_MAX
#define TCP_FLIGHT_IOV 32          /* pieces of one sendmsg: several small sends go out together */
#define TCP_UNSENT_MAX (512 << 10) /* TCP_NOTSENT_LOWAT of a socket of ours */

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
	int unsent_max;       /* of TCP_UNSENT_MAX and so on */
	int out_error;        /* sticky: later sends fail alike */
	struct iovec *pieces; /* owned, [first, count) are to be sent */
	uint32_t piece_first, piece_count, piece_cap;
	struct iovec out_flight[TCP_FLIGHT_IOV];
	struct msghdr out_msg;
	struct rtimer out_timer;
};

static inline struct tcp_conn *tcp_of(struct xconn *c)
{
	return container_of(c, struct tcp_conn, x);
}

/* tcp.c */

/* Sets what every TCP socket of ours is set to; accepted sockets inherit it. */
void tcp_set_options(int fd);
/* A connection that @l has accepted. It owns @fd and counts in l->conns. NULL: out of memory, and
 * @fd is still the caller's. */
struct xconn *tcp_accepted_conn(struct tcp_listener *l, int fd);
/* Frees a closed connection once all its ops are back and no callback of ours is on the stack. */
void tcp_conn_maybe_free(struct tcp_conn *c);
/* Calls op->done(); the connection outlives the call. */
void tcp_finish(struct tcp_conn *c, struct xop *op, int res);
/* The error of an op. What the peer or the network did is -ECONNRESET; our own limits keep their
 * names. */
int tcp_io_error(const struct tcp_conn *c, int res, bool expired);
/* One timer serves many ops: it is only moved forward, and looks at the deadline when it fires. */
void tcp_deadline_watch(struct tcp_conn *c, struct rtimer *t, uint64_t deadline_ns);
/* When @t fires. True: @deadline_ns has passed; else the timer is set anew. */
bool tcp_deadline_passed(struct tcp_conn *c, struct rtimer *t, uint64_t deadline_ns);

/* tcp_send.c: functions of tcp_ops, and of a connection's begin and end */

void tcp_send(struct xconn *x, const struct iovec *iov, int n, struct xop *op);
void tcp_push(struct xconn *x, const struct iovec *iov, int n, struct xremote to, struct xop *op);
void tcp_send_stop(struct xconn *x);
void tcp_send_room(struct xconn *x, struct xop *op);
void tcp_send_init(struct tcp_conn *c);
/* What was sent before the close may still go; what is under way is cancelled. */
void tcp_send_close(struct tcp_conn *c);

/* tcp_listen.c */

/* One of l->conns is gone; the last one frees a closed listener. */
void tcp_listener_conn_gone(struct tcp_listener *l);
