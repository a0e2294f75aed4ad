/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: the checksum of a group is one of all the bytes that were asked for, from units
 * whose nodes answer and from units that are rebuilt; where a unit cannot be had, there is none.
 * The other nodes and the reconstruction are fakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/transport/fake.h"
#include "common/wire/ec_msg.h"
#include "common/wire/pb.h"
#include "datanode/dtp/dtp_call.h"
#include "datanode/dtp/dtp_internal.h"
#include "datanode/reconstruct/reconstruct.h"

#define POOL_TEXT "BP-1"
#define GROUP (-(INT64_C(1) << 40)) /* its id */
#define CELL (UINT64_C(1) << 20)
#define PATIENCE_MS 20000

static struct reactor *r;
static struct pool *pool;
static struct block_pool *bp;
static struct dn dn;
static struct engine_core core;
static char dir[] = "/tmp/dtp_group_checksum_test.XXXXXX";
static unsigned asked, rebuilt; /* units, by the operation at hand */
static bool can_rebuild;

static struct peer {
	struct xconn *c;
	struct xop send_op, recv_op;
	uint32_t got; /* bytes of the answer */
	bool receiving;
	uint8_t in[4096];
} peer;

/* ---- what the data port needs of its node ---- */

struct block_pool *dn_pool(struct dn *d, const char *id)
{
	(void)d, (void)id;
	return bp;
}

void engine_count_conn(struct engine_core *c, int delta)
{
	c->conn_count += (uint32_t)delta;
}

/* ---- other nodes, and a unit that is rebuilt ---- */

struct later {
	struct rtimer timer;
	struct dtp_call *call;
	struct reconstruct_params p;
};

static void on_asked(struct rtimer *t)
{
	struct later *l = container_of(t, struct later, timer);
	Hd__BlockOpResponseProto m = HD__BLOCK_OP_RESPONSE_PROTO__INIT;
	Hd__OpBlockChecksumResponseProto sum = HD__OP_BLOCK_CHECKSUM_RESPONSE_PROTO__INIT;
	uint8_t md5[16] = {(uint8_t)asked};

	sum.bytespercrc = 512;
	sum.crcperblock = 1;
	sum.has_crctype = 1;
	sum.crctype = HD__CHECKSUM_TYPE_PROTO__CHECKSUM_CRC32C;
	sum.blockchecksum = (ProtobufCBinaryData){sizeof(md5), md5};
	m.status = HD__STATUS__SUCCESS;
	m.checksumresponse = &sum;
	l->call->done(l->call, &m);
	free(l);
}

static struct later *soon(void (*fire)(struct rtimer *t))
{
	struct later *l = calloc(1, sizeof(*l));

	assert_non_null(l);
	l->timer.fire = fire;
	reactor_timer_set(r, &l->timer, reactor_now_ns(r));
	return l;
}

int dtp_call_start(struct dtp_call *c, struct engine_core *to, const struct dtp_call_params *p,
		   void (*done)(struct dtp_call *c, const Hd__BlockOpResponseProto *answer))
{
	free(p->op);
	*c = (struct dtp_call){.core = to, .done = done};
	asked++;
	soon(on_asked)->call = c;
	return 0;
}

void dtp_call_cancel(struct dtp_call *c)
{
	c->rc = -ECANCELED;
}

void reconstruct_params_fini(struct reconstruct_params *p)
{
	free(p->sources);
	free(p->targets);
	*p = (struct reconstruct_params){0};
}

static void on_made(struct rtimer *t)
{
	static const uint8_t zeros[4096];
	struct later *l = container_of(t, struct later, timer);

	l->p.taker->bytes(l->p.taker, zeros, sizeof(zeros), CRC_CRC32C, 512);
	l->p.done(l->p.arg, 0, NULL);
	reconstruct_params_fini(&l->p);
	free(l);
}

int reconstruct_open(struct engine_core *c, struct reconstruct_params *p, struct err *err)
{
	(void)c;
	rebuilt++;
	if (can_rebuild) {
		soon(on_made)->p = *p;
		*p = (struct reconstruct_params){0};
		return 0;
	}
	reconstruct_params_fini(p);
	return err_set(err, -EIO, "too few units are left");
}

/* ---- the client ---- */

