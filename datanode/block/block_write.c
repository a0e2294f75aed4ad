/* SPDX-License-Identifier: Apache-2.0 */
/* A block being written (engine.h): the replica is opened, pieces are verified, handed on, written
 * and acknowledged in order, and the last one finalises it. bw_step() at the end is the table of
 * contents. */
#include "datanode/block/block_write_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "datanode/block/buffers.h"
#include "datanode/block/operations.h"

/* ---- small helpers ---- */

void bw_fail(struct block_write *w, int rc, const char *what)
{
	if (w->rc)
		return; /* the first failure names the reason */
	w->rc = rc;
	if (rc == -ECANCELED || rc == -ECONNRESET)
		log_debug("op=write pool=%s block=%" PRId64 "_%" PRIu64 " peer=%s: %s rc=%d",
			  pool_id(w->params.bp), w->params.req.block.id, w->params.req.block.gs,
			  w->src ? w->src->peer : "-", what, rc);
	else
		log_warn("op=write pool=%s block=%" PRId64 "_%" PRIu64 " peer=%s: %s: %s",
			 pool_id(w->params.bp), w->params.req.block.id, w->params.req.block.gs,
			 w->src ? w->src->peer : "-", what, err_name(rc));
	bw_ready(w);
}

static bool sink_acks(const struct block_write *w)
{
	return w->sink && bw_has_acks(w) && !w->mirror_broken && !w->sink_closing;
}

uint32_t block_write_bpc(const struct block_write *w)
{
	return w->bpc;
}

uint64_t block_write_block_size(const struct block_write *w)
{
	return w->params.req.block.len;
}

uint32_t block_write_later(const struct block_write *w, uint64_t ret[DN_TARGETS_MAX + 1])
{
	uint32_t n = 0;

	if (!w->params.sync_later)
		return 0;
	ret[n++] = bw_syncs_later(w) ? store_deferred_sync_epoch(pool_store(w->params.bp)) : 0;
	for (uint32_t i = 0; w->sink && i < w->sink->later_count; i++)
		ret[n++] = w->sink->later[i];
	return n;
}

/* ---- stopped by a recovery, or since the volume fails ---- */

static void bw_on_stop(struct rmsg *m)
{
	struct block_write *w = container_of(m, struct block_write, stop_msg);

	const int why = atomic_load(&w->stop_why);

	w->stop_seen = true;
	bw_fail(w, why, why == -EIO ? "its volume is out of service" : "stopped by a recovery");
	if (why == -EIO && w->src && !w->answered) {
		/* helper or next node may be long in coming back */
		w->answered = w->refused = true;
		w->src->ops->opened(w->src, dt_errno_status(why), "", true);
	}
	bw_ready(w);
}

/* Any thread. The op lives at least until the message has come: see BW_WAIT_RECOVERY. */
static void bw_stop(void *arg, int why)
{
	struct block_write *w = (struct block_write *)arg;
	int none = 0;

	(void)atomic_compare_exchange_strong(&w->stop_why, &none, why);
	if (!atomic_exchange(&w->stop_posted, true))
		reactor_post(w->core->reactor, &w->stop_msg);
}

/* ---- pieces and acks ---- */

static void on_idle(struct rtimer *t)
{
	struct block_write *w = container_of(t, struct block_write, idle_timer);

	w->idle = true;
	bw_ready(w);
}

void block_write_list_budgets(const struct block_write *w, enum slot_class cls,
			      struct pool_budget *ret[POOL_BUDGETS])
{
	buffers_for_list(w->core, cls, w->shares, ret);
}

bool block_write_no_list(struct block_write *w, enum slot_class cls)
{
	struct pool_budget *budget[POOL_BUDGETS];

	block_write_list_budgets(w, cls, budget);
	return !w->mirror_broken && bw_blame_hop(w, budget[BW_HOP_SHARE], slot_class_size(cls));
}

int block_write_land(struct block_write *w, uint64_t off, uint32_t want, struct landing *ret)
{
	int rc;

	if (w->state != BW_RUN || w->rc || w->last_seen || !want)
		return -EINVAL;
	if (w->tail - w->head + w->landings >= BW_PIECES - 4) {
		w->want_room = true;
		return -EAGAIN;
	}
	rc = wlane_land(w, off, want, ret);
	if (rc == -EAGAIN)
		w->want_room = true;
	return rc;
}

