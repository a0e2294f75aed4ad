/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of one RDMA connection, of either role: capsules are decoded, encoded, and the
 * connection is ended when the peer breaks the protocol. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "datanode/capsule/capsule_internal.h"

struct sending { /* a capsule until the transport has taken it */
	struct xop op;
	struct capsule_peer_link *of; /* in whose answers it counts; NULL: it is none */
	uint8_t buf[];
};

/* The last word about a request. Of one that is refused nothing else is known any more. */
static bool is_answer(const struct capsule *m)
{
	return m->type == CAPSULE_VIEW_REPLY || m->type == CAPSULE_READ_REPLY ||
	       m->type == CAPSULE_CLOSED ||
	       (m->type == CAPSULE_OPEN_REPLY && m->open_reply.status != DT_SUCCESS);
}

static void on_gone(struct xconn *xc)
{
	struct capsule_peer_link *l = xc->user;

	l->gone = true;
	link_ready(l);
}

static void on_received(struct xop *op, int res)
{
	struct capsule_peer_link *l = container_of(op, struct capsule_peer_link, recv_op);

	l->receiving = false;
	if (res <= 0)
		link_close(l, res < 0 ? res : -ECONNRESET);
	else
		l->got = (uint32_t)res;
	link_ready(l);
}

static void on_sent(struct xop *op, int res)
{
	struct sending *s = container_of(op, struct sending, op);

	(void)res; /* a lost connection is noticed by the receive */
	if (s->of)
		s->of->answers--;
	free(s);
}

static void on_linger(struct rtimer *t)
{
	link_close(container_of(t, struct capsule_peer_link, linger), -EPROTO);
}

void link_init(struct capsule_peer_link *l, struct capsule_port *caps, struct rop *rop)
{
	l->caps = caps;
	l->rop = rop;
	l->recv_op.done = on_received;
	l->linger.fire = on_linger;
}

void link_attach(struct capsule_peer_link *l, struct xconn *xc)
{
	l->xc = xc;
	xc->user = l;
	xc->gone = on_gone;
	net_text(&xc->peer, l->peer);
}

void link_extend(struct capsule_peer_link *l)
{
	l->xc->send_deadline_ns = reactor_now_ns(l->caps->core->reactor) + CAPS_XFER_NS;
}

int link_send(struct capsule_peer_link *l, const struct capsule *m)
{
	struct sending *s;
	struct iovec iov;
	ssize_t len;

	if (!l->xc || l->ending)
		return -ECONNRESET;
	s = malloc(sizeof(*s) + l->xc->max_message);
	if (!s)
		return -ENOMEM;
	len = capsule_encode(m, l->xc->max_message, s->buf);
	if (len < 0) {
		log_warn("op=capsule peer=%s: %s cannot be sent: %s", l->peer,
			 capsule_type_name(m->type), err_name((int)len));
		free(s);
		return (int)len;
	}
	s->op = (struct xop){.done = on_sent};
	s->of = is_answer(m) ? l : NULL;
	l->answers += is_answer(m);
	iov = (struct iovec){s->buf, (size_t)len};
	link_extend(l);
	xconn_send(l->xc, &iov, 1, &s->op);
	return 0;
}

bool link_receive(struct capsule_peer_link *l, struct capsule *ret, struct slot **ret_payload)
{
	uint32_t payload_len, len;
	struct slot *payload;
	int rc;

	if (l->xc && !l->got && !l->receiving && !l->ending) {
		l->receiving = true; /* may be done before the call returns */
		xconn_recv(l->xc, l->in, sizeof(l->in), &l->recv_op);
	}
	if (!l->xc || !l->got)
		return false;
	len = l->got;
	l->got = 0;
	payload = verbs_take_payload(l->xc, &payload_len);
	rc = capsule_decode(l->in, len, payload ? payload->data : NULL, payload_len, ret);
	if (rc < 0) {
		slot_put(payload);
		link_refuse(l, rc == -EPROTONOSUPPORT ? "unknown version or type"
						      : "malformed capsule");
		return false;
	}
	*ret_payload = payload;
	return true;
}

void link_close(struct capsule_peer_link *l, int rc)
{
	struct xconn *xc = l->xc;

	if (!l->rc)
		l->rc = rc;
	if (l->given_up) /* what comes back closes again */
		return;
	reactor_timer_clear(l->caps->core->reactor, &l->linger);
	if (xc && l->closing) {
		l->given_up = true;
		xconn_give_up(xc); /* a window is not taken from one that is alive */
		l->closing(l);
		l->given_up = false;
	}
	l->xc = NULL;
	if (xc)
		xconn_close(xc);
	link_ready(l);
}

void link_refuse(struct capsule_peer_link *l, const char *why)
{
	const struct capsule m = {
		.type = CAPSULE_ERROR,
		.closed = {.status = DT_ERROR_INVALID, .text = capsule_text(why)}};

	log_warn("op=capsule peer=%s: %s", l->peer, why);
	if (link_send(l, &m) < 0) {
		link_close(l, -EPROTO);
		return;
	}
	l->ending = true;
	reactor_timer_set(l->caps->core->reactor, &l->linger,
			  reactor_now_ns(l->caps->core->reactor) + CAPS_LINGER_NS);
}
