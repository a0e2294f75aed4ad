/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/namespace/retry_cache.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/cursor.h"
#include "namenode-shim/db/db.h"

#define TIME_BYTES 8
#define KEY_BYTES (TIME_BYTES + RETRY_ID_MAX + 4)
#define MORE_BYTES 1344 /* 64 ids of stock clients; a record stays within a page of LMDB */

#define SPAN_MS 1000 /* times that are one: an answer may be kept so much longer */

/* The record of the expiry table that is being put together. */
struct retry_cache_times {
	uint8_t key[KEY_BYTES];
	size_t key_len; /* 0: nothing yet */
	uint64_t first_ms, last_ms;
	uint8_t more[MORE_BYTES]; /* length u8 and bytes of each further id */
	size_t more_len;
};

struct retry_cache_times *retry_cache_times_new(void)
{
	return calloc(1, sizeof(struct retry_cache_times));
}

void retry_cache_times_free(struct retry_cache_times *r)
{
	free(r);
}

void retry_cache_times_clear(struct retry_cache_times *r)
{
	if (r)
		r->key_len = r->more_len = 0;
}

struct retry_cache_key retry_cache_key_make(const uint8_t *client_id, uint32_t len, int32_t call_id)
{
	struct retry_cache_key k = {.len = 0};
	struct wr w = wr_init(k.b, sizeof(k.b));

	if (!len || len > RETRY_ID_MAX)
		return k;
	wr_bytes(&w, client_id, len);
	wr_be32(&w, (uint32_t)call_id);
	k.len = len + 4;
	return k;
}

int retry_cache_find(struct txn *t, const struct retry_cache_key *k, const void **ret,
		     uint32_t *ret_len)
{
	MDB_val v;
	int rc = k->len ? txn_get(t, t->db->retry, k->b, k->len, &v) : -ENOENT;

	if (rc < 0)
		return rc;
	*ret = v.mv_data;
	*ret_len = (uint32_t)v.mv_size;
	return 0;
}

static int times_write(struct txn *t, struct retry_cache_times *r)
{
	struct wr w = wr_init(r->key, TIME_BYTES);
	int rc;

	wr_be64(&w, r->last_ms); /* nothing is forgotten too soon */
	rc = r->key_len ? txn_put(t, t->db->expiry, r->key, r->key_len, r->more, r->more_len) : 0;

	retry_cache_times_clear(r);
	return rc;
}

int retry_cache_write_times(struct txn *t)
{
	return t->db->times ? times_write(t, t->db->times) : 0;
}

/* A new record when there is none yet, no room, or another time. */
static int times_add(struct txn *t, struct retry_cache_times *r, const struct retry_cache_key *k,
		     uint64_t expires_ms)
{
	struct wr w;
	int rc = 0;

	if (r->key_len && (r->more_len + 1 + k->len > sizeof(r->more) ||
			   expires_ms > r->first_ms + SPAN_MS || expires_ms < r->first_ms))
		rc = times_write(t, r);
	r->last_ms = r->key_len && r->last_ms > expires_ms ? r->last_ms : expires_ms;
	if (!r->key_len) {
		r->first_ms = expires_ms;
		memcpy(r->key + TIME_BYTES, k->b, k->len);
		r->key_len = TIME_BYTES + k->len;
		return rc;
	}
	w = wr_init(r->more + r->more_len, sizeof(r->more) - r->more_len);
	wr_u8(&w, (uint8_t)k->len);
	wr_bytes(&w, k->b, k->len);
	r->more_len += 1 + k->len;
	return rc;
}

int retry_cache_store(struct txn *t, const struct retry_cache_key *k, uint64_t expires_ms,
		      const void *answer, uint32_t len)
{
	int rc;

	if (!k->len)
		return 0;
	rc = txn_put(t, t->db->retry, k->b, k->len, answer, len);
	return rc ? rc : times_add(t, t->db->times, k, expires_ms);
}

static int forget(struct txn *t, const uint8_t *key, size_t len)
{
	int rc = txn_del(t, t->db->retry, key, len);

	return rc == -ENOENT ? 0 : rc;
}

/* The first record, if its time has come; returns the number of answers, 0: it has not. */
static int purge_first(struct txn *t, MDB_cursor *c, uint64_t now_ms)
{
	uint8_t key[KEY_BYTES], more[MORE_BYTES]; /* a delete may move the page */
	size_t key_len, more_len;
	int rc, n = 1;
	MDB_val k, v;
	struct rd r;

	rc = db_rc(mdb_cursor_get(c, &k, &v, MDB_FIRST));
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	r = rd_init(k.mv_data, k.mv_size);
	if (rd_be64(&r) > now_ms || r.bad)
		return 0;
	key_len = k.mv_size < sizeof(key) ? k.mv_size : sizeof(key);
	more_len = v.mv_size < sizeof(more) ? v.mv_size : sizeof(more);
	memcpy(key, k.mv_data, key_len);
	memcpy(more, v.mv_data, more_len);
	rc = forget(t, key + TIME_BYTES, key_len - TIME_BYTES);
	r = rd_init(more, more_len);
	while (!rc && rd_left(&r)) {
		const size_t len = rd_u8(&r);
		const uint8_t *id = rd_bytes(&r, len);

		if (!id || !len)
			break; /* not of ours */
		rc = forget(t, id, len);
		n++;
	}
	rc = rc ? rc : txn_del(t, t->db->expiry, key, key_len);
	return rc ? rc : n;
}

int retry_cache_purge(struct txn *t, uint64_t now_ms)
{
	MDB_cursor *c;
	int rc = db_rc(mdb_cursor_open(t->t, t->db->expiry, &c));

	if (rc < 0)
		return rc;
	for (int n = 0; n < RETRY_PURGE_BATCH; n += rc) {
		rc = purge_first(t, c, now_ms);
		if (rc <= 0)
			break;
	}
	mdb_cursor_close(c);
	return rc < 0 ? rc : 0;
}
