/* SPDX-License-Identifier: Apache-2.0 */
/* stream_tcp - blocks over DataTransferProtocol on TCP; see stream.h, hdfs-wire 5.3 to 5.6 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "client/src/dtp.h"
#include "client/src/stream.h"
#include "common/base/clock.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"

#define READ_STEP 131072u              /* receive and verify in pieces that stay in the cache */
#define FINISH_NS (1000 * NS_PER_MS)   /* patience for the end of a read, to reuse the connection */

/* ---- write ---- */

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

/* ---- read ---- */

struct tcp_r {
	struct rstream base;
	struct dfs *fs;    /* borrowed (outlives its files) */
	struct sock *sock; /* owned; NULL once given to the cache */
	enum crc_type type;
	uint32_t bpc;
	uint64_t at;       /* offset in the block of the next byte to arrive */
	uint64_t end;      /* where the wanted range ends */
	uint32_t skip;     /* bytes to drop before the wanted range */
	int64_t seqno;     /* of the next packet */
	uint32_t left;     /* data bytes of the current packet yet to arrive */
	uint32_t crc_len;  /* of the current packet */
	uint8_t *crc;      /* owned; CRCs of the current packet */
	const uint8_t *crc_at; /* CRC of the next chunk */
	uint32_t crc_cap;
	uint8_t *chunk;    /* owned; one chunk that is wanted in part only */
	uint32_t chunk_at, chunk_end;
};

static int recv_header(struct tcp_r *t, uint64_t deadline_ns, struct dt_packet *ret,
		       struct err *err)
{
	ssize_t need = DT_PACKET_PREFIX_LEN;
	const uint8_t *p;
	int rc;

	do { /* at first the prefix, then the rest, which the prefix measures */
		const ssize_t had = need;

		rc = sock_peek(t->sock, (size_t)need, deadline_ns, &p, err);
		if (rc < 0)
			return rc;
		need = dt_packet_need(p, (size_t)had);
		if (need == had)
			break;
	} while (need > 0);
	rc = need < 0 ? (int)need : dt_packet_decode(p, (size_t)need, ret);
	if (rc < 0)
		return err_set(err, -EPROTO, "data node %s sent a malformed packet header",
			       t->sock->peer);
	sock_consume(t->sock, (size_t)need);
	return 0;
}

static int crc_room(struct tcp_r *t, struct err *err)
{
	uint8_t *p;

	if (t->crc && t->crc_len <= t->crc_cap)
		return 0;
	p = realloc(t->crc, t->crc_len + 1); /* + 1: no null pointer when there are no CRCs */
	if (!p)
		return err_set(err, -ENOMEM, "out of memory for checksums");
	t->crc = p;
	t->crc_cap = t->crc_len;
	return 0;
}

/* Begin the next packet. 1, 0 when it is the empty one at the end, -errno. */
static int next_packet(struct tcp_r *t, uint64_t deadline_ns, struct err *err)
{
	struct dt_packet h;
	int rc = recv_header(t, deadline_ns, &h, err);

	if (rc < 0)
		return rc;
	if (h.seqno != t->seqno || (uint64_t)h.offset != t->at || (h.data_len > 0) == h.last ||
	    h.crc_len != crc_bytes(t->type, h.data_len, t->bpc))
		return err_set(err, -EPROTO, "data node %s sent packet %lld out of order or shape",
			       t->sock->peer, (long long)t->seqno);
	t->left = h.data_len;
	t->crc_len = h.crc_len;
	t->seqno++;
	if (t->left == 0)
		return 0;
	rc = crc_room(t, err);
	if (rc == 0)
		rc = sock_recv(t->sock, t->crc, t->crc_len, 0, deadline_ns, err);
	t->crc_at = t->crc;
	return rc < 0 ? rc : 1;
}

