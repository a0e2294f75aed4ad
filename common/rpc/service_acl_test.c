/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: hadoop-policy.xml decides as it does for Hadoop's servers, the list of users
 * apart from that of groups by one blank; what was refused is in force no sooner than it parses. */
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
#include "common/rpc/service_acl.h"

#define CLIENT "org.apache.hadoop.hdfs.protocol.ClientProtocol"
#define NODE "org.apache.hadoop.hdfs.server.protocol.DatanodeProtocol"

static char dir[64];

static void write_file(const char *name, const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* hadoop-policy.xml of pairs of key and value, up to NULL. */
static void policy(const char *key, ...)
{
	char text[4096] = "<configuration>";
	va_list ap;

	va_start(ap, key);
	for (; key; key = va_arg(ap, const char *)) {
		const size_t at = strlen(text);

		snprintf(text + at, sizeof(text) - at,
			 "<property><name>%s</name><value>%s</value></property>", key,
			 va_arg(ap, const char *));
	}
	va_end(ap);
	snprintf(text + strlen(text), sizeof(text) - strlen(text), "</configuration>");
	write_file("hadoop-policy.xml", text);
}

static bool in_group(void *arg, const char *user, const char *group)
{
	(void)arg;
	return !strcmp(user, "carol") && !strcmp(group, "staff");
}

static int check(struct service_acl *a, const char *protocol, const char *user, const char *ip)
{
	struct err err = ERR_INIT;

	return service_acl_check(a, protocol, user, ip, in_group, NULL, &err);
}

static struct service_acl *start(struct conf **ret_conf)
{
	struct err err = ERR_INIT;
	struct service_acl *a;
	struct conf *c = conf_new();

	write_file("core-site.xml",
		   "<configuration><property><name>hadoop.security.authorization</name>"
		   "<value>true</value></property></configuration>");
	assert_int_equal(conf_load_dir(c, dir, &err), 0);
	assert_int_equal(service_acl_new(c, &a, &err), 0);
	assert_non_null(a);
	*ret_conf = c;
	return a;
}

static void stop(struct service_acl *a, struct conf *c)
{
	service_acl_free(a);
	conf_free(c);
}

static void users_and_groups_are_told_apart(void **state)
{
	static const struct {
		const char *acl;
		bool alice, carol; /* carol is in staff */
	} cases[] = {
		{"*", true, true},
		{" * ", true, true},
		{"alice", true, false},
		{"bob, alice", false, false}, /* the blank begins the groups */
		{"bob,alice", true, false},
		{" alice", false, false},
		{" staff", false, true},
		{"alice staff", true, true},
		{"bob other,staff", false, true},
		{" ", false, false},
		{"alice *", true, true},
		{"staff", false, false},
	};
	struct service_acl *a;
	struct conf *c;
	struct err err = ERR_INIT;

	(void)state;
	policy(NULL);
	a = start(&c);
	assert_int_equal(check(a, CLIENT, "alice", "10.0.0.1"), 0); /* nothing said: everybody */
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		policy("security.client.protocol.acl", cases[i].acl, NULL);
		assert_int_equal(service_acl_refresh(a, &err), 0);
		assert_int_equal(check(a, CLIENT, "alice", "10.0.0.1"),
				 cases[i].alice ? 0 : -EACCES);
		assert_int_equal(check(a, CLIENT, "carol", "10.0.0.1"),
				 cases[i].carol ? 0 : -EACCES);
		assert_int_equal(check(a, NODE, "alice", "10.0.0.1"), 0); /* another key */
	}
	stop(a, c);
}

static void refusals_read_as_hadoops(void **state)
{
	struct service_acl *a;
	struct conf *c;
	struct err err = ERR_INIT;

	(void)state;
	policy("security.client.protocol.acl", "alice", "security.datanode.protocol.hosts",
	       "10.1.0.0/16", NULL);
	a = start(&c);
	assert_int_equal(service_acl_check(a, CLIENT, "bob", "10.0.0.1", in_group, NULL, &err),
			 -EACCES);
	assert_string_equal(
		err.text, "User bob (auth:SIMPLE) is not authorized for protocol interface " CLIENT
			  ": denied by configured ACL");
	assert_int_equal(service_acl_check(a, NODE, "bob", "10.0.0.1", in_group, NULL, &err),
			 -EACCES);
	assert_string_equal(err.text,
			    "Host 10.0.0.1 is not authorized for protocol interface " NODE);
	assert_int_equal(service_acl_denied(a), 0); /* the caller decides */
	service_acl_note_denied(a, NODE, "bob", "10.0.0.1");
	assert_int_equal(service_acl_denied(a), 1);
	assert_int_equal(check(a, "some.Protocol", "alice", "10.0.0.1"), -EACCES);
	assert_int_equal(check(NULL, CLIENT, "bob", "10.0.0.1"), 0); /* switched off */
	stop(a, c);
}

