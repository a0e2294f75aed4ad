/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/reconstruct/reconstruct_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "datanode/block/moves.h"
#include "datanode/block/operations.h"

#define WINDOWS_A_STEP 16 /* then the reactor's other work has its turn */

void rb_fail(struct reconstruct *rb, int rc, const char *fmt, ...)
{
	char text[ERR_TEXT_MAX];
	va_list ap;

	if (rb->rc)
		return; /* the first failure names the reason */
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	rb->rc = err_set(&rb->err, rc, "%s", text);
	rb_ready(rb);
}

static void do_slots(struct reconstruct *rb)
{
	if (!rb_slots_get(rb))
		return;
	rb->state = RB_WAIT_SOURCES;
	rb_sources_fill(rb);
}

/* ---- time ---- */

/* Of the main pool, or of the landing pool. */
static bool waits_for_buffers(const struct reconstruct *rb)
{
	return rb->state == RB_WAIT_BUFFERS || (rb->state == RB_SLOTS && rb->ask.since_ns);
}

static void on_tick(struct rtimer *t)
{
	struct reconstruct *rb = container_of(t, struct reconstruct, tick);

	if (rb->core->stopping)
		rb_fail(rb, -ECANCELED, "the data node stops");
	/* The wait may have begun in this turn, behind the turn's time. */
	if (waits_for_buffers(rb) &&
	    reactor_now_ns(rb->core->reactor) >= rb->ask.since_ns + rb->core->waits.buffers_ns)
		rb_fail(rb, -ENOBUFS, "no buffers for %" PRIu64 " s: /ops lists who holds them",
			rb->core->waits.buffers_ns / (uint64_t)NS_PER_S);
	if (rb->state == RB_WAIT_BANDWIDTH && reactor_now_ns(rb->core->reactor) >= rb->pay_ns)
		rb->state = RB_RUN;
	rb_ready(rb);
	if (rb->state < RB_END) {
		const uint64_t next = reactor_now_ns(rb->core->reactor) + RB_TICK_NS;

		reactor_timer_set(rb->core->reactor, t,
				  rb->state == RB_WAIT_BANDWIDTH && rb->pay_ns < next ? rb->pay_ns
										      : next);
	}
}

/* A source is missing or silent: since when, and is that too long? */
static void waiting_for_sources(struct reconstruct *rb)
{
	const uint64_t now = reactor_now_ns(rb->core->reactor);

	if (!rb->stuck_ns)
		rb->stuck_ns = now;
	if (now - rb->stuck_ns < rb->core->dn->live.ec_read_timeout_ms * NS_PER_MS)
		return;
	rb->stuck_ns = now;
	rb_sources_replace_slow(rb);
}

/* Charged when it has been moved: the next window waits. */
static void pay(struct reconstruct *rb, uint64_t read, uint64_t written)
{
	struct moves *m = rb->core->moves;
	const struct live_settings *live = &rb->core->dn->live;
	const uint64_t now = reactor_now_ns(rb->core->reactor);
	const uint64_t r = pace_charge(&m->ec_read_ns, live->ec_read_bandwidth, read, now);
	const uint64_t w = pace_charge(&m->ec_write_ns, live->ec_write_bandwidth, written, now);

	rb->pay_ns = r > w ? r : w;
}

/* ---- windows ---- */

/* The next place after @from at which a unit that is made ends, or @len. */
static uint32_t next_end(const struct reconstruct *rb, uint32_t from, uint32_t len)
{
	for (uint32_t i = 0; i < rb->params.target_count; i++) {
		const struct rb_target *t = &rb->targets[i];

		if (rb_target_wants(t) && t->part > from && t->part < len)
			len = t->part;
	}
	return len;
}

/* Units that end in this window end at different places: each stretch has its own set, so that
 * every unit is decoded into exactly the memory that is its own. */