/* @len bytes, whole chunks or the rest of the packet, to @dst and verified. */
static int recv_verified(struct tcp_r *t, uint8_t *dst, uint32_t len, uint64_t deadline_ns,
			 struct err *err)
{
	/* what follows the packet's last byte is the next packet's header and CRCs */
	const size_t ahead = len == t->left ? DT_PACKET_HEADER_MAX + t->crc_len : 0;
	int rc = sock_recv(t->sock, dst, len, ahead, deadline_ns, err);
	int64_t wrong;

	if (rc < 0)
		return rc;
	wrong = crc_verify(t->type, dst, len, t->bpc, t->crc_at);
	if (wrong >= 0)
		return err_set(err, -EBADMSG,
			       "data node %s: wrong checksum at byte %llu of the block",
			       t->sock->peer,
			       (unsigned long long)(t->at + (uint64_t)wrong * t->bpc));
	t->crc_at += crc_bytes(t->type, len, t->bpc);
	t->at += len;
	t->left -= len;
	return 0;
}

/* Bytes that can go straight to a buffer of @len: whole chunks, or all that is left. */
static uint32_t direct_len(const struct tcp_r *t, size_t len)
{
	const uint32_t step = READ_STEP > t->bpc ? READ_STEP : t->bpc;
	const uint32_t max = len < step ? (uint32_t)len : step;

	if (t->skip > 0)
		return 0;
	return max >= t->left ? t->left : max / t->bpc * t->bpc;
}

static int recv_chunk(struct tcp_r *t, uint64_t deadline_ns, struct err *err)
{
	const uint32_t len = t->left < t->bpc ? t->left : t->bpc;
	int rc = recv_verified(t, t->chunk, len, deadline_ns, err);

	if (rc < 0)
		return rc;
	if (t->skip >= len)
		return err_set(err, -EPROTO, "data node %s sent less than was asked",
			       t->sock->peer);
	t->chunk_at = t->skip;
	t->skip = 0;
	t->chunk_end = t->at > t->end ? len - (uint32_t)(t->at - t->end) : len;
	return 0;
}

static ssize_t tcp_read(struct rstream *s, void *buf, size_t len, struct err *err)
{
	struct tcp_r *t = container_of(s, struct tcp_r, base);
	const uint64_t deadline = clock_mono_ns() + stream_timeout_ns(t->fs, 0);
	uint32_t n;
	int rc = 0;

	if (t->chunk_at == t->chunk_end) {
		if (t->left == 0)
			rc = next_packet(t, deadline, err);
		if (t->left == 0)
			return rc < 0 ? rc
				      : err_set(err, -EPROTO, "data node %s ends the block early",
						t->sock->peer);
		if (rc < 0)
			return rc;
		n = direct_len(t, len);
		if (n > 0) {
			rc = recv_verified(t, buf, n, deadline, err);
			return rc < 0 ? rc : (ssize_t)n;
		}
		rc = recv_chunk(t, deadline, err);
		if (rc < 0)
			return rc;
	}
	n = t->chunk_end - t->chunk_at;
	if (n > len)
		n = (uint32_t)len;
	memcpy(buf, t->chunk + t->chunk_at, n);
	t->chunk_at += n;
	return (ssize_t)n;
}

/* Everything was read: take the end packet, send the status, keep the connection. */
static bool finish_read(struct tcp_r *t)
{
	const uint64_t deadline = clock_mono_ns() + FINISH_NS;
	uint8_t status[DT_STATUS_MAX];
	struct iovec iov = {status, 0};

	iov.iov_len = dt_read_status_encode(t->type ? DT_CHECKSUM_OK : DT_SUCCESS, status);
	if (t->at < t->end || t->left > 0 || t->chunk_at < t->chunk_end)
		return false;
	return next_packet(t, deadline, NULL) == 0 &&
	       sock_send(t->sock, &iov, 1, deadline, NULL) == 0;
}

static void tcp_close_read(struct rstream *s)
{
	struct tcp_r *t = container_of(s, struct tcp_r, base);

	if (t->sock && t->chunk && finish_read(t))
		sock_cache_put(&t->fs->socks, t->sock);
	else
		sock_close(t->sock);
	free(t->crc);
	free(t->chunk);
	free(t);
}

