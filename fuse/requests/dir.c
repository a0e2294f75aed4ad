/* SPDX-License-Identifier: Apache-2.0 */
/* dir - requests of open directories
 *
 * A listing comes page by page, with the attributes of all entries, and is kept until the directory
 * is closed or rewound: an offset is an index into it. So a listing with stat costs one round trip
 * for a page of names (1,000 by default) and no descriptor. */
#include <errno.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "fuse/requests/ops.h"

#define ENTRIES_MAX 10000000 /* of one directory that is listed */
#define ENTRIES_FIRST 64
#define DOTS 2 /* "." and ".." come first */

struct item {
	char *name; /* owned */
	uint64_t id;
	uint32_t mode;
	enum dfs_type type;
	struct stat attr;
};

struct dir {
	struct orphan orphan; /* once it is released */
	pthread_mutex_t lock;
	struct inode *in;      /* counted */
	struct user *user;     /* counted */
	struct dfs_list *list; /* owned; NULL: at its end */
	uint64_t asked_ns;     /* when the listing began */
	bool fresh;            /* nothing was read of it yet */
	struct item *item;     /* owned */
	size_t count, room;
};

static void drop_items(struct dir *d)
{
	for (size_t i = 0; i < d->count; i++)
		free(d->item[i].name);
	d->count = 0;
	dfs_list_close(d->list);
	d->list = NULL;
}

static void free_dir(struct mount *m, struct orphan *o)
{
	struct dir *d = container_of(o, struct dir, orphan);

	drop_items(d);
	free(d->item);
	users_put(&m->users, d->user);
	inode_put(&m->inodes, d->in);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

static int start_list(struct dir *d, const char *path, struct dfs_err *err)
{
	drop_items(d);
	d->fresh = true;
	d->asked_ns = clock_mono_ns();
	return dfs_list_open(d->user->fs, path, &d->list, err);
}

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct dir *d = calloc(1, sizeof(*d));
	struct ask a;
	int rc = d ? ask_begin(&a, req, "opendir", ino) : ENOMEM;

	if (rc) {
		free(d);
		reply_err(req, rc);
		return;
	}
	pthread_mutex_init(&d->lock, NULL);
	d->in = inode_get(&a.m->inodes, ino);
	d->user = users_ref(&a.m->users, a.user);
	rc = start_list(d, a.path, &a.err);
	if (rc < 0) {
		free_dir(a.m, &d->orphan);
		ask_reply(&a, stale_errno(rc));
		return;
	}
	ask_end(&a);
	fi->fh = (uintptr_t)d;
	if (fuse_reply_open(req, fi) == -ENOENT)
		free_dir(a.m, &d->orphan);
}

void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct dir *d = (struct dir *)(uintptr_t)fi->fh;

	d->orphan = (struct orphan){.ino = ino, .free = free_dir};
	request_table_release(mount_of(req), &d->orphan);
	reply_err(req, 0);
}

void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct ask a;
	int rc = ask_begin(&a, req, "fsyncdir", ino);

	(void)datasync;
	(void)fi;
	if (rc) {
		reply_err(req, rc);
		return;
	}
	/* all other changes of names are on the disk before they are answered */
	ask_reply(&a, users_sync(&a.m->users, BY_ANYBODY, a.user->uid, &a.err));
}

static int make_room(struct dir *d)
{
	const size_t room = d->room ? 2 * d->room : ENTRIES_FIRST;
	struct item *i;

	if (d->count < d->room)
		return 0;
	if (d->count >= ENTRIES_MAX)
		return -ENOMEM;
	i = realloc(d->item, room * sizeof(*i));
	if (!i)
		return -ENOMEM;
	d->item = i;
	d->room = room;
	return 0;
}

/* One more entry. 1, 0 at the end, -errno. */
static int fetch(struct mount *m, struct dir *d, struct dfs_err *err)
{
	const struct dfs_stat *st;
	struct item *i;
	int rc;

	while (d->list) {
		rc = make_room(d);
		rc = rc ?: dfs_list_next(d->list, &st, err);
		if (rc == 0 || rc == -ENOENT) { /* the end, or the directory is gone */
			dfs_list_close(d->list);
			d->list = NULL;
			return 0;
		}
		if (rc < 0)
			return rc;
		if (name_check(st->name, false) != 0 || !*st->name)
			continue; /* names that mounts made for themselves */
		i = &d->item[d->count];
		*i = (struct item){.name = strdup(st->name),
				   .id = st->file_id,
				   .mode = mode_told(st),
				   .type = st->type};
		if (!i->name)
			return -ENOMEM;
		attr_from_stat(m, st, st->file_id, &i->attr);
		d->count++;
		return 1;
	}
	return 0;
}

