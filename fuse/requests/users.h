/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * users - the people behind the requests: a handle of libdfsclient for each, and their names
 *
 * Idea: HDFS knows users by name and checks rights itself. So each local uid has a `struct dfs` of
 * its own, connected when it first asks; the mount's owner has the one that was there at the start.
 * In the other direction owner and group names become local numbers. A number without a name here
 * is a name of digits in HDFS, both ways; any other name that is not known here is shown as nobody.
 * Ownership: users_get() gives a counted handle, users_put() releases it. At most USERS_MAX are
 * kept; the one that was idle longest goes. A handle remembers files that were closed early. When
 * it must go and still owes a sync of such files, it becomes a *debtor* until users_settle() has
 * made that sync. When the sync fails for good, its user gets the error at the next sync that this
 * user asks for, and so does, once, somebody else who asks about files that may be the same.
 * Threading: any thread, users_settle() one at a time; `lock` is a leaf.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/include/dfsclient_ext.h"
#include "common/base/list.h"

#define USERS_MAX 256   /* handles at the same time */
#define DEBTORS_MAX 256 /* and of users that had to go and owe a sync */
#define LOST_MAX 256    /* users who are still to be told that their sync failed */
#define NAME_CACHE 512  /* names that are remembered, of users and of groups each */
#define NAME_TTL_S 60   /* and for how long */

struct user {
	struct list link; /* in users.debtors, or not linked */
	uid_t uid;
	struct dfs *fs; /* owned */
	/* constant: HDFS knows it by the name of its uid; not so where $HADOOP_USER_NAME says
	 * another */
	bool own_name;
	uint32_t refs;
	uint64_t used_ns;
	/* when the NameNode last took it for the superuser; 0: never */
	atomic_uint_fast64_t super_ns;
	/* files created or closed early, and how many of these are on the NameNode's disk for sure
	 */
	atomic_uint_fast64_t made, synced;
};

struct lost_sync {
	uid_t uid;
	int rc;
	bool told; /* to others, who asked about files that might have been it */
};

struct name_id {
	char name[DFS_NAME_MAX + 1];
	uint32_t id;
	uint64_t until_ns;
};

struct options;

struct users {
	pthread_mutex_t lock;
	const struct options *opt;    /* borrowed (outlives us) */
	const char **conf;            /* owned: what every handle is told, strings too */
	struct user *user[USERS_MAX]; /* owned; [0] is the owner of the mount and stays */
	uint32_t count;
	struct list debtors; /* owned; not in user[] */
	uint32_t debtor_count;
	/* NULL: nobody; told, without the lock, of a new debtor: users_settle() is due */
	void (*indebted)(void *arg);
	void *indebted_arg;
	/* syncs of debtors that failed for good and that nobody was told of, one for each uid */
	struct lost_sync lost[LOST_MAX];
	uint32_t lost_count;
	struct name_id *owners, *groups; /* owned; NAME_CACHE each, by hash */
	struct dfs_counters gone;        /* of handles that are gone; under lock */
};

/** Connect as the owner of the mount. Fails as dfs_connect(). */
int users_init(struct users *u, const struct options *opt, struct dfs_err *err);
void users_fini(struct users *u);
/** The handle of @uid. -EMFILE: USERS_MAX are busy; -EIO: its name is not known now; or as
 * dfs_connect(). */
int users_get(struct users *u, uid_t uid, struct user **ret, struct dfs_err *err);
/** The owner of the mount; counted too. */
struct user *users_owner(struct users *u);
/** One more reference; returns @user. */
struct user *users_ref(struct users *u, struct user *user);
void users_put(struct users *u, struct user *user);
/** May @user set the times of @path (which has @owner) to anything? 0; -EPERM: neither owner nor
 * superuser. */
int users_owns(struct user *user, const char *path, const char *owner, struct dfs_err *err);
/** Of a uid, and of nobody in particular. */
#define BY_UID(uid) ((uint64_t)(uid) + 1)
#define BY_ANYBODY 0

/** All that @by has created or closed early here is on the NameNode's disk, and on those of data
 * nodes. @asker wants to know. Fails as dfs_sync_early(). */
int users_sync(struct users *u, uint64_t by, uid_t asker, struct dfs_err *err);
/** The same of one file, by its HDFS id, whoever has closed it here. */
int users_sync_file(struct users *u, uint64_t id, uid_t asker, struct dfs_err *err);
/** Make the syncs that debtors owe, once for each, until @until_ns; those that are left come first
 *  the next time. False: some are left, or cannot be made now; call again later. */
bool users_settle(struct users *u, uint64_t until_ns);
/** All that @by has closed early here (of that, the file with the HDFS id @id; 0: all) is on the
 *  disks of data nodes, as far as these answer: dfs_sync_early_blocks(). It returns within two
 *  seconds.
 */
void users_sync_blocks(struct users *u, uint64_t by, uint64_t id);
uid_t users_uid(struct users *u, const char *owner);
gid_t users_gid(struct users *u, const char *group);
/** The number that a name has here, whatever options show instead; false: it has none. */
bool users_find_uid(struct users *u, const char *name, uint32_t *ret);
bool users_find_gid(struct users *u, const char *name, uint32_t *ret);
/** What the library has counted, of all users there were. */
void users_counters(struct users *u, struct dfs_counters *ret);
uint32_t users_count(struct users *u);
