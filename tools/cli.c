/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/conf.h"
#include "common/base/err.h"
#include "common/base/utf8.h"
#include "tools/operand.h"

enum {
	OPT_JSON = 256,
	OPT_REPLICATION,
	OPT_BLOCK_SIZE,
	OPT_APPEND,
	OPT_NEW_BLOCK,
	OPT_EC,
	OPT_NAMES,
	OPT_SPACE,
	OPT_CONF,
	OPT_URI,
	OPT_USER,
	OPT_HELP,
	OPT_VERSION
};

static const struct option LONG_OPTIONS[] = {
	{"json", no_argument, NULL, OPT_JSON},
	{"recursive", no_argument, NULL, 'r'},
	{"force", no_argument, NULL, 'f'},
	{"parents", no_argument, NULL, 'p'},
	{"summary", no_argument, NULL, 's'},
	{"human", no_argument, NULL, 'h'},
	{"quiet", no_argument, NULL, 'q'},
	{"jobs", required_argument, NULL, 'j'},
	{"replication", required_argument, NULL, OPT_REPLICATION},
	{"block-size", required_argument, NULL, OPT_BLOCK_SIZE},
	{"ec", required_argument, NULL, OPT_EC},
	{"wait", no_argument, NULL, 'w'},
	{"append", no_argument, NULL, OPT_APPEND},
	{"new-block", no_argument, NULL, OPT_NEW_BLOCK},
	{"names", required_argument, NULL, OPT_NAMES},
	{"space", required_argument, NULL, OPT_SPACE},
	{"conf", required_argument, NULL, OPT_CONF},
	{"fs", required_argument, NULL, OPT_URI},
	{"user", required_argument, NULL, OPT_USER},
	{"help", no_argument, NULL, OPT_HELP},
	{"version", no_argument, NULL, OPT_VERSION},
	{NULL, 0, NULL, 0},
};

static const struct {
	char key; /* as in cli_command.options */
	const char *text;
} OPTION_HELP[] = {
	{'r', "-r, --recursive       directories with all that is in them"},
	{'f', "-f, --force           replace what exists; do not mind what is missing"},
	{'p', "-p, --parents         make missing parents; do not mind what exists"},
	{'s', "-s, --summary         only the total of each path"},
	{'h', "-h, --human           sizes as 1.5 GiB"},
	{'j', "-j, --jobs N          files at a time (default 4)"},
	{'q', "-q, --quiet           no progress"},
	{'B', "    --replication N   replicas of each block\n"
	      "      --block-size SIZE bytes of a block: 134217728, 128m"},
	{'E', "    --ec POLICY       erasure-coded: RS-6-3-1024k; or replication: not so"},
	{'w', "-w, --wait            until the data nodes have done their part"},
	{'A', "    --append          behind what the file holds; no -f, nothing is replaced"},
	{'N', "    --new-block       leave a last, partial block as it is"},
	{'Q', "    --names N         limit of files and directories: a number, or none\n"
	      "      --space SIZE      limit of bytes, replicas included: 10g, or none"},
	{'J', "    --json            one JSON document on standard output"},
};

void *cli_checked(void *p)
{
	if (!p) {
		fputs("dfs: out of memory\n", stderr);
		exit(EXIT_FAIL);
	}
	return p;
}

static void print_help(const struct cli_command *cmd)
{
	printf("usage: dfs %s [OPTION]... %s\n%s\n\n", cmd->name, cmd->usage, cmd->help);
	for (size_t i = 0; i < sizeof(OPTION_HELP) / sizeof(OPTION_HELP[0]); i++)
		if (strchr(cmd->options, OPTION_HELP[i].key))
			printf("  %s\n", OPTION_HELP[i].text);
	printf("      --fs hdfs://H:P   the NameNode (default: fs.defaultFS)\n"
	       "      --conf DIR        read DIR/core-site.xml and hdfs-site.xml (default: $HADOOP_CONF_DIR)\n"
	       "  -D KEY=VALUE          set a property\n"
	       "      --user NAME       act as NAME (default: $HADOOP_USER_NAME, else who you are)\n"
	       "      --help, --version\n"
	       "  --                    operands follow, also those that begin with a dash\n");
}

static int usage_error(const struct cli_command *cmd, const char *what, const char *arg)
{
	fprintf(stderr, "dfs %s: %s%s; see dfs %s --help\n", cmd->name, what, arg ? arg : "",
		cmd->name);
	return EXIT_USAGE;
}

bool cli_parse_size(const char *s, uint64_t max, uint64_t *ret)
{
	uint64_t v;

	if (conf_parse_size(s, &v) < 0 || v < 1 || v > max)
		return false;
	*ret = v;
	return true;
}

