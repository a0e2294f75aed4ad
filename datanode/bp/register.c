/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake with a NameNode: its namespace is compared with ours, then we register. What it
 * refuses is put into words of cause and cure here. */
#include "datanode/bp/bp_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"
#include "datanode/data_port/data_port.h"

#define REFUSAL_TEXT_MAX 160 /* of a NameNode's own words */

static void actor_sleep(struct bp_actor *a, uint64_t ms)
{
	uint64_t end = clock_mono_ns() + ms * NS_PER_MS, now;

	pthread_mutex_lock(&a->lock);
	while (!actor_stops(a) && (now = clock_mono_ns()) < end)
		actor_wait_locked(a, (end - now) / NS_PER_MS + 1);
	pthread_mutex_unlock(&a->lock);
}

/* ---- refusals ---- */

/* Exceptions after which this NameNode is left alone (hdfs-wire 1.5). */
static bool is_refused(const struct err *err)
{
	return !strcmp(err->remote, JEX_UNREGISTERED_NODE) ||
	       !strcmp(err->remote, JEX_DISALLOWED_NODE) ||
	       !strcmp(err->remote, JEX_INCORRECT_VERSION);
}

/* A NameNode's own words name neither cause nor cure: ours, and the beginning of its. */
static void explain(struct bp_actor *a, struct err *err)
{
	char said[REFUSAL_TEXT_MAX];
	int rc = err->rc;

	(void)snprintf(said, sizeof(said), "%.*s", REFUSAL_TEXT_MAX - 1, err->text);
	if (!strcmp(err->remote, JEX_DISALLOWED_NODE))
		err_set(err, rc,
			"NameNode %s does not admit this node: it is not in the NameNode's dfs.hosts; add it "
			"there, run hdfs dfsadmin -refreshNodes, start again; it said: %s",
			a->addr_text, said);
	else if (!strcmp(err->remote, JEX_INCORRECT_VERSION))
		err_set(err, rc, "NameNode %s does not take a node of our version; it said: %s",
			a->addr_text, said);
	else if (strstr(said, "is attempting to report storage"))
		err_set(err, rc,
			"NameNode %s knows another node with our uuid %s: one's directories are a copy of the "
			"other's; stop one of them; it said: %s",
			a->addr_text, store_datanode_uuid(a->set->dn->store), said);
	else if (!strcmp(err->remote, JEX_UNREGISTERED_NODE))
		err_set(err, rc,
			"NameNode %s has another namespace than ours (pool %.60s); nothing is deleted here; has it "
			"been formatted anew? Correct fs.defaultFS or, if those files are given up, move current/ "
			"away; it said: %s",
			a->addr_text, a->ns.pool_id, said);
}

bool actor_explain(struct bp_actor *a, struct err *err)
{
	bool refused = is_refused(err);

	if (refused)
		explain(a, err);
	return refused;
}

void actor_give_up(struct bp_actor *a, const char *op, const struct err *err)
{
	log_error("op=%s namenode=%s: giving it up: %s", op, a->addr_text, err->text);
	actor_set_state(a, ACTOR_DEAD, err);
}

/* ---- registration ---- */

