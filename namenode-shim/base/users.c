/* SPDX-License-Identifier: Apache-2.0 */
#include "namenode-shim/base/users.h"

#include <errno.h>
#include <pthread.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uthash.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/groups.h"
#include "common/base/log.h"
#include "namenode-shim/base/arena.h"

#define NSS_BUF 16384

struct user {
	char *name;    /* owned, key */
	char **groups; /* owned */
	int ngroups;
	bool old;       /* somebody is looking it up again; good until that is done */
	bool outdated;  /* good for those who hold it, and for nobody else */
	bool again;     /* it was asked for more than once */
	bool failed;    /* the accounts failed when they were asked last, */
	bool undecided; /* and nothing was known before */
	atomic_uint held;
	uint64_t expires_ns;
	UT_hash_handle hh;
};

struct users {
	pthread_mutex_t lock;
	struct log_rate rate; /* of lines on accounts that fail */
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
	HASH_ITER(hh, u->table, e, tmp)
	user_drop(u, e);
	pthread_mutex_destroy(&u->lock);
	free(u);
}

const char *users_self(const struct users *u)
{
	return u->self;
}

/* How much a name is worth: one in no group is most likely nobody's, above all if it came once. */
static int rank_of(const struct user *e)
{
	return e->ngroups ? 2 : e->again ? 1 : 0;
}

/* The oldest of those that are worth least. NULL: all are held. */
static struct user *victim(const struct users *u)
{
	struct user *least = NULL;

	for (struct user *e = u->table; e && !(least && !rank_of(least)); e = e->hh.next)
		if (!e->held && (!least || rank_of(e) < rank_of(least)))
			least = e;
	return least;
}

/* Room for one more, unless all are held. */
static void make_room(struct users *u)
{
	struct user *e;

	while (HASH_COUNT(u->table) >= USERS_MAX && (e = victim(u)))
		user_drop(u, e);
}

static void say_failure_locked(struct users *u, const char *name, int rc)
{
	uint32_t dropped = 0;
	char quoted[256];

	if (log_rate_ok(&u->rate, 1000, &dropped))
		log_warn("op=groups user=%s rc=%s not_logged=%u: the accounts of this machine "
			 "cannot be asked; until they can, the groups that are known count",
			 log_quote(quoted, sizeof(quoted), name, strlen(name)), err_name(rc),
			 dropped);
}

/* Returns with the lock held, which is not so while the accounts are asked. */
static struct user *load_and_lock(struct users *u, const char *name)
{
	struct user *e;
	char **groups = NULL;
	const int n = groups_of(name, u->fixed, &groups);

	if (n == -ENOMEM)
		abort(); /* as xcalloc() */
	pthread_mutex_lock(&u->lock);
	if (n < 0)
		say_failure_locked(u, name, n);
	HASH_FIND_STR(u->table, name, e);
	if (e) { /* it may be held */
		HASH_DEL(u->table, e);
		e->again = true;
	} else {
		make_room(u);
		e = xcalloc(1, sizeof(*e));
		e->name = xstrdup(name);
		e->undecided = true;
	}
	if (n >= 0) {
		groups_free(e->groups, e->ngroups);
		e->groups = groups;
		e->ngroups = n;
		e->undecided = false;
	}
	e->old = e->outdated = false;
	e->failed = n < 0;
	e->expires_ns = clock_mono_ns() + (e->undecided ? USERS_UNDECIDED_S
					   : e->failed  ? USERS_AGAIN_S
							: USERS_TTL_S) *
						  NS_PER_S;
	HASH_ADD_KEYPTR(hh, u->table, e->name, strlen(e->name), e);
	return e;
}

/* Somebody was to look it up again, and has not for too long. Where the accounts fail, nothing
 * better is to be had than what was known. */
static bool is_stale(const struct user *e)
{
	return (!e->failed || e->undecided) &&
	       clock_mono_ns() > e->expires_ns + USERS_LATE_S * NS_PER_S;
}

static struct user *find_and_lock(struct users *u, const char *name)
{
	struct user *e;

	pthread_mutex_lock(&u->lock);
	HASH_FIND_STR(u->table, name, e);
	if (e && (e->held || (e->old && !is_stale(e)) || e->expires_ns > clock_mono_ns()))
		return e;
	pthread_mutex_unlock(&u->lock);
	return load_and_lock(u, name);
}

struct user *users_hold(struct users *u, const char *user, bool *ret_old)
{
	struct user *e;

	*ret_old = false;
	pthread_mutex_lock(&u->lock);
	HASH_FIND_STR(u->table, user, e);
	if (e && (e->outdated || is_stale(e)))
		e = NULL;
	if (e) {
		*ret_old = !e->old && e->expires_ns < clock_mono_ns() + USERS_EARLY_S * NS_PER_S;
		e->old |= *ret_old;
		e->again = true;
		e->held++;
	}
	pthread_mutex_unlock(&u->lock);
	return e;
}

struct user *users_ask(struct users *u, const char *user)
{
	struct user *e;
	bool old;

	if (strlen(user) > USERS_NAME_MAX)
		return NULL;
	e = users_hold(u, user, &old);
	if (e && !old)
		return e;
	users_let_go(e);
	e = load_and_lock(u, user);
	e->held++;
	pthread_mutex_unlock(&u->lock);
	return e;
}

void users_let_go(struct user *e)
{
	if (e)
		e->held--;
}

bool users_undecided(struct users *u, const char *user)
{
	const struct user *e;
	bool undecided;

	if (strlen(user) > USERS_NAME_MAX)
		return false;
	e = find_and_lock(u, user);
	undecided = e->undecided;
	pthread_mutex_unlock(&u->lock);
	return undecided;
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
	HASH_ITER(hh, u->table, e, tmp)
	{
		e->outdated = e->held;
		if (!e->outdated)
			user_drop(u, e);
	}
	pthread_mutex_unlock(&u->lock);
}

bool users_is_super(struct users *u, const char *user)
{
	return !strcmp(user, u->self) || users_in_group(u, user, u->super_group);
}
