/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/stream/small_read.h"

#include <poll.h>
#include <string.h>

#include "common/base/clock.h"

size_t small_read_encode(const struct read_setup *r, uint32_t tag,
			 uint8_t out[SMALL_READ_REQUEST_MAX])
{
	const Hd__ExtendedBlockProto *b = r->lb->b;
	const Hc__TokenProto *t = r->lb->blocktoken;
	const struct small_read_request q = {
		.tag = tag,
		.len = (uint32_t)r->len,
		.offset = r->offset,
		.block = {.id = (int64_t)b->blockid, .gs = r->gs ?: b->generationstamp},
		.pool = b->poolid,
		.identifier = t->identifier.data,
		.identifier_len = t->identifier.len,
		.password = t->password.data,
		.password_len = t->password.len};

	return small_read_request_encode(&q, out, SMALL_READ_REQUEST_MAX);
}

int small_read_peek(struct sock *s, struct small_read_answer *ret, const uint8_t **ret_bytes)
{
	size_t have;
	const uint8_t *p = sock_have(s, &have);

	if (have < SMALL_READ_HEADER_LEN)
		return 0;
	if (small_read_answer_decode(p, ret) < 0)
		return -EPROTO;
	*ret_bytes = p + SMALL_READ_HEADER_LEN;
	return have >= small_read_answer_len(ret);
}

bool small_read_take(const struct small_read_answer *a, const uint8_t *bytes, uint64_t offset,
		     void *buf, uint32_t len)
{
	const uint8_t *data = bytes + a->crc_len;

	if (a->status != DT_SUCCESS || a->lead != offset % a->bytes_per_crc ||
	    a->data_len - a->lead < len ||
	    crc_verify(a->crc_type, data, a->data_len, a->bytes_per_crc, bytes) >= 0)
		return false;
	memcpy(buf, data + a->lead, len);
	return true;
}

/* 1 the answer is there; 0 the node has closed, or sent something else; -errno. */
static int await(struct dfs *fs, struct sock *s, uint32_t tag, struct small_read_answer *a,
		 const uint8_t **ret_bytes, struct err *err)
{
	const uint64_t deadline = clock_mono_ns() + stream_timeout_ns(fs, 0);
	int rc;

	do {
		rc = sock_await(s, fs->set.socket_timeout_ms, deadline, err);
		if (rc == -ETIMEDOUT)
			return rc;
		rc = rc < 0 ? rc : small_read_peek(s, a, ret_bytes);
	} while (rc == 0);
	return rc > 0 && a->tag == tag;
}

ssize_t small_read(struct dfs *fs, const struct read_setup *r, void *buf, struct err *err)
{
	uint8_t request[SMALL_READ_REQUEST_MAX];
	struct small_read_answer a;
	struct net_addr addr;
	struct iovec iov = {request, 0};
	const uint8_t *bytes;
	struct sock *s;
	bool good;
	int rc;

	if (node_addr(r->lb->locs[r->node]->id, fs->set.use_hostname, false, &addr, err) < 0)
		goto ordinary;
	s = sock_cache_get_small(&fs->socks, &addr);
	if (!s)
		return 0;
	iov.iov_len = small_read_encode(r, s->tag + 1, request);
	rc = iov.iov_len > 0 && sock_try_send(s, &iov, 1, err) == (ssize_t)iov.iov_len;
	if (rc > 0)
		rc = await(fs, s, ++s->tag, &a, &bytes, err);
	if (rc <= 0) {
		sock_close(s);
		if (rc < 0)
			return rc;
		goto ordinary;
	}
	good = small_read_take(&a, bytes, r->offset, buf, (uint32_t)r->len);
	sock_consume(s, small_read_answer_len(&a));
	sock_cache_put(&fs->socks, s);
	if (good)
		return (ssize_t)r->len;
ordinary:
	if (err)
		err_reset(err);
	return 0;
}
