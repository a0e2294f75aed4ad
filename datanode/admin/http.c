/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/admin/http.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/metrics.h"
#include "common/http/server.h"
#include "datanode/admin/beans.h"
#include "datanode/block/operations.h"
#include "datanode/bp/bp.h"

#define NAMENODES_MAX 32

#define TYPE_TEXT "text/plain; version=0.0.4; charset=utf-8"
#define TYPE_HTML "text/html; charset=utf-8"
#define TYPE_JSON "application/json; charset=utf-8"
#define TYPE_XML "text/xml; charset=utf-8"

struct http {
	struct dn *dn;
	struct http_server *server;
	uint64_t start_ms;
};

/* What a page is made into: text that grows. */
struct page {
	char *text;
	size_t len;
	FILE *f;
	const char *type;
	unsigned int status;
	const struct http *h;
	struct MHD_Connection *c;
};

/* ---- text of others inside ours ---- */

/* For HTML and XML alike. */
static void put_escaped(FILE *f, const char *s)
{
	for (; *s; s++) {
		if (*s == '<')
			fputs("&lt;", f);
		else if (*s == '>')
			fputs("&gt;", f);
		else if (*s == '&')
			fputs("&amp;", f);
		else if (*s == '"')
			fputs("&quot;", f);
		else if ((unsigned char)*s >= ' ' || *s == '\n' || *s == '\t')
			fputc(*s, f);
	}
}

static void put_cell(FILE *f, const char *s)
{
	fputs("<td>", f);
	put_escaped(f, s);
	fputs("</td>", f);
}

static void put_number(FILE *f, uint64_t v)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "%" PRIu64, v);
	fputs("<td align=\"right\">", f);
	fputs(text, f);
	fputs("</td>", f);
}

/* ---- pages ---- */

static void page_index(struct page *p)
{
	struct bp_info nns[NAMENODES_MAX];
	struct dn *dn = p->h->dn;
	uint32_t n = dn->nns ? bp_info(dn->nns, nns, NAMENODES_MAX) : 0;
	char addr[NET_TEXT_MAX];
	struct storage_info v;

	p->type = TYPE_HTML;
	fputs("<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>DataNode</title></head>\n<body><h1>"
	      "DataNode ",
	      p->f);
	put_escaped(p->f, dn->host_name);
	put_escaped(p->f, ":");
	put_escaped(p->f, strrchr(net_text(&dn->data_addr, addr), ':') + 1);
	fputs("</h1>\n<p>dfs-rdma " DFS_VERSION ", id ", p->f);
	put_escaped(p->f, store_datanode_uuid(dn->store));
	fputs("</p>\n<h2>Block pools</h2>\n<table border=\"1\"><tr><th>NameNode</th><th>block pool</th>"
	      "<th>state</th><th>heartbeat, s ago</th><th>block report, s ago</th></tr>\n",
	      p->f);
	for (uint32_t i = 0; i < n; i++) {
		fputs("<tr>", p->f);
		put_cell(p->f, nns[i].addr);
		put_cell(p->f, nns[i].pool_id);
		put_cell(p->f, !nns[i].registered ? "connecting"
			       : nns[i].active    ? "active"
						  : "standby");
		put_number(p->f, nns[i].last_beat_s);
		put_number(p->f, nns[i].last_report_s);
		fputs("</tr>\n", p->f);
	}
	fputs("</table>\n<h2>Directories</h2>\n<table border=\"1\"><tr><th>directory</th><th>state</th>"
	      "<th>used, bytes</th><th>left, bytes</th><th>blocks</th></tr>\n",
	      p->f);
	for (uint32_t i = 0; i < store_volume_count(dn->store); i++) {
		store_volume_info(dn->store, i, NULL, &v);
		fputs("<tr>", p->f);
		put_cell(p->f, v.path);
		put_cell(p->f, v.failed ? "failed" : "in service");
		put_number(p->f, v.used);
		put_number(p->f, v.remaining);
		put_number(p->f, v.blocks);
		fputs("</tr>\n", p->f);
	}
	fputs("</table>\n<p><a href=\"/ops\">operations</a> <a href=\"/jmx\">beans</a> <a href=\"/metrics\">metrics</a> <a href=\"/conf\">"
	      "configuration</a> <a href=\"/blockScannerReport\">block scanner</a></p></body></html>\n",
	      p->f);
}

