/* SPDX-License-Identifier: Apache-2.0 */
/* stream_rdma_write_send - packets become capsules that name their memory; on the reactor's thread
 *
 * What lies in slots is shown to the node by memory windows of the slots, what lies in registered
 * memory of the caller by a window of that (verbs.h). CRCs lie in a slot in either case. */
#include "client/src/stream/stream_rdma_write_internal.h"
#include "common/base/clock.h"

static void buf_closed(void *arg, int res)
{
	(void)res;
	rdma_buf_put(arg);
}

/* What lies in a packet's memory stays there until the node can read it no more: a window has a
 * reference of its own to the packet's buffer. */
static int show(struct wslot *s, uint32_t i, struct slot *slot, uint32_t len,
		struct capsule_mem *ret)
{
	struct verbs_exposure *e = &s->shown[i];
	struct xremote at;
	int rc;

	*e = (struct verbs_exposure){.slot = slot,
				     .len = len,
				     .right = VERBS_PEER_READS,
				     .closed = s->buf ? buf_closed : NULL,
				     .arg = s->buf};
	rc = rdma_expose(&s->w->call, e, &at);
	if (rc < 0)
		return rc;
	if (s->buf && e->window)
		(void)rdma_buf_ref(s->buf);
	*ret = (struct capsule_mem){at.addr, at.rkey, len};
	return 0;
}

/* The caller's memory. */
static void lend(struct wslot *s, struct capsule_mem *ret)
{
	const uint32_t len = s->head.len;
	struct xremote at;

	pthread_mutex_lock(&s->w->m.lock);
	s->exposed = true;
	pthread_mutex_unlock(&s->w->m.lock);
	at = rdma_window_open(&s->w->call, s->window, (void *)(uintptr_t)s->lent, len,
			      VERBS_PEER_READS);
	*ret = (struct capsule_mem){at.addr, at.rkey, len};
}

/* The node has read it, or lets go of it. */
void rdma_w_cover(struct wslot *s)
{
	verbs_cover(&s->shown[0], false);
	verbs_cover(&s->shown[1], false);
}

static bool crcs_ride(const struct wslot *s, uint32_t max)
{
	return capsule_crc_fits(s->head.crc_len, max);
}

static bool data_ride(const struct wslot *s, uint32_t max)
{
	return !s->lent && crcs_ride(s, max) && s->head.len <= rdma_eager_max(&s->w->call);
}

static bool shows_slots(const struct wslot *s, uint32_t max)
{
	return s->head.len && (s->lent ? !crcs_ride(s, max) : !data_ride(s, max));
}

/* A small piece rides along; a larger one is named. CRCs ride in the capsule where they fit, else
 * they are named, too: before a window of the caller's memory is open. */
static int send_data(struct wslot *s, struct capsule *m, uint32_t max)
{
	struct rcall *c = &s->w->call;
	const uint32_t crc_len = s->head.crc_len;
	int rc = 0;

	m->write.crc.len = crc_len;
	if (crcs_ride(s, max))
		m->write.crc.p = s->crc->data;
	else
		rc = show(s, 1, s->crc, crc_len, &m->write.crc_mem);
	if (rc < 0)
		return rc;
	if (data_ride(s, max))
		return rdma_send_eager(c, &s->send, m, s->slot, s->head.len);
	if (s->lent)
		lend(s, &m->write.data);
	else
		rc = show(s, 0, s->slot, s->head.len, &m->write.data);
	return rc ?: rdma_send(c, &s->send, m);
}

static void send_one(struct wslot *s, uint32_t max)
{
	const struct packet *p = &s->head;
	struct capsule m = {.type = CAPSULE_WRITE,
			    .write = {.seqno = p->seqno, .offset = p->offset, .data_len = p->len}};
	int rc;

	pthread_mutex_lock(&s->w->m.lock);
	s->state = WSLOT_SENT;
	pthread_mutex_unlock(&s->w->m.lock);
	m.flags = (uint16_t)((p->last ? CAPSULE_LAST : 0) | (p->sync ? CAPSULE_SYNC : 0));
	rc = p->len ? send_data(s, &m, max) : rdma_send(&s->w->call, &s->send, &m);
	if (rc < 0 && rc != -ECONNRESET)
		meeting_lost(&s->w->m, rc, "a packet cannot be put into a capsule");
}

/* The node has none of the packets: its silence means nothing. */
static bool is_held(const struct rdma_w *w)
{
	return w->unsent && w->turn.on && !w->turn.has && w->to_send == w->oldest;
}

void rdma_w_note_line(struct rdma_w *w)
{
	const bool held = is_held(w), was = atomic_load(&w->base.held_until_ns) == UINT64_MAX;

	if (held == was)
		return;
	atomic_store(&w->base.held_until_ns, held ? UINT64_MAX : clock_mono_ns());
	pthread_mutex_lock(&w->m.lock);
	w->line_changed = true;
	meeting_ring(&w->m);
	pthread_mutex_unlock(&w->m.lock);
}

/* In their order. */
static void send_some(struct rdma_w *w)
{
	while (w->unsent && !w->ending) {
		struct wslot *s = &w->slot[w->to_send];
		const uint32_t max = rdma_capsule_max(&w->call);

		if (max && shows_slots(s, max) && !rdma_turn_take(&w->call, &w->turn)) {
			rdma_turn_wait(&w->call, &w->turn);
			return;
		}
		w->unsent--;
		w->to_send = (w->to_send + 1) % WRITE_DEPTH;
		if (max && !(s->lent && w->closed)) /* else the connection or the block is gone */
			send_one(s, max);
		verbs_turn_end(&w->turn);
	}
}

void rdma_w_send_posted(struct rdma_w *w)
{
	send_some(w);
	rdma_w_note_line(w);
}

void rdma_w_send_run(struct rmsg *msg)
{
	struct rdma_w *w = container_of(msg, struct wslot, msg)->w;

	w->unsent++;
	rdma_w_send_posted(w);
}
