/* SPDX-License-Identifier: Apache-2.0 */
/* setrep chmod chown chgrp: attributes of files, of whole trees with -r. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "tools/cli.h"

#define SETREP_WAIT_NS (600 * NS_PER_S)

/* What is to be done to each path. */
struct change {
	/* 0; 1: it is none of those that change; -errno */
	int (*one)(const struct change *ch, const char *path, const struct dfs_stat *st,
		   struct dfs_err *err);
	struct cli *cli;
	const char *mode, *owner, *group; /* NULL: leave it */
	uint32_t replication;
};

static bool parse_mode(const char *text, uint32_t old, bool is_dir, uint32_t *ret);

/* What it is now, as JSON. */
static void tell_change(const struct change *ch, const char *path, const struct dfs_stat *st)
{
	uint32_t mode;

	cli_json_item(ch->cli, path);
	if (ch->mode && parse_mode(ch->mode, st->mode, st->type == DFS_DIR, &mode))
		printf(", \"mode\": \"%04o\"", mode);
	if (ch->owner)
		printf(", \"owner\": \"%s\"",
		       ch->owner); /* letters without a meaning in JSON: is_name() */
	if (ch->group)
		printf(", \"group\": \"%s\"", ch->group);
	if (ch->replication)
		printf(", \"replication\": %u", ch->replication);
	printf("}");
}

static void change_entry(struct cli *c, const char *path, const struct dfs_stat *st, void *arg)
{
	const struct change *ch = arg;
	const bool down = c->recursive && st->type == DFS_DIR;
	struct dfs_err err = {0};
	int rc;

	if (st->type == DFS_SYMLINK)
		return; /* met by the walk; nothing is changed through it */
	rc = ch->one(ch, path, st, &err);
	if (rc < 0)
		cli_fail(c, path, err.text);
	else if (rc == 0 && c->json)
		tell_change(ch, path, st);
	if (down)
		cli_list(c, path, change_entry, arg);
}

/* The operands after the first, and with -r all below them. */
static int change_all(struct change *ch)
{
	struct cli *c = ch->cli;
	struct dfs_err err = {0};
	struct dfs_stat st;

	for (int i = 1; i < c->argc; i++) {
		if (dfs_stat(c->fs, c->argv[i], &st, &err) < 0)
			cli_fail(c, c->argv[i], err.text);
		else
			change_entry(c, c->argv[i], &st, ch);
	}
	return cli_json_end(c);
}

static int usage(const struct cli *c, const char *what)
{
	if (c->hadoop)
		fprintf(stderr, "-%s: %s '%s'; see dfs -help %s\n", c->cmd, what, c->argv[0],
			c->cmd);
	else
		fprintf(stderr, "dfs %s: %s '%s'; see dfs %s --help\n", c->cmd, what, c->argv[0],
			c->cmd);
	return EXIT_USAGE;
}

/* ---- chmod ---- */

/* One clause of a symbolic mode, "u+rwx". Returns its end, or NULL. */
static const char *mode_clause(const char *s, bool is_dir, uint32_t *mode)
{
	uint32_t who = 0, bits = 0, sticky = 0;
	char op;

	for (; *s && strchr("ugoa", *s); s++)
		who |= *s == 'u' ? 0700u : *s == 'g' ? 0070u : *s == 'o' ? 0007u : 0777u;
	if (!who)
		who = 0777;
	op = *s;
	if (!op || !strchr("+-=", op))
		return NULL;
	for (s++; *s && *s != ','; s++) {
		if (*s == 'r')
			bits |= 0444;
		else if (*s == 'w')
			bits |= 0222;
		else if (*s == 'x' || (*s == 'X' && (is_dir || *mode & 0111)))
			bits |= 0111;
		else if (*s == 't')
			sticky = 01000;
		else if (*s != 'X')
			return NULL;
	}
	if (op == '+')
		*mode |= (bits & who) | sticky;
	else if (op == '-')
		*mode &= ~((bits & who) | sticky);
	else
		*mode = (*mode & ~who) | (bits & who) | sticky;
	return s;
}

/* @text applied to the bits @old; false when it is no mode. */
static bool parse_mode(const char *text, uint32_t old, bool is_dir, uint32_t *ret)
{
	char *end;
	const unsigned long octal = strtoul(text, &end, 8);

	if (*text >= '0' && *text <= '7' && !*end && octal <= 01777) {
		*ret = (uint32_t)octal;
		return true;
	}
	*ret = old;
	do {
		text = mode_clause(text, is_dir, ret);
	} while (text && *text++ == ',');
	return text && !text[-1];
}

