/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/blocks/datanodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/erasure/geometry.h"
#include "namenode-shim/base/arena.h"

/* orders of a node that wait, beyond which unknown blocks are not added */
#define UNKNOWN_MAX (1u << 20)

uint64_t rng_next(uint64_t *state)
{
	uint64_t x = *state; /* xorshift64 */

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}

void datanodes_init(struct datanodes *d, uint64_t dead_after_ns)
{
	*d = (struct datanodes){.dead_after_ns = dead_after_ns, .stale_ratio = 0.5};
	list_init(&d->gone);
	d->rng = clock_mono_ns() | 1;
	d->next_lease_id = rng_next(&d->rng) >> 1 | 1;
}

static void orders_clear(struct dn *dn)
{
	struct list *l;

	while ((l = list_pop(&dn->transfers)))
		free(container_of(l, struct transfer, link));
	while ((l = list_pop(&dn->recoveries)))
		free(container_of(l, struct recovery, link));
	while ((l = list_pop(&dn->rebuilds)))
		free(container_of(l, struct rebuild, link));
	dn_free_invalidates(dn);
}

static void dn_free(struct dn *dn)
{
	orders_clear(dn);
	for (uint32_t i = 0; i < dn->nstorages; i++)
		free(dn->storage[i]);
	free(dn);
}

void datanodes_fini(struct datanodes *d)
{
	struct dn *dn, *tmp;

	HASH_ITER(hh, d->table, dn, tmp)
	{
		HASH_DEL(d->table, dn);
		HASH_DELETE(by_number, d->numbers, dn);
		dn_free(dn);
	}
	list_for_each (l, &d->gone)
		dn_free(container_of(l, struct dn, gone));
	free(d->index.dn);
	free(d->index.ip);
}

struct dn *datanodes_find(const struct datanodes *d, const char *uuid)
{
	struct dn *dn;

	HASH_FIND_STR(d->table, uuid, dn);
	return dn;
}

struct dn *datanodes_find_addr(const struct datanodes *d, const char *ip, uint32_t xfer_port,
			       const char *not_uuid)
{
	for (struct dn *dn = d->table; dn; dn = dn->hh.next)
		if (dn->xfer_port == xfer_port && !strcmp(dn->ip, ip) && strcmp(dn->uuid, not_uuid))
			return dn;
	return NULL;
}

bool dn_ident_is_good(const struct dn_ident *id)
{
	const struct dn *dn = NULL;

	return *id->uuid && strlen(id->uuid) < sizeof(dn->uuid) &&
	       strlen(id->host) < sizeof(dn->host) && strlen(id->ip) < sizeof(dn->ip) &&
	       strlen(id->version) < sizeof(dn->version);
}

int datanodes_register(struct datanodes *d, const struct dn_ident *id, struct dn **ret)
{
	struct dn *dn = datanodes_find(d, id->uuid);

	if (!dn_ident_is_good(id))
		return -EINVAL;
	if (!dn && HASH_COUNT(d->table) >= DN_MAX)
		return -ENOSPC;
	if (!dn) {
		dn = xcalloc(1, sizeof(*dn));
		snprintf(dn->uuid, sizeof(dn->uuid), "%s", id->uuid);
		snprintf(dn->rack, sizeof(dn->rack), "%s", DN_DEFAULT_RACK);
		list_init(&dn->transfers);
		list_init(&dn->recoveries);
		list_init(&dn->rebuilds);
		list_init(&dn->cache_orders);
		list_init(&dn->cache_held);
		list_init(&dn->cache_leaving);
		list_init(&dn->cache_shunned);
		dn->number = ++d->next_number;
		HASH_ADD_STR(d->table, uuid, dn);
		HASH_ADD(by_number, d->numbers, number, sizeof(dn->number), dn);
	}
	snprintf(dn->ip, sizeof(dn->ip), "%s", id->ip);
	snprintf(dn->host, sizeof(dn->host), "%s", id->host);
	snprintf(dn->version, sizeof(dn->version), "%s", id->version);
	dn->xfer_port = id->xfer_port;
	dn->info_port = id->info_port;
	dn->ipc_port = id->ipc_port;
	dn->info_secure_port = id->info_secure_port;
	dn->lease_id = 0;
	dn->report_ns = 0; /* what it holds now is not known before its next report */
	dn->reporting = NULL;
	dn->leaving_known = false;
	for (uint32_t i = 0; i < dn->nstorages; i++)
		dn->storage[i]->reported = dn->storage[i]->listing = false;
	dn->alive = true;
	dn_touch(dn);
	dn->registered_ns = dn->heard_ns;
	datanodes_changed(d);
	*ret = dn;
	return 0;
}

