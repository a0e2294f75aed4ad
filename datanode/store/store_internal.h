/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * store_internal - what the files of the store share; nobody else includes this
 *
 * Volume: one data directory. Slice: one block pool on one volume, the directory fd all block paths
 * are relative to. Replica: one entry of the pool's map. Write state: what only a replica has that
 * is, or was, written or recovered.
 * Exclusive use: whoever changes files of a replica owns it: a writer (write_state->writer) or a
 * call that set `busy`. Others wait on pool->changed. So file operations run without the pool lock
 * and two of them never meet on one block id.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/statvfs.h>

#include "common/base/file_io.h"
#include "common/base/list.h"
#include "datanode/store/open_replica_cache.h"
#include "datanode/store/replica_index.h"
#include "datanode/store/replica_map.h"
#include "datanode/store/store.h"

#define STORE_VOLUMES_MAX 64
#define STORE_POOLS_MAX 16
#define STORE_WAIT_MS 10000 /* for a writer to stop, a file operation to end */
/* waiting so at one time on one volume: fewer than it has helper threads on a reactor, since a
 * writer needs one to go away */
#define STORE_WAITERS_MAX 8
/* Beside rbw/: wall clock in ms until which a block stays RBW over an orderly restart (hdfs-wire
 * 6). Java joins directory and file name with ':' here. */
#define RESTART_MARKER "rbw:.blk_%" PRId64 ".restart"
#define STORE_NAME_MAX 160 /* longest path below a slice, with NUL */
#define STORE_LAYOUT_VERSION (-57)
#define META_BPC_MAX (64u << 20)

enum place { IN_FINALIZED, IN_RBW, IN_TMP };

/* Finished blocks of a volume that are not on the disk yet (deferred_sync.c). */
struct deferred_sync {
	pthread_t thread;
	bool runs;
	pthread_mutex_t lock; /* a leaf; of all that follows */
	pthread_cond_t wake, done;
	struct list blocks; /* struct replica_writer; owned */
	atomic_uint count;  /* written under the lock */
	uint64_t due_ns;    /* of the first one */
	/* so far; @taken: by the thread, from which @synced follows */
	uint64_t added, taken, synced;
	uint64_t hurry_to; /* up to this one somebody waits */
	bool everything;   /* somebody waits for what was finished before the start, too; */
	uint64_t rounds;   /* so often it was tried, */
	bool all_old;      /* and it is on the disk */
	bool stop;
};

struct volume;

/* Something that asks a volume's disk, done by its own thread while somebody waits (volume_job.c).
 */
struct volume_job {
	/* to be begun; NULL: begun, or none */
	int (*fn)(struct volume *v, void *arg, struct err *err);
	void *arg;
	bool under_way, left; /* left: nobody waits for it any more */
	bool waited_for;
	int rc;
	struct err err;
	uint32_t seen_progress; /* the waiter's, as this: */
	uint64_t idle_ms;       /* so long it has made no progress */
};

/* Looks at a volume and probes it (volume_failure.c). */
struct check {
	pthread_t thread;
	bool runs;
	pthread_mutex_t lock; /* a leaf; of all that follows */
	pthread_cond_t wake, done;
	uint64_t asked, answered; /* probes, by number */
	struct volume_job job;
	atomic_uint progress; /* of the job */
	struct statvfs fs;    /* the file system at the last look, */
	uint64_t fs_used;     /* and what our replicas took then */
	bool stop, out;       /* out: of service, and everybody knows */
	bool told_error;      /* since then: that it answers with one; the thread's */
	/* the thread's calls on the disk have not come back since; 0: none */
	atomic_uint_fast64_t since_ns;
	atomic_uint calls, call_count;     /* of others: under way; begun and ended so far */
	atomic_uint syncs;                 /* so often something came to the disk */
	uint64_t seen_since_ns, silent_ms; /* the watcher's, as these: of the thread, */
	uint32_t seen_calls, seen_syncs;
	uint64_t stalled_ms; /* and of the calls */
};

