/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/admin/ipc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/conf.h"
#include "common/base/log.h"
#include "common/rpc/auth_to_local.h"
#include "common/rpc/server.h"
#include "common/rpc/service_acl.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"
#include "datanode/admin/ipc_internal.h"
#include "datanode/admin/reconfig.h"
#include "datanode/block/operations.h"

struct ipc_call {
	struct offload off;
	struct ipc *ipc;
	struct rpc_call *call;
	const struct ipc_method *method;
	ProtobufCMessage *request;    /* owned; NULL: not decoded yet, or answered */
	uint32_t volume;              /* whose thread is to run it; STORE_VOLUME_ANY: none */
	struct operation_entry entry; /* for /ops, as these are: on the reactor */
	char peer[NET_TEXT_MAX], pool[80];
	/* the replica that it is about, once it has a thread of its volume */
	struct block block;
	bool on_volume;
};

/* ---- errors ---- */

/* The Java class a peer expects for an errno of the store. */
static const char *class_of(int rc)
{
	switch (rc) {
	case -EBUSY:
		return JEX_RECOVERY_IN_PROGRESS;
	case -ENODATA:
		return JEX_REPLICA_NOT_FOUND;
	default:
		return JEX_IO;
	}
}

void ipc_fail(struct rpc_call *call, int rc, const struct err *err)
{
	rpc_fail(call, class_of(rc), "%s", err->text[0] ? err->text : err_name(rc));
}

struct block_pool *ipc_pool(struct ipc *i, struct rpc_call *call, const char *id)
{
	struct block_pool *bp = dn_pool(i->dn, id);

	if (!bp)
		rpc_fail(call, JEX_IO, "block pool %.128s is not known here", id);
	return bp;
}

/* ---- dispatch ---- */

static void call_run(struct offload *o)
{
	struct ipc_call *c = container_of(o, struct ipc_call, off);

	c->method->run(c->ipc, c->call, c->request);
	pb_free(c->request);
	c->request = NULL;
}

static const Hd__ExtendedBlockProto *block_of(const struct ipc_call *c)
{
	return c->method->block ? c->method->block(c->request) : NULL;
}

/* Whose disk the call may wait for. */
static uint32_t volume_of(const struct ipc_call *c)
{
	const Hd__ExtendedBlockProto *b = block_of(c);
	struct block_pool *bp = b ? dn_pool(c->ipc->dn, b->poolid) : NULL;

	return bp ? replica_volume(bp, (int64_t)b->blockid) : STORE_VOLUME_ANY;
}

static void call_work(struct offload *o)
{
	struct ipc_call *c = container_of(o, struct ipc_call, off);

	if (!ipc_may_call(c->ipc, c->call))
		return;
	c->request = rpc_call_decode(c->call, c->method->request);
	if (!c->request)
		return;
	c->volume = volume_of(c);
	if (c->volume == STORE_VOLUME_ANY)
		call_run(o);
}

/* A helper thread has the request and the call: nothing of them is looked at here. */
static void call_tell(const struct operation_entry *e, struct operation *ret)
{
	const struct ipc_call *c = container_of(e, struct ipc_call, entry);

	ret->kind = "call";
	ret->role = c->method->name;
	ret->transport = "tcp";
	ret->state = c->on_volume ? "wait_disk" : "run";
	ret->waits_for = c->on_volume ? "disk" : "";
	ret->block_id = c->block.id;
	ret->gs = c->block.gs;
	memcpy(ret->pool, c->pool, sizeof(ret->pool));
	memcpy(ret->peer, c->peer, sizeof(ret->peer));
}

static void note_block(struct ipc_call *c)
{
	const Hd__ExtendedBlockProto *b = block_of(c);

	c->on_volume = true;
	c->block = (struct block){.id = (int64_t)b->blockid, .gs = b->generationstamp};
	(void)snprintf(c->pool, sizeof(c->pool), "%s", b->poolid);
}

