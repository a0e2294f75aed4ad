/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * verbs - RDMA reliable connections behind the transport interface
 *
 * Idea: rdma_cm makes RC queue pairs; control messages go by SEND under strict credits; payload
 * goes by RDMA READ (pull) and RDMA WRITE (push), and always the *passive* side drives: it accepted
 * with no responder resources and no remote access, so nobody can read or write its memory. The
 * active side exposes slots of its pool, stretch by stretch: verbs_expose(). The two roles use two
 * protection domains: a key of one is worthless on a connection of the other. With VERBS_ONESIDED
 * the active side READs, too, what the passive one has opened to it by a window, and nothing else.
 *
 * Messages: the protocol above defines them; the transport needs to know only where a message has
 * its 16-bit cumulative credit grant, which it fills in and reads, and a message that carries
 * nothing else. Payload that rides along (eager) starts behind exactly the receiver's message_max
 * bytes and lands in a pool slot of its own.
 * Liveness: a connection that has nothing to say sends a heartbeat every VERBS_HEARTBEAT_NS; one
 * that heard nothing for VERBS_PATIENCE_NS fails with -ETIMEDOUT.
 * Credits: serial numbers modulo 2^16 of receives ever granted, told in the handshake and in every
 * message. A sender without a credit waits (one is kept for control messages, and the last one for
 * heartbeats); RNR is a bug and counted. A peer that sends without one is cut off (-EPROTO). A
 * connection is granted 4 receives at first, twice as many whenever its peer has used up nearly
 * all, `credits` at most; it halves, down to 4, with a heartbeat after 5 s of silence, and with
 * each message while few are left.
 * The shared queue grows up to four times its depth, as the pool has slots.
 * Ownership: struct verbs belongs to its reactor; connections close themselves down (flush, marker,
 * destroy) after xconn_close().
 * Threading: the reactor of struct verbs, but verbs_probe(). Several reactors share one *control
 * thread*, which sleeps on the descriptors of the connection manager and of the devices' events:
 * it makes, accepts and destroys all queue pairs, and allocates and registers what they need. It
 * gives a request for a connection to the reactor that has the fewest. A reactor itself calls the
 * device only to post, to poll, to ask for events, and to put a queue pair into error.
 * Devices: each reactor has one completion queue, one shared receive queue and one registration of
 * its pool on each. They are made in verbs_new(); for a device that appears later, when the first
 * connection comes over it; so are all where nobody listens. A device that fails or goes takes its
 * connections with it (-ENODEV). When the last of them has ended, what was made on the device is
 * destroyed, so that its driver can go, too; the next connection makes it again. A listener on one
 * address listens again within a second or two after that has a device.
 * Limits: connections per reactor by CQ (a quarter of it is for sending) and SRQ size; above,
 * requests are rejected with VERBS_BUSY.
 * Source: rdma_cm(7), ibv_post_send(3), hdfs-wire of this project: docs/wire.md.
 */
#include "common/base/clock.h"
#include "common/transport/transport.h"

#define VERBS_MESSAGE_MAX 2048u /* most control bytes of a message we ever take or send */
#define VERBS_PAYLOAD_MAX 8192u /* payload that rides along */
#define VERBS_PRIVATE_MAX 120u  /* private data of an accept; a connect request takes 56 */
#define VERBS_RAILS 4u          /* addresses that a node tells of itself */
#define VERBS_HEARTBEAT_NS (10 * NS_PER_S)
#define VERBS_PATIENCE_NS (40 * NS_PER_S)

struct verbs_hello {          /* what each side tells the other in the private data */
	uint16_t credits;     /* receives granted at the start */
	uint32_t message_max; /* control bytes its receives take */
	uint32_t payload_max; /* payload its receives take behind them; 0: none */
	/* request: READs it answers at a time; accept: those that will come */
	uint8_t read_depth;
	uint8_t role; /* the protocol's */
	/* accept: which process this is, 0: it does not say; and where else it listens (IPv6, or
	 * IPv4 mapped into it), at the same port */
	uint64_t node;
	uint8_t rails;
	uint8_t rail[VERBS_RAILS][16];
	/* request: what the dialer offers; accept: what both have; bits of enum verbs_feature */
	uint32_t features;
};

/* Numbers as on the wire. */
enum verbs_feature {
	/* The dialer READs memory of the acceptor, which that has opened to it by a window. Such
	 * connections are accepted with responder resources, and their queue pairs answer READs. */
	VERBS_ONESIDED = 1u << 1,
};

enum verbs_reject { VERBS_MALFORMED, VERBS_VERSION, VERBS_BUSY, VERBS_STOPPING, VERBS_NO_READ };

