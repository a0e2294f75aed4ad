/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/capsule/capsule_port.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/link/capsule_link.h"
#include "datanode/capsule/capsule_internal.h"

#define RECEIVES_LEAST 64u
#define RECEIVES_AUTO 1024u /* of a reactor */

static bool is_set(const struct engine_core *core, const char *key, const char *value)
{
	return !strcmp(conf_get_or(core->dn->conf, key, "auto"), value);
}

static int check_keys(const struct engine_core *core, struct err *err)
{
	if (!is_set(core, "dfs.rdma.enabled", "auto") &&
	    !is_set(core, "dfs.rdma.enabled", "true") && !is_set(core, "dfs.rdma.enabled", "false"))
		return err_set(err, -EINVAL, "dfs.rdma.enabled must be auto, true or false");
	if (!is_set(core, "dfs.rdma.peer", "auto") && !is_set(core, "dfs.rdma.peer", "off"))
		return err_set(err, -EINVAL, "dfs.rdma.peer must be auto or off");
	return 0;
}

/* Of one reactor and device. */
static int receives(const struct engine_core *core, uint32_t *ret, struct err *err)
{
	uint64_t all = 0;
	const int rc = conf_u64(core->dn->conf, "dfs.rdma.receives", 0, &all, err);

	*ret = all ? (uint32_t)(all / core->dn->reactor_count) : RECEIVES_AUTO;
	if (rc < 0)
		return rc;
	if (all > UINT16_MAX || (all && *ret < RECEIVES_LEAST))
		return err_set(err, -EINVAL,
			       "dfs.rdma.receives must be 0, or from %u for each of the %u reactors"
			       " to %u in all",
			       RECEIVES_LEAST, core->dn->reactor_count, UINT16_MAX);
	return 0;
}

int capsule_receive_slots(const struct engine_core *core, uint32_t *ret, struct err *err)
{
	const int rc = receives(core, ret, err);

	*ret *= is_set(core, "dfs.rdma.enabled", "false") ? 0 : verbs_device_count();
	return rc;
}

/* Reconstructions are dealt out to the first reactors (data_port_rebuild()), who read from other
 * nodes. The pool of all else stays closed to these: what a node says is checked when it has come,
 * and must not change after. */
static int landing_new(struct capsule_port *caps, struct err *err)
{
	const struct engine_core *core = caps->core;
	struct pool_opts po = {.huge_pages = true,
			       .near_node = reactor_near_node(caps->core->reactor)};

	if (!caps->to_peers || core->landing_slots_max == 0)
		return 0;
	po.count[SLOT_256K] = po.count[SLOT_CRC] = core->landing_slots_max;
	return pool_new(&po, &caps->landing, err);
}

struct pool *capsule_landing(const struct engine_core *core)
{
	return core->caps ? core->caps->landing : NULL;
}

/* @first has them, unless this is the first one. -ENOMEM. */
static int rails_share(struct capsule_port *caps, const struct capsule_port *first,
		       const struct verbs_tuning *tuning, struct err *err)
{
	caps->rails = first ? first->rails : calloc(1, sizeof(*caps->rails));
	if (!caps->rails)
		return err_set(err, -ENOMEM, "out of memory");
	if (!first)
		rails_init(&caps->rails->rails, !tuning->use_rails);
	atomic_fetch_add(&caps->rails->ports, 1);
	return 0;
}

static void rails_leave(struct capsule_port *caps)
{
	if (!caps->rails || atomic_fetch_sub(&caps->rails->ports, 1) > 1)
		return;
	rails_fini(&caps->rails->rails);
	free(caps->rails);
}

