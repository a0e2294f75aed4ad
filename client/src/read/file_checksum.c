/* SPDX-License-Identifier: Apache-2.0 */
/* file_checksum - dfs_get_checksum(): Hadoop's checksum of a file, out of those that its data
 * nodes have: no byte of the file is read. Which replica answers makes no difference.
 * Source: Hadoop 3.4.2 FileChecksumHelper, CrcComposer; hdfs-wire 5.8. */
#include <endian.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "client/include/dfsclient_ext.h"
#include "client/src/fs/path_call.h"
#include "client/src/stream/dtp.h"
#include "client/src/stream/stream.h"
#include "common/base/clock.h"
#include "common/base/crc.h"
#include "common/wire/pb.h"

#define MD5_LEN 16u
/* Java digests its whole buffer, with the zeros behind the sums. It doubles from this size. */
#define JAVA_BUFFER_MIN 32u
#define TURNS 2 /* with fresh locations: blocks move, and tokens expire */

struct sums {
	struct dfs *fs; /* borrowed */
	bool composite;
	const Hd__LocatedBlocksProto *all; /* borrowed */
	uint8_t *md5;                      /* owned: those of the blocks, one after another */
	size_t len, room;
	uint32_t crc; /* composite, of the blocks so far */
	size_t blocks;
	enum crc_type type;
	bool mixed; /* kinds of CRC */
	uint32_t bpc;
	uint64_t crc_per_block;
};

/* ---- what a node says of a block ---- */

static void fill_options(const struct sums *s, Hd__BlockChecksumOptionsProto *o)
{
	hd__block_checksum_options_proto__init(o);
	o->has_blockchecksumtype = 1;
	o->blockchecksumtype = s->composite ? HD__BLOCK_CHECKSUM_TYPE_PROTO__COMPOSITE_CRC
					    : HD__BLOCK_CHECKSUM_TYPE_PROTO__MD5CRC;
}

static int send_block(const struct sums *s, struct sock *k, const Hd__LocatedBlockProto *lb,
		      uint64_t deadline, struct err *err)
{
	Hd__OpBlockChecksumProto op = HD__OP_BLOCK_CHECKSUM_PROTO__INIT;
	Hd__BlockChecksumOptionsProto options;
	struct dtp_header h;

	dtp_header_init(&h, s->fs, lb->b, lb->blocktoken);
	fill_options(s, &options);
	op.header = &h.base;
	op.blockchecksumoptions = &options;
	return dtp_send_op(k, DT_BLOCK_CHECKSUM, &op.base, deadline, err);
}

/* Of a group: the node asks those of the other units itself. */
static int send_group(const struct sums *s, struct sock *k, const Hd__LocatedBlockProto *lb,
		      uint64_t deadline, struct err *err)
{
	Hd__OpBlockGroupChecksumProto op = HD__OP_BLOCK_GROUP_CHECKSUM_PROTO__INIT;
	Hd__DatanodeInfosProto nodes = HD__DATANODE_INFOS_PROTO__INIT;
	Hd__BlockChecksumOptionsProto options;
	uint32_t *index = calloc(lb->n_locs, sizeof(*index));
	struct dtp_header h;
	int rc;

	if (!index)
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < lb->n_locs && i < lb->blockindices.len; i++)
		index[i] = lb->blockindices.data[i];
	dtp_header_init(&h, s->fs, lb->b, lb->blocktoken);
	fill_options(s, &options);
	nodes.datanodes = lb->locs;
	op.header = &h.base;
	op.datanodes = &nodes;
	op.n_blockindices = nodes.n_datanodes = lb->n_locs;
	op.blockindices = index;
	op.n_blocktokens = lb->n_blocktokens;
	op.blocktokens = lb->blocktokens;
	op.ecpolicy = s->all->ecpolicy;
	op.requestednumbytes = lb->b->numbytes;
	op.blockchecksumoptions = &options;
	rc = dtp_send_op(k, DT_BLOCK_GROUP_CHECKSUM, &op.base, deadline, err);
	free(index);
	return rc;
}

