/* SPDX-License-Identifier: Apache-2.0 */
#include "datanode/data_port/data_port_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/domain.h"
#include "common/base/log.h"
#include "common/base/metrics.h"
#include "common/transport/transport.h"
#include "datanode/block/buffers.h"
#include "datanode/block/engine.h"
#include "datanode/block/hot_copies.h"
#include "datanode/block/moves.h"
#include "datanode/block/operations.h"
#include "datanode/block/suspects.h"
#include "datanode/block/token.h"
#include "datanode/capsule/capsule_port.h"
#include "datanode/dtp/dtp.h"
#include "datanode/reconstruct/reconstruct.h"

#define DATA_PORT "data port (dfs.datanode.address)"
#define POOL_DEFAULT (128u << 20)
#define LANDING_LEAST 24u    /* of 256 KiB: what a reconstruction of RS-10-4 reads into */
#define CONNS_MAX (1u << 20) /* whatever the limit is changed to while the node runs */
#define LIMIT_LOG_MS 60000
#define RESTART_GRACE_MS 2500 /* for clients to let go; they are back after 4 s at the earliest */
#define STOP_AFTER_CANCEL_MS 35000 /* a disk request cannot be cancelled */
#define STOP_LET_GO_MS 5000u       /* devices, of what is registered with them */

/* ---- run a function on a reactor and wait ---- */

struct call {
	struct rmsg msg;
	int (*fn)(struct engine_core *core, void *arg);
	struct engine_core *core;
	void *arg;
	int rc;
	bool done;
};

static void call_run(struct rmsg *m)
{
	struct call *c = container_of(m, struct call, msg);
	struct data_port *x = c->core->xfer;
	const int rc = c->fn(c->core, c->arg);

	pthread_mutex_lock(&x->lock);
	c->rc = rc;
	c->done = true;
	pthread_cond_broadcast(&x->cond);
	pthread_mutex_unlock(&x->lock);
}

static int call_on(struct engine_core *core, int (*fn)(struct engine_core *core, void *arg),
		   void *arg)
{
	struct call c = {.msg.fn = call_run, .fn = fn, .core = core, .arg = arg};
	struct data_port *x = core->xfer;

	if (reactor_is_current(core->reactor)) /* not started yet */
		return fn(core, arg);
	reactor_post(core->reactor, &c.msg);
	pthread_mutex_lock(&x->lock);
	while (!c.done)
		pthread_cond_wait(&x->cond, &x->lock);
	pthread_mutex_unlock(&x->lock);
	return c.rc;
}

/* ---- what is under way ---- */

static int core_ops(struct engine_core *core, void *arg)
{
	struct operation_list *l = arg;

	l->now_ns = clock_mono_ns();
	block_read_list(core, l);
	block_write_list(core, l);
	reconstruct_list(core, l);
	entries_list(core, l);
	return 0;
}

void xfer_entry_begin_first(struct data_port *x, struct operation_entry *e,
			    void (*tell)(const struct operation_entry *e, struct operation *ret))
{
	xfer_entry_begin(&x->cores[0], e, tell);
}

int data_port_ops(struct data_port *x, struct operation **ret, uint32_t *ret_count)
{
	struct operation *all = NULL;
	uint32_t count = 0;

	for (uint32_t i = 0; i < x->dn->reactor_count; i++) {
		struct operation_list l = {0};
		struct operation *grown;

		(void)call_on(&x->cores[i], core_ops, &l);
		grown = realloc(all, (count + l.count + 1) * sizeof(*all));
		if (!grown) {
			free(all);
			free(l.op);
			return -ENOMEM;
		}
		all = grown;
		for (uint32_t k = 0; k < l.count; k++) {
			all[count] = l.op[k];
			all[count++].reactor = i;
		}
		free(l.op);
	}
	*ret = all;
	*ret_count = count;
	return 0;
}

/* ---- start ---- */

