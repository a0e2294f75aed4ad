/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * track - which descriptors of this process are of a simulated disk
 *
 * A simulated disk is a directory below world->dir/disks. What happens to its files happens at
 * once; what a crash of the machine would take back is written down (disk.h).
 */
#include <stdbool.h>
#include <sys/types.h>

bool track_has(int fd);
void track_dup(int fd, int to);
void track_close(int fd);

ssize_t disk_write(int fd, const void *buf, size_t n);
ssize_t disk_pread(int fd, void *buf, size_t n, off_t at);
ssize_t disk_pwrite(int fd, const void *buf, size_t n, off_t at);
int disk_sync(int fd);
