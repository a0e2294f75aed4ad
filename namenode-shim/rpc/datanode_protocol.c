/* SPDX-License-Identifier: Apache-2.0 */
/* DatanodeProtocol and DatanodeLifelineProtocol: registration, heartbeats, faults, the end of a
 * block recovery. Block reports are in datanode_reports.c. hdfs-wire 3.7, 4, 8.4. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "DatanodeLifelineProtocol.pb-c.h"
#include "DatanodeProtocol.pb-c.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/rpc/server.h"
#include "namenode-shim/blocks/decommission.h"
#include "namenode-shim/blocks/located_block.h"
#include "namenode-shim/blocks/topology.h"
#include "namenode-shim/namespace/under_construction.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/rpc/datanode_commands.h"
#include "namenode-shim/rpc/datanode_protocol_internal.h"
#include "namenode-shim/rpc/methods.h"

#define CAPABILITY_REPORT_BUFFERS 1
#define BUILD_VERSION "0000000000000000000000000000000000000000"

/* ---- identity ---- */

static Hd__StorageInfoProto *storage_info(struct req *q)
{
	const struct db_ident *id = &q->nn->db->ident;
	Hd__StorageInfoProto *s =
		req_new_msg(q, Hd__StorageInfoProto, hd__storage_info_proto__init);

	s->layoutversion = (uint32_t)NN_LAYOUT;
	s->namespceid = id->namespace_id;
	s->clusterid = arena_strdup(&q->mem, id->cluster_id);
	s->ctime = id->ctime_ms;
	return s;
}

int version_request(struct req *q, const void *in)
{
	Hd__VersionResponseProto *r =
		req_reply(q, Hd__VersionResponseProto, hd__version_response_proto__init);
	Hd__NamespaceInfoProto *i =
		req_new_msg(q, Hd__NamespaceInfoProto, hd__namespace_info_proto__init);

	(void)in;
	i->buildversion = arena_strdup(&q->mem, BUILD_VERSION);
	i->blockpoolid = arena_strdup(&q->mem, q->nn->db->ident.pool_id);
	i->storageinfo = storage_info(q);
	i->softwareversion = arena_strdup(&q->mem, NN_VERSION);
	PB_SET(i, capabilities, CAPABILITY_REPORT_BUFFERS);
	PB_SET(i, state, HD__NNHASTATUS_HEARTBEAT_PROTO__STATE__ACTIVE);
	r->info = i;
	return 0;
}

static int check_identity(struct req *q, const Hd__StorageInfoProto *s)
{
	const struct db_ident *id = &q->nn->db->ident;

	if (s->namespceid == id->namespace_id && !strcmp(s->clusterid, id->cluster_id) &&
	    s->ctime == id->ctime_ms)
		return 0;
	return exception_throw(
		&q->exception, EXC_UNREGISTERED,
		"Unregistered server: its registration is for NS-%u-%.100s-%llu, this "
		"NameNode is NS-%u-%s-%llu",
		s->namespceid, s->clusterid, (unsigned long long)s->ctime, id->namespace_id,
		id->cluster_id, (unsigned long long)id->ctime_ms);
}

int datanode_check_pool(struct req *q, const char *pool)
{
	if (!strcmp(pool, q->nn->db->ident.pool_id))
		return 0;
	return exception_throw(&q->exception, EXC_UNREGISTERED,
			       "Block pool %.120s is not this NameNode's (%s)", pool,
			       q->nn->db->ident.pool_id);
}

/* The registered, living node of a message; *ret NULL: it must register (again). */
int datanode_find(struct req *q, const Hdd__DatanodeRegistrationProto *reg, struct dn **ret)
{
	struct dn *dn = datanodes_find(&q->nn->dns, reg->datanodeid->datanodeuuid);
	int rc = check_identity(q, reg->storageinfo);

	*ret = dn && dn->alive && dn->xfer_port == reg->datanodeid->xferport ? dn : NULL;
	return rc;
}

int datanode_unregistered(struct req *q, const Hdd__DatanodeRegistrationProto *reg)
{
	return exception_throw(
		&q->exception, EXC_IO,
		"Data node %.63s at %.63s:%u is not registered; it will be told so by the "
		"next heartbeat",
		reg->datanodeid->datanodeuuid, reg->datanodeid->ipaddr, reg->datanodeid->xferport);
}

static void ask_rack(struct req *q)
{
	topology_ask(q->nn->topology, q->call->peer_ip);
}

/* The table is full, and a node at @ip is new. */
static bool make_room(struct nn *nn, const char *ip)
{
	struct dn *dn = datanodes_victim(&nn->dns, ip);

	if (dn)
		nn_dn_forget(nn, dn, "it makes room for a new one");
	return dn;
}

