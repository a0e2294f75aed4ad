/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/fs/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_MAX 33 /* packet header with its two lengths, hdfs-wire 5.3 */

struct choice {
	const char *name;
	int value;
};

static int conf_choice(const struct conf *c, const char *key, const struct choice *o, int *ret,
		       struct err *err)
{
	const char *v = conf_get(c, key);
	char names[96] = "";

	if (!v) {
		*ret = o->value; /* the first is the default */
		return 0;
	}
	for (; o->name; o++) {
		if (strcasecmp(o->name, v) == 0) {
			*ret = o->value;
			return 0;
		}
		if (names[0])
			strncat(names, ", ", sizeof(names) - strlen(names) - 1);
		strncat(names, o->name, sizeof(names) - strlen(names) - 1);
	}
	return err_set(err, -EINVAL, "%s=%s: not one of %s", key, v, names);
}

static int conf_u32(const struct conf *c, const char *key, uint32_t dflt, uint32_t max,
		    uint32_t *ret, struct err *err)
{
	uint64_t v;
	int rc = conf_size(c, key, dflt, &v, err);

	if (rc < 0)
		return rc;
	if (v > max)
		return err_set(err, -EINVAL, "%s=%s: more than %u", key, conf_get(c, key), max);
	*ret = (uint32_t)v;
	return 0;
}

static int positive(const struct conf *c, const char *key, uint64_t v, struct err *err)
{
	return v || !conf_is_set(c, key)
		       ? 0
		       : err_set(err, -EINVAL,
				 "%s=0: give 1 or more, or leave it out for the NameNode's own value",
				 key);
}

static int conf_ms(const struct conf *c, const char *key, uint32_t dflt, uint32_t *ret,
		   struct err *err)
{
	uint64_t v;
	int rc = conf_time_ms(c, key, dflt, &v, err);

	if (rc < 0)
		return rc;
	if (v == 0 || v > INT32_MAX)
		return err_set(err, -EINVAL, "%s=%s: not between 1 ms and 24 days", key,
			       conf_get(c, key));
	*ret = (uint32_t)v;
	return 0;
}

/* Octal ("022") or symbolic ("u=rwx,g=rx,o="), as Hadoop has it. */
static int conf_umask(const struct conf *c, uint32_t *ret, struct err *err)
{
	const char *key = "fs.permissions.umask-mode";
	const char *v = conf_get(c, key);
	uint32_t allowed[3] = {7, 7, 7}; /* u g o */
	char *end;
	unsigned long octal;

	if (!v)
		v = "022";
	octal = strtoul(v, &end, 8);
	if (*v >= '0' && *v <= '7' && *end == '\0' && octal <= 0777) {
		*ret = (uint32_t)octal;
		return 0;
	}
	for (const char *p = v; *p;) {
		const char *who = strchr("ugo", *p);
		uint32_t bits = 0;

		if (!who || p[1] != '=')
			goto bad;
		for (p += 2; *p && *p != ','; p++) {
			const char *bit = strchr("xwr", *p);

			if (!bit)
				goto bad;
			bits |= 1u << (bit - "xwr");
		}
		allowed[who - "ugo"] = bits;
		if (*p == ',')
			p++;
	}
	*ret = ~(allowed[0] << 6 | allowed[1] << 3 | allowed[2]) & 0777;
	return 0;
bad:
	return err_set(err, -EINVAL, "%s=%s: neither octal (022) nor u=rwx,g=rx,o=rx", key, v);
}

uint32_t settings_packet_payload(uint64_t packet_size, uint32_t bpc)
{
	uint64_t chunks = packet_size > HEADER_MAX ? (packet_size - HEADER_MAX) / (bpc + 4) : 0;
	uint64_t max = PACKET_BYTES_MAX / bpc;

	if (chunks > max)
		chunks = max;
	return (uint32_t)(chunks ? chunks : 1) * bpc;
}

/* "10000,6,60000,10": six times after 10 s, then ten times after 60 s. */
static int conf_retries(const struct conf *c, struct settings *ret, struct err *err)
{
	const char *key = "dfs.client.retry.policy.spec";
	const char *v = conf_get_or(c, key, "10000,6,60000,10");
	uint32_t n = 0;

	for (const char *p = v;; p++) {
		unsigned int ms, times;
		int len = 0;

		if (n == RETRY_STEPS_MAX || sscanf(p, " %9u , %9u %n", &ms, &times, &len) != 2 ||
		    len == 0 || (p[len] && p[len] != ','))
			return err_set(err, -EINVAL,
				       "%s=%s: not pairs of milliseconds and times, "
				       "at most %d",
				       key, v, RETRY_STEPS_MAX);
		ret->retry[n].pause_ms = ms;
		ret->retry[n++].times = times;
		p += len;
		if (!*p)
			break;
	}
	ret->retry_steps = n;
	return 0;
}

