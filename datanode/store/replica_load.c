/* SPDX-License-Identifier: Apache-2.0 */
/* Start-up: what a directory holds becomes the pool's map (hdfs-wire 6, "Restart"). One readdir per
 * directory and one stat per block file; of a directory that the index knows one stat. */
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

enum odd {
	ODD_ORPHAN,
	ODD_MISPLACED,
	ODD_BLOCKED,
	ODD_DUPLICATE,
	ODD_UNREAD,
	ODD_FOREIGN,
	ODD_COUNT
};

struct scan {
	struct slice *sl;
	bool again;               /* the others are in service */
	uint32_t listed, indexed; /* directories of finalized replicas */
	enum place place;
	struct { /* counted, and told once */
		uint64_t n;
		char example[STORE_NAME_MAX];
	} odd[ODD_COUNT];
};

static void note(struct scan *sc, enum odd what, const char *dir, const char *name)
{
	if (!sc->odd[what].n++)
		(void)snprintf(sc->odd[what].example, sizeof(sc->odd[what].example), "%.90s/%.60s",
			       dir, name);
}

static void note_block(struct scan *sc, enum odd what, const char *dir, int64_t id)
{
	char name[32];

	(void)snprintf(name, sizeof(name), "blk_%" PRId64, id);
	note(sc, what, dir, name);
}

/* ---- lengths ---- */

/* A crash while chunk number @chunk was written anew, before its CRC was: @ret_len are the bytes of
 * it that the stored CRC is of; 0: none. */
static int flushed_part(int fd, int fd_meta, enum crc_type type, uint64_t start, uint64_t chunk,
			size_t have, uint64_t *ret_len)
{
	_cleanup_free_ uint8_t *buf = malloc(have);
	uint32_t crc = 0, want;
	uint8_t stored[4];
	struct rd r = rd_init(stored, sizeof(stored));
	int rc;

	if (!buf)
		return -ENOMEM;
	rc = file_read_full(fd, buf, have, start);
	if (!rc)
		rc = file_read_full(fd_meta, stored, sizeof(stored), META_HEADER_LEN + 4 * chunk);
	if (rc)
		return rc;
	*ret_len = 0;
	want = rd_be32(&r);
	for (size_t n = 1; n < have; n++) {
		crc = n == 1 ? crc_compute(type, buf, 1) : crc_extend(type, crc, buf + n - 1, 1);
		if (crc == want) {
			*ret_len = n;
			break;
		}
	}
	return 0;
}

#define TAIL_STEP (256u << 10)

/* Of @end bytes those before the first chunk, among the last STORE_TAIL_BYTES, that its CRC does
 * not fit. */
static int good_tail(int fd, int fd_meta, enum crc_type type, uint32_t bpc, uint64_t end,
		     uint64_t *ret_len)
{
	const size_t step = TAIL_STEP / bpc ? TAIL_STEP / bpc * bpc : bpc;
	_cleanup_free_ uint8_t *buf = malloc(step);
	_cleanup_free_ uint8_t *crcs = malloc(step / bpc * 4);
	uint64_t off = end > STORE_TAIL_BYTES ? (end - STORE_TAIL_BYTES) / bpc * bpc : 0, start,
		 part = 0;
	int64_t bad = -1;
	int rc = buf && crcs ? 0 : -ENOMEM;

	*ret_len = end;
	for (; !rc && off < end; off += step) {
		const size_t n = end - off < step ? (size_t)(end - off) : step;

		rc = file_read_full(fd, buf, n, off);
		if (!rc)
			rc = file_read_full(fd_meta, crcs, crc_bytes(type, n, bpc),
					    META_HEADER_LEN + off / bpc * 4);
		if (!rc)
			bad = crc_verify(type, buf, n, bpc, crcs);
		if (bad >= 0)
			break;
	}
	if (rc || bad < 0)
		return rc;
	start = off + (uint64_t)bad * bpc;
	rc = flushed_part(fd, fd_meta, type, start, start / bpc,
			  (size_t)(end - start < bpc ? end - start : bpc), &part);
	*ret_len = start + part;
	return rc;
}

