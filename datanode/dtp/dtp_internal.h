/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * dtp_internal - one data connection: shared by the dtp_*.c files
 */
#include "common/base/clock.h"
#include "common/transport/transport.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"
#include "datanode/block/operations.h"
#include "datanode/block/token.h"
#include "datanode/dtp/dtp.h"
#include "datanode/dtp/dtp_buf.h"

#define DTP_OUT_MAX 8192  /* acks waiting for the socket */
#define DTP_OUT_SMALL 256 /* most answers */
/* composite CRCs of one block: a stripe length too small is refused */
#define STRIPE_CRCS_MAX 65536u

enum dtp_state {
	DTP_OP,      /* needs the bytes of an op */
	DTP_WAIT_OP, /* receiving; leaves on recv */
	DTP_BUSY,    /* an op has the connection; leaves on dtp_op_done() */
	DTP_CLOSING, /* waits for everything in flight, then is freed */
	DTP_DONE,
};

struct dtp_conn;
struct dtp_op { /* an op in progress on a connection; first member of its struct */
	/** Do what can be done; called from the connection's step. */
	void (*step)(struct dtp_op *op);
	/** The connection is closing: stop. When nothing of the op is left, dtp_op_done(). */
	void (*abort)(struct dtp_op *op);
	struct dtp_conn *conn;
};

struct dtp_conn {
	struct rop rop;
	struct engine_core *core;
	struct list link;
	/* linked: without an operation, and not closing: broken, too, as long as its peer takes no
	 * answer */
	struct list idle;
	struct xconn *xc;
	char peer[NET_TEXT_MAX];
	enum dtp_state state;
	struct dtp_op *op;
	bool fresh;   /* no op yet */
	bool broken;  /* close when the op is done, and what is queued is sent */
	bool at_once; /* broken: what is queued is not waited for */
	bool aborted;

	struct dtp_buf in;
	struct xop recv_op;
	bool receiving;
	int recv_rc;       /* last result: 0 is the peer's end */
	uint32_t recv_len; /* bytes asked for */

	uint8_t *out;   /* being sent: one of small[], or of DTP_OUT_MAX bytes and owned */
	uint8_t *queue; /* to be sent next: likewise */
	uint32_t queue_len;
	uint8_t small[2][DTP_OUT_SMALL];
	/* owned: a message too long for the queue, goes when that is empty */
	uint8_t *big;
	size_t big_len;
	bool big_sending;
	struct xop send_op;
	bool sending;
	/* what is queued waits for what the op sends next, and goes with it */
	bool corked;
	/* of struct dtp_small, while there is no op: under way; to be answered now */
	struct list smalls, smalls_due;
	uint32_t small_count; /* of both, at most SMALL_READS_MAX */
};

static inline void dtp_ready(struct dtp_conn *c)
{
	reactor_ready(c->core->reactor, &c->rop);
}
static inline uint64_t dtp_in_ns(const struct dtp_conn *c, uint64_t ns)
{
	return reactor_now_ns(c->core->reactor) + ns;
}
/** Have at least @need unread bytes in c->in: true when they are there, else one receive of at most
 *  @want - unread (>= need) bytes is under way and the step comes again. @deadline_ns is
 *  that of dtp_buf_wait_until(). */
bool dtp_fill(struct dtp_conn *c, uint32_t need, uint32_t want, uint64_t deadline_ns);
/** Queue @len bytes. Over DTP_OUT_MAX with a peer that does not read: the connection breaks. */
void dtp_send(struct dtp_conn *c, const void *buf, size_t len);
/** Queue a malloc'ed message and free it. It may be longer than the queue when it is the last of
 * its op. */
void dtp_send_take(struct dtp_conn *c, int rc, uint8_t *buf, size_t len);
void dtp_send_status(struct dtp_conn *c, enum dt_status status, const char *bad_link,
		     const char *message);
bool dtp_sent_all(const struct dtp_conn *c);
/** What is queued, for a send of the caller's own that is under way (c->sending) until it is done.
 * False: nothing is. */
bool dtp_take_queued(struct dtp_conn *c, struct iovec *ret);
/** For /ops: whose op it is, and of which block. */
void dtp_tell(const char *peer, const struct block_pool *bp, const struct block *b,
	      struct operation *ret);
/** The op is over and may be freed after this; the connection takes the next one or closes. */
void dtp_op_done(struct dtp_conn *c);
/** Close after what is queued has been sent. */
void dtp_break(struct dtp_conn *c, int rc, const char *what);

/** A connection without an op: of a peer that came, or of one that we called (then the caller sets
 *  state and op at once). NULL: no memory, or stopping; @xc is closed. */
