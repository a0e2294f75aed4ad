/* SPDX-License-Identifier: Apache-2.0 */
/* admin: what the NameNode knows of its data nodes and writers, and the switches of an operator. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/net.h"
#include "tools/cli.h"
#include "tools/node_page.h"

#define OPS_PATIENCE_MS 30000
#define HTTP_PORT 9864 /* of a data node, unless it is configured */

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
	char cap[32], used[32], left[32], failed[64] = "";
	uint64_t now = clock_wall_ms();
	uint64_t age_ms = now > n->last_update_ms ? now - n->last_update_ms : 0;

	if (n->failed_volumes)
		snprintf(failed, sizeof(failed), ", %u of its volumes out of service",
			 n->failed_volumes);
	if (!c->json) {
		printf("%s:%u (%s)  %s, %s%s\n  capacity %s, used %s, remaining %s, blocks %u, connections %u\n"
		       "  http %s:%u, rpc %s:%u, uuid %s, last heartbeat %.1f s ago\n",
		       n->ip, n->xfer_port, n->host,
		       !live      ? "dead"
		       : n->stale ? "stale"
				  : "live",
		       state_name(n->state), failed, cli_size(cap, n->capacity, true),
		       cli_size(used, n->used, true), cli_size(left, n->remaining, true),
		       n->block_count, n->connections, n->ip, n->info_port, n->ip, n->ipc_port,
		       n->uuid, (double)age_ms / 1000);
		return;
	}
	printf("%s{\"address\": \"%s:%u\", \"host\": ", first ? "" : ",\n  ", n->ip, n->xfer_port);
	cli_json_string(stdout, n->host);
	printf(", \"http\": \"%s:%u\", \"rpc\": \"%s:%u\", \"uuid\": ", n->ip, n->info_port, n->ip,
	       n->ipc_port);
	cli_json_string(stdout, n->uuid);
	printf(", \"live\": %s, \"state\": \"%s\", \"capacity\": %llu, \"used\": %llu,"
	       " \"remaining\": %llu, \"blocks\": %u, \"connections\": %u, \"last_heartbeat_ms\": %llu,"
	       " \"stale\": %s, \"failed_volumes\": %u}",
	       live ? "true" : "false", state_name(n->state), (unsigned long long)n->capacity,
	       (unsigned long long)n->used, (unsigned long long)n->remaining, n->block_count,
	       n->connections, (unsigned long long)n->last_update_ms, n->stale ? "true" : "false",
	       n->failed_volumes);
}

static size_t count_stale(const struct dfs_nodes *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->count; i++)
		n += l->node[i].stale;
	return n;
}

static void print_totals(const struct cli *c, const struct dfs_statfs *s, size_t live, size_t stale,
			 size_t dead)
{
	char cap[32], used[32], left[32], how[48] = "";

	if (stale)
		snprintf(how, sizeof(how), " (%zu of them stale)", stale);

	if (c->json)
		printf("{\"filesystem\": \"%s\", \"capacity\": %llu, \"used\": %llu, \"remaining\": %llu,"
		       " \"under_replicated\": %llu, \"corrupt\": %llu, \"missing\": %llu, \"live\": %zu,"
		       " \"stale\": %zu, \"dead\": %zu,\n \"datanodes\": [",
		       dfs_uri(c->fs), (unsigned long long)s->capacity, (unsigned long long)s->used,
		       (unsigned long long)s->remaining, (unsigned long long)s->under_replicated,
		       (unsigned long long)s->corrupt_blocks, (unsigned long long)s->missing_blocks,
		       live, stale, dead);
	else
		printf("%s: capacity %s, used %s, remaining %s\n"
		       "blocks: %llu under-replicated, %llu corrupt, %llu missing\n"
		       "data nodes: %zu live%s, %zu dead\n\n",
		       dfs_uri(c->fs), cli_size(cap, s->capacity, true),
		       cli_size(used, s->used, true), cli_size(left, s->remaining, true),
		       (unsigned long long)s->under_replicated,
		       (unsigned long long)s->corrupt_blocks, (unsigned long long)s->missing_blocks,
		       live, how, dead);
}

