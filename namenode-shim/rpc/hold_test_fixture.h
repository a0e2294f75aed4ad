/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/**
 * Test code: hold_test_fixture - what the tests of slices share: a NameNode with many blocks and
 * one large tree, a clock that runs ahead while the lock is held, calls, and how long each kept the
 * others waiting
 *
 * Included by one test program each, which owns what is static here.
 */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/uio.h>

#include <cmocka.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "common/base/clock.h"
#include "common/base/conf.h"
#include "common/wire/block_report.h"
#include "namenode-shim/namespace/inode.h"
#include "namenode-shim/nn.h"
#include "namenode-shim/req.h"
#include "namenode-shim/rpc/methods.h"
#include "namenode-shim/test_nn.h"

#define NODES 3
#define SHORT 60000u
#define IN_DIR 1000u /* files of one directory */
#define BLOCK_LEN 100
#define WAIT_MS 120000

struct world {
	struct test_db d;
	struct conf *conf;
	struct nn *nn;
	uint32_t files;
	uint32_t made;
	bool open;       /* the files have a writer, and no block yet */
	int64_t first;   /* id of the first file's block */
	uint64_t *inode; /* owned array: of the files */
	uint64_t gs;
};

/* ---- /big with files of one block each ---- */

static inline void put_name(struct ns *n, uint64_t parent, const char *name, struct inode *node)
{
	node->id = inode_new_id(n->t);
	node->parent = parent;
	node->name = name;
	node->owner = node->group = "root";
	node->client = node->client_host = node->client ? node->client : "";
	assert_int_equal(inode_put(n->t, node), 0);
	assert_int_equal(dirent_put(n->t, parent, name, node->id), 0);
}

static inline uint64_t put_dir(struct ns *n, uint64_t parent, const char *name, uint32_t children)
{
	struct inode dir = {.type = INODE_DIR, .perm = 0755, .children = children};

	put_name(n, parent, name, &dir);
	return dir.id;
}

static inline void put_files(struct world *w, struct ns *n, uint64_t dir, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct inode_block b = {.committed = true};
		struct inode f = {.type = INODE_FILE,
				  .perm = 0644,
				  .repl = NODES,
				  .block_size = 1 << 20,
				  .blocks = &b,
				  .nblocks = 1};
		char name[32];

		snprintf(name, sizeof(name), "file%06u", i);
		if (w->open) {
			f.nblocks = 0;
			f.client = "c";
			put_name(n, dir, name, &f);
			w->inode[w->made++] = f.id;
			continue;
		}
		b.b = (struct block){(int64_t)++n->t->ctr.block, n->t->ctr.gs, BLOCK_LEN};
		w->first = w->first ? w->first : b.b.id;
		put_name(n, dir, name, &f);
		w->inode[w->made++] = f.id;
	}
}

static inline void make_tree(struct world *w)
{
	const uint32_t dirs = w->files / IN_DIR;
	struct ns *n = test_begin(&w->d, "root");
	const uint64_t big = put_dir(n, INODE_ROOT, "big", dirs);
	struct inode *root;

	w->gs = n->t->ctr.gs;
	assert_int_equal(inode_get(n->t, INODE_ROOT, n->a, &root), 0);
	root->children++;
	assert_int_equal(inode_put(n->t, root), 0);
	for (uint32_t i = 0; i < dirs; i++) {
		char name[32];

		snprintf(name, sizeof(name), "dir%04u", i);
		put_files(w, n, put_dir(n, big, name, IN_DIR), IN_DIR);
	}
	assert_int_equal(test_commit(&w->d), 0);
}

static inline void add_nodes(struct world *w, uint32_t nodes, uint32_t racks)
{
	for (uint32_t i = 0; i < nodes; i++) {
		char uuid[16], ip[16];
		const struct dn_ident id = {uuid, ip, "host", "3.4.2", 9000u + i, 1, 2, 0};
		struct dn *dn;

		snprintf(uuid, sizeof(uuid), "dn%u", i);
		snprintf(ip, sizeof(ip), "10.0.%u.%u", i / 250, i % 250);
		assert_int_equal(datanodes_register(&w->nn->dns, &id, &dn), 0);
		snprintf(dn->rack, sizeof(dn->rack), "/rack%u", i % racks);
		dn_storage_add(dn, uuid, STORAGE_DISK)->remaining = 1ull << 40;
	}
}

