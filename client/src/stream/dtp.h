/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * dtp - operations of DataTransferProtocol on a connection
 *
 * Idea: a request is version, opcode and message; an answer is a message with a status, which is
 * turned into -errno in one place.
 * Source: hdfs-wire 5.1, 5.2, 5.5, 5.7.
 */
#include "client/src/fs/fs.h"
#include "client/src/stream/sock.h"
#include "common/wire/dt.h"
#include "datatransfer.pb-c.h"

/** Header of a client's operation, pointing into the caller's parts. */
struct dtp_header {
	Hd__ClientOperationHeaderProto op;
	Hd__BaseHeaderProto base;
};
void dtp_header_init(struct dtp_header *h, struct dfs *fs, const Hd__ExtendedBlockProto *block,
		     const Hc__TokenProto *token);

/** What @s says about the page cache of data nodes: drop what is behind, read so many bytes ahead.
 */
void dtp_caching_init(Hd__CachingStrategyProto *m, const struct settings *s, enum hint drop);

struct write_setup;

/** WRITE_BLOCK, pointing into @w, which outlives it. */
struct dtp_write {
	Hd__OpWriteBlockProto op;
	Hd__ChecksumProto sum;
	Hd__CachingStrategyProto caching;
	protobuf_c_boolean pinning;
	struct dtp_header h;
};
void dtp_write_init(struct dtp_write *t, struct dfs *fs, const struct write_setup *w);
/** Which node of @lb does "ip:port" name? The first when it is none of them: it said so, and
 * *@ret_known is false. */
int dtp_bad_link(const Hd__LocatedBlockProto *lb, const char *link, bool *ret_known);
/** The node @peer blames "ip:port", which is not in its pipeline: that goes before what @err says.
 */
void dtp_stranger(const char *peer, const char *link, struct err *err);

int dtp_send_op(struct sock *s, enum dt_op op, const ProtobufCMessage *m, uint64_t deadline_ns,
		struct err *err);
/** The node's answer; IN_PROGRESS ones are waited through. The caller frees *@ret. A status other
 *  than SUCCESS is an error too, with *@ret set. */
int dtp_recv_reply(struct sock *s, uint64_t deadline_ns, Hd__BlockOpResponseProto **ret,
		   struct err *err);
/** The same without waiting: 1 and the answer, 0 not here yet. */
int dtp_try_reply(struct sock *s, Hd__BlockOpResponseProto **ret, struct err *err);

/** TRANSFER_BLOCK: let node @from of @lb copy what it has of @block to node @to of @lb. On failure
 *  *@ret_from_bad says that @from is out of reach, else @to is to blame. */
int dtp_transfer(struct dfs *fs, const Hd__LocatedBlockProto *lb,
		 const Hd__ExtendedBlockProto *block, size_t from, size_t to, bool *ret_from_bad,
		 struct err *err);
