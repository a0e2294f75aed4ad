/* SPDX-License-Identifier: Apache-2.0 */
/* Stands between a program and libibverbs and librdmacm (LD_PRELOAD), and has calls fail at random.
 *
 * DFS_TEST_FAULTS names a file that its programs share: a seed and a count of 32 bits each, then
 * records of 32 bytes: the name of a call, "one in how many fails" (0: none), how many were made,
 * and how many failed. So a test turns faults on and off under programs that run, and sees what
 * came of it (tests/rdma/faults writes it). Without that file nothing fails.
 *
 * Posts and polls are inline functions of the header, which call through the table of the device's
 * context: the entries there are replaced. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#undef ibv_reg_mr /* a macro that calls one of two functions */

struct record {
	char name[20];
	_Atomic uint32_t one_in, calls, failed;
};

static struct {
	uint32_t seed;
	_Atomic uint32_t count;
	struct record record[];
} * shared;
static size_t records;

__attribute__((constructor)) static void map_file(void)
{
	const char *path = getenv("DFS_TEST_FAULTS");
	struct stat st;
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && st.st_size >= (off_t)sizeof(*shared))
		shared = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	(void)close(fd);
	if (shared == MAP_FAILED)
		shared = NULL;
	if (shared)
		records = ((size_t)st.st_size - sizeof(*shared)) / sizeof(struct record);
}

/* The same numbers for the same seed, in the order of the calls. */
static uint64_t chance(void)
{
	uint64_t z = ((uint64_t)shared->seed << 32) + atomic_fetch_add(&shared->count, 1);

	z = (z + 1) * 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static bool fails(const char *call)
{
	for (size_t i = 0; i < records; i++) {
		struct record *r = &shared->record[i];
		uint32_t one_in;

		if (strncmp(r->name, call, sizeof(r->name)) != 0)
			continue;
		one_in = atomic_load(&r->one_in);
		if (!one_in)
			return false;
		atomic_fetch_add(&r->calls, 1);
		if (chance() % one_in)
			return false;
		atomic_fetch_add(&r->failed, 1);
		errno = ENOMEM;
		return true;
	}
	return false;
}

static void *real(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (!f)
		abort();
	return f;
}

/* ---- what goes through a context's table ---- */

#define CONTEXTS 64

static struct {
	struct ibv_context *ctx;
	struct ibv_context_ops ops;
} known[CONTEXTS];
static atomic_size_t known_count;
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;

static const struct ibv_context_ops *ops_of(const struct ibv_context *ctx)
{
	for (size_t i = 0; i < atomic_load(&known_count); i++)
		if (known[i].ctx == ctx)
			return &known[i].ops;
	abort();
}

static struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	return fails("alloc_mw") ? NULL : ops_of(pd->context)->alloc_mw(pd, type);
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	return fails("req_notify_cq") ? ENOMEM
				      : ops_of(cq->context)->req_notify_cq(cq, solicited_only);
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got;

	if (fails("poll_cq"))
		return -1;
	got = ops_of(cq->context)->poll_cq(cq, n, wc);
	if (got > 0 && fails("completion"))
		wc[got - 1].status = IBV_WC_GENERAL_ERR;
	return got;
}

