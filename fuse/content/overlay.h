/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * overlay - what was written into the middle of a file, until it is published
 *
 * Idea: a sparse local file holds the bytes that are new, a sorted list of extents says which; the
 * rest is still in HDFS (the base). Bytes that are in neither are zeros. A second local file, of
 * text, records what the list says, so that both outlive the process: overlay_load() makes an
 * overlay of them again. A line of it is written after the bytes it speaks of, and only when the
 * list changes, or first after a publication.
 * Ownership: both files go with overlay_free(). One budget bounds all overlays.
 * Threading: the owner's lock (inode.content); the budget is atomic.
 * Units: bytes from the start of the file.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/include/dfsclient.h"

#define OVERLAY_EXTENTS_MAX 65536 /* of one file; -EFBIG: sync it in between */

struct overlay_budget {
	atomic_uint_fast64_t used; /* bytes of extents in all overlays */
	uint64_t limit;
};

struct overlay;

/** The base: which file, as it was when the overlay began, and who writes. */
struct overlay_of {
	uint64_t id, length, mtime_ms;
	uint32_t uid;
	uint64_t dir_id; /* where it was, under @name; "": not known */
	char name[DFS_NAME_MAX + 1];
};

/** Bytes of the base at @offset, exactly @len of them; 0 or -errno. */
typedef int overlay_base_fn(void *arg, void *buf, size_t len, uint64_t offset);

/** Over @of; the local files lie in directory @dir (borrowed) and have the number @n. -ENOMEM, or
 * what open(2) says. */
int overlay_new(int dir, uint64_t n, struct overlay_budget *b, const struct overlay_of *of,
		struct overlay **ret);
/** What a dead mount has left as number @n in @dir. -EINVAL: its record makes no sense. */
int overlay_load(int dir, uint64_t n, struct overlay_budget *b, struct overlay **ret);
/** Its files go, too. */
void overlay_free(struct overlay *o);
/** Its files stay. */
void overlay_leave(struct overlay *o);
const struct overlay_of *overlay_base(const struct overlay *o);
/** The whole content is about to take the place of the base, as HDFS file @id. */
int overlay_note_new(struct overlay *o, uint64_t id);
/** 0: nothing was about to. */
uint64_t overlay_new_id(const struct overlay *o);
/** Was it written or cut after overlay_note_new()? Then that file does not hold all of it. */
bool overlay_is_changed_since(const struct overlay *o);
/** That file, which has @mtime_ms, has taken the place of the base: it is the base from now on. */
int overlay_take_new(struct overlay *o, uint64_t mtime_ms);
/** The base is about to be cut: all that is needed behind the cut is in the overlay. */
int overlay_note_cut(struct overlay *o);
bool overlay_is_cut(const struct overlay *o);
uint64_t overlay_length(const struct overlay *o);
/** The first byte that may differ from the base; the length when none does. */
uint64_t overlay_first_change(const struct overlay *o);
/** May a byte of [@start, @end) differ from the base? */
bool overlay_is_changed(const struct overlay *o, uint64_t start, uint64_t end);
/** All of it, or: -ENOSPC the budget or the disk is used up, -EFBIG too many extents, -EIO. */
int overlay_write(struct overlay *o, const void *buf, size_t len, uint64_t offset);
/** Up to @len bytes; less only at the end. -errno of the base or the local file. */
ssize_t overlay_read(struct overlay *o, void *buf, size_t len, uint64_t offset,
		     overlay_base_fn *base, void *arg);
/** A longer file ends in zeros. */
int overlay_truncate(struct overlay *o, uint64_t length);
/** [@offset, @offset + @len) becomes zeros; the length stays. */
int overlay_zero(struct overlay *o, uint64_t offset, uint64_t len);
