/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a node tells those of its addresses that an RDMA device has, whom others can
 * reach and its operator wants, and looks again for them when some time has passed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include "common/transport/verbs_internal.h"

#define ADDRS 8

static struct ibv_device device[ADDRS + 1];
static struct ibv_context ctx[ADDRS + 1]; /* the last one is that of the connection */
static struct rdma_cm_id the_id;
static struct {
	struct ifaddrs list[ADDRS];
	struct sockaddr_storage at[ADDRS];
	uint32_t count, looks, ids;
	bool no_device;
	uint32_t on[ADDRS]; /* which device an address is on; at first one each */
} m;

int __wrap_getifaddrs(struct ifaddrs **ret);
void __wrap_freeifaddrs(struct ifaddrs *all);
int __wrap_rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **ret, void *arg,
			  enum rdma_port_space ps);
int __wrap_rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *a);
int __wrap_rdma_destroy_id(struct rdma_cm_id *id);

int __wrap_getifaddrs(struct ifaddrs **ret)
{
	m.looks++;
	*ret = m.count ? m.list : NULL;
	return 0;
}

void __wrap_freeifaddrs(struct ifaddrs *all)
{
	(void)all;
}

int __wrap_rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **ret, void *arg,
			  enum rdma_port_space ps)
{
	(void)channel;
	(void)arg;
	(void)ps;
	m.ids++;
	the_id = (struct rdma_cm_id){0};
	*ret = &the_id;
	return 0;
}

int __wrap_rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *a)
{
	const size_t len =
		a->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

	id->verbs = NULL;
	for (uint32_t i = 0; i < m.count && !m.no_device; i++)
		if (!memcmp(&m.at[i], a, len))
			id->verbs = &ctx[m.on[i]];
	return 0;
}

int __wrap_rdma_destroy_id(struct rdma_cm_id *id)
{
	(void)id;
	m.ids--;
	return 0;
}

static void has(const char *ip, unsigned int flags)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)&m.at[m.count];
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&m.at[m.count];

	if (inet_pton(AF_INET, ip, &v4->sin_addr) == 1)
		v4->sin_family = AF_INET;
	else if (inet_pton(AF_INET6, ip, &v6->sin6_addr) == 1)
		v6->sin6_family = AF_INET6;
	m.list[m.count] =
		(struct ifaddrs){.ifa_flags = flags, .ifa_addr = (struct sockaddr *)&m.at[m.count]};
	if (m.count)
		m.list[m.count - 1].ifa_next = &m.list[m.count];
	m.count++;
}

static struct verbs_control *k;
static struct verbs v;
static struct rdma_cm_id conn_id = {.verbs = &ctx[ADDRS]};
static struct vconn conn = {.v = &v, .id = &conn_id};
static struct vcard card = {.ctx = &ctx[1]};

