/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a token that Hadoop signed lets pass exactly what it says, in both forms; nothing
 * else passes: no other block, mode, storage, key, time or signature, and no damaged identifier. */
#include "datanode/block/token.h"

#include <openssl/hmac.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/wire/pb.h"

#define POOL "BP-1-127.0.0.1-1"
#define EXPIRY 4000000000000ull
#define NOW (EXPIRY - 1000)
#define BLOCK 1073741825
#define BLOCK_2 (BLOCK - 2000000000000)

/* Of BlockTokenIdentifier of Hadoop 3.4.2: user alice, key 01..0788; key 77 with mode READ and no
 * storages, or key
 * -1234567890 with all modes, DISK, SSD, DISK and DS-1..3. Writable, then protobuf. */
static const struct golden {
	const char *id, *password;
} golden[] = {
	{"8a03a3529440004d00000005616c6963650000001042502d312d3132372e302e302e312d318c4000000101045245"
	 "41440000",
	 "d2125e0a418c52f0d5c3c153fd4bd23072ef84c1"},
	{"8a03a35294400084499602d100000005616c6963650000001042502d312d3132372e302e302e312d318201d1694a"
	 "1ffe04045245414405575249544504434f5059075245504c41434503044449534b03535344044449534b0300000004"
	 "44532d310000000444532d320000000444532d33",
	 "1468958f71250a48d190b802d57c0e68215fa1f4"},
	{"088080d194b574104d1a05616c696365221042502d312d3132372e302e302e312d312881808080043001",
	 "998bf6dc8a8223c4e49383939409ad590a141427"},
	{"088080d194b57410aefaa7b30b1a05616c696365221042502d312d3132372e302e302e312d312881c0d7b5e9c5ff"
	 "ffff013001300230033004380138023801420444532d31420444532d32420444532d33",
	 "533b80727c8a2d787505b88a13d64e4e22971cd6"},
};
static const uint32_t key_ids[] = {77, (uint32_t)-1234567890};
static const Hd__StorageTypeProto all_types[] = {
	HD__STORAGE_TYPE_PROTO__DISK, HD__STORAGE_TYPE_PROTO__DISK, HD__STORAGE_TYPE_PROTO__SSD};
static const char *const all_ids[] = {"DS-3", "DS-1", "DS-2"};

struct fixture {
	struct token_keys *keys;
	uint8_t id[256], password[20];
	Hc__TokenProto token;
	struct token_access want;
};

static size_t unhex(const char *hex, uint8_t *out)
{
	size_t n = strlen(hex) / 2;

	for (size_t i = 0; i < n; i++) {
		const char byte[3] = {hex[2 * i], hex[2 * i + 1], 0};

		out[i] = (uint8_t)strtoul(byte, NULL, 16);
	}
	return n;
}

static int give_keys_at(uint64_t now, struct token_keys *k, const char *pool, const uint32_t *ids,
			size_t n, uint64_t expiry, bool wanted)
{
	static uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 0x88};
	Hd__ExportedBlockKeysProto m = HD__EXPORTED_BLOCK_KEYS_PROTO__INIT;
	Hd__BlockKeyProto *all = calloc(n, sizeof(*all)), **list = calloc(n, sizeof(*list));
	int rc;

	assert_true(all && list && n);
	for (size_t i = 0; i < n; i++) {
		hd__block_key_proto__init(&all[i]);
		all[i].keyid = ids[i];
		all[i].expirydate = expiry;
		all[i].has_keybytes = 1;
		all[i].keybytes = (ProtobufCBinaryData){.data = bytes, .len = sizeof(bytes)};
		list[i] = &all[i];
	}
	m.isblocktokenenabled = wanted;
	m.tokenlifetime = 600000;
	m.currentkey = &all[0];
	m.allkeys = list;
	m.n_allkeys = n;
	rc = token_keys_add(k, pool, &m, now, NULL);
	free(list);
	free(all);
	return rc;
}

