/* SPDX-License-Identifier: Apache-2.0 */
/* Histories of a simulated cluster: real programs, a kernel of our own below them.
 * `cluster_simulator --help` tells how to use it, docs/design/016-cluster-simulator.md what it is.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/simulator/director.h"

static const char usage[] =
	"usage: cluster_simulator [option]...\n"
	"\n"
	"Plays histories of a cluster: a NameNode, five data nodes and three clients, which are the\n"
	"real programs, on machines, networks, disks and clocks that are not. What happens follows\n"
	"from the seed. At the end of a history everything that was acknowledged must be there.\n"
	"\n"
	"options:\n"
	"      --seed N         of the first history [1]\n"
	"      --histories N    how many [1]\n"
	"      --seconds S      as many as fit into so long, instead\n"
	"      --steps N        of trouble in each [40]\n"
	"      --without PART   leaves a kind of trouble out; may be repeated: kill, stop, crash, cut,\n"
	"                       slow, hang, errors, full, clock, rot, namenode\n"
	"      --cpu N          runs on this processor\n"
	"      --large          does not look for a smaller history that goes wrong, too\n"
	"      --keep           keeps the directory of a history, with its logs\n"
	"  -v, --verbose        tells what happens\n"
	"  -h, --help           prints this text\n"
	"\n"
	"A history that goes wrong ends with a line that begins with `again:`, which plays it again.\n"
	"The exit status is 1 then; 2 when it could not be told, 128 and the signal after one.\n";

#define PATIENCE_S 900 /* dfs.client.retry.policy.spec alone is 660 s */
#define NEED_BYTES (512u << 20)
#define LEAST_BYTES (16u << 20) /* with less left a history sees what is not of its world */
#define EXIT_FULL 3
#define STUCK_TICKS 1000 /* of 20 ms */

struct totals {
	uint64_t histories, wrong, ops, failed_ops, checks, bytes, faults, lost_bytes, lost_names,
		steps, ns, replicas, units, steady_reads, slowest, slowest_calm;
};

static bool keep;
static bool full;                    /* /dev/shm, in the middle of a history */
static volatile sig_atomic_t ending; /* by this signal */

static bool stopped(void)
{
	return full || ending;
}

static uint64_t memory_left(void)
{
	struct statvfs s;

	return statvfs("/dev/shm", &s) ? 0 : s.f_bavail * s.f_frsize;
}

static uint64_t real_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * SEC + (uint64_t)t.tv_nsec;
}

static struct ledger *make_ledger(const struct history *h)
{
	char path[200];
	int fd;
	void *at;

