/* SPDX-License-Identifier: Apache-2.0 */
/* stream_rdma_read - a range of a block arrives in registered slots, asked for ahead; stream_rdma.c */
#include <assert.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "client/src/dtp.h"
#include "client/src/stream_rdma_internal.h"
#include "common/base/clock.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"

#define READ_SLOTS 3u
#define READ_PIECE (512u << 10) /* bytes of one READ; the slot has room for a chunk more */

struct rslot {
	struct rmsg msg;
	struct rdma_r *r;
	struct slot *data, *crc;
	struct rsend send;
	struct rcall call;
	uint64_t offset; /* asked */
	uint32_t len;
	bool asked;      /* under meeting.lock: the node may write to the slots */
	bool answered;
	int status;
	uint8_t crc_type;
	uint32_t bpc, data_len, crc_len;
	uint64_t first;  /* block offset of the first byte in the slot */
	char text[256];
};

struct rdma_r {
	struct rstream base;
	struct dfs *fs;
	struct rdma *rdma;
	char peer[NET_TEXT_MAX];
	struct net_addr addr;
	Hd__ExtendedBlockProto block;    /* pool id owned */
	Hc__TokenProto *token;           /* owned */
	struct meeting m;
	uint64_t at, end;                /* next byte for the caller; end of the range */
	uint64_t asked;                  /* next byte to ask for */
	uint32_t slots;                  /* of slot[], with memory */
	uint32_t head, tail;             /* requests in order: slot[tail % slots] is the oldest */
	bool verified;                   /* CRCs of the oldest were checked */
	struct rslot slot[READ_SLOTS];
};

static void r_on_capsule(struct rcall *c, const struct capsule *m)
{
	struct rslot *s = container_of(c, struct rslot, call);
	struct meeting *meet = &s->r->m;

	if (m->type != CAPSULE_READ_REPLY && m->type != CAPSULE_CLOSED)
		return;
	c->id = 0; /* answered: nothing changes what the caller looks at from now on */
	pthread_mutex_lock(&meet->lock);
	s->asked = false;
	s->answered = true;
	if (m->type == CAPSULE_READ_REPLY) {
		s->status = m->read_reply.status;
		s->crc_type = m->read_reply.crc_type;
		s->bpc = m->read_reply.bytes_per_checksum;
		s->first = m->read_reply.chunk_offset;
		s->data_len = m->read_reply.data_len;
		s->crc_len = m->read_reply.crc_len;
		rdma_copy_text(s->text, sizeof(s->text), m->read_reply.text);
	} else {
		s->status = HD__STATUS__ERROR;
		rdma_copy_text(s->text, sizeof(s->text), m->closed.text);
	}
	meeting_ring(meet);
	pthread_mutex_unlock(&meet->lock);
}

static void r_on_lost(struct rcall *c, int rc, const char *why)
{
	meeting_lost(&container_of(c, struct rslot, call)->r->m, rc, why);
}

static int pack_read(const struct rslot *s, uint8_t **ret, size_t *ret_len)
{
	Hd__OpReadBlockProto op = HD__OP_READ_BLOCK_PROTO__INIT;
	struct dtp_header h;

	dtp_header_init(&h, s->r->fs, &s->r->block, s->r->token);
	op.header = &h.op;
	op.offset = s->offset;
	op.len = s->len;
	return pb_pack(&op, ret, ret_len);
}

static void ask_run(struct rmsg *msg)
{
	struct rslot *s = container_of(msg, struct rslot, msg);
	struct capsule m = {.type = CAPSULE_READ};
	size_t len = 0;
	uint8_t *op = NULL;
	int rc = -ECONNRESET;

	rdma_call_renew(&s->call);
	if (rdma_capsule_max(&s->call)) {
		struct xremote d = rdma_remote(&s->call, s->data, 0), c = rdma_remote(&s->call, s->crc, 0);

		rc = pack_read(s, &op, &len);
		m.read.dest = (struct capsule_mem){d.addr, d.rkey, s->data->size};
		m.read.crc = (struct capsule_mem){c.addr, c.rkey, s->crc->size};
		m.read.op = (struct capsule_bytes){op, (uint32_t)len};
	}
	if (!rc)
		rc = rdma_send(&s->call, &s->send, &m);
	free(op);
	if (rc < 0) {
		pthread_mutex_lock(&s->r->m.lock);
		s->asked = false; /* nobody was told of the memory */
		pthread_mutex_unlock(&s->r->m.lock);
		meeting_lost(&s->r->m, rc, "a read cannot be sent");
	}
}

