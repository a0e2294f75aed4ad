/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of the replica of a block being written when its write begins, fails or ends: a
 * copy stays what its source is, and leaves nothing when it fails; damaged bytes are not appended
 * to; a disk error has the volume looked at; a node that restarts says so and keeps the replica for
 * its writer. */
#include <sys/stat.h>

#include "datanode/block/block_write_chain_test_fixture.h"

static unsigned suspected;

void __real_store_volume_suspect(struct store *s, const char *storage_uuid);
void __wrap_store_volume_suspect(struct store *s, const char *storage_uuid);
void __wrap_store_volume_suspect(struct store *s, const char *storage_uuid)
{
	suspected++;
	__real_store_volume_suspect(s, storage_uuid);
}

static void a_copy_of_a_replica_being_written_stays_one(void **state)
{
	(void)state;
	begin((struct begin){.transfer = true});
	send_piece(0, 0, 1000, (struct how){.sync = false});
	send_piece(1, 1000, 0, (struct how){.last = true});
	await(sender.ended);
	assert_int_equal(sender.rc, 0);
	assert_int_equal(finalised, 0);
	assert_int_equal(replica().state, REPLICA_RBW);
	assert_int_equal(replica().visible, 1000); /* somebody relies on all of it */
	assert_int_equal(disk.asked[DATA], 2);     /* also after a power cut */
	end();
}

static void a_copy_that_cannot_be_kept_has_failed(void **state)
{
	struct replica_info info;

	(void)state;
	begin((struct begin){.transfer = true});
	disk.fail[DATA] = true;
	send_piece(0, 0, 1000, (struct how){.sync = false});
	send_piece(1, 1000, 0, (struct how){.last = true});
	await(sender.ended);
	assert_int_equal(sender.rc, -EIO);
	assert_int_equal(replica_get(bp, sender.id, &info), -ENOENT);
	end();
}

static void a_copy_that_fails_leaves_nothing(void **state)
{
	struct replica_info info;

	(void)state;
	begin((struct begin){.transfer = true});
	send_piece(0, 0, 1000, (struct how){.sync = false});
	block_write_close(sender.w, -ECONNRESET);
	await(sender.ended);
	assert_int_equal(replica_get(bp, sender.id, &info), -ENOENT);
	end();
}

/* A byte of the last chunk, which is not whole. */
static void damaged_bytes_are_not_appended_to(void **state)
{
	struct replica_reader *rd;
	struct err err = ERR_INIT;
	struct block b = {.gs = BLOCK_GS_ANY};
	char path[300];
	int fd;

	(void)state;
	begin((struct begin){.chain = false});
	send_piece(0, 0, 1000, (struct how){.sync = false});
	send_piece(1, 1000, 0, (struct how){.last = true});
	await(sender.ended);
	b.id = sender.id;
	assert_int_equal(replica_read_open(bp, &b, &rd, &err), 0);
	path_of(rd->fd, path);
	replica_read_close(rd);
	fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, "!", 1, 700), 1);
	(void)close(fd);
	ask((struct begin){.append = 1000});
	await(sender.ended);
	assert_int_equal(sender.opened, dt_errno_status(-EBADMSG) + 1);
	assert_int_equal(sender.rc, -EBADMSG);
	end();
}

static void a_disk_error_has_the_volume_looked_at(void **state)
{
	static const int why[] = {-EIO, -ECONNRESET};

	(void)state;
	for (int i = 0; i < 2; i++) {
		begin((struct begin){.chain = false});
		suspected = 0;
		block_write_close(sender.w, why[i]);
		await(sender.ended);
		assert_int_equal(suspected, why[i] == -EIO);
		end();
	}
}

/* Its volume goes out of service before the next node has answered. */
static void a_writer_that_has_not_begun_is_answered(void **state)
{
	(void)state;
	ask((struct begin){.chain = true});
	assert_int_equal(sender.opened, 0);
	sender.w->params.req.stop(sender.w, -EIO);
	await(sender.ended);
	assert_int_equal(sender.opened, dt_errno_status(-EIO) + 1);
	end();
}

static void a_node_that_restarts_says_so_and_keeps_the_replica(void **state)
{
	char marker[340], meta[300];
	struct stat st;

	(void)state;
	begin((struct begin){.chain = false});
	send_piece(0, 0, 1000, (struct how){.sync = false});
	await(sender.acked == 0);
	path_of(sender_meta(), meta);
	core.restart_until_ms = clock_wall_ms() + 60000;
	block_write_restart_all(&core);
	await(sender.own == DT_OOB_RESTART);
	assert_int_equal(sender.own_seq, SEQ_UNKNOWN);
	sender.own = 0;
	block_write_restart_all(&core);
	pass();
	assert_int_equal(sender.own, 0); /* once is enough */
	end();
	core.restart_until_ms = 0;
	/* as a Java DataNode names it */
	snprintf(marker, sizeof(marker), "%.*s:.blk_%ld.restart", (int)(strrchr(meta, '/') - meta),
		 meta, (long)sender.id);
	assert_int_equal(stat(marker, &st), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_copy_of_a_replica_being_written_stays_one),
		cmocka_unit_test(a_copy_that_cannot_be_kept_has_failed),
		cmocka_unit_test(a_copy_that_fails_leaves_nothing),
		cmocka_unit_test(damaged_bytes_are_not_appended_to),
		cmocka_unit_test(a_disk_error_has_the_volume_looked_at),
		cmocka_unit_test(a_writer_that_has_not_begun_is_answered),
		cmocka_unit_test(a_node_that_restarts_says_so_and_keeps_the_replica),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
