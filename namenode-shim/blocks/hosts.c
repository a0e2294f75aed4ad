/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/blocks/hosts.h"

#include <jansson.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/conf.h"
#include "common/base/net.h"
#include "namenode-shim/base/arena.h"

struct entry {
	char host[HOSTS_TEXT_MAX], ip[64], domain[HOSTS_TEXT_MAX];
	uint32_t port; /* 0: any */
	enum hosts_state state;
	uint64_t until_ms;
};

struct list_of {
	struct entry *e; /* owned */
	uint32_t n, size;
};

struct hosts {
	struct list_of allowed, leaving;
	bool json; /* all is in allowed */
};

/* ---- files ---- */

static int read_file(const char *path, char **ret, struct err *err)
{
	FILE *f = fopen(path, "re");
	char *text = xcalloc(HOSTS_FILE_MAX + 2, 1);
	size_t n = f ? fread(text, 1, HOSTS_FILE_MAX + 1, f) : 0;
	int rc = 0;

	if (!f)
		rc = err_sys(err, neg_errno(), "cannot read the hosts file %s", path);
	else if (ferror(f))
		rc = err_set(err, -EIO, "cannot read the hosts file %s; see that its disk works",
			     path);
	else if (n > HOSTS_FILE_MAX)
		rc = err_set(err, -EFBIG, "hosts file %s is larger than %u bytes; shorten it", path,
			     HOSTS_FILE_MAX);
	if (f)
		fclose(f);
	if (rc < 0)
		free(text);
	else
		*ret = text;
	return rc;
}

static struct entry *add(struct list_of *l)
{
	if (l->n == HOSTS_MAX)
		return NULL;
	if (l->n == l->size) {
		l->size = l->size ? 2 * l->size : 16;
		l->e = xrealloc(l->e, l->size * sizeof(*l->e));
	}
	memset(&l->e[l->n], 0, sizeof(l->e[0]));
	l->e[l->n].until_ms = UINT64_MAX;
	return &l->e[l->n++];
}

/* The address of a name; one that is unknown now matches no address. */
static void resolve(struct entry *e)
{
	const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
	struct addrinfo *ai;

	if (getaddrinfo(e->host, NULL, &hints, &ai))
		return;
	(void)getnameinfo(ai->ai_addr, ai->ai_addrlen, e->ip, sizeof(e->ip), NULL, 0,
			  NI_NUMERICHOST);
	freeaddrinfo(ai);
}

/* "host" or "host:port". */
static int add_text(struct list_of *l, const char *word, const char *path, struct err *err)
{
	const char *colon = strrchr(word, ':');
	const size_t len = colon ? (size_t)(colon - word) : strlen(word);
	struct entry *e = add(l);

	if (!e || !len || len >= sizeof(e->host))
		return err_set(
			err, -EINVAL,
			"hosts file %s: \"%.80s\" is not the name of a host, or the file has more than "
			"%d; correct the file",
			path, word, HOSTS_MAX);
	memcpy(e->host, word, len);
	e->port = colon ? (uint32_t)strtoul(colon + 1, NULL, 10) : 0;
	resolve(e);
	return 0;
}

/* Words in lines; # begins a comment. */
static int load_words(const char *path, struct list_of *l, struct err *err)
{
	char *text, *line, *save, *word, *save2;
	int rc = read_file(path, &text, err);

	if (rc < 0)
		return rc;
	for (line = strtok_r(text, "\n", &save); line && !rc; line = strtok_r(NULL, "\n", &save)) {
		line[strcspn(line, "#")] = 0;
		for (word = strtok_r(line, " \t\r\f", &save2); word && !rc;
		     word = strtok_r(NULL, " \t\r\f", &save2))
			rc = add_text(l, word, path, err);
	}
	free(text);
	return rc;
}

/* ---- JSON: an array of objects, or objects one after the other ---- */

static bool take_text(const json_t *v, char *to, size_t size)
{
	if (!v || json_is_null(v))
		return true;
	return json_is_string(v) && (size_t)snprintf(to, size, "%s", json_string_value(v)) < size;
}

/* A number, or its digits as a string, as Jackson takes them. */
static bool take_number(const json_t *v, uint64_t max, uint64_t *to)
{
	const char *text = json_string_value(v);
	char *end = NULL;

	if (!v || json_is_null(v))
		return true;
	*to = text ? strtoull(text, &end, 10) : (uint64_t)json_integer_value(v);
	return (text ? *text && !*end : json_is_integer(v) && json_integer_value(v) >= 0) &&
	       *to <= max;
}

