/* SPDX-License-Identifier: Apache-2.0 */
/* Who may call what on the RPC port. */
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/conf.h"
#include "common/base/groups.h"
#include "common/rpc/service_acl.h"
#include "common/wire/rpc_frame.h"
#include "datanode/admin/ipc_internal.h"
#include "datanode/dn.h"

#define ASKING_MAX 2
#define PW_BUF 16384
#define ASK_AGAIN_NS (10 * NS_PER_S) /* for the name of this node's user, when it has none */
#define KNOWN_NS (300 * NS_PER_S)    /* as hadoop.security.groups.cache.secs */

/* One caller, whose groups are asked for at most once. */
struct asked {
	struct ipc *ipc;
	struct ipc_user user;
	bool done;
	bool undecided; /* the groups of the user were not to be had now */
};

static void user_fini(struct ipc_user *u)
{
	free(u->name);
	if (u->groups)
		groups_free(u->groups, u->n);
}

static int copy_groups(struct ipc_user *to, const struct ipc_user *from)
{
	to->groups = calloc((size_t)from->n + 1, sizeof(char *));
	for (int k = 0; to->groups && k < from->n; k++) {
		to->groups[k] = strdup(from->groups[k]);
		if (!to->groups[k]) {
			groups_free(to->groups, k);
			to->groups = NULL;
		}
	}
	to->n = to->groups ? from->n : 0;
	return to->groups ? 0 : -ENOMEM;
}

/* Where @name is remembered; NULL: it is not. */
static struct ipc_user **find_locked(struct ipc *i, const char *name)
{
	for (uint32_t u = 0; u < IPC_USERS_MAX; u++)
		if (i->users[u] && !strcmp(i->users[u]->name, name))
			return &i->users[u];
	return NULL;
}

/* Fills k->user from what is remembered. @late: also from what is up to KNOWN_NS too old. */
static bool recall(struct asked *k, const char *name, bool late)
{
	struct ipc *i = k->ipc;
	struct ipc_user **u;
	bool found;

	pthread_mutex_lock(&i->users_lock);
	u = find_locked(i, name);
	found = u && (*u)->until_ns + (late ? KNOWN_NS : 0) > clock_mono_ns() &&
		copy_groups(&k->user, *u) == 0;
	if (found)
		(*u)->used_ns = clock_mono_ns();
	pthread_mutex_unlock(&i->users_lock);
	return found;
}

/* Anybody may use the names of others: those that were of use go last. */
static bool is_worth_less(const struct ipc_user *a, const struct ipc_user *b)
{
	return a->allowed != b->allowed ? !a->allowed : a->used_ns < b->used_ns;
}

/* A place that is free, or that of whoever is worth least. */
static struct ipc_user **free_place_locked(struct ipc *i)
{
	struct ipc_user **least = &i->users[0];

	for (uint32_t u = 1; u < IPC_USERS_MAX && *least; u++)
		if (!i->users[u] || is_worth_less(i->users[u], *least))
			least = &i->users[u];
	return least;
}

/* @u (NULL: nothing) takes the place of what is known of @name. */
static void replace(struct ipc *i, const char *name, struct ipc_user *u)
{
	struct ipc_user **place, *old = NULL;

	pthread_mutex_lock(&i->users_lock);
	place = find_locked(i, name);
	if (u)
		u->allowed = place && (*place)->allowed;
	if (u && !place)
		place = free_place_locked(i);
	if (place) {
		old = *place;
		*place = u;
	}
	pthread_mutex_unlock(&i->users_lock);
	if (old)
		user_fini(old);
	free(old);
}

/* Names that are in no group are most likely nobody's: they would push out the others. */
static void remember(struct asked *k, const char *name)
{
	struct ipc_user *u;

	if (!k->user.n) {
		replace(k->ipc, name, NULL);
		return;
	}
	u = calloc(1, sizeof(*u));
	if (!u)
		return;
	u->name = strdup(name);
	if (!u->name || copy_groups(u, &k->user) < 0) {
		user_fini(u);
		free(u);
		return;
	}
	u->used_ns = clock_mono_ns();
	u->until_ns = u->used_ns + KNOWN_NS;
	replace(k->ipc, name, u);
}

/* @name is an administrator, because of a group. */
static void note_allowed(struct ipc *i, const char *name)
{
	struct ipc_user **u;

	pthread_mutex_lock(&i->users_lock);
	u = find_locked(i, name);
	if (u)
		(*u)->allowed = true;
	pthread_mutex_unlock(&i->users_lock);
}

/* The name service may take its time, and all calls pass through the same few threads. So few of
 * them wait for it at a time. */
static bool asking_begin(struct ipc *i)
{
	unsigned int n = atomic_load(&i->asking);

	while (n < ASKING_MAX)
		if (atomic_compare_exchange_weak(&i->asking, &n, n + 1))
			return true;
	return false;
}

