/* SPDX-License-Identifier: Apache-2.0 */
/* The card of fake_rdma.c has no windows for slots: they go by the keys of their slabs. */
#include <stdlib.h>

#include "common/transport/verbs.h"

int verbs_expose(struct xconn *x, struct verbs_exposure *e, struct xremote *ret)
{
	(void)x;
	*ret = (struct xremote){.addr = (uintptr_t)e->slot->data + e->off, .rkey = 1};
	return 0;
}

void verbs_cover(struct verbs_exposure *e, bool now)
{
	(void)now;
	if (e->window)
		abort();
}

bool verbs_turn_take(struct xconn *x, struct verbs_turn *t)
{
	(void)x;
	(void)t;
	return true;
}

void verbs_turn_wait(struct xconn *x, struct verbs_turn *t)
{
	(void)x;
	(void)t;
	abort();
}

void verbs_turn_end(struct verbs_turn *t)
{
	if (t->on)
		abort();
}

bool verbs_has_its_share(const struct xconn *x)
{
	(void)x;
	return false;
}
