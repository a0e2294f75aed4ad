/* SPDX-License-Identifier: Apache-2.0 */
/* file - requests of open files */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "fuse/content/content.h"
#include "fuse/requests/ops.h"

#define READ_MAX (16u << 20)
#define NAME_FRESH_NS (20 * NS_PER_MS) /* between a look-up and the open that it is for */
#define CLOSERS_MAX 32                 /* threads that close files at the end */
#define LEND_MIN (128u << 10)          /* written bytes that are worth not being copied */

static struct handle *handle_of(const struct fuse_file_info *fi)
{
	return (struct handle *)(uintptr_t)fi->fh;
}

/* The process of a thread; 0: not known. */
static pid_t process_of(pid_t tid)
{
	char path[40], line[128];
	int pid = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Tgid: %d", &pid) == 1)
			break;
	if (f)
		fclose(f);
	return pid;
}

/* The thread that opened it may be gone, and its process go on or not: then it is the last
 * writer's, or anybody's. */
static enum closer closer_of(const struct handle *h, pid_t tid)
{
	const pid_t last = h->writer;
	pid_t pid, opener, writer;

	if (tid == 0 || tid == h->opener)
		return CLOSER_OPENER; /* 0: of another pid namespace */
	pid = process_of(tid);
	opener = process_of(h->opener);
	if (pid == 0 || pid == h->opener || pid == opener)
		return CLOSER_OPENER;
	writer = last ? process_of(last) : 0;
	if (writer == 0 && opener == 0)
		return CLOSER_OPENER;
	if (last && (writer == 0 || pid == last || pid == writer))
		return opener ? CLOSER_WRITER : CLOSER_OPENER;
	return CLOSER_OTHER;
}

static struct handle *new_handle(struct mount *m, struct inode *in, struct user *user,
				 struct fuse_file_info *fi, pid_t tid)
{
	struct handle *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	read_ahead_once(m);
	h->can_read = (fi->flags & O_ACCMODE) != O_WRONLY;
	h->can_write = (fi->flags & O_ACCMODE) != O_RDONLY;
	/* One that can only write cannot be mapped. */
	h->direct = (m->direct_writes && !h->can_read) || fi->flags & O_APPEND;
	h->sync = h->direct && (m->opt.sync || fi->flags & O_DSYNC); /* O_SYNC has both bits */
	h->user = users_ref(&m->users, user);
	h->in = in;
	pthread_mutex_lock(&m->inodes.lock);
	/* from now on it is open, and its name goes without it; or it is gone already */
	while (in->leaving > 0)
		pthread_cond_wait(&m->inodes.left, &m->inodes.lock);
	list_add_tail(&m->handles, &h->link);
	in->refs++;
	in->opens++;
	in->writers += h->can_write;
	in->directs += h->direct;
	pthread_mutex_unlock(&m->inodes.lock);
	h->opener = tid;
	h->errors = atomic_load(&in->errors);
	/* Who appends writes past the pages of the kernel, which takes the end from what it knows
	 * of the file: another client may have made it longer, and then the bytes land behind those
	 * (content_write()). */
	fi->direct_io = h->direct;
	file_reader_init(&h->reader, in, h->user);
	return h;
}

void file_unpin(struct mount *m, struct inode *in)
{
	struct dfs_err err;
	bool last, hidden;

	err.text[0] = '\0';
	pthread_mutex_lock(&m->inodes.lock);
	last = --in->opens == 0;
	hidden = in->hidden && !in->gone;
	in->leaving += last && hidden;
	pthread_mutex_unlock(&m->inodes.lock);
	if (last && hidden) {
		content_discard(m, in);
		if (fail_is_passing(hidden_delete(m, in)))
			pending_add(m, in);
		inode_left(&m->inodes, in);
	} else if (last) {
		/* it was hidden when its last descriptor went, and a rename over it has failed */
		(void)fail_errno("release", content_close(m, in, &err), &err);
	}
}

