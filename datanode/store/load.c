/* SPDX-License-Identifier: Apache-2.0 */
/* Start-up: what a directory holds becomes the pool's map (hdfs-wire 6, "Restart"). One readdir per
 * directory and one stat per block file. */
#include "datanode/store/store_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/cursor.h"
#include "common/base/log.h"

struct entry { /* one file name */
	int64_t id;
	uint64_t gs; /* of a meta file */
	bool meta;
};

struct scan {
	struct slice *sl;
	struct entry *list; /* owned; of the directory being read */
	size_t count, room;
	uint64_t orphans, misplaced, duplicates;
	char example[STORE_NAME_MAX];
};

static bool parse_number(const char **s, int64_t *ret)
{
	char *end;

	if (!(**s == '-' || (**s >= '0' && **s <= '9')))
		return false;
	errno = 0;
	*ret = strtoll(*s, &end, 10);
	*s = end;
	return errno == 0;
}

/* blk_<id> or blk_<id>_<gs>.meta */
static bool parse_name(const char *name, struct entry *e)
{
	int64_t gs = 0;

	if (strncmp(name, "blk_", 4))
		return false;
	name += 4;
	if (!parse_number(&name, &e->id))
		return false;
	e->meta = *name == '_';
	e->gs = 0;
	if (!e->meta)
		return *name == '\0';
	name++;
	if (*name == '-' || !parse_number(&name, &gs) || strcmp(name, ".meta"))
		return false;
	e->gs = (uint64_t)gs;
	return true;
}

/* The new meta file of a stamp change that did not come to its rename. */
static bool is_unfinished(const char *name)
{
	size_t n = strlen(name);

	return !strncmp(name, "blk_", 4) && n > 9 && !strcmp(name + n - 9, ".meta.tmp");
}

static int scan_push(struct scan *sc, const struct entry *e)
{
	if (sc->count == sc->room) {
		size_t room = sc->room ? sc->room * 2 : 1024;
		struct entry *p = reallocarray(sc->list, room, sizeof(*p));

		if (!p)
			return -ENOMEM;
		sc->list = p;
		sc->room = room;
	}
	sc->list[sc->count++] = *e;
	return 0;
}

/* By id; the data file before its meta files, newest stamp first. */
static int entry_cmp(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	if (x->meta != y->meta)
		return x->meta ? 1 : -1;
	return x->gs == y->gs ? 0 : x->gs > y->gs ? -1 : 1;
}

static void note_odd(struct scan *sc, uint64_t *count, const char *dir, int64_t id)
{
	if (!sc->example[0])
		(void)snprintf(sc->example, sizeof(sc->example), "%.100s/blk_%" PRId64, dir, id);
	(*count)++;
}

/* ---- lengths ---- */

/* A crash while chunk number @chunk was written anew, before its CRC was: the bytes of it that the stored
 * CRC is of. 0: none. */
static uint64_t flushed_part(int fd, int fd_meta, enum crc_type type, uint64_t start, uint64_t chunk,
			     size_t have)
{
	_cleanup_free_ uint8_t *buf = malloc(have);
	uint32_t crc = 0, want;
	uint8_t stored[4];
	struct rd r = rd_init(stored, sizeof(stored));

	if (!buf || read_full(fd, buf, have, start) ||
	    read_full(fd_meta, stored, sizeof(stored), META_HEADER + 4 * chunk))
		return 0;
	want = rd_be32(&r);
	for (size_t n = 1; n < have; n++) {
		crc = n == 1 ? crc_compute(type, buf, 1) : crc_extend(type, crc, buf + n - 1, 1);
		if (crc == want)
			return n;
	}
	return 0;
}

