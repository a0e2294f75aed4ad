/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/digest.h"

#include <ctype.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define MD5_LEN 16
#define HASHED_MAX (DIGEST_SECRET_MAX * 2 + DIGEST_VALUE_MAX + 3) /* "user:realm:password" */

struct challenge {
	char realm[DIGEST_VALUE_MAX], nonce[DIGEST_VALUE_MAX];
	bool has_realm, has_qop, has_auth;
};

static void to_hex(const uint8_t *p, size_t len, char *out)
{
	for (size_t i = 0; i < len; i++)
		snprintf(out + 2 * i, 3, "%02x", p[i]);
}

static int md5(const void *p, size_t len, uint8_t out[static MD5_LEN])
{
	return EVP_Digest(p, len, out, NULL, EVP_md5(), NULL) == 1 ? 0 : -ENOTSUP;
}

static int md5_hex(const void *p, size_t len, char out[static DIGEST_HEX + 1])
{
	uint8_t sum[MD5_LEN];
	int rc = md5(p, len, sum);

	if (rc == 0)
		to_hex(sum, sizeof(sum), out);
	return rc;
}

int digest_init(struct digest *d)
{
	uint8_t dice[DIGEST_HEX / 2];

	*d = (struct digest){.proof = ""};
	if (getrandom(dice, sizeof(dice), 0) != sizeof(dice))
		return neg_errno();
	to_hex(dice, sizeof(dice), d->cnonce);
	return 0;
}

/* ---- lists of key=value, key="value" ---- */

/* The next one; 1, 0 at the end, -EPROTO. What a backslash would quote has no place in any value
 * that we need. */
static int next_pair(const char **at, const char *end, char key[static 32],
		     char value[static DIGEST_VALUE_MAX])
{
	const char *p = *at;
	size_t n = 0;
	bool quoted;

	while (p < end && (*p == ',' || isspace((unsigned char)*p)))
		p++;
	if (p == end)
		return 0;
	while (p < end && *p != '=' && n + 1 < 32)
		key[n++] = *p++;
	key[n] = '\0';
	if (p == end || *p++ != '=')
		return -EPROTO;
	quoted = p < end && *p == '"';
	p += quoted;
	for (n = 0; p < end && *p != (quoted ? '"' : ',') && n + 1 < DIGEST_VALUE_MAX; p++) {
		if (*p == '\\' || !*p)
			return -EPROTO;
		value[n++] = *p;
	}
	value[n] = '\0';
	if (quoted ? p == end || *p++ != '"' : p < end && *p != ',')
		return -EPROTO;
	*at = p;
	return 1;
}

/* "auth" in "auth,auth-int". */
static bool list_has_auth(const char *list)
{
	for (const char *p = list; *p; p += *p == ',') {
		const size_t n = strcspn(p, ",");

		if (n == 4 && strncmp(p, "auth", 4) == 0)
			return true;
		p += n;
	}
	return false;
}

static int parse_challenge(const char *text, size_t len, struct challenge *c)
{
	char key[32], value[DIGEST_VALUE_MAX];
	bool is_md5 = false;
	int rc;

	*c = (struct challenge){.realm = ""};
	for (const char *p = text; (rc = next_pair(&p, text + len, key, value)) > 0;) {
		if (strcmp(key, "realm") == 0 && !c->has_realm) {
			c->has_realm = true;
			memcpy(c->realm, value, sizeof(value));
		} else if (strcmp(key, "nonce") == 0) {
			memcpy(c->nonce, value, sizeof(value));
		} else if (strcmp(key, "qop") == 0) {
			c->has_qop = true;
			c->has_auth = list_has_auth(value);
		} else if (strcmp(key, "algorithm") == 0) {
			is_md5 = strcmp(value, "md5-sess") == 0;
		}
	}
	return rc < 0 || !is_md5 || !c->nonce[0] ? -EPROTO : 0;
}

/* ---- the hash ---- */

