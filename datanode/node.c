/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/node.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/reactor/reactor.h"
#include "datanode/admin/outliers.h"
#include "datanode/block/disk_workers.h"
#include "datanode/bp/bp.h"
#include "datanode/data_port/data_port.h"
#include "datanode/live_settings.h"

/* Of each queue: more than the store lets wait on a volume for writers to stop, so that opening,
 * closing and finalising go on. */
#define OFFLOAD_THREADS 12

/* For the end. */
#define TICK_MS 5u
#define STUCK_MS 5000    /* a data directory has not answered for so long: its calls are left */
#define CALLERS_MS 35000 /* calls that have not come back after so long are left, too */

static void tell_placement(const struct placement *p, uint32_t reactor)
{
	char cpus[256], node[16] = "any";

	placement_format(&p->cpus, cpus, sizeof(cpus));
	if (p->near_node)
		(void)snprintf(node, sizeof(node), "%u", p->near_node - 1);
	log_info("op=place reactor=%u cpus=%s memory_node=%s: %s", reactor, cpus, node, p->why);
}

/* Whoever polls there takes the time of another one, for which it may be waiting. */
static bool is_crowded(const struct dn_options *o)
{
	if (!o->place.bound || o->reactors <= (uint32_t)CPU_COUNT(&o->place.cpus))
		return false;
	log_warn("op=place: %u reactors share %d processors, so none of them polls; "
		 "set dfs.rdma.reactors=%d, or give them more by dfs.rdma.cpus",
		 o->reactors, CPU_COUNT(&o->place.cpus), CPU_COUNT(&o->place.cpus));
	return true;
}

static int start_reactors(struct node *n, struct err *err)
{
	struct reactor_opts o = {.name = "dn-reactor",
				 .offload_threads = OFFLOAD_THREADS,
				 .io_workers = n->opts.dir_count * DISK_WORKERS_MOST,
				 .spin_us = is_crowded(&n->opts) ? 0 : n->opts.spin_us};
	int rc = 0;

	for (uint32_t i = 0; !rc && i < n->opts.reactors; i++) {
		const struct placement p = placement_of(&n->opts.place, i, "/sys");

		o.cpus = p.cpus;
		o.near_node = p.near_node;
		if (p.bound)
			tell_placement(&p, i);
		rc = reactor_new(&o, &n->dn.reactors[i], err);
		n->dn.reactor_count += !rc;
	}
	return rc;
}

static int start(struct node *n, struct err *err)
{
	struct store_opts so = {.volumes = n->opts.dirs,
				.volume_count = n->opts.dir_count,
				.failed_tolerated = n->opts.failed_tolerated,
				.dir_mode = n->opts.dir_mode,
				.available_space = n->opts.available_space,
				.pinning = n->opts.pinning,
				.keep_duplicates = !n->opts.delete_duplicates,
				.open_replicas = n->opts.open_replicas,
				.index_ms = n->opts.index_ms,
				.answer_ms = n->opts.answer_ms,
				.scan = n->opts.scan};
	int rc = store_open(&so, &n->dn.store, err);

	if (!rc)
		rc = start_reactors(n, err);
	if (!rc)
		rc = data_port_start(&n->dn, &n->dn.xfer, err);
	if (!rc)
		rc = ipc_start(&n->dn, &n->ipc, err);
	if (!rc)
		rc = http_start(&n->dn, &n->http, err);
	for (uint32_t i = 0; !rc && i < n->dn.reactor_count; i++) {
		rc = reactor_start(n->dn.reactors[i]);
		n->running += !rc;
		if (rc)
			err_sys(err, rc, "starting a reactor");
	}
	return rc ? rc : bp_start(&n->dn, &n->dn.nns, err);
}

int node_start(struct node *n, const struct conf *conf, struct err *err)
{
	int rc = dn_options_read(conf, &n->opts, err);

	if (!rc)
		rc = live_settings_read(&n->dn.live, conf, err);
	if (!rc)
		rc = bp_check(conf, err);
	if (rc)
		return rc;
	n->dn.outliers = outliers_new(); /* without memory nobody counts */
	n->dn.conf = conf;
	n->dn.data_addr = n->opts.data_addr;
	n->dn.ipc_addr = n->opts.ipc_addr;
	n->dn.http_addr = n->opts.http_addr;
	n->dn.sync_on_close = n->opts.sync_on_close;
	n->dn.ec_xmits_pct = n->opts.ec_xmits_pct;
	n->dn.disks_min = n->opts.disks_min;
	memcpy(n->dn.host_name, n->opts.host_name, sizeof(n->dn.host_name));
	return start(n, err);
}

