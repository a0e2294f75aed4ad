/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/db/effect.h"

bool effects_only_add(const struct effect_list *l)
{
	for (const struct effect *e = l->first; e; e = e->next)
		if (e->kind != EFFECT_LEASE_ADD && e->kind != EFFECT_BLOCK_ADD &&
		    e->kind != EFFECT_INODES)
			return false;
	return true;
}

bool effects_only_close(const struct effect_list *l)
{
	for (const struct effect *e = l->first; e; e = e->next)
		if (e->kind != EFFECT_LEASE_DEL && e->kind != EFFECT_BLOCK_COMMIT &&
		    e->kind != EFFECT_BLOCK_CLOSED)
			return false;
	return true;
}
