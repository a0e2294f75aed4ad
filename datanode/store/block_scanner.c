/* SPDX-License-Identifier: Apache-2.0 */
/* Replicas against their CRCs: one that somebody doubts, and all of them in turn.
 * The block scanner has a thread per volume. It reads the finalized replicas in the order of their
 * names, at a bounded rate, notes in <pool>/scanner.cursor how far it is (a Java DataNode's file,
 * so that either goes on where the other stopped), and starts anew when the period is over. */
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
#include "common/base/metrics.h"

#define VERIFY_CHUNK (1u << 20)
#define CURSOR_FILE_MAX 4096
#define SCAN_IDLE_MS 60000 /* between looks for a pool that came, or is due */
#define SCAN_RETRY_MS 1000 /* no pool is attached yet, or the volume is out of service */

/* ---- one replica ---- */

struct pace { /* of the block scanner; NULL: as fast as it goes */
	struct store *store;
	uint64_t rate, next_ns;
};

/* Before each piece: -ECANCELED when the store closes. */
static int pace_wait(struct pace *p, size_t bytes)
{
	uint64_t now = clock_mono_ns();

	if (!p)
		return 0;
	if (p->next_ns > now && store_wait_closing(p->store, (p->next_ns - now) / NS_PER_MS + 1))
		return -ECANCELED;
	now = clock_mono_ns();
	if (p->next_ns < now)
		p->next_ns = now;
	p->next_ns += (uint64_t)((double)bytes * (double)NS_PER_S / (double)p->rate);
	return 0;
}

/* Every chunk against its CRC. -EBADMSG: corrupt. */
static int verify_reader(const struct replica_reader *rd, struct pace *pace)
{
	uint32_t bpc = rd->bytes_per_crc;
	size_t step = VERIFY_CHUNK / bpc ? VERIFY_CHUNK / bpc * bpc : bpc;
	_cleanup_free_ uint8_t *buf = malloc(step), *crcs = malloc(step / bpc * 4 + 4);
	uint64_t end = rd->block.len;
	struct stat st;
	int rc = 0;

	if (!buf || !crcs)
		return -ENOMEM;
	if (fstat(rd->fd, &st))
		return neg_errno();
	if ((uint64_t)st.st_size < end)
		return -EBADMSG;
	if (rd->fd_meta < 0)
		return 0;
	if (rd->partial)
		end = end / bpc * bpc; /* the last chunk may change under us */
	for (uint64_t off = 0; !rc && off < end; off += step) {
		size_t n = end - off < step ? (size_t)(end - off) : step;

		rc = pace_wait(pace, n);
		if (!rc)
			rc = file_read_full(rd->fd, buf, n, off);
		if (!rc)
			rc = file_read_full(rd->fd_meta, crcs, crc_bytes(rd->crc_type, n, bpc),
					    META_HEADER_LEN + off / bpc * 4);
		if (rc == -ENODATA || (!rc && crc_verify(rd->crc_type, buf, n, bpc, crcs) != -1))
			rc = -EBADMSG;
		/* What nobody else asked for shall not push others out of the cache. */
		if (pace)
			(void)posix_fadvise(rd->fd, (off_t)off, (off_t)n, POSIX_FADV_DONTNEED);
	}
	return rc;
}

void replica_report_bad(struct block_pool *bp, const struct replica_info *info, const char *why)
{
	struct store *s = bp->store;
	struct replica *r;

	log_error("op=verify block=%" PRId64 "_%" PRIu64
		  " storage=%s error=\"%s\": replica is corrupt, reporting",
		  info->block.id, info->block.gs, info->storage_uuid, why);
	metric_add(METRIC_DN_CORRUPT, 1);
	pthread_mutex_lock(&bp->lock);
	r = replica_find_locked(bp, info->block.id);
	if (r && r->gs == info->block.gs)
		r->corrupt = true;
	pthread_mutex_unlock(&bp->lock);
	pthread_rwlock_rdlock(&s->listener_lock);
	if (s->listener.on_bad)
		s->listener.on_bad(s->listener.arg, bp, info->storage_uuid, &info->block);
	pthread_rwlock_unlock(&s->listener_lock);
}

/* The files as the map says they are; without the retries of replica_read_open(). */
static int open_as_known(struct block_pool *bp, int64_t id, struct replica_info *info,
			 struct replica_reader *rd)
{
	char data[STORE_NAME_MAX], meta[STORE_NAME_MAX];
	struct replica *r;
	int fd = -1;

