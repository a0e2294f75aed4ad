/* SPDX-License-Identifier: Apache-2.0 */
/* dfs-fuse - an HDFS-compatible file system as a directory */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/magic.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "fuse/content/content.h"
#include "fuse/requests/ops.h"
#include "fuse/session/metrics.h"

#define IO_BYTES (1u << 20) /* of one read or write request */
#define LOCK_WAIT_MS 5000   /* for another start on the same mount point */
/* of FUSE's version 7: with it a direct write drops the pages it goes past (Linux 6.9) */
#define DIRECT_MINOR 40

/* sd_notify(3): a datagram to $NOTIFY_SOCKET, a path or, with @, an abstract name. Nobody there is
 * no failure. */
static void notify(const char *text)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	const char *name = getenv("NOTIFY_SOCKET");
	int fd;

	if (!name || (*name != '/' && *name != '@') || strlen(name) >= sizeof(to.sun_path))
		return;
	memcpy(to.sun_path, name, strlen(name));
	if (*name == '@')
		to.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	(void)sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&to,
		     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name)));
	(void)close(fd);
}

/* Read-ahead and asynchronous requests at a time. Those of readers that wait for a data node are
 * among them, and others must not wait for these: neither their read-ahead in the kernel's queue,
 * nor their other requests for a thread. */
static uint32_t background_max(const struct mount *m)
{
	return m->opt.threads - m->opt.threads / 4 - 1; /* of at least two */
}

void op_init(void *arg, struct fuse_conn_info *conn)
{
	struct mount *m = arg;
	const uint32_t background = background_max(m);

	m->direct_writes = conn->proto_major == 7 && conn->proto_minor >= DIRECT_MINOR;
	conn->max_write = IO_BYTES;
	conn->max_readahead = IO_BYTES;
	conn->max_background = background;
	conn->congestion_threshold = background - background / 4;
	conn->want |= conn->capable &
		      (FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_READDIRPLUS | FUSE_CAP_ASYNC_DIO |
		       FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_ASYNC_READ | FUSE_CAP_CACHE_SYMLINKS |
		       FUSE_CAP_DONT_MASK);
	/* Programs of one machine lock each other in its kernel; caches are checked at open(2). */
	conn->want &= ~(unsigned int)(FUSE_CAP_POSIX_LOCKS | FUSE_CAP_FLOCK_LOCKS |
				      FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_WRITEBACK_CACHE |
				      FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_SPLICE_READ);
	/* A file has no set-user-id bit and no capabilities that a write would take away: the
	 * kernel need not ask before each one. */
	(void)dev_fuse_want(m, FUSE_HANDLE_KILLPRIV_V2);
	passthrough_init(m);
	if (m->opt.foreground)
		notify("READY=1\n");
	if (m->ready_fd >= 0) {
		/* who has started us may wait for the end of our standard error */
		(void)dup2(m->log_fd, STDERR_FILENO);
		metrics_tell(m->metrics);
		(void)!write(m->ready_fd, "", 1);
		(void)close(m->ready_fd);
		m->ready_fd = -1;
	}
}

/* ---- before the mount ---- */

static int is_empty(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int n = 0;

	if (!d)
		return -errno;
	while ((e = readdir(d)))
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	closedir(d);
	return n == 0;
}

/* The root of a mount of ours, empty or not. */
static bool is_our_mount(const char *dir, const struct stat *st)
{
	struct statfs fs;

	return st->st_ino == FUSE_ROOT_ID && statfs(dir, &fs) == 0 && fs.f_type == FUSE_SUPER_MAGIC;
}

