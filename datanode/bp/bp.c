/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/bp/bp_internal.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/erasure/geometry.h"
#include "common/wire/pb.h"
#include "datanode/data_port/data_port.h"

struct block_pool *dn_pool(struct dn *dn, const char *pool_id_text)
{
	return store_pool(dn->store, pool_id_text);
}

bool dn_has_disks(const struct dn *dn, uint32_t *ret_failed)
{
	const uint32_t failed = store_failed_count(dn->store);

	if (ret_failed)
		*ret_failed = failed;
	return store_volume_count(dn->store) - failed >= dn->disks_min;
}

/* ---- small helpers ---- */

int actor_call(struct bp_actor *a, const char *method, const ProtobufCMessage *req,
	       const ProtobufCMessageDescriptor *resp_desc, ProtobufCMessage **ret, struct err *err)
{
	return rpc_client_call(a->rpc, method, req, resp_desc, ret, err);
}

bool actor_stops(const struct bp_actor *a)
{
	return a->set->stop || a->stop;
}

void actor_wait_on_locked(struct bp_actor *a, pthread_cond_t *wake, uint64_t ms)
{
	struct timespec until;

	if (actor_stops(a))
		return;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(ms / 1000);
	until.tv_nsec += (long)(ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	(void)pthread_cond_timedwait(wake, &a->lock, &until);
}

void actor_wait_locked(struct bp_actor *a, uint64_t ms)
{
	actor_wait_on_locked(a, &a->wake, ms);
}

void actor_wake_locked(struct bp_actor *a)
{
	pthread_cond_broadcast(&a->wake);
	pthread_cond_signal(&a->report_wake);
}

int actor_client(struct bp_actor *a, struct rpc_client **place, const char *host, uint16_t port,
		 struct rpc_client_opts *o, struct err *err)
{
	struct rpc_client *rpc = NULL;
	int rc = net_resolve(host, port, &o->addr, err);

	o->user = a->user;
	rc = rc ? rc : rpc_client_conf(a->set->dn->conf, o, err);
	rc = rc ? rc : rpc_client_new(o, &rpc, err);
	if (rc)
		return rc;
	pthread_mutex_lock(&a->lock);
	*place = rpc; /* wake_to_stop() cancels it from now on */
	pthread_mutex_unlock(&a->lock);
	if (actor_stops(a))
		rpc_client_cancel(rpc);
	return 0;
}

void actor_set_state(struct bp_actor *a, enum actor_state state, const struct err *why)
{
	pthread_mutex_lock(&a->lock);
	a->state = state;
	if (why)
		a->why = *why;
	actor_wake_locked(a);
	pthread_mutex_unlock(&a->lock);
	pthread_mutex_lock(&a->set->lock);
	pthread_cond_broadcast(&a->set->changed);
	pthread_mutex_unlock(&a->set->lock);
}

void actor_command(struct bp_actor *a, ProtobufCMessage *answer, Hdd__DatanodeCommandProto **list,
		   size_t count)
{
	struct command *c = NULL;

	pthread_mutex_lock(&a->lock);
	for (size_t i = 0; i < count; i++)
		if (list[i]->cmdtype == HDD__DATANODE_COMMAND_PROTO__TYPE__RegisterCommand)
			a->reregister = a->beat_now = true;
	if (count && a->command_count < NN_COMMANDS_MAX)
		c = malloc(sizeof(*c));
	if (c) {
		*c = (struct command){.answer = answer, .list = list, .count = count};
		list_add_tail(&a->commands, &c->link);
		a->command_count++;
	}
	actor_wake_locked(a);
	pthread_mutex_unlock(&a->lock);
	if (c)
		return;
	if (count)
		log_warn(
			"op=command namenode=%s count=%zu: dropped, too many commands wait already",
			a->addr_text, count);
	pb_free(answer);
}

/* ---- the beat thread ---- */

static void *beat_thread(void *arg)
{
	struct bp_actor *a = arg;

	while (actor_register(a) && actor_beat_on(a))
		log_info("op=register namenode=%s: asked to register again", a->addr_text);
	return NULL;
}

/* ---- events of the store ---- */

static bool actor_serves(struct bp_actor *a, const struct block_pool *bp)
{
	bool serves;

	pthread_mutex_lock(&a->lock);
	serves = a->bp == bp && a->state != ACTOR_DEAD;
	pthread_mutex_unlock(&a->lock);
	return serves;
}

static void tell(struct bp_set *s, struct block_pool *bp, const char *storage_uuid,
		 const struct block *b, enum store_event ev, const char *hint)
{
	for (uint32_t i = 0; i < s->actor_count; i++)
		if (actor_serves(&s->actors[i], bp))
			report_on_block(&s->actors[i], storage_uuid, b, ev, hint);
}

/* An Apache NameNode that hears of the deletion of a unit forgets whatever unit of the group this
 * node has: an old one that goes when a new one was made here takes that one along, which is made
 * again and again then, and refused as it is there. */
static void tell_other_units(struct bp_set *s, struct block_pool *bp, int64_t deleted)
{
	for (unsigned u = 0; u < EC_UNITS_MAX; u++) {
		const int64_t id = ec_id_of(ec_id_group(deleted), u);
		struct replica_info info;

		if (id != deleted && replica_get(bp, id, &info) == 0 &&
		    info.state == REPLICA_FINALIZED)
			tell(s, bp, info.storage_uuid, &info.block, STORE_RECEIVED, NULL);
	}
}

static void on_block(void *arg, struct block_pool *bp, const char *storage_uuid,
		     const struct block *b, enum store_event ev, const char *hint)
{
	struct bp_set *s = arg;

	metric_add(METRIC_DN_BLOCKS_WRITTEN, ev == STORE_RECEIVED);
	metric_add(METRIC_DN_BLOCKS_REMOVED, ev == STORE_DELETED);
	cache_forget(s->cache, bp, b->id);
	if (ev == STORE_GONE)
		return;
	tell(s, bp, storage_uuid, b, ev, hint);
	if (ev == STORE_DELETED && ec_id_is_striped(b->id))
		tell_other_units(s, bp, b->id);
}

void bp_report_bad(struct bp_set *s, struct block_pool *bp, const char *storage_uuid,
		   const struct block *b)
{
	for (uint32_t i = 0; i < s->actor_count; i++)
		if (actor_serves(&s->actors[i], bp))
			report_on_bad(&s->actors[i], storage_uuid, b);
}

static void on_bad(void *arg, struct block_pool *bp, const char *storage_uuid,
		   const struct block *b)
{
	bp_report_bad(arg, bp, storage_uuid, b);
}

/* A heartbeat, and a full report. */
static void tell_volumes(struct bp_set *s)
{
	for (uint32_t i = 0; i < s->actor_count; i++) {
		struct bp_actor *a = &s->actors[i];

		pthread_mutex_lock(&a->lock);
		a->beat_now = true;
		a->full_due = true;
		actor_wake_locked(a);
		pthread_mutex_unlock(&a->lock);
	}
}

static void on_volume_back(void *arg, const char *path)
{
	(void)path;
	tell_volumes(arg);
}

/* Tell it at once: a heartbeat without the storage, an error, a full report of what is left. When
 * too little is left the NameNode need not wait for our silence to copy what we had. */
static void on_volume_failed(void *arg, uint32_t volume, const char *path, const char *reason)
{
	struct bp_set *s = arg;
	const uint32_t code =
		dn_has_disks(s->dn, NULL)
			? HDD__ERROR_REPORT_REQUEST_PROTO__ERROR_CODE__DISK_ERROR
			: HDD__ERROR_REPORT_REQUEST_PROTO__ERROR_CODE__FATAL_DISK_ERROR;
	char text[256];

	if (s->dn->xfer)
		data_port_volume_out(s->dn->xfer, volume);
	s->failed_ms = clock_wall_ms();
	(void)snprintf(text, sizeof(text), "data directory %.180s failed: %.40s", path, reason);
	for (uint32_t i = 0; i < s->actor_count; i++)
		report_on_error(&s->actors[i], code, text);
	tell_volumes(s);
}

/* "host:port" as an administrator writes it, and the actor's address. */
static bool is_at(const struct bp_actor *a, const char *text)
{
	struct net_addr x, y;
	char host[256], tx[NET_TEXT_MAX], ty[NET_TEXT_MAX];
	uint16_t port;

	if (!strcmp(a->addr_text, text))
		return true;
	if (net_split(text, 0, host, &port, NULL) || net_resolve(host, port, &x, NULL) ||
	    net_resolve(a->addr.host, a->addr.port, &y, NULL))
		return false;
	return !strcmp(net_text(&x, tx), net_text(&y, ty));
}

int bp_trigger_report(struct bp_set *s, bool incremental, const char *namenode, struct err *err)
{
	bool any = false;

	for (uint32_t i = 0; i < s->actor_count; i++) {
		struct bp_actor *a = &s->actors[i];

		if (a->stop || (namenode && namenode[0] && !is_at(a, namenode)))
			continue;
		any = true;
		pthread_mutex_lock(&a->lock);
		a->urgent = true;
		a->full_due = a->full_due || !incremental;
		actor_wake_locked(a);
		pthread_mutex_unlock(&a->lock);
	}
	return any ? 0 : err_set(err, -ENOENT, "this data node has no NameNode %.100s", namenode);
}

bool bp_serves_pool(struct bp_set *s, const char *pool)
{
	bool found = false;

	for (uint32_t i = 0; i < s->actor_count; i++) {
		struct bp_actor *a = &s->actors[i];

		pthread_mutex_lock(&a->lock);
		found = found || (!a->stop && a->has_ns && !strcmp(a->ns.pool_id, pool));
		pthread_mutex_unlock(&a->lock);
	}
	return found;
}

uint32_t bp_info(struct bp_set *s, struct bp_info *list, uint32_t max)
{
	uint64_t now = clock_mono_ns();
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->actor_count && n < max; i++) {
		struct bp_actor *a = &s->actors[i];
		struct bp_info *r = &list[n];

		if (a->stop)
			continue;
		*r = (struct bp_info){.active = actor_is_active(a), .lifelines = a->lifelines};
		memcpy(r->addr, a->addr_text, sizeof(r->addr));
		memcpy(r->host, a->addr.host, sizeof(r->host));
		pthread_mutex_lock(&a->lock);
		r->registered = a->state == ACTOR_REGISTERED;
		memcpy(r->pool_id, a->ns.pool_id, sizeof(r->pool_id));
		memcpy(r->cluster_id, a->ns.cluster_id, sizeof(r->cluster_id));
		r->last_report_s =
			a->last_full_ns ? clock_between(a->last_full_ns, now) / NS_PER_S : 0;
		r->reported = a->last_full_ns != 0;
		pthread_mutex_unlock(&a->lock);
		r->last_beat_s =
			a->last_beat_ns ? clock_between(a->last_beat_ns, now) / NS_PER_S : 0;
		n++;
	}
	return n;
}

