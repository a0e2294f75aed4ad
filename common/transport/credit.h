/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * credit - who may send how many messages on a queue pair
 *
 * Idea: a SEND that meets no posted receive breaks the connection. So each side grants the other as
 * many messages as it has receives for, and tells the cumulative number in every message.
 * Ownership: plain values in a connection. Threading: that of the connection.
 * Units: messages, counted modulo 2^16.
 * Source: docs/wire.md section 7.
 */
#include <stdbool.h>
#include <stdint.h>

/** One direction, sender's side: how many messages may be sent. Serial arithmetic modulo 2^16. */
struct credit {
	uint16_t granted; /* cumulative, as last heard */
	uint16_t sent;    /* cumulative */
	uint16_t limit;   /* most that may ever be outstanding: guards against a lying peer */
};

/** What a message is, and how many credits it leaves: data never use up what control messages need,
 *  and these never what a heartbeat needs, by which the peer hears of new grants. */
enum credit_class { CREDIT_BEAT, CREDIT_CONTROL, CREDIT_DATA };

void credit_init(struct credit *c, uint16_t initial, uint16_t limit);
/** Messages that may be sent now, the kept ones included. */
static inline uint16_t credit_avail(const struct credit *c)
{
	return (uint16_t)(c->granted - c->sent);
}
static inline bool credit_may_send(const struct credit *c, enum credit_class cls)
{
	return credit_avail(c) > (uint16_t)cls;
}
/** -EAGAIN: not credit_may_send(). */
int credit_take(struct credit *c, enum credit_class cls);
/** A message arrived with this cumulative grant. -EPROTO: over the limit, or going backwards. */
int credit_heard(struct credit *c, uint16_t granted);

/** The other side of the same direction: what the receiver has posted and said. */
struct grant {
	uint16_t granted;  /* cumulative, said or not */
	uint16_t said;     /* cumulative, as last sent in a header */
	uint16_t received; /* cumulative */
	uint16_t target;   /* outstanding ones that it is to have; more when it was lowered */
};

void grant_init(struct grant *g, uint16_t initial);
/** Receives that belong to this peer: it may use them, or will be told that it may. */
static inline uint16_t grant_out(const struct grant *g)
{
	return (uint16_t)(g->granted - g->received);
}
/** What the peer may still send, as far as it has been told. */
static inline uint16_t grant_left(const struct grant *g)
{
	return (uint16_t)(g->said - g->received);
}
/** Is a receive that is posted again for this peer? No: it has shrunk, and another may have it. */
static inline bool grant_wants(const struct grant *g)
{
	return grant_out(g) < g->target;
}
/** @n receives were posted (again) and belong to this peer. */
void grant_add(struct grant *g, uint16_t n);
/** One message came in. -EPROTO: the peer had no credit for it. */
int grant_received(struct grant *g);
/** The value for the credits field of the message that is sent now. */
uint16_t grant_say(struct grant *g);
/** A heartbeat is owed (unless another message goes out now): the peer may be out of credits for
 *  data, or half of what it is to have is unsaid. */
bool grant_due(const struct grant *g);
