/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * racks - which rack a node stands in
 *
 * Idea: net.topology.script.file.name names a program that is given addresses and prints a rack for
 * each; or, with net.topology.node.switch.mapping.impl naming TableMapping,
 * net.topology.table.file.name is a table of "address rack". Neither: one rack. Answers are kept until
 * racks_forget(); a node whose rack cannot be found stands in the default rack.
 * Ownership: the caller. Threading: the writer thread; a script is run once for an address, by the
 * registration of its node, and waited for (RACKS_SCRIPT_MS).
 * Source: ScriptBasedMapping, TableMapping of Hadoop 3.4.2.
 */
#include "namenode-shim/datanodes.h"

struct conf;
struct racks;

#define RACKS_SCRIPT_MS 10000
#define RACKS_KNOWN_MAX 65536 /* addresses remembered */

struct racks *racks_new(const struct conf *c);
void racks_free(struct racks *r);
/** Ask again from now on. */
void racks_forget(struct racks *r);
void racks_find(struct racks *r, const char *ip, char ret[DN_RACK_MAX]);