void bp_cache_stats(struct bp_set *s, struct cache_stats *ret)
{
	cache_stats(s->cache, ret);
}

uint64_t bp_failed_ms(const struct bp_set *s)
{
	return s->failed_ms;
}

/* ---- start and end ---- */

static int start_threads(struct bp_actor *a, struct err *err)
{
	int rc = ret_code(pthread_create(&a->beat, NULL, beat_thread, a));

	a->started += !rc;
	if (!rc)
		rc = ret_code(pthread_create(&a->report, NULL, report_thread, a));
	a->started += !rc;
	if (!rc)
		rc = ret_code(pthread_create(&a->command, NULL, command_thread, a));
	a->started += !rc;
	if (!rc && a->addr.lifeline[0]) {
		rc = ret_code(pthread_create(&a->lifeline_thread, NULL, lifeline_thread, a));
		a->started += !rc;
	}
	return rc ? err_sys(err, rc, "cannot start the threads for NameNode %s", a->addr_text) : 0;
}

/* The actor counts, and runs. */
static int add_actor(struct bp_set *s, const struct nn_addr *addr, struct err *err)
{
	struct bp_actor *a = &s->actors[s->actor_count];
	struct passwd *pw = getpwuid(geteuid());

	a->set = s;
	a->addr = *addr;
	a->addr_text = a->addr.text;
	(void)snprintf(a->user, sizeof(a->user), "%s", pw ? pw->pw_name : "dfs");
	pthread_mutex_init(&a->lock, NULL);
	clock_cond_init(&a->wake);
	clock_cond_init(&a->report_wake);
	list_init(&a->bad);
	list_init(&a->errors);
	list_init(&a->commands);
	s->active_txid[s->actor_count] = -1;
	s->actor_count++;
	return start_threads(a, err);
}

