/* SPDX-License-Identifier: Apache-2.0 */
/* What must be so in a history, at each deletion and at its end (sim.h). */
#include <string.h>

#include "common/erasure/geometry.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/blocks/blocks.h"
#include "namenode-shim/namespace/inode.h"
#include "namenode-shim/simulator/sim.h"

/* The inode, in *@a. NULL: there is none. */
static struct inode *read_inode(uint64_t id, struct arena *a)
{
	struct inode *n;
	int rc = txn_read_begin(&sim.nn->reader);

	rc = rc ? rc : inode_get(&sim.nn->reader, id, a, &n);
	txn_read_end(&sim.nn->reader);
	return rc ? NULL : n;
}

static uint64_t length_of(const struct inode *n)
{
	uint64_t len = 0;

	for (uint32_t i = 0; i < n->nblocks; i++)
		len += n->blocks[i].b.len;
	return len;
}

bool check_block(int64_t id, struct block *ret, bool *ret_open)
{
	const struct blk *b = blocks_find(&sim.nn->blocks, id);
	struct arena a = {0};
	const struct inode *n = b ? read_inode(b->inode, &a) : NULL;
	bool found = false;

	for (uint32_t i = 0; n && i < n->nblocks && !found; i++) {
		found = n->blocks[i].b.id == (ec_id_is_striped(id) ? ec_id_group(id) : id);
		*ret = n->blocks[i].b;
		if (ec_id_is_striped(id)) {
			ret->id = id;
			ret->len = group_unit_len(ret->len, ec_id_unit(id));
		}
		/* of the last block of a file that is cut no more is needed */
		if (n->truncating && i == n->nblocks - 1 && n->truncate_to < ret->len)
			ret->len = n->truncate_to;
		*ret_open = n->client[0];
	}
	arena_free(&a);
	return found;
}

static bool is_good(const struct sim_replica *r, const struct block *b)
{
	/* a recovery may have begun and come to nothing: it is read and reported as it was */
	return r && (r->state == REPLICA_RUR ? r->orig : r->state) == REPLICA_FINALIZED &&
	       r->b.gs == b->gs && r->b.len == b->len && !r->bad;
}

/* It can be recovered from: it is good, or is written further. */
static bool has_bytes(const struct sim_replica *r, const struct block *b)
{
	return r && r->b.gs >= b->gs && r->b.len >= b->len && !r->bad;
}

/* Does the NameNode count it among those that stay? */
static bool stays(const struct block *b, const struct sim_node *d)
{
	const struct blk *k = blocks_find(&sim.nn->blocks, b->id);

	for (uint16_t i = 0; k && i < k->nreps; i++)
		if (!strcmp(k->rep[i].st->dn->uuid, d->uuid))
			return !k->rep[i].excess && !k->rep[i].corrupt;
	return false;
}

uint32_t check_others(const struct block *b, const struct sim_node *but, bool only_up)
{
	uint32_t n = 0;

	for (int i = 0; i < NODES; i++) {
		struct sim_node *d = &sim.node[i];

		if (d == but)
			continue;
		n += only_up ? is_good(node_find(d, b->id), b) && d->up && stays(b, d)
			     : has_bytes(node_find(d, b->id), b);
	}
	return n;
}

/* In a trace: who has it. */
static void say_holders(int64_t id)
{
	for (int i = 0; i < NODES; i++) {
		const struct sim_replica *r = node_find(&sim.node[i], id);

		if (r)
			sim_say("  %s has %lld_%llu, %llu bytes, state %d%s", sim.node[i].uuid,
				(long long)id, (unsigned long long)r->b.gs,
				(unsigned long long)r->b.len, r->state, r->bad ? ", bad" : "");
	}
}

static void say_block(const struct inode_block *b)
{
	const struct blk *k = blocks_find(&sim.nn->blocks, b->b.id);

	sim_say("block %lld_%llu, %llu bytes%s: the NameNode has %u replicas, %u targets",
		(long long)b->b.id, (unsigned long long)b->b.gs, (unsigned long long)b->b.len,
		b->committed ? ", committed" : "", k ? k->nreps : 0u,
		k && k->open ? k->open->ntargets : 0u);
	for (uint16_t i = 0; k && i < k->nreps; i++)
		sim_say("  on %s: stamp %llu, %llu bytes, state %u%s%s", k->rep[i].st->dn->uuid,
			(unsigned long long)k->rep[i].gs, (unsigned long long)k->rep[i].len,
			k->rep[i].state, k->rep[i].corrupt ? ", corrupt" : "",
			k->rep[i].excess ? ", excess" : "");
	say_holders(b->b.id);
}

void check_delete(const struct sim_node *d, const struct sim_replica *r)
{
	struct block b;
	bool open;

	if (!check_block(r->b.id, &b, &open) || !has_bytes(r, &b))
		return;
	if (ec_id_is_striped(b.id) ? open || group_others(r, d) >= UNITS_NEEDED
				   : check_others(&b, d, false) > 0)
		return;
	say_holders(b.id);
	sim_wrong("%s is told to delete the last good replica of %lld_%llu", d->uuid,
		  (long long)b.id, (unsigned long long)b.gs);
}

