/* SPDX-License-Identifier: Apache-2.0 */
#include "common/http/server.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "common/base/clock.h"
#include "common/base/list.h"

#define CONNS_MAX 512
/* more than the daemon accepts before it looks at connections that were shut down: 10 */
#define CONNS_SPARE 32
#define IDLE_S 30
#define NEW_NS NS_PER_S /* the request of one that came since then may be on its way */
#define ANSWER_NS (IDLE_S * NS_PER_S) /* most answers are taken by then */
#define UNSENT_MAX (128 << 10) /* bytes that the kernel keeps of an answer that is not taken */
/* Of one connection. libmicrohttpd maps what is larger than 32 KiB: only what is touched is
 * resident, and it goes back to the kernel when the connection closes. */
#define CONN_BYTES ((size_t)48 << 10)

struct http_server {
	struct MHD_Daemon *daemon;
	http_answer_fn answer;
	void *arg;
	struct list conns; /* those not shut down, in order of arrival; all this is the thread's */
	uint32_t count;
};

struct http_conn {
	struct http_server *server;
	struct list link;
	int fd;
	bool asked;        /* it has sent a whole request */
	uint64_t since_ns; /* of its last whole request; before, of its arrival */
};

static struct http_conn *conn_of(struct MHD_Connection *c)
{
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return i ? i->socket_context : NULL;
}

static void conn_leave(struct http_conn *c)
{
	if (!list_is_linked(&c->link))
		return;
	list_del(&c->link);
	c->server->count--;
}

static void conn_enter(struct http_server *s, struct MHD_Connection *mc, void **ret)
{
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(mc, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct http_conn *c = i ? calloc(1, sizeof(*c)) : NULL;

	*ret = c;
	if (!c)
		return; /* it is closed by its time-out only */
	c->server = s;
	c->fd = i->connect_fd;
	c->since_ns = clock_mono_ns();
	list_add_tail(&s->conns, &c->link);
	s->count++;
}

static void on_connection(void *arg, struct MHD_Connection *mc, void **context,
			  enum MHD_ConnectionNotificationCode what)
{
	struct http_conn *c = *context;

	if (what == MHD_CONNECTION_NOTIFY_STARTED) {
		conn_enter(arg, mc, context);
	} else if (c) {
		conn_leave(c);
		free(c);
		*context = NULL;
	}
}

static bool has_unread(const struct http_conn *c)
{
	int n = 0;

	return ioctl(c->fd, FIONREAD, &n) == 0 && n > 0;
}

/* The oldest one that should have asked by now. Else one that is slow to take its answer. Else one
 * that just came: its request may be there, but not read yet, as several are accepted before any is
 * read. */
static struct http_conn *who_goes(const struct http_server *s)
{
	const uint64_t now_ns = clock_mono_ns();
	struct http_conn *slow = NULL, *silent = NULL;

	list_for_each (l, &s->conns) {
		struct http_conn *c = container_of(l, struct http_conn, link);
		const uint64_t age_ns = clock_between(c->since_ns, now_ns);

		if (!c->asked && age_ns >= NEW_NS)
			return c;
		if (c->asked && !slow && age_ns >= ANSWER_NS)
			slow = c;
		if (!c->asked && !silent && !has_unread(c))
			silent = c;
	}
	if (slow || silent)
		return slow ? slow : silent;
	return list_empty(&s->conns) ? NULL : container_of(s->conns.next, struct http_conn, link);
}

/* The daemon reads the end and closes it. */
static void make_room(struct http_server *s)
{
	struct http_conn *c = who_goes(s);

	if (!c)
		return;
	conn_leave(c);
	(void)shutdown(c->fd, SHUT_RDWR);
}

static enum MHD_Result on_accept(void *arg, const struct sockaddr *peer, socklen_t len)
{
	struct http_server *s = arg;

	(void)peer, (void)len;
	if (s->count >= CONNS_MAX - CONNS_SPARE)
		make_room(s);
	return MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *mc, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_len, void **state)
{
	struct http_server *s = arg;
	struct http_conn *c = conn_of(mc);

	(void)version, (void)upload, (void)state;
	*upload_len = 0;
	if (c) {
		c->asked = true;
		c->since_ns = clock_mono_ns();
	}
	return s->answer(s->arg, mc, url, method);
}

int http_server_start(int fd, http_answer_fn answer, void *arg, struct http_server **ret,
		      struct err *err)
{
	struct http_server *s = calloc(1, sizeof(*s));
	const int unsent = UNSENT_MAX;

	if (!s)
		return err_sys(err, -ENOMEM, "HTTP");
	s->answer = answer;
	s->arg = arg;
	list_init(&s->conns);
	/* accepted ones have it, too */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
	s->daemon = MHD_start_daemon(
		MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL, 0, on_accept, s, on_request, s,
		MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned int)CONNS_MAX,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONN_BYTES, MHD_OPTION_CONNECTION_TIMEOUT,
		(unsigned int)IDLE_S, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
		MHD_OPTION_END);
	if (!s->daemon) {
		free(s);
		return err_set(
			err, -EIO,
			"cannot start the HTTP server: out of threads, descriptors or memory");
	}
	*ret = s;
	return 0;
}

void http_server_stop(struct http_server *s)
{
	if (!s)
		return;
	MHD_stop_daemon(s->daemon); /* closes the socket */
	free(s);
}
