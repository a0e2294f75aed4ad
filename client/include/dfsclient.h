/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DFSCLIENT_H
#define DFSCLIENT_H

/**
 * dfsclient - read and write files of an HDFS-compatible file system
 *
 * Idea: Hadoop's protocols without a JVM. Calls block the calling thread, which drives its own
 * sockets; the dfs_begin_...() calls do not block, and run on the thread that calls
 * dfs_queue_run(). A `struct dfs` owns at most five threads. Two are the housekeeper's. One keeps
 * idle pipelines alive, and closes streams and local files that nobody reads; the first file that
 * is written, read from a local replica, or left in the middle of a block starts it. The other one
 * renews leases; the first file that is written starts it. Three threads are for RDMA: one moves
 * data, one makes and ends connections, and one stands by for calls that block. The first block
 * that moves by RDMA starts them.
 * dfsclient_ext.h has further calls, for our own mount and tools.
 *
 * Ownership: a `struct dfs` is given by dfs_connect() and released by dfs_disconnect(); a
 * `struct dfs_file` is given by dfs_open()/dfs_create()/dfs_append() and released by dfs_close(),
 * before its `struct dfs`. Strings and buffers passed in are only borrowed during the call.
 *
 * Threading: any number of threads may use one `struct dfs`. On one file: dfs_pread() runs
 * concurrently in any number of threads; dfs_read(), dfs_seek(), dfs_tell() share the position and
 * are serialised; dfs_write(), dfs_flush(), dfs_hsync(), dfs_sync() are serialised. dfs_close(),
 * dfs_disconnect(), dfs_list_next() need the object to themselves.
 *
 * Errors: 0 or a count on success, -errno on failure. Calls that can fail take a `struct dfs_err *`
 * (may be NULL) that receives cause and cure in one line; it is written on failure only. Output
 * parameters are written on success only.
 * Every call that talks to the NameNode ("[NN]" below) may fail with
 *   -ENOMEM        out of memory
 *   -ENOENT        the NameNode's host name is unknown (text says so); or the path does not exist
 *   -ECONNREFUSED  nothing listens at the NameNode's address
 *   -EHOSTUNREACH, -ENETUNREACH, -ECONNRESET   the network says so
 *   -ETIMEDOUT     no answer within the deadline
 *   -EPROTO        what answers is not a Hadoop RPC server, or it speaks nonsense (wrong port?)
 *   -EACCES        permission denied, by the NameNode
 *   -EROFS         the NameNode is in safe mode and changes nothing; wait or leave safe mode
 *   -EAGAIN        the NameNode is a standby or is starting; ask another one or later
 *   -EINVAL        malformed path or argument
 *   -ENOTDIR       a component of the path is a file
 *   -EDQUOT        a quota is used up
 *   -ENAMETOOLONG  a name is longer than the NameNode allows
 *   -ENOSYS        the NameNode does not know this call
 *   -ELOOP         a symbolic link is in the path; this version does not follow links; the text
 *                  says where it leads
 *   -EREMOTEIO     any other exception; its Java class is in dfs_err.remote
 * A name service (dfs.nameservices) has several NameNodes, of which one is active. A call that
 * meets a standby, or a NameNode out of reach, goes on to the next one, at most
 * dfs.client.failover.max.attempts (15) times, with pauses that double from
 * dfs.client.failover.sleep.base.millis (500) to ...sleep.max.millis (15,000). Only then it fails.
 * Such a call may take minutes, and it takes effect at most once.
 * A NameNode in safe mode fails a change with -EROFS at once. There are three exceptions: with
 * dfs.client.retry.policy.enabled the call waits as dfs.client.retry.policy.spec says; after a
 * start of the NameNode, when safe mode ends by itself, it waits for
 * dfs.client.retry.startup.safe-mode.millis; in the middle of writing a file it waits 60 s.
 * Every call that moves block data ("[DN]") may fail with
 *   -ENOMEM        out of memory
 *   -EIO           every replica failed; the text lists node and cause
 *   -EBADMSG       every replica that is left has a wrong checksum
 *   -ETIMEDOUT     no data node answered within the deadline, or the last one that was asked is out
 *                  of reach; the text says which
 *   -ENOTSUP       dfs.client.rdma=require and there is no RDMA path; the text says what is missing
 *
 * Paths: absolute, or relative to /user/<user>, in UTF-8. "//", "." and ".." are resolved.
 * "hdfs://host/path" is -EINVAL: the handle has the address.
 * Units: bytes; times in milliseconds since 1970.
 * Source: Hadoop ClientProtocol, DataTransferProtocol version 28.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DFS_API __attribute__((visibility("default")))
#else
#define DFS_API
#endif

struct dfs_stat;
struct dfs;      /* one file system, as one user */
struct dfs_file; /* one open file, for reading or for writing */
struct dfs_list; /* a directory being listed */

/** What went wrong, for a person. */
struct dfs_err {
	int rc;           /* the -errno that was returned */
	char text[512];   /* "cause: detail; cure", one line, no newline */
	char remote[128]; /* Java class of the NameNode's exception, or "" */
};

