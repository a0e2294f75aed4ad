/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DFSCLIENT_EXT_H
#define DFSCLIENT_EXT_H

/**
 * dfsclient_ext - calls of libdfsclient that our own mount and tools need
 *
 * Idea: dfsclient.h is for every program, and what it declares stays. The calls here serve
 * dfs-fuse, dfs, dfs-bench and the tests. They may change or go with any release: a program that
 * uses them must be built against the release that it runs with.
 * Ownership, threading, errors ([NN], [DN]), paths and units are as in dfsclient.h.
 */
#include "dfsclient.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- files whose changes need not be on disk at once ---- */

/* Further flags of struct dfs_create_opts, beside enum dfs_create_flags. */

/** bytes follow soon: the NameNode gives the first block in the same call, if it knows how
 * (ours does). This saves one call and one wait for the NameNode's disk */
#define DFS_CREATE_FIRST_BLOCK 8

/** dfs_create() does not wait for the NameNode's disk, if the NameNode knows how (ours
 * does). A crash of the NameNode's machine may undo the creation, until the first
 * dfs_hsync() or dfs_close() of the file, or dfs_sync_early(). A kill of the NameNode
 * does not undo it, and what was closed or hsynced is safe. After an undone creation the
 * next of these calls about the file fails with -ESTALE. The flag has no effect with
 * DFS_CREATE_OVERWRITE of a file that exists, nor for striped files: these are on disk
 * before dfs_create() returns */
#define DFS_CREATE_EARLY 16

/** dfs_close() does not wait for disks.
 * The NameNode's: a crash of its machine may undo the close, and with DFS_CREATE_EARLY the
 * creation, until dfs_sync_early(), or until anybody's next change, or for 100 ms. A kill
 * of the NameNode does not. When the file is open again after a crash, this handle closes
 * it once more within seconds after the NameNode is back; when the file is gone, the next
 * dfs_sync_early() says so.
 * The data nodes' (ours, by TCP), for the last block, unless some of it was hsynced: a
 * crash of a data node's machine may lose its replica, until dfs_sync_early() or for
 * 100 ms. A kill of the data node does not.
 * The flag has no effect for striped files; on the NameNode it has none either when a first
 * block was given and never used */
#define DFS_CREATE_CLOSE_EARLY 32

/**
 * Wait until everything early is on disk. When it returns 0:
 * - the names of all files that anybody created with DFS_CREATE_EARLY before this call are on the
 *   NameNode's disk;
 * - all files that this handle closed with DFS_CREATE_CLOSE_EARLY are closed there, and their bytes
 *   are on the disk of every data node that can be reached, at least one for each file.
 * It costs one call to the NameNode, which changes nothing unless the NameNode has crashed
 * meanwhile, and one to each of these data nodes.
 * Fails with [NN]; -ETIMEDOUT, -ECONNREFUSED, ... no data node that has one of the files can be
 * reached: every call says so until one can, for ten minutes; -EIO, said once: a data node could
 * not write a file to its disk; -ESTALE, said once: a closed file is gone, because a crash has
 * undone its creation (or somebody has deleted it right before or after a crash).
 */
DFS_API int dfs_sync_early(struct dfs *fs, struct dfs_err *err);
/** dfs_sync_early() of one file, @id (dfs_stat.file_id), if this handle has closed it. Nodes that
 *  have only other files are not asked. Losses of other files are kept for later calls. Also fails
 *  with -EINVAL: @id is 0. */
DFS_API int dfs_sync_early_file(struct dfs *fs, uint64_t id, struct dfs_err *err);
/** dfs_sync_early() in the background of a program, when nobody waits for the outcome: data nodes
 *  have two seconds to answer, and an error that is said once is kept for the next call of any of
 *  these three. */
DFS_API int dfs_try_sync_early(struct dfs *fs, struct dfs_err *err);
/** The data nodes' part of dfs_sync_early(), as far as they answer within two seconds. Nodes that
 *  do not answer are not asked again by this call. Call it before you replace a file with one that
 *  was closed early. */
DFS_API void dfs_sync_early_blocks(struct dfs *fs);
/** dfs_sync_early_blocks() of file @id alone (0: of all), within @patience_ms. */
DFS_API void dfs_sync_early_blocks_within(struct dfs *fs, uint64_t id, uint32_t patience_ms);

/* ---- the bytes of a file ---- */

