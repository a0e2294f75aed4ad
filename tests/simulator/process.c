/* SPDX-License-Identifier: Apache-2.0 */
/* A process of the world: its beginning, its end, its signals. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/simulator/interpose.h"

struct vfd vfds[VFD_MAX];

static int proc = -1;
static bool looked;

bool sim_enter(void)
{
	const char *path, *number;

	if (sim_me >= 0)
		return true;
	if (looked)
		return false;
	looked = true;
	path = getenv(WORLD_ENV);
	number = getenv(PROC_ENV);
	if (!path || !number)
		return false;
	if (world_join(path) < 0) {
		perror("sim: cannot join the world");
		abort();
	}
	proc = atoi(number);
	thread_begin(world->proc[proc].main);
	return true;
}

static void __attribute__((constructor)) enter(void)
{
	(void)sim_enter();
}

uint32_t sim_proc(void)
{
	return (uint32_t)proc;
}

struct machine *sim_machine(void)
{
	return &world->machine[world->proc[proc].machine];
}

/* ---- the end ---- */

_Noreturn void sim_exit(int status)
{
	struct proc *p;

	if (sim_me >= 0) {
		p = &world->proc[proc];
		p->status = status;
		p->leaving = true;
		proc_sockets_close((uint32_t)proc);
		threads_kill((uint32_t)proc);
		waiters_wake(&p->ended);
		thread_end();
	}
	REAL(_exit)(status);
	__builtin_unreachable();
}

void _exit(int status)
{
	sim_exit(status);
}

/* atexit() and stdio first; glibc's own exit() calls its _exit() without us. */
static void at_exit(int status, void *arg)
{
	(void)arg;
	(void)fflush(NULL);
	sim_exit(status);
}

static void __attribute__((constructor)) watch_exit(void)
{
	if (sim_me >= 0)
		(void)on_exit(at_exit, NULL);
}

/* ---- signals: only SIGTERM is of the world ---- */

static bool takes_term(const sigset_t *set)
{
	return sigismember(set, SIGTERM) && world->proc[proc].term;
}

int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *t)
{
	uint64_t until;

	if (!sim_enter())
		return REAL(sigtimedwait)(set, info, t);
	until = t ? world->now + (uint64_t)t->tv_sec * SEC + (uint64_t)t->tv_nsec : FOREVER;
	while (!takes_term(set)) {
		waiters_add(&world->proc[proc].signalled);
		if (!sleep_for(NULL, until) && !takes_term(set)) {
			errno = EAGAIN;
			return -1;
		}
	}
	world->proc[proc].term = false;
	if (info)
		info->si_signo = SIGTERM;
	return SIGTERM;
}

int sigwait(const sigset_t *set, int *ret)
{
	if (!sim_enter())
		return REAL(sigwait)(set, ret);
	*ret = sigtimedwait(set, NULL, NULL);
	return 0;
}

/* A number that is the same each time; nobody is killed by it. */
pid_t getpid(void)
{
	return sim_enter() ? 1000 + proc : REAL(getpid)();
}

int kill(pid_t pid, int signal)
{
	if (!sim_enter())
		return REAL(kill)(pid, signal);
	if (pid != 1000 + proc || signal != SIGTERM) {
		fprintf(stderr, "sim: signal %d to %d is not of this world\n", signal, (int)pid);
		abort();
	}
	world->proc[proc].term = true;
	waiters_wake(&world->proc[proc].signalled);
	return 0;
}