static int admin_report(struct cli *c)
{
	struct dfs_nodes *live = NULL, *dead = NULL;
	struct dfs_err err = {0};
	struct dfs_statfs s;

	if (dfs_statfs(c->fs, &s, &err) < 0 || dfs_nodes(c->fs, DFS_NODES_LIVE, &live, &err) < 0 ||
	    dfs_nodes(c->fs, DFS_NODES_DEAD, &dead, &err) < 0) {
		dfs_nodes_free(live);
		return cli_fail(c, NULL, err.text);
	}
	print_totals(c, &s, live->count, count_stale(live), dead->count);
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

/* ---- racks ---- */

/* As hdfs dfsadmin -printTopology says it. */
static const char *service_name(enum dfs_node_state s)
{
	switch (s) {
	case DFS_NODE_NORMAL:
		return "In Service";
	case DFS_NODE_DECOMMISSIONING:
		return "Decommission In Progress";
	case DFS_NODE_DECOMMISSIONED:
		return "Decommissioned";
	case DFS_NODE_ENTERING_MAINTENANCE:
		return "Entering Maintenance";
	case DFS_NODE_IN_MAINTENANCE:
		return "In Maintenance";
	}
	return "unknown";
}

static int by_rack(const void *a, const void *b)
{
	const struct dfs_node *x = *(const struct dfs_node *const *)a,
			      *y = *(const struct dfs_node *const *)b;
	const int rack = strcmp(x->rack, y->rack), ip = strcmp(x->ip, y->ip);

	return rack ? rack
	       : ip ? ip
		    : (x->xfer_port > y->xfer_port) - (x->xfer_port < y->xfer_port);
}

static void print_place(struct cli *c, const struct dfs_node *n, const char *last)
{
	if (!c->json) {
		if (!last || strcmp(last, n->rack) != 0)
			printf("%sRack: %s\n", last ? "\n" : "", n->rack);
		printf("   %s:%u (%s) %s\n", n->ip, n->xfer_port, n->host, service_name(n->state));
		return;
	}
	printf("%s{\"rack\": ", last ? ",\n " : "[");
	cli_json_string(stdout, n->rack);
	printf(", \"address\": \"%s:%u\", \"host\": ", n->ip, n->xfer_port);
	cli_json_string(stdout, n->host);
	printf(", \"state\": \"%s\"}", state_name(n->state));
}

static int admin_topology(struct cli *c)
{
	const struct dfs_node **sorted;
	struct dfs_err err = {0};
	struct dfs_nodes *all;

	if (dfs_nodes(c->fs, DFS_NODES_ALL, &all, &err) < 0)
		return cli_fail(c, NULL, err.text);
	sorted = calloc(all->count + 1, sizeof(*sorted));
	for (size_t i = 0; sorted && i < all->count; i++)
		sorted[i] = &all->node[i];
	if (sorted)
		qsort(sorted, all->count, sizeof(*sorted), by_rack);
	for (size_t i = 0; sorted && i < all->count; i++)
		print_place(c, sorted[i], i ? sorted[i - 1]->rack : NULL);
	if (c->json)
		puts(all->count ? "]" : "[]");
	if (!sorted)
		cli_fail_errno(c, "memory", -ENOMEM, NULL);
	free(sorted);
	dfs_nodes_free(all);
	return EXIT_OK;
}

static int admin_bandwidth(struct cli *c)
{
	struct dfs_err err = {0};
	uint64_t bytes;

	if (c->argc < 2 || !cli_parse_size(c->argv[1], INT64_MAX, &bytes)) {
		fprintf(stderr,
			"dfs admin balancer-bandwidth: wants bytes a second, such as 100m\n");
		return EXIT_USAGE;
	}
	if (dfs_set_balancer_bandwidth(c->fs, bytes, &err) < 0)
		return cli_fail(c, NULL, err.text);
	if (c->json)
		printf("{\"bandwidth\": %llu}\n", (unsigned long long)bytes);
	return EXIT_OK;
}

/* ---- safe mode ---- */

static int print_safe_mode(const struct cli *c, bool on)
{
	printf(c->json ? "{\"safe_mode\": %s}\n" : "Safe mode is %s\n",
	       c->json ? (on ? "true" : "false")
	       : on    ? "ON"
		       : "OFF");
	return EXIT_OK;
}

/* Until it is off; for as long as it takes, which an operator ends with Ctrl-C. */
static int wait_safe_mode(struct cli *c)
{
	struct dfs_err err = {0};
	bool on = true;

	while (dfs_safe_mode(c->fs, DFS_SAFE_MODE_GET, &on, &err) == 0 && on)
		sleep(1);
	return on ? cli_fail(c, NULL, err.text) : print_safe_mode(c, on);
}

static int admin_safemode(struct cli *c)
{
	static const struct {
		const char *name;
		enum dfs_safe_mode action;
	} actions[] = {{"get", DFS_SAFE_MODE_GET},
		       {"enter", DFS_SAFE_MODE_ENTER},
		       {"leave", DFS_SAFE_MODE_LEAVE},
		       {"force-exit", DFS_SAFE_MODE_FORCE_EXIT}};
	const char *what = c->argc > 1 ? c->argv[1] : "get";
	struct dfs_err err = {0};
	bool on;

	if (!strcmp(what, "wait"))
		return wait_safe_mode(c);
	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
		if (strcmp(actions[i].name, what))
			continue;
		if (dfs_safe_mode(c->fs, actions[i].action, &on, &err) < 0)
			return cli_fail(c, NULL, err.text);
		return print_safe_mode(c, on);
	}
	fprintf(stderr, "dfs admin safemode: '%s' is none of get, enter, leave, force-exit, wait\n",
		what);
	return EXIT_USAGE;
}

