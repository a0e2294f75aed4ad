/* SPDX-License-Identifier: Apache-2.0 */
/* Ports, configuration and start scripts of dfs-mini's cluster. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/net.h"
#include "tools/mini_internal.h"

#define PORT_LEAST 10000
#define PORT_MOST 22000

/* A claim on a port among all dfs-mini of this network namespace: a UNIX domain socket with a name
 * of the port, which the kernel frees when we end. tests/integration/lib/hrpc.py takes part. False:
 * another one has it. */
static bool claim_port(uint16_t port)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX}; /* sun_path[0] is 0: no file */
	const int n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "dfs-mini/port/%u", port);
	const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 &&
	    bind(fd, (struct sockaddr *)&a,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0)
		return true; /* open until we end */
	if (fd >= 0)
		close(fd);
	return false;
}

/* A free port below those that the kernel gives to clients: else a client that calls while a node
 * is down could be given the node's own port. */
static int choose_port(struct net_addr *a, uint16_t *ret, struct err *err)
{
	int fd = -EADDRINUSE;

	err_set(err, fd, "no free port found from %d to %d", PORT_LEAST, PORT_MOST);
	for (int tries = 0; fd == -EADDRINUSE && tries < 1000; tries++) {
		*ret = (uint16_t)(PORT_LEAST + random() % (PORT_MOST - PORT_LEAST));
		if (!claim_port(*ret))
			continue;
		net_set_port(a, *ret);
		fd = net_listen(a, false, NULL, err);
	}
	return fd < 0 ? fd : close(fd);
}

int mini_choose_ports(struct mini *m)
{
	const uint32_t n = 2 + 3 * m->datanodes;
	struct net_addr a;
	struct err err = ERR_INIT;
	int rc = net_resolve(m->host, 0, &a, &err);

	srandom((unsigned int)clock_mono_ns() ^ (unsigned int)getpid());
	m->ports[0] = m->port;
	if (m->port)
		(void)claim_port(m->port); /* if it is taken, the NameNode says so */
	for (uint32_t i = m->port ? 1 : 0; rc >= 0 && i < n; i++)
		rc = choose_port(&a, &m->ports[i], &err);
	return rc < 0 ? mini_fail("%s", err.text) : 0;
}

static void xml_text(FILE *f, const char *s, size_t n)
{
	for (; n; n--, s++) {
		if (*s == '<')
			fputs("&lt;", f);
		else if (*s == '&')
			fputs("&amp;", f);
		else
			fputc(*s, f);
	}
}

static void xml_property(FILE *f, const char *key, size_t key_len, const char *value)
{
	fputs("<property><name>", f);
	xml_text(f, key, key_len);
	fputs("</name><value>", f);
	xml_text(f, value, strlen(value));
	fputs("</value></property>\n", f);
}

int mini_write_conf(const struct mini *m)
{
	char value[1200];
	FILE *f = mini_create_file(m, "conf/core-site.xml", 0644);

	if (!f)
		return -1;
	snprintf(value, sizeof(value), "hdfs://%s:%u", m->host, m->ports[0]);
	fputs("<configuration>\n", f);
	xml_property(f, "fs.defaultFS", 12, value);
	snprintf(value, sizeof(value), "%s/tmp", m->dir);
	xml_property(f, "hadoop.tmp.dir", 14, value);
	fputs("</configuration>\n", f);
	if (mini_close_file(f, "core-site.xml") < 0 ||
	    !(f = mini_create_file(m, "conf/hdfs-site.xml", 0644)))
		return -1;
	fputs("<configuration>\n", f);
	snprintf(value, sizeof(value), "file://%s/name", m->dir);
	xml_property(f, "dfs.namenode.name.dir", 21, value);
	snprintf(value, sizeof(value), "%s:%u", m->host, m->ports[1]);
	xml_property(f, "dfs.namenode.http-address", 25, value);
	snprintf(value, sizeof(value), "%u", m->datanodes < 3 ? m->datanodes : 3);
	xml_property(f, "dfs.replication", 15, value);
	xml_property(f, "dfs.namenode.symlinks.enabled", 29,
		     "true");                        /* a mount of it should simply work */
	for (uint32_t i = 0; i < m->conf_count; i++) /* later ones win */
		xml_property(f, m->conf[i], strcspn(m->conf[i], "="), strchr(m->conf[i], '=') + 1);
	fputs("</configuration>\n", f);
	return mini_close_file(f, "hdfs-site.xml");
}

static void shell_quote(FILE *f, const char *s)
{
	fputc('\'', f);
	for (; *s; s++)
		if (*s == '\'')
			fputs("'\\''", f);
		else
			fputc(*s, f);
	fputc('\'', f);
}

/* DIR/start/NAME: a script that is the one way a node is started, by us and by anyone later. */
int mini_write_start(const struct mini *m, uint32_t i)
{
	const struct node *n = &m->node[i];
	char *name, value[700];
	FILE *f;
	int rc;

	if (asprintf(&name, "start/%s", n->name) < 0)
		abort();
	f = mini_create_file(m, name, 0755);
	if (!f) {
		free(name);
		return -1;
	}
	fputs("#!/bin/sh\nexec ", f);
	snprintf(value, sizeof(value), "%s/%s", m->bin, i ? "dfs-datanode" : "dfs-namenode");
	shell_quote(f, value);
	snprintf(value, sizeof(value), "%s/conf", m->dir);
	fputs(" --conf ", f);
	shell_quote(f, value);
	snprintf(value, sizeof(value), "%s/%s.ready", m->dir, n->name);
	fputs(" --ready-file ", f);
	shell_quote(f, value);
	if (i) {
		const uint16_t *p = &m->ports[2 + 3 * (i - 1)];

		snprintf(value, sizeof(value), "dfs.datanode.data.dir=file://%s/dn%u", m->dir, i);
		fputs(" -D ", f);
		shell_quote(f, value);
		fprintf(f,
			" -D dfs.datanode.address=%s:%u -D dfs.datanode.ipc.address=%s:%u"
			" -D dfs.datanode.http.address=%s:%u",
			m->host, p[0], m->host, p[1], m->host, p[2]);
	}
	fputs(" \"$@\"\n", f);
	rc = mini_close_file(f, name);
	free(name);
	return rc;
}
