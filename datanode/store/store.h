/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * store - replicas on disk, in Hadoop's layout, byte for byte
 *
 * Idea: which replicas exist, in which state, on which volume, and the few state changes that move
 * or rename files. The engine reads and writes the bytes themselves, through the file descriptors
 * that a reader or writer handle carries. A crash at any point leaves a directory that a Java
 * DataNode or this store loads without repair.
 * States: RBW, TEMPORARY -> FINALIZED; RBW -> RWR after a restart; RUR in memory only (hdfs-wire 4,
 * 6, 8).
 * Ownership: a handle (replica_writer, replica_reader) holds the replica; its file descriptors are
 * the handle's, readers' may be of several handles, and live until release, also when the replica
 * is deleted meanwhile.
 * Threading: any thread. Every function here may block on the disk: a reactor calls it through
 * reactor_offload(). Lock order: pool lock, then volume lock; no call-back is made under a lock.
 * The progress of a writer is published by replica_publish(), which is wait-free and may be called
 * on a reactor.
 * Source: hdfs-wire 5.5 (stages), 6 (layout), 8.4 (recovery); Hadoop 3.4.2 layout version -57.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/block.h"
#include "common/base/conf.h"
#include "common/base/crc.h"
#include "common/base/err.h"
#include "common/base/list.h"

struct store;
struct block_pool; /* one namespace's replicas on all volumes */

/* ---- start and end ---- */

/** Which counts: @reserved, the percentage, the larger or the smaller of both. */
enum store_reserve {
	STORE_RESERVE_BYTES,
	STORE_RESERVE_PERCENT,
	STORE_RESERVE_LARGER,
	STORE_RESERVE_SMALLER
};

struct store_volume_opts {
	const char *path; /* directory; made (0700) when missing */
	enum storage_type type;
	uint64_t reserved;     /* bytes never used for blocks */
	uint32_t reserved_pct; /* a part of the file system, when @reserve says so */
	enum store_reserve reserve;
};

struct store_scan_opts {             /* 0: off */
	uint64_t directory_ms;       /* from one comparison of disk and memory to the next */
	uint32_t directory_ms_per_s; /* of each second that it may work */
	uint64_t block_ms;           /* in which every replica is read once */
	uint64_t block_rate;         /* bytes per second and volume that this reads */
	uint64_t cursor_save_ms;
};

struct store_opts {
	const struct store_volume_opts *volumes;
	uint32_t volume_count;
	uint32_t failed_tolerated; /* dfs.datanode.failed.volumes.tolerated */
	uint32_t dir_mode;         /* of the directories; 0: as they are, 0700 for new ones */
	bool available_space;      /* the emptiest directories first, else all take turns */
	bool pinning;              /* dfs.datanode.block-pinning.enabled */
	bool keep_duplicates;      /* both replicas of a block that is there twice */
	uint64_t answer_ms;        /* dfs.datanode.disk.check.timeout; 0: none */
	/* whose files stay open for the next reader; 0: none. See open_replica_cache.h */
	uint32_t open_replicas;
	/* dfs.rdma.replica.index.interval; 0: no index of replicas */
	uint64_t index_ms;
	struct store_scan_opts scan;
};

/** What the NameNode says in versionRequest (NamespaceInfoProto). */
struct store_namespace {
	char pool_id[BLOCK_POOL_ID_MAX];
	char cluster_id[128];
	uint32_t namespace_id;
	uint64_t ctime;
};

/** Lock every directory (in_use.lock) and read its VERSION. -EBUSY: in use, by whom; -EINVAL: not
 *  a data directory or a newer layout; -EIO...; fails only when more volumes fail than tolerated.
 */
int store_open(const struct store_opts *o, struct store **ret, struct err *err);
/** A volume does not answer: a call on it may not come back, and store_close() neither. */
bool store_is_stuck(const struct store *s);
/** It is in service, and calls on it come back. */
bool store_volume_answers(const struct store *s, uint32_t volume);
/** For the end of a process with such a store, whose calls are left as they are: what is finished
 *  on the other volumes is synced, and their locks go. */
