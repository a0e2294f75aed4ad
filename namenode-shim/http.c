/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/http.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/metrics.h"
#include "namenode-shim/arena.h"
#include "namenode-shim/nn.h"

#define CONNECTIONS_MAX 64
#define TIMEOUT_S 30

struct http {
	struct nn *nn; /* borrowed */
	struct MHD_Daemon *daemon;
};

static const char *const prefixes[] = {"dfs_namenode", "dfs_rpc", "dfs_uring", NULL};

static char *status_page(struct nn *nn)
{
	struct arena a = {0};
	char *s, *out;

	pthread_rwlock_rdlock(&nn->mem_lock);
	s = arena_printf(&a,
			 "cluster %s\nblock pool %s\nsafe mode %s\nfiles and directories %llu\n"
			 "blocks %u, under-replicated %llu, missing %llu, with corrupt replicas %llu\n",
			 nn->db->ident.cluster_id, nn->db->ident.pool_id, nn->safe.on ? "on" : "off",
			 (unsigned long long)nn->inodes, HASH_COUNT(nn->blocks.map),
			 (unsigned long long)nn->blocks.under_count,
			 (unsigned long long)nn->blocks.missing,
			 (unsigned long long)nn->blocks.corrupt);
	for (const struct dn *dn = nn->dns.table; dn; dn = dn->hh.next)
		s = arena_printf(&a, "%sdata node %s %s:%u %s capacity %llu remaining %llu\n", s,
				 dn->uuid, dn->ip, dn->xfer_port, dn->alive ? "live" : "dead",
				 (unsigned long long)dn_capacity(dn),
				 (unsigned long long)dn_remaining(dn));
	pthread_rwlock_unlock(&nn->mem_lock);
	out = strdup(s);
	arena_free(&a);
	return out;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_len, void **state)
{
	struct http *h = arg;
	struct MHD_Response *r;
	unsigned int status = MHD_HTTP_OK;
	enum MHD_Result res;
	char *text;

	(void)version;
	(void)upload;
	(void)state;
	*upload_len = 0;
	if (strcmp(method, "GET"))
		return MHD_NO;
	if (!strcmp(url, "/metrics"))
		text = metrics_format(prefixes);
	else if (!strcmp(url, "/"))
		text = status_page(h->nn);
	else
		text = strdup("not here; try / or /metrics\n");
	if (!text)
		return MHD_NO;
	if (strcmp(url, "/metrics") && strcmp(url, "/"))
		status = MHD_HTTP_NOT_FOUND;
	r = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
	if (!r) {
		free(text);
		return MHD_NO;
	}
	MHD_add_response_header(r, "Content-Type", "text/plain; version=0.0.4");
	res = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return res;
}

int http_new(struct nn *nn, const struct net_addr *addr, struct net_addr *ret_bound,
	     struct http **ret, struct err *err)
{
	struct http *h = xcalloc(1, sizeof(*h));
	int fd = net_listen(addr, false, ret_bound, err);

	if (fd < 0) {
		free(h);
		return err_prefix(err, "dfs.namenode.http-address"), fd;
	}
	h->nn = nn;
	h->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL, 0, NULL, NULL,
				     on_request, h, MHD_OPTION_LISTEN_SOCKET, fd,
				     MHD_OPTION_CONNECTION_LIMIT, (unsigned int)CONNECTIONS_MAX,
				     MHD_OPTION_CONNECTION_TIMEOUT, (unsigned int)TIMEOUT_S,
				     MHD_OPTION_END);
	if (!h->daemon) {
		close(fd);
		free(h);
		return err_set(err, -EIO, "cannot start the HTTP server");
	}
	*ret = h;
	return 0;
}

void http_free(struct http *h)
{
	if (!h)
		return;
	MHD_stop_daemon(h->daemon); /* closes the socket */
	free(h);
}
