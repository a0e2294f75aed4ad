/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * jmx - the /jmx page: numbers under the names that Java tools and dashboards look for
 *
 * Idea: HDFS's monitoring reads MBeans as JSON over HTTP. There is no JVM here, so each bean is a
 * function that writes the attributes we can fill; what has no meaning here is 0 or empty, as a
 * NameNode without that feature says it.
 * Ownership: the result is malloc'ed. Threading: any thread; takes mem_lock shared.
 * Source: JMXJsonServlet, FSNamesystem, NameNodeMXBean of Hadoop 3.4.2 (names, types).
 */
struct nn;

/** @qry: a name or pattern (NULL: all); @get: "BEAN::ATTRIBUTE" or NULL. NULL: out of memory. */
char *jmx_page(struct nn *nn, const char *qry, const char *get);
/** The /startupProgress page. */
char *jmx_startup(struct nn *nn);