/* A directory, and no mount of ours. */
static int check_unmounted(const struct options *o)
{
	struct stat st;

	if (stat(o->mountpoint, &st) < 0)
		return tell(
			"mount point %s: %s%s", o->mountpoint, strerror(errno),
			errno == ENOTCONN
				? "; a mount that died is there: `umount` (or `fusermount3 -u`) it first"
				: "");
	if (!S_ISDIR(st.st_mode))
		return tell("mount point %s is not a directory", o->mountpoint);
	if (is_our_mount(o->mountpoint, &st) && !o->nonempty)
		return tell("mount point %s is a mount already; -o nonempty mounts over it",
			    o->mountpoint);
	return 0;
}

/* What can be said before anybody is asked. */
static int check_mountpoint(const struct options *o)
{
	int rc = check_unmounted(o);

	if (rc != 0)
		return rc;
	rc = is_empty(o->mountpoint);
	if (rc < 0)
		return tell("mount point %s: %s", o->mountpoint, strerror(-rc));
	if (rc == 0 && !o->nonempty) {
		rc = check_unmounted(o); /* another mount may have come in between */
		if (rc != 0)
			return rc;
		return tell(
			"mount point %s is not empty (something is mounted there already, or these files would be "
			"hidden); -o nonempty mounts over it",
			o->mountpoint);
	}
	rc = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (rc < 0)
		return tell(
			"/dev/fuse: %s; is the fuse module loaded (modprobe fuse), and may this user or container "
			"use it?",
			strerror(errno));
	(void)close(rc);
	return 0;
}

/* May everybody reach the directory that is mounted? */
static bool is_open_above(struct mount *m)
{
	char *path = strdup(m->opt.dir), *slash;
	struct dfs_stat st;
	bool open = path != NULL;

	while (open && (slash = strrchr(path, '/')) && strcmp(path, "/") != 0) {
		*(slash == path ? slash + 1 : slash) = '\0';
		open = dfs_stat(m->users.user[0]->fs, path, &st, NULL) == 0 &&
		       mode_passes_all(mode_told(&st));
	}
	free(path);
	return open;
}

static int connect_cluster(struct mount *m)
{
	struct dfs_stat st;
	struct dfs_err err;
	struct inode *root;
	bool router = false;
	int rc;

	err.text[0] = '\0';
	rc = users_init(&m->users, &m->opt, &err);
	if (rc < 0)
		return tell("%s", err.text[0] ? err.text : strerror(-rc));
	if (dfs_is_router(m->users.user[0]->fs, &router, NULL) == 0 && router)
		return tell(
			"%s is a router (Router-based federation): a mount goes by inode numbers, and these are not unique behind it; mount the NameNode of a name space",
			dfs_uri(m->users.user[0]->fs));
	rc = dfs_stat(m->users.user[0]->fs, m->opt.dir, &st, &err);
	if (rc < 0)
		return tell("%s", err.text);
	if (st.type != DFS_DIR)
		return tell("%s is not a directory", m->opt.dir);
	dfs_get_defaults(m->users.user[0]->fs, &m->defaults);
	m->root_id = st.file_id;
	m->open_above = is_open_above(m);
	root = inode_enter(&m->inodes, &st, FUSE_ROOT_ID, 0, NULL, 1);
	if (!root)
		return tell("out of memory");
	root->mode = mode_told(&st);
	inode_put(&m->inodes, root);
	return 0;
}

/* "fsname=hdfs://host:port/dir,subtype=dfs-fuse", for mount(8) and df(1). */
static void name_source(struct mount *m, struct fuse_args *args)
{
	char text[1024];

	snprintf(text, sizeof(text), "-ofsname=%s%s,subtype=dfs-fuse",
		 dfs_uri(m->users.user[0]->fs), m->opt.dir);
	fuse_opt_add_arg(args, text);
}

/* A session of our own, then what others have left. */
static int open_state(struct mount *m)
{
	struct dfs_err err;
	int rc;

	err.text[0] = '\0';
	rc = state_open(&m->state, m->opt.state ? m->opt.state : "/var/tmp", m->token,
			dfs_uri(m->users.user[0]->fs), &err);
	if (rc == -ENOSPC) { /* what is to be recovered may be what fills the disk */
		recover_all(m);
		rc = state_begin(&m->state, m->token, dfs_uri(m->users.user[0]->fs), &err);
	}
	if (rc < 0)
		return tell("%s", err.text[0] ? err.text : strerror(-rc));
	recover_all(m);
	return 0;
}

