/* SPDX-License-Identifier: Apache-2.0 */
/* fsck: the summary, in the words of HDFS. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "namenode-shim/namespace/storage_policy.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/web/fsck_internal.h"

bool fsck_is_healthy(const struct fsck *f)
{
	return !f->res.missing_blocks && !f->res.corrupt_blocks && !f->ec.missing_blocks &&
	       !f->ec.corrupt_blocks;
}

/* ---- of one kind of files ---- */

/* The same figures of replicated and of striped files, which HDFS calls by other names. */
struct words {
	const char *block, *blocks, *BLOCKS; /* what files are made of */
	const char *too_few;                 /* fewer copies than the block needs */
	const char *good, *over, *under, *misplaced;
	const char *average, *missing_copies;
	const char *decommissioned, *decommissioning;
	bool has_factor; /* replication is a setting of the file system */
};

static const struct words replicated = {
	.block = "block",
	.blocks = "blocks",
	.BLOCKS = "BLOCKS",
	.too_few = "UNDER MIN REPL'D BLOCKS",
	.good = "Minimally replicated blocks:\t",
	.over = "Over-replicated blocks:\t",
	.under = "Under-replicated blocks:\t",
	.misplaced = "Mis-replicated blocks:\t\t",
	.average = "Average block replication",
	.missing_copies = "Missing replicas:\t\t",
	.decommissioned = "DecommissionedReplicas",
	.decommissioning = "DecommissioningReplicas",
	.has_factor = true,
};
static const struct words striped = {
	.block = "block group",
	.blocks = "block groups",
	.BLOCKS = "BLOCK GROUPS",
	.too_few = "UNRECOVERABLE BLOCK GROUPS",
	.good = "Minimally erasure-coded block groups:\t",
	.over = "Over-erasure-coded block groups:\t",
	.under = "Under-erasure-coded block groups:\t",
	.misplaced = "Unsatisfactory placement block groups:\t",
	.average = "Average block group size",
	.missing_copies = "Missing internal blocks:\t",
	.decommissioned = "Decommissioned internal blocks",
	.decommissioning = "Decommissioning internal blocks",
};

static const char *float_text(float v, char buf[32])
{
	int digits = 1;

	/* The shortest text that reads back as the same number, and always a fraction: as Java. */
	do
		snprintf(buf, 32, "%.*g", digits, (double)v);
	while (strtof(buf, NULL) != v && digits++ < 9);
	if (strchr(buf, 'e')) /* 1e+02 */
		snprintf(buf, 32, "%.1f", (double)v);
	else if (!strchr(buf, '.'))
		strncat(buf, ".0", 31 - strlen(buf));
	return buf;
}

/* " (12.5 %)", when @of is not 0. */
static void percent(struct fsck *f, uint64_t n, uint64_t of)
{
	char buf[32];

	if (of)
		fprintf(f->out, " (%s %%)", float_text((float)(n * 100) / (float)of, buf));
}

static void line(struct fsck *f, const char *what, uint64_t n, uint64_t of)
{
	fprintf(f->out, "\n %s%" PRIu64, what, n);
	percent(f, n, of);
}

static void count(struct fsck *f, const char *what, uint64_t n)
{
	if (n)
		fprintf(f->out, "\n %s:\t%" PRIu64, what, n);
}

static void say_alarm(struct fsck *f, const struct fsck_result *r, const struct words *w)
{
	static const char stars[] = "\n  ********************************";

	if (!r->corrupt_files && !r->under_min)
		return;
	fputs(stars, f->out);
	if (r->under_min) {
		fprintf(f->out, "\n  %s:\t%" PRIu64, w->too_few, r->under_min);
		percent(f, r->under_min, r->blocks);
	}
	if (r->under_min && w->has_factor)
		fprintf(f->out, "\n  MINIMAL BLOCK REPLICATION:\t%u", f->nn->set.repl_min);
	if (r->corrupt_files)
		fprintf(f->out, "\n  CORRUPT FILES:\t%" PRIu64, r->corrupt_files);
	if (r->corrupt_files && r->missing_bytes)
		fprintf(f->out, "\n  MISSING %s:\t%" PRIu64 "\n  MISSING SIZE:\t\t%" PRIu64 " B",
			w->BLOCKS, r->missing_blocks, r->missing_bytes);
	if (r->corrupt_files && r->corrupt_blocks)
		fprintf(f->out, "\n  CORRUPT %s: \t%" PRIu64 "\n  CORRUPT SIZE:\t\t%" PRIu64 " B",
			w->BLOCKS, r->corrupt_blocks, r->corrupt_bytes);
	fputs(stars, f->out);
}