static void check_length(struct sim_file *f, uint64_t len)
{
	if (f->forgotten && len == f->begins)
		f->len = f->begins;
	if (len < f->len || len > f->tried)
		sim_wrong("%s is closed with %llu bytes; %u were acknowledged, %u written", f->path,
			  (unsigned long long)len, f->len, f->tried);
	f->len = f->tried = (uint32_t)len;
}

void check_left(void)
{
	for (int i = 0; i < FILES; i++) {
		struct sim_file *f = &sim.file[i];
		struct arena a = {0};
		const struct inode *n;

		if (f->busy || (f->state != SIM_LEFT && f->state != SIM_CUTTING))
			continue;
		n = read_inode(f->id, &a);
		if (!n)
			sim_wrong("%s is gone, and nobody deleted it", f->path);
		else if (!n->client[0]) {
			check_length(f, length_of(n));
			sim_say("%s is closed: %u bytes", f->path, f->len);
			f->state = SIM_CLOSED;
		}
		arena_free(&a);
	}
}

static void check_replicas(const struct sim_file *f, const struct block *b, uint32_t begins)
{
	uint32_t good = 0;

	for (int i = 0; i < NODES; i++) {
		const struct sim_replica *r = node_find(&sim.node[i], b->id);

		if (!r)
			continue;
		if (!is_good(r, b))
			sim_wrong("%s: %s has a replica %lld_%llu of %llu bytes in state %d; it is "
				  "%lld_%llu of %llu bytes",
				  f->path, sim.node[i].uuid, (long long)r->b.id,
				  (unsigned long long)r->b.gs, (unsigned long long)r->b.len,
				  r->state, (long long)b->id, (unsigned long long)b->gs,
				  (unsigned long long)b->len);
		else if (memcmp(r->byte, f->byte + begins, b->len * sizeof(*r->byte)) != 0)
			sim_wrong("%s: %s has other bytes than were written", f->path,
				  sim.node[i].uuid);
		good++;
	}
	if (good != f->repl)
		sim_wrong("%s: block %lld has %u replicas, %u are wanted", f->path,
			  (long long)b->id, good, f->repl);
}

static void check_known(const struct block *b, uint32_t repl)
{
	const struct blk *k = blocks_find(&sim.nn->blocks, b->id);

	if (!k || k->state != BLK_COMPLETE || k->flags & ~(uint32_t)BLK_SAFE ||
	    blk_live(k) != repl || k->npending)
		sim_wrong("block %lld: the NameNode has state %d, flags %x, %u live replicas, %u "
			  "on their way",
			  (long long)b->id, k ? k->state : -1, k ? k->flags : 0u,
			  k ? blk_live(k) : 0u, k ? k->npending : 0u);
}

/* That have bytes. */
static uint32_t group_units(const struct block *b)
{
	uint32_t n = 0;

	for (unsigned u = 0; u < UNITS; u++)
		n += group_unit_len(b->len, u) > 0;
	return n;
}

static void check_file(const struct sim_file *f)
{
	struct arena a = {0};
	const struct inode *n;
	uint32_t begins = 0;

	if (f->state == SIM_NONE)
		return;
	n = read_inode(f->id, &a);
	if (f->state != SIM_CLOSED) {
		sim_wrong("%s is not closed (%d)", f->path, f->state);
		for (uint32_t i = 0; n && i < n->nblocks; i++)
			say_block(&n->blocks[i]);
		arena_free(&a);
		return;
	}
	if (!n || n->client[0] || length_of(n) != f->len)
		sim_wrong("%s has %lld bytes, %u were acknowledged", f->path,
			  n ? (long long)length_of(n) : -1ll, f->len);
	for (uint32_t i = 0; n && i < n->nblocks; i++) {
		if (f->ec)
			group_check(f, &n->blocks[i].b);
		else
			check_replicas(f, &n->blocks[i].b, begins);
		check_known(&n->blocks[i].b, f->ec ? group_units(&n->blocks[i].b) : f->repl);
		begins += (uint32_t)n->blocks[i].b.len;
	}
	arena_free(&a);
}

void check_all(void)
{
	struct block b;
	bool open;

	for (int i = 0; i < FILES; i++)
		check_file(&sim.file[i]);
	for (int i = 0; i < NODES; i++)
		for (uint32_t k = 0; k < sim.node[i].nreps; k++)
			if (!check_block(sim.node[i].rep[k].b.id, &b, &open))
				sim_wrong("%s has a replica of block %lld, which is of no file",
					  sim.node[i].uuid, (long long)sim.node[i].rep[k].b.id);
	if (sim.nn->leases.files)
		sim_wrong("%llu files have a lease still",
			  (unsigned long long)sim.nn->leases.files);
	if (sim.nn->safe.on)
		sim_wrong("it is in safe mode still");
	if (!list_empty(&sim.nn->parked) || !list_empty(&sim.nn->unfinished))
		sim_wrong("calls wait still");
}
