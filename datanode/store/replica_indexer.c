/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of a volume that keeps its index of replicas (replica_index.h) for the next start, and
 * that looks after a start whether the files are what the index said. Nothing on the way of a block
 * knows of it: a directory that changed is seen by its stamp. docs/design/018-replica-index.md */
#include "datanode/store/store_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/log.h"

/* A stamp says what is in a directory when it is so much older than the listing: clocks of file
 * systems tick in up to 2 s, and of two changes within one tick the stamp is the same. */
#define SETTLED_NS (3 * NS_PER_S)
#define TICK_MS 1000u
#define RECONCILE_MS_PER_S 100u /* of each second that the comparison after a start may work */
/* a round works for so long, then sleeps three times as long */
#define WORK_NS (50 * NS_PER_MS)

struct listing {                  /* of one directory */
	struct index_entry *list; /* owned */
	uint32_t count;
	bool odd; /* there is more in it than replicas: a start has to look at it */
};

struct round {
	struct slice *sl;
	struct replica_index *x;
	struct dir_stamp stamp[INDEX_DIRS]; /* of what has to be listed, before the sync */
	uint64_t work_start_ns;
	int written;
};

/* ---- one directory ---- */

/* Nothing but whole replicas that belong there. */
static bool is_clean(const struct names *n, uint32_t dir)
{
	char home[STORE_NAME_MAX];

	if (n->foreign || n->leftovers || n->sub_count || n->count % 2)
		return false;
	for (size_t i = 0; i < n->count; i += 2) {
		const struct entry *e = &n->list[i];

		if (e[0].meta || !e[1].meta || e[0].id != e[1].id)
			return false;
		path_dir(home, IN_FINALIZED, e->id);
		if (index_dir_number(home) != (int)dir)
			return false;
	}
	return true;
}

/* What is_clean(), with lengths. -EUCLEAN: a name of a replica leads to something else. */
static int list_files(int fd, const struct names *n, struct listing *ret)
{
	char name[STORE_NAME_MAX];
	struct stat st;

	ret->list = calloc(n->count ? n->count / 2 : 1, sizeof(*ret->list));
	if (!ret->list)
		return -ENOMEM;
	for (size_t i = 0; i < n->count; i += 2) {
		const struct entry *e = &n->list[i];

		(void)snprintf(name, sizeof(name), "blk_%" PRId64, e->id);
		if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW))
			return neg_errno();
		if (!S_ISREG(st.st_mode))
			return -EUCLEAN;
		ret->list[ret->count++] = (struct index_entry){e->id, e[1].gs, (uint64_t)st.st_size,
							       (st.st_mode & S_ISVTX) != 0};
	}
	return 0;
}

/* -EAGAIN: its stamp is not @stamp any more, before the listing or after it. */
static int list_directory(const struct slice *sl, uint32_t dir, const struct dir_stamp *stamp,
			  struct listing *ret)
{
	_cleanup_close_ int fd = -1;
	char name[STORE_NAME_MAX];
	struct names n = {0};
	struct dir_stamp now;
	int rc = 0;

	index_dir_name(name, sizeof(name), dir);
	fd = names_read(sl->fd, name, &n);
	if (fd < 0)
		rc = fd;
	ret->odd = !rc && !is_clean(&n, dir);
	if (!rc && !ret->odd)
		rc = list_files(fd, &n, ret);
	names_free(&n);
	ret->odd |= rc == -EUCLEAN;
	if (rc == -EUCLEAN)
		rc = 0;
	/* Who changed it since it was looked at, before the sync, has changed the stamp. */
	if (!rc)
		rc = dir_stamp_read(fd, NULL, &now);
	if (!rc && !dir_stamp_fits(&now, stamp))
		rc = -EAGAIN;
	return rc == -ENOENT || rc == -ENOTDIR ? -EAGAIN : rc;
}

/* ---- all of a slice ---- */

/* Which directories have to be listed: how many. */
static uint32_t find_changed(struct round *r, uint64_t now_ns)
{
	char name[STORE_NAME_MAX];
	uint32_t changed = 0;

	for (uint32_t n = 0; n < INDEX_DIRS; n++) {
		struct index_record *rec = &r->x->dir[n];
		struct dir_stamp now;
		int rc;

		index_dir_name(name, sizeof(name), n);
		rc = dir_stamp_read(r->sl->fd, name, &now);
		if (rc == -ENOENT || rc == -ENOTDIR)
			replica_index_forget(r->x, n);
		if (rc || (dir_stamp_fits(&now, &rec->stamp) &&
			   !memcmp(now.boot, rec->stamp.boot, sizeof(now.boot))))
			continue; /* an unknown boot, too: nothing would come of listing it again */
		if (now.mtime_ns + (int64_t)SETTLED_NS > (int64_t)now_ns ||
		    now.ctime_ns + (int64_t)SETTLED_NS > (int64_t)now_ns)
			continue; /* the next round */
		r->stamp[n] = now;
		changed++;
	}
	return changed;
}

