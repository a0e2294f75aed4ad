/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/namespace/inode.h"

#include <errno.h>
#include <string.h>

#include "common/base/cursor.h"
#include "common/erasure/geometry.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/db/db.h"
#include "namenode-shim/namespace/acl.h"
#include "namenode-shim/namespace/dircache.h"
#include "namenode-shim/namespace/ecpolicy.h"
#include "namenode-shim/namespace/quota.h"
#include "namenode-shim/namespace/storage_policy.h"
#include "namenode-shim/namespace/xattr.h"

#define RECORD_VERSION 1
/* of a file with an erasure-coding policy: that of the other, and the policy */
#define RECORD_STRIPED 2
#define RECORD_LONG 2  /* added to the version: of a file with rows of blocks */
#define LONG_BYTES 20  /* rows, bytes of data and of units in them */
#define POLICY_BYTES 8 /* id, codec, k, m, cell */
#define BLOCK_BYTES 25 /* id, stamp, length, committed */
#define STRINGS 5
#define HAS_SHIFT 12     /* the bits of enum inode_has are above those of the mode */
#define TRUNCATE_BYTES 8 /* at the end of the record of a file that is being truncated */

struct key {
	uint8_t b[8 + INODE_NAME_MAX];
	size_t len;
};

static struct key key_make(uint64_t id, const void *name, size_t len)
{
	struct key k = {.len = 8 + len};
	struct wr w = wr_init(k.b, sizeof(k.b));

	wr_be64(&w, id);
	wr_bytes(&w, name, len);
	return k;
}

uint32_t inode_nblocks(const struct inode *n)
{
	return (n->tail ? n->rows * INODE_ROW_BLOCKS : 0) + n->nblocks;
}

uint64_t inode_len(const struct inode *n)
{
	uint64_t len = n->tail ? n->tail_len : 0;

	for (uint32_t i = 0; i < n->nblocks; i++)
		len += n->blocks[i].b.len;
	return len;
}

uint64_t inode_block_max(const struct inode *n)
{
	return n->ec ? ec_group_capacity(n->ec, n->block_size) : n->block_size;
}

static uint64_t striped_space(const struct inode *n, const struct inode_block *last)
{
	uint64_t sum = n->tail ? n->tail_space : 0;

	for (uint32_t i = 0; i < n->nblocks; i++)
		sum += &n->blocks[i] == last && inode_is_open(n) && !last->committed
			       ? (n->ec->k + n->ec->m) * n->block_size
			       : ec_space(n->ec, n->blocks[i].b.len);
	return sum;
}

uint64_t inode_space(const struct inode *n)
{
	const struct inode_block *last = n->nblocks ? &n->blocks[n->nblocks - 1] : NULL;
	uint64_t len = inode_len(n);

	if (n->ec)
		return striped_space(n, last);
	if (last && inode_is_open(n) && !last->committed && last->b.len < n->block_size)
		len += n->block_size - last->b.len;
	return len * n->repl;
}

/* ---- the record ---- */

static const char *get_str(struct rd *r, struct arena *a)
{
	const uint16_t len = rd_be16(r);
	const uint8_t *p = rd_bytes(r, len);

	return p ? arena_strndup(a, (const char *)p, len) : "";
}

static void put_str(struct wr *w, const char *s)
{
	const size_t len = strlen(s);

	wr_be16(w, (uint16_t)len);
	wr_bytes(w, s, len);
}

static void get_some(struct rd *r, struct inode_block *b, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		b[i].b.id = (int64_t)rd_be64(r);
		b[i].b.gs = rd_be64(r);
		b[i].b.len = rd_be64(r);
		b[i].committed = rd_u8(r) != 0;
	}
}

static void put_some(struct wr *w, const struct inode_block *b, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		wr_be64(w, (uint64_t)b[i].b.id);
		wr_be64(w, b[i].b.gs);
		wr_be64(w, b[i].b.len);
		wr_u8(w, b[i].committed);
	}
}

static void get_blocks(struct rd *r, struct arena *a, struct inode *n)
{
	n->nblocks = rd_be32(r);
	if (n->nblocks > rd_left(r) / BLOCK_BYTES) {
		r->bad = true;
		return;
	}
	n->blocks = arena_array(a, struct inode_block, n->nblocks);
	get_some(r, n->blocks, n->nblocks);
}

