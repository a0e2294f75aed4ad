/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * verbs_device_test_fixture - one device that is played, with the limits that a test gives it
 *
 * Included by tests only, which are linked with --wrap for the three calls.
 */
#include <stdlib.h>

#include "common/transport/verbs_internal.h"

static struct ibv_device device = {.name = "played"};
static struct ibv_context ctx = {.device = &device};
static struct ibv_device_attr attr; /* what it says of itself, */
static int query_rc;                /* when it does: 0, or errno */

struct ibv_context **__wrap_rdma_get_devices(int *n);
struct ibv_context **__wrap_rdma_get_devices(int *n)
{
	struct ibv_context **all = calloc(2, sizeof(struct ibv_context *));

	all[0] = &ctx;
	if (n)
		*n = 1;
	return all;
}

void __wrap_rdma_free_devices(struct ibv_context **all);
void __wrap_rdma_free_devices(struct ibv_context **all)
{
	free(all);
}

int __wrap_ibv_query_device(struct ibv_context *c, struct ibv_device_attr *ret);
int __wrap_ibv_query_device(struct ibv_context *c, struct ibv_device_attr *ret)
{
	(void)c;
	*ret = attr;
	return query_rc;
}
