/* SPDX-License-Identifier: Apache-2.0 */
/* Block recovery, the part of the primary node (hdfs-wire 8.4): the calls to holders and to the
 * NameNode, and the threads that make them, so many of each volume; the others wait. */
#include "datanode/bp/block_recovery_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/wire/ec_msg.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"

/* ---- calls to one holder ---- */

static int peer_client(struct recovery_job *j, struct holder *h, struct err *err)
{
	struct rpc_client_opts o = {.protocol = RPC_PROTO_INTER_DATANODE,
				    .user = j->actor->user,
				    .peer = "data node",
				    .addr_key = "dfs.datanode.ipc.address",
				    .connect_timeout_ms = PEER_CONNECT_MS,
				    .call_timeout_ms = PEER_CALL_MS};
	struct rpc_client *rpc = NULL;
	int rc;

	if (h->rpc)
		return 0;
	rc = net_resolve(h->at.ip, h->at.ipc_port, &o.addr, err);
	if (!rc)
		rc = rpc_client_new(&o, &rpc, err);
	if (rc)
		return rc;
	pthread_mutex_lock(&j->set->lock);
	h->rpc = rpc; /* recovery_join() cancels it from now on */
	pthread_mutex_unlock(&j->set->lock);
	if (j->set->stop)
		rpc_client_cancel(rpc);
	return 0;
}

static int init_remote(struct recovery_job *j, struct holder *h, bool *ret_found, struct err *err)
{
	Hd__InitReplicaRecoveryRequestProto req = HD__INIT_REPLICA_RECOVERY_REQUEST_PROTO__INIT;
	Hd__RecoveringBlockProto rb = HD__RECOVERING_BLOCK_PROTO__INIT;
	Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	Hd__ExtendedBlockProto b = extended_block(j->bp, &h->ask);
	Hc__TokenProto token = HC__TOKEN_PROTO__INIT;
	Hd__InitReplicaRecoveryResponseProto *r;
	ProtobufCMessage *answer = NULL;
	int rc = peer_client(j, h, err);

	token.kind = token.service = (char *)"";
	lb.b = &b;
	lb.blocktoken = &token;
	rb.block = &lb;
	rb.newgenstamp = j->recovery_id;
	req.block = &rb;
	if (!rc)
		rc = rpc_client_call(h->rpc, "initReplicaRecovery", &req.base,
				     &hd__init_replica_recovery_response_proto__descriptor, &answer,
				     err);
	if (rc)
		return rc;
	r = (Hd__InitReplicaRecoveryResponseProto *)answer;
	*ret_found = r->replicafound && r->has_state && r->block;
	if (*ret_found) {
		h->state = (enum replica_state)r->state;
		h->block = (struct block){(int64_t)r->block->blockid, r->block->genstamp,
					  r->block->numbytes};
	}
	pb_free(answer);
	return 0;
}

static int init_local(struct recovery_job *j, struct holder *h, bool *ret_found, struct err *err)
{
	struct replica_info info;
	int rc = replica_init_recovery(j->bp, &h->ask, j->recovery_id, &info, err);

	*ret_found = !rc;
	if (!rc) {
		h->state = info.state;
		h->block = info.block;
	}
	return rc == -ENOENT ? 0 : rc;
}

static int update_remote(struct recovery_job *j, struct holder *h, uint64_t len, int64_t new_id,
			 struct err *err)
{
	Hd__UpdateReplicaUnderRecoveryRequestProto req =
		HD__UPDATE_REPLICA_UNDER_RECOVERY_REQUEST_PROTO__INIT;
	Hd__ExtendedBlockProto b = extended_block(j->bp, &h->block);
	Hd__UpdateReplicaUnderRecoveryResponseProto *r;
	ProtobufCMessage *answer = NULL;
	int rc;

	req.block = &b;
	req.recoveryid = j->recovery_id;
	req.newlength = len;
	req.has_newblockid = true;
	req.newblockid = (uint64_t)new_id;
	rc = rpc_client_call(h->rpc, "updateReplicaUnderRecovery", &req.base,
			     &hd__update_replica_under_recovery_response_proto__descriptor, &answer,
			     err);
	if (rc)
		return rc;
	r = (Hd__UpdateReplicaUnderRecoveryResponseProto *)answer;
	(void)snprintf(h->storage_uuid, sizeof(h->storage_uuid), "%s",
		       r->storageuuid ? r->storageuuid : "");
	pb_free(answer);
	return 0;
}

