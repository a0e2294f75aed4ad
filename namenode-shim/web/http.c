/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/web/http.h"

#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/conf.h"
#include "common/base/metrics.h"
#include "common/http/json_put.h"
#include "common/http/server.h"
#include "common/rpc/auth_to_local.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/web/fsck.h"
#include "namenode-shim/web/jmx.h"

struct http {
	struct nn *nn; /* borrowed */
	struct http_server *server;
};

static const char *const prefixes[] = {"dfs_namenode", "dfs_rpc", "dfs_uring", NULL};

/* ---- pages ---- */

static void html_text(FILE *out, const char *s)
{
	for (; *s; s++)
		if (*s == '<' || *s == '>' || *s == '&' || *s == '"')
			fprintf(out, "&#%d;", *s);
		else
			fputc(*s, out);
}

static void html_row(FILE *out, const char *what, uint64_t n)
{
	fprintf(out, "<tr><td>%s<td>%" PRIu64 "\n", what, n);
}

static void html_node(FILE *out, const struct dn *dn)
{
	static const char *const admin[] = {"in service", "decommissioning", "decommissioned",
					    "entering maintenance", "in maintenance"};

	fputs("<tr><td>", out);
	html_text(out, dn->host);
	fprintf(out, " %s:%u<td>", dn->ip, dn->xfer_port);
	html_text(out, dn->rack);
	fprintf(out, "<td>%s, %s<td>%" PRIu64 "<td>%" PRIu64 "<td>%" PRIu64 "<td>",
		dn->stale   ? "stale"
		: dn->alive ? "live"
			    : "dead",
		admin[dn->admin], dn_capacity(dn), dn_used(dn), dn_remaining(dn));
	html_text(out, dn->version);
}

static void health_page(struct nn *nn, FILE *out)
{
	char tip[ERR_TEXT_MAX];

	pthread_rwlock_rdlock(&nn->mem_lock);
	fprintf(out,
		"<!DOCTYPE html><title>NameNode %s:%u</title><h1>NameNode %s:%u</h1>\n<p>cluster ",
		nn->set.host, nn->rpc_port, nn->set.host, nn->rpc_port);
	html_text(out, nn->db->ident.cluster_id);
	fputs(", block pool ", out);
	html_text(out, nn->db->ident.pool_id);
	fprintf(out, "<p>safe mode is %s. %s\n<table>", nn->safe.on ? "on" : "off",
		nn->safe.on ? nn_safe_text(nn, tip) : "");
	html_row(out, "files and directories", nn->inodes);
	html_row(out, "blocks", HASH_COUNT(nn->blocks.map));
	html_row(out, "under-replicated", nn->blocks.under_count);
	html_row(out, "missing", nn->blocks.missing);
	html_row(out, "with corrupt replicas", nn->blocks.corrupt);
	fputs("</table>\n<h2>Data nodes</h2>\n<table><tr><th>node<th>rack<th>state<th>capacity"
	      "<th>used<th>remaining<th>version\n",
	      out);
	for (const struct dn *dn = nn->dns.table; dn; dn = dn->hh.next)
		html_node(out, dn);
	pthread_rwlock_unlock(&nn->mem_lock);
	fputs("</table>\n<p><a href=/jmx>jmx</a> <a href=/conf>conf</a> <a href=/metrics>metrics</a> "
	      "<a href=/topology>topology</a>\n",
	      out);
}

static void topology_page(struct nn *nn, FILE *out)
{
	pthread_rwlock_rdlock(&nn->mem_lock);
	for (const struct dn *dn = nn->dns.table; dn; dn = dn->hh.next) {
		const struct dn *first = nn->dns.table;

		while (strcmp(first->rack, dn->rack))
			first = first->hh.next;
		if (first != dn)
			continue;
		fprintf(out, "Rack: %s\n", dn->rack);
		for (const struct dn *o = dn; o; o = o->hh.next)
			if (!strcmp(o->rack, dn->rack))
				fprintf(out, "   %s:%u (%s)\n", o->ip, o->xfer_port, o->host);
		fputc('\n', out);
	}
	if (!nn->dns.table)
		fputs("No DataNodes\n", out);
	pthread_rwlock_unlock(&nn->mem_lock);
}

/* Passwords and keys stay inside. */
static bool is_secret(const char *key)
{
	return strstr(key, "secret") || strstr(key, "password") || strstr(key, "passwd") ||
	       strstr(key, "credential") || strstr(key, ".key");
}