/**
 * dfs_write() of bytes that are not copied: @buf must not change until the library calls
 * @done(@arg). It calls it exactly once, whatever this call returns: in this call, in a later one
 * of the same file, or in dfs_close(); on a thread of the caller's or of the library, with a lock
 * of the file held, so @done must not call the library. Some bytes are copied all the same: small
 * pieces; the ends of pieces that do not fit the checksums (a file that is written only in pieces
 * of a multiple of 512 bytes has none); everything in erasure-coded files; and where blocks go by
 * RDMA, all that does not lie in registered memory (dfs_buf_alloc(), dfs_mem_register(), which says
 * what happens when bytes change too early). It pays from some 100 KiB on. Fails as dfs_write().
 */
DFS_API ssize_t dfs_write_lent(struct dfs_file *f, const void *buf, size_t len,
			       void (*done)(void *arg), void *arg, struct dfs_err *err);

/** Which content a file had when dfs_open() found it. Two equal ids of one file
 *  (dfs_stat.file_id) mean the same bytes, whatever the times say. All fields of an empty file's
 *  id are 0. */
struct dfs_content_id {
	int64_t block; /* id of the last one */
	uint64_t generation;
	uint64_t length;
};

/** The id of @f, which is open for reading (else all fields are 0). No failure. */
DFS_API void dfs_get_content_id(struct dfs_file *f, struct dfs_content_id *ret);

/**
 * A descriptor of the local file that holds all bytes of @f: read-only, close on exec; the caller
 * closes it. It exists when short-circuit reads are on (dfs.client.read.shortcircuit), and @f is
 * open for reading, closed in the cluster, and one block, of which this machine's data node has a
 * replica. Nobody verifies checksums of what is read this way, nor reports damage. The bytes stay
 * when @f is replaced, appended to or deleted; a truncate within the block shows.
 * Fails with -ENOTSUP: there is no such file; -EMFILE.
 */
DFS_API int dfs_local_fd(struct dfs_file *f, int *ret_fd, struct dfs_err *err);

/** The file that dfs_replace_blocks() changes, as the caller saw it, and its new blocks. */
struct dfs_replace {
	size_t size;                   /* sizeof(struct dfs_replace) */
	uint64_t file_id;              /* dfs_stat.file_id */
	struct dfs_content_id content; /* dfs_get_content_id() */
	const char *part;              /* the file with the new blocks */
	const uint32_t *place; /* where each of its blocks goes, counted from 0, ascending */
	uint32_t places;       /* how many blocks it has: all are used */
	/* how many blocks the result has; in the other places the file keeps its own */
	uint32_t blocks;
};
/**
 * Give a file new blocks in some places, in one step. @part lies in the file's directory. It takes
 * over the file's name, owner, mode, access control list, attributes, policy and other blocks; no
 * byte is copied. As after a rename over it, the file then has the id of @part, and a reader of the
 * old file may find that it is gone. The caller must own @part and may write the file. Both must be
 * closed, not erasure-coded, of the same block size and replication, with all blocks but the last
 * one full. All or nothing; only our NameNode has this call.
 * Fails with [NN]; -ENOSYS the NameNode does not know it; -ENOENT one of the two does not exist;
 * -ESTALE the file is not as the caller saw it any more; -EBUSY it is being written; -EOPNOTSUPP
 * erasure-coded, or a block within it is not full; -EINVAL another of these conditions does not
 * hold.
 */
DFS_API int dfs_replace_blocks(struct dfs *fs, const char *path, const struct dfs_replace *r,
			       struct dfs_err *err);

/** What Hadoop says of the bytes of a file (FileSystem.getFileChecksum). */
struct dfs_checksum {
	/* "MD5-of-0MD5-of-512CRC32C", "COMPOSITE-CRC32C"; "NONE": the file has CRCs of two kinds,
	 * or none */
	char algorithm[64];
	size_t len;        /* of bytes: 28, 4, 0 */
	uint8_t bytes[32]; /* as FileChecksum.getBytes() */
	uint64_t reserved[4];
};

/**
 * The checksum of a file, out of those that data nodes have of its blocks; no byte of it is read.
 * That of MD5s depends on the sizes of blocks and chunks; @composite does not, and is the same for
 * a replicated and an erasure-coded file of the same bytes. An empty file has the one of MD5s.
 * Fails with [NN]; -EISDIR; -EBUSY somebody is writing it; -EIO, or what a data node says, when no
 * node gives that of a block; -EINVAL its blocks do not go together.
 */
