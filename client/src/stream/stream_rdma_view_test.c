/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that are read from a node's memory; the node and the device are played. What must hold: a
 * view is asked for where the NameNode says that the block is cached, once for all who read it; it
 * is used while its lease lasts, less three seconds, and no longer; what a node says wrongly, of
 * bytes, lengths, keys or times, costs an ordinary read, and no replica is blamed for it; no more
 * READs are under way than the connection takes, and memory is not let go of while one is. */
#include "client/src/stream/stream_rdma_view_test_fixture.h"

static void from_the_second_read_on_the_node_is_not_asked(void **state)
{
	static const struct {
		uint64_t at, len;
	} some[] = {{0, 1},           {511, 2},         {700, 4096},   {BLOCK_LEN - 1, 1},
		    {1 << 20, PIECE}, {12345, 3 << 20}, {0, BLOCK_LEN}};
	const uint32_t before = slots_out();
	unsigned sent;

	(void)state;
	is_viewed();
	sent = all_kept;
	for (unsigned i = 0; i < sizeof(some) / sizeof(*some); i++)
		assert_int_equal(get(some[i].at, some[i].len), STREAM_ONESIDED);
	assert_int_equal(all_kept, sent);
	assert_int_equal(views, 1);
	assert_int_equal(slots_out(), before);
}

static void what_is_not_cached_or_agreed_on_is_not_asked_for(void **state)
{
	struct rstream *s = open_with(1, false, 0, 1000, NULL);

	(void)state;
	assert_int_equal(must_read(s, 0, 1000), 1);
	stream_rdma.close_read(s);
	depth = 0;
	assert_int_equal(get(0, 1000), 1);
	depth = 16;
	fs.rdma->onesided = false;
	assert_int_equal(get(0, 1000), 1);
	settle();
	assert_int_equal(views, 0);
}

static void it_is_asked_again_when_the_node_says(void **state)
{
	(void)state;
	refused = 300;
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(get(0, 1000), 1);
	settle();
	assert_int_equal(views, 1);
	(void)poll(NULL, 0, 350);
	refused = UINT32_MAX;
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(get(0, 1000), 1);
	settle();
	assert_int_equal(views, 2); /* it will not: not for a minute */
	refused = 0;
	(void)poll(NULL, 0, 50);
	assert_int_equal(get(0, 1000), 1);
	assert_int_equal(views, 2);
	assert_int_equal(reads, 0);
}

static void no_read_is_posted_in_the_last_three_seconds(void **state)
{
	uint64_t begin;
	unsigned before;

	(void)state;
	given.ms = 3500;
	begin = clock_mono_ns();
	is_viewed();
	silent = true; /* no more time is given */
	before = reads;
	while (clock_mono_ns() - begin < 900 * NS_PER_MS)
		(void)get(0, 1000);
	assert_true(reads > before);
	assert_true(last_read_ns - begin < 600 * NS_PER_MS);
	assert_int_equal(views, 2); /* asked in time, and once */
	assert_int_equal(get(0, 1000), 1);
}

/* It waits in the transport, which refuses to post it then; the other one may have been in time. */
static void what_is_late_when_its_turn_comes_is_an_ordinary_read(void **state)
{
	const uint32_t before = slots_out();

	(void)state;
	given.ms = 3600;
	for (unsigned which = 1; which <= 3; which++) {
		assert_int_equal(get_of(which, 0, 1000), 1);
		settle();
		silent = true; /* no more time is given */
		late = which;
		assert_int_equal(get_of(which, 0, 1000), 1);
		assert_int_equal(reads, 2 * which);
		silent = late = false;
	}
	assert_int_equal(slots_out(), before);
}

static void more_time_is_asked_for_before_the_end(void **state)
{
	const uint64_t begin = clock_mono_ns();

	(void)state;
	given.ms = 3400;
	is_viewed();
	while (clock_mono_ns() - begin < NS_PER_S) {
		assert_int_equal(get(0, 1000), STREAM_ONESIDED);
		(void)poll(NULL, 0, 1);
	}
	assert_true(views >= 4 && views <= 12);
}

static void a_lease_that_is_too_short_is_not_used(void **state)
{
	(void)state;
	given.ms = 3000;
	for (unsigned i = 0; i < 10; i++) {
		assert_int_equal(get(0, 1000), 1);
		settle();
	}
	assert_int_equal(views, 1);
	assert_int_equal(reads, 0);
}

static void wrong_bytes_cost_an_ordinary_read(void **state)
{
	(void)state;
	is_viewed();
	damages = true;
	assert_int_equal(get(4096, PIECE), 1);
	damages = false;
	assert_int_equal(get(0, 1000), 1); /* it is left alone */
	settle();
	assert_int_equal(views, 1);
	assert_int_equal(fs.count.checksum_errors, 0);
}

