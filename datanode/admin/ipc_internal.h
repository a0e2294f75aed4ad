/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** ipc_internal - what the files of the RPC port share; nobody else includes this
 *
 * ipc.c is the server and the dispatch, ipc_access.c knows who may call what, ipc_inter.c speaks
 * with other data nodes, ipc_client.c with clients and administrators, reconfig.c changes settings.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "HdfsServer.pb-c.h"
#include "common/reactor/reactor.h"
#include "common/rpc/server.h"
#include "datanode/admin/ipc.h"

struct reconfig; /* datanode/admin/reconfig.h */

#define IPC_USERS_MAX 32

/* A user and the groups that it was in a while ago. */
struct ipc_user {
	char *name;
	char **groups;
	int n;
	uint64_t until_ns, used_ns; /* good until then; last used */
	bool allowed;               /* an administrator, because of a group */
};

struct ipc {
	struct dn *dn; /* borrowed: owns us */
	struct rpc_server *server;
	struct rpc_service services[3];
	struct reconfig *reconfig;       /* owned */
	struct auth_to_local *names;     /* owned */
	struct service_acl *service_acl; /* owned; NULL: everybody may call everything */
	atomic_uint asking;              /* calls for whom the accounts are asked */
	pthread_mutex_t users_lock;
	char user[256];  /* that this node runs as; "": not known yet */
	bool user_known; /* by the accounts; else they are asked again */
	uint64_t user_asked_ns;
	struct ipc_user *users[IPC_USERS_MAX]; /* owned, or NULL: who was asked about lately */
	uint64_t started_ns;
	atomic_uint running;        /* calls on helper threads */
	atomic_bool closed, ending; /* ending: shutdownDatanode was heard */
	struct rmsg close_msg;
};

struct ipc_method {
	const char *name;
	const ProtobufCMessageDescriptor *request;
	/** Answers the call. On a helper thread: of the volume of block(), if there is one, else it
	 * is to ask no disk. */
	void (*run)(struct ipc *i, struct rpc_call *call, const ProtobufCMessage *request);
	/** Of whose replica run() may use the files; NULL: of none. */
	const Hd__ExtendedBlockProto *(*block)(const ProtobufCMessage *request);
};

/* Tables end with a NULL name. */
extern const struct ipc_method inter_methods[], client_methods[], reconfig_methods[];

/** The pool; NULL: the call is answered with an exception. */
struct block_pool *ipc_pool(struct ipc *i, struct rpc_call *call, const char *id);
/** Exception of the class that a peer expects for an errno of the store. */
void ipc_fail(struct rpc_call *call, int rc, const struct err *err);

/* ---- ipc_access.c ---- */
/** May the caller use the protocol (hadoop-policy.xml)? False: the call is answered with an
 *  exception. Blocks. */
bool ipc_may_call(struct ipc *i, struct rpc_call *call);
/** May the caller give orders to this node? It must be the user that this node runs as, or a member
 *  of dfs.permissions.superusergroup. False: the call is answered with an exception. Blocks. */
bool ipc_is_admin(struct ipc *i, struct rpc_call *call);
/** Before the first call. */
void ipc_access_init(struct ipc *i);
void ipc_access_fini(struct ipc *i);
