/* SPDX-License-Identifier: Apache-2.0 */
/* Data nodes, as the NameNode and writers meet them (sim.h; hdfs-wire 3.7, 4, 8.4). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/erasure/geometry.h"
#include "common/wire/block_report.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/simulator/sim.h"

#define BEAT_MS 3000
#define NEWS_ONE HDD__RECEIVED_DELETED_BLOCK_INFO_PROTO__BLOCK_STATUS__RECEIVED
#define NEWS_GONE HDD__RECEIVED_DELETED_BLOCK_INFO_PROTO__BLOCK_STATUS__DELETED

void node_init(struct sim_node *d, int i)
{
	snprintf(d->uuid, sizeof(d->uuid), "n%d", i);
	snprintf(d->ip, sizeof(d->ip), "10.0.0.%d", i + 1);
	d->up = d->linked = true;
	d->out = -1;
}

struct sim_node *node_of(const char *uuid)
{
	for (int i = 0; i < NODES; i++)
		if (!strcmp(sim.node[i].uuid, uuid))
			return &sim.node[i];
	return NULL;
}

/* ---- replicas ---- */

struct sim_replica *node_find(struct sim_node *d, int64_t id)
{
	for (uint32_t i = 0; i < d->nreps; i++)
		if (d->rep[i].b.id == id)
			return &d->rep[i];
	return NULL;
}

int node_disk(const struct sim_node *d)
{
	return d->out < 0 ? (int)sim_below(DISKS) : (d->out + 1) % DISKS;
}

struct sim_replica *node_add(struct sim_node *d, const struct block *b, enum replica_state state)
{
	struct sim_replica *r = node_find(d, b->id);

	if (!r) {
		if (d->nreps == REPLICAS_MAX) {
			sim_wrong("%s has %u replicas: they are never deleted", d->uuid, d->nreps);
			d->nreps--;
		}
		r = &d->rep[d->nreps++];
		r->disk = node_disk(d);
	}
	*r = (struct sim_replica){.b = *b, .state = state, .disk = r->disk};
	return r;
}

void node_remove(struct sim_node *d, struct sim_replica *r)
{
	*r = d->rep[--d->nreps];
}

void node_tell(struct sim_node *d, const struct block *b,
	       Hdd__ReceivedDeletedBlockInfoProto__BlockStatus status)
{
	if (d->nnews == QUEUE_MAX) /* as after a long time without the NameNode */
		d->full_report = true;
	else
		d->news[d->nnews++] = (struct sim_news){*b, status, node_find(d, b->id)->disk};
}

/* ---- calls ---- */

/* What a message of a node begins with. */
struct sender {
	Hdd__DatanodeRegistrationProto reg;
	Hd__DatanodeIDProto id;
	Hd__StorageInfoProto info;
	Hd__DatanodeStorageProto storage[DISKS];
	Hd__ExportedBlockKeysProto keys;
	Hd__BlockKeyProto key;
	char storage_id[DISKS][24];
};

static void sender_init(struct sender *s, const struct sim_node *d)
{
	const struct db_ident *id = &sim.nn->db->ident;

	hdd__datanode_registration_proto__init(&s->reg);
	hd__datanode_idproto__init(&s->id);
	hd__storage_info_proto__init(&s->info);
	hd__exported_block_keys_proto__init(&s->keys);
	hd__block_key_proto__init(&s->key);
	s->keys.currentkey = &s->key;
	s->reg.keys = &s->keys;
	s->id.ipaddr = s->id.hostname = (char *)(uintptr_t)d->ip;
	s->id.datanodeuuid = (char *)(uintptr_t)d->uuid;
	s->id.xferport = 9866;
	s->id.infoport = s->id.ipcport = 1;
	s->info.layoutversion = (uint32_t)NN_LAYOUT;
	s->info.namespceid = id->namespace_id;
	s->info.clusterid = (char *)(uintptr_t)id->cluster_id;
	s->info.ctime = id->ctime_ms;
	s->reg.datanodeid = &s->id;
	s->reg.storageinfo = &s->info;
	s->reg.softwareversion = (char *)(uintptr_t)NN_VERSION;
	for (int i = 0; i < DISKS; i++) {
		snprintf(s->storage_id[i], sizeof(s->storage_id[i]), "DS-%s-%d", d->uuid, i);
		hd__datanode_storage_proto__init(&s->storage[i]);
		s->storage[i].storageuuid = s->storage_id[i];
	}
}