static inline void world_init(struct world *w, uint32_t files, uint32_t nodes, uint32_t racks,
			      bool open)
{
	*w = (struct world){.files = files, .open = open, .inode = calloc(files, sizeof(uint64_t))};
	test_db_init(&w->d);
	make_tree(w);
	w->nn = test_nn_new(&w->d, NULL, &w->conf);
	w->nn->holds.with_cpu = true;
	add_nodes(w, nodes, racks);
	assert_int_equal(nn_start(w->nn), 0);
}

static inline void world_fini(struct world *w)
{
	nn_stop(w->nn);
	nn_free(w->nn);
	conf_free(w->conf);
	free(w->inode);
	test_db_fini(&w->d);
}

/* ---- a clock that runs ahead ---- */

static _Thread_local bool hurries; /* the writer's thread */
static _Thread_local bool holds_it;
/* at the clock in this hold; the first one says when it began */
static _Thread_local unsigned int looks;
static pthread_rwlock_t *_Atomic mem_lock; /* borrowed */

int __wrap_pthread_rwlock_wrlock(pthread_rwlock_t *l);
int __real_pthread_rwlock_wrlock(pthread_rwlock_t *l);
int __wrap_pthread_rwlock_unlock(pthread_rwlock_t *l);
int __real_pthread_rwlock_unlock(pthread_rwlock_t *l);
int __wrap_clock_gettime(clockid_t id, struct timespec *ret);
int __real_clock_gettime(clockid_t id, struct timespec *ret);

static _Thread_local bool reads_map;
static atomic_uint map_locks, db_reads_locked;

int __wrap_pthread_rwlock_rdlock(pthread_rwlock_t *l);
int __real_pthread_rwlock_rdlock(pthread_rwlock_t *l);
int __wrap_mdb_cursor_get(MDB_cursor *c, MDB_val *key, MDB_val *data, MDB_cursor_op op);
int __real_mdb_cursor_get(MDB_cursor *c, MDB_val *key, MDB_val *data, MDB_cursor_op op);
int __wrap_mdb_get(MDB_txn *t, MDB_dbi dbi, MDB_val *key, MDB_val *data);
int __real_mdb_get(MDB_txn *t, MDB_dbi dbi, MDB_val *key, MDB_val *data);

int __wrap_pthread_rwlock_rdlock(pthread_rwlock_t *l)
{
	reads_map |= l == mem_lock;
	map_locks += l == mem_lock;
	return __real_pthread_rwlock_rdlock(l);
}

int __wrap_mdb_cursor_get(MDB_cursor *c, MDB_val *key, MDB_val *data, MDB_cursor_op op)
{
	db_reads_locked += reads_map;
	return __real_mdb_cursor_get(c, key, data, op);
}

int __wrap_mdb_get(MDB_txn *t, MDB_dbi dbi, MDB_val *key, MDB_val *data)
{
	db_reads_locked += reads_map;
	return __real_mdb_get(t, dbi, key, data);
}

int __wrap_pthread_rwlock_wrlock(pthread_rwlock_t *l)
{
	const int rc = __real_pthread_rwlock_wrlock(l);

	holds_it = holds_it || (hurries && l == mem_lock);
	return rc;
}

int __wrap_pthread_rwlock_unlock(pthread_rwlock_t *l)
{
	if (l == mem_lock) {
		holds_it = reads_map = false;
		looks = 0;
	}
	return __real_pthread_rwlock_unlock(l);
}

/* Whoever asks in a hold is told that the slice has lasted long enough. */
int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
	const int rc = __real_clock_gettime(id, ret);

	if (holds_it && id == CLOCK_MONOTONIC && looks++) {
		const uint64_t ns = (uint64_t)ret->tv_nsec + NN_SLICE_NS + 1;

		ret->tv_sec += (time_t)(ns / NS_PER_S);
		ret->tv_nsec = (long)(ns % NS_PER_S);
	}
	return rc;
}

/* ---- calls ---- */

/* What calls are to do, on the writer's thread. */
static struct doing {
	const struct method *m;
	const void *msg;
	int (*fn)(struct nn *nn);
	atomic_int rc;
	uint64_t ns;           /* that it took the writer */
	struct call_stat stat; /* it was answered */
} doing[2];

static inline int run_doing(struct req *q, const void *in)
{
	struct doing *d = &doing[q->arg];
	const uint64_t start = clock_mono_ns();

	(void)in;
	d->rc = d->fn ? d->fn(q->nn) : d->m->run(q, d->msg);
	d->ns += clock_mono_ns() - start;
	return d->rc;
}