/** "0.1.0" */
DFS_API const char *dfs_version(void);

/* ---- connection ---- */

struct dfs_connect_opts {
	size_t size; /* sizeof(struct dfs_connect_opts) */
	/* "hdfs://host[:port]", or "hdfs://NAME" of dfs.nameservices; NULL: fs.defaultFS of the
	 * configuration */
	const char *uri;
	const char *conf_dir; /* NULL: $HADOOP_CONF_DIR, else /etc/hadoop/conf, when present */
	const char *user;     /* NULL: $HADOOP_USER_NAME, else the name of the effective uid */
	/* "key=value" strings, NULL-terminated; they override the files; may be NULL */
	const char *const *conf;
};

/**
 * Read the configuration and make a handle. @opts may be NULL (all defaults). The NameNode is
 * asked once (server defaults), so that a wrong address shows here and not later.
 * Fails with [NN]; -EINVAL also for malformed configuration (file, line or key in the text);
 * -ENOENT also when an explicit conf_dir does not exist.
 */
DFS_API int dfs_connect(const struct dfs_connect_opts *opts, struct dfs **ret_fs,
			struct dfs_err *err);
/** Close connections, stop the threads, free. All files must be closed. NULL is fine. */
DFS_API void dfs_disconnect(struct dfs *fs);
/** The user this handle acts as; lives as long as @fs. */
DFS_API const char *dfs_user(const struct dfs *fs);
/** "hdfs://host:port" or "hdfs://NAME"; lives as long as @fs. */
DFS_API const char *dfs_uri(const struct dfs *fs);
/** The configured value of a Hadoop property, or NULL when it has none; lives as long as @fs. */
DFS_API const char *dfs_conf(const struct dfs *fs, const char *key);

struct dfs_defaults {
	uint64_t block_size;         /* of new files: dfs.blocksize, or the server's */
	uint32_t replication;        /* likewise, dfs.replication */
	uint32_t bytes_per_checksum; /* likewise, dfs.bytes-per-checksum */
	uint32_t umask;              /* fs.permissions.umask-mode */
	uint64_t trash_minutes;      /* the server's fs.trash.interval; 0: it keeps no trash */
	uint64_t reserved[3];
};

/** What dfs_create() uses where its options say nothing. No failure. */
DFS_API void dfs_get_defaults(const struct dfs *fs, struct dfs_defaults *ret);

/* ---- reading ---- */

/**
 * Open for reading. Fails with [NN]; -ENOENT no such file; -EISDIR it is a directory;
 * -ENOTSUP an encrypted or symbolic-link file.
 */
DFS_API int dfs_open(struct dfs *fs, const char *path, struct dfs_file **ret, struct dfs_err *err);
/**
 * Read up to @len bytes at the position and advance it; streams ahead. Returns the count, which is
 * less than @len only at the end of the file, and 0 there. A file that is being written shows what
 * its writer has flushed; its length is asked again when the end known so far is reached.
 * Fails with [DN], [NN]; -EBADF when open for writing; -ESTALE the file was deleted, replaced or
 * truncated since it was opened, and what is left of it cannot be read: open it again. A failure
 * does not move the position.
 */
DFS_API ssize_t dfs_read(struct dfs_file *f, void *buf, size_t len, struct dfs_err *err);
/** Like dfs_read() at @offset, exactly these bytes, position untouched; concurrent. Also
 *  fails with -EINVAL for an offset beyond INT64_MAX. */
DFS_API ssize_t dfs_pread(struct dfs_file *f, void *buf, size_t len, uint64_t offset,
			  struct dfs_err *err);
/** Set the position for dfs_read(); beyond the end is allowed and reads nothing.
 *  -EBADF when open for writing, -EINVAL beyond INT64_MAX. */
DFS_API int dfs_seek(struct dfs_file *f, uint64_t offset, struct dfs_err *err);
/** Position of the next dfs_read(), or bytes written so far. No failure. */
DFS_API uint64_t dfs_tell(struct dfs_file *f);
/** Length of the file: when open for reading, as last heard; when open for writing, the bytes so
 *  far. No failure. */
DFS_API uint64_t dfs_length(struct dfs_file *f);
/** Ask the NameNode again how long @f, which is open for reading, is: somebody may have appended to
 *  it. Fails with [NN]; -ESTALE as dfs_read(); -EBADF when open for writing. */
DFS_API int dfs_refresh(struct dfs_file *f, struct dfs_err *err);

/* ---- writing ---- */

enum dfs_create_flags {
	DFS_CREATE_OVERWRITE = 1,  /* replace an existing file; without: -EEXIST */
	DFS_CREATE_NO_PARENTS = 2, /* a missing parent directory is -ENOENT; else it is made */
	DFS_CREATE_NO_LOCAL = 4,   /* do not prefer a data node on this machine */
	/* the caller will not call dfs_hsync(): a block need not be on disk when the next one
	 * begins, if data nodes do not sync finished blocks (dfs.datanode.synconclose=false, as
	 * Java's by default). A dfs_hsync() all the same covers the block being written and those
	 * that follow, not the blocks finished before it. 8, 16 and 32: dfsclient_ext.h */
	DFS_CREATE_NO_HSYNC = 64,
	/* dfs_write() of an erasure-coded file fails with -ENOSPC when there are only nodes enough
	 * for the data units of a block group, so that the loss of any node would lose the file;
	 * unless dfs.client.ec.without.parity=allow. Nodes that failed this file are waited for
	 * first, for dfs.client.socket-timeout */
	DFS_CREATE_SPARE_UNIT = 128,
};

