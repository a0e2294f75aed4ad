/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold: whatever range is asked for, whatever units are lost, fail half-way, lie or say
 * nothing, the bytes are right as long as k units are left, and nothing more is fetched than that
 * takes; a unit that is slow is not waited for; with fewer than k the reader hears which ones are
 * missing.
 * The nodes are streams that serve units made by our coder, in pieces of random size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/src/striped/stripe.h"

#define CELL 4096u
#define K 3u
#define M 2u
#define ID (INT64_MIN + 16)
#define LENGTH (5 * K * CELL + CELL + 77) /* five rows, a cell and a bit */
#define UNIT_MAX (8 * CELL)

enum behaviour { FINE, REFUSES, LIES, BREAKS, SILENT, TOKEN };

static struct dfs fs;
static struct ec_policy policy;
static uint8_t data[LENGTH], unit_data[K + M][UNIT_MAX];
static enum behaviour behaves[K + M];
static uint64_t served[K + M], trouble_at; /* BREAKS, LIES, SILENT: at this byte of the unit */
static unsigned starts, open_streams, fails;
static uint32_t failed_units, suspects;
static int failed_rc;
/* passes while a stripe waits, and only then: a slow machine is not a slow unit */
static uint64_t now_ns;
static Hd__DatanodeIDProto node_id[K + M];
static Hd__DatanodeInfoProto node[K + M], *nodes[K + M];
static Hd__ExtendedBlockProto block;
static Hd__LocatedBlockProto lb;
static uint8_t indices[] = {4, 2, 0, 1, 3};

/* ---- streams ---- */

struct fake {
	struct rstream base;
	unsigned unit;
	uint64_t at, end;
	bool now; /* every second call has something */
};

static ssize_t fake_try(struct rstream *s, void *buf, size_t len, struct err *err)
{
	struct fake *f = container_of(s, struct fake, base);
	const enum behaviour b = behaves[f->unit];
	size_t n = 1 + (size_t)rand() % CELL;

	assert_true(f->at < f->end && len <= f->end - f->at);
	n = n < len ? n : len;
	f->now = !f->now;
	if (!f->now)
		return 0;
	if ((b == BREAKS || b == LIES || b == SILENT) && f->at + n > trouble_at) {
		if (f->at < trouble_at)
			n = trouble_at - f->at;
		else if (b == SILENT)
			return 0;
		else
			return err_set(err, b == LIES ? -EBADMSG : -ECONNRESET, "unit %u fails",
				       f->unit);
	}
	memcpy(buf, unit_data[f->unit] + f->at, n);
	f->at += n;
	served[f->unit] += n;
	return (ssize_t)n;
}

static int fake_poll(struct rstream *s, struct pollfd *ret)
{
	const struct fake *f = container_of(s, struct fake, base);

	*ret = (struct pollfd){.fd = (int)f->unit, .events = POLLIN};
	ret->revents = behaves[f->unit] == SILENT && f->at >= trouble_at ? 0 : POLLIN;
	return 0;
}

static void fake_close(struct rstream *s)
{
	open_streams--;
	free(container_of(s, struct fake, base));
}

static const struct block_stream fake_ops = {
	.name = "fake", .try_read = fake_try, .poll_read = fake_poll, .close_read = fake_close};

static int fake_start(struct dfs *d, const struct read_setup *r, struct rstream **ret,
		      struct err *err)
{
	const unsigned u = ec_id_unit((int64_t)r->lb->b->blockid);
	struct fake *f;

	(void)d;
	starts++;
	assert_int_equal(r->lb->locs[r->node]->id->xferport, 1 + u);
	assert_true(r->len > 0 && r->offset + r->len <= ec_unit_length(&policy, LENGTH, u));
	if (behaves[u] == REFUSES)
		return err_set(err, -ECONNREFUSED, "unit %u refuses", u);
	if (behaves[u] == TOKEN)
		return err_set(err, -EACCES, "unit %u wants a token", u);
	f = calloc(1, sizeof(*f));
	f->base.ops = &fake_ops;
	f->unit = u;
	f->at = r->offset;
	f->end = r->offset + r->len;
	open_streams++;
	*ret = &f->base;
	return 0;
}