int node_call(const struct sim_node *d, struct sim_call *c, const char *method, const void *msg)
{
	sim_submit(c, method, msg, d->ip);
	for (int i = 0; !c->stat.calls && i < 1000; i++)
		sim_turn();
	if (!c->stat.calls)
		sim_wrong("%s: %s is not answered", d->uuid, method);
	if (c->rc < 0)
		sim_say("%s: %s: %s", d->uuid, method, c->error);
	return c->rc;
}

static void say_it_again(struct sim_node *d)
{
	d->registered = false;
	d->full_report = true;
}

static void node_register(struct sim_node *d)
{
	Hdd__RegisterDatanodeRequestProto m = HDD__REGISTER_DATANODE_REQUEST_PROTO__INIT;
	struct sender s;
	struct sim_call c;

	sender_init(&s, d);
	m.registration = &s.reg;
	d->registered = !node_call(d, &c, "registerDatanode", &m);
	sim_call_end(&c);
	d->full_report = true;
}

static void say_corrupt(struct sim_node *d, const struct sim_replica *r)
{
	Hdd__ReportBadBlocksRequestProto m = HDD__REPORT_BAD_BLOCKS_REQUEST_PROTO__INIT;
	Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT, *list[] = {&lb};
	Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT, *infos[] = {&info};
	Hc__TokenProto token = HC__TOKEN_PROTO__INIT;
	struct sender s;
	struct sim_call c;
	char *storages[1];

	sender_init(&s, d);
	storages[0] = s.storage_id[r->disk];
	info.id = &s.id;
	token.kind = token.service = (char *)(uintptr_t) "";
	b.poolid = (char *)(uintptr_t)sim.nn->db->ident.pool_id;
	b.blockid = (uint64_t)r->b.id;
	b.generationstamp = r->b.gs;
	b.numbytes = r->b.len;
	b.has_numbytes = 1;
	lb.b = &b;
	lb.locs = infos;
	lb.storageids = storages;
	lb.n_locs = lb.n_storageids = 1;
	lb.blocktoken = &token;
	m.blocks = list;
	m.n_blocks = 1;
	sim_say("%s: says that %lld is corrupt", d->uuid, (long long)r->b.id);
	(void)node_call(d, &c, "reportBadBlocks", &m);
	sim_call_end(&c);
}

static void node_scan(struct sim_node *d);

static enum replica_state reported_state(const struct sim_replica *r)
{
	return r->state == REPLICA_RUR ? r->orig : r->state;
}

static Hdd__StorageBlockReportProto *list_of(Hdd__StorageBlockReportProto *ret,
					     Hd__DatanodeStorageProto *storage,
					     struct block_report *r)
{
	if (block_report_finish(r))
		abort();
	hdd__storage_block_report_proto__init(ret);
	ret->storage = storage;
	ret->blocksbuffers = r->chunks;
	ret->n_blocksbuffers = r->chunk_count;
	ret->numberofblocks = r->count;
	ret->has_numberofblocks = 1;
	return ret;
}

static void node_heartbeat(struct sim_node *d);

/* Nobody misses it if it goes: it is of a closed file, and others are good. */
static bool is_spare(const struct sim_node *d, const struct sim_replica *r)
{
	struct block b;
	bool open;

	return check_block(r->b.id, &b, &open) && !open && r->b.gs == b.gs && r->b.len == b.len &&
	       r->state == REPLICA_FINALIZED &&
	       (ec_id_is_striped(b.id) ? group_others(r, d) > UNITS_NEEDED
				       : check_others(&b, d, true) >= 2);
}