	if (replica_get(bp, id, info) || info->state == REPLICA_RWR ||
	    info->state == REPLICA_TEMPORARY)
		return -EAGAIN;
	pthread_mutex_lock(&bp->lock);
	r = replica_find_locked(bp, id);
	if (r && !r->busy) {
		path_data(data, r->place, id);
		path_meta(meta, r->place, id, r->gs);
		fd = r->slice->fd;
		/* under recovery, too: its last CRC may be of more bytes than are acknowledged */
		rd->partial = replica_visible_state(r) == REPLICA_RBW;
	}
	pthread_mutex_unlock(&bp->lock);
	if (fd < 0)
		return -EAGAIN;
	rd->block = (struct block){id, info->block.gs, info->visible};
	rd->fd = replica_file_open(fd, data);
	rd->fd_meta = replica_file_open(fd, meta);
	if (rd->fd < 0 || rd->fd_meta < 0)
		return rd->fd < 0 ? rd->fd : rd->fd_meta;
	return meta_read_header(rd->fd_meta, &rd->crc_type, &rd->bytes_per_crc);
}

/* Was it deleted, restamped, reopened, moved, or appended to? An append need not change the stamp,
 * and when it has ended the state is the same, too. It writes a new CRC over that of a last chunk
 * that was not whole. Of a replica that is being written the last chunk was left out: that one may
 * grow.
 */
static bool has_changed(struct block_pool *bp, const struct replica_info *was, bool partial)
{
	struct replica_info now;

	if (replica_get(bp, was->block.id, &now) || now.block.gs != was->block.gs ||
	    now.state != was->state || strcmp(now.storage_uuid, was->storage_uuid) != 0)
		return true;
	return partial ? now.visible < was->visible : now.visible != was->visible;
}

/* 0: sound, or nothing can be said now. What is wrong is reported, unless @lost_is_fine and a file
 * is not there. *ret_bytes: read. */
static int verify(struct block_pool *bp, int64_t id, bool lost_is_fine, struct pace *pace,
		  uint64_t *ret_bytes)
{
	struct replica_reader rd = {.bp = bp, .fd = -1, .fd_meta = -1, .fd_direct = -1};
	struct replica_info info;
	int rc = open_as_known(bp, id, &info, &rd);

	if (!rc)
		rc = verify_reader(&rd, pace);
	if (rd.fd >= 0)
		(void)close(rd.fd);
	if (rd.fd_meta >= 0)
		(void)close(rd.fd_meta);
	*ret_bytes = rc == -EAGAIN ? 0 : info.visible;
	if (store_is_disk_error(rc))
		store_volume_suspect(bp->store, info.storage_uuid);
	if (!rc || rc == -EAGAIN || rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE ||
	    rc == -ECANCELED || (lost_is_fine && rc == -ENOENT) ||
	    has_changed(bp, &info, rd.partial))
		return 0;
	replica_report_bad(bp, &info,
			   rc == -EBADMSG ? "data and checksums do not fit" : err_name(rc));
	return rc;
}

void replica_suspect(struct block_pool *bp, const struct block *b)
{
	uint64_t bytes;

	(void)verify(bp, b->id, false, NULL, &bytes);
}

/* ---- the cursor ---- */

struct scan_key { /* the place of a replica in the order of the scan */
	char dir[16], sub[16], entry[32];
};

struct scan_cursor {
	uint64_t saved_ms, start_ms; /* wall clock, as in the file */
	struct scan_key at;          /* the last one done; "": none */
	bool at_end;
};

static void key_of(int64_t id, struct scan_key *k)
{
	(void)snprintf(k->dir, sizeof(k->dir), "subdir%d", (int)((id >> 16) & 0x1f));
	(void)snprintf(k->sub, sizeof(k->sub), "subdir%d", (int)((id >> 8) & 0x1f));
	(void)snprintf(k->entry, sizeof(k->entry), "blk_%" PRId64, id);
}

static int key_cmp(const struct scan_key *a, const struct scan_key *b)
{
	int c = strcmp(a->dir, b->dir);

	if (!c)
		c = strcmp(a->sub, b->sub);
	return c ? c : strcmp(a->entry, b->entry);
}