	snprintf(path, sizeof(path), "%s/ledger", h->dir);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(struct ledger)) < 0)
		return NULL;
	at = mmap(NULL, sizeof(struct ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return at == MAP_FAILED ? NULL : (struct ledger *)at;
}

static int make_world(struct history *h)
{
	char path[200];
	uint32_t p;

	h->sync_on_close = mix(h->seed) & 1;
	if (cluster_make(h))
		return -1;
	snprintf(path, sizeof(path), "%s/world", h->dir);
	if (world_make(path, h->seed) < 0)
		return -1;
	snprintf(world->dir, sizeof(world->dir), "%s", h->dir);
	world->machine_count = MACHINES;
	for (uint32_t m = 0; m < MACHINES; m++) {
		world->machine[m] = (struct machine){
			.up = true, .slow = 1, .ip = 0x0a000001 + m, .ordered = one_in(2)};
		h->proc[m] = -1;
		for (uint32_t k = 0; k < MACHINES; k++)
			world->latency[m][k] = 50 * US + chance(400 * US);
	}
	h->rotten = 1 + (uint32_t)chance(NODES);
	p = world->proc_count++;
	world->proc[p] = (struct proc){.alive = true, .machine = MACHINES - 1};
	sim_me = (int)thread_new(p, "director");
	world->current = (uint32_t)sim_me;
	h->ledger = make_ledger(h);
	if (!h->ledger)
		return -1;
	h->ledger->salt = h->seed;
	h->ledger->troubles = 1; /* 0: they do not count */
	h->ledger->sync_on_close = h->sync_on_close;
	for (uint32_t i = 0; i < FILES; i++)
		h->ledger->file[i].owner = WORKERS;
	return 0;
}

static bool clients_run(const struct history *h)
{
	for (uint32_t m = 1 + NODES; m < MACHINES - 1; m++)
		if (h->proc[m] >= 0)
			return true;
	return false;
}

/* All has been well for longer than any call may take. */
static void stuck(struct history *h, uint32_t m)
{
	const uint32_t first = (m - 1 - NODES) * CLIENT_THREADS;

	for (uint32_t i = first; i < first + CLIENT_THREADS; i++) {
		const struct worker *w = &h->ledger->worker[i];

		if (w->busy)
			history_wrong(h, "%s has not ended after %.0f s", w->op,
				      (double)(world->now - w->began) / 1e9);
	}
	history_wrong(h, "the client on m%u does not end", m);
}

static void play(struct history *h)
{
	if (cluster_format(h) && !h->wrong[0])
		history_wrong(h, "the NameNode cannot be formatted");
	for (uint32_t m = 0; m < MACHINES - 1 && !h->wrong[0]; m++)
		cluster_start(h, m);
	if (!cluster_wait(h, 20 * SEC))
		return;
	for (uint32_t i = 0; i < h->steps; i++)
		if (!faults_step(h))
			return;
	h->ledger->stop = true;
	faults_end(h);
	for (int i = 0; i < PATIENCE_S && clients_run(h); i++)
		if (!cluster_wait(h, SEC))
			return;
	for (uint32_t m = 1 + NODES; m < MACHINES - 1; m++)
		if (h->proc[m] >= 0)
			stuck(h, m);
	if (h->wrong[0])
		return;
	if (cluster_check(h) && !h->wrong[0])
		history_wrong(h, "the check failed");
	if (!h->wrong[0])
		replicas_compare(h);
}

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *at)
{
	(void)s, (void)kind, (void)at;
	return remove(path);
}

/* Programs that are being killed may still write there. */
static void remove_tree(const char *dir)
{
	const struct timespec t = {.tv_nsec = 20000000};

	for (int i = 0;
	     i < 50 && nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS) && errno != ENOENT; i++)
		nanosleep(&t, NULL);
}

/* -1, or a descriptor that holds the directory. */
static int lock_of(const struct history *h)
{
	struct stat open_one, named;
	char path[100];
	int fd;

	snprintf(path, sizeof(path), "%s.lock", h->dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB) && !fstat(fd, &open_one) &&
	    !stat(path, &named) && named.st_ino == open_one.st_ino)
		return fd; /* and its last holder has not just removed it */
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Names the directory of a history, and holds it. Its name is in what programs say: copies that
 * play the same seed at the same time differ in a letter, so that it has the same length. */
static int claim(struct history *h)
{
	for (const char *copy = ".123456789abcdefghijklmnopqrstuvwxyz"; *copy; copy++) {
		int fd;

		snprintf(h->dir, sizeof(h->dir), "/dev/shm/dfs-sim%c%016lx", *copy,
			 (unsigned long)h->seed);
		fd = lock_of(h);
		if (fd >= 0) {
			remove_tree(h->dir);
			return fd;
		}
	}
	fprintf(stderr, "cluster_simulator: no place in /dev/shm for the history of seed %lu\n",
		(unsigned long)h->seed);
	exit(2);
}

static void unclaim(const struct history *h, int fd)
{
	char path[100];

	snprintf(path, sizeof(path), "%s.lock", h->dir);
	(void)unlink(path);
	close(fd);
}