static void ask(struct asked *k, const char *name)
{
	struct ipc *i = k->ipc;
	const char *fixed = conf_get(i->dn->conf, "hadoop.user.group.static.mapping.overrides");
	int n = groups_fixed(name, fixed, &k->user.groups);
	const bool listed = n != -ENOENT;

	k->done = true;
	if (!listed) {
		if (recall(k, name, false))
			return;
		n = -EBUSY;
		if (asking_begin(i)) {
			n = groups_of(name, fixed, &k->user.groups);
			atomic_fetch_sub(&i->asking, 1);
		}
	}
	k->user.n = n < 0 ? 0 : n;
	if (n < 0) { /* what was known before counts a while longer */
		k->user.groups = NULL;
		k->undecided = listed || !recall(k, name, true);
	} else if (!listed) {
		remember(k, name);
	}
}

/* An answer of false says nothing when k->undecided is set. */
static bool in_group(void *arg, const char *user, const char *group)
{
	struct asked *k = arg;

	if (!k->done)
		ask(k, user);
	for (int g = 0; g < k->user.n; g++)
		if (!strcmp(k->user.groups[g], group))
			return true;
	return false;
}

static void fail_undecided(struct rpc_call *call)
{
	rpc_fail(
		call, JEX_RETRIABLE,
		"the groups of the user, or the name that this node runs as, cannot be had now: the "
		"accounts fail, or are being asked for others; try again");
}

bool ipc_may_call(struct ipc *i, struct rpc_call *call)
{
	struct asked k = {.ipc = i};
	struct err err = ERR_INIT;
	int rc = service_acl_check(i->service_acl, call->protocol, call->user, call->peer_ip,
				   in_group, &k, &err);

	user_fini(&k.user);
	/* A user whose groups are not known may be in one that is blocked. */
	if (!rc && !k.undecided)
		return true;
	if (k.undecided) {
		fail_undecided(call);
		return false;
	}
	service_acl_note_denied(i->service_acl, call->protocol, call->user, call->peer_ip);
	rpc_fail(call, JEX_AUTHORIZATION, "%s", err.text);
	return false;
}

static void learn_user(struct ipc *i)
{
	struct passwd pw, *p = NULL;
	char buf[PW_BUF];
	const int no = getpwuid_r(geteuid(), &pw, buf, sizeof(buf), &p);

	pthread_mutex_lock(&i->users_lock);
	i->user_asked_ns = clock_mono_ns();
	i->user_known |= p != NULL;
	if (p)
		(void)snprintf(i->user, sizeof(i->user), "%s", p->pw_name);
	else if (!no || no == ENOENT) /* in a container, or before the accounts are there */
		(void)snprintf(i->user, sizeof(i->user), "%u", (unsigned int)geteuid());
	pthread_mutex_unlock(&i->users_lock);
}

void ipc_access_init(struct ipc *i)
{
	pthread_mutex_init(&i->users_lock, NULL);
	learn_user(i);
}

void ipc_access_fini(struct ipc *i)
{
	for (uint32_t u = 0; u < IPC_USERS_MAX; u++) {
		if (i->users[u])
			user_fini(i->users[u]);
		free(i->users[u]);
		i->users[u] = NULL;
	}
	pthread_mutex_destroy(&i->users_lock);
}

/* The user that this node runs as. The accounts may not have answered at the start. */
static void own_name(struct ipc *i, char ret[sizeof(i->user)])
{
	for (int pass = 0; pass < 2; pass++) {
		bool sure;

		pthread_mutex_lock(&i->users_lock);
		memcpy(ret, i->user, sizeof(i->user));
		sure = i->user_known || (*ret && clock_mono_ns() - i->user_asked_ns < ASK_AGAIN_NS);
		pthread_mutex_unlock(&i->users_lock);
		if (sure || pass || !asking_begin(i))
			return;
		learn_user(i);
		atomic_fetch_sub(&i->asking, 1);
	}
}

bool ipc_is_admin(struct ipc *i, struct rpc_call *call)
{
	const struct conf *conf = i->dn->conf;
	const char *user = call->user ? call->user : "";
	struct asked k = {.ipc = i};
	struct err err = ERR_INIT;
	char self[sizeof(i->user)];
	bool checked = true, may;

	own_name(i, self);
	(void)conf_bool(conf, "dfs.permissions.enabled", true, &checked, &err);
	may = !checked || (*self && !strcmp(user, self)) ||
	      in_group(&k, user, conf_get_or(conf, "dfs.permissions.superusergroup", "supergroup"));
	user_fini(&k.user);
	if (may && k.done)
		note_allowed(i, user);
	if (may)
		return true;
	if (k.undecided || !*self) /* it may be the user that this node runs as */
		fail_undecided(call);
	else
		rpc_fail(call, JEX_ACCESS_CONTROL,
			 "user %.64s may not administer this data node; be %.64s or a member of "
			 "dfs.permissions.superusergroup",
			 user, self);
	return false;
}
