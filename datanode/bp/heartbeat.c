/* SPDX-License-Identifier: Apache-2.0 */
/* Heartbeats: what a NameNode hears every few seconds, what it answers, and the lifeline beside it.
 */
#include "datanode/bp/bp_internal.h"

#include <inttypes.h>
#include <string.h>

#include "DatanodeLifelineProtocol.pb-c.h"
#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"
#include "datanode/admin/outliers.h"

#define FAILED_MAX 64     /* volumes named in a heartbeat */
#define LIFELINE_FACTOR 3 /* heartbeats missed before a lifeline is sent, unless configured */
#define NN_LIFELINE_PORT 8050

/* ---- who leads ---- */

/* One that was left and is configured again (bp_refresh()) is the one that led. */
static bool is_same_namenode(const struct bp_actor *a, const struct bp_actor *leader)
{
	return leader && leader->stop && !strcmp(a->addr_text, leader->addr_text);
}

/* Which NameNode of the pool leads (hdfs-wire 3.7): the one that claims ACTIVE with a transaction
 * newer than any other one's claim. */
static void note_ha_state(struct bp_actor *a, const Hd__NNHAStatusHeartbeatProto *ha)
{
	struct bp_set *s = a->set;
	bool claims = ha->state == HD__NNHASTATUS_HEARTBEAT_PROTO__STATE__ACTIVE;
	int64_t txid = (int64_t)ha->txid;
	uint32_t k = 0;

	pthread_mutex_lock(&s->lock);
	while (k < s->actor_count && s->actors[k].bp != a->bp)
		k++;
	if (k == s->actor_count) {
		pthread_mutex_unlock(&s->lock);
		return;
	}
	if (claims && s->active[k] != a) {
		if (txid > s->active_txid[k] ||
		    (txid == s->active_txid[k] && is_same_namenode(a, s->leader[k]))) {
			log_info("op=active namenode=%s pool=%s txid=%" PRId64 "%s%s", a->addr_text,
				 a->ns.pool_id, txid, s->active[k] ? " before=" : "",
				 s->active[k] ? s->active[k]->addr_text : "");
			s->active[k] = s->leader[k] = a;
		} else if (log_rate_ok(&a->stale_claim, NN_UNREACHABLE_LOG_MS, NULL)) {
			log_warn("op=active namenode=%s pool=%s txid=%" PRId64
				 ": claims to lead, but "
				 "%s did with transaction %" PRId64 ": not obeyed",
				 a->addr_text, a->ns.pool_id, txid,
				 s->active[k] ? s->active[k]->addr_text : "another one",
				 s->active_txid[k]);
		}
	}
	if (claims && s->active[k] == a)
		s->active_txid[k] = txid;
	if (!claims && s->active[k] == a) {
		log_info("op=active namenode=%s pool=%s: no longer leads", a->addr_text,
			 a->ns.pool_id);
		s->active[k] = NULL;
	}
	pthread_mutex_unlock(&s->lock);
}

bool actor_is_active(struct bp_actor *a)
{
	struct bp_set *s = a->set;
	bool active = false;

	pthread_mutex_lock(&s->lock);
	for (uint32_t k = 0; k < s->actor_count; k++)
		active = active || s->active[k] == a;
	pthread_mutex_unlock(&s->lock);
	return active;
}

/* ---- the message ---- */

struct beat_msg { /* everything a HeartbeatRequestProto points at */
	Hdd__HeartbeatRequestProto req;
	struct reg_msg reg;
	struct storage_msg *storages;
	Hd__StorageReportProto **reports;
	Hdd__VolumeFailureSummaryProto failures;
	char *failed_paths[FAILED_MAX];
	struct storage_info failed[FAILED_MAX];
	struct outlier slow[NN_SLOW_MAX];
	Hdd__SlowPeerReportProto peers[NN_SLOW_MAX], *peer_list[NN_SLOW_MAX];
	Hdd__SlowDiskReportProto disks[NN_SLOW_MAX], *disk_list[NN_SLOW_MAX];
};