struct volume {
	struct store *store; /* borrowed: owns us */
	uint32_t idx;
	char *path; /* owned */
	struct store_volume_opts opts;
	int dir_fd, lock_fd;
	dev_t dev; /* of the directory, */
	ino_t ino; /* as it was opened */
	enum storage_type type;
	uint64_t reserved;
	uint32_t dio_align; /* 0: O_DIRECT refused */
	/* its file system has a journal: whoever syncs a directory syncs all that was done before
	 * it */
	bool ordered;
	bool fresh;        /* no VERSION yet */
	bool opened;       /* volume_open() came back with 0; its thread's */
	atomic_bool known; /* opened, and fits the other ones: ids and the like stay as they are */
	char uuid[BLOCK_UUID_MAX], cluster_id[128], dn_uuid[BLOCK_UUID_MAX];
	pthread_t scanner, dirscanner, deleter, indexer;
	bool scanner_runs, dirscanner_runs, deleter_runs, indexer_runs;
	struct list doomed;         /* struct deletion, owned; store lock */
	pthread_cond_t doomed_cond; /* with it */
	struct deferred_sync deferred_sync;
	struct check check;
	/* its file system waits for a peer, not for this kernel's disk: FUSE, NFS, ... */
	bool remote;
	atomic_bool failed;
	atomic_uint outs;   /* how often it went out of service */
	atomic_bool silent; /* failed since it did not answer: comes back when it does */
	atomic_bool coming; /* its replicas are being loaded again */
	/* nothing has come back from it for a second: new replicas go elsewhere */
	atomic_bool slow;
	/* bytes that replicas being written may still take: a whole block each, until it ends */
	atomic_uint_fast64_t promised;
	atomic_uint writers; /* how many these are */
};

struct slice {
	struct volume *vol;                /* borrowed */
	struct block_pool *bp;             /* borrowed */
	struct list replicas;              /* struct replica; pool lock, as the next three */
	struct list walks;                 /* struct walk: walks through them that are under way */
	bool loaded;                       /* all of them were in the map at one time */
	uint64_t newest_gs;                /* stamp of one of them so far */
	uint32_t waiters;                  /* for a writer to stop, a file operation to end */
	bool empty_trash, remove_previous; /* for the deleter; store lock */
	int fd; /* <volume>/current/<pool>/current; -1: volume out of service */
	/* owned; NULL: none. Who loads it at the start uses it, after that the indexer alone */
	struct replica_index *index;
	/* when every file is to be looked at, as the index was believed; 0: it was; the same */
	uint64_t compare_ns;
	atomic_uint_fast64_t used, blocks;
};

/* Progress of a writer: a seqlock with one writer. */
struct progress {
	atomic_uint seq; /* odd while a change is under way */
	atomic_uint_fast64_t received, on_disk, acked;
	atomic_uint last_crc;
	atomic_bool final; /* all bytes are there and their CRCs in the meta file */
};

struct write_state {
	struct progress prog;
	struct replica_writer *writer; /* NULL: nobody writes */
	void (*stop)(void *arg, int why);
	void *stop_arg;
	uint64_t promised;
	uint64_t recovery_id;          /* in REPLICA_RUR */
	enum replica_state orig_state; /* before REPLICA_RUR */
	/* stamp of the last time that readable bytes were cut off; the shortest length so far. 0:
	 * never */
	uint64_t cut_gs, cut_to;
	/* its name in rbw/ is on the disk, and so may be bytes that a client has synced */
	bool dir_synced;
};

struct replica { /* all fields under the pool lock, or by its exclusive user */
	int64_t id;
	uint64_t gs, len; /* len: bytes on disk of a replica nobody writes */
	struct slice *slice;
	struct write_state *write_state;
	uint32_t refs; /* the map's and one per handle */
	uint32_t bytes_per_crc;
	uint8_t crc_type, state, place;
	bool busy, gone; /* gone: no longer in the map */
	bool moving;     /* its files are being copied to another volume */
	/* ordered: to be deleted when nobody uses it; deleting: claimed for that */
	bool ordered, deleting;
	bool corrupt;         /* found so: the NameNode is told with each full report */
	bool pinned;          /* its data file has the sticky bit: the balancer leaves it here */
	bool cached;          /* its pages are locked in memory: read by the page cache */
	struct list in_slice; /* in slice->replicas; when it was cached and is gone: in pool.gone */
};