static int decode(struct reconstruct *rb, uint32_t have, const struct ec_src *units,
		  uint8_t *const *outs, uint32_t len)
{
	int rc = 0;

	for (uint32_t from = 0, to; rc == 0 && from < len; from = to) {
		struct ec_src src[EC_UNITS_MAX] = {{0}};
		uint8_t *out[EC_UNITS_MAX] = {NULL};
		uint32_t want = 0;

		to = next_end(rb, from, len);
		for (uint32_t u = 0; u < EC_UNITS_MAX; u++)
			if (have >> u & 1 && units[u].len > from)
				src[u] = (struct ec_src){units[u].data + from,
							 units[u].len - from < to - from
								 ? units[u].len - from
								 : to - from};
		for (uint32_t i = 0; i < rb->params.target_count; i++) {
			const struct rb_target *t = &rb->targets[i];

			if (!rb_target_wants(t) || t->part <= from)
				continue;
			want |= 1u << t->node->unit;
			out[t->node->unit] = outs[t->node->unit] + from;
		}
		if (want)
			rc = ec_decode(rb->coder, have, want, src, out, to - from);
	}
	return rc;
}

/* Decode, then code what was read and what was made once more: they must agree. */
static bool code(struct reconstruct *rb, uint32_t len)
{
	struct ec_src units[EC_UNITS_MAX] = {{0}};
	uint8_t *out[EC_UNITS_MAX] = {NULL};
	uint32_t extra, differ = 0;
	const uint32_t have = rb_sources_window(rb, len, units, &extra);
	const uint32_t want = rb_targets_window(rb, out, units);
	const uint64_t start = clock_mono_ns();
	uint64_t made;
	int rc = decode(rb, have, units, out, len);

	made = clock_mono_ns();
	if (rc == 0)
		rc = ec_check(rb->coder, have | want | extra, units, len, &differ);
	rb->decode_ns += made - start;
	rb->check_ns += clock_mono_ns() - made;
	if (rc == 0 && !differ)
		return true;
	if (rc < 0) {
		rb_fail(rb, rc, "decoding units %#x from %#x: %s", want, have, err_name(rc));
		return false;
	}
	metric_add(METRIC_DN_EC_MISMATCH, 1);
	rb_fail(rb, -EBADMSG,
		"at %" PRIu64
		" of the units: the units read (set %#x), those made of them (%#x) and a "
		"spare one (%#x) do not belong together: nothing is stored",
		rb->at, have, want, extra);
	return false;
}

static void wait_begins(struct reconstruct *rb)
{
	if (!rb->wait_from_ns)
		rb->wait_from_ns = clock_mono_ns();
}

static void wait_ends(struct reconstruct *rb, uint64_t *sum)
{
	if (rb->wait_from_ns)
		*sum += clock_mono_ns() - rb->wait_from_ns;
	rb->wait_from_ns = 0;
}

/* One window; false: something is missing. */
static bool do_window(struct reconstruct *rb)
{
	uint64_t read = rb->bytes_read, written = rb->bytes_written;
	uint32_t len = rb_sources_have(rb, rb->window);

	if (!len) {
		wait_begins(rb);
		waiting_for_sources(rb);
		return false;
	}
	if (rb->stuck_ns)
		wait_ends(rb, &rb->read_wait_ns);
	rb->stuck_ns = 0;
	if (!rb_targets_room(rb, &len)) {
		wait_begins(rb);
		return false;
	}
	wait_ends(rb, &rb->write_wait_ns);
	if (rb->rc || !code(rb, len))
		return false;
	rb_targets_send(rb, len);
	rb->at += len;
	rb_sources_drop(rb);
	pay(rb, rb->bytes_read - read, rb->bytes_written - written);
	return true;
}

static void do_run(struct reconstruct *rb)
{
	uint32_t waiting;

	rb_sources_fill(rb);
	for (uint32_t i = 0; !rb->rc && rb->at < rb->end; i++) {
		if (!rb_targets_good(rb, &waiting)) {
			rb_fail(rb, -EHOSTUNREACH, "no target is left");
			return;
		}
		rb->end = rb_targets_len(rb);
		if (rb->at >= rb->end)
			break; /* who wanted more has failed */
		if (rb->pay_ns > reactor_now_ns(rb->core->reactor)) {
			rb->state = RB_WAIT_BANDWIDTH;
			reactor_timer_set(rb->core->reactor, &rb->tick, rb->pay_ns);
			return;
		}
		if (i == WINDOWS_A_STEP) {
			rb_ready(rb);
			return;
		}
		if (!do_window(rb))
			return;
	}
	if (rb->rc)
		return;
	rb->state = RB_WAIT_STORED;
}