/* how the protocol above writes these things; docs/wire.md sections 2, 3, 7 */
struct verbs_protocol {
	uint32_t credit_offset; /* of the be16 cumulative grant in every message */
	const void *heartbeat;  /* a message that only carries credits */
	uint32_t heartbeat_len;
	/** Is it a message that ends something? Such have a credit of their own, and go before
	 *  others that wait for one, but not before those of the same stream, which is told of
	 *  every message. NULL: there are none. */
	bool (*is_control)(const void *message, uint32_t len, uint64_t *ret_stream);
	/** Bytes written to @out. */
	size_t (*hello_encode)(const struct verbs_hello *h, uint8_t out[VERBS_PRIVATE_MAX]);
	/** -EPROTONOSUPPORT: another version; -EPROTO: malformed. */
	int (*hello_decode)(const void *buf, size_t len, struct verbs_hello *ret);
	size_t (*reject_encode)(enum verbs_reject why, uint8_t out[VERBS_PRIVATE_MAX]);
	/** A sentence for people; "" when it is not ours. */
	const char *(*reject_text)(const void *buf, size_t len);
	/** Did the peer not understand the request? Then one that offers less may do. NULL: none of
	 *  them says so. */
	bool (*reject_is_malformed)(const void *buf, size_t len);
};

struct verbs;

/* What an operator may say about it; a key of the configuration each, verbs_tuning_read() */
struct verbs_tuning {
	/* of the packets of connections that this side makes; the other side answers with the same.
	 * On RoCE the DSCP, two bits up; switches and the service level follow it. -1: as the
	 * system has it (rdma_cm's default_roce_tos) */
	int traffic_class;
	uint8_t ack_exp; /* a packet is sent again after 4.096 us << it */
	uint8_t retries; /* so often, 0 to 7; then the connection fails */
	/* PCIe writes may pass each other: only completions are looked at, and they pass none */
	bool relaxed;
	/* a listener on all addresses tells those of its RDMA devices, of these alone when there
	 * are any (of the same form as verbs_hello.rail); who connects uses what it is told */
	bool use_rails;
	uint8_t rails;
	uint8_t rail[VERBS_RAILS][16];
};

extern const struct verbs_tuning verbs_tuning_default;
struct conf;
/** -EINVAL: a key has a value that it cannot have. */
int verbs_tuning_read(const struct conf *c, struct verbs_tuning *ret, struct err *err);

/** What dfs.rdma.polling says a reactor does whose completion queues are empty: spin_us of its
 *  options. -EINVAL: something else. */
int verbs_polling_read(const struct conf *c, int32_t *ret_spin_us, struct err *err);

/* Does a peer get at slots by memory windows (type 2), one for each stretch of a request? */
enum verbs_windows {
	VERBS_WINDOWS_OFF,  /* no: by the keys of the slabs, with rights to all of them */
	VERBS_WINDOWS_AUTO, /* on devices that have them */
	VERBS_WINDOWS_ON,   /* a device without is not used: -ENOTSUP */
};
/** What dfs.rdma.windows says. -EINVAL: something else. */
int verbs_windows_read(const struct conf *c, enum verbs_windows *ret, struct err *err);

struct verbs_opts {
	const struct verbs_protocol *protocol; /* outlives verbs */
	uint8_t role;                          /* said when connecting */
	uint8_t accept_role;                   /* said when accepting */
	struct pool *pool;                     /* outlives verbs; its slabs are registered */
	bool passive;        /* will listen: register the slabs for our own READs and WRITEs */
	bool active;         /* will connect: register them for the peer, too */
	bool peer_may_write; /* active only: the peer may RDMA WRITE (a client that reads) */
	/* active only, or NULL: slots that the peer may RDMA WRITE, when `pool` is not to be open
	 * to that; outlives verbs */
	struct pool *landing;
	enum verbs_windows windows;        /* active only */
	uint32_t features;                 /* offered when connecting */
	uint32_t accept_features;          /* taken from those who offer them */
	uint32_t srq_depth;                /* passive: receives that are always there; 0: 1024 */
	uint32_t credits;                  /* most receives granted to one connection; 0: 32 */
	const struct verbs_tuning *tuning; /* copied; NULL: the default */
	/* of another reactor, whose control thread does for this one, too; NULL: a new one. The
	 * last of them ends it */
	struct verbs *share;
};

/** Is there an RDMA device? -ENODEV with cause and cure. */
int verbs_probe(struct err *err);
uint32_t verbs_device_count(void);
/** -ENODEV; -ENOMEM with RLIMIT_MEMLOCK named. */
int verbs_new(struct reactor *r, const struct verbs_opts *o, struct verbs **ret, struct err *err);
/** Connections must be closed; waits for the last of them inside, at most a few seconds. False: a
 *  device does not let go. Slots that it has are not given back, and may be written to: the pool
 *  stays as it is. Accepts NULL. */
