/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/write/deferred_sync.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/src/fs/fs.h"
#include "client/src/stream/dtp.h"
#include "client/src/stream/stream.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/dt.h"
#include "common/wire/pb.h"

#define QUIET_NS (2 * NS_PER_S)    /* patience with nodes when nobody has asked */
#define FOREVER UINT64_MAX         /* a deadline: as long as the library waits for nodes */
#define FORGET_NS (600 * NS_PER_S) /* a NameNode counts a silent node as dead by then */

#define FILES_MAX 4096 /* remembered of one set */

struct set { /* blocks of the same nodes, the newest of which is @lb */
	struct list link;
	struct list asked;                /* while it is taken: by whom */
	bool taken;                       /* its nodes are asked; only who asks may change it */
	struct deferred_sync_files files; /* of these blocks */
	Hd__LocatedBlockProto *lb;        /* owned */
	uint64_t since_ns;
	int rc;   /* of what was asked last */
	int told; /* -errno, where rc is -EAGAIN: why no node could be asked */
	size_t n;
	uint64_t later[]; /* 0: this node is not to be asked */
};

struct question {                        /* to one node */
	const Hd__LocatedBlockProto *lb; /* it has that block */
	size_t node;
	uint64_t later;
	struct net_addr addr;
	struct sock *sock;
	bool begun, sent, passing; /* passing: it may be asked again, in vain until now */
	int rc;
	struct err err;
};

/* ---- files ---- */

static void files_clear(struct deferred_sync_files *f)
{
	free(f->id);
	*f = (struct deferred_sync_files){.n = 0};
}

static void files_give_up(struct deferred_sync_files *f)
{
	const uint64_t max = f->max;

	files_clear(f);
	f->all = true;
	f->max = max;
}

static bool list_add_id(struct deferred_sync_files *f, uint64_t id)
{
	if (f->n == f->cap) {
		const size_t cap = f->cap ? 2 * f->cap : 4;
		uint64_t *more = cap <= FILES_MAX ? realloc(f->id, cap * sizeof(*more)) : NULL;

		if (!more)
			return false;
		f->id = more;
		f->cap = cap;
	}
	f->id[f->n++] = id;
	return true;
}

static bool list_has_id(const struct deferred_sync_files *f, uint64_t id)
{
	bool found = false;

	for (size_t i = 0; i < f->n && !found; i++)
		found = f->id[i] == id;
	return found;
}

static void list_remove_id(struct deferred_sync_files *f, uint64_t id)
{
	size_t n = 0;

	for (size_t i = 0; i < f->n; i++)
		if (f->id[i] != id)
			f->id[n++] = f->id[i];
	f->n = n;
}

static void files_add(struct deferred_sync_files *f, uint64_t id)
{
	if (id > f->max)
		f->max = id;
	if (f->all)
		list_remove_id(f, id);
	else if ((!f->n || f->id[f->n - 1] != id) && !list_add_id(f, id))
		files_give_up(f);
}

static void files_join(struct deferred_sync_files *f, const struct deferred_sync_files *more)
{
	for (size_t i = 0; i < more->n; i++)
		files_add(f, more->id[i]);
	if (more->max > f->max)
		f->max = more->max;
	if (more->all)
		files_give_up(f);
}

static bool files_have(const struct deferred_sync_files *f, uint64_t id)
{
	return id <= f->max && list_has_id(f, id) != f->all;
}

/* Where all are among them, the list is of those that are not any more: of the last FILES_MAX of
 * them. */
static void files_remove(struct deferred_sync_files *f, uint64_t id)
{
	if (!f->all) {
		list_remove_id(f, id);
	} else if (!list_add_id(f, id) && f->n > 0) {
		memmove(f->id, f->id + 1, (f->n - 1) * sizeof(*f->id));
		f->id[f->n - 1] = id;
	}
}

/* ---- life ---- */

