/* SPDX-License-Identifier: Apache-2.0 */
/* The turns of a reactor, its inbox, its pollers, its begin and end. Its io_uring is in ring.c. */
#include "common/reactor/reactor.h"

#include <assert.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/reactor/reactor_internal.h"

#define SQ_ENTRIES_DEFAULT 512
#define OFFLOAD_THREADS_DEFAULT 2
#define SPIN_MIN_NS 5000ull /* adaptive window: below this sleep at once */
#define TURN_NS 100000
#define SPIN_MAX_NS 200000ull
#define DRAIN_MAX_NS (30 * NS_PER_S) /* a disk request cannot be cancelled; wait this long for it */

/* On the heap, because it outlives its poller until the cancelled poll has come back. */
struct poller_wait {
	struct uring_op op;
	struct reactor *r;
	struct poller *p; /* NULL: the poller has left */
};

/* ---- inbox ---- */

static void wake(struct reactor *r)
{
	uint64_t one = 1;

	(void)!write(r->wake_fd, &one, sizeof(one)); /* EAGAIN: it is awake already */
}

void reactor_post_quiet(struct reactor *r, struct rmsg *m)
{
	struct rmsg *head = atomic_load(&r->inbox);

	do {
		atomic_store_explicit(&m->next, head, memory_order_relaxed);
	} while (!atomic_compare_exchange_weak(&r->inbox, &head, m));
}

/* Partner: sleep_begins(). Both sides store first and load the other's word after, all sequentially
 * consistent: either we see `sleeping` or the reactor sees what was posted. */
void reactor_wake(struct reactor *r)
{
	if (atomic_load(&r->sleeping) && atomic_exchange(&r->sleeping, false))
		wake(r);
}

void reactor_post(struct reactor *r, struct rmsg *m)
{
	reactor_post_quiet(r, m);
	reactor_wake(r);
}

static bool sleep_begins(struct reactor *r)
{
	atomic_store(&r->sleeping, true);
	if (!atomic_load(&r->inbox) && !atomic_load(&r->stop))
		return true;
	atomic_store(&r->sleeping, false);
	return false;
}

/* Newest first becomes oldest first: per sender the order of posting is kept. */
static uint32_t inbox_run(struct reactor *r)
{
	struct rmsg *m = atomic_exchange(&r->inbox, NULL), *oldest = NULL, *next;
	uint32_t n = 0;

	for (; m; m = next) {
		next = atomic_load_explicit(&m->next, memory_order_relaxed);
		atomic_store_explicit(&m->next, oldest, memory_order_relaxed);
		oldest = m;
	}
	for (m = oldest; m; m = next, n++) {
		next = atomic_load_explicit(&m->next, memory_order_relaxed);
		m->fn(m);
	}
	return n;
}

static void wake_done(struct uring_op *op, int res, uint32_t flags)
{
	struct reactor *r = container_of(op, struct reactor, wake_op);

	(void)res, (void)flags;
	r->own_ops--;
	r->wake_armed = false;
}

static void wake_arm(struct reactor *r)
{
	struct io_uring_sqe *sqe;

	if (r->wake_armed)
		return;
	sqe = reactor_sqe(r);
	io_uring_prep_read(sqe, r->wake_fd, &r->wake_count, sizeof(r->wake_count), 0);
	uring_attach(sqe, &r->wake_op);
	r->wake_armed = true;
	r->own_ops++;
}

/* Only atomics and write(2): allowed in a signal handler. */
void reactor_stop(struct reactor *r)
{
	int saved = errno;

	atomic_store(&r->stop, true);
	wake(r);
	errno = saved;
}

/* ---- pollers ---- */

static void poller_wait_done(struct uring_op *op, int res, uint32_t flags)
{
	struct poller_wait *w = container_of(op, struct poller_wait, op);

	(void)res;
	if (flags & IORING_CQE_F_MORE)
		return;
	w->r->own_ops--;
	if (w->p)
		w->p->wait = NULL;
	free(w);
}

static int poller_wait_arm(struct reactor *r, struct poller *p)
{
	struct poller_wait *w;
	struct io_uring_sqe *sqe;

	if (p->fd < 0 || p->wait)
		return 0;
	w = (struct poller_wait *)calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->r = r;
	w->p = p;
	w->op.done = poller_wait_done;
	sqe = reactor_sqe(r);
	io_uring_prep_poll_multishot(sqe, p->fd, POLLIN);
	uring_attach(sqe, &w->op);
	r->own_ops++;
	p->wait = w;
	return 0;
}

void reactor_poller_add(struct reactor *r, struct poller *p)
{
	assert(reactor_is_current(r));
	p->wait = NULL;
	list_add_tail(&r->pollers, &p->link);
}

void reactor_poller_del(struct reactor *r, struct poller *p)
{
	assert(reactor_is_current(r));
	list_del(&p->link);
	if (!p->wait)
		return;
	p->wait->p = NULL;
	reactor_cancel(r, &p->wait->op);
	p->wait = NULL;
}