/* Another node that was at this address until now goes. */
static void forget_at_address(struct req *q, const Hd__DatanodeIDProto *id)
{
	struct dn *old;

	old = datanodes_find_addr(&q->nn->dns, q->ns.host, id->xferport, id->datanodeuuid);
	if (old && dn_replicas(old))
		log_warn(
			"op=register datanode=%.63s address=%s:%u: this address belonged to node %s with %" PRIu64
			" replicas; if it is the same machine, it runs on new data directories: stop its data node, "
			"mount its disks, then start it again",
			id->datanodeuuid, q->ns.host, id->xferport, old->uuid, dn_replicas(old));
	if (old) /* which makes room, so that nothing refuses the new one any more */
		nn_dn_forget(q->nn, old, "another node registered at its address");
}

/* @away: it was dead until now. */
static void on_registered(struct nn *nn, struct dn *dn, const struct hosts_verdict *verdict,
			  bool away)
{
	char rack[DN_RACK_MAX];

	dn->disallowed = false;
	cache_monitor_forget(&nn->cache, dn); /* it has begun anew */
	snprintf(rack, sizeof(rack), "%s", dn->rack);
	topology_find(nn->topology, dn->ip, dn->rack);
	datanodes_changed(&nn->dns);
	for (uint32_t i = 0; i < dn->nstorages; i++)
		if (!dn->storage[i]->failed)
			blocks_keep(&nn->blocks, dn->storage[i]);
	decommission_judge(nn, dn, verdict);
	/* Kept while it was in maintenance, and readable again; or together with others in a rack
	 * now. */
	if ((away || strcmp(rack, dn->rack) != 0) && dn_replicas(dn))
		blocks_recheck_node(&nn->blocks, dn);
	log_info("op=register datanode=%s address=%s:%u", dn->uuid, dn->ip, dn->xfer_port);
}

static int register_datanode(struct req *q, const void *in)
{
	const Hdd__RegisterDatanodeRequestProto *m = in;
	const Hdd__DatanodeRegistrationProto *reg = m->registration;
	const Hd__DatanodeIDProto *id = reg->datanodeid;
	const struct dn_ident ident = {id->datanodeuuid,     q->ns.host,        id->hostname,
				       reg->softwareversion, id->xferport,      id->infoport,
				       id->ipcport,          id->infosecureport};
	Hdd__RegisterDatanodeResponseProto *r = req_reply(
		q, Hdd__RegisterDatanodeResponseProto, hdd__register_datanode_response_proto__init);
	Hdd__DatanodeRegistrationProto *echo = req_new_msg(q, Hdd__DatanodeRegistrationProto,
							   hdd__datanode_registration_proto__init);
	struct hosts_verdict verdict;
	struct dn *dn;
	bool away;
	int rc = check_identity(q, reg->storageinfo);

	if (rc < 0)
		return rc;
	verdict = hosts_judge(q->nn->hosts, q->ns.host, id->hostname, id->xferport);
	if (!verdict.allowed)
		return exception_throw(
			&q->exception, EXC_DISALLOWED,
			"Datanode denied communication with namenode because the host is "
			"not in the include-list: %.63s:%u (%.63s, %.63s); add it to the file "
			"that dfs.hosts names, then run hdfs dfsadmin -refreshNodes",
			q->ns.host, id->xferport, id->hostname, id->datanodeuuid);
	if (!dn_ident_is_good(&ident))
		return exception_throw(&q->exception, EXC_IO,
				       "registration with an empty uuid or a text too "
				       "long is refused");
	forget_at_address(q, id);
	dn = datanodes_find(&q->nn->dns, id->datanodeuuid);
	away = dn && !dn->alive;
	if (dn && dn->alive && (strcmp(dn->ip, q->ns.host) || dn->xfer_port != id->xferport))
		log_warn(
			"op=register datanode=%s address=%s:%u: this node was alive at %s:%u; if both run, one has a copy of the "
			"other's data directories: stop one and move its current/ away",
			dn->uuid, q->ns.host, id->xferport, dn->ip, dn->xfer_port);
	rc = datanodes_register(&q->nn->dns, &ident, &dn);
	if (rc == -ENOSPC && make_room(q->nn, q->ns.host))
		rc = datanodes_register(&q->nn->dns, &ident, &dn);
	if (rc < 0)
		return exception_throw(
			&q->exception, EXC_IO,
			"this NameNode takes at most %d data nodes, and %.63s has "
			"its share; if some are none of yours, name yours in the file of dfs.hosts, "
			"then run hdfs dfsadmin -refreshNodes",
			DN_MAX, q->ns.host);
	on_registered(q->nn, dn, &verdict, away);
	*echo = *reg; /* borrows the request's parts, which outlive the answer */
	echo->datanodeid = locate_dn_id(&q->mem, dn);
	r->registration = echo;
	return 0;
}