static int init_once(struct recovery_job *j, struct holder *h, bool *ret_found, struct err *err)
{
	const int rc =
		h->local ? init_local(j, h, ret_found, err) : init_remote(j, h, ret_found, err);

	if (rc && !strcmp(err->remote, JEX_RECOVERY_IN_PROGRESS))
		return -EBUSY;
	return rc && !strcmp(err->remote, JEX_REPLICA_NOT_FOUND) ? -ENODATA : rc;
}

/* False: the node ends. */
static bool pause_until_again(const struct recovery_job *j)
{
	const struct timespec step = {0, BUSY_PAUSE_MS / 4 * NS_PER_MS};

	for (int i = 0; i < 4 && !j->set->stop; i++)
		(void)nanosleep(&step, NULL);
	return !j->set->stop;
}

/* Another recovery that is ahead stays ahead. */
static bool may_pass(int rc, const struct err *err)
{
	return rc == -EBUSY && strstr(err->text, REPLICA_WRITER_STAYS);
}

int holder_init(struct recovery_job *j, struct holder *h, bool *ret_found, struct err *err)
{
	const uint64_t until = clock_mono_ns() + BUSY_MS * NS_PER_MS;
	int rc = init_once(j, h, ret_found, err);

	while (may_pass(rc, err) && clock_mono_ns() < until && pause_until_again(j)) {
		*err = ERR_INIT;
		rc = init_once(j, h, ret_found, err);
	}
	if (rc == -EBUSY)
		return rc;
	if (rc)
		log_warn("op=recover block=%" PRId64 " id=%" PRIu64 " node=%s:%u rc=%d: %s",
			 h->ask.id, j->recovery_id, h->at.ip, h->at.ipc_port, rc, err->text);
	return rc;
}

int holder_update(struct recovery_job *j, struct holder *h, uint64_t len, int64_t new_id,
		  struct err *err)
{
	int rc = h->local ? replica_update_recovery(j->bp, &h->block, j->recovery_id, len, new_id,
						    h->storage_uuid, err)
			  : update_remote(j, h, len, new_id, err);

	h->updated = !rc;
	if (rc)
		log_warn("op=recover block=%" PRId64 " id=%" PRIu64 " node=%s:%u rc=%d: %s",
			 h->ask.id, j->recovery_id, h->at.ip, h->at.ipc_port, rc, err->text);
	return rc;
}

int recovery_commit(struct recovery_job *j, uint64_t len, bool delete,
		    const struct holder *const *targets, size_t n, struct err *err)
{
	Hdd__CommitBlockSynchronizationRequestProto req =
		HDD__COMMIT_BLOCK_SYNCHRONIZATION_REQUEST_PROTO__INIT;
	Hd__ExtendedBlockProto b = extended_block(j->bp, &j->block);
	Hd__DatanodeIDProto ids[LOCS_MAX], *list[LOCS_MAX];
	char *storages[LOCS_MAX], nobody[] = "null", empty[] = "";

	for (size_t i = 0; i < n; i++) {
		const struct holder *h = targets[i];

		hd__datanode_idproto__init(&ids[i]);
		list[i] = &ids[i];
		/* of a hole as Java's EMPTY_DATANODE_ID has it: it is compared */
		ids[i].ipaddr = h ? (char *)h->at.ip : nobody;
		ids[i].hostname = h ? (char *)h->at.host : nobody;
		ids[i].datanodeuuid = h ? (char *)h->at.uuid : nobody;
		ids[i].xferport = h ? h->at.xfer_port : 0;
		ids[i].infoport = h ? h->at.info_port : 0;
		ids[i].ipcport = h ? h->at.ipc_port : 0;
		storages[i] = h ? (char *)h->storage_uuid : empty;
	}
	req.block = &b;
	req.newgenstamp = j->recovery_id;
	req.newlength = len;
	req.closefile = true;
	req.deleteblock = delete;
	req.n_newtaragets = req.n_newtargetstorages = n;
	req.newtaragets = list;
	req.newtargetstorages = storages;
	return actor_call(j->actor, "commitBlockSynchronization", &req.base,
			  &hdd__commit_block_synchronization_response_proto__descriptor, NULL, err);
}

/* ---- threads ---- */

static void *job_thread(void *arg);

static void job_free(struct recovery_job *j)
{
	for (uint32_t i = 0; i < j->count; i++)
		rpc_client_free(j->holders[i].rpc);
	free(j->holders);
	free(j);
}

static void log_not_started(const struct recovery_job *j, int rc, const char *why)
{
	metric_add(METRIC_DN_RECOVERIES_DROPPED, 1);
	log_warn("op=recover block=%" PRId64 " id=%" PRIu64 " rc=%d: not started: %s", j->block.id,
		 j->recovery_id, rc, why);
}

