/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: reader_test_fixture - what the tests of readers share: a NameNode and data nodes that
 * are fakes, and the files that they have
 *
 * A data node gives bytes that tell the block they belong to, and their place in it. Included by
 * one test program each, which owns what is static here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "ClientDatanodeProtocol.pb-c.h"
#include "ClientNamenodeProtocol.pb-c.h"
#include "client/src/fs/answer_test_fixture.h"
#include "client/src/read/reader.h"
#include "client/src/stream/stream.h"
#include "common/base/clock.h"
#include "common/wire/pb.h"

#define BLOCK 100u /* bytes; a stretch is ten blocks */
#define BLOCKS_MAX 100
#define FILES 3
#define CELL 4096u
#define K 3u

struct fake_file {
	const char *path; /* NULL: there is none */
	uint64_t id, stamp;
	bool dir;
	unsigned n;
	uint64_t block[BLOCKS_MAX], len[BLOCKS_MAX];
	const char *pool;
	bool open;        /* its last block is being written */
	uint64_t visible; /* so much of it, on its node */
};

static struct dfs fs;
static struct fake_file file[FILES];
static bool striped, tells_id, knows_ids, has_nodes;
static bool router; /* it takes inodes for those of another name space, in which file[2] lies */
static unsigned silent_units;           /* a bit each: their nodes tell no length */
static uint64_t gone_block;             /* its node has it no more */
static int gone_rc = -EIO;              /* what its nodes say */
static uint64_t cut_stamp;              /* by an older one the nodes give nothing; */
static bool cut_late;                   /* nor what was asked for before */
static unsigned naps_until_all_is_well; /* 0: none make it so */
static unsigned copies;                 /* of each block */
static unsigned asked;                  /* getBlockLocations */
static unsigned streams, streams_made;
static uint64_t stream_len;        /* so much the last one was asked for */
static int node_rc[8], byte_rc[8]; /* what the nth replica of a block says, when it is opened */
				   /* and when it is read */
static unsigned node_asked[8];     /* how often it was opened */
static unsigned reported;          /* replicas, as damaged; */
static char reported_node[64];     /* the last one */
static uint64_t clock_ns;
static uint64_t next_block;
static Hd__DatanodeInfoProto info, *locs[512];
static Hd__DatanodeIDProto node_id;
static Hc__TokenProto no_token,
	*no_tokens[5] = {&no_token, &no_token, &no_token, &no_token, &no_token};
static uint8_t units[] = {0, 1, 2, 3, 4};

/* ---- the NameNode ---- */

static inline struct fake_file *find(const char *src)
{
	uint64_t id = 0;

	if (sscanf(src, "/.reserved/.inodes/%lu", &id) == 1 && !knows_ids)
		return NULL;
	for (struct fake_file *f = file; f < file + FILES; f++)
		if (f->path &&
		    (id ? f->id == id && (!router || f == &file[2]) : strcmp(f->path, src) == 0))
			return f;
	return NULL;
}

struct answer {
	Hd__LocatedBlockProto lb[BLOCKS_MAX + 1], *blocks[BLOCKS_MAX];
	Hd__ExtendedBlockProto b[BLOCKS_MAX + 1];
	Hd__LocatedBlocksProto l;
	Hd__ErasureCodingPolicyProto policy;
	Hd__ECSchemaProto schema;
	Hd__GetBlockLocationsResponseProto m;
};

static inline Hd__LocatedBlockProto *
fill_block(struct answer *a, unsigned at, const struct fake_file *f, unsigned i, uint64_t offset)
{
	Hd__LocatedBlockProto *lb = &a->lb[at];

	hd__located_block_proto__init(lb);
	hd__extended_block_proto__init(&a->b[at]);
	lb->b = &a->b[at];
	lb->b->poolid = (char *)f->pool;
	lb->b->blockid = f->block[i];
	lb->b->generationstamp = f->stamp;
	lb->b->has_numbytes = 1;
	lb->b->numbytes = f->len[i];
	lb->offset = offset;
	lb->blocktoken = &no_token;
	lb->n_locs = !has_nodes ? 0 : striped ? 5 : copies;
	lb->locs = locs;
	lb->has_blockindices = striped && has_nodes;
	lb->blockindices = (ProtobufCBinaryData){lb->n_locs, units};
	lb->n_blocktokens = striped ? lb->n_locs : 0;
	lb->blocktokens = no_tokens;
	return lb;
}

static inline void fill_policy(struct answer *a)
{
	hd__erasure_coding_policy_proto__init(&a->policy);
	hd__ecschema_proto__init(&a->schema);
	a->schema.codecname = "rs";
	a->schema.dataunits = K;
	a->schema.parityunits = 2;
	a->policy.name = "RS-3-2-4k";
	a->policy.schema = &a->schema;
	a->policy.has_cellsize = 1;
	a->policy.cellsize = CELL;
	a->policy.id = 99;
	a->l.ecpolicy = &a->policy;
}