static void wrong_bytes_in_mid_stream_cost_nothing_else(void **state)
{
	struct rstream *s;

	(void)state;
	is_viewed();
	s = open_with(1, true, 0, BLOCK_LEN, NULL);
	assert_int_equal(must_read(s, 0, 3 << 20), STREAM_ONESIDED);
	damages = true;
	assert_int_equal(must_read(s, 3 << 20, BLOCK_LEN - (3 << 20)), 1);
	stream_rdma.close_read(s);
}

/* Its answer does not fit its CRCs either. */
static void what_the_node_has_damaged_too_is_an_error(void **state)
{
	struct capsule wrong = {.type = CAPSULE_READ_REPLY};
	struct rstream *s;
	struct err err = ERR_INIT;
	uint8_t buf[100];

	(void)state;
	is_viewed();
	damages = true;
	wrong.read_reply.crc_type = CRC_CRC32; /* its CRCs are of the other kind */
	wrong.read_reply.bytes_per_checksum = 512;
	wrong.read_reply.chunk_offset = 1024;
	wrong.read_reply.data_len = 512;
	wrong.read_reply.crc_len = 4;
	lie = &wrong;
	s = open_with(1, true, 1024, 100, NULL);
	assert_int_equal(stream_rdma.read(s, buf, 100, &err), -EBADMSG);
	stream_rdma.close_read(s);
}

static void what_is_shorter_than_the_range_is_an_ordinary_read(void **state)
{
	unsigned before;

	(void)state;
	given.data_len = 10240;
	given.crc_len = 80;
	is_viewed();
	assert_int_equal(get(9000, 1000), STREAM_ONESIDED);
	assert_int_equal(get(9000, 1240), STREAM_ONESIDED);
	before = reads;
	assert_int_equal(get(9000, 1241), 1);
	assert_int_equal(get(20000, 1000), 1);
	assert_int_equal(reads, before);
}

static void chunks_that_are_longer_than_was_thought_fit_or_are_asked_for(void **state)
{
	uint8_t *own = malloc(BLOCK_LEN / 65536 * 4);

	(void)state;
	crc_chunks(CRC_CRC32C, block, BLOCK_LEN, 65536, own);
	bpc = given.bytes_per_checksum = 65536;
	given.crc_addr = (uintptr_t)own;
	given.crc_len = BLOCK_LEN / 65536 * 4;
	(void)get(0, 1000); /* asked for again with more room, one way or the other */
	settle();
	assert_int_equal(get(70000, 10), STREAM_ONESIDED);
	assert_int_equal(get(0, 8 << 20), STREAM_ONESIDED);
	free(own);
}

static void a_node_that_refuses_what_it_allowed_is_not_asked_again(void **state)
{
	struct rstream *s;
	struct err err = ERR_INIT;
	uint8_t buf[100];

	(void)state;
	is_viewed();
	breaks = true;
	s = open_with(1, true, 0, 100, NULL);
	assert_true(stream_rdma.read(s, buf, 100, &err) < 0); /* the connection is lost */
	stream_rdma.close_read(s);
	breaks = false;
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(get(0, 1000), 1);
		settle();
	}
	assert_int_equal(views, 1);
}

static void no_more_are_under_way_than_the_connection_takes(void **state)
{
	struct rstream *s[10];
	struct rtask t;
	unsigned sent;

	(void)state;
	is_viewed();
	most_in_flight = 0;
	depth = 5;
	holds = true;
	sent = all_kept;
	for (unsigned i = 0; i < 10; i++)
		s[i] = open_with(1, true, i * 1000, 1000, NULL);
	assert_int_equal(most_in_flight, 4);
	assert_int_equal(all_kept, sent + 8);
	rdma_run(fs.rdma, &t, let_go);
	for (unsigned i = 0; i < 10; i++) {
		(void)must_read(s[i], i * 1000, 1000);
		stream_rdma.close_read(s[i]);
	}
	depth = 16;
	assert_int_equal(get(0, 1000), STREAM_ONESIDED);
}

static void *lets_go_soon(void *arg)
{
	struct rtask t;

	(void)arg;
	(void)poll(NULL, 0, 200);
	rdma_run(fs.rdma, &t, let_go);
	return NULL;
}

static void memory_is_kept_while_a_read_is_under_way(void **state)
{
	const uint32_t before = slots_out();
	struct rstream *s;
	pthread_t thread;
	uint64_t begin;

	(void)state;
	is_viewed();
	holds = true;
	s = open_with(1, true, 0, PIECE, NULL);
	assert_true(slots_out() > before);
	assert_false(stream_rdma.come_to_rest(s));
	begin = clock_mono_ns();
	assert_int_equal(pthread_create(&thread, NULL, lets_go_soon, NULL), 0);
	stream_rdma.close_read(s);
	assert_true(clock_mono_ns() - begin >= 190 * NS_PER_MS);
	pthread_join(thread, NULL);
	assert_int_equal(slots_out(), before);
	assert_int_equal(get(0, 1000), STREAM_ONESIDED);
}