static int start(struct engine_core *core, const struct engine_core *first,
		 const struct verbs_tuning *tuning, enum verbs_windows windows, struct err *err)
{
	struct verbs_opts vo = {
		.protocol = &capsule_link,
		.role = CAPSULE_PEER,
		.accept_role = CAPSULE_NODE,
		.pool = core->pool,
		.passive = true,
		.active = true,
		.windows = windows,
		.share = first->caps ? first->caps->verbs : NULL,
		.tuning = tuning,
		/* as a dialer a node asks for no views: one that does not know of them needs no
		 * second try */
		.accept_features = core->dn->hot ? VERBS_ONESIDED : 0,
	};
	struct xlistener_opts lo = {.addr = core->dn->data_addr, .accepted = capsule_accept};
	struct capsule_port *caps = calloc(1, sizeof(*caps));
	int rc;

	if (!caps)
		return err_set(err, -ENOMEM, "out of memory");
	caps->core = core;
	caps->to_peers = is_set(core, "dfs.rdma.peer", "auto");
	list_init(&caps->conns);
	list_init(&caps->dials);
	capsule_hot_init(caps);
	lo.arg = caps;
	rc = conf_time_ms(core->dn->conf, "dfs.rdma.peer.connect.timeout", CAPS_DIAL_MS,
			  &caps->dial_ns, err);
	caps->dial_ns *= NS_PER_MS;
	if (caps->dial_ns > core->waits.read_ns) /* then TCP has the time for what is behind */
		caps->dial_ns = core->waits.read_ns;
	if (rc == 0)
		rc = receives(core, &vo.srq_depth, err);
	if (rc == 0)
		rc = rails_share(caps, first->caps, tuning, err);
	if (rc == 0)
		rc = landing_new(caps, err);
	vo.landing = caps->landing;
	if (rc == 0)
		rc = verbs_new(core->reactor, &vo, &caps->verbs, err);
	if (rc == 0)
		rc = verbs_listen(caps->verbs, &lo, err);
	if (rc < 0) {
		verbs_free(caps->verbs);
		pool_free(caps->landing);
		rails_leave(caps);
		free(caps);
		return rc;
	}
	core->caps = caps;
	return 0;
}

int capsule_start(struct engine_core *core, const struct engine_core *first, struct err *err)
{
	const bool tells = core == first;
	struct err why = ERR_INIT;
	struct verbs_tuning tuning;
	enum verbs_windows windows;
	char addr[NET_TEXT_MAX];
	int rc = check_keys(core, err) ?: verbs_tuning_read(core->dn->conf, &tuning, err);

	rc = rc ?: verbs_windows_read(core->dn->conf, &windows, err);
	if (rc < 0)
		return rc;
	if (is_set(core, "dfs.rdma.enabled", "false")) {
		if (tells)
			log_info("op=start: no RDMA: dfs.rdma.enabled is false");
		return 0;
	}
	rc = start(core, first, &tuning, windows, &why);
	if (rc < 0 && is_set(core, "dfs.rdma.enabled", "true")) {
		if (err)
			*err = why;
		return rc;
	}
	if (rc < 0 && tells)
		log_info("op=start: no RDMA: %s", why.text);
	else if (tells)
		log_info("op=start: RDMA on %s", net_text(&core->dn->data_addr, addr));
	return 0;
}

void capsule_stop(struct engine_core *core)
{
	struct capsule_port *caps = core->caps;

	if (!caps)
		return;
	caps->stopping = true;
	verbs_unlisten(caps->verbs);
	list_for_each (l, &caps->conns) {
		struct capsule_conn *c = container_of(l, struct capsule_conn, in_caps);

		if (list_empty(&c->streams))
			link_close(&c->link, -ECANCELED);
	}
	capsule_dials_close(caps, true);
}

void capsule_close_all(struct engine_core *core)
{
	struct capsule_port *caps = core->caps;

	if (!caps)
		return;
	caps->stopping = true;
	list_for_each (l, &caps->conns)
		link_close(&container_of(l, struct capsule_conn, in_caps)->link, -ECANCELED);
	capsule_dials_close(caps, false);
}

void capsule_let_go(struct engine_core *core)
{
	if (core->caps)
		capsule_hot_end(core->caps);
}

uint32_t capsule_held(const struct engine_core *core)
{
	return core->caps ? atomic_load(&core->caps->hot_held) : 0;
}

bool capsule_free(struct engine_core *core)
{
	struct capsule_port *caps = core->caps;
	bool is_off;

	if (!caps)
		return true;
	is_off = verbs_free(caps->verbs);
	capsule_hot_free(caps);
	capsule_dials_free(caps);
	core->caps = NULL;
	if (!list_empty(&caps->conns)) /* a disk does not answer, and its stream still knows us */
		return is_off;
	if (!caps->landing || (is_off && !pool_slots_out(caps->landing)))
		pool_free(caps->landing);
	rails_leave(caps);
	free(caps);
	return is_off;
}