/* ---- a full table ---- */

/* What a node is to a full table: the first go first. */
enum worth { WORTH_DEAD, WORTH_NAME, WORTH_AT_WORK, WORTH_KEPT };

static enum worth worth_of(const struct dn *dn)
{
	if (dn->admin == DN_ENTERING_MAINTENANCE || dn->admin == DN_IN_MAINTENANCE)
		return WORTH_KEPT;
	if (!dn->alive)
		return WORTH_DEAD;
	return dn->report_ns || dn_replicas(dn) ? WORTH_AT_WORK : WORTH_NAME;
}

/* By address; of one address those that go first come first: without replicas, then the longest
 * silent. */
static int by_address(const void *a, const void *b)
{
	const struct dn *x = *(struct dn *const *)a, *y = *(struct dn *const *)b;
	const uint64_t xr = dn_replicas(x), yr = dn_replicas(y);
	const int order = strcmp(x->ip, y->ip);

	if (order || xr != yr)
		return order ? order : xr < yr ? -1 : 1;
	return x->heard_ns < y->heard_ns ? -1 : x->heard_ns > y->heard_ns;
}

static struct dn *longest_silent(struct dn *const *v, uint32_t n)
{
	struct dn *first = v[0];

	for (uint32_t i = 1; i < n; i++)
		if (v[i]->heard_ns < first->heard_ns)
			first = v[i];
	return first;
}

/* Of the address with the most of @v. *ret_own: how many @ip has; *ret_most: how many that one has.
 */
static struct dn *of_most_crowded(struct dn **v, uint32_t n, const char *ip, uint32_t *ret_own,
				  uint32_t *ret_most)
{
	uint32_t at = 0, len;

	*ret_own = *ret_most = 0;
	qsort(v, n, sizeof(*v), by_address);
	for (uint32_t i = 0; i < n; i += len) {
		for (len = 1; i + len < n && !strcmp(v[i]->ip, v[i + len]->ip);)
			len++;
		if (!strcmp(v[i]->ip, ip))
			*ret_own = len;
		if (len > *ret_most) {
			*ret_most = len;
			at = i;
		}
	}
	return v[at];
}

struct dn *datanodes_victim(const struct datanodes *d, const char *ip)
{
	struct dn **v = xcalloc(HASH_COUNT(d->table) + 1u, sizeof(struct dn *)), *pick = NULL;
	uint32_t n = 0, own, most;

	for (enum worth w = WORTH_DEAD; w < WORTH_KEPT && !n; w++) {
		for (struct dn *dn = d->table; dn; dn = dn->hh.next)
			if (worth_of(dn) == w)
				v[n++] = dn;
		if (!n)
			continue;
		pick = w == WORTH_DEAD ? longest_silent(v, n)
				       : of_most_crowded(v, n, ip, &own, &most);
		if (w == WORTH_AT_WORK && own + 1 >= most)
			pick = NULL; /* it would only change places with its like */
	}
	free(v);
	return pick;
}

void datanodes_remove(struct datanodes *d, struct dn *dn)
{
	dn_orders_drop(d, dn, NULL, NULL);
	HASH_DEL(d->table, dn);
	HASH_DELETE(by_number, d->numbers, dn);
	list_add_tail(&d->gone, &dn->gone);
	datanodes_changed(d);
}

static bool is_forgotten(const struct dn *dn)
{
	for (uint32_t i = 0; i < dn->nstorages; i++)
		if (dn->storage[i]->sweep)
			return false;
	return true;
}

void datanodes_free_gone(struct datanodes *d)
{
	list_for_each (l, &d->gone) {
		struct dn *dn = container_of(l, struct dn, gone);

		if (!is_forgotten(dn))
			continue;
		list_del(l);
		dn_free(dn);
	}
}

