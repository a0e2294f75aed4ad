/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * hosts - the files that say which nodes may serve, and which are to leave
 *
 * Idea: dfs.hosts lists who may register (nobody listed: everybody), dfs.hosts.exclude who is to be
 * decommissioned; or, with dfs.namenode.hosts.provider.classname naming CombinedHostFileManager,
 * dfs.hosts is JSON with a state for each node. Read at start and by refreshNodes; a set that was
 * read never changes.
 * Ownership: the caller owns the set. Threading: none; judging does not write.
 * Source: HostsFileReader, CombinedHostsFileReader, DatanodeAdminProperties of Hadoop 3.4.2.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct conf;
struct hosts;

#define HOSTS_FILE_MAX (16u << 20) /* bytes of one file */
#define HOSTS_MAX 65536            /* nodes listed */
#define HOSTS_TEXT_MAX 256

enum hosts_state { HOSTS_NORMAL, HOSTS_LEAVE, HOSTS_MAINTENANCE };

struct hosts_verdict {
	bool allowed;
	bool named; /* by dfs.hosts, and not because that names nobody */
	enum hosts_state state;
	uint64_t until_ms;          /* of maintenance; UINT64_MAX: for ever */
	const char *upgrade_domain; /* "" = none; lives as long as the set */
};

/** Names are looked up: may wait for the name service. -ENOENT, -EINVAL, -EFBIG with file and cure.
 */
int hosts_load(const struct conf *c, struct hosts **ret, struct err *err);
/** Accepts NULL. */
void hosts_free(struct hosts *h);
/** @ip: where the node called from; dfs.hosts is matched against nothing else. @host: its own word,
 *  which is enough to be excluded. */
struct hosts_verdict hosts_judge(const struct hosts *h, const char *ip, const char *host,
				 uint32_t port);
