/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * node - the parts of a data node, put together and taken apart
 *
 * Ownership: the node owns every part; node_stop() is safe on a half-started one.
 * Threading: main thread.
 */
#include "datanode/admin/http.h"
#include "datanode/admin/ipc.h"
#include "datanode/dn.h"
#include "datanode/options.h"

struct node {
	struct dn dn;
	struct dn_options opts;
	struct ipc *ipc;
	struct http *http;
	uint32_t running;          /* reactors started */
	atomic_bool callers_ended; /* private to node_stop() */
};

/** Open directories, listen, start threads. On failure call node_stop() all the same. */
int node_start(struct node *n, const struct conf *conf, struct err *err);
/** No NameNode is left that would have us, or no directory: the process ends, @err says why. */
bool node_is_useless(struct node *n, struct err *err);
/** Stop accepting, finish what is in flight, close everything. False: a disk does not answer, or
 *  something else does not end, and runs on: the process is to end with _exit(). */
bool node_stop(struct node *n);
/** Where we listen, as one line of JSON, written atomically. */
int node_write_ready_file(const struct node *n, const char *path, struct err *err);
