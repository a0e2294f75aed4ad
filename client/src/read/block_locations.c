/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/read/block_locations.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "client/src/fs/path_call.h"
#include "client/src/read/block_length.h"
#include "client/src/striped/block_group.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/ec_msg.h"
#include "common/wire/pb.h"
#include "common/wire/rpc_frame.h"

#define STRETCH_BLOCKS 10 /* blocks per question, as the stock client */
#define RETRY_FIRST_NS                                                                             \
	(500 * NS_PER_MS) /* the first pause before fresh locations; then 4 times it */
#define STRETCHES_MAX 16  /* kept per file; the oldest goes first */

struct stretch {
	struct list link;
	struct reader *reader;                 /* borrowed: lock */
	uint32_t refs;                         /* under its lock: list and users */
	Hd__GetBlockLocationsResponseProto *m; /* owned */
};

/* ---- stretches ---- */

static void put_locked(struct stretch *s)
{
	if (--s->refs > 0)
		return;
	pb_free(s->m);
	free(s);
}

void stretch_put(struct stretch *s)
{
	struct reader *r;

	if (!s)
		return;
	r = s->reader;
	pthread_mutex_lock(&r->lock);
	put_locked(s);
	pthread_mutex_unlock(&r->lock);
}

static void unlist_locked(struct reader *r, struct stretch *s)
{
	if (!list_is_linked(&s->link))
		return;
	list_del(&s->link);
	r->stretch_count--;
	put_locked(s);
}

void reader_forget(struct reader *r, struct stretch *s)
{
	pthread_mutex_lock(&r->lock);
	unlist_locked(r, s);
	pthread_mutex_unlock(&r->lock);
}

static void forget_all_locked(struct reader *r)
{
	list_for_each (l, &r->stretches)
		unlist_locked(r, container_of(l, struct stretch, link));
}

void reader_forget_all(struct reader *r)
{
	pthread_mutex_lock(&r->lock);
	forget_all_locked(r);
	pthread_mutex_unlock(&r->lock);
}

bool reader_wait_for_others(struct reader *r, uint32_t *rounds)
{
	const uint64_t pause = *rounds ? 4 * RETRY_FIRST_NS : RETRY_FIRST_NS;

	if (++*rounds >= r->fs->set.acquire_failures)
		return false;
	sleep_ns(pause);
	return true;
}

static bool is_directory(struct dfs *fs, const char *path)
{
	struct dfs_stat st;

	return dfs_stat(fs, path, &st, NULL) == 0 && st.type == DFS_DIR;
}

void locate_request(const struct dfs *fs, const char *path, uint64_t pos,
		    Hd__GetBlockLocationsRequestProto *ret)
{
	hd__get_block_locations_request_proto__init(ret);
	ret->src = (char *)path;
	ret->offset = pos;
	ret->length = fs->defaults.block_size * STRETCH_BLOCKS;
}

/* -ENOENT without words when there is no such file. */
static int ask_locations(struct reader *r, const char *name, uint64_t pos, uint64_t len,
			 Hd__GetBlockLocationsResponseProto **ret, struct err *err)
{
	Hd__GetBlockLocationsRequestProto req;
	int rc;

	locate_request(r->fs, name, pos, &req);
	req.length = len ?: req.length * (r->striped ? r->policy.k : 1);
	rc = nn_call(r->fs, "getBlockLocations", &req.base,
		     &hd__get_block_locations_response_proto__descriptor, ret, err);
	if (rc == 0 && !(*ret)->locations) {
		pb_free(*ret);
		rc = -ENOENT;
	}
	return rc;
}

/* What a further answer must fit. */
struct expected {
	struct known_block known, given;
	uint64_t id; /* 0: not known */
	bool sure;   /* the file goes by it; else by its path */
};

static struct expected expected(struct reader *r)
{
	struct expected e;

	pthread_mutex_lock(&r->lock);
	e = (struct expected){r->known, r->given, r->file_id, r->id_sure};
	pthread_mutex_unlock(&r->lock);
	return e;
}

/* The first answer names the file. */
static int ask_first(struct reader *r, Hd__GetBlockLocationsResponseProto **ret, struct err *err)
{
	int rc = ask_locations(r, r->path, 0, 0, ret, err);

	if (rc == -ENOENT && is_directory(r->fs, r->path)) /* the NameNode says only "not a file" */
		return err_set(err, -EISDIR, "%.400s is a directory", r->path);
	return rc == -ENOENT ? err_set(err, rc, "%.400s: no such file or directory", r->path) : rc;
}

