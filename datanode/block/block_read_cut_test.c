/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: who knows a block by an older stamp is not given bytes that were written after a
 * recovery had cut it, whether the read begins then or is under way; and a replica that has become
 * shorter than it is said to be is looked at. */
#include "datanode/block/block_read_test_fixture.h"

#define CUT_TO (2u << 20)

static uint32_t suspects;
static int64_t suspect_id;

void __wrap_replica_suspect(struct block_pool *pool_of, const struct block *b);
void __wrap_replica_suspect(struct block_pool *pool_of, const struct block *b)
{
	(void)pool_of;
	suspects++;
	suspect_id = b->id;
}

/* Its files are as long again afterwards. */
static void cut_and_append(int64_t id)
{
	const struct block b = {id, 1001, 0};
	struct write_request q = request(id);
	char uuid[BLOCK_UUID_MAX];
	struct replica_info info;
	struct err err = ERR_INIT;

	assert_int_equal(replica_init_recovery(bp, &b, 1010, &info, &err), 0);
	assert_int_equal(replica_update_recovery(bp, &b, 1010, CUT_TO, 0, uuid, &err), 0);
	q.block.gs = 1010;
	q.stage = STAGE_APPEND;
	q.new_gs = 1011;
	q.min_bytes = CUT_TO;
	write_replica(&q, LEN);
}

static void a_reader_of_what_was_cut_off_is_told(void **state)
{
	struct reader d;

	(void)state;
	core.waits.buffers_ns = LONG_NS;
	make_replica(1);
	cut_and_append(1);
	for (int i = 0; i < 2; i++) { /* its files are opened, and then kept */
		begin_len(&d, 1, NULL, CUT_TO);
		d.gives_back = true;
		await_end(&d, 0);
		assert_int_equal(d.bytes, CUT_TO);
		begin_len(&d, 1, NULL, CUT_TO + 1);
		d.gives_back = true;
		await_end(&d, -EEXIST);
		assert_int_equal(d.bytes, 0);
	}
}

static void a_read_under_way_ends_where_the_replica_is_cut(void **state)
{
	struct reader d;

	(void)state;
	core.waits.buffers_ns = LONG_NS;
	make_replica(2);
	begin(&d, 2, NULL);
	await_pieces(&d, 2);
	assert_true(d.bytes >= CUT_TO && d.bytes < LEN);
	cut_and_append(2);
	d.bytes = 0;
	d.gives_back = true;
	give_back(&d);
	await_end(&d, -EEXIST);
	assert_int_equal(d.bytes, 0);
}

static void a_replica_that_lacks_bytes_is_suspect(void **state)
{
	struct reader d;

	(void)state;
	core.waits.buffers_ns = LONG_NS;
	make_replica(3);
	suspects = 0;
	begin(&d, 3, NULL);
	d.gives_back = true;
	await_end(&d, 0);
	assert_int_equal(suspects, 0);
	begin(&d, 3, NULL);
	await_pieces(&d, 2);
	cut_file(3, 2 * PIECE_MAX);
	d.gives_back = true;
	give_back(&d);
	await_end(&d, -ENODATA);
	assert_int_equal(suspects, 1);
	assert_int_equal(suspect_id, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_reader_of_what_was_cut_off_is_told),
		cmocka_unit_test(a_read_under_way_ends_where_the_replica_is_cut),
		cmocka_unit_test(a_replica_that_lacks_bytes_is_suspect),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
