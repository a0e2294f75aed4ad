/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a stream that nobody reads is given back to its data node, and a reader that
 * comes back has another one; of many open files only those that are read hold streams. */
#include "client/src/read/reader_test_fixture.h"

static void read_bit(struct reader *r, size_t len)
{
	struct err err = ERR_INIT;
	const uint64_t at = reader_tell(r);
	uint8_t buf[CELL];

	assert_int_equal(reader_read(r, buf, len, &err), len);
	expect_bytes(&file[0], 0, at, buf, len);
}

static void an_idle_stream_is_given_back(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		unsigned made;

		read_bit(r, 10);
		assert_true(streams > 0);
		assert_true(idle_streams_round_ns(&fs) <= IDLE_NS);
		clock_ns += IDLE_NS - 1;
		idle_streams_reap(&fs, clock_ns);
		assert_true(streams > 0); /* it may go on any moment */
		clock_ns += 1;
		idle_streams_reap(&fs, clock_ns);
		assert_int_equal(streams, 0);
		assert_int_equal(idle_streams_round_ns(&fs), UINT64_MAX);
		made = streams_made;
		read_bit(r, 10);
		assert_int_equal(reader_tell(r), 20);
		assert_true(streams_made > made);
		clock_ns += IDLE_NS;
		idle_streams_reap(&fs, clock_ns);
		assert_int_equal(streams, 0);
		assert_int_equal(read_on(r, &file[0], 0, &(struct err)ERR_INIT), 0);
		reader_free(r);
		assert_int_equal(streams, 0);
	}
}

static void who_reads_seldom_asks_for_no_more_than_he_takes(void **state)
{
	(void)state;
	for_kinds(i)
	{
		const uint64_t all = kinds[i].ec ? CELL : BLOCK;
		struct reader *r = open_file("/d/f");

		read_bit(r, 10);
		assert_int_equal(stream_len, all);
		for (int n = 0; n < 3; n++) {
			const unsigned made = streams_made;

			clock_ns += IDLE_NS;
			idle_streams_reap(&fs, clock_ns);
			read_bit(r, 10);
			assert_int_equal(stream_len, 10);
			assert_int_equal(streams_made, made + 1);
			assert_int_equal(streams, 0);
		}
		clock_ns += IDLE_MANY_NS - 1; /* reads follow one another */
		read_bit(r, 10);
		assert_true(stream_len >= all - 40);
		reader_free(r);
	}
}

static void of_many_open_files_only_those_that_are_read_hold_streams(void **state)
{
	struct reader *r[61];

	(void)state;
	for_kinds(i)
	{
		for (unsigned n = 0; n < 61; n++) {
			r[n] = open_file("/d/f");
			read_bit(r[n], 10);
		}
		clock_ns += IDLE_MANY_NS;
		read_bit(r[60], 10);
		read_bit(r[7], 10);
		idle_streams_reap(&fs, clock_ns);
		assert_int_equal(streams, (kinds[i].ec ? K : 1) * IDLE_STREAMS_MANY);
		for (unsigned n = 0; n < 61; n++) {
			read_bit(r[n], 10);
			reader_free(r[n]);
		}
		assert_int_equal(fs.idle_streams.count, 0);
	}
}

static void a_reader_that_waits_for_its_node_is_not_idle(void **state)
{
	struct reader *r;

	(void)state;
	begin(false, true);
	r = open_file("/d/f");
	read_bit(r, 10);
	clock_ns += 100 * IDLE_NS;
	pthread_mutex_lock(&r->seq_lock);
	idle_streams_reap(&fs, clock_ns);
	assert_int_equal(streams, 1);
	pthread_mutex_unlock(&r->seq_lock);
	idle_streams_reap(&fs, clock_ns);
	assert_int_equal(streams, 0);
	reader_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_idle_stream_is_given_back),
		cmocka_unit_test(who_reads_seldom_asks_for_no_more_than_he_takes),
		cmocka_unit_test(of_many_open_files_only_those_that_are_read_hold_streams),
		cmocka_unit_test(a_reader_that_waits_for_its_node_is_not_idle),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
