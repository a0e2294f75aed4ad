/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DFSCLIENT_MEMORY_H
#define DFSCLIENT_MEMORY_H

/**
 * dfsclient_memory - memory of callers, and of the library for them; a part of dfsclient.h
 */
#include "dfsclient.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Memory for reads and writes, aligned to 4 KiB. Where RDMA is in use (dfs.client.rdma is not off,
 * a device is there that has memory windows) it is registered as by dfs_mem_register(), which may
 * start the threads for RDMA; if it is 64 KiB or more, and for 128 such buffers at a time. Where
 * it cannot be registered it is memory like any other, and nothing is said. Free it with
 * dfs_buf_free() before dfs_disconnect(), and not while a call uses it. -ENOMEM; -EINVAL: 0 bytes.
 */
DFS_API int dfs_buf_alloc(struct dfs *fs, size_t len, void **ret, struct dfs_err *err);
/** Waits for nothing: no node, no connection and no device. Accepts NULL. */
DFS_API void dfs_buf_free(struct dfs *fs, void *buf);
/**
 * Register memory of the caller for RDMA. Until dfs_mem_unregister() bytes move from and to it
 * without a copy, when they go by RDMA:
 * - A dfs_pread(), and a dfs_read() of 64 KiB or more, whose whole buffer lies in it. Other reads
 *   are as without: a buffer that is registered in part, bytes by TCP or from files of this
 *   machine, erasure-coded files, dfs_begin_pread(). So are chunks (bytes-per-checksum) of which a
 *   part is read, and what is more than 24 requests of 512 KiB at a time. Such a dfs_read() does
 *   not read ahead: long ones are the faster. Where short and long ones take turns, they share
 *   what the short ones have read ahead.
 * - dfs_write_lent() of bytes that lie in it as a whole. What it copies without is copied with it,
 *   and what is more than 24 packets at a time. dfs_write() copies as ever: its caller has the
 *   bytes back at once, and a wait for the data nodes instead would leave them idle between two
 *   calls.
 * dfs_counters.read_rdma_copied and .write_rdma_copied count the copies, read_tcp and written_tcp
 * what went by TCP.
 * While a read is under way, a data node can write to the bytes of a request, and to nothing else,
 * from when it is asked until its answer is there, by the connection that it was asked on. While
 * bytes are lent, the first data node of the pipeline can read a packet's bytes, and nothing else,
 * from when it is told of the packet until that is acknowledged, by that connection. (Soft RoCE,
 * rdma_rxe, looks at the bounds of the registered stretch alone.) When a read returns, with
 * whatever result, no node can write to its buffer any more; when done() of lent bytes is called,
 * no node can read them. Both may take some seconds more when a node is silent: its connection is
 * ended first.
 * CRCs are checked in the buffer: until a read has returned a count, and after it has failed, the
 * buffer holds anything. CRCs of lent bytes are computed there before they are sent, and a node
 * that fails makes the library send the bytes again from there. If they change before done(), the
 * data nodes find wrong CRCs and store nothing of that; the library takes one node after the other
 * for damaged, and the file fails, with -EIO or, when no other node is left, -ENOSPC.
 * It may be called before anything has been read. The memory is on each device from when the
 * device is first used, or used again after it had gone. While a device is away, bytes go over
 * another one or by TCP. A device that cannot have it (no memory windows of type 2, or the limit
 * of locked memory when it is first used) is named in the log, and what comes over it is copied.
 * The pages are pinned: keep them mapped until dfs_mem_unregister(). After a fork() only the
 * parent may use the library; the child has a copy of the memory, to which no node writes. (Linux
 * before 5.12 has no such copy: there, do not fork.) dfs_disconnect() unregisters what is left.
 * This takes as long as pinning, and may start the threads for RDMA. Meanwhile, and while a device
 * that is used first pins it again, this client makes no other connection by RDMA: a node that is
 * asked then may be reached by TCP for a minute. So register large memory before reading or
 * writing, and read a little once. At most 256 stretches are registered at a time, those of
 * dfs_buf_alloc() too. Fails with -ENOTSUP dfs.client.rdma is off, or no device has memory
 * windows; -ENODEV no RDMA device; -EEXIST it overlaps memory that is registered; -ENOSPC 256
 * stretches are; -EINVAL 0 bytes, or more than a device registers at once; -EFAULT it is no memory
 * that can be written to; -ENOMEM, also for the limit of locked memory, or where the device has no
 * memory windows left: the text says which, and the cure.
 */
DFS_API int dfs_mem_register(struct dfs *fs, void *buf, size_t len, struct dfs_err *err);
/**
 * dfs_mem_register() of memory of another device, a GPU for one: @len bytes of the dma-buf @fd from
 * @offset on, which the caller has mapped at @map. Reads and writes name them by addresses of the
 * mapping, and dfs_mem_unregister() by @map. The RDMA device moves the bytes from and to the other
 * device by itself; the CPU reads them once, through the mapping, for the CRCs, and copies them
 * where dfs_mem_register() says so. Memory without a mapping cannot be had: nobody would check or
 * make its CRCs. @fd may be closed, the mapping must stay. Fails as dfs_mem_register(); -ENOTSUP
 * also: no RDMA device registers dma-bufs (soft RoCE does not); -EBADF, and what its driver says.
 * (Tried with a registration that is played: there was no such device.)
 */
DFS_API int dfs_mem_register_dmabuf(struct dfs *fs, int fd, uint64_t offset, void *map, size_t len,
				    struct dfs_err *err);
/** @buf as it was registered. Beside a call that reads into it, while bytes of it are lent, or
 *  while it is being registered: -EBUSY, at once, and it stays; call again when that is over.
 *  -ENOENT nothing registered begins there. When this returns 0, no device knows of the memory any
 *  more: it may be freed. */
DFS_API int dfs_mem_unregister(struct dfs *fs, void *buf);

#ifdef __cplusplus
}
#endif
#endif