static void get_rows(struct rd *r, struct inode *n)
{
	n->rows = rd_be32(r);
	n->tail_len = rd_be64(r);
	n->tail_space = rd_be64(r);
	n->tail = true;
	if (!n->rows || n->rows > UINT32_MAX / INODE_ROW_BLOCKS - 2)
		r->bad = true;
}

/* A block's id tells everybody whether it is a group: in a striped file all are, in others none. */
static bool blocks_fit(const struct inode *n)
{
	for (uint32_t i = 0; i < n->nblocks; i++) {
		const struct block *b = &n->blocks[i].b;

		if (ec_id_is_striped(b->id) != (n->ec != NULL))
			return false;
		if (n->ec && (ec_id_unit(b->id) || !ec_length_ok(b->len)))
			return false;
	}
	return true;
}

static void put_policy(struct wr *w, const struct ec_policy *p)
{
	wr_u8(w, p->id);
	wr_u8(w, (uint8_t)p->codec);
	wr_u8(w, p->k);
	wr_u8(w, p->m);
	wr_be32(w, p->cell);
}

static const struct ec_policy *get_policy(struct rd *r, struct arena *a)
{
	const uint8_t id = rd_u8(r), codec = rd_u8(r), k = rd_u8(r), m = rd_u8(r);
	const uint32_t cell = rd_be32(r);
	const struct ec_policy *own = ec_policy_by_id(id);
	struct ec_policy p, *copy;

	if (r->bad || id > EC_ID_LAST ||
	    ec_policy_make((enum ec_codec)codec, k, m, cell, id, &p, NULL) < 0 ||
	    (own && !ec_policy_same(own, &p))) {
		r->bad = true;
		return NULL;
	}
	if (own)
		return own;
	copy = arena_new(a, struct ec_policy);
	*copy = p;
	return copy;
}

/* Without the blocks in rows. */
static int decode(const MDB_val *v, uint64_t id, struct arena *a, struct inode **ret)
{
	struct rd r = rd_init(v->mv_data, v->mv_size);
	struct inode *n = arena_new(a, struct inode);
	const uint8_t said = rd_u8(&r);
	const bool is_long = said > RECORD_LONG;
	const uint8_t version = is_long ? said - RECORD_LONG : said;
	uint16_t bits;

	if (version != RECORD_VERSION && version != RECORD_STRIPED)
		return -EBADMSG;
	n->id = id;
	n->type = rd_u8(&r);
	bits = rd_be16(&r);
	n->perm = bits & INODE_PERM;
	n->has = (uint8_t)(bits >> HAS_SHIFT);
	n->repl = rd_be16(&r);
	n->children = rd_be32(&r);
	n->parent = rd_be64(&r);
	n->mtime = rd_be64(&r);
	n->atime = rd_be64(&r);
	n->block_size = rd_be64(&r);
	n->ec = version == RECORD_STRIPED ? get_policy(&r, a) : NULL;
	n->name = get_str(&r, a);
	n->owner = get_str(&r, a);
	n->group = get_str(&r, a);
	n->client = get_str(&r, a);
	n->client_host = get_str(&r, a);
	n->listed = inode_is_open(n) ? LISTED_YES : LISTED_NO;
	if (is_long)
		get_rows(&r, n);
	get_blocks(&r, a, n);
	n->truncating = n->client[0] && rd_left(&r) >= TRUNCATE_BYTES;
	n->truncate_to = n->truncating ? rd_be64(&r) : 0;
	if (n->type == INODE_LINK)
		n->target = get_str(&r, a);
	if (r.bad || n->type < INODE_DIR || n->type > INODE_LINK || !blocks_fit(n))
		return -EBADMSG;
	*ret = n;
	return 0;
}

/* The blocks that are in the record itself. */
struct in_record {
	const struct inode_block *blocks;
	uint32_t count;
};

static struct in_record in_record(const struct inode *n)
{
	const uint32_t before = n->tail ? 0 : n->rows * INODE_ROW_BLOCKS;

	return (struct in_record){n->blocks + before, n->nblocks - before};
}

