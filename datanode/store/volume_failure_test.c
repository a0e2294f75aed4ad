/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: a volume goes out of service for what is its disk's fault and for nothing else,
 * comes back when it answers well in time, and who waits for a sync of it is told at once. */
#include <sys/mman.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#include "datanode/store/store_test_blocks.h"

/* ---- the disk ---- */

static atomic_int probe_fails, probe_ms, probes; /* with this error; takes so long; ended */
static atomic_bool hangs;                        /* a sync of finished blocks does */
static atomic_bool new_pool_hangs;               /* so does what makes one on the second volume */

int __real_fsync(int fd);
int __real_fdatasync(int fd);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);

static bool is_in(int fd, const char *part)
{
	char link[64], path[256] = "";

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, part);
}

int __wrap_fsync(int fd)
{
	const int ms = probe_ms, e = probe_fails;

	while (new_pool_hangs && is_in(fd, "/dn2/current/" POOL))
		nap();
	if (!is_in(fd, "/.probe"))
		return __real_fsync(fd);
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
	probes++;
	if (!e)
		return __real_fsync(fd);
	errno = e;
	return -1;
}

int __wrap_fdatasync(int fd)
{
	while (hangs)
		nap();
	return __real_fdatasync(fd);
}

static int setup_disk(void **state)
{
	probe_fails = probe_ms = 0;
	hangs = new_pool_hangs = false;
	return setup(state);
}

static int setup_two_closed(void **state)
{
	probe_fails = probe_ms = 0;
	*state = fix_new(2, STORAGE_DISK);
	return 0;
}

/* Whether it has come to @want. */
static bool reaches(const atomic_int *n, int want)
{
	const uint64_t until = clock_mono_ns() + 60 * NS_PER_S;

	while (*n < want && clock_mono_ns() < until)
		nap();
	return *n >= want;
}

/* ---- what it is out of service for ---- */

static void what_is_not_the_fault_of_the_disk_leaves_the_volume_in_service(void **state)
{
	static const int harmless[] = {ENOSPC, EDQUOT, EMFILE, ENFILE, ENOMEM, EINTR};
	struct fix *f = *state;

	probes = 0;
	for (size_t i = 0; i < sizeof(harmless) / sizeof(*harmless); i++) {
		probe_fails = harmless[i];
		store_volume_suspect(f->s, f->s->volumes[0].uuid);
		assert_int_equal(probes, (int)i + 1);
		assert_int_equal(store_failed_count(f->s), 0);
	}
	probe_fails = EIO;
	store_volume_suspect(f->s, f->s->volumes[0].uuid);
	assert_int_equal(store_failed_count(f->s), 1);
}

/* Its disk is not mounted any more, or somebody copied it. */
static void another_directory_in_its_place_is_a_failed_volume(void **state)
{
	struct fix *f = *state;
	char cmd[512];

	(void)snprintf(cmd, sizeof(cmd), "mv %s %s.before && cp -r %s.before %s", f->vol[0],
		       f->vol[0], f->vol[0], f->vol[0]);
	assert_int_equal(system(cmd), 0);
	store_volume_suspect(f->s, f->s->volumes[0].uuid);
	assert_int_equal(store_failed_count(f->s), 1);
}

/* It opens, and hangs when the NameNode has told which pool it is for. */
static void a_volume_that_hangs_while_a_pool_is_attached_is_left_out(void **state)
{
	struct fix *f = *state;

	f->opts.answer_ms = 400;
	f->opts.failed_tolerated = 1;
	new_pool_hangs = true;
	assert_int_equal(fix_open(f), 0);
	assert_int_equal(store_failed_count(f->s), 1);
	assert_int_equal(f->seen.failed, 1);
	new_pool_hangs = false;
	assert_true(reaches(&f->seen.back, 1));
	assert_int_equal(store_failed_count(f->s), 0);
}

/* ---- what it comes back for ---- */

static void a_volume_comes_back_when_it_answers_in_time(void **state)
{
	struct fix *f = *state;
	bool went, was_asked;
	int back;

	f->opts.answer_ms = 400; /* half of it is in time */
	fix_reopen(f);
	probe_ms = 800;
	went = reaches(&f->seen.failed, 1);
	was_asked = reaches(&probes, probes + 3);
	back = f->seen.back;
	probe_ms = 0;
	assert_true(went && was_asked);
	assert_int_equal(back, 0);
	assert_true(reaches(&f->seen.back, 1));
}