static int read_waits(struct engine_waits *w, const struct conf *conf, struct err *err)
{
	uint64_t read_ms = 0, write_ms = 0, keepalive_ms = 0, buffers_ms = 0;
	int rc = conf_time_ms(conf, "dfs.client.socket-timeout", 60000, &read_ms, err);

	if (rc == 0)
		rc = conf_time_ms(conf, "dfs.datanode.socket.write.timeout", 480000, &write_ms,
				  err);
	if (rc == 0)
		rc = conf_time_ms(conf, "dfs.datanode.socket.reuse.keepalive", 4000, &keepalive_ms,
				  err);
	if (rc == 0)
		rc = conf_time_ms(conf, "dfs.rdma.pool.wait", 30000, &buffers_ms, err);
	if (rc < 0)
		return rc;
	w->read_ns = read_ms && read_ms < XFER_FOREVER_NS / NS_PER_MS ? read_ms * NS_PER_MS
								      : XFER_FOREVER_NS;
	w->write_ns = write_ms && write_ms < XFER_FOREVER_NS / NS_PER_MS ? write_ms * NS_PER_MS
									 : XFER_FOREVER_NS;
	w->buffers_ns = buffers_ms && buffers_ms < XFER_FOREVER_NS / NS_PER_MS
				? buffers_ms * NS_PER_MS
				: XFER_FOREVER_NS;
	w->keepalive_ns = keepalive_ms < XFER_FOREVER_NS / NS_PER_MS ? keepalive_ms * NS_PER_MS
								     : XFER_FOREVER_NS;
	return 0;
}

static int read_conf(struct data_port *x, struct err *err)
{
	const struct conf *conf = x->dn->conf;
	int rc;

	rc = conf_size(conf, "dfs.rdma.pool.size", POOL_DEFAULT, &x->pool_bytes, err);
	if (rc == 0)
		rc = conf_bool(conf, "dfs.rdma.read.direct", true, &x->read_direct, err);
	if (rc == 0)
		rc = conf_time_ms(conf, "dfs.datanode.restart.replica.expiration", 50000,
				  &x->restart_keep_ms, err);
	return rc ? rc : read_waits(&x->waits, conf, err);
}

/* Once, whichever reactor finds that no more huge pages are to be had. */
static void tell_small_pages(const struct engine_core *core)
{
	struct data_port *x = core->xfer;

	if (x->told_small_pages || pool_is_huge(core->pool))
		return;
	x->told_small_pages = true;
	log_info("op=start: the %" PRIu64
		 " MiB of dfs.rdma.pool.size are not all on huge pages, which a "
		 "device looks up faster; vm.nr_hugepages=%" PRIu64
		 " more reserves enough of 2 MiB",
		 x->pool_bytes >> 20, (x->pool_bytes >> 21) + x->dn->reactor_count);
}

static int core_pool(struct engine_core *core, struct err *err)
{
	const uint64_t bytes = core->xfer->pool_bytes / core->dn->reactor_count;
	struct pool_opts opts;
	uint32_t receives = 0;
	int rc;

	core->reconstruct_slots_max = (uint32_t)(bytes / 8 >> 16); /* a half of them */
	if ((uint64_t)(core - core->xfer->cores) < core->dn->live.ec_threads) {
		core->landing_slots_max = (uint32_t)(bytes / 8 >> 18);
		if (core->landing_slots_max < LANDING_LEAST)
			core->landing_slots_max = LANDING_LEAST;
	}
	core->pool = reactor_pool(core->reactor);
	if (core->pool)
		return 0;
	if (bytes < (8u << 20))
		return err_set(err, -EINVAL,
			       "dfs.rdma.pool.size leaves %" PRIu64
			       " bytes for each reactor; 8 MiB are"
			       " the least",
			       bytes);
	rc = capsule_receive_slots(core, &receives, err);
	if (rc < 0)
		return rc;
	opts = buffers_pool(bytes, receives);
	opts.near_node = reactor_near_node(core->reactor);
	rc = pool_new(&opts, &core->pool, err);
	if (rc < 0) {
		err_prefix(err, "dfs.rdma.pool.size");
		return rc;
	}
	core->xfer->own_pool[core - core->xfer->cores] = true;
	tell_small_pages(core);
	rc = reactor_register_pool(core->reactor, core->pool, err);
	if (rc < 0)
		log_warn("op=start: going on without fixed buffers: %s",
			 err ? err->text : err_name(rc));
	return 0;
}