/* -EINVAL: a text that the record has no room for; they are checked where they come in. */
static int record_bytes(const struct inode *n, size_t *ret)
{
	const char *s[STRINGS] = {n->name, n->owner, n->group, n->client, n->client_host};
	size_t len = 1 + 1 + 2 + 2 + 4 + 4 * 8 + 4 + (size_t)in_record(n).count * BLOCK_BYTES +
		     (n->rows ? LONG_BYTES : 0);

	for (int i = 0; i < STRINGS; i++) {
		const size_t chars = strlen(s[i]);

		if (chars > UINT16_MAX)
			return -EINVAL;
		len += 2 + chars;
	}
	if (n->type == INODE_LINK && strlen(n->target) > UINT16_MAX)
		return -EINVAL;
	len += n->type == INODE_LINK ? 2 + strlen(n->target) : 0;
	*ret = len + (n->truncating ? TRUNCATE_BYTES : 0) + (n->ec ? POLICY_BYTES : 0);
	return 0;
}

static void encode(struct wr *w, const struct inode *n)
{
	const struct in_record blocks = in_record(n);

	wr_u8(w,
	      (uint8_t)((n->ec ? RECORD_STRIPED : RECORD_VERSION) + (n->rows ? RECORD_LONG : 0)));
	wr_u8(w, n->type);
	wr_be16(w, (uint16_t)(n->perm | n->has << HAS_SHIFT));
	wr_be16(w, n->repl);
	wr_be32(w, n->children);
	wr_be64(w, n->parent);
	wr_be64(w, n->mtime);
	wr_be64(w, n->atime);
	wr_be64(w, n->block_size);
	if (n->ec)
		put_policy(w, n->ec);
	put_str(w, n->name);
	put_str(w, n->owner);
	put_str(w, n->group);
	put_str(w, n->client);
	put_str(w, n->client_host);
	if (n->rows) {
		wr_be32(w, n->rows);
		wr_be64(w, n->tail_len);
		wr_be64(w, n->tail_space);
	}
	wr_be32(w, blocks.count);
	put_some(w, blocks.blocks, blocks.count);
	if (n->truncating)
		wr_be64(w, n->truncate_to);
	if (n->type == INODE_LINK)
		put_str(w, n->target);
}

/* Readers see what was committed, and the directories of a change belong to its transaction. */
static struct dircache *dirs_of(const struct txn *t)
{
	return t->write ? t->db->dirs : NULL;
}

/* ---- rows of blocks ---- */

struct row_key {
	uint8_t b[8 + 4];
};

static struct row_key row_key(uint64_t id, uint32_t row)
{
	struct row_key k;
	struct wr w = wr_init(k.b, sizeof(k.b));

	wr_be64(&w, id);
	wr_be32(&w, row);
	return k;
}

/* All of a file that was decoded without them. */
static int read_rows(struct txn *t, struct arena *a, struct inode *n)
{
	const uint32_t before = n->rows * INODE_ROW_BLOCKS;
	struct inode_block *all = NULL;

	if (!n->tail)
		return 0;
	/* From the last one: a damaged number of rows takes no memory. */
	for (uint32_t i = n->rows; i-- > 0;) {
		const struct row_key k = row_key(n->id, i);
		MDB_val v;
		struct rd r;
		int rc = txn_get(t, t->db->blocks, k.b, sizeof(k.b), &v);

		if (rc < 0)
			return rc == -ENOENT ? -EBADMSG : rc;
		all = all ?: arena_array(a, struct inode_block, (size_t)before + n->nblocks);
		r = rd_init(v.mv_data, v.mv_size);
		get_some(&r, all + (size_t)i * INODE_ROW_BLOCKS, INODE_ROW_BLOCKS);
		if (r.bad || rd_left(&r))
			return -EBADMSG;
	}
	if (n->nblocks)
		memcpy(all + before, n->blocks, n->nblocks * sizeof(*all));
	n->blocks = all;
	n->nblocks += before;
	n->tail = false;
	return blocks_fit(n) ? 0 : -EBADMSG;
}