struct block_pool {
	struct store *store; /* borrowed: owns us */
	struct store_namespace ns;
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a replica lost its exclusive user, or is gone */
	struct replica_map map;
	struct list gone; /* were cached, and nobody has been told */
	/* so often some replica was cut; under the lock, after the replica says so */
	atomic_uint_fast64_t cuts;
	struct slice slices[STORE_VOLUMES_MAX];
	bool trash_known; /* store lock */
	atomic_bool trash;
};

struct known_volumes { /* which directories this node has used: known_volumes.c */
	struct known {
		char uuid[BLOCK_UUID_MAX];
		char *path; /* owned */
	} list[STORE_VOLUMES_MAX];
	uint32_t count;
};

struct store {
	struct volume volumes[STORE_VOLUMES_MAX];
	uint32_t volume_count, failed_tolerated;
	char dn_uuid[BLOCK_UUID_MAX];
	pthread_mutex_t attach_lock; /* one attach at a time; order: attach_lock, pool lock, lock */
	pthread_mutex_t lock;        /* pools, what the deleters have to do, closing */
	pthread_rwlock_t listener_lock; /* read: a call-back runs; any order with the others */
	struct block_pool *pools[STORE_POOLS_MAX];
	uint32_t pool_count;
	struct store_listener listener;
	atomic_uint next_volume, move_count; /* moves between volumes so far */
	bool closing;
	pthread_cond_t closing_cond;
	pthread_cond_t job_cond;    /* a volume_job has ended */
	struct known_volumes known; /* what the directories say of each other; lock */
	mode_t dir_mode;
	pthread_t watcher;
	bool watcher_runs;
	/* in which a volume has to answer; 0: it may take as long as it likes */
	uint64_t answer_ms;
	uint64_t index_ms;
	bool available_space, keep_duplicates, pinning;
	struct store_scan_opts scan;
	struct open_replica_cache open_replicas;
	atomic_uint_fast64_t deferred_sync_epoch; /* see store_deferred_sync_epoch() */
};

/* ---- volume.c ---- */
/** Asks no disk. */
int volume_init(struct store *s, uint32_t idx, const struct store_volume_opts *o);
/** After volume_init(), and again after a failure. */
int volume_open(struct volume *v, struct err *err);
void volume_close(struct volume *v);
/** Open or make the pool's directories; checks its VERSION. */
int slice_open(struct slice *sl, struct err *err);
/** 0 when a file can be written, synced and read back. */
int volume_probe(const struct volume *v);
struct space {                   /* of a volume now, as a Java DataNode reckons; 0 when unknown */
	uint64_t capacity, room; /* without the reserve; for blocks, beside what is promised */
	uint64_t non_dfs;        /* taken by others, beyond the reserve */
	uint64_t used, blocks;   /* by all pools */
};
/** Asks no disk: as of the last look, and what was written and deleted since. */
void volume_space(struct volume *v, struct space *ret);
void store_make_uuid(char *buf, const char *prefix);

/* ---- storage_version.c: whose a directory is, before anything in it changes ---- */
/** Ids of the volume, or ->fresh. -EINVAL: damaged, of another layout, or an upgrade is not over.
 */
int version_read(struct volume *v, struct err *err);
/** The pool's VERSION fits the NameNode's words; a new pool gets one. */
int version_check_pool(const struct slice *sl, const char *where, struct err *err);
/** -EINVAL when it belongs to another cluster; changes nothing. */
int volume_check(const struct volume *v, const struct store_namespace *ns, struct err *err);
/** Write VERSION of a fresh volume. */
int volume_format(struct volume *v, const struct store_namespace *ns, struct err *err);

/* ---- directory_listing.c: directories of replicas ---- */
struct entry { /* one file name */
	int64_t id;
	uint64_t gs; /* of a meta file */
	bool meta;
};

struct names { /* of one directory; entries sorted: a data file, then its meta files */
	struct entry *list;
	size_t count, room;
	uint32_t *subdirs; /* numbers of subdir<n> */
	size_t sub_count, sub_room;
	uint64_t foreign;   /* names that are none of ours */
	uint64_t leftovers; /* of a stamp change that was cut short; gone by now with @settle */
	char foreign_name[64];
};

