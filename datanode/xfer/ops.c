/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/xfer/ops.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "datanode/xfer/engine.h"

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

void xfer_entry_begin(struct xfer_core *core, struct xfer_entry *e, void (*tell)(const struct xfer_entry *e, struct xfer_op *ret))
{
	e->begun_ns = reactor_now_ns(core->reactor);
	e->tell = tell;
	list_add_tail(&core->entries, &e->link);
}

void xfer_entry_end(struct xfer_entry *e)
{
	if (list_is_linked(&e->link))
		list_del(&e->link);
}

void entries_list(struct xfer_core *core, struct xfer_op_list *l)
{
	list_for_each (i, &core->entries) {
		const struct xfer_entry *e = container_of(i, struct xfer_entry, link);
		struct xfer_op *o = xfer_op_add(l, e->begun_ns, e->begun_ns);

		if (!o)
			return;
		e->tell(e, o);
	}
}
