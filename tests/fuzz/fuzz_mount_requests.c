/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the kernel to a mount, and what a NameNode answers to the calls that they lead to:
 * the mount's and libdfsclient's own code, without libfuse's reading of /dev/fuse and without a
 * connection. @data is a row of steps: which request; length (be16) of its arguments and of the
 * answers, both. Answers are exceptions, or messages made of the bytes (make_message.h). The inode
 * numbers and open files of a request are ones that the kernel was told of, as its are. No data
 * node listens. Each request is answered once, and nothing is left. */
#include <errno.h>
#include <stdio.h>
#include <sys/xattr.h>

#include "client/src/fs/fs.h"
#include "common/base/log.h"
#include "common/wire/pb.h"
#include "fuse/content/content.h"
#include "fuse/requests/ops.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/make_message.h"

#define STEPS_MAX 24
#define KNOWN_MAX 16
#define SIZE_MAX_ 70000
#define CALLS_MAX 400 /* of one input: then the cluster is away */

static struct mount m;
static struct rd in; /* arguments of the request that runs, and answers to its calls */
static uint32_t calls;

/* ---- time does not pass by waiting ---- */

static uint64_t skew_ns;

int __real_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	const int rc = __real_clock_gettime(id, ret);

	if (id == CLOCK_MONOTONIC) {
		const uint64_t ns = (uint64_t)ret->tv_nsec + skew_ns;

		ret->tv_sec += (time_t)(ns / NS_PER_S);
		ret->tv_nsec = (long)(ns % NS_PER_S);
	}
	return rc;
}

int __wrap_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
	(void)left;
	skew_ns += (uint64_t)t->tv_sec * NS_PER_S + (uint64_t)t->tv_nsec;
	return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *l, const struct timespec *t);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *l, const struct timespec *t)
{
	const uint64_t until = (uint64_t)t->tv_sec * NS_PER_S + (uint64_t)t->tv_nsec;
	const uint64_t now = clock_mono_ns();

	(void)c, (void)l;
	skew_ns += until > now ? until - now : 0;
	return ETIMEDOUT;
}

/* Without its threads; what it would do is done when the mount asks for it. */
void __real_housekeeper_init(struct housekeeper *k);
void __wrap_housekeeper_init(struct housekeeper *k);
void __wrap_housekeeper_init(struct housekeeper *k)
{
	__real_housekeeper_init(k);
	k->beat.running = k->ask.running = true;
}

void __real_housekeeper_fini(struct housekeeper *k);
void __wrap_housekeeper_fini(struct housekeeper *k);
void __wrap_housekeeper_fini(struct housekeeper *k)
{
	k->beat.running = k->ask.running = false;
	__real_housekeeper_fini(k);
}

int __wrap_net_connect(const struct net_addr *to, uint32_t timeout_ms, struct err *err);
int __wrap_net_connect(const struct net_addr *to, uint32_t timeout_ms, struct err *err)
{
	(void)to, (void)timeout_ms;
	return err_set(err, -ECONNREFUSED, "nobody listens");
}

/* ---- the NameNode ---- */

static const char *const texts[] = {
	"f",     "d",    "",           "root",   "alice", "supergroup", "127.0.0.1", "dn-0",
	"DS-0",  "BP-1", "a",          "user.a", ".",     "..",         "x/y",       "RS-3-2-1024k",
	"CID-1", "/d/f", ".dfs-fuse.1"};
static const uint64_t numbers[] = {
	0,     1,     2,    3,     0666,      0777,       01777,     16385,      16386,
	16387, 16388, 7,    4096,  65536,     1 << 20,    1u << 27,  1073741825, 1073741826,
	1001,  1002,  9866, -1ull, INT64_MAX, 1ull << 63, INT32_MAX, UINT32_MAX, 80000};
static const struct words words = {texts, numbers, sizeof(texts) / sizeof(*texts),
				   sizeof(numbers) / sizeof(*numbers)};

static int refuse(uint8_t which, struct err *err)
{
	static const int codes[] = {-ENOENT,       -EACCES,    -EEXIST, -ENOTDIR,
				    -ECONNREFUSED, -EAGAIN,    -EIO,    -EINVAL,
				    -ESTALE,       -ENOTEMPTY, -EDQUOT, -EOPNOTSUPP,
				    -EBUSY,        -EROFS,     -ELOOP,  -ENAMETOOLONG};

	return err_set(err, codes[which % (sizeof(codes) / sizeof(*codes))], "no: %u", which);
}

