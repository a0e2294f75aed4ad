/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/blocks/located_block.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/wire/ec_msg.h"
#include "namenode-shim/namespace/ecpolicy.h"
#include "namenode-shim/namespace/storage_policy.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"

static char *text(struct arena *a, const char *s)
{
	return arena_strdup(a, s);
}

Hd__ErasureCodingPolicyProto *locate_policy(struct arena *a, const struct ec_policy *p)
{
	Hd__ErasureCodingPolicyProto *m;

	if (!p)
		return NULL;
	m = arena_new(a, Hd__ErasureCodingPolicyProto);
	ec_policy_to_msg(p, arena_new(a, struct ec_policy_msg), m);
	return m;
}

Hd__DatanodeIDProto *locate_dn_id(struct arena *a, const struct dn *dn)
{
	Hd__DatanodeIDProto *id = arena_new(a, Hd__DatanodeIDProto);

	hd__datanode_idproto__init(id);
	id->ipaddr = text(a, dn->ip);
	id->hostname = text(a, dn->host);
	id->datanodeuuid = text(a, dn->uuid);
	id->xferport = dn->xfer_port;
	id->infoport = dn->info_port;
	id->ipcport = dn->ipc_port;
	PB_SET(id, infosecureport, dn->info_secure_port);
	return id;
}

Hd__DatanodeInfoProto *locate_dn(struct arena *a, const struct dn *dn)
{
	Hd__DatanodeInfoProto *i = arena_new(a, Hd__DatanodeInfoProto);
	uint64_t pool_used = 0, non_dfs = 0, blocks = 0;

	hd__datanode_info_proto__init(i);
	for (uint32_t k = 0; k < dn->nstorages; k++) {
		pool_used += dn->storage[k]->pool_used;
		non_dfs += dn->storage[k]->non_dfs;
		blocks += dn->storage[k]->nblocks;
	}
	i->id = locate_dn_id(a, dn);
	PB_SET(i, capacity, dn_capacity(dn));
	PB_SET(i, dfsused, dn_used(dn));
	PB_SET(i, remaining, dn_remaining(dn));
	PB_SET(i, blockpoolused, pool_used);
	PB_SET(i, lastupdate, dn->heard_ms);
	PB_SET(i, lastupdatemonotonic, dn->heard_ns / NS_PER_MS);
	PB_SET(i, xceivercount, dn->xceivers);
	i->location = text(a, dn->rack);
	PB_SET(i, nondfsused, non_dfs);
	PB_SET(i, adminstate, (Hd__DatanodeInfoProto__AdminState)dn->admin);
	if (*dn->upgrade_domain)
		i->upgradedomain = text(a, dn->upgrade_domain);
	PB_SET(i, lastblockreporttime, dn->report_ms);
	PB_SET(i, lastblockreportmonotonic, dn->report_ns / NS_PER_MS);
	PB_SET(i, numblocks, (uint32_t)blocks);
	PB_SET(i, cachecapacity, dn->cache_capacity);
	PB_SET(i, cacheused, dn->cache_used);
	if (dn->stale)
		PB_SET(i, stale, true);
	if (dn->failed_volumes)
		PB_SET(i, failedvolumes, dn->failed_volumes);
	return i;
}

/* Blocks of one answer share the descriptions of their nodes. Readers that are to avoid no stale
 * node are told of none. */
static Hd__DatanodeInfoProto *locate_dn_once(struct req *q, const struct dn *dn)
{
	Hd__DatanodeInfoProto *info;

	for (uint32_t i = 0; i < q->nseen; i++)
		if (q->seen[i].dn == dn)
			return q->seen[i].info;
	info = locate_dn(&q->mem, dn);
	if (q->nn->dns.read_stale)
		PB_SET(info, stale, false);
	if (q->nseen < REQ_SEEN_MAX) {
		q->seen[q->nseen].dn = dn;
		q->seen[q->nseen++].info = info;
	}
	return info;
}

Hd__ExtendedBlockProto *locate_ext_block(const struct req *q, struct arena *a,
					 const struct block *b)
{
	Hd__ExtendedBlockProto *e = arena_new(a, Hd__ExtendedBlockProto);

	hd__extended_block_proto__init(e);
	e->poolid = text(a, q->nn->db->ident.pool_id);
	e->blockid = (uint64_t)b->id;
	e->generationstamp = b->gs;
	PB_SET(e, numbytes, b->len);
	return e;
}

/* It says nothing, but its field is required. */
static Hc__TokenProto *no_token(struct req *q)
{
	Hc__TokenProto *t = req_new_msg(q, Hc__TokenProto, hc__token_proto__init);

	t->kind = text(&q->mem, "");
	t->service = text(&q->mem, "");
	return t;
}

