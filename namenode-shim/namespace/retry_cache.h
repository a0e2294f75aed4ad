/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * retry_cache - calls that must happen at most once
 *
 * Idea: a client that lost our answer sends the call again with the same client and call id. The
 * answer of a successful call is stored in the transaction of its change, so that the second call
 * gets the first one's answer, also after this process was killed in between. Failures are not
 * stored: a failed call changed nothing and may be tried again.
 * Threading: writer thread, in its transaction.
 * Units: milliseconds.
 * Source: hdfs-wire 1.4; dfs.namenode.retrycache.expirytime.millis.
 */
#include <stdint.h>

struct retry_cache_times;
struct txn;

#define RETRY_ID_MAX 64      /* bytes of a client id; stock clients send 16 */
#define RETRY_PURGE_BATCH 64 /* old answers forgotten per transaction */

struct retry_cache_key {
	uint8_t b[RETRY_ID_MAX + 4];
	uint32_t len; /* 0: the client sent no id, nothing to remember */
};

/** Of one transaction: whose answers it stored, in one record for many. NULL: out of memory. */
struct retry_cache_times *retry_cache_times_new(void);
void retry_cache_times_free(struct retry_cache_times *r);
void retry_cache_times_clear(struct retry_cache_times *r);

struct retry_cache_key retry_cache_key_make(const uint8_t *client_id, uint32_t len,
					    int32_t call_id);
/** The stored answer in place (valid until the transaction's next write). -ENOENT. */
int retry_cache_find(struct txn *t, const struct retry_cache_key *k, const void **ret,
		     uint32_t *ret_len);
/** The time to forget it is written with others' by the commit (retry_cache_write_times()). */
int retry_cache_store(struct txn *t, const struct retry_cache_key *k, uint64_t expires_ms,
		      const void *answer, uint32_t len);
int retry_cache_write_times(struct txn *t);
/** Forget answers that expired, about RETRY_PURGE_BATCH. */
int retry_cache_purge(struct txn *t, uint64_t now_ms);
