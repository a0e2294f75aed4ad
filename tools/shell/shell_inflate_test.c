/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: packed bytes come out whole however they are cut, and damage is told. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "tools/shell/shell_inflate.h"

#define TEXT_LEN 400000u

static unsigned char text[TEXT_LEN], packed[2 * TEXT_LEN], got[2 * TEXT_LEN];
static size_t got_len;

static int keep(void *arg, const void *p, size_t len)
{
	(void)arg;
	assert_true(got_len + len <= sizeof(got));
	memcpy(got + got_len, p, len);
	got_len += len;
	return 0;
}

static int refuse(void *arg, const void *p, size_t len)
{
	(void)arg;
	(void)p;
	(void)len;
	return -EPIPE;
}

/* @len bytes of the text behind the @at bytes that are packed. The new length. */
static size_t pack(bool gzip, size_t at, size_t len)
{
	z_stream z = {0};

	assert_int_equal(
		deflateInit2(&z, 1, Z_DEFLATED, gzip ? 15 + 16 : 15, 8, Z_DEFAULT_STRATEGY), Z_OK);
	z.next_in = text;
	z.avail_in = (unsigned)len;
	z.next_out = packed + at;
	z.avail_out = (unsigned)(sizeof(packed) - at);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	at += z.total_out;
	(void)deflateEnd(&z);
	return at;
}

/* In pieces of @piece bytes. */
static int unpack(bool gzip, size_t len, size_t piece)
{
	struct shell_inflate *x;
	int rc = 0;

	got_len = 0;
	assert_int_equal(shell_inflate_start(gzip, &x), 0);
	for (size_t at = 0; at < len && !rc; at += piece)
		rc = shell_inflate_feed(x, packed + at, len - at < piece ? len - at : piece, keep,
					NULL);
	rc = rc ? rc : shell_inflate_finish(x);
	shell_inflate_end(x);
	return rc;
}

static int fill(void **state)
{
	(void)state;
	for (size_t i = 0; i < TEXT_LEN; i++)
		text[i] = (unsigned char)('a' + i * i / 7 % 26);
	return 0;
}

static void texts_come_out_whole(void **state)
{
	static const size_t pieces[] = {1, 7, 4096, sizeof(packed)};

	(void)state;
	for (int gzip = 0; gzip < 2; gzip++)
		for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
			const size_t len = pack(gzip, 0, TEXT_LEN);

			assert_int_equal(unpack(gzip, len, pieces[i]), 0);
			assert_int_equal(got_len, TEXT_LEN);
			assert_memory_equal(got, text, TEXT_LEN);
		}
	assert_int_equal(unpack(true, pack(true, 0, 0), 4096), 0);
	assert_int_equal(got_len, 0);
}

static void members_follow_one_another(void **state)
{
	size_t len = pack(true, 0, 1000);

	(void)state;
	len = pack(true, len, 500);
	memset(packed + len, 0, 512);
	for (size_t piece = 1; piece < 600; piece += 13) {
		assert_int_equal(unpack(true, len + 512, piece), 0);
		assert_int_equal(got_len, 1500);
		assert_memory_equal(got + 1000, text, 500);
	}
}

static void damage_is_told(void **state)
{
	const size_t len = pack(true, 0, TEXT_LEN);

	(void)state;
	assert_int_equal(unpack(true, len - 1, 4096), -EBADMSG);
	assert_int_equal(unpack(true, 0, 4096), -EBADMSG);
	packed[len / 2] ^= 1;
	assert_int_equal(unpack(true, len, 4096), -EBADMSG);
	(void)memcpy(packed, text, 100);
	assert_int_equal(unpack(true, 100, 4096), -EBADMSG);
	assert_int_equal(unpack(false, 100, 4096), -EBADMSG);
}

static void who_takes_no_more_ends_it(void **state)
{
	const size_t len = pack(true, 0, TEXT_LEN);
	struct shell_inflate *x;

	(void)state;
	assert_int_equal(shell_inflate_start(true, &x), 0);
	assert_int_equal(shell_inflate_feed(x, packed, len, refuse, NULL), -EPIPE);
	shell_inflate_end(x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(texts_come_out_whole),
		cmocka_unit_test(members_follow_one_another),
		cmocka_unit_test(damage_is_told),
		cmocka_unit_test(who_takes_no_more_ends_it),
	};

	return cmocka_run_group_tests(tests, fill, NULL);
}
