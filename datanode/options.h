/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * options - what the configuration says to the data node, checked
 *
 * Idea: every value is parsed once, at start, with an error that names the key.
 * Ownership: dn_options_fini() frees; strings are the options' own.
 * Threading: main thread.
 * Source: hdfs-default.xml.
 */
#include "common/reactor/placement.h"
#include "datanode/dn.h"

#define DN_DIRS_MAX 64

struct dn_options {
	struct store_volume_opts dirs[DN_DIRS_MAX]; /* paths owned */
	uint32_t dir_count;
	uint32_t failed_tolerated; /* directories, at start */
	uint32_t disks_min;        /* that must work later */
	uint32_t dir_mode;
	bool pinning;           /* dfs.datanode.block-pinning.enabled */
	bool available_space;   /* dfs.datanode.fsdataset.volume.choosing.policy */
	bool delete_duplicates; /* dfs.datanode.duplicate.replica.deletion */
	struct store_scan_opts scan;
	uint64_t answer_ms;     /* dfs.datanode.disk.check.timeout */
	uint32_t open_replicas; /* dfs.rdma.open.replicas */
	uint64_t index_ms;      /* dfs.rdma.replica.index.interval */
	struct net_addr data_addr, ipc_addr, http_addr;
	char host_name[256];
	uint32_t reactors;
	int32_t spin_us; /* of each */
	struct placement place;
	bool sync_on_close;
	uint32_t ec_xmits_pct;
	uint32_t stop_grace_ms;
};

/** -EINVAL or -ENOENT (unknown host) with the key in @err. */
int dn_options_read(const struct conf *conf, struct dn_options *ret, struct err *err);
void dn_options_fini(struct dn_options *o);
/** The part about data directories (volume_options.c); called by dn_options_read(). */
int dn_volume_options_read(const struct conf *conf, struct dn_options *o, struct err *err);