/* With all that is on it, for good; a heartbeat without it says so at once. */
static void fail_disk(struct sim_node *d)
{
	const int disk = (int)sim_below(DISKS);
	uint32_t n = 0;

	if (!sim_may(SIM_DISKS) || d->out >= 0)
		return;
	for (uint32_t i = 0; i < d->nreps; i++)
		if (d->rep[i].disk == disk && is_spare(d, &d->rep[i]))
			n++;
		else if (d->rep[i].disk == disk)
			return;
	if (!n)
		return; /* a history has few: not for nothing */
	sim_say("%s: disk %d fails", d->uuid, disk);
	for (uint32_t i = d->nreps; i > 0; i--)
		if (d->rep[i - 1].disk == disk)
			node_remove(d, &d->rep[i - 1]);
	d->out = disk;
	node_heartbeat(d);
	for (int i = 0; i < 4; i++)
		sim_turn(); /* its replicas are forgotten */
}

void node_report(struct sim_node *d)
{
	Hdd__BlockReportRequestProto m = HDD__BLOCK_REPORT_REQUEST_PROTO__INIT;
	Hdd__StorageBlockReportProto list[DISKS], *lists[DISKS];
	struct block_report r[DISKS] = {BLOCK_REPORT_INIT};
	struct sender s;
	struct sim_call c;

	node_scan(d); /* what is corrupt is told before it is counted as good */
	for (uint32_t i = 0; i < d->nreps; i++)
		if (block_report_add(&r[d->rep[i].disk], &d->rep[i].b, reported_state(&d->rep[i])))
			abort();
	sender_init(&s, d);
	for (int i = 0; i < DISKS; i++)
		if (i != d->out)
			lists[m.n_reports++] = list_of(&list[i], &s.storage[i], &r[i]);
	m.registration = &s.reg;
	m.blockpoolid = (char *)(uintptr_t)sim.nn->db->ident.pool_id;
	m.reports = lists;
	d->nnews = 0;
	d->full_report = false;
	if (sim_chance(50))
		fail_disk(d); /* a heartbeat overtakes the report */
	sim_say("%s: reports %u replicas", d->uuid, d->nreps);
	if (node_call(d, &c, "blockReport", &m) < 0 ||
	    (c.out && ((Hdd__BlockReportResponseProto *)c.out)->cmd &&
	     ((Hdd__BlockReportResponseProto *)c.out)->cmd->registercmd))
		say_it_again(d);
	sim_call_end(&c);
	for (int i = 0; i < DISKS; i++)
		block_report_fini(&r[i]);
}

/* The oldest @n. */
static void node_news(struct sim_node *d, uint32_t n)
{
	Hdd__BlockReceivedAndDeletedRequestProto m =
		HDD__BLOCK_RECEIVED_AND_DELETED_REQUEST_PROTO__INIT;
	Hdd__StorageReceivedDeletedBlocksProto list[QUEUE_MAX], *lists[QUEUE_MAX];
	Hdd__ReceivedDeletedBlockInfoProto one[QUEUE_MAX], *ones[QUEUE_MAX];
	Hd__BlockProto b[QUEUE_MAX];
	struct sender s;
	struct sim_call c;

	sender_init(&s, d);
	for (uint32_t i = 0; i < n; i++) {
		hdd__storage_received_deleted_blocks_proto__init(&list[i]);
		hdd__received_deleted_block_info_proto__init(&one[i]);
		hd__block_proto__init(&b[i]);
		b[i].blockid = (uint64_t)d->news[i].b.id;
		b[i].genstamp = d->news[i].b.gs;
		b[i].numbytes = d->news[i].b.len;
		b[i].has_numbytes = 1;
		one[i].block = &b[i];
		one[i].status = d->news[i].status;
		ones[i] = &one[i];
		list[i].storage = &s.storage[d->news[i].disk];
		list[i].storageuuid = s.storage_id[d->news[i].disk];
		list[i].blocks = &ones[i];
		list[i].n_blocks = 1;
		lists[i] = &list[i];
	}
	memmove(d->news, d->news + n, (d->nnews - n) * sizeof(*d->news));
	d->nnews -= n;
	m.registration = &s.reg;
	m.blockpoolid = (char *)(uintptr_t)sim.nn->db->ident.pool_id;
	m.blocks = lists;
	m.n_blocks = n;
	if (node_call(d, &c, "blockReceivedAndDeleted", &m) < 0)
		d->full_report = true; /* what it said is lost */
	sim_call_end(&c);
}