DFS_API int dfs_get_checksum(struct dfs *fs, const char *path, bool composite,
			     struct dfs_checksum *ret, struct dfs_err *err);

/* ---- the cluster ---- */

/** Is the server a router over several name spaces (Router-based federation)? There
 *  dfs_stat.file_id is not unique, and a path "/.reserved/.inodes/ID" may name a file of another
 *  name space. The handle asks the server once. Fails with [NN], and the answer is not known then;
 *  -EACCES hadoop-policy.xml does not let this user ask (security.ha.service.protocol.acl). */
DFS_API int dfs_is_router(struct dfs *fs, bool *ret, struct dfs_err *err);

enum dfs_safe_mode { /* numbers of the wire */
		     DFS_SAFE_MODE_LEAVE = 1,
		     DFS_SAFE_MODE_ENTER = 2,
		     DFS_SAFE_MODE_GET = 3,
		     DFS_SAFE_MODE_FORCE_EXIT = 4, /* also when blocks would be lost */
};

/** Ask for or change the safe mode of the NameNode; *@ret_on: it is on after the call. Fails with
 *  [NN]; -EACCES to change it, unless superuser. */
DFS_API int dfs_safe_mode(struct dfs *fs, enum dfs_safe_mode action, bool *ret_on,
			  struct dfs_err *err);
/** Let the NameNode read its lists of admitted and excluded data nodes again. Fails with [NN]. */
DFS_API int dfs_refresh_nodes(struct dfs *fs, struct dfs_err *err);

/** How many bytes a second each live data node may spend on balancing from now on, until it starts
 *  again (dfs.datanode.balance.bandwidthPerSec). It hears of it with its next heartbeat. Fails with
 *  [NN]; -EACCES unless superuser; -EINVAL beyond INT64_MAX. */
DFS_API int dfs_set_balancer_bandwidth(struct dfs *fs, uint64_t bytes, struct dfs_err *err);

struct dfs_open_file {
	const char *path, *client, *machine; /* of the writer */
	int64_t id;
};

struct dfs_open_files {
	size_t count;
	const struct dfs_open_file *file; /* count of them, by id */
	bool more;                        /* there are files behind the last id */
};

/** Files below @path that are being written: a page of those with an id above @after (at first 0).
 *  Fails with [NN]; -EACCES unless superuser. Free with dfs_open_files_free(). */
DFS_API int dfs_open_files(struct dfs *fs, const char *path, int64_t after,
			   struct dfs_open_files **ret, struct dfs_err *err);
DFS_API void dfs_open_files_free(struct dfs_open_files *f);

/* ---- centralised caching: what data nodes keep in memory ---- */

/* What is not given is NULL or -1. */
struct dfs_cache_pool {
	const char *name, *owner, *group;
	int32_t mode;        /* permission bits */
	int32_t replication; /* of directives that give none */
	int64_t limit;       /* bytes; INT64_MAX: unlimited */
	int64_t max_ttl_ms;  /* of directives; INT64_MAX / 4: for ever */
	uint64_t reserved[4];
};

struct dfs_cache_directive {
	int64_t id;
	const char *path, *pool;
	int32_t replication;
	int64_t ttl_ms;     /* when it is given: milliseconds from then on */
	int64_t expires_ms; /* when it is listed: time of day */
	bool has_expired;   /* when it is listed */
	uint64_t reserved[4];
};

/* Of a pool or directive; bytes times replication. */
struct dfs_cache_use {
	int64_t bytes_needed, bytes_cached, bytes_over, files_needed, files_cached;
	uint64_t reserved[4];
};

typedef void dfs_cache_pool_fn(void *arg, const struct dfs_cache_pool *p,
			       const struct dfs_cache_use *u);
typedef void dfs_cache_directive_fn(void *arg, const struct dfs_cache_directive *d,
				    const struct dfs_cache_use *u);

/** These three fail with [NN]; -EACCES unless superuser; -EREMOTEIO with the NameNode's words: the
 *  pool is there already, or is not there, or a value is refused. A pool takes its directives
 *  along. */
DFS_API int dfs_add_cache_pool(struct dfs *fs, const struct dfs_cache_pool *pool,
			       struct dfs_err *err);
