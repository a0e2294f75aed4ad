/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * users - who is super-user, and who is in which group
 *
 * Idea: with SIMPLE authentication the client names its user; groups come from this machine's
 * accounts, as in HDFS (ShellBasedUnixGroupsMapping). A user is looked up once and kept for
 * USERS_TTL_S.
 * A call holds what is known of its caller until it is answered (users_hold()). What is held is not
 * forgotten, so questions about it never block, however many names come meanwhile.
 * Threading: any thread (a mutex inside). A look-up may ask the name service and block; threads
 * that must not block leave it to resolver_thread.h.
 * Source: dfs.permissions.superusergroup, hadoop.user.group.static.mapping.overrides.
 */
#include <stdbool.h>
#include <stdint.h>

struct arena;
struct user;
struct users;

#define USERS_NAME_MAX 255 /* bytes; a longer name is nobody's */
/* Names remembered, and those that are held. More push out names without groups first. */
#define USERS_MAX 1024
#define USERS_TTL_S 300  /* as hadoop.security.groups.cache.secs */
#define USERS_LATE_S 60  /* so long after its end what is known still counts, while that is done */
#define USERS_EARLY_S 10 /* so long before its end a user is looked up again */
#define USERS_AGAIN_S 60 /* the accounts failed: they are asked again after this, at the earliest */
#define USERS_UNDECIDED_S 15 /* or this, when nothing is known */

/** The super-user is whoever runs the process ($HADOOP_USER_NAME first). @super_group: borrowed.
 *  @fixed: "user=group,group;user=": groups of these users, instead of this machine's; borrowed;
 *  may be NULL. */
struct users *users_new(const char *super_group, const char *fixed);
void users_free(struct users *u);
const char *users_self(const struct users *u);
/** Groups of @user, copied into @a; returns how many. */
uint32_t users_groups(struct users *u, const char *user, struct arena *a, char ***ret);
/** What is known of @user is kept until users_let_go(). NULL: it must be looked up. *ret_old: it is
 *  used until users_load() is back; told once. Does not block. */
struct user *users_hold(struct users *u, const char *user, bool *ret_old);
/** The same; looks @user up unless it is known. NULL: its name is longer than USERS_NAME_MAX.
 *  Blocks. */
struct user *users_ask(struct users *u, const char *user);
/** Accepts NULL. */
void users_let_go(struct user *e);
/** The accounts failed when @user was looked up, and nothing was known before: it counts as in no
 *  group for USERS_UNDECIDED_S, and may be in any. */
bool users_undecided(struct users *u, const char *user);
/** Look @user up, though it is known. Blocks. */
void users_load(struct users *u, const char *user);
/** Look everybody up again. */
void users_refresh(struct users *u);
bool users_is_super(struct users *u, const char *user);
bool users_in_group(struct users *u, const char *user, const char *group);