/* Bytes of @dir/blk_id that are whole, by the last chunk that data and meta both cover. */
static uint64_t good_length(int dir, int64_t id, uint64_t gs, uint64_t size)
{
	char name[STORE_NAME_MAX];
	_cleanup_close_ int fd = -1;
	_cleanup_close_ int fd_meta = -1;
	enum crc_type type;
	uint64_t chunks, in_meta, end;
	uint32_t bpc, crc;
	struct stat st;

	(void)snprintf(name, sizeof(name), "blk_%" PRId64, id);
	fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	(void)snprintf(name, sizeof(name), "blk_%" PRId64 "_%" PRIu64 ".meta", id, gs);
	fd_meta = openat(dir, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fd_meta < 0 || meta_read_header(fd_meta, &type, &bpc) || fstat(fd_meta, &st))
		return 0;
	if (type == CRC_NULL)
		return size;
	in_meta = (uint64_t)(st.st_size - META_HEADER) / 4;
	chunks = (size + bpc - 1) / bpc;
	if (chunks > in_meta)
		chunks = in_meta;
	if (!chunks)
		return 0;
	end = chunks * bpc < size ? chunks * bpc : size;
	if (meta_cut_crc(fd, fd_meta, type, bpc, end, end, &crc))
		return (chunks - 1) * bpc + flushed_part(fd, fd_meta, type, (chunks - 1) * bpc, chunks - 1,
							 (size_t)(end - (chunks - 1) * bpc));
	return end;
}

/* Several meta files: a stamp change was cut short. The one that covers more is right. */
static uint64_t best_meta(int dir, const struct entry *meta, size_t n, uint64_t size,
			  uint64_t *ret_len)
{
	uint64_t best = 0, gs = 0;

	for (size_t i = 0; i < n; i++) {
		uint64_t len = good_length(dir, meta[i].id, meta[i].gs, size);

		if (i == 0 || len > best) {
			best = len;
			gs = meta[i].gs;
		}
	}
	*ret_len = best;
	return gs;
}

