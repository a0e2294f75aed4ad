/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * resolver_thread - two threads for what a request must wait for before its turn
 *
 * Idea: a topology script, the name service or the directory of accounts may take seconds to
 * answer. A method that needs one of them has a prepare function. It runs here, without locks, and
 * leaves its result in a cache or in the request before the request comes to its own thread.
 * The first thread serves calls of callers whose groups are not known, and calls about a user whom
 * the caller names. Anybody can name users that do not exist, so the number of such calls that wait
 * is bounded, for each peer and for all.
 * The second thread serves calls that need no groups, or whose groups are known, with a bound of
 * its own for each peer, and looks known users up again. Calls of data nodes come first and have no
 * bound.
 * Ownership: the NameNode's. Threading: resolver_submit() from any thread.
 */
#include <stdbool.h>

#define RESOLVER_MAX 4096     /* calls that wait, */
#define RESOLVER_PEER_MAX 512 /* and so many of one address, or of a few that share a counter */

struct resolver;
struct req;
struct users;

/** -EAGAIN: no thread. */
int resolver_new(struct resolver **ret);
/** Any thread: learn the groups of its caller if it needs them and prepare @q, then give it to the
 *  writer, a READ to nn->read_later. False: too many wait; @q is left alone. */
bool resolver_submit(struct resolver *l, struct req *q);
/** Any thread: look @user up (again), when there is time. */
void resolver_load_user(struct resolver *l, struct users *u, const char *user);
/** All that was submitted goes on, prepared or not. Accepts NULL. */
void resolver_free(struct resolver *l);
