/* SPDX-License-Identifier: Apache-2.0 */
/* stream_tcp_read - a range of a block over DataTransferProtocol on TCP; hdfs-wire 5.4
 *
 * One machine that never waits: it connects, asks, takes the answer, then packet by packet header,
 * CRCs and data, as far as the bytes that are there allow. The blocking functions are a loop around
 * it. Data go straight to the caller's buffer; a chunk that is there in part only, or wanted in
 * part only, goes through one of our own. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "client/src/stream/dtp.h"
#include "client/src/stream/stream_tcp_internal.h"
#include "common/base/clock.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"

#define READ_STEP 131072u /* receive and verify in pieces that stay in the cache */
/* after so short a read the next one comes at once, most likely */
#define STATUS_LATER_MAX 65536u
/* patience for the status of a read to leave, to reuse the connection */
#define FINISH_NS (1000 * NS_PER_MS)

enum tcp_phase {
	TCP_CONNECT, /* until the socket is writable */
	TCP_ASK,     /* the operation is on its way out */
	TCP_ANSWER,  /* the node's answer is awaited */
	TCP_HEADER,  /* the header of the next packet is */
	TCP_CRCS,    /* its CRCs are */
	TCP_DATA,    /* its data are */
};

struct tcp_r {
	struct rstream base;
	struct dfs *fs;    /* borrowed (outlives its files) */
	struct sock *sock; /* owned; NULL once given to the cache */
	struct net_addr addr;
	enum tcp_phase phase;
	uint8_t *op; /* owned; the operation, until it is answered */
	size_t op_len, op_sent;
	uint64_t offset; /* in the block, of the wanted range */
	enum crc_type type;
	uint32_t bpc;
	uint64_t at;      /* offset in the block of the next byte to arrive */
	uint64_t end;     /* where the wanted range ends */
	uint32_t skip;    /* bytes to drop before the wanted range */
	int64_t seqno;    /* of the next packet */
	uint32_t left;    /* data bytes of the current packet yet to be verified */
	uint32_t crc_len; /* of the current packet */
	uint32_t crc_got;
	uint8_t *crc;          /* owned; CRCs of the current packet */
	const uint8_t *crc_at; /* CRC of the next chunk */
	uint32_t crc_cap;
	uint8_t *chunk;               /* owned; one chunk */
	uint32_t part;                /* bytes of it that are there, not verified yet */
	uint32_t chunk_at, chunk_end; /* what is verified of it and not yet taken */
};

/* ---- before the first packet ---- */

static int pack_op(struct tcp_r *t, const struct read_setup *r, struct err *err)
{
	Hd__OpReadBlockProto op = HD__OP_READ_BLOCK_PROTO__INIT;
	const Hd__ExtendedBlockProto block = read_block(r);
	Hd__CachingStrategyProto caching;
	struct dtp_header h;
	int rc;

	dtp_caching_init(&caching, &t->fs->set, t->fs->set.drop_reads);
	dtp_header_init(&h, t->fs, &block, r->lb->blocktoken);
	op.header = &h.op;
	op.offset = r->offset;
	op.len = r->len;
	op.cachingstrategy = &caching;
	op.has_askssmall = op.askssmall = true;
	rc = dt_op_encode(DT_READ_BLOCK, &op.base, &t->op, &t->op_len);
	return rc < 0 ? err_set(err, rc, "out of memory for a request") : 0;
}

/* A connection: an idle one when there is one and it may be such a one. */
static int begin(struct tcp_r *t, bool fresh, struct err *err)
{
	int rc;

	t->op_sent = 0;
	t->phase = TCP_ASK;
	t->sock = fresh ? NULL : sock_cache_get(&t->fs->socks, &t->addr);
	if (t->sock)
		return 0;
	t->phase = TCP_CONNECT;
	rc = sock_start(&t->addr, &t->sock, err);
	return rc < 0 ? node_no_connection(rc, err) : rc;
}

