/* SPDX-License-Identifier: Apache-2.0 */
/* On a real device: a node that lies to who asked it. It reads and writes what it was not shown, by
 * keys that it has and by keys that it guesses: each is stopped, and another stream does not
 * notice. */
#include "tests/rdma/verbs_test_fixture.h"

#define AT 4096u
#define LEN 8192u

static struct slot *mine, *others; /* the dialer's: of the request, and of another stream */
static struct slot *src, *dst;     /* the node's */

enum way { READS, WRITES };

/* What the node has when it lies. */
enum lie {
	READ_BEFORE,
	READ_BEHIND,
	WRITE_BEFORE,
	WRITE_BEHIND,
	READ_OTHERS,
	WRITE_OTHERS,
	READ_AFTER_ACK,
	WRITE_AFTER_REPLY,
	READ_WHAT_IS_FOR_WRITING,
	WRITE_WHAT_IS_FOR_READING,
	READ_BY_ANOTHER_CONNECTION,
	WRITE_BY_ANOTHER_CONNECTION,
	READ_BY_THE_SLABS_KEY,
	WRITE_BY_THE_SLABS_KEY,
	READ_BY_THE_LAST_REQUESTS_KEY,
	WRITE_BY_THE_NEXT_KEY,
	READ_BY_A_KEY_OF_A_LOST_CONNECTION,
	LIES
};

static const struct {
	const char *text;
	enum way right, does; /* what it may do there, what it does */
	bool beside;          /* of the window's bounds */
} lies[LIES] = {
	[READ_BEFORE] = {"reads a byte before the piece", READS, READS, true},
	[READ_BEHIND] = {"reads a byte behind the piece", READS, READS, true},
	[WRITE_BEFORE] = {"writes a byte before its place", WRITES, WRITES, true},
	[WRITE_BEHIND] = {"writes a byte behind its place", WRITES, WRITES, true},
	[READ_OTHERS] = {"reads another stream's slot", READS, READS, true},
	[WRITE_OTHERS] = {"writes another stream's slot", WRITES, WRITES, true},
	[READ_AFTER_ACK] = {"reads the piece after its ACK", READS, READS, false},
	[WRITE_AFTER_REPLY] = {"writes after its READ_REPLY", WRITES, WRITES, false},
	[READ_WHAT_IS_FOR_WRITING] = {"reads what it may write", WRITES, READS, false},
	[WRITE_WHAT_IS_FOR_READING] = {"writes what it may read", READS, WRITES, false},
	[READ_BY_ANOTHER_CONNECTION] = {"reads by another connection", READS, READS, false},
	[WRITE_BY_ANOTHER_CONNECTION] = {"writes by another connection", WRITES, WRITES, false},
	[READ_BY_THE_SLABS_KEY] = {"reads by the key of the slab", READS, READS, false},
	[WRITE_BY_THE_SLABS_KEY] = {"writes by the key of the slab", WRITES, WRITES, false},
	[READ_BY_THE_LAST_REQUESTS_KEY] = {"reads by the last request's key", READS, READS, false},
	[WRITE_BY_THE_NEXT_KEY] = {"writes by a key that is to come", WRITES, WRITES, false},
	[READ_BY_A_KEY_OF_A_LOST_CONNECTION] = {"reads by a key of a lost connection", READS, READS,
						false},
};

static struct side windows_side(void)
{
	struct pool_opts po = {.count = {64, 16, 2, 4}, .floor_pct = {[POOL_CTRL] = 5}};
	struct verbs_opts vo = {.protocol = &capsule_link,
				.active = true,
				.role = CAPSULE_CLIENT,
				.peer_may_write = true,
				.windows = VERBS_WINDOWS_ON};

	return side_of(&po, vo);
}

