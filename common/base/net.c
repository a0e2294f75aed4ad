/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/net.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define HOST_MAX 256
#define LISTEN_BACKLOG 512
#define FREE_WAIT_MS 3000
#define FREE_STEP_MS 20

static int parse_port(const char *s, uint16_t *ret)
{
	uint32_t v = 0;

	if (!*s)
		return -EINVAL;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return -EINVAL;
		v = v * 10 + (uint32_t)(*s - '0');
		if (v > UINT16_MAX)
			return -EINVAL;
	}
	*ret = (uint16_t)v;
	return 0;
}

int net_split(const char *text, uint16_t dflt_port, char *host, uint16_t *port, struct err *err)
{
	const char *s = strstr(text, "://"), *end, *colon;
	char buf[HOST_MAX + 8]; /* brackets, colon, port */
	uint16_t p = dflt_port;
	size_t len;

	s = s ? s + 3 : text;
	len = strcspn(s, "/");
	if (len == 0 || len >= sizeof(buf))
		goto bad;
	memcpy(buf, s, len);
	buf[len] = '\0';
	s = buf;
	if (*s == '[') {
		end = strchr(++s, ']');
		if (!end || (end[1] && end[1] != ':'))
			goto bad;
		colon = end[1] ? end + 1 : NULL;
	} else {
		colon = strchr(s, ':');
		if (colon && strchr(colon + 1, ':')) /* "::1" without brackets has no port */
			colon = NULL;
		end = colon ? colon : s + strlen(s);
	}
	if (colon && parse_port(colon + 1, &p) < 0)
		goto bad;
	if (!colon && !dflt_port)
		return err_set(err, -EINVAL, "address '%s' has no port; write host:port", text);
	len = (size_t)(end - s);
	if (len == 0 || len >= HOST_MAX)
		goto bad;
	memcpy(host, s, len);
	host[len] = '\0';
	*port = p;
	return 0;
bad:
	return err_set(err, -EINVAL, "'%s' is not an address; write host:port or [ipv6]:port",
		       text);
}

/* Every read of a client comes by here with what the NameNode has written. */
static bool resolve_ipv4(const char *host, uint16_t port, struct net_addr *ret)
{
	struct net_addr a = {.len = sizeof(struct sockaddr_in)};
	struct sockaddr_in *in = (struct sockaddr_in *)(void *)&a.sa;

	if (inet_pton(AF_INET, host, &in->sin_addr) != 1)
		return false;
	in->sin_family = AF_INET;
	in->sin_port = htobe16(port);
	*ret = a;
	return true;
}

int net_resolve(const char *host, uint16_t port, struct net_addr *ret, struct err *err)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	struct addrinfo *ai = NULL, *best;
	struct net_addr a = {0};
	char service[8];
	int rc;

	if (resolve_ipv4(host, port, ret))
		return 0;
	(void)snprintf(service, sizeof(service), "%u", port);
	rc = getaddrinfo(host, service, &hints, &ai);
	if (rc)
		return err_set(err, -ENOENT,
			       "host '%s' not found: %s; check the name, /etc/hosts and DNS", host,
			       rc == EAI_SYSTEM ? err_name(neg_errno()) : gai_strerror(rc));
	for (best = ai; best && best->ai_family != AF_INET;)
		best = best->ai_next;
	best = best ? best : ai;
	memcpy(&a.sa, best->ai_addr, best->ai_addrlen);
	a.len = best->ai_addrlen;
	freeaddrinfo(ai);
	*ret = a;
	return 0;
}

