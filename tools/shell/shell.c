/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/shell/shell.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "tools/operand.h"

static int help_command(struct shell *s);
static int usage_command(struct shell *s);
static int not_there(struct shell *s);

#define PUT_OPTIONS "f p! l! d t: q:"
#define GET_OPTIONS "f p! crc! ignoreCrc! t: q:"
#define PUT_HELP                                                                                   \
	"Copy local files and directories (-: standard input) into the cluster. -f: replace\n"     \
	"files; -t N: files at a time. A file appears under its name when it is whole, with -d, too."
#define GET_HELP                                                                                   \
	"Copy files and directories to the local disk. -f: replace files; -t N: files at a time."

static const struct shell_command COMMANDS[] = {
	{"appendToFile", shell_append, "n", OPERANDS_LAST_REMOTE, 2, -1, "[-n] LOCAL... PATH",
	 "Write local files (-: standard input) to the end of PATH. -n: in a new block."},
	{"cat", shell_cat, "ignoreCrc!", OPERANDS_REMOTE, 1, -1, "PATH...",
	 "Write files to standard output."},
	{"checksum", shell_checksum, "v", OPERANDS_REMOTE, 1, -1, "[-v] PATH...",
	 "Hadoop's checksums of files, which tell files of other bytes apart; -v: with the block size.\n"
	 "-D dfs.checksum.combine.mode=COMPOSITE_CRC: the same for any block size."},
	{"chgrp", shell_attr, "R ...", OPERANDS_FIRST_OTHER, 2, -1, "[-R] GROUP PATH...",
	 "Change the group."},
	{"chmod", shell_attr, "R ...", OPERANDS_FIRST_OTHER, 2, -1, "[-R] MODE PATH...",
	 "Change permissions: 0640, u+rwx,go-w."},
	{"chown", shell_attr, "R ...", OPERANDS_FIRST_OTHER, 2, -1,
	 "[-R] [OWNER][:[GROUP]] PATH...", "Change owner and group."},
	{"concat", shell_concat, "", OPERANDS_REMOTE, 2, -1, "TARGET SOURCE...",
	 "Move the blocks of SOURCEs to the end of TARGET."},
	{"copyFromLocal", shell_put, PUT_OPTIONS, OPERANDS_LAST_REMOTE, 1, -1,
	 "[-f] [-d] [-t N] LOCAL... PATH", PUT_HELP},
	{"copyToLocal", shell_get, GET_OPTIONS, OPERANDS_LAST_LOCAL, 1, -1,
	 "[-f] [-t N] PATH... LOCAL", GET_HELP},
	{"count", shell_count, "q h v u t! x! e! s!", OPERANDS_REMOTE, 1, -1,
	 "[-q] [-h] [-v] [-u] PATH...",
	 "Directories, files and bytes below each path; -q: quotas, too; -u: quotas alone; -v: a header."},
	{"cp", shell_cp, "f d p* t: q:", OPERANDS_REMOTE, 2, -1,
	 "[-f] [-d] [-p[topax]] [-t N] PATH... TARGET",
	 "Copy files and directories within the cluster. -f: replace files; -p: keep times, owner and\n"
	 "permission, or what the letters say (a: access control list, x: extended attributes)."},
	{"df", shell_df, "h", OPERANDS_REMOTE, 0, -1, "[-h] [PATH...]",
	 "Capacity, used and free bytes of the cluster."},
	{"du", shell_du, "s h v x!", OPERANDS_REMOTE, 0, -1, "[-s] [-h] [-v] [PATH...]",
	 "Bytes of files below each entry, and of all their replicas; -s: of each path as a whole."},
	{"dus", shell_du, "h v x!", OPERANDS_REMOTE, 0, -1, "[PATH...]", "As -du -s."},
	{"expunge", shell_expunge, "immediate", OPERANDS_REMOTE, 0, 0, "[-immediate]",
	 "Delete what has been in the trash for longer than fs.trash.interval, with -immediate all but what\n"
	 "came last, and make a checkpoint of that."},
	{"find", shell_find, NULL, OPERANDS_REMOTE, 1, -1, "[PATH...] [EXPRESSION...]",
	 "Paths below each path that the expression lets pass: -name PATTERN, -iname PATTERN, -print,\n"
	 "-print0, with -a or nothing between them."},
	{"get", shell_get, GET_OPTIONS, OPERANDS_LAST_LOCAL, 1, -1, "[-f] [-t N] PATH... LOCAL",
	 GET_HELP},
	{"getfacl", shell_getfacl, "R", OPERANDS_REMOTE, 1, 1, "[-R] PATH",
	 "Access control lists."},
	{"getfattr", shell_getfattr, "R n: d e:", OPERANDS_REMOTE, 1, 1,
	 "[-R] -n NAME|-d [-e text|hex|base64] PATH", "The extended attribute NAME, or all (-d)."},
	{"getmerge", shell_getmerge, "nl skip-empty-file", OPERANDS_LAST_LOCAL, 2, -1,
	 "[-nl] [-skip-empty-file] PATH... LOCAL",
	 "Write files, and those of directories, into one local file, which appears when it is whole.\n"
	 "-nl: a line feed behind each; -skip-empty-file: none behind empty ones."},
	{"head", shell_head, "", OPERANDS_REMOTE, 1, 1, "FILE",
	 "Write the first KiB of a file to standard output."},
	{"help", help_command, "", OPERANDS_FIRST_OTHER, 0, -1, "[COMMAND...]",
	 "What commands do."},
	{"ls", shell_ls, "C d h q R t S r u e!", OPERANDS_REMOTE, 0, -1,
	 "[-C] [-d] [-h] [-q] [-R] [-t] [-S] [-r] [-u] [PATH...]",
	 "List files and what is in directories. -C: names alone; -d: directories themselves;\n"
	 "-h: sizes as 1.5 K; -q: ? for control characters; -R: all below; -t, -S: by time, by size;\n"
	 "-r: in reverse; -u: by and with the time of access."},
	{"lsr", shell_ls, "C d h q t S r u e!", OPERANDS_REMOTE, 0, -1, "[PATH...]", "As -ls -R."},
	{"mkdir", shell_mkdir, "p", OPERANDS_REMOTE, 1, -1, "[-p] PATH...",
	 "Make directories; -p: their parents, too, and it does not matter that they are there."},
	{"moveFromLocal", shell_put, PUT_OPTIONS, OPERANDS_LAST_REMOTE, 1, -1,
	 "[-f] [-d] [-t N] LOCAL... PATH",
	 "As -put; local files are deleted when they are copied."},
	{"moveToLocal", not_there, "", OPERANDS_LAST_LOCAL, 1, -1, "PATH LOCAL",
	 "Not in Hadoop either: get, and rm what you have."},
	{"mv", shell_mv, "", OPERANDS_REMOTE, 2, -1, "PATH... TARGET",
	 "Rename; into TARGET when it is a directory."},
	{"put", shell_put, PUT_OPTIONS, OPERANDS_LAST_REMOTE, 1, -1,
	 "[-f] [-d] [-t N] LOCAL... PATH", PUT_HELP},
	{"rm", shell_rm, "f r R skipTrash safely!", OPERANDS_REMOTE, 1, -1,
	 "[-f] [-r|-R] [-skipTrash] PATH...",
	 "Delete files, with -r directories; to the trash where there is one (fs.trash.interval), unless\n"
	 "-skipTrash. -f: what is not there is no failure."},
	{"rmdir", shell_rmdir, "-ignore-fail-on-non-empty", OPERANDS_REMOTE, 1, -1,
	 "[--ignore-fail-on-non-empty] PATH...", "Delete empty directories."},
	{"rmr", shell_rm, "f skipTrash safely!", OPERANDS_REMOTE, 1, -1,
	 "[-f] [-skipTrash] PATH...", "As -rm -r."},
	{"setfacl", shell_setfacl, "b k R m x -set", OPERANDS_REMOTE, 1, 2,
	 "[-R] -b|-k|-m ENTRIES|-x ENTRIES|--set ENTRIES PATH",
	 "Change access control lists: -b: all but owner, group and others go; -k: the default entries go;\n"
	 "-m: add; -x: take away; --set: these instead. ENTRIES: [default:]user:NAME:rwx,..."},
	{"setfattr", shell_setfattr, "n: v: x:", OPERANDS_REMOTE, 1, 1,
	 "-n NAME [-v VALUE]|-x NAME PATH",
	 "Set an extended attribute, or remove it (-x). A VALUE is text, 0x and hexadecimal, 0s and base64."},
	{"setrep", shell_setrep, "R w", OPERANDS_FIRST_OTHER, 2, -1, "[-R] [-w] N PATH...",
	 "Keep N replicas of each block of files, and of all below directories; -w waits for them."},
	{"stat", shell_stat_command, "R", OPERANDS_FIRST_OTHER, 1, -1, "[-R] [FORMAT] PATH...",
	 "What is known of a path: %a %A permission, %b bytes, %F kind, %g group, %n name, %o block size,\n"
	 "%r replication, %u owner, %x %X access, %y %Y modification (UTC, or milliseconds)."},
	{"tail", shell_tail, "f s:", OPERANDS_REMOTE, 1, 1, "[-f] [-s MILLISECONDS] FILE",
	 "Write the last KiB of a file to standard output; -f: and what is appended from then on, looked\n"
	 "for every 5000 ms, or as -s says. A file that is replaced is followed by name."},
	{"test", shell_test, "e d f s z w r", OPERANDS_REMOTE, 1, 1, "-e|-d|-f|-s|-z|-w|-r PATH",
	 "Exit status 0 if the path is there (-e), a directory (-d), a file (-f), has bytes (-s), has none\n"
	 "(-z), may be written (-w), read (-r); else 1."},
	{"text", shell_text, "ignoreCrc!", OPERANDS_REMOTE, 1, -1, "PATH...",
	 "Write files to standard output; what gzip or zlib (.deflate) has packed is unpacked."},
	{"touch", shell_touch, "a m c t:", OPERANDS_REMOTE, 1, -1,
	 "[-a] [-m] [-c] [-t yyyyMMdd:HHmmss] FILE...",
	 "Set the times of files, which are made when they are missing. -a: of access alone; -m: of\n"
	 "modification alone; -c: make none."},
	{"touchz", shell_touchz, "", OPERANDS_REMOTE, 1, -1, "FILE...",
	 "Make empty files; of empty ones that are there, set the times."},
	{"truncate", shell_truncate, "w", OPERANDS_FIRST_OTHER, 2, -1, "[-w] LENGTH FILE...",
	 "Cut files to LENGTH; -w waits until the data nodes have."},
	{"usage", usage_command, "", OPERANDS_FIRST_OTHER, 0, -1, "[COMMAND...]",
	 "What commands take."},
};
#define COMMAND_COUNT (sizeof(COMMANDS) / sizeof(COMMANDS[0]))

