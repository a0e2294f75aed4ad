/* SPDX-License-Identifier: Apache-2.0 */
/* What a node tells who connects: which process it is, and its addresses on RDMA devices, so that
 * a connection more may come over another device. On the control thread, when it answers. */
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>

#include "common/base/log.h"
#include "common/transport/verbs_internal.h"

#define LOOK_NS (5 * NS_PER_S) /* addresses and devices come and go, seldom */

static bool is_link_local(const struct in_addr *v4)
{
	const uint8_t *b = (const uint8_t *)v4;

	return b[0] == 169 && b[1] == 254;
}

/* False: nobody else could connect to it. */
static bool rail_from(const struct sockaddr *a, uint8_t to[16])
{
	if (a->sa_family == AF_INET) {
		const struct in_addr *v4 = &((const struct sockaddr_in *)(const void *)a)->sin_addr;

		rail_from_v4(v4, to);
		return !is_link_local(v4);
	}
	if (a->sa_family == AF_INET6) {
		const struct in6_addr *v6 =
			&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;

		memcpy(to, v6, 16);
		return !IN6_IS_ADDR_LINKLOCAL(v6);
	}
	return false;
}

static bool is_wanted(const struct verbs_tuning *t, const uint8_t rail[16])
{
	for (uint8_t i = 0; i < t->rails; i++)
		if (!memcmp(t->rail[i], rail, 16))
			return true;
	return !t->rails;
}

static bool has_failed(struct verbs_control *k, const struct ibv_context *ctx)
{
	bool failed = false;

	pthread_mutex_lock(&k->lock);
	list_for_each (l, &k->cards) {
		const struct vcard *card = container_of(l, struct vcard, link);

		failed |= card->ctx == ctx && card->failed;
	}
	pthread_mutex_unlock(&k->lock);
	return failed;
}

/* One address of a device is enough. */
static bool is_there(const struct verbs_control *k, const struct ibv_context *ctx)
{
	for (uint8_t i = 0; i < k->rails; i++)
		if (!strcmp(k->rail_dev[i], ibv_get_device_name(ctx->device)))
			return true;
	return false;
}

/* Is the address on an RDMA device that takes connections, and which is not yet there? */
static bool has_device(struct verbs_control *k, const struct sockaddr *a)
{
	struct rdma_cm_id *id;
	struct sockaddr_storage at = {0};
	bool has;

	memcpy(&at, a,
	       a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
	if (rdma_create_id(k->channel, &id, NULL, RDMA_PS_TCP))
		return false;
	has = !rdma_bind_addr(id, (struct sockaddr *)&at) && id->verbs &&
	      !has_failed(k, id->verbs) && vdev_can_accept(id->verbs, NULL) == 0 &&
	      !is_there(k, id->verbs);
	if (has)
		snprintf(k->rail_dev[k->rails], IBV_SYSFS_NAME_MAX, "%s",
			 ibv_get_device_name(id->verbs->device));
	(void)rdma_destroy_id(id);
	return has;
}

static void look(struct verbs_control *k, const struct verbs_tuning *t, int family)
{
	struct ifaddrs *all;

	k->rails = 0;
	if (getifaddrs(&all))
		return; /* who connects knows the one that it came by */
	for (const struct ifaddrs *i = all; i && k->rails < VERBS_RAILS; i = i->ifa_next)
		if (i->ifa_addr && (i->ifa_flags & IFF_UP) && !(i->ifa_flags & IFF_LOOPBACK) &&
		    (family == AF_INET6 || i->ifa_addr->sa_family == AF_INET) &&
		    rail_from(i->ifa_addr, k->rail[k->rails]) && is_wanted(t, k->rail[k->rails]) &&
		    has_device(k, i->ifa_addr))
			k->rails++;
	freeifaddrs(all);
}

static bool is_any(const struct net_addr *a)
{
	static const struct in6_addr any6 = IN6ADDR_ANY_INIT;

	if (a->sa.ss_family == AF_INET)
		return ((const struct sockaddr_in *)&a->sa)->sin_addr.s_addr == INADDR_ANY;
	return a->sa.ss_family == AF_INET6 &&
	       !memcmp(&((const struct sockaddr_in6 *)&a->sa)->sin6_addr, &any6, sizeof(any6));
}

void rails_tell(struct vconn *c, struct verbs_hello *h)
{
	struct verbs *v = c->v;
	struct verbs_control *k = v->control;
	const uint64_t now = clock_mono_ns();
	struct net_addr at;

	pthread_mutex_lock(&k->lock);
	at = v->listener.addr;
	pthread_mutex_unlock(&k->lock);
	h->node = k->node;
	if (!v->tuning.use_rails || !is_any(&at))
		return;
	if (!k->rails_ns || now > k->rails_ns + LOOK_NS) {
		look(k, &v->tuning, at.sa.ss_family);
		k->rails_ns = now;
	}
	for (uint8_t i = 0; i < k->rails; i++)
		if (strcmp(k->rail_dev[i], ibv_get_device_name(c->id->verbs->device)) != 0)
			memcpy(h->rail[h->rails++], k->rail[i], sizeof(h->rail[0]));
}
