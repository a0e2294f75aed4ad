/* SPDX-License-Identifier: Apache-2.0 */
/* Writers, who do what the client library does (sim.h; hdfs-wire 3.6, 5.5). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/simulator/sim.h"

#define RENEW_MS 20000
#define RECEIVED HDD__RECEIVED_DELETED_BLOCK_INFO_PROTO__BLOCK_STATUS__RECEIVED
#define RECEIVING HDD__RECEIVED_DELETED_BLOCK_INFO_PROTO__BLOCK_STATUS__RECEIVING

void writer_init(struct sim_writer *w, int i)
{
	*w = (struct sim_writer){0};
	snprintf(w->name, sizeof(w->name), "w%d", i);
}

/* ---- messages ---- */

static Hd__ExtendedBlockProto extended(const struct block *b)
{
	Hd__ExtendedBlockProto e = HD__EXTENDED_BLOCK_PROTO__INIT;

	e.poolid = sim.nn->db->ident.pool_id;
	e.blockid = (uint64_t)b->id;
	e.generationstamp = b->gs;
	e.numbytes = b->len;
	e.has_numbytes = 1;
	return e;
}

/* Nodes of a message. */
struct node_list {
	Hd__DatanodeIDProto id[NODES], *ids[NODES];
	Hd__DatanodeInfoProto info[NODES], *infos[NODES];
	char storage[NODES][24], *storages[NODES];
	size_t n;
};

/* -1: of a unit that is lost. */
static void list_add_node(struct node_list *l, int node)
{
	static const struct sim_node nobody = {.uuid = "null", .ip = "null"};
	const struct sim_node *d = node < 0 ? &nobody : &sim.node[node];
	const size_t i = l->n++;

	hd__datanode_idproto__init(&l->id[i]);
	hd__datanode_info_proto__init(&l->info[i]);
	l->id[i].ipaddr = l->id[i].hostname = (char *)(uintptr_t)d->ip;
	l->id[i].datanodeuuid = (char *)(uintptr_t)d->uuid;
	l->id[i].xferport = 9866;
	l->id[i].infoport = l->id[i].ipcport = 1;
	l->info[i].id = &l->id[i];
	snprintf(l->storage[i], sizeof(l->storage[i]), "DS-%s-%d", d->uuid, d->out == 0);
	l->ids[i] = &l->id[i];
	l->infos[i] = &l->info[i];
	l->storages[i] = l->storage[i];
}

static void call(struct sim_writer *w, const char *method, const void *m,
		 void (*then)(struct sim_writer *w))
{
	sim_say("%s: %s %s", w->name, method, w->file ? w->file->path : "");
	w->then = then;
	if (w->file)
		w->file->busy = true;
	sim_submit(&w->call, method, m, "10.0.1.1");
}

static void let_go(struct sim_writer *w)
{
	w->file = NULL;
	w->b = (struct block){0};
	w->n = 0;
	w->avoid = 0;
	w->broken = w->closed_block = false;
}

/* Its file stays as it is, open. */
static void give_up(struct sim_writer *w, const char *why)
{
	sim_say("%s: gives up %s: %s", w->name, w->file->path, why);
	if (w->file->state == SIM_OPEN)
		w->file->state = SIM_LEFT;
	let_go(w);
}

void writer_vanish(struct sim_writer *w)
{
	if (!w->file || w->call.busy || w->file->state != SIM_OPEN)
		return;
	give_up(w, "it vanishes");
}

void writer_answered(struct sim_writer *w)
{
	if (w->file)
		w->file->busy = false;
	if (w->to)
		w->to->busy = false;
	if (w->call.rc < 0)
		sim_say("%s: %s: %s", w->name, w->call.method.name, w->call.error);
	w->then(w);
	sim_call_end(&w->call);
	w->to = NULL;
	if (w->file && w->file->state != SIM_OPEN)
		let_go(w);
}

static void then_nothing(struct sim_writer *w)
{
	(void)w;
}

/* Failed, or refused in safe mode: a file that it has open stays so. */
static bool failed(struct sim_writer *w)
{
	if (w->call.rc >= 0)
		return false;
	if (!strstr(w->call.error, "safe mode") && strcmp(w->call.error, "not run") != 0)
		give_up(w, w->call.error);
	return true;
}

