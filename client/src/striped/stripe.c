/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/src/striped/stripe_internal.h"
#include "common/base/clock.h"

/* ---- which units ---- */

static int unit_join(struct stripe *s, struct window *w, unsigned i, struct err *err)
{
	struct unit *u = &s->unit[i];

	w->fetch |= 1u << i;
	u->got = 0;
	if (w->want >> i & 1)
		return 0;
	if (u->scratch_len < w->len) {
		free(u->scratch);
		u->scratch = malloc(w->len);
		u->scratch_len = u->scratch ? w->len : 0;
	}
	u->dst = u->scratch;
	return u->scratch ? 0 : err_set(err, -ENOMEM, "out of memory for a degraded read");
}

/* Let @more further units join, those first that have something open here. How many did. */
static int join_more(struct stripe *s, struct window *w, uint32_t from, unsigned more,
		     struct err *err)
{
	unsigned joined = 0;
	int rc = 0;

	from &= ~w->fetch;
	for (int open = 1; open >= 0; open--)
		for_units(i, from)
		{
			const struct unit *u = &s->unit[i];

			if (joined == more || rc < 0 || w->fetch >> i & 1 ||
			    (u->rs && u->at == w->at) != open)
				continue;
			rc = unit_join(s, w, i, err);
			joined++;
		}
	return rc < 0 ? rc : (int)joined;
}

/* Units that have bytes in the window and can be read. */
static uint32_t readable(const struct stripe *s)
{
	uint32_t set = 0;

	for (unsigned i = 0; i < s->g.units; i++)
		if (s->unit[i].have > 0 && !(s->lost >> i & 1))
			set |= 1u << i;
	return set;
}

/* So many units that all that was asked for will be there in the end. -ENODATA. */
static int choose(struct stripe *s, struct window *w, struct err *err)
{
	const unsigned k = s->g.policy->k;
	const uint32_t usable = readable(s);
	uint32_t good = usable & ~(s->avoid & ~w->fetch);
	int rc = 0;

	if (group_count(good | w->zero) < k) /* those in doubt are better than nothing */
		good = usable;
	w->fetch &= usable;
	for_units(i, w->want & good & ~w->fetch) rc = rc ?: unit_join(s, w, i, err);
	if (rc < 0 || (w->want & ~w->fetch) == 0)
		return rc;
	if (group_count(good | w->zero) < k)
		return -ENODATA;
	if (group_count(w->fetch | w->zero) < k)
		rc = join_more(s, w, good, k - group_count(w->fetch | w->zero), err);
	return rc < 0 ? rc : 0;
}

/* ---- slow units ---- */

/* When, from the window's start on, one who is not done is late. */
static uint64_t deferred_sync_after(const struct stripe *s, const struct window *w)
{
	const unsigned n = group_count(w->done);
	uint64_t typical = s->typical_ns;
	unsigned below;

	if (n == 0 || 2 * n < group_count(w->fetch))
		return HEDGE_TYPICAL * typical > HEDGE_ALONE_NS ? HEDGE_TYPICAL * typical
								: HEDGE_ALONE_NS;
	for_units(i, w->done)
	{ /* the median of those that are done */
		below = 0;
		for_units(j, w->done) below += s->unit[j].done_ns < s->unit[i].done_ns;
		if (below == n / 2)
			typical = s->unit[i].done_ns;
	}
	return HEDGE_TYPICAL * typical > HEDGE_MIN_NS ? HEDGE_TYPICAL * typical : HEDGE_MIN_NS;
}

/* Somebody is late: let others join, if there are enough to do without those that are. */
static int hedge(struct stripe *s, struct window *w, uint64_t now, struct err *err)
{
	const unsigned k = s->g.policy->k, ready = group_count(w->done | w->zero);
	const uint32_t late = w->fetch & ~w->done;
	uint32_t spare = readable(s) & ~w->fetch & ~s->avoid;
	uint32_t joined;
	int rc;

	w->hedge_ns = now + 2 * deferred_sync_after(s, w); /* these may be late, too */
	w->hedged = true;
	if (ready + group_count(spare) < k) /* those in doubt are better than nothing */
		spare = readable(s) & ~w->fetch;
	if (ready + group_count(spare) < k || !late)
		return 0;
	joined = w->fetch;
	rc = join_more(s, w, spare, k - ready, err);
	joined = w->fetch & ~joined;
	if (rc > 0)
		count_add(&s->fs->count.read_hedges, 1);
	for_units(i, joined) if (rc >= 0) rc = stripe_unit_start(s, i, w->at, s->unit[i].have, err);
	return rc < 0 ? rc : 0;
}