int __wrap_rpc_client_call(struct rpc_client *c, const char *method, const ProtobufCMessage *req,
			   const ProtobufCMessageDescriptor *desc, ProtobufCMessage **ret,
			   struct err *err);
int __wrap_rpc_client_call(struct rpc_client *c, const char *method, const ProtobufCMessage *req,
			   const ProtobufCMessageDescriptor *desc, ProtobufCMessage **ret,
			   struct err *err)
{
	static uint8_t room[60000];
	struct wr w = wr_init(room, sizeof(room));
	const uint8_t how = rd_u8(&in);

	(void)c, (void)method;
	MUST(protobuf_c_message_check(req));
	if (++calls > CALLS_MAX)
		return err_set(err, -ECONNREFUSED, "the NameNode is away");
	if (in.bad || how >= 0xe0)
		return refuse(how, err);
	message_make(&in, desc, &words, &w);
	if (w.bad || !ret)
		return w.bad ? -EPROTO : 0;
	return pb_unpack(desc, room, (size_t)(w.p - room), ret) ? -EPROTO : 0;
}

/* ---- what the kernel knows ---- */

static struct {
	uint64_t ino, lookups;
} known[KNOWN_MAX];
static uint32_t known_count;

struct open_file {
	uint64_t ino;
	struct fuse_file_info fi;
	bool is_dir;
};
static struct open_file files[KNOWN_MAX];
static uint32_t file_count;

struct fuse_req {
	struct fuse_ctx ctx;
	uint32_t answers;
	struct open_file *opens; /* where an open file goes */
	bool failed;
};

static void learn(uint64_t ino)
{
	uint32_t i = 0;

	if (!ino)
		return;
	while (i < known_count && known[i].ino != ino)
		i++;
	MUST(i < KNOWN_MAX);
	if (i == known_count)
		known[known_count++].ino = ino;
	known[i].lookups++;
}

static uint64_t choose_ino(void)
{
	return known[rd_u8(&in) % known_count].ino;
}

static const char *choose_name(void)
{
	static const char *const names[] = {"f", "d", "a", "new", ".dfs-fuse.1", "a b"};
	static char name[256];
	const uint8_t which = rd_u8(&in);
	size_t len;

	if (which < 0xd0)
		return names[which % (sizeof(names) / sizeof(*names))];
	len = rd_u8(&in) % sizeof(name);
	len = len < rd_left(&in) ? len : rd_left(&in);
	memcpy(name, len ? rd_bytes(&in, len) : (const uint8_t *)"", len);
	name[len] = '\0';
	for (char *p = name; *p; p++)
		*p = *p == '/' ? '_' : *p;
	return *name ? name : "n";
}

/* ---- libfuse, and main.c ---- */

void op_init(void *arg, struct fuse_conn_info *conn)
{
	(void)arg, (void)conn;
}

static int answered(fuse_req_t req, int rc)
{
	MUST(!req->answers++);
	req->failed = rc != 0;
	return 0;
}

void *fuse_req_userdata(fuse_req_t req)
{
	(void)req;
	return &m;
}

const struct fuse_ctx *fuse_req_ctx(fuse_req_t req)
{
	return &req->ctx;
}

int fuse_reply_err(fuse_req_t req, int err)
{
	MUST(err >= 0 && err < 4096);
	return answered(req, err);
}

void fuse_reply_none(fuse_req_t req)
{
	(void)answered(req, 0);
}

int fuse_reply_entry(fuse_req_t req, const struct fuse_entry_param *e)
{
	learn(e->ino);
	return answered(req, 0);
}

int fuse_reply_attr(fuse_req_t req, const struct stat *attr, double timeout)
{
	(void)attr;
	MUST(timeout >= 0);
	return answered(req, 0);
}

int fuse_reply_readlink(fuse_req_t req, const char *link)
{
	MUST(strlen(link) < 8192);
	return answered(req, 0);
}

int fuse_reply_open(fuse_req_t req, const struct fuse_file_info *fi)
{
	req->opens->fi = *fi;
	return answered(req, 0);
}

int fuse_reply_create(fuse_req_t req, const struct fuse_entry_param *e,
		      const struct fuse_file_info *fi)
{
	learn(e->ino);
	req->opens->ino = e->ino;
	return fuse_reply_open(req, fi);
}

int fuse_reply_write(fuse_req_t req, size_t count)
{
	MUST(count <= SIZE_MAX_);
	return answered(req, 0);
}

int fuse_reply_buf(fuse_req_t req, const char *buf, size_t size)
{
	volatile char sum = 0;

	for (size_t i = 0; i < size; i++)
		sum = (char)(sum + buf[i]);
	return answered(req, 0);
}