static bool take_state(const json_t *v, enum hosts_state *to)
{
	const char *text = v && !json_is_null(v) ? json_string_value(v) : "NORMAL";

	if (text && !strcmp(text, "DECOMMISSIONED"))
		*to = HOSTS_LEAVE;
	else if (text && !strcmp(text, "IN_MAINTENANCE"))
		*to = HOSTS_MAINTENANCE;
	return text && (*to || !strcmp(text, "NORMAL"));
}

static bool add_object(struct list_of *l, const json_t *o)
{
	struct entry *e = json_is_object(o) ? add(l) : NULL;
	uint64_t port = 0;

	if (!e || !take_text(json_object_get(o, "hostName"), e->host, sizeof(e->host)) ||
	    !*e->host ||
	    !take_text(json_object_get(o, "upgradeDomain"), e->domain, sizeof(e->domain)) ||
	    !take_number(json_object_get(o, "port"), UINT16_MAX, &port) ||
	    !take_number(json_object_get(o, "maintenanceExpireTimeInMS"), UINT64_MAX,
			 &e->until_ms) ||
	    !take_state(json_object_get(o, "adminState"), &e->state))
		return false;
	e->port = (uint32_t)port;
	resolve(e);
	return true;
}

static bool add_value(struct list_of *l, const json_t *v)
{
	bool ok = true;

	if (!json_is_array(v))
		return add_object(l, v);
	for (size_t i = 0; ok && i < json_array_size(v); i++)
		ok = add_object(l, json_array_get(v, i));
	return ok;
}

static int load_json(const char *path, struct list_of *l, struct err *err)
{
	const char *p;
	char *text;
	int rc = read_file(path, &text, err);

	if (rc < 0)
		return rc;
	for (p = text; p += strspn(p, " \t\r\n"), *p && !rc;) {
		json_error_t why;
		json_t *v = json_loads(p, JSON_DISABLE_EOF_CHECK, &why);

		if (!v)
			rc = err_set(err, -EINVAL,
				     "hosts file %s: no JSON at byte %zu: %s; correct the file",
				     path, (size_t)(p - text) + (size_t)why.position, why.text);
		else if (!add_value(l, v))
			rc = err_set(
				err, -EINVAL,
				"hosts file %s: what begins at byte %zu is no object, or array of at most "
				"%d objects, with hostName, port, adminState (NORMAL, DECOMMISSIONED, "
				"IN_MAINTENANCE), maintenanceExpireTimeInMS, upgradeDomain; correct the "
				"file",
				path, (size_t)(p - text), HOSTS_MAX);
		else
			p += why.position;
		json_decref(v);
	}
	free(text);
	return rc;
}

/* ---- the set ---- */

int hosts_load(const struct conf *c, struct hosts **ret, struct err *err)
{
	const char *in = conf_get(c, "dfs.hosts"), *out = conf_get(c, "dfs.hosts.exclude");
	const char *provider = conf_get(c, "dfs.namenode.hosts.provider.classname");
	struct hosts *h = xcalloc(1, sizeof(*h));
	int rc = 0;

	h->json = provider && strstr(provider, "CombinedHostFileManager");
	if (in && *in)
		rc = h->json ? load_json(in, &h->allowed, err) : load_words(in, &h->allowed, err);
	if (!rc && !h->json && out && *out)
		rc = load_words(out, &h->leaving, err);
	if (rc < 0)
		hosts_free(h);
	else
		*ret = h;
	return rc;
}

void hosts_free(struct hosts *h)
{
	if (!h)
		return;
	free(h->allowed.e);
	free(h->leaving.e);
	free(h);
}

/* @host is what the node says of itself; NULL: it does not count. */
static const struct entry *find(const struct list_of *l, const char *ip, const char *host,
				uint32_t port)
{
	for (uint32_t i = 0; i < l->n; i++) {
		const struct entry *e = &l->e[i];

		if (e->port && e->port != port)
			continue;
		if (!strcmp(e->ip, ip) || !strcmp(e->host, ip) ||
		    (host && !strcasecmp(e->host, host)))
			return e;
	}
	return NULL;
}

struct hosts_verdict hosts_judge(const struct hosts *h, const char *ip, const char *host,
				 uint32_t port)
{
	const struct entry *in = find(&h->allowed, ip, NULL, port); /* anybody can claim a name */
	const struct entry *out = find(&h->leaving, ip, host, port);
	struct hosts_verdict v = {
		.allowed = in || !h->allowed.n, .named = in, .upgrade_domain = ""};

	if (in && h->json) {
		v.state = in->state;
		v.until_ms = in->until_ms;
		v.upgrade_domain = in->domain;
		if (v.state == HOSTS_MAINTENANCE && v.until_ms <= clock_wall_ms())
			v.state = HOSTS_NORMAL;
	} else if (out) {
		v.state = HOSTS_LEAVE;
	}
	return v;
}
