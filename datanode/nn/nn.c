/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/nn/nn_internal.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"

#define FAILED_MAX 64 /* volumes named in a heartbeat */

struct block_pool *dn_pool(struct dn *dn, const char *pool_id_text)
{
	return store_pool(dn->store, pool_id_text);
}

/* ---- small helpers ---- */

int actor_call(struct nn_actor *a, const char *method, const ProtobufCMessage *req,
	       const ProtobufCMessageDescriptor *resp_desc, ProtobufCMessage **ret, struct err *err)
{
	return rpc_client_call(a->rpc, method, req, resp_desc, ret, err);
}

void actor_wait_locked(struct nn_actor *a, uint64_t ms)
{
	struct timespec until;

	if (a->set->stop)
		return;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(ms / 1000);
	until.tv_nsec += (long)(ms % 1000) * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	(void)pthread_cond_timedwait(&a->wake, &a->lock, &until);
}

static void actor_sleep(struct nn_actor *a, uint64_t ms)
{
	uint64_t end = clock_mono_ns() + ms * NS_PER_MS, now;

	pthread_mutex_lock(&a->lock);
	while (!a->set->stop && (now = clock_mono_ns()) < end)
		actor_wait_locked(a, (end - now) / NS_PER_MS + 1);
	pthread_mutex_unlock(&a->lock);
}

static void set_state(struct nn_actor *a, enum actor_state state, const struct err *why)
{
	pthread_mutex_lock(&a->lock);
	a->state = state;
	if (why)
		a->why = *why;
	pthread_cond_broadcast(&a->wake);
	pthread_mutex_unlock(&a->lock);
	pthread_mutex_lock(&a->set->lock);
	pthread_cond_broadcast(&a->set->changed);
	pthread_mutex_unlock(&a->set->lock);
}

/* Exceptions after which this NameNode is left alone (hdfs-wire 1.5). */
static bool is_fatal(const struct err *err)
{
	return !strcmp(err->remote, JEX_UNREGISTERED_NODE) ||
	       !strcmp(err->remote, JEX_DISALLOWED_NODE) ||
	       !strcmp(err->remote, JEX_INCORRECT_VERSION);
}

void actor_command(struct nn_actor *a, ProtobufCMessage *answer, Hdd__DatanodeCommandProto **list,
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
	pthread_cond_broadcast(&a->wake);
	pthread_mutex_unlock(&a->lock);
	if (c)
		return;
	if (count)
		log_warn("op=command namenode=%s: too many wait, dropping %zu", a->addr_text, count);
	pb_free(answer);
}

/* ---- registration ---- */

