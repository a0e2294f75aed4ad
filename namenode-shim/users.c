/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/users.h"

#include <pthread.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uthash.h>

#include "common/base/clock.h"
#include "common/base/groups.h"
#include "namenode-shim/arena.h"

#define NSS_BUF 16384

struct user {
	char *name;    /* owned, key */
	char **groups; /* owned */
	int ngroups;
	bool old; /* somebody is looking it up again; good until that is done */
	uint64_t expires_ns;
	UT_hash_handle hh;
};

struct users {
	pthread_mutex_t lock;
	struct user *table;
	const char *super_group; /* borrowed */
	const char *fixed;       /* borrowed; see users_new() */
	char self[256];
};

static void user_drop(struct users *u, struct user *e)
{
	HASH_DEL(u->table, e);
	groups_free(e->groups, e->ngroups);
	free(e->name);
	free(e);
}

struct users *users_new(const char *super_group, const char *fixed)
{
	struct users *u = xcalloc(1, sizeof(*u));
	const char *name = getenv("HADOOP_USER_NAME");
	struct passwd pw, *found = NULL;
	char buf[NSS_BUF];

	pthread_mutex_init(&u->lock, NULL);
	u->super_group = super_group;
	u->fixed = fixed;
	if (!name || !*name)
		name = !getpwuid_r(geteuid(), &pw, buf, sizeof(buf), &found) && found
			       ? found->pw_name
			       : NULL;
	if (name)
		snprintf(u->self, sizeof(u->self), "%s", name);
	else
		snprintf(u->self, sizeof(u->self), "%u", (unsigned int)geteuid());
	return u;
}

void users_free(struct users *u)
{
	struct user *e, *tmp;

	if (!u)
		return;
	HASH_ITER (hh, u->table, e, tmp)
		user_drop(u, e);
	pthread_mutex_destroy(&u->lock);
	free(u);
}

const char *users_self(const struct users *u)
{
	return u->self;
}

const char *users_super_group(const struct users *u)
{
	return u->super_group;
}

/* Room for one more: a name in no group, most likely nobody's, goes before a user. */
static void make_room(struct users *u)
{
	struct user *e = u->table;

	if (HASH_COUNT(u->table) < USERS_MAX)
		return;
	while (e && e->ngroups)
		e = e->hh.next;
	user_drop(u, e ? e : u->table);
}

/* Returns with the lock held, which is not so while the accounts are asked. */
static struct user *load_and_lock(struct users *u, const char *name)
{
	struct user *e = xcalloc(1, sizeof(*e)), *old;

	e->name = xstrdup(name);
	e->ngroups = groups_of(name, u->fixed, &e->groups);
	if (e->ngroups < 0)
		abort(); /* as xcalloc() */
	e->expires_ns = clock_mono_ns() + USERS_TTL_S * NS_PER_S;
	pthread_mutex_lock(&u->lock);
	HASH_FIND_STR(u->table, name, old);
	if (old)
		user_drop(u, old);
	make_room(u);
	HASH_ADD_KEYPTR(hh, u->table, e->name, strlen(e->name), e);
	return e;
}

static const struct user *find_and_lock(struct users *u, const char *name)
{
	struct user *e;

	pthread_mutex_lock(&u->lock);
	HASH_FIND_STR(u->table, name, e);
	if (e && (e->old || e->expires_ns > clock_mono_ns()))
		return e;
	pthread_mutex_unlock(&u->lock);
	return load_and_lock(u, name);
}

enum users_state users_state(struct users *u, const char *user)
{
	enum users_state state = USERS_KNOWN;
	struct user *e;

	if (!strcmp(user, u->self) || strlen(user) > USERS_NAME_MAX)
		return USERS_KNOWN; /* nobody asks for groups */
	pthread_mutex_lock(&u->lock);
	HASH_FIND_STR(u->table, user, e);
	if (!e) {
		state = USERS_NEW;
	} else if (!e->old && e->expires_ns < clock_mono_ns() + USERS_EARLY_S * NS_PER_S) {
		e->old = true;
		state = USERS_OLD;
	}
	pthread_mutex_unlock(&u->lock);
	return state;
}

void users_load(struct users *u, const char *user)
{
	if (strlen(user) > USERS_NAME_MAX)
		return;
	(void)load_and_lock(u, user);
	pthread_mutex_unlock(&u->lock);
}

bool users_in_group(struct users *u, const char *user, const char *group)
{
	const struct user *e;
	bool in = false;

	if (strlen(user) > USERS_NAME_MAX)
		return false;
	e = find_and_lock(u, user);
	for (int i = 0; i < e->ngroups && !in; i++)
		in = !strcmp(e->groups[i], group);
	pthread_mutex_unlock(&u->lock);
	return in;
}

uint32_t users_groups(struct users *u, const char *user, struct arena *a, char ***ret)
{
	const struct user *e;
	uint32_t n;

	if (strlen(user) > USERS_NAME_MAX) {
		*ret = NULL;
		return 0;
	}
	e = find_and_lock(u, user);
	n = (uint32_t)e->ngroups;
	*ret = arena_array(a, char *, n + 1);
	for (uint32_t i = 0; i < n; i++)
		(*ret)[i] = arena_strdup(a, e->groups[i]);
	pthread_mutex_unlock(&u->lock);
	return n;
}

void users_refresh(struct users *u)
{
	struct user *e, *tmp;

	pthread_mutex_lock(&u->lock);
	HASH_ITER (hh, u->table, e, tmp)
		user_drop(u, e);
	pthread_mutex_unlock(&u->lock);
}

bool users_is_super(struct users *u, const char *user)
{
	return !strcmp(user, u->self) || users_in_group(u, user, u->super_group);
}
