/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * dt - DataTransferProtocol version 28: op headers, delimited messages, packets, acks
 *
 * Idea: the messages of set-up are protobuf-c structs (pb.h); what travels per packet is decoded by
 * hand into plain structs, without allocation. Decoders are incremental: x_need(buf, n) says how
 * many bytes there must be in all before x_decode() can be called.
 * Ownership: plain values; strings in Hd__* structs filled here are borrowed from the arguments.
 * Threading: pure functions.
 * Units: bytes.
 * Source: hdfs-wire section 5; datatransfer.proto. Errors: -EPROTO the peer broke the protocol,
 * -EMSGSIZE over a limit, -EBADMSG malformed protobuf.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/block.h"
#include "datatransfer.pb-c.h"

#define DT_VERSION 28
#define DT_OP_HEADER_LEN 3        /* version, opcode */
#define DT_MESSAGE_MAX (1u << 20) /* longest delimited message accepted */
#define DT_PACKET_MAX (16u << 20) /* PLEN, dfs.data.transfer.max.packet.size */
#define DT_PACKET_PREFIX_LEN 6    /* PLEN, HLEN */
#define DT_PACKET_HLEN_MAX 256    /* 25 or 27 today; newer peers may add fields */
/* what dt_packet_encode() writes at most, prefix included */
#define DT_PACKET_HEADER_MAX 33
#define DT_ACK_NODES_MAX 64      /* replies in one PipelineAck */
#define DT_ACK_MAX 1024          /* bytes of a delimited PipelineAck, written or accepted */
#define DT_STATUS_MAX 16         /* bytes of a delimited one-status message */
#define DT_COPY_BLOCK_END 0x0064 /* two bytes after the packets of COPY_BLOCK */

#define DT_SEQNO_HEARTBEAT (-1)
#define DT_SEQNO_UNKNOWN (-2) /* mirror broken, OOB */

enum dt_op {
	DT_WRITE_BLOCK = 80,
	DT_READ_BLOCK = 81,
	DT_READ_METADATA = 82,
	DT_REPLACE_BLOCK = 83,
	DT_COPY_BLOCK = 84,
	DT_BLOCK_CHECKSUM = 85,
	DT_TRANSFER_BLOCK = 86,
	DT_REQUEST_SHORT_CIRCUIT_FDS = 87,
	DT_RELEASE_SHORT_CIRCUIT_FDS = 88,
	DT_REQUEST_SHORT_CIRCUIT_SHM = 89,
	DT_BLOCK_GROUP_CHECKSUM = 90,
	DT_READ_SMALL = 125, /* our own: small_read.h */
	DT_SYNC_LATER = 126, /* our own: OpSyncLaterProto */
	DT_CUSTOM = 127,
};

/* Status: the numbers of Hd__Status */
enum dt_status {
	DT_SUCCESS = 0,
	DT_ERROR = 1,
	DT_ERROR_CHECKSUM = 2,
	DT_ERROR_INVALID = 3,
	DT_ERROR_EXISTS = 4,
	DT_ERROR_ACCESS_TOKEN = 5,
	DT_CHECKSUM_OK = 6,
	DT_ERROR_UNSUPPORTED = 7,
	DT_OOB_RESTART = 8,
	DT_OOB_RESERVED1 = 9,
	DT_OOB_RESERVED2 = 10,
	DT_OOB_RESERVED3 = 11,
	DT_IN_PROGRESS = 12,
	DT_ERROR_BLOCK_PINNED = 13,
};

enum dt_stage {
	DT_SETUP_APPEND = 0,
	DT_SETUP_APPEND_RECOVERY = 1,
	DT_DATA_STREAMING = 2,
	DT_SETUP_STREAMING_RECOVERY = 3,
	DT_CLOSE = 4,
	DT_CLOSE_RECOVERY = 5,
	DT_SETUP_CREATE = 6,
	DT_TRANSFER_RBW = 7,
	DT_TRANSFER_FINALIZED = 8,
};

/* ---- ops and delimited messages ---- */

/** -EPROTO: not version 28. The opcode is not judged: see dt_op_desc(). */
int dt_op_header_decode(const uint8_t buf[DT_OP_HEADER_LEN], uint8_t *ret_op);
/** Descriptor of the message behind an opcode; NULL: unknown or unused opcode. */
const ProtobufCMessageDescriptor *dt_op_desc(uint8_t op);
const char *dt_op_name(uint8_t op); /* "READ_BLOCK", or "?" */
/** Version, opcode and delimited @msg as one malloc'ed buffer. -ENOMEM. */
int dt_op_encode(enum dt_op op, const void *msg, uint8_t **ret, size_t *ret_len);

/** A delimited message begins at @buf, @n bytes are there. Returns how many there must be in all:
 *  n + 1 while the length is still unknown, else prefix + message (which may be <= n: complete),
 *  and then *ret_prefix is the length of the prefix (0 while unknown). Read until you have them.
 *  -EMSGSIZE: longer than @max; -EPROTO: bad varint. */
ssize_t dt_delim_need(const void *buf, size_t n, uint32_t max, uint32_t *ret_prefix);

/* ---- packets ---- */