void writer_renew(struct sim_writer *w)
{
	Hd__RenewLeaseRequestProto m = HD__RENEW_LEASE_REQUEST_PROTO__INIT;

	if (sim_now_ns() < w->renew_ns || !w->file || w->call.busy)
		return;
	w->renew_ns = sim_now_ns() + RENEW_MS * NS_PER_MS;
	m.clientname = w->name;
	call(w, "renewLease", &m, then_nothing);
}

/* ---- bytes ---- */

static void write_bytes(struct sim_node *d, struct sim_writer *w, struct sim_replica *r,
			uint32_t upto)
{
	(void)d;
	memcpy(r->byte, w->file->byte + w->begins, upto * sizeof(*r->byte));
	r->b.len = upto;
}

/* Bytes up to @upto of the block go down the pipeline; a node that fails breaks it there. */
static bool send_bytes(struct sim_writer *w, uint32_t upto)
{
	for (int i = 0; i < w->n; i++) {
		struct sim_node *d = &sim.node[w->at[i]];
		struct sim_replica *r = d->up ? node_find(d, w->b.id) : NULL;

		if (!r || r->state != REPLICA_RBW || r->b.gs != w->b.gs) {
			w->avoid |= 1u << w->at[i];
			w->broken = true;
			return false;
		}
		write_bytes(d, w, r, upto);
	}
	w->b.len = upto;
	w->file->len = w->begins + upto;
	return true;
}

static void write_some(struct sim_writer *w)
{
	struct sim_file *f = w->file;
	const uint32_t room = BLOCK_MAX - (uint32_t)w->b.len;
	const uint32_t n = 1 + sim_below(room);

	for (uint32_t i = f->tried; i < f->len + n; i++)
		f->byte[i] = ++sim.next_byte;
	f->tried = f->tried > f->len + n ? f->tried : f->len + n;
	(void)send_bytes(w, f->tried - w->begins);
}

/* All of the pipeline finalise it. */
static bool finish_block(struct sim_writer *w)
{
	if (w->closed_block)
		return true;
	if (w->file->tried > w->file->len && !send_bytes(w, w->file->tried - w->begins))
		return false;
	for (int i = 0; i < w->n; i++) {
		struct sim_node *d = &sim.node[w->at[i]];
		struct sim_replica *r = d->up ? node_find(d, w->b.id) : NULL;

		if (!r || r->b.gs != w->b.gs ||
		    (r->state != REPLICA_RBW && r->state != REPLICA_FINALIZED)) {
			w->avoid |= 1u << w->at[i];
			w->broken = true;
			return false;
		}
		if (r->state != REPLICA_RBW)
			continue;
		r->state = REPLICA_FINALIZED;
		node_tell(d, &r->b, RECEIVED);
	}
	w->closed_block = true;
	return true;
}

/* ---- a file made, a block added ---- */

static void then_created(struct sim_writer *w)
{
	const Hd__CreateResponseProto *r = (const Hd__CreateResponseProto *)w->call.out;
	struct sim_file *f = w->file;

	if (w->call.rc < 0) {
		let_go(w);
		return;
	}
	f->state = SIM_OPEN;
	f->id = r->fs->fileid;
	f->len = f->tried = f->begins = 0;
	f->forgotten = false;
	f->ec = w->arg;
	f->repl = r->fs->block_replication;
}

static void create(struct sim_writer *w, struct sim_file *f)
{
	Hd__CreateRequestProto m = HD__CREATE_REQUEST_PROTO__INIT;
	Hd__FsPermissionProto perm = HD__FS_PERMISSION_PROTO__INIT;

	perm.perm = 0644;
	m.src = f->path;
	m.masked = &perm;
	m.clientname = w->name;
	m.createflag = HD__CREATE_FLAG_PROTO__CREATE | HD__CREATE_FLAG_PROTO__OVERWRITE;
	m.createparent = 1;
	m.replication = 1 + sim_below(4);
	m.blocksize = BLOCK_MAX;
	w->arg = sim_may(SIM_EC) && sim_chance(35);
	if (w->arg) {
		m.ecpolicyname = (char *)(uintptr_t) "RS-3-2-1024k";
		m.blocksize = GROUP_BLOCK;
	}
	w->file = f;
	call(w, "create", &m, then_created);
}

static void take_pipeline(struct sim_writer *w, const Hd__LocatedBlockProto *lb)
{
	w->b = (struct block){(int64_t)lb->b->blockid, lb->b->generationstamp, lb->b->numbytes};
	w->closed_block = w->broken = false;
	w->n = 0;
	for (size_t i = 0; i < lb->n_locs; i++) {
		const struct sim_node *d = node_of(lb->locs[i]->id->datanodeuuid);

		if (d && w->n < NODES)
			w->at[w->n++] = (int)(d - sim.node);
	}
}