/* The last descriptor of an open(2) is gone, and no request works with it. */
static void free_handle(struct mount *m, struct orphan *o)
{
	struct handle *h = container_of(o, struct handle, orphan);
	struct inode *in = h->in;
	struct dfs_err err;
	bool last_writer;

	err.text[0] = '\0';
	pthread_mutex_lock(&m->inodes.lock);
	list_del(&h->link);
	last_writer = h->can_write && --in->writers == 0;
	pthread_mutex_unlock(&m->inodes.lock);
	if (last_writer) /* bytes of a mapping may have come after the last close(2) */
		(void)fail_errno("release", content_close(m, in, &err), &err);
	file_reader_fini(&h->reader);
	passthrough_release(m, h);
	pthread_mutex_lock(&m->inodes.lock);
	in->directs -= h->direct;
	pthread_mutex_unlock(&m->inodes.lock);
	file_unpin(m, in);
	users_put(&m->users, h->user);
	inode_put(&m->inodes, in);
	free(h);
}

/* ---- opening ---- */

/* May the kernel keep what it has of the file? Not, when it is another content than last time. Who
 * only writes does not use it: that is looked at when somebody reads. */
static void check_cache(struct mount *m, struct handle *h, struct fuse_file_info *fi)
{
	struct inode *in = h->in;
	struct dfs_content_id v;
	bool keep;

	fi->keep_cache = !h->can_read;
	if (!h->can_read)
		return;
	file_reader_content(&h->reader, &v);
	pthread_mutex_lock(&m->inodes.lock);
	keep = in->dirty || (in->seen && memcmp(&v, &in->seen_content, sizeof(v)) == 0);
	in->seen = !in->dirty && !(fi->flags & O_TRUNC);
	in->seen_content = v;
	if (!keep || (!in->dirty && (uint64_t)in->attr.st_size != v.length))
		in->attr_ns = 0; /* what was known of it does not hold any more */
	pthread_mutex_unlock(&m->inodes.lock);
	if (!keep) /* the length, too */
		(void)fuse_lowlevel_notify_inval_inode(m->se, in->ino, -1, 0);
	fi->keep_cache = keep;
}

static int open_checks(struct ask *a, struct handle *h, struct fuse_file_info *fi)
{
	int rc = 0;

	if (h->can_read)
		rc = file_reader_open(a->m, &h->reader, &a->err);
	if (rc == 0 && fi->flags & O_TRUNC) /* also of who only reads */
		rc = content_truncate(a->m, h->in, a->user, false, 0, &a->err);
	else if (rc == 0 && h->can_write)
		rc = dfs_access(a->user->fs, a->path, DFS_ACCESS_W, &a->err);
	if (rc == 0)
		check_cache(a->m, h, fi);
	return rc;
}

/* @may_pass: the answer is that of open(2). */
static int open_inode(struct ask *a, struct inode *in, bool may_pass, struct fuse_file_info *fi)
{
	struct handle *h = new_handle(a->m, in, a->user, fi, fuse_req_ctx(a->req)->pid);
	uint64_t id;
	int rc;

	if (!h)
		return -ENOMEM;
	rc = passthrough_check(a->m, h, fi);
	if (rc < 0) {
		free_handle(a->m, &h->orphan);
		return rc;
	}
	do { /* until no publication puts another file in its place meanwhile */
		id = inode_id(&a->m->inodes, in);
		id_path(a->path, id);
		rc = open_checks(a, h, fi);
	} while (rc == -ENOENT && inode_id(&a->m->inodes, in) != id);
	rc = rc ?: passthrough_open(a->m, h, fi, may_pass);
	if (rc < 0) {
		free_handle(a->m, &h->orphan);
		return stale_errno(rc);
	}
	fi->fh = (uintptr_t)h;
	return 0;
}

/* The kernel keeps names for a while, and a file is opened by its id: another mount may have given
 * the name to another file since, and hidden or moved this one. Not asked again by the thread that
 * has just looked it up. */
