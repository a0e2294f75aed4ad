/* SPDX-License-Identifier: Apache-2.0 */
/* The directory scanner: what people and disks did to the finalized replicas behind our back is
 * brought into the map and told to the NameNode. As a Java DataNode's does, it looks at finalized
 * replicas only; unlike it, it deletes nothing: a file without its other half is left to a person.
 * First the directories are listed, at leisure; what then differs from the map is looked at once
 * more, with the replica claimed, so that blocks that come and go meanwhile are no differences. */
#include "datanode/store/store_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/metrics.h"

#define PROBE_EVERY 64 /* lost replicas; each probe is an fsync */

struct found { /* a block on the disk, or in the map */
	int64_t id;
	uint64_t gs, len;
	bool data, meta, home;
};

struct dirscan {
	struct slice *sl;
	struct found *disk, *map; /* owned; sorted by id */
	size_t disk_count, disk_room, map_count, map_room;
	uint32_t ms_per_s;       /* in which it may work */
	uint64_t slice_start_ns; /* of the second that the throttle counts */
	uint64_t added, removed, mismatched, orphans, duplicates;
	uint64_t unread; /* differ, but could not be looked at; told and probed for once */
	char example[STORE_NAME_MAX]; /* of an orphan or duplicate */
};

static int found_cmp(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

static int push_found(struct found **list, size_t *count, size_t *room, const struct found *f)
{
	if (*count == *room) {
		size_t more = *room ? *room * 2 : 1024;
		struct found *p = reallocarray(*list, more, sizeof(*p));

		if (!p)
			return -ENOMEM;
		*list = p;
		*room = more;
	}
	(*list)[(*count)++] = *f;
	return 0;
}

/* Work for some milliseconds of each second, sleep for the rest. */
static int throttle(struct dirscan *d)
{
	struct store *s = d->sl->bp->store;
	uint64_t now = clock_mono_ns(), limit = d->ms_per_s * NS_PER_MS;

	if (limit && limit < NS_PER_S && now - d->slice_start_ns >= limit) {
		uint64_t rest = now - d->slice_start_ns < NS_PER_S
					? NS_PER_S - (now - d->slice_start_ns)
					: 0;

		if (store_wait_closing(s, rest / NS_PER_MS))
			return -ECANCELED;
		d->slice_start_ns = clock_mono_ns();
	}
	return store_wait_closing(s, 0) ? -ECANCELED : 0;
}

/* ---- listing ---- */

static int list_dir(void *arg, int fd, const char *dir, const struct names *n)
{
	struct dirscan *d = arg;
	char name[STORE_NAME_MAX], home[STORE_NAME_MAX];
	struct stat st;
	int rc = 0;

	for (size_t i = 0; !rc && i < n->count;) {
		const struct entry *e = &n->list[i++];
		struct found f = {.id = e->id, .data = !e->meta, .meta = e->meta, .gs = e->gs};

		rc = throttle(d);
		while (i < n->count && n->list[i].id == e->id) { /* the newest stamp comes first */
			if (!f.meta)
				f.gs = n->list[i].gs;
			f.meta = true;
			i++;
		}
		path_dir(home, IN_FINALIZED, e->id);
		f.home = !strcmp(home, dir);
		(void)snprintf(name, sizeof(name), "blk_%" PRId64, e->id);
		if (f.data && !fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW))
			f.len = (uint64_t)st.st_size;
		if (!rc)
			rc = push_found(&d->disk, &d->disk_count, &d->disk_room, &f);
	}
	return rc;
}

static int list_one(void *arg, struct replica *r)
{
	struct dirscan *d = arg;
	const struct found f = {.id = r->id, .gs = r->gs, .len = r->len};

	if (r->state != REPLICA_FINALIZED)
		return 0;
	return push_found(&d->map, &d->map_count, &d->map_room, &f);
}

static int list_map(struct dirscan *d)
{
	const int rc = slice_walk(d->sl, list_one, NULL, d);

	if (rc)
		return rc;
	if (d->map_count)
		qsort(d->map, d->map_count, sizeof(*d->map), found_cmp);
	if (d->disk_count)
		qsort(d->disk, d->disk_count, sizeof(*d->disk), found_cmp);
	return 0;
}

/* ---- one difference ---- */

static void note_odd(struct dirscan *d, uint64_t *count, int64_t id)
{
	(*count)++;
	if (!d->example[0])
		(void)snprintf(d->example, sizeof(d->example), "blk_%" PRId64, id);
}

/* Is there a file of this name? Only its absence means no: any other error says nothing about it.
 */
static int file_there(const struct slice *sl, const char *name, bool *ret_there, uint64_t *ret_len)
{
	struct stat st;
	int rc = ret_errno(fstatat(sl->fd, name, &st, AT_SYMLINK_NOFOLLOW));

	if (rc && rc != -ENOENT && rc != -ENOTDIR)
		return rc;
	*ret_there = !rc && S_ISREG(st.st_mode);
	*ret_len = *ret_there ? (uint64_t)st.st_size : 0;
	return 0;
}

