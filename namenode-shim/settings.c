/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/settings.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/conf.h"
#include "common/base/crc.h"
#include "common/base/log.h"
#include "namenode-shim/blocks/datanodes.h"
#include "namenode-shim/namespace/inode.h"
#include "namenode-shim/namespace/leases.h"
#include "namenode-shim/namespace/xattr.h"

#define RPC_PORT 8020
#define HTTP_PORT 9870
#define HDFS_WRITE_PACKET 65536
#define DIR_ITEMS_DEFAULT (1 << 20)
#define DIR_ITEMS_MAX 6400000 /* as HDFS */
#define ATIME_PRECISION_MS 3600000

int settings_name_dir(const struct conf *c, struct settings *ret, struct err *err)
{
	char **dirs;
	const char *d;
	int rc = conf_list(c, "dfs.namenode.name.dir", &dirs);

	if (rc < 0)
		return err_sys(err, rc, "dfs.namenode.name.dir");
	d = dirs[0];
	if (!d || dirs[1])
		rc = err_set(
			err, -EINVAL,
			"dfs.namenode.name.dir must name exactly one directory, not %s%s",
			d ? "several" : "none",
			d ? ": this NameNode keeps no mirrors of its namespace; name one, on a "
			    "mirrored disk"
			  : "");
	else if (!strncmp(d, "file://", 7))
		d += 7;
	else if (!strncmp(d, "file:", 5))
		d += 5;
	if (!rc && d[0] != '/')
		rc = err_set(err, -EINVAL, "dfs.namenode.name.dir=%s must be an absolute path", d);
	if (!rc &&
	    snprintf(ret->name_dir, sizeof(ret->name_dir), "%s", d) >= (int)sizeof(ret->name_dir))
		rc = err_set(err, -ENAMETOOLONG,
			     "dfs.namenode.name.dir is too long; give a shorter path");
	conf_list_free(dirs);
	return rc;
}

/* The name of @host, also where an address was given. */
static void name_of(const char *host, char ret[256])
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST}, *ai;

	snprintf(ret, 256, "%s", host);
	if (getaddrinfo(host, NULL, &hints, &ai))
		return; /* a name already */
	(void)getnameinfo(ai->ai_addr, ai->ai_addrlen, ret, 256, NULL, 0, 0);
	freeaddrinfo(ai);
}

static bool names_service(const struct conf *c, const char *host)
{
	char key[300];
	const char *ids;

	snprintf(key, sizeof(key), "dfs.ha.namenodes.%s", host);
	ids = conf_get(c, key);
	return ids && *ids;
}

/* The RPC address: dfs.namenode.rpc-address, else fs.defaultFS; a bind host replaces its host. */
static int rpc_addr(const struct conf *c, struct net_addr *ret, char ret_host[256], struct err *err)
{
	const char *key = "dfs.namenode.rpc-address", *text = conf_get(c, key);
	const char *bind_host = conf_get(c, "dfs.namenode.rpc-bind-host");
	char host[256];
	uint16_t port;
	int rc;

	if (!text || !*text)
		text = conf_get_or(c, key = "fs.defaultFS", "hdfs://localhost:8020");
	if (!strncmp(text, "file:", 5))
		return err_set(err, -EINVAL,
			       "fs.defaultFS=%s names no NameNode; set it to hdfs://HOST:PORT",
			       text);
	rc = net_split(text, RPC_PORT, host, &port, err);
	if (!rc && names_service(c, host))
		return err_set(
			err, -ENOTSUP,
			"%s names the name service %.100s of several NameNodes (dfs.ha.namenodes.%.100s): "
			"high availability is not there; give this one its own address, "
			"dfs.namenode.rpc-address=HOST:PORT",
			key, host, host);
	if (!rc)
		rc = net_resolve(bind_host && *bind_host ? bind_host : host, port, ret, err);
	if (!rc)
		name_of(host, ret_host);
	return rc ? err_prefix(err, "%s", key) : 0;
}

