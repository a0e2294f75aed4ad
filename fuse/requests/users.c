/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/requests/users.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/conf.h"
#include "fuse/options.h"
#include "fuse/requests/local_names.h"

#define FIXED_MAX 8
/* a rename waits so long, with both directories locked by the kernel */
#define SYNC_BLOCKS_MS 2000
/* with less than this, data nodes are not asked: they would count as silent afterwards */
#define SYNC_BLOCKS_LEAST_MS 100

/* ---- names ---- */

static uint32_t name_hash(const char *s)
{
	uint32_t h = 2166136261u;

	for (; *s; s++)
		h = (h ^ (uint8_t)*s) * 16777619u;
	return h % NAME_CACHE;
}

static uint32_t cached_id(struct users *u, struct name_id *cache, const char *name,
			  uint32_t (*find)(const char *))
{
	struct name_id *slot = &cache[name_hash(name)];
	const uint64_t now = clock_mono_ns();
	uint32_t id;

	pthread_mutex_lock(&u->lock);
	if (slot->until_ns > now && strcmp(slot->name, name) == 0) {
		id = slot->id;
		pthread_mutex_unlock(&u->lock);
		return id;
	}
	pthread_mutex_unlock(&u->lock);
	id = find(name); /* may ask a server */
	pthread_mutex_lock(&u->lock);
	snprintf(slot->name, sizeof(slot->name), "%s", name);
	slot->id = id;
	slot->until_ns = now + NAME_TTL_S * NS_PER_S;
	pthread_mutex_unlock(&u->lock);
	return id;
}

uid_t users_uid(struct users *u, const char *owner)
{
	return u->opt->uid >= 0 ? (uid_t)u->opt->uid : cached_id(u, u->owners, owner, local_uid);
}

gid_t users_gid(struct users *u, const char *group)
{
	return u->opt->gid >= 0 ? (gid_t)u->opt->gid : cached_id(u, u->groups, group, local_gid);
}

bool users_find_uid(struct users *u, const char *name, uint32_t *ret)
{
	char nobody[DFS_NAME_MAX + 1];

	*ret = cached_id(u, u->owners, name, local_uid);
	(void)local_user_name(ID_NOBODY, nobody);
	return *ret != ID_NOBODY || strcmp(name, nobody) == 0;
}

bool users_find_gid(struct users *u, const char *name, uint32_t *ret)
{
	char nobody[DFS_NAME_MAX + 1];

	*ret = cached_id(u, u->groups, name, local_gid);
	(void)local_group_name(ID_NOBODY, nobody);
	return *ret != ID_NOBODY || strcmp(name, nobody) == 0;
}

/* ---- handles ---- */

static int connect_user(struct users *u, uid_t uid, bool owner, struct user **ret,
			struct dfs_err *err)
{
	struct user *user = calloc(1, sizeof(*user));
	char name[DFS_NAME_MAX + 1];
	struct dfs_connect_opts o = {
		.size = sizeof(o),
		.uri = u->opt->uri,
		.conf_dir = u->opt->conf_dir,
		.conf = u->conf,
		.user = owner ? NULL : name, /* the owner: $HADOOP_USER_NAME, as in every program */
	};
	bool named;
	int rc;

	if (!user)
		return -ENOMEM;
	user->uid = uid;
	rc = local_user_name(uid, name);
	if (rc < 0 && !owner) { /* its digits would be another user */
		free(user);
		if (err)
			snprintf(
				err->text, sizeof(err->text),
				"the name of uid %u cannot be found out: the name service does not answer",
				uid);
		return rc;
	}
	named = rc == 0;
	rc = dfs_connect(&o, &user->fs, err);
	if (rc < 0) {
		free(user);
		return rc;
	}
	user->own_name = named && strcmp(dfs_user(user->fs), name) == 0;
	*ret = user;
	return 0;
}