struct dt_packet {
	int64_t offset;    /* in the block; >= 0 */
	int64_t seqno;     /* DT_SEQNO_HEARTBEAT or >= 0 */
	uint32_t data_len; /* 0..DT_PACKET_MAX */
	uint32_t crc_len;  /* 0..DT_PACKET_MAX; multiple of 4 */
	bool last;         /* with data_len 0 */
	bool sync;
};

/** Bytes of prefix and header in all: 6 while @n < 6, then 6 + HLEN. -EMSGSIZE, -EPROTO. */
ssize_t dt_packet_need(const void *buf, size_t n);
/** Decode dt_packet_need() bytes; crc_len bytes of CRCs and data_len bytes of data follow.
 *  -EPROTO: a required field is missing, a length does not fit PLEN, ...; fields in any order,
 *  unknown ones are skipped. */
int dt_packet_decode(const void *buf, size_t len, struct dt_packet *ret);
/** Write prefix and header; returns their length (31 or 33). The fields must be in range. */
size_t dt_packet_encode(const struct dt_packet *p, uint8_t out[DT_PACKET_HEADER_MAX]);
/** crc_len is what @data_len bytes need: 0 or ceil(data_len / bpc) * 4. */
bool dt_packet_crc_len_ok(const struct dt_packet *p, uint32_t bytes_per_checksum);

/* ---- pipeline acks ---- */

#define DT_FLAG_STATUS_MASK 0xf
enum dt_ecn {
	DT_ECN_DISABLED = 0,
	DT_ECN_SUPPORTED = 1,
	DT_ECN_SUPPORTED2 = 2,
	DT_ECN_CONGESTED = 3
};
enum dt_slow { DT_SLOW_DISABLED = 0, DT_SLOW_NORMAL = 1, DT_SLOW_SLOW = 2 };

struct dt_ack {
	int64_t seqno;
	uint64_t downstream_ns;
	uint32_t count;                  /* 0..DT_ACK_NODES_MAX; [0] is the answering node */
	uint32_t flag_count;             /* 0 or count */
	uint8_t reply[DT_ACK_NODES_MAX]; /* enum dt_status */
	uint32_t flag[DT_ACK_NODES_MAX]; /* status | ecn << 5 | slow << 7 */
};

/** Delimited PipelineAck into @out; returns its length. */
size_t dt_ack_encode(const struct dt_ack *a, uint8_t out[DT_ACK_MAX]);
/** @buf: the message without its varint length. When flags are present they win: reply[i] is the
 *  status in flag[i], as stock readers do. -EPROTO, -EMSGSIZE: more than DT_ACK_NODES_MAX nodes. */
int dt_ack_decode(const void *buf, size_t len, struct dt_ack *ret);
static inline uint32_t dt_flag(enum dt_status s, enum dt_ecn ecn, enum dt_slow slow)
{
	return (uint32_t)s | (uint32_t)ecn << 5 | (uint32_t)slow << 7;
}
/** Index of the node to blame: scan from last to first, first that is not SUCCESS; -1: none. */
int dt_ack_first_bad(const struct dt_ack *a);

/* ---- one-status messages, BlockOpResponse ---- */

/** Delimited ClientReadStatusProto or DNTransferAckProto; returns its length. */
size_t dt_read_status_encode(enum dt_status s, uint8_t out[DT_STATUS_MAX]);
/** @buf without the varint length. -EBADMSG. Unknown values are DT_ERROR. */
int dt_read_status_decode(const void *buf, size_t len, enum dt_status *ret);
/** Delimited BlockOpResponseProto {status, firstBadLink, message}; NULL strings are left out.
 *  Malloc'ed. */
int dt_response_encode(enum dt_status s, const char *first_bad_link, const char *message,
		       uint8_t **ret, size_t *ret_len);
/** The same for a write; @keeps: another operation may follow on its connection. @later, @n: see
 * the message. */
int dt_write_response_encode(enum dt_status s, const char *first_bad_link, bool keeps,
			     const uint64_t *later, size_t n, uint8_t **ret, size_t *ret_len);
/** Delimited BlockOpResponseProto that begins a read; @takes_small: READ_SMALL may follow. */
int dt_read_response_encode(int crc_type, uint32_t bytes_per_checksum, uint64_t chunk_offset,
			    bool takes_small, uint8_t **ret, size_t *ret_len);

/* ---- conversions ---- */

/** Pool ids become directory names: letters, digits, '-', '_', '.', not starting with '.', shorter
 *  than BLOCK_POOL_ID_MAX. */
bool dt_pool_id_ok(const char *pool);
/** -EINVAL: the pool id is not one (dt_pool_id_ok()). */
int dt_block_from_proto(const Hd__ExtendedBlockProto *p, struct block *ret,
			char ret_pool[BLOCK_POOL_ID_MAX]);
/** Fill @ret; @pool is borrowed. */
void dt_block_to_proto(const struct block *b, const char *pool, Hd__ExtendedBlockProto *ret);
/** -EIO, -EBADMSG (checksum), -EACCES (token), -EEXIST, ...; 0 for SUCCESS and CHECKSUM_OK;
 *  -EINPROGRESS for IN_PROGRESS; -ERESTART for OOB_RESTART; -EIO for what is unknown. */
int dt_status_errno(int status);
/** The other way; @rc 0 or -errno. Unknown: DT_ERROR. */
enum dt_status dt_errno_status(int rc);
const char *dt_status_name(int status); /* "ERROR_CHECKSUM", or "?" */
