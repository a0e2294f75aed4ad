/* SPDX-License-Identifier: Apache-2.0 */
/* DNA_ERASURE_CODING_RECONSTRUCTION: lost units of a striped group are to be made and stored on the
 * named nodes, of which this one is mostly the first (hdfs-wire 7.6). */
#include "datanode/bp/bp_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/wire/ec_msg.h"
#include "datanode/data_port/data_port.h"
#include "datanode/reconstruct/reconstruct.h"

struct reconstruction {
	struct bp_actor *actor; /* borrowed: the data port ends before the actors do */
	struct block group;
	uint32_t xmits;
};

static void on_bad(void *arg, const struct reconstruct_node *source)
{
	const struct reconstruction *r = arg;
	const struct block b = {ec_id_of(r->group.id, source->unit), r->group.gs, 0};

	report_on_bad_at(r->actor, &source->at, &b);
}

static void on_done(void *arg, int rc, const struct err *err)
{
	struct reconstruction *r = arg;

	/* it was not begun: who would have said why? */
	if (rc == -EINVAL || rc == -ENOTSUP || rc == -EBUSY || rc == -ENOBUFS)
		log_warn("op=reconstruct group=%" PRId64 "_%" PRIu64 ": not done: %s", r->group.id,
			 r->group.gs, err->text);
	atomic_fetch_sub(&r->actor->set->dn->ec_xmits, r->xmits);
	free(r);
}

static bool is_own(const struct bp_actor *a, const struct dn_target *t)
{
	return !strcmp(t->uuid, store_datanode_uuid(a->set->dn->store));
}

static int take_sources(const struct bp_actor *a, const Hd__BlockECReconstructionInfoProto *m,
			struct reconstruct_params *p, uint32_t *ret_live)
{
	const Hd__DatanodeInfosProto *infos = m->sourcedninfos;
	const size_t n = infos->n_datanodes;

	*ret_live = 0;
	if (!n || n > REBUILD_SOURCES_MAX || m->liveblockindices.len != n)
		return -EPROTO;
	p->sources = calloc(n, sizeof(*p->sources));
	if (!p->sources)
		return -ENOMEM;
	for (; p->source_count < n; p->source_count++) {
		struct reconstruct_node *s = &p->sources[p->source_count];

		s->unit = m->liveblockindices.data[p->source_count];
		if (s->unit >= EC_UNITS_MAX ||
		    target_from_proto(infos->datanodes[p->source_count], &s->at))
			return -EPROTO;
		s->own = is_own(a, &s->at);
		*ret_live |= 1u << s->unit;
	}
	return 0;
}

/* Which unit goes where is not said: hdfs-wire 7.6 implies it. 0 units: nothing is missing. */
static int take_targets(const struct bp_actor *a, const Hd__BlockECReconstructionInfoProto *m,
			uint32_t live, struct reconstruct_params *p)
{
	const Hd__DatanodeInfosProto *infos = m->targetdninfos;
	uint8_t units[EC_UNITS_MAX];
	uint32_t excluded = 0;

	for (size_t i = 0;
	     m->has_excludereconstructedindices && i < m->excludereconstructedindices.len; i++)
		if (m->excludereconstructedindices.data[i] < EC_UNITS_MAX)
			excluded |= 1u << m->excludereconstructedindices.data[i];
	if (!infos->n_datanodes || infos->n_datanodes > EC_UNITS_MAX)
		return -EPROTO;
	p->target_count = ec_targets(&p->policy, p->group.len, live, excluded,
				     (unsigned int)infos->n_datanodes, units);
	p->targets = calloc(p->target_count + 1, sizeof(*p->targets));
	if (!p->targets)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->target_count; i++) {
		struct reconstruct_node *t = &p->targets[i];

		if (target_from_proto(infos->datanodes[i], &t->at))
			return -EPROTO;
		if (i < m->targetstorageuuids->n_storageuuids)
			(void)snprintf(t->at.storage_uuid, sizeof(t->at.storage_uuid), "%s",
				       m->targetstorageuuids->storageuuids[i]);
		if (i < m->targetstoragetypes->n_storagetypes)
			t->at.storage_type =
				(enum storage_type)m->targetstoragetypes->storagetypes[i];
		t->unit = units[i];
		t->own = is_own(a, &t->at);
	}
	return 0;
}

static int take_info(struct bp_actor *a, const Hd__BlockECReconstructionInfoProto *m,
		     struct reconstruct_params *p)
{
	uint32_t live;
	int rc;

	*p = (struct reconstruct_params){.bp = a->bp,
					 .group = {(int64_t)m->block->blockid,
						   m->block->generationstamp, m->block->numbytes}};
	if (strcmp(m->block->poolid, pool_id(p->bp)))
		return -ENOENT;
	if (!ec_length_ok(p->group.len))
		return -EPROTO;
	rc = ec_policy_from_msg(m->ecpolicy, &p->policy);
	if (rc == 0)
		rc = take_sources(a, m, p, &live);
	return rc ? rc : take_targets(a, m, live, p);
}

static uint32_t xmits_of(const struct dn *dn, const struct reconstruct_params *p)
{
	const uint32_t needed = ec_units_needed(&p->policy, p->group.len);
	const uint32_t streams = needed > p->target_count ? needed : p->target_count;
	const uint64_t n = (uint64_t)streams * dn->ec_xmits_pct / 100;

	return n > 1 ? (uint32_t)n : 1;
}

static int reconstruct_one(struct bp_actor *a, const Hd__BlockECReconstructionInfoProto *m)
{
	struct reconstruct_params p;
	struct reconstruction *r;
	int rc = take_info(a, m, &p);

	if (rc == 0 && !p.target_count) {
		log_info("op=reconstruct group=%" PRId64 "_%" PRIu64 ": no unit is missing",
			 p.group.id, p.group.gs);
		metric_add(METRIC_DN_EC_INVALID, 1);
	}
	r = rc == 0 && p.target_count ? calloc(1, sizeof(*r)) : NULL;
	if (!r) {
		rc = rc || !p.target_count ? rc : -ENOMEM;
		reconstruct_params_fini(&p);
		return rc;
	}
	*r = (struct reconstruction){
		.actor = a, .group = p.group, .xmits = xmits_of(a->set->dn, &p)};
	p.bad = on_bad;
	p.done = on_done;
	p.arg = r;
	atomic_fetch_add(&a->set->dn->ec_xmits, r->xmits);
	rc = data_port_rebuild(a->set->dn->xfer, &p);
	if (rc < 0) {
		atomic_fetch_sub(&a->set->dn->ec_xmits, r->xmits);
		free(r);
	}
	return rc;
}

void reconstruct_start(struct bp_actor *a, const Hdd__BlockECReconstructionCommandProto *cmd)
{
	if (!a->bp)
		return;
	for (size_t i = 0; i < cmd->n_blockecreconstructioninfo && !actor_stops(a); i++) {
		const Hd__BlockECReconstructionInfoProto *m = cmd->blockecreconstructioninfo[i];
		const int rc = reconstruct_one(a, m);

		if (rc < 0)
			log_warn("op=reconstruct group=%" PRId64
				 " namenode=%s: not an order that can be obeyed: %s",
				 (int64_t)m->block->blockid, a->addr_text, err_name(rc));
	}
}
