/* SPDX-License-Identifier: Apache-2.0 */
/* Where rebuilt units go: to other nodes by a sink, into our own store by a write of the engine,
 * which lends the memory that is decoded into, or to whoever wants the bytes alone. */
#include "datanode/reconstruct/reconstruct_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"
#include "datanode/block/token.h"

static bool is_good(const struct rb_target *t)
{
	return t->state != RT_FAILED;
}

static void target_fail(struct rb_target *t, int rc, const char *what)
{
	if (t->state == RT_FAILED || t->state == RT_STORED)
		return;
	t->state = RT_FAILED;
	if (t->rb->state < RB_END)
		log_warn("op=reconstruct block=%" PRId64 " target=%s:%u%s: %s: %s",
			 ec_id_of(t->rb->params.group.id, t->node->unit), t->node->at.ip,
			 t->node->at.xfer_port, t->node->own ? " (here)" : "", what, err_name(rc));
	rb_ready(t->rb);
}

/* ---- another node ---- */

static void on_sink_opened(struct sink_user *u, int status, const char *bad_link)
{
	struct rb_target *t = container_of(u, struct rb_target, user);

	(void)bad_link;
	if (status != DT_SUCCESS)
		target_fail(t, dt_status_errno(status), "does not take the unit");
	else if (t->state == RT_WAIT_OPEN)
		t->state = RT_OPEN;
	rb_ready(t->rb);
}

static void on_sink_sent(struct sink_user *u, struct piece *p)
{
	struct rb_target *t = container_of(u, struct rb_target, user);

	if (p != &t->last)
		container_of(p, struct rb_piece, p)->used = false;
	rb_ready(t->rb);
}

static void on_sink_acked(struct sink_user *u, int64_t seq, const uint8_t *statuses, uint32_t n)
{
	(void)u, (void)seq, (void)statuses, (void)n; /* node to node: none come */
}

static void on_sink_broken(struct sink_user *u, int rc)
{
	struct rb_target *t = container_of(u, struct rb_target, user);

	if (rc == 0 && t->state == RT_WAIT_STORED)
		t->state = RT_STORED;
	else
		target_fail(t, rc ? rc : -ECONNRESET, "the connection broke");
	rb_ready(t->rb);
}

static void on_sink_closed(struct sink_user *u)
{
	struct rb_target *t = container_of(u, struct rb_target, user);

	t->sink = NULL;
	rb_ready(t->rb);
}

static const struct sink_user_ops user_ops = {
	.opened = on_sink_opened,
	.sent = on_sink_sent,
	.acked = on_sink_acked,
	.broken = on_sink_broken,
	.closed = on_sink_closed,
};

static int remote_open(struct rb_target *t)
{
	struct reconstruct *rb = t->rb;
	const struct sink_params sp = {
		.write = &t->write,
		.stage = STAGE_CREATE,
		.block_len = t->len,
		.crc_type = rb->crc_type,
		.bytes_per_crc = rb->bytes_per_crc,
		.no_answer = true,
		.confirm = true,
	};
	int rc;

	t->user.ops = &user_ops;
	t->write = (struct write_params){
		.bp = rb->params.bp,
		.target_count = 1,
		.req = {.block = {ec_id_of(rb->params.group.id, t->node->unit), rb->params.group.gs,
				  t->len}}};
	t->write.targets = malloc(sizeof(*t->write.targets));
	if (!t->write.targets)
		return -ENOMEM;
	*t->write.targets = t->node->at;
	for (uint32_t i = 0; i < RB_TARGET_PIECES; i++) {
		t->pieces[i].data = rb_slot_take(&rb->to);
		t->pieces[i].crcs = rb_slot_take(&rb->to_crcs);
	}
	rc = write_params_sign(rb->core, &t->write, t->write.req.block.id);
	return rc < 0 ? rc : sink_open(rb->core, &sp, &t->user, &t->sink);
}

/* ---- here ---- */

static void on_write_opened(struct write_source *s, int status, const char *bad_link,
			    bool replica_failed)
{
	struct rb_target *t = container_of(s, struct rb_target, source);

	(void)bad_link, (void)replica_failed;
	if (status != DT_SUCCESS)
		target_fail(t, -EIO, "the replica cannot be made");
	else if (t->state == RT_WAIT_OPEN)
		t->state = RT_OPEN;
	rb_ready(t->rb);
}

static void on_room(struct write_source *s)
{
	rb_ready(container_of(s, struct rb_target, source)->rb);
}

static void on_ack(struct write_source *s, int64_t seq, const uint8_t *statuses, uint32_t n)
{
	(void)s, (void)seq, (void)statuses, (void)n; /* nobody sends */
}

