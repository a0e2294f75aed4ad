/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * beans - what Hadoop's tools read at /jmx of a DataNode
 *
 * Idea: the few beans with figures that this node really has, under the names and attributes of a
 * Java DataNode: DataNodeInfo, FSDatasetState, DataNodeActivity. Text that a Java node gives as a
 * string of JSON is one here too.
 * Ownership: the answer is the caller's.
 * Threading: any thread.
 * Source: DataNodeMXBean and FSDatasetMBean of Hadoop 3.4.2 (names and types).
 */
#include <jansson.h>

#include "datanode/dn.h"

/** {"beans": [...]} of those whose name matches @query ("Hadoop:service=DataNode,name=*"; NULL:
 *  all).
 *  NULL: out of memory. */
json_t *beans_get(struct dn *dn, uint64_t start_ms, const char *query);
