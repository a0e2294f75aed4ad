/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* block_report_test_fixture - a whole block report is read at once: for tests and fuzzers. */
#include "common/wire/block_report.h"

/* Called once per replica; a non-zero return stops and is passed on. */
typedef int (*block_report_fn)(void *arg, const struct block *b, uint32_t state);

/* Whichever format @p holds. */
static inline int block_report_each(const Hdd__StorageBlockReportProto *p, block_report_fn fn,
				    void *arg)
{
	struct block_report_rd r = block_report_rd(p);
	struct block b;
	uint32_t state;
	int rc;

	while ((rc = block_report_next(&r, &b, &state)) > 0) {
		rc = fn(arg, &b, state);
		if (rc)
			return rc;
	}
	return rc;
}

static inline int block_report_decode(ProtobufCBinaryData *chunks, size_t n, uint64_t count,
				      block_report_fn fn, void *arg)
{
	Hdd__StorageBlockReportProto p = HDD__STORAGE_BLOCK_REPORT_PROTO__INIT;

	p.has_numberofblocks = true;
	p.numberofblocks = count;
	p.blocksbuffers = chunks;
	p.n_blocksbuffers = n;
	return block_report_each(&p, fn, arg);
}

static inline int block_report_decode_longs(const uint64_t *v, size_t n, block_report_fn fn,
					    void *arg)
{
	Hdd__StorageBlockReportProto p = HDD__STORAGE_BLOCK_REPORT_PROTO__INIT;

	p.blocks = (uint64_t *)(uintptr_t)v; /* only read */
	p.n_blocks = n;
	return block_report_each(&p, fn, arg);
}