/* subdir<n>, n < 32, in the order of the names: 0 1 10 11 ... 19 2 20 ... */
static int dir_rank(int64_t n)
{
	return (int)(n < 10 ? n * 100 : n / 10 * 100 + 1 + n % 10);
}

/* As key_cmp() of both, without making names of what differs in a directory. */
static int id_cmp(const void *x, const void *y)
{
	int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
	int c = dir_rank(a >> 16 & 0x1f) - dir_rank(b >> 16 & 0x1f);
	struct scan_key ka, kb;

	if (!c)
		c = dir_rank(a >> 8 & 0x1f) - dir_rank(b >> 8 & 0x1f);
	if (c)
		return c;
	key_of(a, &ka);
	key_of(b, &kb);
	return strcmp(ka.entry, kb.entry);
}

/* The text behind "name" : in the JSON of the cursor file. */
static const char *json_value(const char *text, const char *name)
{
	char quoted[40];
	const char *p;

	(void)snprintf(quoted, sizeof(quoted), "\"%s\"", name);
	p = strstr(text, quoted);
	if (!p)
		return NULL;
	p += strlen(quoted);
	p += strspn(p, " \t\r\n:");
	return p;
}

static uint64_t json_number(const char *text, const char *name)
{
	const char *p = json_value(text, name);

	return p ? strtoull(p, NULL, 10) : 0;
}

static void json_string(const char *text, const char *name, char *buf, size_t size)
{
	const char *p = json_value(text, name);
	size_t n;

	buf[0] = '\0';
	if (!p || *p != '"')
		return;
	n = strcspn(p + 1, "\"\\\n");
	if (n < size) {
		memcpy(buf, p + 1, n);
		buf[n] = '\0';
	}
}

/* A file that is absent or makes no sense is a scan that never was. */
static void cursor_load(const struct slice *sl, struct scan_cursor *c)
{
	_cleanup_close_ int fd = openat(sl->fd, "../scanner.cursor", O_RDONLY | O_CLOEXEC);
	char text[CURSOR_FILE_MAX];
	uint64_t now = clock_wall_ms();
	const char *end;
	ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

	*c = (struct scan_cursor){.start_ms = now};
	if (n <= 0)
		return;
	text[n] = '\0';
	c->saved_ms = json_number(text, "lastSavedMs");
	c->start_ms = json_number(text, "iterStartMs");
	json_string(text, "curFinalizedDir", c->at.dir, sizeof(c->at.dir));
	json_string(text, "curFinalizedSubDir", c->at.sub, sizeof(c->at.sub));
	json_string(text, "curEntry", c->at.entry, sizeof(c->at.entry));
	end = json_value(text, "atEnd");
	c->at_end = end && !strncmp(end, "true", 4);
}

static void put_string(FILE *f, const char *name, const char *value)
{
	if (value[0])
		fprintf(f, "  \"%s\" : \"%s\",\n", name, value);
	else
		fprintf(f, "  \"%s\" : null,\n", name);
}

static void cursor_save(const struct slice *sl, struct scan_cursor *c)
{
	int fd = openat(sl->fd, "../scanner.cursor.tmp", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
			0644);
	FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;

	if (!f) {
		if (fd >= 0)
			(void)close(fd);
		return; /* a lost cursor costs reading again */
	}
	c->saved_ms = clock_wall_ms();
	fprintf(f, "{\n  \"lastSavedMs\" : %" PRIu64 ",\n  \"iterStartMs\" : %" PRIu64 ",\n",
		c->saved_ms, c->start_ms);
	put_string(f, "curFinalizedDir", c->at.dir);
	put_string(f, "curFinalizedSubDir", c->at.sub);
	put_string(f, "curEntry", c->at.entry);
	fprintf(f, "  \"atEnd\" : %s\n}", c->at_end ? "true" : "false");
	if (fclose(f) || renameat(sl->fd, "../scanner.cursor.tmp", sl->fd, "../scanner.cursor"))
		(void)unlinkat(sl->fd, "../scanner.cursor.tmp", 0);
}

/* ---- the block scanner ---- */

struct ids {
	int64_t *list; /* owned */
	size_t count, room;
};

static int take_id(void *arg, struct replica *r)
{
	struct ids *ids = arg;

	if (r->state != REPLICA_FINALIZED || r->deleting)
		return 0;
	if (ids->count == ids->room) {
		const size_t room = ids->room ? ids->room * 2 : 1024;
		int64_t *list = reallocarray(ids->list, room, sizeof(*list));

		if (!list)
			return -ENOMEM;
		ids->list = list;
		ids->room = room;
	}
	ids->list[ids->count++] = r->id;
	return 0;
}

