/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * conf - Hadoop configuration: core-site.xml, hdfs-site.xml and -D
 *
 * Idea: an administrator's files work as they are. Properties are name/value strings; typed getters
 * parse with Hadoop's suffixes and say which key, which value and which file is wrong.
 * Order: built-in default, core-site.xml, hdfs-site.xml, then -D (last wins; <final> is honoured
 * against later files, not against -D). An empty <value/> sets nothing. ${name} and ${env.NAME} are
 * substituted, 20 levels deep.
 * Keys of our own (dfs.rdma.*, dfs.shim.*, dfs.client.rdma) must be in conf_keys.def: unknown ones
 * are errors. An administrator's files are full of other keys, which Java programs read: they are
 * taken in silence. conf_warn_typos() names those that look like a misspelt key of conf_keys.def.
 * Ownership: strings returned live until the next conf_set()/conf_free().
 * Threading: immutable after start-up; then any thread may read.
 * Source: Hadoop core-default.xml, hdfs-default.xml (names and defaults); org.apache.hadoop.conf
 * (suffixes k m g t p e are powers of 1024; times ns us ms s m h d).
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/err.h"

struct conf;

struct conf *conf_new(void);
void conf_free(struct conf *c);
/** Parse one Hadoop XML file. -ENOENT, -EINVAL (malformed: line and reason in @err), -EFBIG. */
int conf_load_file(struct conf *c, const char *path, struct err *err);
/** $HADOOP_CONF_DIR/core-site.xml and hdfs-site.xml (else /etc/hadoop/conf); files that are absent
 *  are skipped, a malformed one is an error. An explicit @dir, and HADOOP_CONF_DIR when set, must
 *  exist. */
int conf_load_dir(struct conf *c, const char *dir, struct err *err);
/** Read the files again that conf_load_dir() read; what -D and the program set stays on top. A new
 *  object: @c is not changed. The errors of conf_load_dir() and conf_check(). */
int conf_reload(const struct conf *c, struct conf **ret, struct err *err);
/** The same, and the file @name of that directory on top of them, if it is there. Blanks around
 *  values are kept, so nothing is checked. What -D and the program set stays on top. */
int conf_reload_with(const struct conf *c, const char *name, struct conf **ret, struct err *err);
/** @kv is "key=value" as given to -D. -EINVAL without '=' or with an empty key. */
int conf_set_arg(struct conf *c, const char *kv, struct err *err);
int conf_set(struct conf *c, const char *key, const char *value);
/** Refuse unknown keys of our own name space, and values that do not parse. -EINVAL. */
int conf_check(const struct conf *c, struct err *err);
/** Log a warning for each key that is set, unknown, and two letters or fewer from a known one,
 *  which it names. Only the first call in a process says anything: one configuration is mostly read
 *  several times. */
void conf_warn_typos(const struct conf *c);

/** NULL when unset and no default is known in conf_keys.def. */
const char *conf_get(const struct conf *c, const char *key);
/** True: a file, -D or the program says so, and not only the built-in default. */
bool conf_is_set(const struct conf *c, const char *key);
/** The directory that conf_load_dir() read; NULL: there was none. */
const char *conf_dir(const struct conf *c);
const char *conf_get_or(const struct conf *c, const char *key, const char *dflt);
/** Typed getters: a value that does not parse is -EINVAL with key, value and expectation in @err;
 *  *ret is written on success only; a key neither set nor in conf_keys.def yields @dflt. A time
 *  without a unit has the unit of the key's default, else ms. */
int conf_u64(const struct conf *c, const char *key, uint64_t dflt, uint64_t *ret, struct err *err);
int conf_size(const struct conf *c, const char *key, uint64_t dflt, uint64_t *ret, struct err *err);
int conf_time_ms(const struct conf *c, const char *key, uint64_t dflt, uint64_t *ret,
		 struct err *err);
int conf_bool(const struct conf *c, const char *key, bool dflt, bool *ret, struct err *err);
/** Comma-separated list, trimmed, into a NULL-terminated malloc'ed array (free with
 *  conf_list_free()); an unset key is an empty list. -ENOMEM. */
int conf_list(const struct conf *c, const char *key, char ***ret);
void conf_list_free(char **list);
/** Call @fn for each explicitly set property, sorted by name. */
void conf_each(const struct conf *c, void (*fn)(void *arg, const char *key, const char *value),
	       void *arg);
/** The list of known keys as --help-config prints it. */
void conf_print_keys(FILE *out);

/** The values' syntax, for command lines: "12", "0x1f"; "64k", "1g"; "true". -EINVAL. */
int conf_parse_u64(const char *s, uint64_t *ret);
int conf_parse_size(const char *s, uint64_t *ret);
int conf_parse_bool(const char *s, bool *ret);
