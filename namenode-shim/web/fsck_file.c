/* SPDX-License-Identifier: Apache-2.0 */
/* fsck of one file: its blocks, replicas and racks, and blocks asked for by id. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "namenode-shim/namespace/storage_policy.h"
#include "namenode-shim/namespace/under_construction.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"
#include "namenode-shim/rpc/client_protocol_admin.h"
#include "namenode-shim/web/fsck_internal.h"

const char *const fsck_type_names[8] = {"",         "DISK",     "SSD",    "ARCHIVE",
					"RAM_DISK", "PROVIDED", "NVDIMM", ""};

/* ---- replicas ---- */

struct count {
	uint32_t live, corrupt, excess, stale, decommissioned, decommissioning, entering, in_maint;
	uint32_t total; /* of all that may be counted on */
};

static struct count count_replicas(const struct blk *b)
{
	struct count c = {0};

	for (uint16_t i = 0; i < b->nreps; i++) {
		const struct replica *r = &b->rep[i];
		const struct dn *dn = r->st->dn;

		if (r->state != REPLICA_FINALIZED && b->state == BLK_COMPLETE && !r->corrupt)
			continue;
		if (r->corrupt && r->excess) /* ordered deleted: not counted */
			continue;
		c.stale += dn->stale;
		if (r->corrupt)
			c.corrupt++;
		else if (r->excess)
			c.excess++;
		else if (dn->admin == DN_DECOMMISSIONED)
			c.decommissioned++;
		else if (dn->admin == DN_DECOMMISSIONING)
			c.decommissioning++;
		else if (dn->admin == DN_ENTERING_MAINTENANCE)
			c.entering++;
		else if (dn->admin == DN_IN_MAINTENANCE)
			c.in_maint++;
		else
			c.live++;
	}
	c.total = c.live + c.decommissioned + c.decommissioning + c.entering + c.in_maint;
	return c;
}

static const char *replica_state(const struct fsck *f, const struct replica *r)
{
	const struct dn *dn = r->st->dn;

	if (dn->admin == DN_DECOMMISSIONED)
		return "DECOMMISSIONED";
	if (dn->admin == DN_DECOMMISSIONING)
		return "DECOMMISSIONING";
	if (f->opts.maintenance && dn->admin == DN_ENTERING_MAINTENANCE)
		return "ENTERING MAINTENANCE";
	if (f->opts.maintenance && dn->admin == DN_IN_MAINTENANCE)
		return "IN MAINTENANCE";
	if (r->corrupt)
		return "CORRUPT";
	if (r->excess)
		return "EXCESS";
	if (dn->stale)
		return "STALE_NODE";
	return r->st->reported ? "LIVE" : "STALE_BLOCK_CONTENT";
}

static const char *place_text(struct fsck *f, const struct storage *st)
{
	const struct dn *dn = st->dn;

	if (f->opts.racks)
		return arena_printf(f->ns.a, "%s/%s:%u", dn->rack, dn->ip, dn->xfer_port);
	return arena_printf(f->ns.a, "DatanodeInfoWithStorage[%s:%u,%s,%s]", dn->ip, dn->xfer_port,
			    st->id, fsck_type_names[st->type & 7]);
}

/* " [where, where]"; nothing when nobody wants to know. */
static void add_places(struct fsck *f, const struct blk *b, FILE *out)
{
	const bool open = b->state != BLK_COMPLETE && b->open;
	const uint32_t n = open ? b->open->ntargets : b->nreps;

	if (!f->opts.locations && !f->opts.racks && !f->opts.replica_details &&
	    !f->opts.upgrade_domains)
		return;
	fputs("  [", out);
	for (uint32_t i = 0; i < n; i++) {
		const struct replica as_target = {.st = open ? b->open->target[i] : NULL};
		const struct replica *r = open ? &as_target : &b->rep[i];

		fputs(i ? ", " : "", out);
		if (blk_ec(b))
			fprintf(out, "blk_%" PRId64 ":",
				b->b.id + (open ? b->open->target_unit[i] : r->unit));
		fputs(place_text(f, r->st), out);
		if (f->opts.upgrade_domains)
			fprintf(out, "(ud=%s)",
				*r->st->dn->upgrade_domain ? r->st->dn->upgrade_domain
							   : "undefined");
		if (f->opts.replica_details)
			fprintf(out, "(%s)", replica_state(f, r));
	}
	fputc(']', out);
}

