/* SPDX-License-Identifier: Apache-2.0 */
/* Where the bytes of a reconstruction come from: which of the units that are left are read, and
 * what is done when one fails, is slow or is not what it should be. */
#include "datanode/reconstruct/reconstruct_internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/log.h"
#include "common/base/metrics.h"

static uint64_t unit_len(const struct rb_source *s)
{
	return s->rb->unit_len[s->node->unit];
}

static uint64_t piece_end(const struct piece *p)
{
	return p->off + p->len;
}

static struct piece *first_piece(const struct rb_source *s)
{
	return list_empty(&s->pieces) ? NULL : container_of(s->pieces.next, struct piece, link);
}

static void give_back(struct rb_source *s, struct piece *p)
{
	list_del(&p->link);
	s->src->ops->sent(s->src, p);
}

static void source_close(struct rb_source *s)
{
	while (first_piece(s))
		give_back(s, first_piece(s));
	if (s->src && !s->closing) {
		s->closing = true;
		s->src->ops->close(s->src);
	}
}

/* Not as a source, and not again. */
static void source_reject(struct rb_source *s, int rc, const char *what)
{
	log_warn("op=reconstruct block=%" PRId64 " source=%s:%u%s: %s: %s",
		 ec_id_of(s->rb->params.group.id, s->node->unit), s->node->at.ip,
		 s->node->at.xfer_port, s->node->own ? " (here)" : "", what, err_name(rc));
	metric_add(METRIC_DN_EC_SOURCES_REPLACED, 1);
	s->active = false;
	s->rc = rc;
	source_close(s);
	rb_ready(s->rb);
}

/* ---- events ---- */

/* The CRCs of the first source are those that the units are written with; all have to be the same.
 */
static int take_crcs(struct reconstruct *rb, const struct read_info *info)
{
	const uint32_t bpc = info->bytes_per_crc;

	if (rb->window)
		return info->crc_type == rb->crc_type && bpc == rb->bytes_per_crc ? 0 : -EINVAL;
	if (bpc > REBUILD_WINDOW)
		return -EOPNOTSUPP;
	rb->crc_type = info->crc_type;
	rb->bytes_per_crc = bpc;
	rb->window = bpc < REBUILD_WINDOW / (RB_CRC_SLOT / 4) ? RB_CRC_SLOT / 4 * bpc
							      : REBUILD_WINDOW / bpc * bpc;
	return 0;
}

static void on_opened(struct read_sink *sink, int rc, const struct read_info *info,
		      const struct err *err)
{
	struct rb_source *s = container_of(sink, struct rb_source, read_sink);
	struct reconstruct *rb = s->rb;

	rb_ready(rb);
	if (rc < 0) {
		s->rc = rc;
		log_info("op=reconstruct block=%" PRId64 ": no source: %s",
			 ec_id_of(rb->params.group.id, s->node->unit),
			 err && err->rc ? err->text : err_name(rc));
		return;
	}
	if (s->closing)
		return;
	s->info = *info;
	s->opened = true;
	if (s->node->own && (info->block.gs != rb->params.group.gs ||
			     info->block.len != unit_len(s) || info->state != REPLICA_FINALIZED))
		source_reject(s, -ESTALE, "another stamp, length or state than ordered");
	else if (take_crcs(rb, info) < 0)
		source_reject(s, -EINVAL, "its CRCs are not of the kind of the other units'");
}

static void on_piece(struct read_sink *sink, struct piece *p)
{
	struct rb_source *s = container_of(sink, struct rb_source, read_sink);

	list_add_tail(&s->pieces, &p->link);
	if (s->closing || s->rb->state >= RB_END)
		give_back(s, p);
	else if (piece_end(p) > unit_len(s))
		source_reject(s, -EINVAL, "longer than its group says");
	rb_ready(s->rb);
}

static void slots_back(struct rb_source *s)
{
	for (uint32_t i = 0; i < SOURCE_SLOTS; i++) {
		rb_slot_give(&s->rb->from, s->slots[i]);
		rb_slot_give(&s->rb->from_crcs, s->crc_slots[i]);
		s->slots[i] = s->crc_slots[i] = NULL;
	}
}

static void on_ended(struct read_sink *sink, int rc)
{
	struct rb_source *s = container_of(sink, struct rb_source, read_sink);
	struct reconstruct *rb = s->rb;

	s->src = NULL;
	slots_back(s);
	if (rc == -EBADMSG && !s->closing && !s->node->own && rb->params.bad)
		rb->params.bad(rb->params.arg, s->node);
	if (rc < 0 && !s->closing) {
		s->rc = rc;
		if (rb->at < s->to) {
			s->active = false;
			metric_add(METRIC_DN_EC_SOURCES_REPLACED, s->opened);
			log_info("op=reconstruct block=%" PRId64 " source=%s:%u: %s",
				 ec_id_of(rb->params.group.id, s->node->unit), s->node->at.ip,
				 s->node->at.xfer_port, err_name(rc));
		}
	}
	rb_ready(rb);
}

