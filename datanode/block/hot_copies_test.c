/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of cached replicas; the store is played. What must hold: a copy is what the replica was,
 * data and CRCs, or there is none; all who ask share it, and it goes with the last of them; what is
 * not cached, or changes meanwhile, has none; copies and what the cache locks stay within the
 * limit, and the cache goes first. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "datanode/block/hot_copies.h"

#define LEN 5000u /* not whole chunks */
#define CRCS (10 * 4)
#define ID 7
#define COPY 8192u /* what a copy takes */

static uint8_t data[LEN], crcs[CRCS];
static struct replica_reader reader;
static atomic_uint opened;
static unsigned suspected, begun, done;
static atomic_uint later; /* seconds that the clock is ahead */
static atomic_bool hangs;
static bool cut, damaged;
static void (*while_opened)(void), (*while_read)(void);
static struct hot_copies *hot;
static struct conf *conf;
static char some;
static struct block_pool *const bp = (struct block_pool *)&some;

/* ---- the store ---- */

static int file_of(const void *head, size_t head_len, const void *p, size_t len)
{
	const int fd = memfd_create("replica", 0);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, head, head_len), head_len);
	assert_int_equal(write(fd, p, len), len);
	return fd;
}

int replica_read_open(struct block_pool *pool, const struct block *b, struct replica_reader **ret,
		      struct err *err)
{
	(void)err;
	assert_ptr_equal(pool, bp);
	reader.block.id = b->id;
	opened++;
	reader.fd = file_of("", 0, data, LEN);
	reader.fd_meta = file_of("\0\1\2\0\0\2\0", META_HEADER_LEN, crcs, CRCS);
	if (damaged)
		assert_int_equal(pwrite(reader.fd, "x", 1, LEN - 1), 1);
	if (while_opened)
		while_opened();
	*ret = &reader;
	return 0;
}

void replica_read_begin(struct replica_reader *r)
{
	assert_ptr_equal(r, &reader);
	begun++;
	if (while_read)
		while_read();
}

void replica_read_end(struct replica_reader *r)
{
	assert_ptr_equal(r, &reader);
	assert_int_equal(begun, ++done);
}

int __real_clock_gettime(clockid_t which, struct timespec *ret);
int __wrap_clock_gettime(clockid_t which, struct timespec *ret);
int __wrap_clock_gettime(clockid_t which, struct timespec *ret)
{
	const int rc = __real_clock_gettime(which, ret);

	ret->tv_sec += (time_t)later;
	return rc;
}

void replica_read_close(struct replica_reader *r)
{
	close(r->fd);
	close(r->fd_meta);
}

bool replica_read_is_cut(struct replica_reader *r, uint64_t end)
{
	assert_ptr_equal(r, &reader);
	assert_int_equal(end, LEN);
	return cut;
}

void replica_suspect(struct block_pool *pool, const struct block *b)
{
	(void)pool;
	assert_int_equal(b->id, ID);
	suspected++;
}

/* ---- who asks ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned ran;

static void ran_one(struct hot_job *j)
{
	(void)j;
	pthread_mutex_lock(&lock);
	ran++;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
}

static void await(unsigned n)
{
	pthread_mutex_lock(&lock);
	while (ran < n)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static int ask_id(int64_t id, struct hot_copy **ret)
{
	struct hot_job j = {.run = ran_one, .wants = true, .bp = bp, .id = id};

	ran = 0;
	assert_true(hot_copies_ask(hot, &j));
	await(1);
	assert_true(j.rc == 0 ? j.copy != NULL : j.copy == NULL);
	*ret = j.copy;
	return j.rc;
}

static int ask(struct hot_copy **ret)
{
	return ask_id(ID, ret);
}

static struct hot_copy *must_have(void)
{
	struct hot_copy *c;

	assert_int_equal(ask(&c), 0);
	return c;
}

static int refused(void)
{
	struct hot_copy *c;

	return ask(&c);
}

static void is_cached(uint64_t gs)
{
	reader.block.gs = gs;
	hot_copies_allow(hot, bp, &reader.block);
}

/* For another block than those that have copies. */
static bool take_room(int64_t order, size_t len)
{
	return hot_copies_take_room(hot, bp, 1000 + order, len);
}