/* Volumes that failed, since the start or at it. */
static void fill_failures(struct bp_set *s, struct beat_msg *m)
{
	struct store *store = s->dn->store;
	uint64_t lost = 0;
	size_t n = 0;

	hdd__volume_failure_summary_proto__init(&m->failures);
	for (uint32_t i = 0; i < store_volume_count(store) && n < FAILED_MAX; i++) {
		store_volume_info(store, i, NULL, &m->failed[n]);
		m->failed_paths[n] = m->failed[n].path;
		if (m->failed[n].failed)
			lost += m->failed[n++].capacity;
	}
	m->failures.failedstoragelocations = m->failed_paths;
	m->failures.n_failedstoragelocations = n;
	m->failures.lastvolumefailuredate = s->failed_ms;
	m->failures.estimatedcapacitylosttotal = lost;
	m->req.has_failedvolumes = true;
	m->req.failedvolumes = (uint32_t)n;
	if (n)
		m->req.volumefailuresummary = &m->failures;
}

static void fill_slow_peers(struct dn *dn, struct beat_msg *m)
{
	struct outlier_limits l = {dn->live.peer_samples_min, dn->live.peers_min,
				   dn->live.peer_low_ms};
	size_t n = outliers_find(dn->outliers, OUTLIER_PEER, &l, m->slow, NN_SLOW_MAX);

	for (size_t i = 0; i < n; i++) {
		hdd__slow_peer_report_proto__init(&m->peers[i]);
		m->peers[i].datanodeid = m->slow[i].name;
		m->peers[i].has_aggregatelatency = m->peers[i].has_median = true;
		m->peers[i].has_mad = m->peers[i].has_upperlimitlatency = true;
		m->peers[i].aggregatelatency = m->slow[i].mean_ms;
		m->peers[i].median = m->slow[i].median_ms;
		m->peers[i].mad = m->slow[i].mad_ms;
		m->peers[i].upperlimitlatency = m->slow[i].limit_ms;
		m->peer_list[i] = &m->peers[i];
		log_info("op=slow-peer peer=%s mean_ms=%.1f limit_ms=%.1f", m->slow[i].name,
			 m->slow[i].mean_ms, m->slow[i].limit_ms);
	}
	m->req.n_slowpeers = n;
	m->req.slowpeers = m->peer_list;
}

/* The directory of a storage id; unknown ids stand for themselves. */
static const char *directory_of(const struct beat_msg *m, const char *uuid)
{
	for (size_t i = 0; i < m->req.n_reports; i++)
		if (!strcmp(m->reports[i]->storageuuid, uuid))
			return container_of(m->reports[i], struct storage_msg, report)->info.path;
	return uuid;
}

/* The report of a directory, made if it is the first word about it; NULL: no room. */
static Hdd__SlowDiskReportProto *slow_disk(struct beat_msg *m, const char *name)
{
	size_t n = m->req.n_slowdisks;
	char *copy;

	for (size_t i = 0; i < n; i++)
		if (!strcmp(m->disks[i].basepath, name))
			return &m->disks[i];
	copy = n < NN_SLOW_MAX ? strdup(name) : NULL;
	if (!copy)
		return NULL;
	hdd__slow_disk_report_proto__init(&m->disks[n]);
	m->disks[n].basepath = copy;
	m->disk_list[n] = &m->disks[n];
	m->req.n_slowdisks++;
	return &m->disks[n];
}

static void fill_slow_disks(struct dn *dn, struct beat_msg *m)
{
	static const enum outlier_kind kinds[] = {OUTLIER_DISK_META, OUTLIER_DISK_READ,
						  OUTLIER_DISK_WRITE};
	struct outlier_limits l = {1, dn->live.disks_min, dn->live.disk_low_ms};
	struct outlier found[NN_SLOW_MAX];

	for (int k = 0; k < 3; k++) {
		size_t n = outliers_find(dn->outliers, kinds[k], &l, found, NN_SLOW_MAX);

		for (size_t i = 0; i < n; i++) {
			Hdd__SlowDiskReportProto *d = slow_disk(m, directory_of(m, found[i].name));

			if (!d)
				continue;
			d->has_meanmetadataoplatency |= k == 0;
			d->has_meanreadiolatency |= k == 1;
			d->has_meanwriteiolatency |= k == 2;
			*(k == 0   ? &d->meanmetadataoplatency
			  : k == 1 ? &d->meanreadiolatency
				   : &d->meanwriteiolatency) = found[i].mean_ms;
		}
	}
	m->req.slowdisks = m->disk_list;
	for (size_t i = 0; i < m->req.n_slowdisks; i++)
		log_info("op=slow-disk directory=%s", m->disks[i].basepath);
}