static int begin(void **state)
{
	(void)state;
	memset(&m, 0, sizeof(m));
	for (uint32_t i = 0; i < ADDRS; i++)
		m.on[i] = i;
	for (uint32_t i = 0; i <= ADDRS; i++) {
		snprintf(device[i].name, sizeof(device[i].name), "card%u", i);
		device[i].transport_type = IBV_TRANSPORT_IB;
		ctx[i].device = &device[i];
	}
	card.failed = false;
	k = calloc(1, sizeof(*k));
	assert_non_null(k);
	pthread_mutex_init(&k->lock, NULL);
	list_init(&k->cards);
	list_add_tail(&k->cards, &card.link);
	k->node = 77;
	v = (struct verbs){.control = k, .tuning = verbs_tuning_default};
	assert_int_equal(net_resolve("0.0.0.0", 9866, &v.listener.addr, NULL), 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	list_del(&card.link);
	pthread_mutex_destroy(&k->lock);
	free(k);
	return 0;
}

/* "10.0.0.1 10.1.0.1 " */
static void tells(const char *want)
{
	struct verbs_hello h = {0};
	char got[VERBS_RAILS * NET_TEXT_MAX] = "", ip[INET6_ADDRSTRLEN];
	int at = 0;

	rails_tell(&conn, &h);
	assert_int_equal(h.node, 77);
	for (uint8_t i = 0; i < h.rails; i++) {
		assert_non_null(inet_ntop(AF_INET6, h.rail[i], ip, sizeof(ip)));
		at += snprintf(got + at, sizeof(got) - (size_t)at, "%s ",
			       strncmp(ip, "::ffff:", 7) ? ip : ip + 7);
	}
	assert_string_equal(got, want);
	assert_int_equal(m.ids, 0);
}

static void addresses_of_rdma_devices_are_told(void **state)
{
	(void)state;
	has("127.0.0.1", IFF_UP | IFF_LOOPBACK);
	has("10.0.0.1", IFF_UP);
	has("10.1.0.1", 0);
	m.list[m.count - 1].ifa_addr = NULL;
	has("10.2.0.1", IFF_UP);
	has("10.3.0.1", 0); /* down */
	has("fd00::1", IFF_UP);
	tells("10.0.0.1 10.2.0.1 ");
}

static void one_without_a_device_is_not(void **state)
{
	(void)state;
	has("10.0.0.1", IFF_UP);
	m.no_device = true;
	tells("");
}

static void nor_one_whose_device_has_failed(void **state)
{
	(void)state;
	has("10.0.0.1", IFF_UP);
	has("10.1.0.1", IFF_UP); /* the second one */
	card.failed = true;
	tells("10.0.0.1 ");
}

static void nor_one_on_a_card_that_takes_no_connections(void **state)
{
	(void)state;
	has("10.0.0.1", IFF_UP);
	has("10.1.0.1", IFF_UP);
	device[0].transport_type = IBV_TRANSPORT_IWARP;
	tells("10.1.0.1 ");
}

/* Another queue pair on the same device is no other way. */
static void one_address_of_a_device_is_told_and_none_of_that_of_the_connection(void **state)
{
	(void)state;
	has("10.0.0.1", IFF_UP);
	has("10.0.0.2", IFF_UP);
	has("10.1.0.1", IFF_UP);
	m.on[1] = 0;
	tells("10.0.0.1 10.1.0.1 ");
	m.on[0] = m.on[1] = ADDRS;
	k->rails_ns -= 6 * NS_PER_S;
	tells("10.1.0.1 ");
}

static void four_are_told_at_most(void **state)
{
	(void)state;
	has("10.0.0.1", IFF_UP);
	has("10.1.0.1", IFF_UP);
	has("10.2.0.1", IFF_UP);
	has("10.3.0.1", IFF_UP);
	has("10.4.0.1", IFF_UP);
	tells("10.0.0.1 10.1.0.1 10.2.0.1 10.3.0.1 ");
}

static void a_listener_on_ipv6_tells_both(void **state)
{
	(void)state;
	assert_int_equal(net_resolve("::", 9866, &v.listener.addr, NULL), 0);
	has("10.0.0.1", IFF_UP);
	has("fd00::1", IFF_UP);
	has("fe80::1", IFF_UP); /* means something on one link alone */
	has("169.254.0.1", IFF_UP);
	tells("10.0.0.1 fd00::1 ");
}

static void a_listener_on_one_address_tells_none(void **state)
{
	(void)state;
	assert_int_equal(net_resolve("10.0.0.1", 9866, &v.listener.addr, NULL), 0);
	has("10.0.0.1", IFF_UP);
	has("10.1.0.1", IFF_UP);
	tells("");
	assert_int_equal(m.looks, 0);
}

static void the_operator_chooses(void **state)
{
	static const struct in_addr want = {.s_addr = 0};
	struct in_addr v4 = want;

	(void)state;
	has("10.0.0.1", IFF_UP);
	has("10.1.0.1", IFF_UP);
	assert_int_equal(inet_pton(AF_INET, "10.1.0.1", &v4), 1);
	rail_from_v4(&v4, v.tuning.rail[0]);
	v.tuning.rails = 1;
	tells("10.1.0.1 ");
	v.tuning = verbs_tuning_default;
	v.tuning.use_rails = false;
	tells("");
}

static void they_are_looked_for_again_after_a_while(void **state)
{
	(void)state;
	has("10.0.0.1", IFF_UP);
	tells("10.0.0.1 ");
	has("10.1.0.1", IFF_UP);
	tells("10.0.0.1 ");
	assert_int_equal(m.looks, 1);
	k->rails_ns -= 6 * NS_PER_S;
	tells("10.0.0.1 10.1.0.1 ");
	assert_int_equal(m.looks, 2);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		CASE(addresses_of_rdma_devices_are_told),
		CASE(one_without_a_device_is_not),
		CASE(nor_one_whose_device_has_failed),
		CASE(nor_one_on_a_card_that_takes_no_connections),
		CASE(one_address_of_a_device_is_told_and_none_of_that_of_the_connection),
		CASE(four_are_told_at_most),
		CASE(a_listener_on_ipv6_tells_both),
		CASE(a_listener_on_one_address_tells_none),
		CASE(the_operator_chooses),
		CASE(they_are_looked_for_again_after_a_while),
	};

	return cmocka_run_group_tests_name("verbs_rails", tests, NULL, NULL);
}