/* How often a line of the log in @fd has @part. */
static int told(int fd, const char *part)
{
	char log[16384];
	const ssize_t n = pread(fd, log, sizeof(log) - 1, 0);
	int found = 0;

	assert_true(n >= 0);
	log[n] = 0;
	for (const char *at = log; (at = strstr(at, part)); at++)
		found++;
	return found;
}

/* A disk whose network is gone hangs, and then has an error for each call. Its file system does not
 * get well by itself, which nobody knows who reads that it comes back when it answers. */
static void what_answers_with_an_error_after_it_hung_is_told_once(void **state)
{
	struct fix *f = *state;
	const int log = memfd_create("log", 0), kept = dup(STDERR_FILENO);
	bool went, was_asked;
	int back;

	f->opts.answer_ms = 400;
	fix_reopen(f);
	assert_true(log >= 0 && kept >= 0 && dup2(log, STDERR_FILENO) >= 0);
	probe_ms = 800;
	probe_fails = EIO;
	went = reaches(&f->seen.failed, 1);
	probe_ms = 0;
	was_asked = reaches(&probes, probes + 4);
	back = f->seen.back;
	(void)dup2(kept, STDERR_FILENO);
	(void)close(kept);
	assert_true(went && was_asked);
	assert_int_equal(told(log, "out of service: it does not answer"), 1);
	assert_int_equal(told(log, "answers, but with an error: Input/output error"), 1);
	assert_int_equal(f->seen.failed, 1);
	assert_int_equal(back, 0);
	(void)close(log);
	probe_fails = 0;
	assert_true(reaches(&f->seen.back, 1));
}

/* ---- who waits for it ---- */

struct asker {
	struct fix *f;
	uint64_t epoch;
	atomic_int answered;
	int rc;
};

static void *ask_main(void *arg)
{
	struct asker *a = arg;

	a->rc = store_sync_deferred(a->f->s, a->epoch);
	a->answered = 1;
	return NULL;
}

static void wait_asked(struct fix *f)
{
	struct deferred_sync *l = &f->s->volumes[0].deferred_sync;
	bool asked = false;

	while (!asked) {
		nap();
		pthread_mutex_lock(&l->lock);
		asked = l->hurry_to == 1;
		pthread_mutex_unlock(&l->lock);
	}
}

/* Its disk may never answer. */
static void who_waits_for_a_sync_is_told_when_the_volume_goes(void **state)
{
	struct fix *f = *state;
	struct asker a = {.f = f, .epoch = store_deferred_sync_epoch(f->s)};
	pthread_t t;
	bool told;

	f->s->volumes[0].ordered = false;
	hangs = true;
	assert_int_equal(
		replica_finalize(make_rbw(f, 5, 1001, 700), 700, SYNC_LATER, NULL, &f->err), 0);
	assert_int_equal(pthread_create(&t, NULL, ask_main, &a), 0);
	wait_asked(f);
	probe_fails = EIO;
	store_volume_suspect(f->s, f->s->volumes[0].uuid);
	told = reaches(&a.answered, 1);
	hangs = false;
	assert_int_equal(pthread_join(t, NULL), 0);
	assert_true(told);
	assert_int_equal(a.rc, -EIO);
	assert_int_equal(store_sync_deferred(f->s, a.epoch), -EIO); /* who comes later, too */
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup_disk, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_is_not_the_fault_of_the_disk_leaves_the_volume_in_service),
		T(another_directory_in_its_place_is_a_failed_volume),
		cmocka_unit_test_setup_teardown(
			a_volume_that_hangs_while_a_pool_is_attached_is_left_out, setup_two_closed,
			teardown),
		T(a_volume_comes_back_when_it_answers_in_time),
		T(what_answers_with_an_error_after_it_hung_is_told_once),
		T(who_waits_for_a_sync_is_told_when_the_volume_goes),
	};

	log_init("volume_failure_test", LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
