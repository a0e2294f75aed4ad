/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * node_page - a page of a node's web server, as a tool fetches it
 *
 * Idea: one GET of HTTP/1.0; the answer ends with the connection.
 */
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

#define NODE_PAGE_MAX (64u << 20)

/** The body of http://@host:@port@path, of plain text; malloc'ed, the caller frees. Bytes that
 *  would do something to a terminal, or are no UTF-8, are '?' in it and in @err. Waits 10 s at most
 *  for each step, and @patience_ms for all of them. -ENOENT, -ECONNREFUSED, -ETIMEDOUT, -EPROTO (no
 *  200), -EMSGSIZE, -ENOMEM. */
int node_page_get(const char *host, unsigned int port, const char *path, uint32_t patience_ms,
		  char **ret, size_t *ret_len, struct err *err);
