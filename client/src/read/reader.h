/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * reader - a file being read: where its blocks are, streams of them, failover
 *
 * Idea: locations are fetched in stretches and kept; a stretch is counted, so that a read can go on
 * with it while another thread replaces it. A struct fetch is one stream's worth of state:
 * dfs_read() has one that lives on (it asks for the rest of the block and so reads ahead), every
 * dfs_pread() has its own for exactly its range. A replica that fails is set aside and the next one
 * continues at the same byte; only when all have failed, after fresh locations, does the caller
 * hear of it. A file that was replaced or truncated meanwhile is -ESTALE (same_file.h).
 * Erasure-coded files are read by striped_reader.
 * Threading: `lock` guards length and stretches; `seq_lock` guards position and sequential stream,
 * and is taken first.
 * Units: offsets in the file unless "block" is in the name.
 * Source: hdfs-wire 3.5, 5.4.
 */
#include "client/src/fs/fs.h"
#include "client/src/read/same_file.h"
#include "client/src/stream/stream.h"
#include "common/erasure/policy.h"

struct Hd__GetBlockLocationsResponseProto;
struct ec_coder;
struct striped;
struct stretch; /* some consecutive blocks of a file, counted */

struct fetch {
	struct stretch *stretch;         /* counted; NULL: none */
	const Hd__LocatedBlockProto *lb; /* in stretch */
	struct rstream *rs;              /* owned; NULL: none */
	uint64_t pos;                    /* next byte */
	uint64_t end;                    /* of what was asked from the stream */
	uint64_t tried;                  /* bit i: replica i of lb failed */
	void *dest;                      /* of the byte at pos, where all goes; NULL: rs goes on */
	int way;                         /* 1 + counter of the last stream; 0: there was none */
	size_t node;                     /* replica of rs */
	bool renewed;                    /* fresh tokens were asked for since the last byte */
	uint64_t deadline_ns;            /* of one that does not wait: by then rs has more */
};

struct reader {
	struct dfs *fs; /* borrowed (outlives its files) */
	char *path;     /* owned */
	pthread_mutex_t lock;
	uint64_t file_id;         /* 0: not known */
	bool id_sure;             /* it is asked about by this; else by its path */
	struct known_block known; /* what a later answer must fit; */
	/* as this: the last block of which bytes were read while it was being written */
	struct known_block given;
	uint64_t tail_at, tail_gs;     /* constant once it is located: see reader_stamp() */
	uint64_t length;               /* as known; grows while the file is written */
	struct dfs_content_id content; /* when it was located first */
	bool growing;                  /* the last block is under construction */
	bool located;            /* the NameNode was asked: the next two are known and constant */
	bool striped;            /* erasure-coded */
	struct ec_policy policy; /* of its groups */
	struct ec_coder *coder;  /* owned; a spare one, or NULL */
	struct list stretches;   /* owned; few, the newest first */
	uint32_t stretch_count;
	pthread_mutex_t seq_lock;
	atomic_uint_fast64_t used_ns; /* by dfs_read(), while it has a stream; clock_mono_ns() */
	bool given_back;              /* its stream was, since then */
	bool was_long;                /* the last one could go straight to registered memory */
	bool listed;                  /* in idle_streams, by `idle` */
	struct list idle;
	uint64_t pos;
	struct fetch seq;
	struct striped *striped_seq; /* owned; the same for a striped file; NULL until used */
};

struct read_setup;
/** May @len bytes at f->pos, whose block is located, be read without a stream (small_read.h)? How,
 * into *@ret; f->node is the node. */
bool reader_small_setup(struct reader *r, struct fetch *f, size_t len, struct read_setup *ret);
/** They were. */
void reader_small_done(struct reader *r, struct fetch *f, size_t len);
/** They could not: f->node has failed with @rc. */
void reader_small_failed(struct reader *r, struct fetch *f, int rc, const struct err *err);

/* For who does not wait (read_queue.h): no other replica is tried. */
/** Begin a stream at f->pos, for bytes before @want_end of this block. */
int reader_fetch_start(struct reader *r, struct fetch *f, uint64_t want_end, struct err *err);
/** Up to @len bytes that are there; 0: none now. The stream is closed when all of it was read, and
 * when it fails. */
ssize_t reader_fetch_try(struct reader *r, struct fetch *f, void *buf, size_t len, struct err *err);
void reader_fetch_close(struct fetch *f);
/** And its block. */
void reader_fetch_forget(struct fetch *f);
/** -ENOENT, -EISDIR, -ENOTSUP, or the NameNode's errors. */
int reader_new(struct dfs *fs, const char *path, struct reader **ret, struct err *err);
/** The same with the answer of the NameNode already there, which is taken: reader_take_locations().
 */
int reader_new_from(struct dfs *fs, const char *path, struct Hd__GetBlockLocationsResponseProto *m,
		    struct reader **ret, struct err *err);
void reader_free(struct reader *r);
ssize_t reader_read(struct reader *r, void *buf, size_t len, struct err *err);
ssize_t reader_pread(struct reader *r, void *buf, size_t len, uint64_t offset, struct err *err);
int reader_seek(struct reader *r, uint64_t offset);
uint64_t reader_tell(struct reader *r);
uint64_t reader_length(struct reader *r);
void reader_content(struct reader *r, struct dfs_content_id *ret);
/** Close the streams of dfs_read(), without waiting; the next one opens others. Under seq_lock.
 *  False: not now, it would break off what others use; its nodes are asked to let go. */
bool reader_give_back(struct reader *r);
/** dfs_local_fd(). */
int reader_local_fd(struct reader *r, int *ret_fd, struct err *err);
