/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * file_io - read or write all the bytes asked for
 *
 * Idea: pread and pwrite may do a part, or be interrupted; these do not.
 * Threading: any.
 */
#include <stddef.h>
#include <stdint.h>

/** -ENODATA: the file ends before. What was read by then is in @buf. */
int file_read_full(int fd, void *buf, size_t len, uint64_t off);
/** -EIO also when the file takes nothing without saying why. */
int file_write_full(int fd, const void *buf, size_t len, uint64_t off);
