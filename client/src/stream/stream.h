/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * stream - the seam between reader/writer and the transport below
 *
 * Idea: writer.c and reader.c know blocks, packets, acks and failures; they do not know sockets. A
 * transport is one struct block_stream of functions: stream_tcp.c, stream_rdma.c and, for reads
 * from the files of this machine, stream_local.c. stream_open_write() and stream_open_read() choose
 * one for each node. Without RDMA they fall back to TCP and remember why for a while
 * (dfs.client.rdma=auto), or refuse (require).
 * Ownership: open gives a stream, close takes it. Everything in the setup structs is borrowed
 * during open only, but for what they say. A packet given to send() belongs to the writer again as
 * soon as the stream is closed, or when its ack has been returned.
 * Threading: a stream has one user at a time. Nothing here blocks except open, read, wait and
 * close, each until a deadline. One thread serves many streams by start, try_read or send, and
 * poll().
 * Source: hdfs-wire 5.4, 5.5, 5.6.
 */
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/src/fs/fs.h"
#include "datatransfer.pb-c.h"

struct block_stream;
struct rmem;

/* counter of what was read over RDMA without the node's doing: rdma_view.h */
#define STREAM_ONESIDED 3

/* Embedded first in a transport's own struct. */
struct wstream {
	const struct block_stream *ops;
	/* set by send(): it waits for memory of this process, which is no node's fault */
	bool in_line;
	/* until when its oldest packet that is not acknowledged waited for memory windows;
	 * UINT64_MAX: it does. The transport's thread writes it */
	_Atomic uint64_t held_until_ns;
	/* its connection broke, and the node is to be tried again: stream_broke() */
	bool broke;
	/* what the first nodes have said to sync_later: deferred_sync.h */
	uint64_t later[LOCATED_NODES_MAX];
	uint32_t later_count;
};
struct rstream {
	const struct block_stream *ops;
	/* set by the user before close: the node is slow, do not wait for what it was asked for */
	bool given_up;
	int counter; /* index in counters.read[] of what it gives from now on */
};

struct write_setup {
	const Hd__LocatedBlockProto *lb;     /* pipeline in order, with storages and token */
	const Hd__ExtendedBlockProto *block; /* current stamp; numBytes = the file's block size */
	enum dt_stage stage;
	uint64_t latest_gs; /* 0 for a new block */
	uint64_t min_rcvd;  /* acked */
	uint64_t max_rcvd;  /* sent */
	enum crc_type crc_type;
	uint32_t bpc;
	bool by_tcp; /* RDMA is not tried: our memory for it is short, or it broke too often */
	/* the end of the block need not wait for the disk, where the nodes know how: not by RDMA */
	bool sync_later;
};

struct ack {
	int64_t seqno;
	int bad;    /* index of the node to blame, or -1: everyone has it */
	int status; /* Status of that node */
};

struct read_setup {
	const Hd__LocatedBlockProto *lb; /* outlives the stream */
	size_t node;                     /* index of the replica to read */
	uint64_t offset, len;            /* in the block; len > 0 */
	/* where all of it is to go, to save a copy if that is registered memory: the stream's until
	 * it is closed, which waits until no node can write there. NULL: only read() says */
	void *dest;
	uint64_t gs; /* the stamp to ask by, which may be older than that of lb; 0: that one */
};

/** The block as @r asks for it; what it points to is that of r->lb. */
static inline Hd__ExtendedBlockProto read_block(const struct read_setup *r)
{
	Hd__ExtendedBlockProto b = *r->lb->b;

	b.generationstamp = r->gs ? r->gs : b.generationstamp;
	return b;
}

struct block_stream {
	const char *name; /* "tcp", "rdma" */
	int counter;      /* index in counters.written[] and .read[] */
	/* its connection has signs of life of its own: send() gets no heartbeats */
	bool keeps_alive;
	/* send() works before the pipeline is set up: what it sends lies at the node until then */
	bool runs_ahead;

	/** Set the pipeline up. On failure *@ret_bad is the index of the node to blame; -1: none,
	 *  the connection broke (stream_broke()), and the first node may have done what it was
	 *  asked for. */
	int (*open_write)(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
			  int *ret_bad, struct err *err);
	/** As open_write, but nothing is waited for: opened() tells how it goes, and w->lb must be
	 *  there until it has. NULL: there is none, open_write is quick. */
	int (*start_write)(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
			   struct err *err);
	/** 1 the pipeline is set up; 0 not yet: when what poll_write() names has news, or
	 *  *@ret_until_ns has come, ask again; -errno and the node to blame. */
	int (*opened)(struct wstream *s, uint64_t *ret_until_ns, int *ret_bad, struct err *err);
	/** Hand over a sealed packet. 1 taken whole, 0 no room now (offer the same one again, until
	 * the stream is closed). */
	int (*send)(struct wstream *s, struct packet *p, struct err *err);
	/** 1 and an ack, 0 none now. Acks come in the order of the packets. */
	int (*next_ack)(struct wstream *s, struct ack *ret, struct err *err);
	/** Until an ack can be had, or (@want_send) a packet can move. 1, 0 at the deadline. */
	int (*wait)(struct wstream *s, bool want_send, uint64_t deadline_ns, struct err *err);
	/** The same for a caller that waits for several streams: 1 something can move now; 0 and
	 *  what to poll(2) for, after which it may. */
	int (*poll_write)(struct wstream *s, bool want_send, struct pollfd *ret);
	void (*close_write)(struct wstream *s);