void store_abandon(struct store *s);
/** Every handle released. Removes the locks. Accepts NULL. */
void store_close(struct store *s);
/** Same in all volumes; "" before the first attach of a fresh store (then one is made up). */
const char *store_datanode_uuid(const struct store *s);

/** Format fresh volumes for this cluster or check that they belong to it, then load the replicas.
 *  -EINVAL: directories of another cluster (both ids in @err); nothing is changed then. */
int store_attach(struct store *s, const struct store_namespace *ns, struct block_pool **ret,
		 struct err *err);
/** The attached pool of that id, or NULL. */
struct block_pool *store_pool(struct store *s, const char *id);
const char *pool_id(const struct block_pool *bp);
struct store *pool_store(const struct block_pool *bp);

/* ---- events, for the NameNode's incremental reports ---- */
enum store_event { /* wire values, but for STORE_LEFT and STORE_GONE */
		   /* its writer is gone: that it is being received need not be told any more */
		   STORE_LEFT = 0,
		   STORE_RECEIVING = 1,
		   STORE_RECEIVED = 2,
		   STORE_DELETED = 3,
		   /* for the cache: a replica that replica_set_cached() said to be cached goes, in
		    * whichever way: at once when its deletion is ordered, and within a quarter of
		    * a second of having left the store. May come twice, and beside another */
		   STORE_GONE = 4,
};
struct store_listener {
	/** Any thread, no lock held. @hint: datanode uuid or NULL. */
	void (*on_block)(void *arg, struct block_pool *bp, const char *storage_uuid,
			 const struct block *b, enum store_event ev, const char *hint);
	void (*on_bad)(void *arg, struct block_pool *bp, const char *storage_uuid,
		       const struct block *b);
	/** A volume went out of service; its replicas are gone from the reports. */
	void (*on_volume_failed)(void *arg, uint32_t volume, const char *path, const char *reason);
	/** One that did not answer does again; its replicas are in the reports. NULL: not asked
	 * for. */
	void (*on_volume_back)(void *arg, const char *path);
	void *arg;
};
/** Waits for call-backs that run: hold no lock that they take. NULL: none. */
void store_set_listener(struct store *s, const struct store_listener *l);

/* ---- writing ---- */

enum write_stage { /* BlockConstructionStage of OpWriteBlockProto, wire values */
		   STAGE_APPEND = 0,
		   STAGE_APPEND_RECOVERY = 1,
		   STAGE_STREAMING = 2,
		   STAGE_STREAMING_RECOVERY = 3,
		   STAGE_CLOSE = 4,
		   STAGE_CLOSE_RECOVERY = 5,
		   STAGE_CREATE = 6,
		   STAGE_TRANSFER_RBW = 7,
		   STAGE_TRANSFER_FINALIZED = 8,
};

struct write_request {
	struct block block; /* len = the file's block size, as the client says */
	enum write_stage stage;
	bool from_client; /* clientName set: RBW; else TEMPORARY */
	uint64_t new_gs;  /* latestGenerationStamp */
	uint64_t min_bytes, max_bytes;
	enum crc_type crc_type; /* requested; an existing replica keeps its own */
	uint32_t bytes_per_crc;
	enum storage_type storage_type;
	const char *storage_uuid; /* preferred volume or NULL */
	uint32_t volume;          /* private, as these: what replica_write_volume() said last; */
	bool chosen, clears;      /* it said a volume; an older replica on that one is to go */
	uint64_t tried;           /* volumes that cannot take it, a bit each */
	bool pin;                 /* the client wants it on this node: see replica_is_pinned() */
	/* The writer is to go: -ECANCELED: a recovery wants it; -EIO: its volume is out of service.
	 * Any thread, under the pool lock: post to the reactor, call nothing of the store. */
	void (*stop)(void *arg, int why);
	void *stop_arg;
};

struct replica_writer {
	struct block_pool *bp;
	struct block block; /* gs as it is now */
	char storage_uuid[BLOCK_UUID_MAX];
	uint64_t start_len; /* bytes already there (append, recovery) */
	enum crc_type crc_type;
	uint32_t bytes_per_crc;
	int fd;             /* buffered; always valid */
	int fd_direct;      /* O_DIRECT on the same file, or -1 where the file system refuses */
	int fd_meta;        /* header written; CRC of chunk i at 7 + 4 * i */
	uint32_t volume;    /* its number */
	uint32_t dio_align; /* offset, length and memory alignment of fd_direct */
	bool pin;           /* private: replica_finalize() pins it */
	struct replica *replica; /* private */
	struct slice *slice;     /* private, as these: finished, and waits for its sync */
	struct list deferred_link;
	int deferred_sync_rc;
};