struct names_walk {
	/* complete or undo what a crash left between two names (at start only) */
	bool settle;
	/** True: what is in the directory and below it is known, and it is not listed. NULL: none
	 *  is. */
	bool (*known)(void *arg, int slice_fd, const char *dir);
	/** @dir is relative to the slice's directory, @fd is it. Non-zero ends the walk. */
	int (*see)(void *arg, int fd, const char *dir, const struct names *n);
	void *arg;
};
/** Each directory below and including @root; one that is absent is empty. */
int names_walk(int slice_fd, const char *root, const struct names_walk *w);
/** One directory: its descriptor, or -errno. names_free() also after a failure. */
int names_read(int slice_fd, const char *dir, struct names *ret);
void names_free(struct names *n);

/* ---- layout.c: names and single files ---- */
/** Directory of the block; returns its length. */
int path_dir(char buf[STORE_NAME_MAX], enum place p, int64_t id);
void path_data(char buf[STORE_NAME_MAX], enum place p, int64_t id);
void path_meta(char buf[STORE_NAME_MAX], enum place p, int64_t id, uint64_t gs);
/** Directory of the block; makes it (finalized/) when @make. */
int path_make_dir(const struct slice *sl, enum place p, int64_t id);
/** fsync of a directory, relative to the slice's. */
int path_sync(int slice_fd, const char *name);
int path_sync_dir(int slice_fd, enum place p, int64_t id);
/** Both files from one place to another, perhaps under a new stamp, such that a crash leaves a
 *  complete pair in one of them: link both, then unlink both. */
int pair_move(const struct slice *sl, int64_t id, enum place from, uint64_t gs, enum place to,
	      uint64_t new_gs);
/** The same from files of other names, relative to the slice's directory. */
int pair_move_files(const struct slice *sl, const char *data, const char *meta, int64_t id,
		    enum place to, uint64_t new_gs);
/** Data first: a meta file alone is nothing. */
int pair_unlink(int slice_fd, int64_t id, enum place p, uint64_t gs);
/** The bytes are in their place on the disk, if not yet safe from a power cut: the file system does
 *  not make a name that is given after that outlast them. */
int file_write_out(int fd);
int meta_write_header(int fd, enum crc_type type, uint32_t bpc);
/** -EBADMSG: not a meta header, or one without a type of CRC before CRCs. */
int meta_read_header(int fd, enum crc_type *ret_type, uint32_t *ret_bpc);
/** -EBADMSG: fewer CRCs than @len bytes have. For a replica that nobody writes. */
int meta_check_length(int fd, enum crc_type type, uint32_t bpc, uint64_t len);
/** Check the chunk that holds byte @new_len - 1 of a block of @len bytes against the meta file;
 *  *ret_crc is its CRC when the block ends at @new_len. -EBADMSG: data and CRC do not fit. */
int meta_cut_crc(int fd, int fd_meta, enum crc_type type, uint32_t bpc, uint64_t len,
		 uint64_t new_len, uint32_t *ret_crc);
/** Shorten a pair to @new_len and give it stamp @new_gs (also with @new_len == @len: a mere
 *  rename), crash-safe through a new meta file. */
int pair_restamp(int slice_fd, int64_t id, enum place p, uint64_t gs, uint64_t len, uint64_t new_gs,
		 uint64_t new_len);
/** A file of a replica for reading. -ENOENT also for what is no regular file: a FIFO, say, would
 * hold its reader for ever. */
int replica_file_open(int dir_fd, const char *name);
/** The same file for O_DIRECT; @fd -1 where the volume takes none, and nothing is said about it. */
void slice_open_direct(const struct slice *sl, const char *name, int flags, int *fd,
		       uint32_t *align);

/* ---- store.c ---- */
/** Wait @ms, or until the store closes: true. */
bool store_wait_closing(struct store *s, uint64_t ms);
/** Of all pools on volume @i. */
void store_used(struct store *s, uint32_t i, uint64_t *ret_bytes, uint64_t *ret_blocks);

/* ---- replica_recovery.c, block_scanner.c, directory_scanner.c: threads of a volume ---- */
void *volume_deleter(void *volume);
void *volume_scanner(void *volume);
void *volume_directory_scanner(void *volume);
/** Compare the slice with the disk once, working for @ms_per_s of each second. -errno: not all was
 *  compared. */
int slice_scan(struct slice *sl, uint32_t ms_per_s);
/** Count it, log it, tell the listener. No lock held. */
void replica_report_bad(struct block_pool *bp, const struct replica_info *info, const char *why);

