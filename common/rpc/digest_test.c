/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: the answers of RFC 2831; a server that does not know the password is found out;
 * no challenge, however bent, is read beyond its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/rpc/digest.h"

/* RFC 2831, section 4. */
static const char RFC[] =
	"realm=\"elwood.innosoft.com\",nonce=\"OA6MG9tEQGm2hh\",qop=\"auth\",algorithm=md5-sess,charset=utf-8";
static const char RFC_PROOF[] = "rspauth=ea40f60335c427b5527b84dbabcdfffd";

static int answer(const char *challenge, size_t len, struct digest *d, char *buf, struct err *err)
{
	*d = (struct digest){.cnonce = "OA6MHXh6VqTrRk"};
	return digest_answer(d, challenge, len, "chris", "secret", "imap/elwood.innosoft.com", buf,
			     err);
}

static void the_example_of_the_standard(void **state)
{
	char buf[DIGEST_ANSWER_MAX];
	struct digest d;
	int n;

	(void)state;
	n = answer(RFC, strlen(RFC), &d, buf, NULL);
	assert_true(n > 0 && strlen(buf) == (size_t)n);
	assert_non_null(strstr(
		buf, "username=\"chris\",realm=\"elwood.innosoft.com\",nonce=\"OA6MG9tEQGm2hh\""));
	assert_non_null(strstr(buf, "response=d388dad90d4bbd760a152321f2143af7,qop=auth"));
	assert_int_equal(digest_check(&d, RFC_PROOF, strlen(RFC_PROOF), NULL), 0);
}

static void a_server_without_the_password_is_found_out(void **state)
{
	static const char *const bad[] = {"",
					  "rspauth=", "rspauth=ea40f60335c427b5527b84dbabcdfffe",
					  "rspauth", "x=ea40f60335c427b5527b84dbabcdfffd"};
	char buf[DIGEST_ANSWER_MAX];
	struct digest d;

	(void)state;
	assert_true(answer(RFC, strlen(RFC), &d, buf, NULL) > 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(digest_check(&d, bad[i], strlen(bad[i]), NULL), -EACCES);
	assert_int_equal(digest_init(&d), 0); /* nothing was asked yet */
	assert_int_equal(digest_check(&d, "rspauth=", 8, NULL), -EACCES);
}

static void other_challenges_are_refused(void **state)
{
	static const struct {
		const char *text;
		int rc;
	} bad[] = {
		{"", -EPROTO},
		{"nonce=\"n\"", -EPROTO},
		{"algorithm=md5-sess", -EPROTO},
		{"nonce=\"n\",algorithm=sha", -EPROTO},
		{"nonce=\"n,algorithm=md5-sess", -EPROTO},
		{"nonce=\"n\\\"x\",algorithm=md5-sess", -EPROTO},
		{"nonce=\"n\",algorithm=md5-sess,qop=\"auth-conf\"", -ENOTSUP},
		{"nonce=\"n\",algorithm=md5-sess,qop=\"auth-int,auth-conf\"", -ENOTSUP},
	};
	static const char several[] = "nonce=\"n\",algorithm=md5-sess,qop=\"auth-int,auth\"";
	char buf[DIGEST_ANSWER_MAX];
	struct digest d;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct err e = ERR_INIT;

		assert_int_equal(answer(bad[i].text, strlen(bad[i].text), &d, buf, &e), bad[i].rc);
		assert_true(e.text[0]);
	}
	assert_true(answer(several, strlen(several), &d, buf, NULL) > 0);
}

/* In memory of exactly its length, for the sanitizers. */
static void a_challenge_cut_or_bent_anywhere_is_survived(void **state)
{
	char buf[DIGEST_ANSWER_MAX];
	struct digest d;

	(void)state;
	for (size_t len = 0; len < sizeof(RFC); len++) {
		for (int c = 0; c < 256; c += 17) {
			char *p = malloc(len + 1);

			memcpy(p, RFC, len);
			p[len] = (char)c;
			(void)answer(p, len + 1, &d, buf, NULL);
			(void)digest_check(&d, p, len + 1, NULL);
			free(p);
		}
	}
}

static void long_texts_are_refused(void **state)
{
	static char text[DIGEST_SECRET_MAX + 1];
	char buf[DIGEST_ANSWER_MAX], long_nonce[2 * DIGEST_VALUE_MAX];
	struct digest d = {.cnonce = "c"};
	int n;

	(void)state;
	memset(text, 'x', DIGEST_SECRET_MAX);
	assert_int_equal(digest_answer(&d, RFC, strlen(RFC), text, "p", "/x", buf, NULL), -E2BIG);
	assert_int_equal(digest_answer(&d, RFC, strlen(RFC), "u", text, "/x", buf, NULL), -E2BIG);
	assert_int_equal(digest_answer(&d, RFC, strlen(RFC), "u", "p", text, buf, NULL), -E2BIG);
	text[DIGEST_SECRET_MAX - 1] = '\0';
	assert_true(digest_answer(&d, RFC, strlen(RFC), text, text, "/x", buf, NULL) > 0);
	n = snprintf(long_nonce, sizeof(long_nonce), "algorithm=md5-sess,nonce=\"%.*s\"",
		     DIGEST_VALUE_MAX, text);
	assert_int_equal(digest_answer(&d, long_nonce, (size_t)n, "u", "p", "/x", buf, NULL),
			 -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_example_of_the_standard),
		cmocka_unit_test(a_server_without_the_password_is_found_out),
		cmocka_unit_test(other_challenges_are_refused),
		cmocka_unit_test(a_challenge_cut_or_bent_anywhere_is_survived),
		cmocka_unit_test(long_texts_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