static int send_read_op(struct tcp_r *t, const struct read_setup *r, uint64_t deadline_ns,
			struct err *err)
{
	Hd__OpReadBlockProto op = HD__OP_READ_BLOCK_PROTO__INIT;
	Hd__CachingStrategyProto caching;
	struct dtp_header h;

	dtp_caching_init(&caching, &t->fs->set, t->fs->set.drop_reads);
	dtp_header_init(&h, t->fs, r->lb->b, r->lb->blocktoken);
	op.header = &h.op;
	op.offset = r->offset;
	op.len = r->len;
	op.cachingstrategy = &caching;
	return dtp_send_op(t->sock, DT_READ_BLOCK, &op.base, deadline_ns, err);
}

static int take_checksum_info(struct tcp_r *t, const struct read_setup *r,
			      const Hd__ReadOpChecksumInfoProto *info, struct err *err)
{
	if (!info || info->checksum->bytesperchecksum == 0 ||
	    info->checksum->bytesperchecksum > BPC_MAX || info->chunkoffset > r->offset ||
	    r->offset - info->chunkoffset >= info->checksum->bytesperchecksum)
		return err_set(err, -EPROTO, "data node %s answers a read with nonsense",
			       t->sock->peer);
	t->type = (enum crc_type)info->checksum->type;
	t->bpc = info->checksum->bytesperchecksum;
	t->at = info->chunkoffset;
	t->skip = (uint32_t)(r->offset - info->chunkoffset);
	t->end = r->offset + r->len;
	t->chunk = malloc(t->bpc);
	if (!t->chunk)
		return err_set(err, -ENOMEM, "out of memory for a chunk");
	return 0;
}

static int start_read(struct tcp_r *t, const struct read_setup *r, bool fresh, struct err *err)
{
	const uint64_t deadline = clock_mono_ns() + stream_timeout_ns(t->fs, 0);
	Hd__BlockOpResponseProto *reply = NULL;
	int rc = dtp_connect(t->fs, r->lb->locs[r->node]->id, fresh, &t->sock, err);

	if (rc == 0)
		rc = send_read_op(t, r, deadline, err);
	if (rc == 0)
		rc = dtp_recv_reply(t->sock, deadline, &reply, err);
	if (rc == 0)
		rc = take_checksum_info(t, r, reply->readopchecksuminfo, err);
	pb_free(reply);
	return rc;
}

static int tcp_open_read(struct dfs *fs, const struct read_setup *r, struct rstream **ret,
			 struct err *err)
{
	struct tcp_r *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return err_set(err, -ENOMEM, "out of memory for a read");
	t->base.ops = &stream_tcp;
	t->fs = fs;
	rc = start_read(t, r, false, err);
	if (rc < 0 && t->sock && t->sock->reused && rc != -ENOMEM && !t->chunk) {
		sock_close(t->sock); /* closed by the node while it lay idle, most likely */
		t->sock = NULL;
		rc = start_read(t, r, true, err);
	}
	if (rc < 0) {
		sock_close(t->sock);
		t->sock = NULL;
		tcp_close_read(&t->base);
		return rc;
	}
	*ret = &t->base;
	return 0;
}

int stream_tcp_checksum(struct dfs *fs, const struct read_setup *r, enum crc_type *ret_type,
			uint32_t *ret_bpc, struct err *err)
{
	struct rstream *s = NULL;
	struct tcp_r *t;
	uint8_t byte;
	int rc = tcp_open_read(fs, r, &s, err);

	if (rc < 0)
		return rc;
	t = container_of(s, struct tcp_r, base);
	*ret_type = t->type;
	*ret_bpc = t->bpc;
	(void)tcp_read(s, &byte, 1, err); /* to the end of what was asked: the connection is kept */
	tcp_close_read(s);
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
	.open_read = tcp_open_read,
	.read = tcp_read,
	.close_read = tcp_close_read,
};