bool verbs_free(struct verbs *v);

/** rdma_listen on @o->addr (the port of the TCP listener). max_conns is honoured. The first one of
 *  those that share a control thread listens, the others join it: of those that have receives left
 *  for it, the one with the fewest connections gets a request. */
int verbs_listen(struct verbs *v, const struct xlistener_opts *o, struct err *err);
/** Stop accepting. When nobody listens any more, requests that are on their way are rejected with
 *  VERBS_STOPPING. */
void verbs_unlisten(struct verbs *v);
/** As xport_ops.connect; negative: -ENOMEM. done(): 0, -EHOSTUNREACH (no RDMA route), -ECONNREFUSED
 *  (rejected: nobody listens or a reject of the protocol's), -ETIMEDOUT, -ENODEV, -EAGAIN (the
 *  peer is too old for the features; it is remembered for a while, and the next connection offers
 *  none); verbs_reason() says more. */
int verbs_connect(struct verbs *v, const struct net_addr *to, uint64_t deadline_ns, struct xop *op,
		  struct xconn **ret);
/** What the peer said when the connection was made. */
const struct verbs_hello *verbs_peer(const struct xconn *c);
/** Time from posting the first message to its acknowledgement by the peer's device; 0 until then,
 *  and on passive connections. */
uint64_t verbs_rtt_ns(const struct xconn *c);
/** What the last failed step was, for a person: "rejected: busy"; "" when none. */
const char *verbs_reason(const struct xconn *c);

/** Name a slot of `pool` or `landing` by the key of its slab; the connection must be active. With
 *  windows such a key lets a peer do nothing. */
struct xremote verbs_remote(const struct xconn *c, const struct slot *s, uint32_t off);

/* what the peer may do through a window */
enum verbs_right { VERBS_PEER_WRITES, VERBS_PEER_READS };

/* A stretch of a slot that a request names: embedded in the request, and zero while there is none.
 * Where slots go by windows, the peer can touch the stretch, and nothing beside it, from before the
 * request is sent until verbs_cover(), which is for the answer. The slot has a reference until the
 * device has closed the window: nobody uses it for anything else before. Where they do not, the
 * stretch is named by the key of its slab, and nothing ends that. */
struct verbs_exposure {
	struct slot *slot; /* of `pool` or `landing` */
	uint32_t off, len; /* len > 0 */
	enum verbs_right right;
	/* NULL, or called when nobody can touch it any more: 0, or -errno when the connection is
	 * lost. The exposure may be gone by then. Not without a window. */
	void (*closed)(void *arg, int res);
	void *arg;
	struct verbs_window *window; /* NULL: none, covered, or the connection is lost */
};
/** Takes effect before what is sent from now on. -EAGAIN: no window is spare, see verbs_turn;
 *  -ECONNRESET. */
int verbs_expose(struct xconn *c, struct verbs_exposure *e, struct xremote *ret);
/** The answer is there. @now: at once; else with what is sent next, 1 ms later at most, so that it
 *  takes no doorbell of its own. Harmless when nothing is exposed. A connection that is lost covers
 *  all that was exposed on it, when its queue pair is destroyed. */
void verbs_cover(struct verbs_exposure *e, bool now);

/* Windows are few: who makes a request reserves those for it, then exposes, then gives back the
 * reservation. Zero it, set rop. */
#define VERBS_EXPOSURES 2u /* most of one request, of which a reservation is */
struct verbs_turn {
	struct list link;
	struct rop *rop; /* made ready when those who waited before have theirs */
	bool has;        /* it has a reservation */
	/* private: where it has a reservation, or waits; and for which connection */
	struct vmemory_on *on;
	struct vconn *conn;
};
/** True: there is one, or @c's device needs none. False: so many are not spare, or others wait, or
 *  @c has its share. */
bool verbs_turn_take(struct xconn *c, struct verbs_turn *t);
/** Wait in line; verbs_turn_take() succeeds when the rop was made ready for it. */
void verbs_turn_wait(struct xconn *c, struct verbs_turn *t);
/** The reservation is used, or not needed; or wait no longer. Harmless. */
void verbs_turn_end(struct verbs_turn *t);
/** Three eighths of all, for as many requests of this connection as are not answered: there are no
 *  more for it, also while some are spare. */
bool verbs_has_its_share(const struct xconn *c);

