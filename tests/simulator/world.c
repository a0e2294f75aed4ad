/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a world, and its chance. */
#include "tests/simulator/world.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/simulator/real.h"

struct world *world;
__thread int sim_me __attribute__((tls_model("initial-exec"))) = -1;

static int map(const char *path, int flags)
{
	const int fd = REAL(open64)(path, O_RDWR | O_CLOEXEC | flags, 0600);
	void *at;

	if (fd < 0 || REAL(ftruncate64)(fd, (off_t)WORLD_BYTES) < 0)
		return -1;
	at = mmap(WORLD_AT, WORLD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE,
		  fd, 0);
	REAL(close)(fd);
	if (at != WORLD_AT)
		return -1;
	world = (struct world *)at;
	return 0;
}

int world_make(const char *path, uint64_t seed)
{
	if (map(path, O_CREAT | O_TRUNC) < 0)
		return -1;
	world->random = seed;
	world->now = SEC;
	world->soonest = FOREVER;
	world->sock_count = 1;
	world->thread_count = 1;
	world->next_port = 20000;
	world->preempt = 2u << chance(6);
	return 0;
}

int world_join(const char *path)
{
	return map(path, 0);
}

/* ---- memory: sizes are powers of two ---- */

static unsigned class_of(size_t n)
{
	return n <= 64 ? 6 : 64 - (unsigned)__builtin_clzll(n - 1);
}

void *world_alloc(size_t n)
{
	const unsigned c = class_of(n);
	void *p = world->heap_free[c];

	if (p) {
		world->heap_free[c] = *(void **)p;
		return p;
	}
	if (sizeof(*world) + world->heap_used + ((size_t)1 << c) > WORLD_BYTES) {
		fprintf(stderr, "sim: the world is full\n");
		abort();
	}
	p = world->heap + world->heap_used;
	world->heap_used += (size_t)1 << c;
	return p;
}

void world_free(void *p, size_t n)
{
	const unsigned c = class_of(n);

	if (!p)
		return;
	*(void **)p = world->heap_free[c];
	world->heap_free[c] = p;
}

/* ---- chance (splitmix64) ---- */

uint64_t chance(uint64_t below)
{
	uint64_t x = world->random += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	x ^= x >> 31;
	return below ? x % below : x;
}

bool one_in(uint64_t n)
{
	return n && chance(n) == 0;
}

uint64_t about(uint64_t ns)
{
	return one_in(50) ? ns * (2 + chance(18)) : ns / 2 + chance(ns + ns / 2 + 1);
}
