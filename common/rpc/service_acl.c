/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/service_acl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/conf.h"
#include "common/base/log.h"

#define POLICY_FILE "hadoop-policy.xml"
#define DEFAULT_KEY "security.service.authorization.default"
#define KEY_MAX 128

/* Protocols, and their keys without ".acl" and ".hosts". */
static const struct {
	const char *protocol, *key;
} services[] = {
	{"org.apache.hadoop.hdfs.protocol.ClientProtocol", "security.client.protocol"},
	{"org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol",
	 "security.client.datanode.protocol"},
	{"org.apache.hadoop.hdfs.server.protocol.DatanodeProtocol", "security.datanode.protocol"},
	{"org.apache.hadoop.hdfs.server.protocol.InterDatanodeProtocol",
	 "security.inter.datanode.protocol"},
	{"org.apache.hadoop.hdfs.server.protocol.DatanodeLifelineProtocol",
	 "security.datanode.lifeline.protocol"},
	{"org.apache.hadoop.hdfs.server.protocol.NamenodeProtocol", "security.namenode.protocol"},
	{"org.apache.hadoop.hdfs.protocol.ReconfigurationProtocol",
	 "security.reconfiguration.protocol"},
	{"org.apache.hadoop.ha.HAServiceProtocol", "security.ha.service.protocol"},
	{"org.apache.hadoop.security.authorize.RefreshAuthorizationPolicyProtocol",
	 "security.refresh.policy.protocol"},
	{"org.apache.hadoop.security.RefreshUserMappingsProtocol",
	 "security.refresh.user.mappings.protocol"},
	{"org.apache.hadoop.tools.GetUserMappingsProtocol", "security.get.user.mappings.protocol"},
	{"org.apache.hadoop.ipc.RefreshCallQueueProtocol", "security.refresh.callqueue.protocol"},
	{"org.apache.hadoop.ipc.GenericRefreshProtocol", "security.refresh.generic.protocol"},
};
#define SERVICES (sizeof(services) / sizeof(services[0]))

/* A list as the file has it, cut into words. */
struct words {
	char *text;  /* owned */
	char **word; /* owned; NULL-terminated; in text */
};

struct people {
	bool all;
	struct words users, groups;
};

/* Addresses as IPv6 has them. */
struct range {
	uint8_t addr[16];
	unsigned int bits;
};

struct hosts {
	bool all;
	struct range *range; /* owned */
	size_t n;
};

struct rule {
	struct people allowed, blocked;
	struct hosts from, not_from;
};

struct table {
	struct rule rule[SERVICES];
};

struct service_acl {
	pthread_rwlock_t lock;
	pthread_mutex_t log_lock;
	struct log_rate rate; /* log_lock */
	atomic_uint_fast64_t denied;
	const struct conf *conf; /* borrowed */
	struct table *table;     /* owned */
};

/* ---- words ---- */

static int words_parse(const char *text, size_t len, struct words *ret)
{
	size_t n = 0;

	ret->text = strndup(text, len);
	ret->word = calloc(len / 2 + 2, sizeof(char *));
	if (!ret->text || !ret->word)
		return -ENOMEM;
	for (char *p = ret->text; *p;) {
		const size_t k = strcspn(p, ",");
		const bool end = !p[k];
		char *w = p + strspn(p, " \t\r\n"), *e = p + k;

		while (e > w && strchr(" \t\r\n", e[-1]))
			e--;
		*e = 0;
		if (w < e)
			ret->word[n++] = w;
		p += end ? k : k + 1;
	}
	return 0;
}

static void words_fini(struct words *w)
{
	free(w->text);
	free(w->word);
}

static bool is_wildcard(const char *text, size_t len)
{
	const size_t skip = strspn(text, " \t\r\n");

	return skip < len && text[skip] == '*' &&
	       skip + 1 + strspn(text + skip + 1, " \t\r\n") >= len;
}

/* ---- users and groups ---- */

/* "users groups", with one blank between the two. */
static int people_parse(const char *text, struct people *ret)
{
	const size_t len = strlen(text), cut = strcspn(text, " ");
	int rc;

	ret->all =
		is_wildcard(text, cut) || (cut < len && is_wildcard(text + cut + 1, len - cut - 1));
	rc = words_parse(text, cut, &ret->users);
	return rc ? rc
		  : words_parse(cut < len ? text + cut + 1 : "", cut < len ? len - cut - 1 : 0,
				&ret->groups);
}

static bool people_have(const struct people *p, const char *user, service_acl_in_group in_group,
			void *arg)
{
	bool found = p->all;

	for (char **w = p->users.word; *w && !found; w++)
		found = !strcmp(*w, user);
	for (char **w = p->groups.word; *w && !found; w++)
		found = in_group(arg, user, *w);
	return found;
}

/* ---- hosts ---- */