static void page_health(struct page *p)
{
	fputs("ok\n", p->f);
}

static void page_metrics(struct page *p)
{
	struct dn *dn = p->h->dn;
	struct storage_info i;
	uint64_t blocks = 0, out = 0;
	char *text;

	for (uint32_t v = 0; v < store_volume_count(dn->store); v++) {
		store_volume_info(dn->store, v, NULL, &i);
		blocks += i.blocks;
		out += i.failed;
	}
	metric_set(METRIC_DN_BLOCKS, blocks);
	metric_set(METRIC_DN_VOLUMES_OUT, out);
	text = metrics_format(NULL);
	fputs(text ? text : "", p->f);
	free(text);
}

static void page_jmx(struct page *p)
{
	const char *query = MHD_lookup_connection_value(p->c, MHD_GET_ARGUMENT_KIND, "qry");
	json_t *all = beans_get(p->h->dn, p->h->start_ms, query);

	p->type = TYPE_JSON;
	if (all)
		(void)json_dumpf(all, p->f, JSON_INDENT(2));
	else
		p->status = MHD_HTTP_SERVICE_UNAVAILABLE;
	json_decref(all);
}

/* ---- operations under way ---- */

static json_t *op_json(const struct operation *o)
{
	return json_pack(
		"{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:i}",
		"kind", o->kind, "role", o->role, "transport", o->transport, "state", o->state,
		"waits_for", o->waits_for, "pool", o->pool, "block", (json_int_t)o->block_id,
		"generation_stamp", (json_int_t)o->gs, "peer", o->peer, "next", o->next, "volume",
		o->volume, "bytes", (json_int_t)o->bytes, "held_bytes", (json_int_t)o->held,
		"age_ms", (json_int_t)o->age_ms, "quiet_ms", (json_int_t)o->quiet_ms, "reactor",
		(int)o->reactor);
}

static void ops_json(struct page *p, const struct operation *op, uint32_t n)
{
	json_t *list = json_array(), *o;

	for (uint32_t i = 0; i < n; i++)
		(void)json_array_append_new(list, op_json(&op[i]));
	o = json_pack("{s:o}", "operations", list);
	p->type = TYPE_JSON;
	if (o)
		(void)json_dumpf(o, p->f, JSON_INDENT(1));
	else
		p->status = MHD_HTTP_SERVICE_UNAVAILABLE;
	json_decref(o);
}

static void op_row(char row[512], const struct operation *o)
{
	(void)snprintf(row, 512,
		       "%-11s %-6s %-14s %-12s %-16s %8.1f %8.1f %12" PRIu64 " %9" PRIu64
		       "  blk_%" PRId64 "_%" PRIu64 "  %s%s%s",
		       o->kind, o->transport, o->role, o->state, *o->waits_for ? o->waits_for : "-",
		       (double)o->quiet_ms / 1000, (double)o->age_ms / 1000, o->bytes, o->held,
		       o->block_id, o->gs, o->peer, *o->next ? " -> " : "", o->next);
}

/* What RDMA peers cost, beside their queue pairs, which the device has. */
static void ops_rdma(struct page *p)
{
	const uint64_t n = metric_get(METRIC_RDMA_CONNS);
	const uint64_t granted = metric_get(METRIC_RDMA_RECEIVES_GRANTED);
	char row[256];

	if (!metric_get(METRIC_RDMA_RECEIVES))
		return;
	(void)snprintf(row, sizeof(row),
		       "%" PRIu64 " RDMA connections, %" PRIu64 " bytes each; of %" PRIu64
		       " receives of 10 KiB they have %" PRIu64 "\n",
		       n, n ? (metric_get(METRIC_RDMA_CONN_BYTES) + granted * 10240) / n : 0,
		       metric_get(METRIC_RDMA_RECEIVES), granted);
	fputs(row, p->f);
}

