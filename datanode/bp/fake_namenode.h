/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * fake_namenode - test code: a scripted NameNode on a real socket, for the tests of datanode/bp
 *
 * Idea: the test sets what it answers next and reads what it saw; it decodes with the messages of
 * the wire and asserts what every NameNode of Hadoop may rely on.
 * Ownership: the test's struct; fake_stop() ends the thread.
 * Threading: the server answers on a reactor of its own; everything that both sides touch is
 * atomic.
 */
#include <stdatomic.h>

#include "DatanodeProtocol.pb-c.h"
#include "common/base/net.h"
#include "common/reactor/reactor.h"
#include "common/rpc/server.h"

#define POOL "BP-1-127.0.0.1-1"

struct fake {
	struct reactor *reactor;
	struct rpc_server *server;
	struct rpc_service services[3];
	struct net_addr addr;
	struct rmsg close_msg;
	atomic_bool closed;
	/* the script; set before the call it concerns */
	_Atomic(const char *) cluster, refuse; /* refuse: exception of registerDatanode */
	_Atomic(const char *) pool, version;   /* NULL: the usual ones */
	_Atomic(const char *) beat_throws;     /* exception of sendHeartbeat */
	_Atomic(const char *) init_throws;     /* of initReplicaRecovery: it is a data node, too */
	atomic_bool standby, no_buffers, ask_register, no_lease;
	atomic_int txid, upgrade;                     /* upgrade: 1 in progress, 2 finalised */
	_Atomic(Hdd__DatanodeCommandProto *) command; /* given once */
	/* what was seen */
	atomic_int versions, registrations, beats, fulls, received, receiving, deleted, errors, bad,
		commits;
	atomic_int storages, failed, last_replicas, last_finalized, last_rwr;
	_Atomic uint64_t last_lease, commit_len, commit_gs, last_received_gs;
	_Atomic int64_t last_told; /* block of an incremental report */
	atomic_int commit_nodes, last_rpcs, lifelines, slow_peers, slow_disks, cache_reports,
		cached;
	_Atomic uint64_t cache_capacity;
};

/** Listen at @f->addr (port 0: any; the one taken is filled in). */
void fake_start(struct fake *f);
/** Accepts one that was never started, or stopped. */
void fake_stop(struct fake *f);
