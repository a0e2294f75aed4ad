/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a scripted NameNode on a real socket sees what Apache's wants to see:
 * registrations, heartbeats, reports and lifelines; a NameNode that goes away, restarts, or refuses
 * us is handled as the header says. */
#include "common/base/log.h"
#include "common/erasure/geometry.h"
#include "common/wire/rpc_frame.h"
#include "datanode/bp/bp_test_fixture.h"
#include "datanode/store/store_internal.h"

static void a_node_registers_beats_and_reports_under_a_lease(void **state)
{
	struct fix *f = *state;

	up(f);
	eventually(f->nn.beats > 3);
	assert_int_equal(f->nn.registrations, 1);
	assert_int_equal(f->nn.storages, 1);
	assert_int_equal(f->nn.last_lease, 4711);
	assert_int_equal(f->nn.last_replicas, 0);
}

static void a_finished_block_is_reported_at_once_and_a_deleted_one_soon(void **state)
{
	struct fix *f = *state;
	struct block b = {5, 1001, 5};

	up(f);
	make_block(f, 5);
	eventually(f->nn.received == 1);
	assert_int_equal(replica_invalidate(pool_of(f), &b, false), 0);
	eventually(f->nn.deleted == 1);
}

static bool is_to_be_told(struct fix *f, int64_t id, enum store_event event)
{
	struct bp_actor *a = &f->set->actors[0];
	struct ibr *e;
	bool found;

	pthread_mutex_lock(&a->lock);
	HASH_FIND(hh, a->pending, &id, sizeof(id), e);
	found = e && e->event == event;
	pthread_mutex_unlock(&a->lock);
	return found;
}

/* A NameNode that has not heard of a move knows the replica in its old directory. */
static void a_block_deleted_before_it_was_told_of_leads_to_a_full_report(void **state)
{
	struct fix *f = *state;
	struct block b = {5, 1001, 5};
	int fulls;

	up(f);
	fulls = f->nn.fulls;
	fake_stop(&f->nn);
	make_block(f, 5);
	eventually(is_to_be_told(f, 5, STORE_RECEIVED));
	assert_int_equal(replica_invalidate(pool_of(f), &b, false), 0);
	eventually(is_to_be_told(f, 5, STORE_DELETED));
	fake_start(&f->nn);
	/* a call that was on its way all the while may have told of it after all */
	eventually(f->nn.deleted == 1 && (f->nn.fulls > fulls || f->nn.received == 1));
}

/* A NameNode that looks at groups only would take the second unit for deleted, too. */
static void a_deleted_unit_takes_no_other_one_along(void **state)
{
	struct fix *f = *state;
	struct block b = {ec_id_of(EC_GROUP_ID_FIRST, 6), 1001, 5};

	up(f);
	make_block(f, b.id);
	make_block(f, ec_id_of(EC_GROUP_ID_FIRST, 3));
	make_block(f, ec_id_of(EC_GROUP_ID_FIRST + EC_UNITS_MAX, 3)); /* another group */
	eventually(f->nn.received == 3);
	assert_int_equal(replica_invalidate(pool_of(f), &b, false), 0);
	eventually(f->nn.deleted == 1 && f->nn.received == 4);
	assert_true(f->nn.last_told == ec_id_of(EC_GROUP_ID_FIRST, 3));
}

static void a_restarted_namenode_gets_a_registration_and_a_full_report(void **state)
{
	struct fix *f = *state;
	struct replica_info info;

	up(f);
	make_block(f, 5);
	eventually(f->nn.received == 1);
	assert_int_equal(replica_get(pool_of(f), 5, &info), 0);
	replica_report_bad(pool_of(f), &info, "the test says so");
	eventually(f->nn.bad == 1);
	f->nn.ask_register = true;
	eventually(f->nn.registrations == 2 && f->nn.fulls == 2);
	eventually(f->nn.bad == 2); /* it has forgotten what it was told */
	assert_int_equal(f->nn.last_replicas, 1);
	assert_int_equal(f->nn.versions, 2);
}

