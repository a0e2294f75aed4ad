/* SPDX-License-Identifier: Apache-2.0 */
/* attr - requests begin and end here; what the kernel is told of a file */
#include <errno.h>
#include <string.h>

#include "common/base/clock.h"
#include "fuse/content/content.h"
#include "fuse/requests/ops.h"

#define NAME_ASK_MAX 100             /* times that a name is asked for which goes meanwhile */
#define BLOCK_SIZE_TOLD (128 * 1024) /* stdio and cp take buffers of this size */

int ask_begin(struct ask *a, fuse_req_t req, const char *op, fuse_ino_t ino)
{
	int rc;

	a->req = req;
	a->m = mount_of(req);
	a->op = op;
	a->looks = false;
	a->user = NULL;
	a->err.text[0] = '\0';
	a->in = inode_get(&a->m->inodes, ino);
	if (!a->in)
		return ESTALE;
	rc = users_get(&a->m->users, fuse_req_ctx(req)->uid, &a->user, &a->err);
	if (rc < 0) {
		inode_put(&a->m->inodes, a->in);
		return fail_errno(op, rc, &a->err);
	}
	id_path(a->path, inode_id(&a->m->inodes, a->in));
	return 0;
}

bool ask_again(struct ask *a, ssize_t rc)
{
	char was[ID_PATH_MAX];

	if (rc != -ENOENT)
		return false;
	memcpy(was, a->path, sizeof(was));
	id_path(a->path, inode_id(&a->m->inodes, a->in));
	return strcmp(was, a->path) != 0;
}

void ask_end(struct ask *a)
{
	if (!a->looks)
		(void)stale_retry_done(a->m, fuse_req_ctx(a->req)->pid);
	users_put(&a->m->users, a->user);
	inode_put(&a->m->inodes, a->in);
}

void ask_reply(struct ask *a, int rc)
{
	const pid_t tid = fuse_req_ctx(a->req)->pid;
	int no = fail_errno(a->op, rc, &a->err);

	if (no == ESTALE && !stale_retry_done(a->m, tid))
		stale_retry_told(a->m, tid);
	else if (no == ESTALE && a->in->is_dir) /* it cannot be held: each time there was none */
		no = ENOENT;
	a->looks = a->looks || no == ESTALE;
	ask_end(a);
	reply_err(a->req, no);
}

void ask_change_begin(struct ask *a)
{
	pthread_mutex_lock(&a->in->naming);
	id_path(a->path, a->in->id);
}

void ask_change_end(struct ask *a)
{
	pthread_mutex_unlock(&a->in->naming);
}

uint32_t mode_to_make(fuse_req_t req, mode_t mode)
{
	return (mode & 01777) | DFS_MODE_SET | DFS_UMASK(fuse_req_ctx(req)->umask);
}

uint32_t mode_told(const struct dfs_stat *st)
{
	return st->mode | (st->has_acl ? MODE_HAS_ACL : 0);
}

bool mode_passes_all(uint32_t mode)
{
	return (mode & (0111 | MODE_HAS_ACL)) == 0111;
}

static blkcnt_t blocks_of(off_t size)
{
	return size / 512 + (size % 512 > 0);
}

void attr_from_stat(struct mount *m, const struct dfs_stat *st, uint64_t ino, struct stat *ret)
{
	const mode_t kind = st->type == DFS_DIR       ? S_IFDIR
			    : st->type == DFS_SYMLINK ? S_IFLNK
						      : S_IFREG;

	*ret = (struct stat){
		.st_ino = ino,
		.st_mode = kind | (st->mode & (m->opt.umask >= 0 ? ~(uint32_t)m->opt.umask : ~0u)),
		.st_nlink = 1, /* of a directory too: nobody counts its subdirectories */
		.st_uid = users_uid(&m->users, st->owner),
		.st_gid = users_gid(&m->users, st->group),
		.st_size = st->type == DFS_DIR ? 0 : (off_t)st->length,
		.st_blksize = BLOCK_SIZE_TOLD,
		.st_mtim = {(time_t)(st->mtime_ms / 1000), (long)(st->mtime_ms % 1000 * NS_PER_MS)},
		.st_atim = {(time_t)(st->atime_ms / 1000), (long)(st->atime_ms % 1000 * NS_PER_MS)},
	};
	if (ret->st_atim.tv_sec == 0)
		ret->st_atim = ret->st_mtim; /* directories, and where access times are off */
	ret->st_blocks = blocks_of(ret->st_size);
}