#define REPLICA_ELSEWHERE 1
/** The volume that the replica is on, is to be made on, or has an older replica that must go first:
 *  replica_write_open() waits for that disk alone, so it is called on a thread of that volume.
 *  STORE_VOLUME_ANY: for none. Asks no disk. */
uint32_t replica_write_volume(struct block_pool *bp, struct write_request *q);
/** Prepare the replica as the table of hdfs-wire 5.5 says and become its writer. -EEXIST, -ENOENT,
 *  -EINVAL (length or stamp does not fit), -ENOSPC (with free and asked bytes), -EBUSY (another
 *  writer did not stop in time), -EIO. STAGE_CLOSE_RECOVERY finalises and gives no writer (NULL).
 *  REPLICA_ELSEWHERE: to be called again, on a thread of the volume that replica_write_volume()
 *  says now; never without a replica_write_volume() before it, or after STORE_VOLUME_ANY: then all
 *  of it is done on this thread. */
int replica_write_open(struct block_pool *bp, struct write_request *q, struct replica_writer **ret,
		       struct err *err);
/** How far bytes are received, in the file (and their CRCs in the meta file), and acknowledged by
 *  all (visible); the CRC of the last, partial chunk of the visible bytes. Wait-free, one writer.
 */
void replica_publish(struct replica_writer *w, uint64_t received, uint64_t on_disk, uint64_t acked,
		     uint32_t last_crc);
/** After a crash so much of the end of a replica that was being written is read: what the direct
 *  writes under way of one block may span. They may come to the disk in any order. */
#define STORE_TAIL_BYTES (2u << 20)
/** Around a write of bytes or CRCs to its files: one that does not come back has the volume
 * suspected. */
void replica_write_begin(struct replica_writer *w);
void replica_write_end(struct replica_writer *w);
/** The node restarts: a replica in rbw/ that is still there at its next start before @until_ms
 *  (wall clock) goes on as RBW, for the client that waits. As a Java DataNode does; a failure only
 *  means that the client goes on without this node. */
void replica_mark_restart(struct replica_writer *w, uint64_t until_ms);
/** For hsync, after data and meta: the directory entry on disk. Free after the first time. */
int replica_sync_dir(struct replica_writer *w);
enum replica_sync { /* data, meta and directory are on the disk */
		    SYNC_NEVER,
		    SYNC_LATER, /* within 100 ms, or when store_sync_deferred() returns */
		    SYNC_NOW,   /* before it returns */
};
/** Close files, check the length, move to finalized/, report RECEIVED. Releases the writer, also on
 * failure. */
int replica_finalize(struct replica_writer *w, uint64_t len, enum replica_sync sync,
		     const char *hint, struct err *err);
/** The epoch of syncs, never 0. A caller takes it before it finishes a block with SYNC_LATER, and
 *  asks store_sync_deferred() with it. */
uint64_t store_deferred_sync_epoch(const struct store *s);
/** 0: all blocks finished with SYNC_LATER before this call are on the disk. -EIO: some block
 *  finished since @epoch was taken is not, and will not be. An epoch from before the node's start
 *  asks for all blocks finished before the start; one from before the machine's is -EIO, unless the
 *  process that gave it ended when it had synced all. */
int store_sync_deferred(struct store *s, uint64_t epoch);
/** The writer goes away without finalising: an RBW stays for recovery, a TEMPORARY is deleted;
 *  TRANSFER_RBW turns into RBW, on the disk, by @keep_as_rbw. -errno: of the disk, and such a copy
 *  may be deleted. */
int replica_write_close(struct replica_writer *w, bool keep_as_rbw);

