/* SPDX-License-Identifier: Apache-2.0 */
/* stream_rdma - blocks over RDMA; see stream.h and docs/wire.md sections 4 to 6.
 * A packet lies in registered memory, where the node reads it from (stream_rdma_write.c); a read
 * arrives in slots, a few requests ahead, is verified there and copied to the caller
 * (stream_rdma_read.c). */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "client/src/stream/stream_rdma_internal.h"
#include "common/base/clock.h"

#define CONNECT_NS (1000 * NS_PER_MS)       /* then TCP */
#define CONNECT_REQUIRED_NS (10 * NS_PER_S) /* there is no other way to go */

void meeting_init(struct meeting *m)
{
	pthread_mutex_init(&m->lock, NULL);
	clock_cond_init(&m->news);
	m->fd = -1;
}

void meeting_fini(struct meeting *m)
{
	if (m->fd >= 0)
		(void)close(m->fd);
	pthread_cond_destroy(&m->news);
	pthread_mutex_destroy(&m->lock);
}

void meeting_lost(struct meeting *m, int rc, const char *why)
{
	pthread_mutex_lock(&m->lock);
	if (!m->lost) { /* the first reason stays */
		snprintf(m->why, sizeof(m->why), "%s", why);
		m->lost = rc;
	}
	meeting_ring(m);
	pthread_mutex_unlock(&m->lock);
}

void meeting_ring(struct meeting *m)
{
	const uint64_t one = 1;

	pthread_cond_broadcast(&m->news);
	if (m->fd >= 0)
		(void)!write(m->fd, &one, sizeof(one)); /* full is rung already */
}

int meeting_poll(struct meeting *m, struct pollfd *ret)
{
	uint64_t rung;

	if (m->fd < 0)
		m->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (m->fd < 0)
		return neg_errno();
	(void)!read(m->fd, &rung, sizeof(rung)); /* of before: the caller has just looked */
	*ret = (struct pollfd){.fd = m->fd, .events = POLLIN};
	return 0;
}

int meeting_wait(struct meeting *m, uint64_t deadline_ns)
{
	const struct timespec ts = {.tv_sec = (time_t)(deadline_ns / NS_PER_S),
				    .tv_nsec = (long)(deadline_ns % NS_PER_S)};

	return ret_code(pthread_cond_timedwait(&m->news, &m->lock, &ts));
}

int rdma_reach(struct dfs *fs, const Hd__DatanodeIDProto *node, struct rdma **ret,
	       struct rcall *call, struct err *err)
{
	const uint64_t patience = fs->set.rdma == RDMA_REQUIRE ? CONNECT_REQUIRED_NS : CONNECT_NS;
	struct net_addr addr;
	int rc = rdma_get(fs, ret, err);

	rc = rc ?: node_addr(node, fs->set.use_hostname, false, &addr, err);
	return rc ?: rdma_call_start(*ret, &addr, clock_mono_ns() + patience, call, err);
}

int rdma_no_path(int rc, struct err *err)
{
	err->rc = rc == -ENOBUFS ? rc : -ENOLINK; /* this client is short: the node is not marked */
	return -ENOLINK;
}

/* Inside some slot_put(): no lock is taken here, since one of another stream may be held. */
static void on_granted(struct pool_ask *a)
{
	struct rdma_pair *p = container_of(a, struct rdma_pair, ask);

	p->granted = true;
	reactor_ready(rdma_reactor(p->rdma), p->rop);
}

void rdma_pair_init(struct rdma_pair *p, struct rdma *r, enum pool_use use, struct rop *rop)
{
	*p = (struct rdma_pair){
		.rdma = r,
		.rop = rop,
		.ask = {.use = use, .slots = p->slot, .granted = on_granted},
	};
}

void rdma_pair_form(struct rdma_pair *p, enum slot_class data, enum slot_class crc)
{
	p->ask.form[p->ask.forms++] = (struct pool_set){2, {{(uint8_t)data, 1}, {(uint8_t)crc, 1}}};
}

bool rdma_pair_fetch(struct rdma_pair *p)
{
	const bool granted = p->granted;

	p->granted = false;
	return granted;
}

void rdma_pair_end(struct rdma_pair *p)
{
	if (rdma_pair_fetch(p)) {
		slot_put(p->slot[0]);
		slot_put(p->slot[1]);
	} else if (pool_is_waiting(&p->ask)) {
		pool_wait_cancel(rdma_pool(p->rdma), &p->ask);
	}
}

int stream_no_buffers(const struct dfs *fs, const char *what, bool windows, struct err *err)
{
	err_set(err, -ENOBUFS,
		"%s: all RDMA %s of this process were in use for %u ms (dfs.rdma.pool.wait)", what,
		windows ? "memory windows" : "buffers", fs->set.rdma_wait_ms);
	return err_cure(err, "use fewer files at a time, or set dfs.client.rdma=auto to allow TCP");
}

void rdma_copy_text(char *dst, size_t size, struct capsule_bytes text)
{
	size_t n = text.len < size - 1 ? text.len : size - 1;

	if (n)
		memcpy(dst, text.p, n);
	dst[n] = '\0';
}

const struct block_stream stream_rdma = {
	.name = "rdma",
	.counter = 1,
	.keeps_alive = true,
	.open_write = rdma_open_write,
	.send = rdma_w_send,
	.next_ack = rdma_w_next_ack,
	.wait = rdma_w_wait,
	.poll_write = rdma_w_poll,
	.close_write = rdma_w_close,
	.open_read = rdma_open_read,
	.read = rdma_r_read,
	.close_read = rdma_r_close,
	.start_read = rdma_open_read,
	.try_read = rdma_r_try,
	.poll_read = rdma_r_poll,
	.come_to_rest = rdma_r_come_to_rest,
};