void engine_count_conn(struct engine_core *core, int delta)
{
	core->conn_count += (uint32_t)delta;
	metric_set(METRIC_DN_CONNS,
		   atomic_fetch_add(&core->xfer->conns, (uint32_t)delta) + (uint32_t)delta);
}

static void on_refused(void *arg)
{
	(void)arg;
	metric_add(METRIC_DN_CONNS_REFUSED, 1);
}

/* ---- connections at the limit ---- */

static void close_promised(struct engine_core *core)
{
	for (uint32_t n = atomic_exchange(&core->idle_promised, 0); n; n--) {
		atomic_fetch_add(&core->idle_free, 1);
		if (dtp_close_oldest_idle(core))
			metric_add(METRIC_DN_CONNS_IDLE_CLOSED, 1);
	}
}

static void on_room_wanted(struct rmsg *m)
{
	struct engine_core *core = container_of(m, struct engine_core, idle_msg);

	atomic_store(&core->idle_posted, false); /* from here on it may be posted again */
	close_promised(core);
}

/* Promise a connection that waits for an operation: false when @core has none that is not promised
 * yet. */
static bool idle_promise(struct engine_core *core)
{
	int n = atomic_load(&core->idle_free);

	while (n > 0)
		if (atomic_compare_exchange_weak(&core->idle_free, &n, n - 1)) {
			atomic_fetch_add(&core->idle_promised, 1);
			return true;
		}
	return false;
}

/* Peers that connect and ask for nothing lock nobody out: one of them goes, of this reactor if it
 * has any. */
static bool make_room(struct engine_core *core)
{
	struct data_port *x = core->xfer;
	const uint32_t count = x->dn->reactor_count, own = (uint32_t)(core - x->cores);

	for (uint32_t i = 0; i < count; i++) {
		struct engine_core *from = &x->cores[(own + i) % count];

		if (!idle_promise(from))
			continue;
		if (from == core)
			close_promised(core);
		else if (!atomic_exchange(&from->idle_posted, true))
			reactor_post(from->reactor, &from->idle_msg);
		return true;
	}
	return false;
}

static void log_limit(struct engine_core *core, bool room)
{
	struct data_port *x = core->xfer;
	uint32_t dropped;
	bool ok;

	pthread_mutex_lock(&x->lock);
	ok = log_rate_ok(&x->limit_log, LIMIT_LOG_MS, &dropped);
	pthread_mutex_unlock(&x->lock);
	if (ok)
		log_warn(
			"op=conn: %" PRIu64
			" data connections are open (dfs.datanode.max.transfer.threads): %s; %" PRIu32
			" more times since this was last said",
			(uint64_t)core->dn->live.max_xceivers,
			room ? "an idle one is closed for a new one"
			     : "none is idle, a new one is refused",
			dropped);
}

/* As stock nodes do: who is too many hears nothing but the end. */
static void on_accepted(void *arg, struct xconn *c)
{
	struct engine_core *core = (struct engine_core *)arg;
	const bool full = atomic_load(&core->xfer->conns) >= core->dn->live.max_xceivers;
	const bool room = !full || make_room(core);

	if (full)
		log_limit(core, room);
	if (room) {
		dtp_accept(core, c);
		return;
	}
	on_refused(NULL);
	xconn_close(c);
}

static struct xlistener_opts listener_opts(struct engine_core *core)
{
	return (struct xlistener_opts){
		.addr = core->dn->data_addr,
		.reuseport = true,
		.max_conns = CONNS_MAX,
		.accepted = on_accepted,
		.refused = on_refused,
		.arg = core,
	};
}

static int core_start(struct engine_core *core, void *arg)
{
	struct err *err = (struct err *)arg;
	struct data_port *x = core->xfer;
	struct dn *dn = core->dn;
	const struct xlistener_opts opts = listener_opts(core);
	struct net_addr bound;
	int rc = core_pool(core, err);

	if (rc < 0)
		return rc;
	rc = tcp_listen(core->reactor, &opts, &bound, &x->listeners[core - x->cores], err);
	if (rc < 0)
		return err_prefix(err, DATA_PORT);
	dn->data_addr = bound; /* port 0 becomes the real one, for all */
	buffers_init(core);
	return capsule_start(core, x->cores, err);
}

