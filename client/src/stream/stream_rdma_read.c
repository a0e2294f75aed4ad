/* SPDX-License-Identifier: Apache-2.0 */
/* stream_rdma_read - a range of a block arrives in registered slots, asked for ahead (see
 * stream_rdma.c). This is the caller's side; stream_rdma_read_requests.c is the reactor's. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "client/src/stream/dtp.h"
#include "client/src/stream/stream_rdma_read_internal.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"

#define GIVEN_UP_NS (100 * NS_PER_MS) /* a node whose disk is slow answers a CANCEL sooner */

/* With the lock held. */
static bool claim_msg(struct rdma_r *r)
{
	const bool mine = !r->posted;

	r->posted = true;
	return mine;
}

/* With the lock held. */
static bool is_sending(const struct rdma_r *r)
{
	bool busy = false;

	for (uint32_t i = 0; i < READ_SLOTS; i++)
		busy |= r->slot[i].send.busy;
	return busy;
}

/* A node may write to the caller's memory, or a READ of ours does. With the lock held. */
static bool is_exposed(const struct rdma_r *r)
{
	bool exposed = false;

	for (uint32_t i = 0; i < READ_SLOTS; i++)
		exposed |= r->slot[i].exposed || r->slot[i].pulling;
	return exposed;
}

/* Nothing is under way: neither a request nor a capsule. With the lock held. */
static bool is_settled(const struct rdma_r *r)
{
	for (uint32_t i = 0; i < READ_SLOTS; i++)
		if (r->slot[i].asked)
			return false;
	return !is_sending(r);
}

bool rdma_r_come_to_rest(struct rstream *rs)
{
	struct rdma_r *r = container_of(rs, struct rdma_r, base);
	bool settled, post = false;

	pthread_mutex_lock(&r->m.lock);
	settled = r->m.lost || is_settled(r);
	if (!settled) {
		if (!r->stop_ns)
			r->stop_ns = clock_mono_ns();
		post = !r->stop_posted;
		r->stop_posted = true;
	}
	pthread_mutex_unlock(&r->m.lock);
	if (post)
		reactor_post(rdma_reactor(r->rdma), &r->stop_msg);
	return settled;
}

void rdma_r_close(struct rstream *rs)
{
	struct rdma_r *r = container_of(rs, struct rdma_r, base);
	const uint64_t deadline = clock_mono_ns() + (rs->given_up ? GIVEN_UP_NS : RDMA_CLOSE_NS);
	struct r_task t = {.r = r};
	int rc = 0;

	if (r->rdma) {
		if (r->at < r->end)
			rdma_run(r->rdma, &t.t, rdma_r_stop_run);
		pthread_mutex_lock(&r->m.lock);
		while (!is_settled(r) && !r->m.lost && !rc)
			rc = meeting_wait(&r->m, deadline);
		pthread_mutex_unlock(&r->m.lock);
		rdma_run(r->rdma, &t.t, rdma_r_release_run);
		pthread_mutex_lock(&r->m.lock);
		/* it was given up: the transport keeps the deadline */
		while (is_sending(r) || is_exposed(r))
			pthread_cond_wait(&r->m.news, &r->m.lock);
		pthread_mutex_unlock(&r->m.lock);
		for (uint32_t i = 0; i < READ_SLOTS; i++)
			rdma_call_end(r->rdma, &r->slot[i].call);
	}
	rdma_memory_put(r->memory);
	meeting_fini(&r->m);
	free(r->block.poolid);
	pb_free(r->token);
	free(r);
}

static const uint8_t *bytes_of(const struct rslot *s)
{
	return s->dest ? s->dest : s->data->data;
}

/* The oldest answer: shape and CRCs. */
static int verify(struct rdma_r *r, struct rslot *s, struct err *err)
{
	int64_t wrong;

	if (s->status != HD__STATUS__SUCCESS)
		return err_set(err, dt_status_errno(s->status), "data node %s: %s", r->peer,
			       *s->text ? s->text : "the read failed");
	if (s->first > s->offset || s->data_len > s->data_room ||
	    s->first + s->data_len < s->offset + s->len || s->crc_len > s->crc_room ||
	    (s->crc_type != CRC_NULL &&
	     (!s->bpc || s->crc_len != crc_bytes((enum crc_type)s->crc_type, s->data_len, s->bpc))))
		return err_set(
			err, -EPROTO,
			"data node %s answers a read with offsets or sizes that do not fit it",
			r->peer);
	wrong = crc_verify((enum crc_type)s->crc_type, bytes_of(s), s->data_len,
			   s->bpc ? s->bpc : 512, s->crcs);
	if (wrong >= 0)
		return err_set(err, -EBADMSG,
			       "data node %s: wrong checksum at byte %llu of the block", r->peer,
			       (unsigned long long)(s->first + (uint64_t)wrong * s->bpc));
	r->verified = true;
	return 0;
}