void block_write_unland(struct block_write *w, uint64_t off, const struct landing *land)
{
	if (!w->rc)
		wlane_unland(w, off, land);
	slot_put(land->slot);
}

static bool piece_verify(struct block_write *w, const struct piece *p, const uint8_t *crcs)
{
	const uint8_t *data = p->slot->data + p->slot_off;
	int64_t bad;

	if (!crcs)
		return true;
	bad = crc_verify(w->crc_type, data, p->len, w->bpc, crcs);
	if (bad >= 0)
		log_warn("op=write block=%" PRId64 "_%" PRIu64
			 " peer=%s: CRC of the bytes at %" PRIu64
			 " does not fit: damaged on the way",
			 w->params.req.block.id, w->params.req.block.gs,
			 w->src ? w->src->peer : "-", p->off + (uint64_t)bad * w->bpc);
	return bad < 0;
}

/* Payload: check it, take it over for the disk, and keep the CRCs for the next hop. */
static int piece_take(struct block_write *w, struct bpiece *b, const uint8_t *crcs)
{
	struct piece *p = &b->p;
	struct lane *lane = wlane_of(w, p->slot);
	const size_t n = crc_bytes(w->crc_type, p->len, w->bpc);

	if (!lane || !lane->landings || p->slot_off != p->off - lane->base)
		return -EINVAL;
	lane->landings--;
	w->landings--;
	if (!piece_verify(w, p, crcs)) {
		b->status = DT_ERROR_CHECKSUM;
		wlane_put(w, lane);
		return 0;
	}
	p->crc_count = (uint32_t)(n / 4);
	p->crc_slot = lane->crcs;
	p->crcs = lane->crcs->data + (p->off - lane->base) / w->bpc * 4;
	if (!crcs && n) {
		crc_chunks(w->crc_type, lane->slot->data + p->slot_off, p->len, w->bpc,
			   lane->crcs->data + (p->off - lane->base) / w->bpc * 4);
		crcs = p->crcs;
	}
	if (n)
		memcpy(p->edge, crcs + n - 4, 4);
	wlane_accept(w, lane, p, crcs);
	b->lane = lane;
	lane->users++;
	metric_add(w->src && w->src->rdma  ? METRIC_DN_WRITTEN_RDMA
		   : w->src && w->src->own ? METRIC_DN_WRITTEN_OWN
					   : METRIC_DN_WRITTEN_TCP,
		   p->len);
	return 0;
}

static int piece_submit(struct block_write *w, const struct piece *p, const uint8_t *crcs)
{
	struct bpiece *b = bw_piece_at(w, w->tail);
	int rc = 0;

	if (w->rc)
		return 0; /* ended() is on its way */
	if (w->state != BW_RUN || w->last_seen)
		return -EINVAL;
	if (w->tail - w->head >= BW_PIECES) {
		w->want_room = true;
		return p->len ? -EINVAL : -EAGAIN;
	}
	if ((p->last && (p->len || p->off != w->received)) || p->len > PIECE_MAX)
		return -EINVAL;
	*b = (struct bpiece){.p = *p, .status = DT_SUCCESS};
	list_init(&b->p.link);
	b->p.crc_count = 0;
	if (p->len)
		rc = piece_take(w, b, crcs);
	if (rc < 0)
		return rc;
	b->end = p->off + p->len < w->received ? p->off + p->len : w->received;
	if (p->seq == SEQ_HEARTBEAT)
		b->end = 0;
	b->tail_crc = w->tail_crc;
	w->tail++;
	w->moved_ns = reactor_now_ns(w->core->reactor);
	w->last_seen = p->last;
	if (p->sync || p->last || p->flush)
		w->flush = true;
	w->idle = false;
	if (!w->flush)
		reactor_timer_set(w->core->reactor, &w->idle_timer,
				  reactor_now_ns(w->core->reactor) + BW_IDLE_NS);
	bw_ready(w);
	return 0;
}

int block_write_piece(struct block_write *w, const struct piece *p, const uint8_t *crcs)
{
	struct slot *landed = p->slot; /* the lane keeps its own reference while it is needed */
	const int rc = piece_submit(w, p, crcs);

	slot_put(landed);
	return rc;
}

