/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold of startup safe mode: it is left when enough blocks are reported, enough nodes
 * live and the extension has passed, tested a moment before and a moment after; what is lost
 * meanwhile begins the extension anew; an administrator's safe mode stays. The clock is the test's.
 */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
// clang-format on
#include <string.h>
#include <time.h>

#include "common/base/clock.h"
#include "namenode-shim/rpc/batch_test_fixture.h"

#define EXTENSION_MS 30000

int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __real_clock_gettime(clockid_t id, struct timespec *ret);
static uint64_t clock_ms; /* 0: that of the machine */

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	if (!clock_ms || id == CLOCK_REALTIME)
		return __real_clock_gettime(id, ret);
	*ret = (struct timespec){(time_t)(clock_ms / 1000), (long)(clock_ms % 1000) * 1000000};
	return 0;
}

/* A NameNode that has just started with one block of one replica, and waits. */
static void begin(struct world *w)
{
	world_init(w, true);
	w->nn->safe = (struct safemode){.on = true, .startup = true, .total = 1};
	w->nn->set.safe_pct = 1;
	w->nn->set.safe_extension_ms = EXTENSION_MS;
	clock_ms = 1000000;
	nn_check_safe_mode(w->nn);
	assert_true(w->nn->safe.on);
}

static void end(struct world *w)
{
	clock_ms = 0;
	world_fini(w);
}

static bool is_on_after(struct world *w, uint64_t ms)
{
	clock_ms += ms;
	nn_check_safe_mode(w->nn);
	return w->nn->safe.on;
}

static void it_lasts_until_the_threshold_and_its_extension(void **state)
{
	char text[ERR_TEXT_MAX];
	struct world w;

	(void)state;
	begin(&w);
	assert_true(is_on_after(&w, 10 * EXTENSION_MS)); /* nothing is reported yet */
	assert_non_null(strstr(nn_safe_text(w.nn, text), "needs additional 1 blocks"));
	report(&w);
	assert_true(is_on_after(&w, 0));
	assert_true(is_on_after(&w, EXTENSION_MS - 1));
	assert_non_null(strstr(nn_safe_text(w.nn, text), "In safe mode extension."));
	assert_false(is_on_after(&w, 1));
	assert_false(w.nn->safe.startup);
	end(&w);
}

static void what_is_lost_meanwhile_begins_the_extension_anew(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	report(&w);
	assert_true(is_on_after(&w, 0));
	assert_true(is_on_after(&w, EXTENSION_MS - 1));
	blocks_report_deleted(&w.nn->blocks, w.st, w.block.id, 0);
	assert_true(is_on_after(&w, 10));
	report(&w);
	assert_true(is_on_after(&w, 0));
	assert_true(is_on_after(&w, EXTENSION_MS - 1));
	assert_false(is_on_after(&w, 1));
	end(&w);
}

static void it_waits_for_its_least_number_of_nodes(void **state)
{
	const struct dn_ident id = {"dn2", "127.0.0.2", "host2", "3.4.2", 9000, 1, 2, 0};
	char text[ERR_TEXT_MAX];
	struct world w;
	struct dn *dn;

	(void)state;
	begin(&w);
	w.nn->set.safe_nodes = 2;
	report(&w);
	assert_true(is_on_after(&w, 0)); /* its blocks are enough: no extension begins */
	assert_true(is_on_after(&w, 2 * EXTENSION_MS));
	assert_non_null(strstr(nn_safe_text(w.nn, text), "needs an additional 1 live datanodes"));
	assert_int_equal(datanodes_register(&w.nn->dns, &id, &dn), 0);
	dn->alive = true;
	assert_true(is_on_after(&w, 0));
	assert_true(is_on_after(&w, EXTENSION_MS - 1));
	assert_false(is_on_after(&w, 1));
	end(&w);
}

static void an_administrators_safe_mode_stays(void **state)
{
	char text[ERR_TEXT_MAX];
	struct world w;

	(void)state;
	begin(&w);
	w.nn->safe.manual = w.nn->blocks.quiet = true;
	report(&w);
	assert_true(is_on_after(&w, 0));
	assert_true(is_on_after(&w, 2 * EXTENSION_MS));
	assert_false(w.nn->safe.startup);
	assert_true(w.nn->blocks.quiet); /* and orders nothing */
	assert_non_null(strstr(nn_safe_text(w.nn, text), "It was turned on manually."));
	end(&w);
}

/* Of an empty name space nothing is to be reported. */
static void an_empty_start_has_no_extension(void **state)
{
	struct world w;

	(void)state;
	world_init(&w, false);
	w.nn->safe =
		(struct safemode){.on = true, .startup = true, .empty_start = true, .total = 0};
	w.nn->set.safe_extension_ms = EXTENSION_MS;
	clock_ms = 1000000;
	assert_false(is_on_after(&w, 0));
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_lasts_until_the_threshold_and_its_extension),
		cmocka_unit_test(what_is_lost_meanwhile_begins_the_extension_anew),
		cmocka_unit_test(it_waits_for_its_least_number_of_nodes),
		cmocka_unit_test(an_administrators_safe_mode_stays),
		cmocka_unit_test(an_empty_start_has_no_extension),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
