/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: rebuild_order_test_fixture - the rest of a node, for who gives BlockECReconstruction
 * orders to reconstruct_command.c
 *
 * The linker puts these in place of the real ones. Included by one program each, which has defined
 * POOL and OWN_UUID before and has a data_port_rebuild() of its own.
 */
#include <stdlib.h>

#include "datanode/bp/bp_internal.h"
#include "datanode/data_port/data_port.h"
#include "datanode/reconstruct/reconstruct.h"

const char *pool_id(const struct block_pool *bp)
{
	(void)bp;
	return POOL;
}

const char *store_datanode_uuid(const struct store *s)
{
	(void)s;
	return OWN_UUID;
}

bool actor_stops(const struct bp_actor *a)
{
	(void)a;
	return false;
}

void report_on_bad_at(struct bp_actor *a, const struct dn_target *node, const struct block *b)
{
	(void)a, (void)node, (void)b;
}

void store_volume_info(struct store *s, uint32_t i, struct block_pool *bp, struct storage_info *ret)
{
	(void)s, (void)i, (void)bp, (void)ret; /* of other messages */
}

void reconstruct_params_fini(struct reconstruct_params *p)
{
	free(p->sources);
	free(p->targets);
	*p = (struct reconstruct_params){0};
}
