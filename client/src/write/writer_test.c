/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a flush ends whatever signs of life were sent beside it; when an hsync returns,
 * every byte before it is on the disk of every node, on nodes that sync nothing by themselves, too
 * (dfs.datanode.synconclose=false), and the file is still the writer's; the writer knows what it
 * has to ask for, and remembers the blocks that are synced later. */
#include "common/base/clock.h"

#include "client/src/write/writer_test_fixture.h"

static void put(struct output *f, size_t len)
{
	struct err err = ERR_INIT;

	assert_int_equal(output_write(f, bytes, len, &err), len);
}

static void expect_on_disk(unsigned n)
{
	assert_int_equal(blocks, n);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(block[i].synced, block[i].len);
}

static void hsync_syncs_the_blocks_before_it(void **state)
{
	const size_t sizes[] = {1,         BLOCK - 1,       BLOCK,    BLOCK + 1,
				2 * BLOCK, 2 * BLOCK + 100, 3 * BLOCK};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct output *f = begin();
		struct err err = ERR_INIT;

		put(f, sizes[i]);
		assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), 0);
		expect_on_disk((unsigned)((sizes[i] + BLOCK - 1) / BLOCK));
		end(f);
	}
}

/* Also where nothing has come since the hflush that brought them to the nodes. */
static void hsync_syncs_what_was_only_flushed_before(void **state)
{
	const size_t sizes[] = {1, 512, 1000, BLOCK - 1};

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct output *f = begin();
		struct err err = ERR_INIT;

		put(f, sizes[i]);
		assert_int_equal(output_flush(f, 0, &err), 0);
		assert_int_equal(block[0].synced, 0);
		assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), 0);
		expect_on_disk(1);
		end(f);
		assert_true(block[0].finished_synced);
	}
}

/* It has no byte whose nodes would notice that another writer has the file, or that it is gone. */
static void hsync_of_an_empty_file_of_an_early_create_asks_for_its_lease(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		const bool early = i & 1, gone = i & 2;
		struct output *f = begin();
		struct err err = ERR_INIT;

		f->early = early;
		fsync_rc = gone ? -ENOENT : 0;
		assert_int_equal(output_flush(f, 0, &err), 0);
		assert_int_equal(fsyncs, 0);
		assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), early && gone ? -ESTALE : 0);
		assert_int_equal(fsyncs, early);
		output_free(f);
	}
}

static void who_closes_early_can_wait_for_each_block_that_is_synced_later(void **state)
{
	(void)state;
	for (unsigned no_hsync = 0; no_hsync < 2; no_hsync++)
		for (unsigned synced = 0; synced < 2; synced++) {
			struct output *f = begin();
			struct err err = ERR_INIT;
			unsigned later = 0;

			f->close_early = true;
			f->no_hsync = no_hsync;
			put(f, BLOCK + 100);
			if (synced)
				assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), 0);
			f->close_early = false; /* that is the NameNode's part of it */
			end(f);
			assert_int_equal(blocks, 2);
			for (unsigned i = 0; i < 2; i++)
				later += !block[i].finished_synced;
			assert_int_equal(later, (unsigned)!synced + no_hsync);
			assert_int_equal(remembered, later);
		}
}

/* A replica that loses its last name in a power cut is not as good as it was. */
static void what_was_synced_is_finished_on_the_disk(void **state)
{
	struct output *f = begin();
	struct err err = ERR_INIT;

	(void)state;
	put(f, 100);
	assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), 0);
	put(f, 100);
	end(f);
	assert_true(block[0].finished_synced);
	f = begin();
	put(f, 100);
	end(f); /* that is dfs.datanode.synconclose's to say */
	assert_true(block[0].finished && !block[0].finished_synced);
}

/* A file of @len bytes, which another writer has closed, is appended to. */
static struct output *append_to(uint64_t len)
{
	struct output *f = begin();
	Hd__AddBlockResponseProto *m;
	Hd__LocatedBlockProto *lb;
	struct err err = ERR_INIT;

	add_block(NULL, &m);
	lb = m->block;
	m->block = NULL;
	pb_free(m);
	lb->b->has_numbytes = 1;
	lb->b->numbytes = block[0].len = len;
	memcpy(block[0].bytes, bytes, len);
	assert_int_equal(writer_reopen(container_of(f, struct writer, f), lb, len, &err), 0);
	return f;
}

/* Its nodes may have synced nothing as they closed it. */
static void hsync_after_an_append_syncs_what_was_there(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	for (uint64_t len = 1000; len <= 1024; len += 24) { /* in a chunk, and at its end */
		struct output *f = append_to(len);

		assert_int_equal(output_flush(f, 0, &err), 0);
		assert_int_equal(block[0].synced, 0);
		assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), 0);
		assert_int_equal(block[0].synced, len);
		block[0].synced = 0;
		assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), 0);
		assert_int_equal(block[0].synced, 0); /* once is enough */
		end(f);
		f = append_to(len);
		put(f, BLOCK); /* into the next block */
		assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), 0);
		expect_on_disk(2);
		end(f);
	}
}

/* Or the writer before has synced it. */
static void what_was_appended_to_is_finished_on_the_disk(void **state)
{
	struct output *f = append_to(1000);

	(void)state;
	put(f, 100);
	end(f);
	assert_true(block[0].finished_synced);
	f = append_to(1000);
	put(f, BLOCK); /* the next block is this writer's own */
	end(f);
	assert_true(block[0].finished_synced);
	assert_true(block[1].finished && !block[1].finished_synced);
}

