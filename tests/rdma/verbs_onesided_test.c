/* SPDX-License-Identifier: Apache-2.0 */
/* On a real device: a dialer READs the acceptor's memory only through a window that was opened to
 * its own connection, as long as that is open, and writes to none of it; on a connection without
 * the feature nothing is read; more READs than the depth wait for each other. */
#include "tests/rdma/verbs_test_fixture.h"

#define LEN (4u * MiB)
#define AT (1u * MiB)
#define STRETCH 65536u
#define MANY 64u

static uint8_t *mem;
static struct verbs_memory *memory;
static struct slot *dst;

static struct side one_sided(bool passive, uint32_t features)
{
	struct pool_opts po = {.count = {600, 200, 16, 20}, .floor_pct = {[POOL_CTRL] = 5}};
	struct verbs_opts vo = {.protocol = &capsule_link,
				.passive = passive,
				.active = !passive,
				.role = CAPSULE_CLIENT,
				.accept_role = CAPSULE_NODE,
				.peer_may_write = true,
				.features = features,
				.accept_features = features,
				.srq_depth = passive ? 256 : 0};

	return side_of(&po, vo);
}

static struct verbs_window *must_get(struct pair *p)
{
	struct verbs_window *w = verbs_window_get(memory, p->s);

	check(w, "a window is free");
	if (!w)
		exit(1);
	return w;
}

static struct xremote open_to(struct pair *p, struct verbs_window *w)
{
	return verbs_window_open(p->s, w, mem + AT, STRETCH, VERBS_PEER_READS);
}

static int pull(struct xconn *by, struct xremote from, uint32_t len)
{
	struct wop w;

	memset(dst->data, 0, STRETCH);
	xconn_pull(by, from, dst, 0, len, wop(&w));
	return UNTIL(w.done) ? w.res : -ETIME;
}

static void reads_what_it_was_given(struct pair *p)
{
	struct verbs_window *w = must_get(p);
	struct wop closed;

	check(verbs_read_depth(p->c) > 0 && verbs_read_depth(p->s) >= verbs_read_depth(p->c),
	      "both sides know of READs, %u at a time", verbs_read_depth(p->c));
	for (unsigned i = 0; i < 3; i++) {
		const struct xremote from = open_to(p, w);

		check(tell(p->s, p->c) && pull(p->c, from, STRETCH) == (int)STRETCH &&
			      !memcmp(dst->data, mem + AT, STRETCH),
		      "the dialer READs through a window");
		verbs_window_close(p->s, w, wop(&closed));
		check(UNTIL(closed.done) && closed.res >= 0, "it is closed");
	}
	verbs_window_put(w);
}

static bool all_done(struct wop *w)
{
	for (unsigned i = 0; i < MANY; i++)
		if (!w[i].done)
			return false;
	return true;
}

static void more_than_the_depth_wait(struct side *client, struct pair *p)
{
	static struct wop w[MANY];
	struct verbs_window *win = must_get(p);
	const struct xremote from = open_to(p, win);
	struct verbs_memory *m = NULL;
	struct err err = ERR_INIT;
	struct wop closed;
	uint8_t *to = aligned_alloc(4096, MANY * 1024);
	bool good = tell(p->s, p->c);

	memset(to, 0, MANY * 1024);
	check(verbs_memory_new(client->v, to, MANY * 1024, &m, &err) == 0,
	      "memory is registered: %s", err.text);
	for (unsigned i = 0; i < MANY; i++)
		good &= verbs_read(
			p->c,
			&(struct verbs_read){.from = {from.addr + i * 1024ull, from.rkey},
					     .to = to + i * 1024ull,
					     .m = m,
					     .len = 1024},
			wop(&w[i]));
	good &= UNTIL(all_done(w));
	for (unsigned i = 0; i < MANY; i++)
		good &= w[i].res == 1024;
	check(good && !memcmp(to, mem + AT, MANY * 1024), "%u READs at once, to registered memory",
	      MANY);
	verbs_memory_free(m);
	free(to);
	verbs_window_close(p->s, win, wop(&closed));
	check(UNTIL(closed.done) && closed.res >= 0, "it is closed");
	verbs_window_put(win);
}