/* ---- volume_failure.c ---- */
void check_init(struct volume *v);
int check_start(struct volume *v);
void check_stop(struct volume *v);
/** Out of service, for @rc: its writers are stopped, its replicas leave the map, the listener hears
 *  of it. Nothing when it is out already. */
void volume_out(struct volume *v, int rc);
/** Note how much room there is, for volume_space(). */
void volume_learn_space(struct volume *v);
/** Probe it, and wait for the result: when it is dead it is out of service then. */
void volume_suspect(struct volume *v);
/** Around calls on its disk: when none comes back for a second it is suspected. */
void volume_begin(struct volume *v);
void volume_end(struct volume *v);
/** A sync came back: slow it may be, but it answers. */
void volume_synced(struct volume *v);
/** The thread of the store that takes volumes out of service which do not answer. */
void *store_watcher(void *store);

/* ---- volume_job.c ---- */
/** Let each volume in service do @fn on its own thread; comes back when all have. The results are
 *  in volume->check.job. One that makes no progress for store->answer_ms is ->silent, its result is
 *  -ETIMEDOUT; @fn may go on with @arg there. */
void volumes_do(struct store *s, int (*fn)(struct volume *v, void *arg, struct err *err),
		void *arg);
/** After volumes_do() of a store that serves: those that did not answer are out of service. */
void volumes_out_that_hang(struct store *s);
/** @fn of volumes_do() goes on somewhere. */
bool volumes_are_busy(struct store *s);
/** In @fn: the disk answers. */
void volume_progress(struct volume *v);
/** The volume's thread, with check->lock held: do what is to be done. False: nothing is. */
bool volume_job_run(struct volume *v);

/* ---- store.c ---- */
/** Opened later than the others: does it fit them? Then its threads run. */
int volume_admit(struct volume *v, struct err *err);

/* ---- known_volumes.c: which directories this node has used ---- */
/** What the directory says of all, into store->known. For volumes_do(). */
int known_volumes_read(struct volume *v, void *arg, struct err *err);
void known_volumes_fini(struct known_volumes *k);
/** -EINVAL, with the cure: it is empty or not there, and was used before. */
int known_volumes_check(struct store *s, const char *path, struct err *err);
/** Note them all in each. Best effort. */
void known_volumes_write(struct store *s);

/* ---- deferred_sync.c ---- */
void deferred_sync_epoch_init(struct store *s);
/** All threads have stopped: notes that what was to be synced is, for those who ask after the next
 *  boot. */
void deferred_sync_note_end(struct store *s);
int deferred_sync_start(struct volume *v);
/** What is outstanding is synced first. */
void deferred_sync_stop(struct volume *v);
/** Is there room for one more? */
bool deferred_sync_may(const struct volume *v);
/** The volume is out of service: callers that wait for a sync of it get an error. */
void deferred_sync_give_up(struct volume *v);
/** Takes @w, whose files are in finalized/: on the disk within 100 ms, then freed. */
void deferred_sync_add(struct replica_writer *w);

/* ---- replica_write.c ---- */
/** Its files, too. Accepts NULL. */
void writer_free(struct replica_writer *w);
/** What was promised to its writer is free again. */
void replica_unpromise(struct replica *r);
/** Its directories, too, are the volume's: none of them is missing. */
bool replica_blames_volume(int rc);

/* ---- replica_finalize.c ---- */
/** A claimed replica whose writer is gone, and whose bytes may be in memory only: its files to
 *  finalized/, all of it on the disk. */
int replica_finalize_claimed(struct block_pool *bp, struct replica *r);

/* ---- trash.c ---- */
int pair_trash(int slice_fd, int64_t id, uint64_t gs);
void slice_empty_trash(const struct slice *sl);
void slice_remove_previous(const struct slice *sl);

/* ---- replica_indexer.c ---- */
void *volume_indexer(void *volume);
/** NULL: without an index. */
struct replica_index *slice_index_open(const struct slice *sl);
/** What changed since it was listed last, and is older than a few seconds by the clock's @wall_ns,
 *  gets a record. Returns how many, or -errno. */
int slice_index_round(struct slice *sl, uint64_t wall_ns);

/* ---- replica_load.c ---- */
/** Read the slice's directories into the pool's map. @again: the volume was out of service; what
 *  the others have of a block meanwhile stays. */