/* ---- heartbeat ---- */

static void lose_storage(struct nn *nn, struct dn *dn, struct storage *st)
{
	if (st->failed)
		return;
	log_warn(
		"op=storage_failed datanode=%s storage=%s replicas=%llu: its replicas no longer count; see "
		"the data node's log",
		dn->uuid, st->id, (unsigned long long)st->nblocks);
	st->failed = true;
	st->failed_ns = clock_mono_ns();
	st->reported = st->listing = false;
	blocks_forget(&nn->blocks, dn, st);
}

/* True: it had failed and is back, and what is on it is not known. */
static bool take_storage_report(struct nn *nn, struct dn *dn, const Hd__StorageReportProto *s)
{
	const Hd__DatanodeStorageProto *d = s->storage;
	struct storage *st = dn_storage_add(
		dn, d ? d->storageuuid : s->storageuuid,
		d && d->has_storagetype ? (enum storage_type)d->storagetype : STORAGE_DISK);

	bool back;

	if (!st)
		return false;
	back = st->failed && !s->failed;
	st->beat = dn->beats;
	if (s->failed)
		lose_storage(nn, dn, st);
	else if (back)
		blocks_keep(&nn->blocks, st);
	st->failed = s->failed;
	st->capacity = s->capacity;
	st->used = s->dfsused;
	st->remaining = s->remaining;
	st->pool_used = s->blockpoolused;
	st->non_dfs = s->has_nondfsused ? s->nondfsused : 0;
	st->promised = st->promised_blocks = 0;
	st->told_ns = clock_mono_ns();
	return back;
}

/* A heartbeat lists every working storage: one that is missing has failed or was taken away. True:
 * some are back. */
static bool take_storage_reports(struct nn *nn, struct dn *dn, Hd__StorageReportProto *const *r,
				 size_t n)
{
	bool back = false;

	dn->beats += n > 0;
	for (size_t i = 0; i < n; i++)
		back |= take_storage_report(nn, dn, r[i]);
	for (uint32_t i = 0; n && i < dn->nstorages; i++)
		if (dn->storage[i]->beat != dn->beats)
			lose_storage(nn, dn, dn->storage[i]);
	return back;
}

static uint64_t report_lease(struct nn *nn, struct dn *dn)
{
	const uint64_t now = clock_mono_ns();
	uint32_t held = 0;

	for (const struct dn *o = nn->dns.table; o; o = o->hh.next)
		held += o != dn && o->lease_id && o->lease_until_ns > now;
	if (held >= nn->set.work.reports)
		return 0;
	dn->lease_id = nn->dns.next_lease_id++;
	dn->lease_until_ns = now + nn->set.work.report_ms * NS_PER_MS;
	return dn->lease_id;
}

static int send_heartbeat(struct req *q, const void *in)
{
	const Hdd__HeartbeatRequestProto *m = in;
	Hdd__HeartbeatResponseProto *r =
		req_reply(q, Hdd__HeartbeatResponseProto, hdd__heartbeat_response_proto__init);
	const struct dn *known;
	struct dn *dn;
	int rc = datanode_find(q, m->registration, &dn);

	if (rc < 0)
		return rc;
	r->cmds = arena_array(&q->mem, Hdd__DatanodeCommandProto *, DN_COMMANDS_MAX);
	r->hastatus =
		req_new_msg(q, Hd__NNHAStatusHeartbeatProto, hd__nnhastatus_heartbeat_proto__init);
	r->hastatus->state = HD__NNHASTATUS_HEARTBEAT_PROTO__STATE__ACTIVE;
	r->hastatus->txid = ++q->nn->txid;
	PB_SET(r, fullblockreportleaseid, 0);
	PB_SET(r, isslownode, 0);
	known = datanodes_find(&q->nn->dns, m->registration->datanodeid->datanodeuuid);
	if (known && known->disallowed)
		return exception_throw(
			&q->exception, EXC_DISALLOWED,
			"Datanode denied communication with namenode because the host is "
			"not in the include-list: %s:%u",
			known->ip, known->xfer_port);
	if (!dn) {
		r->cmds[r->n_cmds++] = dn_command_register(q);
		return 0;
	}
	dn_touch(dn);
	dn->xceivers = m->xceivercount;
	dn->xmits = m->xmitsinprogress;
	dn->failed_volumes = m->failedvolumes;
	dn->cache_capacity = m->has_cachecapacity ? m->cachecapacity : 0;
	dn->cache_used = m->has_cacheused ? m->cacheused : 0;
	if (take_storage_reports(q->nn, dn, m->reports, m->n_reports)) {
		r->cmds[r->n_cmds++] = dn_command_register(q); /* a full report follows */
		return 0;
	}
	if (m->requestfullblockreportlease)
		r->fullblockreportleaseid = report_lease(q->nn, dn);
	dn_commands_add(q, dn, r);
	return 0;
}

