/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* data_port_internal - shared by data_port.c and data_port_orders.c; no other file includes it. */
#include <pthread.h>

#include "common/base/log.h"
#include "datanode/block/engine.h"
#include "datanode/block/moves.h"
#include "datanode/block/suspects.h"
#include "datanode/data_port/data_port.h"

struct data_port {
	struct dn *dn;
	struct engine_core cores[DN_REACTORS_MAX];
	struct xlistener *listeners[DN_REACTORS_MAX];
	/* of clients of this machine; NULL: not asked for */
	struct xlistener *local_listeners[DN_REACTORS_MAX];
	atomic_uint conns;
	uint64_t pool_bytes;
	bool read_direct;
	struct engine_waits waits;
	struct token_keys *tokens;
	struct log_rate limit_log; /* under lock */
	struct moves moves;
	struct suspects suspects;
	uint64_t restart_keep_ms; /* how long a restart may take until its clients have given up */
	bool own_pool[DN_REACTORS_MAX];
	bool told_small_pages;
	uint32_t next; /* reactor for the next transfer that a NameNode orders */
	pthread_mutex_t lock;
	pthread_cond_t cond;
};
