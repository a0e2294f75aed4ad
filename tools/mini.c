/* SPDX-License-Identifier: Apache-2.0 */
/**
 * dfs-mini - a real cluster on this machine: one dfs-namenode, N dfs-datanode, real sockets and
 * files
 *
 * Idea: ports are chosen first and written to DIR/conf, so that a node that is killed and started
 * again (DIR/start/NAME does just that) comes back at its address. Each port is claimed for as long
 * as dfs-mini lives: another dfs-mini takes none of them, also while its node is down. With --dir
 * the data stay; without, everything lives in a temporary directory that goes away at the end.
 * Layout of DIR: conf/ (HADOOP_CONF_DIR), name/, dnK/, log/, start/, NAME.pid, NAME.ready
 * (addresses and process, by the node itself), .dfs-mini (marks it ours).
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/include/dfsclient.h"
#include "common/base/clock.h"
#include "tools/mini_internal.h"

#define READY_TIMEOUT_S 180
#define STOP_TIMEOUT_S 120

static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
	stopped = sig;
}

int mini_fail(const char *fmt, ...)
{
	va_list ap;

	fputs("dfs-mini: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return -1;
}

static void help(void)
{
	puts("usage: dfs-mini [OPTION]... [-- COMMAND [ARG]...]\n"
	     "Start a cluster of real processes on this machine. COMMAND runs with HADOOP_CONF_DIR set (and\n"
	     "the programs in PATH); its exit status is ours. Without COMMAND: print how to reach the\n"
	     "cluster and wait for Ctrl-C.\n\n"
	     "  -n, --datanodes N   data nodes (default 3)\n"
	     "      --dir DIR       keep everything in DIR and find it again next time\n"
	     "                      (default: a temporary directory, removed at the end)\n"
	     "      --format        start empty: delete what an earlier dfs-mini left in DIR\n"
	     "      --port P        RPC port of the NameNode (default: a free one)\n"
	     "      --host ADDR     address to listen on (default 127.0.0.1)\n"
	     "  -D KEY=VALUE        a property for all of them\n"
	     "      --help, --version\n\n"
	     "Symbolic links, which dfs-fuse makes, are allowed (dfs.namenode.symlinks.enabled).\n"
	     "DIR/conf is the configuration, DIR/log the logs, DIR/NAME.pid the processes, and\n"
	     "DIR/start/NAME starts one again in the foreground (NAME: namenode, datanode1, ...).");
}

/* These differ from node to node (the start scripts). */
static bool is_of_one_node(const char *conf)
{
	static const char *const keys[] = {
		"dfs.datanode.data.dir=", "dfs.datanode.address=", "dfs.datanode.ipc.address=",
		"dfs.datanode.http.address="};
	bool is = false;

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		is |= !strncmp(conf, keys[i], strlen(keys[i]));
	return is;
}

/* As of parse(). */
static int take_option(struct mini *m, int opt, char **argv)
{
	char *end;
	long v;

	switch (opt) {
	case 'n':
		v = strtol(optarg, &end, 10);
		if (*end || v < 1 || v > NODES_MAX)
			return mini_fail("--datanodes takes 1 to %d, not %s", NODES_MAX, optarg), 2;
		m->datanodes = (uint32_t)v;
		break;
	case 'd':
		if (snprintf(m->dir, sizeof(m->dir), "%s", optarg) >= (int)sizeof(m->dir))
			return mini_fail("--dir is too long"), 2;
		break;
	case 'f':
		m->format = true;
		break;
	case 'p':
		v = strtol(optarg, &end, 10);
		if (*end || v < 1 || v > 65535)
			return mini_fail("--port takes 1 to 65535, not %s", optarg), 2;
		m->port = (uint16_t)v;
		break;
	case 'a':
		m->host = optarg;
		break;
	case 'D':
		if (!strchr(optarg, '=') || m->conf_count == 256)
			return mini_fail("-D takes KEY=VALUE, not %s", optarg), 2;
		if (is_of_one_node(optarg))
			return mini_fail("-D %s: each node has its own; start one with "
					 "DIR/start/datanode1 -D KEY=VALUE",
					 optarg),
			       2;
		m->conf[m->conf_count++] = optarg;
		break;
	case 'h':
		help();
		return 0;
	case 'V':
		printf("dfs-rdma %s\n", DFS_VERSION);
		return 0;
	default:
		return mini_fail("%s %s; see dfs-mini --help",
				 opt == ':' ? "a value is missing after" : "unknown option",
				 argv[optind - 1]),
		       2;
	}
	return -1;
}

