/* SPDX-License-Identifier: Apache-2.0 */
/* Test code: the interface of verbs.h between processes of one machine without a device, for
 * programs that are counted (tests/bench/cost).
 *
 * The device is played by threads, the *card*. A reactor hands it work requests and hears of their
 * completions by messages, as it would by a doorbell and a completion queue. The card carries
 * messages over a UNIX domain socket, RDMA READ is process_vm_readv(), WRITE process_vm_writev();
 * its work requests are done in order. So what a program spends beside the card is what it spends
 * with a device, but for the posting and polling itself. There are no credits, and no payload rides
 * along.
 * Ownership and errors: as of verbs.h; a peer that does not answer, or dies, is -ECONNRESET. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/spares.h"
#include "common/transport/verbs.h"

#define SPARE_REQUESTS 512

struct message { /* on the socket before its bytes */
	uint32_t len;
};
struct hello {
	struct verbs_hello said;
	pid_t pid;
};

enum kind { SEND, PULL, PUSH, CLOSE, STOP };
struct request { /* to the card and back */
	struct rmsg msg;
	struct list link;
	enum kind kind;
	struct conn *c;
	struct xop *op;
	uint64_t addr;
	struct iovec iov[XOP_IOV_MAX];
	uint32_t n, len;
	int res;
	uint8_t bytes[VERBS_MESSAGE_MAX]; /* last: SEND */
};

struct arrival { /* from the card */
	struct rmsg msg;
	struct list link;
	struct conn *c;
	uint32_t len; /* 0: the last one, the connection is over */
	uint8_t bytes[VERBS_MESSAGE_MAX];
};

struct conn {
	struct xconn x; /* first */
	struct verbs *v;
	int fd;
	pid_t pid; /* the peer's */
	struct verbs_hello peer;
	struct list inbox;
	struct xop *recv_op, *connect_op;
	void *recv_buf;
	uint32_t out; /* requests that the card has */
	bool closing, over, ended, receives;
	pthread_t receiver;
	struct rmsg msg;       /* it has been accepted, or connected */
	struct rmsg close_msg; /* it is closed; counts in out */
};

struct verbs {
	struct reactor *reactor;
	struct verbs_opts opts;
	struct xlistener_opts listener;
	struct verbs *next; /* of those that listen together */
	int listen_fd;
	pthread_t card, acceptor;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct list queue;
	struct spares requests;
	uint32_t conns;
};

static struct conn *conn_of(const struct xconn *x)
{
	return container_of(x, struct conn, x);
}

/* Whoever counts instructions leaves these threads out. */
static void card_begins(void)
{
	void (*begins)(void) = (void (*)(void))(uintptr_t)dlsym(RTLD_DEFAULT, "fake_card_begins");

	if (begins)
		begins();
}

/* ---- bytes ---- */