static void say_totals(struct fsck *f, const struct fsck_result *r, const struct words *w)
{
	fprintf(f->out, " Total size:\t%" PRIu64 " B", r->bytes);
	if (r->open_bytes)
		fprintf(f->out, " (Total open files size: %" PRIu64 " B)", r->open_bytes);
	fprintf(f->out, "\n Total files:\t%" PRIu64, r->files);
	if (r->open_files)
		fprintf(f->out, " (Files currently being written: %" PRIu64 ")", r->open_files);
	fprintf(f->out, "\n Total %s (validated):\t%" PRIu64, w->blocks, r->blocks);
	if (r->blocks)
		fprintf(f->out, " (avg. %s size %" PRIu64 " B)", w->block, r->bytes / r->blocks);
	if (r->open_blocks)
		fprintf(f->out, " (Total open file %s (not validated): %" PRIu64 ")", w->blocks,
			r->open_blocks);
}

static void say_kind(struct fsck *f, const struct fsck_result *r, const struct words *w)
{
	char buf[32];

	say_totals(f, r, w);
	say_alarm(f, r, w);
	line(f, w->good, r->min_replicated, r->blocks);
	line(f, w->over, r->over, r->blocks);
	line(f, w->under, r->under, r->blocks);
	line(f, w->misplaced, r->misplaced, r->blocks);
	if (w->has_factor)
		fprintf(f->out, "\n Default replication factor:\t%u", f->nn->set.replication);
	fprintf(f->out,
		"\n %s:\t%s\n Missing %s:\t\t%" PRIu64 "\n Corrupt %s:\t\t%" PRIu64 "\n %s%" PRIu64,
		w->average,
		float_text(r->blocks ? (float)r->replicas / (float)r->blocks : 0.0f, buf),
		w->blocks, r->missing_blocks, w->blocks, r->corrupt_blocks, w->missing_copies,
		r->missing_replicas);
	if (r->replicas)
		percent(f, r->missing_replicas, r->expected);
	count(f, w->decommissioned, r->decommissioned);
	count(f, w->decommissioning, r->decommissioning);
	count(f, "EnteringMaintenanceReplicas", r->entering_maintenance);
	count(f, "InMaintenanceReplicas", r->in_maintenance);
	fputs("\n Blocks queued for replication:\t0\n", f->out);
}

/* ---- storage policies ---- */

/* As Java sorts and prints them. */
static const uint8_t type_order[] = {STORAGE_RAM_DISK, STORAGE_NVDIMM,  STORAGE_SSD,
				     STORAGE_DISK,     STORAGE_ARCHIVE, STORAGE_PROVIDED};

/* One replica on each of its types, in their order, and all others on the last. */
static bool fits(const struct storage_policy *p, const struct fsck_mix *m)
{
	const uint8_t a = p->create.type[0], b = p->create.type[1];
	uint32_t all = 0, last = 0;

	for (uint32_t t = 0; t < 8; t++)
		all += m->type[t];
	for (uint32_t i = 0; i < sizeof(type_order); i++)
		if (type_order[i] == a || type_order[i] == b)
			last = type_order[i];
	if (!b)
		return all && m->type[a] == all;
	return m->type[last] && m->type[last == a ? b : a] == 1 && m->type[last] == all - 1;
}

