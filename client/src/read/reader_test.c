/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a reader gives bytes of the file that was opened, or -ESTALE; never some of one
 * file and some of another. A file that grows, is renamed, recovered or joined to (concat)
 * meanwhile is still the same.
 * The NameNode is a fake, and a data node gives bytes that tell the block they belong to, and their
 * place in it. */
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
#include "client/src/read/block_locations.h"
#include "client/src/read/reader.h"
#include "client/src/stream/stream.h"
#include "common/base/clock.h"
#include "common/erasure/policy.h"
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
static uint64_t gone_block;             /* its node has it no more */
static int gone_rc = -EIO;              /* what its nodes say */
static uint64_t cut_stamp;              /* by an older one the nodes give nothing; */
static bool cut_late;                   /* nor what was asked for before */
static unsigned naps_until_all_is_well; /* 0: none make it so */
static unsigned copies;                 /* of each block */
static unsigned asked;                  /* getBlockLocations */
static unsigned streams, streams_made;
static uint64_t stream_len; /* so much the last one was asked for */
static uint64_t clock_ns;
static uint64_t next_block;
static Hd__DatanodeInfoProto info, *locs[512];
static Hd__DatanodeIDProto node_id;
static Hc__TokenProto no_token,
	*no_tokens[5] = {&no_token, &no_token, &no_token, &no_token, &no_token};
static uint8_t units[] = {0, 1, 2, 3, 4};

/* ---- the NameNode ---- */

static struct fake_file *find(const char *src)
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

static Hd__LocatedBlockProto *fill_block(struct answer *a, unsigned at, const struct fake_file *f,
					 unsigned i, uint64_t offset)
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

static void fill_policy(struct answer *a)
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

static void fill_answer(struct answer *a, const struct fake_file *f, uint64_t from, uint64_t len)
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

static void copy(const void *m, const ProtobufCMessageDescriptor *d, void *ret)
{
	uint8_t *buf;
	size_t len;

	assert_int_equal(pb_pack(m, &buf, &len), 0);
	assert_int_equal(pb_unpack(d, buf, len, ret), 0);
	free(buf);
}

static int locate(const Hd__GetBlockLocationsRequestProto *q, const ProtobufCMessageDescriptor *d,
		  void *ret, struct err *err)
{
	const struct fake_file *f = find(q->src);
	struct answer *a = calloc(1, sizeof(*a));

	asked++;
	if (!f || f->dir) {
		free(a);
		return err_set(err, -ENOENT, "File does not exist: %s", q->src);
	}
	fill_answer(a, f, q->offset, q->length);
	copy(&a->m, d, ret);
	free(a);
	return 0;
}

static void status(const Hd__GetFileInfoRequestProto *q, const ProtobufCMessageDescriptor *d,
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
	copy(&m, d, ret);
}

int __wrap_nn_call(struct dfs *d, const char *method, const ProtobufCMessage *q,
		   const ProtobufCMessageDescriptor *reply, void *ret, struct err *err);
int __wrap_nn_call(struct dfs *d, const char *method, const ProtobufCMessage *q,
		   const ProtobufCMessageDescriptor *reply, void *ret, struct err *err)
{
	(void)d;
	if (strcmp(method, "getBlockLocations") == 0)
		return locate((const void *)q, reply, ret, err);
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
	(void)err;
	assert_string_equal(method, "getReplicaVisibleLength");
	for (struct fake_file *f = file; f < file + FILES; f++)
		if (f->open && f->n &&
		    f->block[f->n - 1] ==
			    (striped ? m->block->blockid & ~15ull : m->block->blockid))
			r.length = striped ? f->visible / K : f->visible;
	copy(&r, reply, ret);
	return 0;
}

/* Byte @offset of a block, or of the unit of a group. */
static uint8_t byte_of(const char *pool, uint64_t block, uint64_t offset)
{
	return (uint8_t)((uint8_t)pool[strlen(pool) - 1] * 101 + block * 37 + offset +
			 offset / 251);
}