/* An inode that getFileInfo told is one of the name space that has the path, and a router asks
 * another one about it, where the number is another file's. So the file goes by it when the known
 * block is found there, and by its path until then. */
static void confirm_id(struct reader *r, struct expected *e)
{
	Hd__GetBlockLocationsResponseProto *m;
	struct err ignored = ERR_INIT;
	char by_id[PATH_BY_ID_MAX];

	if (!e->id || e->sure || !e->known.pool)
		return;
	if (ask_locations(r, path_by_id(by_id, e->id), e->known.offset, 1, &m, &ignored) == 0) {
		e->sure = same_file_shows(&e->known, m->locations);
		pb_free(m);
	}
	if (!e->sure)
		e->id = 0;
}

/* Where a file is not found by its inode any more its path must do, as long as it can be seen that
 * the file is the same. */
static int ask_same(struct reader *r, struct expected *e, uint64_t pos, uint64_t len,
		    Hd__GetBlockLocationsResponseProto **ret, struct err *err)
{
	char by_id[PATH_BY_ID_MAX];
	int rc;

	confirm_id(r, e);
	rc = ask_locations(r, e->sure ? path_by_id(by_id, e->id) : r->path, pos, len, ret, err);
	if (e->sure && e->known.pool && (rc == -ENOENT || rc == -EREMOTEIO || rc == -EINVAL)) {
		err_reset(err);
		e->id = 0;
		e->sure = false;
		rc = ask_locations(r, r->path, pos, len, ret, err);
	}
	return rc == -ENOENT ? same_file_gone(r->path, err) : rc;
}

/* The policy of a striped file; NULL for others. It never changes: learned from the first answer.
 */
static int learn_policy(struct reader *r, const Hd__LocatedBlocksProto *l, bool first,
			struct ec_policy *ret, struct err *err)
{
	int rc = l->ecpolicy ? ec_policy_from_msg(l->ecpolicy, ret) : 0;

	if (rc < 0)
		return err_set(err, -EPROTO,
			       "the NameNode names an impossible erasure-coding policy for %.200s",
			       r->path);
	if (!first && (r->striped != (l->ecpolicy != NULL) ||
		       (r->striped && !ec_policy_same(&r->policy, ret))))
		return same_file_differs(SAME_FILE_OTHER, r->path, 0, err);
	return 0;
}

static int check_locations(const struct reader *r, const Hd__LocatedBlocksProto *l,
			   const struct ec_policy *policy, struct err *err)
{
	struct group g;
	int rc = 0;

	if (l->fileencryptioninfo)
		return err_set(err, -ENOTSUP, "%.200s is encrypted, which this version cannot read",
			       r->path);
	for (size_t i = 0; policy && i < l->n_blocks && rc == 0; i++)
		rc = group_view(l->blocks[i], policy, &g, err);
	if (policy && rc == 0 && l->lastblock)
		rc = group_view(l->lastblock, policy, &g, err);
	return rc;
}

/* The length of the file of @l, with that of a last block that is being written. */
static int learn_length(struct reader *r, const Hd__LocatedBlocksProto *l,
			const struct ec_policy *policy, const struct known_block *known,
			uint64_t *ret, struct err *err)
{
	Hd__LocatedBlockProto *open = l->islastblockcomplete ? NULL : l->lastblock;
	int rc = 0;

	if (open)
		rc = policy ? block_length_ask_group(r->fs, open, policy, err)
			    : block_length_ask(r->fs, open, err);
	if (rc < 0)
		return rc;
	/* one that was complete before holds what it held then, whether its nodes tell of it or not
	 */
	if (open && open->b->numbytes == 0 && open->b->blockid == known->id &&
	    open->offset == known->offset)
		open->b->numbytes = known->end - known->offset;
	if (l->filelength > INT64_MAX || (open && open->b->numbytes > INT64_MAX - l->filelength))
		return err_set(err, -EPROTO,
			       "the NameNode says that %.200s is longer than 2^63 bytes", r->path);
	*ret = l->filelength + (open ? open->b->numbytes : 0);
	return 0;
}