/* A poller may take itself, but nobody else, off the list. */
static uint32_t pollers_run(struct reactor *r)
{
	uint32_t n = 0;

	list_for_each (l, &r->pollers) {
		struct poller *p = container_of(l, struct poller, link);

		n += (uint32_t)p->poll(p);
	}
	return n;
}

/* Ask for wake-ups, then look once more: what came in between would wake nobody. True: nothing
 * came, all are armed, the reactor may sleep. */
static bool pollers_arm(struct reactor *r)
{
	list_for_each (l, &r->pollers) {
		struct poller *p = container_of(l, struct poller, link);

		if (poller_wait_arm(r, p) < 0 || p->arm(p) < 0)
			return false;
	}
	return !pollers_run(r);
}

/* ---- a turn ---- */

void reactor_ready(struct reactor *r, struct rop *op)
{
	assert(reactor_is_current(r));
	if (!list_is_linked(&op->ready_link))
		list_add_tail(&r->ready, &op->ready_link);
}

void reactor_late(struct reactor *r, struct rop *op)
{
	assert(reactor_is_current(r));
	if (!list_is_linked(&op->ready_link))
		list_add_tail(&r->late, &op->ready_link);
}

static void step(struct rop *op)
{
	if (!op->step(op))
		return;
	list_del(&op->ready_link);
	if (op->free)
		op->free(op);
}

/* What becomes ready while stepping waits for the next turn. */
static uint32_t ready_run(struct reactor *r)
{
	struct list last, *l;
	uint32_t n = 0;

	if (list_empty(&r->ready))
		return 0;
	list_add_tail(&r->ready, &last); /* a mark */
	while ((l = list_pop(&r->ready)) != &last) {
		step(container_of(l, struct rop, ready_link));
		n++;
	}
	return n;
}

static void late_run(struct reactor *r)
{
	struct list *l;

	while ((l = list_pop(&r->late)))
		step(container_of(l, struct rop, ready_link));
}

static bool is_spinning(const struct reactor *r)
{
	return r->spin_ns && !list_empty(&r->pollers) && r->now_ns - r->useful_ns < r->spin_ns;
}

/* Halve on a wasted spin, double when the wake came so soon that spinning would have met it. */
static void spin_adapt(struct reactor *r, uint64_t slept_ns)
{
	if (!r->spin_adaptive)
		return;
	if (slept_ns < SPIN_MAX_NS / 4)
		r->spin_ns = r->spin_ns < SPIN_MIN_NS ? SPIN_MIN_NS : r->spin_ns * 2;
	else
		r->spin_ns = r->spin_ns / 2 < SPIN_MIN_NS ? 0 : r->spin_ns / 2;
	if (r->spin_ns > r->spin_max_ns)
		r->spin_ns = r->spin_max_ns;
}

static bool has_work(struct reactor *r)
{
	return !list_empty(&r->ready) || !list_empty(&r->late) || io_uring_cq_ready(&r->ring) ||
	       atomic_load(&r->inbox) || atomic_load(&r->stop);
}

/* Nanoseconds to the next timer; 0: it is due. */
static uint64_t time_left(const struct reactor *r)
{
	uint64_t next = timer_heap_next(&r->timers), now;

	if (!next)
		return UINT64_MAX;
	now = clock_mono_ns();
	return next > now ? next - now : 0;
}

/* How long to sleep, announced to the posters; 0: there is something to do. */
static uint64_t sleep_prepare(struct reactor *r)
{
	uint64_t ns;

	if (has_work(r) || is_spinning(r) || !pollers_arm(r) || has_work(r))
		return 0;
	wake_arm(r);
	ns = time_left(r);
	return ns && sleep_begins(r) ? ns : 0;
}

static void turn(struct reactor *r)
{
	uint64_t began_ns = r->now_ns, sleep_ns;
	uint32_t n = inbox_run(r);

	n += ring_run_completions(r);
	n += pollers_run(r);
	n += ready_run(r);
	n += timer_heap_run(&r->timers, r->now_ns);
	late_run(r);
	if (n)
		r->useful_ns = r->now_ns;
	sleep_ns = sleep_prepare(r);
	ring_enter(r, sleep_ns);
	r->now_ns = clock_mono_ns();
	if (sleep_ns) {
		atomic_store(&r->sleeping, false);
		spin_adapt(r, r->now_ns - began_ns);
	}
}

int reactor_run(struct reactor *r)
{
	int rc;

	atomic_store(&r->owner, pthread_self());
	rc = ring_enable(r);
	if (rc < 0)
		return rc;
	(void)io_uring_register_ring_fd(&r->ring); /* saves a file look-up per call; optional */
	r->now_ns = clock_mono_ns();
	while (!atomic_load(&r->stop))
		turn(r);
	atomic_store(&r->stop, false);
	(void)io_uring_unregister_ring_fd(&r->ring);
	return 0;
}

/* ---- end ---- */

static bool is_drained(struct reactor *r)
{
	return !r->ring_ops && !offload_out(r) && !has_work(r);
}

/* Cancel what is in flight and run what comes back, until nothing is left. On another thread than
 * the issuer's the kernel did the cancelling when that one ended. */
