/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/blocks/topology.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <uthash.h>

#include "common/base/clock.h"
#include "common/base/conf.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "namenode-shim/base/arena.h"

#define LINE_MAX_BYTES 1024
#define REAP_STEP_MS 5

extern char **environ;

struct known {
	char ip[64], rack[DN_RACK_MAX];
	uint64_t until_ns; /* then it is asked for again */
	UT_hash_handle hh;
};

struct topology {
	const char *script, *table; /* borrowed from the configuration; NULL: not set */
	pthread_mutex_t lock;
	struct known *known;
};

struct topology *topology_new(const struct conf *c)
{
	const char *impl = conf_get(c, "net.topology.node.switch.mapping.impl");
	const char *script = conf_get(c, "net.topology.script.file.name");
	const char *table = conf_get(c, "net.topology.table.file.name");
	struct topology *r = xcalloc(1, sizeof(*r));

	pthread_mutex_init(&r->lock, NULL);
	if (table && *table && impl && strstr(impl, "TableMapping"))
		r->table = table;
	else if (script && *script)
		r->script = script;
	return r;
}

void topology_forget(struct topology *r)
{
	pthread_mutex_lock(&r->lock);
	for (struct known *k = r->known; k; k = k->hh.next)
		k->until_ns = 0;
	pthread_mutex_unlock(&r->lock);
}

static void drop_all(struct topology *r)
{
	struct known *k, *tmp;

	HASH_ITER(hh, r->known, k, tmp)
	{
		HASH_DEL(r->known, k);
		free(k);
	}
}

void topology_free(struct topology *r)
{
	if (!r)
		return;
	drop_all(r);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

/* Its end, waited for until @end; then it is ended. */
static int reap(pid_t pid, uint64_t end)
{
	const struct timespec step = {.tv_nsec = REAP_STEP_MS * (long)NS_PER_MS};
	int status;
	pid_t got;

	while (!(got = waitpid(pid, &status, WNOHANG)) && clock_mono_ns() < end)
		nanosleep(&step, NULL);
	if (!got) {
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, &status, 0);
		return -ETIMEDOUT;
	}
	return got > 0 && WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EIO;
}

/* What the program writes within its time, up to @size; the rest is read and dropped, so that it
 * can end. -ETIMEDOUT: it was ended. */
static int read_output(int fd, pid_t pid, char *buf, size_t size)
{
	const uint64_t end = clock_mono_ns() + RACKS_SCRIPT_MS * NS_PER_MS;
	char rest[LINE_MAX_BYTES];
	size_t len = 0;

	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		const bool full = len == size - 1;
		const uint64_t now = clock_mono_ns();
		ssize_t n;

		if (now >= end || poll(&p, 1, (int)((end - now) / NS_PER_MS) + 1) <= 0) {
			(void)reap(pid, 0);
			return -ETIMEDOUT;
		}
		n = full ? read(fd, rest, sizeof(rest)) : read(fd, buf + len, size - 1 - len);
		if (n <= 0)
			break;
		len += full ? 0 : (size_t)n;
	}
	buf[len] = 0;
	return reap(pid, end);
}

static int run_script(const char *script, const char *ip, char *buf, size_t size)
{
	char *argv[] = {(char *)(uintptr_t)script, (char *)(uintptr_t)ip, NULL};
	posix_spawn_file_actions_t fa;
	int pipes[2], rc;
	pid_t pid;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return neg_errno();
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, pipes[1], STDOUT_FILENO);
	rc = ret_code(posix_spawn(&pid, script, &fa, NULL, argv, environ));
	posix_spawn_file_actions_destroy(&fa);
	close(pipes[1]);
	if (!rc)
		rc = read_output(pipes[0], pid, buf, size);
	close(pipes[0]);
	return rc;
}

static int look_up(const char *table, const char *ip, char *buf, size_t size)
{
	char line[LINE_MAX_BYTES], name[LINE_MAX_BYTES], rack[LINE_MAX_BYTES];
	FILE *f = fopen(table, "re");
	int rc = f ? -ENOENT : neg_errno();

	while (f && rc < 0 && fgets(line, sizeof(line), f))
		if (sscanf(line, "%1023s %1023s", name, rack) == 2 && *name != '#' &&
		    !strcmp(name, ip)) {
			snprintf(buf, size, "%s", rack);
			rc = 0;
		}
	if (f)
		fclose(f);
	return rc;
}

/* The rack of @ip from its source; the default rack and false when there is none. */
static bool ask(const struct topology *r, const char *ip, char ret[DN_RACK_MAX])
{
	char text[LINE_MAX_BYTES], rack[LINE_MAX_BYTES];
	const int rc = r->table ? look_up(r->table, ip, text, sizeof(text))
				: run_script(r->script, ip, text, sizeof(text));
	const bool good = rc >= 0 && sscanf(text, "%1023s", rack) == 1 && rack[0] == '/' &&
			  strlen(rack) < DN_RACK_MAX;

	if (!good)
		log_warn("op=rack address=%s source=%s rc=%s: its rack is not known; taking %s", ip,
			 r->table ? r->table : r->script,
			 rc < 0 ? err_name(rc) : "no /rack printed", DN_DEFAULT_RACK);
	snprintf(ret, DN_RACK_MAX, "%s", good ? rack : DN_DEFAULT_RACK);
	return good;
}

void topology_ask(struct topology *r, const char *ip)
{
	char rack[DN_RACK_MAX];
	struct known *k;
	bool fresh, good;

	if (!r->script && !r->table)
		return;
	pthread_mutex_lock(&r->lock);
	HASH_FIND_STR(r->known, ip, k);
	fresh = k && clock_mono_ns() < k->until_ns;
	pthread_mutex_unlock(&r->lock);
	if (fresh)
		return;
	good = ask(r, ip, rack);
	pthread_mutex_lock(&r->lock);
	HASH_FIND_STR(r->known, ip, k);
	if (!k) {
		if (HASH_COUNT(r->known) >= RACKS_KNOWN_MAX)
			drop_all(r);
		k = xcalloc(1, sizeof(*k));
		snprintf(k->ip, sizeof(k->ip), "%s", ip);
		HASH_ADD_STR(r->known, ip, k);
	}
	snprintf(k->rack, sizeof(k->rack), "%s", rack);
	k->until_ns = good ? UINT64_MAX : clock_mono_ns() + RACKS_RETRY_MS * NS_PER_MS;
	pthread_mutex_unlock(&r->lock);
}

void topology_find(struct topology *r, const char *ip, char ret[DN_RACK_MAX])
{
	const struct known *k;

	pthread_mutex_lock(&r->lock);
	HASH_FIND_STR(r->known, ip, k);
	snprintf(ret, DN_RACK_MAX, "%s", k ? k->rack : DN_DEFAULT_RACK);
	pthread_mutex_unlock(&r->lock);
}
