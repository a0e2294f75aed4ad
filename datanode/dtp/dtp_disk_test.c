/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: an operation that waits for a disk is listed by /ops, and a checksum need not wait for
 * the threads of its volume. */
#include "datanode/block/moves.h"

#include "datanode/dtp/dtp_test_fixture.h"

#define VOLUME_THREADS 2

static sem_t let_go;
static atomic_uint threads_in;
static uint32_t threads_back;

static void wait_in_thread(struct offload *o)
{
	(void)o;
	threads_in++;
	sem_wait(&let_go);
}

static void thread_back(struct offload *o)
{
	(void)o;
	threads_back++;
}

/* The threads of the volume do not come back. What waits for them is done by others, which find
 * that the volume is out of service. */
static void a_checksum_need_not_wait_for_the_threads_of_its_volume(void **state)
{
	const int64_t id = next_id++;
	const struct fake_opts good = stream(1);
	Hd__OpBlockChecksumProto m = HD__OP_BLOCK_CHECKSUM_PROTO__INIT;
	struct offload stuck[VOLUME_THREADS];
	uint32_t acks;

	(void)state;
	put_write(id, false);
	acks = put_stream(DATA_LEN);
	peer_run(&good, 1);
	run_until_ended(acks);
	everything_comes_back();
	sem_init(&let_go, 0, 0);
	for (uint32_t i = 0; i < VOLUME_THREADS; i++) {
		stuck[i] = (struct offload){.work = wait_in_thread, .done = thread_back};
		reactor_offload_to(r, DN_VOLUME_QUEUE(0), &stuck[i]);
		while (threads_in == i)
			fix_run(5);
	}
	m.header = header_for(id)->baseheader;
	m.header->block->numbytes = DATA_LEN;
	put_op(DT_BLOCK_CHECKSUM, &m);
	peer_run(&good, 1);
	fix_run(50);
	assert_int_equal(peer.in_len, 0);
	reactor_queue_pass(r, DN_VOLUME_QUEUE(0));
	for (int i = 0; i < 600 && !peer.in_len; i++)
		fix_run(100);
	assert_true(peer.in_len);
	assert_int_equal(threads_back, 0);
	for (uint32_t i = 0; i < VOLUME_THREADS; i++)
		sem_post(&let_go);
	while (threads_back < VOLUME_THREADS)
		fix_run(10);
	everything_comes_back();
}

/* ---- /ops ---- */

static int no_fds(struct xconn *c, uint8_t byte, const int *fds, int n)
{
	(void)c, (void)byte, (void)fds, (void)n;
	return 0;
}

static void start_checksum(struct dtp_conn *c, Hd__BaseHeaderProto *base)
{
	Hd__OpBlockChecksumProto m = HD__OP_BLOCK_CHECKSUM_PROTO__INIT;

	m.header = base;
	dtp_checksum_start(c, &m);
}

static void start_sync(struct dtp_conn *c, Hd__BaseHeaderProto *base)
{
	Hd__OpSyncLaterProto m = HD__OP_SYNC_LATER_PROTO__INIT;

	m.header = base;
	dtp_sync_later_start(c, &m);
}

static void start_fds(struct dtp_conn *c, Hd__BaseHeaderProto *base)
{
	Hd__OpRequestShortCircuitAccessProto m = HD__OP_REQUEST_SHORT_CIRCUIT_ACCESS_PROTO__INIT;

	m.header = base;
	m.maxversion = 1;
	dtp_fds_start(c, &m);
}

/* A block that can be moved from a disk to an SSD, in a store of its own. */
static void two_types(char *top, int64_t id)
{
	char disk[64], ssd[64];
	const struct store_volume_opts vol[] = {{.path = disk, .type = STORAGE_DISK},
						{.path = ssd, .type = STORAGE_SSD}};
	const struct store_opts so = {.volumes = vol, .volume_count = 2};
	const struct store_namespace ns = {
		.pool_id = POOL_ID, .cluster_id = "CID-1", .namespace_id = 1, .ctime = 1};
	struct write_request q = {.block = {id, 1001, 1 << 20},
				  .stage = STAGE_CREATE,
				  .from_client = true,
				  .crc_type = CRC_NULL,
				  .bytes_per_crc = BPC,
				  .storage_type = STORAGE_DISK};
	struct replica_writer *w;
	struct err err = ERR_INIT;

	assert_non_null(mkdtemp(top));
	(void)snprintf(disk, sizeof(disk), "%s/disk", top);
	(void)snprintf(ssd, sizeof(ssd), "%s/ssd", top);
	assert_int_equal(store_open(&so, &dn.store, &err), 0);
	assert_int_equal(store_attach(dn.store, &ns, &bp, &err), 0);
	assert_int_equal(replica_write_open(bp, &q, &w, &err), 0);
	assert_int_equal(replica_finalize(w, 0, SYNC_NEVER, NULL, &err), 0);
}

