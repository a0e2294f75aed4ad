/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/stream/dtp.h"

#include <stdlib.h>
#include <string.h>

#include "client/src/stream/stream.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/pb.h"

void dtp_header_init(struct dtp_header *h, struct dfs *fs, const Hd__ExtendedBlockProto *block,
		     const Hc__TokenProto *token)
{
	hd__client_operation_header_proto__init(&h->op);
	hd__base_header_proto__init(&h->base);
	h->base.block = (Hd__ExtendedBlockProto *)block; /* protobuf-c knows no const */
	h->base.token = (Hc__TokenProto *)token;
	h->op.baseheader = &h->base;
	h->op.clientname = fs->client_name;
}

void dtp_caching_init(Hd__CachingStrategyProto *m, const struct settings *s, enum hint drop)
{
	hd__caching_strategy_proto__init(m);
	m->has_dropbehind = drop != HINT_NONE;
	m->dropbehind = drop == HINT_YES;
	m->has_readahead = s->has_readahead;
	m->readahead = (int64_t)s->readahead;
}

static void fill_targets(Hd__OpWriteBlockProto *op, const Hd__LocatedBlockProto *lb)
{
	op->n_targets = op->n_targetstoragetypes = op->n_targetstorageids = lb->n_locs - 1;
	op->targets = lb->locs + 1;
	op->targetstoragetypes = lb->storagetypes + 1;
	op->targetstorageids = lb->storageids + 1;
	op->has_storagetype = 1;
	op->storagetype = lb->storagetypes[0];
	op->storageid = lb->storageids[0];
	op->pipelinesize = (uint32_t)lb->n_locs;
}

void dtp_write_init(struct dtp_write *t, struct dfs *fs, const struct write_setup *w)
{
	hd__op_write_block_proto__init(&t->op);
	hd__checksum_proto__init(&t->sum);
	dtp_caching_init(&t->caching, &fs->set, fs->set.drop_writes);
	dtp_header_init(&t->h, fs, w->block, w->lb->blocktoken);
	t->op.header = &t->h.op;
	t->sum.type = (Hd__ChecksumTypeProto)w->crc_type;
	t->sum.bytesperchecksum = w->bpc;
	t->op.requestedchecksum = &t->sum;
	t->op.cachingstrategy = &t->caching;
	t->pinning = 0;
	t->op.n_targetpinnings = 1; /* stock clients send exactly one, hdfs-wire 13 */
	t->op.targetpinnings = &t->pinning;
	fill_targets(&t->op, w->lb);
	t->op.stage = (Hd__OpWriteBlockProto__BlockConstructionStage)w->stage;
	t->op.minbytesrcvd = w->min_rcvd;
	t->op.maxbytesrcvd = w->max_rcvd;
	t->op.latestgenerationstamp = w->latest_gs;
	t->op.has_patiencems = fs->set.socket_timeout_ms > 0; /* 0: none of its own */
	t->op.patiencems = fs->set.socket_timeout_ms;
}

int dtp_bad_link(const Hd__LocatedBlockProto *lb, const char *link, bool *ret_known)
{
	char text[NET_TEXT_MAX];

	*ret_known = true;
	for (size_t i = 0; link && i < lb->n_locs; i++)
		if (strcmp(node_text(lb->locs[i]->id, text), link) == 0)
			return (int)i;
	*ret_known = !link || !*link;
	return 0;
}

void dtp_stranger(const char *peer, const char *link, struct err *err)
{
	char text[NET_TEXT_MAX];

	log_quote(text, sizeof(text), link, strlen(link));
	err_prefix(err, "data node %s blames %s, which is not in its pipeline", peer, text);
}

int dtp_send_op(struct sock *s, enum dt_op op, const ProtobufCMessage *m, uint64_t deadline_ns,
		struct err *err)
{
	struct iovec iov;
	uint8_t *buf;
	int rc = dt_op_encode(op, m, &buf, &iov.iov_len);