enum dfs_append_flags {
	/* make the file when it is missing, as dfs_create() with defaults */
	DFS_APPEND_CREATE = 1,
	DFS_APPEND_NEW_BLOCK = 2,  /* leave a last, partial block as it is and begin another */
	DFS_APPEND_NO_HSYNC = 4,   /* as DFS_CREATE_NO_HSYNC */
	DFS_APPEND_SPARE_UNIT = 8, /* as DFS_CREATE_SPARE_UNIT */
};

enum dfs_sync_flags {
	DFS_SYNC_DISK = 1,          /* on disk on every node of the pipeline: dfs_hsync() */
	DFS_SYNC_UPDATE_LENGTH = 2, /* dfs_stat() of anybody shows the length from now on */
	DFS_SYNC_END_BLOCK = 4,     /* finish the block; what follows goes to a new one */
};

#define DFS_MODE_SET 0x80000000u /* added to a mode: use it also when it is 0 */
/* Added to a mode: use this umask, not fs.permissions.umask-mode. Where the directory has default
 * entries, they count and no umask does. */
#define DFS_UMASK(bits) (0x40000000u | ((bits)&0777u) << 12)

struct dfs_create_opts {
	size_t size;          /* sizeof(struct dfs_create_opts) */
	uint32_t flags;       /* enum dfs_create_flags */
	uint32_t mode;        /* permission bits before umask; 0: 0666; 0 | DFS_MODE_SET: none */
	uint32_t replication; /* 0: default */
	uint32_t reserved;    /* 0 */
	uint64_t block_size;  /* multiple of bytes-per-checksum; 0: default */
	/* erasure-coding policy, enabled; "replication": none; NULL: the directory's */
	const char *ec_policy;
	/* may be NULL; else the new file as the NameNode made it, when the call succeeds */
	struct dfs_stat *ret_stat;
};

/**
 * Create a file for writing. @opts may be NULL. The file is visible at once, with length 0.
 * Fails with [NN]; -EEXIST it exists (and no DFS_CREATE_OVERWRITE); -EISDIR it is a directory;
 * -ENOENT with DFS_CREATE_NO_PARENTS, no directory to put it in; -EBUSY another client is writing
 * it; -EINVAL the NameNode refuses block size or replication, or block size is no multiple of
 * bytes-per-checksum, or the policy is not enabled; -ENOTSUP a codec that this library has not
 * (RS-LEGACY).
 */
DFS_API int dfs_create(struct dfs *fs, const char *path, const struct dfs_create_opts *opts,
		       struct dfs_file **ret, struct dfs_err *err);
/**
 * Open an existing file for writing at its end (O_APPEND): @flags of enum dfs_append_flags. The
 * file keeps its block size and replication; dfs_tell() begins at its length. The pipeline of a
 * last block that has room is set up at once, in the kind of checksum that block has.
 * Fails with [NN], [DN]; -ENOENT no such file (and no DFS_APPEND_CREATE); -EISDIR it is a
 * directory; -EBUSY another client is writing it, or its last block is being recovered: wait, or
 * take it over with dfs_recover_lease(); -EAGAIN its last block is still not reported by enough
 * data nodes after 60 s; -ENOSPC too few data nodes for its replication; -ENOTSUP an encrypted
 * file, or an erasure-coded one without DFS_APPEND_NEW_BLOCK. When it fails after the NameNode has
 * given the lease, it gives the lease back.
 */
DFS_API int dfs_append(struct dfs *fs, const char *path, uint32_t flags, struct dfs_file **ret,
		       struct dfs_err *err);
/**
 * Append @len bytes. Returns @len. The bytes are copied; they are on their way, not yet safe: see
 * dfs_flush(), dfs_hsync(), dfs_close(). Data nodes that fail are replaced; of an erasure-coded
 * file at most as many at a time as it has parity units, and more within the first 8 MiB of a block
 * group (docs/design/ec-sync.md).
 * Fails with [DN], [NN]; -EBADF when open for reading; -ENOSPC no data node has room (or too few
 * are alive); -ESTALE the lease is lost (another client took the file over, or it was deleted).
 * After a failure the file stays failed: every later call returns the first error. Two errors are
 * different: the NameNode refused a block group of an erasure-coded file (-EDQUOT, or its limit of
 * blocks), or -ENOBUFS: with dfs.client.rdma=require other files of this process had all RDMA
 * buffers, or all memory windows by which nodes read them, for dfs.rdma.pool.wait. If nothing of
 * @len was taken, or a flush failed so, the call may be repeated, and dfs_close() keeps what was
 * written. If a part of @len was taken, the file stays failed. A dfs_close() that fails loses
 * what was not acknowledged, as after any failure.
 */