static const struct shell_command *find(const char *name)
{
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		if (!strcmp(COMMANDS[i].name, name))
			return &COMMANDS[i];
	return NULL;
}

bool shell_has(const char *name)
{
	return find(name);
}

/* ---- help ---- */

#define LINE_MAX_WANTED 90

void shell_print_names(FILE *f)
{
	size_t used = 0;

	for (size_t i = 0; i < COMMAND_COUNT; i++) {
		const size_t n = strlen(COMMANDS[i].name) + 2;

		if (used + n > LINE_MAX_WANTED) {
			fputc('\n', f);
			used = 0;
		}
		used += n;
		fprintf(f, " -%s", COMMANDS[i].name);
	}
	fputc('\n', f);
}

static void print_usage(FILE *f, const struct shell_command *cmd)
{
	fprintf(f, "Usage: dfs fs [-D KEY=VALUE] [-fs URI] -%s %s\n", cmd->name, cmd->usage);
}

static void print_overview(FILE *f)
{
	fputs("Usage: dfs fs [-D KEY=VALUE] [-fs hdfs://HOST:PORT] [--conf DIR] [--user NAME] -COMMAND ...\n",
	      f);
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		fprintf(f, "\t[-%s %s]\n", COMMANDS[i].name, COMMANDS[i].usage);
	fputs("`dfs fs -help COMMAND` tells more.\n", f);
}

