/* SPDX-License-Identifier: Apache-2.0 */
/* Full and incremental block reports to one NameNode, and reports of bad replicas and of errors. */
#include "datanode/bp/bp_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/wire/block_report.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"

#define CAPABILITY_BUFFERS 1u /* STORAGE_BLOCK_REPORT_BUFFERS */

/* ---- what is to be told ---- */

/* Of two events of a block the newest is told. A replica that was moved to another directory and
 * deleted there, before the NameNode heard of the move, is there for it where it was before: a full
 * report tells it otherwise. */
static void newer_wins_locked(struct bp_actor *a, enum store_event old, enum store_event newer)
{
	if (old == STORE_RECEIVED && newer == STORE_DELETED)
		a->full_due = true;
}

static int pending_put_locked(struct bp_actor *a, const struct ibr *event)
{
	struct ibr *e;

	HASH_FIND(hh, a->pending, &event->id, sizeof(event->id), e);
	if (!e) {
		e = calloc(1, sizeof(*e));
		if (!e)
			return -ENOMEM;
		e->id = event->id;
		HASH_ADD(hh, a->pending, id, sizeof(e->id), e);
	} else {
		newer_wins_locked(a, e->event, event->event);
	}
	e->block = event->block;
	e->event = event->event;
	memcpy(e->storage_uuid, event->storage_uuid, sizeof(e->storage_uuid));
	memcpy(e->hint, event->hint, sizeof(e->hint));
	return 0;
}

/* The client goes on with other nodes and a new stamp. A NameNode that hears of the old one only
 * then takes the replica for corrupt, and with too few other nodes the block stays short of a
 * replica until the next full report. */
static void left_locked(struct bp_actor *a, const struct block *b)
{
	struct ibr *e;

	HASH_FIND(hh, a->pending, &b->id, sizeof(b->id), e);
	if (e && e->event == STORE_RECEIVING && e->block.gs == b->gs) {
		HASH_DEL(a->pending, e);
		free(e);
	}
}

void report_on_block(struct bp_actor *a, const char *storage_uuid, const struct block *b,
		     enum store_event ev, const char *hint)
{
	struct ibr e = {.id = b->id, .block = *b, .event = ev};

	(void)snprintf(e.storage_uuid, sizeof(e.storage_uuid), "%s", storage_uuid);
	(void)snprintf(e.hint, sizeof(e.hint), "%s", hint ? hint : "");
	pthread_mutex_lock(&a->lock);
	if (ev == STORE_LEFT)
		left_locked(a, b);
	/* Out of memory: the next full report tells it. */
	else if (pending_put_locked(a, &e))
		a->full_due = true;
	/* complete() of the client waits for RECEIVED; the others ride along. */
	if (ev == STORE_RECEIVED)
		a->urgent = true;
	pthread_mutex_unlock(&a->lock);
	if (ev == STORE_RECEIVED)
		pthread_cond_signal(&a->report_wake);
}

static void note_locked(struct bp_actor *a, struct list *where, uint32_t *count,
			const struct note *n)
{
	struct note *copy = *count < NN_NOTES_MAX ? malloc(sizeof(*copy)) : NULL;

	if (!copy) {
		free(n->node);
		return; /* the block scanner or the next reader finds it again */
	}
	*copy = *n;
	list_add_tail(where, &copy->link);
	(*count)++;
	actor_wake_locked(a);
}

void report_on_bad(struct bp_actor *a, const char *storage_uuid, const struct block *b)
{
	struct note n = {.block = *b};

	(void)snprintf(n.storage_uuid, sizeof(n.storage_uuid), "%s", storage_uuid);
	pthread_mutex_lock(&a->lock);
	note_locked(a, &a->bad, &a->bad_count, &n);
	pthread_mutex_unlock(&a->lock);
}

void report_on_bad_at(struct bp_actor *a, const struct dn_target *node, const struct block *b)
{
	struct note n = {.block = *b, .node = malloc(sizeof(*node))};

	if (!n.node)
		return;
	*n.node = *node;
	pthread_mutex_lock(&a->lock);
	note_locked(a, &a->bad, &a->bad_count, &n);
	pthread_mutex_unlock(&a->lock);
}