/* Which files of the pair are at home. *ret_len: of the data. */
static int pair_there(const struct slice *sl, int64_t id, uint64_t gs, bool *ret_data,
		      bool *ret_meta, uint64_t *ret_len)
{
	char name[STORE_NAME_MAX];
	uint64_t ignored;
	int rc;

	path_data(name, IN_FINALIZED, id);
	rc = file_there(sl, name, ret_data, ret_len);
	path_meta(name, IN_FINALIZED, id, gs);
	return rc ? rc : file_there(sl, name, ret_meta, &ignored);
}

/* An entry of the map that holds the id while its files are looked at: nobody makes or removes
 * files of this block meanwhile. NULL: it is taken. */
static struct replica *hold_id(struct dirscan *d, const struct found *f)
{
	struct block_pool *bp = d->sl->bp;
	const struct replica *other;
	struct replica *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	*r = (struct replica){.id = f->id,
			      .gs = f->gs,
			      .slice = d->sl,
			      .place = IN_FINALIZED,
			      .state = REPLICA_TEMPORARY,
			      .busy = true};
	pthread_mutex_lock(&bp->lock);
	other = replica_find_locked(bp, f->id);
	if (!other)
		replica_add_locked(bp, r);
	else if (other->slice != d->sl)
		note_odd(d, &d->duplicates, f->id);
	pthread_mutex_unlock(&bp->lock);
	if (!other)
		return r;
	free(r);
	return NULL;
}

/* On the disk, not in the map: a replica that came back. */
static void check_disk(struct dirscan *d, const struct found *f)
{
	struct slice *sl = d->sl;
	struct block_pool *bp = sl->bp;
	struct replica *r;
	bool data = false, meta = false, added;
	uint64_t len = 0;

	if (!f->home || !f->data || !f->meta) {
		note_odd(d, &d->orphans, f->id);
		return;
	}
	r = hold_id(d, f);
	if (!r)
		return;
	added = !pair_there(sl, f->id, f->gs, &data, &meta, &len) && data && meta;
	pthread_mutex_lock(&bp->lock);
	if (added) {
		r->len = len;
		r->state = REPLICA_FINALIZED;
		replica_count(r);
		replica_release_locked(bp, r);
	} else {
		replica_remove_locked(bp, r);
	}
	pthread_mutex_unlock(&bp->lock);
	if (!added)
		return;
	d->added++;
	log_warn("op=directory-scan block=%" PRId64 "_%" PRIu64
		 " dir=%s: found on disk, served from now on",
		 f->id, f->gs, sl->vol->path);
	store_event(bp, sl, &(struct block){f->id, f->gs, len}, STORE_RECEIVED, NULL);
}

/* The finalized replica is claimed by us. Returns why it is bad, or NULL. What cannot be looked at
 * stays as it is known; a disk that fails so is probed. */
static const char *check_claimed(struct dirscan *d, struct replica *r, bool *ret_gone)
{
	struct slice *sl = d->sl;
	bool data, meta;
	uint64_t len;
	int rc = pair_there(sl, r->id, r->gs, &data, &meta, &len);

	if (rc && !d->unread++)
		log_warn("op=directory-scan block=%" PRId64 "_%" PRIu64
			 " dir=%s: cannot be looked at: %s",
			 r->id, r->gs, sl->vol->path, err_name(slice_error(sl, rc)));
	if (rc)
		return NULL;
	*ret_gone = !data;
	if (!data)
		return NULL;
	if (!meta)
		return "its meta file is not there";
	if (len == r->len)
		return NULL;
	pthread_mutex_lock(&sl->bp->lock);
	atomic_fetch_sub(&sl->used, pair_bytes(r));
	r->len = len;
	atomic_fetch_add(&sl->used, pair_bytes(r));
	pthread_mutex_unlock(&sl->bp->lock);
	return "its length changed";
}