static int give_keys(struct token_keys *k, const uint32_t *ids, size_t n, uint64_t expiry,
		     bool wanted)
{
	return give_keys_at(NOW, k, POOL, ids, n, expiry, wanted);
}

static void use(struct fixture *f, size_t i)
{
	hc__token_proto__init(&f->token);
	f->token.identifier =
		(ProtobufCBinaryData){.data = f->id, .len = unhex(golden[i].id, f->id)};
	f->token.password = (ProtobufCBinaryData){.data = f->password,
						  .len = unhex(golden[i].password, f->password)};
	f->want = (struct token_access){.pool = POOL,
					.block_id = i % 2 ? BLOCK_2 : BLOCK,
					.mode = HD__ACCESS_MODE_PROTO__READ};
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	assert_int_equal(token_keys_new(&f->keys), 0);
	assert_int_equal(give_keys(f->keys, key_ids, 2, EXPIRY, true), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	token_keys_free(f->keys);
	free(f);
	return 0;
}

static int check(struct fixture *f)
{
	struct err err = ERR_INIT;
	const int rc = token_check(f->keys, &f->token, &f->want, NOW, &err);

	assert_true(rc == 0 || (rc == -EACCES && err.text[0]));
	return rc;
}

static void tokens_of_hadoop_allow_what_they_say(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < 4; i++) {
		for (int mode = 1; mode <= 4; mode++) {
			use(f, i);
			f->want.mode = (Hd__AccessModeProto)mode;
			assert_int_equal(check(f), mode == 1 || i % 2 ? 0 : -EACCES);
		}
		use(f, i);
		f->want.types = all_types;
		f->want.n_types = 3;
		f->want.ids = all_ids;
		f->want.n_ids = 3;
		assert_int_equal(check(f), 0); /* none in the token: not bound to any */
	}
}

/* The other pool has the same keys. */
static void another_block_pool_time_or_key_is_refused(void **state)
{
	static const char other[] = "BP-2-127.0.0.1-1";
	struct fixture *f = *state;

	assert_int_equal(give_keys_at(NOW, f->keys, other, key_ids, 2, EXPIRY, true), 0);
	for (size_t i = 0; i < 4; i++) {
		use(f, i);
		f->want.block_id++;
		assert_int_equal(check(f), -EACCES);
		use(f, i);
		f->want.pool = other;
		assert_int_equal(check(f), -EACCES);
		use(f, i);
		assert_int_equal(token_check(f->keys, &f->token, &f->want, EXPIRY, NULL), 0);
		assert_int_equal(token_check(f->keys, &f->token, &f->want, EXPIRY + 1, NULL),
				 -EACCES);
	}
	assert_int_equal(token_check(f->keys, NULL, &f->want, NOW, NULL), -EACCES);
	token_keys_free(f->keys);
	assert_int_equal(token_keys_new(&f->keys), 0);
	assert_int_equal(give_keys(f->keys, key_ids, 1, EXPIRY, true), 0);
	use(f, 0);
	assert_int_equal(check(f), 0);
	use(f, 1);
	assert_int_equal(check(f), -EACCES);
}

static void storages_count_as_often_as_they_are_named(void **state)
{
	static const Hd__StorageTypeProto two_ssd[] = {HD__STORAGE_TYPE_PROTO__SSD,
						       HD__STORAGE_TYPE_PROTO__SSD};
	static const char *const twice[] = {"DS-1", "DS-1"};
	struct fixture *f = *state;

	for (size_t i = 1; i < 4; i += 2) {
		use(f, i);
		f->want.types = two_ssd;
		f->want.n_types = 1;
		assert_int_equal(check(f), 0);
		f->want.n_types = 2;
		assert_int_equal(check(f), -EACCES);
		use(f, i);
		f->want.ids = twice;
		f->want.n_ids = 1;
		assert_int_equal(check(f), 0);
		f->want.n_ids = 2;
		assert_int_equal(check(f), -EACCES);
	}
}