static void on_write_ended(struct write_source *s, int rc)
{
	struct rb_target *t = container_of(s, struct rb_target, source);

	t->w = NULL;
	if (rc == 0 && t->state == RT_WAIT_STORED)
		t->state = RT_STORED;
	else
		target_fail(t, rc ? rc : -EIO, "the replica cannot be written");
	rb_ready(t->rb);
}

static const struct write_source_ops source_ops = {
	.opened = on_write_opened,
	.room = on_room,
	.ack = on_ack,
	.ended = on_write_ended,
};

static int local_open(struct rb_target *t)
{
	struct reconstruct *rb = t->rb;
	struct write_params wp = {
		.bp = rb->params.bp,
		.req = {.block = {ec_id_of(rb->params.group.id, t->node->unit), rb->params.group.gs,
				  t->len},
			.stage = STAGE_CREATE,
			.crc_type = rb->crc_type,
			.bytes_per_crc = rb->bytes_per_crc,
			.storage_type = t->node->at.storage_type},
	};

	memcpy(wp.storage_uuid, t->node->at.storage_uuid, sizeof(wp.storage_uuid));
	t->source =
		(struct write_source){.ops = &source_ops, .peer = "reconstruction", .own = true};
	return block_write_open(rb->core, &wp, &t->source, &t->w);
}

/* ---- all ---- */

void rb_targets_open(struct reconstruct *rb)
{
	for (uint32_t i = 0; i < rb->params.target_count; i++) {
		struct rb_target *t = &rb->targets[i];
		int rc = 0;

		t->state = rb->params.taker ? RT_OPEN : RT_WAIT_OPEN;
		if (rb->params.taker)
			t->pieces[0].data = rb_slot_take(&rb->to);
		else
			rc = t->node->own ? local_open(t) : remote_open(t);
		if (rc < 0)
			target_fail(t, rc, "set-up");
	}
}

bool rb_targets_opened(const struct reconstruct *rb)
{
	for (uint32_t i = 0; i < rb->params.target_count; i++)
		if (rb->targets[i].state == RT_WAIT_OPEN)
			return false;
	return true;
}

bool rb_target_wants(const struct rb_target *t)
{
	return is_good(t) && t->rb->at < t->len;
}

static uint32_t part_of(const struct rb_target *t, uint32_t len)
{
	return t->len - t->rb->at < len ? (uint32_t)(t->len - t->rb->at) : len;
}

static void unland_all(struct reconstruct *rb)
{
	for (uint32_t i = 0; i < rb->params.target_count; i++) {
		struct rb_target *t = &rb->targets[i];

		if (t->land.slot)
			block_write_unland(t->w, rb->at, &t->land);
		t->land.slot = NULL;
	}
}

/* Room in our own replica: may shorten *len, 0: the others have to begin again; -EAGAIN: later. */
static int local_room(struct rb_target *t, uint32_t *len)
{
	const uint32_t part = part_of(t, *len);
	int rc = block_write_land(t->w, t->rb->at, part, &t->land);

	if (rc < 0) {
		t->land.slot = NULL;
		if (rc != -EAGAIN)
			target_fail(t, rc, "the replica cannot be written");
		return -EAGAIN;
	}
	if (t->land.len < part) {
		*len = t->land.len;
		return 0;
	}
	t->part = part;
	t->out = t->land.slot->data + t->land.off;
	return 1;
}

static bool remote_room(struct rb_target *t, uint32_t len)
{
	t->cur = NULL;
	for (uint32_t i = 0; i < RB_TARGET_PIECES && !t->cur; i++)
		if (!t->pieces[i].used && t->pieces[i].data)
			t->cur = &t->pieces[i];
	if (!t->cur)
		return false;
	t->part = part_of(t, len);
	t->out = t->cur->data->data;
	return true;
}

static bool locals_room(struct reconstruct *rb, uint32_t *len)
{
	for (uint32_t i = 0; i < rb->params.target_count; i++) {
		struct rb_target *t = &rb->targets[i];
		int rc;

		if (!rb_target_wants(t) || !t->w)
			continue;
		rc = local_room(t, len);
		if (rc > 0)
			continue;
		unland_all(rb);
		if (rc < 0)
			return false;
		i = (uint32_t)-1; /* all of them with the shorter window */
	}
	return true;
}

bool rb_targets_room(struct reconstruct *rb, uint32_t *len)
{
	for (uint32_t i = 0; i < rb->params.target_count; i++) {
		struct rb_target *t = &rb->targets[i];

		if (rb_target_wants(t) && !t->w && !remote_room(t, *len))
			return false;
	}
	if (!locals_room(rb, len))
		return false;
	for (uint32_t i = 0; i < rb->params.target_count; i++)
		if (rb_target_wants(&rb->targets[i]) && !rb->targets[i].w)
			rb->targets[i].part = part_of(&rb->targets[i], *len);
	return true;
}

