/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * capsule - the messages of the RDMA data path
 *
 * Idea: one SEND is one capsule; the acceptor ("node") drives all RDMA. Dialer and acceptor, who
 * may send what, credits, closing, versioning: docs/wire.md, which comes first; this is its codec.
 * A message is the capsule part and, with CAPSULE_PAYLOAD, the capsule part padded with zeros to
 * exactly the receiver's capsule_max and then the payload: the second receive element gets it
 * aligned.
 * Ownership: decoded pointers borrow the received buffers; encoded structs borrow their strings.
 * Threading: pure functions. Units: bytes; all integers big-endian.
 * Source: docs/wire.md; rdma-datapath 2.4, 5, 7, 11.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CAPSULE_VERSION 1
#define CAPSULE_HEADER_LEN 20
#define CAPSULE_WRITE_LEN 48 /* body of WRITE before its CRCs */
#define CAPSULE_READ_LEN 32  /* body of READ before its OpReadBlockProto */
/* 128 bytes for header and fields, 1 KiB for the CRCs of 128 KiB at 512 bytes per CRC. */
#define CAPSULE_MAX_DEFAULT 1152
#define CAPSULE_MAX_LEAST 256
#define CAPSULE_MAX_MOST 16384
#define CAPSULE_INLINE_DEFAULT 8192
#define CAPSULE_INLINE_MOST 65536
#define CAPSULE_PIECE_MAX (1u << 20) /* data of one WRITE */
#define CAPSULE_READ_MAX (64u << 20) /* destination of one READ */
#define CAPSULE_CRC_MAX (8u << 20)   /* CRC list of one WRITE or READ */
#define CAPSULE_TEXT_MAX 512         /* message, firstBadLink */
#define CAPSULE_HOPS_MAX 64          /* statuses in an ACK */
#define CAPSULE_CREDITS_LEAST 4
#define CAPSULE_CREDITS_MOST 4096
#define CAPSULE_SEQ_NONE (-1)
#define CAPSULE_VIEW_MS_MOST 60000 /* a lease, or a time until the next try */

/* ---- private data of the connection manager ---- */

#define CAPSULE_MAGIC 0x44465352u /* "DFSR" */
#define CAPSULE_PRIVATE_LEN 44
#define CAPSULE_RAILS 4 /* addresses that a node tells of itself */
#define CAPSULE_RAIL_LEN 16
/* of an accept */
#define CAPSULE_PRIVATE_MOST (CAPSULE_PRIVATE_LEN + 12 + CAPSULE_RAILS * CAPSULE_RAIL_LEN)
#define CAPSULE_REJECT_LEN 16
#define CAPSULE_SESSION_LEN 16

enum capsule_role { CAPSULE_CLIENT = 0, CAPSULE_PEER = 1, CAPSULE_NODE = 2 /* in the accept */ };

enum capsule_feature {
	CAPSULE_FEAT_WINDOW = 1 << 0,   /* type 2 memory windows and SEND_WITH_INV; reserved */
	CAPSULE_FEAT_ONESIDED = 1 << 1, /* VIEW, VIEW_REPLY, VIEW_END: the dialer READs */
};

struct capsule_private {
	uint16_t version;
	uint32_t features;
	uint16_t credits;     /* request: wanted; accept: granted at the start */
	uint16_t reply_slots; /* request: receives the dialer posted; accept: 0 */
	uint32_t capsule_max; /* largest capsule part the sender of this can receive */
	uint32_t inline_max;  /* largest payload the sender of this can receive; 0: none */
	uint8_t read_depth;   /* RDMA READs: request: can answer; accept: will issue */
	uint8_t role;         /* enum capsule_role */
	uint8_t checksum;     /* enum crc_type; CRC_NULL: per operation */
	uint8_t session[CAPSULE_SESSION_LEN];
	/* of an accept, behind what every peer knows; node 0: nothing of it is there */
	uint64_t node; /* chosen anew by each process: the same on all its rails */
	uint8_t rails;
	uint8_t rail[CAPSULE_RAILS][CAPSULE_RAIL_LEN]; /* IPv6, or IPv4 mapped into it */
};

