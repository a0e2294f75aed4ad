/* SPDX-License-Identifier: Apache-2.0 */
/* ec: erasure-coding policies, and whether the units of files agree. */
#include <inttypes.h>
#include <string.h>

#include "common/base/err.h"
#include "common/erasure/policy.h"
#include "tools/cli.h"

static const char *state_name(enum dfs_ec_state s)
{
	switch (s) {
	case DFS_EC_DISABLED:
		return "disabled";
	case DFS_EC_ENABLED:
		return "enabled";
	case DFS_EC_REMOVED:
		return "removed";
	}
	return "unknown";
}

static void json_policy(const struct dfs_ec_policy *p)
{
	printf("\"policy\": ");
	cli_json_string(stdout, p->name);
	printf(", \"codec\": ");
	cli_json_string(stdout, p->codec);
	printf(", \"data_units\": %u, \"parity_units\": %u, \"cell_size\": %u, \"id\": %u",
	       p->data_units, p->parity_units, p->cell_size, p->id);
}

/* ---- do the nodes suffice? ---- */

/* Live nodes that take new units; -1: only the superuser is told. */
static int count_nodes(struct cli *c)
{
	struct dfs_nodes *l;
	int n = 0;

	if (dfs_nodes(c->fs, DFS_NODES_LIVE, &l, NULL) < 0)
		return -1;
	for (size_t i = 0; i < l->count; i++)
		n += l->node[i].state == DFS_NODE_NORMAL;
	dfs_nodes_free(l);
	return n;
}

static void warn_nodes(struct cli *c, const char *what, const struct dfs_ec_policy *p)
{
	const unsigned k = p->data_units, all = k + p->parity_units;
	const int n = count_nodes(c);
	char line[300];

	if (n < 0 || (unsigned)n >= all)
		return;
	if ((unsigned)n < k)
		snprintf(
			line, sizeof(line),
			"%s wants %u data nodes and there %s %d: no file can be written before there are %u",
			p->name, all, n == 1 ? "is" : "are", n, k);
	else
		snprintf(
			line, sizeof(line),
			"%s wants %u data nodes and there are %d: files are written without %u of their %u "
			"parity units, which are made when there are more nodes",
			p->name, all, n, all - (unsigned)n, p->parity_units);
	cli_warn(c, what, line);
}

/* Of the file or directory @path. */
static void warn_nodes_of(struct cli *c, const char *path)
{
	struct dfs_ec_policy p;

	if (dfs_get_ec_policy(c->fs, path, &p, NULL) == 1)
		warn_nodes(c, path, &p);
}

/* ---- policies ---- */

static int ec_list(struct cli *c)
{
	struct dfs_err err = {0};
	struct dfs_ec_policies *l;

	if (dfs_ec_policies(c->fs, &l, &err) < 0)
		return cli_fail(c, NULL, err.text);
	if (!c->json)
		printf("%-24s %-10s %4s %6s %9s  %s\n", "POLICY", "CODEC", "DATA", "PARITY", "CELL",
		       "STATE");
	for (size_t i = 0; i < l->count; i++) {
		const struct dfs_ec_policy *p = &l->policy[i];

		if (c->json) {
			printf("%s{", c->printed++ ? ",\n " : "[");
			json_policy(p);
			printf(", \"state\": \"%s\"}", state_name(p->state));
		} else {
			printf("%-24s %-10s %4u %6u %8uk  %s\n", p->name, p->codec, p->data_units,
			       p->parity_units, p->cell_size / 1024, state_name(p->state));
		}
	}
	dfs_ec_policies_free(l);
	return cli_json_end(c);
}

/* One operand of an operation that says little. */
static void print_done(struct cli *c, const char *what, const char *key)
{
	if (!c->json)
		return;
	printf("%s{\"%s\": ", c->printed++ ? ",\n " : "[", key);
	cli_json_string(stdout, what);
	printf("}");
}

static int each_policy(struct cli *c,
		       int (*call)(struct dfs *fs, const char *policy, struct dfs_err *err))
{
	for (int i = 1; i < c->argc; i++) {
		struct dfs_err err = {0};

		if (call(c->fs, c->argv[i], &err) == 0)
			print_done(c, c->argv[i], "policy");
		else if (strstr(err.text, "does not exist"))
			cli_fail_cure(
				c, c->argv[i], err.text,
				"dfs ec list shows the policies, dfs ec add makes another one known");
		else
			cli_fail(c, c->argv[i], err.text);
	}
	return cli_json_end(c);
}