struct fake_stream {
	struct rstream base;
	char pool[8];
	uint64_t block, gs, at, left;
};

static ssize_t fake_read(struct rstream *rs, void *buf, size_t len, struct err *err)
{
	struct fake_stream *s = container_of(rs, struct fake_stream, base);

	if (s->gs < cut_stamp)
		return err_set(err, -EEXIST, "it was cut");
	len = len < s->left ? len : (size_t)s->left;
	for (size_t i = 0; i < len; i++)
		((uint8_t *)buf)[i] = byte_of(s->pool, s->block, s->at++);
	s->left -= len;
	return (ssize_t)len;
}

static int fake_poll(struct rstream *rs, struct pollfd *ret)
{
	(void)rs;
	*ret = (struct pollfd){.fd = -1};
	return 1;
}

static void fake_close(struct rstream *rs)
{
	streams--;
	free(container_of(rs, struct fake_stream, base));
}

static const struct block_stream fake_ops = {
	.read = fake_read, .try_read = fake_read, .poll_read = fake_poll, .close_read = fake_close};

static int open_stream(const struct read_setup *r, struct rstream **ret, struct err *err)
{
	struct fake_stream *s;

	if (gone_block && (r->lb->b->blockid & ~15ull) == gone_block)
		return err_set(err, gone_rc, "no such replica");
	if (r->gs && r->gs < cut_stamp && !cut_late)
		return err_set(err, -EEXIST, "it was cut");
	s = calloc(1, sizeof(*s));
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

static uint64_t block_len(void)
{
	return striped ? K * CELL : BLOCK;
}

static void add_blocks(struct fake_file *f, unsigned n)
{
	while (n--) {
		f->block[f->n] = next_block;
		f->len[f->n++] = block_len();
		next_block += 16;
	}
}

static void make(struct fake_file *f, const char *path, uint64_t id, unsigned n)
{
	*f = (struct fake_file){.path = path, .id = id, .stamp = 1000, .pool = "BP-1"};
	add_blocks(f, n);
}

static void begin(bool ec, bool ours)
{
	striped = ec;
	tells_id = ours;
	knows_ids = has_nodes = true;
	router = false;
	gone_block = cut_stamp = 0;
	copies = 1;
	asked = streams_made = 0;
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

static struct reader *open_file(const char *path)
{
	struct err err = ERR_INIT;
	struct reader *r;
	int rc = reader_new(&fs, path, &r, &err);

	if (rc < 0)
		fail_msg("%d %s", rc, err.text);
	return r;
}

/* Are these the @len bytes of block @i at @offset? */
static void expect_bytes(const struct fake_file *f, unsigned i, uint64_t offset, const uint8_t *buf,
			 size_t len)
{
	for (size_t b = 0; b < len; b++, offset++) {
		const uint64_t unit = striped ? offset / CELL % K : 0;

		assert_int_equal(buf[b], byte_of(f->pool, f->block[i] + unit,
						 striped ? offset % CELL : offset));
	}
}

/* Read block by block from @at to the end. The first failure or 0; all that comes before is of the
 * file @was. */
static int read_on(struct reader *r, const struct fake_file *was, unsigned at, struct err *err)
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

/* ---- tests ---- */

static void expect_stale(struct reader *r, const struct fake_file *was, const char *words)
{
	struct err err = ERR_INIT;
	int rc = read_on(r, was, 1, &err);

	if (rc != -ESTALE || !strstr(err.text, words) || !strstr(err.text, "/d/f"))
		fail_msg("%d, not -ESTALE with \"%s\": %s", rc, words, err.text);
	reader_free(r);
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

static void a_replaced_file_is_not_read_as_a_mixture(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		const struct fake_file was = file[0];

		make(&file[0], "/d/f", 8, 35);
		expect_stale(r, &was, "replaced");
	}
}

static void a_replaced_file_is_seen_without_inodes(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		const struct fake_file was = file[0];

		knows_ids = false;
		make(&file[0], "/d/f", 8, 37);
		expect_stale(r, &was, "replaced");
	}
}

static void a_deleted_file_is_stale(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		const struct fake_file was = file[0];

		file[0].path = NULL;
		expect_stale(r, &was, "deleted");
	}
}