static inline void fill_answer(struct answer *a, const struct fake_file *f, uint64_t from,
			       uint64_t len)
{
	uint64_t pos = 0, last_at = 0;

	hd__located_blocks_proto__init(&a->l);
	hd__get_block_locations_response_proto__init(&a->m);
	a->l.blocks = a->blocks;
	for (unsigned i = 0; i < f->n; i++) {
		if (pos < from + len && pos + f->len[i] > from)
			a->blocks[a->l.n_blocks++] = fill_block(a, i, f, i, pos);
		last_at = pos;
		pos += f->len[i];
	}
	a->l.filelength = f->open && f->n ? last_at : pos;
	a->l.underconstruction = f->open;
	a->l.islastblockcomplete = !f->open;
	if (f->n)
		a->l.lastblock = fill_block(a, BLOCKS_MAX, f, f->n - 1, last_at);
	if (striped)
		fill_policy(a);
	a->m.locations = &a->l;
	a->m.has_fileid = tells_id;
	a->m.fileid = f->id;
}

static inline int locate(const Hd__GetBlockLocationsRequestProto *q,
			 const ProtobufCMessageDescriptor *d, void *ret, struct err *err)
{
	const struct fake_file *f = find(q->src);
	struct answer *a = calloc(1, sizeof(*a));

	asked++;
	if (!f || f->dir) {
		free(a);
		return err_set(err, -ENOENT, "File does not exist: %s", q->src);
	}
	fill_answer(a, f, q->offset, q->length);
	answer(d, &a->m, ret);
	free(a);
	return 0;
}

static inline void status(const Hd__GetFileInfoRequestProto *q, const ProtobufCMessageDescriptor *d,
			  void *ret)
{
	const struct fake_file *f = find(q->src);
	Hd__GetFileInfoResponseProto m = HD__GET_FILE_INFO_RESPONSE_PROTO__INIT;
	Hd__HdfsFileStatusProto st = HD__HDFS_FILE_STATUS_PROTO__INIT;
	Hd__FsPermissionProto perm = HD__FS_PERMISSION_PROTO__INIT;

	st.permission = &perm;
	st.owner = st.group = "";
	st.filetype = f && f->dir ? HD__HDFS_FILE_STATUS_PROTO__FILE_TYPE__IS_DIR
				  : HD__HDFS_FILE_STATUS_PROTO__FILE_TYPE__IS_FILE;
	st.has_fileid = 1;
	st.fileid = f ? f->id : 0;
	m.fs = f ? &st : NULL;
	answer(d, &m, ret);
}

int __wrap_nn_call(struct dfs *d, const char *method, const ProtobufCMessage *q,
		   const ProtobufCMessageDescriptor *reply, void *ret, struct err *err);
int __wrap_nn_call(struct dfs *d, const char *method, const ProtobufCMessage *q,
		   const ProtobufCMessageDescriptor *reply, void *ret, struct err *err)
{
	(void)d;
	if (strcmp(method, "getBlockLocations") == 0)
		return locate((const void *)q, reply, ret, err);
	if (strcmp(method, "reportBadBlocks") == 0) {
		const Hd__ReportBadBlocksRequestProto *bad = (const void *)q;

		reported++;
		snprintf(reported_node, sizeof(reported_node), "%s",
			 bad->blocks[0]->locs[0]->id->ipaddr);
		return 0;
	}
	assert_string_equal(method, "getFileInfo");
	status((const void *)q, reply, ret);
	return 0;
}

/* ---- a data node ---- */

int __wrap_rpc_client_new(const struct rpc_client_opts *o, struct rpc_client **ret,
			  struct err *err);
int __wrap_rpc_client_new(const struct rpc_client_opts *o, struct rpc_client **ret, struct err *err)
{
	(void)o;
	(void)ret;
	(void)err;
	return 0;
}

void __wrap_rpc_client_free(struct rpc_client *c);
void __wrap_rpc_client_free(struct rpc_client *c)
{
	(void)c;
}

int __wrap_rpc_client_call(struct rpc_client *c, const char *method, const ProtobufCMessage *q,
			   const ProtobufCMessageDescriptor *reply, void *ret, struct err *err);