static int check_name(struct ask *a)
{
	const pid_t tid = fuse_req_ctx(a->req)->pid;
	struct inodes *t = &a->m->inodes;
	char name[DFS_NAME_MAX + 1] = "", path[CHILD_PATH_MAX];
	struct dfs_stat st;
	uint64_t parent;
	bool fresh, same;
	int rc;

	pthread_mutex_lock(&t->lock);
	fresh = tid && a->in->named_by == tid && clock_mono_ns() - a->in->named_ns < NAME_FRESH_NS;
	a->in->named_by = 0;
	parent = a->in->parent;
	if (a->in->name)
		snprintf(name, sizeof(name), "%s", a->in->name);
	pthread_mutex_unlock(&t->lock);
	if (fresh || !name[0])
		return 0;
	child_path(path, dir_id(a->m, parent), name);
	rc = dfs_lstat(a->user->fs, path, &st, &a->err);
	if (rc < 0)
		return rc == -ENOENT ? -ESTALE : 0; /* whatever else is found by the open itself */
	pthread_mutex_lock(&t->lock);
	same = st.file_id == a->in->id || st.file_id == a->in->former; /* a publication is at it */
	pthread_mutex_unlock(&t->lock);
	return same ? 0 : -ESTALE;
}

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct ask a;
	int rc = ask_begin(&a, req, "open", ino);

	if (rc) {
		reply_err(req, rc);
		return;
	}
	rc = check_name(&a);
	rc = rc ?: open_inode(&a, a.in, true, fi);
	if (rc < 0) {
		ask_reply(&a, rc);
		return;
	}
	ask_end(&a);
	if (passthrough_reply(handle_of(fi), req, fi) == -ENOENT)
		free_handle(a.m, &handle_of(fi)->orphan);
}

/* It is there already: as open(2) does. */
static int open_existing(struct ask *a, const char *name, struct fuse_file_info *fi,
			 struct fuse_entry_param *e)
{
	struct inode *in;
	int rc = entry_ask(a, name, e);

	if (rc < 0)
		return rc;
	in = inode_get(&a->m->inodes, e->ino);
	if (S_ISLNK(e->attr.st_mode))
		/* somebody else has just made it: the kernel looks again, and follows it */
		rc = -ESTALE;
	else
		rc = in->is_dir ? -EISDIR : open_inode(a, in, false, fi);
	inode_put(&a->m->inodes, in);
	if (rc < 0)
		inode_forget(&a->m->inodes, e->ino, 1);
	return rc;
}

static int create_new(struct ask *a, const char *name, mode_t mode, struct fuse_file_info *fi,
		      struct fuse_entry_param *e)
{
	const uint32_t early = a->m->opt.sync || fi->flags & O_DSYNC
				       ? 0
				       : DFS_CREATE_EARLY | DFS_CREATE_CLOSE_EARLY;
	struct dfs_stat st;
	struct dfs_create_opts o = {.size = sizeof(o),
				    .flags = DFS_CREATE_NO_PARENTS | DFS_CREATE_FIRST_BLOCK | early,
				    .mode = mode_to_make(a->req, mode),
				    .ret_stat = &st};
	char path[CHILD_PATH_MAX];
	struct dfs_file *w;
	struct handle *h;
	struct inode *in;
	struct stat base;
	int rc;

	child_path(path, a->in->id, name);
	rc = dfs_create(a->user->fs, path, &o, &w, &a->err);
	if (rc < 0)
		return rc == -EBUSY ? -EEXIST : rc; /* it is there, and being written */
	a->user->made += early != 0;
	dir_changed(a->m, a->in);
	in = inode_enter(&a->m->inodes, &st, 0, a->in->ino, name, 1);
	h = in ? new_handle(a->m, in, a->user, fi, fuse_req_ctx(a->req)->pid) : NULL;
	rc = h ? content_created(a->m, in, a->user, w, early) : -ENOMEM;
	if (rc < 0) {
		(void)dfs_close(w, NULL);
		if (h)
			free_handle(a->m, &h->orphan);
		if (in)
			inode_forget(&a->m->inodes, in->ino, 1);
		inode_put(&a->m->inodes, in);
		return rc;
	}
	h->reader.granted = true; /* whatever @mode says */
	attr_from_stat(a->m, &st, in->ino, &base);
	*e = (struct fuse_entry_param){.ino = in->ino, .attr_timeout = attr_ttl(a->m)};
	(void)attr_tell(a->m, in, &base, mode_told(&st), UINT64_MAX, &e->attr);
	e->entry_timeout = entry_ttl(a, a->in);
	fi->fh = (uintptr_t)h;
	inode_put(&a->m->inodes, in);
	return 0;
}