static int chmod_one(const struct change *ch, const char *path, const struct dfs_stat *st,
		     struct dfs_err *err)
{
	uint32_t mode;

	(void)parse_mode(ch->mode, st->mode, st->type == DFS_DIR, &mode); /* was tried before */
	return mode == st->mode ? 0 : dfs_set_permission(ch->cli->fs, path, mode, err);
}

int cmd_chmod(struct cli *c)
{
	struct change ch = {.cli = c, .one = chmod_one, .mode = c->argv[0]};
	uint32_t mode;

	return parse_mode(ch.mode, 0, false, &mode) ? change_all(&ch) : usage(c, "no mode:");
}

/* ---- chown, chgrp ---- */

static int chown_one(const struct change *ch, const char *path, const struct dfs_stat *st,
		     struct dfs_err *err)
{
	(void)st;
	return dfs_set_owner(ch->cli->fs, path, ch->owner, ch->group, err);
}

/* The names that stock FsShell takes: with another one nobody could name the owner any more. */
static bool is_name(const char *s)
{
	static const char letters[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./@";

	return !s[strspn(s, letters)];
}

int cmd_chown(struct cli *c)
{
	struct change ch = {.cli = c, .one = chown_one};
	char *owner = cli_strdup(c->argv[0]), *colon = strchr(owner, ':');
	int rc;

	if (colon) {
		*colon = 0;
		ch.group = colon[1] ? colon + 1 : NULL;
	}
	ch.owner = *owner ? owner : NULL;
	if (!ch.owner && !ch.group)
		rc = usage(c, "neither owner nor group in");
	else if (!is_name(owner) || (ch.group && !is_name(ch.group)))
		rc = usage(c, "a name has letters, digits and -_./@ only, not");
	else
		rc = change_all(&ch);
	free(owner);
	return rc;
}

int cmd_chgrp(struct cli *c)
{
	struct change ch = {.cli = c, .one = chown_one, .group = c->argv[0]};

	if (!*ch.group)
		return usage(c, "a group has a name, not");
	return is_name(ch.group) ? change_all(&ch)
				 : usage(c, "a name has letters, digits and -_./@ only, not");
}

/* ---- setrep ---- */

int cli_has_replicas(struct cli *c, const char *path, uint32_t n, struct dfs_err *err)
{
	struct dfs_blocks *b;
	int rc = dfs_blocks(c->fs, path, 0, INT64_MAX, &b, err);

	if (rc < 0)
		return rc;
	rc = 1;
	for (size_t i = 0; i < b->count; i++)
		rc = rc && b->block[i].count == n;
	dfs_blocks_free(b);
	return rc;
}

static int setrep_one(const struct change *ch, const char *path, const struct dfs_stat *st,
		      struct dfs_err *err)
{
	const uint64_t deadline = clock_mono_ns() + SETREP_WAIT_NS;
	int rc;

	if (st->type == DFS_DIR && ch->cli->recursive)
		return 1;
	if (st->type == DFS_DIR) {
		snprintf(err->text, sizeof(err->text), "%s; use -r", err_name(-EISDIR));
		return -EISDIR;
	}
	rc = dfs_set_replication(ch->cli->fs, path, ch->replication, err);
	while (rc == 0 && ch->cli->wait) {
		rc = cli_has_replicas(ch->cli, path, ch->replication, err);
		if (rc)
			break;
		if (clock_mono_ns() > deadline) {
			snprintf(err->text, sizeof(err->text),
				 "not %u replicas of every block after %u minutes; are "
				 "there so many data nodes? see dfs admin report",
				 ch->replication, (unsigned int)(SETREP_WAIT_NS / NS_PER_S / 60));
			return -ETIMEDOUT;
		}
		(void)nanosleep(&(struct timespec){0, 200 * NS_PER_MS}, NULL);
	}
	return rc < 0 ? rc : 0;
}

int cmd_setrep(struct cli *c)
{
	struct change ch = {.cli = c, .one = setrep_one};
	uint64_t n;

	if (!cli_parse_size(c->argv[0], 512, &n))
		return usage(c, "no number of replicas from 1 to 512:");
	ch.replication = (uint32_t)n;
	return change_all(&ch);
}
