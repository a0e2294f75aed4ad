/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * file - files under construction: lease, closing, recovery of an abandoned last block
 *
 * Idea: one writer at a time, named in the inode. When the writer is gone its file is recovered: the
 * last block gets a new stamp (the recovery id), one node makes the replicas equal
 * (BlockRecoveryCommand) and reports with commitBlockSynchronization; then the file is closed.
 * Threading: writer thread, inside a change.
 * Source: hdfs-wire 8.3, 8.4.
 */
#include <stdbool.h>
#include <stdint.h>

struct inode;
struct method;
struct req;

/** The open file a client speaks of: by @id when not 0, else by @path. Its lease must be
 *  @client's. FileNotFoundException, LeaseExpiredException. */
int file_find_open(struct req *q, const char *path, uint64_t id, const char *client,
		   struct inode **ret);
/** Its lease is @client's. @path for the message. */
int file_check_lease(struct req *q, const struct inode *n, const char *path, const char *client);
/** Another client holds @n open: the exception says whether to wait; a lease past its soft limit
 *  starts recovery. */
int file_busy(struct req *q, const struct inode *n, const char *path, const char *client);
/** No more writer: puts the inode. */
int file_close(struct req *q, struct inode *n);
/** Take the lease over and close, at once or by block recovery. */
int file_recover(struct req *q, struct inode *n, bool *ret_closed);
/** Internal change: file_recover() of inode q->arg. */
extern const struct method file_recover_method;