static int http_addr(const struct conf *c, struct net_addr *ret, struct err *err)
{
	const char *key = "dfs.namenode.http-address";
	char host[256];
	uint16_t port;
	int rc = net_split(conf_get_or(c, key, "0.0.0.0:9870"), HTTP_PORT, host, &port, err);

	rc = rc ? rc : net_resolve(host, port, ret, err);
	return rc ? err_prefix(err, "%s", key) : 0;
}

static int get_u32(const struct conf *c, const char *key, uint32_t dflt, uint32_t min, uint32_t max,
		   uint32_t *ret, struct err *err)
{
	uint64_t v;
	int rc = conf_size(c, key, dflt, &v, err);

	if (!rc && (v < min || v > max))
		rc = err_set(err, -EINVAL, "%s=%llu is out of range; give a number from %u to %u",
			     key, (unsigned long long)v, min, max);
	if (!rc)
		*ret = (uint32_t)v;
	return rc;
}

/* A fraction; of the threshold more than 1 means that no report will do. */
static int get_fraction(const struct conf *c, const char *key, const char *dflt, double *ret,
			struct err *err)
{
	const char *s = conf_get_or(c, key, dflt);
	char *end;
	const double v = strtod(s, &end);

	if (end == s || *end || !(v >= 0))
		return err_set(err, -EINVAL, "%s=%s is not a fraction like %s", key, s, dflt);
	*ret = v;
	return 0;
}

static int load_work(const struct conf *c, struct work_limits *w, struct err *e)
{
	int rc = get_u32(c, "dfs.namenode.replication.max-streams", 2, 1, NN_LIMIT_MAX, &w->streams,
			 e);

	rc = rc ? rc
		: get_u32(c, "dfs.namenode.replication.max-streams-hard-limit", 4, 1, NN_LIMIT_MAX,
			  &w->streams_hard, e);
	rc = rc ? rc
		: get_u32(c, "dfs.namenode.replication.work.multiplier.per.iteration", 4, 1,
			  NN_LIMIT_MAX, &w->orders, e);
	rc = rc ? rc
		: get_u32(c, "dfs.block.invalidate.limit", 1000, 1, 100 * NN_LIMIT_MAX,
			  &w->deletions, e);
	rc = rc ? rc
		: get_u32(c, "dfs.namenode.max.full.block.report.leases", 6, 1, NN_LIMIT_MAX,
			  &w->reports, e);
	rc = rc ? rc
		: conf_u64(c, "dfs.namenode.full.block.report.lease.length.ms", 300000,
			   &w->report_ms, e);
	if (!rc && (!w->report_ms || w->report_ms > UINT64_MAX / NS_PER_MS / 2))
		rc = err_set(
			e, -EINVAL,
			"dfs.namenode.full.block.report.lease.length.ms=%llu is out of range; give some "
			"minutes, in milliseconds",
			(unsigned long long)w->report_ms);
	if (w->streams_hard < w->streams)
		w->streams_hard = w->streams;
	return rc;
}

static int get_ms(const struct conf *c, const char *key, uint64_t *ret, struct err *e)
{
	int rc = conf_time_ms(c, key, 30000, ret, e);

	if (!rc && (!*ret || *ret > UINT64_MAX / NS_PER_MS / 2))
		rc = err_set(e, -EINVAL,
			     "%s=%llu is out of range; give some seconds, in milliseconds", key,
			     (unsigned long long)*ret);
	return rc;
}

static int load_caching(const struct conf *c, struct settings *s, struct err *e)
{
	int rc = conf_bool(c, "dfs.namenode.caching.enabled", true, &s->caching, e);

	rc = rc ? rc
		: get_ms(c, "dfs.namenode.path.based.cache.refresh.interval.ms", &s->cache_scan_ms,
			 e);
	rc = rc ? rc
		: get_ms(c, "dfs.namenode.path.based.cache.retry.interval.ms", &s->cache_retry_ms,
			 e);
	rc = rc ? rc
		: get_u32(c, "dfs.namenode.list.cache.pools.num.responses", 100, 1, NN_LIMIT_MAX,
			  &s->cache_pools_listed, e);
	return rc ? rc
		  : get_u32(c, "dfs.namenode.list.cache.directives.num.responses", 100, 1,
			    NN_LIMIT_MAX, &s->cache_directives_listed, e);
}