/* Bytes of @dir/blk_id that are whole, by the last chunks that data and meta both cover: 0 of files
 * that are too short or malformed. A file that cannot be opened or read says nothing about its
 * bytes: that is an error, upon which nothing may be cut or removed. */
static int good_length(int dir, int64_t id, uint64_t gs, uint64_t size, uint64_t *ret_len)
{
	char name[STORE_NAME_MAX];
	_cleanup_close_ int fd = -1;
	_cleanup_close_ int fd_meta = -1;
	enum crc_type type;
	uint64_t chunks, in_meta;
	uint32_t bpc;
	struct stat st;
	int rc;

	(void)snprintf(name, sizeof(name), "blk_%" PRId64, id);
	fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return neg_errno();
	(void)snprintf(name, sizeof(name), "blk_%" PRId64 "_%" PRIu64 ".meta", id, gs);
	fd_meta = openat(dir, name, O_RDONLY | O_CLOEXEC);
	if (fd_meta < 0 || fstat(fd_meta, &st))
		return neg_errno();
	*ret_len = 0;
	rc = meta_read_header(fd_meta, &type, &bpc);
	if (rc)
		return rc == -EBADMSG ? 0 : rc;
	if (type == CRC_NULL) {
		*ret_len = size;
		return 0;
	}
	in_meta = (uint64_t)(st.st_size - META_HEADER_LEN) / 4;
	chunks = (size + bpc - 1) / bpc;
	if (chunks > in_meta)
		chunks = in_meta;
	if (!chunks)
		return 0;
	return good_tail(fd, fd_meta, type, bpc, chunks * bpc < size ? chunks * bpc : size,
			 ret_len);
}