/* Every dfs.datanode.outliers.report.interval, as far as anything is measured. */
static void fill_slow(struct bp_actor *a, struct beat_msg *m)
{
	struct dn *dn = a->set->dn;
	uint64_t now = clock_mono_ns();

	if ((!dn->live.peer_stats && !dn->live.io_sampling_percent) || now < a->next_slow_ns)
		return;
	a->next_slow_ns = now + dn->live.outliers_ms * NS_PER_MS;
	if (dn->live.peer_stats)
		fill_slow_peers(dn, m);
	if (dn->live.io_sampling_percent)
		fill_slow_disks(dn, m);
}

static void msg_free(struct beat_msg *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < m->req.n_slowdisks; i++)
		free(m->disks[i].basepath);
	free(m->storages);
	free(m->reports);
	free(m);
}

/* What a heartbeat and a lifeline have in common; NULL: out of memory. */
static struct beat_msg *msg_new(struct bp_actor *a)
{
	struct dn *dn = a->set->dn;
	uint32_t volumes = store_volume_count(dn->store);
	struct beat_msg *m = calloc(1, sizeof(*m));
	struct cache_stats cs;

	if (!m)
		return NULL;
	hdd__heartbeat_request_proto__init(&m->req);
	m->storages = calloc(volumes, sizeof(*m->storages));
	m->reports = calloc(volumes, sizeof(*m->reports));
	if (!m->storages || !m->reports) {
		msg_free(m);
		return NULL;
	}
	reg_msg_fill(&m->reg, a);
	m->req.registration = &m->reg.reg;
	m->req.reports = m->reports;
	for (uint32_t i = 0; i < volumes; i++)
		if (storage_msg_fill(&m->storages[i], dn, i, a->bp))
			m->reports[m->req.n_reports++] = &m->storages[i].report;
	fill_failures(a->set, m);
	m->req.has_xmitsinprogress = m->req.has_xceivercount = true;
	m->req.xmitsinprogress = dn->transfers + dn->ec_xmits;
	m->req.xceivercount = dn->xceivers;
	cache_stats(a->set->cache, &cs);
	m->req.has_cachecapacity = m->req.has_cacheused = true;
	m->req.cachecapacity = cs.capacity;
	m->req.cacheused = cs.used;
	return m;
}

/* ---- the answer ---- */

/* While a rolling upgrade is in progress, blocks deleted go to the trash: a rollback wants them. */
static void note_upgrade(struct bp_actor *a, const Hdd__HeartbeatResponseProto *r)
{
	const Hd__RollingUpgradeStatusProto *u =
		r->rollingupgradestatusv2 ? r->rollingupgradestatusv2 : r->rollingupgradestatus;
	bool on;

	if (!u || !actor_is_active(a) || strcmp(u->blockpoolid, pool_id(a->bp)))
		return;
	on = !(u->has_finalized && u->finalized);
	if (on != a->upgrading)
		log_info("op=rolling-upgrade pool=%s: %s", pool_id(a->bp),
			 on ? "in progress: deleted blocks go to the trash"
			    : "finalised: the trash is emptied");
	a->upgrading = on;
	store_set_trash(a->bp, on);
}

static void take_answer(struct bp_actor *a, Hdd__HeartbeatResponseProto *r)
{
	note_ha_state(a, r->hastatus);
	note_upgrade(a, r);
	pthread_mutex_lock(&a->lock);
	if (r->has_fullblockreportleaseid && r->fullblockreportleaseid && a->want_lease) {
		a->lease = r->fullblockreportleaseid;
		a->want_lease = false;
		actor_wake_locked(a);
	}
	pthread_mutex_unlock(&a->lock);
	actor_command(a, &r->base, r->cmds, r->n_cmds);
}

static int beat(struct bp_actor *a, struct err *err)
{
	struct beat_msg *m = msg_new(a);
	ProtobufCMessage *answer = NULL;
	int rc;

	if (!m)
		return err_sys(err, -ENOMEM, "heartbeat");
	m->req.has_requestfullblockreportlease = true;
	pthread_mutex_lock(&a->lock);
	m->req.requestfullblockreportlease = a->want_lease;
	pthread_mutex_unlock(&a->lock);
	fill_slow(a, m);
	rc = actor_call(a, "sendHeartbeat", &m->req.base,
			&hdd__heartbeat_response_proto__descriptor, &answer, err);
	if (!rc) {
		a->last_beat_ns = clock_mono_ns();
		metric_add(METRIC_DN_HEARTBEATS, 1);
		take_answer(a, (Hdd__HeartbeatResponseProto *)answer);
	}
	msg_free(m);
	return rc;
}

