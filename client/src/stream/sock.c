/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/stream/sock.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/wire/dt.h"

/* Takes @fd. */
static int sock_new(const struct net_addr *a, int fd, struct sock **ret, struct err *err)
{
	struct sock *s = malloc(sizeof(*s)); /* the buffer need not be cleared */

	if (!s) {
		(void)close(fd);
		return err_set(err, -ENOMEM, "out of memory for a connection");
	}
	s->fd = fd;
	s->reused = false;
	s->idle_since_ns = 0;
	s->owes_end = s->takes_small = false;
	s->tag = s->patience_ms = 0;
	s->to = *a;
	s->head = s->tail = 0;
	net_text(a, s->peer);
	*ret = s;
	return 0;
}

int sock_open(const struct net_addr *a, uint32_t timeout_ms, struct sock **ret, struct err *err)
{
	int fd = net_connect(a, timeout_ms, err);

	return fd < 0 ? fd : sock_new(a, fd, ret, err);
}

int sock_start(const struct net_addr *a, struct sock **ret, struct err *err)
{
	int fd = net_connect_start(a, err);

	return fd < 0 ? fd : sock_new(a, fd, ret, err);
}

int sock_connected(struct sock *s, const struct net_addr *a, struct err *err)
{
	return net_connect_check(s->fd, a, err);
}

void sock_close(struct sock *s)
{
	if (!s)
		return;
	(void)close(s->fd); /* nothing to be done about a failure */
	free(s);
}

int sock_wait(struct sock *s, short events, uint64_t deadline_ns, struct err *err)
{
	struct pollfd p = {.fd = s->fd, .events = events};

	for (;;) {
		const uint64_t now = clock_mono_ns();
		const uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
		const uint64_t ms = (left + NS_PER_MS - 1) / NS_PER_MS;
		int rc = ret_errno(poll(&p, 1, ms > INT32_MAX ? INT32_MAX : (int)ms));

		if (rc == -EINTR)
			continue;
		if (rc < 0)
			return err_sys(err, rc, "data node %s: poll", s->peer);
		return rc > 0;
	}
}

static int wait_or_fail(struct sock *s, short events, uint64_t deadline_ns, struct err *err)
{
	int rc = sock_wait(s, events, deadline_ns, err);

	if (rc == 0)
		return err_set(err, -ETIMEDOUT, "data node %s %s in time", s->peer,
			       events & POLLOUT ? "takes no data" : "does not answer");
	return rc < 0 ? rc : 0;
}

ssize_t sock_try_send(struct sock *s, struct iovec *iov, int n, struct err *err)
{
	const struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)n};

	for (;;) {
		ssize_t sent = sendmsg(s->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent >= 0)
			return sent;
		if (errno == EAGAIN)
			return 0;
		if (errno != EINTR)
			return err_sys(err, neg_errno(), "data node %s: send", s->peer);
	}
}

int sock_send(struct sock *s, struct iovec *iov, int n, uint64_t deadline_ns, struct err *err)
{
	while (n > 0) {
		ssize_t sent = sock_try_send(s, iov, n, err);

		if (sent < 0)
			return (int)sent;
		if (sent == 0) {
			int rc = wait_or_fail(s, POLLOUT, deadline_ns, err);

			if (rc < 0)
				return rc;
		}
		while (n > 0 && (size_t)sent >= iov->iov_len) {
			sent -= (ssize_t)iov->iov_len;
			iov++;
			n--;
		}
		if (n > 0) {
			iov->iov_base = (uint8_t *)iov->iov_base + sent;
			iov->iov_len -= (size_t)sent;
		}
	}
	return 0;
}

size_t sock_send_later(struct sock *s, const void *p, size_t len)
{
	const ssize_t n = send(s->fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT | MSG_MORE);

	return n > 0 ? (size_t)n : 0;
}

/* One receive: up to @len bytes to @dst, then up to @ahead into the (empty) buffer. Bytes for @dst,
 * 0 when there is nothing now. */