static void then_abandoned(struct sim_writer *w)
{
	if (!failed(w))
		w->b = (struct block){0};
}

static void then_added(struct sim_writer *w)
{
	Hd__AbandonBlockRequestProto m = HD__ABANDON_BLOCK_REQUEST_PROTO__INIT;
	const Hd__AddBlockResponseProto *r = (const Hd__AddBlockResponseProto *)w->call.out;
	Hd__ExtendedBlockProto e;

	if (w->call.rc < 0) {
		/* "not replicated yet", no node: again later */
		if (strstr(w->call.error, "ease") || strstr(w->call.error, "not exist") ||
		    strstr(w->call.error, "stamp"))
			give_up(w, w->call.error);
		w->avoid = 0;
		return;
	}
	w->begins = w->file->begins = w->file->len;
	w->file->forgotten = false;
	if (w->file->ec) {
		group_setup(w, r->block);
		return;
	}
	take_pipeline(w, r->block);
	for (int i = 0; i < w->n; i++) {
		struct sim_node *d = &sim.node[w->at[i]];

		if (!d->up) {
			w->avoid |= 1u << w->at[i];
			e = extended(&w->b);
			m.b = &e;
			m.src = w->file->path;
			m.holder = w->name;
			m.has_fileid = 1;
			m.fileid = w->file->id;
			sim_call_end(&w->call);
			call(w, "abandonBlock", &m, then_abandoned);
			return;
		}
		(void)node_add(d, &w->b, REPLICA_RBW);
		node_tell(d, &w->b, RECEIVING);
	}
}

static void add_block(struct sim_writer *w)
{
	Hd__AddBlockRequestProto m = HD__ADD_BLOCK_REQUEST_PROTO__INIT;
	Hd__ExtendedBlockProto e = extended(&w->b);
	struct node_list l = {.n = 0};

	for (int i = 0; i < NODES; i++)
		if (w->avoid >> i & 1)
			list_add_node(&l, i);
	m.src = w->file->path;
	m.clientname = w->name;
	m.previous = w->b.id ? &e : NULL;
	m.excludenodes = l.infos;
	m.n_excludenodes = l.n;
	m.has_fileid = 1;
	m.fileid = w->file->id;
	call(w, "addBlock", &m, then_added);
}

/* ---- closed ---- */

static void then_completed(struct sim_writer *w)
{
	const Hd__CompleteResponseProto *r = (const Hd__CompleteResponseProto *)w->call.out;

	if (failed(w) || !r->result)
		return;
	w->file->state = SIM_CLOSED;
	w->file->tried = w->file->len;
}

static void complete(struct sim_writer *w)
{
	Hd__CompleteRequestProto m = HD__COMPLETE_REQUEST_PROTO__INIT;
	Hd__ExtendedBlockProto e = extended(&w->b);

	m.src = w->file->path;
	m.clientname = w->name;
	m.last = w->b.id ? &e : NULL;
	m.has_fileid = 1;
	m.fileid = w->file->id;
	call(w, "complete", &m, then_completed);
}

/* ---- a pipeline mended, or made of an older block ---- */

static void then_piped(struct sim_writer *w)
{
	if (failed(w))
		return;
	w->b.gs = w->next_gs;
	w->broken = false;
	w->closed_block = false;
}

/* The node goes on at the new stamp, as replica_write_open() has it, which finds wrong bytes in the
 * last chunk. */
static bool reopen(struct sim_writer *w, struct sim_node *d)
{
	struct sim_replica *r = d->up ? node_find(d, w->b.id) : NULL;

	if (!r || r->bad || r->b.gs < w->b.gs || r->b.gs > w->next_gs || r->b.len < w->b.len ||
	    (r->state != REPLICA_RBW && r->state != REPLICA_FINALIZED) ||
	    (r->state == REPLICA_FINALIZED && r->b.len != w->b.len))
		return false;
	r->state = REPLICA_RBW;
	r->b.gs = w->next_gs;
	r->b.len = w->b.len;
	return true;
}

