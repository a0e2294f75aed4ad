/* SPDX-License-Identifier: Apache-2.0 */
/* Histories of the NameNode (sim.h): one after another, each from its seed. Of one that fails the
 * seed, the number of steps that it takes and the parts that it does not need are printed. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/base/log.h"
#include "namenode-shim/simulator/sim.h"

#define STEPS 250
#define CALM_MS 900000 /* longer than any time-out of the NameNode */

static void node_faults(void)
{
	struct sim_node *d = &sim.node[sim_below(NODES)];

	if (!d->up) {
		if (sim_chance(20))
			node_start(d);
	} else if (!d->linked) {
		d->linked = sim_chance(20);
	} else if (sim_may(SIM_CRASH) && sim_chance(4)) {
		node_crash(d);
	} else if (sim_may(SIM_UNLINK) && sim_chance(4)) {
		sim_say("%s: is cut off", d->uuid);
		d->linked = false;
	}
	if (sim_may(SIM_LOSS) && sim_chance(4))
		node_lose_some();
}

static void step(void)
{
	for (int i = 0; i < WRITERS; i++)
		if (sim_chance(50))
			writer_step(&sim.writer[i]);
	for (int i = 0; i < NODES; i++)
		if (sim_chance(40))
			node_step(&sim.node[i]);
	node_faults();
	if (sim_may(SIM_GONE) && sim_chance(2))
		writer_vanish(&sim.writer[sim_below(WRITERS)]);
	if (sim_may(SIM_RESTART) && sim_chance(1))
		sim_restart();
	if (sim_chance(2))
		sim_sleep_ms(sim_below(90000));
	else if (sim_chance(50))
		sim_sleep_ms(sim_below(2500));
	else
		sim_turn();
	check_left();
}

/* All faults end, and what was left is brought to an end by the NameNode alone. */
static void calm_down(void)
{
	sim_drain();
	sim.calm = true;
	sim_say("calm");
	for (int i = 0; i < WRITERS; i++)
		writer_vanish(&sim.writer[i]);
	for (int i = 0; i < NODES; i++) {
		struct sim_node *d = &sim.node[i];

		if (!d->up)
			node_start(d);
		d->linked = d->full_report = true;
	}
	sim_sleep_ms(CALM_MS);
	for (int i = 0; i < NODES; i++)
		node_report(&sim.node[i]);
	sim_sleep_ms(CALM_MS);
	check_left();
	check_all();
}

static volatile sig_atomic_t ending; /* by this signal: nothing is left in /dev/shm */

static void on_signal(int number)
{
	ending = number;
}

/* True: nothing was wrong. */
static bool history(uint64_t seed, uint32_t steps)
{
	bool good;

	sim_begin(seed);
	for (sim.step = 0; sim.step < steps && !sim.wrong[0] && !ending; sim.step++)
		step();
	if (!sim.wrong[0] && !ending)
		calm_down();
	good = !sim.wrong[0];
	sim_end();
	return good;
}

/* Fewer steps, and without what it does not need. */
static void shrink(uint64_t seed, uint32_t steps)
{
	char wrong[sizeof(sim.wrong)];
	const uint32_t given = sim.without;

	memcpy(wrong, sim.wrong, sizeof(wrong));
	for (uint32_t p = 0; p < SIM_PARTS; p++) {
		const uint32_t before = sim.without;

		sim.without |= 1u << p;
		if (sim.without != before && history(seed, steps))
			sim.without = before;
		else if (sim.wrong[0])
			memcpy(wrong, sim.wrong, sizeof(wrong));
	}
	for (uint32_t cut = steps / 2; cut; cut = cut > 1 ? cut / 2 : 0)
		while (steps > cut && !history(seed, steps - cut)) {
			steps -= cut;
			memcpy(wrong, sim.wrong, sizeof(wrong));
		}
	printf("WRONG: %s\nagain: --seed %" PRIu64 " --steps %u", wrong, seed, steps);
	for (uint32_t p = 0; p < SIM_PARTS; p++)
		if (sim.without >> p & 1)
			printf(" --without %s", sim_part_names[p]);
	printf(" --trace\n");
	sim.without = given;
}