/* In the map; on the disk it is gone, or other than known. */
static void check_map(struct dirscan *d, const struct found *f)
{
	struct slice *sl = d->sl;
	struct block_pool *bp = sl->bp;
	struct replica_info info;
	const char *why = NULL;
	struct replica *r;
	bool gone = false;

	pthread_mutex_lock(&bp->lock);
	r = replica_find_locked(bp, f->id);
	if (!r || r->slice != sl || r->state != REPLICA_FINALIZED || r->busy ||
	    (r->write_state && r->write_state->writer)) {
		pthread_mutex_unlock(&bp->lock);
		return; /* in somebody's hands; the next scan sees it */
	}
	replica_take_locked(bp, r);
	replica_info_locked(r, &info);
	pthread_mutex_unlock(&bp->lock);
	why = check_claimed(d, r, &gone);
	/* A disk that is gone has lost everything: that is the volume's failure. */
	if (gone && d->removed % PROBE_EVERY == 0)
		store_volume_suspect(bp->store, sl->vol->uuid);
	/* Told while the id is still taken, as in delete_one(). */
	if (gone && !sl->vol->failed)
		store_event(bp, sl, &info.block, STORE_DELETED, NULL);
	pthread_mutex_lock(&bp->lock);
	replica_release_locked(bp, r);
	if (gone) {
		replica_uncount(r);
		replica_remove_locked(bp, r);
	}
	pthread_mutex_unlock(&bp->lock);
	open_replica_reap(&bp->store->open_replicas, sl->vol->idx);
	if (gone && !sl->vol->failed) {
		d->removed++;
		log_warn("op=directory-scan block=%" PRId64 "_%" PRIu64
			 " dir=%s: its file is gone, the replica is removed",
			 f->id, info.block.gs, sl->vol->path);
	} else if (!gone && why) {
		d->mismatched++;
		replica_report_bad(bp, &info, why);
	}
}

static void compare(struct dirscan *d)
{
	size_t i = 0, k = 0;

	while ((i < d->disk_count || k < d->map_count) &&
	       !store_wait_closing(d->sl->bp->store, 0)) {
		const struct found *f = i < d->disk_count ? &d->disk[i] : NULL;
		const struct found *m = k < d->map_count ? &d->map[k] : NULL;

		if (!m || (f && f->id < m->id)) {
			check_disk(d, f);
			i++;
		} else if (!f || f->id > m->id) {
			check_map(d, m);
			k++;
		} else {
			/* One block may stand in several directories: the one at home counts. */
			bool fits = false;

			for (; i < d->disk_count && d->disk[i].id == m->id; i++) {
				f = &d->disk[i];
				fits |= f->home && f->data && f->meta && f->gs == m->gs &&
					f->len == m->len;
				if (!f->home)
					note_odd(d, &d->duplicates, f->id);
			}
			if (!fits)
				check_map(d, m);
			k++;
		}
	}
}

int slice_scan(struct slice *sl, uint32_t ms_per_s)
{
	struct dirscan d = {.sl = sl, .ms_per_s = ms_per_s, .slice_start_ns = clock_mono_ns()};
	const struct names_walk w = {.see = list_dir, .arg = &d};
	uint64_t start = clock_mono_ns();
	int rc = names_walk(sl->fd, "finalized", &w);

	if (!rc)
		rc = list_map(&d);
	if (!rc)
		compare(&d);
	else if (rc != -ECANCELED)
		log_warn("op=directory-scan dir=%s pool=%s: %s", sl->vol->path, sl->bp->ns.pool_id,
			 err_name(slice_error(sl, rc)));
	if (!rc)
		log_info("op=directory-scan dir=%s pool=%s replicas=%zu added=%" PRIu64
			 " removed=%" PRIu64 " mismatched=%" PRIu64 " unread=%" PRIu64
			 " ms=%" PRIu64,
			 sl->vol->path, sl->bp->ns.pool_id, d.disk_count, d.added, d.removed,
			 d.mismatched, d.unread, (uint64_t)((clock_mono_ns() - start) / NS_PER_MS));
	if (d.orphans || d.duplicates)
		log_warn(
			"op=directory-scan dir=%s pool=%s orphans=%" PRIu64 " duplicates=%" PRIu64
			" example=%s: files without their other half, and second replicas, are left alone and "
			"not served",
			sl->vol->path, sl->bp->ns.pool_id, d.orphans, d.duplicates, d.example);
	free(d.disk);
	free(d.map);
	return rc;
}

void *volume_directory_scanner(void *arg)
{
	struct volume *v = arg;
	struct store *s = v->store;
	uint64_t wait = 0;

	/* The first at a random time, lest all nodes of a cluster scan at once. */
	if (getrandom(&wait, sizeof(wait), 0) != (ssize_t)sizeof(wait))
		wait = 0;
	wait %= s->scan.directory_ms + 1;
	while (!store_wait_closing(s, wait)) {
		uint64_t start = clock_mono_ns(), took;
		uint32_t pools;

		pthread_mutex_lock(&s->lock);
		pools = s->pool_count;
		pthread_mutex_unlock(&s->lock);
		for (uint32_t p = 0; p < pools && !v->failed; p++)
			if (s->pools[p]->slices[v->idx].fd >= 0)
				(void)slice_scan(&s->pools[p]->slices[v->idx],
						 s->scan.directory_ms_per_s);
		took = (clock_mono_ns() - start) / NS_PER_MS;
		wait = took < s->scan.directory_ms ? s->scan.directory_ms - took : 0;
	}
	return NULL;
}