static void bw_publish(struct block_write *w)
{
	if (!w->offload_busy && w->rw)
		replica_publish(w->rw, w->received, w->on_disk, w->acked, w->acked_crc);
}

static bool piece_own_done(struct block_write *w, uint32_t i)
{
	const struct bpiece *b = bw_piece_at(w, i);

	if (b->end > w->on_disk)
		return false;
	if (b->p.last)
		return w->finalized;
	return !b->p.sync || (int32_t)(i - w->synced) < 0;
}

static void piece_ack(struct block_write *w, struct bpiece *b)
{
	static const uint8_t error = DT_ERROR;
	uint8_t ok[DT_ACK_NODES_MAX] = {0};
	const uint64_t end = b->p.off + b->p.len;

	if (w->mirror_broken && bw_has_acks(w)) {
		if (!b->p.more)
			bw_ack_up(w, SEQ_UNKNOWN, DT_SUCCESS, &error, 1);
		return;
	}
	if (b->p.len && end > w->acked) {
		w->acked = end;
		w->acked_crc = b->tail_crc;
		bw_publish(w);
	}
	if (!b->p.more)
		bw_ack_up(w, b->p.seq, DT_SUCCESS, ok, b->down_count);
}

static void bw_do_acks(struct block_write *w)
{
	while (w->head != w->tail && !w->rc) {
		struct bpiece *b = bw_piece_at(w, w->head);

		if (b->status != DT_SUCCESS) {
			bw_ack_up(w, b->p.seq, b->status, NULL, 0);
			bw_fail(w, -EBADMSG, "a damaged packet");
			return;
		}
		if (!b->sent || !piece_own_done(w, w->head) || (sink_acks(w) && !b->down_acked))
			return;
		piece_ack(w, b);
		w->moved_ns = reactor_now_ns(w->core->reactor);
		w->head++;
		if ((int32_t)(w->synced - w->head) < 0)
			w->synced = w->head;
		if ((int32_t)(w->down - w->head) < 0)
			w->down = w->head;
	}
}

static void bw_do_room(struct block_write *w)
{
	if (!w->want_room || wlane_waits_for_buffers(w) || w->rc ||
	    w->tail - w->head >= BW_PIECES / 2)
		return;
	w->want_room = false;
	if (w->src)
		w->src->ops->room(w->src);
}

static void bw_do_answer(struct block_write *w)
{
	if (w->answered || w->rc)
		return;
	w->answered = true;
	if (w->src)
		w->src->ops->opened(w->src, DT_SUCCESS, "", false);
}

/* This node restarts: the client may wait for it (hdfs-wire 8.3), and the replica stays as it is.
 */
static void bw_do_restart(struct block_write *w)
{
	if (!w->core->restart_until_ms || w->restart_told || w->rc || !bw_has_acks(w))
		return;
	w->restart_told = true;
	bw_ack_up(w, SEQ_UNKNOWN, DT_OOB_RESTART, NULL, 0);
}

/* The disk or the store failed us: the sender is to blame this node, not the first one. A sender
 * that has nothing under way is told, too: what it sends next would never be acknowledged. */
static void bw_tell_failure(struct block_write *w)
{
	const bool ours = w->rc != -ECONNRESET && w->rc != -ECANCELED && w->rc != -EBADMSG &&
			  w->rc != -EHOSTUNREACH;

	if (w->refused) /* there are no acks without a stream */
		return;
	if (ours && w->head != w->tail)
		bw_ack_up(w, bw_piece_at(w, w->head)->p.seq, DT_ERROR, NULL, 0);
	else if (ours && w->rc && w->answered && !w->last_seen)
		bw_ack_up(w, SEQ_UNKNOWN, DT_ERROR, NULL, 0);
}

static void bw_do_run(struct block_write *w)
{
	const bool close_recovery = !w->offload_busy && !w->rw && !w->finalized && !w->last_seen;

	bw_do_answer(w);
	bw_do_restart(w);
	if (w->rc || close_recovery) {
		bw_tell_failure(w);
		w->state = BW_DRAIN;
		return;
	}
	bw_do_forward(w);
	wdisk_reap(w);
	bw_do_sync(w); /* before runs that it would wait for */
	wdisk_plan(w);
	bw_publish(w);
	bw_do_finalize(w);
	bw_do_acks(w);
	bw_do_room(w);
	if (w->mirror_broken)
		bw_sink_close(w);
	if (w->rc)
		bw_tell_failure(w);
	if (w->rc || (w->finalized && w->head == w->tail))
		w->state = BW_DRAIN;
}

