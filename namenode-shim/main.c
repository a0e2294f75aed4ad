/* SPDX-License-Identifier: Apache-2.0 */
/* dfs-namenode: configure, build, run, tear down. */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/args.h"
#include "common/base/conf.h"
#include "common/base/log.h"
#include "common/reactor/reactor.h"
#include "namenode-shim/base/users.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/ready_file.h"
#include "namenode-shim/rpc/rpc_service.h"
#include "namenode-shim/web/http.h"

struct options {
	bool format, force, check;
	const char *cluster_id, *ready_file;
};

struct program {
	struct settings set;
	struct nn *nn;
	struct reactor *reactor;
	struct rpc_port *rpc_port;
	struct http *http;
	struct net_addr rpc, web;
	sigset_t signals;
	pthread_t waiter;
};

static int fail(const struct err *err)
{
	fprintf(stderr, "dfs-namenode: %s\n", err->text[0] ? err->text : err_name(err->rc));
	return 1;
}

static int format(const struct options *o, const struct settings *set)
{
	struct err err = ERR_INIT;
	struct users *u = users_new(set->super_group, NULL);
	const struct db_format f = {o->cluster_id, users_self(u), set->super_group, o->force};
	int rc = db_format(set->name_dir, &f, &err);

	users_free(u);
	if (rc < 0)
		return fail(&err);
	log_info("op=format dir=%s", set->name_dir);
	return 0;
}

static int check(const struct settings *set)
{
	struct err err = ERR_INIT;
	struct db_check_sum sum;

	if (db_check(set->name_dir, &sum, &err) < 0)
		return fail(&err);
	fprintf(stdout, "%s: %llu pages of %u bytes: %llu used, %llu free; %llu inodes: whole\n",
		set->name_dir, (unsigned long long)sum.pages, sum.page_bytes,
		(unsigned long long)sum.used, (unsigned long long)sum.unused,
		(unsigned long long)sum.inodes);
	return 0;
}

/* SIGTERM and SIGINT end the reactor; everything queued is still committed and answered. */
static void *wait_signal(void *arg)
{
	struct program *p = arg;
	int sig = 0;

	sigwait(&p->signals, &sig);
	log_info("op=stop signal=%d", sig);
	reactor_stop(p->reactor);
	return NULL;
}

static int build(struct program *p, struct err *err)
{
	const struct reactor_opts ro = {.name = "nn", .spin_us = 0};
	int rc = nn_new(&p->set, &p->nn, err);

	rc = rc ? rc : reactor_new(&ro, &p->reactor, err);
	rc = rc ? rc : rpc_service_new(p->reactor, p->nn, &p->rpc, &p->rpc_port, err);
	rc = rc ? rc : http_new(p->nn, &p->set.http, &p->web, &p->http, err);
	if (!rc) {
		rc = nn_start(p->nn);
		if (rc < 0)
			err_sys(err, rc, "cannot start the writer thread");
	}
	return rc;
}

static int serve(struct program *p, const struct options *o)
{
	char a[NET_TEXT_MAX], b[NET_TEXT_MAX];
	struct err err = ERR_INIT;
	int rc = o->ready_file ? ready_file_write(o->ready_file, &p->rpc, &p->web, &err) : 0;

	if (rc < 0)
		return fail(&err);
	log_info("op=serve rpc=%s http=%s dir=%s cluster=%s", net_text(&p->rpc, a),
		 net_text(&p->web, b), p->set.name_dir, p->nn->db->ident.cluster_id);
	if (pthread_create(&p->waiter, NULL, wait_signal, p))
		return fail(&(struct err){.rc = -EAGAIN});
	rc = reactor_run(p->reactor);
	pthread_join(p->waiter, NULL);
	return rc < 0 ? fail(&(struct err){.rc = rc}) : 0;
}

static void tear_down(struct program *p)
{
	if (p->nn)
		nn_stop(p->nn); /* answers go out below, when the reactor is freed */
	rpc_service_close(p->rpc_port);
	http_free(p->http);
	reactor_free(p->reactor);
	nn_free(p->nn);
}

int main(int argc, char **argv)
{
	struct options o = {0};
	const struct args_opt opts[] = {
		{.name = "format",
		 .help = "make a new name directory, then exit",
		 .flag = &o.format},
		{.name = "force",
		 .help = "with --format: destroy the namespace that the directory holds",
		 .flag = &o.force},
		{.name = "check",
		 .help = "check the file of the namespace without a change, then exit",
		 .flag = &o.check},
		{.name = "cluster-id",
		 .metavar = "ID",
		 .help = "with --format: the id of the cluster (default: a new one)",
		 .text = &o.cluster_id},
		{.name = "ready-file",
		 .metavar = "FILE",
		 .help = "when serving, write our addresses to FILE as JSON",
		 .text = &o.ready_file},
		{0}};
	const struct args_spec spec = {
		.prog = "dfs-namenode",
		.synopsis = "[option]...",
		.about =
			"Keeps the namespace of a cluster and serves HDFS clients and data nodes.\n"
			"Format its directory (dfs.namenode.name.dir) once with --format.",
		.opts = opts};
	struct program p = {0};
	struct err err = ERR_INIT;
	struct args args;
	int status;

	if (!args_parse(&spec, argc, argv, &args, &status))
		return status;
	sigemptyset(&p.signals);
	sigaddset(&p.signals, SIGTERM);
	sigaddset(&p.signals, SIGINT);
	pthread_sigmask(SIG_BLOCK, &p.signals, NULL); /* before any thread */
	signal(SIGPIPE, SIG_IGN);
	if ((o.format && o.check) || (!o.format && (o.force || o.cluster_id))) {
		err_set(&err, -EINVAL, "%s",
			o.check && o.format
				? "--check changes nothing and --format does; give only one of them"
				: "--force and --cluster-id are of --format; give it, too, or none of them");
		(void)fail(&err);
		status = 2;
	} else if (settings_load(args.conf, &p.set, &err) < 0) {
		status = fail(&err);
		settings_fini(&p.set);
	} else if (o.format || o.check) {
		status = o.format ? format(&o, &p.set) : check(&p.set);
		settings_fini(&p.set);
	} else
		status = build(&p, &err) < 0 ? fail(&err) : serve(&p, &o);
	tear_down(&p);
	args_free(&args);
	return status;
}
