/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/content/passthrough.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/log.h"
#include "fuse/content/content.h"

/* Of Linux 6.9, which the headers of older systems lack. */
#define INIT_PASSTHROUGH (1ull << 37)
struct backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
#define IOC_BACKING_OPEN _IOW(229, 1, struct backing_map)
#define IOC_BACKING_CLOSE _IOW(229, 2, uint32_t)

void passthrough_init(struct mount *m)
{
	const struct user *user = m->users.user[0];
	const char *local = dfs_conf(user->fs, "dfs.client.read.shortcircuit"),
		   *path = dfs_conf(user->fs, "dfs.domain.socket.path");

	pthread_mutex_init(&m->passthrough.lock, NULL);
	if (!m->opt.passthrough)
		return;
	if (!local || strcasecmp(local, "true") != 0 || !path || !*path)
		log_warn(
			"op=passthrough: off: it needs dfs.client.read.shortcircuit and dfs.domain.socket.path");
	else if (!dev_fuse_want(m, INIT_PASSTHROUGH))
		log_warn(
			"op=passthrough: off: this kernel has none (Linux 6.9 with CONFIG_FUSE_PASSTHROUGH does)");
	else
		m->passthrough.on = true;
}

/* ---- opening ---- */

static bool is_reader(const struct handle *h, const struct fuse_file_info *fi)
{
	return h->can_read && !h->can_write && !h->direct && !(fi->flags & (O_TRUNC | O_DIRECT));
}

static bool can_retire(struct mount *m, const struct inode *in)
{
	bool can;

	pthread_mutex_lock(&m->inodes.lock);
	can = !in->hidden && !in->dirty && !in->pending;
	pthread_mutex_unlock(&m->inodes.lock);
	return can;
}

/* Who has it open goes on with what he has; the file gets a new number. Nobody cuts or publishes it
 * meanwhile. 0: it is not passed through any more. */
static int retire(struct mount *m, struct inode *in)
{
	int rc = 0;

	pthread_mutex_lock(&in->content);
	pthread_mutex_lock(&m->passthrough.lock);
	if (in->retired)
		rc = -ESTALE;
	else if (in->backing_opens > 0)
		rc = can_retire(m, in) ? -ESTALE : -EBUSY;
	if (rc == -ESTALE)
		inode_retire(&m->inodes, in);
	pthread_mutex_unlock(&m->passthrough.lock);
	pthread_mutex_unlock(&in->content);
	return rc;
}

int passthrough_check(struct mount *m, struct handle *h, const struct fuse_file_info *fi)
{
	struct inode *in = h->in;
	bool retired, taken;

	if (!m->passthrough.on)
		return 0;
	/* who begins to pass it through looks after this whether somebody else has it open */
	pthread_mutex_lock(&m->passthrough.lock);
	retired = in->retired;
	taken = in->backing_opens > 0;
	pthread_mutex_unlock(&m->passthrough.lock);
	if (retired)
		return -ESTALE;
	return taken && !is_reader(h, fi) ? retire(m, in) : 0;
}

/* Nobody else has it open, and all that was written is in the cluster. inodes.lock is held. */
static bool is_free_locked(const struct inode *in)
{
	return in->opens == 1 && !in->alias && !in->retired && !in->dirty && !in->pending &&
	       !in->hidden && !in->gone;
}

static bool is_free(struct mount *m, const struct inode *in)
{
	bool yes;

	pthread_mutex_lock(&m->inodes.lock);
	yes = is_free_locked(in) && in->backing_opens == 0;
	pthread_mutex_unlock(&m->inodes.lock);
	return yes;
}

/* The kernel's name for the open file @fd; 0: it takes none. */
static int32_t backing_open(struct mount *m, int fd)
{
	struct backing_map map = {.fd = fd};
	const int id = ioctl(fuse_session_fd(m->se), IOC_BACKING_OPEN, &map);

	if (id > 0)
		return id;
	if (errno == EPERM || errno == ELOOP || errno == EOPNOTSUPP) {
		log_warn("op=passthrough: off: %s",
			 errno == EPERM
				 ? "it needs the rights of the superuser (CAP_SYS_ADMIN)"
				 : "replicas lie on a file system that cannot be passed through");
		m->passthrough.on = false;
	}
	return 0;
}

static void begin_locked(struct mount *m, struct handle *h, const struct dfs_content_id *v, int fd)
{
	struct inode *in = h->in;
	const int32_t id = is_free(m, in) ? backing_open(m, fd) : 0;

	if (id == 0)
		return;
	pthread_mutex_lock(&m->inodes.lock);
	in->backing = id;
	in->backing_opens = 1;
	in->backing_content = *v;
	pthread_mutex_unlock(&m->inodes.lock);
	h->passed = true;
	m->passthrough.files++;
}

/* It is passed through already. False: not what @h is to read. */
static bool join_locked(struct mount *m, struct handle *h, const struct dfs_content_id *v)
{
	struct inode *in = h->in;

	if (memcmp(v, &in->backing_content, sizeof(*v)) != 0)
		return false;
	pthread_mutex_lock(&m->inodes.lock);
	in->backing_opens++;
	pthread_mutex_unlock(&m->inodes.lock);
	h->passed = true;
	m->passthrough.files++;
	return true;
}

int passthrough_open(struct mount *m, struct handle *h, struct fuse_file_info *fi, bool may_begin)
{
	const bool reads = m->passthrough.on && is_reader(h, fi);
	struct inode *in = h->in;
	struct dfs_content_id v = {0};
	struct dfs_err err;
	bool conflict = false;
	int fd = -1;

	if (!m->passthrough.on)
		return 0;
	if (reads)
		file_reader_content(&h->reader, &v);
	if (may_begin && reads && is_free(m, in) && file_reader_local_fd(&h->reader, &fd, &err) < 0)
		fd = -1; /* no block here, or several: read through us */
	pthread_mutex_lock(&m->passthrough.lock);
	if (in->retired || in->backing_opens > 0)
		conflict = in->retired || !may_begin || !reads || !join_locked(m, h, &v);
	else if (fd >= 0)
		begin_locked(m, h, &v, fd);
	pthread_mutex_unlock(&m->passthrough.lock);
	if (fd >= 0)
		(void)close(fd); /* the kernel has its own */
	return conflict ? retire(m, in) : 0;
}

int passthrough_reply(struct handle *h, struct fuse_req *req, const struct fuse_file_info *fi)
{
	struct fuse_file_info plain = *fi;
	int rc;

	if (!h->passed)
		return fuse_reply_open(req, fi);
	plain.keep_cache = plain.direct_io = 0; /* the kernel takes these for a mistake */
	dev_fuse_pass_next(h->in->backing);
	rc = fuse_reply_open(req, &plain);
	dev_fuse_pass_next(0);
	return rc;
}

void passthrough_release(struct mount *m, struct handle *h)
{
	struct inode *in = h->in;
	uint32_t id = 0;

	if (!h->passed)
		return;
	m->passthrough.files--;
	pthread_mutex_lock(&m->passthrough.lock);
	pthread_mutex_lock(&m->inodes.lock);
	if (--in->backing_opens == 0) {
		id = (uint32_t)in->backing;
		in->backing = 0;
	}
	pthread_mutex_unlock(&m->inodes.lock);
	if (id != 0)
		(void)ioctl(fuse_session_fd(m->se), IOC_BACKING_CLOSE, &id);
	pthread_mutex_unlock(&m->passthrough.lock);
}