Hd__LocatedBlockProto *locate_bare(struct req *q, const struct block *b, uint64_t offset)
{
	Hd__LocatedBlockProto *l =
		req_new_msg(q, Hd__LocatedBlockProto, hd__located_block_proto__init);

	l->b = locate_ext_block(q, &q->mem, b);
	l->offset = offset;
	l->blocktoken = no_token(q);
	return l;
}

Hd__LocatedBlockProto *locate_on(struct req *q, const struct block *b, uint64_t offset,
				 struct storage *const *st, uint32_t n)
{
	Hd__LocatedBlockProto *l = locate_bare(q, b, offset);

	l->locs = arena_array(&q->mem, Hd__DatanodeInfoProto *, n);
	l->storagetypes = arena_array(&q->mem, Hd__StorageTypeProto, n);
	l->storageids = arena_array(&q->mem, char *, n);
	for (uint32_t i = 0; i < n; i++) {
		l->locs[i] = locate_dn_once(q, st[i]->dn);
		l->storagetypes[i] = (Hd__StorageTypeProto)st[i]->type;
		l->storageids[i] = text(&q->mem, st[i]->id);
	}
	l->n_locs = l->n_storagetypes = l->n_storageids = n;
	return l;
}

void locate_units(struct req *q, Hd__LocatedBlockProto *l, const uint8_t *units, uint32_t n)
{
	uint8_t *index = arena_array(&q->mem, uint8_t, n);
	Hc__TokenProto *none = no_token(q);

	l->blocktokens = arena_array(&q->mem, Hc__TokenProto *, n);
	for (uint32_t i = 0; i < n; i++) {
		index[i] = units ? units[i] : (uint8_t)i;
		l->blocktokens[i] = none;
	}
	l->n_blocktokens = n;
	l->has_blockindices = 1;
	l->blockindices = (ProtobufCBinaryData){n, index};
}

static uint32_t collect(const struct blk *b, bool corrupt, bool excess, struct storage **st)
{
	uint32_t n = 0;

	for (uint16_t i = 0; i < b->nreps; i++) {
		const struct replica *r = &b->rep[i];

		if (r->corrupt != corrupt || r->excess != excess || !storage_is_there(r->st))
			continue;
		if (r->state == REPLICA_FINALIZED || b->state != BLK_COMPLETE || corrupt)
			st[n++] = r->st;
	}
	return n;
}

/* Storages to read @b from; *ret_corrupt when only corrupt replicas are left. */
static uint32_t readable(const struct blk *b, struct storage **st, bool *ret_corrupt)
{
	uint32_t n = 0;

	if (b->open && b->open->ntargets && b->state != BLK_COMPLETE) {
		for (uint32_t i = 0; i < b->open->ntargets; i++)
			if (!(b->open->target[i]->sweep & SWEEP_FORGET))
				st[n++] = b->open->target[i];
		if (n)
			return n;
	}
	n = collect(b, false, false, st);
	n = n ? n : collect(b, false, true, st);
	if (n)
		return n;
	n = collect(b, true, false, st);
	*ret_corrupt = n > 0;
	return n;
}

/* Stale nodes to the end, in their order. */
static void sort_stale(struct storage **st, uint32_t n)
{
	uint32_t fresh = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct storage *s = st[i];

		if (s->dn->stale)
			continue;
		memmove(&st[fresh + 1], &st[fresh], (i - fresh) * sizeof(*st));
		st[fresh++] = s;
	}
}

/* The client's own host first, the others in random order; those that may be dead last. */
static void sort_near(struct req *q, struct storage **st, uint32_t n)
{
	uint64_t seed = clock_mono_ns() | 1;
	uint32_t near = 0;

	for (uint32_t i = n; i > 1; i--) {
		const uint32_t k = (uint32_t)(rng_next(&seed) % i);
		struct storage *tmp = st[i - 1];

		st[i - 1] = st[k];
		st[k] = tmp;
	}
	for (uint32_t i = 0; i < n; i++)
		if (!strcmp(st[i]->dn->ip, q->ns.host)) {
			struct storage *tmp = st[near];

			st[near++] = st[i];
			st[i] = tmp;
		}
	if (!q->nn->dns.read_stale)
		sort_stale(st, n);
}

/* Those of a unit on stale nodes behind the others. */
static int by_unit(const void *a, const void *b)
{
	const struct replica *x = *(const struct replica *const *)a,
			     *y = *(const struct replica *const *)b;

	return x->unit != y->unit ? x->unit - y->unit : x->st->dn->stale - y->st->dn->stale;
}