/* In a process of its own, so that what a history leaves goes with it. */
static int one_history(struct history *h, int out)
{
	struct totals t = {.histories = 1};
	const int made = make_world(h);

	if (made < 0)
		history_wrong(h, "no world: %s", strerror(errno));
	else
		play(h);
	if (made == 0) {
		cluster_end(h);
		t.ops = h->ledger->ops;
		t.failed_ops = h->ledger->failed_ops;
		t.checks = h->ledger->checks;
		t.bytes = h->ledger->bytes;
		t.slowest = h->ledger->slowest;
		t.slowest_calm = h->ledger->slowest_calm;
		t.units = h->ledger->units;
		t.steady_reads = h->ledger->steady_reads;
		t.faults = h->faults;
		t.lost_bytes = h->lost_bytes;
		t.lost_names = h->lost_names;
		t.replicas = h->replicas;
		t.steps = world->steps;
		t.ns = world->now;
	}
	if (h->wrong[0] && memory_left() < LEAST_BYTES)
		return EXIT_FULL;
	if (h->wrong[0]) {
		t.wrong = 1;
		printf("wrong after %.3f s: %s\n", made ? 0 : (double)world->now / 1e9, h->wrong);
	}
	if (h->verbose && made == 0)
		printf("%lu switches, %.1f s, slowest %.1f s (%s), without trouble %.1f s, last "
		       "chance %lx\n",
		       (unsigned long)world->steps, (double)world->now / 1e9,
		       (double)t.slowest / 1e9, h->ledger->slowest_op, (double)t.slowest_calm / 1e9,
		       (unsigned long)world->random);
	fflush(stdout);
	(void)!write(out, &t, sizeof(t));
	return t.wrong != 0;
}

static void add(struct totals *all, const struct totals *t)
{
	uint64_t *to = (uint64_t *)(void *)all;
	const uint64_t *from = (const uint64_t *)(const void *)t;
	const uint64_t slowest = all->slowest > t->slowest ? all->slowest : t->slowest;
	const uint64_t calm =
		all->slowest_calm > t->slowest_calm ? all->slowest_calm : t->slowest_calm;

	for (size_t i = 0; i < sizeof(*t) / sizeof(uint64_t); i++)
		to[i] += from[i];
	all->slowest = slowest;
	all->slowest_calm = calm;
}

static void again(const struct history *h)
{
	printf("again: cluster_simulator --seed %lu --steps %u", (unsigned long)h->seed, h->steps);
	for (int i = 0; i < PART_COUNT; i++)
		if (h->without & 1u << i)
			printf(" --without %s", part_names[i]);
	printf(" --verbose --keep\n");
	fflush(stdout);
}

/* How many times the baton was passed on, from the file of the world. */
static uint64_t switches(const struct history *h)
{
	struct {
		uint64_t random, now, steps;
	} w = {0};
	char path[100];
	int fd;

	snprintf(path, sizeof(path), "%s/world", h->dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, &w, sizeof(w)) < 0)
		perror(path);
	if (fd >= 0)
		close(fd);
	return w.steps;
}

/* False: it is stopped(), or nothing happens any more. A thread goes round without a call, or a
 * program died of a signal and took the baton with it. */
static bool await(const struct history *h, pid_t pid, int *status, bool quiet)
{
	uint64_t last = 0;

	for (int still = 0; still < STUCK_TICKS; still++) {
		const struct timespec t = {.tv_nsec = 20000000};
		const uint64_t now = switches(h);

		if (waitpid(pid, status, WNOHANG) == pid) {
			full = WIFEXITED(*status) && WEXITSTATUS(*status) == EXIT_FULL;
			if (WIFSIGNALED(*status) && !quiet)
				printf("wrong: the director died of signal %d\n",
				       WTERMSIG(*status));
			return true;
		}
		full = memory_left() < LEAST_BYTES;
		if (stopped())
			return false;
		if (now != last)
			still = 0;
		last = now;
		nanosleep(&t, NULL);
	}
	if (!quiet)
		printf("wrong: a program hangs, or died of a signal; see %s/logs\n", h->dir);
	return false;
}

/* Plays @h to its end; the history is quiet when it is only tried whether it goes wrong. */
static struct totals played(struct history *h, bool quiet)
{
	struct totals t;
	int fds[2], status = 0, claimed;
	pid_t pid;