static void count_mix(struct fsck_result *res, unsigned int policy, const struct blk *b)
{
	struct fsck_mix m = {.policy = policy ? policy : POLICY_HOT};
	uint32_t i = 0;

	for (uint16_t k = 0; k < b->nreps; k++)
		m.type[b->rep[k].st->type & 7]++;
	while (i < res->mixes && (res->mix[i].policy != m.policy ||
				  memcmp(res->mix[i].type, m.type, sizeof(m.type)) != 0))
		i++;
	if (i == FSCK_MIXES)
		i--;
	else if (i == res->mixes)
		res->mix[res->mixes++] = m;
	res->mix[i].blocks++;
}

/* ---- one file ---- */

struct file {
	const struct inode *n;
	const char *path;
	struct fsck_result *res; /* what it counts for */
	unsigned int policy;     /* when those are asked for */
	uint64_t missing, missing_bytes, corrupt, corrupt_bytes;
	bool under, misplaced;
	char *report;
	size_t report_len;
	FILE *out; /* into report */
};

/* Replicas or units that there should be, and with how many the block is still there. */
struct demand {
	uint32_t all, least;
};

static struct demand demand_of(const struct fsck *f, const struct inode *n, const struct block *b)
{
	if (!n->ec)
		return (struct demand){n->repl, f->nn->set.repl_min};
	return (struct demand){(uint32_t)__builtin_popcount(ec_units_existing(n->ec, b->len)),
			       ec_units_needed(n->ec, b->len)};
}

static void print_under(struct fsck *f, const struct file *file, const char *name, uint32_t want,
			const struct count *c)
{
	if (!f->opts.files)
		fprintf(f->out, "\n%s: ", file->path);
	fprintf(f->out,
		" Under replicated %s. Target Replicas is %u but found %u live replica(s), %u "
		"decommissioned replica(s), %u decommissioning replica(s)",
		name, want, c->live, c->decommissioned, c->decommissioning);
	if (f->opts.maintenance)
		fprintf(f->out,
			"%u, entering maintenance replica(s) and %u in maintenance replica(s).\n",
			c->entering, c->in_maint);
	else
		fputs(".\n", f->out);
}

static uint32_t topology_of(const struct blk *b)
{
	uint32_t n = 0;

	for (uint16_t i = 0; i < b->nreps; i++) {
		bool seen = false;

		for (uint16_t k = 0; k < i && !seen; k++)
			seen = !strcmp(b->rep[i].st->dn->rack, b->rep[k].st->dn->rack);
		n += !seen;
	}
	return n;
}

static void check_racks(struct fsck *f, struct file *file, const struct blk *b, uint32_t all,
			const char *name)
{
	const uint32_t want = file->n->ec || all < 2 ? all : 2, have = topology_of(b);

	if (f->racks <= 1 || have >= want || have >= f->racks)
		return;
	file->res->misplaced++;
	if (!f->opts.files && !file->under)
		fputc('\n', f->out);
	if (!f->opts.files)
		fprintf(f->out, "%s: ", file->path);
	file->misplaced = true;
	fprintf(f->out,
		" Replica placement policy is violated for %s. Block should be additionally "
		"replicated on %u more rack(s). Total number of racks in the cluster: %u\n",
		name, want - have, f->racks);
}

