/* SPDX-License-Identifier: Apache-2.0 */
#include "common/erasure/coder.h"

#include <assert.h>
#include <isa-l/erasure_code.h>
#include <isa-l/raid.h>
#include <stdlib.h>
#include <string.h>

#define TABLE 32u           /* bytes ISA-L makes of one coefficient */
#define SPAN_MAX (1u << 30) /* ISA-L's lengths are ints */
#define ZEROS (16u << 10)   /* at a time where a source has ended */
#define SCRATCH (2u << 10)  /* per unit, on the stack */
#define XOR_ALIGN 32u       /* xor_gen() wants it of every pointer */

/* What stands for the end of a short source. ISA-L only reads it. */
static const uint8_t zeros[ZEROS] __attribute__((aligned(64)));

struct ec_coder {
	struct ec_policy p;
	uint8_t matrix[EC_UNITS_MAX * EC_UNITS_MAX]; /* k + m rows of k: identity, then parity */
	uint32_t keys[EC_CACHED];                    /* of each slot: units read | wanted << 16 */
	uint8_t recent[EC_CACHED];                   /* slots, the latest used first */
	uint32_t used;                               /* slots in use */
	uint64_t hits, misses;
	size_t table_len;  /* of one slot, and of the encode tables: m * k * TABLE */
	uint8_t *decoding; /* EC_CACHED slots; in the same allocation */
	uint8_t encoding[];
};

int ec_coder_new(const struct ec_policy *p, struct ec_coder **ret, struct err *err)
{
	const size_t k = p->k, len = (size_t)p->m * k * TABLE;
	struct ec_coder *c;
	int rc = ec_policy_can_code(p, err);

	if (rc < 0)
		return rc;
	c = calloc(1, sizeof(*c) + len * (1 + EC_CACHED));
	if (!c)
		return err_set(err, -ENOMEM, "no memory for a coder of %s", p->name);
	c->p = *p;
	c->table_len = len;
	c->decoding = c->encoding + len;
	gf_gen_cauchy1_matrix(c->matrix, p->k + p->m, p->k);
	if (p->codec == EC_CODEC_XOR)
		memset(c->matrix + k * k, 1, k);
	ec_init_tables(p->k, p->m, c->matrix + k * k, c->encoding);
	*ret = c;
	return 0;
}

void ec_coder_free(struct ec_coder *c)
{
	free(c);
}

/* ISA-L's prototypes know no const; it writes to the outputs only. */
static unsigned char *writable(const uint8_t *p)
{
	return (unsigned char *)(uintptr_t)p;
}

static bool aligned(unsigned char *const *v, unsigned n)
{
	uintptr_t bits = 0;

	for (unsigned i = 0; i < n; i++)
		bits |= (uintptr_t)v[i];
	return bits % XOR_ALIGN == 0;
}

/* @rows outputs from k vectors of the same length, all of them there. @v: sources, then outputs. */
static void multiply(struct ec_coder *c, uint8_t *tables, unsigned rows, unsigned char **v,
		     size_t len)
{
	const unsigned k = c->p.k;

	/* All coefficients of xor are 1, those of decoding too. It needs two sources. */
	if (c->p.codec == EC_CODEC_XOR && rows == 1 && k > 1 && aligned(v, k + 1)) {
		int rc = xor_gen((int)k + 1, (int)len, (void **)v);

		assert(!rc);
		(void)rc;
		return;
	}
	ec_encode_data((int)len, (int)k, (int)rows, tables, v, v + k);
}

/* The same of sources that may be short: cut where one ends, zeros stand for it from there on. */
static void apply(struct ec_coder *c, uint8_t *tables, unsigned rows, const struct ec_src *src,
		  uint8_t *const *out, size_t len)
{
	const unsigned k = c->p.k;
	unsigned char *v[EC_UNITS_MAX * 2];
	size_t span;

	for (size_t at = 0; at < len; at += span) {
		span = len - at < SPAN_MAX ? len - at : SPAN_MAX;
		for (unsigned i = 0; i < k; i++) {
			const size_t left = src[i].len > at ? src[i].len - at : ZEROS;

			v[i] = writable(src[i].len > at ? src[i].data + at : zeros);
			span = left < span ? left : span;
		}
		for (unsigned i = 0; i < rows; i++)
			v[k + i] = out[i] + at;
		multiply(c, tables, rows, v, span);
	}
}

void ec_encode(struct ec_coder *c, const struct ec_src *data, uint8_t *const *parity, size_t len)
{
	apply(c, c->encoding, c->p.m, data, parity, len);
}

/* ---- decoding ---- */
/* The lowest k bits of @have. */
static uint32_t lowest(const struct ec_coder *c, uint32_t have)
{
	uint32_t set = 0;

	for (unsigned n = c->p.k; n; n--) {
		set |= have & -have;
		have &= have - 1;
	}
	return set;
}

/*
 * The coefficients of the wanted units in terms of those read. With G the matrix and R its rows of
 * the units read, data = R^-1 * read, so a wanted data unit is a row of R^-1 and a wanted parity
 * unit its row of G times R^-1. Any k rows of a Cauchy matrix under the identity can be inverted,
 * and so can the identity with one row exchanged for ones.
 */