static void a_truncated_file_is_stale(void **state)
{
	(void)state;
	for (unsigned left = 0; left < 35; left++)
		for_kinds(i)
		{
			struct reader *r = open_file("/d/f");
			const struct fake_file was = file[0];

			file[0].n = left;
			if (left % 2)
				file[0].len[left - 1] -= 7;
			file[0].stamp++;
			expect_stale(r, &was, "truncated");
		}
}

static void a_truncated_file_that_grew_again_is_stale(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		const struct fake_file was = file[0];

		file[0].n = 20;
		add_blocks(&file[0], 40);
		expect_stale(r, &was, "replaced");
	}
}

/* Its blocks are the same, and no shorter. The nodes know, and are asked by the stamp of the open.
 */
static void a_block_that_was_cut_and_filled_again_is_stale(void **state)
{
	(void)state;
	for (int late = 0; late < 2; late++)
		for_kinds(i)
		{
			struct reader *r = open_file("/d/f");
			const struct fake_file was = file[0];
			struct err err = ERR_INIT;
			const unsigned before = asked;
			int rc;

			if (striped) { /* they cannot be cut */
				reader_free(r);
				continue;
			}
			cut_late = late;
			file[0].stamp = 1010;
			cut_stamp = 1005;
			rc = read_on(r, &was, 34, &err);
			assert_int_equal(rc, -ESTALE);
			assert_string_equal(
				err.text,
				"/d/f was truncated and written on while it was read; open it again");
			assert_true(asked - before <= 3); /* nobody is asked once more */
			reader_free(r);
			r = open_file("/d/f");
			assert_int_equal(read_on(r, &was, 0, &err), 0);
			reader_free(r);
		}
}

/* A newer stamp alone is an append, or a recovery: the blocks before the last one are asked for by
 * theirs, it and those behind by the one of the open. */
static void a_block_that_was_appended_to_is_read_on(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		struct err err = ERR_INIT;

		file[0].stamp = 1010;
		add_blocks(&file[0], 2);
		cut_stamp = 1000;
		assert_int_equal(read_on(r, &file[0], 0, &err), 0);
		reader_free(r);
	}
}

static void a_file_with_other_blocks_under_the_same_inode_is_stale(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		const struct fake_file was = file[0];

		make(&file[0], "/d/f", 7, 35);
		expect_stale(r, &was, "replaced");
	}
}

static void replicas_that_are_gone_with_their_file_are_stale(void **state)
{
	(void)state;
	for (unsigned failures = 1; failures <= 3; failures++)
		for_kinds(i)
		{
			struct reader *r;
			struct fake_file was;

			make(&file[0], "/d/f", 7, 3); /* its blocks are all known */
			fs.set.acquire_failures = failures;
			r = open_file("/d/f");
			was = file[0];
			make(&file[0], "/d/f", 8, 3);
			gone_block = was.block[2];
			expect_stale(r, &was, "replaced");
		}
}

static void replicas_that_are_gone_alone_are_an_io_error(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		struct err err = ERR_INIT;

		gone_block = file[0].block[20];
		assert_int_equal(read_on(r, &file[0], 0, &err), -EIO);
		reader_free(r);
	}
}

/* Of a file that was opened with @was every byte can be read, although it has become file[0]
 * meanwhile. */
static void expect_same(struct reader *r, const struct fake_file *was, const char *kind)
{
	struct err err = ERR_INIT;
	int rc = read_on(r, was, 1, &err);

	if (rc < 0)
		fail_msg("%s: %d %s", kind, rc, err.text);
	reader_free(r);
}