static int send_lifeline(struct req *q, const void *in)
{
	const Hdd__HeartbeatRequestProto *m = in;
	struct dn *dn;
	int rc = datanode_find(q, m->registration, &dn);

	req_reply(q, Hdl__LifelineResponseProto, hdl__lifeline_response_proto__init);
	if (!rc && dn)
		dn_touch(dn);
	return rc;
}

/* ---- bad replicas, faults ---- */

static int report_bad_blocks(struct req *q, const void *in)
{
	const Hdd__ReportBadBlocksRequestProto *m = in;

	req_reply(q, Hdd__ReportBadBlocksResponseProto,
		  hdd__report_bad_blocks_response_proto__init);
	return locate_report_bad(q, m->blocks, m->n_blocks);
}

static int error_report(struct req *q, const void *in)
{
	const Hdd__ErrorReportRequestProto *m = in;
	char msg[200];
	struct dn *dn;
	int rc = datanode_find(q, m->registartion, &dn);

	req_reply(q, Hdd__ErrorReportResponseProto, hdd__error_report_response_proto__init);
	if (rc < 0 || !dn)
		return rc;
	log_warn("op=error_report datanode=%s code=%u text=%s", dn->uuid, m->errorcode,
		 log_quote(msg, sizeof(msg), m->msg, strlen(m->msg)));
	if (m->errorcode == HDD__ERROR_REPORT_REQUEST_PROTO__ERROR_CODE__FATAL_DISK_ERROR)
		nn_dn_lost(q->nn, dn, "fatal disk error");
	return 0;
}

/* ---- end of a block recovery ---- */

static int check_recovery(struct req *q, const Hdd__CommitBlockSynchronizationRequestProto *m,
			  const struct inode *n, const struct blk *b)
{
	const uint64_t current = b->open ? b->open->recovery_id : 0;

	if (!n->nblocks || n->blocks[n->nblocks - 1].b.id != b->b.id)
		return exception_throw(&q->exception, EXC_IO,
				       "Block %lld is not the last of its file",
				       (long long)b->b.id);
	if (current != m->newgenstamp)
		return exception_throw(
			&q->exception, EXC_IO,
			"The recovery id %llu does not match current recovery id %llu for "
			"block %s:blk_%lld_%llu",
			(unsigned long long)m->newgenstamp, (unsigned long long)current,
			m->block->poolid, (long long)b->b.id,
			(unsigned long long)m->block->generationstamp);
	if (m->newlength > inode_block_max(n))
		return exception_throw(&q->exception, EXC_IO,
				       "recovered length %llu is over the block size",
				       (unsigned long long)m->newlength);
	return 0;
}

/* A primary that finds no replica has the block removed. Bytes that are known of are not given up
 * on its word: their nodes may be down, and their replicas would be deleted when they are back.
 * Where the reports of these nodes say the same, the file is closed without them (uc_is_lost()). */
static int check_removal(struct req *q, const struct inode *n, const struct blk *b)
{
	const struct inode_block *last = &n->blocks[n->nblocks - 1];
	const bool has_bytes = last->b.len || n->truncating;

	if (!has_bytes && !blk_may_be_elsewhere(b))
		return 0;
	log_warn("op=synced block=%lld len=%llu: the block is not removed, because %s",
		 (long long)last->b.id, (unsigned long long)last->b.len,
		 has_bytes ? "it has bytes"
			   : "nodes of its pipeline are away that may have bytes: start them or, "
			     "if they are lost for good, delete the file");
	return exception_throw(&q->exception, EXC_IO,
			       "Block blk_%lld_%llu of %llu bytes is not to be removed",
			       (long long)last->b.id, (unsigned long long)last->b.gs,
			       (unsigned long long)last->b.len);
}

