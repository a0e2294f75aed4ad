/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * lane - a thread for what a request must wait for before its turn
 *
 * Idea: a topology script, the name service or the directory of accounts may take seconds to answer.
 * A method that needs one of them has a prepare function; it runs here, without locks, one request
 * after the other, and what it found is in a cache or in the request when that comes to the writer.
 * Ownership: the NameNode's. Threading: lane_submit() from any thread.
 */
struct lane;
struct req;

/** -EAGAIN: no thread. */
int lane_new(struct lane **ret);
/** Any thread: prepare @q, then give it to the writer. */
void lane_submit(struct lane *l, struct req *q);
/** The writer gets all that was submitted, prepared or not. Accepts NULL. */
void lane_free(struct lane *l);
