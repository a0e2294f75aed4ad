/* SPDX-License-Identifier: Apache-2.0 */
/* fsck: the summary of block groups, in the words of HDFS. */
#include <inttypes.h>

#include "namenode-shim/fsck_internal.h"

static void line(struct fsck *f, const char *what, uint64_t n)
{
	fprintf(f->out, "\n%s%" PRIu64, what, n);
	fsck_percent(f, n, f->ec.blocks);
}

static void count(struct fsck *f, const char *what, uint64_t n)
{
	if (n)
		fprintf(f->out, "\n %s:\t%" PRIu64, what, n);
}

static void say_alarm(struct fsck *f)
{
	static const char stars[] = "\n  ********************************";
	const struct fsck_result *r = &f->ec;

	if (!r->corrupt_files && !r->under_min)
		return;
	fputs(stars, f->out);
	if (r->under_min)
		line(f, "  UNRECOVERABLE BLOCK GROUPS:\t", r->under_min);
	if (r->corrupt_files)
		fprintf(f->out, "\n  CORRUPT FILES:\t%" PRIu64, r->corrupt_files);
	if (r->corrupt_files && r->missing_bytes)
		fprintf(f->out, "\n  MISSING BLOCK GROUPS:\t%" PRIu64 "\n  MISSING SIZE:\t\t%" PRIu64 " B",
			r->missing_blocks, r->missing_bytes);
	if (r->corrupt_files && r->corrupt_blocks)
		fprintf(f->out, "\n  CORRUPT BLOCK GROUPS: \t%" PRIu64 "\n  CORRUPT SIZE:\t\t%" PRIu64 " B",
			r->corrupt_blocks, r->corrupt_bytes);
	fputs(stars, f->out);
}

void fsck_say_striped(struct fsck *f)
{
	const struct fsck_result *r = &f->ec;
	char buf[32];

	fprintf(f->out, " Total size:\t%" PRIu64 " B", r->bytes);
	if (r->open_bytes)
		fprintf(f->out, " (Total open files size: %" PRIu64 " B)", r->open_bytes);
	fprintf(f->out, "\n Total files:\t%" PRIu64, r->files);
	if (r->open_files)
		fprintf(f->out, " (Files currently being written: %" PRIu64 ")", r->open_files);
	fprintf(f->out, "\n Total block groups (validated):\t%" PRIu64, r->blocks);
	if (r->blocks)
		fprintf(f->out, " (avg. block group size %" PRIu64 " B)", r->bytes / r->blocks);
	if (r->open_blocks)
		fprintf(f->out, " (Total open file block groups (not validated): %" PRIu64 ")",
			r->open_blocks);
	say_alarm(f);
	line(f, " Minimally erasure-coded block groups:\t", r->min_replicated);
	line(f, " Over-erasure-coded block groups:\t", r->over);
	line(f, " Under-erasure-coded block groups:\t", r->under);
	line(f, " Unsatisfactory placement block groups:\t", r->misplaced);
	fprintf(f->out, "\n Average block group size:\t%s\n Missing block groups:\t\t%" PRIu64
		"\n Corrupt block groups:\t\t%" PRIu64 "\n Missing internal blocks:\t%" PRIu64,
		fsck_float(r->blocks ? (float)r->replicas / (float)r->blocks : 0.0f, buf),
		r->missing_blocks, r->corrupt_blocks, r->missing_replicas);
	if (r->replicas)
		fsck_percent(f, r->missing_replicas, r->expected);
	count(f, "Decommissioned internal blocks", r->decommissioned);
	count(f, "Decommissioning internal blocks", r->decommissioning);
	count(f, "EnteringMaintenanceReplicas", r->entering_maintenance);
	count(f, "InMaintenanceReplicas", r->in_maintenance);
	fputs("\n Blocks queued for replication:\t0\n", f->out);
}