static const struct read_sink_ops sink_ops = {
	.opened = on_opened,
	.piece = on_piece,
	.ended = on_ended,
};

/* ---- opening ---- */

static void source_init(struct reconstruct *rb, struct rb_source *s,
			const struct reconstruct_node *node)
{
	*s = (struct rb_source){
		.rb = rb, .node = node, .read_sink = {.ops = &sink_ops, .peer = "reconstruction"}};
	list_init(&s->pieces);
}

void rb_sources_init(struct reconstruct *rb)
{
	for (uint32_t i = 0; i < rb->params.source_count; i++)
		source_init(rb, &rb->sources[i], &rb->params.sources[i]);
	for (uint32_t i = 0; i < 2; i++)
		source_init(rb, &rb->extra[i], rb->params.sources);
}

static bool source_start(struct rb_source *s, uint64_t from, uint64_t to)
{
	struct reconstruct *rb = s->rb;
	const struct block *g = &rb->params.group;
	struct source_params sp = {
		.bp = rb->params.bp,
		.block = {ec_id_of(g->id, s->node->unit), g->gs, unit_len(s)},
		.off = from,
		.len = to - from,
		.at = s->node->own ? NULL : &s->node->at,
	};
	int rc;

	s->tried = s->active = true;
	s->from = from;
	s->to = to;
	for (uint32_t i = 0; i < SOURCE_SLOTS && !s->node->own; i++) {
		sp.slots[i] = s->slots[i] = rb_slot_take(&rb->from);
		if (rb->landing)
			sp.crc_slots[i] = s->crc_slots[i] = rb_slot_take(&rb->from_crcs);
	}
	rc = source_open(rb->core, &sp, &s->read_sink, &s->src);
	if (rc == 0)
		return true;
	slots_back(s);
	s->rc = rc;
	s->active = false;
	return false;
}

static uint32_t active_units(const struct reconstruct *rb)
{
	uint32_t set = 0;

	for (uint32_t i = 0; i < rb->params.source_count; i++)
		if (rb->sources[i].active)
			set |= 1u << rb->sources[i].node->unit;
	return set;
}

/* The next source that has not been tried and is of a unit that is not read: ours before others'.
 */
static struct rb_source *spare(const struct reconstruct *rb)
{
	const uint32_t active = active_units(rb);
	struct rb_source *best = NULL;

	for (uint32_t i = 0; i < rb->params.source_count; i++) {
		struct rb_source *s = &rb->sources[i];

		if (s->tried || active & 1u << s->node->unit || !unit_len(s))
			continue;
		if (s->node->own)
			return s;
		if (!best)
			best = s;
	}
	return best;
}

void rb_sources_fill(struct reconstruct *rb)
{
	while (!rb->rc && (uint32_t)__builtin_popcount(active_units(rb)) < rb->needed) {
		struct rb_source *s = spare(rb);
		uint64_t to;

		if (!s) {
			rb_fail(rb, -ENODATA,
				"at %" PRIu64 " of the units %d sources are left, %u are needed",
				rb->at, __builtin_popcount(active_units(rb)), rb->needed);
			return;
		}
		if (!s->node->own && rb->from.free < SOURCE_SLOTS)
			return; /* the source that this one replaces is not gone yet */
		to = unit_len(s) < rb->end ? unit_len(s) : rb->end;
		if (rb->at < to)
			(void)source_start(s, rb->at, to);
		else
			s->tried = s->active = s->opened = true; /* zeros from here on */
	}
}

bool rb_sources_opened(const struct reconstruct *rb)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < rb->params.source_count; i++)
		n += rb->sources[i].active && rb->sources[i].opened;
	return n >= rb->needed;
}

void rb_extras_open(struct reconstruct *rb)
{
	const uint64_t bytes = rb->core->dn->live.ec_verify_bytes, bpc = rb->bytes_per_crc;
	struct rb_source *s = spare(rb);
	uint64_t len, head, tail;

	if (!s || !bytes || rb->params.taker)
		return;
	len = unit_len(s);
	rb->extra[0].node = rb->extra[1].node = s->node;
	if (bytes > len / 2) {
		(void)source_start(&rb->extra[0], 0, len);
		return;
	}
	head = (bytes + bpc - 1) / bpc * bpc;
	tail = (len - bytes) / bpc * bpc;
	if (head > tail) {
		(void)source_start(&rb->extra[0], 0, len);
		return;
	}
	(void)source_start(&rb->extra[0], 0, head);
	(void)source_start(&rb->extra[1], tail, len);
}

/* ---- windows ---- */

/* What @s, which has bytes in [from, to), says to a window of *len bytes; false: wait for it. */
static bool source_limits(struct rb_source *s, uint64_t at, uint64_t to, uint32_t *len)
{
	const struct piece *p = first_piece(s);

	if (!p)
		return false;
	if (p->off > at) { /* sources are in order, so this one is broken */
		source_reject(s, -EPROTO, "a gap in its bytes");
		return false;
	}
	if (piece_end(p) < to && piece_end(p) - at < *len)
		*len = (uint32_t)(piece_end(p) - at);
	return true;
}