/* ---- the rest ---- */

static int admin_refresh_nodes(struct cli *c)
{
	struct dfs_err err = {0};

	if (dfs_refresh_nodes(c->fs, &err) < 0)
		return cli_fail(c, NULL, err.text);
	if (c->json)
		puts("{\"refreshed\": true}");
	return EXIT_OK;
}

static void print_open_file(struct cli *c, const struct dfs_open_file *f)
{
	if (!c->json) {
		printf("%s  %s on %s\n", cli_name(f->path), f->client, f->machine);
		return;
	}
	cli_json_item(c, f->path);
	printf(", \"client\": ");
	cli_json_string(stdout, f->client);
	printf(", \"machine\": ");
	cli_json_string(stdout, f->machine);
	printf(", \"id\": %lld}", (long long)f->id);
}

static int admin_open_files(struct cli *c)
{
	struct dfs_err err = {0};
	struct dfs_open_files *page;
	int64_t after = 0;
	bool more = true;

	while (more) {
		if (dfs_open_files(c->fs, c->argc > 1 ? c->argv[1] : "/", after, &page, &err) < 0)
			return cli_fail(c, NULL, err.text);
		for (size_t i = 0; i < page->count; i++)
			print_open_file(c, &page->file[i]);
		more = page->more && page->file[page->count - 1].id > after;
		if (more)
			after = page->file[page->count - 1].id;
		dfs_open_files_free(page);
	}
	return cli_json_end(c);
}

static void set_quota_one(struct cli *c, const char *path)
{
	struct dfs_err err = {0};

	if (dfs_set_quota(c->fs, path, c->has_names ? c->names : DFS_QUOTA_KEEP,
			  c->has_space ? c->space : DFS_QUOTA_KEEP, &err) < 0) {
		cli_fail(c, path, err.text);
		return;
	}
	if (!c->json)
		return;
	cli_json_item(c, path);
	if (c->has_names)
		cli_json_limit("name_quota", c->names);
	if (c->has_space)
		cli_json_limit("space_quota", c->space);
	printf("}");
}

static int admin_set_quota(struct cli *c)
{
	if (c->argc < 2 || (!c->has_names && !c->has_space)) {
		fprintf(stderr, "dfs admin set-quota: wants directories and --names or --space\n");
		return EXIT_USAGE;
	}
	for (int i = 1; i < c->argc; i++)
		set_quota_one(c, c->argv[i]);
	return cli_json_end(c);
}

/* ---- operations of a data node ---- */