static void drain(struct reactor *r)
{
	uint64_t deadline_ns = clock_mono_ns() + DRAIN_MAX_NS;
	bool issuer = ring_enable(r) == 0;

	atomic_store(&r->stop, false);
	list_for_each (l, &r->pollers)
		reactor_poller_del(r, container_of(l, struct poller, link));
	while (!is_drained(r) && r->now_ns < deadline_ns) {
		if (issuer)
			ring_cancel_all(r);
		else
			ring_abort_queued(r);
		inbox_run(r);
		ring_run_completions(r);
		ready_run(r);
		timer_heap_run(&r->timers, r->now_ns);
		late_run(r);
		if (!is_drained(r) && !has_work(r))
			nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
		if (issuer)
			ring_enter(r, 0);
		r->now_ns = clock_mono_ns();
	}
}

/* The scheduler is asked for short turns, which begin sooner: a wish that Linux 6.12 and later
 * grant. */
static void ask_for_short_turns(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = {.size = sizeof(attr), .nice = getpriority(PRIO_PROCESS, 0), .runtime = TURN_NS};

	if (sched_getscheduler(0) != SCHED_OTHER) /* somebody knows better */
		return;
	(void)syscall(SYS_sched_setattr, 0, &attr, 0);
}

static void *thread_main(void *arg)
{
	struct reactor *r = (struct reactor *)arg;

	pthread_setname_np(pthread_self(), r->opts.name);
	ask_for_short_turns();
	if (CPU_COUNT(&r->opts.cpus) &&
	    sched_setaffinity(0, sizeof(r->opts.cpus),
			      &r->opts.cpus)) /* gone since they were chosen */
		log_warn("op=start: %s runs on any processor: %s", r->opts.name,
			 err_name(neg_errno()));
	reactor_run(r);
	drain(r);
	return NULL;
}

int reactor_start(struct reactor *r)
{
	sigset_t all, old;
	int rc;

	sigfillset(&all); /* signals are for the program's main thread */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = ret_code(pthread_create(&r->thread, NULL, thread_main, r));
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	r->started = !rc;
	return rc;
}

void reactor_join(struct reactor *r)
{
	if (!r->started)
		return;
	pthread_join(r->thread, NULL);
	r->started = false;
	atomic_store(&r->owner, pthread_self());
}

void reactor_free(struct reactor *r)
{
	if (!r)
		return;
	if (r->started) {
		reactor_stop(r);
		reactor_join(r);
	}
	atomic_store(&r->owner, pthread_self());
	if (r->ring_ready)
		drain(r);
	offload_fini(r);
	inbox_run(r);
	timer_heap_fini(&r->timers);
	if (r->ring_ready)
		io_uring_queue_exit(&r->ring);
	if (r->wake_fd >= 0)
		(void)close(r->wake_fd);
	free(r);
}

/* ---- begin ---- */

static void spin_init(struct reactor *r)
{
	int32_t us = r->opts.spin_us;

	r->spin_adaptive = us == REACTOR_SPIN_ADAPTIVE;
	/* With one or two cores the spinner would take the time of whom it waits for. */
	r->spin_max_ns = sysconf(_SC_NPROCESSORS_ONLN) > 2 ? SPIN_MAX_NS : 0;
	r->spin_ns = us == REACTOR_SPIN_ALWAYS ? UINT64_MAX : us > 0 ? (uint64_t)us * 1000 : 0;
}

int reactor_new(const struct reactor_opts *opts, struct reactor **ret, struct err *err)
{
	struct reactor *r = (struct reactor *)calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return err_set(err, -ENOMEM, "out of memory");
	r->opts = *opts;
	if (!r->opts.name)
		r->opts.name = "reactor";
	if (!r->opts.sq_entries)
		r->opts.sq_entries = SQ_ENTRIES_DEFAULT;
	if (!r->opts.offload_threads)
		r->opts.offload_threads = OFFLOAD_THREADS_DEFAULT;
	list_init(&r->ready);
	list_init(&r->late);
	list_init(&r->pollers);
	atomic_store(&r->owner, pthread_self());
	r->wake_op.done = wake_done;
	r->now_ns = clock_mono_ns();
	if (sched_getaffinity(0, sizeof(r->usable), &r->usable))
		CPU_ZERO(&r->usable);
	spin_init(r);
	rc = r->wake_fd = ret_errno(eventfd(0, EFD_CLOEXEC));
	if (rc < 0) {
		err_sys(err, rc, "cannot create an eventfd");
		goto fail;
	}
	rc = ring_init(r, err);
	if (rc < 0)
		goto fail;
	offload_init(r);
	*ret = r;
	return 0;
fail:
	reactor_free(r);
	return rc;
}

uint32_t reactor_near_node(const struct reactor *r)
{
	return r->opts.near_node;
}

bool reactor_is_current(const struct reactor *r)
{
	return pthread_equal(atomic_load_explicit(&r->owner, memory_order_relaxed), pthread_self());
}

uint64_t reactor_now_ns(const struct reactor *r)
{
	return r->now_ns;
}