DFS_API int dfs_modify_cache_pool(struct dfs *fs, const struct dfs_cache_pool *pool,
				  struct dfs_err *err);
DFS_API int dfs_remove_cache_pool(struct dfs *fs, const char *name, struct dfs_err *err);
/** @tell each pool, in the order of names; of those that the caller may not read, the name. Fails
 *  with [NN]. */
DFS_API int dfs_list_cache_pools(struct dfs *fs, dfs_cache_pool_fn *tell, void *arg,
				 struct dfs_err *err);
/** A file, or the files of a directory, are to be cached. @force: over the limit of the pool, too.
 *  Fails with [NN]; -EACCES the pool may not be written; -EREMOTEIO with the NameNode's words. */
DFS_API int dfs_add_cache_directive(struct dfs *fs, const struct dfs_cache_directive *d, bool force,
				    int64_t *ret_id, struct dfs_err *err);
/** What @d gives is changed in the directive of its id. Fails as the one above. */
DFS_API int dfs_modify_cache_directive(struct dfs *fs, const struct dfs_cache_directive *d,
				       bool force, struct dfs_err *err);
/** Fails as those above. */
DFS_API int dfs_remove_cache_directive(struct dfs *fs, int64_t id, struct dfs_err *err);
/** @tell each directive that the caller may see and that has what @filter gives (id, path, pool),
 *  by id. Fails with [NN]; -EREMOTEIO no directive has this id. */
DFS_API int dfs_list_cache_directives(struct dfs *fs, const struct dfs_cache_directive *filter,
				      dfs_cache_directive_fn *tell, void *arg, struct dfs_err *err);

/* ---- erasure coding: policies, and what is wrong with a file ---- */

enum dfs_ec_state { /* numbers of the wire */
		    DFS_EC_DISABLED = 1,
		    DFS_EC_ENABLED = 2,
		    DFS_EC_REMOVED = 3, /* its files can still be read */
};

struct dfs_ec_policy {
	char name[64];  /* "RS-6-3-1024k" */
	char codec[32]; /* "rs", "xor", "rs-legacy" */
	uint32_t data_units, parity_units;
	uint32_t cell_size; /* bytes */
	uint32_t id;
	enum dfs_ec_state state;
	uint64_t reserved[4];
};

struct dfs_ec_policies {
	size_t count;
	const struct dfs_ec_policy *policy; /* count of them */
};

/** All policies that the NameNode knows. Fails with [NN]. Free with dfs_ec_policies_free(). */
DFS_API int dfs_ec_policies(struct dfs *fs, struct dfs_ec_policies **ret, struct dfs_err *err);
DFS_API void dfs_ec_policies_free(struct dfs_ec_policies *p);
/** The policy of a file, or the one that new files in a directory get. Returns 1 and the policy in
 *  *@ret, or 0: they are replicated. Fails with [NN]; -ENOENT. */
DFS_API int dfs_get_ec_policy(struct dfs *fs, const char *path, struct dfs_ec_policy *ret,
			      struct dfs_err *err);
/** New files in the directory @path get @policy (NULL: the NameNode's default; "replication":
 *  none). Existing files stay as they are. Fails with [NN]; -ENOENT; -EINVAL the policy is not
 *  enabled; -EREMOTEIO @path is a file. */
DFS_API int dfs_set_ec_policy(struct dfs *fs, const char *path, const char *policy,
			      struct dfs_err *err);
/** Remove the directory's own policy; that of a directory above holds again. Fails with [NN];
 *  -ENOENT; -EREMOTEIO @path is a file, or has no policy of its own. */
DFS_API int dfs_unset_ec_policy(struct dfs *fs, const char *path, struct dfs_err *err);
/** Both fail with [NN]; -EINVAL no such policy; -EACCES unless superuser. */
DFS_API int dfs_enable_ec_policy(struct dfs *fs, const char *policy, struct dfs_err *err);
DFS_API int dfs_disable_ec_policy(struct dfs *fs, const char *policy, struct dfs_err *err);
/** HDFS's own policies cannot be removed. Fails as the two above; -EREMOTEIO. */
DFS_API int dfs_remove_ec_policy(struct dfs *fs, const char *policy, struct dfs_err *err);
/** Make a policy known to the NameNode; it begins disabled. *@ret is the policy as the NameNode has
 *  it now, maybe one of the same parts that it knew already. Fails with [NN]; -EINVAL the NameNode
 *  refuses it; -EACCES unless superuser. */
