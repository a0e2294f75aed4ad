/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/db/effect.h"

#include "namenode-shim/blocks/datanodes.h"
#include "namenode-shim/namespace/ns.h"

void effect_set_targets(struct ns *n, struct effect *e, struct storage *const *st, uint32_t count)
{
	e->targets = arena_array(n->a, struct storage_ref, count + 1u);
	e->ntargets = count;
	for (uint32_t i = 0; i < count; i++)
		e->targets[i] = storage_ref(st[i]);
}

bool effects_only_add(const struct effect_list *l)
{
	for (const struct effect *e = l->first; e; e = e->next)
		if (e->kind != FX_LEASE_ADD && e->kind != FX_BLOCK_ADD && e->kind != FX_INODES)
			return false;
	return true;
}

bool effects_only_close(const struct effect_list *l)
{
	for (const struct effect *e = l->first; e; e = e->next)
		if (e->kind != FX_LEASE_DEL && e->kind != FX_BLOCK_COMMIT &&
		    e->kind != FX_BLOCK_CLOSED)
			return false;
	return true;
}
