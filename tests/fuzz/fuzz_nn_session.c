/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions of clients and data nodes with a NameNode, its own code in one thread: from the bytes of
 * a connection by way of the RPC server and the writer to the disk and back. @data is a byte for
 * the first connection and a row of steps (enum step): a call of a method, by a hash of its name,
 * whose message is made of the bytes (make_message.h) or is the bytes; loose bytes; time that
 * passes; another connection; the pages /fsck and /jmx. Each input begins with the same small
 * namespace and five nodes. In the end every call was answered and every connection is gone. */
#include <jansson.h>
#include <stdio.h>

#include "common/base/conf.h"
#include "common/rpc/server_internal.h"
#include "common/transport/fake.h"
#include "common/wire/pb.h"
#include "namenode-shim/nn_internal.h"
#include "namenode-shim/rpc/rpc_service.c" /* its table of protocols */
#include "namenode-shim/test_db.h"
#include "namenode-shim/web/fsck.h"
#include "namenode-shim/web/jmx.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/make_message.h"
#include "tests/fuzz/nn_file.h"

#define NODES 5
#define METHODS_MAX 300
#define POOL_TEXT 14        /* where texts and numbers have what is made by chance; */
#define NAMESPACE_NUMBER 34 /* seeds.py knows all of these places */
#define CTIME_NUMBER 37
#define STEPS_MAX 40
#define REQUEST_MAX (1u << 20)
#define FRAME_ROOM 70000
#define END_TURNS 4000

enum step { CALL_MADE, CALL_BYTES, BYTES, WAIT, DIAL, PAGES, STEPS };

/* ---- time, and threads that are not there ---- */

static uint64_t now_ns = 1000 * NS_PER_S;

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	if (id != CLOCK_MONOTONIC) /* libFuzzer asks for the time of day */
		return __real_clock_gettime(id, ret);
	ret->tv_sec = (time_t)(now_ns / NS_PER_S);
	ret->tv_nsec = (long)(now_ns % NS_PER_S);
	return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t)
{
	const uint64_t until = (uint64_t)t->tv_sec * NS_PER_S + (uint64_t)t->tv_nsec;

	(void)c, (void)m;
	now_ns = until > now_ns ? until : now_ns;
	return ETIMEDOUT;
}

bool __wrap_resolver_submit(struct resolver *l, struct req *q);
bool __wrap_resolver_submit(struct resolver *l, struct req *q)
{
	(void)l;
	if (!q->caller && req_needs_groups(q))
		q->caller = users_ask(q->nn->users, req_user(q));
	if (q->method->prepare)
		q->method->prepare(q);
	if (q->method->kind == REQ_READ)
		q->nn->read_later(q);
	else
		nn_submit(q->nn, q);
	return true;
}

void __wrap_resolver_load_user(struct resolver *l, struct users *u, const char *user);
void __wrap_resolver_load_user(struct resolver *l, struct users *u, const char *user)
{
	(void)l;
	users_load(u, user);
}

void __wrap_tree_walk_submit(struct tree_walks *w, struct req *q);
void __wrap_tree_walk_submit(struct tree_walks *w, struct req *q)
{
	(void)w;
	q->nn->read_later(q);
}

/* ---- the listening socket ---- */

static struct xlistener_opts listener;

static void listener_close(struct xlistener *l)
{
	(void)l;
}

int __wrap_tcp_listen(struct reactor *r, const struct xlistener_opts *o, struct net_addr *ret_bound,
		      struct xlistener **ret, struct err *err);
int __wrap_tcp_listen(struct reactor *r, const struct xlistener_opts *o, struct net_addr *ret_bound,
		      struct xlistener **ret, struct err *err)
{
	static struct xlistener l = {.close = listener_close};

	(void)r, (void)err;
	listener = *o;
	*ret_bound = o->addr;
	*ret = &l;
	return 0;
}

/* ---- the NameNode ---- */

static struct reactor *reactor;
static struct conf *conf;
static struct test_db d;
static struct nn *nn;
static struct rpc_port *port;
static struct call_stat *calls;
static uint8_t *image; /* of data.mdb, as each input finds it */
static size_t image_len;
static char image_path[96];

