/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/racks.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uthash.h>

#include "common/base/clock.h"
#include "common/base/conf.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "namenode-shim/arena.h"

#define LINE_MAX_BYTES 1024

extern char **environ;

struct known {
	char ip[64], rack[DN_RACK_MAX];
	UT_hash_handle hh;
};

struct racks {
	const char *script, *table; /* borrowed from the configuration; NULL: not set */
	struct known *known;
};

struct racks *racks_new(const struct conf *c)
{
	const char *impl = conf_get(c, "net.topology.node.switch.mapping.impl");
	const char *script = conf_get(c, "net.topology.script.file.name");
	const char *table = conf_get(c, "net.topology.table.file.name");
	struct racks *r = xcalloc(1, sizeof(*r));

	if (table && *table && impl && strstr(impl, "TableMapping"))
		r->table = table;
	else if (script && *script)
		r->script = script;
	return r;
}

void racks_forget(struct racks *r)
{
	struct known *k, *tmp;

	HASH_ITER (hh, r->known, k, tmp) {
		HASH_DEL(r->known, k);
		free(k);
	}
}

void racks_free(struct racks *r)
{
	if (!r)
		return;
	racks_forget(r);
	free(r);
}

/* What the program writes within its time, up to @size. -ETIMEDOUT: it was ended. */
static int read_output(int fd, pid_t pid, char *buf, size_t size)
{
	const uint64_t end = clock_mono_ns() + RACKS_SCRIPT_MS * NS_PER_MS;
	size_t len = 0;
	int status;

	for (;;) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		const uint64_t now = clock_mono_ns();
		ssize_t n;

		if (now >= end || poll(&p, 1, (int)((end - now) / NS_PER_MS) + 1) <= 0) {
			(void)kill(pid, SIGKILL);
			(void)waitpid(pid, &status, 0);
			return -ETIMEDOUT;
		}
		n = read(fd, buf + len, size - 1 - len);
		if (n <= 0 || len + (size_t)n == size - 1) {
			len += n > 0 ? (size_t)n : 0;
			break;
		}
		len += (size_t)n;
	}
	buf[len] = 0;
	if (waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status))
		return -EIO;
	return 0;
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

void racks_find(struct racks *r, const char *ip, char ret[DN_RACK_MAX])
{
	char text[LINE_MAX_BYTES], rack[LINE_MAX_BYTES];
	struct known *k;
	int rc;

	snprintf(ret, DN_RACK_MAX, "%s", DN_DEFAULT_RACK);
	if (!r->script && !r->table)
		return;
	HASH_FIND_STR(r->known, ip, k);
	if (k) {
		snprintf(ret, DN_RACK_MAX, "%s", k->rack);
		return;
	}
	rc = r->table ? look_up(r->table, ip, text, sizeof(text))
		      : run_script(r->script, ip, text, sizeof(text));
	if (rc < 0 || sscanf(text, "%1023s", rack) != 1 || rack[0] != '/' ||
	    strlen(rack) >= DN_RACK_MAX) {
		log_warn("op=rack address=%s source=%s rc=%s: using %s", ip,
			 r->table ? r->table : r->script, rc < 0 ? err_name(rc) : "no /rack printed",
			 DN_DEFAULT_RACK);
		return;
	}
	snprintf(ret, DN_RACK_MAX, "%s", rack);
	if (HASH_COUNT(r->known) >= RACKS_KNOWN_MAX)
		racks_forget(r);
	k = xcalloc(1, sizeof(*k));
	snprintf(k->ip, sizeof(k->ip), "%s", ip);
	snprintf(k->rack, sizeof(k->rack), "%s", ret);
	HASH_ADD_STR(r->known, ip, k);
}
