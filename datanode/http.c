/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/http.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/metrics.h"

#define CONNS_MAX 64
#define IDLE_S 15

struct http {
	struct dn *dn;
	struct MHD_Daemon *daemon;
};

static void count_blocks(struct dn *dn)
{
	struct storage_info i;
	uint64_t blocks = 0;

	for (uint32_t v = 0; v < store_volume_count(dn->store); v++) {
		store_volume_info(dn->store, v, NULL, &i);
		blocks += i.blocks;
	}
	metric_set(METRIC_DN_BLOCKS, blocks);
}

static enum MHD_Result reply(struct MHD_Connection *c, unsigned int status, char *text, bool free_it)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(
		strlen(text), text, free_it ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
	enum MHD_Result rc;

	if (!r) {
		if (free_it)
			free(text);
		return MHD_NO;
	}
	(void)MHD_add_response_header(r, "Content-Type", "text/plain; version=0.0.4; charset=utf-8");
	rc = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return rc;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *c, const char *url,
			      const char *method, const char *version, const char *upload,
			      size_t *upload_len, void **ctx)
{
	struct http *h = arg;
	char *text;

	(void)version, (void)upload, (void)upload_len, (void)ctx;
	if (strcmp(method, "GET") && strcmp(method, "HEAD"))
		return reply(c, MHD_HTTP_METHOD_NOT_ALLOWED, (char *)"only GET\n", false);
	if (!strcmp(url, "/health"))
		return reply(c, MHD_HTTP_OK, (char *)"ok\n", false);
	if (strcmp(url, "/metrics"))
		return reply(c, MHD_HTTP_NOT_FOUND, (char *)"/metrics or /health\n", false);
	count_blocks(h->dn);
	text = metrics_format(NULL);
	return text ? reply(c, MHD_HTTP_OK, text, true) : MHD_NO;
}

int http_start(struct dn *dn, struct http **ret, struct err *err)
{
	struct http *h = calloc(1, sizeof(*h));
	int fd;

	if (!h)
		return err_sys(err, -ENOMEM, "HTTP");
	h->dn = dn;
	fd = net_listen(&dn->http_addr, false, &dn->http_addr, err);
	if (fd < 0) {
		free(h);
		err_prefix(err, "HTTP port (dfs.datanode.http.address)");
		return fd;
	}
	h->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL, 0, NULL, NULL,
				     answer, h, MHD_OPTION_LISTEN_SOCKET, fd,
				     MHD_OPTION_CONNECTION_LIMIT, CONNS_MAX,
				     MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_END);
	if (!h->daemon) {
		(void)close(fd); /* not the daemon's yet */
		free(h);
		return err_set(err, -EIO, "the HTTP server does not start");
	}
	*ret = h;
	return 0;
}

void http_stop(struct http *h)
{
	if (!h)
		return;
	MHD_stop_daemon(h->daemon);
	free(h);
}