	if (pipe(fds))
		abort();
	claimed = claim(h);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		(void)setpgid(0, 0);
		(void)signal(SIGTERM, SIG_DFL);
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		if (quiet && !freopen("/dev/null", "w", stdout))
			abort();
		_exit(one_history(h, fds[1]));
	}
	close(fds[1]);
	if (!await(h, pid, &status, quiet) || read(fds[0], &t, sizeof(t)) != sizeof(t))
		t = (struct totals){.histories = 1, .wrong = 1};
	if (stopped())
		t = (struct totals){0};
	(void)kill(-pid, SIGKILL);
	(void)waitpid(pid, &status, 0);
	close(fds[0]);
	if (!keep)
		remove_tree(h->dir);
	unclaim(h, claimed);
	return t;
}

static bool is_wrong(struct history h)
{
	h.verbose = false;
	return !stopped() && played(&h, true).wrong;
}

/* Fewer kinds of trouble and fewer steps, as long as it goes wrong. */
static void shrink(struct history *h)
{
	struct history less = *h;

	for (int i = 0; i < PART_COUNT; i++) {
		less.without = h->without | 1u << i;
		if (less.without != h->without && is_wrong(less))
			h->without = less.without;
	}
	less.without = h->without;
	for (uint32_t by = h->steps / 2; by; by /= 2) {
		less.steps = h->steps - by;
		if (is_wrong(less))
			h->steps = less.steps;
	}
}

static void run(struct history h, struct totals *all, bool small)
{
	const struct totals t = played(&h, false);

	add(all, &t);
	if (!t.wrong)
		return;
	if (small)
		shrink(&h);
	again(&h);
}

static void parts_out(struct history *h, const char *name)
{
	for (int i = 0; i < PART_COUNT; i++)
		if (!strcmp(part_names[i], name)) {
			h->without |= 1u << i;
			return;
		}
	fprintf(stderr, "cluster_simulator: no part '%s'; see --help\n", name);
	exit(2);
}

static void on_one_cpu(unsigned cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (!sched_setaffinity(0, sizeof(set), &set))
		return;
	fprintf(stderr, "cluster_simulator: processor %u: %s\n", cpu, strerror(errno));
	exit(2);
}

static void on_signal(int number)
{
	ending = number;
}

/* A history that is under way is removed then. */
static void end_on_signals(void)
{
	const struct sigaction act = {.sa_handler = on_signal};

	(void)sigaction(SIGINT, &act, NULL);
	(void)sigaction(SIGTERM, &act, NULL);
	(void)sigaction(SIGHUP, &act, NULL);
}

static void where(struct history *h)
{
	ssize_t n = readlink("/proc/self/exe", h->bin, sizeof(h->bin) - 1);

	h->bin[n > 0 ? n : 0] = 0;
	if (strrchr(h->bin, '/'))
		*strrchr(h->bin, '/') = 0;
}

static void report(const struct totals *t, double seconds)
{
	printf("%lu histories, %lu wrong: %lu operations (%lu failed), %lu checked reads, %.1f MB, "
	       "%lu replicas compared, %lu units verified, %lu steady reads of open files, "
	       "%lu faults, %.1f MB and %lu names lost, slowest %.0f s, without trouble %.0f s; "
	       "%.0f s of theirs, %lu switches, "
	       "%.1f s of ours\n",
	       (unsigned long)t->histories, (unsigned long)t->wrong, (unsigned long)t->ops,
	       (unsigned long)t->failed_ops, (unsigned long)t->checks, (double)t->bytes / 1e6,
	       (unsigned long)t->replicas, (unsigned long)t->units, (unsigned long)t->steady_reads,
	       (unsigned long)t->faults, (double)t->lost_bytes / 1e6, (unsigned long)t->lost_names,
	       (double)t->slowest / 1e9, (double)t->slowest_calm / 1e9, (double)t->ns / 1e9,
	       (unsigned long)t->steps, seconds);
}

/* What the command line asks for. */
struct wish {
	struct history first;
	uint64_t histories, seconds;
	unsigned cpu;
	bool small; /* looks for a smaller history that goes wrong, too */
};