int __wrap_rpc_client_call(struct rpc_client *c, const char *method, const ProtobufCMessage *q,
			   const ProtobufCMessageDescriptor *reply, void *ret, struct err *err)
{
	const Hd__GetReplicaVisibleLengthRequestProto *m = (const void *)q;
	Hd__GetReplicaVisibleLengthResponseProto r =
		HD__GET_REPLICA_VISIBLE_LENGTH_RESPONSE_PROTO__INIT;

	(void)c;
	assert_string_equal(method, "getReplicaVisibleLength");
	if (striped && silent_units >> (m->block->blockid & 15) & 1)
		return err_set(err, -ECONNREFUSED, "nobody is there");
	for (struct fake_file *f = file; f < file + FILES; f++)
		if (f->open && f->n &&
		    f->block[f->n - 1] ==
			    (striped ? m->block->blockid & ~15ull : m->block->blockid))
			r.length = striped ? f->visible / K : f->visible;
	answer(reply, &r, ret);
	return 0;
}

/* Byte @offset of a block, or of the unit of a group. */
static inline uint8_t byte_of(const char *pool, uint64_t block, uint64_t offset)
{
	return (uint8_t)((uint8_t)pool[strlen(pool) - 1] * 101 + block * 37 + offset +
			 offset / 251);
}

struct fake_stream {
	struct rstream base;
	char pool[8];
	uint64_t block, gs, at, left;
	size_t node;
};

static inline ssize_t fake_read(struct rstream *rs, void *buf, size_t len, struct err *err)
{
	struct fake_stream *s = container_of(rs, struct fake_stream, base);

	if (s->gs < cut_stamp)
		return err_set(err, -EEXIST, "it was cut");
	if (s->node < 8 && byte_rc[s->node])
		return err_set(err, byte_rc[s->node], "replica %zu fails", s->node);
	len = len < s->left ? len : (size_t)s->left;
	for (size_t i = 0; i < len; i++)
		((uint8_t *)buf)[i] = byte_of(s->pool, s->block, s->at++);
	s->left -= len;
	return (ssize_t)len;
}

static inline int fake_poll(struct rstream *rs, struct pollfd *ret)
{
	(void)rs;
	*ret = (struct pollfd){.fd = -1};
	return 1;
}

static inline void fake_close(struct rstream *rs)
{
	streams--;
	free(container_of(rs, struct fake_stream, base));
}

static const struct block_stream fake_ops = {
	.read = fake_read, .try_read = fake_read, .poll_read = fake_poll, .close_read = fake_close};

static inline int open_stream(const struct read_setup *r, struct rstream **ret, struct err *err)
{
	struct fake_stream *s;

	if (gone_block && (r->lb->b->blockid & ~15ull) == gone_block)
		return err_set(err, gone_rc, "no such replica");
	if (r->gs && r->gs < cut_stamp && !cut_late)
		return err_set(err, -EEXIST, "it was cut");
	node_asked[r->node % 8]++;
	if (r->node < 8 && node_rc[r->node])
		return err_set(err, node_rc[r->node], "node %zu refuses", r->node);
	s = calloc(1, sizeof(*s));
	s->node = r->node;
	s->gs = r->gs ? r->gs : UINT64_MAX;
	s->base.ops = &fake_ops;
	snprintf(s->pool, sizeof(s->pool), "%s", r->lb->b->poolid);
	s->block = r->lb->b->blockid;
	s->at = r->offset;
	s->left = stream_len = r->len;
	streams++;
	streams_made++;
	*ret = &s->base;
	return 0;
}

int __wrap_stream_open_read(struct dfs *d, const struct read_setup *r, struct rstream **ret,
			    struct err *err);
int __wrap_stream_open_read(struct dfs *d, const struct read_setup *r, struct rstream **ret,
			    struct err *err)
{
	(void)d;
	return open_stream(r, ret, err);
}

int __wrap_stream_start_read(struct dfs *d, const struct read_setup *r, struct rstream **ret,
			     struct err *err);
int __wrap_stream_start_read(struct dfs *d, const struct read_setup *r, struct rstream **ret,
			     struct err *err)
{
	(void)d;
	return open_stream(r, ret, err);
}

int __wrap_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
	(void)t;
	(void)left;
	if (naps_until_all_is_well && --naps_until_all_is_well == 0) {
		gone_block = 0;
		file[0].visible = 40;
	}
	return 0;
}

int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	(void)id;
	*ret = (struct timespec){(time_t)(clock_ns / NS_PER_S), (long)(clock_ns % NS_PER_S)};
	return 0;
}

void __wrap_housekeeper_wake(struct dfs *d);
void __wrap_housekeeper_wake(struct dfs *d)
{
	(void)d;
}

/* ---- files ---- */

static inline uint64_t block_len(void)
{
	return striped ? K * CELL : BLOCK;
}

static inline void add_blocks(struct fake_file *f, unsigned n)
{
	while (n--) {
		f->block[f->n] = next_block;
		f->len[f->n++] = block_len();
		next_block += 16;
	}
}

