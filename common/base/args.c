/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/args.h"

#include <assert.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/conf.h"
#include "common/base/log.h"

#define OPT_MAX 64
#define OPT_BASE 256 /* getopt values of the program's options: OPT_BASE + index */

enum shared { S_CONF = 1, S_VERSION, S_HELP_CONFIG };

static const struct option shared_opts[] = {
	{"conf", required_argument, NULL, S_CONF},         {"verbose", no_argument, NULL, 'v'},
	{"version", no_argument, NULL, S_VERSION},         {"help", no_argument, NULL, 'h'},
	{"help-config", no_argument, NULL, S_HELP_CONFIG},
};
#define SHARED_COUNT ((int)(sizeof(shared_opts) / sizeof(shared_opts[0])))

/* While parsing: -D must be applied after the files, which --conf may name later. */
struct parse {
	const struct args_spec *spec;
	const char *conf_dir;
	const char **defines;
	int define_count;
	bool verbose;
};

static void print_opt(char letter, const char *name, const char *metavar, const char *help)
{
	char left[64], dash[5] = "    ";

	if (letter)
		(void)snprintf(dash, sizeof(dash), "-%c, ", letter);
	(void)snprintf(left, sizeof(left), "%s--%s%s%s", dash, name, metavar ? " " : "",
		       metavar ? metavar : "");
	fprintf(stdout, "  %-28s %s\n", left, help);
}

static void print_help(const struct args_spec *s)
{
	fprintf(stdout, "usage: %s %s\n\n%s\n\noptions:\n", s->prog, s->synopsis, s->about);
	for (const struct args_opt *o = s->opts; o && o->name; o++)
		print_opt(o->letter, o->name, o->metavar, o->help);
	fprintf(stdout, "  %-28s %s\n", "-D KEY=VALUE", "set a configuration key; may be repeated");
	print_opt(0, "conf", "DIR",
		  "directory of core-site.xml and hdfs-site.xml [$HADOOP_CONF_DIR]");
	print_opt('v', "verbose", NULL, "log what happens in detail");
	print_opt(0, "version", NULL, "print the version");
	print_opt('h', "help", NULL, "print this text");
	print_opt(0, "help-config", NULL, "list the configuration keys");
}

int args_usage(const struct args_spec *spec, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", spec->prog);
	va_start(ap, fmt);
	(void)vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "; see %s --help\n", spec->prog);
	return ARGS_EXIT_USAGE;
}

/* The tables of getopt_long() from ours. */
static void build_tables(const struct args_spec *spec, char *letters, struct option *longs)
{
	int n = 0;

	if (spec->stop_at_operand)
		*letters++ = '+';
	*letters++ = ':'; /* tell a missing value from an unknown option */
	for (const struct args_opt *o = spec->opts; o && o->name; o++, n++) {
		assert(n < OPT_MAX && !!o->flag + !!o->text + !!o->size == 1);
		longs[n] = (struct option){o->name, o->flag ? no_argument : required_argument, NULL,
					   OPT_BASE + n};
		if (o->letter)
			*letters++ = o->letter;
		if (o->letter && !o->flag)
			*letters++ = ':';
	}
	memcpy(longs + n, shared_opts, sizeof(shared_opts));
	longs[n + SHARED_COUNT] = (struct option){0};
	memcpy(letters, "D:vh", 5);
}

static const struct args_opt *find_opt(const struct args_spec *spec, int value)
{
	const struct args_opt *o = spec->opts;

	if (value >= OPT_BASE)
		return &spec->opts[value - OPT_BASE];
	while (o && o->name && o->letter != value)
		o++;
	return o && o->name ? o : NULL;
}

static int store_opt(const struct args_spec *spec, const struct args_opt *o, const char *value)
{
	if (o->flag)
		*o->flag = true;
	else if (o->text)
		*o->text = value;
	else if (conf_parse_size(value, o->size) < 0)
		return args_usage(spec, "--%s '%s' is not a number such as 12, 64k or 1g", o->name,
				  value);
	return 0;
}

