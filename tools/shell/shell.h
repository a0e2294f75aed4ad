/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * shell - the commands, options, columns and sentences of `hdfs dfs`
 *
 * Idea: scripts move over by changing one word: `hdfs dfs -ls -R /x` is `dfs dfs -ls -R /x`, and
 * also `dfs fs -ls -R /x` and `dfs -ls -R /x`. What scripts read is as in Hadoop: standard output,
 * exit status (0; 1 something failed; 255 wrong usage), and the usual sentences about a path.
 * Paths may be patterns (shell_glob.h). An option that Hadoop has and we do not is refused.
 * A command is a function and a row in a table (shell.c). Its operands that are paths become items,
 * of which each is what was found when the command began: it may be gone or another one by now, and
 * every call about it must do with that.
 * Ownership: items belong to the shell. Threading: main.
 * Source: Hadoop's FsShell and its commands.
 */
#include <stdbool.h>
#include <stddef.h>

#include "tools/cli.h"
#include "tools/shell/shell_options.h"
#include "tools/shell/shell_size.h"

enum { EXIT_SHELL_USAGE = 255 };

struct shell_item {
	char *shown;        /* as it was named, or found below what was named so */
	char *path;         /* the same for the library */
	bool exists;        /* else: st says nothing */
	struct dfs_stat st; /* name is NULL */
};

struct shell_items {
	struct shell_item *item; /* owned */
	size_t count, room;
};

struct shell {
	struct cli c; /* connected; its operands are what the options leave, without addresses */
	const struct shell_command *cmd;
	struct shell_options options;
	char **shown; /* c.argc operands as they were given */
	struct shell_item *item;
	size_t count, room;
	bool quiet_patterns; /* a pattern that matches nothing is no failure */
	char **rest;         /* of a command without options: from its first word with a dash on */
	int rest_count;
};

struct shell_command {
	const char *name; /* without its dash */
	int (*run)(struct shell *s);
	const char *options; /* as shell_options.h has them; NULL: none, its words are its own */
	enum cli_operands operands;
	int least, most; /* operands; -1: no limit */
	const char *usage;
	const char *help;
};

/** Run what follows `dfs fs`: options of all commands, a command with its dash (@bare: also
 *  without), and what is its own. Exit code. */
int shell_main(int argc, char **argv, bool bare);
/** Is there a command @name, without its dash? */
bool shell_has(const char *name);
/** All names on one line each, for `dfs --help`. */
void shell_print_names(FILE *f);

static inline bool shell_flag(const struct shell *s, const char *name)
{
	return shell_option(&s->options, name);
}
/** A mistake in the words of the command: told, with its usage. Always EXIT_SHELL_USAGE. */
int shell_usage(struct shell *s, const char *what, const char *word);
/** "`@shown': " and what Hadoop says when @rc has a sentence there, else the words of @err. Always
 *  EXIT_FAIL. */
int shell_fail(struct shell *s, const char *shown, int rc, const struct dfs_err *err);
/** "`@shown': @text". Always EXIT_FAIL. */
int shell_fail_text(struct shell *s, const char *shown, const char *text);

/* ---- items (shell_item.c) ---- */

typedef void shell_item_fn(struct shell *s, const struct shell_item *it);

/** Operands @first and those that follow, up to and without @end, become items; what cannot be
 *  looked at, and a pattern that matches nothing, is told. */
void shell_expand(struct shell *s, int first, int end);
/** Call @fn for each item of operands @first and following, @missing (NULL: it is told) for those
 *  that do not exist. Exit code. */
int shell_each(struct shell *s, int first, shell_item_fn *fn, shell_item_fn *missing);
/** The one item that the last operand names; NULL after the message. To be asked for last: further
 *  items move it. */
const struct shell_item *shell_target(struct shell *s);
/** May @sources files or directories go to @to? Several need a directory; one does not replace a
 *  file without @overwrite, nor makes the directory that it is to be in. Else it is told. */
bool shell_target_fits(struct shell *s, const struct shell_item *to, size_t sources,
		       bool overwrite);
/** The entries of a directory, one after another, borrowed by @fn; failures are told. */
void shell_children(struct shell *s, const struct shell_item *dir,
		    void (*fn)(struct shell *s, const struct shell_item *it, void *arg), void *arg);
/** What would be @name in @dir. Free with shell_item_end(). */
struct shell_item shell_child(const struct shell_item *dir, const char *name);
void shell_item_end(struct shell_item *it);
/** A copy of the names of @it goes to the end. */
void shell_items_add(struct shell_items *l, const struct shell_item *it);
void shell_items_free(struct shell_items *l);
/** dfs_stat(), of a symbolic link itself. */
int shell_stat(struct shell *s, const char *path, struct dfs_stat *ret, struct dfs_err *err);
/** Is the directory that would hold @it there? Else it is told. */
bool shell_has_parent(struct shell *s, const struct shell_item *it);
/** The absolute path of @path without "." and "..", malloc'ed. */
char *shell_absolute(struct shell *s, const char *path);

/** The number of files at a time that -t says. */
void shell_set_jobs(struct shell *s);

/* ---- what several commands print ---- */

/** "rwxr-xr-x". Returns @buf. */
const char *shell_permission(char buf[12], const struct dfs_stat *st);

/* ---- the commands ---- */

int shell_append(struct shell *s);
int shell_attr(struct shell *s); /* chmod, chown, chgrp */
int shell_cat(struct shell *s);
int shell_checksum(struct shell *s);
int shell_concat(struct shell *s);
int shell_count(struct shell *s);
int shell_cp(struct shell *s);
int shell_df(struct shell *s);
int shell_du(struct shell *s); /* and dus */
int shell_expunge(struct shell *s);
int shell_find(struct shell *s);
int shell_get(struct shell *s);
int shell_getfacl(struct shell *s);
int shell_getfattr(struct shell *s);
int shell_getmerge(struct shell *s);
int shell_head(struct shell *s);
int shell_ls(struct shell *s); /* and lsr */
int shell_mkdir(struct shell *s);
int shell_mv(struct shell *s);
int shell_put(struct shell *s); /* and moveFromLocal */
int shell_rm(struct shell *s);  /* and rmr */
int shell_rmdir(struct shell *s);
int shell_setfacl(struct shell *s);
int shell_setfattr(struct shell *s);
int shell_setrep(struct shell *s);
int shell_stat_command(struct shell *s);
int shell_tail(struct shell *s);
int shell_test(struct shell *s);
int shell_text(struct shell *s);
int shell_touch(struct shell *s);
int shell_touchz(struct shell *s);
int shell_truncate(struct shell *s);

/** Move @it to the user's trash. 1: done; 0: there is no trash, or it is in it: delete it; else
 *  -errno after the message (shell_trash.c). */
int shell_to_trash(struct shell *s, const struct shell_item *it);
