/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: the table is HDFS's, a name and the parts it was made of are the same thing, and
 * nothing that a peer or a person may write makes a policy outside the limits. */
#include "common/erasure/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB (1u << 20)

static void the_built_in_policies_are_those_of_hdfs(void **state)
{
	static const struct {
		const char *name, *codec;
		uint8_t id, k, m;
	} hdfs[] = {
		{"RS-6-3-1024k", "rs", 1, 6, 3},
		{"RS-3-2-1024k", "rs", 2, 3, 2},
		{"RS-LEGACY-6-3-1024k", "rs-legacy", 3, 6, 3},
		{"XOR-2-1-1024k", "xor", 4, 2, 1},
		{"RS-10-4-1024k", "rs", 5, 10, 4},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(hdfs) / sizeof(hdfs[0]); i++) {
		const struct ec_policy *p = ec_policy_by_id(hdfs[i].id);
		struct ec_policy made;

		assert_string_equal(p->name, hdfs[i].name);
		assert_string_equal(ec_codec_name(p->codec), hdfs[i].codec);
		assert_int_equal(p->id, hdfs[i].id);
		assert_int_equal(p->k, hdfs[i].k);
		assert_int_equal(p->m, hdfs[i].m);
		assert_int_equal(p->cell, MIB);
		assert_ptr_equal(ec_policy_by_name(hdfs[i].name), p);
		/* The composed name is the one in the table. */
		assert_int_equal(ec_policy_make(p->codec, p->k, p->m, p->cell, p->id, &made, NULL),
				 0);
		assert_string_equal(made.name, p->name);
		assert_true(ec_policy_same(&made, p));
		assert_int_equal(ec_policy_parse(p->name, &made, NULL), 0);
		assert_int_equal(made.id, p->id);
	}
	assert_null(ec_policy_by_id(6));
	assert_null(ec_policy_by_id(EC_ID_USER_FIRST));
	assert_null(ec_policy_by_id(UINT32_MAX));
	assert_null(ec_policy_by_name("rs-6-3-1024k"));
	assert_null(ec_policy_by_name(""));
	assert_non_null(ec_policy_by_name(EC_DEFAULT_POLICY));
}

static void replication_is_a_policy_in_any_case_and_is_never_coded(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	assert_ptr_equal(ec_policy_by_name("REPLICATION"), ec_policy_by_id(EC_ID_REPLICATION));
	assert_ptr_equal(ec_policy_by_name("replication"), ec_policy_by_id(EC_ID_REPLICATION));
	assert_int_equal(ec_policy_can_code(ec_policy_by_id(EC_ID_REPLICATION), &err), -ENOTSUP);
	assert_int_equal(ec_policy_can_code(ec_policy_by_id(EC_ID_RS_LEGACY_6_3), &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "RS-LEGACY-6-3-1024k"));
	assert_non_null(strstr(err.text, "stock client"));
	for (unsigned id = EC_ID_RS_6_3; id <= EC_ID_RS_10_4; id++)
		if (id != EC_ID_RS_LEGACY_6_3)
			assert_int_equal(ec_policy_can_code(ec_policy_by_id(id), &err), 0);
}

static void codecs_are_found_by_their_exact_names(void **state)
{
	enum ec_codec c = EC_CODEC_XOR;

	(void)state;
	assert_int_equal(ec_codec_find("rs", &c), 0);
	assert_int_equal(c, EC_CODEC_RS);
	assert_int_equal(ec_codec_find("rs-legacy", &c), 0);
	assert_int_equal(c, EC_CODEC_RS_LEGACY);
	assert_int_equal(ec_codec_find("RS", &c), -ENOENT);
	assert_int_equal(ec_codec_find("", &c), -ENOENT);
	assert_int_equal(ec_codec_find("dummy", &c), -ENOENT);
	assert_int_equal(c, EC_CODEC_RS_LEGACY); /* untouched */
}