static int all(int fd, void *buf, size_t len, bool out)
{
	for (size_t done = 0; done < len;) {
		const ssize_t n = out ? send(fd, (uint8_t *)buf + done, len - done, MSG_NOSIGNAL)
				      : recv(fd, (uint8_t *)buf + done, len - done, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -ECONNRESET;
		done += (size_t)n;
	}
	return 0;
}

static int greet(struct conn *c, uint8_t role, uint32_t features)
{
	struct hello mine = {.said = {.features = features,
				      .credits = 32,
				      .message_max = VERBS_MESSAGE_MAX,
				      .read_depth = 16,
				      .role = role},
			     .pid = getpid()};
	struct hello its;
	int rc = all(c->fd, &mine, sizeof(mine), true) ?: all(c->fd, &its, sizeof(its), false);

	(void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* it reads and writes here */
	if (rc)
		return rc;
	c->peer = its.said;
	c->peer.features &= features; /* what both have */
	c->pid = its.pid;
	return 0;
}

/* ---- completions, on the reactor ---- */

static void maybe_end(struct conn *c)
{
	if (!c->closing || c->out || !c->over || c->connect_op || c->ended)
		return;
	c->ended = true;
	if (c->receives)
		pthread_join(c->receiver, NULL);
	if (c->fd >= 0)
		(void)close(c->fd);
	for (struct list *l; (l = list_pop(&c->inbox));)
		free(container_of(l, struct arrival, link));
	if (c->x.gone)
		c->x.gone(&c->x);
	c->v->conns--;
	free(c);
}

static void deliver(struct conn *c)
{
	struct xop *op = c->recv_op;
	struct arrival *a;
	int len = -ECONNRESET;

	if (!op || (list_empty(&c->inbox) && !c->over))
		return;
	c->recv_op = NULL;
	if (!list_empty(&c->inbox)) {
		a = container_of(list_pop(&c->inbox), struct arrival, link);
		len = (int)a->len;
		memcpy(c->recv_buf, a->bytes, a->len);
		free(a);
	}
	op->done(op, len);
}

static void arrived(struct rmsg *m)
{
	struct arrival *a = container_of(m, struct arrival, msg);
	struct conn *c = a->c;

	if (a->len) {
		list_add_tail(&c->inbox, &a->link);
	} else {
		c->over = true;
		free(a);
	}
	deliver(c);
	maybe_end(c);
}

static void completed(struct rmsg *m)
{
	struct request *q = container_of(m, struct request, msg);
	struct conn *c = q->c;
	struct xop *op = q->op;
	const int res = c->closing && q->res < 0 ? -ECANCELED : q->res;

	c->out--;
	spares_put(&c->v->requests, q, sizeof(*q), SPARE_REQUESTS);
	op->done(op, res);
	maybe_end(c);
}

/* ---- the card ---- */

static int carry(struct request *q)
{
	struct iovec there = {(void *)(uintptr_t)q->addr, q->len};
	struct message head = {q->len};
	ssize_t n;

	if (q->kind == CLOSE)
		return 0;
	if (q->kind == SEND)
		return all(q->c->fd, &head, sizeof(head), true)
			       ?: all(q->c->fd, q->bytes, q->len, true)
			       ?: (int)q->len;
	n = q->kind == PULL ? process_vm_readv(q->c->pid, q->iov, q->n, &there, 1, 0)
			    : process_vm_writev(q->c->pid, q->iov, q->n, &there, 1, 0);
	return n == (ssize_t)q->len ? (int)n : -ECONNRESET;
}

static void *card_thread(void *arg)
{
	struct verbs *v = arg;

	card_begins();
	for (;;) {
		struct request *q;

		pthread_mutex_lock(&v->lock);
		while (list_empty(&v->queue))
			pthread_cond_wait(&v->changed, &v->lock);
		q = container_of(list_pop(&v->queue), struct request, link);
		pthread_mutex_unlock(&v->lock);
		if (q->kind == STOP)
			return NULL;
		q->res = carry(q);
		q->msg.fn = completed;
		reactor_post(v->reactor, &q->msg);
	}
}

static void *receiver_thread(void *arg)
{
	struct conn *c = arg;
	struct message head;
	struct arrival *a;
	bool more = true;

	card_begins();
	while (more) {
		a = malloc(sizeof(*a));
		if (!a)
			abort();
		more = !all(c->fd, &head, sizeof(head), false) && head.len &&
		       head.len <= VERBS_MESSAGE_MAX && !all(c->fd, a->bytes, head.len, false);
		a->len = more ? head.len : 0;
		a->c = c;
		a->msg.fn = arrived;
		reactor_post(c->v->reactor, &a->msg);
	}
	return NULL;
}

static int receive_from(struct conn *c)
{
	const int rc = ret_code(pthread_create(&c->receiver, NULL, receiver_thread, c));

	c->receives = rc == 0;
	c->over = rc != 0;
	return rc;
}

static struct request *request_new(struct conn *c, enum kind kind, struct xop *op)
{
	struct request *q = spares_get(&c->v->requests, sizeof(*q));

	if (!q)
		abort(); /* a count without memory has nothing to tell */
	q->kind = kind;
	q->c = c;
	q->op = op;
	c->out++;
	return q;
}

/* The doorbell. */
static void ring(struct verbs *v, struct request *q)
{
	pthread_mutex_lock(&v->lock);
	list_add_tail(&v->queue, &q->link);
	pthread_cond_signal(&v->changed);
	pthread_mutex_unlock(&v->lock);
}

/* ---- the transport interface ---- */

static void fake_send(struct xconn *x, const struct iovec *iov, int n, struct xop *op)
{
	struct request *q = request_new(conn_of(x), SEND, op);

	(void)n;
	q->len = (uint32_t)iov->iov_len;
	memcpy(q->bytes, iov->iov_base, q->len);
	ring(q->c->v, q);
}

static void fake_recv(struct xconn *x, void *buf, uint32_t len, struct xop *op)
{
	struct conn *c = conn_of(x);

	(void)len; /* all take VERBS_MESSAGE_MAX */
	c->recv_op = op;
	c->recv_buf = buf;
	deliver(c);
}

static void fake_pull(struct xconn *x, struct xremote from, struct slot *slot, uint32_t off,
		      uint32_t len, struct xop *op)
{
	struct request *q = request_new(conn_of(x), PULL, op);

	q->addr = from.addr;
	q->iov[0] = (struct iovec){slot->data + off, len};
	q->n = 1;
	q->len = len;
	ring(q->c->v, q);
}

static void fake_push(struct xconn *x, const struct iovec *iov, int n, struct xremote to,
		      struct xop *op)
{
	struct request *q = request_new(conn_of(x), PUSH, op);

	q->addr = to.addr;
	q->n = (uint32_t)n;
	q->len = 0;
	for (int i = 0; i < n; i++) {
		q->iov[i] = iov[i];
		q->len += (uint32_t)iov[i].iov_len;
	}
	ring(q->c->v, q);
}

static void free_later(struct rmsg *m)
{
	struct conn *c = container_of(m, struct conn, close_msg);

	c->out--;
	maybe_end(c);
}

static void fake_close(struct xconn *x)
{
	struct conn *c = conn_of(x);
	struct xop *op = c->recv_op;

	c->closing = true;
	c->recv_op = NULL;
	if (c->fd >= 0)
		(void)shutdown(c->fd, SHUT_RDWR);
	if (op)
		op->done(op, -ECANCELED);
	c->out++;
	c->close_msg.fn = free_later;
	reactor_post(c->x.reactor, &c->close_msg);
}

const struct xport_ops verbs_ops = {.name = "rdma",
				    .messages = true,
				    .send = fake_send,
				    .recv = fake_recv,
				    .pull = fake_pull,
				    .push = fake_push,
				    .close = fake_close};

/* ---- connections ---- */

static socklen_t name_of(uint16_t port, struct sockaddr_un *ret)
{
	*ret = (struct sockaddr_un){.sun_family = AF_UNIX}; /* a name that is no file */
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(ret->sun_path + 1, sizeof(ret->sun_path) - 1,
					    "dfs-fake-rdma-%u", port));
}

static struct conn *conn_new(struct verbs *v, int fd)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->x.ops = &verbs_ops;
	c->x.reactor = v->reactor;
	c->x.max_message = VERBS_MESSAGE_MAX;
	c->v = v;
	c->fd = fd;
	list_init(&c->inbox);
	return c;
}

