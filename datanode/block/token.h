/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * token - block access tokens: who may do what with a block (dfs.block.access.token.enable)
 *
 * Idea: the NameNode signs what a client may do with a block; data nodes and NameNode share the
 * keys, which change every few hours. An operation carries the token, the node computes the
 * signature again and compares. Whether tokens are asked for is the NameNode's word, not our
 * configuration.
 * Both forms of the identifier are read: Hadoop's Writable and BlockTokenSecretProto; a first byte
 * above zero tells the second one. What we sign ourselves (copies ordered by the NameNode) is of
 * the second form, which every data node of Hadoop 3 reads.
 * The signature is HMAC-SHA1 over the identifier as it came, by libcrypto.
 * Ownership: the set copies keys. Threading: any thread; a mutex is held for as long as a key is
 * looked up and copied.
 * Units: expiry is wall clock in ms since 1970.
 * Source: BlockTokenIdentifier, BlockTokenSecretManager and DataXceiver.checkAccess of Hadoop
 * 3.4.2.
 */
#include "HdfsServer.pb-c.h"
#include "common/base/block.h"
#include "common/base/err.h"
#include "common/wire/dt.h"

#define TOKEN_KEYS_MAX 64 /* of one pool: two NameNodes have a handful each */
#define TOKEN_KEY_BYTES_MAX 128
#define TOKEN_ID_MAX 16384  /* bytes of an identifier */
#define TOKEN_ITEMS_MAX 256 /* storage types or ids in one */

struct token_keys; /* of all pools */

int token_keys_new(struct token_keys **ret);
void token_keys_free(struct token_keys *k);
/** Add to the keys of @pool; those that have expired go. -EINVAL: an impossible key, -E2BIG: too
 *  many keys, -ENOMEM: nothing is changed. */
int token_keys_add(struct token_keys *k, const char *pool, const Hd__ExportedBlockKeysProto *m,
		   uint64_t now_ms, struct err *err);
/** Are tokens asked for in this pool? Accepts NULL. */
bool token_is_wanted(struct token_keys *k, const char *pool);

struct token_access { /* what an operation is about to do; borrowed */
	const char *pool;
	int64_t block_id;
	Hd__AccessModeProto mode;
	const Hd__StorageTypeProto *types; /* none: not checked */
	size_t n_types;
	const char *const *ids;
	size_t n_ids;
};

/** 0 or -EACCES with the reason. @t NULL is an empty token. */
int token_check(struct token_keys *k, const Hc__TokenProto *t, const struct token_access *a,
		uint64_t now_ms, struct err *err);
/** A token for that, signed with the newest key; malloc'ed, pb_free(). -ENOKEY: none yet; -ENOMEM.
 */
int token_make(struct token_keys *k, const struct token_access *a, uint64_t now_ms,
	       Hc__TokenProto **ret);

/* ---- private to token.c and its test ---- */

struct token_id {
	uint64_t expiry_ms;
	uint32_t key_id;
	char pool[BLOCK_POOL_ID_MAX];
	int64_t block_id;
	uint32_t modes; /* bit 1 << Hd__AccessModeProto */
	uint32_t n_types, n_ids;
	uint8_t types[TOKEN_ITEMS_MAX];
	char *ids[TOKEN_ITEMS_MAX]; /* owned */
};
/** -EBADMSG, -ENOMEM. */
int token_id_decode(const void *buf, size_t len, struct token_id *ret);
void token_id_fini(struct token_id *id);