static void ops_text(struct page *p, const struct operation *op, uint32_t n)
{
	char row[512];

	(void)snprintf(row, sizeof(row), "%-11s %-6s %-14s %-12s %-16s %8s %8s %12s %9s  %s\n",
		       "operation", "by", "for", "state", "waits for", "quiet, s", "age, s",
		       "bytes", "buffers", "block, peer");
	fputs(row, p->f);
	for (uint32_t i = 0; i < n; i++) {
		op_row(row, &op[i]);
		put_escaped(p->f, row);
		fputs("\n", p->f);
	}
	(void)snprintf(row, sizeof(row),
		       "%" PRIu32 " operations; %" PRIu64 " bytes of buffers are free\n", n,
		       metric_get(METRIC_POOL_FREE));
	fputs(row, p->f);
	ops_rdma(p);
}

/* The longest without progress first. */
static int quieter(const void *a, const void *b)
{
	const struct operation *x = a, *y = b;

	return x->quiet_ms < y->quiet_ms ? 1 : x->quiet_ms > y->quiet_ms ? -1 : 0;
}

static void page_ops(struct page *p)
{
	const char *format = MHD_lookup_connection_value(p->c, MHD_GET_ARGUMENT_KIND, "format");
	struct operation *op = NULL;
	uint32_t n = 0;

	if (!p->h->dn->xfer || data_port_ops(p->h->dn->xfer, &op, &n) < 0) {
		p->status = MHD_HTTP_SERVICE_UNAVAILABLE;
		fputs("the data port is not open\n", p->f);
		return;
	}
	qsort(op, n, sizeof(*op), quieter);
	if (format && !strcmp(format, "json")) {
		ops_json(p, op, n);
	} else if (format && !strcmp(format, "text")) {
		ops_text(p, op, n);
	} else {
		p->type = TYPE_HTML;
		fputs("<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"2\">"
		      "<title>Operations</title></head>\n<body><h1>Operations under way</h1>\n<pre>\n",
		      p->f);
		ops_text(p, op, n);
		fputs("</pre>\n<p><a href=\"/ops?format=json\">as JSON</a></p></body></html>\n",
		      p->f);
	}
	free(op);
}

/* Values that a page must not show, by the end of the key (hadoop.security.sensitive-config-keys).
 */
static bool is_secret(const char *key)
{
	static const char *const words[] = {"password", "secret", "credential",
					    ".key",     "token",  "passwd"};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (strcasestr(key, words[i]) && !strcasestr(key, "token.enable"))
			return true;
	return false;
}

struct conf_page {
	struct page *page;
	json_t *json;     /* NULL: XML */
	const char *name; /* NULL: all */
};

static void conf_row(void *arg, const char *key, const char *value)
{
	struct conf_page *c = arg;

	if (c->name && strcmp(c->name, key))
		return;
	if (is_secret(key))
		value = "<redacted>";
	if (c->json) {
		(void)json_array_append_new(c->json,
					    json_pack("{s:s, s:s}", "key", key, "value", value));
		return;
	}
	fputs("<property><name>", c->page->f);
	put_escaped(c->page->f, key);
	fputs("</name><value>", c->page->f);
	put_escaped(c->page->f, value);
	fputs("</value></property>\n", c->page->f);
}

/* What is set; built-in defaults are listed by --help-config. */
static void page_conf(struct page *p)
{
	const char *format = MHD_lookup_connection_value(p->c, MHD_GET_ARGUMENT_KIND, "format");
	struct conf_page c = {.page = p};

	c.name = MHD_lookup_connection_value(p->c, MHD_GET_ARGUMENT_KIND, "name");
	if (format && !strcmp(format, "json")) {
		json_t *o;

		p->type = TYPE_JSON;
		c.json = json_array();
		conf_each(p->h->dn->conf, conf_row, &c);
		o = json_pack("{s:o}", "properties", c.json);
		if (o)
			(void)json_dumpf(o, p->f, JSON_INDENT(1));
		json_decref(o);
		return;
	}
	p->type = TYPE_XML;
	fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<configuration>\n", p->f);
	conf_each(p->h->dn->conf, conf_row, &c);
	fputs("</configuration>\n", p->f);
}