static void connected(struct rmsg *m)
{
	struct conn *c = container_of(m, struct conn, msg);
	struct xop *op = c->connect_op;
	const int rc = c->over || c->closing ? -ECONNREFUSED : 0;

	c->connect_op = NULL;
	op->done(op, rc); /* may close it */
}

int verbs_connect(struct verbs *v, const struct net_addr *to, uint64_t deadline_ns, struct xop *op,
		  struct xconn **ret)
{
	struct sockaddr_un name;
	const socklen_t len = name_of(net_port(to), &name);
	struct conn *c = conn_new(v, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));

	(void)deadline_ns;
	if (!c)
		return -ENOMEM;
	v->conns++;
	c->x.peer = *to;
	c->connect_op = op;
	c->over = c->fd < 0 || connect(c->fd, (struct sockaddr *)&name, len) ||
		  greet(c, v->opts.role, v->opts.features) || receive_from(c);
	c->msg.fn = connected;
	*ret = &c->x;
	reactor_post(v->reactor, &c->msg);
	return 0;
}

static void accepted(struct rmsg *m)
{
	struct conn *c = container_of(m, struct conn, msg);
	struct verbs *v = c->v;

	v->conns++;
	(void)receive_from(c);
	v->listener.accepted(v->listener.arg, &c->x);
}