static int job_run_locked(struct bp_set *s, struct recovery_job *j)
{
	const int rc = ret_code(pthread_create(&j->thread, NULL, job_thread, j));

	if (!rc)
		list_add_tail(&s->jobs, &j->link);
	return rc;
}

static struct recovery_job *take_waiting_locked(struct list *l)
{
	list_del(l);
	metric_add(METRIC_DN_RECOVERIES_WAITING, (uint64_t)-1);
	return container_of(l, struct recovery_job, link);
}

static void drop_late_locked(struct bp_set *s)
{
	const uint64_t now = clock_mono_ns();

	list_for_each (l, &s->waiting) {
		struct recovery_job *j = container_of(l, struct recovery_job, link);

		if (now <= j->deadline_ns)
			continue;
		j = take_waiting_locked(l);
		log_not_started(j, -ETIMEDOUT, "it has waited too long");
		job_free(j);
	}
}

/* Of the same volume. */
static struct recovery_job *take_next_locked(struct bp_set *s, uint64_t volumes)
{
	drop_late_locked(s);
	list_for_each (l, &s->waiting) {
		struct recovery_job *j = container_of(l, struct recovery_job, link);

		if (j->volumes != volumes)
			continue;
		j = take_waiting_locked(l);
		if (actor_is_active(j->actor))
			return j;
		log_not_started(j, -ESTALE, "its NameNode does not lead any more");
		job_free(j);
	}
	return NULL;
}

/* The next recovery runs on the same thread, because a new one may not be to be had. NULL: there is
 * none, and the thread ends; whoever joins it holds jobs_lock. */
static struct recovery_job *job_over(struct recovery_job *j)
{
	struct bp_set *s = j->set;
	struct recovery_job *next;

	pthread_mutex_lock(&s->jobs_lock);
	next = s->stop ? NULL : take_next_locked(s, j->volumes);
	if (next) {
		next->thread = j->thread;
		list_add_tail(&s->jobs, &next->link);
		list_del(&j->link);
		job_free(j);
	} else {
		pthread_mutex_lock(&s->lock);
		j->done = true;
		pthread_mutex_unlock(&s->lock);
	}
	pthread_mutex_unlock(&s->jobs_lock);
	return next;
}

static void job_do(struct recovery_job *j)
{
	struct err err = ERR_INIT;
	uint64_t len;
	int rc = j->striped ? recover_striped(j, &len, &err) : recover_replicated(j, &len, &err);

	if (rc)
		log_warn("op=recover block=%" PRId64 "_%" PRIu64 " id=%" PRIu64 " rc=%d: %s",
			 j->block.id, j->block.gs, j->recovery_id, rc,
			 err.text[0] ? err.text : err_name(rc));
	else
		log_info("op=recover block=%" PRId64 "_%" PRIu64 " id=%" PRIu64 " len=%" PRIu64
			 ": done",
			 j->block.id, j->block.gs, j->recovery_id, len);
}

static void *job_thread(void *arg)
{
	struct recovery_job *j = arg;

	while (j) {
		job_do(j);
		j = job_over(j);
	}
	return NULL;
}

/* ---- orders ---- */

static int job_fill(struct recovery_job *j, const Hd__RecoveringBlockProto *rb)
{
	const Hd__ExtendedBlockProto *b = rb->block->b;
	int rc;

	j->block = (struct block){(int64_t)b->blockid, b->generationstamp, b->numbytes};
	j->recovery_id = rb->newgenstamp;
	if (strcmp(b->poolid, pool_id(j->bp)) || !rb->block->n_locs || rb->block->n_locs > LOCS_MAX)
		return -EPROTO;
	j->truncate = rb->truncateblock;
	j->new_id = rb->truncateblock ? (int64_t)rb->truncateblock->blockid : j->block.id;
	j->cut_len = rb->truncateblock ? rb->truncateblock->numbytes : 0;
	j->holders = calloc(rb->block->n_locs, sizeof(*j->holders));
	if (!j->holders)
		return -ENOMEM;
	for (; j->count < rb->block->n_locs; j->count++) {
		struct holder *h = &j->holders[j->count];

		if (target_from_proto(rb->block->locs[j->count], &h->at))
			return -EPROTO;
		h->local = !strcmp(h->at.uuid, store_datanode_uuid(j->set->dn->store));
		h->ask = j->block;
	}
	j->striped = rb->ecpolicy != NULL;
	j->all_units = rb->has_allunits && rb->allunits;
	rc = j->striped ? ec_policy_from_msg(rb->ecpolicy, &j->policy) : 0;
	return rc || !j->striped ? rc : recover_striped_fill(j, rb);
}