int fuse_reply_data(fuse_req_t req, struct fuse_bufvec *bufv, enum fuse_buf_copy_flags flags)
{
	(void)bufv, (void)flags;
	return answered(req, 0);
}

int fuse_reply_statfs(fuse_req_t req, const struct statvfs *st)
{
	(void)st;
	return answered(req, 0);
}

int fuse_reply_xattr(fuse_req_t req, size_t count)
{
	(void)count;
	return answered(req, 0);
}

int fuse_reply_lseek(fuse_req_t req, off_t off)
{
	MUST(off >= 0);
	return answered(req, 0);
}

/* There is no thread that tells a kernel: it is told at once. */
void __wrap_kernel_inval_add(struct kernel_inval *f, uint64_t parent, const char *name);
void __wrap_kernel_inval_add(struct kernel_inval *f, uint64_t parent, const char *name)
{
	(void)f, (void)parent, (void)name;
}

void __wrap_kernel_inval_file(struct kernel_inval *f, uint64_t ino);
void __wrap_kernel_inval_file(struct kernel_inval *f, uint64_t ino)
{
	(void)f, (void)ino;
}

void __wrap_kernel_inval_written(struct kernel_inval *f, fuse_req_t req, uint64_t ino,
				 uint64_t offset, size_t len);
void __wrap_kernel_inval_written(struct kernel_inval *f, fuse_req_t req, uint64_t ino,
				 uint64_t offset, size_t len)
{
	(void)f, (void)ino, (void)offset;
	fuse_reply_write(req, len);
}

int fuse_lowlevel_notify_inval_inode(struct fuse_session *se, fuse_ino_t ino, off_t off, off_t len)
{
	(void)se, (void)ino, (void)off, (void)len;
	return 0;
}

int fuse_lowlevel_notify_inval_entry(struct fuse_session *se, fuse_ino_t parent, const char *name,
				     size_t len)
{
	(void)se, (void)parent, (void)name, (void)len;
	return 0;
}

int fuse_session_fd(struct fuse_session *se)
{
	(void)se;
	return -1;
}

/* ---- requests ---- */

static struct fuse_req request(void)
{
	static const uid_t uids[] = {0, 0, 0, 1};
	const uint8_t how = rd_u8(&in);

	return (struct fuse_req){
		.ctx = {.uid = uids[how & 3], .gid = 0, .pid = 1, .umask = how & 4 ? 022 : 0}};
}

static void about_names(uint8_t which)
{
	struct fuse_req r = request();
	const uint64_t parent = choose_ino(), other = choose_ino();
	char name[256];
	const uint32_t flags = rd_u8(&in) & 7, mode = rd_be16(&in);

	snprintf(name, sizeof(name), "%s", choose_name());
	if (which == 0)
		MOUNT_OPS.lookup(&r, parent, name);
	else if (which == 1)
		MOUNT_OPS.mkdir(&r, parent, name, mode);
	else if (which == 2)
		MOUNT_OPS.mknod(&r, parent, name, mode, 0);
	else if (which == 3)
		MOUNT_OPS.symlink(&r, choose_name(), parent, name);
	else if (which == 4)
		MOUNT_OPS.link(&r, other, parent, name);
	else if (which == 5)
		MOUNT_OPS.unlink(&r, parent, name);
	else if (which == 6)
		MOUNT_OPS.rmdir(&r, parent, name);
	else
		MOUNT_OPS.rename(&r, parent, name, other, choose_name(), flags);
	MUST(r.answers == 1);
}

static const char *choose_xattr(void)
{
	static const char *const names[] = {"user.a",
					    "trusted.a",
					    "security.capability",
					    "user.",
					    "system.posix_acl_access",
					    "system.posix_acl_default",
					    "x"};
	static char name[260];
	const uint8_t which = rd_u8(&in);

	if (which < 0xd0)
		return names[which % (sizeof(names) / sizeof(*names))];
	snprintf(name, sizeof(name), "user.%.250s", choose_name());
	return name;
}

static void about_xattrs(uint8_t which)
{
	static const size_t sizes[] = {0, 1, 4, 28, 100, 1024, 65536, SIZE_MAX_};
	struct fuse_req r = request();
	const uint64_t ino = choose_ino();
	const size_t size = sizes[rd_u8(&in) % 8];
	struct rd value;

	if (which == 0) {
		const char *name = choose_xattr();
		const int flags = rd_u8(&in) & 3;

		value = input_part(&in);
		MOUNT_OPS.setxattr(&r, ino, name, (const char *)value.p, rd_left(&value), flags);
	} else if (which == 1) {
		MOUNT_OPS.getxattr(&r, ino, choose_xattr(), size);
	} else if (which == 2) {
		MOUNT_OPS.listxattr(&r, ino, size);
	} else {
		MOUNT_OPS.removexattr(&r, ino, choose_xattr());
	}
	MUST(r.answers == 1);
}