/* Fewer heartbeats than dfs.namenode.stale.datanode.minimum.interval are missed by chance. */
static int load_stale(const struct conf *c, struct settings *s, struct err *e)
{
	uint64_t beats = 3;
	int rc = conf_u64(c, "dfs.namenode.stale.datanode.interval", 30000, &s->stale_ms, e);

	rc = rc ? rc : conf_u64(c, "dfs.namenode.stale.datanode.minimum.interval", 3, &beats, e);
	rc = rc ? rc
		: conf_bool(c, "dfs.namenode.avoid.read.stale.datanode", true, &s->avoid_read_stale,
			    e);
	rc = rc ? rc
		: conf_bool(c, "dfs.namenode.avoid.write.stale.datanode", true,
			    &s->avoid_write_stale, e);
	rc = rc ? rc
		: get_fraction(c, "dfs.namenode.write.stale.datanode.ratio", "0.5", &s->stale_ratio,
			       e);
	if (!rc && (!s->stale_ms || s->stale_ms > UINT64_MAX / NS_PER_MS / 2 || beats > 1000000))
		rc = err_set(
			e, -EINVAL,
			"dfs.namenode.stale.datanode.interval=%llu (milliseconds) or "
			"dfs.namenode.stale.datanode.minimum.interval=%llu (heartbeats) is out of range; "
			"leave both out to get 30 seconds and 3 heartbeats",
			(unsigned long long)s->stale_ms, (unsigned long long)beats);
	if (!rc && s->stale_ms < beats * s->heartbeat_ms) {
		log_warn(
			"dfs.namenode.stale.datanode.interval=%llu is less than %llu heartbeats: taking %llu ms",
			(unsigned long long)s->stale_ms, (unsigned long long)beats,
			(unsigned long long)(beats * s->heartbeat_ms));
		s->stale_ms = beats * s->heartbeat_ms;
	}
	return rc;
}

static int get_checksum(const struct conf *c, uint32_t *ret, struct err *err)
{
	const char *s = conf_get_or(c, "dfs.checksum.type", "CRC32C");

	if (!strcmp(s, "CRC32C"))
		*ret = CRC_CRC32C;
	else if (!strcmp(s, "CRC32"))
		*ret = CRC_CRC32;
	else if (!strcmp(s, "NULL"))
		*ret = CRC_NULL;
	else
		return err_set(err, -EINVAL, "dfs.checksum.type=%s is none of CRC32C, CRC32, NULL",
			       s);
	return 0;
}

static int load_times(const struct conf *c, struct settings *s, struct err *e)
{
	uint64_t hard_s = LEASE_HARD_MS / 1000;
	int rc = conf_time_ms(c, "dfs.heartbeat.interval", 3000, &s->heartbeat_ms, e);

	rc = rc ? rc
		: conf_u64(c, "dfs.namenode.heartbeat.recheck-interval", 300000, &s->recheck_ms, e);
	rc = rc ? rc
		: conf_time_ms(c, "dfs.namenode.redundancy.interval.seconds", 3000,
			       &s->redundancy_ms, e);
	rc = rc ? rc
		: conf_time_ms(c, "dfs.namenode.reconstruction.pending.timeout-sec", 300000,
			       &s->pending_ms, e);
	rc = rc ? rc
		: conf_time_ms(c, "dfs.shim.redundancy.delay", 30000, &s->redundancy_delay_ms, e);
	rc = rc ? rc
		: conf_time_ms(c, "dfs.shim.dead.datanode.keep", 7 * 86400000ull, &s->dead_keep_ms,
			       e);
	rc = rc ? rc
		: conf_time_ms(c, "dfs.namenode.safemode.extension", 0, &s->safe_extension_ms, e);
	rc = rc ? rc
		: conf_u64(c, "dfs.namenode.retrycache.expirytime.millis", 600000, &s->retry_ms, e);
	rc = rc ? rc : conf_u64(c, "dfs.namenode.lease-hard-limit-sec", hard_s, &hard_s, e);
	rc = rc ? rc
		: conf_time_ms(c, "dfs.shim.lease.soft-limit", LEASE_SOFT_MS, &s->lease_soft_ms, e);
	rc = rc ? rc
		: conf_time_ms(c, "dfs.shim.block.recovery.interval", NN_RECOVERY_MS,
			       &s->recovery_ms, e);
	rc = rc ? rc
		: conf_time_ms(c, "dfs.namenode.decommission.interval", 30000, &s->decommission_ms,
			       e);
	s->lease_hard_ms = hard_s * 1000;
	return rc;
}