/* Several meta files: a stamp change was cut short. The one that covers more is right. */
static int best_meta(int dir, const struct entry *meta, size_t n, uint64_t size, uint64_t *ret_gs,
		     uint64_t *ret_len)
{
	uint64_t best = 0, gs = 0, len;

	for (size_t i = 0; i < n; i++) {
		int rc = good_length(dir, meta[i].id, meta[i].gs, size, &len);

		if (rc)
			return rc;
		if (i == 0 || len > best) {
			best = len;
			gs = meta[i].gs;
		}
	}
	*ret_gs = gs;
	*ret_len = best;
	return 0;
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

/* The CRC of the last chunk, which a reader of an RBW takes from memory. */
static int last_crc(int dir, const struct replica *r, uint32_t *ret)
{
	char name[STORE_NAME_MAX];
	_cleanup_close_ int fd = -1, fd_meta = -1;
	enum crc_type type;
	uint32_t bpc;
	int rc;

	(void)snprintf(name, sizeof(name), "blk_%" PRId64, r->id);
	fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	(void)snprintf(name, sizeof(name), "blk_%" PRId64 "_%" PRIu64 ".meta", r->id, r->gs);
	fd_meta = openat(dir, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fd_meta < 0)
		return neg_errno();
	rc = meta_read_header(fd_meta, &type, &bpc);
	return rc ? rc : meta_cut_crc(fd, fd_meta, type, bpc, r->len, r->len, ret);
}

/* ---- one block ---- */

static bool is_better(const struct replica *a, const struct replica *b)
{
	if (a->gs != b->gs)
		return a->gs > b->gs;
	if (a->state != b->state)
		return a->state == REPLICA_FINALIZED;
	if (a->len != b->len)
		return a->len > b->len;
	/* Of a block that came by way of a RAM disk, the copy that lasts. */
	return a->slice->vol->type != STORAGE_RAM_DISK && b->slice->vol->type == STORAGE_RAM_DISK;
}

/* As its files say it now: a record of the index may be wrong about a file that was cut in its
 * place, or went with a repair of the file system. False: they are not both there. */
static bool look_at_files(struct replica *r)
{
	char name[STORE_NAME_MAX];
	struct stat st;

	if (r->state != REPLICA_FINALIZED)
		return true; /* never from the index */
	path_meta(name, r->place, r->id, r->gs);
	if (faccessat(r->slice->fd, name, F_OK, 0))
		return false;
	path_data(name, r->place, r->id);
	if (fstatat(r->slice->fd, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
		return false;
	r->len = (uint64_t)st.st_size;
	return true;
}

/* One file under two names. *@ret_links: how many names it has. */
static bool same_inode(const struct replica *a, const struct replica *b, uint64_t *ret_links)
{
	char x[STORE_NAME_MAX], y[STORE_NAME_MAX];
	struct stat sx, sy;

	path_data(x, a->place, a->id);
	path_data(y, b->place, b->id);
	if (fstatat(a->slice->fd, x, &sx, 0) || fstatat(b->slice->fd, y, &sy, 0))
		return false;
	*ret_links = sx.st_nlink;
	return sx.st_dev == sy.st_dev && sx.st_ino == sy.st_ino;
}

/* The files of the replica that lost go when they are no loss: a second name of the same file (a
 * move cut short), or no newer and no longer. A symbolic link between directories shows one name
 * twice: never that. */
static void drop_loser(struct scan *sc, const struct replica *win, const struct replica *lose,
		       bool same, uint64_t links)
{
	if (same) {
		if (win->slice == lose->slice && links > 1)
			(void)pair_unlink(lose->slice->fd, lose->id, lose->place, lose->gs);
		return;
	}
	if (!lose->slice->bp->store->keep_duplicates && win->state == REPLICA_FINALIZED &&
	    win->len >= lose->len)
		(void)pair_unlink(lose->slice->fd, lose->id, lose->place, lose->gs);
	note_block(sc, ODD_DUPLICATE, lose->slice->vol->path, lose->id);
}

static void add_locked(struct block_pool *bp, struct replica *r)
{
	replica_add_locked(bp, r);
	replica_count(r);
}

static void free_loser(struct replica *r)
{
	free(r->write_state);
	free(r);
}

/* In the map is another one of this block, as it was just now. While the node starts, the better
 * one of both stays; later, the one that is served. Nothing is removed for one whose files are not
 * there. The files are looked at without the lock; false: look again. */
static bool resolve(struct scan *sc, struct replica *r, const struct replica *was)
{
	struct block_pool *bp = sc->sl->bp;
	struct replica *old, there = *was, win, lose;
	uint64_t links = 0;
	const bool r_is_there = look_at_files(r), is_there = look_at_files(&there);
	const bool same = same_inode(was, r, &links);
	const bool better = same ? r->state == REPLICA_FINALIZED : is_better(r, &there);
	const bool wins = !sc->again && r_is_there && (!is_there || better);

	pthread_mutex_lock(&bp->lock);
	slice_note_stamp_locked(r->slice, r->gs); /* also of one that is not served */
	old = replica_find_locked(bp, r->id);
	if (!old || old->slice != was->slice || old->gs != was->gs || old->len != was->len ||
	    old->place != was->place) {
		pthread_mutex_unlock(&bp->lock);
		return false;
	}
	win = wins ? *r : there;
	lose = wins ? there : *r;
	if (wins) {
		replica_uncount(old);
		replica_remove_locked(bp, old);
		add_locked(bp, r);
	}
	pthread_mutex_unlock(&bp->lock);
	if (r_is_there && is_there)
		drop_loser(sc, &win, &lose, same, links);
	if (!wins)
		free_loser(r);
	return true;
}

/* Into the map, which takes @r. Of two replicas of one block the better one stays. */
static void add_or_resolve(struct scan *sc, struct replica *r)
{
	struct block_pool *bp = sc->sl->bp;

	for (;;) {
		const struct replica *old;
		struct replica was;

		pthread_mutex_lock(&bp->lock);
		old = replica_find_locked(bp, r->id);
		if (old)
			was = *old;
		else
			add_locked(bp, r);
		pthread_mutex_unlock(&bp->lock);
		if (!old)
			return;
		/* moved home, met again there */
		if (was.slice == r->slice && was.place == r->place) {
			free_loser(r);
			return;
		}
		if (resolve(sc, r, &was))
			return;
	}
}

/* A finalized pair in the wrong directory (an older layout, a hand): move it home. What stands
 * there already stays. */
static int bring_home(struct scan *sc, int dir, const char *dir_name, int64_t id, uint64_t gs)
{
	char data[STORE_NAME_MAX], meta[STORE_NAME_MAX], home[STORE_NAME_MAX];
	int fd = sc->sl->fd, rc = path_make_dir(sc->sl, IN_FINALIZED, id);

	(void)snprintf(data, sizeof(data), "blk_%" PRId64, id);
	(void)snprintf(meta, sizeof(meta), "blk_%" PRId64 "_%" PRIu64 ".meta", id, gs);
	path_data(home, IN_FINALIZED, id);
	if (!rc && !faccessat(fd, home, F_OK, AT_SYMLINK_NOFOLLOW))
		rc = -EEXIST;
	path_meta(home, IN_FINALIZED, id, gs);
	if (!rc)
		rc = ret_errno(renameat2(dir, meta, fd, home, RENAME_NOREPLACE));
	if (rc) {
		note_block(sc, ODD_BLOCKED, dir_name, id);
		return rc;
	}
	path_data(data, IN_FINALIZED, id);
	rc = ret_errno(renameat2(dir, strrchr(data, '/') + 1, fd, data, RENAME_NOREPLACE));
	if (rc) {
		(void)renameat2(fd, home, dir, meta, RENAME_NOREPLACE);
		note_block(sc, ODD_BLOCKED, dir_name, id);
		return rc;
	}
	note_block(sc, ODD_MISPLACED, dir_name, id);
	return 0;
}

static void drop_other_metas(int dir, const struct entry *meta, size_t n, uint64_t gs)
{
	char name[STORE_NAME_MAX];

	for (size_t i = 0; i < n; i++) {
		if (meta[i].gs == gs)
			continue;
		(void)snprintf(name, sizeof(name), "blk_%" PRId64 "_%" PRIu64 ".meta", meta[i].id,
			       meta[i].gs);
		(void)unlinkat(dir, name, 0);
	}
}

static void cut_file(int dir, const char *dir_name, const char *name, uint64_t len)
{
	_cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)len))
		log_warn("op=load file=%s/%s: cannot cut to %" PRIu64 " bytes: %s", dir_name, name,
			 len, err_name(neg_errno()));
}