/* The status to end with, or -1: go on. */
static int parse(struct mini *m, int argc, char **argv)
{
	static const struct option options[] = {
		{"datanodes", required_argument, NULL, 'n'}, {"dir", required_argument, NULL, 'd'},
		{"format", no_argument, NULL, 'f'},          {"port", required_argument, NULL, 'p'},
		{"host", required_argument, NULL, 'a'},      {"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'V'},         {NULL, 0, NULL, 0},
	};
	int opt, rc;

	opterr = 0;
	while ((opt = getopt_long(argc, argv, "+:n:D:h", options, NULL)) != -1) {
		rc = take_option(m, opt, argv);
		if (rc >= 0)
			return rc;
	}
	if (m->format && !*m->dir)
		return mini_fail("--format is for --dir; without it every start is empty"), 2;
	return -1;
}

/* ---- files ---- */

__attribute__((format(printf, 2, 3))) static char *path_of(const struct mini *m, const char *fmt,
							   ...)
{
	char *tail, *path;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&tail, fmt, ap) < 0)
		abort();
	va_end(ap);
	if (asprintf(&path, "%s/%s", m->dir, tail) < 0)
		abort();
	free(tail);
	return path;
}

static int remove_tree(const char *path)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		execlp("rm", "rm", "-rf", "--", path, (char *)NULL);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0
		       ? 0
		       : mini_fail("%s: cannot be removed", path);
}

static int make_dir(const struct mini *m, const char *name)
{
	char *p = path_of(m, "%s", name);
	int rc = mkdir(p, 0755) < 0 && errno != EEXIST ? mini_fail("%s: %m", p) : 0;

	free(p);
	return rc;
}