static int moves(struct xconn *node, enum way way, struct xremote at, uint32_t len)
{
	struct iovec piece = {src->data, len};
	struct wop w;

	memset(dst->data, 0, dst->size);
	if (way == READS)
		xconn_pull(node, at, dst, 0, len, wop(&w));
	else
		xconn_push(node, &piece, 1, at, wop(&w));
	return UNTIL(w.done) ? w.res : -ETIME;
}

static struct xremote show(struct pair *p, struct verbs_exposure *e, enum way right,
			   struct slot *slot)
{
	struct xremote at = {0};

	*e = (struct verbs_exposure){.slot = slot,
				     .off = AT,
				     .len = LEN,
				     .right =
					     right == READS ? VERBS_PEER_READS : VERBS_PEER_WRITES};
	check(verbs_expose(p->c, e, &at) == 0, "a window is spare");
	return at;
}

static bool covers(struct verbs_exposure *e)
{
	struct slot *s = e->slot;
	const uint32_t refs = s->refs;

	verbs_cover(e, true);
	return UNTIL(s->refs == refs - 1);
}

static bool is_filled(const struct slot *s, uint8_t with, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++)
		if (s->data[i] != with)
			return false;
	return true;
}

/* The good case: exactly what is shown moves. */
static void an_honest_node_gets_what_it_is_shown(struct pair *p)
{
	struct verbs_exposure e;
	struct xremote at;

	memset(mine->data, 0x33, mine->size);
	for (int i = 0; i < 3; i++) {
		at = show(p, &e, READS, mine);
		check(tell(p->c, p->s) && moves(p->s, READS, at, LEN) == (int)LEN &&
			      is_filled(dst, 0x33, 0, LEN) && covers(&e),
		      "a node reads what it may");
		at = show(p, &e, WRITES, mine);
		check(tell(p->c, p->s) && moves(p->s, WRITES, at, LEN) == (int)LEN &&
			      is_filled(mine, 0x33, 0, AT) && is_filled(mine, 0x5a, AT, AT + LEN) &&
			      is_filled(mine, 0x33, AT + LEN, mine->size) && covers(&e),
		      "and writes what it may, and nothing beside it");
		memset(mine->data, 0x33, mine->size);
	}
}

static bool is_soft(const struct xconn *c)
{
	const struct vconn *v = (const struct vconn *)c;

	return !strncmp(ibv_get_device_name(v->dev->ctx->device), "rxe", 3);
}

/* Where the lie aims. */
static struct xremote aim(struct pair *p, struct verbs_exposure *e, enum lie lie, struct xremote at)
{
	switch (lie) {
	case READ_BEFORE:
	case WRITE_BEFORE:
		at.addr -= 1;
		break;
	case READ_BEHIND:
	case WRITE_BEHIND:
		at.addr += 1;
		break;
	case READ_OTHERS:
	case WRITE_OTHERS:
		at.addr = (uintptr_t)others->data + AT;
		break;
	case READ_AFTER_ACK:
	case WRITE_AFTER_REPLY:
		check(covers(e), "it is covered");
		break;
	case READ_BY_THE_SLABS_KEY:
	case WRITE_BY_THE_SLABS_KEY:
		at.rkey = verbs_remote(p->c, mine, 0).rkey;
		break;
	case READ_BY_THE_LAST_REQUESTS_KEY:
		check(covers(e), "it is covered");
		(void)show(p, e, READS, mine); /* by the same window */
		check(tell(p->c, p->s), "and opened anew");
		break;
	case WRITE_BY_THE_NEXT_KEY:
		at.rkey = ibv_inc_rkey(at.rkey);
		break;
	case READ_WHAT_IS_FOR_WRITING:
	case WRITE_WHAT_IS_FOR_READING:
	case READ_BY_ANOTHER_CONNECTION:
	case WRITE_BY_ANOTHER_CONNECTION:
	case READ_BY_A_KEY_OF_A_LOST_CONNECTION:
	case LIES:
		break;
	}
	return at;
}

