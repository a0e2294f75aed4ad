/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/dtp/dtp_ask.h"

#include <stdio.h>
#include <stdlib.h>

#include "datanode/dtp/dtp_internal.h"

enum ask_state {
	ASK_CONNECT_WAIT, /* leaves on connect */
	ASK_SEND_WAIT,    /* leaves when the op is sent */
	ASK_ANSWER,       /* needs the whole answer */
	ASK_CLOSING,      /* waits for what is in flight */
	ASK_DONE,
};

struct ask {
	struct rop rop;
	struct engine_core *core;
	struct list core_link;
	struct xconn *xc;
	enum ask_state state;
	char peer[NET_TEXT_MAX];
	uint8_t *op; /* owned */
	size_t op_len;
	struct dtp_buf in;
	struct xop conn_op, send_op, recv_op;
	bool connecting, sending, receiving;
	int rc;
	struct err err;
	Hd__BlockOpResponseProto *answer; /* owned */
	void (*done)(void *arg, int rc, const Hd__BlockOpResponseProto *answer,
		     const struct err *err);
	void *arg;
};

static void ask_fail(struct ask *a, int rc, const char *what)
{
	if (!a->rc)
		a->rc = err_set(&a->err, rc, "%s: %s: %s", a->peer, what, err_name(rc));
}

static void on_connect(struct xop *op, int res)
{
	struct ask *a = container_of(op, struct ask, conn_op);

	a->connecting = false;
	if (res < 0)
		ask_fail(a, res, "connect");
	reactor_ready(a->core->reactor, &a->rop);
}

static void on_sent(struct xop *op, int res)
{
	struct ask *a = container_of(op, struct ask, send_op);

	a->sending = false;
	if (res < 0)
		ask_fail(a, res, "send");
	reactor_ready(a->core->reactor, &a->rop);
}

static void on_recv(struct xop *op, int res)
{
	struct ask *a = container_of(op, struct ask, recv_op);

	a->receiving = false;
	if (res <= 0)
		ask_fail(a, res ? res : -ECONNRESET, "receive");
	else
		a->in.end += (uint32_t)res;
	reactor_ready(a->core->reactor, &a->rop);
}

static void do_send(struct ask *a)
{
	const struct iovec iov = {.iov_base = a->op, .iov_len = a->op_len};

	a->state = ASK_SEND_WAIT;
	a->sending = true;
	a->xc->send_deadline_ns = reactor_now_ns(a->core->reactor) + a->core->waits.write_ns;
	xconn_send(a->xc, &iov, 1, &a->send_op);
}

static void do_answer(struct ask *a)
{
	const uint32_t have = dtp_buf_len(&a->in);
	uint32_t prefix;
	const ssize_t total = dt_delim_need(dtp_buf_at(&a->in), have, ASK_ANSWER_MAX - 16, &prefix);
	int rc;

	if (total < 0) {
		ask_fail(a, (int)total, "the answer");
		return;
	}
	if (prefix && (size_t)total <= have) {
		rc = pb_unpack(&hd__block_op_response_proto__descriptor,
			       dtp_buf_at(&a->in) + prefix, (size_t)total - prefix, &a->answer);
		if (rc < 0)
			ask_fail(a, rc, "the answer");
		a->state = ASK_CLOSING;
		return;
	}
	if (a->receiving)
		return;
	rc = dtp_buf_reserve(&a->in, (uint32_t)total);
	if (rc < 0) {
		ask_fail(a, rc, "the answer");
		return;
	}
	a->receiving = true;
	a->xc->recv_deadline_ns = reactor_now_ns(a->core->reactor) + a->core->waits.read_ns;
	xconn_recv(a->xc, a->in.data + a->in.end, (uint32_t)total - have, &a->recv_op);
}

static void do_closing(struct ask *a)
{
	if (a->xc) {
		xconn_close(a->xc);
		a->xc = NULL;
	}
	if (!a->connecting && !a->sending && !a->receiving)
		a->state = ASK_DONE;
}

static bool ask_step(struct rop *rop)
{
	struct ask *a = container_of(rop, struct ask, rop);
	enum ask_state before;

	do {
		before = a->state;
		if (a->rc && a->state < ASK_CLOSING)
			a->state = ASK_CLOSING;
		switch (a->state) {
		case ASK_CONNECT_WAIT:
			if (!a->connecting)
				do_send(a);
			break;
		case ASK_SEND_WAIT:
			if (!a->sending)
				a->state = ASK_ANSWER;
			break;
		case ASK_ANSWER:
			do_answer(a);
			break;
		case ASK_CLOSING:
			do_closing(a);
			break;
		case ASK_DONE:
			break;
		}
	} while (a->state != before || (a->rc && a->state < ASK_CLOSING));
	return a->state == ASK_DONE;
}

static void ask_destroy(struct ask *a)
{
	pb_free(a->answer);
	free(a->in.data);
	free(a->op);
	free(a);
}

static void ask_free(struct rop *rop)
{
	struct ask *a = container_of(rop, struct ask, rop);

	list_del(&a->core_link);
	a->core->op_count--;
	a->done(a->arg, a->rc, a->answer, &a->err);
	ask_destroy(a);
}

int dtp_ask(struct engine_core *core, const struct dn_target *to, uint8_t *op, size_t op_len,
	    void (*done)(void *arg, int rc, const Hd__BlockOpResponseProto *answer,
			 const struct err *err),
	    void *arg, struct ask **ret)
{
	struct ask *a = core->stopping ? NULL : calloc(1, sizeof(*a));
	struct net_addr addr;
	/* numeric: asks no name server */
	int rc = a ? net_resolve(to->ip, to->xfer_port, &addr, NULL) : -ENOMEM;

	if (rc < 0) {
		free(op);
		free(a);
		return rc;
	}
	a->core = core;
	a->op = op;
	a->op_len = op_len;
	a->done = done;
	a->arg = arg;
	snprintf(a->peer, sizeof(a->peer), "%s:%u", to->ip, to->xfer_port);
	a->conn_op.done = on_connect;
	a->send_op.done = on_sent;
	a->recv_op.done = on_recv;
	rop_init(&a->rop, ask_step, ask_free);
	a->connecting = true;
	rc = tcp_ops.connect(core->reactor, &addr,
			     reactor_now_ns(core->reactor) + core->waits.read_ns, NULL, 0,
			     &a->conn_op, &a->xc);
	if (rc < 0) {
		ask_destroy(a);
		return rc;
	}
	list_add_tail(&core->ops, &a->core_link);
	core->op_count++;
	*ret = a;
	return 0;
}

void dtp_ask_cancel(struct ask *a)
{
	ask_fail(a, -ECANCELED, "given up");
	reactor_ready(a->core->reactor, &a->rop);
}