/* Those that are named, or all. */
static int describe(struct shell *s, bool help)
{
	for (int i = 0; i < s->c.argc; i++) {
		const char *name = s->c.argv[i];
		const struct shell_command *cmd = find(name + (*name == '-'));

		if (!cmd) {
			cli_fail(&s->c, name, "Unknown command");
			continue;
		}
		if (help)
			printf("-%s %s :\n%s\n", cmd->name, cmd->usage, cmd->help);
		else
			print_usage(stdout, cmd);
	}
	if (!s->c.argc)
		print_overview(stdout);
	return EXIT_OK;
}

static int help_command(struct shell *s)
{
	return describe(s, true);
}

static int usage_command(struct shell *s)
{
	return describe(s, false);
}

static int not_there(struct shell *s)
{
	return cli_fail(&s->c, NULL, "Option '-moveToLocal' is not implemented yet.");
}

/* ---- messages ---- */

int shell_usage(struct shell *s, const char *what, const char *word)
{
	fprintf(stderr, "-%s: %s%s\n", s->cmd->name, what, word ? word : "");
	print_usage(stderr, s->cmd);
	return EXIT_SHELL_USAGE;
}

int shell_fail(struct shell *s, const char *shown, int rc, const struct dfs_err *err)
{
	if (cli_hadoop_words(rc))
		return cli_fail_errno(&s->c, shown, rc, NULL);
	if (!err || !err->text[0])
		return shell_fail_text(s, shown, err_name(rc));
	return cli_fail(&s->c, NULL, err->text);
}