/* As dfs admin report names it: host, address, or either with a port of its. */
static bool is_node(const struct dfs_node *n, const char *text)
{
	const struct {
		const char *host;
		unsigned int port;
	} names[] = {{n->ip, 0},
		     {n->host, 0},
		     {n->ip, n->xfer_port},
		     {n->host, n->xfer_port},
		     {n->ip, n->info_port},
		     {n->host, n->info_port},
		     {n->ip, n->ipc_port},
		     {n->host, n->ipc_port}};
	char name[300];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (names[i].port)
			snprintf(name, sizeof(name), "%s:%u", names[i].host, names[i].port);
		else
			snprintf(name, sizeof(name), "%s", names[i].host);
		if (!strcmp(name, text))
			return true;
	}
	return !strcmp(n->uuid, text);
}

static int print_ops(struct cli *c, const char *host, unsigned int port)
{
	struct err err = ERR_INIT;
	char *text = NULL;
	size_t len = 0;
	const int rc = node_page_get(host, port, c->json ? "/ops?format=json" : "/ops?format=text",
				     OPS_PATIENCE_MS, &text, &len, &err);

	if (rc < 0)
		return cli_fail(c, c->argv[1], err.text);
	fwrite(text, 1, len, stdout);
	free(text);
	return EXIT_OK;
}

/* Nobody can tell which port its web server has. */
static int ops_without_namenode(struct cli *c, const char *why)
{
	struct err err = ERR_INIT;
	char host[256];
	uint16_t port;

	if (net_split(c->argv[1], HTTP_PORT, host, &port, &err) < 0)
		return cli_fail(c, NULL, why);
	cli_warn(c, NULL, why);
	return print_ops(c, host, port);
}

static int admin_ops(struct cli *c)
{
	const struct dfs_node *found = NULL;
	struct dfs_nodes *live = NULL;
	struct dfs_err err = {0};
	int matches = 0, rc;

	if (c->argc < 2) {
		fprintf(stderr, "dfs admin ops: give one data node; dfs admin report lists them\n");
		return EXIT_USAGE;
	}
	rc = cli_try_connect(c, &err);
	if (rc == 0)
		rc = dfs_nodes(c->fs, DFS_NODES_LIVE, &live, &err);
	if (rc)
		return rc < 0 ? ops_without_namenode(c, err.text) : rc;
	for (size_t i = 0; i < live->count; i++) {
		if (!is_node(&live->node[i], c->argv[1]))
			continue;
		found = &live->node[i];
		matches++;
	}
	if (matches == 1)
		rc = print_ops(c, found->ip, found->info_port);
	else
		rc = cli_fail(c, c->argv[1],
			      matches ? "several data nodes have this name; give the port as well"
				      : "no live data node has this name; see dfs admin report");
	dfs_nodes_free(live);
	return rc;
}

int cmd_admin(struct cli *c)
{
	static const struct {
		const char *name;
		int (*run)(struct cli *c);
		int operands_max; /* -1: no limit */
		bool connects;    /* itself */
	} operations[] = {
		{"report", admin_report, 0, false},
		{"safemode", admin_safemode, 1, false},
		{"refresh-nodes", admin_refresh_nodes, 0, false},
		{"open-files", admin_open_files, 1, false},
		{"ops", admin_ops, 1, true},
		{"set-quota", admin_set_quota, -1, false},
		{"topology", admin_topology, 0, false},
		{"balancer-bandwidth", admin_bandwidth, 1, false},
	};
	int rc;

	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
		if (strcmp(operations[i].name, c->argv[0]))
			continue;
		if (operations[i].operands_max >= 0 && c->argc - 1 > operations[i].operands_max) {
			fprintf(stderr, "dfs admin %s: one operand too many: %s\n", c->argv[0],
				c->argv[operations[i].operands_max + 1]);
			return EXIT_USAGE;
		}
		rc = operations[i].connects ? EXIT_OK : cli_connect(c);
		return rc ? rc : operations[i].run(c);
	}
	fprintf(stderr, "dfs admin: unknown operation '%s'; see dfs admin --help\n", c->argv[0]);
	return EXIT_USAGE;
}
