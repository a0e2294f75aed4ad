/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/fs/fs.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "HAServiceProtocol.pb-c.h"
#include "client/src/fs/nameservice.h"
#include "client/src/fs/path.h"
#include "client/src/stream/rdma.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/utf8.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"

#define USER_NAME_MAX 255 /* bytes: what dfs-namenode takes, and more than any system has */

int api_err(struct dfs_err *out, const struct err *in, int rc)
{
	if (!out || rc >= 0)
		return rc;
	out->rc = rc;
	snprintf(out->text, sizeof(out->text), "%s", in->text[0] ? in->text : err_name(rc));
	snprintf(out->remote, sizeof(out->remote), "%s", in->remote);
	return rc;
}

void nn_add_cure(const struct dfs *fs, struct err *err)
{
	static const struct {
		const char *cls, *cure;
	} cures[] = {
		{JEX_ACCESS_CONTROL,
		 "ask its owner or the superuser, or act as one (HADOOP_USER_NAME)"},
		{JEX_AUTHORIZATION,
		 "an administrator allows it in hadoop-policy.xml of the server: security.*.acl"},
		{JEX_SAFE_MODE,
		 "wait for it (dfs admin safemode wait, or dfs.client.retry.policy.enabled=true), or "
		 "end it: dfs admin safemode leave"},
		{JEX_NS_QUOTA,
		 "delete files there, or raise the limit: dfs admin set-quota --names"},
		{JEX_DS_QUOTA,
		 "delete files there, or raise the limit: dfs admin set-quota --space"},
		{JEX_BEING_CREATED, "wait for its writer; if that is gone: dfs recover-lease"},
		{JEX_RECOVERY_IN_PROGRESS,
		 "the data nodes agree on its last block now: again in some seconds"},
	};

	/* a server of Hadoop, but another one */
	if (strcmp(err->remote, JEX_NO_SUCH_PROTOCOL) == 0) {
		err_prefix(err, "%s is no NameNode", fs->uri);
		err_cure(err, "is that the RPC port of a data node? see fs.defaultFS or --fs");
	}
	if (strcmp(err->remote, JEX_UNRESOLVED_PATH) == 0) /* its text is where the path leads */
		err_prefix(err, "a symbolic link in the path is not followed; name where it leads");
	if (strcmp(err->remote, JEX_STANDBY) == 0)
		err_cure(err,
			 fs->has_others
				 ? "make one of them active: hdfs haadmin -transitionToActive"
				 : "ask the active NameNode; dfs.nameservices lets this client "
				   "find it");
	/* The same exception for a file that nobody writes. */
	if (strcmp(err->remote, JEX_BEING_CREATED) == 0 &&
	    strstr(err->text, "is being truncated")) {
		err_cure(err,
			 "the data nodes cut it now: again in some seconds, or truncate with -w");
		return;
	}
	if (strstr(err->text, "does not match any enabled erasure coding policies"))
		err_cure(
			err,
			"dfs ec list shows all of them, and the superuser enables one: dfs ec enable POLICY");
	for (size_t i = 0; i < sizeof(cures) / sizeof(cures[0]); i++)
		if (strcmp(err->remote, cures[i].cls) == 0)
			err_cure(err, "%s", cures[i].cure);
}

#define STARTUP_PAUSE_MS 250

uint32_t nn_safe_mode_pause(const struct dfs *fs, const struct err *err, uint32_t *round)
{
	const struct settings *s = &fs->set;
	uint32_t n = *round;

	if (strcmp(err->remote, JEX_SAFE_MODE) != 0)
		return 0;
	if (!s->retry_enabled) {
		if (n >= s->startup_ms / STARTUP_PAUSE_MS || !strstr(err->text, RPC_SAFE_MODE_ENDS))
			return 0;
		++*round;
		return STARTUP_PAUSE_MS;
	}
	for (uint32_t i = 0; i < s->retry_steps; i++) {
		if (n < s->retry[i].times) {
			++*round;
			return s->retry[i].pause_ms ? s->retry[i].pause_ms : 1;
		}
		n -= s->retry[i].times;
	}
	return 0;
}

