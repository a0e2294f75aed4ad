/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * engine - a block in motion: one write or one read of a replica, whatever brings or takes the
 * bytes
 *
 * Idea: a front end (dtp_*.c over a stream, capsules over a message transport) owns a connection
 * and its framing. The engine owns order: verify, forward, write, acknowledge; or read ahead and
 * hand over. They meet in *pieces*: consecutive bytes of a block, in one pool slot, with their
 * CRCs.
 * Front end, engine and the next hop are joined by structs of functions, so a pipeline may mix
 * transports:
 *
 *   write:  front end --block_write_land/piece--> block_write --piece_sink_ops--> next hop
 *           front end <-----write_source_ops-- block_write <---sink_user_ops-- next hop
 *   read:   front end --block_read_open/sent---> block_read
 *           front end <----read_sink_ops------- block_read
 *
 * Promises of a write: payload is not copied (disk and next hop take it from the slot it landed
 * in); each byte is touched once by the CPU, for its CRC; a piece is forwarded only after its CRC
 * fits; it is acknowledged, strictly in order, after this node's write of data and CRCs has
 * completed and the next hop has acknowledged it; `sync` adds fdatasync of data and meta (and the
 * directory, once) before the ack; `last` adds finalisation.
 * Words: a *source* gives pieces, a *sink* takes them, whatever is behind it. write_source: the
 * front end of a write; piece_source (source.h): a replica; piece_sink: the next hop; read_sink:
 * the reader. A *landing* is the place where bytes of a write will lie; to *land* is to get one. A
 * *transfer* (transfer.h) is a copy of a whole replica to other nodes.
 * Prefixes: br_ is a block being read, rp_ one piece of it (block_read.c); bw_ is a block being
 * written, wlane_ and wdisk_ its way to the disk (block_write*.c).
 * Ownership: slots are counted; the engine holds one reference per landing, the next hop uses the
 * piece until sink_user_ops.sent(). An op frees itself after ended(); nothing of it may be touched
 * then.
 * Threading: everything of one op happens on one reactor. Call-backs into a front end record and
 * mark ready (docs/style.md); they may call block_write_close() or block_read_close(), nothing
 * else re-enters the engine.
 * Units: bytes, offsets count from the start of the block. Statuses are the wire's Status numbers.
 * Source: hdfs-wire 5.4 to 5.7, 8.1; rdma-datapath 10.4, 11, 12; design 1.2.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"
#include "common/base/spares.h"
#include "common/reactor/pool.h"
#include "common/reactor/reactor.h"
#include "datanode/block/disk_turns.h"
#include "datanode/block/disk_workers.h"
#include "datanode/dn.h"

#define PAGE 4096u           /* of O_DIRECT */
#define PIECE_MAX (1u << 20) /* bytes of one piece: a slot of the largest class */
/* bytesPerChecksum; below 4 pieces are shorter, so that their CRCs fit a slot */
#define BPC_MIN 1u
#define BPC_MAX (1u << 20) /* a chunk with its place in a page fits a slot */
static inline bool bpc_fits(uint32_t bpc)
{
	return bpc >= BPC_MIN && bpc <= BPC_MAX - (bpc % PAGE ? PAGE : 0);
}
/** The least multiple of both. */
static inline uint64_t lcm(uint64_t a, uint64_t b)
{
	uint64_t x = a, y = b;

	while (y) {
		const uint64_t rest = x % y;

		x = y;
		y = rest;
	}
	return a / x * b;
}
#define SEQ_HEARTBEAT (-1) /* passed on and acknowledged, touches no disk */
#define SEQ_UNKNOWN (-2)   /* acks that belong to no piece: mirror broken, OOB */

struct engine_waits { /* how long a silent peer is waited for */
	/* dfs.client.socket-timeout: an op, an answer, half of it is a client's heartbeat */
	uint64_t read_ns;
	uint64_t write_ns;     /* dfs.datanode.socket.write.timeout; 0 there: XFER_FOREVER_NS */
	uint64_t keepalive_ns; /* dfs.datanode.socket.reuse.keepalive: between two ops */
	uint64_t buffers_ns;   /* dfs.rdma.pool.wait: a step waits so long for buffers */
};
#define XFER_NODE_NS 5000000000ull /* more for each node that is waited for */
#define XFER_FOREVER_NS (366ull * 24 * 3600 * 1000000000)