static void fake_failed(struct dfs *d, const struct group_unit *u, size_t n, const struct err *err)
{
	(void)d;
	(void)n;
	fails++;
	failed_rc = err->rc;
	failed_units |= 1u << ec_id_unit((int64_t)u->b.blockid);
}

static bool fake_suspect(struct dfs *d, const Hd__DatanodeInfoProto *n)
{
	(void)d;
	return suspects >> (n->id->xferport - 1) & 1;
}

static uint64_t fake_now(void)
{
	return now_ns;
}

/* fake_poll() knows already whose news there are. */
static int fake_wait(struct pollfd *fds, nfds_t n, int ms)
{
	int ready = 0;

	for (nfds_t i = 0; i < n; i++)
		ready += fds[i].revents != 0;
	now_ns += (ready ? 10 : ms * 1000ull) * 1000;
	return ready;
}

static const struct stripe_ops ops = {fake_start, fake_failed, fake_suspect, fake_now, fake_wait};

/* ---- the group ---- */

static void make_units(void)
{
	struct ec_coder *c;
	struct ec_src src[K];
	uint8_t *parity[M];

	for (size_t i = 0; i < LENGTH; i++)
		data[i] = (uint8_t)rand();
	for (size_t i = 0; i < LENGTH; i++) {
		const struct ec_place p = ec_place_of(&policy, i);

		unit_data[p.unit][p.at] = data[i];
	}
	assert_int_equal(ec_coder_new(&policy, &c, NULL), 0);
	for (unsigned u = 0; u < K; u++)
		src[u] = (struct ec_src){unit_data[u], ec_unit_length(&policy, LENGTH, u)};
	for (unsigned u = 0; u < M; u++)
		parity[u] = unit_data[K + u];
	ec_encode(c, src, parity, ec_unit_length(&policy, LENGTH, K));
	ec_coder_free(c);
}

static int setup(void **state)
{
	(void)state;
	fs.set.socket_timeout_ms = 60000;
	assert_int_equal(ec_policy_make(EC_CODEC_RS, K, M, CELL, 70, &policy, NULL), 0);
	make_units();
	hd__located_block_proto__init(&lb);
	hd__extended_block_proto__init(&block);
	block.blockid = (uint64_t)ID;
	block.has_numbytes = 1;
	block.numbytes = LENGTH;
	lb.b = &block;
	lb.n_locs = lb.blockindices.len = K + M;
	lb.locs = nodes;
	lb.has_blockindices = 1;
	lb.blockindices.data = indices;
	for (unsigned i = 0; i < K + M; i++) {
		hd__datanode_idproto__init(&node_id[i]);
		hd__datanode_info_proto__init(&node[i]);
		node_id[i].ipaddr = "10.0.0.1";
		node_id[i].xferport = 1u + indices[i];
		node[i].id = &node_id[i];
		nodes[i] = &node[i];
	}
	return 0;
}

static struct stripe *fresh(void)
{
	struct stripe *s;

	starts = fails = 0;
	failed_units = suspects = 0;
	failed_rc = 0;
	trouble_at = 0;
	for (unsigned u = 0; u < K + M; u++) {
		behaves[u] = FINE;
		served[u] = 0;
	}
	assert_int_equal(stripe_open(&fs, &lb, &policy, &ops, NULL, &s, NULL), 0);
	return s;
}

static void done(struct stripe *s)
{
	stripe_close(s, NULL);
	assert_int_equal(open_streams, 0);
}

static int read_at(struct stripe *s, uint64_t at, uint64_t len, enum stripe_mode mode)
{
	static uint8_t buf[LENGTH];
	struct err err = ERR_INIT;
	int rc;

	memset(buf, 0xee, len);
	rc = stripe_read(s, at, len, buf, mode, true, &err);
	if (rc == 0)
		assert_memory_equal(buf, data + at, len);
	return rc;
}

static uint64_t served_all(void)
{
	uint64_t n = 0;

	for (unsigned u = 0; u < K + M; u++)
		n += served[u];
	return n;
}

