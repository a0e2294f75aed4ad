/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * request_table - what the kernel asks for: how often, how long it took, which errors it got, what
 * is under way
 *
 * Idea: each request of the kernel runs to its end on one thread, so it is counted around its
 * function (requests.c), and an error by the thread that answers with it. Shown by metrics.h.
 * Ownership: everything lies in struct request_table; a request under way is on the stack of its
 * thread.
 * Threading: any thread; `lock` is a leaf, held for a few instructions twice a request.
 * Units: nanoseconds, bytes.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "common/base/list.h"

struct mount;

/* clang-format off */
#define REQUESTS(X) \
	X(lookup) X(forget) X(getattr) X(setattr) X(access) X(statfs) X(mkdir) X(mknod) \
	X(symlink) X(readlink) X(link) X(unlink) X(rmdir) X(rename) X(setxattr) X(getxattr) \
	X(listxattr) X(removexattr) X(opendir) X(readdir) X(readdirplus) X(releasedir) \
	X(fsyncdir) X(create) X(open) X(read) X(write) X(flush) X(release) X(fsync) \
	X(fallocate) X(lseek)
/* clang-format on */

enum request_kind {
#define X(name) REQUEST_##name,
	REQUESTS(X)
#undef X
		REQUEST_KINDS
};

#define COUNTS_BUCKETS 12 /* 0.1 ms, 0.3 ms, 1 ms, ... 10 s, and longer */
#define COUNTS_ERRNOS 134 /* of Linux, 0 is none */

struct request_table {
	pthread_mutex_t lock;
	struct list under_way; /* struct request */
	struct list orphans;   /* struct orphan */
	struct {
		uint64_t count, ns, bucket[COUNTS_BUCKETS];
		uint64_t error[COUNTS_ERRNOS];
	} kind[REQUEST_KINDS];
	uint64_t read_bytes, written_bytes;
	uint64_t published, publish_errors, publish_ns, shared_blocks;
};

/** Where a request has come from, and where an answer would go. */
struct origin {
	int fd;
	uint64_t unique; /* 0: there is none */
	uint64_t ino;
	pid_t pid; /* of the thread that waits; 0: not known */
};

/** What the kernel has released while a request that was given up still works with it; at the start
 * of its struct. */
struct orphan {
	struct list link;
	uint64_t ino;
	void (*free)(struct mount *m, struct orphan *o);
};

/* On the stack of the thread that runs it. */
struct request {
	struct list link;
	struct request_table *c;
	enum request_kind kind;
	struct origin from;
	uint64_t begin_ns;
	uint64_t moved_ns;    /* of the file it is about something has moved since; 0: not yet */
	uint64_t given_up_ns; /* it was answered by the watchdog (watchdog.h) then; 0: not */
	int error;            /* errno it was answered with */
	uint64_t bytes;       /* of data, where it succeeds */
};

void request_table_init(struct request_table *c);
void request_table_fini(struct request_table *c);
void request_table_begin(struct request_table *c, struct request *r, enum request_kind kind,
			 const struct origin *from);
void request_table_end(struct request *r);
/** The request of this thread, if there is one, is answered with @error (0: none), or has moved
 * @bytes. */
void request_table_error(int error);
void request_table_bytes(uint64_t bytes);
/** The request of this thread, if there is one, goes on: it takes long because there is much to do.
 */
void request_table_moved(void);
/** The kernel has released @o: freed now, or with the last request of its file that was given up
 * and goes on. */
void request_table_release(struct mount *m, struct orphan *o);
/** After request_table_end(). */
void request_table_free_orphans(struct mount *m, const struct request *r);
const char *request_table_kind(enum request_kind kind);
void request_table_published(struct request_table *c, int rc, uint64_t ns);
/** Blocks of a published file that were not written again. */
void request_table_shared(struct request_table *c, uint64_t blocks);
/** As Prometheus reads it. */
void request_table_print(struct request_table *c, FILE *f);
