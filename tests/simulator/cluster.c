/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of a simulated cluster: configured, started, killed. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/simulator/director.h"
#include "tests/simulator/disk.h"

void history_wrong(struct history *h, const char *fmt, ...)
{
	va_list ap;

	if (h->wrong[0])
		return;
	va_start(ap, fmt);
	vsnprintf(h->wrong, sizeof(h->wrong), fmt, ap);
	va_end(ap);
}

/* ---- files ---- */

static const char *const settings[] = {
	"fs.defaultFS=hdfs://10.0.0.1:8020",
	"dfs.namenode.http-address=10.0.0.1:9870",
	"dfs.namenode.fs-limits.min-block-size=4096",
	"dfs.namenode.heartbeat.recheck-interval=10000",
	"dfs.namenode.redundancy.interval.seconds=3s",
	"dfs.namenode.reconstruction.pending.timeout-sec=60s",
	"dfs.blockreport.intervalMsec=300000ms",
	"dfs.replication=3",
	"dfs.client.rdma=off",
	"dfs.datanode.rdma.enabled=false",
	"dfs.rdma.pool.size=16m",
	"dfs.rdma.replica.index.interval=2s",
	"dfs.client.retry.policy.enabled=true",
	NULL,
};

static int make_conf(struct history *h, uint32_t machine)
{
	char path[200];
	FILE *f;

	snprintf(path, sizeof(path), "%s/conf%u", h->dir, machine);
	if (mkdir(path, 0700))
		return -1;
	snprintf(path, sizeof(path), "%s/conf%u/core-site.xml", h->dir, machine);
	f = fopen(path, "w");
	if (!f)
		return -1;
	fprintf(f, "<configuration/>\n");
	fclose(f);
	snprintf(path, sizeof(path), "%s/conf%u/hdfs-site.xml", h->dir, machine);
	f = fopen(path, "w");
	if (!f)
		return -1;
	fprintf(f, "<configuration>\n");
	for (int i = 0; settings[i]; i++)
		fprintf(f, "<property><name>%.*s</name><value>%s</value></property>\n",
			(int)strcspn(settings[i], "="), settings[i], strchr(settings[i], '=') + 1);
	fprintf(f, "<property><name>dfs.datanode.synconclose</name><value>%s</value></property>\n",
		h->sync_on_close ? "true" : "false");
	fprintf(f, "<property><name>hadoop.tmp.dir</name><value>%s/disks/m%u</value></property>\n",
		h->dir, machine);
	fprintf(f,
		"<property><name>dfs.datanode.data.dir</name>"
		"<value>%s/disks/m%u/d0,%s/disks/m%u/d1</value></property>\n",
		h->dir, machine, h->dir, machine);
	for (int i = 0; i < 3; i++)
		fprintf(f,
			"<property><name>dfs.datanode.%s</name><value>10.0.0.%u:%d</value></property>\n",
			i == 0   ? "address"
			: i == 1 ? "ipc.address"
				 : "http.address",
			machine + 1,
			9866 + (i == 0   ? 0
				: i == 1 ? 1
					 : -2));
	fprintf(f, "</configuration>\n");
	return fclose(f);
}

int cluster_make(struct history *h)
{
	static const char *const dirs[] = {"", "/disks", "/grave", "/logs"};
	char path[200];

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", h->dir, dirs[i]);
		if (mkdir(path, 0700)) /* EEXIST: the same history is being played */
			return -1;
	}
	for (uint32_t m = 0; m < MACHINES; m++) {
		snprintf(path, sizeof(path), "%s/disks/m%u", h->dir, m);
		if (mkdir(path, 0700) || make_conf(h, m))
			return -1;
		for (int d = 0; d < 2 && m >= 1 && m <= NODES; d++) {
			snprintf(path, sizeof(path), "%s/disks/m%u/d%d", h->dir, m, d);
			if (mkdir(path, 0700))
				return -1;
		}
	}
	return 0;
}

/* ---- processes ---- */

