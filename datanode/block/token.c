/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/block/token.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/cursor.h"
#include "common/base/list.h"
#include "common/wire/pb.h"

#define MODES_MAX 4
#define TOKEN_KIND "HDFS_BLOCK_TOKEN"

struct block_key {
	uint32_t id;
	uint64_t expiry_ms;
	uint32_t len; /* 0: a key slot without a key */
	uint8_t bytes[TOKEN_KEY_BYTES_MAX];
};

struct pool_keys {
	struct list link;
	char pool[BLOCK_POOL_ID_MAX];
	bool wanted;
	uint64_t lifetime_ms;    /* of a token that we sign */
	uint32_t count, current; /* current: its id */
	struct block_key keys[TOKEN_KEYS_MAX];
};

struct token_keys {
	pthread_mutex_t lock; /* everything below */
	struct list pools;    /* grows with the pools that NameNodes of the configuration name */
};

int token_keys_new(struct token_keys **ret)
{
	struct token_keys *k = calloc(1, sizeof(*k));

	if (!k)
		return -ENOMEM;
	pthread_mutex_init(&k->lock, NULL);
	list_init(&k->pools);
	*ret = k;
	return 0;
}

void token_keys_free(struct token_keys *k)
{
	if (!k)
		return;
	while (!list_empty(&k->pools)) {
		struct pool_keys *p = container_of(list_pop(&k->pools), struct pool_keys, link);

		OPENSSL_cleanse(p, sizeof(*p));
		free(p);
	}
	pthread_mutex_destroy(&k->lock);
	free(k);
}

/* ---- keys ---- */

static struct pool_keys *pool_find_locked(struct token_keys *k, const char *pool)
{
	list_for_each (l, &k->pools) {
		struct pool_keys *p = container_of(l, struct pool_keys, link);

		if (!strcmp(p->pool, pool))
			return p;
	}
	return NULL;
}

static int key_put(struct pool_keys *p, const Hd__BlockKeyProto *m, uint64_t now_ms,
		   struct err *err)
{
	struct block_key *key = NULL;

	if (m->has_keybytes && m->keybytes.len > TOKEN_KEY_BYTES_MAX)
		return err_set(err, -EINVAL, "block key %u has %zu bytes; %d are allowed", m->keyid,
			       m->keybytes.len, TOKEN_KEY_BYTES_MAX);
	if (!m->has_keybytes || !m->keybytes.len || m->expirydate < now_ms)
		return 0;
	for (uint32_t i = 0; i < p->count && !key; i++)
		if (p->keys[i].id == m->keyid)
			key = &p->keys[i];
	if (!key && p->count == TOKEN_KEYS_MAX)
		return err_set(err, -E2BIG, "more than %d block keys of pool %s", TOKEN_KEYS_MAX,
			       p->pool);
	if (!key)
		key = &p->keys[p->count++];
	*key = (struct block_key){
		.id = m->keyid, .expiry_ms = m->expirydate, .len = (uint32_t)m->keybytes.len};
	memcpy(key->bytes, m->keybytes.data, m->keybytes.len);
	return 0;
}

static void drop_expired(struct pool_keys *p, uint64_t now_ms)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->count; i++)
		if (p->keys[i].expiry_ms >= now_ms)
			p->keys[n++] = p->keys[i];
	p->count = n;
}

static int keys_take(struct pool_keys *p, const Hd__ExportedBlockKeysProto *m, uint64_t now_ms,
		     struct err *err)
{
	int rc = 0;

	drop_expired(p, now_ms);
	p->wanted = m->isblocktokenenabled;
	if (!p->wanted)
		return 0;
	p->lifetime_ms = m->tokenlifetime;
	rc = key_put(p, m->currentkey, now_ms, err);
	for (size_t i = 0; rc == 0 && i < m->n_allkeys; i++)
		rc = key_put(p, m->allkeys[i], now_ms, err);
	if (rc == 0 && m->currentkey->has_keybytes && m->currentkey->keybytes.len)
		p->current = m->currentkey->keyid;
	return rc;
}