static void on_sent(struct xop *op, int res)
{
	(void)op, (void)res;
}

/* All of one message, or the end of the connection. */
static void on_received(struct xop *op, int res)
{
	uint32_t prefix;
	ssize_t need = -1;

	peer.got += res > 0 ? (uint32_t)res : 0;
	if (res > 0)
		need = dt_delim_need(peer.in, peer.got, DT_MESSAGE_MAX, &prefix);
	if (res > 0 && (need == 0 || (need > 0 && (size_t)need > peer.got))) {
		xconn_recv(peer.c, peer.in + peer.got, (uint32_t)(sizeof(peer.in) - peer.got), op);
		return;
	}
	peer.receiving = false;
	xconn_close(peer.c);
	reactor_stop(r);
}

static void give_up(struct rtimer *t)
{
	(void)t;
	reactor_stop(r);
}

static void run(uint64_t ms)
{
	struct rtimer t = {.fire = give_up};

	reactor_timer_set(r, &t, clock_mono_ns() + ms * NS_PER_MS);
	assert_int_equal(reactor_run(r), 0);
	reactor_timer_clear(r, &t);
}

/* The status of the answer to @op. */
static int status_of(const uint8_t *op, size_t len)
{
	const struct fake_opts o = {.seed = 1};
	struct iovec iov = {(void *)(uintptr_t)op, len};
	Hd__BlockOpResponseProto *m;
	struct xconn *ends[2];
	uint32_t prefix;
	ssize_t need;
	int status;

	peer = (struct peer){
		.receiving = true, .send_op.done = on_sent, .recv_op.done = on_received};
	assert_int_equal(fake_pair(r, &o, ends), 0);
	peer.c = ends[1];
	dtp_accept(&core, ends[0]);
	xconn_send(peer.c, &iov, 1, &peer.send_op);
	xconn_recv(peer.c, peer.in, sizeof(peer.in), &peer.recv_op);
	for (uint64_t ms = 0; (peer.receiving || core.conn_count) && ms < PATIENCE_MS; ms++)
		run(peer.receiving ? PATIENCE_MS : 1);
	assert_false(peer.receiving);
	assert_int_equal(core.conn_count, 0);
	need = dt_delim_need(peer.in, peer.got, DT_MESSAGE_MAX, &prefix);
	assert_true(need > 0 && (size_t)need <= peer.got);
	assert_int_equal(pb_unpack(&hd__block_op_response_proto__descriptor, peer.in + prefix,
				   (size_t)need - prefix, &m),
			 0);
	status = (int)m->status;
	pb_free(m);
	return status;
}

/* For @bytes of a group of RS-6-3, of which the units in @units (digits) have nodes. */
static int ask(const char *units, uint64_t bytes)
{
	Hd__OpBlockGroupChecksumProto m = HD__OP_BLOCK_GROUP_CHECKSUM_PROTO__INIT;
	Hd__BaseHeaderProto header = HD__BASE_HEADER_PROTO__INIT;
	Hd__ExtendedBlockProto b = HD__EXTENDED_BLOCK_PROTO__INIT;
	Hd__DatanodeInfosProto infos = HD__DATANODE_INFOS_PROTO__INIT;
	Hd__DatanodeInfoProto info = HD__DATANODE_INFO_PROTO__INIT, *nodes[EC_UNITS_MAX];
	Hd__DatanodeIDProto id = HD__DATANODE_IDPROTO__INIT;
	Hd__ErasureCodingPolicyProto policy = HD__ERASURE_CODING_POLICY_PROTO__INIT;
	Hc__TokenProto token = HC__TOKEN_PROTO__INIT, *tokens[EC_UNITS_MAX];
	uint32_t index[EC_UNITS_MAX];
	const size_t n = strlen(units);
	struct ec_policy_msg store;
	char empty[] = "", ip[] = "127.0.0.1", pool_text[] = POOL_TEXT;
	uint8_t *op;
	size_t len;
	int ret;

	asked = rebuilt = 0;
	ec_policy_to_msg(ec_policy_by_name(EC_DEFAULT_POLICY), &store, &policy);
	token.kind = token.service = empty;
	id.ipaddr = ip;
	id.hostname = id.datanodeuuid = empty;
	id.xferport = 1;
	info.id = &id;
	for (size_t i = 0; i < n; i++) {
		nodes[i] = &info;
		tokens[i] = &token;
		index[i] = (uint32_t)(units[i] - '0');
	}
	b.poolid = pool_text;
	b.blockid = (uint64_t)GROUP;
	b.generationstamp = 1001;
	b.has_numbytes = 1;
	b.numbytes = 6 * CELL;
	header.block = &b;
	header.token = &token;
	infos.n_datanodes = n;
	infos.datanodes = nodes;
	m.header = &header;
	m.datanodes = &infos;
	m.n_blocktokens = m.n_blockindices = n;
	m.blocktokens = tokens;
	m.blockindices = index;
	m.ecpolicy = &policy;
	m.requestednumbytes = bytes;
	assert_int_equal(dt_op_encode(DT_BLOCK_GROUP_CHECKSUM, &m, &op, &len), 0);
	ret = status_of(op, len);
	free(op);
	return ret;
}

