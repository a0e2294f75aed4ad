/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/content/pending.h"

#include <errno.h>
#include <time.h>

#include "common/base/clock.h"
#include "fuse/content/content.h"
#include "fuse/content/overlay.h"
#include "fuse/requests/ops.h"

#define PAUSE_FIRST_S 1 /* before the first try; each one that fails doubles it, */
#define PAUSE_MAX_S 5   /* up to this */
/* for the syncs that users owe: files that could not be closed wait for the end of that */
#define SETTLE_S 5
/* the first file that cannot be closed takes one */
#define LEAVE_TIMEOUTS 3

/* @arg: the number of a round, in which it was not tried yet; NULL: any. */
static bool is_pending(const struct inode *in, const void *arg)
{
	return in->pending && (!arg || in->tried != *(const uint32_t *)arg);
}

static void done(struct mount *m, struct inode *in)
{
	pthread_mutex_lock(&m->inodes.lock);
	in->pending = false;
	pthread_mutex_unlock(&m->inodes.lock);
	inode_put(&m->inodes, in); /* ours */
}

/* One try of @in. False: not yet. */
static bool try_one(struct mount *m, struct inode *in)
{
	struct dfs_err err;
	const int doubt = hidden_settle(m, in);
	bool hidden, open;
	int rc;

	err.text[0] = '\0';
	pthread_mutex_lock(&m->inodes.lock);
	hidden = in->hidden && !in->gone;
	open = in->opens > 0;
	pthread_mutex_unlock(&m->inodes.lock);
	if (doubt < 0 && open)
		return false; /* what was written is published when it has its name again */
	if (hidden && !open)
		content_discard(m, in); /* it was not known to be hidden when it was closed */
	if (hidden)
		/* open again: its last descriptor deletes it */
		rc = open ? 0 : hidden_delete(m, in);
	else
		rc = content_heal(m, in, &err);
	if (fail_is_passing(rc) || doubt < 0)
		return false;
	if (!hidden)
		(void)fail_errno("write what could not be written at the last close", rc, &err);
	done(m, in);
	return true;
}

static bool is_stopped(struct pending *p)
{
	bool stop;

	pthread_mutex_lock(&p->lock);
	stop = p->stop;
	pthread_mutex_unlock(&p->lock);
	return stop;
}

/* Each once a round: one that fails because a data node is away does not keep the others. Where
 * many fail, a round takes several calls. True: nothing is left. */
static bool try_all(struct mount *m)
{
	const uint64_t until_ns = clock_mono_ns() + SETTLE_S * NS_PER_S;
	struct pending *p = &m->pending;
	struct inode *in = NULL;
	bool ok = true, settled;

	while ((ok || clock_mono_ns() < until_ns) && !is_stopped(p) &&
	       (in = inode_find(&m->inodes, is_pending, &p->round))) {
		pthread_mutex_lock(&m->inodes.lock);
		in->tried = p->round;
		pthread_mutex_unlock(&m->inodes.lock);
		ok = try_one(m, in) && ok;
		inode_put(&m->inodes, in);
	}
	if (!in)
		p->round++;
	settled = users_settle(&m->users, clock_mono_ns() + SETTLE_S * NS_PER_S);
	/* also one that failed in an earlier call of this round */
	in = inode_find(&m->inodes, is_pending, NULL);
	if (in)
		inode_put(&m->inodes, in);
	return settled && !in;
}

static void pause_locked(struct pending *p, uint32_t seconds)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)seconds;
	while (!p->stop && pthread_cond_timedwait(&p->wake, &p->lock, &until) != ETIMEDOUT)
		;
}

static void *run(void *arg)
{
	struct pending *p = arg;
	uint32_t pause = PAUSE_FIRST_S;
	bool all = true;

	pthread_mutex_lock(&p->lock);
	while (!p->stop) {
		if (all && p->count == 0) {
			pthread_cond_wait(&p->wake, &p->lock);
			continue;
		}
		if (p->count > 0) /* somebody has just found the cluster away: or back */
			pause = PAUSE_FIRST_S;
		pause_locked(p, pause);
		if (p->stop)
			break;
		p->count = 0;
		pthread_mutex_unlock(&p->lock);
		all = try_all(p->m);
		pthread_mutex_lock(&p->lock);
		pause = pause < PAUSE_MAX_S / 2 ? pause * 2 : PAUSE_MAX_S;
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

static void wake(struct pending *p)
{
	pthread_mutex_lock(&p->lock);
	p->count++;
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
}

static void indebted(void *arg)
{
	wake(arg);
}

int pending_start(struct pending *p, struct mount *m)
{
	int rc;

	*p = (struct pending){.m = m, .round = 1};
	pthread_mutex_init(&p->lock, NULL);
	clock_cond_init(&p->wake);
	rc = pthread_create(&p->thread, NULL, run, p);
	p->started = rc == 0;
	m->users.indebted_arg = p; /* no request has come yet */
	m->users.indebted = indebted;
	return -rc;
}

void pending_stop(struct pending *p)
{
	if (!p->started)
		return;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	p->started = false; /* the lock stays: the last descriptors may still add */
}

void pending_add(struct mount *m, struct inode *in)
{
	pthread_mutex_lock(&m->inodes.lock);
	if (!in->pending) {
		in->pending = true;
		in->refs++;
	}
	pthread_mutex_unlock(&m->inodes.lock);
	wake(&m->pending);
}

void pending_end(struct mount *m)
{
	m->leave_ns = clock_mono_ns() + LEAVE_TIMEOUTS * m->opt.timeout_s * NS_PER_S;
}

bool pending_is_over(const struct mount *m)
{
	return m->leave_ns && clock_mono_ns() >= m->leave_ns;
}

void pending_failed(struct mount *m)
{
	struct user *owner;
	char path[ID_PATH_MAX];
	struct dfs_stat st;

	if (!m->leave_ns || pending_is_over(m))
		return;
	owner = users_owner(&m->users);
	id_path(path, m->root_id);
	if (fail_is_passing(dfs_stat(owner->fs, path, &st, NULL)))
		m->leave_ns = clock_mono_ns();
	users_put(&m->users, owner);
}

void pending_leave(struct mount *m)
{
	struct inode *in;

	while ((in = inode_find(&m->inodes, is_pending, NULL))) {
		if (pending_is_over(m) || !try_one(m, in)) {
			pending_failed(m);
			content_leave(m, in);
			done(m, in);
		}
		inode_put(&m->inodes, in);
	}
}