static int unknown_opt(const struct args_spec *spec, char **argv, bool is_missing)
{
	const char *what = is_missing ? "option needs a value: " : "unknown option: ";

	if (optopt > 0 && optopt < OPT_BASE && optopt >= ' ')
		return args_usage(spec, "%s-%c", what, optopt);
	return args_usage(spec, "%s%s", what, argv[optind - 1]);
}

/* All options. False: leave with *ret_exit. */
static bool parse_options(struct parse *p, int argc, char **argv, int *ret_exit)
{
	char letters[2 * OPT_MAX + 8];
	struct option longs[OPT_MAX + SHARED_COUNT + 1];
	int c;

	build_tables(p->spec, letters, longs);
	opterr = 0;
	optind = 0; /* start over, whatever was parsed before */
	while ((c = getopt_long(argc, argv, letters, longs, NULL)) != -1) {
		const struct args_opt *o;

		*ret_exit = 0;
		switch (c) {
		case 'D':
			p->defines[p->define_count++] = optarg;
			continue;
		case S_CONF:
			p->conf_dir = optarg;
			continue;
		case 'v':
			p->verbose = true;
			continue;
		case 'h':
			print_help(p->spec);
			return false;
		case S_VERSION:
			fprintf(stdout, "%s %s\n", p->spec->prog, DFS_VERSION);
			return false;
		case S_HELP_CONFIG:
			conf_print_keys(stdout);
			return false;
		case '?':
		case ':':
			*ret_exit = unknown_opt(p->spec, argv, c == ':');
			return false;
		default:
			o = find_opt(p->spec, c);
			*ret_exit = o ? store_opt(p->spec, o, optarg) : ARGS_EXIT_USAGE;
			if (*ret_exit)
				return false;
		}
	}
	return true;
}

static int load_conf(const struct parse *p, struct conf *c, struct err *err)
{
	int rc = conf_load_dir(c, p->conf_dir, err);

	for (int i = 0; rc >= 0 && i < p->define_count; i++)
		rc = conf_set_arg(c, p->defines[i], err);
	return rc < 0 ? rc : conf_check(c, err);
}

static int start_log(const struct parse *p, const struct conf *c, struct err *err)
{
	const char *text = conf_get_or(c, "dfs.log.level", "info");
	enum log_level level;

	if (log_parse_level(text, &level) < 0)
		return err_set(err, -EINVAL, "dfs.log.level=%s is not error, warn, info or debug",
			       text);
	log_init(p->spec->prog, p->verbose ? LOG_DEBUG : level);
	conf_warn_typos(c);
	return 0;
}

bool args_parse(const struct args_spec *spec, int argc, char **argv, struct args *ret,
		int *ret_exit)
{
	struct parse p = {.spec = spec};
	struct conf *conf = NULL;
	struct err err = ERR_INIT;
	bool ok;

	*ret_exit = ARGS_EXIT_USAGE;
	p.defines = (const char **)calloc((size_t)argc + 1, sizeof(*p.defines));
	ok = p.defines && parse_options(&p, argc, argv, ret_exit);
	if (ok && argc - optind < spec->min_operands) {
		*ret_exit = args_usage(spec, "too few arguments");
		ok = false;
	} else if (ok && spec->max_operands >= 0 && argc - optind > spec->max_operands) {
		*ret_exit = args_usage(spec, "unexpected argument: %s",
				       argv[optind + spec->max_operands]);
		ok = false;
	}
	if (ok && (!(conf = conf_new()) || load_conf(&p, conf, &err) < 0 ||
		   start_log(&p, conf, &err) < 0)) {
		fprintf(stderr, "%s: %s\n", spec->prog, conf ? err.text : "out of memory");
		*ret_exit = ARGS_EXIT_USAGE;
		ok = false;
	}
	free(p.defines);
	if (!ok) {
		conf_free(conf);
		return false;
	}
	*ret = (struct args){conf, p.verbose, argc - optind, argv + optind};
	return true;
}

void args_free(struct args *a)
{
	conf_free(a->conf);
	a->conf = NULL;
}