/* The block that the file of @l must have. NULL: any file of the inode will do. */
static const struct known_block *must_have(const struct expected *e,
					   const Hd__LocatedBlocksProto *l)
{
	/* One that is not there at all may have been recovered to nothing, and the file ends before
	 * it. */
	if (e->given.pool && e->given.offset >= e->known.end && l->lastblock &&
	    l->lastblock->offset >= e->given.offset)
		return &e->given;
	/* its writer may have begun another block */
	return e->sure && !e->known.end ? NULL : &e->known;
}

/* Is the file of @l, of @length bytes, the one that is expected? -ESTALE. */
static int check_same(struct reader *r, struct expected *e, const Hd__LocatedBlocksProto *l,
		      uint64_t length, struct err *err)
{
	const struct known_block *k = must_have(e, l);
	Hd__GetBlockLocationsResponseProto *m;
	enum same_file how;
	int rc;

	if (!k)
		return 0;
	how = same_file_look(k, l, length);
	if (how == SAME_FILE_ASK) {
		rc = ask_same(r, e, k->offset, 1, &m, err);
		if (rc < 0)
			return rc;
		how = same_file_look(k, m->locations, length);
		pb_free(m);
	}
	return how == SAME_FILE ? 0 : same_file_differs(how, r->path, length, err);
}

/* An answer that was checked, and what it says. */
struct answer {
	Hd__GetBlockLocationsResponseProto *m;
	struct ec_policy policy;
	uint64_t length;
};

static int check_answer(struct reader *r, struct expected *e, struct answer *a, struct err *err)
{
	Hd__LocatedBlocksProto *l = a->m->locations;
	const struct ec_policy *policy = l->ecpolicy ? &a->policy : NULL;
	int rc = learn_policy(r, l, !r->located, &a->policy, err);

	rc = rc ?: check_locations(r, l, policy, err);
	rc = rc ?: learn_length(r, l, policy, &e->known, &a->length, err);
	return rc ?: check_same(r, e, l, a->length, err);
}

static uint64_t newest_from(const Hd__LocatedBlocksProto *l, uint64_t offset)
{
	uint64_t gs = l->lastblock ? l->lastblock->b->generationstamp : 0;

	for (size_t i = 0; i < l->n_blocks; i++)
		if (l->blocks[i]->offset >= offset && l->blocks[i]->b->generationstamp > gs)
			gs = l->blocks[i]->b->generationstamp;
	return gs;
}

/* The blocks before the known one are as they were as long as that one is there. From it on a block
 * may have been cut when its stamp is newer than all that were there at first: stamps are given in
 * ascending order to all blocks of a name space. */
static void learn_tail(struct reader *r, const Hd__LocatedBlocksProto *l)
{
	r->tail_at = r->known.pool ? r->known.offset : 0;
	r->tail_gs = newest_from(l, r->tail_at) ?: UINT64_MAX; /* none: it was empty */
}

uint64_t reader_stamp(const struct reader *r, const Hd__LocatedBlockProto *lb)
{
	const uint64_t gs = lb->b->generationstamp;

	return lb->offset >= r->tail_at && gs > r->tail_gs ? r->tail_gs : gs;
}

/* For in reader_new(): nobody else has the reader yet. */
static void take_first(struct reader *r, const struct answer *a)
{
	const Hd__LocatedBlocksProto *l = a->m->locations;

	r->striped = l->ecpolicy != NULL;
	if (r->striped)
		r->policy = a->policy;
	if (a->m->has_fileid && same_file_by_id(r->path)) {
		r->file_id = a->m->fileid;
		r->id_sure = true;
	}
	learn_tail(r, l);
	if (l->lastblock)
		r->content = (struct dfs_content_id){(int64_t)l->lastblock->b->blockid,
						     l->lastblock->b->generationstamp, a->length};
	r->located = true;
}

/* Take the answer @m, and learn the file's length from it. */
static int take_stretch(struct reader *r, struct expected *e, Hd__GetBlockLocationsResponseProto *m,
			struct stretch **ret, struct err *err)
{
	struct stretch *s = calloc(1, sizeof(*s));
	struct answer a = {.m = m};
	int rc = s ? check_answer(r, e, &a, err)
		   : err_set(err, -ENOMEM, "out of memory for block locations");

