/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * capsule_internal - shared by capsule_link.c (a connection's messages), capsule_conn.c (acceptor),
 * capsule_write.c, capsule_read.c (its streams), capsule_view.c (what it lets its peer READ),
 * capsule_active.c (dialer), capsule_sink.c, capsule_sink_send.c, capsule_source.c (what uses it)
 * and capsule_port.c (start and stop)
 *
 * A *link* is one connection with its messages, whichever end this node is; the acceptor's end is a
 * capsule_conn, the dialer's a capsule_dial with its users. caps is the RDMA port of one reactor.
 */
#include "common/base/clock.h"
#include "common/base/cursor.h"
#include "common/link/rails.h"
#include "common/transport/verbs.h"
#include "common/wire/capsule.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"
#include "datanode/capsule/capsule_port.h"

#define CAPS_STREAMS_MAX 256 /* of one connection; those beyond wait for their turn */
#define CAPS_WAITING_MAX 256 /* requests of one connection; more are a violation */
/* requests of one connection that are not answered; an answer counts until it is sent */
#define CAPS_UNANSWERED_MAX (CAPS_STREAMS_MAX + CAPS_WAITING_MAX)
/* of a connection that we made: its streams end at the node a little later than here */
#define CAPS_USERS_MAX 192u
/* of one stream, not yet with the engine; the engine takes 128 */
#define CAPS_PIECES_MAX 256
#define CAPS_AVOID_MAX 64 /* nodes remembered to have no RDMA */
#define CAPS_AVOID_NS (300 * NS_PER_S)
#define CAPS_DIAL_MS 1000                /* then TCP; dfs.rdma.peer.connect.timeout */
#define CAPS_XFER_NS (60 * NS_PER_S)     /* one RDMA operation */
#define CAPS_LINGER_NS (500 * NS_PER_MS) /* an ERROR capsule is given time to arrive */
#define CAPS_VIEWS_MAX 32u               /* of one connection */
#define CAPS_HOT_MAX 128u                /* blocks of which one reactor gives views */
#define CAPS_VIEW_MS 10000u              /* a lease */
#define CAPS_COMING_MAX 16u              /* blocks that are being made ready for one connection */

struct capsule_rails { /* of all reactors */
	struct rails rails;
	atomic_uint ports; /* the last one frees it */
};

struct capsule_port {
	struct engine_core *core;
	struct verbs *verbs;
	struct list conns, dials;
	/* owned; slots that nodes which we read from may write to; NULL: none */
	struct pool *landing;
	struct capsule_rails *rails;
	bool to_peers, stopping;
	uint64_t dial_ns;
	struct {
		struct net_addr addr;
		uint64_t until_ns;
	} avoid[CAPS_AVOID_MAX];
	uint32_t avoid_next;
	struct list hot; /* private to capsule_view.c, as these are */
	uint32_t hot_count,
		hot_refusals;  /* refusals: memory that the device did not take, in a row */
	uint64_t hot_again_ns; /* not before */
	struct rtimer hot_timer;
	atomic_uint hot_held; /* registrations that a device is to let go of */
};

/* One connection: what is received and sent on it. Embedded; freed by its owner after `gone`. */
struct capsule_peer_link {
	struct capsule_port *caps;
	struct xconn *xc; /* NULL once closed */
	struct rop *rop;  /* of the owner */
	struct xop recv_op;
	struct rtimer linger;
	/* the connection is about to be closed; or NULL */
	void (*closing)(struct capsule_peer_link *l);
	bool receiving;
	bool ending;      /* ERROR is sent: take nothing more, close soon */
	bool gone;        /* the queue pair is destroyed */
	bool given_up;    /* private: link_close() is at it */
	int rc;           /* -errno once lost */
	uint32_t got;     /* bytes received and not yet handled */
	uint32_t answers; /* to requests, that wait for a credit of the peer */
	char peer[NET_TEXT_MAX];
	uint8_t in[VERBS_MESSAGE_MAX];
};

void link_init(struct capsule_peer_link *l, struct capsule_port *caps, struct rop *rop);
/** It has a connection now (up or coming up). */
void link_attach(struct capsule_peer_link *l, struct xconn *xc);
static inline void link_ready(struct capsule_peer_link *l)
{
	reactor_ready(l->caps->core->reactor, l->rop);
}
/** -ECONNRESET, -ENOMEM, -EMSGSIZE (larger than the peer takes). */
int link_send(struct capsule_peer_link *l, const struct capsule *m);
/** The next message, decoded; its payload, if any, is the caller's slot to put. False: none yet,
 *  one is waited for, or the connection is lost. Handle it before asking again. */
bool link_receive(struct capsule_peer_link *l, struct capsule *ret, struct slot **ret_payload);
/** Lost or given up: the first @rc stays. gone follows. */
void link_close(struct capsule_peer_link *l, int rc);
/** The peer broke the protocol: tell it and close. */
void link_refuse(struct capsule_peer_link *l, const char *why);
/** The deadline of RDMA operations submitted next. */
void link_extend(struct capsule_peer_link *l);

static inline struct capsule_bytes capsule_text(const char *text)
{
	size_t len = text ? strlen(text) : 0;

	return (struct capsule_bytes){text,
				      (uint32_t)(len < CAPSULE_TEXT_MAX ? len : CAPSULE_TEXT_MAX)};
}

/* ---- acceptor ---- */

struct capsule_conn {
	struct capsule_peer_link link; /* first */
	struct rop rop;
	struct list in_caps;
	struct list streams;
	uint32_t stream_count;
	struct list waiting; /* requests, until one of the streams has ended */
	uint32_t waiting_count;
	struct buffers_share share; /* of all its streams */
	bool dropped;               /* the streams know that the connection is lost */
	struct list views;          /* private to capsule_view.c */
	uint32_t view_count, coming_count;
};

struct capsule_stream { /* a write or a read in progress */
	struct list link;
	struct capsule_conn *conn;
	uint64_t id; /* 0: answered for good, the dialer may use the id again */
	bool is_write, ready;
	/** Do what can be done; true: over, nothing of it is in flight. */
	bool (*step)(struct capsule_stream *s);
	void (*free)(struct capsule_stream *s);
	/** The dialer cancelled (-ECANCELED) or is lost: stop. May come more than once. */
	void (*cancel)(struct capsule_stream *s, int rc);
};

static inline void stream_ready(struct capsule_stream *s)
{
	s->ready = true;
	link_ready(&s->conn->link);
}
void capsule_stream_add(struct capsule_conn *c, struct capsule_stream *s, uint64_t id);
void capsule_accept(void *caps, struct xconn *xc);

/** Start it, or answer why not. */
void capsule_write_start(struct capsule_conn *c, const struct capsule *m);
/** A piece. Takes @payload, always. -EPROTO: the connection is to end. */
int capsule_write_piece(struct capsule_stream *s, const struct capsule *m, struct slot *payload);
void capsule_read_start(struct capsule_conn *c, const struct capsule *m);

/* ---- views: cached blocks that the dialer READs itself (capsule_view.c) ---- */

/** Answer @m, a VIEW, at once: here it is, not yet, or no. */
void capsule_view(struct capsule_conn *c, const struct capsule *m);
void capsule_view_end(struct capsule_conn *c, const struct capsule *m);
/** For link.closing: the windows go, before the queue pair does. */
void capsule_views_lost(struct capsule_peer_link *l);
/** The queue pair is gone, and nobody reads any more. */
void capsule_views_free(struct capsule_conn *c);
void capsule_hot_init(struct capsule_port *caps);
/** At the end: the registrations are let go of, without a wait (hot_held counts those that are not
 *  yet); then the copies, when there are none of them. */
void capsule_hot_end(struct capsule_port *caps);
void capsule_hot_free(struct capsule_port *caps);

/* ---- dialer (capsule_active.c) ---- */

/** The message of an op that was encoded for a stream, which has version, opcode and length before
 * it. */
static inline struct capsule_bytes capsule_op(const uint8_t *op, size_t len)
{
	struct rd r = rd_init(op + 3, len - 3);
	const uint32_t n = (uint32_t)rd_varint(&r);

	return (struct capsule_bytes){r.p, n};
}

struct capsule_dial;
struct capsule_user;

struct capsule_user_ops {
	/** The connection stands. */
	void (*up)(struct capsule_user *u);
	/** Is it an answer to the user? False: ask the next one. */
	bool (*answer)(struct capsule_user *u, const struct capsule *m);
	/** Nothing more will come or go. The peer may still touch memory that was named to it until
	 * gone(). */
	void (*lost)(struct capsule_user *u, int rc);
	/** The queue pair is destroyed, and the user is on no connection any more. */
	void (*gone)(struct capsule_user *u);
};
struct capsule_user { /* of a connection to another node; embedded */
	const struct capsule_user_ops *ops;
	struct capsule_dial *dial; /* NULL: none, or it is destroyed */
	struct list in_dial;
};

/** On the connection to @node, which is made when there is none; up() follows, or lost() and
 *  gone().
 *  -EHOSTUNREACH: that node has no RDMA, or had none a while ago; -ENOMEM. */
int capsule_user_join(struct capsule_port *caps, const struct dn_target *node,
		      struct capsule_user *u);
/** Nothing of the user is known to the peer. Harmless when it is on no connection. */
void capsule_user_leave(struct capsule_user *u);
/** NULL: the connection is lost. */
struct capsule_peer_link *capsule_user_link(const struct capsule_user *u);
bool capsule_user_is_up(const struct capsule_user *u);
/** An id for the next request; the connection must be there. */
uint64_t capsule_user_id(struct capsule_user *u);
/** Nothing less takes our memory back: end the connection. */
void capsule_user_hang_up(struct capsule_user *u, int rc);

void capsule_dials_close(struct capsule_port *caps, bool idle_only);
/** After verbs_free(): every queue pair is gone. */
void capsule_dials_free(struct capsule_port *caps);