static void a_renamed_file_is_read_on(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		const struct fake_file was = file[0];

		file[0].path = "/elsewhere";
		make(&file[1], "/d/f", 8, 35);
		expect_same(r, &was, kinds[i].name);
	}
}

static void a_file_without_inode_is_read_on(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		const struct fake_file was = file[0];

		knows_ids = false;
		expect_same(r, &was, kinds[i].name);
		assert_true(asked <= 6); /* and not twice for each stretch */
	}
}

/* A router asks its default name space about inodes. There, ours is another file's (none: @others
 * is 0), whose blocks have ids of their own or the very same: they differ in the block pool. */
static void begin_router(bool ec, bool same_ids, unsigned blocks, unsigned others)
{
	begin(ec, false);
	router = true;
	make(&file[2], others ? "/other" : NULL, 7, others);
	file[2].pool = "BP-2";
	if (same_ids && others)
		next_block = file[2].block[0];
	make(&file[0], "/d/f", 7, blocks);
}

static void a_long_file_behind_a_router_is_read_on(void **state)
{
	(void)state;
	for (unsigned others = 0; others < 61; others += 10)
		for (unsigned i = 0; i < 4; i++) {
			struct reader *r;

			begin_router(i & 1, i & 2, 35, others);
			r = open_file("/d/f");
			expect_same(r, &file[0], "router");
			assert_true(asked <= 6);
		}
}

/* @blocks of ours at the open, and one more soon. */
static void read_growing(unsigned blocks)
{
	struct err err = ERR_INIT;
	struct reader *r;

	file[0].open = true;
	file[0].visible = 40;
	if (blocks)
		file[0].len[blocks - 1] = 40;
	r = open_file("/d/f");
	assert_int_equal(read_on(r, &file[0], blocks / 2, &err), 0);
	if (blocks)
		file[0].len[blocks - 1] = BLOCK;
	add_blocks(&file[0], 1);
	file[0].len[blocks] = 40;
	for (int i = 0; i < 2; i++) {
		int rc = read_on(r, &file[0], 0, &err);

		if (rc < 0)
			fail_msg("%u blocks: %d %s", blocks, rc, err.text);
	}
	assert_int_equal(reader_length(r), blocks * BLOCK + 40);
	reader_free(r);
}

static void a_growing_file_behind_a_router_is_read_on(void **state)
{
	(void)state;
	for (unsigned blocks = 0; blocks < 40; blocks++)
		for (unsigned others = 0; others < 61; others += 10)
			for (int same_ids = 0; same_ids < 2; same_ids++) {
				begin_router(false, same_ids, blocks, others);
				read_growing(blocks);
			}
}

static void a_growing_file_behind_a_router_that_is_replaced_is_stale(void **state)
{
	(void)state;
	for (unsigned blocks = 1; blocks < 40; blocks += 6) {
		struct err err = ERR_INIT;
		struct reader *r;
		uint8_t buf[BLOCK];

		begin_router(false, false, blocks, 35);
		file[0].len[blocks - 1] = 40;
		file[0].open = true;
		file[0].visible = 40;
		r = open_file("/d/f");
		assert_int_equal(reader_pread(r, buf, 40, 0, &err), 40);
		make(&file[0], "/d/f", 8, blocks + 1);
		assert_int_equal(reader_pread(r, buf, 40, blocks * BLOCK, &err), -ESTALE);
		assert_non_null(strstr(err.text, "replaced"));
		reader_free(r);
	}
}

/* Appended to, or the target of a concat, by less than a stretch and by many. */
static void a_file_that_grew_is_read_on(void **state)
{
	(void)state;
	for (unsigned more = 0; more < 40; more += 3)
		for_kinds(i)
		{
			struct reader *r;

			if (!kinds[i].ec)
				/* its last block is filled up, and gets another stamp */
				file[0].len[34] = 31;
			r = open_file("/d/f");
			file[0].len[34] = block_len();
			file[0].stamp += 2;
			add_blocks(&file[0], more);
			/* the next stretch tells how long it is */
			expect_same(r, &file[0], kinds[i].name);
		}
}