/* Unless the disk has it just so. */
static int put_row(struct txn *t, uint64_t id, uint32_t row, const struct inode_block *b,
		   bool is_there)
{
	const struct row_key k = row_key(id, row);
	uint8_t now[INODE_ROW_BLOCKS * BLOCK_BYTES];
	struct wr w = wr_init(now, sizeof(now));
	MDB_val v;

	put_some(&w, b, INODE_ROW_BLOCKS);
	if (is_there && !txn_get(t, t->db->blocks, k.b, sizeof(k.b), &v) &&
	    v.mv_size == sizeof(now) && !memcmp(v.mv_data, now, sizeof(now)))
		return 0;
	return txn_put(t, t->db->blocks, k.b, sizeof(k.b), now, sizeof(now));
}

static int del_rows(struct txn *t, uint64_t id, uint32_t from, uint32_t to)
{
	int rc = 0;

	for (uint32_t i = from; i < to && !rc; i++) {
		const struct row_key k = row_key(id, i);

		rc = txn_del(t, t->db->blocks, k.b, sizeof(k.b));
	}
	return rc;
}

static void count_row(struct inode *n, const struct inode_block *b)
{
	for (uint32_t i = 0; i < INODE_ROW_BLOCKS; i++) {
		n->tail_len += b[i].b.len;
		n->tail_space += n->ec ? ec_space(n->ec, b[i].b.len) : 0;
	}
}

/* What has come to the end of a file becomes rows, when it is enough. */
static int grow_rows(struct txn *t, struct inode *n)
{
	int rc = 0;

	while (n->nblocks >= 2 * INODE_ROW_BLOCKS && !rc) {
		rc = put_row(t, n->id, n->rows++, n->blocks, false);
		count_row(n, n->blocks);
		n->blocks += INODE_ROW_BLOCKS;
		n->nblocks -= INODE_ROW_BLOCKS;
	}
	return rc;
}

/* All rows of a file whose blocks are all here. */
static int put_rows(struct txn *t, struct inode *n)
{
	const uint32_t had = n->rows;
	int rc = 0;

	n->rows = n->nblocks >= 2 * INODE_ROW_BLOCKS ? n->nblocks / INODE_ROW_BLOCKS - 1 : 0;
	n->tail_len = n->tail_space = 0;
	for (uint32_t i = 0; i < n->rows && !rc; i++) {
		const struct inode_block *b = n->blocks + (size_t)i * INODE_ROW_BLOCKS;

		rc = put_row(t, n->id, i, b, i < had);
		count_row(n, b);
	}
	return rc ? rc : del_rows(t, n->id, n->rows, had);
}

/* ---- inodes ---- */

static int get(struct txn *t, uint64_t id, struct arena *a, struct inode **ret)
{
	const uint64_t key = htobe64(id);
	MDB_val v;
	int rc;

	v.mv_data = (void *)(uintptr_t)dircache_get(dirs_of(t), id, &v.mv_size);
	if (v.mv_data)
		return decode(&v, id, a, ret);
	rc = txn_get(t, t->db->inodes, &key, sizeof(key), &v);
	rc = rc < 0 ? rc : decode(&v, id, a, ret);
	if (!rc && (*ret)->type == INODE_DIR)
		dircache_add(dirs_of(t), id, (*ret)->parent, (*ret)->name, v.mv_data, v.mv_size);
	return rc;
}

/* Keep the table of open files. A file that stays as it is costs nothing. */
static int list_open(struct txn *t, uint64_t key, struct inode *n)
{
	const enum inode_listed wanted = inode_is_open(n) ? LISTED_YES : LISTED_NO;
	int rc;

	if (n->type != INODE_FILE || n->listed == wanted)
		return 0;
	rc = wanted == LISTED_YES ? txn_put(t, t->db->open, &key, sizeof(key), "", 0)
				  : txn_del(t, t->db->open, &key, sizeof(key));
	if (rc == -ENOENT)
		rc = 0;
	if (!rc)
		n->listed = wanted;
	return rc;
}

int inode_get(struct txn *t, uint64_t id, struct arena *a, struct inode **ret)
{
	int rc = get(t, id, a, ret);

	return rc ? rc : read_rows(t, a, *ret);
}

int inode_get_tail(struct txn *t, uint64_t id, struct arena *a, struct inode **ret)
{
	int rc = get(t, id, a, ret);

	return rc || (*ret)->nblocks >= 2 ? rc : read_rows(t, a, *ret);
}