/* Keep as many requests under way as there are slots. */
static void ask_ahead(struct rdma_r *r)
{
	while (r->asked < r->end && r->head - r->tail < r->slots) {
		struct rslot *s = &r->slot[r->head % r->slots];
		uint64_t piece_end = (r->asked / READ_PIECE + 1) * READ_PIECE;

		s->offset = r->asked;
		s->len = (uint32_t)((piece_end < r->end ? piece_end : r->end) - r->asked);
		s->asked = true;
		s->answered = false;
		s->msg.fn = ask_run;
		r->asked += s->len;
		r->head++;
		reactor_post(rdma_reactor(r->rdma), &s->msg);
	}
}

struct r_task {
	struct rtask t;
	struct rdma_r *r;
};

/* As many as there are; the first decides. */
static void slots_run(struct rtask *t)
{
	struct rdma_r *r = container_of(t, struct r_task, t)->r;
	struct pool *pool = rdma_pool(t->rdma);

	while (r->slots < READ_SLOTS && r->slot[r->slots].call.conn) {
		struct rslot *s = &r->slot[r->slots];
		struct slot *pair[2];
		struct pool_ask ask = {.use = POOL_READ, .forms = 1, .slots = pair,
				       .form[0] = {2, {{SLOT_1M, 1}, {SLOT_8K, 1}}}};

		if (!pool_take(pool, &ask))
			break;
		s->data = pair[0];
		s->crc = pair[1];
		r->slots++;
	}
}

static void r_release_run(struct rtask *t)
{
	struct rdma_r *r = container_of(t, struct r_task, t)->r;

	for (uint32_t i = 0; i < READ_SLOTS; i++) {
		struct rslot *s = &r->slot[i];

		if (s->data && s->asked) { /* unanswered: the node may still write to it */
			rdma_quarantine(t->rdma, &s->call, s->data);
			rdma_quarantine(t->rdma, &s->call, s->crc);
		} else {
			slot_put(s->data);
			slot_put(s->crc);
		}
		s->data = s->crc = NULL;
		if (s->send.busy)
			rdma_give_up(&s->call);
	}
}

void rdma_r_close(struct rstream *rs)
{
	struct rdma_r *r = container_of(rs, struct rdma_r, base);
	const uint64_t deadline = clock_mono_ns() + RDMA_CLOSE_NS;
	struct r_task t = {.r = r};
	int rc = 0;

	if (r->rdma) {
		pthread_mutex_lock(&r->m.lock);
		for (uint32_t i = 0; i < READ_SLOTS; i++)
			while (r->slot[i].asked && !r->m.lost && !rc && !rs->given_up)
				rc = meeting_wait(&r->m, deadline);
		pthread_mutex_unlock(&r->m.lock);
		rdma_run(r->rdma, &t.t, r_release_run);
		for (uint32_t i = 0; i < READ_SLOTS; i++)
			rdma_call_end(r->rdma, &r->slot[i].call);
	}
	meeting_fini(&r->m);
	free(r->block.poolid);
	pb_free(r->token);
	free(r);
}

/* The oldest answer: shape and CRCs. */
static int verify(struct rdma_r *r, struct rslot *s, struct err *err)
{
	int64_t wrong;

	if (s->status != HD__STATUS__SUCCESS)
		return err_set(err, dt_status_errno(s->status), "data node %s: %s", r->peer,
			       *s->text ? s->text : "the read failed");
	if (s->first > s->offset || s->data_len > s->data->size ||
	    s->first + s->data_len < s->offset + s->len || s->crc_len > s->crc->size ||
	    (s->crc_type != CRC_NULL && (!s->bpc || s->crc_len != crc_bytes((enum crc_type)s->crc_type,
									     s->data_len, s->bpc))))
		return err_set(err, -EPROTO, "data node %s answers a read with nonsense", r->peer);
	wrong = crc_verify((enum crc_type)s->crc_type, s->data->data, s->data_len, s->bpc ? s->bpc : 512,
			   s->crc->data);
	if (wrong >= 0)
		return err_set(err, -EBADMSG, "data node %s: wrong checksum at byte %llu of the block",
			       r->peer, (unsigned long long)(s->first + (uint64_t)wrong * s->bpc));
	r->verified = true;
	return 0;
}