enum trick { CLOSED, REVOKED, OTHERS, WRITES, WHOLE_MR, BEYOND_ALL, NOT_AGREED, TRICKS };
static const char *const trick_text[TRICKS] = {
	"when it is closed",       "when it is revoked", "by another connection", "to write there",
	"by the memory's own key", "beyond the memory",  "without the feature"};

/* What it was asked for before is done. */
static void control_has_turned(struct side *server)
{
	struct verbs_memory *m = NULL;
	struct err err = ERR_INIT;

	check(verbs_memory_lend(server->v, &m, sizeof(m), &m, &err) == 0, "one more: %s", err.text);
	verbs_memory_free(m);
}

static int push(struct xconn *by, struct xremote to)
{
	struct iovec piece = {dst->data, 4096};
	struct wop w;

	xconn_push(by, &piece, 1, to, wop(&w));
	return UNTIL(w.done) ? w.res : -ETIME;
}

static int try(struct side *server, struct pair *p, struct pair *other, struct verbs_window *w,
	       enum trick trick)
{
	struct xremote from = open_to(p, w);
	const struct vconn *s = (const struct vconn *)p->s;
	struct wop closed;
	bool good = tell(p->s, p->c);

	memset(dst->data, 0x33, STRETCH);
	if (trick == CLOSED) {
		verbs_window_close(p->s, w, wop(&closed));
		good &= UNTIL(closed.done) && closed.res >= 0;
	} else if (trick == REVOKED) {
		verbs_window_revoke(w);
		control_has_turned(server);
	} else if (trick == WHOLE_MR) {
		from.rkey = vmemory_lkey(s->dev, 0); /* of soft RoCE and most cards the rkey, too */
	} else if (trick == BEYOND_ALL) {
		from.addr = (uintptr_t)mem + LEN - 1024;
	}
	check(good, "the dialer knows of it");
	if (trick == WRITES)
		return push(p->c, from);
	return pull(trick == OTHERS ? other->c : p->c, from, STRETCH);
}

/* The connection of who tries it ends, and nothing is read, or written. */
static void keeps_out(struct side *client, struct side *server, enum trick trick)
{
	struct pair p = pair_up(client, server), other = pair_up(client, server);
	struct verbs_window *w = must_get(&p);
	const uint8_t before = mem[AT];
	int got;

	if (trick == NOT_AGREED) { /* its queue pair must not even answer; nor may this side post */
		((struct vconn *)p.c)->rd_max = 1;
		check(!verbs_read_depth(p.c) && !verbs_read_depth(p.s), "nothing was agreed on");
	}
	got = try(server, &p, &other, w, trick);
	check(got < 0 && mem[AT] == before, "nobody gets in %s (%d)", trick_text[trick], got);
	for (uint32_t i = 0; i < STRETCH && trick != WRITES; i++)
		if (dst->data[i]) {
			check(false, "byte %u has come %s", i, trick_text[trick]);
			break;
		}
	if (trick != REVOKED)
		verbs_window_revoke(w);
	pair_close(&p, client, server);
	pair_close(&other, client, server);
}

int main(void)
{
	struct side client, server, plain;
	struct err err = ERR_INIT;
	struct pair p;
	int rc = reactor_up();

	if (rc)
		return rc;
	client = one_sided(false, VERBS_ONESIDED);
	plain = one_sided(false, 0);
	server = one_sided(true, VERBS_ONESIDED);
	side_listen(&server, PORT, 0);
	mem = aligned_alloc(4096, LEN);
	for (uint32_t i = 0; i < LEN; i++)
		mem[i] = (uint8_t)(i * 2654435761u >> 24) | 1;
	dst = pool_get(client.pool, SLOT_64K, POOL_CTRL);
	rc = verbs_memory_lend(server.v, mem, LEN, &memory, &err);
	check(rc == 0, "memory is registered for those who dial: %s", err.text);
	if (rc < 0)
		return 1;
	p = pair_up(&client, &server);
	reads_what_it_was_given(&p);
	more_than_the_depth_wait(&client, &p);
	pair_close(&p, &client, &server);
	for (enum trick t = 0; t < NOT_AGREED; t++)
		keeps_out(&client, &server, t);
	slot_put(dst);
	dst = pool_get(plain.pool, SLOT_64K, POOL_CTRL);
	keeps_out(&plain, &server, NOT_AGREED);
	slot_put(dst);
	verbs_memory_free(memory);
	free(mem);
	side_free(&plain, "another client");
	return sides_down(&client, &server);
}