/* Why no answer will come. */
static int no_answer(struct rdma_r *r, struct err *err)
{
	bool waited, windows;

	pthread_mutex_lock(&r->m.lock);
	waited = r->m.lost ? r->m.lost == -ENOBUFS : r->waits;
	windows = r->for_windows;
	pthread_mutex_unlock(&r->m.lock);
	if (waited)
		return stream_no_buffers(r->fs, "a read", windows, err);
	if (r->m.lost) {
		err_set(err, r->m.lost, "data node %s by RDMA: %s", r->peer, r->m.why);
		return stream_broke(r->fs, r->peer, rdma_has_other_way(r->rdma, &r->slot[0].call),
				    err)
			       ? -ENOBUFS
			       : r->m.lost;
	}
	return err_set(err, -ETIMEDOUT, "data node %s does not answer a read", r->peer);
}

/* The caller has it to itself while `reading` is set. */
static ssize_t take(struct rdma_r *r, void *buf, size_t len, struct err *err)
{
	struct rslot *s = slot_of(r, r->tail);
	const int rc = r->verified ? 0 : verify(r, s, err);
	const uint64_t left = s->offset + s->len - r->at;
	const uint8_t *from;

	if (rc < 0)
		return rc;
	r->base.counter = s->onesided ? STREAM_ONESIDED : stream_rdma.counter;
	if (len > left)
		len = (size_t)left;
	from = bytes_of(s) + (r->at - s->first);
	if (from != buf) { /* else it has come there */
		memcpy(buf, from, len);
		count_add(&r->fs->count.read_rdma_copied, len);
	}
	return (ssize_t)len;
}

/* @n bytes were taken: the request may be used up. */
static void took(struct rdma_r *r, ssize_t n)
{
	struct rslot *s = slot_of(r, r->tail);
	bool post = false;

	pthread_mutex_lock(&r->m.lock);
	r->reading = false;
	r->used_ns = clock_mono_ns();
	if (n > 0)
		r->at += (uint64_t)n;
	if (n > 0 && r->at == s->offset + s->len) {
		s->answered = false;
		r->tail++;
		r->verified = false;
		post = claim_msg(r);
	}
	pthread_mutex_unlock(&r->m.lock);
	if (post)
		reactor_post(rdma_reactor(r->rdma), &r->msg);
}

/* The caller is here. True: there is something to read, which is its own until took(). With the
 * lock held, which is let go while the reactor is told: the answer may come meanwhile. */
static bool come(struct rdma_r *r)
{
	const bool post = r->parked && claim_msg(r);

	r->used_ns = clock_mono_ns();
	r->parked = false;
	r->stop_ns = 0;
	if (post) {
		pthread_mutex_unlock(&r->m.lock);
		reactor_post(rdma_reactor(r->rdma), &r->msg);
		pthread_mutex_lock(&r->m.lock);
	}
	r->reading = slot_of(r, r->tail)->answered;
	return r->reading;
}

/* What was READ does not fit its CRCs: perhaps the replica is well, and the node is asked. */
static void ask_instead(struct rdma_r *r)
{
	bool post;

	pthread_mutex_lock(&r->m.lock);
	r->reading = false;
	slot_of(r, r->tail)->answered = false;
	r->distrusts = true;
	post = claim_msg(r);
	pthread_mutex_unlock(&r->m.lock);
	if (post)
		reactor_post(rdma_reactor(r->rdma), &r->msg);
}

/* 0: it is asked for again. */
static ssize_t take_some(struct rdma_r *r, void *buf, size_t len, struct err *err)
{
	const bool onesided = slot_of(r, r->tail)->onesided;
	const ssize_t n = take(r, buf, len, err);

	if (n < 0 && onesided) {
		log_warn("op=view node=%s: %s; the node is asked for it", r->peer, err->text);
		err_reset(err);
		ask_instead(r);
		return 0;
	}
	took(r, n);
	return n;
}

