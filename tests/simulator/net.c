/* SPDX-License-Identifier: Apache-2.0 */
/* TCP as its users see it: bytes arrive in order after a while, or not at all; buffers have an end;
 * a process that dies ends its connections, a machine that dies says nothing. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "tests/simulator/world.h"

#define GIVES_UP (130 * SEC) /* a connect, or bytes that nobody confirms */
#define SEGMENT_MAX (64u << 10)

uint32_t sock_new(enum sock_kind kind)
{
	const uint32_t s = world->sock_free_count ? world->sock_free[--world->sock_free_count]
						  : world->sock_count++;
	const uint16_t proc = world->thread[sim_me].proc;

	if (s == MAX_SOCKS) {
		fprintf(stderr, "sim: too many sockets\n");
		__builtin_trap();
	}
	world->sock[s] = (struct sock){.kind = kind,
				       .proc = proc,
				       .machine = world->proc[proc].machine,
				       .life = world->machine[world->proc[proc].machine].life,
				       .refs = 1,
				       .id = ++world->sock_last_id,
				       .window = SOCK_WINDOW_MIN << chance(6)};
	return s;
}

struct sock *sock_of(uint32_t s)
{
	return &world->sock[s];
}

static void sock_free(uint32_t s)
{
	struct sock *k = &world->sock[s];

	while (k->first) {
		struct segment *next = k->first->next;

		world_free(k->first, sizeof(*next) + k->first->len);
		k->first = next;
	}
	waiters_drop(&k->waiters);
	*k = (struct sock){0};
	world->sock_free[world->sock_free_count++] = s;
}

static bool is_event_of(const struct event *e)
{
	return world->sock[e->a].kind != SOCK_FREE && world->sock[e->a].id == e->b;
}

static uint32_t machine_of(uint32_t ip)
{
	for (uint32_t m = 0; m < world->machine_count; m++)
		if (world->machine[m].ip == ip)
			return m;
	return MAX_MACHINES;
}

/* Does what @k sends to the machine @to arrive? */
static bool is_linked(const struct sock *k, uint32_t to)
{
	return to < MAX_MACHINES && world->machine[k->machine].up && world->machine[to].up &&
	       !world->cut[k->machine][to];
}

static uint64_t latency(const struct sock *k, uint32_t to)
{
	return k->machine == to ? about(5 * US) : about(world->latency[k->machine][to]);
}

static void fail(struct sock *k, int error)
{
	k->error = error;
	k->kind = SOCK_FAILED;
	k->peer = 0;
	waiters_wake(&k->waiters);
}

/* ---- listeners, connections ---- */

int sock_bind(uint32_t s, struct end at)
{
	struct sock *k = &world->sock[s];
	const uint32_t own = world->machine[k->machine].ip;

	if (at.ip && at.ip != own && at.ip >> 24 != 127)
		return -EADDRNOTAVAIL;
	if (!at.port)
		at.port = world->next_port++;
	for (uint32_t i = 1; i < world->sock_count; i++)
		if (world->sock[i].kind == SOCK_LISTENS && world->sock[i].machine == k->machine &&
		    world->sock[i].here.port == at.port && !(world->sock[i].reuse && k->reuse))
			return -EADDRINUSE;
	k->here = at;
	return 0;
}

int sock_listen(uint32_t s)
{
	world->sock[s].kind = SOCK_LISTENS;
	return 0;
}

/* One of those that listen there, by chance, or 0. */
static uint32_t listener_at(uint32_t machine, uint16_t port)
{
	uint32_t found = 0, n = 0;

	for (uint32_t i = 1; i < world->sock_count; i++)
		if (world->sock[i].kind == SOCK_LISTENS && world->sock[i].machine == machine &&
		    world->sock[i].here.port == port && chance(++n) == 0)
			found = i;
	return found;
}

int sock_connect(uint32_t s, struct end to)
{
	struct sock *k = &world->sock[s];

	if (to.ip >> 24 == 127)
		to.ip = world->machine[k->machine].ip;
	k->there = to;
	k->here = (struct end){world->machine[k->machine].ip,
			       k->here.port ? k->here.port : world->next_port++};
	if (world->next_port > 60000)
		world->next_port = 20000;
	if (k->kind == SOCK_UDP)
		return 0;
	k->kind = SOCK_CONNECTS;
	event_add(world->now + latency(k, machine_of(to.ip)), EVENT_CONNECTS, s, k->id);
	event_add(world->now + GIVES_UP, EVENT_GIVES_UP, s, k->id);
	return -EINPROGRESS;
}