static void who_never_syncs_waits_for_no_disk(void **state)
{
	struct output *f = begin();
	struct err err = ERR_INIT;

	(void)state;
	f->no_hsync = true;
	put(f, 2 * BLOCK + 1);
	assert_true(block[1].finished && !block[0].synced && !block[1].synced);
	assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), 0); /* all the same: from here on */
	put(f, 2 * BLOCK);
	assert_true(block[2].finished_synced && block[3].finished_synced);
	end(f);
}

static void hsync_behind_an_early_close_waits_for_the_blocks_before(void **state)
{
	struct output *f = begin();
	struct err err = ERR_INIT;

	(void)state;
	f->after_early = true;
	put(f, 100);
	assert_int_equal(output_flush(f, 0, &err), 0);
	assert_int_equal(settled, 0); /* nobody has asked for the disk */
	settle_rc = -ETIMEDOUT;
	assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), -ETIMEDOUT);
	assert_int_equal(settled, 1);
	settle_rc = 0;
	put(f, 100); /* it has not failed for good */
	assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), 0);
	assert_int_equal(settled, 2);
	expect_on_disk(1);
	put(f, 100);
	assert_int_equal(output_flush(f, DFS_SYNC_DISK, &err), 0);
	assert_int_equal(settled, 2); /* once is enough */
	end(f);
}

/* One flush while the acks are late; how many heartbeats the stream was given. */
static unsigned heartbeats_of_a_late_flush(const struct block_stream *ops)
{
	struct fake_stream *s;
	struct output *f = begin();
	struct err err = ERR_INIT;
	unsigned n;

	stream_ops = ops;
	put(f, 100);
	assert_int_equal(output_flush(f, 0, &err), 0);
	s = container_of(container_of(f, struct writer, f)->pipe.ws, struct fake_stream, base);
	put(f, 100);
	s->late = 3;
	assert_int_equal(output_flush(f, 0, &err), 0);
	n = s->heartbeats;
	container_of(f, struct writer, f)->pipe.sent_ns = 0; /* long ago */
	f->kept.keep_alive(&f->kept, clock_mono_ns());
	assert_int_equal(s->heartbeats, n ? n + 1 : 0);
	put(f, 100);
	assert_int_equal(output_flush(f, 0, &err), 0);
	end(f);
	stream_ops = &fake_ops;
	return n;
}

/* They would wait for an ack that does not come, and so would the flush. */
static void a_stream_that_keeps_alive_is_sent_no_heartbeats(void **state)
{
	(void)state;
	assert_int_equal(heartbeats_of_a_late_flush(&fake_alive_ops), 0);
	assert_int_equal(heartbeats_of_a_late_flush(&fake_ops), 3);
}

static void heartbeats_are_not_taken_along_to_the_next_stream(void **state)
{
	struct fake_stream s = {.base.ops = &fake_ops, .late = 100};
	Hd__LocatedBlockProto lb = HD__LOCATED_BLOCK_PROTO__INIT;
	struct err err = ERR_INIT;
	struct pipeline p;
	int bad;

	(void)state;
	pipeline_init(&p, &fs, CRC_CRC32C, 512);
	p.ws = &s.base;
	p.lb = &lb;
	p.progress_ns = clock_mono_ns();
	/* data, heartbeat sent; data, heartbeat sent; data, heartbeat not sent */
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(pipeline_queue_empty(&p, false, true, &err), 0);
		if (i < 2)
			assert_int_equal(pipeline_pump(&p, &bad, &err), 0);
		assert_int_equal(pipeline_waited(&p, false, &err), 0);
		if (i < 2)
			assert_int_equal(pipeline_pump(&p, &bad, &err), 0);
	}
	assert_int_equal(s.heartbeats, 2);
	assert_int_equal(p.in_window, 6);
	pipeline_requeue(&p);
	assert_int_equal(p.in_window, 3);
	assert_true(list_empty(&p.unacked));
	for (int64_t i = 0; i < 3; i++) {
		struct packet *packet = container_of(list_pop(&p.queue), struct packet, link);

		assert_int_equal(packet->seqno, i);
		pipeline_drop_packet(&p, packet);
	}
	p.ws = NULL;
	pipeline_fini(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hsync_syncs_the_blocks_before_it),
		cmocka_unit_test(hsync_syncs_what_was_only_flushed_before),
		cmocka_unit_test(hsync_of_an_empty_file_of_an_early_create_asks_for_its_lease),
		cmocka_unit_test(who_closes_early_can_wait_for_each_block_that_is_synced_later),
		cmocka_unit_test(what_was_synced_is_finished_on_the_disk),
		cmocka_unit_test(hsync_after_an_append_syncs_what_was_there),
		cmocka_unit_test(what_was_appended_to_is_finished_on_the_disk),
		cmocka_unit_test(who_never_syncs_waits_for_no_disk),
		cmocka_unit_test(hsync_behind_an_early_close_waits_for_the_blocks_before),
		cmocka_unit_test(a_stream_that_keeps_alive_is_sent_no_heartbeats),
		cmocka_unit_test(heartbeats_are_not_taken_along_to_the_next_stream),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