/* Where an administrator's dumps go: hadoop.log.dir, else $HADOOP_LOG_DIR, else beside the
 * namespace. */
static void load_log_dir(const struct conf *c, struct settings *s)
{
	const char *d = conf_get(c, "hadoop.log.dir");

	d = d && *d ? d : getenv("HADOOP_LOG_DIR");
	snprintf(s->log_dir, sizeof(s->log_dir), "%s", d && *d ? d : s->name_dir);
}

struct wanted {
	const char *key;
	bool set;
};

static void is_wanted(void *arg, const char *key, const char *value)
{
	struct wanted *w = arg;

	(void)value;
	w->set = w->set || !strcmp(key, w->key);
}

/* Our own clients send larger packets than Hadoop's; what is told to others is Hadoop's default. */
static int get_write_packet(const struct conf *c, struct settings *s, struct err *err)
{
	struct wanted w = {.key = "dfs.client-write-packet-size"};

	conf_each(c, is_wanted, &w);
	s->write_packet = HDFS_WRITE_PACKET;
	return w.set ? get_u32(c, w.key, HDFS_WRITE_PACKET, 512, 16 << 20, &s->write_packet, err)
		     : 0;
}

static int get_fixed_groups(const struct conf *c, struct settings *s, struct err *err)
{
	const char *key = "hadoop.user.group.static.mapping.overrides";
	const char *text = conf_get_or(c, key, "dr.who=;");

	if (strlen(text) >= sizeof(s->fixed_groups))
		return err_set(err, -EINVAL, "%s is longer than %zu bytes; shorten the list", key,
			       sizeof(s->fixed_groups) - 1);
	snprintf(s->fixed_groups, sizeof(s->fixed_groups), "%s", text);
	return 0;
}

static int load_limits(const struct conf *c, struct settings *s, struct err *e)
{
	struct ns_limits *l = &s->limits;
	int rc = get_u32(c, "dfs.namenode.fs-limits.max-component-length", INODE_NAME_MAX, 0,
			 INODE_NAME_MAX, &l->max_component, e);

	if (!rc && !l->max_component) /* "no limit" of HDFS: as long as a name can be here */
		l->max_component = INODE_NAME_MAX;
	rc = rc ? rc
		: get_u32(c, "dfs.namenode.fs-limits.max-directory-items", DIR_ITEMS_DEFAULT, 1,
			  DIR_ITEMS_MAX, &l->max_dir_items, e);
	rc = rc ? rc
		: conf_u64(c, "dfs.namenode.accesstime.precision", ATIME_PRECISION_MS,
			   &s->atime_precision_ms, e);
	if (!rc && conf_list(c, "fs.protected.directories", &l->protected_dirs) < 0)
		rc = err_set(e, -ENOMEM, "no memory for the list of fs.protected.directories");
	return rc ? rc : get_fixed_groups(c, s, e);
}