/* ---- reading ---- */
/* bytes: shorter replicas have no fd_direct, since shorter reads go through the page cache */
#define STORE_DIRECT_MIN 65536
struct replica_reader {
	struct block_pool *bp;
	struct block block; /* len = readable length at this moment */
	enum replica_state state;
	char storage_uuid[BLOCK_UUID_MAX];
	enum crc_type crc_type;
	uint32_t bytes_per_crc;
	int fd, fd_direct, fd_meta; /* fd_direct -1: short or not to be had; fd_meta -1: no CRCs */
	uint32_t dio_align;
	uint32_t volume; /* its number */
	/* its file system (FUSE, NFS, ...) may block who submits a request without waiting */
	bool remote;
	bool partial; /* being written */
	/* CRC of the last chunk, when that is not whole, comes from here, matching */
	bool crc_held;
	/* block.len: in the meta file it is that of more bytes as soon as these are written */
	uint32_t partial_crc;
	/* pages locked in memory (replica_set_cached()): fd_direct is -1 */
	bool locked;
	/* the replica was cut since it had the stamp that was asked for: what follows was written
	 * later. UINT64_MAX: it was not */
	uint64_t cut_to;
	/* private: cuts in the pool that were looked at; bytes that none since the opening has
	 * taken */
	uint64_t cuts, intact;
	struct replica *replica; /* private */
	/* private: whose the descriptors are; NULL: the handle's own */
	struct open_replica_files *files;
	bool lent; /* private: the memory is the caller's */
};
/** @b: id, and gs at least b->gs (BLOCK_GS_ANY: any). -ENOENT, -ESTALE (older stamp), -EIO. */
int replica_read_open(struct block_pool *bp, const struct block *b, struct replica_reader **ret,
		      struct err *err);
void replica_read_close(struct replica_reader *r);
/** Around a read of its files that is nobody else's to watch: one that does not come back has the
 *  volume suspected. */
void replica_read_begin(struct replica_reader *r);
void replica_read_end(struct replica_reader *r);
/** Bytes before @end were cut off since it was opened. Asked after they were read from the files:
 *  then they may be others than its stamp says. For reactors: takes a lock only when some replica
 *  of the pool was cut since it was asked last. The mark is in memory: a restart forgets it, and a
 *  copy on another node does not have it. */
bool replica_read_is_cut(struct replica_reader *r, uint64_t end);
/** For who gives the files away: those of a finalized replica, opened for this handle alone, since
 *  whoever has an open file moves its position and sets its flags for all who have it. fd_direct is
 *  -1, and fd_meta is there also without CRCs.
 *  -ENOTSUP: it is being written, or was cut since it had the stamp that is asked for. */
int replica_read_open_own(struct block_pool *bp, const struct block *b, struct replica_reader **ret,
			  struct err *err);
/** For reactors: as replica_read_open() where the files are open already, else -EAGAIN: that one is
 *  to be called on a helper thread. Takes no lock that is held over a system call, and no memory:
 *  the handle is *room, the caller's until it is closed, in whichever way. */
int replica_read_open_now(struct block_pool *bp, const struct block *b,
			  struct replica_reader *room);
/** For reactors: as replica_read_close() where that closes no file; else false, and nothing is
 * done. */
bool replica_read_close_now(struct replica_reader *r);
/** Its pages are locked in memory, or no longer: readers go by the page cache. False: there is no
 *  such replica, or it is being deleted; else STORE_GONE follows one that is cached when it goes.
 */
bool replica_set_cached(struct block_pool *bp, int64_t id, bool cached);
/** Fresh visible length and partial CRC of a replica being written; reads a file. -ESTALE: it is
 *  another one by now, and to be opened again. */
int replica_read_refresh(struct replica_reader *r, struct err *err);
/** The balancer is to leave it here: the client named this node as favoured, and
 *  dfs.datanode.block-pinning.enabled is set. As Java does it is the sticky bit of the data file.
 *  Asks no disk; unknown ids are not pinned. */
bool replica_is_pinned(struct block_pool *bp, int64_t id);
/** A CRC failed: verified against the disk once more, then reported through on_bad(). */
void replica_suspect(struct block_pool *bp, const struct block *b);