/* @ec: of the file; NULL: replicated. */
static void synced_effect(struct req *q, const Hdd__CommitBlockSynchronizationRequestProto *m,
			  const struct block *b, const struct ec_policy *ec)
{
	struct effect *e = ns_effect(&q->ns, EFFECT_BLOCK_SYNCED);
	uint8_t *units = arena_array(&q->mem, uint8_t, m->n_newtaragets + 1);

	e->b = *b;
	e->units = ec ? units : NULL; /* the place of a unit that is not there is empty */
	e->targets = arena_array(&q->mem, struct storage_ref, m->n_newtaragets + 1);
	for (size_t i = 0; i < m->n_newtaragets && i < m->n_newtargetstorages; i++) {
		const struct dn *dn = datanodes_find(&q->nn->dns, m->newtaragets[i]->datanodeuuid);
		/* One that died meanwhile reports the replica when it is back. */
		struct storage *st =
			dn && dn->alive ? dn_storage(dn, m->newtargetstorages[i]) : NULL;

		if (st && (!ec || i < (size_t)ec->k + ec->m)) {
			units[e->ntargets] = (uint8_t)i;
			e->targets[e->ntargets++] = storage_ref(st);
		}
	}
}

static int commit_block_synchronization(struct req *q, const void *in)
{
	const Hdd__CommitBlockSynchronizationRequestProto *m = in;
	const struct blk *b = blocks_find(&q->nn->blocks, (int64_t)m->block->blockid);
	struct inode_block *last;
	struct inode *n;
	uint64_t before;
	int rc = datanode_check_pool(q, m->block->poolid);

	req_reply(q, Hdd__CommitBlockSynchronizationResponseProto,
		  hdd__commit_block_synchronization_response_proto__init);
	if (rc < 0)
		return rc;
	if (!b)
		return m->deleteblock
			       ? 0
			       : exception_throw(&q->exception, EXC_IO,
						 "Block (=%s:blk_%lld_%llu) not found",
						 m->block->poolid, (long long)m->block->blockid,
						 (unsigned long long)m->block->generationstamp);
	rc = inode_get_tail(q->ns.t, b->inode, &q->mem, &n);
	if (rc < 0)
		return ns_io(&q->ns, rc);
	if (!inode_is_open(n))
		return 0; /* closed already: a repeated message */
	rc = check_recovery(q, m, n, b);
	if (rc == 0 && m->deleteblock && uc_is_lost(q->nn, n, b))
		return uc_close_lost(q, n);
	if (rc == 0 && m->deleteblock)
		rc = check_removal(q, n, b);
	if (rc < 0)
		return rc;
	before = inode_space(n);
	last = &n->blocks[n->nblocks - 1];
	if (m->deleteblock) {
		ns_effect(&q->ns, EFFECT_BLOCK_REMOVE)->b = last->b;
		n->nblocks--;
	} else {
		last->b.gs = m->newgenstamp;
		last->b.len = m->newlength;
		last->committed = true;
		synced_effect(q, m, &last->b, n->ec);
	}
	log_info("op=synced block=%lld stamp=%llu len=%llu nodes=%zu close=%d delete=%d",
		 (long long)m->block->blockid, (unsigned long long)m->newgenstamp,
		 (unsigned long long)m->newlength, m->n_newtaragets, m->closefile, m->deleteblock);
	n->truncating = false;
	rc = uc_space_changed(q, n, before);
	if (rc < 0)
		return rc;
	return m->closefile ? uc_close(q, n) : ns_io(&q->ns, inode_put(q->ns.t, n));
}

#define MEMORY(name, msg, fn) METHOD(name, hdd, msg, REQ_MEMORY, 0, fn)
static const struct method table[] = {
	METHOD(versionRequest, hd, version, REQ_READ, 0, version_request),
	METHOD_PREPARED(registerDatanode, hdd, register_datanode, REQ_MEMORY, 0, register_datanode,
			ask_rack),
	MEMORY(sendHeartbeat, heartbeat, send_heartbeat),
	MEMORY(blockReport, block_report, datanode_block_report),
	MEMORY(blockReceivedAndDeleted, block_received_and_deleted,
	       datanode_block_received_and_deleted),
	MEMORY(reportBadBlocks, report_bad_blocks, report_bad_blocks),
	MEMORY(errorReport, error_report, error_report),
	MEMORY(cacheReport, cache_report, datanode_cache_report),
	METHOD(commitBlockSynchronization, hdd, commit_block_synchronization, REQ_CHANGE,
	       REQ_SAFE_OK, commit_block_synchronization),
};
const struct method_table datanode_methods = METHOD_TABLE(table);

static const struct method lifeline_table[] = {
	{.name = "sendLifeline",
	 .in = &hdd__heartbeat_request_proto__descriptor,
	 .out = &hdl__lifeline_response_proto__descriptor,
	 .kind = REQ_MEMORY,
	 .run = send_lifeline},
};
const struct method_table lifeline_methods = METHOD_TABLE(lifeline_table);