static void a_file_that_is_appended_to_is_read_on(void **state)
{
	(void)state;
	for (unsigned visible = 0; visible <= BLOCK; visible += 50) {
		struct reader *r;
		struct err err = ERR_INIT;
		uint8_t buf[BLOCK];

		begin(false, visible > 0);
		file[0].len[34] = 50;
		r = open_file("/d/f");
		/* its last block has a new stamp, and one of its nodes knows nothing of it yet */
		file[0].open = true;
		file[0].stamp++;
		file[0].visible = visible;
		assert_int_equal(reader_pread(r, buf, 50, 34 * BLOCK, &err), 50);
		assert_int_equal(reader_length(r), 34 * BLOCK + (visible ? visible : 50));
		reader_free(r);
	}
}

static void a_growing_file_that_is_replaced_is_stale(void **state)
{
	(void)state;
	for (int ours = 0; ours < 2; ours++) {
		struct err err = ERR_INIT;
		struct reader *r;
		uint8_t buf[BLOCK];

		begin(false, ours);
		make(&file[0], "/d/f", 7, 1); /* nothing of it is complete */
		file[0].open = true;
		file[0].visible = 40;
		r = open_file("/d/f");
		assert_int_equal(reader_read(r, buf, 40, &err), 40);
		make(&file[0], "/d/f", 8, 2);
		assert_int_equal(reader_read(r, buf, 40, &err), -ESTALE);
		assert_non_null(strstr(err.text, "replaced"));
		reader_free(r);
	}
}

/* The last block is being written, and has so many parts; a striped one, rows. */
static size_t be_written(struct fake_file *f, unsigned parts)
{
	f->open = true;
	return f->len[f->n - 1] = f->visible = parts * (striped ? K * CELL : 20);
}

static void begin_another_block(struct fake_file *f)
{
	f->n--;
	add_blocks(f, 1);
}

static uint8_t two[2 * K * CELL]; /* parts */

/* What is there is read to its end. */
static struct reader *read_growing_to_its_end(unsigned blocks)
{
	struct err err = ERR_INIT;
	struct reader *r;
	size_t len;

	make(&file[0], "/d/f", 7, blocks);
	len = be_written(&file[0], 2);
	r = open_file("/d/f");
	reader_seek(r, (blocks - 1) * block_len());
	assert_int_equal(reader_read(r, two, sizeof(two), &err), len);
	return r;
}

/* Cut to nothing or to whole blocks, and written on: the inode and the complete blocks are the
 * same, the last one is another. */
static void a_growing_file_that_is_cut_and_written_on_is_stale(void **state)
{
	(void)state;
	for (unsigned blocks = 1; blocks < 40; blocks += 12)
		/* less than was read, as much, more */
		for (unsigned parts = 1; parts <= 3; parts++)
			for (int growing = 0; growing < 2; growing++)
				for_kinds(i)
				{
					struct reader *r = read_growing_to_its_end(blocks);
					struct err err = ERR_INIT;
					int rc;

					begin_another_block(&file[0]);
					be_written(&file[0], parts);
					file[0].open = growing;
					rc = (int)reader_read(r, two, sizeof(two), &err);
					if (rc != -ESTALE || !strstr(err.text, "replaced"))
						fail_msg("%s, %u blocks, %u parts: %d %s",
							 kinds[i].name, blocks, parts, rc,
							 err.text);
					reader_free(r);
				}
}

/* It may have been recovered to nothing. What is written there later is something else. */
static void a_growing_file_that_lost_its_last_block_ends_there(void **state)
{
	(void)state;
	for (unsigned blocks = 1; blocks < 40; blocks += 12)
		for_kinds(i)
		{
			struct reader *r = read_growing_to_its_end(blocks);
			struct err err = ERR_INIT;

			file[0].n--;
			file[0].open = false;
			assert_int_equal(reader_read(r, two, sizeof(two), &err), 0);
			assert_int_equal(reader_length(r), (blocks - 1) * block_len());
			add_blocks(&file[0], 1);
			assert_int_equal(reader_refresh(r, &err), -ESTALE);
			reader_free(r);
		}
}