/* False: it is not worth it. */
static bool wait_in_safe_mode(const struct dfs *fs, const struct err *err, uint32_t *round)
{
	const uint32_t ms = nn_safe_mode_pause(fs, err, round);

	if (ms)
		sleep_ns(ms * NS_PER_MS);
	return ms;
}

/* One of those that change nothing. */
static bool is_question(const char *method)
{
	return strncmp(method, "get", 3) == 0;
}

int nn_call_once(struct dfs *fs, const char *method, const ProtobufCMessage *req,
		 const ProtobufCMessageDescriptor *reply, void *ret, struct err *err)
{
	const bool unsure = fs->closed.count;
	const struct early_close_mark mark =
		unsure ? early_close_mark(fs) : (struct early_close_mark){0};
	struct err ignored = ERR_INIT, *why = err ? err : &ignored;
	ProtobufCMessage *m = NULL;
	uint32_t round = 0;
	int rc;

	do {
		rc = rpc_client_call(fs->nn, method, req, reply, ret ? &m : NULL, why);
	} while (rc == -EROFS && wait_in_safe_mode(fs, why, &round));
	if (rc < 0) {
		nn_add_cure(fs, why);
		return rc;
	}
	if (unsure)
		early_close_answered(fs, method, &mark);
	if (ret)
		*(ProtobufCMessage **)ret = m;
	return 0;
}

int nn_call(struct dfs *fs, const char *method, const ProtobufCMessage *req,
	    const ProtobufCMessageDescriptor *reply, void *ret, struct err *err)
{
	int rc = nn_call_once(fs, method, req, reply, ret, err);

	/* Another NameNode, or the same one after a crash, has answered: what it says of files that
	 * we have closed may be old. */
	if (rc < 0 || !early_close_is_old(fs))
		return rc;
	early_close_settle_quietly(fs);
	if (!ret || !is_question(method))
		return rc;
	pb_free(*(ProtobufCMessage **)ret);
	return nn_call_once(fs, method, req, reply, ret, err);
}

/* To whoever may read everything, access(2) says no more than that it may not. */
static int check_conf_dir(const char *dir, struct err *err)
{
	const char *from = dir ? "" : " (HADOOP_CONF_DIR)";
	struct stat st;

	dir = dir ?: getenv("HADOOP_CONF_DIR");
	if (!dir || !*dir || stat(dir, &st) < 0 || S_ISDIR(st.st_mode))
		return 0;
	return err_set(
		err, -ENOTDIR,
		"configuration directory %s%s: not a directory; name the folder of core-site.xml and "
		"hdfs-site.xml",
		dir, from);
}

static int load_conf(struct conf *c, const struct dfs_connect_opts *o, struct err *err)
{
	int rc = check_conf_dir(o->conf_dir, err) ?: conf_load_dir(c, o->conf_dir, err);

	for (const char *const *kv = o->conf; rc == 0 && kv && *kv; kv++)
		rc = conf_set_arg(c, *kv, err);
	return rc ?: conf_check(c, err);
}

