/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/namespace/cache_rows.h"

#include <endian.h>
#include <string.h>

#include "common/base/cursor.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/db/db.h"

#define IDS_KEY "cache_ids" /* in meta: of the next directive and pool */
#define POOL_FIXED 68       /* bytes of a row without its strings */
#define DIRECTIVE_FIXED 30
#define STRING_MAX UINT16_MAX

uint64_t cache_times(uint64_t bytes, int repl)
{
	uint64_t all;

	if (__builtin_mul_overflow(bytes, (uint64_t)(repl > 0 ? repl : 0), &all) || all > INT64_MAX)
		return INT64_MAX;
	return all;
}

/* ---- strings ---- */

static void put_text(struct wr *w, const char *s)
{
	const size_t len = strlen(s);

	wr_be16(w, (uint16_t)len);
	wr_bytes(w, s, len);
}

static const char *get_text(struct rd *r, struct arena *a)
{
	const size_t len = rd_be16(r);
	const uint8_t *p = rd_bytes(r, len);

	return p ? arena_strndup(a, (const char *)p, len) : "";
}

/* ---- pools ---- */

static int pool_decode(const MDB_val *k, const MDB_val *v, struct arena *a, struct cache_pool *ret)
{
	struct rd r = rd_init(v->mv_data, v->mv_size);

	*ret = (struct cache_pool){.name = arena_strndup(a, k->mv_data, k->mv_size)};
	ret->id = rd_be64(&r);
	ret->mode = rd_be16(&r);
	ret->repl = (int16_t)rd_be16(&r);
	ret->limit = (int64_t)rd_be64(&r);
	ret->max_expiry_ms = (int64_t)rd_be64(&r);
	ret->given.bytes = rd_be64(&r);
	ret->given.files = rd_be64(&r);
	ret->taken.bytes = rd_be64(&r);
	ret->taken.files = rd_be64(&r);
	ret->owner = get_text(&r, a);
	ret->group = get_text(&r, a);
	return r.bad || rd_left(&r) || ret->limit < 0 || ret->max_expiry_ms < 0 ? -EBADMSG : 0;
}

int cache_pool_put(struct txn *t, const struct cache_pool *p)
{
	uint8_t b[POOL_FIXED + 2 * CACHE_POOL_NAME_MAX];
	struct wr w = wr_init(b, sizeof(b));

	wr_be64(&w, p->id);
	wr_be16(&w, p->mode);
	wr_be16(&w, (uint16_t)p->repl);
	wr_be64(&w, (uint64_t)p->limit);
	wr_be64(&w, (uint64_t)p->max_expiry_ms);
	wr_be64(&w, p->given.bytes);
	wr_be64(&w, p->given.files);
	wr_be64(&w, p->taken.bytes);
	wr_be64(&w, p->taken.files);
	put_text(&w, p->owner);
	put_text(&w, p->group);
	return w.bad ? -EINVAL
		     : txn_put(t, t->db->cachepool, p->name, strlen(p->name), b, (size_t)(w.p - b));
}

int cache_pool_get(struct txn *t, struct arena *a, const char *name, struct cache_pool *ret)
{
	const size_t len = strlen(name);
	MDB_val k = {len, (void *)(uintptr_t)name}, v;
	int rc = len && len <= CACHE_POOL_NAME_MAX ? txn_get(t, t->db->cachepool, name, len, &v)
						   : -ENOENT;

	return rc ? rc : pool_decode(&k, &v, a, ret);
}

/* The first row of @dbi whose key is greater than @key; no @len: the first of all. */
static int next_row(struct txn *t, MDB_dbi dbi, const void *key, size_t len, MDB_val *k, MDB_val *v)
{
	MDB_cursor *c;
	int rc = db_rc(mdb_cursor_open(t->t, dbi, &c));

	if (rc < 0)
		return rc;
	*k = (MDB_val){len, (void *)(uintptr_t)key};
	rc = db_rc(mdb_cursor_get(c, k, v, len ? MDB_SET_RANGE : MDB_FIRST));
	if (!rc && len && k->mv_size == len && !memcmp(k->mv_data, key, len))
		rc = db_rc(mdb_cursor_get(c, k, v, MDB_NEXT));
	mdb_cursor_close(c);
	return rc;
}

int cache_pool_next(struct txn *t, struct arena *a, const char *after, struct cache_pool *ret)
{
	/* a longer one is beyond what LMDB compares, and its beginning is no other one's name */
	const size_t len = strnlen(after, CACHE_POOL_NAME_MAX + 1);
	MDB_val k, v;
	int rc = next_row(t, t->db->cachepool, after, len, &k, &v);

	return rc ? rc : pool_decode(&k, &v, a, ret);
}