/* Whoever has the name meanwhile, and as often as it comes and goes. */
static int create_or_open(struct ask *a, const char *name, mode_t mode, struct fuse_file_info *fi,
			  struct fuse_entry_param *e)
{
	int rc = -ESTALE;

	for (int i = 0; (rc == -ESTALE || rc == -ENOENT) && i < ASK_MAX; i++) {
		rc = create_new(a, name, mode, fi, e);
		if (rc == -ENOENT) /* the directory */
			break;
		if ((rc == -EISDIR && fi->flags & O_EXCL) || rc == -ELOOP)
			rc = -EEXIST; /* a directory; a link */
		if (rc == -EEXIST && !(fi->flags & O_EXCL))
			rc = open_existing(a, name, fi, e);
	}
	return rc;
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi)
{
	struct fuse_entry_param e;
	struct ask a;
	int rc = name_check(name, true);

	rc = rc ?: ask_begin(&a, req, "create", parent);
	if (rc) {
		reply_err(req, rc);
		return;
	}
	rc = create_or_open(&a, name, mode, fi, &e);
	if (rc < 0) {
		ask_reply(&a, rc);
		return;
	}
	ask_end(&a);
	if (fuse_reply_create(req, &e, fi) == -ENOENT) {
		free_handle(a.m, &handle_of(fi)->orphan); /* @req is gone with the answer */
		inode_forget(&a.m->inodes, e.ino, 1);
	}
}

void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	handle_of(fi)->orphan = (struct orphan){.ino = ino, .free = free_handle};
	request_table_release(mount_of(req), &handle_of(fi)->orphan);
	reply_err(req, 0);
}

static void *close_some(void *arg)
{
	struct mount *m = arg;
	struct list *l;

	do {
		pthread_mutex_lock(&m->inodes.lock);
		l = list_pop(&m->handles);
		pthread_mutex_unlock(&m->inodes.lock);
		if (l)
			free_handle(m, &container_of(l, struct handle, link)->orphan);
	} while (l);
	return NULL;
}

/* Those whose data nodes answer need not wait for the others. */
void file_close_all(struct mount *m)
{
	const uint32_t handles = list_length(&m->handles); /* nobody else is left */
	pthread_t thread[CLOSERS_MAX];
	uint32_t n = 0;

	while (n + 1 < handles && n < CLOSERS_MAX &&
	       pthread_create(&thread[n], NULL, close_some, m) == 0)
		n++;
	(void)close_some(m);
	while (n > 0)
		(void)pthread_join(thread[--n], NULL);
}

/* ---- data ---- */

static void reply_result(fuse_req_t req, const char *op, int rc, const struct dfs_err *err)
{
	reply_err(req, fail_errno(op, rc, err));
}

void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	const size_t len = size < READ_MAX ? size : READ_MAX;
	struct mount *m = mount_of(req);
	struct dfs_err err;
	void *buf = NULL;
	ssize_t n;

	(void)ino;
	err.text[0] = '\0';
	n = content_read(m, handle_of(fi), &buf, len, (uint64_t)off, &err);
	request_table_bytes(n > 0 ? (uint64_t)n : 0);
	if (n < 0)
		reply_err(req, fail_errno_limited("read", stale_errno((int)n), &err,
						  &handle_of(fi)->in->read_line));
	else
		fuse_reply_buf(req, buf, (size_t)n);
	buffers_put(&m->buffers, buf);
}

struct written {
	fuse_req_t req;
	size_t size;
};

static void tell_written(void *arg)
{
	const struct written *w = arg;

	fuse_reply_write(w->req, w->size);
}

void op_write_buf(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *bufv, size_t size, off_t off,
		  struct fuse_file_info *fi)
{
	const bool append = fi->flags & O_APPEND && !fi->writepage;
	uint64_t at = append ? AT_END : (uint64_t)off;
	struct mount *m = mount_of(req);
	struct written w = {req, size};
	struct taken taken = {tell_written, &w, false};
	struct piece p = {.len = size};
	struct arrived a;
	struct dfs_err err;
	int rc;