static bool takes(const struct cli_command *cmd, int opt)
{
	switch (opt) {
	case OPT_JSON:
		return strchr(cmd->options, 'J');
	case OPT_REPLICATION:
	case OPT_BLOCK_SIZE:
		return strchr(cmd->options, 'B');
	case OPT_APPEND:
		return strchr(cmd->options, 'A');
	case OPT_NEW_BLOCK:
		return strchr(cmd->options, 'N');
	case OPT_NAMES:
	case OPT_SPACE:
		return strchr(cmd->options, 'Q');
	case OPT_EC:
		return strchr(cmd->options, 'E');
	case 'R':
		return strchr(cmd->options, 'r');
	default:
		return opt > 255 || opt == 'D' || strchr(cmd->options, opt);
	}
}

static bool parse_quota(const char *s, bool *ret_given, int64_t *ret)
{
	uint64_t v;

	*ret_given = true;
	*ret = DFS_QUOTA_NONE;
	if (!strcmp(s, "none"))
		return true;
	if (!cli_parse_size(s, INT64_MAX - 1, &v))
		return false;
	*ret = (int64_t)v;
	return true;
}

/* The field that is true when the option @opt is there; NULL: the option takes a value. */
static bool *flag_of(struct cli *c, int opt)
{
	switch (opt) {
	case OPT_JSON:
		return &c->json;
	case 'r':
	case 'R':
		return &c->recursive;
	case 'f':
		return &c->force;
	case 'p':
		return &c->parents;
	case 's':
		return &c->summary;
	case 'h':
		return &c->human;
	case 'q':
		return &c->quiet;
	case 'w':
		return &c->wait;
	case OPT_APPEND:
		return &c->append;
	case OPT_NEW_BLOCK:
		return &c->new_block;
	default:
		return NULL;
	}
}

/* The field that keeps the value of the option @opt as it was given; NULL: a number is meant. */
static const char **text_of(struct cli *c, int opt)
{
	switch (opt) {
	case OPT_EC:
		return &c->ec_policy;
	case OPT_CONF:
		return &c->conf_dir;
	case OPT_URI:
		return &c->uri;
	case OPT_USER:
		return &c->user;
	case 'D':
		return &c->conf[c->conf_count++];
	default:
		return NULL;
	}
}

static bool parse_count(const char *s, uint32_t max, uint32_t *ret)
{
	uint64_t v;

	if (!cli_parse_size(s, max, &v))
		return false;
	*ret = (uint32_t)v;
	return true;
}

/* NULL, or what the option takes in place of @text. */
static const char *take_number(struct cli *c, int opt, const char *text)
{
	switch (opt) {
	case OPT_NAMES:
		return parse_quota(text, &c->has_names, &c->names)
			       ? NULL
			       : "--names takes a number or none, not ";
	case OPT_SPACE:
		return parse_quota(text, &c->has_space, &c->space)
			       ? NULL
			       : "--space takes a size or none, not ";
	case 'j':
		return parse_count(text, 64, &c->jobs) ? NULL : "--jobs takes 1 to 64, not ";
	case OPT_REPLICATION:
		return parse_count(text, 512, &c->replication)
			       ? NULL
			       : "--replication takes 1 to 512, not ";
	default: /* --block-size */
		return cli_parse_size(text, 1ull << 40, &c->block_size)
			       ? NULL
			       : "--block-size takes a size such as 128m, not ";
	}
}

/* -1: go on; else the exit code. */
static int take_option(struct cli *c, const struct cli_command *cmd, int opt)
{
	bool *flag = flag_of(c, opt);
	const char **text, *mistake;

	if (flag) {
		*flag = true;
		return -1;
	}
	if (opt == OPT_HELP) {
		print_help(cmd);
		return EXIT_OK;
	}
	if (opt == OPT_VERSION) {
		printf("dfs-rdma %s\n", dfs_version());
		return EXIT_OK;
	}
	text = text_of(c, opt);
	if (text) {
		*text = optarg;
		return -1;
	}
	mistake = take_number(c, opt, optarg);
	return mistake ? usage_error(cmd, mistake, optarg) : -1;
}

/* "dfs chmod -w FILE": what begins with a dash may be meant as an operand. */
static int unknown_option(const struct cli_command *cmd, char **argv)
{
	const char *arg = argv[optind - 1];

	if (!cmd->min_operands || arg[0] != '-' || arg[1] == '-')
		return usage_error(cmd, "unknown option ", arg);
	fprintf(stderr,
		"dfs %s: unknown option %s; if it is no option: dfs %s -- %s; see dfs %s --help\n",
		cmd->name, arg, cmd->name, arg, cmd->name);
	return EXIT_USAGE;
}

/* Where operands of the kind -addPool begin. */
static int first_word(int argc, char **argv)
{
	int i = 1;

	while (i < argc && !(argv[i][0] == '-' && argv[i][1] >= 'a' && argv[i][1] <= 'z'))
		i++;
	return i;
}