static void hosts_are_addresses_names_and_ranges(void **state)
{
	static const struct {
		const char *hosts, *ip;
		bool in;
	} cases[] = {
		{"10.0.0.1", "10.0.0.1", true},
		{"10.0.0.1", "10.0.0.11", false},
		{"10.0.0.1, 10.0.0.2", "10.0.0.2", true},
		{"10.1.2.0/23", "10.1.3.255", true},
		{"10.1.2.0/23", "10.1.4.0", false},
		{"0.0.0.0/0", "1.2.3.4", true},
		{"localhost", "127.0.0.1", true},
		{"fd00::/8", "fd12::1", true},
		{"fd00::/8", "10.0.0.1", false},
		{"no..host,10.0.0.3", "10.0.0.3", true},
		{"10.0.0.1", "?", false},
		{"*", "?", true},
	};
	struct service_acl *a;
	struct conf *c;
	struct err err = ERR_INIT;

	(void)state;
	policy(NULL);
	a = start(&c);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		policy("security.client.protocol.hosts", cases[i].hosts, NULL);
		assert_int_equal(service_acl_refresh(a, &err), 0);
		assert_int_equal(check(a, CLIENT, "bob", cases[i].ip), cases[i].in ? 0 : -EACCES);
		policy("security.client.protocol.hosts.blocked", cases[i].hosts, NULL);
		assert_int_equal(service_acl_refresh(a, &err), 0);
		assert_int_equal(check(a, CLIENT, "bob", cases[i].ip), cases[i].in ? -EACCES : 0);
	}
	stop(a, c);
}

static void defaults_and_blocked_lists_count(void **state)
{
	struct service_acl *a;
	struct conf *c;

	(void)state;
	policy("security.service.authorization.default.acl", "alice,carol",
	       "security.client.protocol.acl.blocked", " staff",
	       "security.service.authorization.default.hosts.blocked", "10.9.0.0/16", NULL);
	a = start(&c);
	assert_int_equal(check(a, NODE, "alice", "10.0.0.1"), 0);
	assert_int_equal(check(a, NODE, "bob", "10.0.0.1"), -EACCES);
	assert_int_equal(check(a, NODE, "carol", "10.0.0.1"), 0);
	assert_int_equal(check(a, CLIENT, "carol", "10.0.0.1"), -EACCES);
	assert_int_equal(check(a, NODE, "alice", "10.9.0.1"), -EACCES);
	stop(a, c);
}

static void what_does_not_parse_changes_nothing(void **state)
{
	static const char *const bad[] = {"10.0.0.0/33", "10.0.0.0/x", "host/8", "fd00::/129"};
	struct service_acl *a;
	struct conf *c;

	(void)state;
	policy("security.client.protocol.acl", "alice", NULL);
	a = start(&c);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct err err = ERR_INIT;

		policy("security.client.protocol.hosts", bad[i], NULL);
		assert_int_equal(service_acl_refresh(a, &err), -EINVAL);
		assert_non_null(strstr(err.text, "security.client.protocol.hosts"));
	}
	write_file("hadoop-policy.xml", "<configuration>");
	assert_int_equal(service_acl_refresh(a, &(struct err){0}), -EINVAL);
	assert_int_equal(check(a, CLIENT, "alice", "10.0.0.1"), 0);
	assert_int_equal(check(a, CLIENT, "bob", "10.0.0.1"), -EACCES);
	stop(a, c);
}

static int make_dir(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/service-acl-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	char path[128];

	(void)state;
	snprintf(path, sizeof(path), "%s/core-site.xml", dir);
	(void)unlink(path);
	snprintf(path, sizeof(path), "%s/hadoop-policy.xml", dir);
	(void)unlink(path);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(users_and_groups_are_told_apart),
		cmocka_unit_test(refusals_read_as_hadoops),
		cmocka_unit_test(hosts_are_addresses_names_and_ranges),
		cmocka_unit_test(defaults_and_blocked_lists_count),
		cmocka_unit_test(what_does_not_parse_changes_nothing),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