static void events_during_an_absence_are_told_after_it(void **state)
{
	struct fix *f = *state;
	int beats;

	up(f);
	fake_stop(&f->nn);
	make_block(f, 5);
	make_block(f, 6);
	nanosleep(&(struct timespec){0, 200000000}, NULL);
	beats = f->nn.beats;
	fake_start(&f->nn);
	eventually(f->nn.beats > beats && f->nn.received == 2);
}

static void a_replica_whose_writer_left_is_not_reported_as_being_received(void **state)
{
	struct fix *f = *state;
	struct replica_writer *w;
	int beats;

	up(f);
	fake_stop(&f->nn);
	replica_write_close(write_block(f, 5), false);
	replica_write_close(write_block(f, 6), true);
	make_block(f, 7);
	w = write_block(f, 8);
	fake_start(&f->nn);
	eventually(f->nn.received == 1 && f->nn.receiving > 0);
	beats = f->nn.beats;
	eventually(f->nn.beats > beats + 1);
	assert_int_equal(f->nn.receiving, 1);
	replica_write_close(w, false);
}

static void without_the_capability_the_report_is_a_long_list(void **state)
{
	struct fix *f = *state;

	f->nn.no_buffers = true;
	up(f);
	make_block(f, 5);
	replica_write_close(write_block(f, 6), false);
	assert_int_equal(bp_trigger_report(f->set, false, NULL, &f->err), 0);
	eventually(f->nn.fulls == 2);
	assert_int_equal(f->nn.last_replicas, 2);
	assert_int_equal(f->nn.last_finalized, 1);
	assert_int_equal(f->nn.last_lease, 0); /* triggered by hand: none */
}

static void directories_of_another_cluster_end_it_with_the_reason(void **state)
{
	struct fix *f = *state;

	up(f);
	node_stop(f);
	f->nn.cluster = "CID-2";
	node_start(f);
	assert_int_equal(bp_wait_registered(f->set, WAIT_MS, &f->err), -EINVAL);
	assert_non_null(strstr(f->err.text, "CID-1"));
	assert_non_null(strstr(f->err.text, "CID-2"));
	assert_true(bp_is_dead(f->set, &f->err));
}

static void one_that_does_not_admit_us_may_yet(void **state)
{
	struct fix *f = *state;

	f->nn.refuse = JEX_DISALLOWED_NODE;
	node_start(f);
	eventually(bp_wait_registered(f->set, 10, &f->err) == -ETIMEDOUT &&
		   strstr(f->err.text, "dfs.hosts"));
	assert_non_null(strstr(f->err.text, "you may not"));
	assert_false(bp_is_dead(f->set, &f->err));
}

static void a_refusal_of_a_node_that_served_is_final(void **state)
{
	struct fix *f = *state;

	up(f);
	f->nn.beat_throws = JEX_UNREGISTERED_NODE;
	eventually(bp_is_dead(f->set, &f->err));
	assert_non_null(strstr(f->err.text, "formatted anew"));
	assert_non_null(strstr(f->err.text, "another namespace"));
}

static void a_failed_volume_and_a_corrupt_replica_are_reported(void **state)
{
	struct fix *f = *state;
	struct storage_info s;
	struct block b = {5, 1001, 5};
	char cmd[256];

	f->volumes = 2;
	up(f);
	eventually(f->nn.storages == 2);
	make_block(f, 5);
	bp_report_bad(f->set, pool_of(f), "DS-x", &b);
	eventually(f->nn.bad == 1);
	store_volume_info(f->dn.store, 0, pool_of(f), &s);
	(void)snprintf(cmd, sizeof(cmd), "mv %s/current %s/gone", f->path[0], f->path[0]);
	assert_int_equal(system(cmd), 0);
	store_volume_suspect(f->dn.store, s.uuid);
	eventually(f->nn.storages == 1 && f->nn.failed == 1 && f->nn.errors == 1);
}

