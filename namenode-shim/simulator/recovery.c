/* SPDX-License-Identifier: Apache-2.0 */
/* Block recovery of replicated files, as its primary does it (sim.h; hdfs-wire 8.4). */
#include <stdio.h>

#include "common/erasure/geometry.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/simulator/sim.h"

#define RECEIVED HDD__RECEIVED_DELETED_BLOCK_INFO_PROTO__BLOCK_STATUS__RECEIVED

struct holder {
	struct sim_node *d;
	struct block b;
	enum replica_state state;
	bool asked, found, takes_part;
};

/* -1: another recovery is ahead. */
static int holder_init(struct holder *h, const struct sim_order *o)
{
	struct sim_replica *r = node_find(h->d, o->b.id);

	h->asked = h->d->up && !sim_chance(sim_may(SIM_CRASH) ? 5 : 0);
	if (!h->asked || !r)
		return 0;
	if (r->state == REPLICA_RUR && r->recovery >= o->new_gs)
		return -1;
	if (r->b.gs < o->b.gs || r->b.gs >= o->new_gs) {
		h->asked = false; /* an error, not "I have none" */
		sim_say("%s: %lld has stamp %llu", h->d->uuid, (long long)r->b.id,
			(unsigned long long)r->b.gs);
		return 0;
	}
	if (r->state != REPLICA_RUR)
		r->orig = r->state;
	r->state = REPLICA_RUR;
	r->recovery = o->new_gs;
	h->b = r->b;
	h->state = r->orig;
	/* That all but a corrupt one fail to answer would be two faults at once. */
	h->asked = !r->bad;
	h->found = !r->bad && r->b.len > 0 && r->orig <= REPLICA_RWR;
	return 0;
}

/* The length all are brought to; -1: they do not agree. */
static int64_t agree(struct holder *h, int n, const struct sim_order *o)
{
	enum replica_state best = REPLICA_TEMPORARY;
	int64_t len = -1;

	for (int i = 0; i < n; i++)
		if (h[i].found && h[i].state < best)
			best = h[i].state;
	for (int i = 0; i < n; i++) {
		const bool longer = (int64_t)h[i].b.len > len;

		h[i].takes_part = h[i].found && h[i].state == best;
		if (h[i].takes_part &&
		    (len < 0 || (best == REPLICA_FINALIZED && o->cut < 0 ? longer : !longer)))
			len = (int64_t)h[i].b.len;
	}
	for (int i = 0; i < n; i++) {
		if (best != REPLICA_FINALIZED)
			break;
		h[i].takes_part &= (int64_t)h[i].b.len >= len;
		h[i].takes_part |=
			h[i].found && h[i].state == REPLICA_RBW && (int64_t)h[i].b.len == len;
	}
	if (o->cut >= 0)
		return len < o->cut ? -1 : o->cut;
	return len;
}

static bool holder_update(struct holder *h, const struct sim_order *o, uint64_t len)
{
	struct sim_replica *r = h->d->up ? node_find(h->d, o->b.id) : NULL;

	if (!r || r->state != REPLICA_RUR || r->recovery != o->new_gs || r->b.len < len ||
	    sim_chance(sim_may(SIM_CRASH) ? 5 : 0))
		return false;
	r->state = REPLICA_FINALIZED;
	r->b.gs = o->new_gs;
	r->b.len = len;
	node_tell(h->d, &r->b, RECEIVED);
	return true;
}

/* Where the node has its replica; of a group: the unit. */
static int disk_of(int node, const struct sim_order *o, int unit)
{
	const int64_t id = ec_id_is_striped(o->b.id) ? ec_id_of(o->b.id, (unsigned)unit) : o->b.id;
	const struct sim_replica *r = node < 0 ? NULL : node_find(&sim.node[node], id);

	return r ? r->disk : 0;
}

void order_commit(const struct sim_node *d, const struct sim_order *o, const int *at, int n,
		  uint64_t len)
{
	Hdd__CommitBlockSynchronizationRequestProto m =
		HDD__COMMIT_BLOCK_SYNCHRONIZATION_REQUEST_PROTO__INIT;
	Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	Hd__DatanodeIDProto id[NODES], *ids[NODES];
	char storage[NODES][24], *storages[NODES];
	struct sim_call c;

	for (int i = 0; i < n; i++) {
		const char *uuid = at[i] < 0 ? "null" : sim.node[at[i]].uuid;

		hd__datanode_idproto__init(&id[i]);
		id[i].ipaddr = id[i].hostname = id[i].datanodeuuid = (char *)(uintptr_t)uuid;
		snprintf(storage[i], sizeof(storage[i]), "DS-%s-%d", uuid, disk_of(at[i], o, i));
		ids[i] = &id[i];
		storages[i] = storage[i];
	}
	m.newtaragets = ids;
	m.newtargetstorages = storages;
	m.n_newtaragets = m.n_newtargetstorages = (size_t)n;
	b.poolid = sim.nn->db->ident.pool_id;
	b.blockid = (uint64_t)o->b.id;
	b.generationstamp = o->b.gs;
	b.numbytes = o->b.len;
	b.has_numbytes = 1;
	m.block = &b;
	m.newgenstamp = o->new_gs;
	m.newlength = len;
	m.closefile = 1;
	m.deleteblock = !n;
	sim_say("%s: recovered %lld_%llu: stamp %llu, %llu bytes, %d replicas%s", d->uuid,
		(long long)o->b.id, (unsigned long long)o->b.gs, (unsigned long long)o->new_gs,
		(unsigned long long)len, n, n ? "" : ", to be removed");
	(void)node_call(d, &c, "commitBlockSynchronization", &m);
	sim_call_end(&c);
}

void node_recover(struct sim_node *d, const struct sim_order *o)
{
	struct holder h[NODES] = {0};
	int at[NODES], asked = 0, found = 0, updated = 0;
	int64_t len;

	for (int i = 0; i < o->n; i++) {
		h[i].d = &sim.node[o->to[i]];
		if (holder_init(&h[i], o))
			return;
		asked += h[i].asked;
		found += h[i].found;
		sim_say("%s: recovers %lld_%llu: %s %s", d->uuid, (long long)o->b.id,
			(unsigned long long)o->b.gs, h[i].d->uuid,
			h[i].found   ? "has it"
			: h[i].asked ? "does not have it"
				     : "fails");
	}
	if (!asked || (asked < o->n && !found) || (sim_may(SIM_CRASH) && sim_chance(5)))
		return;
	if (!found) {
		if (d->linked)
			order_commit(d, o, at, 0, 0);
		return;
	}
	len = agree(h, o->n, o);
	for (int i = 0; i < o->n && len >= 0; i++)
		if (h[i].takes_part && holder_update(&h[i], o, (uint64_t)len))
			at[updated++] = o->to[i];
	if (updated && d->linked && !(sim_may(SIM_CRASH) && sim_chance(5)))
		order_commit(d, o, at, updated, (uint64_t)len);
}