/* Our listeners share the port with each other; a plain one tells whether another process has it.
 */
static int check_port(const struct net_addr *addr, struct err *err)
{
	const int rc = net_await_free(addr, err);

	return rc < 0 ? err_prefix(err, DATA_PORT) : rc;
}

/* A connection that writes has six files open: as many as the system lets us. */
static void raise_files(const struct data_port *x)
{
	const uint64_t wanted = x->dn->live.max_xceivers * 6;
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
		return;
	lim.rlim_cur = lim.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &lim);
	if (lim.rlim_cur < wanted)
		log_warn("op=start: the limit of open files is %" PRIu64 ", %" PRIu64
			 " may be needed: raise LimitNOFILE (ulimit -n)",
			 (uint64_t)lim.rlim_cur, wanted);
}

struct local_socket {
	int fd;
	bool pass_fds;
	struct err *err;
};

/* Every reactor takes connections from the one socket. */
static int core_listen_local(struct engine_core *core, void *arg)
{
	const struct local_socket *s = (const struct local_socket *)arg;
	const struct xlistener_opts opts = listener_opts(core);
	const int fd = ret_errno(fcntl(s->fd, F_DUPFD_CLOEXEC, 0));

	core->pass_fds = s->pass_fds;
	if (fd < 0)
		return err_sys(s->err, fd, "cannot listen at dfs.domain.socket.path");
	return tcp_listen_fd(core->reactor, &opts, fd,
			     &core->xfer->local_listeners[core - core->xfer->cores], s->err);
}

/* The socket of clients of this machine, where it is asked for: when the data port is known, which
 * may be in its name. */
static int listen_local(struct data_port *x, struct err *err)
{
	const char *text = conf_get_or(x->dn->conf, "dfs.domain.socket.path", "");
	struct local_socket s = {.fd = -1, .err = err};
	char path[DOMAIN_PATH_MAX];
	bool traffic = false;
	int rc = conf_bool(x->dn->conf, "dfs.client.read.shortcircuit", false, &s.pass_fds, err);

	rc = rc
		     ?: conf_bool(x->dn->conf, "dfs.client.domain.socket.data.traffic", false,
				  &traffic, err);
	if (rc < 0 || (!s.pass_fds && !traffic))
		return rc;
	if (!*text) {
		log_warn(
			"op=start: dfs.client.read.shortcircuit is set without dfs.domain.socket.path: local clients read over TCP");
		return 0;
	}
	rc = domain_path(text, net_port(&x->dn->data_addr), path, err);
	rc = rc ?: domain_path_check(path, err);
	if (rc == 0)
		rc = s.fd = domain_listen(path, err);
	for (uint32_t i = 0; rc >= 0 && i < x->dn->reactor_count; i++)
		rc = call_on(&x->cores[i], core_listen_local, &s);
	if (s.fd >= 0)
		(void)close(s.fd);
	if (rc >= 0)
		log_info("op=start: listening for local clients at %s", path);
	return rc < 0 ? rc : 0;
}

static void on_volumes_out(struct rmsg *m);

