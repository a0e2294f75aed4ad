/* SPDX-License-Identifier: Apache-2.0 */
/* stream_rdma_write_pairs - the pairs of slots of a stream whose packets are copied, or a window
 * and a slot for CRCs, of one whose packets lie in registered memory of the caller; all of it runs
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

static void put_window(struct verbs_window **w)
{
	if (*w)
		verbs_window_put(*w);
	*w = NULL;
}

static void give(struct rdma_w *w)
{
	w->pairs++;
	pthread_mutex_lock(&w->m.lock);
	w->pair[0] = w->wanted_lent ? NULL : w->wanted.slot[0];
	w->pair[1] = w->wanted.slot[!w->wanted_lent];
	w->pair_window = w->wanted_window;
	w->wanted_window = NULL;
	w->copy_state = COPY_THERE;
	w->copy_there_ns = clock_mono_ns();
	meeting_ring(&w->m);
	pthread_mutex_unlock(&w->m.lock);
}

/* Without a window to the caller's memory its bytes are copied, as others are. */
static void form(struct rdma_w *w)
{
	const enum slot_class crc = rdma_crc_class(w->copy_crc_len);

	rdma_pair_init(&w->wanted, w->rdma, POOL_WRITE, &w->rop);
	if (w->copy_memory)
		w->wanted_window = rdma_window_get(&w->call, w->copy_memory);
	w->wanted_lent = w->wanted_window;
	if (w->wanted_lent)
		w->wanted.ask.form[w->wanted.ask.forms++] =
			(struct pool_set){1, {{(uint8_t)crc, 1}}};
	else
		rdma_pair_form(&w->wanted, rdma_class(w->copy_len), crc);
}

static void ask_pair(struct rdma_w *w)
{
	form(w);
	w->again = false;
	if (pool_take(rdma_pool(w->rdma), &w->wanted.ask)) {
		give(w);
	} else if (w->pairs) {
		w->again = true;
		put_window(&w->wanted_window);
	} else {
		pool_wait(rdma_pool(w->rdma), &w->wanted.ask);
	}
}

static bool w_step(struct rop *op)
{
	struct rdma_w *w = container_of(op, struct rdma_w, rop);

	if (rdma_pair_fetch(&w->wanted))
		give(w);
	else if (w->again)
		ask_pair(w);
	rdma_w_send_posted(w);
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
	if (idle) {
		put_window(&w->pair_window);
		rdma_w_put_pair(w, w->pair[0], w->pair[1]);
	}
}

void rdma_w_pairs_init(struct rdma_w *w)
{
	w->ask_msg.fn = on_ask;
	w->holder.shed = w_shed;
	rop_init(&w->rop, w_step, NULL);
	w->turn.rop = &w->rop;
}

/* The caller fetches nothing any more: it is told first. */
void rdma_w_pairs_lost(struct rdma_w *w)
{
	verbs_turn_end(&w->turn);
	put_window(&w->wanted_window);
	pthread_mutex_lock(&w->m.lock);
	put_window(&w->pair_window);
	pthread_mutex_unlock(&w->m.lock);
}

void rdma_w_pairs_end(struct rdma_w *w)
{
	w->ending = true;
	rdma_holder_remove(&w->holder);
	rdma_pair_end(&w->wanted);
	rdma_w_pairs_lost(w);
	if (w->copy_state == COPY_THERE)
		rdma_w_put_pair(w, w->pair[0], w->pair[1]);
	list_del(&w->rop.ready_link);
}
