/* SPDX-License-Identifier: Apache-2.0 */
/* A piece for the next node by RDMA: where it may read the bytes, and the one or two capsules that
 * say so. */
#include <string.h>

#include "datanode/capsule/capsule_sink_internal.h"

/* Where the node may read a piece. */
struct named {
	struct xremote data, crcs;
};

static int show(struct capsule_peer_link *l, struct flying *f, uint32_t i, struct slot *slot,
		uint32_t off, uint32_t len, struct xremote *ret)
{
	int rc;

	f->shown[i] = (struct verbs_exposure){.slot = slot,
					      .off = off,
					      .len = len,
					      .right = VERBS_PEER_READS,
					      .closed = f->of->copy ? csink_window_closed : NULL,
					      .arg = f};
	rc = verbs_expose(l->xc, &f->shown[i], ret);
	if (f->shown[i].window && f->of->copy)
		f->open++;
	return rc;
}

/* The whole piece, whatever capsules it takes, and its first @crcs CRCs. */
static int show_piece(struct capsule_peer_link *l, struct flying *f, uint32_t crcs,
		      struct named *ret)
{
	const struct piece *p = f->p;
	int rc = 0;

	if (p->len)
		rc = show(l, f, 0, p->slot, p->slot_off, p->len, &ret->data);
	if (!rc && crcs)
		rc = show(l, f, 1, p->crc_slot, (uint32_t)(p->crcs - p->crc_slot->data), crcs * 4,
			  &ret->crcs);
	return rc;
}

static int send_write(struct capsule_sink *s, const struct piece *p, const struct named *at,
		      uint32_t off, uint32_t len, struct capsule_bytes crc)
{
	struct capsule_peer_link *l = capsule_user_link(&s->conn);
	struct capsule m = {
		.type = CAPSULE_WRITE,
		.request_id = s->id,
		.flags = (uint16_t)((p->last ? CAPSULE_LAST : 0) |
				    (p->sync && off + len == p->len ? CAPSULE_SYNC : 0)),
		.write = {.seqno = s->next_seq,
			  .offset = p->off + off,
			  .data_len = len,
			  .crc = crc},
	};
	int rc;

	if (!l)
		return -ECONNRESET;
	if (len)
		m.write.data = (struct capsule_mem){at->data.addr + off, at->data.rkey, len};
	if (crc.len && !crc.p) /* by address, where the engine keeps them */
		m.write.crc_mem = (struct capsule_mem){at->crcs.addr, at->crcs.rkey, crc.len};
	rc = link_send(l, &m);
	if (!rc)
		s->next_seq++;
	return rc;
}

/* The last CRC is not at its place for sure (see struct piece): a long list goes without it, and
 * the last chunk, when it is not whole, as a piece of its own. */
int csink_send_piece(struct capsule_sink *s, struct flying *f)
{
	const struct piece *p = f->p;
	const uint32_t bpc = s->params.bytes_per_crc, n = p->crc_count;
	const uint32_t tail = n ? (uint32_t)((p->off + p->len) % bpc) : 0;
	struct capsule_peer_link *l = capsule_user_link(&s->conn);
	uint8_t crcs[VERBS_MESSAGE_MAX];
	struct named at = {0};
	bool fit;
	int rc;

	if (!l)
		return -ECONNRESET;
	fit = capsule_crc_fits(n * 4, l->xc->max_message);
	rc = show_piece(l, f, fit ? 0 : tail ? n - 1 : n, &at);
	if (rc < 0)
		return rc;
	if (!n)
		return send_write(s, p, &at, 0, p->len, (struct capsule_bytes){NULL, 0});
	if (fit) {
		memcpy(crcs, p->crcs, (n - 1) * 4);
		memcpy(crcs + (n - 1) * 4, p->edge, 4);
		return send_write(s, p, &at, 0, p->len, (struct capsule_bytes){crcs, n * 4});
	}
	if (!tail)
		return send_write(s, p, &at, 0, p->len, (struct capsule_bytes){NULL, n * 4});
	rc = send_write(s, p, &at, 0, p->len - tail, (struct capsule_bytes){NULL, (n - 1) * 4});
	return rc ? rc
		  : send_write(s, p, &at, p->len - tail, tail, (struct capsule_bytes){p->edge, 4});
}