static void count_block(const struct file *file, const struct demand *want, const struct count *c)
{
	struct fsck_result *res = file->res;

	res->decommissioned += c->decommissioned;
	res->decommissioning += c->decommissioning;
	res->entering_maintenance += c->entering;
	res->in_maintenance += c->in_maint;
	res->replicas += c->total;
	res->expected += want->all;
	res->under_min += c->total < want->least;
	res->min_replicated += c->total >= want->least;
	res->over += c->live > want->all;
}

static void note_short(struct fsck *f, const struct ec_policy *p)
{
	if (p->k + p->m > f->short_of.k + f->short_of.m)
		f->short_of = *p;
}

static void check_block(struct fsck *f, struct file *file, const struct block *stored,
			const struct blk *b, uint32_t number)
{
	static const struct blk nowhere;
	const struct count c = count_replicas(b ? b : &nowhere);
	const struct demand want = demand_of(f, file->n, stored);
	const bool missing = file->n->ec ? c.total < want.least : !c.total;
	const bool all_corrupt = missing && c.corrupt && (file->n->ec || !c.excess);
	const char *name = arena_printf(f->ns.a, "%s:blk_%" PRId64 "_%" PRIu64,
					f->nn->db->ident.pool_id, stored->id, stored->gs);

	count_block(file, &want, &c);
	if (all_corrupt) {
		file->res->corrupt_blocks++;
		file->res->corrupt_bytes += stored->len;
		file->corrupt++;
		file->corrupt_bytes += stored->len;
		fprintf(f->out, "\n%s: CORRUPT blockpool %s block blk_%" PRId64 "\n", file->path,
			f->nn->db->ident.pool_id, stored->id);
	}
	if (c.total < want.all && file->n->ec)
		note_short(f, file->n->ec);
	if (c.total < want.all && !missing) {
		file->res->missing_replicas += want.all - c.total;
		file->res->under++;
		print_under(f, file, name, want.all, &c);
		file->under = true;
	}
	if (b && c.total)
		check_racks(f, file, b, want.all, name);
	if (f->opts.policies && b && b->nreps)
		count_mix(file->res, file->policy, b);
	fprintf(file->out, "%u. %s len=%" PRIu64, number, name, stored->len);
	if (missing && !all_corrupt) {
		fputs(" MISSING!", file->out);
		file->res->missing_blocks++;
		file->res->missing_bytes += stored->len;
		file->missing++;
		file->missing_bytes += stored->len;
	}
	if (!missing || all_corrupt || file->n->ec) {
		fprintf(file->out, " Live_repl=%u", c.live);
		if (b)
			add_places(f, b, file->out);
	}
	fputc('\n', file->out);
}

/* The last block of an open file, while it is written. */
static void report_open(struct fsck *f, struct file *file, const struct inode_block *last,
			const struct blk *b, uint32_t number)
{
	fprintf(file->out,
		"\nUnder Construction Block:\n%u. %s:blk_%" PRId64 "_%" PRIu64 " len=%" PRIu64
		" Expected_repl=%u",
		number, f->nn->db->ident.pool_id, last->b.id, last->b.gs, last->b.len,
		b && b->open ? b->open->ntargets : 0);
	if (b)
		add_places(f, b, file->out);
}

/* Is a block of @n lost now? What the report saw may be over: it reads files and blocks at
 * different times. A block that memory does not know belongs to a change that is under way. */
static bool is_damaged(const struct nn *nn, const struct inode *n)
{
	for (uint32_t i = 0; i < n->nblocks; i++) {
		const struct blk *b = blocks_find(&nn->blocks, n->blocks[i].b.id);

		if (b && count_replicas(b).total <
				 (n->ec ? ec_units_needed(n->ec, n->blocks[i].b.len) : 1))
			return true;
	}
	return false;
}

