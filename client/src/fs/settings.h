/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * settings - the configuration keys this library reads, parsed once
 *
 * Idea: names and defaults are Hadoop's (hdfs-default.xml, core-default.xml) where a key exists
 * there.
 * Units: in the names.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/conf.h"
#include "common/base/crc.h"
#include "common/base/err.h"
#include "common/transport/verbs.h"

enum rdma_mode { RDMA_AUTO, RDMA_REQUIRE, RDMA_OFF };
enum replace_policy { REPLACE_DEFAULT, REPLACE_ALWAYS, REPLACE_NEVER };

enum ec_flush { EC_FLUSH_GROUP, EC_FLUSH_IGNORE };

enum hint { HINT_NONE, HINT_NO, HINT_YES }; /* to data nodes, when it is set at all */

#define RETRY_STEPS_MAX 8

struct settings {
	enum rdma_mode rdma;    /* dfs.client.rdma */
	enum crc_type crc_type; /* dfs.checksum.type */
	bool use_hostname;      /* dfs.client.use.datanode.hostname */
	bool replace_enable;    /* dfs.client.block.write.replace-datanode-on-failure.* */
	bool replace_best_effort;
	enum replace_policy replace_policy;
	uint32_t socket_timeout_ms;        /* dfs.client.socket-timeout */
	uint32_t connect_timeout_ms;       /* ipc.client.connect.timeout, data connections too */
	uint32_t connect_retries;          /* ipc.client.connect.max.retries */
	uint32_t failovers_max;            /* dfs.client.failover.max.attempts */
	uint32_t failover_connect_retries; /* dfs.client.failover.connection.retries */
	uint32_t failover_base_ms;         /* dfs.client.failover.sleep.base.millis */
	uint32_t failover_max_ms;          /* dfs.client.failover.sleep.max.millis */
	uint32_t retries_max;              /* dfs.client.retry.max.attempts */
	uint32_t startup_ms;               /* dfs.client.retry.startup.safe-mode.millis */
	bool retry_enabled;                /* dfs.client.retry.policy.enabled */
	/* of dfs.client.retry.policy.spec: ms,times,ms,times... */
	uint32_t retry_steps;
	struct {
		uint32_t pause_ms, times;
	} retry[RETRY_STEPS_MAX];
	uint32_t packet_size;         /* dfs.client-write-packet-size, header and CRCs too */
	uint32_t window_packets;      /* dfs.client.write.max-packets-in-flight */
	uint32_t block_write_retries; /* dfs.client.block.write.retries */
	uint32_t acquire_failures;    /* dfs.client.max.block.acquire.failures */
	enum hint drop_reads;         /* dfs.client.cache.drop.behind.reads */
	enum hint drop_writes;        /* dfs.client.cache.drop.behind.writes */
	bool has_readahead;           /* dfs.client.cache.readahead: bytes */
	uint64_t readahead;
	uint64_t eager_limit;  /* dfs.rdma.eager.limit; 0: calibrated */
	uint32_t rdma_wait_ms; /* dfs.rdma.pool.wait */
	/* dfs.rdma.traffic.class, .ack.timeout, .retries, .relaxed.ordering */
	struct verbs_tuning rdma_tuning;
	enum verbs_windows rdma_windows; /* dfs.rdma.windows */
	int32_t rdma_spin_us;            /* of its reactor */
	bool onesided;                   /* dfs.rdma.onesided is auto */
	enum ec_flush ec_flush;          /* dfs.client.ec.flush */
	bool ec_without_parity;          /* dfs.client.ec.without.parity is allow */
	/* dfs.client.write.exclude.nodes.cache.expiry.interval.millis */
	uint32_t exclude_ms;
	uint32_t umask; /* fs.permissions.umask-mode */
	struct {        /* dfs.client.read.shortcircuit, */
		/* unless a path is missing, or dfs.client.rdma is require */
		bool enabled;
		const char *path;    /* dfs.domain.socket.path; the configuration's */
		bool skip_checksum;  /* .skip.checksum */
		uint32_t cache_size; /* .streams.cache.size, in replicas */
		uint32_t expiry_ms;  /* .streams.cache.expiry.ms */
		uint32_t disable_s;  /* dfs.domain.socket.disable.interval.seconds */
	} local;
	uint64_t block_size;         /* dfs.blocksize; 0: the server's default */
	uint32_t replication;        /* dfs.replication; 0: the server's */
	uint32_t bytes_per_checksum; /* dfs.bytes-per-checksum; 0: the server's */
};

#define PACKET_BYTES_MAX (15u << 20) /* data nodes refuse packets above 16 MiB, CRCs included */
#define WINDOW_BYTES_MAX (8u << 20)  /* of packets in flight per file */
#define BPC_MAX (1u << 20)           /* bytes per checksum we accept */

/** -EINVAL with key, value and expectation. */
int settings_load(const struct conf *c, struct settings *ret, struct err *err);
/** Payload bytes of a packet: Hadoop's size counts header and CRCs; a whole number of chunks. */
uint32_t settings_packet_payload(uint64_t packet_size, uint32_t bpc);