static int conf_hint(const struct conf *c, const char *key, enum hint *ret, struct err *err)
{
	const char *v = conf_get(c, key);
	bool yes;
	int rc;

	*ret = HINT_NONE;
	if (!v || !*v) /* hdfs-default.xml has it without a value */
		return 0;
	rc = conf_bool(c, key, false, &yes, err);
	if (rc == 0)
		*ret = yes ? HINT_YES : HINT_NO;
	return rc;
}

static int conf_hints(const struct conf *c, struct settings *ret, struct err *err)
{
	const char *ahead = conf_get(c, "dfs.client.cache.readahead");
	int rc = conf_hint(c, "dfs.client.cache.drop.behind.reads", &ret->drop_reads, err);

	rc = rc ?: conf_hint(c, "dfs.client.cache.drop.behind.writes", &ret->drop_writes, err);
	ret->has_readahead = ahead && *ahead;
	if (rc == 0 && ret->has_readahead)
		rc = conf_size(c, "dfs.client.cache.readahead", 0, &ret->readahead, err);
	if (rc == 0 && ret->readahead > INT64_MAX)
		rc = err_set(err, -EINVAL, "dfs.client.cache.readahead=%s: more than 2^63 bytes",
			     ahead);
	return rc;
}

static int conf_local(const struct conf *c, struct settings *ret, struct err *err)
{
#define LOCAL "dfs.client.read.shortcircuit."
	int rc = conf_bool(c, "dfs.client.read.shortcircuit", false, &ret->local.enabled, err);

	rc = rc ?: conf_bool(c, LOCAL "skip.checksum", false, &ret->local.skip_checksum, err);
	rc = rc ?: conf_u32(c, LOCAL "streams.cache.size", 256, 65536, &ret->local.cache_size, err);
	rc = rc ?: conf_ms(c, LOCAL "streams.cache.expiry.ms", 300000, &ret->local.expiry_ms, err);
	rc = rc
		     ?: conf_u32(c, "dfs.domain.socket.disable.interval.seconds", 600, INT32_MAX,
				 &ret->local.disable_s, err);
	ret->local.path = conf_get_or(c, "dfs.domain.socket.path", "");
	return rc;
}

static int conf_connections(const struct conf *c, struct settings *ret, struct err *err)
{
	int rc = conf_bool(c, "dfs.client.use.datanode.hostname", false, &ret->use_hostname, err);

	rc = rc ?: conf_ms(c, "dfs.client.socket-timeout", 60000, &ret->socket_timeout_ms, err);
	rc = rc ?: conf_ms(c, "ipc.client.connect.timeout", 20000, &ret->connect_timeout_ms, err);
	return rc
		       ?: conf_u32(c, "ipc.client.connect.max.retries", 10, 100000,
				   &ret->connect_retries, err);
}

static int conf_failover(const struct conf *c, struct settings *ret, struct err *err)
{
#define FAILOVER "dfs.client.failover."
	int rc = conf_u32(c, FAILOVER "max.attempts", 15, 1000, &ret->failovers_max, err);

	rc = rc
		     ?: conf_u32(c, FAILOVER "connection.retries", 0, 1000,
				 &ret->failover_connect_retries, err);
	rc = rc ?: conf_ms(c, FAILOVER "sleep.base.millis", 500, &ret->failover_base_ms, err);
	rc = rc ?: conf_ms(c, FAILOVER "sleep.max.millis", 15000, &ret->failover_max_ms, err);
	rc = rc ?: conf_u32(c, "dfs.client.retry.max.attempts", 10, 1000, &ret->retries_max, err);
	rc = rc
		     ?: conf_u32(c, "dfs.client.retry.startup.safe-mode.millis", 0, 86400000,
				 &ret->startup_ms, err);
	rc = rc ?: conf_bool(c, "dfs.client.retry.policy.enabled", false, &ret->retry_enabled, err);
	return rc ?: conf_retries(c, ret, err);
}

static int conf_rdma(const struct conf *c, struct settings *ret, struct err *err)
{
	static const struct choice modes[] = {
		{"auto", RDMA_AUTO}, {"require", RDMA_REQUIRE}, {"off", RDMA_OFF}, {0}};
	static const struct choice onesided[] = {{"auto", true}, {"off", false}, {0}};
	int mode = 0, views = 0, rc = conf_choice(c, "dfs.client.rdma", modes, &mode, err);

	ret->rdma = (enum rdma_mode)mode;
	rc = rc ?: conf_choice(c, "dfs.rdma.onesided", onesided, &views, err);
	ret->onesided = views;
	rc = rc ?: verbs_tuning_read(c, &ret->rdma_tuning, err);
	rc = rc ?: verbs_windows_read(c, &ret->rdma_windows, err);
	rc = rc ?: verbs_polling_read(c, &ret->rdma_spin_us, err);
	rc = rc ?: conf_size(c, "dfs.rdma.eager.limit", 0, &ret->eager_limit, err);
	return rc ?: conf_ms(c, "dfs.rdma.pool.wait", 30000, &ret->rdma_wait_ms, err);
}

