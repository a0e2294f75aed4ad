/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: of a pair of NameNodes only the newest claim to be active is obeyed, keys are
 * taken from both, one of another pool is not served, and they come and go while the node runs. */
#include "common/base/log.h"
#include "datanode/bp/bp_test_fixture.h"

static void second_namenode(struct fix *f)
{
	f->nn2.cluster = "CID-1";
	assert_int_equal(net_resolve("127.0.0.1", 0, &f->nn2.addr, NULL), 0);
	fake_start(&f->nn2);
}

/* ---- tests ---- */

static void a_standby_is_not_obeyed(void **state)
{
	struct fix *f = *state;
	struct replica_info i;

	f->nn.standby = true;
	up(f);
	make_block(f, 5);
	invalidate(f, 5, 5, true);
	assert_int_equal(replica_get(pool_of(f), 5, &i), 0);
}

static void both_up(struct fix *f)
{
	f->nn2.standby = true;
	second_namenode(f);
	up(f);
	eventually(f->nn2.registrations == 1 && f->nn2.fulls == 1 && f->nn2.beats > 1);
}

static void of_a_pair_only_the_newest_claim_is_obeyed(void **state)
{
	struct fix *f = *state;
	struct delete_order o;
	int seen;

	both_up(f);
	make_block(f, 5);
	make_block(f, 6);
	eventually(f->nn.received == 2 && f->nn2.received == 2); /* both hear of blocks */
	f->nn2.command = delete_order(&o, 5);
	eventually(!f->nn2.command);
	seen = f->nn2.beats;
	eventually(f->nn2.beats > seen + 2);
	assert_true(has_block(f, 5)); /* a standby's order */
	f->nn2.txid = 9;
	f->nn2.standby = false;
	seen = f->nn2.beats;
	eventually(f->nn2.beats > seen + 1);
	f->nn2.command = delete_order(&o, 5);
	eventually(!has_block(f, 5));
	/* The old one still believes that it leads. */
	f->nn.command = delete_order(&o, 6);
	eventually(!f->nn.command);
	seen = f->nn.beats;
	eventually(f->nn.beats > seen + 2);
	assert_true(has_block(f, 6));
}

static void keys_are_taken_from_a_standby_too(void **state)
{
	struct fix *f = *state;
	Hdd__DatanodeCommandProto cmd = HDD__DATANODE_COMMAND_PROTO__INIT;
	Hdd__KeyUpdateCommandProto ku = HDD__KEY_UPDATE_COMMAND_PROTO__INIT;
	Hd__ExportedBlockKeysProto keys = HD__EXPORTED_BLOCK_KEYS_PROTO__INIT;
	Hd__BlockKeyProto key = HD__BLOCK_KEY_PROTO__INIT;

	keys.isblocktokenenabled = true;
	keys.currentkey = &key;
	ku.keys = &keys;
	cmd.cmdtype = HDD__DATANODE_COMMAND_PROTO__TYPE__KeyUpdateCommand;
	cmd.keyupdatecmd = &ku;
	both_up(f);
	f->nn2.command = &cmd;
	eventually(keys_seen == 1);
}

static void a_namenode_of_another_pool_is_not_served_beside_the_first(void **state)
{
	struct fix *f = *state;

	f->nn2.pool = "BP-2-127.0.0.1-2";
	second_namenode(f);
	node_start(f);
	assert_int_equal(bp_wait_registered(f->set, WAIT_MS, &f->err), 0);
	eventually(f->nn.versions > 0 && f->nn2.versions > 0);
	nanosleep(&(struct timespec){0, 200000000}, NULL);
	/* Whichever came first. */
	assert_int_equal(f->nn.registrations + f->nn2.registrations, 1);
	assert_true(!dn_pool(&f->dn, POOL) != !dn_pool(&f->dn, "BP-2-127.0.0.1-2"));
}

static void namenodes_come_and_go_while_it_runs(void **state)
{
	struct fix *f = *state;
	struct conf *other = conf_new();
	struct delete_order o;
	char text[NET_TEXT_MAX];
	int beats;

	up(f);
	f->nn2.pool = "BP-9-127.0.0.1-9"; /* a name service of its own */
	second_namenode(f);
	assert_int_equal(conf_set(other, "dfs.nameservices", "x"), 0);
	assert_int_equal(
		conf_set(other, "dfs.namenode.rpc-address.x", net_text(&f->nn2.addr, text)), 0);
	assert_int_equal(bp_refresh(f->set, other, &f->err), 0);
	eventually(f->nn2.fulls == 1);
	assert_true(bp_serves_pool(f->set, "BP-9-127.0.0.1-9"));
	assert_false(bp_serves_pool(f->set, POOL));
	beats = f->nn.beats;
	nanosleep(&(struct timespec){0, 200000000}, NULL);
	assert_int_equal(f->nn.beats, beats);                    /* left */
	assert_int_equal(bp_refresh(f->set, other, &f->err), 0); /* nothing changes */
	assert_int_equal(f->nn2.registrations, 1);
	assert_int_equal(bp_refresh(f->set, f->conf, &f->err), 0);
	eventually(f->nn.registrations == 2);
	make_block(f, 5);
	f->nn.command = delete_order(&o, 5); /* it leads again, with the transaction of before */
	eventually(!has_block(f, 5));
	assert_int_equal(conf_set(other, "dfs.nameservices", "y"), 0);
	/* no address: stays as it is */
	assert_int_equal(bp_refresh(f->set, other, &f->err), -EINVAL);
	assert_true(bp_serves_pool(f->set, POOL));
	conf_free(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_standby_is_not_obeyed),
		T(of_a_pair_only_the_newest_claim_is_obeyed),
		T(keys_are_taken_from_a_standby_too),
		T(a_namenode_of_another_pool_is_not_served_beside_the_first),
		T(namenodes_come_and_go_while_it_runs),
	};

	log_init("bp_pair_test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
