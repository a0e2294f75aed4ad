/* SPDX-License-Identifier: Apache-2.0 */
#include "common/reactor/placement.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/conf.h"
#include "common/base/err.h"

#define KEY "dfs.rdma.cpus"
#define NODES_MAX 1024u

/* The first line of a small file; false: there is none. */
static bool read_line(const char *dir, const char *name, char *buf, size_t len)
{
	char path[512];
	FILE *f _cleanup_fclose_ = NULL;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path))
		return false;
	f = fopen(path, "re");
	return f && fgets(buf, (int)len, f);
}

static const char *number(const char *s, unsigned long *ret)
{
	char *end;

	if (!isdigit((unsigned char)*s))
		return NULL;
	*ret = strtoul(s, &end, 10);
	return *ret < CPU_SETSIZE ? end : NULL;
}

static const char *blanks(const char *s)
{
	return s + strspn(s, " \t\n");
}

int placement_parse(const char *list, cpu_set_t *ret)
{
	const char *s = list;

	CPU_ZERO(ret);
	for (;;) {
		unsigned long from, to;

		s = number(blanks(s), &from);
		to = from;
		if (s && *s == '-')
			s = number(s + 1, &to);
		if (!s || to < from)
			return -EINVAL;
		for (; from <= to; from++)
			CPU_SET(from, ret);
		s = blanks(s);
		if (!*s)
			return 0;
		if (*s++ != ',')
			return -EINVAL;
	}
}

void placement_format(const cpu_set_t *cpus, char *ret, size_t len)
{
	size_t at = 0;

	*ret = 0;
	for (int from = 0; from < CPU_SETSIZE; from++) {
		int to = from, n;

		if (!CPU_ISSET((size_t)from, cpus))
			continue;
		while (to + 1 < CPU_SETSIZE && CPU_ISSET((size_t)to + 1, cpus))
			to++;
		n = snprintf(ret + at, len - at, to == from ? "%s%d" : "%s%d-%d", at ? "," : "",
			     from, to);
		if ((size_t)n + sizeof("...") > len - at) {
			(void)snprintf(ret + at, len - at, "...");
			return;
		}
		at += (size_t)n;
		from = to;
	}
}

/* The device whose name is first, which is the one that is opened first. */
static bool first_card(const char *sysfs, char *ret, size_t len)
{
	char dir[400];
	struct dirent *e;
	DIR *d;

	*ret = 0;
	(void)snprintf(dir, sizeof(dir), "%s/class/infiniband", sysfs);
	d = opendir(dir);
	while (d && (e = readdir(d)))
		if (*e->d_name != '.' && strlen(e->d_name) < len &&
		    (!*ret || strcmp(e->d_name, ret) < 0))
			(void)snprintf(ret, len, "%s", e->d_name);
	if (d)
		closedir(d);
	return *ret;
}

/* Where the machine has several nodes, and the card says which is its own. */
static void near_card(const char *sysfs, const cpu_set_t *usable, struct placement *p)
{
	char card[64], dir[480], line[4096];
	cpu_set_t nodes, cpus;
	int node;

	if (!read_line(sysfs, "devices/system/node/online", line, sizeof(line)) ||
	    placement_parse(line, &nodes) || CPU_COUNT(&nodes) < 2 ||
	    !first_card(sysfs, card, sizeof(card)))
		return;
	(void)snprintf(dir, sizeof(dir), "%s/class/infiniband/%s/device", sysfs, card);
	if (!read_line(dir, "numa_node", line, sizeof(line)) || sscanf(line, "%d", &node) != 1 ||
	    node < 0 || node >= (int)NODES_MAX)
		return;
	if (!read_line(dir, "local_cpulist", line, sizeof(line)) || placement_parse(line, &cpus))
		return;
	CPU_AND(&p->cpus, &cpus, usable);
	p->bound = CPU_COUNT(&p->cpus);
	if (!p->bound) /* memory near the threads does more than memory near the card */
		return;
	p->near_node = (uint32_t)node + 1;
	(void)snprintf(p->why, sizeof(p->why), "%.40s is at node %d", card, node);
}

int placement_read(const struct conf *c, const char *sysfs, struct placement *ret, struct err *err)
{
	const char *value = conf_get_or(c, KEY, "card");
	cpu_set_t usable, more;

	*ret = (struct placement){.bound = false};
	if (sched_getaffinity(0, sizeof(usable), &usable)) /* of more processors than the set has */
		CPU_ZERO(&usable);
	if (!strcmp(value, "any"))
		return 0;
	if (!strcmp(value, "card")) {
		near_card(sysfs, &usable, ret);
		return 0;
	}
	if (placement_parse(value, &ret->cpus))
		return err_set(err, -EINVAL,
			       KEY " is '%s'; it takes card, any, or processors like 0-3,8", value);
	CPU_AND(&more, &ret->cpus, &usable);
	if (!CPU_EQUAL(&more, &ret->cpus)) {
		err_set(err, -EINVAL,
			KEY " is '%s', of which this process may use %d of %d processors", value,
			CPU_COUNT(&more), CPU_COUNT(&ret->cpus));
		err_cure(err, "name some of those that Cpus_allowed_list in /proc/self/status has");
		return -EINVAL;
	}
	ret->bound = ret->each = true;
	(void)snprintf(ret->why, sizeof(ret->why), KEY);
	return 0;
}

static uint32_t node_of(const char *sysfs, int cpu)
{
	char name[64], line[4096];
	cpu_set_t cpus;

	for (uint32_t node = 0; node < NODES_MAX; node++) {
		(void)snprintf(name, sizeof(name), "devices/system/node/node%u/cpulist", node);
		if (read_line(sysfs, name, line, sizeof(line)) && !placement_parse(line, &cpus) &&
		    CPU_ISSET((size_t)cpu, &cpus))
			return node + 1;
	}
	return 0;
}

struct placement placement_of(const struct placement *p, uint32_t i, const char *sysfs)
{
	struct placement of = *p;
	uint32_t nth;

	if (!p->each)
		return of;
	nth = i % (uint32_t)CPU_COUNT(&p->cpus);
	for (int cpu = 0;; cpu++) {
		if (!CPU_ISSET((size_t)cpu, &p->cpus) || nth--)
			continue;
		CPU_ZERO(&of.cpus);
		CPU_SET((size_t)cpu, &of.cpus);
		of.near_node = node_of(sysfs, cpu);
		return of;
	}
}
