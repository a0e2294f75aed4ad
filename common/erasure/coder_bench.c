/* SPDX-License-Identifier: Apache-2.0 */
/**
 * erasure_bench [--at-least RATIO] [POLICY SIZE] - the coder beside ISA-L alone, on one core
 *
 * The measure is that of ISA-L's erasure_code_perf: bytes of all units of a stripe per second, in
 * two sizes, `warm` (128 KiB a stripe) and `cold` (32 MiB a stripe), and in a third, `hdfs`, cells
 * of 1 MiB as a pool gives them out, page aligned. Beside it stands ec_encode_data() on the same
 * buffers with tables made before, which is what erasure_code_perf measures. Runs of 30 ms of CPU
 * time alternate, so that what else the machine does hits both alike; the ratio is the median of
 * the runs' ratios. Decoding rebuilds as many data units as there are parity units.
 * With --at-least, exit 1 when a ratio is lower. POLICY and SIZE: that one alone, for who
 * alternates with it.
 */
#include <isa-l/erasure_code.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/erasure/coder.h"

#define RUNS 15
#define RUN_NS 30000000ull
#define MIB (1u << 20)

struct bench {
	const struct ec_policy *p;
	struct ec_coder *c;
	unsigned n; /* k + m */
	size_t len;
	uint8_t *unit[EC_UNITS_MAX], *out[EC_UNITS_MAX];
	struct ec_src src[EC_UNITS_MAX];
	uint8_t tables[EC_UNITS_MAX * EC_UNITS_MAX * 32];
	unsigned char *from[EC_UNITS_MAX], *to[EC_UNITS_MAX]; /* ISA-L's own call */
	uint32_t lost;
};