static int ask(const struct sums *s, const Hd__LocatedBlockProto *lb, size_t node,
	       Hd__BlockOpResponseProto **ret, struct err *err)
{
	const uint64_t deadline = clock_mono_ns() + stream_timeout_ns(s->fs, lb->n_locs);
	struct net_addr a;
	struct sock *k;
	int rc = node_addr(lb->locs[node]->id, s->fs->set.use_hostname, false, &a, err);

	rc = rc ?: sock_open(&a, s->fs->set.connect_timeout_ms, &k, err);
	if (rc < 0)
		return rc;
	rc = s->all->ecpolicy ? send_group(s, k, lb, deadline, err)
			      : send_block(s, k, lb, deadline, err);
	if (rc == 0)
		rc = dtp_recv_reply(k, deadline, ret, err);
	sock_close(k);
	return rc;
}

/* ---- the sum of sums ---- */

static int add_md5(struct sums *s, const uint8_t md5[MD5_LEN], struct err *err)
{
	if (s->len + MD5_LEN > s->room) {
		const size_t room = s->room * 2;
		uint8_t *more = realloc(s->md5, room);

		if (!more)
			return err_set(err, -ENOMEM, "out of memory");
		memset(more + s->room, 0, room - s->room);
		s->md5 = more;
		s->room = room;
	}
	memcpy(s->md5 + s->len, md5, MD5_LEN);
	s->len += MD5_LEN;
	return 0;
}

static int add_crc(struct sums *s, const uint8_t crc[4], uint64_t len)
{
	uint32_t v;

	memcpy(&v, crc, 4);
	v = be32toh(v);
	s->crc = s->blocks ? crc_combine(s->type, s->crc, v, len) : v;
	return 0;
}

static int take_kind(struct sums *s, const Hd__OpBlockChecksumResponseProto *m, struct err *err)
{
	const enum crc_type type = (enum crc_type)m->crctype;

	if (!m->has_crctype)
		return err_set(err, -ENOTSUP, "a data node does not say which kind of CRC it has");
	if (!s->blocks) {
		s->type = type;
		s->bpc = m->bytespercrc;
		s->crc_per_block = s->all->n_blocks > 1 ? m->crcperblock : 0;
		return 0;
	}
	if (m->bytespercrc != s->bpc && !s->composite)
		return err_set(err, -EINVAL, "its blocks have CRCs of %u and of %u bytes", s->bpc,
			       m->bytespercrc);
	if (type != s->type && s->composite)
		return err_set(err, -EINVAL, "its blocks have CRCs of two kinds");
	s->mixed = s->mixed || type != s->type;
	return 0;
}

static int take(struct sums *s, const Hd__BlockOpResponseProto *reply, uint64_t len,
		struct err *err)
{
	const Hd__OpBlockChecksumResponseProto *m = reply->checksumresponse;
	int rc;

	if (!m || m->blockchecksum.len != (s->composite ? 4 : MD5_LEN))
		return err_set(err, -EPROTO, "a data node answers without a checksum");
	rc = take_kind(s, m, err);
	if (rc == 0)
		rc = s->composite ? add_crc(s, m->blockchecksum.data, len)
				  : add_md5(s, m->blockchecksum.data, err);
	s->blocks++;
	return rc;
}

/* By any node that has it. */
static int sum_block(struct sums *s, const Hd__LocatedBlockProto *lb, struct err *err)
{
	Hd__BlockOpResponseProto *reply = NULL;
	int rc = err_set(err, -EIO, "no data node has a block of it");

	for (size_t i = 0; i < lb->n_locs && rc < 0; i++) {
		err_reset(err);
		pb_free(reply);
		reply = NULL;
		rc = ask(s, lb, i, &reply, err);
	}
	if (rc == 0)
		rc = take(s, reply, lb->b->numbytes, err);
	pb_free(reply);
	return rc;
}

