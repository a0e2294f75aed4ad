/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/session/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/net.h"
#include "fuse/mount.h"

#define CONNS_MAX 16
#define IDLE_S 15
#define TEXT "text/plain; version=0.0.4; charset=utf-8"

struct metrics {
	struct mount *m; /* borrowed */
	struct MHD_Daemon *daemon;
	char at[NET_TEXT_MAX];
};

static void gauge(FILE *f, const char *name, const char *help, uint64_t v)
{
	fprintf(f, "# HELP %s %s\n# TYPE %s gauge\n%s %" PRIu64 "\n", name, help, name, name, v);
}

static void counter(FILE *f, const char *name, const char *help, uint64_t v)
{
	fprintf(f, "# HELP %s %s\n# TYPE %s counter\n%s %" PRIu64 "\n", name, help, name, name, v);
}

static void print_state(struct mount *m, FILE *f)
{
	uint64_t known, files = 0;

	pthread_mutex_lock(&m->inodes.lock);
	known = m->inodes.count;
	list_for_each (l, &m->handles)
		files++;
	pthread_mutex_unlock(&m->inodes.lock);
	gauge(f, "dfs_fuse_overlay_bytes", "changes that wait on the local disk", m->budget.used);
	gauge(f, "dfs_fuse_overlay_limit_bytes", "and how many there may be (overlay_size)",
	      m->budget.limit);
	gauge(f, "dfs_fuse_open_files", "open files", files);
	gauge(f, "dfs_fuse_passthrough_files",
	      "open files that the kernel reads from replicas by itself", m->passthrough.files);
	gauge(f, "dfs_fuse_inodes", "files and directories that the kernel knows", known);
	gauge(f, "dfs_fuse_users", "users with a connection", users_count(&m->users));
}

/* What the library says of its side, of all users. */
static void print_library(struct mount *m, FILE *f)
{
	struct dfs_counters c;

	users_counters(&m->users, &c);
	fprintf(f,
		"# HELP dfs_fuse_data_bytes_total payload bytes to and from data nodes\n# TYPE dfs_fuse_data_bytes_total counter\n"
		"dfs_fuse_data_bytes_total{direction=\"written\",transport=\"tcp\"} %" PRIu64 "\n"
		"dfs_fuse_data_bytes_total{direction=\"written\",transport=\"rdma\"} %" PRIu64 "\n"
		"dfs_fuse_data_bytes_total{direction=\"read\",transport=\"tcp\"} %" PRIu64 "\n"
		"dfs_fuse_data_bytes_total{direction=\"read\",transport=\"rdma\"} %" PRIu64 "\n"
		"dfs_fuse_data_bytes_total{direction=\"read\",transport=\"local\"} %" PRIu64 "\n"
		"dfs_fuse_data_bytes_total{direction=\"read\",transport=\"onesided\"} %" PRIu64
		"\n",
		c.written_tcp, c.written_rdma, c.read_tcp, c.read_rdma, c.read_local,
		c.read_onesided);
	counter(f, "dfs_fuse_pipeline_recoveries_total", "data nodes that failed under a writer",
		c.pipeline_recoveries);
	counter(f, "dfs_fuse_read_failovers_total", "replicas given up by a reader",
		c.read_failovers);
	counter(f, "dfs_fuse_checksum_errors_total", "replicas reported to be corrupt",
		c.checksum_errors);
	counter(f, "dfs_fuse_rdma_fallbacks_total",
		"data nodes reached over TCP although RDMA was wanted", c.rdma_fallbacks);
	counter(f, "dfs_fuse_local_fallbacks_total",
		"reads of local replicas that went on by the network", c.local_fallbacks);
	counter(f, "dfs_fuse_decoded_bytes_total",
		"bytes of erasure-coded files that were made of other units", c.read_decoded);
	counter(f, "dfs_fuse_read_hedges_total", "times a slow unit was not waited for",
		c.read_hedges);
	counter(f, "dfs_fuse_short_groups_total",
		"block groups begun on fewer data nodes than they have units", c.short_groups);
}

static unsigned int make_page(struct mount *m, const char *method, const char *url, FILE *f)
{
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
		fputs("only GET\n", f);
		return MHD_HTTP_METHOD_NOT_ALLOWED;
	}
	if (strcmp(url, "/health") == 0) {
		fputs("ok\n", f);
		return MHD_HTTP_OK;
	}
	if (strcmp(url, "/metrics") != 0 && strcmp(url, "/prom") != 0) {
		fputs("not here; try /metrics /health\n", f);
		return MHD_HTTP_NOT_FOUND;
	}
	request_table_print(&m->request_table, f);
	print_state(m, f);
	print_library(m, f);
	return MHD_HTTP_OK;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *c, const char *url,
			      const char *method, const char *version, const char *upload,
			      size_t *upload_len, void **ctx)
{
	const struct metrics *s = arg;
	struct MHD_Response *r;
	enum MHD_Result rc;
	unsigned int status;
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	(void)version, (void)upload, (void)upload_len, (void)ctx;
	if (!f)
		return MHD_NO;
	status = make_page(s->m, method, url, f);
	if (fclose(f) != 0) {
		free(text);
		return MHD_NO;
	}
	r = MHD_create_response_from_buffer(len, text, MHD_RESPMEM_MUST_FREE);
	if (!r) {
		free(text);
		return MHD_NO;
	}
	(void)MHD_add_response_header(r, "Content-Type", TEXT);
	rc = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return rc;
}

int metrics_start(struct mount *m, struct metrics **ret, struct err *err)
{
	struct net_addr addr, bound;
	char host[256];
	struct metrics *s;
	uint16_t port;
	int rc, fd;

	if (!m->opt.metrics)
		return 0;
	rc = net_split(m->opt.metrics, 0, host, &port, err);
	rc = rc < 0 ? rc : net_resolve(host, port, &addr, err);
	fd = rc < 0 ? rc : net_listen(&addr, false, &bound, err);
	if (fd < 0)
		return fd;
	s = calloc(1, sizeof(*s));
	if (s) {
		s->m = m;
		s->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL, 0,
					     NULL, NULL, answer, s, MHD_OPTION_LISTEN_SOCKET, fd,
					     MHD_OPTION_CONNECTION_LIMIT, CONNS_MAX,
					     MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_END);
	}
	if (!s || !s->daemon) {
		(void)close(fd); /* not the daemon's yet */
		free(s);
		return err_set(err, -EIO, "the HTTP server does not start");
	}
	net_text(&bound, s->at);
	*ret = s;
	return 0;
}

void metrics_tell(const struct metrics *s)
{
	if (s)
		log_info("op=metrics url=http://%s/metrics", s->at);
}

void metrics_stop(struct metrics *s)
{
	if (!s)
		return;
	MHD_stop_daemon(s->daemon);
	free(s);
}