/* ---- the cases ---- */

static void each_data_unit_is_asked_for(void **state)
{
	(void)state;
	assert_int_equal(ask("012345678", 6 * CELL), HD__STATUS__SUCCESS);
	assert_int_equal(asked, 6);
	assert_int_equal(ask("01234", 5 * CELL), HD__STATUS__SUCCESS); /* no byte is in the sixth */
	assert_int_equal(asked, 5);
	assert_int_equal(ask("0", 10), HD__STATUS__SUCCESS);
	assert_int_equal(asked, 1);
}

static void a_unit_without_a_node_is_rebuilt(void **state)
{
	(void)state;
	can_rebuild = true;
	assert_int_equal(ask("0124578", 6 * CELL), HD__STATUS__SUCCESS);
	assert_int_equal(asked, 5);
	assert_int_equal(rebuilt, 1);
	assert_int_equal(ask("67801", 3 * CELL), HD__STATUS__SUCCESS); /* the others are zeros */
	assert_int_equal(rebuilt, 1);
	can_rebuild = false;
}

/* Also where the units that are left are the first ones. */
static void of_too_few_units_there_is_no_checksum(void **state)
{
	(void)state;
	assert_int_equal(ask("01234", 6 * CELL), HD__STATUS__ERROR);
	assert_int_equal(rebuilt, 1);
	assert_int_equal(ask("01234", 5 * CELL + 1), HD__STATUS__ERROR);
	assert_int_equal(ask("0", CELL + 1), HD__STATUS__ERROR);
	assert_int_equal(ask("12345", 6 * CELL), HD__STATUS__ERROR);
}

/* ---- set-up ---- */

static int setup(void **state)
{
	const struct reactor_opts ro = {.name = "test"};
	const struct pool_opts po = {.count = {[SLOT_8K] = 8, [SLOT_64K] = 8}};
	const struct store_namespace ns = {
		.pool_id = POOL_TEXT, .cluster_id = "CID-1", .namespace_id = 1, .ctime = 1};
	struct store_volume_opts vol = {.type = STORAGE_DISK};
	struct store_opts so = {.volumes = &vol, .volume_count = 1};
	struct err err = ERR_INIT;

	(void)state;
	assert_non_null(mkdtemp(dir));
	vol.path = dir;
	assert_int_equal(reactor_new(&ro, &r, &err), 0);
	assert_int_equal(pool_new(&po, &pool, &err), 0);
	core = (struct engine_core){.dn = &dn,
				    .reactor = r,
				    .pool = pool,
				    .waits = {60 * NS_PER_S, 60 * NS_PER_S, 4 * NS_PER_S}};
	list_init(&core.writes);
	list_init(&core.conns);
	list_init(&core.idle);
	list_init(&core.rebuilds_waiting);
	assert_int_equal(store_open(&so, &dn.store, &err), 0);
	assert_int_equal(store_attach(dn.store, &ns, &bp, &err), 0);
	return 0;
}

static int teardown(void **state)
{
	char cmd[64];

	(void)state;
	reactor_free(r);
	pool_free(pool);
	store_close(dn.store);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_data_unit_is_asked_for),
		cmocka_unit_test(a_unit_without_a_node_is_rebuilt),
		cmocka_unit_test(of_too_few_units_there_is_no_checksum),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