/* Each of these: 1 done, on to the next phase; 0 not now; -errno. */
static int do_connect(struct tcp_r *t, struct err *err)
{
	int rc = sock_connected(t->sock, &t->addr, err);

	if (rc < 0)
		return node_no_connection(rc, err);
	if (rc > 0)
		t->phase = TCP_ASK;
	return rc;
}

static int do_ask(struct tcp_r *t, struct err *err)
{
	const int rc = sock_try_send_rest(t->sock, t->op, t->op_len, &t->op_sent, err);

	if (rc > 0)
		t->phase = TCP_ANSWER; /* which is not here yet */
	return rc < 0 ? rc : 0;
}

static int take_checksum_info(struct tcp_r *t, const Hd__ReadOpChecksumInfoProto *info,
			      struct err *err)
{
	if (!info || info->checksum->bytesperchecksum > BPC_MAX || info->chunkoffset > t->offset ||
	    t->offset - info->chunkoffset >= info->checksum->bytesperchecksum)
		return err_set(
			err, -EPROTO,
			"data node %s answers a read with offsets or sizes that do not fit it",
			t->sock->peer);
	t->type = (enum crc_type)info->checksum->type;
	t->bpc = info->checksum->bytesperchecksum;
	t->at = info->chunkoffset;
	t->skip = (uint32_t)(t->offset - info->chunkoffset);
	t->chunk = malloc(t->bpc);
	if (!t->chunk)
		return err_set(err, -ENOMEM, "out of memory for a chunk");
	return 1;
}

static int do_answer(struct tcp_r *t, struct err *err)
{
	Hd__BlockOpResponseProto *reply = NULL;
	int rc = dtp_try_reply(t->sock, &reply, err);

	if (rc > 0) {
		rc = take_checksum_info(t, reply->readopchecksuminfo, err);
		t->sock->takes_small = reply->has_takessmall && reply->takessmall;
	}
	pb_free(reply);
	if (rc > 0)
		t->phase = TCP_HEADER;
	return rc;
}