DFS_API ssize_t dfs_write(struct dfs_file *f, const void *buf, size_t len, struct dfs_err *err);
/** hflush: wait until every node of the pipeline has all bytes written, and new readers see them.
 *  They survive the death of this process and of all but one node of the pipeline. The bytes of an
 *  erasure-coded file are then on disk, and as many nodes may die as it has parity units (fewer, if
 *  there were not nodes enough); the next bytes go to a new block group, so do not flush after
 *  every few bytes (dfs.client.ec.flush). Fails as dfs_write(). */
DFS_API int dfs_flush(struct dfs_file *f, struct dfs_err *err);
/** hsync: dfs_flush(), and on disk on every node of the pipeline. Fails as dfs_write(). */
DFS_API int dfs_hsync(struct dfs_file *f, struct dfs_err *err);
/** dfs_flush() and what @flags of enum dfs_sync_flags add to it. Fails as dfs_write(). */
DFS_API int dfs_sync(struct dfs_file *f, uint32_t flags, struct dfs_err *err);
/**
 * Finish and free. For a file being written: waits until every byte is acknowledged and the
 * NameNode has closed the file; on failure the file is left to lease recovery, and @f is freed all
 * the same. Fails as dfs_write() when writing; never when reading. NULL is fine.
 */
DFS_API int dfs_close(struct dfs_file *f, struct dfs_err *err);

/* ---- namespace ---- */

enum dfs_type { DFS_DIR = 1, DFS_FILE = 2, DFS_SYMLINK = 3 };

#define DFS_NAME_MAX 255

struct dfs_stat {
	enum dfs_type type;
	uint32_t mode;        /* permission bits, 01777 */
	uint64_t length;      /* files: bytes; of a file being written: of its complete blocks */
	uint64_t block_size;  /* files */
	uint32_t replication; /* files; 0 when erasure-coded */
	int32_t children;     /* directories, when the server says so; else -1 */
	uint64_t mtime_ms;
	uint64_t atime_ms;
	uint64_t file_id;
	const char *name; /* dfs_list_next(): valid until the next call; dfs_stat(): NULL */
	char owner[DFS_NAME_MAX + 1];
	char group[DFS_NAME_MAX + 1];
	bool encrypted;
	bool erasure_coded;
	bool has_acl; /* mode's group bits are then the mask of its access control list */
	uint64_t reserved[4];
};

/** Fails with [NN]; -ENOENT. */
DFS_API int dfs_stat(struct dfs *fs, const char *path, struct dfs_stat *ret, struct dfs_err *err);

/** dfs_stat() that does not fail for a symbolic link: it describes the link itself, and length is
 *  that of its target's name. */
DFS_API int dfs_lstat(struct dfs *fs, const char *path, struct dfs_stat *ret, struct dfs_err *err);

/* Symbolic links. A call about a path with a link in it fails with -ELOOP: the caller resolves
 * links. When the path names a link, dfs_lstat(), dfs_rename(), dfs_delete() and the two calls
 * below are about the link itself; so are dfs_stat(), dfs_set_owner() and dfs_set_times() when the
 * path is /.reserved/.inodes/ID with the link's dfs_stat.file_id. */

/** Make @path a link to @target, any text of at most 8000 bytes of UTF-8. Fails with [NN]; -EEXIST;
 *  -ENOENT parent missing; -EOPNOTSUPP links are disabled, as on every Apache NameNode (ours:
 *  dfs.namenode.symlinks.enabled). */
DFS_API int dfs_symlink(struct dfs *fs, const char *target, const char *path, struct dfs_err *err);
/** The target into @buf, without NUL, and its length as the result; @size 0 asks for the length
 *  alone. Fails with [NN]; -ENOENT; -EINVAL it is no link; -ERANGE @buf is too small. */
DFS_API ssize_t dfs_readlink(struct dfs *fs, const char *path, char *buf, size_t size,
			     struct dfs_err *err);

/** List a directory in byte order of names, fetched page by page; a file lists as itself, with
 *  name "". Fails with [NN]; -ENOENT. */
DFS_API int dfs_list_open(struct dfs *fs, const char *path, struct dfs_list **ret,
			  struct dfs_err *err);
/** 1 and an entry (borrowed until the next call), or 0 at the end. Fails with [NN]; -ENOENT when
 *  the directory was deleted meanwhile. */
DFS_API int dfs_list_next(struct dfs_list *l, const struct dfs_stat **ret, struct dfs_err *err);
DFS_API void dfs_list_close(struct dfs_list *l);

/** Make a directory. With @parents missing parents are made, too, and an existing directory is
 *  success. Without, an existing one is -EEXIST, and of several callers at the same time exactly
 *  one succeeds (on a NameNode that is not ours the directory is first made as
 *  ".dfs-mkdir.CLIENT.1" beside its place). @mode before umask, 0: 0777; 0 | DFS_MODE_SET: none.
 *  Fails with [NN]; -EEXIST it exists, or is a file; -ENOENT parent missing. */
