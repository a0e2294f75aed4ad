/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * stream_rdma_read_internal - a read over RDMA: shared by stream_rdma_read.c (the caller's side),
 * stream_rdma_read_requests.c (the reactor's) and stream_rdma_read_view.c (one-sided)
 */
#include "client/src/stream/rdma_view.h"
#include "client/src/stream/stream_rdma_internal.h"

#define READ_SLOTS 3u /* requests under way */

struct rslot {
	struct rdma_r *r;
	/* [R] NULL: none; then dest has the data, or data the CRCs behind them */
	struct slot *data, *crc;
	uint8_t *dest; /* the caller's memory, then there is no data; or NULL */
	uint8_t *crcs; /* in one of both */
	uint32_t data_room, crc_room;
	struct verbs_exposure shown[2]; /* [R] of data, of crc */
	struct verbs_window *window;    /* [R] on dest, while the node may write there */
	struct xop shut;                /* of window */
	bool shutting;                  /* [R] */
	bool again;                     /* [R] its answer asks for other memory */
	bool exposed; /* [R] writes, under meeting.lock: the node may write to dest */
	struct rcall call;
	uint64_t offset; /* asked */
	uint32_t len;
	uint32_t made_for; /* bytes per checksum */
	bool asked;        /* [R] writes, under meeting.lock: the node may write to the slots */
	bool cancelled;    /* [R] */
	/* [R] we READ it ourselves: these are under way, and so many of them; one has failed */
	struct rview_read read_data, read_crcs;
	uint32_t parts;
	bool failed;
	bool pulling;  /* [R] writes, under meeting.lock: they are */
	bool onesided; /* it was read so */
	bool answered;
	int status;
	uint8_t crc_type;
	uint32_t bpc, data_len, crc_len;
	uint64_t first; /* block offset of the first byte in the slot */
	char text[256];
	struct rsend send; /* last: its buffer, 2 KiB, is not zero at first */
};

/* Requests have numbers: `tail` is what the caller reads next, those from `next` on are not made
 * yet.
 * All of a request is the reactor's, but while it is answered and not below `tail`, the caller
 * reads it.
 * [R]: of the reactor's thread alone. */
struct rdma_r {
	struct rstream base;
	struct dfs *fs;
	struct rdma *rdma;
	char peer[NET_TEXT_MAX];
	struct rmem *memory; /* counted; has dest. NULL: all is copied */
	uint8_t *dest;       /* of the byte at `from` */
	uint64_t from;
	Hd__ExtendedBlockProto block; /* pool id owned */
	Hc__TokenProto *token;        /* owned */
	struct meeting m;
	/* under m.lock */
	uint64_t at;      /* next byte for the caller */
	uint64_t used_ns; /* when the caller was here, or bytes came */
	uint32_t tail;
	bool reading;  /* the caller looks at slot[tail], or sleeps till it can */
	bool verified; /* CRCs of the oldest were checked */
	/* what was read one-sided does not fit its CRCs: the node is to be asked instead */
	bool distrusts;
	bool parked;      /* slots are given back, nothing is asked for till the caller comes */
	bool posted;      /* msg is on its way, */
	bool stop_posted; /* and stop_msg */
	/* since when it is to come to rest and does not; 0: it need not */
	uint64_t stop_ns;
	bool waits;       /* in line: for slots, */
	bool for_windows; /* or, having those, for memory windows */
	/* [R] */
	uint64_t end, asked;  /* of the range; next byte to ask for */
	uint32_t next, freed; /* requests below `freed` have given their slots back */
	uint32_t bpc;         /* the block's bytes per checksum, as far as is known */
	bool learned, dropping, closed;
	bool cached;   /* the NameNode says that the node has the block cached */
	bool stopped;  /* what is dropped is cancelled, too */
	uint32_t drop; /* while dropping: it and later requests are made again */
	uint64_t drop_at;
	struct rdma_pair wanted;            /* for the next request; */
	struct verbs_window *wanted_window; /* which has one of these, or takes a slot for data */
	uint64_t wanted_end;                /* of the former */
	struct verbs_turn turn;             /* to have memory windows for its slots */
	struct rtimer wait_over;
	struct rholder holder;
	struct rop rop;                /* ask_more() */
	struct rmsg msg;               /* the caller has used something up, or is back */
	struct rmsg stop_msg;          /* it is gone for the time being */
	struct rslot slot[READ_SLOTS]; /* last, as rdma_r_init() knows */
};

static inline struct rslot *slot_of(struct rdma_r *r, uint32_t number)
{
	return &r->slot[number % READ_SLOTS];
}

/* Bytes of the whole chunks that [@at, @end) is in. */
static inline uint64_t whole_chunks(const struct rdma_r *r, uint64_t at, uint64_t end)
{
	return (end + r->bpc - 1) / r->bpc * r->bpc - at / r->bpc * r->bpc;
}

/* So much of @piece that its CRCs have room in a slot. */
static inline uint32_t with_crcs(const struct rdma_r *r, uint32_t piece)
{
	return piece / r->bpc > RDMA_BUF_BYTES / 4 ? RDMA_BUF_BYTES / 4 : piece;
}

struct r_task {
	struct rtask t;
	struct rdma_r *r;
	bool dry; /* there was no slot */
};

/* stream_rdma_read.c */
/** [R] @arg: struct rslot. Its OpReadBlockProto. */
int rdma_r_pack(void *arg, uint8_t **ret, size_t *ret_len);

/* stream_rdma_read_view.c */
/** [R] The request is made, and the node not asked. False: it is to be. */
bool rdma_r_view(struct rslot *s);

/* stream_rdma_read_requests.c */
/** [R] The answer to @s is there, or it has to be asked for again. */
void rdma_r_settle(struct rslot *s);
/** All but the buffers of requests is zero then, and what is called back is set. */
void rdma_r_init(struct rdma_r *r);
/** struct r_task: ask for what there are slots for; ->dry: there were none. */
void rdma_r_begin_run(struct rtask *t);
/** Nothing more is asked for, and what is under way is cancelled. */
void rdma_r_stop_run(struct rtask *t);
/** Give the slots back, or in quarantine where the node may still write to them. */
void rdma_r_release_run(struct rtask *t);
