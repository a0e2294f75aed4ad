/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/namespace/leases.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "namenode-shim/base/arena.h"

static void lease_drop(struct leases *l, struct lease *e)
{
	if (l->turn == e)
		l->turn = e->hh.next;
	HASH_DEL(l->table, e);
	free(e->inode);
	free(e->holder);
	free(e);
}

void leases_fini(struct leases *l)
{
	struct lease *e, *tmp;

	HASH_ITER(hh, l->table, e, tmp)
	lease_drop(l, e);
}

struct lease *leases_find(const struct leases *l, const char *holder)
{
	struct lease *e;

	HASH_FIND_STR(l->table, holder, e);
	return e;
}

void leases_add(struct leases *l, const char *holder, uint64_t inode)
{
	struct lease *e = leases_find(l, holder);

	if (!e) {
		e = xcalloc(1, sizeof(*e));
		e->holder = xstrdup(holder);
		HASH_ADD_KEYPTR(hh, l->table, e->holder, strlen(e->holder), e);
	}
	if (e->ninodes == e->size) {
		e->size = e->size ? 2 * e->size : 4;
		e->inode = xrealloc(e->inode, e->size * sizeof(*e->inode));
	}
	e->inode[e->ninodes++] = inode;
	e->renewed_ns = clock_mono_ns();
	e->left = 0;
	l->files++;
}

void leases_del(struct leases *l, const char *holder, uint64_t inode)
{
	struct lease *e = leases_find(l, holder);

	for (uint32_t i = 0; e && i < e->ninodes; i++)
		if (e->inode[i] == inode) {
			e->inode[i] = e->inode[--e->ninodes];
			l->files--;
			break;
		}
	if (e && !e->ninodes)
		lease_drop(l, e);
}

void leases_renew(struct leases *l, const char *holder)
{
	struct lease *e = leases_find(l, holder);

	if (!e)
		return;
	e->renewed_ns = clock_mono_ns();
	e->left = 0;
}

bool leases_expired(const struct leases *l, const char *holder, uint64_t ms)
{
	const struct lease *e = leases_find(l, holder);

	return !e || clock_mono_ns() - e->renewed_ns > ms * NS_PER_MS;
}
