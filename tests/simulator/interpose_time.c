/* SPDX-License-Identifier: Apache-2.0 */
/* Time, chance, and what a machine says of itself. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/futex.h>
#include <netdb.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "tests/simulator/interpose.h"

static uint64_t time_of(clockid_t id)
{
	switch (id) {
	case CLOCK_REALTIME:
	case CLOCK_REALTIME_COARSE:
		return BORN + sim_machine()->wall + world->now;
	default:
		return world->now;
	}
}

int clock_gettime(clockid_t id, struct timespec *ret)
{
	uint64_t ns;

	if (!sim_enter())
		return REAL(clock_gettime)(id, ret);
	if (++world->looks > 1000) /* somebody goes round until it is later */
		world->now += US;
	ns = time_of(id);
	ret->tv_sec = (time_t)(ns / SEC);
	ret->tv_nsec = (long)(ns % SEC);
	return 0;
}

time_t time(time_t *ret)
{
	time_t t;

	if (!sim_enter())
		return REAL(time)(ret);
	t = (time_t)(time_of(CLOCK_REALTIME) / SEC);
	if (ret)
		*ret = t;
	return t;
}

int nanosleep(const struct timespec *t, struct timespec *left)
{
	if (!sim_enter())
		return REAL(nanosleep)(t, left);
	sleep_ns((uint64_t)t->tv_sec * SEC + (uint64_t)t->tv_nsec);
	return 0;
}

int sched_yield(void)
{
	if (!sim_enter())
		return REAL(sched_yield)();
	sleep_ns(1);
	return 0;
}

ssize_t getrandom(void *buf, size_t n, unsigned flags)
{
	uint8_t *to = (uint8_t *)buf;

	if (!sim_enter())
		return REAL(getrandom)(buf, n, flags);
	for (size_t i = 0; i < n; i++)
		to[i] = (uint8_t)chance(256);
	return (ssize_t)n;
}

/* ---- syscall(): futexes of common/rpc ---- */

static long futex(uint32_t *at, int op, uint32_t value, const struct timespec *t)
{
	switch (op & FUTEX_CMD_MASK) {
	case FUTEX_WAKE:
		wake_channel(at, value > 1);
		sched_point();
		return 1;
	case FUTEX_WAIT_BITSET:
		if (*at != value) {
			errno = EAGAIN;
			return -1;
		}
		if (sleep_for(at, t ? (uint64_t)t->tv_sec * SEC + (uint64_t)t->tv_nsec : FOREVER))
			return 0;
		errno = ETIMEDOUT;
		return -1;
	default:
		fprintf(stderr, "sim: futex operation %d is not of this world\n", op);
		abort();
	}
}

long syscall(long number, ...)
{
	long a[6];
	va_list ap;

	va_start(ap, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(ap, long);
	va_end(ap);
	if (number == SYS_futex && sim_enter())
		return futex((uint32_t *)a[0], (int)a[1], (uint32_t)a[2],
			     (const struct timespec *)a[3]);
	if (number == SYS_sched_setattr)
		return 0;
	return REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* ---- names ---- */

int gethostname(char *name, size_t n)
{
	if (!sim_enter())
		return REAL(gethostname)(name, n);
	snprintf(name, n, "m%u", world->proc[sim_proc()].machine);
	return 0;
}

int getnameinfo(const struct sockaddr *a, socklen_t len, char *host, socklen_t host_len, char *serv,
		socklen_t serv_len, int flags)
{
	if (!sim_enter())
		return REAL(getnameinfo)(a, len, host, host_len, serv, serv_len, flags);
	return REAL(getnameinfo)(a, len, host, host_len, serv, serv_len,
				 (flags & ~NI_NAMEREQD) | NI_NUMERICHOST | NI_NUMERICSERV);
}

/* This machine's address is all there is. */
int getifaddrs(struct ifaddrs **ret)
{
	struct {
		struct ifaddrs i;
		struct sockaddr_in a;
	} * p;

	if (!sim_enter())
		return REAL(getifaddrs)(ret);
	p = calloc(1, sizeof(*p));
	if (!p)
		return -1;
	p->a.sin_family = AF_INET;
	p->a.sin_addr.s_addr = htonl(sim_machine()->ip);
	p->i.ifa_addr = (struct sockaddr *)(void *)&p->a;
	p->i.ifa_name = (char *)(uintptr_t) "eth0";
	*ret = &p->i;
	return 0;
}

void freeifaddrs(struct ifaddrs *p)
{
	if (sim_enter())
		free(p);
	else
		REAL(freeifaddrs)(p);
}

/* ---- pages: none ---- */

void *MHD_start_daemon(unsigned flags, uint16_t port, ...);
void MHD_stop_daemon(void *d);

void *MHD_start_daemon(unsigned flags, uint16_t port, ...)
{
	(void)flags;
	(void)port;
	return (void *)1;
}

void MHD_stop_daemon(void *d)
{
	(void)d;
}