static void a_name_and_its_parts_are_the_same_thing(void **state)
{
	static const uint32_t cells[] = {1024, 64 << 10, 100 << 10, MIB, 4 * MIB, EC_CELL_MAX};

	(void)state;
	for (unsigned c = EC_CODEC_RS; c <= EC_CODEC_XOR; c++)
		for (uint32_t k = 1; k < EC_UNITS_MAX; k++)
			for (uint32_t m = 1; m <= (c == EC_CODEC_XOR ? 1 : EC_UNITS_MAX - k); m++)
				for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++) {
					struct ec_policy p, q;

					assert_int_equal(ec_policy_make((enum ec_codec)c, k, m,
									cells[i], EC_ID_NONE, &p,
									NULL),
							 0);
					assert_true(strlen(p.name) + 1 < sizeof(p.name));
					assert_int_equal(ec_policy_parse(p.name, &q, NULL), 0);
					assert_true(ec_policy_same(&p, &q));
					assert_string_equal(p.name, q.name);
					assert_int_equal(q.k, k);
					assert_int_equal(q.m, m);
					assert_int_equal(q.cell, cells[i]);
				}
}

static void parts_outside_the_limits_are_refused(void **state)
{
	static const struct {
		unsigned codec;
		uint32_t k, m, cell, id;
	} bad[] = {
		{EC_CODEC_RS, 0, 3, MIB, 64},
		{EC_CODEC_RS, 6, 0, MIB, 64},
		{EC_CODEC_RS, 13, 4, MIB, 64},
		{EC_CODEC_RS, 16, 1, MIB, 64},
		{EC_CODEC_RS, UINT32_MAX, 2, MIB, 64}, /* the sum would wrap */
		{EC_CODEC_RS, 6, UINT32_MAX, MIB, 64},
		{EC_CODEC_RS, 256 + 6, 3, MIB, 64}, /* 6 in eight bits */
		{EC_CODEC_RS, 6, 3, 0, 64},
		{EC_CODEC_RS, 6, 3, MIB + 1, 64},
		{EC_CODEC_RS, 6, 3, 512, 64},
		{EC_CODEC_RS, 6, 3, EC_CELL_MAX + 1024, 64},
		{EC_CODEC_RS, 6, 3, UINT32_MAX - 1023, 64},
		{EC_CODEC_RS, 6, 3, MIB, 128},
		{EC_CODEC_RS, 6, 3, MIB, 256 + 1},
		{EC_CODEC_XOR, 2, 2, MIB, 64},
		{EC_CODEC_REPLICATION, 1, 2, MIB, 64},
		{EC_CODEC_XOR + 1, 2, 1, MIB, 64},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct ec_policy p = {.k = 99};
		struct err err = ERR_INIT;

		assert_int_equal(ec_policy_make((enum ec_codec)bad[i].codec, bad[i].k, bad[i].m,
						bad[i].cell, bad[i].id, &p, &err),
				 -EINVAL);
		assert_int_not_equal(err.text[0], 0);
		assert_int_equal(p.k, 99); /* untouched */
	}
}

static void what_is_no_name_is_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"R",
		"RS",
		"RS-",
		"RS-6",
		"RS-6-3",
		"RS-6-3-1024",
		"RS-6-3-1024K",
		"RS-6-3-1024kk",
		"RS-6-3-1024k ",
		" RS-6-3-1024k",
		"RS-06-3-1024k",
		"RS-6-3-01024k",
		"RS-6-3-0k",
		"RS-0-3-1024k",
		"RS--6-3-1024k",
		"RS-6--3-1024k",
		"RS-6-3--1024k",
		"RS-6-3-1024k-",
		"rs-6-3-1024k",
		"LEGACY-6-3-1024k",
		"RS-LEGACY-1024k",
		"RSX-6-3-1024k",
		"XOR-2-2-64k",
		"RS-13-4-1024k",
		"RS-6-3-65537k",
		"RS-6-3-4294967296k",
		"RS-6-3-9999999999999999999k",
		"RS-4294967302-3-1024k",
		"REPLICATION-1-2-1024k",
		"RS-6-3-1024k\n",
		"RS-+6-3-1024k",
	};
	char longest[4096];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct ec_policy p = {.k = 99};
		struct err err = ERR_INIT;

		assert_int_equal(ec_policy_parse(bad[i], &p, &err), -EINVAL);
		assert_int_not_equal(err.text[0], 0);
		assert_int_equal(p.k, 99);
	}
	memset(longest, '1', sizeof(longest));
	memcpy(longest, "RS-", 3);
	longest[sizeof(longest) - 1] = 0;
	assert_int_equal(ec_policy_parse(longest, &(struct ec_policy){0}, NULL), -EINVAL);
}