static void add_counters(struct dfs_counters *sum, const struct user *user)
{
	struct dfs_counters c;

	dfs_get_counters(user->fs, &c);
	sum->written_tcp += c.written_tcp;
	sum->written_rdma += c.written_rdma;
	sum->read_tcp += c.read_tcp;
	sum->read_rdma += c.read_rdma;
	sum->read_local += c.read_local;
	sum->read_onesided += c.read_onesided;
	sum->local_fallbacks += c.local_fallbacks;
	sum->pipeline_recoveries += c.pipeline_recoveries;
	sum->read_failovers += c.read_failovers;
	sum->checksum_errors += c.checksum_errors;
	sum->rdma_fallbacks += c.rdma_fallbacks;
	sum->read_decoded += c.read_decoded;
	sum->read_hedges += c.read_hedges;
	sum->short_groups += c.short_groups;
}

void users_counters(struct users *u, struct dfs_counters *ret)
{
	pthread_mutex_lock(&u->lock);
	*ret = u->gone;
	for (uint32_t i = 0; i < u->count; i++)
		add_counters(ret, u->user[i]);
	list_for_each (l, &u->debtors)
		add_counters(ret, container_of(l, struct user, link));
	pthread_mutex_unlock(&u->lock);
}

uint32_t users_count(struct users *u)
{
	uint32_t n;

	pthread_mutex_lock(&u->lock);
	n = u->count;
	pthread_mutex_unlock(&u->lock);
	return n;
}

static void free_user(struct user *user)
{
	if (!user)
		return;
	dfs_disconnect(user->fs);
	free(user);
}

static struct user *find_locked(struct users *u, uid_t uid)
{
	for (uint32_t i = 0; i < u->count; i++)
		if (u->user[i]->uid == uid)
			return u->user[i];
	return NULL;
}

/* Files that were created or closed early are not on disks for sure. */
static bool owes_sync(const struct user *user)
{
	return user->made != user->synced;
}

/* Make room for one more: the user that was idle longest has to go. *@ret_free: it owes nothing,
 * free it; NULL: it is a debtor now (the result is true), or there is room, or everybody is busy.
 */
static bool evict_locked(struct users *u, struct user **ret_free)
{
	const bool full = u->debtor_count >= DEBTORS_MAX;
	uint32_t oldest = 0;
	struct user *gone;

	*ret_free = NULL;
	if (u->count < USERS_MAX)
		return false;
	for (uint32_t i = 1; i < u->count; i++)
		if (u->user[i]->refs == 0 && !(full && owes_sync(u->user[i])) &&
		    (!oldest || u->user[i]->used_ns < u->user[oldest]->used_ns))
			oldest = i;
	if (!oldest)
		return false;
	gone = u->user[oldest];
	u->user[oldest] = u->user[--u->count];
	if (owes_sync(gone)) {
		list_add_tail(&u->debtors, &gone->link);
		u->debtor_count++;
		return true;
	}
	add_counters(&u->gone, gone);
	*ret_free = gone;
	return false;
}

static struct user *get_known(struct users *u, uid_t uid)
{
	struct user *user;

	pthread_mutex_lock(&u->lock);
	user = find_locked(u, uid);
	if (user)
		user->refs++;
	pthread_mutex_unlock(&u->lock);
	return user;
}

static int sync_user(struct user *user, struct dfs_err *err)
{
	const uint64_t made = user->made;
	int rc;

	if (made == user->synced)
		return 0;
	rc = dfs_sync_early(user->fs, err);
	if (rc == 0)
		user->synced = made; /* an older count at worst: one call more than needed */
	return rc;
}

/* @fresh (taken) is the handle of its uid, unless somebody was faster. NULL: everybody is busy. */
static struct user *enter(struct users *u, struct user *fresh)
{
	struct user *gone = NULL, *user;
	bool indebted = false;

	pthread_mutex_lock(&u->lock);
	user = find_locked(u, fresh->uid);
	if (!user) {
		indebted = evict_locked(u, &gone);
		if (u->count < USERS_MAX) {
			user = u->user[u->count++] = fresh;
			fresh = NULL;
		}
	}
	if (user)
		user->refs++;
	pthread_mutex_unlock(&u->lock);
	free_user(gone);
	free_user(fresh);
	if (indebted && u->indebted)
		u->indebted(u->indebted_arg);
	return user;
}