/* The address by which we reach the NameNode, when the data port listens on every one. */
static void find_my_ip(struct bp_actor *a, char *buf, size_t size)
{
	char text[NET_TEXT_MAX];
	struct net_addr to, from = {.len = sizeof(from.sa)};
	int fd;

	(void)snprintf(buf, size, "%s", net_ip(&a->set->dn->data_addr, text));
	if (strcmp(buf, "0.0.0.0") && strcmp(buf, "::"))
		return;
	(void)snprintf(buf, size, "127.0.0.1");
	if (net_resolve(a->addr.host, a->addr.port, &to, NULL))
		return;
	fd = socket(to.sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	if (!connect(fd, (struct sockaddr *)&to.sa, to.len) &&
	    !getsockname(fd, (struct sockaddr *)&from.sa, &from.len))
		(void)snprintf(buf, size, "%s", net_ip(&from, text));
	(void)close(fd);
}

static bool copy_text(char *buf, size_t size, const char *text)
{
	return (size_t)snprintf(buf, size, "%s", text) < size;
}

/* "3.4.2-foo" >= "2.1.0-beta": by the numbers alone. */
static bool version_at_least(const char *version, const char *min)
{
	for (int i = 0; i < 3; i++) {
		char *end = NULL, *min_end = NULL;
		long v = strtol(version, &end, 10), m = strtol(min, &min_end, 10);

		if (v != m)
			return v > m;
		version = *end == '.' ? end + 1 : end;
		min = *min_end == '.' ? min_end + 1 : min_end;
	}
	return true;
}

static int check_version(struct bp_actor *a, const Hd__NamespaceInfoProto *info, struct err *err)
{
	const char *min = conf_get_or(a->set->dn->conf,
				      "dfs.datanode.min.supported.namenode.version", "2.1.0-beta");

	if (version_at_least(info->softwareversion, min))
		return 0;
	return err_set(
		err, -EINVAL,
		"NameNode %s runs version %.40s (layout %d); this data node works with %.40s and "
		"newer (dfs.datanode.min.supported.namenode.version): upgrade the NameNode",
		a->addr_text, info->softwareversion, (int)info->storageinfo->layoutversion, min);
}

static bool same_namespace(const struct store_namespace *x, const struct store_namespace *y)
{
	return !strcmp(x->pool_id, y->pool_id) && !strcmp(x->cluster_id, y->cluster_id) &&
	       x->namespace_id == y->namespace_id && x->ctime == y->ctime;
}

/* The NameNodes of one name service, and one NameNode over its restarts, have one namespace: what
 * the first of them said holds. -EEXIST. */
static int check_service(struct bp_actor *a, const struct store_namespace *ns, struct err *err)
{
	struct bp_set *s = a->set;

	for (uint32_t i = 0; i < s->actor_count; i++) {
		struct bp_actor *b = &s->actors[i];
		struct store_namespace known;
		bool has;

		pthread_mutex_lock(&b->lock);
		known = b->ns;
		has = b->has_ns && !b->stop;
		pthread_mutex_unlock(&b->lock);
		if (!has ||
		    (b != a && (!a->addr.service[0] || strcmp(a->addr.service, b->addr.service))))
			continue;
		if (same_namespace(&known, ns))
			continue;
		return err_set(
			err, -EEXIST,
			"NameNode %s says block pool %.80s of cluster %.80s, but %s %s %.80s of "
			"cluster %.80s; nothing is changed here: has it been formatted anew, or is "
			"the address one of another cluster's?",
			a->addr_text, ns->pool_id, ns->cluster_id, b == a ? "it" : b->addr_text,
			b == a ? "was" : "has", known.pool_id, known.cluster_id);
	}
	return 0;
}

/* One at a time: the first of a name service decides for the others. */
static int attach(struct bp_actor *a, const struct store_namespace *ns, struct block_pool **ret_bp,
		  struct err *err)
{
	int rc;

	pthread_mutex_lock(&a->set->attach_lock);
	rc = check_service(a, ns, err);
	if (!rc)
		rc = store_attach(a->set->dn->store, ns, ret_bp, err);
	if (!rc) {
		pthread_mutex_lock(&a->lock);
		a->ns = *ns;
		a->has_ns = true;
		pthread_mutex_unlock(&a->lock);
	}
	pthread_mutex_unlock(&a->set->attach_lock);
	return rc;
}

static int take_namespace(struct bp_actor *a, const Hd__NamespaceInfoProto *info, struct err *err)
{
	struct store_namespace ns = {.namespace_id = info->storageinfo->namespceid,
				     .ctime = info->storageinfo->ctime};
	struct block_pool *bp;
	char ip[64];
	int rc;

	if (!copy_text(ns.pool_id, sizeof(ns.pool_id), info->blockpoolid) ||
	    !copy_text(ns.cluster_id, sizeof(ns.cluster_id), info->storageinfo->clusterid))
		return err_set(err, -EPROTO, "NameNode %s: block pool or cluster id is too long",
			       a->addr_text);
	rc = check_version(a, info, err);
	if (!rc)
		rc = attach(a, &ns, &bp, err);
	if (rc)
		return rc;
	find_my_ip(a, ip, sizeof(ip));
	pthread_mutex_lock(&a->lock);
	a->bp = bp;
	a->capabilities = info->capabilities;
	(void)copy_text(a->software_version, sizeof(a->software_version), info->softwareversion);
	(void)copy_text(a->my_ip, sizeof(a->my_ip), ip);
	pthread_mutex_unlock(&a->lock);
	return 0;
}

static int ask_version(struct bp_actor *a, struct err *err, bool *ret_fatal)
{
	Hd__VersionRequestProto req = HD__VERSION_REQUEST_PROTO__INIT;
	ProtobufCMessage *answer = NULL;
	int rc = actor_call(a, "versionRequest", &req.base, &hd__version_response_proto__descriptor,
			    &answer, err);

	if (rc)
		return rc;
	rc = take_namespace(a, ((Hd__VersionResponseProto *)answer)->info, err);
	/* Directories of another cluster stay such; trying again changes nothing. */
	*ret_fatal = rc == -EINVAL;
	pb_free(answer);
	return rc;
}

void actor_take_keys(struct bp_actor *a, const Hd__ExportedBlockKeysProto *keys)
{
	struct dn *dn = a->set->dn;
	struct err err = ERR_INIT;

	/* The old keys stay when these cannot be taken. */
	if (dn->xfer && data_port_block_keys(dn->xfer, a->ns.pool_id, keys, &err))
		log_warn("op=block-keys namenode=%s: not taken: %s", a->addr_text, err.text);
}

static int do_register(struct bp_actor *a, struct err *err, bool *ret_fatal)
{
	Hdd__RegisterDatanodeRequestProto req = HDD__REGISTER_DATANODE_REQUEST_PROTO__INIT;
	ProtobufCMessage *answer = NULL;
	const Hdd__DatanodeRegistrationProto *r;
	const char *uuid;
	struct reg_msg reg;
	int rc;

	reg_msg_fill(&reg, a);
	req.registration = &reg.reg;
	rc = actor_call(a, "registerDatanode", &req.base,
			&hdd__register_datanode_response_proto__descriptor, &answer, err);
	if (rc)
		return rc;
	r = ((Hdd__RegisterDatanodeResponseProto *)answer)->registration;
	uuid = r->datanodeid->datanodeuuid;
	if (strcmp(uuid, store_datanode_uuid(a->set->dn->store))) {
		*ret_fatal = true;
		rc = err_set(err, -EPROTO, "NameNode %s registered us as %.64s, we are %s",
			     a->addr_text, uuid, store_datanode_uuid(a->set->dn->store));
	} else {
		actor_take_keys(a, r->keys);
	}
	pb_free(answer);
	return rc;
}

static int make_client(struct bp_actor *a, struct err *err)
{
	struct rpc_client_opts o = {.protocol = RPC_PROTO_DATANODE, .addr_text = a->addr_text};

	return a->rpc ? 0 : actor_client(a, &a->rpc, a->addr.host, a->addr.port, &o, err);
}

void actor_log_trouble(struct bp_actor *a, struct trouble *t, const struct err *err)
{
	bool same = t->since_ns && t->rc == err->rc && !strcmp(t->remote, err->remote);

	if (!same)
		t->rate = (struct log_rate){0};
	if (!t->since_ns)
		t->since_ns = clock_mono_ns();
	t->rc = err->rc;
	(void)copy_text(t->remote, sizeof(t->remote), err->remote);
	if (log_rate_ok(&t->rate, NN_UNREACHABLE_LOG_MS, NULL))
		log_warn("op=namenode namenode=%s for_s=%" PRIu64 ": retrying: %s", a->addr_text,
			 (uint64_t)((clock_mono_ns() - t->since_ns) / NS_PER_S), err->text);
}

/* At once, or at a random time within dfs.blockreport.initialDelay: a NameNode that starts again
 * would get the reports of all its nodes in one moment. */
static void schedule_first_report_locked(struct bp_actor *a)
{
	uint64_t delay_ms = a->set->dn->live.initial_delay_ms, random = 0;

	a->want_lease = !delay_ms;
	if (!delay_ms)
		return;
	if (getrandom(&random, sizeof(random), 0) < 0)
		random = clock_mono_ns();
	a->next_full_ns = clock_mono_ns() + random % delay_ms * NS_PER_MS;
}

bool actor_register(struct bp_actor *a)
{
	struct trouble trouble = {0};

	while (!actor_stops(a)) {
		struct err err = ERR_INIT;
		bool fatal = false, versioned, refused;
		int rc = make_client(a, &err);

		if (!rc)
			rc = ask_version(a, &err, &fatal);
		versioned = !rc;
		if (!rc)
			rc = do_register(a, &err, &fatal);
		if (!rc) {
			pthread_mutex_lock(&a->lock);
			a->reregister = false;
			a->lease = 0;
			schedule_first_report_locked(a);
			a->last_beat_ns = clock_mono_ns(); /* silence counts from here */
			pthread_mutex_unlock(&a->lock);
			actor_set_state(a, ACTOR_REGISTERED, NULL);
			log_info("op=register namenode=%s pool=%s uuid=%s", a->addr_text,
				 a->ns.pool_id, store_datanode_uuid(a->set->dn->store));
			return true;
		}
		if (actor_stops(a))
			break;
		refused = actor_explain(a, &err);
		if (fatal || (refused && !versioned)) {
			actor_give_up(a, "register", &err);
			return false;
		}
		actor_log_trouble(a, &trouble, &err);
		actor_set_state(a, ACTOR_WAIT_NAMENODE, &err);
		/* Nobody there yet: soon again. One who is not ready, or not for us (a dfs.hosts
		 * that is about to be changed; Java's node waits for that, too): later. */
		actor_sleep(a, !refused && (versioned || !err.remote[0]) ? NN_RETRY_MS
									 : NN_VERSION_RETRY_MS);
	}
	return false;
}
