/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * groups - in which groups a user is
 *
 * Idea: as in HDFS this machine's accounts say it, but for users whom the configuration lists.
 * Threading: any thread. The name service is asked, which may block for long.
 * Source: ShellBasedUnixGroupsMapping, hadoop.user.group.static.mapping.overrides.
 */

#define GROUPS_MAX 256 /* of one user; more are not seen */

/** Names of the groups of @user into a malloc'ed array of malloc'ed texts; returns how many.
 *  @fixed: "user=group,group;user=": of these users only what it says; may be NULL. A user who is
 *  unknown here is in no group. -ENOMEM; another -errno: the accounts could not be asked. When only
 *  the list of its groups cannot be had, getgrouplist(3) does not tell: then it is in its first
 *  group alone. */
int groups_of(const char *user, const char *fixed, char ***ret);
/** The same by @fixed alone, so nobody is asked. -ENOENT: it does not name @user. */
int groups_fixed(const char *user, const char *fixed, char ***ret);
/** Accepts NULL. */
void groups_free(char **groups, int n);
