/* SPDX-License-Identifier: Apache-2.0 */
/* Must hold: the reactors stay with the first device where a machine has several nodes and the
 * device tells its own; processors that are named are given out in turn, with memory of their node;
 * what the process may not use is refused by name; what /sys does not say binds nothing. */
#include "common/reactor/placement.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/conf.h"
#include "common/base/err.h"
#include "common/reactor/reactor.h"

static char sysfs[64];
static char here[2][8], both[16]; /* processors */

/* A file of one line below sysfs, and the folders on the way. */
static void say(const char *path, const char *line)
{
	char full[512];
	FILE *f;

	(void)snprintf(full, sizeof(full), "%s/%s", sysfs, path);
	for (char *s = full + strlen(sysfs) + 1; (s = strchr(s, '/')); *s++ = '/') {
		*s = 0;
		(void)mkdir(full, 0755);
	}
	f = fopen(full, "we");
	assert_non_null(f);
	(void)fprintf(f, "%s\n", line);
	(void)fclose(f);
}

/* Two nodes, each with a processor that this process may use and some that no machine here has. */
static int two_nodes(void **state)
{
	char line[64];

	(void)state;
	(void)snprintf(sysfs, sizeof(sysfs), "/tmp/placement_test.XXXXXX");
	assert_non_null(mkdtemp(sysfs));
	(void)snprintf(line, sizeof(line), "%s,900-901", here[0]);
	say("devices/system/node/node0/cpulist", line);
	(void)snprintf(line, sizeof(line), "%s,902-903", here[1]);
	say("devices/system/node/node1/cpulist", line);
	say("devices/system/node/online", "0-1");
	return 0;
}

static int remove_all(void **state)
{
	char line[128];

	(void)state;
	(void)snprintf(line, sizeof(line), "rm -rf %s", sysfs);
	return system(line);
}

static int place(const char *cpus, struct placement *ret, struct err *err)
{
	struct conf *c = conf_new();
	int rc;

	if (cpus)
		assert_int_equal(conf_set(c, "dfs.rdma.cpus", cpus), 0);
	rc = placement_read(c, sysfs, ret, err);
	conf_free(c);
	return rc;
}

static const char *list(const struct placement *p)
{
	static char text[256];

	placement_format(&p->cpus, text, sizeof(text));
	return text;
}

static void card(const char *name, const char *node, const char *cpus)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "class/infiniband/%s/device/numa_node", name);
	say(path, node);
	(void)snprintf(path, sizeof(path), "class/infiniband/%s/device/local_cpulist", name);
	say(path, cpus);
}

/* ---- lists ---- */

static void lists_are_read_as_the_kernel_writes_them(void **state)
{
	static const char *const same[] = {"0", "1,3,5", "0-3", "0-3,8", "7,9-11,1023"};
	static const char *const bad[] = {"",      " ",   ",",    "1,",
					  "a",     "1-",  "3-1",  "-1",
					  "1 2",   "0x1", "1024", "99999999999999999999",
					  "0-1024"};
	cpu_set_t cpus;
	char text[64];

	(void)state;
	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
		assert_int_equal(placement_parse(same[i], &cpus), 0);
		placement_format(&cpus, text, sizeof(text));
		assert_string_equal(text, same[i]);
	}
	assert_int_equal(placement_parse(" 2 , 0-1\n", &cpus), 0);
	placement_format(&cpus, text, sizeof(text));
	assert_string_equal(text, "0-2");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(placement_parse(bad[i], &cpus), -EINVAL);
	assert_int_equal(placement_parse("0,2,4,6,8,10,12", &cpus), 0);
	placement_format(&cpus, text, 10);
	assert_string_equal(text, "0,2,4...");
}

/* ---- a card ---- */

static void reactors_stay_with_the_first_card(void **state)
{
	struct placement p, of;
	char local[32];

	(void)state;
	card("mlx5_1", "0", here[0]);
	(void)snprintf(local, sizeof(local), "%s,902-903", here[1]);
	card("mlx5_0", "1", local);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(place(i ? "card" : NULL, &p, NULL), 0);
		assert_true(p.bound && !p.each);
		assert_string_equal(list(&p), here[1]); /* what there is */
		assert_int_equal(p.near_node, 2);
		assert_string_equal(p.why, "mlx5_0 is at node 1");
	}
	of = placement_of(&p, 3, sysfs);
	assert_string_equal(list(&of), here[1]);
	assert_int_equal(of.near_node, 2);
	assert_int_equal(place("any", &p, NULL), 0);
	assert_true(!p.bound && !p.near_node);
}

static void a_card_whose_processors_may_not_be_used_binds_nothing(void **state)
{
	struct placement p;

	(void)state;
	card("mlx5_0", "1", "902-903");
	assert_int_equal(place(NULL, &p, NULL), 0);
	assert_false(p.bound);
	assert_int_equal(CPU_COUNT(&p.cpus), 0);
	assert_int_equal(p.near_node, 0);
}

