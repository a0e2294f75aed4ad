/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * http_server - the pages of a program, on libmicrohttpd
 *
 * Idea: a peer that connects and sends half a request, or nothing, locks nobody out. The
 * connections stand in order of arrival. When their number comes near the limit, one is shut down
 * for each new one: the oldest that has not sent a whole request within a second of its arrival;
 * else the oldest whose last request is 30 seconds old; else the oldest without a whole request and
 * with nothing unread in its socket; else the oldest of all.
 * A connection on which nothing happens for 30 seconds is closed, too.
 * Ownership: the server owns the listening socket and the connections.
 * Threading: one thread of the server's own; the answers are made in it.
 * Units: at most 512 connections, of up to 48 KiB and an answer each, and 128 KiB of that in the
 * kernel.
 */
#include <microhttpd.h>

#include "common/base/err.h"

struct http_server;

/** Answer a request, with MHD_queue_response(). MHD_NO: close the connection. */
typedef enum MHD_Result (*http_answer_fn)(void *arg, struct MHD_Connection *c, const char *url,
					  const char *method);

/** @fd: a listening socket; stays the caller's on failure. */
int http_server_start(int fd, http_answer_fn answer, void *arg, struct http_server **ret,
		      struct err *err);
/** Closes all connections and waits for the thread. Accepts NULL. */
void http_server_stop(struct http_server *s);
