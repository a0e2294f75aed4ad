/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/block/operations.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "datanode/block/engine.h"

struct operation *operation_add(struct operation_list *l, uint64_t begun_ns, uint64_t moved_ns)
{
	struct operation *o;

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
	*o = (struct operation){.role = "", .transport = "none", .waits_for = ""};
	o->age_ms = l->now_ns > begun_ns ? (l->now_ns - begun_ns) / NS_PER_MS : 0;
	o->quiet_ms = l->now_ns > moved_ns ? (l->now_ns - moved_ns) / NS_PER_MS : 0;
	return o;
}

void xfer_entry_begin(struct engine_core *core, struct operation_entry *e,
		      void (*tell)(const struct operation_entry *e, struct operation *ret))
{
	e->begun_ns = reactor_now_ns(core->reactor);
	e->tell = tell;
	list_add_tail(&core->entries, &e->link);
}

void xfer_entry_end(struct operation_entry *e)
{
	if (list_is_linked(&e->link))
		list_del(&e->link);
}

void entries_list(struct engine_core *core, struct operation_list *l)
{
	list_for_each (i, &core->entries) {
		const struct operation_entry *e = container_of(i, struct operation_entry, link);
		struct operation *o = operation_add(l, e->begun_ns, e->begun_ns);

		if (!o)
			return;
		e->tell(e, o);
	}
}