int bp_check(const struct conf *conf, struct err *err)
{
	struct nn_addr addrs[NN_ACTORS_MAX];
	uint32_t n = 0;

	return nn_addrs(conf, addrs, NN_ACTORS_MAX, &n, err);
}

int bp_start(struct dn *dn, struct bp_set **ret, struct err *err)
{
	struct store_listener l = {on_block, on_bad, on_volume_failed, on_volume_back, NULL};
	struct nn_addr addrs[NN_ACTORS_MAX];
	struct bp_set *s = calloc(1, sizeof(*s));
	uint32_t n = 0;
	int rc = s ? 0 : err_sys(err, -ENOMEM, "nn");

	if (!rc)
		rc = nn_addrs(dn->conf, addrs, NN_ACTORS_MAX, &n, err);
	if (!rc)
		rc = cache_new(dn->conf, dn->hot, &s->cache, err);
	if (rc) {
		free(s);
		return rc;
	}
	s->dn = dn;
	l.arg = s;
	pthread_mutex_init(&s->lock, NULL);
	clock_cond_init(&s->changed);
	pthread_mutex_init(&s->jobs_lock, NULL);
	list_init(&s->jobs);
	list_init(&s->waiting);
	pthread_mutex_init(&s->refresh_lock, NULL);
	pthread_mutex_init(&s->attach_lock, NULL);
	store_set_listener(dn->store, &l);
	dn->nns = s;
	for (uint32_t i = 0; !rc && i < n; i++)
		rc = add_actor(s, &addrs[i], err);
	if (rc) {
		bp_stop(s);
		return rc;
	}
	*ret = s;
	return 0;
}

