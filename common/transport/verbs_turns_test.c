/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets memory windows when they are few. What must hold: who finds none spare gets one in its
 * turn; a peer that reads nothing leaves some to the other connections, and those who wait for it
 * hold up nobody; what a connection had is others' when it is lost. */
#include "common/transport/verbs_expose_test_fixture.h"

#define SHARE (WINDOWS / VERBS_SHARE_OF * VERBS_SHARE / VERBS_EXPOSURES) /* requests */
#define ALL (WINDOWS / VERBS_EXPOSURES)
#define PEERS 3u

static struct vconn *peer[PEERS];

static int setup(void **state)
{
	const int rc = stage_up(state);

	if (rc)
		return rc;
	peer[0] = ((struct stage *)*state)->c;
	for (uint16_t i = 1; i < PEERS; i++)
		peer[i] = conn_new(*state, i);
	return 0;
}

static int teardown(void **state)
{
	for (uint32_t i = 0; i < PEERS; i++)
		if (peer[i] && peer[i] != ((struct stage *)*state)->c)
			conn_drop(peer[i]);
	return stage_down(state);
}

struct asker {
	struct rop rop;
	struct vconn *c;
	struct verbs_turn turn;
	struct verbs_exposure e[VERBS_EXPOSURES];
};

static void asker_init(struct asker *a, struct vconn *c)
{
	*a = (struct asker){.c = c};
	rop_init(&a->rop, NULL, NULL);
	a->turn.rop = &a->rop;
}

static bool is_ready(struct asker *a)
{
	const bool ready = list_is_linked(&a->rop.ready_link);

	list_del(&a->rop.ready_link);
	return ready;
}

static bool takes(struct stage *s, struct asker *a)
{
	struct xremote at;

	if (!verbs_turn_take(&a->c->x, &a->turn))
		return false;
	for (uint32_t i = 0; i < VERBS_EXPOSURES; i++) {
		a->e[i] = (struct verbs_exposure){.slot = s->slot, .len = 512};
		assert_int_equal(verbs_expose(&a->c->x, &a->e[i], &at), 0);
	}
	verbs_turn_end(&a->turn);
	return true;
}

static void waits(struct stage *s, struct asker *a, struct vconn *c)
{
	asker_init(a, c);
	assert_false(takes(s, a));
	verbs_turn_wait(&c->x, &a->turn);
	assert_false(takes(s, a)); /* it waits */
}

static void turn_all(struct stage *s)
{
	for (uint32_t i = 0; i < PEERS; i++)
		if (peer[i])
			(void)vconn_step(&peer[i]->rop);
	vdev_drain(&s->d);
}

static void gives_back(struct stage *s, struct asker *a, bool now)
{
	turn_all(s);
	for (uint32_t i = 0; i < VERBS_EXPOSURES; i++)
		verbs_cover(&a->e[i], now);
	turn_all(s);
}

/* All of them: of the first two connections their shares, of the last one what is left. */
static void take_all(struct stage *s, struct asker has[ALL])
{
	for (uint32_t i = 0; i < ALL; i++) {
		asker_init(&has[i], peer[i / SHARE]);
		assert_true(takes(s, &has[i]));
	}
	assert_int_equal(spare(s), 0);
}

static void windows_go_to_whoever_waits_first(void **state)
{
	struct stage *s = *state;
	struct asker has[ALL], wants[3];

	take_all(s, has);
	for (uint32_t i = 0; i < 3; i++)
		waits(s, &wants[i], peer[2]);
	gives_back(s, &has[0], false); /* at once, as somebody waits */
	assert_true(is_ready(&wants[0]));
	assert_false(is_ready(&wants[1]));
	assert_false(takes(s, &has[0])); /* nobody overtakes */
	assert_true(takes(s, &wants[0]));
	verbs_turn_end(&wants[1].turn); /* it gives up */
	gives_back(s, &has[1], false);
	assert_true(is_ready(&wants[2]));
	verbs_turn_end(&wants[2].turn); /* it does not need it */
	assert_true(takes(s, &has[1]));
	for (uint32_t i = 1; i < ALL; i++)
		gives_back(s, &has[i], true);
	gives_back(s, &wants[0], true);
	assert_int_equal(spare(s), WINDOWS);
	assert_int_equal(s->d.slots->reserved, 0);
	for (uint32_t i = 0; i < PEERS; i++)
		assert_int_equal(peer[i]->exposed_count + peer[i]->reserved, 0);
}