void report_on_error(struct bp_actor *a, uint32_t code, const char *text)
{
	struct note n = {.code = code};

	(void)snprintf(n.text, sizeof(n.text), "%s", text);
	pthread_mutex_lock(&a->lock);
	note_locked(a, &a->errors, &a->error_count, &n);
	pthread_mutex_unlock(&a->lock);
}

void report_drop_pending(struct bp_actor *a)
{
	struct ibr *e, *next;

	HASH_ITER(hh, a->pending, e, next)
	{
		HASH_DEL(a->pending, e);
		free(e);
	}
	a->urgent = false;
}

/* ---- incremental reports ---- */

struct ibr_msg { /* one storage's part */
	Hdd__StorageReceivedDeletedBlocksProto p;
	struct storage_msg storage;
	size_t used;
};

struct ibr_item {
	Hdd__ReceivedDeletedBlockInfoProto p;
	Hd__BlockProto block;
};

static int status_of(enum store_event ev)
{
	switch (ev) {
	case STORE_RECEIVING:
		return HDD__RECEIVED_DELETED_BLOCK_INFO_PROTO__BLOCK_STATUS__RECEIVING;
	case STORE_RECEIVED:
		return HDD__RECEIVED_DELETED_BLOCK_INFO_PROTO__BLOCK_STATUS__RECEIVED;
	case STORE_DELETED:
	case STORE_LEFT: /* never pending, as STORE_GONE is */
	case STORE_GONE:
		break;
	}
	return HDD__RECEIVED_DELETED_BLOCK_INFO_PROTO__BLOCK_STATUS__DELETED;
}

static void ibr_fill(struct ibr_item *it, const struct ibr *e)
{
	hdd__received_deleted_block_info_proto__init(&it->p);
	hd__block_proto__init(&it->block);
	it->block.blockid = (uint64_t)e->block.id;
	it->block.genstamp = e->block.gs;
	it->block.has_numbytes = true;
	it->block.numbytes = e->block.len;
	it->p.block = &it->block;
	it->p.status = status_of(e->event);
	it->p.deletehint = e->hint[0] ? (char *)e->hint : NULL;
}

/* Those of storage @m among @events that are deletions, or those that are not, go to @m. Returns
 * how many. */
static size_t ibr_pick(struct ibr_msg *m, struct ibr **events, size_t n, bool deleted,
		       struct ibr_item *items, Hdd__ReceivedDeletedBlockInfoProto **ptrs)
{
	m->p.blocks = ptrs;
	for (size_t i = 0; i < n; i++) {
		if ((events[i]->event == STORE_DELETED) != deleted ||
		    strcmp(events[i]->storage_uuid, m->p.storageuuid) != 0)
			continue;
		ibr_fill(&items[m->p.n_blocks], events[i]);
		ptrs[m->p.n_blocks] = &items[m->p.n_blocks].p;
		m->p.n_blocks++;
	}
	return m->p.n_blocks;
}

/* Group @n events by storage and send them: deletions first, see tell_other_units(). */
static int ibr_send(struct bp_actor *a, struct ibr **events, size_t n, struct err *err)
{
	struct dn *dn = a->set->dn;
	uint32_t volumes = store_volume_count(dn->store), parts = 0;
	struct ibr_item *items = calloc(n, sizeof(*items));
	struct ibr_msg *msgs = calloc(2 * volumes, sizeof(*msgs));
	Hdd__ReceivedDeletedBlockInfoProto **ptrs = calloc(n, sizeof(void *));
	Hdd__StorageReceivedDeletedBlocksProto **list = calloc(2 * volumes, sizeof(void *));
	Hdd__BlockReceivedAndDeletedRequestProto req =
		HDD__BLOCK_RECEIVED_AND_DELETED_REQUEST_PROTO__INIT;
	struct reg_msg reg;
	size_t k = 0;
	int rc = items && msgs && ptrs && list ? 0 : err_sys(err, -ENOMEM, "incremental report");

	for (uint32_t i = 0; !rc && i < 2 * volumes; i++) {
		struct ibr_msg *m = &msgs[parts];

		if (!storage_msg_fill(&m->storage, dn, i % volumes, NULL))
			continue;
		hdd__storage_received_deleted_blocks_proto__init(&m->p);
		m->p.storageuuid = m->storage.info.uuid;
		m->p.storage = &m->storage.storage;
		k += ibr_pick(m, events, n, i < volumes, items + k, ptrs + k);
		if (m->p.n_blocks)
			list[parts++] = &m->p;
	}
	if (!rc && parts) {
		reg_msg_fill(&reg, a);
		req.registration = &reg.reg;
		req.blockpoolid = reg.ns.pool_id;
		req.n_blocks = parts;
		req.blocks = list;
		rc = actor_call(a, "blockReceivedAndDeleted", &req.base,
				&hdd__block_received_and_deleted_response_proto__descriptor, NULL,
				err);
	}
	free(items);
	free(msgs);
	free(ptrs);
	free(list);
	return rc;
}

