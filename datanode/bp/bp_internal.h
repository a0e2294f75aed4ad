/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * bp_internal - what the files of datanode/bp share; nobody else includes this
 *
 * Threads of an actor: beat (register.c, heartbeat.c) registers and beats, and never waits for
 * anything else; report (block_report.c) sends the changes that the store tells of and the full
 * reports; command
 * (command.c) obeys; lifeline (heartbeat.c), where it is configured, speaks when the beat does not
 * get through. Block recoveries (block_recovery.c) take a thread each, because they wait for other
 * nodes. The cache (cached_blocks.c) has one.
 */
#include <pthread.h>
#include <uthash.h>

#include "DatanodeProtocol.pb-c.h"
#include "InterDatanodeProtocol.pb-c.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/rpc/client.h"
#include "datanode/bp/bp.h"
#include "datanode/bp/cached_blocks.h"

#define NN_ACTORS_MAX 32
/* answers with commands waiting; the NameNode repeats what is dropped */
#define NN_COMMANDS_MAX 64
/* at one time, of the replicas of one volume; as many of blocks that have none here */
#define NN_RECOVERIES_MAX 16
/* of each of these, that wait for one to end; and for how long: a NameNode gives an order up after
 * 30 heartbeats, and gives it to another node */
#define NN_RECOVERIES_WAITING_MAX 1024
#define NN_RECOVERY_WAIT_MS 60000 /* after 90 s the NameNode gives a new order */
#define NN_NOTES_MAX 256          /* bad blocks and errors waiting to be reported, each */
#define NN_RETRY_MS 1000
#define NN_VERSION_RETRY_MS 5000
#define NN_UNREACHABLE_LOG_MS 60000
#define NN_SLOW_MAX 64 /* peers or disks named in a heartbeat */

enum actor_state {
	ACTOR_WAIT_NAMENODE, /* not registered yet; leaves when the NameNode takes us */
	ACTOR_REGISTERED,    /* beats */
	ACTOR_DEAD,          /* this NameNode will never have us */
};

struct ibr { /* newest event of a block, not yet reported */
	int64_t id;
	struct block block;
	enum store_event event;
	char storage_uuid[BLOCK_UUID_MAX], hint[BLOCK_UUID_MAX];
	UT_hash_handle hh;
};

struct note { /* a corrupt replica, or an error text */
	struct list link;
	struct block block;
	char storage_uuid[BLOCK_UUID_MAX];
	struct dn_target *node; /* owned: another node's replica; NULL: ours */
	uint32_t code;
	char text[256];
};

struct command { /* an answer of the NameNode that holds commands */
	struct list link;
	ProtobufCMessage *answer;         /* owned */
	Hdd__DatanodeCommandProto **list; /* in @answer */
	size_t count;
};

struct trouble { /* calls fail; zeroed: they do not */
	uint64_t since_ns;
	int rc;
	char remote[128]; /* Java class */
	struct log_rate rate;
};

struct nn_addr { /* one NameNode of the configuration */
	char text[300], host[256];
	uint16_t port;
	char service[128];  /* name service; "" without one */
	char lifeline[300]; /* dfs.namenode.lifeline.rpc-address of it; "": none */
};

struct bp_actor {
	struct bp_set *set; /* borrowed: owns us */
	struct nn_addr addr;
	char user[64];
	const char *addr_text;       /* addr.text */
	struct rpc_client *rpc;      /* made by the beat thread, then constant */
	struct rpc_client *lifeline; /* made by the lifeline thread, then constant */
	pthread_t beat, report, command, lifeline_thread;
	uint32_t started;                             /* threads */
	atomic_bool stop;                             /* this actor ends: bp_refresh() */
	atomic_uint_fast64_t last_beat_ns, lifelines; /* last answered heartbeat; lifelines sent */

	pthread_mutex_t lock;       /* everything below */
	pthread_cond_t wake;        /* of all threads but */
	pthread_cond_t report_wake; /* the report thread, which each finalised block wakes */
	enum actor_state state;
	struct err why;                  /* the last failure, or of which ACTOR_DEAD */
	_Atomic(struct block_pool *) bp; /* also read without the lock */
	struct store_namespace ns;
	bool has_ns; /* ns is set: it stays that of the name service */
	char software_version[64], my_ip[64];
	uint64_t capabilities;
	bool beat_now, reregister;
	bool full_due, want_lease; /* a full report is to be made; its lease is to be asked for */
	uint64_t lease;
	uint64_t next_full_ns, last_full_ns;
	struct ibr *pending;
	bool urgent; /* pending holds what the NameNode waits for */
	struct list bad, errors, commands;
	uint32_t bad_count, error_count, command_count;

	/* the beat thread's own */
	struct log_rate stale_claim;
	bool upgrading;
	uint64_t next_slow_ns;
	uint64_t last_lifeline_ns;                   /* the lifeline thread's */
	uint64_t next_cache_ns, last_incremental_ns; /* the report thread's */
};

struct recovery_job;

struct bp_set {
	struct dn *dn; /* borrowed */
	struct bp_actor actors[NN_ACTORS_MAX];
	atomic_uint actor_count;      /* grows only; an actor is whole before it counts */
	pthread_mutex_t refresh_lock; /* one bp_refresh() at a time; taken first */
	/* one NameNode's namespace is taken at a time; before actor locks */
	pthread_mutex_t attach_lock;
	struct cache *cache;        /* owned */
	atomic_bool unknown_logged; /* a command that we do not know was named once */
	atomic_bool stop;
	atomic_uint_fast64_t failed_ms; /* wall clock of the last volume failure */
	pthread_mutex_t lock;           /* everything below; taken inside no actor lock */
	pthread_cond_t changed;
	const struct bp_actor *active[NN_ACTORS_MAX]; /* by the first actor of the pool */
	const struct bp_actor *leader[NN_ACTORS_MAX]; /* that led last, also when none leads now */
	int64_t active_txid[NN_ACTORS_MAX];
	pthread_mutex_t jobs_lock; /* one starts at a time; order: jobs_lock, lock */
	/* with it: struct recovery_job, owned; jobs: with a thread, waiting: for a place */
	struct list jobs, waiting;
};

