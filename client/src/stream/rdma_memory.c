/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of callers that is registered: where it is, who uses it, and its windows. */
#include <stdlib.h>

#include "client/src/stream/rdma_internal.h"
#include "client/src/stream/stream.h"

struct rmem {
	struct list link; /* rdma.memories */
	struct rdma *rdma;
	uintptr_t at;
	size_t len;
	uint32_t users;             /* reads under way */
	struct verbs_memory *verbs; /* NULL: it is just being registered, or unregistered */
};

static bool overlaps(const struct rdma *r, uintptr_t at, size_t len)
{
	list_for_each (l, &r->memories) {
		const struct rmem *m = container_of(l, struct rmem, link);

		if (at < m->at + m->len && m->at < at + len)
			return true;
	}
	return false;
}

/* Its place, before it is registered: that takes long, and reads go on meanwhile. */
static int reserve(struct rdma *r, struct rmem *m, struct err *err)
{
	int rc = 0;

	pthread_mutex_lock(&r->mem_lock);
	if (overlaps(r, m->at, m->len))
		rc = err_set(err, -EEXIST, "it overlaps memory that is registered already");
	else if (r->memory_count == RDMA_MEMORIES)
		rc = err_set(err, -ENOSPC, "%u stretches of memory are registered, the most",
			     RDMA_MEMORIES);
	else
		list_add(&r->memories, &m->link);
	r->memory_count += !rc;
	pthread_mutex_unlock(&r->mem_lock);
	return rc;
}

/* With the lock held. */
static void take_out(struct rmem *m)
{
	list_del(&m->link);
	m->rdma->memory_count--;
}

int rdma_memory_add(struct rdma *r, void *p, size_t len, struct err *err)
{
	const uintptr_t at = (uintptr_t)p;
	struct verbs_memory *verbs = NULL;
	struct rmem *m;
	int rc;

	if (!at || !len || at + len < at)
		return err_set(err, -EINVAL, "no memory: %zu bytes at %p", len, p);
	m = calloc(1, sizeof(*m));
	if (!m)
		return err_set(err, -ENOMEM, "out of memory");
	*m = (struct rmem){.rdma = r, .at = at, .len = len};
	rc = reserve(r, m, err);
	if (rc < 0) {
		free(m);
		return rc;
	}
	rc = verbs_memory_new(r->verbs, p, len, &verbs, err);
	pthread_mutex_lock(&r->mem_lock);
	m->verbs = verbs;
	if (rc < 0)
		take_out(m);
	pthread_mutex_unlock(&r->mem_lock);
	if (rc < 0)
		free(m);
	return rc;
}

int rdma_memory_del(struct rdma *r, const void *p)
{
	struct verbs_memory *verbs = NULL;
	struct rmem *found = NULL;
	int rc = -ENOENT;

	pthread_mutex_lock(&r->mem_lock);
	list_for_each (l, &r->memories) {
		struct rmem *m = container_of(l, struct rmem, link);

		if (m->at != (uintptr_t)p)
			continue;
		rc = m->users || !m->verbs ? -EBUSY : 0;
		if (!rc) {
			found = m;
			verbs = m->verbs;
			m->verbs = NULL;
		}
		break;
	}
	pthread_mutex_unlock(&r->mem_lock);
	if (!found)
		return rc;
	verbs_memory_free(verbs);
	pthread_mutex_lock(&r->mem_lock);
	take_out(found); /* now, not before, is it to be had again */
	pthread_mutex_unlock(&r->mem_lock);
	free(found);
	return 0;
}

struct rmem *rdma_memory_get(struct rdma *r, const void *p, size_t len)
{
	const uintptr_t at = (uintptr_t)p;
	struct rmem *found = NULL;

	pthread_mutex_lock(&r->mem_lock);
	list_for_each (l, &r->memories) {
		struct rmem *m = container_of(l, struct rmem, link);

		if (m->verbs && at >= m->at && len <= m->len && at - m->at <= m->len - len) {
			found = m;
			m->users++;
			break;
		}
	}
	pthread_mutex_unlock(&r->mem_lock);
	return found;
}

void rdma_memory_put(struct rmem *m)
{
	if (!m)
		return;
	pthread_mutex_lock(&m->rdma->mem_lock);
	m->users--;
	pthread_mutex_unlock(&m->rdma->mem_lock);
}

struct verbs_window *rdma_window_get(const struct rcall *c, struct rmem *m)
{
	return c->conn->state == RC_UP ? verbs_window_get(m->verbs, c->conn->x) : NULL;
}

void rdma_window_close(struct rcall *c, struct verbs_window *w, struct xop *op)
{
	if (c->conn->state == RC_UP)
		verbs_window_close(c->conn->x, w, op);
	else
		op->done(op, -ECONNRESET);
}

void rdma_memories_fini(struct rdma *r)
{
	list_for_each (l, &r->memories) {
		struct rmem *m = container_of(l, struct rmem, link);

		list_del(l);
		verbs_memory_free(m->verbs);
		free(m);
	}
}

bool stream_is_registered(struct dfs *fs, const void *p, size_t len)
{
	struct rmem *m = NULL;

	if (atomic_load_explicit(&fs->memories, memory_order_relaxed) == 0)
		return false;
	pthread_mutex_lock(&fs->rdma_lock);
	if (fs->rdma)
		m = rdma_memory_get(fs->rdma, p, len);
	pthread_mutex_unlock(&fs->rdma_lock);
	rdma_memory_put(m);
	return m != NULL;
}
