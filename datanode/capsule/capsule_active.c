/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that we made to other nodes: one for each, shared by all that goes there, streams of
 * pieces and reads alike, as long as the node takes so many. Nodes that have no RDMA are remembered
 * for a while. */
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "datanode/capsule/capsule_internal.h"

struct capsule_dial {                  /* a connection to a node */
	struct capsule_peer_link link; /* first */
	struct rop rop;
	struct list in_caps;
	struct net_addr addr; /* that the node is known by */
	struct rail *rail;    /* the one that it is reached by; NULL: addr */
	struct list users;
	struct xop conn_op;
	uint64_t last_id;
	bool up, told_lost;
};

/* ---- nodes without RDMA ---- */

static bool is_avoided(const struct capsule_port *caps, const struct net_addr *addr)
{
	for (uint32_t i = 0; i < CAPS_AVOID_MAX; i++)
		if (caps->avoid[i].until_ns > reactor_now_ns(caps->core->reactor) &&
		    net_same(&caps->avoid[i].addr, addr))
			return true;
	return false;
}

static void avoid(struct capsule_port *caps, const struct net_addr *addr)
{
	const uint32_t i = caps->avoid_next++ % CAPS_AVOID_MAX;

	caps->avoid[i].addr = *addr;
	caps->avoid[i].until_ns = reactor_now_ns(caps->core->reactor) + CAPS_AVOID_NS;
}

/* ---- users ---- */

void capsule_user_leave(struct capsule_user *u)
{
	if (!u->dial)
		return;
	list_del(&u->in_dial);
	u->dial = NULL;
}

struct capsule_peer_link *capsule_user_link(const struct capsule_user *u)
{
	return u->dial && u->dial->link.xc ? &u->dial->link : NULL;
}

bool capsule_user_is_up(const struct capsule_user *u)
{
	return u->dial && u->dial->up;
}

uint64_t capsule_user_id(struct capsule_user *u)
{
	return ++u->dial->last_id;
}

void capsule_user_hang_up(struct capsule_user *u, int rc)
{
	if (u->dial)
		link_close(&u->dial->link, rc);
}

/* ---- the connection ---- */

static struct rails *rails_of(const struct capsule_dial *d)
{
	return &d->link.caps->rails->rails;
}

static void dial_message(struct capsule_dial *d, const struct capsule *m)
{
	if (m->type == CAPSULE_ERROR) {
		log_warn("op=forward hop=%s: the node ends the connection: %.*s", d->link.peer,
			 (int)m->closed.text.len, (const char *)m->closed.text.p);
		link_close(&d->link, -ECONNRESET);
		return;
	}
	list_for_each (l, &d->users) {
		struct capsule_user *u = container_of(l, struct capsule_user, in_dial);

		if (u->ops->answer(u, m))
			return;
	}
}

static bool dial_step(struct rop *rop)
{
	struct capsule_dial *d = container_of(rop, struct capsule_dial, rop);
	struct slot *payload;
	struct capsule m;

	while (d->up && link_receive(&d->link, &m, &payload)) {
		slot_put(payload);
		dial_message(d, &m);
	}
	if (d->link.rc && !d->told_lost) {
		d->told_lost = true;
		if (d->up && d->link.rc != -ECANCELED)
			rails_failed(rails_of(d), d->rail,
				     reactor_now_ns(d->link.caps->core->reactor));
		list_for_each (l, &d->users) {
			struct capsule_user *u = container_of(l, struct capsule_user, in_dial);

			u->ops->lost(u, d->link.rc);
		}
	}
	if (!d->link.gone)
		return false;
	list_for_each (l, &d->users) {
		struct capsule_user *u = container_of(l, struct capsule_user, in_dial);

		capsule_user_leave(u);
		u->ops->gone(u);
	}
	return true;
}

static void dial_free(struct rop *rop)
{
	struct capsule_dial *d = container_of(rop, struct capsule_dial, rop);

	rails_put(rails_of(d), d->rail);
	list_del(&d->in_caps);
	free(d);
}

