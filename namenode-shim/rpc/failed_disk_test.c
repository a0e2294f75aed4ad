/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: nothing that is still under way when a disk has failed makes its replicas count
 * again. Once it is back a full report does. */
#include "common/base/clock.h"
#include "common/wire/block_report.h"
#include "namenode-shim/blocks/located_block.h"
#include "namenode-shim/rpc/batch_test_fixture.h"

#define BLOCKS 5000 /* a list of so many is taken in several slices */
#define FIRST_ID 1073800000

/* A node with two disks: "DS" and "DS2". */
struct disks {
	struct world w;
	struct storage *st[2];
	struct block_report list; /* of all blocks */
	Hdd__DatanodeRegistrationProto reg;
	Hd__DatanodeIDProto id;
	Hd__StorageInfoProto info;
	Hd__DatanodeStorageProto storage[2];
};

static struct block nth(uint32_t i)
{
	return (struct block){FIRST_ID + i, 1005, FILE_LEN};
}

static void disks_init(struct disks *d)
{
	world_init(&d->w, true);
	d->st[0] = d->w.st;
	d->st[1] = dn_storage_add(d->w.st->dn, "DS2", STORAGE_DISK);
	d->list = BLOCK_REPORT_INIT;
	for (uint32_t i = 0; i < BLOCKS; i++) {
		const struct block b = nth(i);

		blocks_add(&d->w.nn->blocks, &b, d->w.file, 1, BLK_COMPLETE);
		assert_int_equal(block_report_add(&d->list, &b, REPLICA_FINALIZED), 0);
	}
	assert_int_equal(block_report_finish(&d->list), 0);
	hdd__datanode_registration_proto__init(&d->reg);
	hd__datanode_idproto__init(&d->id);
	hd__storage_info_proto__init(&d->info);
	d->id.datanodeuuid = d->w.st->dn->uuid;
	d->id.ipaddr = d->w.st->dn->ip;
	d->id.xferport = d->w.st->dn->xfer_port;
	d->info.namespceid = d->w.nn->db->ident.namespace_id;
	d->info.clusterid = d->w.nn->db->ident.cluster_id;
	d->info.ctime = d->w.nn->db->ident.ctime_ms;
	d->reg.datanodeid = &d->id;
	d->reg.storageinfo = &d->info;
	for (int i = 0; i < 2; i++) {
		hd__datanode_storage_proto__init(&d->storage[i]);
		d->storage[i].storageuuid = d->st[i]->id;
	}
}

static void disks_fini(struct disks *d)
{
	block_report_fini(&d->list);
	world_fini(&d->w);
}

static void req_begin(struct disks *d, struct req *q)
{
	*q = (struct req){.nn = d->w.nn, .exception = {.a = &q->mem}};
}

static void req_end(struct req *q)
{
	free(q->report);
	arena_free(&q->mem);
}

static int call(struct req *q, const char *method, const void *m)
{
	q->nn->holds.since_ns = clock_mono_ns();
	return find_method(&datanode_methods, method)->run(q, m);
}

/* A heartbeat with the disks from @first on. True: it is told to register. */
static bool beat(struct disks *d, size_t first)
{
	Hdd__HeartbeatRequestProto m = HDD__HEARTBEAT_REQUEST_PROTO__INIT;
	Hd__StorageReportProto r[2], *all[] = {&r[0], &r[1]};
	const Hdd__HeartbeatResponseProto *out;
	struct req q;
	bool ret;

	for (int i = 0; i < 2; i++) {
		hd__storage_report_proto__init(&r[i]);
		r[i].storage = &d->storage[i];
		r[i].storageuuid = d->storage[i].storageuuid;
	}
	m.registration = &d->reg;
	m.reports = all + first;
	m.n_reports = 2 - first;
	req_begin(d, &q);
	assert_int_equal(call(&q, "sendHeartbeat", &m), 0);
	out = (const Hdd__HeartbeatResponseProto *)q.out;
	ret = out->n_cmds && out->cmds[0]->registercmd;
	req_end(&q);
	return ret;
}

static void fail_disk(struct disks *d)
{
	assert_false(beat(d, 1));
	assert_true(d->st[0]->failed);
	blocks_sweep(&d->w.nn->blocks, UINT32_MAX);
}

static uint32_t live(const struct disks *d)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < BLOCKS; i++)
		n += blk_live(blocks_find(&d->w.nn->blocks, FIRST_ID + i));
	return n;
}

/* A full report of both disks. The first one has all blocks, and fails when so many slices of it
 * were taken; -1: it does not. @cut: the list of the second one is cut short. Returns how it ends.
 */
static int report_all(struct disks *d, int slices, bool cut)
{
	Hdd__BlockReportRequestProto m = HDD__BLOCK_REPORT_REQUEST_PROTO__INIT;
	Hdd__StorageBlockReportProto s[2], *all[] = {&s[0], &s[1]};
	struct req q;
	int rc;

	for (int i = 0; i < 2; i++) {
		hdd__storage_block_report_proto__init(&s[i]);
		s[i].storage = &d->storage[i];
		PB_SET(&s[i], numberofblocks, cut && i);
	}
	s[0].blocksbuffers = d->list.chunks;
	s[0].n_blocksbuffers = d->list.chunk_count;
	s[0].numberofblocks = d->list.count;
	m.registration = &d->reg;
	m.blockpoolid = d->w.nn->db->ident.pool_id;
	m.reports = all;
	m.n_reports = 2;
	req_begin(d, &q);
	do {
		if (!slices--)
			fail_disk(d);
		rc = call(&q, "blockReport", &m);
	} while (rc == REQ_PARK);
	req_end(&q);
	return rc;
}