int users_get(struct users *u, uid_t uid, struct user **ret, struct dfs_err *err)
{
	struct user *user = get_known(u, uid), *fresh = NULL;
	int rc;

	if (!user) {
		rc = connect_user(u, uid, false, &fresh, err);
		if (rc < 0)
			return rc;
		user = enter(u, fresh);
	}
	if (!user)
		return -EMFILE;
	*ret = user;
	return 0;
}

struct user *users_ref(struct users *u, struct user *user)
{
	pthread_mutex_lock(&u->lock);
	user->refs++;
	pthread_mutex_unlock(&u->lock);
	return user;
}

struct user *users_owner(struct users *u)
{
	return users_ref(u, u->user[0]);
}

void users_put(struct users *u, struct user *user)
{
	if (!user)
		return;
	pthread_mutex_lock(&u->lock);
	user->refs--;
	user->used_ns = clock_mono_ns();
	pthread_mutex_unlock(&u->lock);
}

int users_owns(struct user *user, const char *path, const char *owner, struct dfs_err *err)
{
	const uint64_t now = clock_mono_ns();
	int rc;

	if (strcmp(owner, dfs_user(user->fs)) == 0 ||
	    (user->super_ns && now - user->super_ns < NAME_TTL_S * NS_PER_S))
		return 0;
	/* This changes nothing, and is let through to the owner and the superuser alone. */
	rc = dfs_set_owner(user->fs, path, NULL, NULL, err);
	if (rc == 0)
		user->super_ns = now;
	return rc == -EACCES ? -EPERM : rc;
}

static bool is_by(const struct user *user, uint64_t by)
{
	return by == BY_ANYBODY || by == BY_UID(user->uid);
}

/* All handles of @by, debtors too, each counted once more: nobody is missed who becomes a debtor
 * meanwhile. */
static uint32_t take_all(struct users *u, uint64_t by, struct user *ret[USERS_MAX + DEBTORS_MAX])
{
	uint32_t n = 0;

	pthread_mutex_lock(&u->lock);
	for (uint32_t i = 0; i < u->count; i++)
		if (is_by(u->user[i], by))
			ret[n++] = u->user[i];
	list_for_each (l, &u->debtors)
		if (is_by(container_of(l, struct user, link), by))
			ret[n++] = container_of(l, struct user, link);
	for (uint32_t i = 0; i < n; i++)
		ret[i]->refs++;
	pthread_mutex_unlock(&u->lock);
	return n;
}

static void put_all(struct users *u, struct user **user, uint32_t n)
{
	pthread_mutex_lock(&u->lock);
	for (uint32_t i = 0; i < n; i++)
		user[i]->refs--;
	pthread_mutex_unlock(&u->lock);
}

/* The sync of debtor @uid has failed for good. With LOST_MAX users who have not asked, the oldest
 * makes room. */
static void note_lost_locked(struct users *u, uid_t uid, int rc)
{
	uint32_t i = 0;

	while (i < u->lost_count && u->lost[i].uid != uid)
		i++;
	if (i == LOST_MAX) {
		memmove(u->lost, u->lost + 1, (LOST_MAX - 1) * sizeof(u->lost[0]));
		i = --u->lost_count;
	}
	u->lost_count += i == u->lost_count;
	u->lost[i] = (struct lost_sync){.uid = uid, .rc = rc};
}

static void say_lost(int rc, struct dfs_err *err)
{
	if (rc < 0 && err)
		snprintf(err->text, sizeof(err->text),
			 "a file that was closed earlier did not reach the disks; write it again");
}

/* What @asker is to be told of: its own losses, which are forgotten by that, and what nobody was
 * told of @by (BY_ANYBODY: of everybody), which stays for its user. The first of several. */