/* ---- the other states ---- */

static void do_sources(struct reconstruct *rb)
{
	rb_sources_fill(rb);
	if (rb->rc)
		return;
	if (!rb_sources_opened(rb)) {
		waiting_for_sources(rb);
		return;
	}
	rb->stuck_ns = 0;
	rb_extras_open(rb);
	rb->state = RB_WAIT_TARGETS;
	rb_targets_open(rb);
}

static void do_targets_wait(struct reconstruct *rb)
{
	uint32_t waiting;

	if (!rb_targets_opened(rb))
		return;
	if (rb_targets_good(rb, &waiting))
		rb->state = RB_RUN;
	else
		rb_fail(rb, -EHOSTUNREACH, "no target takes its unit");
}

static void do_stored_wait(struct reconstruct *rb)
{
	uint32_t waiting, good;

	rb_targets_last(rb);
	good = rb_targets_good(rb, &waiting);
	if (waiting)
		return;
	if (!good)
		rb_fail(rb, -EIO, "no target has stored its unit");
	rb->state = RB_END;
}

static void do_end(struct reconstruct *rb)
{
	const bool sources = rb_sources_end(rb), targets = rb_targets_end(rb);

	if (!sources || !targets)
		return;
	reactor_timer_clear(rb->core->reactor, &rb->tick);
	rb_slots_put(rb);
	rb->state = RB_DONE;
}

static bool rb_step(struct rop *rop)
{
	struct reconstruct *rb = container_of(rop, struct reconstruct, rop);
	enum reconstruct_state before;

	do {
		before = rb->state;
		if (rb->rc && rb->state < RB_END)
			rb->state = RB_END;
		switch (rb->state) {
		case RB_SLOTS:
			do_slots(rb);
			break;
		case RB_WAIT_SOURCES:
			do_sources(rb);
			break;
		case RB_WAIT_TARGETS:
			do_targets_wait(rb);
			break;
		case RB_RUN:
			do_run(rb);
			break;
		case RB_WAIT_STORED:
			do_stored_wait(rb);
			break;
		case RB_END:
			do_end(rb);
			break;
		case RB_WAIT_TURN:
		case RB_WAIT_BUFFERS:
		case RB_WAIT_BANDWIDTH:
		case RB_DONE:
			break;
		}
	} while (rb->state != before || (rb->rc && rb->state < RB_END));
	return rb->state == RB_DONE;
}

/* ---- begin and end ---- */

void reconstruct_params_fini(struct reconstruct_params *p)
{
	free(p->sources);
	free(p->targets);
	p->sources = p->targets = NULL;
}

static void rb_destroy(struct reconstruct *rb)
{
	ec_coder_free(rb->coder);
	rb_slots_free(rb);
	free(rb->sources);
	free(rb->targets);
	reconstruct_params_fini(&rb->params);
	free(rb);
}

static void tell_metrics(const struct reconstruct *rb)
{
	metric_add(METRIC_DN_EC_TASKS, 1);
	metric_add(METRIC_DN_EC_FAILED, rb->rc != 0);
	metric_add(METRIC_DN_EC_BYTES_READ, rb->bytes_read);
	metric_add(METRIC_DN_EC_BYTES_WRITTEN, rb->bytes_written);
	metric_add(METRIC_DN_EC_DECODE_NS, rb->decode_ns);
	metric_add(METRIC_DN_EC_CHECK_NS, rb->check_ns);
	metric_add(METRIC_DN_EC_READ_NS, rb->read_wait_ns);
	metric_add(METRIC_DN_EC_WRITE_NS, rb->write_wait_ns);
}