/* The oldest request has been answered, or never will be. */
static ssize_t take(struct rdma_r *r, struct rslot *s, void *buf, size_t len, struct err *err)
{
	uint64_t left;
	int rc;

	if (!s->answered)
		return r->m.lost ? err_set(err, r->m.lost, "data node %s: %s", r->peer, r->m.why)
				 : err_set(err, -ETIMEDOUT, "data node %s does not answer a read", r->peer);
	rc = r->verified ? 0 : verify(r, s, err);
	if (rc < 0)
		return rc;
	left = s->offset + s->len - r->at;
	if (len > left)
		len = (size_t)left;
	memcpy(buf, s->data->data + (r->at - s->first), len);
	r->at += len;
	if (r->at == s->offset + s->len) {
		r->tail++;
		r->verified = false;
		ask_ahead(r);
	}
	return (ssize_t)len;
}

ssize_t rdma_r_read(struct rstream *rs, void *buf, size_t len, struct err *err)
{
	struct rdma_r *r = container_of(rs, struct rdma_r, base);
	const uint64_t deadline = clock_mono_ns() + stream_timeout_ns(r->fs, 0);
	struct rslot *s = &r->slot[r->tail % r->slots];
	int rc = 0;

	pthread_mutex_lock(&r->m.lock);
	while (!rc && !s->answered && !r->m.lost)
		rc = meeting_wait(&r->m, deadline);
	pthread_mutex_unlock(&r->m.lock);
	return take(r, s, buf, len, err);
}

ssize_t rdma_r_try(struct rstream *rs, void *buf, size_t len, struct err *err)
{
	struct rdma_r *r = container_of(rs, struct rdma_r, base);
	struct rslot *s = &r->slot[r->tail % r->slots];
	bool news;

	pthread_mutex_lock(&r->m.lock);
	news = s->answered || r->m.lost;
	pthread_mutex_unlock(&r->m.lock);
	return news ? take(r, s, buf, len, err) : 0;
}

int rdma_r_poll(struct rstream *rs, struct pollfd *ret)
{
	struct rdma_r *r = container_of(rs, struct rdma_r, base);
	int rc = 1;

	pthread_mutex_lock(&r->m.lock);
	if (!r->slot[r->tail % r->slots].answered && !r->m.lost)
		rc = meeting_poll(&r->m, ret);
	pthread_mutex_unlock(&r->m.lock);
	return rc;
}

static int start_calls(struct rdma_r *r, struct err *err)
{
	const uint64_t deadline = rdma_connect_deadline(r->fs);
	uint64_t pieces = (r->end - 1) / READ_PIECE - r->at / READ_PIECE + 1;
	int rc = 0;

	for (uint32_t i = 0; i < READ_SLOTS && i < pieces && !rc; i++) {
		r->slot[i].r = r;
		r->slot[i].call.on_capsule = r_on_capsule;
		r->slot[i].call.on_lost = r_on_lost;
		rc = rdma_call_start(r->rdma, &r->addr, deadline, &r->slot[i].call, err);
	}
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

int rdma_open_read(struct dfs *fs, const struct read_setup *setup, struct rstream **ret,
			  struct err *err)
{
	const Hd__DatanodeInfoProto *node = setup->lb->locs[setup->node];
	struct rdma_r *r = calloc(1, sizeof(*r));
	struct r_task t = {.r = r};
	int rc;

	if (!r)
		return err_set(err, -ENOMEM, "out of memory for a read");
	r->base.ops = &stream_rdma;
	r->fs = fs;
	meeting_init(&r->m);
	node_text(node->id, r->peer);
	r->at = r->asked = setup->offset;
	r->end = setup->offset + setup->len;
	r->block = *setup->lb->b;
	r->block.poolid = strdup(setup->lb->b->poolid);
	rc = r->block.poolid ? copy_token(r, setup->lb->blocktoken) : -ENOMEM;
	if (rc < 0)
		err_set(err, rc, "out of memory for a read");
	else
		rc = rdma_get(fs, &r->rdma, err);
	if (rc == 0)
		rc = node_addr(node->id, fs->set.use_hostname, false, &r->addr, err);
	if (rc == 0)
		rc = start_calls(r, err);
	if (rc == 0) {
		rdma_run(r->rdma, &t.t, slots_run);
		if (!r->slots)
			rc = err_set(err, -ENOBUFS, "too many RDMA reads at a time");
	}
	if (rc < 0) {
		rdma_r_close(&r->base);
		return rdma_no_path(rc, err);
	}
	ask_ahead(r);
	*ret = &r->base;
	return 0;
}