static int load_attributes(const struct conf *c, struct ns_limits *l, struct err *e)
{
	int rc = conf_bool(c, "dfs.namenode.xattrs.enabled", true, &l->xattrs, e);

	rc = rc ? rc
		: get_u32(c, "dfs.namenode.fs-limits.max-xattrs-per-inode", XATTRS_PER_INODE, 0,
			  XATTRS_PER_INODE_MAX, &l->xattrs_max, e);
	rc = rc ? rc
		: get_u32(c, "dfs.namenode.fs-limits.max-xattr-size", XATTR_BYTES, 1,
			  XATTR_BYTES_MAX, &l->xattr_bytes, e);
	rc = rc ? rc : conf_bool(c, "dfs.namenode.acls.enabled", true, &l->acls, e);
	rc = rc ? rc
		: conf_bool(c, "dfs.namenode.posix.acl.inheritance.enabled", true, &l->acl_unmasked,
			    e);
	return rc ? rc : conf_bool(c, "dfs.namenode.symlinks.enabled", false, &l->symlinks, e);
}

static int load_ec(const struct conf *c, struct ec_rules *r, struct err *e)
{
	const char *key = "dfs.namenode.ec.system.default.policy";
	const char *dflt = conf_get_or(c, key, EC_DEFAULT_POLICY);
	struct ec_policy p;
	int rc = *dflt ? ec_policy_parse(dflt, &p, e) : 0;

	if (rc < 0)
		return err_prefix(e, "%s", key);
	snprintf(r->dflt, sizeof(r->dflt), "%s", dflt);
	rc = get_u32(c, "dfs.namenode.ec.policies.max.cellsize", EC_CELL_MAX_ADD, EC_CELL_STEP,
		     EC_CELL_MAX, &r->cell_max, e);
	rc = rc ? rc : conf_bool(c, "dfs.namenode.ec.strict-placement", false, &r->strict, e);
	return rc ? rc
		  : conf_bool(c, "dfs.namenode.ec.userdefined.policy.allowed", true, &r->may_add,
			      e);
}

void settings_fini(struct settings *s)
{
	conf_list_free(s->limits.protected_dirs);
	s->limits.protected_dirs = NULL;
}

/* Keys that ask for secrecy or proof of identity: who sets them must not get a NameNode without
 * either. */
static int refuse_security(const struct conf *c, struct err *e)
{
	const char *who = conf_get_or(c, "hadoop.security.authentication", "simple");
	const char *http = conf_get_or(c, "dfs.http.policy", "");
	bool tokens = false, encrypt = false;
	int rc = conf_bool(c, "dfs.block.access.token.enable", false, &tokens, e);

	rc = rc ? rc : conf_bool(c, "dfs.encrypt.data.transfer", false, &encrypt, e);
	if (rc)
		return rc;
	if (!strcasecmp(http, "HTTPS_ONLY"))
		return err_set(
			e, -ENOTSUP,
			"dfs.http.policy=%s: this NameNode has no HTTPS pages; set HTTP_ONLY or "
			"HTTP_AND_HTTPS here, or keep Apache's NameNode",
			http);
	if (encrypt)
		return err_set(
			e, -ENOTSUP,
			"dfs.encrypt.data.transfer=true: this NameNode gives out no keys; set it to "
			"false on the whole cluster, or keep Apache's NameNode");
	if (strcasecmp(who, "simple") != 0)
		return err_set(
			e, -ENOTSUP,
			"hadoop.security.authentication=%s: this NameNode speaks `simple` only and "
			"believes every name; keep Apache's on a secure cluster",
			who);
	if (tokens)
		return err_set(
			e, -ENOTSUP,
			"dfs.block.access.token.enable=true: this NameNode issues no block tokens; set "
			"it to false on the whole cluster, or keep Apache's NameNode");
	return 0;
}