/* May somebody read the group from @r? A unit is bad for one wrong byte. Once fewer good ones are
 * left than it takes, the other rows of the bad ones may be what is needed, and their CRCs tell:
 * they are named too, as by Apache's NameNode. */
static bool is_unit_named(const struct blk *b, const struct replica *r, bool lost)
{
	if (r->excess || !storage_is_there(r->st))
		return false;
	if (r->corrupt)
		return lost && !(group_readable(b) & 1u << r->unit);
	return r->state == REPLICA_FINALIZED || b->state != BLK_COMPLETE;
}

/* Units of a group to read it from: where its pipelines write, or all that are good. */
static Hd__LocatedBlockProto *locate_group(struct req *q, const struct inode_block *ib,
					   const struct blk *b, uint64_t offset)
{
	struct storage **st = arena_array(&q->mem, struct storage *, b->nreps + EC_UNITS_MAX);
	const struct replica **rep = arena_array(&q->mem, const struct replica *, b->nreps + 1u);
	uint8_t *units = arena_array(&q->mem, uint8_t, b->nreps + EC_UNITS_MAX);
	const bool open = b->state != BLK_COMPLETE && b->open && b->open->ntargets;
	const bool lost =
		(b->flags & BLK_CORRUPT) && blk_readable(b) < ec_units_needed(blk_ec(b), ib->b.len);
	Hd__LocatedBlockProto *l;
	uint32_t n = 0, reps = 0;

	for (uint32_t i = 0; open && i < b->open->ntargets; i++) {
		if (b->open->target[i]->sweep & SWEEP_FORGET)
			continue;
		units[n] = b->open->target_unit[i];
		st[n++] = b->open->target[i];
	}
	for (uint16_t i = 0; !open && i < b->nreps; i++)
		if (is_unit_named(b, &b->rep[i], lost))
			rep[reps++] = &b->rep[i];
	qsort(rep, reps, sizeof(*rep), by_unit);
	for (uint32_t i = 0; i < reps; i++) {
		units[n] = rep[i]->unit;
		st[n++] = rep[i]->st;
	}
	l = locate_on(q, &ib->b, offset, st, n);
	locate_units(q, l, units, n);
	l->corrupt = lost;
	return l;
}

/* Which of its nodes have it cached; nothing is said where none has. */
static void locate_cached(struct req *q, const struct blk *b, Hd__LocatedBlockProto *l,
			  struct storage *const *st, uint32_t n)
{
	const struct cache_monitor *c = &q->nn->cache;

	if (!c->map || !cache_monitor_count(c, b))
		return;
	l->iscached = arena_array(&q->mem, protobuf_c_boolean, n);
	l->n_iscached = n;
	for (uint32_t i = 0; i < n; i++)
		l->iscached[i] = cache_monitor_has(c, b, st[i]->dn);
}

static Hd__LocatedBlockProto *locate_block(struct req *q, const struct inode_block *ib,
					   uint64_t offset, bool *ret_complete)
{
	const struct blk *b = blocks_find(&q->nn->blocks, ib->b.id);
	Hd__LocatedBlockProto *l;
	struct storage **st;
	bool corrupt = false;
	uint32_t n;

	*ret_complete = b && b->state == BLK_COMPLETE;
	if (!b) {
		l = locate_bare(q, &ib->b, offset);
		if (ec_id_is_striped(ib->b.id))
			locate_units(q, l, NULL, 0);
		return l;
	}
	if (blk_ec(b))
		return locate_group(q, ib, b, offset);
	st = arena_array(&q->mem, struct storage *,
			 (size_t)b->nreps + (b->open ? b->open->ntargets : 0) + 1);
	n = readable(b, st, &corrupt);
	sort_near(q, st, n);
	l = locate_on(q, &ib->b, offset, st, n);
	locate_cached(q, b, l, st, n);
	l->corrupt = corrupt;
	return l;
}