static void addresses_come_from_name_services_first(void **state)
{
	struct conf *c = conf_new();
	struct nn_addr a[4];
	struct err err = ERR_INIT;
	uint32_t n = 0;

	(void)state;
	assert_int_equal(nn_addrs(c, a, 4, &n, &err), -EINVAL); /* the default is for clients */
	assert_non_null(strstr(err.text, "no NameNode is configured"));
	assert_int_equal(conf_set(c, "dfs.namenode.rpc-address", "two:9001"), 0);
	assert_int_equal(nn_addrs(c, a, 4, &n, &err), 0);
	assert_string_equal(a[0].text, "two:9001");
	assert_int_equal(conf_set(c, "dfs.namenode.rpc-address", ""), 0);
	assert_int_equal(conf_set(c, "fs.defaultFS", "hdfs://one:9000"), 0);
	assert_int_equal(nn_addrs(c, a, 4, &n, &err), 0);
	assert_int_equal(n, 1);
	assert_string_equal(a[0].text, "one:9000");
	assert_int_equal(conf_set(c, "dfs.nameservices", "ns1"), 0);
	assert_int_equal(nn_addrs(c, a, 4, &n, &err), -EINVAL);
	assert_non_null(strstr(err.text, "ns1"));
	assert_int_equal(conf_set(c, "dfs.ha.namenodes.ns1", "a,b"), 0);
	assert_int_equal(conf_set(c, "dfs.namenode.rpc-address.ns1.a", "h1:8020"), 0);
	assert_int_equal(conf_set(c, "dfs.namenode.rpc-address.ns1.b", "h2:8020"), 0);
	assert_int_equal(conf_set(c, "dfs.namenode.servicerpc-address.ns1.b", "h2:8021"), 0);
	assert_int_equal(nn_addrs(c, a, 4, &n, &err), 0);
	assert_int_equal(n, 2);
	assert_string_equal(a[0].text, "h1:8020");
	assert_string_equal(a[1].text, "h2:8021");
	conf_free(c);
}

static void a_namenode_formatted_anew_is_not_served_and_nothing_is_deleted(void **state)
{
	struct fix *f = *state;
	int versions, registrations;

	up(f);
	make_block(f, 5);
	eventually(f->nn.received == 1);
	f->nn.pool = "BP-3-127.0.0.1-3";
	versions = f->nn.versions;
	registrations = f->nn.registrations;
	f->nn.ask_register = true;
	eventually(f->nn.versions > versions);
	nanosleep(&(struct timespec){0, 200000000}, NULL);
	assert_int_equal(f->nn.registrations, registrations);
	assert_null(dn_pool(&f->dn, "BP-3-127.0.0.1-3"));
	assert_true(has_block(f, 5));
	assert_false(bp_is_dead(f->set, &f->err)); /* the right one may come back */
	f->nn.pool = NULL;
	eventually(f->nn.registrations > registrations);
	assert_true(has_block(f, 5));
}

static void incremental_reports_are_gathered_for_their_interval(void **state)
{
	struct fix *f = *state;
	uint64_t start;

	f->conf_set[0][0] = "dfs.blockreport.incremental.intervalMsec";
	f->conf_set[0][1] = "3000";
	up(f);
	make_block(f, 5); /* the first one goes at once */
	eventually(f->nn.received == 1);
	start = clock_mono_ns();
	make_block(f, 6);
	make_block(f, 7);
	eventually(f->nn.received == 3);
	/* we may have seen the first one late */
	assert_true(clock_mono_ns() - start >= 500 * NS_PER_MS);
}

static void above_the_threshold_each_storage_is_reported_by_itself(void **state)
{
	struct fix *f = *state;

	f->volumes = 2;
	f->conf_set[0][0] = "dfs.blockreport.split.threshold";
	f->conf_set[0][1] = "0";
	up(f); /* nothing there yet: 0 is not above 0 */
	make_block(f, 5);
	make_block(f, 6);
	assert_int_equal(bp_trigger_report(f->set, false, NULL, &f->err), 0);
	eventually(f->nn.fulls == 3);
	assert_int_equal(f->nn.last_rpcs, 2);
}