static void setup_with(const char *bytes)
{
	struct err err = ERR_INIT;

	conf = conf_new();
	assert_int_equal(conf_set(conf, "dfs.datanode.max.locked.memory", bytes), 0);
	assert_int_equal(hot_copies_new(conf, &hot, &err), 0);
	assert_non_null(hot);
	opened = 0;
	suspected = begun = done = later = 0;
	hangs = false;
	cut = damaged = false;
	while_opened = while_read = NULL;
	reader = (struct replica_reader){.state = REPLICA_FINALIZED,
					 .block = {ID, 1001, LEN},
					 .crc_type = CRC_CRC32C,
					 .bytes_per_crc = 512};
	for (uint32_t i = 0; i < LEN; i++)
		data[i] = (uint8_t)(i * 7);
	crc_chunks(CRC_CRC32C, data, LEN, 512, crcs);
}

static int setup(void **state)
{
	(void)state;
	setup_with("8192");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	hot_copies_free(hot);
	conf_free(conf);
	return 0;
}

/* ---- tests ---- */

static void a_copy_is_data_and_crcs_and_all_share_it(void **state)
{
	struct hot_copy *a, *b;

	(void)state;
	is_cached(1001);
	a = must_have();
	b = must_have();
	assert_ptr_equal(a, b);
	assert_int_equal(opened, 1);
	assert_true(begun >= 2 && begun == done); /* what hangs is seen */
	assert_memory_equal(a->p, data, LEN);
	assert_int_equal(a->crc_len, CRCS);
	assert_true(a->crc_at >= LEN && a->crc_at + CRCS <= a->size);
	assert_memory_equal(a->p + a->crc_at, crcs, CRCS);
	assert_true(a->block.gs == 1001 && a->block.len == LEN && a->bytes_per_crc == 512 &&
		    a->crc_type == CRC_CRC32C && !a->over);
	hot_copy_put(a);
	assert_memory_equal(b->p, data, LEN);
	hot_copy_put(b);
	b = must_have(); /* it was let go of, and there is room for one only */
	assert_int_equal(opened, 2);
	hot_copy_put(b);
}

static void what_is_damaged_or_cut_has_none(void **state)
{
	(void)state;
	is_cached(1001);
	damaged = true;
	assert_int_equal(refused(), -EBADMSG);
	assert_int_equal(suspected, 1);
	damaged = false;
	cut = true;
	assert_int_equal(refused(), -ESTALE);
	cut = false;
	reader.crc_type = CRC_NULL;
	assert_int_equal(refused(), -ENOTSUP);
	reader.crc_type = CRC_CRC32C;
	reader.state = REPLICA_RBW;
	assert_int_equal(refused(), -EAGAIN);
	reader.state = REPLICA_FINALIZED;
	assert_int_equal(suspected, 1);
	hot_copy_put(must_have()); /* nothing of those took room */
}

static void forbids(void)
{
	hot_copies_forbid(hot, bp, ID);
}

static void is_another_one(void)
{
	reader.block.gs = 1002;
}

static void is_cached_anew(void)
{
	hot_copies_allow(hot, bp, &(struct block){ID, 1002, LEN});
}

static void what_is_not_cached_or_changes_meanwhile_has_none(void **state)
{
	struct hot_copy *old, *new;

	(void)state;
	assert_int_equal(refused(), -ENOENT);
	assert_int_equal(opened, 0);
	is_cached(1001);
	while_opened = forbids;
	assert_int_equal(refused(), -ESTALE);
	is_cached(1001);
	while_opened = is_cached_anew;
	assert_int_equal(refused(), -ESTALE);
	is_cached(1001);
	while_opened = is_another_one;
	assert_int_equal(refused(), -ESTALE);
	while_opened = NULL;
	is_cached(1001);
	old = must_have();
	hot_copies_forbid(hot, bp, ID);
	assert_true(old->over);
	assert_int_equal(refused(), -ENOENT);
	assert_memory_equal(old->p, data, LEN); /* who has it reads on */
	is_cached(1002);
	assert_int_equal(refused(), -ENOSPC); /* the old one is there yet */
	hot_copy_put(old);
	new = must_have();
	assert_true(new->block.gs == 1002 && !new->over);
	hot_copy_put(new);
}

static void the_cache_goes_first(void **state)
{
	struct hot_copy *c;

	(void)state;
	is_cached(1001);
	assert_true(take_room(1, 4096));
	assert_int_equal(refused(), -ENOSPC);
	hot_copies_give_room(hot, 4096);
	c = must_have();
	assert_false(take_room(1, COPY + 1)); /* never: nothing is let go of */
	assert_false(c->over);
	assert_false(take_room(1, 4096));
	assert_true(c->over);
	assert_int_equal(refused(), -ENOSPC);
	hot_copy_put(c);
	assert_true(take_room(1, 4096));
	assert_int_equal(refused(), -ENOSPC);
	hot_copies_give_room(hot, 4096);
	hot_copy_put(must_have());
}