Hd__LocatedBlocksProto *locate_file(struct req *q, const struct inode *f, uint64_t offset,
				    uint64_t len)
{
	Hd__LocatedBlocksProto *l =
		req_new_msg(q, Hd__LocatedBlocksProto, hd__located_blocks_proto__init);
	const uint64_t end = len > UINT64_MAX - offset ? UINT64_MAX : offset + len;
	uint64_t pos = 0, last_pos = 0;
	bool complete = false;

	l->blocks = arena_array(&q->mem, Hd__LocatedBlockProto *, f->nblocks);
	for (uint32_t i = 0; i < f->nblocks; i++) {
		const struct inode_block *b = &f->blocks[i];
		const bool open_end = i + 1 == f->nblocks && inode_is_open(f);

		if (pos < end && (pos + b->b.len > offset || (open_end && pos >= offset)))
			l->blocks[l->n_blocks++] = locate_block(q, b, pos, &complete);
		last_pos = pos;
		pos += b->b.len;
	}
	l->filelength = pos;
	l->ecpolicy = locate_policy(&q->mem, f->ec);
	l->underconstruction = inode_is_open(f);
	if (!f->nblocks)
		return l;
	l->lastblock = locate_block(q, &f->blocks[f->nblocks - 1], last_pos, &complete);
	/* A closed file's last block counts as complete, whatever the nodes said so far. */
	l->islastblockcomplete = complete || !inode_is_open(f);
	if (!l->islastblockcomplete)
		l->filelength = last_pos;
	return l;
}

Hd__HdfsFileStatusProto *locate_status(struct req *q, const struct inode *n, const char *name,
				       bool with_blocks)
{
	Hd__HdfsFileStatusProto *s =
		req_new_msg(q, Hd__HdfsFileStatusProto, hd__hdfs_file_status_proto__init);
	Hd__FsPermissionProto *p =
		req_new_msg(q, Hd__FsPermissionProto, hd__fs_permission_proto__init);
	const bool dir = n->type == INODE_DIR, link = n->type == INODE_LINK;
	const struct ec_policy *ec = NULL;

	p->perm = n->perm;
	s->filetype = dir    ? HD__HDFS_FILE_STATUS_PROTO__FILE_TYPE__IS_DIR
		      : link ? HD__HDFS_FILE_STATUS_PROTO__FILE_TYPE__IS_SYMLINK
			     : HD__HDFS_FILE_STATUS_PROTO__FILE_TYPE__IS_FILE;
	s->path = (ProtobufCBinaryData){strlen(name), (uint8_t *)text(&q->mem, name)};
	s->length = dir ? 0 : inode_len(n);
	s->permission = p;
	s->owner = text(&q->mem, n->owner);
	s->group = text(&q->mem, n->group);
	s->modification_time = n->mtime;
	s->access_time = n->atime;
	PB_SET(s, block_replication, dir ? 0 : n->repl);
	PB_SET(s, blocksize, dir ? 0 : n->block_size);
	PB_SET(s, fileid, n->id);
	PB_SET(s, childrennum, dir ? (int32_t)n->children : 0);
	PB_SET(s, storagepolicy, link ? POLICY_NONE : storage_policy_of(q->ns.t, n, &q->mem));
	if (link) {
		s->has_symlink = 1;
		s->symlink = (ProtobufCBinaryData){strlen(n->target),
						   (uint8_t *)text(&q->mem, n->target)};
	}
	/* A damaged row shows where something is created; a listing does without. */
	if (!link)
		(void)ecdir_of(q->ns.t, n, &q->mem, &ec);
	s->ecpolicy = locate_policy(&q->mem, ec);
	PB_SET(s, flags,
	       (n->id == INODE_ROOT ? HD__HDFS_FILE_STATUS_PROTO__FLAGS__SNAPSHOT_ENABLED : 0u) |
		       (n->has & INODE_HAS_ACL ? HD__HDFS_FILE_STATUS_PROTO__FLAGS__HAS_ACL : 0u) |
		       (ec ? HD__HDFS_FILE_STATUS_PROTO__FLAGS__HAS_EC : 0u));
	if (with_blocks && !dir && !link)
		s->locations = locate_file(q, n, 0, UINT64_MAX);
	return s;
}

static void report_bad(struct req *q, const Hd__LocatedBlockProto *l, size_t k)
{
	const struct block b = {(int64_t)l->b->blockid, l->b->generationstamp, 0};
	const struct dn *dn = datanodes_find(&q->nn->dns, l->locs[k]->id->datanodeuuid);
	struct storage *st = dn && k < l->n_storageids ? dn_storage(dn, l->storageids[k]) : NULL;

	if (dn)
		blocks_report_corrupt(&q->nn->blocks, &b, dn, st, q->datanode);
}

int locate_report_bad(struct req *q, Hd__LocatedBlockProto *const *blocks, size_t n)
{
	for (uint32_t done = 0; q->at < n; done++) {
		if (nn_slice_is_done(q->nn, done))
			return REQ_PARK;
		if (q->within < blocks[q->at]->n_locs) {
			report_bad(q, blocks[q->at], q->within++);
		} else {
			q->at++;
			q->within = 0;
		}
	}
	return 0;
}