/* Names one edit away from a good one: what is taken says the same as what was written. */
static void edited_names_mean_what_they_say_or_are_refused(void **state)
{
	static const char alphabet[] = "0123456789-RSXOLEGACYkK \n\x80";
	const char *const good = "RS-10-4-1024k";

	(void)state;
	for (size_t at = 0; at < strlen(good); at++)
		for (size_t c = 0; c < sizeof(alphabet); c++) { /* its end too: cut there */
			struct ec_policy p;
			char name[32];

			(void)snprintf(name, sizeof(name), "%s", good);
			name[at] = alphabet[c];
			if (!ec_policy_parse(name, &p, NULL))
				assert_string_equal(p.name, name);
		}
}

static void stock_says_the_same_of_what_it_does_not_add(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(ec_policy_may_add("rs", 4, 2, 64 << 10, EC_CELL_MAX_ADD, &err), 0);
	assert_int_equal(ec_policy_may_add("rs-legacy", 4, 2, MIB, EC_CELL_MAX_ADD, &err), 0);
	assert_int_equal(ec_policy_may_add("xor", 4, 1, EC_CELL_MAX_ADD, EC_CELL_MAX_ADD, &err), 0);
	assert_int_equal(ec_policy_may_add("RS", 4, 2, MIB, EC_CELL_MAX_ADD, &err), -EINVAL);
	assert_string_equal(err.text, "Codec name RS is not supported");
	assert_int_equal(ec_policy_may_add("rs", 14, 4, MIB, EC_CELL_MAX_ADD, &err), -EINVAL);
	assert_string_equal(err.text,
			    "Number of data and parity blocks in an EC group 18 should not "
			    "exceed maximum 16");
	assert_int_equal(ec_policy_may_add("rs", UINT32_MAX, 1, MIB, EC_CELL_MAX_ADD, &err),
			 -EINVAL);
	assert_int_equal(ec_policy_may_add("rs", 6, 3, 8 * MIB, EC_CELL_MAX_ADD, &err), -EINVAL);
	assert_string_equal(err.text, "Cell size 8388608 should not exceed maximum 4194304 bytes");
	assert_int_equal(ec_policy_may_add("rs", 0, 3, MIB, EC_CELL_MAX_ADD, &err), -EINVAL);
	assert_int_equal(ec_policy_may_add("rs", 6, 3, 1000, EC_CELL_MAX_ADD, &err), -EINVAL);
	assert_int_equal(ec_policy_may_add("xor", 6, 3, MIB, EC_CELL_MAX_ADD, &err), -EINVAL);
	assert_int_equal(ec_policy_may_add("replication", 1, 2, MIB, EC_CELL_MAX_ADD, &err),
			 -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_built_in_policies_are_those_of_hdfs),
		cmocka_unit_test(replication_is_a_policy_in_any_case_and_is_never_coded),
		cmocka_unit_test(codecs_are_found_by_their_exact_names),
		cmocka_unit_test(a_name_and_its_parts_are_the_same_thing),
		cmocka_unit_test(parts_outside_the_limits_are_refused),
		cmocka_unit_test(what_is_no_name_is_refused),
		cmocka_unit_test(edited_names_mean_what_they_say_or_are_refused),
		cmocka_unit_test(stock_says_the_same_of_what_it_does_not_add),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