/* Ids of the finalized replicas of @sl, in the order of the scan; malloc'ed. NULL: none, or no
 * memory. */
static int64_t *list_ids(struct slice *sl, size_t *ret_n)
{
	struct ids ids = {0};

	if (slice_walk(sl, take_id, NULL, &ids)) {
		free(ids.list);
		return NULL;
	}
	if (ids.count)
		qsort(ids.list, ids.count, sizeof(*ids.list), id_cmp);
	*ret_n = ids.count;
	return ids.list;
}

static bool scan_is_over(const struct slice *sl)
{
	return sl->vol->failed || store_wait_closing(sl->bp->store, 0);
}

/* From the cursor to the end, or until the store closes or the volume is out of service. */
static void scan_pass(struct slice *sl, struct scan_cursor *c, struct pace *pace)
{
	struct store *s = sl->bp->store;
	size_t n = 0, i = 0, done = 0, bad = 0;
	_cleanup_free_ int64_t *ids = list_ids(sl, &n);
	uint64_t bytes, sum = 0, start = clock_mono_ns();
	struct scan_key k;

	if (!ids && sl->blocks)
		return; /* no memory now; tried again later */
	for (; i < n; i++) {
		key_of(ids[i], &k);
		if (key_cmp(&k, &c->at) <= 0)
			continue;
		if (scan_is_over(sl))
			break;
		bad += verify(sl->bp, ids[i], true, pace, &bytes) != 0;
		if (scan_is_over(sl))
			break; /* perhaps not read to its end */
		c->at = k;
		done++;
		sum += bytes;
		metric_add(METRIC_DN_SCANNED_BLOCKS, 1);
		metric_add(METRIC_DN_SCANNED_BYTES, bytes);
		if (clock_wall_ms() - c->saved_ms >= s->scan.cursor_save_ms)
			cursor_save(sl, c);
	}
	if (i == n && !scan_is_over(sl)) {
		c->at_end = true;
		c->at = (struct scan_key){0};
	}
	cursor_save(sl, c);
	log_info("op=block-scan dir=%s pool=%s replicas=%zu bytes=%" PRIu64
		 " corrupt=%zu ms=%" PRIu64 " end=%d",
		 sl->vol->path, sl->bp->ns.pool_id, done, sum, bad,
		 (uint64_t)((clock_mono_ns() - start) / NS_PER_MS), c->at_end);
}

/* Scan the pool if it is due; returns the time until it is, in ms. */
static uint64_t scan_if_due(struct slice *sl, struct pace *pace)
{
	const struct store_scan_opts *o = &sl->bp->store->scan;
	struct scan_cursor c;
	uint64_t now = clock_wall_ms();

	cursor_load(sl, &c);
	if (c.start_ms > now) { /* the clock was put back: do not wait for the old time to come */
		c.start_ms = now;
		cursor_save(sl, &c);
	}
	if (c.at_end && now < c.start_ms + o->block_ms)
		return c.start_ms + o->block_ms - now;
	if (c.at_end)
		c = (struct scan_cursor){.start_ms = now};
	c.saved_ms = now;
	scan_pass(sl, &c, pace);
	now = clock_wall_ms();
	return now < c.start_ms + o->block_ms ? c.start_ms + o->block_ms - now : 0;
}

void *volume_scanner(void *arg)
{
	struct volume *v = arg;
	struct store *s = v->store;
	struct pace pace = {.store = s, .rate = s->scan.block_rate};
	uint64_t wait = SCAN_RETRY_MS;

	while (!store_wait_closing(s, wait)) {
		uint32_t pools;

		pthread_mutex_lock(&s->lock);
		pools = v->failed ? 0 : s->pool_count; /* it may come back */
		pthread_mutex_unlock(&s->lock);
		wait = pools ? SCAN_IDLE_MS : SCAN_RETRY_MS;
		for (uint32_t p = 0; p < pools && !v->failed; p++) {
			struct slice *sl = &s->pools[p]->slices[v->idx];
			uint64_t due = sl->fd >= 0 ? scan_if_due(sl, &pace) : SCAN_IDLE_MS;

			if (due < wait)
				wait = due > 10 ? due : 10;
		}
	}
	return NULL;
}