static _Noreturn void wrong_usage(const char *what)
{
	fprintf(stderr, "cluster_simulator: %s; see --help\n", what);
	exit(2);
}

static uint64_t number(const char *of, uint64_t least, uint64_t most)
{
	char *end;
	uint64_t n;

	errno = 0;
	n = strtoull(optarg, &end, 0);
	if (end != optarg && !*end && *optarg != '-' && !errno && n >= least && n <= most)
		return n;
	fprintf(stderr, "cluster_simulator: --%s takes a number from %lu to %lu, not '%s'\n", of,
		(unsigned long)least, (unsigned long)most, optarg);
	exit(2);
}

static void take_option(struct wish *w, int c)
{
	switch (c) {
	case 's':
		w->first.seed = number("seed", 0, UINT64_MAX);
		break;
	case 'n':
		w->histories = number("histories", 1, UINT64_MAX);
		break;
	case 'S':
		w->seconds = number("seconds", 1, UINT64_MAX / SEC);
		break;
	case 't':
		w->first.steps = (uint32_t)number("steps", 0, UINT32_MAX);
		break;
	case 'w':
		parts_out(&w->first, optarg);
		break;
	case 'c':
		w->cpu = (unsigned)number("cpu", 0, CPU_SETSIZE - 1);
		break;
	case 'k':
		keep = true;
		break;
	case 'v':
		w->first.verbose = true;
		setenv("DFS_SIM_VERBOSE", "1", 1);
		w->small = false;
		break;
	case 'L':
		w->small = false;
		break;
	case 'h':
		fputs(usage, stdout);
		exit(0);
	default:
		exit(2);
	}
}

/* Exit status 77, and why: meson counts it as skipped. */
static void need_memory(void)
{
	if (memory_left() >= NEED_BYTES)
		return;
	printf("SKIP: a history needs %u MiB in /dev/shm\n", NEED_BYTES >> 20);
	exit(77);
}

/* Data nodes count by it what they keep open, and a history follows from that, too. */
static void fix_limits(void)
{
	const struct rlimit files = {20000, 20000};

	if (!setrlimit(RLIMIT_NOFILE, &files))
		return;
	fprintf(stderr,
		"cluster_simulator: programs need 20,000 open files, which are not to be had (%s); "
		"raise the hard limit (ulimit -Hn)\n",
		strerror(errno));
	exit(2);
}

static int status_of(const struct totals *all, uint64_t seed)
{
	if (full)
		fprintf(stderr,
			"cluster_simulator: /dev/shm has filled up: the history of seed %lu was "
			"not played to its end\n",
			(unsigned long)seed);
	return all->wrong ? 1 : full ? 2 : ending ? 128 + ending : 0;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"seed", 1, NULL, 's'},
		{"histories", 1, NULL, 'n'},
		{"seconds", 1, NULL, 'S'},
		{"steps", 1, NULL, 't'},
		{"without", 1, NULL, 'w'},
		{"cpu", 1, NULL, 'c'},
		{"keep", 0, NULL, 'k'},
		{"large", 0, NULL, 'L'},
		{"verbose", 0, NULL, 'v'},
		{"help", 0, NULL, 'h'},
		{0},
	};
	struct wish w = {.first = {.seed = 1, .steps = 40},
			 .histories = 1,
			 .cpu = (unsigned)sched_getcpu(),
			 .small = true};
	struct totals all = {0};
	uint64_t began;
	int c;

	while ((c = getopt_long(argc, argv, "vh", options, NULL)) >= 0)
		take_option(&w, c);
	if (optind < argc)
		wrong_usage("it takes no operand");
	need_memory();
	fix_limits();
	where(&w.first);
	on_one_cpu(w.cpu);
	end_on_signals();
	began = real_ns();
	for (uint64_t i = 0; w.seconds ? real_ns() - began < w.seconds * SEC : i < w.histories;
	     i++) {
		run(w.first, &all, w.small);
		if (stopped())
			break;
		w.first.seed++;
	}
	report(&all, (double)(real_ns() - began) / 1e9);
	return status_of(&all, w.first.seed);
}