static struct replica *new_replica(struct slice *sl, enum place p, int64_t id, uint64_t gs,
				   uint64_t len)
{
	struct replica *r = calloc(1, sizeof(*r));

	if (r)
		*r = (struct replica){.id = id,
				      .gs = gs,
				      .len = len,
				      .slice = sl,
				      .place = (uint8_t)p,
				      .state = p == IN_FINALIZED ? REPLICA_FINALIZED : REPLICA_RWR};
	return r;
}

static int load_block(struct scan *sc, int dir, const char *dir_name, enum place p, bool misplaced,
		      const struct entry *e, size_t metas)
{
	char name[STORE_NAME_MAX];
	struct replica *r;
	struct stat st;
	uint64_t len, good = 0, gs = e[1].gs;
	uint32_t crc = 0;
	int rc = 0;

	(void)snprintf(name, sizeof(name), "blk_%" PRId64, e->id);
	volume_progress(sc->sl->vol);
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
		return 0;
	/* Nobody writes below rbw/subdir<n>: what it is worth, and whether it is whole, is unknown.
	 */
	if (misplaced && p != IN_FINALIZED) {
		note_block(sc, ODD_BLOCKED, dir_name, e->id);
		return 0;
	}
	len = (uint64_t)st.st_size;
	if (metas > 1 || p == IN_RBW)
		rc = best_meta(dir, e + 1, metas, len, &gs, &good);
	if (rc) {
		(void)snprintf(name, sizeof(name), "blk_%" PRId64 " (%s)", e->id, err_name(rc));
		note(sc, ODD_UNREAD, dir_name, name);
		return 0;
	}
	if (p == IN_RBW)
		len = good;
	if (metas > 1)
		drop_other_metas(dir, e + 1, metas, gs);
	if (len < (uint64_t)st.st_size)
		cut_file(dir, dir_name, name, len);
	if (misplaced && bring_home(sc, dir, dir_name, e->id, gs))
		return 0;
	r = new_replica(sc->sl, p, e->id, gs, len);
	if (!r)
		return -ENOMEM;
	r->pinned = st.st_mode & S_ISVTX;
	if (p == IN_RBW && restart_marker(sc->sl, e->id) && !last_crc(dir, r, &crc) &&
	    !replica_need_write_state(r)) {
		r->state = REPLICA_RBW;
		replica_loaded_rbw(r, crc);
	}
	add_or_resolve(sc, r);
	return 0;
}