static void an_old_namenode_is_refused_with_the_cure(void **state)
{
	struct fix *f = *state;

	f->nn.version = "2.0.6-alpha";
	node_start(f);
	assert_int_equal(bp_wait_registered(f->set, WAIT_MS, &f->err), -EINVAL);
	assert_non_null(strstr(f->err.text, "2.0.6-alpha"));
	assert_non_null(strstr(f->err.text, "upgrade the NameNode"));
	assert_int_equal(f->nn.registrations, 0);
}

static void versions_are_compared_by_their_numbers(void **state)
{
	struct fix *f = *state;

	f->nn.version = "10.0.0-SNAPSHOT";
	up(f);
	assert_int_equal(f->nn.fulls, 1);
}

static void lifelines_go_out_when_heartbeats_do_not_get_through(void **state)
{
	struct fix *f = *state;
	char text[NET_TEXT_MAX];

	f->conf_set[0][0] = "dfs.namenode.lifeline.rpc-address";
	f->conf_set[0][1] = net_text(&f->nn.addr, text);
	f->conf_set[1][0] = "dfs.datanode.lifeline.interval.seconds";
	f->conf_set[1][1] = "1";
	up(f);
	nanosleep(&(struct timespec){0, 300000000}, NULL);
	assert_int_equal(f->nn.lifelines, 0);
	f->nn.beat_throws = "org.apache.hadoop.ipc.RetriableException";
	eventually(f->nn.lifelines >= 1);
}

static void slow_peers_and_disks_ride_in_a_heartbeat(void **state)
{
	struct fix *f = *state;
	char name[32];

	for (int i = 0; i < 10; i++) {
		(void)snprintf(name, sizeof(name), "10.0.0.%d:9864", i);
		outliers_add(f->outliers, OUTLIER_PEER, name, (i ? 2000 : 200000) * NS_PER_MS,
			     1000);
		outliers_add(f->outliers, OUTLIER_DISK_READ, name, (i ? 2 : 900) * NS_PER_MS, 1);
		outliers_add(f->outliers, OUTLIER_DISK_WRITE, name, (i ? 2 : 900) * NS_PER_MS, 1);
	}
	up(f);
	eventually(f->nn.beats > 3);
	assert_int_equal(f->nn.slow_peers + f->nn.slow_disks, 0); /* not asked for */
	f->dn.live.peer_stats = 1;
	f->dn.live.io_sampling_percent = 1;
	eventually(f->nn.slow_peers == 1 && f->nn.slow_disks == 1);
	eventually(f->nn.beats > 8);
	assert_int_equal(f->nn.slow_peers, 1); /* once in the interval */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_node_registers_beats_and_reports_under_a_lease),
		T(a_finished_block_is_reported_at_once_and_a_deleted_one_soon),
		T(a_block_deleted_before_it_was_told_of_leads_to_a_full_report),
		T(a_deleted_unit_takes_no_other_one_along),
		T(a_restarted_namenode_gets_a_registration_and_a_full_report),
		T(events_during_an_absence_are_told_after_it),
		T(a_replica_whose_writer_left_is_not_reported_as_being_received),
		T(without_the_capability_the_report_is_a_long_list),
		T(directories_of_another_cluster_end_it_with_the_reason),
		T(one_that_does_not_admit_us_may_yet),
		T(a_refusal_of_a_node_that_served_is_final),
		T(a_failed_volume_and_a_corrupt_replica_are_reported),
		T(a_namenode_formatted_anew_is_not_served_and_nothing_is_deleted),
		T(incremental_reports_are_gathered_for_their_interval),
		T(above_the_threshold_each_storage_is_reported_by_itself),
		T(an_old_namenode_is_refused_with_the_cure),
		T(versions_are_compared_by_their_numbers),
		T(lifelines_go_out_when_heartbeats_do_not_get_through),
		T(slow_peers_and_disks_ride_in_a_heartbeat),
		cmocka_unit_test(addresses_come_from_name_services_first),
	};

	log_init("bp_test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
