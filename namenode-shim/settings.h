/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** settings - the configuration keys of the NameNode, read once. Times in milliseconds. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/net.h"
#include "namenode-shim/namespace/ecpolicy.h"
#include "namenode-shim/namespace/trash.h"

struct conf;

#define NN_VERSION "3.4.2" /* what stock nodes and clients compare with */
#define NN_LAYOUT (-67)    /* of the Hadoop release above */
/* complete() waits so long for the node's report before it says false */
#define NN_PARK_MS 2000
#define NN_RECOVERY_MS 90000 /* between two attempts to recover one block, as HDFS */
#define NN_LIMIT_MAX 10000   /* of the limits below: what is ordered in one answer stays small */

/* What names, paths, directories and attributes may be; fs.protected.directories. */
struct ns_limits {
	uint32_t max_component; /* bytes of a name */
	uint32_t max_dir_items; /* entries of a directory */
	char **protected_dirs;  /* owned; NULL-terminated, or NULL */
	uint32_t xattrs_max;    /* user and trusted attributes of an inode */
	uint32_t xattr_bytes;   /* of name and value */
	bool xattrs, acls;      /* calls about them are answered */
	/* default entries filter the mode before the umask, as POSIX has it */
	bool acl_unmasked;
	bool symlinks; /* they may be made */
};

/* How much work data nodes are given. Of a node: */
struct work_limits {
	uint32_t streams;      /* copies under way */
	uint32_t streams_hard; /* of blocks with one replica left, and of a node that leaves */
	uint32_t deletions;    /* in one answer */
	/* Of all: */
	uint32_t orders;    /* found in one look at the queue, times live nodes */
	uint32_t reports;   /* full block reports at a time */
	uint64_t report_ms; /* after so long another one is let in */
};

/* Groups whose units are made again in one answer: it takes a node longer to find the bytes than to
 * send them. */
static inline uint32_t work_rebuilds(const struct work_limits *w)
{
	return 4 * w->streams;
}

/* A node at so many transfers has enough of these in line. */
static inline uint32_t work_busy(const struct work_limits *w)
{
	return 6 * w->streams_hard;
}

struct settings {
	const struct conf *conf; /* borrowed: lives as long as the program */
	char name_dir[4000];
	struct net_addr rpc, http;
	char super_group[256];
	char fixed_groups[8192]; /* see users_new() */
	bool journal;            /* checkpoint.h */
	bool permissions;
	uint64_t block_size, min_block_size;
	uint32_t bytes_per_checksum, write_packet, io_buffer, replication, repl_min, repl_max;
	uint32_t checksum_type; /* enum crc_type */
	uint64_t trash_min;     /* minutes, as clients are told */
	struct trash_rules trash;
	uint64_t heartbeat_ms, recheck_ms, redundancy_ms, pending_ms, redundancy_delay_ms;
	uint64_t dead_keep_ms; /* a dead node is listed so long; 0: for ever */
	struct work_limits work;
	bool satisfier; /* satisfyStoragePolicy is answered */
	bool caching;   /* blocks of cache directives are ordered cached */
	uint64_t cache_scan_ms, cache_retry_ms;
	uint32_t cache_pools_listed, cache_directives_listed; /* in one answer */
	uint64_t stale_ms; /* without a heartbeat; then others are preferred */
	bool avoid_read_stale, avoid_write_stale;
	double stale_ratio;
	uint64_t retry_ms;
	uint64_t decommission_ms; /* between two looks at nodes that leave */
	uint32_t maintenance_min;
	double safe_pct;
	/* live nodes, and replicas of a block, to leave safe mode */
	uint32_t safe_nodes, safe_repl;
	char host[256];     /* of the RPC address, as SafeModeException names it */
	char log_dir[4000]; /* of metaSave */
	uint64_t safe_extension_ms;
	uint32_t ls_limit, max_blocks_per_file;
	uint64_t lease_soft_ms, lease_hard_ms;
	uint64_t recovery_ms;        /* between two attempts to recover one block */
	uint64_t atime_precision_ms; /* 0: access times are not kept */
	struct ns_limits limits;
	struct ec_rules ec;
};

/** -EINVAL, -ENOENT (unknown host), with key, value and cure in @err. */
int settings_load(const struct conf *c, struct settings *ret, struct err *err);
void settings_fini(struct settings *s);
/** Only what --format needs: the directory. */
int settings_name_dir(const struct conf *c, struct settings *ret, struct err *err);
