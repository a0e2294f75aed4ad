/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of callers that is registered, and memory of the library for them: where it is, who uses
 * it, and its windows; and how slots are named to nodes. */
#include <stdlib.h>

#include "client/src/stream/rdma_internal.h"
#include "client/src/stream/stream.h"

struct rmem {
	struct list link; /* rdma.memories */
	struct rdma *rdma;
	uintptr_t at;
	size_t len;
	uint32_t users;             /* reads under way, lent stretches */
	struct verbs_memory *verbs; /* NULL: it is just being registered, or unregistered */
	bool owned;                 /* of rdma_buffer_new(): free()d in the end */
	bool named;                 /* owned, and the caller has registered it as well */
	bool dropped;               /* owned: it ends when nobody uses it */
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
	else if (r->memory_count == RDMA_MEMORIES || (m->owned && r->buffer_count == RDMA_BUFFERS))
		rc = err_set(err, -ENOSPC, "%u stretches of memory are registered, the most",
			     RDMA_MEMORIES);
	else
		list_add(&r->memories, &m->link);
	r->memory_count += !rc;
	r->buffer_count += !rc && m->owned;
	pthread_mutex_unlock(&r->mem_lock);
	return rc;
}

/* With the lock held. */
static void take_out(struct rmem *m)
{
	list_del(&m->link);
	m->rdma->memory_count--;
	m->rdma->buffer_count -= m->owned;
}

static int add(struct rdma *r, void *p, size_t len, bool owned, const struct rdma_dmabuf *b,
	       struct err *err)
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
	*m = (struct rmem){.rdma = r, .at = at, .len = len, .owned = owned};
	rc = reserve(r, m, err);
	if (rc < 0) {
		free(m);
		return rc;
	}
	rc = b ? verbs_memory_new_dmabuf(r->verbs, b->fd, b->offset, p, len, &verbs, err)
	       : verbs_memory_new(r->verbs, p, len, &verbs, err);
	pthread_mutex_lock(&r->mem_lock);
	m->verbs = verbs;
	if (rc < 0)
		take_out(m);
	pthread_mutex_unlock(&r->mem_lock);
	if (rc < 0)
		free(m);
	return rc;
}

/* With the lock held. */
static struct rmem *find(struct rdma *r, const void *p)
{
	list_for_each (l, &r->memories) {
		struct rmem *m = container_of(l, struct rmem, link);

		if (m->at == (uintptr_t)p && !m->dropped)
			return m;
	}
	return NULL;
}

/* Memory of the library, registered as such already? */
static bool is_named_now(struct rdma *r, const void *p, size_t len)
{
	struct rmem *m;
	bool is;

	pthread_mutex_lock(&r->mem_lock);
	m = find(r, p);
	is = m && m->owned && m->verbs && !m->named && len && len <= m->len;
	if (is)
		m->named = true;
	pthread_mutex_unlock(&r->mem_lock);
	return is;
}

int rdma_memory_add(struct rdma *r, void *p, size_t len, struct err *err)
{
	return is_named_now(r, p, len) ? 0 : add(r, p, len, false, NULL, err);
}

int rdma_memory_add_dmabuf(struct rdma *r, const struct rdma_dmabuf *b, void *map, size_t len,
			   struct err *err)
{
	return add(r, map, len, false, b, err);
}

int rdma_memory_del(struct rdma *r, const void *p)
{
	struct verbs_memory *verbs = NULL;
	struct rmem *m;
	int rc;

	pthread_mutex_lock(&r->mem_lock);
	m = find(r, p);
	if (!m || (m->owned && !m->named))
		rc = -ENOENT;
	else
		rc = m->users || !m->verbs ? -EBUSY : 0;
	if (!rc && m->owned) {
		m->named = false; /* until rdma_buffer_free() */
		m = NULL;
	} else if (!rc) {
		verbs = m->verbs;
		m->verbs = NULL;
	}
	pthread_mutex_unlock(&r->mem_lock);
	if (rc < 0 || !m)
		return rc;
	verbs_memory_free(verbs);
	pthread_mutex_lock(&r->mem_lock);
	take_out(m); /* now, not before, is it to be had again */
	pthread_mutex_unlock(&r->mem_lock);
	free(m);
	return 0;
}

/* ---- memory of the library ---- */

int rdma_buffer_add(struct rdma *r, void *p, size_t len, struct err *err)
{
	return add(r, p, len, true, NULL, err);
}