/* As rdma_r_read(), or 0: it is asked for again. */
static ssize_t read_once(struct rdma_r *r, void *buf, size_t len, struct err *err)
{
	const uint64_t timeout = stream_timeout_ns(r->fs, 0);
	uint64_t deadline = clock_mono_ns() + timeout;
	bool there, waited = false;
	int rc = 0;

	pthread_mutex_lock(&r->m.lock);
	while (!(there = come(r)) && !rc && !r->m.lost) {
		r->reading = true;       /* what comes is not given back before it is seen */
		if (waited && !r->waits) /* the node's time begins when it is asked */
			deadline = clock_mono_ns() + timeout;
		waited = r->waits;
		rc = meeting_wait(&r->m, waited ? deadline + rdma_wait_ns(r->fs) : deadline);
	}
	r->reading = there;
	pthread_mutex_unlock(&r->m.lock);
	return there ? take_some(r, buf, len, err) : no_answer(r, err);
}

ssize_t rdma_r_read(struct rstream *rs, void *buf, size_t len, struct err *err)
{
	struct rdma_r *r = container_of(rs, struct rdma_r, base);
	ssize_t n;

	do
		n = read_once(r, buf, len, err);
	while (n == 0);
	return n;
}

ssize_t rdma_r_try(struct rstream *rs, void *buf, size_t len, struct err *err)
{
	struct rdma_r *r = container_of(rs, struct rdma_r, base);
	bool there;
	int lost;

	pthread_mutex_lock(&r->m.lock);
	there = come(r);
	lost = r->m.lost;
	pthread_mutex_unlock(&r->m.lock);
	return there ? take_some(r, buf, len, err) : lost ? no_answer(r, err) : 0;
}

int rdma_r_poll(struct rstream *rs, struct pollfd *ret)
{
	struct rdma_r *r = container_of(rs, struct rdma_r, base);
	int rc = 1;

	pthread_mutex_lock(&r->m.lock);
	if (!slot_of(r, r->tail)->answered && !r->m.lost && !r->parked)
		rc = meeting_poll(&r->m, ret);
	pthread_mutex_unlock(&r->m.lock);
	return rc;
}

/* The reader's message may go before the last request is sent. */
static int copy_token(struct rdma_r *r, const Hc__TokenProto *token)
{
	uint8_t *buf;
	size_t len;
	int rc;

	if (!token)
		return 0;
	rc = pb_pack(token, &buf, &len);
	if (rc < 0)
		return rc;
	rc = pb_unpack(&hc__token_proto__descriptor, buf, len, &r->token);
	free(buf);
	return rc;
}

int rdma_r_pack(void *arg, uint8_t **ret, size_t *ret_len)
{
	const struct rslot *s = arg;
	Hd__OpReadBlockProto op = HD__OP_READ_BLOCK_PROTO__INIT;
	struct dtp_header h;

	dtp_header_init(&h, s->r->fs, &s->r->block, s->r->token);
	op.header = &h.op;
	op.offset = s->offset;
	op.len = s->len;
	return pb_pack(&op, ret, ret_len);
}

/* Where RDMA is required the stream waits in line for its first slot; else TCP does as well. */
static int begin(struct rdma_r *r, struct err *err)
{
	struct r_task t = {.r = r};

	rdma_run(r->rdma, &t.t, rdma_r_begin_run);
	if (r->fs->set.rdma != RDMA_REQUIRE && t.dry)
		return err_set(err, -ENOBUFS, "all RDMA buffers of this process are in use");
	return 0;
}

int rdma_open_read(struct dfs *fs, const struct read_setup *setup, struct rstream **ret,
		   struct err *err)
{
	const Hd__DatanodeInfoProto *node = setup->lb->locs[setup->node];
	struct rdma_r *r = malloc(sizeof(*r));
	int rc;

	if (!r)
		return err_set(err, -ENOMEM, "out of memory for a read");
	rdma_r_init(r);
	r->base.ops = &stream_rdma;
	r->fs = fs;
	meeting_init(&r->m);
	node_text(node->id, r->peer);
	r->at = r->asked = r->from = setup->offset;
	r->dest = setup->dest;
	r->cached = setup->node < setup->lb->n_iscached && setup->lb->iscached[setup->node];
	r->end = setup->offset + setup->len;
	r->bpc = fs->defaults.bytes_per_checksum ?: 512;
	r->block = read_block(setup);
	r->block.poolid = strdup(setup->lb->b->poolid);
	rc = r->block.poolid ? copy_token(r, setup->lb->blocktoken) : -ENOMEM;
	if (rc < 0)
		err_set(err, rc, "out of memory for a read");
	else
		rc = rdma_reach(fs, node->id, &r->rdma, &r->slot[0].call, err);
	if (!rc && setup->dest)
		r->memory = rdma_memory_get(r->rdma, setup->dest, setup->len);
	rc = rc ?: begin(r, err);
	if (rc < 0) {
		rdma_r_close(&r->base);
		return rdma_no_path(rc, err);
	}
	*ret = &r->base;
	return 0;
}