/* Before the list, in the middle of it, or not at all. */
static void a_list_that_was_made_before_its_disk_failed_does_not_count(void **state)
{
	(void)state;
	for (int slices = -1; slices < 2; slices++) {
		struct disks d;

		disks_init(&d);
		assert_false(beat(&d, 0));
		assert_int_equal(report_all(&d, slices, false), 0);
		assert_int_equal(live(&d), slices < 0 ? BLOCKS : 0);
		assert_int_equal(d.st[0]->nblocks, slices < 0 ? BLOCKS : 0);
		assert_int_equal(d.st[0]->reported, slices < 0);
		assert_true(d.st[1]->reported);
		assert_false(d.st[0]->listing || d.st[1]->listing);
		disks_fini(&d);
	}
}

static void a_disk_that_is_back_is_reported_afresh(void **state)
{
	struct disks d;

	(void)state;
	disks_init(&d);
	assert_false(beat(&d, 0));
	assert_int_equal(report_all(&d, 0, false), 0);
	assert_true(beat(&d, 0));
	assert_int_equal(report_all(&d, -1, false), 0);
	assert_int_equal(live(&d), BLOCKS);
	disks_fini(&d);
}

static void of_a_list_that_is_cut_short_nothing_counts(void **state)
{
	struct disks d;

	(void)state;
	disks_init(&d);
	assert_int_equal(report_all(&d, -1, true), -EIO);
	assert_true(d.st[0]->reported);
	assert_false(d.st[1]->report_seq || d.st[1]->listing);
	disks_fini(&d);
}

static void news_of_a_disk_that_failed_do_not_count(void **state)
{
	Hdd__BlockReceivedAndDeletedRequestProto m =
		HDD__BLOCK_RECEIVED_AND_DELETED_REQUEST_PROTO__INIT;
	Hdd__StorageReceivedDeletedBlocksProto
		list = HDD__STORAGE_RECEIVED_DELETED_BLOCKS_PROTO__INIT,
		*lists[] = {&list};
	Hdd__ReceivedDeletedBlockInfoProto one = HDD__RECEIVED_DELETED_BLOCK_INFO_PROTO__INIT,
					   *ones[] = {&one};
	Hd__BlockProto b = HD__BLOCK_PROTO__INIT;
	const struct block first = nth(0);

	(void)state;
	for (int has = 0; has < 2; has++) { /* has: on the other disk of the node */
		struct disks d;
		struct req q;

		disks_init(&d);
		assert_false(beat(&d, 0));
		fail_disk(&d);
		if (has)
			blocks_report(&d.w.nn->blocks, d.st[1], &first, REPLICA_FINALIZED, false,
				      0);
		b.blockid = (uint64_t)first.id;
		b.genstamp = first.gs;
		PB_SET(&b, numbytes, first.len);
		one.block = &b;
		one.status = HDD__RECEIVED_DELETED_BLOCK_INFO_PROTO__BLOCK_STATUS__RECEIVED;
		list.storage = &d.storage[0];
		list.storageuuid = d.st[0]->id;
		list.blocks = ones;
		list.n_blocks = 1;
		m.registration = &d.reg;
		m.blockpoolid = d.w.nn->db->ident.pool_id;
		m.blocks = lists;
		m.n_blocks = 1;
		req_begin(&d, &q);
		assert_int_equal(call(&q, "blockReceivedAndDeleted", &m), 0);
		req_end(&q);
		/* its scanner has found one there */
		blocks_report_corrupt(&d.w.nn->blocks, &(struct block){FIRST_ID + 1, 0, 0},
				      d.st[0]->dn, d.st[0], true);
		assert_int_equal(d.st[0]->nblocks, 0);
		assert_int_equal(live(&d), has);
		disks_fini(&d);
	}
}

static void lose_disk(struct world *w)
{
	w->st->failed = true;
	blocks_forget(&w->nn->blocks, w->st->dn, w->st);
	blocks_sweep(&w->nn->blocks, UINT32_MAX);
}

/* It fails while the primary calls others. */
static void a_recovery_does_not_make_a_disk_count_that_failed(void **state)
{
	const struct blk *b;
	struct recovered r;
	struct world w;

	(void)state;
	world_init(&w, true);
	report(&w);
	recovered_init(&w, &r);
	assert_int_equal(nn_start(w.nn), 0);
	call_in_turn(&w, 0, "append", &r.append);
	call_in_turn(&w, 1, "recoverLease", &r.recover);
	on_writer(&w, lose_disk);
	b = blocks_find(&w.nn->blocks, w.block.id);
	r.synced.newgenstamp = b->open->recovery_id;
	call_in_turn(&w, 2, "commitBlockSynchronization", &r.synced);
	assert_int_equal(calls[2].rc, 0);
	nn_stop(w.nn);
	assert_string_equal(read_file(&w)->client, "");
	assert_int_equal(b->nreps, 0);
	assert_int_equal(w.nn->blocks.missing, 1);
	world_fini(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_list_that_was_made_before_its_disk_failed_does_not_count),
		cmocka_unit_test(a_disk_that_is_back_is_reported_afresh),
		cmocka_unit_test(of_a_list_that_is_cut_short_nothing_counts),
		cmocka_unit_test(news_of_a_disk_that_failed_do_not_count),
		cmocka_unit_test(a_recovery_does_not_make_a_disk_count_that_failed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