static void call_done(struct offload *o)
{
	struct ipc_call *c = container_of(o, struct ipc_call, off);
	struct ipc *i = c->ipc;

	if (c->request) {
		note_block(c);
		o->work = call_run;
		reactor_offload_to(i->dn->reactors[0], DN_VOLUME_QUEUE(c->volume), o);
		return;
	}
	xfer_entry_end(&c->entry);
	free(c);
	atomic_fetch_sub(&i->running, 1);
}

static void dispatch(struct ipc *i, struct rpc_call *call, const struct ipc_method *methods)
{
	struct ipc_call *c;

	while (methods->name && strcmp(methods->name, call->method))
		methods++;
	if (!methods->name) {
		rpc_fail_no_method(call);
		return;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		rpc_fail(call, JEX_RETRIABLE, "out of memory");
		return;
	}
	*c = (struct ipc_call){.off = {.work = call_work, .done = call_done, .movable = true},
			       .ipc = i,
			       .call = call,
			       .method = methods};
	(void)snprintf(c->peer, sizeof(c->peer), "%s", call->peer_ip);
	xfer_entry_begin_first(i->dn->xfer, &c->entry, call_tell);
	atomic_fetch_add(&i->running, 1);
	reactor_offload_to(i->dn->reactors[0], DN_IPC_QUEUE, &c->off);
}

static void on_inter_call(void *arg, struct rpc_call *call)
{
	dispatch(arg, call, inter_methods);
}

static void on_client_call(void *arg, struct rpc_call *call)
{
	dispatch(arg, call, client_methods);
}

static void on_reconfig_call(void *arg, struct rpc_call *call)
{
	dispatch(arg, call, reconfig_methods);
}

/* ---- start and end ---- */

static void ipc_free(struct ipc *i)
{
	reconfig_free(i->reconfig);
	service_acl_free(i->service_acl);
	auth_to_local_free(i->names);
	ipc_access_fini(i);
	free(i);
}

int ipc_start(struct dn *dn, struct ipc **ret, struct err *err)
{
	struct ipc *i = calloc(1, sizeof(*i));
	struct rpc_server_opts o = {.addr = dn->ipc_addr, .service_count = 3};
	int rc;

	if (!i)
		return err_sys(err, -ENOMEM, "RPC server");
	i->dn = dn;
	i->started_ns = clock_mono_ns();
	ipc_access_init(i);
	i->services[0] = (struct rpc_service){RPC_PROTO_CLIENT_DATANODE, on_client_call, i};
	i->services[1] = (struct rpc_service){RPC_PROTO_INTER_DATANODE, on_inter_call, i};
	i->services[2] = (struct rpc_service){RPC_PROTO_RECONFIG, on_reconfig_call, i};
	o.services = i->services;
	rc = auth_to_local_new(dn->conf, &i->names, err);
	rc = rc ?: service_acl_new(dn->conf, &i->service_acl, err);
	if (rc) {
		ipc_free(i);
		return rc;
	}
	o.names = i->names;
	rc = reconfig_new(dn, &i->reconfig);
	if (rc) {
		ipc_free(i);
		return err_sys(err, rc, "RPC server");
	}
	rc = net_await_free(&o.addr, err);
	rc = rc ?: rpc_server_new(dn->reactors[0], &o, &dn->ipc_addr, &i->server, err);
	if (rc) {
		ipc_free(i);
		err_prefix(err, "RPC port (dfs.datanode.ipc.address)");
		return rc;
	}
	*ret = i;
	return 0;
}

static void close_on_reactor(struct rmsg *m)
{
	struct ipc *i = container_of(m, struct ipc, close_msg);

	rpc_server_close(i->server);
	i->closed = true;
}

void ipc_stop(struct ipc *i)
{
	if (!i)
		return;
	i->close_msg.fn = close_on_reactor;
	if (reactor_is_current(i->dn->reactors[0])) /* never started */
		close_on_reactor(&i->close_msg);
	else
		reactor_post(i->dn->reactors[0], &i->close_msg);
	while (!i->closed || i->running)
		nanosleep(&(struct timespec){0, NS_PER_MS}, NULL);
	ipc_free(i);
}