/* of each kind, between two moments with many short reads: as many as two connections may have */
#define XFER_SPARES 128

#define XFER_BUDGETS 64 /* of volumes, and of next hops: as many as a store has volumes */

/** What the streams of one volume, next hop or connection may hold together; buffers.h. */
struct buffers_share {
	struct pool_budget slots; /* of all classes, but not those of lists */
	struct pool_budget lists; /* of CRCs, of writes over RDMA */
};
#define BUFFERS_SHARES 3 /* of a stream: its volume, next hop and connection */

/** What the ops of one reactor share; made by data_port_start(). */
struct engine_core {
	struct data_port *xfer;
	struct dn *dn;
	struct reactor *reactor;
	struct pool *pool;
	struct list reads; /* private to block_read.c: every read alive */
	/* memory of what has ended, for the next ones: private to block_read.c and dtp_small.c */
	struct spares spare_reads, spare_smalls;
	struct list writes;  /* private to block_write.c: every write alive */
	struct list entries; /* private to operations.c: what else /ops lists */
	struct list conns;   /* private: front ends' connections */
	/* private to dtp_conn.c: of these, those without an operation; the longest idle first */
	struct list idle;
	/* how many these are, less those that are promised to others; data_port.c takes from it */
	atomic_int idle_free;
	atomic_uint idle_promised;
	struct rmsg idle_msg; /* private to data_port.c, as the next one is */
	atomic_bool idle_posted;
	struct list rebuilds;         /* private to reconstruct.c: every one alive */
	struct list rebuilds_waiting; /* private to reconstruct.c, as these four are */
	uint32_t rebuilds_queued;
	uint32_t rebuilds_running[2], reconstruct_slots[2]; /* 1: those that are for a checksum */
	uint32_t reconstruct_slots_max;                     /* of SLOT_64K, for all that run */
	/* of capsule_landing(): promised to those that run; all */
	uint32_t landing_slots, landing_slots_max;
	uint32_t op_count, conn_count;
	struct rtimer reclaim_timer; /* private to buffers.c, as the budgets are */
	struct buffers_share by_volume[XFER_BUDGETS], by_hop[XFER_BUDGETS];
	struct buffers_share transfers;        /* of replicas to other nodes */
	struct buffers_share copies;           /* that other nodes fetch (COPY_BLOCK) */
	struct pool_budget lists, long_lists;  /* of all writes over RDMA */
	uint64_t hops[XFER_BUDGETS];           /* whose by_hop is */
	struct disk_turns disks[XFER_BUDGETS]; /* private to block_read.c, as these two are */
	struct disk_workers workers[XFER_BUDGETS], disk_reads[XFER_BUDGETS];
	struct disk_workers disk_syncs[XFER_BUDGETS]; /* private to block_write_sync.c */
	bool read_direct;                             /* O_DIRECT for finalised replicas */
	/* to clients that come by the UNIX domain socket: dfs.client.read.shortcircuit */
	bool pass_fds;
	struct moves *moves;       /* of the whole node; moves.h */
	struct suspects *suspects; /* of the whole node; suspects.h */
	struct token_keys *tokens; /* of the whole node; token.h */
	uint32_t io_seq;           /* disk requests so far, for the sampling of their times */
	struct capsule_port *caps; /* RDMA; NULL: none */
	struct engine_waits waits;
	struct rmsg volumes_out_msg; /* private to data_port.c, as these two are */
	atomic_uint_fast64_t volumes_out;
	atomic_bool volumes_out_posted;
	bool stopping;
	uint64_t restart_until_ms; /* wall clock; not 0: this node restarts and is back by then */
};

/** Hand a prepared request on a replica's file to the ring. Some file systems do not know of
 *  requests that must not wait: a worker of the kernel makes these from the start. */
static inline void engine_disk_attach(struct io_uring_sqe *sqe, struct uring_op *op, bool remote)
{
	if (remote)
		io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
	uring_attach(sqe, op);
}

#define XFER_SYNC_QUEUE (1 + 2 * XFER_BUDGETS) /* of SYNC_LATER, which waits for all volumes */
/** Of moves from this volume to other ones of this node: each waits for two volumes, and moves.h
 *  bounds how many of them may wait for one. */
