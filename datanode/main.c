/* SPDX-License-Identifier: Apache-2.0 */
/* dfs-datanode: configure, build the parts, run until told to stop, tear down. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/base/args.h"
#include "common/base/log.h"
#include "common/reactor/reactor.h"
#include "datanode/http.h"
#include "datanode/ipc.h"
#include "datanode/nn/nn.h"
#include "datanode/options.h"
#include "datanode/xfer/xfer.h"

struct parts {
	struct dn dn;
	struct dn_options opts;
	struct ipc *ipc;
	struct http *http;
	uint32_t running; /* reactors started */
	sigset_t signals;
};

/* Three files per block in motion: as many as the system lets us. */
static void raise_file_limit(void)
{
	struct rlimit l;

	if (!getrlimit(RLIMIT_NOFILE, &l) && l.rlim_cur < l.rlim_max) {
		l.rlim_cur = l.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &l); /* best effort */
	}
}

static int start_reactors(struct parts *p, struct err *err)
{
	struct reactor_opts o = {.name = "dn-reactor", .offload_threads = 4, .spin_us = -1};
	int rc = 0;

	for (uint32_t i = 0; !rc && i < p->opts.reactors; i++) {
		rc = reactor_new(&o, &p->dn.reactors[i], err);
		p->dn.reactor_count += !rc;
	}
	return rc;
}

static int start(struct parts *p, struct err *err)
{
	struct store_opts so = {.volumes = p->opts.dirs, .volume_count = p->opts.dir_count,
				.failed_tolerated = p->opts.failed_tolerated};
	int rc = store_open(&so, &p->dn.store, err);

	if (!rc)
		rc = start_reactors(p, err);
	if (!rc)
		rc = xfer_start(&p->dn, &p->dn.xfer, err);
	if (!rc)
		rc = ipc_start(&p->dn, &p->ipc, err);
	if (!rc)
		rc = http_start(&p->dn, &p->http, err);
	for (uint32_t i = 0; !rc && i < p->dn.reactor_count; i++) {
		rc = reactor_start(p->dn.reactors[i]);
		p->running += !rc;
		if (rc)
			err_sys(err, rc, "starting a reactor");
	}
	return rc ? rc : nn_start(&p->dn, &p->dn.nns, err);
}

/* Tell whoever started us where we are, atomically. */
static int write_ready_file(const struct dn *dn, const char *path, struct err *err)
{
	char data[NET_TEXT_MAX], ipc[NET_TEXT_MAX], http[NET_TEXT_MAX], tmp[4096];
	json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:i}", "data", net_text(&dn->data_addr, data),
			      "ipc", net_text(&dn->ipc_addr, ipc), "http",
			      net_text(&dn->http_addr, http), "uuid", store_datanode_uuid(dn->store),
			      "pid", (int)getpid());
	int rc = -EIO;

	(void)snprintf(tmp, sizeof(tmp), "%s.tmp", path);
	if (o && !json_dump_file(o, tmp, JSON_COMPACT))
		rc = ret_errno(rename(tmp, path));
	json_decref(o);
	return rc ? err_sys(err, rc, "writing the ready file %s", path) : 0;
}

/* True: a signal to stop came within @ms. */
static bool stop_asked(const struct parts *p, uint32_t ms)
{
	struct timespec ts = {ms / 1000, (long)(ms % 1000) * 1000000};

	return sigtimedwait(&p->signals, NULL, &ts) > 0;
}

/* Until a signal, or no NameNode is left. */
static int run(struct parts *p, const char *ready_file, struct err *err)
{
	bool ready = false;
	int rc = 0;

	while (!rc && !stop_asked(p, ready ? 1000 : 10)) {
		if (nn_is_dead(p->dn.nns, err))
			return err->rc ? err->rc : -EIO;
		if (ready || nn_wait_registered(p->dn.nns, 100, NULL))
			continue;
		ready = true;
		if (ready_file)
			rc = write_ready_file(&p->dn, ready_file, err);
	}
	return rc;
}

static void stop(struct parts *p)
{
	/* A second signal ends us at once: everything acknowledged is in files already. */
	(void)signal(SIGTERM, SIG_DFL);
	(void)signal(SIGINT, SIG_DFL);
	(void)sigprocmask(SIG_UNBLOCK, &p->signals, NULL);
	if (p->dn.xfer && p->running)
		xfer_stop(p->dn.xfer, p->opts.stop_grace_ms);
	nn_stop(p->dn.nns);
	if (p->running)
		ipc_stop(p->ipc);
	http_stop(p->http);
	for (uint32_t i = 0; i < p->running; i++) {
		reactor_stop(p->dn.reactors[i]);
		reactor_join(p->dn.reactors[i]);
	}
	xfer_free(p->dn.xfer);
	for (uint32_t i = 0; i < p->dn.reactor_count; i++)
		reactor_free(p->dn.reactors[i]);
	store_close(p->dn.store);
}

int main(int argc, char **argv)
{
	static const struct args_spec spec = {.prog = "dfs-datanode", .synopsis = "[option]...",
					      .about = "Store blocks for HDFS, over TCP and RDMA.",
					      .max_operands = 0};
	const char *ready_file = NULL;
	const struct args_opt opts[] = {
		{"ready-file", 0, "FILE", "write addresses as JSON once registered", NULL, &ready_file, NULL},
		{NULL, 0, NULL, NULL, NULL, NULL, NULL},
	};
	struct args_spec with_opts = spec;
	struct err err = ERR_INIT;
	struct parts p = {0};
	struct args args;
	int rc;

	with_opts.opts = opts;
	if (!args_parse(&with_opts, argc, argv, &args, &rc))
		return rc;
	sigemptyset(&p.signals);
	sigaddset(&p.signals, SIGTERM);
	sigaddset(&p.signals, SIGINT);
	sigprocmask(SIG_BLOCK, &p.signals, NULL); /* before any thread is there */
	(void)signal(SIGPIPE, SIG_IGN);
	raise_file_limit();
	p.dn.conf = args.conf;
	rc = dn_options_read(args.conf, &p.opts, &err);
	if (!rc) {
		p.dn.data_addr = p.opts.data_addr;
		p.dn.ipc_addr = p.opts.ipc_addr;
		p.dn.http_addr = p.opts.http_addr;
		p.dn.sync_on_close = p.opts.sync_on_close;
		memcpy(p.dn.host_name, p.opts.host_name, sizeof(p.dn.host_name));
		rc = start(&p, &err);
	}
	if (!rc)
		rc = run(&p, ready_file, &err);
	if (rc)
		log_error("op=exit rc=%d: %s", rc, err.text[0] ? err.text : err_name(rc));
	else
		log_info("op=exit: stopping, data transfers get %u ms", p.opts.stop_grace_ms);
	stop(&p);
	dn_options_fini(&p.opts);
	args_free(&args);
	return rc ? 1 : 0;
}