/* Everything pending. What could not be told is pending again, unless something newer is. */
static int send_pending(struct bp_actor *a)
{
	struct ibr *taken, *e, *next, *newer, **events;
	struct err err = ERR_INIT;
	size_t n, k = 0;
	int rc;

	pthread_mutex_lock(&a->lock);
	taken = a->pending;
	a->pending = NULL;
	a->urgent = false;
	pthread_mutex_unlock(&a->lock);
	n = HASH_COUNT(taken);
	if (!n)
		return 0;
	events = calloc(n, sizeof(*events));
	HASH_ITER(hh, taken, e, next)
	if (events)
		events[k++] = e;
	rc = events ? ibr_send(a, events, n, &err) : -ENOMEM;
	free(events);
	pthread_mutex_lock(&a->lock);
	HASH_ITER(hh, taken, e, next)
	{
		HASH_DEL(taken, e);
		HASH_FIND(hh, a->pending, &e->id, sizeof(e->id), newer);
		if (rc && !newer) {
			HASH_ADD(hh, a->pending, id, sizeof(e->id), e);
			a->urgent = true;
		} else {
			if (rc)
				newer_wins_locked(a, e->event, newer->event);
			free(e);
		}
	}
	pthread_mutex_unlock(&a->lock);
	if (!rc)
		a->last_incremental_ns = clock_mono_ns();
	if (!rc)
		metric_add(METRIC_DN_INCREMENTAL_REPORTS, 1);
	else
		log_debug("op=incremental-report namenode=%s rc=%d error=\"%s\"", a->addr_text, rc,
			  err.text);
	return rc;
}

/* ---- corrupt replicas and errors ---- */

static void id_fill(Hd__DatanodeIDProto *id, struct dn_target *t)
{
	id->ipaddr = t->ip;
	id->hostname = t->host;
	id->datanodeuuid = t->uuid;
	id->xferport = t->xfer_port;
	id->infoport = t->info_port;
	id->ipcport = t->ipc_port;
}

static int send_bad(struct bp_actor *a, const struct note *n, struct err *err)
{
	Hdd__ReportBadBlocksRequestProto req = HDD__REPORT_BAD_BLOCKS_REQUEST_PROTO__INIT;
	Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT, *list = &lb;
	Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT, *locs = &info;
	Hd__ExtendedBlockProto b = extended_block(a->bp, &n->block);
	Hc__TokenProto token = HC__TOKEN_PROTO__INIT;
	Hd__StorageTypeProto type = HD__STORAGE_TYPE_PROTO__DISK;
	Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;
	char *uuid = (char *)n->storage_uuid;
	struct reg_msg reg;

	reg_msg_fill(&reg, a);
	token.kind = token.service = (char *)"";
	info.id = n->node ? &id : &reg.id;
	if (n->node)
		id_fill(&id, n->node);
	info.location = (char *)"/default-rack";
	lb.b = &b;
	lb.blocktoken = &token;
	lb.n_locs = lb.n_storagetypes = 1;
	lb.n_storageids = !n->node;
	lb.locs = &locs;
	lb.storagetypes = &type;
	lb.storageids = &uuid;
	req.n_blocks = 1;
	req.blocks = &list;
	return actor_call(a, "reportBadBlocks", &req.base,
			  &hdd__report_bad_blocks_response_proto__descriptor, NULL, err);
}

static int send_error(struct bp_actor *a, const struct note *n, struct err *err)
{
	Hdd__ErrorReportRequestProto req = HDD__ERROR_REPORT_REQUEST_PROTO__INIT;
	struct reg_msg reg;

	reg_msg_fill(&reg, a);
	req.registartion = &reg.reg;
	req.errorcode = n->code;
	req.msg = (char *)n->text;
	return actor_call(a, "errorReport", &req.base,
			  &hdd__error_report_response_proto__descriptor, NULL, err);
}

