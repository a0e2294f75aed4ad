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

void credit_init(struct credit *c, uint16_t initial, uint16_t limit);
/** Messages that may be sent now, the one kept for control included. */
static inline uint16_t credit_avail(const struct credit *c)
{
	return (uint16_t)(c->granted - c->sent);
}
/** May a message be sent now? Data leaves the last credit for control. */
static inline bool credit_may_send(const struct credit *c, bool control)
{
	return credit_avail(c) >= (control ? 1 : 2);
}
/** -EAGAIN: not credit_may_send(). */
int credit_take(struct credit *c, bool control);
/** A message arrived with this cumulative grant. -EPROTO: over the limit, or going backwards. */
int credit_heard(struct credit *c, uint16_t granted);

/** The other side of the same direction: what the receiver has posted and said. */
struct grant {
	uint16_t granted;  /* cumulative, said or not */
	uint16_t said;     /* cumulative, as last sent in a header */
	uint16_t received; /* cumulative */
	uint16_t initial;
};

void grant_init(struct grant *g, uint16_t initial);
/** @n receives were posted again and belong to this peer; at most @initial are ever outstanding. */
void grant_add(struct grant *g, uint16_t n);
/** One message came in. -EPROTO: the peer had no credit for it. */
int grant_received(struct grant *g);
/** The value for the credits field of the message that is sent now. */
uint16_t grant_say(struct grant *g);
/** A heartbeat is owed (unless another message goes out now): the peer may be out of credits, or
 *  half of the first grant is unsaid. */
bool grant_due(const struct grant *g);