	if (rc < 0)
		return err_set(err, rc, "out of memory for a request");
	iov.iov_base = buf;
	rc = sock_send(s, &iov, 1, deadline_ns, err);
	free(buf);
	return rc;
}

/* The message of an answer. 1, 0 for one that only says that more will come, -errno. */
static int take_reply(struct sock *s, const uint8_t *p, uint32_t len,
		      Hd__BlockOpResponseProto **ret, struct err *err)
{
	Hd__BlockOpResponseProto *m;
	char text[200] = "";
	int rc;

	if (pb_unpack(&hd__block_op_response_proto__descriptor, p, len, &m) < 0)
		return err_set(err, -EPROTO, "data node %s sent a malformed answer; wrong port?",
			       s->peer);
	if (m->status == HD__STATUS__IN_PROGRESS) {
		pb_free(m);
		return 0;
	}
	*ret = m;
	rc = dt_status_errno((int)m->status);
	if (rc == 0)
		return 1;
	if (m->message)
		log_quote(text, sizeof(text), m->message, strlen(m->message));
	return err_set(err, rc, "data node %s refuses: %s%s%s", s->peer,
		       dt_status_name((int)m->status), text[0] ? ": " : "", text);
}

int dtp_recv_reply(struct sock *s, uint64_t deadline_ns, Hd__BlockOpResponseProto **ret,
		   struct err *err)
{
	const uint8_t *p;
	uint32_t len;
	int rc;

	do {
		rc = sock_recv_delim(s, deadline_ns, &p, &len, err);
		if (rc == 0)
			rc = take_reply(s, p, len, ret, err);
	} while (rc == 0);
	return rc < 0 ? rc : 0;
}

int dtp_try_reply(struct sock *s, Hd__BlockOpResponseProto **ret, struct err *err)
{
	const uint8_t *p;
	uint32_t len;
	int rc;

	do {
		rc = sock_try_delim(s, &p, &len, err);
		if (rc <= 0)
			return rc;
		rc = take_reply(s, p, len, ret, err);
	} while (rc == 0);
	return rc;
}

static int connect_to(struct dfs *fs, const Hd__DatanodeIDProto *id, struct sock **ret,
		      struct err *err)
{
	struct net_addr a;
	int rc = node_addr(id, fs->set.use_hostname, false, &a, err);

	if (rc < 0)
		return rc;
	rc = sock_open(&a, fs->set.connect_timeout_ms, ret, err);
	return rc < 0 ? node_no_connection(rc, err) : rc;
}

/* The node sends the whole replica before it answers: allow for 10 MB/s. */
static uint64_t transfer_deadline(struct dfs *fs, uint64_t bytes)
{
	return clock_mono_ns() + stream_timeout_ns(fs, 2) + bytes * 100;
}

int dtp_transfer(struct dfs *fs, const Hd__LocatedBlockProto *lb,
		 const Hd__ExtendedBlockProto *block, size_t from, size_t to, bool *ret_from_bad,
		 struct err *err)
{
	Hd__OpTransferBlockProto op = HD__OP_TRANSFER_BLOCK_PROTO__INIT;
	Hd__BlockOpResponseProto *reply = NULL;
	struct dtp_header h;
	struct sock *s;
	int rc = connect_to(fs, lb->locs[from]->id, &s, err);

	*ret_from_bad = rc < 0;
	if (rc < 0)
		return rc;
	dtp_header_init(&h, fs, block, lb->blocktoken);
	op.header = &h.op;
	op.n_targets = op.n_targetstoragetypes = op.n_targetstorageids = 1;
	op.targets = &lb->locs[to];
	op.targetstoragetypes = &lb->storagetypes[to];
	op.targetstorageids = &lb->storageids[to];
	rc = dtp_send_op(s, DT_TRANSFER_BLOCK, &op.base, transfer_deadline(fs, 0), err);
	if (rc == 0)
		rc = dtp_recv_reply(s, transfer_deadline(fs, block->numbytes), &reply, err);
	pb_free(reply);
	sock_close(s);
	return rc;
}