/* ---- tests ---- */

static void a_whole_group_is_read_without_parity_and_by_one_stream_a_unit(void **state)
{
	struct stripe *s = fresh();

	(void)state;
	assert_int_equal(read_at(s, 0, LENGTH, STRIPE_EXACT), 0);
	assert_int_equal(starts, K);
	assert_int_equal(served_all(), LENGTH);
	assert_false(stripe_degraded(s, 0));
	done(s);
}

static void random_ranges_with_every_pattern_of_failures(void **state)
{
	static const enum behaviour how[] = {REFUSES, LIES, BREAKS};

	(void)state;
	for (uint32_t set = 0; set < 1u << (K + M); set++) {
		if (__builtin_popcount(set) > (int)M)
			continue;
		for (int round = 0; round < 60; round++) {
			struct stripe *s = fresh();

			trouble_at = (uint64_t)rand() % (6 * CELL);
			for (unsigned u = 0; u < K + M; u++)
				if (set >> u & 1)
					behaves[u] = how[rand() % 3];
			for (int i = 0; i < 4; i++) {
				const uint64_t at = (uint64_t)rand() % LENGTH;
				const uint64_t len = 1 + (uint64_t)rand() % (LENGTH - at);

				assert_int_equal(read_at(s, at, len, STRIPE_EXACT), 0);
			}
			assert_int_equal(failed_units & ~set, 0);
			done(s);
		}
	}
}

static void in_sequence_with_failures_on_the_way(void **state)
{
	(void)state;
	for (int round = 0; round < 500; round++) {
		struct stripe *s = fresh();
		const unsigned one = (unsigned)rand() % (K + M), two = (unsigned)rand() % (K + M);
		uint64_t at = 0;

		trouble_at = (uint64_t)rand() % (6 * CELL);
		behaves[one] = LIES;
		behaves[two] = BREAKS;
		while (at < LENGTH) {
			uint64_t n = 1 + (uint64_t)rand() % (2 * CELL);

			n = n < LENGTH - at ? n : LENGTH - at;
			if (rand() % 2)
				stripe_prefetch(s, at);
			assert_int_equal(read_at(s, at, n, STRIPE_AHEAD), 0);
			at += n;
		}
		done(s);
	}
}

static void a_degraded_read_fetches_only_what_is_needed(void **state)
{
	struct stripe *s = fresh();

	(void)state;
	behaves[1] = REFUSES;
	/* 100 bytes of the lost unit: the same 100 bytes of k others */
	assert_int_equal(read_at(s, CELL + 50, 100, STRIPE_EXACT), 0);
	assert_int_equal(served_all(), K * 100);
	/* of one that is there: nothing else */
	assert_int_equal(read_at(s, 50, 100, STRIPE_EXACT), 0);
	assert_int_equal(served_all(), K * 100 + 100);
	/* whole rows: as many bytes as were asked for, and each unit by one stream */
	starts = 0;
	assert_int_equal(read_at(s, 0, 4 * K * CELL, STRIPE_EXACT), 0);
	assert_int_equal(served_all(), K * 100 + 100 + 4 * K * CELL);
	assert_int_equal(starts, K);
	assert_true(stripe_degraded(s, 0));
	assert_false(stripe_degraded(s, 2 * CELL));
	done(s);
	/* the last row has one cell and a bit of another: zeros are not fetched */
	s = fresh();
	behaves[0] = REFUSES;
	assert_int_equal(read_at(s, 5 * K * CELL, CELL, STRIPE_EXACT), 0);
	assert_int_equal(served_all(), CELL + 77);
	done(s);
}