static bool is_after(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

void attr_changed(struct mount *m, struct inode *in)
{
	pthread_mutex_lock(&m->inodes.lock);
	clock_gettime(CLOCK_REALTIME, &in->ctim);
	in->attr.st_ctim = in->ctim;
	pthread_mutex_unlock(&m->inodes.lock);
}

bool attr_tell(struct mount *m, struct inode *in, const struct stat *base, uint32_t mode,
	       uint64_t asked_ns, struct stat *ret)
{
	bool holds = true, late;

	pthread_mutex_lock(&m->inodes.lock);
	/* who has asked later was told first: it stays at that */
	late = asked_ns < in->attr_ns && in->attr_ns != UINT64_MAX;
	*ret = late ? in->attr : *base;
	ret->st_ino = in->ino;
	if (in->dirty) {
		ret->st_size = in->attr.st_size;
		ret->st_mtim = in->attr.st_mtim;
		ret->st_atim = in->atime_set ? in->attr.st_atim : ret->st_atim;
		ret->st_blocks = blocks_of(ret->st_size);
		in->mtime_told = true;
	} else if (in->change_ns >= asked_ns) {
		holds = false;
	}
	/* HDFS has none */
	ret->st_ctim = is_after(&in->ctim, &ret->st_mtim) ? in->ctim : ret->st_mtim;
	if (in->hidden || in->gone)
		ret->st_nlink = 0;
	if (holds && !late) {
		in->attr = *ret;
		in->attr_ns = asked_ns;
		in->mode = mode;
	}
	pthread_mutex_unlock(&m->inodes.lock);
	return holds;
}

/* HDFS file @id of @in was not there: because it has just been deleted through this mount, or is
 * another by now? */
static bool is_known_why(struct mount *m, struct inode *in, uint64_t id)
{
	bool known;

	pthread_mutex_lock(&m->inodes.lock);
	while (in->leaving > 0)
		pthread_cond_wait(&m->inodes.left, &m->inodes.lock);
	known = in->gone || in->id != id;
	pthread_mutex_unlock(&m->inodes.lock);
	return known;
}

/* fstat(2) does not tell by which descriptor. */
static bool has_open(struct ask *a, const struct inode *in)
{
	bool yes = false;

	pthread_mutex_lock(&a->m->inodes.lock);
	if (in->opens > 0)
		list_for_each (l, &a->m->handles) {
			const struct handle *h = container_of(l, struct handle, link);

			yes = yes || (h->in == in && h->user == a->user);
		}
	pthread_mutex_unlock(&a->m->inodes.lock);
	return yes;
}

static int stat_as_owner(struct mount *m, const char *path, struct dfs_stat *ret,
			 struct dfs_err *err)
{
	struct user *owner = users_owner(&m->users);
	const int rc = dfs_stat(owner->fs, path, ret, err);

	users_put(&m->users, owner);
	return rc;
}

int attr_ask(struct ask *a, struct inode *in, struct stat *ret)
{
	struct dfs_stat st;
	char path[ID_PATH_MAX];
	struct stat base;
	uint64_t id;
	bool gone;
	int rc;

	for (int i = 0; i < ASK_MAX; i++) {
		const uint64_t now = clock_mono_ns();

		pthread_mutex_lock(&a->m->inodes.lock);
		gone = in->gone;
		*ret = in->attr;
		id = in->id;
		pthread_mutex_unlock(&a->m->inodes.lock);
		if (gone) { /* still open, or somebody's current directory */
			ret->st_nlink = 0;
			return 0;
		}
		id_path(path, id);
		rc = dfs_stat(a->user->fs, path, &st, &a->err);
		if (rc == -EACCES && has_open(a, in)) /* a directory above was closed since */
			rc = stat_as_owner(a->m, path, &st, &a->err);
		if (rc == -ENOENT && is_known_why(a->m, in, id))
			continue;
		if (rc < 0)
			return stale_errno(rc);
		attr_from_stat(a->m, &st, in->ino, &base);
		if (attr_tell(a->m, in, &base, mode_told(&st), now, ret))
			return 0;
	}
	return 0; /* it changes all the time: this was true a moment ago */
}

void dir_changed(struct mount *m, struct inode *dir)
{
	pthread_mutex_lock(&m->inodes.lock);
	dir->change_ns = clock_mono_ns();
	pthread_mutex_unlock(&m->inodes.lock);
}

static void forget_child(struct inode *in, void *arg)
{
	struct mount *m = arg;

	kernel_inval_add(&m->names, in->parent, in->name);
}

bool mode_changing(struct ask *a, bool may_close)
{
	bool closes;

	pthread_mutex_lock(&a->m->inodes.lock);
	closes = a->in->is_dir && mode_passes_all(a->in->mode) && may_close;
	if (closes)
		a->in->mode = 0; /* from now on names in it are not kept */
	a->in->change_ns = clock_mono_ns();
	pthread_mutex_unlock(&a->m->inodes.lock);
	return closes;
}

void mode_changed(struct ask *a, bool closed)
{
	pthread_mutex_lock(&a->m->inodes.lock);
	/* an answer that came meanwhile may be that of before */
	a->in->change_ns = clock_mono_ns();
	pthread_mutex_unlock(&a->m->inodes.lock);
	if (closed && a->m->opt.allow_other)
		inode_each_child(&a->m->inodes, a->in->ino, forget_child, a->m);
}

double attr_ttl(const struct mount *m)
{
	return m->opt.allow_other ? 0 : m->opt.attr_timeout;
}

static bool is_fresh(const struct mount *m, uint64_t since_ns)
{
	return (double)(clock_mono_ns() - since_ns) <= m->opt.attr_timeout * (double)NS_PER_S;
}

bool attr_is_young_locked(const struct mount *m, const struct inode *in)
{
	if (in->attr_ns == UINT64_MAX)
		return in->dirty; /* it has just been created */
	return in->attr_ns && is_fresh(m, in->attr_ns);
}

bool attr_is_fresh_locked(const struct mount *m, const struct inode *in)
{
	return in->change_ns < in->attr_ns && is_fresh(m, in->attr_ns);
}

/* May everybody pass @in (a directory), as far as anybody has been told lately? */
static bool passes_all(struct ask *a, struct inode *in, uint64_t *ret_up)
{
	struct stat st;
	bool fresh, yes;

	for (int i = 0;; i++) {
		pthread_mutex_lock(&a->m->inodes.lock);
		fresh = is_fresh(a->m, in->attr_ns);
		yes = fresh && mode_passes_all(in->mode) && !in->gone;
		*ret_up = in->parent;
		pthread_mutex_unlock(&a->m->inodes.lock);
		if (fresh || i > 0 || attr_ask(a, in, &st) < 0)
			return yes;
	}
}

bool attr_known(struct ask *a, struct inode *in, struct stat *ret)
{
	uint64_t up;
	bool known;

	if (!a->m->opt.allow_other || !a->m->open_above)
		/* the kernel has kept what could be kept; or only the NameNode can tell */
		return false;
	pthread_mutex_lock(&a->m->inodes.lock);
	known = !in->dirty && !in->gone && !in->hidden && attr_is_fresh_locked(a->m, in);
	*ret = in->attr;
	up = in->parent;
	pthread_mutex_unlock(&a->m->inodes.lock);
	if (!up && in->ino != FUSE_ROOT_ID)
		return false; /* nobody knows where it is */
	while (known && up) {
		struct inode *dir = inode_get(&a->m->inodes, up);

		known = dir && passes_all(a, dir, &up);
		if (dir && dir->ino == FUSE_ROOT_ID)
			up = 0;
		else if (!up)
			known = false;
		inode_put(&a->m->inodes, dir);
	}
	return known;
}

double entry_ttl(struct ask *a, struct inode *dir)
{
	const double limit = a->m->opt.entry_timeout;
	uint64_t seen_ns;
	uint32_t mode;
	struct stat st;

	if (!a->m->opt.allow_other)
		return limit; /* there is one user only */
	if (!a->m->open_above)
		return 0;
	for (int i = 0; i < 2; i++) {
		pthread_mutex_lock(&a->m->inodes.lock);
		seen_ns = dir->attr_ns;
		mode = dir->mode;
		pthread_mutex_unlock(&a->m->inodes.lock);
		if ((double)(clock_mono_ns() - seen_ns) <= limit * (double)NS_PER_S || i > 0)
			break;
		if (attr_ask(a, dir, &st) < 0)
			return 0;
	}
	/* Only names that everybody may reach: the kernel does not ask for whom it keeps them. */
	return mode_passes_all(mode) ? limit : 0;
}

/* The inode that @name leads to. An answer that was on its way while the name changed may lead to a
 * file that has another one by now: it is asked for again, since by their names the mount knows
 * which files somebody has open. */
static int find_named(struct ask *a, const char *name, struct dfs_stat *st, uint64_t *ret_asked_ns,
		      struct inode **ret)
{
	char path[CHILD_PATH_MAX];
	bool stale = true;
	int rc;

	child_path(path, a->in->id, name);
	*ret = NULL;
	for (int i = 0; stale && i < NAME_ASK_MAX; i++) {
		*ret_asked_ns = clock_mono_ns();
		/* the kernel follows links itself */
		rc = dfs_lstat(a->user->fs, path, st, &a->err);
		if (rc < 0)
			return rc;
		*ret = inode_enter_asked(&a->m->inodes, st, a->in, name, *ret_asked_ns, &stale);
	}
	if (stale) /* it goes all the time: the file, without a name */
		*ret = inode_enter(&a->m->inodes, st, 0, 0, NULL, 1);
	return *ret ? 0 : -ENOMEM;
}

static int entry_ask_once(struct ask *a, const char *name, struct fuse_entry_param *ret)
{
	struct dfs_stat st;
	struct stat base;
	struct inode *in;
	uint64_t now;
	int rc = find_named(a, name, &st, &now, &in);

	if (rc < 0)
		return rc;
	if (!stale_retry_hold(a->m, fuse_req_ctx(a->req)->pid, in)) {
		inode_forget(&a->m->inodes, in->ino, 1);
		inode_put(&a->m->inodes, in);
		return -ESTALE;
	}
	pthread_mutex_lock(&a->m->inodes.lock);
	in->named_by = fuse_req_ctx(a->req)->pid;
	in->named_ns = now;
	pthread_mutex_unlock(&a->m->inodes.lock);
	attr_from_stat(a->m, &st, in->ino, &base);
	*ret = (struct fuse_entry_param){.ino = in->ino, .attr_timeout = attr_ttl(a->m)};
	if (!attr_tell(a->m, in, &base, mode_told(&st), now, &ret->attr))
		rc = attr_ask(a, in, &ret->attr);
	ret->entry_timeout = entry_ttl(a, a->in);
	if (rc < 0)
		inode_forget(&a->m->inodes, in->ino, 1);
	inode_put(&a->m->inodes, in);
	return rc;
}

int entry_ask(struct ask *a, const char *name, struct fuse_entry_param *ret)
{
	int rc = -ESTALE;

	/* it went between two questions: is there another? */
	for (int i = 0; rc == -ESTALE && i < ASK_MAX; i++)
		rc = entry_ask_once(a, name, ret);
	return rc == -ESTALE ? -ENOENT : rc;
}

void entry_reply(struct ask *a, const struct fuse_entry_param *e)
{
	struct inodes *t = &a->m->inodes;

	ask_end(a);
	if (fuse_reply_entry(a->req, e) == -ENOENT) /* the asker is gone: it does not count */
		inode_forget(t, e->ino, 1);
}