static void start_move(struct dtp_conn *c, Hd__BaseHeaderProto *base)
{
	Hd__OpReplaceBlockProto m = HD__OP_REPLACE_BLOCK_PROTO__INIT;
	Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT;
	Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;

	id.datanodeuuid = (char *)(uintptr_t)store_datanode_uuid(dn.store);
	info.id = &id;
	base->block->numbytes = 0;
	m.header = base;
	m.delhint = (char *)(uintptr_t) "";
	m.source = &info;
	m.has_storagetype = true;
	m.storagetype = HD__STORAGE_TYPE_PROTO__SSD;
	dtp_replace_start(c, &m);
}

static uint32_t entries(void)
{
	struct operation_list l = {0};

	entries_list(&core, &l);
	free(l.op);
	return l.count;
}

static struct dtp_conn *busy_conn(struct xport_ops *ops, struct xconn *ends[2])
{
	const struct fake_opts fo = {.seed = 1};
	struct dtp_conn *c;

	assert_int_equal(fake_pair(r, &fo, ends), 0);
	*ops = *ends[0]->ops;
	ops->send_fds = no_fds;
	ends[0]->ops = ops;
	ends[0]->peer.sa.ss_family = AF_UNIX;
	c = dtp_conn_new(&core, ends[0]);
	memcpy(c->peer, "10.1.2.3:4567", sizeof("10.1.2.3:4567"));
	c->state = DTP_BUSY;
	return c;
}

struct listed {
	void (*start)(struct dtp_conn *c, Hd__BaseHeaderProto *base);
	const char *kind, *transport, *state;
};

/* The operation is listed until a helper thread is back, which this thread hears of as the reactor
 * runs only. */
static void assert_is_listed(const struct listed *l, int64_t id)
{
	static struct xport_ops ops; /* of the connection, whose end nobody awaits */
	struct xconn *ends[2];
	struct dtp_conn *c = busy_conn(&ops, ends);
	struct operation o;

	l->start(c, header_for(id)->baseheader);
	assert_int_equal(entries(), 1);
	nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	o = fix_op(entries_list, id);
	assert_string_equal(o.kind, l->kind);
	assert_string_equal(o.transport, l->transport);
	assert_string_equal(o.state, l->state);
	assert_string_equal(o.waits_for, "disk");
	assert_string_equal(o.pool, POOL_ID);
	assert_string_equal(o.peer, "10.1.2.3:4567");
	assert_int_equal(o.gs, 1001);
	assert_true(o.age_ms >= 20);
	for (int k = 0; k < 600 && entries(); k++)
		fix_run(100);
	assert_int_equal(entries(), 0);
	xconn_close(ends[1]);
	for (int k = 0; k < 600 && core.conn_count; k++)
		fix_run(100);
	assert_int_equal(core.conn_count, 0);
}

static void what_waits_for_a_disk_is_listed(void **state)
{
	static const struct listed cases[] = {
		{start_checksum, "checksum", "tcp", "wait_disk"},
		{start_sync, "sync", "tcp", "wait_disk"},
		{start_fds, "descriptors", "tcp", "wait_disk_open"},
		{start_move, "move", "none", "wait_disk"},
	};
	static struct moves moves;
	char top[] = "/tmp/dtp_test.XXXXXX", cmd[64];
	struct block_pool *const usual_bp = bp;
	struct store *const usual = dn.store;

	(void)state;
	core.moves = &moves;
	core.pass_fds = true;
	dn.live.max_moves = 1;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const int64_t id = next_id++;

		if (cases[i].start == start_move)
			two_types(top, id);
		assert_is_listed(&cases[i], id);
	}
	store_close(dn.store);
	dn.store = usual;
	bp = usual_bp;
	(void)snprintf(cmd, sizeof(cmd), "rm -rf %s", top);
	assert_int_equal(system(cmd), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_checksum_need_not_wait_for_the_threads_of_its_volume),
		cmocka_unit_test(what_waits_for_a_disk_is_listed),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
