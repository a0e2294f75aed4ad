/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/fs/nameservice.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define NAMENODE_PORT 8020
#define KEY_MAX 512
#define NAME_MAX_BYTES 256

static bool list_has(char **list, const char *name)
{
	for (; list && *list; list++)
		if (strcmp(*list, name) == 0)
			return true;
	return false;
}

static int is_logical(const struct conf *c, const char *name, bool *ret)
{
	char **services = NULL;
	int rc = conf_list(c, "dfs.nameservices", &services);

	if (rc < 0)
		return rc;
	*ret = list_has(services, name);
	conf_list_free(services);
	return 0;
}

/* One more NameNode, at "host[:port]". */
static int add_node(struct nameservice *s, const char *addr, const char *key, struct err *err)
{
	char host[NAME_MAX_BYTES];
	struct rpc_server *n;
	uint16_t port;
	int rc;

	if (s->count == RPC_SERVERS_MAX)
		return err_set(err, -EINVAL, "%s has more than %d NameNodes", s->uri,
			       RPC_SERVERS_MAX);
	n = &s->node[s->count];
	rc = net_split(addr, NAMENODE_PORT, host, &port, err);
	if (rc == 0)
		rc = net_resolve(host, port, &n->addr, err);
	if (rc < 0)
		return err_prefix(err, "NameNode %s (%s)", addr, key);
	snprintf(s->text[s->count], sizeof(s->text[0]), strchr(host, ':') ? "[%s]:%u" : "%s:%u",
		 host, port);
	n->addr_text = s->text[s->count];
	s->count++;
	return 0;
}

static int add_keyed(const struct conf *c, struct nameservice *s, const char *key, struct err *err)
{
	const char *addr = conf_get(c, key);

	if (!addr)
		return err_set(err, -EINVAL, "%s is not set; it is where a NameNode of %s listens",
			       key, s->uri);
	return add_node(s, addr, key, err);
}

/* The NameNodes of a list. One that cannot be looked up is left out, unless all are. */
static int add_listed(const struct conf *c, struct nameservice *s, const char *name, char **ids,
		      struct err *err)
{
	char key[KEY_MAX];
	int rc = 0;

	for (; *ids; ids++) {
		snprintf(key, sizeof(key), "dfs.namenode.rpc-address.%s.%s", name, *ids);
		rc = add_keyed(c, s, key, err);
		if (rc < 0 && rc != -ENOENT)
			return rc;
	}
	if (s->count == 0)
		return rc;
	err->rc = 0;
	err->text[0] = '\0';
	return 0;
}

static int add_logical(const struct conf *c, struct nameservice *s, const char *name,
		       struct err *err)
{
	char key[KEY_MAX], **ids = NULL;
	int rc;

	s->logical = true;
	snprintf(s->uri, sizeof(s->uri), "hdfs://%.256s", name);
	snprintf(key, sizeof(key), "dfs.ha.namenodes.%s", name);
	rc = conf_list(c, key, &ids);
	if (rc == 0 && ids && *ids) {
		rc = add_listed(c, s, name, ids, err);
	} else if (rc == 0) {
		snprintf(key, sizeof(key), "dfs.namenode.rpc-address.%s", name);
		rc = add_keyed(c, s, key, err);
	}
	conf_list_free(ids);
	return rc;
}

/* dfs.client.failover.random.order, also for one name service. */
static int shuffle(const struct conf *c, struct nameservice *s, const char *name, struct err *err)
{
	const char *any = "dfs.client.failover.random.order";
	char key[KEY_MAX];
	struct rpc_server first;
	uint32_t dice = 0, k;
	bool on = true;
	int rc;

	snprintf(key, sizeof(key), "%s.%s", any, name);
	rc = conf_bool(c, conf_get(c, key) ? key : any, true, &on, err);
	if (rc < 0 || !on || s->count < 2)
		return rc;
	(void)!getrandom(&dice, sizeof(dice), GRND_NONBLOCK);
	k = dice % s->count;
	first = s->node[k];
	s->node[k] = s->node[0];
	s->node[0] = first;
	return 0;
}

int nameservice_find(const struct conf *c, const char *uri, struct nameservice *ret,
		     struct err *err)
{
	char name[NAME_MAX_BYTES];
	const char *authority, *from = uri ? "" : "fs.defaultFS=";
	bool logical = false;
	size_t len;
	int rc;

	*ret = (struct nameservice){.count = 0};
	if (!uri)
		uri = conf_get_or(c, "fs.defaultFS", "hdfs://localhost:8020");
	if (strstr(uri, "://") && strncmp(uri, "hdfs://", 7) != 0)
		return err_set(err, -EINVAL,
			       "%s%s is not an hdfs:// address; wanted is "
			       "hdfs://HOST:PORT of the NameNode",
			       from, uri);
	authority = strncmp(uri, "hdfs://", 7) == 0 ? uri + 7 : uri;
	len = strcspn(authority, ":/");
	if (len < sizeof(name)) {
		memcpy(name, authority, len);
		name[len] = '\0';
		rc = is_logical(c, name, &logical);
		if (rc < 0)
			return err_sys(err, rc, "dfs.nameservices");
	}
	if (logical && authority[len] == ':')
		return err_set(err, -EINVAL,
			       "%s: '%s' is a name service (dfs.nameservices), which "
			       "has no port; leave it out",
			       uri, name);
	if (logical) {
		rc = add_logical(c, ret, name, err);
		return rc ?: shuffle(c, ret, name, err);
	}
	rc = add_node(ret, uri, *from ? "fs.defaultFS" : "the address", err);
	if (rc == 0)
		snprintf(ret->uri, sizeof(ret->uri), "hdfs://%s", ret->text[0]);
	return rc;
}
