/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * auth_to_local - the short name of `user`, `user@REALM` and `user/host@REALM`
 *
 * Idea: a name without realm and host is short. hadoop.security.auth_to_local shortens other names.
 * It is a list of rules, and the first rule that fits is used: RULE:[components:format](fits)
 * s/from/to/gL, or DEFAULT, which takes the first component of names of this machine's Kerberos
 * realm. When the key is not set, the first component of every name is taken, as Hadoop does
 * without Kerberos.
 * Regular expressions are Java's as far as POSIX has them, too; others are refused at start.
 * Ownership: the caller's; never changed after it was made. Threading: any thread.
 * Source: Hadoop 3.4.2 KerberosName, HadoopKerberosName.
 */
#include <stddef.h>

#include "common/base/err.h"

struct conf;
struct auth_to_local;

/** -EINVAL with the rule and the cure. */
int auth_to_local_new(const struct conf *c, struct auth_to_local **ret, struct err *err);
/** Accepts NULL. */
void auth_to_local_free(struct auth_to_local *a);
/** The short name of @name, with its NUL at @ret of @size bytes. -EACCES, with the words of Hadoop:
 *  no rule fits, or the name is malformed; -ENAMETOOLONG. @a NULL: as when the key is not set. */
int auth_to_local(const struct auth_to_local *a, const char *name, char *ret, size_t size,
		  struct err *err);