const char *net_ip(const struct net_addr *a, char *buf)
{
	const struct sockaddr_in *in4 = (const struct sockaddr_in *)(const void *)&a->sa;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)&a->sa;
	const char *s = NULL;

	if (a->sa.ss_family == AF_INET)
		s = inet_ntop(AF_INET, &in4->sin_addr, buf, NET_TEXT_MAX);
	else if (a->sa.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
		s = inet_ntop(AF_INET, in6->sin6_addr.s6_addr + 12, buf, NET_TEXT_MAX);
	else if (a->sa.ss_family == AF_INET6)
		s = inet_ntop(AF_INET6, &in6->sin6_addr, buf, NET_TEXT_MAX);
	if (!s)
		(void)snprintf(buf, NET_TEXT_MAX, "%s", a->sa.ss_family == AF_UNIX ? "local" : "?");
	return buf;
}

const char *net_text(const struct net_addr *a, char *buf)
{
	char ip[NET_TEXT_MAX];
	const char *fmt_open, *fmt_close;

	net_ip(a, ip);
	fmt_open = strchr(ip, ':') ? "[" : "";
	fmt_close = strchr(ip, ':') ? "]" : "";
	(void)snprintf(buf, NET_TEXT_MAX, "%s%.*s%s:%u", fmt_open, INET6_ADDRSTRLEN, ip, fmt_close,
		       net_port(a));
	return buf;
}

bool net_same(const struct net_addr *a, const struct net_addr *b)
{
	return a->len == b->len && !memcmp(&a->sa, &b->sa, a->len);
}

uint16_t net_port(const struct net_addr *a)
{
	if (a->sa.ss_family == AF_INET)
		return be16toh(((const struct sockaddr_in *)(const void *)&a->sa)->sin_port);
	if (a->sa.ss_family == AF_INET6)
		return be16toh(((const struct sockaddr_in6 *)(const void *)&a->sa)->sin6_port);
	return 0;
}

void net_set_port(struct net_addr *a, uint16_t port)
{
	if (a->sa.ss_family == AF_INET6)
		((struct sockaddr_in6 *)(void *)&a->sa)->sin6_port = htobe16(port);
	else
		((struct sockaddr_in *)(void *)&a->sa)->sin_port = htobe16(port);
}

static const struct sockaddr *as_sockaddr(const struct net_addr *a)
{
	return (const struct sockaddr *)(const void *)&a->sa;
}

static int new_socket(const struct net_addr *a)
{
	return ret_errno(socket(a->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

static int try_listen(int fd, const struct net_addr *a, bool reuseport, struct net_addr *ret_bound)
{
	int one = 1;

	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    (reuseport && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) < 0) ||
	    bind(fd, as_sockaddr(a), a->len) < 0 || listen(fd, LISTEN_BACKLOG) < 0)
		return neg_errno();
	if (!ret_bound)
		return 0;
	*ret_bound = (struct net_addr){.len = sizeof(ret_bound->sa)};
	return ret_errno(
		getsockname(fd, (struct sockaddr *)(void *)&ret_bound->sa, &ret_bound->len));
}

int net_listen(const struct net_addr *a, bool reuseport, struct net_addr *ret_bound,
	       struct err *err)
{
	char text[NET_TEXT_MAX];
	int fd = new_socket(a);
	int rc = fd < 0 ? fd : try_listen(fd, a, reuseport, ret_bound);

	if (rc >= 0)
		return fd;
	if (fd >= 0)
		(void)close(fd);
	err_sys(err, rc, "cannot listen on %s", net_text(a, text));
	if (rc == -EADDRINUSE)
		err_cure(err, "another process has this port: stop it or choose another port");
	else if (rc == -EADDRNOTAVAIL)
		err_cure(err, "this machine has no such address");
	return rc;
}

int net_await_free(const struct net_addr *a, struct err *err)
{
	const struct timespec step = {.tv_nsec = FREE_STEP_MS * (long)NS_PER_MS};
	int fd = net_listen(a, false, NULL, err), ms = 0;
	char text[NET_TEXT_MAX];

	for (; fd == -EADDRINUSE && ms < FREE_WAIT_MS; ms += FREE_STEP_MS) {
		nanosleep(&step, NULL);
		fd = net_listen(a, false, NULL, err);
	}
	if (fd >= 0 && ms > 0)
		log_info("op=start: waited %d ms until %s was free", ms, net_text(a, text));
	return fd < 0 ? fd : close(fd);
}

/* What became of the connect of @fd, which has ended. 0, or why it failed. */
static int connect_result(int fd)
{
	socklen_t len = sizeof(int);
	int soerr = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &soerr, &len) < 0)
		return neg_errno();
	return -soerr;
}