static void bw_do_drain(struct block_write *w)
{
	reactor_timer_clear(w->core->reactor, &w->idle_timer);
	bw_do_forward(w);
	bw_sink_close(w);
	for (uint32_t i = w->head; i != w->tail && !w->sink; i++)
		if (!bw_piece_at(w, i)->sent)
			bw_piece_sent(w, bw_piece_at(w, i));
	if (w->rc)
		bw_sync_leave_line(w);
	wdisk_reap(w);
	wdisk_plan(w); /* gives back what has no user */
	if (!wdisk_idle(w) || w->sync_waiting || w->offload_busy || w->sink)
		return;
	if (w->rw || w->unit)
		wdisk_fini(w);
	if (!w->rw) {
		w->state = BW_WAIT_RECOVERY;
		return;
	}
	bw_publish(w); /* what the last runs brought to the disk stays */
	w->state = BW_WAIT_DISK_RELEASE;
	bw_replica_release(w);
}

static void bw_do_stop_wait(struct block_write *w)
{
	if (!atomic_load(&w->stop_posted) || w->stop_seen)
		w->state = BW_DONE;
}

/* The whole life of a block being written. */
static bool bw_step(struct rop *rop)
{
	struct block_write *w = container_of(rop, struct block_write, rop);
	enum block_write_state before;

	assert(reactor_is_current(w->core->reactor));
	do {
		before = w->state;
		switch (w->state) {
		case BW_CHAIN:
			bw_do_chain(w);
			break;
		case BW_RUN:
			bw_do_run(w);
			break;
		case BW_DRAIN:
			bw_do_drain(w);
			break;
		case BW_WAIT_RECOVERY:
			bw_do_stop_wait(w);
			break;
		case BW_WAIT_NEXT_NODE:
			if (w->rc)
				w->state = BW_DRAIN; /* given up by the upstream */
			break;
		case BW_WAIT_DISK_OPEN:
		case BW_WAIT_DISK_RELEASE:
		case BW_DONE:
			break;
		}
	} while (w->state != before);
	return w->state == BW_DONE;
}

/* Once a write: it takes a mutex. */
static void tell_times(struct block_write *w)
{
	struct outliers *o = w->core->dn->outliers;
	char name[sizeof(w->params.targets->ip) + 16];

	outliers_add(o, OUTLIER_DISK_WRITE, w->volume, w->disk_time.ns, w->disk_time.samples);
	if (!w->peer_time.samples)
		return;
	(void)snprintf(name, sizeof(name), "%s:%u", w->params.targets[0].ip,
		       w->params.targets[0].info_port);
	outliers_add(o, OUTLIER_PEER, name, w->peer_time.ns, w->peer_time.samples);
}

static void bw_free(struct rop *rop)
{
	struct block_write *w = container_of(rop, struct block_write, rop);

	list_del(&w->core_link);
	w->core->op_count--;
	atomic_fetch_sub(&w->core->dn->xceivers, 1);
	tell_times(w);
	if (w->src)
		w->src->ops->ended(w->src, w->rc);
	write_params_fini(&w->params);
	free(w);
}

int block_write_open(struct engine_core *core, struct write_params *params,
		     struct write_source *src, struct block_write **ret)
{
	struct block_write *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	w->core = core;
	w->begun_ns = w->moved_ns = reactor_now_ns(core->reactor);
	w->src = src;
	w->params = *params;
	params->targets = NULL;
	params->token = NULL;
	w->params.req.storage_uuid = w->params.storage_uuid[0] ? w->params.storage_uuid : NULL;
	w->params.req.stop = bw_stop;
	w->params.req.stop_arg = w;
	w->crc_type = w->params.req.crc_type;
	w->bpc = w->params.req.bytes_per_crc;
	w->stop_msg.fn = bw_on_stop;
	w->idle_timer.fire = on_idle;
	rop_init(&w->rop, bw_step, bw_free);
	list_add_tail(&core->writes, &w->core_link);
	core->op_count++;
	atomic_fetch_add(&core->dn->xceivers, 1);
	w->state = BW_WAIT_DISK_OPEN;
	bw_replica_open(w);
	*ret = w;
	return 0;
}