/* Its writer gives up a block of which nothing was acknowledged, and begins another one. */
static void a_growing_file_whose_writer_begins_its_block_again_is_read_on(void **state)
{
	(void)state;
	for (unsigned blocks = 1; blocks < 40; blocks += 12)
		for_kinds(i)
		{
			struct err err = ERR_INIT;
			struct reader *r;
			size_t len;

			/* without an inode it could be any other file */
			if (blocks == 1 && !kinds[i].ours)
				continue;
			make(&file[0], "/d/f", 7, blocks);
			be_written(&file[0], 2);
			r = open_file("/d/f");
			gone_block = file[0].block[blocks - 1];
			begin_another_block(&file[0]);
			len = be_written(&file[0], 1);
			reader_seek(r, (blocks - 1) * block_len());
			assert_int_equal(reader_read(r, two, len, &err), len);
			expect_bytes(&file[0], blocks - 1, 0, two, len);
			be_written(&file[0], 2);
			assert_int_equal(reader_read(r, two, sizeof(two), &err), len);
			reader_free(r);
		}
}

static void the_end_of_a_growing_file_may_recede(void **state)
{
	struct err err = ERR_INIT;
	struct reader *r;
	uint8_t buf[BLOCK];

	(void)state;
	begin(false, true);
	make(&file[0], "/d/f", 7, 3);
	file[0].open = true;
	file[0].visible = 40;
	r = open_file("/d/f");
	assert_int_equal(reader_pread(r, buf, 10, 2 * BLOCK + 5, &err), 10);
	file[0].open = false; /* its writer died: the recovery leaves less than one node had */
	file[0].len[2] = 20;
	assert_int_equal(reader_pread(r, buf, 90, 2 * BLOCK + 5, &err), 15);
	assert_int_equal(reader_length(r), 2 * BLOCK + 20);
	reader_free(r);
}

/* The node that told the length dies, and another one has acknowledged less until now. */
static void a_growing_file_whose_node_dies_is_not_stale(void **state)
{
	(void)state;
	for (unsigned naps = 0; naps < 8; naps += 4) {
		struct err err = ERR_INIT;
		struct reader *r;
		uint8_t buf[BLOCK];
		ssize_t n;

		begin(false, naps > 0);
		make(&file[0], "/d/f", 7, 3);
		file[0].open = true;
		file[0].len[2] = 10; /* what the NameNode believes */
		file[0].visible = 40;
		r = open_file("/d/f");
		gone_block = file[0].block[2];
		file[0].visible = 20;
		naps_until_all_is_well = naps;
		n = reader_pread(r, buf, 10, 2 * BLOCK + 25, &err);
		assert_int_equal(n, naps ? 10 : -EIO);
		assert_int_equal(strstr(err.text, "is being written") != NULL, naps == 0);
		if (naps)
			expect_bytes(&file[0], 2, 25, buf, 10);
		reader_free(r);
	}
	gone_block = 0;
}

static void a_path_that_became_a_directory_is_stale(void **state)
{
	(void)state;
	for_kinds(i)
	{
		struct reader *r = open_file("/d/f");
		const struct fake_file was = file[0];

		file[0].dir = true;
		file[0].id = 9;
		expect_stale(r, &was, "deleted, replaced");
	}
}

static void what_cannot_be_opened_is_told_as_before(void **state)
{
	struct err err = ERR_INIT;
	struct reader *r;

	(void)state;
	begin(false, true);
	assert_int_equal(reader_new(&fs, "/d/g", &r, &err), -ENOENT);
	make(&file[1], "/d", 3, 0);
	file[1].dir = true;
	assert_int_equal(reader_new(&fs, "/d", &r, &err), -EISDIR);
}