/* The first of a list that is not taken, by chance; the ones before it are. */
#define POST(name, object, type, call)                                                             \
	static int name(struct object *on, struct type *wr, struct type **bad)                     \
	{                                                                                          \
		struct type *last = wr;                                                            \
		uint32_t n = 0;                                                                    \
		int rc = 0;                                                                        \
                                                                                                   \
		if (!fails(#call))                                                                 \
			return ops_of(on->context)->call(on, wr, bad);                             \
		for (struct type *w = wr; w; w = w->next)                                          \
			n++;                                                                       \
		n = (uint32_t)(chance() % n);                                                      \
		*bad = wr;                                                                         \
		if (n) {                                                                           \
			while (--n)                                                                \
				last = last->next;                                                 \
			*bad = last->next;                                                         \
			last->next = NULL;                                                         \
			rc = ops_of(on->context)->call(on, wr, &wr);                               \
			last->next = *bad;                                                         \
			*bad = rc ? wr : *bad;                                                     \
		}                                                                                  \
		return rc ? rc : ENOMEM;                                                           \
	}
POST(post_send, ibv_qp, ibv_send_wr, post_send)
POST(post_recv, ibv_qp, ibv_recv_wr, post_recv)
POST(post_srq_recv, ibv_srq, ibv_recv_wr, post_srq_recv)

/* One that was closed may come back at the same address. */
static void replace(struct ibv_context *ctx)
{
	size_t i = 0;

	pthread_mutex_lock(&known_lock);
	while (i < atomic_load(&known_count) && known[i].ctx != ctx)
		i++;
	if (i == CONTEXTS)
		abort();
	if (ctx->ops.poll_cq != poll_cq) {
		known[i].ctx = ctx;
		known[i].ops = ctx->ops;
		if (i == atomic_load(&known_count))
			atomic_store(&known_count, i + 1);
		ctx->ops.poll_cq = poll_cq;
		ctx->ops.post_send = post_send;
		ctx->ops.post_recv = post_recv;
		ctx->ops.post_srq_recv = post_srq_recv;
		ctx->ops.req_notify_cq = req_notify_cq;
		ctx->ops.alloc_mw = alloc_mw;
	}
	pthread_mutex_unlock(&known_lock);
}

/* ---- functions of libibverbs ---- */

#define REAL(type, name, ...)                                                                      \
	type (*f)(__VA_ARGS__);                                                                    \
	*(void **)&f = real(name)

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *p, size_t len, int access)
{
	REAL(struct ibv_mr *, "ibv_reg_mr", struct ibv_pd *, void *, size_t, int);
	return fails("reg_mr") ? NULL : f(pd, p, len, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *p, size_t len, uint64_t iova,
				unsigned int access)
{
	REAL(struct ibv_mr *, "ibv_reg_mr_iova2", struct ibv_pd *, void *, size_t, uint64_t,
	     unsigned int);
	return fails("reg_mr") ? NULL : f(pd, p, len, iova, access);
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	REAL(struct ibv_pd *, "ibv_alloc_pd", struct ibv_context *);
	return fails("alloc_pd") ? NULL : f(ctx);
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	REAL(struct ibv_comp_channel *, "ibv_create_comp_channel", struct ibv_context *);
	return fails("create_comp_channel") ? NULL : f(ctx);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *arg,
			     struct ibv_comp_channel *channel, int vector)
{
	REAL(struct ibv_cq *, "ibv_create_cq", struct ibv_context *, int, void *,
	     struct ibv_comp_channel *, int);
	if (shared)
		replace(ctx);
	return fails("create_cq") ? NULL : f(ctx, cqe, arg, channel, vector);
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	REAL(struct ibv_srq *, "ibv_create_srq", struct ibv_pd *, struct ibv_srq_init_attr *);
	return fails("create_srq") ? NULL : f(pd, attr);
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	REAL(int, "ibv_modify_srq", struct ibv_srq *, struct ibv_srq_attr *, int);
	return fails("modify_srq") ? ENOMEM : f(srq, attr, mask);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	REAL(int, "ibv_modify_qp", struct ibv_qp *, struct ibv_qp_attr *, int);
	return fails("modify_qp") ? ENOMEM : f(qp, attr, mask);
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	REAL(int, "ibv_query_device", struct ibv_context *, struct ibv_device_attr *);
	return fails("query_device") ? ENOMEM : f(ctx, attr);
}

/* ---- functions of librdmacm ---- */

struct ibv_context **rdma_get_devices(int *n)
{
	REAL(struct ibv_context **, "rdma_get_devices", int *);
	return fails("get_devices") ? NULL : f(n);
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *arg,
		   enum rdma_port_space space)
{
	REAL(int, "rdma_create_id", struct rdma_event_channel *, struct rdma_cm_id **, void *,
	     enum rdma_port_space);
	return fails("create_id") ? -1 : f(channel, id, arg, space);
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	REAL(int, "rdma_bind_addr", struct rdma_cm_id *, struct sockaddr *);
	return fails("bind_addr") ? -1 : f(id, addr);
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to, int ms)
{
	REAL(int, "rdma_resolve_addr", struct rdma_cm_id *, struct sockaddr *, struct sockaddr *,
	     int);
	return fails("resolve_addr") ? -1 : f(id, from, to, ms);
}

int rdma_resolve_route(struct rdma_cm_id *id, int ms)
{
	REAL(int, "rdma_resolve_route", struct rdma_cm_id *, int);
	return fails("resolve_route") ? -1 : f(id, ms);
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	REAL(int, "rdma_create_qp", struct rdma_cm_id *, struct ibv_pd *,
	     struct ibv_qp_init_attr *);
	return fails("create_qp") ? -1 : f(id, pd, attr);
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	REAL(int, "rdma_connect", struct rdma_cm_id *, struct rdma_conn_param *);
	return fails("connect") ? -1 : f(id, p);
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	REAL(int, "rdma_accept", struct rdma_cm_id *, struct rdma_conn_param *);
	return fails("accept") ? -1 : f(id, p);
}