/* Its calls end with -ECANCELED. */
static void wake_to_stop(struct bp_actor *a)
{
	pthread_mutex_lock(&a->lock);
	actor_wake_locked(a);
	if (a->rpc)
		rpc_client_cancel(a->rpc);
	if (a->lifeline)
		rpc_client_cancel(a->lifeline);
	pthread_mutex_unlock(&a->lock);
}

static void join_threads(struct bp_actor *a)
{
	if (a->started > 0)
		pthread_join(a->beat, NULL);
	if (a->started > 1)
		pthread_join(a->report, NULL);
	if (a->started > 2)
		pthread_join(a->command, NULL);
	if (a->started > 3)
		pthread_join(a->lifeline_thread, NULL);
	a->started = 0;
}

/* ---- other NameNodes while we run ---- */

/* It is served no more; its place is not used again. */
static void retire_actor(struct bp_set *s, struct bp_actor *a)
{
	struct err gone = ERR_INIT;

	log_info("op=refresh namenode=%s: no longer configured, leaving it", a->addr_text);
	a->stop = true;
	wake_to_stop(a);
	join_threads(a);
	err_set(&gone, -ESHUTDOWN, "NameNode %s is no longer configured", a->addr_text);
	actor_set_state(a, ACTOR_DEAD, &gone);
	pthread_mutex_lock(&s->lock);
	for (uint32_t k = 0; k < s->actor_count; k++)
		if (s->active[k] == a)
			s->active[k] = NULL;
	pthread_mutex_unlock(&s->lock);
}

static bool is_listed(const struct bp_actor *a, const struct nn_addr *list, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (!strcmp(a->addr.text, list[i].text) &&
		    !strcmp(a->addr.service, list[i].service))
			return true;
	return false;
}

