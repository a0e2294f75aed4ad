/* SPDX-License-Identifier: Apache-2.0 */
/* admin report: what the NameNode knows of its data nodes. */
#include <string.h>

#include "common/base/clock.h"
#include "tools/cli.h"

static const char *state_name(enum dfs_node_state s)
{
	switch (s) {
	case DFS_NODE_NORMAL:
		return "normal";
	case DFS_NODE_DECOMMISSIONING:
		return "decommissioning";
	case DFS_NODE_DECOMMISSIONED:
		return "decommissioned";
	case DFS_NODE_ENTERING_MAINTENANCE:
		return "entering maintenance";
	case DFS_NODE_IN_MAINTENANCE:
		return "in maintenance";
	}
	return "unknown";
}

static void print_node(const struct cli *c, const struct dfs_node *n, bool live, bool first)
{
	char cap[32], used[32], left[32];
	uint64_t now = clock_wall_ms();
	uint64_t age_ms = now > n->last_update_ms ? now - n->last_update_ms : 0;

	if (!c->json) {
		printf("%s:%u (%s)  %s, %s\n  capacity %s, used %s, remaining %s, blocks %u, connections %u\n"
		       "  http %s:%u, rpc %s:%u, uuid %s, last heartbeat %.1f s ago\n",
		       n->ip, n->xfer_port, n->host, live ? "live" : "dead", state_name(n->state),
		       cli_size(cap, n->capacity, true), cli_size(used, n->used, true),
		       cli_size(left, n->remaining, true), n->block_count, n->connections, n->ip,
		       n->info_port, n->ip, n->ipc_port, n->uuid, (double)age_ms / 1000);
		return;
	}
	printf("%s{\"address\": \"%s:%u\", \"host\": ", first ? "" : ",\n  ", n->ip, n->xfer_port);
	cli_json_string(stdout, n->host);
	printf(", \"http\": \"%s:%u\", \"rpc\": \"%s:%u\", \"uuid\": ", n->ip, n->info_port, n->ip,
	       n->ipc_port);
	cli_json_string(stdout, n->uuid);
	printf(", \"live\": %s, \"state\": \"%s\", \"capacity\": %llu, \"used\": %llu,"
	       " \"remaining\": %llu, \"blocks\": %u, \"connections\": %u, \"last_heartbeat_ms\": %llu}",
	       live ? "true" : "false", state_name(n->state), (unsigned long long)n->capacity,
	       (unsigned long long)n->used, (unsigned long long)n->remaining, n->block_count,
	       n->connections, (unsigned long long)n->last_update_ms);
}

static void print_totals(const struct cli *c, const struct dfs_statfs *s, size_t live, size_t dead)
{
	char cap[32], used[32], left[32];

	if (c->json)
		printf("{\"filesystem\": \"%s\", \"capacity\": %llu, \"used\": %llu, \"remaining\": %llu,"
		       " \"under_replicated\": %llu, \"corrupt\": %llu, \"missing\": %llu, \"live\": %zu,"
		       " \"dead\": %zu,\n \"datanodes\": [",
		       dfs_uri(c->fs), (unsigned long long)s->capacity, (unsigned long long)s->used,
		       (unsigned long long)s->remaining, (unsigned long long)s->under_replicated,
		       (unsigned long long)s->corrupt_blocks, (unsigned long long)s->missing_blocks, live,
		       dead);
	else
		printf("%s: capacity %s, used %s, remaining %s\n"
		       "blocks: %llu under-replicated, %llu corrupt, %llu missing\n"
		       "data nodes: %zu live, %zu dead\n\n",
		       dfs_uri(c->fs), cli_size(cap, s->capacity, true), cli_size(used, s->used, true),
		       cli_size(left, s->remaining, true), (unsigned long long)s->under_replicated,
		       (unsigned long long)s->corrupt_blocks, (unsigned long long)s->missing_blocks, live,
		       dead);
}

int cmd_admin(struct cli *c)
{
	struct dfs_nodes *live = NULL, *dead = NULL;
	struct dfs_err err = {0};
	struct dfs_statfs s;

	if (strcmp(c->argv[0], "report")) {
		fprintf(stderr, "dfs admin: unknown operation '%s'; there is: report\n", c->argv[0]);
		return EXIT_USAGE;
	}
	if (dfs_statfs(c->fs, &s, &err) < 0 || dfs_nodes(c->fs, DFS_NODES_LIVE, &live, &err) < 0 ||
	    dfs_nodes(c->fs, DFS_NODES_DEAD, &dead, &err) < 0) {
		dfs_nodes_free(live);
		return cli_fail(c, NULL, err.text);
	}
	print_totals(c, &s, live->count, dead->count);
	for (size_t i = 0; i < live->count; i++)
		print_node(c, &live->node[i], true, i == 0);
	for (size_t i = 0; i < dead->count; i++)
		print_node(c, &dead->node[i], false, i == 0 && !live->count);
	if (c->json)
		printf("]}\n");
	dfs_nodes_free(live);
	dfs_nodes_free(dead);
	return EXIT_OK;
}