static int ec_enable(struct cli *c)
{
	const int rc = each_policy(c, dfs_enable_ec_policy);
	struct dfs_ec_policies *l;

	if (dfs_ec_policies(c->fs, &l, NULL) < 0)
		return rc;
	for (int i = 1; i < c->argc; i++)
		for (size_t k = 0; k < l->count; k++)
			if (!strcmp(l->policy[k].name, c->argv[i]))
				warn_nodes(c, NULL, &l->policy[k]);
	dfs_ec_policies_free(l);
	return rc;
}

static int ec_disable(struct cli *c)
{
	return each_policy(c, dfs_disable_ec_policy);
}

static int ec_remove(struct cli *c)
{
	return each_policy(c, dfs_remove_ec_policy);
}

static int add_one(struct dfs *fs, const char *name, struct dfs_err *out)
{
	struct dfs_ec_policy added;
	struct ec_policy p;
	struct err err = ERR_INIT;

	if (ec_policy_parse(name, &p, &err) < 0) {
		snprintf(out->text, sizeof(out->text), "%s", err.text);
		return -EINVAL;
	}
	return dfs_add_ec_policy(fs, ec_codec_name(p.codec), p.k, p.m, p.cell, &added, out);
}

static int ec_add(struct cli *c)
{
	return each_policy(c, add_one);
}

/* ---- paths ---- */

static int ec_get(struct cli *c)
{
	for (int i = 1; i < c->argc; i++) {
		struct dfs_ec_policy p;
		struct dfs_err err = {0};
		int rc = dfs_get_ec_policy(c->fs, c->argv[i], &p, &err);

		if (rc < 0) {
			cli_fail(c, c->argv[i], err.text);
			continue;
		}
		if (!c->json) {
			printf("%s: %s\n", cli_name(c->argv[i]), rc ? p.name : EC_REPLICATION_NAME);
			continue;
		}
		cli_json_item(c, c->argv[i]);
		printf(", ");
		if (rc)
			json_policy(&p);
		else
			printf("\"policy\": null");
		printf("}");
	}
	return cli_json_end(c);
}

static int ec_set(struct cli *c)
{
	struct dfs_err err = {0};
	int rc = dfs_set_ec_policy(c->fs, c->argv[1], c->argc > 2 ? c->argv[2] : NULL, &err);

	if (rc == -EREMOTEIO) /* a file */
		return cli_fail_cure(
			c, c->argv[1], err.text,
			"only a directory has a policy; dfs ec convert rewrites a file");
	if (rc < 0)
		return cli_fail(c, c->argv[1], err.text);
	print_done(c, c->argv[1], "path");
	warn_nodes_of(c, c->argv[1]);
	return cli_json_end(c);
}

static int ec_unset(struct cli *c)
{
	for (int i = 1; i < c->argc; i++) {
		struct dfs_err err = {0};

		if (dfs_unset_ec_policy(c->fs, c->argv[i], &err) < 0)
			cli_fail(c, c->argv[i], err.text);
		else
			print_done(c, c->argv[i], "path");
	}
	return cli_json_end(c);
}

/* ---- verify ---- */

struct verifying {
	struct cli *c;
	const char *path;
	uint64_t told; /* findings of this file */
	bool missing;  /* a unit of it is on no node */
};

static const char *fault_name(enum dfs_ec_fault f)
{
	switch (f) {
	case DFS_EC_UNIT_MISSING:
		return "missing";
	case DFS_EC_UNIT_CORRUPT:
		return "corrupt";
	case DFS_EC_UNIT_DIFFERS:
		return "differs";
	case DFS_EC_GROUP_DIFFERS:
		return "group_differs";
	case DFS_EC_GROUP_LOST:
		return "group_lost";
	}
	return "unknown";
}

static void print_finding(const struct verifying *v, const struct dfs_ec_finding *f)
{
	printf("%s: group blk_%" PRId64 " at %" PRIu64 ": ", cli_name(v->path), f->group,
	       f->offset);
	switch (f->fault) {
	case DFS_EC_UNIT_MISSING:
		printf("unit %u is missing (%s)", f->unit, f->node);
		break;
	case DFS_EC_UNIT_CORRUPT:
		printf("unit %u on %s has a wrong checksum", f->unit, f->node);
		break;
	case DFS_EC_UNIT_DIFFERS:
		printf("unit %u on %s differs from what the other units yield, from its byte %" PRIu64
		       " on",
		       f->unit, f->node, f->at);
		break;
	case DFS_EC_GROUP_DIFFERS:
		printf("the units do not agree from their byte %" PRIu64
		       " on; nothing tells which one is wrong",
		       f->at);
		break;
	case DFS_EC_GROUP_LOST:
		printf("too few units are left to read it");
		break;
	}
	printf("%s%s\n", *f->why ? ": " : "", f->why);
}

