/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * topology - which rack a node stands in
 *
 * Idea: net.topology.script.file.name names a program that is given addresses and prints a rack for
 * each; or, with net.topology.node.switch.mapping.impl naming TableMapping,
 * net.topology.table.file.name is a table of "address rack". Neither: one rack. Answers are kept
 * until topology_forget(); a node whose rack cannot be found stands in the default rack.
 * Ownership: the caller. Threading: any thread (a mutex inside). topology_ask() runs the script and
 * waits for it (RACKS_SCRIPT_MS): the resolver thread does, before the registration of the
 * node comes to the writer.
 * Source: ScriptBasedMapping, TableMapping of Hadoop 3.4.2.
 */
#include "namenode-shim/blocks/datanodes.h"

struct conf;
struct topology;

#define RACKS_SCRIPT_MS 10000
#define RACKS_RETRY_MS 60000  /* what was not found is not asked for sooner */
#define RACKS_KNOWN_MAX 65536 /* addresses remembered */

struct topology *topology_new(const struct conf *c);
void topology_free(struct topology *r);
/** Ask again from now on; until then the old answers stand. */
void topology_forget(struct topology *r);
/** Learn where @ip stands, unless it is known. */
void topology_ask(struct topology *r, const char *ip);
/** As learnt; else the default rack. */
void topology_find(struct topology *r, const char *ip, char ret[DN_RACK_MAX]);