static void rb_free(struct rop *rop)
{
	struct reconstruct *rb = container_of(rop, struct reconstruct, rop);
	struct engine_core *core = rb->core;

	if (!rb->params.taker) {
		tell_metrics(rb);
		if (rb->rc)
			log_warn("op=reconstruct group=%" PRId64 "_%" PRIu64 " at=%" PRIu64 ": %s",
				 rb->params.group.id, rb->params.group.gs, rb->at, rb->err.text);
		else
			log_info("op=reconstruct group=%" PRId64 "_%" PRIu64
				 " units=%u read=%" PRIu64 " written=%" PRIu64 " ms=%" PRIu64,
				 rb->params.group.id, rb->params.group.gs, rb->params.target_count,
				 rb->bytes_read, rb->bytes_written,
				 (uint64_t)((clock_mono_ns() - rb->start_ns) / NS_PER_MS));
	}
	core->op_count--;
	list_del(&rb->core_link);
	rb_dismiss(rb);
	rb->params.done(rb->params.arg, rb->rc, &rb->err);
	rb_destroy(rb);
	rb_admit(core);
}

/* ---- /ops ---- */

static const struct {
	const char *name, *waits_for;
} rb_states[] = {
	[RB_WAIT_TURN] = {"wait_turn", "its turn"},
	[RB_SLOTS] = {"slots", ""},
	[RB_WAIT_BUFFERS] = {"wait_buffers", "buffers"},
	[RB_WAIT_SOURCES] = {"wait_sources", "sources"},
	[RB_WAIT_TARGETS] = {"wait_targets", "targets"},
	[RB_RUN] = {"run", "sources or targets"},
	[RB_WAIT_BANDWIDTH] = {"wait_bandwidth", "bandwidth"},
	[RB_WAIT_STORED] = {"wait_stored", "targets"},
	[RB_END] = {"end", "sources or targets"},
	[RB_DONE] = {"done", ""},
};

/* All of one list are of one class. */
static uint64_t bytes_held(const struct rb_slots *s)
{
	return s->had ? (uint64_t)s->had * s->slot[0]->size : 0;
}

void reconstruct_list(struct engine_core *core, struct operation_list *l)
{
	list_for_each (i, &core->rebuilds) {
		const struct reconstruct *rb = container_of(i, struct reconstruct, core_link);
		struct operation *o =
			operation_add(l, rb->start_ns, rb->stuck_ns ? rb->stuck_ns : l->now_ns);

		if (!o)
			return;
		o->kind = "reconstruct";
		o->role = rb->params.taker ? "checksum" : "reconstruction";
		o->state = rb_states[rb->state].name;
		o->waits_for = rb_states[rb->state].waits_for;
		o->block_id = rb->params.group.id;
		o->gs = rb->params.group.gs;
		o->bytes = rb->bytes_read;
		o->held = bytes_held(&rb->from) + bytes_held(&rb->from_crcs) + bytes_held(&rb->to) +
			  bytes_held(&rb->to_crcs);
		snprintf(o->pool, sizeof(o->pool), "%s", pool_id(rb->params.bp));
	}
}

/* Everything that the order says, against the policy. */
static int check_params(const struct reconstruct_params *p, struct err *err)
{
	const unsigned int units = (unsigned int)p->policy.k + p->policy.m;
	uint32_t targets = 0, sources = 0;
	int rc = ec_policy_can_code(&p->policy, err);

	if (rc < 0)
		return rc;
	if (!ec_id_is_striped(p->group.id) || ec_id_unit(p->group.id) || !p->group.len ||
	    !ec_length_ok(p->group.len))
		return err_set(err, -EINVAL,
			       "%" PRId64 " of %" PRIu64 " bytes is not a block group", p->group.id,
			       p->group.len);
	if (!p->target_count || p->target_count > p->policy.m ||
	    p->source_count > REBUILD_SOURCES_MAX)
		return err_set(err, -EINVAL, "%u targets and %u sources for %s", p->target_count,
			       p->source_count, p->policy.name);
	for (uint32_t i = 0; i < p->target_count; i++) {
		const uint32_t unit = p->targets[i].unit;

		if (unit >= units || targets & 1u << unit ||
		    !ec_unit_length(&p->policy, p->group.len, unit))
			return err_set(err, -EINVAL, "unit %u cannot be made in %s", unit,
				       p->policy.name);
		targets |= 1u << unit;
	}
	for (uint32_t i = 0; i < p->source_count; i++) {
		const uint32_t unit = p->sources[i].unit;

		if (unit >= units || targets & 1u << unit)
			return err_set(err, -EINVAL, "unit %u cannot be a source", unit);
		if (ec_unit_length(&p->policy, p->group.len, unit))
			sources |= 1u << unit;
	}
	if ((unsigned int)__builtin_popcount(sources) < ec_units_needed(&p->policy, p->group.len))
		return err_set(err, -ENODATA, "%d units are named as sources, %u are needed",
			       __builtin_popcount(sources),
			       ec_units_needed(&p->policy, p->group.len));
	return 0;
}

