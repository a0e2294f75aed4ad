/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * req - one call on its way through the NameNode
 *
 * Idea: a method is a row in a table: name, message types, kind, function. The function gets the
 * decoded request and a struct ns, and either fills q->out or throws; where it runs and when it is
 * answered follows from its kind.
 *   READ    reactor thread, reader's transaction, mem_lock shared (REQ_LOCKS: as it says)
 *   MEMORY  writer thread, no transaction, mem_lock exclusive
 *   CHANGE  writer thread, inside the batch's transaction. It may run again from the start when the
 *           transaction is repeated. So it reads memory and changes it through effects (effect.h);
 *           what it sets directly is the writer's own and may be set twice (nn.hosts_next)
 * Ownership: req_finish() answers and frees. Internal changes have no call.
 * Source: hdfs-wire section 3.
 */
#include <protobuf-c/protobuf-c.h>

#include "common/base/list.h"
#include "common/wire/pb.h"
#include "namenode-shim/namespace/ns.h"
#include "namenode-shim/namespace/retry_cache.h"

struct call_stat;
struct hosts;
struct dn;
struct nn;
struct rpc_call;
struct req;
struct user;
struct req_pool;
struct Hd__DatanodeInfoProto;

enum req_kind { REQ_READ, REQ_MEMORY, REQ_CHANGE };

/* A CHANGE function returns this to be run again when q->wait is there or overdue; a READ function
 * when there is more to walk (tree_walk.h); a MEMORY function when it has done a slice of its work.
 */
#define REQ_PARK 1

enum req_flag {
	REQ_ONCE = 1,        /* at most once: retry cache */
	REQ_SAFE_OK = 2,     /* a change that safe mode allows */
	REQ_SUPER = 4,       /* super-user only */
	REQ_MEM = 8,         /* its steps (REQ_PARK) look at what mem_lock guards */
	REQ_LOCKS = 16,      /* a READ that takes mem_lock itself, not while it reads the disk */
	REQ_NAMES_USER = 32, /* prepared by looking up a user whom the caller names */
	REQ_GROUPS = 64,     /* asks for the groups of its caller, even of the super-user */
};

struct method {
	const char *name;
	const ProtobufCMessageDescriptor *in, *out;
	enum req_kind kind;
	unsigned int flags;
	int (*run)(struct req *q, const void *in);
	/* NULL, or what may take long: runs on the resolver thread before the request comes to the
	 * writer, without locks, q->ns or an answer. Not for READ. */
	void (*prepare)(struct req *q);
};

#define REQ_SEEN_MAX 16

/* A deadline that is over: the request runs again as soon as the disk has its batch. */
#define WAIT_FOR_BATCH 1

/* What a parked request waits for when the disk has its batch: a finalized replica of @b or
 * another count of what is cached than @count_ns. */
struct req_wait {
	struct block b;
	uint64_t deadline_ns; /* 0: not parked yet */
	uint64_t count_ns;    /* nn->cache.ended_ns when it was parked */
	bool for_count;
};

struct req {
	struct list link;
	struct nn *nn;               /* borrowed */
	struct rpc_call *call;       /* owned until answered; NULL: internal */
	const struct method *method; /* static */
	ProtobufCMessage *in;        /* owned, in room */
	struct pb_room room;
	struct arena mem;
	struct call_stat *stat; /* borrowed, or NULL */
	uint64_t since_ns;
	struct exception_info exception;
	struct effect_list effects;
	struct ns ns;
	struct retry_cache_key key;
	ProtobufCMessage *replayed; /* owned: answer found in the retry cache */
	ProtobufCMessage *out;      /* in mem, or replayed */
	int rc;
	bool early; /* may be answered before the disk has it (nn.h) */
	struct req_wait wait;
	bool datanode; /* of a protocol of data nodes: no right depends on who its caller is */
	struct user *caller, *asked;   /* held, or NULL: whose groups it needs (users.h) */
	struct hosts *hosts;           /* owned: prepared by refreshNodes until it is taken */
	char *prepare_error;           /* owned: or why not */
	struct ns_summing *summing;    /* owned, or NULL: what a summary has counted so far */
	uint64_t stored;               /* bytes that data nodes have of that */
	struct block_walk *block_walk; /* owned, or NULL: how far getBlocks is */
	struct tree_check *tree;       /* owned, or NULL: how far a delete is */
	struct cache_walk *cache_walk; /* owned, or NULL: what a cache directive needs */
	struct report_walk *report;    /* owned, or NULL: how far a full block report is */
	/* how far another list is, of a MEMORY call that makes slices: entry, and in it */
	size_t at, within;
	bool begun;              /* a slice was made: the caller may call it */
	uint64_t waits_for_tree; /* answered when this tree is gone (tree_delete.h); 0: at once */
	uint64_t arg;            /* internal changes: an inode id */
	struct {
		const struct dn *dn;
		struct Hd__DatanodeInfoProto *info; /* in mem */
	} seen[REQ_SEEN_MAX];                       /* nodes described in this answer already */
	uint32_t nseen;
};

/** nn->reqs: any thread takes and gives. */
void req_pool_init(struct req_pool *p);
void req_pool_fini(struct req_pool *p);

/** Takes @call; NULL: internal. */
struct req *req_new(struct nn *nn, const struct method *m, struct rpc_call *call);
/** Decode what @q is to do. False: malformed; it has been answered, @q is gone. */
bool req_decode(struct req *q);
/** The name of its caller. */
const char *req_user(const struct req *q);
/** Will anybody ask for the groups of its caller? */
bool req_needs_groups(const struct req *q);
/** Forget what an earlier run left; ready to run on @t. */
void req_reset(struct req *q, struct txn *t);
/** Safe mode, rights, retry cache, then the method. Sets and returns q->rc. */
int req_run(struct req *q);
/** AuthorizationException unless the caller may use the protocol (service_acl.h). */
int req_check_service(struct req *q);
/** AccessControlException unless the caller is super-user. @operation: as HDFS names it; NULL: the
 *  method. */
int req_need_super(struct req *q, const char *operation);
/** SafeModeException when safe mode is on: for a REQ_SAFE_OK that has something to say before. */
int req_check_safe(struct req *q);
/** Answer and free. */
void req_finish(struct req *q);

/** An answer of type @type in the arena of the call. */
#define req_reply(q, type, init_fn)                                                                \
	({                                                                                         \
		type *m_ = arena_new(&(q)->mem, type);                                             \
		init_fn(m_);                                                                       \
		(q)->out = &m_->base;                                                              \
		m_;                                                                                \
	})
#define req_new_msg(q, type, init_fn)                                                              \
	({                                                                                         \
		type *m_ = arena_new(&(q)->mem, type);                                             \
		init_fn(m_);                                                                       \
		m_;                                                                                \
	})