static void page_scanner(struct page *p)
{
	static const struct {
		const char *what;
		enum metric m;
	} rows[] = {
		{"Replicas read", METRIC_DN_SCANNED_BLOCKS},
		{"Bytes read", METRIC_DN_SCANNED_BYTES},
		{"Replicas that failed their checksums, however found", METRIC_DN_CORRUPT},
	};
	char n[32];

	fputs("Block scanner, since the start\n", p->f);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		(void)snprintf(n, sizeof(n), ": %" PRIu64 "\n", metric_get(rows[i].m));
		fputs(rows[i].what, p->f);
		fputs(n, p->f);
	}
}

/* A level set by whoever reaches this port would be a door: no. */
static void page_log_level(struct page *p)
{
	p->status = MHD_HTTP_FORBIDDEN;
	fputs("The log level is not changed over HTTP; set dfs.log.level and start the node again.\n",
	      p->f);
}

static void page_missing(struct page *p)
{
	p->status = MHD_HTTP_NOT_FOUND;
	fputs("Not here; try / /ops /jmx /conf /metrics /health /blockScannerReport\n", p->f);
}

static const struct {
	const char *url;
	void (*make)(struct page *p);
} pages[] = {
	{"/", page_index},
	{"/index.html", page_index},
	{"/datanode.html", page_index},
	{"/health", page_health},
	{"/metrics", page_metrics},
	{"/prom", page_metrics},
	{"/jmx", page_jmx},
	{"/conf", page_conf},
	{"/blockScannerReport", page_scanner},
	{"/ops", page_ops},
	{"/logLevel", page_log_level},
};

/* ---- the server ---- */

/* Takes p->text. */
static enum MHD_Result reply(struct MHD_Connection *c, struct page *p)
{
	struct MHD_Response *r =
		MHD_create_response_from_buffer(p->len, p->text, MHD_RESPMEM_MUST_FREE);
	enum MHD_Result rc;

	if (!r) {
		free(p->text);
		return MHD_NO;
	}
	(void)MHD_add_response_header(r, "Content-Type", p->type);
	(void)MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
	rc = MHD_queue_response(c, p->status, r);
	MHD_destroy_response(r);
	return rc;
}

static void (*find_page(const char *url))(struct page *)
{
	for (size_t i = 0; i < sizeof(pages) / sizeof(*pages); i++)
		if (!strcmp(url, pages[i].url))
			return pages[i].make;
	return page_missing;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *c, const char *url,
			      const char *method)
{
	struct page p = {.type = TYPE_TEXT, .status = MHD_HTTP_OK, .h = arg, .c = c};

	p.f = open_memstream(&p.text, &p.len);
	if (!p.f)
		return MHD_NO;
	if (strcmp(method, "GET") && strcmp(method, "HEAD")) {
		p.status = MHD_HTTP_METHOD_NOT_ALLOWED;
		fputs("only GET\n", p.f);
	} else {
		find_page(url)(&p);
	}
	if (fclose(p.f)) {
		free(p.text);
		return MHD_NO;
	}
	return reply(c, &p);
}

int http_start(struct dn *dn, struct http **ret, struct err *err)
{
	struct http *h = calloc(1, sizeof(*h));
	int fd, rc;

	if (!h)
		return err_sys(err, -ENOMEM, "HTTP");
	h->dn = dn;
	h->start_ms = clock_wall_ms();
	fd = net_listen(&dn->http_addr, false, &dn->http_addr, err);
	if (fd < 0) {
		free(h);
		err_prefix(err, "HTTP port (dfs.datanode.http.address)");
		return fd;
	}
	rc = http_server_start(fd, answer, h, &h->server, err);
	if (rc < 0) {
		(void)close(fd);
		free(h);
		return rc;
	}
	*ret = h;
	return 0;
}

void http_stop(struct http *h)
{
	if (!h)
		return;
	http_server_stop(h->server);
	free(h);
}
