/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define REACTORS_AUTO_MAX 4

static int parse_type(const char *text, size_t len, enum storage_type *ret)
{
	static const struct {
		const char *name;
		enum storage_type type;
	} types[] = {
		{"DISK", STORAGE_DISK}, {"SSD", STORAGE_SSD}, {"ARCHIVE", STORAGE_ARCHIVE},
		{"RAM_DISK", STORAGE_RAM_DISK}, {"NVDIMM", STORAGE_NVDIMM},
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (strlen(types[i].name) == len && !strncasecmp(types[i].name, text, len)) {
			*ret = types[i].type;
			return 0;
		}
	return -EINVAL;
}

static int hex(char c)
{
	return c >= '0' && c <= '9'		? c - '0' :
	       (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 :
						   -1;
}

/* %XX of a file: URL, in place. */
static void decode_url(char *s)
{
	char *out = s;

	for (; *s; s++) {
		if (*s == '%' && hex(s[1]) >= 0 && hex(s[2]) >= 0) {
			*out++ = (char)(hex(s[1]) * 16 + hex(s[2]));
			s += 2;
		} else {
			*out++ = *s;
		}
	}
	*out = '\0';
}

int dn_options_parse_dir(const char *text, struct store_volume_opts *ret, struct err *err)
{
	const char *p = text, *end;
	bool url = false;
	char *path;

	*ret = (struct store_volume_opts){.type = STORAGE_DISK};
	if (*p == '[') {
		end = strchr(p, ']');
		if (!end || parse_type(p + 1, (size_t)(end - p - 1), &ret->type))
			return err_set(err, -EINVAL,
				       "dfs.datanode.data.dir: %s: the storage type must be "
				       "[DISK], [SSD], [ARCHIVE], [RAM_DISK] or [NVDIMM]",
				       text);
		p = end + 1;
	}
	if (!strncmp(p, "file:", 5)) {
		p += 5;
		url = true;
		if (p[0] == '/' && p[1] == '/')
			p += 2;
	}
	if (*p != '/')
		return err_set(err, -EINVAL, "dfs.datanode.data.dir: %s is not an absolute path", text);
	path = strdup(p);
	if (!path)
		return err_sys(err, -ENOMEM, "dfs.datanode.data.dir");
	if (url)
		decode_url(path);
	for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
		path[n - 1] = '\0';
	ret->path = path;
	return 0;
}

static int read_dirs(const struct conf *conf, struct dn_options *o, struct err *err)
{
	uint64_t reserved = 0, tolerated = 0;
	char **list = NULL;
	int rc = conf_size(conf, "dfs.datanode.du.reserved", 0, &reserved, err);

	if (!rc)
		rc = conf_u64(conf, "dfs.datanode.failed.volumes.tolerated", 0, &tolerated, err);
	if (!rc)
		rc = conf_list(conf, "dfs.datanode.data.dir", &list);
	for (char **s = list; !rc && *s; s++) {
		if (o->dir_count == DN_DIRS_MAX) {
			rc = err_set(err, -EINVAL,
				     "dfs.datanode.data.dir names more than %d directories",
				     DN_DIRS_MAX);
			break;
		}
		rc = dn_options_parse_dir(*s, &o->dirs[o->dir_count], err);
		o->dirs[o->dir_count].reserved = reserved;
		o->dir_count += !rc;
	}
	conf_list_free(list);
	if (!rc && !o->dir_count)
		rc = err_set(err, -EINVAL,
			     "dfs.datanode.data.dir is empty; name a directory for blocks");
	if (!rc && tolerated >= o->dir_count)
		rc = err_set(err, -EINVAL,
			     "dfs.datanode.failed.volumes.tolerated is %lu; it must be less than the "
			     "number of directories, %u", (unsigned long)tolerated, o->dir_count);
	o->failed_tolerated = (uint32_t)tolerated;
	return rc;
}

static int read_addr(const struct conf *conf, const char *key, const char *dflt,
		     struct net_addr *ret, struct err *err)
{
	const char *text = conf_get_or(conf, key, dflt);
	char host[256];
	uint16_t port;
	const char *colon = strrchr(text, ':');
	int rc;

	/* Port 0 (any free one) is legal here. */
	if (colon && !strcmp(colon, ":0") && colon > text && (size_t)(colon - text) < sizeof(host)) {
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
	if (!n)
		n = cores < 1 ? 1 : cores > REACTORS_AUTO_MAX ? REACTORS_AUTO_MAX : (uint64_t)cores;
	o->reactors = (uint32_t)n;
	return 0;
}

int dn_options_read(const struct conf *conf, struct dn_options *ret, struct err *err)
{
	const char *name = conf_get(conf, "dfs.datanode.hostname");
	uint64_t grace = 0;
	int rc;

	*ret = (struct dn_options){0};
	rc = read_dirs(conf, ret, err);
	if (!rc)
		rc = read_addr(conf, "dfs.datanode.address", "0.0.0.0:9866", &ret->data_addr, err);
	if (!rc)
		rc = read_addr(conf, "dfs.datanode.ipc.address", "0.0.0.0:9867", &ret->ipc_addr, err);
	if (!rc)
		rc = read_addr(conf, "dfs.datanode.http.address", "0.0.0.0:9864", &ret->http_addr, err);
	if (!rc)
		rc = read_reactors(conf, ret, err);
	if (!rc)
		rc = conf_bool(conf, "dfs.datanode.synconclose", true, &ret->sync_on_close, err);
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