/* Memory that is no slot. No peer may touch it until a window is opened: that lets the peer of one
 * connection write to one stretch of it, or read it, until it is closed. It is registered on the
 * devices that are open, by the control thread; on one that is opened later, before its first
 * connection; not any more on one that is closed. So connections over a device that came back have
 * it, too. A
 * device without such windows (type 2) has no such memory, and one that refuses it when it is
 * opened is named in the log: there verbs_window_get() finds none. */
#define VERBS_MEMORIES 256u      /* most of one struct verbs */
#define VERBS_MEMORY_WINDOWS 24u /* of one memory, on each device */
struct verbs_memory;
struct verbs_window;
/** Any thread but the reactor's; it takes as long as the device needs to pin the pages, and no
 *  connection is made or ended meanwhile, but between this and the next one. While no device is
 *  open, it is tried on one and let go of. -ENODEV there is none; -ENOTSUP none has windows;
 *  -EINVAL none registers so many bytes; -ENOMEM with RLIMIT_MEMLOCK named, or the device's
 *  windows; -EFAULT no memory of ours, to write to; -ENOSPC VERBS_MEMORIES are there. */
int verbs_memory_new(struct verbs *v, void *p, size_t len, struct verbs_memory **ret,
		     struct err *err);
/** The same for connections that were accepted: their peers may be let READ, and nothing else. On
 *  the devices that are open when it is called, or later. -ENODEV none is; else as above. */
int verbs_memory_lend(struct verbs *v, void *p, size_t len, struct verbs_memory **ret,
		      struct err *err);
/** The same of @len bytes of a dma-buf, from @offset on, which this process has mapped at @map: by
 *  such addresses they are named. @fd stays the caller's. -ENOTSUP: no device takes such; -EBADF,
 *  -EINVAL, ...: as the driver says. */
int verbs_memory_new_dmabuf(struct verbs *v, int fd, uint64_t offset, void *map, size_t len,
			    struct verbs_memory **ret, struct err *err);
/** As above. All its windows have been given back. Before verbs_free(). Accepts NULL. */
void verbs_memory_free(struct verbs_memory *m);
/** The same without waiting: gone() is called on the control thread when no device knows of the
 *  memory any more; that is before verbs_free(). @m is not NULL. */
void verbs_memory_free_later(struct verbs_memory *m, void (*gone)(void *arg), void *arg);
/* The rest on the reactor. */
/** Of a connection that is up, and has VERBS_ONESIDED: so many READs at a time may this side post
 *  (it dialled) or does it answer (it was dialled); 0: none. Those beyond wait in a queue. */
uint32_t verbs_read_depth(const struct xconn *c);
struct verbs_read {
	struct xremote from;
	void *to;                     /* stays until done() */
	const struct verbs_memory *m; /* that @to is in; NULL: a slot of the pool */
	uint32_t len;                 /* > 0 */
	/* it may wait in the queue: when its turn comes at this time, or later, nothing is posted,
	 * and done(-ETIME). 0: there is no such time */
	uint64_t until_ns;
};
/** READ. False: r->m is not on the device of @c, and nothing was begun. */
bool verbs_read(struct xconn *c, const struct verbs_read *r, struct xop *op);
/** For use on @c, which is up. NULL: all are in use, or @c's device does not have the memory. It
 *  goes back before xconn_close(). */
struct verbs_window *verbs_window_get(const struct verbs_memory *m, const struct xconn *c);
/** Takes effect before what is sent from now on. */
struct xremote verbs_window_open(struct xconn *c, struct verbs_window *w, void *p, uint32_t len,
				 enum verbs_right right);
/** done() not negative: the peer cannot get at it any more. Negative: the connection is
 *  lost, see verbs_window_revoke(). */
void verbs_window_close(struct xconn *c, struct verbs_window *w, struct xop *op);
/** It was never opened, or is closed. */
void verbs_window_put(struct verbs_window *w);
/** Instead of both when the connection is lost (xconn_give_up()), before xconn_close(). The control
 *  thread takes the window back and makes it anew, before the queue pair goes; what is on its way
 *  ends with that: the memory is the owner's when gone() has been called, not before. */
void verbs_window_revoke(struct verbs_window *w);

/** The payload that rode along with the message the last recv delivered: a slot (gives the
 *  reference) and its length, or NULL. */
struct slot *verbs_take_payload(struct xconn *c, uint32_t *ret_len);
/** Send a message of exactly the peer's message_max bytes with @len <= its payload_max bytes of a
 *  slot riding along; done() when the slot is free again. */
void verbs_send_payload(struct xconn *c, const struct iovec *message, const void *payload,
			uint32_t len, struct xop *op);

extern const struct xport_ops verbs_ops; /* connect is NULL: verbs_connect() */