static int tell_lost(struct users *u, uint64_t by, uid_t asker, struct dfs_err *err)
{
	uint32_t kept = 0;
	int rc = 0;

	pthread_mutex_lock(&u->lock);
	for (uint32_t i = 0; i < u->lost_count; i++) {
		struct lost_sync *l = &u->lost[i];
		const bool own = l->uid == asker;

		if (own || ((by == BY_ANYBODY || by == BY_UID(l->uid)) && !l->told)) {
			rc = rc ?: l->rc;
			l->told = true;
		}
		if (!own)
			u->lost[kept++] = *l;
	}
	u->lost_count = kept;
	pthread_mutex_unlock(&u->lock);
	say_lost(rc, err);
	return rc;
}

/* The handle of @user has told us of a loss, once: it is for its user, too, if that is another. */
static void keep_loss(struct users *u, const struct user *user, uid_t asker, int rc)
{
	if ((rc != -ESTALE && rc != -EIO) || user->uid == asker)
		return;
	pthread_mutex_lock(&u->lock);
	note_lost_locked(u, user->uid, rc);
	for (uint32_t i = 0; i < u->lost_count; i++)
		u->lost[i].told |= u->lost[i].uid == user->uid;
	pthread_mutex_unlock(&u->lock);
}

int users_sync(struct users *u, uint64_t by, uid_t asker, struct dfs_err *err)
{
	struct user *all[USERS_MAX + DEBTORS_MAX];
	const uint32_t n = take_all(u, by, all);
	int rc = 0;

	for (uint32_t i = 0; i < n && rc == 0; i++) {
		rc = sync_user(all[i], err);
		keep_loss(u, all[i], asker, rc);
	}
	put_all(u, all, n);
	return rc ?: tell_lost(u, by, asker, err);
}

int users_sync_file(struct users *u, uint64_t id, uid_t asker, struct dfs_err *err)
{
	struct user *all[USERS_MAX + DEBTORS_MAX];
	const uint32_t n = take_all(u, BY_ANYBODY, all);
	int rc = 0;

	for (uint32_t i = 0; i < n; i++) {
		const int its = dfs_sync_early_file(all[i]->fs, id, rc == 0 ? err : NULL);

		keep_loss(u, all[i], asker, its);
		rc = rc ?: its;
	}
	put_all(u, all, n);
	/* which files those were is not known */
	return rc ?: tell_lost(u, BY_ANYBODY, asker, err);
}

/* It stays when the sync cannot be made now. It stays also while others use its handle: they may be
 * told of a loss by that. */
static void settle_debtor(struct users *u, struct user *user)
{
	const int rc = owes_sync(user) ? dfs_try_sync_early(user->fs, NULL) : 0;
	bool done;

	pthread_mutex_lock(&u->lock);
	user->refs--;
	done = user->refs == 0 && (rc == 0 || rc == -EIO || rc == -ESTALE);
	if (done) {
		if (rc < 0)
			note_lost_locked(u, user->uid, rc);
		list_del(&user->link);
		u->debtor_count--;
		add_counters(&u->gone, user);
	}
	pthread_mutex_unlock(&u->lock);
	if (done)
		free_user(user);
}

/* The one that was asked longest ago is the first; now it is the last. */
static struct user *next_debtor(struct users *u)
{
	struct user *user;

	pthread_mutex_lock(&u->lock);
	user = container_of(list_pop(&u->debtors), struct user, link);
	list_add_tail(&u->debtors, &user->link);
	user->refs++;
	pthread_mutex_unlock(&u->lock);
	return user;
}

static uint32_t count_debtors(struct users *u)
{
	uint32_t n;

	pthread_mutex_lock(&u->lock);
	n = u->debtor_count;
	pthread_mutex_unlock(&u->lock);
	return n;
}

bool users_settle(struct users *u, uint64_t until_ns)
{
	/* Others only add to the list. */
	for (uint32_t n = count_debtors(u); n > 0; n--) {
		settle_debtor(u, next_debtor(u));
		if (clock_mono_ns() >= until_ns)
			break;
	}
	return count_debtors(u) == 0;
}