static int sum_all(struct sums *s, struct err *err)
{
	int rc = 0;

	s->len = s->blocks = 0;
	s->room = JAVA_BUFFER_MIN;
	free(s->md5);
	s->md5 = calloc(1, s->room);
	if (!s->md5)
		return err_set(err, -ENOMEM, "out of memory");
	if (s->all->underconstruction)
		return err_set(err, -EBUSY,
			       "it is being written, and has no checksum before its end");
	for (size_t i = 0; i < s->all->n_blocks && rc == 0; i++)
		rc = sum_block(s, s->all->blocks[i], err);
	return rc;
}

static int finish(const struct sums *s, struct dfs_checksum *ret, struct err *err)
{
	const bool none = s->blocks && (s->mixed || s->type == CRC_NULL);
	const char *kind = s->type == CRC_CRC32C && s->blocks ? "CRC32C" : "CRC32";
	const uint32_t bpc = htobe32(s->blocks ? s->bpc : 0), crc = htobe32(s->crc);
	const uint64_t per_block = htobe64(s->blocks ? s->crc_per_block : 0);

	*ret = (struct dfs_checksum){.algorithm = "NONE"};
	if (none)
		return 0;
	if (s->composite && s->blocks) { /* an empty file has the other one */
		snprintf(ret->algorithm, sizeof(ret->algorithm), "COMPOSITE-%s", kind);
		memcpy(ret->bytes, &crc, 4);
		ret->len = 4;
		return 0;
	}
	snprintf(ret->algorithm, sizeof(ret->algorithm), "MD5-of-%lluMD5-of-%u%s",
		 (unsigned long long)be64toh(per_block), be32toh(bpc), kind);
	memcpy(ret->bytes, &bpc, 4);
	memcpy(ret->bytes + 4, &per_block, 8);
	ret->len = 12 + MD5_LEN;
	if (!EVP_Digest(s->md5, s->room, ret->bytes + 12, NULL, EVP_md5(), NULL))
		return err_set(err, -EIO, "this machine's OpenSSL has no MD5");
	return 0;
}

DFS_API int dfs_get_checksum(struct dfs *fs, const char *path, bool composite,
			     struct dfs_checksum *ret, struct dfs_err *out)
{
	Hd__GetBlockLocationsRequestProto req = HD__GET_BLOCK_LOCATIONS_REQUEST_PROTO__INIT;
	struct sums s = {.fs = fs, .composite = composite};
	struct path_call a;
	struct dfs_stat st;

	path_call_begin(&a, fs, path);
	for (int turn = 0; turn < TURNS && (!turn || (a.rc < 0 && s.all)); turn++) {
		Hd__GetBlockLocationsResponseProto *m = NULL;

		if (turn) {
			a.rc = 0;
			err_reset(&a.err);
		}
		req.src = a.path;
		req.length = INT64_MAX;
		(void)path_call_send(&a, "getBlockLocations", &req.base,
				     &hd__get_block_locations_response_proto__descriptor, &m);
		s.all = m ? m->locations : NULL;
		if (a.rc == 0 && !s.all)
			a.rc = path_not_found(&a.err, a.path);
		else if (a.rc == 0 && (a.rc = sum_all(&s, &a.err)) < 0)
			path_blame(a.path, a.rc, &a.err);
		pb_free(m);
		if (a.rc == -EBUSY || a.rc == -ENOMEM || a.rc == -EINVAL)
			break;
	}
	if (a.rc == -ENOENT && path_stat(fs, a.path, &st, &a.err) == 0 && st.type == DFS_DIR)
		a.rc = err_set(&a.err, -EISDIR, "%.400s is a directory", a.path);
	if (a.rc == 0)
		a.rc = finish(&s, ret, &a.err);
	free(s.md5);
	return path_call_end(&a, out);
}