/* HA1: the session's key, from the password and both random numbers. */
static int hash_secret(const struct digest *d, const struct challenge *c, const char *user,
		       const char *password, char out[static DIGEST_HEX + 1])
{
	char text[HASHED_MAX];
	int n = snprintf(text, sizeof(text), "%s:%s:%s", user, c->realm, password);
	uint8_t a1[MD5_LEN + 1 + DIGEST_VALUE_MAX + 1 + DIGEST_HEX + 1];
	int rc = md5(text, (size_t)n, a1);

	n = snprintf((char *)a1 + MD5_LEN, sizeof(a1) - MD5_LEN, ":%s:%s", c->nonce, d->cnonce);
	return rc < 0 ? rc : md5_hex(a1, MD5_LEN + (size_t)n, out);
}

/* @who is "AUTHENTICATE" in the client's answer, "" in the server's. */
static int hash_answer(const struct digest *d, const struct challenge *c, const char *ha1,
		       const char *who, const char *uri, char out[static DIGEST_HEX + 1])
{
	char text[DIGEST_VALUE_MAX * 2], ha2[DIGEST_HEX + 1];
	int n = snprintf(text, sizeof(text), "%s:%s", who, uri);
	int rc = md5_hex(text, (size_t)n, ha2);

	n = snprintf(text, sizeof(text), "%s:%s:00000001:%s:auth:%s", ha1, c->nonce, d->cnonce,
		     ha2);
	return rc < 0 ? rc : md5_hex(text, (size_t)n, out);
}

int digest_answer(struct digest *d, const char *challenge, size_t len, const char *user,
		  const char *password, const char *uri, char buf[static DIGEST_ANSWER_MAX],
		  struct err *err)
{
	char ha1[DIGEST_HEX + 1], response[DIGEST_HEX + 1];
	struct challenge c;
	int rc, n;

	if (strlen(user) >= DIGEST_SECRET_MAX || strlen(password) >= DIGEST_SECRET_MAX ||
	    strlen(uri) >= DIGEST_VALUE_MAX)
		return err_set(err, -E2BIG, "a token of more than %d bytes", DIGEST_SECRET_MAX);
	rc = parse_challenge(challenge, len, &c);
	if (rc < 0)
		return err_set(err, rc, "the server's challenge is not one of DIGEST-MD5");
	if (c.has_qop && !c.has_auth)
		return err_set(
			err, -ENOTSUP,
			"signed or encrypted calls are wanted, which are not spoken here; see "
			"hadoop.rpc.protection");
	rc = hash_secret(d, &c, user, password, ha1);
	if (rc == 0)
		rc = hash_answer(d, &c, ha1, "AUTHENTICATE", uri, response);
	if (rc == 0)
		rc = hash_answer(d, &c, ha1, "", uri, d->proof);
	if (rc < 0)
		return err_set(err, rc, "libcrypto has no MD5 here");
	n = snprintf(
		buf, DIGEST_ANSWER_MAX,
		"charset=utf-8,username=\"%s\",%s%s%snonce=\"%s\",nc=00000001,cnonce=\"%s\",digest-uri=\"%s\","
		"maxbuf=65536,response=%s,qop=auth",
		user, c.has_realm ? "realm=\"" : "", c.realm, c.has_realm ? "\"," : "", c.nonce,
		d->cnonce, uri, response);
	return n < DIGEST_ANSWER_MAX
		       ? n
		       : err_set(err, -E2BIG, "an answer of more than %d bytes", DIGEST_ANSWER_MAX);
}

int digest_check(const struct digest *d, const char *text, size_t len, struct err *err)
{
	char key[32], value[DIGEST_VALUE_MAX];

	for (const char *p = text; next_pair(&p, text + len, key, value) > 0;)
		if (strcmp(key, "rspauth") == 0 && d->proof[0] && strcmp(value, d->proof) == 0)
			return 0;
	return err_set(err, -EACCES, "the server does not prove that it knows the token");
}