void users_sync_blocks(struct users *u, uint64_t by, uint64_t id)
{
	const uint64_t until = clock_mono_ns() + SYNC_BLOCKS_MS * NS_PER_MS;
	struct user *all[USERS_MAX + DEBTORS_MAX];
	const uint32_t n = take_all(u, by, all);
	uint64_t now;

	for (uint32_t i = 0;
	     i < n && (now = clock_mono_ns()) + SYNC_BLOCKS_LEAST_MS * NS_PER_MS <= until; i++)
		dfs_sync_early_blocks_within(all[i]->fs, id, (uint32_t)((until - now) / NS_PER_MS));
	put_all(u, all, n);
}

/* With a data node: what the configuration says is less than `timeout`, often for the data nodes'
 * own sake. */
static unsigned int node_timeout_ms(const struct options *o)
{
	const unsigned int most = o->timeout_s * 1000;
	struct conf *c = conf_new();
	uint64_t ms = 0;
	/* a mistake in it is told by whoever connects */
	int rc = c ? conf_load_dir(c, o->conf_dir, NULL) : -ENOMEM;

	rc = rc ?: conf_time_ms(c, "dfs.client.socket-timeout", most, &ms, NULL);
	conf_free(c);
	return rc == 0 && ms && ms < most ? (unsigned int)ms : most;
}

/* What every handle is told: the umask of this process does not count (a request brings its own),
 * waits are bounded, writers go on with fewer nodes. -D wins. */
static int make_conf(struct users *u)
{
	const struct options *o = u->opt;
	char text[FIXED_MAX][96];
	size_t n = 0, at = 0;

	snprintf(text[n++], 96, "fs.permissions.umask-mode=000");
	snprintf(text[n++], 96, "ipc.client.rpc-timeout.ms=%u", o->timeout_s * 1000);
	snprintf(text[n++], 96, "ipc.client.connect.timeout=%u", o->timeout_s * 1000);
	snprintf(text[n++], 96, "ipc.client.connect.max.retries=%u", o->timeout_s);
	snprintf(text[n++], 96, "dfs.client.retry.startup.safe-mode.millis=%u",
		 o->timeout_s * 1000);
	snprintf(text[n++], 96, "dfs.client.socket-timeout=%u", node_timeout_ms(o));
	/* On three nodes nobody is left to take the place of one that dies: a stream goes on with
	 * two, and the NameNode makes the third replica when it can. Other clients give up, a
	 * program that writes a file would not know what to do then. */
	snprintf(text[n++], 96,
		 "dfs.client.block.write.replace-datanode-on-failure.best-effort=true");
	u->conf = calloc(n + o->conf_count + 1, sizeof(*u->conf));
	for (size_t i = 0; u->conf && i < n; i++)
		u->conf[at++] = strdup(text[i]);
	for (size_t i = 0; u->conf && i < o->conf_count; i++)
		u->conf[at++] = strdup(o->conf[i]);
	return u->conf ? 0 : -ENOMEM;
}

int users_init(struct users *u, const struct options *opt, struct dfs_err *err)
{
	int rc;

	*u = (struct users){.opt = opt};
	pthread_mutex_init(&u->lock, NULL);
	list_init(&u->debtors);
	u->owners = calloc(NAME_CACHE, sizeof(*u->owners));
	u->groups = calloc(NAME_CACHE, sizeof(*u->groups));
	rc = u->owners && u->groups ? make_conf(u) : -ENOMEM;
	if (rc == 0)
		rc = connect_user(u, geteuid(), true, &u->user[0], err);
	u->count = rc == 0;
	return rc;
}

void users_fini(struct users *u)
{
	struct list *l;

	for (uint32_t i = 0; i < u->count; i++)
		free_user(u->user[i]);
	/* NULL: users_init() was not called */
	while (u->debtors.next && (l = list_pop(&u->debtors)))
		free_user(container_of(l, struct user, link));
	for (size_t i = 0; u->conf && u->conf[i]; i++)
		free((char *)u->conf[i]);
	free(u->conf);
	free(u->owners);
	free(u->groups);
	pthread_mutex_destroy(&u->lock);
}