static bool extra_limits(struct reconstruct *rb, struct rb_source *s, uint32_t *len)
{
	if (!s->active || rb->at >= s->to)
		return true;
	if (rb->at < s->from) {
		if (s->from - rb->at < *len)
			*len = (uint32_t)(s->from - rb->at);
		return true;
	}
	/* the unit goes on, what was asked of it ends */
	if (s->to < unit_len(s) && s->to - rb->at < *len)
		*len = (uint32_t)(s->to - rb->at);
	return source_limits(s, rb->at, s->to, len);
}

uint32_t rb_sources_have(struct reconstruct *rb, uint32_t max)
{
	uint32_t len = rb->end - rb->at < max ? (uint32_t)(rb->end - rb->at) : max;

	if ((uint32_t)__builtin_popcount(active_units(rb)) < rb->needed)
		return 0;
	for (uint32_t i = 0; i < rb->params.source_count; i++) {
		struct rb_source *s = &rb->sources[i];

		if (s->active && rb->at < unit_len(s) && !source_limits(s, rb->at, s->to, &len))
			return 0;
	}
	if (!extra_limits(rb, &rb->extra[0], &len) || !extra_limits(rb, &rb->extra[1], &len))
		return 0;
	return rb->at + len < rb->end ? len / rb->bytes_per_crc * rb->bytes_per_crc : len;
}

static struct ec_src source_bytes(const struct rb_source *s, uint64_t at, uint32_t len)
{
	const struct piece *p = first_piece(s);
	const uint64_t rest = unit_len(s) > at ? unit_len(s) - at : 0;

	if (!rest || !p)
		return (struct ec_src){NULL, 0};
	return (struct ec_src){p->slot->data + p->slot_off + (at - p->off),
			       rest < len ? (size_t)rest : len};
}

uint32_t rb_sources_window(struct reconstruct *rb, uint32_t len, struct ec_src *units,
			   uint32_t *ret_extra)
{
	uint32_t have = rb->zeros;

	*ret_extra = 0;
	for (uint32_t i = 0; i < 2; i++) {
		const struct rb_source *s = &rb->extra[i];

		if (!s->active || rb->at < s->from || rb->at >= s->to)
			continue;
		units[s->node->unit] = source_bytes(s, rb->at, len);
		*ret_extra |= 1u << s->node->unit;
		rb->bytes_read += units[s->node->unit].len;
	}
	for (uint32_t i = 0; i < rb->params.source_count; i++) {
		const struct rb_source *s = &rb->sources[i];

		if (!s->active)
			continue;
		units[s->node->unit] = source_bytes(s, rb->at, len);
		have |= 1u << s->node->unit;
		rb->bytes_read += units[s->node->unit].len;
		if (!s->node->own)
			metric_add(METRIC_DN_EC_REMOTE_BYTES_READ, units[s->node->unit].len);
	}
	*ret_extra &= ~have;
	return have;
}

static void source_drop(struct reconstruct *rb, struct rb_source *s)
{
	struct piece *p;

	while ((p = first_piece(s)) && (piece_end(p) <= rb->at || rb->at >= s->to))
		give_back(s, p);
}

void rb_sources_drop(struct reconstruct *rb)
{
	for (uint32_t i = 0; i < rb->params.source_count; i++)
		source_drop(rb, &rb->sources[i]);
	for (uint32_t i = 0; i < 2; i++)
		source_drop(rb, &rb->extra[i]);
}

/* ---- slow ones, and the end ---- */

static bool is_missed(const struct reconstruct *rb, const struct rb_source *s)
{
	return s->active && rb->at >= s->from && rb->at < s->to && !first_piece(s);
}

void rb_sources_replace_slow(struct reconstruct *rb)
{
	for (uint32_t i = 0; i < 2; i++)
		if (is_missed(rb, &rb->extra[i]))
			source_reject(&rb->extra[i], -ETIMEDOUT,
				      "silent: goes on without comparing with it");
	for (uint32_t i = 0; i < rb->params.source_count; i++) {
		struct rb_source *s = &rb->sources[i], *other = spare(rb);

		if (!other)
			return; /* it is waited for as for any peer */
		if (is_missed(rb, s)) {
			source_reject(s, -ETIMEDOUT, "slow: another one is read");
			rb_sources_fill(rb);
		}
	}
}

static bool source_end(struct rb_source *s)
{
	source_close(s);
	return !s->src;
}

bool rb_sources_end(struct reconstruct *rb)
{
	bool over = true;

	for (uint32_t i = 0; i < rb->params.source_count; i++)
		over &= source_end(&rb->sources[i]);
	for (uint32_t i = 0; i < 2; i++)
		over &= source_end(&rb->extra[i]);
	return over;
}
