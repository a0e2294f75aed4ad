/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/client_conn.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/rpc/client_sasl.h"
#include "common/wire/rpc_frame.h"

#define TX_BUF 4096u
#define SHOWN_BYTES_MAX 48u /* of what is not Hadoop RPC, in the error text */

static int ms_left(uint64_t deadline_ns)
{
	uint64_t now = clock_mono_ns(), ms;

	if (now >= deadline_ns)
		return 0;
	ms = (deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS;
	return ms < INT32_MAX ? (int)ms : INT32_MAX;
}

/* 0: something to do; -ETIMEDOUT. Errors of the socket show in the call that follows. */
static int wait_for(int fd, short events, uint64_t deadline_ns)
{
	struct pollfd pfd = {.fd = fd, .events = events};
	int n;

	do {
		n = poll(&pfd, 1, ms_left(deadline_ns));
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return neg_errno();
	return n ? 0 : -ETIMEDOUT;
}

static int connect_err(const struct rpc_client_opts *o, int rc, struct err *err)
{
	err_prefix(err, "%s %s", o->peer, o->addr_text);
	if (rc == -ECONNREFUSED)
		err_cure(err, "is the %s running there? (%s)", o->peer, o->addr_key);
	else if (rc == -ETIMEDOUT || rc == -EHOSTUNREACH || rc == -ENETUNREACH)
		err_cure(err, "is that host up, and is the way to it open? (%s)", o->addr_key);
	return rc;
}

static int send_hello(struct rpc_conn *c, const struct rpc_client_opts *o, const uint8_t *client_id,
		      uint64_t deadline_ns, struct err *err)
{
	_cleanup_free_ uint8_t *context = NULL;
	uint8_t preamble[RPC_PREAMBLE_LEN];
	const char *user = o->user;
	size_t len;
	int rc;

	rpc_preamble_encode(preamble, o->token ? RPC_AUTH_SASL : RPC_AUTH_NONE);
	rc = rpc_conn_send(c, preamble, sizeof(preamble), deadline_ns);
	if (rc >= 0 && o->token) {
		rc = rpc_sasl_login(c, o->token, deadline_ns, err);
		if (rc == 0)
			user = NULL; /* the token says it */
	}
	if (rc >= 0)
		rc = rpc_context_encode(client_id, RPC_CLIENT_ID_LEN, o->protocol, user,
					user ? o->real_user : NULL, &context, &len);
	return rc < 0 ? rc : rpc_conn_send(c, context, len, deadline_ns);
}

int rpc_conn_open(const struct rpc_client_opts *o, const uint8_t *client_id, uint64_t deadline_ns,
		  struct rpc_conn **ret, struct err *err)
{
	struct rpc_conn *c = (struct rpc_conn *)calloc(1, sizeof(*c));
	uint32_t left = (uint32_t)ms_left(deadline_ns);
	struct err why = ERR_INIT;
	int rc;

	if (!c)
		return err_set(err, -ENOMEM, "out of memory");
	c->refs = 1;
	list_init(&c->calls);
	rc = c->fd = net_connect(&o->addr,
				 left < o->connect_timeout_ms ? left : o->connect_timeout_ms, err);
	if (rc < 0) {
		rpc_conn_free(c);
		return connect_err(o, rc, err);
	}
	/* A host that lost its power says nothing: find out sooner than TCP would (15 minutes). */
	(void)setsockopt(c->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &o->connect_timeout_ms,
			 sizeof(o->connect_timeout_ms));
	rc = send_hello(c, o, client_id, deadline_ns, &why);
	/* A peer that closes at once is found out by the first read, and the call is sent again. */
	if (rc < 0 && rc != -EPIPE && rc != -ECONNRESET) {
		rpc_conn_free(c);
		if (why.rc != rc)
			return err_sys(err, rc, "%s %s: cannot send the connection header", o->peer,
				       o->addr_text);
		if (err)
			*err = why;
		return err_prefix(err, "%s %s", o->peer, o->addr_text);
	}
	*ret = c;
	return 0;
}

void rpc_conn_free(struct rpc_conn *c)
{
	if (!c)
		return;
	if (c->fd >= 0)
		(void)close(c->fd);
	free(c->out.p);
	free(c->spare.p);
	free(c->sending.p);
	free(c->frame);
	free(c);
}

int rpc_conn_queue(struct rpc_conn *c, const uint8_t *buf, size_t len)
{
	struct rpc_bytes *b = &c->out;

	if (b->len + len > b->cap) {
		size_t cap = b->cap ? b->cap * 2 : TX_BUF;
		uint8_t *p;

		while (cap < b->len + len)
			cap *= 2;
		p = (uint8_t *)realloc(b->p, cap);
		if (!p)
			return -ENOMEM;
		b->p = p;
		b->cap = cap;
	}
	memcpy(b->p + b->len, buf, len);
	b->len += len;
	return 0;
}

struct rpc_bytes rpc_conn_take_out(struct rpc_conn *c)
{
	struct rpc_bytes b = c->out;

	c->out = c->spare;
	c->spare = (struct rpc_bytes){0};
	return b;
}

void rpc_conn_give_back(struct rpc_conn *c, struct rpc_bytes b)
{
	if (b.cap > RPC_TX_KEEP || c->spare.p) {
		free(b.p);
	} else {
		c->spare = b;
		c->spare.len = 0;
	}
}

int rpc_conn_send(struct rpc_conn *c, const uint8_t *buf, size_t len, uint64_t deadline_ns)
{
	while (len) {
		ssize_t n = send(c->fd, buf, len, MSG_NOSIGNAL);
		int rc = n < 0 ? neg_errno() : 0;

		if (rc == -EAGAIN)
			rc = wait_for(c->fd, POLLOUT, deadline_ns);
		if (rc < 0 && rc != -EINTR)
			return rc;
		if (n > 0) {
			buf += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

/* More bytes into an empty or partly used buffer. */
static int fill(struct rpc_conn *c, uint64_t deadline_ns)
{
	ssize_t n;
	int rc;

	memmove(c->buf, c->buf + c->pos, c->end - c->pos);
	c->end -= c->pos;
	c->pos = 0;
	for (;;) {
		n = recv(c->fd, c->buf + c->end, sizeof(c->buf) - c->end, MSG_DONTWAIT);
		if (n >= 0 || (errno != EINTR && errno != EAGAIN))
			break;
		if (!deadline_ns)
			return -ETIMEDOUT;
		rc = wait_for(c->fd, POLLIN, deadline_ns);
		if (rc < 0)
			return rc;
	}
	if (n <= 0)
		return -ECONNRESET;
	c->end += (uint32_t)n;
	return 0;
}

static int not_rpc(const struct rpc_conn *c, struct err *err)
{
	char text[SHOWN_BYTES_MAX * 4 + 6];
	uint32_t n = c->end - c->pos;

	log_quote(text, sizeof(text), c->buf + c->pos, n < SHOWN_BYTES_MAX ? n : SHOWN_BYTES_MAX);
	return err_set(err, -EPROTO, "what answers does not speak Hadoop RPC, it says %s", text);
}

/* Room for the @n bytes that are here, not for all that is announced. */
static int grow_frame(struct rpc_conn *c, uint32_t n)
{
	uint32_t cap = c->frame_cap ? c->frame_cap : RPC_RX_BUF;
	uint8_t *p;

	if (c->frame_got + n <= c->frame_cap)
		return 0;
	while (cap < c->frame_got + n)
		cap *= 2; /* at most 2 * RPC_FRAME_MAX */
	if (cap > c->frame_len)
		cap = c->frame_len;
	p = (uint8_t *)realloc(c->frame, cap);
	if (!p)
		return -ENOMEM;
	c->frame = p;
	c->frame_cap = cap;
	return 0;
}

static int take_bytes(struct rpc_conn *c)
{
	uint32_t n = c->end - c->pos, want = c->frame_len - c->frame_got;
	int rc;

	if (n > want)
		n = want;
	if (!n)
		return 0;
	rc = grow_frame(c, n);
	if (rc < 0)
		return rc;
	memcpy(c->frame + c->frame_got, c->buf + c->pos, n);
	c->frame_got += n;
	c->pos += n;
	return 0;
}

int rpc_conn_read(struct rpc_conn *c, uint64_t deadline_ns, uint8_t **ret, uint32_t *ret_len,
		  struct err *err)
{
	int rc;

	for (;;) {
		if (!c->in_frame && c->end - c->pos >= 4) {
			if (rpc_frame_len(c->buf + c->pos, RPC_FRAME_MAX, &c->frame_len) < 0)
				return not_rpc(c, err);
			c->pos += 4;
			c->frame_got = c->frame_cap = 0;
			c->in_frame = true;
		}
		if (c->in_frame) {
			rc = take_bytes(c);
			if (rc < 0)
				return err_set(err, rc, "out of memory for an answer of %u bytes",
					       c->frame_len);
			if (c->frame_got == c->frame_len)
				break;
		}
		rc = fill(c, deadline_ns);
		if (rc < 0)
			return err_set(err, rc,
				       rc == -ETIMEDOUT ? "no answer" : "connection closed");
	}
	*ret = c->frame;
	*ret_len = c->frame_len;
	c->frame = NULL;
	c->in_frame = false;
	return 0;
}

bool rpc_conn_has_frame(const struct rpc_conn *c)
{
	const uint32_t n = c->end - c->pos;
	uint32_t len;

	if (c->in_frame || n < 4)
		return false;
	return rpc_frame_len(c->buf + c->pos, RPC_FRAME_MAX, &len) < 0 || n - 4 >= len;
}

bool rpc_conn_is_stale(const struct rpc_conn *c)
{
	uint8_t b;
	ssize_t n = recv(c->fd, &b, 1, MSG_PEEK | MSG_DONTWAIT);

	return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}
