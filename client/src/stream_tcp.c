/* SPDX-License-Identifier: Apache-2.0 */
/* stream_tcp - blocks over DataTransferProtocol on TCP: writing, and what there is; see stream.h,
 * hdfs-wire 5.3 to 5.6 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "client/src/dtp.h"
#include "client/src/stream_tcp_internal.h"
#include "common/base/clock.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"

struct tcp_w {
	struct wstream base;
	struct dfs *fs;    /* borrowed (outlives its files) */
	struct sock *sock; /* owned */
	size_t nodes;
};

static int send_write_op(struct tcp_w *t, const struct write_setup *w, uint64_t deadline_ns,
			 struct err *err)
{
	struct dtp_write op;

	dtp_write_init(&op, t->fs, w);
	return dtp_send_op(t->sock, DT_WRITE_BLOCK, &op.op.base, deadline_ns, err);
}

static int setup_pipeline(struct tcp_w *t, const struct write_setup *w, int *ret_bad,
			  struct err *err)
{
	const uint64_t deadline = clock_mono_ns() + stream_timeout_ns(t->fs, t->nodes);
	Hd__BlockOpResponseProto *reply = NULL;
	int rc = send_write_op(t, w, deadline, err);

	if (rc == 0)
		rc = dtp_recv_reply(t->sock, deadline, &reply, err);
	if (reply && rc < 0) {
		*ret_bad = dtp_bad_link(w->lb, reply->firstbadlink);
		if (reply->firstbadlink && *reply->firstbadlink)
			err_prefix(err, "data node %.64s is out of reach for its predecessor",
				   reply->firstbadlink);
	}
	pb_free(reply);
	return rc;
}

static void tcp_close_write(struct wstream *s)
{
	struct tcp_w *t = container_of(s, struct tcp_w, base);

	sock_close(t->sock);
	free(t);
}

static int tcp_open_write(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
			  int *ret_bad, struct err *err)
{
	struct tcp_w *t = calloc(1, sizeof(*t));
	int rc;

	*ret_bad = 0;
	if (!t)
		return err_set(err, -ENOMEM, "out of memory for a block");
	t->base.ops = &stream_tcp;
	t->fs = fs;
	t->nodes = w->lb->n_locs;
	rc = dtp_connect(fs, w->lb->locs[0]->id, true, &t->sock, err);
	if (rc == 0)
		rc = setup_pipeline(t, w, ret_bad, err);
	if (rc < 0) {
		tcp_close_write(&t->base);
		return rc;
	}
	*ret = &t->base;
	return 0;
}

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

	iov[0].iov_len = hdr_len;
	for (; first < 2 && skip >= iov[first].iov_len; first++)
		skip -= iov[first].iov_len;
	iov[first].iov_base = (uint8_t *)iov[first].iov_base + skip;
	iov[first].iov_len -= skip;
	sent = sock_try_send(t->sock, iov + first, 3 - first, err);
	if (sent < 0)
		return (int)sent;
	p->sent += (size_t)sent;
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
	if (ret->bad >= (int)t->nodes)
		ret->bad = (int)t->nodes - 1;
	if (ret->bad < 0 && a.seqno >= 0 && a.count < t->nodes)
		return err_set(err, -EPROTO, "data node %s acknowledges for %u of %zu nodes",
			       t->sock->peer, a.count, t->nodes);
	return 1;
}

static int tcp_wait(struct wstream *s, bool want_send, uint64_t deadline_ns, struct err *err)
{
	struct tcp_w *t = container_of(s, struct tcp_w, base);

	return sock_wait(t->sock, want_send ? POLLIN | POLLOUT : POLLIN, deadline_ns, err);
}

static int tcp_poll_write(struct wstream *s, bool want_send, struct pollfd *ret)
{
	struct tcp_w *t = container_of(s, struct tcp_w, base);

	*ret = (struct pollfd){.fd = t->sock->fd, .events = want_send ? POLLIN | POLLOUT : POLLIN};
	return 0;
}

const struct block_stream stream_tcp = {
	.name = "tcp",
	.counter = 0,
	.open_write = tcp_open_write,
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