uint32_t datanodes_judge_stale(struct datanodes *d, uint64_t now_ns)
{
	uint32_t n = 0;

	for (struct dn *dn = d->table; dn; dn = dn->hh.next) {
		const uint64_t silent_ns = now_ns > dn->heard_ns ? now_ns - dn->heard_ns : 0;
		const bool stale = dn->alive && d->stale_after_ns && silent_ns > d->stale_after_ns;

		if (stale && !dn->stale)
			log_warn(
				"op=stale datanode=%s address=%s:%u silent_s=%llu: no heartbeat comes; other nodes are preferred",
				dn->uuid, dn->ip, dn->xfer_port,
				(unsigned long long)(silent_ns / NS_PER_S));
		dn->stale = stale;
		n += stale;
	}
	if (d->index.stale != n)
		datanodes_changed(d);
	return n;
}

uint32_t datanodes_live(const struct datanodes *d)
{
	uint32_t n = 0;

	for (const struct dn *dn = d->table; dn; dn = dn->hh.next)
		n += dn->alive;
	return n;
}

uint32_t datanodes_normal(const struct datanodes *d)
{
	uint32_t n = 0;

	for (const struct dn *dn = d->table; dn; dn = dn->hh.next)
		n += dn->alive && dn->admin == DN_NORMAL;
	return n;
}

uint32_t datanodes_racks(const struct datanodes *d)
{
	uint32_t n = 0;

	for (const struct dn *dn = d->table; dn; dn = dn->hh.next) {
		const struct dn *first = d->table;

		while (!first->alive || strcmp(first->rack, dn->rack)) {
			first = first->hh.next;
			if (!first)
				break;
		}
		n += first == dn;
	}
	return n;
}

void datanodes_changed(struct datanodes *d)
{
	d->index.good = false;
}

uint32_t dn_index_ip(const char *ip)
{
	uint32_t h = 2166136261u; /* FNV-1a */

	for (; *ip; ip++)
		h = (h ^ (uint8_t)*ip) * 16777619u;
	return h;
}

static int by_rack(const void *a, const void *b)
{
	return strcmp((*(struct dn *const *)a)->rack, (*(struct dn *const *)b)->rack);
}

/* The first node that is in @rack, or behind it (@behind: behind it). */
static uint32_t find_rack(const struct dn_index *x, const char *rack, bool behind)
{
	uint32_t from = 0, to = x->n;

	while (from < to) {
		const uint32_t at = from + (to - from) / 2;
		const int order = strcmp(x->dn[at]->rack, rack);

		if (order < 0 || (behind && !order))
			from = at + 1;
		else
			to = at;
	}
	return from;
}

uint32_t dn_index_rack(const struct dn_index *x, const char *rack, uint32_t *ret)
{
	*ret = find_rack(x, rack, false);
	return find_rack(x, rack, true) - *ret;
}

static bool takes_replicas(const struct dn *dn)
{
	return dn->alive && dn->admin == DN_NORMAL;
}

/* x->units, once the nodes are in the order of their racks. */
static void find_unit_racks(struct dn_index *x)
{
	struct unit_racks *u = &x->units;
	uint32_t room[EC_UNITS_MAX + 1] = {0}; /* units, with so many in one rack at most */
	uint32_t in_rack = 0;
	const char *rack = NULL;
	uint8_t most = 1;

	*u = (struct unit_racks){.racks = 0};
	for (uint32_t i = 0; i < x->n; i++) {
		const struct dn *dn = x->dn[i];

		if (!takes_replicas(dn))
			continue;
		in_rack = rack && !strcmp(rack, dn->rack) ? in_rack + 1 : 1;
		rack = dn->rack;
		if (in_rack == 1 && u->racks < EC_UNITS_MAX)
			u->racks++;
		for (uint32_t n = in_rack; n <= EC_UNITS_MAX; n++)
			room[n]++;
	}
	for (uint32_t units = 1; units <= EC_UNITS_MAX; units++) {
		while (most <= EC_UNITS_MAX && room[most] < units)
			most++;
		u->most[units] = most <= EC_UNITS_MAX ? most : 0;
	}
}