/* Its close does not wait for the read's end: for that of the memory's use. */
static void so_it_is_when_the_stream_is_given_up(void **state)
{
	struct rstream *s;
	pthread_t thread;
	uint64_t begin;

	(void)state;
	is_viewed();
	holds = true;
	s = open_with(1, true, 0, PIECE, NULL);
	s->given_up = true;
	begin = clock_mono_ns();
	assert_int_equal(pthread_create(&thread, NULL, lets_go_soon, NULL), 0);
	stream_rdma.close_read(s);
	assert_true(clock_mono_ns() - begin >= 190 * NS_PER_MS);
	pthread_join(thread, NULL);
	assert_int_equal(get(0, 1000), 1); /* over another connection */
}

static void views_are_shared_and_the_oldest_is_given_back(void **state)
{
	struct rstream *a, *b;

	(void)state;
	is_viewed();
	a = open_with(1, true, 0, 1000, NULL);
	b = open_with(1, true, 5000, 1000, NULL);
	assert_int_equal(must_read(b, 5000, 1000), STREAM_ONESIDED);
	assert_int_equal(must_read(a, 0, 1000), STREAM_ONESIDED);
	stream_rdma.close_read(a);
	stream_rdma.close_read(b);
	assert_int_equal(views, 1);
	for (uint64_t id = 2; id <= RDMA_VIEWS_MAX; id++)
		assert_int_equal(get_of(id, 0, 10), 1);
	settle();
	assert_int_equal(ends, 0);
	assert_int_equal(get(0, 10), STREAM_ONESIDED); /* the second is the oldest now */
	assert_int_equal(get_of(RDMA_VIEWS_MAX + 1, 0, 10), 1);
	settle();
	assert_int_equal(ends, 1);
	assert_int_equal(ended_key, RKEY);
	assert_int_equal(get(0, 10), STREAM_ONESIDED);
	assert_int_equal(get_of(3, 0, 10), STREAM_ONESIDED);
	assert_int_equal(get_of(2, 0, 10), 1);
}

static void into_registered_memory_nothing_is_copied(void **state)
{
	static uint8_t mem[1 << 20];
	struct err err = ERR_INIT;
	struct rstream *s;
	uint64_t copied;

	(void)state;
	assert_int_equal(rdma_memory_add(fs.rdma, mem, sizeof(mem), &err), 0);
	is_viewed();
	copied = fs.count.read_rdma_copied;
	for (unsigned there = 2; there-- > 0;) {
		has_memory = there;
		memset(mem, 0, sizeof(mem));
		if (!there) /* the device does not have it: asked, by a window */
			break;
		s = open_with(1, true, 4096, PIECE, mem + 512);
		for (uint32_t n = 0; n < PIECE;)
			n += (uint32_t)stream_rdma.read(s, mem + 512 + n, PIECE - n, &err);
		assert_int_equal(s->counter, STREAM_ONESIDED);
		stream_rdma.close_read(s);
		assert_memory_equal(mem + 512, block + 4096, PIECE);
		assert_int_equal(fs.count.read_rdma_copied, copied);
	}
	assert_int_equal(windows_out, 0);
	assert_int_equal(rdma_memory_del(fs.rdma, mem), 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, view_setup, view_teardown)
	const struct CMUnitTest tests[] = {
		CASE(from_the_second_read_on_the_node_is_not_asked),
		CASE(what_is_not_cached_or_agreed_on_is_not_asked_for),
		CASE(it_is_asked_again_when_the_node_says),
		CASE(no_read_is_posted_in_the_last_three_seconds),
		CASE(what_is_late_when_its_turn_comes_is_an_ordinary_read),
		CASE(more_time_is_asked_for_before_the_end),
		CASE(a_lease_that_is_too_short_is_not_used),
		CASE(wrong_bytes_cost_an_ordinary_read),
		CASE(wrong_bytes_in_mid_stream_cost_nothing_else),
		CASE(what_the_node_has_damaged_too_is_an_error),
		CASE(what_is_shorter_than_the_range_is_an_ordinary_read),
		CASE(chunks_that_are_longer_than_was_thought_fit_or_are_asked_for),
		CASE(a_node_that_refuses_what_it_allowed_is_not_asked_again),
		CASE(no_more_are_under_way_than_the_connection_takes),
		CASE(memory_is_kept_while_a_read_is_under_way),
		CASE(so_it_is_when_the_stream_is_given_up),
		CASE(views_are_shared_and_the_oldest_is_given_back),
		CASE(into_registered_memory_nothing_is_copied),
	};

	log_init("stream_rdma_view_test", LOG_ERROR);
	return cmocka_run_group_tests_name("stream_rdma_view", tests, NULL, NULL);
}
