/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and reconstructions that a NameNode orders: each goes to one of the reactors, in turn. */
#include "datanode/data_port/data_port_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "datanode/block/transfer.h"
#include "datanode/reconstruct/reconstruct.h"

struct order {
	struct rmsg msg;
	struct engine_core *core;
	struct transfer_params params;
	void (*done)(void *arg, int rc, const struct err *err);
	void *arg;
};

static void order_run(struct rmsg *m)
{
	struct order *o = container_of(m, struct order, msg);
	struct err err = ERR_INIT;
	int rc = o->core->stopping ? -ECANCELED : 0;

	if (rc < 0)
		free(o->params.targets);
	else
		rc = transfer_open(o->core, &o->params, o->done, o->arg);
	if (rc < 0) {
		err_sys(&err, rc, "transfer");
		o->done(o->arg, rc, &err);
	}
	free(o);
}

int data_port_transfer(struct data_port *x, struct block_pool *bp, const struct block *b,
		       const struct dn_target *targets, uint32_t n,
		       void (*done)(void *arg, int rc, const struct err *err), void *arg)
{
	struct order *o;

	if (!n || n > DN_TARGETS_MAX)
		return -EINVAL;
	o = calloc(1, sizeof(*o));
	if (o)
		o->params.targets = calloc(n, sizeof(*targets));
	if (!o || !o->params.targets) {
		free(o);
		return -ENOMEM;
	}
	memcpy(o->params.targets, targets, n * sizeof(*targets));
	o->params.target_count = n;
	o->params.bp = bp;
	o->params.block = *b;
	o->done = done;
	o->arg = arg;
	o->msg.fn = order_run;
	pthread_mutex_lock(&x->lock);
	o->core = &x->cores[x->next++ % x->dn->reactor_count];
	pthread_mutex_unlock(&x->lock);
	reactor_post(o->core->reactor, &o->msg);
	return 0;
}

struct reconstruct_order {
	struct rmsg msg;
	struct engine_core *core;
	struct reconstruct_params params;
};

static void reconstruct_run(struct rmsg *m)
{
	struct reconstruct_order *o = container_of(m, struct reconstruct_order, msg);
	void (*const done)(void *, int, const struct err *) = o->params.done;
	void *const arg = o->params.arg;
	struct err err = ERR_INIT;
	const int rc = reconstruct_open(o->core, &o->params, &err);

	if (rc < 0)
		done(arg, rc, &err);
	free(o);
}

int data_port_rebuild(struct data_port *x, struct reconstruct_params *params)
{
	const uint64_t threads = x->dn->live.ec_threads;
	const uint32_t cores =
		threads < x->dn->reactor_count ? (uint32_t)threads : x->dn->reactor_count;
	struct reconstruct_order *o = calloc(1, sizeof(*o));

	if (!o) {
		reconstruct_params_fini(params);
		return -ENOMEM;
	}
	o->params = *params;
	o->msg.fn = reconstruct_run;
	pthread_mutex_lock(&x->lock);
	o->core = &x->cores[x->next++ % cores];
	pthread_mutex_unlock(&x->lock);
	reactor_post(o->core->reactor, &o->msg);
	return 0;
}