/* Its scanner finds replicas whose bytes changed. */
static void node_scan(struct sim_node *d)
{
	if (d->nnews) /* what it has is known first */
		node_news(d, d->nnews);
	for (uint32_t i = 0; i < d->nreps; i++)
		if (d->rep[i].bad)
			say_corrupt(d, &d->rep[i]);
}

/* ---- orders ---- */

/* At once: a replica that is to go is in no later report. */
static void do_delete(struct sim_node *d, const struct block *b)
{
	struct sim_replica *r = node_find(d, b->id);

	if (!r || r->b.gs != b->gs)
		return;
	check_delete(d, r);
	sim_say("%s: deletes %lld_%llu", d->uuid, (long long)b->id, (unsigned long long)b->gs);
	node_tell(d, &r->b, NEWS_GONE);
	node_remove(d, r);
}

struct sim_order *order_add(struct sim_node *d, const struct block *b, int kind)
{
	struct sim_order *o;

	if (d->norders == QUEUE_MAX)
		return NULL;
	o = &d->order[d->norders++];
	*o = (struct sim_order){.b = *b, .cut = -1};
	o->kind = kind;
	return o;
}

void order_target(struct sim_order *o, const Hd__DatanodeInfoProto *t)
{
	const struct sim_node *to = node_of(t->id->datanodeuuid);

	if (to && o->n < NODES)
		o->to[o->n++] = (int)(to - sim.node);
}

static void take_block_command(struct sim_node *d, const Hdd__BlockCommandProto *c)
{
	const bool copy = c->action == HDD__BLOCK_COMMAND_PROTO__ACTION__TRANSFER;

	for (size_t i = 0; i < c->n_blocks; i++) {
		const struct block b = {(int64_t)c->blocks[i]->blockid, c->blocks[i]->genstamp,
					c->blocks[i]->numbytes};
		struct sim_order *o;

		if (!copy) {
			do_delete(d, &b);
			continue;
		}
		o = order_add(d, &b, SIM_COPY);
		for (size_t k = 0; o && k < c->targets[i]->n_datanodes; k++)
			order_target(o, c->targets[i]->datanodes[k]);
	}
}

static void take_recovery_command(struct sim_node *d, const Hdd__BlockRecoveryCommandProto *c)
{
	for (size_t i = 0; i < c->n_blocks; i++) {
		const Hd__RecoveringBlockProto *r = c->blocks[i];
		const struct block b = {(int64_t)r->block->b->blockid, r->block->b->generationstamp,
					r->block->b->numbytes};
		struct sim_order *o =
			order_add(d, &b, r->ecpolicy ? SIM_RECOVER_GROUP : SIM_RECOVER);

		if (!o)
			continue;
		for (size_t k = 0; r->ecpolicy && k < r->blockindices.len && k < NODES; k++)
			o->unit[k] = r->blockindices.data[k];
		o->new_gs = r->newgenstamp;
		o->all_units = r->has_allunits && r->allunits;
		o->cut = r->truncateblock ? (int64_t)r->truncateblock->numbytes : -1;
		for (size_t k = 0; k < r->block->n_locs; k++)
			order_target(o, r->block->locs[k]);
	}
}