FILE *mini_create_file(const struct mini *m, const char *name, mode_t mode)
{
	char *p = path_of(m, "%s", name);
	int fd = open(p, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;

	if (!f)
		mini_fail("%s: %m", p);
	free(p);
	return f;
}

int mini_close_file(FILE *f, const char *name)
{
	bool bad = ferror(f);

	return fclose(f) || bad ? mini_fail("%s: write error: %m", name) : 0;
}

/* Make or take over the directory; refuse one that is somebody else's. */
static int open_dir(struct mini *m)
{
	const char *tmp = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	char *mark, real[512];

	if (!*m->dir) {
		snprintf(m->dir, sizeof(m->dir), "%.480s/dfs-mini-XXXXXX", tmp);
		if (!mkdtemp(m->dir))
			return mini_fail("%s: %m; set TMPDIR or give --dir", m->dir);
		m->temporary = true;
	} else if (mkdir(m->dir, 0755) < 0 && errno != EEXIST) {
		return mini_fail("%s: %m", m->dir);
	}
	if (!realpath(m->dir, real))
		return mini_fail("%s: %m", m->dir);
	if (strchr(real, ','))
		return mini_fail(
			"%s: a comma would split it into two directories; give another one", real);
	snprintf(m->dir, sizeof(m->dir), "%s", real);
	mark = path_of(m, ".dfs-mini");
	if (!m->temporary && access(mark, F_OK) < 0 && rmdir(m->dir) < 0 && errno == ENOTEMPTY) {
		free(mark);
		return mini_fail(
			"%s: not made by dfs-mini, so it is left alone; give an empty directory",
			m->dir);
	}
	if (mkdir(m->dir, 0755) < 0 && errno != EEXIST)
		mini_fail("%s: %m", m->dir);
	m->lock_fd = open(mark, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	if (m->lock_fd < 0)
		mini_fail("%s: %m", mark);
	free(mark);
	if (m->lock_fd < 0)
		return -1;
	if (flock(m->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return mini_fail("%s: another dfs-mini uses it", m->dir);
	return 0;
}

static int erase_data(const struct mini *m)
{
	for (int i = 0; i <= NODES_MAX; i++) {
		char *p = i ? path_of(m, "dn%d", i) : path_of(m, "name");
		int rc = access(p, F_OK) == 0 ? remove_tree(p) : 0;

		free(p);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* ---- processes ---- */

static int spawn(struct mini *m, uint32_t i, const char *extra)
{
	struct node *n = &m->node[i];
	char *script = path_of(m, "start/%s", n->name), *log = path_of(m, "log/%s.log", n->name);
	char *ready = path_of(m, "%s.ready", n->name), *pidfile;
	pid_t parent = getpid();
	FILE *f;

	(void)unlink(ready);
	n->pid = fork();
	if (n->pid == 0) {
		int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);

		prctl(PR_SET_PDEATHSIG, SIGTERM); /* not outlive us, however we end */
		if (getppid() != parent)
			_exit(1);
		setpgid(0, 0); /* Ctrl-C is ours to pass on */
		if (fd >= 0) {
			dup2(fd, STDOUT_FILENO);
			dup2(fd, STDERR_FILENO);
		}
		execl(script, script, extra, (char *)NULL);
		_exit(127);
	}
	free(script);
	free(log);
	free(ready);
	if (n->pid < 0)
		return mini_fail("fork: %m");
	if (extra)
		return 0;
	if (asprintf(&pidfile, "%s.pid", n->name) < 0)
		abort();
	f = mini_create_file(m, pidfile, 0644);
	free(pidfile);
	if (!f)
		return -1;
	fprintf(f, "%d\n", (int)n->pid);
	return mini_close_file(f, n->name);
}

static void show_log(const struct mini *m, const struct node *n)
{
	char *log = path_of(m, "log/%s.log", n->name);
	pid_t pid;

	fprintf(stderr, "--- the end of %s:\n", log);
	pid = fork();
	if (pid == 0) {
		dup2(STDERR_FILENO, STDOUT_FILENO);
		execlp("tail", "tail", "-n", "8", log, (char *)NULL);
		_exit(127);
	}
	if (pid > 0)
		waitpid(pid, NULL, 0);
	free(log);
}

static void nap_ms(uint32_t ms)
{
	const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	nanosleep(&t, NULL);
}

static int format_name(struct mini *m)
{
	char *version = path_of(m, "name");
	bool there = access(version, F_OK) == 0;
	int status;

	free(version);
	if (there)
		return 0;
	if (spawn(m, 0, "--format") < 0)
		return -1;
	if (waitpid(m->node[0].pid, &status, 0) < 0 || status) {
		m->node[0].pid = 0;
		mini_fail("the NameNode cannot format its directory");
		show_log(m, &m->node[0]);
		return -1;
	}
	m->node[0].pid = 0;
	return 0;
}

static int wait_ready(struct mini *m, uint32_t i, uint64_t deadline_ns)
{
	struct node *n = &m->node[i];
	char *ready = path_of(m, "%s.ready", n->name);
	int rc = 0, status;

	while (access(ready, F_OK) < 0 && !rc) {
		if (stopped)
			rc = -1;
		else if (waitpid(n->pid, &status, WNOHANG) == n->pid) {
			n->pid = 0;
			rc = mini_fail("%s did not start", n->name);
		} else if (clock_mono_ns() > deadline_ns)
			rc = mini_fail("%s is not ready after %d s", n->name, READY_TIMEOUT_S);
		else
			nap_ms(10);
	}
	if (rc < 0 && !stopped)
		show_log(m, n);
	free(ready);
	return rc;
}

/* All data nodes are known and the namespace is writable. */
static int wait_usable(struct mini *m, uint64_t deadline_ns)
{
	char *conf = path_of(m, "conf");
	struct dfs_connect_opts o = {.size = sizeof(o), .conf_dir = conf};
	struct dfs_err err = {0};
	struct dfs *fs = NULL;
	int rc = dfs_connect(&o, &fs, &err);
	bool usable = false;

	while (!rc && !usable && !stopped) {
		struct dfs_nodes *live;

		rc = dfs_nodes(fs, DFS_NODES_LIVE, &live, &err);
		if (rc < 0)
			break;
		usable = live->count >= m->datanodes;
		dfs_nodes_free(live);
		/* refused in safe mode, changes nothing otherwise */
		if (usable)
			usable = dfs_mkdir(fs, "/", 0755, true, &err) != -EROFS;
		if (!usable && clock_mono_ns() > deadline_ns)
			rc = -ETIMEDOUT;
		else if (!usable)
			nap_ms(20);
	}
	if (rc < 0)
		mini_fail("the cluster does not become usable: %s",
			  *err.text ? err.text : "data nodes missing");
	dfs_disconnect(fs);
	free(conf);
	return stopped ? -1 : rc;
}

static int start(struct mini *m)
{
	uint64_t deadline = clock_mono_ns() + READY_TIMEOUT_S * NS_PER_S;
	int rc = 0;

	snprintf(m->node[0].name, sizeof(m->node[0].name), "namenode");
	for (uint32_t i = 1; i <= m->datanodes; i++)
		snprintf(m->node[i].name, sizeof(m->node[i].name), "datanode%u", i);
	if (make_dir(m, "conf") < 0 || make_dir(m, "log") < 0 || make_dir(m, "start") < 0 ||
	    (m->format && erase_data(m) < 0) || mini_choose_ports(m) < 0 || mini_write_conf(m) < 0)
		return -1;
	for (uint32_t i = 0; i <= m->datanodes && !rc; i++)
		rc = mini_write_start(m, i);
	if (!rc)
		rc = format_name(m);
	for (uint32_t i = 0; i <= m->datanodes && !rc; i++)
		rc = spawn(m, i, NULL);
	for (uint32_t i = 0; i <= m->datanodes && !rc; i++)
		rc = wait_ready(m, i, deadline);
	return rc ? rc : wait_usable(m, deadline);
}

/* A node that DIR/start/NAME started after ours had ended: its process, or 0. */
static pid_t restarted(const struct mini *m, const struct node *n)
{
	char *path = path_of(m, "%s.ready", n->name), exe[64], real[600] = "", line[1024] = "";
	FILE *f = fopen(path, "r");
	const char *at;
	int pid = 0;

	free(path);
	if (!f)
		return 0;
	at = fgets(line, sizeof(line), f) ? strstr(line, "\"pid\":") : NULL;
	fclose(f);
	if (at)
		pid = (int)strtol(at + 6, NULL, 10);
	if (pid == n->pid)
		return 0;
	snprintf(exe, sizeof(exe), "/proc/%d/exe", pid);
	if (pid <= 0 || readlink(exe, real, sizeof(real) - 1) < 0 || !strstr(real, "/dfs-"))
		return 0;
	return pid;
}

/* A process that has ended, and whose parent has not asked how, has no program any more. */
static bool has_ended(pid_t pid)
{
	char exe[64], real[600];

	snprintf(exe, sizeof(exe), "/proc/%d/exe", (int)pid);
	return kill(pid, 0) < 0 || readlink(exe, real, sizeof(real)) < 0;
}

static void stop_restarted(const struct mini *m)
{
	uint64_t deadline = clock_mono_ns() + STOP_TIMEOUT_S * NS_PER_S;
	pid_t pid[NODES_MAX + 1];

	for (uint32_t i = m->datanodes + 1; i-- > 0;) {
		pid[i] = restarted(m, &m->node[i]);
		if (pid[i] && kill(pid[i], SIGTERM) < 0)
			pid[i] = 0;
	}
	for (uint32_t i = m->datanodes + 1; i-- > 0;)
		while (pid[i] && !has_ended(pid[i]) && clock_mono_ns() < deadline)
			nap_ms(10);
}

/* Data nodes first, so that they can say goodbye; the NameNode last. */
static void stop_all(struct mini *m)
{
	uint64_t deadline = clock_mono_ns() + STOP_TIMEOUT_S * NS_PER_S;
	uint32_t left = 0;

	stop_restarted(m);
	for (uint32_t i = m->datanodes + 1; i-- > 0;)
		if (m->node[i].pid > 0 && kill(m->node[i].pid, SIGTERM) == 0)
			left++;
	while (left) {
		for (uint32_t i = 0; i <= m->datanodes; i++) {
			struct node *n = &m->node[i];

			if (n->pid <= 0 || waitpid(n->pid, NULL, WNOHANG) == 0)
				continue;
			n->pid = 0;
			left = left ? left - 1 : 0;
		}
		if (left && clock_mono_ns() > deadline) {
			mini_fail("not all nodes stopped within %d s: killing them",
				  STOP_TIMEOUT_S);
			for (uint32_t i = 0; i <= m->datanodes; i++)
				if (m->node[i].pid > 0) {
					kill(m->node[i].pid, SIGKILL);
					waitpid(m->node[i].pid, NULL, 0);
				}
			break;
		}
		nap_ms(10);
	}
	if (m->temporary)
		remove_tree(m->dir);
}

/* ---- what runs in the cluster ---- */

static void set_environment(const struct mini *m)
{
	const char *path = getenv("PATH");
	char *conf = path_of(m, "conf"), *with_bin;

	if (asprintf(&with_bin, "%s%s%s", m->bin, path ? ":" : "", path ? path : "") < 0)
		abort();
	setenv("HADOOP_CONF_DIR", conf, 1);
	setenv("DFS_MINI_DIR", m->dir, 1);
	setenv("PATH", with_bin, 1);
	free(conf);
	free(with_bin);
}

static int run_command(char **argv)
{
	pid_t pid = fork();
	int status, sent = 0;

	if (pid < 0)
		return mini_fail("fork: %m"), 1;
	if (pid == 0) {
		execvp(argv[0], argv);
		mini_fail("%s: %m", argv[0]);
		_exit(errno == ENOENT ? 127 : 126);
	}
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return 1;
		if (stopped && !sent) {
			kill(pid, stopped);
			sent = 1;
		}
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void tell_ended(struct mini *m)
{
	for (uint32_t i = 0; i <= m->datanodes; i++) {
		struct node *n = &m->node[i];

		if (n->pid <= 0 || waitpid(n->pid, NULL, WNOHANG) != n->pid)
			continue;
		n->pid = 0;
		mini_fail("%s has ended; its log is %s/log/%s.log, %s/start/%s starts it again",
			  n->name, m->dir, n->name, m->dir, n->name);
	}
}

static int wait_for_signal(struct mini *m)
{
	printf("NameNode hdfs://%s:%u, metrics http://%s:%u/metrics, %u data nodes\n"
	       "export HADOOP_CONF_DIR=%s/conf PATH=%s:$PATH\nlogs in %s/log; Ctrl-C ends the cluster\n",
	       m->host, m->ports[0], m->host, m->ports[1], m->datanodes, m->dir, m->bin, m->dir);
	fflush(stdout);
	while (!stopped) {
		tell_ended(m);
		nap_ms(300);
	}
	return 0;
}

static void catch_signals(void)
{
	struct sigaction sa = {.sa_handler = on_signal};

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static int find_programs(struct mini *m)
{
	ssize_t n = readlink("/proc/self/exe", m->bin, sizeof(m->bin) - 1);
	char *slash, probe[600];

	if (n < 0)
		return mini_fail("/proc/self/exe: %m");
	m->bin[n] = 0;
	slash = strrchr(m->bin, '/');
	if (slash)
		*slash = 0;
	snprintf(probe, sizeof(probe), "%s/dfs-namenode", m->bin);
	return access(probe, X_OK) == 0
		       ? 0
		       : mini_fail(
				 "%s: not there; dfs-mini looks for the other programs beside itself",
				 probe);
}

int main(int argc, char **argv)
{
	struct mini m = {.datanodes = 3, .host = "127.0.0.1", .lock_fd = -1};
	int rc = parse(&m, argc, argv);

	if (rc >= 0)
		return rc;
	catch_signals();
	if (find_programs(&m) < 0 || open_dir(&m) < 0)
		return 1;
	rc = start(&m) < 0 ? (stopped ? 128 + stopped : 1) : 0;
	if (!rc) {
		set_environment(&m);
		rc = optind < argc ? run_command(argv + optind) : wait_for_signal(&m);
	}
	if (rc && m.temporary && !stopped && optind >= argc)
		m.temporary = false; /* keep the logs of a failed start */
	stop_all(&m);
	return rc;
}