/* The internal change that removes what cannot be read; it takes its turn with all others. */
static int remove_corrupt(struct req *q, const void *in)
{
	struct inode *n;
	char *path;
	bool done;
	int rc = inode_get(q->ns.t, q->arg, &q->mem, &n);

	(void)in;
	rc = rc ? rc : inode_path(q->ns.t, n, &q->mem, &path);
	if (rc < 0)
		return rc == -ENOENT ? 0 : ns_io(&q->ns, rc);
	if (inode_is_open(n) || !is_damaged(q->nn, n)) {
		log_info("op=fsck kept=%s", path);
		return 0;
	}
	log_warn("op=fsck deleted=%s", path);
	return ns_delete(&q->ns, path, true, &done);
}

static const struct method remove_method = {
	.name = "fsckDelete", .kind = REQ_CHANGE, .run = remove_corrupt};

static void say_damage(struct fsck *f, const struct file *file)
{
	const char *before = f->opts.files ? " " : "\n", *after = f->opts.files ? "\n" : ".";

	if (file->missing)
		fprintf(f->out, "%s%s%sMISSING %" PRIu64 " blocks of total size %" PRIu64 " B%s",
			before, f->opts.files ? "" : file->path, f->opts.files ? "" : ": ",
			file->missing, file->missing_bytes, after);
	if (file->corrupt)
		fprintf(f->out, "%s%s%sCORRUPT %" PRIu64 " blocks of total size %" PRIu64 " B%s",
			before, f->opts.files ? "" : file->path, f->opts.files ? "" : ": ",
			file->corrupt, file->corrupt_bytes, after);
}

static void finish_file(struct fsck *f, const struct file *file)
{
	const bool damaged = file->missing || file->corrupt;

	if (damaged) {
		say_damage(f, file);
		file->res->corrupt_files++;
		if (f->opts.remove && !inode_is_open(file->n)) {
			struct req *q = req_new(f->nn, &remove_method, NULL);

			q->arg = file->n->id;
			nn_submit(f->nn, q);
		}
	}
	if (!f->opts.files)
		return;
	if (!damaged && !file->under && !file->misplaced)
		fputs(" OK\n", f->out);
	if (f->opts.blocks && file->report)
		fprintf(f->out, "%s\n", file->report);
}

/* False: an open file that nobody wants to see. */
static bool summarize_file(struct fsck *f, const struct inode *n, const char *path)
{
	struct fsck_result *res = n->ec ? &f->ec : &f->res;
	const uint64_t len = inode_len(n);
	const bool open = inode_is_open(n);

	if (open && !f->opts.open_files) {
		res->open_files++;
		res->open_bytes += len;
		res->open_blocks += n->nblocks;
		return false;
	}
	res->files++;
	res->bytes += len;
	res->blocks += n->nblocks;
	if ((open && f->opts.open_files) || f->opts.files)
		fprintf(f->out, "%s %" PRIu64 " bytes, %s, %u block(s)%s ", path, len,
			n->ec ? arena_printf(f->ns.a, "erasure-coded: policy=%s", n->ec->name)
			      : arena_printf(f->ns.a, "replicated: replication=%u", n->repl),
			n->nblocks, open ? ", OPENFORWRITE:" : ":");
	else if (res->files % 100 == 0)
		fputc('.', f->out);
	return true;
}

void fsck_file(struct fsck *f, const struct inode *n, const char *path)
{
	struct file file = {.n = n, .path = path, .res = n->ec ? &f->ec : &f->res};
	uint32_t number = 0;

	if (!summarize_file(f, n, path))
		return;
	if (f->opts.policies)
		file.policy = storage_policy_of(f->ns.t, n, f->ns.a);
	file.out = open_memstream(&file.report, &file.report_len);
	if (!file.out)
		return;
	for (uint32_t i = 0; i < n->nblocks; i++) {
		const struct blk *b = blocks_find(&f->nn->blocks, n->blocks[i].b.id);

		if (i + 1 == n->nblocks && inode_is_open(n) && (!b || b->state != BLK_COMPLETE))
			report_open(f, &file, &n->blocks[i], b, number);
		else
			check_block(f, &file, &n->blocks[i].b, b, number++);
	}
	fclose(file.out);
	finish_file(f, &file);
	free(file.report);
}