void block_write_close(struct block_write *w, int rc)
{
	bw_fail(w, rc < 0 ? rc : -ECONNRESET, "the sender is gone");
}

/* ---- /ops ---- */

static const char *const bw_state_names[] = {
	[BW_WAIT_DISK_OPEN] = "wait_disk_open",
	[BW_CHAIN] = "chain",
	[BW_WAIT_NEXT_NODE] = "wait_next_node",
	[BW_RUN] = "run",
	[BW_DRAIN] = "drain",
	[BW_WAIT_DISK_RELEASE] = "wait_disk_release",
	[BW_WAIT_RECOVERY] = "wait_recovery",
	[BW_DONE] = "done",
};

/* No state of its own: what is there goes to the disk and to the next node meanwhile. */
static bool bw_waits_for_buffers(const struct block_write *w)
{
	return w->state == BW_RUN &&
	       (wlane_waits_for_buffers(w) || (w->src && w->src->ops->waits_for_buffers &&
					       w->src->ops->waits_for_buffers(w->src)));
}

static const char *bw_waits_for(const struct block_write *w)
{
	const struct bpiece *first = &w->pieces[w->head % BW_PIECES];

	if (w->state == BW_WAIT_NEXT_NODE)
		return "next node";
	if (bw_waits_for_buffers(w))
		return "buffers";
	if (w->offload_busy || w->sync_waiting || w->dir_busy)
		return "disk";
	if (w->state != BW_RUN && w->state != BW_DRAIN)
		return w->state == BW_DONE ? "" : "recovery";
	if (!wdisk_idle(w) && (w->head == w->tail || first->end > w->on_disk))
		return "disk";
	if (w->head == w->tail && w->state == BW_RUN)
		return "peer";
	return sink_acks(w) && (!first->sent || !first->down_acked) ? "next node"
	       : !wdisk_idle(w)                                     ? "disk"
								    : "";
}

void block_write_reclaim_all(struct engine_core *core)
{
	list_for_each (l, &core->writes) {
		struct block_write *w = container_of(l, struct block_write, core_link);

		if (w->src && w->src->ops->reclaim &&
		    buffers_are_wanted(core, w->shares, BUFFERS_SHARES))
			w->src->ops->reclaim(w->src);
	}
}

void block_write_list(struct engine_core *core, struct operation_list *l)
{
	list_for_each (i, &core->writes) {
		const struct block_write *w = container_of(i, struct block_write, core_link);
		struct operation *o = operation_add(l, w->begun_ns, w->moved_ns);

		if (!o)
			return;
		o->kind = "write";
		o->role =
			w->params.client[0] && w->params.target_count + 1 >= w->params.pipeline_size
				? "client"
				: "peer";
		o->transport = w->src && w->src->rdma  ? "rdma"
			       : w->src && w->src->own ? "none"
						       : "tcp";
		o->state = bw_waits_for_buffers(w) ? "wait_buffers" : bw_state_names[w->state];
		o->waits_for = bw_waits_for(w);
		o->block_id = w->params.req.block.id;
		o->gs = w->params.req.block.gs;
		o->bytes = w->received;
		o->held = wlane_held(w);
		snprintf(o->pool, sizeof(o->pool), "%s", pool_id(w->params.bp));
		snprintf(o->peer, sizeof(o->peer), "%s",
			 w->src && w->src->peer ? w->src->peer : "");
		snprintf(o->volume, sizeof(o->volume), "%s", w->volume);
		if (w->params.target_count)
			snprintf(o->next, sizeof(o->next), "%s:%u", w->params.targets->ip,
				 w->params.targets->xfer_port);
	}
}

void block_write_restart_all(struct engine_core *core)
{
	list_for_each (l, &core->writes)
		bw_ready(container_of(l, struct block_write, core_link));
}

void block_write_evict_all(struct engine_core *core)
{
	list_for_each (l, &core->writes) {
		struct block_write *w = container_of(l, struct block_write, core_link);

		log_info("op=write block=%" PRId64 "_%" PRIu64
			 " peer=%s: stopped: writers are evicted",
			 w->params.req.block.id, w->params.req.block.gs,
			 w->src ? w->src->peer : "-");
		bw_fail(w, -ECANCELED, "writers are evicted");
	}
}