int slice_load(struct slice *sl, bool again, struct err *err);

/* ---- replica.c ---- */
uint64_t pair_bytes(const struct replica *r);
/** Add the replica to what its slice says it holds, or take it from that. */
void replica_count(const struct replica *r);
void replica_uncount(const struct replica *r);
struct replica *replica_find_locked(struct block_pool *bp, int64_t id);
/** The slice has a replica of stamp @gs, or is about to: before its files have the stamp. */
void slice_note_stamp_locked(struct slice *sl, uint64_t gs);
/** Into the map, which takes a reference. */
void replica_add_locked(struct block_pool *bp, struct replica *r);
void replica_remove_locked(struct block_pool *bp, struct replica *r);
/** STORE_GONE for those that were removed since the last call, and were cached. */
void pool_tell_gone(struct block_pool *bp);
/** Its files are on another volume now. */
void replica_set_slice_locked(struct replica *r, struct slice *sl);
#define WALK_BATCH 512 /* replicas between two calls of @rest: tens of microseconds */
struct walk {          /* private to replica.c */
	struct list link, *next;
};
/** Call @see for each replica of the slice, under the pool lock, for short times at a time; @rest
 *  (or NULL) without it in between, and at the end. What comes meanwhile is seen, too. Ends when
 *  one of them returns non-zero. @see may remove the replica. */
int slice_walk(struct slice *sl, int (*see)(void *arg, struct replica *r), int (*rest)(void *arg),
	       void *arg);
void replica_put_locked(struct block_pool *bp, struct replica *r);
int replica_need_write_state(struct replica *r);
/** An RBW found at start with a restart marker: all its bytes count as acknowledged. @last_crc: of
 * its last chunk. */
void replica_loaded_rbw(struct replica *r, uint32_t last_crc);
/** Readers who opened it while it was written take length and CRCs from the files from now on. */
void replica_set_final(struct replica *r);
/** Without the storage's name. */
void replica_brief_locked(const struct replica *r, struct block *ret_block,
			  enum replica_state *ret_state, uint64_t *ret_visible);
void replica_info_locked(const struct replica *r, struct replica_info *ret);
/** Become the exclusive user of @id: stops a writer when @stop. *ret NULL and 0: no such replica.
 *  -EBUSY after STORE_WAIT_MS. -ESTALE: its stamp is not @gs (0: any), perhaps since it was
 *  replaced while we waited; the writer of such a one is not stopped. */
int replica_claim_locked(struct block_pool *bp, int64_t id, uint64_t gs, bool stop,
			 struct replica **ret);
/** The same for one that is in nobody's hands: nobody opens its files anew without looking at the
 * map again. */
void replica_take_locked(struct block_pool *bp, struct replica *r);
void replica_release_locked(struct block_pool *bp, struct replica *r);
void store_event(struct block_pool *bp, const struct slice *sl, const struct block *b,
		 enum store_event ev, const char *hint);
/** HDFS's name of a state, of a stage. */
const char *replica_state_name(enum replica_state state);
const char *write_stage_name(enum write_stage stage);
/** The state that others see: of a replica under recovery, the state before that. */
enum replica_state replica_visible_state(const struct replica *r);
/** An errno that speaks of the disk: suspect the volume. Returns @rc. */
int slice_error(struct slice *sl, int rc);
struct progress_now {
	uint64_t received, on_disk, acked;
	uint32_t last_crc;
	bool final;
};
/** What a writer published last, all of one moment; wait-free for the writer. */
struct progress_now progress_get(struct progress *p);
void progress_set(struct progress *p, const struct progress_now *now);
/** For a wait on block_pool.changed. */
void store_deadline_in(struct timespec *ts, uint32_t ms);

/* ---- volume_choose.c ---- */
/** Room for @need bytes of @q, by preference of its storage and type; not on a volume of the set
 *  @tried. NULL: -ENOSPC in @err. */
struct slice *slice_choose_for(struct block_pool *bp, const struct write_request *q, uint64_t need,
			       uint64_t tried, struct err *err);
/** A volume of exactly that type with room, by preference @storage_uuid (or NULL); NULL: none. */
struct slice *slice_choose(struct block_pool *bp, enum storage_type type, const char *storage_uuid,
			   uint64_t need);