static int find_user(const char *wanted, char **ret, struct err *err)
{
	struct passwd pw, *found = NULL;
	char buf[4096];

	if (!wanted || !*wanted)
		wanted = getenv("HADOOP_USER_NAME");
	if (!wanted || !*wanted) {
		(void)getpwuid_r(geteuid(), &pw, buf, sizeof(buf), &found);
		if (!found)
			return err_set(err, -EINVAL, "uid %u has no name; set HADOOP_USER_NAME",
				       geteuid());
		wanted = pw.pw_name;
	}
	if (strlen(wanted) > USER_NAME_MAX)
		return err_set(err, -EINVAL, "a user name of %zu bytes; at most %d are allowed",
			       strlen(wanted), USER_NAME_MAX);
	if (strchr(wanted, '/'))
		return err_set(
			err, -EINVAL,
			"'%s' is no user name, for it has a '/'; give the short name that the NameNode makes of "
			"it (hadoop.security.auth_to_local), mostly '%.*s'",
			wanted, (int)strcspn(wanted, "/@"), wanted);
	if (strcmp(wanted, ".") == 0 || strcmp(wanted, "..") == 0)
		return err_set(err, -EINVAL, "'%s' is no user name", wanted);
	if (!utf8_is_valid(wanted))
		return err_set(err, -EINVAL,
			       "the user name is not UTF-8, which Hadoop's RPC requires");
	*ret = strdup(wanted);
	return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

/* Unique among all clients of the cluster: leases belong to this name. */
static int make_client_name(struct dfs *fs, struct err *err)
{
	uint64_t id;

	if (getrandom(&id, sizeof(id), 0) != sizeof(id))
		return err_sys(err, neg_errno(),
			       "the kernel gives no random numbers for the name of this client");
	snprintf(fs->client_name, sizeof(fs->client_name), "libdfsclient_%ld_%016llx",
		 (long)getpid(), (unsigned long long)id);
	return 0;
}

/* How the NameNodes of @uri are reached; @ns has the addresses. */
static int rpc_opts(const struct dfs *fs, const char *uri, struct nameservice *ns,
		    struct rpc_client_opts *ret, struct err *err)
{
	int rc = nameservice_find(fs->conf, uri, ns, err);

	if (rc < 0)
		return rc;
	*ret = (struct rpc_client_opts){
		.protocol = RPC_PROTO_CLIENT,
		.user = fs->user,
		.addr = ns->node[0].addr,
		.addr_text = ns->node[0].addr_text,
		.addr_key = ns->logical ? "dfs.namenode.rpc-address" : NULL,
		.others = ns->node + 1,
		.other_count = ns->count ? ns->count - 1 : 0,
		.failovers_max = fs->set.failovers_max,
		.retries_max = fs->set.retries_max,
		.pause_base_ms = fs->set.failover_base_ms,
		.pause_max_ms = fs->set.failover_max_ms,
	};
	return rpc_client_conf(fs->conf, ret, err);
}

static int make_rpc(struct dfs *fs, const char *uri, struct err *err)
{
	struct rpc_client_opts o;
	struct nameservice ns;
	int rc = rpc_opts(fs, uri, &ns, &o, err);

	if (rc < 0)
		return rc;
	snprintf(fs->uri, sizeof(fs->uri), "%s", ns.uri);
	fs->has_others = ns.count > 1;
	return rpc_client_new(&o, &fs->nn, err);
}

/* The NameNode was there: from now on it is worth waiting for. */
static uint32_t connect_retries(const struct dfs *fs)
{
	return fs->has_others ? fs->set.failover_connect_retries : fs->set.connect_retries;
}

int nn_queue_new(struct dfs *fs, struct rpc_queue **ret, struct err *err)
{
	struct rpc_client_opts o;
	struct nameservice ns;
	int rc = rpc_opts(fs, fs->uri, &ns, &o, err);

	if (rc < 0)
		return rc;
	o.connect_retries = connect_retries(fs);
	return rpc_queue_new(&o, ret, err);
}

static int ask_service_status(struct dfs *fs, struct err *err)
{
	Hc__GetServiceStatusRequestProto req = HC__GET_SERVICE_STATUS_REQUEST_PROTO__INIT;
	struct rpc_client *c = NULL;
	struct rpc_client_opts o;
	struct nameservice ns;
	int rc = rpc_opts(fs, fs->uri, &ns, &o, err);

	if (rc < 0)
		return rc;
	o.protocol = RPC_PROTO_HA;
	rc = rpc_client_new(&o, &c, err);
	rc = rc
		     ?: rpc_client_call(c, "getServiceStatus", &req.base,
					&hc__get_service_status_response_proto__descriptor, NULL,
					err);
	rpc_client_free(c);
	return rc;
}

/* HAServiceProtocol is spoken by every NameNode, also by one without a partner, and by no router.
 * Service level authorization (hadoop.security.authorization) comes first, and may keep this user
 * out of either. */
int nn_is_router(struct dfs *fs, struct err *err)
{
	int known = atomic_load(&fs->is_router), rc;

	if (known)
		return known > 0;
	rc = ask_service_status(fs, err);
	if (rc < 0 && (!err->remote[0] || strcmp(err->remote, JEX_AUTHORIZATION) == 0))
		return rc;
	known = rc < 0 && strcmp(err->remote, JEX_NO_SUCH_PROTOCOL) == 0;
	err_reset(err);
	atomic_store(&fs->is_router, known ? 1 : -1);
	return known;
}

DFS_API int dfs_is_router(struct dfs *fs, bool *ret, struct dfs_err *out)
{
	struct err err;
	int rc;

	err_reset(&err);
	rc = nn_is_router(fs, &err);
	if (rc < 0)
		return api_err(out, &err, rc);
	*ret = rc;
	return 0;
}

static int load_defaults(struct dfs *fs, struct err *err)
{
	Hd__GetServerDefaultsRequestProto req = HD__GET_SERVER_DEFAULTS_REQUEST_PROTO__INIT;
	Hd__GetServerDefaultsResponseProto *m;
	int rc = nn_call(fs, "getServerDefaults", &req.base,
			 &hd__get_server_defaults_response_proto__descriptor, &m, err);
	const Hd__FsServerDefaultsProto *d;

	if (rc < 0)
		return rc;
	d = m->serverdefaults;
	if (d->encryptdatatransfer)
		rc = err_set(err, -ENOTSUP,
			     "%s wants encrypted data transfer, which this client "
			     "does not speak; see dfs.encrypt.data.transfer",
			     fs->uri);
	fs->defaults.block_size = fs->set.block_size ?: d->blocksize;
	fs->defaults.replication = fs->set.replication ?: d->replication;
	fs->defaults.bytes_per_checksum = fs->set.bytes_per_checksum ?: d->bytesperchecksum;
	fs->defaults.umask = fs->set.umask;
	fs->defaults.trash_minutes = d->trashinterval;
	pb_free(m);
	if (fs->defaults.bytes_per_checksum == 0 || fs->defaults.bytes_per_checksum > BPC_MAX)
		return err_set(err, -EINVAL, "%u bytes per checksum is not between 1 and %u",
			       fs->defaults.bytes_per_checksum, BPC_MAX);
	return rc;
}

/* Lines on stderr at dfs.log.level=debug: above all why a node is not reached by RDMA. */
static int set_log_level(const struct conf *c, struct err *err)
{
	const char *text = conf_get_or(c, "dfs.log.level", "info");
	enum log_level level;

	if (log_parse_level(text, &level) < 0)
		return err_set(err, -EINVAL, "dfs.log.level=%s is not error, warn, info or debug",
			       text);
	log_init("libdfsclient", level);
	return 0;
}

/* Who has not configured anything hears that first, not that nobody listens on this machine. */
static int add_address_cure(const struct dfs *fs, const struct dfs_connect_opts *o, int rc,
			    struct err *err)
{
	if (rc < 0 && !o->uri && !conf_is_set(fs->conf, "fs.defaultFS"))
		err_cure(
			err,
			"fs.defaultFS is not set: name the NameNode (hdfs://HOST:PORT), or the folder of "
			"core-site.xml (HADOOP_CONF_DIR)");
	return rc;
}

static int connect_steps(struct dfs *fs, const struct dfs_connect_opts *o, struct err *err)
{
	int rc = load_conf(fs->conf, o, err);

	rc = rc ?: set_log_level(fs->conf, err);
	if (rc == 0)
		conf_warn_typos(fs->conf);
	rc = rc ?: settings_load(fs->conf, &fs->set, err);
	rc = rc ?: find_user(o->user, &fs->user, err);
	rc = rc ?: make_client_name(fs, err);
	rc = rc ?: make_rpc(fs, o->uri, err);
	rc = rc ?: add_address_cure(fs, o, load_defaults(fs, err), err);
	if (rc == 0)
		rpc_client_set_connect_retries(fs->nn, connect_retries(fs));
	return rc;
}

/* Options of an older, shorter struct: the rest is zero. */
static void copy_opts(struct dfs_connect_opts *to, const struct dfs_connect_opts *from)
{
	*to = (struct dfs_connect_opts){0};
	if (from)
		memcpy(to, from, from->size < sizeof(*to) ? from->size : sizeof(*to));
}

DFS_API int dfs_connect(const struct dfs_connect_opts *opts, struct dfs **ret_fs,
			struct dfs_err *out)
{
	struct dfs *fs = calloc(1, sizeof(*fs));
	struct dfs_connect_opts o;
	struct err err;
	int rc = -ENOMEM;

	err_reset(&err);
	if (!fs)
		return api_err(out, &err, rc);
	sock_cache_init(&fs->socks);
	packet_pool_init(&fs->packets);
	node_table_init(&fs->suspects);
	node_table_init(&fs->fallbacks);
	local_init(&fs->local);
	early_close_init(&fs->closed);
	deferred_sync_init(&fs->late);
	idle_streams_init(&fs->idle_streams);
	pthread_mutex_init(&fs->rdma_lock, NULL);
	copy_opts(&o, opts);
	housekeeper_init(&fs->keeper);
	fs->conf = conf_new();
	rc = fs->conf ? connect_steps(fs, &o, &err) : -ENOMEM;
	if (rc < 0) {
		dfs_disconnect(fs);
		return api_err(out, &err, rc);
	}
	*ret_fs = fs;
	return 0;
}

DFS_API void dfs_disconnect(struct dfs *fs)
{
	if (!fs)
		return;
	if (fs->nn)
		rpc_client_cancel(fs->nn); /* the housekeeper may be in a call */
	housekeeper_fini(&fs->keeper);
	rpc_client_free(fs->nn);
	rdma_free(fs->rdma);
	pthread_mutex_destroy(&fs->rdma_lock);
	sock_cache_fini(&fs->socks);
	packet_pool_fini(&fs->packets);
	node_table_fini(&fs->suspects);
	node_table_fini(&fs->fallbacks);
	local_fini(&fs->local);
	early_close_fini(&fs->closed);
	deferred_sync_fini(&fs->late);
	idle_streams_fini(&fs->idle_streams);
	conf_free(fs->conf);
	free(fs->user);
	free(fs);
}

DFS_API const char *dfs_version(void)
{
	return DFS_VERSION;
}

DFS_API const char *dfs_user(const struct dfs *fs)
{
	return fs->user;
}

DFS_API const char *dfs_uri(const struct dfs *fs)
{
	return fs->uri;
}

DFS_API const char *dfs_conf(const struct dfs *fs, const char *key)
{
	return conf_get(fs->conf, key);
}

DFS_API void dfs_get_defaults(const struct dfs *fs, struct dfs_defaults *ret)
{
	*ret = fs->defaults;
}

static uint64_t count_get(const atomic_uint_fast64_t *c)
{
	return atomic_load_explicit(c, memory_order_relaxed);
}

DFS_API void dfs_get_counters(struct dfs *fs, struct dfs_counters *ret)
{
	const struct counters *c = &fs->count;

	*ret = (struct dfs_counters){
		.written_tcp = count_get(&c->written[0]),
		.written_rdma = count_get(&c->written[1]),
		.read_tcp = count_get(&c->read[0]),
		.read_rdma = count_get(&c->read[1]),
		.read_rdma_copied = count_get(&c->read_rdma_copied),
		.write_rdma_copied = count_get(&c->write_rdma_copied),
		.read_local = count_get(&c->read[2]),
		.read_onesided = count_get(&c->read[3]),
		.local_fallbacks = count_get(&c->local_fallbacks),
		.pipeline_recoveries = count_get(&c->pipeline_recoveries),
		.read_failovers = count_get(&c->read_failovers),
		.read_decoded = count_get(&c->read_decoded),
		.read_hedges = count_get(&c->read_hedges),
		.short_groups = count_get(&c->short_groups),
		.short_group_units = count_get(&c->short_group_units),
		.short_group_nodes = count_get(&c->short_group_nodes),
		.short_group_data = count_get(&c->short_group_data),
		.checksum_errors = count_get(&c->checksum_errors),
		.rdma_fallbacks = count_get(&c->rdma_fallbacks),
	};
}