DFS_API int dfs_add_ec_policy(struct dfs *fs, const char *codec, uint32_t data_units,
			      uint32_t parity_units, uint32_t cell_size, struct dfs_ec_policy *ret,
			      struct dfs_err *err);

enum dfs_ec_fault {
	DFS_EC_UNIT_MISSING = 1, /* no data node has it, or none gives it: `why` */
	DFS_EC_UNIT_CORRUPT = 2, /* its checksum is wrong */
	DFS_EC_UNIT_DIFFERS = 3, /* it is not what the other units make of it */
	/* the units do not agree; too few are left to tell which one is wrong */
	DFS_EC_GROUP_DIFFERS = 4,
	DFS_EC_GROUP_LOST = 5, /* it has fewer units than it takes to read it */
};

/** What is wrong with a unit of a block group, or with the group. */
struct dfs_ec_finding {
	enum dfs_ec_fault fault;
	int64_t group;   /* its block id; that of the unit is group + unit */
	uint64_t offset; /* in the file, where the group begins */
	unsigned unit;
	/* ..._DIFFERS: the place in the units where a part of at most 256 KiB begins that differs
	 */
	uint64_t at;
	const char *node; /* "10.0.0.1:9866", or "no node" */
	const char *why;  /* for a person; "" */
};

struct dfs_ec_summary {
	uint64_t groups, units; /* looked at */
	uint64_t bytes;         /* of all units, parity too */
	uint64_t findings;
	/* groups that have lost all redundancy: nothing is left to compare with */
	uint64_t unchecked;
	uint64_t reserved[4];
};

/**
 * Read every unit of every group of a file and compare parity with data. @tell is called for each
 * finding; a unit that is certainly wrong is reported to the NameNode, which has it rebuilt.
 * *@ret is filled as far as the check came. Returns 0 also when there were findings. Fails with
 * -EINVAL the file is replicated; -ENOTSUP this library does not have the codec; else as
 * dfs_open().
 */
DFS_API int dfs_verify_ec(struct dfs *fs, const char *path,
			  void (*tell)(void *arg, const struct dfs_ec_finding *f), void *arg,
			  struct dfs_ec_summary *ret, struct dfs_err *err);

/* ---- what a handle has done ---- */

/** What this handle did so far. */
struct dfs_counters {
	uint64_t written_tcp, written_rdma; /* payload bytes sent to first nodes of pipelines */
	uint64_t read_tcp, read_rdma;       /* payload bytes received */
	uint64_t pipeline_recoveries;       /* nodes that failed under a writer */
	uint64_t read_failovers;            /* replicas given up by a reader */
	uint64_t checksum_errors;           /* replicas reported bad */
	uint64_t rdma_fallbacks;            /* nodes reached over TCP although RDMA was wanted */
	/* bytes of erasure-coded files that were computed from other units */
	uint64_t read_decoded;
	uint64_t read_hedges; /* times a slow unit was not waited for */
	/* block groups that began on fewer data nodes than they have units */
	uint64_t short_groups;
	/* of the last of these: how many nodes it wanted, how many there were */
	uint64_t short_group_units, short_group_nodes;
	/* payload bytes read from the files of replicas on this machine */
	uint64_t read_local;
	uint64_t local_fallbacks;  /* times such a read went on by the network */
	uint64_t short_group_data; /* how many units of the last short group hold data */
	/* of read_rdma and read_onesided: copied from memory of the library to the caller's. What
	 * goes straight to registered memory (dfs_mem_register()) is not */
	uint64_t read_rdma_copied;
	/* bytes that were copied into memory of the library on their way to RDMA: all of
	 * written_rdma, but what dfs_write_lent() gave from registered memory */
	uint64_t write_rdma_copied;
	/* payload bytes of cached blocks, read from the memory of their nodes by RDMA, with which
	 * the nodes' processors had nothing to do */
	uint64_t read_onesided;
};

DFS_API void dfs_get_counters(struct dfs *fs, struct dfs_counters *ret);
/** Why the data node at "ip:port" was last reached over TCP and not RDMA, into @buf; "" when it was
 *  not. Returns @buf. */
DFS_API const char *dfs_rdma_reason(struct dfs *fs, const char *node, char *buf, size_t size);

#ifdef __cplusplus
}
#endif
#endif