int inode_put(struct txn *t, struct inode *n)
{
	const uint64_t key = htobe64(n->id);
	size_t len = 0;
	struct wr w;
	void *to = NULL;
	int rc = n->tail ? grow_rows(t, n) : put_rows(t, n);

	rc = rc ? rc : record_bytes(n, &len);
	if (!rc && n->type == INODE_DIR)
		to = dircache_change(dirs_of(t), n->id, n->parent, n->name, len);
	if (!rc && !to)
		rc = txn_reserve(t, t->db->inodes, &key, sizeof(key), len, &to);
	if (rc < 0)
		return rc;
	w = wr_init(to, len);
	encode(&w, n);
	return list_open(t, key, n);
}

static int write_changed(void *arg, uint64_t id, const void *record, size_t len)
{
	struct txn *t = arg;
	const uint64_t key = htobe64(id);

	return txn_put(t, t->db->inodes, &key, sizeof(key), record, len);
}

int inode_write_changed(struct txn *t)
{
	return dircache_each_changed(dirs_of(t), write_changed, t);
}

int inode_del(struct txn *t, const struct inode *n)
{
	const uint64_t key = htobe64(n->id);
	int rc = txn_del(t, t->db->inodes, &key, sizeof(key));

	dircache_drop(dirs_of(t), n->id);
	rc = rc ? rc : del_rows(t, n->id, 0, n->rows);
	if (!rc && inode_is_open(n))
		rc = txn_del(t, t->db->open, &key, sizeof(key));
	if (!rc && n->type == INODE_DIR)
		rc = quota_del(t, n->id);
	if (!rc && n->type == INODE_DIR)
		rc = ecdir_del(t, n->id);
	if (!rc && n->has & INODE_HAS_XATTRS)
		rc = xattrs_del(t, n->id);
	if (!rc && n->has & INODE_HAS_ACL)
		rc = acl_del(t, n->id);
	return rc ? rc : storage_policy_del(t, n->id);
}

int inode_copy_rows(struct txn *t, uint64_t from, uint64_t to, struct arena *a)
{
	const MDB_dbi tables[] = {t->db->xattr, t->db->acl, t->db->policy};
	const uint64_t key = htobe64(from), new_key = htobe64(to);
	int rc = 0;

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]) && !rc; i++) {
		MDB_val v;

		rc = txn_get(t, tables[i], &key, sizeof(key), &v);
		if (rc == -ENOENT)
			rc = 0;
		else if (!rc) /* a write may move what was read */
			rc = txn_put(t, tables[i], &new_key, sizeof(new_key),
				     arena_strndup(a, v.mv_data, v.mv_size), v.mv_size);
	}
	return rc;
}

uint64_t inode_new_id(struct txn *t)
{
	return ++t->ctr.inode;
}

/* ---- directory entries ---- */

int dirent_get(struct txn *t, uint64_t parent, const char *name, size_t len, uint64_t *ret_id)
{
	MDB_val v;
	struct key k;
	struct rd r;
	int rc;

	if (len > INODE_NAME_MAX)
		return -ENOENT;
	if (dircache_find(dirs_of(t), parent, name, len, ret_id))
		return 0;
	k = key_make(parent, name, len);
	rc = txn_get(t, t->db->dirents, k.b, k.len, &v);
	if (rc < 0)
		return rc;
	r = rd_init(v.mv_data, v.mv_size);
	*ret_id = rd_be64(&r);
	return r.bad ? -EBADMSG : 0;
}

int dirent_put(struct txn *t, uint64_t parent, const char *name, uint64_t id)
{
	const struct key k = key_make(parent, name, strlen(name));
	const uint64_t be = htobe64(id);

	dircache_forget_name(dirs_of(t), parent, name, strlen(name));
	return txn_put(t, t->db->dirents, k.b, k.len, &be, sizeof(be));
}

int dirent_del(struct txn *t, uint64_t parent, const char *name)
{
	const struct key k = key_make(parent, name, strlen(name));

	dircache_forget_name(dirs_of(t), parent, name, strlen(name));
	return txn_del(t, t->db->dirents, k.b, k.len);
}

