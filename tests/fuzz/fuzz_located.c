/* SPDX-License-Identifier: Apache-2.0 */
/* LocatedBlocksProto of a striped file, as a NameNode answers a reader: which units a group has,
 * what to read of it. */
#include "client/src/striped/block_group.h"
#include "common/wire/ec_msg.h"
#include "common/wire/pb.h"
#include "tests/fuzz/fuzz.h"

#define BANDS_MAX 64 /* of a walk; a group may have millions */

static void walk(const struct group *g, uint64_t offset, uint64_t len)
{
	const struct ec_policy *p = g->policy;
	struct ec_plan plan;
	struct ec_band b;

	if (ec_plan_start(&plan, p, g->length, offset, len) < 0)
		return;
	for (int i = 0; i < BANDS_MAX && ec_plan_next(&plan, &b); i++) {
		MUST(b.len > 0 && b.len <= p->cell &&
		     b.at / p->cell == (b.at + b.len - 1) / p->cell);
		MUST(b.want && !(b.want >> p->k));
		for (unsigned u = 0; u < g->units; u++)
			MUST(b.have[u] <= b.len && (!(b.want >> u & 1) || b.dest[u] < len));
	}
}

static void group(const Hd__LocatedBlockProto *lb, const struct ec_policy *p)
{
	char text[GROUP_TEXT_MAX];
	struct group g;

	if (group_view(lb, p, &g, NULL) < 0)
		return;
	MUST(g.units == (unsigned)p->k + p->m && g.units <= EC_UNITS_MAX);
	MUST(!(g.lost & ~g.existing) && !(g.existing >> g.units));
	/* gcc does not see that MUST() ends it */
	for (unsigned u = 0; u < g.units && u < EC_UNITS_MAX; u++) {
		const struct group_unit *unit = &g.unit[u];

		MUST(unit->lb.b == &unit->b && unit->lb.n_locs <= GROUP_COPIES_MAX);
		MUST(unit->b.numbytes <= g.length && (int64_t)unit->b.blockid == ec_id_of(g.id, u));
		MUST((unit->lb.n_locs == 0) == (g.lost >> u & 1) || !(g.existing >> u & 1));
		MUST(strlen(group_unit_text(&g, u, text)) < sizeof(text));
	}
	walk(&g, 0, g.length);
	walk(&g, lb->offset % (g.length + 1), g.length - lb->offset % (g.length + 1));
	walk(&g, g.length / 2, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Hd__LocatedBlocksProto *l;
	struct ec_policy p;

	if (pb_unpack(&hd__located_blocks_proto__descriptor, data, size, &l))
		return 0;
	if (l->ecpolicy && ec_policy_from_msg(l->ecpolicy, &p) == 0) {
		for (size_t i = 0; i < l->n_blocks; i++)
			group(l->blocks[i], &p);
		if (l->lastblock)
			group(l->lastblock, &p);
	}
	pb_free(l);
	return 0;
}