#define XFER_MOVE_QUEUE(volume) (2 + 2 * XFER_BUDGETS + (volume))
/** A volume's queue for writes to block files; engine_offload()'s queue is for calls that may wait
 *  for a writer to end. Writes are not the ring's: its workers take those of one file one by one
 *  and know files by 64 hashes, over all disks. So where four writes hung, 14 of 100 to files of
 *  another disk (each of a block file and a meta file) stood behind them. */
#define XFER_WRITE_QUEUE(volume) (1 + XFER_BUDGETS + (volume))
_Static_assert(XFER_WRITE_QUEUE(XFER_BUDGETS) == XFER_SYNC_QUEUE &&
		       XFER_MOVE_QUEUE(XFER_BUDGETS) == DN_IPC_QUEUE,
	       "a queue for each");
/** A blocking call that waits for this volume alone, on a helper thread of the volume's own. */
static inline void engine_offload(struct engine_core *core, uint32_t volume, struct offload *o)
{
	reactor_offload_to(core->reactor, DN_VOLUME_QUEUE(volume), o);
}

/** A front end took (+1) or lost (-1) a connection. */
void engine_count_conn(struct engine_core *core, int delta);

struct piece {
	int64_t seq;
	uint64_t off;
	uint32_t len; /* 0: last, sync or heartbeat without data */
	bool last;    /* of the block; len 0 */
	bool sync;    /* on stable storage before the ack */
	/* another piece of the same seq follows: this one gets no ack of its own */
	bool more;
	bool flush;        /* the sender waits for the ack: do not wait for more before writing */
	struct slot *slot; /* payload at slot->data + slot_off; NULL when len is 0 */
	uint32_t slot_off;
	/* crc_count big-endian CRCs: all but the last at @crcs, the last one in @edge (a later
	 * piece may complete that chunk while this one is still being sent). Of reads @crcs holds
	 * all. */
	uint32_t crc_count;
	const uint8_t *crcs;
	uint8_t edge[4];
	struct slot *crc_slot; /* where @crcs lies (registered memory) */
	struct list link;      /* the holder's: sink while forwarding, front end while sending */
};

/* ---- the next hop ---- */

struct piece_sink;
struct sink_user;

/** What a next hop tells its user. Statuses are of the hop and those behind it, in order. */
struct sink_user_ops {
	/** The whole chain behind answered. @status 0, or a failure with @bad_link "ip:port". A
	 *  failed sink is to be closed. */
	void (*opened)(struct sink_user *u, int status, const char *bad_link);
	/** The piece's memory is not needed any more. */
	void (*sent)(struct sink_user *u, struct piece *p);
	void (*acked)(struct sink_user *u, int64_t seq, const uint8_t *statuses, uint32_t n);
	/** No acks will come any more; close it. 0 is the good end of a sink without acks. */
	void (*broken)(struct sink_user *u, int rc);
	/** After close(): nothing is in flight, the sink is gone. */
	void (*closed)(struct sink_user *u);
};
struct sink_user {
	const struct sink_user_ops *ops;
};

struct piece_sink_ops {
	/** Pieces come in order; keep the pointer until sent(). */
	void (*forward)(struct piece_sink *s, struct piece *p);
	/** Unsent pieces are dropped: sent() comes for them too, then closed(). */
	void (*close)(struct piece_sink *s);
	/** Bytes that the hop's machine has taken since the connection began; 0 before that. NULL:
	 *  only sent() tells. */
	uint64_t (*taken)(struct piece_sink *s);
};
struct piece_sink {
	const struct piece_sink_ops *ops;
	struct sink_user *user;
	/* what the hop and those behind it say to a write with sync_later, when it is opened */
	uint64_t later[DN_TARGETS_MAX];
	uint32_t later_count;
};

/* ---- writing ---- */

struct write_params { /* of WRITE_BLOCK, as decoded and checked by a front end */
	struct block_pool *bp;
	struct write_request req;          /* stop, storage_uuid are filled in by the engine */
	char storage_uuid[BLOCK_UUID_MAX]; /* "" = any */
	char client[256];                  /* "" = another data node sends: no acks */
	uint32_t pipeline_size;
	struct dn_target *targets; /* owned (malloc), the hops behind this one */
	uint32_t target_count;
	uint8_t *token; /* owned (malloc): TokenProto for them, encoded; NULL: none */
	size_t token_len;
	char del_hint[BLOCK_UUID_MAX]; /* REPLACE_BLOCK: reported with RECEIVED */
	bool transfer;                 /* stage TRANSFER_*: no acks, one final answer */
	/* how long whoever is before us waits for an answer, at most as long as we; 0: not said */
	uint64_t read_ns;
	bool sync_later; /* the last ack need not wait for the disk: SYNC_LATER */
};