/* ---- by block id ---- */

static void one_replica(struct fsck *f, const struct replica *r)
{
	const struct dn *dn = r->st->dn;
	const char *state = "HEALTHY";

	if (r->corrupt)
		state = "CORRUPT\t ReasonCode: NONE";
	else if (dn->admin == DN_DECOMMISSIONED)
		state = "DECOMMISSIONED";
	else if (dn->admin == DN_DECOMMISSIONING)
		state = "DECOMMISSIONING";
	else if (f->opts.maintenance && dn->admin == DN_ENTERING_MAINTENANCE)
		state = "ENTERING MAINTENANCE";
	else if (f->opts.maintenance && dn->admin == DN_IN_MAINTENANCE)
		state = "IN MAINTENANCE";
	else if (dn->stale)
		state = "STALE";
	else if (r->excess)
		state = "EXCESS";
	fprintf(f->out, "Block replica on datanode/rack: %s%s is %s\n", dn->host, dn->rack, state);
}

static void one_block(struct fsck *f, const char *text)
{
	const struct blk *b = blocks_find(&f->nn->blocks, strtoll(text + 4, NULL, 10));
	struct count c;
	struct inode *n;
	char *path;

	if (!b || inode_get(f->ns.t, b->inode, f->ns.a, &n) ||
	    inode_path(f->ns.t, n, f->ns.a, &path)) {
		fprintf(f->out, "Block %s does not exist\n", text);
		return;
	}
	c = count_replicas(b);
	fprintf(f->out,
		"Block Id: %s\nBlock belongs to: %s\nNo. of Expected Replica: %u\n"
		"No. of live Replica: %u\nNo. of excess Replica: %u\nNo. of stale Replica: %u\n"
		"No. of decommissioned Replica: %u\nNo. of decommissioning Replica: %u\n",
		text, path, demand_of(f, n, &b->b).all, c.live, c.excess, c.stale, c.decommissioned,
		c.decommissioning);
	if (f->opts.maintenance)
		fprintf(f->out,
			"No. of entering maintenance Replica: %u\nNo. of in maintenance Replica: %u\n",
			c.entering, c.in_maint);
	fprintf(f->out, "No. of corrupted Replica: %u\n", c.corrupt);
	for (uint16_t i = b->nreps; i > 0; i--)
		one_replica(f, &b->rep[i - 1]);
}

void fsck_block_ids(struct fsck *f)
{
	char *list = arena_strdup(f->ns.a, f->opts.block_ids), *save, *id;
	uint32_t n = 0;

	for (id = strtok_r(list, " ", &save); id && n < FSCK_BLOCK_IDS;
	     id = strtok_r(NULL, " ", &save), n++)
		if (strncmp(id, "blk_", 4)) {
			fprintf(f->out, "Incorrect blockId format: %s\n", id);
		} else {
			fputc('\n', f->out);
			one_block(f, id);
		}
}

int fsck_list_corrupt(struct fsck *f)
{
	struct ops_corrupt found;
	int rc = ops_corrupt_files(&f->ns, f->nn, f->opts.path, f->opts.start_after, &found);

	if (rc < 0)
		return rc;
	fprintf(f->out, "Cookie:\t%s\n", found.cookie);
	for (uint32_t i = 0; i < found.n; i++)
		fprintf(f->out, "blk_%" PRId64 "\t%u\t%s\n", found.block[i]->b.id,
			found.block[i]->repl, found.path[i]);
	fprintf(f->out, "\n\nThe filesystem under path '%s' has ", f->opts.path);
	if (found.n)
		fprintf(f->out, "%u", found.n);
	else
		fputs(f->opts.start_after && strcmp(f->opts.start_after, "0") ? "no more" : "no",
		      f->out);
	fputs(" CORRUPT files\n\n", f->out);
	return 0;
}