/* By hash. */
static struct entry_of {
	const struct method *method;
	const char *protocol;
	uint16_t hash;
} methods[METHODS_MAX];
static size_t method_count;

static const char *texts[] = {"/d/f",
			      "/d",
			      "/d/open",
			      "/d/e/f",
			      "/d/new",
			      "/",
			      "c",
			      "root",
			      "alice",
			      "",
			      "dn-0",
			      "dn-1",
			      "DS-0",
			      "DS-1",
			      NULL /* the block pool */,
			      "127.0.0.1",
			      "RS-3-2-1024k",
			      "XOR-2-1-1024k",
			      "HOT",
			      "COLD",
			      "a",
			      "user.a",
			      "/.reserved/.inodes/16387",
			      "/.reserved/raw/d",
			      "*",
			      "..",
			      "3.4.2",
			      "0123456789abcdef",
			      "CID-fuzz",
			      "/d/link"};
static uint64_t numbers[] = {
	0,          1,          2,          3,        7,        100,     0666,    16385,
	16386,      16387,      16388,      16389,    16390,    1000,    1001,    1002,
	1003,       1004,       1005,       512,      65536,    1 << 20, 1 << 27, 1073741825,
	1073741826, 1073741827, 1073741828, -1024ull, -1008ull, -1ull,   -2ull,   INT64_MAX,
	INT32_MAX,  1ull << 63, 80000,      9866,     -57ull,   0};
static const struct words words = {texts, numbers, sizeof(texts) / sizeof(*texts),
				   sizeof(numbers) / sizeof(*numbers)};

static uint16_t hash_of(const char *name)
{
	uint32_t h = 2166136261u;

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 16777619u;
	return (uint16_t)(h ^ h >> 16);
}

static int by_hash(const void *a, const void *b)
{
	const struct entry_of *x = a, *y = b;

	return x->hash != y->hash ? x->hash - y->hash : strcmp(x->protocol, y->protocol);
}

static void list_methods(void)
{
	for (int i = 0; i < PROTOCOLS; i++)
		for (const struct method_table *const *t = protocols[i].tables; *t; t++)
			for (size_t k = 0; k < (*t)->count; k++) {
				const struct method *m = &(*t)->methods[k];

				MUST(method_count < METHODS_MAX);
				methods[method_count++] =
					(struct entry_of){m, protocols[i].name, hash_of(m->name)};
			}
	qsort(methods, method_count, sizeof(*methods), by_hash);
}

static void fill(void)
{
	const struct db_format f = {"CID-fuzz", "root", "supergroup", false};
	struct stat st;
	struct ns *n;
	FILE *file;

	MUST(!db_format(d.dir, &f, NULL));
	d.users = users_new("supergroup", "");
	test_db_reopen(&d);
	texts[POOL_TEXT] = strdup(d.db->ident.pool_id);
	numbers[NAMESPACE_NUMBER] = d.db->ident.namespace_id;
	numbers[CTIME_NUMBER] = d.db->ident.ctime_ms;
	n = test_begin(&d, "root");
	MUST(!ns_mkdirs(n, "/d/e", 0777, NULL, NS_MKDIRS_PARENTS));
	add_file(n, "/d/f", false);
	add_file(n, "/d/open", true);
	add_file(n, "/d/e/f", false);
	MUST(!test_commit(&d));
	db_close(d.db);
	snprintf(image_path, sizeof(image_path), "%s/current/data.mdb", d.dir);
	file = fopen(image_path, "re");
	MUST(file && !fstat(fileno(file), &st));
	image_len = (size_t)st.st_size;
	image = malloc(image_len);
	MUST(image && fread(image, 1, image_len, file) == image_len);
	(void)fclose(file);
}

static void clean_up(void)
{
	char cmd[128];

	reactor_free(reactor);
	conf_free(conf);
	users_free(d.users);
	arena_free(&d.a);
	free(image);
	free((char *)(uintptr_t)texts[POOL_TEXT]);
	snprintf(cmd, sizeof(cmd), "rm -r %s", d.dir);
	(void)!system(cmd);
}