/* Another stream, on a connection of its own, moves its bytes beside all that. */
static bool other_serves(struct pair *other)
{
	struct verbs_exposure e;
	const struct xremote at = show(other, &e, READS, others);

	return tell(other->c, other->s) && moves(other->s, READS, at, LEN) == (int)LEN &&
	       is_filled(dst, 0x44, 0, LEN) && covers(&e);
}

static void is_stopped(struct side *client, struct side *node, struct pair *other, enum lie lie)
{
	struct pair p = pair_up(client, node), second = pair_up(client, node);
	struct verbs_exposure e;
	struct xremote at;
	struct xconn *by = p.s;
	bool good;
	int rc;

	memset(mine->data, 0x33, mine->size);
	memset(others->data, 0x44, others->size);
	at = show(&p, &e, lies[lie].right, mine);
	good = tell(p.c, p.s);
	at = aim(&p, &e, lie, at);
	if (lie == READ_BY_ANOTHER_CONNECTION || lie == WRITE_BY_ANOTHER_CONNECTION ||
	    lie == READ_BY_A_KEY_OF_A_LOST_CONNECTION)
		by = second.s;
	if (lie == READ_BY_A_KEY_OF_A_LOST_CONNECTION) {
		pair_close(&p, client, node);
		good &= !e.window && mine->refs == 1;
	}
	rc = moves(by, lies[lie].does, at, LEN);
	if (rc == (int)LEN && lies[lie].beside && is_soft(second.c)) {
		printf("SKIP: a node that %s: soft RoCE does not look\n", lies[lie].text);
	} else {
		good &= rc < 0 && is_filled(dst, 0, 0, LEN);
		turn_for_ms(20);
		/* within its bounds it may have written before it came to the end */
		good &= is_filled(mine, 0x33, 0, AT) &&
			is_filled(mine, 0x33, AT + LEN, mine->size) &&
			is_filled(others, 0x44, 0, others->size);
		if (lie != WRITE_BEHIND)
			good &= is_filled(mine, 0x33, AT, AT + LEN);
		memset(others->data, 0x44, others->size);
		good &= other_serves(other);
		check(good, "a node that %s is stopped, and nobody else notices (%d)",
		      lies[lie].text, rc);
	}
	if (lie != READ_BY_A_KEY_OF_A_LOST_CONNECTION)
		pair_close(&p, client, node);
	pair_close(&second, client, node);
	check(mine->refs == 1 && !e.window, "its slot is back with the queue pair");
}

/* However many connections were lost with windows open on them. */
static void windows_are_all_there(struct side *client, struct pair *p)
{
	struct vmemory_on *on = ((struct vconn *)p->c)->dev->slots;

	check(UNTIL((vwindows_take_renewed(on), on->spare_count == atomic_load(&on->made))),
	      "all windows are there again (%u of %u)", on->spare_count, atomic_load(&on->made));
	(void)client;
}

int main(void)
{
	struct side client, node;
	struct pair other;
	int rc = reactor_up();

	if (rc)
		return rc;
	client = windows_side();
	node = side_new(true, 256);
	side_listen(&node, PORT, 0);
	mine = pool_get(client.pool, SLOT_64K, POOL_CTRL);
	others = pool_get(client.pool, SLOT_64K, POOL_CTRL);
	src = pool_get(node.pool, SLOT_64K, POOL_CTRL);
	dst = pool_get(node.pool, SLOT_64K, POOL_CTRL);
	memset(src->data, 0x5a, src->size);
	memset(others->data, 0x44, others->size);
	other = pair_up(&client, &node);
	an_honest_node_gets_what_it_is_shown(&other);
	for (enum lie l = 0; l < LIES; l++)
		is_stopped(&client, &node, &other, l);
	windows_are_all_there(&client, &other);
	pair_close(&other, &client, &node);
	slot_put(mine);
	slot_put(others);
	slot_put(src);
	slot_put(dst);
	return sides_down(&client, &node);
}