/* ---- what the index knows ---- */

/* Replicas of one directory at once, for one look at the map. False: no memory, and nothing was
 * done. */
static bool add_known(struct scan *sc, const struct index_entry *list, uint32_t count)
{
	struct block_pool *bp = sc->sl->bp;
	_cleanup_free_ struct replica **made = calloc(count ? count : 1, sizeof(struct replica *));
	uint32_t n = 0;

	for (; made && n < count; n++) {
		made[n] = new_replica(sc->sl, IN_FINALIZED, list[n].id, list[n].gs, list[n].len);
		if (!made[n])
			break;
		made[n]->pinned = list[n].pinned;
	}
	for (uint32_t i = 0; made && n < count && i < n; i++)
		free(made[i]);
	if (!made || n < count)
		return false;
	pthread_mutex_lock(&bp->lock);
	for (uint32_t i = 0; i < count; i++)
		if (!replica_find_locked(bp, made[i]->id)) {
			add_locked(bp, made[i]);
			made[i] = NULL;
		}
	pthread_mutex_unlock(&bp->lock);
	for (uint32_t i = 0; i < count; i++)
		if (made[i])
			add_or_resolve(sc, made[i]);
	volume_progress(sc->sl->vol);
	sc->indexed++;
	sc->sl->compare_ns = 1; /* at once */
	return true;
}

/* The stamp says that the directory is as it was when it was listed. Over a boot of the machine
 * that is only what it says of lengths: a repair of the file system takes names away and leaves the
 * stamp. */
static bool know_dir(struct scan *sc, int at, const char *name, const char *dir_name,
		     const struct names *names, bool same_boot)
{
	struct replica_index *x = sc->again ? NULL : sc->sl->index;
	const int n = x ? index_dir_number(dir_name) : -1;
	_cleanup_free_ struct index_entry *list = NULL;
	const struct index_record *rec;
	struct dir_stamp now;

	if (n < 0 || !x->dir[n].at || dir_stamp_read(at, name, &now))
		return false;
	rec = &x->dir[n];
	if (!dir_stamp_fits(&now, &rec->stamp) ||
	    (same_boot && !dir_stamp_same_boot(&now, &rec->stamp)))
		return false;
	if (names && (names->foreign || names->leftovers || names->sub_count ||
		      names->count != 2 * (size_t)rec->count))
		return false;
	if (replica_index_read(x, (uint32_t)n, &list))
		return false;
	for (size_t i = 0; names && i < names->count; i += 2) {
		const struct entry *e = &names->list[i];

		if (e[0].meta || e[0].id != list[i / 2].id || !e[1].meta || e[1].id != e[0].id ||
		    e[1].gs != list[i / 2].gs)
			return false;
	}
	return add_known(sc, list, rec->count);
}

static bool load_listed(struct scan *sc, int dir, const char *dir_name, const struct names *names)
{
	return know_dir(sc, dir, NULL, dir_name, names, false);
}

static bool load_known(void *arg, int slice_fd, const char *dir_name)
{
	return know_dir(arg, slice_fd, dir_name, dir_name, NULL, true);
}

/* ---- directories ---- */

/* What stands alone cannot be checked or reported: it is left for a person, and told; but in rbw/ a
 * meta file alone is what a move left over. */
static void load_alone(struct scan *sc, int dir, const char *dir_name, const struct entry *e,
		       size_t n)
{
	char name[STORE_NAME_MAX];

	for (size_t k = 0; k < n && e->meta && sc->place == IN_RBW; k++) {
		(void)snprintf(name, sizeof(name), "blk_%" PRId64 "_%" PRIu64 ".meta", e[k].id,
			       e[k].gs);
		(void)unlinkat(dir, name, 0);
	}
	note_block(sc, ODD_ORPHAN, dir_name, e->id);
}

