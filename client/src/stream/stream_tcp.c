/* SPDX-License-Identifier: Apache-2.0 */
/* stream_tcp - blocks over DataTransferProtocol on TCP: writing, and what there is; see stream.h,
 * hdfs-wire 5.3 to 5.6 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "client/src/stream/dtp.h"
#include "client/src/stream/stream_tcp_internal.h"
#include "common/base/clock.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"

enum tcp_w_phase {
	TCPW_CONNECT, /* until the socket is writable */
	TCPW_ASK,     /* the operation is on its way out */
	TCPW_ANSWER,  /* that of the first node is awaited, who has asked all others */
	TCPW_OPEN,
};

struct tcp_w {
	struct wstream base;
	struct dfs *fs;    /* borrowed (outlives its files) */
	struct sock *sock; /* owned */
	size_t nodes;
	/* until it is open */
	enum tcp_w_phase phase;
	const Hd__LocatedBlockProto *lb; /* borrowed */
	struct net_addr addr;
	uint64_t until_ns; /* of this phase */
	uint8_t *op;       /* owned; the operation, until it is sent */
	size_t op_len, op_sent;
	/* may the connection take another operation? */
	bool keeps;     /* its node says so, */
	bool last_sent; /* the last packet was sent, */
	bool ended;     /* and acknowledged, */
	bool followed;  /* and nothing behind it */
	int64_t last_seqno;
};

/* ---- set-up: each step 1 done, 0 not now, -errno ---- */

static int do_connect(struct tcp_w *t, struct err *err)
{
	int rc = sock_connected(t->sock, &t->addr, err);

	if (rc == 0 && clock_mono_ns() >= t->until_ns)
		rc = err_set(err, -ETIMEDOUT,
			     "cannot connect to data node %s: no answer within %u ms",
			     t->sock->peer, t->fs->set.connect_timeout_ms);
	if (rc < 0)
		return node_no_connection(rc, err);
	if (rc > 0) {
		t->phase = TCPW_ASK;
		t->until_ns = clock_mono_ns() + stream_timeout_ns(t->fs, t->nodes);
	}
	return rc;
}

static int do_ask(struct tcp_w *t, struct err *err)
{
	const int rc = sock_try_send_rest(t->sock, t->op, t->op_len, &t->op_sent, err);

	if (rc <= 0)
		return rc;
	free(t->op);
	t->op = NULL;
	t->phase = TCPW_ANSWER;
	return 1;
}

static int do_answer(struct tcp_w *t, int *ret_bad, struct err *err)
{
	Hd__BlockOpResponseProto *reply = NULL;
	int rc = dtp_try_reply(t->sock, &reply, err);

	if (reply && rc < 0) {
		bool known;

		*ret_bad = dtp_bad_link(t->lb, reply->firstbadlink, &known);
		if (!known)
			dtp_stranger(t->sock->peer, reply->firstbadlink, err);
		else if (reply->firstbadlink && *reply->firstbadlink)
			err_prefix(err, "data node %s is out of reach for its predecessor",
				   reply->firstbadlink);
	}
	t->keeps = reply && rc > 0 && reply->keeps;
	if (rc > 0 && reply->n_later > 0 && reply->n_later <= t->nodes) {
		t->base.later_count = (uint32_t)reply->n_later;
		memcpy(t->base.later, reply->later, reply->n_later * sizeof(*reply->later));
	}
	pb_free(reply);
	if (rc > 0)
		t->phase = TCPW_OPEN;
	return rc;
}

static int tcp_opened(struct wstream *s, uint64_t *ret_until_ns, int *ret_bad, struct err *err)
{
	struct tcp_w *t = container_of(s, struct tcp_w, base);
	int rc = 1;

	*ret_bad = 0;
	if (t->phase == TCPW_CONNECT)
		rc = do_connect(t, err);
	if (rc > 0 && t->phase == TCPW_ASK)
		rc = do_ask(t, err);
	if (rc > 0 && t->phase == TCPW_ANSWER)
		rc = do_answer(t, ret_bad, err);
	if (rc == 0 && clock_mono_ns() >= t->until_ns)
		rc = err_set(err, -ETIMEDOUT, "data node %s does not answer in time",
			     t->sock->peer);
	*ret_until_ns = t->until_ns;
	return rc;
}

static void tcp_close_write(struct wstream *s)
{
	struct tcp_w *t = container_of(s, struct tcp_w, base);

	if (t->keeps && t->ended && !t->followed && t->sock->head == t->sock->tail)
		sock_cache_put(&t->fs->socks, t->sock);
	else
		sock_close(t->sock);
	free(t->op);
	free(t);
}

/* A connection: one that is idle since another block, or a new one. */
static int begin(struct tcp_w *t, struct err *err)
{
	t->sock = sock_cache_get_sound(&t->fs->socks, &t->addr);
	if (!t->sock)
		return sock_start(&t->addr, &t->sock, err);
	t->phase = TCPW_ASK;
	t->until_ns = clock_mono_ns() + stream_timeout_ns(t->fs, t->nodes);
	return 0;
}

static int tcp_start_write(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
			   struct err *err)
{
	struct tcp_w *t = calloc(1, sizeof(*t));
	struct dtp_write op;
	int rc;

