/* SPDX-License-Identifier: Apache-2.0 */
/* Which NameNodes this data node serves, from the configuration: name services, their NameNodes and
 * service addresses. */
#include "datanode/bp/bp_internal.h"

#include <stdio.h>
#include <string.h>

#define NN_RPC_PORT 8020

static int add_addr(const char *text, const struct nn_addr *like, struct nn_addr *list,
		    uint32_t max, uint32_t *n, struct err *err)
{
	struct nn_addr a = *like;
	int rc;

	if (*n == max)
		return err_set(err, -EINVAL, "more than %u NameNodes are configured", max);
	rc = net_split(text, NN_RPC_PORT, a.host, &a.port, err);
	if (rc) {
		err_prefix(err,
			   "address of the NameNode (fs.defaultFS or dfs.namenode.rpc-address)");
		return rc;
	}
	(void)snprintf(a.text, sizeof(a.text), "%.255s:%u", a.host, a.port);
	for (uint32_t i = 0; i < *n; i++)
		if (!strcmp(list[i].text, a.text))
			return 0;
	list[(*n)++] = a;
	return 0;
}

/* The lifeline address of "<suffix>", and the name service. */
static void fill_addr(const struct conf *conf, const char *service, const char *suffix,
		      struct nn_addr *ret)
{
	const char *text;
	char key[512];

	*ret = (struct nn_addr){0};
	(void)snprintf(ret->service, sizeof(ret->service), "%s", service);
	(void)snprintf(key, sizeof(key), "dfs.namenode.lifeline.rpc-address%s", suffix);
	text = conf_get(conf, key);
	(void)snprintf(ret->lifeline, sizeof(ret->lifeline), "%s", text ? text : "");
}

/* The service address when there is one, else the client address, of "<suffix>". */
static const char *get_addr(const struct conf *conf, const char *suffix)
{
	static const char *const keys[] = {"dfs.namenode.servicerpc-address",
					   "dfs.namenode.rpc-address"};
	const char *value;
	char key[512];

	for (int i = 0; i < 2; i++) {
		(void)snprintf(key, sizeof(key), "%s%s", keys[i], suffix);
		value = conf_get(conf, key);
		if (value && *value) /* an empty default is no address */
			return value;
	}
	return NULL;
}

static int add_service(const struct conf *conf, const char *ns, struct nn_addr *list, uint32_t max,
		       uint32_t *n, struct err *err)
{
	char key[256], suffix[256];
	struct nn_addr like;
	char **ids = NULL;
	const char *text;
	int rc;

	(void)snprintf(key, sizeof(key), "dfs.ha.namenodes.%s", ns);
	rc = conf_list(conf, key, &ids);
	if (rc)
		return err_sys(err, rc, "%s", key);
	if (!ids[0]) {
		(void)snprintf(suffix, sizeof(suffix), ".%s", ns);
		text = get_addr(conf, suffix);
		fill_addr(conf, ns, suffix, &like);
		rc = text ? add_addr(text, &like, list, max, n, err) : -ENOENT;
	}
	for (char **id = ids; !rc && *id; id++) {
		(void)snprintf(suffix, sizeof(suffix), ".%s.%s", ns, *id);
		text = get_addr(conf, suffix);
		fill_addr(conf, ns, suffix, &like);
		rc = text ? add_addr(text, &like, list, max, n, err) : -ENOENT;
	}
	conf_list_free(ids);
	if (rc == -ENOENT)
		return err_set(err, -EINVAL,
			       "name service %s has no dfs.namenode.rpc-address%s; add it to "
			       "hdfs-site.xml",
			       ns, suffix);
	return rc;
}

/* The built-in default serves clients on the NameNode's machine; a data node that took it for an
 * empty or half deployed configuration would knock at a wrong door for ever. */
static int refuse_nowhere(const struct conf *conf, struct err *err)
{
	const char *dir = conf_dir(conf);

	return err_set(
		err, -EINVAL,
		"no NameNode is configured: %.300s%s; set fs.defaultFS to hdfs://HOST:PORT in "
		"core-site.xml, name the folder of that file with --conf or HADOOP_CONF_DIR, or "
		"give -D fs.defaultFS=hdfs://HOST:PORT",
		dir ? dir : "there is no configuration directory",
		dir ? " sets neither fs.defaultFS nor dfs.namenode.rpc-address" : "");
}

int nn_addrs(const struct conf *conf, struct nn_addr *ret, uint32_t max, uint32_t *ret_count,
	     struct err *err)
{
	char **services = NULL;
	struct nn_addr like;
	const char *text;
	uint32_t n = 0;
	int rc = conf_list(conf, "dfs.internal.nameservices", &services);

	if (!rc && !services[0]) {
		conf_list_free(services);
		rc = conf_list(conf, "dfs.nameservices", &services);
	}
	if (rc)
		return err_sys(err, rc, "dfs.nameservices");
	for (char **s = services; !rc && *s; s++)
		rc = add_service(conf, *s, ret, max, &n, err);
	conf_list_free(services);
	if (!rc && !n) {
		text = get_addr(conf, "");
		if (!text && conf_is_set(conf, "fs.defaultFS"))
			text = conf_get(conf, "fs.defaultFS");
		fill_addr(conf, "", "", &like);
		if (text && strstr(text, "://") && strncmp(text, "hdfs://", 7) != 0)
			return err_set(
				err, -EINVAL,
				"fs.defaultFS is %.200s, which is no file system with data nodes; set it to "
				"hdfs://HOST:PORT, or set dfs.namenode.rpc-address",
				text);
		rc = text ? add_addr(text, &like, ret, max, &n, err) : refuse_nowhere(conf, err);
	}
	if (!rc)
		*ret_count = n;
	return rc;
}