/* Checkpoints are made as often as they expire unless a shorter time is given, as in HDFS. */
static int load_trash(const struct conf *c, struct settings *s, struct err *e)
{
	const char *homes = conf_get_or(c, "dfs.user.home.dir.prefix", "/user");
	struct trash_rules *r = &s->trash;
	size_t len = strlen(homes);
	double minutes = 0;
	int rc = conf_u64(c, "fs.trash.interval", 0, &s->trash_min, e);

	rc = rc ? rc : get_fraction(c, "fs.trash.checkpoint.interval", "0", &minutes, e);
	rc = rc ? rc : conf_bool(c, "fs.trash.clean.trashroot.enable", false, &r->clean, e);
	if (!rc && s->trash_min > TRASH_MINUTES_MAX)
		rc = err_set(e, -EINVAL,
			     "fs.trash.interval=%llu is more than %u minutes; give fewer",
			     (unsigned long long)s->trash_min, TRASH_MINUTES_MAX);
	if (!rc && (*homes != '/' || len >= sizeof(r->homes)))
		rc = err_set(e, -EINVAL,
			     "dfs.user.home.dir.prefix=%.100s is no path; give one like /user",
			     homes);
	if (rc)
		return rc;
	while (len > 1 && homes[len - 1] == '/')
		len--;
	snprintf(r->homes, sizeof(r->homes), "%.*s", (int)len, homes);
	r->keep_ms = s->trash_min * 60000;
	r->every_ms = minutes > 0 && minutes < (double)s->trash_min ? (uint64_t)(minutes * 60000)
								    : r->keep_ms;
	if (r->keep_ms && r->every_ms < TRASH_EVERY_MIN_MS)
		r->every_ms = TRASH_EVERY_MIN_MS;
	return 0;
}

/* Octal, or clauses such as u=rwx,g+r as Hadoop has them. */
static bool is_umask(const char *v)
{
	const size_t digits = strspn(v, "01234567");

	if (digits && !v[digits]) /* three, zeros before them, and no sticky bit */
		return digits >= 3 && strspn(v, "0") >= digits - 3;
	while (*v) {
		v += strspn(v, "ugoa");
		if (!strspn(v, "+=-"))
			return false;
		v += strspn(v, "+=-");
		v += strspn(v, "rwx");
		if (*v && *v++ != ',')
			return false;
	}
	return true;
}

/* Block sizes that only a client meets, at its create: whoever gives none takes ours. */
static void warn_of_block_size(const struct settings *s)
{
	const unsigned long long size = s->block_size, chunk = s->bytes_per_checksum,
				 least = s->min_block_size;

	if (size % chunk)
		log_warn(
			"dfs.blocksize=%llu is no multiple of dfs.bytes-per-checksum=%llu: clients that give no block "
			"size cannot create files; set it to %llu, say",
			size, chunk, (size / chunk + 1) * chunk);
	if (size < least)
		log_warn(
			"dfs.blocksize=%llu is less than dfs.namenode.fs-limits.min-block-size=%llu: clients that give "
			"no block size cannot create files; raise the one or lower the other",
			size, least);
}

/* Apache's NameNode starts with these values, too, so this one does not refuse them. */
static void warn_of_odd_values(const struct conf *c, const struct settings *s)
{
	const char *umask = conf_get_or(c, "fs.permissions.umask-mode", "022");
	const char *mode = conf_get_or(c, "dfs.storage.policy.satisfier.mode", "none");
	const char *script = conf_get_or(c, "net.topology.script.file.name", "");
	char quoted[200];

	warn_of_block_size(s);
	if (!is_umask(umask))
		log_warn(
			"fs.permissions.umask-mode=%s is no umask: clients with this value fail; set it to an octal "
			"number such as 022, or to u=rwx,g=rx,o=rx",
			log_quote(quoted, sizeof(quoted), umask, strlen(umask)));
	if (*mode && strcasecmp(mode, "none") != 0 && strcasecmp(mode, "external") != 0)
		log_warn(
			"dfs.storage.policy.satisfier.mode=%s is neither none nor external: taking none; set it to external "
			"to have replicas moved to the storage types wanted",
			log_quote(quoted, sizeof(quoted), mode, strlen(mode)));
	if (*script && access(script, X_OK) < 0)
		log_warn(
			"net.topology.script.file.name=%s: %s: data nodes are in %s until this user can run it; correct the "
			"path or its permissions, or leave the key out",
			log_quote(quoted, sizeof(quoted), script, strlen(script)),
			err_name(neg_errno()), DN_DEFAULT_RACK);
}