static uint64_t cpu_ns(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void our_encode(struct bench *b)
{
	ec_encode(b->c, b->src, b->unit + b->p->k, b->len);
}

static void our_decode(struct bench *b)
{
	if (ec_decode(b->c, ((1u << b->n) - 1) & ~b->lost, b->lost, b->src, b->out, b->len) < 0)
		abort();
}

static void isal(struct bench *b)
{
	ec_encode_data((int)b->len, b->p->k, b->p->m, b->tables, b->from, b->to);
}

/* MB/s of all units for one run of @work. */
static double run(struct bench *b, void (*work)(struct bench *))
{
	const uint64_t start = cpu_ns();
	uint64_t bytes = 0, ns;

	do {
		work(b);
		bytes += (uint64_t)b->n * b->len;
		ns = cpu_ns() - start;
	} while (ns < RUN_NS);
	return (double)bytes * 1000 / (double)ns;
}

static int ascending(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v)
{
	qsort(v, RUNS, sizeof(*v), ascending);
	return v[RUNS / 2];
}

/* One line of the table; returns the ratio. */
static double compare(struct bench *b, const char *what, const char *size,
		      void (*ours)(struct bench *))
{
	double a[RUNS], i[RUNS], ratio[RUNS], r;

	(void)run(b, ours); /* caches, and the decode tables */
	(void)run(b, isal);
	for (unsigned t = 0; t < RUNS; t++) {
		a[t] = run(b, ours);
		i[t] = run(b, isal);
		ratio[t] = a[t] / i[t];
	}
	r = median(ratio);
	printf("| %-13s | %s | %s | %8zu | %7.0f | %7.0f | %.2f |\n", b->p->name, what, size,
	       b->len, median(a), median(i), r);
	return r;
}

static void isal_encode_tables(struct bench *b)
{
	const unsigned k = b->p->k;
	uint8_t a[EC_UNITS_MAX * EC_UNITS_MAX];

	gf_gen_cauchy1_matrix(a, (int)b->n, (int)k);
	ec_init_tables((int)k, b->p->m, a + k * k, b->tables);
	for (unsigned u = 0; u < k; u++)
		b->from[u] = b->unit[u];
	for (unsigned r = 0; r < b->p->m; r++)
		b->to[r] = b->unit[k + r];
}

/* As erasure_code_perf does it: the rows of the units left, inverted; the first m units are lost.
 */
static void isal_decode_tables(struct bench *b)
{
	const unsigned k = b->p->k, m = b->p->m;
	uint8_t a[EC_UNITS_MAX * EC_UNITS_MAX], left[EC_UNITS_MAX * EC_UNITS_MAX];
	uint8_t inverse[EC_UNITS_MAX * EC_UNITS_MAX];

	gf_gen_cauchy1_matrix(a, (int)b->n, (int)k);
	memcpy(left, a + k * m, (size_t)k * k);
	if (gf_invert_matrix(left, inverse, (int)k))
		abort();
	ec_init_tables((int)k, (int)m, inverse, b->tables);
	for (unsigned u = 0; u < k; u++)
		b->from[u] = b->unit[m + u];
	for (unsigned r = 0; r < m; r++)
		b->to[r] = b->out[r];
}

static double measure(const struct ec_policy *p, const char *size, size_t len, size_t align)
{
	struct bench b = {.p = p, .n = (unsigned)p->k + p->m, .len = len};
	struct err err = ERR_INIT;
	double least, r;

	if (ec_coder_new(p, &b.c, &err) < 0) {
		fprintf(stderr, "erasure_bench: %s\n", err.text);
		exit(2);
	}
	for (unsigned u = 0; u < b.n; u++) {
		b.unit[u] = aligned_alloc(align, (len + align - 1) / align * align);
		b.out[u] = aligned_alloc(align, (len + align - 1) / align * align);
		if (!b.unit[u] || !b.out[u]) {
			fprintf(stderr, "erasure_bench: no memory\n");
			exit(2);
		}
		for (size_t i = 0; i < len; i++)
			b.unit[u][i] = (uint8_t)(i * 2654435761u >> 13 ^ u * 77);
		memset(b.out[u], 0, len);
		b.src[u] = (struct ec_src){b.unit[u], len};
	}
	isal_encode_tables(&b);
	least = compare(&b, "encode", size, our_encode);
	b.lost = (1u << p->m) - 1;
	isal_decode_tables(&b);
	r = compare(&b, "decode", size, our_decode);
	for (unsigned u = 0; u < p->m; u++)
		if (memcmp(b.out[u], b.unit[u], len)) {
			fprintf(stderr, "erasure_bench: unit %u came back wrong\n", u);
			exit(1);
		}
	for (unsigned u = 0; u < b.n; u++) {
		free(b.unit[u]);
		free(b.out[u]);
	}
	ec_coder_free(b.c);
	return r < least ? r : least;
}

/* The lowest ratio of those sizes that are asked for; NULL: all. */
static double measure_policy(const struct ec_policy *p, const char *only)
{
	const size_t n = (size_t)p->k + p->m;
	const struct {
		const char *name;
		size_t len, align;
	} sizes[] = {
		{"warm", 128 * 1024 / n & ~(size_t)63, 64},
		{"cold", 32 * MIB / n & ~(size_t)63, 64},
		{"hdfs", MIB, 4096},
	};
	double least = 1e9;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		double r;

		if (only && strcmp(only, sizes[i].name))
			continue;
		r = measure(p, sizes[i].name, sizes[i].len, sizes[i].align);
		least = r < least ? r : least;
	}
	return least;
}

int main(int argc, char **argv)
{
	static const unsigned ids[] = {EC_ID_RS_3_2, EC_ID_RS_6_3, EC_ID_RS_10_4, EC_ID_XOR_2_1};
	const bool limit = argc >= 3 && !strcmp(argv[1], "--at-least");
	const double at_least = limit ? strtod(argv[2], NULL) : 0;
	const char *const *only =
		argc == (limit ? 5 : 3) ? (const char *const *)argv + argc - 2 : NULL;
	double least = 1e9;

	if (argc != 1 && !only && !(limit && argc == 3)) {
		fprintf(stderr, "usage: erasure_bench [--at-least RATIO] [POLICY SIZE]\n");
		return 2;
	}
	printf("| policy | | size | bytes a unit | ours MB/s | ISA-L MB/s | ratio |\n|---|---|---|---|---|---|---|\n");
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		const struct ec_policy *p = ec_policy_by_id(ids[i]);
		const double r = only && strcmp(only[0], p->name)
					 ? 1e9
					 : measure_policy(p, only ? only[1] : NULL);

		least = r < least ? r : least;
	}
	if (least == 1e9) {
		fprintf(stderr, "erasure_bench: no such policy or size\n");
		return 2;
	}
	printf("\nlowest ratio %.2f\n", least);
	return least < at_least;
}
