/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded: the time of day is off by the seconds in the file $DFS_TEST_CLOCK, which a test writes
 * at any moment; the monotonic clock goes on, as when somebody sets the clock of a machine. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static const volatile long long *moved;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void map_file(void)
{
	const char *path = getenv("DFS_TEST_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *p = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*moved), PROT_READ, MAP_SHARED, fd, 0);

	if (p != MAP_FAILED)
		moved = p;
	if (fd >= 0)
		close(fd);
}

EXPORT int clock_gettime(clockid_t id, struct timespec *ts)
{
	const int saved = errno;
	long rc = syscall(SYS_clock_gettime, id, ts);

	if (rc)
		return -1;
	if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) {
		pthread_once(&once, map_file);
		ts->tv_sec += moved ? (time_t)*moved : 0;
	}
	errno = saved;
	return 0;
}

EXPORT time_t time(time_t *ret)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	if (ret)
		*ret = ts.tv_sec;
	return ts.tv_sec;
}

EXPORT int gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	struct timespec ts;

	(void)tz;
	(void)clock_gettime(CLOCK_REALTIME, &ts);
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}