int data_port_start(struct dn *dn, struct data_port **ret, struct err *err)
{
	struct data_port *x = calloc(1, sizeof(*x));
	int rc;

	if (!x)
		return err_set(err, -ENOMEM, "out of memory");
	x->dn = dn;
	pthread_mutex_init(&x->lock, NULL);
	pthread_cond_init(&x->cond, NULL);
	suspects_init(&x->suspects);
	rc = token_keys_new(&x->tokens);
	for (uint32_t i = 0; i < dn->reactor_count; i++) {
		struct engine_core *core = &x->cores[i];

		core->xfer = x;
		core->dn = dn;
		core->tokens = x->tokens;
		core->moves = &x->moves;
		core->suspects = &x->suspects;
		core->reactor = dn->reactors[i];
		core->volumes_out_msg.fn = on_volumes_out;
		core->idle_msg.fn = on_room_wanted;
		list_init(&core->reads);
		list_init(&core->rebuilds);
		list_init(&core->rebuilds_waiting);
		list_init(&core->writes);
		list_init(&core->entries);
		list_init(&core->conns);
		list_init(&core->idle);
	}
	rc = rc ? rc : read_conf(x, err);
	rc = rc ? rc : check_port(&dn->data_addr, err);
	rc = rc ? rc : hot_copies_new(dn->conf, &dn->hot, err);
	if (rc == 0)
		raise_files(x);
	for (uint32_t i = 0; rc == 0 && i < dn->reactor_count; i++) {
		x->cores[i].read_direct = x->read_direct;
		x->cores[i].waits = x->waits;
		rc = call_on(&x->cores[i], core_start, err);
	}
	rc = rc ?: listen_local(x, err);
	if (rc < 0) {
		(void)data_port_stop(x, 0);
		data_port_free(x);
		return rc;
	}
	*ret = x;
	return 0;
}

/* ---- stop ---- */

static int core_stop(struct engine_core *core, void *arg)
{
	struct data_port *x = core->xfer;

	(void)arg;
	xlistener_close(x->listeners[core - x->cores]);
	x->listeners[core - x->cores] = NULL;
	xlistener_close(x->local_listeners[core - x->cores]);
	x->local_listeners[core - x->cores] = NULL;
	dtp_close_idle(core);
	suspects_stop(core->suspects, core);
	capsule_stop(core);
	return 0;
}

static int core_cancel(struct engine_core *core, void *arg)
{
	(void)arg;
	core->stopping = true;
	dtp_close_all(core);
	capsule_close_all(core);
	return 0;
}

static int core_end(struct engine_core *core, void *arg)
{
	(void)arg;
	if (!capsule_free(core)) /* better lost than written to */
		core->xfer->own_pool[core - core->xfer->cores] = false;
	buffers_fini(core);
	return 0;
}

static int core_busy(struct engine_core *core, void *arg)
{
	(void)arg;
	return core->op_count || core->conn_count;
}

/* True: all are. */
static bool wait_idle(struct data_port *x, uint32_t ms)
{
	const uint64_t deadline = clock_mono_ns() + ms * NS_PER_MS;

	for (uint32_t i = 0; i < x->dn->reactor_count; i++)
		while (call_on(&x->cores[i], core_busy, NULL)) {
			if (clock_mono_ns() >= deadline)
				return false;
			nanosleep(&(struct timespec){.tv_nsec = 5 * NS_PER_MS}, NULL);
		}
	return true;
}

static int core_let_go(struct engine_core *core, void *arg)
{
	(void)arg;
	capsule_let_go(core);
	return 0;
}

static uint32_t held(const struct data_port *x)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < x->dn->reactor_count; i++)
		n += capsule_held(&x->cores[i]);
	return n;
}

/* True: devices have let go of the cached blocks. */
static bool wait_let_go(struct data_port *x)
{
	const uint64_t deadline = clock_mono_ns() + STOP_LET_GO_MS * NS_PER_MS;

	for (uint32_t i = 0; i < x->dn->reactor_count; i++)
		(void)call_on(&x->cores[i], core_let_go, NULL);
	if (held(x))
		log_info("op=stop: waiting for RDMA devices to let go of %u cached blocks",
			 held(x));
	while (held(x)) {
		if (clock_mono_ns() >= deadline) {
			log_warn("op=stop: RDMA devices have not let go of %u cached blocks in %u "
				 "ms: they are left as they are",
				 held(x), STOP_LET_GO_MS);
			return false;
		}
		nanosleep(&(struct timespec){.tv_nsec = 5 * NS_PER_MS}, NULL);
	}
	return true;
}

/* True: what copies cached blocks has ended. */
static bool stop_copies(struct data_port *x)
{
	const bool ended = hot_copies_stop(x->dn->hot);

	if (!ended)
		log_warn("op=stop: a disk or an RDMA device does not answer the thread that copies "
			 "cached blocks: it is left as it is");
	return ended;
}