static ssize_t recv_some(struct sock *s, void *dst, size_t len, size_t ahead, struct err *err)
{
	struct iovec iov[2] = {{dst, len}, {s->buf, ahead > SOCK_BUF ? SOCK_BUF : ahead}};
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = ahead ? 2 : 1};

	for (;;) {
		ssize_t got = recvmsg(s->fd, &m, MSG_DONTWAIT);

		if (got == 0)
			return err_set(err, -ECONNRESET, "data node %s closed the connection",
				       s->peer);
		if (got > 0) {
			s->head = 0;
			s->tail = (size_t)got > len ? (size_t)got - len : 0;
			return (size_t)got > len ? (ssize_t)len : got;
		}
		if (errno == EAGAIN)
			return 0;
		if (errno != EINTR)
			return err_sys(err, neg_errno(), "data node %s: receive", s->peer);
	}
}

int sock_try_send_rest(struct sock *s, const void *p, size_t len, size_t *sent, struct err *err)
{
	struct iovec iov = {(uint8_t *)p + *sent, len - *sent};
	const ssize_t n = sock_try_send(s, &iov, 1, err);

	if (n <= 0)
		return (int)n;
	*sent += (size_t)n;
	return *sent == len;
}

ssize_t sock_try_recv(struct sock *s, void *dst, size_t len, size_t ahead, struct err *err)
{
	const size_t have = s->tail - s->head < len ? s->tail - s->head : len;
	uint8_t *p = dst;
	ssize_t got;

	memcpy(p, s->buf + s->head, have);
	s->head += have;
	if (have == len)
		return (ssize_t)have;
	got = recv_some(s, p + have, len - have, ahead, err);
	if (got < 0) /* what was in the buffer is no use without the rest */
		return got;
	return (ssize_t)have + got;
}

/* Take what comes into the buffer. 1, 0 when there is nothing now (@flags: MSG_DONTWAIT), or
 * nothing has come in time; -errno. */
static int fill_by(struct sock *s, int flags, struct err *err)
{
	ssize_t got;

	if (s->head > 0) {
		memmove(s->buf, s->buf + s->head, s->tail - s->head);
		s->tail -= s->head;
		s->head = 0;
	}
	do {
		got = recv(s->fd, s->buf + s->tail, SOCK_BUF - s->tail, flags);
	} while (got < 0 && errno == EINTR && flags);
	if (got < 0 && errno == EINTR)
		return 0;
	if (got == 0)
		return err_set(err, -ECONNRESET, "data node %s closed the connection", s->peer);
	if (got < 0)
		return errno == EAGAIN
			       ? 0
			       : err_sys(err, neg_errno(), "data node %s: receive", s->peer);
	s->tail += (size_t)got;
	return 1;
}

static int fill(struct sock *s, struct err *err)
{
	return fill_by(s, MSG_DONTWAIT, err);
}

int sock_try_fill(struct sock *s, struct err *err)
{
	return fill(s, err);
}

/* From now on a receive without MSG_DONTWAIT waits. */
static bool make_patient(struct sock *s, uint32_t ms)
{
	const struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (long)(ms % 1000) * 1000};
	const int flags = s->patience_ms == ms ? 0 : fcntl(s->fd, F_GETFL);

	if (s->patience_ms == ms)
		return ms > 0;
	if (flags < 0 || setsockopt(s->fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) < 0 ||
	    fcntl(s->fd, F_SETFL, flags & ~O_NONBLOCK) < 0)
		return false;
	s->patience_ms = ms;
	return true;
}

int sock_await(struct sock *s, uint32_t timeout_ms, uint64_t deadline_ns, struct err *err)
{
	const uint64_t now = clock_mono_ns();
	int rc = 0;

	/* later on the socket would wait beyond the deadline */
	if (now + timeout_ms * NS_PER_MS <= deadline_ns + NS_PER_MS && make_patient(s, timeout_ms))
		rc = fill_by(s, 0, err);
	while (rc == 0) {
		rc = wait_or_fail(s, POLLIN, deadline_ns, err);
		rc = rc < 0 ? rc : fill(s, err);
	}
	return rc < 0 ? rc : 0;
}