/* In order; stops at the first that cannot be told. One the NameNode refuses is dropped. */
static int send_notes(struct bp_actor *a, struct list *from, uint32_t *count,
		      int (*send)(struct bp_actor *, const struct note *, struct err *))
{
	for (;;) {
		struct err err = ERR_INIT;
		struct list *l;
		struct note *n;
		int rc;

		pthread_mutex_lock(&a->lock);
		l = list_pop(from);
		if (l)
			(*count)--;
		pthread_mutex_unlock(&a->lock);
		if (!l)
			return 0;
		n = container_of(l, struct note, link);
		rc = send(a, n, &err);
		if (!rc || err.remote[0]) {
			free(n->node);
			free(n);
			continue;
		}
		pthread_mutex_lock(&a->lock);
		list_add(from, &n->link);
		(*count)++;
		pthread_mutex_unlock(&a->lock);
		return rc;
	}
}

/* ---- full reports ---- */

struct full_msg { /* one storage's part */
	struct bp_actor *actor;
	Hdd__StorageBlockReportProto p;
	struct storage_msg storage;
	struct block_report buffers;
	uint64_t *longs; /* owned */
	size_t long_count, long_room;
	uint64_t finalized, others;
	bool use_longs;
	enum { PASS_FINALIZED, PASS_OTHERS } pass;
};

static int push_longs(struct full_msg *m, const uint64_t *v, size_t n)
{
	if (m->long_count + n > m->long_room) {
		size_t room = m->long_room * 2 + 1024;
		uint64_t *p = reallocarray(m->longs, room, sizeof(*p));

		if (!p)
			return -ENOMEM;
		m->longs = p;
		m->long_room = room;
	}
	memcpy(m->longs + m->long_count, v, n * sizeof(*v));
	m->long_count += n;
	return 0;
}

static int full_add(void *arg, const struct replica_info *i)
{
	struct full_msg *m = arg;
	uint64_t v[4] = {(uint64_t)i->block.id, i->block.len, i->block.gs, (uint64_t)i->state};
	bool finalized = i->state == REPLICA_FINALIZED;

	/* A NameNode that was started anew counts on it otherwise, and may have others deleted. */
	if (i->corrupt && (!m->use_longs || m->pass == PASS_FINALIZED))
		report_on_bad(m->actor, i->storage_uuid, &i->block);
	if (!m->use_longs)
		return block_report_add(&m->buffers, &i->block, i->state);
	if (finalized != (m->pass == PASS_FINALIZED))
		return 0;
	if (finalized)
		m->finalized++;
	else
		m->others++;
	return push_longs(m, v, finalized ? 3 : 4);
}

/* hdfs-wire 4, long list: counts, finalized ones, a delimiter, the others. */
static int full_fill_longs(struct full_msg *m, struct block_pool *bp, uint32_t i)
{
	static const uint64_t counts[2], delimiter[3] = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
	int rc = push_longs(m, counts, 2);

	m->use_longs = true;
	m->pass = PASS_FINALIZED;
	if (!rc)
		rc = store_each(bp, i, full_add, m);
	if (!rc)
		rc = push_longs(m, delimiter, 3);
	m->pass = PASS_OTHERS;
	if (!rc)
		rc = store_each(bp, i, full_add, m);
	if (rc)
		return rc;
	m->longs[0] = m->finalized;
	m->longs[1] = m->others;
	m->p.blocks = m->longs;
	m->p.n_blocks = m->long_count;
	return 0;
}

static int full_fill(struct full_msg *m, struct block_pool *bp, uint32_t i, bool buffers)
{
	int rc;

	hdd__storage_block_report_proto__init(&m->p);
	m->p.storage = &m->storage.storage;
	if (!buffers)
		return full_fill_longs(m, bp, i);
	rc = store_each(bp, i, full_add, m);
	if (!rc)
		rc = block_report_finish(&m->buffers);
	m->p.has_numberofblocks = true;
	m->p.numberofblocks = m->buffers.count;
	m->p.n_blocksbuffers = m->buffers.chunk_count;
	m->p.blocksbuffers = m->buffers.chunks;
	return rc;
}