/* The window is complete without some units: leave those behind, and others that were asked only
 * for fear of that. */
static void leave_behind(struct stripe *s, const struct window *w)
{
	struct err late = ERR_INIT;

	for_units(i, w->fetch & ~w->done)
	{
		const bool hedged = w->want & ~w->done; /* decoding won */

		if (hedged && (w->want >> i & 1)) {
			s->avoid |= 1u << i;
			s->extra_end = stripe_find_extra_end(s);
			err_set(&late, -ETIME, "it was slower than the others");
			s->ops->failed(s->fs, &s->g.unit[i], s->unit[i].node, &late);
		}
		stripe_unit_close(&s->unit[i], true);
	}
}

/* ---- a window ---- */

static bool is_complete(const struct stripe *s, const struct window *w)
{
	return (w->want & ~w->done) == 0 || group_count(w->done | w->zero) >= s->g.policy->k;
}

static int start_all(struct stripe *s, struct window *w, struct err *err)
{
	int rc;

	do { /* a unit that fails at once is replaced at once */
		rc = choose(s, w, err);
		for_units(i, w->fetch & ~w->done) if (rc == 0) rc = stripe_unit_start(
			s, i, w->at + s->unit[i].got, s->unit[i].have - s->unit[i].got, err);
	} while (rc == 0 && (w->fetch & s->lost));
	return rc;
}

/* Until a stream has news, or somebody is late. */
static int wait_news(struct stripe *s, struct window *w, struct err *err)
{
	const uint64_t patience = stream_timeout_ns(s->fs, 0);
	uint64_t until = w->hedge_ns, now;
	struct pollfd p[EC_UNITS_MAX];
	nfds_t n = 0;
	int ms, rc = 0;

	for_units(i, w->fetch & ~w->done)
	{
		const struct unit *u = &s->unit[i];

		rc = u->rs->ops->poll_read(u->rs, &p[n++]);
		if (rc < 0)
			return err_sys(err, rc, "cannot wait for the units of a block group");
		if (rc > 0)
			return 0; /* news already */
		if (u->heard_ns + patience < until)
			until = u->heard_ns + patience;
	}
	now = s->ops->now();
	ms = until > now ? (int)((until - now) / NS_PER_MS) + 1 : 0;
	if (ret_errno(s->ops->poll(p, n, ms)) < 0 && errno != EINTR)
		return err_sys(err, neg_errno(), "poll");
	now = s->ops->now();
	for_units(i, w->fetch & ~w->done)
	{
		char text[GROUP_TEXT_MAX];

		if (rc || s->unit[i].heard_ns + patience > now)
			continue;
		err_set(err, -ETIMEDOUT, "data node %s does not answer in time",
			group_unit_text(&s->g, i, text));
		rc = stripe_unit_failed(s, i, -ETIMEDOUT, err);
	}
	return rc ?: now >= w->hedge_ns ? hedge(s, w, now, err) : 0;
}

/* One look at every stream. 1: something came. */
static int take_all(struct stripe *s, struct window *w, struct err *err)
{
	int came = 0;

	for_units(i, w->fetch & ~w->done)
	{
		int rc = stripe_unit_take(s, w, i, err);

		if (rc < 0)
			return rc;
		came |= rc;
	}
	return came;
}

static int decode(struct stripe *s, const struct window *w, struct err *err)
{
	const uint32_t missing = w->want & ~w->done;
	struct ec_src src[EC_UNITS_MAX] = {0};
	uint8_t *out[EC_UNITS_MAX] = {0};
	int rc;

	if (!missing)
		return 0;
	if (!s->coder) {
		rc = ec_coder_new(s->g.policy, &s->coder, err);
		if (rc < 0)
			return rc;
	}
	for_units(i, w->done) src[i] = (struct ec_src){s->unit[i].dst, s->unit[i].have};
	for_units(i, missing) out[i] = s->unit[i].dst;
	rc = ec_decode(s->coder, (w->done | w->zero) & ~missing, missing, src, out, w->len);
	if (rc < 0)
		return err_set(err, -EIO, "units %#x of a block group cannot be decoded", missing);
	count_add(&s->fs->count.read_decoded, (uint64_t)w->len * group_count(missing));
	return 0;
}

