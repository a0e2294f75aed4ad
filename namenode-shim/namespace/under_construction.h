/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * under_construction - files under construction: lease, closing, recovery of an abandoned last
 * block
 *
 * Idea: one writer at a time, named in the inode. When the writer is gone its file is recovered:
 * the last block gets a new stamp (the recovery id), one node makes the replicas equal
 * (BlockRecoveryCommand) and reports with commitBlockSynchronization; then the file is closed.
 * Threading: writer thread, inside a change.
 * Source: hdfs-wire 8.3, 8.4.
 */
#include <stdbool.h>
#include <stdint.h>

struct Hd__LocatedBlockProto;
struct blk;
struct inode;
struct method;
struct nn;
struct req;

/** A name that can hold a lease: it goes into the inode, where an empty one means "closed". */
int uc_check_client(struct req *q, const char *client);
/** What a client speaks of: by @id when not 0, else by @path; of a long file perhaps only the end
 *  of its blocks (inode_get_tail()). FileNotFoundException. */
int uc_find(struct req *q, const char *path, uint64_t id, const char *client, struct inode **ret,
	    const char **ret_path);
/** The open file a client speaks of: by @id when not 0, else by @path. Its lease must be
 *  @client's. FileNotFoundException, LeaseExpiredException. */
int uc_find_open(struct req *q, const char *path, uint64_t id, const char *client,
		 struct inode **ret);
/** Its lease is @client's. @path and @id for the message. */
int uc_check_lease(struct req *q, const struct inode *n, const char *path, uint64_t id,
		   const char *client);
/** May @client open @n, for @op ("APPEND_FILE")? A closed file: yes. One whose writer is silent
 *  past the soft limit: yes when nothing must be recovered, then uc_release() belongs to the
 *  change; else recovery is started and RecoveryInProgressException thrown.
 *  AlreadyBeingCreatedException. */
int uc_check_open(struct req *q, const struct inode *n, const char *op, const char *path,
		  const char *client);
/** Take the lease of a writer that is gone; the caller puts the inode. */
void uc_release(struct req *q, struct inode *n);
/** Give @n a writer; the caller puts the inode. */
void uc_lease(struct req *q, struct inode *n, const char *client, const char *host);
/** "PATH (inode ID) [Lease.  Holder: NAME, pending creates: N]", the end of a lease's exceptions.
 */
const char *uc_lease_text(struct req *q, const char *path, uint64_t id, const char *client);
/** May @n use @more bytes than now? Changes nothing. */
int uc_check_space(struct req *q, const struct inode *n, int64_t more);
/** Check and charge the quotas above @n for a change of its space from @before. Before any write.
 */
int uc_space_changed(struct req *q, const struct inode *n, uint64_t before);
/** Is the last block of @n being recovered, or is that about to begin? Its replicas get a new stamp
 *  then: no word of a writer on it counts any more. */
bool uc_is_recovered(const struct req *q, const struct inode *n);
/** The first block of @n, which was just made, for *@ret: one change, and one wait for the disk,
 *  for both. Left undone where addBlock has something to say: no nodes, a quota, a group. Puts the
 *  inode. */
int uc_first_block(struct req *q, struct inode *n, struct Hd__LocatedBlockProto **ret);
/** No more writer, and nobody who waits for reports of its last blocks: puts the inode. The last
 * change of it in its call. */
int uc_close(struct req *q, struct inode *n);
/** Take the lease over for @holder and close, at once or by block recovery. */
int uc_recover(struct req *q, struct inode *n, const char *holder, bool *ret_closed);
/** Every node that may have a unit of the open group @b is one of its targets. */
bool uc_knows_units(const struct nn *nn, const struct blk *b);
/** Is the last block of @n, bytes of which are known, on no node, and can it come back from none
 *  that it was written to? */
bool uc_is_lost(const struct nn *nn, const struct inode *n, const struct blk *b);
/** Close @n with the last block as it is known: it is missing until a node reports it so. Puts the
 *  inode. */
int uc_close_lost(struct req *q, struct inode *n);
/** Internal change: uc_recover() of inode q->arg. */
extern const struct method file_recover_method;
/** Internal change: inode q->arg has been read. */
extern const struct method file_touch_method;
