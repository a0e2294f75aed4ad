/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * dtp - DataTransferProtocol over a stream: the TCP front end
 *
 * Idea: one dtp_conn per accepted connection. It reads an op, turns it into an engine op or answers
 * it itself, and waits for the next one. While a block is written or read the connection belongs to
 * that op's part (dtp_write.c, dtp_read.c).
 * Ownership: a connection frees itself when it is closed and nothing of it is in flight.
 * Threading: the connection's reactor.
 * Source: hdfs-wire 5, 12, 13.
 */
#include "datanode/block/engine.h"

struct xconn;

/** Takes an accepted connection. */
void dtp_accept(struct engine_core *core, struct xconn *xc);
/** Close the connections that wait for an op. */
void dtp_close_idle(struct engine_core *core);
/** Close the connection that has been without an operation for longest, at once: its peer may take
 * no answer. False: none is. */
bool dtp_close_oldest_idle(struct engine_core *core);
/** Close every connection of @core; they drain by themselves. */
void dtp_close_all(struct engine_core *core);
