/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* verbs_internal - shared by the sources of verbs; no other file includes it.
 *
 * On the reactor: verbs.c (completions, the transport calls), verbs_post.c (work requests),
 * verbs_conn.c (connections begin and end, mail), verbs_rx.c (receives and their grants).
 * On the control thread: verbs_control.c (the thread, mail, devices' events), verbs_cm.c (the
 * connection manager) and verbs_window.c (memory that is no slot; its windows are the reactor's).
 * verbs_expose.c has the windows of slots, on the reactor; the control thread makes them, and with
 * the device lets go of them and of turns that are left. verbs_windows.c makes all windows.
 * verbs_dev.c makes what a reactor has on a device, on either.
 *
 * A connection belongs to its reactor. The control thread has what is marked C, and works on it
 * when it is asked (todo); it answers by mail. What is marked M it writes before the mail that
 * tells of it, and never after. */
#include <assert.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <string.h>

#include "common/transport/credit.h"
#include "common/transport/verbs.h"

#define VERBS_CONNS_MAX 8192u
#define VERBS_SQ_DEPTH 128u      /* power of two */
#define VERBS_SIGNAL_EVERY 32u   /* never more unsignalled work requests in a row */
#define VERBS_TX_BUFS 1024u      /* per device: messages too long to go inline */
#define VERBS_ACTIVE_CREDITS 64u /* receives an active connection posts for its own */
#define VERBS_CREDITS_MAX 4096u
#define VERBS_INLINE_WANTED 256u
#define VERBS_QPN_BUCKETS 1024u
#define VERBS_DRAIN_NS (3 * NS_PER_S)
#define VERBS_BATCH 32
#define VERBS_CREDITS_LEAST 4u /* docs/wire.md section 2 */
#define VERBS_RX_CHUNK 256u    /* receives that are allocated and registered together */
#define VERBS_RX_CHUNKS 64u    /* most of a device and reactor */
#define VERBS_OWN_PASSIVE 16u  /* receives of a connection to us, where there is no shared queue */
#define VERBS_PLAIN 16u        /* peers that are remembered to be too old for our features */
#define VERBS_CQES_STEP 16u    /* entries of the completion queue that a connection takes at once */
/* Windows for slots that a reactor has on a device, at most and at least, and its share of those
 * that the device has: other reactors and programs need some */
#define VERBS_WINDOWS_MOST 1024u
#define VERBS_WINDOWS_LEAST 32u
#define VERBS_WINDOWS_SHARE 32u
/* Of a reactor's windows on a device, most of one connection: 3/8 */
#define VERBS_SHARE 3u
#define VERBS_SHARE_OF 8u
#define VERBS_WINDOWS_STEP 64u         /* made at first, and again when half of all are in use */
#define VERBS_COVERS_MOST 16u          /* of a connection; more are not put off */
#define VERBS_COVER_NS (1 * NS_PER_MS) /* so long one is put off, for a chain to go with */

struct vdev;
struct vmemory_on;

/* A receive buffer: SGE 0 takes the message, SGE 1 a payload that rides along, if any does. */
struct vrx {
	struct list link; /* in conn->rxq, dev->rx_due, dev->rx_dry or dev->rx_spare */
	struct vdev *dev;
	struct vconn *conn; /* shared: whose message is in it, or NULL; else its owner */
	uint8_t *buf;
	uint32_t lkey;
	uint32_t idx; /* in dev->rx_chunk, or in conn->rx */
	uint32_t len; /* of the message */
	uint32_t payload_len;
	struct slot *payload;
	bool lands;          /* it has a slot for a payload when it is posted */
	bool shared;         /* in the shared receive queue */
	struct pool_ask ask; /* for a payload */
};

struct vrx_chunk {
	uint8_t *mem;
	struct ibv_mr *mr;
	struct vrx rx[VERBS_RX_CHUNK];
};

enum vkind { V_SEND, V_PULL, V_PUSH, V_MARKER, V_PING, V_BIND, V_UNBIND, V_COVER, V_KINDS };

/* What a caller's xop.priv holds while it is with us. */
struct vreq {
	struct list link;
	/* SEND: message; PULL: local address; PUSH: iovec array; BIND: the window */
	const void *ptr;
	uint64_t addr;     /* remote address; SEND: payload address; BIND: of the stretch */
	uint64_t until_ns; /* PULL: as verbs_read */
	uint32_t rkey;     /* remote key; SEND: message length; BIND, UNBIND: of the window */
	/* PULL, BIND: bytes; PUSH: bytes done so far; SEND: payload length */
	uint32_t len;
	/* PUSH: pieces, next piece; PULL: 1 + verbs_memory.idx of what it goes to, or 0: the pool;
	 * BIND: enum verbs_right */
	uint16_t n, i;
	uint32_t kind;
};

static_assert(sizeof(struct vreq) <= sizeof(((struct xop *)0)->priv), "a request lives in its xop");

static inline struct vreq *vreq_of(struct xop *op)
{
	return (struct vreq *)(void *)op->priv;
}

static inline struct xop *vreq_op(struct vreq *q)
{
	return (struct xop *)(void *)((char *)q - offsetof(struct xop, priv));
}

struct vrec { /* one posted work request */
	enum vkind kind;
	struct xop *op; /* completes with this one, or NULL */
	uint32_t bytes;
	void *txbuf; /* to give back, or NULL */
};

/* Its completion frees something: it may not stay unsignalled behind the last signalled one. */
static inline bool vrec_is_awaited(const struct vrec *rec)
{
	return rec->op || rec->txbuf || rec->kind == V_PING;
}

/* And somebody counts the time until then: not for what the device does by itself. */
static inline bool vrec_is_timed(const struct vrec *rec)
{
	return vrec_is_awaited(rec) && rec->kind != V_COVER;
}

struct verbs_window {
	struct list link; /* on.spare; verbs_control.revoked */
	struct vmemory_on *on;
	struct verbs_window *next; /* in on.renewed */
	struct ibv_mw *mw;         /* NULL: lost */
	uint32_t rkey;
	bool revoked; /* the reactor's, */
	bool queued;  /* and this: the request that opens it is not posted yet */
	struct xop bind_op;
	struct ibv_mr *mr; /* what it is bound to, from verbs_window_open() on */
	/* of a slot's, from verbs_expose() until nobody can touch the slot; the reactor's */
	struct list exposed_link; /* vconn.exposed */
	struct list cover_link;   /* vconn.covers: it is to be closed */
	struct vconn *conn;
	struct verbs_exposure *exposure; /* NULL: covered, or lost */
	struct slot *slot;               /* counted */
	void (*closed)(void *arg, int res);
	void *arg;
	struct xop cover_op;
};

struct vmemory_on { /* memory on one device; or the windows of all slots there */
	struct vdev *dev;
	struct ibv_pd *pd;
	struct ibv_mr *mr;                      /* NULL: each slab has its own */
	struct list spare;                      /* the reactor's */
	_Atomic(struct verbs_window *) renewed; /* by the control thread, to be spare */
	/* the reactor's, of slots: windows in spare; of these, reserved; who waits for some, and
	 * who has reserved some */
	uint32_t spare_count, reserved;
	struct list turns, takers;
	uint32_t count;   /* there may be; the reactor's once it has them */
	atomic_uint made; /* C: of them */
	struct verbs_window window[];
};

enum vstate {
	VC_WAIT_CM,          /* active: the control thread connects; leaves by its mail */
	VC_WAIT_ESTABLISHED, /* passive: it accepts; likewise */
	VC_UP,
	VC_WAIT_FLUSH, /* in error; leaves when the marker's completion is seen, or by deadline */
	VC_WAIT_DESTROYED, /* the control thread destroys the queue pair */
};

/* what a reactor asks of the control thread, done in this order */
enum vtodo { DO_CONNECT = 1, DO_ACCEPT = 2, DO_REJECT = 4, DO_HANG_UP = 8, DO_DESTROY = 16 };
/* what the control thread tells a reactor, heard in this order */
enum vmail {
	MAIL_ADOPT = 1,     /* a request: a connection with its queue pair, not yet accepted */
	MAIL_UP = 2,        /* it is established */
	MAIL_FAILED = 4,    /* mail_rc, mail_why */
	MAIL_LAST_WQE = 8,  /* nothing more comes out of the shared receive queue for it */
	MAIL_DESTROYED = 16 /* the last word: the device has let go of it */
};
enum vcm_state { /* waits for */
		 CM_NONE,
		 CM_ADDRESS, /* rdma_resolve_addr() */
		 CM_ROUTE,   /* rdma_resolve_route() */
		 CM_ANSWER,  /* rdma_connect(), rdma_accept() */
		 CM_UP,
};

struct vconn {
	struct xconn x; /* first */
	struct verbs *v;
	struct vdev *dev;  /* NULL until there is a queue pair */
	struct ibv_qp *qp; /* likewise; the control thread frees it before MAIL_DESTROYED */
	struct rop rop;
	struct rtimer timer;
	struct list link; /* verbs.conns */
	enum vstate state;
	bool active, closing;
	int error; /* first cause, -errno */
	char reason[96];
	uint16_t slot, gen; /* in verbs.table */
	uint64_t connect_deadline_ns, drain_deadline_ns, last_wqe_deadline_ns;
	uint64_t heard_ns, spoke_ns; /* when the last message came and went */
	bool beat;                   /* a heartbeat is due */
	bool last_wqe;               /* it was told */
	struct xop *connect_op, *recv_op;
	void *recv_buf;
	uint32_t recv_len;
	struct verbs_hello peer; /* M */
	uint32_t qpn;            /* of qp; receives that are left tell it when qp is gone */
	struct list qpn_link;    /* verbs.by_qpn */
	/* the control thread's */
	struct rdma_cm_id *id;   /* C */
	enum vcm_state cm_state; /* C */
	struct vdev *cm_dev;     /* M */
	uint32_t features;       /* M: of enum verbs_feature, what both have */
	/* M: READs that the peer may post here; active, C: that were asked for there */
	uint8_t rd_given;
	uint32_t max_inline; /* M */
	uint32_t sq_depth;   /* M */
	/* between both, under verbs_control.lock */
	uint32_t todo, mail;
	struct list todo_link, mail_link;
	int mail_rc;
	char mail_why[96];
	/* receiving */
	struct list rxq;      /* messages not yet taken */
	struct list early;    /* messages that came before MAIL_UP */
	struct slot *payload; /* of the message delivered last */
	uint32_t payload_len;
	struct grant grant;   /* what the peer may send */
	uint16_t first_grant; /* of it, told when the connection is made; never changes then */
	struct vrx *rx;       /* M: its own buffers: active, or no shared queue */
	/* C: before they are posted. They may come back before MAIL_UP, with what is marked M */
	atomic_bool rx_made;
	uint8_t *rx_mem;      /* C */
	struct ibv_mr *rx_mr; /* C */
	uint32_t rx_count;    /* M */
	/* sending */
	/* vreq: control messages that go first; sends, pushes and windows in order; windows that
	 * are closed, which wait for none of these; pulls */
	struct list ctlq, txq, shutq, rdq;
	struct credit credit;      /* what we may send */
	uint32_t rd_used, rd_max;  /* rd_max: M */
	uint64_t ping_ns, rtt_ns;  /* active: when the first message was posted, what it took */
	uint32_t sq_head, sq_tail; /* free running */
	uint32_t cqes; /* of the completion queue, for what is in sq and comes into it */
	uint32_t unsignalled;
	uint32_t awaited; /* posted requests that somebody waits for, see vrec_is_timed() */
	/* windows: of slots that the peer may touch, or might yet; of these, those to be closed */
	struct list exposed, covers;
	uint32_t exposed_count, cover_count;
	uint32_t reserved;          /* for requests to come, of vmemory_on.reserved */
	bool cover_now;             /* they do not wait for a chain to go with, */
	uint64_t cover_deadline_ns; /* or until then */
	struct list tx_link;        /* dev->tx_waiting */
	struct vrec sq[VERBS_SQ_DEPTH];
};

/* does the provider send IBV_EVENT_QP_LAST_WQE_REACHED? */
enum vlast_wqe { LAST_WQE_UNKNOWN, LAST_WQE_SENT, LAST_WQE_NEVER };

/* of vdev.events */
enum {
	DEV_JOIN = 1,
	DEV_FAILED = 2,
	DEV_SRQ_LIMIT = 4,
	DEV_RECEIVES = 8,
	DEV_CLOSED = 16,
	DEV_WINDOWS = 32
};

struct vdev {                  /* one RDMA device as one reactor uses it */
	struct list link;      /* verbs.devs */
	struct list card_link; /* vcard.devs, under verbs_control.lock */
	struct verbs *v;
	struct ibv_context *ctx;
	struct ibv_context **held; /* see device_hold() */
	struct ibv_device_attr attr;
	struct ibv_pd *pd_in, *pd_out;
	struct ibv_mr **mr_in, **mr_out; /* one per slab; released after every QP is gone */
	struct ibv_mr **mr_land;         /* likewise, of the landing pool */
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct poller poller;
	bool armed;
	bool joined;          /* the reactor polls it */
	bool failed;          /* it takes no receives any more: nobody new is accepted */
	atomic_bool broken;   /* the device, or this queue, is in error: no new connections */
	uint32_t events;      /* of DEV_*, under verbs_control.lock */
	uint32_t users;       /* connections that have it, under verbs_control.lock */
	bool over;            /* likewise: its reactor has let go of it, C is to close it */
	atomic_int cqe_left;  /* completions not promised to a connection */
	uint32_t inline_max;  /* C: asked for; less where the device does not have it */
	uint32_t payload_max; /* that rides along and lands in a slot; 0: the device cannot */
	struct ibv_srq *srq;  /* NULL: it has none, or nobody is accepted */
	struct vrx_chunk *rx_chunk[VERBS_RX_CHUNKS];
	uint32_t rx_chunks;
	uint32_t rx_count, rx_base, rx_most; /* shared receives in use; as many at least, at most */
	atomic_int srq_left;  /* of these, promised to no connection; the reactor's, others look */
	struct list rx_due;   /* to be posted with the next vdev_post_due() */
	struct list rx_dry;   /* buffers that wait for a payload slot */
	bool rx_granted;      /* some of these have one now */
	struct list rx_spare; /* not posted */
	bool rx_is_coming;    /* the control thread makes a chunk */
	struct vrx_chunk *rx_coming; /* M */
	struct list chunk_link;      /* verbs_control.chunks */
	uint8_t *tx_mem;
	struct ibv_mr *tx_mr_in, *tx_mr_out;
	enum vlast_wqe last_wqe;
	uint32_t last_wqe_missed;
	/* by verbs_memory.idx; C writes, the reactor looks while it has a connection here */
	_Atomic(struct vmemory_on *) memory[VERBS_MEMORIES];
	struct vmemory_on *slots; /* M: windows for them; NULL: none, their slabs have rights */
	char windows_why[160];    /* C: why there are none */
	bool windows_are_coming;  /* the control thread makes more of them */
	bool windows_asked;       /* likewise, and has not begun; under verbs_control.lock */
	bool windows_refused;     /* M: the device gives no more */
	void **tx_free;
	uint32_t tx_free_count;
	struct list tx_waiting; /* connections that found none, or no room for a completion */
};

/* The control thread is at work on it. */
static inline bool vdev_is_coming(const struct vdev *d)
{
	return d->rx_is_coming || d->windows_are_coming;
}

struct verbs {
	struct reactor *reactor;
	struct verbs_opts opts;
	struct verbs_tuning tuning;
	struct verbs_control *control;
	struct poller poller; /* mail */
	struct xlistener_opts listener;
	struct list devs, conns;
	uint32_t closing_devs; /* of which DEV_CLOSED is to come */
	uint32_t conn_count;
	struct vconn *table[VERBS_CONNS_MAX];
	uint16_t gen[VERBS_CONNS_MAX];
	uint16_t free_slot[VERBS_CONNS_MAX];
	uint32_t free_slots;
	struct list by_qpn[VERBS_QPN_BUCKETS];
	atomic_uint load; /* connections, those too that are on their way here */
	atomic_bool has_mail;
	struct verbs_memory *memory[VERBS_MEMORIES]; /* C */
	/* C: peers that do not know what this side offers, until when that is not tried */
	struct {
		struct net_addr addr;
		uint64_t until_ns;
	} plain[VERBS_PLAIN];
	uint32_t plain_next;
	/* under verbs_control.lock */
	struct list control_link; /* verbs_control.verbs */
	struct list mail;         /* vconn */
	bool listening, dev_mail;
};

struct vcard { /* a device, of all reactors */
	struct list link;
	struct ibv_context *ctx;
	struct ibv_context **held; /* see device_hold() */
	struct list devs;          /* under verbs_control.lock */
	bool failed;               /* under verbs_control.lock; it goes when nothing is on it */
	uint32_t opening;          /* likewise: who is about to put something on it */
	bool stale; /* likewise: librdmacm has opened it anew; this one goes with its last user */
	struct rdma_cm_id *watch_id; /* C: bound to it, so that its removal is told; or NULL */
};

struct verbs_control {
	struct rdma_event_channel *channel;
	pthread_t thread;
	int wake; /* eventfd */
	struct list cards;
	pthread_mutex_t lock;
	struct list todo;              /* vconn */
	struct list chunks;            /* vdev: more receives are asked for */
	struct list memories, revoked; /* verbs_memory, verbs_window */
	bool windows_asked;            /* of some vdev */
	struct list verbs;
	bool woken, stop;
	bool hears; /* the devices' events are read: those who share this accept connections */
	struct rdma_cm_id *listen_id;
	bool listener_lost; /* C: its device went away, try again */
	uint64_t look_ns;   /* C: when librdmacm is to look which devices there are */
	const struct verbs_protocol *protocol; /* of who listens */
	uint64_t node;                         /* C: this process, as it tells who connects */
	/* C: where it listens: what it tells, and when that was looked for */
	uint8_t rails, rail[VERBS_RAILS][16];
	char rail_dev[VERBS_RAILS][IBV_SYSFS_NAME_MAX];
	uint64_t rails_ns;
	struct verbs *last; /* that got a request: who comes behind it goes first among equals */
};

/* verbs_window.c; but for the first two, the control thread's */
void vwindow_bind_wr(const struct vreq *q, struct ibv_send_wr *wr);
uint32_t vmemory_lkey(const struct vdev *d, uint32_t idx);
/** What is registered is so on @d, too, which nobody knows yet. What cannot is logged. */
void vdev_memory_open(struct vdev *d);
/** No connection is on @d any more. */
void vdev_memory_close(struct vdev *d);
/** Windows that were revoked and those that were asked for; or else one registration, or the end of
 *  one. False: there was nothing. */
bool vmemory_turn(struct verbs_control *k);

/* verbs_windows.c */
/** Has the device windows of type 2? */
bool vdev_has_windows(const struct ibv_device_attr *attr);
/** Up to @n windows on @d, in a domain of it, without memory: the first VERBS_WINDOWS_STEP of them.
 *  -ENOMEM, ...: what the device says. The control thread's, as the next three. */
int vwindows_new(struct vdev *d, struct ibv_pd *pd, uint32_t n, struct vmemory_on **ret);
/** Accepts NULL. */
void vwindows_free(struct vmemory_on *on);
/** Those that were revoked are made anew. False: none were. */
bool vwindows_renew(struct verbs_control *k);
/** Some more on one device where that is asked for. False: it is on none. */
bool vwindows_grow(struct verbs_control *k);
/** The reactor's: if half of those that were made are in use, there are to be more. */
void vwindows_ask(struct vmemory_on *on);
/** The reactor's, on DEV_WINDOWS: those who wait get them. */
void vwindows_join(struct vdev *d);
/** The reactor's: those that were made are spare, as far as they are not exposed. */
void vwindows_take_renewed(struct vmemory_on *on);

/* verbs_rails.c */
static inline void rail_from_v4(const struct in_addr *v4, uint8_t to[16])
{
	memset(to, 0, 16);
	to[10] = to[11] = 0xff;
	memcpy(to + 12, v4, 4);
}
/** The control thread's: what the accept of @c tells of this process: its other devices, by an
 *  address each. */
void rails_tell(struct vconn *c, struct verbs_hello *h);

/* verbs_expose.c */
/** Any thread, on a device that nobody knows: windows for slots, as the options say. -ENOTSUP: they
 *  are asked for, and the device does not have them. */
int vdev_windows_new(struct vdev *d);
/** The slabs' rights for peers. */
int vdev_slab_access(const struct vdev *d, bool landing);
/** A window to be closed now; NULL: none. @chain: others go now, too. It is posted, then
 *  vconn_covered(). */
struct verbs_window *vconn_next_cover(struct vconn *c, bool chain);
void vconn_covered(struct vconn *c, struct verbs_window *w);
/** The connection has failed: who exposed something on it has nothing to cover any more. */
void vconn_exposed_fail(struct vconn *c);
/** Its queue pair is to be destroyed: the windows that are bound to it go before. */
void vconn_exposed_revoke(struct vconn *c);
/** It is destroyed. */
void vconn_exposed_end(struct vconn *c);
/** Those of a device that goes have nothing to end any more. */
void vwindows_forget_turns(struct list *turns);
/** @w is not used any more. */
void vwindow_is_spare(struct verbs_window *w);

/* verbs_control.c */
int verbs_control_join(struct verbs *v, struct err *err);
/** Nothing of @v is known to the control thread any more, which ends with its last verbs. */
void verbs_control_leave(struct verbs *v);
/** Any thread: ask the control thread for something. */
void vconn_ask(struct vconn *c, enum vtodo what);
/** Likewise: for more receives. DEV_RECEIVES follows. */
void vdev_ask_chunk(struct vdev *d);
/* the control thread's */
void vconn_mail(struct vconn *c, enum vmail what);
void vconn_mail_failed(struct vconn *c, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void vdev_mail(struct vdev *d, uint32_t event);
/** Under the lock. */
void vdev_mail_locked(struct vdev *d, uint32_t event);
void control_wake(struct verbs_control *k);
/** What reactors and others ask for: all that connections want, then one registration, which may
 *  take long. The next one follows in the next turn, behind the events of the connection manager
 *  and of devices. */
void control_turn(struct verbs_control *k);
void verbs_tell(struct verbs *v);
/* verbs_card.c */
#define VERBS_LOOK_NS (2 * NS_PER_S) /* to when a device that comes is there */
#define VERBS_REST_NS                                                                              \
	(10 * NS_PER_S) /* between two looks: nobody tells of one without connections */
/** The control thread's: @id is on a device. From now on its removal is told, whichever of its
 *  connections lives. */
void card_watch(struct verbs_control *k, struct rdma_cm_id *id);
/** The device has failed, or went away. */
void card_failed(struct verbs_control *k, const struct ibv_context *ctx);
/** The control thread's: devices that have failed go as far as nobody has them. */
void cards_let_go(struct verbs_control *k);
void card_free(struct vcard *card);
/** Under the lock: what @v has on it, or NULL. */
struct vdev *card_dev(const struct verbs *v, struct vcard *card);
/** The devices that are there. -ENODEV. */
int cards_find(struct verbs_control *k);
/** For @v, on all of them. */
int cards_open(struct verbs *v, struct err *err);
/** The device as @v uses it, made when it is not there. It is the caller's until vdev_leave(). */
struct vdev *control_dev(struct verbs *v, struct ibv_context *ctx, int *ret_rc, struct err *err);
void vdev_leave(struct vdev *d);
/** The reactor's, of a device that has failed: nobody has it, or will. The control thread closes
 *  it; DEV_CLOSED follows, then vdev_forget(). */
bool vdev_is_over(struct vdev *d);
void vdev_forget(struct vdev *d);
/** What the device has to tell. Queues of others, whom it tells by the same descriptor, are left
 *  alone. */
void card_events(struct verbs_control *k, struct vcard *card);
/** Under the lock: could @v grant a new connection on @ctx its first receives? */
bool control_has_receives(const struct verbs *v, const struct ibv_context *ctx);

/* verbs_cm.c; the control thread's */
/** Under the lock: who gets a request that has come over @ctx. NULL: nobody, @ret_why. */
struct verbs *cm_choose(struct verbs_control *k, const struct ibv_context *ctx,
			enum verbs_reject *ret_why);
void cm_events(struct verbs_control *k);
/** The device of the listener may be there again. */
void cm_listen_again(struct verbs_control *k);
void cm_do(struct vconn *c, uint32_t todo);

/* verbs_dev.c */
/** librdmacm closes a device that has gone as soon as nobody holds it. What is returned holds this
 *  one alone, and goes to rdma_free_devices(), which free()s it, when nothing of @ctx is left.
 *  NULL: it has gone already, or no memory. */
struct ibv_context **device_hold(struct ibv_context *ctx);
/** Any thread: all of it that needs no pool. */
/** -EPROTONOSUPPORT: no node is to be reached over it. */
int vdev_can_accept(const struct ibv_context *ctx, struct err *err);
int vdev_open(struct verbs *v, struct ibv_context *ctx, struct vdev **ret, struct err *err);
/** The reactor's: receives are posted, and it is polled. */
int vdev_join(struct vdev *d);
/** The reactor's: it does not poll it any more. */
void vdev_detach(struct vdev *d);
/** Any thread: what needs no pool. Then the reactor frees it. */
void vdev_close(struct vdev *d);
void vdev_free(struct vdev *d);
/** lkey of pool memory; 0 when @p is not in the pool. */
uint32_t vdev_lkey(const struct vdev *d, bool active, const void *p, struct ibv_mr **ret_mr);
void *vdev_tx_get(struct vdev *d);
void vdev_tx_put(struct vdev *d, void *buf);
/** Any thread: @n completions for a connection. False: so many are not left. */
bool vdev_cqes_take(struct vdev *d, uint32_t n);
/** For what is new, a connection or a receive: the last quarter is for what is to be sent. */
bool vdev_cqes_admit(struct vdev *d, uint32_t n);
/** The reactor's. */
void vdev_cqes_put(struct vdev *d, uint32_t n);
/** So few are left that every one is asked for at once, not with the next that is signalled. */
bool vdev_cqes_are_few(const struct vdev *d);

/* verbs_rx.c */
/** Let a receive buffer be posted again; its credit goes back to its connection, or to nobody, when
 *  it is. */
void vrx_post(struct vrx *rx);
/** Post those, and the ones that have waited for a payload slot and got it: those of one queue with
 *  one doorbell. At the end of a look at the completions, and before messages are sent, which tell
 *  the peer of them. */
void vdev_post_due(struct vdev *d);
/** The control thread's: the receives of a connection's own queue. vconn_rx_free(): after the queue
 *  pair is gone, nothing writes to them any more. */
int vconn_rx_new(struct vconn *c);
void vconn_rx_free(struct vconn *c);
/** The reactor's part of that, also of what it was granted in a shared queue. */
void vconn_rx_end(struct vconn *c);
/** Receives for a new connection to us; 0: none are left. */
uint16_t vconn_first_grant(struct vconn *c);
/** A message came: does it need more of them, or fewer? */
void vconn_adapt(struct vconn *c, bool was_idle);
/** Asked before a message is noted. */
bool vconn_was_idle(const struct vconn *c);
static inline int vdev_left(const struct vdev *d)
{
	return atomic_load_explicit(&d->srq_left, memory_order_relaxed);
}
static inline void vdev_left_add(struct vdev *d, int n)
{
	atomic_store_explicit(&d->srq_left, vdev_left(d) + n, memory_order_relaxed);
}
static inline struct vrx *vdev_rx(const struct vdev *d, uint32_t idx)
{
	return &d->rx_chunk[idx / VERBS_RX_CHUNK]->rx[idx % VERBS_RX_CHUNK];
}
/** Any thread; and the reactor's part. */
int vdev_srq_new(struct vdev *d);
int vdev_srq_join(struct vdev *d);
void vdev_srq_detach(struct vdev *d);
void vdev_srq_close(struct vdev *d);
void vdev_srq_free(struct vdev *d);
void vdev_srq_limit(struct vdev *d);
/** Few are left. */
void vdev_rx_grow(struct vdev *d);
/** The control thread's, and the reactor's when that has told. */
void vdev_chunk(struct vdev *d);
void vdev_chunk_join(struct vdev *d);

/* verbs.c */
static inline bool vconn_is_alive(const struct vconn *c)
{
	return c->state != VC_WAIT_FLUSH && c->state != VC_WAIT_DESTROYED;
}
int vdev_poll(struct poller *p);
int vdev_arm(struct poller *p);
/** Handle all completions that are there. Accepts NULL. */
void vdev_drain(struct vdev *d);
/** First failure of a connection: queue pair to error, ops come home with @rc. */
void vconn_fail(struct vconn *c, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void vconn_ready(struct vconn *c);
/** The slab that @s is in, for a connection to which it may be named. */
struct ibv_mr *vslot_mr(const struct vconn *c, const struct slot *s);
/** @op is done() with what comes of @q; at once when the connection is lost. */
void vconn_submit(struct vconn *c, struct list *queue, struct xop *op, struct vreq q);
bool vconn_step(struct rop *op);
/** A message of a connection that is up, or nearly so. */
void vconn_message(struct vconn *c, struct vrx *rx);

/* verbs_post.c */
/** Post all that is queued, credits and slots allowing, with one doorbell. */
void vconn_flush(struct vconn *c);

/* verbs_conn.c */
/** Memory of a connection, known to nobody. Any thread. */
struct vconn *vconn_alloc(struct verbs *v, bool active);
/** What the control thread has told this reactor. */
int verbs_mail_poll(struct poller *p);
/** For the nearest of the deadlines that count now. */
void vconn_start_timer(struct vconn *c);
/** What each side tells the other. */
struct verbs_hello vconn_hello(const struct vconn *c, uint8_t read_depth);
