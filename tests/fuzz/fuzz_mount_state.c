/* SPDX-License-Identifier: Apache-2.0 */
/* What a mount that died has left in its directory: a byte says whether the rest is its session,
 * its marks, their names, or what a replacement was about to do. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuse/session/state.h"
#include "tests/fuzz/fuzz.h"

#define CLUSTER "cluster" /* of the sessions here */
#define OF_OURS "dfs-fuse 1\n" CLUSTER "\nboot\n"
#define DEAD "0123456789abcdef"

enum { SESSION, MARKS, NAMES, UNDO, FILES };
static const char *const files[] = {"session", "marks", "names", "undo.1"};

static char top[64];
static struct state state;

static void clean_up(void)
{
	char cmd[96];

	state_close(&state);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", top);
	(void)!system(cmd);
}

static void make(void)
{
	struct dfs_err err;

	snprintf(top, sizeof(top), "%s/fuzz-mount-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	MUST(mkdtemp(top) && !state_open(&state, top, 1, CLUSTER, &err));
	atexit(clean_up);
}

static void put(int dir, const char *name, const void *p, size_t n)
{
	const int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	MUST(fd >= 0 && write(fd, p, n) == (ssize_t)n);
	(void)close(fd);
}

static void take(struct dead *d)
{
	char name[DFS_NAME_MAX + 1], hex[2 * DFS_NAME_MAX + 1], again[DFS_NAME_MAX + 1];
	uint64_t id, dir;

	for (uint32_t i = 0; i < d->marks && i < 4; i++) {
		state_mark_name(d, i, name);
		MUST(strlen(name) <= DFS_NAME_MAX);
	}
	if (!state_read_undo(d, "undo.1", &id, &dir, name)) {
		MUST(*name && strlen(name) <= DFS_NAME_MAX && !strchr(name, '/'));
		state_hex(name, hex);
		MUST(state_unhex(hex, again) && !strcmp(name, again));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dead *dead;
	int dir;

	if (!top[0])
		make();
	if (!size)
		return 0;
	(void)mkdirat(state.top_fd, DEAD, 0700);
	dir = openat(state.top_fd, DEAD, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	MUST(dir >= 0);
	put(dir, "session", OF_OURS, strlen(OF_OURS));
	put(dir, files[data[0] % FILES], data + 1, size - 1);
	MUST(!state_find_dead(&state, CLUSTER, &dead));
	if (dead) {
		MUST(!dead->next);
		take(dead);
		state_end_dead(&state, dead, true);
	}
	for (int i = 0; i < FILES; i++)
		(void)unlinkat(dir, files[i], 0);
	(void)close(dir);
	return 0;
}
