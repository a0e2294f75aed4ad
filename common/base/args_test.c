/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: options reach their targets, a mistake is one line on stderr and status 2, help
 * is on stdout and status 0. */
#include "common/base/args.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/conf.h"

static bool force;
static const char *owner;
static uint64_t size;
static const struct args_opt opts[] = {
	{"force", 'f', NULL, "overwrite", &force, NULL, NULL},
	{"owner", 0, "NAME", "owner of new files", NULL, &owner, NULL},
	{"size", 's', "BYTES", "how much", NULL, NULL, &size},
	{0},
};
static struct args_spec spec = {"dfs-x", "[option]... FILE", "Does x.", opts, 1, 2, false};
static struct args args;
static char caught[16384];
static int status;

/* Parse a command line given as words; stdout and stderr end up in caught. */
static bool parse(const char *words)
{
	static char copy[512], name[] = "dfs-x", *argv[32]; /* args.argv points into them */
	char *rest = copy;
	int argc = 1, out = dup2(STDOUT_FILENO, 100), err = dup2(STDERR_FILENO, 101);
	FILE *f = tmpfile();
	bool ok;

	argv[0] = name;
	force = false;
	owner = NULL;
	size = 0;
	(void)snprintf(copy, sizeof(copy), "%s", words);
	while (argc < 31 && (argv[argc] = strsep(&rest, " ")))
		argc++;
	argv[argc] = NULL;
	(void)fflush(stdout);
	assert_true(f && out == 100 && err == 101);
	assert_true(dup2(fileno(f), STDOUT_FILENO) >= 0 && dup2(fileno(f), STDERR_FILENO) >= 0);
	ok = args_parse(&spec, argc, argv, &args, &status);
	(void)fflush(stdout);
	(void)dup2(100, STDOUT_FILENO);
	(void)dup2(101, STDERR_FILENO);
	rewind(f);
	caught[fread(caught, 1, sizeof(caught) - 1, f)] = '\0';
	(void)fclose(f);
	return ok;
}

static void options_and_operands_reach_their_targets(void **state)
{
	(void)state;
	assert_true(parse("a -f --owner me -s 64k -D k=v --size=1m b -v"));
	assert_true(force && args.verbose);
	assert_string_equal(owner, "me");
	assert_int_equal(size, 1 << 20);
	assert_int_equal(args.argc, 2);
	assert_string_equal(args.argv[0], "a");
	assert_string_equal(args.argv[1], "b");
	assert_string_equal(conf_get(args.conf, "k"), "v");
	args_free(&args);
}

static void a_command_after_the_operand_keeps_its_options(void **state)
{
	(void)state;
	spec.stop_at_operand = true;
	spec.max_operands = -1;
	assert_true(parse("-f cmd --owner -x"));
	assert_int_equal(args.argc, 3);
	assert_null(owner);
	args_free(&args);
	assert_true(parse("-f -- cmd -f"));
	assert_int_equal(args.argc, 2);
	args_free(&args);
	spec.stop_at_operand = false;
	spec.max_operands = 2;
}

static void a_mistake_is_one_line_and_status_2(void **state)
{
	static const char *const bad[][2] = {
		{"--wrong a", "dfs-x: unknown option: --wrong; see dfs-x --help\n"},
		{"-z a", "dfs-x: unknown option: -z; see dfs-x --help\n"},
		{"a --owner", "dfs-x: option needs a value: --owner; see dfs-x --help\n"},
		{"a -s", "dfs-x: option needs a value: -s; see dfs-x --help\n"},
		{"a --size x",
		 "dfs-x: --size 'x' is not a number such as 12, 64k or 1g; see dfs-x --help\n"},
		{"-f", "dfs-x: too few arguments; see dfs-x --help\n"},
		{"a b c", "dfs-x: unexpected argument: c; see dfs-x --help\n"},
		{"a -D x", "dfs-x: -D 'x' is not key=value\n"},
		{"a --conf /no/dir",
		 "dfs-x: configuration directory /no/dir: No such file or directory; "
		 "name the folder of core-site.xml and hdfs-site.xml\n"},
		{"a -D dfs.log.level=loud",
		 "dfs-x: dfs.log.level=loud is not error, warn, info or debug\n"},
		{"a -D dfs.rdma.x=1",
		 "dfs-x: unknown key dfs.rdma.x (from -D); the nearest is dfs.rdma.cpus; --help-config lists the keys\n"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_false(parse(bad[i][0]));
		assert_int_equal(status, 2);
		assert_string_equal(caught, bad[i][1]);
	}
}

static void help_and_version_succeed(void **state)
{
	(void)state;
	assert_false(parse("--help"));
	assert_int_equal(status, 0);
	assert_non_null(strstr(caught, "usage: dfs-x [option]... FILE\n"));
	assert_non_null(strstr(caught, "-s, --size BYTES"));
	assert_non_null(strstr(caught, "--conf DIR"));
	assert_false(parse("--version"));
	assert_int_equal(status, 0);
	assert_string_equal(caught, "dfs-x " DFS_VERSION "\n");
	assert_false(parse("--help-config"));
	assert_non_null(strstr(caught, "dfs.blocksize (size, default 134217728)\n"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_and_operands_reach_their_targets),
		cmocka_unit_test(a_command_after_the_operand_keeps_its_options),
		cmocka_unit_test(a_mistake_is_one_line_and_status_2),
		cmocka_unit_test(help_and_version_succeed),
	};

	(void)setenv("HADOOP_CONF_DIR", "/", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
