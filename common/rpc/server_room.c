/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/server_room.h"

#include "common/base/clock.h"

#define NEW_NS NS_PER_S           /* what makes somebody younger no stranger may be on its way */
#define TAKES_NS NS_PER_S         /* who took an answer since then takes them */
#define REQUESTS_MAX (8ull << 20) /* bytes of large requests of one connection, and one more */

void room_init(struct room *r, uint32_t guests_max, uint64_t bytes_max)
{
	*r = (struct room){.guests_max = guests_max, .bytes_max = bytes_max};
	list_init(&r->strangers);
	list_init(&r->idle);
	list_init(&r->large);
	list_init(&r->owing);
}

void room_enter(struct room *r, struct guest *g, uint64_t now_ns)
{
	*g = (struct guest){.since_ns = now_ns};
	list_init(&g->large_link);
	list_init(&g->owing_link);
	list_add_tail(&r->strangers, &g->place);
	r->guests++;
}

void room_leave(struct room *r, struct guest *g)
{
	list_del(&g->place);
	room_buffer(r, g, 0);
	r->owed_bytes -= g->owed;
	g->owed = 0;
	list_del(&g->owing_link);
	r->guests--;
}

void room_idle(struct room *r, struct guest *g)
{
	list_del(&g->place);
	list_add_tail(&r->idle, &g->place);
}

void room_busy(struct guest *g)
{
	list_del(&g->place);
}

static struct guest *first_of(const struct list *l, size_t offset)
{
	return list_empty(l) ? NULL : (struct guest *)((char *)l->next - offset);
}

struct guest *room_crowded(const struct room *r, uint64_t now_ns)
{
	struct guest *stranger = first_of(&r->strangers, offsetof(struct guest, place));
	struct guest *idle = first_of(&r->idle, offsetof(struct guest, place));

	if (r->guests <= r->guests_max)
		return NULL;
	if (stranger && (!idle || clock_between(stranger->since_ns, now_ns) >= NEW_NS))
		return stranger;
	return idle;
}

void room_buffer(struct room *r, struct guest *g, uint64_t bytes)
{
	const uint64_t large = bytes > ROOM_SMALL ? bytes : 0;

	r->buffer_bytes += large - g->buffer;
	if (!large)
		list_del(&g->large_link);
	else if (!g->buffer)
		list_add_tail(&r->large, &g->large_link);
	g->buffer = large;
}

struct guest *room_over_buffers(const struct room *r, const struct guest *g)
{
	if (r->buffer_bytes <= r->bytes_max)
		return NULL;
	list_for_each (l, &r->large) {
		struct guest *other = container_of(l, struct guest, large_link);

		if (other != g)
			return other;
	}
	return NULL;
}

bool room_may_ask(const struct room *r, const struct guest *g, uint64_t bytes)
{
	return bytes <= ROOM_SMALL ||
	       (g->requests < REQUESTS_MAX && r->request_bytes < r->bytes_max);
}

void room_asks(struct room *r, struct guest *g, uint64_t bytes)
{
	if (bytes <= ROOM_SMALL)
		return;
	g->requests += bytes;
	r->request_bytes += bytes;
}

bool room_answered(struct room *r, struct guest *g, uint64_t bytes)
{
	if (bytes <= ROOM_SMALL)
		return false;
	g->requests -= bytes;
	r->request_bytes -= bytes;
	return true;
}

void room_owes(struct room *r, struct guest *g, uint64_t bytes, uint64_t now_ns)
{
	if (!g->owed) {
		g->owing_ns = now_ns;
		list_add_tail(&r->owing, &g->owing_link);
	}
	g->owed += bytes;
	r->owed_bytes += bytes;
}

void room_took(struct room *r, struct guest *g, uint64_t bytes, uint64_t now_ns)
{
	g->owed -= bytes;
	r->owed_bytes -= bytes;
	list_del(&g->owing_link);
	g->owing_ns = now_ns;
	if (g->owed)
		list_add_tail(&r->owing, &g->owing_link);
}

struct guest *room_over_owed(const struct room *r, uint64_t now_ns)
{
	struct guest *g = first_of(&r->owing, offsetof(struct guest, owing_link));

	if (r->owed_bytes <= r->bytes_max || !g || clock_between(g->owing_ns, now_ns) < TAKES_NS)
		return NULL;
	return g;
}