int cache_pool_del(struct txn *t, const char *name)
{
	return txn_del(t, t->db->cachepool, name, strlen(name));
}

/* ---- directives ---- */

static int directive_decode(const MDB_val *k, const MDB_val *v, struct arena *a,
			    struct cache_directive *ret)
{
	struct rd id = rd_init(k->mv_data, k->mv_size), r = rd_init(v->mv_data, v->mv_size);

	*ret = (struct cache_directive){.id = (int64_t)rd_be64(&id)};
	ret->rev = rd_be32(&r);
	ret->repl = (int16_t)rd_be16(&r);
	ret->expiry_ms = (int64_t)rd_be64(&r);
	ret->need.bytes = rd_be64(&r);
	ret->need.files = rd_be64(&r);
	ret->pool = get_text(&r, a);
	ret->path = get_text(&r, a);
	return id.bad || r.bad || rd_left(&r) || ret->repl <= 0 || ret->id <= 0 ? -EBADMSG : 0;
}

int cache_directive_put(struct txn *t, const struct cache_directive *d)
{
	const size_t len = DIRECTIVE_FIXED + 4 + strlen(d->pool) + strlen(d->path);
	const uint64_t key = htobe64((uint64_t)d->id);
	struct wr w;
	void *to;
	int rc = strlen(d->path) > STRING_MAX
			 ? -EINVAL
			 : txn_reserve(t, t->db->cachedir, &key, sizeof(key), len, &to);

	if (rc < 0)
		return rc;
	w = wr_init(to, len);
	wr_be32(&w, d->rev);
	wr_be16(&w, (uint16_t)d->repl);
	wr_be64(&w, (uint64_t)d->expiry_ms);
	wr_be64(&w, d->need.bytes);
	wr_be64(&w, d->need.files);
	put_text(&w, d->pool);
	put_text(&w, d->path);
	return 0;
}

int cache_directive_get(struct txn *t, struct arena *a, int64_t id, struct cache_directive *ret)
{
	const uint64_t key = htobe64((uint64_t)id);
	MDB_val k = {sizeof(key), (void *)(uintptr_t)&key}, v;
	int rc = txn_get(t, t->db->cachedir, &key, sizeof(key), &v);

	return rc ? rc : directive_decode(&k, &v, a, ret);
}

int cache_directive_next(struct txn *t, struct arena *a, int64_t after, struct cache_directive *ret)
{
	const uint64_t key = htobe64(after > 0 ? (uint64_t)after : 0);
	MDB_val k, v;
	int rc = next_row(t, t->db->cachedir, &key, sizeof(key), &k, &v);

	return rc ? rc : directive_decode(&k, &v, a, ret);
}

int cache_directive_del(struct txn *t, int64_t id)
{
	const uint64_t key = htobe64((uint64_t)id);

	return txn_del(t, t->db->cachedir, &key, sizeof(key));
}

/* ---- counts and ids ---- */

static uint64_t count(struct txn *t, MDB_dbi dbi)
{
	MDB_stat st;

	return mdb_stat(t->t, dbi, &st) ? 0 : st.ms_entries;
}

uint64_t cache_pools_count(struct txn *t)
{
	return count(t, t->db->cachepool);
}

uint64_t cache_directives_count(struct txn *t)
{
	return count(t, t->db->cachedir);
}

int cache_ids(struct txn *t, int64_t *ret_directive, uint64_t *ret_pool)
{
	struct rd r;
	MDB_val v;
	int rc = txn_get(t, t->db->meta, IDS_KEY, strlen(IDS_KEY), &v);

	*ret_directive = 1;
	*ret_pool = 1;
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	r = rd_init(v.mv_data, v.mv_size);
	*ret_directive = (int64_t)rd_be64(&r);
	*ret_pool = rd_be64(&r);
	return r.bad || *ret_directive <= 0 ? -EBADMSG : 0;
}

int cache_set_ids(struct txn *t, int64_t directive, uint64_t pool)
{
	uint8_t b[2 * sizeof(uint64_t)];
	struct wr w = wr_init(b, sizeof(b));

	wr_be64(&w, (uint64_t)directive);
	wr_be64(&w, pool);
	return txn_put(t, t->db->meta, IDS_KEY, strlen(IDS_KEY), b, sizeof(b));
}