static void make(void)
{
	static const char *const keys[][2] = {
		{"fs.defaultFS", "hdfs://127.0.0.1:0"},
		{"dfs.shim.journal", "false"},
		{"dfs.namenode.ec.system.default.policy", "RS-3-2-1024k"},
		{"dfs.namenode.fs-limits.min-block-size", "1"},
		{"dfs.namenode.redundancy.considerLoad", "false"},
		{"dfs.storage.policy.satisfier.mode", "external"},
		{"fs.trash.interval", "1"},
		{"hadoop.user.group.static.mapping.overrides", "alice=staff;bob=;c=;a="},
	};
	const struct reactor_opts ro = {.name = "fuzz"};
	struct err err = ERR_INIT;

	log_init("fuzz", LOG_ERROR);
	snprintf(d.dir, sizeof(d.dir), "%s/fuzz-nn-session-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	MUST(mkdtemp(d.dir) && !reactor_new(&ro, &reactor, &err));
	conf = conf_new();
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		conf_set(conf, keys[i][0], keys[i][1]);
	conf_set(conf, "dfs.namenode.name.dir", d.dir);
	conf_set(conf, "hadoop.log.dir", d.dir);
	list_methods();
	fill();
	atexit(clean_up);
}

static void add_node(int i)
{
	char uuid[8], ip[16], id[8];
	const struct dn_ident ident = {uuid, ip, "host", "3.4.2", 9866, 9864, 9867, 0};
	struct storage *st;
	struct dn *dn;

	snprintf(uuid, sizeof(uuid), "dn-%d", i);
	snprintf(ip, sizeof(ip), "127.0.0.%d", i + 1);
	snprintf(id, sizeof(id), "DS-%d", i);
	MUST(!datanodes_register(&nn->dns, &ident, &dn));
	dn_touch(dn);
	dn->alive = true;
	st = dn_storage_add(dn, id, STORAGE_DISK);
	st->capacity = st->remaining = 1ull << 40;
	for (int64_t b = 1073741825; b < 1073741828; b++) {
		const struct blk *k = blocks_find(&nn->blocks, b);

		if (k && k->b.len)
			blocks_report(&nn->blocks, st, &k->b, REPLICA_FINALIZED, true, 0);
	}
}

/* The port and its table of methods stay: to make them takes half the time of a short input. */
static void take_port(void)
{
	port->nn = nn;
	port->server->opts.names = nn->names;
	nn->calls = calls;
	nn->reactor = reactor;
	nn->read_later = read_later;
	rop_init(&nn->reads_end, reads_end, NULL);
}

static void begin(void)
{
	FILE *file = fopen(image_path, "we");
	struct settings set = {0};
	struct err err = ERR_INIT;
	struct net_addr bound;

	MUST(file && fwrite(image, 1, image_len, file) == image_len && !fclose(file));
	MUST(!settings_load(conf, &set, &err) && !nn_new(&set, &nn, &err));
	nn->safe.on = nn->safe.startup = nn->blocks.quiet = false;
	for (int i = 0; i < NODES; i++)
		add_node(i);
	nn->resolver = (struct resolver *)nn; /* there is one (on_later()) */
	if (port)
		take_port();
	else
		MUST(!rpc_service_new(reactor, nn, &bound, &port, &err));
}

static void end(void)
{
	calls = nn->calls;
	nn->calls = NULL;
	nn->resolver = NULL;
	nn_free(nn);
}

static void turn_ends(struct rtimer *t)
{
	(void)t;
	reactor_stop(reactor);
}

static void reactor_turn(void)
{
	struct rtimer t = {.fire = turn_ends};

	reactor_timer_set(reactor, &t, 0);
	MUST(!reactor_run(reactor));
	reactor_timer_clear(reactor, &t);
}

static int run_nothing(struct req *q, const void *in)
{
	(void)q, (void)in;
	return 0;
}

/* With something to do the writer does not sleep. */
static void turn(void)
{
	static const struct method nothing = {
		.name = "nothing", .kind = REQ_MEMORY, .run = run_nothing};

	now_ns += NS_PER_MS;
	reactor_turn();
	nn_submit(nn, req_new(nn, &nothing, NULL));
	(void)nn_turn(nn);
	reactor_turn();
}

/* ---- the peer ---- */

static struct peer {
	struct xconn *c; /* NULL: closed */
	struct xop send_op, recv_op;
	bool sending, receiving;
	uint8_t in[65536];
	int32_t call_id;
} peer;

static void receive(void);

static void on_sent(struct xop *op, int res)
{
	(void)op, (void)res;
	peer.sending = false;
}

static void on_received(struct xop *op, int res)
{
	(void)op;
	peer.receiving = false;
	if (res > 0 && peer.c)
		receive();
}

static void receive(void)
{
	peer.receiving = true;
	peer.recv_op.done = on_received;
	xconn_recv(peer.c, peer.in, sizeof(peer.in), &peer.recv_op);
}

static void put(const void *bytes, size_t len)
{
	struct iovec iov = {(void *)(uintptr_t)bytes, len};

	if (!len)
		return;
	peer.sending = true;
	peer.send_op.done = on_sent;
	xconn_send(peer.c, &iov, 1, &peer.send_op);
	for (int i = 0; peer.sending && i < 100; i++)
		reactor_turn();
	MUST(!peer.sending);
}

static void put_taken(int rc, uint8_t *bytes, size_t len)
{
	MUST(!rc);
	put(bytes, len);
	free(bytes);
}

static void hang_up(void)
{
	xconn_close(peer.c);
	peer.c = NULL;
	for (int i = 0; i < END_TURNS && (peer.receiving || !list_empty(&port->server->conns));
	     i++) {
		now_ns += (uint64_t)i * NS_PER_MS;
		turn();
	}
	MUST(list_empty(&port->server->conns) && !port->server->calls && !peer.receiving);
}

/* @how: whether it says who it is, and as whom, by SASL or without; how its bytes are cut. */
static void dial(uint8_t how)
{
	static const char *const users[] = {"root", "alice", "bob", "root/host@REALM"};
	const struct fake_opts o = {
		.seed = how, .inside_submit = how & 1, .recv_max = how & 2 ? 64 + how : 0};
	Hc__RpcSaslProto sasl = HC__RPC_SASL_PROTO__INIT;
	const bool by_sasl = how & 4;
	struct xconn *ends[2];
	uint8_t hello[RPC_PREAMBLE_LEN], *p = NULL;
	size_t len = 0;
	int rc;

	peer.call_id = 0;
	MUST(!fake_pair(reactor, &o, ends));
	net_resolve("127.0.0.1", 1234, &ends[0]->peer, NULL);
	listener.accepted(listener.arg, ends[0]);
	peer.c = ends[1];
	receive();
	if (how >= 0xf0)
		return;
	rpc_preamble_encode(hello, by_sasl ? RPC_AUTH_SASL : RPC_AUTH_NONE);
	put(hello, sizeof(hello));
	sasl.state = HC__RPC_SASL_PROTO__SASL_STATE__NEGOTIATE;
	if (by_sasl) {
		rc = rpc_sasl_request_encode(&sasl, &p, &len);
		put_taken(rc, p, len);
	}
	rc = rpc_context_encode((const uint8_t *)"0123456789abcdef", 16, RPC_PROTO_CLIENT,
				users[how >> 3 & 3], NULL, &p, &len);
	put_taken(rc, p, len);
}

/* ---- calls ---- */

static void put_delimited(struct wr *w, const void *m)
{
	uint8_t *p;
	size_t len;

	MUST(!pb_pack(m, &p, &len));
	wr_varint(w, len);
	wr_bytes(w, p, len);
	free(p);
}

/* The frame of a call whose message is @len bytes; @how: of its header. */
static void put_frame(const struct entry_of *e, uint8_t how, const uint8_t *msg, size_t len)
{
	static uint8_t room[FRAME_ROOM];
	char *const ids[] = {"0123456789abcdef", "fedcba9876543210", "short", ""};
	Hc__RpcRequestHeaderProto header = HC__RPC_REQUEST_HEADER_PROTO__INIT;
	Hc__RequestHeaderProto method = HC__REQUEST_HEADER_PROTO__INIT;
	struct wr w = wr_init(room, sizeof(room));

	header.has_rpckind = header.has_rpcop = 1;
	header.rpckind = HC__RPC_KIND_PROTO__RPC_PROTOCOL_BUFFER;
	header.rpcop = HC__RPC_REQUEST_HEADER_PROTO__OPERATION_PROTO__RPC_FINAL_PACKET;
	header.callid = how & 4 ? peer.call_id : ++peer.call_id; /* the same again */
	header.clientid.data = (uint8_t *)ids[how & 3];
	header.clientid.len = strlen(ids[how & 3]);
	header.has_retrycount = 1;
	header.retrycount = how >> 3 & 1;
	method.methodname = (char *)(uintptr_t)e->method->name;
	method.declaringclassprotocolname = (char *)(uintptr_t)e->protocol;
	method.clientprotocolversion = 1;
	wr_be32(&w, 0);
	put_delimited(&w, &header);
	put_delimited(&w, &method);
	wr_varint(&w, len);
	wr_bytes(&w, msg, len);
	if (w.bad)
		return;
	len = (size_t)(w.p - room);
	w = wr_init(room, 4);
	wr_be32(&w, (uint32_t)len - 4);
	put(room, len);
}

static void call(struct rd *r, bool made)
{
	static uint8_t room[FRAME_ROOM - 1000];
	const uint16_t hash = rd_be16(r);
	const uint8_t how = rd_u8(r);
	struct rd bytes = input_part(r);
	struct wr w = wr_init(room, sizeof(room));
	size_t i = 0;

	while (i + 1 < method_count && methods[i].hash < hash)
		i++;
	if (!made)
		wr_bytes(&w, bytes.p, rd_left(&bytes));
	else
		message_make(&bytes, methods[i].method->in, &words, &w);
	if (!w.bad)
		put_frame(&methods[i], how, room, (size_t)(w.p - room));
}

static void wait_for(uint8_t how)
{
	static const uint64_t ms[] = {1, 100, 1000, 3000, 10000, 60000, 700000, 3700000};

	for (int i = 0; i < 4; i++) {
		now_ns += ms[how % 8] * NS_PER_MS / 4;
		turn();
	}
}

/* An argument of a page; NULL: it is not there. */
static char *argument(struct rd *r)
{
	const uint8_t which = rd_u8(r);
	struct rd bytes;

	if (which < 0x20)
		return NULL;
	if (which < 0xe0)
		return strdup(texts[which % words.text_count]);
	bytes = input_part(r);
	return strndup((const char *)bytes.p, rd_left(&bytes));
}

/* Without delete and move of fsck, which are calls. */
static void pages(struct rd *r)
{
	const uint16_t how = rd_be16(r);
	char *path = argument(r), *ids = argument(r), *after = argument(r), *user = argument(r);
	const struct fsck_opts o = {.user = user ? user : "root",
				    .from = "127.0.0.1",
				    .path = path,
				    .block_ids = ids,
				    .start_after = after,
				    .files = how & 1,
				    .blocks = how & 2,
				    .locations = how & 4,
				    .racks = how & 8,
				    .open_files = how & 16,
				    .replica_details = how & 32,
				    .upgrade_domains = how & 64,
				    .maintenance = how & 128,
				    .policies = how & 256,
				    .list_corrupt = how & 512};
	char buf[4096];
	struct fsck *f;

	if (!fsck_new(nn, &o, &f)) {
		while (fsck_read(f, buf, sizeof(buf)))
			;
		fsck_free(f);
	}
	json_decref(jmx_page(nn, path, ids));
	free(path);
	free(ids);
	free(after);
	free(user);
}

static void step(struct rd *r)
{
	struct rd bytes;

	switch ((enum step)(rd_u8(r) % STEPS)) {
	case CALL_MADE:
		call(r, true);
		break;
	case CALL_BYTES:
		call(r, false);
		break;
	case BYTES:
		bytes = input_part(r);
		put(bytes.p, rd_left(&bytes));
		break;
	case WAIT:
		wait_for(rd_u8(r));
		break;
	case DIAL:
		hang_up();
		dial(rd_u8(r));
		break;
	case PAGES:
	case STEPS:
		pages(r);
		break;
	}
	turn();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rd r = rd_init(data, size);

	if (!reactor)
		make();
	begin();
	dial(rd_u8(&r));
	for (int i = 0; i < STEPS_MAX && rd_left(&r); i++)
		step(&r);
	hang_up();
	end();
	return 0;
}