	if (rc < 0) {
		pb_free(m);
		free(s);
		return rc;
	}
	*s = (struct stretch){.reader = r, .refs = 1 /* the list's */, .m = m};
	pthread_mutex_lock(&r->lock);
	r->file_id = e->id;
	r->id_sure = e->sure;
	if (r->known.end == e->known.end) { /* no later answer has come meanwhile */
		same_file_learn(&r->known, m->locations);
		r->growing = m->locations->underconstruction;
		r->length = a.length;
	}
	if (!r->located)
		take_first(r, &a);
	if (r->stretch_count == STRETCHES_MAX)
		unlist_locked(r, container_of(r->stretches.prev, struct stretch, link));
	list_add(&r->stretches, &s->link);
	r->stretch_count++;
	if (ret) {
		s->refs++;
		*ret = s;
	}
	pthread_mutex_unlock(&r->lock);
	return 0;
}

/* Fetch a stretch at @pos. */
static int fetch_stretch(struct reader *r, uint64_t pos, struct stretch **ret, struct err *err)
{
	struct expected e = expected(r);
	Hd__GetBlockLocationsResponseProto *m;
	int rc = r->located ? ask_same(r, &e, pos, 0, &m, err) : ask_first(r, &m, err);

	return rc ?: take_stretch(r, &e, m, ret, err);
}

/* Will the NameNode be asked again, if nothing fails? */
static bool needs_more(const struct reader *r)
{
	const struct stretch *s = container_of(r->stretches.next, struct stretch, link);
	const Hd__LocatedBlocksProto *l = s->m->locations;
	const Hd__LocatedBlockProto *end = l->n_blocks ? l->blocks[l->n_blocks - 1] : NULL;

	return r->growing || (end && end->offset + end->b->numbytes < r->length);
}

/* A NameNode that does not say which inode it is: it is asked, where that will matter. The path may
 * have got another file between the two answers: confirm_id() sees it. */
static void learn_id(struct reader *r)
{
	struct err ignored = ERR_INIT;
	struct dfs_stat st;

	if (!r->file_id && same_file_by_id(r->path) && needs_more(r) &&
	    path_stat(r->fs, r->path, &st, &ignored) == 0)
		r->file_id = st.file_id;
}

int reader_take_locations(struct reader *r, Hd__GetBlockLocationsResponseProto *m, struct err *err)
{
	struct expected nothing = {.id = 0};
	int rc = take_stretch(r, &nothing, m, NULL, err);

	if (rc == 0)
		learn_id(r);
	return rc;
}

int reader_first_locations(struct reader *r, struct err *err)
{
	Hd__GetBlockLocationsResponseProto *m;
	int rc = ask_first(r, &m, err);

	return rc ?: reader_take_locations(r, m, err);
}

static bool covers(const Hd__LocatedBlockProto *lb, uint64_t pos)
{
	return pos >= lb->offset && pos - lb->offset < lb->b->numbytes;
}

static const Hd__LocatedBlockProto *find_block(const struct stretch *s, uint64_t pos)
{
	const Hd__LocatedBlocksProto *l = s->m->locations;
	size_t lo = 0, hi = l->n_blocks;

	/* the last block of a growing file is in the list too, with a length that lags behind */
	if (l->lastblock && !l->islastblockcomplete && covers(l->lastblock, pos))
		return l->lastblock;
	while (lo < hi) {
		const size_t mid = lo + (hi - lo) / 2;

		if (covers(l->blocks[mid], pos))
			return l->blocks[mid];
		if (pos < l->blocks[mid]->offset)
			hi = mid;
		else
			lo = mid + 1;
	}
	return NULL;
}

static bool find_locked(struct reader *r, uint64_t pos, struct stretch **ret,
			const Hd__LocatedBlockProto **ret_lb)
{
	list_for_each (l, &r->stretches) {
		struct stretch *s = container_of(l, struct stretch, link);
		const Hd__LocatedBlockProto *lb = find_block(s, pos);

		if (lb) {
			s->refs++;
			*ret = s;
			*ret_lb = lb;
			return true;
		}
	}
	return false;
}