DFS_API int dfs_mkdir(struct dfs *fs, const char *path, uint32_t mode, bool parents,
		      struct dfs_err *err);
/** @new_path is the new name itself, never a directory to move into (rename2). With @overwrite an
 *  existing file or empty directory is replaced atomically. Fails with [NN]; -ENOENT source or
 *  parent of the target missing; -EEXIST target exists; -ENOTEMPTY target directory has entries;
 *  -EISDIR/-ENOTDIR file over directory or the reverse; -EINVAL into its own subtree. */
DFS_API int dfs_rename(struct dfs *fs, const char *old_path, const char *new_path, bool overwrite,
		       struct dfs_err *err);
/** Fails with [NN]; -ENOENT; -ENOTEMPTY a directory with entries and not @recursive; -EPERM the
 *  root directory. */
DFS_API int dfs_delete(struct dfs *fs, const char *path, bool recursive, struct dfs_err *err);
/** @mode: 01777 bits, no umask. Fails with [NN]; -ENOENT. */
DFS_API int dfs_set_permission(struct dfs *fs, const char *path, uint32_t mode,
			       struct dfs_err *err);
/** NULL leaves owner or group alone. Fails with [NN]; -ENOENT; -EACCES unless superuser. */
DFS_API int dfs_set_owner(struct dfs *fs, const char *path, const char *owner, const char *group,
			  struct dfs_err *err);
enum dfs_access_bits { DFS_ACCESS_X = 1, DFS_ACCESS_W = 2, DFS_ACCESS_R = 4 };

/** May the user of this handle do all of @bits (enum dfs_access_bits; 0: reach it) with @path?
 *  Returns 0: yes. Fails with [NN]; -EACCES no; -ENOENT. */
DFS_API int dfs_access(struct dfs *fs, const char *path, uint32_t bits, struct dfs_err *err);
#define DFS_TIME_KEEP UINT64_MAX
/** DFS_TIME_KEEP leaves a time alone. Fails with [NN]; -ENOENT. */
DFS_API int dfs_set_times(struct dfs *fs, const char *path, uint64_t mtime_ms, uint64_t atime_ms,
			  struct dfs_err *err);

/* Extended attributes: names begin with their namespace ("user.colour"; also trusted., security.,
 * system., raw.); a value may have no bytes. Beside [NN] and -ENOENT these calls fail with
 * -EOPNOTSUPP where the NameNode has attributes switched off, and -EINVAL for a name without a
 * namespace. */
enum dfs_xattr_flags {                        /* numbers of the wire; none: either */
		       DFS_XATTR_CREATE = 1,  /* -EEXIST when it is there */
		       DFS_XATTR_REPLACE = 2, /* -ENODATA when it is not */
};

/** Also -E2BIG: larger, or more of them, than the NameNode allows. */
DFS_API int dfs_set_xattr(struct dfs *fs, const char *path, const char *name, const void *value,
			  size_t len, uint32_t flags, struct dfs_err *err);
/** The value into @buf and its length as the result; @size 0 asks for the length alone. -ENODATA
 *  there is none; -ERANGE @buf is too small. */
DFS_API ssize_t dfs_get_xattr(struct dfs *fs, const char *path, const char *name, void *buf,
			      size_t size, struct dfs_err *err);
/** The names, each with its NUL, into @buf, and the length of all as the result; as
 * dfs_get_xattr(). */
DFS_API ssize_t dfs_list_xattrs(struct dfs *fs, const char *path, char *buf, size_t size,
				struct dfs_err *err);
/** -ENODATA: there is none. */
DFS_API int dfs_remove_xattr(struct dfs *fs, const char *path, const char *name,
			     struct dfs_err *err);

/* Access control lists. Every file has one: without further entries it is the permission bits
 * (owner, group, others). A longer one has a mask too, which is what the group bits of
 * dfs_stat.mode are then, and dfs_stat.has_acl is true. Default entries of a directory are what new
 * files in it begin with. Beside [NN] and -ENOENT all calls fail with -EOPNOTSUPP where the
 * NameNode has them switched off, and those that change with -EACCES unless owner or superuser,
 * -EINVAL for a list that cannot be (an entry twice, more than 32, default entries of a file; the
 *         text tells). */
/* numbers of the wire */
enum dfs_acl_scope { DFS_ACL_ACCESS = 0, DFS_ACL_DEFAULT = 1 };
/* numbers of the wire */
enum dfs_acl_type { DFS_ACL_USER = 0, DFS_ACL_GROUP = 1, DFS_ACL_MASK = 2, DFS_ACL_OTHER = 3 };

struct dfs_acl_entry {
	enum dfs_acl_scope scope;
	enum dfs_acl_type type;
	uint32_t perm;    /* enum dfs_access_bits; not looked at where entries are removed */
	const char *name; /* user or group; "" or NULL: the file's own, or the type has none */
};

struct dfs_acl {
	const char *owner, *group;
	uint32_t mode; /* as dfs_stat.mode */
	size_t count;
	/* count of them, the whole list: dfs_set_acl() of it changes nothing */
	const struct dfs_acl_entry *entry;
};