struct dtp_conn *dtp_conn_new(struct engine_core *core, struct xconn *xc);
/** Receive packets on @c into a new replica; takes *params, also on failure. @finished NULL: answer
 *  the peer as WRITE_BLOCK does; else it is called after the op has left @c. */
int dtp_receive_start(struct dtp_conn *c, struct write_params *params,
		      void (*finished)(void *arg, int rc), void *arg);

/** READ_SMALL (dtp_small.c): at most SMALL_READS_MAX at a time, and no other op beside them. */
struct small_read_request;
void dtp_small_start(struct dtp_conn *c, const struct small_read_request *q);
/** Send the answers that are due. */
void dtp_small_step(struct dtp_conn *c);
/** The connection closes: dtp_small_gone() comes for each. */
void dtp_small_abort(struct dtp_conn *c);
/** One is over and freed (dtp_conn.c). */
void dtp_small_gone(struct dtp_conn *c);

struct dtp_sum { /* a block's or a block group's checksum */
	enum crc_type crc_type;
	uint32_t bpc;
	uint64_t crc_per_block;
	bool composite;       /* else MD5 */
	uint64_t stripe;      /* composite: one CRC for each so many bytes; 0: one in all */
	const uint8_t *bytes; /* borrowed */
	size_t len;
};

/** Answer BLOCK_CHECKSUM or BLOCK_GROUP_CHECKSUM (dtp_checksum.c). */
void dtp_send_checksum(struct dtp_conn *c, const struct dtp_sum *s);

/* Each takes the connection for an op, or answers at once. @msg is borrowed. */
void dtp_write_start(struct dtp_conn *c, const Hd__OpWriteBlockProto *msg);
void dtp_read_start(struct dtp_conn *c, const Hd__OpReadBlockProto *msg);
void dtp_copy_start(struct dtp_conn *c, const Hd__OpCopyBlockProto *msg);
void dtp_checksum_start(struct dtp_conn *c, const Hd__OpBlockChecksumProto *msg);
void dtp_group_checksum_start(struct dtp_conn *c, const Hd__OpBlockGroupChecksumProto *msg);
void dtp_sync_later_start(struct dtp_conn *c, const Hd__OpSyncLaterProto *msg);
void dtp_replace_start(struct dtp_conn *c, const Hd__OpReplaceBlockProto *msg);
void dtp_transfer_start(struct dtp_conn *c, const Hd__OpTransferBlockProto *msg);

/** REQUEST_SHORT_CIRCUIT_FDS (dtp_short_circuit.c). */
void dtp_fds_start(struct dtp_conn *c, const Hd__OpRequestShortCircuitAccessProto *msg);
/** The two operations about shared memory, which clients can do without. */
void dtp_shm_refuse(struct dtp_conn *c, uint8_t op);

/** Too many moves at one time: answered as stock nodes do, so that the balancer comes again. */
void dtp_move_refused(struct dtp_conn *c, const char *what, int64_t block_id);
/** A block that replica_is_pinned() is not given away: answers ERROR_BLOCK_PINNED. */
void dtp_move_pinned(struct dtp_conn *c, int64_t block_id);

/* dtp_messages.c: messages to parameters and back */
/** -EINVAL with a sentence for the log: out of range, unknown pool (-ENOENT), -EACCES: the token
 *  does not allow it, ... */
int dtp_write_params(struct engine_core *core, const Hd__OpWriteBlockProto *m,
		     struct write_params *ret, struct err *err);
int dtp_targets(Hd__DatanodeInfoProto *const *infos, size_t n, const Hd__StorageTypeProto *types,
		size_t n_types, char *const *ids, size_t n_ids, struct dn_target **ret,
		struct err *err);
/** The block of an op, and whether its token allows @want (of which pool and block are filled in
 *  here). -EINVAL,
 *  -ENOENT: a pool of nobody here, -EACCES. */
int dtp_block(struct engine_core *core, const Hd__BaseHeaderProto *m, struct token_access want,
	      struct block *ret, struct block_pool **ret_pool, struct err *err);
/** What a refused op is answered with: ERROR_ACCESS_TOKEN or ERROR. */
enum dt_status dtp_refusal(int rc);
struct sink_params;
struct source_params;
/** WRITE_BLOCK for the next hop: version, opcode, message; malloc'ed. */
int dtp_write_op_encode(const struct sink_params *p, uint8_t **ret, size_t *ret_len);
/** READ_BLOCK for a source, with a token of ours where they are on. */
int dtp_read_op_encode(struct engine_core *core, const struct source_params *p, uint8_t **ret,
		       size_t *ret_len);
