/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/content/stale_retry.h"

#include "common/base/clock.h"
#include "fuse/requests/ops.h"

#define RETRY_NS (2 * NS_PER_S)

void stale_retry_init(struct stale_retry *r)
{
	pthread_mutex_init(&r->lock, NULL);
}

static void let_go(struct mount *m, struct inode *in)
{
	if (!in)
		return;
	file_unpin(m, in);
	inode_put(&m->inodes, in);
}

/* The first slot of @tid (0: any) whose time is over at @now; it is free afterwards. False: there
 * is none. */
static bool take(struct stale_retry *r, pid_t tid, uint64_t now, struct inode **ret)
{
	bool found = false;

	pthread_mutex_lock(&r->lock);
	for (int i = 0; i < RETRIES_MAX && !found; i++) {
		struct retry *s = &r->slot[i];

		found = s->tid && (tid ? s->tid == tid : s->until_ns <= now);
		if (!found)
			continue;
		*ret = s->in;
		*s = (struct retry){0};
		atomic_fetch_sub(&r->count, 1);
	}
	pthread_mutex_unlock(&r->lock);
	return found;
}

static void expire(struct mount *m, uint64_t now)
{
	struct inode *in;

	while (take(&m->stale_retry, 0, now, &in))
		let_go(m, in);
}

void stale_retry_told(struct mount *m, pid_t tid)
{
	struct stale_retry *r = &m->stale_retry;
	const uint64_t now = clock_mono_ns();

	if (!tid)
		return; /* of another pid namespace */
	expire(m, now);
	pthread_mutex_lock(&r->lock);
	for (int i = 0; i < RETRIES_MAX; i++) {
		if (r->slot[i].tid)
			continue;
		r->slot[i] = (struct retry){.tid = tid, .until_ns = now + RETRY_NS};
		atomic_fetch_add(&r->count, 1);
		break;
	}
	pthread_mutex_unlock(&r->lock);
}

/* As if it were opened now; not, when it is gone. */
static bool pin(struct mount *m, struct inode *in)
{
	bool there;

	pthread_mutex_lock(&m->inodes.lock);
	while (in->leaving > 0)
		pthread_cond_wait(&m->inodes.left, &m->inodes.lock);
	there = !in->gone && !in->hidden;
	in->opens += there;
	in->refs += there;
	pthread_mutex_unlock(&m->inodes.lock);
	return there;
}

bool stale_retry_hold(struct mount *m, pid_t tid, struct inode *in)
{
	struct stale_retry *r = &m->stale_retry;
	struct inode *before = NULL;
	bool ours = false;

	if (atomic_load(&r->count) == 0)
		return true;
	expire(m, clock_mono_ns());
	if (in->is_dir)
		return true; /* on the way to the file, perhaps */
	pthread_mutex_lock(&r->lock);
	for (int i = 0; i < RETRIES_MAX && !ours; i++)
		ours = tid && r->slot[i].tid == tid;
	pthread_mutex_unlock(&r->lock);
	if (!ours)
		return true;
	if (!pin(m, in))
		return false;
	pthread_mutex_lock(&r->lock);
	ours = false;
	for (int i = 0; i < RETRIES_MAX && !ours; i++) {
		ours = r->slot[i].tid == tid;
		if (ours) {
			before = r->slot[i].in;
			r->slot[i].in = in;
		}
	}
	pthread_mutex_unlock(&r->lock);
	let_go(m, ours ? before : in); /* not ours any more: its time was over at this moment */
	return true;
}

bool stale_retry_done(struct mount *m, pid_t tid)
{
	struct inode *in;

	if (atomic_load(&m->stale_retry.count) == 0 || !tid || !take(&m->stale_retry, tid, 0, &in))
		return false;
	let_go(m, in);
	return true;
}

void stale_retry_end(struct mount *m)
{
	expire(m, UINT64_MAX);
}
