/* SPDX-License-Identifier: Apache-2.0 */
#include "common/transport/credit.h"

#include <errno.h>

void credit_init(struct credit *c, uint16_t initial, uint16_t limit)
{
	*c = (struct credit){.granted = initial, .limit = limit};
}

int credit_take(struct credit *c, enum credit_class cls)
{
	if (!credit_may_send(c, cls))
		return -EAGAIN;
	c->sent++;
	return 0;
}

int credit_heard(struct credit *c, uint16_t granted)
{
	/* A step back would look like one of nearly 65536 forward: over any limit. */
	if ((uint16_t)(granted - c->sent) > c->limit ||
	    (uint16_t)(granted - c->sent) < credit_avail(c))
		return -EPROTO;
	c->granted = granted;
	return 0;
}

void grant_init(struct grant *g, uint16_t initial)
{
	*g = (struct grant){.granted = initial, .said = initial, .target = initial};
}

void grant_add(struct grant *g, uint16_t n)
{
	g->granted = (uint16_t)(g->granted + n);
}

int grant_received(struct grant *g)
{
	if (g->received == g->said)
		return -EPROTO;
	g->received++;
	return 0;
}

uint16_t grant_say(struct grant *g)
{
	g->said = g->granted;
	return g->said;
}

bool grant_due(const struct grant *g)
{
	const uint16_t unsaid = (uint16_t)(g->granted - g->said);

	/* Two left are those for control messages and heartbeats: no data can come. */
	return unsaid && (grant_left(g) <= CREDIT_DATA || unsaid >= g->target / 2);
}