static void every_changed_or_missing_byte_is_refused(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < 4; i++) {
		use(f, i);
		for (size_t n = 0; n < f->token.identifier.len; n++) {
			use(f, i);
			f->id[n] ^= 1;
			assert_int_equal(check(f), -EACCES);
			use(f, i);
			f->token.identifier.len = n;
			assert_int_equal(check(f), -EACCES);
		}
		for (size_t n = 0; n < 20; n++) {
			use(f, i);
			f->password[n] ^= 0x80;
			assert_int_equal(check(f), -EACCES);
			use(f, i);
			f->token.password.len = n;
			assert_int_equal(check(f), -EACCES);
		}
	}
}

static void keys_add_up_until_they_expire(void **state)
{
	struct fixture *f = *state;
	uint32_t ids[TOKEN_KEYS_MAX + 1];

	/* the other NameNode's keys come beside these */
	ids[0] = 5;
	assert_int_equal(give_keys(f->keys, ids, 1, EXPIRY, true), 0);
	use(f, 0);
	assert_int_equal(check(f), 0);
	for (uint32_t i = 0; i <= TOKEN_KEYS_MAX; i++)
		ids[i] = 1000 + i;
	assert_int_equal(give_keys(f->keys, ids, TOKEN_KEYS_MAX + 1, EXPIRY, true), -E2BIG);
	assert_int_equal(check(f), 0); /* nothing has changed */
	assert_int_equal(give_keys(f->keys, ids, TOKEN_KEYS_MAX + 1, NOW - 1, true), 0);
	assert_int_equal(check(f), 0);
	assert_true(token_is_wanted(f->keys, POOL));
	assert_int_equal(give_keys(f->keys, ids, 1, EXPIRY, false), 0);
	assert_false(token_is_wanted(f->keys, POOL));
	assert_false(token_is_wanted(f->keys, "BP-3-127.0.0.1-1"));
	assert_false(token_is_wanted(NULL, POOL));
}

static void keys_that_have_expired_make_room(void **state)
{
	struct fixture *f = *state;
	uint32_t ids[TOKEN_KEYS_MAX];

	for (uint32_t i = 0; i < TOKEN_KEYS_MAX; i++)
		ids[i] = 1000 + i;
	assert_int_equal(give_keys(f->keys, ids, TOKEN_KEYS_MAX, EXPIRY, true), -E2BIG);
	assert_int_equal(give_keys_at(EXPIRY, f->keys, POOL, ids, TOKEN_KEYS_MAX, EXPIRY + 1, true),
			 -E2BIG);
	assert_int_equal(
		give_keys_at(EXPIRY + 1, f->keys, POOL, ids, TOKEN_KEYS_MAX, EXPIRY + 1, true), 0);
}

static void a_key_has_a_largest_size(void **state)
{
	struct fixture *f = *state;
	Hd__ExportedBlockKeysProto m = HD__EXPORTED_BLOCK_KEYS_PROTO__INIT;
	Hd__BlockKeyProto key = HD__BLOCK_KEY_PROTO__INIT;
	uint8_t bytes[TOKEN_KEY_BYTES_MAX + 1] = {1};

	m.isblocktokenenabled = true;
	m.currentkey = &key;
	key.keyid = 1;
	key.expirydate = EXPIRY;
	key.has_keybytes = 1;
	key.keybytes = (ProtobufCBinaryData){.data = bytes, .len = TOKEN_KEY_BYTES_MAX};
	assert_int_equal(token_keys_add(f->keys, POOL, &m, NOW, NULL), 0);
	key.keybytes.len++;
	assert_int_equal(token_keys_add(f->keys, POOL, &m, NOW, NULL), -EINVAL);
}

