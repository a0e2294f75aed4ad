/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * rpc/server_room - the connections and bytes that the peers of an RPC server may keep
 *
 * Idea: a silent peer keeps no other one out, and no peer fills the memory. When all places or
 * bytes are taken, the connection that has used its own least lately is to be closed:
 *   places          the oldest connection that has not said who it is; if there is none, the one
 *                   whose last frame is the oldest of those without a call
 *   large requests  the connection whose buffer became large first
 *   answers         the connection whose peer has taken nothing for longest
 * This module names the connection; the server closes it.
 * Ownership: a guest is part of a connection, from room_enter() to room_leave(). Threading: one
 * thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/list.h"

/* a buffer or request of so many bytes counts as none: the connections bound them */
#define ROOM_SMALL 65536u

struct room {
	uint32_t guests, guests_max;
	uint64_t bytes_max; /* of each of the next three */
	/* large buffers; large requests in service; answers not taken */
	uint64_t buffer_bytes, request_bytes, owed_bytes;
	struct list strangers, idle, large, owing;
};

struct guest {
	struct list place; /* in strangers or idle; in none while a call is out */
	struct list large_link, owing_link;
	uint64_t since_ns; /* of its arrival */
	uint64_t owing_ns; /* when it last took an answer, or got the first that it has not taken */
	uint64_t buffer, requests, owed; /* bytes */
};

void room_init(struct room *r, uint32_t guests_max, uint64_t bytes_max);
/** A connection that is a stranger until room_idle() or room_busy() is called for it. */
void room_enter(struct room *r, struct guest *g, uint64_t now_ns);
/** With all that it has, but its requests in service. Once. */
void room_leave(struct room *r, struct guest *g);
/** It has sent a frame, or its last call is answered; and no call is out. */
void room_idle(struct room *r, struct guest *g);
/** A call is out. */
void room_busy(struct guest *g);
/** The guest to close when there are more than guests_max; NULL: there are not, or each has a
 *  call out. */
struct guest *room_crowded(const struct room *r, uint64_t now_ns);

/** Its buffer has @bytes now. */
void room_buffer(struct room *r, struct guest *g, uint64_t bytes);
/** The guest to close, other than @g, when large buffers are more than bytes_max; or NULL. */
struct guest *room_over_buffers(const struct room *r, const struct guest *g);

/** A request of so many bytes may be taken from @g. One is always allowed to whom has none, as far
 * as bytes_max goes. */
bool room_may_ask(const struct room *r, const struct guest *g, uint64_t bytes);
void room_asks(struct room *r, struct guest *g, uint64_t bytes);
/** True: others may have waited for this. Also after room_leave(). */
bool room_answered(struct room *r, struct guest *g, uint64_t bytes);

/** An answer goes out; it was taken. Not after room_leave(). */
void room_owes(struct room *r, struct guest *g, uint64_t bytes, uint64_t now_ns);
void room_took(struct room *r, struct guest *g, uint64_t bytes, uint64_t now_ns);
/** The guest to close when more than bytes_max of answers are not taken; NULL: there are not, or
 *  all took one within a second. */
struct guest *room_over_owed(const struct room *r, uint64_t now_ns);
