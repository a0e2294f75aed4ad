/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: short names are those of Hadoop's KerberosName (the tables hold what its class of
 * 3.4.2 answers); rules that we would read otherwise are refused at start. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/conf.h"
#include "common/rpc/auth_to_local.h"

#define KEY "hadoop.security.auth_to_local"

struct row {
	const char *rules, *name, *is; /* rules NULL: not set; is NULL: refused */
};

static const struct row hadoop[] = {
	{NULL, "alice", "alice"},
	{NULL, "alice@R", "alice"},
	{NULL, "alice/h@R", "alice"},
	{NULL, "alice/h", "alice"},
	{NULL, "a/b/c", "a/b/c"},
	{NULL, "@R", NULL},
	{NULL, "a@", NULL},
	{NULL, "a@b@c", NULL},
	{NULL, "a/b/c@R", NULL},
	{NULL, "/x", "/x"},
	{NULL, "a/@R", NULL},
	{NULL, "a@R/x", NULL},
	{"DEFAULT", "alice@HOME", "alice"},
	{"DEFAULT", "alice/h@HOME", "alice"},
	{"DEFAULT", "alice@R", NULL},
	{"DEFAULT", "alice/h", NULL},
	{"RULE:[2:$1@$0](nn@.*R)s/.*/hdfs/ DEFAULT", "nn/h1@R", "hdfs"},
	{"RULE:[2:$1@$0](nn@.*R)s/.*/hdfs/ DEFAULT", "dn/h1@R", NULL},
	{"RULE:[2:$1@$0](nn@.*R)s/.*/hdfs/ DEFAULT", "bob@HOME", "bob"},
	{"RULE:[1:$1@$0](.*@AD\\.COM)s/@.*///L", "Alice@AD.COM", "alice"},
	{"RULE:[1:$1@$0](.*@AD\\.COM)s/@.*///L", "Alice@ADxCOM", NULL},
	{"RULE:[1:$1@$0](^.*@AD\\.COM$)s/^(.*)@AD\\.COM$/$1/g/L", "BoB@AD.COM", "bob"},
	{"RULE:[1:$1@$0](.*)s/@.*//", "bob@X", "bob"},
	{"RULE:[1:$1@$0]", "bob@X", NULL},
	{"RULE:[2:$1-$2]", "a/h@X", "a-h"},
	{"RULE:[2:$1-$2-$0]", "a/h", "a-h-null"},
	{"RULE:[1:$1](a.*)s/a/b/", "abab@X", "bbab"},
	{"RULE:[1:$1](a.*)s/a/b/g", "abab@X", "bbbb"},
	{"RULE:[1:$1]s/.*/x/g", "abc@X", "xx"},
	{"RULE:[1:$1]s/x*/-/g", "abc@X", "-a-b-c-"},
	{"RULE:[1:$1]s/b*/-/g", "abbc@X", "-a--c-"},
	{"RULE:[1:$1]s/^a/-/g", "aaa@X", "-aa"},
	{"RULE:[1:u\\d$1](u.*)s/\\\\d//", "bob@X", "ubob"},
	{"RULE:[1:$1]([a-c\\d]+)s/[\\d.]+/n/", "a1b2@X", "anb2"},
	{"RULE:[1:$1](\\w+)s/(\\w)(\\w*)/$2$1/", "abc@X", "bca"},
	{"RULE:[1:$1](\\w+)s/b/\\$1/", "abc@X", "a$1c"},
	{"RULE:[3:$1]", "a/h@X", NULL},
	{"RULE:[1:x]L", "A@X", "x"},
	{"RULE:[1:$1]L", "ABC@X", "abc"},
	{"RULE:[1:$1]/L", "ABC@X", "abc"},
	{"RULE:[1:$1](b.*)L RULE:[1:z$1]", "ABC@X", "zABC"},
	{"RULE:[1:$1](ab|cd)s/b|d/_/g", "cd@X", "c_"},
	{"RULE:[1:$1]RULE:[2:$2]", "a/h@X", "h"},
	{"RULE:[1:$1]s/.*//", "a@X", NULL},
};

/* Where the mechanism `mit` answers otherwise. */
static const struct row mit[] = {
	{"DEFAULT", "alice@R", "alice@R"},
	{"DEFAULT", "alice/h", "alice/h"},
	{"RULE:[2:$1@$0](nn@.*R)s/.*/hdfs/ DEFAULT", "dn/h1@R", "dn/h1@R"},
	{"RULE:[1:$1@$0](.*@AD\\.COM)s/@.*///L", "Alice@ADxCOM", "Alice@ADxCOM"},
	{"RULE:[1:$1@$0]", "bob@X", "bob@X"},
	{"RULE:[3:$1]", "a/h@X", "a/h@X"},
};