static int refresh_locked(struct bp_set *s, const struct conf *conf, struct err *err)
{
	struct nn_addr addrs[NN_ACTORS_MAX];
	uint32_t n = 0, before = s->actor_count;
	int rc = nn_addrs(conf, addrs, NN_ACTORS_MAX, &n, err);

	if (!rc && before + n > NN_ACTORS_MAX)
		rc = err_set(err, -ENOSPC,
			     "NameNodes changed too often for one run; start the data node "
			     "again");
	for (uint32_t i = 0; !rc && i < n; i++) {
		bool known = false;

		for (uint32_t k = 0; k < before; k++)
			known = known ||
				(!s->actors[k].stop && is_listed(&s->actors[k], &addrs[i], 1));
		if (known)
			continue;
		log_info("op=refresh namenode=%s: new", addrs[i].text);
		rc = add_actor(s, &addrs[i], err);
	}
	for (uint32_t k = 0; !rc && k < before; k++)
		if (!s->actors[k].stop && !is_listed(&s->actors[k], addrs, n))
			retire_actor(s, &s->actors[k]);
	return rc;
}

int bp_refresh(struct bp_set *s, const struct conf *conf, struct err *err)
{
	int rc;

	pthread_mutex_lock(&s->refresh_lock);
	rc = s->stop ? err_set(err, -ESHUTDOWN, "the data node is stopping")
		     : refresh_locked(s, conf, err);
	pthread_mutex_unlock(&s->refresh_lock);
	return rc;
}

/* 1: registered somewhere; 0: still trying; -errno: nobody will have us. */
static int outcome(struct bp_set *s, struct err *err)
{
	int dead = 0, retired = 0, rc = 0;

	for (uint32_t i = 0; i < s->actor_count; i++) {
		struct bp_actor *a = &s->actors[i];

		pthread_mutex_lock(&a->lock);
		if (a->state == ACTOR_REGISTERED)
			rc = 1;
		if (a->why.rc && err && !a->stop)
			*err = a->why;
		retired += a->stop;
		dead += a->state == ACTOR_DEAD && !a->stop;
		pthread_mutex_unlock(&a->lock);
	}
	if (dead && dead + retired == (int)s->actor_count)
		rc = err && err->rc ? err->rc : -EIO;
	return rc;
}

int bp_wait_registered(struct bp_set *s, uint32_t timeout_ms, struct err *err)
{
	uint64_t end = clock_mono_ns() + timeout_ms * NS_PER_MS;
	struct timespec until = {(time_t)(end / NS_PER_S), (long)(end % NS_PER_S)};
	int rc;

	for (;;) {
		rc = outcome(s, err);
		if (rc || clock_mono_ns() >= end)
			break;
		pthread_mutex_lock(&s->lock);
		(void)pthread_cond_timedwait(&s->changed, &s->lock, &until);
		pthread_mutex_unlock(&s->lock);
	}
	return rc > 0 ? 0 : rc ? rc : -ETIMEDOUT;
}

bool bp_is_dead(struct bp_set *s, struct err *err)
{
	return outcome(s, err) < 0;
}

static void free_actor(struct bp_actor *a)
{
	struct list *l;

	report_drop_pending(a);
	while ((l = list_pop(&a->bad))) {
		free(container_of(l, struct note, link)->node);
		free(container_of(l, struct note, link));
	}
	while ((l = list_pop(&a->errors)))
		free(container_of(l, struct note, link));
	while ((l = list_pop(&a->commands))) {
		struct command *c = container_of(l, struct command, link);

		pb_free(c->answer);
		free(c);
	}
	rpc_client_free(a->rpc);
	rpc_client_free(a->lifeline);
	pthread_cond_destroy(&a->wake);
	pthread_cond_destroy(&a->report_wake);
	pthread_mutex_destroy(&a->lock);
}

void bp_stop(struct bp_set *s)
{
	if (!s)
		return;
	s->stop = true;
	store_set_listener(s->dn->store, NULL);
	pthread_mutex_lock(&s->refresh_lock); /* no thread is added any more */
	pthread_mutex_unlock(&s->refresh_lock);
	for (uint32_t i = 0; i < s->actor_count; i++)
		wake_to_stop(&s->actors[i]);
	for (uint32_t i = 0; i < s->actor_count; i++)
		join_threads(&s->actors[i]);
	recovery_join(s);
	for (uint32_t i = 0; i < s->actor_count; i++)
		free_actor(&s->actors[i]);
	cache_free(s->cache);
	s->dn->nns = NULL;
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->attach_lock);
	pthread_mutex_destroy(&s->refresh_lock);
	pthread_mutex_destroy(&s->jobs_lock);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