static void become(struct history *h, uint32_t proc, const char *const *argv)
{
	const uint32_t machine = world->proc[proc].machine;
	char text[300], path[200];
	char *env[16];
	int fd, n = 0;

	snprintf(path, sizeof(path), "%s/logs/m%u", h->dir, machine);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	dup2(fd, 1);
	dup2(fd, 2);
	close(fd);
	fd = open("/dev/null", O_RDONLY);
	dup2(fd, 0);
	for (int i = 3; i < 200; i++)
		close(i);
	snprintf(text, sizeof(text), "%s/libsim.so", h->bin);
	setenv("LD_PRELOAD", text, 1);
	snprintf(text, sizeof(text), "%s/world", h->dir);
	setenv(WORLD_ENV, text, 1);
	snprintf(text, sizeof(text), "%u", proc);
	setenv(PROC_ENV, text, 1);
	snprintf(text, sizeof(text), "%s/ledger", h->dir);
	setenv(LEDGER_ENV, text, 1);
	snprintf(text, sizeof(text), "%s/conf%u", h->dir, machine);
	setenv("HADOOP_CONF_DIR", text, 1);
	for (int i = 0; argv[i] && n < 15; i++)
		env[n++] = (char *)(uintptr_t)argv[i];
	env[n] = NULL;
	(void)personality(ADDR_NO_RANDOMIZE);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	execv(argv[0], env);
	perror(argv[0]);
	_exit(127);
}

static int spawn(struct history *h, uint32_t machine, const char *const *argv)
{
	const uint32_t p = world->proc_count++;
	struct proc *proc = &world->proc[p];
	pid_t pid;

	if (p == MAX_PROCS) {
		fprintf(stderr, "sim: too many processes\n");
		abort();
	}
	*proc = (struct proc){
		.alive = true, .machine = (uint16_t)machine, .life = world->machine[machine].life};
	proc->main = (uint16_t)thread_new(p, "main");
	pid = fork();
	if (!pid)
		become(h, p, argv);
	proc->pid = pid; /* the child has this memory, too */
	return (int)p;
}

static const char *const *program(struct history *h, uint32_t machine)
{
	static char path[300], first[16], threads[16], seed[32];
	static const char *argv[8];
	uint32_t k = machine - 1 - NODES;

	memset(argv, 0, sizeof(argv));
	argv[0] = path;
	if (machine == 0) {
		snprintf(path, sizeof(path), "%s/../../namenode-shim/dfs-namenode", h->bin);
	} else if (machine <= NODES) {
		snprintf(path, sizeof(path), "%s/../../datanode/dfs-datanode", h->bin);
	} else {
		snprintf(path, sizeof(path), "%s/sim_client", h->bin);
		snprintf(first, sizeof(first), "%u", k * CLIENT_THREADS);
		snprintf(threads, sizeof(threads), "%u", CLIENT_THREADS);
		snprintf(seed, sizeof(seed), "%lu", (unsigned long)chance(0));
		argv[1] = "work";
		argv[2] = first;
		argv[3] = threads;
		argv[4] = seed;
	}
	return argv;
}

static bool disk_is_bad(const struct machine *m)
{
	return m->full || m->errors || !m->slow;
}

void cluster_start(struct history *h, uint32_t machine)
{
	if (h->proc[machine] >= 0 || !world->machine[machine].up)
		return;
	h->ledger->starts += machine == 0;
	if (machine == 0)
		h->ledger->started_at = world->now;
	h->disk_fails[machine] = disk_is_bad(&world->machine[machine]);
	h->may_leave[machine] = false;
	h->proc[machine] = spawn(h, machine, program(h, machine));
}

static void buried(struct history *h, uint32_t machine)
{
	const uint32_t first = (machine - 1 - NODES) * CLIENT_THREADS;

	h->proc[machine] = -1;
	if (machine <= NODES)
		return;
	for (uint32_t i = 0; i < FILES; i++) {
		struct file *f = &h->ledger->file[i];

		if (f->owner >= first && f->owner < first + CLIENT_THREADS) {
			f->owner = WORKERS;
			f->frozen = true;
			f->died |= f->open;
		}
	}
	for (uint32_t i = first; i < first + CLIENT_THREADS; i++)
		h->ledger->worker[i].busy = false;
}

static void end_process(struct history *h, uint32_t machine, bool silently)
{
	const int p = h->proc[machine];
	int status;

	if (p < 0)
		return;
	world->proc[p].alive = false;
	(void)kill(world->proc[p].pid, SIGKILL);
	(void)waitpid(world->proc[p].pid, &status, 0);
	threads_kill((uint32_t)p);
	if (silently)
		machine_sockets_lose(machine);
	else
		proc_sockets_close((uint32_t)p);
	buried(h, machine);
}