static void a_card_that_tells_nothing_binds_nothing(void **state)
{
	static const char *const node[] = {"-1", "", "none", "1024", "99999999999"};
	struct placement p;

	(void)state;
	assert_int_equal(place(NULL, &p, NULL), 0); /* there is none */
	assert_true(!p.bound && !p.near_node);
	for (size_t i = 0; i < sizeof(node) / sizeof(node[0]); i++) {
		card("rxe0", node[i], both);
		assert_int_equal(place(NULL, &p, NULL), 0);
		assert_true(!p.bound && !p.near_node);
	}
	card("rxe0", "0", "nonsense");
	assert_int_equal(place(NULL, &p, NULL), 0);
	assert_true(!p.bound && !p.near_node);
}

static void of_one_node_the_kernel_chooses(void **state)
{
	struct placement p;

	(void)state;
	card("mlx5_0", "0", both);
	say("devices/system/node/online", "0");
	assert_int_equal(place(NULL, &p, NULL), 0);
	assert_true(!p.bound && !p.near_node);
}

/* ---- processors by name ---- */

static void named_ones_are_given_out_in_turn(void **state)
{
	struct placement p;

	(void)state;
	assert_int_equal(place(both, &p, NULL), 0);
	assert_true(p.bound && p.each);
	for (uint32_t i = 0; i < 3; i++) {
		const struct placement of = placement_of(&p, i, sysfs);

		assert_string_equal(list(&of), here[i % 2]);
		assert_int_equal(of.near_node, i % 2 + 1);
	}
}

static void what_may_not_be_used_is_refused(void **state)
{
	struct placement p;
	struct err err = ERR_INIT;
	char line[32];

	(void)state;
	(void)snprintf(line, sizeof(line), "%s,900", here[0]);
	assert_int_equal(place(line, &p, &err), -EINVAL);
	assert_non_null(strstr(err.text, ",900', of which this process may use 1 of 2"));
	assert_non_null(strstr(err.text, "Cpus_allowed_list"));
	assert_int_equal(place("fast ones", &p, &err), -EINVAL);
	assert_non_null(strstr(err.text, "card, any, or processors like 0-3,8"));
}

/* ---- the thread itself ---- */

struct seen {
	struct reactor *r;
	struct rmsg msg;
	struct offload off;
	cpu_set_t reactor, helper;
};

static void helped(struct offload *o)
{
	reactor_stop(container_of(o, struct seen, off)->r);
}

static void help(struct offload *o)
{
	struct seen *s = container_of(o, struct seen, off);

	assert_int_equal(sched_getaffinity(0, sizeof(s->helper), &s->helper), 0);
}

static void look(struct rmsg *m)
{
	struct seen *s = container_of(m, struct seen, msg);

	assert_int_equal(sched_getaffinity(0, sizeof(s->reactor), &s->reactor), 0);
	s->off = (struct offload){.work = help, .done = helped};
	reactor_offload_to(s->r, 1, &s->off);
}

static void a_reactor_runs_where_it_should_and_its_helpers_anywhere(void **state)
{
	struct reactor_opts o = {.near_node = 3};
	struct seen s = {.msg.fn = look};
	cpu_set_t all;

	(void)state;
	CPU_ZERO(&o.cpus);
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	for (size_t cpu = 0; !CPU_COUNT(&o.cpus); cpu++)
		if (CPU_ISSET(cpu, &all))
			CPU_SET(cpu, &o.cpus);
	assert_int_equal(reactor_new(&o, &s.r, NULL), 0);
	assert_int_equal(reactor_near_node(s.r), 3);
	assert_int_equal(reactor_start(s.r), 0);
	reactor_post(s.r, &s.msg);
	reactor_join(s.r);
	reactor_free(s.r);
	assert_true(CPU_EQUAL(&s.reactor, &o.cpus));
	assert_true(CPU_EQUAL(&s.helper, &all));
}

static bool two_processors(void)
{
	uint32_t found = 0;
	cpu_set_t usable;

	if (sched_getaffinity(0, sizeof(usable), &usable))
		return false;
	for (int cpu = 0; cpu < 900 && found < 2; cpu++)
		if (CPU_ISSET((size_t)cpu, &usable))
			(void)snprintf(here[found++], sizeof(here[0]), "%d", cpu);
	(void)snprintf(both, sizeof(both), "%s,%s", here[0], here[1]);
	return found == 2;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_are_read_as_the_kernel_writes_them),
		cmocka_unit_test_setup_teardown(reactors_stay_with_the_first_card, two_nodes,
						remove_all),
		cmocka_unit_test_setup_teardown(
			a_card_whose_processors_may_not_be_used_binds_nothing, two_nodes,
			remove_all),
		cmocka_unit_test_setup_teardown(a_card_that_tells_nothing_binds_nothing, two_nodes,
						remove_all),
		cmocka_unit_test_setup_teardown(of_one_node_the_kernel_chooses, two_nodes,
						remove_all),
		cmocka_unit_test_setup_teardown(named_ones_are_given_out_in_turn, two_nodes,
						remove_all),
		cmocka_unit_test_setup_teardown(what_may_not_be_used_is_refused, two_nodes,
						remove_all),
		cmocka_unit_test(a_reactor_runs_where_it_should_and_its_helpers_anywhere),
	};

	if (!two_processors()) {
		printf("SKIP: two processors are needed, and fewer than 900\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