int cli_parse(struct cli *c, const struct cli_command *cmd, int argc, char **argv)
{
	const int options = strchr(cmd->options, '-') ? first_word(argc, argv) : argc;
	int opt, rc;

	c->cmd = cmd->name;
	c->operands = cmd->operands;
	c->jobs = 4;
	c->conf = calloc((size_t)argc + 1, sizeof(*c->conf));
	if (!c->conf)
		return cli_fail_errno(c, "start", -ENOMEM, NULL);
	opterr = 0;
	optind = 1;
	while ((opt = getopt_long(options, argv, ":rRfpshqwj:D:", LONG_OPTIONS, NULL)) != -1) {
		if (opt == ':')
			return usage_error(cmd, "a value is missing after ", argv[optind - 1]);
		if (opt == '?' || !takes(cmd, opt))
			return unknown_option(cmd, argv);
		rc = take_option(c, cmd, opt);
		if (rc >= 0)
			return rc;
	}
	c->argc = argc - optind;
	c->argv = argv + optind;
	if (c->argc < cmd->min_operands)
		return usage_error(cmd, "too few operands: ", cmd->usage);
	if (c->append && c->ec_policy)
		return usage_error(cmd, "--append keeps the policy of a file: no --ec", NULL);
	if (cmd->max_operands >= 0 && c->argc > cmd->max_operands)
		return usage_error(cmd, "one operand too many: ", c->argv[cmd->max_operands]);
	return -1;
}

int cli_try_connect(struct cli *c, struct dfs_err *err)
{
	struct dfs_connect_opts o = {.size = sizeof(o),
				     .uri = c->uri,
				     .conf_dir = c->conf_dir,
				     .user = c->user,
				     .conf = c->conf};
	char *named = NULL;
	int rc = operand_check(c);

	if (rc)
		return rc;
	if (!o.uri)
		o.uri = named = operand_uri(c);
	rc = dfs_connect(&o, &c->fs, err);
	free(named);
	return rc < 0 ? rc : operand_strip(c);
}

int cli_connect(struct cli *c)
{
	struct dfs_err err = {0};
	const int rc = cli_try_connect(c, &err);

	return rc < 0 ? cli_fail(c, NULL, err.text) : rc;
}

void cli_end(struct cli *c)
{
	dfs_disconnect(c->fs);
	free(c->conf);
}

static void say(const struct cli *c, const char *kind, const char *what, const char *text)
{
	flockfile(stderr);
	fprintf(stderr, "%s%s: %s%s%s%s\n", c->hadoop ? "" : "dfs ", c->cmd, kind, what ? what : "",
		what ? ": " : "", text);
	funlockfile(stderr);
}

void cli_warn(struct cli *c, const char *what, const char *text)
{
	say(c, "warning: ", what, text);
}

int cli_fail(struct cli *c, const char *what, const char *text)
{
	if (what && !strncmp(what, text, strlen(what)))
		what = NULL; /* the library has named it */
	say(c, "", what, text);
	__atomic_add_fetch(&c->failures, 1, __ATOMIC_RELAXED);
	return EXIT_FAIL;
}

int cli_fail_cure(struct cli *c, const char *what, const char *text, const char *cure)
{
	char line[768];

	snprintf(line, sizeof(line), "%s; %s", text, cure);
	return cli_fail(c, what, line);
}

const char *cli_hadoop_words(int rc)
{
	switch (rc) {
	case -ENOENT:
		return "No such file or directory";
	case -EEXIST:
		return "File exists";
	case -EISDIR:
		return "Is a directory";
	case -ENOTDIR:
		return "Is not a directory";
	case -ENOTEMPTY:
		return "Directory is not empty";
	default:
		return NULL;
	}
}

int cli_fail_errno(struct cli *c, const char *what, int rc, const char *cure)
{
	const char *words = c->hadoop ? cli_hadoop_words(rc) : NULL;

	if (what && words) {
		flockfile(stderr);
		fprintf(stderr, "%s: `%s': %s\n", c->cmd, what, words);
		funlockfile(stderr);
		__atomic_add_fetch(&c->failures, 1, __ATOMIC_RELAXED);
		return EXIT_FAIL;
	}
	return cure ? cli_fail_cure(c, what, err_name(rc), cure) : cli_fail(c, what, err_name(rc));
}

int cli_fail_write(struct cli *c, const char *what, int rc)
{
	return cli_fail_errno(c, what, rc,
			      rc == -ENOSPC   ? "free some space"
			      : rc == -EDQUOT ? "your quota on that disk is used up"
			      : rc == -EPIPE  ? "its reader has ended"
			      : rc == -ENOENT ? "make its directory first"
					      : NULL);
}

