/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * shell_options - the options of a command line in the words of `hdfs dfs`
 *
 * Idea: an option is a word with one dash, and the rest of the word is its name: -h, -skipTrash.
 * Letters are not joined (-lR is no option). Options end before the first word without a dash,
 * before "-" (standard input) and behind "--". A command says in one text which ones it takes:
 * "R h s: p* l!" - R and h are flags, s has a value, p has one in the same word (-ptop) or none, and
 * l is one that Hadoop has and we do not: it is refused, and never passed over. With "..." in the
 * text the first unknown one is an operand (-chmod -w).
 * Ownership: values point into the words. Threading: none.
 * Source: Hadoop's shell.CommandFormat.
 */
#define SHELL_OPTIONS_MAX 16

struct shell_options {
	const char *spec;
	const char *value[SHELL_OPTIONS_MAX]; /* in the order of spec; NULL: not given */
};

enum shell_options_rc {
	SHELL_OPTIONS_OK,
	SHELL_OPTIONS_UNKNOWN,
	SHELL_OPTIONS_REFUSED, /* Hadoop's, and not ours */
};

/** Take the options in front of @argv. *@ret_words is how many words they are; after a failure the
 *  place of the wrong one. An option with a value that has @least words or fewer behind it, or one
 *  that begins with a dash, has the value "". */
enum shell_options_rc shell_options_take(struct shell_options *o, const char *spec, int least,
					 int argc, char **argv, int *ret_words);
/** @name without : and *. NULL: it was not given; "" for a flag; else its value. */
const char *shell_option(const struct shell_options *o, const char *name);
