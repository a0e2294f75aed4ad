/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * placement - which processors run the reactors, and which memory they get
 *
 * Idea: a device that is attached to another socket than the thread that serves it pays for each
 * doorbell, completion and byte. So by default the reactors stay on the processors of the device's
 * NUMA node, and their buffers are taken from that node's memory. An operator may name processors:
 * each reactor then has one of them, in turn, and shares it where there are more reactors.
 * Source: Documentation/ABI/stable/sysfs-devices-node and testing/sysfs-bus-pci (numa_node,
 * local_cpulist) of Linux; the lists are those of Documentation/admin-guide/cputopology.rst.
 */
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

struct conf;
struct err;

struct placement {
	bool bound;         /* false: the kernel chooses */
	bool each;          /* a reactor has one of the processors */
	cpu_set_t cpus;     /* bound: at least one */
	uint32_t near_node; /* number of their NUMA node plus one; 0: any, or several */
	char why[64];       /* for the log */
};

/** Of all reactors, from dfs.rdma.cpus. @sysfs: "/sys". -EINVAL: no list, or processors that this process may not
 *  use (sched_setaffinity(2)); @err names the key. What @sysfs does not tell binds nothing. */
int placement_read(const struct conf *c, const char *sysfs, struct placement *ret, struct err *err);
/** Of reactor number @i alone. */
struct placement placement_of(const struct placement *p, uint32_t i, const char *sysfs);
/** "0-3,8" of at least one processor: -EINVAL. Ends may have blanks and a line's end. */
int placement_parse(const char *list, cpu_set_t *ret);
/** The other way; what does not fit into @len is "...". */
void placement_format(const cpu_set_t *cpus, char *ret, size_t len);