void deferred_sync_init(struct deferred_sync *l)
{
	clock_cond_init(&l->asked);
	pthread_mutex_init(&l->lock, NULL);
	list_init(&l->sets);
	l->asking = 0;
	l->lost_files = (struct deferred_sync_files){.n = 0};
}

static void set_free(struct set *s)
{
	files_clear(&s->files);
	pb_free(s->lb);
	free(s);
}

void deferred_sync_fini(struct deferred_sync *l)
{
	list_for_each (e, &l->sets)
		set_free(container_of(e, struct set, link));
	files_clear(&l->lost_files);
	pthread_mutex_destroy(&l->lock);
	pthread_cond_destroy(&l->asked);
}

static bool same_nodes(const struct set *s, const Hd__LocatedBlockProto *lb, const uint64_t *later,
		       size_t n)
{
	if (s->n != n || memcmp(s->later, later, n * sizeof(*later)) != 0)
		return false;
	for (size_t i = 0; i < n; i++)
		if (strcmp(s->lb->locs[i]->id->datanodeuuid, lb->locs[i]->id->datanodeuuid) != 0)
			return false;
	return true;
}

/* NULL: there is none of these nodes, or they are just asked. */
static struct set *find_set_locked(const struct deferred_sync *l, const Hd__LocatedBlockProto *lb,
				   const uint64_t *later, size_t n)
{
	list_for_each (e, &l->sets) {
		struct set *s = container_of(e, struct set, link);

		if (!s->taken && same_nodes(s, lb, later, n))
			return s;
	}
	return NULL;
}

static struct set *join_locked(struct deferred_sync *l, Hd__LocatedBlockProto *lb,
			       const uint64_t *later, size_t n)
{
	struct set *s = find_set_locked(l, lb, later, n);

	if (s) {
		pb_free(s->lb);
		s->lb = lb;
		s->since_ns = clock_mono_ns();
		s->rc = 0;
	}
	return s;
}

static struct set *begin_locked(struct deferred_sync *l, Hd__LocatedBlockProto *lb,
				const uint64_t *later, size_t n)
{
	struct set *s = malloc(sizeof(*s) + n * sizeof(*later));

	if (!s)
		return NULL;
	*s = (struct set){.lb = lb, .since_ns = clock_mono_ns(), .n = n};
	memcpy(s->later, later, n * sizeof(*later));
	list_add_tail(&l->sets, &s->link);
	l->count++;
	return s;
}

static void lose_locked(struct deferred_sync *l, const struct deferred_sync_files *files)
{
	l->lost = true;
	files_join(&l->lost_files, files);
}

void deferred_sync_add(struct dfs *fs, uint64_t file, Hd__LocatedBlockProto *lb,
		       const uint64_t *later, size_t n)
{
	struct deferred_sync *l = &fs->late;
	bool any = false;
	struct set *s;

	if (n > lb->n_locs)
		n = lb->n_locs;
	for (size_t i = 0; i < n; i++)
		any |= later[i] != 0;
	if (!any) {
		pb_free(lb);
		return;
	}
	pthread_mutex_lock(&l->lock);
	s = join_locked(l, lb, later, n) ?: begin_locked(l, lb, later, n);
	if (s) {
		files_add(&s->files, file);
	} else {
		pb_free(lb);
		lose_locked(l, &(struct deferred_sync_files){.id = &file, .n = 1});
	}
	pthread_mutex_unlock(&l->lock);
	if (l->count >= LATE_SETS_MAX)
		deferred_sync_settle_quietly(fs);
}

/* ---- asking ---- */

static void fail(struct question *q, int rc, bool passing)
{
	q->rc = rc;
	q->passing = passing;
	sock_close(q->sock);
	q->sock = NULL;
}

static void begin(struct dfs *fs, struct question *q, bool anew)
{
	int rc =
		node_addr(q->lb->locs[q->node]->id, fs->set.use_hostname, false, &q->addr, &q->err);

	err_reset(&q->err);
	q->sock = rc == 0 && !anew ? sock_cache_get_sound(&fs->socks, &q->addr) : NULL;
	q->begun = q->sock != NULL;
	if (rc == 0 && !q->sock)
		rc = sock_start(&q->addr, &q->sock, &q->err);
	if (rc < 0)
		fail(q, rc, true);
}