/* Anybody can sign with the key that is none. */
static void a_signature_without_a_key_is_refused(void **state)
{
	struct fixture *f = *state;
	unsigned int len = 0;

	token_keys_free(f->keys);
	assert_int_equal(token_keys_new(&f->keys), 0);
	assert_int_equal(give_keys(f->keys, key_ids, 1, EXPIRY, true), 0);
	use(f, 1);
	assert_non_null(HMAC(EVP_sha1(), "", 0, f->id, f->token.identifier.len, f->password, &len));
	assert_int_equal(len, f->token.password.len);
	assert_int_equal(check(f), -EACCES);
}

static int decode(const char *pool, size_t n_types, size_t n_ids)
{
	static Hd__StorageTypeProto types[TOKEN_ITEMS_MAX + 1];
	static char *ids[TOKEN_ITEMS_MAX + 1];
	Hd__BlockTokenSecretProto m = HD__BLOCK_TOKEN_SECRET_PROTO__INIT;
	struct token_id id;
	uint8_t *buf;
	size_t len;
	int rc;

	for (size_t i = 0; i <= TOKEN_ITEMS_MAX; i++) {
		types[i] = HD__STORAGE_TYPE_PROTO__DISK;
		ids[i] = (char *)"s";
	}
	m.has_expirydate = 1;
	m.expirydate = EXPIRY;
	m.blockpoolid = (char *)(uintptr_t)pool;
	m.n_storagetypes = n_types;
	m.storagetypes = types;
	m.n_storageids = n_ids;
	m.storageids = ids;
	assert_int_equal(pb_pack(&m, &buf, &len), 0);
	rc = token_id_decode(buf, len, &id);
	free(buf);
	if (rc == 0)
		token_id_fini(&id);
	return rc;
}

static void what_a_token_names_has_bounds(void **state)
{
	char pool[BLOCK_POOL_ID_MAX + 1] = {0};

	(void)state;
	memset(pool, 'p', BLOCK_POOL_ID_MAX - 1);
	assert_int_equal(decode(pool, TOKEN_ITEMS_MAX, TOKEN_ITEMS_MAX), 0);
	assert_int_equal(decode(pool, TOKEN_ITEMS_MAX + 1, 0), -EBADMSG);
	assert_int_equal(decode(pool, 0, TOKEN_ITEMS_MAX + 1), -EBADMSG);
	pool[BLOCK_POOL_ID_MAX - 1] = 'p';
	assert_int_equal(decode(pool, 0, 0), -EBADMSG);
}

static void what_we_sign_we_accept(void **state)
{
	struct fixture *f = *state;
	struct token_access want = {.pool = POOL,
				    .block_id = -12345,
				    .mode = HD__ACCESS_MODE_PROTO__WRITE,
				    .types = all_types,
				    .n_types = 3,
				    .ids = all_ids,
				    .n_ids = 3};
	Hc__TokenProto *t = NULL;

	assert_int_equal(token_make(f->keys, &want, NOW - 700000, &t), 0);
	assert_string_equal(t->kind, "HDFS_BLOCK_TOKEN");
	assert_int_equal(token_check(f->keys, t, &want, NOW - 700000, NULL), 0);
	assert_int_equal(token_check(f->keys, t, &want, NOW, NULL), -EACCES); /* its time is over */
	want.mode = HD__ACCESS_MODE_PROTO__COPY;
	assert_int_equal(token_check(f->keys, t, &want, NOW - 700000, NULL), -EACCES);
	pb_free(t);
	want.pool = "BP-3-127.0.0.1-1";
	assert_int_equal(token_make(f->keys, &want, NOW, &t), -ENOKEY);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	static const struct CMUnitTest tests[] = {
		T(tokens_of_hadoop_allow_what_they_say),
		T(another_block_pool_time_or_key_is_refused),
		T(storages_count_as_often_as_they_are_named),
		T(every_changed_or_missing_byte_is_refused),
		T(keys_add_up_until_they_expire),
		T(keys_that_have_expired_make_room),
		T(a_key_has_a_largest_size),
		T(a_signature_without_a_key_is_refused),
		T(what_a_token_names_has_bounds),
		T(what_we_sign_we_accept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
