/* SPDX-License-Identifier: Apache-2.0 */
/* What an administrator gives a NameNode beside its XML: the first byte says what the rest is. It
 * is refused with a sentence that names the cure, or it answers questions. */
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/conf.h"
#include "common/base/log.h"
#include "common/rpc/auth_to_local.h"
#include "common/rpc/service_acl.h"
#include "namenode-shim/blocks/datanodes.h"
#include "namenode-shim/blocks/hosts.h"
#include "namenode-shim/blocks/topology.h"
#include "tests/fuzz/fuzz.h"

enum kind { HOSTS, HOSTS_JSON, RACKS, RULES, ACL, KERBEROS, KINDS };

/* No name service is asked. */
int __real_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
		       struct addrinfo **ret);
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
		       struct addrinfo **ret);
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
		       struct addrinfo **ret)
{
	struct addrinfo h = hints ? *hints : (struct addrinfo){0};

	h.ai_flags |= AI_NUMERICHOST;
	return __real_getaddrinfo(node, service, &h, ret);
}

static struct conf *conf;
static struct err err;

static void hosts(const char *path, bool json)
{
	static const char *const ips[] = {"127.0.0.1", "10.0.0.1", "h", ""};
	struct hosts *h;

	conf_set(conf, "dfs.hosts", path);
	conf_set(conf, "dfs.hosts.exclude", path);
	if (json)
		conf_set(conf, "dfs.namenode.hosts.provider.classname",
			 "org.apache.hadoop.hdfs.server.blockmanagement.CombinedHostFileManager");
	if (hosts_load(conf, &h, &err)) {
		MUST(err.text[0]);
		return;
	}
	for (size_t i = 0; i < sizeof(ips) / sizeof(*ips); i++)
		MUST(hosts_judge(h, ips[i], "h", 9866).upgrade_domain);
	hosts_free(h);
}

static void racks(const char *path)
{
	char rack[DN_RACK_MAX];
	struct topology *t;

	conf_set(conf, "net.topology.node.switch.mapping.impl",
		 "org.apache.hadoop.net.TableMapping");
	conf_set(conf, "net.topology.table.file.name", path);
	t = topology_new(conf);
	topology_ask(t, "10.0.0.1");
	topology_find(t, "10.0.0.1", rack);
	MUST(rack[0] == '/' && strlen(rack) < sizeof(rack));
	topology_free(t);
}

/* Whoever writes the rules is trusted, but not who calls: patterns that take for ever are none. */
static bool is_slow(const char *rules)
{
	size_t stars = 0;

	for (const char *p = rules; *p; p++)
		stars += strchr("*+?(|", *p) != NULL;
	return stars > 6 || strpbrk(rules, "{\\");
}

/* Rules, a line with a principal. */
static void rules(char *text)
{
	char *name = strrchr(text, '\n'), user[64];
	struct auth_to_local *a;

	if (name)
		*name++ = '\0';
	if (is_slow(text))
		return;
	conf_set(conf, "hadoop.security.auth_to_local", text);
	if (auth_to_local_new(conf, &a, &err)) {
		MUST(err.text[0]);
		return;
	}
	if (!auth_to_local(a, name ? name : "nn/host@REALM", user, sizeof(user), &err))
		MUST(strlen(user) < sizeof(user));
	auth_to_local_free(a);
}

static bool in_group(void *arg, const char *user, const char *group)
{
	(void)arg;
	return !strcmp(user, group);
}

/* A line for each key. */
static void acl(char *text)
{
	static const char *const keys[] = {
		"security.client.protocol.acl", "security.client.protocol.acl.blocked",
		"security.client.protocol.hosts", "security.client.protocol.hosts.blocked",
		"security.service.authorization.default.acl"};
	struct service_acl *a;
	char *save, *line = strtok_r(text, "\n", &save);

	conf_set(conf, "hadoop.security.authorization", "true");
	for (size_t i = 0; line && i < sizeof(keys) / sizeof(*keys); i++) {
		conf_set(conf, keys[i], line);
		line = strtok_r(NULL, "\n", &save);
	}
	if (service_acl_new(conf, &a, &err)) {
		MUST(err.text[0]);
		return;
	}
	if (service_acl_check(a, "org.apache.hadoop.hdfs.protocol.ClientProtocol", "u", "10.0.0.1",
			      in_group, NULL, &err))
		MUST(err.text[0]);
	service_acl_free(a);
}

static void kerberos(const char *path)
{
	char name[] = "DEFAULT\nnn/host@REALM";

	MUST(!setenv("KRB5_CONFIG", path, 1));
	rules(name);
	MUST(!unsetenv("KRB5_CONFIG"));
}

static void use(enum kind kind, const char *path, char *text)
{
	switch (kind) {
	case HOSTS:
	case HOSTS_JSON:
		hosts(path, kind == HOSTS_JSON);
		break;
	case RACKS:
		racks(path);
		break;
	case RULES:
		rules(text);
		break;
	case ACL:
		acl(text);
		break;
	case KERBEROS:
	case KINDS:
		kerberos(path);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const int fd = memfd_create("file", MFD_CLOEXEC);
	char path[64], *text;

	if (!size) {
		(void)close(fd);
		return 0;
	}
	log_init("fuzz", LOG_ERROR);
	err = (struct err)ERR_INIT;
	conf = conf_new();
	text = strndup((const char *)data + 1, size - 1);
	MUST(fd >= 0 && text && write(fd, data + 1, size - 1) == (ssize_t)size - 1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	use((enum kind)(data[0] % KINDS), path, text);
	free(text);
	conf_free(conf);
	(void)close(fd);
	return 0;
}