/* No device knows of it any more. */
static void buffer_gone(void *arg)
{
	struct rmem *m = arg;
	struct rdma *r = m->rdma;

	pthread_mutex_lock(&r->mem_lock);
	take_out(m); /* before somebody else gets the memory, and registers it */
	pthread_cond_broadcast(&r->mem_gone);
	pthread_mutex_unlock(&r->mem_lock);
	free((void *)m->at);
	free(m);
}

bool rdma_buffer_drop(struct rdma *r, void *p)
{
	struct rmem *m;
	bool found, idle;

	pthread_mutex_lock(&r->mem_lock);
	m = find(r, p);
	found = m && m->owned;
	idle = found && !m->users;
	if (found)
		m->dropped = true;
	pthread_mutex_unlock(&r->mem_lock);
	if (idle)
		verbs_memory_free_later(m->verbs, buffer_gone, m);
	return found;
}

/* ---- in use ---- */

struct rmem *rdma_memory_get(struct rdma *r, const void *p, size_t len)
{
	const uintptr_t at = (uintptr_t)p;
	struct rmem *found = NULL;

	pthread_mutex_lock(&r->mem_lock);
	list_for_each (l, &r->memories) {
		struct rmem *m = container_of(l, struct rmem, link);

		if (m->verbs && !m->dropped && at >= m->at && len <= m->len &&
		    at - m->at <= m->len - len) {
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
	bool ends;

	if (!m)
		return;
	pthread_mutex_lock(&m->rdma->mem_lock);
	m->users--;
	ends = m->dropped && !m->users;
	pthread_mutex_unlock(&m->rdma->mem_lock);
	if (ends)
		verbs_memory_free_later(m->verbs, buffer_gone, m);
}

struct verbs_memory *rdma_memory_verbs(const struct rmem *m)
{
	return m->verbs; /* in use: it stays */
}

/* With the lock held. */
static bool any_dropped(const struct rdma *r)
{
	list_for_each (l, &r->memories)
		if (container_of(l, struct rmem, link)->dropped)
			return true;
	return false;
}

void rdma_memories_fini(struct rdma *r)
{
	pthread_mutex_lock(&r->mem_lock);
	while (any_dropped(r))
		pthread_cond_wait(&r->mem_gone, &r->mem_lock);
	pthread_mutex_unlock(&r->mem_lock);
	list_for_each (l, &r->memories) { /* of a caller that did not give them back */
		struct rmem *m = container_of(l, struct rmem, link);

		list_del(l);
		verbs_memory_free(m->verbs);
		free(m);
	}
}

struct rmem *stream_memory_get(struct dfs *fs, const void *p, size_t len)
{
	struct rmem *m = NULL;

	if (atomic_load_explicit(&fs->memories, memory_order_relaxed) == 0)
		return NULL;
	pthread_mutex_lock(&fs->rdma_lock);
	if (fs->rdma)
		m = rdma_memory_get(fs->rdma, p, len);
	pthread_mutex_unlock(&fs->rdma_lock);
	return m;
}

bool stream_is_registered(struct dfs *fs, const void *p, size_t len)
{
	struct rmem *m = stream_memory_get(fs, p, len);

	rdma_memory_put(m);
	return m != NULL;
}

/* ---- what nodes may touch, on the reactor ---- */

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

static void on_gone(struct xconn *x)
{
	struct rconn *c = x->user;

	list_for_each (l, &c->calls) {
		struct rcall *k = container_of(l, struct rcall, link);

		if (k->on_gone)
			k->on_gone(k);
	}
	rdma_conn_put(c);
}

struct xremote rdma_window_open(struct rcall *call, struct verbs_window *w, void *p, uint32_t len,
				enum verbs_right right)
{
	struct rconn *c = call->conn;

	if (!c->tells) {
		c->tells = true;
		c->refs++; /* on_gone() */
		c->x->user = c;
		c->x->gone = on_gone;
	}
	return verbs_window_open(c->x, w, p, len, right);
}

int rdma_expose(const struct rcall *c, struct verbs_exposure *e, struct xremote *ret)
{
	return c->conn->state == RC_UP ? verbs_expose(c->conn->x, e, ret) : -ECONNRESET;
}

bool rdma_turn_take(const struct rcall *c, struct verbs_turn *t)
{
	return c->conn->state != RC_UP || verbs_turn_take(c->conn->x, t);
}

void rdma_turn_wait(const struct rcall *c, struct verbs_turn *t)
{
	verbs_turn_wait(c->conn->x, t);
}
