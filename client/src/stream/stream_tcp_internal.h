/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/** stream_tcp_internal - the reading half of stream_tcp, functions of struct block_stream in
 * stream.h */
#include "client/src/stream/stream.h"

int tcp_r_open(struct dfs *fs, const struct read_setup *r, struct rstream **ret, struct err *err);
ssize_t tcp_r_read(struct rstream *s, void *buf, size_t len, struct err *err);
void tcp_r_close(struct rstream *s);
int tcp_r_start(struct dfs *fs, const struct read_setup *r, struct rstream **ret, struct err *err);
ssize_t tcp_r_try(struct rstream *s, void *buf, size_t len, struct err *err);
int tcp_r_poll(struct rstream *s, struct pollfd *ret);