bool actor_beat_on(struct bp_actor *a)
{
	uint64_t next = clock_mono_ns();
	struct trouble trouble = {0};

	while (!actor_stops(a)) {
		struct err err = ERR_INIT;
		bool again;
		int rc = beat(a, &err);

		if (rc && actor_explain(a, &err)) {
			actor_give_up(a, "heartbeat", &err);
			return false;
		}
		if (rc && !actor_stops(a))
			actor_log_trouble(a, &trouble, &err);
		if (!rc && trouble.since_ns) {
			log_info("op=heartbeat namenode=%s away_s=%" PRIu64 ": it answers again",
				 a->addr_text,
				 (uint64_t)((clock_mono_ns() - trouble.since_ns) / NS_PER_S));
			trouble = (struct trouble){0};
		}
		next += a->set->dn->live.beat_ms * NS_PER_MS;
		if (next < clock_mono_ns())
			next = clock_mono_ns() + (rc ? NN_RETRY_MS * NS_PER_MS : 0);
		pthread_mutex_lock(&a->lock);
		while (!actor_stops(a) && !a->beat_now && clock_mono_ns() < next)
			actor_wait_locked(a, (next - clock_mono_ns()) / NS_PER_MS + 1);
		a->beat_now = false;
		again = a->reregister;
		pthread_mutex_unlock(&a->lock);
		if (again)
			return true;
	}
	return false;
}

/* ---- the lifeline: a small message on a port of its own, so that a NameNode too busy to answer
 * heartbeats does not count us dead (hdfs-wire 3.7) ---- */

static int lifeline_client(struct bp_actor *a, struct err *err)
{
	struct rpc_client_opts o = {.protocol = RPC_PROTO_LIFELINE,
				    .addr_text = a->addr.lifeline,
				    .addr_key = "dfs.namenode.lifeline.rpc-address"};
	char host[256];
	uint16_t port;
	int rc;

	if (a->lifeline)
		return 0;
	rc = net_split(a->addr.lifeline, NN_LIFELINE_PORT, host, &port, err);
	return rc ? rc : actor_client(a, &a->lifeline, host, port, &o, err);
}

static int send_lifeline(struct bp_actor *a, struct err *err)
{
	int rc = lifeline_client(a, err);
	struct beat_msg *m = rc ? NULL : msg_new(a);

	if (!rc && !m)
		rc = err_sys(err, -ENOMEM, "lifeline");
	if (!rc)
		rc = rpc_client_call(a->lifeline, "sendLifeline", &m->req.base,
				     &hdl__lifeline_response_proto__descriptor, NULL, err);
	msg_free(m);
	return rc;
}

/* After which silence a lifeline is due. */
static uint64_t lifeline_ms(struct bp_actor *a)
{
	struct dn *dn = a->set->dn;
	uint64_t ms = LIFELINE_FACTOR * dn->live.beat_ms;

	uint64_t s = 0;

	(void)conf_u64(dn->conf, "dfs.datanode.lifeline.interval.seconds", 0, &s, NULL);
	return s && s <= UINT32_MAX ? s * 1000 : ms;
}

void *lifeline_thread(void *arg)
{
	struct bp_actor *a = arg;
	struct trouble trouble = {0};

	while (!actor_stops(a)) {
		uint64_t due_ms = lifeline_ms(a);
		struct err err = ERR_INIT;
		bool ready;
		int rc;

		pthread_mutex_lock(&a->lock);
		actor_wait_locked(a, due_ms / LIFELINE_FACTOR + 1);
		ready = a->state == ACTOR_REGISTERED;
		pthread_mutex_unlock(&a->lock);
		if (!ready || actor_stops(a) ||
		    clock_mono_ns() - a->last_beat_ns < due_ms * NS_PER_MS ||
		    clock_mono_ns() - a->last_lifeline_ns < due_ms * NS_PER_MS)
			continue;
		a->last_lifeline_ns = clock_mono_ns();
		rc = send_lifeline(a, &err);
		if (rc && !actor_stops(a))
			actor_log_trouble(a, &trouble, &err);
		if (rc)
			continue;
		trouble = (struct trouble){0};
		if (!a->lifelines++)
			log_info(
				"op=lifeline namenode=%s: heartbeats do not get through, sending lifelines",
				a->addr.lifeline);
		metric_add(METRIC_DN_LIFELINES, 1);
	}
	return NULL;
}