const struct dn_index *datanodes_index(struct datanodes *d)
{
	struct dn_index *x = &d->index;
	const uint32_t count = HASH_COUNT(d->table);
	const char *last = NULL;

	if (x->good)
		return x;
	x->dn = xrealloc(x->dn, (count + 1u) * sizeof(struct dn *));
	x->ip = xrealloc(x->ip, (count + 1u) * sizeof(*x->ip));
	x->n = x->live = x->stale = x->racks = 0;
	for (struct dn *dn = d->table; dn; dn = dn->hh.next)
		x->dn[x->n++] = dn;
	qsort(x->dn, x->n, sizeof(struct dn *), by_rack);
	for (uint32_t i = 0; i < x->n; i++) {
		const struct dn *dn = x->dn[i];

		x->ip[i] = dn_index_ip(dn->ip);
		x->live += dn->alive;
		x->stale += dn->alive && dn->stale;
		x->racks += dn->alive && (!last || strcmp(last, dn->rack) != 0);
		last = dn->alive ? dn->rack : last;
	}
	find_unit_racks(x);
	x->good = true;
	return x;
}

uint64_t datanodes_pending_deletions(const struct datanodes *d)
{
	uint64_t n = 0;

	for (const struct dn *dn = d->table; dn; dn = dn->hh.next)
		n += dn->ninval;
	return n;
}

uint64_t datanodes_pending_units(const struct datanodes *d)
{
	uint64_t n = 0;

	for (const struct dn *dn = d->table; dn; dn = dn->hh.next)
		for (uint32_t i = 0; i < dn->ninval; i++)
			n += ec_id_is_striped(dn->inval[i].id);
	return n;
}

void dn_touch(struct dn *dn)
{
	dn->heard_ns = clock_mono_ns();
	dn->heard_ms = clock_wall_ms();
	dn->stale = false;
}

struct storage_ref storage_ref(const struct storage *st)
{
	return (struct storage_ref){st->dn->number, st->index};
}

struct storage *datanodes_storage_of(const struct datanodes *d, struct storage_ref ref)
{
	struct dn *dn;

	HASH_FIND(by_number, d->numbers, &ref.node, sizeof(ref.node), dn);
	return dn && ref.index < dn->nstorages ? dn->storage[ref.index] : NULL;
}

struct storage *datanodes_storage(const struct datanodes *d, struct storage_ref ref)
{
	struct storage *st = datanodes_storage_of(d, ref);

	return st && st->dn->alive ? st : NULL;
}

struct storage *dn_storage(const struct dn *dn, const char *id)
{
	for (uint32_t i = 0; i < dn->nstorages; i++)
		if (!strcmp(dn->storage[i]->id, id))
			return dn->storage[i];
	return NULL;
}

struct storage *dn_storage_add(struct dn *dn, const char *id, enum storage_type type)
{
	struct storage *st = dn_storage(dn, id);

	if (type < STORAGE_DISK || type > STORAGE_NVDIMM)
		type = STORAGE_DISK; /* a data node wrote it: any number */
	if (st) {
		st->type = type;
		return st;
	}
	if (!*id || strlen(id) >= sizeof(st->id) || dn->nstorages == DN_STORAGES_MAX)
		return NULL;
	st = xcalloc(1, sizeof(*st));
	list_init(&st->swept);
	snprintf(st->id, sizeof(st->id), "%s", id);
	st->index = dn->nstorages;
	st->dn = dn;
	st->type = type;
	dn->storage[dn->nstorages++] = st;
	return st;
}

void storage_promise(struct storage *st, uint64_t bytes)
{
	st->promised += bytes;
	st->promised_blocks++;
}

void storage_unpromise(struct storage *st, uint64_t bytes, uint64_t since_ns)
{
	if (since_ns < st->told_ns || !st->promised_blocks)
		return; /* the heartbeat took it away */
	st->promised -= bytes < st->promised ? bytes : st->promised;
	st->promised_blocks--;
}

#define SUM_STORAGES(name, field)                                                                  \
	uint64_t name(const struct dn *dn)                                                         \
	{                                                                                          \
		uint64_t sum = 0;                                                                  \
                                                                                                   \
		for (uint32_t i = 0; i < dn->nstorages; i++)                                       \
			sum += dn->storage[i]->failed ? 0 : dn->storage[i]->field;                 \
		return sum;                                                                        \
	}