static void learn(struct stripe *s, const struct window *w)
{
	uint64_t sum = 0;

	if (!w->done)
		return;
	for_units(i, w->done) sum += s->unit[i].done_ns;
	sum /= group_count(w->done);
	s->typical_ns = s->typical_ns ? (7 * s->typical_ns + sum) / 8 : sum;
}

/* Is a unit of the window without a stream? It has just failed. */
static bool must_start(const struct stripe *s, const struct window *w)
{
	for_units(i, w->fetch & ~w->done) if (!s->unit[i].rs) return true;
	return false;
}

static int window_step(struct stripe *s, struct window *w, struct err *err)
{
	const uint32_t done = w->done;
	int rc;

	if (must_start(s, w))
		return start_all(s, w, err);
	rc = take_all(s, w, err);
	if (rc == 0 && !must_start(s, w))
		rc = wait_news(s, w, err);
	if (done != w->done && !w->hedged) /* more is known of what is typical */
		w->hedge_ns = w->start_ns + deferred_sync_after(s, w);
	return rc < 0 ? rc : 0;
}

/* s->unit[].dst and .have are set. */
static int read_window(struct stripe *s, struct window *w, struct err *err)
{
	int rc;

	w->start_ns = s->ops->now();
	rc = start_all(s, w, err);
	w->hedge_ns = w->start_ns + deferred_sync_after(s, w);
	while (rc == 0 && !is_complete(s, w))
		rc = window_step(s, w, err);
	if (rc < 0)
		return rc;
	leave_behind(s, w);
	learn(s, w);
	return decode(s, w, err);
}

static int read_band(struct stripe *s, const struct ec_band *b, uint8_t *dst, struct err *err)
{
	int rc = 0;

	for (uint32_t from = 0; from < b->len && rc == 0; from += STRIPE_WINDOW) {
		struct window w = {.at = b->at + from, .want = b->want};

		w.len = b->len - from < STRIPE_WINDOW ? b->len - from : STRIPE_WINDOW;
		for (unsigned i = 0; i < s->g.units; i++) {
			struct unit *u = &s->unit[i];

			u->have = b->have[i] > from ? b->have[i] - from : 0;
			u->have = u->have < w.len ? u->have : w.len;
			u->got = 0;
			u->dst = w.want >> i & 1 ? dst + b->dest[i] + from : NULL;
			if (!u->have && i < s->g.policy->k)
				w.zero |= 1u << i;
		}
		rc = read_window(s, &w, err);
	}
	return rc;
}

/* ---- entry points ---- */

int stripe_read(struct stripe *s, uint64_t offset, uint64_t len, uint8_t *dst,
		enum stripe_mode mode, bool renewed, struct err *err)
{
	struct ec_plan plan;
	struct ec_band band;
	int rc = ec_plan_start(&plan, s->g.policy, s->g.length, offset, len);

	if (rc < 0)
		return err_set(err, rc, "a range that is not in the block group");
	s->offset = offset;
	s->len = len;
	s->mode = mode;
	s->renewed = renewed;
	s->extra_end = stripe_find_extra_end(s);
	while (rc == 0 && ec_plan_next(&plan, &band))
		rc = read_band(s, &band, dst, err);
	if (mode == STRIPE_EXACT || rc < 0)
		for (unsigned i = 0; i < s->g.units; i++)
			stripe_unit_close(&s->unit[i], rc < 0);
	return rc;
}

void stripe_prefetch(struct stripe *s, uint64_t offset)
{
	const enum stripe_mode mode = s->mode;
	struct err ignored = ERR_INIT;

	s->mode = STRIPE_AHEAD;
	for (unsigned i = 0; i < s->g.policy->k; i++) {
		uint64_t at;

		if (s->unit[i].rs || (s->lost | s->avoid) >> i & 1 ||
		    !ec_unit_part(s->g.policy, offset, s->g.length - offset, i, &at))
			continue;
		if (stripe_unit_start(s, i, at, 1, &ignored) < 0)
			break; /* whoever needs it will hear */
	}
	s->mode = mode;
}