static void usage(void)
{
	printf("usage: nn_simulator [--seed N] [--histories N] [--seconds S] [--steps N]\n"
	       "                    [--without PART]... [--keep-on] [--trace]\n"
	       "Histories of a NameNode among modelled nodes and writers, from seed N on.\n"
	       "Parts: ");
	for (uint32_t p = 0; p < SIM_PARTS; p++)
		printf("%s%s", p ? ", " : "", sim_part_names[p]);
	printf("\nExit status: 0 nothing was wrong, 1 something was, 2 it could not run.\n");
}

static bool leave_out(const char *part)
{
	for (uint32_t p = 0; p < SIM_PARTS; p++)
		if (!strcmp(sim_part_names[p], part)) {
			sim.without |= 1u << p;
			return true;
		}
	fprintf(stderr, "nn_simulator: there is no part %s\n", part);
	return false;
}

static bool number(const char *of, uint64_t *ret, uint64_t least, uint64_t most)
{
	char *end;

	errno = 0;
	*ret = strtoull(optarg, &end, 10);
	if (end != optarg && !*end && *optarg != '-' && !errno && *ret >= least && *ret <= most)
		return true;
	fprintf(stderr,
		"nn_simulator: --%s takes a number from %" PRIu64 " to %" PRIu64 ", not '%s'\n", of,
		least, most, optarg);
	return false;
}

static time_t real_seconds(void)
{
	return time(NULL); /* not the history's clock */
}

static struct {
	uint64_t seed, most, seconds, steps;
	bool keep_on;
} ask = {.seed = 1, .most = 1, .steps = STEPS};

/* -1: go on; else the exit status. */
static int take_options(int argc, char **argv)
{
	static const struct option opts[] = {
		{"seed", 1, NULL, 's'},  {"histories", 1, NULL, 'n'}, {"seconds", 1, NULL, 't'},
		{"steps", 1, NULL, 'k'}, {"without", 1, NULL, 'w'},   {"keep-on", 0, NULL, 'c'},
		{"trace", 0, NULL, 'v'}, {"help", 0, NULL, 'h'},      {0}};
	bool good = true;
	int c;

	while (good && (c = getopt_long(argc, argv, "", opts, NULL)) != -1)
		switch (c) {
		case 's':
			good = number("seed", &ask.seed, 0, UINT64_MAX);
			break;
		case 'n':
			good = number("histories", &ask.most, 1, UINT64_MAX);
			break;
		case 't':
			good = number("seconds", &ask.seconds, 1, UINT64_MAX);
			ask.most = UINT64_MAX;
			break;
		case 'k':
			good = number("steps", &ask.steps, 0, UINT32_MAX);
			break;
		case 'w':
			good = leave_out(optarg);
			break;
		case 'c':
			ask.keep_on = true;
			break;
		case 'v':
			sim.trace = true;
			break;
		case 'h':
			usage();
			return 0;
		default: /* getopt_long() has said why */
			return 2;
		}
	if (good && optind < argc) {
		fprintf(stderr, "nn_simulator: %s is not wanted\n", argv[optind]);
		good = false;
	}
	return good ? -1 : 2;
}

int main(int argc, char **argv)
{
	const int status = take_options(argc, argv);
	const time_t began = real_seconds();
	uint64_t done = 0, wrong = 0, calls = 0;

	if (status >= 0)
		return status;
	log_init("simulator", sim.trace ? LOG_INFO : LOG_ERROR);
	(void)signal(SIGINT, on_signal);
	(void)signal(SIGTERM, on_signal);
	(void)signal(SIGHUP, on_signal);
	for (; done < ask.most && !ending && (ask.keep_on || !wrong); done++, ask.seed++) {
		if (ask.seconds && (uint64_t)(real_seconds() - began) >= ask.seconds)
			break;
		if (!history(ask.seed, (uint32_t)ask.steps)) {
			wrong++;
			if (!sim.trace)
				shrink(ask.seed, (uint32_t)ask.steps);
			else
				printf("WRONG: %s\n", sim.wrong);
		}
		calls += sim.calls;
	}
	printf("%" PRIu64 " histories, %" PRIu64 " calls, %" PRIu64 " wrong, %ld s\n", done, calls,
	       wrong, (long)(real_seconds() - began));
	return wrong ? 1 : ending ? 128 + ending : 0;
}
