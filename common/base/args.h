/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * args - the command line of every program
 *
 * Idea: one table per program; the shared options (-D k=v, --conf DIR, -v, --version, --help,
 * --help-config), the help text, the configuration and the wording of mistakes are the same
 * everywhere. A mistake is one line on stderr and exit status 2.
 * Ownership: strings point into argv; struct args owns conf until args_free().
 * Threading: main thread, at start.
 */
#include <stdbool.h>
#include <stdint.h>

struct conf;

enum { ARGS_EXIT_USAGE = 2 };

/* One option. Exactly one target is set; @metavar is NULL for a flag. */
struct args_opt {
	const char *name; /* long name without dashes; NULL ends the table */
	char letter;      /* short form, or 0 */
	const char *metavar;
	const char *help;
	bool *flag;
	const char **text;
	uint64_t *size; /* number, with k m g t suffixes */
};

struct args_spec {
	const char *prog;
	const char *synopsis; /* after the program name: "[option]... FILE DIR" */
	const char *about;    /* one paragraph */
	const struct args_opt *opts;
	int min_operands;
	int max_operands;     /* -1: any number */
	bool stop_at_operand; /* the first operand ends the options (a command follows) */
};

struct args {
	struct conf *conf; /* owned: files, then -D; checked */
	bool verbose;
	int argc; /* operands only */
	char **argv;
};

/** Parse, load the configuration, start the log. True: go on. False: leave main() with *ret_exit
 *  (0 after --help and --version, 2 after a mistake); nothing to free then. */
bool args_parse(const struct args_spec *spec, int argc, char **argv, struct args *ret,
		int *ret_exit);
void args_free(struct args *a);
/** Print "PROG: <text>; see PROG --help" to stderr; returns ARGS_EXIT_USAGE. */
int args_usage(const struct args_spec *spec, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