static struct open_file *choose_file(bool is_dir)
{
	const uint8_t which = rd_u8(&in);

	for (uint32_t i = 0; i < file_count; i++)
		if (files[(which + i) % file_count].is_dir == is_dir)
			return &files[(which + i) % file_count];
	return NULL;
}

static void about_attrs(uint8_t which)
{
	struct fuse_req r = request();
	struct open_file *f = rd_u8(&in) & 1 ? choose_file(false) : NULL;
	const uint64_t ino = f ? f->ino : choose_ino();
	struct stat st = {.st_mode = rd_be16(&in),
			  .st_uid = rd_u8(&in),
			  .st_gid = rd_u8(&in),
			  .st_size = (off_t)(rd_be32(&in) >> (which & 16 ? 0 : 12))};

	if (which == 0) {
		st.st_mtim.tv_sec = (time_t)rd_be32(&in);
		MOUNT_OPS.setattr(&r, ino, &st, rd_be16(&in), f ? &f->fi : NULL);
	} else if (which == 1) {
		MOUNT_OPS.getattr(&r, ino, f ? &f->fi : NULL);
	} else if (which == 2) {
		MOUNT_OPS.access(&r, ino, st.st_mode & 7);
	} else if (which == 3) {
		MOUNT_OPS.statfs(&r, ino);
	} else {
		MOUNT_OPS.readlink(&r, ino);
	}
	MUST(r.answers == 1);
}

static void opens(uint8_t which)
{
	struct fuse_req r = request();
	struct open_file *f = &files[file_count];
	const uint64_t ino = choose_ino();

	if (file_count == KNOWN_MAX)
		return;
	*f = (struct open_file){.ino = ino, .is_dir = which == 0};
	f->fi.flags = rd_be16(&in) & (O_ACCMODE | O_APPEND | O_TRUNC | O_SYNC | O_EXCL);
	r.opens = f;
	if (which == 0)
		MOUNT_OPS.opendir(&r, ino, &f->fi);
	else if (which == 1)
		MOUNT_OPS.open(&r, ino, &f->fi);
	else
		MOUNT_OPS.create(&r, ino, choose_name(), rd_be16(&in), &f->fi);
	MUST(r.answers == 1);
	file_count += !r.failed;
}

static void release(struct open_file *f)
{
	struct fuse_req r = {.ctx = {.pid = 1}};

	if (f->is_dir)
		MOUNT_OPS.releasedir(&r, f->ino, &f->fi);
	else
		MOUNT_OPS.release(&r, f->ino, &f->fi);
	MUST(r.answers == 1);
	*f = files[--file_count];
}

static void about_directory(uint8_t which)
{
	static const size_t sizes[] = {0, 100, 4096, SIZE_MAX_};
	struct fuse_req r = request();
	struct open_file *f = choose_file(true);
	const off_t off = (off_t)rd_be16(&in);
	const size_t size = sizes[rd_u8(&in) % 4];

	if (!f)
		return;
	if (which == 0)
		MOUNT_OPS.readdir(&r, f->ino, size, off, &f->fi);
	else
		MOUNT_OPS.fsyncdir(&r, f->ino, 0, &f->fi);
	MUST(r.answers == 1);
}

static void write_to(struct fuse_req *r, struct open_file *f, size_t size, off_t off)
{
	static uint8_t bytes[SIZE_MAX_];
	struct arrived a = {.bytes = bytes};
	struct fuse_bufvec v = FUSE_BUFVEC_INIT(size);

	v.buf[0].mem = &a;
	MOUNT_OPS.write_buf(r, f->ino, &v, off, &f->fi);
}

static void about_file(uint8_t which)
{
	struct fuse_req r = request();
	struct open_file *f = choose_file(false);
	const size_t size = rd_be16(&in);
	const off_t off = (off_t)(rd_be32(&in) >> (which & 1 ? 0 : 14));
	const int how = rd_u8(&in);

	if (!f)
		return;
	if (which == 0)
		MOUNT_OPS.read(&r, f->ino, size, off, &f->fi);
	else if (which == 1 || which == 2)
		write_to(&r, f, size, off);
	else if (which == 3)
		MOUNT_OPS.flush(&r, f->ino, &f->fi);
	else if (which == 4)
		(MOUNT_OPS.fsync)(&r, f->ino, how & 1, &f->fi);
	else if (which == 5)
		MOUNT_OPS.fallocate(&r, f->ino, how, off, (off_t)size, &f->fi);
	else
		MOUNT_OPS.lseek(&r, f->ino, off, how % 6, &f->fi);
	MUST(r.answers == 1);
}

