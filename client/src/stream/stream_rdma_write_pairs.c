/* SPDX-License-Identifier: Apache-2.0 */
/* stream_rdma_write_pairs - the pairs of slots of a stream whose packets are copied; all of it runs
 * on the reactor's thread
 *
 * The caller's thread asks for a pair (ask_msg) when the packet that it would send next has no
 * registered memory. The reactor takes the pair from the pool, and the caller fetches it:
 * COPY_NONE, COPY_ASKED, COPY_THERE.
 * A stream that has no pair waits in the pool's line. A stream whose packets lie in pairs does not:
 * it asks again when one of its pairs comes back. The pipeline says how long that may take
 * (pipeline.h). While somebody waits, a pair that its caller does not fetch for UNFETCHED_NS is
 * given back. */
#include "client/src/stream/stream_rdma_write_internal.h"
#include "common/base/clock.h"

/* so long a pair waits for its caller while others wait for one */
#define UNFETCHED_NS (200 * NS_PER_MS)

static void look_again(struct rdma_w *w)
{
	if (!w->ending)
		reactor_ready(rdma_reactor(w->rdma), &w->rop);
}

void rdma_w_put_pair(struct rdma_w *w, struct slot *data, struct slot *crc)
{
	w->pairs--;
	slot_put(data);
	slot_put(crc);
	if (w->again)
		look_again(w);
}

static void give(struct rdma_w *w)
{
	w->pairs++;
	pthread_mutex_lock(&w->m.lock);
	w->pair[0] = w->wanted.slot[0];
	w->pair[1] = w->wanted.slot[1];
	w->copy_state = COPY_THERE;
	w->copy_there_ns = clock_mono_ns();
	meeting_ring(&w->m);
	pthread_mutex_unlock(&w->m.lock);
}

static void ask_pair(struct rdma_w *w)
{
	rdma_pair_init(&w->wanted, w->rdma, POOL_WRITE, &w->rop);
	rdma_pair_form(&w->wanted, rdma_class(w->copy_len), rdma_crc_class(w->copy_crc_len));
	w->again = false;
	if (pool_take(rdma_pool(w->rdma), &w->wanted.ask))
		give(w);
	else if (w->pairs)
		w->again = true;
	else
		pool_wait(rdma_pool(w->rdma), &w->wanted.ask);
}

static bool w_step(struct rop *op)
{
	struct rdma_w *w = container_of(op, struct rdma_w, rop);

	if (rdma_pair_fetch(&w->wanted))
		give(w);
	else if (w->again)
		ask_pair(w);
	return false;
}

static void on_ask(struct rmsg *msg)
{
	struct rdma_w *w = container_of(msg, struct rdma_w, ask_msg);

	if (!list_is_linked(&w->holder.link))
		rdma_holder_add(w->rdma, &w->holder);
	ask_pair(w);
}

/* Somebody waits for slots, and the caller does not come for its pair: it asks again when it does.
 */
static void w_shed(struct rholder *h, uint64_t before_ns)
{
	struct rdma_w *w = container_of(h, struct rdma_w, holder);
	bool idle;

	pthread_mutex_lock(&w->m.lock);
	idle = w->copy_state == COPY_THERE && w->copy_there_ns + UNFETCHED_NS < before_ns;
	if (idle)
		w->copy_state = COPY_NONE;
	pthread_mutex_unlock(&w->m.lock);
	if (idle)
		rdma_w_put_pair(w, w->pair[0], w->pair[1]);
}

void rdma_w_pairs_init(struct rdma_w *w)
{
	w->ask_msg.fn = on_ask;
	w->holder.shed = w_shed;
	rop_init(&w->rop, w_step, NULL);
}

void rdma_w_pairs_end(struct rdma_w *w)
{
	w->ending = true;
	rdma_holder_remove(&w->holder);
	rdma_pair_end(&w->wanted);
	if (w->copy_state == COPY_THERE)
		rdma_w_put_pair(w, w->pair[0], w->pair[1]);
	list_del(&w->rop.ready_link);
}