struct page {
	char *buf;
	size_t size, used;
	bool plus;
};

/* An entry that the kernel learns with its name alone. */
static size_t add_plain(fuse_req_t req, struct page *p, const char *name, const struct stat *attr,
			off_t next)
{
	struct fuse_entry_param e = {.attr = *attr}; /* number 0: not looked up */

	if (p->plus)
		return fuse_add_direntry_plus(req, p->buf + p->used, p->size - p->used, name, &e,
					      next);
	return fuse_add_direntry(req, p->buf + p->used, p->size - p->used, name, attr, next);
}

static size_t add_looked_up(struct ask *a, struct dir *d, struct page *p, const struct item *i,
			    double ttl, off_t next)
{
	const struct dfs_stat st = {.file_id = i->id, .type = i->type};
	struct fuse_entry_param e = {.attr_timeout = attr_ttl(a->m), .entry_timeout = ttl};
	struct inode *in;
	bool stale;
	size_t n;

	n = fuse_add_direntry_plus(a->req, NULL, 0, i->name, NULL, 0);
	if (n > p->size - p->used)
		return n; /* before it is counted as looked up */
	in = inode_enter_asked(&a->m->inodes, &st, d->in, i->name, d->asked_ns, &stale);
	if (!in)
		return add_plain(a->req, p, i->name, &i->attr, next);
	e.ino = in->ino;
	if (attr_tell(a->m, in, &i->attr, i->mode, d->asked_ns, &e.attr)) {
		n = fuse_add_direntry_plus(a->req, p->buf + p->used, p->size - p->used, i->name, &e,
					   next);
	} else { /* it changed since: the kernel shall ask */
		inode_forget(&a->m->inodes, in->ino, 1);
		n = add_plain(a->req, p, i->name, &i->attr, next);
	}
	inode_put(&a->m->inodes, in);
	return n;
}

static int fill(struct ask *a, struct dir *d, struct page *p, uint64_t off)
{
	const double ttl = p->plus ? entry_ttl(a, d->in) : 0;
	const struct stat self = {.st_ino = d->in->ino, .st_mode = S_IFDIR};
	int rc = 1;

	for (;; off++) {
		size_t n;

		if (off < DOTS) {
			n = add_plain(a->req, p, off ? ".." : ".", &self, (off_t)off + 1);
		} else {
			while (rc > 0 && off - DOTS >= d->count)
				rc = fetch(a->m, d, &a->err);
			if (rc <= 0)
				return p->used > 0 ? 0 : rc; /* a failure shows at the next read */
			if (p->plus)
				n = add_looked_up(a, d, p, &d->item[off - DOTS], ttl,
						  (off_t)off + 1);
			else
				n = add_plain(a->req, p, d->item[off - DOTS].name,
					      &d->item[off - DOTS].attr, (off_t)off + 1);
		}
		if (n > p->size - p->used)
			return 0;
		p->used += n;
	}
}

/* The asker is gone: what was looked up does not count. */
static void take_back(struct mount *m, const struct page *p)
{
	for (size_t at = 0; p->plus && at < p->used;) {
		const struct fuse_direntplus *e = (const void *)(p->buf + at);

		if (e->entry_out.nodeid)
			inode_forget(&m->inodes, e->entry_out.nodeid, 1);
		at += FUSE_DIRENTPLUS_SIZE(e);
	}
}

static void read_dir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		     struct fuse_file_info *fi, bool plus)
{
	struct dir *d = (struct dir *)(uintptr_t)fi->fh;
	struct page p = {.buf = malloc(size), .size = size, .plus = plus};
	struct ask a;
	int rc = p.buf ? ask_begin(&a, req, "readdir", ino) : ENOMEM;

	if (rc) {
		free(p.buf);
		reply_err(req, rc);
		return;
	}
	pthread_mutex_lock(&d->lock);
	if (off == 0 && !d->fresh) /* rewinddir(3) */
		rc = start_list(d, a.path, &a.err);
	d->fresh = false;
	if (rc == 0)
		rc = fill(&a, d, &p, (uint64_t)off);
	pthread_mutex_unlock(&d->lock);
	if (rc < 0 && rc != -ENOENT) {
		ask_reply(&a, rc);
	} else {
		ask_end(&a);
		if (fuse_reply_buf(req, p.buf, p.used) == -ENOENT)
			take_back(a.m, &p);
	}
	free(p.buf);
}

void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	read_dir(req, ino, size, off, fi, false);
}

void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	read_dir(req, ino, size, off, fi, true);
}