static void conf_xml(void *arg, const char *key, const char *value)
{
	FILE *out = arg;

	fputs("<property><name>", out);
	html_text(out, key);
	fputs("</name><value>", out);
	html_text(out, is_secret(key) ? "<redacted>" : value);
	fputs("</value><final>false</final><source>programmatically</source></property>\n", out);
}

static void conf_json(void *arg, const char *key, const char *value)
{
	json_t *const property = json_object();

	put_text(property, "key", key);
	put_text(property, "value", is_secret(key) ? "<redacted>" : value);
	put_bool(property, "isFinal", false);
	put_text(property, "resource", "programmatically");
	(void)json_array_append_new(arg, property);
}

static void conf_page(struct nn *nn, bool as_json, FILE *out)
{
	json_t *all;

	if (as_json) {
		all = json_pack("{s:[]}", "properties");
		conf_each(nn->set.conf, conf_json, json_object_get(all, "properties"));
		(void)json_dumpf(all, out, JSON_COMPACT);
		json_decref(all);
		return;
	}
	fputs("<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?><configuration>\n", out);
	conf_each(nn->set.conf, conf_xml, out);
	fputs("</configuration>", out);
}

/* ---- requests ---- */

static const char *param(struct MHD_Connection *c, const char *name)
{
	return MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, name);
}

static bool has(struct MHD_Connection *c, const char *name)
{
	return MHD_lookup_connection_value_n(c, MHD_GET_ARGUMENT_KIND, name, strlen(name), NULL,
					     NULL) == MHD_YES;
}

/* Takes @text. */
static enum MHD_Result send_text(struct MHD_Connection *c, unsigned int status, const char *type,
				 char *text)
{
	struct MHD_Response *r =
		text ? MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE)
		     : NULL;
	enum MHD_Result res;

	if (!r) {
		free(text);
		return MHD_NO;
	}
	MHD_add_response_header(r, "Content-Type", type);
	if (status == MHD_HTTP_FOUND)
		MHD_add_response_header(r, "Location", "/dfshealth.html");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(r, "Allow", "GET, HEAD");
	res = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return res;
}

/* Takes @all; NULL: the peer is hung up on. */
static enum MHD_Result send_json(struct MHD_Connection *c, const char *type, json_t *all,
				 size_t layout)
{
	char *const text = all ? json_dumps(all, layout | JSON_PUT_REALS) : NULL;

	json_decref(all);
	return send_text(c, MHD_HTTP_OK, type, text);
}

static ssize_t fsck_more(void *arg, uint64_t pos, char *buf, size_t max)
{
	const size_t n = fsck_read(arg, buf, max);

	(void)pos;
	return n ? (ssize_t)n : MHD_CONTENT_READER_END_OF_STREAM;
}

static void fsck_done(void *arg)
{
	fsck_free(arg);
}

static const char *peer_of(struct MHD_Connection *c, char *buf, size_t len)
{
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	const struct sockaddr *sa = i ? i->client_addr : NULL;

	if (!sa || getnameinfo(sa,
			       sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
							 : sizeof(struct sockaddr_in),
			       buf, (socklen_t)len, NULL, 0, NI_NUMERICHOST))
		snprintf(buf, len, "?");
	return buf;
}

#define FSCK_CHUNK 65536

static enum MHD_Result send_fsck(struct nn *nn, struct MHD_Connection *c)
{
	const char *ugi = param(c, "ugi");
	char from[NI_MAXHOST], user[256], name[1024];
	struct err err = ERR_INIT;
	const struct fsck_opts o = {
		.user = user,
		.from = peer_of(c, from, sizeof(from)),
		.path = param(c, "path"),
		.block_ids = param(c, "blockId"),
		.start_after = param(c, "startblockafter"),
		.files = has(c, "files"),
		.blocks = has(c, "blocks"),
		.locations = has(c, "locations"),
		.racks = has(c, "racks"),
		.open_files = has(c, "openforwrite"),
		.replica_details = has(c, "replicadetails"),
		.upgrade_domains = has(c, "upgradedomains"),
		.maintenance = has(c, "maintenance"),
		.policies = has(c, "storagepolicies"),
		.list_corrupt = has(c, "listcorruptfileblocks"),
		.remove = has(c, "delete"),
		.move = has(c, "move"),
	};
	struct MHD_Response *r;
	struct fsck *f;
	enum MHD_Result res;

