/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * operand - what the operands of a command name: paths of the file system, local files, or neither
 *
 * Idea: people bring addresses along from other tools: hdfs://HOST:PORT/path, file:///path,
 * s3a://bucket/key. Those of the file system in use and of local files become plain paths; every
 * other one is refused in one sentence, and never taken for a relative name.
 * Ownership: operands are changed in place to point behind what was cut off; nothing is allocated.
 */
#include <stdbool.h>
#include <stddef.h>

#include "tools/cli.h"

/** Bytes of the scheme of @text: 4 of "hdfs://h/p" and of "file:/p", 0 when there is none ("a:b",
 * "/x:/y", "./s3a:/b"). */
size_t operand_scheme(const char *text);
/** Is operand @i of the command a path of the file system, a local file? */
bool operand_is_path(const struct cli *c, int i);
bool operand_is_local(const struct cli *c, int i);
/** Refuse empty names and addresses of other kinds, before anybody is connected to. 0, or an exit
 * code after the message. */
int operand_check(struct cli *c);
/** "hdfs://AUTHORITY" of the first path that has one, malloc'ed, or NULL. */
char *operand_uri(const struct cli *c);
/** The path of @text in the file system @uri ("hdfs://host:port" or "hdfs://NAME"), "" for its
 *  root; NULL when it is in another one. */
const char *operand_path(const char *uri, const char *text);
/** "/p" of "file:///p", "file:/p" and "file://localhost/p"; NULL when it names another host. */
const char *operand_local(const char *text);
/** Make all of them plain paths. 0, or an exit code after the message. */
int operand_strip(struct cli *c);
