/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/rpc/rpc_service.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "common/base/clock.h"
#include "common/reactor/reactor.h"
#include "common/rpc/server.h"
#include "namenode-shim/base/arena.h"
#include "namenode-shim/base/users.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/rpc/methods.h"
#include "namenode-shim/rpc/resolver_thread.h"
#include "namenode-shim/rpc/tree_walk.h"

#define HDFS "org.apache.hadoop.hdfs."
#define HADOOP "org.apache.hadoop."
#define TABLES_MAX 12
#define PROTOCOLS 11

struct entry {
	const struct method *method;
	struct call_stat *stat; /* borrowed from nn */
	UT_hash_handle hh;      /* by method name */
};

struct service {
	struct rpc_port *port;
	struct entry *index; /* owned */
	bool datanode;       /* protocols of data nodes */
};

struct rpc_port {
	struct nn *nn; /* borrowed */
	struct rpc_server *server;
	struct service service[PROTOCOLS];
	struct rpc_service rpc[PROTOCOLS];
};

static const struct {
	const char *name;
	const struct method_table *tables[TABLES_MAX + 1]; /* NULL-terminated */
} protocols[PROTOCOLS] = {
	{HDFS "protocol.ClientProtocol",
	 {&client_read_methods, &client_admin_methods, &client_ops_methods, &client_change_methods,
	  &client_append_methods, &client_write_methods, &client_pipeline_methods,
	  &client_policy_methods, &client_ec_methods, &client_attr_methods, &client_cache_methods,
	  &client_refuse_methods}},
	{HDFS "server.protocol.DatanodeProtocol", {&datanode_methods}},
	{HDFS "server.protocol.DatanodeLifelineProtocol", {&lifeline_methods}},
	{HDFS "server.protocol.NamenodeProtocol", {&namenode_methods}},
	{HADOOP "ha.HAServiceProtocol", {&ha_methods}},
	{HADOOP "security.authorize.RefreshAuthorizationPolicyProtocol", {&refresh_acl_methods}},
	{HADOOP "security.RefreshUserMappingsProtocol", {&refresh_user_methods}},
	{HADOOP "ipc.RefreshCallQueueProtocol", {&refresh_queue_methods}},
	{HADOOP "ipc.GenericRefreshProtocol", {&generic_refresh_methods}},
	{HADOOP "tools.GetUserMappingsProtocol", {&user_mapping_methods}},
	{HDFS "protocol.ReconfigurationProtocol", {&reconfiguration_methods}},
};

static void index_add(struct service *s, const struct method *m)
{
	struct entry *e = xcalloc(1, sizeof(*e));

	e->method = m;
	e->stat = call_stats_get(&s->port->nn->calls, m->name);
	HASH_ADD_KEYPTR(hh, s->index, m->name, strlen(m->name), e);
}

static bool reads_end(struct rop *rop)
{
	txn_read_end(&container_of(rop, struct nn, reads_end)->reader);
	return false;
}

/* The reads of a turn share a transaction: all of them came before it began, so none of them can
 * know of anything newer. */
static int reads_begin(struct nn *nn)
{
	int rc = list_is_linked(&nn->reads_end.ready_link) ? 1 : txn_read_begin(&nn->reader);

	if (!rc)
		reactor_late(nn->reactor, &nn->reads_end);
	return rc < 0 ? rc : 0;
}

static void run_read(struct nn *nn, struct req *q)
{
	const bool locks = q->method->flags & REQ_LOCKS;

	q->rc = reads_begin(nn);
	req_reset(q, &nn->reader);
	if (q->rc < 0) {
		req_finish(q);
		return;
	}
	if (!locks)
		pthread_rwlock_rdlock(&nn->mem_lock);
	req_run(q);
	if (!locks)
		pthread_rwlock_unlock(&nn->mem_lock);
	if (q->rc == REQ_PARK)
		tree_walk_submit(nn->tree_walks, q);
	else
		req_finish(q);
}