/* The request of @s is at its target, or is sent once more later. */
static void arrive_request(uint32_t s)
{
	struct sock *k = &world->sock[s];
	const uint32_t to = machine_of(k->there.ip);
	uint32_t l, other;
	struct sock *o;

	if (k->kind != SOCK_CONNECTS)
		return;
	if (!is_linked(k, to)) {
		event_add(world->now + SEC, EVENT_CONNECTS, s, k->id);
		return;
	}
	l = listener_at(to, k->there.port);
	if (!l) {
		fail(k, ECONNREFUSED);
		return;
	}
	if (world->sock[l].backlog_count == 64) {
		event_add(world->now + SEC, EVENT_CONNECTS, s, k->id);
		return;
	}
	other = sock_new(SOCK_OPEN);
	o = &world->sock[other];
	o->proc = world->sock[l].proc;
	o->machine = (uint16_t)to;
	o->life = world->machine[to].life;
	o->here = (struct end){k->there.ip, k->there.port};
	o->there = k->here;
	o->peer = s;
	k->peer = other;
	k->kind = SOCK_OPEN;
	world->sock[l].backlog[world->sock[l].backlog_count++] = other;
	waiters_wake(&world->sock[l].waiters);
	waiters_wake(&k->waiters);
}

int sock_connected(uint32_t s)
{
	struct sock *k = &world->sock[s];
	const int error = k->error;

	if (k->kind == SOCK_CONNECTS)
		return -EINPROGRESS;
	k->error = 0;
	return k->kind == SOCK_FAILED ? -error : 0;
}

int sock_accept(uint32_t s)
{
	struct sock *k = &world->sock[s];
	uint32_t got;

	if (k->kind != SOCK_LISTENS)
		return -EINVAL;
	if (!k->backlog_count)
		return -EAGAIN;
	got = k->backlog[0];
	memmove(k->backlog, k->backlog + 1, --k->backlog_count * sizeof(k->backlog[0]));
	return (int)got;
}

/* ---- bytes ---- */

ssize_t sock_recv(uint32_t s, void *to, size_t len, bool peek)
{
	struct sock *k = &world->sock[s];
	size_t got = 0;

	for (struct segment *g = k->first; g && got < len && got < k->arrived; g = g->next) {
		size_t n = g->len - g->taken;

		if (n > len - got)
			n = len - got;
		memcpy((uint8_t *)to + got, g->data + g->taken, n);
		got += n;
		if (peek)
			continue;
		g->taken += (uint32_t)n;
	}
	if (got && !peek) {
		k->unread -= (uint32_t)got;
		k->arrived -= (uint32_t)got;
		while (k->first && k->first->taken == k->first->len && !k->first->fin) {
			struct segment *g = k->first;

			k->first = g->next;
			k->last = k->first ? k->last : NULL;
			world_free(g, sizeof(*g) + g->len);
		}
		if (k->peer)
			waiters_wake(&world->sock[k->peer].waiters);
	}
	if (got || !len)
		return (ssize_t)got;
	if (k->kind == SOCK_FAILED) {
		const int error = k->error;

		k->error = 0;
		return -error; /* 0, end of stream, once it is told */
	}
	return k->eof ? 0 : -EAGAIN;
}

static void segment_add(struct sock *from, uint32_t to, const void *data, uint32_t len, bool fin)
{
	struct sock *k = &world->sock[to];
	struct segment *g = (struct segment *)world_alloc(sizeof(*g) + len);
	uint64_t at = world->now + latency(from, k->machine) + len / 4;

	if (at < k->last_at)
		at = k->last_at;
	*g = (struct segment){.at = at, .len = len, .fin = fin};
	if (len)
		memcpy(g->data, data, len);
	k->last_at = at;
	if (k->last)
		k->last->next = g;
	else
		k->first = g;
	k->last = g;
	k->unread += len;
	event_add(at, EVENT_ARRIVES, to, k->id);
}

ssize_t sock_send(uint32_t s, const void *from, size_t len)
{
	struct sock *k = &world->sock[s], *p;
	size_t n = len < SEGMENT_MAX ? len : SEGMENT_MAX;

	if (k->kind == SOCK_FAILED || k->shut) {
		const int error = k->error;

		k->error = 0;
		return error ? -error : -EPIPE;
	}
	if (k->kind != SOCK_OPEN)
		return -ENOTCONN;
	if (!k->peer)
		return -EPIPE;
	p = &world->sock[k->peer];
	if (p->unread >= p->window)
		return -EAGAIN;
	if (n > p->window - p->unread)
		n = p->window - p->unread;
	if (n > 1 && one_in(8))
		n = 1 + chance(n);
	if (n)
		segment_add(k, k->peer, from, (uint32_t)n, false);
	return (ssize_t)n;
}

static void both_lost(uint32_t s, int error)
{
	struct sock *k = &world->sock[s];
	const uint32_t peer = k->peer;

	fail(k, error);
	if (k->orphan)
		sock_free(s);
	if (peer) {
		fail(&world->sock[peer], error);
		if (world->sock[peer].orphan)
			sock_free(peer);
	}
}

/* @s, without a descriptor, has done what it had to. */
static void part(uint32_t s)
{
	const uint32_t peer = world->sock[s].peer;

	sock_free(s);
	if (!peer)
		return;
	world->sock[peer].peer = 0;
	waiters_wake(&world->sock[peer].waiters);
	if (world->sock[peer].orphan)
		sock_free(peer);
}