static void forget(void)
{
	struct fuse_req r = {.ctx = {.pid = 1}};
	const uint32_t i = rd_u8(&in) % known_count;

	for (uint32_t k = 0; k < file_count; k++)
		if (files[k].ino == known[i].ino)
			return;
	if (!i) /* the root stays */
		return;
	MOUNT_OPS.forget(&r, known[i].ino, known[i].lookups);
	MUST(r.answers == 1);
	known[i] = known[--known_count];
}

static void step(uint8_t which)
{
	static void (*const kinds[])(uint8_t which) = {about_names, about_xattrs,    about_attrs,
						       opens,       about_directory, about_file};
	static const uint8_t of_kind[] = {8, 4, 5, 3, 2, 7};
	struct open_file *f;

	for (size_t i = 0; i < sizeof(of_kind); i++) {
		if (which < of_kind[i]) {
			/* room for what it may teach the kernel */
			if (known_count < KNOWN_MAX - 1)
				kinds[i](which);
			return;
		}
		which = (uint8_t)(which - of_kind[i]);
	}
	f = choose_file(which & 1);
	if (which < 2 && f)
		release(f);
	else
		forget();
}

/* ---- the mount ---- */

static void clean_up(void)
{
	users_fini(&m.users);
	buffers_fini(&m.buffers);
	request_table_fini(&m.request_table);
}

static void make(void)
{
	static const uint8_t defaults[4096]; /* answers without optional fields */
	static char uri[] = "hdfs://127.0.0.1:1", root[] = "/";
	struct dfs_err err;

	log_init("fuzz", LOG_ERROR);
	m.opt = (struct options){.uri = uri,
				 .dir = root,
				 .attr_timeout = 1,
				 .entry_timeout = 1,
				 .uid = -1,
				 .gid = -1,
				 .umask = -1,
				 .timeout_s = 10,
				 .threads = 4,
				 .streams = 4,
				 .overlay_mib = 1,
				 .conf = {"dfs.client.rdma=off",
					  "dfs.client.read.shortcircuit=false",
					  "dfs.log.level=error"},
				 .conf_count = 3};
	m.ready_fd = m.log_fd = -1;
	m.state.dir = m.state.top_fd = -1;
	m.token = 1;
	(void)atomic_flag_test_and_set(&m.reads_ahead); /* there is no device */
	pthread_mutex_init(&m.state.lock, NULL);
	request_table_init(&m.request_table);
	buffers_init(&m.buffers);
	in = rd_init(defaults, sizeof(defaults));
	MUST(!users_init(&m.users, &m.opt, &err));
	dfs_get_defaults(m.users.user[0]->fs, &m.defaults);
	atexit(clean_up);
}

static void begin(void)
{
	const struct dfs_stat st = {.file_id = 16385, .type = DFS_DIR, .mode = 0777};
	struct inode *root;

	list_init(&m.handles);
	list_init(&m.streams);
	m.stream_count = 0;
	m.budget = (struct overlay_budget){.limit = 1 << 20};
	m.root_id = st.file_id;
	m.leave_ns = 0;
	stale_retry_init(&m.stale_retry);
	MUST(!inodes_init(&m.inodes));
	root = inode_enter(&m.inodes, &st, FUSE_ROOT_ID, 0, NULL, 1);
	MUST(root);
	root->mode = mode_told(&st);
	inode_put(&m.inodes, root);
	known[0].ino = FUSE_ROOT_ID;
	known[0].lookups = 1;
	known_count = 1;
	file_count = calls = 0;
}

static void end(void)
{
	in = rd_init("", 0); /* the NameNode finds nothing any more */
	while (file_count)
		release(&files[0]);
	pending_end(&m);
	stale_retry_end(&m);
	file_close_all(&m);
	pending_leave(&m);
	inodes_fini(&m.inodes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rd r = rd_init(data, size);

	if (!m.opt.uri)
		make();
	begin();
	for (int i = 0; i < STEPS_MAX && rd_left(&r); i++) {
		const uint8_t which = rd_u8(&r) % 32;

		in = input_part(&r);
		step(which);
	}
	end();
	return 0;
}