int token_keys_add(struct token_keys *k, const char *pool, const Hd__ExportedBlockKeysProto *m,
		   uint64_t now_ms, struct err *err)
{
	struct pool_keys *fresh = calloc(1, sizeof(*fresh)), *p;
	int rc;

	if (!fresh)
		return err_set(err, -ENOMEM, "out of memory");
	if (!dt_pool_id_ok(pool)) {
		free(fresh);
		return err_set(err, -EINVAL, "the block pool id is malformed");
	}
	pthread_mutex_lock(&k->lock);
	p = pool_find_locked(k, pool);
	if (p)
		*fresh = *p;
	else
		memcpy(fresh->pool, pool, strlen(pool) + 1);
	rc = keys_take(fresh, m, now_ms, err);
	if (rc == 0 && p) {
		const struct list link = p->link;

		*p = *fresh;
		p->link = link;
	} else if (rc == 0) {
		list_add_tail(&k->pools, &fresh->link);
		fresh = NULL;
	}
	pthread_mutex_unlock(&k->lock);
	if (fresh)
		OPENSSL_cleanse(fresh, sizeof(*fresh));
	free(fresh);
	return rc;
}

bool token_is_wanted(struct token_keys *k, const char *pool)
{
	const struct pool_keys *p;
	bool wanted;

	if (!k)
		return false;
	pthread_mutex_lock(&k->lock);
	p = pool_find_locked(k, pool);
	wanted = p && p->wanted;
	pthread_mutex_unlock(&k->lock);
	return wanted;
}

/* The key @id, or the current one (@id NULL). */
static int key_get(struct token_keys *k, const char *pool, const uint32_t *id,
		   struct block_key *ret, uint64_t *ret_lifetime_ms)
{
	const struct pool_keys *p;
	int rc = -ENOKEY;

	pthread_mutex_lock(&k->lock);
	p = pool_find_locked(k, pool);
	for (uint32_t i = 0; p && i < p->count; i++) {
		if (p->keys[i].id != (id ? *id : p->current))
			continue;
		*ret = p->keys[i];
		*ret_lifetime_ms = p->lifetime_ms;
		rc = 0;
	}
	pthread_mutex_unlock(&k->lock);
	return rc;
}

/* ---- identifiers ---- */

static int id_add(struct token_id *id, const uint8_t *text, size_t len)
{
	if (id->n_ids == TOKEN_ITEMS_MAX || memchr(text, 0, len))
		return -EBADMSG;
	id->ids[id->n_ids] = strndup((const char *)text, len);
	if (!id->ids[id->n_ids])
		return -ENOMEM;
	id->n_ids++;
	return 0;
}

static bool pool_set(struct token_id *id, const uint8_t *text, size_t len)
{
	if (!text || len >= sizeof(id->pool) || memchr(text, 0, len))
		return false;
	memcpy(id->pool, text, len);
	id->pool[len] = 0;
	return true;
}

void token_id_fini(struct token_id *id)
{
	for (uint32_t i = 0; i < id->n_ids; i++)
		free(id->ids[i]);
	id->n_ids = 0;
}

/* WritableUtils.readVLong: one byte from -112 to 127 is the value, else the first byte tells sign
 * and length. */
static int64_t rd_vlong(struct rd *r)
{
	const int8_t first = (int8_t)rd_u8(r);
	uint64_t v = 0;
	int n;

	if (first >= -112)
		return first;
	n = first < -120 ? -(first + 120) : -(first + 112);
	for (int i = 0; i < n; i++)
		v = v << 8 | rd_u8(r);
	return (int64_t)(first < -120 ? ~v : v);
}

static uint32_t rd_count(struct rd *r, uint32_t max)
{
	const int64_t v = rd_vlong(r);

	r->bad |= v < 0 || v > max;
	return r->bad ? 0 : (uint32_t)v;
}

/* A string with its length in four bytes; NULL is -1 long. */
static const uint8_t *rd_string(struct rd *r, size_t *ret_len)
{
	const uint32_t len = rd_be32(r);

	*ret_len = len == UINT32_MAX ? 0 : len;
	return rd_bytes(r, *ret_len);
}

/* An enum goes by its name: the index in @names, -1 when it is not there. */
static int rd_enum(struct rd *r, const char *const *names, int count)
{
	const uint32_t len = rd_count(r, 64);
	const uint8_t *text = rd_bytes(r, len);

	for (int i = 0; text && i < count; i++)
		if (names[i] && strlen(names[i]) == len && !memcmp(names[i], text, len))
			return i;
	return -1;
}

static const char *const mode_names[] = {NULL, "READ", "WRITE", "COPY", "REPLACE"};
static const char *const type_names[] = {NULL,       "DISK",     "SSD",   "ARCHIVE",
					 "RAM_DISK", "PROVIDED", "NVDIMM"};