static void nobody_waits_for_a_slow_unit(void **state)
{
	struct stripe *s = fresh();
	uint64_t begin = now_ns;

	(void)state;
	trouble_at = 100;
	behaves[1] = SILENT;
	assert_int_equal(read_at(s, 0, 3 * K * CELL, STRIPE_EXACT), 0);
	assert_in_range(now_ns - begin, HEDGE_MIN_NS, 2 * HEDGE_MIN_NS);
	assert_int_equal(failed_units, 2);
	assert_int_equal(failed_rc, -ETIME);
	begin = now_ns; /* and it is not asked again */
	starts = 0;
	assert_int_equal(read_at(s, CELL, CELL, STRIPE_EXACT), 0);
	assert_int_equal(starts, K);
	assert_true(now_ns - begin < HEDGE_MIN_NS);
	done(s);

	s = fresh(); /* one that is waited for alone */
	behaves[2] = SILENT;
	begin = now_ns;
	assert_int_equal(read_at(s, 2 * CELL, 10, STRIPE_EXACT), 0);
	assert_in_range(now_ns - begin, HEDGE_ALONE_NS, 2 * HEDGE_ALONE_NS);
	done(s);

	s = fresh(); /* with another one lost */
	behaves[0] = REFUSES;
	behaves[2] = SILENT;
	trouble_at = 500;
	assert_int_equal(read_at(s, 0, 2 * K * CELL, STRIPE_EXACT), 0);
	done(s);
}

static void two_slow_units_at_once_are_both_left_behind(void **state)
{
	struct stripe *s = fresh();

	(void)state;
	trouble_at = 100;
	behaves[0] = behaves[2] = SILENT;
	assert_int_equal(read_at(s, 0, 3 * K * CELL, STRIPE_EXACT), 0);
	assert_int_equal(failed_units, 5);
	assert_int_equal(failed_rc, -ETIME);
	assert_true(served[3] >= 3 * CELL - 100 && served[4] >= 3 * CELL - 100);
	assert_int_equal(read_at(s, 0, LENGTH, STRIPE_EXACT), 0);
	assert_int_equal(served[0] + served[2], 200); /* nobody was asked again */
	done(s);
}

/* Who is avoided is no substitute for the next one who is slow, as long as there are others. */
static void one_slow_unit_after_the_other(void **state)
{
	struct stripe *s = fresh();

	(void)state;
	behaves[1] = SILENT;
	assert_int_equal(read_at(s, 0, 2 * K * CELL, STRIPE_EXACT), 0);
	assert_int_equal(failed_units, 1 << 1);
	behaves[1] = FINE;
	behaves[2] = SILENT;
	trouble_at = 2 * CELL + 10;
	assert_int_equal(read_at(s, 2 * K * CELL, 2 * K * CELL, STRIPE_EXACT), 0);
	assert_int_equal(failed_units, 1 << 1 | 1 << 2);
	assert_int_equal(served[1], 0);
	/* A third one: units in doubt are better than none. One of them is there again, the other
	 * one is not waited for. */
	behaves[3] = SILENT;
	trouble_at = 4 * CELL;
	assert_int_equal(read_at(s, 4 * K * CELL, K * CELL, STRIPE_EXACT), 0);
	assert_true(served[1] >= CELL);
	assert_int_equal(served[2], 2 * CELL + 10);
	assert_int_equal(fails, 2); /* nobody was given up for it */
	done(s);
}

static void suspects_are_asked_only_when_they_must_be(void **state)
{
	struct stripe *s;

	(void)state;
	s = fresh();
	stripe_close(s, NULL);
	suspects = 1;
	assert_int_equal(stripe_open(&fs, &lb, &policy, &ops, NULL, &s, NULL), 0);
	assert_int_equal(read_at(s, 0, LENGTH, STRIPE_EXACT), 0);
	assert_int_equal(served[0], 0);
	behaves[3] = behaves[4] = REFUSES;
	assert_int_equal(read_at(s, 0, LENGTH, STRIPE_EXACT), 0);
	assert_true(served[0] > 0);
	done(s);
}

/* The NameNode says that it has not heard of it for a while: it is probably dead. */
static void a_unit_of_a_silent_node_is_read_only_when_it_must_be(void **state)
{
	struct stripe *s;

	(void)state;
	s = fresh();
	stripe_close(s, NULL);
	for (unsigned i = 0; i < K + M; i++)
		node[i].has_stale = node[i].stale = indices[i] == 1 || indices[i] == 3;
	assert_int_equal(stripe_open(&fs, &lb, &policy, &ops, NULL, &s, NULL), 0);
	assert_int_equal(read_at(s, 0, LENGTH, STRIPE_EXACT), 0);
	assert_int_equal(served[1] + served[3], 0);
	assert_true(served[4] > 0);
	behaves[4] = REFUSES;
	assert_int_equal(read_at(s, 0, LENGTH, STRIPE_EXACT), 0);
	assert_true(served[1] + served[3] > 0);
	done(s);
	for (unsigned i = 0; i < K + M; i++)
		node[i].has_stale = node[i].stale = false;
}

