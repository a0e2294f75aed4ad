/* SPDX-License-Identifier: Apache-2.0 */
/* How two sides agree on READs by the dialer; connection manager and device are played. What must
 * hold: only if both have said so, and the acceptor's device has windows, does a queue pair
 * answer READs, and no more at a time than were agreed on; whoever does not know of them is dialled
 * again without. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/transport/verbs_internal.h"

/* ---- the connection manager, and the device ---- */

static struct {
	struct rdma_cm_event event;
	bool there;
	struct rdma_conn_param accepted, dialled;
	unsigned accepts, rejects, dials;
	int access; /* of the queue pair, as it was set last */
} cm;
static struct ibv_qp qp;
static struct verbs_hello said, told; /* by this side, and by the other one */
static enum verbs_reject why;

int __wrap_rdma_get_cm_event(struct rdma_event_channel *ch, struct rdma_cm_event **ret);
int __wrap_rdma_ack_cm_event(struct rdma_cm_event *ev);
int __wrap_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *a);
void __wrap_rdma_destroy_qp(struct rdma_cm_id *id);
int __wrap_rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *p);
int __wrap_rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *p);
int __wrap_rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len);
int __wrap_rdma_destroy_id(struct rdma_cm_id *id);
int __wrap_rdma_set_option(struct rdma_cm_id *id, int level, int name, void *v, size_t len);
int __wrap_ibv_modify_qp(struct ibv_qp *q, struct ibv_qp_attr *attr, int mask);
struct ibv_mr *__wrap_ibv_reg_mr(struct ibv_pd *pd, void *p, size_t len, int access);
int __wrap_ibv_dereg_mr(struct ibv_mr *mr);

int __wrap_rdma_get_cm_event(struct rdma_event_channel *ch, struct rdma_cm_event **ret)
{
	const bool there = cm.there;

	(void)ch;
	*ret = &cm.event;
	cm.there = false;
	return there ? 0 : -1;
}

int __wrap_rdma_ack_cm_event(struct rdma_cm_event *ev)
{
	(void)ev;
	return 0;
}

int __wrap_rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	(void)pd, (void)a;
	id->qp = &qp;
	return 0;
}

void __wrap_rdma_destroy_qp(struct rdma_cm_id *id)
{
	id->qp = NULL;
}

int __wrap_rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	(void)id;
	cm.accepted = *p;
	cm.accepts++;
	return 0;
}

int __wrap_rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	(void)id;
	cm.dialled = *p;
	cm.dials++;
	return 0;
}

int __wrap_rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	(void)id, (void)data, (void)len;
	cm.rejects++;
	return 0;
}

int __wrap_rdma_destroy_id(struct rdma_cm_id *id)
{
	(void)id;
	return 0;
}

int __wrap_rdma_set_option(struct rdma_cm_id *id, int level, int name, void *v, size_t len)
{
	(void)id, (void)level, (void)name, (void)v, (void)len;
	return 0;
}

int __wrap_ibv_modify_qp(struct ibv_qp *q, struct ibv_qp_attr *attr, int mask)
{
	(void)q;
	if (mask & IBV_QP_ACCESS_FLAGS)
		cm.access = (int)attr->qp_access_flags;
	return 0;
}

struct ibv_mr *__wrap_ibv_reg_mr(struct ibv_pd *pd, void *p, size_t len, int access)
{
	static struct ibv_mr mr;

	(void)pd, (void)p, (void)len, (void)access;
	return &mr;
}

int __wrap_ibv_dereg_mr(struct ibv_mr *mr)
{
	(void)mr;
	return 0;
}

static int post_recv(struct ibv_qp *q, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)q, (void)wr, (void)bad;
	return 0;
}

/* ---- the protocol ---- */

static size_t hello_encode(const struct verbs_hello *h, uint8_t out[VERBS_PRIVATE_MAX])
{
	said = *h;
	memset(out, 0, 4);
	return 4;
}

static int hello_decode(const void *buf, size_t len, struct verbs_hello *ret)
{
	(void)buf, (void)len;
	*ret = told;
	return 0;
}

static size_t reject_encode(enum verbs_reject w, uint8_t out[VERBS_PRIVATE_MAX])
{
	why = w;
	memset(out, 0, 4);
	return 4;
}

static const char *reject_text(const void *buf, size_t len)
{
	(void)buf;
	return len ? "what is that?" : "";
}

static bool reject_is_malformed(const void *buf, size_t len)
{
	return len && *(const uint8_t *)buf == 7;
}

static const struct verbs_protocol protocol = {.hello_encode = hello_encode,
					       .hello_decode = hello_decode,
					       .reject_encode = reject_encode,
					       .reject_text = reject_text,
					       .reject_is_malformed = reject_is_malformed};

/* ---- one side ---- */

