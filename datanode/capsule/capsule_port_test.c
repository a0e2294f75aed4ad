/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a node lets others READ where blocks may be cached, and asks for no READs of its
 * own: one that does not know of them would refuse it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/link/capsule_link.h"
#include "datanode/capsule/capsule_internal.h"

static struct verbs_opts seen;
static int hot_inits;
static char some;

/* ---- what is below and beside it ---- */

const struct verbs_protocol capsule_link;

int verbs_new(struct reactor *r, const struct verbs_opts *o, struct verbs **ret, struct err *err)
{
	(void)r, (void)err;
	seen = *o;
	*ret = (struct verbs *)&some;
	return 0;
}

static bool is_stuck;
bool verbs_free(struct verbs *v)
{
	assert_ptr_equal(v, &some);
	return !is_stuck;
}

int verbs_listen(struct verbs *v, const struct xlistener_opts *o, struct err *err)
{
	(void)v, (void)o, (void)err;
	return 0;
}

void verbs_unlisten(struct verbs *v)
{
	(void)v;
}

uint32_t verbs_device_count(void)
{
	return 1;
}

int verbs_tuning_read(const struct conf *c, struct verbs_tuning *ret, struct err *err)
{
	(void)c, (void)err;
	*ret = (struct verbs_tuning){0};
	return 0;
}

int verbs_windows_read(const struct conf *c, enum verbs_windows *ret, struct err *err)
{
	(void)c, (void)err;
	*ret = VERBS_WINDOWS_AUTO;
	return 0;
}

void rails_init(struct rails *t, bool off)
{
	(void)t, (void)off;
}

void rails_fini(struct rails *t)
{
	(void)t;
}

int pool_new(const struct pool_opts *opts, struct pool **ret, struct err *err)
{
	(void)opts, (void)ret, (void)err;
	fail();
	return -1;
}

void pool_free(struct pool *p)
{
	assert_null(p);
}

uint32_t pool_slots_out(const struct pool *p)
{
	(void)p;
	return 0;
}

uint32_t reactor_near_node(const struct reactor *r)
{
	(void)r;
	return 0;
}

void link_close(struct capsule_peer_link *l, int rc)
{
	(void)l, (void)rc;
}

void capsule_accept(void *caps, struct xconn *xc)
{
	(void)caps, (void)xc;
}

void capsule_dials_close(struct capsule_port *caps, bool idle_only)
{
	(void)caps, (void)idle_only;
}

void capsule_dials_free(struct capsule_port *caps)
{
	(void)caps;
}

void capsule_hot_init(struct capsule_port *caps)
{
	(void)caps;
	hot_inits++;
}

void capsule_hot_end(struct capsule_port *caps)
{
	(void)caps;
}

void capsule_hot_free(struct capsule_port *caps)
{
	(void)caps;
}

/* ---- the cases ---- */

static void starts(struct hot_copies *hot)
{
	struct dn dn = {.reactor_count = 1, .hot = hot};
	struct engine_core core = {.dn = &dn};
	struct conf *conf = conf_new();
	struct err err = ERR_INIT;

	dn.conf = conf;
	assert_int_equal(capsule_start(&core, &core, &err), 0);
	assert_non_null(core.caps);
	assert_true(seen.passive && seen.active);
	/* whoever has the pool is told */
	assert_int_equal(capsule_free(&core), !is_stuck);
	conf_free(conf);
}

static void who_dials_asks_for_no_reads_and_who_listens_answers_them(void **state)
{
	(void)state;
	starts((struct hot_copies *)&some);
	assert_int_equal(seen.features, 0);
	assert_int_equal(seen.accept_features, VERBS_ONESIDED);
}

static void where_nothing_may_be_cached_none_are_answered(void **state)
{
	(void)state;
	starts(NULL);
	assert_int_equal(seen.features, 0);
	assert_int_equal(seen.accept_features, 0);
}

static void who_has_the_pool_hears_that_a_device_keeps_it(void **state)
{
	(void)state;
	is_stuck = true;
	starts(NULL);
	is_stuck = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_dials_asks_for_no_reads_and_who_listens_answers_them),
		cmocka_unit_test(where_nothing_may_be_cached_none_are_answered),
		cmocka_unit_test(who_has_the_pool_hears_that_a_device_keeps_it),
	};

	return cmocka_run_group_tests_name("capsule_port", tests, NULL, NULL);
}