/* A READ on its way back to the reactor. */
struct later {
	struct rmsg msg;
	struct req *q;
};

static void on_later(struct rmsg *m)
{
	struct later *l = container_of(m, struct later, msg);
	struct req *q = l->q;

	free(l);
	if (q->nn->resolver) {
		run_read(q->nn, q);
		return;
	}
	q->rc = -ESHUTDOWN; /* nn_stop() was called meanwhile */
	req_finish(q);
}

static void read_later(struct req *q)
{
	struct later *l = xcalloc(1, sizeof(*l));

	l->msg.fn = on_later;
	l->q = q;
	reactor_post(q->nn->reactor, &l->msg);
}

/* Must the caller's groups be asked for first? That may take long. */
static bool is_stranger(struct nn *nn, struct req *q)
{
	bool old;

	if (!req_needs_groups(q))
		return false;
	q->caller = users_hold(nn->users, req_user(q), &old);
	if (old)
		resolver_load_user(nn->resolver, nn->users, req_user(q));
	return !q->caller;
}

static void look_up_first(struct nn *nn, struct req *q)
{
	if (resolver_submit(nn->resolver, q))
		return;
	q->rc = exception_throw(&q->exception, EXC_RETRIABLE,
				"too many calls wait until the groups of their users are known; "
				"try again");
	req_finish(q);
}

static void on_call(void *arg, struct rpc_call *call)
{
	const struct service *s = arg;
	struct nn *nn = s->port->nn;
	struct entry *e;
	struct req *q;

	HASH_FIND_STR(s->index, call->method, e);
	if (!e) {
		rpc_fail_no_method(call);
		return;
	}
	q = req_new(nn, e->method, call);
	if (!req_decode(q))
		return;
	q->stat = e->stat;
	q->datanode = s->datanode;
	if (is_stranger(nn, q) || e->method->prepare)
		look_up_first(nn, q);
	else if (e->method->kind == REQ_READ)
		run_read(nn, q);
	else
		nn_submit(nn, q);
}

static void rpc_service_free(struct rpc_port *f)
{
	for (int i = 0; i < PROTOCOLS; i++) {
		struct entry *e, *tmp;

		HASH_ITER(hh, f->service[i].index, e, tmp)
		{
			HASH_DEL(f->service[i].index, e);
			free(e);
		}
	}
	free(f);
}

int rpc_service_new(struct reactor *r, struct nn *nn, struct net_addr *ret_bound,
		    struct rpc_port **ret, struct err *err)
{
	struct rpc_port *f = xcalloc(1, sizeof(*f));
	struct rpc_server_opts o = {.addr = nn->set.rpc,
				    .services = f->rpc,
				    .service_count = PROTOCOLS,
				    .names = nn->names};
	int rc;

	f->nn = nn;
	nn->reactor = r;
	nn->read_later = read_later;
	rop_init(&nn->reads_end, reads_end, NULL);
	for (int i = 0; i < PROTOCOLS; i++) {
		f->service[i].port = f;
		f->service[i].datanode = protocols[i].tables[0] == &datanode_methods ||
					 protocols[i].tables[0] == &lifeline_methods;
		f->rpc[i] = (struct rpc_service){protocols[i].name, on_call, &f->service[i]};
		for (const struct method_table *const *t = protocols[i].tables; *t; t++)
			for (size_t k = 0; k < (*t)->count; k++)
				index_add(&f->service[i], &(*t)->methods[k]);
	}
	rc = net_await_free(&o.addr, err);
	rc = rc ?: rpc_server_new(r, &o, ret_bound, &f->server, err);
	if (rc < 0) {
		rpc_service_free(f);
		return rc;
	}
	nn->rpc_port = net_port(ret_bound);
	*ret = f;
	return 0;
}

void rpc_service_close(struct rpc_port *f)
{
	if (!f)
		return;
	rpc_server_close(f->server);
	rpc_service_free(f);
}