static void node_heartbeat(struct sim_node *d)
{
	Hdd__HeartbeatRequestProto m = HDD__HEARTBEAT_REQUEST_PROTO__INIT;
	Hd__StorageReportProto report[DISKS], *reports[DISKS];
	const Hdd__HeartbeatResponseProto *r;
	struct sender s;
	struct sim_call c;

	sender_init(&s, d);
	m.registration = &s.reg;
	m.reports = reports;
	m.failedvolumes = d->out >= 0;
	for (int i = 0; i < DISKS; i++) {
		Hd__StorageReportProto *p = &report[i];

		hd__storage_report_proto__init(p);
		p->storageuuid = s.storage_id[i];
		p->storage = &s.storage[i];
		p->has_capacity = p->has_remaining = p->has_dfsused = 1;
		p->capacity = 1ull << 40;
		p->dfsused = d->nreps * BLOCK_MAX;
		p->remaining = p->capacity - p->dfsused;
		if (i != d->out)
			reports[m.n_reports++] = p;
	}
	if (node_call(d, &c, "sendHeartbeat", &m) < 0) {
		say_it_again(d);
	} else {
		r = (const Hdd__HeartbeatResponseProto *)c.out;
		for (size_t i = 0; i < r->n_cmds; i++) {
			if (r->cmds[i]->registercmd)
				say_it_again(d);
			if (r->cmds[i]->blkcmd)
				take_block_command(d, r->cmds[i]->blkcmd);
			if (r->cmds[i]->recoverycmd)
				take_recovery_command(d, r->cmds[i]->recoverycmd);
			if (r->cmds[i]->blkecreconstructioncmd)
				group_take_rebuilds(d, r->cmds[i]->blkecreconstructioncmd);
		}
	}
	sim_call_end(&c);
}

static bool is_written(int64_t id)
{
	const int64_t block = ec_id_is_striped(id) ? ec_id_group(id) : id;

	for (int i = 0; i < WRITERS; i++)
		if (sim.writer[i].b.id == block && !sim.writer[i].closed_block)
			return true;
	return false;
}

bool node_takes_copy(struct sim_node *d, const struct block *b)
{
	const struct sim_replica *old = node_find(d, b->id);

	if (!d->up || !old || old->state == REPLICA_FINALIZED || old->state == REPLICA_RUR)
		return d->up && !old;
	return old->b.gs < b->gs ||
	       (old->b.gs == b->gs && old->state == REPLICA_RBW && !is_written(b->id));
}

/* As the store takes a replica from another node: replica_write_open(). */
static void do_copy(struct sim_node *d, const struct sim_order *o)
{
	const struct sim_replica *r = node_find(d, o->b.id);

	for (int i = 0; i < o->n; i++) {
		struct sim_node *to = &sim.node[o->to[i]];
		struct sim_replica *n, copy;

		if (!r || r->state != REPLICA_FINALIZED || r->b.gs != o->b.gs ||
		    r->b.len < o->b.len || !node_takes_copy(to, &o->b))
			return;
		if (r->bad) /* the target finds that out, and the source is blamed */
			return;
		copy = *r;
		n = node_add(to, &copy.b, REPLICA_FINALIZED);
		memcpy(n->byte, copy.byte, sizeof(n->byte));
		n->group_len = copy.group_len;
		node_tell(to, &n->b, NEWS_ONE);
		sim_say("%s: copies %lld_%llu to %s", d->uuid, (long long)o->b.id,
			(unsigned long long)o->b.gs, to->uuid);
	}
}

/* ---- what happens to a node ---- */