int shell_fail_text(struct shell *s, const char *shown, const char *text)
{
	flockfile(stderr);
	fprintf(stderr, "%s: `%s': %s\n", s->c.cmd, shown, text);
	funlockfile(stderr);
	__atomic_add_fetch(&s->c.failures, 1, __ATOMIC_RELAXED);
	return EXIT_FAIL;
}

/* ---- the words of the command line ---- */

struct words {
	int n;
	char **word;
};

static void skip(struct words *w, int n)
{
	w->n -= n;
	w->word += n;
}

/* An option that every command has: true, and it is taken. */
static bool take_common(struct shell *s, struct words *w)
{
	static const char *const names[] = {"-D", "-fs", "--fs", "--conf", "--user"};
	const char **const to[] = {&s->c.conf[s->c.conf_count], &s->c.uri, &s->c.uri,
				   &s->c.conf_dir, &s->c.user};
	const char *word = w->word[0];

	if (!strncmp(word, "-D", 2) && word[2]) {
		s->c.conf[s->c.conf_count++] = word + 2;
		skip(w, 1);
		return true;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(word, names[i]) != 0 || w->n < 2)
			continue;
		*to[i] = w->word[1];
		s->c.conf_count += i == 0;
		skip(w, 2);
		return true;
	}
	return false;
}

/* Options that Hadoop has before a command, and we do not. */
static bool is_foreign(const char *word)
{
	static const char *const foreign[] = {"-conf", "-jt", "-files", "-libjars", "-archives"};

	for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
		if (!strcmp(word, foreign[i]))
			return true;
	return false;
}

/* Which command it is, with what stands before its name. -1: go on; else the exit code. */
static int take_command(struct shell *s, struct words *w, bool bare)
{
	const char *word;

	while (w->n && take_common(s, w))
		;
	if (!w->n) {
		print_overview(stderr);
		return EXIT_SHELL_USAGE;
	}
	word = w->word[0];
	if (is_foreign(word)) {
		fprintf(stderr, "dfs fs: %s is not supported; --conf DIR names a configuration\n",
			word);
		return EXIT_SHELL_USAGE;
	}
	s->cmd = bare && *word != '-' ? find(word) : *word == '-' ? find(word + 1) : NULL;
	if (!s->cmd) {
		fprintf(stderr, "%s: Unknown command\n", word);
		if (*word != '-' && find(word))
			fprintf(stderr, "Did you mean -%s?  This command begins with a dash.\n",
				word);
		print_overview(stderr);
		return EXIT_SHELL_USAGE;
	}
	skip(w, 1);
	s->c.cmd = s->cmd->name;
	s->c.operands = s->cmd->operands;
	while (w->n && take_common(s, w))
		;
	return -1;
}