/* The volumes that it may wait for, by number; 0: none. */
static uint64_t volumes_of(const struct recovery_job *j)
{
	uint64_t volumes = 0;

	for (uint32_t i = 0; i < j->count; i++) {
		const uint32_t v = j->holders[i].local ? replica_volume(j->bp, j->holders[i].ask.id)
						       : STORE_VOLUME_ANY;

		if (v != STORE_VOLUME_ANY)
			volumes |= 1ull << v;
	}
	return volumes;
}

/* Jobs that are over are joined. */
static void jobs_reap(struct bp_set *s)
{
	list_for_each (l, &s->jobs) {
		struct recovery_job *j = container_of(l, struct recovery_job, link);
		bool done;

		pthread_mutex_lock(&s->lock);
		done = j->done;
		pthread_mutex_unlock(&s->lock);
		if (done) {
			list_del(l);
			pthread_join(j->thread, NULL);
			job_free(j);
		}
	}
}

static uint32_t count_running(const struct bp_set *s, uint64_t volumes)
{
	uint32_t n = 0;

	list_for_each (l, &s->jobs)
		n += container_of(l, struct recovery_job, link)->volumes == volumes;
	return n;
}

/* Its NameNode has given the block's recovery a newer id: the older one would be refused. */
static void drop_older_locked(struct bp_set *s, const struct recovery_job *j)
{
	list_for_each (l, &s->waiting) {
		const struct recovery_job *old = container_of(l, struct recovery_job, link);

		if (old->bp == j->bp && old->block.id == j->block.id &&
		    old->recovery_id <= j->recovery_id)
			job_free(take_waiting_locked(l));
	}
}

static int job_wait_locked(struct bp_set *s, struct recovery_job *j)
{
	uint32_t count = 0;

	drop_late_locked(s);
	list_for_each (l, &s->waiting)
		count += container_of(l, struct recovery_job, link)->volumes == j->volumes;
	if (count >= NN_RECOVERIES_WAITING_MAX)
		return -EBUSY;
	j->deadline_ns = clock_mono_ns() + NN_RECOVERY_WAIT_MS * NS_PER_MS;
	list_add_tail(&s->waiting, &j->link);
	metric_add(METRIC_DN_RECOVERIES_WAITING, 1);
	return 0;
}

/* Those of a disk that hangs keep their places: so the recoveries of each volume have their own.
 * One for which there is no thread waits for one of these, if there is any. */
static int job_run_or_wait_locked(struct bp_set *s, struct recovery_job *j)
{
	const uint32_t running = count_running(s, j->volumes);
	const int rc = running < NN_RECOVERIES_MAX ? job_run_locked(s, j) : -EAGAIN;

	return rc == -EAGAIN && running ? job_wait_locked(s, j) : rc;
}

static void job_start(struct bp_actor *a, const Hd__RecoveringBlockProto *rb)
{
	struct bp_set *s = a->set;
	struct recovery_job *j = calloc(1, sizeof(*j));
	int rc;

	if (!j) {
		log_warn("op=recover block=%" PRId64 ": not started: out of memory",
			 (int64_t)rb->block->b->blockid);
		return;
	}
	j->actor = a;
	j->set = s;
	j->bp = a->bp;
	rc = job_fill(j, rb);
	j->volumes = volumes_of(j);
	pthread_mutex_lock(&s->jobs_lock);
	jobs_reap(s);
	if (!rc) {
		drop_older_locked(s, j);
		rc = job_run_or_wait_locked(s, j);
	}
	pthread_mutex_unlock(&s->jobs_lock);
	if (rc) {
		log_not_started(j, rc, err_name(rc));
		job_free(j);
	}
}

void recovery_start(struct bp_actor *a, const Hdd__BlockRecoveryCommandProto *cmd)
{
	for (size_t i = 0; i < cmd->n_blocks; i++)
		job_start(a, cmd->blocks[i]);
}

static struct recovery_job *any_job(struct bp_set *s)
{
	struct list *l;

	pthread_mutex_lock(&s->jobs_lock);
	while (!list_empty(&s->waiting))
		job_free(take_waiting_locked(s->waiting.next));
	l = list_pop(&s->jobs);
	pthread_mutex_unlock(&s->jobs_lock);
	return l ? container_of(l, struct recovery_job, link) : NULL;
}

void recovery_join(struct bp_set *s)
{
	struct recovery_job *j;

	while ((j = any_job(s))) {
		pthread_mutex_lock(&s->lock);
		for (uint32_t k = 0; k < j->count; k++)
			if (j->holders[k].rpc)
				rpc_client_cancel(j->holders[k].rpc);
		pthread_mutex_unlock(&s->lock);
		pthread_join(j->thread, NULL);
		job_free(j);
	}
}