static void plan(struct reconstruct *rb)
{
	const struct reconstruct_params *p = &rb->params;

	rb->needed = ec_units_needed(&p->policy, p->group.len);
	rb->zeros = (1u << p->policy.k) - (1u << rb->needed);
	for (unsigned int i = 0; i < (unsigned int)p->policy.k + p->policy.m; i++)
		rb->unit_len[i] = ec_unit_length(&p->policy, p->group.len, i);
	for (uint32_t i = 0; i < p->target_count; i++) {
		struct rb_target *t = &rb->targets[i];

		*t = (struct rb_target){
			.rb = rb, .node = &p->targets[i], .len = rb->unit_len[p->targets[i].unit]};
		if (p->taker && p->limit < t->len)
			t->len = p->limit;
		if (t->len > rb->end)
			rb->end = t->len;
	}
}

static int allocate(struct reconstruct *rb, struct err *err)
{
	int rc;

	rb->sources = calloc(rb->params.source_count, sizeof(*rb->sources));
	rb->targets = calloc(rb->params.target_count, sizeof(*rb->targets));
	if (!rb->sources || !rb->targets)
		return err_sys(err, -ENOMEM, "cannot begin the reconstruction");
	plan(rb);
	if (!rb_slots_plan(rb))
		return err_set(err, -ENOBUFS,
			       "%u buffers of 64 KiB are needed: raise dfs.rdma.pool.size",
			       rb->to.count + (rb->landing ? 0 : rb->from.count));
	rc = rb_slots_new(rb);
	if (rc < 0)
		return err_sys(err, rc, "cannot begin the reconstruction");
	return ec_coder_new(&rb->params.policy, &rb->coder, err);
}

int reconstruct_open(struct engine_core *core, struct reconstruct_params *params, struct err *err)
{
	struct reconstruct *rb = NULL;
	int rc = core->stopping ? err_sys(err, -ECANCELED, "the data node stops")
				: check_params(params, err);

	if (rc == 0 && core->rebuilds_queued >= REBUILD_QUEUE_MAX)
		rc = err_set(err, -EBUSY, "%u reconstructions are waiting already",
			     core->rebuilds_queued);
	if (rc == 0) {
		rb = calloc(1, sizeof(*rb));
		rc = rb ? 0 : err_sys(err, -ENOMEM, "cannot begin the reconstruction");
	}
	if (rc < 0) {
		reconstruct_params_fini(params);
		return rc;
	}
	rb->core = core;
	rb->params = *params;
	*params = (struct reconstruct_params){0};
	rc = allocate(rb, err);
	if (rc < 0) {
		rb_destroy(rb);
		return rc;
	}
	rb->start_ns = clock_mono_ns();
	rb->tick.fire = on_tick;
	rb_sources_init(rb);
	rop_init(&rb->rop, rb_step, rb_free);
	core->op_count++;
	list_add_tail(&core->rebuilds, &rb->core_link);
	core->rebuilds_queued++;
	list_add_tail(&core->rebuilds_waiting, &rb->queue_link);
	reactor_timer_set(core->reactor, &rb->tick, reactor_now_ns(core->reactor) + RB_TICK_NS);
	rb_admit(core);
	return 0;
}