/* The acknowledged bytes are copied to a node that joins. */
static void join_node(struct sim_writer *w)
{
	const struct sim_node *from = &sim.node[w->at[0]];
	struct sim_node *d = &sim.node[sim_below(NODES)];
	const struct sim_replica *have;
	struct block b = {w->b.id, w->next_gs, w->b.len};
	struct sim_replica *r;
	uint32_t byte[BLOCK_MAX];

	have = node_find((struct sim_node *)(uintptr_t)from, w->b.id);
	if (!d->up || node_find(d, w->b.id) || !have)
		return;
	memcpy(byte, have->byte, sizeof(byte));
	r = node_add(d, &b, REPLICA_RBW);
	memcpy(r->byte, byte, sizeof(byte));
	w->at[w->n++] = (int)(d - sim.node);
}

static int pipeline_reopen(struct sim_writer *w)
{
	int n = 0;

	for (int i = 0; i < w->n; i++)
		if (!(w->avoid >> w->at[i] & 1) && reopen(w, &sim.node[w->at[i]]))
			w->at[n++] = w->at[i];
	return w->n = n;
}

static void then_stamped(struct sim_writer *w)
{
	const Hd__UpdateBlockForPipelineResponseProto *r =
		(const Hd__UpdateBlockForPipelineResponseProto *)w->call.out;
	Hd__UpdatePipelineRequestProto m = HD__UPDATE_PIPELINE_REQUEST_PROTO__INIT;
	struct node_list l = {.n = 0};
	Hd__ExtendedBlockProto old, new;
	int n = 0;

	if (failed(w))
		return;
	w->next_gs = r->block->b->generationstamp;
	if (w->file->ec)
		n = group_reopen(w);
	else
		n = pipeline_reopen(w);
	if (!n) {
		give_up(w, "too few nodes are left");
		return;
	}
	if (!w->file->ec && sim_chance(50) && w->n < NODES)
		join_node(w);
	for (int i = 0; i < w->n; i++)
		list_add_node(&l, w->at[i]);
	old = extended(&w->b);
	new = old;
	new.generationstamp = w->next_gs;
	m.clientname = w->name;
	m.oldblock = &old;
	m.newblock = &new;
	m.newnodes = l.ids;
	m.storageids = l.storages;
	m.n_newnodes = m.n_storageids = l.n;
	sim_call_end(&w->call);
	if (sim_may(SIM_GONE) && sim_chance(5))
		give_up(w, "it vanishes between two stamps");
	else
		call(w, "updatePipeline", &m, then_piped);
}

static void mend(struct sim_writer *w)
{
	Hd__UpdateBlockForPipelineRequestProto m =
		HD__UPDATE_BLOCK_FOR_PIPELINE_REQUEST_PROTO__INIT;
	Hd__ExtendedBlockProto e = extended(&w->b);

	m.block = &e;
	m.clientname = w->name;
	call(w, "updateBlockForPipeline", &m, then_stamped);
}

/* ---- files that are there ---- */

static void then_appended(struct sim_writer *w)
{
	const Hd__AppendResponseProto *r = (const Hd__AppendResponseProto *)w->call.out;

	if (w->call.rc < 0) {
		let_go(w);
		return;
	}
	w->file->state = SIM_OPEN;
	if (!r->block)
		return;
	take_pipeline(w, r->block);
	w->begins = w->file->len - (uint32_t)w->b.len;
	w->broken = true; /* a new stamp before anything else */
}

static void append(struct sim_writer *w, struct sim_file *f)
{
	Hd__AppendRequestProto m = HD__APPEND_REQUEST_PROTO__INIT;

	w->file = f;
	m.src = f->path;
	m.clientname = w->name;
	call(w, "append", &m, then_appended);
}

static void then_cut(struct sim_writer *w)
{
	const Hd__TruncateResponseProto *r = (const Hd__TruncateResponseProto *)w->call.out;

	if (w->call.rc < 0) {
		let_go(w);
		return;
	}
	w->file->len = w->file->tried = w->arg;
	w->file->state = r->result ? SIM_CLOSED : SIM_CUTTING;
}

static void truncate_file(struct sim_writer *w, struct sim_file *f)
{
	Hd__TruncateRequestProto m = HD__TRUNCATE_REQUEST_PROTO__INIT;

	w->file = f;
	w->arg = sim_below(f->len);
	m.src = f->path;
	m.newlength = w->arg;
	m.clientname = w->name;
	call(w, "truncate", &m, then_cut);
}

static void then_deleted(struct sim_writer *w)
{
	if (w->call.rc >= 0)
		w->file->state = SIM_NONE;
	let_go(w);
}

