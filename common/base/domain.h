/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * domain - the UNIX domain socket of a data node, dfs.domain.socket.path
 *
 * Idea: a client on the same machine can be given the open files of a block, and only such a socket
 * carries open files. Node and clients find each other by a path in which _PORT stands for the
 * data port. A client believes the process that listens there. So only the node's user and root may
 * be able to replace the socket: the node refuses a path where another user could.
 * Threading: pure; domain_listen() and domain_connect() do not wait for anybody.
 * Source: hdfs-wire 5.7; the rules for the path are those of Hadoop's DomainSocket.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#include "common/base/err.h"

#define DOMAIN_PATH_MAX sizeof(((struct sockaddr_un *)0)->sun_path) /* with NUL */
#define DOMAIN_FDS_MAX 2 /* passed with one message: a block's data and its CRCs */

/** @text with the data port for each "_PORT". -EINVAL: not absolute, ends in a slash, too long. */
int domain_path(const char *text, uint16_t port, char ret[DOMAIN_PATH_MAX], struct err *err);
/** No directory above it, / included, is writable for others, for a group but root's, or for a user
 *  but root and ours. -EPERM with the directory and the cure; -ENOENT etc. when one cannot be
 *  looked at. */
int domain_path_check(const char *path, struct err *err);
/** A listening socket at @path, which everybody may connect to; a socket that was left there is
 *  replaced. Returns fd.
 *  -EADDRINUSE: somebody listens there; -EEXIST: no socket is in its place. */
int domain_listen(const char *path, struct err *err);
/** Returns a connected, non-blocking fd. -ENOENT, -ECONNREFUSED: no node; -EAGAIN: it has too many
 * waiting already. */
int domain_connect(const char *path, struct err *err);
/** One byte and with it @n <= DOMAIN_FDS_MAX descriptors. -EAGAIN: the peer does not read what it
 * was sent. */
int domain_send_fds(int sock, uint8_t byte, const int *fds, int n);
/** One byte and what comes with it: *@ret_n <= DOMAIN_FDS_MAX descriptors (close on exec). 1, 0:
 *  nothing is there yet; -ECONNRESET;
 *  -EMFILE: some did not fit into this process, and none is kept. */
int domain_recv_fds(int sock, uint8_t *ret_byte, int ret_fds[DOMAIN_FDS_MAX], int *ret_n);
