/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/transport/verbs.h"

#define REACTORS_AUTO_MAX 4

static int read_addr(const struct conf *conf, const char *key, const char *dflt,
		     struct net_addr *ret, struct err *err)
{
	const char *text = conf_get_or(conf, key, dflt);
	char host[256];
	uint16_t port;
	const char *colon = strrchr(text, ':');
	int rc;

	/* Port 0 (any free one) is legal here. */
	if (colon && !strcmp(colon, ":0") && colon > text &&
	    (size_t)(colon - text) < sizeof(host)) {
		(void)snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
		rc = net_resolve(host, 0, ret, err);
	} else {
		rc = net_split(text, 0, host, &port, err);
		if (!rc)
			rc = net_resolve(host, port, ret, err);
	}
	if (rc)
		err_prefix(err, "%s", key);
	return rc;
}

static int read_reactors(const struct conf *conf, struct dn_options *o, struct err *err)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t n = 0;
	int rc = conf_u64(conf, "dfs.rdma.reactors", 0, &n, err);

	if (rc)
		return rc;
	if (n > DN_REACTORS_MAX)
		return err_set(err, -EINVAL, "dfs.rdma.reactors is %lu; at most %d are possible",
			       (unsigned long)n, DN_REACTORS_MAX);
	if (o->place.each && cores > CPU_COUNT(&o->place.cpus))
		cores = CPU_COUNT(&o->place.cpus);
	if (!n)
		n = cores < 1 ? 1 : cores > REACTORS_AUTO_MAX ? REACTORS_AUTO_MAX : (uint64_t)cores;
	o->reactors = (uint32_t)n;
	return 0;
}

static int read_store(const struct conf *conf, struct dn_options *o, struct err *err)
{
	uint64_t n = 0;
	int rc = conf_u64(conf, "dfs.rdma.open.replicas", 1024, &n, err);

	o->open_replicas = n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
	if (!rc)
		rc = conf_time_ms(conf, "dfs.rdma.replica.index.interval", 60000, &o->index_ms,
				  err);
	return rc;
}

/* Keys that ask for secrecy or proof of identity: who sets them must not get a node without either.
 */
static int refuse_security(const struct conf *conf, struct err *err)
{
	const char *who = conf_get_or(conf, "hadoop.security.authentication", "simple");
	const char *sasl = conf_get_or(conf, "dfs.data.transfer.protection", "");
	const char *http = conf_get_or(conf, "dfs.http.policy", "");
	bool encrypt = false;
	int rc = conf_bool(conf, "dfs.encrypt.data.transfer", false, &encrypt, err);

	if (rc)
		return rc;
	if (strcasecmp(who, "simple") != 0)
		return err_set(err, -ENOTSUP,
			       "hadoop.security.authentication=%s: this data node speaks `simple` "
			       "only; keep a Java DataNode on a secure cluster",
			       who);
	if (!strcasecmp(http, "HTTPS_ONLY"))
		return err_set(
			err, -ENOTSUP,
			"dfs.http.policy=%s: this data node has no HTTPS pages; set HTTP_ONLY or "
			"HTTP_AND_HTTPS here, or keep a Java DataNode",
			http);
	if (encrypt)
		return err_set(
			err, -ENOTSUP,
			"dfs.encrypt.data.transfer=true: this data node does not encrypt; set it "
			"to false on the whole cluster, or keep a Java DataNode here");
	if (sasl[0])
		return err_set(
			err, -ENOTSUP,
			"dfs.data.transfer.protection=%s: this data node does not speak SASL; "
			"remove the key, which without Kerberos protects nothing",
			sasl);
	return 0;
}

/* A fraction: what a reconstruction's connection counts beside a copy's. */
static int read_xmits_weight(const struct conf *conf, struct dn_options *ret, struct err *err)
{
	static const char key[] = "dfs.datanode.ec.reconstruction.xmits.weight";
	const char *text = conf_get_or(conf, key, "0.5");
	char *end;
	const double v = strtod(text, &end);

	if (end == text || *end || !(v >= 0 && v <= 1000))
		return err_set(err, -EINVAL, "%s is \"%.100s\"; it must be 0 to 1000", key, text);
	ret->ec_xmits_pct = (uint32_t)(v * 100);
	return 0;
}

int dn_options_read(const struct conf *conf, struct dn_options *ret, struct err *err)
{
	const char *name = conf_get(conf, "dfs.datanode.hostname");
	uint64_t grace = 0;
	int rc;

	*ret = (struct dn_options){0};
	rc = refuse_security(conf, err);
	if (!rc)
		rc = dn_volume_options_read(conf, ret, err);
	if (!rc)
		rc = read_addr(conf, "dfs.datanode.address", "0.0.0.0:9866", &ret->data_addr, err);
	if (!rc)
		rc = read_addr(conf, "dfs.datanode.ipc.address", "0.0.0.0:9867", &ret->ipc_addr,
			       err);
	if (!rc)
		rc = read_addr(conf, "dfs.datanode.http.address", "0.0.0.0:9864", &ret->http_addr,
			       err);
	if (!rc)
		rc = placement_read(conf, "/sys", &ret->place, err);
	if (!rc)
		rc = read_reactors(conf, ret, err);
	if (!rc)
		rc = verbs_polling_read(conf, &ret->spin_us, err);
	if (!rc)
		rc = read_store(conf, ret, err);
	if (!rc)
		rc = conf_bool(conf, "dfs.datanode.synconclose", true, &ret->sync_on_close, err);
	if (!rc)
		rc = read_xmits_weight(conf, ret, err);
	if (!rc)
		rc = conf_time_ms(conf, "dfs.rdma.stop.grace", 10000, &grace, err);
	ret->stop_grace_ms = grace > 600000 ? 600000 : (uint32_t)grace;
	if (name && name[0])
		(void)snprintf(ret->host_name, sizeof(ret->host_name), "%s", name);
	else if (gethostname(ret->host_name, sizeof(ret->host_name) - 1))
		(void)snprintf(ret->host_name, sizeof(ret->host_name), "localhost");
	if (rc)
		dn_options_fini(ret);
	return rc;
}

void dn_options_fini(struct dn_options *o)
{
	for (uint32_t i = 0; i < o->dir_count; i++)
		free((char *)o->dirs[i].path);
	o->dir_count = 0;
}
