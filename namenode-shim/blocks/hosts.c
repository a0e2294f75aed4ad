/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/blocks/hosts.h"

#include <ctype.h>
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

/* ---- JSON: an array of flat objects, or such objects one after the other ---- */

struct scan {
	const char *p;
	char text[HOSTS_TEXT_MAX]; /* the last string, number or word */
};

static void skip(struct scan *s, const char *also)
{
	while (*s->p && (isspace((unsigned char)*s->p) || strchr(also, *s->p)))
		s->p++;
}

/* A string, number or literal into s->text. */
static bool value(struct scan *s)
{
	const bool quoted = *s->p == '"';
	size_t n = 0;

	s->p += quoted;
	while (*s->p && (quoted ? *s->p != '"' : !strchr(",}] \t\r\n", *s->p))) {
		if (quoted && *s->p == '\\' && s->p[1])
			s->p++;
		if (n + 1 == sizeof(s->text))
			return false;
		s->text[n++] = *s->p++;
	}
	s->text[n] = 0;
	if (quoted && *s->p != '"')
		return false;
	s->p += quoted;
	return quoted || n;
}

static bool set_field(struct entry *e, const char *key, const char *text)
{
	if (!strcmp(key, "hostName"))
		snprintf(e->host, sizeof(e->host), "%s", text);
	else if (!strcmp(key, "port"))
		e->port = (uint32_t)strtoul(text, NULL, 10);
	else if (!strcmp(key, "upgradeDomain"))
		snprintf(e->domain, sizeof(e->domain), "%s", text);
	else if (!strcmp(key, "maintenanceExpireTimeInMS"))
		e->until_ms = strtoull(text, NULL, 10);
	else if (!strcmp(key, "adminState") && !strcmp(text, "DECOMMISSIONED"))
		e->state = HOSTS_LEAVE;
	else if (!strcmp(key, "adminState") && !strcmp(text, "IN_MAINTENANCE"))
		e->state = HOSTS_MAINTENANCE;
	else if (!strcmp(key, "adminState"))
		return !strcmp(text, "NORMAL");
	return true;
}

static bool object(struct scan *s, struct list_of *l)
{
	struct entry *e = add(l);
	char key[HOSTS_TEXT_MAX];

	if (!e || *s->p != '{')
		return false;
	s->p++;
	for (skip(s, ","); *s->p == '"'; skip(s, ",")) {
		if (!value(s))
			return false;
		memcpy(key, s->text, sizeof(key));
		skip(s, "");
		if (*s->p++ != ':')
			return false;
		skip(s, "");
		if (!value(s) || !set_field(e, key, s->text))
			return false;
	}
	if (*s->p++ != '}' || !*e->host)
		return false;
	resolve(e);
	return true;
}

static int load_json(const char *path, struct list_of *l, struct err *err)
{
	struct scan s = {0};
	char *text;
	int rc = read_file(path, &text, err);

	if (rc < 0)
		return rc;
	s.p = text;
	for (skip(&s, "[],"); *s.p && !rc; skip(&s, "[],"))
		if (!object(&s, l))
			rc = err_set(
				err, -EINVAL,
				"hosts file %s: byte %zu is no part of an array of objects with "
				"hostName, port, adminState (NORMAL, DECOMMISSIONED, "
				"IN_MAINTENANCE), maintenanceExpireTimeInMS, upgradeDomain; correct the "
				"file",
				path, (size_t)(s.p - text));
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