static inline void submit(struct world *w, int i, enum req_kind kind)
{
	static const struct method methods[] = {
		[REQ_MEMORY] = {.name = "memory", .kind = REQ_MEMORY, .run = run_doing},
		[REQ_CHANGE] = {.name = "change", .kind = REQ_CHANGE, .run = run_doing},
	};
	struct req *q = req_new(w->nn, &methods[kind], NULL);

	doing[i].stat.calls = 0;
	q->arg = (uint64_t)i;
	q->stat = &doing[i].stat;
	nn_submit(w->nn, q);
}

static inline int wait_answer(int i)
{
	for (int ms = 0; !doing[i].stat.calls; ms++) {
		assert_true(ms < WAIT_MS);
		(void)poll(NULL, 0, 1);
	}
	return doing[i].rc;
}

static inline const struct method *find_method(const struct method_table *t, const char *name)
{
	for (size_t i = 0; i < t->count; i++)
		if (!strcmp(t->methods[i].name, name))
			return &t->methods[i];
	abort();
}

static inline void submit_table(struct world *w, int i, const struct method_table *t,
				const char *name, const void *msg)
{
	doing[i].m = find_method(t, name);
	doing[i].msg = msg;
	doing[i].fn = NULL;
	submit(w, i, doing[i].m->kind);
}

static inline void call_table(struct world *w, const struct method_table *t, const char *name,
			      const void *msg)
{
	submit_table(w, 0, t, name, msg);
	assert_int_equal(wait_answer(0), 0);
}

static inline void call_fn(struct world *w, int (*fn)(struct nn *nn))
{
	doing[0].fn = fn;
	submit(w, 0, REQ_MEMORY);
	assert_int_equal(wait_answer(0), 0);
}

static inline bool is_so(struct world *w, bool (*fn)(const struct nn *nn))
{
	bool yes;

	pthread_rwlock_rdlock(&w->nn->mem_lock);
	yes = fn(w->nn);
	pthread_rwlock_unlock(&w->nn->mem_lock);
	return yes;
}

static inline void wait_until(struct world *w, bool (*fn)(const struct nn *nn))
{
	for (int ms = 0; !is_so(w, fn); ms++) {
		assert_true(ms < WAIT_MS);
		(void)poll(NULL, 0, 1);
	}
}

/* ---- what is measured ---- */

static Hdd__DatanodeRegistrationProto registration = HDD__DATANODE_REGISTRATION_PROTO__INIT;
static Hd__DatanodeIDProto identity = HD__DATANODE_IDPROTO__INIT;
static Hd__StorageInfoProto info = HD__STORAGE_INFO_PROTO__INIT;
static char uuid_text[8];

static inline Hdd__DatanodeRegistrationProto *node(struct world *w, int i)
{
	const struct db_ident *id = &w->nn->db->ident;

	snprintf(uuid_text, sizeof(uuid_text), "dn%d", i);
	identity.datanodeuuid = uuid_text;
	identity.ipaddr = (char *)(uintptr_t) "127.0.0.1";
	identity.xferport = 9000u + (uint32_t)i;
	info.namespceid = id->namespace_id;
	info.clusterid = (char *)(uintptr_t)id->cluster_id;
	info.ctime = id->ctime_ms;
	registration.datanodeid = &identity;
	registration.storageinfo = &info;
	return &registration;
}

static inline Hd__DeleteRequestProto *of_tree(Hd__DeleteRequestProto *m)
{
	hd__delete_request_proto__init(m);
	m->src = (char *)(uintptr_t) "/big";
	m->recursive = true;
	return m;
}

static inline bool blocks_are_gone(const struct nn *nn)
{
	return !HASH_COUNT(nn->blocks.map);
}

/* ---- a disk that is full for a while ---- */

#define META_END 8192 /* the two meta pages: without these LMDB refuses everything for good */

static atomic_bool disk_is_full;
static atomic_uint refused;

static inline bool refuses(void)
{
	if (!disk_is_full)
		return false;
	refused++;
	errno = ENOSPC;
	return true;
}

/* Called by LMDB's library in place of the C library's. */
__attribute__((visibility("default"))) ssize_t lmdb_pwrite(int fd, const void *buf, size_t len,
							   off_t at) __asm__("pwrite");
ssize_t lmdb_pwrite(int fd, const void *buf, size_t len, off_t at)
{
	static ssize_t (*real)(int, const void *, size_t, off_t);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "pwrite");
	return at >= META_END && refuses() ? -1 : real(fd, buf, len, at);
}

__attribute__((visibility("default"))) ssize_t lmdb_writev(int fd, const struct iovec *v,
							   int n) __asm__("writev");
ssize_t lmdb_writev(int fd, const struct iovec *v, int n)
{
	static ssize_t (*real)(int, const struct iovec *, int);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "writev");
	return refuses() ? -1 : real(fd, v, n);
}