void cluster_kill(struct history *h, uint32_t machine)
{
	end_process(h, machine, false);
}

void cluster_crash(struct history *h, uint32_t machine)
{
	end_process(h, machine, true);
	machine_sockets_lose(machine);
	world->machine[machine].up = false;
	disk_crash(machine, &h->lost_bytes, &h->lost_names);
	h->ledger->crashes += machine >= 1 && machine <= NODES;
	h->ledger->namenode_crashes += machine == 0;
}

void cluster_power(struct history *h, uint32_t machine)
{
	(void)h;
	if (world->machine[machine].up)
		return;
	world->machine[machine].up = true;
	world->machine[machine].life++;
	links_changed();
}

void cluster_stop(struct history *h, uint32_t machine)
{
	const int p = h->proc[machine];

	if (p < 0)
		return;
	h->may_leave[machine] = true;
	world->proc[p].term = true;
	waiters_wake(&world->proc[p].signalled);
	for (int i = 0; i < 120 && h->proc[machine] >= 0; i++)
		if (!cluster_wait(h, SEC))
			return;
	if (h->proc[machine] >= 0)
		cluster_kill(h, machine);
}

/* A program left by itself. A start needs no repair, also after a loss of power; and a program goes
 * on until it is told to end, unless its disk fails. */
static void judge_leaving(struct history *h, uint32_t machine, int status)
{
	const bool client = machine > NODES;

	if (h->disk_fails[machine])
		return;
	if (status)
		history_wrong(h, "the program on m%u left with status %d", machine, status);
	else if (!h->may_leave[machine] && !(client && h->ledger->stop))
		history_wrong(h, "the program on m%u left, and nobody had asked it to", machine);
}

bool cluster_look(struct history *h)
{
	for (uint32_t m = 0; m < MACHINES; m++) {
		struct proc *p = h->proc[m] < 0 ? NULL : &world->proc[h->proc[m]];
		int status;

		if (!p || !p->leaving)
			continue;
		(void)waitpid(p->pid, &status, 0);
		p->alive = false;
		if (h->verbose)
			printf("%.6f m%u left with %d\n", (double)world->now / 1e9, m, p->status);
		buried(h, m);
		if (!h->ledger->wrong[0])
			judge_leaving(h, m, p->status);
		if (h->healing && m <= NODES)
			cluster_start(h, m);
	}
	if (h->ledger->wrong[0])
		history_wrong(h, "%s", h->ledger->wrong);
	return !h->wrong[0];
}

bool cluster_wait(struct history *h, uint64_t ns)
{
	const uint64_t until = world->now + ns;

	while (world->now < until) {
		sleep_ns(until - world->now < SEC ? until - world->now : SEC);
		links_changed();
		if (!cluster_look(h))
			return false;
	}
	return true;
}

/* ---- programs that come to an end ---- */

static int run_to_end(struct history *h, uint32_t machine, const char *const *argv, uint64_t limit)
{
	const uint64_t until = world->now + limit;

	h->may_leave[machine] = true;
	h->proc[machine] = spawn(h, machine, argv);
	while (h->proc[machine] >= 0) {
		const int p = h->proc[machine];

		if (!cluster_wait(h, SEC))
			return -1;
		if (h->proc[machine] < 0)
			return world->proc[p].status;
		if (world->now > until) {
			history_wrong(h, "%s does not end", argv[0]);
			return -1;
		}
	}
	return -1;
}

int cluster_format(struct history *h)
{
	const char *argv[4] = {program(h, 0)[0], "--format", NULL};

	return run_to_end(h, 0, argv, 60 * SEC);
}

int cluster_check(struct history *h)
{
	char path[300];
	const char *argv[3] = {path, "check", NULL};

	snprintf(path, sizeof(path), "%s/sim_client", h->bin);
	return run_to_end(h, MACHINES - 2, argv, 2 * 3600 * SEC);
}

void cluster_end(struct history *h)
{
	for (uint32_t m = 0; m < MACHINES; m++)
		cluster_kill(h, m);
}