static void range_of(struct hosts *h, int family, const void *addr, unsigned int bits)
{
	struct range *r = &h->range[h->n++];

	memset(r->addr, 0, sizeof(r->addr));
	if (family == AF_INET) {
		r->addr[10] = r->addr[11] = 0xff;
		memcpy(r->addr + 12, addr, 4);
		bits += 96;
	} else {
		memcpy(r->addr, addr, 16);
	}
	r->bits = bits;
}

/* One word more in @h. */
static int hosts_add(struct hosts *h, const char *word)
{
	const char *slash = strchr(word, '/');
	_cleanup_free_ char *name = strndup(word, slash ? (size_t)(slash - word) : strlen(word));
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = slash ? AI_NUMERICHOST : 0},
			*found = NULL;
	struct range *more;
	uint64_t bits = 0;
	size_t n = 0;

	if (!name || (slash && conf_parse_u64(slash + 1, &bits)))
		return name ? -EINVAL : -ENOMEM;
	if (getaddrinfo(name, NULL, &hints, &found))
		return slash ? -EINVAL : -ENOENT;
	for (const struct addrinfo *i = found; i; i = i->ai_next)
		n++;
	more = realloc(h->range, (h->n + n) * sizeof(*more));
	h->range = more ? more : h->range;
	for (const struct addrinfo *i = found; i && more; i = i->ai_next) {
		const unsigned int all = i->ai_family == AF_INET ? 32 : 128;
		const struct sockaddr_in *in4 =
			(const struct sockaddr_in *)(const void *)i->ai_addr;
		const struct sockaddr_in6 *in6 =
			(const struct sockaddr_in6 *)(const void *)i->ai_addr;

		if (bits <= all)
			range_of(h, i->ai_family,
				 all == 32 ? (const void *)&in4->sin_addr
					   : (const void *)&in6->sin6_addr,
				 slash ? (unsigned int)bits : all);
		else
			n = 0; /* no such range */
	}
	freeaddrinfo(found);
	return !more ? -ENOMEM : n ? 0 : -EINVAL;
}

static int hosts_parse(const char *key, const char *text, struct hosts *ret, struct err *err)
{
	struct words w = {0};
	int rc;

	ret->all = is_wildcard(text, strlen(text));
	if (ret->all)
		return 0;
	rc = words_parse(text, strlen(text), &w);
	for (char **p = w.word; !rc && *p; p++) {
		rc = hosts_add(ret, *p);
		if (rc == -EINVAL)
			err_set(err, rc,
				"%s: %s is no range of addresses; write one as 10.1.0.0/16", key,
				*p);
		if (rc == -ENOENT) { /* as Hadoop: one host that has gone does not stop the rest */
			log_warn("op=policy key=%s text=\"the host %s is not known\"", key, *p);
			rc = 0;
		}
	}
	words_fini(&w);
	return rc;
}

static bool hosts_have(const struct hosts *h, const char *ip)
{
	struct hosts one = {.range = &(struct range){.bits = 0}};
	uint8_t addr[16];
	bool found = h->all;

	if (!found && inet_pton(AF_INET, ip, addr) == 1)
		range_of(&one, AF_INET, addr, 32);
	else if (!found && inet_pton(AF_INET6, ip, addr) == 1)
		range_of(&one, AF_INET6, addr, 128);
	for (size_t i = 0; i < h->n && one.n && !found; i++) {
		const struct range *r = &h->range[i];
		const unsigned int bytes = r->bits / 8, mask = 0xffu << (8 - r->bits % 8) & 0xffu;

		found = !memcmp(r->addr, one.range->addr, bytes) &&
			(bytes == 16 || !((r->addr[bytes] ^ one.range->addr[bytes]) & mask));
	}
	return found;
}

/* ---- the table ---- */

static void people_fini(struct people *p)
{
	words_fini(&p->users);
	words_fini(&p->groups);
}

static void table_free(struct table *t)
{
	for (size_t i = 0; t && i < SERVICES; i++) {
		people_fini(&t->rule[i].allowed);
		people_fini(&t->rule[i].blocked);
		free(t->rule[i].from.range);
		free(t->rule[i].not_from.range);
	}
	free(t);
}

/* The value of KEY.WHAT, that of the default for all services, or @dflt; *ret_key is of KEY_MAX. */
static const char *value(const struct conf *c, const char *key, const char *what, const char *dflt,
			 char *ret_key)
{
	const char *v;

	snprintf(ret_key, KEY_MAX, "%s.%s", key, what);
	v = conf_get(c, ret_key);
	if (v)
		return v;
	snprintf(ret_key, KEY_MAX, DEFAULT_KEY ".%s", what);
	return conf_get_or(c, ret_key, dflt);
}