uint32_t rb_targets_window(struct reconstruct *rb, uint8_t **out, struct ec_src *units)
{
	uint32_t want = 0;

	for (uint32_t i = 0; i < rb->params.target_count; i++) {
		struct rb_target *t = &rb->targets[i];
		const uint8_t unit = t->node->unit;

		if (!rb_target_wants(t))
			continue;
		want |= 1u << unit;
		out[unit] = t->out;
		units[unit] = (struct ec_src){t->out, t->part};
	}
	return want;
}

static void local_send(struct rb_target *t)
{
	const struct piece p = {.seq = t->seq++,
				.off = t->rb->at,
				.len = t->part,
				.slot = t->land.slot,
				.slot_off = t->land.off};
	int rc;

	t->land.slot = NULL;
	rc = block_write_piece(t->w, &p, NULL);
	if (rc < 0)
		target_fail(t, rc, "the replica cannot be written");
}

static void remote_send(struct rb_target *t)
{
	struct reconstruct *rb = t->rb;
	struct piece *p = &t->cur->p;

	*p = (struct piece){.seq = t->seq++, .off = rb->at, .len = t->part, .slot = t->cur->data};
	list_init(&p->link);
	p->crc_count = (uint32_t)(crc_bytes(rb->crc_type, t->part, rb->bytes_per_crc) / 4);
	crc_chunks(rb->crc_type, t->out, t->part, rb->bytes_per_crc, t->cur->crcs->data);
	p->crcs = t->cur->crcs->data;
	p->crc_slot = t->cur->crcs;
	if (p->crc_count)
		memcpy(p->edge, p->crcs + (p->crc_count - 1) * 4, 4);
	t->cur->used = true;
	t->sink->ops->forward(t->sink, p);
}

void rb_targets_send(struct reconstruct *rb, uint32_t len)
{
	(void)len;
	for (uint32_t i = 0; i < rb->params.target_count; i++) {
		struct rb_target *t = &rb->targets[i];

		if (!rb_target_wants(t))
			continue;
		rb->bytes_written += t->part;
		if (rb->params.taker)
			rb->params.taker->bytes(rb->params.taker, t->out, t->part, rb->crc_type,
						rb->bytes_per_crc);
		else if (t->w)
			local_send(t);
		else
			remote_send(t);
	}
}

void rb_targets_last(struct reconstruct *rb)
{
	for (uint32_t i = 0; i < rb->params.target_count; i++) {
		struct rb_target *t = &rb->targets[i];
		int rc = 0;

		if (t->state != RT_OPEN)
			continue;
		t->last = (struct piece){.seq = t->seq, .off = t->len, .last = true};
		list_init(&t->last.link);
		t->state = rb->params.taker ? RT_STORED : RT_WAIT_STORED;
		if (t->w)
			rc = block_write_piece(t->w, &t->last, NULL);
		else if (t->sink)
			t->sink->ops->forward(t->sink, &t->last);
		if (rc == -EAGAIN)
			t->state = RT_OPEN; /* room() comes */
		else if (rc < 0)
			target_fail(t, rc, "the replica cannot be finished");
	}
}

uint32_t rb_targets_good(const struct reconstruct *rb, uint32_t *ret_waiting)
{
	uint32_t good = 0;

	*ret_waiting = 0;
	for (uint32_t i = 0; i < rb->params.target_count; i++) {
		good += is_good(&rb->targets[i]);
		*ret_waiting += is_good(&rb->targets[i]) && rb->targets[i].state != RT_STORED;
	}
	return good;
}

uint64_t rb_targets_len(const struct reconstruct *rb)
{
	uint64_t len = 0;

	for (uint32_t i = 0; i < rb->params.target_count; i++)
		if (is_good(&rb->targets[i]) && rb->targets[i].len > len)
			len = rb->targets[i].len;
	return len;
}

static bool target_end(struct rb_target *t)
{
	struct reconstruct *rb = t->rb;

	if (t->land.slot && t->w)
		block_write_unland(t->w, rb->at, &t->land);
	t->land.slot = NULL;
	if (t->sink && !t->sink_closing) {
		t->sink_closing = true;
		t->sink->ops->close(t->sink);
	}
	if (t->w && !t->w_closing && t->state != RT_STORED) {
		t->w_closing = true;
		block_write_close(t->w, -ECANCELED);
	}
	if (t->sink || t->w)
		return false;
	for (uint32_t i = 0; i < RB_TARGET_PIECES; i++) {
		rb_slot_give(&rb->to, t->pieces[i].data);
		rb_slot_give(&rb->to_crcs, t->pieces[i].crcs);
		t->pieces[i].data = t->pieces[i].crcs = NULL;
	}
	write_params_fini(&t->write);
	t->write = (struct write_params){0};
	return true;
}

bool rb_targets_end(struct reconstruct *rb)
{
	bool over = true;

	for (uint32_t i = 0; i < rb->params.target_count; i++)
		over &= target_end(&rb->targets[i]);
	return over;
}