/* Room for three copies, and @n of them made. */
static void make_copies(struct hot_copy *c[], int n)
{
	hot_copies_free(hot);
	conf_free(conf);
	setup_with("24576");
	for (int i = 0; i < 3; i++)
		hot_copies_allow(hot, bp, &(struct block){ID + i, 1001, LEN});
	reader.block.gs = 1001;
	for (int i = 0; i < n; i++)
		assert_int_equal(ask_id(ID + i, &c[i]), 0);
}

static void as_many_go_as_are_needed_and_none_come_meanwhile(void **state)
{
	struct hot_copy *c[2];

	(void)state;
	make_copies(c, 2);
	assert_true(hot_copies_has(hot, bp, ID + 1) && !hot_copies_has(hot, bp, ID + 3));
	c[0]->viewed_ns = 2;
	c[1]->viewed_ns = 1;
	assert_false(take_room(1, COPY + 4096));
	assert_true(!c[0]->over && c[1]->over);
	assert_false(take_room(1, COPY + 4096)); /* it is on its way */
	assert_false(c[0]->over);
	hot_copy_put(c[1]);
	assert_int_equal(ask_id(ID + 1, &c[1]), -ENOSPC); /* it is not for this */
	assert_true(take_room(1, COPY + 4096));
	hot_copies_give_room(hot, COPY + 4096);
	assert_int_equal(ask_id(ID + 1, &c[1]), 0);
	assert_false(take_room(1, COPY + 4096));
	assert_true(c[0]->over);
	hot_copy_put(c[0]);
	assert_int_equal(ask_id(ID, &c[0]), -ENOSPC);
	later = HOT_YIELD_MS / 1000 + 1; /* it is not ordered again */
	assert_int_equal(ask_id(ID, &c[0]), 0);
	later = 0;
	hot_copy_put(c[0]);
	hot_copy_put(c[1]);
}

static void orders_of_one_round_get_their_room_in_one_round(void **state)
{
	struct hot_copy *c[3];

	(void)state;
	make_copies(c, 3);
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < 2; i++) /* asked for again they are not more */
			assert_false(take_room(i, COPY));
	assert_int_equal(c[0]->over + c[1]->over + c[2]->over, 2);
	for (int i = 0; i < 3; i++)
		hot_copy_put(c[i]);
	assert_true(take_room(0, COPY));
	assert_int_equal(ask_id(ID, &c[0]), 0);           /* it fits beside the other order ... */
	assert_int_equal(ask_id(ID + 1, &c[1]), -ENOSPC); /* ... this one does not */
	assert_true(take_room(1, COPY));
	hot_copy_put(c[0]);
}

static void an_order_that_is_taken_back_keeps_no_room(void **state)
{
	struct hot_copy *c[3];

	(void)state;
	make_copies(c, 3);
	assert_false(take_room(0, COPY));
	for (int i = 0; i < 3; i++)
		hot_copy_put(c[i]);
	hot_copies_forbid(hot, bp, 1000);
	for (int i = 0; i < 3; i++)
		assert_int_equal(ask_id(ID + i, &c[i]), 0);
	for (int i = 0; i < 3; i++)
		hot_copy_put(c[i]);
}

static void is_ordered(void)
{
	assert_false(take_room(0, COPY));
}

static void an_order_goes_before_a_copy_that_is_being_made(void **state)
{
	(void)state;
	is_cached(1001);
	while_read = is_ordered;
	assert_int_equal(refused(), -ENOSPC);
	assert_true(take_room(0, COPY));
}

static void a_copy_that_nobody_views_gives_way(void **state)
{
	struct hot_copy *c[4];

	(void)state;
	make_copies(c, 3);
	hot_copies_allow(hot, bp, &(struct block){ID + 3, 1001, LEN});
	assert_int_equal(ask_id(ID + 3, &c[3]), -ENOSPC);
	assert_int_equal(c[0]->over + c[1]->over + c[2]->over, 0);
	later = HOT_IDLE_MS / 1000 + 1;
	c[0]->viewed_ns = c[2]->viewed_ns = clock_mono_ns();
	assert_int_equal(ask_id(ID + 3, &c[3]), -ENOSPC);
	assert_true(!c[0]->over && c[1]->over && !c[2]->over);
	hot_copy_put(c[1]);
	assert_int_equal(ask_id(ID + 3, &c[3]), 0);
	later = 0;
	hot_copy_put(c[0]);
	hot_copy_put(c[2]);
	hot_copy_put(c[3]);
}

static void hang(void)
{
	while (hangs)
		(void)poll(NULL, 0, 1);
}