static void raise_limits(void)
{
	/* a log rotation must not end a mount */
	static const int harmless[] = {SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM};
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
		r.rlim_cur = r.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &r);
	}
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		(void)signal(harmless[i], SIG_IGN);
}

/* ---- the session ---- */

static int run_session(struct mount *m)
{
	struct fuse_loop_config *cfg = fuse_loop_cfg_create();
	int rc;

	fuse_loop_cfg_set_clone_fd(cfg, 1);
	fuse_loop_cfg_set_max_threads(cfg, m->opt.threads);
	fuse_loop_cfg_set_idle_threads(cfg, m->opt.threads < 16 ? m->opt.threads : 16);
	rc = fuse_session_loop_mt(m->se, cfg);
	fuse_loop_cfg_destroy(cfg);
	return rc;
}

/* Nobody reads requests any more: those that wait for an answer end now, and give back the locks
 * that a kernel_inval may wait for.
 * Needs the superuser; for others fuse_session_unmount() is all that there is. */
static void let_go(const struct mount *m)
{
	(void)umount2(m->opt.mountpoint, MNT_FORCE | MNT_DETACH | UMOUNT_NOFOLLOW);
}

/* Not for ever: a script may hold the lock, and a file system may have none. */
static void lock_for_a_while(int dir)
{
	const struct timespec step = {.tv_nsec = 20 * (long)NS_PER_MS};

	for (int ms = 0;
	     flock(dir, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK && ms < LOCK_WAIT_MS;
	     ms += 20)
		nanosleep(&step, NULL);
}

/* Of two that are started at once one is first, and the other one finds its mount. What else was
 * found empty may have become the overlay directory of this very mount. */
static int mount_alone(struct mount *m)
{
	const int dir = open(m->opt.mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc;

	if (dir < 0)
		return tell("mount point %s: %s", m->opt.mountpoint, strerror(errno));
	lock_for_a_while(dir);
	rc = check_unmounted(&m->opt);
	if (rc == 0 && fuse_session_mount(m->se, m->opt.mountpoint) != 0)
		rc = 1; /* it has said why */
	(void)close(dir);
	return rc;
}

static int serve(struct mount *m, struct fuse_args *args)
{
	int rc;

	name_source(m, args);
	m->se = fuse_session_new(args, &MOUNT_OPS, sizeof(MOUNT_OPS), m);
	if (!m->se)
		return 2; /* it has said why: an unknown option */
	if (fuse_set_signal_handlers(m->se) != 0)
		return tell("signal handlers cannot be set");
	rc = mount_alone(m);
	if (rc != 0) {
		fuse_remove_signal_handlers(m->se);
		return rc;
	}
	rc = dev_fuse_start(m);
	rc = rc ?: kernel_inval_start(&m->names, m->se);
	rc = rc ?: kernel_inval_start(&m->pages, m->se);
	rc = rc ?: pending_start(&m->pending, m);
	rc = rc ?: watchdog_start(&m->watchdog, m);
	if (rc < 0)
		(void)tell("the session cannot be started: %s", strerror(-rc));
	else
		/* 0: umount; above: the signal that ended it, which is as good */
		rc = run_session(m);
	if (m->opt.foreground)
		notify("STOPPING=1\n");
	if (rc > 0)
		let_go(m);
	watchdog_stop(&m->watchdog);
	kernel_inval_stop(&m->pages);
	kernel_inval_stop(&m->names);
	fuse_session_unmount(m->se);
	fuse_remove_signal_handlers(m->se);
	pending_stop(&m->pending);
	pending_end(m);
	stale_retry_end(m);
	file_close_all(m);
	pending_leave(m);
	return rc < 0;
}

/* Before the mount is there: a port that is taken is told to who starts us. */
static int serve_with_metrics(struct mount *m, struct fuse_args *args)
{
	struct err err = ERR_INIT;
	struct metrics *s = NULL;
	int rc = metrics_start(m, &s, &err);

	if (rc < 0)
		return tell("metrics=%s: %s", m->opt.metrics, err.text);
	m->metrics = s;
	if (m->opt.foreground)
		metrics_tell(s);
	rc = serve(m, args);
	metrics_stop(s);
	return rc;
}

static int work(struct mount *m, struct fuse_args *args)
{
	int rc;

	raise_limits();
	request_table_init(&m->request_table);
	buffers_init(&m->buffers);
	(void)!getrandom(&m->token, sizeof(m->token), 0);
	list_init(&m->handles);
	list_init(&m->streams);
	stale_retry_init(&m->stale_retry);
	m->budget.limit = (uint64_t)m->opt.overlay_mib << 20;
	m->state.dir = m->state.top_fd = -1;
	pthread_mutex_init(&m->state.lock, NULL);
	rc = inodes_init(&m->inodes) < 0 ? tell("out of memory") : connect_cluster(m);
	if (rc == 0 && !m->opt.read_only)
		rc = open_state(m);
	rc = rc ?: serve_with_metrics(m, args);
	if (m->se)
		fuse_session_destroy(m->se);
	state_close(&m->state);
	inodes_fini(&m->inodes);
	users_fini(&m->users);
	buffers_fini(&m->buffers);
	request_table_fini(&m->request_table);
	return rc;
}

/* ---- going to the background ---- */

static int detach(struct mount *m)
{
	const int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	m->log_fd = m->opt.log ? open(m->opt.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640)
			       : null;
	if (m->log_fd < 0)
		return tell("%s: %s", m->opt.log ? m->opt.log : "/dev/null", strerror(errno));
	(void)setsid();
	(void)!chdir("/");
	(void)dup2(null, STDIN_FILENO);
	(void)dup2(null, STDOUT_FILENO);
	return 0;
}

/* Wait until the mount answers; its exit status when it never does. */
static int await(pid_t child, int fd, const char *mountpoint)
{
	struct stat st;
	int status;
	char c;

	if (read(fd, &c, 1) == 1) {
		if (stat(mountpoint, &st) == 0)
			return 0;
		tell("%s is mounted and does not answer: %s", mountpoint, strerror(errno));
	}
	if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) > 0)
		return WEXITSTATUS(status);
	return 1;
}

static int background(struct mount *m, struct fuse_args *args)
{
	int fds[2];
	pid_t child;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return tell("pipe: %s", strerror(errno));
	child = fork();
	if (child < 0)
		return tell("fork: %s", strerror(errno));
	if (child > 0) {
		(void)close(fds[1]);
		return await(child, fds[0], m->opt.mountpoint);
	}
	(void)close(fds[0]);
	m->ready_fd = fds[1];
	return detach(m) ?: work(m, args);
}

int main(int argc, char **argv)
{
	struct fuse_args args = FUSE_ARGS_INIT(argc, argv);
	struct mount m = {.ready_fd = -1, .reads_ahead = ATOMIC_FLAG_INIT};
	int rc = 0;

	/* libibverbs: what was made on a device that has gone is freed, though the driver says
	 * EIO */
	(void)setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1", 0);
	if (!options_parse(&m.opt, &args, &rc))
		goto out;
	log_init("dfs-fuse", m.opt.debug ? LOG_DEBUG : LOG_INFO);
	rc = check_mountpoint(&m.opt);
	if (rc == 0)
		rc = m.opt.foreground ? work(&m, &args) : background(&m, &args);
out:
	fuse_opt_free_args(&args);
	options_free(&m.opt);
	return rc;
}