/** Free with dfs_acl_free(). */
DFS_API int dfs_get_acl(struct dfs *fs, const char *path, struct dfs_acl **ret,
			struct dfs_err *err);
DFS_API void dfs_acl_free(struct dfs_acl *acl);
/** Replace the list. Access entries in @entry replace the access entries (owner, group and others
 *  must be among them); default entries replace the default ones. A mask that is not given is
 *  computed from the entries it masks. @count 0: as dfs_remove_acl(). */
DFS_API int dfs_set_acl(struct dfs *fs, const char *path, const struct dfs_acl_entry *entry,
			size_t count, struct dfs_err *err);
/** Add entries, and change those that are there. */
DFS_API int dfs_modify_acl(struct dfs *fs, const char *path, const struct dfs_acl_entry *entry,
			   size_t count, struct dfs_err *err);
/** Remove the entries of the same scope, type and name; an entry that does not exist is no failure.
 */
DFS_API int dfs_remove_acl_entries(struct dfs *fs, const char *path,
				   const struct dfs_acl_entry *entry, size_t count,
				   struct dfs_err *err);
DFS_API int dfs_remove_default_acl(struct dfs *fs, const char *path, struct dfs_err *err);
/** Remove all but owner, group and others. */
DFS_API int dfs_remove_acl(struct dfs *fs, const char *path, struct dfs_err *err);

#define DFS_STORAGE_POLICY_MAX 64 /* a name with its NUL, as HDFS has them: "ONE_SSD" */
/** The name of the storage policy that holds for a path, its own or one of a directory above, into
 *  @buf. Fails with [NN]; -ENOENT; -ERANGE. */
DFS_API int dfs_get_storage_policy(struct dfs *fs, const char *path, char *buf, size_t size,
				   struct dfs_err *err);
/** New blocks are placed by @policy; existing ones stay where they are until a mover runs. Fails
 *  with [NN]; -ENOENT; -EINVAL no such policy. */
DFS_API int dfs_set_storage_policy(struct dfs *fs, const char *path, const char *policy,
				   struct dfs_err *err);

/** Fails with [NN]; -ENOENT; -EISDIR; -EINVAL outside the limits of the NameNode. */
DFS_API int dfs_set_replication(struct dfs *fs, const char *path, uint32_t replication,
				struct dfs_err *err);
/**
 * Cut a file to @length, which is at most its length. *@ret_done true: done. False: data nodes are
 * cutting the last block, and the file cannot be written until dfs_is_closed(); its length is the
 * new one at once. Fails with [NN]; -ENOENT; -EISDIR; -EINVAL longer than the file; -EBUSY
 * somebody is writing it or its last block is being recovered; -EOPNOTSUPP erasure-coded.
 */
DFS_API int dfs_truncate(struct dfs *fs, const char *path, uint64_t length, bool *ret_done,
			 struct dfs_err *err);
/**
 * Move the blocks of @count files to the end of @target, in order, and delete the files; no byte is
 * copied. All must lie in the directory of @target, closed, not empty, each once. All or nothing.
 * Fails with [NN]; -ENOENT; -EISDIR; -EINVAL one of these conditions does not hold; -EBUSY.
 */
DFS_API int dfs_concat(struct dfs *fs, const char *target, const char *const *sources, size_t count,
		       struct dfs_err *err);
/**
 * Take a file from a writer that is gone: the NameNode ends its lease, and data nodes agree on the
 * length of the last block. *@ret_closed true: the file is closed. False: recovery is under way;
 * call again, or dfs_wait_closed(). The old writer gets -ESTALE. Fails with [NN]; -ENOENT; -EISDIR;
 * -EBUSY the block before the last one is not reported by enough data nodes: later.
 */
DFS_API int dfs_recover_lease(struct dfs *fs, const char *path, bool *ret_closed,
			      struct dfs_err *err);
/** Is nobody writing the file, and no block of it being recovered? Fails with [NN]; -ENOENT. */
DFS_API int dfs_is_closed(struct dfs *fs, const char *path, bool *ret, struct dfs_err *err);
/** Wait until dfs_is_closed(). Fails as it; -ETIMEDOUT not within @timeout_ms. */
DFS_API int dfs_wait_closed(struct dfs *fs, const char *path, uint32_t timeout_ms,
			    struct dfs_err *err);

/* ---- calls that do not wait ---- */

/**
 * A queue lets one thread have many calls to the NameNode under way: a dfs_begin_...() call returns
 * when its request is queued, and its outcome comes to a function of the caller's. Nothing runs
 * behind the caller's back: requests are sent, answers read, pauses slept and functions called in
 * dfs_queue_run(), on the thread that calls it. A queue has a connection of its own; a program with
 * several threads gives each one a queue, or has one thread run a queue to which others give calls.
 *
 * Outcome: dfs_begin_...() returns 0, and the function is called exactly once, from dfs_queue_run()
 * or dfs_queue_close(); or it returns -errno (-ENOMEM; -EINVAL, -ENAMETOOLONG for a path; -EAGAIN
 * when 16,384 calls are under way; what the call of the same name refuses unasked), and it is not
 * called. @rc and @err are those of the call of the same name that waits, with the same retries,
 * fail-over, waiting in safe mode and deadlines, counted from dfs_begin_...() on. @err is NULL on
 * success and lent for the length of the call.
 * Order: requests leave in the order in which they were begun, unless some have to be sent again;
 * the NameNode may execute them in any order, and their outcomes come in any order. What is to
 * happen after a call is begun in its function.
 * Ownership: paths and options are copied. What a result goes to (@ret) belongs to the call until
 * its function is called, and is written only on success.
 * Threading: dfs_begin_...(), dfs_queue_cancel() and dfs_queue_wake() from any thread, also from
 * the functions; dfs_queue_run() on one thread at a time, and not from the functions. Functions are
 * called without a lock held.
 */