static void delete_file(struct sim_writer *w, struct sim_file *f)
{
	Hd__DeleteRequestProto m = HD__DELETE_REQUEST_PROTO__INIT;

	w->file = f;
	m.src = f->path;
	call(w, "delete", &m, then_deleted);
}

static void then_renamed(struct sim_writer *w)
{
	struct sim_file *from = w->file;
	char path[sizeof(from->path)];

	if (w->call.rc >= 0) {
		memcpy(path, w->to->path, sizeof(path));
		memcpy(w->to->path, from->path, sizeof(path));
		memcpy(from->path, path, sizeof(path));
	}
	let_go(w);
}

static void rename_file(struct sim_writer *w, struct sim_file *f, struct sim_file *to)
{
	Hd__RenameRequestProto m = HD__RENAME_REQUEST_PROTO__INIT;

	w->file = f;
	w->to = to;
	to->busy = true;
	m.src = f->path;
	m.dst = to->path;
	call(w, "rename", &m, then_renamed);
}

static void then_repl(struct sim_writer *w)
{
	if (w->call.rc >= 0)
		w->file->repl = w->arg;
	let_go(w);
}

static void set_repl(struct sim_writer *w, struct sim_file *f)
{
	Hd__SetReplicationRequestProto m = HD__SET_REPLICATION_REQUEST_PROTO__INIT;

	w->file = f;
	w->arg = 1 + sim_below(4);
	m.src = f->path;
	m.replication = w->arg;
	call(w, "setReplication", &m, then_repl);
}

static void then_recovering(struct sim_writer *w)
{
	let_go(w); /* check_left() sees when it is closed */
}

/* The lease of @f, also from a writer that lives. */
static void recover_lease(struct sim_writer *w, struct sim_file *f)
{
	Hd__RecoverLeaseRequestProto m = HD__RECOVER_LEASE_REQUEST_PROTO__INIT;

	if (f->state == SIM_OPEN)
		f->state = SIM_LEFT;
	for (int i = 0; i < WRITERS; i++)
		if (sim.writer[i].file == f)
			let_go(&sim.writer[i]);
	w->file = f;
	m.src = f->path;
	m.clientname = w->name;
	call(w, "recoverLease", &m, then_recovering);
}

/* ---- what it does next ---- */

static void go_on(struct sim_writer *w)
{
	const bool full = w->b.id && w->file->tried == w->begins + BLOCK_MAX;
	const uint32_t what = sim_below(100);

	if (w->broken) {
		mend(w);
		return;
	}
	if (w->file->ec) {
		if (w->b.id && !group_go_on(w))
			return;
		if (what < 50 && w->file->len < 3 * UNITS_NEEDED * GROUP_BLOCK)
			add_block(w);
		else
			complete(w);
		return;
	}
	if (w->b.id && !full && !w->closed_block && (what < 60 || !w->b.len)) {
		write_some(w);
		return;
	}
	if (w->b.id && !finish_block(w))
		return;
	if (what < 75 && w->file->len + BLOCK_MAX <= FILE_MAX && (!w->b.id || full))
		add_block(w);
	else
		complete(w);
}

static void begin_closed(struct sim_writer *w, struct sim_file *f)
{
	struct sim_file *to = &sim.file[sim_below(FILES)];
	const uint32_t what = sim_below(100);

	if (what < 40 && sim_may(SIM_APPEND) && !f->ec && f->len < FILE_MAX - BLOCK_MAX)
		append(w, f);
	else if (what < 55 && sim_may(SIM_TRUNCATE) && !f->ec && f->len)
		truncate_file(w, f);
	else if (what < 65 && sim_may(SIM_REMOVE))
		delete_file(w, f);
	else if (what < 75 && sim_may(SIM_RENAME) && to->state == SIM_NONE && !to->busy)
		rename_file(w, f, to);
	else if (what < 90 && sim_may(SIM_REPLICATION) && !f->ec)
		set_repl(w, f);
	else if (sim_may(SIM_REMOVE))
		create(w, f);
}

void writer_step(struct sim_writer *w)
{
	struct sim_file *f = &sim.file[sim_below(FILES)];

	if (w->call.busy)
		return;
	if (w->file) {
		go_on(w);
		return;
	}
	if (f->busy || sim.calm)
		return;
	if (f->state == SIM_NONE)
		create(w, f);
	else if (f->state == SIM_CLOSED)
		begin_closed(w, f);
	else if (sim_may(SIM_LEASES) && sim_chance(f->state == SIM_OPEN ? 3 : 20))
		recover_lease(w, f);
}