/* ---- messages.c: our side of messages; what they point at lives in the struct ---- */
struct reg_msg {
	Hdd__DatanodeRegistrationProto reg;
	Hd__DatanodeIDProto id;
	Hd__StorageInfoProto info;
	Hd__ExportedBlockKeysProto keys;
	Hd__BlockKeyProto key;
	struct store_namespace ns;
	char software_version[64], my_ip[64];
};
/** Registration as agreed with this NameNode; takes the actor's lock. */
void reg_msg_fill(struct reg_msg *m, struct bp_actor *a);

struct storage_msg {
	Hd__StorageReportProto report;
	Hd__DatanodeStorageProto storage;
	struct storage_info info;
};
/** Volume @i; false when it is out of service. */
bool storage_msg_fill(struct storage_msg *m, struct dn *dn, uint32_t i, struct block_pool *bp);

Hd__ExtendedBlockProto extended_block(const struct block_pool *bp, const struct block *b);
/** Fails on text that does not fit. -EPROTO. */
int target_from_proto(const Hd__DatanodeInfoProto *p, struct dn_target *ret);

/* ---- bp.c ---- */
/** The process or this actor ends. */
bool actor_stops(const struct bp_actor *a);
/** Make a client of @host as @o says (protocol, addr_text, addr_key) and put it to its @place in
 *  the actor: its calls end when the actor is to stop. */
int actor_client(struct bp_actor *a, struct rpc_client **place, const char *host, uint16_t port,
		 struct rpc_client_opts *o, struct err *err);
/** @state, and @why when it is a bad one; wakes who waits. */
void actor_set_state(struct bp_actor *a, enum actor_state state, const struct err *why);
int actor_call(struct bp_actor *a, const char *method, const ProtobufCMessage *req,
	       const ProtobufCMessageDescriptor *resp_desc, ProtobufCMessage **ret,
	       struct err *err);
/** Sleep until woken, @ms or the end. The actor's lock is held. */
void actor_wait_locked(struct bp_actor *a, uint64_t ms);
void actor_wait_on_locked(struct bp_actor *a, pthread_cond_t *wake, uint64_t ms);
/** All threads of the actor look anew. */
void actor_wake_locked(struct bp_actor *a);
void actor_command(struct bp_actor *a, ProtobufCMessage *answer, Hdd__DatanodeCommandProto **list,
		   size_t count);
/** Does this NameNode lead its pool? */
bool actor_is_active(struct bp_actor *a);

/* ---- register.c ---- */
/** Until registered; false at the end, or when this NameNode is out of question (ACTOR_DEAD). */
bool actor_register(struct bp_actor *a);
/** Exceptions that refuse us (hdfs-wire 1.5): true, and @err says cause and cure. */
bool actor_explain(struct bp_actor *a, struct err *err);
/** This NameNode is left alone: logged, ACTOR_DEAD. */
void actor_give_up(struct bp_actor *a, const char *op, const struct err *err);
/** One line when a trouble begins or changes, then one a minute. */
void actor_log_trouble(struct bp_actor *a, struct trouble *t, const struct err *err);
/** Keys of block tokens, as the NameNode handed them over. */
void actor_take_keys(struct bp_actor *a, const Hd__ExportedBlockKeysProto *keys);

/* ---- block_report.c ---- */
void report_on_block(struct bp_actor *a, const char *storage_uuid, const struct block *b,
		     enum store_event ev, const char *hint);
void report_on_bad(struct bp_actor *a, const char *storage_uuid, const struct block *b);
/** A replica of another node, of which the storage is not known. */
void report_on_bad_at(struct bp_actor *a, const struct dn_target *node, const struct block *b);
void report_on_error(struct bp_actor *a, uint32_t code, const char *text);
void *report_thread(void *actor);
void report_drop_pending(struct bp_actor *a);

/* ---- command.c ---- */
void *command_thread(void *actor);

/* ---- reconstruct_command.c ---- */
/** Hand each order to the data port; takes over nothing of @cmd. */
void reconstruct_start(struct bp_actor *a, const Hdd__BlockECReconstructionCommandProto *cmd);

/* ---- block_recovery.c ---- */
/** Start the recovery of each block in a thread of its own, now or when others of its volume have
 *  ended; takes over nothing of @cmd. */
void recovery_start(struct bp_actor *a, const Hdd__BlockRecoveryCommandProto *cmd);
/** After set->stop: wait for all. */
void recovery_join(struct bp_set *s);

/* ---- heartbeat.c ---- */
/** Beats until told to register anew (true), or the end (false). */
bool actor_beat_on(struct bp_actor *a);
void *lifeline_thread(void *actor);

/* ---- namenode_addrs.c ---- */
/** NameNodes of the configuration: dfs.nameservices and its keys, dfs.namenode.servicerpc-address,
 *  dfs.namenode.rpc-address, fs.defaultFS. -EINVAL. */
int nn_addrs(const struct conf *conf, struct nn_addr *ret, uint32_t max, uint32_t *ret_count,
	     struct err *err);
