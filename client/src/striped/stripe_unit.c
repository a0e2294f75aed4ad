/* SPDX-License-Identifier: Apache-2.0 */
/* stripe_unit - the units of a group being read: streams, their failures, what comes of them;
 * stripe.h */
#include <stdio.h>

#include "client/src/striped/stripe_internal.h"

void stripe_unit_close(struct unit *u, bool given_up)
{
	if (!u->rs)
		return;
	u->rs->given_up = given_up;
	u->rs->ops->close_read(u->rs);
	u->rs = NULL;
}

uint64_t stripe_find_extra_end(const struct stripe *s)
{
	const struct ec_policy *p = s->g.policy;
	uint64_t end = 0, at;
	bool decoded = false;

	for (unsigned i = 0; i < p->k; i++) {
		const uint64_t part = ec_unit_part(p, s->offset, s->len, i, &at);

		if (part && at + part > end)
			end = at + part;
		decoded |= part && ((s->lost | s->avoid) >> i & 1);
	}
	return decoded ? end : 0;
}

/* Up to where in unit @i bytes will be wanted. */
static uint64_t stream_end(const struct stripe *s, unsigned i, uint64_t at, uint32_t have)
{
	const uint64_t length = ec_unit_length(s->g.policy, s->g.length, i);
	uint64_t end = at + have, from, part = 0;

	if (s->mode == STRIPE_AHEAD)
		return length;
	if (i < s->g.policy->k)
		part = ec_unit_part(s->g.policy, s->offset, s->len, i, &from);
	if (part && at >= from && end < from + part)
		end = from + part;
	if (end < s->extra_end)
		end = s->extra_end;
	return end < length ? end : length;
}

int stripe_unit_failed(struct stripe *s, unsigned i, int rc, struct err *err)
{
	struct unit *u = &s->unit[i];

	stripe_unit_close(u, rc == -ETIMEDOUT);
	if (rc == -ENOBUFS && s->fs->set.rdma != RDMA_REQUIRE)
		return 0; /* ours: it is opened again, by TCP if need be */
	if (rc == -ENOMEM || rc == -ENOBUFS || (rc == -EACCES && !s->renewed))
		return rc;
	err->rc = rc;
	s->ops->failed(s->fs, &s->g.unit[i], u->node, err);
	node_why(u->why, sizeof(u->why), err->text);
	u->why_rc = rc;
	if (++u->node >= s->g.unit[i].lb.n_locs) {
		u->node = 0;
		s->lost |= 1u << i;
		s->extra_end = stripe_find_extra_end(s);
	}
	return 0;
}

int stripe_unit_start(struct stripe *s, unsigned i, uint64_t at, uint32_t have, struct err *err)
{
	struct unit *u = &s->unit[i];

	if (u->rs && (u->at != at || u->end < at + have))
		stripe_unit_close(u, false);
	while (!u->rs && !(s->lost >> i & 1)) {
		struct read_setup r = {.lb = &s->g.unit[i].lb, .node = u->node, .offset = at};
		int rc;

		u->at = at;
		u->end = stream_end(s, i, at, have);
		u->heard_ns = s->ops->now();
		r.len = u->end - at;
		rc = s->ops->start(s->fs, &r, &u->rs, err);
		if (rc < 0)
			u->rs = NULL;
		rc = rc < 0 ? stripe_unit_failed(s, i, rc, err) : 0;
		if (rc < 0)
			return rc;
	}
	return 0;
}

int stripe_unit_take(struct stripe *s, struct window *w, unsigned i, struct err *err)
{
	struct unit *u = &s->unit[i];
	const struct block_stream *ops;
	ssize_t n;

	if (!u->rs)
		return 0;
	ops = u->rs->ops;
	n = ops->try_read(u->rs, u->dst + u->got, u->have - u->got, err);
	if (n < 0)
		return stripe_unit_failed(s, i, (int)n, err);
	if (n == 0)
		return 0;
	u->got += (uint32_t)n;
	u->at += (uint64_t)n;
	u->heard_ns = s->ops->now();
	count_add(&s->fs->count.read[u->rs->counter], (uint64_t)n);
	if (u->got == u->have) {
		w->done |= 1u << i;
		u->done_ns = u->heard_ns - w->start_ns;
	}
	if (u->at == u->end)
		stripe_unit_close(u, false);
	return 1;
}
