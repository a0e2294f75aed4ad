/* SPDX-License-Identifier: Apache-2.0 */
#include "client/src/fs/housekeeper.h"

#include <signal.h>

#include "ClientNamenodeProtocol.pb-c.h"
#include "client/src/fs/fs.h"
#include "common/base/clock.h"

/* how often an idle pipeline is looked at, at least, and others are asked, at most */
#define ROUND_MS 5000
#define KEEPALIVE_MIN_MS 100

uint64_t housekeeper_beat_ns(const struct dfs *fs)
{
	const uint32_t half = fs->set.socket_timeout_ms / 2; /* 0: no timeout */
	const uint32_t ms = !half || half > KEEPALIVE_MS ? KEEPALIVE_MS : half;

	return (ms < KEEPALIVE_MIN_MS ? KEEPALIVE_MIN_MS : ms) * NS_PER_MS;
}

void housekeeper_init(struct housekeeper *k)
{
	*k = (struct housekeeper){0};
	pthread_mutex_init(&k->lock, NULL);
	list_init(&k->writers);
	clock_cond_init(&k->beat.wake);
	clock_cond_init(&k->ask.wake);
}

/* A renewal that fails is tried again in the next round: the lease holds for 60 s at least, and if
 * it is lost the writer learns it from its next call. */
static bool renew_lease(struct dfs *fs)
{
	Hd__RenewLeaseRequestProto req = HD__RENEW_LEASE_REQUEST_PROTO__INIT;

	req.clientname = fs->client_name;
	return nn_call(fs, "renewLease", &req.base, &hd__renew_lease_response_proto__descriptor,
		       NULL, NULL) == 0;
}

static void visit_writers(struct housekeeper *k, uint64_t now_ns)
{
	list_for_each (l, &k->writers) {
		struct housekept *w = container_of(l, struct housekept, link);

		w->keep_alive(w, now_ns);
	}
}

/* Until then at the latest; early is fine. */
static void sleep_locked(struct housekeeper *k, struct housekeeper_thread *t, uint64_t until_ns)
{
	const struct timespec ts = {(time_t)(until_ns / NS_PER_S), (long)(until_ns % NS_PER_S)};

	if (!k->stop)
		(void)pthread_cond_timedwait(&t->wake, &k->lock, &ts);
}

/* ---- the thread that waits for nobody ---- */

static uint64_t next_round_ns(const struct dfs *fs)
{
	const uint64_t part = housekeeper_beat_ns(fs) / 4; /* so that no beat comes much too late */
	const uint64_t most = part < ROUND_MS * NS_PER_MS ? part : ROUND_MS * NS_PER_MS,
		       idle = idle_streams_round_ns(fs);

	return clock_mono_ns() + (idle < most ? idle : most);
}

static void *beat_main(void *arg)
{
	struct dfs *fs = arg;
	struct housekeeper *k = &fs->keeper;

	pthread_mutex_lock(&k->lock);
	while (!k->stop) {
		const uint64_t now = clock_mono_ns();

		visit_writers(k, now);
		(void)local_reap(fs);
		idle_streams_reap(fs, now);
		sleep_locked(k, &k->beat, next_round_ns(fs));
	}
	pthread_mutex_unlock(&k->lock);
	return NULL;
}

/* ---- the thread that calls the NameNode and data nodes, which may take long ---- */

static void ask_locked(struct dfs *fs, struct housekeeper *k, uint64_t now)
{
	const bool renew =
		!list_empty(&k->writers) && now - k->renewed_ns >= LEASE_RENEW_MS * NS_PER_MS;
	bool ok;

	pthread_mutex_unlock(&k->lock);
	if (fs->closed.count)
		early_close_settle_quietly(fs);
	if (fs->late.count)
		deferred_sync_settle_quietly(fs);
	ok = renew && renew_lease(fs);
	pthread_mutex_lock(&k->lock);
	if (ok)
		k->renewed_ns = now;
}

static void *ask_main(void *arg)
{
	struct dfs *fs = arg;
	struct housekeeper *k = &fs->keeper;

	pthread_mutex_lock(&k->lock);
	while (!k->stop) {
		const uint64_t now = clock_mono_ns();

		if (now >= k->ask_ns) {
			k->ask_ns = now + ROUND_MS * NS_PER_MS;
			ask_locked(fs, k, now);
		}
		sleep_locked(k, &k->ask, k->ask_ns);
	}
	pthread_mutex_unlock(&k->lock);
	return NULL;
}

/* ---- life ---- */

/* Signals of the program are not for this thread. */
static int start_locked(struct dfs *fs, struct housekeeper_thread *t, void *(*run)(void *arg))
{
	sigset_t all, old;
	int rc;

	if (t->running)
		return 0;
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = ret_code(pthread_create(&t->id, NULL, run, fs));
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	t->running = rc == 0;
	return rc;
}

void housekeeper_start(struct dfs *fs)
{
	pthread_mutex_lock(&fs->keeper.lock);
	if (!fs->keeper.stop)
		(void)start_locked(fs, &fs->keeper.beat, beat_main); /* else the next one does */
	pthread_mutex_unlock(&fs->keeper.lock);
}

void housekeeper_wake(struct dfs *fs)
{
	housekeeper_start(fs);
	pthread_cond_signal(&fs->keeper.beat.wake);
}

int housekeeper_add(struct dfs *fs, struct housekept *writer, struct err *err)
{
	struct housekeeper *k = &fs->keeper;
	int rc;

	pthread_mutex_lock(&k->lock);
	if (list_empty(&k->writers))
		k->renewed_ns = clock_mono_ns(); /* create() has just done it */
	rc = start_locked(fs, &k->beat, beat_main) ?: start_locked(fs, &k->ask, ask_main);
	if (rc == 0)
		list_add_tail(&k->writers, &writer->link);
	pthread_mutex_unlock(&k->lock);
	return rc < 0 ? err_sys(err, rc, "cannot start the threads that renew leases") : 0;
}

void housekeeper_remove(struct dfs *fs, struct housekept *writer)
{
	pthread_mutex_lock(&fs->keeper.lock);
	list_del(&writer->link);
	pthread_mutex_unlock(&fs->keeper.lock);
}

static void join(struct housekeeper_thread *t)
{
	if (t->running)
		(void)pthread_join(t->id, NULL);
	(void)pthread_cond_destroy(&t->wake);
}

void housekeeper_fini(struct housekeeper *k)
{
	pthread_mutex_lock(&k->lock);
	k->stop = true;
	pthread_cond_signal(&k->beat.wake);
	pthread_cond_signal(&k->ask.wake);
	pthread_mutex_unlock(&k->lock);
	join(&k->beat);
	join(&k->ask);
}
