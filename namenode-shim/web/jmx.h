/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * jmx - the /jmx page: numbers under the names that Java tools and dashboards look for
 *
 * Idea: HDFS's monitoring reads MBeans as JSON over HTTP. There is no JVM here, so each bean is a
 * function that writes the attributes we can fill; what has no meaning here is 0 or empty, as a
 * NameNode without that feature says it.
 * Ownership: the caller's, by json_decref(). Threading: any thread; takes mem_lock shared.
 * Source: JMXJsonServlet, FSNamesystem, NameNodeMXBean of Hadoop 3.4.2 (names, types).
 */
#include <jansson.h>

struct nn;

/** @qry: a name or pattern (NULL: all); @get: "BEAN::ATTRIBUTE" or NULL. NULL: the database takes
 *  no further reader. */
json_t *jmx_page(struct nn *nn, const char *qry, const char *get);
/** The /startupProgress page. */
json_t *jmx_startup(struct nn *nn);