/* True: the store closes. */
static bool rest(struct round *r)
{
	struct store *s = r->sl->bp->store;

	if (clock_mono_ns() - r->work_start_ns < WORK_NS)
		return store_wait_closing(s, 0);
	if (store_wait_closing(s, 3 * WORK_NS / NS_PER_MS))
		return true;
	r->work_start_ns = clock_mono_ns();
	return false;
}

static int write_changed(struct round *r)
{
	int rc = 0;

	for (uint32_t n = 0; !rc && n < INDEX_DIRS && !rest(r); n++) {
		struct listing l = {0};

		if (!r->stamp[n].ino)
			continue;
		rc = list_directory(r->sl, n, &r->stamp[n], &l);
		if (!rc && !l.odd)
			rc = replica_index_write(r->x, n, &r->stamp[n], l.list, l.count);
		if (!rc && l.odd) /* until it changes there is nothing to be noted */
			r->x->dir[n] = (struct index_record){.stamp = r->stamp[n]};
		r->written += !rc && !l.odd;
		if (rc == -EAGAIN || rc == -E2BIG)
			rc = 0;
		free(l.list);
	}
	return rc;
}

/* The order: stamps, then a sync of everything, then the listing. A directory whose stamp is the
 * same after all of it held then what is on the disk now, lengths of files included, and no power
 * cut takes that back without taking the stamp back. */
int slice_index_round(struct slice *sl, uint64_t now_ns)
{
	struct round *r = calloc(1, sizeof(*r));
	int rc = 0, written;

	if (!r)
		return -ENOMEM;
	*r = (struct round){.sl = sl, .x = sl->index, .work_start_ns = clock_mono_ns()};
	if (find_changed(r, now_ns)) {
		rc = ret_errno(syncfs(sl->fd));
		if (!rc)
			rc = write_changed(r);
		if (!rc)
			rc = replica_index_tidy(sl->index);
	}
	written = r->written;
	free(r);
	return rc ? rc : written;
}

/* ---- the thread ---- */

struct replica_index *slice_index_open(const struct slice *sl)
{
	struct index_owner o;

	if (!sl->vol->store->index_ms || sl->vol->remote)
		return NULL;
	(void)snprintf(o.storage_uuid, sizeof(o.storage_uuid), "%s", sl->vol->uuid);
	(void)snprintf(o.pool_id, sizeof(o.pool_id), "%s", sl->bp->ns.pool_id);
	return replica_index_open(sl->fd, &o);
}

/* The start took lengths from the index: now each file is looked at, as the directory scanner does
 * it, at a slow pace; and again where that fails. */
static void reconcile(struct slice *sl)
{
	const uint32_t limit = sl->bp->store->scan.directory_ms_per_s;
	const bool slow = limit && limit < RECONCILE_MS_PER_S;
	const int rc = slice_scan(sl, slow ? limit : RECONCILE_MS_PER_S);

	sl->compare_ns = rc ? clock_mono_ns() + sl->bp->store->index_ms * NS_PER_MS : 0;
}

static void index_slice(struct slice *sl, int *told_rc)
{
	const uint64_t start = clock_mono_ns();
	int rc;

	if (!sl->index)
		sl->index = slice_index_open(sl); /* its volume was away at the start */
	rc = sl->index ? slice_index_round(sl, clock_wall_ms() * NS_PER_MS) : -ENOMEM;
	if (rc > 0)
		log_debug("op=index dir=%s pool=%s directories=%d bytes=%" PRIu64 " ms=%" PRIu64,
			  sl->vol->path, sl->bp->ns.pool_id, rc, sl->index->end,
			  (uint64_t)((clock_mono_ns() - start) / NS_PER_MS));
	if (rc < 0 && rc != *told_rc)
		log_warn(
			"op=index dir=%s pool=%s: the index of replicas cannot be written, the next "
			"start will take longer: %s",
			sl->vol->path, sl->bp->ns.pool_id, err_name(slice_error(sl, rc)));
	*told_rc = rc < 0 ? rc : 0;
}

static void visit(struct volume *v, bool due, int *told_rc)
{
	struct store *s = v->store;
	uint32_t pools;

	pthread_mutex_lock(&s->lock);
	pools = s->pool_count;
	pthread_mutex_unlock(&s->lock);
	for (uint32_t p = 0; p < pools; p++) {
		struct slice *sl = &s->pools[p]->slices[v->idx];

		if (v->failed || sl->fd < 0 || store_wait_closing(s, 0))
			continue;
		if (sl->compare_ns && clock_mono_ns() >= sl->compare_ns)
			reconcile(sl);
		if (due)
			index_slice(sl, told_rc);
	}
}

void *volume_indexer(void *arg)
{
	struct volume *v = arg;
	struct store *s = v->store;
	const uint64_t tick = s->index_ms < TICK_MS ? s->index_ms : TICK_MS;
	uint64_t last = clock_mono_ns();
	int told_rc = 0;

	while (!store_wait_closing(s, tick)) {
		const bool due = clock_mono_ns() - last >= s->index_ms * NS_PER_MS;

		visit(v, due, &told_rc);
		if (due)
			last = clock_mono_ns();
	}
	return NULL;
}