/* RESTART_MARKER: an orderly restart that the writer waits for. */
static bool restart_marker(const struct slice *sl, int64_t id)
{
	char name[STORE_NAME_MAX], text[32];
	_cleanup_close_ int fd = -1;
	ssize_t n;

	(void)snprintf(name, sizeof(name), RESTART_MARKER, id);
	fd = openat(sl->fd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	(void)unlinkat(sl->fd, name, 0);
	if (n <= 0)
		return false;
	text[n] = '\0';
	return strtoull(text, NULL, 10) > clock_wall_ms();
}

/* ---- one block ---- */

static bool is_better(const struct replica *a, const struct replica *b)
{
	if (a->gs != b->gs)
		return a->gs > b->gs;
	if (a->state != b->state)
		return a->state == REPLICA_FINALIZED;
	return a->len > b->len;
}

static bool same_inode(const struct replica *a, const struct replica *b)
{
	char x[STORE_NAME_MAX], y[STORE_NAME_MAX];
	struct stat sx, sy;

	path_data(x, a->place, a->id);
	path_data(y, b->place, b->id);
	return !fstatat(a->slice->fd, x, &sx, 0) && !fstatat(b->slice->fd, y, &sy, 0) &&
	       sx.st_dev == sy.st_dev && sx.st_ino == sy.st_ino;
}

/* Into the map. Of two replicas of one block the better one stays; the other's files go when they
 * are no loss: the same file under two names (a move cut short) or no newer and no longer. */
static void add_or_resolve(struct scan *sc, struct replica *r)
{
	struct block_pool *bp = sc->sl->bp;
	struct replica *old, *lose = NULL;

	pthread_mutex_lock(&bp->lock);
	old = replica_find_locked(bp, r->id);
	if (!old) {
		replica_add_locked(bp, r);
	} else if (same_inode(old, r) ? r->state == REPLICA_FINALIZED : is_better(r, old)) {
		HASH_DEL(bp->map, old);
		old->refs--;
		lose = old;
		replica_add_locked(bp, r);
	} else {
		lose = r;
	}
	if (r != lose) {
		atomic_fetch_add(&r->slice->used, pair_bytes(r));
		atomic_fetch_add(&r->slice->blocks, 1);
	}
	if (lose && lose != r) {
		atomic_fetch_sub(&lose->slice->used, pair_bytes(lose));
		atomic_fetch_sub(&lose->slice->blocks, 1);
	}
	if (lose) {
		const struct replica *win = lose == r ? old : r;

		if (same_inode(win, lose) || (win->state == REPLICA_FINALIZED && win->len >= lose->len))
			(void)pair_unlink(lose->slice->fd, lose->id, lose->place, lose->gs);
		note_odd(sc, &sc->duplicates, lose->slice->vol->path, lose->id);
	}
	pthread_mutex_unlock(&bp->lock);
	free(lose);
}

static bool is_misplaced(enum place p, int a, int b, int64_t id)
{
	return p == IN_FINALIZED && (((id >> 16) & 0x1f) != a || ((id >> 8) & 0x1f) != b);
}

/* A finalized pair in the wrong subdirectory (an older layout, a hand): move it home. */
static int bring_home(struct scan *sc, int dir, const char *dir_name, int64_t id, uint64_t gs)
{
	char name[STORE_NAME_MAX], home[STORE_NAME_MAX];
	int rc = path_make_dir(sc->sl->fd, IN_FINALIZED, id);

	note_odd(sc, &sc->misplaced, dir_name, id);
	(void)snprintf(name, sizeof(name), "blk_%" PRId64 "_%" PRIu64 ".meta", id, gs);
	path_meta(home, IN_FINALIZED, id, gs);
	if (!rc)
		rc = ret_errno(renameat2(dir, name, sc->sl->fd, home, RENAME_NOREPLACE));
	(void)snprintf(name, sizeof(name), "blk_%" PRId64, id);
	path_data(home, IN_FINALIZED, id);
	if (!rc)
		rc = ret_errno(renameat2(dir, name, sc->sl->fd, home, RENAME_NOREPLACE));
	return rc;
}

static int load_block(struct scan *sc, int dir, const char *dir_name, enum place p, bool misplaced,
		      const struct entry *e, size_t metas)
{
	char name[STORE_NAME_MAX];
	struct replica *r;
	struct stat st;
	uint64_t len, good, gs = e[1].gs;
	int fd;

	(void)snprintf(name, sizeof(name), "blk_%" PRId64, e->id);
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
		return 0;
	len = (uint64_t)st.st_size;
	if (metas > 1 || p == IN_RBW)
		gs = best_meta(dir, e + 1, metas, len, &good);
	if (p == IN_RBW)
		len = good;
	for (size_t i = 0; i < metas && metas > 1; i++) {
		char meta[STORE_NAME_MAX];

		(void)snprintf(meta, sizeof(meta), "blk_%" PRId64 "_%" PRIu64 ".meta", e->id,
			       e[1 + i].gs);
		if (e[1 + i].gs != gs)
			(void)unlinkat(dir, meta, 0);
	}
	if (p == IN_RBW && len < (uint64_t)st.st_size) {
		fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
		if (fd < 0 || ftruncate(fd, (off_t)len))
			log_warn("op=load file=%s/%s: cannot cut to %" PRIu64 " bytes: %s", dir_name,
				 name, len, err_name(neg_errno()));
		if (fd >= 0)
			(void)close(fd);
	}
	if (misplaced && bring_home(sc, dir, dir_name, e->id, gs))
		return 0;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	*r = (struct replica){.id = e->id, .gs = gs, .len = len, .slice = sc->sl, .place = (uint8_t)p,
			      .state = p == IN_FINALIZED ? REPLICA_FINALIZED : REPLICA_RWR};
	if (p == IN_RBW && restart_marker(sc->sl, e->id) && !replica_make_live(r)) {
		r->state = REPLICA_RBW;
		replica_loaded_rbw(r);
	}
	add_or_resolve(sc, r);
	return 0;
}

/* ---- directories ---- */

/* Names of blocks in @dir go to sc->list, sorted. */
static int read_names(struct scan *sc, DIR *d)
{
	struct dirent *de;
	struct entry e;
	int rc = 0;

	sc->count = 0;
	errno = 0;
	while (!rc && (de = readdir(d))) {
		if (parse_name(de->d_name, &e))
			rc = scan_push(sc, &e);
		else if (is_unfinished(de->d_name))
			(void)unlinkat(dirfd(d), de->d_name, 0);
		errno = 0;
	}
	if (!rc && errno)
		rc = neg_errno();
	if (!rc && sc->count)
		qsort(sc->list, sc->count, sizeof(*sc->list), entry_cmp);
	return rc;
}

/* Each data file with the meta files behind it. What stands alone cannot be checked or reported:
 * it is left for a person, and told; but in rbw/ a meta file alone is what a move left over. */
static int load_names(struct scan *sc, int dir, const char *dir_name, enum place p, int a, int b)
{
	size_t i = 0, n;
	int rc = 0;

	while (!rc && i < sc->count) {
		const struct entry *e = &sc->list[i];

		for (n = 1; i + n < sc->count && e[n].id == e->id; n++)
			;
		if (e->meta) {
			for (size_t k = 0; k < n && p == IN_RBW; k++) {
				char name[STORE_NAME_MAX];

				(void)snprintf(name, sizeof(name), "blk_%" PRId64 "_%" PRIu64 ".meta",
					       e[k].id, e[k].gs);
				(void)unlinkat(dir, name, 0);
			}
			note_odd(sc, &sc->orphans, dir_name, e->id);
		} else if (n == 1) {
			note_odd(sc, &sc->orphans, dir_name, e->id);
		} else {
			rc = load_block(sc, dir, dir_name, p, is_misplaced(p, a, b, e->id), e,
					n - 1);
		}
		i += n;
	}
	return rc;
}

static int load_dir(struct scan *sc, const char *name, enum place p, int a, int b)
{
	int fd = openat(sc->sl->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d;
	int rc;

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : neg_errno();
	d = fdopendir(fd);
	if (!d) {
		(void)close(fd);
		return -ENOMEM;
	}
	rc = read_names(sc, d);
	if (!rc)
		rc = load_names(sc, fd, name, p, a, b);
	(void)closedir(d);
	return rc;
}

/* finalized/ itself and subdirN below it may hold misplaced blocks of older layouts. */
static int load_finalized(struct scan *sc)
{
	char name[STORE_NAME_MAX];
	int rc = load_dir(sc, "finalized", IN_FINALIZED, -1, -1);

	for (int a = 0; !rc && a < 256; a++) {
		(void)snprintf(name, sizeof(name), "finalized/subdir%d", a);
		if (faccessat(sc->sl->fd, name, F_OK, 0))
			continue;
		rc = load_dir(sc, name, IN_FINALIZED, a, -1);
		for (int b = 0; !rc && b < 256; b++) {
			(void)snprintf(name, sizeof(name), "finalized/subdir%d/subdir%d", a, b);
			rc = load_dir(sc, name, IN_FINALIZED, a, b);
		}
	}
	return rc;
}

/* Copies between nodes that did not end: their sender starts anew. */
static int wipe_tmp(const struct slice *sl)
{
	int fd = openat(sl->fd, "../tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *de;

	if (!d) {
		if (fd >= 0)
			(void)close(fd);
		return fd >= 0 ? -ENOMEM : neg_errno();
	}
	while ((de = readdir(d)))
		if (!strncmp(de->d_name, "blk_", 4))
			(void)unlinkat(fd, de->d_name, 0);
	(void)closedir(d);
	return 0;
}

int slice_load(struct slice *sl, struct err *err)
{
	struct scan sc = {.sl = sl};
	uint64_t start = clock_mono_ns();
	int rc = wipe_tmp(sl);

	if (!rc)
		rc = load_finalized(&sc);
	if (!rc)
		rc = load_dir(&sc, "rbw", IN_RBW, 0, 0);
	free(sc.list);
	if (rc)
		return err_sys(err, rc, "reading the replicas of %s in %s", sl->bp->ns.pool_id,
			       sl->vol->path);
	if (sc.orphans || sc.misplaced || sc.duplicates)
		log_warn("op=load dir=%s pool=%s orphans=%" PRIu64 " misplaced=%" PRIu64
			 " duplicates=%" PRIu64 " example=%s: handled, see the manual",
			 sl->vol->path, sl->bp->ns.pool_id, sc.orphans, sc.misplaced, sc.duplicates,
			 sc.example);
	log_info("op=load dir=%s pool=%s replicas=%" PRIu64 " bytes=%" PRIu64 " ms=%" PRIu64,
		 sl->vol->path, sl->bp->ns.pool_id, (uint64_t)sl->blocks, (uint64_t)sl->used,
		 (uint64_t)((clock_mono_ns() - start) / NS_PER_MS));
	return 0;
}
