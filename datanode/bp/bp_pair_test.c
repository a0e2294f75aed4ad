/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: of a pair of NameNodes only the newest claim to be active is obeyed, keys are
 * taken from both, one of another pool is not served, one of another name service has a say in its
 * own pool only, and they come and go while the node runs. */
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

/* With the transaction of the one that leads, which says nothing for the moment. */
static void a_claim_that_is_no_newer_is_not_obeyed(void **state)
{
	struct fix *f = *state;
	struct delete_order o;
	int seen;

	both_up(f);
	make_block(f, 5);
	f->nn.beat_throws = "java.lang.NullPointerException";
	seen = f->nn.beats;
	eventually(f->nn.beats > seen + 1);
	f->nn2.standby = false;
	seen = f->nn2.beats;
	eventually(f->nn2.beats > seen + 1);
	f->nn2.command = delete_order(&o, 5);
	eventually(!f->nn2.command);
	seen = f->nn2.beats;
	eventually(f->nn2.beats > seen + 2);
	assert_true(has_block(f, 5));
	f->nn.beat_throws = NULL;
	f->nn.command = delete_order(&o, 5); /* it leads still */
	eventually(!has_block(f, 5));
}

static void a_standby_does_not_empty_the_trash(void **state)
{
	struct fix *f = *state;
	struct delete_order o;
	int seen;

	f->nn.upgrade = 1;
	both_up(f);
	make_block(f, 5);
	seen = f->nn.beats;
	eventually(f->nn.beats > seen + 1);
	f->nn.command = delete_order(&o, 5);
	eventually(!has_block(f, 5) && f->nn.deleted == 1);
	f->nn2.upgrade = 2; /* it has not heard of it */
	seen = f->nn2.beats;
	eventually(f->nn2.beats > seen + 3);
	assert_int_equal(count_files(f->path[0], "blk_5"), 1);
	f->nn.upgrade = 2;
	eventually(count_files(f->path[0], "blk_5") == 0);
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

/* ---- two name services ---- */

#define OTHER_POOL "BP-9-127.0.0.1-9"

static void both_services_up(struct fix *f, char text[2][NET_TEXT_MAX])
{
	const char *const set[][2] = {
		{"dfs.nameservices", "x,y"},
		{"dfs.namenode.rpc-address.x", text[0]},
		{"dfs.namenode.rpc-address.y", text[1]},
		{"dfs.datanode.max.locked.memory", "8192"},
		{"dfs.cachereport.intervalMsec", "20"},
	};

	f->nn2.pool = OTHER_POOL;
	second_namenode(f);
	(void)net_text(&f->nn.addr, text[0]);
	(void)net_text(&f->nn2.addr, text[1]);
	memcpy(f->conf_set, set, sizeof(set));
	up(f);
	eventually(f->nn2.fulls == 1 && f->nn2.beats > 1);
}

/* Orders of one NameNode are obeyed in their turn: those before it are behind us. */
static void wait_obeyed(struct fix *f, struct fake *nn, uint64_t bandwidth)
{
	Hdd__DatanodeCommandProto cmd = HDD__DATANODE_COMMAND_PROTO__INIT;
	Hdd__BalancerBandwidthCommandProto bc = HDD__BALANCER_BANDWIDTH_COMMAND_PROTO__INIT;

	bc.bandwidth = bandwidth;
	cmd.cmdtype = HDD__DATANODE_COMMAND_PROTO__TYPE__BalancerBandwidthCommand;
	cmd.balancercmd = &bc;
	eventually(!nn->command);
	nn->command = &cmd;
	eventually(f->dn.live.balance_bandwidth == bandwidth);
}

static void one_name_service_deletes_no_block_of_another(void **state)
{
	struct fix *f = *state;
	char text[2][NET_TEXT_MAX];
	struct delete_order o;

	both_services_up(f, text);
	make_block(f, 5);
	f->nn2.command = delete_order(&o, 5);
	wait_obeyed(f, &f->nn2, 4711);
	nanosleep(&(struct timespec){0, 100000000}, NULL);
	assert_true(has_block(f, 5));
	f->nn.command = &o.cmd;
	eventually(!has_block(f, 5));
}

static void one_name_service_caches_no_block_of_another(void **state)
{
	Hdd__DatanodeCommandProto cmd = HDD__DATANODE_COMMAND_PROTO__INIT;
	Hdd__BlockIdCommandProto ids = HDD__BLOCK_ID_COMMAND_PROTO__INIT;
	struct fix *f = *state;
	char text[2][NET_TEXT_MAX];
	uint64_t id = 5;
	int seen;

	both_services_up(f, text);
	make_block(f, 5);
	ids.action = HDD__BLOCK_ID_COMMAND_PROTO__ACTION__CACHE;
	ids.blockpoolid = (char *)POOL;
	ids.n_blockids = 1;
	ids.blockids = &id;
	cmd.cmdtype = HDD__DATANODE_COMMAND_PROTO__TYPE__BlockIdCommand;
	cmd.blkidcmd = &ids;
	f->nn2.command = &cmd;
	wait_obeyed(f, &f->nn2, 4711);
	nanosleep(&(struct timespec){0, 100000000}, NULL);
	seen = f->nn.cache_reports;
	eventually(f->nn.cache_reports > seen + 1);
	assert_int_equal(f->nn.cached, 0);
	f->nn.command = &cmd;
	eventually(f->nn.cached == 1);
}

/* Nor its own, by an order for another one. */
static void one_name_service_ends_no_upgrade_of_another(void **state)
{
	static const char *const pools[] = {POOL, OTHER_POOL};
	Hdd__DatanodeCommandProto cmd = HDD__DATANODE_COMMAND_PROTO__INIT;
	Hdd__FinalizeCommandProto fc = HDD__FINALIZE_COMMAND_PROTO__INIT;
	struct fix *f = *state;
	char text[2][NET_TEXT_MAX], previous[2][256];

	both_services_up(f, text);
	for (int i = 0; i < 2; i++) {
		(void)snprintf(previous[i], sizeof(previous[i]), "%s/current/%s/previous",
			       f->path[0], pools[i]);
		assert_int_equal(mkdir(previous[i], 0755), 0);
	}
	fc.blockpoolid = (char *)POOL;
	cmd.cmdtype = HDD__DATANODE_COMMAND_PROTO__TYPE__FinalizeCommand;
	cmd.finalizecmd = &fc;
	f->nn2.command = &cmd;
	wait_obeyed(f, &f->nn2, 4711);
	nanosleep(&(struct timespec){0, 100000000}, NULL);
	assert_int_equal(access(previous[0], F_OK) | access(previous[1], F_OK), 0);
	f->nn.command = &cmd;
	eventually(access(previous[0], F_OK));
	assert_int_equal(access(previous[1], F_OK), 0);
}

static void namenodes_come_and_go_while_it_runs(void **state)
{
	struct fix *f = *state;
	struct conf *other = conf_new();
	struct delete_order o;
	char text[NET_TEXT_MAX];
	int beats;

	up(f);
	f->nn2.pool = OTHER_POOL; /* a name service of its own */
	second_namenode(f);
	assert_int_equal(conf_set(other, "dfs.nameservices", "x"), 0);
	assert_int_equal(
		conf_set(other, "dfs.namenode.rpc-address.x", net_text(&f->nn2.addr, text)), 0);
	assert_int_equal(bp_refresh(f->set, other, &f->err), 0);
	eventually(f->nn2.fulls == 1);
	assert_true(bp_serves_pool(f->set, OTHER_POOL));
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
		T(a_claim_that_is_no_newer_is_not_obeyed),
		T(a_standby_does_not_empty_the_trash),
		T(keys_are_taken_from_a_standby_too),
		T(a_namenode_of_another_pool_is_not_served_beside_the_first),
		T(one_name_service_deletes_no_block_of_another),
		T(one_name_service_caches_no_block_of_another),
		T(one_name_service_ends_no_upgrade_of_another),
		T(namenodes_come_and_go_while_it_runs),
	};

	log_init("bp_pair_test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
