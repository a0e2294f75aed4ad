/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/session/watchdog.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "fuse/mount.h"

#define ROUND_MS 250u /* between two looks; younger requests are left alone */
#define PF_EXITING 4u /* of the kernel: flags in /proc/PID/stat */
#define STAT_FLAGS 9  /* its fields, counted from 1 as proc(5) does */
#define STAT_CODE 52

/* Has the thread a SIGKILL pending? Every signal that ends a process ends its threads by one. */
static bool has_pending_kill(pid_t tid)
{
	char path[40], line[128];
	uint64_t set;
	bool yes = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
	f = fopen(path, "re");
	while (f && !yes && fgets(line, sizeof(line), f))
		if (sscanf(line, "SigPnd: %" SCNx64, &set) == 1 ||
		    sscanf(line, "ShdPnd: %" SCNx64, &set) == 1)
			yes = set >> (SIGKILL - 1) & 1;
	if (f)
		fclose(f);
	return yes;
}

/* Is it past that, and closes its files on its way out? */
static bool is_dying(pid_t tid)
{
	char path[40], text[1024], *p, *save = NULL;
	unsigned long flags = 0, code = 0;
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)tid);
	f = fopen(path, "re");
	if (!f)
		return false;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	p = strrchr(text, ')'); /* the name may hold anything */
	p = p ? strtok_r(p + 1, " ", &save) : NULL;
	for (int field = 3; p; field++, p = strtok_r(NULL, " ", &save)) {
		if (field == STAT_FLAGS)
			flags = strtoul(p, NULL, 10);
		if (field == STAT_CODE)
			code = strtoul(p, NULL, 10);
	}
	return flags & PF_EXITING && (code & 0x7f) == SIGKILL;
}

/* Others of the same file: do they move, or is one of them given up? */
static void look_around(const struct request_table *c, const struct request *r, uint64_t *ret_moved,
			bool *ret_behind)
{
	list_for_each (l, &c->under_way) {
		const struct request *o = container_of(l, struct request, link);

		if (o->from.ino != r->from.ino)
			continue;
		if (o->moved_ns > *ret_moved)
			*ret_moved = o->moved_ns;
		*ret_behind |= o != r && o->given_up_ns > o->moved_ns;
	}
}

static bool waits_for_nobody(const struct request *r)
{
	return r->kind == REQUEST_forget || r->kind == REQUEST_release ||
	       r->kind == REQUEST_releasedir || !r->from.unique;
}

static bool is_due(const struct request *r, uint64_t now)
{
	return !r->given_up_ns && !waits_for_nobody(r) && now - r->begin_ns >= ROUND_MS * NS_PER_MS;
}

/* The threads that are being killed, of those whose requests are due. Without the lock, which every
 * request takes: /proc is slow. */
static void find_killed(struct mount *m)
{
	struct watchdog *w = &m->watchdog;
	uint32_t n = 0;
	uint64_t now;

	pthread_mutex_lock(&m->request_table.lock);
	/* after every request's beginning: they are entered under the lock */
	now = clock_mono_ns();
	list_for_each (l, &m->request_table.under_way) {
		const struct request *r = container_of(l, struct request, link);

		if (n < WATCHDOG_LOOKS && r->from.pid && is_due(r, now))
			w->killed[n++] = r->from;
	}
	pthread_mutex_unlock(&m->request_table.lock);
	w->killed_count = 0;
	for (uint32_t i = 0; i < n; i++)
		if (has_pending_kill(w->killed[i].pid) || is_dying(w->killed[i].pid))
			w->killed[w->killed_count++] = w->killed[i];
}

static bool is_killed(const struct watchdog *w, const struct request *r)
{
	for (uint32_t i = 0; i < w->killed_count; i++)
		if (w->killed[i].unique == r->from.unique && w->killed[i].pid == r->from.pid)
			return true;
	return false;
}

/* The errno to give it up with, or 0. */
static int verdict(const struct mount *m, const struct request *r, uint64_t now)
{
	uint64_t moved = r->begin_ns, limit = WATCHDOG_TIMES * m->opt.timeout_s * NS_PER_S;
	bool behind = false;

	if (!is_due(r, now))
		return 0;
	if (is_killed(&m->watchdog, r))
		return EINTR;
	if (now - r->begin_ns <= WATCHDOG_BEHIND_MS * NS_PER_MS && now - r->begin_ns <= limit)
		return 0; /* the others need not be looked at */
	look_around(&m->request_table, r, &moved, &behind);
	if (behind && limit > WATCHDOG_BEHIND_MS * NS_PER_MS)
		limit = WATCHDOG_BEHIND_MS * NS_PER_MS;
	return now - moved > limit ? ETIMEDOUT : 0;
}

/* As fuse_reply_err() for a request whose thread has it. */
static void give_up(struct request *r, int error, uint64_t now)
{
	const struct fuse_out_header out = {
		.len = sizeof(out), .error = -error, .unique = r->from.unique};

	r->given_up_ns = now;
	if (write(r->from.fd, &out, sizeof(out)) != sizeof(out))
		return; /* it is answered already */
	r->error = error;
	if (error != EINTR)
		log_warn("op=give-up kind=%s inode=%" PRIu64
			 " pid=%d: nothing has moved for %llu s",
			 request_table_kind(r->kind), r->from.ino, (int)r->from.pid,
			 (now - r->begin_ns) / NS_PER_S);
}

static void look(struct mount *m)
{
	uint64_t now;

	find_killed(m);
	pthread_mutex_lock(&m->request_table.lock);
	now = clock_mono_ns();
	list_for_each (l, &m->request_table.under_way) {
		struct request *r = container_of(l, struct request, link);
		const int error = verdict(m, r, now);

		if (error)
			give_up(r, error, now);
	}
	pthread_mutex_unlock(&m->request_table.lock);
}

static void *run(void *arg)
{
	struct mount *m = arg;
	struct watchdog *w = &m->watchdog;
	struct timespec until;

	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		pthread_mutex_unlock(&w->lock);
		look(m);
		pthread_mutex_lock(&w->lock);
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += ROUND_MS * NS_PER_MS;
		until.tv_sec += until.tv_nsec / NS_PER_S;
		until.tv_nsec %= NS_PER_S;
		if (!w->stop)
			pthread_cond_timedwait(&w->wake, &w->lock, &until);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

int watchdog_start(struct watchdog *w, struct mount *m)
{
	int rc;

	pthread_mutex_init(&w->lock, NULL);
	clock_cond_init(&w->wake);
	rc = pthread_create(&w->thread, NULL, run, m);
	w->started = rc == 0;
	return -rc;
}

void watchdog_stop(struct watchdog *w)
{
	if (!w->started)
		return;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	w->started = false;
}