/* The address by which we reach the NameNode, when the data port listens on every one. */
static void find_my_ip(struct nn_actor *a, char *buf, size_t size)
{
	char text[NET_TEXT_MAX];
	struct net_addr to, from = {.len = sizeof(from.sa)};
	int fd;

	(void)snprintf(buf, size, "%s", net_ip(&a->set->dn->data_addr, text));
	if (strcmp(buf, "0.0.0.0") && strcmp(buf, "::"))
		return;
	(void)snprintf(buf, size, "127.0.0.1");
	if (net_resolve(a->host, a->port, &to, NULL))
		return;
	fd = socket(to.sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (!connect(fd, (struct sockaddr *)&to.sa, to.len) &&
	    !getsockname(fd, (struct sockaddr *)&from.sa, &from.len))
		(void)snprintf(buf, size, "%s", net_ip(&from, text));
	(void)close(fd);
}

static bool copy_text(char *buf, size_t size, const char *text)
{
	return (size_t)snprintf(buf, size, "%s", text) < size;
}

static int take_namespace(struct nn_actor *a, const Hd__NamespaceInfoProto *info, struct err *err)
{
	struct store_namespace ns = {.namespace_id = info->storageinfo->namespceid,
				     .ctime = info->storageinfo->ctime};
	struct block_pool *bp;
	char ip[64];
	int rc;

	if (!copy_text(ns.pool_id, sizeof(ns.pool_id), info->blockpoolid) ||
	    !copy_text(ns.cluster_id, sizeof(ns.cluster_id), info->storageinfo->clusterid))
		return err_set(err, -EPROTO, "NameNode %s: block pool or cluster id is too long",
			       a->addr_text);
	rc = store_attach(a->set->dn->store, &ns, &bp, err);
	if (rc)
		return rc;
	find_my_ip(a, ip, sizeof(ip));
	pthread_mutex_lock(&a->lock);
	a->bp = bp;
	a->ns = ns;
	a->capabilities = info->capabilities;
	(void)copy_text(a->software_version, sizeof(a->software_version), info->softwareversion);
	(void)copy_text(a->my_ip, sizeof(a->my_ip), ip);
	pthread_mutex_unlock(&a->lock);
	return 0;
}

static int ask_version(struct nn_actor *a, struct err *err, bool *ret_fatal)
{
	Hd__VersionRequestProto req = HD__VERSION_REQUEST_PROTO__INIT;
	ProtobufCMessage *answer = NULL;
	int rc = actor_call(a, "versionRequest", &req.base, &hd__version_response_proto__descriptor,
			    &answer, err);

	if (rc) {
		*ret_fatal = is_fatal(err);
		return rc;
	}
	rc = take_namespace(a, ((Hd__VersionResponseProto *)answer)->info, err);
	/* Directories of another cluster stay such; trying again changes nothing. */
	*ret_fatal = rc == -EINVAL;
	pb_free(answer);
	return rc;
}

static int do_register(struct nn_actor *a, struct err *err, bool *ret_fatal)
{
	Hdd__RegisterDatanodeRequestProto req = HDD__REGISTER_DATANODE_REQUEST_PROTO__INIT;
	ProtobufCMessage *answer = NULL;
	const char *uuid;
	struct reg_msg reg;
	int rc;

	reg_msg_fill(&reg, a);
	req.registration = &reg.reg;
	rc = actor_call(a, "registerDatanode", &req.base,
			&hdd__register_datanode_response_proto__descriptor, &answer, err);
	*ret_fatal = rc && is_fatal(err);
	if (rc)
		return rc;
	uuid = ((Hdd__RegisterDatanodeResponseProto *)answer)->registration->datanodeid->datanodeuuid;
	if (strcmp(uuid, store_datanode_uuid(a->set->dn->store))) {
		*ret_fatal = true;
		rc = err_set(err, -EPROTO, "NameNode %s registered us as %.64s, we are %s",
			     a->addr_text, uuid, store_datanode_uuid(a->set->dn->store));
	}
	pb_free(answer);
	return rc;
}

static int make_client(struct nn_actor *a, struct err *err)
{
	struct rpc_client_opts o = {.protocol = RPC_PROTO_DATANODE, .user = a->user,
				    .addr_text = a->addr_text};
	struct rpc_client *rpc = NULL;
	int rc;

	if (a->rpc)
		return 0;
	rc = net_resolve(a->host, a->port, &o.addr, err);
	if (!rc)
		rc = rpc_client_conf(a->set->dn->conf, &o, err);
	if (!rc)
		rc = rpc_client_new(&o, &rpc, err);
	if (rc)
		return rc;
	pthread_mutex_lock(&a->lock);
	a->rpc = rpc; /* nn_stop() cancels it from now on */
	pthread_mutex_unlock(&a->lock);
	if (a->set->stop)
		rpc_client_cancel(rpc);
	return 0;
}

/* Once at the start of a trouble, then once a minute. */
static void log_trouble(struct nn_actor *a, struct log_rate *rate, uint64_t since_ns,
			const struct err *err)
{
	if (log_rate_ok(rate, NN_UNREACHABLE_LOG_MS, NULL))
		log_warn("op=namenode namenode=%s for_s=%" PRIu64 ": retrying: %s", a->addr_text,
			 (uint64_t)((clock_mono_ns() - since_ns) / NS_PER_S), err->text);
}

/* Until registered; false at the end of the process or when this NameNode is out of question. */
static bool connect_and_register(struct nn_actor *a)
{
	uint64_t since = clock_mono_ns();
	struct log_rate rate = {0};

	while (!a->set->stop) {
		struct err err = ERR_INIT;
		bool fatal = false, versioned;
		int rc = make_client(a, &err);

		if (!rc)
			rc = ask_version(a, &err, &fatal);
		versioned = !rc;
		if (!rc)
			rc = do_register(a, &err, &fatal);
		if (!rc) {
			pthread_mutex_lock(&a->lock);
			a->reregister = false;
			a->want_lease = true;
			a->lease = 0;
			pthread_mutex_unlock(&a->lock);
			set_state(a, ACTOR_REGISTERED, NULL);
			log_info("op=register namenode=%s pool=%s uuid=%s", a->addr_text, a->ns.pool_id,
				 store_datanode_uuid(a->set->dn->store));
			return true;
		}
		if (a->set->stop)
			break;
		if (fatal) {
			log_error("op=register namenode=%s: giving it up: %s", a->addr_text, err.text);
			set_state(a, ACTOR_DEAD, &err);
			return false;
		}
		log_trouble(a, &rate, since, &err);
		set_state(a, ACTOR_CONNECTING, &err);
		/* Nobody there yet: soon again. One who answers that he is not ready: later. */
		actor_sleep(a, versioned || !err.remote[0] ? NN_RETRY_MS : NN_VERSION_RETRY_MS);
	}
	return false;
}

/* ---- heartbeats ---- */

/* Which NameNode of the pool leads (hdfs-wire 3.7): the one that claims ACTIVE with a transaction
 * newer than any other one's claim. */
static void note_ha_state(struct nn_actor *a, const Hd__NNHAStatusHeartbeatProto *ha)
{
	struct nn_set *s = a->set;
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
	if (claims && s->active[k] != a && txid > s->active_txid[k]) {
		if (s->active[k])
			log_info("op=failover namenode=%s txid=%" PRId64, a->addr_text, txid);
		s->active[k] = a;
	}
	if (claims && s->active[k] == a)
		s->active_txid[k] = txid;
	if (!claims && s->active[k] == a)
		s->active[k] = NULL;
	pthread_mutex_unlock(&s->lock);
}

bool actor_is_active(struct nn_actor *a)
{
	struct nn_set *s = a->set;
	bool active = false;

	pthread_mutex_lock(&s->lock);
	for (uint32_t k = 0; k < s->actor_count; k++)
		active = active || s->active[k] == a;
	pthread_mutex_unlock(&s->lock);
	return active;
}

struct failures { /* volumeFailureSummary */
	Hdd__VolumeFailureSummaryProto p;
	char *paths[FAILED_MAX];
	struct storage_info info[FAILED_MAX];
};

/* Volumes that failed, since the start or at it. */
static void fill_failures(struct nn_set *s, struct failures *f, Hdd__HeartbeatRequestProto *req)
{
	struct store *store = s->dn->store;
	size_t n = 0;

	hdd__volume_failure_summary_proto__init(&f->p);
	for (uint32_t i = 0; i < store_volume_count(store) && n < FAILED_MAX; i++) {
		store_volume_info(store, i, NULL, &f->info[n]);
		f->paths[n] = f->info[n].path;
		n += f->info[n].failed;
	}
	f->p.failedstoragelocations = f->paths;
	f->p.n_failedstoragelocations = n;
	f->p.lastvolumefailuredate = s->failed_ms;
	req->has_failedvolumes = true;
	req->failedvolumes = (uint32_t)n;
	if (n)
		req->volumefailuresummary = &f->p;
}

static void take_beat_answer(struct nn_actor *a, Hdd__HeartbeatResponseProto *r)
{
	note_ha_state(a, r->hastatus);
	pthread_mutex_lock(&a->lock);
	if (r->has_fullblockreportleaseid && r->fullblockreportleaseid && a->want_lease) {
		a->lease = r->fullblockreportleaseid;
		a->want_lease = false;
		pthread_cond_broadcast(&a->wake);
	}
	pthread_mutex_unlock(&a->lock);
	actor_command(a, &r->base, r->cmds, r->n_cmds);
}

static int beat(struct nn_actor *a, struct err *err)
{
	struct dn *dn = a->set->dn;
	Hdd__HeartbeatRequestProto req = HDD__HEARTBEAT_REQUEST_PROTO__INIT;
	uint32_t volumes = store_volume_count(dn->store);
	struct storage_msg *storages = calloc(volumes, sizeof(*storages));
	Hd__StorageReportProto **list = calloc(volumes, sizeof(*list));
	struct failures *failures = calloc(1, sizeof(*failures));
	ProtobufCMessage *answer = NULL;
	struct reg_msg reg;
	int rc = storages && list && failures ? 0 : err_sys(err, -ENOMEM, "heartbeat");

	if (!rc) {
		reg_msg_fill(&reg, a);
		req.registration = &reg.reg;
		req.reports = list;
		for (uint32_t i = 0; i < volumes; i++)
			if (storage_msg_fill(&storages[i], dn, i, a->bp))
				list[req.n_reports++] = &storages[i].report;
		fill_failures(a->set, failures, &req);
		req.has_xmitsinprogress = req.has_xceivercount = true;
		req.xmitsinprogress = dn->transfers;
		req.xceivercount = dn->xceivers + 1;
		req.has_requestfullblockreportlease = true;
		pthread_mutex_lock(&a->lock);
		req.requestfullblockreportlease = a->want_lease;
		pthread_mutex_unlock(&a->lock);
		rc = actor_call(a, "sendHeartbeat", &req.base,
				&hdd__heartbeat_response_proto__descriptor, &answer, err);
	}
	if (!rc)
		take_beat_answer(a, (Hdd__HeartbeatResponseProto *)answer);
	free(storages);
	free(list);
	free(failures);
	return rc;
}

/* Beats until told to register anew (true), or the end (false). */
static bool beat_on(struct nn_actor *a)
{
	struct dn *dn = a->set->dn;
	uint64_t since = 0, next = clock_mono_ns();
	struct log_rate rate = {0};

	while (!a->set->stop) {
		struct err err = ERR_INIT;
		bool again;
		int rc = beat(a, &err);

		if (rc && is_fatal(&err)) {
			log_error("op=heartbeat namenode=%s: giving it up: %s", a->addr_text, err.text);
			set_state(a, ACTOR_DEAD, &err);
			return false;
		}
		if (rc && !since)
			since = clock_mono_ns();
		if (rc && !a->set->stop)
			log_trouble(a, &rate, since, &err);
		if (!rc && since) {
			log_info("op=heartbeat namenode=%s away_s=%" PRIu64 ": it answers again",
				 a->addr_text, (uint64_t)((clock_mono_ns() - since) / NS_PER_S));
			since = 0;
			rate = (struct log_rate){0};
		}
		next += dn->live.beat_ms * NS_PER_MS;
		if (next < clock_mono_ns())
			next = clock_mono_ns() + (rc ? NN_RETRY_MS * NS_PER_MS : 0);
		pthread_mutex_lock(&a->lock);
		while (!a->set->stop && !a->beat_now && clock_mono_ns() < next)
			actor_wait_locked(a, (next - clock_mono_ns()) / NS_PER_MS + 1);
		a->beat_now = false;
		again = a->reregister;
		pthread_mutex_unlock(&a->lock);
		if (again)
			return true;
	}
	return false;
}

static void *beat_thread(void *arg)
{
	struct nn_actor *a = arg;

	while (connect_and_register(a) && beat_on(a))
		log_info("op=register namenode=%s: asked to register again", a->addr_text);
	return NULL;
}

/* ---- events of the store ---- */

static void on_block(void *arg, struct block_pool *bp, const char *storage_uuid,
		     const struct block *b, enum store_event ev, const char *hint)
{
	struct nn_set *s = arg;

	for (uint32_t i = 0; i < s->actor_count; i++) {
		struct nn_actor *a = &s->actors[i];
		bool ours;

		pthread_mutex_lock(&a->lock);
		ours = a->bp == bp && a->state != ACTOR_DEAD;
		pthread_mutex_unlock(&a->lock);
		if (ours)
			report_on_block(a, storage_uuid, b, ev, hint);
	}
}

void nn_report_bad(struct nn_set *s, struct block_pool *bp, const char *storage_uuid,
		   const struct block *b)
{
	for (uint32_t i = 0; i < s->actor_count; i++) {
		struct nn_actor *a = &s->actors[i];
		bool ours;

		pthread_mutex_lock(&a->lock);
		ours = a->bp == bp && a->state != ACTOR_DEAD;
		pthread_mutex_unlock(&a->lock);
		if (ours)
			report_on_bad(a, storage_uuid, b);
	}
}

static void on_bad(void *arg, struct block_pool *bp, const char *storage_uuid, const struct block *b)
{
	nn_report_bad(arg, bp, storage_uuid, b);
}

/* Tell it at once: a heartbeat without the storage, an error, a full report of what is left. */
static void on_volume_failed(void *arg, const char *path, const char *reason)
{
	struct nn_set *s = arg;
	char text[256];

	s->failed_ms = clock_wall_ms();
	(void)snprintf(text, sizeof(text), "data directory %.180s failed: %.40s", path, reason);
	for (uint32_t i = 0; i < s->actor_count; i++) {
		struct nn_actor *a = &s->actors[i];

		report_on_error(a, HDD__ERROR_REPORT_REQUEST_PROTO__ERROR_CODE__DISK_ERROR, text);
		pthread_mutex_lock(&a->lock);
		a->beat_now = true;
		a->full_due = true;
		pthread_cond_broadcast(&a->wake);
		pthread_mutex_unlock(&a->lock);
	}
}

void nn_trigger_report(struct nn_set *s, bool incremental)
{
	for (uint32_t i = 0; i < s->actor_count; i++) {
		struct nn_actor *a = &s->actors[i];

		pthread_mutex_lock(&a->lock);
		a->urgent = true;
		a->full_due = a->full_due || !incremental;
		pthread_cond_broadcast(&a->wake);
		pthread_mutex_unlock(&a->lock);
	}
}

uint64_t nn_balancer_bandwidth(const struct nn_set *s)
{
	return s->dn->live.balance_bandwidth;
}

/* ---- start and end ---- */

static int start_threads(struct nn_actor *a, struct err *err)
{
	int rc = ret_code(pthread_create(&a->beat, NULL, beat_thread, a));

	a->started += !rc;
	if (!rc)
		rc = ret_code(pthread_create(&a->report, NULL, report_thread, a));
	a->started += !rc;
	if (!rc)
		rc = ret_code(pthread_create(&a->command, NULL, command_thread, a));
	a->started += !rc;
	return rc ? err_sys(err, rc, "threads for NameNode %s", a->addr_text) : 0;
}

static void init_wait(pthread_mutex_t *lock, pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_mutex_init(lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

static void init_actor(struct nn_set *s, struct nn_actor *a, const struct nn_addr *addr)
{
	struct passwd *pw = getpwuid(geteuid());

	a->set = s;
	a->port = addr->port;
	memcpy(a->host, addr->host, sizeof(a->host));
	memcpy(a->addr_text, addr->text, sizeof(a->addr_text));
	(void)snprintf(a->user, sizeof(a->user), "%s", pw ? pw->pw_name : "dfs");
	init_wait(&a->lock, &a->wake);
	list_init(&a->bad);
	list_init(&a->errors);
	list_init(&a->commands);
}

int nn_start(struct dn *dn, struct nn_set **ret, struct err *err)
{
	struct store_listener l = {on_block, on_bad, on_volume_failed, NULL};
	struct nn_addr addrs[NN_ACTORS_MAX];
	struct nn_set *s = calloc(1, sizeof(*s));
	uint32_t n = 0;
	int rc = s ? 0 : err_sys(err, -ENOMEM, "nn");

	if (!rc)
		rc = nn_addrs(dn->conf, addrs, NN_ACTORS_MAX, &n, err);
	if (rc) {
		free(s);
		return rc;
	}
	s->dn = dn;
	init_wait(&s->lock, &s->changed);
	pthread_mutex_init(&s->jobs_lock, NULL);
	for (uint32_t i = 0; i < n; i++) {
		init_actor(s, &s->actors[i], &addrs[i]);
		s->active_txid[i] = -1;
	}
	s->actor_count = n;
	l.arg = s;
	store_set_listener(dn->store, &l);
	dn->nns = s;
	for (uint32_t i = 0; !rc && i < n; i++)
		rc = start_threads(&s->actors[i], err);
	if (rc) {
		nn_stop(s);
		return rc;
	}
	*ret = s;
	return 0;
}

/* 1: registered somewhere; 0: still trying; -errno: nobody will have us. */
static int outcome(struct nn_set *s, struct err *err)
{
	int dead = 0, rc = 0;

	for (uint32_t i = 0; i < s->actor_count; i++) {
		struct nn_actor *a = &s->actors[i];

		pthread_mutex_lock(&a->lock);
		if (a->state == ACTOR_REGISTERED)
			rc = 1;
		if (a->why.rc && err)
			*err = a->why;
		if (a->state == ACTOR_DEAD && ++dead == (int)s->actor_count)
			rc = a->why.rc ? a->why.rc : -EIO;
		pthread_mutex_unlock(&a->lock);
	}
	return rc;
}

int nn_wait_registered(struct nn_set *s, uint32_t timeout_ms, struct err *err)
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

bool nn_is_dead(struct nn_set *s, struct err *err)
{
	return outcome(s, err) < 0;
}

static void free_actor(struct nn_actor *a)
{
	struct list *l;

	report_drop_pending(a);
	while ((l = list_pop(&a->bad)))
		free(container_of(l, struct note, link));
	while ((l = list_pop(&a->errors)))
		free(container_of(l, struct note, link));
	while ((l = list_pop(&a->commands))) {
		struct command *c = container_of(l, struct command, link);

		pb_free(c->answer);
		free(c);
	}
	rpc_client_free(a->rpc);
	pthread_cond_destroy(&a->wake);
	pthread_mutex_destroy(&a->lock);
}

void nn_stop(struct nn_set *s)
{
	if (!s)
		return;
	s->stop = true;
	store_set_listener(s->dn->store, NULL);
	for (uint32_t i = 0; i < s->actor_count; i++) {
		struct nn_actor *a = &s->actors[i];

		pthread_mutex_lock(&a->lock);
		pthread_cond_broadcast(&a->wake);
		if (a->rpc)
			rpc_client_cancel(a->rpc);
		pthread_mutex_unlock(&a->lock);
	}
	for (uint32_t i = 0; i < s->actor_count; i++) {
		struct nn_actor *a = &s->actors[i];

		if (a->started > 0)
			pthread_join(a->beat, NULL);
		if (a->started > 1)
			pthread_join(a->report, NULL);
		if (a->started > 2)
			pthread_join(a->command, NULL);
	}
	recovery_join(s);
	for (uint32_t i = 0; i < s->actor_count; i++)
		free_actor(&s->actors[i]);
	s->dn->nns = NULL;
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->jobs_lock);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