/* It is asked for more and more, and reads nothing. */
static void a_peer_that_reads_nothing_leaves_windows_to_others(void **state)
{
	struct stage *s = *state;
	struct asker has[SHARE], wants[2], other[SHARE];

	for (uint32_t i = 0; i < SHARE; i++) {
		assert_false(verbs_has_its_share(&peer[0]->x));
		asker_init(&has[i], peer[0]);
		assert_true(takes(s, &has[i]));
	}
	assert_true(verbs_has_its_share(&peer[0]->x));
	for (uint32_t i = 0; i < 2; i++)
		waits(s, &wants[i], peer[0]);
	for (uint32_t i = 0; i < SHARE; i++) { /* they wait behind nobody */
		asker_init(&other[i], peer[1]);
		assert_true(takes(s, &other[i]));
	}
	gives_back(s, &other[0], false);
	assert_false(is_ready(&wants[0])); /* of another's it has no use */
	assert_true(takes(s, &other[0]));
	gives_back(s, &has[0], false);
	assert_true(is_ready(&wants[0]));
	assert_false(is_ready(&wants[1])); /* what is reserved counts, too */
	assert_true(takes(s, &wants[0]));
	for (uint32_t i = 1; i < SHARE; i++)
		gives_back(s, &has[i], true);
	assert_true(is_ready(&wants[1]));
	verbs_turn_end(&wants[1].turn);
	gives_back(s, &wants[0], true);
	for (uint32_t i = 0; i < SHARE; i++)
		gives_back(s, &other[i], true);
	assert_int_equal(spare(s), WINDOWS);
	assert_int_equal(peer[0]->reserved, 0);
}

static void who_waits_behind_one_whose_share_is_used_up_passes(void **state)
{
	struct stage *s = *state;
	struct asker has[ALL], stuck, wants;

	take_all(s, has);
	waits(s, &stuck, peer[0]);
	waits(s, &wants, peer[2]);
	gives_back(s, &has[SHARE], false); /* of the second one */
	assert_false(is_ready(&stuck));
	assert_true(is_ready(&wants));
	assert_true(takes(s, &wants));
	verbs_turn_end(&stuck.turn);
	for (uint32_t i = 0; i < ALL; i++)
		if (i != SHARE)
			gives_back(s, &has[i], true);
	gives_back(s, &wants, true);
	assert_int_equal(spare(s), WINDOWS);
}

static void windows_of_a_lost_connection_go_to_those_who_wait(void **state)
{
	struct stage *s = *state;
	struct vconn *lost = peer[0];
	struct asker has[ALL], wants, late, early;

	asker_init(&early, lost); /* it never uses what it has reserved */
	assert_true(verbs_turn_take(&lost->x, &early.turn));
	verbs_turn_end(&early.turn);
	take_all(s, has);
	waits(s, &wants, peer[2]);
	waits(s, &late, lost);
	vconn_fail(lost, -ECONNRESET, "a test");
	vconn_exposed_revoke(lost);
	while (vmemory_turn(&s->control))
		;
	assert_false(is_ready(&wants));
	vconn_exposed_end(lost);
	assert_true(is_ready(&wants));
	s->c = peer[1];
	conn_drop(lost);
	peer[0] = NULL;
	assert_true(is_ready(&late)); /* the connection is gone, and it has not said so yet */
	verbs_turn_end(&late.turn);
	assert_true(takes(s, &wants));
	gives_back(s, &wants, true);
	for (uint32_t i = SHARE; i < ALL; i++)
		gives_back(s, &has[i], true);
	assert_int_equal(spare(s), WINDOWS);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(windows_go_to_whoever_waits_first),
		CASE(a_peer_that_reads_nothing_leaves_windows_to_others),
		CASE(who_waits_behind_one_whose_share_is_used_up_passes),
		CASE(windows_of_a_lost_connection_go_to_those_who_wait),
	};

	return cmocka_run_group_tests_name("verbs_turns", tests, NULL, NULL);
}