static void on_finding(void *arg, const struct dfs_ec_finding *f)
{
	struct verifying *v = arg;

	v->missing = v->missing || f->fault == DFS_EC_UNIT_MISSING;
	if (!v->c->json) {
		print_finding(v, f);
		v->told++;
		return;
	}
	printf("%s{\"fault\": \"%s\", \"group\": %" PRId64 ", \"offset\": %" PRIu64
	       ", \"unit\": %u, \"at\": %" PRIu64 ", \"node\": ",
	       v->told++ ? ", " : "", fault_name(f->fault), f->group, f->offset, f->unit, f->at);
	cli_json_string(stdout, f->node);
	printf(", \"why\": ");
	cli_json_string(stdout, f->why);
	printf("}");
}

static void print_summary(struct cli *c, const char *path, const struct dfs_ec_summary *s)
{
	char size[32];

	if (c->json) {
		printf("], \"groups\": %" PRIu64 ", \"units\": %" PRIu64 ", \"bytes\": %" PRIu64
		       ", \"unchecked\": %" PRIu64 "}",
		       s->groups, s->units, s->bytes, s->unchecked);
		return;
	}
	if (c->quiet && !s->findings)
		return;
	printf("%s: %" PRIu64 " groups, %" PRIu64 " units, %s read: ", cli_name(path), s->groups,
	       s->units, cli_size(size, s->bytes, true));
	if (s->findings)
		printf("%" PRIu64 " faults", s->findings);
	else
		printf("all agree");
	if (s->unchecked)
		printf("; %" PRIu64 " groups have no redundancy left to compare with",
		       s->unchecked);
	putchar('\n');
}

/* @nodes: whether the nodes suffice is still to be told, which is done once. */
static void verify_file(struct cli *c, const char *path, bool *nodes)
{
	struct verifying v = {.c = c, .path = path};
	struct dfs_ec_summary s = {0};
	struct dfs_err err = {0};
	int rc;

	if (c->json) {
		cli_json_item(c, path);
		printf(", \"findings\": [");
	}
	rc = dfs_verify_ec(c->fs, path, on_finding, &v, &s, &err);
	if (rc == 0 || c->json)
		print_summary(c, path, &s);
	if (rc < 0)
		cli_fail(c, path, err.text);
	else if (s.findings)
		cli_fail(
			c, path,
			"some units are missing or wrong; the NameNode knows of the named ones and has them rebuilt "
			"where enough others are left; run dfs ec verify again later");
	if (v.missing && *nodes)
		warn_nodes_of(c, path);
	*nodes = *nodes && !v.missing;
}

static void verify_entry(struct cli *c, const char *path, const struct dfs_stat *st, void *arg)
{
	if (st->type == DFS_DIR)
		cli_list(c, path, verify_entry, arg);
	else if (st->type == DFS_FILE && st->erasure_coded)
		verify_file(c, path, arg);
}

static int ec_verify(struct cli *c)
{
	bool nodes = true;

	for (int i = 1; i < c->argc; i++) {
		struct dfs_err err = {0};
		struct dfs_stat st;

		if (dfs_stat(c->fs, c->argv[i], &st, &err) < 0)
			cli_fail(c, c->argv[i], err.text);
		else if (st.type != DFS_DIR)
			verify_file(c, c->argv[i], &nodes);
		else if (!c->recursive)
			cli_fail_errno(c, c->argv[i], -EISDIR, "use -r");
		else
			cli_list(c, c->argv[i], verify_entry, &nodes);
	}
	return cli_json_end(c);
}

int cmd_ec(struct cli *c)
{
	static const struct {
		const char *name;
		int (*run)(struct cli *c);
		int operands_min, operands_max; /* -1: no limit */
	} operations[] = {
		{"list", ec_list, 0, 0},      {"get", ec_get, 1, -1},
		{"set", ec_set, 1, 2},        {"unset", ec_unset, 1, -1},
		{"enable", ec_enable, 1, -1}, {"disable", ec_disable, 1, -1},
		{"add", ec_add, 1, -1},       {"remove", ec_remove, 1, -1},
		{"verify", ec_verify, 1, -1}, {"convert", ec_convert, 2, -1},
	};

	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
		const int n = c->argc - 1, most = operations[i].operands_max;

		if (strcmp(operations[i].name, c->argv[0]))
			continue;
		if (n < operations[i].operands_min || (most >= 0 && n > most)) {
			fprintf(stderr, "dfs ec %s: too %s operands; see dfs ec --help\n",
				c->argv[0], n < operations[i].operands_min ? "few" : "many");
			return EXIT_USAGE;
		}
		return operations[i].run(c);
	}
	fprintf(stderr, "dfs ec: unknown operation '%s'; see dfs ec --help\n", c->argv[0]);
	return EXIT_USAGE;
}
