/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * cli - what every `dfs` command shares: options, connection, messages, numbers for people
 *
 * Idea: a command is a function and a row in a table (dfs.c). Its options are parsed here together
 * with the common ones; errors are one line on stderr: "dfs CMD: PATH: cause; cure", or in the words
 * of Hadoop's shell (shell.h) "CMD: `PATH': cause".
 * Exit codes: 0 done, 1 something failed (the rest was still done), 2 wrong usage.
 * Threading: cli_fail() from any thread; the rest from main.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "client/include/dfsclient_ext.h"

enum { EXIT_OK = 0, EXIT_FAIL = 1, EXIT_USAGE = 2 };

/** What the operands of a command are. */
enum cli_operands {
	OPERANDS_REMOTE,      /* all: paths in the file system */
	OPERANDS_FIRST_OTHER, /* the first is a mode, a number, a verb; the rest are paths */
	OPERANDS_LAST_REMOTE, /* local files, and in the end a path */
	OPERANDS_LAST_LOCAL,  /* paths, and in the end a local file */
};

struct cli {
	const char *cmd;           /* "put" */
	struct dfs *fs;            /* connected by cli_connect() */
	bool json;                 /* --json */
	bool human;                /* -h: sizes as 1.5M */
	bool recursive;            /* -r, -R */
	bool force;                /* -f */
	bool parents;              /* -p */
	bool summary;              /* -s */
	bool quiet;                /* -q: no progress */
	bool wait;                 /* -w: until it is done everywhere */
	bool append;               /* --append: behind what is there */
	bool new_block;            /* --new-block */
	bool hadoop;               /* speak as Hadoop's shell does */
	bool move;                 /* delete local files that are copied */
	bool has_names, has_space; /* --names, --space were given: */
	int64_t names, space;      /* DFS_QUOTA_NONE for "none" */
	uint32_t replication;      /* --replication */
	const char *ec_policy;     /* --ec; NULL: what the directory has */
	uint64_t block_size;       /* --block-size */
	uint32_t jobs;             /* -j: files at a time */
	enum cli_operands operands;
	uint64_t printed; /* elements of the JSON list, or lines */
	int argc;         /* operands that are left */
	char **argv;
	/* private */
	const char *uri, *conf_dir, *user;
	const char **conf; /* -D, NULL-terminated */
	uint32_t conf_count;
	int failures;
};

struct cli_command {
	const char *name;
	int (*run)(struct cli *c);
	/* short options it takes, of "rRfpshqjw" and 'J' for --json, 'B' for --replication and
	 * --block-size, 'A' for --append, 'N' for --new-block, 'Q' for --names and --space, 'E' for
	 * --ec; '-': the first operand is a word like -addPool, and nothing behind it is an option
	 */
	const char *options;
	enum cli_operands operands;
	int min_operands, max_operands; /* -1: no limit */
	const char *usage;              /* operands */
	const char *help;
};

/** Parse; prints help or the usage error itself. -1: go on; else the exit code. */
int cli_parse(struct cli *c, const struct cli_command *cmd, int argc, char **argv);
/** "128m" of at most @max and not 0 into *@ret; false when it is none. */
bool cli_parse_size(const char *s, uint64_t max, uint64_t *ret);
/** Connect c->fs: to --fs, else the file system of the first operand that names one, else the
 *  default one. 0, or an exit code after the message. */
int cli_connect(struct cli *c);
/** The same, without a message when the server cannot be reached: -errno and why. */
int cli_try_connect(struct cli *c, struct dfs_err *err);
void cli_end(struct cli *c);
/** One line on stderr; counts as a failure. Always returns EXIT_FAIL. */
int cli_fail(struct cli *c, const char *what, const char *text);
int cli_fail_errno(struct cli *c, const char *what, int rc, const char *cure);
/** What Hadoop's shell says of a path with this error; NULL: it has no sentence of its own. */
const char *cli_hadoop_words(int rc);
/** With what to do about it. */
int cli_fail_cure(struct cli *c, const char *what, const char *text, const char *cure);
/** One line on stderr about what was done, and is not as good as it should be: no failure. */
void cli_warn(struct cli *c, const char *what, const char *text);
/** A local file or stream cannot be written. */
int cli_fail_write(struct cli *c, const char *what, int rc);

/** "1.5 GiB", or plain digits when !human. Returns @buf. */
const char *cli_size(char buf[32], uint64_t bytes, bool human);
/** "2026-11-21 02:03" local time. Returns @buf. */
const char *cli_time(char buf[32], uint64_t ms);
/** "-rw-r--r--" for @st; returns @buf. */
const char *cli_mode(char buf[12], const struct dfs_stat *st);
/** @dir + "/" + @name, malloc'ed; exits when out of memory. */
char *cli_join(const char *dir, const char *name);
/** Last component, without trailing slashes, malloc'ed; "" for "/". */
char *cli_base(const char *path);
/** All but the last component, malloc'ed; "." of a bare name, "/" of "/". */
char *cli_parent(const char *path);
/** @p; NULL, of memory that could not be had, ends the program with a message. */
void *cli_checked(void *p);
/** malloc-checked strdup. */
char *cli_strdup(const char *s);
/** @path as a person may see it: on a terminal control characters become '?'. Returns @path or a
 *  static buffer of this thread, overwritten by the fourth call after. */
const char *cli_name(const char *path);
/** Write @s as a JSON string (invalid UTF-8 becomes U+FFFD). */
void cli_json_string(FILE *f, const char *s);
/** Begin the next element of a list of objects: {"path": @path, to be ended with "}". */
void cli_json_item(struct cli *c, const char *path);
/** , "@name": a quota, or null for none. */
void cli_json_limit(const char *name, int64_t limit);
/** End the list, with --json. Always EXIT_OK. */
int cli_json_end(const struct cli *c);

/** Call @fn for each entry of @dir with its path; a file or symbolic link is its own only entry.
 * Failures are told. */
typedef void cli_entry_fn(struct cli *c, const char *path, const struct dfs_stat *st, void *arg);
void cli_list(struct cli *c, const char *dir, cli_entry_fn *fn, void *arg);

/* the commands (dfs.c has the table) */
int cmd_put(struct cli *c);
int cmd_get(struct cli *c);
int cmd_cat(struct cli *c);
int cmd_ls(struct cli *c);
int cmd_mkdir(struct cli *c);
int cmd_rm(struct cli *c);
int cmd_mv(struct cli *c);
int cmd_stat(struct cli *c);
int cmd_df(struct cli *c);
int cmd_du(struct cli *c);
int cmd_touch(struct cli *c);
int cmd_append(struct cli *c);
int cmd_truncate(struct cli *c);
int cmd_concat(struct cli *c);
int cmd_recover_lease(struct cli *c);
int cmd_setrep(struct cli *c);
int cmd_chmod(struct cli *c);
int cmd_chown(struct cli *c);
int cmd_chgrp(struct cli *c);
int cmd_acl(struct cli *c);
int cmd_quota(struct cli *c);
int cmd_admin(struct cli *c);
int cmd_cacheadmin(struct cli *c);
int cmd_ec(struct cli *c);
int cmd_fsck(struct cli *c);
/** Has every block of @path @n replicas? 1, 0, -errno (cmd_attr.c). */
int cli_has_replicas(struct cli *c, const char *path, uint32_t n, struct dfs_err *err);
int ec_convert(struct cli *c); /* an operation of it */