struct dfs_queue;

struct dfs_then {
	void (*done)(void *arg, int rc, const struct dfs_err *err); /* not NULL */
	void *arg;
};

/** Fails with -ENOMEM, -EMFILE; -EINVAL, -ENOENT as dfs_connect(). Connects in dfs_queue_run(). */
DFS_API int dfs_queue_open(struct dfs *fs, struct dfs_queue **ret, struct dfs_err *err);
/** Calls under way end with -ECANCELED in their functions; the NameNode may have executed them.
 *  Nobody may use @q any more. Call it before dfs_disconnect(). NULL is fine. */
DFS_API void dfs_queue_close(struct dfs_queue *q);
/**
 * Work until outcomes were told, at most for @timeout_ms (-1: for ever). Returns how many; 0 after
 * that time, or when woken. A NameNode that is out of reach makes it longer by as much as one
 * attempt to connect (ipc.client.connect.timeout). -EBUSY when it runs already.
 */
DFS_API int dfs_queue_run(struct dfs_queue *q, int timeout_ms);
/** dfs_queue_run() returns soon: the one that runs, or else the next one. */
DFS_API void dfs_queue_wake(struct dfs_queue *q);
/** The calls under way with this dfs_then.arg end with -ECANCELED in the next dfs_queue_run(); the
 *  NameNode may have executed them. */
DFS_API void dfs_queue_cancel(struct dfs_queue *q, const void *arg);
/** How many calls are under way. */
DFS_API uint32_t dfs_queue_pending(struct dfs_queue *q);

DFS_API int dfs_begin_stat(struct dfs_queue *q, const char *path, struct dfs_stat *ret,
			   const struct dfs_then *then, struct dfs_err *err);
/** As dfs_mkdir(); but on a NameNode that is not ours several callers at the same time may all
 *  succeed. */
DFS_API int dfs_begin_mkdir(struct dfs_queue *q, const char *path, uint32_t mode, bool parents,
			    const struct dfs_then *then, struct dfs_err *err);
DFS_API int dfs_begin_rename(struct dfs_queue *q, const char *old_path, const char *new_path,
			     bool overwrite, const struct dfs_then *then, struct dfs_err *err);
DFS_API int dfs_begin_delete(struct dfs_queue *q, const char *path, bool recursive,
			     const struct dfs_then *then, struct dfs_err *err);
DFS_API int dfs_begin_set_permission(struct dfs_queue *q, const char *path, uint32_t mode,
				     const struct dfs_then *then, struct dfs_err *err);
DFS_API int dfs_begin_set_owner(struct dfs_queue *q, const char *path, const char *owner,
				const char *group, const struct dfs_then *then,
				struct dfs_err *err);
DFS_API int dfs_begin_set_times(struct dfs_queue *q, const char *path, uint64_t mtime_ms,
				uint64_t atime_ms, const struct dfs_then *then,
				struct dfs_err *err);
/** The file belongs to the caller once the function gets 0. For a file that is being written
 *  dfs_queue_run() asks a data node for its length, and waits for the answer. */
DFS_API int dfs_begin_open(struct dfs_queue *q, const char *path, struct dfs_file **ret,
			   const struct dfs_then *then, struct dfs_err *err);
/** The file belongs to the caller once the function gets 0. A call that fails or is cancelled may
 *  have made it all the same. */
DFS_API int dfs_begin_create(struct dfs_queue *q, const char *path,
			     const struct dfs_create_opts *opts, struct dfs_file **ret,
			     const struct dfs_then *then, struct dfs_err *err);
/** Takes @f in any case: when the call cannot be queued, the file is closed as by dfs_close(), and
 *  the outcome of that is lost. A file that was written to or appended to is closed, with all
 *  waiting of dfs_close(), before this returns; any other close does not wait. */
DFS_API int dfs_begin_close(struct dfs_queue *q, struct dfs_file *f, const struct dfs_then *then,
			    struct dfs_err *err);

/**
 * As dfs_pread(); the bytes that were read go to *@ret. @buf and @f are the call's until its
 * function is called. One thread can have many reads under way so, and small ones (32 KiB at most)
 * from a data node of ours cost the least: they share a connection. dfs_queue_run() waits for the
 * NameNode when it does not know where the bytes are, and for data nodes when a read does not go
 * well, or is of an erasure-coded file or of one that is being written. The deadline of a small
 * read stands while nobody runs the queue: at most a second of a pause counts. -EAGAIN when 16,384
 * reads are under way.
 */
