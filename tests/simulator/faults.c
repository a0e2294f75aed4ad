/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to a cluster. */
#include <stdarg.h>
#include <string.h>

#include "tests/simulator/director.h"

const char *const part_names[PART_COUNT] = {
	[PART_KILL] = "kill",     [PART_STOP] = "stop",         [PART_CRASH] = "crash",
	[PART_CUT] = "cut",       [PART_SLOW] = "slow",         [PART_HANG] = "hang",
	[PART_ERRORS] = "errors", [PART_FULL] = "full",         [PART_CLOCK] = "clock",
	[PART_ROT] = "rot",       [PART_NAMENODE] = "namenode",
};

static void __attribute__((format(printf, 2, 3))) told(struct history *h, const char *fmt, ...)
{
	va_list ap;

	h->faults++;
	h->ledger->calm = h->ledger->sound = false;
	h->ledger->troubles++;
	if (!h->verbose)
		return;
	printf("%.6f ", (double)world->now / 1e9);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
}

static uint32_t some_machine(const struct history *h)
{
	const bool namenode = !(h->without & 1u << PART_NAMENODE);
	const uint32_t m = (uint32_t)chance(MACHINES - 1);

	return m || (namenode && one_in(2)) ? m : 1 + (uint32_t)chance(NODES);
}

static void cut(struct history *h)
{
	const uint32_t m = some_machine(h);
	const bool all = one_in(2);
	const bool one_way = one_in(4);

	told(h, "m%u is cut off%s", m, all ? "" : " from one");
	for (uint32_t i = 0; i < MACHINES - 1; i++)
		if (i != m && (all || one_in(MACHINES))) {
			world->cut[m][i] = true;
			world->cut[i][m] = !one_way;
		}
}

static void heal(struct history *h)
{
	told(h, "all links are well");
	memset(world->cut, 0, sizeof(world->cut));
	links_changed();
}

static void disks_well(struct history *h)
{
	told(h, "all disks are well");
	for (uint32_t m = 0; m < MACHINES; m++) {
		world->machine[m].slow = 1;
		world->machine[m].full = false;
		world->machine[m].errors = 0;
		waiters_wake(&world->machine[m].disk);
	}
}

static void start_again(struct history *h, uint32_t m)
{
	told(h, "m%u starts", m);
	cluster_power(h, m);
	cluster_start(h, m);
}

static void rot(struct history *h)
{
	char text[200];

	if (replicas_rot(h, text, sizeof(text)))
		told(h, "%s", text);
}

static bool strike(struct history *h, enum part part)
{
	const uint32_t m = some_machine(h);
	struct machine *k = &world->machine[m];

	if (h->without & 1u << part)
		return true;
	switch (part) {
	case PART_KILL:
		told(h, "m%u is killed", m);
		cluster_kill(h, m);
		return true;
	case PART_STOP:
		told(h, "m%u is stopped", m);
		cluster_stop(h, m);
		return !h->wrong[0];
	case PART_CRASH:
		told(h, "m%u loses its power", m);
		cluster_crash(h, m);
		return true;
	case PART_CUT:
		cut(h);
		return true;
	case PART_SLOW:
		k->slow = 1 + (uint32_t)chance(500);
		told(h, "the disk of m%u is %u times as slow", m, k->slow);
		return true;
	case PART_HANG:
		told(h, "the disk of m%u hangs", m);
		k->slow = 0;
		h->disk_fails[m] = true;
		return true;
	case PART_ERRORS:
		k->errors = 1 + (uint32_t)chance(200);
		h->maimed[m] = h->disk_fails[m] = true;
		h->ledger->disk_errors++;
		told(h, "the disk of m%u fails one call of %u", m, k->errors);
		return true;
	case PART_FULL:
		told(h, "the disk of m%u is full", m);
		k->full = true;
		h->disk_fails[m] = true;
		return true;
	case PART_CLOCK:
		k->wall += chance(2) ? chance(3600) * SEC : 0 - chance(3600) * SEC;
		told(h, "the clock of m%u jumps", m);
		return true;
	case PART_ROT:
		rot(h);
		return true;
	case PART_NAMENODE:
	case PART_COUNT:
		break;
	}
	return true;
}

static bool recover(struct history *h)
{
	const uint32_t m = (uint32_t)chance(MACHINES - 1), what = (uint32_t)chance(4);

	if (what < 2 && h->ledger->calm) /* nothing is to be mended, and that is no trouble */
		return true;
	switch (what) {
	case 0:
		heal(h);
		break;
	case 1:
		disks_well(h);
		break;
	default:
		if (h->proc[m] < 0)
			start_again(h, m);
	}
	return true;
}

/* A disk that has failed has left marks on its program. */
static void judge_calm(const struct history *h)
{
	bool sound = true, up = true;

	for (uint32_t m = 0; m < MACHINES - 1; m++) {
		const struct machine *k = &world->machine[m];

		up = up && (h->proc[m] >= 0 || m > NODES) && k->slow == 1;
		sound = sound && k->slow && !h->disk_fails[m] && !k->full && !k->errors;
		for (uint32_t i = 0; i < MACHINES - 1; i++)
			sound = sound && !world->cut[m][i];
	}
	h->ledger->sound = sound;
	h->ledger->calm = sound && up;
}

bool faults_step(struct history *h)
{
	if (!(one_in(3) ? strike(h, (enum part)chance(PART_NAMENODE)) : recover(h)))
		return false;
	judge_calm(h);
	return cluster_wait(h, one_in(4) ? chance(40 * SEC) : chance(3 * SEC));
}

void faults_end(struct history *h)
{
	heal(h);
	disks_well(h);
	h->healing = true;
	for (uint32_t m = 0; m < 1 + NODES; m++) {
		if (h->maimed[m])
			cluster_kill(h, m);
		if (h->proc[m] < 0)
			start_again(h, m);
	}
}