const char *cli_size(char buf[32], uint64_t bytes, bool human)
{
	static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double v = (double)bytes;
	size_t i = 0;

	if (!human) {
		snprintf(buf, 32, "%llu", (unsigned long long)bytes);
		return buf;
	}
	while (v >= 1024 && i + 1 < sizeof(unit) / sizeof(unit[0])) {
		v /= 1024;
		i++;
	}
	snprintf(buf, 32, i ? "%.1f %s" : "%.0f %s", v, unit[i]);
	return buf;
}

const char *cli_name(const char *path)
{
	static _Thread_local char ring[4][1024];
	static _Thread_local unsigned int turn;
	char *out = ring[turn++ % 4];

	if (!isatty(STDOUT_FILENO) || strlen(path) >= sizeof(ring[0]))
		return path;
	for (size_t i = 0; (out[i] = path[i]); i++)
		if ((unsigned char)path[i] < 0x20 || path[i] == 0x7f)
			out[i] = '?';
	return out;
}

const char *cli_time(char buf[32], uint64_t ms)
{
	time_t t = (time_t)((int64_t)ms / 1000); /* before 1970: negative */
	struct tm tm;

	if (!localtime_r(&t, &tm) || !strftime(buf, 32, "%Y-%m-%d %H:%M", &tm))
		snprintf(buf, 32, "?");
	return buf;
}

const char *cli_mode(char buf[12], const struct dfs_stat *st)
{
	static const char rwx[] = "rwxrwxrwx";

	buf[0] = st->type == DFS_DIR ? 'd' : st->type == DFS_SYMLINK ? 'l' : '-';
	for (int i = 0; i < 9; i++)
		buf[i + 1] = st->mode >> (8 - i) & 1 ? rwx[i] : '-';
	if (st->mode & 01000)
		buf[9] = st->mode & 1 ? 't' : 'T';
	buf[10] = 0;
	return buf;
}

char *cli_strdup(const char *s)
{
	return cli_checked(strdup(s));
}

char *cli_join(const char *dir, const char *name)
{
	size_t d = strlen(dir);
	char *p;

	while (d > 1 && dir[d - 1] == '/')
		d--;
	p = cli_checked(malloc(d + strlen(name) + 2));
	memcpy(p, dir, d);
	if (!d || dir[d - 1] != '/')
		p[d++] = '/';
	memcpy(p + d, name, strlen(name) + 1);
	return p;
}

char *cli_base(const char *path)
{
	size_t end = strlen(path), start;

	while (end && path[end - 1] == '/')
		end--;
	start = end;
	while (start && path[start - 1] != '/')
		start--;
	return cli_checked(strndup(path + start, end - start));
}

char *cli_parent(const char *path)
{
	size_t end = strlen(path);

	while (end && path[end - 1] == '/')
		end--;
	while (end && path[end - 1] != '/')
		end--;
	while (end > 1 && path[end - 1] == '/')
		end--;
	return end ? cli_checked(strndup(path, end)) : cli_strdup("."); /* the home directory */
}

void cli_json_string(FILE *f, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t n;

	fputc('"', f);
	for (; *s; s += n ? n : 1) {
		n = utf8_char_len((const char *)s);
		if (!n)
			fputs("\\ufffd", f);
		else if (*s == '"' || *s == '\\')
			fprintf(f, "\\%c", *s);
		else if (*s < 0x20)
			fprintf(f, "\\u%04x", *s);
		else
			fwrite(s, 1, n, f);
	}
	fputc('"', f);
}

void cli_json_item(struct cli *c, const char *path)
{
	fputs(c->printed++ ? ",\n {\"path\": " : "[{\"path\": ", stdout);
	cli_json_string(stdout, path);
}

void cli_json_limit(const char *name, int64_t limit)
{
	if (limit < 0)
		printf(", \"%s\": null", name);
	else
		printf(", \"%s\": %lld", name, (long long)limit);
}

int cli_json_end(const struct cli *c)
{
	if (c->json)
		puts(c->printed ? "]" : "[]");
	return EXIT_OK;
}

void cli_list(struct cli *c, const char *dir, cli_entry_fn *fn, void *arg)
{
	struct dfs_err err = {0};
	const struct dfs_stat *st;
	struct dfs_stat link;
	struct dfs_list *l;
	int rc = dfs_list_open(c->fs, dir, &l, &err);

	if (rc == -ELOOP && dfs_lstat(c->fs, dir, &link, NULL) == 0) {
		link.name = "";
		fn(c, dir, &link, arg);
		return;
	}
	if (rc < 0) {
		cli_fail(c, dir, err.text);
		return;
	}
	while ((rc = dfs_list_next(l, &st, &err)) > 0) {
		char *child = *st->name ? cli_join(dir, st->name) : cli_strdup(dir);

		fn(c, child, st, arg);
		free(child);
	}
	if (rc < 0)
		cli_fail(c, dir, err.text);
	dfs_list_close(l);
}
