/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/write/early_close.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "client/src/fs/fs.h"
#include "common/base/clock.h"
#include "common/wire/pb.h"

#define PATIENCE_NS (60 * NS_PER_S) /* until the data nodes have reported */
#define QUIET_NS (5 * NS_PER_S)     /* the same, when nobody has asked for it */
#define PAUSE_NS (20 * NS_PER_MS)
#define TRY_NS NS_PER_S /* not more often when it fails */

struct file {
	struct list link; /* in closed.files or closed.gone */
	uint64_t number;
	uint64_t connection; /* 0: two were tried */
	uint64_t id;
	bool has_block;
	Hd__ExtendedBlockProto last; /* pool behind path */
	char path[];
};

/* One who asks about file @id (0: all of them). Another one may find a loss meanwhile, and tell it.
 */
struct waiter {
	struct list link;
	uint64_t id;
	bool lost;
};

void early_close_init(struct early_close *c)
{
	pthread_rwlockattr_t a;

	/* it is taken again and again by whoever waits, and appends must not keep that one out */
	(void)pthread_rwlockattr_init(&a);
	(void)pthread_rwlockattr_setkind_np(&a, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_mutex_init(&c->lock, NULL);
	pthread_rwlock_init(&c->settling, &a);
	(void)pthread_rwlockattr_destroy(&a);
	list_init(&c->files);
	list_init(&c->gone);
	list_init(&c->waiting);
}

static void drop_locked(struct early_close *c, struct file *f)
{
	list_del(&f->link);
	c->count--;
	free(f);
}

/* Forget file @id (0: all of them) among those that are gone. False: it is not among them. */
static bool take_gone(struct early_close *c, uint64_t id)
{
	bool found = false;

	pthread_mutex_lock(&c->lock);
	list_for_each (l, &c->gone) {
		struct file *f = container_of(l, struct file, link);

		if (id && f->id != id)
			continue;
		found = true;
		list_del(&f->link);
		c->gone_count--;
		free(f);
	}
	pthread_mutex_unlock(&c->lock);
	return found;
}

static void add_gone(struct early_close *c, struct file *f)
{
	pthread_mutex_lock(&c->lock);
	c->gone_count++;
	list_add_tail(&c->gone, &f->link);
	c->asked = 0;
	list_for_each (l, &c->waiting) {
		struct waiter *w = container_of(l, struct waiter, link);

		w->lost |= !w->id || w->id == f->id;
	}
	pthread_mutex_unlock(&c->lock);
}

void early_close_fini(struct early_close *c)
{
	list_for_each (l, &c->files)
		drop_locked(c, container_of(l, struct file, link));
	(void)take_gone(c, 0);
	pthread_rwlock_destroy(&c->settling);
	pthread_mutex_destroy(&c->lock);
}

bool early_close_may(const struct dfs *fs)
{
	return fs->closed.count < CLOSED_MAX;
}

int early_close_add(struct dfs *fs, const char *path, uint64_t id,
		    const Hd__ExtendedBlockProto *last, uint64_t connection)
{
	const size_t path_len = strlen(path) + 1, pool_len = last ? strlen(last->poolid) + 1 : 0;
	struct file *f = malloc(sizeof(*f) + path_len + pool_len);
	struct early_close *c = &fs->closed;

	if (!f)
		return -ENOMEM;
	f->id = id;
	memcpy(f->path, path, path_len);
	f->has_block = last != NULL;
	f->connection = rpc_client_connections(fs->nn) == connection ? connection : 0;
	if (last) {
		f->last = *last;
		f->last.poolid = memcpy(f->path + path_len, last->poolid, pool_len);
	}
	pthread_mutex_lock(&c->lock);
	f->number = c->next++;
	list_add_tail(&c->files, &f->link);
	c->count++;
	pthread_mutex_unlock(&c->lock);
	return 0;
}

struct early_close_mark early_close_mark(struct dfs *fs)
{
	struct early_close *c = &fs->closed;
	struct early_close_mark m = {.connection = rpc_client_connections(fs->nn)};

	pthread_mutex_lock(&c->lock);
	m.next = c->next;
	pthread_mutex_unlock(&c->lock);
	return m;
}

void early_close_since(struct dfs *fs, const struct early_close_mark *m)
{
	struct early_close *c = &fs->closed;

	if (!c->count || rpc_client_connections(fs->nn) != m->connection)
		return;
	pthread_mutex_lock(&c->lock);
	list_for_each (l, &c->files) {
		struct file *f = container_of(l, struct file, link);

		if (f->number < m->next && f->connection == m->connection)
			drop_locked(c, f);
	}
	pthread_mutex_unlock(&c->lock);
}

void early_close_answered(struct dfs *fs, const char *method, const struct early_close_mark *m)
{
	/* create and complete may be answered early themselves */
	static const char *const changes[] = {"addBlock", "append",  "delete",        "fsync",
					      "mkdirs",   "rename2", "replaceBlocks", "setTimes"};

	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
		if (!strcmp(method, changes[i]))
			early_close_since(fs, m);
}

bool early_close_is_old(const struct dfs *fs)
{
	struct early_close *c = (struct early_close *)&fs->closed;
	bool yes;

	if (c->busy)
		return true;
	if (!c->count || clock_mono_ns() - c->tried_ns < TRY_NS)
		return false;
	pthread_mutex_lock(&c->lock);
	yes = !list_empty(&c->files) &&
	      container_of(c->files.next, struct file, link)->connection !=
		      rpc_client_connections(fs->nn);
	pthread_mutex_unlock(&c->lock);
	return yes;
}

void early_close_pause(struct dfs *fs)
{
	pthread_rwlock_rdlock(&fs->closed.settling);
}

void early_close_resume(struct dfs *fs, uint64_t id)
{
	struct early_close *c = &fs->closed;

	pthread_mutex_lock(&c->lock);
	list_for_each (l, &c->files) {
		struct file *f = container_of(l, struct file, link);

		if (f->id == id)
			drop_locked(c, f);
	}
	pthread_mutex_unlock(&c->lock);
	pthread_rwlock_unlock(&c->settling);
}

/* ---- asking ---- */

/* A directory that is there stays as it is; but ours is a change, and its answer comes when the
 * changes before it are on the disk. */
static int sync_changes(struct dfs *fs, struct err *err)
{
	Hd__MkdirsRequestProto req = HD__MKDIRS_REQUEST_PROTO__INIT;
	Hd__FsPermissionProto perm = HD__FS_PERMISSION_PROTO__INIT;

	req.src = (char *)"/";
	req.masked = &perm;
	req.createparent = 1;
	return nn_call_once(fs, "mkdirs", &req.base, &hd__mkdirs_response_proto__descriptor, NULL,
			    err);
}

/* Complete it again. 1: it is, on the disk; 0: not yet; -ENOENT: there is no such file; -ESTALE: it
 * is somebody else's by now. */
static int ask_again(struct dfs *fs, struct file *f, struct err *err)
{
	Hd__CompleteRequestProto req = HD__COMPLETE_REQUEST_PROTO__INIT;
	Hd__CompleteResponseProto *m;
	int rc, done;

	req.src = f->path; /* it may have another one by now: the NameNode goes by the id */
	req.clientname = fs->client_name;
	req.last = f->has_block ? &f->last : NULL;
	req.has_fileid = 1;
	req.fileid = f->id;
	err_reset(err);
	rc = nn_call_once(fs, "complete", &req.base, &hd__complete_response_proto__descriptor, &m,
			  err);
	if (rc < 0)
		return rc;
	done = m->result;
	pb_free(m);
	return done;
}

/* The first one before number @end, file @id (0: any); NULL: there is none. Only the caller may
 * look at it afterwards, or drop it. */
static struct file *first_before(struct early_close *c, uint64_t end, uint64_t id)
{
	struct file *found = NULL;

	pthread_mutex_lock(&c->lock);
	list_for_each (l, &c->files) {
		struct file *f = container_of(l, struct file, link);

		if (f->number >= end)
			break;
		if (id && f->id != id)
			continue;
		list_del(&f->link);
		c->count--;
		c->asked = f->id;
		found = f;
		break;
	}
	pthread_mutex_unlock(&c->lock);
	return found;
}

/* They stay in the order of their numbers. */
static void put_back(struct early_close *c, struct file *f)
{
	struct list *next;

	pthread_mutex_lock(&c->lock);
	next = c->files.next;
	while (next != &c->files && container_of(next, struct file, link)->number < f->number)
		next = next->next;
	list_add_tail(next, &f->link);
	c->count++;
	c->asked = 0;
	pthread_mutex_unlock(&c->lock);
}

static void forget(struct early_close *c, struct file *f)
{
	pthread_mutex_lock(&c->lock);
	c->asked = 0;
	pthread_mutex_unlock(&c->lock);
	free(f);
}

/* A NameNode that is away, or starts. */
static bool is_passing(int rc, const struct err *err)
{
	return !err->remote[0] || rc == -EROFS || rc == -EAGAIN;
}

/* Each of them in turn (@id 0), or the one alone. 1: the data nodes have not reported the block of
 * the next one yet. */
static int settle_each(struct dfs *fs, uint64_t end, uint64_t id, struct err *err)
{
	struct early_close *c = &fs->closed;
	struct file *f;
	int rc;

	while ((f = first_before(c, end, id))) {
		rc = ask_again(fs, f, err);
		if (rc == 0 || (rc < 0 && is_passing(rc, err))) {
			put_back(c, f);
			return rc ?: 1;
		}
		if (rc == -ENOENT)
			add_gone(c, f);
		else
			forget(c, f);
	}
	return 0;
}

/* A block that is not reported keeps only those who ask about it: others ask between two tries. */
static int settle_until(struct dfs *fs, uint64_t id, uint64_t patience_ns, struct err *err)
{
	const uint64_t until = clock_mono_ns() + patience_ns;
	struct early_close *c = &fs->closed;
	struct early_close_mark m;
	int rc;

	pthread_rwlock_wrlock(&c->settling);
	m = early_close_mark(fs);
	/* with this most, or all, of them are settled (early_close_answered()) */
	rc = sync_changes(fs, err);
	while (rc == 0 && c->count) {
		c->busy = true;
		rc = settle_each(fs, m.next, id, err);
		c->busy = false;
		c->tried_ns = clock_mono_ns();
		if (rc <= 0)
			break;
		if (clock_mono_ns() >= until) {
			rc = err_set(err, -ETIMEDOUT,
				     "the NameNode has not heard of the last block of a file that "
				     "was closed");
			break;
		}
		pthread_rwlock_unlock(&c->settling);
		sleep_ns(PAUSE_NS);
		pthread_rwlock_wrlock(&c->settling);
		rc = 0;
	}
	c->tried_ns = clock_mono_ns();
	pthread_rwlock_unlock(&c->settling);
	return rc;
}

/* *ret_lost, unless it is NULL: a file that was asked about was found gone meanwhile. */
static int settle(struct dfs *fs, uint64_t id, uint64_t patience_ns, bool *ret_lost,
		  struct err *err)
{
	struct early_close *c = &fs->closed;
	struct waiter w = {.id = id};
	int rc;

	pthread_mutex_lock(&c->lock);
	list_add_tail(&c->waiting, &w.link);
	pthread_mutex_unlock(&c->lock);
	rc = settle_until(fs, id, patience_ns, err);
	pthread_mutex_lock(&c->lock);
	list_del(&w.link);
	pthread_mutex_unlock(&c->lock);
	if (ret_lost)
		*ret_lost = w.lost;
	return rc;
}

static int tell_gone(struct err *err)
{
	return err_set(
		err, -ESTALE,
		"a crash of the NameNode's machine has undone the creation of a file that was "
		"closed already");
}

int early_close_settle(struct dfs *fs, struct err *err)
{
	bool lost;
	const int rc = settle(fs, 0, PATIENCE_NS, &lost, err);

	if (rc < 0)
		return rc;
	lost |= take_gone(&fs->closed, 0);
	return lost ? tell_gone(err) : 0;
}

/* File @id is not known to be closed on the disk, nor gone. */
static bool is_unsettled(struct early_close *c, uint64_t id)
{
	bool yes;

	pthread_mutex_lock(&c->lock);
	yes = c->asked == id;
	list_for_each (l, &c->files)
		yes |= container_of(l, struct file, link)->id == id;
	pthread_mutex_unlock(&c->lock);
	return yes;
}

int early_close_settle_file(struct dfs *fs, uint64_t id, struct err *err)
{
	struct early_close *c = &fs->closed;
	bool lost = false;
	const int rc = is_unsettled(c, id) ? settle(fs, id, PATIENCE_NS, &lost, err) : 0;

	if (rc < 0)
		return rc;
	lost |= take_gone(c, id);
	return lost ? tell_gone(err) : 0;
}

int early_close_try(struct dfs *fs, struct err *err)
{
	struct early_close *c = &fs->closed;
	const int rc = settle(fs, 0, QUIET_NS, NULL, err);
	bool gone;

	pthread_mutex_lock(&c->lock);
	gone = c->gone_count > 0;
	pthread_mutex_unlock(&c->lock);
	if (rc == -ESTALE || rc == -EIO)
		return -EAGAIN; /* of a call; nothing is lost by that */
	return rc == 0 && gone ? tell_gone(err) : rc;
}

void early_close_settle_quietly(struct dfs *fs)
{
	/* somebody waits for a block already: the rest is settled without that */
	const uint64_t patience_ns = fs->closed.busy ? 0 : QUIET_NS;
	struct err ignored = ERR_INIT;

	(void)settle(fs, 0, patience_ns, NULL, &ignored); /* the next round tries again */
}