static int rule_load(const struct conf *c, const char *key, struct rule *r, struct err *err)
{
	char name[KEY_MAX];
	int rc = people_parse(value(c, key, "acl", "*", name), &r->allowed);

	rc = rc ? rc : people_parse(value(c, key, "acl.blocked", "", name), &r->blocked);
	if (rc)
		return err_set(err, rc, "out of memory");
	rc = hosts_parse(name, value(c, key, "hosts", "*", name), &r->from, err);
	return rc ? rc
		  : hosts_parse(name, value(c, key, "hosts.blocked", "", name), &r->not_from, err);
}

static void warn_absent(const struct conf *c)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/" POLICY_FILE, conf_dir(c) ? conf_dir(c) : "");
	if (access(path, R_OK))
		log_warn(
			"op=policy text=\"hadoop.security.authorization=true, and there is no %s: everybody may call everything that "
			"-D does not forbid\"",
			path);
}

static int table_load(const struct conf *c, struct table **ret, struct err *err)
{
	struct table *t = calloc(1, sizeof(*t));
	struct conf *all = NULL;
	int rc = t ? conf_reload_with(c, POLICY_FILE, &all, err)
		   : err_set(err, -ENOMEM, "out of memory");

	for (size_t i = 0; i < SERVICES && !rc; i++)
		rc = rule_load(all, services[i].key, &t->rule[i], err);
	conf_free(all);
	if (rc < 0) {
		table_free(t);
		return rc;
	}
	warn_absent(c);
	*ret = t;
	return 0;
}

int service_acl_new(const struct conf *c, struct service_acl **ret, struct err *err)
{
	struct service_acl *a;
	bool on = false;
	int rc = conf_bool(c, "hadoop.security.authorization", false, &on, err);

	*ret = NULL;
	if (rc || !on)
		return rc;
	a = calloc(1, sizeof(*a));
	if (!a)
		return err_set(err, -ENOMEM, "out of memory");
	a->conf = c;
	pthread_rwlock_init(&a->lock, NULL);
	pthread_mutex_init(&a->log_lock, NULL);
	rc = table_load(c, &a->table, err);
	if (rc < 0) {
		service_acl_free(a);
		return err_prefix(err, "hadoop.security.authorization"), rc;
	}
	*ret = a;
	return 0;
}

void service_acl_free(struct service_acl *a)
{
	if (!a)
		return;
	table_free(a->table);
	pthread_rwlock_destroy(&a->lock);
	pthread_mutex_destroy(&a->log_lock);
	free(a);
}

int service_acl_refresh(struct service_acl *a, struct err *err)
{
	struct table *t, *old;
	int rc = table_load(a->conf, &t, err);

	if (rc < 0)
		return rc;
	pthread_rwlock_wrlock(&a->lock);
	old = a->table;
	a->table = t;
	pthread_rwlock_unlock(&a->lock);
	table_free(old);
	return 0;
}

/* ---- calls ---- */

void service_acl_note_denied(struct service_acl *a, const char *protocol, const char *user,
			     const char *ip)
{
	uint32_t dropped = 0;
	char quoted[256];
	bool say;

	atomic_fetch_add(&a->denied, 1);
	pthread_mutex_lock(&a->log_lock);
	say = log_rate_ok(&a->rate, 1000, &dropped);
	pthread_mutex_unlock(&a->log_lock);
	if (say)
		log_warn("op=authorize user=%s from=%s protocol=%s result=denied not_logged=%u",
			 log_quote(quoted, sizeof(quoted), user, strlen(user)), ip, protocol,
			 dropped);
}

uint64_t service_acl_denied(const struct service_acl *a)
{
	return a ? a->denied : 0;
}

static int check_rule(const struct rule *r, const char *protocol, const char *user, const char *ip,
		      service_acl_in_group in_group, void *arg, struct err *err)
{
	if (!people_have(&r->allowed, user, in_group, arg) ||
	    people_have(&r->blocked, user, in_group, arg))
		return err_set(
			err, -EACCES,
			"User %s (auth:SIMPLE) is not authorized for protocol interface %s: denied by configured ACL",
			user, protocol);
	if (!hosts_have(&r->from, ip) || hosts_have(&r->not_from, ip))
		return err_set(err, -EACCES, "Host %s is not authorized for protocol interface %s",
			       ip, protocol);
	return 0;
}

int service_acl_check(struct service_acl *a, const char *protocol, const char *user, const char *ip,
		      service_acl_in_group in_group, void *arg, struct err *err)
{
	size_t i = 0;
	int rc;

	if (!a)
		return 0;
	while (i < SERVICES && strcmp(services[i].protocol, protocol))
		i++;
	if (i < SERVICES) {
		pthread_rwlock_rdlock(&a->lock);
		rc = check_rule(&a->table->rule[i], protocol, user, ip, in_group, arg, err);
		pthread_rwlock_unlock(&a->lock);
	} else {
		rc = err_set(err, -EACCES, "Protocol interface %.200s is not known.", protocol);
	}
	return rc;
}