static inline void make(struct fake_file *f, const char *path, uint64_t id, unsigned n)
{
	*f = (struct fake_file){.path = path, .id = id, .stamp = 1000, .pool = "BP-1"};
	add_blocks(f, n);
}

static inline void begin(bool ec, bool ours)
{
	striped = ec;
	tells_id = ours;
	knows_ids = has_nodes = true;
	router = false;
	gone_block = cut_stamp = silent_units = 0;
	copies = 1;
	asked = streams_made = reported = 0;
	memset(node_rc, 0, sizeof(node_rc));
	memset(byte_rc, 0, sizeof(byte_rc));
	memset(node_asked, 0, sizeof(node_asked));
	assert_int_equal(streams, 0);
	clock_ns = 1000 * IDLE_NS;
	next_block = ec ? (uint64_t)INT64_MIN + 16 : 16;
	fs.set.acquire_failures = 3;
	fs.set.socket_timeout_ms = 60000;
	fs.defaults.block_size = ec ? CELL : BLOCK;
	node_table_fini(&fs.suspects);
	node_table_init(&fs.suspects);
	memset(file, 0, sizeof(file));
	make(&file[0], "/d/f", 7, 35);
}

static inline struct reader *open_file(const char *path)
{
	struct err err = ERR_INIT;
	struct reader *r;
	int rc = reader_new(&fs, path, &r, &err);

	if (rc < 0)
		fail_msg("%d %s", rc, err.text);
	return r;
}

/* Are these the @len bytes of block @i at @offset? */
static inline void expect_bytes(const struct fake_file *f, unsigned i, uint64_t offset,
				const uint8_t *buf, size_t len)
{
	for (size_t b = 0; b < len; b++, offset++) {
		const uint64_t unit = striped ? offset / CELL % K : 0;

		assert_int_equal(buf[b], byte_of(f->pool, f->block[i] + unit,
						 striped ? offset % CELL : offset));
	}
}

/* Read block by block from @at to the end. The first failure or 0; all that comes before is of the
 * file @was. */
static inline int read_on(struct reader *r, const struct fake_file *was, unsigned at,
			  struct err *err)
{
	static uint8_t buf[K * CELL];
	const size_t len = block_len();
	unsigned i = at;

	reader_seek(r, at * len);
	for (;; i++) {
		ssize_t n = reader_read(r, buf, len, err);

		if (n <= 0)
			return n < 0 ? (int)n : (i == was->n ? 0 : -EIO);
		assert_int_equal(n, i < was->n ? was->len[i] : 0);
		if (n > 0)
			expect_bytes(was, i, 0, buf, (size_t)n);
	}
}

static const struct {
	const char *name;
	bool ec, ours;
} kinds[] = {{"ours", false, true},
	     {"Apache", false, false},
	     {"ours, striped", true, true},
	     {"Apache, striped", true, false}};

#define for_kinds(i)                                                                               \
	for (size_t i = 0;                                                                         \
	     i < sizeof(kinds) / sizeof(*kinds) && (begin(kinds[i].ec, kinds[i].ours), true); i++)

/* Of a file that was opened with @was every byte can be read, although it has become file[0]
 * meanwhile. */
static inline void expect_same(struct reader *r, const struct fake_file *was, const char *kind)
{
	struct err err = ERR_INIT;
	int rc = read_on(r, was, 1, &err);

	if (rc < 0)
		fail_msg("%s: %d %s", kind, rc, err.text);
	reader_free(r);
}

/* A router asks its default name space about inodes. There, ours is another file's (none: @others
 * is 0), whose blocks have ids of their own or the very same: they differ in the block pool. */
static inline void begin_router(bool ec, bool same_ids, unsigned blocks, unsigned others)
{
	begin(ec, false);
	router = true;
	make(&file[2], others ? "/other" : NULL, 7, others);
	file[2].pool = "BP-2";
	if (same_ids && others)
		next_block = file[2].block[0];
	make(&file[0], "/d/f", 7, blocks);
}

/* ---- streams that nobody reads ---- */

static inline int setup(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(locs) / sizeof(*locs); i++)
		locs[i] = &info;
	hd__datanode_info_proto__init(&info);
	hd__datanode_idproto__init(&node_id);
	hc__token_proto__init(&no_token);
	no_token.kind = no_token.service = "";
	info.id = &node_id;
	node_id.ipaddr = "127.0.0.1";
	node_id.hostname = node_id.datanodeuuid = "";
	node_id.xferport = node_id.ipcport = 1;
	fs.user = (char *)"";
	idle_streams_init(&fs.idle_streams);
	return 0;
}