int sock_try_peek(struct sock *s, size_t len, const uint8_t **ret, struct err *err)
{
	while (s->tail - s->head < len) {
		int rc = fill(s, err);

		if (rc <= 0)
			return rc;
	}
	*ret = s->buf + s->head;
	return 1;
}

void sock_consume(struct sock *s, size_t len)
{
	s->head += len;
}

int sock_try_delim(struct sock *s, const uint8_t **ret, uint32_t *ret_len, struct err *err)
{
	for (;;) {
		const size_t have = s->tail - s->head;
		uint32_t prefix;
		ssize_t need = dt_delim_need(s->buf + s->head, have, SOCK_BUF - 10, &prefix);
		int rc;

		if (need < 0)
			return err_set(err, -EPROTO,
				       "data node %s does not speak DataTransferProtocol; wrong "
				       "port?",
				       s->peer);
		if ((size_t)need <= have) {
			*ret = s->buf + s->head + prefix;
			*ret_len = (uint32_t)need - prefix;
			s->head += (size_t)need;
			return 1;
		}
		rc = fill(s, err);
		if (rc <= 0)
			return rc;
	}
}

int sock_recv_delim(struct sock *s, uint64_t deadline_ns, const uint8_t **ret, uint32_t *ret_len,
		    struct err *err)
{
	for (;;) {
		int rc = sock_try_delim(s, ret, ret_len, err);

		if (rc != 0)
			return rc < 0 ? rc : 0;
		rc = wait_or_fail(s, POLLIN, deadline_ns, err);
		if (rc < 0)
			return rc;
	}
}

void sock_cache_init(struct sock_cache *c)
{
	*c = (struct sock_cache){0};
	pthread_mutex_init(&c->lock, NULL);
}

void sock_cache_fini(struct sock_cache *c)
{
	while (c->count > 0)
		sock_close(c->idle[--c->count]);
}

static struct sock *take_locked(struct sock_cache *c, size_t i)
{
	struct sock *s = c->idle[i];

	c->idle[i] = c->idle[--c->count];
	return s;
}

static void expire_locked(struct sock_cache *c, uint64_t now_ns)
{
	for (size_t i = c->count; i-- > 0;)
		if (clock_between(c->idle[i]->idle_since_ns, now_ns) > SOCK_IDLE_NS)
			sock_close(take_locked(c, i));
}

bool sock_is_to(const struct sock *s, const struct net_addr *a)
{
	return net_same(&s->to, a);
}

static struct sock *get(struct sock_cache *c, const struct net_addr *a, bool small)
{
	struct sock *s = NULL;

	pthread_mutex_lock(&c->lock);
	expire_locked(c, clock_mono_ns());
	for (size_t i = c->count; i-- > 0 && !s;)
		if (sock_is_to(c->idle[i], a) &&
		    (!small || (c->idle[i]->takes_small && !c->idle[i]->owes_end)))
			s = take_locked(c, i);
	pthread_mutex_unlock(&c->lock);
	return s;
}

struct sock *sock_cache_get(struct sock_cache *c, const struct net_addr *a)
{
	return get(c, a, false);
}

struct sock *sock_cache_get_small(struct sock_cache *c, const struct net_addr *a)
{
	return get(c, a, true);
}

/* Neither closed by the peer, nor with bytes that nobody expects. */
static bool is_sound(const struct sock *s)
{
	char b;

	return !s->owes_end && s->head == s->tail &&
	       recv(s->fd, &b, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
	       (errno == EAGAIN || errno == EWOULDBLOCK);
}

struct sock *sock_cache_get_sound(struct sock_cache *c, const struct net_addr *a)
{
	struct sock *s;

	while ((s = sock_cache_get(c, a)) && !is_sound(s))
		sock_close(s);
	return s;
}

void sock_cache_put(struct sock_cache *c, struct sock *s)
{
	s->reused = true;
	s->idle_since_ns = clock_mono_ns();
	pthread_mutex_lock(&c->lock);
	expire_locked(c, s->idle_since_ns);
	if (c->count < SOCK_CACHE_MAX) {
		c->idle[c->count++] = s;
		s = NULL;
	}
	pthread_mutex_unlock(&c->lock);
	sock_close(s);
}