static int try_header(struct tcp_r *t, struct dt_packet *ret, struct err *err)
{
	ssize_t need = DT_PACKET_PREFIX_LEN;
	const uint8_t *p;
	int rc;

	do { /* at first the prefix, then the rest, which the prefix measures */
		const ssize_t had = need;

		rc = sock_try_peek(t->sock, (size_t)need, &p, err);
		if (rc <= 0)
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
	return 1;
}

/* What the last read on this connection has left: its data were whole, and it did not wait for the
 * packet that says so. */
static int take_end(struct tcp_r *t, struct err *err)
{
	struct dt_packet h;
	int rc = try_header(t, &h, err);

	if (rc <= 0)
		return rc;
	if (!h.last || h.data_len > 0 || h.crc_len > 0 || h.seqno != t->sock->end_seqno ||
	    (uint64_t)h.offset != t->sock->end_at)
		return err_set(err, -EPROTO, "data node %s did not send the last packet of a read",
			       t->sock->peer);
	t->sock->owes_end = false;
	return 1;
}

/* Until the node has answered. 1, 0 not now, -errno. */
static int establish(struct tcp_r *t, struct err *err)
{
	int rc = 1;

	while (rc > 0 && t->phase < TCP_HEADER) {
		if (t->phase == TCP_CONNECT)
			rc = do_connect(t, err);
		else if (t->phase == TCP_ASK)
			rc = do_ask(t, err);
		else if (t->sock->owes_end)
			rc = take_end(t, err);
		else
			rc = do_answer(t, err);
		if (rc < 0 && t->sock->reused && rc != -ENOMEM) {
			sock_close(t->sock); /* closed by the node while it lay idle, most likely */
			t->sock = NULL;
			if (err)
				err_reset(err);
			rc = begin(t, true, err) ?: 1;
		}
	}
	return rc;
}

/* ---- packets ---- */

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

/* The next packet begins; left is 0 when it is the empty one at the end. */
static int do_header(struct tcp_r *t, struct err *err)
{
	struct dt_packet h;
	int rc = try_header(t, &h, err);

	if (rc <= 0)
		return rc;
	if (h.seqno != t->seqno || (uint64_t)h.offset != t->at || (h.data_len > 0) == h.last ||
	    h.crc_len != crc_bytes(t->type, h.data_len, t->bpc))
		return err_set(
			err, -EPROTO,
			"data node %s sent packet %lld out of order, or with sizes that do not fit it",
			t->sock->peer, (long long)t->seqno);
	t->left = h.data_len;
	t->crc_len = h.crc_len;
	t->crc_got = 0;
	t->seqno++;
	rc = crc_room(t, err);
	if (rc < 0)
		return rc;
	t->crc_at = t->crc;
	if (t->left > 0)
		t->phase = TCP_CRCS;
	return 1;
}

static int do_crcs(struct tcp_r *t, struct err *err)
{
	if (t->crc_got < t->crc_len) {
		ssize_t n = sock_try_recv(t->sock, t->crc + t->crc_got, t->crc_len - t->crc_got, 0,
					  err);

		if (n <= 0)
			return (int)n;
		t->crc_got += (uint32_t)n;
	}
	if (t->crc_got == t->crc_len)
		t->phase = TCP_DATA;
	return 1;
}

/* Until data of a packet are due. 1, 0 not now, -errno. */
static int to_data(struct tcp_r *t, struct err *err)
{
	int rc = establish(t, err);

	while (rc > 0 && t->phase != TCP_DATA) {
		rc = t->phase == TCP_HEADER ? do_header(t, err) : do_crcs(t, err);
		if (rc > 0 && t->phase == TCP_HEADER)
			rc = err_set(err, -EPROTO,
				     "data node %s ended the read before its last byte",
				     t->sock->peer);
	}
	return rc;
}

/* @len bytes are there, whole chunks or the rest of the packet. */
static int verify(struct tcp_r *t, const uint8_t *data, uint32_t len, struct err *err)
{
	int64_t wrong = crc_verify(t->type, data, len, t->bpc, t->crc_at);

	if (wrong >= 0)
		return err_set(
			err, -EBADMSG, "data node %s: wrong checksum at byte %llu of the block",
			t->sock->peer, (unsigned long long)(t->at + (uint64_t)wrong * t->bpc));
	t->crc_at += crc_bytes(t->type, len, t->bpc);
	t->at += len;
	t->left -= len;
	if (t->left == 0)
		t->phase = TCP_HEADER;
	return 0;
}

/* Bytes that can go straight to a buffer of @len: whole chunks, or all that is left. */
static uint32_t direct_len(const struct tcp_r *t, size_t len)
{
	const uint32_t step = READ_STEP > t->bpc ? READ_STEP : t->bpc;
	const uint32_t max = len < step ? (uint32_t)len : step;

	if (t->skip > 0 || t->part > 0)
		return 0;
	return max >= t->left ? t->left : max / t->bpc * t->bpc;
}

/* What follows a packet's last byte is the next packet's header and CRCs. */
static size_t ahead_of(const struct tcp_r *t, uint32_t len)
{
	return len == t->left ? DT_PACKET_HEADER_MAX + t->crc_len : 0;
}

/* Up to @len bytes to @dst, the whole chunks among them verified; the rest is kept for later.
 * Verified bytes, 0 not now. */
static ssize_t take_direct(struct tcp_r *t, uint8_t *dst, uint32_t len, struct err *err)
{
	ssize_t got = sock_try_recv(t->sock, dst, len, ahead_of(t, len), err);
	uint32_t whole;
	int rc;

	if (got <= 0)
		return got;
	whole = (uint32_t)got == len ? len : (uint32_t)got / t->bpc * t->bpc;
	t->part = (uint32_t)got - whole;
	memcpy(t->chunk, dst + whole, t->part);
	rc = whole ? verify(t, dst, whole, err) : 0;
	return rc < 0 ? rc : (ssize_t)whole;
}

/* A whole chunk to our own buffer. 1, 0 not now. */
static int take_chunk(struct tcp_r *t, struct err *err)
{
	const uint32_t len = t->left < t->bpc ? t->left : t->bpc;
	int rc;

	while (t->part < len) {
		ssize_t n = sock_try_recv(t->sock, t->chunk + t->part, len - t->part,
					  ahead_of(t, len), err);

		if (n <= 0)
			return (int)n;
		t->part += (uint32_t)n;
	}
	t->part = 0;
	rc = verify(t, t->chunk, len, err);
	if (rc < 0)
		return rc;
	if (t->skip >= len)
		return err_set(err, -EPROTO, "data node %s sent less than was asked",
			       t->sock->peer);
	t->chunk_at = t->skip;
	t->skip = 0;
	t->chunk_end = t->at > t->end ? len - (uint32_t)(t->at - t->end) : len;
	return 1;
}

static ssize_t give_chunk(struct tcp_r *t, void *buf, size_t len)
{
	uint32_t n = t->chunk_end - t->chunk_at;

	if (n > len)
		n = (uint32_t)len;
	memcpy(buf, t->chunk + t->chunk_at, n);
	t->chunk_at += n;
	return (ssize_t)n;
}

ssize_t tcp_r_try(struct rstream *s, void *buf, size_t len, struct err *err)
{
	struct tcp_r *t = container_of(s, struct tcp_r, base);

	while (t->chunk_at == t->chunk_end) {
		ssize_t n = to_data(t, err);
		uint32_t direct;

		if (n <= 0)
			return n;
		direct = direct_len(t, len);
		n = direct ? take_direct(t, buf, direct, err) : take_chunk(t, err);
		if (n < 0 || (direct && n > 0))
			return n;
		if (n == 0 && !(direct && t->part)) /* a part of a chunk came: is there more? */
			return 0;
	}
	return give_chunk(t, buf, len);
}

int tcp_r_poll(struct rstream *s, struct pollfd *ret)
{
	const struct tcp_r *t = container_of(s, struct tcp_r, base);

	*ret = (struct pollfd){.fd = t->sock->fd, .events = t->phase <= TCP_ASK ? POLLOUT : POLLIN};
	return 0;
}

/* ---- the blocking functions ---- */

/* Until something can be done. 0, -ETIMEDOUT. */
static int wait_for(struct tcp_r *t, uint64_t deadline_ns, struct err *err)
{
	const bool connecting = t->phase == TCP_CONNECT;
	int rc = sock_wait(t->sock, t->phase <= TCP_ASK ? POLLOUT : POLLIN, deadline_ns, err);

	if (rc == 0 && connecting)
		err_set(err, -ETIMEDOUT,
			"cannot connect to data node %s: no answer within %u ms; "
			"is it up? see dfs admin report",
			t->sock->peer, t->fs->set.connect_timeout_ms);
	else if (rc == 0)
		err_set(err, -ETIMEDOUT, "data node %s does not answer in time", t->sock->peer);
	return rc == 0 ? -ETIMEDOUT : rc < 0 ? rc : 0;
}

ssize_t tcp_r_read(struct rstream *s, void *buf, size_t len, struct err *err)
{
	struct tcp_r *t = container_of(s, struct tcp_r, base);
	const uint64_t deadline = clock_mono_ns() + stream_timeout_ns(t->fs, 0);

	for (;;) {
		ssize_t n = tcp_r_try(s, buf, len, err);
		int rc = n ? 0 : wait_for(t, deadline, err);

		if (n || rc < 0)
			return n ?: rc;
	}
}

/* A packet of its own costs the node a wake-up, and both a good part of a short read: then the
 * status goes along with the next request. */
static bool send_status(struct tcp_r *t, uint64_t deadline_ns)
{
	uint8_t status[DT_STATUS_MAX];
	struct iovec iov = {status,
			    dt_read_status_encode(t->type ? DT_CHECKSUM_OK : DT_SUCCESS, status)};

	if (t->end - t->offset <= STATUS_LATER_MAX) {
		const size_t sent = sock_send_later(t->sock, status, iov.iov_len);

		iov.iov_base = status + sent;
		iov.iov_len -= sent;
	}
	return !iov.iov_len || sock_send(t->sock, &iov, 1, deadline_ns, NULL) == 0;
}

/* Everything was read: send the status, keep the connection. The empty packet at the end has
 * nothing to tell: when it is not here yet, whoever reads next on the connection takes it. A read
 * of a few bytes would wait longest for it. */
static bool finish_read(struct tcp_r *t)
{
	const uint64_t deadline = clock_mono_ns() + FINISH_NS;
	int rc;

	if (t->at < t->end || t->phase != TCP_HEADER || t->chunk_at < t->chunk_end)
		return false;
	rc = do_header(t, NULL);
	if (rc < 0 || (rc > 0 && t->left > 0))
		return false;
	t->sock->owes_end = rc == 0;
	t->sock->end_seqno = t->seqno;
	t->sock->end_at = t->at;
	return send_status(t, deadline);
}

void tcp_r_close(struct rstream *s)
{
	struct tcp_r *t = container_of(s, struct tcp_r, base);

	if (t->sock && t->chunk && finish_read(t))
		sock_cache_put(&t->fs->socks, t->sock);
	else
		sock_close(t->sock);
	free(t->op);
	free(t->crc);
	free(t->chunk);
	free(t);
}

int tcp_r_start(struct dfs *fs, const struct read_setup *r, struct rstream **ret, struct err *err)
{
	struct tcp_r *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return err_set(err, -ENOMEM, "out of memory for a read");
	t->base.ops = &stream_tcp;
	t->fs = fs;
	t->offset = r->offset;
	t->end = r->offset + r->len;
	rc = node_addr(r->lb->locs[r->node]->id, fs->set.use_hostname, false, &t->addr, err);
	rc = rc ?: pack_op(t, r, err);
	rc = rc ?: begin(t, false, err);
	if (rc < 0) {
		tcp_r_close(&t->base);
		return rc;
	}
	*ret = &t->base;
	return 0;
}

int tcp_r_open(struct dfs *fs, const struct read_setup *r, struct rstream **ret, struct err *err)
{
	const uint64_t now = clock_mono_ns(), answer = now + stream_timeout_ns(fs, 0);
	const uint64_t connect = now + fs->set.connect_timeout_ms * NS_PER_MS;
	struct rstream *s;
	struct tcp_r *t;
	int rc = tcp_r_start(fs, r, &s, err);

	if (rc < 0)
		return rc;
	t = container_of(s, struct tcp_r, base);
	while (rc == 0) {
		rc = establish(t, err);
		if (rc == 0)
			rc = wait_for(t, t->phase == TCP_CONNECT ? connect : answer, err);
	}
	if (rc < 0) {
		sock_close(t->sock);
		t->sock = NULL;
		tcp_r_close(s);
		return rc;
	}
	*ret = s;
	return 0;
}

int stream_tcp_checksum(struct dfs *fs, const struct read_setup *r, enum crc_type *ret_type,
			uint32_t *ret_bpc, struct err *err)
{
	struct rstream *s = NULL;
	struct tcp_r *t;
	uint8_t byte;
	int rc = tcp_r_open(fs, r, &s, err);

	if (rc < 0)
		return rc;
	t = container_of(s, struct tcp_r, base);
	*ret_type = t->type;
	*ret_bpc = t->bpc;
	/* to the end of what was asked: the connection is kept */
	(void)tcp_r_read(s, &byte, 1, err);
	tcp_r_close(s);
	return 0;
}