static int full_call(struct bp_actor *a, Hdd__StorageBlockReportProto **parts, size_t n,
		     Hdd__BlockReportContextProto *ctx, struct err *err)
{
	Hdd__BlockReportRequestProto req = HDD__BLOCK_REPORT_REQUEST_PROTO__INIT;
	ProtobufCMessage *answer = NULL;
	struct reg_msg reg;
	int rc;

	reg_msg_fill(&reg, a);
	req.registration = &reg.reg;
	req.blockpoolid = reg.ns.pool_id;
	req.n_reports = n;
	req.reports = parts;
	req.context = ctx;
	rc = actor_call(a, "blockReport", &req.base, &hdd__block_report_response_proto__descriptor,
			&answer, err);
	if (!rc) {
		Hdd__BlockReportResponseProto *r = (Hdd__BlockReportResponseProto *)answer;

		actor_command(a, answer, &r->cmd, r->cmd ? 1 : 0);
	}
	return rc;
}

static int full_send(struct bp_actor *a, struct full_msg *msgs, uint32_t n, uint64_t lease,
		     struct err *err)
{
	Hdd__StorageBlockReportProto *parts[64];
	Hdd__BlockReportContextProto ctx = HDD__BLOCK_REPORT_CONTEXT_PROTO__INIT;
	uint64_t total = 0;
	int rc = 0;

	for (uint32_t i = 0; i < n; i++) {
		parts[i] = &msgs[i].p;
		total += msgs[i].use_longs ? msgs[i].finalized + msgs[i].others
					   : msgs[i].buffers.count;
	}
	while (!ctx.id)
		if (getrandom(&ctx.id, sizeof(ctx.id), 0) < 0)
			ctx.id = (int64_t)clock_mono_ns();
	ctx.has_leaseid = true;
	ctx.leaseid = lease;
	if (total <= a->set->dn->live.split_threshold) {
		ctx.totalrpcs = 1;
		rc = full_call(a, parts, n, &ctx, err);
	} else {
		ctx.totalrpcs = (int32_t)n;
		for (uint32_t i = 0; !rc && i < n; i++) {
			ctx.currpc = (int32_t)i;
			rc = full_call(a, &parts[i], 1, &ctx, err);
		}
	}
	if (!rc)
		metric_add(METRIC_DN_FULL_REPORTS, 1);
	if (!rc)
		log_info("op=full-report namenode=%s replicas=%" PRIu64 " storages=%u",
			 a->addr_text, total, n);
	return rc;
}

static int send_full(struct bp_actor *a, uint64_t lease)
{
	struct dn *dn = a->set->dn;
	uint32_t volumes = store_volume_count(dn->store), n = 0;
	struct full_msg *msgs = calloc(volumes, sizeof(*msgs));
	struct err err = ERR_INIT;
	struct block_pool *bp;
	bool buffers;
	int rc = msgs ? 0 : -ENOMEM;

	pthread_mutex_lock(&a->lock);
	bp = a->bp;
	buffers = a->capabilities & CAPABILITY_BUFFERS;
	pthread_mutex_unlock(&a->lock);
	for (uint32_t i = 0; !rc && i < volumes; i++) {
		if (!storage_msg_fill(&msgs[n].storage, dn, i, bp))
			continue;
		msgs[n].actor = a;
		rc = full_fill(&msgs[n], bp, i, buffers);
		n++;
	}
	/* What is corrupt is told before it is counted as good. */
	if (!rc)
		rc = send_notes(a, &a->bad, &a->bad_count, send_bad);
	if (!rc)
		rc = full_send(a, msgs, n, lease, &err);
	for (uint32_t i = 0; msgs && i < volumes; i++) {
		block_report_fini(&msgs[i].buffers);
		free(msgs[i].longs);
	}
	free(msgs);
	if (rc)
		log_warn("op=full-report namenode=%s rc=%d: trying again: %s", a->addr_text, rc,
			 err.text[0] ? err.text : err_name(rc));
	return rc;
}