static int decode_writable(struct rd *r, struct token_id *id)
{
	const uint8_t *text;
	size_t len;
	uint32_t n;
	int rc = 0;

	id->expiry_ms = (uint64_t)rd_vlong(r);
	id->key_id = (uint32_t)rd_vlong(r); /* Java's int: sign and all */
	(void)rd_string(r, &len);           /* user */
	text = rd_string(r, &len);
	if (!pool_set(id, text, len))
		return -EBADMSG;
	id->block_id = rd_vlong(r);
	n = rd_count(r, MODES_MAX);
	for (uint32_t i = 0; i < n; i++) {
		const int mode = rd_enum(r, mode_names, 5);

		r->bad |= mode < 0;
		id->modes |= mode < 0 ? 0 : 1u << mode;
	}
	/* Hadoop before 3.0 stops here, before 3.1 behind the types. */
	n = rd_left(r) ? rd_count(r, TOKEN_ITEMS_MAX) : 0;
	for (uint32_t i = 0; i < n; i++) {
		const int type = rd_enum(r, type_names, 7);

		r->bad |= type < 0;
		id->types[id->n_types++] = (uint8_t)(type < 0 ? 0 : type);
	}
	n = rd_left(r) ? rd_count(r, TOKEN_ITEMS_MAX) : 0;
	for (uint32_t i = 0; !r->bad && rc == 0 && i < n; i++) {
		text = rd_string(r, &len);
		rc = text ? id_add(id, text, len) : -EBADMSG;
	}
	return r->bad ? -EBADMSG : rc; /* the secret of a handshake may follow */
}

static int decode_proto(const void *buf, size_t len, struct token_id *id)
{
	Hd__BlockTokenSecretProto *m = NULL;
	int rc = pb_unpack(&hd__block_token_secret_proto__descriptor, buf, len, &m);

	if (rc < 0)
		return rc == -ENOMEM ? rc : -EBADMSG;
	id->expiry_ms = m->expirydate;
	id->key_id = m->keyid;
	id->block_id = (int64_t)m->blockid;
	if (!m->blockpoolid ||
	    !pool_set(id, (const uint8_t *)m->blockpoolid, strlen(m->blockpoolid)) ||
	    m->n_storagetypes > TOKEN_ITEMS_MAX)
		rc = -EBADMSG;
	for (size_t i = 0; rc == 0 && i < m->n_modes; i++)
		if ((unsigned int)m->modes[i] <= MODES_MAX)
			id->modes |= 1u << m->modes[i];
	for (size_t i = 0; rc == 0 && i < m->n_storagetypes; i++)
		id->types[id->n_types++] = (uint8_t)m->storagetypes[i];
	for (size_t i = 0; rc == 0 && i < m->n_storageids; i++)
		rc = id_add(id, (const uint8_t *)m->storageids[i], strlen(m->storageids[i]));
	pb_free(m);
	return rc;
}

int token_id_decode(const void *buf, size_t len, struct token_id *ret)
{
	struct rd r = rd_init(buf, len);
	int rc;

	*ret = (struct token_id){0};
	if (!len || len > TOKEN_ID_MAX)
		return -EBADMSG;
	rc = *(const int8_t *)buf <= 0 ? decode_writable(&r, ret) : decode_proto(buf, len, ret);
	if (rc < 0)
		token_id_fini(ret);
	return rc;
}

/* ---- checking ---- */

static int sign(const struct block_key *key, const void *id, size_t len,
		uint8_t out[EVP_MAX_MD_SIZE], size_t *ret_len)
{
	unsigned int n = 0;

	if (!HMAC(EVP_sha1(), key->bytes, (int)key->len, id, len, out, &n))
		return -EIO;
	*ret_len = n;
	return 0;
}

/* What is asked for must be in the token, as often as it is asked for; a token without any binds
 * nothing. */
static bool types_fit(const struct token_id *id, const struct token_access *a)
{
	bool used[TOKEN_ITEMS_MAX] = {false};

	for (size_t i = 0; id->n_types && i < a->n_types; i++) {
		uint32_t k = 0;

		while (k < id->n_types && (used[k] || id->types[k] != (uint8_t)a->types[i]))
			k++;
		if (k == id->n_types)
			return false;
		used[k] = true;
	}
	return true;
}

static bool ids_fit(const struct token_id *id, const struct token_access *a)
{
	bool used[TOKEN_ITEMS_MAX] = {false};

	for (size_t i = 0; id->n_ids && i < a->n_ids; i++) {
		uint32_t k = 0;

		while (k < id->n_ids && (used[k] || strcmp(id->ids[k], a->ids[i])))
			k++;
		if (k == id->n_ids)
			return false;
		used[k] = true;
	}
	return true;
}