int settings_load(const struct conf *c, struct settings *s, struct err *e)
{
	int rc;

	*s = (struct settings){.conf = c};
	rc = refuse_security(c, e);
	rc = rc ? rc : settings_name_dir(c, s, e);
	rc = rc ? rc : rpc_addr(c, &s->rpc, s->host, e);
	rc = rc ? rc : http_addr(c, &s->http, e);
	rc = rc ? rc : conf_bool(c, "dfs.shim.journal", true, &s->journal, e);
	rc = rc ? rc : conf_bool(c, "dfs.permissions.enabled", true, &s->permissions, e);
	rc = rc ? rc : conf_size(c, "dfs.blocksize", 128 << 20, &s->block_size, e);
	rc = rc ? rc
		: conf_size(c, "dfs.namenode.fs-limits.min-block-size", 1 << 20, &s->min_block_size,
			    e);
	rc = rc ? rc
		: get_u32(c, "dfs.bytes-per-checksum", 512, 1, 1 << 20, &s->bytes_per_checksum, e);
	rc = rc ? rc : get_write_packet(c, s, e);
	rc = rc ? rc : get_u32(c, "io.file.buffer.size", 4096, 1, 1 << 30, &s->io_buffer, e);
	rc = rc ? rc : get_u32(c, "dfs.replication.max", 512, 1, 32767, &s->repl_max, e);
	rc = rc ? rc
		: get_u32(c, "dfs.namenode.replication.min", 1, 1, s->repl_max, &s->repl_min, e);
	rc = rc ? rc
		: get_u32(c, "dfs.replication", 3, s->repl_min, s->repl_max, &s->replication, e);
	rc = rc ? rc : get_u32(c, "dfs.ls.limit", 1000, 1, 100000, &s->ls_limit, e);
	rc = rc ? rc
		: get_u32(c, "dfs.namenode.fs-limits.max-blocks-per-file", 10000, 1, 10000000,
			  &s->max_blocks_per_file, e);
	rc = rc ? rc : load_trash(c, s, e);
	rc = rc ? rc
		: get_fraction(c, "dfs.namenode.safemode.threshold-pct", "0.999", &s->safe_pct, e);
	rc = rc ? rc
		: get_u32(c, "dfs.namenode.safemode.min.datanodes", 0, 0, 1 << 20, &s->safe_nodes,
			  e);
	rc = rc ? rc
		: get_u32(c, "dfs.namenode.safemode.replication.min", s->repl_min, 1, s->repl_max,
			  &s->safe_repl, e);
	rc = rc ? rc
		: get_u32(c, "dfs.namenode.maintenance.replication.min", 1, 0, s->repl_max,
			  &s->maintenance_min, e);
	if (!rc)
		load_log_dir(c, s);
	rc = rc ? rc : get_checksum(c, &s->checksum_type, e);
	rc = rc ? rc : load_times(c, s, e);
	rc = rc ? rc : load_stale(c, s, e);
	rc = rc ? rc : load_work(c, &s->work, e);
	rc = rc ? rc : load_caching(c, s, e);
	s->satisfier = !strcasecmp(conf_get_or(c, "dfs.storage.policy.satisfier.mode", "none"),
				   "external");
	rc = rc ? rc : load_limits(c, s, e);
	rc = rc ? rc : load_attributes(c, &s->limits, e);
	rc = rc ? rc : load_ec(c, &s->ec, e);
	if (!rc)
		warn_of_odd_values(c, s);
	if (!rc)
		snprintf(s->super_group, sizeof(s->super_group), "%s",
			 conf_get_or(c, "dfs.permissions.superusergroup", "supergroup"));
	return rc;
}