/* With a lease, or without one when somebody asked for a report at once. */
static int full_if_due(struct bp_actor *a)
{
	uint64_t lease, now = clock_mono_ns();
	bool go;
	int rc;

	pthread_mutex_lock(&a->lock);
	if (a->next_full_ns && now >= a->next_full_ns && !a->full_due)
		a->want_lease = true;
	lease = a->lease;
	go = a->full_due || lease;
	a->full_due = false;
	a->lease = 0;
	pthread_mutex_unlock(&a->lock);
	if (!go)
		return 0;
	rc = send_full(a, lease);
	pthread_mutex_lock(&a->lock);
	a->want_lease = rc != 0;
	if (!rc)
		a->last_full_ns = clock_mono_ns();
	if (!rc)
		a->next_full_ns = clock_mono_ns() + a->set->dn->live.full_ms * NS_PER_MS;
	pthread_mutex_unlock(&a->lock);
	return rc;
}

/* ---- what is locked in memory ---- */

/* Every dfs.cachereport.intervalMsec, on a node that may lock memory at all. */
static int cache_if_due(struct bp_actor *a)
{
	Hdd__CacheReportRequestProto req = HDD__CACHE_REPORT_REQUEST_PROTO__INIT;
	uint64_t *ids = NULL, now = clock_mono_ns();
	ProtobufCMessage *answer = NULL;
	struct err err = ERR_INIT;
	struct cache_stats st;
	struct reg_msg reg;
	int rc;

	cache_stats(a->set->cache, &st);
	if (!st.capacity || now < a->next_cache_ns)
		return 0;
	rc = cache_list(a->set->cache, a->bp, &ids, &req.n_blocks);
	if (rc)
		return rc;
	reg_msg_fill(&reg, a);
	req.registration = &reg.reg;
	req.blockpoolid = reg.ns.pool_id;
	req.blocks = ids;
	rc = actor_call(a, "cacheReport", &req.base, &hdd__cache_report_response_proto__descriptor,
			&answer, &err);
	free(ids);
	if (!rc) {
		Hdd__CacheReportResponseProto *r = (Hdd__CacheReportResponseProto *)answer;

		actor_command(a, answer, &r->cmd, r->cmd ? 1 : 0);
		metric_add(METRIC_DN_CACHE_REPORTS, 1);
		a->next_cache_ns = now + a->set->dn->live.cache_report_ms * NS_PER_MS;
	} else {
		log_debug("op=cache-report namenode=%s rc=%d error=\"%s\"", a->addr_text, rc,
			  err.text);
	}
	return rc;
}

/* Nothing to do before the next beat's time. */
static bool idle_locked(const struct bp_actor *a)
{
	return !a->urgent && !a->full_due && !a->lease && list_empty(&a->bad) &&
	       list_empty(&a->errors);
}

/* For how long incremental reports are still gathered; a full report takes them along. */
static uint64_t gather_ms_locked(const struct bp_actor *a)
{
	uint64_t end = a->last_incremental_ns + a->set->dn->live.incremental_ms * NS_PER_MS;
	uint64_t now = clock_mono_ns();

	return a->full_due || a->lease || now >= end ? 0 : (end - now) / NS_PER_MS + 1;
}

void *report_thread(void *arg)
{
	struct bp_actor *a = arg;
	int rc = 0;

	while (!actor_stops(a)) {
		bool ready, gather;

		pthread_mutex_lock(&a->lock);
		if (!rc && a->urgent && list_empty(&a->bad) && list_empty(&a->errors) &&
		    gather_ms_locked(a))
			actor_wait_on_locked(a, &a->report_wake, gather_ms_locked(a));
		if (rc)
			actor_wait_on_locked(a, &a->report_wake, NN_RETRY_MS);
		else if (idle_locked(a) || a->state != ACTOR_REGISTERED)
			actor_wait_on_locked(a, &a->report_wake, a->set->dn->live.beat_ms);
		ready = a->state == ACTOR_REGISTERED && !a->reregister;
		gather = gather_ms_locked(a) != 0;
		pthread_mutex_unlock(&a->lock);
		rc = 0;
		if (!ready || actor_stops(a))
			continue;
		/* Incremental ones first: a full report must not tell less than was told. */
		rc = gather ? 0 : send_pending(a);
		if (!rc)
			rc = full_if_due(a);
		if (!rc)
			rc = send_notes(a, &a->errors, &a->error_count, send_error);
		if (!rc)
			rc = send_notes(a, &a->bad, &a->bad_count, send_bad);
		if (!rc)
			rc = cache_if_due(a);
	}
	return NULL;
}
