/* SPDX-License-Identifier: Apache-2.0 */
/* Stands between a program and libibverbs and librdmacm (LD_PRELOAD), and gives the device the
 * limits of another card: of the one that DFS_TEST_CARD names. What is beyond them is refused, as
 * that card would. Posts are inline functions of the header, and are not seen here. DFS_TEST_SEEN
 * names a file that is there afterwards if any program was told of the limits. */
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef ibv_reg_mr /* a macro that calls one of two functions */
#define WINDOWS                                                                                    \
	(IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)

struct card {
	const char *name;
	uint32_t inline_max;
	int sge, srq_sge; /* srq_sge 0: no shared receive queue */
	int read_depth, wr, cqe, srq_wr;
	bool no_windows;
	uint64_t mr; /* most bytes of one registration; 0: any */
};

/* The first four as their drivers of rdma-core 44 and Linux 6.1 have it, or less; the others have
 * one thing less than any that we know, and the one called small all of these but the last. */
static const struct card cards[] = {
	{"mlx5", 512, 30, 31, 16, 32768, 4194303, 32767, false, 0},
	{"irdma", 101, 13, 0, 127, 2048, 1048574, 0, true, 1ull << 45},
	{"bnxt", 96, 6, 6, 126, 16384, 65535, 8192, false, 1ull << 39},
	{"hns", 32, 2, 2, 128, 8192, 65535, 8192, false, 0},
	{"no_srq", 256, 16, 0, 16, 4096, 32767, 0, false, 0},
	{"one_sge", 256, 1, 1, 16, 4096, 32767, 4096, false, 0},
	{"depth_1", 256, 16, 16, 1, 4096, 32767, 4096, false, 0},
	{"no_windows", 256, 16, 16, 16, 4096, 32767, 4096, true, 0},
	{"small", 0, 1, 0, 1, 64, 4096, 0, true, 1ull << 30},
	{"small_mr", 256, 16, 16, 16, 4096, 32767, 4096, false, 1 << 20},
};

static const struct card *card(void)
{
	const char *name = getenv("DFS_TEST_CARD");

	for (size_t i = 0; name && i < sizeof(cards) / sizeof(*cards); i++)
		if (!strcmp(cards[i].name, name))
			return &cards[i];
	abort();
}

static void *real(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (!f)
		abort();
	return f;
}

static int lesser(int a, int b)
{
	return a < b ? a : b;
}

static void seen(void)
{
	const char *name = getenv("DFS_TEST_SEEN");
	FILE *f = name ? fopen(name, "w") : NULL;

	if (f)
		(void)fclose(f);
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	int (*f)(struct ibv_context *, struct ibv_device_attr *);
	const struct card *c = card();
	int rc;

	*(void **)&f = real("ibv_query_device");
	rc = f(ctx, attr);
	seen();
	attr->max_sge = lesser(attr->max_sge, c->sge);
	attr->max_srq_sge = lesser(attr->max_srq_sge, c->srq_sge);
	attr->max_srq = c->srq_sge ? attr->max_srq : 0;
	attr->max_srq_wr = lesser(attr->max_srq_wr, c->srq_wr);
	attr->max_qp_wr = lesser(attr->max_qp_wr, c->wr);
	attr->max_cqe = lesser(attr->max_cqe, c->cqe);
	attr->max_qp_rd_atom = lesser(attr->max_qp_rd_atom, c->read_depth);
	attr->max_qp_init_rd_atom = lesser(attr->max_qp_init_rd_atom, c->read_depth);
	if (c->no_windows) {
		attr->device_cap_flags &= ~(unsigned int)WINDOWS;
		attr->max_mw = 0;
	}
	if (c->mr && c->mr < attr->max_mr_size)
		attr->max_mr_size = c->mr;
	return rc;
}

static bool is_too_long(size_t len)
{
	const bool is = card()->mr && len > card()->mr;

	if (is)
		errno = EINVAL;
	return is;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *p, size_t len, int access)
{
	struct ibv_mr *(*f)(struct ibv_pd *, void *, size_t, int);

	*(void **)&f = real("ibv_reg_mr");
	return is_too_long(len) ? NULL : f(pd, p, len, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *p, size_t len, uint64_t iova,
				unsigned int access)
{
	struct ibv_mr *(*f)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int);

	*(void **)&f = real("ibv_reg_mr_iova2");
	return is_too_long(len) ? NULL : f(pd, p, len, iova, access);
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq *(*f)(struct ibv_pd *, struct ibv_srq_init_attr *);
	const struct card *c = card();

	if (!c->srq_sge || attr->attr.max_sge > (uint32_t)c->srq_sge ||
	    attr->attr.max_wr > (uint32_t)c->srq_wr) {
		errno = c->srq_sge ? EINVAL : EOPNOTSUPP;
		return NULL;
	}
	*(void **)&f = real("ibv_create_srq");
	return f(pd, attr);
}

static bool fits(const struct card *c, const struct ibv_qp_cap *cap)
{
	return cap->max_inline_data <= c->inline_max && cap->max_send_sge <= (uint32_t)c->sge &&
	       cap->max_recv_sge <= (uint32_t)c->sge && cap->max_send_wr <= (uint32_t)c->wr &&
	       cap->max_recv_wr <= (uint32_t)c->wr;
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	int (*f)(struct rdma_cm_id *, struct ibv_pd *, struct ibv_qp_init_attr *);
	const struct card *c = card();
	int rc;

	if (!fits(c, &attr->cap)) {
		errno = EINVAL;
		return -1;
	}
	*(void **)&f = real("rdma_create_qp");
	rc = f(id, pd, attr);
	if (attr->cap.max_inline_data > c->inline_max)
		attr->cap.max_inline_data = c->inline_max;
	return rc;
}

/* What was agreed on is within the card, too. */
static bool depths_fit(const struct rdma_conn_param *p)
{
	return !p || (p->responder_resources <= card()->read_depth &&
		      p->initiator_depth <= card()->read_depth);
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	int (*f)(struct rdma_cm_id *, struct rdma_conn_param *);

	*(void **)&f = real("rdma_connect");
	return depths_fit(p) ? f(id, p) : (errno = EINVAL, -1);
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	int (*f)(struct rdma_cm_id *, struct rdma_conn_param *);

	*(void **)&f = real("rdma_accept");
	return depths_fit(p) ? f(id, p) : (errno = EINVAL, -1);
}