struct side {
	struct verbs_control control;
	struct verbs v;
	struct vcard card;
	struct vdev d;
	struct ibv_context ctx;
	struct ibv_device device;
	struct ibv_cq cq;
	struct ibv_srq srq;
	struct rdma_cm_id id, watch;
};

static int up(void **state)
{
	struct side *s = calloc(1, sizeof(*s));

	memset(&cm, 0, sizeof(cm));
	s->control.wake = -1;
	pthread_mutex_init(&s->control.lock, NULL);
	list_init(&s->control.cards);
	list_init(&s->control.verbs);
	list_init(&s->control.todo);
	list_init(&s->v.mail);
	s->control.protocol = &protocol;
	s->v.control = &s->control;
	s->v.poller.fd = -1;
	s->v.tuning = verbs_tuning_default;
	s->v.opts = (struct verbs_opts){.protocol = &protocol,
					.features = VERBS_ONESIDED,
					.accept_features = VERBS_ONESIDED};
	s->v.listening = true;
	s->ctx.device = &s->device;
	s->ctx.ops.post_recv = post_recv;
	s->card.ctx = s->d.ctx = &s->ctx;
	s->card.watch_id = &s->watch;
	s->d.v = &s->v;
	s->cq.cqe = 1000;
	s->d.cq = &s->cq;
	s->d.cqe_left = 1000;
	s->d.srq = &s->srq;
	s->d.srq_left = 100;
	s->d.attr = (struct ibv_device_attr){.max_qp_wr = 64,
					     .max_sge = 2,
					     .max_qp_rd_atom = 8,
					     .max_qp_init_rd_atom = 12,
					     .device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B};
	list_init(&s->card.devs);
	list_add_tail(&s->card.devs, &s->d.card_link);
	list_add_tail(&s->control.cards, &s->card.link);
	list_add_tail(&s->control.verbs, &s->v.control_link);
	qp.context = &s->ctx;
	s->id.verbs = &s->ctx;
	((struct sockaddr *)rdma_get_local_addr(&s->id))->sa_family = AF_INET;
	((struct sockaddr *)rdma_get_peer_addr(&s->id))->sa_family = AF_INET;
	told = (struct verbs_hello){.credits = 4, .read_depth = 16, .features = VERBS_ONESIDED};
	*state = s;
	return 0;
}

static int down(void **state)
{
	struct side *s = *state;

	pthread_mutex_destroy(&s->control.lock);
	free(s);
	return 0;
}

static void happens(struct side *s, enum rdma_cm_event_type type, struct rdma_conn_param p)
{
	cm.event = (struct rdma_cm_event){.id = &s->id, .event = type, .param.conn = p};
	cm.there = true;
	cm_events(&s->control);
}

static void end(struct vconn *c)
{
	if (c->mail)
		list_del(&c->mail_link);
	vconn_rx_free(c);
	free(c->rx);
	free(c);
}

/* ---- the acceptor ---- */

/* A request of one that would have so many READs under way. The connection, or NULL. */
static struct vconn *requested(struct side *s, uint8_t reads)
{
	struct vconn *c;

	happens(s, RDMA_CM_EVENT_CONNECT_REQUEST,
		(struct rdma_conn_param){.initiator_depth = 16, .responder_resources = reads});
	if (list_empty(&s->v.mail))
		return NULL;
	c = container_of(s->v.mail.next, struct vconn, mail_link);
	cm_do(c, DO_ACCEPT);
	assert_int_equal(cm.accepts, 1);
	return c;
}

static bool answers_reads(struct side *s, uint8_t reads, unsigned expected)
{
	struct vconn *c = requested(s, reads);
	const bool answers = cm.access & IBV_ACCESS_REMOTE_READ;

	assert_non_null(c);
	assert_int_equal(cm.access & IBV_ACCESS_REMOTE_WRITE, 0);
	assert_int_equal(cm.accepted.responder_resources, expected);
	assert_int_equal(said.features, expected ? VERBS_ONESIDED : 0);
	assert_int_equal(verbs_read_depth(&c->x), expected);
	end(c);
	return answers;
}

static void who_asks_for_reads_gets_as_many_as_the_device_answers(void **state)
{
	assert_true(answers_reads(*state, 16, 8));
}

static void who_asks_for_fewer_gets_those(void **state)
{
	assert_true(answers_reads(*state, 3, 3));
}

static void who_does_not_ask_gets_none(void **state)
{
	told.features = 0;
	assert_false(answers_reads(*state, 0, 0));
}

static void who_asks_and_posts_none_gets_none(void **state)
{
	assert_false(answers_reads(*state, 0, 0));
}

static void without_windows_there_are_none(void **state)
{
	struct side *s = *state;

	s->d.attr.device_cap_flags = 0;
	assert_false(answers_reads(s, 16, 0));
}

static void a_node_that_does_not_want_to_answers_none(void **state)
{
	struct side *s = *state;

	s->v.opts.accept_features = 0;
	assert_false(answers_reads(s, 16, 0));
}

