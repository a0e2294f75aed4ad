/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * net - host:port text, addresses and blocking connects with a deadline
 *
 * Idea: every "host:port" of configuration, command line and wire is parsed in one place, with
 * errors that say what was expected. Threading: pure, but getaddrinfo blocks: never on a reactor.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "common/base/err.h"

struct net_addr {
	struct sockaddr_storage sa;
	socklen_t len;
};

#define NET_TEXT_MAX 80 /* "[ipv6]:port" with NUL */

/** Split "host:port", "[v6]:port", "hdfs://host:port[/..]" or "host"; @dflt_port 0 = port required.
 *  @host has room for 256. -EINVAL. */
int net_split(const char *text, uint16_t dflt_port, char *host, uint16_t *port, struct err *err);
/** Numeric text or name -> address, IPv4 where there is one (Hadoop's servers listen there, and
 *  "localhost" often is ::1 first). -ENOENT (unknown host, named in @err). */
int net_resolve(const char *host, uint16_t port, struct net_addr *ret, struct err *err);
/** "1.2.3.4:9866"; returns @buf[NET_TEXT_MAX]. */
const char *net_text(const struct net_addr *a, char *buf);
/** Only the address, without the port; returns @buf[NET_TEXT_MAX]. */
const char *net_ip(const struct net_addr *a, char *buf);
/** The same address and port. */
bool net_same(const struct net_addr *a, const struct net_addr *b);
uint16_t net_port(const struct net_addr *a);
void net_set_port(struct net_addr *a, uint16_t port);
/** Non-blocking listening socket, SO_REUSEADDR (and SO_REUSEPORT when asked). @ret_bound gets the
 *  real port when @a asked for 0. Returns fd; -EADDRINUSE etc. with the address in @err. */
int net_listen(const struct net_addr *a, bool reuseport, struct net_addr *ret_bound,
	       struct err *err);
/** A program that is about to listen at @a, on a reactor: the sockets of one that was killed a
 *  moment ago outlive it until the kernel has tidied up its io_uring, some 100 ms. They are waited
 *  for, three seconds. 0; errors as net_listen(). */
int net_await_free(const struct net_addr *a, struct err *err);
/** Connect with a deadline; returns a non-blocking fd with TCP_NODELAY. -ECONNREFUSED, -ETIMEDOUT,
 *  ... with the address in @err. */
int net_connect(const struct net_addr *a, uint32_t timeout_ms, struct err *err);
/** Begin to connect and do not wait; returns a non-blocking fd, or why it cannot be. */
int net_connect_start(const struct net_addr *a, struct err *err);
/** Is the @fd of net_connect_start() connected by now? 1 (with TCP_NODELAY), 0: not yet, poll for
 *  POLLOUT; or why it failed. The fd stays the caller's. */
int net_connect_check(int fd, const struct net_addr *a, struct err *err);