	int (*open_read)(struct dfs *fs, const struct read_setup *r, struct rstream **ret,
			 struct err *err);
	/** The next bytes of the range, verified: 1..@len, which is no more than is left of the
	 *  range. -EBADMSG for a wrong CRC. -ENOBUFS where TCP is allowed: the node has not failed,
	 *  and by TCP it can be read. -EEXIST, as
	 *  from open_read: the replica was cut within the range since it had the stamp that was
	 *  asked by; what is there now is something else.
	 *  Never called when the range is used up. */
	ssize_t (*read)(struct rstream *s, void *buf, size_t len, struct err *err);
	void (*close_read)(struct rstream *s);

	/* The same for a caller of many streams, who polls. A stream is used by either set. */
	/** As open_read, but nothing is waited for: what is wrong comes from try_read. (RDMA: the
	 *  first connection to a node is waited for.) */
	int (*start_read)(struct dfs *fs, const struct read_setup *r, struct rstream **ret,
			  struct err *err);
	/** As read, but 0 when nothing can be had now. */
	ssize_t (*try_read)(struct rstream *s, void *buf, size_t len, struct err *err);
	/** After try_read gave 0: 1 something may be had now; 0 and what to poll(2) for; -errno. */
	int (*poll_read)(struct rstream *s, struct pollfd *ret);

	/** Nobody reads on for the time being. False: something that was asked for is on its way,
	 *  and a close that does not wait for it would end a connection that others use. The node
	 *  is told to let go of it, and the stream may be asked again; a read goes on where it was.
	 *  Nothing is waited for. NULL: there is no such thing. */
	bool (*come_to_rest)(struct rstream *s);
};
static inline bool stream_come_to_rest(struct rstream *s)
{
	return !s || !s->ops->come_to_rest || s->ops->come_to_rest(s);
}

/** open_write and open_read of stream_rdma fail with -ENOLINK when there is no RDMA path to the
 *  node (the text says why; err.rc is -ENOBUFS when only our buffers are in use); everything else
 *  is a failure as on TCP. */
extern const struct block_stream stream_tcp, stream_rdma;
/** Reads only; -ENOLINK when the replica's files are not to be had, which is no failure. What goes
 *  wrong later is read by the network, by the same stream. */
extern const struct block_stream stream_local;

/** As stream_open_read() (@start: stream_start_read()), and not from the replica's files. */
int stream_open_network(struct dfs *fs, const struct read_setup *r, bool start,
			struct rstream **ret, struct err *err);
/** The checksum in which the block of @r is kept at its node, learned by reading a byte of it.
 *  Fails as open_read. */
int stream_tcp_checksum(struct dfs *fs, const struct read_setup *r, enum crc_type *ret_type,
			uint32_t *ret_bpc, struct err *err);
/** Is [p, p + len) in memory that the caller has registered (dfs_mem_register())? */
bool stream_is_registered(struct dfs *fs, const void *p, size_t len);
/** The registered memory that has all of it, in use until rdma_memory_put(); NULL: none. */
struct rmem *stream_memory_get(struct dfs *fs, const void *p, size_t len);
/** @what (a read, a write) waited in line for dfs.rdma.pool.wait in vain, for buffers or (@windows)
 *  for memory windows on those that it has: -ENOBUFS. */
int stream_no_buffers(const struct dfs *fs, const char *what, bool windows, struct err *err);
/** An RDMA connection broke with @rc: is the same node to be tried again? Not when RDMA alone will
 *  do, nor when the node was silent: another wait for it would be as long. */
static inline bool stream_forgives(const struct dfs *fs, int rc)
{
	return fs->set.rdma == RDMA_AUTO && rc != -ETIMEDOUT;
}
/** That connection was of a stream. Where the same node is to be tried again (true), it is by TCP
 *  for a while; but by RDMA if @other_way (rdma_has_other_way()), or we ended the connection. */
bool stream_broke(struct dfs *fs, const char *node, bool other_way, const struct err *why);
/** Can dfs.client.rdma be honoured at all? -ENOTSUP with what is missing, only when it is
 *  "require". */
int stream_check(struct dfs *fs, struct err *err);
/** Blocks will be written to @node: whatever that takes for packets to be filled where they are
 *  sent from. Nothing fails here. */
void stream_prepare_write(struct dfs *fs, const Hd__DatanodeInfoProto *node);
/** As the functions of the same name above, by the best transport for the node. *@ret_bad is -1 for
 *  a new block only, which the node may have begun: another block serves as well. */
int stream_open_write(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
		      int *ret_bad, struct err *err);
/** *@ret_opened: it is set up already. Else opened() is to be asked before anything else. */
int stream_start_write(struct dfs *fs, const struct write_setup *w, struct wstream **ret,
		       bool *ret_opened, int *ret_bad, struct err *err);
int stream_open_read(struct dfs *fs, const struct read_setup *r, struct rstream **ret,
		     struct err *err);
int stream_start_read(struct dfs *fs, const struct read_setup *r, struct rstream **ret,
		      struct err *err);
/** Is TCP the way to the node of @r, for a read that opens no stream (small_read.h)? */
bool stream_is_tcp(struct dfs *fs, const struct read_setup *r);

/** How long a data node may stay silent: Hadoop's socket timeout and 5 s for each node behind. */
static inline uint64_t stream_timeout_ns(const struct dfs *fs, size_t nodes)
{
	return (fs->set.socket_timeout_ms + 5000ull * nodes) * 1000000ull;
}
