/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: an answer stored with its change is found again, also after the database was
 * closed; it is forgotten after its time; calls without an id are not remembered. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <errno.h>
#include <stdio.h>

#include <cmocka.h>

#include "namenode-shim/namespace/retry_cache.h"

#include "namenode-shim/test_db.h"

static struct retry_cache_key key(int32_t call)
{
	const uint8_t id[16] = "0123456789abcde";

	return retry_cache_key_make(id, sizeof(id), call);
}

static void an_answer_survives_the_process(void **state)
{
	const struct retry_cache_key k = key(7), other = key(8);
	const void *answer;
	struct test_db d;
	uint32_t len;

	(void)state;
	test_db_init(&d);
	test_begin(&d, "root");
	assert_int_equal(retry_cache_store(&d.t, &k, 5000, "done", 4), 0);
	assert_int_equal(test_commit(&d), 0);
	test_db_reopen(&d);
	test_begin(&d, "root");
	assert_int_equal(retry_cache_find(&d.t, &k, &answer, &len), 0);
	assert_int_equal(len, 4);
	assert_memory_equal(answer, "done", 4);
	assert_int_equal(retry_cache_find(&d.t, &other, &answer, &len), -ENOENT);
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

static void answers_are_forgotten_after_their_time(void **state)
{
	const void *answer;
	struct test_db d;
	uint32_t len;

	(void)state;
	test_db_init(&d);
	test_begin(&d, "root");
	for (int i = 0; i < 200; i++) {
		const struct retry_cache_key k = key(i);

		assert_int_equal(
			retry_cache_store(&d.t, &k, (i < 100 ? 1000 : 5000) + (uint64_t)i, "x", 1),
			0);
	}
	assert_int_equal(test_commit(&d), 0);
	test_begin(&d, "root");
	assert_int_equal(retry_cache_purge(&d.t, 999), 0);
	for (int i = 0; i < 200; i++) {
		const struct retry_cache_key k = key(i);

		assert_int_equal(retry_cache_find(&d.t, &k, &answer, &len), 0); /* too soon */
	}
	assert_int_equal(test_commit(&d), 0);
	for (int round = 0; round < 4; round++) {
		test_begin(&d, "root");
		assert_int_equal(retry_cache_purge(&d.t, 1099), 0);
		assert_int_equal(test_commit(&d), 0);
	}
	test_begin(&d, "root");
	for (int i = 0; i < 200; i++) {
		const struct retry_cache_key k = key(i);

		assert_int_equal(retry_cache_find(&d.t, &k, &answer, &len), i < 100 ? -ENOENT : 0);
	}
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

/* Two answers that share a record are kept until the later of their times, whichever came first,
 * and not much longer. */
static void two_times_in_one_span(void **state)
{
	const void *answer;
	struct test_db d;
	uint32_t len;

	(void)state;
	for (int later_first = 0; later_first < 2; later_first++) {
		const struct retry_cache_key a = key(1), b = key(2), c = key(3);

		test_db_init(&d);
		test_begin(&d, "root");
		assert_int_equal(retry_cache_store(&d.t, &a, later_first ? 5900 : 5000, "a", 1), 0);
		assert_int_equal(retry_cache_store(&d.t, &b, later_first ? 5000 : 5900, "b", 1), 0);
		assert_int_equal(retry_cache_store(&d.t, &c, 9000, "c", 1), 0);
		assert_int_equal(test_commit(&d), 0);
		test_begin(&d, "root");
		assert_int_equal(retry_cache_purge(&d.t, 5899), 0);
		assert_int_equal(retry_cache_find(&d.t, later_first ? &a : &b, &answer, &len), 0);
		assert_int_equal(retry_cache_purge(&d.t, 5901), 0);
		assert_int_equal(retry_cache_find(&d.t, &a, &answer, &len), -ENOENT);
		assert_int_equal(retry_cache_find(&d.t, &b, &answer, &len), -ENOENT);
		assert_int_equal(retry_cache_find(&d.t, &c, &answer, &len), 0);
		txn_write_abort(&d.t);
		test_db_fini(&d);
	}
}

static void a_call_without_a_usable_id_is_not_remembered(void **state)
{
	const uint8_t id[RETRY_ID_MAX + 1] = {0};
	const struct retry_cache_key none = retry_cache_key_make(id, 0, 1);
	const struct retry_cache_key big = retry_cache_key_make(id, RETRY_ID_MAX + 1, 1);
	const void *answer;
	struct test_db d;
	uint32_t len;

	(void)state;
	assert_int_equal(none.len, 0);
	assert_int_equal(big.len, 0);
	test_db_init(&d);
	test_begin(&d, "root");
	assert_int_equal(retry_cache_store(&d.t, &none, 1, "x", 1), 0);
	assert_int_equal(retry_cache_find(&d.t, &none, &answer, &len), -ENOENT);
	txn_write_abort(&d.t);
	test_db_fini(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_survives_the_process),
		cmocka_unit_test(answers_are_forgotten_after_their_time),
		cmocka_unit_test(two_times_in_one_span),
		cmocka_unit_test(a_call_without_a_usable_id_is_not_remembered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