	err.text[0] = '\0';
	if (fuse_req_ctx(req)->pid)
		handle_of(fi)->writer = fuse_req_ctx(req)->pid;
	memcpy(&a, bufv->buf[0].mem, sizeof(a));
	p.bytes = a.bytes;
	p.arg = a.buf && size >= LEND_MIN ? buffers_lend(&m->buffers, a.buf) : NULL;
	p.done = p.arg ? buffers_return : NULL;
	rc = content_write(m, handle_of(fi), &p, &at, &taken, &err);
	if (!p.lent)
		buffers_put(&m->buffers, a.buf);
	if (rc == 0 && !taken.told && handle_of(fi)->sync) /* told: the handle may be gone */
		rc = content_sync(m, handle_of(fi), &err);
	if (taken.told)
		(void)fail_errno("write", rc, &err);
	else if (rc < 0)
		reply_result(req, "write", stale_errno(rc), &err);
	else if (content_is_cached(m, handle_of(fi)))
		kernel_inval_written(&m->pages, req, ino, at, size);
	else
		fuse_reply_write(req, size);
	if (rc == 0 && at != (uint64_t)off) /* pages that others have cached, and the length */
		kernel_inval_file(&m->pages, ino);
}

void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);
	struct dfs_err err;
	int rc;

	(void)ino;
	err.text[0] = '\0';
	rc = h->can_write
		     ? content_flush(mount_of(req), h, closer_of(h, fuse_req_ctx(req)->pid), &err)
		     : 0;
	reply_result(req, "close", stale_errno(rc), &err);
}

void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct dfs_err err;
	int rc;

	(void)ino;
	(void)datasync; /* the length is data, and there is little else */
	err.text[0] = '\0';
	rc = content_sync(mount_of(req), handle_of(fi), &err);
	reply_result(req, "fsync", stale_errno(rc), &err);
}

/* Space is not reserved in HDFS: a file gets its length, as zeros. */
static int allocate(struct mount *m, struct handle *h, int mode, uint64_t offset, uint64_t len,
		    struct dfs_err *err)
{
	const bool keep = mode & FALLOC_FL_KEEP_SIZE;
	uint64_t now;
	int rc;

	if (offset + len > INT64_MAX)
		return -EFBIG;
	switch (mode & ~FALLOC_FL_KEEP_SIZE) {
	case 0:
		rc = keep ? 0 : content_length(m, h->in, h->user, &now, err);
		return rc == 0 && !keep && offset + len > now
			       ? content_truncate(m, h->in, h->user, true, offset + len, err)
			       : rc;
	case FALLOC_FL_PUNCH_HOLE:
		return keep ? content_zero(m, h, offset, len, true, err) : -EOPNOTSUPP;
	case FALLOC_FL_ZERO_RANGE:
		return content_zero(m, h, offset, len, keep, err);
	default:
		return -EOPNOTSUPP;
	}
}

void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		  struct fuse_file_info *fi)
{
	struct dfs_err err;

	(void)ino;
	err.text[0] = '\0';
	reply_result(req, "fallocate",
		     allocate(mount_of(req), handle_of(fi), mode, (uint64_t)offset,
			      (uint64_t)length, &err),
		     &err);
}

/* All of a file is data; the hole is behind its end. */
void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi)
{
	struct handle *h = handle_of(fi);
	struct dfs_err err;
	uint64_t length;
	int rc;

	(void)ino;
	err.text[0] = '\0';
	rc = content_length(mount_of(req), h->in, h->user, &length, &err);
	if (rc < 0)
		reply_result(req, "lseek", rc, &err);
	else if (whence != SEEK_DATA && whence != SEEK_HOLE)
		reply_err(req, EINVAL);
	else if (off < 0 || (uint64_t)off >= length)
		reply_err(req, ENXIO);
	else
		fuse_reply_lseek(req, whence == SEEK_DATA ? off : (off_t)length);
}