/* ---- state ---- */
struct replica_info {
	struct block block; /* len = bytes on disk */
	enum replica_state state;
	uint64_t visible; /* acked bytes */
	bool corrupt;     /* found so, and reported: of store_each() alone */
	char storage_uuid[BLOCK_UUID_MAX];
};
int replica_get(struct block_pool *bp, int64_t id, struct replica_info *ret);
#define STORE_VOLUME_ANY UINT32_MAX
/** The number of the volume that a replica is on: blocking calls about it wait for that disk alone.
 *  STORE_VOLUME_ANY: an unknown id, or a volume out of service. Asks no disk. */
uint32_t replica_volume(struct block_pool *bp, int64_t id);
/** Delete on an exact match of id and stamp, in the background; reports DELETED unless @quiet. Its
 *  volume's own thread stops a writer; one that is in use for too long stays. Waits for nothing.
 *  -ENOENT, -ESTALE, -ENOMEM. */
int replica_invalidate(struct block_pool *bp, const struct block *b, bool quiet);
struct replica_way { /* numbers of volumes */
	uint32_t from, to;
};
/** Where a move of a finalized replica to a volume of @type, by preference @storage_uuid ("" or
 *  NULL: any), would go. Asks no disk. @b: stamp and length must fit. -EEXIST: it is on that type
 *  already; -ENOENT, -ESTALE, -EINVAL (length), -EBUSY,
 *  -ENOSPC. */
int replica_move_way(struct block_pool *bp, const struct block *b, enum storage_type type,
		     const char *storage_uuid, struct replica_way *ret, struct err *err);
/** Move it so; reports RECEIVED there. Copies, so it takes long; the replica stays readable. The
 *  same errors, and -EIO: it stays where it is. */
int replica_move(struct block_pool *bp, const struct block *b, const struct replica_way *way,
		 struct err *err);
/** Block recovery (hdfs-wire 8.4). -ENOENT: no such replica; -EIO: nor is there, but a directory is
 *  out of service; -EBUSY: recovery of an equal or newer id runs, or, with REPLICA_WRITER_STAYS in
 *  the text, its writer does not end; -ENODATA: its stamp is older than the block's; -ESTALE: newer
 *  than the recovery's. @ret: the original state, stamp and length. */
#define REPLICA_WRITER_STAYS "its writer did not stop" /* the primary may ask again */
int replica_init_recovery(struct block_pool *bp, const struct block *b, uint64_t recovery_id,
			  struct replica_info *ret, struct err *err);
int replica_update_recovery(struct block_pool *bp, const struct block *b, uint64_t recovery_id,
			    uint64_t new_len, int64_t new_block_id, char *ret_storage_uuid,
			    struct err *err);

/** The NameNode finalised an upgrade: what a Java DataNode left in <pool>/previous goes. */
void store_finalize_upgrade(struct block_pool *bp);
/** A rolling upgrade is under way: deleted finalized replicas go to <pool>/trash. Off: the trash is
 *  emptied in the background. Cheap when nothing changes. */
void store_set_trash(struct block_pool *bp, bool on);

/* ---- reports ---- */
struct storage_info {
	char uuid[BLOCK_UUID_MAX];
	char path[4096];
	enum storage_type type;
	bool failed;
	uint64_t capacity, used, remaining, non_dfs_used, pool_used;
	uint64_t reserved, promised; /* not for blocks; kept for replicas being written */
	uint64_t blocks;             /* of all pools */
};
uint32_t store_volume_count(const struct store *s);
uint32_t store_failed_count(const struct store *s);
/** @bp NULL: pool_used is 0. */
void store_volume_info(struct store *s, uint32_t i, struct block_pool *bp,
		       struct storage_info *ret);
/** Call @fn for each replica to be reported (FINALIZED, RBW, RWR; RUR in its original state) of
 *  volume @i, no lock held; what comes or goes meanwhile is seen or not. Stops when it returns
 *  non-zero. Takes as long as the volume has replicas, whatever the others have. */
int store_each(struct block_pool *bp, uint32_t i, int (*fn)(void *arg, const struct replica_info *),
	       void *arg);
/** What a read or write on a volume says when the disk itself is in trouble: see
 * store_volume_suspect(). */
bool store_is_disk_error(int rc);
/** An I/O error on a path of this volume: probe it and take it out of service when it is dead. */
void store_volume_suspect(struct store *s, const char *storage_uuid);
