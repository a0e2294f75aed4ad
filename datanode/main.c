/* SPDX-License-Identifier: Apache-2.0 */
/* dfs-datanode: configure, build the parts, run until told to stop, tear down. */
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/base/args.h"
#include "common/base/log.h"
#include "datanode/bp/bp.h"
#include "datanode/node.h"

/* Three files per block in motion: as many as the system lets us. */
static void raise_file_limit(void)
{
	struct rlimit l;

	if (!getrlimit(RLIMIT_NOFILE, &l) && l.rlim_cur < l.rlim_max) {
		l.rlim_cur = l.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &l); /* best effort */
	}
}

/* True: a signal to stop came within @ms. */
static bool stop_asked(const sigset_t *signals, uint32_t ms)
{
	struct timespec ts = {ms / 1000, (long)(ms % 1000) * 1000000};

	return sigtimedwait(signals, NULL, &ts) > 0;
}

/* Until a signal, or no NameNode is left. */
static int run(struct node *n, const sigset_t *signals, const char *ready_file, struct err *err)
{
	bool ready = false;
	int rc = 0;

	while (!rc && !stop_asked(signals, ready ? 1000 : 10)) {
		if (node_is_useless(n, err))
			return err->rc ? err->rc : -EIO;
		if (ready || bp_wait_registered(n->dn.nns, 100, NULL))
			continue;
		ready = true;
		if (ready_file)
			rc = node_write_ready_file(n, ready_file, err);
	}
	return rc;
}

/* A second signal ends us at once: everything acknowledged is in files already. */
static void second_signal_kills(const sigset_t *signals)
{
	(void)signal(SIGTERM, SIG_DFL);
	(void)signal(SIGINT, SIG_DFL);
	(void)sigprocmask(SIG_UNBLOCK, signals, NULL);
}

int main(int argc, char **argv)
{
	const char *ready_file = NULL;
	const struct args_opt opts[] = {
		{"ready-file", 0, "FILE", "write addresses as JSON once registered", NULL,
		 &ready_file, NULL},
		{NULL, 0, NULL, NULL, NULL, NULL, NULL},
	};
	const struct args_spec spec = {.prog = "dfs-datanode",
				       .synopsis = "[option]...",
				       .about = "Store blocks for HDFS, over TCP and RDMA.",
				       .opts = opts,
				       .max_operands = 0};
	struct err err = ERR_INIT;
	struct node node = {0};
	struct args args;
	sigset_t signals;
	int rc;

	/* libibverbs: what was made on a device that has gone is freed, though the driver says
	 * EIO */
	(void)setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1", 0);
	if (!args_parse(&spec, argc, argv, &args, &rc))
		return rc;
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigprocmask(SIG_BLOCK, &signals, NULL); /* before any thread is there */
	(void)signal(SIGPIPE, SIG_IGN);
	raise_file_limit();
	rc = node_start(&node, args.conf, &err);
	if (!rc)
		rc = run(&node, &signals, ready_file, &err);
	if (rc)
		log_error("op=exit rc=%d: %s", rc, err.text[0] ? err.text : err_name(rc));
	else
		log_info("op=exit: stopping, transfers get %u ms", node.opts.stop_grace_ms);
	second_signal_kills(&signals);
	if (!node_stop(&node))
		_exit(rc ? 1 : 0);
	args_free(&args);
	return rc ? 1 : 0;
}