static void make_tables(struct ec_coder *c, uint32_t read, uint32_t want, uint8_t *tables)
{
	const unsigned k = c->p.k;
	uint8_t rows[EC_UNITS_MAX * EC_UNITS_MAX], inverse[EC_UNITS_MAX * EC_UNITS_MAX];
	uint8_t coefficients[EC_UNITS_MAX * EC_UNITS_MAX] = {0};
	unsigned n = 0;
	int rc;

	for (unsigned u = 0; u < EC_UNITS_MAX; u++)
		if (read >> u & 1)
			memcpy(rows + k * n++, c->matrix + k * u, k);
	rc = gf_invert_matrix(rows, inverse, (int)k);
	assert(!rc);
	(void)rc;
	n = 0;
	for (unsigned u = 0; u < EC_UNITS_MAX; u++) {
		if (!(want >> u & 1))
			continue;
		for (unsigned i = 0; i < k; i++)
			for (unsigned j = 0; j < k; j++)
				coefficients[k * n + i] ^=
					gf_mul(c->matrix[k * u + j], inverse[k * j + i]);
		n++;
	}
	ec_init_tables((int)k, (int)n, coefficients, tables);
}

static uint8_t *decode_tables(struct ec_coder *c, uint32_t read, uint32_t want)
{
	const uint32_t key = read | want << 16;
	uint32_t i = 0;
	uint8_t slot;

	while (i < c->used && c->keys[c->recent[i]] != key)
		i++;
	if (i < c->used) {
		slot = c->recent[i];
		c->hits++;
	} else {
		if (c->used < EC_CACHED)
			c->recent[c->used] = (uint8_t)c->used, c->used++;
		i = c->used - 1;
		slot = c->recent[i];
		c->keys[slot] = key;
		make_tables(c, read, want, c->decoding + slot * c->table_len);
		c->misses++;
	}
	memmove(c->recent + 1, c->recent, i);
	c->recent[0] = slot;
	return c->decoding + slot * c->table_len;
}

/* Bits of k + m, nothing in both, and enough to go on. */
static int check_sets(const struct ec_coder *c, uint32_t have, uint32_t want, unsigned least)
{
	if ((have | want) >> (c->p.k + c->p.m) || (have & want))
		return -EINVAL;
	return (unsigned)__builtin_popcount(have) < least ? -ENODATA : 0;
}

/* The sources of the set @read, from @at on. */
static void gather(uint32_t read, const struct ec_src *units, size_t at, struct ec_src *ret)
{
	for (; read; read &= read - 1) {
		const struct ec_src *u = units + __builtin_ctz(read);

		*ret++ = u->len > at ? (struct ec_src){u->data + at, u->len - at}
				     : (struct ec_src){0};
	}
}

int ec_decode(struct ec_coder *c, uint32_t have, uint32_t want, const struct ec_src *units,
	      uint8_t *const *out, size_t len)
{
	struct ec_src src[EC_UNITS_MAX];
	uint8_t *to[EC_UNITS_MAX];
	unsigned rows = 0;
	uint32_t read;
	int rc = check_sets(c, have, want, c->p.k);

	if (rc < 0 || !want)
		return rc;
	read = lowest(c, have);
	gather(read, units, 0, src);
	for (uint32_t left = want; left; left &= left - 1)
		to[rows++] = out[__builtin_ctz(left)];
	apply(c, decode_tables(c, read, want), rows, src, to, len);
	return 0;
}

/* Is @expected what there is of @unit in [@at, @at + @len)? */
static bool same(const uint8_t *expected, const struct ec_src *unit, size_t at, size_t len)
{
	const size_t left = unit->len > at ? unit->len - at : 0, n = left < len ? left : len;

	return (!n || !memcmp(expected, unit->data + at, n)) &&
	       !memcmp(expected + n, zeros, len - n);
}

int ec_check(struct ec_coder *c, uint32_t have, const struct ec_src *units, size_t len,
	     uint32_t *ret_differ)
{
	uint8_t expected[EC_UNITS_MAX][SCRATCH] __attribute__((aligned(64)));
	uint8_t *to[EC_UNITS_MAX], *tables;
	struct ec_src src[EC_UNITS_MAX];
	uint32_t read, others, differ = 0;
	size_t span;
	int rc = check_sets(c, have, 0, c->p.k + 1u);

	if (rc < 0)
		return rc;
	read = lowest(c, have);
	others = have & ~read;
	tables = decode_tables(c, read, others);
	for (unsigned i = 0; i < EC_UNITS_MAX; i++)
		to[i] = expected[i];
	for (size_t at = 0; at < len; at += span) {
		unsigned row = 0;

		span = len - at < SCRATCH ? len - at : SCRATCH;
		gather(read, units, at, src);
		apply(c, tables, (unsigned)__builtin_popcount(others), src, to, span);
		for (uint32_t left = others; left; left &= left - 1, row++) {
			const unsigned u = (unsigned)__builtin_ctz(left);

			if (!same(expected[row], units + u, at, span))
				differ |= 1u << u;
		}
	}
	*ret_differ = differ;
	return 0;
}

void ec_coder_cache_stats(const struct ec_coder *c, uint64_t *ret_hits, uint64_t *ret_misses)
{
	*ret_hits = c->hits;
	*ret_misses = c->misses;
}