static struct auth_to_local *load(const char *rules, const char *mechanism, struct err *err)
{
	struct auth_to_local *a = NULL;
	struct conf *c = conf_new();

	if (rules)
		assert_int_equal(conf_set(c, KEY, rules), 0);
	assert_int_equal(conf_set(c, KEY ".mechanism", mechanism), 0);
	(void)auth_to_local_new(c, &a, err);
	conf_free(c);
	return a;
}

static void check(const struct row *row, size_t n, const char *mechanism)
{
	for (; n; n--, row++) {
		struct err err = ERR_INIT;
		struct auth_to_local *a = load(row->rules, mechanism, &err);
		char got[256] = "";
		int rc;

		if (!a)
			print_message("%s: %s\n", row->rules, err.text);
		assert_non_null(a);
		rc = auth_to_local(a, row->name, got, sizeof(got), &err);
		if (rc != (row->is ? 0 : -EACCES) || (row->is && strcmp(got, row->is) != 0))
			print_message("%s: %s is %s, not %s\n", row->rules ? row->rules : "-",
				      row->name, rc ? err.text : got,
				      row->is ? row->is : "refused");
		assert_int_equal(rc, row->is ? 0 : -EACCES);
		if (row->is)
			assert_string_equal(got, row->is);
		auth_to_local_free(a);
	}
}

static void short_names_are_those_of_hadoop(void **state)
{
	(void)state;
	check(hadoop, sizeof(hadoop) / sizeof(hadoop[0]), "hadoop");
	check(mit, sizeof(mit) / sizeof(mit[0]), "mit");
}

static void what_is_not_understood_is_refused_at_start(void **state)
{
	static const char *const bad[] = {
		"RULE:[1:$2]",
		"RULE:[1:$]",
		"RULE:[1:$1",
		"RULE:[:$1]",
		"rule:[1:$1]",
		"RULE:[1:$1](*)",
		"RULE:[1:$1]s/a/$1/",
		/* Java knows these, POSIX does not, or takes them otherwise. */
		"RULE:[1:$1](a+?)",
		"RULE:[1:$1]((?i)a)",
		"RULE:[1:$1]([a&&[b]])",
		"RULE:[1:$1](\\p{L}+)",
		"RULE:[1:$1]s/(a)\\1/x/",
		"RULE:[1:$1]([\\]])",
		"RULE:[1:$1]s/a/${x}/",
		"RULE:[1:$1](a[b)",
		"RULE:[1:$1](a",
		"RULE:[1:$1]s/a/b",
		"nonsense",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct err err = ERR_INIT;

		if (load(bad[i], "hadoop", &err))
			fail_msg("%s was taken", bad[i]);
		assert_int_equal(err.rc, -EINVAL);
		assert_non_null(strstr(err.text, KEY));
	}
	assert_null(load(NULL, "other", &(struct err){0}));
}

static void long_names_end_somewhere(void **state)
{
	struct err err = ERR_INIT;
	struct auth_to_local *a =
		load("RULE:[1:$1$1$1$1](.*)s/./xxxxxxxxxxxxxxxx/g", "hadoop", &err);
	char name[5000], got[256];

	(void)state;
	memset(name, 'a', sizeof(name));
	name[sizeof(name) - 1] = 0;
	assert_int_equal(auth_to_local(a, name, got, sizeof(got), &err), -ENAMETOOLONG);
	assert_int_equal(auth_to_local(NULL, name, got, sizeof(got), &err), -ENAMETOOLONG);
	memcpy(name + 200, "@X", 3);
	assert_int_equal(auth_to_local(a, name, got, sizeof(got), &err), -ENAMETOOLONG);
	assert_int_equal(auth_to_local(NULL, name, got, sizeof(got), &err), 0);
	assert_int_equal(strlen(got), 200);
	assert_int_equal(auth_to_local(NULL, "", got, sizeof(got), &err),
			 0); /* whoever asks looks at that */
	assert_string_equal(got, "");
	auth_to_local_free(a);
}

static char realm_file[] = "/tmp/krb5-XXXXXX";

static int make_realm(void **state)
{
	const int fd = mkstemp(realm_file);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");

	(void)state;
	if (!f)
		return -1;
	fputs("[realms]\ndefault_realm = NOT\n[libdefaults]\n # default_realm = NOT\n\tdefault_realm = HOME\n",
	      f);
	return fclose(f) || setenv("KRB5_CONFIG", realm_file, 1);
}

static int remove_realm(void **state)
{
	(void)state;
	return unlink(realm_file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(short_names_are_those_of_hadoop),
		cmocka_unit_test(what_is_not_understood_is_refused_at_start),
		cmocka_unit_test(long_names_end_somewhere),
	};

	return cmocka_run_group_tests(tests, make_realm, remove_realm);
}
