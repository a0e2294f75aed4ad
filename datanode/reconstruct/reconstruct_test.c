/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold, whatever sources do (any cut of the bytes, failures at any place, silence, wrong bytes
 * with good CRCs, gaps, CRCs of another kind): a target that is told of the end has every byte of
 * its unit, exactly; what fails fails with a sentence; every slot comes back. */
#include "datanode/reconstruct/reconstruct_test_fixture.h"

/* Lengths at which cells, rows and windows end in every way. */
static uint64_t some_length(unsigned int k)
{
	static const uint32_t odd[] = {1,     511,   512,    513,    65535,
				       65536, 65537, 100000, 131072, 131073};

	return odd[random_below(10)] + (uint64_t)random_below(2) * k * 65536 +
	       random_below(2) * (k - 1ull) * 65536;
}

static void lost_units_come_back_as_they_were(void **state)
{
	static const uint8_t k[] = {3, 2, 6}, m[] = {2, 1, 3};

	(void)state;
	for (uint64_t seed = 0; seed < 60; seed++) {
		const unsigned int p = (unsigned int)(seed % 3);
		const bool own = seed % 2;
		uint32_t want = 0;

		rnd = seed * 77 + 1;
		make_group(p == 1 ? EC_CODEC_XOR : EC_CODEC_RS, k[p], m[p], some_length(k[p]));
		while ((uint32_t)__builtin_popcount(want) < 1 + random_below(m[p])) {
			const unsigned int u = random_below(k[p] + m[p]);

			if (unit_len(u))
				want |= 1u << u;
		}
		assert_int_equal(rebuild(want, all_units() & ~want, own, NULL), 0);
		assert_int_equal(check_targets(want, own), __builtin_popcount(want));
	}
}

static void a_source_that_fails_is_replaced(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 60; seed++) {
		const enum fault f = (enum fault)(1 + seed % (WRONG_BYTES - 1));
		unsigned int bad;

		if (f == SILENT)
			continue; /* below */
		rnd = seed * 99 + 1;
		make_group(EC_CODEC_RS, 3, 2, 3 * 65536 + 65536 + random_below(70000));
		bad = random_below(4); /* one of those that may be read, and one is to spare */
		source_fault[bad] = f;
		/* the first one's CRCs are the measure */
		if (rebuild(1u << 4, all_units() & ~(1u << 4), false, NULL) < 0)
			assert_int_equal(f, OTHER_CRCS);
		else
			assert_int_equal(check_targets(1u << 4, false), 1);
		if (res.blamed)
			assert_true(f == BAD_CRC && res.blamed == 1u << bad);
	}
}

/* A replica here is read like another one; when it is not what was ordered, another one takes its
 * place. */
static void an_own_replica_counts_when_it_is_the_one(void **state)
{
	static const struct {
		int64_t gs, len;
		enum replica_state state;
	} cases[] = {
		{0, 0, REPLICA_FINALIZED},  {-1, 0, REPLICA_FINALIZED}, {1, 0, REPLICA_FINALIZED},
		{0, -1, REPLICA_FINALIZED}, {0, 1, REPLICA_FINALIZED},  {0, 0, REPLICA_RBW},
	};

	(void)state;
	for (unsigned int i = 0; i < 4 * sizeof(cases) / sizeof(cases[0]); i++) {
		const unsigned int c = i % (sizeof(cases) / sizeof(cases[0]));

		rnd = i * 17 + 1;
		make_group(EC_CODEC_RS, 3, 2, 3 * 65536 + 65536 + random_below(70000));
		own_replica.there = true;
		own_replica.unit = random_below(4);
		own_replica.gs = cases[c].gs;
		own_replica.len = cases[c].len;
		own_replica.state = cases[c].state;
		source_fault[own_replica.unit] = c ? WRONG_BYTES : GOOD;
		assert_int_equal(rebuild(1u << 4, all_units() & ~(1u << 4), false, NULL), 0);
		assert_int_equal(check_targets(1u << 4, false), 1);
	}
	own_replica.there = false;
}

/* A busy machine may stop this process for so long that a good one is taken for silent, too. */
static void a_silent_source_is_replaced(void **state)
{
	uint32_t good = 0;

	(void)state;
	dn.live.ec_read_timeout_ms = 300;
	for (uint64_t seed = 0; seed < 6; seed++) {
		int rc;

		rnd = seed * 121 + 1;
		make_group(EC_CODEC_RS, 3, 2, 3 * 65536 + 65536 + random_below(70000));
		source_fault[random_below(4)] = SILENT;
		rc = rebuild(1u << 4, all_units() & ~(1u << 4), false, NULL);
		assert_true(rc == 0 || rc == -ENODATA);
		assert_int_equal(check_targets(1u << 4, false), rc == 0);
		good += rc == 0;
	}
	assert_true(good > 0);
	dn.live.ec_read_timeout_ms = 60000;
}

/* When as many units are left as decoding needs, the next failure is the end, and nothing is
 * stored. */
static void too_few_sources_store_nothing(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 40; seed++) {
		const enum fault f = (enum fault)(1 + seed % (OTHER_CRCS - 1));
		const uint32_t want = 1u << 0 | 1u << 4;

		if (f == SILENT)
			continue; /* is waited for */
		rnd = seed * 55 + 1;
		make_group(EC_CODEC_RS, 3, 2, 4 * 65536 + random_below(70000));
		source_fault[1 + random_below(3)] = f;
		if (rebuild(want, 1u << 1 | 1u << 2 | 1u << 3, seed % 2, NULL) < 0)
			assert_int_equal(check_targets(want, seed % 2), 0);
		else /* the fault was behind the last byte that was needed */
			assert_int_equal(check_targets(want, seed % 2), 2);
	}
	assert_int_equal(rebuild(1, 1u << 1 | 1u << 2, false, NULL), -ENODATA);
}

static void wrong_bytes_with_good_crcs_are_never_stored(void **state)
{
	(void)state;
	dn.live.ec_verify_bytes = UINT32_MAX;
	for (uint64_t seed = 0; seed < 20; seed++) {
		rnd = seed * 33 + 1;
		make_group(EC_CODEC_RS, 3, 2, 3 * 65536 + random_below(70000));
		source_fault[random_below(4)] = WRONG_BYTES;
		assert_int_equal(rebuild(1u << 4, all_units() & ~(1u << 4), seed % 2, NULL),
				 -EBADMSG);
		assert_int_equal(check_targets(1u << 4, seed % 2), 0);
	}
	dn.live.ec_verify_bytes = 65536;
}

/* Of the additional unit the first and the last bytes are compared. */
static void a_wrong_last_byte_is_seen(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 8; seed++) {
		rnd = seed * 7 + 1;
		make_group(EC_CODEC_RS, 3, 2, 2 * 3 * 65536);
		dn.live.ec_verify_bytes = 4096;
		source_fault[seed % 4] = WRONG_END;
		assert_int_equal(rebuild(1u << 4, all_units() & ~(1u << 4), seed % 2, NULL),
				 -EBADMSG);
		assert_int_equal(check_targets(1u << 4, seed % 2), 0);
	}
	dn.live.ec_verify_bytes = 65536;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lost_units_come_back_as_they_were),
		cmocka_unit_test(a_source_that_fails_is_replaced),
		cmocka_unit_test(an_own_replica_counts_when_it_is_the_one),
		cmocka_unit_test(a_silent_source_is_replaced),
		cmocka_unit_test(too_few_sources_store_nothing),
		cmocka_unit_test(wrong_bytes_with_good_crcs_are_never_stored),
		cmocka_unit_test(a_wrong_last_byte_is_seen),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
