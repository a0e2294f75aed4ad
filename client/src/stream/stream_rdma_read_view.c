/* SPDX-License-Identifier: Apache-2.0 */
/* A request of an RDMA read with which the node has nothing to do: data and CRCs are READ from its
 * memory to where the answer to an ordinary request would have come (rdma_view.h). All of it on the
 * reactor. */
#include <errno.h>

#include "client/src/stream/stream_rdma_read_internal.h"
#include "common/wire/dt.h"

/* What the node would answer. False: the request's memory has no room for that. */
static bool shape(struct rslot *s, const struct capsule_view *at)
{
	const uint32_t bpc = at->bytes_per_checksum;
	const uint64_t end = s->offset + s->len;
	uint64_t last = (end + bpc - 1) / bpc * bpc;

	if (end > at->data_len)
		return false;
	if (last > at->data_len)
		last = at->data_len;
	s->first = s->offset / bpc * bpc;
	if (last - s->first > s->data_room)
		return false;
	s->data_len = (uint32_t)(last - s->first);
	s->crc_type = at->crc_type;
	s->bpc = bpc;
	s->crc_len = (uint32_t)crc_bytes((enum crc_type)at->crc_type, s->data_len, bpc);
	return s->crc_len <= s->crc_room;
}

static void part_done(struct rslot *s, int res)
{
	struct rdma_r *r = s->r;

	s->again |= res == -ETIME; /* of the node, as the view has no time left */
	s->failed |= res < 0 && res != -ETIME;
	if (--s->parts)
		return;
	pthread_mutex_lock(&r->m.lock);
	s->pulling = false;
	meeting_ring(&r->m); /* it may be about to close */
	pthread_mutex_unlock(&r->m.lock);
	if (s->failed || (!s->data && !s->crc)) /* lost, which is told; or the stream is gone */
		return;
	s->status = DT_SUCCESS;
	rdma_r_settle(s);
}

static void on_data(struct rview_read *q, int res)
{
	part_done(container_of(q, struct rslot, read_data), res);
}

static void on_crcs(struct rview_read *q, int res)
{
	part_done(container_of(q, struct rslot, read_crcs), res);
}

static bool read_data(struct rslot *s, struct rview *v, uint64_t addr)
{
	s->read_data.done = on_data;
	if (s->dest)
		return rdma_view_read_to(v, &s->read_data, addr, s->data_len, s->r->memory,
					 s->dest);
	rdma_view_read(v, &s->read_data, addr, s->data_len, s->data, 0);
	return true;
}

bool rdma_r_view(struct rslot *s)
{
	struct rdma_r *r = s->r;
	struct rview *v = NULL;
	const struct capsule_view *at;
	struct slot *crcs;

	if (r->cached)
		v = rdma_view_get(&s->call, &(struct rview_ask){&r->block, rdma_r_pack, s});
	if (!v || !rdma_view_has_room(v, 2))
		return false;
	at = rdma_view_of(v);
	if (!shape(s, at))
		return false;
	pthread_mutex_lock(&r->m.lock);
	s->pulling = true;
	pthread_mutex_unlock(&r->m.lock);
	s->parts = 2;
	s->failed = s->again = false;
	if (!read_data(s, v, at->data_addr + s->first)) {
		pthread_mutex_lock(&r->m.lock);
		s->pulling = false;
		pthread_mutex_unlock(&r->m.lock);
		return false;
	}
	s->read_crcs.done = on_crcs;
	crcs = s->crc ?: s->data;
	rdma_view_read(v, &s->read_crcs, at->crc_addr + s->first / s->bpc * 4, s->crc_len, crcs,
		       (uint32_t)(s->crcs - crcs->data));
	s->onesided = true;
	return true;
}