	if (!t)
		return err_set(err, -ENOMEM, "out of memory for a block");
	t->base.ops = &stream_tcp;
	t->fs = fs;
	t->lb = w->lb;
	t->nodes = w->lb->n_locs;
	t->until_ns = clock_mono_ns() + fs->set.connect_timeout_ms * NS_PER_MS;
	rc = node_addr(w->lb->locs[0]->id, fs->set.use_hostname, false, &t->addr, err);
	if (rc == 0) {
		dtp_write_init(&op, fs, w);
		op.op.has_synclater = op.op.synclater = w->sync_later;
		rc = dt_op_encode(DT_WRITE_BLOCK, &op.op.base, &t->op, &t->op_len);
		if (rc < 0)
			err_set(err, rc, "out of memory for a request");
	}
	if (rc == 0)
		rc = begin(t, err);
	if (rc < 0) {
		tcp_close_write(&t->base);
		return rc;
	}
	*ret = &t->base;
	return 0;
}

static int tcp_open_write(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
			  int *ret_bad, struct err *err)
{
	struct wstream *s;
	int rc = tcp_start_write(fs, w, &s, err);
	uint64_t until;

	*ret_bad = 0;
	if (rc < 0)
		return rc;
	while ((rc = tcp_opened(s, &until, ret_bad, err)) == 0) {
		const struct tcp_w *t = container_of(s, struct tcp_w, base);

		rc = sock_wait(t->sock, t->phase == TCPW_ANSWER ? POLLIN : POLLOUT, until, err);
		if (rc < 0)
			break;
	}
	if (rc < 0) {
		tcp_close_write(s);
		return rc;
	}
	*ret = s;
	return 0;
}

/* ---- packets and acks ---- */

static int tcp_send(struct wstream *s, struct packet *p, struct err *err)
{
	struct tcp_w *t = container_of(s, struct tcp_w, base);
	uint8_t hdr[DT_PACKET_HEADER_MAX];
	struct iovec iov[3] = {{hdr, 0}, {p->crc, p->crc_len}, {p->data, p->len}};
	const size_t hdr_len = packet_header(p, hdr);
	const size_t total = hdr_len + p->crc_len + p->len;
	size_t skip = p->sent;
	ssize_t sent;
	int first = 0;

	if (t->phase < TCPW_ANSWER)
		return 0;
	iov[0].iov_len = hdr_len;
	for (; first < 2 && skip >= iov[first].iov_len; first++)
		skip -= iov[first].iov_len;
	iov[first].iov_base = (uint8_t *)iov[first].iov_base + skip;
	iov[first].iov_len -= skip;
	sent = sock_try_send(t->sock, iov + first, 3 - first, err);
	if (sent < 0)
		return (int)sent;
	p->sent += (size_t)sent;
	t->followed = t->last_sent;
	if (p->sent == total && p->last) {
		t->last_sent = true;
		t->last_seqno = p->seqno;
	}
	return p->sent == total;
}

static int tcp_next_ack(struct wstream *s, struct ack *ret, struct err *err)
{
	struct tcp_w *t = container_of(s, struct tcp_w, base);
	const uint8_t *p;
	uint32_t len;
	struct dt_ack a;
	int rc = sock_try_delim(t->sock, &p, &len, err);

	if (rc <= 0)
		return rc;
	if (dt_ack_decode(p, len, &a) < 0)
		return err_set(err, -EPROTO, "data node %s sent a malformed ack", t->sock->peer);
	*ret = (struct ack){.seqno = a.seqno, .bad = dt_ack_first_bad(&a)};
	if (ret->bad >= 0)
		ret->status = a.reply[ret->bad];
	t->ended = t->last_sent && ret->bad < 0 && a.seqno == t->last_seqno;
	if (ret->bad >= (int)t->nodes)
		ret->bad = (int)t->nodes - 1;
	if (ret->bad < 0 && a.seqno >= 0 && a.count < t->nodes)
		return err_set(err, -EPROTO, "data node %s acknowledges for %u of %zu nodes",
			       t->sock->peer, a.count, t->nodes);
	return 1;
}

static short events_of(const struct tcp_w *t, bool want_send)
{
	if (t->phase != TCPW_OPEN)
		return t->phase == TCPW_ANSWER ? POLLIN : POLLOUT;
	return want_send ? POLLIN | POLLOUT : POLLIN;
}

static int tcp_wait(struct wstream *s, bool want_send, uint64_t deadline_ns, struct err *err)
{
	struct tcp_w *t = container_of(s, struct tcp_w, base);

	return sock_wait(t->sock, events_of(t, want_send), deadline_ns, err);
}

static int tcp_poll_write(struct wstream *s, bool want_send, struct pollfd *ret)
{
	struct tcp_w *t = container_of(s, struct tcp_w, base);

	*ret = (struct pollfd){.fd = t->sock->fd, .events = events_of(t, want_send)};
	return 0;
}

const struct block_stream stream_tcp = {
	.name = "tcp",
	.counter = 0,
	.runs_ahead = true,
	.open_write = tcp_open_write,
	.start_write = tcp_start_write,
	.opened = tcp_opened,
	.send = tcp_send,
	.next_ack = tcp_next_ack,
	.wait = tcp_wait,
	.poll_write = tcp_poll_write,
	.close_write = tcp_close_write,
	.open_read = tcp_r_open,
	.read = tcp_r_read,
	.close_read = tcp_r_close,
	.start_read = tcp_r_start,
	.try_read = tcp_r_try,
	.poll_read = tcp_r_poll,
};
