/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/xfer/ops.h"

#include <stdlib.h>

#include "common/base/clock.h"

struct xfer_op *xfer_op_add(struct xfer_op_list *l, uint64_t begun_ns, uint64_t moved_ns)
{
	struct xfer_op *o;

	if (l->count == XFER_OPS_MAX)
		return NULL;
	if (l->count == l->cap) {
		const uint32_t cap = l->cap ? l->cap * 2 : 64;

		o = realloc(l->op, cap * sizeof(*o));
		if (!o)
			return NULL;
		l->op = o;
		l->cap = cap;
	}
	o = &l->op[l->count++];
	*o = (struct xfer_op){.role = "", .transport = "none", .waits_for = ""};
	o->age_ms = l->now_ns > begun_ns ? (l->now_ns - begun_ns) / NS_PER_MS : 0;
	o->quiet_ms = l->now_ns > moved_ns ? (l->now_ns - moved_ns) / NS_PER_MS : 0;
	return o;
}