enum capsule_reject {
	CAPSULE_REJECT_NONE = 0,
	CAPSULE_REJECT_VERSION = 1,   /* see version for the highest one */
	CAPSULE_REJECT_BUSY = 2,      /* retry after retry_after_ms */
	CAPSULE_REJECT_RESOURCES = 3, /* no QP, no credits, no memory; use TCP meanwhile */
	CAPSULE_REJECT_AUTH = 4,
	CAPSULE_REJECT_SHUTDOWN = 5,
	CAPSULE_REJECT_USE_TCP = 6,    /* RDMA is switched off here */
	CAPSULE_REJECT_MALFORMED = 7,  /* private data short, wrong magic, value out of range */
	CAPSULE_REJECT_READ_DEPTH = 8, /* the dialer offered 0 READs */
};

struct capsule_reject_data {
	uint16_t version; /* highest the acceptor speaks */
	uint16_t reason;  /* enum capsule_reject */
	uint32_t retry_after_ms;
};

/** Bytes written: CAPSULE_PRIVATE_LEN without `node`. */
size_t capsule_private_encode(const struct capsule_private *p, uint8_t out[CAPSULE_PRIVATE_MOST]);
/** @len may be longer than what was sent (padding). -EPROTO: short, wrong magic or out of range;
 *  -EPROTONOSUPPORT: another version (ret->version is set). */
int capsule_private_decode(const void *buf, size_t len, struct capsule_private *ret);
void capsule_reject_encode(const struct capsule_reject_data *r, uint8_t out[CAPSULE_REJECT_LEN]);
/** -EPROTO: not ours (a reject by the connection manager itself carries nothing). */
int capsule_reject_decode(const void *buf, size_t len, struct capsule_reject_data *ret);
/** "the node is busy", for people. */
const char *capsule_reject_text(uint16_t reason);

/* ---- capsules ---- */

enum capsule_type {                         /* D: sent by the dialer, A: by the acceptor */
		    CAPSULE_OPEN_WRITE = 1, /* D: OpWriteBlockProto; opens stream request_id */
		    CAPSULE_OPEN_REPLY = 2, /* A: the chain stands, or not */
		    CAPSULE_WRITE = 3,      /* D: one piece of a stream */
		    CAPSULE_ACK =
			    4, /* A: pieces up to seqno have reached their stage on all hops */
		    CAPSULE_PULLED = 5, /* A: source memory of pieces up to seqno may be reused */
		    CAPSULE_READ = 6,   /* D: OpReadBlockProto and where to put the bytes */
		    CAPSULE_READ_REPLY = 7, /* A: outcome; data and CRCs are in place */
		    CAPSULE_CANCEL = 8,     /* D: stop stream or read request_id */
		    CAPSULE_CLOSED = 9,     /* A: the stream is over; no RDMA of it is in flight */
		    CAPSULE_HEARTBEAT = 10, /* both: alive, credits */
		    CAPSULE_ERROR = 11,     /* both: the connection is finished; text says why */
		    /* with CAPSULE_FEAT_ONESIDED */
		    CAPSULE_VIEW = 14,       /* D: OpReadBlockProto; may I READ it myself? */
		    CAPSULE_VIEW_REPLY = 15, /* A: where, and for how long */
		    CAPSULE_VIEW_END = 16,   /* D: no READ of mine will come any more */
};

enum capsule_flag {
	CAPSULE_PAYLOAD = 1 << 0,     /* payload behind capsule_max; WRITE, OPEN_WRITE, READ */
	CAPSULE_CRC_INLINE = 1 << 1,  /* WRITE: CRCs follow the fields in the capsule */
	CAPSULE_LAST = 1 << 2,        /* WRITE: last of the block, no data */
	CAPSULE_SYNC = 1 << 3,        /* WRITE: on disk before the ack */
	CAPSULE_WANT_PULLED = 1 << 4, /* OPEN_WRITE: send PULLED */
	CAPSULE_VERIFIED = 1 << 5,    /* READ_REPLY: the node has checked the CRCs itself */
};

struct capsule_mem { /* memory of the dialer */
	uint64_t addr;
	uint32_t rkey;
	uint32_t len;
};

struct capsule_view {     /* memory of the acceptor */
	int status;       /* enum dt_status; not SUCCESS: but for `ms` and `text` all is 0 */
	uint8_t crc_type; /* enum crc_type */
	uint32_t bytes_per_checksum;
	uint32_t ms; /* of the lease; not SUCCESS: until it may be asked again, 0: it may not */
	uint32_t rkey;
	uint64_t data_addr,
		crc_addr; /* of the block's first byte, and of the CRC of its first chunk */
	uint32_t data_len, crc_len; /* of all of the block; crc_len follows from the others */
};