static void a_node_that_asks_for_none_itself_answers_them(void **state)
{
	struct side *s = *state;

	s->v.opts.features = 0;
	assert_true(answers_reads(s, 16, 8));
}

static void who_would_read_and_does_not_say_so_is_refused(void **state)
{
	told.features = 0;
	assert_null(requested(*state, 1));
	assert_int_equal(cm.rejects, 1);
	assert_int_equal(why, VERBS_MALFORMED);
}

/* ---- the dialer ---- */

static struct vconn *dials(struct side *s)
{
	struct vconn *c = vconn_alloc(&s->v, true);

	s->id.context = c;
	s->id.qp = NULL;
	c->id = &s->id;
	c->cm_state = CM_ROUTE;
	assert_int_equal(net_resolve("10.9.0.1", 9866, &c->x.peer, NULL), 0);
	happens(s, RDMA_CM_EVENT_ROUTE_RESOLVED, (struct rdma_conn_param){0});
	assert_int_equal(c->mail, 0);
	assert_int_equal(c->cm_state, CM_ANSWER);
	return c;
}

static uint32_t depth_when(struct side *s, uint32_t features, uint8_t answers)
{
	struct vconn *c = dials(s);
	uint32_t depth;

	told.features = features;
	happens(s, RDMA_CM_EVENT_ESTABLISHED, (struct rdma_conn_param){.initiator_depth = answers});
	assert_int_equal(c->mail, MAIL_UP);
	depth = verbs_read_depth(&c->x);
	assert_int_equal(c->rd_max, depth);
	end(c);
	return depth;
}

static void a_dialer_posts_as_many_as_were_agreed_on(void **state)
{
	struct side *s = *state;

	assert_int_equal(depth_when(s, VERBS_ONESIDED, 5), 5);
	assert_int_equal(cm.dialled.initiator_depth, 12);
	assert_int_equal(said.features, VERBS_ONESIDED);
	assert_int_equal(depth_when(s, VERBS_ONESIDED, 200), 12);
	assert_int_equal(depth_when(s, VERBS_ONESIDED, 0), 0);
	assert_int_equal(depth_when(s, 0, 5), 0);
	s->v.opts.features = 0;
	assert_int_equal(depth_when(s, VERBS_ONESIDED, 5), 0);
	assert_int_equal(cm.dialled.initiator_depth, 0);
	assert_int_equal(said.features, 0);
}

static int rejected(struct side *s, uint8_t reason)
{
	struct vconn *c = dials(s);
	int rc;

	happens(s, RDMA_CM_EVENT_REJECTED,
		(struct rdma_conn_param){.private_data = &reason, .private_data_len = 1});
	assert_int_equal(c->mail, MAIL_FAILED);
	rc = c->mail_rc;
	end(c);
	return rc;
}

static void who_does_not_know_of_them_is_dialled_again_without(void **state)
{
	struct side *s = *state;
	struct vconn *c;

	assert_int_equal(rejected(s, 2), -ECONNREFUSED); /* busy: that is something else */
	assert_int_equal(cm.dialled.initiator_depth, 12);
	assert_int_equal(rejected(s, 7), -EAGAIN);
	assert_int_equal(rejected(s, 7), -ECONNREFUSED); /* it was dialled without, once */
	assert_int_equal(cm.dialled.initiator_depth, 0);
	assert_int_equal(said.features, 0);
	s->v.plain[0].until_ns = clock_mono_ns(); /* it may be a new one by now */
	c = dials(s);
	assert_int_equal(cm.dialled.initiator_depth, 12);
	end(c);
	assert_int_equal(rejected(s, 7), -EAGAIN);
	c = vconn_alloc(&s->v, true); /* another one is none of those */
	s->id.context = c;
	s->id.qp = NULL;
	c->id = &s->id;
	c->cm_state = CM_ROUTE;
	assert_int_equal(net_resolve("10.9.0.2", 9866, &c->x.peer, NULL), 0);
	happens(s, RDMA_CM_EVENT_ROUTE_RESOLVED, (struct rdma_conn_param){0});
	assert_int_equal(cm.dialled.initiator_depth, 12);
	end(c);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, up, down)
	const struct CMUnitTest tests[] = {
		CASE(who_asks_for_reads_gets_as_many_as_the_device_answers),
		CASE(who_asks_for_fewer_gets_those),
		CASE(who_does_not_ask_gets_none),
		CASE(who_asks_and_posts_none_gets_none),
		CASE(without_windows_there_are_none),
		CASE(a_node_that_does_not_want_to_answers_none),
		CASE(a_node_that_asks_for_none_itself_answers_them),
		CASE(who_would_read_and_does_not_say_so_is_refused),
		CASE(a_dialer_posts_as_many_as_were_agreed_on),
		CASE(who_does_not_know_of_them_is_dialled_again_without),
	};

	return cmocka_run_group_tests_name("verbs_onesided", tests, NULL, NULL);
}