DFS_API int dfs_begin_pread(struct dfs_queue *q, struct dfs_file *f, void *buf, size_t len,
			    uint64_t offset, size_t *ret, const struct dfs_then *then,
			    struct dfs_err *err);

/* ---- the cluster ---- */

struct dfs_statfs {
	uint64_t capacity, used, remaining;
	uint64_t under_replicated, corrupt_blocks, missing_blocks;
	uint64_t reserved[4];
};

/** Fails with [NN]. */
DFS_API int dfs_statfs(struct dfs *fs, struct dfs_statfs *ret, struct dfs_err *err);

struct dfs_content_summary {
	uint64_t length; /* of all files below */
	uint64_t file_count;
	uint64_t directory_count; /* the path itself included */
	uint64_t space_consumed;  /* length times replication */
	int64_t name_quota;       /* -1: none */
	int64_t space_quota;      /* -1: none */
	/* what data nodes have of space_consumed by now; -1: not told (by Apache's NameNode) */
	int64_t space_stored;
	uint64_t reserved[3];
};

/** Fails with [NN]; -ENOENT. */
DFS_API int dfs_get_content_summary(struct dfs *fs, const char *path,
				    struct dfs_content_summary *ret, struct dfs_err *err);

#define DFS_QUOTA_NONE (-1)
#define DFS_QUOTA_KEEP INT64_MAX

struct dfs_quota {
	uint64_t names;      /* files and directories, the path itself included */
	uint64_t space;      /* bytes of all replicas */
	int64_t name_quota;  /* DFS_QUOTA_NONE: none */
	int64_t space_quota; /* DFS_QUOTA_NONE: none */
	uint64_t reserved[4];
};

/** What counts against the quotas of a directory. Fails with [NN]; -ENOENT. */
DFS_API int dfs_get_quota(struct dfs *fs, const char *path, struct dfs_quota *ret,
			  struct dfs_err *err);
/** Set the quotas of a directory: a number, DFS_QUOTA_NONE or DFS_QUOTA_KEEP. Below what is used is
 *  allowed and stops what would add to it. Fails with [NN]; -ENOENT; -ENOTDIR; -EACCES unless
 *  superuser; -EINVAL. */
DFS_API int dfs_set_quota(struct dfs *fs, const char *path, int64_t name_quota, int64_t space_quota,
			  struct dfs_err *err);

enum dfs_node_filter { /* numbers of the wire */
		       DFS_NODES_ALL = 1,
		       DFS_NODES_LIVE = 2,
		       DFS_NODES_DEAD = 3,
		       DFS_NODES_DECOMMISSIONING = 4,
};
enum dfs_node_state { /* numbers of the wire */
		      DFS_NODE_NORMAL = 0,
		      DFS_NODE_DECOMMISSIONING = 1,
		      DFS_NODE_DECOMMISSIONED = 2,
		      DFS_NODE_ENTERING_MAINTENANCE = 3,
		      DFS_NODE_IN_MAINTENANCE = 4,
};

struct dfs_node {
	const char *ip, *host, *uuid, *rack;
	uint16_t xfer_port, info_port, ipc_port;
	enum dfs_node_state state;
	uint64_t capacity, used, remaining, non_dfs_used;
	uint64_t last_update_ms; /* wall clock of the NameNode at the last heartbeat */
	uint32_t connections;    /* xceiverCount */
	uint32_t block_count;
	bool stale; /* live, and has missed heartbeats; only our NameNode says so */
	/* out of service at its last heartbeat; only our NameNode says so */
	uint32_t failed_volumes;
	uint64_t reserved[3];
};

struct dfs_nodes {
	size_t count;
	const struct dfs_node *node; /* count of them */
};

/** Fails with [NN]. Free with dfs_nodes_free(). */
DFS_API int dfs_nodes(struct dfs *fs, enum dfs_node_filter filter, struct dfs_nodes **ret,
		      struct dfs_err *err);
DFS_API void dfs_nodes_free(struct dfs_nodes *n);

struct dfs_block {
	uint64_t offset; /* in the file */
	uint64_t length;
	int64_t id;
	uint64_t generation;
	bool corrupt;                /* no good replica */
	size_t count;                /* replicas */
	const struct dfs_node *node; /* count of them, nearest first */
};

struct dfs_blocks {
	uint64_t file_length;
	bool under_construction;
	const char *pool_id;
	size_t count;
	const struct dfs_block *block; /* count of them, by offset */
};

/** Blocks that overlap [@offset, @offset + @len) and where they are. Fails with [NN]; -ENOENT;
 *  -EISDIR. Free with dfs_blocks_free(). */
DFS_API int dfs_blocks(struct dfs *fs, const char *path, uint64_t offset, uint64_t len,
		       struct dfs_blocks **ret, struct dfs_err *err);
DFS_API void dfs_blocks_free(struct dfs_blocks *b);

#ifdef __cplusplus
}
#endif

#include "dfsclient_memory.h"
#endif
