/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * outliers - which peer is slow among peers, and which disk among disks
 *
 * Idea: a node cannot say that a latency is bad, only that it is out of line with the others. Per
 * name this keeps sum and count of samples in windows of five minutes, three hours of them; a name
 * is an outlier when its mean is above max(low threshold, 3 x median, median + 3 x MAD) of all.
 * A write calls outliers_add() once for many samples (at its end): it takes a mutex.
 * Ownership: names are copied. At most OUTLIER_NAMES_MAX of a kind; the one silent for longest
 * goes.
 * Threading: any thread.
 * Units: nanoseconds in, milliseconds out.
 * Source: Hadoop's OutlierDetector, DataNodePeerMetrics and DataNodeDiskMetrics (what they
 * compute).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OUTLIER_NAMES_MAX 1024
#define OUTLIER_NAME_MAX 300

enum outlier_kind {
	/* name "ip:http port" of the next node: from sending a packet to its ack */
	OUTLIER_PEER,
	OUTLIER_DISK_META, /* name: storage id; to prepare and to finalise a replica */
	OUTLIER_DISK_READ,
	OUTLIER_DISK_WRITE,
	OUTLIER_KINDS,
};

struct outlier {
	char name[OUTLIER_NAME_MAX];
	double mean_ms, median_ms, mad_ms, limit_ms;
	uint64_t samples;
};

struct outlier_limits {
	uint64_t samples_min; /* a name with fewer does not count */
	uint64_t names_min;   /* with fewer to compare nobody is out of line */
	uint64_t low_ms;      /* a mean below is fine */
};

/* What one operation adds up before it calls outliers_add(). */
struct outlier_sum {
	uint64_t ns, samples;
};

/** Of a hundred calls with one @seq, @percent are true. */
static inline bool outlier_is_sampled(uint64_t percent, uint32_t *seq)
{
	return percent && (*seq)++ % 100 < percent;
}

struct outliers;

struct outliers *outliers_new(void);
/** Accepts NULL. */
void outliers_free(struct outliers *o);
/** @samples things took @total_ns together. Accepts NULL and no samples. */
void outliers_add(struct outliers *o, enum outlier_kind kind, const char *name, uint64_t total_ns,
		  uint64_t samples);
/** Names that are out of line: at most @max into @list. */
size_t outliers_find(struct outliers *o, enum outlier_kind kind, const struct outlier_limits *l,
		     struct outlier *list, size_t max);
/** All names and their means (median, MAD and limit 0). */
size_t outliers_all(struct outliers *o, enum outlier_kind kind, struct outlier *list, size_t max);