/* Each data file with the meta files behind it. */
static int load_names(void *arg, int dir, const char *dir_name, const struct names *names)
{
	struct scan *sc = arg;
	char home[STORE_NAME_MAX];
	size_t n;
	int rc = 0;

	volume_progress(sc->sl->vol);
	if (sc->place == IN_FINALIZED && load_listed(sc, dir, dir_name, names))
		return 0;
	sc->listed += sc->place == IN_FINALIZED && names->count;
	for (size_t i = 0; !rc && i < names->count; i += n) {
		const struct entry *e = &names->list[i];

		for (n = 1; i + n < names->count && e[n].id == e->id; n++)
			;
		path_dir(home, sc->place, e->id);
		if (e->meta || n == 1)
			load_alone(sc, dir, dir_name, e, n);
		else
			rc = load_block(sc, dir, dir_name, sc->place, strcmp(home, dir_name) != 0,
					e, n - 1);
	}
	if (names->foreign) {
		note(sc, ODD_FOREIGN, dir_name, names->foreign_name);
		sc->odd[ODD_FOREIGN].n += names->foreign - 1;
	}
	return rc;
}

static int load_tree(struct scan *sc, const char *root, enum place p)
{
	const struct names_walk w = {
		.settle = true, .known = load_known, .see = load_names, .arg = sc};

	sc->place = p;
	return names_walk(sc->sl->fd, root, &w);
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
	while ((de = readdir(d))) {
		if (!strncmp(de->d_name, "blk_", 4))
			(void)unlinkat(fd, de->d_name, 0);
		volume_progress(sl->vol);
	}
	(void)closedir(d);
	return 0;
}

static void tell_odd(const struct scan *sc)
{
	static const char *const text[ODD_COUNT] = {
		[ODD_ORPHAN] =
			"block or meta files without their other half: left alone, not served",
		[ODD_MISPLACED] =
			"replicas in directories of an older layout: moved to where they belong",
		[ODD_BLOCKED] =
			"replicas in a wrong directory that could not be moved to theirs: left alone, not "
			"served; move or remove them by hand",
		[ODD_DUPLICATE] =
			"blocks with two replicas here: the newer or longer one is served",
		[ODD_UNREAD] =
			"replicas whose files could not be opened or read, to learn their lengths: left as they are, "
			"not served",
		[ODD_FOREIGN] = "names that are no replicas: left alone",
	};

	for (int i = 0; i < ODD_COUNT; i++)
		if (sc->odd[i].n)
			log_warn("op=load dir=%s pool=%s count=%" PRIu64 " example=%s: %s",
				 sc->sl->vol->path, sc->sl->bp->ns.pool_id, sc->odd[i].n,
				 sc->odd[i].example, text[i]);
}

int slice_load(struct slice *sl, bool again, struct err *err)
{
	struct scan sc = {.sl = sl, .again = again};
	uint64_t start = clock_mono_ns();
	int rc = wipe_tmp(sl);

	if (!again && !sl->index)
		sl->index = slice_index_open(sl);
	if (!rc)
		rc = load_tree(&sc, "finalized", IN_FINALIZED);
	/* Where a Java DataNode keeps the copies of blocks whose first place is a RAM disk. */
	if (!rc)
		rc = load_tree(&sc, "lazypersist", IN_FINALIZED);
	if (!rc)
		rc = load_tree(&sc, "rbw", IN_RBW);
	if (rc) {
		err_sys(err, rc, "reading the replicas of %s in %s", sl->bp->ns.pool_id,
			sl->vol->path);
		err_cure(
			err,
			"make every directory there readable for the user of this process, or repair the disk");
		return rc;
	}
	pthread_mutex_lock(&sl->bp->lock);
	sl->loaded = true;
	pthread_mutex_unlock(&sl->bp->lock);
	tell_odd(&sc);
	log_info("op=load dir=%s pool=%s replicas=%" PRIu64 " bytes=%" PRIu64
		 " indexed=%u listed=%u ms=%" PRIu64,
		 sl->vol->path, sl->bp->ns.pool_id, (uint64_t)sl->blocks, (uint64_t)sl->used,
		 sc.indexed, sc.listed, (uint64_t)((clock_mono_ns() - start) / NS_PER_MS));
	return 0;
}