static int connected(struct question *q, uint64_t deadline_ns)
{
	int rc;

	while (!q->begun && (rc = sock_connected(q->sock, &q->addr, &q->err)) <= 0) {
		if (rc == 0)
			rc = sock_wait(q->sock, POLLOUT, deadline_ns, &q->err) ?: -ETIMEDOUT;
		if (rc < 0)
			return rc;
	}
	q->begun = true;
	return 0;
}

static void path_call_send(struct question *q, uint64_t connect_ns, uint64_t deadline_ns)
{
	Hd__OpSyncLaterProto m = HD__OP_SYNC_LATER_PROTO__INIT;
	Hd__BaseHeaderProto h = HD__BASE_HEADER_PROTO__INIT;
	int rc;

	if (!q->sock)
		return;
	h.block = q->lb->b;
	h.token = q->lb->blocktoken;
	m.header = &h;
	m.later = q->later;
	rc = connected(q, connect_ns);
	rc = rc ?: dtp_send_op(q->sock, DT_SYNC_LATER, &m.base, deadline_ns, &q->err);
	if (rc < 0)
		fail(q, rc, true);
}

static void hear(struct dfs *fs, struct question *q, uint64_t deadline_ns)
{
	Hd__BlockOpResponseProto *m = NULL;

	if (!q->sock)
		return;
	q->rc = dtp_recv_reply(q->sock, deadline_ns, &m, &q->err);
	if (q->rc < 0) {
		fail(q, q->rc, m == NULL);
	} else {
		sock_cache_put(&fs->socks, q->sock);
		q->sock = NULL;
	}
	pb_free(m);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* All at a time: a node that hangs holds up nobody else. A connection that was kept may end at any
 * time: then a new one. */
static void ask_all(struct dfs *fs, struct question *q, size_t n, uint64_t until_ns)
{
	for (int pass = 0; pass < 2; pass++) {
		const uint64_t now = clock_mono_ns();
		const uint64_t to_connect = fs->set.connect_timeout_ms * NS_PER_MS;
		const uint64_t connect_ns = earlier(now + to_connect, until_ns);
		const uint64_t deadline_ns = earlier(now + stream_timeout_ns(fs, 1), until_ns);

		if (pass > 0 && now >= until_ns)
			return;
		for (size_t i = 0; i < n; i++)
			if (pass == 0 || (q[i].rc < 0 && q[i].passing && q[i].sent))
				begin(fs, &q[i], pass > 0);
		for (size_t i = 0; i < n; i++) {
			q[i].sent = pass == 0 && q[i].begun; /* by a kept one */
			path_call_send(&q[i], connect_ns, deadline_ns);
		}
		for (size_t i = 0; i < n; i++)
			hear(fs, &q[i], deadline_ns);
	}
}

/* ---- what is asked, and what follows ---- */

static struct question *find(struct question *q, size_t n, const char *uuid, uint64_t later)
{
	for (size_t i = 0; i < n; i++)
		if (q[i].later == later &&
		    strcmp(q[i].lb->locs[q[i].node]->id->datanodeuuid, uuid) == 0)
			return &q[i];
	return NULL;
}

static size_t gather(const struct list *sets, struct question *q)
{
	size_t n = 0;

	for (const struct list *e = sets->next; e != sets; e = e->next) {
		const struct set *s = container_of(e, struct set, asked);

		for (size_t i = 0; i < s->n; i++)
			if (s->later[i] &&
			    !find(q, n, s->lb->locs[i]->id->datanodeuuid, s->later[i]))
				q[n++] = (struct question){
					.lb = s->lb, .node = i, .later = s->later[i]};
	}
	return n;
}

/* 0: one of its nodes at least has it on the disk, and so have all that can be reached; -EAGAIN:
 * none can be. A node that failed to is as bad as one that is gone, as long as there is another
 * one. */
static int judge(const struct set *s, struct question *q, size_t n, struct err *err)
{
	const struct question *bad = NULL;

	for (size_t i = 0; i < s->n; i++) {
		const struct question *a =
			s->later[i] ? find(q, n, s->lb->locs[i]->id->datanodeuuid, s->later[i])
				    : NULL;

		if (a && a->rc == 0)
			return 0;
		if (a && (!bad || a->passing))
			bad = a;
	}
	*err = bad->err;
	err->rc = bad->rc;
	err_prefix(err, "a file that was closed may not be on the disk of its data nodes");
	return bad->passing ? -EAGAIN : bad->rc;
}

static void put_back_locked(struct deferred_sync *l, struct set *s)
{
	struct set *other;

	list_del(&s->link);
	other = find_set_locked(l, s->lb, s->later, s->n);
	if (other) {
		files_join(&other->files, &s->files);
		if (s->since_ns > other->since_ns) {
			Hd__LocatedBlockProto *older = other->lb;

			other->lb = s->lb;
			other->since_ns = s->since_ns;
			s->lb = older;
		}
		set_free(s);
		return;
	}
	s->taken = false;
	list_add_tail(&l->sets, &s->link);
	l->count++;
}

/* @file 0: all of them. @anew: and not those that were asked in vain before. */
static size_t take_locked(struct deferred_sync *l, uint64_t file, bool anew, struct list *ret)
{
	size_t nodes = 0;

	list_init(ret);
	list_for_each (e, &l->sets) {
		struct set *s = container_of(e, struct set, link);

		if (s->taken || (anew && s->rc < 0) || (file && !files_have(&s->files, file)))
			continue;
		s->taken = true;
		list_add_tail(ret, &s->asked);
		l->count--;
		nodes += s->n;
	}
	return nodes;
}

/* What becomes of one; 0, or why it is put back. */
static int settle_one(struct deferred_sync *l, struct set *s)
{
	int rc = 0;

	pthread_mutex_lock(&l->lock);
	if (s->rc == -EAGAIN && clock_mono_ns() - s->since_ns < FORGET_NS) {
		rc = s->told;
		put_back_locked(l, s);
	} else {
		if (s->rc < 0)
			lose_locked(l, &s->files);
		list_del(&s->link);
		set_free(s);
	}
	pthread_mutex_unlock(&l->lock);
	return rc;
}

static int settle_taken(struct dfs *fs, struct list *sets, size_t nodes, uint64_t until_ns,
			struct err *err)
{
	struct question *q = calloc(nodes, sizeof(*q));
	unsigned news = 0;
	struct list *e;
	size_t n = 0;
	int rc = 0;

	if (q) {
		n = gather(sets, q);
		ask_all(fs, q, n, until_ns);
	}
	list_for_each (l, sets) {
		struct set *s = container_of(l, struct set, asked);
		const int before = s->rc;
		struct err why = ERR_INIT;

		s->rc = q ? judge(s, q, n, &why) : err_set(&why, -EAGAIN, "out of memory");
		if (s->rc == -EAGAIN) {
			s->told = why.rc == -EIO ? -EAGAIN : why.rc; /* -EIO is a loss */
			*err = why;
		}
		/* an outage lasts, and is asked about every few seconds */
		news += s->rc < 0 && s->rc != before;
		if (news == 1 && s->rc < 0 && s->rc != before)
			log_info("op=deferred-sync block=%llu: %s",
				 (unsigned long long)s->lb->b->blockid, why.text);
	}
	if (news > 1)
		log_info("op=deferred-sync more=%u: blocks on other nodes wait likewise", news - 1);
	while ((e = list_pop(sets)))
		rc = settle_one(&fs->late, container_of(e, struct set, asked)) ?: rc;
	free(q);
	return rc;
}

/* Of @file (0: of any) a node is just asked. */
static bool is_asked_locked(const struct deferred_sync *l, uint64_t file)
{
	if (!file)
		return l->asking > 0;
	list_for_each (e, &l->sets) {
		const struct set *s = container_of(e, struct set, link);

		if (s->taken && files_have(&s->files, file))
			return true;
	}
	return false;
}

/* Somebody else may just ask for what we need to know, and longer than we have time. False: he
 * does. */
static bool our_turn_locked(struct deferred_sync *l, uint64_t file, uint64_t until_ns)
{
	const struct timespec until = {(time_t)(until_ns / NS_PER_S), (long)(until_ns % NS_PER_S)};

	while (is_asked_locked(l, file)) {
		if (until_ns == FOREVER)
			(void)pthread_cond_wait(&l->asked, &l->lock);
		else if (pthread_cond_timedwait(&l->asked, &l->lock, &until) == ETIMEDOUT)
			return false;
	}
	return true;
}

/* All of it ends at @until_ns. */
static int settle(struct dfs *fs, uint64_t file, bool anew, uint64_t until_ns, struct err *err)
{
	struct deferred_sync *l = &fs->late;
	struct list sets;
	size_t nodes;
	int rc = 0;

	pthread_mutex_lock(&l->lock);
	if (!our_turn_locked(l, file, until_ns)) {
		pthread_mutex_unlock(&l->lock);
		return err_set(err, -ETIMEDOUT,
			       "data nodes are being asked already, and have not answered yet");
	}
	l->asking++;
	nodes = take_locked(l, file, anew, &sets);
	pthread_mutex_unlock(&l->lock);
	if (!list_empty(&sets))
		rc = settle_taken(fs, &sets, nodes, until_ns, err);
	pthread_mutex_lock(&l->lock);
	l->asking--;
	pthread_cond_broadcast(&l->asked);
	pthread_mutex_unlock(&l->lock);
	return rc;
}

static int tell_loss(struct err *err)
{
	return err_set(
		err, -EIO,
		"a data node could not write a closed file to its disk: write the file again, and see the data node's log");
}

int deferred_sync_settle(struct dfs *fs, struct err *err)
{
	struct deferred_sync *l = &fs->late;
	int rc = settle(fs, 0, false, FOREVER, err);
	bool lost;

	if (rc < 0)
		return rc;
	pthread_mutex_lock(&l->lock); /* of both: a loss that comes now is told to the next */
	lost = atomic_exchange(&l->lost, false);
	files_clear(&l->lost_files);
	pthread_mutex_unlock(&l->lock);
	return lost ? tell_loss(err) : 0;
}

int deferred_sync_try(struct dfs *fs, struct err *err)
{
	const int rc = settle(fs, 0, false, clock_mono_ns() + QUIET_NS, err);

	return rc == 0 && fs->late.lost ? tell_loss(err) : rc;
}

int deferred_sync_settle_file(struct dfs *fs, uint64_t file, struct err *err)
{
	struct deferred_sync *l = &fs->late;
	int rc = settle(fs, file, false, FOREVER, err);
	bool lost;

	pthread_mutex_lock(&l->lock);
	lost = rc == 0 && files_have(&l->lost_files, file);
	if (lost) {
		files_remove(&l->lost_files, file);
		l->lost = l->lost_files.all || l->lost_files.n > 0;
	}
	pthread_mutex_unlock(&l->lock);
	return lost ? tell_loss(err) : rc;
}

void deferred_sync_settle_quietly(struct dfs *fs)
{
	struct err ignored = ERR_INIT;

	/* tried again by the next */
	(void)settle(fs, 0, false, clock_mono_ns() + QUIET_NS, &ignored);
}

void deferred_sync_settle_new(struct dfs *fs, uint64_t file, uint64_t until_ns)
{
	struct err ignored = ERR_INIT;

	if (fs->late.count)
		(void)settle(fs, file, true, until_ns, &ignored);
}