bool data_port_stop(struct data_port *x, uint32_t grace_ms)
{
	for (uint32_t i = 0; i < x->dn->reactor_count; i++)
		(void)call_on(&x->cores[i], core_stop, NULL);
	(void)wait_idle(x, grace_ms);
	for (uint32_t i = 0; i < x->dn->reactor_count; i++)
		(void)call_on(&x->cores[i], core_cancel, NULL);
	if (!wait_idle(x, STOP_AFTER_CANCEL_MS))
		return false;
	if (!stop_copies(x) || !wait_let_go(x))
		return false;
	for (uint32_t i = 0; i < x->dn->reactor_count; i++)
		(void)call_on(&x->cores[i], core_end, NULL);
	return true;
}

static int core_restart(struct engine_core *core, void *arg)
{
	core->restart_until_ms = *(const uint64_t *)arg;
	(void)core_stop(core, NULL); /* a client that hears of it must not find us again */
	block_write_restart_all(core);
	return 0;
}

bool data_port_stop_for_restart(struct data_port *x, uint32_t grace_ms)
{
	uint64_t until_ms = clock_wall_ms() + x->restart_keep_ms;

	for (uint32_t i = 0; i < x->dn->reactor_count; i++)
		(void)call_on(&x->cores[i], core_restart, &until_ms);
	return data_port_stop(x, grace_ms < RESTART_GRACE_MS ? grace_ms : RESTART_GRACE_MS);
}

static int core_evict(struct engine_core *core, void *arg)
{
	(void)arg;
	block_write_evict_all(core);
	return 0;
}

void data_port_evict_writers(struct data_port *x)
{
	for (uint32_t i = 0; i < x->dn->reactor_count; i++)
		(void)call_on(&x->cores[i], core_evict, NULL);
}

static void on_volumes_out(struct rmsg *m)
{
	struct engine_core *core = container_of(m, struct engine_core, volumes_out_msg);
	uint64_t out;

	atomic_store(&core->volumes_out_posted, false);
	out = atomic_exchange(&core->volumes_out, 0);
	for (uint32_t v = 0; v < 64; v++)
		if (out >> v & 1) {
			reactor_queue_pass(core->reactor, DN_VOLUME_QUEUE(v));
			/* its writers have been told */
			reactor_queue_drop(core->reactor, XFER_WRITE_QUEUE(v));
			block_read_volume_out(core, v);
		}
}

void data_port_volume_out(struct data_port *x, uint32_t volume)
{
	for (uint32_t i = 0; i < x->dn->reactor_count; i++) {
		struct engine_core *core = &x->cores[i];

		atomic_fetch_or(&core->volumes_out, 1ull << volume);
		if (!atomic_exchange(&core->volumes_out_posted, true))
			reactor_post(core->reactor, &core->volumes_out_msg);
	}
}

void data_port_free(struct data_port *x)
{
	if (!x)
		return;
	for (uint32_t i = 0; i < x->dn->reactor_count; i++) {
		spares_fini(&x->cores[i].spare_reads);
		spares_fini(&x->cores[i].spare_smalls);
		if (x->own_pool[i])
			pool_free(x->cores[i].pool);
	}
	hot_copies_free(x->dn->hot);
	x->dn->hot = NULL;
	token_keys_free(x->tokens);
	suspects_fini(&x->suspects);
	pthread_cond_destroy(&x->cond);
	pthread_mutex_destroy(&x->lock);
	free(x);
}

/* ---- block keys ---- */

int data_port_block_keys(struct data_port *x, const char *pool_id,
			 const Hd__ExportedBlockKeysProto *keys, struct err *err)
{
	const bool before = token_is_wanted(x->tokens, pool_id);
	const int rc = token_keys_add(x->tokens, pool_id, keys, clock_wall_ms(), err);

	if (rc == 0 && before != token_is_wanted(x->tokens, pool_id))
		log_info("op=keys pool=%s: block access tokens are %s", pool_id,
			 before ? "not asked for any more" : "asked for from now on");
	return rc;
}