/* -1: go on; else the exit code. */
static int take_options(struct shell *s, struct words *w)
{
	const struct shell_command *cmd = s->cmd;
	int n = 0;

	switch (shell_options_take(&s->options, cmd->options, cmd->least, w->n, w->word, &n)) {
	case SHELL_OPTIONS_UNKNOWN:
		return shell_usage(s, "Illegal option ", w->word[n]);
	case SHELL_OPTIONS_REFUSED:
		return shell_usage(s, "this program does not have Hadoop's option ", w->word[n]);
	case SHELL_OPTIONS_OK:
		break;
	}
	skip(w, n);
	return -1;
}

/* What begins with a dash is not an operand of a command without options. */
static void take_own_words(struct shell *s, struct words *w)
{
	int n = 0;

	while (n < w->n && w->word[n][0] != '-')
		n++;
	s->rest = w->word + n;
	s->rest_count = w->n - n;
	w->n = n;
}

/* Its options and operands. -1: go on; else the exit code. */
static int take_rest(struct shell *s, struct words *w)
{
	const struct shell_command *cmd = s->cmd;
	const int rc = cmd->options ? take_options(s, w) : -1;
	char line[96];

	if (rc >= 0)
		return rc;
	if (w->n < cmd->least) {
		snprintf(line, sizeof(line), "Not enough arguments: expected %d but got %d",
			 cmd->least, w->n);
		return shell_usage(s, line, NULL);
	}
	if (cmd->most >= 0 && w->n > cmd->most) {
		snprintf(line, sizeof(line), "Too many arguments: expected %d but got %d",
			 cmd->most, w->n);
		return shell_usage(s, line, NULL);
	}
	if (!cmd->options)
		take_own_words(s, w);
	s->c.argc = w->n;
	memcpy(s->c.argv, w->word, (size_t)w->n * sizeof(*w->word));
	return -1;
}

/* Where a command has a place to put things and none is named, it is here, or at home. */
static void add_place(struct shell *s)
{
	static char here[] = ".";
	const bool copies =
		s->cmd->operands == OPERANDS_LAST_LOCAL || s->cmd->operands == OPERANDS_LAST_REMOTE;

	if (s->c.argc == 1 && copies)
		s->c.argv[s->c.argc++] = here;
	if (s->cmd->run == shell_stat_command && !strchr(s->c.argv[0], '%'))
		s->c.operands = OPERANDS_REMOTE; /* no format */
	for (int i = 0; i < s->c.argc; i++)
		s->shown[i] = s->c.argv[i];
}

static int run(struct shell *s)
{
	const bool offline = s->cmd->run == help_command || s->cmd->run == usage_command ||
			     s->cmd->run == not_there;
	int rc;

	add_place(s);
	rc = offline ? EXIT_OK : cli_connect(&s->c);
	if (!rc)
		rc = s->cmd->run(s);
	if (!rc && (fflush(stdout) || ferror(stdout)))
		rc = cli_fail_write(&s->c, "standard output", neg_errno());
	if (rc == EXIT_USAGE)
		rc = EXIT_SHELL_USAGE;
	return rc ? rc : s->c.failures ? EXIT_FAIL : EXIT_OK;
}

int shell_main(int argc, char **argv, bool bare)
{
	struct shell s = {.c = {.hadoop = true, .quiet = true, .jobs = 4}};
	struct words w = {argc, argv};
	const size_t room = (size_t)argc + 2;
	int rc;

	s.c.conf = cli_checked(calloc(room, sizeof(*s.c.conf)));
	s.c.argv = cli_checked(calloc(room, sizeof(*s.c.argv)));
	s.shown = cli_checked(calloc(room, sizeof(*s.shown)));
	rc = take_command(&s, &w, bare);
	if (rc < 0)
		rc = take_rest(&s, &w);
	if (rc < 0)
		rc = run(&s);
	for (size_t i = 0; i < s.count; i++)
		shell_item_end(&s.item[i]);
	free(s.item);
	free(s.shown);
	free(s.c.argv);
	cli_end(&s.c);
	return rc;
}