static int check_id(const struct token_id *id, const struct token_access *a, uint64_t now_ms,
		    struct err *err)
{
	if (strcmp(id->pool, a->pool) || id->block_id != a->block_id)
		return err_set(err, -EACCES, "the block token is for block %" PRId64 " of pool %s",
			       id->block_id, id->pool);
	if (id->expiry_ms < now_ms)
		return err_set(err, -EACCES, "the block token is expired");
	if (!(id->modes & 1u << a->mode))
		return err_set(err, -EACCES, "the block token does not allow to %s",
			       mode_names[a->mode]);
	if (!types_fit(id, a))
		return err_set(err, -EACCES, "the block token is not for these storage types");
	if (!ids_fit(id, a))
		return err_set(err, -EACCES, "the block token is not for these storages");
	return 0;
}

int token_check(struct token_keys *k, const Hc__TokenProto *t, const struct token_access *a,
		uint64_t now_ms, struct err *err)
{
	struct token_id id;
	struct block_key key;
	uint8_t want[EVP_MAX_MD_SIZE];
	uint64_t lifetime_ms;
	size_t len = 0;
	int rc;

	if (!t || !t->identifier.len)
		return err_set(err, -EACCES, "the operation came without a block token");
	rc = token_id_decode(t->identifier.data, t->identifier.len, &id);
	if (rc < 0)
		return err_set(err, -EACCES, "the block token cannot be read");
	rc = check_id(&id, a, now_ms, err);
	if (rc == 0 && key_get(k, a->pool, &id.key_id, &key, &lifetime_ms) < 0)
		rc = err_set(err, -EACCES,
			     "the block token was signed with key %" PRIu32
			     ", which is not known here",
			     id.key_id);
	if (rc == 0 && (sign(&key, t->identifier.data, t->identifier.len, want, &len) < 0 ||
			len != t->password.len || CRYPTO_memcmp(want, t->password.data, len)))
		rc = err_set(err, -EACCES, "the signature of the block token is wrong");
	token_id_fini(&id);
	return rc;
}

/* ---- signing ---- */

static int secret_pack(const struct token_access *a, const struct block_key *key,
		       uint64_t expiry_ms, uint8_t **ret, size_t *ret_len)
{
	Hd__BlockTokenSecretProto m = HD__BLOCK_TOKEN_SECRET_PROTO__INIT;
	Hd__AccessModeProto mode = a->mode;
	char user[] = "dfs-datanode";

	m.has_expirydate = m.has_keyid = m.has_blockid = 1;
	m.expirydate = expiry_ms;
	m.keyid = key->id;
	m.userid = user;
	m.blockpoolid = (char *)(uintptr_t)a->pool;
	m.blockid = (uint64_t)a->block_id;
	m.n_modes = 1;
	m.modes = &mode;
	m.n_storagetypes = a->n_types;
	m.storagetypes = (Hd__StorageTypeProto *)(uintptr_t)a->types;
	m.n_storageids = a->n_ids;
	m.storageids = (char **)(uintptr_t)a->ids;
	return pb_pack(&m, ret, ret_len);
}

static Hc__TokenProto *token_new(uint8_t *id, size_t id_len, const uint8_t *password, size_t len)
{
	Hc__TokenProto *t = malloc(sizeof(*t));

	if (!t)
		return NULL;
	hc__token_proto__init(t);
	t->identifier = (ProtobufCBinaryData){.data = id, .len = id_len};
	t->password = (ProtobufCBinaryData){.data = malloc(len), .len = len};
	t->kind = strdup(TOKEN_KIND);
	t->service = strdup("");
	if (!t->password.data || !t->kind || !t->service) {
		t->identifier = (ProtobufCBinaryData){0}; /* the caller's still */
		pb_free(t);
		return NULL;
	}
	memcpy(t->password.data, password, len);
	return t;
}

int token_make(struct token_keys *k, const struct token_access *a, uint64_t now_ms,
	       Hc__TokenProto **ret)
{
	struct block_key key;
	uint8_t *id = NULL, password[EVP_MAX_MD_SIZE];
	uint64_t lifetime_ms = 0;
	size_t id_len = 0, len = 0;
	int rc = key_get(k, a->pool, NULL, &key, &lifetime_ms);

	if (rc == 0)
		rc = secret_pack(a, &key, now_ms + lifetime_ms, &id, &id_len);
	if (rc < 0)
		return rc;
	rc = sign(&key, id, id_len, password, &len);
	if (rc == 0) {
		*ret = token_new(id, id_len, password, len);
		rc = *ret ? 0 : -ENOMEM;
	}
	if (rc < 0)
		free(id);
	return rc;
}