SUM_STORAGES(dn_remaining, remaining)
SUM_STORAGES(dn_capacity, capacity)
SUM_STORAGES(dn_used, used)
SUM_STORAGES(dn_replicas, nblocks)

bool dn_has_reported(const struct dn *dn)
{
	for (uint32_t i = 0; i < dn->nstorages; i++)
		if (!dn->storage[i]->failed && !dn->storage[i]->reported)
			return false;
	return dn->report_ns;
}

bool dn_is_leaving(const struct dn *dn)
{
	return dn->admin == DN_DECOMMISSIONING || dn->admin == DN_ENTERING_MAINTENANCE;
}

const char *dn_admin_code(const struct dn *dn)
{
	static const char *const codes[] = {[DN_NORMAL] = "IN",
					    [DN_DECOMMISSIONING] = "DP",
					    [DN_DECOMMISSIONED] = "DD",
					    [DN_ENTERING_MAINTENANCE] = "EM",
					    [DN_IN_MAINTENANCE] = "IM"};

	return codes[dn->admin];
}

void dn_free_invalidates(struct dn *dn)
{
	free(dn->inval);
	dn->inval = NULL;
	dn->ninval = dn->inval_size = 0;
}

void dn_order_invalidate(struct dn *dn, int64_t id, uint64_t gs, bool no_ack)
{
	if (!dn->alive || (no_ack && dn->ninval >= UNKNOWN_MAX))
		return; /* its next full report shows the replica again */
	if (dn->ninval == dn->inval_size) {
		dn->inval_size = dn->inval_size ? 2 * dn->inval_size : 64;
		dn->inval = xrealloc(dn->inval, dn->inval_size * sizeof(*dn->inval));
	}
	dn->inval[dn->ninval++] = (struct invalidate){id, gs, no_ack};
}

void dn_order_transfer(struct dn *dn, const struct block *b, struct storage *target)
{
	struct transfer *t = xcalloc(1, sizeof(*t));

	t->b = *b;
	t->target = target;
	list_add_tail(&dn->transfers, &t->link);
}

void dn_order_recovery(struct dn *dn, int64_t block_id)
{
	struct recovery *r = xcalloc(1, sizeof(*r));

	r->block_id = block_id;
	list_add_tail(&dn->recoveries, &r->link);
}

void dn_order_rebuild(struct dn *dn, const struct rebuild *r)
{
	struct rebuild *copy = xcalloc(1, sizeof(*copy));

	*copy = *r;
	list_init(&copy->link);
	list_add_tail(&dn->rebuilds, &copy->link);
}

void ec_reconstruct_free(struct rebuild *r)
{
	free(r);
}

void transfer_free(struct transfer *t)
{
	free(t);
}

void recovery_free(struct recovery *r)
{
	free(r);
}

static bool names(const struct rebuild *r, const struct dn *dn)
{
	for (uint32_t i = 0; i < r->nsources; i++)
		if (r->source[i] == dn)
			return true;
	for (uint32_t i = 0; i < r->ntargets; i++)
		if (r->target[i]->dn == dn)
			return true;
	return false;
}

/* Those of @of that name @dn. */
static void drop_rebuilds(struct dn *of, const struct dn *dn, dn_dropped *dropped, void *arg)
{
	list_for_each (l, &of->rebuilds) {
		struct rebuild *r = container_of(l, struct rebuild, link);

		if (of != dn && !names(r, dn))
			continue;
		list_del(l);
		for (uint32_t i = 0; dropped && i < r->ntargets; i++)
			dropped(arg, r->b.id, r->target[i]);
		free(r);
	}
}

static void drop_transfers(struct dn *of, const struct dn *dn, dn_dropped *dropped, void *arg)
{
	list_for_each (l, &of->transfers) {
		struct transfer *t = container_of(l, struct transfer, link);

		if (of != dn && t->target->dn != dn)
			continue;
		list_del(l);
		if (dropped)
			dropped(arg, t->b.id, t->target);
		free(t);
	}
}

void dn_orders_drop(struct datanodes *d, struct dn *dn, dn_dropped *dropped, void *arg)
{
	for (struct dn *o = d->table; o; o = o->hh.next) {
		drop_rebuilds(o, dn, dropped, arg);
		drop_transfers(o, dn, dropped, arg);
	}
	orders_clear(dn);
}