bool stripe_degraded(const struct stripe *s, uint64_t offset)
{
	const struct ec_policy *p = s->g.policy;
	const uint64_t row_end = (offset / ec_row_bytes(p) + 1) * ec_row_bytes(p);
	const uint64_t end = row_end < s->g.length ? row_end : s->g.length;
	uint64_t at;

	for_units(i, (s->lost | s->avoid) & ((1u << p->k) - 1)) if (ec_unit_part(p, offset,
										 end - offset, i,
										 &at)) return true;
	return false;
}

bool stripe_give_back(struct stripe *s)
{
	bool rest = true;

	for (unsigned i = 0; i < s->g.units; i++)
		rest &= stream_come_to_rest(s->unit[i].rs); /* each of them is told */
	for (unsigned i = 0; rest && i < s->g.units; i++)
		stripe_unit_close(&s->unit[i], true);
	return rest;
}

bool stripe_has_streams(const struct stripe *s)
{
	for (unsigned i = 0; i < s->g.units; i++)
		if (s->unit[i].rs && s->unit[i].rs->counter != stream_local.counter)
			return true;
	return false;
}

const struct group *stripe_group(const struct stripe *s)
{
	return &s->g;
}

/* what stands around the name and the cause of a unit, and "..." behind the last one */
#define ITEM_ENDS 8
#define WHY_LEAST 16 /* shorter causes say nothing */

void stripe_explain(const struct stripe *s, char *buf, size_t size)
{
	const uint32_t left = s->g.existing & ~s->lost;
	int n = snprintf(buf, size, "block group blk_%lld: %u of its units are left, %u are needed",
			 (long long)s->g.id, group_count(left),
			 ec_units_needed(s->g.policy, s->g.length));
	size_t len = n > 0 ? (size_t)n : 0;
	unsigned more = group_count(s->lost);
	const char *sep = ": ";

	for_units(i, s->lost)
	{
		char text[GROUP_TEXT_MAX], item[GROUP_TEXT_MAX + WHY_MAX + 20], why[WHY_MAX] = "";
		size_t named, room;

		if (len >= size)
			return;
		named = (size_t)snprintf(item, sizeof(item), "unit %u (%s", i,
					 group_unit_text(&s->g, i, text));
		/* Each has the same part of the room, so that all are named however long their
		 * causes are. */
		room = (size - len) / more--;
		room = room > named + ITEM_ENDS ? room - named - ITEM_ENDS : 0;
		if (room >= WHY_LEAST)
			node_why(why, room < sizeof(why) ? room : sizeof(why), s->unit[i].why);
		snprintf(item + named, sizeof(item) - named, "%s%s)", why[0] ? ": " : "", why);
		len = node_list(buf, size, len, sep, item);
		sep = ", ";
	}
}

bool stripe_is_away(const struct stripe *s)
{
	uint32_t back = s->g.existing & ~s->lost; /* what there may be when the nodes are back */

	for_units(i, s->lost) if (node_is_away(s->unit[i].why_rc)) back |= 1u << i;
	return s->lost != 0 && group_count(back) >= ec_units_needed(s->g.policy, s->g.length);
}

int stripe_open(struct dfs *fs, const Hd__LocatedBlockProto *lb, const struct ec_policy *policy,
		const struct stripe_ops *ops, struct ec_coder *coder, struct stripe **ret,
		struct err *err)
{
	struct stripe *s = calloc(1, sizeof(*s));
	int rc = s ? group_view(lb, policy, &s->g, err)
		   : err_set(err, -ENOMEM, "out of memory for a block group");

	if (rc < 0) {
		free(s);
		return rc;
	}
	s->fs = fs;
	s->ops = ops;
	s->coder = coder;
	s->lost = s->g.lost;
	for_units(i, s->g.existing & ~s->lost)
	{
		const Hd__DatanodeInfoProto *node = s->g.unit[i].lb.locs[0];

		if (node->stale || ops->suspect(fs, node))
			s->avoid |= 1u << i;
	}
	*ret = s;
	return 0;
}

void stripe_close(struct stripe *s, struct ec_coder **ret_coder)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->g.units; i++) {
		stripe_unit_close(&s->unit[i], false);
		free(s->unit[i].scratch);
	}
	if (ret_coder)
		*ret_coder = s->coder;
	else
		ec_coder_free(s->coder);
	free(s);
}