/* What takes the place of a node that fails under a writer. */
static int conf_replace(const struct conf *c, struct settings *ret, struct err *err)
{
#define REPLACE "dfs.client.block.write.replace-datanode-on-failure."
	static const struct choice policies[] = {{"DEFAULT", REPLACE_DEFAULT},
						 {"ALWAYS", REPLACE_ALWAYS},
						 {"NEVER", REPLACE_NEVER},
						 {0}};
	int policy = 0, rc = conf_choice(c, REPLACE "policy", policies, &policy, err);

	ret->replace_policy = (enum replace_policy)policy;
	rc = rc ?: conf_bool(c, REPLACE "enable", true, &ret->replace_enable, err);
	return rc ?: conf_bool(c, REPLACE "best-effort", false, &ret->replace_best_effort, err);
}

static int conf_writers(const struct conf *c, struct settings *ret, struct err *err)
{
	int rc = conf_u32(c, "dfs.client-write-packet-size", 65536, 16u << 20, &ret->packet_size,
			  err);

	rc = rc
		     ?: conf_u32(c, "dfs.client.write.max-packets-in-flight", 80, 65536,
				 &ret->window_packets, err);
	rc = rc
		     ?: conf_u32(c, "dfs.client.block.write.retries", 3, 1000,
				 &ret->block_write_retries, err);
	rc = rc
		     ?: conf_ms(c, "dfs.client.write.exclude.nodes.cache.expiry.interval.millis",
				600000, &ret->exclude_ms, err);
	if (ret->window_packets < 2)
		ret->window_packets = 2;
	return rc ?: conf_replace(c, ret, err);
}

static int conf_ec(const struct conf *c, struct settings *ret, struct err *err)
{
	static const struct choice flushes[] = {
		{"group", EC_FLUSH_GROUP}, {"ignore", EC_FLUSH_IGNORE}, {0}};
	static const struct choice bare[] = {{"refuse", false}, {"allow", true}, {0}};
	int flush = 0, without_parity = 0,
	    rc = conf_choice(c, "dfs.client.ec.flush", flushes, &flush, err);

	rc = rc ?: conf_choice(c, "dfs.client.ec.without.parity", bare, &without_parity, err);
	ret->ec_flush = (enum ec_flush)flush;
	ret->ec_without_parity = without_parity;
	return rc;
}

static int conf_new_files(const struct conf *c, struct settings *ret, struct err *err)
{
	static const struct choice types[] = {
		{"CRC32C", CRC_CRC32C}, {"CRC32", CRC_CRC32}, {"NULL", CRC_NULL}, {0}};
	int type = 0, rc = conf_choice(c, "dfs.checksum.type", types, &type, err);

	ret->crc_type = (enum crc_type)type;
	rc = rc ?: conf_size(c, "dfs.blocksize", 0, &ret->block_size, err);
	rc = rc ?: conf_u32(c, "dfs.replication", 0, 32767, &ret->replication, err);
	rc = rc ?: conf_u32(c, "dfs.bytes-per-checksum", 0, BPC_MAX, &ret->bytes_per_checksum, err);
	rc = rc ?: positive(c, "dfs.blocksize", ret->block_size, err);
	rc = rc ?: positive(c, "dfs.replication", ret->replication, err);
	rc = rc ?: positive(c, "dfs.bytes-per-checksum", ret->bytes_per_checksum, err);
	return rc ?: conf_umask(c, &ret->umask, err);
}

int settings_load(const struct conf *c, struct settings *ret, struct err *err)
{
	struct settings s = {0};
	int rc = conf_connections(c, &s, err);

	rc = rc ?: conf_failover(c, &s, err);
	rc = rc
		     ?: conf_u32(c, "dfs.client.max.block.acquire.failures", 3, 1000,
				 &s.acquire_failures, err);
	rc = rc ?: conf_hints(c, &s, err);
	rc = rc ?: conf_rdma(c, &s, err);
	rc = rc ?: conf_local(c, &s, err);
	rc = rc ?: conf_writers(c, &s, err);
	rc = rc ?: conf_ec(c, &s, err);
	rc = rc ?: conf_new_files(c, &s, err);
	if (rc < 0)
		return rc;
	/* who requires RDMA wants to see it */
	s.local.enabled = s.local.enabled && *s.local.path && s.rdma != RDMA_REQUIRE;
	*ret = s;
	return 0;
}
