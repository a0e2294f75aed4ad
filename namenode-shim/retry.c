/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/retry.h"

#include <string.h>

#include "common/base/cursor.h"
#include "namenode-shim/db.h"

#define TIME_BYTES 8

struct retry_key retry_key_make(const uint8_t *client_id, uint32_t len, int32_t call_id)
{
	struct retry_key k = {.len = 0};
	struct wr w = wr_init(k.b, sizeof(k.b));

	if (!len || len > RETRY_ID_MAX)
		return k;
	wr_bytes(&w, client_id, len);
	wr_be32(&w, (uint32_t)call_id);
	k.len = len + 4;
	return k;
}

int retry_find(struct txn *t, const struct retry_key *k, const void **ret, uint32_t *ret_len)
{
	MDB_val v;
	int rc = k->len ? txn_get(t, t->db->retry, k->b, k->len, &v) : -ENOENT;

	if (rc < 0)
		return rc;
	*ret = v.mv_data;
	*ret_len = (uint32_t)v.mv_size;
	return 0;
}

int retry_store(struct txn *t, const struct retry_key *k, uint64_t expires_ms, const void *answer,
		uint32_t len)
{
	uint8_t e[TIME_BYTES + sizeof(k->b)];
	struct wr w = wr_init(e, sizeof(e));
	int rc;

	if (!k->len)
		return 0;
	wr_be64(&w, expires_ms);
	wr_bytes(&w, k->b, k->len);
	rc = txn_put(t, t->db->retry, k->b, k->len, answer, len);
	return rc ? rc : txn_put(t, t->db->expiry, e, TIME_BYTES + k->len, "", 0);
}

int retry_purge(struct txn *t, uint64_t now_ms)
{
	MDB_cursor *c;
	MDB_val k, v;
	int rc = db_rc(mdb_cursor_open(t->t, t->db->expiry, &c));

	if (rc < 0)
		return rc;
	for (int i = 0; i < RETRY_PURGE_BATCH && !rc; i++) {
		uint8_t id[TIME_BYTES + RETRY_ID_MAX + 4]; /* a delete may move the page */
		size_t len;
		struct rd r;

		rc = db_rc(mdb_cursor_get(c, &k, &v, MDB_FIRST));
		if (rc < 0)
			break;
		r = rd_init(k.mv_data, k.mv_size);
		if (rd_be64(&r) > now_ms || r.bad)
			break;
		len = k.mv_size < sizeof(id) ? k.mv_size : sizeof(id);
		memcpy(id, k.mv_data, len);
		rc = txn_del(t, t->db->retry, id + TIME_BYTES, len - TIME_BYTES);
		if (!rc || rc == -ENOENT)
			rc = txn_del(t, t->db->expiry, id, len);
	}
	mdb_cursor_close(c);
	return rc == -ENOENT ? 0 : rc;
}