	/* "user,group,...": the groups are looked up here. Nobody: as Apache's web user. */
	snprintf(name, sizeof(name), "%.*s", ugi ? (int)strcspn(ugi, ",") : 6,
		 ugi ? ugi : "dr.who");
	if (auth_to_local(nn->names, name, user, sizeof(user), &err))
		return send_text(c, MHD_HTTP_FORBIDDEN, "text/plain",
				 strdup("ugi= does not begin with the name of a user\n"));
	if (fsck_new(nn, &o, &f) < 0)
		return send_text(c, MHD_HTTP_SERVICE_UNAVAILABLE, "text/plain",
				 strdup("too many requests read the namespace now; try again\n"));
	r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, FSCK_CHUNK, fsck_more, f,
					      fsck_done);
	if (!r) {
		fsck_free(f);
		return MHD_NO;
	}
	MHD_add_response_header(r, "Content-Type", "text/plain;charset=utf-8");
	res = MHD_queue_response(c, MHD_HTTP_OK, r);
	MHD_destroy_response(r);
	return res;
}

/* A page that is written at once. NULL: there is none of that name. */
static const char *write_page(struct nn *nn, struct MHD_Connection *c, const char *url, FILE *out)
{
	const char *format = param(c, "format");

	if (!strcmp(url, "/dfshealth.html")) {
		health_page(nn, out);
		return "text/html;charset=utf-8";
	}
	if (!strcmp(url, "/topology")) {
		topology_page(nn, out);
		return "text/plain;charset=utf-8";
	}
	if (!strcmp(url, "/isActive")) {
		fputs("I am Active!\n", out);
		return "text/plain;charset=utf-8";
	}
	if (!strcmp(url, "/conf")) {
		const bool as_json = format && !strcmp(format, "json");

		conf_page(nn, as_json, out);
		return as_json ? "application/json;charset=utf-8" : "text/xml;charset=utf-8";
	}
	return NULL;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url,
				  const char *method)
{
	struct nn *nn = ((struct http *)arg)->nn;
	const char *type;
	char *text = NULL;
	size_t len;
	FILE *out;

	if (strcmp(method, "GET") && strcmp(method, "HEAD"))
		return send_text(c, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain",
				 strdup("pages are read with GET or HEAD only\n"));
	if (!strcmp(url, "/metrics") || !strcmp(url, "/prom"))
		return send_text(c, MHD_HTTP_OK, "text/plain; version=0.0.4",
				 metrics_format(prefixes));
	if (!strcmp(url, "/"))
		return send_text(c, MHD_HTTP_FOUND, "text/plain", strdup("see /dfshealth.html\n"));
	if (!strcmp(url, "/jmx"))
		return send_json(c, "application/json; charset=utf8",
				 jmx_page(nn, param(c, "qry"), param(c, "get")), JSON_INDENT(2));
	if (!strcmp(url, "/startupProgress"))
		return send_json(c, "application/json;charset=utf-8", jmx_startup(nn),
				 JSON_COMPACT);
	if (!strcmp(url, "/fsck"))
		return send_fsck(nn, c);
	out = open_memstream(&text, &len);
	if (!out)
		return MHD_NO;
	type = write_page(nn, c, url, out);
	if (!type)
		fputs("there is no such page; try /, /jmx, /conf, /fsck, /topology or /metrics\n",
		      out);
	fclose(out);
	return send_text(c, type ? MHD_HTTP_OK : MHD_HTTP_NOT_FOUND,
			 type ? type : "text/plain;charset=utf-8", text);
}

int http_new(struct nn *nn, const struct net_addr *addr, struct net_addr *ret_bound,
	     struct http **ret, struct err *err)
{
	struct http *h = xcalloc(1, sizeof(*h));
	int fd = net_listen(addr, false, ret_bound, err), rc;

	if (fd < 0) {
		free(h);
		return err_prefix(err, "dfs.namenode.http-address"), fd;
	}
	h->nn = nn;
	rc = http_server_start(fd, on_request, h, &h->server, err);
	if (rc < 0) {
		close(fd);
		free(h);
		return rc;
	}
	*ret = h;
	return 0;
}

void http_free(struct http *h)
{
	if (!h)
		return;
	http_server_stop(h->server);
	free(h);
}