/** How long the next hop of @w may be silent when nothing is owed to it but signs of life. */
static inline uint64_t engine_hop_ns(const struct engine_core *core, const struct write_params *w)
{
	return w->read_ns ? w->read_ns : core->waits.read_ns;
}

/** How long the chain behind us may take for an answer. Whoever is before us waits for one node
 *  more, and so hears of the node that hangs before it would give us up;
 *  client/src/stream/stream.h. */
static inline uint64_t engine_chain_ns(const struct engine_core *core, const struct write_params *w)
{
	return engine_hop_ns(core, w) + XFER_NODE_NS * w->target_count;
}

/** Free what is owned. */
void write_params_fini(struct write_params *p);
/** A token of our own making for the targets, who ask us for one as they would ask a client.
 *  Nothing where tokens are off. -errno. */
int write_params_sign(struct engine_core *core, struct write_params *p, int64_t block_id);

struct block_write;
struct write_source;

struct write_source_ops {
	/** Set-up is over. @status 0: pieces may come. Else answer upstream with it and @bad_link,
	 *  ended() follows. @replica_failed: this node could not prepare the replica (stock nodes
	 *  close without an answer). */
	void (*opened)(struct write_source *s, int status, const char *bad_link,
		       bool replica_failed);
	/** block_write_land() may succeed now. */
	void (*room)(struct write_source *s);
	/** In order, once per seq (never for params.client "" or transfer). statuses[0] is ours. */
	void (*ack)(struct write_source *s, int64_t seq, const uint8_t *statuses, uint32_t n);
	/** The block is finalised and acknowledged (rc 0), or the op failed and the connection is
	 *  to be closed. All slots are back; the block_write frees itself. */
	void (*ended)(struct write_source *s, int rc);
	/** For /ops: the next bytes wait for a buffer of the source's own. NULL: it has none. */
	bool (*waits_for_buffers)(const struct write_source *s);
	/** Somebody waits for buffers: end the write if its peer has stopped in the middle of a
	 *  piece.
	 *  NULL: no peer can. */
	void (*reclaim)(struct write_source *s);
};
struct write_source {
	const struct write_source_ops *ops;
	const char *peer; /* for log lines */
	/* of the connection, or NULL: one that has one stream needs none */
	struct buffers_share *share;
	bool rdma, own; /* which metrics count; own: the bytes are made here */
};

/** Prepare the replica (off the reactor), connect and set up the rest of the chain, then opened().
 *  Takes *params (moves it out). -ENOMEM; later failures come through opened() and ended(). */
int block_write_open(struct engine_core *core, struct write_params *params,
		     struct write_source *src, struct block_write **ret);
/** How the sender's CRCs are cut; valid after opened(0). */
uint32_t block_write_bpc(const struct block_write *w);
/** What a slot of @cls for a list of the sender's CRCs is charged to; valid after opened(0). */
void block_write_list_budgets(const struct block_write *w, enum slot_class cls,
			      struct pool_budget *ret[POOL_BUDGETS]);
/** A slot of @cls for a list was waited for too long. True: the next hop's writes have all that
 *  they may have, it is taken for broken, and the sender is told: once. */
bool block_write_no_list(struct block_write *w, enum slot_class cls);
/** The block size that the sender named. */
uint64_t block_write_block_size(const struct block_write *w);

/** Of a write with sync_later, when it is opened: the epochs of this node and of those behind it
 *  (store_deferred_sync_epoch(), or 0: that node need not be asked). How many. */
uint32_t block_write_later(const struct block_write *w, uint64_t ret[DN_TARGETS_MAX + 1]);

struct landing {
	/* one reference for the caller: block_write_piece() takes it, else slot_put() */
	struct slot *slot;
	uint32_t off; /* in the slot; congruent to the block offset modulo 4096 */
	uint32_t len; /* 1..want; cut at a chunk border when the slot ends */
};
/** Room for bytes [@off, @off + @want) of the block. Landings are filled and then submitted with
 *  block_write_piece() in the order in which they were given; a landing is bound to become a piece
 *  unless it is given back or the write is closed. -EAGAIN: too much in flight or the pool is dry,
 *  room() will come.
 *  -EINVAL: a gap, or not on a chunk border: the sender breaks the protocol. */