/* A snapshot holds the file as it was then; its inode is that of the file as it is now. */
static void a_snapshot_is_not_asked_about_by_inode(void **state)
{
	struct reader *r;

	(void)state;
	begin(false, true);
	make(&file[1], "/d/.snapshot/s/f", 7, 35);
	file[0].id = 8;
	file[1].id = 8;
	r = open_file("/d/.snapshot/s/f");
	expect_same(r, &file[1], "snapshot");
}

static void a_file_with_more_than_64_replicas_is_read(void **state)
{
	(void)state;
	for (unsigned n = 63; n < 512; n = n < 66 ? n + 1 : 2 * n) {
		struct err err = ERR_INIT;
		struct reader *r;
		uint8_t buf;

		begin(false, true);
		copies = n;
		r = open_file("/d/f");
		assert_int_equal(read_on(r, &file[0], 0, &err), 0);
		gone_block = file[0].block[20];
		assert_int_equal(reader_pread(r, &buf, 1, 20 * BLOCK, &err), -EIO);
		gone_rc = -ECONNREFUSED; /* its nodes are out of reach: it may be read later */
		assert_int_equal(reader_pread(r, &buf, 1, 20 * BLOCK, &err), -ETIMEDOUT);
		gone_rc = -EIO;
		reader_free(r);
	}
}

/* ---- streams that nobody reads ---- */

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

static int setup(void **state)
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_replaced_file_is_not_read_as_a_mixture),
		cmocka_unit_test(a_block_that_was_cut_and_filled_again_is_stale),
		cmocka_unit_test(a_block_that_was_appended_to_is_read_on),
		cmocka_unit_test(a_replaced_file_is_seen_without_inodes),
		cmocka_unit_test(a_deleted_file_is_stale),
		cmocka_unit_test(a_truncated_file_is_stale),
		cmocka_unit_test(a_truncated_file_that_grew_again_is_stale),
		cmocka_unit_test(a_file_with_other_blocks_under_the_same_inode_is_stale),
		cmocka_unit_test(replicas_that_are_gone_with_their_file_are_stale),
		cmocka_unit_test(replicas_that_are_gone_alone_are_an_io_error),
		cmocka_unit_test(a_renamed_file_is_read_on),
		cmocka_unit_test(a_file_without_inode_is_read_on),
		cmocka_unit_test(a_long_file_behind_a_router_is_read_on),
		cmocka_unit_test(a_growing_file_behind_a_router_is_read_on),
		cmocka_unit_test(a_growing_file_behind_a_router_that_is_replaced_is_stale),
		cmocka_unit_test(a_file_that_grew_is_read_on),
		cmocka_unit_test(a_file_that_is_appended_to_is_read_on),
		cmocka_unit_test(a_growing_file_that_is_replaced_is_stale),
		cmocka_unit_test(a_growing_file_that_is_cut_and_written_on_is_stale),
		cmocka_unit_test(a_growing_file_that_lost_its_last_block_ends_there),
		cmocka_unit_test(a_growing_file_whose_writer_begins_its_block_again_is_read_on),
		cmocka_unit_test(the_end_of_a_growing_file_may_recede),
		cmocka_unit_test(a_growing_file_whose_node_dies_is_not_stale),
		cmocka_unit_test(a_path_that_became_a_directory_is_stale),
		cmocka_unit_test(what_cannot_be_opened_is_told_as_before),
		cmocka_unit_test(a_snapshot_is_not_asked_about_by_inode),
		cmocka_unit_test(a_file_with_more_than_64_replicas_is_read),
		cmocka_unit_test(an_idle_stream_is_given_back),
		cmocka_unit_test(who_reads_seldom_asks_for_no_more_than_he_takes),
		cmocka_unit_test(of_many_open_files_only_those_that_are_read_hold_streams),
		cmocka_unit_test(a_reader_that_waits_for_its_node_is_not_idle),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