static void a_disk_that_hangs_does_not_hold_up_the_end(void **state)
{
	struct hot_job j = {.run = ran_one, .wants = true, .bp = bp, .id = ID};
	struct hot_job lets_go = {.run = ran_one};

	(void)state;
	is_cached(1001);
	ran = 0;
	hangs = true;
	while_opened = hang;
	assert_true(hot_copies_ask(hot, &j));
	while (!opened)
		(void)poll(NULL, 0, 1);
	assert_true(hot_copies_ask(hot, &lets_go));
	await(1); /* others are let go of meanwhile */
	ran = 0;
	assert_false(hot_copies_stop(hot));
	assert_false(hot_copies_ask(hot, &j));
	hangs = false;
	await(1);
	assert_true(j.rc == -ECANCELED && !j.copy); /* no more is read */
	assert_int_equal(begun, 0);
	assert_true(hot_copies_stop(hot));
}

static int processors;

static void count_processors(struct hot_job *j)
{
	cpu_set_t set;

	assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
	processors = CPU_COUNT(&set);
	ran_one(j);
}

static void who_asks_does_not_keep_the_thread_on_its_processor(void **state)
{
	struct hot_job j = {.run = count_processors};
	cpu_set_t all, one;
	int first = 0;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	while (!CPU_ISSET(first, &all))
		first++;
	CPU_ZERO(&one);
	CPU_SET(first, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	ran = 0;
	assert_true(hot_copies_ask(hot, &j));
	await(1);
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	assert_int_equal(processors, CPU_COUNT(&all));
}

static void waits(void)
{
	(void)poll(NULL, 0, 50);
}

static void at_the_end_all_jobs_run(void **state)
{
	struct hot_job j[3] = {{.run = ran_one, .wants = true, .bp = bp, .id = ID},
			       {.run = ran_one, .wants = true, .bp = bp, .id = ID},
			       {.run = ran_one}};

	(void)state;
	is_cached(1001);
	ran = 0;
	while_opened = waits;
	for (unsigned i = 0; i < 3; i++)
		assert_true(hot_copies_ask(hot, &j[i]));
	assert_true(hot_copies_stop(hot));
	assert_int_equal(ran, 3);
	assert_true(j[1].rc == -ECANCELED && !j[1].copy);
	if (j[0].copy)
		hot_copy_put(j[0].copy);
	assert_false(hot_copies_ask(hot, &j[0]));
}

static void a_node_without_cache_or_with_the_key_off_makes_none(void **state)
{
	static const char *const values[] = {"off", "on"};
	struct err err = ERR_INIT;
	struct hot_copies *h = hot;
	struct conf *none;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct conf *c = conf_new();

		assert_int_equal(conf_set(c, "dfs.datanode.max.locked.memory", "8192"), 0);
		assert_int_equal(conf_set(c, "dfs.rdma.onesided", values[i]), 0);
		assert_int_equal(hot_copies_new(c, &h, &err), i ? -EINVAL : 0);
		assert_null(h);
		conf_free(c);
	}
	none = conf_new();
	assert_int_equal(hot_copies_new(none, &h, &err), 0);
	conf_free(none);
	assert_null(h);
	hot_copies_allow(NULL, bp, &reader.block);
	hot_copies_forbid(NULL, bp, ID);
	assert_true(hot_copies_take_room(NULL, bp, 1, 1));
	hot_copies_give_room(NULL, 1);
	assert_false(hot_copies_ask(NULL, NULL));
	assert_true(hot_copies_stop(NULL));
	hot_copies_free(NULL);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(a_copy_is_data_and_crcs_and_all_share_it),
		CASE(what_is_damaged_or_cut_has_none),
		CASE(what_is_not_cached_or_changes_meanwhile_has_none),
		CASE(the_cache_goes_first),
		CASE(as_many_go_as_are_needed_and_none_come_meanwhile),
		CASE(orders_of_one_round_get_their_room_in_one_round),
		CASE(an_order_that_is_taken_back_keeps_no_room),
		CASE(an_order_goes_before_a_copy_that_is_being_made),
		CASE(a_copy_that_nobody_views_gives_way),
		CASE(a_disk_that_hangs_does_not_hold_up_the_end),
		CASE(who_asks_does_not_keep_the_thread_on_its_processor),
		CASE(at_the_end_all_jobs_run),
		CASE(a_node_without_cache_or_with_the_key_off_makes_none),
	};

	log_init("hot_copies_test", LOG_ERROR);
	return cmocka_run_group_tests_name("hot_copies", tests, NULL, NULL);
}
