/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * client - what the parts of a simulated client share
 *
 * client_work.c changes files and reads them; client_check.c looks at the end whether all is as the
 * ledger says.
 */
#include "client/include/dfsclient.h"
#include "client/include/dfsclient_ext.h"
#include "tests/simulator/ledger.h"

#define BLOCK (64u << 10)
#define CELL 4096u
#define DATA_UNITS 3u
#define PARITY_UNITS 2u
#define STRIPED "RS-3-2-4k"

extern struct ledger *ledger;
extern struct dfs *fs;

uint64_t now_ns(void);
void pause_ms(uint64_t ms);
/** The history is wrong: the first one says how, and clients end. */
void wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void name_of(uint32_t number, char path[32]);
/** The number of bytes of @f that must be there. */
uint64_t least(const struct file *f);
/** The number of bytes at the beginning of @buf that are right. */
uint64_t good_bytes(const struct file *f, const uint8_t *buf, uint64_t n);
/** 0 or the failure that ended it; *@got in any case. A read that fails gives none of its bytes:
 * those before the bad place come one by one. */
int read_all(const char *path, uint8_t *buf, size_t size, size_t *got, struct dfs_err *err);

/** @threads workers from @first on, until the ledger tells them to end. */
void work_all(uint32_t first, uint32_t threads, uint64_t seed);
void check_all(void);
