/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * overlay - what was written into the middle of a file, until it is published
 *
 * Idea: a sparse local file holds the bytes that are new, a sorted list of extents says which; the
 * rest is still in HDFS (the base). Bytes that are in neither are zeros.
 * Ownership: the local file has no name: it goes with the process. One budget bounds all overlays.
 * Threading: the owner's lock (inode.content); the budget is atomic.
 * Units: bytes from the start of the file.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define OVERLAY_EXTENTS_MAX 65536 /* of one file; -EFBIG: sync it in between */

struct overlay_budget {
	atomic_uint_fast64_t used; /* bytes of extents in all overlays */
	uint64_t limit;
};

struct overlay;

/** Bytes of the base at @offset, exactly @len of them; 0 or -errno. */
typedef int overlay_base_fn(void *arg, void *buf, size_t len, uint64_t offset);

/** Over a base of @base_length bytes; the local file lies in @dir. -ENOMEM, or what open(2) says. */
int overlay_new(const char *dir, struct overlay_budget *b, uint64_t base_length, struct overlay **ret);
void overlay_free(struct overlay *o);
uint64_t overlay_length(const struct overlay *o);
/** The first byte that may differ from the base; the length when none does. */
uint64_t overlay_first_change(const struct overlay *o);
/** All of it, or: -ENOSPC the budget or the disk is used up, -EFBIG too many extents, -EIO. */
int overlay_write(struct overlay *o, const void *buf, size_t len, uint64_t offset);
/** Up to @len bytes; less only at the end. -errno of the base or the local file. */
ssize_t overlay_read(struct overlay *o, void *buf, size_t len, uint64_t offset, overlay_base_fn *base,
		     void *arg);
/** A longer file ends in zeros. */
int overlay_truncate(struct overlay *o, uint64_t length);
/** [@offset, @offset + @len) becomes zeros; the length stays. */
int overlay_zero(struct overlay *o, uint64_t offset, uint64_t len);