/* Each reactor gets one in its turn. */
static void *acceptor_thread(void *arg)
{
	struct verbs *first = arg, *v = first;
	struct conn *c;
	int fd;

	card_begins();
	while ((fd = accept4(first->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		c = conn_new(v, fd);
		if (!c || greet(c, v->opts.accept_role, v->opts.accept_features) < 0) {
			free(c);
			(void)close(fd);
			continue;
		}
		c->x.peer = v->listener.addr;
		c->msg.fn = accepted;
		reactor_post(v->reactor, &c->msg);
		v = v->next ? v->next : first;
	}
	return NULL;
}

int verbs_listen(struct verbs *v, const struct xlistener_opts *o, struct err *err)
{
	struct sockaddr_un name;
	const socklen_t len = name_of(net_port(&o->addr), &name);
	struct verbs *first = v->opts.share;
	int rc;

	v->listener = *o;
	if (first) {
		v->next = first->next;
		first->next = v;
		return 0;
	}
	rc = v->listen_fd = ret_errno(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (rc >= 0)
		rc = ret_errno(bind(v->listen_fd, (struct sockaddr *)&name, len));
	if (rc >= 0)
		rc = ret_errno(listen(v->listen_fd, 16));
	if (rc >= 0)
		rc = ret_code(pthread_create(&v->acceptor, NULL, acceptor_thread, v));
	return rc < 0 ? err_sys(err, rc, "the card that is played cannot listen") : 0;
}

void verbs_unlisten(struct verbs *v)
{
	if (v->listen_fd < 0)
		return;
	(void)shutdown(v->listen_fd, SHUT_RDWR);
	pthread_join(v->acceptor, NULL);
	(void)close(v->listen_fd);
	v->listen_fd = -1;
}

int verbs_new(struct reactor *r, const struct verbs_opts *o, struct verbs **ret, struct err *err)
{
	struct verbs *v = calloc(1, sizeof(*v));
	int rc;

	if (!v)
		return err_set(err, -ENOMEM, "out of memory");
	v->reactor = r;
	v->opts = *o;
	v->listen_fd = -1;
	pthread_mutex_init(&v->lock, NULL);
	pthread_cond_init(&v->changed, NULL);
	list_init(&v->queue);
	rc = ret_code(pthread_create(&v->card, NULL, card_thread, v));
	if (rc < 0) {
		free(v);
		return err_sys(err, rc, "the card that is played cannot begin");
	}
	*ret = v;
	return 0;
}

/* What its connections still have to hear is in the reactor's inbox, which may be run no more: the
 * programs that are counted end then. */
bool verbs_free(struct verbs *v)
{
	static struct verbs *left; /* no leak */
	static struct request stop;

	if (!v)
		return true;
	verbs_unlisten(v);
	stop.kind = STOP;
	ring(v, &stop);
	pthread_join(v->card, NULL);
	list_init(&stop.link);
	if (v->conns) {
		v->next = left;
		left = v;
		return true;
	}
	spares_fini(&v->requests);
	free(v);
	return true;
}

/* ---- what is the same of all ---- */

int verbs_probe(struct err *err)
{
	(void)err;
	return 0;
}

uint32_t verbs_device_count(void)
{
	return 1;
}

const struct verbs_hello *verbs_peer(const struct xconn *x)
{
	return &conn_of(x)->peer;
}

uint64_t verbs_rtt_ns(const struct xconn *x)
{
	(void)x;
	return 0;
}

const char *verbs_reason(const struct xconn *x)
{
	(void)x;
	return "";
}

struct slot *verbs_take_payload(struct xconn *x, uint32_t *ret_len)
{
	(void)x;
	*ret_len = 0;
	return NULL;
}

void verbs_send_payload(struct xconn *x, const struct iovec *message, const void *payload,
			uint32_t len, struct xop *op)
{
	(void)x, (void)message, (void)payload, (void)len;
	op->done(op, -EMSGSIZE); /* its peer has said that none rides along */
}

/* ---- memory that is no slot: the card reaches all of it, whatever windows there are ---- */

struct verbs_window {
	struct list link;
	struct verbs_memory *m;
	uint32_t rkey;
};

struct verbs_memory {
	struct list spare;
	struct verbs_window window[VERBS_MEMORY_WINDOWS];
};

int verbs_memory_new(struct verbs *v, void *p, size_t len, struct verbs_memory **ret,
		     struct err *err)
{
	struct verbs_memory *m = calloc(1, sizeof(*m));

	(void)v;
	(void)p;
	(void)len;
	if (!m)
		return err_set(err, -ENOMEM, "out of memory");
	list_init(&m->spare);
	for (uint32_t i = 0; i < VERBS_MEMORY_WINDOWS; i++) {
		m->window[i].m = m;
		list_add_tail(&m->spare, &m->window[i].link);
	}
	*ret = m;
	return 0;
}

int verbs_memory_lend(struct verbs *v, void *p, size_t len, struct verbs_memory **ret,
		      struct err *err)
{
	return verbs_memory_new(v, p, len, ret, err);
}

int verbs_memory_new_dmabuf(struct verbs *v, int fd, uint64_t offset, void *map, size_t len,
			    struct verbs_memory **ret, struct err *err)
{
	(void)v, (void)fd, (void)offset, (void)map, (void)len, (void)ret;
	return err_set(err, -ENOTSUP, "the card that is played takes no dma-buf");
}

void verbs_memory_free(struct verbs_memory *m)
{
	free(m);
}

void verbs_memory_free_later(struct verbs_memory *m, void (*gone)(void *arg), void *arg)
{
	free(m);
	if (!getenv("FAKE_RDMA_KEEPS")) /* else it hangs */
		gone(arg);
}

uint32_t verbs_read_depth(const struct xconn *x)
{
	const struct conn *c = conn_of(x);

	return c->peer.features & VERBS_ONESIDED ? 16 : 0;
}

bool verbs_read(struct xconn *c, const struct verbs_read *r, struct xop *op)
{
	struct slot at = {.data = r->to};

	if (!r->m)
		fake_pull(c, r->from, &at, 0, r->len, op);
	return !r->m;
}

struct verbs_window *verbs_window_get(const struct verbs_memory *m, const struct xconn *c)
{
	struct list *l = list_pop(&((struct verbs_memory *)(uintptr_t)m)->spare);

	(void)c;
	return l ? container_of(l, struct verbs_window, link) : NULL;
}

struct xremote verbs_window_open(struct xconn *c, struct verbs_window *w, void *p, uint32_t len,
				 enum verbs_right right)
{
	static atomic_uint rkey;

	(void)c;
	(void)len;
	(void)right;
	w->rkey = ++rkey;
	return (struct xremote){(uintptr_t)p, w->rkey};
}

void verbs_window_close(struct xconn *x, struct verbs_window *w, struct xop *op)
{
	struct request *q = request_new(conn_of(x), CLOSE, op);

	(void)w;
	q->len = 0;
	ring(q->c->v, q);
}

void verbs_window_put(struct verbs_window *w)
{
	list_add_tail(&w->m->spare, &w->link);
}

void verbs_window_revoke(struct verbs_window *w)
{
	verbs_window_put(w);
}
