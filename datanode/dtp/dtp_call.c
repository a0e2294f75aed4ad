/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/dtp/dtp_call.h"

#include <stdio.h>
#include <stdlib.h>

static void call_fail(struct dtp_call *c, int rc, const char *what)
{
	if (!c->rc)
		c->rc = err_set(&c->err, rc, "%s: %s: %s", c->peer, what, err_name(rc));
	reactor_ready(c->core->reactor, &c->rop);
}

static uint64_t call_in_ns(const struct dtp_call *c, uint64_t ns)
{
	return reactor_now_ns(c->core->reactor) + ns;
}

/* What was in flight has ended. */
static void on_event(struct xop *xop, int res)
{
	static const char *const what[] = {"connect", "send", "receive"};
	struct dtp_call *c = container_of(xop, struct dtp_call, xop);

	c->busy = false;
	if (c->state == DTP_CALL_WAIT_ANSWER && res == 0)
		res = -ECONNRESET;
	if (res < 0)
		call_fail(c, res, what[c->state]);
	else if (c->state == DTP_CALL_WAIT_SENT)
		c->sent_ns = call_in_ns(c, 0);
	else if (c->state == DTP_CALL_WAIT_ANSWER)
		c->in.end += (uint32_t)res;
	reactor_ready(c->core->reactor, &c->rop);
}

static void do_send(struct dtp_call *c)
{
	const struct iovec iov = {.iov_base = c->op, .iov_len = c->op_len};

	c->state = DTP_CALL_WAIT_SENT;
	c->busy = true;
	c->xc->send_deadline_ns = call_in_ns(c, c->core->waits.write_ns);
	xconn_send(c->xc, &iov, 1, &c->xop);
}

/* The answer, or a receive of no more than is known to be missing: payload may follow. */
static void do_answer(struct dtp_call *c)
{
	const uint32_t have = dtp_buf_len(&c->in);
	uint32_t prefix;
	const ssize_t total = dt_delim_need(dtp_buf_at(&c->in), have, DTP_ANSWER_MAX, &prefix);
	int rc = total < 0 ? (int)total : 0;

	c->state = DTP_CALL_WAIT_ANSWER;
	if (rc == 0 && prefix && (size_t)total <= have) {
		rc = pb_unpack(&hd__block_op_response_proto__descriptor,
			       dtp_buf_at(&c->in) + prefix, (size_t)total - prefix, &c->answer);
		c->state = DTP_CALL_OVER;
	} else if (rc == 0) {
		rc = dtp_buf_reserve(&c->in, (uint32_t)total);
		c->busy = rc == 0;
	}
	if (rc < 0) {
		call_fail(c, rc, "the answer");
		return;
	}
	if (!c->busy)
		return;
	c->xc->recv_deadline_ns =
		c->answer_by_ns ? c->answer_by_ns
				: dtp_buf_wait_until(&c->in, call_in_ns(c, c->core->waits.read_ns));
	xconn_recv(c->xc, c->in.data + c->in.end, (uint32_t)total - have, &c->xop);
}

static bool call_step(struct rop *rop)
{
	struct dtp_call *c = container_of(rop, struct dtp_call, rop);

	if (!c->rc && !c->busy) {
		switch (c->state) {
		case DTP_CALL_WAIT_CONNECT:
			do_send(c);
			break;
		case DTP_CALL_WAIT_SENT:
			if (c->no_answer)
				c->state = DTP_CALL_OVER;
			else
				do_answer(c);
			break;
		case DTP_CALL_WAIT_ANSWER:
			do_answer(c);
			break;
		case DTP_CALL_OVER:
			break;
		}
	}
	if (c->rc && c->xc) {
		xconn_close(c->xc);
		c->xc = NULL;
	}
	return !c->busy && (c->rc || c->state == DTP_CALL_OVER);
}

static void call_over(struct rop *rop)
{
	struct dtp_call *c = container_of(rop, struct dtp_call, rop);
	Hd__BlockOpResponseProto *answer = c->answer;

	c->core->op_count--;
	free(c->in.data);
	free(c->op);
	c->done(c, c->rc ? NULL : answer);
	pb_free(answer);
}

int dtp_call_start(struct dtp_call *c, struct engine_core *core, const struct dtp_call_params *p,
		   void (*done)(struct dtp_call *c, const Hd__BlockOpResponseProto *answer))
{
	struct net_addr addr;
	int rc;

	*c = (struct dtp_call){.core = core,
			       .op = p->op,
			       .op_len = p->op_len,
			       .answer_by_ns = p->answer_by_ns,
			       .no_answer = p->no_answer,
			       .xop.done = on_event,
			       .busy = true,
			       .done = done};
	(void)snprintf(c->peer, sizeof(c->peer), "%s:%u", p->to->ip, p->to->xfer_port);
	rop_init(&c->rop, call_step, call_over);
	/* numeric: asks no name server */
	rc = net_resolve(p->to->ip, p->to->xfer_port, &addr, &c->err);
	if (rc == 0)
		rc = tcp_ops.connect(core->reactor, &addr, call_in_ns(c, p->connect_ns), NULL, 0,
				     &c->xop, &c->xc);
	if (rc < 0) {
		free(c->op);
		c->op = NULL;
		return rc;
	}
	core->op_count++;
	return 0;
}

void dtp_call_cancel(struct dtp_call *c)
{
	call_fail(c, -ECANCELED, "given up");
}