static int no_block(struct reader *r, uint64_t pos, struct err *err)
{
	const uint64_t length = reader_length(r);

	if (pos < length)
		return err_set(err, -EIO, "%.200s: the NameNode knows no block at byte %llu",
			       r->path, (unsigned long long)pos);
	if (reader_grows(r))
		return err_set(
			err, -EIO,
			"%.200s is being written, and the data nodes that answer have not acknowledged byte %llu yet; "
			"read it again",
			r->path, (unsigned long long)pos);
	/* it was closed with less than its nodes had */
	return same_file_differs(SAME_FILE_CUT, r->path, length, err);
}

/* Of a file that is being written the node that told its length may be gone, and another one have
 * acknowledged less until now: that passes. */
static int fetch_block(struct reader *r, uint64_t pos, struct stretch **ret,
		       const Hd__LocatedBlockProto **ret_lb, struct err *err)
{
	for (int i = 0;; i++) {
		const Hd__LocatedBlockProto *lb;
		struct stretch *s;
		int rc = fetch_stretch(r, pos, &s, err);

		if (rc < 0)
			return rc;
		lb = find_block(s, pos);
		if (lb) {
			*ret = s;
			*ret_lb = lb;
			return 0;
		}
		reader_forget(r, s);
		stretch_put(s);
		if (i == BLOCK_LENGTH_TRIES || !reader_grows(r) || pos < reader_length(r))
			return no_block(r, pos, err);
		sleep_ns(BLOCK_LENGTH_PAUSE_NS);
	}
}

int reader_locate(struct reader *r, uint64_t pos, struct stretch **ret,
		  const Hd__LocatedBlockProto **ret_lb, struct err *err)
{
	bool found;

	pthread_mutex_lock(&r->lock);
	found = find_locked(r, pos, ret, ret_lb);
	pthread_mutex_unlock(&r->lock);
	return found ? 0 : fetch_block(r, pos, ret, ret_lb, err);
}

void reader_gave(struct reader *r, const struct stretch *s, const Hd__LocatedBlockProto *lb)
{
	const Hd__LocatedBlocksProto *l = s->m->locations;

	if (l->islastblockcomplete || !l->lastblock || lb->offset < l->lastblock->offset)
		return; /* all answers must fit it already */
	pthread_mutex_lock(&r->lock);
	if (lb->offset >= r->given.offset)
		same_file_begun(&r->given, lb);
	pthread_mutex_unlock(&r->lock);
}

int reader_refresh(struct reader *r, struct err *err)
{
	pthread_mutex_lock(&r->lock);
	forget_all_locked(r);
	pthread_mutex_unlock(&r->lock);
	return fetch_stretch(r, 0, NULL, err);
}

int reader_confirm(struct reader *r, uint64_t pos, struct err *err)
{
	struct err why = ERR_INIT;
	struct stretch *s;
	int rc = fetch_stretch(r, pos, &s, &why);

	if (rc == 0)
		stretch_put(s);
	if (rc == -ESTALE)
		*err = why;
	return rc == -ESTALE ? rc : 0;
}

bool reader_grows(struct reader *r)
{
	bool grows;

	pthread_mutex_lock(&r->lock);
	grows = r->growing;
	pthread_mutex_unlock(&r->lock);
	return grows;
}

void reader_content(struct reader *r, struct dfs_content_id *ret)
{
	*ret = r->content; /* constant */
}

uint64_t reader_length(struct reader *r)
{
	uint64_t n;

	pthread_mutex_lock(&r->lock);
	n = r->length;
	pthread_mutex_unlock(&r->lock);
	return n;
}

void locate_report_bad(struct dfs *fs, const Hd__LocatedBlockProto *lb, size_t node)
{
	Hd__ReportBadBlocksRequestProto req = HD__REPORT_BAD_BLOCKS_REQUEST_PROTO__INIT;
	Hd__LocatedBlockProto bad = *lb, *blocks = &bad;
	struct err ignored;

	bad.n_locs = 1;
	bad.locs = lb->locs + node;
	bad.n_storageids = lb->n_storageids == lb->n_locs;
	bad.storageids = lb->storageids + node;
	bad.n_storagetypes = lb->n_storagetypes == lb->n_locs;
	bad.storagetypes = lb->storagetypes + node;
	bad.n_iscached = 0;
	req.n_blocks = 1;
	req.blocks = &blocks;
	(void)nn_call(fs, "reportBadBlocks", &req.base,
		      &hd__report_bad_blocks_response_proto__descriptor, NULL, &ignored);
}