bool node_is_useless(struct node *n, struct err *err)
{
	const uint32_t all = store_volume_count(n->dn.store);
	uint32_t failed;

	if (bp_is_dead(n->dn.nns, err))
		return true;
	if (dn_has_disks(&n->dn, &failed))
		return false;
	if (failed == all)
		err_set(err, -EIO, "every data directory failed; repair the disks and start again");
	else
		err_set(err, -EIO,
			"%u of %u data directories failed, dfs.datanode.failed.volumes.tolerated is %u; repair the "
			"disks, or take them out of dfs.datanode.data.dir, and start again",
			failed, all, all - n->dn.disks_min);
	return true;
}

int node_write_ready_file(const struct node *n, const char *path, struct err *err)
{
	const struct dn *dn = &n->dn;
	char data[NET_TEXT_MAX], ipc[NET_TEXT_MAX], http[NET_TEXT_MAX], tmp[4096];
	json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:i}", "data", net_text(&dn->data_addr, data),
			      "ipc", net_text(&dn->ipc_addr, ipc), "http",
			      net_text(&dn->http_addr, http), "uuid",
			      store_datanode_uuid(dn->store), "pid", (int)getpid());
	int rc = -EIO;

	(void)snprintf(tmp, sizeof(tmp), "%s.tmp", path);
	if (o && !json_dump_file(o, tmp, JSON_COMPACT))
		rc = ret_errno(rename(tmp, path));
	json_decref(o);
	return rc ? err_sys(err, rc, "writing the ready file %s", path) : 0;
}

/* First who may be in a call of the disks' or of each other: each waits for its calls. */
static void *stop_callers(void *arg)
{
	struct node *n = arg;

	ipc_stop(n->ipc);
	http_stop(n->http);
	bp_stop(n->dn.nns);
	n->callers_ended = true;
	return NULL;
}

/* False: some call on a disk does not come back. */
static bool callers_end(struct node *n)
{
	uint32_t stuck_ms = 0;
	pthread_t t;

	/* half started: nobody has called */
	if (n->running < n->dn.reactor_count || pthread_create(&t, NULL, stop_callers, n)) {
		stop_callers(n);
		return true;
	}
	for (uint32_t ms = 0; !n->callers_ended; ms += TICK_MS) {
		nanosleep(&(struct timespec){.tv_nsec = TICK_MS * NS_PER_MS}, NULL);
		stuck_ms = store_is_stuck(n->dn.store) ? stuck_ms + TICK_MS : 0;
		if (stuck_ms >= STUCK_MS || ms >= CALLERS_MS) {
			pthread_detach(t); /* the process ends without it */
			return false;
		}
	}
	pthread_join(t, NULL);
	return true;
}

bool node_stop(struct node *n)
{
	bool ended = true;

	if (n->dn.xfer && n->dn.restarting)
		ended = data_port_stop_for_restart(n->dn.xfer, n->opts.stop_grace_ms);
	else if (n->dn.xfer)
		ended = data_port_stop(n->dn.xfer, n->opts.stop_grace_ms);
	if (!ended || store_is_stuck(n->dn.store) || !callers_end(n)) {
		log_warn("op=exit: %s",
			 store_is_stuck(n->dn.store)
				 ? "a data directory does not answer: its operations are abandoned"
				 : "some operations do not end: they are abandoned");
		store_abandon(n->dn.store);
		return false;
	}
	for (uint32_t i = 0; i < n->running; i++) {
		reactor_stop(n->dn.reactors[i]);
		reactor_join(n->dn.reactors[i]);
	}
	data_port_free(n->dn.xfer);
	for (uint32_t i = 0; i < n->dn.reactor_count; i++)
		reactor_free(n->dn.reactors[i]);
	store_close(n->dn.store);
	outliers_free(n->dn.outliers);
	dn_options_fini(&n->opts);
	return true;
}