/* Wait for the connect of @fd to end. 1, 0 when it has not in time, -errno of poll(). */
static int wait_ended(int fd, uint32_t timeout_ms)
{
	const uint64_t deadline = clock_mono_ns() + timeout_ms * NS_PER_MS;
	struct pollfd pfd = {.fd = fd, .events = POLLOUT};
	int n;

	do {
		uint64_t now = clock_mono_ns();
		uint64_t left = deadline > now ? (deadline - now) / NS_PER_MS + 1 : 0;

		n = poll(&pfd, 1, (int)(left < INT32_MAX ? left : INT32_MAX));
	} while (n < 0 && errno == EINTR);
	return ret_errno(n);
}

/* 0, -ETIMEDOUT, or why it failed. */
static int wait_connected(int fd, uint32_t timeout_ms)
{
	const int n = wait_ended(fd, timeout_ms);

	if (n <= 0)
		return n < 0 ? n : -ETIMEDOUT;
	return connect_result(fd);
}

/* A connect to an unused local port may meet itself (TCP simultaneous open): nobody listens. */
static bool is_self_connected(int fd)
{
	struct net_addr us = {.len = sizeof(us.sa)}, them = {.len = sizeof(them.sa)};

	return !getsockname(fd, (struct sockaddr *)(void *)&us.sa, &us.len) &&
	       !getpeername(fd, (struct sockaddr *)(void *)&them.sa, &them.len) &&
	       us.len == them.len && !memcmp(&us.sa, &them.sa, us.len);
}

/* The connect of @fd has ended well: 0, or what is wrong all the same. */
static int after_connect(int fd)
{
	int one = 1;

	if (is_self_connected(fd))
		return -ECONNREFUSED;
	return ret_errno(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)));
}

int net_connect(const struct net_addr *a, uint32_t timeout_ms, struct err *err)
{
	char text[NET_TEXT_MAX];
	int fd = new_socket(a), rc = fd;

	if (fd >= 0) {
		rc = ret_errno(connect(fd, as_sockaddr(a), a->len));
		if (rc == -EINPROGRESS)
			rc = wait_connected(fd, timeout_ms);
		if (!rc)
			rc = after_connect(fd);
	}
	if (rc >= 0)
		return fd;
	if (fd >= 0)
		(void)close(fd);
	if (rc == -ETIMEDOUT)
		return err_set(err, rc, "cannot connect to %s: no answer within %u ms",
			       net_text(a, text), timeout_ms);
	return err_sys(err, rc, "cannot connect to %s", net_text(a, text));
}

int net_connect_start(const struct net_addr *a, struct err *err)
{
	char text[NET_TEXT_MAX];
	int fd = new_socket(a), rc = fd;

	if (fd >= 0)
		rc = ret_errno(connect(fd, as_sockaddr(a), a->len));
	if (rc >= 0 || rc == -EINPROGRESS)
		return fd;
	if (fd >= 0)
		(void)close(fd);
	return err_sys(err, rc, "cannot connect to %s", net_text(a, text));
}

int net_connect_check(int fd, const struct net_addr *a, struct err *err)
{
	char text[NET_TEXT_MAX];
	int rc = wait_ended(fd, 0);

	if (rc == 0)
		return 0;
	if (rc > 0)
		rc = connect_result(fd);
	if (rc == 0)
		rc = after_connect(fd);
	return rc < 0 ? err_sys(err, rc, "cannot connect to %s", net_text(a, text)) : 1;
}