static void do_order(struct sim_node *d, uint32_t i)
{
	const struct sim_order o = d->order[i];

	memmove(d->order + i, d->order + i + 1, (--d->norders - i) * sizeof(*d->order));
	switch (o.kind) {
	case SIM_COPY:
		do_copy(d, &o);
		break;
	case SIM_RECOVER:
		node_recover(d, &o);
		break;
	case SIM_RECOVER_GROUP:
		group_recover(d, &o);
		break;
	case SIM_DECODE:
		group_decode(d, &o);
		break;
	}
}

/* Does the power go, too, and take what it writes before it is on the disk? Two others have it. */
static bool is_taken(const struct sim_node *d, const struct sim_replica *r)
{
	uint32_t others = 0;

	if (!sim_may(SIM_LOSS) || r->state != REPLICA_RBW || ec_id_is_striped(r->b.id) ||
	    !sim_chance(20))
		return false;
	for (int i = 0; i < NODES; i++) {
		const struct sim_replica *o =
			&sim.node[i] == d ? NULL : node_find(&sim.node[i], r->b.id);

		others += o && o->b.gs >= r->b.gs && o->b.len >= r->b.len && !o->bad;
	}
	return others >= 2;
}

void node_crash(struct sim_node *d)
{
	sim_say("%s: ends", d->uuid);
	d->up = d->registered = false;
	d->nnews = d->norders = 0;
	for (uint32_t i = 0; i < d->nreps; i++) {
		struct sim_replica *r = &d->rep[i];

		if (r->state == REPLICA_RUR)
			r->state = r->orig;
		if (r->state == REPLICA_TEMPORARY || is_taken(d, r)) {
			sim_say("%s: %lld is gone", d->uuid, (long long)r->b.id);
			node_remove(d, &d->rep[i--]);
		} else if (r->state == REPLICA_RBW) {
			r->state = REPLICA_RWR;
		}
	}
}

void node_start(struct sim_node *d)
{
	sim_say("%s: starts", d->uuid);
	d->up = true;
	d->full_report = true;
	d->beat_ns = 0;
	d->out = sim_chance(50) ? -1 : d->out; /* it was replaced */
}

/* With the NameNode's clock: a heartbeat, before that what it has to say first. */
void node_beat(struct sim_node *d)
{
	if (sim_now_ns() < d->beat_ns)
		return;
	d->beat_ns = sim_now_ns() + BEAT_MS * NS_PER_MS;
	if (!d->up || !d->linked)
		return;
	if (!d->registered)
		node_register(d);
	if (d->registered)
		node_heartbeat(d);
	if (d->registered && d->full_report)
		node_report(d);
	if (sim_may(SIM_LATE))
		return;
	if (d->registered && d->nnews)
		node_news(d, d->nnews);
	node_scan(d);
	while (d->norders && d->up)
		do_order(d, 0);
}

void node_step(struct sim_node *d)
{
	if (!d->up)
		return;
	if (d->norders && sim_chance(60))
		do_order(d, sim_below(d->norders));
	if (d->nnews && d->linked && d->registered && sim_chance(60))
		node_news(d, 1 + sim_below(d->nnews));
	else if (d->linked && d->registered && sim_chance(10))
		node_scan(d);
	else if (d->linked && d->registered && sim_chance(2))
		node_report(d);
}

void node_lose_some(void)
{
	struct sim_node *d = &sim.node[sim_below(NODES)];
	struct sim_replica *r;

	if (!d->nreps || !d->up || !d->linked || !d->registered)
		return;
	if (sim_chance(30)) {
		fail_disk(d);
		return;
	}
	r = &d->rep[sim_below(d->nreps)];
	if (!is_spare(d, r))
		return;
	if (sim_chance(50)) {
		sim_say("%s: loses %lld", d->uuid, (long long)r->b.id);
		node_tell(d, &r->b, NEWS_GONE);
		node_remove(d, r);
		node_news(d, d->nnews);
	} else {
		sim_say("%s: bytes of %lld change", d->uuid, (long long)r->b.id);
		r->bad = true;
		node_scan(d);
	}
}