struct capsule_bytes { /* borrowed */
	const void *p;
	uint32_t len;
};

struct capsule {
	uint8_t type;        /* enum capsule_type */
	uint16_t flags;      /* enum capsule_flag; PAYLOAD and CRC_INLINE follow from the fields */
	uint16_t credits;    /* cumulative grant of the sender, modulo 2^16 */
	uint64_t request_id; /* stream or read; 0 for HEARTBEAT, ERROR and VIEW_END */
	struct capsule_bytes payload; /* decode: p only if the caller gave the payload's address */
	union {
		struct {
			struct capsule_bytes op; /* packed OpWriteBlockProto; may lie in payload */
		} open_write;
		struct {
			int status;                    /* enum dt_status */
			struct capsule_bytes bad_link; /* text without NUL, "" when good */
			struct capsule_bytes text;
		} open_reply;
		struct {
			int64_t seqno;   /* >= 0, rising within the stream */
			uint64_t offset; /* in the block */
			uint32_t data_len;
			struct capsule_mem data;  /* len = data_len; addr, rkey 0 with payload */
			struct capsule_bytes crc; /* inline CRCs, or p = NULL and len of the list */
			struct capsule_mem crc_mem; /* len = crc.len when not inline, else all 0 */
		} write;
		struct {
			int64_t seqno;
			int64_t pulled; /* cumulative; CAPSULE_SEQ_NONE: none */
			uint8_t count;  /* 1..CAPSULE_HOPS_MAX */
			/* [count], enum dt_status; [0] is the answering node */
			const uint8_t *status;
		} ack;
		struct {
			int64_t seqno;
		} pulled;
		struct {
			struct capsule_mem dest;
			struct capsule_mem crc;  /* len 0: no CRCs wanted (sendChecksums false) */
			struct capsule_bytes op; /* packed OpReadBlockProto; may lie in payload */
		} read;
		struct {
			int status;       /* enum dt_status */
			uint8_t crc_type; /* enum crc_type */
			uint32_t bytes_per_checksum;
			uint64_t chunk_offset; /* of the first byte moved */
			uint32_t data_len;     /* bytes moved to dest, or wanted (docs/wire.md) */
			uint32_t crc_len;      /* bytes moved to crc, or wanted */
			struct capsule_bytes text;
		} read_reply;
		struct {
			int status;
			struct capsule_bytes text;
		} closed; /* CLOSED and ERROR */
		struct {
			struct capsule_bytes op; /* packed OpReadBlockProto */
		} view;
		struct {
			struct capsule_view v;
			struct capsule_bytes text;
		} view_reply;
		struct {
			uint32_t rkey;
		} view_end;
	};
};

/** Encode into @buf[capsule_max], where @capsule_max is the *receiver's*. Returns the bytes of @buf
 *  to send; when c->payload.len > 0 that is capsule_max and the caller gathers the payload behind
 *  it. -EMSGSIZE: does not fit (callers fall back: payload, CRCs by address, TCP); -EINVAL: a field
 *  out of its range. */
ssize_t capsule_encode(const struct capsule *c, uint32_t capsule_max, void *buf);
/** Decode one received message: @len bytes of capsule part at @buf (at most capsule_max, the
 *  receiver's own) and @payload_len bytes behind it; @payload NULL when they are not addressable.
 *  Every range of docs/wire.md is checked. -EPROTO: answer CAPSULE_ERROR and close;
 *  -EPROTONOSUPPORT: version or type unknown. */
int capsule_decode(const void *buf, uint32_t len, const void *payload, uint32_t payload_len,
		   struct capsule *ret);
/** Does the CRC list of @crc_len bytes fit into a WRITE of @capsule_max? */
static inline bool capsule_crc_fits(uint32_t crc_len, uint32_t capsule_max)
{
	return crc_len + CAPSULE_HEADER_LEN + CAPSULE_WRITE_LEN <= capsule_max;
}
/** Does an OpReadBlockProto of @op_len bytes fit into a READ of @capsule_max? */
static inline bool capsule_read_fits(size_t op_len, uint32_t capsule_max)
{
	return op_len + CAPSULE_HEADER_LEN + CAPSULE_READ_LEN <= capsule_max;
}
const char *capsule_type_name(uint8_t type);