int dirent_each(struct txn *t, uint64_t parent, const void *after, size_t after_len,
		int (*fn)(void *arg, const char *name, size_t len, uint64_t id), void *arg)
{
	const size_t alen = after_len > INODE_NAME_MAX ? INODE_NAME_MAX : after_len;
	const struct key from = key_make(parent, after, alen);
	MDB_val k = {from.len, (void *)(uintptr_t)from.b}, v;
	MDB_cursor *c;
	int rc = db_rc(mdb_cursor_open(t->t, t->db->dirents, &c));

	if (rc < 0)
		return rc;
	rc = mdb_cursor_get(c, &k, &v, MDB_SET_RANGE);
	if (!rc && alen && k.mv_size == from.len && !memcmp(k.mv_data, from.b, from.len))
		rc = mdb_cursor_get(c, &k, &v, MDB_NEXT);
	for (; !rc; rc = mdb_cursor_get(c, &k, &v, MDB_NEXT)) {
		struct rd r = rd_init(v.mv_data, v.mv_size);
		int frc;

		if (k.mv_size <= 8 || memcmp(k.mv_data, from.b, 8))
			break;
		frc = fn(arg, (const char *)k.mv_data + 8, k.mv_size - 8, rd_be64(&r));
		if (frc) {
			mdb_cursor_close(c);
			return frc;
		}
	}
	mdb_cursor_close(c);
	return rc == MDB_NOTFOUND ? 0 : db_rc(rc);
}

int inode_each(struct txn *t, struct arena *a, int (*fn)(void *arg, struct inode *n), void *arg)
{
	MDB_cursor *c;
	MDB_val k, v;
	int rc = db_rc(mdb_cursor_open(t->t, t->db->inodes, &c));

	if (rc < 0)
		return rc;
	while (!(rc = mdb_cursor_get(c, &k, &v, MDB_NEXT))) {
		struct rd r = rd_init(k.mv_data, k.mv_size);
		struct inode *n;
		int frc = decode(&v, rd_be64(&r), a, &n);

		frc = frc ? frc : read_rows(t, a, n);
		frc = frc ? frc : fn(arg, n);
		arena_free(a);
		if (frc) {
			mdb_cursor_close(c);
			return frc;
		}
	}
	mdb_cursor_close(c);
	return rc == MDB_NOTFOUND ? 0 : db_rc(rc);
}

int inode_open_each(struct txn *t, uint64_t after, int (*fn)(void *arg, uint64_t id), void *arg)
{
	uint64_t from = htobe64(after == UINT64_MAX ? after : after + 1);
	MDB_val k = {sizeof(from), &from}, v;
	MDB_cursor *c;
	int rc = db_rc(mdb_cursor_open(t->t, t->db->open, &c));

	if (rc < 0)
		return rc;
	for (rc = mdb_cursor_get(c, &k, &v, MDB_SET_RANGE); !rc;
	     rc = mdb_cursor_get(c, &k, &v, MDB_NEXT)) {
		struct rd r = rd_init(k.mv_data, k.mv_size);
		const int frc = fn(arg, rd_be64(&r));

		if (frc) {
			mdb_cursor_close(c);
			return frc;
		}
	}
	mdb_cursor_close(c);
	return rc == MDB_NOTFOUND ? 0 : db_rc(rc);
}

/* The mark moves on after 1, 2, 4, ... steps: a cycle is noticed before three times its length and
 * the way to it. */
int inode_up(struct txn *t, const struct inode *n, struct arena *a, struct inode_climb *c,
	     struct inode **ret)
{
	int rc;

	if (n->parent == INODE_NOWHERE)
		return -ENOENT;
	rc = inode_get(t, n->parent, a, ret);
	if (rc < 0)
		return rc == -ENOENT ? -EBADMSG : rc;
	if (!c->steps) {
		c->mark = n->id;
		c->limit = 2 * c->limit + !c->limit;
	}
	c->steps = (c->steps + 1) % c->limit;
	return (*ret)->id == c->mark ? -EBADMSG : 0;
}

int inode_path(struct txn *t, const struct inode *n, struct arena *a, char **ret)
{
	char *path = arena_strdup(a, n->id == INODE_ROOT ? "/" : "");
	struct inode_climb c = {0};
	struct inode *up;

	while (n->id != INODE_ROOT) {
		int rc = inode_up(t, n, a, &c, &up);

		if (rc < 0)
			return rc;
		path = arena_printf(a, "/%s%s", n->name, path);
		n = up;
	}
	*ret = path;
	return 0;
}