/* The first policy that the replicas look like. NULL: none. */
static const struct storage_policy *looks_like(const struct fsck_mix *m)
{
	for (size_t i = 0; i < policy_count; i++)
		if (fits(&policies[i], m))
			return &policies[i];
	return NULL;
}

static bool is_as_wanted(const struct fsck_mix *m)
{
	const struct storage_policy *p = looks_like(m);

	return p && p->id == m->policy;
}

static int by_blocks(const void *a, const void *b)
{
	const uint64_t x = ((const struct fsck_mix *)a)->blocks,
		       y = ((const struct fsck_mix *)b)->blocks;

	return (x < y) - (x > y);
}

static void mix_line(struct fsck *f, const struct fsck_mix *m, uint64_t total)
{
	const struct storage_policy *is = looks_like(m), *wanted = storage_policy_by_id(m->policy);
	const double part = 100.0 * (double)m->blocks / (double)total;
	const char *text = "";

	for (uint32_t i = 0; i < sizeof(type_order); i++)
		if (m->type[type_order[i]])
			text = arena_printf(f->ns.a, "%s%s%s:%u", text, *text ? "," : "",
					    fsck_type_names[type_order[i]], m->type[type_order[i]]);
	if (is)
		text = arena_printf(f->ns.a, "%s(%s)", text, is->name);
	if (is && is->id == m->policy)
		fprintf(f->out, "%-25s %10" PRIu64 "  %19.4f%%\n", text, m->blocks, part);
	else
		fprintf(f->out, "%-35s %-20s %10" PRIu64 "  %19.4f%%\n", text,
			wanted ? wanted->name : "", m->blocks, part);
}

static void say_policies(struct fsck *f)
{
	struct fsck_result *r = &f->res;
	uint64_t total = 0;
	bool others = false;

	for (uint32_t i = 0; i < r->mixes; i++)
		total += r->mix[i].blocks;
	qsort(r->mix, r->mixes, sizeof(r->mix[0]), by_blocks);
	fputs("\nBlocks satisfying the specified storage policy:\n"
	      "Storage Policy                  # of blocks       % of blocks\n",
	      f->out);
	for (uint32_t i = 0; i < r->mixes; i++)
		if (is_as_wanted(&r->mix[i]))
			mix_line(f, &r->mix[i], total);
	for (uint32_t i = 0; i < r->mixes; i++) {
		if (is_as_wanted(&r->mix[i]))
			continue;
		if (!others)
			fputs("\nBlocks NOT satisfying the specified storage policy:\n"
			      "Storage Policy                  Specified Storage Policy      # of "
			      "blocks       % of blocks\n",
			      f->out);
		others = true;
		mix_line(f, &r->mix[i], total);
	}
	if (!others)
		fputs("\nAll blocks satisfy specified storage policy.\n", f->out);
}

/* Not a line of HDFS, and there only when it explains why units stay missing. */
static void say_short(struct fsck *f)
{
	const uint32_t wanted = (uint32_t)f->short_of.k + f->short_of.m,
		       there = datanodes_normal(&f->nn->dns);

	if (wanted > there)
		fprintf(f->out,
			" Too few data-nodes for whole block groups: %s wants %u, there are %u that can take units\n",
			f->short_of.name, wanted, there);
}

void fsck_summary(struct fsck *f, uint32_t live_nodes)
{
	fprintf(f->out,
		"\nStatus: %s\n Number of data-nodes:\t%u\n Number of racks:\t\t%u\n"
		" Total dirs:\t\t\t%" PRIu64 "\n Total symlinks:\t\t%" PRIu64
		"\n\nReplicated Blocks:\n",
		fsck_is_healthy(f) ? "HEALTHY" : "CORRUPT", live_nodes, f->racks, f->dirs,
		f->links);
	say_kind(f, &f->res, &replicated);
	fputs("\nErasure Coded Block Groups:\n", f->out);
	say_kind(f, &f->ec, &striped);
	say_short(f);
	if (f->opts.policies)
		say_policies(f);
}