/* Unless it has another address: the next connection goes there. */
static void not_up(struct capsule_dial *d, int rc, const char *why)
{
	const uint64_t now = reactor_now_ns(d->link.caps->core->reactor);
	bool others;

	if (rc != -ECANCELED)
		rails_failed(rails_of(d), d->rail, now);
	others = rails_state(rails_of(d), &d->addr, now).good > 0;
	if (others)
		log_info("op=forward hop=%s: no RDMA (%s): another address is next", d->link.peer,
			 why);
	else
		log_info("op=forward hop=%s: no RDMA (%s): by TCP for %llu s", d->link.peer, why,
			 CAPS_AVOID_NS / NS_PER_S);
	if (rc != -ECANCELED && !others)
		avoid(d->link.caps, &d->addr);
	link_close(&d->link, rc);
}

static void on_connected(struct xop *op, int res)
{
	struct capsule_dial *d = container_of(op, struct capsule_dial, conn_op);

	if (res < 0) {
		not_up(d, res, d->link.xc ? verbs_reason(d->link.xc) : err_name(res));
		return;
	}
	if (!rails_up(rails_of(d), d->rail, verbs_peer(d->link.xc))) {
		not_up(d, -EHOSTUNREACH, "another node is there");
		return;
	}
	d->up = true;
	list_for_each (l, &d->users) {
		struct capsule_user *u = container_of(l, struct capsule_user, in_dial);

		u->ops->up(u);
	}
	link_ready(&d->link);
}

static struct capsule_dial *dial_find(struct capsule_port *caps, const struct net_addr *addr)
{
	list_for_each (l, &caps->dials) {
		struct capsule_dial *d = container_of(l, struct capsule_dial, in_caps);

		if (!d->link.rc && !d->link.ending && net_same(&d->addr, addr) &&
		    list_length(&d->users) < CAPS_USERS_MAX)
			return d;
	}
	return NULL;
}

static struct capsule_dial *dial_new(struct capsule_port *caps, const struct net_addr *addr,
				     int *ret_rc)
{
	struct capsule_dial *d;
	struct xconn *xc;

	*ret_rc = -ENOMEM;
	d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->addr = *addr;
	list_init(&d->users);
	rop_init(&d->rop, dial_step, dial_free);
	link_init(&d->link, caps, &d->rop);
	d->rail = rails_get(rails_of(d), addr, reactor_now_ns(caps->core->reactor));
	if (d->rail)
		addr = rails_addr(d->rail);
	net_text(addr, d->link.peer);
	d->conn_op.done = on_connected;
	*ret_rc = verbs_connect(caps->verbs, addr,
				reactor_now_ns(caps->core->reactor) + caps->dial_ns, &d->conn_op,
				&xc);
	if (*ret_rc < 0) {
		rails_failed(rails_of(d), d->rail, reactor_now_ns(caps->core->reactor));
		rails_put(rails_of(d), d->rail);
		free(d);
		return NULL;
	}
	link_attach(&d->link, xc);
	list_add_tail(&caps->dials, &d->in_caps);
	return d;
}

int capsule_user_join(struct capsule_port *caps, const struct dn_target *node,
		      struct capsule_user *u)
{
	struct net_addr addr;
	/* numeric: asks no name server */
	int rc = net_resolve(node->ip, node->xfer_port, &addr, NULL);

	if (rc < 0)
		return rc;
	if (!caps->to_peers || caps->stopping)
		return -EHOSTUNREACH;
	u->dial = dial_find(caps, &addr);
	if (!u->dial && is_avoided(caps, &addr))
		return -EHOSTUNREACH;
	if (!u->dial)
		u->dial = dial_new(caps, &addr, &rc);
	if (u->dial) {
		list_add_tail(&u->dial->users, &u->in_dial);
		return 0;
	}
	if (rc == -EHOSTUNREACH)
		avoid(caps, &addr);
	return rc == -ENOMEM ? rc : -EHOSTUNREACH;
}

void capsule_dials_close(struct capsule_port *caps, bool idle_only)
{
	list_for_each (l, &caps->dials) {
		struct capsule_dial *d = container_of(l, struct capsule_dial, in_caps);

		if (!idle_only || list_empty(&d->users))
			link_close(&d->link, -ECANCELED);
	}
}

void capsule_dials_free(struct capsule_port *caps)
{
	list_for_each (l, &caps->dials) {
		struct capsule_dial *d = container_of(l, struct capsule_dial, in_caps);

		list_del(&d->rop.ready_link);
		(void)dial_step(&d->rop);
		list_del(&d->rop.ready_link);
		dial_free(&d->rop);
	}
}