/* What was sent to @s by now is there, if there is a way. */
static void arrive(uint32_t s)
{
	struct sock *k = &world->sock[s];
	struct sock *from = k->peer ? &world->sock[k->peer] : NULL;
	uint32_t seen = 0;
	struct segment *g;

	if (k->kind != SOCK_OPEN)
		return;
	if (from && !is_linked(from, k->machine))
		return; /* links_changed() tells */
	for (g = k->first; g && g->at <= world->now; g = g->next) {
		seen += g->len - g->taken;
		k->eof |= g->fin;
	}
	k->arrived = seen;
	waiters_wake(&k->waiters);
	if (k->orphan && (seen || k->life != world->machine[k->machine].life))
		both_lost(s, ECONNRESET); /* nobody will read it */
	else if (k->eof && k->orphan)
		part(s);
	else if (k->eof && from && from->orphan)
		part(k->peer);
}

void sock_shutdown(uint32_t s)
{
	struct sock *k = &world->sock[s];

	if (k->kind != SOCK_OPEN || k->shut)
		return;
	k->shut = true;
	if (k->peer)
		segment_add(k, k->peer, NULL, 0, true);
}

void sock_close(uint32_t s)
{
	struct sock *k = &world->sock[s];

	if (--k->refs)
		return;
	if (k->kind == SOCK_LISTENS)
		while (k->backlog_count)
			sock_close(k->backlog[--k->backlog_count]);
	if (k->kind != SOCK_OPEN || !k->peer) {
		sock_free(s);
		return;
	}
	k->orphan = true;
	waiters_drop(&k->waiters);
	if (k->unread) { /* TCP says RST when unread bytes are thrown away */
		event_add(world->now + latency(k, world->sock[k->peer].machine), EVENT_RESET, s,
			  k->id);
		return;
	}
	if (!k->shut)
		sock_shutdown(s);
	else if (k->eof)
		part(s);
}

short sock_ready(uint32_t s)
{
	const struct sock *k = &world->sock[s];

	switch (k->kind) {
	case SOCK_EVENTFD:
		return (short)((k->count ? POLLIN : 0) | POLLOUT);
	case SOCK_LISTENS:
		return k->backlog_count ? POLLIN : 0;
	case SOCK_FAILED:
		return POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP;
	case SOCK_OPEN: {
		const bool room =
			!k->peer || world->sock[k->peer].unread < world->sock[k->peer].window;

		return (short)((k->arrived || k->eof ? POLLIN : 0) | (k->eof ? POLLRDHUP : 0) |
			       (room || k->shut ? POLLOUT : 0) | (k->eof && k->shut ? POLLHUP : 0));
	}
	case SOCK_NEW:
		return POLLOUT | POLLHUP;
	case SOCK_FREE:
	case SOCK_UDP:
	case SOCK_CONNECTS:
		break;
	}
	return 0;
}

/* ---- what happens later ---- */

static bool is_stuck(const struct sock *k)
{
	return k->peer && k->first && k->first->at + GIVES_UP <= world->now && !k->arrived;
}

/* The other end of @s is told that this one is gone, if there is a way. */
static void reset(uint32_t s)
{
	struct sock *k = &world->sock[s];

	if (k->peer && !is_linked(k, world->sock[k->peer].machine)) {
		if (world->machine[k->machine].life == k->life)
			event_add(world->now + SEC, EVENT_RESET, s, k->id);
		return;
	}
	both_lost(s, ECONNRESET);
}

void event_run(const struct event *e)
{
	if (!is_event_of(e))
		return;
	switch (e->kind) {
	case EVENT_CONNECTS:
		arrive_request(e->a);
		break;
	case EVENT_ARRIVES:
		arrive(e->a);
		break;
	case EVENT_RESET:
		reset(e->a);
		break;
	case EVENT_GIVES_UP:
		if (world->sock[e->a].kind == SOCK_CONNECTS)
			fail(&world->sock[e->a], ETIMEDOUT);
		break;
	}
}

void links_changed(void)
{
	for (uint32_t s = 1; s < world->sock_count; s++) {
		struct sock *k = &world->sock[s];

		if (k->kind != SOCK_OPEN || !k->peer)
			continue;
		if (is_stuck(k))
			both_lost(s, ETIMEDOUT);
		else if (k->life != world->machine[k->machine].life &&
			 world->machine[k->machine].up && one_in(2))
			event_add(world->now + about(MS), EVENT_RESET, s, k->id);
		else if (k->first)
			event_add(world->now + about(MS), EVENT_ARRIVES, s, k->id);
	}
}

void proc_sockets_close(uint32_t proc)
{
	for (uint32_t s = 1; s < world->sock_count; s++) {
		struct sock *k = &world->sock[s];

		if (k->kind != SOCK_FREE && k->proc == proc && !k->orphan) {
			k->refs = 1;
			sock_close(s);
		}
	}
}

/* Without a word: peers hear of it when the machine is back, or give up. */
void machine_sockets_lose(uint32_t machine)
{
	for (uint32_t s = 1; s < world->sock_count; s++) {
		struct sock *k = &world->sock[s];

		if (k->kind == SOCK_FREE || k->machine != machine)
			continue;
		if (k->kind != SOCK_OPEN || !k->peer) {
			sock_free(s);
			continue;
		}
		k->orphan = true;
		k->refs = 0;
		waiters_drop(&k->waiters);
	}
}