static void too_many_losses_are_named(void **state)
{
	struct stripe *s = fresh();
	char text[400];

	(void)state;
	behaves[0] = behaves[3] = REFUSES;
	behaves[2] = BREAKS;
	trouble_at = CELL;
	assert_int_equal(read_at(s, 0, 100, STRIPE_EXACT), 0); /* enough for that */
	assert_int_equal(read_at(s, 0, 3 * K * CELL, STRIPE_EXACT), -ENODATA);
	stripe_explain(s, text, sizeof(text));
	assert_non_null(strstr(text, "2 of its units are left, 3 are needed"));
	assert_non_null(strstr(text, "unit 0 (10.0.0.1:1: unit 0 refuses)"));
	assert_non_null(strstr(text, "unit 2 (10.0.0.1:3: unit 2 fails)"));
	assert_non_null(strstr(text, "unit 3 (10.0.0.1:4: "));
	stripe_explain(s, text, 170); /* room for the names and a part of the causes */
	for (unsigned i = 0; i < 4; i++)
		if (i != 1) {
			char name[20];

			snprintf(name, sizeof(name), "(10.0.0.1:%u", i + 1);
			assert_non_null(strstr(text, name));
		}
	stripe_explain(s, text, 60); /* cut, not overrun */
	assert_true(strlen(text) < 60);
	assert_true(stripe_is_away(s)); /* without unit 2, which was there, four may be back */
	done(s);
	s = fresh();
	behaves[0] = behaves[2] = behaves[3] = BREAKS;
	assert_int_equal(read_at(s, 0, 3 * K * CELL, STRIPE_EXACT), -ENODATA);
	assert_false(stripe_is_away(s));
	done(s);
	s = fresh();
	assert_false(stripe_is_away(s));
	behaves[0] = behaves[1] = behaves[2] = REFUSES;
	assert_int_equal(read_at(s, 0, 3 * K * CELL, STRIPE_EXACT), -ENODATA);
	assert_true(stripe_is_away(s));
	done(s);
}

static void an_old_token_is_no_failure_at_first(void **state)
{
	struct stripe *s = fresh();
	struct err err = ERR_INIT;
	uint8_t buf[10];

	(void)state;
	behaves[0] = TOKEN;
	assert_int_equal(stripe_read(s, 0, 10, buf, STRIPE_EXACT, false, &err), -EACCES);
	assert_int_equal(fails, 0);
	assert_int_equal(stripe_read(s, 0, 10, buf, STRIPE_EXACT, true, &err), 0);
	assert_memory_equal(buf, data, 10);
	assert_int_equal(fails, 1);
	assert_int_equal(stripe_read(s, LENGTH, 1, buf, STRIPE_EXACT, true, &err), -EINVAL);
	done(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_whole_group_is_read_without_parity_and_by_one_stream_a_unit),
		cmocka_unit_test(random_ranges_with_every_pattern_of_failures),
		cmocka_unit_test(in_sequence_with_failures_on_the_way),
		cmocka_unit_test(a_degraded_read_fetches_only_what_is_needed),
		cmocka_unit_test(nobody_waits_for_a_slow_unit),
		cmocka_unit_test(two_slow_units_at_once_are_both_left_behind),
		cmocka_unit_test(one_slow_unit_after_the_other),
		cmocka_unit_test(suspects_are_asked_only_when_they_must_be),
		cmocka_unit_test(a_unit_of_a_silent_node_is_read_only_when_it_must_be),
		cmocka_unit_test(too_many_losses_are_named),
		cmocka_unit_test(an_old_token_is_no_failure_at_first),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