int block_write_land(struct block_write *w, uint64_t off, uint32_t want, struct landing *ret);
/** Give a landing at @off back unused, the last one given first; takes its reference. */
void block_write_unland(struct block_write *w, uint64_t off, const struct landing *land);
/** A piece has landed (or has no payload). Takes the landing's reference, always. @crcs are the
 *  sender's CRCs of this piece, copied; NULL: compute them. A mismatch is acknowledged as
 *  ERROR_CHECKSUM and ends the op. -EAGAIN (only when len is 0): too many pieces wait for acks,
 *  room() will come. -EINVAL: breaks the protocol. */
int block_write_piece(struct block_write *w, const struct piece *p, const uint8_t *crcs);
/** The upstream is gone or broke the protocol: stop, keep what is received as the replica's state
 *  demands. ended() follows unless it came already. */
void block_write_close(struct block_write *w, int rc);

/** core->restart_until_ms is set: tell every client that writes; replicas that stay unfinished are
 * marked. */
void block_write_restart_all(struct engine_core *core);
/** reclaim() of each source. */
void block_write_reclaim_all(struct engine_core *core);
/** End every write in progress as if this node had failed it. */
void block_write_evict_all(struct engine_core *core);

/* ---- reading ---- */

struct read_params {
	struct block_pool *bp;
	struct block block;
	uint64_t off, len;
	bool want_crcs;
	bool whole;        /* the whole replica: off 0, len ignored (COPY, TRANSFER) */
	enum pool_use use; /* POOL_READ for a client */
};

struct read_info {
	enum crc_type crc_type; /* CRC_NULL with bytes_per_crc 512 when no CRCs will come */
	uint32_t bytes_per_crc;
	uint64_t first, end; /* what will come: from a chunk border to the end of a chunk or of
				  * the replica */
	struct block block;  /* gs and readable length of the replica */
	enum replica_state state;
};

struct block_read;
struct read_sink;

struct read_sink_ops {
	/** @rc 0: pieces follow. Else answer with an error (@err says what); ended() follows.
	 *  -EEXIST, here and from ended(): the replica was cut, since it had the stamp that was
	 *  asked for, within or before what is read. */
	void (*opened)(struct read_sink *s, int rc, const struct read_info *info,
		       const struct err *err);
	/** The next piece, in order; give it back with block_read_sent(), at most BREAD_AHEAD are
	 * out. */
	void (*piece)(struct read_sink *s, struct piece *p);
	/** Everything was handed over and given back (0), or failed. The read frees itself. */
	void (*ended)(struct read_sink *s, int rc);
	/** Somebody waits for buffers: if the peer takes nothing, give back what is out and
	 *  block_read_park(), which does nothing to a read that has failed. NULL: its peer cannot
	 *  stall. */
	void (*reclaim)(struct read_sink *s);
	/** Its volume does not answer: more may come late, or never. Not for every sink; ended()
	 *  follows when the disk lets go of its requests. */
	void (*lost)(struct read_sink *s);
};
struct read_sink {
	const struct read_sink_ops *ops;
	const char *peer;
	struct buffers_share *share; /* of the connection, or of all copies; or NULL */
	bool rdma, own;              /* which metrics count; own: no client reads */
};
#define BREAD_AHEAD 4

int block_read_open(struct engine_core *core, const struct read_params *params,
		    struct read_sink *sink, struct block_read **ret);
void block_read_sent(struct block_read *r, struct piece *p);
/** Let every read whose peer takes nothing park. */
void block_read_reclaim_all(struct engine_core *core);
/** The volume is out of service: the sinks of its reads hear lost(). */
void block_read_volume_out(struct engine_core *core, uint32_t volume);
/** The peer takes nothing: give the read-ahead back and hold no buffer until block_read_resume().
 *  Every piece that was handed over must be back. The read goes on at the chunk that holds @off,
 *  which must have been handed over before: those bytes come again, the same ones. */
void block_read_park(struct block_read *r, uint64_t off);
void block_read_resume(struct block_read *r);
/** Does somebody wait for what this read may have (buffers_are_wanted())? */
bool block_read_is_wanted(const struct block_read *r);
/** Stop early. ended() follows unless it came already; pieces out must still be given back. */
void block_read_close(struct block_read *r);
